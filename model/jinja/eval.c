/* eval.c: evaluates expressions.  Every node counts as a step and as one level of depth.  Each
 * kind of node has a function of its own, never inlined, so that a level needs little stack. */
#include "model/jinja/jinja_private.h"

#include <errno.h>

#define NOINLINE __attribute__((noinline))

int run_undefined(struct run *r, const struct value *v)
{
	int len = v->len < 80 ? (int)v->len : 80;

	if (v->client == UNDEFINED_FORBIDDEN)
		return run_fail(r, -EINVAL,
				"'%.*s' would change a value, which templates may not do", len,
				v->p);
	return run_fail(r, -EINVAL,
			v->client == UNDEFINED_ATTRIBUTE ? "there is no attribute '%.*s'" :
							   "'%.*s' is undefined",
			len, v->p);
}

int run_type_error(struct run *r, const struct value *v, const char *what)
{
	return v->kind == K_UNDEFINED ? run_undefined(r, v) :
					run_fail(r, -EINVAL, "%s, not %s", what, kind_name(v));
}

/* ---- names, attributes, items ----------------------------------------------------------- */

static NOINLINE int eval_name(struct run *r, const struct node *n, struct value *out)
{
	const struct value *global;
	size_t len;
	int id;

	for (const struct scope *s = r->scope; s; s = s->parent) {
		for (uint32_t i = 0; i < s->n; i++)
			if (s->vars[i].name == n->name) {
				*out = s->vars[i].value;
				return 0;
			}
		if (run_charge(r, s->n))
			return r->rc;
	}
	len = strlen(n->name);
	global = dict_find_str(r->globals, n->name, len);
	if (global)
		*out = *global;
	else if ((id = builtin_id(n->name)) >= 0)
		*out = (struct value){ .kind = K_BUILTIN, .i = id };
	else
		*out = v_undefined(UNDEFINED_NAME, n->name, len);
	return 0;
}

static void loop_attr(const struct loop *l, const char *name, size_t len, struct value *out)
{
	int64_t i = (int64_t)l->index, n = (int64_t)l->n;
	const struct {
		const char *name;
		struct value value;
	} attributes[] = {
		{ "index", v_int(i + 1) },    { "index0", v_int(i) },
		{ "revindex", v_int(n - i) }, { "revindex0", v_int(n - i - 1) },
		{ "first", v_bool(i == 0) },  { "last", v_bool(i + 1 == n) },
		{ "length", v_int(n) },	      { "depth", v_int(1) }, /* without recursive loops */
		{ "depth0", v_int(0) },
	};
	struct value key = v_str(name, len);

	for (size_t k = 0; k < sizeof attributes / sizeof attributes[0]; k++)
		if (str_is(&key, attributes[k].name))
			*out = attributes[k].value;
	if (str_is(&key, "previtem") && i > 0)
		*out = l->items[i - 1];
	else if (str_is(&key, "nextitem") && i + 1 < n)
		*out = l->items[i + 1];
}

int eval_attr(struct run *r, const struct value *of, const char *name, size_t len,
	      struct value *out)
{
	const struct value *found = NULL;
	const struct method_entry *entry = method_find(of, name, len);

	if (entry && entry->call) {
		struct method *m = run_alloc(r, 1, sizeof *m);
		if (!m)
			return r->rc;
		*m = (struct method){ *of, entry };
		*out = (struct value){ .kind = K_METHOD, .method = m };
		return 0;
	}
	*out = v_undefined(entry ? UNDEFINED_FORBIDDEN : UNDEFINED_ATTRIBUTE, name, len);
	switch (of->kind) {
	case K_UNDEFINED: return run_undefined(r, of);
	case K_DICT:
		if (!entry)
			found = dict_find_str(of->dict, name, len);
		break;
	case K_NAMESPACE: found = space_find(of->space, name, len); break;
	case K_LOOP: loop_attr(of->loop, name, len, out); break;
	case K_MACRO:
		if (len == 4 && !memcmp(name, "name", 4))
			*out = v_lit(of->macro->name);
		break;
	default: break;
	}
	if (found)
		*out = *found;
	return 0;
}

