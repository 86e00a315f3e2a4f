/*
 * entries.c: the entries of configured models: made from the configuration, found by the names that
 * requests give, with the figures of their files and those who wait for a load.  What happens to an
 * entry's instance: models.c; when the configuration changes: reload.c.
 */
#include "daemon/engine/entries_private.h"

#include "base/dtype.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

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
int ig_entry_add_waiter(struct ig_model_entry *s, void (*ready)(void *ctx), void *ctx,
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

/* ---- entries ------------------------------------------------------------------------- */

struct ig_model_entry *ig_entry_named(const struct ig_entry_list *list, const char *name)
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
	struct ig_model_entry *s = ig_entry_named(&ms->entries, name), *other;

	TAILQ_FOREACH(other, &ms->entries, link) /* NAME:latest is NAME */
		if (!s && ig_model_is_same_name(other->name, name))
			s = other;
	if (!s && n && !strncmp(name, prefix, n))
		s = ig_entry_named(&ms->entries, name + n);
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
			return ig_entry_named(&ms->entries, c->aliases[i].model);
	return NULL;
}

int ig_entry_find(const struct ig_models *ms, const char *name, struct ig_model_entry **out,
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

struct ig_model_entry *ig_entry_create(const struct ig_config_model *c)
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
		struct ig_model_entry *s = ig_entry_create(&config->models[i]);
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
	struct ig_model_entry *s =
		first ? TAILQ_FIRST(&ms->entries) : ig_entry_named(&ms->entries, name);

	if (!s && !first)
		return ig_fail(err, -EINVAL,
			       "default_model is \"%s\", which is not among the models", name);
	ms->default_entry = s;
	return 0;
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

void ig_entry_forget_figures(struct ig_model_entry *s)
{
	s->arch[0] = 0;
	s->traits = (struct ig_model_traits){ 0 };
	s->n_context = 0;
	s->need = (struct ig_need){ 0 };
	s->scratch_bytes = 0;
	s->created_s = 0;
}
