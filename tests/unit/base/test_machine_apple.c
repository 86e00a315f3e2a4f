/*
 * test_machine_apple.c: what base/machine.c asks macOS: the footprint, not what is resident; the machine's
 * memory; the limit of wired memory.  machine.c is compiled as for a Mac, with the headers in apple/, and
 * this file answers.
 */
#include "base/machine.h"

#include <mach/mach.h>
#include <sys/sysctl.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define GIB ((uint64_t)1 << 30)

static struct {
	kern_return_t task_rc;
	int sysctl_rc;
	uint64_t memory;
	int32_t wired_mb;
	size_t wired_len; /* that the system's value has */
} answers;

task_t mach_task_self(void) { return 7; }

kern_return_t task_info(task_t task, unsigned flavor, task_info_t out, mach_msg_type_number_t *n)
{
	const task_vm_info_data_t info = { .virtual_size = 400 * GIB,
					   .resident_size = 30 * GIB,
					   .phys_footprint = 3 * GIB };

	assert_int_equal(task, 7);
	assert_int_equal(flavor, TASK_VM_INFO);
	assert_int_equal(*n, TASK_VM_INFO_COUNT);
	memcpy(out, &info, sizeof info);
	return answers.task_rc;
}

int sysctlbyname(const char *name, void *old, size_t *old_len, void *new, size_t new_len)
{
	assert_true(!new && !new_len);
	if (!strcmp(name, "hw.memsize")) {
		assert_int_equal(*old_len, sizeof answers.memory);
		memcpy(old, &answers.memory, sizeof answers.memory);
		return answers.sysctl_rc;
	}
	assert_string_equal(name, "iogpu.wired_limit_mb");
	assert_int_equal(*old_len, sizeof answers.wired_mb);
	memcpy(old, &answers.wired_mb, sizeof answers.wired_mb);
	*old_len = answers.wired_len;
	return answers.sysctl_rc;
}

/* Weights that are mapped from a file and clean are resident, but the system does not count them. */
static void test_the_footprint_counts(void **state)
{
	answers.task_rc = KERN_SUCCESS;
	assert_true(ig_process_memory() == 3 * GIB);
	assert_true(ig_process_footprint() == 3 * GIB);
	answers.task_rc = 5;
	assert_int_equal(ig_process_memory(), 0);
	assert_int_equal(ig_process_footprint(), 0);
}

static void test_memory(void **state)
{
	answers.sysctl_rc = 0;
	answers.memory = 48 * GIB;
	assert_true(ig_machine_memory() == 48 * GIB);
	answers.sysctl_rc = -1;
	assert_int_equal(ig_machine_memory(), 0);
}

static void test_wired_limit(void **state)
{
	answers.sysctl_rc = 0;
	answers.wired_mb = 40000;
	answers.wired_len = sizeof answers.wired_mb;
	assert_int_equal(ig_gpu_wired_limit_mb(), 40000);
	answers.wired_mb = 0;
	assert_int_equal(ig_gpu_wired_limit_mb(), 0);
	answers.wired_len = 8; /* of another type than is known */
	assert_true(ig_gpu_wired_limit_mb() < 0);
	answers.wired_len = sizeof answers.wired_mb;
	answers.sysctl_rc = -1;
	assert_true(ig_gpu_wired_limit_mb() < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_footprint_counts),
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_wired_limit),
	};

	return cmocka_run_group_tests_name("machine, as on a Mac", tests, NULL, NULL);
}
