/* json.c: see json.h. */
#include "base/json.h"

#include "base/json_scan.h"
#include "base/utf8.h"

#include <errno.h>
#include <string.h>

#define MAX_DEPTH 512 /* reading and freeing recurse */
#define MAX_PART_VALUES 1000000

/* ---- reading --------------------------------------------------------------------------- */

struct tree {
	struct ig_json_limits limits;
	size_t depth, n_values;
	bool nul, nul_within; /* U+0000 is allowed in a string here; in all of the object */
};

struct container {
	struct tree *tree;
	json_t *v;
};

static int take_value(struct ig_json_scan *s, struct tree *t, json_t **out);

static bool is_listed(const char *const *list, const char *key, size_t len)
{
	for (; list && *list; list++)
		if (!strncmp(*list, key, len) && !(*list)[len])
			return true;
	return false;
}

/* The value of a key, with what its strings may have. */
static int take_value_of(struct ig_json_scan *s, struct tree *t, const char *key, size_t len,
			 json_t **out)
{
	const bool nul = t->nul, within = t->nul_within;
	int rc;

	t->nul_within = within ||
			(ig_json_scan_peek(s) == '{' && is_listed(t->limits.nul_objects, key, len));
	t->nul = t->nul_within || is_listed(t->limits.nul_texts, key, len);
	rc = take_value(s, t, out);
	t->nul = nul;
	t->nul_within = within;
	return rc;
}

static int take_member(void *ctx, struct ig_json_scan *s, const char *key, size_t len)
{
	struct container *c = ctx;
	json_t *v;
	int rc;

	if (memchr(key, 0, len))
		return ig_json_scan_bad(s, "\\u0000 in a key");
	if (json_object_getn(c->v, key, len))
		return ig_json_scan_bad(s, "duplicate key");
	rc = take_value_of(s, c->tree, key, len, &v);
	if (!rc && json_object_setn_new_nocheck(c->v, key, len, v))
		rc = ig_json_scan_no_memory(s);
	return rc;
}

static int take_element(void *ctx, struct ig_json_scan *s, uint64_t i)
{
	struct container *c = ctx;
	json_t *v;
	int rc = take_value(s, c->tree, &v);

	if (!rc && json_array_append_new(c->v, v))
		rc = ig_json_scan_no_memory(s);
	return rc;
}

static int take_container(struct ig_json_scan *s, struct tree *t, bool object, json_t **out)
{
	struct container c = { t, object ? json_object() : json_array() };
	int rc;

	if (++t->depth > t->limits.max_depth) {
		ig_json_scan_bad(s, "is nested more than %zu deep", t->limits.max_depth);
		rc = -E2BIG;
	} else {
		rc = !c.v   ? ig_json_scan_no_memory(s) :
		     object ? ig_json_scan_object(s, take_member, &c) :
			      ig_json_scan_array(s, take_element, &c);
	}
	t->depth--;
	if (rc)
		json_decref(c.v);
	else
		*out = c.v;
	return rc;
}

static int take_string(struct ig_json_scan *s, const struct tree *t, json_t **out)
{
	const char *text;
	size_t len;
	int rc = ig_json_scan_string(s, &text, &len);

	if (rc)
		return rc;
	if (!t->limits.allow_nul && !t->nul && memchr(text, 0, len))
		return ig_json_scan_bad(s, "\\u0000 is not allowed");
	*out = json_stringn_nocheck(text, len);
	return *out ? 0 : ig_json_scan_no_memory(s);
}

static int take_number(struct ig_json_scan *s, const struct tree *t, json_t **out)
{
	bool whole;
	int64_t i;
	double x;
	int rc = ig_json_scan_numeral(s, t->limits.rounds, &whole, &i, &x);

	if (rc)
		return rc;
	*out = whole ? json_integer(i) : json_real(x);
	return *out ? 0 : ig_json_scan_no_memory(s);
}

