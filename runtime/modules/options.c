/* options.c: the options of modules: checking their tables, storing and returning values. */
#include "runtime/modules/modules_private.h"
#include "base/setting.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_key(const char *key)
{
	const size_t n = strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789_");
	return n && n < 64 && !key[n];
}

static bool is_text(const struct ig_module_option *o)
{
	return o->type == IG_OPTION_CHOICE || o->type == IG_OPTION_TEXT;
}

static bool is_choice(const struct ig_module_option *o)
{
	for (const char *const *c = o->choices; c && *c; c++)
		if (!strcmp(*c, o->text))
			return true;
	return false;
}

/* Whether the option is complete and its default is allowed. */
static bool is_sound(const struct ig_module_option *o)
{
	if (!is_key(o->key) || !o->help || o->type > IG_OPTION_TEXT || (is_text(o) && !o->text))
		return false;
	switch (o->type) {
	case IG_OPTION_BOOL: return o->number <= 1;
	case IG_OPTION_CHOICE: return is_choice(o);
	case IG_OPTION_TEXT: return strlen(o->text) >= o->min && strlen(o->text) <= o->max;
	default: return o->number >= o->min && o->number <= o->max;
	}
}

int modules_take_options(struct loaded *l, struct ig_error *err)
{
	const struct ig_module_option *o = l->d.options;

	for (; o && o[l->n_options].key; l->n_options++)
		if (!is_sound(&o[l->n_options]))
			return ig_fail(err, -ENOEXEC, "module %s: option %u, \"%s\", is incomplete",
				       l->path, l->n_options, o[l->n_options].key);
	if (o && !strcmp(l->d.name, "path"))
		return ig_fail(err, -ENOEXEC, "module %s: its name is an option's, modules.path",
			       l->path);
	l->values = calloc(l->n_options + 1, sizeof *l->values);
	if (!l->values)
		return ig_fail(err, -ENOMEM, "module %s: no memory", l->path);
	for (uint32_t i = 0; i < l->n_options; i++)
		l->values[i] = (struct value){ o[i].number, NULL };
	return 0;
}

void modules_free_options(struct loaded *l)
{
	for (uint32_t i = 0; l->values && i < l->n_options; i++)
		free(l->values[i].text);
	free(l->values);
}

/* The option's index, or -1. */
static int find(const struct loaded *l, const char *key)
{
	for (uint32_t i = 0; i < l->n_options; i++)
		if (!strcmp(l->d.options[i].key, key))
			return (int)i;
	return -1;
}

int modules_set(struct loaded *l, const struct ig_setting *s, struct ig_error *err)
{
	const int i = find(l, s->key);
	char *text = i >= 0 && s->text ? strdup(s->text) : NULL;

	if (i < 0 || (is_text(&l->d.options[i]) && !text))
		return ig_fail(err, i < 0 ? -ENOENT : -ENOMEM, "modules.%s.%s: %s", s->module,
			       s->key, i < 0 ? "no such option" : "out of memory");
	free(l->values[i].text);
	l->values[i] = (struct value){ s->number, text };
	return 0;
}

static const struct loaded *owner(const struct ig_host *host)
{
	return (const struct loaded *)((const char *)host - offsetof(struct loaded, host));
}

int modules_option_number(const struct ig_host *host, const char *key, uint64_t *out)
{
	const struct loaded *l = owner(host);
	const int i = find(l, key);
	if (i < 0 || is_text(&l->d.options[i]))
		return i < 0 ? -ENOENT : -EINVAL;
	*out = l->values[i].number;
	return 0;
}

int modules_option_text(const struct ig_host *host, const char *key, const char **out)
{
	const struct loaded *l = owner(host);
	const int i = find(l, key);
	if (i < 0 || !is_text(&l->d.options[i]))
		return i < 0 ? -ENOENT : -EINVAL;
	*out = l->values[i].text ? l->values[i].text : l->d.options[i].text;
	return 0;
}
