// msl_nv_wgmma.h: warpgroup products of sm_90a, for tile.h.  The accumulators are read
// and written while the products run: call nv_wgmma_fence before the first and commit
// after the last, and use no accumulator before nv_wgmma_wait.

#define NV_REGS_0                                                                                                      \
	"%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define NV_REGS_1                                                                                                      \
	"%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define NV_REGS_2                                                                                                      \
	"%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define NV_REGS_3                                                                                                      \
	"%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define NV_OUT_8(I)                                                                                                    \
	"+f"(c[I]), "+f"(c[I + 1]), "+f"(c[I + 2]), "+f"(c[I + 3]), "+f"(c[I + 4]), "+f"(c[I + 5]), "+f"(c[I + 6]),    \
		"+f"(c[I + 7])
#define NV_OUT_32(I) NV_OUT_8(I), NV_OUT_8(I + 8), NV_OUT_8(I + 16), NV_OUT_8(I + 24)

// c (64xN, f32) += a (64x16) * transpose(b (Nx16)), a and b in threadgroup memory.
template <typename T, int N> struct nv_wgmma;
// The same with b (16xN).
template <typename T, int N> struct nv_wgmma_columns;
#define NV_WGMMA_OF(NAME, T, TYPE, N, COLUMNS, REGISTERS, A, B, ...)                                                   \
	template <> struct NAME<T, N> {                                                                                \
		static METAL_FUNC void run(thread float *c, ulong a, ulong b)                                          \
		{                                                                                                      \
			__asm__ volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n" #N   \
					 "k16.f32." TYPE "." TYPE " {" REGISTERS "}, " A ", " B                        \
					 ", p, 1, 1, 0, " COLUMNS "; }"                                                \
					 : __VA_ARGS__                                                                 \
					 : "l"(a), "l"(b));                                                            \
		}                                                                                                      \
	};
#define NV_WGMMA_EACH(T, TYPE)                                                                                         \
	NV_WGMMA_OF(nv_wgmma, T, TYPE, 64, "0", NV_REGS_0, "%32", "%33", NV_OUT_32(0))                                 \
	NV_WGMMA_OF(nv_wgmma, T, TYPE, 128, "0", NV_REGS_0 "," NV_REGS_1, "%64", "%65", NV_OUT_32(0), NV_OUT_32(32))   \
	NV_WGMMA_OF(nv_wgmma, T, TYPE, 160, "0",                                                                       \
		    NV_REGS_0 "," NV_REGS_1 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79", "%80", \
		    "%81", NV_OUT_32(0), NV_OUT_32(32), NV_OUT_8(64), NV_OUT_8(72))                                    \
	NV_WGMMA_OF(nv_wgmma, T, TYPE, 192, "0", NV_REGS_0 "," NV_REGS_1 "," NV_REGS_2, "%96", "%97", NV_OUT_32(0),    \
		    NV_OUT_32(32), NV_OUT_32(64))                                                                      \
	NV_WGMMA_OF(nv_wgmma, T, TYPE, 256, "0", NV_REGS_0 "," NV_REGS_1 "," NV_REGS_2 "," NV_REGS_3, "%128", "%129",  \
		    NV_OUT_32(0), NV_OUT_32(32), NV_OUT_32(64), NV_OUT_32(96))
NV_WGMMA_EACH(half, "f16")
NV_WGMMA_EACH(bfloat, "bf16")
NV_WGMMA_OF(nv_wgmma_columns, half, "f16", 64, "1", NV_REGS_0, "%32", "%33", NV_OUT_32(0))
#undef NV_WGMMA_EACH
#undef NV_WGMMA_OF

// c (64xN, f32) += a (64x16) * transpose(b (Nx16)), a in registers: simdgroup i of the four has rows 16 i and on, as the
// first operand of a product of 16x16 has them (nv_mma_16x8x16), and b in threadgroup memory.
template <typename T, int N> struct nv_wgmma_from;
// The same with b (16xN).
template <typename T, int N> struct nv_wgmma_from_columns;
#define NV_WGMMA_FROM_OF(NAME, T, TYPE, N, COLUMNS, REGISTERS, A, B, ...)                                              \
	template <> struct NAME<T, N> {                                                                                \
		static METAL_FUNC void run(thread float *c, thread const uint *a, ulong b)                             \
		{                                                                                                      \
			__asm__ volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n" #N   \
					 "k16.f32." TYPE "." TYPE " {" REGISTERS "}, {" A "}, " B                      \
					 ", p, 1, 1, " COLUMNS "; }"                                                   \
					 : __VA_ARGS__                                                                 \
					 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                        \
		}                                                                                                      \
	};
NV_WGMMA_FROM_OF(nv_wgmma_from, half, "f16", 32, "0", "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15",
		 "%16,%17,%18,%19", "%20", NV_OUT_8(0), NV_OUT_8(8))
#define NV_WGMMA_FROM_EACH(NAME, COLUMNS)                                                                              \
	NV_WGMMA_FROM_OF(NAME, half, "f16", 64, COLUMNS, NV_REGS_0, "%32,%33,%34,%35", "%36", NV_OUT_32(0))            \
	NV_WGMMA_FROM_OF(NAME, half, "f16", 128, COLUMNS, NV_REGS_0 "," NV_REGS_1, "%64,%65,%66,%67", "%68",           \
			 NV_OUT_32(0), NV_OUT_32(32))
NV_WGMMA_FROM_EACH(nv_wgmma_from, "0")
NV_WGMMA_FROM_EACH(nv_wgmma_from_columns, "1")
#undef NV_WGMMA_FROM_EACH
#undef NV_WGMMA_FROM_OF

#undef NV_OUT_32
#undef NV_OUT_8
#undef NV_REGS_0
#undef NV_REGS_1
#undef NV_REGS_2
#undef NV_REGS_3

// Describes a tile whose rows are 64 elements (128 bytes), its 16-byte chunks permuted
// (chunk ^ row % 8), groups of eight rows 1024 bytes apart and aligned to that.
METAL_FUNC ulong nv_descriptor(threadgroup const void *p)
{
	return ((uint)(ulong)p & 0x3ffff) >> 4 | 1ul << 16 | 64ul << 32 | 1ul << 62;
}
// Describes b (16xN) as it lies in memory: rows of k of 64 elements (128 bytes), permuted and grouped as above, and each
// further 64 columns so many bytes behind them.
METAL_FUNC ulong nv_descriptor_columns(threadgroup const void *p, uint stride)
{
	return ((uint)(ulong)p & 0x3ffff) >> 4 | (ulong)(stride >> 4) << 16 | 64ul << 32 | 1ul << 62;
}
METAL_FUNC void nv_wgmma_fence() { __asm__ volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
METAL_FUNC void nv_wgmma_commit() { __asm__ volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> METAL_FUNC void nv_wgmma_wait()
{
	__asm__ volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
// Between writing threadgroup memory and the barrier before a product reads it.
METAL_FUNC void nv_fence_async() { __asm__ volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
