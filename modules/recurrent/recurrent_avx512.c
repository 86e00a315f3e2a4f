/* recurrent_avx512.c: the kernels of this module for AVX-512. */
#define IG_ISA_SUFFIX avx512
#include "isa.h"
