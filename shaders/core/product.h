// product.h: y = x * transpose(w) with what goes before and after it, for linear.metal and
// glu.metal: which tile a threadgroup makes, shares of k, bias, activation, residual.
//
// Where k is cut into shares, each is summed from zero, and the shares are added in
// ascending order.  A few-row kernel gives each share to a group of simdgroups; a tile
// kernel walks them one after the other.  Shares begin at multiples of PRODUCT_STEP.
#ifndef INGOT_PRODUCT_H
#define INGOT_PRODUCT_H

#include <metal_stdlib>
#include "../args.h"
#include "../portable.h"
#include "../step.h"
#include "../tile.h"
#include "shapes.h"
#include "weights.h"
using namespace metal;

#define PRODUCT_STEP 64u
#define PRODUCT_BAND 8u     // rows of tiles that are made together, so that they share w in cache

// What elements are multiplied, and the formats of x and w that become them.
template <typename ELEMENT, typename X, typename W>
struct product_format {
	typedef ELEMENT element;
	typedef X x;
	typedef W w;
};

// A tile, and how it is spread over simdgroups.
template <int BM_, int BN_, int BK_, int SM_, int SN_, int STAGES_, bool WIDE_>
struct product_shape {
	static constexpr constant int BM = BM_, BN = BN_, BK = BK_, SM = SM_, SN = SN_, STAGES = STAGES_;
	static constexpr constant bool WIDE = WIDE_;
};

template <typename F, typename S, bool PAIR>
struct product_pipe {
	typedef tile_pipe<typename F::x, typename F::w, typename F::element, S::BM, S::BN, S::BK, S::SM, S::SN,
		S::STAGES, PAIR, S::WIDE> type;
};

// -- which tile ------------------------------------------------------------------------

struct product_place {
	uint m0, rows;         // of x, of the tile; 0 rows: nothing to do
	uint weight;
	uint n0, columns;      // of that weight
	uint y0;               // column of y where the weight's begin
};

METAL_FUNC uint product_rows(constant linear_args &args, device const step_head *step)
{
	return args.rows_live == 0 ? step->n_rows : step->n_logit_rows;
}

// The group-th tile of `height` rows and `width` columns; n_weights weights side by side.
METAL_FUNC product_place product_find(constant linear_args &args, uint n_weights, uint rows, uint group, uint height, uint width)
{
	product_place p;
	uint across = 0;
	for (uint i = 0; i < n_weights; i++)
		across += (args.n[i] + width - 1) / width;
	const uint down = (rows + height - 1) / height;
	p.m0 = p.rows = p.weight = p.n0 = p.columns = p.y0 = 0;
	if (group >= across * down)
		return p;
	const uint band = group / (PRODUCT_BAND * across) * PRODUCT_BAND;
	const uint in_band = group % (PRODUCT_BAND * across), high = min(down - band, PRODUCT_BAND);
	p.m0 = (band + in_band % high) * height;
	p.rows = min(rows - p.m0, height);
	uint at = in_band / high;
	for (uint i = 0; i + 1 < n_weights && at >= (args.n[i] + width - 1) / width; i++) {
		at -= (args.n[i] + width - 1) / width;
		p.y0 += args.n[i];
		p.weight = i + 1;
	}
	p.n0 = at * width;
	p.columns = min(args.n[p.weight] - p.n0, width);
	return p;
}

template <typename F>
METAL_FUNC tile_rows product_x(constant linear_args &args, product_place place, device const uchar *x)
{
	tile_rows r;
	r.row_bytes = args.x_stride * uint(sizeof(typename F::element));
	r.rows = place.rows;
	r.a = x + ulong(place.m0) * r.row_bytes;
	r.b = nullptr;
	return r;
}

METAL_FUNC tile_rows product_w(constant linear_args &args, product_place place, device const uchar *a, device const uchar *b)
{
	tile_rows r;
	r.row_bytes = args.w_row_bytes;
	r.rows = place.columns;
	r.a = a;
	r.b = b;
	return r;
}

