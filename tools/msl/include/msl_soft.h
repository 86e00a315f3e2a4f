// msl_soft.h: the back end for the software Metal device (tests/metal/soft).  A thread is a
// fiber; every function of a simdgroup stores its value, yields to the other fibers, and
// reads the result.

METAL_FUNC float msl_exp(float x) { return __builtin_expf(x); }
METAL_FUNC float msl_exp2(float x) { return __builtin_exp2f(x); }
METAL_FUNC float msl_log(float x) { return __builtin_logf(x); }
METAL_FUNC float msl_log2(float x) { return __builtin_log2f(x); }
METAL_FUNC float msl_sqrt(float x) { return __builtin_sqrtf(x); }
METAL_FUNC float msl_rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
METAL_FUNC float msl_sin(float x) { return __builtin_sinf(x); }
METAL_FUNC float msl_cos(float x) { return __builtin_cosf(x); }
METAL_FUNC float msl_tanh(float x) { return __builtin_tanhf(x); }
METAL_FUNC float msl_rint(float x) { return __builtin_rintf(x); }
METAL_FUNC float msl_round(float x) { return __builtin_roundf(x); }
METAL_FUNC float msl_pow(float x, float y) { return __builtin_powf(x, y); }
METAL_FUNC float msl_divide(float x, float y) { return x / y; }
#define SOFT_PRECISE(F)                                                                                                \
	METAL_FUNC float msl_precise_##F(float x) { return msl_##F(x); }
SOFT_PRECISE(exp)
SOFT_PRECISE(exp2)
SOFT_PRECISE(log)
SOFT_PRECISE(log2)
SOFT_PRECISE(sqrt)
SOFT_PRECISE(rsqrt)
SOFT_PRECISE(sin)
SOFT_PRECISE(cos)
SOFT_PRECISE(tanh)
SOFT_PRECISE(rint)
SOFT_PRECISE(round)
#undef SOFT_PRECISE
METAL_FUNC float msl_precise_divide(float x, float y) { return x / y; }

// -- simdgroups: tests/metal/soft/fibers.c ---------------------------------------------------

extern "C" {
void soft_threadgroup_barrier(uint flags, uint line);
void soft_simdgroup_barrier(uint flags, uint line);
uint soft_shuffle(uint x, uint lane, uint line);
void soft_shuffle_wide(const void *in, void *out, uint words, uint lane, uint line);
float soft_sum_float(float x, uint line);
float soft_max_float(float x, uint line);
float soft_min_float(float x, uint line);
float soft_prefix_float(float x, uint exclusive, uint line);
uint soft_sum_uint(uint x, uint line);
uint soft_max_uint(uint x, uint line);
uint soft_min_uint(uint x, uint line);
int soft_max_int(int x, uint line);
int soft_min_int(int x, uint line);
uint soft_prefix_uint(uint x, uint exclusive, uint line);
uint soft_and_uint(uint x, uint line);
uint soft_or_uint(uint x, uint line);
uint soft_xor_uint(uint x, uint line);
uint soft_ballot(uint x, uint line);
void soft_mma(float *c, float a0, float a1, float b0, float b1, uint line);
void *soft_matrix_lend(void *m, uint line);
void soft_matrix_settle();
uint soft_atomic(uint op, void *p, uint x);
uint soft_atomic_compare(void *p, uint *expected, uint x);
}

// A fiber's stack begins at a multiple of 64 KB (SOFT_STACK_BYTES), where its lane is stored.
METAL_FUNC uint soft_lane() { return *(const uint *)((ulong)__builtin_frame_address(0) & ~0xfffful); }
METAL_FUNC uint msl_lane() { return soft_lane(); }
METAL_FUNC void msl_threadgroup_barrier(uint flags, uint line) { soft_threadgroup_barrier(flags, line); }
METAL_FUNC void msl_simdgroup_barrier(uint flags, uint line) { soft_simdgroup_barrier(flags, line); }

