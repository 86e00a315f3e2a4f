/* parse_primary.c: names, constants, displays, and what follows one: attributes, items, calls,
 * filters and tests. */
#include "model/jinja/parse_private.h"

#include <errno.h>

/* ---- arguments -------------------------------------------------------------------- */

static int add_key(struct parser *p, struct node *call, uint32_t *cap, const char *name)
{
	if (call->n_keys == *cap) {
		uint32_t n = *cap ? 2 * *cap : 4;
		const char **keys = arena_alloc_array(&p->j->arena, n, sizeof *keys);
		if (!keys)
			return parser_fail(p, call->line, "the template is too large");
		if (call->n_keys)
			memcpy(keys, call->keys, call->n_keys * sizeof *keys);
		call->keys = keys;
		*cap = n;
	}
	call->keys[call->n_keys++] = name;
	return 0;
}

/* (a, b, c=d): items holds the positional ones, then those of the keys. */
int parse_arguments(struct parser *p, struct node *call)
{
	struct node_list list = { 0 };
	uint32_t cap = 0;
	int rc = parser_expect_op(p, '(');

	while (!rc && !token_is_op(p, ')')) {
		const char *key = NULL;
		struct node *value;
		if (list.n && ((rc = parser_expect_op(p, ',')) || token_is_op(p, ')')))
			break;
		if (token_is_op(p, '*') || token_is_op(p, OP2('*', '*'))) {
			parser_fail(p, p->t.line, "* and ** in calls are not supported");
			return -ENOTSUP;
		}
		if (p->t.kind == T_NAME) {
			if ((rc = parser_peek(p)))
				break;
			if (p->ahead.kind == T_OP && p->ahead.op == '=') {
				key = parser_intern(p, p->t.p, p->t.len);
				if (!key)
					return -ENOMEM;
				if ((rc = parser_next(p)) || (rc = parser_next(p)))
					break;
			}
		}
		if (!key && call->n_keys)
			return parser_fail(p, p->t.line,
					   "an argument without a name behind one with a name");
		if (key && (rc = add_key(p, call, &cap, key)))
			break;
		if ((rc = parse_expression(p, &value)))
			break;
		rc = parser_add(p, &list, value);
	}
	if (rc)
		return rc;
	call->items = list.v;
	call->n = list.n - call->n_keys;
	return parser_next(p);
}

/* ---- primaries -------------------------------------------------------------------- */

static int constant(struct parser *p, struct value v, struct node **out)
{
	*out = parser_node(p, N_CONST, p->t.line);
	if (!*out)
		return -ENOMEM;
	(*out)->value = v;
	return parser_next(p);
}

/* Strings beside each other are one. */
static int parse_string(struct parser *p, struct node **out)
{
	struct value v = v_str(p->t.p, p->t.len);
	int rc = constant(p, v, out);

	while (!rc && p->t.kind == T_STRING) {
		size_t len = v.len + (size_t)p->t.len;
		char *s = arena_alloc(&p->j->arena, len);
		if (!s)
			return parser_fail(p, p->t.line, "the template is too large");
		memcpy(s, v.p, v.len);
		memcpy(s + v.len, p->t.p, p->t.len);
		(*out)->value = v = v_str(s, len);
		rc = parser_next(p);
	}
	return rc;
}

int parse_name(struct parser *p, struct node **out)
{
	if (token_is_name(p, "true") || token_is_name(p, "True"))
		return constant(p, v_bool(true), out);
	if (token_is_name(p, "false") || token_is_name(p, "False"))
		return constant(p, v_bool(false), out);
	if (token_is_name(p, "none") || token_is_name(p, "None"))
		return constant(p, v_none(), out);
	*out = parser_node(p, N_NAME, p->t.line);
	if (!*out)
		return -ENOMEM;
	(*out)->name = parser_intern(p, p->t.p, p->t.len);
	return (*out)->name ? parser_next(p) : -ENOMEM;
}

/* [a, b] or {a: b}; the bracket is current. */
static int parse_display(struct parser *p, bool is_dict, struct node **out)
{
	struct node *n = parser_node(p, is_dict ? N_DICT : N_LIST, p->t.line), *part;
	struct node_list list = { 0 };
	int close = is_dict ? '}' : ']', rc;

	if (!n)
		return -ENOMEM;
	if ((rc = parser_next(p)))
		return rc;
	while (!token_is_op(p, close)) {
		if (list.n) {
			if ((rc = parser_expect_op(p, ',')))
				return rc;
			if (token_is_op(p, close))
				break;
		}
		if ((rc = parse_expression(p, &part)) || (rc = parser_add(p, &list, part)))
			return rc;
		if (is_dict &&
		    ((rc = parser_expect_op(p, ':')) || (rc = parse_expression(p, &part)) ||
		     (rc = parser_add(p, &list, part))))
			return rc;
	}
	n->items = list.v;
	n->n = list.n;
	*out = n;
	rc = parser_close(p, n);
	return rc ? rc : parser_next(p);
}

