/* kv_disk.c: saves and restores of computed blocks.  See kv_disk_private.h. */
#include "daemon/engine/kv_disk_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/engine/scheduler_state_private.h"
#include "daemon/engine/standstill_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Fewer blocks are computed again sooner than looked for. */
#define LEAST_BLOCKS 4
#define MAX_SAVES 64
#define MAX_READS 16		     /* of one job, under way */
#define MAX_READ_BYTES (64ull << 20) /* the same */
#define MAX_READING 4		     /* jobs that read at once; others wait for them */
/* Parts of the time between two boundaries while sequences run, and the most at once while none does; a
 * block each is always done. */
#define SAVE_PART 50
#define RESTORE_PART 5
#define IDLE_NS ((int64_t)5 * 1000000)
#define LEAVE_NS ((int64_t)3 * 1000000000)
#define FINISH_NS ((int64_t)2 * 1000000000)
/* Of a figure's old value in its new one. */
#define KEPT 0.75
/* Where files were slower than computing, one prompt in so many tries them again. */
#define TRY_AGAIN 16
#define LEAST_ROWS 64 /* of a step that shows what reading a prompt takes */
#define MAX_SAVED_STATES 3

struct ig_kv_job {
	TAILQ_ENTRY(ig_kv_job) link;
	struct ig_model *model;
	uint64_t salt;
	struct ig_kv_seq *kv;		  /* holds the blocks; NULL: they were given back */
	int32_t *tokens;		  /* [n_blocks, IG_BLOCK_TOKENS] */
	struct ig_kv_name base;		  /* of the model, with its adapter */
	struct ig_kv_name root, *names;	  /* [n_blocks]; the first n_names are known */
	uint32_t n_blocks, n_names, next; /* next: to be saved or to be restored */
	int64_t used_ns, began_ns;
	struct ig_kv_block *copied; /* a save's, for which the files have no room yet */
	/* Of a model with recurrent layers: the state that is being copied, and its parts that are. */
	struct ig_kv_block *state;
	uint32_t n_parts;
	/* a save's: after which blocks it has states, ascending */
	uint32_t states[MAX_SAVED_STATES], n_states, next_state;
	/* a restore's */
	uint32_t first, n_asked;
	uint32_t *groups;		      /* [n_blocks]: which its file has */
	struct ig_kv_block *reads[MAX_READS]; /* by block */
};

static struct ig_kv_files *files_of(const struct ig_sched *sch) { return sch->b->disk; }

int ig_kv_disk_init(struct ig_kv_disk *d, const struct ig_backend *b)
{
	*d = (struct ig_kv_disk){ 0 };
	TAILQ_INIT(&d->saves);
	TAILQ_INIT(&d->restores);
	if (!b->disk)
		return 0;
	d->namer = ig_kv_namer_create();
	return d->namer ? 0 : -ENOMEM;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

/* A model of whole texts has no blocks. */
static bool keeps(const struct ig_sched *sch, const struct ig_model *m)
{
	return sch->disk.namer && sch->b->prefix_cache && !m->whole_texts;
}

static uint64_t salt_of(const struct ig_sched *sch, const struct ig_seq *s)
{
	return ig_model_salt(s->shown, sch->b->share_all ? 0 : s->origin->who.identity);
}

static void hold_nothing(const struct ig_sched *sch, struct ig_kv_job *j)
{
	sch->b->kv->seq_destroy(j->kv);
	j->kv = NULL;
}

/* A sequence for its blocks.  False: no memory. */
static bool make_seq(const struct ig_sched *sch, struct ig_kv_job *j)
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
		ig_kv_files_forget(files_of(sch), j->state);
	j->state = NULL;
}

