/*
 * hf_tensors.c: maps the tensors of a folder's files to GGUF's: which of them form one, its type
 * and shape (hf_shapes.c), and the conversion of its rows.  Entries are sorted by GGUF's name, so that the
 * matrices of all experts are adjacent, and MLX's scales and biases follow their codes.  All
 * tensors that need a conversion are checked here, so that it can't fail.
 */
#include "model/formats/hf_tensors_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* MLX's converter has added 1 to norms, and the last dimension of taps is 1. */
static bool is_shifted(const struct ig_hf_entry *e)
{
	const struct ig_st_tensor *t = e->t;

	return e->place.flags & IG_TENSOR_CONV && t->n_dims == 3 && t->dims[2] == 1 &&
	       t->dims[1] > 1;
}

/* ---- names -------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
	const struct ig_hf_entry *x = a, *y = b;
	int c = strcmp(x->place.name, y->place.name);

	if (c)
		return c;
	if (x->place.kind != y->place.kind)
		return x->place.kind < y->place.kind ? -1 : 1;
	if (x->place.expert != y->place.expert)
		return x->place.expert < y->place.expert ? -1 : 1;
	return strcmp(x->t->name, y->t->name);
}

/* The entries of one tensor of the file: one, or one for each of its halves. */
static int name_one(struct ig_hf_placing *p, const struct ig_st_tensor *t)
{
	char label[2 * IG_LABEL_BYTES];
	bool second = false;

	snprintf(label, sizeof label, "%s/%s", p->f->dir, p->f->files[t->file].name);
	do {
		struct ig_hf_entry *e = &p->entries[p->n_entries];
		int rc = ig_hf_name(&p->f->config, t->name, second, label, &e->place, p->err);
		if (rc)
			return rc;
		e->t = t;
		e->second = second;
		p->n_entries += e->place.name[0] != 0;
		if (!e->place.name[0] && e->place.part >= 0)
			p->g->left_out[e->place.part]++;
		second = !second && e->place.flags & IG_TENSOR_TWO;
	} while (second);
	return 0;
}

/* Whether the folder has the whole head that guesses, as the architecture reads it: then its keys say so. */
static int find_head(struct ig_hf_placing *p)
{
	struct ig_hf_config *c = &p->f->config;
	char eh_proj[IG_HF_NAME_BYTES];
	struct ig_hf_place place;
	bool found = false, unknown = false;

	snprintf(eh_proj, sizeof eh_proj, "blk.%u.nextn.eh_proj.weight", c->n_layers);
	c->head = true;
	for (uint32_t i = 0; i < p->f->n_files; i++)
		for (uint32_t j = 0; j < p->f->headers[i].n_tensors; j++) {
			const char *name = p->f->headers[i].tensors[j].name;
			if (!ig_hf_is_next(c, name))
				continue;
			unknown |= ig_hf_name(c, name, false, "", &place, NULL) != 0;
			found |= !unknown && !strcmp(place.name, eh_proj);
		}
	c->head = found && !unknown && c->n_layers < IG_HF_MAX_LAYERS;
	return c->head ? ig_hf_put_head(p->g, c, p->f->dir, p->err) : 0;
}

static int name_all(struct ig_hf_placing *p)
{
	size_t n = 0;
	int rc = 0;

	for (uint32_t i = 0; i < p->f->n_files; i++)
		n += p->f->headers[i].n_tensors;
	p->entries = malloc((2 * n + 1) * sizeof *p->entries);
	if (!p->entries)
		return ig_checkpoint_no_memory(p->g, 2 * n * sizeof *p->entries, p->err);
	for (uint32_t i = 0; i < p->f->n_files && !rc; i++)
		for (uint32_t j = 0; j < p->f->headers[i].n_tensors && !rc; j++)
			rc = name_one(p, &p->f->headers[i].tensors[j]);
	if (!rc)
		qsort(p->entries, p->n_entries, sizeof *p->entries, by_place);
	return rc;
}

