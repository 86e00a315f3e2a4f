/*
 * chat.c: `ingot chat`: a conversation with a model, a turn after the other.
 *
 * The conversation lives here: each turn sends all that was said, and the daemon finds
 * in its prefix cache what it has computed already.  So a chat outlives the daemon's
 * restart.  Answers go to standard output; without a terminal nothing else does.
 * Ctrl-C ends an answer, and what came of it stays in the conversation.
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
#include "cli/term/text.h"

#define N_RETRIES 6 /* half a second to eight seconds apart: a quarter of a minute in all */
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
	struct sigaction sa = { .sa_handler = on_signal }; /* no SA_RESTART: waits end */

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
		ig_complain("the history is no longer kept: %s", err.text);
		free(c->history.path);
		c->history.path = NULL;
	}
}

/* A whole message.  1, 0 at the end of input, -EINTR, or another error with text. */
static int read_message(struct chat *c, struct ig_chat_input *in, struct ig_error *err)
{
	const char *more = ig_line_can_edit() && c->interactive ? MORE : PLAIN_MORE;
	struct ig_strbuf line;
	bool pasted = false;
	int rc;

	ig_chat_input_clear(in);
	ig_strbuf_init(&line);
	do {
		rc = ig_line_read(c->line, in->started || in->block ? more : PROMPT, &line, &pasted,
				  err);
		/* what was begun when the input ended is a message too */
		if (rc == 0 && in->text.len && !c->interactive) {
			rc = 1;
			break;
		}
	} while (rc == 1 && !ig_chat_input_line(in, line.len ? line.data : "", line.len, pasted));
	ig_strbuf_finish(&line);
	return rc == 1 && !ig_strbuf_ok(&in->text) ? ig_fail(err, -ENOMEM, "out of memory") : rc;
}

/* One message; interrupted counts the times that Ctrl-C was all that came. */
static void turn(struct chat *c, struct ig_chat_input *in, unsigned *interrupted)
{
	struct ig_error err = { 0 };
	struct ig_chat_command cmd;
	int rc = read_message(c, in, &err);

	if (rc == -EINTR) {
		ig_interrupted = 0;
		if (chat_ended || !c->interactive) {
			c->status = chat_ended ? c->status : IG_EXIT_INTERRUPTED;
			c->leaving = true;
		} else if (++*interrupted == 2) {
			c->leaving = true;
			chat_tell(c, "%s", "");
		} else {
			chat_tell(c, "^C\n(Ctrl-C again, or Ctrl-D, leaves)");
		}
		return;
	}
	*interrupted = 0;
	if (rc <= 0) {
		if (rc < 0) {
			ig_complain("%s", err.text);
			c->status = IG_EXIT_FAILED;
		} else if (c->interactive) {
			chat_tell(c, "%s", "");
		}
		c->leaving = true;
		return;
	}
	rc = ig_chat_parse(in, &cmd, &err);
	if (cmd.verb == IG_CHAT_NOTHING)
		return;
	remember(c, in->text.data, in->text.len);
	if (!rc && !ig_utf8_valid(in->text.data, in->text.len))
		rc = ig_fail(&err, -EINVAL, "that is not UTF-8");
	if (!rc && cmd.verb != IG_CHAT_SAY && strlen(in->text.data) != in->text.len)
		rc = ig_fail(&err, -EINVAL, "a command with a NUL byte in it");
	if (rc) {
		ig_complain("%s", err.text);
		c->status = IG_EXIT_FAILED;
	} else {
		if (cmd.verb != IG_CHAT_SAY) /* without the blanks that end the line */
			in->text.data[(size_t)(cmd.rest - in->text.data) + cmd.len] = 0;
		chat_do_command(c, &cmd);
	}
	/* a script that went wrong does not go on; a person sees it */
	if (c->interactive)
		c->status = IG_EXIT_OK;
	else if (c->status != IG_EXIT_OK)
		c->leaving = true;
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
	if (ig_ws_socket(c->session.ws) < 0) /* the daemon has gone; the next turn connects */
		ig_session_close(&c->session);
}

/* What Tab knows: the commands, and the models after /model. */
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
	const char *term = getenv("TERM");
	struct ig_line_options o = {
		.edit = c->interactive && c->screen && term && strcmp(term, "dumb"),
		.colour = c->colour,
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
			ig_complain("the history is not kept: %s", why.text);
	}
	rc = ig_line_open(&o, &c->line, err);
	if (rc == -ENOTTY) {
		o.edit = false;
		rc = ig_line_open(&o, &c->line, err);
	}
	return rc;
}

/* To a person: where, with whom.  0, or an exit status. */
static int greet(struct chat *c)
{
	struct ig_error err = { 0 };

	json_t *list = ig_served_list(&c->e, &err);
	bool wrong = list && c->said.model && !ig_served_has(list, c->said.model);

	if (list)
		chat_know_models(c, list);
	json_decref(list);
	if (wrong) {
		ig_complain("%s serves no model '%s'; ingot models lists them", c->e.url,
			    c->said.model);
		return IG_EXIT_FAILED;
	}
	chat_tell(c, "%s at %s; /help lists the commands, Ctrl-D leaves",
		  c->said.model ? c->said.model : "the daemon's default model", c->e.url);
	return 0;
}

