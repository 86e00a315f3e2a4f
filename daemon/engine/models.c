/*
 * models.c: models by name: references to their instances, loads that requests want, and what an
 * administrator changes.  Entries: entries.c; a new configuration: reload.c; what is shown of them:
 * models_status.c.  The loader does what takes time.
 */
#include "daemon/engine/models_private.h"

#include "base/clock.h"
#include "daemon/engine/contract_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* After a failed load, requests fail for this time before the next load. */
#define RETRY_NS ((int64_t)5 * 1000000000)

static struct ig_model *instance_of(const struct ig_engine_model *shown)
{
	return shown ? shown->instance : NULL;
}

/* ---- loads and memory ------------------------------------------------------------------ */

void ig_entry_queue(struct ig_models *ms, struct ig_model_entry *s, bool look_only)
{
	switch (s->load) {
	case IG_LOAD_NONE:
		s->load = IG_LOAD_QUEUED;
		s->look_only = look_only;
		s->blocked = false;
		TAILQ_INSERT_TAIL(&ms->queue, s, queue);
		break;
	case IG_LOAD_QUEUED: s->look_only &= look_only; break;
	case IG_LOAD_RUNS:
		if (s->look_only && !look_only)
			s->again = IG_AGAIN_LOAD;
		break;
	}
	pthread_cond_signal(&ms->wake);
}

void ig_entry_release(struct ig_models *ms, struct ig_model_entry *s)
{
	struct ig_model *m = s->model;

	s->model = NULL;
	s->has_asked = false;
	m->n_holds--;
	pthread_cond_signal(&ms->wake);
}

/* Drop a queued load; a running one will be discarded. */
void ig_entry_drop_load(struct ig_models *ms, struct ig_model_entry *s)
{
	s->version++;
	s->again = IG_AGAIN_NO;
	if (s->load != IG_LOAD_QUEUED)
		return;
	TAILQ_REMOVE(&ms->queue, s, queue);
	s->load = IG_LOAD_NONE;
}

static uint64_t bytes_of(const struct ig_model *m) { return m->need.weights + m->need.scratch; }

uint64_t ig_models_idle_bytes(const struct ig_models *ms, const struct ig_model_entry *s)
{
	const struct ig_model *m;
	uint64_t n = 0;

	TAILQ_FOREACH(m, &ms->all, all)
		if (!m->n_holds ||
		    (ig_model_is_current(m) && m->entry != s && m->n_holds == 1 && !m->entry->pin))
			n += bytes_of(m);
	return n;
}

uint64_t ig_models_own_bytes(const struct ig_models *ms, const struct ig_model_entry *s)
{
	const struct ig_model *m;
	uint64_t n = 0;

	TAILQ_FOREACH(m, &ms->all, all)
		if (m->entry == s && m->n_holds)
			n += bytes_of(m);
	return n;
}

/* ---- holding -------------------------------------------------------------------------- */

/* Queue a load of s, which has no instance; -EINPROGRESS, or an error. */
static int want(struct ig_models *ms, struct ig_model_entry *s, void (*ready)(void *ctx), void *ctx,
		struct ig_error *err)
{
	uint64_t idle, own;
	int rc;

	if (s->load == IG_LOAD_NONE && s->error.code && ig_now_ns() - s->failed_ns < RETRY_NS)
		return ig_fail(err, s->error.code == -ENOMEM ? -ENOMEM : -EIO,
			       "the model %s could not be loaded: %s", s->name, s->error.text);
	if (s->load == IG_LOAD_NONE) {
		idle = ig_models_idle_bytes(ms, s);
		own = ig_models_own_bytes(ms, s);
		if (s->need.weights + s->need.scratch >
		    ig_contract_free(&ms->contract) + idle + own)
			return ig_contract_refuse(&ms->contract, s->name, &s->need, idle + own,
						  err);
	}
	rc = ig_entry_add_waiter(s, ready, ctx, err);
	if (rc < 0)
		return rc;
	ig_entry_queue(ms, s, false);
	return ig_fail(err, -EINPROGRESS, "the model %s is being loaded", s->name);
}

/* The number plus one of the instance's adapter of this name; 0: none. */
static uint32_t adapter_of(const struct ig_model *m, const char *name)
{
	for (uint32_t i = 0; i < m->n_adapters; i++)
		if (!strcmp(m->adapters[i].name, name))
			return i + 1;
	return 0;
}

