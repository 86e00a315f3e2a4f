/* part.c: see part.h. */
#include "runtime/machines/part.h"
#include "runtime/stages.h"

#include <ingot/kvcache.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct ig_part {
	struct ig_wire_program program;
	struct ig_plan *plan; /* of the stage */
	struct ig_program *lowered;
	bool is_last;
	bool trusts_layouts; /* of rank 0: they are its own */
	uint32_t width_in, width_out;
	struct ig_kv_layout layouts[IG_MAX_CACHE_GROUPS];
	void **slab_bases;    /* [max_slabs] */
	uint64_t *slab_bytes; /* [max_slabs] of those of this step, else 0 */
};

/* ---- slabs ------------------------------------------------------------------------------- */

static int wrong_slab(uint32_t slab, struct ig_error *err)
{
	return ig_fail(err, -EPROTO, "slab %u of the cache is not there, or there already", slab);
}

static const struct ig_part_slab *find(const struct ig_part_slabs *s, uint32_t slab)
{
	return slab < s->cap && s->at[slab].base ? &s->at[slab] : NULL;
}

int ig_part_map(struct ig_part_slabs *s, uint32_t slab, uint64_t n_bytes, struct ig_error *err)
{
	if (slab >= IG_PART_MAX_SLABS || find(s, slab))
		return wrong_slab(slab, err);
	if (slab >= s->cap) {
		const uint32_t cap = slab < 32 ? 64 : slab * 2;
		struct ig_part_slab *more = realloc(s->at, cap * sizeof *more);
		if (!more)
			return ig_fail(err, -ENOMEM, "no memory for slab %u", slab);
		memset(more + s->cap, 0, (cap - s->cap) * sizeof *more);
		s->at = more;
		s->cap = cap;
	}
	void *base = ig_driver_map_slab(s->driver, n_bytes);
	if (!base)
		return ig_fail(err, -ENOMEM, "no memory for slab %u of the cache, %llu bytes", slab,
			       (unsigned long long)n_bytes);
	s->at[slab] = (struct ig_part_slab){ base, n_bytes };
	return 0;
}

int ig_part_unmap(struct ig_part_slabs *s, uint32_t slab, struct ig_error *err)
{
	if (!find(s, slab))
		return wrong_slab(slab, err);
	ig_driver_unmap_slab(s->driver, s->at[slab].base, s->at[slab].n_bytes);
	s->at[slab].base = NULL;
	return 0;
}

static bool within(const struct ig_part_slab *s, uint64_t offset, uint64_t n_bytes)
{
	return offset <= s->n_bytes && n_bytes <= s->n_bytes - offset;
}

int ig_part_copy(struct ig_part_slabs *s, const struct ig_wire_copy *c, struct ig_error *err)
{
	const struct ig_part_slab *to = find(s, c->to), *from = find(s, c->from);

	if (!to || !from || !within(to, c->to_offset, c->n_bytes) ||
	    !within(from, c->from_offset, c->n_bytes))
		return ig_fail(err, -EPROTO, "a copy of %llu bytes between slabs %u and %u",
			       (unsigned long long)c->n_bytes, c->from, c->to);
	ig_driver_copy(s->driver, (char *)to->base + c->to_offset,
		       (const char *)from->base + c->from_offset, c->n_bytes);
	return 0;
}

void ig_part_unmap_all(struct ig_part_slabs *s)
{
	for (uint32_t i = 0; i < s->cap; i++)
		if (s->at[i].base)
			ig_part_unmap(s, i, NULL);
	free(s->at);
	s->at = NULL;
	s->cap = 0;
}

/* ---- loading ----------------------------------------------------------------------------- */

static int make_layouts(struct ig_part *p, ig_part_layout *layout, void *ctx, struct ig_error *err)
{
	const struct ig_model_info *info = &p->plan->info;
	int rc = 0;

	for (uint32_t g = 0; g < info->n_groups && !rc; g++) {
		const struct ig_cache_group *of = &info->groups[g];
		p->layouts[g] = (struct ig_kv_layout){ .k_dtype = p->program.limits.k_dtype,
						       .v_dtype = p->program.limits.v_dtype,
						       .n_layers = of->n_layers,
						       .n_kv_heads = of->n_kv_heads,
						       .head_dim = of->head_dim,
						       .kind = of->kind };
		if (of->kind == IG_CACHE_STATE)
			p->program.n_parts[g] = of->n_layers * of->n_kv_heads;
		if (layout)
			rc = layout(ctx, &p->layouts[g], err);
	}
	return rc;
}

