/* ledger_private.h: shared by the writing and the reading side of the ledger. */
#pragma once

#include "store/ledger.h"

#include <sqlite3.h>

/* The file's user_version: the schema that this program writes.  Its application_id: another
 * program's database has a different one. */
#define LEDGER_VERSION 4
#define LEDGER_APPLICATION_ID 0x494e474c /* "INGL" */

/* "ledger PATH: what: SQLite's text"; the matching negative errno. */
int ledger_fail(sqlite3 *db, int code, const char *path, const char *what, struct ig_error *err);
/* The only number in a PRAGMA's or a SELECT's result; returns an SQLite code. */
int ledger_number(sqlite3 *db, const char *sql, int64_t *out);
/* 0 when the file is a ledger with a known schema, *version, which is 0 for an empty file. */
int ledger_check_file(sqlite3 *db, const char *path, int64_t *version, struct ig_error *err);
