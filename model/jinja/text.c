/* text.c: builds and changes strings, and prints values of any kind as Python's str, repr and
 * json.dumps do.  Every change of a string preserves, for each byte, who wrote it (see jinja.h). */
#include "model/jinja/jinja_private.h"
#include "base/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

/* ---- builder -------------------------------------------------------------------------- */

void builder_init(struct builder *b, struct run *r)
{
	*b = (struct builder){ .r = r, .limit = UINT32_MAX / 2 };
}

static bool reserve(struct builder *b, size_t len)
{
	size_t cap = b->cap ? b->cap : 64;
	char *p;

	if (b->failed)
		return false;
	if (run_charge(b->r, len))
		goto failed;
	if (len > b->limit - b->len) {
		run_fail(b->r, -E2BIG, "the output has more than %zu bytes", b->limit);
		goto failed;
	}
	if (b->p && len <= b->cap - b->len)
		return true;
	while (cap < b->len + len)
		cap *= 2;
	p = run_alloc(b->r, cap, 1);
	if (!p)
		goto failed;
	if (b->len)
		memcpy(p, b->p, b->len);
	if (b->mask) {
		uint8_t *mask = run_alloc(b->r, cap, 1);
		if (!mask)
			goto failed;
		memcpy(mask, b->mask, b->len);
		b->mask = mask;
	}
	b->p = p;
	b->cap = cap;
	return true;
failed:
	b->failed = true;
	return false;
}

static bool need_mask(struct builder *b)
{
	if (b->mask)
		return true;
	b->mask = run_alloc(b->r, b->cap, 1);
	if (!b->mask) {
		b->failed = true;
		return false;
	}
	memset(b->mask, b->client, b->len);
	return true;
}

void builder_add(struct builder *b, const char *p, size_t len, bool client)
{
	if (!len || !reserve(b, len))
		return;
	if (!b->len)
		b->client = client;
	if (b->client != client && !need_mask(b))
		return;
	if (b->mask)
		memset(b->mask + b->len, client, len);
	memcpy(b->p + b->len, p, len);
	b->len += len;
}

void builder_puts(struct builder *b, const char *s) { builder_add(b, s, strlen(s), false); }

void builder_value(struct builder *b, const struct value *s)
{
	if (!s->mask) {
		builder_add(b, s->p, s->len, s->client);
		return;
	}
	if (!s->len || !reserve(b, s->len) || !need_mask(b))
		return;
	memcpy(b->mask + b->len, s->mask, s->len);
	memcpy(b->p + b->len, s->p, s->len);
	b->len += s->len;
}

int builder_end(struct builder *b, struct value *out)
{
	if (b->failed)
		return b->r->rc;
	*out = v_str(b->p ? b->p : "", b->len);
	out->mask = b->mask;
	out->client = b->client;
	return 0;
}

/* Bytes first … end of a string. */
static void put_slice(struct builder *b, const struct value *s, size_t first, size_t end)
{
	struct value part = str_slice(s, first, end - first);

	builder_value(b, &part);
}

/* Whether byte i of a string is a client's. */
static bool client_at(const struct value *s, size_t i) { return s->mask ? s->mask[i] : s->client; }

/* ---- changes -------------------------------------------------------------------------- */

int str_replace(struct run *r, const struct value *s, const struct value *from,
		const struct value *to, int64_t max, struct value *out)
{
	struct builder b;
	size_t pos = 0, at;

	builder_init(&b, r);
	if (run_charge(r, s->len))
		return r->rc;
	while (max != 0 && pos <= s->len && (at = str_find(s, pos, from)) != SIZE_MAX &&
	       !b.failed) {
		/* The empty string is found before each character, and at the end. */
		size_t step = from->len;
		if (!step && at < s->len)
			step = utf8_one(s->p + at, s->len - at);
		put_slice(&b, s, pos, at);
		builder_value(&b, to);
		if (!from->len) {
			put_slice(&b, s, at, at + step);
			if (at == s->len)
				return builder_end(&b, out);
		}
		pos = at + step;
		if (max > 0)
			max--;
	}
	if (pos < s->len)
		put_slice(&b, s, pos, s->len);
	return builder_end(&b, out);
}

