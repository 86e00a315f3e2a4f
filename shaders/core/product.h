// product.h: y = x * transpose(w) with its prologue and epilogue, for linear.metal and glu.metal:
// the tile of a threadgroup, shares of k, bias, activation, residual.
//
// If k is split into shares, each is summed from zero, and the shares are added in ascending
// order.  A few-row kernel gives each share to a group of simdgroups; a tile
// kernel walks them one after the other.  Shares begin at multiples of PRODUCT_STEP.
#pragma once

#include <metal_stdlib>
#include "../args.h"
#include "../portable.h"
#include "../step.h"
#include "../tile.h"
#include "../tile_tensor.h"
#include "shapes.h"
#include "weights.h"
using namespace metal;

#define PRODUCT_STEP 64u
#define PRODUCT_BAND 8u // rows of tiles computed together, so that they share w in the cache

// The type of the multiplied elements, and the formats of x and w that are converted to it.
template <typename ELEMENT, typename X, typename W> struct product_format {
	typedef ELEMENT element;
	typedef X x;
	typedef W w;
};

// A tile, and its division among simdgroups.
template <int BM_, int BN_, int BK_, int SM_, int SN_, int STAGES_, bool WIDE_>
struct product_shape {
	static constexpr constant int BM = BM_, BN = BN_, BK = BK_, SM = SM_, SN = SN_,
				      STAGES = STAGES_;
	static constexpr constant bool WIDE = WIDE_;
};

template <typename F, typename S, bool PAIR> struct product_pipe {
	typedef tile_pipe<typename F::x, typename F::w, typename F::element, S::BM, S::BN, S::BK,
			  S::SM, S::SN, S::STAGES, PAIR, S::WIDE>
		type;
};

// -- which tile ------------------------------------------------------------------------

struct product_place {
	uint m0, rows; // of x, of the tile; 0 rows: nothing to do
	uint weight;
	uint n0, columns; // of that weight
	uint y0;	  // the weight's first column in y
};

// The number of tiles of `width` columns in n_weights weights side by side.
METAL_FUNC uint product_across(constant linear_args &args, uint n_weights, uint width)
{
	uint across = 0;
	for (uint i = 0; i < n_weights; i++)
		across += (args.n[i] + width - 1) / width;
	return across;
}

// Weight and columns of the at-th such tile.
METAL_FUNC void product_columns(constant linear_args &args, uint n_weights, uint at, uint width,
				thread product_place &p)
{
	p.weight = 0;
	p.y0 = args.column;
	for (uint i = 0; i + 1 < n_weights && at >= (args.n[i] + width - 1) / width; i++) {
		at -= (args.n[i] + width - 1) / width;
		p.y0 += args.n[i];
		p.weight = i + 1;
	}
	p.n0 = at * width;
	p.columns = min(args.n[p.weight] - p.n0, width);
}

// The group-th tile of `height` rows and `width` columns.
METAL_FUNC product_place product_find(constant linear_args &args, uint n_weights, uint rows,
				      uint group, uint height, uint width)
{
	product_place p;
	const uint across = product_across(args, n_weights, width),
		   down = (rows + height - 1) / height;
	p.m0 = p.rows = p.weight = p.n0 = p.columns = p.y0 = 0;
	if (group >= across * down)
		return p;
	const uint band = group / (PRODUCT_BAND * across) * PRODUCT_BAND;
	const uint in_band = group % (PRODUCT_BAND * across), high = min(down - band, PRODUCT_BAND);
	p.m0 = (band + in_band % high) * height;
	p.rows = min(rows - p.m0, height);
	product_columns(args, n_weights, in_band / high, width, p);
	return p;
}

template <typename F>
METAL_FUNC tile_rows product_x(constant linear_args &args, product_place place,
			       device const uchar *x)
{
	tile_rows r;
	r.row_bytes = args.x_stride * uint(sizeof(typename F::element));
	r.rows = place.rows;
	r.a = x + ulong(place.m0) * r.row_bytes;
	r.b = nullptr;
	r.format = 0;
	r.at = nullptr;
	return r;
}

