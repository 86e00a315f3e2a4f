/*
 * filters.c: evaluates `x | …`, as jinja2's own filters do, and tojson as Hugging Face's does:
 * the table of all filters, and those of text and numbers.  Filters that return generators in
 * Python return lists here.
 */
#include "model/jinja/filters_private.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum filter {
	F_CAPITALIZE,
	F_ESCAPE,
	F_FORMAT,
	F_INDENT,
	F_LOWER,
	F_REPLACE,
	F_SAFE,
	F_STRING,
	F_TITLE,
	F_TRIM,
	F_UPPER,
	F_WORDCOUNT,
	N_TEXT_FILTERS,
	F_ABS = N_TEXT_FILTERS,
	F_ATTR,
	F_DEFAULT,
	F_DICTSORT,
	F_FIRST,
	F_FLOAT,
	F_INT,
	F_ITEMS,
	F_JOIN,
	F_LAST,
	F_LENGTH,
	F_LIST,
	F_MAP,
	F_MAX,
	F_MIN,
	F_REJECT,
	F_REJECTATTR,
	F_REVERSE,
	F_ROUND,
	F_SELECT,
	F_SELECTATTR,
	F_SORT,
	F_SUM,
	F_TOJSON,
	F_UNIQUE,
	F_BATCH,
};

#define MAX_ARGS 5

static const struct {
	const char *name;
	enum filter id;
	uint8_t min;
	bool any; /* takes whatever arguments another filter or test needs */
	const char *args[MAX_ARGS];
} filters[] = {
	{ "abs", F_ABS, 0, false, { 0 } },
	{ "attr", F_ATTR, 1, false, { "name" } },
	{ "batch", F_BATCH, 1, false, { "linecount", "fill_with" } },
	{ "capitalize", F_CAPITALIZE, 0, false, { 0 } },
	{ "count", F_LENGTH, 0, false, { 0 } },
	{ "d", F_DEFAULT, 0, false, { "default_value", "boolean" } },
	{ "default", F_DEFAULT, 0, false, { "default_value", "boolean" } },
	{ "dictsort", F_DICTSORT, 0, false, { "case_sensitive", "by", "reverse" } },
	{ "e", F_ESCAPE, 0, false, { 0 } },
	{ "escape", F_ESCAPE, 0, false, { 0 } },
	{ "first", F_FIRST, 0, false, { 0 } },
	{ "float", F_FLOAT, 0, false, { "default" } },
	{ "format", F_FORMAT, 0, true, { 0 } },
	{ "indent", F_INDENT, 0, false, { "width", "first", "blank" } },
	{ "int", F_INT, 0, false, { "default", "base" } },
	{ "items", F_ITEMS, 0, false, { 0 } },
	{ "join", F_JOIN, 0, false, { "d", "attribute" } },
	{ "last", F_LAST, 0, false, { 0 } },
	{ "length", F_LENGTH, 0, false, { 0 } },
	{ "list", F_LIST, 0, false, { 0 } },
	{ "lower", F_LOWER, 0, false, { 0 } },
	{ "map", F_MAP, 0, true, { 0 } },
	{ "max", F_MAX, 0, false, { "case_sensitive", "attribute" } },
	{ "min", F_MIN, 0, false, { "case_sensitive", "attribute" } },
	{ "reject", F_REJECT, 0, true, { 0 } },
	{ "rejectattr", F_REJECTATTR, 0, true, { 0 } },
	{ "replace", F_REPLACE, 2, false, { "old", "new", "count" } },
	{ "reverse", F_REVERSE, 0, false, { 0 } },
	{ "round", F_ROUND, 0, false, { "precision", "method" } },
	{ "safe", F_SAFE, 0, false, { 0 } },
	{ "select", F_SELECT, 0, true, { 0 } },
	{ "selectattr", F_SELECTATTR, 0, true, { 0 } },
	{ "sort", F_SORT, 0, false, { "reverse", "case_sensitive", "attribute" } },
	{ "string", F_STRING, 0, false, { 0 } },
	{ "sum", F_SUM, 0, false, { "attribute", "start" } },
	{ "title", F_TITLE, 0, false, { 0 } },
	{ "tojson", F_TOJSON, 0, false, { "ensure_ascii", "indent", "separators", "sort_keys" } },
	{ "trim", F_TRIM, 0, false, { "chars" } },
	{ "unique", F_UNIQUE, 0, false, { "case_sensitive", "attribute" } },
	{ "upper", F_UPPER, 0, false, { 0 } },
	{ "wordcount", F_WORDCOUNT, 0, false, { 0 } },
};

int filter_id(const char *s, size_t len)
{
	for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++)
		if (strlen(filters[i].name) == len && !memcmp(filters[i].name, s, len))
			return (int)i;
	return -1;
}

