// msl_nv.h: the back end for NVIDIA GPUs of compute capability 8.0 and up.

// -- arithmetic ----------------------------------------------------------------------------

METAL_FUNC float msl_rint(float x) { return __builtin_rintf(x); }
METAL_FUNC float msl_round(float x) { return __builtin_copysignf(__builtin_floorf(__builtin_fabsf(x) + 0.5f), x); }
METAL_FUNC float msl_exp2(float x) { return __nvvm_ex2_approx_f(x); }
// The same, but zero where the result is denormal.
METAL_FUNC float nv_exp2_flushed(float x) { return __nvvm_ex2_approx_ftz_f(x); }
METAL_FUNC float msl_exp(float x) { return __nvvm_ex2_approx_f(x * M_LOG2E_F); }
METAL_FUNC float msl_log2(float x) { return __nvvm_lg2_approx_f(x); }
METAL_FUNC float msl_log(float x) { return __nvvm_lg2_approx_f(x) * M_LN2_F; }
METAL_FUNC float msl_sqrt(float x) { return __nvvm_sqrt_approx_f(x); }
METAL_FUNC float msl_rsqrt(float x) { return __nvvm_rsqrt_approx_f(x); }
METAL_FUNC float msl_sin(float x) { return __nvvm_sin_approx_f(x); }
METAL_FUNC float msl_cos(float x) { return __nvvm_cos_approx_f(x); }
METAL_FUNC float msl_tanh(float x) { return 1.0f - 2.0f / (msl_exp(2.0f * x) + 1.0f); }
METAL_FUNC float msl_pow(float x, float y) { return msl_exp2(y * msl_log2(x)); }
METAL_FUNC float msl_divide(float x, float y) { return __nvvm_div_approx_f(x, y); }

METAL_FUNC float msl_precise_divide(float x, float y) { return __nvvm_div_rn_f(x, y); }
METAL_FUNC float msl_precise_sqrt(float x) { return __nvvm_sqrt_rn_f(x); }
METAL_FUNC float msl_precise_rsqrt(float x) { return __nvvm_div_rn_f(1.0f, __nvvm_sqrt_rn_f(x)); }

// 2^x: the integer part is exact, the fraction, at most 1/2, is within about 2 ulp.
METAL_FUNC float msl_precise_exp2(float x)
{
	const float whole = __builtin_rintf(x);
	if (!(__builtin_fabsf(x) < 126.0f))
		return __nvvm_ex2_approx_f(x);
	return __nvvm_ex2_approx_f(x - whole) * __builtin_bit_cast(float, (uint)((int)whole + 127) << 23);
}
// e^x: x * log2(e) is computed in two parts, because its error would be multiplied by x.
METAL_FUNC float msl_precise_exp(float x)
{
	const float p = x * M_LOG2E_F;
	if (!(__builtin_fabsf(p) < 126.0f))
		return __nvvm_ex2_approx_f(p);
	const float whole = __builtin_rintf(p);
	const float rest = __builtin_fmaf(x, 1.92596299e-8f, __builtin_fmaf(x, M_LOG2E_F, -whole));
	return __nvvm_ex2_approx_f(rest) * __builtin_bit_cast(float, (uint)((int)whole + 127) << 23);
}
// log: x = m * 2^e with m around 1; log m = 2 artanh((m - 1) / (m + 1)) as a series.
METAL_FUNC float msl_precise_log(float x)
{
	const bool tiny = x < FLT_MIN;
	const uint u = __builtin_bit_cast(uint, tiny ? x * 16777216.0f : x);
	if (u - 1 >= 0x7f7fffff) // 0, negative, infinite, NaN
		return __nvvm_lg2_approx_f(x);
	const int e = (int)(u - 0x3f3504f3) >> 23; // m from sqrt(1/2) to sqrt(2)
	const float m = __builtin_bit_cast(float, u - ((uint)e << 23)) - 1.0f;
	const float s = __nvvm_div_rn_f(m, 2.0f + m), z = s * s;
	const float tail = z * __builtin_fmaf(z, __builtin_fmaf(z, __builtin_fmaf(z, 0.22222222f, 0.28571429f), 0.4f),
					      0.66666667f);
	// m - (m^2/2 - s (m^2/2 + tail)): the large part of the series exactly
	const float half_square = 0.5f * m * m;
	const float n = (float)(tiny ? e - 24 : e);
	return __builtin_fmaf(n, 0.693145752f,
			      m - (half_square - __builtin_fmaf(s, half_square + tail, n * 1.42860677e-6f)));
}
METAL_FUNC float msl_precise_log2(float x) { return msl_precise_log(x) * M_LOG2E_F; }

