/* archs.h: the architectures of our modules, linked: for tests that open folders and load no
 * module. */
#pragma once

#include <ingot/arch.h>

extern const struct ig_arch *const test_archs[];
