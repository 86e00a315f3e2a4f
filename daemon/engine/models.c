/*
 * models.c: from a file's path to a program that can be submitted to: open the
 * file, its tokenizer and template, record the plan, lower it; then, with every
 * model's figures on the table, the memory contract; then the cache; then load.
 * Nothing large is allocated before the contract holds.
 */
#include "daemon/engine/engine-private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

#define DEFAULT_ARENA ((uint64_t)4 << 30)
/* An arena that can't hold one conversation of so many tokens serves nobody. */
#define LEAST_TOKENS 256

/* ---- one model ---------------------------------------------------------------------- */

static int open_tokenizer(struct ig_model *m, struct ig_error *err)
{
	struct ig_error why = { 0 };
	int rc = ig_tokenizer_open(m->file, &m->tokenizer, err);

	if (rc < 0)
		return rc;
	rc = ig_chat_template_open(m->file, m->tokenizer, &m->chat, &why);
	if (rc == -ENOMEM)
		return ig_fail(err, rc, "%s", why.text);
	if (rc < 0) {
		/* The model can still complete text; who wants to chat is told why not. */
		m->chat = NULL;
		m->chat_note = strdup(rc == -ENOENT ? "the file has no chat template" : why.text);
		if (!m->chat_note)
			return ig_fail(err, -ENOMEM, "out of memory");
		ig_log_warn("model %s: no chat: %s", m->name, m->chat_note);
	}
	return 0;
}

static int open_model(struct ig_engine *e, const struct ig_config_model *c, struct ig_model *m,
		      struct ig_error *err)
{
	struct stat st;
	uint32_t context;
	int rc;

	m->name = strdup(c->name);
	m->path = strdup(c->path);
	if (!m->name || !m->path)
		return ig_fail(err, -ENOMEM, "out of memory");
	rc = ig_checkpoint_open(m->path, &m->file, err);
	if (rc < 0)
		return rc;
	rc = open_tokenizer(m, err);
	if (rc < 0)
		return rc;
	rc = ig_plan_record(e->modules, m->file, &m->plan, err);
	if (rc < 0)
		return rc;
	if ((int64_t)m->plan->info.n_vocab < ig_tokenizer_n_vocab(m->tokenizer))
		return ig_fail(err, -EINVAL, "the tokenizer has %d tokens, the embedding only %u",
			       ig_tokenizer_n_vocab(m->tokenizer), m->plan->info.n_vocab);
	m->n_groups = m->plan->info.n_groups;
	if (!m->n_groups || m->n_groups > IG_MAX_CACHE_GROUPS)
		return ig_fail(err, -EINVAL, "%u cache groups; 1 to %d are possible", m->n_groups,
			       IG_MAX_CACHE_GROUPS);
	for (uint32_t g = 0; g < m->n_groups; g++)
		if (m->plan->info.groups[g].window > m->window)
			m->window = m->plan->info.groups[g].window;
	context = m->plan->info.n_context;
	if (c->context > context)
		return ig_fail(err, -EINVAL, "context is %u, the model was trained for %u tokens",
			       c->context, context);
	if (c->context)
		context = c->context;
	if (context < 2 || context > INT32_MAX / 2)
		return ig_fail(err, -EINVAL, "a context of %u tokens", context);
	m->limits = (struct ig_program_limits){ .max_rows = e->max_rows, .max_seqs = e->max_seqs,
						.max_logit_rows = e->max_seqs,
						.max_context = context, .kv_dtype = e->kv_dtype,
						.max_slabs = e->max_slabs };
	rc = ig_driver_lower(e->driver, m->plan, &m->limits, &m->program, &m->memory, err);
	if (rc < 0)
		return rc;
	m->n_logits = m->plan->info.n_vocab;
	m->mask_words = (m->n_logits + 31) / 32;
	m->arch = strdup(m->plan->arch && m->plan->arch->name ? m->plan->arch->name : "");
	if (!m->arch)
		return ig_fail(err, -ENOMEM, "out of memory");
	m->shown = (struct ig_engine_model){
		.name = m->name,
		.tokenizer = m->tokenizer,
		.chat = m->chat,
		.chat_note = m->chat_note,
		.n_context = context,
		.arch = m->arch,
		.file = m->path,
		.weight_bytes = m->memory.weight_bytes,
		.created_s = stat(m->path, &st) == 0 ? (int64_t)st.st_mtime : 0,
	};
	return 0;
}