static struct ig_hf_group group_at(const struct ig_hf_placing *p, size_t at)
{
	const struct ig_hf_entry *e = &p->entries[at], *end = p->entries + p->n_entries;
	const char *name = e->place.name;
	struct ig_hf_group x = { .main = e };

	for (; e < end && !strcmp(e->place.name, name) && e->place.kind == IG_HF_MAIN; e++)
		x.n++;
	x.scales = e;
	for (; e < end && !strcmp(e->place.name, name) && e->place.kind == IG_HF_SCALES; e++)
		x.n_scales++;
	x.biases = e;
	for (; e < end && !strcmp(e->place.name, name); e++)
		x.n_biases++;
	return x;
}

/* ---- groups ------------------------------------------------------------------ */

static bool same_shape(const struct ig_st_tensor *a, const struct ig_st_tensor *b)
{
	return a->n_dims == b->n_dims && a->type == b->type &&
	       !memcmp(a->dims, b->dims, a->n_dims * sizeof *a->dims);
}

/* Check for one tensor, or one of each expert, all with the same shape. */
static int check_kind(const struct ig_hf_placing *p, const struct ig_hf_entry *e, size_t n)
{
	uint32_t n_experts = p->f->config.n_experts;

	if (e->place.expert < 0 && n != 1)
		return ig_hf_bad(p, -EINVAL, e[1].t, "and \"%s\" are the same part of the model",
				 ig_show(e->t->name, strlen(e->t->name)).text);
	for (size_t i = 0; i < n && e->place.expert >= 0; i++) {
		if (e[i].place.expert > (int32_t)i)
			return ig_hf_bad(p, -EINVAL, e[i].t, "comes where expert %zu is missing",
					 i);
		if (e[i].place.expert < (int32_t)i)
			return ig_hf_bad(p, -EINVAL, e[i].t,
					 "and \"%s\" are the same part of the model",
					 ig_show(e[i - 1].t->name, strlen(e[i - 1].t->name)).text);
		if (!same_shape(e[i].t, e->t))
			return ig_hf_bad(p, -EINVAL, e[i].t,
					 "has another shape or type than the first expert's");
	}
	if (e->place.expert >= 0 && n != n_experts)
		return ig_hf_bad(p, -EINVAL, e[n - 1].t,
				 "is the last of %zu experts, config.json has %u", n, n_experts);
	return 0;
}

static int check_mxfp4(const struct ig_hf_placing *p, const struct ig_hf_group *x)
{
	const struct ig_st_tensor *t = x->main->t, *s = x->scales->t;

	if (!(x->main->place.flags & IG_TENSOR_EXPERTS) || t->n_dims != 4 || t->dims[3] != 16)
		return ig_hf_bad(p, -EINVAL, t,
				 "is of bytes, but not of MXFP4's blocks of experts");
	if (s->type != IG_ST_U8 || s->n_dims != 3 || memcmp(s->dims, t->dims, 3 * sizeof *s->dims))
		return ig_hf_bad(p, -EINVAL, s, "has another type or shape than its blocks");
	return 0;
}

static int check_group(const struct ig_hf_placing *p, const struct ig_hf_group *x)
{
	int rc;

	if (!x->n)
		return ig_hf_bad(p, -EINVAL, x->scales->t, "has no weight");
	if ((rc = check_kind(p, x->main, x->n)) ||
	    (x->n_scales && (rc = check_kind(p, x->scales, x->n_scales))) ||
	    (x->n_biases && (rc = check_kind(p, x->biases, x->n_biases))))
		return rc;
	const bool no_biases = ig_hf_is_mxfp4(x) || ig_hf_is_mlx_mxfp4(x);
	if ((x->n_scales != x->n_biases && !no_biases) || (x->n_scales && x->n_scales != x->n))
		return ig_hf_bad(p, -EINVAL, x->main->t, "has %zu scales and %zu biases beside it",
				 x->n_scales, x->n_biases);
	if (ig_hf_is_mxfp4(x))
		return check_mxfp4(p, x);
	if (x->n_scales &&
	    (x->scales->t->n_dims != x->main->t->n_dims ||
	     (!no_biases && !same_shape(x->scales->t, x->biases->t)) ||
	     memcmp(x->scales->t->dims, x->main->t->dims,
		    (x->main->t->n_dims ? x->main->t->n_dims - 1 : 0) * sizeof *x->main->t->dims)))
		return ig_hf_bad(p, -EINVAL, x->scales->t,
				 "has another shape than its weight, or its biases");
	return 0;
}

