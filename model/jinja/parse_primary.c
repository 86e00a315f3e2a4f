/* parse_primary.c: parses names, constants and displays, and what follows one: attributes,
 * items, calls, filters and tests. */
#include "model/jinja/jinja_private.h"

/* ---- arguments -------------------------------------------------------------------- */

static void add_key(struct parser *p, struct node *call, uint32_t *cap, const char *name)
{
	if (call->n_keys == *cap) {
		uint32_t n = *cap ? 2 * *cap : 4;
		const char **keys = parser_alloc(p, n, sizeof *keys);
		if (!keys)
			return;
		if (call->n_keys)
			memcpy(keys, call->keys, call->n_keys * sizeof *keys);
		call->keys = keys;
		*cap = n;
	}
	call->keys[call->n_keys++] = name;
}

/* (a, b, c=d), and closes the call: items holds the positional ones, then those of the keys. */
static struct node *parse_arguments(struct parser *p, struct node *call)
{
	struct node_list list = { 0 };
	uint32_t cap = 0;

	if (!call)
		return NULL;
	parser_expect_op(p, '(');
	while (!p->rc && !token_is_op(p, ')')) {
		const char *key = NULL;
		if (list.n) {
			parser_expect_op(p, ',');
			if (token_is_op(p, ')'))
				break;
		}
		if (token_is_op(p, '*') || token_is_op(p, OP2('*', '*')))
			return parser_unsupported(p, "* and ** in calls are");
		if (p->t.kind == T_NAME) {
			const struct token *ahead = parser_peek(p);
			if (ahead->kind == T_OP && ahead->op == '=') {
				key = parser_intern(p, p->t.p, p->t.len);
				parser_next(p);
				parser_next(p);
			}
		}
		if (key)
			add_key(p, call, &cap, key);
		else if (call->n_keys)
			parser_fail(p, p->t.line,
				    "an argument without a name after one with a name");
		parser_add(p, &list, parse_expression(p));
	}
	call->items = list.v;
	call->n = list.n - call->n_keys;
	parser_next(p);
	return parser_close(p, call);
}

/* ---- primaries -------------------------------------------------------------------- */

static struct node *constant(struct parser *p, struct value v)
{
	struct node *n = parser_node(p, N_CONST, p->t.line);

	if (n)
		n->value = v;
	parser_next(p);
	return n;
}

/* Adjacent strings are one. */
static struct node *parse_string(struct parser *p)
{
	struct value v = v_str(p->t.p, p->t.len);
	struct node *n = constant(p, v);

	while (p->t.kind == T_STRING) {
		size_t len = v.len + (size_t)p->t.len;
		char *s = parser_alloc(p, len, 1);
		if (!s)
			return NULL;
		memcpy(s, v.p, v.len);
		memcpy(s + v.len, p->t.p, p->t.len);
		n->value = v = v_str(s, len);
		parser_next(p);
	}
	return n;
}

struct node *parse_name(struct parser *p)
{
	struct node *n;

	if (token_is_name(p, "true") || token_is_name(p, "True"))
		return constant(p, v_bool(true));
	if (token_is_name(p, "false") || token_is_name(p, "False"))
		return constant(p, v_bool(false));
	if (token_is_name(p, "none") || token_is_name(p, "None"))
		return constant(p, v_none());
	n = parser_node(p, N_NAME, p->t.line);
	if (n)
		n->name = parser_intern(p, p->t.p, p->t.len);
	parser_next(p);
	return n;
}

/* [a, b] or {a: b}; the bracket is current. */
static struct node *parse_display(struct parser *p, bool is_dict)
{
	struct node *n = parser_node(p, is_dict ? N_DICT : N_LIST, p->t.line);
	struct node_list list = { 0 };
	int close = is_dict ? '}' : ']';

	parser_next(p);
	while (!p->rc && !token_is_op(p, close)) {
		if (list.n) {
			parser_expect_op(p, ',');
			if (token_is_op(p, close))
				break;
		}
		parser_add(p, &list, parse_expression(p));
		if (is_dict) {
			parser_expect_op(p, ':');
			parser_add(p, &list, parse_expression(p));
		}
	}
	n = parser_close_list(p, n, &list);
	parser_next(p);
	return n;
}

static struct node *parse_parentheses(struct parser *p)
{
	struct node *n;

	parser_next(p);
	n = token_is_op(p, ')') ? parser_node(p, N_TUPLE, p->t.line) : parse_tuple(p, true);
	parser_expect_op(p, ')');
	return n;
}

struct node *parse_primary(struct parser *p)
{
	switch (p->t.kind) {
	case T_NAME: return parse_name(p);
	case T_STRING: return parse_string(p);
	case T_INT: return constant(p, v_int(p->t.i));
	case T_FLOAT: return constant(p, v_float(p->t.f));
	default: break;
	}
	if (token_is_op(p, '('))
		return parse_parentheses(p);
	if (token_is_op(p, '[') || token_is_op(p, '{'))
		return parse_display(p, token_is_op(p, '{'));
	return parser_expected(p, "an expression");
}

/* ---- what follows a primary --------------------------------------------------------- */

struct node *parse_attribute(struct parser *p, struct node *of)
{
	struct node *n = parser_node(p, N_ATTR, p->t.line);