template <typename T> METAL_FUNC T msl_shuffle(T x, uint lane, uint line)
{
	if constexpr (sizeof(T) == 2) {
		return __builtin_bit_cast(T, (ushort)soft_shuffle(__builtin_bit_cast(ushort, x), lane, line));
	} else if constexpr (sizeof(T) == 4) {
		return __builtin_bit_cast(T, soft_shuffle(__builtin_bit_cast(uint, x), lane, line));
	} else {
		T y = x;
		soft_shuffle_wide(&x, &y, sizeof(T) / 4, lane, line);
		return y;
	}
}
template <typename T> METAL_FUNC T msl_shuffle_xor(T x, uint mask, uint line)
{
	return msl_shuffle(x, soft_lane() ^ mask, line);
}
template <typename T> METAL_FUNC T msl_shuffle_down(T x, uint by, uint line)
{
	const uint lane = soft_lane();
	return msl_shuffle(x, lane + by < 32 ? lane + by : lane, line);
}
template <typename T> METAL_FUNC T msl_shuffle_up(T x, uint by, uint line)
{
	const uint lane = soft_lane();
	return msl_shuffle(x, lane < by ? lane : lane - by, line);
}

METAL_FUNC float msl_simd_sum(float x, uint line) { return soft_sum_float(x, line); }
METAL_FUNC float msl_simd_max(float x, uint line) { return soft_max_float(x, line); }
METAL_FUNC float msl_simd_min(float x, uint line) { return soft_min_float(x, line); }
METAL_FUNC uint msl_simd_sum(uint x, uint line) { return soft_sum_uint(x, line); }
METAL_FUNC uint msl_simd_max(uint x, uint line) { return soft_max_uint(x, line); }
METAL_FUNC uint msl_simd_min(uint x, uint line) { return soft_min_uint(x, line); }
METAL_FUNC int msl_simd_sum(int x, uint line) { return (int)soft_sum_uint((uint)x, line); }
METAL_FUNC int msl_simd_max(int x, uint line) { return soft_max_int(x, line); }
METAL_FUNC int msl_simd_min(int x, uint line) { return soft_min_int(x, line); }
METAL_FUNC float msl_simd_prefix(float x, bool exclusive, uint line) { return soft_prefix_float(x, exclusive, line); }
METAL_FUNC uint msl_simd_prefix(uint x, bool exclusive, uint line) { return soft_prefix_uint(x, exclusive, line); }
METAL_FUNC int msl_simd_prefix(int x, bool exclusive, uint line)
{
	return (int)soft_prefix_uint((uint)x, exclusive, line);
}
METAL_FUNC uint msl_simd_and(uint x, uint line) { return soft_and_uint(x, line); }
METAL_FUNC uint msl_simd_or(uint x, uint line) { return soft_or_uint(x, line); }
METAL_FUNC uint msl_simd_xor(uint x, uint line) { return soft_xor_uint(x, line); }
METAL_FUNC uint msl_simd_ballot(bool x, uint line) { return soft_ballot(x, line); }

METAL_FUNC void msl_mma(thread float *c, float a0, float a1, float b0, float b1, uint line)
{
	soft_mma(c, a0, a1, b0, b1, line);
}

// -- atomics ----------------------------------------------------------------------------------
//
// The checked variant calls functions of the device, which check bounds and tell the race
// detector that the access is atomic.

enum {
	soft_load,
	soft_store,
	soft_exchange,
	soft_add,
	soft_add_float,
	soft_and,
	soft_or,
	soft_xor,
	soft_max_i,
	soft_min_i,
	soft_max_u,
	soft_min_u
};

#ifdef SOFT_CHECKED
#define SOFT_BITS(T, X) __builtin_bit_cast(T, X)
#define SOFT_ATOMIC(SPACE, T)                                                                                          \
	METAL_FUNC T msl_atomic_load(SPACE const T *p) { return SOFT_BITS(T, soft_atomic(soft_load, (void *)p, 0)); }  \
	METAL_FUNC void msl_atomic_store(SPACE T *p, T x) { soft_atomic(soft_store, (void *)p, SOFT_BITS(uint, x)); }  \
	METAL_FUNC T msl_atomic_exchange(SPACE T *p, T x)                                                              \
	{                                                                                                              \
		return SOFT_BITS(T, soft_atomic(soft_exchange, (void *)p, SOFT_BITS(uint, x)));                        \
	}