static void destroy(struct ig_sched *sch, struct ig_kv_job *j)
{
	hold_nothing(sch, j);
	for (; j->next < j->n_asked; j->next++)
		ig_kv_files_forget(files_of(sch), j->reads[j->next % MAX_READS]);
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

/* A job for the first blocks of s, with a sequence of its own that has no blocks yet.  NULL: no memory. */
static struct ig_kv_job *create(struct ig_sched *sch, const struct ig_seq *s, uint32_t n_blocks)
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
		destroy(sch, j);
		return NULL;
	}
	j->n_blocks = n_blocks;
	j->used_ns = ig_wall_ns();
	j->tokens = malloc(n_tokens * sizeof *j->tokens);
	j->names = malloc(n_blocks * sizeof *j->names);
	j->groups = malloc(n_blocks * sizeof *j->groups);
	if (!j->tokens || !j->names || !j->groups ||
	    !ig_kv_name_of(sch->disk.namer, &j->base, &j->salt, sizeof j->salt, &j->root) ||
	    !make_seq(sch, j)) {
		destroy(sch, j);
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

/* Know the names up to this block.  False: the library failed. */
static bool name_blocks(const struct ig_sched *sch, struct ig_kv_job *j, uint32_t n)
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

static uint32_t state_groups(const struct ig_model *m)
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

/* For the file of a block; NULL: no memory. */
static struct ig_kv_block *block_for(const struct ig_kv_job *j, uint32_t block, uint32_t groups)
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

static bool has_state_file(const struct ig_sched *sch, const struct ig_kv_job *j, uint32_t n_blocks)
{
	struct ig_kv_name name;
	uint32_t groups;

	return name_state(sch, j, n_blocks, &name) &&
	       ig_kv_files_find(files_of(sch), &name, j->used_ns, &groups) &&
	       groups == state_groups(j->model);
}

/* For the file of the state after so many blocks; NULL: no memory. */
static struct ig_kv_block *state_for(const struct ig_sched *sch, const struct ig_kv_job *j,
				     uint32_t n_blocks)
{
	struct ig_kv_block *b = block_for(j, n_blocks - 1, state_groups(j->model));

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

/* Copy a block's groups between its data and their places in the cache.  False: the device failed. */
static bool copy_groups(const struct ig_sched *sch, const struct ig_model *m, struct ig_kv_block *b,
			void *const *address, bool to_cache)
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

static void *address_of(const struct ig_sched *sch, const struct ig_model *m, uint32_t group,
			uint32_t word)
{
	uint32_t n_slabs;
	void *const *bases = sch->b->kv->slab_bases(sch->b->cache, &n_slabs);

	return (char *)bases[IG_BLOCK_SLAB(word)] +
	       IG_BLOCK_INDEX(word) * m->layouts[group].block_bytes;
}

/* Copy the next part of the job's state, which is the one after n_blocks blocks.  False: the cache does
 * not have it, or the device failed. */
static bool copy_part(const struct ig_sched *sch, struct ig_kv_job *j, uint32_t n_blocks,
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
			if (!copy_bytes(sch, at, address_of(sch, m, g, words[j->n_parts]), bytes,
					to_cache))
				return false;
			j->n_parts++;
			return true;
		}
		at += n * bytes;
	}
	return false;
}

static bool has_all_parts(const struct ig_kv_job *j)
{
	uint32_t n = 0;

	for (uint32_t g = 0; g < j->model->n_groups; g++)
		if (j->model->layouts[g].kind == IG_CACHE_STATE)
			n += blocks_of(&j->model->layouts[g]);
	return j->n_parts == n;
}

/* ---- saving ------------------------------------------------------------------------------------ */

/* Of the states that the cache may have: where others begin, where this conversation goes on if the end
 * of its prompt is written in another way then, and where it goes on otherwise. */
static void choose_states(struct ig_kv_job *j, const struct ig_seq *s)
{
	const uint32_t end = (uint32_t)(s->n_prompt - 1) / IG_BLOCK_TOKENS;
	const uint32_t at[MAX_SAVED_STATES] = { (uint32_t)ig_seq_first_message(s) / IG_BLOCK_TOKENS,
						end ? end - 1 : 0, j->n_blocks };

	for (uint32_t i = 0, last = 0; s->model->has_state && i < MAX_SAVED_STATES; i++)
		if (at[i] > last && at[i] <= j->n_blocks)
			j->states[j->n_states++] = last = at[i];
}