METAL_FUNC tile_rows product_w(constant linear_args &args, product_place place,
			       device const uchar *a, device const uchar *b)
{
	tile_rows r;
	r.row_bytes = args.w_row_bytes;
	r.rows = place.columns;
	r.format = args.format;
	r.at = nullptr;
	r.a = a;
	r.b = b;
	return r;
}

// The start of share number `share`.
METAL_FUNC uint product_share(constant linear_args &args, uint share)
{
	const uint steps = (args.k + args.share_step - 1) / args.share_step;
	return min(steps * share / args.shares * args.share_step, args.k);
}

// -- the epilogue ----------------------------------------------------------------------

// x times the normal distribution up to x, as ig_gelu_erff() of ops/float.h.
METAL_FUNC float product_gelu_erf(float x)
{
	const float z = fabs(x) * 0.70710678118654752f, t = 1.0f / fma(0.5f, z, 1.0f);
	float p = fma(0.17087277f, t, -0.82215223f);
	p = fma(p, t, 1.48851587f);
	p = fma(p, t, -1.13520398f);
	p = fma(p, t, 0.27886807f);
	p = fma(p, t, -0.18628806f);
	p = fma(p, t, 0.09678418f);
	p = fma(p, t, 0.37409196f);
	p = fma(p, t, 1.00002368f);
	p = fma(p, t, -1.26551223f);
	const float tail = 0.5f * t * exp(fma(-z, z, p));
	return x * (x < 0.0f ? tail : 1.0f - tail);
}

// x times the logistic function of z: silu with z = x, gelu (tanh) with z = 2 u.
METAL_FUNC float product_act(uint act, float x)
{
	if (act == PRODUCT_ACT_NONE)
		return x;
	if (act == PRODUCT_ACT_RELU2)
		return x > 0.0f ? x * x : x != x ? x : 0.0f;
	if (act == PRODUCT_ACT_GELU_ERF)
		return product_gelu_erf(x);
	if (act == PRODUCT_ACT_TANH)
		return precise::tanh(x);
	const float inner = fma(0.044715f * x * x, x, x);
	const float z = act == PRODUCT_ACT_GELU ? 1.5957691216057308f * inner : x;
	return x / (1.0f + exp(-z));
}

// A gate's activation times up.
METAL_FUNC float product_gated(constant linear_args &args, float gate, float up)
{
	if (args.act != PRODUCT_ACT_CLAMPED)
		return product_act(args.act, gate) * up;
	gate = gate > args.limit ? args.limit : gate; // NaN stays NaN
	up = up > args.limit ? args.limit : up;
	up = up < -args.limit ? -args.limit : up;
	return gate / (1.0f + exp(-1.702f * gate)) * (up + 1.0f);
}

// The element types of y.
struct product_f32 {
	typedef float element;
	typedef float2 pair;
	static METAL_FUNC pair of(float2 v) { return v; }
};
struct product_f16 {
	typedef half element;
	typedef half2 pair;
	static METAL_FUNC pair of(float2 v)
	{
		return half2(clamp(v.x, -65504.0f, 65504.0f), clamp(v.y, -65504.0f, 65504.0f));
	}
};
struct product_bf16 {
	typedef bfloat element;
	typedef bfloat2 pair;
	static METAL_FUNC pair of(float2 v) { return bfloat2(v); }
};

// Elements i and i + 1 of y, TOGETHER if they are aligned; only the first unless `two`.
template <typename TO, bool TOGETHER>
METAL_FUNC void product_put(device uchar *y, ulong i, bool two, float2 v)
{
	device typename TO::element *to = (device typename TO::element *)y + i;
	const typename TO::pair p = TO::of(v);
	if (TOGETHER) {
		*(device typename TO::pair *)to = p;
		return;
	}
	to[0] = p.x;
	if (two)
		to[1] = p.y;
}