static int begin(struct chat *c, const char *load)
{
	struct ig_error err = { 0 };
	int rc = 0;

	if (load) {
		struct ig_conversation given = c->said;
		ig_conversation_init(&c->said);
		rc = ig_conversation_load(&c->said, load, &err);
		/* the command line goes before the file */
		if (!rc && ((given.model && ig_conversation_set(&c->said.model, given.model)) ||
			    (given.system && ig_conversation_set(&c->said.system, given.system))))
			rc = ig_fail(&err, -ENOMEM, "out of memory");
		ig_conversation_finish(&given);
		if (rc) {
			ig_complain("%s", err.text);
			return IG_EXIT_FAILED;
		}
	}
	rc = ig_session_connect(&c->session, &err);
	if (rc == -EINTR)
		return IG_EXIT_INTERRUPTED;
	if (rc == -EPROTO)
		ig_complain("%s %s; is that Ingot's daemon?", c->e.url, err.text);
	else if (rc == -EACCES)
		ig_complain("%s %s", c->e.url, err.text);
	else if (rc)
		ig_endpoint_complain_absent(&c->e, err.text);
	if (rc)
		return IG_EXIT_FAILED;
	return c->interactive ? greet(c) : 0;
}

static int talk(struct chat *c, const char *load, bool keep_history)
{
	struct ig_chat_input in;
	struct ig_error err = { 0 };
	unsigned interrupted = 0;
	int status = begin(c, load);

	if (status)
		return status;
	if (open_line(c, keep_history, &err)) {
		ig_complain("%s", err.text);
		return IG_EXIT_FAILED;
	}
	ig_chat_input_init(&in);
	while (!c->leaving)
		turn(c, &in, &interrupted);
	ig_chat_input_finish(&in);
	return c->status;
}

int ig_chat_main(int argc, char **argv)
{
	const char *no_colour = getenv("NO_COLOR");
	struct chat c = {
		.interactive = isatty(STDIN_FILENO),
		.screen = isatty(STDOUT_FILENO),
		.newline = true,
		.session = { .n_retries = N_RETRIES, .retrying = chat_on_retry },
	};
	const char *load = NULL;
	bool no_history = false, help = false;
	const struct ig_option opts[] = {
		{ "model", 'm', IG_OPT_STRING, &c.ask.model, NULL, "NAME",
		  "which model answers (default: the daemon's)" },
		IG_ASK_OPTIONS(&c.ask),
		{ "load", 0, IG_OPT_STRING, &load, NULL, "FILE",
		  "go on with a conversation that /save wrote" },
		{ "no-history", 0, IG_OPT_FLAG, &no_history, NULL, NULL,
		  "keep nothing of what is typed, and offer nothing of earlier" },
		{ "verbose", 'v', IG_OPT_FLAG, &c.verbose, NULL, NULL,
		  "tokens and speed after each answer" },
		IG_WHERE_OPTIONS(&c.where),
		{ "help", 'h', IG_OPT_FLAG, &help, NULL, NULL, "print this" },
		{ 0 },
	};
	struct ig_error err = { 0 };
	int n_args, status = IG_EXIT_FAILED;

	if (ig_options_parse(opts, argc, argv, &n_args, &err)) {
		ig_complain("chat: %s (ingot help chat)", err.text);
		return IG_EXIT_USAGE;
	}
	if (help) {
		ig_options_help(
			stdout, "chat [options] [MODEL]",
			"Talk with a model.  /help lists the commands, Ctrl-C stops an answer, "
			"Ctrl-D leaves.\nWithout a terminal each line of standard input is a turn.",
			opts);
		return IG_EXIT_OK;
	}
	if (n_args > 1 || (n_args && c.ask.model)) {
		ig_complain("chat: one model expected, %s",
			    n_args > 1 ? "more words given" : "it is named twice");
		return IG_EXIT_USAGE;
	}
	if (n_args)
		c.ask.model = argv[0];
	if (ig_ask_check(&c.ask, &err)) {
		ig_complain("chat: %s", err.text);
		return IG_EXIT_USAGE;
	}
	c.colour = c.interactive && c.screen && !(no_colour && *no_colour);
	c.session.e = &c.e;
	c.session.ctx = &c;
	ig_strbuf_init(&c.answer);
	ig_conversation_init(&c.said);
	catch_signals();
	if (ig_endpoint_open(&c.where, &c.e, &err))
		ig_complain("%s", err.text);
	else if (ig_conversation_set(&c.said.model, c.ask.model) ||
		 ig_conversation_set(&c.said.system, c.ask.system))
		ig_complain("out of memory");
	else
		status = talk(&c, load, !no_history);
	ig_session_close(&c.session);
	ig_line_close(c.line);
	ig_history_finish(&c.history);
	ig_conversation_finish(&c.said);
	ig_strbuf_finish(&c.answer);
	json_decref(c.words);
	free(c.unanswered);
	return status;
}
