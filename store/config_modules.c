/*
 * config_modules.c: the options of modules: the values below modules.NAME are stored as read until
 * they are checked against the modules' own tables, with the same types and bounds as all options.
 */
#include "store/config_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RAW 256

static void free_raw(struct config_raw *s)
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
	for (size_t i = 0; i < c->n_raw; i++)
		free_raw(&c->raw[i]);
	free(c->raw);
	free_settings(&c->pub);
}

const struct config_raw *config_find_raw(const struct config *c, const char *module,
					 const char *key)
{
	for (size_t i = 0; i < c->n_raw; i++)
		if (!strcmp(c->raw[i].module, module) &&
		    (key && c->raw[i].key ? !strcmp(c->raw[i].key, key) : key == c->raw[i].key))
			return &c->raw[i];
	return NULL;
}

int config_add_raw(struct config *c, const struct config_raw *raw, struct ig_error *err)
{
	struct config_raw *all, *s;

	if (c->n_raw == MAX_RAW)
		return ig_fail(err, -EINVAL, "%s: more than %d options of modules", c->label,
			       MAX_RAW);
	all = realloc(c->raw, (c->n_raw + 1) * sizeof *all);
	if (!all)
		return ig_fail(err, -ENOMEM, "%s: out of memory", c->label);
	c->raw = all;
	s = &all[c->n_raw];
	*s = *raw;
	s->module = strdup(raw->module);
	s->key = raw->key ? strdup(raw->key) : NULL;
	s->text = raw->text ? strdup(raw->text) : NULL;
	if (!s->module || (raw->key && (!s->key || !s->text))) {
		free_raw(s);
		return ig_fail(err, -ENOMEM, "%s: out of memory", c->label);
	}
	c->n_raw++;
	return 0;
}

/* ---- a module's option as a config_option --------------------------------------------------- */

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
	struct ig_strbuf b = { 0 };

	out->option = o;
	snprintf(out->key, sizeof out->key, "modules.%.64s.%.64s", module, m->key);
	if (m->type == IG_OPTION_BOOL)
		out->field.truth = m->number;
	else if (m->text)
		out->field.text = (char *)(uintptr_t)m->text;
	else
		out->field.number = m->number;
	config_format(&o, &out->field, &b);
	snprintf(out->value, sizeof out->value, "%s", ig_strbuf_text(&b));
	ig_strbuf_finish(&b);
}

/* ---- checking ------------------------------------------------------------------------------ */

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

/* m NULL: the module is unknown, otherwise its option. */
static int fail_unknown(const struct config *c, const struct config_raw *s,
			const struct ig_module *const *modules, size_t n, const struct ig_module *m,
			struct ig_error *err)
{
	char full[260], shown[80];
	struct ig_strbuf known = { 0 };

	snprintf(full, sizeof full, "modules.%s%s%s", s->module, m ? "." : "", m ? s->key : "");
	config_quote(full, strlen(full), shown);
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

static int check(struct config *c, struct config_raw *s, const struct ig_module *m,
		 const struct ig_module_option *o, struct ig_setting *out, struct ig_error *err)
{
	struct config_module_option as;
	struct ig_strbuf value = { 0 };
	char who[400];
	int rc;

	config_of_module(m->name, o, &as);
	as.field.number = 0;
	snprintf(who, sizeof who, "%s:%u:%u: %s", c->label, s->value_line, s->value_column, as.key);
	if ((rc = config_store(c->dir, &as.field, &as.option, who, s->text, strlen(s->text), err)))
		return rc;
	*out = (struct ig_setting){ .module = strdup(m->name), .key = strdup(o->key) };
	if (o->type == IG_OPTION_CHOICE || o->type == IG_OPTION_TEXT)
		out->text = as.field.text;
	else
		out->number = o->type == IG_OPTION_BOOL ? as.field.truth : as.field.number;
	free(s->value);
	free(s->fallback);
	config_format(&as.option, &as.field, &value);
	s->value = ig_strbuf_steal(&value);
	s->fallback = strdup(as.value);
	return out->module && out->key && s->value && s->fallback ?
		       0 :
		       ig_fail(err, -ENOMEM, "%s: out of memory", c->label);
}

int ig_config_check_modules(struct ig_config *pub, const struct ig_module *const *modules, size_t n,
			    struct ig_error *err)
{
	struct config *c = (struct config *)pub;
	int rc = 0;

	free_settings(pub);
	pub->modules.settings = calloc(c->n_raw + 1, sizeof *pub->modules.settings);
	if (!pub->modules.settings)
		return ig_fail(err, -ENOMEM, "%s: out of memory", c->label);
	for (size_t i = 0; i < c->n_raw && !rc; i++) {
		struct config_raw *s = &c->raw[i];
		const struct ig_module *m = find_module(modules, n, s->module);
		const struct ig_module_option *o = m && s->key ? find_option(m, s->key) : NULL;

		if (!m || (s->key && !o))
			rc = fail_unknown(c, s, modules, n, m, err);
		else if (o) /* counted first, so that an incomplete setting is freed too */
			rc = check(c, s, m, o, &pub->modules.settings[pub->modules.n_settings++],
				   err);
	}
	return rc;
}

/* ---- differences ---------------------------------------------------------------------------- */

/* The value of option s in c; both configurations are checked, or neither. */
static const char *value_in(const struct config *c, const struct config_raw *s)
{
	const struct config_raw *found = config_find_raw(c, s->module, s->key);

	if (!found)
		return s->fallback ? s->fallback : "the default";
	return found->value ? found->value : found->text;
}

void config_diff_modules(const struct config *old, const struct config *new_,
			 void (*each)(void *ctx, const char *key, const char *was, const char *is,
				      bool reloadable),
			 void *ctx)
{
	for (size_t i = 0; i < old->n_raw + new_->n_raw; i++) {
		const bool is_old = i < old->n_raw;
		const struct config_raw *s = is_old ? &old->raw[i] : &new_->raw[i - old->n_raw];
		char key[160];

		/* an option in both is compared once, with the old one */
		if (!s->key || (!is_old && config_find_raw(old, s->module, s->key)) ||
		    !strcmp(value_in(old, s), value_in(new_, s)))
			continue;
		snprintf(key, sizeof key, "modules.%.64s.%.64s", s->module, s->key);
		each(ctx, key, value_in(old, s), value_in(new_, s), false);
	}
}
