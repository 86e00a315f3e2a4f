/* test_doctor_memory.c: what `ingot doctor` says of the memory budget. */
#include "cli/commands/doctor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define GIB ((uint64_t)1 << 30)

/* Whether the finding is of this kind and has these words; `without` is not in it. */
static void check(const struct ig_memory_facts *m, enum ig_finding_kind kind, const char *words,
		  const char *without)
{
	struct ig_findings f = { 0 };

	ig_findings_memory(&f, m);
	assert_false(f.failed);
	assert_int_equal(f.n, 1);
	assert_string_equal(f.list[0].what, "memory budget");
	assert_int_equal(f.list[0].kind, kind);
	assert_int_equal(f.list[0].todo != NULL, kind != IG_FINDING_OK);
	if (!strstr(f.list[0].text, words) || (without && strstr(f.list[0].text, without)))
		fail_msg("%s", f.list[0].text);
	ig_findings_finish(&f);
}

static void test_host(void **state)
{
	struct ig_memory_facts m = { .machine = 16 * GIB, .wired_limit_mb = -1 };

	check(&m, IG_FINDING_OK, "12.0 GiB by default, three quarters", "iogpu");
	m.budget = 15 * GIB;
	check(&m, IG_FINDING_OK, "15.0 GiB", "default");
}

static void test_own_device(void **state)
{
	struct ig_memory_facts m = { .machine = 16 * GIB,
				     .device = 80 * GIB,
				     .wired_limit_mb = -1 };

	check(&m, IG_FINDING_OK, "80.0 GiB by default, the device's memory", NULL);
}

static void test_mac(void **state)
{
	struct ig_memory_facts m = { .machine = 32 * GIB, .device = 16 * GIB, .unified = true };

	check(&m, IG_FINDING_OK,
	      "15.0 GiB by default: the GPU's limit is 16.0 GiB, which iogpu.wired_limit_mb changes",
	      " is 0");
	/* lowered by hand */
	m.wired_limit_mb = 8192;
	m.device = 8 * GIB;
	check(&m, IG_FINDING_NOTE, "7.5 GiB by default: iogpu.wired_limit_mb is 8192", NULL);
	/* raised so far that the machine's memory is the limit */
	m.wired_limit_mb = 32768;
	m.device = 32 * GIB;
	check(&m, IG_FINDING_OK,
	      "30.0 GiB by default: the machine has 32.0 GiB, of which the system keeps its share; the "
	      "GPU's limit is 32.0 GiB (iogpu.wired_limit_mb is 32768)",
	      NULL);
}

static void test_mac_with_a_budget(void **state)
{
	struct ig_memory_facts m = {
		.budget = 15 * GIB, .machine = 32 * GIB, .device = 16 * GIB, .unified = true
	};

	check(&m, IG_FINDING_OK, "15.0 GiB; the GPU's limit is 16.0 GiB, the machine has 32.0 GiB",
	      "iogpu");
	m.budget++;
	check(&m, IG_FINDING_NOTE, "15.0 GiB leave the system its share", "iogpu");
	m.wired_limit_mb = 16384;
	check(&m, IG_FINDING_NOTE, "16.0 GiB (iogpu.wired_limit_mb is 16384)", NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_host),
		cmocka_unit_test(test_own_device),
		cmocka_unit_test(test_mac),
		cmocka_unit_test(test_mac_with_a_budget),
	};

	return cmocka_run_group_tests_name("doctor's memory", tests, NULL, NULL);
}