/* ---- pieces ---------------------------------------------------------------------------------------- */

static struct ig_hf_part piece_of(const struct ig_hf_group *x, size_t i, int64_t first_row)
{
	return (struct ig_hf_part){ .weight = x->main[i].t,
				    .scales = x->n_scales ? x->scales[i].t : NULL,
				    .biases = x->n_biases ? x->biases[i].t : NULL,
				    .first_row = first_row };
}

/* Whether the matrices of all experts, which lie in one tensor, are pieces of their own. */
static bool is_by_expert(const struct ig_hf_group *x)
{
	const uint32_t flags = x->main->place.flags;

	return flags & IG_TENSOR_EXPERTS && x->main->place.expert < 0 &&
	       (flags & IG_TENSOR_TWO || (flags & IG_TENSOR_TRANSPOSED && !ig_hf_is_mxfp4(x)));
}

/* The same of a head's rows. */
static int add_heads(struct ig_hf_placing *p, const struct ig_hf_group *x, struct ig_hf_made *m,
		     struct ig_checkpoint_tensor *out)
{
	const uint32_t n_heads = p->f->config.n_heads;
	const bool two = x->main->place.flags & IG_TENSOR_TWO;
	const int64_t each = x->main->t->dims[0] / n_heads, rows = out->n_rows;

	m->pieces = &p->f->pieces[p->n_pieces];
	m->n_pieces = two ? n_heads : 1;
	p->n_pieces += m->n_pieces;
	for (uint32_t i = 0; i < m->n_pieces; i++)
		m->pieces[i] =
			piece_of(x, 0, i * each + (two && x->main->second ? each - rows : 0));
	if (__builtin_mul_overflow(rows, (int64_t)n_heads, &out->n_rows))
		return ig_hf_bad(p, -EINVAL, x->main->t, "has more rows than a number can hold");
	m->piece_rows = two ? rows : out->n_rows;
	return 0;
}

/* out has the rows of one expert or of the tensor; afterwards all rows. */
static int add_pieces(struct ig_hf_placing *p, const struct ig_hf_group *x, struct ig_hf_made *m,
		      struct ig_checkpoint_tensor *out)
{
	const uint32_t n_experts = p->f->config.n_experts;
	const bool two = x->main->place.flags & IG_TENSOR_TWO && !m->sections.n_heads;
	const bool by_expert = is_by_expert(x);
	const bool whole = out->n_dims == 3 && x->main->place.expert < 0 && !by_expert;
	const int64_t rows = out->n_rows;

	if (x->main->place.flags & IG_TENSOR_HEADS)
		return add_heads(p, x, m, out);
	/* of the file's, in front of each expert, and of the second half or the last rows */
	const int64_t each = m->transposed ? out->n_cols : (two ? 2 : 1) * rows,
		      half = two && m->step == 1 && x->main->second ? rows :
			     x->main->place.flags & IG_TENSOR_LAST_ROWS ?
								      x->main->t->dims[0] - rows :
								      0;

	m->pieces = &p->f->pieces[p->n_pieces];
	m->n_pieces = by_expert ? n_experts : (uint32_t)x->n;
	p->n_pieces += m->n_pieces;
	for (uint32_t i = 0; i < m->n_pieces; i++)
		m->pieces[i] = by_expert ? piece_of(x, 0, i * each + half) : piece_of(x, i, half);
	if (out->n_dims == 3 && __builtin_mul_overflow(rows, (int64_t)n_experts, &out->n_rows))
		return ig_hf_bad(p, -EINVAL, x->main->t, "has more rows than a number can hold");
	m->piece_rows = whole ? out->n_rows : rows;
	return 0;
}

