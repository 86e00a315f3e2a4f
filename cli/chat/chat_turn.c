/* chat_turn.c: one turn of `ingot chat`: a message is sent, the reply is printed and kept. */
#include "cli/chat/chat_private.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "cli/commands/command.h"
#include "cli/download/files.h"
#include "cli/term/text.h"

static int put(struct chat *c, const char *s, size_t n)
{
	if (!n)
		return 0;
	c->newline = s[n - 1] == '\n';
	errno = 0;
	if (fwrite(s, 1, n, stdout) == n && fflush(stdout) == 0)
		return 0;
	return errno ? -errno : -EIO;
}

/* Text of a model: it must not drive the terminal. */
static int put_safely(struct chat *c, const char *s, size_t n)
{
	struct ig_strbuf b;
	int rc;

	if (!c->screen)
		return put(c, s, n);
	ig_strbuf_init(&b);
	ig_text_plain(&b, s, n, true);
	rc = ig_strbuf_ok(&b) ? put(c, b.data ? b.data : "", b.len) : -ENOMEM;
	ig_strbuf_finish(&b);
	return rc;
}

/* A line for the person: on the terminal among the answers, else apart from them. */
void chat_tell(struct chat *c, const char *fmt, ...)
{
	struct ig_strbuf b;
	va_list ap;
	char *text = NULL;

	va_start(ap, fmt);
	int n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (n < 0)
		return;
	ig_strbuf_init(&b);
	ig_text_plain(&b, text, (size_t)n, true);
	fflush(stdout);
	fprintf(c->interactive && c->screen ? stdout : stderr, "%s\n", b.data ? b.data : "");
	fflush(stdout);
	ig_strbuf_finish(&b);
	free(text);
}

static void end_line(struct chat *c)
{
	if (!c->newline)
		put(c, "\n", 1);
}

static int end_thought(struct chat *c)
{
	if (!c->thinking)
		return 0;
	c->thinking = false;
	end_line(c);
	return c->colour ? put(c, "\033[0m", 4) : 0;
}

static int on_text(void *ctx, const char *s, size_t len)
{
	struct chat *c = ctx;
	int rc = end_thought(c);

	ig_strbuf_add(&c->answer, s, len);
	if (!ig_strbuf_ok(&c->answer))
		return -ENOMEM;
	return rc ? rc : put_safely(c, s, len);
}

/* Thoughts are shown to people, dimmed, and are not kept. */
static int on_thought(void *ctx, const char *s, size_t len)
{
	struct chat *c = ctx;
	int rc = 0;

	if (!c->interactive || !len)
		return 0;
	if (!c->thinking && c->colour)
		rc = put(c, "\033[2m", 4);
	c->thinking = true;
	return rc ? rc : put_safely(c, s, len);
}

void chat_on_retry(void *ctx, const char *why, unsigned wait_ms)
{
	struct chat *c = ctx;

	chat_tell(c, "(%s: %s; trying again in %.1f s)", c->e.url, why, wait_ms / 1000.0);
}

/* What is typed during an answer is for the next prompt: not shown until then. */
static void set_echo(const struct chat *c, bool on)
{
	struct termios t;

	if (!c->interactive || tcgetattr(STDIN_FILENO, &t))
		return;
	if (on)
		t.c_lflag |= ECHO;
	else
		t.c_lflag &= ~(tcflag_t)ECHO;
	tcsetattr(STDIN_FILENO, TCSANOW, &t);
}

/* ---- a turn ----------------------------------------------------------------------- */

static void keep_question(struct chat *c, const char *text, size_t len)
{
	char *copy = malloc(len + 1);

	if (copy) {
		memcpy(copy, text, len);
		copy[len] = 0;
	}
	free(c->unanswered);
	c->unanswered = copy;
	c->n_unanswered = copy ? len : 0;
}

static void count(struct chat *c, const struct ig_response *a)
{
	c->n_answers++;
	c->n_input += a->n_input > 0 ? (uint64_t)a->n_input : 0;
	c->n_cached += a->n_cached > 0 ? (uint64_t)a->n_cached : 0;
	c->n_output += a->n_output > 0 ? (uint64_t)a->n_output : 0;
	if (a->model[0])
		memcpy(c->model, a->model, sizeof c->model);
	ig_response_summary(a, c->last, sizeof c->last);
	if (c->verbose)
		chat_tell(c, "(%s)", c->last);
}

/* An answer that did not come to its end by itself; true when the chat can't go on. */
static bool explain(struct chat *c, const struct ig_response *a, int rc, const struct ig_error *err)
{
	if (rc == -EPIPE) { /* nobody reads: no word either */
		c->status = IG_EXIT_FAILED;
		return true;
	}
	if (rc == -EINTR || (!rc && a->state == IG_RESPONSE_CANCELLED)) {
		chat_tell(
			c,
			rc ? "(stopped; the daemon did not confirm it, the connection was closed)" :
			     "(stopped)");
		return false;
	}
	if (!rc && a->state == IG_RESPONSE_INCOMPLETE) {
		if (!c->verbose) /* which has said it */
			chat_tell(c, "(ended early: %s)",
				  a->reason[0] ? a->reason : "no reason given");
		return false;
	}
	if (!rc && a->state != IG_RESPONSE_FAILED)
		return false;
	c->status = IG_EXIT_FAILED;
	if (!rc)
		ig_complain("%s", a->error);
	else if (rc == -ECONNREFUSED || rc == -ETIMEDOUT)
		ig_endpoint_complain_absent(&c->e, err->text);
	else if (rc == -ECONNRESET || rc == -EPROTO || rc == -EACCES || rc == -EBADMSG)
		ig_complain("%s: %s", c->e.url, err->text);
	else
		ig_complain("%s", rc == -ENOMEM ? "out of memory" : strerror(-rc));
	return !c->interactive || (rc && !err->text[0] && rc != -ENOMEM);
}

/* Ask; text is no part of the conversation yet. */
void chat_say(struct chat *c, const char *text, size_t len)
{
	struct ig_ask q = c->ask;
	struct ig_error err = { 0 };
	struct ig_response a;
	int rc;

	q.prompt = text;
	q.prompt_len = len;
	q.history = &c->said;
	q.model = c->said.model;
	q.system = c->said.system;
	ig_strbuf_clear(&c->answer);
	ig_response_init(&a, on_text, c);
	a.thought = on_thought;
	c->newline = true;
	set_echo(c, false);
	rc = ig_session_ask(&c->session, &q, &a, &err);
	set_echo(c, true);
	if (!chat_ended) /* before a word of it: the next Ctrl-C is for what comes then */
		ig_interrupted = 0;
	end_thought(c);
	if (rc != -EPIPE)
		end_line(c);
	if (!rc)
		count(c, &a);
	bool over = explain(c, &a, rc, &err);
	/* what is on the screen is what was said */
	if (c->answer.len &&
	    !ig_conversation_add(&c->said, text, len, c->answer.data, c->answer.len)) {
		free(c->unanswered);
		c->unanswered = NULL;
	} else {
		keep_question(c, text, len);
		if (!rc && a.state == IG_RESPONSE_COMPLETED)
			chat_tell(c, "(the model said nothing)");
	}
	c->leaving = c->leaving || over || chat_ended;
}
