/*
 * emulated.h: what is left to other machines where an emulator runs the tests: what is the same C on each of them,
 * and a kernel's largest shapes where smaller ones, or those of another format, reach the same places.
 */
#pragma once

#include "tests/brief.h"

#include <ingot/op.h>

static inline bool is_emulated(void) { return ig_check_sets("INGOT_TEST_EMULATED"); }

/* Whether the kernel is also tried in pieces here: unit by unit, row by row, on more rows than it takes
 * at once.  The portable kernels' pieces, which are the same C on each machine, are left to those that
 * need no emulator for it (./check sets INGOT_TEST_EMULATED). */
static inline bool cuts_are_tested(const struct ig_cpu_kernel *k)
{
	return k->isa != IG_ISA_GENERIC || !is_emulated();
}
