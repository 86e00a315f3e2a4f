/* list_filters.c: filters that order, select and change the items of a value. */
#include "model/jinja/filters_private.h"

#include <errno.h>

/* The value at the path "a.b.0" of v; v itself for NULL or None.  fallback, if not NULL,
 * replaces each part that is undefined. */
static int path_or(struct run *r, const struct value *v, const struct value *path,
		   const struct value *fallback, struct value *out)
{
	size_t start = 0;
	int rc;

	*out = *v;
	if (!path || path->kind == K_NONE)
		return 0;
	if (is_int(path))
		return eval_item(r, v, path, out);
	if (!is_str(path))
		return run_fail(r, -EINVAL, "an attribute's name is %s, not str", kind_name(path));
	for (size_t i = 0; i <= path->len; i++) {
		struct value of = *out, key = str_slice(path, start, i - start);
		bool digits = key.len > 0 && key.len < 10;
		if (i < path->len && path->p[i] != '.')
			continue;
		for (uint32_t k = 0; k < key.len; k++)
			digits = digits && key.p[k] >= '0' && key.p[k] <= '9';
		if (digits) {
			int64_t n = 0;
			for (uint32_t k = 0; k < key.len; k++)
				n = n * 10 + key.p[k] - '0';
			key = v_int(n);
		}
		if ((rc = eval_item(r, &of, &key, out)))
			return rc;
		if (fallback && out->kind == K_UNDEFINED)
			*out = *fallback;
		start = i + 1;
	}
	return 0;
}

int filter_path(struct run *r, const struct value *v, const struct value *path, struct value *out)
{
	return path_or(r, v, path, NULL, out);
}

int list_copy(struct run *r, const struct value *v, struct list **out)
{
	const struct value *items;
	struct list *l;
	size_t n;
	int rc;

	if ((rc = value_items(r, v, &items, &n)) || (rc = list_new(r, n, &l)) ||
	    (rc = run_charge(r, n * sizeof *items)))
		return rc;
	if (n)
		memcpy(l->items, items, n * sizeof *items);
	l->n = n;
	*out = l;
	return 0;
}

bool arg_flag(const struct args *a, size_t i, const char *name)
{
	const struct value *v = arg_get(a, i, name);

	return v && truth(v);
}

/* ---- order -------------------------------------------------------------------------------- */

/* An item and the key that orders it. */
struct keyed {
	struct value key, item;
};

static int make_key(struct run *r, const struct value *item, const struct value *path, bool fold,
		    struct value *out)
{
	int rc = filter_path(r, item, path, out);

	return !rc && fold && is_str(out) ? str_case(r, out, CASE_LOWER, out) : rc;
}

/* A stable merge of two sorted halves, from a to b. */
static int merge(struct run *r, const struct keyed *a, size_t n_left, size_t n, bool reverse,
		 struct keyed *b)
{
	size_t i = 0, k = n_left;

	for (size_t o = 0; o < n; o++) {
		int c = 0, rc;
		if (i < n_left && k < n && (rc = value_order(r, &a[i].key, &a[k].key, &c)))
			return rc;
		bool left = k == n || (i < n_left && (reverse ? c >= 0 : c <= 0));
		b[o] = left ? a[i++] : a[k++];
	}
	return 0;
}

static int sort_keyed(struct run *r, struct keyed *v, size_t n, bool reverse)
{
	struct keyed *from = v, *to = run_alloc(r, n, sizeof *to);

	if (!to)
		return r->rc;
	for (size_t width = 1; width < n; width *= 2) {
		for (size_t i = 0; i < n; i += 2 * width) {
			size_t len = n - i < 2 * width ? n - i : 2 * width;
			int rc =
				merge(r, from + i, width < len ? width : len, len, reverse, to + i);
			if (rc)
				return rc;
		}
		struct keyed *swap = from;
		from = to;
		to = swap;
	}
	if (from != v && n)
		memcpy(v, from, n * sizeof *v);
	return 0;
}

