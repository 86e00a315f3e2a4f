/* norm.h: for the kernels of norm and for the host, which chooses one. */
#pragma once

/* Rows of at most so many elements have a kernel that keeps them in fewer registers: with those of long
 * ones a prefill of 2048 columns took 5 % longer. */
#define NORM_SHORT 2048u
