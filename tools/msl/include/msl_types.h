// msl_types.h: scalars, vectors, bfloat, conversions between them.

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef signed char int8_t;
typedef uchar uint8_t;
typedef short int16_t;
typedef ushort uint16_t;
typedef int int32_t;
typedef uint uint32_t;
typedef long int64_t;
typedef ulong uint64_t;

#define MSL_VECTORS(T)                                                                                                 \
	typedef T T##2 __attribute__((ext_vector_type(2)));                                                            \
	typedef T T##3 __attribute__((ext_vector_type(3)));                                                            \
	typedef T T##4 __attribute__((ext_vector_type(4)));
MSL_VECTORS(char)
MSL_VECTORS(uchar)
MSL_VECTORS(short)
MSL_VECTORS(ushort)
MSL_VECTORS(int)
MSL_VECTORS(uint)
MSL_VECTORS(long)
MSL_VECTORS(ulong)
MSL_VECTORS(half)
MSL_VECTORS(float)
#undef MSL_VECTORS

// Packed vectors, for data that is aligned to its elements only.  (There are none of three
// elements, because clang's have the size of four.)
#define MSL_PACKED(T, ALIGN)                                                                                           \
	typedef T packed_##T##2 __attribute__((ext_vector_type(2), aligned(ALIGN)));                                   \
	typedef T packed_##T##4 __attribute__((ext_vector_type(4), aligned(ALIGN)));
MSL_PACKED(char, 1)
MSL_PACKED(uchar, 1)
MSL_PACKED(short, 2)
MSL_PACKED(ushort, 2)
MSL_PACKED(int, 4)
MSL_PACKED(uint, 4)
MSL_PACKED(half, 2)
MSL_PACKED(float, 4)
#undef MSL_PACKED

