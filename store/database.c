/* database.c: see database.h. */
#include "store/database.h"

#include "base/file.h"
#include "base/inherit.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether the last error was that of a file that cannot grow. */
static bool is_full(sqlite3 *db)
{
	int e = db ? sqlite3_system_errno(db) : 0;

	return e == ENOSPC || e == EDQUOT || e == EFBIG;
}

int ig_database_fail(const struct ig_database_kind *kind, sqlite3 *db, int code, const char *path,
		     const char *what, struct ig_error *err)
{
	int rc;

	switch (code & 0xff) {
	case SQLITE_BUSY:
	case SQLITE_LOCKED: rc = -EBUSY; break;
	case SQLITE_FULL: rc = -ENOSPC; break;
	case SQLITE_IOERR: rc = is_full(db) ? -ENOSPC : -EIO; break;
	case SQLITE_NOMEM: rc = -ENOMEM; break;
	case SQLITE_CANTOPEN:
	case SQLITE_PERM:
	case SQLITE_READONLY: rc = -EACCES; break;
	case SQLITE_NOTADB:
	case SQLITE_CORRUPT: rc = -EINVAL; break;
	default: rc = -EIO;
	}
	return ig_fail(err, rc, "%s %s: %s: %s", kind->name, path, what,
		       db ? sqlite3_errmsg(db) : sqlite3_errstr(code));
}

int ig_database_number(sqlite3 *db, const char *sql, int64_t *out)
{
	sqlite3_stmt *st = NULL;
	int code = sqlite3_prepare_v2(db, sql, -1, &st, NULL);

	if (code == SQLITE_OK)
		code = sqlite3_step(st);
	if (code == SQLITE_ROW)
		*out = sqlite3_column_int64(st, 0);
	sqlite3_finalize(st);
	return code == SQLITE_ROW ? SQLITE_OK : code == SQLITE_DONE ? SQLITE_ERROR : code;
}

int ig_database_transact(sqlite3 *db, int (*fn)(void *ctx), void *ctx)
{
	int code = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);

	if (code != SQLITE_OK)
		return code;
	code = fn(ctx);
	if (code == SQLITE_OK)
		code = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
	/* SQLite rolls some failures back itself. */
	if (code != SQLITE_OK && !sqlite3_get_autocommit(db))
		sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
	return code;
}

static int write_version(void *ctx)
{
	const struct ig_database *d = ctx;
	char sql[48];

	snprintf(sql, sizeof sql, "PRAGMA user_version = %d", d->kind->version);
	return sqlite3_exec(d->db, sql, NULL, NULL, NULL);
}

int ig_database_probe(struct ig_database *d)
{
	return ig_database_transact(d->db, write_version, d);
}

int ig_database_code(int rc)
{
	return !rc	     ? SQLITE_OK :
	       rc == -ENOSPC ? SQLITE_FULL :
	       rc == -EBUSY  ? SQLITE_LOCKED :
			       SQLITE_CANTOPEN;
}

/* ---- opening ------------------------------------------------------------------------------ */

int ig_database_check(const struct ig_database_kind *kind, sqlite3 *db, const char *path,
		      int64_t *version, struct ig_error *err)
{
	int64_t application = 0, n_tables = 0;
	int code = ig_database_number(db, "PRAGMA user_version", version);

	if (code == SQLITE_OK)
		code = ig_database_number(db, "PRAGMA application_id", &application);
	if (code == SQLITE_OK)
		code = ig_database_number(db, "SELECT count(*) FROM sqlite_master", &n_tables);
	if (code != SQLITE_OK)
		return ig_database_fail(kind, db, code, path, "cannot be read", err);
	if (*version == 0 && n_tables == 0)
		return 0;
	if (application != kind->application_id || *version <= 0)
		return ig_fail(err, -EINVAL,
			       "%s %s: is a database of another program; name another file in %s",
			       kind->name, path, kind->option);
	if (*version > kind->version)
		return ig_fail(err, -EINVAL,
			       "%s %s: has schema version %lld, and this program knows versions "
			       "up to %d; run a newer ingot, or name another file in %s",
			       kind->name, path, (long long)*version, kind->version, kind->option);
	return 0;
}

/* Run SQL without a result; an error's text begins with what. */
static int execute(const struct ig_database *d, const char *sql, const char *what,
		   struct ig_error *err)
{
	int code = sqlite3_exec(d->db, sql, NULL, NULL, NULL);

	return code == SQLITE_OK ? 0 : ig_database_fail(d->kind, d->db, code, d->path, what, err);
}