int str_escape(struct run *r, const struct value *s, struct value *out)
{
	static const char from[] = "&<>'\"";
	static const char *const to[] = { "&amp;", "&lt;", "&gt;", "&#39;", "&#34;" };
	int rc = 0;

	*out = *s;
	for (int i = 0; i < 5 && !rc && !s->safe; i++) {
		struct value a = v_str(from + i, 1), b = v_lit(to[i]), in = *out;
		rc = str_replace(r, &in, &a, &b, -1, out);
	}
	return rc;
}

int str_case(struct run *r, const struct value *s, enum str_case how, struct value *out)
{
	struct builder b;
	bool in_word = false, first = true;
	size_t n;

	builder_init(&b, r);
	for (size_t i = 0; i < s->len && !b.failed; i += n) {
		int32_t c = utf8_decode(s->p + i, s->len - i, &n), changed = c;
		if (c >= 0) {
			bool up = how == CASE_UPPER || (how == CASE_TITLE && !in_word) ||
				  (how == CASE_CAPITAL && first);
			changed = up ? utf8proc_toupper(c) : utf8proc_tolower(c);
			in_word = utf8proc_toupper(c) != c || utf8proc_tolower(c) != c;
		}
		first = false;
		if (changed == c) {
			builder_add(&b, s->p + i, n, client_at(s, i));
		} else {
			char buf[4];
			builder_add(&b, buf, ig_utf8_put(buf, (uint32_t)changed), client_at(s, i));
		}
	}
	return builder_end(&b, out);
}

/* ---- numbers -------------------------------------------------------------------------- */

size_t text_float(double f, char *buf)
{
	char digits[32];
	int exponent, n = 0;

	if (isnan(f))
		return (size_t)sprintf(buf, "nan");
	if (isinf(f))
		return (size_t)sprintf(buf, f < 0 ? "-inf" : "inf");
	if (f == 0)
		return (size_t)sprintf(buf, signbit(f) ? "-0.0" : "0.0");
	/* The fewest digits that read back as the same number. */
	for (int precision = 0; precision < 17; precision++) {
		snprintf(digits, sizeof digits, "%.*e", precision, f);
		if (strtod(digits, NULL) == f)
			break;
	}
	char *e = strchr(digits, 'e');
	exponent = atoi(e + 1);
	*e = 0;
	char *d = digits;
	if (*d == '-') {
		buf[n++] = '-';
		d++;
	}
	if (d[1]) /* the point */
		memmove(d + 1, d + 2, strlen(d + 1));
	int len = (int)strlen(d);
	while (len > 1 && d[len - 1] == '0')
		d[--len] = 0;
	if (exponent < -4 || exponent >= 16) {
		n += sprintf(buf + n, "%c%s%s", d[0], len > 1 ? "." : "", d + 1);
		return (size_t)(n + sprintf(buf + n, "e%c%02d", exponent < 0 ? '-' : '+',
					    abs(exponent)));
	}
	if (exponent < 0) {
		n += sprintf(buf + n, "0.");
		for (int i = -1; i > exponent; i--)
			buf[n++] = '0';
		return (size_t)(n + sprintf(buf + n, "%s", d));
	}
	for (int i = 0; i < len || i <= exponent; i++) {
		if (i == exponent + 1)
			buf[n++] = '.';
		buf[n++] = i < len ? d[i] : '0';
	}
	if (len <= exponent + 1) {
		buf[n++] = '.';
		buf[n++] = '0';
	}
	buf[n] = 0;
	return (size_t)n;
}

static void put_number(struct builder *b, const struct value *v)
{
	char buf[48];
	size_t n = v->kind == K_FLOAT ? text_float(v->f, buf) :
					(size_t)snprintf(buf, sizeof buf, "%" PRId64, v->i);

	builder_add(b, buf, n, false);
}

/* ---- str and repr --------------------------------------------------------------------- */

