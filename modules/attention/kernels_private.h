/* kernels_private.h: shared by the files of this module: its ops, and the kernels that are
 * compiled per instruction set.  attention.so exports only ingot_module. */
#pragma once

#include <ingot/arch.h>
#include <ingot/gpu.h>
#include <math.h>

extern const struct ig_op ig_op_rope_table;
extern const struct ig_op ig_op_rope_kv;
extern const struct ig_op ig_op_rope_latent;
extern const struct ig_op ig_op_attention;
extern const struct ig_gpu_op ig_gpu_rope_table, ig_gpu_rope_kv, ig_gpu_rope_latent,
	ig_gpu_attention, ig_gpu_rope_rows, ig_gpu_attention_rows; /* gpu.c */

extern const struct ig_op ig_op_rope_rows, ig_op_attention_rows; /* attention_rows.c */

#define MAX_HEAD_DIM IG_ATTENTION_MAX_HEAD_DIM
#define MAX_HEADS IG_ATTENTION_MAX_HEADS

/* 1 / base^(i / n_pairs) for i < n_pairs, with YaRN's ramp. */
void ig_rope_inverse_frequencies(const struct ig_rope_table_params *p, float *inv);
/* Whether pairs have an axis each, and the axis of a pair. */
static inline int ig_rope_has_sections(const struct ig_rope_table_params *p)
{
	return p->sections[0] || p->sections[1] || p->sections[2];
}
uint32_t ig_rope_axis(const struct ig_rope_table_params *p, uint32_t pair);
/* The factor of positions that is not in the frequencies. */
float ig_rope_position_scale(const struct ig_rope_table_params *p);
/* What cosines and sines are multiplied by. */
float ig_rope_magnitude(const struct ig_rope_table_params *p);
/* Columns from one head of q to the next one. */
static inline uint32_t ig_rope_q_stride(const struct ig_rope_kv_params *p)
{
	return p->q_stride ? p->q_stride : p->head_dim;
}
/* The scale of q in the i-th range of q_scale_length positions. */
float ig_rope_q_scale(const struct ig_rope_kv_params *p, int32_t i);
/* The check of rope_kv, and parts of its reference: 1 / rms(x[n]); y = RoPE(norm(x)) of one head. */
int ig_rope_check(struct ig_op_shape *s, struct ig_error *err);
double ig_rope_reference_inverse(const float *x, int64_t n, double eps);
void ig_rope_reference_head(const struct ig_op_launch *launch, int64_t row, const float *x,
			    const float *w, double inv, float *y);

/* The dimensions of a value, and of a head's output. */
static inline uint32_t value_dim(const struct ig_attention_params *p)
{
	return p->v_dim ? p->v_dim : p->head_dim;
}

/* The sinks of attention, [n_heads], or NULL. */
static inline const float *sinks_of(const struct ig_op_launch *launch)
{
	return launch->n_weights > 0 ? launch->weight[0].data : NULL;
}

/* The gate's first column for a row and head. */
static inline const float *gate_of_head(const struct ig_op_launch *launch, int64_t row,
					uint32_t head)
{
	const struct ig_attention_params *p = launch->params;
	const struct ig_tensor *t = &launch->in[1];

	return (const float *)((const char *)t->data + row * t->row_stride) + p->gate_first +
	       (size_t)head * p->gate_stride;
}

/* What an output is multiplied by; e: exp(-|x|). */
static inline float gate_value(uint32_t kind, float x, float e)
{
	if (kind == IG_GATE_SOFTPLUS)
		return (x > 0 ? x : 0) + log1pf(e);
	return (x > 0 ? 1 : e) / (1 + e);
}

#if defined(__x86_64__)
void ig_rope_kv_avx2(const struct ig_op_launch *launch, int64_t first, int64_t last, void *scratch);
void ig_rope_kv_avx512(const struct ig_op_launch *launch, int64_t first, int64_t last,
		       void *scratch);
void ig_rope_latent_avx2(const struct ig_op_launch *launch, int64_t first, int64_t last,
			 void *scratch);
void ig_rope_latent_avx512(const struct ig_op_launch *launch, int64_t first, int64_t last,
			   void *scratch);
uint64_t ig_attention_scratch_avx2(const struct ig_op_launch *launch);
void ig_attention_merge_avx2(const struct ig_op_launch *launch, int64_t first, int64_t last,
			     void *scratch);
uint64_t ig_attention_scratch_avx512(const struct ig_op_launch *launch);
void ig_attention_merge_avx512(const struct ig_op_launch *launch, int64_t first, int64_t last,
			       void *scratch);
void ig_attention_avx2(const struct ig_op_launch *launch, int64_t first, int64_t last,
		       void *scratch);
void ig_attention_avx512(const struct ig_op_launch *launch, int64_t first, int64_t last,
			 void *scratch);
#elif defined(__aarch64__)
void ig_rope_kv_neon(const struct ig_op_launch *launch, int64_t first, int64_t last, void *scratch);
void ig_rope_latent_neon(const struct ig_op_launch *launch, int64_t first, int64_t last,
			 void *scratch);
uint64_t ig_attention_scratch_neon(const struct ig_op_launch *launch);
void ig_attention_merge_neon(const struct ig_op_launch *launch, int64_t first, int64_t last,
			     void *scratch);
void ig_attention_neon(const struct ig_op_launch *launch, int64_t first, int64_t last,
		       void *scratch);
#endif