/* Migrate the file from version to the kind's, in one transaction. */
static int migrate(const struct ig_database *d, int64_t version, struct ig_error *err)
{
	struct ig_strbuf b = { 0 };
	int rc;

	if (version == d->kind->version)
		return 0;
	ig_strbuf_puts(&b, "BEGIN EXCLUSIVE;");
	d->kind->put_migration(&b, version);
	ig_strbuf_printf(&b, "PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT;",
			 d->kind->application_id, d->kind->version);
	rc = ig_strbuf_ok(&b) ?
		     execute(d, b.data, "cannot be set up", err) :
		     ig_fail(err, -ENOMEM, "%s %s: out of memory", d->kind->name, d->path);
	if (rc)
		sqlite3_exec(d->db, "ROLLBACK", NULL, NULL, NULL);
	ig_strbuf_finish(&b);
	return rc;
}

static int set_wal(const struct ig_database *d, struct ig_error *err)
{
	sqlite3_stmt *st = NULL;
	const char *mode;
	int rc = 0, code = sqlite3_prepare_v2(d->db, "PRAGMA journal_mode = WAL", -1, &st, NULL);

	if (code == SQLITE_OK)
		code = sqlite3_step(st);
	if (code != SQLITE_ROW) {
		rc = ig_database_fail(d->kind, d->db, code, d->path, "cannot be written", err);
	} else {
		mode = (const char *)sqlite3_column_text(st, 0);
		if (!mode || strcmp(mode, "wal"))
			rc = ig_fail(err, -EIO,
				     "%s %s: the file system does not allow write-ahead "
				     "logging (journal mode is %s)",
				     d->kind->name, d->path, mode ? mode : "unknown");
	}
	sqlite3_finalize(st);
	return rc;
}

