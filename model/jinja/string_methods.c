/* string_methods.c: the methods of strings, as Python has them. */
#include "model/jinja/jinja_private.h"

#include <errno.h>
#include <utf8proc.h>

static bool is_in(const char *p, size_t len, const struct value *chars)
{
	for (size_t i = 0; i < chars->len;) {
		size_t n = utf8_one(chars->p + i, chars->len - i);
		if (n == len && !memcmp(chars->p + i, p, n))
			return true;
		i += n;
	}
	return false;
}

enum { LEFT = 1, RIGHT = 2 };

static int strip(struct run *r, const struct value *s, const struct args *a, int sides,
		 struct value *out)
{
	const struct value *chars = arg_get(a, 0, NULL), *items;
	bool left = sides & LEFT, right = sides & RIGHT;
	size_t n, first = 0, end, at = 0;
	int rc;

	if (!chars || chars->kind == K_NONE) {
		*out = str_strip(s, left, right);
		return run_charge(r, s->len - out->len);
	}
	if (!is_str(chars))
		return run_fail(r, -EINVAL, "strip needs a str, not %s", kind_name(chars));
	if (run_charge(r, s->len * (1 + (size_t)chars->len / 8)) ||
	    (rc = value_items(r, s, &items, &n)))
		return r->rc;
	end = n;
	while (left && first < end && is_in(items[first].p, items[first].len, chars))
		at += items[first++].len;
	while (right && end > first && is_in(items[end - 1].p, items[end - 1].len, chars))
		end--;
	*out = str_slice(s, at,
			 end > first ? (size_t)(items[end - 1].p - s->p) + items[end - 1].len - at :
				       0);
	return 0;
}

static int add_part(struct run *r, struct list *l, const struct value *s, size_t first, size_t end)
{
	struct value part = str_slice(s, first, end - first);

	return list_add(r, l, &part);
}

/* At white space: a run of it is one separator, and the ends are stripped. */
static int split_space(struct run *r, const struct value *s, int64_t max, struct list *l)
{
	size_t pos = 0, n;
	int rc;

	for (;;) {
		while (pos < s->len && (n = space_at(s->p + pos, s->len - pos)))
			pos += n;
		if (pos == s->len)
			return 0;
		size_t end = pos;
		if (max == 0) {
			struct value rest = str_slice(s, pos, s->len - pos);
			rest = str_strip(&rest, false, true);
			return list_add(r, l, &rest);
		}
		while (end < s->len && !space_at(s->p + end, s->len - end))
			end += utf8_one(s->p + end, s->len - end);
		if ((rc = add_part(r, l, s, pos, end)))
			return rc;
		pos = end;
		if (max > 0)
			max--;
	}
}

/* The last position of what in s before end; SIZE_MAX: not found. */
static size_t find_last(const struct value *s, size_t end, const struct value *what)
{
	for (size_t i = end < what->len ? 0 : end - what->len + 1; i-- > 0;)
		if (!memcmp(s->p + i, what->p, what->len))
			return i;
	return SIZE_MAX;
}

/* What find_last may cost at worst: every position is compared up to the last byte. */
static size_t backward_work(const struct value *s, const struct value *what)
{
	return s->len + (size_t)s->len / 4 * what->len;
}

static int split(struct run *r, const struct value *s, const struct args *a, int from_right,
		 struct value *out)
{
	const struct value *sep = arg_get(a, 0, "sep"), *count = arg_get(a, 1, "maxsplit");
	int64_t max = -1;
	struct list *l;
	size_t pos = 0, at, end = s->len;
	int rc;

	if (count && !is_int(count))
		return run_fail(r, -EINVAL, "split needs a number, not %s", kind_name(count));
	if (count)
		max = count->i;
	if ((rc = list_new(r, 0, &l)) || (rc = run_charge(r, s->len)))
		return rc;
	*out = v_list(K_LIST, l);
	if (!sep || sep->kind == K_NONE) {
		if (from_right && max >= 0)
			return run_fail(r, -ENOTSUP,
					"rsplit at white space with a count is not supported");
		return split_space(r, s, max, l);
	}
	if (!is_str(sep) || !sep->len)
		return run_fail(r, -EINVAL, "split needs a separator that is a str and not empty");
	if (!from_right) {
		for (; max != 0 && (at = str_find(s, pos, sep)) != SIZE_MAX;
		     pos = at + sep->len, max--)
			if ((rc = add_part(r, l, s, pos, at)))
				return rc;
		return add_part(r, l, s, pos, s->len);
	}
	if ((rc = run_charge(r, backward_work(s, sep))))
		return rc;
	for (; max != 0 && (at = find_last(s, end, sep)) != SIZE_MAX; end = at, max--)
		if ((rc = add_part(r, l, s, at + sep->len, end)))
			return rc;
	if ((rc = add_part(r, l, s, 0, end)))
		return rc;
	list_reverse(l);
	return 0;
}