static int take_value(struct ig_json_scan *s, struct tree *t, json_t **out)
{
	char c = ig_json_scan_peek(s);

	*out = NULL;
	if (++t->n_values > t->limits.max_values) {
		ig_json_scan_bad(s, "has more than %zu values", t->limits.max_values);
		return -E2BIG;
	}
	switch (c) {
	case '{':
	case '[': return take_container(s, t, c == '{', out);
	case '"': return take_string(s, t, out);
	case 't':
	case 'f':
	case 'n':
		*out = ig_json_scan_word(s, "true")  ? json_true() :
		       ig_json_scan_word(s, "false") ? json_false() :
		       ig_json_scan_word(s, "null")  ? json_null() :
						       NULL;
		return *out ? 0 : ig_json_scan_bad(s, "no value");
	default:
		return c == '-' || (c >= '0' && c <= '9') ? take_number(s, t, out) :
							    ig_json_scan_bad(s, "no value");
	}
}

int ig_json_scan_json(struct ig_json_scan *s, json_t **out)
{
	struct tree t = { .limits = { MAX_DEPTH, MAX_PART_VALUES, true, true } };

	return take_value(s, &t, out);
}

static void set_place(struct ig_json_error *e, const struct ig_json_scan *s)
{
	const char *line = s->begin, *stop = s->p < s->end ? s->p + 1 : s->end, *p;

	e->byte = (size_t)(s->p - s->begin);
	e->line = 1;
	while ((p = memchr(line, '\n', (size_t)(s->p - line)))) {
		line = p + 1;
		e->line++;
	}
	e->column = (unsigned)ig_utf8_count(line, (size_t)(stop - line));
}

int ig_json_read(const char *text, size_t len, const struct ig_json_limits *limits, json_t **out,
		 struct ig_json_error *why)
{
	struct tree t = { .limits = limits ? *limits : (struct ig_json_limits){ 0 } };
	struct ig_error err = { 0 };
	struct ig_json_scan s;
	int rc;

	t.limits.max_depth = t.limits.max_depth ? t.limits.max_depth : MAX_DEPTH;
	t.limits.max_values = t.limits.max_values ? t.limits.max_values : SIZE_MAX;
	ig_json_scan_init(&s, NULL, text, len, &err);
	rc = take_value(&s, &t, out);
	if (!rc)
		rc = ig_json_scan_end(&s);
	if (rc) {
		json_decref(*out);
		*out = NULL;
		if (why) {
			set_place(why, &s);
			snprintf(why->text, sizeof why->text, "%.159s", err.text);
		}
	}
	ig_json_scan_finish(&s);
	return rc;
}

int ig_json_read_file(const char *name, const char *text, size_t len, json_t **out,
		      struct ig_error *err)
{
	const struct ig_json_limits limits = { .rounds = true };
	struct ig_json_error why;
	int rc = ig_json_read(text, len, &limits, out, &why);

	if (rc == -ENOMEM)
		return ig_fail(err, rc, "%s: out of memory", name);
	if (rc == -E2BIG)
		return ig_fail(err, -EINVAL, "%s: the JSON %s", name, why.text);
	return rc ? ig_fail(err, rc, "%s: line %u, column %u: no JSON: %s", name, why.line,
			    why.column, why.text) :
		    0;
}

json_t *ig_json_copy(const json_t *v)
{
	json_t *copy = json_is_array(v) ? json_array() : json_object();

	if (json_is_array(v) ? json_array_extend(copy, (json_t *)(uintptr_t)v) :
			       json_object_update(copy, (json_t *)(uintptr_t)v)) {
		json_decref(copy);
		return NULL;
	}
	return copy;
}

/* ---- writing ------------------------------------------------------------------------------ */

static bool is_plain(unsigned char c) { return c >= 0x20 && c != '"' && c != '\\'; }

/* The rest of a string's contents, from the first character that needs an escape. */
static void put_escapes(struct ig_strbuf *b, const char *s, size_t len)
{
	static const char from[] = "\"\\\n\r\t", to[] = "\"\\nrt";
	size_t start = 0;

	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)s[i];
		if (is_plain(c))
			continue;
		const char *known = c ? strchr(from, c) : NULL;
		ig_strbuf_add(b, s + start, i - start);
		start = i + 1;
		if (known)
			ig_strbuf_add(b, (char[]){ '\\', to[known - from] }, 2);
		else
			ig_strbuf_printf(b, "\\u%04x", c);
	}
	ig_strbuf_add(b, s + start, len - start);
}