int eval_item(struct run *r, const struct value *of, const struct value *key, struct value *out)
{
	const struct value *found = NULL;
	size_t n, at;
	int rc;

	*out = v_undefined(UNDEFINED_ATTRIBUTE, "[]", 2);
	if (of->kind == K_UNDEFINED)
		return run_undefined(r, of);
	if (of->kind == K_DICT && is_key(key))
		found = dict_find(of->dict, key);
	if (is_int(key) && (is_list(of) || is_str(of))) {
		if ((rc = value_length(r, of, &n)))
			return rc;
		int64_t i = key->i < 0 ? key->i + (int64_t)n : key->i;
		if (i < 0 || (uint64_t)i >= n)
			return 0;
		if (is_list(of)) {
			found = &of->list->items[i];
		} else {
			at = utf8_offset(of->p, of->len, (size_t)i);
			*out = str_slice(of, at, utf8_one(of->p + at, of->len - at));
			return 0;
		}
	}
	if (found) {
		*out = *found;
		return 0;
	}
	if (!is_str(key))
		return 0;
	if (of->kind == K_DICT && !method_find(of, key->p, key->len)) {
		*out = v_undefined(UNDEFINED_ATTRIBUTE, key->p, key->len);
		return 0;
	}
	return eval_attr(r, of, key->p, key->len, out);
}

/* ---- slices ------------------------------------------------------------------------------ */

/* A part of a slice; *i does not change if it is absent or None. */
static int slice_part(struct run *r, const struct node *n, int64_t *i, bool *is_set)
{
	struct value v;
	int rc;

	*is_set = false;
	if (!n)
		return 0;
	if ((rc = eval(r, n, &v)))
		return rc;
	if (v.kind == K_NONE)
		return 0;
	if (!is_int(&v))
		return run_fail(r, -EINVAL, "a slice needs integers, not %s", kind_name(&v));
	*i = v.i;
	*is_set = true;
	return 0;
}

static int64_t clamp(int64_t i, int64_t n, int64_t low, int64_t high)
{
	if (i < 0)
		i = i < -n ? -1 : i + n;
	return i < low ? low : i > high ? high : i;
}

static int slice_string(struct run *r, const struct value *s, int64_t first, int64_t step,
			int64_t count, struct value *out)
{
	struct builder b;
	const struct value *chars;
	size_t n, at;
	int rc;

	if (step == 1 || count == 0) {
		at = utf8_offset(s->p, s->len, count ? (size_t)first : 0);
		*out = str_slice(s, at, utf8_offset(s->p + at, s->len - at, (size_t)count));
		return 0;
	}
	if ((rc = value_items(r, s, &chars, &n)))
		return rc;
	builder_init(&b, r);
	for (int64_t k = 0; k < count && !b.failed; k++)
		builder_value(&b, &chars[first + k * step]);
	return builder_end(&b, out);
}

static NOINLINE int eval_slice(struct run *r, const struct node *n, struct value *out)
{
	int64_t first = 0, end = 0, step = 1, count;
	bool has_first, has_end, has_step;
	struct value of;
	struct list *l;
	size_t size;
	int rc;

	if ((rc = eval(r, n->a, &of)) || (rc = slice_part(r, n->items[0], &first, &has_first)) ||
	    (rc = slice_part(r, n->items[1], &end, &has_end)) ||
	    (rc = slice_part(r, n->items[2], &step, &has_step)))
		return rc;
	r->line = n->line;
	if (of.kind == K_UNDEFINED)
		return run_undefined(r, &of);
	if (!is_list(&of) && !is_str(&of)) {
		*out = v_undefined(UNDEFINED_ATTRIBUTE, "[:]", 3);
		return 0;
	}
	if (step == 0)
		return run_fail(r, -EINVAL, "the step of a slice is 0");
	if ((rc = value_length(r, &of, &size)))
		return rc;
	int64_t len = (int64_t)size;
	if (step > len)
		step = len + 1;
	if (step < -len)
		step = -len - 1;
	if (step > 0) {
		first = has_first ? clamp(first, len, 0, len) : 0;
		end = has_end ? clamp(end, len, 0, len) : len;
		count = end > first ? (end - first + step - 1) / step : 0;
	} else {
		first = has_first ? clamp(first, len, -1, len - 1) : len - 1;
		end = has_end ? clamp(end, len, -1, len - 1) : -1;
		count = first > end ? (first - end - step - 1) / -step : 0;
	}
	if (is_str(&of))
		return slice_string(r, &of, first, step, count, out);
	if ((rc = list_new(r, (size_t)count, &l)))
		return rc;
	for (int64_t k = 0; k < count; k++)
		l->items[l->n++] = of.list->items[first + k * step];
	*out = v_list(of.kind, l);
	return run_charge(r, (size_t)count);
}

/* ---- operators ---------------------------------------------------------------------------- */

