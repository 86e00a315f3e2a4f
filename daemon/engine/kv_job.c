/*
 * kv_job.c: a job's blocks: their names, their files' contents, and copies between these and the cache.  See
 * kv_job_private.h.
 */
#include "daemon/engine/kv_job_private.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

static uint64_t salt_of(const struct ig_sched *sch, const struct ig_seq *s)
{
	return ig_model_salt(s->shown, sch->b->share_all ? 0 : s->origin->who.identity);
}

void ig_kv_job_hold_nothing(const struct ig_sched *sch, struct ig_kv_job *j)
{
	sch->b->kv->seq_destroy(j->kv);
	j->kv = NULL;
}

bool ig_kv_job_make_seq(const struct ig_sched *sch, struct ig_kv_job *j)
{
	if (!sch->b->kv->seq_create(sch->b->cache, j->model->kv_groups, j->model->n_groups,
				    j->n_blocks * IG_BLOCK_TOKENS, j->salt, &j->kv))
		return true;
	j->kv = NULL;
	return false;
}

static void forget_state(const struct ig_sched *sch, struct ig_kv_job *j)
{
	if (j->state)
		ig_kv_files_forget(ig_kv_job_files(sch), j->state);
	j->state = NULL;
}

void ig_kv_job_destroy(struct ig_sched *sch, struct ig_kv_job *j)
{
	ig_kv_job_hold_nothing(sch, j);
	for (; j->next < j->n_asked; j->next++)
		ig_kv_files_forget(ig_kv_job_files(sch), j->reads[j->next % IG_KV_MAX_READS]);
	ig_kv_block_destroy(j->copied);
	if (j->n_asked) /* a restore's, which the files may be reading */
		forget_state(sch, j);
	ig_kv_block_destroy(j->state);
	free(j->tokens);
	free(j->names);
	free(j->groups);
	free(j);
	sch->kv_freed = true;
}

struct ig_kv_job *ig_kv_job_create(struct ig_sched *sch, const struct ig_seq *s, uint32_t n_blocks)
{
	struct ig_kv_job *j = calloc(1, sizeof *j);
	size_t n_tokens = (size_t)n_blocks * IG_BLOCK_TOKENS;

	if (!j)
		return NULL;
	j->model = s->model;
	j->salt = salt_of(sch, s);
	j->base = s->model->kv_name;
	/* the whole hash: a file outlives the instance */
	if (s->shown->adapter && !ig_kv_name_of(sch->disk.namer, &s->model->kv_name,
						&s->model->adapter_names[s->shown->adapter - 1],
						sizeof *s->model->adapter_names, &j->base)) {
		ig_kv_job_destroy(sch, j);
		return NULL;
	}
	j->n_blocks = n_blocks;
	j->used_ns = ig_wall_ns();
	j->tokens = malloc(n_tokens * sizeof *j->tokens);
	j->names = malloc(n_blocks * sizeof *j->names);
	j->groups = malloc(n_blocks * sizeof *j->groups);
	if (!j->tokens || !j->names || !j->groups ||
	    !ig_kv_name_of(sch->disk.namer, &j->base, &j->salt, sizeof j->salt, &j->root) ||
	    !ig_kv_job_make_seq(sch, j)) {
		ig_kv_job_destroy(sch, j);
		return NULL;
	}
	memcpy(j->tokens, s->tokens, n_tokens * sizeof *j->tokens);
	return j;
}

static const struct ig_kv_name *before(const struct ig_kv_job *j, uint32_t block)
{
	return block ? &j->names[block - 1] : &j->root;
}

static const int32_t *tokens_of(const struct ig_kv_job *j, uint32_t block)
{
	return j->tokens + (size_t)block * IG_BLOCK_TOKENS;
}

bool ig_kv_job_name_blocks(const struct ig_sched *sch, struct ig_kv_job *j, uint32_t n)
{
	for (; j->n_names < n; j->n_names++)
		if (!ig_kv_name_of(sch->disk.namer, before(j, j->n_names), tokens_of(j, j->n_names),
				   IG_BLOCK_TOKENS * sizeof *j->tokens, &j->names[j->n_names]))
			return false;
	return true;
}

/* Blocks of a group: one, or the parts of a state. */
static uint32_t blocks_of(const struct ig_kv_layout *l)
{
	return l->kind == IG_CACHE_STATE ? l->n_layers * l->n_kv_heads : 1;
}

uint32_t ig_kv_job_state_groups(const struct ig_model *m)
{
	uint32_t groups = 0;

	for (uint32_t g = 0; g < m->n_groups; g++)
		groups |= (uint32_t)(m->layouts[g].kind == IG_CACHE_STATE) << g;
	return groups;
}

