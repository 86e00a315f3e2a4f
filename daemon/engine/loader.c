/*
 * loader.c: loads and frees instances: at start on the caller's thread, later on the loader's own,
 * while requests run.  The thread takes its next task under the lock and does all that is slow
 * without it; what only the engine's thread may touch, that thread changes at a step's boundary
 * (ig_change).  A load: open and lower, so that all figures are known; free memory by unloading the
 * least recently used models, or fail; count; pack; publish.  A failure changes nothing but the
 * models that were unloaded.
 */
#include "daemon/engine/loader_private.h"

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "daemon/engine/contract_private.h"
#include "daemon/engine/loaded_private.h"
#include "daemon/engine/models_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__APPLE__)
#include <pthread/qos.h>
#endif

/* ---- out -------------------------------------------------------------------------------------- */

/* Under the lock, which is released meanwhile: free m, which nobody holds and nobody can get.
 * It counts until its memory is free. */
static void discard(struct ig_models *ms, struct ig_model *m)
{
	struct ig_change c = { .remove = m };
	char name[129];

	snprintf(name, sizeof name, "%s", m->name);
	pthread_mutex_unlock(&ms->lock);
	ig_loaded_ask_engine(ms, &c, NULL);
	ig_model_close(m);
	pthread_mutex_lock(&ms->lock);
	ig_loaded_remove(ms, m);
	pthread_mutex_unlock(&ms->lock);
	ig_model_free(m);
	ig_loaded_shrink_logits(ms);
	ig_log_info("model %s: unloaded", name);
	ig_metrics_add(ms->backend->metrics, IG_COUNTER_MODELS_UNLOADED, 1);
	pthread_mutex_lock(&ms->lock);
	ig_loaded_show(ms);
}

static struct ig_model *find_dead(const struct ig_models *ms)
{
	struct ig_model *m;

	TAILQ_FOREACH(m, &ms->all, all)
		if (!m->n_holds)
			return m;
	return NULL;
}

/* The least recently used of the models that may be evicted for another. */
static struct ig_model *find_oldest(const struct ig_models *ms, const struct ig_model_entry *spared)
{
	struct ig_model *m, *oldest = NULL;

	TAILQ_FOREACH(m, &ms->all, all)
		if (ig_model_is_current(m) && m->n_holds == 1 && m->entry != spared &&
		    !m->entry->pin && (!oldest || m->idle_since_ns < oldest->idle_since_ns))
			oldest = m;
	return oldest;
}

static int fail_space(const struct ig_models *ms, const struct ig_model *m, uint64_t idle,
		      struct ig_error *err)
{
	ig_contract_refuse(&ms->contract, m->name, &m->need, idle, err);
	return -ENOSPC;
}

/* Under the lock, which it may release meanwhile: free space for m, a new instance of s.  0;
 * -EAGAIN: try again when an older instance of s was freed; -ENOSPC with the figures: nothing
 * was unloaded. */
static int free_space(struct ig_models *ms, struct ig_model_entry *s, const struct ig_model *m,
		      struct ig_error *err)
{
	uint64_t wanted = m->need.weights + m->need.scratch, version = s->version;

	while (!ms->stopping && s->version == version) {
		uint64_t free_now = ig_contract_free(&ms->contract), idle, own;
		struct ig_model *victim = find_dead(ms);
		if (wanted <= free_now)
			return 0;
		idle = ig_models_idle_bytes(ms, s);
		own = ig_models_own_bytes(ms, s);
		if (wanted > free_now + idle + own)
			return fail_space(ms, m, idle + own, err);
		if (!victim && wanted <= free_now + idle) {
			victim = find_oldest(ms, s);
			ig_log_info("model %s: unloaded to free memory for %s", victim->name,
				    m->name);
			ig_entry_release(ms, victim->entry);
		}
		if (!victim && !s->model)
			return -EAGAIN;
		if (!victim)
			ig_entry_release(ms, s); /* freed when its requests have ended */
		else
			discard(ms, victim);
	}
	return 0;
}

/* ---- in ------------------------------------------------------------------------------------------ */