static bool is_printable(int32_t c)
{
	if (c < 0x80)
		return c >= 0x20 && c != 0x7f;
	switch (utf8proc_category(c)) {
	case UTF8PROC_CATEGORY_CC:
	case UTF8PROC_CATEGORY_CF:
	case UTF8PROC_CATEGORY_CS:
	case UTF8PROC_CATEGORY_CO:
	case UTF8PROC_CATEGORY_CN:
	case UTF8PROC_CATEGORY_ZL:
	case UTF8PROC_CATEGORY_ZP:
	case UTF8PROC_CATEGORY_ZS: return false;
	default: return true;
	}
}

/* s between quotes, with the characters replaced for which escape() writes something to its
 * buffer of 16 bytes. */
static void put_quoted(struct builder *b, const struct value *s, char quote, bool ascii,
		       bool (*escape)(int32_t c, char quote, bool ascii, char *buf))
{
	size_t n, start = 0;
	char buf[16];

	builder_add(b, &quote, 1, false);
	for (size_t i = 0; i < s->len && !b->failed; i += n) {
		int32_t c = utf8_decode(s->p + i, s->len - i, &n);
		if (!escape(c, quote, ascii, buf))
			continue;
		put_slice(b, s, start, i);
		builder_add(b, buf, strlen(buf), client_at(s, i));
		start = i + n;
	}
	put_slice(b, s, start, s->len);
	builder_add(b, &quote, 1, false);
}

static bool repr_escape(int32_t c, char quote, bool ascii, char *buf)
{
	static const char from[] = "\\\n\r\t", to[] = "\\nrt";
	const char *known = c > 0 && c < 0x80 ? strchr(from, c) : NULL;

	if (known || c == quote)
		sprintf(buf, "\\%c", known ? to[known - from] : quote);
	else if (c < 0 || is_printable(c))
		return false;
	else
		sprintf(buf,
			c < 0x100   ? "\\x%02x" :
			c < 0x10000 ? "\\u%04x" :
				      "\\U%08x",
			(unsigned)c);
	return true;
}

static void repr_string(struct builder *b, const struct value *s)
{
	bool single = memchr(s->p, '\'', s->len), twice = memchr(s->p, '"', s->len);

	put_quoted(b, s, single && !twice ? '"' : '\'', false, repr_escape);
}

static int repr_pairs(struct builder *b, const struct pair *pairs, size_t n, unsigned depth)
{
	int rc;

	builder_puts(b, "{");
	for (size_t i = 0; i < n; i++) {
		if (i)
			builder_puts(b, ", ");
		if ((rc = text_repr(b, &pairs[i].key, depth + 1)))
			return rc;
		builder_puts(b, ": ");
		if ((rc = text_repr(b, &pairs[i].value, depth + 1)))
			return rc;
	}
	builder_puts(b, "}");
	return 0;
}

int text_repr(struct builder *b, const struct value *v, unsigned depth)
{
	struct run *r = b->r;
	int rc = value_enter(r, depth);

	if (rc)
		return rc;
	switch (v->kind) {
	case K_UNDEFINED: builder_puts(b, "Undefined"); break;
	case K_NONE: builder_puts(b, "None"); break;
	case K_BOOL: builder_puts(b, v->i ? "True" : "False"); break;
	case K_INT:
	case K_FLOAT: put_number(b, v); break;
	case K_STR: repr_string(b, v); break;
	case K_LIST:
	case K_TUPLE:
		builder_puts(b, v->kind == K_LIST ? "[" : "(");
		for (size_t i = 0; i < v->list->n; i++) {
			if (i)
				builder_puts(b, ", ");
			if ((rc = text_repr(b, &v->list->items[i], depth + 1)))
				return rc;
		}
		if (v->kind == K_TUPLE && v->list->n == 1)
			builder_puts(b, ",");
		builder_puts(b, v->kind == K_LIST ? "]" : ")");
		break;
	case K_DICT:
		if ((rc = repr_pairs(b, v->dict->pairs, v->dict->n, depth)))
			return rc;
		break;
	case K_NAMESPACE:
		builder_puts(b, "<Namespace ");
		if ((rc = repr_pairs(b, v->space->pairs, v->space->n, depth)))
			return rc;
		builder_puts(b, ">");
		break;
	case K_MACRO:
		builder_puts(b, "<Macro '");
		builder_puts(b, v->macro->name);
		builder_puts(b, "'>");
		break;
	default:
		builder_puts(b, "<");
		builder_puts(b, kind_name(v));
		builder_puts(b, ">");
	}
	return b->failed ? r->rc : 0;
}