int ig_models_take(struct ig_models *ms, const char *name, void (*ready)(void *ctx), void *ctx,
		   const struct ig_engine_model **out, struct ig_error *err)
{
	struct ig_model_entry *s = NULL;
	uint32_t adapter = 0;
	int rc;

	pthread_mutex_lock(&ms->lock);
	if (ms->draining) {
		rc = ig_fail(err, -ESHUTDOWN, "the server is shutting down");
	} else {
		rc = ig_entry_find(ms, name, &s, &adapter, err);
		if (!rc && !s->model)
			rc = want(ms, s, ready, ctx, err);
	}
	/* After a reload the instance may be the one before, which does not have it yet. */
	if (!rc && adapter && !(adapter = adapter_of(s->model, s->adapters[adapter - 1].name)))
		rc = ig_fail(err, -EIO, "the model %s is loaded without this adapter%s%s", s->name,
			     s->error.code ? ": " : " yet", s->error.code ? s->error.text : "");
	if (!rc) {
		s->model->n_holds++;
		*out = adapter ? &s->model->adapted[adapter - 1] : &s->model->shown;
	}
	pthread_mutex_unlock(&ms->lock);
	return rc;
}

bool ig_models_name(struct ig_models *ms, const char *name, char out[IG_MAX_MODEL_NAME + 1])
{
	struct ig_model_entry *s = NULL;
	uint32_t adapter = 0;

	pthread_mutex_lock(&ms->lock);
	bool found = !ig_entry_find(ms, name, &s, &adapter, NULL) && s;
	snprintf(out, IG_MAX_MODEL_NAME + 1, "%s%s%s", found ? s->name : "", adapter ? ":" : "",
		 adapter ? s->adapters[adapter - 1].name : "");
	pthread_mutex_unlock(&ms->lock);
	return found;
}

void ig_models_free(struct ig_models *ms)
{
	pthread_cond_destroy(&ms->wake);
	pthread_mutex_destroy(&ms->lock);
	free(ms);
}

const struct ig_engine_model *ig_engine_keep_model(const struct ig_engine_model *shown)
{
	struct ig_model *m = instance_of(shown);

	pthread_mutex_lock(&m->home->lock);
	m->n_holds++;
	pthread_mutex_unlock(&m->home->lock);
	return shown;
}

void ig_engine_release_model(const struct ig_engine_model *shown)
{
	struct ig_model *m = instance_of(shown);
	struct ig_models *ms;
	bool last = false;

	if (!m)
		return;
	ms = m->home;
	pthread_mutex_lock(&ms->lock);
	m->n_holds--;
	if (!m->n_holds && !ms->backend) {
		/* the engine is destroyed, and of the instance only the struct was left */
		TAILQ_REMOVE(&ms->all, m, all);
		ig_model_free(m);
		last = TAILQ_EMPTY(&ms->all);
	} else if (!m->n_holds) {
		pthread_cond_signal(&ms->wake);
	} else if (m->n_holds == 1 && ig_model_is_current(m)) {
		m->idle_since_ns = ig_now_ns();
		if (ig_entry_keep_ns(m->entry) >= 0)
			pthread_cond_signal(&ms->wake);
	}
	pthread_mutex_unlock(&ms->lock);
	if (last)
		ig_models_free(ms);
}

void ig_engine_set_keep_alive(const struct ig_engine_model *shown, int64_t ns)
{
	struct ig_model *m = instance_of(shown);

	pthread_mutex_lock(&m->home->lock);
	/* Another instance may have replaced it: that has its own time. */
	if (ig_model_is_current(m)) {
		m->entry->has_asked = true;
		m->entry->asked_ns = ns;
		pthread_cond_signal(&m->home->wake);
	}
	pthread_mutex_unlock(&m->home->lock);
}

int ig_models_unload(struct ig_models *ms, const char *name, struct ig_error *err)
{
	struct ig_waiter *waiters = NULL;
	struct ig_model_entry *s;
	int rc;

	pthread_mutex_lock(&ms->lock);
	rc = ig_entry_find(ms, name, &s, NULL, err);
	if (!rc) {
		if (s->model)
			ig_entry_release(ms, s);
		s->error = (struct ig_error){ 0 };
		ig_entry_drop_load(ms, s);
		if (s->load == IG_LOAD_NONE)
			waiters = ig_entry_take_waiters(s);
	}
	pthread_mutex_unlock(&ms->lock);
	ig_waiters_notify(waiters);
	return rc;
}

int ig_models_pin(struct ig_models *ms, const char *name, bool pin, struct ig_error *err)
{
	struct ig_model_entry *s;

	pthread_mutex_lock(&ms->lock);
	int rc = ig_entry_find(ms, name, &s, NULL, err);
	if (!rc)
		s->pin = pin;
	pthread_mutex_unlock(&ms->lock);
	return rc;
}
