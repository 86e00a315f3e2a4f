/*
 * database.h: what the daemon's SQLite files have in common.  One process writes a file and holds a
 * lock beside it; other programs may read it meanwhile (write-ahead logging).  application_id says
 * whose file it is, user_version its schema.
 */
#pragma once

#include "base/strbuf.h"

#include <ingot/error.h>
#include <sqlite3.h>
#include <sys/types.h>

struct ig_database_kind {
	const char *name;   /* in errors: "ledger" */
	const char *option; /* that names the file: "ledger.path" */
	int application_id;
	int version; /* of the schema that this program writes */
	/* Append the SQL that turns a file of an earlier version (0: an empty one) into this one. */
	void (*put_migration)(struct ig_strbuf *sql, int64_t version);
};

struct ig_database {
	const struct ig_database_kind *kind;
	char *path, *lock_path;
	int lock_fd;
	sqlite3 *db;
};

/* Open or create the file and its folders, lock it (another writer: -EBUSY), migrate it.  Only its
 * owner may read it.  After an error, too, d must be closed. */
int ig_database_open(struct ig_database *d, const struct ig_database_kind *kind, const char *path,
		     struct ig_error *err);
/* All statements must have been finalized. */
void ig_database_close(struct ig_database *d);

/* The process that has the lock of the file at path; 0: none, or it is not known. */
pid_t ig_database_holder(const char *path);
/* Write something, to see whether that works again: an SQLite code. */
int ig_database_probe(struct ig_database *d);
/* The SQLite code to report for what ig_database_open returned; 0: SQLITE_OK. */
int ig_database_code(int rc);

/* "NAME PATH: what: SQLite's text"; the matching negative errno.  db NULL: the code's text. */
int ig_database_fail(const struct ig_database_kind *kind, sqlite3 *db, int code, const char *path,
		     const char *what, struct ig_error *err);
/* The only number in a PRAGMA's or a SELECT's result; returns an SQLite code. */
int ig_database_number(sqlite3 *db, const char *sql, int64_t *out);
/* 0 when the file is of this kind with a known schema, *version, which is 0 for an empty file. */
int ig_database_check(const struct ig_database_kind *kind, sqlite3 *db, const char *path,
		      int64_t *version, struct ig_error *err);
/* Run SQL in one transaction: fn, between BEGIN and COMMIT.  Returns an SQLite code. */
int ig_database_transact(sqlite3 *db, int (*fn)(void *ctx), void *ctx);

/* For programs that only read, also while a daemon writes; the caller closes *db, also after an
 * error.  *version is 0 for an empty file. */
int ig_database_open_to_read(const struct ig_database_kind *kind, const char *path, sqlite3 **db,
			     int64_t *version, struct ig_error *err);
/* Write a copy of the file, as it is at one moment, to a new one of mode 600; *n_rows: what count, a
 * SELECT, finds in it.  After an error there is no file. */
int ig_database_copy(const struct ig_database_kind *kind, const char *path, const char *to,
		     const char *count, int64_t *n_rows, struct ig_error *err);
