/*
 * config_parse.c: the YAML of a configuration, by libyaml's events.
 *
 * Two passes over the text.  The first looks at the form alone: depth, one
 * document, no anchors, aliases or tags.  The second walks the events with the
 * table in hand.  (The document API of libyaml is quadratic in nesting, and
 * knows neither duplicate keys nor a limit.)
 */
#include "store/config_private.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct reader {
	struct config *c;
	struct ig_error *err;
	yaml_parser_t parser;
	yaml_event_t event; /* the latest */
	bool has_event;
	const char *text;
	size_t len;
};

/* ---- events --------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static int fail_at(struct reader *r, yaml_mark_t mark,
							 const char *fmt, ...)
{
	char text[320];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	return ig_fail(r->err, -EINVAL, "%s:%zu:%zu: %s", r->c->label, mark.line + 1,
		       mark.column + 1, text);
}

/* Line and column of a byte, where libyaml knows only its offset. */
static yaml_mark_t mark_of(const struct reader *r, size_t offset)
{
	yaml_mark_t m = { .index = offset };

	for (size_t i = 0; i < offset && i < r->len; i++) {
		if (r->text[i] == '\n') {
			m.line++;
			m.column = 0;
		} else if (!ig_utf8_continues(r->text[i])) {
			m.column++;
		}
	}
	return m;
}

static int fail_yaml(struct reader *r)
{
	const yaml_parser_t *p = &r->parser;

	switch (p->error) {
	case YAML_MEMORY_ERROR: return ig_fail(r->err, -ENOMEM, "%s: out of memory", r->c->label);
	case YAML_READER_ERROR:
		return fail_at(r, mark_of(r, p->problem_offset), "not valid YAML: %s",
			       p->problem ? p->problem : "unreadable");
	default:
		return fail_at(r, p->problem_mark, "not valid YAML: %s%s%s",
			       p->context ? p->context : "", p->context ? ", " : "",
			       p->problem ? p->problem : "unreadable");
	}
}

static int next(struct reader *r)
{
	if (r->has_event)
		yaml_event_delete(&r->event);
	r->has_event = false;
	if (!yaml_parser_parse(&r->parser, &r->event))
		return fail_yaml(r);
	r->has_event = true;
	return 0;
}

static int start(struct reader *r)
{
	if (!yaml_parser_initialize(&r->parser))
		return ig_fail(r->err, -ENOMEM, "%s: out of memory", r->c->label);
	yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&r->parser, (const unsigned char *)r->text, r->len);
	return 0;
}

static void stop(struct reader *r)
{
	if (r->has_event)
		yaml_event_delete(&r->event);
	r->has_event = false;
	yaml_parser_delete(&r->parser);
}

/* ---- first pass: the form --------------------------------------------------------- */

static int check_node(struct reader *r, const yaml_char_t *anchor, const yaml_char_t *tag)
{
	if (anchor)
		return fail_at(r, r->event.start_mark, "anchors (&) are not allowed");
	if (tag)
		return fail_at(r, r->event.start_mark, "tags (!) are not allowed");
	return 0;
}

static int check_form(struct reader *r)
{
	const yaml_event_t *e = &r->event;
	unsigned depth = 0, n_documents = 0;
	int rc;

	do {
		rc = next(r);
		if (rc)
			return rc;
		switch (e->type) {
		case YAML_DOCUMENT_START_EVENT:
			if (n_documents++)
				return fail_at(r, e->start_mark,
					       "a second document (---) is not allowed");
			break;
		case YAML_ALIAS_EVENT:
			return fail_at(r, e->start_mark, "aliases (*) are not allowed");
		case YAML_SCALAR_EVENT:
			rc = check_node(r, e->data.scalar.anchor, e->data.scalar.tag);
			break;
		case YAML_SEQUENCE_START_EVENT:
			depth++;
			rc = check_node(r, e->data.sequence_start.anchor,
					e->data.sequence_start.tag);
			break;
		case YAML_MAPPING_START_EVENT:
			depth++;
			rc = check_node(r, e->data.mapping_start.anchor, e->data.mapping_start.tag);
			break;
		case YAML_SEQUENCE_END_EVENT:
		case YAML_MAPPING_END_EVENT: depth--; break;
		default: break;
		}
		if (rc)
			return rc;
		if (depth > CONFIG_MAX_DEPTH)
			return fail_at(r, e->start_mark, "nested deeper than %d levels",
				       CONFIG_MAX_DEPTH);
	} while (e->type != YAML_STREAM_END_EVENT);
	return 0;
}

