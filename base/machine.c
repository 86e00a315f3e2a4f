/*
 * machine.c: processors and memory that this process may use.  A container sees all of its
 * machine, but more threads than its share of processors are slower, and a process that exceeds
 * its share of memory is killed.
 */
#include "base/machine.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __linux__
#include <sched.h>
#elif defined(__APPLE__)
#include <mach/mach.h>
#include <sys/sysctl.h>
#endif

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
/* Of unified memory, for the system and other programs. */
#define SYSTEM_BYTES (2 * GIB)
/* Peers that planned with all of the recommended working set failed in prefill. */
#define RESERVE_SHARE 16
#define RESERVE_LEAST (256 * MIB)
#define RESERVE_MOST (2 * GIB)

/* Read up to two numbers of a group's file; returns their count.  "max" is not a number. */
static int numbers_of(const char *folder, const char *name, unsigned long long out[2])
{
	char path[PATH_MAX + 32], word[2][24] = { "", "" };
	FILE *f;
	int n;

	snprintf(path, sizeof path, "%s/%s", folder, name);
	f = fopen(path, "r");
	if (!f)
		return 0;
	n = fscanf(f, "%23s %23s", word[0], word[1]);
	fclose(f);
	for (int i = 0; i < n; i++) {
		size_t digits = strspn(word[i], "0123456789");

		if (!digits || digits > 19 || word[i][digits])
			return i;
		out[i] = strtoull(word[i], NULL, 10);
	}
	return n < 0 ? 0 : n;
}

static uint64_t cpus_of(const char *folder)
{
	unsigned long long v[2]; /* microseconds of each period */

	if (numbers_of(folder, "cpu.max", v) != 2 || !v[0] || !v[1])
		return 0;
	return v[0] < v[1] ? 1 : v[0] / v[1];
}

static uint64_t memory_of(const char *folder)
{
	unsigned long long most[2], high[2];
	bool has_most = numbers_of(folder, "memory.max", most) > 0;
	bool has_high = numbers_of(folder, "memory.high", high) > 0;

	if (has_most && has_high)
		return most[0] < high[0] ? most[0] : high[0];
	return has_most ? most[0] : has_high ? high[0] : 0;
}

/* The least limit of a group and all groups above it. */
static uint64_t least_of(const char *groups, const char *mount, uint64_t (*of)(const char *folder))
{
	char line[PATH_MAX], folder[PATH_MAX] = "";
	size_t base = strlen(mount);
	FILE *f = fopen(groups, "r");
	uint64_t least = 0;

	if (!f)
		return 0;
	while (!folder[0] && fgets(line, sizeof line, f)) {
		line[strcspn(line, "\n")] = 0;
		/* the line of version 2; the others are of version 1 */
		if (!strncmp(line, "0::/", 4) && base + strlen(line) < sizeof folder)
			snprintf(folder, sizeof folder, "%s%s", mount, line + 3);
	}
	fclose(f);
	while (folder[0] && strlen(folder) >= base) {
		uint64_t n = of(folder);
		char *end = strrchr(folder, '/');

		if (n && (!least || n < least))
			least = n;
		if (!end)
			break;
		*end = 0;
	}
	return least;
}

unsigned ig_group_cpus(const char *groups, const char *mount)
{
	uint64_t n = least_of(groups, mount, cpus_of);

	return n > UINT_MAX ? UINT_MAX : (unsigned)n;
}

uint64_t ig_group_memory(const char *groups, const char *mount)
{
	return least_of(groups, mount, memory_of);
}

unsigned ig_machine_cpus(void)
{
	long n = 0;
	unsigned quota = 0;

#ifdef __linux__
	cpu_set_t set;

	if (!sched_getaffinity(0, sizeof set, &set))
		n = CPU_COUNT(&set);
	quota = ig_group_cpus("/proc/self/cgroup", "/sys/fs/cgroup");
#endif
	if (n < 1)
		n = sysconf(_SC_NPROCESSORS_ONLN);
	if (quota && n > (long)quota)
		n = (long)quota;
	return n < 1 ? 1 : (unsigned)n;
}

uint64_t ig_machine_memory(void)
{
#ifdef __APPLE__
	uint64_t bytes = 0;
	size_t len = sizeof bytes;

	return sysctlbyname("hw.memsize", &bytes, &len, NULL, 0) ? 0 : bytes;
#else
	long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
	uint64_t bytes = pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
	uint64_t limit = ig_group_memory("/proc/self/cgroup", "/sys/fs/cgroup");

	return limit && (!bytes || limit < bytes) ? limit : bytes;
#endif
}

uint64_t ig_unified_reserve(uint64_t device)
{
	uint64_t n = device / RESERVE_SHARE;

	n = n < RESERVE_LEAST ? RESERVE_LEAST : n > RESERVE_MOST ? RESERVE_MOST : n;
	return n < device / 2 ? n : device / 2;
}

uint64_t ig_default_budget(uint64_t machine, uint64_t device, bool unified)
{
	uint64_t left = machine > 2 * SYSTEM_BYTES ? machine - SYSTEM_BYTES : machine / 2;

	if (!device)
		return machine / 4 * 3;
	if (!unified)
		return device;
	device -= ig_unified_reserve(device);
	return machine && left < device ? left : device;
}

int64_t ig_gpu_wired_limit_mb(void)
{
#ifdef __APPLE__
	int32_t mb = 0;
	size_t len = sizeof mb;

	return sysctlbyname("iogpu.wired_limit_mb", &mb, &len, NULL, 0) || len != sizeof mb ? -1 :
											      mb;
#else
	return -1;
#endif
}

uint64_t ig_process_footprint(void)
{
#ifdef __APPLE__
	task_vm_info_data_t info;
	mach_msg_type_number_t n = TASK_VM_INFO_COUNT;

	if (task_info(mach_task_self(), TASK_VM_INFO, (task_info_t)&info, &n) != KERN_SUCCESS)
		return 0;
	return info.phys_footprint;
#else
	return 0;
#endif
}

uint64_t ig_process_memory(void)
{
#ifdef __APPLE__
	return ig_process_footprint();
#else
	unsigned long long size, resident;
	long page = sysconf(_SC_PAGESIZE);
	uint64_t bytes = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	if (!f)
		return 0;
	if (fscanf(f, "%llu %llu", &size, &resident) == 2 && page > 0)
		bytes = resident * (uint64_t)page;
	fclose(f);
	return bytes;
#endif
}
