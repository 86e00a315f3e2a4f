/*
 * test_ledger.c: the ledger: what its file is, that rows arrive whole, that nobody
 * waits and what is dropped is counted, retention, and each refusal's text.
 */
#include "support.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "store/ledger_private.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define DAY_NS ((int64_t)86400 * 1000000000)

static atomic_uint_fast64_t n_dropped; /* rows of the ledger that was opened last */

static void count_dropped(void *ctx, uint64_t n)
{
	assert_ptr_equal(ctx, &n_dropped);
	atomic_fetch_add(&n_dropped, n);
}

static struct ig_ledger *open_ledger(const char *path, uint32_t queue, uint32_t days)
{
	struct ig_ledger_options o = { path, queue, days, count_dropped, &n_dropped };
	struct ig_ledger *l = NULL;
	struct ig_error err = { 0 };

	atomic_store(&n_dropped, 0);
	if (ig_ledger_open(&o, &l, &err))
		fail_msg("%s", err.text);
	return l;
}

/* Open path, which must fail. */
static int refused(const char *path, struct ig_error *err)
{
	struct ig_ledger_options o = { .path = path, .queue = 16 };
	struct ig_ledger *l = NULL;

	memset(err, 0, sizeof *err);
	int rc = ig_ledger_open(&o, &l, err);
	assert_null(l);
	assert_int_equal(err->code, rc);
	return rc;
}

static sqlite3 *connect_to(const char *path)
{
	sqlite3 *db = NULL;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	sqlite3_busy_timeout(db, 5000);
	return db;
}

static void run_sql(const char *path, const char *sql)
{
	sqlite3 *db = connect_to(path);
	char *text = NULL;

	if (sqlite3_exec(db, sql, NULL, NULL, &text) != SQLITE_OK)
		fail_msg("%s: %s", sql, text);
	sqlite3_close(db);
}

static int64_t number(const char *path, const char *sql)
{
	sqlite3 *db = connect_to(path);
	int64_t v = -1;

	if (ig_database_number(db, sql, &v) != SQLITE_OK)
		fail_msg("%s: %s", sql, sqlite3_errmsg(db));
	sqlite3_close(db);
	return v;
}

/* One column of all rows, joined by spaces. */
static void words(const char *path, const char *sql, char *out, size_t size)
{
	sqlite3 *db = connect_to(path);
	sqlite3_stmt *st = NULL;
	size_t n = 0;

	out[0] = 0;
	assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
	while (sqlite3_step(st) == SQLITE_ROW) {
		const char *s = (const char *)sqlite3_column_text(st, 0);
		n += (size_t)snprintf(out + n, size - n, "%s%s", n ? " " : "", s ? s : "NULL");
		assert_true(n < size);
	}
	sqlite3_finalize(st);
	sqlite3_close(db);
}

static struct ig_ledger_row a_row(int i)
{
	struct ig_ledger_row r = { .status = 200,
				   .received_ns = ig_wall_ns(),
				   .n_prompt = i,
				   .n_output = 1,
				   .ttft_ms = 1,
				   .total_ms = 2 };

	snprintf(r.id, sizeof r.id, "resp_%d", i);
	strcpy(r.model, "m");
	strcpy(r.finish, "stop");
	return r;
}

static uint64_t rows_in(const char *path)
{
	return (uint64_t)number(path, "SELECT count(*) FROM requests");
}

/* Until n rows are written or dropped; at most ten seconds. */
static void wait_for(const char *path, uint64_t n)
{
	int64_t until = ig_now_ns() + (int64_t)10 * 1000000000;

	while (rows_in(path) + n_dropped < n) {
		if (ig_now_ns() > until)
			fail_msg("only %d of %d rows", (int)rows_in(path), (int)n);
		usleep(5000);
	}
}

/* ---- the file ---------------------------------------------------------------------------- */

static void test_buckets(void **state)
{
	for (int i = 1; i < IG_ITL_BUCKETS - 1; i++)
		assert_true(ig_itl_bounds_ms[i] > ig_itl_bounds_ms[i - 1]);
	for (int i = 0; i < IG_ITL_BUCKETS - 1; i++) {
		double bound = (double)ig_itl_bounds_ms[i];
		assert_int_equal(ig_itl_bucket(bound), i); /* upper bounds belong to it */
		assert_int_equal(ig_itl_bucket(bound * 1.0001), i + 1);
	}
	assert_int_equal(ig_itl_bucket(0), 0);
	assert_int_equal(ig_itl_bucket(-1), 0);
	assert_int_equal(ig_itl_bucket(1e30), IG_ITL_BUCKETS - 1);
}