// sin and cos: x minus a multiple of pi/2 in three parts (accurate up to |x| of about 100,000),
// then a polynomial on -pi/4 .. pi/4.
METAL_FUNC float nv_sine(float x, int quarter)
{
	const float n = __builtin_rintf(x * M_2_PI_F);
	float r = __builtin_fmaf(n, -1.57079601f, x);
	r = __builtin_fmaf(n, -3.13916473e-7f, r);
	r = __builtin_fmaf(n, -5.39030253e-15f, r);
	const int q = (int)n + quarter;
	const float z = r * r;
	const float sine = __builtin_fmaf(
		r * z, __builtin_fmaf(z, __builtin_fmaf(z, -1.9515296e-4f, 8.3321609e-3f), -1.6666655e-1f), r);
	const float cosine = __builtin_fmaf(
		z * z, __builtin_fmaf(z, __builtin_fmaf(z, 2.4433157e-5f, -1.3887316e-3f), 4.1666646e-2f),
		__builtin_fmaf(z, -0.5f, 1.0f));
	const float y = (q & 1) != 0 ? cosine : sine;
	return (q & 2) != 0 ? -y : y;
}
METAL_FUNC float msl_precise_sin(float x) { return nv_sine(x, 0); }
METAL_FUNC float msl_precise_cos(float x) { return nv_sine(x, 1); }
METAL_FUNC float msl_precise_tanh(float x)
{
	const float a = __builtin_fabsf(x), z = x * x;
	if (a < 0.25f)
		return __builtin_fmaf(
			x * z,
			__builtin_fmaf(z,
				       __builtin_fmaf(z, __builtin_fmaf(z, 0.021869489f, -0.053968254f), 0.13333333f),
				       -0.33333333f),
			x);
	return __builtin_copysignf(1.0f - __nvvm_div_rn_f(2.0f, msl_precise_exp(2.0f * a) + 1.0f), x);
}
METAL_FUNC float msl_precise_rint(float x) { return msl_rint(x); }
METAL_FUNC float msl_precise_round(float x) { return msl_round(x); }

// -- simdgroups ------------------------------------------------------------------------------