static int sort_by(struct run *r, const struct value *v, const struct value *path, bool fold,
		   bool reverse, struct value *out)
{
	struct keyed *keyed;
	struct list *l;
	int rc = list_copy(r, v, &l);

	if (rc)
		return rc;
	keyed = run_alloc(r, l->n, sizeof *keyed);
	if (!keyed)
		return r->rc;
	for (size_t i = 0; i < l->n; i++) {
		keyed[i].item = l->items[i];
		if ((rc = make_key(r, &l->items[i], path, fold, &keyed[i].key)))
			return rc;
	}
	if ((rc = sort_keyed(r, keyed, l->n, reverse)))
		return rc;
	for (size_t i = 0; i < l->n; i++)
		l->items[i] = keyed[i].item;
	*out = v_list(K_LIST, l);
	return 0;
}

int filter_sort(struct run *r, const struct value *v, const struct args *a, int arg,
		struct value *out)
{
	return sort_by(r, v, arg_get(a, 2, "attribute"), !arg_flag(a, 1, "case_sensitive"),
		       arg_flag(a, 0, "reverse"), out);
}

int filter_dictsort(struct run *r, const struct value *v, const struct args *a, int arg,
		    struct value *out)
{
	const struct value *by = arg_get(a, 1, "by");
	struct value pairs, index = v_int(by && str_is(by, "value"));
	int rc;

	if (v->kind != K_DICT)
		return run_type_error(r, v, "dictsort needs a dict");
	if (by && !str_is(by, "key") && !str_is(by, "value"))
		return run_fail(r, -EINVAL, "dictsort: by must be key or value");
	if ((rc = pair_list(r, v->dict, &pairs)))
		return rc;
	return sort_by(r, &pairs, &index, !arg_flag(a, 0, "case_sensitive"),
		       arg_flag(a, 2, "reverse"), out);
}

int filter_extreme(struct run *r, const struct value *v, const struct args *a, int max,
		   struct value *out)
{
	const struct value *path = arg_get(a, 1, "attribute"), *items;
	bool fold = !arg_flag(a, 0, "case_sensitive");
	struct value best, key;
	size_t n;
	int c, rc;

	if ((rc = value_items(r, v, &items, &n)))
		return rc;
	*out = v_undefined(UNDEFINED_NAME, max ? "max" : "min", 3);
	for (size_t i = 0; i < n; i++) {
		if ((rc = make_key(r, &items[i], path, fold, &key)))
			return rc;
		if (i && (rc = value_order(r, &key, &best, &c)))
			return rc;
		if (!i || (max ? c > 0 : c < 0)) {
			best = key;
			*out = items[i];
		}
	}
	return 0;
}

int filter_unique(struct run *r, const struct value *v, const struct args *a, int arg,
		  struct value *out)
{
	const struct value *path = arg_get(a, 1, "attribute"), *items;
	bool fold = !arg_flag(a, 0, "case_sensitive");
	struct value key, yes = v_bool(true);
	struct dict *seen;
	struct list *l;
	size_t n;
	int rc;

	if ((rc = value_items(r, v, &items, &n)) || (rc = list_new(r, 0, &l)) ||
	    (rc = dict_new(r, 0, &seen)))
		return rc;
	for (size_t i = 0; i < n; i++) {
		size_t before = seen->n;
		if ((rc = make_key(r, &items[i], path, fold, &key)) ||
		    (rc = dict_set(r, seen, &key, &yes)) ||
		    (seen->n > before && (rc = list_add(r, l, &items[i]))))
			return rc;
	}
	*out = v_list(K_LIST, l);
	return 0;
}

int filter_reverse(struct run *r, const struct value *v, const struct args *a, int arg,
		   struct value *out)
{
	struct builder b;
	struct list *l;
	int rc = list_copy(r, v, &l);

	if (rc)
		return rc;
	list_reverse(l);
	*out = v_list(K_LIST, l);
	if (!is_str(v))
		return 0;
	builder_init(&b, r);
	for (size_t i = 0; i < l->n; i++)
		builder_value(&b, &l->items[i]);
	return builder_end(&b, out);
}

/* ---- selection ------------------------------------------------------------------------------ */

/* Selecting from a false value, including None, gives nothing. */
static int items_or_none(struct run *r, const struct value *v, const struct value **items,
			 size_t *n)
{
	*items = NULL;
	*n = 0;
	return truth(v) ? value_items(r, v, items, n) : 0;
}

