/*
 * config_modules.c: options that modules bring: what the file says below modules.NAME is kept
 * as it was read until the modules' own tables judge it, with the same types and bounds as
 * every other option.
 */
#include "store/config_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SAID 256

static void free_said(struct config_said *s)
{
	free(s->module);
	free(s->key);
	free(s->text);
	free(s->value);
	free(s->fallback);
}

static void free_settings(struct ig_config *pub)
{
	for (size_t i = 0; i < pub->modules.n_settings; i++) {
		free(pub->modules.settings[i].module);
		free(pub->modules.settings[i].key);
		free(pub->modules.settings[i].text);
	}
	free(pub->modules.settings);
	pub->modules.settings = NULL;
	pub->modules.n_settings = 0;
}

void config_clear_modules(struct config *c)
{
	for (size_t i = 0; i < c->n_said; i++)
		free_said(&c->said[i]);
	free(c->said);
	free_settings(&c->pub);
}

const struct config_said *config_find_said(const struct config *c, const char *module,
					   const char *key)
{
	for (size_t i = 0; i < c->n_said; i++)
		if (!strcmp(c->said[i].module, module) &&
		    (key && c->said[i].key ? !strcmp(c->said[i].key, key) : key == c->said[i].key))
			return &c->said[i];
	return NULL;
}

int config_say(struct config *c, const struct config_said *said, struct ig_error *err)
{
	struct config_said *all, *s;

	if (c->n_said == MAX_SAID)
		return ig_fail(err, -EINVAL, "%s: more than %d options of modules", c->label,
			       MAX_SAID);
	all = realloc(c->said, (c->n_said + 1) * sizeof *all);
	if (!all)
		return ig_fail(err, -ENOMEM, "%s: out of memory", c->label);
	c->said = all;
	s = &all[c->n_said];
	*s = *said;
	s->module = strdup(said->module);
	s->key = said->key ? strdup(said->key) : NULL;
	s->text = said->text ? strdup(said->text) : NULL;
	if (!s->module || (said->key && (!s->key || !s->text))) {
		free_said(s);
		return ig_fail(err, -ENOMEM, "%s: out of memory", c->label);
	}
	c->n_said++;
	return 0;
}

/* ---- a module's option as one of ours --------------------------------------------------- */

void config_of_module(const char *module, const struct ig_module_option *m,
		      struct config_module_option *out)
{
	static const enum config_type types[] = { CONFIG_BOOL, CONFIG_INT,    CONFIG_BYTES,
						  CONFIG_TIME, CONFIG_CHOICE, CONFIG_TEXT };
	const struct config_option o = {
		.key = out->key,
		.type = types[m->type],
		.size = sizeof out->field.number,
		.min = m->min,
		.max = m->type == IG_OPTION_CHOICE ? 64 : m->max,
		.ms_per_unit = 1,
		.unit = m->type == IG_OPTION_SIZE ? "bytes" :
			m->type == IG_OPTION_TIME ? "time" :
						    m->unit,
		.choices = m->choices,
		.value = out->value,
		.help = m->help,
	};
	struct ig_strbuf b;

	out->option = o;
	snprintf(out->key, sizeof out->key, "modules.%.64s.%.64s", module, m->key);
	if (m->type == IG_OPTION_BOOL)
		out->field.truth = m->number;
	else if (m->text)
		out->field.text = (char *)(uintptr_t)m->text;
	else
		out->field.number = m->number;
	ig_strbuf_init(&b);
	config_format(&o, &out->field, &b);
	snprintf(out->value, sizeof out->value, "%s", b.data ? b.data : "");
	ig_strbuf_finish(&b);
}

/* ---- judging ------------------------------------------------------------------------------ */

static const struct ig_module *find_module(const struct ig_module *const *modules, size_t n,
					   const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(modules[i]->name, name))
			return modules[i];
	return NULL;
}

static const struct ig_module_option *find_option(const struct ig_module *m, const char *key)
{
	for (const struct ig_module_option *o = m->options; o && o->key; o++)
		if (!strcmp(o->key, key))
			return o;
	return NULL;
}

/* "…:3:5: unknown key "modules.x"; WHAT a, b", of modules or, with one, of its options. */
static int fail_unknown(const struct config *c, const struct config_said *s,
			const struct ig_module *const *modules, size_t n, const struct ig_module *m,
			struct ig_error *err)
{
	char full[260], shown[80];
	struct ig_strbuf known;

