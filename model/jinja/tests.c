/* tests.c: evaluates `x is …`, as jinja2's own tests do. */
#include "model/jinja/jinja_private.h"

#include <errno.h>

#define KIND(k) (1u << (k))
#define NUMBERS (KIND(K_BOOL) | KIND(K_INT) | KIND(K_FLOAT))
#define SEQUENCES (KIND(K_STR) | KIND(K_LIST) | KIND(K_TUPLE) | KIND(K_DICT) | KIND(K_UNDEFINED))
#define CALLABLES (KIND(K_MACRO) | KIND(K_BUILTIN) | KIND(K_METHOD) | KIND(K_UNDEFINED))

enum how { OF_KIND, COMPARES, IS_BOOL, SAMEAS, DIVISIBLE, PARITY, HAS_CASE, FILTER, TEST, NEVER };

static const struct {
	const char *name;
	enum how how;
	unsigned what; /* kinds, an operator, or the value that is looked for */
} tests[] = {
	{ "defined", OF_KIND, ~KIND(K_UNDEFINED) },
	{ "undefined", OF_KIND, KIND(K_UNDEFINED) },
	{ "none", OF_KIND, KIND(K_NONE) },
	{ "string", OF_KIND, KIND(K_STR) },
	{ "mapping", OF_KIND, KIND(K_DICT) },
	{ "iterable", OF_KIND, SEQUENCES | KIND(K_LOOP) },
	{ "sequence", OF_KIND, SEQUENCES },
	{ "number", OF_KIND, NUMBERS },
	{ "integer", OF_KIND, KIND(K_INT) },
	{ "float", OF_KIND, KIND(K_FLOAT) },
	{ "boolean", OF_KIND, KIND(K_BOOL) },
	{ "true", IS_BOOL, true },
	{ "false", IS_BOOL, false },
	{ "callable", OF_KIND, CALLABLES },
	{ "escaped", NEVER, 0 },
	{ "eq", COMPARES, OP_EQ },
	{ "equalto", COMPARES, OP_EQ },
	{ "==", COMPARES, OP_EQ },
	{ "ne", COMPARES, OP_NE },
	{ "!=", COMPARES, OP_NE },
	{ "lt", COMPARES, OP_LT },
	{ "lessthan", COMPARES, OP_LT },
	{ "<", COMPARES, OP_LT },
	{ "le", COMPARES, OP_LE },
	{ "<=", COMPARES, OP_LE },
	{ "gt", COMPARES, OP_GT },
	{ "greaterthan", COMPARES, OP_GT },
	{ ">", COMPARES, OP_GT },
	{ "ge", COMPARES, OP_GE },
	{ ">=", COMPARES, OP_GE },
	{ "in", COMPARES, OP_IN },
	{ "sameas", SAMEAS, 0 },
	{ "divisibleby", DIVISIBLE, 0 },
	{ "odd", PARITY, 1 },
	{ "even", PARITY, 0 },
	{ "upper", HAS_CASE, CASE_UPPER },
	{ "lower", HAS_CASE, CASE_LOWER },
	{ "filter", FILTER, 0 },
	{ "test", TEST, 0 },
};

int test_id(const char *s, size_t len)
{
	for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
		if (strlen(tests[i].name) == len && !memcmp(tests[i].name, s, len))
			return (int)i;
	return -1;
}

static int whole(struct run *r, const struct value *v, const char *name, int64_t *out)
{
	char what[64];

	snprintf(what, sizeof what, "'is %s' needs an integer", name);
	*out = v->i;
	return is_int(v) ? 0 : run_type_error(r, v, what);
}

/* As in Python: all letters are of the case, and there is at least one. */
static int case_test(struct run *r, const struct value *v, enum str_case how, bool *out)
{
	struct value text, changed, other;
	int rc;

	if ((rc = text_of(r, v, &text)) || (rc = str_case(r, &text, how, &changed)) ||
	    (rc = str_case(r, &text, how == CASE_UPPER ? CASE_LOWER : CASE_UPPER, &other)))
		return rc;
	*out = text.len == changed.len && !memcmp(text.p, changed.p, text.len) &&
	       !(other.len == text.len && !memcmp(other.p, text.p, text.len));
	return 0;
}

static bool same_object(const struct value *a, const struct value *b)
{
	if (a->kind != b->kind)
		return false;
	if (a->kind == K_NONE || a->kind == K_UNDEFINED)
		return true;
	if (a->kind == K_STR)
		return a->len == b->len && !memcmp(a->p, b->p, a->len);
	return a->kind == K_FLOAT ? a->f == b->f : a->i == b->i; /* or the pointer */
}

int test_call(struct run *r, int id, const struct value *v, const struct args *a, bool *out)
{
	const struct value *x = a->n ? &a->pos[0] : NULL;
	const char *name = tests[id].name;
	enum how how = tests[id].how;
	unsigned what = tests[id].what;
	int n_args = how == COMPARES || how == SAMEAS || how == DIVISIBLE;
	int64_t i = 0, k = 0;
	int rc;

	if (a->n != (size_t)n_args || a->n_keys)
		return run_fail(r, -EINVAL, "'is %s' takes %d arguments, not %zu", name, n_args,
				a->n + a->n_keys);
	switch (how) {
	case OF_KIND: *out = what & KIND(v->kind); return 0;
	case COMPARES: return eval_compare(r, (enum op)what, v, x, out);
	case IS_BOOL: *out = v->kind == K_BOOL && v->i == what; return 0;
	case SAMEAS: *out = same_object(v, x); return 0;
	case DIVISIBLE:
		if ((rc = whole(r, v, name, &i)) || (rc = whole(r, x, name, &k)))
			return rc;
		if (k == 0)
			return run_fail(r, -EINVAL, "a division by zero");
		*out = k == -1 || i % k == 0;
		return 0;
	case PARITY:
		rc = whole(r, v, name, &i);
		*out = (i % 2 != 0) == what;
		return rc;
	case HAS_CASE: return case_test(r, v, (enum str_case)what, out);
	case FILTER: *out = is_str(v) && filter_id(v->p, v->len) >= 0; return 0;
	case TEST: *out = is_str(v) && test_id(v->p, v->len) >= 0; return 0;
	default: *out = false; return 0; /* NEVER: escaping is not done */
	}
}