/* Make m ready for requests.  It is counted already. */
static int bring_in(struct ig_models *ms, struct ig_model *m, struct ig_error *err)
{
	int rc = ig_model_load(m, err);
	uint64_t logits;

	if (rc < 0)
		return rc;
	pthread_mutex_lock(&ms->lock);
	logits = ms->contract.logits;
	pthread_mutex_unlock(&ms->lock);
	return ig_loaded_change_logits(ms, m->need.logits > logits ? m->need.logits : logits, m,
				       err);
}

/* Under the lock: requests get m from now on; the entry takes over its reference. */
static void publish(struct ig_models *ms, struct ig_model_entry *s, struct ig_model *m,
		    int64_t start_ns)
{
	char left_out[256];

	if (s->model && s->model != m)
		ig_entry_release(ms, s);
	s->model = m;
	m->entry = s;
	m->idle_since_ns = ig_now_ns();
	s->error = (struct ig_error){ 0 };
	s->n_loads++;
	s->loaded_s = (double)(m->idle_since_ns - start_ns) * 1e-9;
	ig_entry_set_figures(s, m);
	ig_log_info("model %s: %s, %.1f MiB of weights, context %u, loaded in %.0f ms", m->name,
		    m->arch, (double)m->memory.weight_bytes / (1 << 20), m->limits.max_context,
		    s->loaded_s * 1e3);
	if (m->has_mtp)
		ig_log_info("model %s: it guesses tokens by a head of its own (MTP)", m->name);
	ig_plan_left_out(m->plan, left_out, sizeof left_out);
	if (*left_out)
		ig_log_info("model %s: left out: %s", m->name, left_out);
	ig_metrics_model_load(ms->backend->metrics, s->loaded_s);
	ig_loaded_show(ms);
}

static void record_failure(struct ig_models *ms, struct ig_model_entry *s,
			   const struct ig_error *why)
{
	s->error = *why;
	s->failed_ns = ig_now_ns();
	ig_log_error("model %s: %s%s", s->name, why->text, s->model ? "; the old one stays" : "");
	ig_metrics_add(ms->backend->metrics, IG_COUNTER_MODEL_LOAD_FAILURES, 1);
}

/* Whether a load of this version is still of use. */
static bool is_wanted(const struct ig_models *ms, const struct ig_model_entry *s, uint64_t version)
{
	return !ms->stopping && s->version == version;
}

static int open_model(struct ig_models *ms, const struct ig_model_spec *spec, struct ig_model **out,
		      struct ig_error *err)
{
	int rc = ig_model_open(ms->backend, spec, out, err);

	if (rc < 0)
		return rc;
	(*out)->home = ms;
	pthread_mutex_lock(&ms->lock);
	(*out)->chunk = ms->chunk;
	pthread_mutex_unlock(&ms->lock);
	ig_contract_measure(&ms->contract, *out);
	return 0;
}

static int open_copy(struct ig_models *ms, struct ig_model_entry *s, struct ig_model **out,
		     struct ig_error *err)
{
	char *name = strdup(s->name), *path = strdup(s->path);
	struct ig_model_adapter *adapters = ig_model_adapters_copy(s->adapters, s->n_adapters);
	char *draft = s->draft.path ? strdup(s->draft.path) : NULL;
	bool copied = name && path && adapters && (draft || !s->draft.path);
	struct ig_model_spec spec = { .name = name,
				      .path = path,
				      .wants = s->wants,
				      .adapters = adapters,
				      .n_adapters = s->n_adapters,
				      .draft = draft };
	int rc;

	pthread_mutex_unlock(&ms->lock);
	if (copied)
		rc = open_model(ms, &spec, out, err);
	else
		rc = ig_fail(err, -ENOMEM, "out of memory");
	if (!rc) {
		rc = ig_contract_fit_cache(&ms->contract, *out, err);
		if (rc < 0) {
			ig_model_close(*out);
			ig_model_free(*out);
			*out = NULL;
		}
	}
	ig_model_adapters_free(adapters, spec.n_adapters);
	free(draft);
	free(name);
	free(path);
	pthread_mutex_lock(&ms->lock);
	return rc;
}

