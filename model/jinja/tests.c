/* tests.c: what `x is …` asks, as jinja2's own tests do. */
#include "model/jinja/jinja_private.h"

#include <errno.h>

enum {
	T_DEFINED,
	T_UNDEFINED,
	T_IS_NONE,
	T_IS_STRING,
	T_MAPPING,
	T_ITERABLE,
	T_SEQUENCE,
	T_NUMBER,
	T_INTEGER,
	T_IS_FLOAT,
	T_BOOLEAN,
	T_TRUE,
	T_FALSE,
	T_CALLABLE,
	T_EQ,
	T_NE,
	T_LT,
	T_LE,
	T_GT,
	T_GE,
	T_IN,
	T_SAMEAS,
	T_DIVISIBLEBY,
	T_ODD,
	T_EVEN,
	T_UPPER,
	T_LOWER,
	T_FILTER,
	T_TEST,
	T_ESCAPED
};

static const struct {
	const char *name;
	int id;
	uint8_t n_args;
} tests[] = {
	{ "defined", T_DEFINED, 0 },
	{ "undefined", T_UNDEFINED, 0 },
	{ "none", T_IS_NONE, 0 },
	{ "string", T_IS_STRING, 0 },
	{ "mapping", T_MAPPING, 0 },
	{ "iterable", T_ITERABLE, 0 },
	{ "sequence", T_SEQUENCE, 0 },
	{ "number", T_NUMBER, 0 },
	{ "integer", T_INTEGER, 0 },
	{ "float", T_IS_FLOAT, 0 },
	{ "boolean", T_BOOLEAN, 0 },
	{ "true", T_TRUE, 0 },
	{ "false", T_FALSE, 0 },
	{ "callable", T_CALLABLE, 0 },
	{ "escaped", T_ESCAPED, 0 },
	{ "eq", T_EQ, 1 },
	{ "equalto", T_EQ, 1 },
	{ "==", T_EQ, 1 },
	{ "ne", T_NE, 1 },
	{ "!=", T_NE, 1 },
	{ "lt", T_LT, 1 },
	{ "lessthan", T_LT, 1 },
	{ "<", T_LT, 1 },
	{ "le", T_LE, 1 },
	{ "<=", T_LE, 1 },
	{ "gt", T_GT, 1 },
	{ "greaterthan", T_GT, 1 },
	{ ">", T_GT, 1 },
	{ "ge", T_GE, 1 },
	{ ">=", T_GE, 1 },
	{ "in", T_IN, 1 },
	{ "sameas", T_SAMEAS, 1 },
	{ "divisibleby", T_DIVISIBLEBY, 1 },
	{ "odd", T_ODD, 0 },
	{ "even", T_EVEN, 0 },
	{ "upper", T_UPPER, 0 },
	{ "lower", T_LOWER, 0 },
	{ "filter", T_FILTER, 0 },
	{ "test", T_TEST, 0 },
};

int test_id(const char *s, size_t len)
{
	for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
		if (strlen(tests[i].name) == len && !memcmp(tests[i].name, s, len))
			return (int)i;
	return -1;
}

static int whole(struct run *r, const struct value *v, const char *what, int64_t *out)
{
	if (!is_int(v))
		return v->kind == K_UNDEFINED ?
			       run_undefined(r, v) :
			       run_fail(r, -EINVAL, "'is %s' needs an integer, not %s", what,
					kind_name(v));
	*out = v->i;
	return 0;
}

/* Neither iterable nor a sequence: numbers, None, functions. */
static bool is_collection(const struct value *v)
{
	return v->kind == K_STR || is_list(v) || v->kind == K_DICT || v->kind == K_UNDEFINED;
}

static int case_test(struct run *r, const struct value *v, bool upper, bool *out)
{
	struct value text, changed, other;
	int rc;

	if ((rc = text_of(r, v, &text)) ||
	    (rc = str_case(r, &text, upper ? CASE_UPPER : CASE_LOWER, &changed)) ||
	    (rc = str_case(r, &text, upper ? CASE_LOWER : CASE_UPPER, &other)))
		return rc;
	/* As Python: all letters are of the case, and there is one. */
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
	int64_t i = 0, k = 0;
	int rc;

	if (a->n != tests[id].n_args || a->n_keys)
		return run_fail(r, -EINVAL, "'is %s' takes %d arguments, not %zu", name,
				tests[id].n_args, a->n + a->n_keys);
	switch (tests[id].id) {
	case T_DEFINED: *out = v->kind != K_UNDEFINED; return 0;
	case T_UNDEFINED: *out = v->kind == K_UNDEFINED; return 0;
	case T_IS_NONE: *out = v->kind == K_NONE; return 0;
	case T_IS_STRING: *out = v->kind == K_STR; return 0;
	case T_MAPPING: *out = v->kind == K_DICT; return 0;
	case T_ITERABLE: *out = is_collection(v) || v->kind == K_LOOP; return 0;
	case T_SEQUENCE: *out = is_collection(v); return 0;
	case T_NUMBER: *out = is_number(v); return 0;
	case T_INTEGER: *out = v->kind == K_INT; return 0;
	case T_IS_FLOAT: *out = v->kind == K_FLOAT; return 0;
	case T_BOOLEAN: *out = v->kind == K_BOOL; return 0;
	case T_TRUE: *out = v->kind == K_BOOL && v->i; return 0;
	case T_FALSE: *out = v->kind == K_BOOL && !v->i; return 0;
	case T_ESCAPED: *out = false; return 0;
	case T_CALLABLE:
		*out = v->kind == K_MACRO || v->kind == K_BUILTIN || v->kind == K_METHOD ||
		       v->kind == K_UNDEFINED;
		return 0;
	case T_EQ: return eval_compare(r, OP_EQ, v, x, out);
	case T_NE: return eval_compare(r, OP_NE, v, x, out);
	case T_LT: return eval_compare(r, OP_LT, v, x, out);
	case T_LE: return eval_compare(r, OP_LE, v, x, out);
	case T_GT: return eval_compare(r, OP_GT, v, x, out);
	case T_GE: return eval_compare(r, OP_GE, v, x, out);
	case T_IN: return eval_compare(r, OP_IN, v, x, out);
	case T_SAMEAS: *out = same_object(v, x); return 0;
	case T_DIVISIBLEBY:
		if ((rc = whole(r, v, name, &i)) || (rc = whole(r, x, name, &k)))
			return rc;
		if (k == 0)
			return run_fail(r, -EINVAL, "a division by zero");
		*out = k == -1 || i % k == 0;
		return 0;
	case T_ODD:
	case T_EVEN:
		if ((rc = whole(r, v, name, &i)))
			return rc;
		*out = (i % 2 != 0) == (tests[id].id == T_ODD);
		return 0;
	case T_UPPER: return case_test(r, v, true, out);
	case T_LOWER: return case_test(r, v, false, out);
	case T_FILTER: *out = is_str(v) && filter_id(v->p, v->len) >= 0; return 0;
	default: *out = is_str(v) && test_id(v->p, v->len) >= 0; return 0;
	}
}