/* ---- second pass: the values -------------------------------------------------------- */

/* A plain scalar that means nothing: "key:" with no value, ~ or null. */
static bool is_null(const yaml_event_t *e)
{
	const char *s = (const char *)e->data.scalar.value;

	return e->type == YAML_SCALAR_EVENT && e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
	       (!*s || !strcmp(s, "~") || !strcmp(s, "null") || !strcmp(s, "Null") ||
		!strcmp(s, "NULL"));
}

/* The event is a scalar key; its text, of at most 127 bytes, in buf. */
static int take_key(struct reader *r, char *buf, size_t size)
{
	const yaml_event_t *e = &r->event;

	if (e->type != YAML_SCALAR_EVENT)
		return fail_at(r, e->start_mark, "a key must be a word, not a list or a mapping");
	snprintf(buf, size, "%s", (const char *)e->data.scalar.value);
	/* Two different long keys must not look the same. */
	if (e->data.scalar.length >= size || strlen(buf) != e->data.scalar.length) {
		char shown[80];
		return fail_at(r, e->start_mark, "unknown key %s",
			       config_quote((const char *)e->data.scalar.value,
					    e->data.scalar.length, shown));
	}
	return 0;
}

static const char *kind(const yaml_event_t *e)
{
	return e->type == YAML_SEQUENCE_START_EVENT ? "a list" :
	       e->type == YAML_MAPPING_START_EVENT  ? "a mapping" :
						      "one value";
}

static void describe(const struct reader *r, yaml_mark_t mark, const char *name, char *buf,
		     size_t size)
{
	snprintf(buf, size, "%s:%zu:%zu: %s", r->c->label, mark.line + 1, mark.column + 1, name);
}

/* The event holds the value of option o, called name; put it into base. */
static int take_scalar(struct reader *r, void *base, const struct config_option *o,
		       const char *name)
{
	const yaml_event_t *e = &r->event;
	char who[400];

	if (e->type != YAML_SCALAR_EVENT || is_null(e)) {
		struct ig_strbuf b;
		ig_strbuf_init(&b);
		config_expected(o, &b);
		fail_at(r, e->start_mark, "%s: expected %s, got %s", name,
			b.data ? b.data : "one value",
			e->type == YAML_SCALAR_EVENT ? "nothing" : kind(e));
		ig_strbuf_finish(&b);
		return -EINVAL;
	}
	describe(r, e->start_mark, name, who, sizeof who);
	return config_store(r->c->dir, base, o, who, (const char *)e->data.scalar.value,
			    e->data.scalar.length, r->err);
}

