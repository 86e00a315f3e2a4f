// msl_soft_matrix.h: simdgroup matrices of the plain software device.
//
// A product of 8x8 matrices is 512 multiplications; letting 32 fibers meet for it costs
// ten times that.  But between two barriers nobody can tell when a matrix function runs,
// so the first lane does the work of all, on whole matrices of floats, and the others
// pass by.  Only where a lane looks at its own elements do they meet:
//
//   whole   the first lane's msl_m is the matrix; the other lanes' hold nothing
//   split   each lane's msl_v is its part (after thread_elements())
//
// The state is the same in all lanes, because they run the same code.  The sums are
// taken in the order of the checked flavour, with the same bits.

typedef float soft_row __attribute__((ext_vector_type(8)));

// c += a * b of 8x8, k ascending, each step one fused multiply-add.
static __attribute__((noinline)) void soft_product(thread float *d, thread const float *a, thread const float *b, thread const float *c)
{
	thread soft_row *to = (thread soft_row *)d;
	thread const soft_row *from = (thread const soft_row *)c, *rows = (thread const soft_row *)b;
	soft_row r0 = from[0], r1 = from[1], r2 = from[2], r3 = from[3], r4 = from[4], r5 = from[5], r6 = from[6], r7 = from[7];
	_Pragma("clang loop unroll(full)")
	for (int k = 0; k < 8; k++) {
		const soft_row y = rows[k];
		r0 = __builtin_elementwise_fma((soft_row)a[k], y, r0);
		r1 = __builtin_elementwise_fma((soft_row)a[8 + k], y, r1);
		r2 = __builtin_elementwise_fma((soft_row)a[16 + k], y, r2);
		r3 = __builtin_elementwise_fma((soft_row)a[24 + k], y, r3);
		r4 = __builtin_elementwise_fma((soft_row)a[32 + k], y, r4);
		r5 = __builtin_elementwise_fma((soft_row)a[40 + k], y, r5);
		r6 = __builtin_elementwise_fma((soft_row)a[48 + k], y, r6);
		r7 = __builtin_elementwise_fma((soft_row)a[56 + k], y, r7);
	}
	to[0] = r0, to[1] = r1, to[2] = r2, to[3] = r3, to[4] = r4, to[5] = r5, to[6] = r6, to[7] = r7;
}

// Eight elements in a row, as floats.
METAL_FUNC soft_row soft_read(const float *p)
{
	typedef float unaligned __attribute__((ext_vector_type(8), aligned(4)));
	return *(const unaligned *)p;
}
METAL_FUNC soft_row soft_read(const half *p)
{
	typedef half unaligned __attribute__((ext_vector_type(8), aligned(2)));
	return __builtin_convertvector(*(const unaligned *)p, soft_row);
}
METAL_FUNC soft_row soft_read(const bfloat *p)
{
	typedef ushort unaligned __attribute__((ext_vector_type(8), aligned(2)));
	typedef uint wide __attribute__((ext_vector_type(8)));
	return __builtin_bit_cast(soft_row, __builtin_convertvector(*(const unaligned *)p, wide) << 16);
}

