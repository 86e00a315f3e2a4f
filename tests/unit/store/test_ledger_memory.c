/*
 * test_ledger_memory.c: allocations of the ledger and of SQLite fail, one in each run: an
 * error with text, or rows that are counted as dropped; the file stays whole, and the next
 * start works.
 */
#include "support.h"

#include "base/clock.h"
#include "base/log.h"
#include "store/ledger_private.h"
#include "tests/sanitized.h"
#include "tests/unit/store/sqlite_no_memory.h"

#include <stdatomic.h>

#ifdef WRAP_MALLOC

/* Steps between the allocations that fail, of the first 100 and of those after them.  Under ThreadSanitizer, where
 * all would take most of a minute, fewer: it finds what two threads do to the same memory, and other builds have
 * them all. */
#if IG_THREAD_SANITIZED
#define STEPS 3, 164
#else
#define STEPS 1, 41
#endif

static void put_rows(struct ig_ledger *l, int n)
{
	for (int i = 0; i < n; i++) {
		struct ig_ledger_row row = { .received_ns = ig_wall_ns(),
					     .status = 200,
					     .n_prompt = i };
		snprintf(row.id, sizeof row.id, "r%d", i);
		ig_ledger_put(l, &row);
	}
}

static atomic_uint_fast64_t n_dropped;

static void count_dropped(void *ctx, uint64_t n) { atomic_fetch_add(&n_dropped, n); }

/* Open, put three rows, close; whether it opened.  Rows are written or counted as dropped. */
static bool run(const char *path, uint64_t *n_written)
{
	struct ig_ledger_options o = { path, 4, 90, count_dropped, NULL };
	struct ig_ledger *l = NULL;
	struct ig_error err = { 0 };
	int rc = ig_ledger_open(&o, &l, &err);

	*n_written = 0;
	if (rc < 0) {
		assert_null(l);
		assert_int_equal(err.code, rc);
		assert_true(err.text[0] != 0);
		return false;
	}
	n_dropped = 0;
	put_rows(l, 3);
	ig_ledger_close(l);
	*n_written = 3 - n_dropped;
	return true;
}

static void check_whole(const char *path, uint64_t at_least)
{
	sqlite3 *db = NULL;
	sqlite3_stmt *st = NULL;

	assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, "pragma integrity_check", -1, &st, NULL),
			 SQLITE_OK);
	assert_int_equal(sqlite3_step(st), SQLITE_ROW);
	assert_string_equal(sqlite3_column_text(st, 0), "ok");
	sqlite3_finalize(st);
	int64_t n = -1;
	assert_int_equal(ig_database_number(db, "select count(*) from requests", &n), SQLITE_OK);
	assert_true((uint64_t)n >= at_least);
	sqlite3_close(db);
}

static void test_failing(void **state)
{
	char path[256];
	static const int steps[] = { STEPS };
	bool reached = true;
	int n_refused = 0, step = 1;

	in_dir(path, "ledger.db");
	for (int k = 1; reached; k += step) {
		uint64_t n_written, n_after;
		/* one of each of the first, then a sample: preparing a statement has hundreds */
		step = steps[k >= 100];
		remove(path);
		no_memory_at(k - 1);
		bool opened = run(path, &n_written);
		reached = no_memory_failed();
		n_refused += !opened;
		assert_true(reached || (opened && n_written == 3));
		assert_true(run(path, &n_after) && n_after == 3);
		check_whole(path, n_written + n_after);
	}
	assert_true(n_refused > 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_failing),
	};

	sqlite_without_memory();
	return cmocka_run_group_tests_name("ledger without memory", tests, make_test_dir,
					   remove_test_dir);
}

#else

int main(void)
{
	printf("1..0 # SKIP this linker has no --wrap\n");
	return 0;
}

#endif
