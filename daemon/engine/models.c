/* models.c: models by name: references to instances, status, and changes of the
 * configuration.  The loader does what takes time. */
#include "daemon/engine/models_private.h"

#include "base/clock.h"
#include "base/dtype.h"
#include "base/log.h"
#include "daemon/engine/contract_private.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

/* After a failed load, requests fail for this time before the next load. */
#define RETRY_NS ((int64_t)5 * 1000000000)

static struct ig_model *instance_of(const struct ig_engine_model *shown)
{
	return shown ? shown->instance : NULL;
}

/* ---- waiters ------------------------------------------------------------------------ */

struct ig_waiter *ig_entry_take_waiters(struct ig_model_entry *s)
{
	struct ig_waiter *w = s->waiters;

	s->waiters = NULL;
	return w;
}

void ig_waiters_notify(struct ig_waiter *w)
{
	while (w) {
		struct ig_waiter *next = w->next;
		w->ready(w->ctx);
		free(w);
		w = next;
	}
}

/* At the end: waiters are called in the order of their arrival. */
static int add_waiter(struct ig_model_entry *s, void (*ready)(void *ctx), void *ctx,
		      struct ig_error *err)
{
	struct ig_waiter **at = &s->waiters, *w;

	if (!ready)
		return 0;
	w = malloc(sizeof *w);
	if (!w)
		return ig_fail(err, -ENOMEM, "out of memory");
	*w = (struct ig_waiter){ ready, ctx, NULL };
	while (*at)
		at = &(*at)->next;
	*at = w;
	return 0;
}

static void append_waiters(struct ig_waiter **list, struct ig_waiter *more)
{
	while (*list)
		list = &(*list)->next;
	*list = more;
}

/* ---- entries ------------------------------------------------------------------------- */

static struct ig_model_entry *named(const struct ig_entry_list *list, const char *name)
{
	struct ig_model_entry *s;

	TAILQ_FOREACH(s, list, link)
		if (!strcmp(s->name, name))
			return s;
	return NULL;
}

/* The entry of a model's own name, NAME:latest, or one behind server.model_id_prefix. */
static struct ig_model_entry *own_name(const struct ig_models *ms, const char *name)
{
	const struct ig_config *c = ms->config;
	const char *prefix = c->server.model_id_prefix;
	size_t n = prefix ? strlen(prefix) : 0;
	struct ig_model_entry *s = named(&ms->entries, name), *other;

	TAILQ_FOREACH(other, &ms->entries, link) /* NAME:latest is NAME */
		if (!s && ig_model_is_same_name(other->name, name))
			s = other;
	if (!s && n && !strncmp(name, prefix, n))
		s = named(&ms->entries, name + n);
	return s;
}

/* The entry of a request's name: a model's own, MODEL:ADAPTER, whose number plus one is *adapter, or an
 * alias. */
static struct ig_model_entry *entry_of(const struct ig_models *ms, const char *name,
				       uint32_t *adapter)
{
	const struct ig_config *c = ms->config;
	struct ig_model_entry *s = own_name(ms, name);
	const char *colon = strrchr(name, ':');
	char model[2 * IG_MAX_MODEL_NAME];

	*adapter = 0;
	if (!s && colon && (size_t)(colon - name) < sizeof model) {
		snprintf(model, sizeof model, "%.*s", (int)(colon - name), name);
		s = own_name(ms, model);
		for (uint32_t i = 0; s && i < s->n_adapters && !*adapter; i++)
			if (!strcmp(s->adapters[i].name, colon + 1))
				*adapter = i + 1;
		if (!*adapter)
			s = NULL;
	}
	/* replies repeat the name, so it can't be of any length */
	if (s || strlen(name) > IG_MAX_MODEL_NAME)
		return s;
	/* of fnmatch's signs a pattern has only "*" */
	for (size_t i = 0; i < c->n_aliases; i++)
		if (!fnmatch(c->aliases[i].pattern, name, 0))
			return named(&ms->entries, c->aliases[i].model);
	return NULL;
}

