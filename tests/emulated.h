/*
 * emulated.h: what is left to other machines where an emulator runs the tests, what is the same C on each of them,
 * and to other builds where an emulator or a sanitizer does: a kernel's largest shapes where smaller ones, or those
 * of another format, reach the same places.
 */
#pragma once

#include "tests/brief.h"
#include "tests/sanitized.h"

#include <ingot/op.h>

static inline bool is_emulated(void) { return ig_check_sets("INGOT_TEST_EMULATED"); }

/* Whether each access costs many times as much as elsewhere: an emulator runs it, or a sanitizer checks it.  What
 * these find depends on which places of a kernel run, not on how often. */
static inline bool is_slowed(void)
{
	return IG_ADDRESS_SANITIZED || IG_THREAD_SANITIZED || is_emulated();
}

/* Whether the kernel is also tried in pieces here: unit by unit, row by row, on more rows than it takes
 * at once.  The portable kernels' pieces, which are the same C on each machine, are left to those that
 * need no emulator for it (./check sets INGOT_TEST_EMULATED). */
static inline bool cuts_are_tested(const struct ig_cpu_kernel *k)
{
	return k->isa != IG_ISA_GENERIC || !is_emulated();
}
