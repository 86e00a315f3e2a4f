/* hf_shapes.c: the types and shapes of a folder's tensors, as GGUF has them. */
#include "model/formats/hf_tensors_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

int ig_hf_bad(const struct ig_hf_placing *p, int code, const struct ig_st_tensor *t,
	      const char *fmt, ...)
{
	char what[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	return ig_fail(p->err, code, "%s/%s: tensor \"%s\" %s", p->f->dir,
		       p->f->files[t->file].name, ig_show(t->name, strlen(t->name)).text, what);
}

/* Blocks of bytes with scales beside them: [expert, rows, blocks, 16], [expert, rows, blocks]. */
bool ig_hf_is_mxfp4(const struct ig_hf_group *x)
{
	return x->main->t->type == IG_ST_U8 && x->n_scales && !x->n_biases;
}

bool ig_hf_is_mlx_mxfp4(const struct ig_hf_group *x)
{
	return x->main->t->type == IG_ST_U32 && x->n_scales && !x->n_biases &&
	       x->scales->t->type == IG_ST_U8;
}

/* MLX's object for the module of this weight, or the one for all.  mxfp4: it must be of that mode, else affine. */
static int read_group_size(const struct ig_hf_placing *p, const struct ig_st_tensor *t, bool mxfp4,
			   uint32_t *group, uint32_t *bits)
{
	const json_t *all = p->f->config.quantization, *own, *v;
	char module[IG_ST_MAX_NAME + 1];
	const char *mode;

	if (!all)
		return ig_hf_bad(p, -ENOTSUP, t,
				 "is of integers, but config.json has no \"quantization\"");
	snprintf(module, sizeof module, "%s", t->name);
	if (strlen(module) > 7 && !strcmp(module + strlen(module) - 7, ".weight"))
		module[strlen(module) - 7] = 0;
	own = json_object_get(all, module);
	own = json_is_object(own) ? own : all;
	mode = json_string_value(json_object_get(own, "mode"));
	if (mode && strcmp(mode, "affine") && strcmp(mode, "mxfp4"))
		return ig_hf_bad(p, -ENOTSUP, t,
				 "is quantised in mode \"%s\"; Ingot reads affine and mxfp4",
				 ig_show(mode, strlen(mode)).text);
	if (mxfp4 != (mode && !strcmp(mode, "mxfp4")))
		return ig_hf_bad(
			p, -EINVAL, t,
			mxfp4 ? "has scales of bytes and no biases, but is not "
				"quantised in mode \"mxfp4\"" :
				"is quantised in mode \"mxfp4\", but has no scales of bytes, "
				"or has biases");
	v = json_object_get(own, "group_size");
	*group = json_is_integer(v) && json_integer_value(v) > 0 && json_integer_value(v) < 65536 ?
			 (uint32_t)json_integer_value(v) :
			 0;
	v = json_object_get(own, "bits");
	*bits = json_is_integer(v) && json_integer_value(v) > 0 && json_integer_value(v) < 64 ?
			(uint32_t)json_integer_value(v) :
			0;
	if (mxfp4 && (*group != 32 || *bits != 4))
		return ig_hf_bad(
			p, -ENOTSUP, t,
			"is quantised in mode \"mxfp4\" with %u bits in groups of %u, which "
			"has 4 in groups of 32",
			*bits, *group);
	if (*group != 32 && *group != 64 && *group != 128)
		return ig_hf_bad(p, -ENOTSUP, t,
				 "is quantised with group_size %u; Ingot reads 32, 64 and 128",
				 *group);
	if (*bits < 2 || *bits > 8 || *bits == 7)
		return ig_hf_bad(p, -ENOTSUP, t,
				 "is quantised with %u bits; Ingot reads 2 to 6, and 8", *bits);
	return 0;
}

/* The dtype and number of values of the file's rows. */
static int source_of(const struct ig_hf_placing *p, const struct ig_hf_group *x, uint32_t *dtype,
		     int64_t *n_cols)
{
	const struct ig_st_tensor *t = x->main->t, *s = x->n_scales ? x->scales->t : NULL;
	int64_t last = t->dims[t->n_dims - 1];
	uint32_t group = 0, bits = 0;
	int rc;

	*n_cols = last;
	if (ig_hf_is_mxfp4(x)) {
		*n_cols = t->dims[2] * 32; /* the file is smaller than 2^58 bytes */
		*dtype = IG_MXFP4;
		return 0;
	}
	if (s && t->type != IG_ST_U32)
		return ig_hf_bad(p, -EINVAL, t, "is of type %s, but has scales beside it",
				 t->type_name);
	switch (t->type) {
	case IG_ST_F32: *dtype = IG_F32; return 0;
	case IG_ST_F16: *dtype = IG_F16; return 0;
	case IG_ST_BF16: *dtype = IG_BF16; return 0;
	case IG_ST_U32: break;
	default:
		return ig_hf_bad(
			p, -ENOTSUP, t,
			"is of type %s; Ingot reads F32, F16, BF16, and U32 with MLX's scales",
			t->type_name);
	}
	if (!s)
		return ig_hf_bad(p, -EINVAL, t, "is of type U32 without scales beside it");
	const bool mxfp4 = ig_hf_is_mlx_mxfp4(x);
	if (!mxfp4 && s->type != IG_ST_F32 && s->type != IG_ST_F16 && s->type != IG_ST_BF16)
		return ig_hf_bad(p, -ENOTSUP, s,
				 "is of type %s; Ingot reads scales of F32, F16 and BF16",
				 s->type_name);
	if ((rc = read_group_size(p, t, mxfp4, &group, &bits)))
		return rc;
	/* The file is smaller than 2^58 bytes, so no product overflows. */
	*n_cols = last * 32 / bits;
	if (last * 32 % bits || s->dims[s->n_dims - 1] != *n_cols / group || *n_cols % group)
		return ig_hf_bad(p, -EINVAL, t,
				 "has rows of %" PRId64 " words and %" PRId64 " scales: not "
				 "%u bits in groups of %u",
				 last, s->dims[s->n_dims - 1], bits, group);
	*dtype = mxfp4 ? IG_MXFP4 : bits <= 4 ? IG_Q4_1 : IG_Q8_M;
	return 0;
}

/* The same of a convolution of each column by itself. */
static int conv_shape(const struct ig_hf_placing *p, const struct ig_hf_group *x,
		      struct ig_hf_made *m, struct ig_checkpoint_tensor *out)
{
	const struct ig_st_tensor *t = x->main->t;
	int64_t n_cols;
	int rc;

	if (t->n_dims != 3 || t->dims[0] < 1 || t->dims[1] < 1 || t->dims[2] < 1 ||
	    (t->dims[1] != 1 && t->dims[2] != 1) || x->n_scales)
		return ig_hf_bad(p, -EINVAL, t, "has not the shape of a convolution's taps");
	if ((rc = source_of(p, x, &m->source, &n_cols)))
		return rc;
	out->n_rows = t->dims[0];
	out->n_cols = t->dims[1] * t->dims[2];
	out->n_dims = 2;
	return 0;
}

/* The same of a matrix of each head.  Keys and values that lie in one are told apart by the values' number. */
static int heads_shape(const struct ig_hf_placing *p, const struct ig_hf_group *x,
		       struct ig_hf_made *m, struct ig_checkpoint_tensor *out)
{
	const struct ig_hf_config *c = &p->f->config;
	const struct ig_st_tensor *t = x->main->t;
	const bool two = x->main->place.flags & IG_TENSOR_TWO;
	int64_t rows;
	int rc;

	for (uint32_t i = 0; i < t->n_dims; i++)
		if (t->dims[i] < 1)
			return ig_hf_bad(p, -EINVAL, t, "has no values");
	if (t->n_dims != (two ? 2 : 3) || t->dims[0] % c->n_heads ||
	    (!two && t->dims[0] != c->n_heads))
		return ig_hf_bad(p, -EINVAL, t, "is not of %u heads", c->n_heads);
	if ((rc = source_of(p, x, &m->source, &out->n_cols)))
		return rc;
	rows = two ? t->dims[0] / c->n_heads : t->dims[1];
	m->step = 1;
	out->n_dims = 3;
	out->n_rows = rows;
	if (!two)
		return 0;
	if (!c->value_dim || rows <= c->value_dim)
		return ig_hf_bad(p, -EINVAL, t,
				 "has %" PRId64 " rows a head, of which %u are of values", rows,
				 c->value_dim);
	out->n_rows = x->main->second ? c->value_dim : out->n_cols;
	if (x->main->second)
		return 0;
	if (x->n_scales)
		return ig_hf_bad(p, -ENOTSUP, t, "is quantised along its outputs: not supported");
	out->n_cols = rows - c->value_dim;
	m->transposed = true;
	return 0;
}

/* The rows of q, k and v, or of z, in a matrix of q | k | v | z by heads of keys. */
static int find_sections(const struct ig_hf_placing *p, const struct ig_hf_group *x,
			 struct ig_hf_made *m, struct ig_checkpoint_tensor *out)
{
	const struct ig_hf_config *c = &p->f->config;
	const int64_t heads = c->n_value_groups, k = c->key_dim;
	const int64_t v = heads ? c->n_values / heads : 0;
	struct ig_hf_sections *s = &m->sections;

	if (!heads || !k || !v || c->n_values % heads || out->n_dims != 2 ||
	    out->n_rows != heads * (2 * k + 2 * v))
		return ig_hf_bad(p, -EINVAL, x->main->t,
				 "is not of %u heads of keys of %u and %u values in all",
				 c->n_value_groups, c->key_dim, c->n_values);
	*s = (struct ig_hf_sections){ .n_heads = c->n_value_groups,
				      .n_sections = x->main->second ? 1 : 3,
				      .head_rows = 2 * (k + v),
				      .n = { k, k, v },
				      .at = { 0, k, 2 * k } };
	if (x->main->second) {
		s->n[0] = v;
		s->at[0] = 2 * k + v;
	}
	out->n_rows = x->main->second ? heads * v : heads * (2 * k + v);
	return 0;
}

static int last_rows(const struct ig_hf_placing *p, const struct ig_hf_group *x,
		     struct ig_checkpoint_tensor *out)
{
	const uint32_t n = p->f->config.n_positions;

	if (out->n_dims != 2 || out->n_rows < n)
		return ig_hf_bad(p, -EINVAL, x->main->t, "has not a row for each of %u positions",
				 n);
	out->n_rows = n;
	return 0;
}

int ig_hf_shape_of(const struct ig_hf_placing *p, const struct ig_hf_group *x, struct ig_hf_made *m,
		   struct ig_checkpoint_tensor *out)
{
	const struct ig_st_tensor *t = x->main->t;
	const uint32_t flags = x->main->place.flags, want_experts = p->f->config.n_experts;
	const bool experts = flags & IG_TENSOR_EXPERTS,
		   merged = experts && x->main->place.expert < 0, mxfp4 = ig_hf_is_mxfp4(x),
		   two = flags & IG_TENSOR_TWO, turn = flags & IG_TENSOR_INTERLEAVED,
		   stacked = merged && flags & IG_TENSOR_STACKED;
	int rc;

	m->step = two && turn ? 2 : 1;
	m->skip = two && turn ? x->main->second : 0;
	if (flags & IG_TENSOR_CONV && t->n_dims != 1)
		return conv_shape(p, x, m, out);
	if (flags & IG_TENSOR_HEADS)
		return heads_shape(p, x, m, out);
	if (experts ? t->n_dims != (mxfp4	       ? 4 :
				    merged && !stacked ? 3 :
							 2) :
		      t->n_dims != 1 && t->n_dims != 2)
		return ig_hf_bad(p, -EINVAL, t, "has %u dimensions", t->n_dims);
	for (uint32_t i = 0; i < t->n_dims; i++)
		if (t->dims[i] < 1)
			return ig_hf_bad(p, -EINVAL, t, "has no values");
	if (stacked && (!want_experts || t->dims[0] % want_experts))
		return ig_hf_bad(p, -EINVAL, t,
				 "has %" PRId64
				 " rows, which are not of %u experts, as config.json "
				 "has them",
				 t->dims[0], want_experts);
	if (merged && !stacked && t->dims[0] != want_experts)
		return ig_hf_bad(p, -EINVAL, t, "has %" PRId64 " experts, config.json %u",
				 t->dims[0], want_experts);
	if ((rc = source_of(p, x, &m->source, &out->n_cols)))
		return rc;
	out->n_rows = t->n_dims == 1 ? 1 : mxfp4 ? t->dims[1] : t->dims[t->n_dims - 2];
	if (stacked)
		out->n_rows /= want_experts;
	out->n_dims = experts ? 3 : t->n_dims;
	if (flags & IG_TENSOR_TRANSPOSED && (t->n_dims == 2 || merged) && !mxfp4) {
		int64_t rows = out->n_rows;
		if (x->n_scales)
			return ig_hf_bad(p, -ENOTSUP, t,
					 "is quantised along its outputs: not supported");
		out->n_rows = out->n_cols;
		out->n_cols = rows;
		m->transposed = true;
	}
	if (flags & IG_TENSOR_BY_KEY)
		return find_sections(p, x, m, out);
	if (flags & IG_TENSOR_LAST_ROWS)
		return last_rows(p, x, out);
	if (two) {
		const bool values = !experts && turn;
		int64_t *halved = values ? &out->n_cols : &out->n_rows;
		if (*halved % 2 || (values && x->n_scales))
			return ig_hf_bad(p, -EINVAL, t, "has no two halves");
		*halved /= 2;
	}
	return 0;
}
