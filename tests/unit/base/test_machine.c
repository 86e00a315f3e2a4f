/* test_machine.c: the processors and the memory that a process may use. */
#include "base/machine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <sched.h>
#endif

#include <cmocka.h>

static char folder[] = "/tmp/ingot-machine-XXXXXX";

static void put(const char *name, const char *text)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", folder, name);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static unsigned quota(void)
{
	char groups[256];

	snprintf(groups, sizeof groups, "%s/groups", folder);
	return ig_group_cpus(groups, folder);
}

static uint64_t memory(void)
{
	char groups[256];

	snprintf(groups, sizeof groups, "%s/groups", folder);
	return ig_group_memory(groups, folder);
}

static int setup(void **state)
{
	char path[256];

	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof path, "%s/a", folder);
	mkdir(path, 0755);
	strcat(path, "/b");
	mkdir(path, 0755);
	return 0;
}

static int teardown(void **state)
{
	char command[300];

	snprintf(command, sizeof command, "rm -rf '%s'", folder);
	return system(command);
}

static void test_quota(void **state)
{
	assert_int_equal(quota(), 0); /* no such file */
	put("groups", "4:cpu:/a\n0::/a/b\n");
	assert_int_equal(quota(), 0); /* no limits at all */
	put("a/b/cpu.max", "max 100000\n");
	assert_int_equal(quota(), 0);
	put("a/b/cpu.max", "350000 100000\n");
	assert_int_equal(quota(), 3); /* rounded down */
	put("a/b/cpu.max", "200000 100000\n");
	assert_int_equal(quota(), 2);
	put("a/cpu.max", "50000 100000\n");
	assert_int_equal(quota(), 1); /* the group above has less, and one there is always */
	put("a/cpu.max", "900000 100000\n");
	assert_int_equal(quota(), 2);
	put("cpu.max", "100000 100000\n");
	assert_int_equal(quota(), 1); /* and the topmost, which is a container's own */
	put("groups", "0::/\n");
	assert_int_equal(quota(), 1);
	put("groups", "4:cpu:/a\n");
	assert_int_equal(quota(), 0);
}

static void test_what_is_no_quota(void **state)
{
	static const char *const bad[] = { "",	       "\n", "0 100000", "5",
					   "100000 0", "-1", "zeppelin", "18446744073709551615 1" };

	put("cpu.max", "max 100000");
	put("groups", "0::/a\n");
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		put("a/cpu.max", bad[i]);
		assert_int_equal(quota(), 0);
	}
}

static void test_memory(void **state)
{
	put("groups", "0::/a/b\n");
	assert_true(memory() == 0);
	put("a/memory.max", "max\n");
	assert_true(memory() == 0);
	put("a/memory.max", "8589934592\n");
	assert_true(memory() == 8589934592u);
	put("a/b/memory.high", "4294967296\n"); /* from there on it is slowed down */
	assert_true(memory() == 4294967296u);
	put("a/b/memory.max", "1073741824\n");
	assert_true(memory() == 1073741824u);
	put("memory.max", "12345678901234567890123\n"); /* no number of bytes */
	put("a/b/memory.max", "-5\n");
	assert_true(memory() == 4294967296u);
	assert_true(ig_machine_memory() > 0);
}

/* What is written to counts; what is only reserved does not. */
static void test_own_memory(void **state)
{
	size_t n = (size_t)64 << 20;
	uint64_t before = ig_process_memory();
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);

	assert_true(before > 0 && p != MAP_FAILED);
	assert_true(ig_process_memory() < before + n / 2);
	memset(p, 1, n);
	assert_true(ig_process_memory() >= before + n / 2);
	munmap(p, n);
	assert_true(ig_process_memory() < before + n / 2);
}

static void test_default_budget(void **state)
{
	const uint64_t mib = 1 << 20, gib = 1 << 30;
	const struct {
		uint64_t machine, device;
		bool unified;
		uint64_t budget;
	} cases[] = {
		{ 16 * gib, 0, false, 12 * gib },
		{ 1 * gib, 0, false, 768 * mib },
		{ 16 * gib, 80 * gib, false, 80 * gib }, /* memory of its own */
		/* Macs: what Metal recommends less 1/16, at least 256 MiB, at most 2 GiB */
		{ 16 * gib, 10 * gib, true, 10 * gib - 640 * mib },
		{ 8 * gib, 2 * gib, true, 2 * gib - 256 * mib },
		{ 128 * gib, 96 * gib, true, 94 * gib },
		{ 8 * gib, 300 * mib, true, 150 * mib }, /* but no more than half */
		/* and 2 GiB of the machine, where iogpu.wired_limit_mb leaves less */
		{ 16 * gib, 16 * gib, true, 14 * gib },
		{ 3 * gib, 3 * gib, true, 3 * gib / 2 },
		{ 0, 10 * gib, true, 10 * gib - 640 * mib },
		{ 0, 0, false, 0 },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		uint64_t n = ig_default_budget(cases[i].machine, cases[i].device, cases[i].unified);
		if (n != cases[i].budget)
			fail_msg("case %zu: %llu", i, (unsigned long long)n);
	}
#ifdef __linux__
	assert_true(ig_gpu_wired_limit_mb() < 0);
#endif
}

static void test_affinity(void **state)
{
	unsigned n = ig_machine_cpus();

	assert_true(n >= 1);
#ifdef __linux__
	cpu_set_t all, one;

	assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
	assert_true(n <= (unsigned)CPU_COUNT(&all));
	CPU_ZERO(&one);
	for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
		if (CPU_ISSET(i, &all))
			CPU_SET(i, &one);
	assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
	assert_int_equal(ig_machine_cpus(), 1);
	assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
	assert_int_equal(ig_machine_cpus(), n);
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_quota),	       cmocka_unit_test(test_what_is_no_quota),
		cmocka_unit_test(test_memory),	       cmocka_unit_test(test_own_memory),
		cmocka_unit_test(test_default_budget), cmocka_unit_test(test_affinity),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
