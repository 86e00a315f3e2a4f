/*
 * pebble.c: an example of a module: the dense architecture "pebble" and one option.  Its blocks
 * are pre-norm, with grouped-query attention, RoPE and a gated feed-forward (SiLU).  It needs
 * only the installed headers:
 *
 *   cc -shared -fPIC $(pkg-config --cflags ingot) -o pebble.so pebble.c
 *
 * Add its folder to modules.path; see docs/modules.md.
 */
#include <ingot/layers.h>

struct pebble {
	struct ig_hparams p;
	struct ig_rope rope;
	uint32_t window; /* of the sliding window, in tokens; 0: none */
};

/* modules.pebble.window in ingot.yaml */
static const struct ig_module_option options[] = {
	{ .key = "window",
	  .type = IG_OPTION_INT,
	  .max = 1u << 24,
	  .unit = "tokens",
	  .help = "How many tokens back a token sees; 0 means all of them." },
	{ .key = NULL },
};

static int read_params(const struct ig_host *host, const struct ig_meta *meta, void *params,
		       struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "pebble", err };
	struct pebble *m = params;
	uint64_t window;
	int rc;

	if ((rc = host->option_number(host, "window", &window)) ||
	    (rc = ig_hparams_dense(&s, IG_RMS_NORM_EPS, &m->p)) ||
	    (rc = ig_hparams_rope(&s, &m->p, &m->rope)))
		return rc;
	m->window = (uint32_t)window;
	ig_hparams_info(&m->p, m->window, info);
	return 0;
}

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	const struct pebble *m = params;
	struct ig_rec r = { host, g };
	const struct ig_gqa attention = {
		.p = &m->p,
		.rope = &m->rope,
		.table = ig_layer_rope_table(&r, &m->rope),
		.mode = IG_ROPE_PAIRS,
		.window = m->window,
	};
	ig_value x = ig_layer_embed(&r, &m->p, 1), h;

	(void)meta;
	for (uint32_t layer = 0; layer < m->p.n_layers; layer++) {
		h = ig_layer_rms_norm(&r, &m->p, "blk.%u.attn_norm.weight", layer, x);
		x = ig_layer_gqa(&r, &attention, layer, h, x);
		h = ig_layer_rms_norm(&r, &m->p, "blk.%u.ffn_norm.weight", layer, x);
		x = ig_layer_glu(&r, &m->p, IG_ACT_SILU, layer, h, x);
	}
	return ig_layer_norm_head(&r, &m->p, x);
}

static const struct ig_arch pebble = {
	.struct_size = sizeof pebble,
	.params_size = sizeof(struct pebble),
	.name = "pebble",
	.read_params = read_params,
	.record = record,
};
static const struct ig_arch *const archs[] = { &pebble, NULL };
static const struct ig_op_version needs[] = {
	{ "embed", 1, 0 },	{ "norm", 1, 0 },    { "linear", 1, 0 },    { "glu", 1, 0 },
	{ "rope_table", 1, 0 }, { "rope_kv", 1, 0 }, { "attention", 1, 0 }, { "logits", 1, 0 },
	{ "sample", 1, 0 },	{ NULL, 0, 0 },
};

const struct ig_module ingot_module = {
	.head = IG_MODULE_HEAD,
	.name = "pebble",
	.version = "1",
	.requires_ops = needs,
	.archs = archs,
	.options = options,
};
