// msl_soft_matrix.h: simdgroup matrices of the plain software device.
//
// A product of 8x8 matrices is 512 multiplications; synchronising 32 fibers for it takes ten
// times as long.  But between two barriers the time at which a matrix function runs has no
// effect, so the first lane, the lead, does all work on whole matrices in its own object.
// The other lanes skip the function and do not use their objects.
//
// thread_elements() returns to each lane a reference to its pair in the lead's matrix, which is
// then lent; a lane that arrives before the lead waits for it.  Before the lead reads, changes
// or destroys a lent matrix, it lets the other lanes run until they wait for it
// (soft_matrix_settle): by then they have finished with their elements.
//
// Sums have the order of the checked variant and the same bits.

typedef float soft_row __attribute__((ext_vector_type(8)));

#define UNROLL_8 _Pragma("clang loop unroll(full)")

// Eight elements in a row, as floats, and back.
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
METAL_FUNC void soft_write(float *p, soft_row x)
{
	typedef float unaligned __attribute__((ext_vector_type(8), aligned(4)));
	*(unaligned *)p = x;
}
METAL_FUNC void soft_write(half *p, soft_row x)
{
	typedef half plain __attribute__((ext_vector_type(8)));
	typedef half unaligned __attribute__((ext_vector_type(8), aligned(2)));
	*(unaligned *)p = __builtin_convertvector(x, plain);
}
METAL_FUNC void soft_write(bfloat *p, soft_row x)
{
	for (int i = 0; i < 8; i++)
		p[i] = bfloat(x[i]);
}

// d = a * b + c of 8x8, k ascending, each step one fused multiply-add.
template <typename D, typename A, typename B>
static __attribute__((noinline)) void soft_product(D *d, const A *a, const B *b, const D *c)
{
	float rows_of_a[64];
	soft_row r[8];
	UNROLL_8
	for (int i = 0; i < 8; i++) {
		soft_write(rows_of_a + i * 8, soft_read(a + i * 8));
		r[i] = soft_read(c + i * 8);
	}
	UNROLL_8
	for (int k = 0; k < 8; k++) {
		const soft_row y = soft_read(b + k * 8);
		UNROLL_8
		for (int i = 0; i < 8; i++)
			r[i] = __builtin_elementwise_fma((soft_row)rows_of_a[i * 8 + k], y, r[i]);
	}
	UNROLL_8
	for (int i = 0; i < 8; i++)
		soft_write(d + i * 8, r[i]);
}

template <int SIZE> struct soft_bits;
template <> struct soft_bits<2> {
	typedef ushort row __attribute__((ext_vector_type(8)));
};
template <> struct soft_bits<4> {
	typedef uint row __attribute__((ext_vector_type(8)));
};

