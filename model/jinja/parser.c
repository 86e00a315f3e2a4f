/*
 * parser.c: statements to nodes, and what both halves of the parser stand on: tokens
 * with one of lookahead, nodes that are counted, names that are interned.
 */
#include "model/jinja/jinja_private.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

#define DEFAULT_TEMPLATE_BYTES ((size_t)1 << 20)
#define DEFAULT_NODES 200000
/* Of the arena: a template of the default size has room for all of its nodes. */
#define COMPILE_BYTES ((size_t)96 << 20)

int parser_fail(struct parser *p, uint32_t line, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	return ig_fail(p->err, -EINVAL, "line %u: %s", line, text);
}

static int out_of_memory(struct parser *p)
{
	if (p->j->arena.over)
		return parser_fail(p, p->t.line, "the template is too large");
	return ig_fail(p->err, -ENOMEM, "out of memory for a template");
}

int parser_enter(struct parser *p)
{
	if (p->depth >= MAX_PARSE_DEPTH)
		return parser_fail(p, p->t.line, "more than %d brackets or blocks in each other",
				   MAX_PARSE_DEPTH);
	p->depth++;
	return 0;
}

int parser_next(struct parser *p)
{
	if (p->has_ahead) {
		p->t = p->ahead;
		p->has_ahead = false;
		return 0;
	}
	return lexer_next(&p->lexer, &p->t);
}

int parser_peek(struct parser *p)
{
	int rc = p->has_ahead ? 0 : lexer_next(&p->lexer, &p->ahead);

	p->has_ahead = !rc;
	return rc;
}

struct node *parser_node(struct parser *p, enum node_kind kind, uint32_t line)
{
	struct node *n;

	if (p->n_nodes++ >= p->max_nodes) {
		p->j->arena.over = true;
		out_of_memory(p);
		return NULL;
	}
	n = arena_alloc(&p->j->arena, sizeof *n);
	if (!n) {
		out_of_memory(p);
		return NULL;
	}
	n->kind = (uint8_t)kind;
	n->line = line;
	n->height = 1;
	return n;
}

int parser_add(struct parser *p, struct node_list *l, struct node *n)
{
	if (l->n == l->cap) {
		uint32_t cap = l->cap ? 2 * l->cap : 4;
		struct node **v = arena_alloc_array(&p->j->arena, cap, sizeof *v);
		if (!v)
			return out_of_memory(p);
		if (l->n)
			memcpy(v, l->v, l->n * sizeof *v);
		l->v = v;
		l->cap = cap;
	}
	l->v[l->n++] = n;
	return 0;
}

int parser_close(struct parser *p, struct node *n)
{
	const struct node *parts[] = { n->a, n->b, n->c };
	unsigned height = 0;

	for (size_t i = 0; i < 3; i++)
		if (parts[i] && parts[i]->height > height)
			height = parts[i]->height;
	for (uint32_t i = 0; i < n->n + n->n_keys; i++)
		if (n->items && n->items[i] && n->items[i]->height > height)
			height = n->items[i]->height;
	if (height >= MAX_NODE_DEPTH)
		return parser_fail(p, n->line, "an expression or block of more than %d levels",
				   MAX_NODE_DEPTH);
	n->height = (uint16_t)(height + 1);
	return 0;
}

static uint32_t name_hash(const char *s, size_t len)
{
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < len; i++)
		h = (h ^ (unsigned char)s[i]) * 16777619u;
	return h ^ h >> 15;
}

static int grow_names(struct parser *p)
{
	struct ig_jinja *j = p->j;
	uint32_t size = j->names ? 2 * (j->names_mask + 1) : 64;
	const char **names = arena_alloc_array(&j->arena, size, sizeof *names);

	if (!names)
		return out_of_memory(p);
	for (uint32_t i = 0; j->names && i <= j->names_mask; i++) {
		if (!j->names[i])
			continue;
		uint32_t k = name_hash(j->names[i], strlen(j->names[i])) & (size - 1);
		while (names[k])
			k = (k + 1) & (size - 1);
		names[k] = j->names[i];
	}
	j->names = names;
	j->names_mask = size - 1;
	return 0;
}

