/* isa.c: see isa.h. */
#include "runtime/cpu/isa.h"

#include <errno.h>
#include <string.h>

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

static const struct {
	uint32_t isa;
	const char *name;
} names[] = {
	{ IG_ISA_GENERIC, "generic" },
#if defined(__x86_64__)
	{ IG_ISA_AVX2, "avx2" },
	{ IG_ISA_AVX512, "avx512" },
	{ IG_ISA_AVX512_BF16, "avx512_bf16" },
#elif defined(__aarch64__)
	{ IG_ISA_NEON, "neon" },
	{ IG_ISA_NEON_DOTPROD, "neon_dotprod" },
	{ IG_ISA_NEON_I8MM, "neon_i8mm" },
#endif
};
#define N_NAMES (sizeof names / sizeof *names)

#if defined(__aarch64__)
/* Whether the processor has sdot and smmla, as the system reports it. */
static void neon_features(bool *dotprod, bool *i8mm)
{
	*dotprod = *i8mm = false;
#if defined(__linux__)
	/* The kernel's bits: ASIMDDP of AT_HWCAP, I8MM of AT_HWCAP2. */
	*dotprod = getauxval(AT_HWCAP) >> 20 & 1;
	*i8mm = getauxval(AT_HWCAP2) >> 13 & 1;
#elif defined(__APPLE__)
	int has = 0;
	size_t size = sizeof has;
	*dotprod = !sysctlbyname("hw.optional.arm.FEAT_DotProd", &has, &size, NULL, 0) && has;
	has = 0;
	size = sizeof has;
	*i8mm = !sysctlbyname("hw.optional.arm.FEAT_I8MM", &has, &size, NULL, 0) && has;
#endif
}
#endif

uint32_t ig_isa_best(void)
{
#if defined(__x86_64__)
	/* The compiler's test considers the processor and the registers that the system saves. */
	__builtin_cpu_init();
	if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
		return IG_ISA_GENERIC;
	if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
	    !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq") ||
	    !__builtin_cpu_supports("avx512vnni"))
		return IG_ISA_AVX2;
	return __builtin_cpu_supports("avx512bf16") ? IG_ISA_AVX512_BF16 : IG_ISA_AVX512;
#elif defined(__aarch64__)
	bool dotprod, i8mm;

	neon_features(&dotprod, &i8mm);
	return dotprod && i8mm ? IG_ISA_NEON_I8MM : dotprod ? IG_ISA_NEON_DOTPROD : IG_ISA_NEON;
#else
	return IG_ISA_GENERIC;
#endif
}

const char *ig_isa_name(uint32_t isa)
{
	for (size_t i = 0; i < N_NAMES; i++)
		if (names[i].isa == isa)
			return names[i].name;
	return "unknown";
}

bool ig_isa_includes(uint32_t chosen, uint32_t kernel)
{
	/* Each level of a family includes those below it; generic is in all. */
	return kernel == IG_ISA_GENERIC || kernel == chosen ||
	       (kernel < chosen && (kernel >= IG_ISA_NEON || chosen < IG_ISA_NEON));
}

int ig_isa_parse(const char *name, uint32_t *isa, struct ig_error *err)
{
	uint32_t best = ig_isa_best();

	if (!strcmp(name, "auto")) {
		*isa = best;
		return 0;
	}
	for (size_t i = 0; i < N_NAMES; i++) {
		if (strcmp(names[i].name, name))
			continue;
		if (!ig_isa_includes(best, names[i].isa))
			return ig_fail(err, -ENOTSUP,
				       "instruction set \"%s\" is not here; the best is \"%s\"",
				       name, ig_isa_name(best));
		*isa = names[i].isa;
		return 0;
	}
	return ig_fail(err, -ENOTSUP, "instruction set \"%s\" is unknown on this machine", name);
}
