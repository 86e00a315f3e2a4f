/* chat_turn.c: one turn of `ingot chat`: sends a message, prints the reply and stores both. */
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

void chat_print(struct chat *c, const char *fmt, ...)
{
	struct ig_strbuf b = { 0 };
	va_list ap;

	va_start(ap, fmt);
	ig_text_vformat(&b, fmt, ap);
	va_end(ap);
	fflush(stdout);
	fprintf(c->interactive && c->view.screen ? stdout : stderr, "%s\n", ig_strbuf_text(&b));
	fflush(stdout);
	ig_strbuf_finish(&b);
}

static int on_text(void *ctx, const char *s, size_t len)
{
	struct chat *c = ctx;

	ig_strbuf_add(&c->reply, s, len);
	return ig_strbuf_ok(&c->reply) ? ig_reply_text(&c->view, s, len) : -ENOMEM;
}

/* Reasoning text is shown to a person, and is not stored. */
static int on_reasoning(void *ctx, const char *s, size_t len)
{
	struct chat *c = ctx;

	return c->interactive ? ig_reply_reasoning(&c->view, s, len) : 0;
}

void chat_on_retry(void *ctx, const char *why, unsigned wait_ms)
{
	struct chat *c = ctx;

	chat_print(c, "(%s: %s; retrying in %.1f s)", c->e.url, why, wait_ms / 1000.0);
}

/* Input typed during a reply belongs to the next prompt, and is not shown before. */
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
	free(c->unanswered);
	c->unanswered = ig_copy_text(text, len);
	c->n_unanswered = c->unanswered ? len : 0;
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
		chat_print(c, "(%s)", c->last);
}

/* Print why a reply is not complete; true when the chat cannot go on. */
static bool explain(struct chat *c, const struct ig_response *a, int rc, const struct ig_error *err)
{
	if (rc == -EPIPE) { /* nobody reads the output: print nothing */
		c->status = IG_EXIT_FAILED;
		return true;
	}
	if (rc == -EINTR || (!rc && a->state == IG_RESPONSE_CANCELLED)) {
		chat_print(
			c,
			rc ? "(stopped; the daemon did not confirm it, the connection was closed)" :
			     "(stopped)");
		return false;
	}
	if (!rc && a->state == IG_RESPONSE_INCOMPLETE) {
		if (!c->verbose) /* which has printed it */
			chat_print(c, "(ended early: %s)",
				   a->reason[0] ? a->reason : "no reason given");
		return false;
	}
	if (!rc && a->state != IG_RESPONSE_FAILED)
		return false;
	c->status = IG_EXIT_FAILED;
	if (!rc)
		ig_complain("%s", a->error);
	else if (err->code)
		ig_endpoint_complain(&c->e, rc, err->text);
	else
		ig_complain("%s", rc == -ENOMEM ? "out of memory" : strerror(-rc));
	return !c->interactive || (rc && !err->text[0] && rc != -ENOMEM);
}

void chat_send(struct chat *c, const char *text, size_t len)
{
	struct ig_cli_request q = c->request;
	struct ig_error err = { 0 };
	struct ig_response a;
	int rc;

	q.prompt = text;
	q.prompt_len = len;
	q.history = &c->conversation;
	q.model = c->conversation.model;
	q.system = c->conversation.system;
	ig_strbuf_clear(&c->reply);
	ig_response_init(&a, on_text, c);
	a.thought = on_reasoning;
	set_echo(c, false);
	rc = ig_session_request(&c->session, &q, &a, &err);
	set_echo(c, true);
	if (!chat_ended) /* reset before printing: a Ctrl-C from here on belongs to the next wait */
		ig_interrupted = 0;
	if (rc != -EPIPE) {
		int failed = ig_reply_end(&c->view);
		rc = rc ? rc : failed;
	}
	if (!rc)
		count(c, &a);
	bool over = explain(c, &a, rc, &err);
	/* a partial reply that was printed is part of the conversation */
	if (c->reply.len &&
	    !ig_conversation_add(&c->conversation, text, len, c->reply.data, c->reply.len)) {
		free(c->unanswered);
		c->unanswered = NULL;
	} else {
		keep_question(c, text, len);
		if (!rc && a.state == IG_RESPONSE_COMPLETED)
			chat_print(c, "(the reply is empty)");
	}
	c->exiting = c->exiting || over || chat_ended;
}