const char *parser_intern(struct parser *p, const char *s, size_t len)
{
	struct ig_jinja *j = p->j;
	uint32_t i;

	if ((!j->names || 2 * j->n_names >= j->names_mask) && grow_names(p))
		return NULL;
	for (i = name_hash(s, len) & j->names_mask; j->names[i]; i = (i + 1) & j->names_mask)
		if (strlen(j->names[i]) == len && !memcmp(j->names[i], s, len))
			return j->names[i];
	char *copy = arena_alloc(&j->arena, len + 1);
	if (!copy) {
		out_of_memory(p);
		return NULL;
	}
	memcpy(copy, s, len);
	j->n_names++;
	return j->names[i] = copy;
}

bool token_is_op(const struct parser *p, int op) { return p->t.kind == T_OP && p->t.op == op; }

bool token_is_name(const struct parser *p, const char *name)
{
	return p->t.kind == T_NAME && p->t.len == strlen(name) && !memcmp(p->t.p, name, p->t.len);
}

void token_describe(const struct token *t, char *buf, size_t size)
{
	int len = t->len < 40 ? (int)t->len : 40;

	switch (t->kind) {
	case T_END: snprintf(buf, size, "the template's end"); break;
	case T_TEXT: snprintf(buf, size, "text"); break;
	case T_BLOCK_BEGIN: snprintf(buf, size, "{%%"); break;
	case T_BLOCK_END: snprintf(buf, size, "%%}"); break;
	case T_VAR_BEGIN: snprintf(buf, size, "{{"); break;
	case T_VAR_END: snprintf(buf, size, "}}"); break;
	case T_NAME: snprintf(buf, size, "'%.*s'", len, t->p); break;
	case T_STRING: snprintf(buf, size, "a string"); break;
	case T_INT:
	case T_FLOAT: snprintf(buf, size, "a number"); break;
	default:
		if (t->op > 0xff)
			snprintf(buf, size, "'%c%c'", t->op >> 8, t->op & 0xff);
		else
			snprintf(buf, size, "'%c'", t->op);
	}
}

int parser_expect_op(struct parser *p, int op)
{
	char what[64];

	if (token_is_op(p, op))
		return parser_next(p);
	token_describe(&p->t, what, sizeof what);
	return parser_fail(p, p->t.line, "'%c' was expected, not %s", op, what);
}

/* ---- statements --------------------------------------------------------------------- */

static int parse_body(struct parser *p, const char *const *ends, struct node **out);

static int end_statement(struct parser *p)
{
	char what[64];

	if (p->t.kind == T_BLOCK_END)
		return parser_next(p);
	token_describe(&p->t, what, sizeof what);
	return parser_fail(p, p->t.line, "the end of a statement (%%}) was expected, not %s", what);
}

/* %} of the statement that opens a block, its body up to one of ends, whose name is
 * current then. */
static int parse_block(struct parser *p, const char *const *ends, struct node **out)
{
	int rc = end_statement(p);

	return rc ? rc : parse_body(p, ends, out);
}

/* A block up to its only end, and that. */
static int parse_whole_block(struct parser *p, const char *end, struct node **out)
{
	int rc = parse_block(p, (const char *const[]){ end, NULL }, out);

	if (!rc && !(rc = parser_next(p)))
		rc = end_statement(p);
	return rc;
}

static int parse_if(struct parser *p, struct node *n)
{
	static const char *const ends[] = { "elif", "else", "endif", NULL };
	struct node_list list = { 0 };
	struct node *part;
	int rc;

	p->n_ifs++;
	do { /* at if or elif */
		if ((rc = parser_next(p)) || (rc = parse_tuple(p, false, &part)) ||
		    (rc = parser_add(p, &list, part)) || (rc = parse_block(p, ends, &part)) ||
		    (rc = parser_add(p, &list, part)))
			return rc;
	} while (token_is_name(p, "elif"));
	if (token_is_name(p, "else")) {
		if ((rc = parser_next(p)) ||
		    (rc = parse_block(p, (const char *const[]){ "endif", NULL }, &part)) ||
		    (rc = parser_add(p, &list, part)))
			return rc;
	}
	p->n_ifs--;
	n->items = list.v;
	n->n = list.n;
	rc = parser_next(p);
	return rc ? rc : end_statement(p);
}

