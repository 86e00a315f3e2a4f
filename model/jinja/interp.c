/* interp.c: executes statements, with scopes and macros, and renders a template.  A for loop, a
 * macro, a set block and a with block have scopes of their own; an if has none, as in Jinja. */
#include "model/jinja/jinja_private.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

#define DEFAULT_STEPS 20000000
#define DEFAULT_MEMORY ((size_t)64 << 20)
#define DEFAULT_OUTPUT ((size_t)32 << 20)
#define STEP_BYTES 64

/* ---- the run --------------------------------------------------------------------------- */

/* The first error counts. */
int run_fail(struct run *r, int rc, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	if (r->rc)
		return r->rc;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	r->rc = rc;
	if (r->line)
		return ig_fail(r->err, rc, "line %u: %s", r->line, text);
	return ig_fail(r->err, rc, "%s", text); /* while reading the input */
}

int run_charge(struct run *r, size_t bytes)
{
	r->steps += 1 + bytes / STEP_BYTES;
	if (r->steps > r->max_steps)
		return run_fail(r, -E2BIG, "the template takes more than %llu steps",
				(unsigned long long)r->max_steps);
	return r->rc;
}

void *run_alloc(struct run *r, size_t n, size_t size)
{
	void *p = arena_alloc_array(&r->arena, n, size);

	if (p)
		return p;
	if (r->arena.over)
		run_fail(r, -E2BIG, "the template takes more than %zu bytes of memory",
			 r->arena.limit);
	else
		run_fail(r, -ENOMEM, "out of memory for the template");
	return NULL;
}

int run_enter(struct run *r)
{
	int rc = run_charge(r, 0);

	if (!rc && r->depth >= MAX_EVAL_DEPTH)
		return run_fail(r, -E2BIG, "more than %d levels of expressions and macros",
				MAX_EVAL_DEPTH);
	r->depth += !rc;
	return rc;
}

void *run_grow(struct run *r, void *array, size_t n, size_t *cap, size_t size)
{
	size_t larger = *cap ? 2 * *cap : 4;
	void *p;

	if (n < *cap)
		return array;
	p = run_alloc(r, larger, size);
	if (p && n)
		memcpy(p, array, n * size);
	*cap = larger;
	return p;
}

/* ---- scopes ------------------------------------------------------------------------------ */

static struct scope *scope_new(struct run *r, struct scope *parent)
{
	struct scope *s = run_alloc(r, 1, sizeof *s);

	if (s)
		s->parent = parent;
	return s;
}

int scope_set(struct run *r, struct scope *s, const char *name, const struct value *v)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->vars[i].name == name) {
			s->vars[i].value = *v;
			return 0;
		}
	s->vars = run_grow(r, s->vars, s->n, &s->cap, sizeof *s->vars);
	if (!s->vars)
		return r->rc;
	s->vars[s->n++] = (struct var){ name, *v };
	return run_charge(r, s->n);
}

static int assign(struct run *r, const struct node *target, const struct value *v)
{
	const struct value *items;
	struct value space;
	size_t n;
	int rc;

	if (target->kind == N_NAME)
		return scope_set(r, r->scope, target->name, v);
	if (target->kind == N_ATTR) {
		if ((rc = eval(r, target->a, &space)))
			return rc;
		if (space.kind != K_NAMESPACE)
			return run_fail(r, -EINVAL,
					"only a namespace's attributes can be set, not those "
					"of a %s",
					kind_name(&space));
		return space_set(r, space.space, target->value.p, target->value.len, v);
	}
	if (v->kind == K_UNDEFINED)
		return run_undefined(r, v);
	if ((rc = value_items(r, v, &items, &n)))
		return rc;
	if (n != target->n)
		return run_fail(r, -EINVAL, "%zu values for %u variables", n, target->n);
	for (size_t i = 0; i < n; i++)
		if ((rc = assign(r, target->items[i], &items[i])))
			return rc;
	return 0;
}

/* Run n with its output as a value, in a scope of its own. */
static int capture(struct run *r, const struct node *n, struct scope *scope, struct value *out)
{
	struct builder text, *was = r->out;
	struct scope *outer = r->scope;
	int rc;

	builder_init(&text, r);
	text.limit = r->max_output;
	r->out = &text;
	r->scope = scope;
	rc = exec(r, n);
	r->scope = outer;
	r->out = was;
	return rc ? rc : builder_end(&text, out);
}