static NOINLINE int eval_compares(struct run *r, const struct node *n, struct value *out)
{
	struct value a, b;
	bool ok = true;
	int rc = eval(r, n->a, &a);

	for (uint32_t i = 0; i < n->n && ok && !rc; i++) {
		if ((rc = eval(r, n->items[i], &b)))
			break;
		r->line = n->line;
		rc = eval_compare(r, n->ops[i], &a, &b, &ok);
		a = b;
	}
	*out = v_bool(ok);
	return rc;
}

static NOINLINE int eval_binary_node(struct run *r, const struct node *n, struct value *out)
{
	struct value a, b;
	int rc;

	if ((rc = eval(r, n->a, &a)) || (rc = eval(r, n->b, &b)))
		return rc;
	r->line = n->line;
	return eval_binary(r, n->op, &a, &b, out);
}

static NOINLINE int eval_sign(struct run *r, const struct node *n, struct value *out)
{
	struct value v, zero = v_int(0);
	int rc = eval(r, n->a, &v);

	if (rc)
		return rc;
	if (!is_number(&v))
		return v.kind == K_UNDEFINED ?
			       run_undefined(r, &v) :
			       run_fail(r, -EINVAL, "a sign before a %s", kind_name(&v));
	if (v.kind == K_FLOAT)
		*out = v_float(n->kind == N_NEG ? -v.f : v.f);
	else if (n->kind == N_NEG)
		return eval_binary(r, OP_SUB, &zero, &v, out);
	else
		*out = v_int(v.i);
	return 0;
}

static NOINLINE int eval_concat(struct run *r, const struct node *n, struct value *out)
{
	struct builder b;
	struct value v;
	int rc;

	builder_init(&b, r);
	for (uint32_t i = 0; i < n->n; i++) {
		if ((rc = eval(r, n->items[i], &v)) || (rc = text_of(r, &v, &v)))
			return rc;
		builder_value(&b, &v);
	}
	return builder_end(&b, out);
}

/* ---- displays ------------------------------------------------------------------------------ */

static NOINLINE int eval_list(struct run *r, const struct node *n, struct value *out)
{
	struct list *l;
	int rc = list_new(r, n->n, &l);

	for (uint32_t i = 0; i < n->n && !rc; i++) {
		rc = eval(r, n->items[i], &l->items[i]);
		l->n++;
	}
	if (!rc)
		*out = v_list(n->kind == N_LIST ? K_LIST : K_TUPLE, l);
	return rc;
}

static NOINLINE int eval_dict(struct run *r, const struct node *n, struct value *out)
{
	struct value key, v;
	struct dict *d;
	int rc = dict_new(r, n->n / 2, &d);

	for (uint32_t i = 0; i + 1 < n->n && !rc; i += 2)
		if (!(rc = eval(r, n->items[i], &key)) && !(rc = eval(r, n->items[i + 1], &v)))
			rc = dict_set(r, d, &key, &v);
	if (!rc)
		*out = (struct value){ .kind = K_DICT, .dict = d };
	return rc;
}

/* ---- calls ---------------------------------------------------------------------------------- */

static NOINLINE int eval_args(struct run *r, const struct node *n, struct args *a)
{
	struct value *v = run_alloc(r, n->n + n->n_keys, sizeof *v);
	int rc;

	if (!v)
		return r->rc;
	for (uint32_t i = 0; i < n->n + n->n_keys; i++)
		if ((rc = eval(r, n->items[i], &v[i])))
			return rc;
	*a = (struct args){ v, n->n, n->keys, v + n->n, n->n_keys };
	return 0;
}

/* loop.cycle(…) and loop.changed(…). */
static int loop_call(struct run *r, const struct node *n, struct loop *l, const struct args *a,
		     struct value *out)
{
	struct list *list;
	bool same = false;
	int rc;

	if (!strcmp(n->a->name, "cycle")) {
		if (!a->n)
			return run_fail(r, -EINVAL, "loop.cycle needs something to cycle through");
		*out = a->pos[l->index % a->n];
		return 0;
	}
	if ((rc = list_new(r, a->n, &list)))
		return rc;
	for (size_t i = 0; i < a->n; i++)
		list->items[list->n++] = a->pos[i];
	struct value now = v_list(K_LIST, list);
	if (l->has_changed && (rc = value_equal(r, &now, &l->last_changed, &same)))
		return rc;
	l->last_changed = now;
	l->has_changed = true;
	*out = v_bool(!same);
	return 0;
}