template <typename TO>
METAL_FUNC void product_store_as(device uchar *y, ulong i, uint flags, bool two, float2 v)
{
	if (two && (flags & LINEAR_PAIRS) != 0)
		product_put<TO, true>(y, i, two, v);
	else
		product_put<TO, false>(y, i, two, v);
}

// The same in the type that flags select.
METAL_FUNC void product_store(device uchar *y, ulong i, uint flags, bool two, float2 v)
{
	if ((flags & LINEAR_OUT_F16) != 0)
		product_store_as<product_f16>(y, i, flags, two, v);
	else if ((flags & LINEAR_OUT_BF16) != 0)
		product_store_as<product_bf16>(y, i, flags, two, v);
	else
		product_store_as<product_f32>(y, i, flags, two, v);
}

METAL_FUNC float2 product_bias(device const float *bias, uint n, bool two)
{
	return float2(bias[n], two ? bias[n + 1] : 0.0f);
}

METAL_FUNC float2 product_residual(device const float *r, bool two, uint flags)
{
	if (two && (flags & LINEAR_PAIRS) != 0)
		return *(device const float2 *)r;
	return float2(r[0], two ? r[1] : 0.0f);
}

// The destination of a product.  bias is that of the place's weight, up_bias of a pair's up.
struct product_target {
	device const float *bias, *up_bias;
	device const float *residual;
	device uchar *y;
	threadgroup const uint *at; // nullptr, or the first element of each row of the tile
};

METAL_FUNC product_target product_to(device uchar *y)
{
	product_target t;
	t.bias = t.up_bias = t.residual = nullptr;
	t.y = y;
	t.at = nullptr;
	return t;
}

// The first element of a tile's row.
METAL_FUNC ulong product_row(constant linear_args &args, product_place place, product_target to,
			     uint row)
{
	return to.at != nullptr ? ulong(to.at[row]) : ulong(place.m0 + row) * args.y_stride;
}

// The epilogue of columns n0 + column and n0 + column + 1.
METAL_FUNC void product_finish(constant linear_args &args, product_place place, product_target to,
			       uint row, uint column, float2 sum)
{
	const bool two = column + 1 < place.columns;
	const uint m = place.m0 + row, n = place.n0 + column;
	if ((args.flags & LINEAR_BIAS) != 0)
		sum += product_bias(to.bias, n, two);
	sum.x = product_act(args.act, sum.x);
	sum.y = product_act(args.act, sum.y);
	if ((args.flags & LINEAR_RESIDUAL) != 0)
		sum += product_residual(to.residual + ulong(m) * args.residual_stride + place.y0 +
						n,
					two, args.flags);
	product_store(to.y, product_row(args, place, to, row) + place.y0 + n, args.flags, two, sum);
}

// The same for a pair of products, gate and up.
METAL_FUNC void product_finish_pair(constant linear_args &args, product_place place,
				    product_target to, uint row, uint column, float2 gate,
				    float2 up)
{
	const bool two = column + 1 < place.columns;
	if ((args.flags & LINEAR_BIAS) != 0) {
		gate += product_bias(to.bias, place.n0 + column, two);
		up += product_bias(to.up_bias, place.n0 + column, two);
	}
	const float2 v =
		float2(product_gated(args, gate.x, up.x), product_gated(args, gate.y, up.y));
	product_store(to.y, product_row(args, place, to, row) + place.n0 + column, args.flags, two,
		      v);
}

// -- a threadgroup's part ----------------------------------------------------------------
//
// Sums go through threadgroup memory, one tile of floats per share: there the shares are added,
// all threads run the epilogue in one loop (unrolled over registers it would exceed the
// instruction caches), and device memory is written row by row.

struct product_in_registers {
	static constexpr constant bool tensor_units = false;
};