static int parse_for(struct parser *p, struct node *n)
{
	static const char *const ends[] = { "else", "endfor", NULL };
	struct node_list list = { 0 };
	struct node *part;
	int rc;

	if ((rc = parser_next(p)) || (rc = parse_target(p, false, &n->a)))
		return rc;
	if (!token_is_name(p, "in"))
		return parser_fail(p, p->t.line, "'in' was expected");
	if ((rc = parser_next(p)) || (rc = parse_tuple(p, false, &n->b)))
		return rc;
	if (token_is_name(p, "if") && ((rc = parser_next(p)) || (rc = parse_expression(p, &n->c))))
		return rc;
	if (token_is_name(p, "recursive")) {
		parser_fail(p, p->t.line, "recursive loops are not supported");
		return -ENOTSUP;
	}
	p->n_loops++;
	rc = parse_block(p, ends, &part);
	p->n_loops--;
	if (rc || (rc = parser_add(p, &list, part)))
		return rc;
	if (token_is_name(p, "else") &&
	    ((rc = parser_next(p)) ||
	     (rc = parse_block(p, (const char *const[]){ "endfor", NULL }, &part)) ||
	     (rc = parser_add(p, &list, part))))
		return rc;
	n->items = list.v;
	n->n = list.n;
	rc = parser_next(p);
	return rc ? rc : end_statement(p);
}

static int parse_set(struct parser *p, struct node *n)
{
	int rc;

	if ((rc = parser_next(p)) || (rc = parse_target(p, true, &n->a)))
		return rc;
	if (token_is_op(p, '=')) {
		if ((rc = parser_next(p)) || (rc = parse_tuple(p, true, &n->b)))
			return rc;
		return end_statement(p);
	}
	n->kind = N_SET_BLOCK;
	if (n->a->kind == N_TUPLE)
		return parser_fail(p, p->t.line, "a block can be set to one variable only");
	if (token_is_op(p, '|') && ((rc = parser_next(p)) || (rc = parse_filters(p, NULL, &n->b))))
		return rc;
	return parse_whole_block(p, "endset", &n->c);
}

/* (a, b=1) of a macro or a call block: names into keys, defaults into items.  n_keys
 * stays the number of parameters; items has as many, NULL where there is no default. */
static int parse_parameters(struct parser *p, struct node *n)
{
	struct node_list list = { 0 };
	const char *names[64];
	int rc = parser_expect_op(p, '(');

	while (!rc && !token_is_op(p, ')')) {
		struct node *value = NULL;
		if (list.n && (rc = parser_expect_op(p, ',')))
			break;
		if (p->t.kind != T_NAME)
			return parser_fail(p, p->t.line, "a parameter's name was expected");
		if (list.n == sizeof names / sizeof names[0])
			return parser_fail(p, p->t.line, "more than %zu parameters",
					   sizeof names / sizeof names[0]);
		names[list.n] = parser_intern(p, p->t.p, p->t.len);
		if (!names[list.n])
			return -ENOMEM;
		if ((rc = parser_next(p)))
			break;
		if (token_is_op(p, '=')) {
			if ((rc = parser_next(p)) || (rc = parse_expression(p, &value)))
				break;
		} else if (list.n && list.v[list.n - 1]) {
			return parser_fail(p, p->t.line,
					   "a parameter without a default behind one with");
		}
		rc = parser_add(p, &list, value);
	}
	if (rc)
		return rc;
	n->keys = arena_alloc_array(&p->j->arena, list.n, sizeof *n->keys);
	if (!n->keys)
		return out_of_memory(p);
	if (list.n)
		memcpy(n->keys, names, list.n * sizeof *names);
	n->items = list.v;
	n->n_keys = list.n;
	return parser_next(p);
}

static int parse_macro(struct parser *p, struct node *n)
{
	unsigned n_loops = p->n_loops;
	int rc;

	if ((rc = parser_next(p)))
		return rc;
	if (p->t.kind != T_NAME)
		return parser_fail(p, p->t.line, "the macro's name was expected");
	n->name = parser_intern(p, p->t.p, p->t.len);
	if (!n->name)
		return -ENOMEM;
	p->n_loops = 0; /* break can't leave a macro */
	if (!(rc = parser_next(p)) && !(rc = parse_parameters(p, n)))
		rc = parse_whole_block(p, "endmacro", &n->c);
	p->n_loops = n_loops;
	return rc;
}