/* ---- macros ------------------------------------------------------------------------------ */

static int define_macro(struct run *r, const struct node *n, struct value *out)
{
	struct macro *m = run_alloc(r, 1, sizeof *m);

	if (!m)
		return r->rc;
	*m = (struct macro){ n, r->scope, n->name };
	for (struct scope *s = r->scope; s && !s->captured; s = s->parent)
		s->captured = true;
	*out = (struct value){ .kind = K_MACRO, .macro = m };
	return 0;
}

/* Index of the parameter with this name; n_keys: none. */
static uint32_t parameter(const struct node *n, const char *key)
{
	uint32_t i = 0;

	while (i < n->n_keys && n->keys[i] != key)
		i++;
	return i;
}

static int bind_arguments(struct run *r, const struct macro *m, const struct args *a,
			  struct scope *s)
{
	const struct node *n = m->node;
	int rc;

	if (a->n > n->n_keys)
		return run_fail(r, -EINVAL, "the macro '%s' takes %u arguments, not %zu", m->name,
				n->n_keys, a->n);
	for (size_t i = 0; i < a->n; i++)
		if ((rc = scope_set(r, s, n->keys[i], &a->pos[i])))
			return rc;
	for (size_t i = 0; i < a->n_keys; i++) {
		uint32_t k = parameter(n, a->keys[i]);
		if (k < a->n)
			return run_fail(r, -EINVAL, "the macro '%s' is given '%s' twice", m->name,
					a->keys[i]);
		if (k == n->n_keys && a->keys[i] != r->j->caller_name)
			return run_fail(r, -EINVAL, "the macro '%s' takes no argument named '%s'",
					m->name, a->keys[i]);
		if ((rc = scope_set(r, s, a->keys[i], &a->key_values[i])))
			return rc;
	}
	/* Defaults see the parameters before them. */
	for (size_t i = a->n; i < n->n_keys; i++) {
		struct value v = v_undefined(UNDEFINED_NAME, n->keys[i], strlen(n->keys[i]));
		size_t k = 0;
		while (k < a->n_keys && a->keys[k] != n->keys[i])
			k++;
		if (k < a->n_keys)
			continue;
		if ((n->items[i] && (rc = eval(r, n->items[i], &v))) ||
		    (rc = scope_set(r, s, n->keys[i], &v)))
			return rc;
	}
	return 0;
}

int call_macro(struct run *r, const struct macro *m, const struct args *a, struct value *out)
{
	struct scope *s = scope_new(r, m->scope), *outer = r->scope;
	int rc;

	if (!s)
		return r->rc;
	r->scope = s;
	rc = bind_arguments(r, m, a, s);
	r->scope = outer;
	if (rc)
		return rc;
	return capture(r, m->node->c, s, out);
}

/* ---- statements ---------------------------------------------------------------------------- */

static int put(struct run *r, const struct value *v)
{
	struct value text;
	int rc = text_of(r, v, &text);

	if (rc)
		return rc;
	builder_value(r->out, &text);
	return r->out->failed ? r->rc : 0;
}

static __attribute__((noinline)) int exec_output(struct run *r, const struct node *n)
{
	struct value v;
	int rc = eval(r, n->a, &v);

	return rc ? rc : put(r, &v);
}

static __attribute__((noinline)) int exec_if(struct run *r, const struct node *n)
{
	uint32_t i;

	for (i = 0; i + 1 < n->n; i += 2) {
		struct value v;
		int rc = eval(r, n->items[i], &v);
		if (rc)
			return rc;
		if (truth(&v))
			return exec(r, n->items[i + 1]);
	}
	return i < n->n ? exec(r, n->items[i]) : 0;
}

/* The items for which a loop's condition is true. */
static int select_items(struct run *r, const struct node *n, const struct value **items,
			size_t *n_items)
{
	struct scope *outer = r->scope;
	struct value *selected = run_alloc(r, *n_items, sizeof *selected), v;
	size_t n_selected = 0;
	int rc = 0;

	if (!selected)
		return r->rc;
	for (size_t i = 0; i < *n_items && !rc; i++) {
		r->scope = scope_new(r, outer);
		if (!r->scope)
			rc = r->rc;
		else if (!(rc = assign(r, n->a, &(*items)[i])) && !(rc = eval(r, n->c, &v)) &&
			 truth(&v))
			selected[n_selected++] = (*items)[i];
		r->scope = outer;
	}
	*items = selected;
	*n_items = n_selected;
	return rc;
}