template <typename S, bool PAIR, typename P = product_in_registers> struct product_sums {
	// Floats; neighbouring rows are in different banks, by permuting groups of eight or by padding.
	// Tensor units have a layout of their own.
	static constexpr constant bool permuted = S::BN % 32 == 0;
	static constexpr constant int stride = permuted ? S::BN : S::BN + 8;
	static constexpr constant int size = S::BM * (P::tensor_units ? S::BN : stride);

	static METAL_FUNC uint at_place(uint row, uint column)
	{
		return at_place(row, column, tile_kind<P::tensor_units>());
	}
	static METAL_FUNC uint at_place(uint row, uint column, tile_kind<0>)
	{
		return row * stride + (permuted ? column ^ row % 4 * 8 : column);
	}
	static METAL_FUNC uint at_place(uint row, uint column, tile_kind<1>)
	{
		return P::place(row, column);
	}

	static METAL_FUNC void keep(thread P &p, threadgroup float *at, uint sg, uint lane)
	{
		keep(p, at, sg, lane, tile_kind<P::tensor_units>());
	}
	static METAL_FUNC void keep(thread P &p, threadgroup float *at, uint sg, uint, tile_kind<1>)
	{
		p.keep(at, sg);
	}
	static METAL_FUNC void keep(thread P &p, threadgroup float *at, uint sg, uint lane,
				    tile_kind<0>)
	{
		UNROLL
		for (int i = 0; i < P::tm; i++)
			UNROLL
		for (int j = 0; j < P::tn; j++)
			UNROLL
		for (int h = 0; h < P::halves; h++)
			*(threadgroup float2 *)(at + at_place(P::row(i, h, sg, lane),
							      P::column(j, sg, lane))) =
				p.pair(i, j, h);
	}

	static METAL_FUNC void finish(constant linear_args &args, product_place place,
				      product_target to, threadgroup const float *at, uint shares,
				      uint tid, uint threads)
	{
		constexpr uint pairs = (PAIR ? S::BN / 2 : S::BN) / 2; // in a row
		for (uint i = tid; i < place.rows * pairs; i += threads) {
			const uint row = i / pairs, column = i % pairs * 2;
			if (column >= place.columns)
				continue;
			threadgroup const float *from = at + at_place(row, column);
			float2 sum = *(threadgroup const float2 *)from;
			for (uint share = 1; share < shares; share++)
				sum += *(threadgroup const float2 *)(from + share * size);
			if (PAIR) {
				from = at + at_place(row, column + S::BN / 2);
				float2 up = *(threadgroup const float2 *)from;
				for (uint share = 1; share < shares; share++)
					up += *(threadgroup const float2 *)(from + share * size);
				product_finish_pair(args, place, to, row, column, sum, up);
			} else {
				product_finish(args, place, to, row, column, sum);
			}
		}
	}

	// The same for a tile whose shares are already added.  A thread has two columns and processes
	// several rows at once: otherwise it would wait for memory at each row.
	template <int THREADS>
	static METAL_FUNC void finish_rows(constant linear_args &args, product_place place,
					   product_target to, threadgroup const float *at, uint tid)
	{
		constexpr int pairs = (PAIR ? S::BN / 2 : S::BN) / 2, most = THREADS / pairs;
		constexpr int step = most >= 8 ? 8 : most >= 4 ? 4 : most;
		constexpr int ahead = S::BM / step < 8 ? S::BM / step : 8;
		static_assert(step >= 1 && S::BM % (step * ahead) == 0, "threads");
		const uint column = tid % pairs * 2, flags = args.flags;
		const bool two = column + 1 < place.columns,
			   together = two && (flags & LINEAR_PAIRS) != 0;
		if (column >= place.columns || tid >= uint(pairs * step))
			return;
		const uint n = place.n0 + column;
		float2 bias = float2(0.0f), up_bias = float2(0.0f);
		if ((flags & LINEAR_BIAS) != 0) {
			bias = product_bias(to.bias, n, two);
			if (PAIR)
				up_bias = product_bias(to.up_bias, n, two);
		}

		for (uint row = tid / pairs; row < place.rows; row += step * ahead) {
			const uint left = place.rows - row;
			const ulong m = place.m0 + row;
			float2 v[ahead];
			UNROLL
			for (int i = 0; i < ahead; i++) {
				v[i] = *(threadgroup const float2 *)(at + at_place(row + i * step,
										   column));
				if (PAIR) {
					float2 up = *(threadgroup const float2
							      *)(at + at_place(row + i * step,
									       column + S::BN / 2));
					if ((flags & LINEAR_BIAS) != 0) {
						v[i] += bias;
						up += up_bias;
					}
					v[i] = float2(product_gated(args, v[i].x, up.x),
						      product_gated(args, v[i].y, up.y));
				}
			}
			if (!PAIR && (flags & LINEAR_BIAS) != 0)
				UNROLL
			for (int i = 0; i < ahead; i++)
				v[i] += bias;
			if (!PAIR && args.act != PRODUCT_ACT_NONE)
				UNROLL
			for (int i = 0; i < ahead; i++)
				v[i] = float2(product_act(args.act, v[i].x),
					      product_act(args.act, v[i].y));
			if (!PAIR && (flags & LINEAR_RESIDUAL) != 0) {
				float2 r[ahead];
				UNROLL
				for (int i = 0; i < ahead; i++) {
					r[i] = float2(0.0f);
					if (uint(i * step) < left)
						r[i] = product_residual(
							to.residual +
								(m + i * step) *
									args.residual_stride +
								place.y0 + n,
							two, flags);
				}
				UNROLL
				for (int i = 0; i < ahead; i++)
					v[i] += r[i];
			}
			if (to.at != nullptr) {
				UNROLL
				for (int i = 0; i < ahead; i++)
					if (uint(i * step) < left)
						product_store(to.y,
							      product_row(args, place, to,
									  row + i * step) +
								      n,
							      flags, two, v[i]);
				continue;
			}
			const ulong first = m * args.y_stride + (PAIR ? 0 : place.y0) + n;
			if ((flags & LINEAR_OUT_F16) != 0)
				store_rows<product_f16, step, ahead>(to.y, first, args.y_stride,
								     together, two, v, left);
			else if ((flags & LINEAR_OUT_BF16) != 0)
				store_rows<product_bf16, step, ahead>(to.y, first, args.y_stride,
								      together, two, v, left);
			else
				store_rows<product_f32, step, ahead>(to.y, first, args.y_stride,
								     together, two, v, left);
		}
	}

	// Every STEP-th row of `left`; the fast path has no check per pair.
	template <typename TO, int STEP, int AHEAD>
	static METAL_FUNC void store_rows(device uchar *y, ulong first, uint y_stride,
					  bool together, bool two, thread const float2 *v,
					  uint left)
	{
		if (together && left > uint((AHEAD - 1) * STEP)) {
			UNROLL
			for (int i = 0; i < AHEAD; i++)
				product_put<TO, true>(y, first + ulong(i * STEP) * y_stride, true,
						      v[i]);
			return;
		}
		UNROLL
		for (int i = 0; i < AHEAD; i++)
			if (uint(i * STEP) < left)
				product_put<TO, false>(y, first + ulong(i * STEP) * y_stride, two,
						       v[i]);
	}
};