int text_of(struct run *r, const struct value *v, struct value *out)
{
	struct builder b;
	int rc;

	if (v->kind == K_STR) {
		*out = *v;
		return 0;
	}
	if (v->kind == K_UNDEFINED) {
		*out = v_str("", 0);
		return 0;
	}
	builder_init(&b, r);
	rc = text_repr(&b, v, 0);
	return rc ? rc : builder_end(&b, out);
}

/* ---- JSON ----------------------------------------------------------------------------- */

static bool json_escape(int32_t c, char quote, bool ascii, char *buf)
{
	static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
	const char *known = c > 0 && c < 0x80 ? strchr(from, c) : NULL;
	unsigned above = (unsigned)c - 0x10000;

	if (known)
		sprintf(buf, "\\%c", to[known - from]);
	else if ((c >= 0 && c < 0x20) || (ascii && c >= 0x7f && c < 0x10000))
		sprintf(buf, "\\u%04x", (unsigned)c);
	else if (ascii && c >= 0x10000)
		sprintf(buf, "\\u%04x\\u%04x", 0xd800 + (above >> 10), 0xdc00 + (above & 0x3ff));
	else
		return false;
	return true;
}

static void json_string_put(struct builder *b, const struct value *s, bool ascii)
{
	put_quoted(b, s, '"', ascii, json_escape);
}

static void json_line(struct builder *b, const struct json_style *s, unsigned depth)
{
	if (s->indent.kind != K_STR)
		return;
	builder_puts(b, "\n");
	for (unsigned i = 0; i < depth; i++)
		builder_value(b, &s->indent);
}

static void json_number(struct builder *b, const struct value *v)
{
	if (v->kind == K_FLOAT && !isfinite(v->f))
		builder_puts(b, isnan(v->f) ? "NaN" : v->f < 0 ? "-Infinity" : "Infinity");
	else
		put_number(b, v);
}

static void json_key(struct builder *b, const struct value *key)
{
	builder_puts(b, "\"");
	if (key->kind == K_NONE)
		builder_puts(b, "null");
	else if (key->kind == K_BOOL)
		builder_puts(b, key->i ? "true" : "false");
	else
		json_number(b, key);
	builder_puts(b, "\"");
}

static int by_key(struct run *r, struct pair *pairs, size_t n)
{
	/* Shell sort, in place: there are few keys. */
	for (size_t gap = n / 2; gap; gap /= 2)
		for (size_t i = gap; i < n; i++)
			for (size_t k = i; k >= gap; k -= gap) {
				int c, rc = value_order(r, &pairs[k - gap].key, &pairs[k].key, &c);
				if (rc)
					return rc;
				if (c <= 0)
					break;
				struct pair swap = pairs[k];
				pairs[k] = pairs[k - gap];
				pairs[k - gap] = swap;
			}
	return 0;
}

static int json_dict(struct builder *b, const struct dict *d, const struct json_style *s,
		     unsigned depth)
{
	struct pair *pairs = d->pairs;
	int rc;

	if (!d->n) {
		builder_puts(b, "{}");
		return 0;
	}
	if (s->sort_keys) {
		pairs = run_alloc(b->r, d->n, sizeof *pairs);
		if (!pairs)
			return b->r->rc;
		memcpy(pairs, d->pairs, d->n * sizeof *pairs);
		if ((rc = by_key(b->r, pairs, d->n)))
			return rc;
	}
	builder_puts(b, "{");
	for (size_t i = 0; i < d->n; i++) {
		if (i)
			builder_value(b, &s->item_separator);
		json_line(b, s, depth + 1);
		if (is_str(&pairs[i].key))
			json_string_put(b, &pairs[i].key, s->ascii);
		else
			json_key(b, &pairs[i].key);
		builder_value(b, &s->key_separator);
		if ((rc = text_json(b, &pairs[i].value, s, depth + 1)))
			return rc;
	}
	json_line(b, s, depth);
	builder_puts(b, "}");
	return 0;
}

