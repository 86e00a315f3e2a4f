/* yaml_reader.c: see yaml_reader.h. */
#include "store/yaml_reader.h"

#include "base/utf8.h"

#include <errno.h>
#include <string.h>

static int fail_va(struct ig_yaml *y, yaml_mark_t mark, const char *fmt, va_list ap)
{
	char text[320];

	vsnprintf(text, sizeof text, fmt, ap);
	return ig_fail(y->err, -EINVAL, "%.210s:%zu:%zu: %s", y->label, mark.line + 1,
		       mark.column + 1, text);
}

int ig_yaml_fail_at(struct ig_yaml *y, yaml_mark_t mark, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	int rc = fail_va(y, mark, fmt, ap);
	va_end(ap);
	return rc;
}

int ig_yaml_fail(struct ig_yaml *y, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	int rc = fail_va(y, y->event.start_mark, fmt, ap);
	va_end(ap);
	return rc;
}

/* Line and column of a byte: for some errors libyaml has only the offset. */
static yaml_mark_t mark_of(const struct ig_yaml *y, size_t offset)
{
	yaml_mark_t m = { .index = offset };

	for (size_t i = 0; i < offset && i < y->len; i++) {
		if (y->text[i] == '\n') {
			m.line++;
			m.column = 0;
		} else if (!ig_utf8_continues(y->text[i])) {
			m.column++;
		}
	}
	return m;
}

static int fail_yaml(struct ig_yaml *y)
{
	const yaml_parser_t *p = &y->parser;
	const char *problem = p->problem ? p->problem : "unreadable";

	if (p->error == YAML_MEMORY_ERROR)
		return ig_fail(y->err, -ENOMEM, "%.210s: out of memory", y->label);
	if (p->error == YAML_READER_ERROR)
		return ig_yaml_fail_at(y, mark_of(y, p->problem_offset), "not valid YAML: %s",
				       problem);
	return ig_yaml_fail_at(y, p->problem_mark, "not valid YAML: %s%s%s",
			       p->context ? p->context : "", p->context ? ", " : "", problem);
}

int ig_yaml_next(struct ig_yaml *y)
{
	if (y->has_event)
		yaml_event_delete(&y->event);
	y->has_event = yaml_parser_parse(&y->parser, &y->event);
	return y->has_event ? 0 : fail_yaml(y);
}

int ig_yaml_next_key(struct ig_yaml *y)
{
	int rc = ig_yaml_next(y);

	if (rc || y->event.type == YAML_MAPPING_END_EVENT)
		return rc;
	if (y->event.type != YAML_SCALAR_EVENT)
		return ig_yaml_fail(y, "a key must be a word, not a list or a mapping");
	return 1;
}

int ig_yaml_next_entry(struct ig_yaml *y)
{
	int rc = ig_yaml_next(y);

	return rc || y->event.type == YAML_SEQUENCE_END_EVENT ? rc : 1;
}

static int open_parser(struct ig_yaml *y)
{
	if (!yaml_parser_initialize(&y->parser))
		return ig_fail(y->err, -ENOMEM, "%.210s: out of memory", y->label);
	yaml_parser_set_encoding(&y->parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&y->parser, (const unsigned char *)y->text, y->len);
	return 0;
}

void ig_yaml_finish(struct ig_yaml *y)
{
	if (y->has_event)
		yaml_event_delete(&y->event);
	y->has_event = false;
	yaml_parser_delete(&y->parser);
}

static int check_node(struct ig_yaml *y, const yaml_char_t *anchor, const yaml_char_t *tag)
{
	if (anchor)
		return ig_yaml_fail(y, "anchors (&) are not allowed");
	return tag ? ig_yaml_fail(y, "tags (!) are not allowed") : 0;
}

static int check_form(struct ig_yaml *y)
{
	const yaml_event_t *e = &y->event;
	unsigned depth = 0, n_documents = 0;
	int rc;

	do {
		if ((rc = ig_yaml_next(y)))
			return rc;
		switch (e->type) {
		case YAML_DOCUMENT_START_EVENT:
			if (n_documents++)
				return ig_yaml_fail(y, "a second document (---) is not allowed");
			break;
		case YAML_ALIAS_EVENT: return ig_yaml_fail(y, "aliases (*) are not allowed");
		case YAML_SCALAR_EVENT:
			rc = check_node(y, e->data.scalar.anchor, e->data.scalar.tag);
			break;
		case YAML_SEQUENCE_START_EVENT:
			depth++;
			rc = check_node(y, e->data.sequence_start.anchor,
					e->data.sequence_start.tag);
			break;
		case YAML_MAPPING_START_EVENT:
			depth++;
			rc = check_node(y, e->data.mapping_start.anchor, e->data.mapping_start.tag);
			break;
		case YAML_SEQUENCE_END_EVENT:
		case YAML_MAPPING_END_EVENT: depth--; break;
		default: break;
		}
		if (rc)
			return rc;
		if (depth > IG_YAML_MAX_DEPTH)
			return ig_yaml_fail(y, "nested deeper than %d levels", IG_YAML_MAX_DEPTH);
	} while (e->type != YAML_STREAM_END_EVENT);
	return 0;
}

int ig_yaml_start(struct ig_yaml *y)
{
	int rc = open_parser(y);

	if (rc || (rc = check_form(y)))
		return rc;
	ig_yaml_finish(y);
	rc = open_parser(y);
	if (!rc)
		rc = ig_yaml_next(y); /* the stream's start */
	if (!rc)
		rc = ig_yaml_next(y); /* the document's start, or the stream's end */
	return rc || y->event.type != YAML_DOCUMENT_START_EVENT ? rc : ig_yaml_next(y);
}

bool ig_yaml_is_null(const struct ig_yaml *y)
{
	const char *s = ig_yaml_text(y);

	return y->event.type == YAML_SCALAR_EVENT &&
	       y->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
	       (!*s || !strcmp(s, "~") || !strcmp(s, "null") || !strcmp(s, "Null") ||
		!strcmp(s, "NULL"));
}

const char *ig_yaml_kind(const struct ig_yaml *y)
{
	return y->event.type == YAML_SEQUENCE_START_EVENT ? "a list" :
	       y->event.type == YAML_MAPPING_START_EVENT  ? "a mapping" :
	       ig_yaml_is_null(y)			  ? "nothing" :
							    "one value";
}