static int take_list(struct reader *r, void *base, const struct config_option *o, const char *name)
{
	char *items[CONFIG_MAX_ITEMS] = { NULL }, who[400];
	size_t n = 0;
	int rc = 0;

	describe(r, r->event.start_mark, name, who, sizeof who);
	if (!is_null(&r->event)) {
		if (r->event.type != YAML_SEQUENCE_START_EVENT)
			return fail_at(r, r->event.start_mark,
				       "%s: expected a list, such as [a, b], got %s", name,
				       kind(&r->event));
		for (;;) {
			rc = next(r);
			if (rc || r->event.type == YAML_SEQUENCE_END_EVENT)
				break;
			if (r->event.type != YAML_SCALAR_EVENT || is_null(&r->event)) {
				rc = fail_at(r, r->event.start_mark,
					     "%s: an entry must be one value, got %s", name,
					     r->event.type == YAML_SCALAR_EVENT ? "nothing" :
										  kind(&r->event));
				break;
			}
			if (n == CONFIG_MAX_ITEMS) {
				rc = fail_at(r, r->event.start_mark, "%s: more than %d entries",
					     name, CONFIG_MAX_ITEMS);
				break;
			}
			/* Each entry is judged alone, so that the message has its place. */
			describe(r, r->event.start_mark, name, who, sizeof who);
			items[n] = strndup((const char *)r->event.data.scalar.value,
					   r->event.data.scalar.length);
			if (!items[n]) {
				rc = ig_fail(r->err, -ENOMEM, "%s: out of memory", r->c->label);
				break;
			}
			n++;
			if (strlen(items[n - 1]) != r->event.data.scalar.length)
				rc = fail_at(r, r->event.start_mark, "%s: an entry has a NUL in it",
					     name);
			else
				rc = config_store_list(r->c->dir, base, o, who, &items[n - 1], 1,
						       r->err);
			if (rc)
				break;
		}
	}
	if (!rc)
		rc = config_store_list(r->c->dir, base, o, who, items, n, r->err);
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
		return fail_at(r, at, "unknown key %s; write \"%s\" below \"%.*s:\"", shown,
			       strchr(full, '.') + 1, (int)strcspn(full, "."), full);
	if (nearest)
		return fail_at(r, at, "unknown key %s; did you mean \"%s\"?", shown, nearest);
	return fail_at(r, at, "unknown key %s", shown);
}

static int take_option(struct reader *r, const struct config_option *o)
{
	struct config_place *place = &r->c->places[o - config_options];
	int rc;

	if (place->from == FROM_FILE)
		return fail_at(r, r->event.start_mark,
			       "duplicate key \"%s\"; first given in line %u", o->key, place->line);
	rc = next(r);
	if (rc)
		return rc;
	*place = (struct config_place){ .from = FROM_FILE,
					.line = (uint32_t)r->event.start_mark.line + 1,
					.column = (uint32_t)r->event.start_mark.column + 1 };
	return config_is_list(o) ? take_list(r, &r->c->pub, o, o->key) :
				   take_scalar(r, &r->c->pub, o, o->key);
}

/* The event is the key of a module's option, whose section is s. */
static int take_module_option(struct reader *r, struct config_said *s)
{
	yaml_mark_t at = r->event.start_mark;
	const struct config_said *first;
	char key[128], name[260];
	int rc = take_key(r, key, sizeof key);

	if (rc)
		return rc;
	snprintf(name, sizeof name, "modules.%s.%s", s->module, key);
	first = config_find_said(r->c, s->module, key);
	if (first)
		return fail_at(r, at, "duplicate key \"%s\"; first given in line %u", name,
			       first->line);
	rc = next(r);
	if (rc)
		return rc;
	if (r->event.type != YAML_SCALAR_EVENT || is_null(&r->event))
		return fail_at(r, r->event.start_mark, "%s: expected one value, got %s", name,
			       r->event.type == YAML_SCALAR_EVENT ? "nothing" : kind(&r->event));
	if (strlen((const char *)r->event.data.scalar.value) != r->event.data.scalar.length)
		return fail_at(r, r->event.start_mark, "%s: the value has a NUL in it", name);
	s->key = key;
	s->text = (char *)r->event.data.scalar.value;
	s->line = (uint32_t)at.line + 1;
	s->column = (uint32_t)at.column + 1;
	s->value_line = (uint32_t)r->event.start_mark.line + 1;
	s->value_column = (uint32_t)r->event.start_mark.column + 1;
	return config_say(r->c, s, r->err);
}

