/* config_parse.c: the YAML of a configuration: walks its events with the table of options. */
#include "store/config_private.h"
#include "store/yaml_reader.h"

#include "base/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_KEY 128

struct reader {
	struct config *c;
	struct ig_yaml y;
	uint32_t rules_line; /* of kvcache.normalize; 0: it was not there yet */
	uint64_t rule_seen;  /* built-in rules that an entry has changed, by their number */
};

static uint32_t line_of(const struct reader *r) { return (uint32_t)r->y.event.start_mark.line + 1; }

static uint32_t column_of(const struct reader *r)
{
	return (uint32_t)r->y.event.start_mark.column + 1;
}

/* Read the next key of a mapping.  1, or 0 at the mapping's end. */
static int next_key(struct reader *r, char key[MAX_KEY])
{
	int rc = ig_yaml_next_key(&r->y);
	size_t len = r->y.event.data.scalar.length;
	char shown[80];

	if (rc <= 0)
		return rc;
	/* cutting would make different long keys equal */
	if (len >= MAX_KEY || ig_yaml_has_nul(&r->y))
		return ig_yaml_fail(&r->y, "unknown key %s",
				    config_quote(ig_yaml_text(&r->y), len, shown));
	memcpy(key, ig_yaml_text(&r->y), len + 1);
	return 1;
}

static int fail_kind(struct reader *r, const char *name, const char *expected)
{
	return ig_yaml_fail(&r->y, "%s%sexpected %s, got %s", name, *name ? ": " : "", expected,
			    ig_yaml_kind(&r->y));
}

static int fail_duplicate(struct reader *r, const char *key, uint32_t line)
{
	return ig_yaml_fail(&r->y, "duplicate key \"%s\"; first given in line %u", key, line);
}

static bool is_value(const struct reader *r)
{
	return r->y.event.type == YAML_SCALAR_EVENT && !ig_yaml_is_null(&r->y);
}

static void describe(const struct reader *r, const char *name, char *buf, size_t size)
{
	snprintf(buf, size, "%s:%u:%u: %s", r->c->label, line_of(r), column_of(r), name);
}

/* Store the event's value as option o of base; messages call it name. */
static int take_scalar(struct reader *r, void *base, const struct config_option *o,
		       const char *name)
{
	struct ig_strbuf expected = { 0 };
	char who[400];

	if (!is_value(r)) {
		config_expected(o, &expected);
		fail_kind(r, name, expected.len ? expected.data : "one value");
		ig_strbuf_finish(&expected);
		return -EINVAL;
	}
	describe(r, name, who, sizeof who);
	return config_store(r->c->dir, base, o, who, ig_yaml_text(&r->y),
			    r->y.event.data.scalar.length, r->y.err);
}

/* The entries of a list into items, whose n strings the caller frees; each is checked alone, so
 * that an error has its place. */
static int read_items(struct reader *r, void *base, const struct config_option *o, const char *name,
		      char **items, size_t *n)
{
	char who[400];
	int rc;

	while ((rc = ig_yaml_next_entry(&r->y)) > 0) {
		if (!is_value(r))
			return ig_yaml_fail(&r->y, "%s: an entry must be one value, got %s", name,
					    ig_yaml_kind(&r->y));
		if (*n == CONFIG_MAX_ITEMS)
			return ig_yaml_fail(&r->y, "%s: more than %d entries", name,
					    CONFIG_MAX_ITEMS);
		if (ig_yaml_has_nul(&r->y))
			return ig_yaml_fail(&r->y, "%s: an entry has a NUL in it", name);
		describe(r, name, who, sizeof who);
		items[*n] = strdup(ig_yaml_text(&r->y));
		if (!items[*n])
			return ig_fail(r->y.err, -ENOMEM, "%s: out of memory", r->c->label);
		if ((rc = config_store_list(r->c->dir, base, o, who, &items[(*n)++], 1, r->y.err)))
			return rc;
	}
	return rc;
}

static int take_list(struct reader *r, void *base, const struct config_option *o, const char *name)
{
	char *items[CONFIG_MAX_ITEMS] = { NULL }, who[400];
	size_t n = 0;
	int rc = 0;

	describe(r, name, who, sizeof who);
	if (!ig_yaml_is_null(&r->y)) {
		if (r->y.event.type != YAML_SEQUENCE_START_EVENT)
			return fail_kind(r, name, "a list, such as [a, b]");
		rc = read_items(r, base, o, name, items, &n);
	}
	if (!rc)
		rc = config_store_list(r->c->dir, base, o, who, items, n, r->y.err);
	for (size_t i = 0; i < n; i++)
		free(items[i]);
	return rc;
}

