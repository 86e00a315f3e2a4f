// msl_math.h: arithmetic.  Functions of one float come in MSL's three spellings: plain
// (fast or precise by the host's math mode), fast:: and precise::.  A back end
// defines msl_NAME and, if it has a more precise one for precise::, msl_precise_NAME.

#define MSL_ELEMENTWISE(F, BACK)                                                                                       \
	METAL_FUNC float F(float x) { return BACK(x); }                                                                \
	METAL_FUNC half F(half x) { return (half)BACK((float)x); }                                                     \
	template <typename T, int N> METAL_FUNC msl_ext<T, N> F(msl_ext<T, N> x)                                       \
	{                                                                                                              \
		msl_ext<T, N> r;                                                                                       \
		for (int i = 0; i < N; i++)                                                                            \
			r[i] = (T)BACK((float)x[i]);                                                                   \
		return r;                                                                                              \
	}
#define MSL_FLOAT_ONLY(F, BACK)                                                                                        \
	METAL_FUNC float F(float x) { return BACK(x); }                                                                \
	template <int N> METAL_FUNC msl_ext<float, N> F(msl_ext<float, N> x)                                           \
	{                                                                                                              \
		msl_ext<float, N> r;                                                                                   \
		for (int i = 0; i < N; i++)                                                                            \
			r[i] = BACK(x[i]);                                                                             \
		return r;                                                                                              \
	}
