/* rows.h: embed, norm and sample on a GPU; see rows.c. */
#pragma once

#include <ingot/gpu.h>

extern const struct ig_gpu_op ig_gpu_embed, ig_gpu_norm, ig_gpu_sample;
