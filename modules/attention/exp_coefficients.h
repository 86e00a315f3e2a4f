/*
 * exp_coefficients.h: exp(r) = 1 + r + r^2 (C0 + C1 r + … + C4 r^4) for
 * |r| <= ln(2)/2, within 3.1e-9 before rounding; with the reduction x = n ln(2) + r
 * in two fused steps, exp(x) in float is within 8.4e-8 of its value.  The fit is
 * least squares of the relative error, reweighted towards the largest.
 */
#pragma once

#define EXP_LOG2E 0x1.715476p+0f
#define EXP_LN2_HI 0x1.62e430p-1f
#define EXP_LN2_LO -0x1.05c610p-29f
#define EXP_C0 0x1.fffffcp-2f
#define EXP_C1 0x1.555490p-3f
#define EXP_C2 0x1.5558f8p-5f
#define EXP_C3 0x1.123b02p-7f
#define EXP_C4 0x1.6a2256p-10f
#define EXP_LEAST -87.0f /* below it results would be subnormal; they become 0 */
