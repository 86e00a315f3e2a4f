/* top_screen.h: what must hold for any screen of `ingot top`: no control characters but its own escape
 * sequences, lines that fit, no more of them than the window has.  Aborts where it does not hold. */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "cli/term/wrap.h"
#include "cli/top/top.h"

static inline void refuse_screen(const char *why, const char *at)
{
	fprintf(stderr, "%s at:\n%s\n", why, at);
	abort();
}

static inline void check_top(const struct ig_top_view *v, const char *out)
{
	unsigned rows = 1, col = 0;

	for (const char *p = out; *p;) {
		if (*p == '\033') {
			size_t n = p[1] == '[' ? 2 + strspn(p + 2, "0123456789;") : 0;
			if (!n || !v->screen || !strchr("mHK", p[n]))
				refuse_screen("another escape sequence", p);
			p += n + 1;
			continue;
		}
		if (*p == '\n' || (v->screen && p[0] == '\r' && p[1] == '\n')) {
			p += 1 + (*p == '\r');
			rows++;
			col = 0;
			continue;
		}
		int n = ig_utf8_check((const unsigned char *)p, strlen(p));
		uint32_t c = n > 0 ? ig_utf8_char((const unsigned char *)p, n) : 0;
		if (n <= 0 || c < 0x20 || (c >= 0x7f && c < 0xa0))
			refuse_screen("a control character", p);
		col += ig_char_width(c);
		if (col > v->columns)
			refuse_screen("a long line", out);
		p += n;
	}
	if (v->screen && rows > v->rows)
		refuse_screen("too many lines", out);
}
