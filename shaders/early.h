// early.h: for kernels with begins_early() behind them (portable.h): on NVIDIA they begin while the one
// before runs, and read weights, the step, and states that the step begins with, which no kernel of it writes.
// What the kernel before waited for is there, too, since that one calls begin_next() after its wait (an exchange
// alone calls it before: then it is what the kernel before the exchange waited for).  Every thread calls
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