static void free_step(struct ig_step_buffer *b)
{
	for (uint32_t g = 0; g < IG_MAX_CACHE_GROUPS; g++)
		free(b->block_tables[g]);
	free(b->token_ids);
	free(b->token_from);
	free(b->positions);
	free(b->row_seq);
	free(b->seq_lens);
	free(b->logit_rows);
	free(b->sampled_ids);
	free(b->sample);
	free(b->edits);
	free(b->masks);
}

static void close_model(struct ig_engine *e, struct ig_model *m)
{
	for (uint32_t i = 0; i < m->n_groups_added; i++)
		e->kv->remove_group(e->cache, m->kv_groups[i]);
	ig_program_destroy(m->program);
	ig_plan_destroy(m->plan);
	if (m->chat)
		ig_chat_template_close(m->chat);
	if (m->tokenizer)
		ig_tokenizer_close(m->tokenizer);
	ig_checkpoint_close(m->file);
	for (uint32_t i = 0; i < IG_STEPS_IN_FLIGHT; i++)
		free_step(&m->steps[i]);
	free(m->name);
	free(m->path);
	free(m->arch);
	free(m->chat_note);
	ig_engine_release_model(&m->shown);
}

/* Everything that a step will need, from the limits. */
static int make_step(const struct ig_model *m, struct ig_step_buffer *b, struct ig_error *err)
{
	size_t rows = m->limits.max_rows, seqs = m->limits.max_seqs;
	size_t logits = m->limits.max_logit_rows;

	b->token_ids = calloc(rows, sizeof *b->token_ids);
	b->token_from = calloc(rows, sizeof *b->token_from);
	b->positions = calloc(rows, sizeof *b->positions);
	b->row_seq = calloc(rows, sizeof *b->row_seq);
	b->seq_lens = calloc(seqs, sizeof *b->seq_lens);
	b->logit_rows = calloc(logits, sizeof *b->logit_rows);
	b->sampled_ids = calloc(logits, sizeof *b->sampled_ids);
	b->sample = calloc(logits, sizeof *b->sample);
	b->edits = malloc(IG_MAX_STEP_EDITS * sizeof *b->edits); /* touched when used */
	b->masks = calloc(logits, m->mask_words * sizeof *b->masks);
	if (!b->token_ids || !b->token_from || !b->positions || !b->row_seq || !b->seq_lens ||
	    !b->logit_rows || !b->sampled_ids || !b->sample || !b->edits || !b->masks)
		return ig_fail(err, -ENOMEM, "out of memory for the step buffer");
	for (uint32_t g = 0; g < m->n_groups; g++) {
		b->block_tables[g] = calloc(seqs, m->max_blocks * sizeof *b->block_tables[g]);
		if (!b->block_tables[g])
			return ig_fail(err, -ENOMEM, "out of memory for the block tables");
		b->kv[g] = (struct ig_step_kv){ &m->layouts[g], b->block_tables[g], m->max_blocks };
	}
	b->step = (struct ig_step){
		.struct_size = sizeof b->step,
		.token_ids = b->token_ids,
		.positions = b->positions,
		.row_seq = b->row_seq,
		.seq_lens = b->seq_lens,
		.logit_rows = b->logit_rows,
		.sample = b->sample,
		.edits = b->edits,
		.masks = b->masks,
		.sampled_ids = b->sampled_ids,
		.kv = b->kv,
		.n_groups = m->n_groups,
	};
	return 0;
}

static int make_steps(struct ig_model *m, struct ig_error *err)
{
	int rc = 0;

	m->max_blocks = (m->limits.max_context + IG_BLOCK_TOKENS - 1) / IG_BLOCK_TOKENS;
	for (uint32_t i = 0; i < IG_STEPS_IN_FLIGHT && rc == 0; i++)
		rc = make_step(m, &m->steps[i], err);
	return rc;
}

/* ---- the memory contract --------------------------------------------------------------- */

static uint64_t physical_bytes(void)
{
#ifdef __APPLE__
	uint64_t bytes = 0;
	size_t n = sizeof bytes;

	return sysctlbyname("hw.memsize", &bytes, &n, NULL, 0) == 0 ? bytes : 0;
#else
	long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

	return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
#endif
}