	snprintf(full, sizeof full, "modules.%s%s%s", s->module, m ? "." : "", m ? s->key : "");
	config_quote(full, strlen(full), shown);
	ig_strbuf_init(&known);
	for (size_t i = 0; !m && i < n && known.len < 120; i++)
		ig_strbuf_printf(&known, "%s%s", i ? ", " : "", modules[i]->name);
	for (const struct ig_module_option *o = m ? m->options : NULL;
	     o && o->key && known.len < 120; o++)
		ig_strbuf_printf(&known, "%s%s", known.len ? ", " : "", o->key);
	ig_fail(err, -EINVAL, "%s:%u:%u: unknown key %s; %s %s", c->label, s->line, s->column,
		shown, m ? "the module's options are" : "the modules are",
		known.data ? known.data : "none");
	ig_strbuf_finish(&known);
	return -EINVAL;
}

static int judge(struct config *c, struct config_said *s, const struct ig_module *m,
		 const struct ig_module_option *o, struct ig_setting *out, struct ig_error *err)
{
	struct config_module_option as;
	struct ig_strbuf value;
	char who[400];
	int rc;

	config_of_module(m->name, o, &as);
	as.field.number = 0;
	snprintf(who, sizeof who, "%s:%u:%u: %s", c->label, s->value_line, s->value_column, as.key);
	rc = config_store(c->dir, &as.field, &as.option, who, s->text, strlen(s->text), err);
	if (rc)
		return rc;
	*out = (struct ig_setting){ .module = strdup(m->name), .key = strdup(o->key) };
	if (o->type == IG_OPTION_CHOICE || o->type == IG_OPTION_TEXT)
		out->text = as.field.text;
	else
		out->number = o->type == IG_OPTION_BOOL ? as.field.truth : as.field.number;
	free(s->value);
	free(s->fallback);
	ig_strbuf_init(&value);
	config_format(&as.option, &as.field, &value);
	s->value = ig_strbuf_steal(&value);
	s->fallback = strdup(as.value);
	return out->module && out->key && s->value && s->fallback ?
		       0 :
		       ig_fail(err, -ENOMEM, "%s: out of memory", c->label);
}

int ig_config_judge_modules(struct ig_config *pub, const struct ig_module *const *modules, size_t n,
			    struct ig_error *err)
{
	struct config *c = (struct config *)pub;
	int rc = 0;

	free_settings(pub);
	pub->modules.settings = calloc(c->n_said + 1, sizeof *pub->modules.settings);
	if (!pub->modules.settings)
		return ig_fail(err, -ENOMEM, "%s: out of memory", c->label);
	for (size_t i = 0; i < c->n_said && !rc; i++) {
		struct config_said *s = &c->said[i];
		const struct ig_module *m = find_module(modules, n, s->module);
		const struct ig_module_option *o = m && s->key ? find_option(m, s->key) : NULL;

		if (!m || (s->key && !o))
			rc = fail_unknown(c, s, modules, n, m, err);
		else if (o) /* counted first, so that half a setting is freed too */
			rc = judge(c, s, m, o, &pub->modules.settings[pub->modules.n_settings++],
				   err);
	}
	return rc;
}

/* ---- differences ---------------------------------------------------------------------------- */

/* What the option s has in c: both were judged, or neither. */
static const char *value_in(const struct config *c, const struct config_said *s)
{
	const struct config_said *found = config_find_said(c, s->module, s->key);

	if (!found)
		return s->fallback ? s->fallback : "the default";
	return found->value ? found->value : found->text;
}

void config_diff_modules(const struct config *old, const struct config *new_,
			 void (*each)(void *ctx, const char *key, const char *was, const char *is,
				      bool reloadable),
			 void *ctx)
{
	for (size_t i = 0; i < old->n_said + new_->n_said; i++) {
		const bool is_old = i < old->n_said;
		const struct config_said *s = is_old ? &old->said[i] : &new_->said[i - old->n_said];
		char key[160];

		/* Those that both have are seen in the old one. */
		if (!s->key || (!is_old && config_find_said(old, s->module, s->key)) ||
		    !strcmp(value_in(old, s), value_in(new_, s)))
			continue;
		snprintf(key, sizeof key, "modules.%.64s.%.64s", s->module, s->key);
		each(ctx, key, value_in(old, s), value_in(new_, s), false);
	}
}
