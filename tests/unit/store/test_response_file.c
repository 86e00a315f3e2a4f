/*
 * test_response_file.c: stored responses on the disk: what is put comes back, in order and whole;
 * what is removed leaves no trace; a full disk loses nothing for good; each refusal's text.
 */
#include "support.h"

#include "base/clock.h"
#include "base/log.h"
#include "store/database.h"
#include "store/response_file.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>

static char path[256];
static atomic_int n_failing, n_back;

static void count_failing(void *ctx, bool failing)
{
	assert_ptr_equal(ctx, &n_failing);
	atomic_fetch_add(failing ? &n_failing : &n_back, 1);
}

static struct ig_response_file *open_file(void)
{
	struct ig_response_file_options o = { path, count_failing, &n_failing };
	struct ig_response_file *f = NULL;
	struct ig_error err = { 0 };

	if (ig_response_file_open(&o, &f, &err))
		fail_msg("%s", err.text);
	return f;
}

/* Put one whose lists say what it is. */
static void put(struct ig_response_file *f, const char *id, const char *parent, const char *text)
{
	struct ig_response_record r = { .id = id,
					.parent = parent,
					.owner = UINT64_MAX - 5,
					.listed = true,
					.messages = json_pack("[{s:s}]", "m", id),
					.input = json_pack("[{s:s}, {}]", "i", id),
					.output = json_pack("[]"),
					.text = text };

	ig_response_file_put(f, &r);
	json_decref(r.messages);
	json_decref(r.input);
	json_decref(r.output);
}

struct seen {
	char ids[200];
	const char *refuse;
};

static int see(void *ctx, const struct ig_response_record *r)
{
	struct seen *s = ctx;

	assert_int_equal(json_array_size(r->input), 2);
	assert_int_equal(json_array_size(r->output), 0);
	assert_string_equal(json_string_value(json_object_get(json_array_get(r->messages, 0), "m")),
			    r->id);
	assert_true(r->owner == UINT64_MAX - 5);
	snprintf(s->ids + strlen(s->ids), sizeof s->ids - strlen(s->ids), "%s%s<%s%s ", r->id,
		 r->listed ? "" : "-", r->parent ? r->parent : "", r->text);
	return s->refuse && !strcmp(s->refuse, r->id) ? -ENOENT : 0;
}

static void expect(struct ig_response_file *f, const char *refuse, const char *want)
{
	struct seen s = { .refuse = refuse };
	struct ig_error err = { 0 };

	if (ig_response_file_read(f, see, &s, &err))
		fail_msg("%s", err.text);
	assert_string_equal(s.ids, want);
}

static void test_round_trip(void **state)
{
	struct ig_response_file *f = open_file();
	struct stat st;

	expect(f, NULL, "");
	put(f, "a", NULL, "text");
	put(f, "b", "a", NULL);
	put(f, "c", "b", "\xc3\xa9");
	put(f, "d", NULL, "");
	ig_response_file_unlist(f, "b");
	ig_response_file_remove(f, "d");
	ig_response_file_close(f);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);

	f = open_file();
	expect(f, NULL, "a<text b-<a c<b\xc3\xa9 ");
	expect(f, NULL, ""); /* nothing since */
	/* what others continue stays */
	ig_response_file_remove(f, "b");
	ig_response_file_close(f);
	f = open_file();
	expect(f, "a", "a<text b-<a c<b\xc3\xa9 ");
	ig_response_file_remove(f, "c");
	ig_response_file_remove(f, "b");
	ig_response_file_remove(f, "a");
	ig_response_file_close(f);
	f = open_file();
	expect(f, NULL, "");
	ig_response_file_close(f);
	ig_response_file_close(NULL);
	unlink(path);
}

/* A reader refuses one: it is removed. */
static void test_refused(void **state)
{
	struct ig_response_file *f = open_file();

	put(f, "a", NULL, "");
	put(f, "b", NULL, "");
	ig_response_file_close(f);
	f = open_file();
	expect(f, "a", "a< b< ");
	ig_response_file_close(f);
	f = open_file();
	expect(f, NULL, "b< ");
	ig_response_file_close(f);
	unlink(path);
}

static bool file_has(const char *name, const char *what)
{
	FILE *f = fopen(name, "rb");
	char *text = calloc(1, 1 << 20);
	bool found;

	assert_non_null(text);
	size_t n = f ? fread(text, 1, 1 << 20, f) : 0;
	found = memmem(text, n, what, strlen(what)) != NULL;
	free(text);
	if (f)
		fclose(f);
	return found;
}

