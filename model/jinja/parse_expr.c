/* parse_expr.c: parses expressions to nodes, by Jinja's grammar.  Conditions bind loosest,
 * then or, and, not, comparisons, + -, ~, * / // %, **, signs; . [] () | and is bind tightest. */
#include "model/jinja/jinja_private.h"

struct node *parse_node(struct parser *p, enum node_kind kind, int op, uint32_t line,
			struct node *a, struct node *b)
{
	struct node *n = parser_node(p, kind, line);

	if (!n)
		return NULL;
	n->op = (uint8_t)op;
	n->a = a;
	n->b = b;
	return parser_close(p, n);
}

/* ---- operators ---------------------------------------------------------------------- */

static struct node *parse_unary(struct parser *p, bool with_filters)
{
	uint32_t line = p->t.line;
	struct node *n;

	if (!parser_enter(p))
		return NULL;
	if (token_is_op(p, '-') || token_is_op(p, '+')) {
		enum node_kind kind = token_is_op(p, '-') ? N_NEG : N_POS;
		parser_next(p);
		n = parse_node(p, kind, 0, line, parse_unary(p, false), NULL);
	} else {
		n = parse_primary(p);
	}
	n = parse_postfix(p, n);
	if (with_filters)
		n = parse_filtered(p, n);
	p->depth--;
	return n;
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

static struct node *parse_level(struct parser *p, unsigned level);

static struct node *parse_concat(struct parser *p)
{
	struct node_list list = { 0 };
	uint32_t line = p->t.line;
	struct node *first = parse_level(p, 1);

	if (!token_is_op(p, '~'))
		return first;
	parser_add(p, &list, first);
	while (token_is_op(p, '~')) {
		parser_next(p);
		parser_add(p, &list, parse_level(p, 1));
	}
	return parser_close_list(p, parser_node(p, N_CONCAT, line), &list);
}

/* What the operators of a level stand between. */
static struct node *parse_operand(struct parser *p, unsigned level)
{
	return level == 0 ? parse_unary(p, true) : level == 1 ? parse_level(p, 0) : parse_concat(p);
}

static struct node *parse_level(struct parser *p, unsigned level)
{
	struct node *left = parse_operand(p, level);
	int op;

	while ((op = operator_at(p, level)) >= 0) {
		uint32_t line = p->t.line;
		parser_next(p);
		left = parse_node(p, N_BINARY, op, line, left, parse_operand(p, level));
	}
	return left;
}

/* Reads a comparison operator if one is current; -1: none. */
static int compare_operator(struct parser *p)
{
	static const struct {
		int op, node_op;
	} table[] = {
		{ OP2('=', '='), OP_EQ }, { OP2('!', '='), OP_NE }, { OP2('<', '='), OP_LE },
		{ OP2('>', '='), OP_GE }, { '<', OP_LT },	    { '>', OP_GT },
	};
	int op = -1;

	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		if (token_is_op(p, table[i].op))
			op = table[i].node_op;
	if (token_is_name(p, "in"))
		op = OP_IN;
	if (token_is_name(p, "not")) {
		const struct token *ahead = parser_peek(p);
		if (ahead->kind != T_NAME || ahead->len != 2 || memcmp(ahead->p, "in", 2))
			return -1;
		op = OP_NOT_IN;
		parser_next(p);
	}
	if (op >= 0)
		parser_next(p);
	return op;
}

static struct node *parse_compare(struct parser *p)
{
	struct node_list list = { 0 };
	uint8_t ops[16];
	uint32_t line = p->t.line;
	struct node *left = parse_level(p, 2), *n;
	int op = compare_operator(p);

	if (op < 0)
		return left;
	for (; op >= 0; op = compare_operator(p)) {
		if (list.n == sizeof ops)
			return parser_fail(p, line, "too many comparisons in a row");
		ops[list.n] = (uint8_t)op;
		parser_add(p, &list, parse_level(p, 2));
		if (p->rc)
			return NULL;
	}
	n = parser_node(p, N_COMPARE, line);
	if (!n || !(n->ops = parser_alloc(p, list.n, 1)))
		return NULL;
	n->a = left;
	memcpy(n->ops, ops, list.n);
	return parser_close_list(p, n, &list);
}

static struct node *parse_not(struct parser *p)
{
	uint32_t line = p->t.line;
	unsigned n_nots = 0;
	struct node *n;

