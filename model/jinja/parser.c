/* parser.c: parses statements to nodes.  Also what both parts of the parser use: tokens with
 * one of lookahead, counted nodes, interned names. */
#include "model/jinja/jinja_private.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

#define DEFAULT_TEMPLATE_BYTES ((size_t)1 << 20)
#define DEFAULT_NODES 200000
/* The arena's limit: enough for all nodes of a template of the default size. */
#define COMPILE_BYTES ((size_t)96 << 20)

/* After an error the current token is the template's end, so that every loop stops. */
static void stop(struct parser *p, int rc)
{
	p->rc = rc;
	p->has_ahead = false;
	p->t = p->ahead = (struct token){ .kind = T_END, .line = p->t.line };
}

void *parser_fail(struct parser *p, uint32_t line, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	if (p->rc)
		return NULL;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	stop(p, ig_fail(p->err, -EINVAL, "line %u: %s", line, text));
	return NULL;
}

void *parser_unsupported(struct parser *p, const char *what)
{
	parser_fail(p, p->t.line, "%s not supported", what);
	p->rc = -ENOTSUP;
	return NULL;
}

void *parser_alloc(struct parser *p, size_t n, size_t size)
{
	void *memory = p->rc ? NULL : arena_alloc_array(&p->j->arena, n, size);

	if (!memory && p->j->arena.over)
		parser_fail(p, p->t.line, "the template is too large");
	else if (!memory && !p->rc)
		stop(p, ig_fail(p->err, -ENOMEM, "out of memory for a template"));
	return memory;
}

bool parser_enter(struct parser *p)
{
	if (p->depth++ >= MAX_PARSE_DEPTH)
		parser_fail(p, p->t.line, "more than %d nested brackets or blocks",
			    MAX_PARSE_DEPTH);
	return !p->rc;
}

void parser_next(struct parser *p)
{
	int rc = 0;

	if (p->has_ahead)
		p->t = p->ahead;
	else if (!p->rc)
		rc = lexer_next(&p->lexer, &p->t);
	p->has_ahead = false;
	if (rc)
		stop(p, rc);
}

const struct token *parser_peek(struct parser *p)
{
	int rc = p->has_ahead || p->rc ? 0 : lexer_next(&p->lexer, &p->ahead);

	p->has_ahead = !p->rc;
	if (rc)
		stop(p, rc);
	return &p->ahead;
}

struct node *parser_node(struct parser *p, enum node_kind kind, uint32_t line)
{
	struct node *n;

	if (p->n_nodes++ >= p->max_nodes)
		return parser_fail(p, p->t.line, "the template is too large");
	n = parser_alloc(p, 1, sizeof *n);
	if (n)
		*n = (struct node){ .kind = (uint8_t)kind, .line = line, .height = 1 };
	return n;
}

void parser_add(struct parser *p, struct node_list *l, struct node *n)
{
	if (l->n == l->cap) {
		uint32_t cap = l->cap ? 2 * l->cap : 4;
		struct node **v = parser_alloc(p, cap, sizeof *v);
		if (!v)
			return;
		if (l->n)
			memcpy(v, l->v, l->n * sizeof *v);
		l->v = v;
		l->cap = cap;
	}
	l->v[l->n++] = n;
}

struct node *parser_close(struct parser *p, struct node *n)
{
	const struct node *parts[] = { n ? n->a : NULL, n ? n->b : NULL, n ? n->c : NULL };
	unsigned height = 0;

	if (p->rc)
		return NULL;
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
	return n;
}

struct node *parser_close_list(struct parser *p, struct node *n, const struct node_list *l)
{
	if (p->rc)
		return NULL;
	n->items = l->v;
	n->n = l->n;
	return parser_close(p, n);
}

static uint32_t name_hash(const char *s, size_t len)
{
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < len; i++)
		h = (h ^ (unsigned char)s[i]) * 16777619u;
	return h ^ h >> 15;
}

