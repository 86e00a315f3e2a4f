/* test_limits.c: concurrency, requests and tokens a minute, on a clock of the test's. */
#include "daemon/protocol/core/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define S ((int64_t)1000000000)
#define T0 (1000 * S)

static struct ig_principal a_key(const char *id, uint32_t concurrent, uint32_t requests,
				 uint32_t tokens)
{
	struct ig_principal p = { .limits = { concurrent, requests, tokens } };

	snprintf(p.key, sizeof p.key, "%s", id);
	for (; *id; id++)
		p.identity = p.identity * 31 + (unsigned char)*id;
	return p;
}

static struct ig_limits *limits(uint32_t concurrent, uint32_t requests, uint32_t tokens)
{
	struct ig_limits *l =
		ig_limits_create(&(struct ig_key_limits){ concurrent, requests, tokens });

	assert_non_null(l);
	return l;
}

static bool admit(struct ig_limits *l, const struct ig_principal *who, int64_t n, int64_t at)
{
	struct ig_api_error e = { 0 };
	int rc = ig_limits_admit(l, who, n, at, &e);

	assert_int_equal(rc, e.status ? -1 : 0);
	if (rc)
		assert_int_equal(e.status, 429);
	return !rc;
}

/* retry_after_s is right: a moment before it is refused, then admitted. */
static void refused(struct ig_limits *l, const struct ig_principal *who, int64_t n, int64_t at,
		    const char *message, uint32_t retry_after_s)
{
	struct ig_api_error e = { 0 };

	assert_int_equal(ig_limits_admit(l, who, n, at, &e), -1);
	assert_int_equal(e.status, 429);
	assert_string_equal(e.code, "rate_limit_exceeded");
	assert_string_equal(e.type, "rate_limit_error");
	assert_string_equal(e.message, message);
	assert_int_equal(e.retry_after_s, retry_after_s);
}

static void test_concurrency(void **state)
{
	struct ig_limits *l = limits(2, 0, 0);
	struct ig_principal a = a_key("a", 0, 0, 0), b = a_key("b", 0, 0, 0),
			    none = a_key("", 0, 0, 0), own = a_key("own", 1, 0, 0),
			    free_ = a_key("free", IG_LIMIT_NONE, 0, 0);

	assert_true(admit(l, &a, 0, T0) && admit(l, &a, 0, T0));
	refused(l, &a, 0, T0,
		"Rate limit reached for the key a: 2 requests at once. Please try again in "
		"1.0s.",
		1);
	assert_true(admit(l, &b, 0, T0)); /* others are not touched */
	struct ig_principal again = a;	  /* a later key with the id of one that was removed */
	again.identity++;
	assert_true(admit(l, &again, 0, T0));
	ig_limits_release(l, &a);
	assert_true(admit(l, &a, 0, T0));
	assert_false(admit(l, &a, 0, T0 + 3600 * S)); /* time alone changes nothing */
	/* a key's own limit takes precedence, in either direction */
	assert_true(admit(l, &own, 0, T0));
	assert_false(admit(l, &own, 0, T0));
	for (int i = 0; i < 100; i++)
		assert_true(admit(l, &free_, 0, T0));
	/* without a key all count together */
	assert_true(admit(l, &none, 0, T0) && admit(l, &none, 0, T0));
	refused(l, &none, 0, T0,
		"Rate limit reached for requests without a key: 2 requests at once. "
		"Please try again in 1.0s.",
		1);
	/* a release too many is no place more */
	ig_limits_release(l, &b);
	ig_limits_release(l, &b);
	ig_limits_release(l, &(struct ig_principal){ .key = "unknown", .identity = 7 });
	assert_true(admit(l, &b, 0, T0) && admit(l, &b, 0, T0));
	assert_false(admit(l, &b, 0, T0));
	ig_limits_destroy(l);
	ig_limits_destroy(NULL);
}

static void test_requests(void **state)
{
	struct ig_limits *l = limits(0, 40, 0); /* one each 1.5 s */
	struct ig_principal a = a_key("a", 0, 0, 0);

	for (int i = 0; i < 40; i++)
		assert_true(admit(l, &a, 0, T0));
	refused(l, &a, 0, T0,
		"Rate limit reached for the key a: 40 requests a minute. Please try again in "
		"1.6s.",
		2);
	assert_false(admit(l, &a, 0, T0 + 14 * S / 10)); /* what was refused has cost nothing */
	assert_true(admit(l, &a, 0, T0 + 15 * S / 10));
	assert_false(admit(l, &a, 0, T0 + 15 * S / 10));
	/* a clock that is set back adds nothing */
	assert_false(admit(l, &a, 0, T0 - 100 * S));
	assert_false(admit(l, &a, 0, T0 + 16 * S / 10));
	/* a bucket never holds more than a minute's */
	for (int i = 0; i < 40; i++)
		assert_true(admit(l, &a, 0, T0 + 100000 * S));
	assert_false(admit(l, &a, 0, T0 + 100000 * S));
	/* a new limit holds at once: one request a minute, from an empty bucket */
	ig_limits_set_defaults(l, &(struct ig_key_limits){ 0, 1, 0 });
	assert_false(admit(l, &a, 0, T0 + 100059 * S));
	assert_true(admit(l, &a, 0, T0 + 100060 * S));
	ig_limits_set_defaults(l, NULL);
	assert_true(admit(l, &a, 0, T0 + 100060 * S));
	ig_limits_destroy(l);
}

