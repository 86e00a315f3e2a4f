// msl_simd.h: functions of a simdgroup, barriers, atomics.  `msl_line` tells the software
// device the caller's line; Metal has no such argument.

#define MSL_AT uint msl_line = __builtin_LINE()

#define MSL_SHUFFLES(T)                                                                                                \
	METAL_FUNC T simd_shuffle(T x, ushort lane, MSL_AT) { return msl_shuffle(x, lane, msl_line); }                 \
	METAL_FUNC T simd_shuffle_xor(T x, ushort mask, MSL_AT) { return msl_shuffle_xor(x, mask, msl_line); }         \
	METAL_FUNC T simd_shuffle_down(T x, ushort delta, MSL_AT) { return msl_shuffle_down(x, delta, msl_line); }     \
	METAL_FUNC T simd_shuffle_up(T x, ushort delta, MSL_AT) { return msl_shuffle_up(x, delta, msl_line); }         \
	METAL_FUNC T simd_broadcast(T x, ushort lane, MSL_AT) { return msl_shuffle(x, lane, msl_line); }               \
	METAL_FUNC T simd_broadcast_first(T x, MSL_AT) { return msl_shuffle(x, (ushort)0, msl_line); }
MSL_SHUFFLES(float)
MSL_SHUFFLES(int)
MSL_SHUFFLES(uint)
MSL_SHUFFLES(half)
MSL_SHUFFLES(short)
MSL_SHUFFLES(ushort)
MSL_SHUFFLES(float2)
MSL_SHUFFLES(int2)
MSL_SHUFFLES(uint2)
MSL_SHUFFLES(half2)
MSL_SHUFFLES(float4)
MSL_SHUFFLES(int4)
MSL_SHUFFLES(uint4)
MSL_SHUFFLES(half4)
#undef MSL_SHUFFLES

#define MSL_REDUCTIONS(T)                                                                                              \
	METAL_FUNC T simd_sum(T x, MSL_AT) { return msl_simd_sum(x, msl_line); }                                       \
	METAL_FUNC T simd_max(T x, MSL_AT) { return msl_simd_max(x, msl_line); }                                       \
	METAL_FUNC T simd_min(T x, MSL_AT) { return msl_simd_min(x, msl_line); }                                       \
	METAL_FUNC T simd_prefix_inclusive_sum(T x, MSL_AT) { return msl_simd_prefix(x, false, msl_line); }            \
	METAL_FUNC T simd_prefix_exclusive_sum(T x, MSL_AT) { return msl_simd_prefix(x, true, msl_line); }