/* Use the file's data in place if it needs no conversion. */
static void use_data(struct ig_hf_made *m, struct ig_checkpoint_tensor *t)
{
	const struct ig_hf_part *q = &m->pieces[0];

	if (m->n_pieces == 1 && !q->scales && m->source == t->dtype && !m->head_rows &&
	    !m->transposed && m->step == 1 && m->add == 0 && q->first_row == 0 && !m->rows.n &&
	    !m->cols.n && !m->sections.n_heads && !m->negative_exp &&
	    (uintptr_t)q->weight->data % ig_dtype_row_bytes(t->dtype, 1) == 0)
		t->data = q->weight->data;
}

/* Which of n rows, values or columns are reordered. */
static int find_tiles(const struct ig_hf_placing *p, const struct ig_st_tensor *t, int64_t n,
		      struct ig_hf_tiles *out)
{
	const struct ig_hf_config *c = &p->f->config;

	*out = (struct ig_hf_tiles){ .n_groups = c->n_value_groups, .n_heads = c->n_value_heads };
	if (!out->n_groups || !out->n_heads || out->n_heads % out->n_groups ||
	    c->n_values % out->n_heads || (n != out->n_heads && n < c->n_values))
		return ig_hf_bad(p, -EINVAL, t, "is not of %u heads of values in %u groups",
				 out->n_heads, out->n_groups);
	out->n = n == out->n_heads ? 1 : c->n_values / out->n_heads;
	out->first = n == out->n_heads ? 0 : n - c->n_values;
	return 0;
}

static int tile(const struct ig_hf_placing *p, const struct ig_hf_group *x, struct ig_hf_made *m,
		const struct ig_checkpoint_tensor *t)
{
	const uint32_t flags = x->main->place.flags;
	int rc = 0;

	if (flags & IG_TENSOR_TILED)
		rc = find_tiles(p, x->main->t, t->n_dims == 1 ? t->n_cols : t->n_rows, &m->rows);
	if (!rc && flags & IG_TENSOR_TILED_COLUMNS)
		rc = find_tiles(p, x->main->t, t->n_cols, &m->cols);
	if (!rc && m->cols.n && x->n_scales && (m->cols.n % 32 || m->cols.first % 32))
		return ig_hf_bad(p, -ENOTSUP, x->main->t,
				 "is quantised in groups of heads of %lld values: not supported",
				 (long long)m->cols.n);
	m->negative_exp = flags & IG_TENSOR_NEGATIVE_EXP;
	return rc;
}