static int find_entry(const struct ig_models *ms, const char *name, struct ig_model_entry **out,
		      uint32_t *adapter, struct ig_error *err)
{
	const struct ig_model_entry *s;
	char known[300];
	size_t n = 0;
	uint32_t none;

	adapter = adapter ? adapter : &none;
	*adapter = 0;

	if (TAILQ_EMPTY(&ms->entries))
		return ig_fail(err, -ENOENT,
			       "there is no model yet; `ingot pull NAME` downloads one, and `ingot "
			       "models` lists names");
	*out = ms->default_entry;
	if (!name || !*name)
		return 0;
	*out = entry_of(ms, name, adapter);
	if (*out)
		return 0;
	known[0] = 0;
	TAILQ_FOREACH(s, &ms->entries, link)
		for (uint32_t i = 0; i <= s->n_adapters; i++) {
			int w = snprintf(known + n, sizeof known - n, "%s%s%s%s", n ? ", " : "",
					 s->name, i ? ":" : "", i ? s->adapters[i - 1].name : "");
			if (w < 0 || (size_t)w >= sizeof known - n) {
				memcpy(known + (n < sizeof known - 6 ? n : sizeof known - 6), ", …",
				       6);
				goto full;
			}
			n += (size_t)w;
		}
full:
	return ig_fail(err, -ENOENT, "no model is named \"%.100s\"; known: %s", name, known);
}

void ig_entry_free(struct ig_model_entry *s)
{
	if (!s)
		return;
	free(s->name);
	free(s->path);
	free(s->draft.path);
	ig_model_adapters_free(s->adapters, s->n_adapters);
	free(s);
}

static struct ig_model_entry *entry_create(const struct ig_config_model *c)
{
	struct ig_model_entry *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->name = strdup(c->name);
	s->path = strdup(c->path);
	s->wants.context = c->context;
	/* "auto" is no type; anything else the configuration has refused */
	if (!c->kv_dtype || !ig_cache_dtypes(c->kv_dtype, &s->wants.k_dtype, &s->wants.v_dtype))
		s->wants.k_dtype = s->wants.v_dtype = IG_DTYPE_NONE;
	s->keep_alive_ms = c->keep_alive_ms;
	s->pin = c->pin;
	s->at_start = strcmp(c->load, "first_use") != 0;
	struct ig_model_adapter *list = calloc(c->n_adapters + 1, sizeof *list);
	for (size_t i = 0; list && i < c->n_adapters; i++)
		list[i] = (struct ig_model_adapter){ c->adapters[i].name,
						     c->adapters[i].path,
						     c->adapters[i].scale_percent,
						     { 0 } };
	if (list)
		s->adapters = ig_model_adapters_copy(list, (uint32_t)c->n_adapters);
	free(list);
	if (s->adapters)
		s->n_adapters = (uint32_t)c->n_adapters;
	bool drafted = c->draft && *c->draft;
	if (drafted) {
		s->draft.path = strdup(c->draft);
		ig_file_id_of(c->draft, &s->draft.file_id);
	}
	if (s->name && s->path && s->adapters && (s->draft.path || !drafted))
		return s;
	ig_entry_free(s);
	return NULL;
}

int ig_models_set_entries(struct ig_models *ms, const struct ig_config *config,
			  struct ig_error *err)
{
	for (size_t i = 0; i < config->n_models; i++) {
		struct ig_model_entry *s = entry_create(&config->models[i]);
		if (!s)
			return ig_fail(err, -ENOMEM, "out of memory for %zu models",
				       config->n_models);
		TAILQ_INSERT_TAIL(&ms->entries, s, link);
		ms->n_entries++;
	}
	return 0;
}

int ig_models_set_default(struct ig_models *ms, const char *name, struct ig_error *err)
{
	bool first = !name || !*name;
	struct ig_model_entry *s = first ? TAILQ_FIRST(&ms->entries) : named(&ms->entries, name);

	if (!s && !first)
		return ig_fail(err, -EINVAL,
			       "default_model is \"%s\", which is not among the models", name);
	ms->default_entry = s;
	return 0;
}

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

