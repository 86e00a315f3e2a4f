/*
 * test_json.c: JSON read as jansson reads it, errors where they are, and what is written read
 * back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/json.h"
#include "tests/unit/no_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading --------------------------------------------------------------------------- */

static const char *const good[] = {
	"null",
	" true ",
	"false\n",
	"0",
	"-0",
	"-0.0",
	"9223372036854775807",
	"-9223372036854775808",
	"1e308",
	"5e-324",
	"1e-99999999",
	"0.333333333333333314829616256247390992939472198486328125000000000000000000000000001",
	"1E+2",
	"\"\"",
	"\"a\\\"\\\\\\/\\b\\f\\n\\r\\tz\"",
	"\"\\u00e9\\u20ac\\ud83e\\udd80\\uffff\\udbff\\udfff\"",
	"\"\\u0000\"",
	"\"\xc3\xa9\xe2\x82\xac\xf0\x9f\xa6\x80\x7f\"",
	"[]",
	"{}",
	"[ 1 , [ ] , { } ]",
	"{\"a\":1,\"b\":[true,null],\"\":{\"a\":\"\"}}",
	"{\"\\u0061\":1,\"A\":2}",
	"\t\r\n [1]",
};

static const char *const bad[] = {
	"",
	" ",
	"nul",
	"nulll",
	"True",
	"truefalse",
	"1 2",
	"+1",
	"-",
	"01",
	"-01",
	".5",
	"1.",
	"1.e5",
	"1e",
	"1e+",
	"0x1",
	"NaN",
	"Infinity",
	"-Infinity",
	"1e400",
	"-1e400",
	"9223372036854775808",
	"-9223372036854775809",
	"123456789012345678901234567890",
	"\"",
	"\"a",
	"\"\\",
	"\"\\\"",
	"\"\\x41\"",
	"\"\\u12\"",
	"\"\\u12g4\"",
	"\"\\ud83e\"",
	"\"\\udd80\"",
	"\"\\udd80\\ud83e\"",
	"\"\\ud83e\\ud83e\"",
	"\"\\ud83ex\"",
	"\"\\ud83e\\n\"",
	"\"\t\"",
	"\"\n\"",
	"\"\x01\"",
	"\"\xff\"",
	"\"\xc3\"",
	"\"\xc0\xaf\"",
	"\"\xed\xa0\x80\"",
	"\"\xf4\x90\x80\x80\"",
	"\xef\xbb\xbf{}",
	"'a'",
	"[",
	"]",
	"[1",
	"[1,",
	"[1,]",
	"[,]",
	"[1 2]",
	"[1}",
	"{",
	"}",
	"{]",
	"{\"a\"",
	"{\"a\":",
	"{\"a\":}",
	"{\"a\":1",
	"{\"a\":1,",
	"{\"a\":1,}",
	"{\"a\" 1}",
	"{a:1}",
	"{1:1}",
	"{\"a\":1]",
	"{\"a\":1,\"a\":1}",
	"{\"a\":1,\"\\u0061\":2}",
	"{\"\\u0000\":1}",
	"{}{}",
	"{} x",
	"[1]/**/",
};

static const struct ig_json_limits any = { .allow_nul = true };