void ig_kv_disk_save(struct ig_sched *sch, struct ig_seq *s)
{
	uint32_t n = (uint32_t)s->n_done / IG_BLOCK_TOKENS, n_jobs = 0;
	struct ig_kv_job *j;

	if (!keeps(sch, s->model) || !s->kv || n < LEAST_BLOCKS)
		return;
	TAILQ_FOREACH(j, &sch->disk.saves, link)
		n_jobs++;
	if (n_jobs == MAX_SAVES || !(j = create(sch, s, n)))
		return;
	j->n_blocks = sch->b->kv->seq_share(j->kv, s->kv) / IG_BLOCK_TOKENS;
	choose_states(j, s);
	if (j->n_blocks < LEAST_BLOCKS)
		destroy(sch, j);
	else
		TAILQ_INSERT_TAIL(&sch->disk.saves, j, link);
}

/* Have the blocks again that were given back and are still cached.  False: the next one is not. */
static bool hold_again(const struct ig_sched *sch, struct ig_kv_job *j)
{
	uint32_t n_cached = 0;

	if (j->kv)
		return true;
	if (!make_seq(sch, j))
		return false;
	sch->b->kv->seq_match(j->kv, j->tokens, j->n_blocks * IG_BLOCK_TOKENS, &n_cached);
	j->n_blocks = n_cached / IG_BLOCK_TOKENS;
	return j->next < j->n_blocks;
}

/* A copy of the job's next block; NULL: it can't be had. */
static struct ig_kv_block *copy_block(const struct ig_sched *sch, const struct ig_kv_job *j)
{
	const struct ig_model *m = j->model;
	void *address[IG_MAX_CACHE_GROUPS];
	uint32_t groups = 0, n;
	struct ig_kv_block *b;

	for (uint32_t g = 0; g < m->n_groups; g++) {
		const uint32_t *table = sch->b->kv->seq_blocks(j->kv, g, &n);
		if (j->next >= n || table[j->next] == IG_BLOCK_NONE)
			continue;
		groups |= 1u << g;
		address[g] = address_of(sch, m, g, table[j->next]);
	}
	b = groups ? block_for(j, j->next, groups) : NULL;
	if (b && !copy_groups(sch, m, b, address, false)) {
		ig_kv_block_destroy(b);
		return NULL;
	}
	return b;
}

enum progress { GOES_ON, STUCK, OVER };

/* Save one part of the state that is next, or pass over it: it has a file, or the cache has it no more. */
static enum progress save_state(struct ig_sched *sch, struct ig_kv_job *j)
{
	uint32_t n_blocks = j->states[j->next_state];

	if (!j->state && !has_state_file(sch, j, n_blocks))
		j->state = state_for(sch, j, n_blocks);
	if (j->state && !has_all_parts(j)) {
		hold_again(sch, j); /* perhaps with fewer blocks */
		if (copy_part(sch, j, n_blocks, false))
			return GOES_ON;
		ig_kv_block_destroy(j->state);
		j->state = NULL;
	}
	if (j->state && !ig_kv_files_write(files_of(sch), j->state))
		return STUCK;
	j->state = NULL;
	j->n_parts = 0;
	j->next_state++;
	return GOES_ON;
}

/* Save one block of the job, or pass over those that have files. */
static enum progress save_some(struct ig_sched *sch, struct ig_kv_job *j)
{
	uint32_t groups, n_passed = 0;