/* ---- text --------------------------------------------------------------------------------- */

/* What lines are indented by: a string, or that many spaces. */
static int padding(struct run *r, const struct value *by, const char *what, struct value *out)
{
	struct builder b;

	builder_init(&b, r);
	if (is_str(by))
		builder_value(&b, by);
	else if (!is_int(by))
		return run_fail(r, -EINVAL, "%s %s", what, kind_name(by));
	else
		for (int64_t i = 0; i < by->i && !b.failed; i++)
			builder_puts(&b, " ");
	return builder_end(&b, out);
}

static int indent(struct run *r, const struct value *s, const struct args *a, struct value *out)
{
	const struct value *width = arg_get(a, 0, "width"), *first = arg_get(a, 1, "first"),
			   *blank = arg_get(a, 2, "blank");
	struct builder b;
	struct value by = v_int(4);
	size_t start = 0;
	int rc = padding(r, width ? width : &by, "indent needs a number, not", &by);

	if (rc)
		return rc;
	builder_init(&b, r);
	if (first && truth(first))
		builder_value(&b, &by);
	for (size_t i = 0; i <= s->len; i++) {
		struct value line = str_slice(s, start, i - start);
		if (i < s->len && s->p[i] != '\n')
			continue;
		if (start && (line.len || (blank && truth(blank))))
			builder_value(&b, &by);
		builder_value(&b, &line);
		if (i < s->len)
			builder_puts(&b, "\n");
		start = i + 1;
	}
	return builder_end(&b, out);
}

static int trim(struct run *r, const struct value *s, const struct value *chars, struct value *out)
{
	struct method m = { .self = *s };
	struct args a = { chars, chars != NULL, NULL, NULL, 0 };

	m.id = method_id(s, "strip", 5);
	return method_call(r, &m, &a, out);
}

static int tojson(struct run *r, const struct value *v, const struct args *a, struct value *out)
{
	const struct value *ascii = arg_get(a, 0, "ensure_ascii"), *by = arg_get(a, 1, "indent"),
			   *separators = arg_get(a, 2, "separators"),
			   *sort = arg_get(a, 3, "sort_keys");
	struct json_style style = { .indent = v_none(),
				    .item_separator = v_lit(", "),
				    .key_separator = v_lit(": ") };
	struct builder b;
	int rc;

	style.ascii = ascii && truth(ascii);
	style.sort_keys = sort && truth(sort);
	if (by && by->kind != K_NONE) {
		if ((rc = padding(r, by, "tojson: indent is", &style.indent)))
			return rc;
		style.item_separator = v_lit(",");
	}
	if (separators && separators->kind != K_NONE) {
		if (!is_list(separators) || separators->list->n != 2 ||
		    !is_str(&separators->list->items[0]) || !is_str(&separators->list->items[1]))
			return run_fail(r, -EINVAL, "tojson: separators must be two strings");
		style.item_separator = separators->list->items[0];
		style.key_separator = separators->list->items[1];
	}
	builder_init(&b, r);
	rc = text_json(&b, v, &style, 0);
	return rc ? rc : builder_end(&b, out);
}

static int join(struct run *r, const struct value *v, const struct args *a, struct value *out)
{
	const struct value *d = arg_get(a, 0, "d"), *path = arg_get(a, 1, "attribute"), *items;
	struct value item, separator = v_str("", 0);
	struct builder b;
	size_t n;
	int rc;

	if ((rc = value_items(r, v, &items, &n)) || (d && (rc = text_of(r, d, &separator))))
		return rc;
	builder_init(&b, r);
	for (size_t i = 0; i < n; i++) {
		if ((rc = filter_path(r, &items[i], path, &item)) ||
		    (rc = text_of(r, &item, &item)))
			return rc;
		if (i)
			builder_value(&b, &separator);
		builder_value(&b, &item);
	}
	return builder_end(&b, out);
}

/* ---- numbers ------------------------------------------------------------------------------ */

/* A string as Python's int() and float() read it: without white space around it and without _
 * between digits.  False when it is too long or has a zero byte. */
static bool number_text(const struct value *s, char *buf, size_t size)
{
	struct value t = str_strip(s, true, true);
	size_t n = 0;

	for (uint32_t i = 0; i < t.len; i++) {
		char c = t.p[i];
		if (c == '_' && i && i + 1 < t.len && t.p[i - 1] != '_')
			continue;
		if (n + 1 >= size || !c || strchr("()xXpP ", c) || (unsigned char)c >= 0x80 ||
		    c == '_')
			return false;
		buf[n++] = c;
	}
	buf[n] = 0;
	return n > 0;
}

static bool to_float(const struct value *v, double *out)
{
	char buf[128], *end;

	if (is_number(v)) {
		*out = as_float(v);
		return true;
	}
	if (!is_str(v) || !number_text(v, buf, sizeof buf))
		return false;
	*out = strtod(buf, &end);
	return !*end;
}

