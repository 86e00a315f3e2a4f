/*
 * filters.c: evaluates `x | …`, as jinja2's own filters do, and tojson as Hugging Face's does:
 * the table of all filters, and those of text and numbers.  Filters that return generators in
 * Python return lists here.
 */
#include "model/jinja/filters_private.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

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

static int indent(struct run *r, const struct value *s, const struct args *a, int arg,
		  struct value *out)
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

static int string_method(struct run *r, const struct value *s, const char *name,
			 const struct args *a, struct value *out)
{
	struct method m = { *s, method_find(s, name, strlen(name)) };

	return method_call(r, &m, a, out);
}

static int trim(struct run *r, const struct value *s, const struct args *a, int arg,
		struct value *out)
{
	const struct value *chars = arg_get(a, 0, "chars");

	return string_method(r, s, "strip", &(struct args){ chars, chars != NULL, NULL, NULL, 0 },
			     out);
}

static int wordcount(struct run *r, const struct value *s, const struct args *a, int arg,
		     struct value *out)
{
	struct value words;
	int rc = string_method(r, s, "split", &(struct args){ 0 }, &words);

	if (!rc)
		*out = v_int((int64_t)words.list->n);
	return rc;
}

static int change_case(struct run *r, const struct value *s, const struct args *a, int how,
		       struct value *out)
{
	return str_case(r, s, (enum str_case)how, out);
}

static int escape(struct run *r, const struct value *s, const struct args *a, int arg,
		  struct value *out)
{
	return str_escape(r, s, out);
}

static int same(struct run *r, const struct value *s, const struct args *a, int arg,
		struct value *out)
{
	*out = *s;
	return 0;
}

static int replace(struct run *r, const struct value *s, const struct args *a, int arg,
		   struct value *out)
{
	const struct value *count = arg_get(a, 2, "count");
	struct value from, to;
	int rc;

	if (count && count->kind != K_NONE && !is_int(count))
		return run_fail(r, -EINVAL, "replace needs a number, not %s", kind_name(count));
	if ((rc = text_of(r, arg_get(a, 0, "old"), &from)) ||
	    (rc = text_of(r, arg_get(a, 1, "new"), &to)))
		return rc;
	return str_replace(r, s, &from, &to, count && is_int(count) ? count->i : -1, out);
}

static int tojson(struct run *r, const struct value *v, const struct args *a, int arg,
		  struct value *out)
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

static int join(struct run *r, const struct value *v, const struct args *a, int arg,
		struct value *out)
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

static int to_int(struct run *r, const struct value *v, const struct args *a, int arg,
		  struct value *out)
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

static int round_to(struct run *r, const struct value *v, const struct args *a, int arg,
		    struct value *out)
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

static int sum(struct run *r, const struct value *v, const struct args *a, int arg,
	       struct value *out)
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

static int absolute(struct run *r, const struct value *v, const struct args *a, int arg,
		    struct value *out)
{
	if (!is_number(v) || (is_int(v) && v->i == INT64_MIN))
		return run_type_error(r, v, "abs needs a number");
	*out = v->kind == K_FLOAT ? v_float(fabs(v->f)) : v_int(v->i < 0 ? -v->i : v->i);
	return 0;
}

static int format(struct run *r, const struct value *s, const struct args *a, int arg,
		  struct value *out)
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

static int as_number(struct run *r, const struct value *v, const struct args *a, int arg,
		     struct value *out)
{
	const struct value *fallback = arg_get(a, 0, "default");
	double number;

	if (v->kind == K_UNDEFINED)
		return run_undefined(r, v);
	*out = to_float(v, &number) ? v_float(number) : fallback ? *fallback : v_float(0);
	return 0;
}

/* ---- values of any kind ----------------------------------------------------------------- */

static int attribute(struct run *r, const struct value *v, const struct args *a, int arg,
		     struct value *out)
{
	const struct value *x = arg_get(a, 0, "name");

	if (!is_str(x))
		return run_fail(r, -EINVAL, "attr needs a str, not %s", kind_name(x));
	if (v->kind != K_DICT || method_find(v, x->p, x->len))
		return eval_attr(r, v, x->p, x->len, out);
	*out = v_undefined(UNDEFINED_ATTRIBUTE, x->p, x->len); /* items are not attributes */
	return 0;
}

static int or_default(struct run *r, const struct value *v, const struct args *a, int arg,
		      struct value *out)
{
	const struct value *x = arg_get(a, 0, "default_value");

	*out = *v;
	if (v->kind == K_UNDEFINED || (arg_flag(a, 1, "boolean") && !truth(v)))
		*out = x ? *x : v_str("", 0);
	return 0;
}

static int length(struct run *r, const struct value *v, const struct args *a, int arg,
		  struct value *out)
{
	size_t n = 0;
	int rc = value_length(r, v, &n);

	*out = v_int((int64_t)n);
	return rc;
}

static int list(struct run *r, const struct value *v, const struct args *a, int arg,
		struct value *out)
{
	struct list *l = NULL;
	int rc = list_copy(r, v, &l);

	*out = v_list(K_LIST, l);
	return rc;
}

static int items(struct run *r, const struct value *v, const struct args *a, int arg,
		 struct value *out)
{
	if (v->kind == K_DICT)
		return pair_list(r, v->dict, out);
	if (v->kind != K_UNDEFINED)
		return run_type_error(r, v, "items needs a dict");
	return list(r, v, a, arg, out);
}