	parser_next(p);
	if (!n)
		return NULL;
	n->a = of;
	if (p->t.kind == T_INT) { /* a.0 */
		n->kind = N_INDEX;
		n->b = constant(p, v_int(p->t.i));
	} else if (p->t.kind == T_NAME) {
		n->value = v_str(p->t.p, p->t.len);
		n->name = parser_intern(p, p->t.p, p->t.len);
		parser_next(p);
	} else {
		return parser_fail(p, p->t.line, "a name was expected after the dot");
	}
	return parser_close(p, n);
}

static struct node *parse_subscript(struct parser *p, struct node *of)
{
	struct node *n = parser_node(p, N_INDEX, p->t.line), *parts[3] = { NULL };
	unsigned n_colons = 0;

	parser_next(p);
	while (!p->rc && !token_is_op(p, ']')) {
		if (token_is_op(p, ':')) {
			if (++n_colons > 2)
				return parser_fail(p, p->t.line, "a slice has at most three parts");
			parser_next(p);
		} else if (parts[n_colons]) {
			return parser_fail(p, p->t.line, "a ] is missing");
		} else {
			parts[n_colons] = parse_expression(p);
		}
	}
	if (!n_colons && !parts[0])
		return parser_fail(p, p->t.line, "a subscript is empty");
	if (p->rc)
		return NULL;
	n->a = of;
	if (n_colons) {
		n->kind = N_SLICE;
		n->n = 3;
		n->items = parser_alloc(p, 3, sizeof *n->items);
		if (n->items)
			memcpy(n->items, parts, sizeof parts);
	} else {
		n->b = parts[0];
	}
	parser_next(p);
	return parser_close(p, n);
}

static struct node *parse_call(struct parser *p, struct node *of)
{
	struct node *n = parser_node(p, N_CALL, p->t.line);

	if (n)
		n->a = of;
	return parse_arguments(p, n);
}

/* The name of a filter or a test, which may have dots. */
static void parse_dotted(struct parser *p, char *buf, size_t size)
{
	for (size_t n = 0;; buf[n++] = '.') {
		if (p->t.kind != T_NAME)
			parser_fail(p, p->t.line, "a name was expected");
		else if (p->t.len + 2 > size - n)
			parser_fail(p, p->t.line, "a name is too long");
		else
			memcpy(buf + n, p->t.p, p->t.len);
		n += p->t.len;
		buf[p->rc ? 0 : n] = 0;
		parser_next(p);
		if (!token_is_op(p, '.'))
			return;
		parser_next(p);
	}
}

/* An unknown filter or test is an error at once, but not where a condition may prevent that it
 * runs: there the error comes when it does. */
static void set_id(struct parser *p, struct node *n, const char *what, const char *name, int id)
{
	n->id = id;
	if (id < 0 && !p->n_ifs)
		parser_fail(p, n->line, "there is no %s named '%s'", what, name);
	else if (id < 0)
		n->name = parser_intern(p, name, strlen(name));
}

struct node *parse_filters(struct parser *p, struct node *of)
{
	char name[64];

	for (;;) {
		struct node *n = parser_node(p, N_FILTER, p->t.line);
		parse_dotted(p, name, sizeof name);
		if (!n)
			return NULL;
		n->a = of;
		set_id(p, n, "filter", name, filter_id(name, strlen(name)));
		of = token_is_op(p, '(') ? parse_arguments(p, n) : parser_close(p, n);
		if (!token_is_op(p, '|'))
			return of;
		parser_next(p);
	}
}

struct node *parse_postfix(struct parser *p, struct node *n)
{
	for (;;) {
		if (token_is_op(p, '.'))
			n = parse_attribute(p, n);
		else if (token_is_op(p, '['))
			n = parse_subscript(p, n);
		else if (token_is_op(p, '('))
			n = parse_call(p, n);
		else
			return n;
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

static struct node *parse_test(struct parser *p, struct node *of)
{
	struct node *n = parser_node(p, N_TEST, p->t.line);
	struct node_list list = { 0 };
	bool negated;
	char name[64];

	parser_next(p);
	negated = token_is_name(p, "not");
	if (negated)
		parser_next(p);
	parse_dotted(p, name, sizeof name);
	if (!n)
		return NULL;
	n->a = of;
	set_id(p, n, "test", name, test_id(name, strlen(name)));
	if (token_is_name(p, "is"))
		return parser_fail(p, p->t.line, "tests can't be chained with 'is'");
	if (token_is_op(p, '(')) {
		n = parse_arguments(p, n);
	} else {
		if (starts_argument(p))
			parser_add(p, &list, parse_postfix(p, parse_primary(p)));
		n = parser_close_list(p, n, &list);
	}
	return negated && n ? parse_node(p, N_NOT, 0, n->line, n, NULL) : n;
}

struct node *parse_filtered(struct parser *p, struct node *n)
{
	for (;;) {
		if (token_is_op(p, '|')) {
			parser_next(p);
			n = parse_filters(p, n);
		} else if (token_is_name(p, "is")) {
			n = parse_test(p, n);
		} else if (token_is_op(p, '(')) {
			n = parse_call(p, n);
		} else {
			return n;
		}
	}
}
