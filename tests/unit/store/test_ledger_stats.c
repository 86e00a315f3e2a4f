/*
 * test_ledger_stats.c: the ledger's statistics against numbers computed by hand, and
 * read while a daemon writes.
 */
#include "support.h"

#include "store/ledger_history.h"
#include "store/ledger_private.h"

#include <errno.h>
#include <math.h>
#include <sys/stat.h>

static struct ig_ledger *open_ledger(const char *path)
{
	struct ig_ledger_options o = { .path = path, .queue = 1024 };
	struct ig_ledger *l = NULL;
	struct ig_error err = { 0 };

	if (ig_ledger_open(&o, &l, &err))
		fail_msg("%s", err.text);
	return l;
}

static struct ig_ledger_row a_row(const char *model, const char *finish, int64_t received_ns,
				  float ttft_ms)
{
	struct ig_ledger_row r = { .status = 200,
				   .received_ns = received_ns,
				   .n_prompt = 10,
				   .n_cached = 4,
				   .n_output = 3,
				   .ttft_ms = ttft_ms,
				   .queue_ms = -1,
				   .prefill_ms = -1,
				   .decode_ms = -1,
				   .total_ms = 1 };

	snprintf(r.model, sizeof r.model, "%s", model);
	snprintf(r.finish, sizeof r.finish, "%s", finish);
	return r;
}

static void put(struct ig_ledger *l, struct ig_ledger_row r) { ig_ledger_put(l, &r); }

static struct ig_ledger_stats *stats_of(const char *path, int64_t since, size_t expected)
{
	struct ig_ledger_stats *s = NULL;
	struct ig_error err = { 0 };
	size_t n = 99;

	if (ig_ledger_stats(path, IG_LEDGER_BY_MODEL, since, &s, &n, &err))
		fail_msg("%s", err.text);
	assert_int_equal(n, expected);
	return s;
}

static void near(double a, double b)
{
	if (!(fabs(a - b) <= 1e-4 * fabs(b)))
		fail_msg("%.9g is not %.9g", a, b);
}

static void test_by_hand(void **state)
{
	char path[256];
	struct ig_ledger *l = open_ledger(in_dir(path, "stats.db"));
	struct ig_ledger_row r;

	/* "a": times to first token 1 … 100 in a mixed order, and two without one. */
	for (int i = 0; i < 100; i++)
		put(l, a_row("a", i < 60 ? "stop" : "length", 1000, (float)(i * 37 % 100 + 1)));
	put(l, a_row("a", "cancelled", 1000, -1));
	put(l, a_row("a", "error", 1000, -1));
	put(l, a_row("a", "refused", 1000, -1));
	/* "b": one time, and inter-token times in one bucket, over two rows. */
	r = a_row("b", "stop", 2000, 7.5f);
	r.itl[ig_itl_bucket(4.5)] = 4; /* over 4, to 5 ms */
	put(l, r);
	r = a_row("b", "stop", 3000, -1);
	r.itl[ig_itl_bucket(4.5)] = 6;
	put(l, r);
	/* "c": 50 up to half a ms, 40 over 10 to 12.5 ms, 10 over a second. */
	r = a_row("c", "stop", 4000, 3);
	r.itl[0] = 50;
	r.itl[ig_itl_bucket(11)] = 40;
	r.itl[IG_ITL_BUCKETS - 1] = 10;
	put(l, r);
	put(l, a_row("c", "stop", 4000, 1));
	ig_ledger_close(l);

	struct ig_ledger_stats *s = stats_of(path, 0, 3);
	assert_string_equal(s[0].name, "a");
	assert_int_equal(s[0].n_requests, 103);
	assert_int_equal(s[0].n_errors, 2);
	assert_int_equal(s[0].n_cancelled, 1);
	assert_int_equal(s[0].n_prompt, 1030);
	assert_int_equal(s[0].n_cached, 412);
	assert_int_equal(s[0].n_output, 309);
	near(s[0].ttft_ms[0], 50);
	near(s[0].ttft_ms[1], 95);
	near(s[0].ttft_ms[2], 99);
	for (int i = 0; i < 3; i++)
		assert_true(isnan(s[0].itl_ms[i]));

	assert_string_equal(s[1].name, "b");
	assert_int_equal(s[1].n_requests, 2);
	for (int i = 0; i < 3; i++)
		near(s[1].ttft_ms[i], 7.5);
	near(s[1].itl_ms[0], 4.5);
	near(s[1].itl_ms[1], 4.95);
	near(s[1].itl_ms[2], 4.99);

	/* Ranks 50, 95 and 99 of 100: the end of the first bucket, then the open one,
	 * of which only the lower end is known.  Of two times the smaller is the median. */
	assert_string_equal(s[2].name, "c");
	near(s[2].itl_ms[0], 0.5);
	near(s[2].itl_ms[1], 1000);
	near(s[2].itl_ms[2], 1000);
	near(s[2].ttft_ms[0], 1);
	near(s[2].ttft_ms[1], 3);
	free(s);

	/* Since a time, inclusive. */
	s = stats_of(path, 3000, 2);
	assert_string_equal(s[0].name, "b");
	assert_int_equal(s[0].n_requests, 1);
	near(s[0].itl_ms[0], 4 + 3 / 6.0);
	for (int i = 0; i < 3; i++)
		assert_true(isnan(s[0].ttft_ms[i]));
	free(s);
	s = stats_of(path, 5000, 0);
	free(s);
}