int ig_part_lower(struct ig_driver *driver, const struct ig_plan *whole, uint32_t n_stages,
		  uint32_t stage, uint32_t number, const struct ig_program_limits *limits,
		  ig_part_layout *layout, void *layout_ctx, struct ig_part **out,
		  struct ig_program_memory *memory, struct ig_error *err)
{
	struct ig_part *p = calloc(1, sizeof *p);
	int rc = p ? 0 : -ENOMEM;

	*out = NULL;
	if (p) {
		p->program = (struct ig_wire_program){ .number = number, .limits = *limits };
		if (!limits->max_slabs)
			p->program.limits.max_slabs = 1u << (32 - IG_BLOCK_BITS);
		p->is_last = stage + 1 == n_stages;
		p->trusts_layouts = layout == NULL;
		p->slab_bases = calloc(p->program.limits.max_slabs, sizeof *p->slab_bases);
		p->slab_bytes = calloc(p->program.limits.max_slabs, sizeof *p->slab_bytes);
		rc = p->slab_bases && p->slab_bytes ? 0 : -ENOMEM;
	}
	if (rc)
		ig_fail(err, rc, "no memory for a stage of a plan");
	if (!rc)
		rc = ig_plan_cut(whole, n_stages, stage, &p->plan, err);
	if (!rc) {
		p->program.n_vocab = p->plan->n_results;
		p->program.n_groups = p->plan->info.n_groups;
		p->width_in = p->plan->width_in;
		p->width_out = p->plan->width_out;
		rc = make_layouts(p, layout, layout_ctx, err);
	}
	if (!rc)
		rc = ig_driver_lower(driver, p->plan, limits, &p->lowered, memory, err);
	if (rc) {
		ig_part_destroy(p);
		return rc;
	}
	*out = p;
	return 0;
}

int ig_part_load(struct ig_part *p, struct ig_error *err)
{
	return ig_program_load(p->lowered, err);
}

void ig_part_destroy(struct ig_part *p)
{
	if (!p)
		return;
	ig_program_destroy(p->lowered);
	ig_plan_destroy(p->plan);
	free(p->slab_bases);
	free(p->slab_bytes);
	free(p);
}

const struct ig_wire_program *ig_part_program(const struct ig_part *p) { return &p->program; }

/* ---- running ----------------------------------------------------------------------------- */

static int take_slabs(struct ig_part *p, const struct ig_part_slabs *slabs,
		      const struct ig_wire_step *s, struct ig_error *err)
{
	for (uint32_t i = 0; i < s->n_slabs; i++) {
		const uint32_t k = s->slabs[i].number;
		const struct ig_part_slab *slab = find(slabs, s->slabs[i].slab);
		if (k >= p->program.limits.max_slabs || !slab)
			return wrong_slab(s->slabs[i].slab, err);
		p->slab_bases[k] = slab->base;
		p->slab_bytes[k] = slab->n_bytes;
	}
	return 0;
}

static void drop_slabs(struct ig_part *p, const struct ig_wire_step *s)
{
	for (uint32_t i = 0; i < s->n_slabs; i++)
		if (s->slabs[i].number < p->program.limits.max_slabs)
			p->slab_bytes[s->slabs[i].number] = 0;
}

/* Every block must lie in a slab of this step. */
static int check_blocks(const struct ig_part *p, const struct ig_wire_step *s, struct ig_error *err)
{
	for (uint32_t g = 0; g < s->step.n_groups; g++) {
		const struct ig_step_kv *kv = &s->kv[g];
		const int64_t rows = p->program.n_parts[g] ? s->step.n_states : s->step.n_seqs;
		for (int64_t i = 0; i < rows * kv->max_blocks; i++) {
			const uint32_t word = kv->block_tables[i], k = IG_BLOCK_SLAB(word);
			if (word == IG_BLOCK_NONE)
				continue;
			if (k >= p->program.limits.max_slabs ||
			    (IG_BLOCK_INDEX(word) + UINT64_C(1)) * kv->layout->block_bytes >
				    p->slab_bytes[k])
				return ig_fail(err, -EPROTO, "block %#x is in no slab of the step",
					       word);
		}
	}
	return 0;
}

