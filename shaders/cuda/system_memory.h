// system_memory.h: loads and stores of memory that other devices read and write meanwhile.
#pragma once

#include <metal_stdlib>

#ifdef MSL_NV
#define load_system_4(p) metal::nv_load_system_4(p)
#define store_system_4(p, v) metal::nv_store_system_4(p, v)
#define load_system(p) metal::nv_load_system(p)
#define release_system(p, v) metal::nv_release_system(p, v)
#define acquire_system(p) metal::nv_acquire_system(p)
#else // one device, to which a test gives what the others would send
#define load_system_4(p) (*(p))
#define store_system_4(p, v) (*(p) = (v))
#define load_system(p) (*(p))
#define release_system(p, v) (*(p) = (v))
#define acquire_system(p) (*(p))
#endif
