/* gpu_lower.h: helpers for GPU lowerings: strides, operands, live counts, and the element types
 * in which weight formats are multiplied. */
#ifndef INGOT_GPU_LOWER_H
#define INGOT_GPU_LOWER_H

#include <errno.h>
#include <ingot/gpu.h>
#include <stdbool.h>

/* Initialisers: an extent of one threadgroup; an omitted operand. */
#define IG_GPU_ONE { IG_LIVE_ONE, 1, 1, 1 }
#define IG_GPU_NONE { .ref.buffer = -1 }

/* Bytes of one element of a value. */
static inline uint32_t ig_gpu_element_bytes(uint32_t dtype) { return dtype == IG_F32 ? 4 : 2; }

/* The row stride in elements, as kernels take it. */
static inline uint32_t ig_gpu_stride(const struct ig_gpu_tensor *v)
{
	return (uint32_t)(v->row_stride / ig_gpu_element_bytes(v->dtype));
}

static inline struct ig_gpu_bind ig_gpu_bind_ref(struct ig_gpu_ref ref, uint64_t n_bytes,
						 uint32_t access)
{
	return (struct ig_gpu_bind){ ref, n_bytes, access, 0 };
}

/* All columns of a value; an omitted operand stays omitted. */
static inline struct ig_gpu_bind ig_gpu_bind_value(const struct ig_gpu_tensor *v, uint32_t access)
{
	return ig_gpu_bind_ref(v->ref, (uint64_t)v->n_cols * ig_gpu_element_bytes(v->dtype),
			       access);
}

/* All rows of a weight; sixteen share a row of tiles. */
static inline uint64_t ig_gpu_weight_bytes(const struct ig_gpu_tensor *w)
{
	uint64_t n = (uint64_t)w->n_rows;

	return w->row_stride * (w->layout == IG_GPU_TILES ? (n + 15) / 16 * 16 : n);
}
static inline struct ig_gpu_bind ig_gpu_bind_weight(const struct ig_gpu_tensor *w)
{
	return ig_gpu_bind_ref(w->ref, ig_gpu_weight_bytes(w), IG_GPU_READ);
}

/* Multiprocessors or cores, as grids are cut; where a device does not say, an H100's. */
static inline uint32_t ig_gpu_cores(const struct ig_gpu_facts *f)
{
	return f->n_cores ? f->n_cores : 132;
}

/* Clusters of `size` threadgroups (2, 4 or 8; 1: threadgroups), each with a multiprocessor to itself, that run at
 * once.  A grid with one more takes twice as long. */
static inline uint32_t ig_gpu_clusters(const struct ig_gpu_facts *f, uint32_t size)
{
	uint32_t n = size == 2 ? f->n_clusters[0] :
		     size == 4 ? f->n_clusters[1] :
		     size == 8 ? f->n_clusters[2] :
				 0;

	return n ? n : ig_gpu_cores(f) / size;
}

/* The live count of a value's rows, and the largest number of rows of out[0]. */
static inline uint32_t ig_gpu_live_of(const struct ig_gpu_tensor *v)
{
	return v->row_class == IG_ROWS_TOKENS ? IG_LIVE_ROWS :
	       v->row_class == IG_ROWS_LOGITS ? IG_LIVE_LOGIT_ROWS :
						IG_LIVE_GUESS_ROWS;
}
static inline uint32_t ig_gpu_max_rows(const struct ig_gpu_launch *c)
{
	return c->out[0].row_class == IG_ROWS_TOKENS ? c->max_rows : c->max_logit_rows;
}

/* The format's part of kernel names; NULL: there are no kernels for it. */
static inline const char *ig_gpu_format_name(uint32_t dtype)
{
	static const char *const names[] = {
		[IG_F32] = "f32",     [IG_F16] = "f16",	      [IG_BF16] = "bf16",
		[IG_Q4_0] = "q4_0",   [IG_Q4_1] = "q4_1",     [IG_Q5_0] = "q5_0",
		[IG_Q5_1] = "q5_1",   [IG_Q8_0] = "q8_0",     [IG_Q2_K] = "q2_k",
		[IG_Q3_K] = "q3_k",   [IG_Q4_K] = "q4_k",     [IG_Q5_K] = "q5_k",
		[IG_Q6_K] = "q6_k",   [IG_IQ4_NL] = "iq4_nl", [IG_IQ4_XS] = "iq4_xs",
		[IG_MXFP4] = "mxfp4",
	};

	if (dtype == IG_Q8_M)
		return "q8_m";
	return dtype < sizeof names / sizeof *names ? names[dtype] : NULL;
}

/* The element type in which weights of this format are multiplied, unless f32 is set;
 * IG_DTYPE_NONE: not supported. */
static inline uint32_t ig_gpu_element_of(uint32_t dtype)
{
	if (dtype == IG_F32 || dtype == IG_BF16)
		return dtype;
	return ig_gpu_format_name(dtype) ? IG_F16 : IG_DTYPE_NONE;
}

/* Block formats, which shaders/core/blocks.h dequantizes. */
static inline bool ig_gpu_is_blocks(uint32_t dtype)
{
	return dtype != IG_F16 && ig_gpu_element_of(dtype) == IG_F16;
}

/* The format's part of names of kernels that multiply in `element`: in float32 one handles all block formats. */
static inline const char *ig_gpu_product_format(uint32_t dtype, uint32_t element)
{
	return element == IG_F32 && ig_gpu_is_blocks(dtype) ? "blocks" : ig_gpu_format_name(dtype);
}

/* The k of a tile of a block format: tile_k() of shaders/core/tiles.h. */
static inline uint32_t ig_gpu_tile_k(uint32_t dtype)
{
	return dtype == IG_Q8_0 || dtype == IG_Q8_M || dtype == IG_Q4_1 || dtype == IG_Q5_1 ? 128 :
											      256;
}

static inline bool ig_gpu_is_value(uint32_t dtype)
{
	return dtype == IG_F32 || dtype == IG_F16 || dtype == IG_BF16;
}

/* 0 if there are kernels for a product of weights of format `dtype`, multiplied in `element`,
 * with results of type `result`; else -ENOTSUP with text. */
static inline int ig_gpu_check_product(const char *op, uint32_t dtype, uint32_t element,
				       uint32_t result, struct ig_error *err)
{
	uint32_t own = ig_gpu_element_of(dtype);

	if (own == IG_DTYPE_NONE)
		return ig_fail(err, -ENOTSUP, "%s: no kernel for weights of dtype %u", op, dtype);
	if (element != IG_F32 && element != own)
		return ig_fail(err, -ENOTSUP, "%s: no kernel multiplies dtype %u in dtype %u", op,
			       dtype, element);
	if (!ig_gpu_is_value(result))
		return ig_fail(err, -ENOTSUP, "%s: no kernel writes dtype %u", op, result);
	return 0;
}

#endif
