/*
 * reload.c: a new configuration: which entries come, go and change, and which instances that are
 * loaded are still right.
 */
#include "daemon/engine/models_private.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

/* ---- what is the same as before ---------------------------------------------------------- */

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
		ig_entry_forget_figures(s);
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
			/* a change was undone: the instance is right again */
			ig_entry_drop_load(ms, s);
	} else if (other || s->model || s->error.code) {
		wanted_anew(ms, s);
	} else if (starts) {
		ig_entry_queue(ms, s, false);
	}
}

static void append_waiters(struct ig_waiter **list, struct ig_waiter *more)
{
	while (*list)
		list = &(*list)->next;
	*list = more;
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
	ig_entry_drop_load(ms, s);
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
		s = ig_entry_named(&old, fresh[i]->name);
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
		fresh[i] = ig_entry_create(&config->models[i]);
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
