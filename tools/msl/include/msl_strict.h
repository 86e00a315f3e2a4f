// msl_strict.h: the back end of the strict check: declarations only.

#define MSL_DECLARE(F)                                                                                                 \
	float msl_##F(float x);                                                                                        \
	float msl_precise_##F(float x);
MSL_DECLARE(exp)
MSL_DECLARE(exp2)
MSL_DECLARE(log)
MSL_DECLARE(log2)
MSL_DECLARE(sqrt)
MSL_DECLARE(rsqrt)
MSL_DECLARE(sin)
MSL_DECLARE(cos)
MSL_DECLARE(tanh)
MSL_DECLARE(rint)
MSL_DECLARE(round)
#undef MSL_DECLARE
float msl_divide(float x, float y);
float msl_precise_divide(float x, float y);
float msl_pow(float x, float y);

template <typename T> T msl_shuffle(T x, ushort lane, uint line);
template <typename T> T msl_shuffle_xor(T x, ushort mask, uint line);
template <typename T> T msl_shuffle_down(T x, ushort by, uint line);
template <typename T> T msl_shuffle_up(T x, ushort by, uint line);
template <typename T> T msl_simd_sum(T x, uint line);
template <typename T> T msl_simd_max(T x, uint line);
template <typename T> T msl_simd_min(T x, uint line);
template <typename T> T msl_simd_prefix(T x, bool exclusive, uint line);
uint msl_simd_and(uint x, uint line);
uint msl_simd_or(uint x, uint line);
uint msl_simd_xor(uint x, uint line);
uint msl_simd_ballot(bool x, uint line);
void msl_threadgroup_barrier(uint flags, uint line);
void msl_simdgroup_barrier(uint flags, uint line);

#define MSL_DECLARE(SPACE)                                                                                             \
	template <typename T> T msl_atomic_load(SPACE const T *p);                                                     \
	template <typename T> void msl_atomic_store(SPACE T *p, T x);                                                  \
	template <typename T> T msl_atomic_exchange(SPACE T *p, T x);                                                  \
	template <typename T> T msl_atomic_add(SPACE T *p, T x);                                                       \
	template <typename T> T msl_atomic_max(SPACE T *p, T x);                                                       \
	template <typename T> T msl_atomic_min(SPACE T *p, T x);                                                       \
	template <typename T> T msl_atomic_and(SPACE T *p, T x);                                                       \
	template <typename T> T msl_atomic_or(SPACE T *p, T x);                                                        \
	template <typename T> T msl_atomic_xor(SPACE T *p, T x);                                                       \
	template <typename T> bool msl_atomic_compare_exchange(SPACE T *p, thread T *expected, T x);
MSL_DECLARE(device)
MSL_DECLARE(threadgroup)
#undef MSL_DECLARE
