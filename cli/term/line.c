/* line.c: see line.h.  Reads bytes and plain lines; line_edit.c is the editor. */
#include "cli/term/line.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/download/files.h"
#include "cli/term/line_private.h"

#define TICK_MS 200 /* longest delay of a signal that comes just before poll */

/* Wait until standard input is readable.  0, or -errno. */
static int wait_input(struct ig_line *l)
{
	for (;;) {
		struct pollfd p[2] = { { .fd = STDIN_FILENO, .events = POLLIN }, { .fd = -1 } };
		if (ig_interrupted)
			return -EINTR;
		if (l->woken)
			l->woken(l);
		if (l->o.idle_socket) {
			p[1].fd = l->o.idle_socket(l->o.ctx);
			p[1].events = POLLIN;
		}
		int n = poll(p, 2, TICK_MS);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n <= 0 || ig_interrupted) /* a signal may have come */
			continue;
		if (p[1].revents)
			l->o.idle(l->o.ctx);
		if (p[0].revents)
			return 0;
	}
}

int line_next_byte(struct ig_line *l)
{
	while (l->at == l->len) {
		if (l->ended)
			return -1;
		int rc = wait_input(l);
		if (rc)
			return rc - 1;
		ssize_t n = read(STDIN_FILENO, l->buf, sizeof l->buf);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n < 0 && errno == EIO) /* the terminal is closed */
			n = 0;
		if (n < 0)
			return -errno - 1;
		l->at = 0;
		l->len = (size_t)n;
		l->ended = n == 0;
	}
	return (unsigned char)l->buf[l->at++];
}

/* After a signal of the terminal the system itself drops the typed line. */
static int read_plain(struct ig_line *l, struct ig_strbuf *text, struct ig_error *err)
{
	ig_strbuf_clear(text);
	for (;;) {
		int c = line_next_byte(l);
		if (c < -1)
			return ig_fail(err, c + 1, "standard input: %s", strerror(-(c + 1)));
		if (c == -1 && !text->len)
			return 0;
		if (c == -1 || c == '\n')
			break;
		if (text->len == IG_LINE_MAX)
			return ig_fail(err, -E2BIG,
				       "a line of standard input is longer than %u MiB",
				       IG_LINE_MAX >> 20);
		char byte = (char)c;
		ig_strbuf_add(text, &byte, 1);
		if (!ig_strbuf_ok(text))
			return ig_fail(err, -ENOMEM, "out of memory");
	}
	if (text->len && text->data[text->len - 1] == '\r')
		text->data[--text->len] = 0;
	return 1;
}

int ig_line_open(const struct ig_line_options *o, struct ig_line **out, struct ig_error *err)
{
	struct ig_line *l = calloc(1, sizeof *l);
	int rc = 0;

	*out = NULL;
	if (!l)
		return ig_fail(err, -ENOMEM, "out of memory");
	l->o = *o;
#ifdef IG_LINE_EDITING
	if (o->edit)
		rc = line_editor_open(l, err);
#endif
	if (rc) {
		free(l);
		return rc;
	}
	*out = l;
	return 0;
}

int ig_line_read(struct ig_line *l, const char *prompt, struct ig_strbuf *text, bool *pasted,
		 struct ig_error *err)
{
	*pasted = false;
#ifdef IG_LINE_EDITING
	if (l->editor)
		return line_editor_read(l, prompt, text, pasted, err);
#endif
	if (isatty(STDIN_FILENO)) {
		fputs(prompt, stderr);
		fflush(stderr);
	}
	return read_plain(l, text, err);
}

void ig_line_remember(struct ig_line *l, const char *text)
{
#ifdef IG_LINE_EDITING
	if (l->editor)
		line_editor_remember(l, text);
#endif
}

void ig_line_close(struct ig_line *l)
{
	if (!l)
		return;
#ifdef IG_LINE_EDITING
	if (l->editor)
		line_editor_close(l);
#endif
	free(l);
}

bool ig_line_can_edit(void)
{
#ifdef IG_LINE_EDITING
	return true;
#else
	return false;
#endif
}