	if (!j->copied && j->next_state < j->n_states && j->next >= j->states[j->next_state])
		return save_state(sch, j);
	if (!j->copied) {
		for (; j->next < j->n_blocks; j->next++) {
			if (j->next_state < j->n_states && j->next == j->states[j->next_state])
				return GOES_ON;
			if (!name_blocks(sch, j, j->next + 1))
				return OVER;
			if (!ig_kv_files_find(files_of(sch), &j->names[j->next], j->used_ns,
					      &groups))
				break;
			if (++n_passed == 256)
				return GOES_ON;
		}
		if (j->next_state < j->n_states && j->next == j->states[j->next_state])
			return GOES_ON;
		if (j->next >= j->n_blocks || !hold_again(sch, j) ||
		    !(j->copied = copy_block(sch, j)))
			return OVER;
	}
	if (!ig_kv_files_write(files_of(sch), j->copied))
		return STUCK;
	j->copied = NULL;
	j->next++;
	ig_metrics_add(sch->b->metrics, IG_COUNTER_KV_SAVED_TOKENS, IG_BLOCK_TOKENS);
	return GOES_ON;
}

/* False: the files have no room at the moment. */
static bool save_until(struct ig_sched *sch, int64_t end_ns)
{
	struct ig_kv_job *j;

	while ((j = TAILQ_FIRST(&sch->disk.saves))) {
		enum progress p = save_some(sch, j);
		if (p != STUCK)
			ig_sched_note_move(sch);
		if (p == OVER) {
			if (sch->disk.leave_ns)
				sch->moved =
					true; /* its model may be removed at the next boundary */
			TAILQ_REMOVE(&sch->disk.saves, j, link);
			destroy(sch, j);
		}
		if (p == STUCK)
			return false;
		if (ig_now_ns() >= end_ns)
			break;
	}
	return true;
}

/* ---- what it costs ------------------------------------------------------------------------------- */

static struct ig_kv_rate *rate_of(const struct ig_sched *sch, struct ig_model *m)
{
	if (!m->rate.restore_ns && !m->rate.compute_ns)
		ig_kv_files_rate(files_of(sch), &m->kv_name, &m->rate);
	return &m->rate;
}

/* A token took so long; figure: one of m's rate. */
static void learn(const struct ig_sched *sch, struct ig_model *m, double *figure, double ns)
{
	*figure = *figure > 0 ? KEPT * *figure + (1 - KEPT) * ns : ns;
	ig_kv_files_set_rate(files_of(sch), &m->kv_name, &m->rate);
}

/* Whether files were faster than computing, as far as that is known. */
static bool pays(const struct ig_sched *sch, struct ig_model *m)
{
	const struct ig_kv_rate *r = rate_of(sch, m);

	return r->restore_ns < r->compute_ns || r->restore_ns <= 0 || r->compute_ns <= 0 ||
	       ++m->n_not_restored % TRY_AGAIN == 0;
}

void ig_kv_disk_learn(struct ig_sched *sch, struct ig_model *m, uint32_t n_rows, double ns)
{
	if (sch->disk.namer && n_rows >= LEAST_ROWS)
		learn(sch, m, &rate_of(sch, m)->compute_ns, ns / n_rows);
}

/* ---- restoring ---------------------------------------------------------------------------------- */

/* Those that wait for the job go on: its own sequence is admitted as it is, others may have more. */
static void end_restore(struct ig_sched *sch, struct ig_kv_job *j)
{
	uint32_t n = (j->next - j->first) * IG_BLOCK_TOKENS;
	struct ig_seq *s;

	if (j->model->has_state && !(j->state && has_all_parts(j)))
		n = 0; /* nothing goes on behind blocks without a state */
	if (n && j->next == j->n_blocks)
		learn(sch, j->model, &rate_of(sch, j->model)->restore_ns,
		      (double)(ig_now_ns() - j->began_ns) / n);
	TAILQ_FOREACH(s, &sch->waiting, link) {
		if (s->restore != j)
			continue;
		s->restore = NULL;
		s->restore_over = s->restores_first;
		if (s->restores_first)
			s->result.n_restored += (int32_t)n;
	}
	TAILQ_REMOVE(&sch->disk.restores, j, link);
	ig_log_debug("restored %u tokens of %u from kvcache.disk in %.1f ms", n,
		     (j->n_blocks - j->first) * IG_BLOCK_TOKENS,
		     (double)(ig_now_ns() - j->began_ns) * 1e-6);
	destroy(sch, j);
}

/* Whether a sequence can go on after `end` blocks: in groups with a window, those that it reads must be
 * in files or in the cache, and a state in a file. */