/* Both accept the text and have equal values, or both refuse it. */
static void beside_jansson(const char *text, size_t len, bool is_good)
{
	struct ig_json_error why;
	json_t *theirs = json_loadb(
		text, len, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
	json_t *ours;
	int rc = ig_json_read(text, len, &any, &ours, &why);

	if (!rc != is_good || !theirs == is_good)
		fail_msg("%.*s: %s, jansson: %d", (int)len, text, rc ? why.text : "read", !!theirs);
	if (is_good)
		assert_true(json_equal(ours, theirs));
	else
		assert_true(rc == -EINVAL && !ours && why.text[0]);
	json_decref(ours);
	json_decref(theirs);
}

static void test_reading(void **state)
{
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
		beside_jansson(good[i], strlen(good[i]), true);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		beside_jansson(bad[i], strlen(bad[i]), false);
	beside_jansson("{}\0", 3, false);
	beside_jansson("\"a\0b\"", 5, false);
}

/* The text ends where its memory ends, so that AddressSanitizer finds reads beyond it. */
static void test_cut(void **state)
{
	static const char text[] =
		"{\"a\\u00e9\\ud83e\\udd80\":[-1.5e+2,true,null,\"\xe2\x82\xac\"],"
		"\"b\":false}";

	for (size_t n = 0; n < sizeof text - 1; n++) {
		char *copy = malloc(n ? n : 1);
		json_t *v;
		memcpy(copy, text, n);
		assert_int_equal(ig_json_read(copy, n, NULL, &v, NULL), -EINVAL);
		assert_null(v);
		free(copy);
	}
}

/* U+0000 where a list of keys allows it: in the value, in a list, and in an object down to its leaves. */
static void test_nul(void **state)
{
	static const char *const texts[] = { "text", "list", NULL }, *const objects[] = { "all",
											  NULL };
	const struct ig_json_limits limits = { .nul_texts = texts, .nul_objects = objects };
	static const struct {
		const char *text;
		bool ok;
	} rows[] = {
		{ "{\"text\":\"a\\u0000b\"}", true },
		{ "{\"list\":[\"\\u0000\",[\"\\u0000\"]]}", true },
		{ "{\"all\":{\"x\":[{\"y\":\"\\u0000\"}]}}", true },
		{ "[{\"te\\u0078t\":\"\\u0000\"}]", true }, /* "text", with an escape */
		{ "\"\\u0000\"", false },
		{ "[\"\\u0000\"]", false },
		{ "{\"other\":\"\\u0000\"}", false },
		{ "{\"texts\":\"\\u0000\"}", false },
		{ "{\"tex\":\"\\u0000\"}", false },
		{ "{\"all\":\"\\u0000\"}", false },
		{ "{\"all\":[\"\\u0000\"]}", false },
		{ "{\"text\":{\"x\":\"\\u0000\"}}", false },
		{ "{\"list\":[{\"x\":\"\\u0000\"}]}", false },
		{ "{\"text\":\"\\u0000\",\"x\":\"\\u0000\"}", false },
		{ "{\"all\":{},\"x\":\"\\u0000\"}", false },
		{ "{\"all\":{\"\\u0000\":1}}", false }, /* never in keys */
	};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct ig_json_error e;
		json_t *v = NULL;
		int rc = ig_json_read(rows[i].text, strlen(rows[i].text), &limits, &v, &e);
		if ((rc == 0) != rows[i].ok || (rc && !strstr(e.text, "\\u0000")))
			fail_msg("%s: %d", rows[i].text, rc);
		if (!i)
			assert_memory_equal(json_string_value(json_object_get(v, "text")), "a\0b",
					    4);
		json_decref(v);
	}
}

static void test_places(void **state)
{
	static const struct {
		const char *text;
		unsigned line, column;
		size_t byte;
		const char *what;
	} rows[] = {
		{ "", 1, 0, 0, "no value" },
		{ "{", 1, 1, 1, "no string" },
		{ "[1,\n 2,\n x]", 3, 2, 9, "no value" },
		{ "\"\xc3\xa9\xe2\x82\xac\" 1", 1, 6, 8, "end of file expected" },
		{ "\"\\u0000\"", 1, 8, 8, "\\u0000 is not allowed" },
		{ "\"\\ud800\"", 1, 2, 1, "invalid Unicode" },
		{ "[\"\xff\"]", 1, 3, 2, "can't decode byte 0xff as UTF-8" },
		{ "[\n\n99999999999999999999]", 3, 21, 23, "too big integer" },
		{ "[1e999]", 1, 7, 6, "out of range" },
		{ "{\"a\":1,\"a\":1}", 1, 12, 11, "duplicate key" },
	};
	struct ig_json_error e;
	struct ig_error err;
	json_t *v;

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		assert_int_equal(ig_json_read(rows[i].text, strlen(rows[i].text), NULL, &v, &e),
				 -EINVAL);
		if (!strstr(e.text, rows[i].what) || e.line != rows[i].line ||
		    e.column != rows[i].column || e.byte != rows[i].byte)
			fail_msg("%s: %u:%u, byte %zu: %s", rows[i].text, e.line, e.column, e.byte,
				 e.text);
	}
	/* of a tokenizer's file in most folders of Hugging Face */
	static const char big[] = "{\"model_max_length\": 1000000000000000019884624838656}";
	assert_int_equal(ig_json_read_file("a.json", big, sizeof big - 1, &v, &err), 0);
	assert_true(json_real_value(json_object_get(v, "model_max_length")) == 1e30);
	json_decref(v);
	assert_int_equal(ig_json_read_file("a.json", "{\n]", 3, &v, &err), -EINVAL);
	assert_string_equal(err.text, "a.json: line 2, column 1: no JSON: no string");
}

