// early.h: for kernels with begins_early() behind them (portable.h): on NVIDIA they begin while the one
// before runs, and read weights and the step, which no kernel writes.  Every thread calls
// wait_for_previous(), also one that has nothing to do, before it reads anything else and before it
// writes: the kernel after this one waits for this one alone.  After begin_next() the next may begin.
#pragma once

#include <metal_stdlib>

#ifdef MSL_NV
#define wait_for_previous() metal::nv_wait_for_previous()
#define begin_next() metal::nv_begin_next()
#else
#define wait_for_previous()
#define begin_next()
#endif
