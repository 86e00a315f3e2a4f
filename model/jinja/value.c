/* value.c: lists, dicts and namespaces; truth, equality, order and membership, as in Python;
 * and conversion of JSON to values. */
#include "model/jinja/jinja_private.h"

#include <errno.h>
#include <math.h>

/* A dict with more pairs is searched through a table. */
#define SMALL_DICT 8

bool truth(const struct value *v)
{
	switch (v->kind) {
	case K_UNDEFINED:
	case K_NONE: return false;
	case K_BOOL:
	case K_INT: return v->i != 0;
	case K_FLOAT: return v->f != 0;
	case K_STR: return v->len > 0;
	case K_LIST:
	case K_TUPLE: return v->list->n > 0;
	case K_DICT: return v->dict->n > 0;
	default: return true;
	}
}

const char *kind_name(const struct value *v)
{
	static const char *const names[] = {
		[K_UNDEFINED] = "undefined", [K_NONE] = "None",
		[K_BOOL] = "bool",	     [K_INT] = "int",
		[K_FLOAT] = "float",	     [K_STR] = "str",
		[K_LIST] = "list",	     [K_TUPLE] = "tuple",
		[K_DICT] = "dict",	     [K_NAMESPACE] = "namespace",
		[K_MACRO] = "macro",	     [K_BUILTIN] = "function",
		[K_METHOD] = "method",	     [K_LOOP] = "loop",
	};

	return names[v->kind];
}

/* ---- lists ---------------------------------------------------------------------------- */

int list_new(struct run *r, size_t cap, struct list **out)
{
	struct list *l = run_alloc(r, 1, sizeof *l);

	if (!l)
		return r->rc;
	if (cap) {
		l->items = run_alloc(r, cap, sizeof *l->items);
		if (!l->items)
			return r->rc;
	}
	l->cap = cap;
	*out = l;
	return 0;
}

int list_add(struct run *r, struct list *l, const struct value *v)
{
	l->items = run_grow(r, l->items, l->n, &l->cap, sizeof *l->items);
	if (!l->items)
		return r->rc;
	l->items[l->n++] = *v;
	return 0;
}

void list_reverse(struct list *l)
{
	for (size_t i = 0, k = l->n; i + 1 < k; i++) {
		struct value swap = l->items[i];
		l->items[i] = l->items[--k];
		l->items[k] = swap;
	}
}

/* ---- dicts ---------------------------------------------------------------------------- */

bool is_key(const struct value *v) { return is_str(v) || is_number(v) || v->kind == K_NONE; }

/* Values that may be equal have the same hash, as 1, 1.0 and true have. */
static uint32_t hash(const struct ig_hash_key *k, const struct value *v)
{
	uint64_t h = v->kind;

	if (v->kind == K_STR)
		h = ig_hash_bytes(k, v->p, v->len);
	else if (is_int(v))
		h = ig_hash_u64(k, (uint64_t)v->i);
	else if (v->kind == K_FLOAT && v->f >= -9e18 && v->f <= 9e18 && v->f == floor(v->f))
		h = ig_hash_u64(k, (uint64_t)(int64_t)v->f);
	return (uint32_t)(h ^ h >> 32);
}

static bool keys_equal(const struct value *a, const struct value *b)
{
	if (a->kind == K_STR && b->kind == K_STR)
		return a->len == b->len && !memcmp(a->p, b->p, a->len);
	if (is_number(a) && is_number(b))
		return is_int(a) && is_int(b) ? a->i == b->i : as_float(a) == as_float(b);
	return a->kind == K_NONE && b->kind == K_NONE;
}

int dict_new(struct run *r, size_t cap, struct dict **out)
{
	struct dict *d = run_alloc(r, 1, sizeof *d);

	if (!d)
		return r->rc;
	if (cap) {
		d->pairs = run_alloc(r, cap, sizeof *d->pairs);
		if (!d->pairs)
			return r->rc;
	}
	d->cap = cap;
	d->hash_key = &r->hash_key;
	*out = d;
	return 0;
}

static void insert_slot(struct dict *d, uint32_t index)
{
	uint32_t i = hash(d->hash_key, &d->pairs[index].key) & d->mask;

	while (d->slots[i])
		i = (i + 1) & d->mask;
	d->slots[i] = index + 1;
}