/* By key and by client: each has its own sums and its own ranks. */
static void test_by_column(void **state)
{
	static const struct {
		const char *key, *client;
		float ttft_ms;
	} rows[] = { { "b", "10.0.0.2", 9 },
		     { "a", "10.0.0.1", 1 },
		     { "", "10.0.0.2", 5 },
		     { "b", "10.0.0.1", 3 },
		     { "b", "10.0.0.1", -1 } };
	struct ig_ledger_stats *s = NULL;
	struct ig_error err = { 0 };
	char path[256];
	size_t n = 0;
	struct ig_ledger *l = open_ledger(in_dir(path, "by.db"));

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct ig_ledger_row r = a_row("m", "stop", 1, rows[i].ttft_ms);
		strcpy(r.key, rows[i].key);
		strcpy(r.client, rows[i].client);
		put(l, r);
	}
	ig_ledger_close(l);

	assert_int_equal(ig_ledger_stats(path, IG_LEDGER_BY_KEY, 0, &s, &n, &err), 0);
	assert_int_equal(n, 3);
	assert_string_equal(s[0].name, "");
	assert_string_equal(s[1].name, "a");
	assert_string_equal(s[2].name, "b");
	assert_int_equal(s[2].n_requests, 3);
	near(s[0].ttft_ms[2], 5);
	near(s[1].ttft_ms[2], 1);
	near(s[2].ttft_ms[0], 3);
	near(s[2].ttft_ms[2], 9);
	free(s);
	assert_int_equal(ig_ledger_stats(path, IG_LEDGER_BY_CLIENT, 0, &s, &n, &err), 0);
	assert_int_equal(n, 2);
	assert_string_equal(s[0].name, "10.0.0.1");
	assert_int_equal(s[0].n_requests, 3);
	near(s[0].ttft_ms[2], 3);
	assert_int_equal(s[1].n_requests, 2);
	near(s[1].ttft_ms[0], 5);
	free(s);
}