static int fail_unknown(struct reader *r, yaml_mark_t at, const char *section, const char *key)
{
	const char *nearest = config_nearest(section, key);
	char full[260], shown[80];

	snprintf(full, sizeof full, "%s%s%s", section, *section ? "." : "", key);
	config_quote(full, strlen(full), shown);
	if (nearest && !strcmp(nearest, full))
		return ig_yaml_fail_at(&r->y, at, "unknown key %s; write \"%s\" below \"%.*s:\"",
				       shown, strchr(full, '.') + 1, (int)strcspn(full, "."), full);
	if (nearest)
		return ig_yaml_fail_at(&r->y, at, "unknown key %s; did you mean \"%s\"?", shown,
				       nearest);
	return ig_yaml_fail_at(&r->y, at, "unknown key %s", shown);
}

static int take_option(struct reader *r, const struct config_option *o)
{
	struct config_place *place = &r->c->places[o - config_options];
	int rc;

	if (place->from == FROM_FILE)
		return fail_duplicate(r, o->key, place->line);
	if ((rc = ig_yaml_next(&r->y)))
		return rc;
	*place = (struct config_place){ FROM_FILE, line_of(r), column_of(r) };
	return config_is_list(o) ? take_list(r, &r->c->pub, o, o->key) :
				   take_scalar(r, &r->c->pub, o, o->key);
}

/* The event is the key of a module's option; s has the module. */
static int take_module_option(struct reader *r, struct config_raw *s, char *key)
{
	const struct config_raw *first = config_find_raw(r->c, s->module, key);
	char name[260];
	int rc;

	snprintf(name, sizeof name, "modules.%s.%s", s->module, key);
	if (first)
		return fail_duplicate(r, name, first->line);
	s->key = key;
	s->line = line_of(r);
	s->column = column_of(r);
	if ((rc = ig_yaml_next(&r->y)))
		return rc;
	if (!is_value(r))
		return fail_kind(r, name, "one value");
	if (ig_yaml_has_nul(&r->y))
		return ig_yaml_fail(&r->y, "%s: the value has a NUL in it", name);
	s->text = (char *)r->y.event.data.scalar.value;
	s->value_line = line_of(r);
	s->value_column = column_of(r);
	return config_add_raw(r->c, s, r->y.err);
}

/* The event is the key `module` in modules:, which is none of config_options. */
static int take_module(struct reader *r, char *module)
{
	yaml_mark_t at = r->y.event.start_mark;
	struct config_raw s = { .module = module, .line = line_of(r), .column = column_of(r) };
	const struct config_raw *first = config_find_raw(r->c, module, NULL);
	char key[MAX_KEY], name[160];
	int rc;

	snprintf(name, sizeof name, "modules.%s", module);
	if (first)
		return fail_duplicate(r, name, first->line);
	if ((rc = ig_yaml_next(&r->y)))
		return rc;
	if (!ig_yaml_is_null(&r->y) && r->y.event.type != YAML_MAPPING_START_EVENT)
		return fail_unknown(r, at, "modules", module);
	rc = config_add_raw(r->c, &s, r->y.err);
	if (rc || ig_yaml_is_null(&r->y))
		return rc;
	while ((rc = next_key(r, key)) > 0 && !(rc = take_module_option(r, &s, key)))
		;
	return rc;
}

/* ---- rules for prompts ---- */

static const struct config_option *find_rule_option(const char *key)
{
	for (size_t i = 0; i < config_n_rule_options; i++)
		if (!strcmp(config_rule_options[i].key, key))
			return &config_rule_options[i];
	return NULL;
}