#define NV_SHUFFLE(NAME, MODE, CLAMP)                                                                                  \
	METAL_FUNC uint nv_##NAME(uint x, uint by)                                                                     \
	{                                                                                                              \
		return (uint)__nvvm_shfl_sync_##MODE##_i32(0xffffffff, (int)x, (int)by, CLAMP);                        \
	}                                                                                                              \
	template <typename T> METAL_FUNC T msl_##NAME(T x, ushort by, uint)                                            \
	{                                                                                                              \
		if constexpr (sizeof(T) == 2) {                                                                        \
			return __builtin_bit_cast(T, (ushort)nv_##NAME(__builtin_bit_cast(ushort, x), by));            \
		} else if constexpr (sizeof(T) == 4) {                                                                 \
			return __builtin_bit_cast(T, nv_##NAME(__builtin_bit_cast(uint, x), by));                      \
		} else {                                                                                               \
			typedef msl_ext<uint, sizeof(T) / 4> words;                                                    \
			words w = __builtin_bit_cast(words, x);                                                        \
			for (uint i = 0; i < sizeof(T) / 4; i++)                                                       \
				w[i] = nv_##NAME(w[i], by);                                                            \
			return __builtin_bit_cast(T, w);                                                               \
		}                                                                                                      \
	}
NV_SHUFFLE(shuffle, idx, 31)
NV_SHUFFLE(shuffle_xor, bfly, 31)
NV_SHUFFLE(shuffle_down, down, 31)
NV_SHUFFLE(shuffle_up, up, 0)
#undef NV_SHUFFLE

// The order of these sums is that of the software device: halves, quarters, and so on.
#define NV_REDUCE(NAME, X)                                                                                             \
	template <typename T> METAL_FUNC T msl_simd_##NAME(T x, uint)                                                  \
	{                                                                                                              \
		for (ushort m = 16; m != 0; m /= 2) {                                                                  \
			const T y = msl_shuffle_xor(x, m, 0);                                                          \
			x = X;                                                                                         \
		}                                                                                                      \
		return x;                                                                                              \
	}
NV_REDUCE(sum, x + y)
NV_REDUCE(max, x < y ? y : x)
NV_REDUCE(min, y < x ? y : x)
NV_REDUCE(and, x &y)
NV_REDUCE(or, x | y)
NV_REDUCE(xor, x ^ y)
#undef NV_REDUCE
METAL_FUNC uint msl_simd_max(uint x, uint) { return __nvvm_redux_sync_umax(x, -1); }
template <typename T> METAL_FUNC T msl_simd_prefix(T x, bool exclusive, uint)
{
	const uint lane = (uint)__nvvm_read_ptx_sreg_laneid();
	for (ushort d = 1; d < 32; d *= 2) {
		const T y = msl_shuffle_up(x, d, 0);
		x = lane >= d ? y + x : x;
	}
	if (exclusive) {
		const T y = msl_shuffle_up(x, (ushort)1, 0);
		x = lane == 0 ? (T)0 : y;
	}
	return x;
}
METAL_FUNC uint msl_simd_ballot(bool x, uint) { return (uint)__nvvm_vote_ballot_sync(0xffffffff, x); }

METAL_FUNC void msl_threadgroup_barrier(uint, uint) { __nvvm_bar_sync(0); }
METAL_FUNC void msl_simdgroup_barrier(uint, uint) { __nvvm_bar_warp_sync(0xffffffff); }

// -- atomics -----------------------------------------------------------------------------------

#define NV_ATOMICS(SPACE)                                                                                              \
	template <typename T> METAL_FUNC T msl_atomic_load(SPACE const T *p)                                           \
	{                                                                                                              \
		return __builtin_bit_cast(T, __atomic_load_n((SPACE const uint *)p, __ATOMIC_RELAXED));                \
	}                                                                                                              \
	template <typename T> METAL_FUNC void msl_atomic_store(SPACE T *p, T x)                                        \
	{                                                                                                              \
		__atomic_store_n((SPACE uint *)p, __builtin_bit_cast(uint, x), __ATOMIC_RELAXED);                      \
	}                                                                                                              \
	template <typename T> METAL_FUNC T msl_atomic_exchange(SPACE T *p, T x)                                        \
	{                                                                                                              \
		return __builtin_bit_cast(                                                                             \
			T, __atomic_exchange_n((SPACE uint *)p, __builtin_bit_cast(uint, x), __ATOMIC_RELAXED));       \
	}                                                                                                              \
	template <typename T> METAL_FUNC T msl_atomic_add(SPACE T *p, T x)                                             \
	{                                                                                                              \
		return __atomic_fetch_add(p, x, __ATOMIC_RELAXED);                                                     \
	}                                                                                                              \
	template <typename T> METAL_FUNC T msl_atomic_max(SPACE T *p, T x)                                             \
	{                                                                                                              \
		return __atomic_fetch_max(p, x, __ATOMIC_RELAXED);                                                     \
	}                                                                                                              \
	template <typename T> METAL_FUNC T msl_atomic_min(SPACE T *p, T x)                                             \
	{                                                                                                              \
		return __atomic_fetch_min(p, x, __ATOMIC_RELAXED);                                                     \
	}                                                                                                              \
	template <typename T> METAL_FUNC T msl_atomic_and(SPACE T *p, T x)                                             \
	{                                                                                                              \
		return __atomic_fetch_and(p, x, __ATOMIC_RELAXED);                                                     \
	}                                                                                                              \
	template <typename T> METAL_FUNC T msl_atomic_or(SPACE T *p, T x)                                              \
	{                                                                                                              \
		return __atomic_fetch_or(p, x, __ATOMIC_RELAXED);                                                      \
	}                                                                                                              \
	template <typename T> METAL_FUNC T msl_atomic_xor(SPACE T *p, T x)                                             \
	{                                                                                                              \
		return __atomic_fetch_xor(p, x, __ATOMIC_RELAXED);                                                     \
	}                                                                                                              \
	template <typename T> METAL_FUNC bool msl_atomic_compare_exchange(SPACE T *p, thread T *expected, T x)         \
	{                                                                                                              \
		T was = *expected;                                                                                     \
		const bool same = __atomic_compare_exchange_n(p, &was, x, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED);   \
		*expected = was;                                                                                       \
		return same;                                                                                           \
	}
NV_ATOMICS(device)
NV_ATOMICS(threadgroup)
#undef NV_ATOMICS

// After this and an atomic, other threadgroups can read what this thread wrote to device memory.
METAL_FUNC void nv_fence_gpu() { __asm__ volatile("fence.acq_rel.gpu;" ::: "memory"); }

// -- memory that other devices read and write while a kernel runs ------------------------------------

// 16 bytes, of which each 8 come together.
METAL_FUNC uint4 nv_load_system_4(device const void *p)
{
	uint4 v;
	uint a, b, c, d;
	__asm__ volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"
			 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
			 : "l"(p)
			 : "memory");
	v[0] = a, v[1] = b, v[2] = c, v[3] = d;
	return v;
}
METAL_FUNC void nv_store_system_4(device void *p, uint4 v)
{
	__asm__ volatile("st.volatile.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(v[0]), "r"(v[1]), "r"(v[2]),
			 "r"(v[3])
			 : "memory");
}
METAL_FUNC uint nv_load_system(device const uint *p)
{
	uint v;
	__asm__ volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
	return v;
}
// Who acquires what was released can read what was written before, by any thread that a barrier had come
// before it.
METAL_FUNC void nv_release_system(device uint *p, uint v)
{
	__asm__ volatile("fence.acq_rel.sys; st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
METAL_FUNC uint nv_acquire_system(device const uint *p)
{
	uint v;
	__asm__ volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
	return v;
}

// -- asynchronous copies from device to threadgroup memory ---------------------------

// 16 bytes bypass the first-level cache, 8 and 4 use it; `to` and `from` are
// aligned to the size.  With `bytes` below the size the rest is filled with zeros.
METAL_FUNC void nv_cp_async_16(threadgroup void *to, device const void *from)
{
	__asm__ volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"((uint)(ulong)to), "l"(from)
			 : "memory");
}
METAL_FUNC void nv_cp_async_16(threadgroup void *to, device const void *from, uint bytes)
{
	__asm__ volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"((uint)(ulong)to), "l"(from),
			 "r"(bytes)
			 : "memory");
}
// The same through the first-level cache.
METAL_FUNC void nv_cp_async_16_cached(threadgroup void *to, device const void *from, uint bytes)
{
	__asm__ volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"((uint)(ulong)to), "l"(from),
			 "r"(bytes)
			 : "memory");
}
METAL_FUNC void nv_cp_async_8(threadgroup void *to, device const void *from)
{
	__asm__ volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"((uint)(ulong)to), "l"(from) : "memory");
}
METAL_FUNC void nv_cp_async_4(threadgroup void *to, device const void *from)
{
	__asm__ volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((uint)(ulong)to), "l"(from) : "memory");
}
METAL_FUNC void nv_cp_async_commit() { __asm__ volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> METAL_FUNC void nv_cp_async_wait() { __asm__ volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// -- loads of what is read once: past the first-level cache, in the given order -------------------------

METAL_FUNC uint4 nv_load_once_4(device const void *p)
{
	uint4 v;
	uint a, b, c, d;
	__asm__ volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
			 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
			 : "l"(p));
	v[0] = a, v[1] = b, v[2] = c, v[3] = d;
	return v;
}
METAL_FUNC uint2 nv_load_once_2(device const void *p)
{
	uint2 v;
	uint a, b;
	__asm__ volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0,%1}, [%2];" : "=r"(a), "=r"(b) : "l"(p));
	v[0] = a, v[1] = b;
	return v;
}