static int make_slots(struct run *r, struct dict *d)
{
	uint32_t size = 32;

	if (d->cap > UINT32_MAX / 8)
		return run_fail(r, -E2BIG, "a dict is too large");
	while (size < 2 * d->cap)
		size *= 2;
	d->slots = run_alloc(r, size, sizeof *d->slots);
	if (!d->slots)
		return r->rc;
	d->mask = size - 1;
	for (size_t i = 0; i < d->n; i++)
		insert_slot(d, (uint32_t)i);
	return 0;
}

struct value *dict_find(const struct dict *d, const struct value *key)
{
	if (d->slots) {
		for (uint32_t i = hash(d->hash_key, key) & d->mask; d->slots[i];
		     i = (i + 1) & d->mask)
			if (keys_equal(&d->pairs[d->slots[i] - 1].key, key))
				return &d->pairs[d->slots[i] - 1].value;
		return NULL;
	}
	for (size_t i = 0; i < d->n; i++)
		if (keys_equal(&d->pairs[i].key, key))
			return &d->pairs[i].value;
	return NULL;
}

struct value *dict_find_str(const struct dict *d, const char *s, size_t len)
{
	struct value key = v_str(s, len);

	return dict_find(d, &key);
}

int dict_set(struct run *r, struct dict *d, const struct value *key, const struct value *v)
{
	struct value *there;
	int rc;

	if (!is_key(key))
		return run_fail(r, -EINVAL, "a %s can't be the key of a dict", kind_name(key));
	there = dict_find(d, key);
	if (there) {
		*there = *v;
		return 0;
	}
	if (d->n == d->cap)
		d->slots = NULL;
	d->pairs = run_grow(r, d->pairs, d->n, &d->cap, sizeof *d->pairs);
	if (!d->pairs)
		return r->rc;
	d->pairs[d->n++] = (struct pair){ *key, *v };
	if (d->slots)
		insert_slot(d, (uint32_t)d->n - 1);
	else if (d->n > SMALL_DICT && (rc = make_slots(r, d)))
		return rc;
	return 0;
}

int pair_list(struct run *r, const struct dict *d, struct value *out)
{
	struct list *l = NULL, *pair = NULL;
	int rc = list_new(r, d->n, &l);

	for (size_t i = 0; i < d->n && !rc; i++) {
		if ((rc = list_new(r, 2, &pair)))
			return rc;
		pair->items[pair->n++] = d->pairs[i].key;
		pair->items[pair->n++] = d->pairs[i].value;
		l->items[l->n++] = v_list(K_TUPLE, pair);
	}
	*out = v_list(K_LIST, l);
	return rc;
}

/* ---- namespaces ----------------------------------------------------------------------- */

struct value *space_find(struct space *s, const char *name, size_t len)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->pairs[i].key.len == len && !memcmp(s->pairs[i].key.p, name, len))
			return &s->pairs[i].value;
	return NULL;
}

int space_set(struct run *r, struct space *s, const char *name, size_t len, const struct value *v)
{
	struct value *there = space_find(s, name, len);

	if (there) {
		*there = *v;
		return 0;
	}
	if (len && name[0] == '_')
		return run_fail(r, -EINVAL, "a namespace's attribute can't begin with _: %.*s",
				len < 60 ? (int)len : 60, name);
	s->pairs = run_grow(r, s->pairs, s->n, &s->cap, sizeof *s->pairs);
	if (!s->pairs)
		return r->rc;
	s->pairs[s->n++] = (struct pair){ v_str(name, len), *v };
	return 0;
}

/* ---- comparison ----------------------------------------------------------------------- */

int value_enter(struct run *r, unsigned depth)
{
	if (depth > MAX_VALUE_DEPTH)
		return run_fail(r, -EINVAL, "a value of more than %d levels", MAX_VALUE_DEPTH);
	return run_charge(r, 0);
}