/* The keys of an entry into rule; seen: by option the line of its key. */
static int take_rule_keys(struct reader *r, size_t i, struct ig_prompt_rule *rule, uint32_t *seen,
			  yaml_mark_t *at_pattern)
{
	char key[MAX_KEY], name[200], shown[80];
	int rc;

	while ((rc = next_key(r, key)) > 0) {
		const struct config_option *o = find_rule_option(key);
		snprintf(name, sizeof name, "kvcache.normalize[%zu].%s", i, key);
		if (!o)
			return ig_yaml_fail(
				&r->y,
				"unknown key %s; a rule has name, pattern, replacement, "
				"enabled, models, except_models and clients",
				config_quote(name, strlen(name), shown));
		if (seen[o - config_rule_options])
			return fail_duplicate(r, name, seen[o - config_rule_options]);
		seen[o - config_rule_options] = line_of(r);
		if ((rc = ig_yaml_next(&r->y)))
			return rc;
		if (!strcmp(key, "pattern"))
			*at_pattern = r->y.event.start_mark;
		if (!config_is_list(o) && is_value(r) && ig_yaml_has_nul(&r->y))
			return ig_yaml_fail(&r->y, "%s: the value has a NUL in it", name);
		rc = config_is_list(o) ? take_list(r, rule, o, name) :
					 take_scalar(r, rule, o, name);
		if (rc)
			return rc;
	}
	return rc;
}

/* A name is that of one entry; built-in rules are in the set from the start. */
static int check_rule(struct reader *r, yaml_mark_t at, size_t i, const struct ig_prompt_rule *rule)
{
	const struct ig_prompt_rules *rules = r->c->pub.kvcache.normalize;

	if (!rule->name)
		return ig_yaml_fail_at(&r->y, at, "kvcache.normalize[%zu]: name is missing", i);
	for (size_t j = 0; j < ig_prompt_rules_n(rules); j++) {
		const char *name = ig_prompt_rules_get(rules, j)->name;
		if (!strcmp(name, rule->name) &&
		    (!ig_prompt_rule_is_builtin(name) || r->rule_seen >> j & 1))
			return ig_yaml_fail_at(
				&r->y, at, "kvcache.normalize[%zu]: there is a rule \"%s\" already",
				i, name);
		if (!strcmp(name, rule->name))
			r->rule_seen |= (uint64_t)1 << j;
	}
	return 0;
}

/* The event begins entry i of kvcache.normalize. */
static int take_rule(struct reader *r, size_t i)
{
	yaml_mark_t at = r->y.event.start_mark;
	struct ig_prompt_rule rule = { 0 };
	uint32_t seen[CONFIG_MAX_RULE_OPTIONS] = { 0 };
	struct ig_error why = { 0 };
	char name[80];
	int rc = 0;

	snprintf(name, sizeof name, "kvcache.normalize[%zu]", i);
	if (r->y.event.type != YAML_MAPPING_START_EVENT)
		return fail_kind(r, name, "name, pattern …");
	for (size_t j = 0; j < config_n_rule_options && !rc; j++) {
		const struct config_option *o = &config_rule_options[j];
		if (o->value)
			rc = config_store(r->c->dir, &rule, o, o->key, o->value, strlen(o->value),
					  r->y.err);
	}
	if (!rc)
		rc = take_rule_keys(r, i, &rule, seen, &at);
	if (!rc)
		rc = check_rule(r, at, i, &rule);
	if (!rc) {
		snprintf(name, sizeof name, "%s", rule.name);
		rc = ig_prompt_rules_add(r->c->pub.kvcache.normalize, &rule, &why);
		if (rc)
			ig_yaml_fail_at(&r->y, at, "kvcache.normalize[%zu], rule \"%s\": %s", i,
					name, why.text);
	}
	ig_prompt_rule_finish(&rule);
	return rc;
}

/* The event is the key "normalize" in kvcache:. */
static int take_rules(struct reader *r)
{
	size_t n = 0;
	int rc;

	if (r->rules_line)
		return fail_duplicate(r, "kvcache.normalize", r->rules_line);
	r->rules_line = line_of(r);
	if ((rc = ig_yaml_next(&r->y)) || ig_yaml_is_null(&r->y))
		return rc;
	if (r->y.event.type != YAML_SEQUENCE_START_EVENT)
		return fail_kind(r, "kvcache.normalize", "a list of rules");
	while ((rc = ig_yaml_next_entry(&r->y)) > 0 && !(rc = take_rule(r, n)))
		n++;
	return rc;
}

/* The event is the value of "section:". */
static int take_section(struct reader *r, const char *section)
{
	char key[MAX_KEY], full[260];
	int rc;

	if (ig_yaml_is_null(&r->y))
		return 0;
	if (r->y.event.type != YAML_MAPPING_START_EVENT)
		return fail_kind(r, section, "a mapping of options");
	while ((rc = next_key(r, key)) > 0) {
		snprintf(full, sizeof full, "%s.%s", section, key);
		const struct config_option *o = config_find(full);
		rc = o ? take_option(r, o) :
		     !strcmp(full, "kvcache.normalize") ?
			 take_rules(r) :
		     !strcmp(section, "modules") ?
			 take_module(r, key) :
			 fail_unknown(r, r->y.event.start_mark, section, key);
		if (rc)
			break;
	}
	return rc;
}