/* The event is the key `module` below modules:, which is no option of ours. */
static int take_module(struct reader *r, char *module)
{
	yaml_mark_t at = r->event.start_mark;
	struct config_said s = { .module = module,
				 .line = (uint32_t)at.line + 1,
				 .column = (uint32_t)at.column + 1 };
	const struct config_said *first = config_find_said(r->c, module, NULL);
	int rc;

	if (first)
		return fail_at(r, at, "duplicate key \"modules.%s\"; first given in line %u",
			       module, first->line);
	rc = next(r);
	if (rc)
		return rc;
	if (!is_null(&r->event) && r->event.type != YAML_MAPPING_START_EVENT)
		return fail_unknown(r, at, "modules", module);
	rc = config_say(r->c, &s, r->err);
	if (rc || is_null(&r->event))
		return rc;
	for (;;) {
		rc = next(r);
		if (rc || r->event.type == YAML_MAPPING_END_EVENT)
			return rc;
		rc = take_module_option(r, &s);
		if (rc)
			return rc;
	}
}

/* The event is what follows "section:". */
static int take_section(struct reader *r, const char *section)
{
	char key[128], full[260];
	int rc;

	if (is_null(&r->event))
		return 0;
	if (r->event.type != YAML_MAPPING_START_EVENT)
		return fail_at(r, r->event.start_mark, "%s: expected a mapping of options, got %s",
			       section, kind(&r->event));
	for (;;) {
		rc = next(r);
		if (rc || r->event.type == YAML_MAPPING_END_EVENT)
			return rc;
		rc = take_key(r, key, sizeof key);
		if (rc)
			return rc;
		snprintf(full, sizeof full, "%s.%s", section, key);
		const struct config_option *o = config_find(full, strlen(full));
		if (o)
			rc = take_option(r, o);
		else if (!strcmp(section, "modules"))
			rc = take_module(r, key);
		else
			rc = fail_unknown(r, r->event.start_mark, section, key);
		if (rc)
			return rc;
	}
}

/* The event begins the entry number i of models; m is zeroed and is the caller's
 * to clear. */
static int take_model(struct reader *r, size_t i, struct ig_config_model *m)
{
	yaml_mark_t begin = r->event.start_mark;
	uint32_t seen[CONFIG_MAX_MODEL_OPTIONS] = { 0 }; /* by option: the line of its key */
	char key[128], name[160];
	int rc;

	if (r->event.type != YAML_MAPPING_START_EVENT)
		return fail_at(r, begin, "models[%zu]: expected name, path …, got %s", i,
			       kind(&r->event));
	for (;;) {
		size_t j = 0;
		rc = next(r);
		if (rc)
			return rc;
		if (r->event.type == YAML_MAPPING_END_EVENT)
			break;
		rc = take_key(r, key, sizeof key);
		if (rc)
			return rc;
		while (j < config_n_model_options && strcmp(config_model_options[j].key, key))
			j++;
		snprintf(name, sizeof name, "models[%zu].%s", i, key);
		if (j == config_n_model_options) {
			char shown[80];
			return fail_at(r, r->event.start_mark,
				       "unknown key %s; a model has name, path, context, load, "
				       "keep_alive and pin",
				       config_quote(name, strlen(name), shown));
		}
		if (seen[j])
			return fail_at(r, r->event.start_mark,
				       "duplicate key \"%s\"; first given in line %u", name,
				       seen[j]);
		seen[j] = (uint32_t)r->event.start_mark.line + 1;
		rc = next(r);
		if (!rc)
			rc = take_scalar(r, m, &config_model_options[j], name);
		if (rc)
			return rc;
		for (size_t k = 0; !strcmp(key, "name") && k < i; k++)
			if (!strcmp(r->c->pub.models[k].name, m->name))
				return fail_at(r, r->event.start_mark,
					       "%s: \"%s\" is the name of models[%zu] already",
					       name, m->name, k);
	}
	for (size_t j = 0; j < config_n_model_options; j++) {
		const struct config_option *o = &config_model_options[j];

		if (seen[j])
			continue;
		if (!o->value)
			return fail_at(r, begin, "models[%zu]: %s is missing", i, o->key);
		rc = config_store(r->c->dir, m, o, o->key, o->value, strlen(o->value), r->err);
		if (rc)
			return rc;
	}
	return 0;
}

