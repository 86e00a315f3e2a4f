/*
 * jinja_private.h: what the parts of the interpreter share.
 *
 *	lexer.c    text to tokens, Jinja's rules for white space
 *	parser.c   statements; parse_expr.c: expressions; both to nodes
 *	interp.c   walks the nodes of statements; eval.c: those of expressions
 *	value.c    lists, dicts, comparison; text.c: strings and how values print
 *	filters.c, tests.c, methods.c  what templates call
 *
 * Nodes and values lie in arenas: one belongs to the compiled template, one to each
 * rendering; nothing is freed on its own.
 */
#pragma once

#include "base/hash.h"
#include "model/jinja/jinja.h"

#include <string.h>

#define MAX_PARSE_DEPTH 120 /* brackets and blocks in each other */
#define MAX_NODE_DEPTH 400  /* height of the tree that is evaluated */
#define MAX_EVAL_DEPTH 600  /* nodes under evaluation, macros that call each other included */
#define MAX_VALUE_DEPTH 120 /* lists in lists */

/* ---- arena ------------------------------------------------------------------------ */

struct arena {
	struct arena_chunk *chunks;
	size_t used, cap;    /* of the first chunk */
	size_t total, limit; /* bytes of all chunks */
	bool over;	     /* the limit was reached, not the machine's memory */
};

void arena_init(struct arena *a, size_t limit);
void arena_finish(struct arena *a);
/* Zeroed and aligned for anything.  NULL: a->over says why. */
void *arena_alloc(struct arena *a, size_t size);
void *arena_alloc_array(struct arena *a, size_t n, size_t size);

/* ---- values ----------------------------------------------------------------------- */

enum kind {
	K_UNDEFINED, /* p, len: its name, for errors; client: enum undefined_as */
	K_NONE,
	K_BOOL,
	K_INT,
	K_FLOAT,
	K_STR,
	K_LIST,
	K_TUPLE,
	K_DICT,
	K_NAMESPACE,
	K_MACRO,
	K_BUILTIN, /* range, dict … */
	K_METHOD,  /* of a value: "x".strip */
	K_LOOP,
};

enum undefined_as { UNDEFINED_NAME, UNDEFINED_ATTRIBUTE, UNDEFINED_FORBIDDEN };

struct value {
	uint8_t kind;
	uint8_t client; /* a string without mask: all of it is a client's */
	uint8_t safe;	/* a string that + does not escape, but escapes what is added to it */
	uint32_t len;	/* of a string, or of what is undefined */
	union {
		int64_t i; /* int, bool, builtin */
		double f;
		const char *p;	   /* string */
		struct list *list; /* and tuple */
		struct dict *dict;
		struct space *space;
		const struct macro *macro;
		const struct method *method;
		struct loop *loop;
	};
	const uint8_t *mask; /* [len]: 1 where a string's byte is a client's; NULL: see client */
};

struct list { /* immutable once others can see it */
	struct value *items;
	size_t n, cap;
};

struct pair {
	struct value key, value;
};

struct dict {
	struct pair *pairs; /* in order of insertion */
	size_t n, cap;
	uint32_t *slots; /* open addressing: index + 1; NULL while small */
	uint32_t mask;
	const struct ig_hash_key *hash_key; /* the run's */
};

struct method {
	struct value self;
	int id; /* enum method_id */
};

struct loop {
	const struct value *items;
	size_t n, index; /* from 0 */
	struct value last_changed;
	bool has_changed;
};

static inline struct value v_none(void) { return (struct value){ .kind = K_NONE }; }
static inline struct value v_bool(bool b) { return (struct value){ .kind = K_BOOL, .i = b }; }
static inline struct value v_int(int64_t i) { return (struct value){ .kind = K_INT, .i = i }; }
static inline struct value v_float(double f) { return (struct value){ .kind = K_FLOAT, .f = f }; }
static inline struct value v_str(const char *s, size_t len)
{
	return (struct value){ .kind = K_STR, .len = (uint32_t)len, .p = s };
}
static inline struct value v_lit(const char *s) { return v_str(s, strlen(s)); }
static inline struct value v_undefined(enum undefined_as as, const char *name, size_t len)
{
	return (struct value){ .kind = K_UNDEFINED, .client = as, .len = (uint32_t)len, .p = name };
}
static inline bool is_str(const struct value *v) { return v->kind == K_STR; }
static inline bool is_list(const struct value *v)
{
	return v->kind == K_LIST || v->kind == K_TUPLE;
}
static inline bool is_int(const struct value *v) { return v->kind == K_INT || v->kind == K_BOOL; }
static inline bool is_number(const struct value *v) { return is_int(v) || v->kind == K_FLOAT; }
static inline double as_float(const struct value *v)
{
	return v->kind == K_FLOAT ? v->f : (double)v->i;
}
static inline bool str_is(const struct value *v, const char *s)
{
	return v->kind == K_STR && v->len == strlen(s) && !memcmp(v->p, s, v->len);
}
/* Bytes first … first + len of a string, with who wrote them. */
static inline struct value str_slice(const struct value *s, size_t first, size_t len)
{
	struct value v = *s;

	v.p += first;
	v.len = (uint32_t)len;
	if (v.mask)
		v.mask += first;
	return v;
}

