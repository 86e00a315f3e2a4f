/* text.c: see text.h. */
#include "cli/term/text.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/utf8.h"

const char *ig_text_bytes(char *buf, size_t size, uint64_t n)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double x = (double)n;
	size_t u = 0;

	while (x >= 1024 && u < 6) {
		x /= 1024;
		u++;
	}
	snprintf(buf, size, u && x < 100 ? "%.1f %s" : "%.0f %s", x, units[u]);
	return buf;
}

const char *ig_text_seconds(char *buf, size_t size, double s)
{
	if (!isfinite(s) || s < 0 || s > 1e12) {
		snprintf(buf, size, "-");
	} else if (s < 59.95) {
		snprintf(buf, size, "%.1f s", s);
	} else {
		long long n = llround(s);
		if (n < 3600)
			snprintf(buf, size, "%lld m %02lld s", n / 60, n % 60);
		else
			snprintf(buf, size, "%lld h %02lld m", n / 3600, n % 3600 / 60);
	}
	return buf;
}

const char *ig_text_ms(char *buf, size_t size, double ms)
{
	if (!isfinite(ms))
		snprintf(buf, size, "-");
	else if (ms < 99.95)
		snprintf(buf, size, "%.1f ms", ms);
	else if (ms < 9999.5)
		snprintf(buf, size, "%.0f ms", ms);
	else
		snprintf(buf, size, "%.1f s", ms / 1000);
	return buf;
}

void ig_text_plain(struct ig_strbuf *b, const char *s, size_t len, bool keep_lines)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)s[i];
		bool control = c < 0x20 || c == 0x7f;
		/* U+0080 … U+009F are C1 controls: some terminals obey them */
		if (c == 0xc2 && i + 1 < len && (unsigned char)s[i + 1] >= 0x80 &&
		    (unsigned char)s[i + 1] < 0xa0) {
			control = true;
			i++;
		}
		if (control && !(keep_lines && (c == '\n' || c == '\t')))
			c = ' ';
		ig_strbuf_add(b, &c, 1);
	}
}

void ig_text_vformat(struct ig_strbuf *b, const char *fmt, va_list ap)
{
	char *text = NULL;
	int n = vasprintf(&text, fmt, ap);

	if (n < 0) {
		ig_strbuf_puts(b, "out of memory");
		return;
	}
	ig_text_plain(b, text, (size_t)n, true);
	free(text);
}

int ig_complain(const char *fmt, ...)
{
	struct ig_strbuf line = { 0 };
	va_list ap;

	va_start(ap, fmt);
	ig_text_vformat(&line, fmt, ap);
	va_end(ap);
	fprintf(stderr, "ingot: %s\n",
		ig_strbuf_ok(&line) ? ig_strbuf_text(&line) : "out of memory");
	ig_strbuf_finish(&line);
	return 1;
}

int ig_print_text(const char *s, size_t len, bool plain)
{
	struct ig_strbuf b = { 0 };
	int rc = 0;

	if (plain) {
		ig_text_plain(&b, s, len, true);
		s = ig_strbuf_text(&b);
		len = b.len;
	}
	errno = 0;
	if (!ig_strbuf_ok(&b))
		rc = -ENOMEM;
	else if (fwrite(s, 1, len, stdout) != len || fflush(stdout))
		rc = errno ? -errno : -EIO;
	ig_strbuf_finish(&b);
	return rc;
}

void ig_print_line(const char *s)
{
	struct ig_strbuf b = { 0 };

	ig_text_plain(&b, s, strlen(s), false);
	puts(ig_strbuf_text(&b));
	ig_strbuf_finish(&b);
}

void ig_table_init(struct ig_table *t, const char *const *headers, size_t n)
{
	*t = (struct ig_table){ .n_columns = n <= IG_TABLE_MAX_COLUMNS ? n : IG_TABLE_MAX_COLUMNS };
	for (size_t i = 0; i < t->n_columns; i++) {
		bool right = headers[i][0] == '>';
		if (right)
			t->right |= 1u << i;
		ig_table_add(t, headers[i] + right);
	}
}

void ig_table_finish(struct ig_table *t)
{
	for (size_t i = 0; i < t->n_cells; i++)
		free(t->cells[i]);
	free(t->cells);
	*t = (struct ig_table){ 0 };
}

void ig_table_add(struct ig_table *t, const char *text)
{
	bool ok = !t->failed && ig_array_grow(t->cells, &t->cap, t->n_cells);
	struct ig_strbuf b = { 0 };

	ig_text_plain(&b, text, strlen(text), false);
	if (ok && (t->cells[t->n_cells] = ig_strbuf_steal(&b)))
		t->n_cells++;
	else
		t->failed = true;
	ig_strbuf_finish(&b);
}

void ig_table_addf(struct ig_table *t, const char *fmt, ...)
{
	char buf[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf, sizeof buf, fmt, ap);
	va_end(ap);
	ig_table_add(t, buf);
}

/* In columns; every character counts as one. */
static size_t width(const char *s) { return ig_utf8_count(s, strlen(s)); }

bool ig_table_write(const struct ig_table *t, struct ig_strbuf *out)
{
	size_t widths[IG_TABLE_MAX_COLUMNS] = { 0 };

	if (t->failed)
		return false;
	for (size_t i = 0; i < t->n_cells; i++) {
		size_t w = width(t->cells[i]);
		if (w > widths[i % t->n_columns])
			widths[i % t->n_columns] = w;
	}
	for (size_t i = 0; i < t->n_cells; i++) {
		size_t c = i % t->n_columns;
		int pad = (int)(widths[c] - width(t->cells[i]));
		bool last = c + 1 == t->n_columns, right = t->right >> c & 1;
		ig_strbuf_printf(out, "%*s%s%*s%s", right ? pad : 0, "", t->cells[i],
				 right || last ? 0 : pad, "", last ? "\n" : "  ");
	}
	return ig_strbuf_ok(out);
}

int ig_table_print(const struct ig_table *t)
{
	struct ig_strbuf out = { 0 };
	int rc = ig_table_write(t, &out) ? 0 : -ENOMEM;

	if (!rc)
		fwrite(out.data, 1, out.len, stdout);
	ig_strbuf_finish(&out);
	return rc;
}