static uint64_t bytes_of(const struct ig_model *m, uint32_t groups)
{
	uint64_t n = 0;

	for (uint32_t g = 0; g < m->n_groups; g++)
		if (groups >> g & 1)
			n += blocks_of(&m->layouts[g]) * m->layouts[g].block_bytes;
	return n;
}

struct ig_kv_block *ig_kv_job_block_for(const struct ig_kv_job *j, uint32_t block, uint32_t groups)
{
	struct ig_kv_block *b = ig_kv_block_create(bytes_of(j->model, groups));

	if (!b)
		return NULL;
	b->name = j->names[block];
	b->before = *before(j, block);
	b->depth = block;
	b->groups = groups;
	b->used_ns = j->used_ns;
	memcpy(b->tokens, tokens_of(j, block), sizeof b->tokens);
	return b;
}

/* The name of the state after so many blocks, whose names are known.  False: the library failed. */
static bool name_state(const struct ig_sched *sch, const struct ig_kv_job *j, uint32_t n_blocks,
		       struct ig_kv_name *out)
{
	static const char what[] = "state 1";

	return ig_kv_name_of(sch->disk.namer, before(j, n_blocks), what, sizeof what, out);
}

bool ig_kv_job_has_state_file(const struct ig_sched *sch, const struct ig_kv_job *j,
			      uint32_t n_blocks)
{
	struct ig_kv_name name;
	uint32_t groups;

	return name_state(sch, j, n_blocks, &name) &&
	       ig_kv_files_find(ig_kv_job_files(sch), &name, j->used_ns, &groups) &&
	       groups == ig_kv_job_state_groups(j->model);
}

struct ig_kv_block *ig_kv_job_state_for(const struct ig_sched *sch, const struct ig_kv_job *j,
					uint32_t n_blocks)
{
	struct ig_kv_block *b =
		ig_kv_job_block_for(j, n_blocks - 1, ig_kv_job_state_groups(j->model));

	if (b && !name_state(sch, j, n_blocks, &b->name)) {
		ig_kv_block_destroy(b);
		return NULL;
	}
	return b;
}

/* Copy n bytes between a file's data and the cache.  False: the device failed. */
static bool copy_bytes(const struct ig_sched *sch, void *data, void *address, uint64_t n,
		       bool to_cache)
{
	struct ig_error err = { 0 };

	if ((to_cache ? ig_driver_write_slab(sch->b->driver, address, data, n, &err) :
			ig_driver_read_slab(sch->b->driver, data, address, n, &err)) == 0)
		return true;
	ig_log_warn("a block of kvcache.disk can't be %s: %s", to_cache ? "restored" : "saved",
		    err.text);
	return false;
}

bool ig_kv_job_copy_groups(const struct ig_sched *sch, const struct ig_model *m,
			   struct ig_kv_block *b, void *const *address, bool to_cache)
{
	uint8_t *at = b->data;

	for (uint32_t g = 0; g < m->n_groups; g++) {
		uint64_t n = m->layouts[g].block_bytes;
		if (!(b->groups >> g & 1))
			continue;
		if (!copy_bytes(sch, at, address[g], n, to_cache))
			return false;
		at += n;
	}
	return true;
}

void *ig_kv_job_address_of(const struct ig_sched *sch, const struct ig_model *m, uint32_t group,
			   uint32_t word)
{
	uint32_t n_slabs;
	void *const *bases = sch->b->kv->slab_bases(sch->b->cache, &n_slabs);

	return (char *)bases[IG_BLOCK_SLAB(word)] +
	       IG_BLOCK_INDEX(word) * m->layouts[group].block_bytes;
}

bool ig_kv_job_copy_part(const struct ig_sched *sch, struct ig_kv_job *j, uint32_t n_blocks,
			 bool to_cache)
{
	const uint32_t *words =
		j->kv ? sch->b->kv->seq_state(j->kv, n_blocks * IG_BLOCK_TOKENS) : NULL;
	const struct ig_model *m = j->model;
	uint8_t *at = j->state->data;
	uint32_t first = 0, n;

	for (uint32_t g = 0; words && g < m->n_groups; g++, first += n) {
		uint64_t bytes = m->layouts[g].block_bytes;
		n = m->layouts[g].kind == IG_CACHE_STATE ? blocks_of(&m->layouts[g]) : 0;
		if (j->n_parts < first + n) {
			at += (j->n_parts - first) * bytes;
			if (!copy_bytes(sch, at, ig_kv_job_address_of(sch, m, g, words[j->n_parts]),
					bytes, to_cache))
				return false;
			j->n_parts++;
			return true;
		}
		at += n * bytes;
	}
	return false;
}

bool ig_kv_job_has_all_parts(const struct ig_kv_job *j)
{
	uint32_t n = 0;

	for (uint32_t g = 0; g < j->model->n_groups; g++)
		if (j->model->layouts[g].kind == IG_CACHE_STATE)
			n += blocks_of(&j->model->layouts[g]);
	return j->n_parts == n;
}