// (x & mask) | bits
METAL_FUNC uint nv_and_or(uint x, uint mask, uint bits)
{
	uint r;
	__asm__("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(x), "r"(mask), "r"(bits));
	return r;
}

// Bytes of a (0 to 3) and b (4 to 7) by the selector's four hexadecimal digits.
METAL_FUNC uint nv_bytes(uint a, uint b, uint selector) { return __nvvm_prmt(a, b, selector); }

// -- tensor cores, for tile.h -----------------------------------------------------------------------

// Four 8x8 matrices of 16-bit elements; lane 8*i + j gives the address of row j of the i-th.
METAL_FUNC void nv_ldmatrix4(thread uint *r, threadgroup const void *p)
{
	__asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
			 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
			 : "r"((uint)(ulong)p)
			 : "memory");
}
METAL_FUNC void nv_ldmatrix4_transposed(thread uint *r, threadgroup const void *p)
{
	__asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
			 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
			 : "r"((uint)(ulong)p)
			 : "memory");
}

#ifdef NV_WGMMA
// The reverse of nv_ldmatrix4.
METAL_FUNC void nv_stmatrix4(threadgroup void *p, thread const uint *r)
{
	__asm__ volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"((uint)(ulong)p),
			 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
			 : "memory");
}
#endif