static bool can_end_at(const struct ig_sched *sch, const struct ig_kv_job *j, uint32_t end)
{
	const struct ig_model *m = j->model;

	if (m->has_state && !has_state_file(sch, j, end))
		return false;
	for (uint32_t g = 0; g < m->n_groups; g++) {
		uint32_t window = m->plan->info.groups[g].window, n;
		const uint32_t *table = sch->b->kv->seq_blocks(j->kv, g, &n);
		if (!window)
			continue;
		for (uint32_t b = ig_kv_first_read(window, end * IG_BLOCK_TOKENS); b < end; b++)
			if (b < j->first ? b >= n || table[b] == IG_BLOCK_NONE :
					   !(j->groups[b] >> g & 1))
				return false;
	}
	return true;
}

/* How many blocks there would be with the files; at least j->first. */
static uint32_t find_end(const struct ig_sched *sch, struct ig_kv_job *j)
{
	const struct ig_model *m = j->model;
	uint32_t end = j->first, needed = 0;

	for (uint32_t g = 0; g < m->n_groups; g++)
		needed |= (uint32_t)!m->plan->info.groups[g].window << g;
	needed &= ~state_groups(m);
	while (end < j->n_blocks && name_blocks(sch, j, end + 1) &&
	       ig_kv_files_find(files_of(sch), &j->names[end], j->used_ns, &j->groups[end]) &&
	       (j->groups[end] & needed) == needed && !(j->groups[end] >> m->n_groups) &&
	       !(j->groups[end] & state_groups(m)))
		end++;
	while (end > j->first && !can_end_at(sch, j, end))
		end--;
	return end;
}

/* The job that restores the next block that j would. */
static struct ig_kv_job *same_work(const struct ig_sched *sch, const struct ig_kv_job *j)
{
	struct ig_kv_job *o;

	TAILQ_FOREACH(o, &sch->disk.restores, link)
		if (o->model == j->model && o->first <= j->first && j->first < o->n_blocks &&
		    !memcmp(&o->names[j->first], &j->names[j->first], sizeof *j->names))
			return o;
	return NULL;
}

/* Whether the job still waits for something: its state comes last. */
static bool goes_on(const struct ig_kv_job *j)
{
	return j->next < j->n_blocks || (j->state && !has_all_parts(j));
}

/* False: the job is over: without memory for the next block, and with none under way. */
static bool ask_for_blocks(struct ig_sched *sch, struct ig_kv_job *j)
{
	uint64_t n_bytes = 0;

	for (uint32_t i = j->next; i < j->n_asked; i++)
		n_bytes += j->reads[i % MAX_READS]->n_bytes;
	while (j->n_asked < j->n_blocks && j->n_asked - j->next < MAX_READS &&
	       n_bytes < MAX_READ_BYTES) {
		struct ig_kv_block *b = block_for(j, j->n_asked, j->groups[j->n_asked]);
		if (!b) {
			j->n_blocks = j->n_asked;
			break;
		}
		n_bytes += b->n_bytes;
		j->reads[j->n_asked++ % MAX_READS] = b;
		ig_kv_files_read(files_of(sch), b);
	}
	if (j->model->has_state && !j->state && j->n_asked == j->n_blocks &&
	    (j->state = state_for(sch, j, j->n_blocks)))
		ig_kv_files_read(files_of(sch), j->state);
	return goes_on(j);
}