static NOINLINE int eval_call(struct run *r, const struct node *n, struct value *out)
{
	struct value f;
	struct args a;
	int rc;

	if (n->a->kind == N_ATTR && n->a->name &&
	    (!strcmp(n->a->name, "cycle") || !strcmp(n->a->name, "changed"))) {
		if ((rc = eval(r, n->a->a, &f)) || (rc = eval_args(r, n, &a)))
			return rc;
		if (f.kind == K_LOOP)
			return loop_call(r, n, f.loop, &a, out);
	}
	if ((rc = eval(r, n->a, &f)) || (rc = eval_args(r, n, &a)))
		return rc;
	r->line = n->line;
	switch (f.kind) {
	case K_MACRO: return call_macro(r, f.macro, &a, out);
	case K_METHOD: return method_call(r, f.method, &a, out);
	case K_BUILTIN: return builtin_call(r, (int)f.i, &a, out);
	case K_UNDEFINED: return run_undefined(r, &f);
	default: return run_fail(r, -EINVAL, "a value of type %s can't be called", kind_name(&f));
	}
}

static int no_such(struct run *r, const struct node *n, const char *what)
{
	return run_fail(r, -EINVAL, "there is no %s named '%s'", what, n->name);
}

static NOINLINE int eval_filter(struct run *r, const struct node *n, const struct value *given,
				struct value *out)
{
	struct value in;
	struct args a;
	int rc;

	if (n->a && n->a->kind == N_FILTER)
		rc = eval_filters(r, n->a, given, &in);
	else if (n->a)
		rc = eval(r, n->a, &in);
	else
		in = *given, rc = 0;
	if (rc || (rc = eval_args(r, n, &a)))
		return rc;
	r->line = n->line;
	return n->id < 0 ? no_such(r, n, "filter") : filter_call(r, n->id, &in, &a, out);
}

int eval_filters(struct run *r, const struct node *filters, const struct value *in,
		 struct value *out)
{
	int rc = run_enter(r);

	if (rc)
		return rc;
	rc = eval_filter(r, filters, in, out);
	r->depth--;
	return rc;
}

static NOINLINE int eval_test(struct run *r, const struct node *n, struct value *out)
{
	struct value v;
	struct args a;
	bool ok = false;
	int rc;

	if ((rc = eval(r, n->a, &v)) || (rc = eval_args(r, n, &a)))
		return rc;
	r->line = n->line;
	rc = n->id < 0 ? no_such(r, n, "test") : test_call(r, n->id, &v, &a, &ok);
	*out = v_bool(ok);
	return rc;
}

static NOINLINE int eval_access(struct run *r, const struct node *n, struct value *out)
{
	struct value of, key;
	int rc = eval(r, n->a, &of);

	if (rc)
		return rc;
	if (n->kind == N_ATTR) {
		r->line = n->line;
		return eval_attr(r, &of, n->value.p, n->value.len, out);
	}
	if ((rc = eval(r, n->b, &key)))
		return rc;
	r->line = n->line;
	return eval_item(r, &of, &key, out);
}

static int eval_kind(struct run *r, const struct node *n, struct value *out)
{
	int rc;

	switch (n->kind) {
	case N_CONST: *out = n->value; return 0;
	case N_NAME: return eval_name(r, n, out);
	case N_LIST:
	case N_TUPLE: return eval_list(r, n, out);
	case N_DICT: return eval_dict(r, n, out);
	case N_ATTR:
	case N_INDEX: return eval_access(r, n, out);
	case N_SLICE: return eval_slice(r, n, out);
	case N_CALL: return eval_call(r, n, out);
	case N_FILTER: return eval_filter(r, n, NULL, out);
	case N_TEST: return eval_test(r, n, out);
	case N_NEG:
	case N_POS: return eval_sign(r, n, out);
	case N_BINARY: return eval_binary_node(r, n, out);
	case N_CONCAT: return eval_concat(r, n, out);
	case N_COMPARE: return eval_compares(r, n, out);
	case N_NOT:
		if (!(rc = eval(r, n->a, out)))
			*out = v_bool(!truth(out));
		return rc;
	case N_AND:
	case N_OR:
		rc = eval(r, n->a, out);
		return rc || truth(out) != (n->kind == N_AND) ? rc : eval(r, n->b, out);
	default: /* N_IF_EXPR */
		if ((rc = eval(r, n->a, out)))
			return rc;
		if (truth(out))
			return eval(r, n->b, out);
		if (n->c)
			return eval(r, n->c, out);
		*out = v_undefined(UNDEFINED_NAME, "if", 2);
		return 0;
	}
}

int eval(struct run *r, const struct node *n, struct value *out)
{
	int rc;

	r->line = n->line;
	if ((rc = run_enter(r)))
		return rc;
	rc = eval_kind(r, n, out);
	r->depth--;
	return rc;
}