// One share per group of SM x SN simdgroups.  All rows are in one tile.
template <typename F, typename S, bool PAIR>
METAL_FUNC void product_few(constant linear_args &args, product_place place, tile_rows x,
			    tile_rows w, product_target to, threadgroup uchar *shared, uint tid,
			    uint lane, uint sg)
{
	typedef typename product_pipe<F, S, PAIR>::type pipeline;
	typedef typename F::element element;
	typedef product_sums<S, PAIR, typename pipeline::product> sums;
	constexpr uint group = S::SM * S::SN;
	const uint share = sg / group, from = product_share(args, share),
		   end = product_share(args, share + 1);
	uint longest = 0;
	for (uint i = 0; i < args.shares; i++)
		longest = max(longest, product_share(args, i + 1) - product_share(args, i));

	typename pipeline::product p;
	pipeline::walk(p, x, w, from, end, (longest + S::BK - 1) / S::BK,
		       (threadgroup element *)shared + share * (S::STAGES * pipeline::stage),
		       tid % (group * 32), lane, sg % group);
	threadgroup_barrier(mem_flags::mem_threadgroup);
	threadgroup float *at = (threadgroup float *)shared;
	sums::keep(p, at + share * sums::size, sg % group, lane);
	threadgroup_barrier(mem_flags::mem_threadgroup);
	sums::finish(args, place, to, at, args.shares, tid, group * 32 * args.shares);
}