static void put_escaped(struct ig_strbuf *b, const char *s, size_t len)
{
	size_t n = 0;
	char *p;

	if (!ig_strbuf_reserve(b, len + 2))
		return;
	p = b->data + b->len;
	*p++ = '"';
	for (; n < len && is_plain((unsigned char)s[n]); n++)
		*p++ = s[n];
	b->len += n + 1;
	if (n < len)
		put_escapes(b, s + n, len - n);
	ig_strbuf_add(b, "\"", 1);
}

void ig_json_put_key(struct ig_json_writer *w, const char *key, size_t len)
{
	if (w->comma)
		ig_strbuf_add(w->out, ", ", 1 + w->spaced);
	put_escaped(w->out, key, len);
	ig_strbuf_add(w->out, ": ", 1 + w->spaced);
	w->comma = false;
}

/* The comma and the key before a value. */
static void begin(struct ig_json_writer *w, const char *key)
{
	if (key)
		ig_json_put_key(w, key, strlen(key));
	else if (w->comma)
		ig_strbuf_add(w->out, ", ", 1 + w->spaced);
	w->comma = true;
}

void ig_json_put_line(struct ig_json_writer *w)
{
	ig_strbuf_puts(w->out, w->comma ? ",\n" : "\n");
	w->comma = false;
}

void ig_json_put_raw(struct ig_json_writer *w, const char *key, const char *json)
{
	begin(w, key);
	ig_strbuf_puts(w->out, json ? json : "null");
}

void ig_json_open_object(struct ig_json_writer *w, const char *key)
{
	ig_json_put_raw(w, key, "{");
	w->comma = false;
}

void ig_json_close_object(struct ig_json_writer *w)
{
	ig_strbuf_puts(w->out, "}");
	w->comma = true;
}

void ig_json_open_array(struct ig_json_writer *w, const char *key)
{
	ig_json_put_raw(w, key, "[");
	w->comma = false;
}

void ig_json_close_array(struct ig_json_writer *w)
{
	ig_strbuf_puts(w->out, "]");
	w->comma = true;
}

void ig_json_put_string(struct ig_json_writer *w, const char *key, const char *s, size_t len)
{
	begin(w, key);
	put_escaped(w->out, s, len);
}

void ig_json_put_text(struct ig_json_writer *w, const char *key, const char *s)
{
	if (s)
		ig_json_put_string(w, key, s, strlen(s));
	else
		ig_json_put_raw(w, key, NULL);
}

/* Streams have many numbers, and printf is slow. */
static void put_digits(struct ig_json_writer *w, const char *key, uint64_t n, bool negative)
{
	char text[24], *p = text + sizeof text;

	do
		*--p = (char)('0' + n % 10);
	while (n /= 10);
	if (negative)
		*--p = '-';
	begin(w, key);
	ig_strbuf_add(w->out, p, (size_t)(text + sizeof text - p));
}

void ig_json_put_int(struct ig_json_writer *w, const char *key, int64_t n)
{
	put_digits(w, key, n < 0 ? 0 - (uint64_t)n : (uint64_t)n, n < 0);
}

void ig_json_put_uint(struct ig_json_writer *w, const char *key, uint64_t n)
{
	put_digits(w, key, n, false);
}

void ig_json_put_real(struct ig_json_writer *w, const char *key, const char *format, double x)
{
	begin(w, key);
	ig_strbuf_printf(w->out, isfinite(x) ? format : "null", x);
}

static int add(const char *s, size_t len, void *out)
{
	ig_strbuf_add(out, s, len);
	return ig_strbuf_ok(out) ? 0 : -1;
}

void ig_json_put_value(struct ig_json_writer *w, const char *key, const json_t *v)
{
	begin(w, key);
	if (json_dump_callback(v ? v : json_null(), add, w->out,
			       JSON_ENCODE_ANY | (w->spaced ? 0 : JSON_COMPACT)))
		w->out->failed = true;
}

char *ig_json_to_text(const json_t *v)
{
	struct ig_strbuf b = { 0 };
	struct ig_json_writer w = { .out = &b };
	char *text;

	ig_json_put_value(&w, NULL, v);
	text = ig_strbuf_steal(&b);
	ig_strbuf_finish(&b);
	return text;
}

int ig_json_print(const json_t *v, unsigned digits)
{
	size_t flags = JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(digits);

	return json_dumpf(v, stdout, flags) || putchar('\n') < 0 ? -EIO : 0;
}
