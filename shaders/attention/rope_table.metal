// rope_table.metal: cosines and sines of the step's positions, once per step.  A row that is no
// token's has a position for each axis, and each pair is turned by one of them.
//
// The angle is rounded to float as in the models' own code: position * scale, then times the
// inverse frequency.  It may be 100 000 rad, where sin and cos of a GPU are inaccurate, so the
// multiple of pi/2 is subtracted here.
#include <metal_stdlib>
#include "../portable.h"
#include "../args.h"
#include "../step.h"
#include "pages.h"

using namespace metal;

// Cosine and sine of an angle up to 2^24.  n * 1.5707964 is a multiple of 2^-23 and so is
// the angle (where it is below 1, n is 0 or 1), so the first difference is exact; what
// 1.5707964 is too much times n is at most 1, and rounds once.  Then Taylor's series.
METAL_FUNC float2 cos_sin(float angle)
{
	const float n = rint(angle * 0.636619747f);
	const float r = fma(n, 4.37113883e-8f, fma(-n, 1.57079637f, angle));
	const float z = r * r;
	float s = fma(z, 2.75573192e-6f, -1.98412698e-4f);
	s = fma(z, s, 8.33333377e-3f);
	s = fma(z, s, -0.166666672f);
	s = fma(r * z, s, r);
	float c = fma(z, -2.75573192e-7f, 2.48015876e-5f);
	c = fma(z, c, -1.38888892e-3f);
	c = fma(z, c, 4.16666679e-2f);
	c = fma(z, c, -0.5f);
	c = fma(z, c, 1.0f);
	const uint quarter = uint(int(n)) & 3;
	const float2 v = (quarter & 1) != 0 ? float2(-s, c) : float2(c, s);
	return (quarter & 2) != 0 ? -v : v;
}

// A thread has one pair of one row.
//   inverse   [n_pairs]: base^(-i / n_pairs)
//   factors   [n_pairs], with ROPE_FACTORS
//   axes      [n_pairs]: 0 … 2, with ROPE_AXES
//   y         [row][2 * n_pairs]: cosines, then sines
kernel void rope_table(constant rope_table_args &args [[buffer(0)]],
		       device const step_head *step [[buffer(1)]],
		       device const float *inverse [[buffer(2)]],
		       device const float *factors [[buffer(3)]],
		       device const uint *axes [[buffer(4)]], device float *y [[buffer(5)]],
		       uint i [[thread_position_in_grid]])
{
	const uint row = i / args.n_pairs, pair = i % args.n_pairs;
	if (row >= step->n_rows)
		return;
	float inv = inverse[pair];
	if ((args.flags & ROPE_FACTORS) != 0)
		inv = precise::divide(inv, factors[pair]);
	int at;
	if (step->rope_positions != 0) {
		const uint axis = (args.flags & ROPE_AXES) != 0 ? axes[pair] : 0;
		at = step_array<int>(step, step->rope_positions)[3 * row + axis];
	} else {
		at = step_array<int>(step, step->positions)[row];
	}
	const float position = float(at) * args.freq_scale;
	const float2 v = cos_sin(position * inv) * args.magnitude;
	device float *to = y + ulong(row) * args.y_stride + pair;
	to[0] = v.x;
	to[args.n_pairs] = v.y;
}