void ig_entry_set_figures(struct ig_model_entry *s, const struct ig_model *m)
{
	snprintf(s->arch, sizeof s->arch, "%s", m->arch);
	s->traits = m->shown.traits;
	s->n_context = m->limits.max_context;
	s->need = m->need;
	s->scratch_bytes = m->memory.scratch_bytes;
	if (m->draft)
		s->scratch_bytes += m->draft->memory.scratch_bytes;
	s->created_s = m->shown.created_s;
}

static void forget_figures(struct ig_model_entry *s)
{
	s->arch[0] = 0;
	s->traits = (struct ig_model_traits){ 0 };
	s->n_context = 0;
	s->need = (struct ig_need){ 0 };
	s->scratch_bytes = 0;
	s->created_s = 0;
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
	rc = add_waiter(s, ready, ctx, err);
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
		rc = find_entry(ms, name, &s, &adapter, err);
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
	bool found = !find_entry(ms, name, &s, &adapter, NULL) && s;
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

/* Drop a queued load; a running one will be discarded. */
static void drop_load(struct ig_models *ms, struct ig_model_entry *s)
{
	s->version++;
	s->again = IG_AGAIN_NO;
	if (s->load != IG_LOAD_QUEUED)
		return;
	TAILQ_REMOVE(&ms->queue, s, queue);
	s->load = IG_LOAD_NONE;
}

int ig_models_unload(struct ig_models *ms, const char *name, struct ig_error *err)
{
	struct ig_waiter *waiters = NULL;
	struct ig_model_entry *s;
	int rc;

	pthread_mutex_lock(&ms->lock);
	rc = find_entry(ms, name, &s, NULL, err);
	if (!rc) {
		if (s->model)
			ig_entry_release(ms, s);
		s->error = (struct ig_error){ 0 };
		drop_load(ms, s);
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
	int rc = find_entry(ms, name, &s, NULL, err);
	if (!rc)
		s->pin = pin;
	pthread_mutex_unlock(&ms->lock);
	return rc;
}

/* ---- a new configuration ----------------------------------------------------------------- */

static bool same_file(const struct ig_file_id *a, const struct ig_file_id *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
	       a->mtime_ns == b->mtime_ns && a->files == b->files;
}

static bool same_adapters(const struct ig_model_adapter *a, uint32_t n,
			  const struct ig_model_adapter *b, uint32_t n_b)
{
	if (n != n_b)
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (strcmp(a[i].name, b[i].name) || strcmp(a[i].path, b[i].path) ||
		    a[i].scale_percent != b[i].scale_percent ||
		    !same_file(&a[i].file_id, &b[i].file_id))
			return false;
	return true;
}

static bool same_draft(const struct ig_model_draft *a, const struct ig_model_draft *b)
{
	if (!a->path || !b->path)
		return a->path == b->path;
	return !strcmp(a->path, b->path) && same_file(&a->file_id, &b->file_id);
}

/* The options or the file of s have changed, or its last load failed: load or look again. */
static void wanted_anew(struct ig_models *ms, struct ig_model_entry *s)
{
	bool look_only;

	s->version++;
	s->error = (struct ig_error){ 0 };
	if (!s->model)
		forget_figures(s);
	look_only = !s->model && !s->at_start && !s->waiters;
	if (s->load != IG_LOAD_RUNS)
		ig_entry_queue(ms, s, look_only);
	else if (s->again != IG_AGAIN_LOAD)
		s->again = look_only && s->look_only ? IG_AGAIN_LOOK : IG_AGAIN_LOAD;
}

static bool same_wants(const struct ig_model_wants *a, const struct ig_model_wants *b)
{
	return a->context == b->context && a->k_dtype == b->k_dtype && a->v_dtype == b->v_dtype;
}

/* Whether the loaded instance has the path, options and file of the new configuration. */
static bool is_loaded(const struct ig_model_entry *s, const struct ig_model_entry *fresh,
		      const struct ig_file_id *id)
{
	const struct ig_model *m = s->model;
	struct ig_model_draft draft = { 0 };

	if (m && m->draft)
		draft = (struct ig_model_draft){ m->draft->path, m->draft->file_id };
	return m && same_draft(&draft, &fresh->draft) && !strcmp(m->path, fresh->path) &&
	       same_wants(&m->wants, &fresh->wants) && same_file(&m->file_id, id) &&
	       same_adapters(m->adapters, m->n_adapters, fresh->adapters, fresh->n_adapters);
}

/* Apply the new configuration to an existing entry. */
static void update_entry(struct ig_models *ms, struct ig_model_entry *s,
			 struct ig_model_entry *fresh, const struct ig_file_id *id)
{
	bool starts = fresh->at_start && !s->at_start;
	bool other = strcmp(s->path, fresh->path) || !same_wants(&s->wants, &fresh->wants) ||
		     !same_draft(&s->draft, &fresh->draft) ||
		     !same_adapters(s->adapters, s->n_adapters, fresh->adapters, fresh->n_adapters);
	bool loaded = is_loaded(s, fresh, id);
	struct ig_model_adapter *adapters = s->adapters;
	uint32_t n_adapters = s->n_adapters;
	struct ig_model_draft draft = s->draft;
	char *path = s->path;

	s->draft = fresh->draft;
	fresh->draft = draft;
	s->adapters = fresh->adapters;
	s->n_adapters = fresh->n_adapters;
	fresh->adapters = adapters;
	fresh->n_adapters = n_adapters;

	s->path = fresh->path;
	fresh->path = path;
	s->wants = fresh->wants;
	if (s->keep_alive_ms != fresh->keep_alive_ms)
		s->has_asked = false;
	s->keep_alive_ms = fresh->keep_alive_ms;
	s->pin = fresh->pin;
	s->at_start = fresh->at_start;
	if (loaded) {
		s->error = (struct ig_error){ 0 };
		if (other)
			drop_load(ms, s); /* a change was undone: the instance is right again */
	} else if (other || s->model || s->error.code) {
		wanted_anew(ms, s);
	} else if (starts) {
		ig_entry_queue(ms, s, false);
	}
}

/* The entry is no longer configured.  True: it may be freed now. */
static bool remove_entry(struct ig_models *ms, struct ig_model_entry *s, struct ig_waiter **waiters)
{
	struct ig_model *m;

	s->gone = true;
	if (s->model)
		ig_entry_release(ms, s);
	TAILQ_FOREACH(m, &ms->all, all)
		if (m->entry == s)
			m->entry = NULL;
	append_waiters(waiters, ig_entry_take_waiters(s));
	drop_load(ms, s);
	return s->load == IG_LOAD_NONE;
}

/* Under the lock.  fresh: an entry for each configured model; the caller frees those that are
 * left in it. */
static struct ig_waiter *take_over(struct ig_models *ms, struct ig_model_entry **fresh,
				   const struct ig_file_id *ids, size_t n)
{
	struct ig_entry_list old = TAILQ_HEAD_INITIALIZER(old), idle = TAILQ_HEAD_INITIALIZER(idle);
	struct ig_waiter *waiters = NULL;
	struct ig_model_entry *s;

	TAILQ_CONCAT(&old, &ms->entries, link);
	for (size_t i = 0; i < n; i++) {
		s = named(&old, fresh[i]->name);
		if (s) {
			TAILQ_REMOVE(&old, s, link);
			update_entry(ms, s, fresh[i], &ids[i]);
		} else {
			s = fresh[i];
			fresh[i] = NULL;
			ig_entry_queue(ms, s, !s->at_start);
			ig_log_info("model %s: configured", s->name);
		}
		TAILQ_INSERT_TAIL(&ms->entries, s, link);
	}
	ms->n_entries = n;
	while ((s = TAILQ_FIRST(&old))) {
		TAILQ_REMOVE(&old, s, link);
		ig_log_info("model %s: no longer configured", s->name);
		if (ms->default_entry == s)
			ms->default_entry = TAILQ_FIRST(&ms->entries);
		if (remove_entry(ms, s, &waiters))
			TAILQ_INSERT_TAIL(&idle, s, link);
	}
	while ((s = TAILQ_FIRST(&idle))) {
		TAILQ_REMOVE(&idle, s, link);
		ig_entry_free(s);
	}
	return waiters;
}

void ig_models_reload(struct ig_models *ms, const struct ig_config *config)
{
	size_t n = config->n_models;
	struct ig_model_entry **fresh = calloc(n + 1, sizeof *fresh);
	struct ig_file_id *ids = calloc(n + 1, sizeof *ids);
	struct ig_waiter *waiters = NULL;
	struct ig_error err = { 0 };
	bool ok = fresh && ids;

	pthread_mutex_lock(&ms->lock);
	ms->config = config; /* the old one is destroyed soon */
	pthread_mutex_unlock(&ms->lock);
	for (size_t i = 0; ok && i < n; i++) {
		fresh[i] = entry_create(&config->models[i]);
		ok = fresh[i] != NULL;
		if (ok)
			ig_file_id_of(fresh[i]->path, &ids[i]);
	}
	if (ok) {
		pthread_mutex_lock(&ms->lock);
		ms->chunk = ig_backend_chunk(ms->backend, config);
		waiters = take_over(ms, fresh, ids, n);
		if (ig_models_set_default(ms, config->default_model, &err) < 0 && n)
			ig_log_error("reload: %s; the default stays", err.text);
		if (!ms->default_entry)
			ms->default_entry = TAILQ_FIRST(&ms->entries);
		pthread_cond_signal(&ms->wake);
		pthread_mutex_unlock(&ms->lock);
	} else {
		ig_log_error("reload: out of memory for %zu models; they stay as they were", n);
	}
	ig_waiters_notify(waiters);
	for (size_t i = 0; fresh && i < n; i++)
		ig_entry_free(fresh[i]);
	free(fresh);
	free(ids);
}

/* ---- status ------------------------------------------------------------------------------ */

static enum ig_model_state state_of(const struct ig_models *ms, const struct ig_model_entry *s)
{
	const struct ig_model *m;

	if (s->model)
		return IG_MODEL_READY;
	if (s->load != IG_LOAD_NONE && !s->look_only)
		return IG_MODEL_LOADING;
	if (s->error.code)
		return IG_MODEL_FAILED;
	TAILQ_FOREACH(m, &ms->all, all)
		if (m->entry == s)
			return IG_MODEL_UNLOADING;
	return IG_MODEL_UNLOADED;
}

/* As the loader decides, at this moment. */
static enum ig_model_fit fit_of(const struct ig_models *ms, const struct ig_model_entry *s)
{
	uint64_t wanted = s->need.weights + s->need.scratch,
		 free_now = ig_contract_free(&ms->contract);

	if (s->model || !s->n_context) /* its file was not opened */
		return s->model ? IG_FITS : IG_FIT_UNKNOWN;
	if (wanted <= free_now)
		return IG_FITS;
	return wanted <= free_now + ig_models_idle_bytes(ms, s) + ig_models_own_bytes(ms, s) ?
		       IG_FITS_INSTEAD :
		       IG_FITS_NOT;
}

static void fill_status(const struct ig_models *ms, const struct ig_model_entry *s,
			struct ig_model_status *out)
{
	const struct ig_model *m;
	int64_t now = ig_now_ns(), keep = ig_entry_keep_ns(s);

	*out = (struct ig_model_status){
		.state = state_of(ms, s),
		.is_default = s == ms->default_entry,
		.pinned = s->pin,
		.fit = fit_of(ms, s),
		.n_context = s->model ? s->model->limits.max_context : s->n_context,
		.weight_bytes = s->model ? s->model->need.weights : s->need.weights,
		.scratch_bytes = s->scratch_bytes,
		.n_loads = s->n_loads,
		.loaded_s = s->loaded_s,
		.expires_s = -1,
		.keep_alive_s = keep < 0 ? -1 : (double)keep * 1e-9,
		.on_device = ig_driver_memory(ms->backend->driver) > 0,
		.created_s = s->model ? s->model->shown.created_s : s->created_s,
		.traits = s->model ? s->model->shown.traits : s->traits,
	};
	snprintf(out->name, sizeof out->name, "%s", s->name);
	snprintf(out->arch, sizeof out->arch, "%s", s->model ? s->model->arch : s->arch);
	snprintf(out->file, sizeof out->file, "%s", s->model ? s->model->path : s->path);
	if (s->error.code)
		snprintf(out->error, sizeof out->error, "%.255s", s->error.text);
	TAILQ_FOREACH(m, &ms->all, all)
		if (m->entry == s)
			out->n_active += atomic_load(&m->n_active);
	for (uint32_t g = 0; s->model && g < s->model->n_groups; g++)
		out->block_bytes += s->model->layouts[g].block_bytes;
	if (!s->model || s->model->n_holds > 1)
		return;
	out->idle_s = (double)(now - s->model->idle_since_ns) * 1e-9;
	if (keep < 0)
		return;
	out->expires_s = out->keep_alive_s - out->idle_s;
	if (out->expires_s < 0)
		out->expires_s = 0;
}

/* Memory, files and requests are counted in the model's own row: a sum over rows has them once. */
static void show_as_adapter(const struct ig_model_entry *s, const struct ig_model_adapter *a,
			    struct ig_model_status *out)
{
	out->is_adapter = true;
	out->is_default = false;
	out->weight_bytes = out->scratch_bytes = out->block_bytes = out->traits.file_bytes = 0;
	out->n_active = out->n_loads = 0;
	snprintf(out->name, sizeof out->name, "%.*s:%s", IG_MAX_MODEL_NAME - 1, s->name, a->name);
	snprintf(out->file, sizeof out->file, "%s", a->path);
}

size_t ig_models_status(struct ig_models *ms, struct ig_model_status *out, size_t cap)
{
	const struct ig_model_entry *s;
	size_t n = 0;

	pthread_mutex_lock(&ms->lock);
	TAILQ_FOREACH(s, &ms->entries, link)
		for (uint32_t i = 0; i <= s->n_adapters; i++) {
			if (n++ >= cap)
				continue;
			fill_status(ms, s, &out[n - 1]);
			if (!i)
				continue;
			show_as_adapter(s, &s->adapters[i - 1], &out[n - 1]);
		}
	pthread_mutex_unlock(&ms->lock);
	return n;
}

void ig_models_describe(struct ig_models *ms, struct ig_json_writer *w)
{
	const struct ig_model_entry *s;

	pthread_mutex_lock(&ms->lock);
	TAILQ_FOREACH(s, &ms->entries, link) {
		const struct ig_chat_template *chat = s->model ? s->model->chat : NULL;
		struct ig_model_status st;
		fill_status(ms, s, &st);
		ig_json_putf(w,
			     "{'name': %s, 'arch': %s, 'file': %s, 'state': %s, 'error': %s, "
			     "'context': %u",
			     st.name, st.arch, st.file, ig_model_state_name(st.state),
			     st.error[0] ? st.error : NULL, st.n_context);
		ig_json_put_uint(w, "weight_bytes", st.weight_bytes);
		ig_json_put_uint(w, "scratch_bytes", st.scratch_bytes);
		ig_json_putf(w, "'chat_template': %s, 'chat_error': %s, 'default': %-s}",
			     chat ? ig_chat_template_name(chat) : NULL,
			     s->model ? s->model->chat_error : NULL, ig_json_bool(st.is_default));
	}
	pthread_mutex_unlock(&ms->lock);
}

void ig_models_sums(struct ig_models *ms, uint64_t out[4])
{
	const struct ig_contract *c = &ms->contract;

	pthread_mutex_lock(&ms->lock);
	out[0] = c->budget;
	out[1] = c->weights;
	out[2] = c->scratch + c->logits;
	out[3] = c->arena;
	pthread_mutex_unlock(&ms->lock);
}
