/*
 * contract.c: the memory contract: packed weights, scratch and the cache's arena of all
 * loaded models stay within one budget.  Memory is counted before it is allocated, so that a
 * load that does not fit fails before it has changed anything.  Where the system counts memory by process, as
 * macOS does, and has counted more, that is what is used.
 */
#include "daemon/engine/contract_private.h"

#include "base/log.h"
#include "base/machine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GIB ((double)(1u << 30))

static int find_budget(struct ig_models *ms, const struct ig_config *config, struct ig_error *err)
{
	struct ig_contract *c = &ms->contract;
	const struct ig_driver *driver = ms->backend->driver;
	uint64_t device = ig_driver_memory(driver), machine = ig_machine_memory();
	bool unified = ig_driver_is_unified(driver);

	c->budget = config->memory.budget;
	if (!c->budget) {
		c->budget = ig_default_budget(machine, device, unified);
		if (unified)
			ig_log_info("memory.budget: %.2f GiB by default; the GPU's limit is %.2f, "
				    "the machine has %.2f",
				    (double)c->budget / GIB, (double)device / GIB,
				    (double)machine / GIB);
	}
	return c->budget ? 0 :
			   ig_fail(err, -ENOTSUP,
				   "this machine's memory is not known; set memory.budget");
}

/* ---- one model ------------------------------------------------------------------------ */

/* Maximum blocks of group g that one sequence of n tokens has at once. */
static uint64_t blocks_for(const struct ig_model *m, uint32_t g, uint32_t n_tokens)
{
	uint64_t n_blocks = ((uint64_t)n_tokens + IG_BLOCK_TOKENS - 1) / IG_BLOCK_TOKENS;
	uint64_t window = m->plan->info.groups[g].window, n;

	if (m->layouts[g].kind ==
	    IG_CACHE_STATE) /* the live state, and the last one that is kept */
		return 2 * (uint64_t)m->layouts[g].n_layers * m->layouts[g].n_kv_heads;
	if (!window)
		return n_blocks;
	/* What a chunk reads and writes, at the worst alignment to blocks. */
	n = (window - 1 + IG_BLOCK_TOKENS - 1 + m->chunk + IG_BLOCK_TOKENS - 2) / IG_BLOCK_TOKENS +
	    1;
	return n < n_blocks ? n : n_blocks;
}

/* Slabs that one sequence of n tokens takes. */
static uint64_t slabs_for(const struct ig_model *m, uint64_t slab_bytes, uint32_t n_tokens)
{
	uint64_t n_slabs = 0;

	for (uint32_t g = 0; g < m->n_groups; g++) {
		uint64_t in_slab = slab_bytes / m->layouts[g].block_bytes;
		if (in_slab > 1u << IG_BLOCK_BITS)
			in_slab = 1u << IG_BLOCK_BITS;
		n_slabs += (blocks_for(m, g, n_tokens) + in_slab - 1) / in_slab;
	}
	return n_slabs;
}

static uint32_t tokens_for(const struct ig_model *m, uint64_t slab_bytes, uint64_t n_slabs)
{
	uint32_t low = 0, high = m->limits.max_context;

	while (low < high) {
		uint32_t mid = low + (high - low + 1) / 2;
		if (slabs_for(m, slab_bytes, mid) <= n_slabs)
			low = mid;
		else
			high = mid - 1;
	}
	return low;
}

/* The masks in the steps' buffers are the engine's own. */
static uint64_t scratch_of(const struct ig_model *m)
{
	return m->memory.scratch_bytes +
	       (uint64_t)IG_STEPS_IN_FLIGHT * m->limits.max_logit_rows * m->mask_words * 4;
}

void ig_contract_measure(const struct ig_contract *c, struct ig_model *m)
{
	uint32_t n =
		m->limits.max_context < IG_LEAST_TOKENS ? m->limits.max_context : IG_LEAST_TOKENS;

	const struct ig_model *d = m->draft;

	m->need = (struct ig_need){
		.weights = m->memory.weight_bytes + (d ? d->memory.weight_bytes : 0),
		.scratch = scratch_of(m) + (d ? scratch_of(d) : 0),
		.draft = d ? d->memory.weight_bytes : 0,
		.logits = m->whole_texts ? 0 :
					   (uint64_t)m->limits.max_logit_rows * m->n_logits *
						   sizeof(float) * m->backend->max_flights,
		.least = slabs_for(m, c->slab, n) * c->slab,
	};
}

