/*
 * hyper.h: hyper-parameters as GGUF files have them, read and checked once for all
 * architectures.  hyper.c is compiled into this module and into moe.
 *
 * Keys are given without the architecture's name, which goes before them.  Every error
 * names the key.  What only one architecture has stands in that architecture's file.
 */
#ifndef ATTENTION_HYPER_H
#define ATTENTION_HYPER_H

#include "kernels_private.h"

struct hyper {
	const struct ig_host *host;
	const struct ig_meta *meta;
	const char *arch; /* before the first dot of every key */
	struct ig_error *err;
};

/* A number in [min, max].  With fallback, the key may be missing. */
int ig_hyper_u32(const struct hyper *h, const char *key, uint32_t min, uint32_t max,
		 const uint32_t *fallback, uint32_t *out);
int ig_hyper_f32(const struct hyper *h, const char *key, float min, float max,
		 const float *fallback, float *out);
/* An array with a number for each layer: 0, -ENOENT, -EINVAL. */
int ig_hyper_layers(const struct hyper *h, const char *key, uint32_t n_layers, uint32_t *out);
/* A number that must be zero or missing: what it asks for is not done. */
int ig_hyper_refuse_u32(const struct hyper *h, const char *key, const char *what);
int ig_hyper_refuse_f32(const struct hyper *h, const char *key, const char *what);

/* What every model has. */
struct dense {
	uint32_t n_layers, width, n_ff, n_vocab, n_context;
	uint32_t n_heads, n_kv_heads, head_dim;
	uint32_t tied; /* no output.weight: the embedding serves */
};

/* Refuses experts, too. */
int ig_hyper_dense(const struct hyper *h, struct dense *d);

/* What a model with experts in every layer has beside it. */
struct experts {
	struct ig_moe moe; /* normalise is the architecture's; act is SiLU, scale 1 */
	uint32_t n_ff;	   /* of each */
};

/* Refuses shared experts, dense layers and experts in tensors of their own. */
int ig_hyper_experts(const struct hyper *h, struct dense *d, struct experts *e);
/* x + sum over the chosen experts of w_e Down_e(SiLU(Gate_e(h)) * Up_e(h)), h = RMSNorm(x):
 * the whole feed-forward part of a layer.  x and the result: [n, width]. */
ig_value ig_hyper_record_experts(struct ig_rec *r, const struct dense *d, const struct experts *e,
				 float norm_eps, uint32_t layer, ig_value x);

/* Rotary positions and their scaling. */
struct rope {
	struct ig_rope_table_params table;
	uint32_t has_factors; /* the file has rope_freqs.weight [1, n_pairs] */
	/* What q . k is multiplied by, beside 1 / sqrt(head_dim): YaRN's temperature. */
	float attention;
};

int ig_hyper_rope(const struct hyper *h, const struct dense *d, struct rope *rope);
/* The step's table, with the file's factors if it has them. */
ig_value ig_hyper_rope_table(struct ig_rec *r, const struct rope *rope);

/* Fill in info but for the cache groups, of which it gets one of all layers. */
void ig_hyper_info(const struct dense *d, struct ig_model_info *info);

#endif