MSL_REDUCTIONS(float)
MSL_REDUCTIONS(int)
MSL_REDUCTIONS(uint)
#undef MSL_REDUCTIONS
#define MSL_REDUCTION(F)                                                                                               \
	METAL_FUNC half F(half x, MSL_AT) { return (half)msl_##F((float)x, msl_line); }                                \
	template <typename T, int N> METAL_FUNC msl_ext<T, N> F(msl_ext<T, N> x, MSL_AT)                               \
	{                                                                                                              \
		for (int i = 0; i < N; i++)                                                                            \
			x[i] = F(x[i], msl_line);                                                                      \
		return x;                                                                                              \
	}
MSL_REDUCTION(simd_sum)
MSL_REDUCTION(simd_max)
MSL_REDUCTION(simd_min)
#undef MSL_REDUCTION
#define MSL_REDUCTIONS(T)                                                                                              \
	METAL_FUNC T simd_and(T x, MSL_AT) { return (T)msl_simd_and((uint)x, msl_line); }                              \
	METAL_FUNC T simd_or(T x, MSL_AT) { return (T)msl_simd_or((uint)x, msl_line); }                                \
	METAL_FUNC T simd_xor(T x, MSL_AT) { return (T)msl_simd_xor((uint)x, msl_line); }
MSL_REDUCTIONS(int)
MSL_REDUCTIONS(uint)
#undef MSL_REDUCTIONS

class simd_vote
{
      public:
	typedef ulong vote_t;
	explicit METAL_FUNC simd_vote(vote_t v = 0) : msl_votes(v) {}
	explicit METAL_FUNC operator vote_t() const { return msl_votes; }
	METAL_FUNC bool all() const { return (msl_votes & 0xffffffff) == 0xffffffff; }
	METAL_FUNC bool any() const { return msl_votes != 0; }

      private:
	vote_t msl_votes;
};
METAL_FUNC simd_vote simd_ballot(bool x, MSL_AT) { return simd_vote(msl_simd_ballot(x, msl_line)); }
METAL_FUNC bool simd_any(bool x, MSL_AT) { return msl_simd_ballot(x, msl_line) != 0; }
METAL_FUNC bool simd_all(bool x, MSL_AT) { return msl_simd_ballot(!x, msl_line) == 0; }

METAL_FUNC void threadgroup_barrier(mem_flags flags, MSL_AT) { msl_threadgroup_barrier((uint)flags, msl_line); }
METAL_FUNC void simdgroup_barrier(mem_flags flags, MSL_AT) { msl_simdgroup_barrier((uint)flags, msl_line); }

// -- atomics -------------------------------------------------------------------------------

enum memory_order { memory_order_relaxed };
template <typename T> struct atomic {
	T msl_value;
};

#define MSL_ATOMICS(SPACE, T)                                                                                          \
	METAL_FUNC T atomic_load_explicit(SPACE const atomic<T> *p, memory_order)                                      \
	{                                                                                                              \
		return msl_atomic_load(&p->msl_value);                                                                 \
	}                                                                                                              \
	METAL_FUNC void atomic_store_explicit(SPACE atomic<T> *p, T x, memory_order)                                   \
	{                                                                                                              \
		msl_atomic_store(&p->msl_value, x);                                                                    \
	}                                                                                                              \
	METAL_FUNC T atomic_exchange_explicit(SPACE atomic<T> *p, T x, memory_order)                                   \
	{                                                                                                              \
		return msl_atomic_exchange(&p->msl_value, x);                                                          \
	}                                                                                                              \
	METAL_FUNC T atomic_fetch_add_explicit(SPACE atomic<T> *p, T x, memory_order)                                  \
	{                                                                                                              \
		return msl_atomic_add(&p->msl_value, x);                                                               \
	}
#define MSL_INTEGER_ATOMICS(SPACE, T)                                                                                  \
	MSL_ATOMICS(SPACE, T)                                                                                          \
	METAL_FUNC T atomic_fetch_sub_explicit(SPACE atomic<T> *p, T x, memory_order)                                  \
	{                                                                                                              \
		return msl_atomic_add(&p->msl_value, (T) - x);                                                         \
	}                                                                                                              \
	METAL_FUNC T atomic_fetch_max_explicit(SPACE atomic<T> *p, T x, memory_order)                                  \
	{                                                                                                              \
		return msl_atomic_max(&p->msl_value, x);                                                               \
	}                                                                                                              \
	METAL_FUNC T atomic_fetch_min_explicit(SPACE atomic<T> *p, T x, memory_order)                                  \
	{                                                                                                              \
		return msl_atomic_min(&p->msl_value, x);                                                               \
	}                                                                                                              \
	METAL_FUNC T atomic_fetch_and_explicit(SPACE atomic<T> *p, T x, memory_order)                                  \
	{                                                                                                              \
		return msl_atomic_and(&p->msl_value, x);                                                               \
	}                                                                                                              \
	METAL_FUNC T atomic_fetch_or_explicit(SPACE atomic<T> *p, T x, memory_order)                                   \
	{                                                                                                              \
		return msl_atomic_or(&p->msl_value, x);                                                                \
	}                                                                                                              \
	METAL_FUNC T atomic_fetch_xor_explicit(SPACE atomic<T> *p, T x, memory_order)                                  \
	{                                                                                                              \
		return msl_atomic_xor(&p->msl_value, x);                                                               \
	}                                                                                                              \
	METAL_FUNC bool atomic_compare_exchange_weak_explicit(SPACE atomic<T> *p, thread T *expected, T x,             \
							      memory_order, memory_order)                              \
	{                                                                                                              \
		return msl_atomic_compare_exchange(&p->msl_value, expected, x);                                        \
	}
MSL_INTEGER_ATOMICS(device, uint)
MSL_INTEGER_ATOMICS(device, int)
MSL_INTEGER_ATOMICS(threadgroup, uint)
MSL_INTEGER_ATOMICS(threadgroup, int)
MSL_ATOMICS(device, float) // as in Metal: not in threadgroup memory
#undef MSL_INTEGER_ATOMICS
#undef MSL_ATOMICS
