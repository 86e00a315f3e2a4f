/* functions.c: the functions that templates may call. */
#include "model/jinja/jinja_private.h"

#include <errno.h>
#include <time.h>

#define MAX_RANGE 100000 /* the sandbox's own limit */

enum { B_RANGE, B_DICT, B_NAMESPACE, B_RAISE, B_STRFTIME, N_BUILTINS };

static const char *const builtins[N_BUILTINS] = {
	"range", "dict", "namespace", "raise_exception", "strftime_now",
};

int builtin_id(const char *name)
{
	for (int i = 0; i < N_BUILTINS; i++)
		if (!strcmp(builtins[i], name))
			return i;
	return -1;
}

static int range(struct run *r, const struct args *a, struct value *out)
{
	int64_t first = 0, end, step = 1, n = 0;
	struct list *l;
	int rc;

	for (size_t i = 0; i < a->n; i++)
		if (!is_int(&a->pos[i]))
			return run_type_error(r, &a->pos[i], "range needs integers");
	if (a->n < 1 || a->n > 3 || a->n_keys)
		return run_fail(r, -EINVAL, "range takes 1 to 3 arguments");
	end = a->pos[0].i;
	if (a->n > 1) {
		first = end;
		end = a->pos[1].i;
	}
	if (a->n > 2)
		step = a->pos[2].i;
	if (step == 0)
		return run_fail(r, -EINVAL, "the step of a range is 0");
	if ((rc = list_new(r, 0, &l)))
		return rc;
	for (int64_t i = first; step > 0 ? i < end : i > end; n++) {
		struct value v = v_int(i);
		if (n == MAX_RANGE)
			return run_fail(r, -E2BIG, "a range of more than %d numbers", MAX_RANGE);
		if ((rc = list_add(r, l, &v)))
			return rc;
		if (__builtin_add_overflow(i, step, &i))
			break;
	}
	*out = v_list(K_LIST, l);
	return 0;
}

static int dict(struct run *r, const struct args *a, struct dict **out)
{
	const struct value *items, *pair;
	size_t n, n_pair;
	struct dict *d;
	int rc;

	if (a->n > 1)
		return run_fail(r, -EINVAL, "dict and namespace take one argument without a name");
	if ((rc = dict_new(r, a->n_keys, &d)))
		return rc;
	if (a->n && a->pos[0].kind == K_DICT) {
		for (size_t i = 0; i < a->pos[0].dict->n; i++)
			if ((rc = dict_set(r, d, &a->pos[0].dict->pairs[i].key,
					   &a->pos[0].dict->pairs[i].value)))
				return rc;
	} else if (a->n) {
		if ((rc = value_items(r, &a->pos[0], &items, &n)))
			return rc;
		for (size_t i = 0; i < n; i++) {
			if ((rc = value_items(r, &items[i], &pair, &n_pair)))
				return rc;
			if (n_pair != 2)
				return run_fail(r, -EINVAL, "dict: item %zu is no pair", i);
			if ((rc = dict_set(r, d, &pair[0], &pair[1])))
				return rc;
		}
	}
	for (size_t i = 0; i < a->n_keys; i++) {
		struct value key = v_lit(a->keys[i]);
		if ((rc = dict_set(r, d, &key, &a->key_values[i])))
			return rc;
	}
	*out = d;
	return 0;
}

static int namespace(struct run *r, const struct args *a, struct value *out)
{
	struct space *s;
	struct dict *d;
	int rc = dict(r, a, &d);

	if (rc)
		return rc;
	s = run_alloc(r, 1, sizeof *s);
	if (!s)
		return r->rc;
	for (size_t i = 0; i < d->n; i++) {
		const struct value *key = &d->pairs[i].key;
		if (!is_str(key))
			return run_fail(r, -EINVAL, "a namespace's attribute is %s, not str",
					kind_name(key));
		if ((rc = space_set(r, s, key->p, key->len, &d->pairs[i].value)))
			return rc;
	}
	*out = (struct value){ .kind = K_NAMESPACE, .space = s };
	return 0;
}

/* Only conversions that every C library has, and "-" for no padding. */
static int strftime_now(struct run *r, const struct value *format, struct value *out)
{
	time_t t = (time_t)r->now_s;
	char f[256], buf[1024], *copy;
	size_t n = 0, len;
	struct tm tm;

	if (!is_str(format) || format->len >= sizeof f - 1)
		return run_fail(r, -EINVAL, "strftime_now needs a format of less than %zu bytes",
				sizeof f - 1);
	if (!localtime_r(&t, &tm))
		return run_fail(r, -EINVAL, "strftime_now: the time can't be told");
	for (uint32_t i = 0; i < format->len; i++) {
		char c = format->p[i];
		if (c == 0)
			return run_fail(r, -EINVAL, "strftime_now: a zero byte in the format");
		f[n++] = c;
		if (c != '%')
			continue;
		if (i + 1 < format->len && format->p[i + 1] == '-')
			f[n++] = format->p[++i];
		if (++i >= format->len || !format->p[i] ||
		    !strchr("aAbBcCdDeFgGhHIjmMnprRStTuUVwWxXyYzZ%", format->p[i]))
			return run_fail(r, -ENOTSUP,
					"strftime_now: a conversion that is not supported "
					"in '%.*s'",
					(int)format->len, format->p);
		f[n++] = format->p[i];
	}
	f[n++] = ' '; /* so that an empty result differs from a failure */
	f[n] = 0;
	len = strftime(buf, sizeof buf, f, &tm);
	if (!len)
		return run_fail(r, -EINVAL, "strftime_now: the text is too long");
	copy = run_alloc(r, len, 1);
	if (!copy)
		return r->rc;
	memcpy(copy, buf, len - 1);
	*out = v_str(copy, len - 1);
	return 0;
}

int builtin_call(struct run *r, int id, const struct args *a, struct value *out)
{
	static const char *const message[] = { "message" }, *const format_name[] = { "format" };
	struct value text;
	int rc;

	switch (id) {
	case B_RANGE: return range(r, a, out);
	case B_DICT: *out = (struct value){ .kind = K_DICT }; return dict(r, a, &out->dict);
	case B_NAMESPACE: return namespace(r, a, out);
	case B_RAISE:
		if ((rc = args_check(r, a, "raise_exception", 1, message, 1)) ||
		    (rc = text_of(r, arg_get(a, 0, "message"), &text)))
			return rc;
		return run_fail(r, -EINVAL, "the template refuses this: %.*s",
				text.len < 300 ? (int)text.len : 300, text.p);
	default: /* B_STRFTIME */
		rc = args_check(r, a, "strftime_now", 1, format_name, 1);
		return rc ? rc : strftime_now(r, arg_get(a, 0, "format"), out);
	}
}