static int take_adapter_keys(struct reader *r, const char *list, struct ig_config_adapter *a)
{
	char key[MAX_KEY], name[200], shown[80];
	uint32_t seen = 0; /* bits, in the table's order */
	int rc;

	a->scale_percent = 100;
	while ((rc = next_key(r, key)) > 0) {
		const struct config_option *o = NULL;
		for (size_t j = 0; j < config_n_adapter_options; j++)
			if (!strcmp(config_adapter_options[j].key, key))
				o = &config_adapter_options[j];
		snprintf(name, sizeof name, "%s.%.40s", list, key);
		if (!o)
			return ig_yaml_fail(
				&r->y,
				"unknown key %s; an adapter has name, path and scale_percent",
				config_quote(name, strlen(name), shown));
		if (seen & 1u << (o - config_adapter_options))
			return ig_yaml_fail(&r->y, "duplicate key \"%s\"", name);
		seen |= 1u << (o - config_adapter_options);
		if ((rc = ig_yaml_next(&r->y)) || (rc = take_scalar(r, a, o, name)))
			return rc;
		if (!strcmp(key, "name") && strchr(a->name, ':'))
			return ig_yaml_fail(&r->y, "%s: \"%s\" has a \":\" in it", name, a->name);
	}
	return rc;
}

/* The event is the value of "adapters:" of entry i of models. */
static int take_adapters(struct reader *r, size_t i, struct ig_config_model *m)
{
	char list[80], item[96];
	size_t cap = 0;
	int rc;

	snprintf(list, sizeof list, "models[%zu].adapters", i);
	if (ig_yaml_is_null(&r->y))
		return 0;
	if (r->y.event.type != YAML_SEQUENCE_START_EVENT)
		return fail_kind(r, list, "a list of adapters");
	while ((rc = ig_yaml_next_entry(&r->y)) > 0) {
		yaml_mark_t begin = r->y.event.start_mark;
		if (m->n_adapters == CONFIG_MAX_ADAPTERS)
			return ig_yaml_fail(&r->y, "%s: more than %d entries", list,
					    CONFIG_MAX_ADAPTERS);
		if (!ig_array_grow(m->adapters, &cap, m->n_adapters))
			return ig_fail(r->y.err, -ENOMEM, "%s: out of memory", r->c->label);
		struct ig_config_adapter *a = &m->adapters[m->n_adapters++];
		*a = (struct ig_config_adapter){ 0 };
		snprintf(item, sizeof item, "%s[%zu]", list, m->n_adapters - 1);
		if (r->y.event.type != YAML_MAPPING_START_EVENT)
			return fail_kind(r, item, "name and path");
		if ((rc = take_adapter_keys(r, item, a)))
			return rc;
		if (!a->name || !a->path)
			return ig_yaml_fail_at(&r->y, begin, "%s: %s is missing", item,
					       a->name ? "path" : "name");
		for (size_t k = 0; k + 1 < m->n_adapters; k++)
			if (!strcmp(m->adapters[k].name, a->name))
				return ig_yaml_fail_at(&r->y, begin,
						       "%s: there is an adapter \"%s\" already",
						       item, a->name);
	}
	return rc;
}