static int open_file(struct ig_database *d, struct ig_error *err)
{
	int64_t version = 0;
	int code, rc, fd;

	/* Created here and not by SQLite, so that only the owner may read it. */
	fd = open(d->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return ig_fail(err, -errno, "%s %s: cannot be opened for writing: %s",
			       d->kind->name, d->path, strerror(errno));
	close(fd);
	code = sqlite3_open_v2(d->path, &d->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
	if (code != SQLITE_OK)
		return ig_database_fail(d->kind, d->db, code, d->path,
					"cannot be opened for writing", err);
	sqlite3_busy_timeout(d->db, 2000);
	/* auto_vacuum only works while there is no table, and before WAL writes the first page. */
	if ((rc = ig_database_check(d->kind, d->db, d->path, &version, err)) ||
	    (rc = execute(d, "PRAGMA auto_vacuum = INCREMENTAL", "cannot be set up", err)) ||
	    (rc = set_wal(d, err)) ||
	    (rc = execute(d, "PRAGMA synchronous = NORMAL; PRAGMA journal_size_limit = 16777216;",
			  "cannot be set up", err)) ||
	    (rc = migrate(d, version, err)))
		return rc;
	/* From here on the writer's own loop waits for locks of other programs. */
	sqlite3_busy_timeout(d->db, 50);
	return 0;
}

/* ---- the lock ------------------------------------------------------------------------ */

/* The number that the holder of the lock wrote; 0: none. */
static pid_t read_holder(int lock_fd)
{
	char text[32] = "";

	return pread(lock_fd, text, sizeof text - 1, 0) > 0 ? (pid_t)strtol(text, NULL, 10) : 0;
}

/* Only one daemon may write a file.  The lock file is never removed: otherwise two others could
 * lock two files of the same name. */
static int take_lock(struct ig_database *d, struct ig_error *err)
{
	const char *name = d->kind->name;
	char text[32] = "";
	pid_t pid;

	d->lock_fd = open(d->lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (d->lock_fd < 0)
		return ig_fail(err, -errno, "%s %s: cannot open %s: %s", name, d->path,
			       d->lock_path, strerror(errno));
	/* a predecessor that hands over left its own lock, which both hold then */
	struct stat st;
	int left = fstat(d->lock_fd, &st) ? -1 : ig_inherit_file(st.st_dev, st.st_ino);
	if (left >= 0) {
		close(d->lock_fd);
		d->lock_fd = left;
	}
	if (flock(d->lock_fd, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK)
			return ig_fail(err, -errno, "%s %s: cannot lock %s: %s", name, d->path,
				       d->lock_path, strerror(errno));
		pid = read_holder(d->lock_fd);
		if (pid > 0)
			snprintf(text, sizeof text, " (process %ld)", (long)pid);
		return ig_fail(err, -EBUSY,
			       "%s %s: another daemon%s writes to it; stop it, or give this one "
			       "another %s",
			       name, d->path, text, d->kind->option);
	}
	ig_inherit_keep_lock(d->lock_fd);
	int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
	/* The number is for the message above only; the lock works without it. */
	if (ftruncate(d->lock_fd, 0) || pwrite(d->lock_fd, text, (size_t)n, 0) != n)
		ig_log_debug("%s %s: cannot write the process number to %s", name, d->path,
			     d->lock_path);
	return 0;
}

pid_t ig_database_holder(const char *path)
{
	struct ig_strbuf b = { 0 };
	pid_t pid = 0;

	ig_strbuf_printf(&b, "%s.lock", path);
	int fd = ig_strbuf_ok(&b) ? open(b.data, O_RDWR | O_CLOEXEC) : -1;
	ig_strbuf_finish(&b);
	if (fd < 0)
		return 0;
	if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
		pid = read_holder(fd);
	close(fd);
	return pid > 1 ? pid : 0;
}

/* ---- life ----------------------------------------------------------------------------------- */

int ig_database_open(struct ig_database *d, const struct ig_database_kind *kind, const char *path,
		     struct ig_error *err)
{
	struct ig_strbuf b = { 0 };
	int rc;

	*d = (struct ig_database){ .kind = kind, .lock_fd = -1 };
	ig_strbuf_printf(&b, "%s.lock", path);
	d->lock_path = ig_strbuf_steal(&b);
	ig_strbuf_finish(&b);
	d->path = strdup(path);
	if (!d->path || !d->lock_path)
		return ig_fail(err, -ENOMEM, "%s %s: out of memory", kind->name, path);
	if ((rc = ig_make_folders_above(d->path, 0700, err)) || (rc = take_lock(d, err)))
		return rc;
	return open_file(d, err);
}

void ig_database_close(struct ig_database *d)
{
	sqlite3_close(d->db);
	if (d->kind && d->lock_fd >= 0) {
		ig_inherit_drop_lock(d->lock_fd);
		close(d->lock_fd); /* unlocks */
	}
	free(d->lock_path);
	free(d->path);
	*d = (struct ig_database){ .lock_fd = -1 };
}

/* ---- reading ---------------------------------------------------------------------------------- */

int ig_database_open_to_read(const struct ig_database_kind *kind, const char *path, sqlite3 **db,
			     int64_t *version, struct ig_error *err)
{
	int code;

	if (access(path, R_OK))
		return ig_fail(err, -errno, "%s %s: cannot be read: %s", kind->name, path,
			       strerror(errno));
	code = sqlite3_open_v2(path, db, SQLITE_OPEN_READONLY, NULL);
	if (*db) /* there was memory for it */
		sqlite3_busy_timeout(*db, 2000);
	return code == SQLITE_OK ? ig_database_check(kind, *db, path, version, err) :
				   ig_database_fail(kind, *db, code, path, "cannot be read", err);
}

/* VACUUM INTO writes to an empty file: this one, which only its owner may read. */
static int create_copy(const char *to, struct ig_error *err)
{
	int fd = open(to, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

	return fd >= 0 ? fd :
			 ig_fail(err, -errno, "%s: cannot be created: %s", to, strerror(errno));
}

static int vacuum_into(const struct ig_database_kind *kind, sqlite3 *db, const char *to,
		       struct ig_error *err)
{
	sqlite3_stmt *st = NULL;
	int code = sqlite3_prepare_v2(db, "VACUUM INTO ?1", -1, &st, NULL), rc = 0;

	if (code == SQLITE_OK)
		code = sqlite3_bind_text(st, 1, to, -1, SQLITE_STATIC);
	if (code == SQLITE_OK)
		code = sqlite3_step(st);
	if (code != SQLITE_DONE)
		rc = ig_database_fail(kind, db, code, to, "cannot be written", err);
	sqlite3_finalize(st);
	return rc;
}

static int count_rows(const struct ig_database_kind *kind, const char *path, const char *count,
		      int64_t *n, struct ig_error *err)
{
	int64_t version = 0;
	sqlite3 *db = NULL;
	int code, rc = ig_database_open_to_read(kind, path, &db, &version, err);

	*n = 0;
	if (!rc && version > 0) {
		code = ig_database_number(db, count, n);
		if (code != SQLITE_OK)
			rc = ig_database_fail(kind, db, code, path, "cannot be read", err);
	}
	sqlite3_close(db);
	return rc;
}

int ig_database_copy(const struct ig_database_kind *kind, const char *path, const char *to,
		     const char *count, int64_t *n_rows, struct ig_error *err)
{
	int64_t version = 0;
	sqlite3 *db = NULL;
	int fd, rc = ig_database_open_to_read(kind, path, &db, &version, err);

	if (rc)
		goto out;
	fd = create_copy(to, err);
	if (fd < 0) {
		rc = fd;
		goto out;
	}
	rc = vacuum_into(kind, db, to, err);
	if (!rc && fsync(fd))
		rc = ig_fail(err, -errno, "%s: cannot be written: %s", to, strerror(errno));
	close(fd);
	if (!rc)
		rc = count_rows(kind, to, count, n_rows, err);
	if (rc)
		unlink(to);
out:
	sqlite3_close(db);
	return rc;
}
