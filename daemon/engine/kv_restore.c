/*
 * kv_restore.c: restores of computed blocks for sequences that wait, and whether they pay: what a token takes out of
 * files and when it is computed is measured for each model.  See kv_disk_private.h.
 */
#include "daemon/engine/kv_job_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/engine/spans_private.h"
#include "daemon/engine/standstill_private.h"

#include <string.h>

#define MAX_READ_BYTES (64ull << 20) /* of one job, under way */
#define MAX_READING 4		     /* jobs that read at once; others wait for them */
/* Of a figure's old value in its new one. */
#define KEPT 0.75
/* Where files were slower than computing, one prompt in so many tries them again. */
#define TRY_AGAIN 16
#define LEAST_ROWS 64 /* of a step that shows what reading a prompt takes */

/* ---- what it costs ------------------------------------------------------------------------------- */

static struct ig_kv_rate *rate_of(const struct ig_sched *sch, struct ig_model *m)
{
	if (!m->rate.restore_ns && !m->rate.compute_ns)
		ig_kv_files_rate(ig_kv_job_files(sch), &m->kv_name, &m->rate);
	return &m->rate;
}

/* A token took so long; figure: one of m's rate. */
static void learn(const struct ig_sched *sch, struct ig_model *m, double *figure, double ns)
{
	*figure = *figure > 0 ? KEPT * *figure + (1 - KEPT) * ns : ns;
	ig_kv_files_set_rate(ig_kv_job_files(sch), &m->kv_name, &m->rate);
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

void ig_kv_disk_end_restore(struct ig_sched *sch, struct ig_kv_job *j)
{
	uint32_t n = (j->next - j->first) * IG_BLOCK_TOKENS;
	struct ig_seq *s;

	if (j->model->has_state && !(j->state && ig_kv_job_has_all_parts(j)))
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
	ig_kv_job_destroy(sch, j);
}

/* Whether a sequence can go on after `end` blocks: in groups with a window, those that it reads must be
 * in files or in the cache, and a state in a file. */
static bool can_end_at(const struct ig_sched *sch, const struct ig_kv_job *j, uint32_t end)
{
	const struct ig_model *m = j->model;

	if (m->has_state && !ig_kv_job_has_state_file(sch, j, end))
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
	needed &= ~ig_kv_job_state_groups(m);
	while (end < j->n_blocks && ig_kv_job_name_blocks(sch, j, end + 1) &&
	       ig_kv_files_find(ig_kv_job_files(sch), &j->names[end], j->used_ns,
				&j->groups[end]) &&
	       (j->groups[end] & needed) == needed && !(j->groups[end] >> m->n_groups) &&
	       !(j->groups[end] & ig_kv_job_state_groups(m)))
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
	return j->next < j->n_blocks || (j->state && !ig_kv_job_has_all_parts(j));
}

/* False: the job is over: without memory for the next block, and with none under way. */
static bool ask_for_blocks(struct ig_sched *sch, struct ig_kv_job *j)
{
	uint64_t n_bytes = 0;

	for (uint32_t i = j->next; i < j->n_asked; i++)
		n_bytes += j->reads[i % IG_KV_MAX_READS]->n_bytes;
	while (j->n_asked < j->n_blocks && j->n_asked - j->next < IG_KV_MAX_READS &&
	       n_bytes < MAX_READ_BYTES) {
		struct ig_kv_block *b = ig_kv_job_block_for(j, j->n_asked, j->groups[j->n_asked]);
		if (!b) {
			j->n_blocks = j->n_asked;
			break;
		}
		n_bytes += b->n_bytes;
		j->reads[j->n_asked++ % IG_KV_MAX_READS] = b;
		ig_kv_files_read(ig_kv_job_files(sch), b);
	}
	/* without memory there may be no block that it could be behind */
	if (j->model->has_state && !j->state && j->n_asked == j->n_blocks &&
	    j->n_blocks > j->first && (j->state = ig_kv_job_state_for(sch, j, j->n_blocks)))
		ig_kv_files_read(ig_kv_job_files(sch), j->state);
	return goes_on(j);
}

static void begin_restore(struct ig_sched *sch, struct ig_seq *s)
{
	uint32_t n = (uint32_t)ig_spans_before(s, s->n_tokens - 1) / IG_BLOCK_TOKENS, n_cached;
	struct ig_kv_job *j, *other;

	s->restore_over = true;
	if (n < IG_KV_LEAST_BLOCKS || !ig_kv_files_is_ready(ig_kv_job_files(sch)) ||
	    !(j = ig_kv_job_create(sch, s, n)))
		return;
	sch->b->kv->seq_match(j->kv, j->tokens, n * IG_BLOCK_TOKENS, &n_cached);
	j->first = j->next = j->n_asked = n_cached / IG_BLOCK_TOKENS;
	/* what is being restored is waited for, however little of it is missing */
	other = j->first < n && ig_kv_job_name_blocks(sch, j, j->first + 1) ? same_work(sch, j) :
									      NULL;
	if (!other) {
		j->n_blocks = n - j->first < IG_KV_LEAST_BLOCKS ? j->first : find_end(sch, j);
		if (j->n_blocks < j->first + IG_KV_LEAST_BLOCKS || !pays(sch, s->model) ||
		    !ask_for_blocks(sch, j)) {
			ig_kv_job_destroy(sch, j);
			return;
		}
		j->began_ns = ig_now_ns();
	}
	s->restore_over = false;
	s->restores_first = !other;
	s->restore = other ? other : j;
	if (other) {
		ig_kv_job_destroy(sch, j);
		return;
	}
	TAILQ_INSERT_TAIL(&sch->disk.restores, j, link);
}

bool ig_kv_disk_waits(struct ig_sched *sch, struct ig_seq *s)
{
	if (!ig_kv_disk_keeps(sch, s->model))
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
	    !ig_kv_job_copy_groups(sch, j->model, b, address, true))
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
		if (!ig_kv_job_copy_part(sch, j, j->n_blocks, true))
			return false;
		ig_sched_note_move(sch);
	} while (!ig_kv_job_has_all_parts(j) && ig_now_ns() < end_ns);
	if (!ig_kv_job_has_all_parts(j))
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
		struct ig_kv_block *b = j->reads[j->next % IG_KV_MAX_READS];
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

void ig_kv_disk_restore_until(struct ig_sched *sch, int64_t end_ns)
{
	struct ig_kv_job *j, *next;
	int n = 0;

	for (j = TAILQ_FIRST(&sch->disk.restores); j && n < MAX_READING; j = next, n++) {
		next = TAILQ_NEXT(j, link);
		if (ask_for_blocks(sch, j) && take_blocks(sch, j, end_ns) && ask_for_blocks(sch, j))
			continue;
		ig_kv_disk_end_restore(sch, j);
		ig_sched_note_move(sch);
		/* it may be another one's turn, which has asked for nothing yet */
		sch->moved = true;
	}
}

bool ig_kv_disk_has_blocks(const struct ig_sched *sch)
{
	const struct ig_kv_job *j = TAILQ_FIRST(&sch->disk.restores);

	for (int n = 0; j && n < MAX_READING; j = TAILQ_NEXT(j, link), n++) {
		const struct ig_kv_block *b =
			j->next < j->n_asked ? j->reads[j->next % IG_KV_MAX_READS] : j->state;
		if (b && atomic_load(&b->done))
			return true;
	}
	return false;
}
