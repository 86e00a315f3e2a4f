/* Text for people: numbers, tables, statistics, findings. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "cli/commands/doctor.h"
#include "cli/commands/stats.h"
#include "cli/term/text.h"

static void test_numbers(void **state)
{
	char b[32];

	assert_string_equal(ig_text_bytes(b, sizeof b, 0), "0 B");
	assert_string_equal(ig_text_bytes(b, sizeof b, 1023), "1023 B");
	assert_string_equal(ig_text_bytes(b, sizeof b, 1024), "1.0 KiB");
	assert_string_equal(ig_text_bytes(b, sizeof b, 98362432), "93.8 MiB");
	assert_string_equal(ig_text_bytes(b, sizeof b, UINT64_MAX), "16.0 EiB");
	assert_string_equal(ig_text_ms(b, sizeof b, 0.04), "0.0 ms");
	assert_string_equal(ig_text_ms(b, sizeof b, 12.34), "12.3 ms");
	assert_string_equal(ig_text_ms(b, sizeof b, 1234.5), "1234 ms");
	assert_string_equal(ig_text_ms(b, sizeof b, 12345), "12.3 s");
	assert_string_equal(ig_text_ms(b, sizeof b, NAN), "-");
	assert_string_equal(ig_text_seconds(b, sizeof b, 0.84), "0.8 s");
	assert_string_equal(ig_text_seconds(b, sizeof b, 125), "2 m 05 s");
	assert_string_equal(ig_text_seconds(b, sizeof b, 11520), "3 h 12 m");
	assert_string_equal(ig_text_seconds(b, sizeof b, -1), "-");
	assert_string_equal(ig_text_seconds(b, sizeof b, INFINITY), "-");
}

static void assert_plain(const char *text, bool keep_lines, const char *expected)
{
	struct ig_strbuf b = { 0 };

	ig_text_plain(&b, text, strlen(text), keep_lines);
	assert_string_equal(b.data, expected);
	ig_strbuf_finish(&b);
}

static void test_plain(void **state)
{
	assert_plain("a\x1b[31mb\x07\n\tc\x7f", true, "a [31mb \n\tc ");
	assert_plain("a\n\tb", false, "a  b");
	assert_plain("\xc2\x9b"
		     "31m",
		     true, " 31m"); /* CSI as one character */
	assert_plain("\xc2\xa0\xc3\xbc\xf0\x9f\x99\x82", true, "\xc2\xa0\xc3\xbc\xf0\x9f\x99\x82");
	assert_plain("\xc2", true, "\xc2");
}

static void test_table(void **state)
{
	static const char *const headers[] = { "NAME", ">N", "WHAT" };
	struct ig_table t;
	struct ig_strbuf b = { 0 };

	ig_table_init(&t, headers, 3);
	ig_table_add(&t, "\xc3\xbc"); /* one column wide, two bytes */
	ig_table_addf(&t, "%d", 12345);
	ig_table_add(&t, "x\ny");
	assert_true(ig_table_write(&t, &b));
	assert_string_equal(b.data, "NAME      N  WHAT\n"
				    "\xc3\xbc     12345  x y\n");
	ig_table_finish(&t);
	ig_strbuf_finish(&b);
}

static const struct ig_ledger_stats two[] = {
	{ .name = "a",
	  .n_requests = 10,
	  .n_errors = 1,
	  .n_cancelled = 2,
	  .n_prompt = 300,
	  .n_cached = 40,
	  .n_output = 500,
	  .ttft_ms = { 12.5, 40, 1200 },
	  .itl_ms = { 5, 6, 7 } },
	{ .name = "b\"",
	  .n_requests = 1,
	  .ttft_ms = { NAN, NAN, NAN },
	  .itl_ms = { NAN, NAN, NAN } },
};

static void test_stats_table(void **state)
{
	struct ig_strbuf b = { 0 };

	assert_true(ig_stats_table(two, 1, IG_LEDGER_BY_MODEL, &b));
	assert_string_equal(
		b.data,
		"MODEL  REQUESTS  ERRORS  CANCELLED  PROMPT  CACHED  OUTPUT  TTFT p50      p95      p99"
		"  INTER-TOKEN p50     p95     p99\n"
		"a            10       1          2     300      40     500   12.5 ms  40.0 ms  1200 ms"
		"           5.0 ms  6.0 ms  7.0 ms\n");
	ig_strbuf_clear(&b);
	assert_true(ig_stats_table(two, 2, IG_LEDGER_BY_MODEL, &b));
	const char *sum = strstr(b.data, "\nall");
	assert_non_null(sum);
	assert_non_null(strstr(sum, " 11 "));
	assert_null(strstr(sum, "ms")); /* percentiles don't add up */
	ig_strbuf_finish(&b);
}