// Eight rows of eight.
template <typename T>
static __attribute__((noinline)) void soft_copy(T *to, ulong to_stride, const T *from, ulong from_stride,
						bool transpose)
{
	typedef typename soft_bits<sizeof(T)>::row row;
	row x[8], y[8];
	UNROLL_8
	for (int r = 0; r < 8; r++)
		__builtin_memcpy(&x[r], from + r * from_stride, sizeof(row));
	if (transpose) {
		UNROLL_8
		for (int stage = 0; stage < 3; stage++) { // interleaving rows i and i + 4, three times
			UNROLL_8
			for (int i = 0; i < 4; i++) {
				y[2 * i] = __builtin_shufflevector(x[i], x[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
				y[2 * i + 1] = __builtin_shufflevector(x[i], x[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
			}
			UNROLL_8
			for (int i = 0; i < 8; i++)
				x[i] = y[i];
		}
	}
	UNROLL_8
	for (int r = 0; r < 8; r++)
		__builtin_memcpy(to + r * to_stride, &x[r], sizeof(row));
}

template <typename T> static __attribute__((noinline)) void soft_fill(T *m, T x)
{
	for (int i = 0; i < 64; i++)
		m[i] = x;
}

METAL_FUNC bool soft_lead() { return soft_lane() == 0; }

template <typename T, int C, int R> struct simdgroup_matrix {
	static_assert(C == 8 && R == 8, "Metal has 8x8 only");
	alignas(32) T msl_m[64]; // the lead's; row after row
	bool msl_lent;		 // the lead's

	METAL_FUNC simdgroup_matrix()
	{
		if (soft_lead())
			msl_lent = false;
	}
	explicit METAL_FUNC simdgroup_matrix(T x) // a diagonal matrix
	{
		if (soft_lead()) {
			msl_lent = false;
			for (int i = 0; i < 64; i++)
				msl_m[i] = i % 9 == 0 ? x : (T)0.0f;
		}
	}
	METAL_FUNC simdgroup_matrix(const simdgroup_matrix &from)
	{
		if (soft_lead()) {
			msl_lent = false;
			msl_copy(from);
		}
	}
	METAL_FUNC simdgroup_matrix &operator=(const simdgroup_matrix &from)
	{
		if (soft_lead()) {
			msl_take_back();
			msl_copy(from);
		}
		return *this;
	}
	METAL_FUNC ~simdgroup_matrix()
	{
		if (soft_lead())
			msl_settle();
	}

	METAL_FUNC thread vec<T, 2> &thread_elements(MSL_AT) thread
	{
		const uint lane = soft_lane();
		if (lane == 0)
			msl_lent = true;
		T *m = (T *)soft_matrix_lend(msl_m, msl_line);
		return *(thread vec<T, 2> *)(m + msl_matrix_row(lane) * 8 + msl_matrix_column(lane));
	}

	__attribute__((noinline)) void msl_copy(const simdgroup_matrix &from)
	{
		from.msl_settle();
		__builtin_memcpy(msl_m, from.msl_m, sizeof msl_m);
	}
	METAL_FUNC void msl_settle() const
	{
		if (__builtin_expect(msl_lent, false))
			soft_matrix_settle();
	}
	METAL_FUNC void msl_take_back()
	{
		msl_settle();
		msl_lent = false;
	}
};

template <typename T, int C, int R> METAL_FUNC simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T x)
{
	simdgroup_matrix<T, C, R> m;
	if (soft_lead())
		soft_fill<T>((T *)m.msl_m, x);
	return m;
}

// The lead's work, out of line: kernels are large, and the other lanes skip it.
template <typename T>
static __attribute__((noinline)) void soft_load_matrix(simdgroup_matrix<T, 8, 8> &m, const T *p, ulong stride,
						       bool transpose)
{
	m.msl_take_back();
	soft_copy((T *)m.msl_m, 8, p, stride, transpose);
}
template <typename T>
static __attribute__((noinline)) void soft_store_matrix(const simdgroup_matrix<T, 8, 8> &m, T *p, ulong stride,
							bool transpose)
{
	m.msl_settle();
	if (transpose) {
		T turned[64];
		soft_copy<T>((T *)turned, 8, (const T *)m.msl_m, 8, true);
		soft_copy<T>(p, stride, (const T *)turned, 8, false);
	} else {
		soft_copy(p, stride, (const T *)m.msl_m, 8, false);
	}
}
template <typename D, typename A, typename B>
static __attribute__((noinline)) void soft_multiply(simdgroup_matrix<D, 8, 8> &d, simdgroup_matrix<A, 8, 8> &a,
						    simdgroup_matrix<B, 8, 8> &b, simdgroup_matrix<D, 8, 8> &c)
{
	a.msl_take_back();
	b.msl_take_back();
	c.msl_take_back();
	d.msl_take_back();
	soft_product<D, A, B>((D *)d.msl_m, (const A *)a.msl_m, (const B *)b.msl_m, (const D *)c.msl_m);
}

#define MSL_MATRIX(SPACE)                                                                                              \
	template <typename T>                                                                                          \
	METAL_FUNC void simdgroup_load(thread simdgroup_matrix<T, 8, 8> &m, SPACE const T *p, ulong stride = 8,        \
				       ulong2 origin = 0, bool transpose = false)                                      \
	{                                                                                                              \
		if (soft_lead())                                                                                       \
			soft_load_matrix<T>(m, (const T *)(p + origin.y * stride + origin.x), stride, transpose);      \
	}                                                                                                              \
	template <typename T>                                                                                          \
	METAL_FUNC void simdgroup_store(thread const simdgroup_matrix<T, 8, 8> &m, SPACE T *p, ulong stride = 8,       \
					ulong2 origin = 0, bool transpose = false)                                     \
	{                                                                                                              \
		if (soft_lead())                                                                                       \
			soft_store_matrix<T>(m, (T *)(p + origin.y * stride + origin.x), stride, transpose);           \
	}
MSL_MATRIX(device)
MSL_MATRIX(threadgroup)
#undef MSL_MATRIX

template <typename D, typename A, typename B>
METAL_FUNC void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8> &d, thread simdgroup_matrix<A, 8, 8> &a,
					      thread simdgroup_matrix<B, 8, 8> &b, thread simdgroup_matrix<D, 8, 8> &c)
{
	if (soft_lead())
		soft_multiply<D, A, B>(d, a, b, c);
}

#undef UNROLL_8