/* Bytes of what was deleted are neither in the file nor in its log. */
static void test_erased(void **state)
{
	static const char secret[] = "what nobody should read again";
	struct ig_response_file *f = open_file();
	char wal[300], long_text[20000] = "";

	snprintf(wal, sizeof wal, "%s-wal", path);
	while (strlen(long_text) + sizeof secret < sizeof long_text)
		strcat(long_text, secret);
	put(f, "a", NULL, secret);
	put(f, "b", NULL, long_text);
	put(f, "c", NULL, "stays");
	while (!file_has(wal, "stays") && !file_has(path, "stays"))
		usleep(1000);
	assert_true(file_has(wal, secret) || file_has(path, secret));
	ig_response_file_remove(f, "a");
	ig_response_file_remove(f, "b");
	ig_response_file_erase(f);
	for (int64_t end = ig_now_ns() + 20000000000;
	     file_has(wal, secret) || file_has(path, secret);)
		if (ig_now_ns() > end)
			fail_msg("it is still there");
		else
			usleep(1000);
	assert_true(file_has(path, "stays"));
	ig_response_file_close(f);
	unlink(path);
}

static void wait_for(atomic_int *n)
{
	for (int64_t end = ig_now_ns() + 60000000000; !atomic_load(n);)
		if (ig_now_ns() > end)
			fail_msg("it did not happen");
		else
			usleep(1000);
}

/* No file may grow; as a full disk. */
static void limit_files(rlim_t bytes)
{
	struct rlimit r;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &r), 0);
	r.rlim_cur = bytes;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}

static void test_full_disk(void **state)
{
	struct ig_response_file *f = open_file();
	char why[256];

	signal(SIGXFSZ, SIG_IGN);
	put(f, "a", NULL, "");
	atomic_store(&n_failing, 0);
	atomic_store(&n_back, 0);
	assert_false(ig_response_file_failure(f, why, sizeof why));
	limit_files(1);
	for (int i = 0; !atomic_load(&n_failing) && i < 60000; i++) {
		put(f, "b", NULL, "");
		ig_response_file_remove(f, "b");
		usleep(1000);
	}
	assert_int_equal(atomic_load(&n_failing), 1);
	assert_true(ig_response_file_failure(f, why, sizeof why));
	assert_true(why[0] != 0);
	assert_false(ig_response_file_lost(f)); /* it can't be put right yet */
	put(f, "c", NULL, "");
	limit_files(RLIM_INFINITY);
	wait_for(&n_back);
	assert_false(ig_response_file_failure(f, why, sizeof why));
	/* all is put again, once */
	assert_true(ig_response_file_lost(f));
	assert_false(ig_response_file_lost(f));
	put(f, "x", NULL, "");
	put(f, "y", "x", "");
	ig_response_file_close(f);
	f = open_file();
	expect(f, NULL, "x< y<x ");
	ig_response_file_close(f);
	unlink(path);
}

static void test_full_at_the_start(void **state)
{
	char why[256];

	signal(SIGXFSZ, SIG_IGN);
	atomic_store(&n_failing, 0);
	atomic_store(&n_back, 0);
	limit_files(1);
	struct ig_response_file *f = open_file();
	assert_true(ig_response_file_failure(f, why, sizeof why));
	expect(f, NULL, "");
	limit_files(RLIM_INFINITY);
	wait_for(&n_back);
	assert_true(ig_response_file_lost(f));
	put(f, "x", NULL, "");
	ig_response_file_close(f);
	f = open_file();
	expect(f, NULL, "x< ");
	ig_response_file_close(f);
	unlink(path);
}

static void expect_refusal(int want, const char *what)
{
	struct ig_response_file_options o = { .path = path };
	struct ig_response_file *f = NULL;
	struct ig_error err = { 0 };

	assert_int_equal(ig_response_file_open(&o, &f, &err), want);
	assert_null(f);
	assert_non_null(strstr(err.text, path));
	if (!strstr(err.text, what))
		fail_msg("%s", err.text);
}

static void test_refusals(void **state)
{
	struct ig_response_file *f = open_file();

	expect_refusal(-EBUSY, "another responses.path");
	ig_response_file_close(f);
	write_text(path, "this is not a database, but a text of some length, more than a header");
	expect_refusal(-EINVAL, "not a database");
	unlink(path);

	sqlite3 *db;
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "CREATE TABLE t (x)", NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
	expect_refusal(-EINVAL, "another file in responses.path");
	unlink(path);
	ig_response_file_close(open_file());
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "PRAGMA user_version = 2", NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
	expect_refusal(-EINVAL, "run a newer ingot");
	unlink(path);
}

static int set_up(void **state)
{
	ig_log_set_level(-1);
	if (make_test_dir(state))
		return -1;
	in_dir(path, "below/responses.db");
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_erased),
		cmocka_unit_test(test_full_disk),
		cmocka_unit_test(test_full_at_the_start),
		cmocka_unit_test(test_refusals),
	};
	return cmocka_run_group_tests_name("stored responses in a file", tests, set_up,
					   remove_test_dir);
}