static int take_models(struct reader *r)
{
	struct ig_config *pub = &r->c->pub;
	int rc;

	if (is_null(&r->event))
		return 0;
	if (r->event.type != YAML_SEQUENCE_START_EVENT)
		return fail_at(r, r->event.start_mark, "models: expected a list, got %s",
			       kind(&r->event));
	for (;;) {
		rc = next(r);
		if (rc || r->event.type == YAML_SEQUENCE_END_EVENT)
			return rc;
		if (pub->n_models == CONFIG_MAX_MODELS)
			return fail_at(r, r->event.start_mark, "models: more than %d entries",
				       CONFIG_MAX_MODELS);
		struct ig_config_model *all =
			realloc(pub->models, (pub->n_models + 1) * sizeof *all);
		if (!all)
			return ig_fail(r->err, -ENOMEM, "%s: out of memory", r->c->label);
		pub->models = all;
		all[pub->n_models] = (struct ig_config_model){ 0 };
		/* Counted at once, so that destroy frees half an entry too. */
		pub->n_models++;
		rc = take_model(r, pub->n_models - 1, &all[pub->n_models - 1]);
		if (rc)
			return rc;
	}
}

static bool is_section(const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < config_n_options; i++)
		if (!strncmp(config_options[i].key, name, len) && config_options[i].key[len] == '.')
			return true;
	return false;
}

/* The event begins the document's one node. */
static int take_root(struct reader *r)
{
	struct {
		char name[128];
		uint32_t line;
	} seen[16]; /* sections and models; there are fewer of them */
	size_t n_seen = 0;
	char key[128];
	int rc;

	if (is_null(&r->event))
		return 0;
	if (r->event.type != YAML_MAPPING_START_EVENT)
		return fail_at(r, r->event.start_mark,
			       "expected sections such as server: and models:, got %s",
			       kind(&r->event));
	for (;;) {
		rc = next(r);
		if (rc || r->event.type == YAML_MAPPING_END_EVENT)
			return rc;
		rc = take_key(r, key, sizeof key);
		if (rc)
			return rc;
		const struct config_option *o = config_find(key, strlen(key));
		if (o && !strchr(key, '.')) {
			rc = take_option(r, o);
			if (rc)
				return rc;
			continue;
		}
		if (!is_section(key) && strcmp(key, "models"))
			return fail_unknown(r, r->event.start_mark, "", key);
		for (size_t i = 0; i < n_seen; i++)
			if (!strcmp(seen[i].name, key))
				return fail_at(r, r->event.start_mark,
					       "duplicate key \"%s\"; first given in line %u", key,
					       seen[i].line);
		if (n_seen < sizeof seen / sizeof seen[0]) {
			snprintf(seen[n_seen].name, sizeof seen[n_seen].name, "%s", key);
			seen[n_seen++].line = (uint32_t)r->event.start_mark.line + 1;
		}
		rc = next(r);
		if (!rc)
			rc = strcmp(key, "models") ? take_section(r, key) : take_models(r);
		if (rc)
			return rc;
	}
}

static int take_stream(struct reader *r)
{
	int rc = next(r); /* the stream's start */

	if (!rc)
		rc = next(r); /* a document's, or the stream's end */
	if (rc || r->event.type != YAML_DOCUMENT_START_EVENT)
		return rc;
	rc = next(r);
	return rc ? rc : take_root(r);
}

int config_parse_yaml(struct config *c, const char *text, size_t len, struct ig_error *err)
{
	struct reader r = { .c = c, .err = err, .text = text, .len = len };
	int rc = start(&r);

	if (rc)
		return rc;
	rc = check_form(&r);
	stop(&r);
	if (rc)
		return rc;
	rc = start(&r);
	if (rc)
		return rc;
	rc = take_stream(&r);
	stop(&r);
	return rc;
}