static void begin_restore(struct ig_sched *sch, struct ig_seq *s)
{
	uint32_t n = (uint32_t)(s->n_tokens - 1) / IG_BLOCK_TOKENS, n_cached;
	struct ig_kv_job *j, *other;

	s->restore_over = true;
	if (n < LEAST_BLOCKS || !ig_kv_files_is_ready(files_of(sch)) || !(j = create(sch, s, n)))
		return;
	sch->b->kv->seq_match(j->kv, j->tokens, n * IG_BLOCK_TOKENS, &n_cached);
	j->first = j->next = j->n_asked = n_cached / IG_BLOCK_TOKENS;
	/* what is being restored is waited for, however little of it is missing */
	other = j->first < n && name_blocks(sch, j, j->first + 1) ? same_work(sch, j) : NULL;
	if (!other) {
		j->n_blocks = n - j->first < LEAST_BLOCKS ? j->first : find_end(sch, j);
		if (j->n_blocks < j->first + LEAST_BLOCKS || !pays(sch, s->model) ||
		    !ask_for_blocks(sch, j)) {
			destroy(sch, j);
			return;
		}
		j->began_ns = ig_now_ns();
	}
	s->restore_over = false;
	s->restores_first = !other;
	s->restore = other ? other : j;
	if (other) {
		destroy(sch, j);
		return;
	}
	TAILQ_INSERT_TAIL(&sch->disk.restores, j, link);
}

bool ig_kv_disk_waits(struct ig_sched *sch, struct ig_seq *s)
{
	if (!keeps(sch, s->model))
		return false;
	if (!s->restore && !s->restore_over)
		begin_restore(sch, s);
	return s->restore;
}

void ig_kv_disk_forget(struct ig_sched *sch, struct ig_seq *s)
{
	s->restore = NULL; /* the job goes on: its client may ask again */
	s->restore_over = true;
}

/* Add the next block to the cache.  False: there is no room for it, or the device failed. */
static bool add_block(struct ig_sched *sch, struct ig_kv_job *j, struct ig_kv_block *b)
{
	void *address[IG_MAX_CACHE_GROUPS];

	if (sch->b->kv->seq_append(j->kv, b->groups, address) < 0 ||
	    !copy_groups(sch, j->model, b, address, true))
		return false;
	sch->b->kv->seq_commit(j->kv, j->tokens, (j->next + 1) * IG_BLOCK_TOKENS);
	ig_metrics_add(sch->b->metrics, IG_COUNTER_KV_RESTORED_TOKENS, IG_BLOCK_TOKENS);
	return true;
}

/* Give the job's blocks their state, part by part.  False: the job is over. */
static bool take_state(struct ig_sched *sch, struct ig_kv_job *j, int64_t end_ns)
{
	if (!j->state || !atomic_load(&j->state->done))
		return j->state;
	if (j->state->rc || (!j->n_parts && sch->b->kv->seq_add_state(j->kv) < 0))
		return false;
	do {
		if (!copy_part(sch, j, j->n_blocks, true))
			return false;
		ig_sched_note_move(sch);
	} while (!has_all_parts(j) && ig_now_ns() < end_ns);
	if (!has_all_parts(j))
		return true;
	/* it is the index's when the job gives its blocks back */
	sch->b->kv->seq_advance(j->kv, j->n_blocks * IG_BLOCK_TOKENS);
	return false;
}

/* Take what has been read.  False: the job is over. */
static bool take_blocks(struct ig_sched *sch, struct ig_kv_job *j, int64_t end_ns)
{
	bool ok = true;

	while (ok && j->next < j->n_asked) {
		struct ig_kv_block *b = j->reads[j->next % MAX_READS];
		if (!atomic_load(&b->done))
			break;
		ok = !b->rc && add_block(sch, j, b);
		if (!ok)
			break; /* it is forgotten with the rest */
		ig_kv_block_destroy(b);
		j->next++;
		ig_sched_note_move(sch);
		if (ig_now_ns() >= end_ns)
			break;
	}
	if (ok && j->model->has_state && j->next == j->n_blocks)
		return take_state(sch, j, end_ns);
	return ok && j->next < j->n_blocks;
}

static void restore_until(struct ig_sched *sch, int64_t end_ns)
{
	struct ig_kv_job *j, *next;
	int n = 0;

	for (j = TAILQ_FIRST(&sch->disk.restores); j && n < MAX_READING; j = next, n++) {
		next = TAILQ_NEXT(j, link);
		if (ask_for_blocks(sch, j) && take_blocks(sch, j, end_ns) && ask_for_blocks(sch, j))
			continue;
		end_restore(sch, j);
		ig_sched_note_move(sch);
		/* it may be another one's turn, which has asked for nothing yet */
		sch->moved = true;
	}
}