static int parse_parentheses(struct parser *p, struct node **out)
{
	int rc = parser_next(p);

	if (rc)
		return rc;
	if (token_is_op(p, ')')) {
		*out = parser_node(p, N_TUPLE, p->t.line);
		return *out ? parser_next(p) : -ENOMEM;
	}
	rc = parse_tuple(p, true, out);
	return rc ? rc : parser_expect_op(p, ')');
}

int parse_primary(struct parser *p, struct node **out)
{
	char what[64];

	switch (p->t.kind) {
	case T_NAME: return parse_name(p, out);
	case T_STRING: return parse_string(p, out);
	case T_INT: return constant(p, v_int(p->t.i), out);
	case T_FLOAT: return constant(p, v_float(p->t.f), out);
	default: break;
	}
	if (token_is_op(p, '('))
		return parse_parentheses(p, out);
	if (token_is_op(p, '['))
		return parse_display(p, false, out);
	if (token_is_op(p, '{'))
		return parse_display(p, true, out);
	token_describe(&p->t, what, sizeof what);
	return parser_fail(p, p->t.line, "an expression was expected, not %s", what);
}

/* ---- what follows a primary --------------------------------------------------------- */

int parse_attribute(struct parser *p, struct node *of, struct node **out)
{
	struct node *n = parser_node(p, N_ATTR, p->t.line), *key;
	int rc;

	if (!n)
		return -ENOMEM;
	if ((rc = parser_next(p)))
		return rc;
	n->a = of;
	if (p->t.kind == T_INT) { /* a.0 */
		n->kind = N_INDEX;
		if ((rc = constant(p, v_int(p->t.i), &key)))
			return rc;
		n->b = key;
	} else if (p->t.kind == T_NAME) {
		n->value = v_str(p->t.p, p->t.len);
		n->name = parser_intern(p, p->t.p, p->t.len);
		if (!n->name)
			return -ENOMEM;
		if ((rc = parser_next(p)))
			return rc;
	} else {
		return parser_fail(p, p->t.line, "a name was expected behind the dot");
	}
	*out = n;
	return parser_close(p, n);
}

static int parse_subscript(struct parser *p, struct node *of, struct node **out)
{
	struct node *n = parser_node(p, N_INDEX, p->t.line), *parts[3] = { NULL };
	unsigned n_colons = 0;
	int rc;

	if (!n)
		return -ENOMEM;
	n->a = of;
	if ((rc = parser_next(p)))
		return rc;
	while (!token_is_op(p, ']')) {
		if (token_is_op(p, ':')) {
			if (++n_colons > 2)
				return parser_fail(p, p->t.line, "a slice has three parts at most");
			rc = parser_next(p);
		} else if (parts[n_colons]) {
			return parser_fail(p, p->t.line, "a ] is missing");
		} else {
			rc = parse_expression(p, &parts[n_colons]);
		}
		if (rc)
			return rc;
	}
	if (n_colons) {
		n->kind = N_SLICE;
		n->n = 3;
		n->items = arena_alloc_array(&p->j->arena, 3, sizeof *n->items);
		if (!n->items)
			return parser_fail(p, n->line, "the template is too large");
		memcpy(n->items, parts, sizeof parts);
	} else if (!parts[0]) {
		return parser_fail(p, p->t.line, "a subscript is empty");
	}
	n->b = n_colons ? NULL : parts[0];
	*out = n;
	rc = parser_close(p, n);
	return rc ? rc : parser_next(p);
}

static int parse_call(struct parser *p, struct node *of, struct node **out)
{
	struct node *n = parser_node(p, N_CALL, p->t.line);
	int rc;

	if (!n)
		return -ENOMEM;
	n->a = of;
	rc = parse_arguments(p, n);
	*out = n;
	return rc ? rc : parser_close(p, n);
}

