/*
 * parse_expr.c: expressions to nodes, with Jinja's grammar: conditions bind loosest,
 * then or, and, not, comparisons, + -, ~, * / // %, **, signs, and tightest . [] () |
 * and is.
 */
#include "model/jinja/parse_private.h"

#include <errno.h>

int parse_node(struct parser *p, enum node_kind kind, int op, uint32_t line, struct node *a,
	       struct node *b, struct node **out)
{
	struct node *n = parser_node(p, kind, line);

	if (!n)
		return -ENOMEM;
	n->op = (uint8_t)op;
	n->a = a;
	n->b = b;
	*out = n;
	return parser_close(p, n);
}

/* ---- operators ---------------------------------------------------------------------- */

static int parse_unary(struct parser *p, bool with_filters, struct node **out)
{
	uint32_t line = p->t.line;
	int rc = parser_enter(p);

	if (rc)
		return rc;
	if (token_is_op(p, '-') || token_is_op(p, '+')) {
		enum node_kind kind = token_is_op(p, '-') ? N_NEG : N_POS;
		struct node *of;
		if (!(rc = parser_next(p)) && !(rc = parse_unary(p, false, &of)))
			rc = parse_node(p, kind, 0, line, of, NULL, out);
	} else {
		rc = parse_primary(p, out);
	}
	if (!rc)
		rc = parse_postfix(p, out);
	if (!rc && with_filters)
		rc = parse_filtered(p, out);
	p->depth--;
	return rc;
}

/* The operators of level ** (0), * / // % (1), + - (2); ~ is between the last two. */
static int operator_at(const struct parser *p, unsigned level)
{
	static const struct {
		int op;
		uint8_t level, node_op;
	} table[] = {
		{ OP2('*', '*'), 0, OP_POW }, { '*', 1, OP_MUL },
		{ '/', 1, OP_DIV },	      { OP2('/', '/'), 1, OP_FLOORDIV },
		{ '%', 1, OP_MOD },	      { '+', 2, OP_ADD },
		{ '-', 2, OP_SUB },
	};

	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		if (table[i].level == level && token_is_op(p, table[i].op))
			return table[i].node_op;
	return -1;
}

static int parse_concat(struct parser *p, struct node **out);

static int parse_level(struct parser *p, unsigned level, struct node **out)
{
	struct node *right;
	int op, rc;

	rc = level == 0 ? parse_unary(p, true, out) :
	     level == 1 ? parse_level(p, 0, out) :
			  parse_concat(p, out);
	while (!rc && (op = operator_at(p, level)) >= 0) {
		uint32_t line = p->t.line;
		if ((rc = parser_next(p)))
			break;
		rc = level == 0 ? parse_unary(p, true, &right) :
		     level == 1 ? parse_level(p, 0, &right) :
				  parse_concat(p, &right);
		if (!rc)
			rc = parse_node(p, N_BINARY, op, line, *out, right, out);
	}
	return rc;
}

static int parse_concat(struct parser *p, struct node **out)
{
	struct node_list list = { 0 };
	struct node *part, *n;
	uint32_t line = p->t.line;
	int rc = parse_level(p, 1, out);

	if (rc || !token_is_op(p, '~'))
		return rc;
	if ((rc = parser_add(p, &list, *out)))
		return rc;
	while (token_is_op(p, '~'))
		if ((rc = parser_next(p)) || (rc = parse_level(p, 1, &part)) ||
		    (rc = parser_add(p, &list, part)))
			return rc;
	n = parser_node(p, N_CONCAT, line);
	if (!n)
		return -ENOMEM;
	n->items = list.v;
	n->n = list.n;
	*out = n;
	return parser_close(p, n);
}

/* The comparison that is current, behind which the next token is then; -1: none. */
static int compare_operator(struct parser *p, int *op)
{
	static const struct {
		int op, node_op;
	} table[] = {
		{ OP2('=', '='), OP_EQ }, { OP2('!', '='), OP_NE }, { OP2('<', '='), OP_LE },
		{ OP2('>', '='), OP_GE }, { '<', OP_LT },	    { '>', OP_GT },
	};
	int rc;

	*op = -1;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		if (token_is_op(p, table[i].op))
			*op = table[i].node_op;
	if (token_is_name(p, "in"))
		*op = OP_IN;
	if (token_is_name(p, "not")) {
		if ((rc = parser_peek(p)))
			return rc;
		if (p->ahead.kind != T_NAME || p->ahead.len != 2 || memcmp(p->ahead.p, "in", 2))
			return 0;
		*op = OP_NOT_IN;
		if ((rc = parser_next(p)))
			return rc;
	}
	return *op < 0 ? 0 : parser_next(p);
}

static int parse_compare(struct parser *p, struct node **out)
{
	struct node_list list = { 0 };
	uint8_t ops[16];
	struct node *part, *n;
	uint32_t line = p->t.line;
	int op, rc;

	if ((rc = parse_level(p, 2, out)) || (rc = compare_operator(p, &op)) || op < 0)
		return rc;
	while (op >= 0) {
		if (list.n == sizeof ops)
			return parser_fail(p, line, "too many comparisons in a row");
		ops[list.n] = (uint8_t)op;
		if ((rc = parse_level(p, 2, &part)) || (rc = parser_add(p, &list, part)) ||
		    (rc = compare_operator(p, &op)))
			return rc;
	}
	n = parser_node(p, N_COMPARE, line);
	if (!n)
		return -ENOMEM;
	n->a = *out;
	n->items = list.v;
	n->n = list.n;
	n->ops = arena_alloc(&p->j->arena, list.n);
	if (!n->ops)
		return parser_fail(p, line, "the template is too large");
	memcpy(n->ops, ops, list.n);
	*out = n;
	return parser_close(p, n);
}