#define SOFT_ATOMIC_OP(SPACE, T, NAME, OP)                                                                             \
	METAL_FUNC T msl_atomic_##NAME(SPACE T *p, T x)                                                                \
	{                                                                                                              \
		return SOFT_BITS(T, soft_atomic(OP, (void *)p, SOFT_BITS(uint, x)));                                   \
	}
#define SOFT_ATOMIC_INTEGER(SPACE, T, S)                                                                               \
	SOFT_ATOMIC(SPACE, T)                                                                                          \
	SOFT_ATOMIC_OP(SPACE, T, add, soft_add)                                                                        \
	SOFT_ATOMIC_OP(SPACE, T, and, soft_and)                                                                        \
	SOFT_ATOMIC_OP(SPACE, T, or, soft_or)                                                                          \
	SOFT_ATOMIC_OP(SPACE, T, xor, soft_xor)                                                                        \
	SOFT_ATOMIC_OP(SPACE, T, max, soft_max_##S)                                                                    \
	SOFT_ATOMIC_OP(SPACE, T, min, soft_min_##S)                                                                    \
	METAL_FUNC bool msl_atomic_compare_exchange(SPACE T *p, thread T *expected, T x)                               \
	{                                                                                                              \
		return soft_atomic_compare((void *)p, (thread uint *)expected, SOFT_BITS(uint, x)) != 0;               \
	}
SOFT_ATOMIC_INTEGER(device, uint, u)
SOFT_ATOMIC_INTEGER(device, int, i)
SOFT_ATOMIC_INTEGER(threadgroup, uint, u)
SOFT_ATOMIC_INTEGER(threadgroup, int, i)
SOFT_ATOMIC(device, float)
SOFT_ATOMIC_OP(device, float, add, soft_add_float)
#undef SOFT_ATOMIC_INTEGER
#undef SOFT_ATOMIC_OP
#undef SOFT_ATOMIC
#undef SOFT_BITS
#else
#define SOFT_ATOMICS(SPACE)                                                                                            \
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
		const bool same = __atomic_compare_exchange_n(p, &was, x, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);  \
		*expected = was;                                                                                       \
		return same;                                                                                           \
	}
SOFT_ATOMICS(device)
SOFT_ATOMICS(threadgroup)
#undef SOFT_ATOMICS
#endif

// -- for the entry points that entry.py writes --------------------------------------------------
//
// These two structs are those of tests/metal/soft/private.h.

struct soft_launch {
	void *buffer[31];
	void *threadgroup_memory;
};
struct soft_thread {
	uint at[3], group_at[3], group_size[3], groups[3];
	uint index, lane, simdgroup, simdgroups;
};
extern "C" {
ulong soft_add_shader(const __constant char *name, ulong hash, uint size, uint checked);
void soft_add_kernel(ulong shader, const __constant char *name, ulong entry, uint max_threads);
void soft_add_argument(ulong shader, uint kind, uint index, uint size, uint access);
}
#define SOFT_EACH(X) X(0), X(1), X(2)
#define SOFT_GRID_AT(I) t->group_at[I] * t->group_size[I] + t->at[I]
#define SOFT_GRID_SIZE(I) t->groups[I] * t->group_size[I]
#define MSL_IN_thread_position_in_threadgroup t->at[0], t->at[1], t->at[2]
#define MSL_IN_threadgroup_position_in_grid t->group_at[0], t->group_at[1], t->group_at[2]
#define MSL_IN_threads_per_threadgroup t->group_size[0], t->group_size[1], t->group_size[2]
#define MSL_IN_threadgroups_per_grid t->groups[0], t->groups[1], t->groups[2]
#define MSL_IN_thread_position_in_grid SOFT_EACH(SOFT_GRID_AT)
#define MSL_IN_threads_per_grid SOFT_EACH(SOFT_GRID_SIZE)
#define MSL_IN_thread_index_in_threadgroup t->index, 0, 0
#define MSL_IN_thread_index_in_simdgroup t->lane, 0, 0
#define MSL_IN_simdgroup_index_in_threadgroup t->simdgroup, 0, 0
#define MSL_IN_simdgroups_per_threadgroup t->simdgroups, 0, 0
#define MSL_IN_threads_per_simdgroup 32, 0, 0
