/*
 * test_response_memory.c: allocations of the stored responses' file and of SQLite fail while it is
 * written, one in each run: an error with text, or a loss that is told; what is put again then is in
 * the file, and the file stays whole.
 */
#include "support.h"

#include "base/log.h"
#include "store/database.h"
#include "store/response_file.h"
#include "tests/unit/store/sqlite_no_memory.h"

#include <stdatomic.h>

#ifdef WRAP_MALLOC

static char path[256];
static json_t *list;
static atomic_int n_failing;

static void count_failing(void *ctx, bool failing) { atomic_fetch_add(&n_failing, failing); }

static int open_file(struct ig_response_file **f, struct ig_error *err)
{
	struct ig_response_file_options o = { path, count_failing, NULL };

	return ig_response_file_open(&o, f, err);
}

/* "a", and "b", which continues it. */
static void put_both(struct ig_response_file *f)
{
	struct ig_response_record r = { .id = "a",
					.listed = true,
					.messages = list,
					.input = list,
					.output = list,
					.text = "one" };

	ig_response_file_put(f, &r);
	r.id = "b";
	r.parent = "a";
	ig_response_file_put(f, &r);
}

/* Open, put, put again if it says that something was lost, close.  False: it did not open. */
static bool run(bool *told)
{
	struct ig_response_file *f = NULL;
	struct ig_error err = { 0 };
	int rc = open_file(&f, &err);

	*told = false;
	if (rc) {
		assert_null(f);
		assert_int_equal(err.code, rc);
		assert_true(err.text[0] != 0);
		return false;
	}
	put_both(f);
	if (ig_response_file_lost(f))
		put_both(f);
	ig_response_file_close(f);
	*told = atomic_load(&n_failing) > 0;
	return true;
}

static int see(void *ctx, const struct ig_response_record *r)
{
	char *ids = ctx;

	assert_string_equal(r->text, "one");
	assert_true(json_equal(r->input, list));
	strcat(ids, r->id);
	return 0;
}

static void check_whole(bool all)
{
	struct ig_response_file *f = NULL;
	struct ig_error err = { 0 };
	sqlite3_stmt *st = NULL;
	sqlite3 *db = NULL;
	char ids[16] = "";

	assert_int_equal(open_file(&f, &err), 0);
	assert_int_equal(ig_response_file_read(f, see, ids, &err), 0);
	ig_response_file_close(f);
	if (all)
		assert_string_equal(ids, "ab");
	else
		assert_true(!strcmp(ids, "") || !strcmp(ids, "a") || !strcmp(ids, "ab"));
	assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, "pragma integrity_check", -1, &st, NULL),
			 SQLITE_OK);
	assert_int_equal(sqlite3_step(st), SQLITE_ROW);
	assert_string_equal(sqlite3_column_text(st, 0), "ok");
	sqlite3_finalize(st);
	sqlite3_close(db);
}

static void test_failing(void **state)
{
	bool reached = true;
	int n_refused = 0, n_told = 0, step = 1;

	in_dir(path, "responses.db");
	list = json_pack("[{s:s}]", "k", "v");
	for (int k = 1; reached; k += step) {
		bool told;
		remove(path);
		n_failing = 0;
		no_memory_at(k - 1);
		bool opened = run(&told);
		reached = no_memory_failed();
		n_refused += !opened;
		n_told += told;
		check_whole(opened && !told);
		/* each of the first and of those of writing; of the rest, the schema's, a sample */
		step = k < 100 || opened ? 1 : 13;
	}
	if (n_refused <= 10 || n_told <= 3)
		fail_msg("%d refused, %d told", n_refused, n_told);
	json_decref(list);
}

/* Without memory to read them, they stay. */
static void test_reading(void **state)
{
	bool told, reached = true;
	int n_failed = 0;

	in_dir(path, "read.db");
	list = json_pack("[{s:s}]", "k", "v");
	assert_true(run(&told));
	for (int k = 0; reached; k++) {
		struct ig_response_file *f = NULL;
		struct ig_error err = { 0 };
		char ids[16] = "";
		assert_int_equal(open_file(&f, &err), 0);
		no_memory_at(k);
		int rc = ig_response_file_read(f, see, ids, &err);
		reached = no_memory_failed();
		if (rc)
			assert_true(reached && err.text[0]);
		n_failed += rc != 0;
		ig_response_file_close(f);
		check_whole(true);
	}
	assert_true(n_failed > 10);
	json_decref(list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_failing),
		cmocka_unit_test(test_reading),
	};

	sqlite_without_memory();
	return cmocka_run_group_tests_name("stored responses without memory", tests, make_test_dir,
					   remove_test_dir);
}

#else

int main(void)
{
	printf("1..0 # SKIP this linker has no --wrap\n");
	return 0;
}

#endif