template <typename T> static __attribute__((noinline)) void soft_fetch(thread float *m, const T *p, ulong stride, bool transpose)
{
	soft_row r[8];
	_Pragma("clang loop unroll(full)")
	for (int i = 0; i < 8; i++)
		r[i] = soft_read(p + i * stride);
	if (transpose) {
		soft_row s[8];
		_Pragma("clang loop unroll(full)")
		for (int i = 0; i < 4; i++) {
			s[2 * i] = __builtin_shufflevector(r[2 * i], r[2 * i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
			s[2 * i + 1] = __builtin_shufflevector(r[2 * i], r[2 * i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
		}
		_Pragma("clang loop unroll(full)")
		for (int i = 0; i < 8; i += 4) {
			_Pragma("clang loop unroll(full)")
			for (int j = 0; j < 2; j++) {
				r[i + j] = __builtin_shufflevector(s[i + j], s[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
				r[i + j + 2] = __builtin_shufflevector(s[i + j], s[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
			}
		}
		_Pragma("clang loop unroll(full)")
		for (int i = 0; i < 4; i++) {
			s[i] = __builtin_shufflevector(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
			s[i + 4] = __builtin_shufflevector(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
		}
		_Pragma("clang loop unroll(full)")
		for (int i = 0; i < 8; i++)
			r[i] = s[i];
	}
	_Pragma("clang loop unroll(full)")
	for (int i = 0; i < 8; i++)
		((thread soft_row *)m)[i] = r[i];
}

template <typename T, int C, int R> struct simdgroup_matrix {
	static_assert(C == 8 && R == 8, "Metal has 8x8 only");
	alignas(32) float msl_m[64];
	vec<T, 2> msl_v;
	bool msl_split;

	METAL_FUNC simdgroup_matrix() : msl_split(false) {}
	explicit METAL_FUNC simdgroup_matrix(T x) : msl_split(false)       // a diagonal matrix
	{
		if (soft_lane() == 0) {
			for (int i = 0; i < 64; i++)
				msl_m[i] = i % 9 == 0 ? (float)x : 0.0f;
		}
	}
	// Each lane's part; msl_whole, the other way.
	METAL_FUNC thread vec<T, 2> &thread_elements(MSL_AT) thread
	{
		if (!msl_split) {
			float pair[2];
			soft_matrix_gather(msl_m, pair, msl_line);
			msl_v[0] = (T)pair[0];
			msl_v[1] = (T)pair[1];
			msl_split = true;
		}
		return msl_v;
	}
	METAL_FUNC void msl_whole(uint line) thread
	{
		if (msl_split) {
			soft_matrix_scatter(msl_m, (float)msl_v[0], (float)msl_v[1], line);
			msl_split = false;
		}
	}
};

template <typename T, int C, int R> METAL_FUNC simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T x)
{
	simdgroup_matrix<T, C, R> m;
	if (soft_lane() == 0) {
		for (int i = 0; i < 64; i++)
			m.msl_m[i] = (float)x;
	}
	return m;
}

#define MSL_MATRIX(SPACE) \
	template <typename T> METAL_FUNC void simdgroup_load(thread simdgroup_matrix<T, 8, 8> &m, SPACE const T *p, ulong stride = 8, ulong2 origin = 0, bool transpose = false) \
	{ \
		if (soft_lane() == 0) \
			soft_fetch(m.msl_m, (const T *)(p + origin.y * stride + origin.x), stride, transpose); \
		m.msl_split = false; \
	} \
	template <typename T> METAL_FUNC void simdgroup_store(thread const simdgroup_matrix<T, 8, 8> &m, SPACE T *p, ulong stride = 8, ulong2 origin = 0, bool transpose = false, MSL_AT) \
	{ \
		alignas(32) float scattered[64]; \
		thread const float *from = m.msl_m; \
		if (m.msl_split) { \
			soft_matrix_scatter(scattered, (float)m.msl_v.x, (float)m.msl_v.y, msl_line); \
			from = scattered; \
		} \
		if (soft_lane() != 0) \
			return; \
		p += origin.y * stride + origin.x; \
		for (uint r = 0; r < 8; r++) \
			for (uint c = 0; c < 8; c++) \
				p[transpose ? c * stride + r : r * stride + c] = (T)from[r * 8 + c]; \
	}
MSL_MATRIX(device)
MSL_MATRIX(threadgroup)
#undef MSL_MATRIX

template <typename D, typename A, typename B>
METAL_FUNC void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8> &d, thread simdgroup_matrix<A, 8, 8> &a,
	thread simdgroup_matrix<B, 8, 8> &b, thread simdgroup_matrix<D, 8, 8> &c, MSL_AT)
{
	a.msl_whole(msl_line);
	b.msl_whole(msl_line);
	c.msl_whole(msl_line);
	if (soft_lane() == 0) {
		soft_product(d.msl_m, a.msl_m, b.msl_m, c.msl_m);
		if constexpr (sizeof(D) == 2) {
			for (int i = 0; i < 64; i++)
				d.msl_m[i] = (float)(D)d.msl_m[i];
		}
	}
	d.msl_split = false;
}