// Where the share-th share begins, and the one before it ends.
METAL_FUNC uint product_share(constant linear_args &args, uint share)
{
	const uint steps = (args.k + PRODUCT_STEP - 1) / PRODUCT_STEP;
	return min(steps * share / args.shares * PRODUCT_STEP, args.k);
}

// -- what comes after ------------------------------------------------------------------

// x times the logistic function of z: silu with z = x, gelu (tanh) with z = 2 u.
METAL_FUNC float product_act(uint act, float x)
{
	if (act == PRODUCT_ACT_NONE)
		return x;
	const float inner = fma(0.044715f * x * x, x, x);
	const float z = act == PRODUCT_ACT_GELU ? 1.5957691216057308f * inner : x;
	return x / (1.0f + exp(-z));
}

// Element i of y, and the next if there is one, in the type that flags say.
METAL_FUNC void product_store(device uchar *y, ulong i, uint flags, bool two, float2 v)
{
	if ((flags & LINEAR_OUT_F16) != 0) {
		device half *to = (device half *)y + i;
		to[0] = half(clamp(v.x, -65504.0f, 65504.0f));
		if (two)
			to[1] = half(clamp(v.y, -65504.0f, 65504.0f));
	} else if ((flags & LINEAR_OUT_BF16) != 0) {
		device bfloat *to = (device bfloat *)y + i;
		to[0] = bfloat(v.x);
		if (two)
			to[1] = bfloat(v.y);
	} else {
		device float *to = (device float *)y + i;
		to[0] = v.x;
		if (two)
			to[1] = v.y;
	}
}

// Where a product goes.  bias belongs to the place's weight.
struct product_target {
	device const float *bias;
	device const float *residual;
	device uchar *y;
};

METAL_FUNC void product_finish(constant linear_args &args, product_place place, product_target to, uint row, uint column, float2 sum)
{
	if (row >= place.rows || column >= place.columns)
		return;
	const bool two = column + 1 < place.columns;
	const uint m = place.m0 + row, n = place.n0 + column;
	if ((args.flags & LINEAR_BIAS) != 0) {
		sum.x += to.bias[n];
		if (two)
			sum.y += to.bias[n + 1];
	}
	sum.x = product_act(args.act, sum.x);
	sum.y = product_act(args.act, sum.y);
	if ((args.flags & LINEAR_RESIDUAL) != 0) {
		device const float *r = to.residual + ulong(m) * args.residual_stride + place.y0 + n;
		sum.x += r[0];
		if (two)
			sum.y += r[1];
	}
	product_store(to.y, ulong(m) * args.y_stride + place.y0 + n, args.flags, two, sum);
}

// The gate's and the other product's pair.
METAL_FUNC void product_finish_pair(constant linear_args &args, product_place place, product_target to, uint row, uint column,
	float2 gate, float2 up)
{
	if (row >= place.rows || column >= place.columns)
		return;
	const float2 v = float2(product_act(args.act, gate.x) * up.x, product_act(args.act, gate.y) * up.y);
	product_store(to.y, ulong(place.m0 + row) * args.y_stride + place.n0 + column, args.flags,
		column + 1 < place.columns, v);
}

// -- a threadgroup's part ----------------------------------------------------------------

template <typename P, bool PAIR>
struct product_sum {
	float2 sum[P::tm][P::tn][P::halves];

	METAL_FUNC void add(thread P &p, bool first) thread
	{
		UNROLL
		for (int i = 0; i < P::tm; i++)
			UNROLL
			for (int j = 0; j < P::tn; j++)
				UNROLL
				for (int h = 0; h < P::halves; h++) {
					const float2 v = p.pair(i, j, h);
					sum[i][j][h] = first ? v : sum[i][j][h] + v;
				}
	}