static int equal(struct run *r, const struct value *a, const struct value *b, unsigned depth,
		 bool *out)
{
	int rc = value_enter(r, depth);

	*out = false;
	if (rc)
		return rc;
	if (is_number(a) && is_number(b)) {
		*out = keys_equal(a, b);
		return 0;
	}
	if (a->kind != b->kind)
		return 0;
	switch (a->kind) {
	case K_UNDEFINED:
	case K_NONE: *out = true; return 0;
	case K_STR: *out = keys_equal(a, b); return *out ? run_charge(r, a->len) : 0;
	case K_LIST:
	case K_TUPLE:
		*out = a->list->n == b->list->n;
		for (size_t i = 0; *out && i < a->list->n; i++)
			if ((rc = equal(r, &a->list->items[i], &b->list->items[i], depth + 1, out)))
				return rc;
		return 0;
	case K_DICT:
		*out = a->dict->n == b->dict->n;
		for (size_t i = 0; *out && i < a->dict->n; i++) {
			const struct value *v = dict_find(b->dict, &a->dict->pairs[i].key);
			*out = v != NULL;
			if (v && (rc = equal(r, &a->dict->pairs[i].value, v, depth + 1, out)))
				return rc;
		}
		return 0;
	case K_METHOD: *out = a->method == b->method; return 0;
	case K_BUILTIN: *out = a->i == b->i; return 0;
	default:
		*out = a->space == b->space; /* the pointer of any kind */
		return 0;
	}
}

int value_equal(struct run *r, const struct value *a, const struct value *b, bool *out)
{
	return equal(r, a, b, 0, out);
}

static int order(struct run *r, const struct value *a, const struct value *b, unsigned depth,
		 int *out)
{
	int rc = value_enter(r, depth);

	if (rc)
		return rc;
	if (is_number(a) && is_number(b)) {
		if (is_int(a) && is_int(b))
			*out = (a->i > b->i) - (a->i < b->i);
		else
			*out = (as_float(a) > as_float(b)) - (as_float(a) < as_float(b));
		return 0;
	}
	if (is_str(a) && is_str(b)) {
		size_t n = a->len < b->len ? a->len : b->len;
		int c = n ? memcmp(a->p, b->p, n) : 0;
		*out = c ? (c > 0) - (c < 0) : (a->len > b->len) - (a->len < b->len);
		return run_charge(r, n);
	}
	if (is_list(a) && a->kind == b->kind) {
		size_t n = a->list->n < b->list->n ? a->list->n : b->list->n;
		for (size_t i = 0; i < n; i++) {
			bool same;
			if ((rc = equal(r, &a->list->items[i], &b->list->items[i], depth + 1,
					&same)))
				return rc;
			if (!same)
				return order(r, &a->list->items[i], &b->list->items[i], depth + 1,
					     out);
		}
		*out = (a->list->n > b->list->n) - (a->list->n < b->list->n);
		return 0;
	}
	if (a->kind == K_UNDEFINED || b->kind == K_UNDEFINED)
		return run_undefined(r, a->kind == K_UNDEFINED ? a : b);
	return run_fail(r, -EINVAL, "%s and %s have no order", kind_name(a), kind_name(b));
}

int value_order(struct run *r, const struct value *a, const struct value *b, int *out)
{
	return order(r, a, b, 0, out);
}

/* ---- as a collection ------------------------------------------------------------------ */

static int character_list(struct run *r, const struct value *s, const struct value **items,
			  size_t *n)
{
	size_t count = utf8_length(s->p, s->len), pos = 0;
	struct value *v;

	if (run_charge(r, s->len) || !(v = run_alloc(r, count, sizeof *v)))
		return r->rc;
	for (size_t i = 0; i < count; i++) {
		size_t len = utf8_one(s->p + pos, s->len - pos);
		v[i] = str_slice(s, pos, len);
		pos += len;
	}
	*items = v;
	*n = count;
	return 0;
}

int value_items(struct run *r, const struct value *v, const struct value **items, size_t *n)
{
	struct value *keys;

	*items = NULL;
	*n = 0;
	switch (v->kind) {
	case K_UNDEFINED: return 0;
	case K_STR: return character_list(r, v, items, n);
	case K_LIST:
	case K_TUPLE:
		*items = v->list->items;
		*n = v->list->n;
		return 0;
	case K_DICT:
		keys = run_alloc(r, v->dict->n, sizeof *keys);
		if (!keys)
			return r->rc;
		for (size_t i = 0; i < v->dict->n; i++)
			keys[i] = v->dict->pairs[i].key;
		*items = keys;
		*n = v->dict->n;
		return 0;
	case K_LOOP:
		*items = v->loop->items;
		*n = v->loop->n;
		return 0;
	default:
		return run_fail(r, -EINVAL, "a value of type %s can't be iterated over",
				kind_name(v));
	}
}