/* ---- nodes ------------------------------------------------------------------------ */

enum node_kind {
	/* expressions */
	N_CONST, /* value */
	N_NAME,	 /* name */
	N_LIST,
	N_TUPLE,  /* items */
	N_DICT,	  /* items: key, value, key, value … */
	N_ATTR,	  /* a.value */
	N_INDEX,  /* a[b] */
	N_SLICE,  /* a[items 0:1:2], items may be NULL */
	N_CALL,	  /* a(items…; keys…) */
	N_FILTER, /* a | id(items…) ; a NULL: the body of a filter block */
	N_TEST,	  /* a is id(items…) */
	N_NOT,
	N_NEG,
	N_POS, /* a */
	N_AND,
	N_OR,	   /* a, b */
	N_IF_EXPR, /* b if a else c; c may be NULL */
	N_BINARY,  /* a op b */
	N_CONCAT,  /* items, joined */
	N_COMPARE, /* a, then items with ops */
	/* statements */
	N_TEXT,	  /* value */
	N_OUTPUT, /* a */
	N_BLOCK,  /* items */
	N_IF,	  /* items: condition, block, condition, block …, then maybe else's block (odd) */
	N_FOR,	  /* target a in b if c: body items[0], else items[1] (or NULL) */
	N_SET,	  /* a = b */
	N_SET_BLOCK,	/* a = the text of c, through the filters b (or NULL) */
	N_MACRO,	/* name(keys = items): body c; items NULL: no default */
	N_CALL_BLOCK,	/* b is an N_CALL; as N_MACRO for caller's own parameters, body c */
	N_FILTER_BLOCK, /* b: filters; body c */
	N_WITH,		/* keys = items, body c */
	N_SCOPE,	/* body c in a scope of its own: generation */
	N_BREAK,
	N_CONTINUE,
	/* targets: N_NAME, N_TUPLE of them, or N_ATTR of a namespace */
};

enum op {
	OP_ADD,
	OP_SUB,
	OP_MUL,
	OP_DIV,
	OP_FLOORDIV,
	OP_MOD,
	OP_POW,
	OP_EQ,
	OP_NE,
	OP_LT,
	OP_LE,
	OP_GT,
	OP_GE,
	OP_IN,
	OP_NOT_IN,
};

struct node {
	uint8_t kind;
	uint8_t op;
	uint16_t height;
	uint32_t line;
	uint32_t n; /* items */
	uint32_t n_keys;
	struct node *a, *b, *c;
	struct node **items;
	const char **keys; /* interned names, of keyword arguments or parameters */
	uint8_t *ops;	   /* [n], of comparisons */
	const char *name;  /* interned: equal names are equal pointers */
	int id;		   /* filter, test */
	struct value value;
};

struct ig_jinja {
	struct arena arena;
	struct node *root;
	/* Names by hash, so that variables are found by comparing pointers. */
	const char **names;
	uint32_t n_names, names_mask;
	const char *loop_name, *caller_name; /* interned */
};

/* ---- lexer ------------------------------------------------------------------------ */

enum token_kind {
	T_END,
	T_TEXT,
	T_BLOCK_BEGIN,
	T_BLOCK_END,
	T_VAR_BEGIN,
	T_VAR_END,
	T_NAME,
	T_STRING,
	T_INT,
	T_FLOAT,
	T_OP,
};

/* Operators of two characters have their first twice as high. */
#define OP2(a, b) ((a) << 8 | (b))

struct token {
	uint8_t kind;
	uint32_t line;
	int op;	       /* of T_OP: the character, or OP2 */
	const char *p; /* text, name, or string without its escapes */
	uint32_t len;
	int64_t i;
	double f;
};