/* Under the lock, which is released meanwhile.  NULL on an error (*rc, *why), when only the
 * figures were to be read, or when the load is no longer wanted. */
static struct ig_model *load_one(struct ig_models *ms, struct ig_model_entry *s, uint64_t version,
				 bool look_only, int *rc, struct ig_error *why)
{
	struct ig_model *m = NULL;
	bool counted = false;

	*rc = open_copy(ms, s, &m, why);
	if (m && s->version == version && !s->model)
		ig_entry_set_figures(s, m);
	if (m && !look_only && is_wanted(ms, s, version))
		*rc = free_space(ms, s, m, why);
	if (m && !look_only && !*rc && is_wanted(ms, s, version)) {
		ig_loaded_add(ms, m);
		counted = true;
		pthread_mutex_unlock(&ms->lock);
		*rc = bring_in(ms, m, why);
		pthread_mutex_lock(&ms->lock);
		if (!*rc)
			return m;
	}
	if (m) {
		if (counted)
			ig_loaded_remove(ms, m);
		pthread_mutex_unlock(&ms->lock);
		ig_model_close(m);
		ig_model_free(m);
		pthread_mutex_lock(&ms->lock);
	}
	return NULL;
}

/* Under the lock, which is released meanwhile. */
static void load_entry(struct ig_models *ms, struct ig_model_entry *s)
{
	struct ig_waiter *waiters = NULL;
	struct ig_error why = { 0 };
	uint64_t version = s->version;
	bool look_only = s->look_only, gone;
	int64_t start_ns = ig_now_ns();
	struct ig_model *m;
	int rc;

	TAILQ_REMOVE(&ms->queue, s, queue);
	s->load = IG_LOAD_RUNS;
	s->again = IG_AGAIN_NO;
	m = load_one(ms, s, version, look_only, &rc, &why);
	s->load = IG_LOAD_NONE;
	if (m && s->version == version) {
		publish(ms, s, m, start_ns);
	} else if (m) {
		m->n_holds--; /* no longer wanted: the thread discards it */
	} else if (s->version == version && rc == -EAGAIN) {
		ig_entry_queue(ms, s, false);
		s->blocked = true;
		return;
	} else if (s->version == version && rc < 0) {
		/* A lack of space is not remembered: the next request gets the figures of its
		 * time. */
		if (rc == -ENOSPC && !s->model)
			ig_log_warn("model %s: %s", s->name, why.text);
		else
			record_failure(ms, s, &why);
	} else if (s->version == version && look_only) {
		s->error = (struct ig_error){ 0 };
	}
	if (s->again && !ms->stopping)
		ig_entry_queue(ms, s, s->again == IG_AGAIN_LOOK);
	else
		waiters = ig_entry_take_waiters(s);
	gone = s->gone;
	pthread_mutex_unlock(&ms->lock);
	/* s may have been freed by now, unless it was gone before */
	ig_waiters_notify(waiters);
	if (gone)
		ig_entry_free(s);
	pthread_mutex_lock(&ms->lock);
}

/* ---- the thread -------------------------------------------------------------------------------------- */

/* An entry whose keep_alive has expired; NULL: none, and *deadline is when one will. */
static struct ig_model_entry *find_expired(const struct ig_models *ms, int64_t *deadline)
{
	int64_t now = ig_now_ns();
	struct ig_model_entry *s;

	*deadline = INT64_MAX;
	TAILQ_FOREACH(s, &ms->entries, link) {
		int64_t end, keep = ig_entry_keep_ns(s);
		if (!s->model || keep < 0 || s->model->n_holds > 1)
			continue;
		end = s->model->idle_since_ns + keep;
		if (end <= now)
			return s;
		if (end < *deadline)
			*deadline = end;
	}
	return NULL;
}