// c (16x8, f32) += a (16x16) * b (16x8), of half or bfloat.
template <typename T> METAL_FUNC void nv_mma_16x8x16(thread float *c, thread const uint *a, thread const uint *b);
#define NV_MMA(T, NAME)                                                                                                \
	template <> METAL_FUNC void nv_mma_16x8x16<T>(thread float *c, thread const uint *a, thread const uint *b)     \
	{                                                                                                              \
		__asm__("mma.sync.aligned.m16n8k16.row.col.f32." NAME "." NAME                                         \
			".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                                   \
			: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                               \
			: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                           \
	}
NV_MMA(half, "f16")
NV_MMA(bfloat, "bf16")
#undef NV_MMA

// c (16x8, f32) += a (16x8) * b (8x8) of float, rounded to tf32 (10 bits of mantissa) by
// nv_tf32 or truncated to it by the tensor core.
METAL_FUNC void nv_mma_16x8x8_tf32(thread float *c, thread const uint *a, thread const uint *b)
{
	__asm__("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
		: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
METAL_FUNC uint nv_tf32(float x)
{
	uint r;
	__asm__("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
	return r;
}

#ifdef NV_WGMMA
#include "msl_nv_wgmma.h"
#include "msl_nv_bulk.h"
#endif

// -- kernels that follow one another ------------------------------------------------------------------

// Waits until all kernels before this one have ended and what they wrote can be read.  Where the
// target knows no kernels that begin earlier (before sm_90), nothing needs to be done.
METAL_FUNC void nv_wait_for_previous()
{
#ifdef NV_WGMMA
	__asm__ volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// When all threadgroups have come here, the next kernel's begin as there is room for them.
METAL_FUNC void nv_begin_next()
{
#ifdef NV_WGMMA
	__asm__ volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// -- for the entry points that entry.py writes --------------------------------------------------------

// All threadgroup memory is dynamic.  Its start is aligned to 1024, as warpgroup products
// require, and is not 0 on sm_90.
METAL_FUNC threadgroup void *nv_shared()
{
	ulong p;
	__asm__("mov.u64 %0, msl_shared;" : "=l"(p));
	return (threadgroup void *)p;
}
#define NV_SREG(N) ((uint)__nvvm_read_ptx_sreg_##N())
METAL_FUNC uint nv_index()
{
	return NV_SREG(tid_x)
	+NV_SREG(ntid_x)
	*(NV_SREG(tid_y) + NV_SREG(ntid_y) * NV_SREG(tid_z));
}
#define MSL_IN_thread_position_in_threadgroup                                                                          \
	NV_SREG(tid_x)                                                                                                 \
	, NV_SREG(tid_y)                                                                                               \
	, NV_SREG(tid_z)
#define MSL_IN_threadgroup_position_in_grid                                                                            \
	NV_SREG(ctaid_x)                                                                                               \
	, NV_SREG(ctaid_y)                                                                                             \
	, NV_SREG(ctaid_z)
#define MSL_IN_threads_per_threadgroup                                                                                 \
	NV_SREG(ntid_x)                                                                                                \
	, NV_SREG(ntid_y)                                                                                              \
	, NV_SREG(ntid_z)
#define MSL_IN_threadgroups_per_grid                                                                                   \
	NV_SREG(nctaid_x)                                                                                              \
	, NV_SREG(nctaid_y)                                                                                            \
	, NV_SREG(nctaid_z)
#define MSL_IN_thread_position_in_grid                                                                                 \
	NV_SREG(tid_x)                                                                                                 \
	+NV_SREG(ctaid_x)                                                                                              \
	*NV_SREG(ntid_x)                                                                                               \
	, NV_SREG(tid_y)                                                                                               \
	+NV_SREG(ctaid_y)                                                                                              \
	*NV_SREG(ntid_y)                                                                                               \
	, NV_SREG(tid_z)                                                                                               \
	+NV_SREG(ctaid_z)                                                                                              \
	*NV_SREG(ntid_z)
#define MSL_IN_threads_per_grid                                                                                        \
	NV_SREG(nctaid_x)                                                                                              \
	*NV_SREG(ntid_x)                                                                                               \
	, NV_SREG(nctaid_y)                                                                                            \
	*NV_SREG(ntid_y)                                                                                               \
	, NV_SREG(nctaid_z)                                                                                            \
	*NV_SREG(ntid_z)
#define MSL_IN_thread_index_in_threadgroup metal::nv_index(), 0, 0
#define MSL_IN_thread_index_in_simdgroup                                                                               \
	NV_SREG(laneid)                                                                                                \
	, 0, 0
#define MSL_IN_simdgroup_index_in_threadgroup metal::nv_index() / 32, 0, 0
#define MSL_IN_simdgroups_per_threadgroup (NV_SREG(ntid_x) * NV_SREG(ntid_y) * NV_SREG(ntid_z) + 31) / 32, 0, 0
#define MSL_IN_threads_per_simdgroup 32, 0, 0