static int run_loop(struct run *r, const struct node *n, struct loop *l)
{
	struct scope *outer = r->scope, *s = NULL;
	struct value loop = { .kind = K_LOOP, .loop = l };
	int rc = 0;

	for (; l->index < l->n && !rc; l->index++) {
		if (!s || s->captured) {
			s = scope_new(r, outer);
			if (!s)
				return r->rc;
		}
		s->n = 0; /* each iteration starts without variables */
		r->scope = s;
		if (!(rc = scope_set(r, s, r->j->loop_name, &loop)) &&
		    !(rc = assign(r, n->a, &l->items[l->index])))
			rc = exec(r, n->items[0]);
		r->scope = outer;
		if (r->flow == FLOW_BREAK) {
			r->flow = FLOW_ON;
			break;
		}
		r->flow = FLOW_ON;
	}
	return rc;
}

static __attribute__((noinline)) int exec_for(struct run *r, const struct node *n)
{
	struct value v;
	struct loop *l;
	int rc = eval(r, n->b, &v);

	if (rc)
		return rc;
	l = run_alloc(r, 1, sizeof *l);
	if (!l)
		return r->rc;
	r->line = n->line;
	if ((rc = value_items(r, &v, &l->items, &l->n)) ||
	    (n->c && (rc = select_items(r, n, &l->items, &l->n))))
		return rc;
	if (l->n)
		return run_loop(r, n, l);
	if (n->n < 2)
		return 0;
	struct scope *outer = r->scope;
	r->scope = scope_new(r, outer);
	rc = r->scope ? exec(r, n->items[1]) : r->rc;
	r->scope = outer;
	return rc;
}

static __attribute__((noinline)) int exec_set_block(struct run *r, const struct node *n)
{
	struct scope *s = scope_new(r, r->scope);
	struct value v;
	int rc;

	if (!s)
		return r->rc;
	if ((rc = capture(r, n->c, s, &v)) || (n->b && (rc = eval_filters(r, n->b, &v, &v))))
		return rc;
	return n->kind == N_SET_BLOCK ? assign(r, n->a, &v) : put(r, &v);
}

static __attribute__((noinline)) int exec_call_block(struct run *r, const struct node *n)
{
	const struct node *call = n->b;
	struct value f, caller, *v;
	const char **keys;
	struct args a;
	int rc;

	if ((rc = eval(r, call->a, &f)))
		return rc;
	if (f.kind != K_MACRO)
		return run_fail(r, -EINVAL, "a call block needs a macro, not %s", kind_name(&f));
	v = run_alloc(r, call->n + call->n_keys + 1, sizeof *v);
	keys = run_alloc(r, call->n_keys + 1, sizeof *keys);
	if (!v || !keys)
		return r->rc;
	for (uint32_t i = 0; i < call->n + call->n_keys; i++)
		if ((rc = eval(r, call->items[i], &v[i])))
			return rc;
	if ((rc = define_macro(r, n, &caller)))
		return rc;
	if (call->n_keys)
		memcpy(keys, call->keys, call->n_keys * sizeof *keys);
	keys[call->n_keys] = r->j->caller_name;
	v[call->n + call->n_keys] = caller;
	a = (struct args){ v, call->n, keys, v + call->n, call->n_keys + 1 };
	if ((rc = call_macro(r, f.macro, &a, &f)))
		return rc;
	return put(r, &f);
}

/* with and generation: a body in a scope; values are evaluated outside of it. */
static __attribute__((noinline)) int exec_scope(struct run *r, const struct node *n)
{
	struct scope *outer = r->scope, *s = scope_new(r, outer);
	struct value v;
	int rc = s ? 0 : r->rc;

	for (uint32_t i = 0; i + 1 < n->n && !rc; i += 2) {
		if ((rc = eval(r, n->items[i + 1], &v)))
			break;
		r->scope = s;
		rc = assign(r, n->items[i], &v);
		r->scope = outer;
	}
	if (rc)
		return rc;
	r->scope = s;
	rc = exec(r, n->c);
	r->scope = outer;
	return rc;
}

static __attribute__((noinline)) int exec_set(struct run *r, const struct node *n)
{
	struct value v;
	int rc;

	if (n->kind == N_SET)
		rc = eval(r, n->b, &v);
	else
		rc = define_macro(r, n, &v);
	if (rc)
		return rc;
	r->line = n->line;
	return n->kind == N_SET ? assign(r, n->a, &v) : scope_set(r, r->scope, n->name, &v);
}