	// To and from threadgroup memory; each lane comes back for its own.
	METAL_FUNC void keep(threadgroup float2 *at, uint lane) thread
	{
		UNROLL
		for (int i = 0; i < P::tm; i++)
			UNROLL
			for (int j = 0; j < P::tn; j++)
				UNROLL
				for (int h = 0; h < P::halves; h++)
					at[((i * P::tn + j) * P::halves + h) * 32 + lane] = sum[i][j][h];
	}
	METAL_FUNC void add_kept(threadgroup const float2 *at, uint lane) thread
	{
		UNROLL
		for (int i = 0; i < P::tm; i++)
			UNROLL
			for (int j = 0; j < P::tn; j++)
				UNROLL
				for (int h = 0; h < P::halves; h++)
					sum[i][j][h] += at[((i * P::tn + j) * P::halves + h) * 32 + lane];
	}

	METAL_FUNC void finish(constant linear_args &args, product_place place, product_target to, uint sg, uint lane) thread
	{
		UNROLL
		for (int i = 0; i < P::tm; i++)
			UNROLL
			for (int j = 0; j < (PAIR ? P::tn / 2 : P::tn); j++)
				UNROLL
				for (int h = 0; h < P::halves; h++) {
					const uint row = P::row(i, h, sg, lane), column = P::column(j, sg, lane);
					if (PAIR)
						product_finish_pair(args, place, to, row, column, sum[i][j][h],
							sum[i][(j + P::tn / 2) % P::tn][h]);
					else
						product_finish(args, place, to, row, column, sum[i][j][h]);
				}
	}
};

// One share a group of SM x SN simdgroups; the first group adds them up.  All rows are in
// one tile.
template <typename F, typename S, bool PAIR>
METAL_FUNC void product_few(constant linear_args &args, product_place place, tile_rows x, tile_rows w, product_target to,
	threadgroup uchar *shared, uint tid, uint lane, uint sg)
{
	typedef typename product_pipe<F, S, PAIR>::type pipeline;
	typedef typename F::element element;
	constexpr uint group = S::SM * S::SN, kept = S::BM * S::BN / 2;     // float2 a share
	const uint share = sg / group, from = product_share(args, share), end = product_share(args, share + 1);
	uint longest = 0;
	for (uint i = 0; i < args.shares; i++)
		longest = max(longest, product_share(args, i + 1) - product_share(args, i));

	typename pipeline::product p;
	product_sum<typename pipeline::product, PAIR> sum;
	pipeline::walk(p, x, w, from, end, (longest + S::BK - 1) / S::BK,
		(threadgroup element *)shared + share * (S::STAGES * pipeline::stage), tid % (group * 32), lane, sg % group);
	sum.add(p, true);
	if (args.shares > 1) {
		threadgroup float2 *at = (threadgroup float2 *)shared + sg % group * (kept / group);
		threadgroup_barrier(mem_flags::mem_threadgroup);
		if (share > 0)
			sum.keep(at + (share - 1) * kept, lane);
		threadgroup_barrier(mem_flags::mem_threadgroup);
		if (share > 0)
			return;
		for (uint i = 1; i < args.shares; i++)
			sum.add_kept(at + (i - 1) * kept, lane);
	}
	sum.finish(args, place, to, sg % group, lane);
}

// All shares one after the other; without TOTALS there is one.
template <typename F, typename S, bool PAIR, bool TOTALS>
METAL_FUNC void product_tile(constant linear_args &args, product_place place, tile_rows x, tile_rows w, product_target to,
	threadgroup uchar *shared, uint tid, uint lane, uint sg)
{
	typedef typename product_pipe<F, S, PAIR>::type pipeline;
	typedef typename F::element element;
	typename pipeline::product p;
	product_sum<typename pipeline::product, PAIR> sum;
	const uint shares = TOTALS ? args.shares : 1;
	for (uint i = 0; i < shares; i++) {
		const uint from = TOTALS ? product_share(args, i) : 0, end = TOTALS ? product_share(args, i + 1) : args.k;
		if (TOTALS && i > 0)
			pipeline::sync();
		pipeline::walk(p, x, w, from, end, (end - from + S::BK - 1) / S::BK, (threadgroup element *)shared, tid, lane, sg);
		sum.add(p, i == 0);
	}
	sum.finish(args, place, to, sg, lane);
}

