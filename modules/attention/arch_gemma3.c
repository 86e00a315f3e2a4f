/*
 * arch_gemma3.c: Gemma 3 (Gemma Team 2025, arXiv:2503.19786), its text half: every
 * sixth layer, or those that the file names, sees all positions, the others a window;
 * global and local layers turn by different frequencies; RMS norms before and after
 * each half of a block and of each head's query and key; a gated feed-forward with GELU
 * (tanh form); the embedding is scaled by sqrt(width) and serves as the output's matrix.
 *
 * Hyper-parameters and tensor names are GGUF's, whose norms hold 1 + w.  What a file
 * asks for and this file does not do (experts, soft caps) is refused by name.
 */
#include "hyper.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { GLOBAL = 0, LOCAL = 1 }; /* kinds of layers */

#define MAX_LAYERS 1024

struct gemma3 {
	struct dense d;
	struct rope rope[2]; /* by kind */
	uint32_t window;     /* of local layers */
	uint32_t group[2];   /* by kind: its cache group */
	uint8_t kind[MAX_LAYERS];
	float norm_eps, attention_scale;
};

/* Which of its cache group's layers it is. */
static uint32_t layer_of_group(const struct gemma3 *p, uint32_t layer)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < layer; i++)
		n += p->kind[i] == p->kind[layer];
	return n;
}

/* The pattern is a number, the last layer of each so many is global (0: none is), or a
 * list, true for local layers.  Without a window all layers are global. */
static int read_kinds(const struct hyper *h, struct gemma3 *p)
{
	const uint32_t no_window = 0, sixth = 6;
	uint32_t period, local[MAX_LAYERS];
	int rc;

	rc = ig_hyper_u32(h, "attention.sliding_window", 0, 1u << 24, &no_window, &p->window);
	if (rc || !p->window)
		return rc;
	rc = ig_hyper_u32(h, "attention.sliding_window_pattern", 0, UINT32_MAX, &sixth, &period);
	for (uint32_t i = 0; !rc && i < p->d.n_layers; i++)
		p->kind[i] = !period || (i + 1) % period ? LOCAL : GLOBAL;
	if (rc != -EINVAL)
		return rc;
	rc = ig_hyper_layers(h, "attention.sliding_window_pattern", p->d.n_layers, local);
	for (uint32_t i = 0; !rc && i < p->d.n_layers; i++)
		p->kind[i] = local[i] ? LOCAL : GLOBAL;
	return rc;
}

/* A cache group for each kind of layers that there is. */
static void set_groups(struct gemma3 *p, struct ig_model_info *info)
{
	uint32_t n[2] = { 0, 0 };

	ig_hyper_info(&p->d, info);
	info->groups[1] = info->groups[0];
	info->n_groups = 0;
	for (uint32_t i = 0; i < p->d.n_layers; i++)
		n[p->kind[i]]++;
	for (uint32_t kind = GLOBAL; kind <= LOCAL; kind++) {
		if (!n[kind])
			continue;
		p->group[kind] = info->n_groups++;
		info->groups[p->group[kind]].n_layers = n[kind];
		info->groups[p->group[kind]].window = kind == LOCAL ? p->window : 0;
	}
}

static int read_params(const struct ig_host *host, const struct ig_meta *meta, void *params,
		       struct ig_model_info *info, struct ig_error *err)
{
	const struct hyper h = { host, meta, "gemma3", err };
	const float local_base = 10000;
	struct rope *local;
	struct gemma3 *p = params;
	int rc;

	memset(p, 0, sizeof *p);
	if ((rc = ig_hyper_refuse_f32(&h, "final_logit_softcapping", "a soft cap of logits")) ||
	    (rc = ig_hyper_refuse_f32(&h, "attn_logit_softcapping", "a soft cap of attention")) ||
	    (rc = ig_hyper_dense(&h, &p->d)) ||
	    (rc = ig_hyper_f32(&h, "attention.layer_norm_rms_epsilon", 0, 0.5f, NULL,
			       &p->norm_eps)) ||
	    (rc = read_kinds(&h, p)) || (rc = ig_hyper_rope(&h, &p->d, &p->rope[GLOBAL])))
		return rc;
	/* Scaling is the global layers'. */
	local = &p->rope[LOCAL];
	*local = p->rope[GLOBAL];
	local->has_factors = 0;
	local->attention = 1;
	local->table.freq_scale = 1;
	local->table.ramp_first = local->table.ramp_last = 0;
	rc = ig_hyper_f32(&h, "rope.freq_base_swa", 1, 1e12f, &local_base, &local->table.freq_base);
	if (rc)
		return rc;
	/* Queries are scaled by the head's width, but in the model of 27B, which has 62
	 * layers, by the width of the model over its heads; no key tells. */
	p->attention_scale =
		1 / sqrtf(p->d.n_layers == 62 ? (float)p->d.width / (float)p->d.n_heads :
						(float)p->d.head_dim);

	set_groups(p, info);
	return 0;
}

/* ---- the model ------------------------------------------------------------------------ */