struct lexer {
	const char *s;
	size_t len, pos;
	uint32_t line;
	struct arena *arena;
	struct ig_error *err;
	enum { IN_TEXT, IN_BLOCK, IN_VAR } state;
	bool line_start; /* what was read last ended with a newline */
	bool after_dot;
	unsigned n_open; /* brackets */
	char open[MAX_PARSE_DEPTH];
};

/* 0 or a negative errno with text. */
int lexer_next(struct lexer *x, struct token *t);

/* ---- parser ----------------------------------------------------------------------- */

struct parser {
	struct lexer lexer;
	struct token t, ahead; /* the current token, and the one behind it if has_ahead */
	bool has_ahead;
	struct ig_jinja *j;
	struct ig_error *err;
	size_t n_nodes, max_nodes;
	unsigned depth, n_loops, n_ifs;
};

int parser_fail(struct parser *p, uint32_t line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int parser_enter(struct parser *p); /* 0, or -EINVAL when too deep; then p->depth-- */
int parser_next(struct parser *p);
int parser_peek(struct parser *p);
struct node *parser_node(struct parser *p, enum node_kind kind, uint32_t line); /* NULL: failed */
/* A growing list of nodes of the arena. */
struct node_list {
	struct node **v;
	uint32_t n, cap;
};
int parser_add(struct parser *p, struct node_list *l, struct node *n);
/* Set n's height from its parts; 0, or -EINVAL when it is too high. */
int parser_close(struct parser *p, struct node *n);
const char *parser_intern(struct parser *p, const char *s, size_t len); /* NULL: failed */
bool token_is_op(const struct parser *p, int op);
bool token_is_name(const struct parser *p, const char *name);
int parser_expect_op(struct parser *p, int op);
void token_describe(const struct token *t, char *buf, size_t size);

/* Expressions.  tuple: commas make one; no condition: `x if y` ends before the if. */
int parse_expression(struct parser *p, struct node **out);
int parse_tuple(struct parser *p, bool with_condition, struct node **out);
int parse_target(struct parser *p, bool with_namespace, struct node **out);
int parse_filters(struct parser *p, struct node *of, struct node **out); /* after the first | */
int parse_arguments(struct parser *p, struct node *call);		 /* the ( is current */

/* ---- the run ---------------------------------------------------------------------- */

struct var {
	const char *name;
	struct value value;
};

/* Variables of one block; a macro keeps the scope that it was defined in. */
struct scope {
	struct scope *parent;
	struct var *vars;
	uint32_t n, cap;
	bool kept; /* a macro was defined in it */
};

struct macro {
	const struct node *node; /* N_MACRO or N_CALL_BLOCK */
	struct scope *scope;
	const char *name;
};

/* A namespace's attributes change. */
struct space {
	struct pair *pairs;
	size_t n, cap;
};

/* Text under construction; like every value it lies in the arena. */
struct builder {
	struct run *r;
	char *p;
	uint8_t *mask; /* [cap], once template's and client's bytes differ */
	size_t len, cap;
	size_t limit;
	bool client; /* of all bytes so far, while mask is NULL */
	bool failed; /* r->rc has the reason */
};

struct run {
	const struct ig_jinja *j;
	struct arena arena;
	struct ig_error *err;
	int rc;
	uint32_t line; /* of the node under evaluation */
	unsigned depth;
	uint64_t steps, max_steps;
	size_t max_output;
	struct scope *scope;
	struct dict *globals;
	struct builder *out;
	int64_t now_s;
	struct ig_hash_key hash_key;
	enum { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE } flow;
};

/* Arguments of a call. */
struct args {
	const struct value *pos;
	size_t n;
	const char *const *keys;
	const struct value *key_values;
	size_t n_keys;
};

int run_fail(struct run *r, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Count work: one step and one for every 64 bytes.  0 or -E2BIG. */
int run_charge(struct run *r, size_t bytes);
void *run_alloc(struct run *r, size_t n, size_t size);	 /* NULL: failed */
int run_undefined(struct run *r, const struct value *v); /* the error of using it */

/* eval.c */
int eval(struct run *r, const struct node *n, struct value *out);
int eval_attr(struct run *r, const struct value *of, const char *name, size_t len,
	      struct value *out);
int eval_item(struct run *r, const struct value *of, const struct value *key, struct value *out);
int eval_filters(struct run *r, const struct node *filters, const struct value *in,
		 struct value *out);

/* operators.c */
int eval_binary(struct run *r, enum op op, const struct value *a, const struct value *b,
		struct value *out);
int eval_compare(struct run *r, enum op op, const struct value *a, const struct value *b,
		 bool *out);

/* interp.c */
int exec(struct run *r, const struct node *n);
int scope_set(struct run *r, struct scope *s, const char *name, const struct value *v);
int call_macro(struct run *r, const struct macro *m, const struct args *a, struct value *out);

/* value.c */
bool truth(const struct value *v);
const char *kind_name(const struct value *v);
int list_new(struct run *r, size_t cap, struct list **out);
int list_add(struct run *r, struct list *l, const struct value *v);
int dict_new(struct run *r, size_t cap, struct dict **out);
int dict_set(struct run *r, struct dict *d, const struct value *key, const struct value *v);
struct value *dict_find(const struct dict *d, const struct value *key);
struct value *dict_find_str(const struct dict *d, const char *s, size_t len);
struct value *space_find(struct space *s, const char *name, size_t len);
int space_set(struct run *r, struct space *s, const char *name, size_t len, const struct value *v);
int value_equal(struct run *r, const struct value *a, const struct value *b, bool *out);
/* -1, 0, 1 in *out; -EINVAL for values that have no order. */
int value_order(struct run *r, const struct value *a, const struct value *b, int *out);
/* What iterating over it gives. */
int value_items(struct run *r, const struct value *v, const struct value **items, size_t *n);
int value_length(struct run *r, const struct value *v, size_t *out);
int value_contains(struct run *r, const struct value *in, const struct value *what, bool *out);
int value_from_json(struct run *r, const json_t *j, const struct ig_jinja_input *in, bool trusted,
		    unsigned depth, struct value *out);
int pair_list(struct run *r, const struct dict *d, struct value *out); /* [(key, value), …] */

/* text.c */
void builder_init(struct builder *b, struct run *r);
void builder_add(struct builder *b, const char *p, size_t len, bool client);
void builder_puts(struct builder *b, const char *s);
void builder_value(struct builder *b, const struct value *str); /* a string's bytes */
int builder_end(struct builder *b, struct value *out);
int text_of(struct run *r, const struct value *v, struct value *out); /* str(v) */
int text_repr(struct builder *b, const struct value *v, unsigned depth);
struct json_style {
	bool ascii, sort_keys;
	struct value indent;			    /* str, or none */
	struct value item_separator, key_separator; /* str */
};
int text_json(struct builder *b, const struct value *v, const struct json_style *s, unsigned depth);
/* A double as Python prints it; buf holds 40. */
size_t text_float(double f, char *buf);
size_t utf8_length(const char *s, size_t len);		   /* characters */
size_t utf8_offset(const char *s, size_t len, size_t n);   /* bytes of the first n characters */
size_t utf8_one(const char *s, size_t len);		   /* bytes of the first character */
int32_t utf8_decode(const char *s, size_t len, size_t *n); /* -1: broken, *n is 1 */
/* White space as Python's str.strip sees it: bytes of the one that s begins or ends with. */
size_t space_at(const char *s, size_t len);
size_t space_before(const char *s, size_t len);
struct value str_strip(const struct value *s, bool left, bool right);
/* Where what begins in s at or behind from; SIZE_MAX: nowhere. */
size_t str_find(const struct value *s, size_t from, const struct value *what);
int str_replace(struct run *r, const struct value *s, const struct value *from,
		const struct value *to, int64_t max, struct value *out);
enum str_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITAL };
int str_case(struct run *r, const struct value *s, enum str_case how, struct value *out);
int str_escape(struct run *r, const struct value *s, struct value *out); /* for HTML */
int str_percent(struct run *r, const struct value *format, const struct value *args,
		struct value *out);

/* filters.c, tests.c, methods.c */
int filter_id(const char *s, size_t len); /* -1: unknown */
int filter_call(struct run *r, int id, const struct value *in, const struct args *a,
		struct value *out);
int test_id(const char *s, size_t len);
int test_call(struct run *r, int id, const struct value *v, const struct args *a, bool *out);
/* The method of that name that v's type has: its id; -1: none; -2: one that changes v,
 * which the sandbox forbids. */
int method_id(const struct value *v, const char *name, size_t len);
int method_call(struct run *r, const struct method *m, const struct args *a, struct value *out);
int builtin_id(const char *name); /* -1: none */
int builtin_call(struct run *r, int id, const struct args *a, struct value *out);

/* Argument i, or the one named name, or NULL.  names of filters: "a b c" in order. */
const struct value *arg_get(const struct args *a, size_t i, const char *name);
/* Refuse more arguments than the names listed, and names that aren't among them. */
int args_check(struct run *r, const struct args *a, const char *what, size_t min,
	       const char *const *names, size_t n_names);
