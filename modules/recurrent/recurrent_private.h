/* recurrent_private.h: shared by the files of this module: its ops, and the kernels that are compiled per
 * instruction set from one text.  recurrent.so exports only ingot_module. */
#pragma once

#include <ingot/gpu.h>
#include <ingot/module.h>
#include <ingot/op.h>
#include <ingot/params.h>

extern const struct ig_op ig_op_conv1d;
extern const struct ig_op ig_op_gated_delta;
extern const struct ig_op ig_op_norm_gated;
extern const struct ig_op ig_op_selective_scan;
extern const struct ig_gpu_op ig_gpu_conv1d, ig_gpu_gated_delta, ig_gpu_norm_gated,
	ig_gpu_selective_scan; /* gpu.c */

#define RECURRENT_FN(name)                                                                         \
	void name(const struct ig_op_launch *launch, int64_t first, int64_t last, void *scratch)
#define RECURRENT_FNS(isa)                                                                         \
	RECURRENT_FN(ig_conv1d_##isa);                                                             \
	RECURRENT_FN(ig_gated_delta_##isa);                                                        \
	RECURRENT_FN(ig_norm_gated_##isa);                                                         \
	RECURRENT_FN(ig_selective_scan_##isa);

/* The kernels of an op: GENERIC, and NAME_ISA for each other instruction set.  units: IG_UNITS_… */
#if defined(__x86_64__)
#define RECURRENT_KERNELS(units, n_units, generic, name)                                           \
	IG_CPU_KERNEL(IG_ISA_GENERIC, units, n_units, NULL, generic),                              \
		IG_CPU_KERNEL(IG_ISA_AVX2, units, n_units, NULL, name##_avx2),                     \
		IG_CPU_KERNEL(IG_ISA_AVX512, units, n_units, NULL, name##_avx512),
RECURRENT_FNS(avx2)
RECURRENT_FNS(avx512)
#elif defined(__aarch64__)
#define RECURRENT_KERNELS(units, n_units, generic, name)                                           \
	IG_CPU_KERNEL(IG_ISA_GENERIC, units, n_units, NULL, generic),                              \
		IG_CPU_KERNEL(IG_ISA_NEON, units, n_units, NULL, name##_neon),
RECURRENT_FNS(neon)
#else
#define RECURRENT_KERNELS(units, n_units, generic, name)                                           \
	IG_CPU_KERNEL(IG_ISA_GENERIC, units, n_units, NULL, generic),
#endif