static void test_stats_json(void **state)
{
	struct ig_strbuf b = { 0 };
	json_t *root, *m;

	assert_true(ig_stats_json(two, 2, IG_LEDGER_BY_MODEL, 3600, &b));
	root = json_loads(b.data, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(root);
	assert_int_equal(json_integer_value(json_object_get(root, "since_s")), 3600);
	assert_int_equal(json_array_size(json_object_get(root, "models")), 2);
	m = json_array_get(json_object_get(root, "models"), 0);
	assert_int_equal(json_integer_value(json_object_get(m, "requests")), 10);
	assert_int_equal(json_integer_value(json_object_get(m, "errors")), 1);
	assert_int_equal(json_integer_value(json_object_get(m, "cancelled")), 2);
	assert_int_equal(json_integer_value(json_object_get(m, "prompt_tokens")), 300);
	assert_int_equal(json_integer_value(json_object_get(m, "cached_tokens")), 40);
	assert_int_equal(json_integer_value(json_object_get(m, "output_tokens")), 500);
	assert_true(json_real_value(json_object_get(json_object_get(m, "ttft_ms"), "p50")) == 12.5);
	assert_true(json_real_value(json_object_get(json_object_get(m, "inter_token_ms"), "p99")) ==
		    7);
	m = json_array_get(json_object_get(root, "models"), 1);
	assert_string_equal(json_string_value(json_object_get(m, "model")), "b\"");
	assert_true(json_is_null(json_object_get(json_object_get(m, "ttft_ms"), "p95")));
	json_decref(root);
	ig_strbuf_clear(&b);
	assert_true(ig_stats_json(NULL, 0, IG_LEDGER_BY_MODEL, 0, &b));
	assert_string_equal(b.data, "{\"since_s\":null,\"models\":[]}\n");
	ig_strbuf_finish(&b);
}

static void test_stats_by(void **state)
{
	struct ig_strbuf b = { 0 };

	assert_true(ig_stats_json(two, 1, IG_LEDGER_BY_KEY, 0, &b));
	assert_non_null(strstr(b.data, "{\"since_s\":null,\"keys\":[{\"key\":\"a\","));
	ig_strbuf_clear(&b);
	assert_true(ig_stats_table(two, 1, IG_LEDGER_BY_CLIENT, &b));
	assert_ptr_equal(strstr(b.data, "CLIENT  REQUESTS"), b.data);
	ig_strbuf_finish(&b);
}

static void test_stats_csv(void **state)
{
	static const struct ig_ledger_stats odd[] = {
		{ .name = "=1+\"x\",\n", .ttft_ms = { NAN, NAN, NAN }, .itl_ms = { 1, 2, 3 } },
		{ .name = "",
		  .n_requests = 7,
		  .ttft_ms = { 1, 1, 1 },
		  .itl_ms = { NAN, NAN, NAN } },
	};
	struct ig_strbuf b = { 0 };

	assert_true(ig_stats_csv(two, 2, IG_LEDGER_BY_MODEL, &b));
	assert_string_equal(
		b.data, "model,requests,errors,cancelled,prompt_tokens,cached_tokens,output_tokens,"
			"ttft_p50_ms,ttft_p95_ms,ttft_p99_ms,inter_token_p50_ms,inter_token_p95_ms,"
			"inter_token_p99_ms\n"
			"\"a\",10,1,2,300,40,500,12.500,40.000,1200.000,5.000,6.000,7.000\n"
			"\"b\"\"\",1,0,0,0,0,0,,,,,,\n");
	ig_strbuf_clear(&b);
	assert_true(ig_stats_csv(odd, 2, IG_LEDGER_BY_KEY, &b));
	assert_ptr_equal(strstr(b.data, "key,requests,"), b.data);
	assert_non_null(strstr(b.data, "\n\"'=1+\"\"x\"\", \",0,0,0,0,0,0,,,,1.000,2.000,3.000\n"));
	assert_non_null(strstr(b.data, "\n\"\",7,0,0,0,0,0,1.000,1.000,1.000,,,\n"));
	ig_strbuf_finish(&b);
}

static void test_findings(void **state)
{
	struct ig_findings f = { 0 };
	struct ig_strbuf b = { 0 };

	ig_findings_add(&f, IG_FINDING_OK, "driver", NULL, "cpu, %s", "avx2");
	ig_findings_add(&f, IG_FINDING_NOTE, "daemon", "start it", "none");
	assert_int_equal(ig_findings_wrong(&f), 0);
	assert_true(ig_findings_text(&f, &b));
	assert_string_equal(b.data, "ok     driver  cpu, avx2\n"
				    "note   daemon  none\n"
				    "               -> start it\n"
				    "\nnothing is wrong\n");
	ig_findings_add(&f, IG_FINDING_WRONG, "ledger", "do \"this\"", "bad\n\x1b[0m");
	assert_int_equal(ig_findings_wrong(&f), 1);
	ig_strbuf_clear(&b);
	assert_true(ig_findings_text(&f, &b));
	assert_non_null(strstr(b.data, "wrong  ledger  bad  [0m\n"));
	assert_non_null(strstr(b.data, "\n1 thing is wrong\n"));
	ig_strbuf_clear(&b);
	assert_true(ig_findings_json(&f, &b));
	json_t *root = json_loads(b.data, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(root);
	assert_int_equal(json_integer_value(json_object_get(root, "wrong")), 1);
	json_t *last = json_array_get(json_object_get(root, "checks"), 2);
	assert_string_equal(json_string_value(json_object_get(last, "status")), "wrong");
	assert_string_equal(json_string_value(json_object_get(last, "todo")), "do \"this\"");
	assert_true(json_is_null(
		json_object_get(json_array_get(json_object_get(root, "checks"), 0), "todo")));
	json_decref(root);
	ig_findings_finish(&f);
	ig_strbuf_finish(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numbers),	   cmocka_unit_test(test_plain),
		cmocka_unit_test(test_table),	   cmocka_unit_test(test_stats_table),
		cmocka_unit_test(test_stats_json), cmocka_unit_test(test_stats_by),
		cmocka_unit_test(test_stats_csv),  cmocka_unit_test(test_findings),
	};

	return cmocka_run_group_tests_name("cli text", tests, NULL, NULL);
}