static int splitlines(struct run *r, const struct value *s, const struct args *a, int arg,
		      struct value *out)
{
	const struct value *keep = arg_get(a, 0, "keepends");
	struct list *l;
	size_t start = 0;
	int rc = list_new(r, 0, &l);

	for (size_t i = 0; i < s->len && !rc; i++) {
		size_t end = i;
		if (s->p[i] != '\n' && s->p[i] != '\r' && s->p[i] != '\v' && s->p[i] != '\f')
			continue;
		if (s->p[i] == '\r' && i + 1 < s->len && s->p[i + 1] == '\n')
			i++;
		rc = add_part(r, l, s, start, keep && truth(keep) ? i + 1 : end);
		start = i + 1;
	}
	if (!rc && start < s->len)
		rc = add_part(r, l, s, start, s->len);
	*out = v_list(K_LIST, l);
	return rc;
}

static bool begins_or_ends(const struct value *s, const struct value *what, bool begins)
{
	return s->len >= what->len &&
	       !memcmp(begins ? s->p : s->p + (s->len - what->len), what->p, what->len);
}

static int starts_or_ends(struct run *r, const struct value *s, const struct args *a, int begins,
			  struct value *out)
{
	const struct value *what = arg_get(a, 0, NULL);
	bool found = false;

	if (is_str(what)) {
		found = begins_or_ends(s, what, begins);
	} else if (what->kind == K_TUPLE) {
		for (size_t i = 0; i < what->list->n && !found; i++) {
			if (!is_str(&what->list->items[i]))
				return run_fail(r, -EINVAL, "startswith and endswith need strings");
			found = begins_or_ends(s, &what->list->items[i], begins);
		}
	} else {
		return run_fail(r, -EINVAL, "startswith and endswith need a str, not %s",
				kind_name(what));
	}
	*out = v_bool(found);
	return 0;
}

enum { FIND, RFIND, INDEX };

static int find(struct run *r, const struct value *s, const struct args *a, int how,
		struct value *out)
{
	const struct value *what = arg_get(a, 0, NULL);
	size_t at;

	if (run_charge(r, how == RFIND ? backward_work(s, what) : s->len))
		return r->rc;
	at = how == RFIND ? find_last(s, s->len, what) : str_find(s, 0, what);
	if (at == SIZE_MAX && how == INDEX)
		return run_fail(r, -EINVAL, "index: the text is not in the string");
	*out = v_int(at == SIZE_MAX ? -1 : (int64_t)utf8_length(s->p, at));
	return 0;
}

static int count_parts(struct run *r, const struct value *s, const struct args *a, int arg,
		       struct value *out)
{
	const struct value *what = arg_get(a, 0, NULL);
	int64_t n = 0;
	size_t at, pos = 0;

	if (run_charge(r, s->len))
		return r->rc;
	if (!what->len) {
		*out = v_int((int64_t)utf8_length(s->p, s->len) + 1);
		return 0;
	}
	for (; (at = str_find(s, pos, what)) != SIZE_MAX; pos = at + what->len)
		n++;
	*out = v_int(n);
	return 0;
}

static int partition(struct run *r, const struct value *s, const struct args *a, int last,
		     struct value *out)
{
	const struct value *what = arg_get(a, 0, NULL);
	struct list *l;
	size_t at;
	int rc;

	if (!what->len)
		return run_fail(r, -EINVAL, "partition needs a separator that is not empty");
	if ((rc = run_charge(r, last ? backward_work(s, what) : s->len)) ||
	    (rc = list_new(r, 3, &l)))
		return rc;
	at = last ? find_last(s, s->len, what) : str_find(s, 0, what);
	struct value empty = v_str("", 0);
	if (at == SIZE_MAX) {
		l->items[0] = last ? empty : *s;
		l->items[1] = empty;
		l->items[2] = last ? *s : empty;
	} else {
		l->items[0] = str_slice(s, 0, at);
		l->items[1] = *what;
		l->items[2] = str_slice(s, at + what->len, s->len - at - what->len);
	}
	l->n = 3;
	*out = v_list(K_TUPLE, l);
	return 0;
}