/* A copy while rows come: it is whole, has a writer's settings, and is never overwritten. */
static void test_copy(void **state)
{
	char path[256], to[256], name[300];
	struct ig_error err = { 0 };
	int64_t n_rows = -1;
	struct stat st;
	struct ig_ledger *l = open_ledger(in_dir(path, "from.db"));

	in_dir(to, "to.db");
	assert_int_equal(ig_ledger_copy(path, to, &n_rows, &err), 0);
	assert_int_equal(n_rows, 0);
	assert_int_equal(ig_ledger_copy(path, to, &n_rows, &err), -EEXIST);
	assert_non_null(strstr(err.text, to));
	assert_int_equal(unlink(to), 0);

	for (int i = 0; i < 3; i++)
		put(l, a_row("m", "stop", 1, 1));
	ig_ledger_close(l);
	l = open_ledger(path);
	mode_t mask = umask(0);
	assert_int_equal(ig_ledger_copy(path, to, &n_rows, &err), 0);
	umask(mask);
	ig_ledger_close(l);
	assert_int_equal(n_rows, 3);
	assert_int_equal(stat(to, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	for (int i = 0; i < 3; i++) { /* one file, nothing beside it */
		static const char *const beside[] = { "-wal", "-shm", "-journal" };
		snprintf(name, sizeof name, "%s%s", to, beside[i]);
		assert_int_equal(access(name, F_OK), -1);
	}
	l = open_ledger(to); /* a daemon can go on with it */
	put(l, a_row("m", "stop", 1, 1));
	ig_ledger_close(l);
	struct ig_ledger_stats *s = stats_of(to, 0, 1);
	assert_int_equal(s[0].n_requests, 4);
	free(s);

	in_dir(path, "nothing.db");
	assert_int_equal(ig_ledger_copy(path, in_dir(to, "to2.db"), &n_rows, &err), -ENOENT);
	assert_int_equal(access(to, F_OK), -1);
}

/* The histogram of one row interpolates where a rank falls inside a bucket. */
static void test_interpolation(void **state)
{
	char path[256];
	struct ig_ledger *l = open_ledger(in_dir(path, "inter.db"));
	struct ig_ledger_row r = a_row("m", "stop", 1, 1);

	r.itl[ig_itl_bucket(22)] = 40; /* 20 … 25 */
	r.itl[ig_itl_bucket(30)] = 40; /* 25 … 32 */
	r.itl[ig_itl_bucket(45)] = 20; /* 40 … 50 */
	put(l, r);
	ig_ledger_close(l);
	struct ig_ledger_stats *s = stats_of(path, 0, 1);
	near(s[0].itl_ms[0], 25 + 7 * 10 / 40.0);
	near(s[0].itl_ms[1], 40 + 10 * 15 / 20.0);
	near(s[0].itl_ms[2], 40 + 10 * 19 / 20.0);
	free(s);
}

static void test_while_a_daemon_writes(void **state)
{
	char path[256];
	struct ig_ledger *l = open_ledger(in_dir(path, "live.db"));

	free(stats_of(path, 0, 0));
	for (int i = 0; i < 600; i++) /* more than one commit */
		put(l, a_row("m", "stop", 1, 1));
	struct ig_ledger_stats *s = NULL;
	struct ig_error err = { 0 };
	size_t n = 0;
	for (int i = 0; i < 2000 && (!n || s[0].n_requests < 600); i++) {
		usleep(5000);
		free(s);
		if (ig_ledger_stats(path, IG_LEDGER_BY_MODEL, 0, &s, &n, &err))
			fail_msg("%s", err.text);
	}
	assert_int_equal(n, 1);
	assert_int_equal(s[0].n_requests, 600);
	free(s);
	ig_ledger_close(l);
}

static void test_no_file(void **state)
{
	struct ig_ledger_stats *s = NULL;
	struct ig_error err = { 0 };
	char path[256], text[600];
	size_t n = 1;

	in_dir(path, "none.db");
	assert_int_equal(ig_ledger_stats(path, IG_LEDGER_BY_MODEL, 0, &s, &n, &err), -ENOENT);
	snprintf(text, sizeof text, "ledger %s: cannot be read: No such file or directory", path);
	assert_string_equal(err.text, text);
	assert_int_equal(n, 0);
	assert_int_equal(access(path, F_OK), -1); /* reading makes no file */
	/* An empty file. */
	write_text(path, "");
	free(stats_of(path, 0, 0));
}

/* ---- several ledgers ------------------------------------------------------------------ */

/* The groups of a ledger, as another program reads them. */
static json_t *groups_of(const char *path)
{
	const struct ig_ledger_query q = { .to_ns = INT64_MAX, .grouped = true };
	struct ig_strbuf out = { 0 };
	struct ig_json_writer w = { .out = &out };
	struct ig_json_error why;
	struct ig_error err = { 0 };
	json_t *root;

	ig_json_open_object(&w, NULL);
	if (ig_ledger_write_groups(path, &q, &w, &err))
		fail_msg("%s", err.text);
	ig_json_close_object(&w);
	assert_int_equal(ig_json_read(out.data, out.len, NULL, &root, &why), 0);
	ig_strbuf_finish(&out);
	return root;
}

static struct ig_ledger_row numbered(int i)
{
	struct ig_ledger_row r =
		a_row(i % 5 ? "m" : "n", i % 7 ? "stop" : "error", i + 1, (float)(i * i % 997));

	r.decode_ms = 2;
	for (int k = 0; k < IG_ITL_BUCKETS; k++)
		r.itl[k] = (uint32_t)(i * k % 3);
	return r;
}

/* What two ledgers say together is what one says that has the rows of both. */
static void test_ledgers_are_joined(void **state)
{
	struct ig_ledger_sums joined[2] = { 0 }, whole[2] = { 0 };
	struct ig_ledger *all[3];
	char path[3][256];

	for (int k = 0; k < 3; k++) {
		static const char *const names[] = { "join-a.db", "join-b.db", "join-c.db" };
		all[k] = open_ledger(in_dir(path[k], names[k]));
	}
	for (int i = 0; i < 200; i++) {
		put(all[i % 3 == 0], numbered(i));
		put(all[2], numbered(i));
	}
	for (int k = 0; k < 3; k++)
		ig_ledger_close(all[k]);
	for (int k = 0; k < 3; k++) {
		json_t *root = groups_of(path[k]);
		const json_t *data = json_object_get(root, "data");
		assert_int_equal(json_array_size(data), 2);
		for (size_t g = 0; g < 2; g++) {
			const json_t *element = json_array_get(data, g);
			assert_string_equal(ig_json_text(element, "name"), g ? "n" : "m");
			assert_int_equal(
				ig_ledger_sums_add(k < 2 ? &joined[g] : &whole[g], element), 0);
		}
		json_decref(root);
	}
	assert_int_equal(joined[0].n, 160);
	assert_int_equal(joined[1].n, 40);
	assert_memory_equal(joined, whole, sizeof joined);
	/* the percentiles of the exact times, within 1 % */
	struct ig_ledger_stats *s = stats_of(path[2], 0, 2);
	for (int g = 0; g < 2; g++) {
		for (int i = 0; i < 3; i++) {
			const unsigned percent[3] = { 50, 95, 99 };
			double exact = s[g].ttft_ms[i];
			assert_true(fabs(ig_ledger_ttft_quantile(&joined[g], percent[i]) / exact -
					 1) < 0.0101);
			near(ig_itl_quantile(joined[g].itl, percent[i] / 100.0), s[g].itl_ms[i]);
		}
	}
	free(s);
}

static void test_elements_that_are_none(void **state)
{
#define COUNTS                                                                                     \
	"\"requests\":1,\"refused\":0,\"errors\":0,\"cancelled\":0,\"prompt_tokens\":1,"           \
	"\"cached_tokens\":0,\"output_tokens\":1,\"decode_ms\":0.5,"
#define ZEROS "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0"
	static const char *const elements[] = {
		"{" COUNTS "\"ttft_counts\":[[1199,2]],\"itl_counts\":[1," ZEROS "]}", /* is one */
		"{}",
		"[]",
		"{" COUNTS "\"ttft_counts\":[[1200,2]],\"itl_counts\":[1," ZEROS "]}",
		"{" COUNTS "\"ttft_counts\":[[-1,2]],\"itl_counts\":[1," ZEROS "]}",
		"{" COUNTS "\"ttft_counts\":[[1,-2]],\"itl_counts\":[1," ZEROS "]}",
		"{" COUNTS "\"ttft_counts\":[[1]],\"itl_counts\":[1," ZEROS "]}",
		"{" COUNTS "\"ttft_counts\":[7],\"itl_counts\":[1," ZEROS "]}",
		"{" COUNTS "\"ttft_counts\":{},\"itl_counts\":[1," ZEROS "]}",
		"{" COUNTS "\"ttft_counts\":[],\"itl_counts\":[" ZEROS "]}",
		"{" COUNTS "\"ttft_counts\":[],\"itl_counts\":[9223372036854775807," ZEROS "]}",
		"{" COUNTS "\"ttft_counts\":[],\"itl_counts\":[1.5," ZEROS "]}",
	};
	struct ig_ledger_sums sums = { 0 }, before;

	for (size_t i = 0; i < sizeof elements / sizeof elements[0]; i++) {
		struct ig_json_error why;
		json_t *v;
		assert_int_equal(ig_json_read(elements[i], strlen(elements[i]), NULL, &v, &why), 0);
		before = sums;
		assert_int_equal(ig_ledger_sums_add(&sums, v), i ? -EBADMSG : 0);
		if (i)
			assert_memory_equal(&sums, &before, sizeof sums);
		json_decref(v);
	}
	assert_int_equal(sums.ttft[1199], 2);
	assert_int_equal(sums.itl[0], 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ledgers_are_joined),
		cmocka_unit_test(test_elements_that_are_none),
		cmocka_unit_test(test_by_hand),
		cmocka_unit_test(test_by_column),
		cmocka_unit_test(test_copy),
		cmocka_unit_test(test_interpolation),
		cmocka_unit_test(test_while_a_daemon_writes),
		cmocka_unit_test(test_no_file),
	};

	return cmocka_run_group_tests(tests, make_test_dir, remove_test_dir);
}
