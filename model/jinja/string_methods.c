/* string_methods.c: the methods of strings, as Python has them. */
#include "model/jinja/methods_private.h"

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

static int strip(struct run *r, const struct value *s, const struct value *chars, bool left,
		 bool right, struct value *out)
{
	const struct value *items;
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

static int split(struct run *r, const struct value *s, const struct args *a, bool from_right,
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

static int splitlines(struct run *r, const struct value *s, const struct args *a, struct value *out)
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

static int starts_or_ends(struct run *r, const struct value *s, const struct value *what,
			  bool begins, struct value *out)
{
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

static int find(struct run *r, const struct value *s, const struct value *what, int id,
		struct value *out)
{
	size_t at;

	if (run_charge(r, id == S_RFIND ? backward_work(s, what) : s->len))
		return r->rc;
	at = id == S_RFIND ? find_last(s, s->len, what) : str_find(s, 0, what);
	if (at == SIZE_MAX && id == S_INDEX)
		return run_fail(r, -EINVAL, "index: the text is not in the string");
	*out = v_int(at == SIZE_MAX ? -1 : (int64_t)utf8_length(s->p, at));
	return 0;
}

static int count_parts(struct run *r, const struct value *s, const struct value *what,
		       struct value *out)
{
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

static int partition(struct run *r, const struct value *s, const struct value *what, bool last,
		     struct value *out)
{
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

static bool has_class(int id, int32_t c)
{
	utf8proc_category_t g = c < 0 ? UTF8PROC_CATEGORY_CN : utf8proc_category(c);
	bool letter = g >= UTF8PROC_CATEGORY_LU && g <= UTF8PROC_CATEGORY_LO;
	bool digit = g == UTF8PROC_CATEGORY_ND;

	switch (id) {
	case S_ISDIGIT: return digit;
	case S_ISALPHA: return letter;
	case S_ISALNUM:
		return letter || digit || g == UTF8PROC_CATEGORY_NL || g == UTF8PROC_CATEGORY_NO;
	case S_ISUPPER: return g == UTF8PROC_CATEGORY_LU;
	default: return g == UTF8PROC_CATEGORY_LL;
	}
}

static int classify(struct run *r, const struct value *s, int id, struct value *out)
{
	bool all = s->len > 0, any = false;
	size_t n;

	for (size_t i = 0; i < s->len; i += n) {
		int32_t c = utf8_decode(s->p + i, s->len - i, &n);
		if (id == S_ISSPACE) {
			all = all && space_at(s->p + i, s->len - i);
		} else if (id == S_ISUPPER || id == S_ISLOWER) {
			any = any || has_class(id, c);
			all = all && !has_class(id == S_ISUPPER ? S_ISLOWER : S_ISUPPER, c);
		} else {
			all = all && has_class(id, c);
		}
	}
	*out = v_bool(all && (any || (id != S_ISUPPER && id != S_ISLOWER)));
	return run_charge(r, s->len);
}

static int join(struct run *r, const struct value *sep, const struct value *what, struct value *out)
{
	const struct value *items;
	struct builder b;
	size_t n;
	int rc = value_items(r, what, &items, &n);

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
static int format(struct run *r, const struct value *s, const struct args *a, struct value *out)
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

static int zfill(struct run *r, const struct value *s, const struct value *width, struct value *out)
{
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

int string_call(struct run *r, int id, const struct value *s, const struct args *a,
		struct value *out)
{
	const struct value *x = arg_get(a, 0, NULL), *y = arg_get(a, 1, NULL),
			   *z = arg_get(a, 2, NULL);

	switch (id) {
	case S_STRIP: return strip(r, s, x, true, true, out);
	case S_LSTRIP: return strip(r, s, x, true, false, out);
	case S_RSTRIP: return strip(r, s, x, false, true, out);
	case S_SPLIT: return split(r, s, a, false, out);
	case S_RSPLIT: return split(r, s, a, true, out);
	case S_SPLITLINES: return splitlines(r, s, a, out);
	case S_STARTSWITH: return starts_or_ends(r, s, x, true, out);
	case S_ENDSWITH: return starts_or_ends(r, s, x, false, out);
	case S_UPPER: return str_case(r, s, CASE_UPPER, out);
	case S_LOWER: return str_case(r, s, CASE_LOWER, out);
	case S_TITLE: return str_case(r, s, CASE_TITLE, out);
	case S_CAPITALIZE: return str_case(r, s, CASE_CAPITAL, out);
	case S_JOIN: return join(r, s, x, out);
	case S_FORMAT: return format(r, s, a, out);
	case S_ISDIGIT:
	case S_ISALPHA:
	case S_ISALNUM:
	case S_ISSPACE:
	case S_ISUPPER:
	case S_ISLOWER: return classify(r, s, id, out);
	case S_ZFILL: return zfill(r, s, x, out);
	default: break;
	}
	if (!is_str(x) || (y && !is_str(y)))
		return run_fail(r, -EINVAL, "a method of str needs a str, not %s",
				kind_name(is_str(x) ? y : x));
	switch (id) {
	case S_REPLACE:
		if (z && !is_int(z))
			return run_fail(r, -EINVAL, "replace needs a number, not %s", kind_name(z));
		return str_replace(r, s, x, y, z ? z->i : -1, out);
	case S_COUNT: return count_parts(r, s, x, out);
	case S_PARTITION: return partition(r, s, x, false, out);
	case S_RPARTITION: return partition(r, s, x, true, out);
	case S_REMOVEPREFIX:
		*out = x->len && begins_or_ends(s, x, true) ?
			       str_slice(s, x->len, s->len - x->len) :
			       *s;
		return 0;
	case S_REMOVESUFFIX:
		*out = begins_or_ends(s, x, false) ? str_slice(s, 0, s->len - x->len) : *s;
		return 0;
	default: return find(r, s, x, id, out);
	}
}
