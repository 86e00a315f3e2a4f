/*
 * schema_private.h: what the parts of the schema compiler share: schema.c (keywords, alternatives,
 * literals), schema_merge.c (references, merging), schema_object.c (objects and arrays),
 * schema_scalar.c (strings), schema_number.c.  A function that writes adds to the automaton after
 * node from and returns the node where it ends.  The first failure stays in the context (rc); what
 * is written after it has no effect.
 */
#pragma once

#include "base/json.h"
#include "base/strbuf.h"
#include "model/grammar/grammar_private.h"

#define IG_SCHEMA_MAX_DEPTH 64 /* nested schemas, references included */

struct ig_schema { /* one rule that is being written */
	struct ig_compiling *c;
	struct ig_nfa *a;
	const json_t *root;			 /* what $ref looks in */
	struct ig_strbuf path;			 /* "$.properties.x", for errors */
	const json_t *open[IG_SCHEMA_MAX_DEPTH]; /* schemas that are being written */
	unsigned n_open;
	/* How the members of the outermost object are written; NULL: as JSON. */
	const struct ig_grammar_members *members;
	/* Within a member: strings have no quotes and don't contain this; NULL: they are JSON. */
	const char *stop;
	unsigned only; /* values of these types; 0: of all */
	int rc;
};

/* Record the first failure, with its place. */
__attribute__((format(printf, 3, 4))) void ig_schema_fail(struct ig_schema *x, int code,
							  const char *fmt, ...);

/* Append a part to the path: ".NAME", ".KEY" unless NULL, "[INDEX]" unless negative.  Leave with
 * the returned length. */
size_t ig_schema_enter(struct ig_schema *x, const char *name, const char *key, int64_t index);
void ig_schema_exit(struct ig_schema *x, size_t len);

/* A value of this schema; NULL: any value. */
uint32_t ig_schema_value(struct ig_schema *x, const json_t *schema, uint32_t from);
/* The same, but as a call if the schema is large: it may be needed several times. */
uint32_t ig_schema_again(struct ig_schema *x, const json_t *schema, uint32_t from);
/* Exactly this value. */
uint32_t ig_schema_literal(struct ig_schema *x, const json_t *value, uint32_t from);
/* A string without quotes and without x->stop, of those that among accepts (NULL: all). */
uint32_t ig_schema_raw_string(struct ig_schema *x, const struct ig_dfa *among, uint32_t from);
/* A member in a format that is not JSON; name: NULL: any word. */
uint32_t ig_schema_member(struct ig_schema *x, const struct ig_grammar_members *m, const char *name,
			  const json_t *schema, uint32_t from);
/* "name" as a JSON string. */
uint32_t ig_schema_name(struct ig_schema *x, const char *s, size_t len, uint32_t from);
/* White space that a model may put between tokens, bounded. */
uint32_t ig_schema_space(struct ig_schema *x, uint32_t from);
/* A colon and an optional space. */
uint32_t ig_schema_colon(struct ig_schema *x, uint32_t from);
/* The value of a keyword that is a count; unset: the value if it is absent. */
uint64_t ig_schema_count(struct ig_schema *x, const json_t *schema, const char *key,
			 uint64_t unset);
/* The schema with references and allOf merged: one plain object (owned by the compilation), or
 * true or false.  NULL after a failure. */
const json_t *ig_schema_flat(struct ig_schema *x, const json_t *schema, unsigned depth);
/* The schema that a $ref names; NULL after a failure. */
const json_t *ig_schema_target(struct ig_schema *x, const json_t *ref);
bool ig_schema_is_annotation(const char *key);
/* Own a new schema until the compilation ends; returns it, or NULL after a failure. */
json_t *ig_schema_own(struct ig_schema *x, json_t *made);
/* A copy of an object, owned by the compilation; NULL after a failure. */
json_t *ig_schema_copy(struct ig_schema *x, const json_t *schema);

enum { /* bits for types */
       IG_TYPE_NULL = 1,
       IG_TYPE_BOOLEAN = 2,
       IG_TYPE_OBJECT = 4,
       IG_TYPE_ARRAY = 8,
       IG_TYPE_STRING = 16,
       IG_TYPE_INTEGER = 32,
       IG_TYPE_NUMBER = 64 | IG_TYPE_INTEGER,
       IG_TYPE_ALL = 127,
};
struct ig_schema_type {
	const char *name;
	unsigned type;
};
extern const struct ig_schema_type ig_schema_type_names[]; /* ends with a NULL name */
/* The types that "type" (and "nullable") allow; 0 without "type". */
unsigned ig_schema_types(struct ig_schema *x, const json_t *schema);
unsigned ig_schema_type_of(const json_t *value);

/* A plain schema of the values that both allow; json_false() if there are none.  Owned by the
 * compilation; NULL after a failure.  a and b are flat. */
const json_t *ig_schema_merge(struct ig_schema *x, const json_t *a, const json_t *b);
/* Fail if a value could be of two schemas of the list; false after a failure. */
bool ig_schema_check_disjoint(struct ig_schema *x, const json_t *list);

uint32_t ig_schema_object(struct ig_schema *x, const json_t *schema, uint32_t from);
uint32_t ig_schema_array(struct ig_schema *x, const json_t *schema, uint32_t from);
uint32_t ig_schema_string(struct ig_schema *x, const json_t *schema, uint32_t from);
uint32_t ig_schema_number(struct ig_schema *x, const json_t *schema, bool integer, uint32_t from);
/* A number as JSON writes it. */
uint32_t ig_schema_number_literal(struct ig_schema *x, const json_t *value, uint32_t from);
/* Whether a number is within the bounds of a schema. */
bool ig_schema_number_fits(struct ig_schema *x, const json_t *schema, const json_t *value);

/* One character inside a JSON string, from node from to node to; plain: also characters of one
 * byte that are not escaped. */
void ig_schema_char(struct ig_schema *x, uint32_t from, uint32_t to, bool plain);
/* Any string, after its first quote. */
uint32_t ig_schema_any_string(struct ig_schema *x, uint32_t from);