/* The event begins entry i of models; m is zeroed, and the caller frees it. */
static int take_model(struct reader *r, size_t i, struct ig_config_model *m)
{
	yaml_mark_t begin = r->y.event.start_mark;
	uint32_t seen[CONFIG_MAX_MODEL_OPTIONS] = { 0 }; /* by option: the line of its key */
	uint32_t adapters_line = 0;
	char key[MAX_KEY], name[160], shown[80];
	int rc;

	snprintf(name, sizeof name, "models[%zu]", i);
	if (r->y.event.type != YAML_MAPPING_START_EVENT)
		return fail_kind(r, name, "name, path …");
	while ((rc = next_key(r, key)) > 0) {
		size_t j = 0;
		while (j < config_n_model_options && strcmp(config_model_options[j].key, key))
			j++;
		snprintf(name, sizeof name, "models[%zu].%s", i, key);
		if (!strcmp(key, "adapters")) {
			if (adapters_line)
				return fail_duplicate(r, name, adapters_line);
			adapters_line = line_of(r);
			if ((rc = ig_yaml_next(&r->y)) || (rc = take_adapters(r, i, m)))
				return rc;
			continue;
		}
		if (j == config_n_model_options)
			return ig_yaml_fail(
				&r->y,
				"unknown key %s; a model has name, path, context, kv_dtype, "
				"draft, load, keep_alive, pin and adapters",
				config_quote(name, strlen(name), shown));
		if (seen[j])
			return fail_duplicate(r, name, seen[j]);
		seen[j] = line_of(r);
		rc = ig_yaml_next(&r->y);
		if (!rc)
			rc = take_scalar(r, m, &config_model_options[j], name);
		if (rc)
			return rc;
		for (size_t k = 0; !strcmp(key, "name") && k < i; k++)
			if (!strcmp(r->c->pub.models[k].name, m->name))
				return ig_yaml_fail(&r->y,
						    "%s: \"%s\" is the name of models[%zu] already",
						    name, m->name, k);
	}
	for (size_t j = 0; j < config_n_model_options && !rc; j++) {
		const struct config_option *o = &config_model_options[j];

		if (seen[j])
			continue;
		rc = o->value ?
			     config_store(r->c->dir, m, o, o->key, o->value, strlen(o->value),
					  r->y.err) :
			     ig_yaml_fail_at(&r->y, begin, "models[%zu]: %s is missing", i, o->key);
	}
	if (!rc && !strcmp(m->draft, m->path))
		rc = ig_yaml_fail_at(&r->y, begin, "models[%zu].draft: it is the model itself", i);
	for (size_t j = 0; j < m->n_adapters && !rc; j++)
		if (strlen(m->name) + strlen(m->adapters[j].name) > 127)
			rc = ig_yaml_fail_at(&r->y, begin,
					     "models[%zu]: \"%s:%s\" is longer than 128 bytes", i,
					     m->name, m->adapters[j].name);
	return rc;
}

/* The event is the value of "models:", or of "entries:" in it. */
static int take_entries(struct reader *r, const char *name)
{
	struct ig_config *pub = &r->c->pub;
	size_t cap = 0;
	int rc;

	if (ig_yaml_is_null(&r->y))
		return 0;
	if (r->y.event.type != YAML_SEQUENCE_START_EVENT)
		return fail_kind(r, name, "a list");
	while ((rc = ig_yaml_next_entry(&r->y)) > 0) {
		if (pub->n_models == CONFIG_MAX_MODELS)
			return ig_yaml_fail(&r->y, "models: more than %d entries",
					    CONFIG_MAX_MODELS);
		if (!ig_array_grow(pub->models, &cap, pub->n_models))
			return ig_fail(r->y.err, -ENOMEM, "%s: out of memory", r->c->label);
		pub->models[pub->n_models] = (struct ig_config_model){ 0 };
		/* Counted first, so that destroy frees half an entry too. */
		pub->n_models++;
		rc = take_model(r, pub->n_models - 1, &pub->models[pub->n_models - 1]);
		if (rc)
			break;
	}
	return rc;
}

/* The event is the value of "models:": a list of entries, or folder and entries. */
static int take_models(struct reader *r)
{
	uint32_t entries = 0; /* the line of its key */
	char key[MAX_KEY];
	int rc;

	if (r->y.event.type != YAML_MAPPING_START_EVENT)
		return take_entries(r, "models");
	while ((rc = next_key(r, key)) > 0) {
		if (!strcmp(key, "folder")) {
			rc = take_option(r, config_find("models.folder"));
		} else if (strcmp(key, "entries")) {
			return fail_unknown(r, r->y.event.start_mark, "models", key);
		} else if (entries) {
			return fail_duplicate(r, "models.entries", entries);
		} else {
			entries = line_of(r);
			rc = ig_yaml_next(&r->y);
			if (!rc)
				rc = take_entries(r, "models.entries");
		}
		if (rc)
			break;
	}
	return rc;
}

static int take_alias(struct reader *r, const char *pattern, struct ig_config_alias *a,
		      struct config_place *place)
{
	char name[160], shown[80];
	size_t len = strlen(pattern);
	int rc;