// -- formats and shapes ---------------------------------------------------------------

typedef product_format<half, weights_f16<true, false>, weights_f16<true, false>> f16_f16;
typedef product_format<half, weights_f16<true, true>, weights_f16<true, true>> f16_f16_odd;
typedef product_format<float, weights_f32<false>, weights_f16<false, false>> f16_f32;
typedef product_format<float, weights_f32<true>, weights_f16<false, true>> f16_f32_odd;
typedef product_format<bfloat, weights_bf16<true, false>, weights_bf16<true, false>> bf16_bf16;
typedef product_format<bfloat, weights_bf16<true, true>, weights_bf16<true, true>> bf16_bf16_odd;
typedef product_format<float, weights_f32<false>, weights_bf16<false, false>> bf16_f32;
typedef product_format<float, weights_f32<true>, weights_bf16<false, true>> bf16_f32_odd;
typedef product_format<float, weights_f32<false>, weights_f32<false>> f32_f32;
typedef product_format<float, weights_f32<true>, weights_f32<true>> f32_f32_odd;
typedef product_format<half, weights_f16<true, false>, weights_q8_0> q8_0_f16;
typedef product_format<float, weights_f32<false>, weights_q8_0> q8_0_f32;
typedef product_format<half, weights_f16<true, false>, weights_q4_0> q4_0_f16;
typedef product_format<float, weights_f32<false>, weights_q4_0> q4_0_f32;
typedef product_format<half, weights_f16<true, false>, weights_q4_1> q4_1_f16;
typedef product_format<float, weights_f32<false>, weights_q4_1> q4_1_f32;

// EACH(name, format): what multiplies two bytes an element, and what multiplies floats.
#define PRODUCT_FORMATS(EACH) \
	EACH("f16_f16", f16_f16) \
	EACH("f16_f16_odd", f16_f16_odd) \
	EACH("bf16_bf16", bf16_bf16) \
	EACH("bf16_bf16_odd", bf16_bf16_odd) \
	EACH("q8_0_f16", q8_0_f16) \
	EACH("q4_0_f16", q4_0_f16) \
	EACH("q4_1_f16", q4_1_f16)
#define PRODUCT_FORMATS_F32(EACH) \
	EACH("f32_f32", f32_f32) \
	EACH("f32_f32_odd", f32_f32_odd) \
	EACH("f16_f32", f16_f32) \
	EACH("f16_f32_odd", f16_f32_odd) \
	EACH("bf16_f32", bf16_f32) \
	EACH("bf16_f32_odd", bf16_f32_odd) \
	EACH("q8_0_f32", q8_0_f32) \
	EACH("q4_0_f32", q4_0_f32) \
	EACH("q4_1_f32", q4_1_f32)

#ifdef MSL_NV
typedef product_shape<SHAPE_NV_FEW> shape_few;
typedef product_shape<SHAPE_NV_TILE> shape_tile;
typedef product_shape<SHAPE_NV_FEW_F32> shape_few_f32;
typedef product_shape<SHAPE_NV_TILE_F32> shape_tile_f32;
#else
typedef product_shape<SHAPE_METAL_FEW8> shape_few8;
typedef product_shape<SHAPE_METAL_FEW16> shape_few16;
typedef product_shape<SHAPE_METAL_TILE> shape_tile;
typedef product_shape<SHAPE_METAL_FEW8_F32> shape_few8_f32;
typedef product_shape<SHAPE_METAL_FEW16_F32> shape_few16_f32;
typedef product_shape<SHAPE_METAL_TILE_F32> shape_tile_f32;
#endif

#endif