static int parse_not(struct parser *p, struct node **out)
{
	unsigned n_nots = 0;
	uint32_t line = p->t.line;
	int rc;

	for (; token_is_name(p, "not"); n_nots++)
		if ((rc = parser_next(p)))
			return rc;
	rc = parse_compare(p, out);
	for (; !rc && n_nots; n_nots--)
		rc = parse_node(p, N_NOT, 0, line, *out, NULL, out);
	return rc;
}

static int parse_and(struct parser *p, struct node **out)
{
	struct node *right;
	int rc = parse_not(p, out);

	while (!rc && token_is_name(p, "and")) {
		uint32_t line = p->t.line;
		if (!(rc = parser_next(p)) && !(rc = parse_not(p, &right)))
			rc = parse_node(p, N_AND, 0, line, *out, right, out);
	}
	return rc;
}

static int parse_or(struct parser *p, struct node **out)
{
	struct node *right;
	int rc = parse_and(p, out);

	while (!rc && token_is_name(p, "or")) {
		uint32_t line = p->t.line;
		if (!(rc = parser_next(p)) && !(rc = parse_and(p, &right)))
			rc = parse_node(p, N_OR, 0, line, *out, right, out);
	}
	return rc;
}

int parse_expression(struct parser *p, struct node **out)
{
	int rc = parser_enter(p);

	if (rc)
		return rc;
	rc = parse_or(p, out);
	while (!rc && token_is_name(p, "if")) {
		struct node *n = parser_node(p, N_IF_EXPR, p->t.line);
		if (!n) {
			rc = -ENOMEM;
			break;
		}
		n->b = *out;
		p->n_ifs++;
		if (!(rc = parser_next(p)) && !(rc = parse_or(p, &n->a)) &&
		    token_is_name(p, "else") && !(rc = parser_next(p)))
			rc = parse_expression(p, &n->c);
		p->n_ifs--;
		*out = n;
		if (!rc)
			rc = parser_close(p, n);
	}
	p->depth--;
	return rc;
}

static bool ends_tuple(const struct parser *p)
{
	return p->t.kind == T_BLOCK_END || p->t.kind == T_VAR_END || token_is_op(p, ')') ||
	       token_is_op(p, '=') || token_is_name(p, "in") || token_is_name(p, "recursive");
}

int parse_tuple(struct parser *p, bool with_condition, struct node **out)
{
	struct node_list list = { 0 };
	struct node *part, *n;
	uint32_t line = p->t.line;
	int rc = with_condition ? parse_expression(p, out) : parse_or(p, out);

	if (rc || !token_is_op(p, ','))
		return rc;
	if ((rc = parser_add(p, &list, *out)))
		return rc;
	while (token_is_op(p, ',')) {
		if ((rc = parser_next(p)))
			return rc;
		if (ends_tuple(p))
			break;
		rc = with_condition ? parse_expression(p, &part) : parse_or(p, &part);
		if (rc || (rc = parser_add(p, &list, part)))
			return rc;
	}
	n = parser_node(p, N_TUPLE, line);
	if (!n)
		return -ENOMEM;
	n->items = list.v;
	n->n = list.n;
	*out = n;
	return parser_close(p, n);
}

/* One name, namespace.attribute, or (a, b). */
static int parse_one_target(struct parser *p, bool with_namespace, struct node **out)
{
	int rc;

	if (token_is_op(p, '(')) {
		if ((rc = parser_enter(p)))
			return rc;
		if (!(rc = parser_next(p)) && !(rc = parse_target(p, with_namespace, out)))
			rc = parser_expect_op(p, ')');
		p->depth--;
		return rc;
	}
	if (p->t.kind != T_NAME)
		return parser_fail(p, p->t.line, "a variable's name was expected");
	if ((rc = parse_name(p, out)))
		return rc;
	if ((*out)->kind != N_NAME)
		return parser_fail(p, (*out)->line, "a constant can't be assigned to");
	return with_namespace && token_is_op(p, '.') ? parse_attribute(p, *out, out) : 0;
}

int parse_target(struct parser *p, bool with_namespace, struct node **out)
{
	struct node_list list = { 0 };
	struct node *part, *n;
	uint32_t line = p->t.line;
	int rc = parse_one_target(p, with_namespace, out);

	if (rc || !token_is_op(p, ','))
		return rc;
	if ((rc = parser_add(p, &list, *out)))
		return rc;
	while (token_is_op(p, ',')) {
		if ((rc = parser_next(p)))
			return rc;
		if (ends_tuple(p))
			break;
		if ((rc = parse_one_target(p, with_namespace, &part)) ||
		    (rc = parser_add(p, &list, part)))
			return rc;
	}
	n = parser_node(p, N_TUPLE, line);
	if (!n)
		return -ENOMEM;
	n->items = list.v;
	n->n = list.n;
	*out = n;
	return parser_close(p, n);
}