/* Of rows from the stage before. */
static int check_rows(const struct ig_part *p, const struct ig_wire_step *s,
		      const struct ig_message *rows, const float **in, struct ig_error *err)
{
	struct ig_wire_part h;

	*in = NULL;
	if (!p->width_in)
		return 0;
	if (!rows || rows->kind != IG_WIRE_ROWS || rows->n_bytes < sizeof h)
		return ig_fail(err, -EPROTO, "rows of the stage before are missing");
	memcpy(&h, rows->data, sizeof h);
	if (h.program != p->program.number || h.number != s->number ||
	    h.n_rows != (uint32_t)s->step.n_rows || h.n_cols != p->width_in ||
	    rows->n_bytes != sizeof h + (uint64_t)h.n_rows * h.n_cols * sizeof(float))
		return ig_fail(err, -EPROTO, "rows of the stage before are of another step");
	*in = (const float *)(const void *)(rows->data + sizeof h);
	return 0;
}

/* A message with memory for what the stage writes, which the step then points to. */
static struct ig_message *make_out(const struct ig_part *p, struct ig_wire_step *s)
{
	const struct ig_step *step = &s->step;
	struct ig_wire_part h = { .program = p->program.number, .number = s->number };
	size_t n_ids = 0, n_floats;

	h.n_rows = (uint32_t)(p->is_last ? step->n_logit_rows : step->n_rows);
	h.n_cols = !p->is_last ? p->width_out : s->wants_logits ? p->program.n_vocab : 0;
	if (p->is_last)
		n_ids = ig_wire_n_ids(h.n_rows);
	n_floats = (size_t)h.n_rows * h.n_cols;
	struct ig_message *m = ig_message_create(p->is_last ? IG_WIRE_IDS : IG_WIRE_ROWS,
						 sizeof h + (n_ids + n_floats) * sizeof(float));
	if (!m)
		return NULL;
	memcpy(m->data, &h, sizeof h);
	void *at = m->data + sizeof h;
	if (!p->is_last) {
		s->step.stage_out = at;
		return m;
	}
	memset(at, 0, n_ids * sizeof(int32_t));
	s->step.sampled_ids = at;
	s->step.logits = h.n_cols ? (float *)at + n_ids : NULL;
	return m;
}

static int compute(struct ig_part *p, const struct ig_step *step, struct ig_error *err)
{
	int rc = ig_program_submit(p->lowered, step);

	if (!rc)
		rc = ig_program_wait(p->lowered);
	return rc ? ig_fail(err, rc, "%s", ig_program_error(p->lowered)->text) : 0;
}

int ig_part_run(struct ig_part *p, const struct ig_part_slabs *slabs, const struct ig_message *step,
		const struct ig_message *rows, struct ig_message **out, struct ig_error *err)
{
	struct ig_wire_step s;
	const float *in = NULL;
	int rc = ig_wire_read_step(&p->program, step, &s, err);

	*out = NULL;
	if (rc)
		return rc;
	for (uint32_t g = 0; g < s.step.n_groups; g++) {
		if (p->trusts_layouts)
			continue;
		/* Padding is none, so bytes can be compared. */
		if (memcmp(&s.layouts[g], &p->layouts[g], sizeof p->layouts[g]) != 0)
			return ig_fail(err, -EPROTO,
				       "the layout of cache group %u is another one here: the "
				       "ranks' kvcache options or modules differ",
				       g);
		s.kv[g].layout = &p->layouts[g];
	}
	rc = take_slabs(p, slabs, &s, err);
	if (!rc)
		rc = check_blocks(p, &s, err);
	if (!rc)
		rc = check_rows(p, &s, rows, &in, err);
	if (!rc && !(*out = make_out(p, &s)))
		rc = ig_fail(err, -ENOMEM, "no memory for the rows of a step");
	if (!rc) {
		s.step.slab_bases = p->slab_bases;
		s.step.stage_in = in;
		rc = compute(p, &s.step, err);
	}
	drop_slabs(p, &s);
	if (rc) {
		free(*out);
		*out = NULL;
	}
	return rc;
}