static int fail_arena(const struct ig_contract *c, uint64_t least, struct ig_error *err)
{
	return ig_fail(err, -EINVAL,
		       "kvcache.arena is %.1f MiB; one sequence of %d tokens needs %.1f MiB",
		       (double)c->arena / (1 << 20), IG_LEAST_TOKENS, (double)least / (1 << 20));
}

int ig_contract_fit_cache(const struct ig_contract *c, struct ig_model *m, struct ig_error *err)
{
	if (m->need.least > c->arena)
		return fail_arena(c, m->need.least, err);
	m->max_kv_tokens = m->shown.n_cache = tokens_for(m, c->slab, c->arena / c->slab);
	for (uint32_t i = 0; i < m->n_adapters; i++)
		m->adapted[i].n_cache = m->shown.n_cache;
	if (m->max_kv_tokens < m->limits.max_context)
		ig_log_warn("model %s: the cache holds %u tokens of one sequence, less than the "
			    "context of %u",
			    m->name, m->max_kv_tokens, m->limits.max_context);
	return 0;
}

/* ---- totals ---------------------------------------------------------------------------- */

uint64_t ig_contract_free(const struct ig_contract *c)
{
	uint64_t used = c->weights + c->scratch + c->logits + c->arena;
	uint64_t counted = c->footprint ? c->footprint() : 0;

	/* What is not in the sum (requests, responses, the driver's own) is missing from the budget all the same. */
	if (counted > used)
		used = counted;
	return used < c->budget ? c->budget - used : 0;
}

static const char *unit_of(uint64_t bytes, double *unit)
{
	bool giga = bytes >= (uint64_t)1 << 30;

	*unit = giga ? (double)((uint64_t)1 << 30) : (double)(1 << 20);
	return giga ? "GiB" : "MiB";
}

/* What the weights have of draft models, in this unit; "": nothing. */
static const char *draft_part(const struct ig_need *n, double unit, char out[64])
{
	out[0] = 0;
	if (n->draft)
		snprintf(out, 64, " with %.2f of draft models", (double)n->draft / unit);
	return out;
}

/* The three parts and their sum, in the largest unit that the sum fills. */
static int over_budget(const struct ig_need *n, uint64_t cache, uint64_t budget, const char *hint,
		       struct ig_error *err)
{
	uint64_t needed = n->weights + n->scratch + cache;
	double unit;
	const char *name = unit_of(needed, &unit);
	char draft[64];

	return ig_fail(err, -ENOMEM,
		       "needs %.1f %s (weights %.1f%s, scratch %.1f, cache %.1f), the budget is "
		       "%.1f %s; %s",
		       (double)needed / unit, name, (double)n->weights / unit,
		       draft_part(n, unit, draft), (double)n->scratch / unit, (double)cache / unit,
		       (double)budget / unit, name, hint);
}

int ig_contract_refuse(const struct ig_contract *c, const char *name, const struct ig_need *n,
		       uint64_t evictable, struct ig_error *err)
{
	uint64_t needed = n->weights + n->scratch;
	double unit;
	const char *u = unit_of(c->budget, &unit);
	char draft[64];

	return ig_fail(
		err, -ENOMEM,
		"there is no space for the model %s now: it needs %.2f %s (weights "
		"%.2f%s, scratch %.2f); of memory.budget, %.2f %s, %.2f are free%s; raise it, or "
		"unload or unpin another model",
		name, (double)needed / unit, u, (double)n->weights / unit,
		draft_part(n, unit, draft), (double)n->scratch / unit, (double)c->budget / unit, u,
		(double)(ig_contract_free(c) + evictable) / unit,
		evictable ? " or can be made free" : "");
}

/* ---- copies of logits -------------------------------------------------------------------- */

int ig_logits_alloc(const struct ig_backend *b, uint64_t all, float *out[IG_STEPS_IN_FLIGHT])
{
	uint64_t one = all / b->max_flights;

	memset(out, 0, IG_STEPS_IN_FLIGHT * sizeof *out);
	if ((size_t)one != one)
		return -ENOMEM;
	for (uint32_t i = 0; one && i < b->max_flights; i++) {
		out[i] = malloc((size_t)one); /* its pages are allocated when they are used */
		if (!out[i]) {
			ig_logits_free(out);
			return -ENOMEM;
		}
	}
	return 0;
}

void ig_logits_free(float *logits[IG_STEPS_IN_FLIGHT])
{
	for (uint32_t i = 0; i < IG_STEPS_IN_FLIGHT; i++) {
		free(logits[i]);
		logits[i] = NULL;
	}
}