static void grow_names(struct parser *p)
{
	struct ig_jinja *j = p->j;
	uint32_t size = j->names ? 2 * (j->names_mask + 1) : 64;
	const char **names = parser_alloc(p, size, sizeof *names);

	for (uint32_t i = 0; names && j->names && i <= j->names_mask; i++) {
		if (!j->names[i])
			continue;
		uint32_t k = name_hash(j->names[i], strlen(j->names[i])) & (size - 1);
		while (names[k])
			k = (k + 1) & (size - 1);
		names[k] = j->names[i];
	}
	if (!names)
		return;
	j->names = names;
	j->names_mask = size - 1;
}

const char *parser_intern(struct parser *p, const char *s, size_t len)
{
	struct ig_jinja *j = p->j;
	uint32_t i;

	if (!j->names || 2 * j->n_names >= j->names_mask)
		grow_names(p);
	if (p->rc)
		return NULL;
	for (i = name_hash(s, len) & j->names_mask; j->names[i]; i = (i + 1) & j->names_mask)
		if (strlen(j->names[i]) == len && !memcmp(j->names[i], s, len))
			return j->names[i];
	char *copy = parser_alloc(p, len + 1, 1);
	if (!copy)
		return NULL;
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

void *parser_expected(struct parser *p, const char *what)
{
	char found[64];

	token_describe(&p->t, found, sizeof found);
	return parser_fail(p, p->t.line, "%s was expected, not %s", what, found);
}

void parser_expect_op(struct parser *p, int op)
{
	char what[] = { '\'', (char)op, '\'', 0 };

	if (token_is_op(p, op))
		parser_next(p);
	else
		parser_expected(p, what);
}

/* ---- statements --------------------------------------------------------------------- */

static struct node *parse_body(struct parser *p, const char *const *ends);

static void end_statement(struct parser *p)
{
	if (p->t.kind == T_BLOCK_END)
		parser_next(p);
	else
		parser_expected(p, "the end of a statement (%})");
}

/* The %} of the statement that opens a block, and its body up to one of ends, whose name is
 * then the current token. */
static struct node *parse_block(struct parser *p, const char *const *ends)
{
	end_statement(p);
	return parse_body(p, ends);
}

/* A block that only one word ends, and its end statement. */
static struct node *parse_whole_block(struct parser *p, const char *end)
{
	struct node *n = parse_block(p, (const char *const[]){ end, NULL });

	parser_next(p);
	end_statement(p);
	return n;
}

/* Of an if or a for: else's block, if there is one, then the end; the parts become n's. */
static void parse_else(struct parser *p, const char *end, struct node_list *list, struct node *n)
{
	if (token_is_name(p, "else")) {
		parser_next(p);
		parser_add(p, list, parse_block(p, (const char *const[]){ end, NULL }));
	}
	n->items = list->v;
	n->n = list->n;
	parser_next(p);
	end_statement(p);
}

static void parse_if(struct parser *p, struct node *n)
{
	static const char *const ends[] = { "elif", "else", "endif", NULL };
	struct node_list list = { 0 };

	p->n_ifs++;
	do { /* at if or elif */
		parser_next(p);
		parser_add(p, &list, parse_tuple(p, false));
		parser_add(p, &list, parse_block(p, ends));
	} while (token_is_name(p, "elif"));
	parse_else(p, "endif", &list, n);
	p->n_ifs--;
}

static void parse_for(struct parser *p, struct node *n)
{
	static const char *const ends[] = { "else", "endfor", NULL };
	struct node_list list = { 0 };

	parser_next(p);
	n->a = parse_target(p, false);
	if (!token_is_name(p, "in"))
		parser_fail(p, p->t.line, "'in' was expected");
	parser_next(p);
	n->b = parse_tuple(p, false);
	if (token_is_name(p, "if")) {
		parser_next(p);
		n->c = parse_expression(p);
	}
	if (token_is_name(p, "recursive"))
		parser_unsupported(p, "recursive loops are");
	p->n_loops++;
	parser_add(p, &list, parse_block(p, ends));
	p->n_loops--;
	parse_else(p, "endfor", &list, n);
}

static void parse_set(struct parser *p, struct node *n)
{
	parser_next(p);
	n->a = parse_target(p, true);
	if (token_is_op(p, '=')) {
		parser_next(p);
		n->b = parse_tuple(p, true);
		end_statement(p);
		return;
	}
	n->kind = N_SET_BLOCK;
	if (n->a && n->a->kind == N_TUPLE)
		parser_fail(p, p->t.line, "a block can be set to one variable only");
	if (token_is_op(p, '|')) {
		parser_next(p);
		n->b = parse_filters(p, NULL);
	}
	n->c = parse_whole_block(p, "endset");
}

/* (a, b=1) of a macro or a call block: names into keys, defaults into items.  n_keys is the
 * number of parameters; items has as many, NULL where there is no default. */
static void parse_parameters(struct parser *p, struct node *n)
{
	struct node_list list = { 0 };
	const char *names[64];

	parser_expect_op(p, '(');
	while (!p->rc && !token_is_op(p, ')')) {
		struct node *value = NULL;
		if (list.n)
			parser_expect_op(p, ',');
		if (p->t.kind != T_NAME)
			parser_fail(p, p->t.line, "a parameter's name was expected");
		if (list.n == sizeof names / sizeof names[0])
			parser_fail(p, p->t.line, "more than %zu parameters",
				    sizeof names / sizeof names[0]);
		if (p->rc)
			return;
		names[list.n] = parser_intern(p, p->t.p, p->t.len);
		parser_next(p);
		if (token_is_op(p, '=')) {
			parser_next(p);
			value = parse_expression(p);
		} else if (list.n && list.v[list.n - 1]) {
			parser_fail(p, p->t.line,
				    "a parameter without a default after one with a default");
		}
		parser_add(p, &list, value);
	}
	n->keys = parser_alloc(p, list.n, sizeof *n->keys);
	if (!n->keys)
		return;
	if (list.n)
		memcpy(n->keys, names, list.n * sizeof *names);
	n->items = list.v;
	n->n_keys = list.n;
	parser_next(p);
}

/* A body that break can't leave. */
static void parse_macro_body(struct parser *p, const char *end, struct node *n)
{
	unsigned n_loops = p->n_loops;

	p->n_loops = 0;
	n->c = parse_whole_block(p, end);
	p->n_loops = n_loops;
}

static void parse_macro(struct parser *p, struct node *n)
{
	parser_next(p);
	if (p->t.kind != T_NAME)
		parser_fail(p, p->t.line, "the macro's name was expected");
	n->name = parser_intern(p, p->t.p, p->t.len);
	parser_next(p);
	parse_parameters(p, n);
	parse_macro_body(p, "endmacro", n);
}

/* {% call(a) f(x) %} … {% endcall %} */
static void parse_call_block(struct parser *p, struct node *n)
{
	parser_next(p);
	if (token_is_op(p, '('))
		parse_parameters(p, n);
	n->b = parse_expression(p);
	if (n->b && n->b->kind != N_CALL)
		parser_fail(p, n->line, "a call was expected after 'call'");
	n->name = p->j->caller_name;
	parse_macro_body(p, "endcall", n);
}

static void parse_filter_block(struct parser *p, struct node *n)
{
	parser_next(p);
	n->b = parse_filters(p, NULL);
	n->c = parse_whole_block(p, "endfilter");
}

static void parse_with(struct parser *p, struct node *n)
{
	struct node_list list = { 0 };

	parser_next(p);
	while (!p->rc && p->t.kind != T_BLOCK_END) { /* target = value, … */
		if (list.n)
			parser_expect_op(p, ',');
		parser_add(p, &list, parse_target(p, false));
		parser_expect_op(p, '=');
		parser_add(p, &list, parse_expression(p));
	}
	n->items = list.v;
	n->n = list.n;
	n->c = parse_whole_block(p, "endwith");
}

static void parse_generation(struct parser *p, struct node *n)
{
	parser_next(p);
	n->c = parse_whole_block(p, "endgeneration");
}

static void parse_jump(struct parser *p, struct node *n)
{
	parser_next(p);
	if (!p->n_loops)
		parser_fail(p, n->line, "break or continue outside of a loop");
	end_statement(p);
}

static struct node *parse_statement(struct parser *p)
{
	static const struct {
		const char *name;
		enum node_kind kind;
		void (*parse)(struct parser *p, struct node *n);
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
	char found[64], what[96];
	struct node *n;

	if (p->t.kind != T_NAME)
		return parser_expected(p, "a statement");
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		if (!token_is_name(p, table[i].name))
			continue;
		n = parser_node(p, table[i].kind, p->t.line);
		if (n)
			table[i].parse(p, n);
		return parser_close(p, n);
	}
	token_describe(&p->t, found, sizeof found);
	for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
		if (token_is_name(p, refused[i])) {
			snprintf(what, sizeof what, "the statement %s is", found);
			return parser_unsupported(p, what);
		}
	return parser_fail(p, p->t.line, "there is no statement %s here", found);
}

static struct node *parse_output(struct parser *p)
{
	struct node *n = parser_node(p, N_OUTPUT, p->t.line);

	parser_next(p);
	if (n)
		n->a = parse_tuple(p, true);
	if (p->t.kind != T_VAR_END)
		parser_expected(p, "the end of an expression (}})");
	parser_next(p);
	return parser_close(p, n);
}

static bool is_end(const struct parser *p, const char *const *ends)
{
	for (; ends && *ends; ends++)
		if (token_is_name(p, *ends))
			return true;
	return false;
}

static struct node *parse_body(struct parser *p, const char *const *ends)
{
	struct node_list list = { 0 };
	struct node *block = parser_node(p, N_BLOCK, p->t.line), *part;

	parser_enter(p);
	while (!p->rc) {
		if (p->t.kind == T_TEXT) {
			part = parser_node(p, N_TEXT, p->t.line);
			if (part)
				part->value = v_str(p->t.p, p->t.len);
			parser_next(p);
		} else if (p->t.kind == T_VAR_BEGIN) {
			part = parse_output(p);
		} else if (p->t.kind == T_BLOCK_BEGIN) {
			parser_next(p);
			if (is_end(p, ends))
				break;
			part = parse_statement(p);
		} else { /* T_END */
			if (ends)
				parser_fail(p, block->line, "a block has no end; '%s' was expected",
					    ends[0]);
			break;
		}
		parser_add(p, &list, part);
	}
	p->depth--;
	return parser_close_list(p, block, &list);
}

/* ---- compile ------------------------------------------------------------------------ */

/* A copy that the nodes may point into: all newlines are "\n", a last one is dropped. */
static void copy_text(struct parser *p, const char *text, size_t len)
{
	char *s = parser_alloc(p, len + 1, 1);
	size_t n = 0;

	for (size_t i = 0; s && i < len; i++) {
		s[n++] = text[i] == '\r' ? '\n' : text[i];
		i += text[i] == '\r' && i + 1 < len && text[i + 1] == '\n';
	}
	if (n && s[n - 1] == '\n')
		n--;
	p->lexer.s = s;
	p->lexer.len = n;
}

int ig_jinja_compile(const char *text, size_t len, const struct ig_jinja_limits *limits,
		     struct ig_jinja **out, struct ig_error *err)
{
	size_t max_bytes =
		limits && limits->template_bytes ? limits->template_bytes : DEFAULT_TEMPLATE_BYTES;
	struct ig_error inside = { 0 };
	struct parser p = { .err = &inside, .t.line = 1 };

	*out = NULL;
	if (len > max_bytes || len >= UINT32_MAX / 2)
		return ig_fail(err, -EINVAL, "the template has %zu bytes, the limit is %zu", len,
			       max_bytes);
	p.j = calloc(1, sizeof *p.j);
	if (!p.j)
		return ig_fail(err, -ENOMEM, "out of memory for a template");
	arena_init(&p.j->arena, COMPILE_BYTES + 4 * len);
	p.max_nodes = limits && limits->n_nodes ? limits->n_nodes : DEFAULT_NODES;
	p.lexer = (struct lexer){
		.line = 1, .line_start = true, .arena = &p.j->arena, .err = &inside
	};
	copy_text(&p, text, len);
	p.j->loop_name = parser_intern(&p, "loop", 4);
	p.j->caller_name = parser_intern(&p, "caller", 6);
	parser_next(&p);
	p.j->root = parse_body(&p, NULL);
	if (!p.rc) {
		*out = p.j;
		return 0;
	}
	ig_jinja_destroy(p.j);
	return ig_fail(err, p.rc, "%s", inside.text);
}

void ig_jinja_destroy(struct ig_jinja *j)
{
	if (!j)
		return;
	arena_finish(&j->arena);
	free(j);
}
