/* loaded.c: what the loaded models take together, and what follows from it: metrics, and the copies of logits, which are as
 * large as the model that needs most. */
#include "daemon/engine/loaded_private.h"

#include "base/log.h"
#include "daemon/engine/contract_private.h"
#include "daemon/engine/models_private.h"

int ig_loaded_ask_engine(struct ig_models *ms, struct ig_change *c, struct ig_error *err)
{
	ms->change(ms->change_ctx, c);
	return c->rc ? ig_fail(err, c->rc, "%s", c->err.text) : 0;
}

/* ---- the sums ------------------------------------------------------------------------------ */

static void add_ranks(const struct ig_model *m, struct ig_rank_bytes *ranks, uint32_t n)
{
	const struct ig_program_memory *memory;
	const uint32_t n_own = ig_program_ranks(m->program, &memory);

	for (uint32_t r = 0; r < n && r < n_own; r++) {
		ranks[r].weights += memory[r].weight_bytes;
		ranks[r].scratch += memory[r].scratch_bytes;
	}
}

/* What each device or machine has of all models. */
static void show_ranks(const struct ig_models *ms)
{
	struct ig_rank_bytes ranks[IG_METRICS_RANKS] = { 0 };
	uint32_t n = ig_driver_n_ranks(ms->backend->driver);
	const struct ig_model *m;

	if (n < 2)
		return;
	n = n < IG_METRICS_RANKS ? n : IG_METRICS_RANKS;
	TAILQ_FOREACH(m, &ms->all, all) {
		add_ranks(m, ranks, n);
		if (m->draft)
			add_ranks(m->draft, ranks, n);
	}
	ig_metrics_set_ranks(ms->backend->metrics, ranks, n);
}

void ig_loaded_show(const struct ig_models *ms)
{
	struct ig_metrics *metrics = ms->backend->metrics;
	const struct ig_model_entry *s;
	unsigned n = 0;

	TAILQ_FOREACH(s, &ms->entries, link)
		n += s->model != NULL;
	ig_metrics_set(metrics, IG_GAUGE_MODELS_LOADED, n);
	ig_metrics_set(metrics, IG_GAUGE_WEIGHT_BYTES, (double)ms->contract.weights);
	ig_metrics_set(metrics, IG_GAUGE_SCRATCH_BYTES,
		       (double)(ms->contract.scratch + ms->contract.logits));
	show_ranks(ms);
}

void ig_loaded_add(struct ig_models *ms, struct ig_model *m)
{
	TAILQ_INSERT_TAIL(&ms->all, m, all);
	ms->contract.weights += m->need.weights;
	ms->contract.scratch += m->need.scratch;
}

void ig_loaded_remove(struct ig_models *ms, struct ig_model *m)
{
	struct ig_model_entry *s;

	TAILQ_REMOVE(&ms->all, m, all);
	ms->contract.weights -= m->need.weights;
	ms->contract.scratch -= m->need.scratch;
	TAILQ_FOREACH(s, &ms->queue, queue)
		s->blocked = false;
}

/* ---- copies of logits ------------------------------------------------------------------------ */

int ig_loaded_change_logits(struct ig_models *ms, uint64_t all, struct ig_model *add,
			    struct ig_error *err)
{
	struct ig_change c = { .add = add };
	uint64_t before;
	int rc;

	pthread_mutex_lock(&ms->lock);
	before = ms->contract.logits;
	if (all > before && all - before > ig_contract_free(&ms->contract))
		all = before;
	if (all > before)
		ms->contract.logits = all;
	pthread_mutex_unlock(&ms->lock);
	if (all != before) {
		c.swaps_logits = !ig_logits_alloc(ms->backend, all, c.logits);
		if (!c.swaps_logits)
			all = before;
	}
	if (add) {
		add->gives_logits = add->need.logits <= all;
		if (!add->gives_logits)
			ig_log_warn("model %s: there is no memory for log probabilities "
				    "(memory.budget); requests for them are refused",
				    add->name);
	}
	rc = add || c.swaps_logits ? ig_loaded_ask_engine(ms, &c, err) : 0;
	if (rc < 0)
		all = before;
	ig_logits_free(c.logits); /* the old ones, or on an error the new ones */
	pthread_mutex_lock(&ms->lock);
	ms->contract.logits = all;
	pthread_mutex_unlock(&ms->lock);
	return rc;
}

void ig_loaded_shrink_logits(struct ig_models *ms)
{
	const struct ig_model *m;
	uint64_t most = 0, now;

	pthread_mutex_lock(&ms->lock);
	now = ms->contract.logits;
	TAILQ_FOREACH(m, &ms->all, all)
		if (m->gives_logits && m->need.logits > most)
			most = m->need.logits;
	pthread_mutex_unlock(&ms->lock);
	if (most < now)
		ig_loaded_change_logits(ms, most, NULL, NULL);
}