	snprintf(name, sizeof name, "aliases.%s", pattern);
	if (!len || !config_is_name(pattern, len, "*"))
		return ig_yaml_fail(&r->y,
				    "aliases: a name is 1 to %d of A-Z a-z 0-9 . _ : / - and * for "
				    "any characters, got %s",
				    MAX_KEY - 1, config_quote(pattern, len, shown));
	for (size_t i = 0; i < r->c->pub.n_aliases - 1; i++)
		if (!strcmp(r->c->pub.aliases[i].pattern, pattern))
			return fail_duplicate(r, name, r->c->alias_places[i].line);
	a->pattern = strdup(pattern);
	if (!a->pattern)
		return ig_fail(r->y.err, -ENOMEM, "%s: out of memory", r->c->label);
	if ((rc = ig_yaml_next(&r->y)))
		return rc;
	if (!is_value(r) || ig_yaml_has_nul(&r->y))
		return fail_kind(r, name, "a model's name");
	*place = (struct config_place){ FROM_FILE, line_of(r), column_of(r) };
	a->model = strdup(ig_yaml_text(&r->y));
	return a->model ? 0 : ig_fail(r->y.err, -ENOMEM, "%s: out of memory", r->c->label);
}

/* The event is the value of "aliases:".  Whether the models exist is checked at the end. */
static int take_aliases(struct reader *r)
{
	struct ig_config *pub = &r->c->pub;
	size_t cap = 0, cap_places = 0;
	char key[MAX_KEY];
	int rc;

	if (ig_yaml_is_null(&r->y))
		return 0;
	if (r->y.event.type != YAML_MAPPING_START_EVENT)
		return fail_kind(r, "aliases", "names, each with the name of a model");
	while ((rc = next_key(r, key)) > 0) {
		size_t i = pub->n_aliases;
		if (i == CONFIG_MAX_ALIASES)
			return ig_yaml_fail(&r->y, "aliases: more than %d entries",
					    CONFIG_MAX_ALIASES);
		if (!ig_array_grow(pub->aliases, &cap, i) ||
		    !ig_array_grow(r->c->alias_places, &cap_places, i))
			return ig_fail(r->y.err, -ENOMEM, "%s: out of memory", r->c->label);
		pub->aliases[i] = (struct ig_config_alias){ 0 };
		pub->n_aliases++; /* destroy frees half an entry too */
		if ((rc = take_alias(r, key, &pub->aliases[i], &r->c->alias_places[i])))
			break;
	}
	return rc;
}

static bool is_section(const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < config_n_options; i++)
		if (!strncmp(config_options[i].key, name, len) && config_options[i].key[len] == '.')
			return true;
	return false;
}

/* The event begins the document's node. */
static int take_root(struct reader *r)
{
	struct {
		char name[MAX_KEY];
		uint32_t line;
	} seen[16]; /* sections, models and aliases; there are fewer of them */
	size_t n_seen = 0;
	char key[MAX_KEY];
	int rc;

	if (r->y.event.type == YAML_STREAM_END_EVENT || ig_yaml_is_null(&r->y))
		return 0;
	if (r->y.event.type != YAML_MAPPING_START_EVENT)
		return fail_kind(r, "", "sections such as server: and models:");
	while ((rc = next_key(r, key)) > 0) {
		const struct config_option *o = strchr(key, '.') ? NULL : config_find(key);
		bool models = !strcmp(key, "models"), aliases = !strcmp(key, "aliases");
		if (!o && !is_section(key) && !models && !aliases)
			return fail_unknown(r, r->y.event.start_mark, "", key);
		for (size_t i = 0; i < n_seen; i++)
			if (!strcmp(seen[i].name, key))
				return fail_duplicate(r, key, seen[i].line);
		if (!o && n_seen < sizeof seen / sizeof seen[0]) {
			strcpy(seen[n_seen].name, key);
			seen[n_seen++].line = line_of(r);
		}
		rc = o ? take_option(r, o) : ig_yaml_next(&r->y);
		if (!rc && !o)
			rc = models  ? take_models(r) :
			     aliases ? take_aliases(r) :
				       take_section(r, key);
		if (rc)
			break;
	}
	return rc;
}

int config_parse_yaml(struct config *c, const char *text, size_t len, struct ig_error *err)
{
	struct reader r = { .c = c,
			    .y = { .label = c->label, .text = text, .len = len, .err = err } };
	int rc = ig_yaml_start(&r.y);

	if (!rc)
		rc = take_root(&r);
	ig_yaml_finish(&r.y);
	return rc;
}
