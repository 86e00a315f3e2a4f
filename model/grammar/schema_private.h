/*
 * schema_private.h: what the parts of the schema compiler share: schema.c (which keyword
 * is whose, references, literals), schema_merge.c (schemas that hold together),
 * schema_object.c (objects and arrays), schema_scalar.c (strings), schema_number.c.
 *
 * Each function that writes goes on at a node of the automaton and gives the node where
 * it ends; a failure sticks to the context (rc) and what is written after it is void.
 */
#pragma once

#include "base/json.h"
#include "base/strbuf.h"
#include "model/grammar/grammar_private.h"

#define IG_SCHEMA_MAX_DEPTH 64 /* of schemas in schemas, references counted */

struct ig_schema { /* one rule that is being written */
	struct ig_compiling *c;
	struct ig_nfa *a;
	const json_t *root;			 /* what $ref looks in */
	struct ig_strbuf path;			 /* "$.properties.x", for errors */
	const json_t *open[IG_SCHEMA_MAX_DEPTH]; /* schemas that are being written */
	unsigned n_open;
	int rc;
};

/* The first failure stays; with its place. */
__attribute__((format(printf, 3, 4))) void ig_schema_fail(struct ig_schema *x, int code,
							  const char *fmt, ...);

/* Go to a part: ".NAME" and, if index is not negative, "[INDEX]"; back with the returned
 * length. */
size_t ig_schema_enter(struct ig_schema *x, const char *name, const char *key, int64_t index);
void ig_schema_exit(struct ig_schema *x, size_t len);

/* ---- schema.c -------------------------------------------------------------------- */

/* A value of this schema; NULL: any value. */
uint32_t ig_schema_value(struct ig_schema *x, const json_t *schema, uint32_t from);
/* The same, but as a call if its schema is large: there will be more of it. */
uint32_t ig_schema_again(struct ig_schema *x, const json_t *schema, uint32_t from);
/* Exactly this value. */
uint32_t ig_schema_literal(struct ig_schema *x, const json_t *value, uint32_t from);
/* "name" as a JSON string. */
uint32_t ig_schema_name(struct ig_schema *x, const char *s, size_t len, uint32_t from);
/* White space that a model may put between tokens, bounded. */
uint32_t ig_schema_space(struct ig_schema *x, uint32_t from);
/* : and perhaps a space. */
uint32_t ig_schema_colon(struct ig_schema *x, uint32_t from);
/* A keyword's value that counts something; unset: what it is when absent. */
uint64_t ig_schema_count(struct ig_schema *x, const json_t *schema, const char *key,
			 uint64_t unset);
/* The schema's own place followed by references and allOf: one plain object (owned by the
 * compilation), or true or false.  NULL after a failure. */
const json_t *ig_schema_flat(struct ig_schema *x, const json_t *schema, unsigned depth);
/* What a $ref names. */
const json_t *ig_schema_target(struct ig_schema *x, const json_t *ref);
bool ig_schema_is_annotation(const char *key);
/* Keep a schema that was made until the compilation ends; it, or NULL after a failure. */
json_t *ig_schema_keep(struct ig_schema *x, json_t *made);
/* A copy of an object, kept; NULL after a failure. */
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
/* What "type" (and "nullable") allow; 0 when neither is there. */
unsigned ig_schema_types(struct ig_schema *x, const json_t *schema);
unsigned ig_schema_type_of(const json_t *value);

/* ---- the others ------------------------------------------------------------------ */

/* A plain schema that holds what both hold; json_false() when nothing can.  Owned by the
 * compilation; NULL after a failure.  a and b are flat. */
const json_t *ig_schema_merge(struct ig_schema *x, const json_t *a, const json_t *b);
/* Whether no value can be of both. */
bool ig_schema_disjoint(struct ig_schema *x, const json_t *a, const json_t *b, unsigned depth);

uint32_t ig_schema_object(struct ig_schema *x, const json_t *schema, uint32_t from);
uint32_t ig_schema_array(struct ig_schema *x, const json_t *schema, uint32_t from);
uint32_t ig_schema_string(struct ig_schema *x, const json_t *schema, uint32_t from);
uint32_t ig_schema_number(struct ig_schema *x, const json_t *schema, bool integer, uint32_t from);
/* A number as JSON writes it. */
uint32_t ig_schema_number_literal(struct ig_schema *x, const json_t *value, uint32_t from);
/* Whether a number is within the bounds of a schema. */
bool ig_schema_number_fits(struct ig_schema *x, const json_t *schema, const json_t *value);

/* One character inside a JSON string, from from to to; plain: also those that stand for
 * themselves in one byte. */
void ig_schema_char(struct ig_schema *x, uint32_t from, uint32_t to, bool plain);
/* Any string without its first quote. */
uint32_t ig_schema_any_string(struct ig_schema *x, uint32_t from);
