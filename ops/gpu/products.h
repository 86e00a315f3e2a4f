/* products.h: linear, glu and logits on a GPU; see products.c. */
#pragma once

#include <ingot/gpu.h>

extern const struct ig_gpu_op ig_gpu_linear, ig_gpu_glu, ig_gpu_logits;
