/* recurrent_avx2.c: the kernels of this module for AVX2. */
#define IG_ISA_SUFFIX avx2
#include "isa.h"