static int place_group(struct ig_hf_placing *p, const struct ig_hf_group *x)
{
	const struct ig_hf_config *c = &p->f->config;
	const char *name = x->main->place.name;
	const uint32_t flags = x->main->place.flags;
	struct ig_checkpoint_tensor *t = &p->g->tensors[p->g->n_tensors];
	struct ig_hf_made *m = &p->f->made[p->g->n_tensors];
	const uint32_t n_parts = flags & IG_TENSOR_HEADS ? c->n_heads : c->n_experts;
	uint64_t row_bytes;
	int rc;

	if ((rc = ig_hf_shape_of(p, x, m, t)) || (rc = add_pieces(p, x, m, t)))
		return rc;
	t->name = strcpy(p->g->names + (size_t)p->g->n_tensors * IG_HF_NAME_BYTES, name);
	t->dtype = t->n_dims == 1 || flags & (IG_TENSOR_F32 | IG_TENSOR_CONV) ? IG_F32 : m->source;
	if (t->n_dims == 1 && x->n_scales)
		return ig_hf_bad(p, -ENOTSUP, x->main->t, "is a quantised vector: not supported");
	if (flags & IG_TENSOR_PLUS_ONE && ig_ends_with(name, ".weight") && !p->shifted)
		m->add = 1;
	if ((rc = tile(p, x, m, t)))
		return rc;
	if (m->negative_exp && t->n_dims != 1)
		return ig_hf_bad(p, -EINVAL, x->main->t, "is not a vector");
	if (m->add != 0 && t->n_dims != 1)
		return ig_hf_bad(p, -EINVAL, x->main->t, "is not a vector");
	if (flags & IG_TENSOR_PAIRS) {
		m->head_rows = c->head_dim;
		if ((t->n_dims == 1 ? t->n_cols : t->n_rows) % m->head_rows)
			return ig_hf_bad(p, -EINVAL, x->main->t, "is not of heads of %u",
					 c->head_dim);
	}
	row_bytes = ig_dtype_row_bytes(t->dtype, t->n_cols);
	if (!row_bytes || __builtin_mul_overflow(row_bytes, (uint64_t)t->n_rows, &t->n_bytes))
		return ig_hf_bad(p, -EINVAL, x->main->t, "has a shape that %s can't hold",
				 ig_dtype_name(t->dtype));
	for (int d = 0; d < 4; d++)
		t->dims[d] = 1;
	t->dims[0] = t->n_cols;
	if (t->n_dims > 1)
		t->dims[1] = t->n_dims == 3 ? t->n_rows / n_parts : t->n_rows;
	if (t->n_dims > 2)
		t->dims[2] = n_parts;
	use_data(m, t);
	p->g->n_tensors++;
	return 0;
}

/* ---- all tensors ------------------------------------------------------------------------------------- */

/* The number of tensors and pieces. */
static int count_groups(const struct ig_hf_placing *p, size_t *n_tensors, size_t *n_pieces)
{
	int rc;

	*n_tensors = *n_pieces = 0;
	for (size_t at = 0; at < p->n_entries;) {
		struct ig_hf_group x = group_at(p, at);
		if ((rc = check_group(p, &x)))
			return rc;
		at += x.n + x.n_scales + x.n_biases;
		*n_pieces += x.main->place.flags & IG_TENSOR_HEADS ? p->f->config.n_heads :
			     is_by_expert(&x)			   ? p->f->config.n_experts :
								     x.n;
		++*n_tensors;
	}
	return 0;
}

/* A vector that is in no file; %u in its name is the layer. */
__attribute__((format(printf, 2, 0))) static void
place_vector(struct ig_hf_placing *p, const char *name, uint32_t layer, float *values, uint32_t n)
{
	char *to = p->g->names + (size_t)p->g->n_tensors * IG_HF_NAME_BYTES;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(to, IG_HF_NAME_BYTES, name, layer);
#pragma GCC diagnostic pop
	p->g->tensors[p->g->n_tensors++] = (struct ig_checkpoint_tensor){
		.name = to,
		.dtype = IG_F32,
		.n_dims = 1,
		.n_rows = 1,
		.n_cols = n,
		.dims = { n, 1, 1, 1 },
		.data = values,
		.n_bytes = n * sizeof *values,
	};
}

static void place_vectors(struct ig_hf_placing *p)
{
	const struct ig_hf_config *c = &p->f->config;

	if (c->rope_factors)
		place_vector(p, "rope_freqs.weight", 0, c->rope_factors, c->head_dim / 2);
	for (uint32_t i = 0; i < c->n_vectors; i++)
		for (uint32_t layer = 0; layer < c->n_layers + c->head; layer++)
			place_vector(p, c->vectors[i].name, layer, c->vectors[i].values,
				     c->vectors[i].n);
}

