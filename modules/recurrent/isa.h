/* isa.h: the kernels of one instruction set.  A file of this module defines IG_ISA_SUFFIX and includes
 * it; the compiler's flags do the rest. */
#include "conv1d_row.h"
#include "gated_delta_row.h"
#include "norm_gated_row.h"
#include "recurrent_private.h"
#include "selective_scan_row.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

RECURRENT_FN(JOIN(ig_conv1d_, IG_ISA_SUFFIX))
{
	(void)scratch;
	conv1d_units(launch, first, last);
}

RECURRENT_FN(JOIN(ig_gated_delta_, IG_ISA_SUFFIX))
{
	(void)scratch;
	delta_units(launch, first, last);
}

RECURRENT_FN(JOIN(ig_norm_gated_, IG_ISA_SUFFIX))
{
	(void)scratch;
	norm_gated_rows(launch, first, last);
}

RECURRENT_FN(JOIN(ig_selective_scan_, IG_ISA_SUFFIX))
{
	(void)scratch;
	scan_units(launch, first, last);
}