static int to_int(struct run *r, const struct value *v, const struct args *a, struct value *out)
{
	const struct value *fallback = arg_get(a, 0, "default"), *base = arg_get(a, 1, "base");
	char buf[128], *end;
	double f;

	if (v->kind == K_UNDEFINED)
		return run_undefined(r, v);
	if (base && (!is_int(base) || base->i < 2 || base->i > 36))
		return run_fail(r, -EINVAL, "int: the base must be 2 to 36");
	if (is_int(v)) {
		*out = v_int(v->i);
		return 0;
	}
	if (is_str(v) && number_text(v, buf, sizeof buf)) {
		errno = 0;
		int64_t i = strtoll(buf, &end, base ? (int)base->i : 10);
		if (!*end && errno == ERANGE)
			return run_fail(r, -EINVAL, "a number does not fit into 64 bits");
		if (!*end) {
			*out = v_int(i);
			return 0;
		}
	}
	if (to_float(v, &f) && isfinite(f)) {
		if (!(fabs(f) < 9.2e18))
			return run_fail(r, -EINVAL, "a number does not fit into 64 bits");
		*out = v_int((int64_t)f);
		return 0;
	}
	*out = fallback ? *fallback : v_int(0);
	return 0;
}

static int round_to(struct run *r, const struct value *v, const struct args *a, struct value *out)
{
	const struct value *precision = arg_get(a, 0, "precision"),
			   *method = arg_get(a, 1, "method");
	double f, scale;

	if (!is_number(v))
		return run_type_error(r, v, "round needs a number");
	if (precision && (!is_int(precision) || precision->i < -300 || precision->i > 300))
		return run_fail(r, -EINVAL, "round: the precision must be a small integer");
	f = as_float(v);
	scale = pow(10, precision ? (double)precision->i : 0);
	if (method && str_is(method, "ceil")) {
		f = ceil(f * scale) / scale;
	} else if (method && str_is(method, "floor")) {
		f = floor(f * scale) / scale;
	} else if (!method || str_is(method, "common")) {
		if (precision && precision->i > 0) { /* rounds halves by the decimal digits */
			char buf[700];
			snprintf(buf, sizeof buf, "%.*f", (int)precision->i, f);
			f = strtod(buf, NULL);
		} else {
			f = nearbyint(f * scale) / scale;
		}
	} else {
		return run_fail(r, -EINVAL, "round: the method must be common, ceil or floor");
	}
	*out = v->kind == K_FLOAT || method ? v_float(f) : v_int((int64_t)f);
	return 0;
}

static int sum(struct run *r, const struct value *v, const struct args *a, struct value *out)
{
	const struct value *path = arg_get(a, 0, "attribute"), *start = arg_get(a, 1, "start"),
			   *items;
	struct value item, total = start ? *start : v_int(0);
	size_t n;
	int rc = value_items(r, v, &items, &n);

	for (size_t i = 0; i < n && !rc; i++)
		if (!(rc = filter_path(r, &items[i], path, &item)))
			rc = eval_binary(r, OP_ADD, &total, &item, &total);
	*out = total;
	return rc;
}

static int absolute(struct run *r, const struct value *v, struct value *out)
{
	if (!is_number(v) || (is_int(v) && v->i == INT64_MIN))
		return run_type_error(r, v, "abs needs a number");
	*out = v->kind == K_FLOAT ? v_float(fabs(v->f)) : v_int(v->i < 0 ? -v->i : v->i);
	return 0;
}

static int format(struct run *r, const struct value *s, const struct args *a, struct value *out)
{
	struct value items;
	struct list *l;
	int rc = list_new(r, a->n, &l);

	if (rc)
		return rc;
	for (size_t i = 0; i < a->n; i++)
		l->items[l->n++] = a->pos[i];
	items = v_list(K_TUPLE, l);
	return str_percent(r, s, &items, out);
}

/* ---- by id -------------------------------------------------------------------------------- */

/* Filters of text; other values are converted to text first. */
static int text_filter(struct run *r, enum filter f, const struct value *s, const struct args *a,
		       struct value *out)
{
	const struct value *x = arg_get(a, 0, "old"), *y = arg_get(a, 1, "new"),
			   *count = arg_get(a, 2, "count");
	struct value from, to;
	struct method m = { .self = *s };
	int rc;