static void test_limits(void **state)
{
	const struct ig_json_limits few = { .max_depth = 3, .max_values = 5 };
	char deep[2048];
	struct ig_json_error e;
	struct ig_error err;
	json_t *v;

	assert_int_equal(ig_json_read("[[[1]],2]", 9, &few, &v, &e), 0);
	json_decref(v);
	assert_int_equal(ig_json_read("[[[[]]]]", 8, &few, &v, &e), -E2BIG);
	assert_string_equal(e.text, "is nested more than 3 deep");
	assert_null(v);
	assert_int_equal(ig_json_read("{\"a\":[1,2,3],\"b\":4}", 19, &few, &v, &e), -E2BIG);
	assert_string_equal(e.text, "has more than 5 values");
	memset(deep, '[', 512);
	memset(deep + 512, ']', 512);
	assert_int_equal(ig_json_read(deep, 1024, NULL, &v, &e), 0);
	json_decref(v);
	memset(deep, '[', sizeof deep);
	assert_int_equal(ig_json_read_file("a.json", deep, sizeof deep, &v, &err), -EINVAL);
	assert_string_equal(err.text, "a.json: the JSON is nested more than 512 deep");
}

/* ---- writing ------------------------------------------------------------------------------ */

static void write_all(struct ig_json_writer *w, const json_t *v)
{
	static const char text[] = "a\"b\\c\n\r\t\x01\x1f/\xc3\xa9\0z";

	ig_json_open_object(w, NULL);
	ig_json_put_string(w, "s", text, sizeof text - 1);
	ig_json_put_text(w, "e\"", "");
	ig_json_put_text(w, "none", NULL);
	ig_json_open_array(w, "n");
	ig_json_put_int(w, NULL, INT64_MIN);
	ig_json_put_uint(w, NULL, UINT64_MAX);
	ig_json_put_real(w, NULL, "%.3f", 0.0625);
	ig_json_put_real(w, NULL, "%.3f", INFINITY);
	ig_json_close_array(w);
	ig_json_open_object(w, "o");
	ig_json_close_object(w);
	ig_json_put_line(w);
	ig_json_put_raw(w, "t", ig_json_bool(true));
	ig_json_put_raw(w, "z", NULL);
	ig_json_put_value(w, "v", v);
	ig_json_put_key(w, "k\0", 2);
	ig_json_put_raw(w, NULL, "[1]");
	ig_json_put_value(w, "nothing", NULL);
	ig_json_close_object(w);
}

static void test_writing(void **state)
{
	struct ig_strbuf b = { 0 };
	struct ig_json_writer w = { .out = &b };
	json_t *v = json_pack("{s:[i,f,s]}", "x", 1, 0.1, "\b\x1f"), *back;

	write_all(&w, v);
	assert_string_equal(b.data,
			    "{\"s\":\"a\\\"b\\\\c\\n\\r\\t\\u0001\\u001f/\xc3\xa9\\u0000z\","
			    "\"e\\\"\":\"\",\"none\":null,"
			    "\"n\":[-9223372036854775808,18446744073709551615,0.062,null],"
			    "\"o\":{},\n\"t\":true,\"z\":null,"
			    "\"v\":{\"x\":[1,0.10000000000000001,\"\\b\\u001F\"]},"
			    "\"k\\u0000\":[1],\"nothing\":null}");
	ig_strbuf_clear(&b);
	w = (struct ig_json_writer){ .out = &b, .spaced = true };
	ig_json_open_array(&w, NULL);
	ig_json_put_value(&w, NULL, v);
	ig_json_open_object(&w, NULL);
	ig_json_put_int(&w, "a", 1);
	ig_json_put_int(&w, "b", 2);
	ig_json_close_object(&w);
	ig_json_close_array(&w);
	assert_string_equal(b.data, "[{\"x\": [1, 0.10000000000000001, \"\\b\\u001F\"]}, "
				    "{\"a\": 1, \"b\": 2}]");
	assert_int_equal(ig_json_read(b.data, b.len, NULL, &back, NULL), 0);
	assert_true(json_equal(json_array_get(back, 0), v));
	assert_string_equal(ig_json_text(json_array_get(back, 1), "a") ? "text" : "none", "none");
	json_decref(back);
	json_decref(v);
	ig_strbuf_finish(&b);
}