/* Under the lock: release the least recently used model that nobody uses; the thread discards it. */
static void reclaim_one(struct ig_models *ms)
{
	struct ig_model *m = find_oldest(ms, NULL);
	uint64_t n;

	if (!m) {
		ig_log_warn("the system is short of memory, and no model is idle and not pinned");
		ms->to_free = 0;
		return;
	}
	n = m->need.weights + m->need.scratch;
	ig_log_info("model %s: unloaded because the system is short of memory", m->name);
	ig_metrics_add(ms->backend->metrics, IG_COUNTER_RECLAIMED_BYTES, n);
	ms->to_free -= n < ms->to_free ? n : ms->to_free;
	ig_entry_release(ms, m->entry);
}

static struct ig_model_entry *find_load(const struct ig_models *ms)
{
	struct ig_model_entry *s;

	if (ms->draining)
		return NULL; /* no request would get it */
	TAILQ_FOREACH(s, &ms->queue, queue)
		if (!s->blocked)
			return s;
	return NULL;
}

/* Packing weights only gets the processor time that computing steps leaves. */
static void step_back(void)
{
#ifdef __linux__
	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 10);
#elif defined(__APPLE__)
	pthread_set_qos_class_self_np(QOS_CLASS_UTILITY, 0);
#endif
}

static void *loader_main(void *arg)
{
	struct ig_models *ms = arg;

	step_back();
	pthread_mutex_lock(&ms->lock);
	while (!ms->stopping) {
		struct ig_model *dead = find_dead(ms);
		struct ig_model_entry *s;
		int64_t deadline;
		if (dead)
			discard(ms, dead);
		else if ((s = find_expired(ms, &deadline))) {
			ig_log_info("model %s: not used for %.1f s", s->name,
				    (double)ig_entry_keep_ns(s) * 1e-9);
			ig_entry_release(ms, s);
		} else if (ms->to_free)
			reclaim_one(ms);
		else if ((s = find_load(ms)))
			load_entry(ms, s);
		else
			ig_wait_until(&ms->wake, &ms->lock, deadline);
	}
	pthread_mutex_unlock(&ms->lock);
	return NULL;
}

/* ---- start and end ------------------------------------------------------------------------------------- */

/* Open every file, so that a mistake is found now.  A model that loads at start stays open, and
 * its error is fatal; another's error is stored, as after a reload. */
static int open_all(struct ig_models *ms, struct ig_error *err)
{
	struct ig_error why = { 0 };
	struct ig_model_entry *s;

	TAILQ_FOREACH(s, &ms->entries, link) {
		struct ig_model *m;
		struct ig_model_spec spec = { .name = s->name,
					      .path = s->path,
					      .wants = s->wants,
					      .adapters = s->adapters,
					      .n_adapters = s->n_adapters,
					      .draft = s->draft.path };
		int rc = open_model(ms, &spec, &m, &why);
		if (rc < 0 && (s->at_start || rc == -ENOMEM))
			return ig_fail(err, rc, "model %s: %s", s->name, why.text);
		if (rc < 0) {
			record_failure(ms, s, &why);
			continue;
		}
		ig_entry_set_figures(s, m);
		if (s->at_start) {
			TAILQ_INSERT_TAIL(&ms->all, m, all);
			m->entry = s;
			s->model = m;
		} else {
			ig_model_close(m);
			ig_model_free(m);
		}
	}
	return 0;
}

static int load_all(struct ig_models *ms, struct ig_error *err)
{
	struct ig_error why = { 0 };
	struct ig_model *m;
	int rc;

	TAILQ_FOREACH(m, &ms->all, all) {
		struct ig_change c = { .add = m };
		int64_t start_ns = ig_now_ns();
		if (ms->backend->loading)
			ms->backend->loading(ms->backend->loading_ctx, m->name, m->need.weights);
		if ((rc = ig_contract_fit_cache(&ms->contract, m, &why)) ||
		    (rc = ig_loaded_ask_engine(ms, &c, &why)) || (rc = ig_model_load(m, &why)))
			return ig_fail(err, rc, "model %s: %s", m->name, why.text);
		publish(ms, m->entry, m, start_ns);
	}
	return 0;
}