/* Blocks of group g that one sequence of n tokens has at once, at most. */
static uint64_t blocks_for(const struct ig_model *m, uint32_t g, uint32_t n_tokens, uint32_t chunk)
{
	uint64_t n_blocks = ((uint64_t)n_tokens + IG_BLOCK_TOKENS - 1) / IG_BLOCK_TOKENS;
	uint64_t window = m->plan->info.groups[g].window, n;

	if (!window)
		return n_blocks;
	/* What a chunk behind the last whole block reads and writes, wherever it begins. */
	n = (window - 1 + IG_BLOCK_TOKENS - 1 + chunk + IG_BLOCK_TOKENS - 2) / IG_BLOCK_TOKENS + 1;
	return n < n_blocks ? n : n_blocks;
}

/* Slabs that one sequence of n tokens takes. */
static uint64_t slabs_for(const struct ig_model *m, uint64_t slab_bytes, uint32_t n_tokens,
			  uint32_t chunk)
{
	uint64_t n_slabs = 0;

	for (uint32_t g = 0; g < m->n_groups; g++) {
		uint64_t in_slab = slab_bytes / m->layouts[g].block_bytes;

		if (in_slab > 1u << IG_BLOCK_BITS)
			in_slab = 1u << IG_BLOCK_BITS;
		n_slabs += (blocks_for(m, g, n_tokens, chunk) + in_slab - 1) / in_slab;
	}
	return n_slabs;
}

static uint32_t tokens_for(const struct ig_model *m, uint64_t slab_bytes, uint64_t n_slabs,
			   uint32_t chunk)
{
	uint32_t low = 0, high = m->limits.max_context;

	while (low < high) {
		uint32_t mid = low + (high - low + 1) / 2;

		if (slabs_for(m, slab_bytes, mid, chunk) <= n_slabs)
			low = mid;
		else
			high = mid - 1;
	}
	return low;
}

/* The most rows of one sequence in a step. */
static uint32_t chunk_of(const struct ig_model *m, const struct ig_config *config)
{
	return config->scheduler.prefill_chunk < m->limits.max_rows ? config->scheduler.prefill_chunk :
								      m->limits.max_rows;
}

static int fill_layouts(struct ig_engine *e, const struct ig_kv_arena *arena, uint32_t dtype,
			struct ig_error *err)
{
	struct ig_kv_arena one = *arena; /* the layouts depend on the slab alone */
	struct ig_kvcache *c = NULL;
	struct ig_error why = { 0 };
	int rc;

	one.arena_bytes = one.slab_bytes;
	rc = e->kv->create(&one, &c, err);
	for (size_t i = 0; rc == 0 && i < e->n_models; i++) {
		struct ig_model *m = e->models[i];

		for (uint32_t g = 0; rc == 0 && g < m->n_groups; g++) {
			const struct ig_cache_group *group = &m->plan->info.groups[g];

			m->layouts[g] = (struct ig_kv_layout){ .dtype = dtype,
							       .n_layers = group->n_layers,
							       .n_kv_heads = group->n_kv_heads,
							       .head_dim = group->head_dim };
			rc = e->kv->layout(c, &m->layouts[g], &why);
			if (rc < 0)
				ig_fail(err, rc, "model %s: %s", m->name, why.text);
		}
	}
	e->kv->destroy(c);
	return rc;
}

/* The three parts and their sum, in the largest unit that the sum fills. */
static int over_budget(const struct ig_engine *e, uint64_t cache, const char *hint,
		       struct ig_error *err)
{
	uint64_t needed = e->contract.weights + e->contract.scratch + cache;
	bool giga = needed >= (uint64_t)1 << 30;
	double unit = giga ? (double)((uint64_t)1 << 30) : (double)(1 << 20);

	return ig_fail(err, -ENOMEM,
		       "needs %.1f %s (weights %.1f, scratch %.1f, cache %.1f), the budget is "
		       "%.1f %s; %s", (double)needed / unit, giga ? "GiB" : "MiB",
		       (double)e->contract.weights / unit, (double)e->contract.scratch / unit,
		       (double)cache / unit, (double)e->contract.budget / unit,
		       giga ? "GiB" : "MiB", hint);
}

/* Of the masks in the steps' buffers. */
static uint64_t mask_bytes(const struct ig_model *m)
{
	return (uint64_t)IG_STEPS_IN_FLIGHT * m->limits.max_logit_rows * m->mask_words * 4;
}