	switch (f) {
	case F_CAPITALIZE: return str_case(r, s, CASE_CAPITAL, out);
	case F_ESCAPE: return str_escape(r, s, out);
	case F_FORMAT: return format(r, s, a, out);
	case F_INDENT: return indent(r, s, a, out);
	case F_LOWER: return str_case(r, s, CASE_LOWER, out);
	case F_TITLE: return str_case(r, s, CASE_TITLE, out);
	case F_TRIM: return trim(r, s, arg_get(a, 0, "chars"), out);
	case F_UPPER: return str_case(r, s, CASE_UPPER, out);
	case F_WORDCOUNT:
		m.id = method_id(s, "split", 5);
		if (!(rc = method_call(r, &m, &(struct args){ 0 }, &from)))
			*out = v_int((int64_t)from.list->n);
		return rc;
	case F_REPLACE:
		if (count && count->kind != K_NONE && !is_int(count))
			return run_fail(r, -EINVAL, "replace needs a number, not %s",
					kind_name(count));
		if ((rc = text_of(r, x, &from)) || (rc = text_of(r, y, &to)))
			return rc;
		return str_replace(r, s, &from, &to, count && is_int(count) ? count->i : -1, out);
	default: /* F_STRING, F_SAFE */ *out = *s; return 0;
	}
}

int filter_call(struct run *r, int id, const struct value *in, const struct args *a,
		struct value *out)
{
	enum filter f = filters[id].id;
	size_t n_names = 0, n;
	const struct value *x;
	struct value v = *in; /* out may be the same */
	struct list *l;
	double number;
	int rc;

	while (n_names < MAX_ARGS && filters[id].args[n_names])
		n_names++;
	if (!filters[id].any &&
	    (rc = args_check(r, a, filters[id].name, filters[id].min, filters[id].args, n_names)))
		return rc;
	if ((rc = run_charge(r, 0)))
		return rc;
	if (f < N_TEXT_FILTERS) {
		if ((rc = text_of(r, in, &v)) || (rc = text_filter(r, f, &v, a, out)))
			return rc;
		if (is_str(out) && f != F_REPLACE)
			out->safe = v.safe || f == F_SAFE || f == F_ESCAPE;
		return 0;
	}
	switch (f) {
	case F_ABS: return absolute(r, &v, out);
	case F_ATTR:
		x = arg_get(a, 0, "name");
		if (!is_str(x))
			return run_fail(r, -EINVAL, "attr needs a str, not %s", kind_name(x));
		if (v.kind == K_DICT && method_id(&v, x->p, x->len) == -1) {
			*out = v_undefined(UNDEFINED_ATTRIBUTE, x->p, x->len);
			return 0; /* attributes only, no items */
		}
		return eval_attr(r, &v, x->p, x->len, out);
	case F_BATCH: return filter_batch(r, &v, a, out);
	case F_DEFAULT:
		x = arg_get(a, 0, "default_value");
		*out = v.kind == K_UNDEFINED || (arg_flag(a, 1, "boolean") && !truth(&v)) ?
			       (x ? *x : v_str("", 0)) :
			       v;
		return 0;
	case F_DICTSORT: return filter_dictsort(r, &v, a, out);
	case F_FIRST:
	case F_LAST: return filter_first_or_last(r, &v, f == F_FIRST, out);
	case F_FLOAT:
		if (v.kind == K_UNDEFINED)
			return run_undefined(r, &v);
		x = arg_get(a, 0, "default");
		*out = to_float(&v, &number) ? v_float(number) : x ? *x : v_float(0);
		return 0;
	case F_INT: return to_int(r, &v, a, out);
	case F_ITEMS:
		if (v.kind == K_DICT)
			return pair_list(r, v.dict, out);
		if (v.kind != K_UNDEFINED)
			return run_type_error(r, &v, "items needs a dict");
		/* fall through */
	case F_LIST:
		if (!(rc = list_copy(r, &v, &l)))
			*out = v_list(K_LIST, l);
		return rc;
	case F_JOIN: return join(r, &v, a, out);
	case F_LENGTH:
		if (!(rc = value_length(r, &v, &n)))
			*out = v_int((int64_t)n);
		return rc;
	case F_MAP: return filter_map(r, &v, a, out);
	case F_MAX:
	case F_MIN: return filter_extreme(r, &v, a, f == F_MAX, out);
	case F_REJECT:
	case F_SELECT: return filter_select(r, &v, a, f == F_SELECT, false, out);
	case F_REJECTATTR:
	case F_SELECTATTR: return filter_select(r, &v, a, f == F_SELECTATTR, true, out);
	case F_REVERSE: return filter_reverse(r, &v, out);
	case F_ROUND: return round_to(r, &v, a, out);
	case F_SORT:
		return filter_sort(r, &v, arg_get(a, 2, "attribute"),
				   !arg_flag(a, 1, "case_sensitive"), arg_flag(a, 0, "reverse"),
				   out);
	case F_SUM: return sum(r, &v, a, out);
	case F_TOJSON: return tojson(r, &v, a, out);
	default: return filter_unique(r, &v, a, out); /* F_UNIQUE */
	}
}
