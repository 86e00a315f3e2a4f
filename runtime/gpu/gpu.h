/* gpu.h: a driver for a GPU device, for the table in runtime/drivers.c. */
#pragma once

#include "runtime/gpu/gpu_private.h"

/* Defines ig_driver_<device> for the device class ig_gpu_<device>. */
#define IG_GPU_DRIVER(device)                                                                      \
	static const struct ig_driver_class ig_driver_##device;                                    \
	static int open_##device(const struct ig_driver_options *o, struct ig_driver **out,        \
				 struct ig_error *err)                                             \
	{                                                                                          \
		return ig_gpu_driver_open_all(&ig_gpu_##device, &ig_driver_##device, o, out, err); \
	}                                                                                          \
	static const struct ig_driver_class ig_driver_##device = {                                 \
		.name = #device,                                                                   \
		.open = open_##device,                                                             \
		.close = ig_gpu_driver_close,                                                      \
		.describe = ig_gpu_driver_describe,                                                \
		.lower = ig_gpu_driver_lower,                                                      \
		.load = ig_gpu_program_load,                                                       \
		.destroy = ig_gpu_program_destroy,                                                 \
		.submit = ig_gpu_program_submit,                                                   \
		.wait = ig_gpu_program_wait,                                                       \
		.map_slab = ig_gpu_map_slab,                                                       \
		.unmap_slab = ig_gpu_unmap_slab,                                                   \
		.copy = ig_gpu_copy,                                                               \
		.read_slab = ig_gpu_read_slab,                                                     \
		.write_slab = ig_gpu_write_slab,                                                   \
		.memory = ig_gpu_memory,                                                           \
		.is_unified = ig_gpu_is_unified,                                                   \
		.watch_memory = ig_gpu_watch_memory,                                               \
		.release = ig_gpu_release,                                                         \
		.steps_in_flight = IG_STEPS_IN_FLIGHT,                                             \
		.takes_outside = true,                                                             \
		.takes_mtp = true,                                                                 \
	}
