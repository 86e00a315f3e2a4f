// msl_tensor.h: what shaders use of Metal 4's tensors and of Apple's Metal Performance Primitives:
// tensors of two dimensions over memory that somebody else owns (tensor_inline), and matmul2d by one
// simdgroup, whose destination is a cooperative tensor.  Names, argument orders and limits are those of
// MPPTensorOpsMatMul2d.h of macOS 26; extent 0 is the one whose elements are neighbours.
//
// matmul2d's template argument is a descriptor, a class, which clang's OpenCL mode does not take:
// shaders write tensor_product<M, N, K> (portable.h), here and for Apple's compiler.
//
// The software device's unit has an order of sums of its own, like a real one: sixteen products at a time
// are added as a tree, and their sum to the destination.  Where a lane's elements are is not Apple's
// either, and not all of them are valid: code that relies on more than Apple promises fails here.
#ifndef MSL_TENSOR_H
#define MSL_TENSOR_H
#ifndef MSL_SCAN

namespace metal
{

struct tensor_inline {
};
struct execution_simdgroup {
};

template <typename I, int... E> struct extents;
template <typename I, int E0, int E1> struct extents<I, E0, E1> {
	static constexpr __constant int msl_0 = E0, msl_1 = E1;
};

template <typename T> struct msl_plain {
	typedef T type;
};
template <typename T> struct msl_plain<device T> {
	typedef T type;
};
template <typename T> struct msl_plain<threadgroup T> {
	typedef T type;
};
template <typename A, typename B> struct msl_same {
	static constexpr __constant bool value = false;
};
template <typename A> struct msl_same<A, A> {
	static constexpr __constant bool value = true;
};

template <typename E, typename X, typename D> class tensor;
template <typename E, typename X> class tensor<E, X, tensor_inline>
{
      public:
	typedef typename msl_plain<E>::type element_type;
	typedef X extents_type;
	METAL_FUNC tensor(E *p, X) : msl_p(p) {}

	E *msl_p;
};

// Of M rows of N columns, of all lanes of a simdgroup.
template <typename T, int M, int N> class cooperative_tensor
{
      public:
	METAL_FUNC cooperative_tensor()
	{
		for (int i = 0; i < msl_n; i++)
			msl_v[i] = NAN; // nobody has cleared it
	}
	METAL_FUNC ushort get_capacity() thread const { return (ushort)msl_n; }
	METAL_FUNC bool is_valid_element(ushort i) thread const { return i > 0; }
	METAL_FUNC thread T &operator[](ushort i) thread { return msl_v[i]; }
	METAL_FUNC thread const T &operator[](ushort i) thread const { return msl_v[i]; }
	template <typename E, typename X> METAL_FUNC void store(thread tensor<E, X, tensor_inline> &to) thread const
	{
		static_assert(X::msl_0 >= N && X::msl_1 >= M, "store: the tensor is smaller than the product");
		static_assert(msl_same<typename msl_plain<E>::type, T>::value, "store: another type");
		for (int i = 1; i < msl_n; i++)
			to.msl_p[msl_row(i) * X::msl_0 + msl_column(i)] = msl_v[i];
	}

	static METAL_FUNC int msl_row(int i) { return msl_lane() % 16 + (i - 1) / (N / 2) * 16; }
	static METAL_FUNC int msl_column(int i) { return (i - 1) % (N / 2) * 2 + (int)(msl_lane() / 16); }

	static constexpr __constant int msl_n = M * N / 32 + 1; // element 0 is no one's
	T msl_v[msl_n];
};

#ifdef MSL_STRICT
uint msl_lane();
#endif

typedef float msl_eight __attribute__((ext_vector_type(8)));
typedef half msl_eight_halves __attribute__((ext_vector_type(8)));
typedef ushort msl_eight_words __attribute__((ext_vector_type(8)));
typedef uint msl_eight_bits __attribute__((ext_vector_type(8)));

// Eight elements at a multiple of 16 bytes, which such units may ask for.
METAL_FUNC msl_eight msl_read_8(threadgroup const half *p)
{
	return __builtin_convertvector(*(threadgroup const msl_eight_halves *)p, msl_eight);
}
METAL_FUNC msl_eight msl_read_8(threadgroup const bfloat *p)
{
	return __builtin_bit_cast(
		msl_eight, __builtin_convertvector(*(threadgroup const msl_eight_words *)p, msl_eight_bits) << 16);
}

// Sixteen products: those of elements j and j + 8, added by halves.
METAL_FUNC float msl_dot_16(const msl_eight *a, const msl_eight *b)
{
	const msl_eight s = a[0] * b[0] + a[1] * b[1];
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

// An M x N product over K; the right operand has a row for each of the N columns.  It adds to its destination.
template <int M, int N, int K, typename S> class msl_matmul2d
{
	static_assert(M % 16 == 0 || N % 16 == 0, "at least one of M and N must be a multiple of 16");
	static_assert(N % 8 == 0 && N <= 128, "N must be a multiple of 8, and at most 128");
	static_assert(K % 16 == 0, "K must be a multiple of 16");
	static_assert(M % 16 == 0, "the software device has whole fragments of rows only");
	static_assert(msl_same<S, execution_simdgroup>::value, "the software device has one simdgroup only");

      public:
	template <typename L, typename R, typename T>
	METAL_FUNC cooperative_tensor<T, M, N> get_destination_cooperative_tensor() thread const
	{
		return cooperative_tensor<T, M, N>();
	}
	template <typename L, typename R>
	METAL_FUNC void run(thread L &left, thread R &right, thread cooperative_tensor<float, M, N> &to,
			    MSL_AT) thread const
	{
		typedef typename L::element_type element;
		static_assert(msl_same<element, typename R::element_type>::value, "operands of two types");
		static_assert(msl_same<element, half>::value || msl_same<element, bfloat>::value,
			      "the software device multiplies half and bfloat");
		static_assert(L::extents_type::msl_0 == K && L::extents_type::msl_1 >= M,
			      "extents of the left operand");
		static_assert(R::extents_type::msl_0 == K && R::extents_type::msl_1 >= N,
			      "extents of the right operand");
		msl_simdgroup_barrier(0, msl_line); // all lanes come here
		const int columns = N / 2;	    // of a lane, in each of its rows
		for (int i = 1; i < to.msl_n; i += columns) {
			threadgroup const element *a = left.msl_p + to.msl_row(i) * K;
			msl_eight x[K / 8], w[K / 8];
			for (int k = 0; k < K / 8; k++)
				x[k] = msl_read_8(a + k * 8);
			for (int j = 0; j < columns; j++) {
				threadgroup const element *b = right.msl_p + to.msl_column(i + j) * K;
				for (int k = 0; k < K / 8; k++)
					w[k] = msl_read_8(b + k * 8);
				for (int k = 0; k < K / 8; k += 2)
					to.msl_v[i + j] += msl_dot_16(x + k, w + k);
			}
		}
	}
};

} // namespace metal

#endif
#endif