static void test_new_file(void **state)
{
	char path[256], dir[256], names[2048];
	struct stat st;

	in_dir(path, "new/below/ledger.db");
	mode_t mask = umask(0022);
	struct ig_ledger *l = open_ledger(path, 16, 90);
	assert_int_equal(stat(in_dir(dir, "new"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(stat(in_dir(dir, "new/below"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(stat(in_dir(dir, "new/below/ledger.db-wal"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	ig_ledger_close(l);
	umask(mask);

	assert_int_equal(number(path, "PRAGMA user_version"), ledger_kind.version);
	assert_int_equal(number(path, "PRAGMA application_id"), ledger_kind.application_id);
	assert_int_equal(number(path, "PRAGMA auto_vacuum"), 2); /* incremental */
	assert_int_equal(
		number(path, "SELECT strict FROM pragma_table_list WHERE name = 'requests'"), 1);
	words(path, "PRAGMA journal_mode", names, sizeof names);
	assert_string_equal(names, "wal");
	/* These are all columns of text; none is for a prompt or a response. */
	words(path,
	      "SELECT name FROM pragma_table_info('requests') WHERE type NOT IN "
	      "('INTEGER', 'REAL') ORDER BY cid",
	      names, sizeof names);
	assert_string_equal(names,
			    "id model endpoint client finish cancel_reason error key request_id "
			    "ignored cache_reason cache_compared normalized");
	words(path,
	      "SELECT name FROM pragma_table_info('requests') WHERE type IN "
	      "('INTEGER', 'REAL') AND name NOT LIKE 'itl%' ORDER BY cid",
	      names, sizeof names);
	assert_string_equal(names, "row received_ns status prompt_tokens cached_tokens "
				   "output_tokens queue_ms prefill_ms decode_ms ttft_ms total_ms "
				   "cache_same_tokens priority draft_tokens accepted_tokens "
				   "restored_tokens model_draft_tokens model_accepted_tokens "
				   "draft_gain_ms mtp_draft_tokens mtp_accepted_tokens");
	assert_int_equal(number(path,
				"SELECT count(*) FROM pragma_table_info('requests') WHERE name "
				"LIKE 'itl%'"),
			 IG_ITL_BUCKETS);
	words(path, "SELECT name FROM sqlite_master WHERE type = 'view' ORDER BY name", names,
	      sizeof names);
	assert_string_equal(names, "requests_by_client requests_by_day requests_by_hour "
				   "requests_by_key requests_by_model requests_cache "
				   "requests_failed");
	/* The same after opening it again. */
	ig_ledger_close(open_ledger(path, 16, 90));
	assert_int_equal(number(path, "SELECT count(*) FROM sqlite_master WHERE type = 'table'"),
			 1);
	ig_ledger_close(NULL);
}

static void test_row_arrives_whole(void **state)
{
	struct ig_ledger_row r = {
		.id = "resp_1",
		.model = "m'; DROP TABLE requests; --",
		.endpoint = "POST /v1/chat/completions",
		.client = "127.0.0.1",
		.finish = "cancelled",
		.cancel_reason = "client_gone",
		.error = "no \"error\"",
		.status = 499,
		.received_ns = 1700000000123456789,
		.n_prompt = 11,
		.n_cached = 5,
		.n_output = 7,
		.queue_ms = 0.5f,
		.prefill_ms = 1.5f,
		.decode_ms = -1,
		.ttft_ms = 2.25f,
		.total_ms = 1e6f,
		.key = "laptop",
		.request_id = "req_1",
		.cache_reason = "diverged",
		.cache_compared = "resp_0",
		.n_same = 6,
		.priority = -12,
		.n_drafted = 9,
		.n_accepted = 8,
		.n_restored = 4,
		.normalized = "dates, mine",
		.n_model_drafted = 3,
		.n_model_accepted = 2,
		.draft_gain_ms = -1.5f,
		.n_mtp_drafted = 2,
		.n_mtp_accepted = 1,
	};
	char path[256], text[1024];

	for (int i = 0; i < IG_ITL_BUCKETS; i++)
		r.itl[i] = (uint32_t)i * 1000;
	r.itl[3] = UINT32_MAX;
	/* A text that fills its field ends with the field. */
	memset(r.client, 'c', sizeof r.client);
	struct ig_ledger *l = open_ledger(in_dir(path, "whole.db"), 16, 0);
	ig_ledger_put(l, &r);
	wait_for(path, 1); /* without a close: half a second at most, and a slow disk */
	assert_int_equal(rows_in(path), 1);
	ig_ledger_close(l);
	words(path,
	      "SELECT concat FROM (SELECT id || '|' || received_ns || '|' || model || '|' || "
	      "endpoint || '|' || status || '|' || finish || '|' || cancel_reason || '|' || "
	      "error || '|' || prompt_tokens || '|' || cached_tokens || '|' || output_tokens "
	      "|| '|' || queue_ms || '|' || prefill_ms || '|' || ifnull(decode_ms, 'null') || "
	      "'|' || ttft_ms || '|' || total_ms || '|' || key || '|' || request_id || '|' || "
	      "cache_reason || '|' || cache_compared || '|' || cache_same_tokens || '|' || priority || '|' || draft_tokens || '|' || accepted_tokens || '|' || restored_tokens || '|' || normalized || '|' || model_draft_tokens || '|' || model_accepted_tokens || '|' || draft_gain_ms || '|' || mtp_draft_tokens || '|' || mtp_accepted_tokens AS concat FROM requests)",
	      text, sizeof text);
	assert_string_equal(text, "resp_1|1700000000123456789|m'; DROP TABLE requests; --|"
				  "POST /v1/chat/completions|499|cancelled|client_gone|"
				  "no \"error\"|11|5|7|0.5|1.5|null|2.25|1000000.0|laptop|req_1|"
				  "diverged|resp_0|6|-12|9|8|4|dates, mine|3|2|-1.5|2|1");
	assert_int_equal(number(path, "SELECT length(client) FROM requests"), sizeof r.client);
	assert_int_equal(number(path, "SELECT itl_0 FROM requests"), 0);
	assert_int_equal(number(path, "SELECT itl_3 FROM requests"), UINT32_MAX);
	assert_int_equal(number(path, "SELECT itl_23 FROM requests"), 23000);
}

/* ---- many writers, full rings, disks that fail ---------------------------------------------- */

enum { N_THREADS = 8, N_EACH = 1500 };

/* The views against rows of two days, models, keys and clients. */
static void test_views(void **state)
{
	static const struct {
		int64_t s; /* since 1970 */
		const char *model, *key, *client, *finish;
		float ttft_ms;
	} rows[] = {
		{ 86399, "a", "", "10.0.0.1", "stop", 10 },
		{ 86400, "a", "k", "10.0.0.1", "refused", -1 },
		{ 90000, "b", "k", "10.0.0.2", "cancelled", 30 },
		{ 90001, "a", "k", "10.0.0.2", "error", 40 },
	};
	static const struct {
		const char *sql, *result;
	} views[] = {
		{ "SELECT day || ',' || requests || ',' || errors || ',' || cancelled || ',' || "
		  "prompt_tokens || ',' || cached_tokens || ',' || output_tokens || ',' || "
		  "avg_ttft_ms || ',' || max_ttft_ms || ',' || avg_total_ms FROM requests_by_day",
		  "1970-01-01,1,0,0,7,0,1,10.0,10.0,2.0 1970-01-02,3,2,1,21,0,3,35.0,40.0,2.0" },
		{ "SELECT replace(hour, ' ', 'T') || '=' || requests FROM requests_by_hour",
		  "1970-01-01T23:00=1 1970-01-02T00:00=1 1970-01-02T01:00=2" },
		{ "SELECT model || '=' || requests || '=' || replace(last_request, ' ', 'T') FROM "
		  "requests_by_model",
		  "a=3=1970-01-02T01:00:01 b=1=1970-01-02T01:00:00" },
		{ "SELECT key || '=' || requests FROM requests_by_key", "=1 k=3" },
		{ "SELECT client || '=' || errors FROM requests_by_client",
		  "10.0.0.1=1 10.0.0.2=1" },
		{ "SELECT replace(time, ' ', 'T') || '=' || model || '=' || finish || '=' || key || "
		  "'=' || client FROM requests_failed",
		  "1970-01-02T00:00:00=a=refused=k=10.0.0.1 1970-01-02T01:00:01=a=error=k=10.0.0.2" },
	};
	char path[256], text[512];
	struct ig_ledger *l = open_ledger(in_dir(path, "views.db"), 16, 0);

	for (size_t i = 0; i < N_OF(rows); i++) {
		struct ig_ledger_row r = a_row(7);
		r.received_ns = rows[i].s * 1000000000 + 1;
		r.ttft_ms = rows[i].ttft_ms;
		strcpy(r.model, rows[i].model);
		strcpy(r.key, rows[i].key);
		strcpy(r.client, rows[i].client);
		strcpy(r.finish, rows[i].finish);
		ig_ledger_put(l, &r);
	}
	ig_ledger_close(l);
	for (size_t i = 0; i < N_OF(views); i++) {
		words(path, views[i].sql, text, sizeof text);
		assert_string_equal(text, views[i].result);
	}
}

static void *put_many(void *arg)
{
	struct ig_ledger *l = arg;

	for (int i = 0; i < N_EACH; i++) {
		struct ig_ledger_row r = a_row(i);
		ig_ledger_put(l, &r);
		if (i % 100 == 0)
			ig_ledger_set_retention(l, 30);
	}
	return NULL;
}

static void test_many_threads(void **state)
{
	pthread_t threads[N_THREADS];
	char path[256];
	struct ig_ledger *l = open_ledger(in_dir(path, "many.db"), 1000, 0);

	for (int i = 0; i < N_THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, put_many, l), 0);
	for (int i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
	wait_for(path, N_THREADS * N_EACH);
	uint64_t written = rows_in(path);
	assert_int_equal(written + n_dropped, N_THREADS * N_EACH);
	ig_ledger_close(l);
	assert_int_equal(rows_in(path), written);
	assert_int_equal(number(path, "SELECT count(*) FROM pragma_integrity_check WHERE "
				      "integrity_check != 'ok'"),
			 0);
}

/* Another program holds SQLite's write lock: put never waits for it, a full ring
 * drops and counts, and what was accepted is written when the lock is gone. */
static void test_overflow(void **state)
{
	char path[256];
	struct ig_ledger *l = open_ledger(in_dir(path, "full.db"), 8, 0);
	sqlite3 *other = connect_to(path);

	assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
	int64_t start = ig_now_ns();
	for (int i = 0; i < 108; i++) {
		struct ig_ledger_row r = a_row(i);
		ig_ledger_put(l, &r);
		assert_int_equal(n_dropped, i < 8 ? 0 : i - 7);
	}
	/* This thread holds the lock: a put that waited for it would never return. */
	assert_true(ig_now_ns() - start < (int64_t)2000 * 1000000);
	assert_int_equal(n_dropped, 100);
	assert_int_equal(rows_in(path), 0);
	usleep(300000); /* it has tried, and keeps the rows */
	assert_int_equal(n_dropped, 100);
	assert_int_equal(rows_in(path), 0);
	assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(other);
	wait_for(path, 108);
	assert_int_equal(rows_in(path), 8);
	assert_int_equal(rows_in(path), 8);
	/* The ring has space again. */
	struct ig_ledger_row r = a_row(200);
	ig_ledger_put(l, &r);
	ig_ledger_close(l);
	assert_int_equal(rows_in(path), 9);
	words(path, "SELECT id FROM requests ORDER BY row", path, sizeof path);
	assert_string_equal(path,
			    "resp_0 resp_1 resp_2 resp_3 resp_4 resp_5 resp_6 resp_7 resp_200");
}

static void read_log(const char *path, char *text, size_t size)
{
	FILE *f = fopen(path, "r");

	assert_non_null(f);
	text[fread(text, 1, size - 1, f)] = 0;
	fclose(f);
}

static void test_close_gives_up_on_a_lock(void **state)
{
	char path[256], log[256], text[4096];
	struct ig_ledger *l = open_ledger(in_dir(path, "stuck.db"), 8, 0);
	sqlite3 *other = connect_to(path);

	assert_int_equal(ig_log_set_file(in_dir(log, "stuck.log")), 0);
	assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
	for (int i = 0; i < 3; i++) {
		struct ig_ledger_row r = a_row(i);
		ig_ledger_put(l, &r);
	}
	int64_t start = ig_now_ns();
	ig_ledger_close(l);
	assert_true(ig_now_ns() - start < (int64_t)10 * 1000000000);
	sqlite3_close(other);
	ig_log_set_file(NULL);
	read_log(log, text, sizeof text);
	assert_non_null(strstr(text, "stuck.db: cannot be written: database is locked"));
	assert_non_null(strstr(text, "; 3 rows dropped"));
	assert_int_equal(rows_in(path), 0);
}

/* A disk that takes no more: rows are dropped and counted, one line says so, the
 * daemon lives on, and later rows are written again. */
static void test_disk_full(void **state)
{
	char path[256], log[256], text[8192];
	struct ig_ledger *l = open_ledger(in_dir(path, "disk.db"), 4096, 0);
	struct rlimit limit, small;
	unsigned n_lines = 0;

	assert_int_equal(ig_log_set_file(in_dir(log, "disk.log")), 0);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	small = limit;
	small.rlim_cur = 128 << 10; /* of each file: the log between tables too */
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	for (int i = 0; i < 3000; i++) {
		struct ig_ledger_row r = a_row(i);
		memset(r.error, 'e', sizeof r.error);
		ig_ledger_put(l, &r);
	}
	wait_for(path, 3000);
	assert_true(n_dropped > 0);
	uint64_t written = rows_in(path);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	for (int i = 0; i < 10; i++) {
		struct ig_ledger_row r = a_row(i);
		ig_ledger_put(l, &r);
	}
	wait_for(path, 3010);
	assert_int_equal(rows_in(path), written + 10);
	ig_ledger_close(l);
	ig_log_set_file(NULL);
	assert_int_equal(rows_in(path), written + 10);
	read_log(log, text, sizeof text);
	for (char *p = text; (p = strstr(p, "cannot be written")); p++)
		n_lines++;
	assert_int_equal(n_lines, 1);
	assert_non_null(strstr(text, path));
	assert_true(strstr(text, "disk.db: cannot be written: disk I/O error; ") ||
		    strstr(text, "disk.db: cannot be written: database or disk is full; "));
}

static atomic_bool failing;

static void set_failing(void *ctx, bool on) { atomic_store(&failing, on); }

static void wait_until_failing(bool on)
{
	int64_t until = ig_now_ns() + (int64_t)20 * 1000000000;

	while (atomic_load(&failing) != on) {
		if (ig_now_ns() > until)
			fail_msg("it does not become %d", on);
		usleep(5000);
	}
}

static void limit_files(rlim_t bytes)
{
	struct rlimit r;

	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &r), 0);
	r.rlim_cur = bytes;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}

/* The failure is told, and its end too, without any further row; a full disk at the start is not an
 * error, and rows are written once there is space. */
static void test_failure_is_told(void **state)
{
	char path[256], why[256];
	struct ig_ledger_options o = { .path = in_dir(path, "told.db"),
				       .queue = 4096,
				       .dropped = count_dropped,
				       .ctx = &n_dropped,
				       .failing = set_failing };
	struct ig_ledger *l = NULL;
	struct ig_error err = { 0 };
	struct ig_ledger_row r = a_row(1);

	atomic_store(&n_dropped, 0);
	assert_int_equal(ig_ledger_open(&o, &l, &err), 0);
	assert_false(ig_ledger_failure(l, why, sizeof why));
	limit_files(4096);
	ig_ledger_put(l, &r);
	wait_until_failing(true);
	assert_true(ig_ledger_failure(l, why, sizeof why));
	assert_true(strstr(why, "full") || strstr(why, "I/O"));
	assert_int_equal(n_dropped, 1);
	limit_files(RLIM_INFINITY);
	wait_until_failing(false);
	assert_false(ig_ledger_failure(l, why, sizeof why));
	ig_ledger_close(l);
	assert_int_equal(rows_in(path), 0);

	o.path = in_dir(path, "later.db");
	atomic_store(&n_dropped, 0);
	limit_files(4096);
	assert_int_equal(ig_ledger_open(&o, &l, &err), 0);
	assert_true(atomic_load(&failing));
	assert_true(ig_ledger_failure(l, why, sizeof why));
	ig_ledger_put(l, &r);
	int64_t until = ig_now_ns() + (int64_t)10 * 1000000000;
	while (n_dropped < 1 && ig_now_ns() < until)
		usleep(5000);
	assert_int_equal(n_dropped, 1);
	limit_files(RLIM_INFINITY);
	wait_until_failing(false);
	ig_ledger_put(l, &r);
	ig_ledger_close(l);
	assert_int_equal(rows_in(path), 1);
}

/* ---- retention ---------------------------------------------------------------------------------- */

static void put_aged(struct ig_ledger *l, int n, int64_t age_days)
{
	for (int i = 0; i < n; i++) {
		struct ig_ledger_row r = a_row(i);
		r.received_ns -= age_days * DAY_NS;
		memset(r.error, 'e', sizeof r.error - 1);
		ig_ledger_put(l, &r);
	}
}

static void wait_for_number(const char *path, const char *sql, int64_t n)
{
	int64_t until = ig_now_ns() + (int64_t)10 * 1000000000;

	while (number(path, sql) != n) {
		if (ig_now_ns() > until)
			fail_msg("%s: %d", sql, (int)number(path, sql));
		usleep(20000);
	}
}

static void test_retention(void **state)
{
	static const char count[] = "SELECT count(*) FROM requests";
	char path[256];
	struct ig_ledger *l = open_ledger(in_dir(path, "old.db"), 8192, 0);

	put_aged(l, 1300, 100); /* more than two batches of deletes */
	put_aged(l, 700, 50);
	put_aged(l, 5, 0);
	wait_for(path, 2005);
	int64_t n_pages = number(path, "PRAGMA page_count");
	usleep(100000);
	assert_int_equal(number(path, count), 2005); /* 0 days: for ever */
	ig_ledger_close(l);

	/* At the start. */
	l = open_ledger(path, 16, 90);
	wait_for_number(path, count, 705);
	wait_for_number(path, "PRAGMA freelist_count", 0);
	assert_true(number(path, "PRAGMA page_count") < n_pages * 6 / 10);
	/* Also when the number of days changes. */
	ig_ledger_set_retention(l, 1);
	wait_for_number(path, count, 5);
	ig_ledger_set_retention(l, UINT32_MAX);
	ig_ledger_close(l);
	assert_int_equal(number(path, count), 5);
}

/* ---- refusals --------------------------------------------------------------------------------------- */

static void test_empty_files_are_set_up(void **state)
{
	char path[256];

	write_text(in_dir(path, "zero.db"), "");
	ig_ledger_close(open_ledger(path, 16, 0));
	assert_int_equal(number(path, "PRAGMA user_version"), ledger_kind.version);
	/* A database of version 0 without tables. */
	run_sql(in_dir(path, "version0.db"), "CREATE TABLE t (x); DROP TABLE t;");
	assert_int_equal(number(path, "PRAGMA user_version"), 0);
	ig_ledger_close(open_ledger(path, 16, 0));
	assert_int_equal(number(path, "PRAGMA user_version"), ledger_kind.version);
	assert_int_equal(rows_in(path), 0);
}

/* A file as version 1 made it, with a row in it: it is brought to this version, keeps
 * what it had, and takes new rows. */
static void test_a_file_of_version_1(void **state)
{
	struct ig_ledger_stats *stats = NULL;
	struct ig_ledger_row r = a_row(2);
	struct ig_strbuf b = { 0 };
	char path[256], text[256];
	size_t n = 0;

	ig_strbuf_puts(&b,
		       "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL; BEGIN;"
		       "CREATE TABLE requests (row INTEGER PRIMARY KEY, id TEXT NOT NULL,"
		       " received_ns INTEGER NOT NULL, model TEXT NOT NULL, endpoint TEXT NOT NULL,"
		       " client TEXT NOT NULL, status INTEGER NOT NULL, finish TEXT NOT NULL,"
		       " cancel_reason TEXT NOT NULL, error TEXT NOT NULL,"
		       " prompt_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL,"
		       " output_tokens INTEGER NOT NULL, queue_ms REAL, prefill_ms REAL,"
		       " decode_ms REAL, ttft_ms REAL, total_ms REAL");
	for (int i = 0; i < IG_ITL_BUCKETS; i++)
		ig_strbuf_printf(&b, ", itl_%d INTEGER NOT NULL DEFAULT 0", i);
	ig_strbuf_printf(
		&b,
		") STRICT; CREATE INDEX requests_received ON requests (received_ns);"
		"INSERT INTO requests VALUES (1, 'resp_old', 1, 'm', 'e', 'c', 200, 'stop', '', "
		"'', 3, 0, 4, 1, 1, 1, 1, 1");
	for (int i = 0; i < IG_ITL_BUCKETS; i++)
		ig_strbuf_printf(&b, ", %d", i);
	ig_strbuf_printf(&b, "); PRAGMA application_id = %d; PRAGMA user_version = 1; COMMIT;",
			 ledger_kind.application_id);
	assert_true(ig_strbuf_ok(&b));
	run_sql(in_dir(path, "version1.db"), b.data);
	ig_strbuf_finish(&b);

	/* It can be read without a migration. */
	assert_int_equal(ig_ledger_stats(path, IG_LEDGER_BY_MODEL, 0, &stats, &n, NULL), 0);
	assert_int_equal(n, 1);
	assert_int_equal(stats[0].n_prompt, 3);
	free(stats);
	assert_int_equal(ig_ledger_stats(path, IG_LEDGER_BY_KEY, 0, &stats, &n, NULL), 0);
	assert_int_equal(n, 1);
	assert_string_equal(stats[0].name, "");
	free(stats);
	assert_int_equal(number(path, "PRAGMA user_version"), 1);

	strcpy(r.key, "laptop");
	strcpy(r.request_id, "req_2");
	strcpy(r.ignored, "a, b[1]");
	strcpy(r.cache_reason, "full");
	r.priority = 4;
	struct ig_ledger *l = open_ledger(path, 16, 0);
	ig_ledger_put(l, &r);
	ig_ledger_close(l);
	assert_int_equal(number(path, "PRAGMA user_version"), ledger_kind.version);
	words(path,
	      "SELECT id || '=' || key || '=' || request_id || '=' || ignored || '=' || itl_23 FROM requests ORDER BY row",
	      text, sizeof text);
	assert_string_equal(text, "resp_old====23 resp_2=laptop=req_2=a, b[1]=0");
	assert_int_equal(number(path, "SELECT sum(requests) FROM requests_by_key"), 2);
	/* The same columns in the same order as a new file has. */
	words(path, "SELECT name FROM pragma_table_info('requests') ORDER BY cid DESC LIMIT 17",
	      text, sizeof text);
	assert_string_equal(
		text,
		"mtp_accepted_tokens mtp_draft_tokens draft_gain_ms model_accepted_tokens model_draft_tokens "
		"normalized restored_tokens accepted_tokens draft_tokens priority "
		"cache_same_tokens cache_compared cache_reason ignored request_id key itl_23");
	assert_int_equal(number(path, "SELECT count(*) FROM requests WHERE cache_reason = '' "
				      "AND cache_same_tokens IS NULL AND priority = 0 "
				      "AND restored_tokens = 0 AND normalized = '' "
				      "AND model_draft_tokens = 0 AND draft_gain_ms = 0 "
				      "AND mtp_draft_tokens = 0"),
			 1);
	words(path,
	      "SELECT id || '=' || cache_same_tokens || '=' || cache_reason || '=' || priority "
	      "FROM requests_cache JOIN requests USING (id, cache_same_tokens, cache_reason)",
	      text, sizeof text);
	assert_string_equal(text, "resp_2=0=full=4");
	assert_int_equal(
		number(path, "SELECT strict FROM pragma_table_list WHERE name = 'requests'"), 1);
}

/* The statistics of the same file are equal. */
static void assert_refusal(const char *path, int code, const char *text, const char *stats_text)
{
	struct ig_ledger_stats *stats = NULL;
	struct ig_error err;
	size_t n;

	assert_int_equal(refused(path, &err), code);
	assert_string_equal(err.text, text);
	memset(&err, 0, sizeof err);
	assert_int_equal(ig_ledger_stats(path, IG_LEDGER_BY_MODEL, 0, &stats, &n, &err), code);
	assert_string_equal(err.text, stats_text ? stats_text : text);
	assert_null(stats);
}

static void test_other_files_are_refused(void **state)
{
	char path[256], text[600];

	ig_ledger_close(open_ledger(in_dir(path, "newer.db"), 16, 0));
	run_sql(path, "PRAGMA user_version = 12");
	snprintf(text, sizeof text,
		 "ledger %s: has schema version 12, and this program knows versions "
		 "up to 11; run a newer ingot, or name another file in ledger.path",
		 path);
	assert_refusal(path, -EINVAL, text, NULL);
	assert_int_equal(number(path, "PRAGMA user_version"), 12); /* untouched */

	run_sql(in_dir(path, "alien.db"), "CREATE TABLE requests (x)");
	snprintf(text, sizeof text,
		 "ledger %s: is a database of another program; name another file "
		 "in ledger.path",
		 path);
	assert_refusal(path, -EINVAL, text, NULL);
	run_sql(path, "PRAGMA user_version = 1");
	assert_refusal(path, -EINVAL, text, NULL);
	assert_int_equal(number(path, "SELECT count(*) FROM sqlite_master"), 1);

	write_text(in_dir(path, "text.db"), "This is no database, but it is long enough to be "
					    "taken for one: SQLite looks at the first bytes.\n");
	snprintf(text, sizeof text, "ledger %s: cannot be read: file is not a database", path);
	assert_refusal(path, -EINVAL, text, NULL);
}

static void test_unwritable(void **state)
{
	struct ig_error err;
	char path[256], file[256], text[600];

	/* Below a file. */
	write_text(in_dir(file, "file"), "");
	in_dir(path, "file/ledger.db");
	assert_int_equal(refused(path, &err), -ENOTDIR);
	snprintf(text, sizeof text, "ledger %s: cannot open %s.lock: Not a directory", path, path);
	assert_string_equal(err.text, text);
	in_dir(path, "file/more/ledger.db");
	assert_int_equal(refused(path, &err), -ENOTDIR);
	snprintf(text, sizeof text, "%s: cannot make the folder %s/more: Not a directory", path,
		 file);
	assert_string_equal(err.text, text);
	/* A folder. */
	assert_int_equal(mkdir(in_dir(path, "folder.db"), 0700), 0);
	assert_int_equal(refused(path, &err), -EISDIR);
	snprintf(text, sizeof text, "ledger %s: cannot be opened for writing: Is a directory",
		 path);
	assert_string_equal(err.text, text);
	/* A folder of another user; root may write anywhere, so root becomes nobody. */
	assert_int_equal(chmod(test_dir, 0755), 0);
	assert_int_equal(mkdir(in_dir(file, "theirs"), 0755), 0);
	in_dir(path, "theirs/ledger.db");
	bool root = geteuid() == 0;
	if (root)
		assert_int_equal(seteuid(65534), 0);
	else
		assert_int_equal(chmod(file, 0555), 0);
	int rc = refused(path, &err);
	if (root)
		assert_int_equal(seteuid(0), 0);
	assert_int_equal(rc, -EACCES);
	snprintf(text, sizeof text, "ledger %s: cannot open %s.lock: Permission denied", path,
		 path);
	assert_string_equal(err.text, text);

	struct ig_ledger_options o = { .path = path, .queue = 0 };
	struct ig_ledger *l = NULL;
	assert_int_equal(ig_ledger_open(&o, &l, &err), -EINVAL);
	o = (struct ig_ledger_options){ .path = "", .queue = 1 };
	assert_int_equal(ig_ledger_open(&o, &l, &err), -EINVAL);
	assert_null(l);
}

static void test_two_daemons(void **state)
{
	struct ig_error err;
	char path[256], text[600];
	struct ig_ledger *l = open_ledger(in_dir(path, "two.db"), 16, 0);

	assert_int_equal(refused(path, &err), -EBUSY);
	snprintf(text, sizeof text,
		 "ledger %s: another daemon (process %ld) writes to it; stop it, or "
		 "give this one another ledger.path",
		 path, (long)getpid());
	assert_string_equal(err.text, text);
	/* The first one continues; after its close the ledger can be opened. */
	struct ig_ledger_row r = a_row(1);
	ig_ledger_put(l, &r);
	ig_ledger_close(l);
	ig_ledger_close(open_ledger(path, 16, 0));
	assert_int_equal(rows_in(path), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_buckets),
		cmocka_unit_test(test_new_file),
		cmocka_unit_test(test_row_arrives_whole),
		cmocka_unit_test(test_views),
		cmocka_unit_test(test_many_threads),
		cmocka_unit_test(test_overflow),
		cmocka_unit_test(test_close_gives_up_on_a_lock),
		cmocka_unit_test(test_disk_full),
		cmocka_unit_test(test_failure_is_told),
		cmocka_unit_test(test_retention),
		cmocka_unit_test(test_empty_files_are_set_up),
		cmocka_unit_test(test_a_file_of_version_1),
		cmocka_unit_test(test_other_files_are_refused),
		cmocka_unit_test(test_unwritable),
		cmocka_unit_test(test_two_daemons),
	};

	return cmocka_run_group_tests(tests, make_test_dir, remove_test_dir);
}