/* {% call(a) f(x) %} … {% endcall %} */
static int parse_call_block(struct parser *p, struct node *n)
{
	unsigned n_loops = p->n_loops;
	int rc = parser_next(p);

	if (rc || (token_is_op(p, '(') && (rc = parse_parameters(p, n))) ||
	    (rc = parse_expression(p, &n->b)))
		return rc;
	if (n->b->kind != N_CALL)
		return parser_fail(p, n->line, "a call was expected behind 'call'");
	n->name = p->j->caller_name;
	p->n_loops = 0;
	rc = parse_whole_block(p, "endcall", &n->c);
	p->n_loops = n_loops;
	return rc;
}

static int parse_filter_block(struct parser *p, struct node *n)
{
	int rc;

	if ((rc = parser_next(p)) || (rc = parse_filters(p, NULL, &n->b)))
		return rc;
	return parse_whole_block(p, "endfilter", &n->c);
}

static int parse_with(struct parser *p, struct node *n)
{
	struct node_list list = { 0 };
	struct node *part;
	int rc = parser_next(p);

	/* Targets and values by turns. */
	while (!rc && p->t.kind != T_BLOCK_END) {
		if (list.n && (rc = parser_expect_op(p, ',')))
			break;
		if ((rc = parse_target(p, false, &part)) || (rc = parser_add(p, &list, part)) ||
		    (rc = parser_expect_op(p, '=')) || (rc = parse_expression(p, &part)) ||
		    (rc = parser_add(p, &list, part)))
			break;
	}
	n->items = list.v;
	n->n = list.n;
	return rc ? rc : parse_whole_block(p, "endwith", &n->c);
}

static int parse_generation(struct parser *p, struct node *n)
{
	int rc = parser_next(p);

	return rc ? rc : parse_whole_block(p, "endgeneration", &n->c);
}

static int parse_jump(struct parser *p, struct node *n)
{
	int rc = parser_next(p);

	if (!p->n_loops)
		return parser_fail(p, n->line, "break or continue outside of a loop");
	return rc ? rc : end_statement(p);
}

static int parse_statement(struct parser *p, struct node **out)
{
	static const struct {
		const char *name;
		enum node_kind kind;
		int (*parse)(struct parser *p, struct node *n);
	} table[] = {
		{ "if", N_IF, parse_if },
		{ "for", N_FOR, parse_for },
		{ "set", N_SET, parse_set },
		{ "macro", N_MACRO, parse_macro },
		{ "call", N_CALL_BLOCK, parse_call_block },
		{ "filter", N_FILTER_BLOCK, parse_filter_block },
		{ "with", N_WITH, parse_with },
		{ "generation", N_SCOPE, parse_generation },
		{ "break", N_BREAK, parse_jump },
		{ "continue", N_CONTINUE, parse_jump },
	};
	static const char *const refused[] = {
		"include",    "import", "from",	 "extends", "block",
		"autoescape", "do",	"trans", "debug",
	};
	char what[64];
	int rc;

	token_describe(&p->t, what, sizeof what);
	if (p->t.kind != T_NAME)
		return parser_fail(p, p->t.line, "a statement was expected, not %s", what);
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		if (!token_is_name(p, table[i].name))
			continue;
		*out = parser_node(p, table[i].kind, p->t.line);
		if (!*out)
			return -ENOMEM;
		rc = table[i].parse(p, *out);
		return rc ? rc : parser_close(p, *out);
	}
	for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
		if (token_is_name(p, refused[i])) {
			parser_fail(p, p->t.line, "the statement %s is not supported", what);
			return -ENOTSUP;
		}
	return parser_fail(p, p->t.line, "there is no statement %s here", what);
}

static int parse_output(struct parser *p, struct node **out)
{
	struct node *n = parser_node(p, N_OUTPUT, p->t.line);
	char what[64];
	int rc;

	if (!n)
		return -ENOMEM;
	*out = n;
	if ((rc = parser_next(p)) || (rc = parse_tuple(p, true, &n->a)))
		return rc;
	if (p->t.kind != T_VAR_END) {
		token_describe(&p->t, what, sizeof what);
		return parser_fail(p, p->t.line,
				   "the end of an expression (}}) was expected, not %s", what);
	}
	rc = parser_close(p, n);
	return rc ? rc : parser_next(p);
}

