// msl_matrix.h: 8x8 matrices of a simdgroup.  Lane l holds two neighbours of row
// (l / 4 & 4) + l / 2 % 4, as on Apple's GPUs; tile.h relies on that.
//
// The software device has two implementations.  In the checked variant each lane holds its two
// elements, and every product synchronises all lanes.  In the plain one the first lane holds
// the whole matrix and does all work; the other lanes continue until thread_elements() is
// called (msl_soft_matrix.h).

METAL_FUNC uint msl_matrix_row(uint lane) { return (lane / 4 & 4) + lane / 2 % 4; }
METAL_FUNC uint msl_matrix_column(uint lane) { return (lane / 4 & 2) * 2 + lane % 2 * 2; }

#if defined(MSL_SOFT) && !defined(SOFT_CHECKED)
#include "msl_soft_matrix.h"
#else

#ifdef MSL_STRICT
uint msl_lane();
void msl_mma(thread float *c, float a0, float a1, float b0, float b1, uint line);
#endif

template <typename T, int C, int R> struct simdgroup_matrix {
	static_assert(C == 8 && R == 8, "Metal has 8x8 only");
	vec<T, 2> msl_v;
	simdgroup_matrix() = default;
	explicit METAL_FUNC simdgroup_matrix(T x) // a diagonal matrix
	{
		const uint lane = msl_lane(), r = msl_matrix_row(lane), c = msl_matrix_column(lane);
		msl_v[0] = r == c ? x : (T)0.0f;
		msl_v[1] = r == c + 1 ? x : (T)0.0f;
	}
	METAL_FUNC thread vec<T, 2> &thread_elements() thread { return msl_v; }
};

template <typename T, int C, int R> METAL_FUNC simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T x)
{
	simdgroup_matrix<T, C, R> m;
	m.msl_v[0] = m.msl_v[1] = x;
	return m;
}

#define MSL_MATRIX(SPACE)                                                                                              \
	template <typename T>                                                                                          \
	METAL_FUNC void simdgroup_load(thread simdgroup_matrix<T, 8, 8> &m, SPACE const T *p, ulong stride = 8,        \
				       ulong2 origin = 0, bool transpose = false)                                      \
	{                                                                                                              \
		const uint lane = msl_lane(), r = msl_matrix_row(lane), c = msl_matrix_column(lane);                   \
		p += origin.y * stride + origin.x;                                                                     \
		m.msl_v[0] = transpose ? p[c * stride + r] : p[r * stride + c];                                        \
		m.msl_v[1] = transpose ? p[(c + 1) * stride + r] : p[r * stride + c + 1];                              \
	}                                                                                                              \
	template <typename T>                                                                                          \
	METAL_FUNC void simdgroup_store(simdgroup_matrix<T, 8, 8> m, SPACE T *p, ulong stride = 8, ulong2 origin = 0,  \
					bool transpose = false)                                                        \
	{                                                                                                              \
		const uint lane = msl_lane(), r = msl_matrix_row(lane), c = msl_matrix_column(lane);                   \
		p += origin.y * stride + origin.x;                                                                     \
		p[transpose ? c * stride + r : r * stride + c] = m.msl_v[0];                                           \
		p[transpose ? (c + 1) * stride + r : r * stride + c + 1] = m.msl_v[1];                                 \
	}
MSL_MATRIX(device)
MSL_MATRIX(threadgroup)
#undef MSL_MATRIX

template <typename D, typename A, typename B>
METAL_FUNC void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8> &d, thread simdgroup_matrix<A, 8, 8> &a,
					      thread simdgroup_matrix<B, 8, 8> &b, thread simdgroup_matrix<D, 8, 8> &c,
					      MSL_AT)
{
	float r[2] = { (float)c.msl_v[0], (float)c.msl_v[1] };
	msl_mma(r, (float)a.msl_v[0], (float)a.msl_v[1], (float)b.msl_v[0], (float)b.msl_v[1], msl_line);
	d.msl_v[0] = (D)r[0];
	d.msl_v[1] = (D)r[1];
}

#endif

template <typename D, typename A, typename B>
METAL_FUNC void simdgroup_multiply(thread simdgroup_matrix<D, 8, 8> &d, thread simdgroup_matrix<A, 8, 8> &a,
				   thread simdgroup_matrix<B, 8, 8> &b)
{
	simdgroup_matrix<D, 8, 8> zero = make_filled_simdgroup_matrix<D, 8, 8>((D)0.0f);
	simdgroup_multiply_accumulate(d, a, b, zero);
}

typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
