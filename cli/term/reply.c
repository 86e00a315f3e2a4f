/* reply.c: see reply.h. */
#include "cli/term/reply.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cli/term/screen.h"
#include "cli/term/text.h"

void ig_reply_init(struct ig_reply *r, bool plain)
{
	bool capable = ig_screen_is_capable();

	*r = (struct ig_reply){ .screen = isatty(STDOUT_FILENO), .newline = true };
	r->rich = capable && !plain;
	r->colours = r->rich && ig_screen_has_colours();
	ig_markdown_init(&r->text, &r->out, 0, r->colours);
	ig_wrap_init(&r->thoughts, &r->out, 0, r->colours);
}

void ig_reply_finish(struct ig_reply *r)
{
	ig_markdown_finish(&r->text);
	ig_wrap_finish(&r->thoughts);
	ig_strbuf_finish(&r->out);
}

/* Write what is in out. */
static int flush(struct ig_reply *r)
{
	int rc = ig_strbuf_ok(&r->out) ? 0 : -ENOMEM;

	if (!rc && r->out.len) {
		r->began = true;
		r->newline = r->out.data[r->out.len - 1] == '\n';
		rc = ig_print_text(r->out.data, r->out.len, false);
	}
	ig_strbuf_clear(&r->out);
	return rc;
}

static int put_plain(struct ig_reply *r, const char *s, size_t len)
{
	if (!len)
		return 0;
	r->began = true;
	r->newline = s[len - 1] == '\n';
	return ig_print_text(s, len, r->screen);
}

/* The window may have another size than before. */
static void measure(struct ig_wrap *w)
{
	unsigned columns, rows;

	ig_screen_size(&columns, &rows);
	ig_wrap_resize(w, columns);
}

static int end_line(struct ig_reply *r) { return r->newline ? 0 : put_plain(r, "\n", 1); }

static int end_reasoning(struct ig_reply *r)
{
	int rc;

	if (!r->reasoning)
		return 0;
	r->reasoning = false;
	if (!r->rich)
		return end_line(r);
	ig_wrap_reset(&r->thoughts);
	rc = flush(r);
	if (!r->newline)
		ig_strbuf_puts(&r->out, "\n");
	ig_strbuf_puts(&r->out, "\n");
	r->thoughts.col = r->thoughts.hang = r->thoughts.prev = 0;
	return rc ? rc : flush(r);
}

int ig_reply_text(struct ig_reply *r, const char *s, size_t len)
{
	int rc = len ? end_reasoning(r) : 0;

	if (rc)
		return rc;
	if (!r->rich)
		return put_plain(r, s, len);
	measure(&r->text.wrap);
	ig_markdown_add(&r->text, s, len);
	return flush(r);
}

int ig_reply_reasoning(struct ig_reply *r, const char *s, size_t len)
{
	static const char title[] = "Reasoning";

	if (!len)
		return 0;
	if (!r->rich) {
		r->reasoning = true;
		return put_plain(r, s, len);
	}
	measure(&r->thoughts);
	if (!r->reasoning) {
		ig_markdown_end(&r->text); /* none is expected before it */
		int rc = flush(r);
		if (rc || (rc = end_line(r)))
			return rc;
		for (const char *c = title; *c; c++)
			ig_wrap_char(&r->thoughts, (unsigned char)*c, IG_STYLE_DIM | IG_STYLE_BOLD);
		ig_wrap_reset(&r->thoughts);
		ig_wrap_char(&r->thoughts, '\n', 0);
	}
	r->reasoning = true;
	while (len) {
		int n = ig_utf8_check((const unsigned char *)s, len);
		size_t used = (size_t)(n > 0 ? n : n < 0 ? -n : 1);
		ig_wrap_char(&r->thoughts,
			     n > 0 ? ig_utf8_char((const unsigned char *)s, n) : 0xfffd,
			     IG_STYLE_DIM);
		s += used;
		len -= used;
	}
	ig_wrap_show(&r->thoughts);
	return flush(r);
}

int ig_reply_end(struct ig_reply *r)
{
	int rc = 0;

	if (r->rich) {
		bool only_reasoning = r->reasoning;
		ig_wrap_reset(&r->thoughts);
		r->thoughts.col = r->thoughts.hang = r->thoughts.prev = 0;
		r->reasoning = false;
		if (!only_reasoning)
			ig_markdown_end(&r->text);
		rc = flush(r);
		r->text.wrap.col = r->text.wrap.hang = r->text.wrap.prev = 0;
	}
	r->reasoning = false;
	int failed = rc == -EPIPE ? 0 : end_line(r);
	return rc ? rc : failed;
}