// The sum of the earlier shares, in registers.
template <typename P, bool TENSOR> struct product_total {
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
	METAL_FUNC float2 pair(int i, int j, int h) thread { return sum[i][j][h]; }

	// keep() needs these of a product.
	static constexpr constant int tm = P::tm, tn = P::tn, halves = P::halves;
	static constexpr constant bool tensor_units = false;
	static METAL_FUNC uint row(int i, int h, uint sg, uint lane)
	{
		return P::row(i, h, sg, lane);
	}
	static METAL_FUNC uint column(int j, uint sg, uint lane) { return P::column(j, sg, lane); }
};

template <typename P> struct product_total<P, true> : P {
};

// All shares one after the other.
template <typename F, typename S, bool PAIR>
METAL_FUNC void product_tile(constant linear_args &args, product_place place, tile_rows x,
			     tile_rows w, product_target to, threadgroup uchar *shared, uint tid,
			     uint lane, uint sg)
{
	typedef typename product_pipe<F, S, PAIR>::type pipeline;
	typedef typename F::element element;
	typedef product_total<typename pipeline::product, pipeline::product::tensor_units> sum;
	typedef product_sums<S, PAIR, sum> sums;
	threadgroup element *stages = (threadgroup element *)shared;
	threadgroup float *at = (threadgroup float *)shared;
	typename pipeline::product p;
	typename pipeline::block_w ahead;

	// One pipeline through all shares: at the end of a share only its sum is moved.
	sum total;
	const uint steps = (args.k + S::BK - 1) / S::BK;
	static_assert(PRODUCT_STEP % S::BK == 0, "a share ends where a step ends");
	pipeline::start(ahead, x, w, 0, args.k, steps, stages, tid);
	for (uint i = 0, first = 0; i < args.shares; i++) {
		const uint last = (product_share(args, i + 1) + S::BK - 1) / S::BK;
		p.clear();
		pipeline::run(p, ahead, x, w, 0, args.k, first, last, steps, stages, tid, lane, sg);
		total.add(p, i == 0);
		first = last;
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	sums::keep(total, at, sg, lane);
	threadgroup_barrier(mem_flags::mem_threadgroup);
	sums::template finish_rows<S::SM * S::SN * 32>(args, place, to, at, tid);
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
typedef product_format<half, weights_f16<true, false>, weights_q4_0> q4_0_f16;
typedef product_format<half, weights_f16<true, false>, weights_q4_1> q4_1_f16;
typedef product_format<half, weights_f16<true, false>, weights_blocks<BLOCK_Q8_M>> q8_m_f16;
typedef product_format<half, weights_f16<true, false>, weights_blocks<BLOCK_Q5_0>> q5_0_f16;
typedef product_format<half, weights_f16<true, false>, weights_blocks<BLOCK_Q5_1>> q5_1_f16;
typedef product_format<half, weights_f16<true, false>, weights_blocks<BLOCK_Q2_K>> q2_k_f16;
typedef product_format<half, weights_f16<true, false>, weights_blocks<BLOCK_Q3_K>> q3_k_f16;
typedef product_format<half, weights_f16<true, false>, weights_blocks<BLOCK_Q4_K>> q4_k_f16;
typedef product_format<half, weights_f16<true, false>, weights_blocks<BLOCK_Q5_K>> q5_k_f16;
typedef product_format<half, weights_f16<true, false>, weights_blocks<BLOCK_Q6_K>> q6_k_f16;
typedef product_format<half, weights_f16<true, false>, weights_blocks<BLOCK_IQ4_NL>> iq4_nl_f16;
typedef product_format<half, weights_f16<true, false>, weights_blocks<BLOCK_IQ4_XS>> iq4_xs_f16;
typedef product_format<half, weights_f16<true, false>, weights_blocks<BLOCK_MXFP4>> mxfp4_f16;
// Blocks of a format selected at run time: four times slower than a kernel for one format.
typedef product_format<float, weights_f32<false>, weights_blocks<BLOCK_ANY>> blocks_f32;

#ifdef MSL_NV
typedef product_shape<SHAPE_NV_FEW_SHARES> shape_few_shares;
typedef product_shape<SHAPE_NV_FEW> shape_few;
typedef product_shape<SHAPE_NV_FEW_PAIR> shape_few_pair;
typedef product_shape<SHAPE_NV_FEW_MOE> shape_few_moe;
typedef product_shape<SHAPE_NV_FEW_MOE_PAIR> shape_few_moe_pair;
typedef product_shape<SHAPE_NV_FEW_16> shape_few_16;
typedef product_shape<SHAPE_NV_FEW_24> shape_few_24;
typedef product_shape<SHAPE_NV_FEW_32> shape_few_32;
typedef product_shape<SHAPE_NV_FEW_48> shape_few_48;
typedef product_shape<SHAPE_NV_FEW_48_PAIR> shape_few_48_pair;
typedef product_shape<SHAPE_NV_FEW_64> shape_few_64;
typedef product_shape<SHAPE_NV_FEW_96> shape_few_96;
typedef product_shape<SHAPE_NV_TILE> shape_tile;
typedef product_shape<SHAPE_NV_WIDE_64> shape_wide_64;
typedef product_shape<SHAPE_NV_WIDE_128> shape_wide_128;
typedef product_shape<SHAPE_NV_RUSH_24> shape_rush_24;
typedef product_shape<SHAPE_NV_RUSH_48_PAIR> shape_rush_48_pair;
typedef product_shape<SHAPE_NV_RUSH_64> shape_rush_64;
typedef product_shape<SHAPE_NV_RUSH_96> shape_rush_96;
typedef product_shape<SHAPE_NV_STREAM_128> shape_stream_128;
typedef product_shape<SHAPE_NV_STREAM_160> shape_stream_160;
typedef product_shape<SHAPE_NV_FEW_F32> shape_few_f32;
typedef product_shape<SHAPE_NV_FEW_F32_8> shape_few_f32_8;
typedef product_shape<SHAPE_NV_TILE_F32> shape_tile_f32;
#else
typedef product_shape<SHAPE_METAL_FEW8> shape_few8;
typedef product_shape<SHAPE_METAL_FEW16> shape_few16;
typedef product_shape<SHAPE_METAL_TILE> shape_tile;
typedef product_shape<SHAPE_METAL_TILES> shape_tiles;
typedef product_shape<SHAPE_METAL_FEW8_F32> shape_few8_f32;
typedef product_shape<SHAPE_METAL_FEW16_F32> shape_few16_f32;
typedef product_shape<SHAPE_METAL_TILE_F32> shape_tile_f32;
typedef product_shape<SHAPE_METAL_TENSOR_FEW> shape_tensor_few;
typedef product_shape<SHAPE_METAL_TENSOR_TILE> shape_tensor_tile;
#endif
