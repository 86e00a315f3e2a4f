/* doctor_machine.c: what `ingot doctor` says of the machine: processor, memory, instruction sets. */
#include "cli/commands/doctor_private.h"

#include <stdio.h>
#include <string.h>
#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

#include "base/machine.h"
#include "cli/term/text.h"

static void processor_name(char *buf, size_t size)
{
	snprintf(buf, size, "unknown processor");
#ifdef __APPLE__
	size_t n = size;
	if (sysctlbyname("machdep.cpu.brand_string", buf, &n, NULL, 0))
		snprintf(buf, size, "unknown processor");
#else
	char line[512];
	FILE *f = fopen("/proc/cpuinfo", "re");
	while (f && fgets(line, sizeof line, f)) {
		char *value = strchr(line, ':');
		if (strncmp(line, "model name", 10) || !value)
			continue;
		value += 1 + (value[1] == ' ');
		value[strcspn(value, "\n")] = 0;
		snprintf(buf, size, "%.200s", value);
		break;
	}
	if (f)
		fclose(f);
#endif
}

static void instruction_sets(char *buf, size_t size)
{
	size_t n = 0;

	buf[0] = 0;
#if defined(__x86_64__)
	__builtin_cpu_init();
#define HAS(name)                                                                                  \
	do {                                                                                       \
		if (__builtin_cpu_supports(name) && n < size)                                      \
			n += (size_t)snprintf(buf + n, size - n, "%s%s", n ? " " : "", name);      \
	} while (0)
	HAS("avx2");
	HAS("fma");
	HAS("avx512f");
	HAS("avx512bw");
	HAS("avx512vl");
	HAS("avx512vnni");
	HAS("avx512bf16");
#undef HAS
#elif defined(__APPLE__) && defined(__aarch64__)
	static const char *const names[][2] = {
		{ "hw.optional.arm.FEAT_DotProd", "dotprod" },
		{ "hw.optional.arm.FEAT_I8MM", "i8mm" },
		{ "hw.optional.arm.FEAT_BF16", "bf16" },
	};
	n = (size_t)snprintf(buf, size, "neon");
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		int on = 0;
		size_t len = sizeof on;
		if (!sysctlbyname(names[i][0], &on, &len, NULL, 0) && on && n < size)
			n += (size_t)snprintf(buf + n, size - n, " %s", names[i][1]);
	}
#elif defined(__aarch64__)
	n = (size_t)snprintf(buf, size, "neon");
#endif
	if (!n)
		snprintf(buf, size, "none beyond the basic ones");
}

void ig_doctor_machine(struct ig_doctor *d)
{
	char name[256], isa[256], memory[32];

	processor_name(name, sizeof name);
	instruction_sets(isa, sizeof isa);
	OK(d, "machine", "%s; %u processors and %s of memory are usable; instruction sets: %s",
	   name, ig_machine_cpus(), ig_text_bytes(memory, sizeof memory, ig_machine_memory()), isa);
}
