/* test_contract.c: what the memory contract has left where the system counts a process's memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/engine/contract_private.h"

#include <string.h>

static uint64_t counted;

static uint64_t footprint(void) { return counted; }

static void test_what_the_system_counts(void **state)
{
	struct ig_contract c = {
		.budget = 1000, .weights = 300, .scratch = 50, .logits = 10, .arena = 400
	};

	assert_int_equal(ig_contract_free(&c), 240);
	c.footprint = footprint;
	counted = 0; /* the system does not count */
	assert_int_equal(ig_contract_free(&c), 240);
	counted = 500; /* pages of the arena that were never used, a mapped model's */
	assert_int_equal(ig_contract_free(&c), 240);
	counted = 900;
	assert_int_equal(ig_contract_free(&c), 100);
	counted = 1001;
	assert_int_equal(ig_contract_free(&c), 0);
}

/* A model that would fit by the sum is refused, with what is left. */
static void test_the_refusal(void **state)
{
	const uint64_t mib = 1 << 20;
	struct ig_contract c = { .budget = 100 * mib, .weights = 20 * mib, .footprint = footprint };
	const struct ig_need need = { .weights = 30 * mib };
	struct ig_error err;

	counted = 90 * mib;
	assert_true(ig_contract_refuse(&c, "w", &need, 0, &err) < 0);
	assert_non_null(strstr(err.text, "of memory.budget, 100.00 MiB, 10.00 are free"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_the_system_counts),
		cmocka_unit_test(test_the_refusal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
