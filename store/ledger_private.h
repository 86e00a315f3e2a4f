/* ledger_private.h: what the writing and the reading side of the ledger share. */
#pragma once

#include "store/ledger.h"

#include <sqlite3.h>

/* The schema that this program writes, as the file's user_version; and the file's
 * application_id, by which another program's database is told apart. */
#define LEDGER_VERSION 3
#define LEDGER_APPLICATION_ID 0x494e474c /* "INGL" */

/* "ledger PATH: what: SQLite's text"; the matching negative errno. */
int ledger_fail(sqlite3 *db, int code, const char *path, const char *what, struct ig_error *err);
/* The one number that a PRAGMA or a SELECT gives; an SQLite code. */
int ledger_number(sqlite3 *db, const char *sql, int64_t *out);
/* 0 when the file is a ledger that this program knows; *version is its schema, 0 for
 * an empty file. */
int ledger_check_file(sqlite3 *db, const char *path, int64_t *version, struct ig_error *err);
