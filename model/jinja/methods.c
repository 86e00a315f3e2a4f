/*
 * methods.c: arguments of calls, and the methods of strings (string_methods.c), dicts and
 * lists by name.  Methods that would change a list or dict are listed and refused, as in
 * jinja2's sandbox.
 */
#include "model/jinja/methods_private.h"

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

/* ---- tables ------------------------------------------------------------------- */
struct entry {
	const char *name;
	int id;
	uint8_t min, max;     /* arguments */
	const char *names[2]; /* arguments that may be passed by name */
};

static const struct entry string_methods[] = {
	{ "strip", S_STRIP, 0, 1, { 0 } },
	{ "lstrip", S_LSTRIP, 0, 1, { 0 } },
	{ "rstrip", S_RSTRIP, 0, 1, { 0 } },
	{ "split", S_SPLIT, 0, 2, { "sep", "maxsplit" } },
	{ "rsplit", S_RSPLIT, 0, 2, { "sep", "maxsplit" } },
	{ "splitlines", S_SPLITLINES, 0, 1, { "keepends" } },
	{ "startswith", S_STARTSWITH, 1, 1, { 0 } },
	{ "endswith", S_ENDSWITH, 1, 1, { 0 } },
	{ "upper", S_UPPER, 0, 0, { 0 } },
	{ "lower", S_LOWER, 0, 0, { 0 } },
	{ "title", S_TITLE, 0, 0, { 0 } },
	{ "capitalize", S_CAPITALIZE, 0, 0, { 0 } },
	{ "replace", S_REPLACE, 2, 3, { 0 } },
	{ "join", S_JOIN, 1, 1, { 0 } },
	{ "format", S_FORMAT, 0, 255, { 0 } },
	{ "find", S_FIND, 1, 1, { 0 } },
	{ "rfind", S_RFIND, 1, 1, { 0 } },
	{ "index", S_INDEX, 1, 1, { 0 } },
	{ "count", S_COUNT, 1, 1, { 0 } },
	{ "isdigit", S_ISDIGIT, 0, 0, { 0 } },
	{ "isalpha", S_ISALPHA, 0, 0, { 0 } },
	{ "isalnum", S_ISALNUM, 0, 0, { 0 } },
	{ "isspace", S_ISSPACE, 0, 0, { 0 } },
	{ "isupper", S_ISUPPER, 0, 0, { 0 } },
	{ "islower", S_ISLOWER, 0, 0, { 0 } },
	{ "removeprefix", S_REMOVEPREFIX, 1, 1, { 0 } },
	{ "removesuffix", S_REMOVESUFFIX, 1, 1, { 0 } },
	{ "partition", S_PARTITION, 1, 1, { 0 } },
	{ "rpartition", S_RPARTITION, 1, 1, { 0 } },
	{ "zfill", S_ZFILL, 1, 1, { 0 } },
	{ NULL, 0, 0, 0, { 0 } },
};

static const struct entry dict_methods[] = {
	{ "get", D_GET, 1, 2, { 0 } },	   { "items", D_ITEMS, 0, 0, { 0 } },
	{ "keys", D_KEYS, 0, 0, { 0 } },   { "values", D_VALUES, 0, 0, { 0 } },
	{ "copy", D_COPY, 0, 0, { 0 } },   { "pop", -2, 0, 0, { 0 } },
	{ "popitem", -2, 0, 0, { 0 } },	   { "update", -2, 0, 0, { 0 } },
	{ "setdefault", -2, 0, 0, { 0 } }, { "clear", -2, 0, 0, { 0 } },
	{ NULL, 0, 0, 0, { 0 } },
};

static const struct entry list_methods[] = {
	{ "index", L_INDEX, 1, 1, { 0 } }, { "count", L_COUNT, 1, 1, { 0 } },
	{ "copy", L_COPY, 0, 0, { 0 } },   { "append", -2, 0, 0, { 0 } },
	{ "extend", -2, 0, 0, { 0 } },	   { "insert", -2, 0, 0, { 0 } },
	{ "pop", -2, 0, 0, { 0 } },	   { "remove", -2, 0, 0, { 0 } },
	{ "reverse", -2, 0, 0, { 0 } },	   { "sort", -2, 0, 0, { 0 } },
	{ "clear", -2, 0, 0, { 0 } },	   { NULL, 0, 0, 0, { 0 } },
};

static const struct entry *method_entry(const struct value *v, const char *name, size_t len)
{
	const struct entry *e = v->kind == K_STR  ? string_methods :
				v->kind == K_DICT ? dict_methods :
				v->kind == K_LIST ? list_methods :
						    NULL;

	for (; e && e->name; e++)
		if (strlen(e->name) == len && !memcmp(e->name, name, len))
			return e;
	return NULL;
}

int method_id(const struct value *v, const char *name, size_t len)
{
	const struct entry *e = method_entry(v, name, len);

	return e ? e->id : -1;
}

/* ---- dicts and lists --------------------------------------------------------------------- */

static int collection_call(struct run *r, int id, const struct value *self, const struct args *a,
			   struct value *out)
{
	const struct value *x = arg_get(a, 0, NULL), *items;
	bool same = false;
	struct list *l;
	size_t n;
	int64_t count = 0;
	int rc;

	switch (id) {
	case D_GET:
		items = is_key(x) ? dict_find(self->dict, x) : NULL;
		*out = items ? *items : a->n > 1 ? a->pos[1] : v_none();
		return 0;
	case D_ITEMS: return pair_list(r, self->dict, out);
	case D_COPY:
	case L_COPY:
		*out = *self; /* nothing can change it */
		return 0;
	default: break;
	}
	if ((rc = value_items(r, self, &items, &n)))
		return rc;
	if (id == D_KEYS || id == D_VALUES) {
		if ((rc = list_new(r, n, &l)))
			return rc;
		for (size_t i = 0; i < n; i++)
			l->items[l->n++] = id == D_KEYS ? items[i] : self->dict->pairs[i].value;
		*out = v_list(K_LIST, l);
		return 0;
	}
	for (size_t i = 0; i < n; i++) {
		if ((rc = value_equal(r, &items[i], x, &same)))
			return rc;
		count += same;
		if (same && id == L_INDEX) {
			*out = v_int((int64_t)i);
			return 0;
		}
	}
	if (id == L_INDEX)
		return run_fail(r, -EINVAL, "index: the value is not in the list");
	*out = v_int(count);
	return 0;
}

int method_call(struct run *r, const struct method *m, const struct args *a, struct value *out)
{
	const struct entry *e = m->self.kind == K_STR  ? string_methods :
				m->self.kind == K_DICT ? dict_methods :
							 list_methods;
	size_t n_names = 0;

	while (e->id != m->id)
		e++;
	while (n_names < 2 && e->names[n_names])
		n_names++;
	if (m->id != S_FORMAT) {
		if (a->n > e->max || (a->n < e->min && !a->n_keys))
			return run_fail(r, -EINVAL, "%s takes %d to %d arguments, not %zu", e->name,
					e->min, e->max, a->n);
		if (a->n_keys && (!n_names || args_check(r, a, e->name, 0, e->names, n_names)))
			return run_fail(r, -EINVAL, "%s takes no argument named '%s'", e->name,
					a->keys[0]);
	}
	if (m->self.kind != K_STR)
		return collection_call(r, m->id, &m->self, a, out);
	int rc = string_call(r, m->id, &m->self, a, out);
	if (!rc && is_str(out))
		out->safe = m->self.safe;
	return rc;
}