/* Names with dots, as filters and tests may have them. */
static int parse_dotted(struct parser *p, char *buf, size_t size)
{
	size_t n = 0;
	int rc;

	for (;;) {
		if (p->t.kind != T_NAME)
			return parser_fail(p, p->t.line, "a name was expected");
		if (p->t.len + 2 > size - n)
			return parser_fail(p, p->t.line, "a name is too long");
		memcpy(buf + n, p->t.p, p->t.len);
		n += p->t.len;
		buf[n] = 0;
		if ((rc = parser_next(p)))
			return rc;
		if (!token_is_op(p, '.'))
			return 0;
		buf[n++] = '.';
		if ((rc = parser_next(p)))
			return rc;
	}
}

/* Unknown filters and tests are an error at once, but not where a condition may keep
 * them from being run: that is when the run refuses them. */
static int set_id(struct parser *p, struct node *n, const char *what, const char *name)
{
	if (n->id >= 0)
		return 0;
	if (!p->n_ifs)
		return parser_fail(p, n->line, "there is no %s named '%s'", what, name);
	n->name = parser_intern(p, name, strlen(name));
	return n->name ? 0 : -ENOMEM;
}

int parse_filters(struct parser *p, struct node *of, struct node **out)
{
	char name[64];

	for (*out = of;;) {
		struct node *n = parser_node(p, N_FILTER, p->t.line);
		int rc;
		if (!n)
			return -ENOMEM;
		n->a = *out;
		if ((rc = parse_dotted(p, name, sizeof name)))
			return rc;
		n->id = filter_id(name, strlen(name));
		if ((rc = set_id(p, n, "filter", name)) ||
		    (token_is_op(p, '(') && (rc = parse_arguments(p, n))) ||
		    (rc = parser_close(p, n)))
			return rc;
		*out = n;
		if (!token_is_op(p, '|'))
			return 0;
		if ((rc = parser_next(p)))
			return rc;
	}
}

int parse_postfix(struct parser *p, struct node **n)
{
	for (;;) {
		int rc;
		if (token_is_op(p, '.'))
			rc = parse_attribute(p, *n, n);
		else if (token_is_op(p, '['))
			rc = parse_subscript(p, *n, n);
		else if (token_is_op(p, '('))
			rc = parse_call(p, *n, n);
		else
			return 0;
		if (rc)
			return rc;
	}
}

/* An argument without parentheses: `x is divisibleby 3`. */
static bool starts_argument(const struct parser *p)
{
	static const char *const words[] = { "else", "or", "and", "if", "is", "not", "in" };

	switch (p->t.kind) {
	case T_STRING:
	case T_INT:
	case T_FLOAT: return true;
	case T_NAME:
		for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
			if (token_is_name(p, words[i]))
				return false;
		return true;
	default: return token_is_op(p, '[') || token_is_op(p, '{');
	}
}

static int parse_test(struct parser *p, struct node *of, struct node **out)
{
	struct node *n = parser_node(p, N_TEST, p->t.line), *arg;
	struct node_list list = { 0 };
	bool negated;
	char name[64];
	int rc;

	if (!n)
		return -ENOMEM;
	n->a = of;
	if ((rc = parser_next(p)))
		return rc;
	negated = token_is_name(p, "not");
	if (negated && (rc = parser_next(p)))
		return rc;
	if ((rc = parse_dotted(p, name, sizeof name)))
		return rc;
	n->id = test_id(name, strlen(name));
	if ((rc = set_id(p, n, "test", name)))
		return rc;
	if (token_is_op(p, '(')) {
		rc = parse_arguments(p, n);
	} else if (token_is_name(p, "is")) {
		return parser_fail(p, p->t.line, "tests can't be chained with 'is'");
	} else if (starts_argument(p)) {
		if ((rc = parse_primary(p, &arg)) || (rc = parse_postfix(p, &arg)) ||
		    (rc = parser_add(p, &list, arg)))
			return rc;
		n->items = list.v;
		n->n = list.n;
	}
	if (rc || (rc = parser_close(p, n)))
		return rc;
	*out = n;
	return negated ? parse_node(p, N_NOT, 0, n->line, n, NULL, out) : 0;
}

int parse_filtered(struct parser *p, struct node **n)
{
	for (;;) {
		int rc;
		if (token_is_op(p, '|')) {
			rc = parser_next(p);
			if (!rc)
				rc = parse_filters(p, *n, n);
		} else if (token_is_name(p, "is")) {
			rc = parse_test(p, *n, n);
		} else if (token_is_op(p, '(')) {
			rc = parse_call(p, *n, n);
		} else {
			return 0;
		}
		if (rc)
			return rc;
	}
}