/* select, reject, selectattr, rejectattr: the arguments are a test and the test's arguments. */
int filter_select(struct run *r, const struct value *v, const struct args *a, int how,
		  struct value *out)
{
	bool by_attr = how & SELECT_BY_ATTRIBUTE;
	const struct value *items, *path = by_attr ? arg_get(a, 0, NULL) : NULL;
	size_t n, used = by_attr, n_used;
	struct args rest = { 0 };
	struct value of;
	struct list *l;
	bool ok;
	int id = -1, rc;

	if (by_attr && !path)
		return run_fail(r, -EINVAL, "selectattr and rejectattr need an attribute");
	if (a->n > used) {
		if (!is_str(&a->pos[used]) || (id = test_id(a->pos[used].p, a->pos[used].len)) < 0)
			return run_fail(r, -EINVAL, "there is no such test to select with");
		n_used = used + 1;
		rest = (struct args){ a->pos + n_used, a->n - n_used, a->keys, a->key_values,
				      a->n_keys };
	}
	if ((rc = items_or_none(r, v, &items, &n)) || (rc = list_new(r, 0, &l)))
		return rc;
	for (size_t i = 0; i < n; i++) {
		if ((rc = filter_path(r, &items[i], path, &of)))
			return rc;
		ok = truth(&of);
		if (id >= 0 && (rc = test_call(r, id, &of, &rest, &ok)))
			return rc;
		if (ok == (how & SELECT_TRUE) && (rc = list_add(r, l, &items[i])))
			return rc;
	}
	*out = v_list(K_LIST, l);
	return 0;
}

/* map('filter', …) or map(attribute='a.b', default=…). */
int filter_map(struct run *r, const struct value *v, const struct args *a, int arg,
	       struct value *out)
{
	const struct value *path = NULL, *fallback = NULL, *items;
	struct args rest = { 0 };
	struct value item;
	struct list *l;
	size_t n;
	int id = -1, rc;

	if (a->n) {
		if (!is_str(&a->pos[0]) || (id = filter_id(a->pos[0].p, a->pos[0].len)) < 0)
			return run_fail(r, -EINVAL, "map: there is no such filter");
		rest = (struct args){ a->pos + 1, a->n - 1, a->keys, a->key_values, a->n_keys };
	} else {
		path = arg_get(a, 0, "attribute");
		fallback = arg_get(a, 0, "default");
		if (!path)
			return run_fail(r, -EINVAL, "map needs a filter or an attribute");
	}
	if ((rc = items_or_none(r, v, &items, &n)) || (rc = list_new(r, n, &l)))
		return rc;
	for (size_t i = 0; i < n; i++) {
		rc = id >= 0 ? filter_call(r, id, &items[i], &rest, &item) :
			       path_or(r, &items[i], path, fallback, &item);
		if (rc)
			return rc;
		l->items[l->n++] = item;
	}
	*out = v_list(K_LIST, l);
	return 0;
}

int filter_batch(struct run *r, const struct value *v, const struct args *a, int arg,
		 struct value *out)
{
	const struct value *size = arg_get(a, 0, "linecount"), *fill = arg_get(a, 1, "fill_with"),
			   *items;
	struct list *l, *part = NULL;
	size_t n;
	int rc;

	if (!is_int(size) || size->i < 1)
		return run_fail(r, -EINVAL, "batch needs a number of at least 1");
	if ((rc = value_items(r, v, &items, &n)) || (rc = list_new(r, 0, &l)))
		return rc;
	for (size_t i = 0; i < n; i++) {
		if (i % (uint64_t)size->i == 0) {
			if ((rc = list_new(r, 0, &part)))
				return rc;
			struct value p = v_list(K_LIST, part);
			if ((rc = list_add(r, l, &p)))
				return rc;
		}
		if ((rc = list_add(r, part, &items[i])))
			return rc;
	}
	while (part && fill && fill->kind != K_NONE && part->n < (uint64_t)size->i)
		if ((rc = run_charge(r, 0)) || (rc = list_add(r, part, fill)))
			return rc;
	*out = v_list(K_LIST, l);
	return 0;
}

int filter_first_or_last(struct run *r, const struct value *v, const struct args *a, int first,
			 struct value *out)
{
	const struct value *items;
	size_t n;
	int rc = value_items(r, v, &items, &n);

	if (rc)
		return rc;
	*out = n ? items[first ? 0 : n - 1] :
		   v_undefined(UNDEFINED_ATTRIBUTE, first ? "first" : "last", first ? 5 : 4);
	return 0;
}