/* A reranker's rows of the output matrix, as one of their own. */
static int place_scores(struct ig_hf_placing *p)
{
	const struct ig_hf_config *c = &p->f->config;
	const char *from = c->tied ? "token_embd.weight" : "output.weight";
	struct ig_checkpoint_tensor *t = &p->g->tensors[p->g->n_tensors];
	struct ig_hf_made *m = &p->f->made[p->g->n_tensors];
	size_t at = 0;
	int rc;

	while (at < p->n_entries && strcmp(p->entries[at].place.name, from))
		at++;
	if (at == p->n_entries)
		return ig_fail(p->err, -EINVAL, "%s: a reranker without %s", p->f->dir, from);
	const struct ig_hf_group x = group_at(p, at);
	if ((rc = ig_hf_shape_of(p, &x, m, t)))
		return rc;
	m->pieces = &p->f->pieces[p->n_pieces];
	m->n_pieces = c->n_scores;
	m->piece_rows = 1;
	p->n_pieces += m->n_pieces;
	for (uint32_t i = 0; i < c->n_scores; i++) {
		m->pieces[i] = piece_of(&x, 0, c->score_rows[i]);
		if (t->n_dims != 2 || c->score_rows[i] >= t->n_rows)
			return ig_hf_bad(p, -EINVAL, x.main->t,
					 "has no row of token %u, a reranker's", c->score_rows[i]);
	}
	t->name = strcpy(p->g->names + (size_t)p->g->n_tensors * IG_HF_NAME_BYTES,
			 "cls.output.weight");
	t->dtype = m->source;
	t->n_rows = c->n_scores;
	t->n_bytes = ig_dtype_row_bytes(t->dtype, t->n_cols) * (uint64_t)t->n_rows;
	for (int d = 0; d < 4; d++)
		t->dims[d] = d == 0 ? t->n_cols : d == 1 ? t->n_rows : 1;
	use_data(m, t);
	p->g->n_tensors++;
	return 0;
}

static int index_all(struct ig_checkpoint *g, struct ig_error *err)
{
	int rc = ig_checkpoint_index(g, &g->kv_index, g->n_kvs, err);

	if (!rc)
		rc = ig_checkpoint_index(g, &g->tensor_index, g->n_tensors, err);
	for (uint32_t i = 0; i < g->n_kvs && !rc; i++)
		*ig_checkpoint_kv_index(g, g->kvs[i].key, g->kvs[i].key_len) = i + 1;
	for (uint32_t i = 0; i < g->n_tensors && !rc; i++)
		*ig_checkpoint_tensor_index(g, g->tensors[i].name) = i + 1;
	return rc;
}

int ig_hf_place_tensors(struct ig_checkpoint *g, struct ig_error *err)
{
	struct ig_hf_placing p = { .g = g, .f = g->folder, .err = err };
	size_t n_tensors, n_pieces, n_made;
	int rc;

	if ((rc = find_head(&p)) || (rc = name_all(&p)) ||
	    (rc = count_groups(&p, &n_tensors, &n_pieces)))
		goto out;
	n_made = 2 + (size_t)p.f->config.n_vectors * (p.f->config.n_layers + 1);
	g->tensors = calloc(n_tensors + n_made, sizeof *g->tensors);
	g->names = calloc(n_tensors + n_made, IG_HF_NAME_BYTES);
	p.f->made = calloc(n_tensors + n_made, sizeof *p.f->made);
	p.f->pieces = calloc(n_pieces + 3, sizeof *p.f->pieces);
	if (!g->tensors || !g->names || !p.f->made || !p.f->pieces) {
		rc = ig_checkpoint_no_memory(g, n_tensors * sizeof *g->tensors, err);
		goto out;
	}
	for (size_t at = 0; at < p.n_entries; at++)
		p.shifted = p.shifted || is_shifted(&p.entries[at]);
	for (size_t at = 0; at < p.n_entries && !rc;) {
		struct ig_hf_group x = group_at(&p, at);
		at += x.n + x.n_scales + x.n_biases;
		rc = place_group(&p, &x);
	}
	if (!rc && p.f->config.n_scores)
		rc = place_scores(&p);
	if (rc)
		goto out;
	place_vectors(&p);
	rc = index_all(g, err);
	if (!rc && !p.f->config.tied && !ig_checkpoint_find_tensor(g, "output.weight"))
		rc = ig_fail(err, -EINVAL,
			     "%s: lm_head.weight is missing, though tie_word_embeddings is false",
			     p.f->dir);
out:
	free(p.entries);
	return rc;
}
