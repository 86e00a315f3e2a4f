/* toy_module.c: a module with architectures that record mistakes on purpose; each
 * is named for its own. */
#include <ingot/arch.h>

#include <errno.h>
#include <string.h>

static int read_params(const struct ig_host *host, const struct ig_meta *meta, void *params,
		       struct ig_model_info *info, struct ig_error *err)
{
	info->n_vocab = 7;
	info->n_context = 16;
	info->n_groups = 1;
	info->groups[0] = (struct ig_cache_group){ sizeof info->groups[0], 1, 1, 8, 0 };
	return 0;
}

static int no_params(const struct ig_host *host, const struct ig_meta *meta, void *params,
		     struct ig_model_info *info, struct ig_error *err)
{
	return ig_fail(err, -ERANGE, "toy parameters are out of range");
}

static int no_info(const struct ig_host *host, const struct ig_meta *meta, void *params,
		   struct ig_model_info *info, struct ig_error *err)
{
	return 0;
}

enum mistake {
	NONE,
	MISSING,
	SHAPE,
	TWO_SHAPES,
	OP,
	INPUT,
	WEIGHT,
	NORM_SHAPE,
	NO_SAMPLE,
	SHORT_PARAMS,
	LONG_PARAMS,
	FUTURE_PARAMS,
	ENDLESS_PARAMS,
	NO_PARAMS,
};

/* norm as one would record it who knows fewer of its parameters, or more. */
static ig_value norm(struct ig_rec *r, enum mistake m, ig_value x, ig_weight w)
{
	const struct {
		struct ig_norm_params p;
		uint32_t more[2];
	} p = { { m == SHORT_PARAMS   ? offsetof(struct ig_norm_params, gather) :
		  m == ENDLESS_PARAMS ? UINT32_MAX :
		  m < SHORT_PARAMS    ? sizeof p.p :
					sizeof p,
		  IG_NORM_RMS, 1e-5f, 1 },
		{ 0, m == FUTURE_PARAMS } };

	return ig_rec_op(r, "norm", m == NO_PARAMS ? NULL : &p, &x, 1, &w, 1);
}

static int record(const struct ig_host *host, struct ig_graph *g, enum mistake m)
{
	struct ig_rec r = { host, g };
	ig_weight table =
		ig_rec_weight(&r, m == SHAPE ? 8 : 7, 32, m == MISSING ? "nowhere" : "table");
	ig_weight vector = ig_rec_weight(&r, 1, 32, "vector");

	if (m == TWO_SHAPES)
		ig_rec_weight(&r, 8, 32, "table");
	ig_value x = ig_rec_embed(&r, table);
	if (m == OP)
		ig_rec_op(&r, "levitate", &(uint32_t){ 4 }, &x, 1, NULL, 0);
	ig_weight w = m == WEIGHT ? 55 : m == NORM_SHAPE ? table : vector;
	x = norm(&r, m, m == INPUT ? 99 : x, w);
	x = ig_rec_logits(&r, x, table);
	if (m != NO_SAMPLE)
		ig_rec_sample(&r, x);
	return host->graph_status(g);
}

#define TOY(fn, label, read, m)                                                                    \
	static int record_##fn(const struct ig_host *h, struct ig_graph *g,                        \
			       const struct ig_meta *meta, const void *params)                     \
	{                                                                                          \
		return record(h, g, m);                                                            \
	}                                                                                          \
	static const struct ig_arch arch_##fn = { sizeof(struct ig_arch), 4, "toy-" label, read,   \
						  record_##fn };
TOY(good, "good", read_params, NONE)
TOY(missing, "missing-tensor", read_params, MISSING)
TOY(shape, "wrong-shape", read_params, SHAPE)
TOY(two, "two-shapes", read_params, TWO_SHAPES)
TOY(op, "unknown-op", read_params, OP)
TOY(input, "bad-input", read_params, INPUT)
TOY(weight, "bad-weight", read_params, WEIGHT)
TOY(norm, "bad-shape", read_params, NORM_SHAPE)
TOY(sample, "no-sample", read_params, NO_SAMPLE)
TOY(short, "short-params", read_params, SHORT_PARAMS)
TOY(long, "long-params", read_params, LONG_PARAMS)
TOY(future, "future-params", read_params, FUTURE_PARAMS)
TOY(endless, "endless-params", read_params, ENDLESS_PARAMS)
TOY(none, "no-params", read_params, NO_PARAMS)
TOY(params, "bad-params", no_params, NONE)
TOY(info, "no-info", no_info, NONE)

static const struct ig_arch *const archs[] = {
	&arch_good,   &arch_missing, &arch_shape,   &arch_two,	  &arch_op,   &arch_input,
	&arch_weight, &arch_norm,    &arch_sample,  &arch_params, &arch_info, &arch_short,
	&arch_long,   &arch_future,  &arch_endless, &arch_none,	  NULL,
};
static const struct ig_op_version needs[] = {
	{ "embed", 1 }, { "norm", 1 }, { "logits", 1 }, { "sample", 1 }, { NULL },
};

static const char *const colours[] = { "red", "green", NULL };
static const struct ig_module_option options[] = {
	{ .key = "loud", .type = IG_OPTION_BOOL, .number = 1, .help = "Say more." },
	{ .key = "rows",
	  .type = IG_OPTION_INT,
	  .min = 2,
	  .max = 9,
	  .number = 4,
	  .unit = "rows",
	  .help = "How many." },
	{ .key = "size",
	  .type = IG_OPTION_SIZE,
	  .min = 1024,
	  .max = 1 << 30,
	  .number = 4096,
	  .help = "How large." },
	{ .key = "pause",
	  .type = IG_OPTION_TIME,
	  .max = 60000,
	  .number = 1500,
	  .help = "How long." },
	{ .key = "colour",
	  .type = IG_OPTION_CHOICE,
	  .text = "green",
	  .choices = colours,
	  .help = "Which one." },
	{ .key = "motto", .type = IG_OPTION_TEXT, .max = 12, .text = "", .help = "What to say." },
	{ NULL },
};

/* What the options were is in the log, which tests read. */
static int init(const struct ig_host *host)
{
	uint64_t n[4];
	const char *s[2];

	if (host->option_number(host, "loud", &n[0]) || host->option_number(host, "rows", &n[1]) ||
	    host->option_number(host, "size", &n[2]) || host->option_number(host, "pause", &n[3]) ||
	    host->option_text(host, "colour", &s[0]) || host->option_text(host, "motto", &s[1]))
		return -EIO;
	if (host->option_number(host, "colour", n) != -EINVAL ||
	    host->option_text(host, "rows", s) != -EINVAL ||
	    host->option_number(host, "zeppelin", n) != -ENOENT ||
	    host->option_text(host, "zeppelin", s) != -ENOENT)
		return -EPROTO;
	host->log(IG_LOG_ERROR, "toy: %d %d %d %d %s \"%s\"", (int)n[0], (int)n[1], (int)n[2],
		  (int)n[3], s[0], s[1]);
	return 0;
}

const struct ig_module ingot_module = {
	.head = IG_MODULE_HEAD,
	.name = "toy",
	.version = "1",
	.requires_ops = needs,
	.options = options,
	.init = init,
	.archs = archs,
};