namespace metal
{

// bfloat is for storing and converting.  It has no arithmetic here, although MSL 3.1 has some:
// float(x) shows where the rounding happens, and GPUs convert in the same way.
struct bfloat {
	ushort msl_bits;
	bfloat() = default;
	explicit METAL_FUNC bfloat(float x)
	{
		const uint u = __builtin_bit_cast(uint, x);
		const uint rounded = u + 0x7fff + (u >> 16 & 1);
		msl_bits = (ushort)((u & 0x7fffffff) > 0x7f800000 ? u >> 16 | 0x40 : rounded >> 16);
	}
	explicit METAL_FUNC operator float() const { return __builtin_bit_cast(float, (uint)msl_bits << 16); }
};
struct alignas(4) bfloat2 {
	bfloat x, y;
	METAL_FUNC bfloat operator[](uint i) const thread { return i == 0 ? x : y; }
	METAL_FUNC thread bfloat &operator[](uint i) thread { return i == 0 ? x : y; }
};
struct alignas(8) bfloat4 {
	bfloat x, y, z, w;
	METAL_FUNC bfloat operator[](uint i) const thread { return i == 0 ? x : i == 1 ? y : i == 2 ? z : w; }
	METAL_FUNC thread bfloat &operator[](uint i) thread { return i == 0 ? x : i == 1 ? y : i == 2 ? z : w; }
};

template <typename T, int N> struct msl_vec {
	typedef T type __attribute__((ext_vector_type(N)));
};
template <> struct msl_vec<bfloat, 2> {
	typedef bfloat2 type;
};
template <> struct msl_vec<bfloat, 4> {
	typedef bfloat4 type;
};
template <typename T, int N> using vec = typename msl_vec<T, N>::type;
template <typename T, int N> using msl_ext = T __attribute__((ext_vector_type(N))); // allows deduction

// Element type and size of a vector; a scalar is a vector of one element.
template <typename V> struct msl_shape {
	typedef V element;
	static constexpr constant int size = 1;
};
template <typename T, int N> struct msl_shape<T __attribute__((ext_vector_type(N)))> {
	typedef T element;
	static constexpr constant int size = N;
};

// Constructors.  clang's C++ has no float4(x, y, z, w), and float4(half4) would copy bits.
// So the vectors' names are also function-like macros that call these.
template <typename V, typename A> METAL_FUNC void msl_append(thread V &v, thread int &at, A a)
{
	typedef typename msl_shape<V>::element element;
	if constexpr (msl_shape<A>::size == 1) {
		v[at++] = (element)a;
	} else {
		for (int i = 0; i < msl_shape<A>::size; i++)
			v[at++] = (element)a[i];
	}
}
template <typename V, typename A> METAL_FUNC V msl_make(A a)
{
	if constexpr (msl_shape<V>::size == 1) {
		static_assert(msl_shape<A>::size == 1, "a vector does not convert to a scalar");
		return (V)a;
	} else if constexpr (msl_shape<A>::size == 1) {
		return (V)(typename msl_shape<V>::element)a;
	} else {
		static_assert(msl_shape<A>::size == msl_shape<V>::size, "vector sizes differ");
		return __builtin_convertvector(a, V);
	}
}
template <typename V, typename A, typename B, typename... C> METAL_FUNC V msl_make(A a, B b, C... c)
{
	static_assert(msl_shape<A>::size + msl_shape<B>::size + (0 + ... + msl_shape<C>::size) == msl_shape<V>::size,
		      "a vector takes as many parts as it has elements");
	V v;
	int at = 0;
	msl_append(v, at, a);
	msl_append(v, at, b);
	(msl_append(v, at, c), ...);
	return v;
}

template <> METAL_FUNC float2 msl_make<float2, bfloat2>(bfloat2 a)
{
	return __builtin_bit_cast(float2, __builtin_convertvector(__builtin_bit_cast(ushort2, a), uint2) << 16);
}
template <> METAL_FUNC float4 msl_make<float4, bfloat4>(bfloat4 a)
{
	return __builtin_bit_cast(float4, __builtin_convertvector(__builtin_bit_cast(ushort4, a), uint4) << 16);
}
template <> METAL_FUNC bfloat2 msl_make<bfloat2, float2>(float2 a)
{
	bfloat2 r;
	r.x = bfloat(a[0]);
	r.y = bfloat(a[1]);
	return r;
}
template <> METAL_FUNC bfloat4 msl_make<bfloat4, float4>(float4 a)
{
	bfloat4 r;
	r.x = bfloat(a[0]);
	r.y = bfloat(a[1]);
	r.z = bfloat(a[2]);
	r.w = bfloat(a[3]);
	return r;
}
template <> METAL_FUNC bfloat2 msl_make<bfloat2, bfloat2>(bfloat2 a) { return a; }
template <> METAL_FUNC bfloat4 msl_make<bfloat4, bfloat4>(bfloat4 a) { return a; }

#ifdef MSL_NV // one instruction for two
template <> METAL_FUNC half2 msl_make<half2, float2>(float2 a)
{
	uint r;
	__asm__("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(a[1]), "f"(a[0]));
	return __builtin_bit_cast(half2, r);
}
#endif

template <typename To, typename From> METAL_FUNC To as_type(From x)
{
	static_assert(sizeof(To) == sizeof(From), "as_type: sizes differ");
	return __builtin_bit_cast(To, x);
}

} // namespace metal

#define char2(...) metal::msl_make<char2>(__VA_ARGS__)
#define char4(...) metal::msl_make<char4>(__VA_ARGS__)
#define uchar2(...) metal::msl_make<uchar2>(__VA_ARGS__)
#define uchar4(...) metal::msl_make<uchar4>(__VA_ARGS__)
#define short2(...) metal::msl_make<short2>(__VA_ARGS__)
#define short4(...) metal::msl_make<short4>(__VA_ARGS__)
#define ushort2(...) metal::msl_make<ushort2>(__VA_ARGS__)
#define ushort3(...) metal::msl_make<ushort3>(__VA_ARGS__)
#define ushort4(...) metal::msl_make<ushort4>(__VA_ARGS__)
#define int2(...) metal::msl_make<int2>(__VA_ARGS__)
#define int3(...) metal::msl_make<int3>(__VA_ARGS__)
#define int4(...) metal::msl_make<int4>(__VA_ARGS__)
#define uint2(...) metal::msl_make<uint2>(__VA_ARGS__)
#define uint3(...) metal::msl_make<uint3>(__VA_ARGS__)
#define uint4(...) metal::msl_make<uint4>(__VA_ARGS__)
#define long2(...) metal::msl_make<long2>(__VA_ARGS__)
#define ulong2(...) metal::msl_make<ulong2>(__VA_ARGS__)
#define half2(...) metal::msl_make<half2>(__VA_ARGS__)
#define half3(...) metal::msl_make<half3>(__VA_ARGS__)
#define half4(...) metal::msl_make<half4>(__VA_ARGS__)
#define float2(...) metal::msl_make<float2>(__VA_ARGS__)
#define float3(...) metal::msl_make<float3>(__VA_ARGS__)
#define float4(...) metal::msl_make<float4>(__VA_ARGS__)
#define bfloat2(...) metal::msl_make<metal::bfloat2>(__VA_ARGS__)
#define bfloat4(...) metal::msl_make<metal::bfloat4>(__VA_ARGS__)