enum class { DIGIT, ALPHA, ALNUM, SPACE, UPPER, LOWER };

static bool has_class(enum class class, int32_t c)
{
	utf8proc_category_t g = c < 0 ? UTF8PROC_CATEGORY_CN : utf8proc_category(c);
	bool letter = g >= UTF8PROC_CATEGORY_LU && g <= UTF8PROC_CATEGORY_LO;
	bool digit = g == UTF8PROC_CATEGORY_ND;

	switch (class) {
	case DIGIT: return digit;
	case ALPHA: return letter;
	case ALNUM:
		return letter || digit || g == UTF8PROC_CATEGORY_NL || g == UTF8PROC_CATEGORY_NO;
	case UPPER: return g == UTF8PROC_CATEGORY_LU;
	default: return g == UTF8PROC_CATEGORY_LL;
	}
}

static int classify(struct run *r, const struct value *s, const struct args *a, int class,
		    struct value *out)
{
	bool all = s->len > 0, any = false, cased = class == UPPER || class == LOWER;
	size_t n;

	for (size_t i = 0; i < s->len; i += n) {
		int32_t c = utf8_decode(s->p + i, s->len - i, &n);
		any = any || (cased && has_class((enum class) class, c));
		all = all && (class == SPACE ? space_at(s->p + i, s->len - i) > 0 :
			      cased	     ? !has_class(class == UPPER ? LOWER : UPPER, c) :
					       has_class((enum class) class, c));
	}
	*out = v_bool(all && (any || !cased));
	return run_charge(r, s->len);
}

static int join(struct run *r, const struct value *sep, const struct args *a, int arg,
		struct value *out)
{
	const struct value *items;
	struct builder b;
	size_t n;
	int rc = value_items(r, arg_get(a, 0, NULL), &items, &n);

	if (rc)
		return rc;
	builder_init(&b, r);
	for (size_t i = 0; i < n; i++) {
		if (!is_str(&items[i]))
			return run_fail(r, -EINVAL, "join: item %zu is %s, not str", i,
					kind_name(&items[i]));
		if (i)
			builder_value(&b, sep);
		builder_value(&b, &items[i]);
	}
	return builder_end(&b, out);
}

/* "{}", "{0}", "{name}"; no conversions and no formats. */
static int format(struct run *r, const struct value *s, const struct args *a, int arg,
		  struct value *out)
{
	struct builder b;
	size_t next = 0;
	int rc;

	builder_init(&b, r);
	for (size_t i = 0; i < s->len; i++) {
		struct value part = str_slice(s, i, 1), name, v;
		const struct value *found = NULL;
		char c = s->p[i];
		if (c != '{' && c != '}') {
			builder_value(&b, &part);
			continue;
		}
		if (i + 1 < s->len && s->p[i + 1] == c) {
			builder_value(&b, &part);
			i++;
			continue;
		}
		const char *end = c == '{' ? memchr(s->p + i, '}', s->len - i) : NULL;
		if (!end)
			return run_fail(r, -EINVAL, "format: a single '%c'", c);
		name = str_slice(s, i + 1, (size_t)(end - s->p) - i - 1);
		for (size_t k = 0; k < a->n_keys && !found; k++)
			if (str_is(&name, a->keys[k]))
				found = &a->key_values[k];
		if (!name.len) {
			found = next < a->n ? &a->pos[next++] : NULL;
		} else if (!found && name.len < 4) {
			size_t at = 0;
			uint32_t k = 0;
			for (; k < name.len && name.p[k] >= '0' && name.p[k] <= '9'; k++)
				at = at * 10 + (size_t)(name.p[k] - '0');
			found = k == name.len && at < a->n ? &a->pos[at] : NULL;
		}
		if (!found)
			return run_fail(r, -EINVAL, "format: there is no value for {%.*s}",
					name.len < 40 ? (int)name.len : 40, name.p);
		if ((rc = text_of(r, found, &v)))
			return rc;
		builder_value(&b, &v);
		i = (size_t)(end - s->p);
	}
	return builder_end(&b, out);
}

