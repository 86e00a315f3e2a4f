/*
 * kv_save.c: saves of computed blocks, in the order in which they were asked for: a few blocks at a time, those that
 * no file has yet.  See kv_disk_private.h.
 */
#include "daemon/engine/kv_job_private.h"

#include "base/clock.h"
#include "daemon/engine/spans_private.h"
#include "daemon/engine/standstill_private.h"

#define MAX_SAVES 64

/* Of the states that the cache may have: where others begin, where this conversation goes on if the end
 * of its prompt is written in another way then, and where it goes on otherwise. */
static void choose_states(struct ig_kv_job *j, const struct ig_seq *s)
{
	const uint32_t end = (uint32_t)(s->n_prompt - 1) / IG_BLOCK_TOKENS;
	const uint32_t at[IG_KV_MAX_SAVED_STATES] = {
		(uint32_t)ig_seq_first_message(s) / IG_BLOCK_TOKENS, end ? end - 1 : 0, j->n_blocks
	};

	for (uint32_t i = 0, last = 0; s->model->has_state && i < IG_KV_MAX_SAVED_STATES; i++)
		if (at[i] > last && at[i] <= j->n_blocks)
			j->states[j->n_states++] = last = at[i];
}

void ig_kv_disk_save(struct ig_sched *sch, struct ig_seq *s)
{
	const uint32_t most = (uint32_t)ig_spans_before(s, s->n_done) / IG_BLOCK_TOKENS;
	uint32_t n = (uint32_t)s->n_done / IG_BLOCK_TOKENS, n_jobs = 0;
	struct ig_kv_job *j;

	if (!ig_kv_disk_keeps(sch, s->model) || !s->kv || most < IG_KV_LEAST_BLOCKS)
		return;
	TAILQ_FOREACH(j, &sch->disk.saves, link)
		n_jobs++;
	if (n_jobs == MAX_SAVES || !(j = ig_kv_job_create(sch, s, n)))
		return;
	j->n_blocks = sch->b->kv->seq_share(j->kv, s->kv) / IG_BLOCK_TOKENS;
	j->n_blocks = j->n_blocks < most ? j->n_blocks : most;
	choose_states(j, s);
	if (j->n_blocks < IG_KV_LEAST_BLOCKS)
		ig_kv_job_destroy(sch, j);
	else
		TAILQ_INSERT_TAIL(&sch->disk.saves, j, link);
}

/* Have the blocks again that were given back and are still cached.  False: the next one is not. */
static bool hold_again(const struct ig_sched *sch, struct ig_kv_job *j)
{
	uint32_t n_cached = 0;

	if (j->kv)
		return true;
	if (!ig_kv_job_make_seq(sch, j))
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
		address[g] = ig_kv_job_address_of(sch, m, g, table[j->next]);
	}
	b = groups ? ig_kv_job_block_for(j, j->next, groups) : NULL;
	if (b && !ig_kv_job_copy_groups(sch, m, b, address, false)) {
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

	if (!j->state && !ig_kv_job_has_state_file(sch, j, n_blocks))
		j->state = ig_kv_job_state_for(sch, j, n_blocks);
	if (j->state && !ig_kv_job_has_all_parts(j)) {
		hold_again(sch, j); /* perhaps with fewer blocks */
		if (ig_kv_job_copy_part(sch, j, n_blocks, false))
			return GOES_ON;
		ig_kv_block_destroy(j->state);
		j->state = NULL;
	}
	if (j->state && !ig_kv_files_write(ig_kv_job_files(sch), j->state))
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
			if (!ig_kv_job_name_blocks(sch, j, j->next + 1))
				return OVER;
			if (!ig_kv_files_find(ig_kv_job_files(sch), &j->names[j->next], j->used_ns,
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
	if (!ig_kv_files_write(ig_kv_job_files(sch), j->copied))
		return STUCK;
	j->copied = NULL;
	j->next++;
	ig_metrics_add(sch->b->metrics, IG_COUNTER_KV_SAVED_TOKENS, IG_BLOCK_TOKENS);
	return GOES_ON;
}

bool ig_kv_disk_save_until(struct ig_sched *sch, int64_t end_ns)
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
			ig_kv_job_destroy(sch, j);
		}
		if (p == STUCK)
			return false;
		if (ig_now_ns() >= end_ns)
			break;
	}
	return true;
}

void ig_kv_disk_drop_saves(struct ig_sched *sch, const struct ig_model *m)
{
	struct ig_kv_job *j, *next;

	for (j = TAILQ_FIRST(&sch->disk.saves); j; j = next) {
		next = TAILQ_NEXT(j, link);
		if (m && j->model != m)
			continue;
		TAILQ_REMOVE(&sch->disk.saves, j, link);
		ig_kv_job_destroy(sch, j);
	}
}

bool ig_kv_disk_has_saves(const struct ig_sched *sch, const struct ig_model *m)
{
	const struct ig_kv_job *j;

	TAILQ_FOREACH(j, &sch->disk.saves, link)
		if (j->model == m)
			return true;
	return false;
}