int value_length(struct run *r, const struct value *v, size_t *out)
{
	switch (v->kind) {
	case K_UNDEFINED: *out = 0; return 0;
	case K_STR: *out = utf8_length(v->p, v->len); return run_charge(r, v->len);
	case K_LIST:
	case K_TUPLE: *out = v->list->n; return 0;
	case K_DICT: *out = v->dict->n; return 0;
	case K_LOOP: *out = v->loop->n; return 0;
	default: return run_fail(r, -EINVAL, "a value of type %s has no length", kind_name(v));
	}
}

int value_contains(struct run *r, const struct value *in, const struct value *what, bool *out)
{
	const struct value *items;
	size_t n;
	int rc;

	*out = false;
	switch (in->kind) {
	case K_UNDEFINED: return 0;
	case K_STR:
		if (!is_str(what))
			return run_fail(r, -EINVAL, "'in' a str needs a str, not %s",
					kind_name(what));
		*out = str_find(in, 0, what) != SIZE_MAX;
		return run_charge(r, in->len);
	case K_DICT:
		if (!is_key(what)) {
			if (what->kind == K_UNDEFINED || what->kind == K_TUPLE)
				return 0;
			return run_fail(r, -EINVAL, "a %s can't be the key of a dict",
					kind_name(what));
		}
		*out = dict_find(in->dict, what) != NULL;
		return 0;
	default:
		if ((rc = value_items(r, in, &items, &n)))
			return rc;
		for (size_t i = 0; i < n && !*out; i++)
			if ((rc = value_equal(r, &items[i], what, out)))
				return rc;
		return 0;
	}
}

/* ---- from JSON ------------------------------------------------------------------------ */

static bool is_trusted(const struct ig_jinja_input *in, const char *key, const json_t *j)
{
	if (!in->trusted_key || !in->trusted_words || !key || strcmp(key, in->trusted_key))
		return false;
	for (const char *const *w = in->trusted_words; *w; w++)
		if (json_string_length(j) == strlen(*w) &&
		    !memcmp(json_string_value(j), *w, json_string_length(j)))
			return true;
	return false;
}

static int from_object(struct run *r, const json_t *j, const struct ig_jinja_input *in,
		       bool trusted, unsigned depth, struct value *out)
{
	struct dict *d = NULL;
	int rc = dict_new(r, json_object_size(j), &d);

	if (rc)
		return rc;
	json_t *o = (json_t *)(uintptr_t)j; /* iteration changes nothing */
	for (void *i = json_object_iter(o); i; i = json_object_iter_next(o, i)) {
		const char *name = json_object_iter_key(i);
		const json_t *child = json_object_iter_value(i);
		struct value key = v_str(name, strlen(name)), v;
		key.client = !trusted;
		bool word = json_is_string(child) && is_trusted(in, name, child);
		if ((rc = value_from_json(r, child, in, trusted || word, depth + 1, &v)) ||
		    (rc = dict_set(r, d, &key, &v)))
			return rc;
	}
	*out = (struct value){ .kind = K_DICT, .dict = d };
	return 0;
}

int value_from_json(struct run *r, const json_t *j, const struct ig_jinja_input *in, bool trusted,
		    unsigned depth, struct value *out)
{
	struct list *l = NULL;
	int rc = value_enter(r, depth);

	if (rc)
		return rc;
	switch (json_typeof(j)) {
	case JSON_NULL: *out = v_none(); return 0;
	case JSON_TRUE: *out = v_bool(true); return 0;
	case JSON_FALSE: *out = v_bool(false); return 0;
	case JSON_INTEGER: *out = v_int(json_integer_value(j)); return 0;
	case JSON_REAL: *out = v_float(json_real_value(j)); return 0;
	case JSON_STRING:
		if (json_string_length(j) > INT32_MAX)
			return run_fail(r, -E2BIG, "a text is too long");
		*out = v_str(json_string_value(j), json_string_length(j));
		out->client = !trusted;
		/* Later copies may use memory in proportion to the input. */
		r->arena.limit += 16 * (size_t)out->len;
		return 0;
	case JSON_ARRAY:
		r->arena.limit += 256 * json_array_size(j);
		if ((rc = list_new(r, json_array_size(j), &l)))
			return rc;
		for (; l->n < json_array_size(j) && !rc; l->n++)
			rc = value_from_json(r, json_array_get(j, l->n), in, trusted, depth + 1,
					     &l->items[l->n]);
		*out = v_list(K_LIST, l);
		return rc;
	default: /* JSON_OBJECT */
		r->arena.limit += 512 * json_object_size(j);
		return from_object(r, j, in, trusted, depth, out);
	}
}
