/* shared_types.h: types and macros of headers for both C and Metal. */
#pragma once

#if defined(__METAL_VERSION__) || defined(MSL_H)
#define SHARED_SIZE(name, bytes) static_assert(sizeof(name) == bytes, #name)
#define SHARED_STRUCT(name) name
#else
#include <assert.h>
#include <stdint.h>
typedef uint32_t uint;
typedef uint64_t ulong;
#define SHARED_SIZE(name, bytes) static_assert(sizeof(struct name) == bytes, #name)
#define SHARED_STRUCT(name) struct name
#endif