static int start(struct ig_models *ms, const struct ig_config *config, struct ig_error *err)
{
	struct ig_backend *b = ms->backend;
	int rc = ig_models_set_entries(ms, config, err);

	if (rc || (rc = open_all(ms, err)) ||
	    (rc = ig_models_set_default(ms, config->default_model, err)) ||
	    (rc = ig_contract_start(ms, config, err)) ||
	    (rc = ig_backend_make_cache(b, ms->contract.arena, ms->contract.slab, &b->cache, err)))
		return rc;
	rc = load_all(ms, err);
	ig_loaded_show(ms);
	return rc;
}

int ig_models_create(struct ig_backend *b, const struct ig_config *config,
		     void (*change)(void *ctx, struct ig_change *c), void *ctx,
		     struct ig_models **out, struct ig_error *err)
{
	struct ig_models *ms = calloc(1, sizeof *ms);
	int rc;

	if (!ms)
		return ig_fail(err, -ENOMEM, "out of memory for the models");
	rc = ig_lock_init(&ms->lock, &ms->wake);
	if (rc < 0) {
		free(ms);
		return ig_fail(err, rc, "the models' lock can't be made: %s", strerror(-rc));
	}
	TAILQ_INIT(&ms->entries);
	TAILQ_INIT(&ms->queue);
	TAILQ_INIT(&ms->all);
	ms->backend = b;
	ms->config = config;
	ms->change = change;
	ms->change_ctx = ctx;
	ms->chunk = ig_backend_chunk(b, config);
	ms->contract.slab = config->kvcache.slab;
	*out = ms;
	return start(ms, config, err);
}

int ig_models_start(struct ig_models *ms, struct ig_error *err)
{
	int rc = pthread_create(&ms->thread, NULL, loader_main, ms);

	if (rc)
		return ig_fail(err, -rc, "the loader thread can't be started: %s", strerror(rc));
	ms->has_thread = true;
	return 0;
}

void ig_models_reclaim(void *models, uint64_t n_bytes)
{
	struct ig_models *ms = models;

	pthread_mutex_lock(&ms->lock);
	ms->to_free = n_bytes;
	pthread_cond_signal(&ms->wake);
	pthread_mutex_unlock(&ms->lock);
}

void ig_models_drain(struct ig_models *ms)
{
	struct ig_waiter *waiters;
	struct ig_model_entry *s;
	bool any = true;

	while (any) {
		waiters = NULL;
		pthread_mutex_lock(&ms->lock);
		ms->draining = true;
		TAILQ_FOREACH(s, &ms->entries, link) {
			waiters = ig_entry_take_waiters(s);
			if (waiters)
				break;
		}
		pthread_mutex_unlock(&ms->lock);
		any = waiters != NULL;
		ig_waiters_notify(waiters);
	}
}

void ig_models_stop(struct ig_models *ms)
{
	ig_models_drain(ms);
	if (!ms->has_thread)
		return;
	pthread_mutex_lock(&ms->lock);
	ms->stopping = true;
	pthread_cond_signal(&ms->wake);
	pthread_mutex_unlock(&ms->lock);
	pthread_join(ms->thread, NULL);
	ms->has_thread = false;
}

void ig_models_destroy(struct ig_models *ms)
{
	struct ig_model *m, *next;
	struct ig_model_entry *s;
	bool held;

	/* The remaining threads can only release models. */
	for (m = TAILQ_FIRST(&ms->all); m; m = TAILQ_NEXT(m, all)) {
		struct ig_change c = { .remove = m };
		ig_loaded_ask_engine(ms, &c, NULL);
		ig_model_close(m);
	}
	pthread_mutex_lock(&ms->lock);
	ms->backend = NULL;
	for (m = TAILQ_FIRST(&ms->all); m; m = next) {
		next = TAILQ_NEXT(m, all);
		if (ig_model_is_current(m))
			m->n_holds--;
		m->entry = NULL;
		if (m->n_holds)
			continue;
		TAILQ_REMOVE(&ms->all, m, all);
		ig_model_free(m);
	}
	while ((s = TAILQ_FIRST(&ms->entries))) {
		TAILQ_REMOVE(&ms->entries, s, link);
		ig_entry_free(s);
	}
	held = !TAILQ_EMPTY(&ms->all);
	pthread_mutex_unlock(&ms->lock);
	if (!held)
		ig_models_free(ms);
}