/* Of one copy of a step's logits, of whichever model. */
static uint64_t logits_bytes(const struct ig_engine *e)
{
	uint64_t most = 0;

	for (size_t i = 0; i < e->n_models; i++) {
		const struct ig_model *m = e->models[i];
		uint64_t n = (uint64_t)m->limits.max_logit_rows * m->n_logits * sizeof(float);

		most = n > most ? n : most;
	}
	return most;
}

/* Copies of logits are for those who ask for log probabilities.  They are counted like
 * scratch and reserved now, so that no step and no request has to; their pages are
 * touched only once they are used.  But where the budget has no room for them beside
 * weights, scratch and a cache, the models are served without them, and such requests
 * are refused: that is better than not to start. */
static void reserve_logits(struct ig_engine *e, uint64_t rest, uint64_t cache)
{
	uint64_t one = logits_bytes(e), all = one * e->max_flights;
	bool fits = cache <= rest && all <= rest - cache && (size_t)one == one;

	if (!e->n_models)
		return;
	for (uint32_t i = 0; fits && i < e->max_flights; i++) {
		e->logits[i] = malloc((size_t)one);
		fits = e->logits[i] != NULL;
	}
	if (!fits) {
		for (uint32_t i = 0; i < IG_STEPS_IN_FLIGHT; i++) {
			free(e->logits[i]);
			e->logits[i] = NULL;
		}
		ig_log_warn("log probabilities take %.1f MiB, for which there is no room (memory.budget); "
			    "requests for them are refused", (double)all / (1 << 20));
		return;
	}
	e->contract.scratch += all;
	for (size_t i = 0; i < e->n_models; i++)
		e->models[i]->gives_logits = true;
}

static uint64_t rest_of(const struct ig_contract *c)
{
	return c->weights + c->scratch < c->budget ? c->budget - c->weights - c->scratch : 0;
}

static int check_contract(struct ig_engine *e, const struct ig_config *config, uint64_t slab,
			  struct ig_error *err)
{
	struct ig_contract *c = &e->contract;
	uint64_t least = slab, rest;

	c->budget = config->memory.budget;
	if (!c->budget) {
		c->budget = ig_driver_memory(e->driver);
		if (!c->budget)
			c->budget = physical_bytes() / 4 * 3;
		if (!c->budget)
			return ig_fail(err, -ENOTSUP, "this machine does not say how much memory it "
				       "has; set memory.budget");
	}
	for (size_t i = 0; i < e->n_models; i++) {
		struct ig_model *m = e->models[i];
		uint32_t n = m->limits.max_context < LEAST_TOKENS ? m->limits.max_context : LEAST_TOKENS;
		uint64_t bytes = slabs_for(m, slab, n, chunk_of(m, config)) * slab;

		c->weights += m->memory.weight_bytes;
		c->scratch += m->memory.scratch_bytes + mask_bytes(m);
		if (bytes > least)
			least = bytes;
	}
	rest = rest_of(c);
	if (rest >= (config->kvcache.arena ? config->kvcache.arena : least)) {
		reserve_logits(e, rest, config->kvcache.arena ? config->kvcache.arena : least);
		rest = rest_of(c);
	}
	c->arena = config->kvcache.arena;
	if (!c->arena) {
		if (rest < least)
			return over_budget(e, least, "set memory.budget, or serve fewer or smaller "
					   "models", err);
		c->arena = rest < DEFAULT_ARENA ? rest : DEFAULT_ARENA;
		if (c->arena < least)
			c->arena = least;
	} else if (c->arena < least) {
		return ig_fail(err, -EINVAL, "kvcache.arena is %.1f MiB; one sequence of %d tokens "
			       "needs %.1f MiB", (double)c->arena / (1 << 20), LEAST_TOKENS,
			       (double)least / (1 << 20));
	} else if (c->arena > rest) {
		return over_budget(e, c->arena, "set memory.budget or kvcache.arena", err);
	}
	c->arena -= c->arena % slab;
	return 0;
}

/* ---- all models ------------------------------------------------------------------------------ */

static int make_cache(struct ig_engine *e, const struct ig_config *config, struct ig_kv_arena *arena,
		      struct ig_error *err)
{
	struct ig_error why = { 0 };
	int rc;

