/*
 * test_jinja_memory.c: each allocation of a compilation and a rendering fails once; what
 * comes of it is an error, never a crash or (under AddressSanitizer) a leak.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/jinja/jinja.h"
#include "tests/unit/no_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char template[] =
	"{% macro m(x, y=1) %}<{{ x | tojson }}{{ y }}>{% endmacro %}"
	"{% set ns = namespace(s='') %}{% for a in messages %}{% set t = a.content | upper %}"
	"{% set ns.s = ns.s ~ t.replace('L', '--') %}{{ m(a) }}{{ a.content.split('l') }}"
	"{{ a.items() | list | length }}{% endfor %}{{ ns.s[::-1] }}{{ messages | "
	"map(attribute='role') | "
	"unique | sort | join(',') }}";

static int once(json_t *messages)
{
	const struct ig_jinja_var var = { "messages", messages, false };
	const struct ig_jinja_input in = { .vars = &var, .n_vars = 1 };
	struct ig_jinja_output out;
	struct ig_error err = { 0 };
	struct ig_jinja *j;
	int rc = ig_jinja_compile(template, sizeof template - 1, NULL, &j, &err);

	if (!rc) {
		rc = ig_jinja_render(j, &in, NULL, &out, &err);
		if (!rc)
			ig_jinja_output_finish(&out);
		ig_jinja_destroy(j);
	}
	if (rc) {
		assert_int_equal(err.code, rc);
		assert_non_null(strstr(err.text, "out of memory"));
	}
	return rc;
}

static void each_fails(void **state)
{
	json_t *messages = json_array();
	int n_failed = 0;

	for (int i = 0; i < 500; i++)
		json_array_append_new(messages,
				      json_pack("{s:s, s:s}", "role", i % 2 ? "user" : "tool",
						"content", "hello all"));
	for (;; n_failed++) {
		int rc;
		no_memory_at(n_failed);
		rc = once(messages);
		if (!no_memory_failed()) {
			assert_int_equal(rc, 0);
			break;
		}
		assert_int_equal(rc, -ENOMEM);
	}
	assert_true(n_failed > 8);
	json_decref(messages);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(each_fails) };

	return cmocka_run_group_tests_name("model/jinja without memory", tests, NULL, NULL);
}