/* Whether something has been read that was not taken yet, by a job whose turn it is. */
static bool has_blocks(const struct ig_sched *sch)
{
	const struct ig_kv_job *j = TAILQ_FIRST(&sch->disk.restores);

	for (int n = 0; j && n < MAX_READING; j = TAILQ_NEXT(j, link), n++) {
		const struct ig_kv_block *b =
			j->next < j->n_asked ? j->reads[j->next % MAX_READS] : j->state;
		if (b && atomic_load(&b->done))
			return true;
	}
	return false;
}

/* ---- the engine's loop ----------------------------------------------------------------------------- */

void ig_kv_disk_work(struct ig_sched *sch)
{
	struct ig_kv_disk *d = &sch->disk;
	int64_t now, since;

	if (TAILQ_EMPTY(&d->saves) && TAILQ_EMPTY(&d->restores))
		return;
	now = ig_now_ns();
	since = now - d->worked_ns;
	bool busy = sch->n_running;
	restore_until(sch, now + (busy ? since / RESTORE_PART : IDLE_NS));
	bool room = TAILQ_EMPTY(&d->saves) ||
		    save_until(sch, ig_now_ns() + (busy ? since / SAVE_PART : IDLE_NS));
	d->worked_ns = ig_now_ns();
	/* What waits for the files' thread is woken by it. */
	if ((room && !TAILQ_EMPTY(&d->saves)) || has_blocks(sch))
		sch->moved = true;
}

bool ig_kv_disk_give_back(struct ig_sched *sch)
{
	struct ig_kv_job *j;
	bool any = false;

	TAILQ_FOREACH(j, &sch->disk.saves, link) {
		any = any || j->kv;
		hold_nothing(sch, j);
	}
	while (!any && (j = TAILQ_LAST(&sch->disk.restores, ig_kv_job_list))) {
		end_restore(sch, j);
		any = true;
	}
	return any;
}

static void drop_saves(struct ig_sched *sch, const struct ig_model *m)
{
	struct ig_kv_job *j, *next;

	for (j = TAILQ_FIRST(&sch->disk.saves); j; j = next) {
		next = TAILQ_NEXT(j, link);
		if (m && j->model != m)
			continue;
		TAILQ_REMOVE(&sch->disk.saves, j, link);
		destroy(sch, j);
	}
}

static bool has_saves(const struct ig_sched *sch, const struct ig_model *m)
{
	const struct ig_kv_job *j;

	TAILQ_FOREACH(j, &sch->disk.saves, link)
		if (j->model == m)
			return true;
	return false;
}

bool ig_kv_disk_leave(struct ig_sched *sch, const struct ig_model *m)
{
	struct ig_kv_disk *d = &sch->disk;
	struct ig_kv_job *j, *next;

	for (j = TAILQ_FIRST(&d->restores); j; j = next) {
		next = TAILQ_NEXT(j, link);
		if (j->model == m)
			end_restore(sch, j);
	}
	if (!has_saves(sch, m)) {
		d->leave_ns = 0;
		return true;
	}
	if (!d->leave_ns)
		d->leave_ns = ig_now_ns() + LEAVE_NS;
	if (ig_now_ns() < d->leave_ns)
		return false;
	d->leave_ns = 0;
	drop_saves(sch, m);
	return true;
}

void ig_kv_disk_finish(struct ig_sched *sch)
{
	int64_t end = ig_now_ns() + FINISH_NS;
	struct ig_kv_job *j;

	while ((j = TAILQ_FIRST(&sch->disk.restores)))
		end_restore(sch, j);
	while (!TAILQ_EMPTY(&sch->disk.saves) && ig_now_ns() < end)
		if (!save_until(sch, end))
			usleep(1000);
	drop_saves(sch, NULL);
	ig_kv_namer_destroy(sch->disk.namer);
	sch->disk.namer = NULL;
}
