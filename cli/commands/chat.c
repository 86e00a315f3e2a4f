/*
 * chat.c: `ingot chat`: a conversation with a model.  The client keeps the conversation: each
 * request sends all earlier turns, most of which the daemon has in its prefix cache, so a chat
 * survives a restart of the daemon.  Ctrl-C ends a reply; the part that was received stays in the
 * conversation.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cli/chat/chat_private.h"
#include "cli/commands/command.h"
#include "cli/download/files.h"
#include "cli/options.h"
#include "cli/net/served_models.h"
#include "cli/term/screen.h"
#include "cli/term/text.h"

#define N_RETRIES 6 /* 0.5, 1, 2, 4, 8 and 8 seconds apart */
#define PROMPT "> "
#define MORE "… "
#define PLAIN_MORE ". "

volatile sig_atomic_t chat_ended;

static void on_signal(int sig)
{
	if (ig_interrupted < 100)
		ig_interrupted++;
	if (sig != SIGINT)
		chat_ended = 1;
}

static void catch_signals(void)
{
	struct sigaction sa = { .sa_handler = on_signal }; /* no SA_RESTART: ends waits */

	sigemptyset(&sa.sa_mask);
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
}

/* ---- the loop --------------------------------------------------------------------- */

static void remember(struct chat *c, const char *text, size_t len)
{
	struct ig_error err = { 0 };

	if (!c->interactive)
		return;
	int rc = ig_history_add(&c->history, text, len, &err);
	if (rc > 0)
		ig_line_remember(c->line, c->history.entries[c->history.n - 1]);
	if (rc < 0) {
		ig_complain("the history is no longer saved: %s", err.text);
		free(c->history.path);
		c->history.path = NULL;
	}
}

/* Read a whole message.  1, 0 at the end of input, -EINTR, or another error with text. */
static int read_message(struct chat *c, struct ig_chat_input *in, struct ig_error *err)
{
	const char *more = ig_line_can_edit() && c->interactive ? MORE : PLAIN_MORE;
	struct ig_strbuf line = { 0 };
	bool pasted = false;
	int rc;

	ig_chat_input_clear(in);
	do {
		rc = ig_line_read(c->line, in->started || in->block ? more : PROMPT, &line, &pasted,
				  err);
		/* an unfinished message at the end of input is a message too */
		if (rc == 0 && in->text.len && !c->interactive) {
			rc = 1;
			break;
		}
	} while (rc == 1 && !ig_chat_input_line(in, ig_strbuf_text(&line), line.len, pasted));
	ig_strbuf_finish(&line);
	return rc == 1 && !ig_strbuf_ok(&in->text) ? ig_fail(err, -ENOMEM, "out of memory") : rc;
}

/* Process one message; *interrupted counts consecutive Ctrl-C at the prompt. */
static void turn(struct chat *c, struct ig_chat_input *in, unsigned *interrupted)
{
	struct ig_error err = { 0 };
	struct ig_chat_command cmd;
	int rc = read_message(c, in, &err);

	if (rc == -EINTR) {
		ig_interrupted = 0;
		if (chat_ended || !c->interactive) {
			c->status = chat_ended ? c->status : IG_EXIT_INTERRUPTED;
			c->exiting = true;
		} else if (++*interrupted == 2) {
			c->exiting = true;
			chat_print(c, "%s", "");
		} else {
			chat_print(c, "^C\n(Ctrl-C again, or Ctrl-D, exits)");
		}
		return;
	}
	*interrupted = 0;
	if (rc <= 0) {
		if (rc < 0)
			c->status = ig_complain("%s", err.text);
		else if (c->interactive)
			chat_print(c, "%s", "");
		c->exiting = true;
		return;
	}
	rc = ig_chat_parse(in, &cmd, &err);
	if (cmd.verb == IG_CHAT_NOTHING)
		return;
	remember(c, in->text.data, in->text.len);
	if (!rc && !ig_utf8_valid(in->text.data, in->text.len))
		rc = ig_fail(&err, -EINVAL, "the message is not UTF-8");
	if (!rc && cmd.verb != IG_CHAT_MESSAGE && strlen(in->text.data) != in->text.len)
		rc = ig_fail(&err, -EINVAL, "the command has a NUL byte in it");
	if (rc) {
		c->status = ig_complain("%s", err.text);
	} else {
		if (cmd.verb != IG_CHAT_MESSAGE) /* without the spaces at the line's end */
			in->text.data[(size_t)(cmd.rest - in->text.data) + cmd.len] = 0;
		chat_do_command(c, &cmd);
	}
	/* the first error ends a script; a person sees it and goes on */
	if (c->interactive)
		c->status = IG_EXIT_OK;
	else if (c->status != IG_EXIT_OK)
		c->exiting = true;
}

static int idle_socket(void *ctx)
{
	struct chat *c = ctx;

	return c->session.ws ? ig_ws_socket(c->session.ws) : -1;
}

static void on_idle(void *ctx)
{
	struct chat *c = ctx;

	ig_ws_idle(c->session.ws);
	if (ig_ws_socket(c->session.ws) < 0) /* closed by the daemon; the next turn connects */
		ig_session_close(&c->session);
}

/* The words that Tab completes: the commands, and the models after /model. */
static const char *word(void *ctx, size_t i)
{
	struct chat *c = ctx;
	size_t n = 0;

	while (ig_chat_commands[n].name) {
		if (n == i)
			return ig_chat_commands[n].name;
		n++;
	}
	return json_string_value(json_array_get(c->words, i - n));
}