/* RMSNorm(Attention(h)), h the normalised input */
static ig_value record_attention(struct ig_rec *r, const struct gemma3 *p, uint32_t layer,
				 ig_value h, const ig_value *tables)
{
	const struct dense *d = &p->d;
	const int64_t q_width = (int64_t)d->n_heads * d->head_dim;
	const int64_t kv_width = (int64_t)d->n_kv_heads * d->head_dim;
	const uint32_t kind = p->kind[layer], own_layer = layer_of_group(p, layer);
	const struct rope *turn = &p->rope[kind];
	const struct ig_rope_kv_params rope = {
		.struct_size = sizeof rope,
		.n_heads = d->n_heads,
		.n_kv_heads = d->n_kv_heads,
		.head_dim = d->head_dim,
		.mode = IG_ROPE_HALVES,
		.n_pairs = turn->table.n_pairs,
		.group = p->group[kind],
		.layer = own_layer,
		.norm_eps = p->norm_eps,
	};
	const struct ig_attention_params attention = {
		.struct_size = sizeof attention,
		.n_heads = d->n_heads,
		.n_kv_heads = d->n_kv_heads,
		.head_dim = d->head_dim,
		.group = p->group[kind],
		.layer = own_layer,
		.scale = p->attention_scale * turn->attention,
		.window = kind == LOCAL ? p->window : 0,
	};
	ig_weight qkv[3], head_norms[2], out, norm;

	qkv[0] = ig_rec_layer_weight(r, q_width, d->width, "blk.%u.attn_q.weight", layer);
	qkv[1] = ig_rec_layer_weight(r, kv_width, d->width, "blk.%u.attn_k.weight", layer);
	qkv[2] = ig_rec_layer_weight(r, kv_width, d->width, "blk.%u.attn_v.weight", layer);
	head_norms[0] = ig_rec_layer_weight(r, 1, d->head_dim, "blk.%u.attn_q_norm.weight", layer);
	head_norms[1] = ig_rec_layer_weight(r, 1, d->head_dim, "blk.%u.attn_k_norm.weight", layer);
	out = ig_rec_layer_weight(r, d->width, q_width, "blk.%u.attn_output.weight", layer);
	norm = ig_rec_layer_weight(r, 1, d->width, "blk.%u.post_attention_norm.weight", layer);

	h = ig_rec_linear(r, h, qkv, 3, IG_NONE);			/* [n, q | k | v] */
	h = ig_rec_rope_kv_norm(r, &rope, h, tables[kind], head_norms); /* [n, q_width] */
	h = ig_rec_attention(r, &attention, h);				/* the same */
	h = ig_rec_linear(r, h, &out, 1, IG_NONE);			/* [n, width] */
	return ig_rec_rms_norm(r, h, norm, p->norm_eps);
}

/* RMSNorm(Down(GELU(Gate(h)) * Up(h))), h the normalised input */
static ig_value record_feed_forward(struct ig_rec *r, const struct gemma3 *p, uint32_t layer,
				    ig_value h)
{
	const struct dense *d = &p->d;
	ig_weight gate, up, down, norm;

	gate = ig_rec_layer_weight(r, d->n_ff, d->width, "blk.%u.ffn_gate.weight", layer);
	up = ig_rec_layer_weight(r, d->n_ff, d->width, "blk.%u.ffn_up.weight", layer);
	down = ig_rec_layer_weight(r, d->width, d->n_ff, "blk.%u.ffn_down.weight", layer);
	norm = ig_rec_layer_weight(r, 1, d->width, "blk.%u.post_ffw_norm.weight", layer);

	h = ig_rec_glu(r, h, gate, up, IG_ACT_GELU); /* [n, n_ff] */
	h = ig_rec_linear(r, h, &down, 1, IG_NONE);  /* [n, width] */
	return ig_rec_rms_norm(r, h, norm, p->norm_eps);
}

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	const struct gemma3 *p = params;
	const struct dense *d = &p->d;
	struct ig_rec r = { host, g };
	ig_weight embedding, norm, head;
	ig_value x, h, delta = IG_NONE, tables[2], logits;

	embedding = ig_rec_weight(&r, d->n_vocab, d->width, "token_embd.weight");
	head = d->tied ? embedding : ig_rec_weight(&r, d->n_vocab, d->width, "output.weight");

	for (uint32_t kind = GLOBAL; kind <= LOCAL; kind++)
		tables[kind] = memchr(p->kind, (int)kind, d->n_layers) ?
				       ig_hyper_rope_table(&r, &p->rope[kind]) :
				       IG_NONE;
	x = ig_rec_embed_scaled(&r, embedding, sqrtf((float)d->width));
	for (uint32_t layer = 0; layer < d->n_layers; layer++) {
		/* x = x + delta and h = RMSNorm(x) in one */
		norm = ig_rec_layer_weight(&r, 1, d->width, "blk.%u.attn_norm.weight", layer);
		h = layer ? ig_rec_rms_norm_add(&r, &x, delta, norm, p->norm_eps, 0) :
			    ig_rec_rms_norm(&r, x, norm, p->norm_eps);
		delta = record_attention(&r, p, layer, h, tables);
		norm = ig_rec_layer_weight(&r, 1, d->width, "blk.%u.ffn_norm.weight", layer);
		h = ig_rec_rms_norm_add(&r, &x, delta, norm, p->norm_eps, 0);
		delta = record_feed_forward(&r, p, layer, h);
	}
	norm = ig_rec_weight(&r, 1, d->width, "output_norm.weight");
	h = ig_rec_rms_norm_add(&r, &x, delta, norm, p->norm_eps, 1);
	logits = ig_rec_logits(&r, h, head);
	ig_rec_sample(&r, logits);
	return host->graph_status(g);
}

const struct ig_arch ig_arch_gemma3 = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct gemma3),
	.name = "gemma3",
	.read_params = read_params,
	.record = record,
};