static bool is_end(const struct parser *p, const char *const *ends)
{
	for (; ends && *ends; ends++)
		if (token_is_name(p, *ends))
			return true;
	return false;
}

static int parse_body(struct parser *p, const char *const *ends, struct node **out)
{
	struct node_list list = { 0 };
	struct node *block = parser_node(p, N_BLOCK, p->t.line), *part = NULL;
	int rc;

	if (!block)
		return -ENOMEM;
	if ((rc = parser_enter(p)))
		return rc;
	for (;;) {
		switch (p->t.kind) {
		case T_TEXT:
			part = parser_node(p, N_TEXT, p->t.line);
			if (!part)
				return -ENOMEM;
			part->value = v_str(p->t.p, p->t.len);
			rc = parser_next(p);
			break;
		case T_VAR_BEGIN: rc = parse_output(p, &part); break;
		case T_BLOCK_BEGIN:
			if ((rc = parser_next(p)))
				return rc;
			if (is_end(p, ends))
				goto done;
			rc = parse_statement(p, &part);
			break;
		default: /* T_END */
			if (ends)
				return parser_fail(p, block->line,
						   "a block has no end; '%s' was expected",
						   ends[0]);
			goto done;
		}
		if (rc || (rc = parser_add(p, &list, part)))
			return rc;
	}
done:
	p->depth--;
	block->items = list.v;
	block->n = list.n;
	*out = block;
	return parser_close(p, block);
}

/* ---- compile ------------------------------------------------------------------------ */

/* A copy that the nodes may point into: all newlines are "\n", a last one is dropped. */
static int copy_text(struct parser *p, const char *text, size_t len)
{
	char *s = arena_alloc(&p->j->arena, len + 1);
	size_t n = 0;

	if (!s)
		return out_of_memory(p);
	for (size_t i = 0; i < len; i++) {
		if (text[i] == '\r') {
			s[n++] = '\n';
			i += i + 1 < len && text[i + 1] == '\n';
		} else {
			s[n++] = text[i];
		}
	}
	if (n && s[n - 1] == '\n')
		n--;
	p->lexer.s = s;
	p->lexer.len = n;
	return 0;
}

int ig_jinja_compile(const char *text, size_t len, const struct ig_jinja_limits *limits,
		     struct ig_jinja **out, struct ig_error *err)
{
	size_t max_bytes =
		limits && limits->template_bytes ? limits->template_bytes : DEFAULT_TEMPLATE_BYTES;
	struct ig_error inside = { 0 };
	struct parser p = { .err = &inside };
	int rc;

	*out = NULL;
	if (len > max_bytes || len >= UINT32_MAX / 2)
		return ig_fail(err, -EINVAL, "the template has %zu bytes, the limit is %zu", len,
			       max_bytes);
	p.j = calloc(1, sizeof *p.j);
	if (!p.j)
		return ig_fail(err, -ENOMEM, "out of memory for a template");
	arena_init(&p.j->arena, COMPILE_BYTES + 4 * len);
	p.max_nodes = limits && limits->n_nodes ? limits->n_nodes : DEFAULT_NODES;
	p.t.line = 1;
	p.lexer = (struct lexer){
		.line = 1, .line_start = true, .arena = &p.j->arena, .err = &inside
	};
	if ((rc = copy_text(&p, text, len)))
		goto out;
	p.j->loop_name = parser_intern(&p, "loop", 4);
	p.j->caller_name = parser_intern(&p, "caller", 6);
	if (!p.j->loop_name || !p.j->caller_name) {
		rc = -ENOMEM;
		goto out;
	}
	if ((rc = parser_next(&p)) || (rc = parse_body(&p, NULL, &p.j->root)))
		goto out;
	*out = p.j;
	return 0;
out:
	/* A function that had no memory says -ENOMEM whether the machine's or the limit's. */
	if (rc == -ENOMEM && inside.code)
		rc = inside.code;
	if (rc == -ENOTSUP)
		inside.code = rc;
	ig_fail(err, rc, "%s", inside.text);
	ig_jinja_destroy(p.j);
	return rc;
}

void ig_jinja_destroy(struct ig_jinja *j)
{
	if (!j)
		return;
	arena_finish(&j->arena);
	free(j);
}