static int exec_kind(struct run *r, const struct node *n)
{
	int rc;

	switch (n->kind) {
	case N_TEXT: builder_value(r->out, &n->value); return r->out->failed ? r->rc : 0;
	case N_OUTPUT: return exec_output(r, n);
	case N_BLOCK:
		for (uint32_t i = 0; i < n->n && r->flow == FLOW_ON; i++)
			if ((rc = exec(r, n->items[i])))
				return rc;
		return 0;
	case N_IF: return exec_if(r, n);
	case N_FOR: return exec_for(r, n);
	case N_SET:
	case N_MACRO: return exec_set(r, n);
	case N_SET_BLOCK:
	case N_FILTER_BLOCK: return exec_set_block(r, n);
	case N_CALL_BLOCK: return exec_call_block(r, n);
	case N_WITH:
	case N_SCOPE: return exec_scope(r, n);
	default: /* N_BREAK, N_CONTINUE */
		r->flow = n->kind == N_BREAK ? FLOW_BREAK : FLOW_CONTINUE;
		return 0;
	}
}

int exec(struct run *r, const struct node *n)
{
	int rc;

	r->line = n->line;
	if ((rc = run_enter(r)))
		return rc;
	rc = exec_kind(r, n);
	r->depth--;
	return rc;
}

/* ---- render -------------------------------------------------------------------------------- */

static int read_input(struct run *r, const struct ig_jinja_input *in)
{
	int rc = dict_new(r, in->n_vars, &r->globals);

	for (size_t i = 0; i < in->n_vars && !rc; i++) {
		struct value key = v_lit(in->vars[i].name), v;
		rc = value_from_json(r, in->vars[i].value, in, in->vars[i].trusted, 0, &v);
		if (!rc)
			rc = dict_set(r, r->globals, &key, &v);
	}
	return rc;
}

/* Copies the text out of the arena, into memory of the caller. */
static int copy_output(struct run *r, const struct value *v, struct ig_jinja_output *out)
{
	bool has_client = v->mask || (v->client && v->len);

	out->len = v->len;
	out->text = malloc(v->len + (size_t)1);
	if (has_client)
		out->client = malloc(v->len ? v->len : 1);
	if (!out->text || (has_client && !out->client)) {
		ig_jinja_output_finish(out);
		return run_fail(r, -ENOMEM, "out of memory for the text");
	}
	if (v->len)
		memcpy(out->text, v->p, v->len);
	out->text[v->len] = 0;
	if (out->client && v->mask)
		memcpy(out->client, v->mask, v->len);
	else if (out->client)
		memset(out->client, 1, v->len);
	return 0;
}

int ig_jinja_render(const struct ig_jinja *j, const struct ig_jinja_input *in,
		    const struct ig_jinja_limits *limits, struct ig_jinja_output *out,
		    struct ig_error *err)
{
	static const struct ig_jinja_limits defaults;
	const struct ig_jinja_limits *l = limits ? limits : &defaults;
	struct run r = {
		.j = j,
		.err = err,
		.max_steps = l->n_steps ? l->n_steps : DEFAULT_STEPS,
		.max_output = l->output_bytes ? l->output_bytes : DEFAULT_OUTPUT,
		.now_s = in->now_s,
	};
	struct value text;
	int rc;

	*out = (struct ig_jinja_output){ 0 };
	if (r.max_output > UINT32_MAX / 2)
		r.max_output = UINT32_MAX / 2;
	arena_init(&r.arena, l->memory_bytes ? l->memory_bytes : DEFAULT_MEMORY);
	ig_hash_key_init(&r.hash_key);
	size_t memory = r.arena.limit;
	rc = read_input(&r, in);
	/* A long conversation may take more steps. */
	r.max_steps += (r.arena.limit - memory) / STEP_BYTES * 4;
	r.line = 1;
	if (!rc) {
		struct scope *root = scope_new(&r, NULL);
		rc = root ? capture(&r, j->root, root, &text) : r.rc;
	}
	if (!rc)
		rc = copy_output(&r, &text, out);
	arena_finish(&r.arena);
	return rc;
}

void ig_jinja_output_finish(struct ig_jinja_output *out)
{
	free(out->text);
	free(out->client);
	*out = (struct ig_jinja_output){ 0 };
}