static void test_tokens(void **state)
{
	struct ig_limits *l = limits(0, 0, 6000); /* 100 a second */
	struct ig_principal a = a_key("a", 0, 0, 0);

	assert_true(admit(l, &a, 5000, T0));
	refused(l, &a, 1250, T0,
		"Rate limit reached for the key a: 6000 tokens a minute. Please try again "
		"in 2.6s.",
		3);
	assert_true(admit(l, &a, 1000, T0));
	/* it took more than its prompt: the next waits for that too */
	ig_limits_charge(l, &a, 500, T0);
	assert_false(admit(l, &a, 0, T0 + 4 * S));
	assert_true(admit(l, &a, 0, T0 + 5 * S));
	assert_false(admit(l, &a, 100, T0 + 5 * S));
	/* it took less: that is given back, but never beyond what a minute holds */
	ig_limits_charge(l, &a, -100, T0 + 5 * S);
	assert_true(admit(l, &a, 100, T0 + 5 * S));
	ig_limits_charge(l, &a, -1000000, T0 + 5 * S);
	assert_false(admit(l, &a, 6000, T0 + 5 * S) && admit(l, &a, 1, T0 + 5 * S));
	ig_limits_destroy(l);
}

/* Larger than a minute's: admitted when the bucket is full, and charged in full. */
static void test_larger_than_the_limit(void **state)
{
	struct ig_limits *l = limits(0, 0, 600); /* 10 a second */
	struct ig_principal a = a_key("a", 0, 0, 0);

	assert_true(admit(l, &a, 1200, T0));
	assert_false(admit(l, &a, 1, T0 + 60 * S));
	assert_true(admit(l, &a, 1, T0 + 61 * S));
	assert_false(admit(l, &a, 601, T0 + 119 * S));
	assert_true(admit(l, &a, 601, T0 + 121 * S));
	/* numbers without measure do no harm */
	assert_true(admit(l, &a, INT64_MAX, T0 + 10000 * S));
	ig_limits_charge(l, &a, INT64_MAX, T0 + 10000 * S);
	refused(l, &a, 1, T0 + 10000 * S,
		"Rate limit reached for the key a: 600 tokens a minute. Please "
		"try again in 86400.1s.",
		86401);
	ig_limits_charge(l, &a, INT64_MIN, T0 + 10000 * S);
	ig_limits_charge(l, &a, INT64_MIN, T0 + 10000 * S);
	assert_true(admit(l, &a, 600, T0 + 10000 * S));
	ig_limits_destroy(l);
}

/* A request that one limit refuses costs nothing of the others. */
static void test_together(void **state)
{
	struct ig_limits *l = limits(1, 2, 100);
	struct ig_principal a = a_key("a", 0, 0, 0);

	assert_true(admit(l, &a, 10, T0));
	assert_false(admit(l, &a, 10, T0));
	ig_limits_release(l, &a);
	assert_false(admit(l, &a, 100, T0)); /* tokens */
	assert_true(admit(l, &a, 90, T0));
	ig_limits_release(l, &a);
	assert_false(admit(l, &a, 0, T0)); /* requests */
	ig_limits_destroy(l);
}

/* Keys that come and go leave nothing behind, and none that counts is forgotten. */
static void test_many_keys(void **state)
{
	struct ig_limits *l = limits(0, 1, 0);
	struct ig_principal busy = a_key("busy", 0, 0, 0), debtor = a_key("debtor", 0, 0, 60);

	assert_true(admit(l, &busy, 0, T0));
	assert_true(admit(l, &debtor, 6000, T0));
	ig_limits_release(l, &debtor);
	for (int i = 0; i < 5000; i++) {
		char id[16];
		snprintf(id, sizeof id, "k%d", i);
		struct ig_principal p = a_key(id, 0, 0, 0);
		assert_true(admit(l, &p, 0, T0 + i * S));
		assert_false(admit(l, &p, 0, T0 + i * S));
		ig_limits_release(l, &p);
	}
	/* 100 minutes of debt */
	assert_false(admit(l, &debtor, 1, T0 + 5900 * S));
	assert_true(admit(l, &debtor, 1, T0 + 6100 * S));
	struct ig_principal limited = busy;
	limited.limits.max_concurrent = 1;
	assert_false(admit(l, &limited, 0, T0 + 6000 * S)); /* it still runs */
	ig_limits_destroy(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_concurrency), cmocka_unit_test(test_requests),
		cmocka_unit_test(test_tokens),	    cmocka_unit_test(test_larger_than_the_limit),
		cmocka_unit_test(test_together),    cmocka_unit_test(test_many_keys),
	};
	return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
