/*
 * methods.c: arguments of calls, and the methods of strings (string_methods.c), dicts and lists by
 * name.  Methods that would change a list or dict are listed and refused, as in jinja2's sandbox.
 */
#include "model/jinja/jinja_private.h"

#include <errno.h>

const struct value *arg_get(const struct args *a, size_t i, const char *name)
{
	if (i < a->n)
		return &a->pos[i];
	for (size_t k = 0; name && k < a->n_keys; k++)
		if (!strcmp(a->keys[k], name))
			return &a->key_values[k];
	return NULL;
}

int args_check(struct run *r, const struct args *a, const char *what, size_t min,
	       const char *const *names, size_t n_names)
{
	if (a->n > n_names)
		return run_fail(r, -EINVAL, "%s takes %zu arguments at most, not %zu", what,
				n_names, a->n);
	for (size_t k = 0; k < a->n_keys; k++) {
		size_t i = 0;
		while (i < n_names && strcmp(names[i], a->keys[k]))
			i++;
		if (i == n_names)
			return run_fail(r, -EINVAL, "%s takes no argument named '%s'", what,
					a->keys[k]);
		if (i < a->n)
			return run_fail(r, -EINVAL, "%s is given '%s' twice", what, a->keys[k]);
	}
	for (size_t i = 0; i < min; i++)
		if (!arg_get(a, i, names[i]))
			return run_fail(r, -EINVAL, "%s needs the argument '%s'", what, names[i]);
	return 0;
}

/* ---- dicts and lists --------------------------------------------------------------------- */

static int get(struct run *r, const struct value *self, const struct args *a, int arg,
	       struct value *out)
{
	const struct value *x = arg_get(a, 0, NULL), *found;

	found = is_key(x) ? dict_find(self->dict, x) : NULL;
	*out = found ? *found : a->n > 1 ? a->pos[1] : v_none();
	return 0;
}

static int items(struct run *r, const struct value *self, const struct args *a, int arg,
		 struct value *out)
{
	return pair_list(r, self->dict, out);
}

static int keys_or_values(struct run *r, const struct value *self, const struct args *a, int values,
			  struct value *out)
{
	const struct dict *d = self->dict;
	struct list *l = NULL;
	int rc = list_new(r, d->n, &l);

	for (size_t i = 0; i < d->n && !rc; i++)
		l->items[l->n++] = values ? d->pairs[i].value : d->pairs[i].key;
	*out = v_list(K_LIST, l);
	return rc;
}

static int copy(struct run *r, const struct value *self, const struct args *a, int arg,
		struct value *out)
{
	*out = *self; /* nothing can change it */
	return 0;
}

static int index_or_count(struct run *r, const struct value *self, const struct args *a, int index,
			  struct value *out)
{
	const struct value *x = arg_get(a, 0, NULL);
	int64_t count = 0;
	bool same = false;
	int rc;

	for (size_t i = 0; i < self->list->n; i++) {
		if ((rc = value_equal(r, &self->list->items[i], x, &same)))
			return rc;
		count += same;
		*out = v_int((int64_t)i);
		if (same && index)
			return 0;
	}
	if (index)
		return run_fail(r, -EINVAL, "index: the value is not in the list");
	*out = v_int(count);
	return 0;
}

/* ---- tables --------------------------------------------------------------------------------- */

#define FORBIDDEN(name) { name, NULL, 0, 0, 0, false, { 0 } }

static const struct method_entry dict_methods[] = {
	{ "get", get, 0, 1, 2, false, { 0 } },
	{ "items", items, 0, 0, 0, false, { 0 } },
	{ "keys", keys_or_values, false, 0, 0, false, { 0 } },
	{ "values", keys_or_values, true, 0, 0, false, { 0 } },
	{ "copy", copy, 0, 0, 0, false, { 0 } },
	FORBIDDEN("pop"),
	FORBIDDEN("popitem"),
	FORBIDDEN("update"),
	FORBIDDEN("setdefault"),
	FORBIDDEN("clear"),
	FORBIDDEN(NULL),
};

static const struct method_entry list_methods[] = {
	{ "index", index_or_count, true, 1, 1, false, { 0 } },
	{ "count", index_or_count, false, 1, 1, false, { 0 } },
	{ "copy", copy, 0, 0, 0, false, { 0 } },
	FORBIDDEN("append"),
	FORBIDDEN("extend"),
	FORBIDDEN("insert"),
	FORBIDDEN("pop"),
	FORBIDDEN("remove"),
	FORBIDDEN("reverse"),
	FORBIDDEN("sort"),
	FORBIDDEN("clear"),
	FORBIDDEN(NULL),
};

const struct method_entry *method_find(const struct value *v, const char *name, size_t len)
{
	const struct method_entry *e = v->kind == K_STR	 ? string_methods :
				       v->kind == K_DICT ? dict_methods :
				       v->kind == K_LIST ? list_methods :
							   NULL;

	for (; e && e->name; e++)
		if (strlen(e->name) == len && !memcmp(e->name, name, len))
			return e;
	return NULL;
}

int method_call(struct run *r, const struct method *m, const struct args *a, struct value *out)
{
	const struct value *x = arg_get(a, 0, NULL), *y = arg_get(a, 1, NULL);
	const struct method_entry *e = m->entry;
	size_t n_names = 0;
	int rc;

	while (n_names < 2 && e->names[n_names])
		n_names++;
	if (e->max < UINT8_MAX) {
		if (a->n > e->max || (a->n < e->min && !a->n_keys))
			return run_fail(r, -EINVAL, "%s takes %d to %d arguments, not %zu", e->name,
					e->min, e->max, a->n);
		if (a->n_keys && (!n_names || args_check(r, a, e->name, 0, e->names, n_names)))
			return run_fail(r, -EINVAL, "%s takes no argument named '%s'", e->name,
					a->keys[0]);
	}
	if (e->strings && (!is_str(x) || (y && !is_str(y))))
		return run_fail(r, -EINVAL, "a method of str needs a str, not %s",
				kind_name(is_str(x) ? y : x));
	rc = e->call(r, &m->self, a, e->arg, out);
	if (!rc && is_str(&m->self) && is_str(out))
		out->safe = m->self.safe;
	return rc;
}