#define MSL_THREE(F)                                                                                                   \
	MSL_ELEMENTWISE(F, msl_##F)                                                                                    \
	namespace fast                                                                                                 \
	{                                                                                                              \
	MSL_FLOAT_ONLY(F, msl_##F)                                                                                     \
	}                                                                                                              \
	namespace precise                                                                                              \
	{                                                                                                              \
	MSL_FLOAT_ONLY(F, msl_precise_##F)                                                                             \
	}

MSL_THREE(exp)
MSL_THREE(exp2)
MSL_THREE(log)
MSL_THREE(log2)
MSL_THREE(sqrt)
MSL_THREE(rsqrt)
MSL_THREE(sin)
MSL_THREE(cos)
MSL_THREE(tanh)
MSL_ELEMENTWISE(fabs, __builtin_fabsf)
MSL_ELEMENTWISE(floor, __builtin_floorf)
MSL_ELEMENTWISE(ceil, __builtin_ceilf)
MSL_ELEMENTWISE(trunc, __builtin_truncf)
MSL_ELEMENTWISE(rint, msl_rint)
MSL_ELEMENTWISE(round, msl_round)
#undef MSL_THREE
#undef MSL_FLOAT_ONLY
#undef MSL_ELEMENTWISE

namespace fast
{
METAL_FUNC float divide(float x, float y) { return msl_divide(x, y); }
} // namespace fast
namespace precise
{
METAL_FUNC float divide(float x, float y) { return msl_precise_divide(x, y); }
} // namespace precise

METAL_FUNC float pow(float x, float y) { return msl_pow(x, y); }
METAL_FUNC float powr(float x, float y) { return msl_pow(x, y); }
METAL_FUNC float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#ifdef MSL_NV
METAL_FUNC half fma(half a, half b, half c) { return __builtin_elementwise_fma(a, b, c); }
template <int N> METAL_FUNC msl_ext<half, N> fma(msl_ext<half, N> a, msl_ext<half, N> b, msl_ext<half, N> c)
{
	return __builtin_elementwise_fma(a, b, c);
}
#else
// Rounded once.  The product is exact as a float, and what the sum loses is `rest`; of its two
// neighbours the odd one is taken, so that rounding it to a half sees that something follows.
METAL_FUNC half fma(half a, half b, half c)
{
	const float p = (float)a * (float)b, q = (float)c, sum = p + q;
	const float part = sum - p, rest = (p - (sum - part)) + (q - part);
	uint bits = __builtin_bit_cast(uint, sum);
	if (rest != 0.0f && sum - sum == 0.0f && bits % 2 == 0)
		bits += (rest > 0.0f) == (sum > 0.0f) ? 1 : -1;
	return (half) __builtin_bit_cast(float, bits);
}
template <int N> METAL_FUNC msl_ext<half, N> fma(msl_ext<half, N> a, msl_ext<half, N> b, msl_ext<half, N> c)
{
	for (int i = 0; i < N; i++)
		a[i] = fma((half)a[i], (half)b[i], (half)c[i]);
	return a;
}
#endif
template <int N> METAL_FUNC msl_ext<float, N> fma(msl_ext<float, N> a, msl_ext<float, N> b, msl_ext<float, N> c)
{
	for (int i = 0; i < N; i++)
		a[i] = __builtin_fmaf(a[i], b[i], c[i]);
	return a;
}
METAL_FUNC bool isinf(float x) { return (__builtin_bit_cast(uint, x) & 0x7fffffff) == 0x7f800000; }
METAL_FUNC bool isnan(float x) { return (__builtin_bit_cast(uint, x) & 0x7fffffff) > 0x7f800000; }
METAL_FUNC bool isfinite(float x) { return (__builtin_bit_cast(uint, x) & 0x7fffffff) < 0x7f800000; }
METAL_FUNC float copysign(float x, float y) { return __builtin_copysignf(x, y); }
METAL_FUNC float sign(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f; }
METAL_FUNC float ldexp(float x, int n) { return __builtin_ldexpf(x, n); }
METAL_FUNC float mix(float x, float y, float a) { return x + (y - x) * a; }
METAL_FUNC float step(float edge, float x) { return x < edge ? 0.0f : 1.0f; }

// As in Metal, all arguments must have the same type.
#define MSL_ORDER(T)                                                                                                   \
	METAL_FUNC T min(T a, T b) { return b < a ? b : a; }                                                           \
	METAL_FUNC T max(T a, T b) { return a < b ? b : a; }                                                           \
	METAL_FUNC T clamp(T x, T low, T high) { return min(max(x, low), high); }
MSL_ORDER(char)
MSL_ORDER(uchar)
MSL_ORDER(short)
MSL_ORDER(ushort)
MSL_ORDER(int)
MSL_ORDER(uint)
MSL_ORDER(long)
MSL_ORDER(ulong)
#undef MSL_ORDER
// Given a number and a NaN, these return the number.
#define MSL_ORDER(T)                                                                                                   \
	METAL_FUNC T fmin(T a, T b) { return b < a || a != a ? b : a; }                                                \
	METAL_FUNC T fmax(T a, T b) { return a < b || a != a ? b : a; }
MSL_ORDER(half)
#ifdef MSL_NV // one instruction each; a comparison takes four
METAL_FUNC float fmin(float a, float b) { return __builtin_fminf(a, b); }
METAL_FUNC float fmax(float a, float b) { return __builtin_fmaxf(a, b); }
#else
MSL_ORDER(float)
#endif
#undef MSL_ORDER
#define MSL_ORDER(T)                                                                                                   \
	METAL_FUNC T min(T a, T b) { return fmin(a, b); }                                                              \
	METAL_FUNC T max(T a, T b) { return fmax(a, b); }                                                              \
	METAL_FUNC T clamp(T x, T low, T high) { return fmin(fmax(x, low), high); }                                    \
	METAL_FUNC T saturate(T x) { return clamp(x, (T)0.0f, (T)1.0f); }
MSL_ORDER(float)
MSL_ORDER(half)
#undef MSL_ORDER
#define MSL_ORDER(F)                                                                                                   \
	template <typename T, int N> METAL_FUNC msl_ext<T, N> F(msl_ext<T, N> a, msl_ext<T, N> b)                      \
	{                                                                                                              \
		for (int i = 0; i < N; i++)                                                                            \
			a[i] = F(a[i], b[i]);                                                                          \
		return a;                                                                                              \
	}
MSL_ORDER(min)
MSL_ORDER(max)
MSL_ORDER(fmin)
MSL_ORDER(fmax)
#undef MSL_ORDER
template <typename T, int N> METAL_FUNC msl_ext<T, N> clamp(msl_ext<T, N> x, msl_ext<T, N> low, msl_ext<T, N> high)
{
	return min(max(x, low), high);
}
METAL_FUNC int abs(int x) { return x < 0 ? -x : x; }
METAL_FUNC float abs(float x) { return __builtin_fabsf(x); }
METAL_FUNC half abs(half x) { return (half)__builtin_fabsf((float)x); }
template <int N> METAL_FUNC msl_ext<float, N> abs(msl_ext<float, N> x) { return fabs(x); }

template <typename T, int N> METAL_FUNC T dot(msl_ext<T, N> a, msl_ext<T, N> b)
{
	T s = a[0] * b[0];
	for (int i = 1; i < N; i++)
		s += a[i] * b[i];
	return s;
}

// select(a, b, c) is c ? b : a.
#define MSL_SELECT(T)                                                                                                  \
	METAL_FUNC T select(T a, T b, bool c) { return c ? b : a; }
MSL_SELECT(int)
MSL_SELECT(uint)
MSL_SELECT(long)
MSL_SELECT(ulong)
MSL_SELECT(short)
MSL_SELECT(ushort)
MSL_SELECT(float)
MSL_SELECT(half)
#undef MSL_SELECT
template <typename T, typename M, int N>
METAL_FUNC msl_ext<T, N> select(msl_ext<T, N> a, msl_ext<T, N> b, msl_ext<M, N> c)
{
	for (int i = 0; i < N; i++)
		a[i] = c[i] ? b[i] : a[i];
	return a;
}
template <typename M, int N> METAL_FUNC bool any(msl_ext<M, N> c)
{
	bool r = false;
	for (int i = 0; i < N; i++)
		r = r || c[i];
	return r;
}
template <typename M, int N> METAL_FUNC bool all(msl_ext<M, N> c)
{
	bool r = true;
	for (int i = 0; i < N; i++)
		r = r && c[i];
	return r;
}

// -- integers ---------------------------------------------------------------------------

METAL_FUNC uint popcount(uint x) { return (uint)__builtin_popcount(x); }
METAL_FUNC int popcount(int x) { return __builtin_popcount((uint)x); }
METAL_FUNC ulong popcount(ulong x) { return (ulong)__builtin_popcountl(x); }
METAL_FUNC uint clz(uint x) { return x == 0 ? 32u : (uint)__builtin_clz(x); }
METAL_FUNC int clz(int x) { return (int)clz((uint)x); }
METAL_FUNC ulong clz(ulong x) { return x == 0 ? 64ul : (ulong)__builtin_clzl(x); }
METAL_FUNC uint ctz(uint x) { return x == 0 ? 32u : (uint)__builtin_ctz(x); }
METAL_FUNC int ctz(int x) { return (int)ctz((uint)x); }
METAL_FUNC ulong ctz(ulong x) { return x == 0 ? 64ul : (ulong)__builtin_ctzl(x); }
METAL_FUNC uint mulhi(uint a, uint b) { return (uint)((ulong)a * b >> 32); }
METAL_FUNC int mulhi(int a, int b) { return (int)((long)a * b >> 32); }
METAL_FUNC uint rotate(uint x, uint by) { return x << (by & 31) | x >> (-by & 31); }
METAL_FUNC uint extract_bits(uint x, uint offset, uint bits)
{
	return bits == 0 ? 0u : x >> offset & 0xffffffffu >> (32 - bits);
}
METAL_FUNC int extract_bits(int x, uint offset, uint bits)
{
	return bits == 0 ? 0 : x << (32 - bits - offset) >> (32 - bits);
}