static int open_line(struct chat *c, bool keep_history, struct ig_error *err)
{
	struct ig_line_options o = {
		.edit = c->interactive && ig_screen_is_capable(),
		.colour = c->view.colours,
		.history = &c->history,
		.idle_socket = idle_socket,
		.idle = on_idle,
		.word = word,
		.ctx = c,
	};
	struct ig_error why = { 0 };
	char path[4096];
	int rc;

	if (c->interactive && keep_history) {
		rc = ig_history_locate(path, sizeof path, &why);
		if (!rc)
			rc = ig_history_open(&c->history, path, &why);
		if (rc)
			ig_complain("the history is not saved: %s", why.text);
	}
	rc = ig_line_open(&o, &c->line, err);
	if (rc == -ENOTTY) {
		o.edit = false;
		rc = ig_line_open(&o, &c->line, err);
	}
	return rc;
}

/* Print the daemon's address and the model.  0, or an exit status. */
static int greet(struct chat *c)
{
	struct ig_error err = { 0 };

	json_t *list = ig_served_list(&c->e, &err);
	bool wrong = list && c->conversation.model && !ig_served_has(list, c->conversation.model);

	if (list)
		chat_know_models(c, list);
	json_decref(list);
	if (wrong)
		return ig_complain("%s serves no model '%s'; ingot models lists them", c->e.url,
				   c->conversation.model);
	chat_print(c, "%s at %s; /help lists the commands, Ctrl-D exits",
		   c->conversation.model ? c->conversation.model : "the daemon's default model",
		   c->e.url);
	return 0;
}

static int begin(struct chat *c, const char *load)
{
	struct ig_error err = { 0 };
	int rc = 0;

	if (load) {
		struct ig_conversation given = c->conversation;
		ig_conversation_init(&c->conversation);
		rc = ig_conversation_load(&c->conversation, load, &err);
		/* the command line overrides the file */
		if (!rc &&
		    ((given.model && ig_conversation_set(&c->conversation.model, given.model)) ||
		     (given.system && ig_conversation_set(&c->conversation.system, given.system))))
			rc = ig_fail(&err, -ENOMEM, "out of memory");
		ig_conversation_finish(&given);
		if (rc)
			return ig_complain("%s", err.text);
	}
	rc = ig_session_connect(&c->session, &err);
	if (rc == -EINTR)
		return IG_EXIT_INTERRUPTED;
	if (rc)
		return ig_endpoint_complain(&c->e, rc, err.text);
	return c->interactive ? greet(c) : 0;
}

static int talk(struct chat *c, const char *load, bool keep_history)
{
	struct ig_chat_input in = { 0 };
	struct ig_error err = { 0 };
	unsigned interrupted = 0;
	int status = begin(c, load);

	if (status)
		return status;
	if (open_line(c, keep_history, &err))
		return ig_complain("%s", err.text);
	while (!c->exiting)
		turn(c, &in, &interrupted);
	ig_chat_input_finish(&in);
	return c->status;
}

int ig_chat_main(int argc, char **argv)
{
	struct chat c = {
		.interactive = isatty(STDIN_FILENO),
		.session = { .n_retries = N_RETRIES, .retrying = chat_on_retry },
	};
	const char *load = NULL;
	bool no_history = false, plain = false;
	const struct ig_option opts[] = {
		IG_TEXT("model", 'm', &c.request.model, "NAME",
			"the model (default: the daemon's)"),
		IG_CLI_REQUEST_OPTIONS(&c.request),
		IG_TEXT("load", 0, &load, "FILE", "continue a conversation that /save wrote"),
		IG_FLAG("no-history", 0, &no_history, "neither read nor save the history of input"),
		IG_PLAIN_OPTION(&plain),
		IG_FLAG("verbose", 'v', &c.verbose, "print tokens and speed after each reply"),
		IG_WHERE_OPTIONS(&c.where),
		{ 0 },
	};
	struct ig_error err = { 0 };
	int n_args,
		status = ig_command_start(
			"chat [options] [MODEL]",
			"Chat with a model.  /help lists the commands, Ctrl-C stops a reply, Ctrl-D "
			"exits.\nWithout a terminal each line of standard input is a message.",
			opts, argc, argv, &n_args);

	if (status >= 0)
		return status;
	if (n_args > 1 || (n_args && c.request.model))
		return ig_wrong_usage("chat", "expected one model, got %s",
				      n_args > 1 ? "several words" : "two");
	if (n_args)
		c.request.model = argv[0];
	if (ig_cli_request_check(&c.request, &err))
		return ig_wrong_usage("chat", "%s", err.text);
	ig_reply_init(&c.view, plain);
	c.session.e = &c.e;
	c.session.ctx = &c;
	catch_signals();
	status = IG_EXIT_FAILED;
	if (ig_endpoint_open(&c.where, &c.e, &err))
		ig_complain("%s", err.text);
	else if (ig_conversation_set(&c.conversation.model, c.request.model) ||
		 ig_conversation_set(&c.conversation.system, c.request.system))
		ig_complain("out of memory");
	else
		status = talk(&c, load, !no_history);
	ig_session_close(&c.session);
	ig_line_close(c.line);
	ig_history_finish(&c.history);
	ig_conversation_finish(&c.conversation);
	ig_strbuf_finish(&c.reply);
	ig_reply_finish(&c.view);
	json_decref(c.words);
	free(c.unanswered);
	return status;
}