static int zfill(struct run *r, const struct value *s, const struct args *a, int arg,
		 struct value *out)
{
	const struct value *width = arg_get(a, 0, NULL);
	size_t n = utf8_length(s->p, s->len);
	bool sign = s->len && (s->p[0] == '-' || s->p[0] == '+');
	struct value part = str_slice(s, 0, sign);
	struct builder b;

	if (!is_int(width))
		return run_fail(r, -EINVAL, "zfill needs a number, not %s", kind_name(width));
	builder_init(&b, r);
	builder_value(&b, &part);
	for (; width->i > 0 && n < (uint64_t)width->i && !b.failed; n++)
		builder_puts(&b, "0");
	part = str_slice(s, sign, s->len - sign);
	builder_value(&b, &part);
	return builder_end(&b, out);
}

static int change_case(struct run *r, const struct value *s, const struct args *a, int how,
		       struct value *out)
{
	return str_case(r, s, (enum str_case)how, out);
}

static int replace(struct run *r, const struct value *s, const struct args *a, int arg,
		   struct value *out)
{
	const struct value *max = arg_get(a, 2, NULL);

	if (max && !is_int(max))
		return run_fail(r, -EINVAL, "replace needs a number, not %s", kind_name(max));
	return str_replace(r, s, &a->pos[0], &a->pos[1], max ? max->i : -1, out);
}

static int remove_affix(struct run *r, const struct value *s, const struct args *a, int prefix,
			struct value *out)
{
	const struct value *x = arg_get(a, 0, NULL);
	size_t len = begins_or_ends(s, x, prefix) ? x->len : 0;

	*out = str_slice(s, prefix ? len : 0, s->len - len);
	return 0;
}

const struct method_entry string_methods[] = {
	{ "strip", strip, LEFT | RIGHT, 0, 1, false, { 0 } },
	{ "lstrip", strip, LEFT, 0, 1, false, { 0 } },
	{ "rstrip", strip, RIGHT, 0, 1, false, { 0 } },
	{ "split", split, false, 0, 2, false, { "sep", "maxsplit" } },
	{ "rsplit", split, true, 0, 2, false, { "sep", "maxsplit" } },
	{ "splitlines", splitlines, 0, 0, 1, false, { "keepends" } },
	{ "startswith", starts_or_ends, true, 1, 1, false, { 0 } },
	{ "endswith", starts_or_ends, false, 1, 1, false, { 0 } },
	{ "upper", change_case, CASE_UPPER, 0, 0, false, { 0 } },
	{ "lower", change_case, CASE_LOWER, 0, 0, false, { 0 } },
	{ "title", change_case, CASE_TITLE, 0, 0, false, { 0 } },
	{ "capitalize", change_case, CASE_CAPITAL, 0, 0, false, { 0 } },
	{ "replace", replace, 0, 2, 3, true, { 0 } },
	{ "join", join, 0, 1, 1, false, { 0 } },
	{ "format", format, 0, 0, UINT8_MAX, false, { 0 } },
	{ "find", find, FIND, 1, 1, true, { 0 } },
	{ "rfind", find, RFIND, 1, 1, true, { 0 } },
	{ "index", find, INDEX, 1, 1, true, { 0 } },
	{ "count", count_parts, 0, 1, 1, true, { 0 } },
	{ "isdigit", classify, DIGIT, 0, 0, false, { 0 } },
	{ "isalpha", classify, ALPHA, 0, 0, false, { 0 } },
	{ "isalnum", classify, ALNUM, 0, 0, false, { 0 } },
	{ "isspace", classify, SPACE, 0, 0, false, { 0 } },
	{ "isupper", classify, UPPER, 0, 0, false, { 0 } },
	{ "islower", classify, LOWER, 0, 0, false, { 0 } },
	{ "removeprefix", remove_affix, true, 1, 1, true, { 0 } },
	{ "removesuffix", remove_affix, false, 1, 1, true, { 0 } },
	{ "partition", partition, false, 1, 1, true, { 0 } },
	{ "rpartition", partition, true, 1, 1, true, { 0 } },
	{ "zfill", zfill, 0, 1, 1, false, { 0 } },
	{ NULL, NULL, 0, 0, 0, false, { 0 } },
};
