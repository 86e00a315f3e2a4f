/* json_putf.c: JSON by a format; see json.h. */
#include "base/json.h"

#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static void put_string(struct ig_json_writer *w, const char *flags, va_list *ap)
{
	size_t len = flags[0] == '.' ? (size_t)va_arg(*ap, int) : SIZE_MAX;
	const char *s = va_arg(*ap, const char *);

	if (flags[0] == '-' || !s)
		ig_json_put_raw(w, NULL, s);
	else
		ig_json_put_string(w, NULL, s, len == SIZE_MAX ? strlen(s) : len);
}

/* The conversion whose flags are at fmt; returns what follows it. */
static const char *convert(struct ig_json_writer *w, const char *fmt, va_list *ap)
{
	size_t n = strcspn(fmt, "sdufg");
	char conversion = fmt[n], real[16];
	int n_longs = fmt[0] == 'l' ? 2 : fmt[0] == 'z';

	if (conversion == 's') {
		put_string(w, fmt, ap);
	} else if (conversion == 'd') {
		ig_json_put_int(w, NULL, n_longs ? va_arg(*ap, long long) : va_arg(*ap, int));
	} else if (conversion == 'u') {
		ig_json_put_uint(w, NULL,
				 n_longs == 2 ? va_arg(*ap, unsigned long long) :
				 n_longs      ? va_arg(*ap, size_t) :
						va_arg(*ap, unsigned));
	} else {
		snprintf(real, sizeof real, "%%%.*s", (int)n + 1, fmt);
		ig_json_put_real(w, NULL, real, va_arg(*ap, double));
	}
	return fmt + n + 1;
}

void ig_json_putf(struct ig_json_writer *w, const char *fmt, ...)
{
	const char *p = fmt;
	va_list ap;

	va_start(ap, fmt);
	if (w->comma && !strchr("}],", *fmt))
		ig_strbuf_puts(w->out, ",");
	while (*p) {
		size_t n = strcspn(p, "'% ");
		ig_strbuf_add(w->out, p, n);
		p += n;
		w->comma = false;
		if (*p == ' ') {
			p++;
		} else if (*p == '%') {
			p = convert(w, p + 1, &ap);
		} else if (*p) {
			n = strcspn(p + 1, "'");
			ig_strbuf_puts(w->out, "\"");
			ig_strbuf_add(w->out, p + 1, n);
			ig_strbuf_puts(w->out, "\"");
			p += n + 2;
		}
	}
	w->comma = !strchr("{[:", p[-1]);
	va_end(ap);
}
