/* archs.h: the architectures of our modules, linked: for tests that open folders and load no
 * module. */
#ifndef INGOT_TESTS_ARCHS_H
#define INGOT_TESTS_ARCHS_H

#include <ingot/arch.h>

extern const struct ig_arch *const test_archs[];

#endif