/* ---- the table ---------------------------------------------------------------------------- */

#define MAX_ARGS 5
#define ANY UINT8_MAX /* takes the arguments of another filter or test */

/* What the input is converted to, and whether the output is `safe`. */
enum input { VALUE, TEXT /* as safe as the input */, SAFE_TEXT, UNSAFE_TEXT };

static const struct {
	const char *name;
	callable *call;
	int arg;
	enum input input;
	uint8_t min; /* arguments */
	const char *args[MAX_ARGS];
} filters[] = {
	{ "abs", absolute, 0, VALUE, 0, { 0 } },
	{ "attr", attribute, 0, VALUE, 1, { "name" } },
	{ "batch", filter_batch, 0, VALUE, 1, { "linecount", "fill_with" } },
	{ "capitalize", change_case, CASE_CAPITAL, TEXT, 0, { 0 } },
	{ "count", length, 0, VALUE, 0, { 0 } },
	{ "d", or_default, 0, VALUE, 0, { "default_value", "boolean" } },
	{ "default", or_default, 0, VALUE, 0, { "default_value", "boolean" } },
	{ "dictsort", filter_dictsort, 0, VALUE, 0, { "case_sensitive", "by", "reverse" } },
	{ "e", escape, 0, SAFE_TEXT, 0, { 0 } },
	{ "escape", escape, 0, SAFE_TEXT, 0, { 0 } },
	{ "first", filter_first_or_last, true, VALUE, 0, { 0 } },
	{ "float", as_number, 0, VALUE, 0, { "default" } },
	{ "format", format, 0, TEXT, ANY, { 0 } },
	{ "indent", indent, 0, TEXT, 0, { "width", "first", "blank" } },
	{ "int", to_int, 0, VALUE, 0, { "default", "base" } },
	{ "items", items, 0, VALUE, 0, { 0 } },
	{ "join", join, 0, VALUE, 0, { "d", "attribute" } },
	{ "last", filter_first_or_last, false, VALUE, 0, { 0 } },
	{ "length", length, 0, VALUE, 0, { 0 } },
	{ "list", list, 0, VALUE, 0, { 0 } },
	{ "lower", change_case, CASE_LOWER, TEXT, 0, { 0 } },
	{ "map", filter_map, 0, VALUE, ANY, { 0 } },
	{ "max", filter_extreme, true, VALUE, 0, { "case_sensitive", "attribute" } },
	{ "min", filter_extreme, false, VALUE, 0, { "case_sensitive", "attribute" } },
	{ "reject", filter_select, 0, VALUE, ANY, { 0 } },
	{ "rejectattr", filter_select, SELECT_BY_ATTRIBUTE, VALUE, ANY, { 0 } },
	{ "replace", replace, 0, UNSAFE_TEXT, 2, { "old", "new", "count" } },
	{ "reverse", filter_reverse, 0, VALUE, 0, { 0 } },
	{ "round", round_to, 0, VALUE, 0, { "precision", "method" } },
	{ "safe", same, 0, SAFE_TEXT, 0, { 0 } },
	{ "select", filter_select, SELECT_TRUE, VALUE, ANY, { 0 } },
	{ "selectattr", filter_select, SELECT_TRUE | SELECT_BY_ATTRIBUTE, VALUE, ANY, { 0 } },
	{ "sort", filter_sort, 0, VALUE, 0, { "reverse", "case_sensitive", "attribute" } },
	{ "string", same, 0, TEXT, 0, { 0 } },
	{ "sum", sum, 0, VALUE, 0, { "attribute", "start" } },
	{ "title", change_case, CASE_TITLE, TEXT, 0, { 0 } },
	{ "tojson", tojson, 0, VALUE, 0, { "ensure_ascii", "indent", "separators", "sort_keys" } },
	{ "trim", trim, 0, TEXT, 0, { "chars" } },
	{ "unique", filter_unique, 0, VALUE, 0, { "case_sensitive", "attribute" } },
	{ "upper", change_case, CASE_UPPER, TEXT, 0, { 0 } },
	{ "wordcount", wordcount, 0, TEXT, 0, { 0 } },
};

int filter_id(const char *s, size_t len)
{
	for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++)
		if (strlen(filters[i].name) == len && !memcmp(filters[i].name, s, len))
			return (int)i;
	return -1;
}

int filter_call(struct run *r, int id, const struct value *in, const struct args *a,
		struct value *out)
{
	enum input input = filters[id].input;
	struct value v = *in; /* out may be the same */
	size_t n_names = 0;
	int rc;

	while (n_names < MAX_ARGS && filters[id].args[n_names])
		n_names++;
	if (filters[id].min != ANY &&
	    (rc = args_check(r, a, filters[id].name, filters[id].min, filters[id].args, n_names)))
		return rc;
	if ((rc = run_charge(r, 0)) || (input != VALUE && (rc = text_of(r, in, &v))) ||
	    (rc = filters[id].call(r, &v, a, filters[id].arg, out)))
		return rc;
	if (input != VALUE && is_str(out))
		out->safe = input == SAFE_TEXT || (input == TEXT && v.safe);
	return 0;
}