	for (; token_is_name(p, "not"); n_nots++)
		parser_next(p);
	for (n = parse_compare(p); n_nots; n_nots--)
		n = parse_node(p, N_NOT, 0, line, n, NULL);
	return n;
}

/* a and b, or a or b, of what binds tighter. */
static struct node *parse_logic(struct parser *p, enum node_kind kind)
{
	struct node *left = kind == N_OR ? parse_logic(p, N_AND) : parse_not(p), *right;

	while (token_is_name(p, kind == N_OR ? "or" : "and")) {
		uint32_t line = p->t.line;
		parser_next(p);
		right = kind == N_OR ? parse_logic(p, N_AND) : parse_not(p);
		left = parse_node(p, kind, 0, line, left, right);
	}
	return left;
}

struct node *parse_expression(struct parser *p)
{
	struct node *n = parser_enter(p) ? parse_logic(p, N_OR) : NULL;

	while (token_is_name(p, "if")) {
		struct node *value = n;
		n = parser_node(p, N_IF_EXPR, p->t.line);
		if (!n)
			break;
		n->b = value;
		p->n_ifs++;
		parser_next(p);
		n->a = parse_logic(p, N_OR);
		if (token_is_name(p, "else")) {
			parser_next(p);
			n->c = parse_expression(p);
		}
		p->n_ifs--;
		n = parser_close(p, n);
	}
	p->depth--;
	return n;
}

/* ---- what commas may separate ------------------------------------------------------- */

enum part { PART_EXPRESSION, PART_NO_CONDITION, PART_NAME, PART_NAME_OR_ATTRIBUTE };

static struct node *parse_list(struct parser *p, enum part part);

/* One name, namespace.attribute, or (a, b). */
static struct node *parse_one_target(struct parser *p, enum part part)
{
	struct node *n;

	if (token_is_op(p, '(')) {
		parser_enter(p);
		parser_next(p);
		n = parse_list(p, part);
		parser_expect_op(p, ')');
		p->depth--;
		return n;
	}
	if (p->t.kind != T_NAME)
		return parser_fail(p, p->t.line, "a variable's name was expected");
	n = parse_name(p);
	if (n && n->kind != N_NAME)
		return parser_fail(p, n->line, "a constant can't be assigned to");
	return part == PART_NAME_OR_ATTRIBUTE && token_is_op(p, '.') ? parse_attribute(p, n) : n;
}

static struct node *parse_part(struct parser *p, enum part part)
{
	return part == PART_EXPRESSION	 ? parse_expression(p) :
	       part == PART_NO_CONDITION ? parse_logic(p, N_OR) :
					   parse_one_target(p, part);
}

static bool ends_tuple(const struct parser *p)
{
	return p->t.kind == T_BLOCK_END || p->t.kind == T_VAR_END || token_is_op(p, ')') ||
	       token_is_op(p, '=') || token_is_name(p, "in") || token_is_name(p, "recursive");
}

/* One part, or with a comma a tuple. */
static struct node *parse_list(struct parser *p, enum part part)
{
	struct node_list list = { 0 };
	uint32_t line = p->t.line;
	struct node *first = parse_part(p, part);

	if (!token_is_op(p, ','))
		return first;
	parser_add(p, &list, first);
	while (token_is_op(p, ',')) {
		parser_next(p);
		if (ends_tuple(p))
			break;
		parser_add(p, &list, parse_part(p, part));
	}
	return parser_close_list(p, parser_node(p, N_TUPLE, line), &list);
}

struct node *parse_tuple(struct parser *p, bool with_condition)
{
	return parse_list(p, with_condition ? PART_EXPRESSION : PART_NO_CONDITION);
}

struct node *parse_target(struct parser *p, bool with_namespace)
{
	return parse_list(p, with_namespace ? PART_NAME_OR_ATTRIBUTE : PART_NAME);
}
