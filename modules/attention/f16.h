/* f16.h: half precision in plain C, bit for bit what the F16C instructions do
 * (round to nearest, ties to even; overflow becomes infinity; NaN stays NaN). */
#pragma once

#include <stdint.h>
#include <string.h>

static inline float f16_to_f32(uint16_t h)
{
	/* A half's exponent and mantissa in a float's position are the value times 2^-112,
	 * subnormals included; the product corrects that exactly. */
	uint32_t u = (uint32_t)(h & 0x7fff) << 13;
	float f;

	memcpy(&f, &u, sizeof f);
	f *= 0x1p112f;
	memcpy(&u, &f, sizeof u);
	u |= (h & 0x7c00) == 0x7c00 ? 0x7f800000u : 0;
	u |= (uint32_t)(h & 0x8000) << 16;
	memcpy(&f, &u, sizeof f);
	return f;
}

static inline uint16_t f32_to_f16(float f)
{
	uint32_t u, a, half = 0x3f000000u;

	memcpy(&u, &f, sizeof u);
	a = u & 0x7fffffffu;
	if (a > 0x7f800000u) {
		a = 0x7e00u | ((a >> 13) & 0x3ff);
	} else if (a >= 0x477ff000u) { /* 65520: rounds to infinity */
		a = 0x7c00u;
	} else if (a < 0x38800000u) { /* below 2^-14: a multiple of 2^-24, ulp of 0.5 */
		float x;

		memcpy(&x, &a, sizeof x);
		x += 0.5f;
		memcpy(&a, &x, sizeof a);
		a -= half;
	} else {
		a += 0xfffu + ((a >> 13) & 1);
		a = (a - 0x38000000u) >> 13;
	}
	return (uint16_t)(a | ((u >> 16) & 0x8000u));
}
