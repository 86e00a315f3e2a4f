/* recurrent_neon.c: the kernels of this module for NEON. */
#define IG_ISA_SUFFIX neon
#include "isa.h"
