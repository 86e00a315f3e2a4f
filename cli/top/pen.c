/* pen.c: see pen.h. */
#include "cli/top/pen.h"

#include <stdarg.h>
#include <string.h>

#include "base/utf8.h"
#include "cli/term/text.h"
#include "cli/term/wrap.h"

/* ---- lines ----------------------------------------------------------------------------- */

bool pen_is_full(const struct pen *p) { return p->v->screen && p->row >= p->v->rows; }

static bool is_colour(const char *style) { return strchr(style, '3') != NULL; }

/* style: SGR's codes, or NULL. */
static void set_style(struct pen *p, const char *style)
{
	if (!p->v->screen || (style && is_colour(style) && !p->v->colours))
		style = NULL;
	if (style == p->style || (style && p->style && !strcmp(style, p->style)))
		return;
	if (p->style)
		ig_strbuf_puts(p->out, "\033[0m");
	if (style)
		ig_strbuf_printf(p->out, "\033[%sm", style);
	p->style = style;
}

void pen_plain(struct pen *p) { set_style(p, NULL); }

void pen_put(struct pen *p, const char *style, const char *text)
{
	struct ig_strbuf plain = { 0 };
	const char *s;

	if (pen_is_full(p))
		return;
	ig_text_plain(&plain, text, strlen(text), false);
	if (plain.len)
		set_style(p, style);
	for (s = ig_strbuf_text(&plain); *s;) {
		int n = ig_utf8_check((const unsigned char *)s, strlen(s));
		unsigned width =
			n > 0 ? ig_char_width(ig_utf8_char((const unsigned char *)s, n)) : 1;
		if (p->col + width > p->v->columns)
			break;
		ig_strbuf_add(p->out, n > 0 ? s : "?", n > 0 ? (size_t)n : 1);
		p->col += width;
		s += n > 0 ? n : n < 0 ? -n : 1;
	}
	p->out->failed |= plain.failed;
	ig_strbuf_finish(&plain);
}

void pen_putf(struct pen *p, const char *style, const char *fmt, ...)
{
	char buf[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf, sizeof buf, fmt, ap);
	va_end(ap);
	pen_put(p, style, buf);
}

void pen_next_line(struct pen *p)
{
	if (pen_is_full(p))
		return;
	set_style(p, NULL);
	ig_strbuf_puts(p->out, p->v->screen ? "\033[K\r\n" : "\n");
	p->row++;
	p->col = 0;
}

unsigned top_width_of(const char *s)
{
	unsigned width = 0;

	while (*s) {
		int n = ig_utf8_check((const unsigned char *)s, strlen(s));
		width += n > 0 ? ig_char_width(ig_utf8_char((const unsigned char *)s, n)) : 1;
		s += n > 0 ? n : 1;
	}
	return width;
}

void pen_put_item(struct pen *p, const char *style, const char *name, const char *value)
{
	unsigned gap = p->col ? 3 : 0;

	if (p->col && p->col + gap + top_width_of(name) + 1 + top_width_of(value) > p->v->columns) {
		pen_next_line(p);
		gap = 0;
	}
	pen_putf(p, NULL, "%*s", (int)gap, "");
	pen_put(p, style, name);
	pen_putf(p, NULL, " %s", value);
}

/* ---- numbers ----------------------------------------------------------------------------- */

double top_number(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	return json_is_number(v) ? json_number_value(v) : NAN;
}

double top_count(const json_t *o, const char *key)
{
	double x = top_number(o, key);

	return isfinite(x) ? x : 0;
}

double top_nth(const json_t *o, const char *key, size_t i)
{
	const json_t *v = json_array_get(json_object_get(o, key), i);

	return json_is_number(v) ? json_number_value(v) : NAN;
}

const char *top_text_of(const json_t *o, const char *key)
{
	const char *s = ig_json_text(o, key);

	return s && *s ? s : "-";
}

const char *top_in_short(char buf[32], double x)
{
	static const char *const units[] = { "", " k", " M", " G" };
	unsigned u = 0;

	if (!isfinite(x))
		return "-";
	for (; u < 3 && fabs(x) >= (u ? 1000 : 10000); u++)
		x /= 1000;
	snprintf(buf, 32, "%.*f%s", (!u && x == floor(x)) || fabs(x) >= 99.95 ? 0 : 1, x, units[u]);
	return buf;
}

const char *top_in_speed(char buf[32], double x)
{
	if (!isfinite(x) || x >= 99.95)
		return top_in_short(buf, x);
	snprintf(buf, 32, "%.1f", x);
	return buf;
}

const char *top_in_percent(char buf[32], double part, double all)
{
	if (!isfinite(part) || !(all > 0))
		return "-";
	snprintf(buf, 32, "%.0f %%", part / all * 100);
	return buf;
}

const char *top_in_bytes(char buf[32], double n)
{
	return isfinite(n) && n >= 0 && n < 1e19 ? ig_text_bytes(buf, 32, (uint64_t)n) : "-";
}
