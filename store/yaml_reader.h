/*
 * yaml_reader.h: a YAML text as libyaml's events, for ingot.yaml and models.yaml.  Anchors,
 * aliases, tags, a second document and deep nesting are errors.  They are looked for in a first
 * pass over the whole text, so that the second pass sees plain values only.  (The document API of
 * libyaml is quadratic in nesting, and checks neither depth nor duplicate keys.)
 */
#pragma once

#include <ingot/error.h>
#include <stdbool.h>
#include <string.h>
#include <yaml.h>

#define IG_YAML_MAX_DEPTH 32

struct ig_yaml {
	const char *label; /* names the file in messages */
	const char *text;
	size_t len;
	struct ig_error *err;
	yaml_parser_t parser;
	yaml_event_t event; /* the latest */
	bool has_event;
};

/* label, text, len and err are set, the rest is zero.  Check the form, and read to the document's
 * node; an empty text ends with YAML_STREAM_END_EVENT.  0, or -EINVAL or -ENOMEM with
 * "label:line:column: what". */
int ig_yaml_start(struct ig_yaml *y);
void ig_yaml_finish(struct ig_yaml *y); /* after any result of start */
int ig_yaml_next(struct ig_yaml *y);
/* The next key of a mapping: 1, or 0 at the mapping's end. */
int ig_yaml_next_key(struct ig_yaml *y);
/* The next entry of a list: 1, or 0 at the list's end. */
int ig_yaml_next_entry(struct ig_yaml *y);

/* -EINVAL with the place of the event, or with another one. */
__attribute__((format(printf, 2, 3))) int ig_yaml_fail(struct ig_yaml *y, const char *fmt, ...);
__attribute__((format(printf, 3, 4))) int ig_yaml_fail_at(struct ig_yaml *y, yaml_mark_t mark,
							  const char *fmt, ...);

/* Whether the event is a plain scalar without a value: "key:", ~ or null. */
bool ig_yaml_is_null(const struct ig_yaml *y);
/* What the event begins: "a list", "a mapping", "one value" or "nothing". */
const char *ig_yaml_kind(const struct ig_yaml *y);
/* The text of a scalar event. */
static inline const char *ig_yaml_text(const struct ig_yaml *y)
{
	return (const char *)y->event.data.scalar.value;
}
static inline bool ig_yaml_has_nul(const struct ig_yaml *y)
{
	return memchr(y->event.data.scalar.value, 0, y->event.data.scalar.length);
}