/* A format between calls that open and close, and every conversion. */
static void test_formats(void **state)
{
	struct ig_strbuf b = { 0 };
	struct ig_json_writer w = { .out = &b };
	const char *none = NULL;

	ig_json_putf(&w, "{'a b': %s, 'null': %s, 'cut': %.*s, 'raw': %-s, 'none': %-s, 'list': [",
		     "q\"", none, 2, "xyz", ig_json_bool(true), none);
	ig_json_putf(&w, "%d, %u", -1, 4294967295u);
	ig_json_put_int(&w, NULL, 7);
	ig_json_putf(&w, "%zu, %lld, %llu", (size_t)8, -9LL, 18446744073709551615ULL);
	ig_json_putf(&w, "], 'reals': [%.3f, %.7g, %.0f], 'open':", 0.0625, 0.5, NAN);
	ig_json_open_object(&w, NULL);
	ig_json_putf(&w, "'c': {}, 'd': []");
	ig_json_putf(&w, "'e': ''");
	ig_json_putf(&w, "}}");
	assert_string_equal(b.data,
			    "{\"a b\":\"q\\\"\",\"null\":null,\"cut\":\"xy\",\"raw\":true,"
			    "\"none\":null,\"list\":[-1,4294967295,7,8,-9,18446744073709551615],"
			    "\"reals\":[0.062,0.5,null],\"open\":{\"c\":{},\"d\":[],"
			    "\"e\":\"\"}}");
	ig_strbuf_finish(&b);
}

/* Every text is the same after writing and reading. */
static void test_texts(void **state)
{
	struct ig_strbuf b = { 0 };
	struct ig_json_writer w = { .out = &b };
	char text[128 * 4];
	size_t n = 0;
	json_t *v;

	for (int c = 0; c < 128; c++)
		text[n++] = (char)c;
	ig_json_put_string(&w, NULL, text, n);
	assert_int_equal(ig_json_read(b.data, b.len, &any, &v, NULL), 0);
	assert_int_equal(json_string_length(v), n);
	assert_memory_equal(json_string_value(v), text, n);
	json_decref(v);
	ig_strbuf_finish(&b);
}

/* ---- memory --------------------------------------------------------------------------------- */

#ifdef WRAP_MALLOC

static void test_no_memory(void **state)
{
	static const char text[] =
		"{\"a\":[1,2.5,\"x\\ny\",null,true,{\"b\":{}}],\"c\":[[],[1,2,3,4,"
		"5,6,7,8,9]],\"d\":1,\"e\":2,\"f\":3,\"g\":4,\"h\":5,\"i\":6,"
		"\"j\":1.00000000000000000000000000000000000000000000000000000000000001}";
	struct ig_json_error e;
	json_t *v = NULL, *want = json_loads(text, 0, NULL);
	int n, rc = -1;

	json_set_alloc_funcs(malloc, free); /* the linker's, not those that jansson took */
	for (n = 0; rc; n++) {
		no_memory_at(n);
		rc = ig_json_read(text, sizeof text - 1, NULL, &v, &e);
		if (no_memory_failed() != (rc != 0))
			fail_msg("allocation %d: %d", n, rc);
		if (rc && (rc != -ENOMEM || v || strcmp(e.text, "out of memory")))
			fail_msg("allocation %d: %d, %s", n, rc, e.text);
	}
	assert_true(n > 40 && json_equal(v, want));
	struct ig_strbuf b;
	for (n = 0;; n++) {
		struct ig_json_writer w = { .out = &b };
		b = (struct ig_strbuf){ 0 };
		no_memory_at(n);
		write_all(&w, v);
		bool reached = no_memory_failed(), ok = ig_strbuf_ok(&b);
		ig_strbuf_finish(&b);
		assert_int_equal(ok, !reached);
		if (ok)
			break;
	}
	assert_true(n > 5);
	json_decref(v);
	json_decref(want);
}

#else

static void test_no_memory(void **state) { skip(); /* this linker has no --wrap */ }

#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reading),	  cmocka_unit_test(test_cut),
		cmocka_unit_test(test_places),	  cmocka_unit_test(test_limits),
		cmocka_unit_test(test_writing),	  cmocka_unit_test(test_texts),
		cmocka_unit_test(test_formats),	  cmocka_unit_test(test_nul),
		cmocka_unit_test(test_no_memory),
	};
	return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
