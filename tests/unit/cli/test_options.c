/* Arguments: kinds, bounds, order, and error messages. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/nearest.h"
#include "cli/options.h"

static struct {
	bool flag, has_n;
	const char *text;
	int64_t n, span;
	uint64_t seed;
	double x;
} v;

static const struct ig_option opts[] = {
	{ "verbose", 'v', IG_OPT_FLAG, &v.flag, NULL, NULL, "help" },
	{ "model", 'm', IG_OPT_STRING, &v.text, NULL, "NAME", "help" },
	{ "max-tokens", 'n', IG_OPT_INT, &v.n, &v.has_n, "N", "help", 1, 100 },
	{ "seed", 0, IG_OPT_U64, &v.seed, NULL, "S", "help" },
	{ "temperature", 0, IG_OPT_NUMBER, &v.x, NULL, "T", "help", 0, 2 },
	{ "since", 0, IG_OPT_DURATION, &v.span, NULL, "SPAN", "help" },
	{ 0 },
};

static struct ig_error err;
static int n_args;
static char *args[16];

/* Parse words separated by spaces. */
static int parse(const char *line)
{
	static char buf[512];
	int n = 0;

	memset(&v, 0, sizeof v);
	memset(&err, 0, sizeof err);
	n_args = -1;
	assert_true(strlen(line) < sizeof buf);
	strcpy(buf, line);
	for (char *p = strtok(buf, " "); p; p = strtok(NULL, " "))
		args[n++] = p;
	return ig_options_parse(opts, n, args, &n_args, &err);
}

static void assert_refused(const char *line, const char *text)
{
	assert_int_equal(parse(line), -EINVAL);
	if (!strstr(err.text, text))
		fail_msg("%s: got \"%s\", expected \"%s\"", line, err.text, text);
}

static void test_kinds(void **state)
{
	assert_int_equal(parse("-v --model a --max-tokens=7 --seed 18446744073709551615 "
			       "--temperature 0.5 --since 24h"),
			 0);
	assert_int_equal(n_args, 0);
	assert_true(v.flag);
	assert_string_equal(v.text, "a");
	assert_true(v.has_n);
	assert_int_equal(v.n, 7);
	assert_true(v.seed == UINT64_MAX);
	assert_true(v.x == 0.5);
	assert_int_equal(v.span, 86400);
	assert_int_equal(parse("-m b -n 9"), 0);
	assert_string_equal(v.text, "b");
	assert_int_equal(v.n, 9);
	assert_int_equal(parse("--model="), 0);
	assert_string_equal(v.text, "");
	assert_int_equal(parse("x"), 0);
	assert_false(v.has_n);
}

static void test_arguments_among_options(void **state)
{
	assert_int_equal(parse("one -v two --model m three"), 0);
	assert_int_equal(n_args, 3);
	assert_string_equal(args[0], "one");
	assert_string_equal(args[1], "two");
	assert_string_equal(args[2], "three");
	assert_int_equal(parse("- -v"), 0);
	assert_int_equal(n_args, 1);
	assert_string_equal(args[0], "-");
	assert_int_equal(parse("-v -- --model -x"), 0);
	assert_int_equal(n_args, 2);
	assert_string_equal(args[0], "--model");
	assert_null(v.text);
}

static void test_mistakes(void **state)
{
	assert_refused("--modle a", "unknown option --modle; did you mean --model?");
	assert_refused("--temprature=1", "did you mean --temperature?");
	assert_refused("--nothing-like-it", "unknown option --nothing-like-it");
	assert_null(strstr(err.text, "did you mean"));
	assert_refused("-x", "unknown option -x");
	assert_refused("-vv", "unknown option -vv");
	assert_refused("--model", "--model needs a value (NAME)");
	assert_refused("--verbose=1", "--verbose takes no value");
	assert_refused("--max-tokens 0", "not within 1 … 100");
	assert_refused("--max-tokens 101", "not within 1 … 100");
	assert_refused("--max-tokens 99999999999999999999", "not within");
	assert_refused("--max-tokens 1x", "not a whole number");
	assert_refused("--max-tokens=", "not a whole number");
	assert_refused("--seed -1", "not a whole number of 64 bits");
	assert_refused("--seed 18446744073709551616", "not a whole number of 64 bits");
	assert_refused("--temperature 2.1", "not within 0 … 2");
	assert_refused("--temperature nan", "not a number");
	assert_refused("--temperature inf", "not a number");
	assert_refused("--temperature 0.5.5", "not a number");
	assert_refused("--since 24", "not a duration");
}

static void test_durations(void **state)
{
	int64_t s = -1;

	assert_true(ig_parse_duration("90s", &s));
	assert_int_equal(s, 90);
	assert_true(ig_parse_duration("15m", &s));
	assert_int_equal(s, 900);
	assert_true(ig_parse_duration("7d", &s));
	assert_int_equal(s, 604800);
	assert_true(ig_parse_duration("2w", &s));
	assert_int_equal(s, 1209600);
	assert_true(ig_parse_duration("all", &s));
	assert_int_equal(s, 0);
	static const char *const bad[] = { "",	   "h",	       "0h",
					   "-1h",  " 1h",      "1hh",
					   "1.5h", "1000001s", "99999999999999999999s",
					   "1y" };
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		assert_false(ig_parse_duration(bad[i], &s));
}

static void test_nearest(void **state)
{
	static const char *const names[] = { "run", "pull", "doctor", NULL };
	char longest[300];

	assert_string_equal(ig_nearest_name("rnu", names, sizeof *names), "run");
	assert_string_equal(ig_nearest_name("docter", names, sizeof *names), "doctor");
	assert_null(ig_nearest_name("zzzzzz", names, sizeof *names));
	memset(longest, 'a', sizeof longest - 1);
	longest[sizeof longest - 1] = 0;
	assert_null(ig_nearest_name(longest, names, sizeof *names));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kinds),	 cmocka_unit_test(test_arguments_among_options),
		cmocka_unit_test(test_mistakes), cmocka_unit_test(test_durations),
		cmocka_unit_test(test_nearest),
	};

	return cmocka_run_group_tests_name("cli options", tests, NULL, NULL);
}