/* Requests with logprobs need copies of logits.  They are counted like scratch and allocated
 * with the model, so that no step and no request has to.  Where the budget has no space for
 * them beside weights, scratch and a cache, models are served without them, and such requests
 * are refused: that is better than not to start. */
static void reserve_logits(struct ig_models *ms, uint64_t all, uint64_t rest, uint64_t cache)
{
	struct ig_change c = { .swaps_logits = true };
	bool fits = cache <= rest && all <= rest - cache &&
		    !ig_logits_alloc(ms->backend, all, c.logits);
	struct ig_model *m;

	if (fits) {
		ms->change(ms->change_ctx, &c);
		ms->contract.logits = all;
	} else {
		ig_log_warn(
			"log probabilities take %.1f MiB, for which memory.budget has no space; "
			"requests for them are refused",
			(double)all / (1 << 20));
	}
	TAILQ_FOREACH(m, &ms->all, all)
		m->gives_logits = fits;
}

/* ---- the start ------------------------------------------------------------------------------ */

/* The largest need of a model that is loaded later, beside those that load at start. */
static uint64_t most_later(const struct ig_models *ms)
{
	const struct ig_contract *c = &ms->contract;
	const struct ig_model_entry *s;
	uint64_t most = 0;

	TAILQ_FOREACH(s, &ms->entries, link) {
		uint64_t n = s->need.weights + s->need.scratch;
		if (s->at_start)
			continue;
		if (s->need.logits > c->logits)
			n += s->need.logits - c->logits;
		most = n > most ? n : most;
	}
	return most;
}

/* An error for a model that could not be loaded even beside pinned ones alone. */
static int check_later(const struct ig_models *ms, struct ig_error *err)
{
	const struct ig_contract *c = &ms->contract;
	const struct ig_model_entry *s, *p;

	TAILQ_FOREACH(s, &ms->entries, link) {
		struct ig_need sum = s->need;
		struct ig_error why = { 0 };
		if (s->at_start)
			continue;
		TAILQ_FOREACH(p, &ms->entries, link) {
			if (!p->at_start || !p->pin)
				continue;
			sum.weights += p->need.weights;
			sum.draft += p->need.draft;
			sum.scratch += p->need.scratch;
		}
		if (sum.weights + sum.scratch + c->arena <= c->budget)
			continue;
		over_budget(&sum, c->arena, c->budget, "set memory.budget, or pin fewer models",
			    &why);
		return ig_fail(err, -ENOMEM, "model %s, with those that are pinned, %s", s->name,
			       why.text);
	}
	return 0;
}

int ig_contract_start(struct ig_models *ms, const struct ig_config *config, struct ig_error *err)
{
	struct ig_contract *c = &ms->contract;
	struct ig_need sum = { 0 };
	const struct ig_model_entry *s;
	uint64_t least = c->slab, rest;
	int rc = find_budget(ms, config, err);

	if (rc < 0)
		return rc;
	TAILQ_FOREACH(s, &ms->entries, link) {
		if (s->need.least > least)
			least = s->need.least;
		if (!s->at_start)
			continue;
		sum.weights += s->need.weights;
		sum.draft += s->need.draft;
		sum.scratch += s->need.scratch;
		if (s->need.logits > sum.logits)
			sum.logits = s->need.logits;
	}
	c->weights = sum.weights;
	c->scratch = sum.scratch;
	rest = ig_contract_free(c);
	c->arena = config->kvcache.arena;
	if (sum.logits && rest >= (c->arena ? c->arena : least))
		reserve_logits(ms, sum.logits, rest, c->arena ? c->arena : least);
	rest -= c->logits;
	sum.scratch += c->logits;
	if (!c->arena) {
		uint64_t later = most_later(ms);
		if (rest < least)
			return over_budget(&sum, least, c->budget,
					   "set memory.budget, or serve fewer or smaller models",
					   err);
		rest = rest > later ? rest - later : 0;
		c->arena = rest < IG_DEFAULT_ARENA ? rest : IG_DEFAULT_ARENA;
		if (c->arena < least)
			c->arena = least;
	} else if (c->arena < least) {
		return fail_arena(c, least, err);
	} else if (c->arena > rest) {
		return over_budget(&sum, c->arena, c->budget, "set memory.budget or kvcache.arena",
				   err);
	}
	c->arena -= c->arena % c->slab;
	rc = check_later(ms, err);
	c->footprint = ig_process_footprint;
	return rc;
}