	arena->arena_bytes = e->contract.arena;
	rc = e->kv->create(arena, &e->cache, err);
	for (size_t i = 0; rc == 0 && i < e->n_models; i++) {
		struct ig_model *m = e->models[i];

		for (uint32_t g = 0; rc == 0 && g < m->n_groups; g++) {
			rc = e->kv->add_group(e->cache, &m->layouts[g], m->plan->info.groups[g].window,
					      &m->kv_groups[g], &why);
			if (rc < 0)
				ig_fail(err, rc, "model %s: %s", m->name, why.text);
			else
				m->n_groups_added++;
		}
		m->max_kv_tokens = tokens_for(m, arena->slab_bytes,
					      arena->arena_bytes / arena->slab_bytes,
					      chunk_of(m, config));
		if (m->max_kv_tokens < m->limits.max_context)
			ig_log_warn("model %s: the cache holds %u tokens of one sequence, less than the "
				    "context of %u", m->name, m->max_kv_tokens, m->limits.max_context);
	}
	return rc;
}

int ig_models_load(struct ig_engine *e, const struct ig_config *config, struct ig_error *err)
{
	struct ig_kv_arena arena = {
		.struct_size = sizeof arena,
		.slab_bytes = config->kvcache.slab,
		.ctx = e->driver,
		.map_slab = ig_driver_map_slab,
		.unmap_slab = ig_driver_unmap_slab,
		.copy = ig_driver_copy,
	};
	struct ig_error why = { 0 };
	uint64_t slabs;
	int rc;

	if (!strcmp(config->kvcache.dtype, "f16"))
		e->kv_dtype = IG_F16;
	else if (!strcmp(config->kvcache.dtype, "f32"))
		e->kv_dtype = IG_F32;
	else
		return ig_fail(err, -ENOTSUP, "kvcache.dtype is \"%s\"; f16 and f32 are known",
			       config->kvcache.dtype);
	e->prefix_cache = config->kvcache.prefix_cache;
	slabs = config->kvcache.arena ? config->kvcache.arena : DEFAULT_ARENA;
	/* or, where that is more, what one short sequence of any model takes */
	slabs = slabs / config->kvcache.slab + IG_MAX_CACHE_GROUPS * (LEAST_TOKENS / IG_BLOCK_TOKENS + 1);
	e->max_slabs = slabs < 1u << (32 - IG_BLOCK_BITS) ? (uint32_t)slabs :
							     1u << (32 - IG_BLOCK_BITS);
	e->models = calloc(config->n_models ? config->n_models : 1, sizeof *e->models);
	if (!e->models)
		return ig_fail(err, -ENOMEM, "out of memory for %zu models", config->n_models);
	for (size_t i = 0; i < config->n_models; i++) {
		struct ig_model *m = calloc(1, sizeof *m);

		if (!m)
			return ig_fail(err, -ENOMEM, "out of memory for %zu models", config->n_models);
		atomic_init(&m->n_holds, 1);
		/* counted first, so that what was opened is closed again */
		e->models[e->n_models++] = m;
		rc = open_model(e, &config->models[i], m, &why);
		if (rc < 0)
			return ig_fail(err, rc, "model %s: %s", config->models[i].name, why.text);
	}
	rc = fill_layouts(e, &arena, e->kv_dtype, err);
	if (rc < 0)
		return rc;
	rc = check_contract(e, config, arena.slab_bytes, err);
	if (rc < 0)
		return rc;
	rc = make_cache(e, config, &arena, err);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < e->n_models; i++) {
		struct ig_model *m = e->models[i];
		int64_t start = ig_now_ns();

		rc = ig_program_load(m->program, &why);
		if (rc == 0)
			rc = make_steps(m, &why);
		if (rc < 0)
			return ig_fail(err, rc, "model %s: %s", m->name, why.text);
		ig_log_info("model %s: %s, %.1f MiB of weights, context %u, loaded in %.0f ms", m->name,
			    m->arch, (double)m->memory.weight_bytes / (1 << 20), m->limits.max_context,
			    (double)(ig_now_ns() - start) * 1e-6);
	}
	return 0;
}

void ig_models_unload(struct ig_engine *e)
{
	for (size_t i = 0; i < e->n_models; i++)
		close_model(e, e->models[i]);
	for (uint32_t i = 0; i < IG_STEPS_IN_FLIGHT; i++)
		free(e->logits[i]);
	free(e->models);
	e->models = NULL;
	e->n_models = 0;
	if (e->cache)
		e->kv->destroy(e->cache);
	e->cache = NULL;
}