int text_json(struct builder *b, const struct value *v, const struct json_style *s, unsigned depth)
{
	struct run *r = b->r;
	int rc = value_enter(r, depth);

	if (rc)
		return rc;
	switch (v->kind) {
	case K_NONE: builder_puts(b, "null"); break;
	case K_BOOL: builder_puts(b, v->i ? "true" : "false"); break;
	case K_INT:
	case K_FLOAT: json_number(b, v); break;
	case K_STR: json_string_put(b, v, s->ascii); break;
	case K_LIST:
	case K_TUPLE:
		if (!v->list->n) {
			builder_puts(b, "[]");
			break;
		}
		builder_puts(b, "[");
		for (size_t i = 0; i < v->list->n; i++) {
			if (i)
				builder_value(b, &s->item_separator);
			json_line(b, s, depth + 1);
			if ((rc = text_json(b, &v->list->items[i], s, depth + 1)))
				return rc;
		}
		json_line(b, s, depth);
		builder_puts(b, "]");
		break;
	case K_DICT:
		if ((rc = json_dict(b, v->dict, s, depth)))
			return rc;
		break;
	default:
		return run_fail(r, -EINVAL, "tojson: a value of type %s is not JSON", kind_name(v));
	}
	return b->failed ? r->rc : 0;
}

/* ---- "%s" % x ------------------------------------------------------------------------- */

static int percent_one(struct builder *b, char how, int precision, const struct value *v)
{
	struct run *r = b->r;
	struct value text;
	char buf[400];
	int rc;

	switch (how) {
	case 's':
		if ((rc = text_of(r, v, &text)))
			return rc;
		if (precision >= 0)
			text.len = (uint32_t)utf8_offset(text.p, text.len, (size_t)precision);
		builder_value(b, &text);
		return 0;
	case 'r': return text_repr(b, v, 0);
	case 'd':
	case 'i':
		if (!is_number(v) || (v->kind == K_FLOAT && !(fabs(v->f) < 9e18)))
			return run_fail(r, -EINVAL, "%%%c needs a number, not %s", how,
					kind_name(v));
		text = v_int(v->kind == K_FLOAT ? (int64_t)v->f : v->i);
		put_number(b, &text);
		return 0;
	case 'f':
		if (!is_number(v))
			return run_fail(r, -EINVAL, "%%f needs a number, not %s", kind_name(v));
		snprintf(buf, sizeof buf, "%.*f", precision < 0 ? 6 : precision, as_float(v));
		builder_puts(b, buf);
		return 0;
	default: return run_fail(r, -EINVAL, "%%%c in a format is not supported", how);
	}
}

int str_percent(struct run *r, const struct value *f, const struct value *args, struct value *out)
{
	const struct value *items = args->kind == K_TUPLE ? args->list->items : args;
	size_t n = args->kind == K_TUPLE ? args->list->n : 1, used = 0, start = 0;
	struct builder b;
	int rc;

	builder_init(&b, r);
	for (size_t i = 0; i < f->len; i++) {
		int precision = -1;
		if (f->p[i] != '%')
			continue;
		put_slice(&b, f, start, i);
		i++;
		if (i < f->len && f->p[i] == '.')
			for (i++, precision = 0; i < f->len && f->p[i] >= '0' && f->p[i] <= '9';
			     i++)
				if ((precision = precision * 10 + f->p[i] - '0') > 40)
					return run_fail(r, -EINVAL,
							"a precision above 40 in a format");
		if (i >= f->len)
			return run_fail(r, -EINVAL, "a format ends with %%");
		start = i + 1;
		if (f->p[i] == '%') {
			builder_add(&b, "%", 1, client_at(f, i));
			continue;
		}
		if (used == n)
			return run_fail(r, -EINVAL, "a format has too few arguments");
		if ((rc = percent_one(&b, f->p[i], precision, &items[used++])))
			return rc;
	}
	if (used < n && (args->kind == K_TUPLE || args->kind != K_DICT))
		return run_fail(r, -EINVAL, "a format has too many arguments");
	put_slice(&b, f, start, f->len);
	return builder_end(&b, out);
}
