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
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cli/chat/chat_input.h"
#include "cli/commands/command.h"
#include "cli/chat/conversation.h"
#include "cli/download/files.h"
#include "cli/chat/history.h"
#include "cli/term/line.h"
#include "cli/options.h"
#include "cli/net/served_models.h"
#include "cli/net/session.h"
#include "cli/term/text.h"

#define N_RETRIES 6 /* half a second to eight seconds apart: a quarter of a minute in all */
#define PROMPT "> "
#define MORE "… "
#define PLAIN_MORE ". "

struct chat {
	struct ig_endpoint e;
	struct ig_where where;
	struct ig_session session;
	struct ig_ask ask; /* what the options said */
	struct ig_conversation said;
	struct ig_history history;
	struct ig_line *line;
	json_t *words;	  /* "model NAME" for each that the daemon served when asked, for Tab */
	char *unanswered; /* a question that has no answer; for /retry */
	size_t n_unanswered;

	struct ig_strbuf answer; /* that is being given */
	bool interactive;	 /* a person sits there */
	bool screen;		 /* standard output is a terminal */
	bool colour, verbose;
	bool newline;	 /* the output is at the beginning of a line */
	bool thinking;	 /* what was printed last is a thought */
	char last[300];	 /* the last answer's summary */
	char model[160]; /* that gave it */
	uint64_t n_answers, n_input, n_cached, n_output;
	bool leaving;
	int status;
};

static volatile sig_atomic_t ended; /* SIGTERM, SIGHUP */

static void on_signal(int sig)
{
	if (ig_interrupted < 100)
		ig_interrupted++;
	if (sig != SIGINT)
		ended = 1;
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

/* ---- output ----------------------------------------------------------------------- */

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
__attribute__((format(printf, 2, 3))) static void tell(struct chat *c, const char *fmt, ...)
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

static void on_retry(void *ctx, const char *why, unsigned wait_ms)
{
	struct chat *c = ctx;

	tell(c, "(%s: %s; trying again in %.1f s)", c->e.url, why, wait_ms / 1000.0);
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

static void count(struct chat *c, const struct ig_answer *a)
{
	c->n_answers++;
	c->n_input += a->n_input > 0 ? (uint64_t)a->n_input : 0;
	c->n_cached += a->n_cached > 0 ? (uint64_t)a->n_cached : 0;
	c->n_output += a->n_output > 0 ? (uint64_t)a->n_output : 0;
	if (a->model[0])
		memcpy(c->model, a->model, sizeof c->model);
	ig_answer_summary(a, c->last, sizeof c->last);
	if (c->verbose)
		tell(c, "(%s)", c->last);
}

/* An answer that did not come to its end by itself; true when the chat can't go on. */
static bool explain(struct chat *c, const struct ig_answer *a, int rc, const struct ig_error *err)
{
	if (rc == -EPIPE) { /* nobody reads: no word either */
		c->status = IG_EXIT_FAILED;
		return true;
	}
	if (rc == -EINTR || (!rc && a->state == IG_ANSWER_CANCELLED)) {
		tell(c, rc ? "(stopped; the daemon did not confirm it, the connection was closed)" :
			     "(stopped)");
		return false;
	}
	if (!rc && a->state == IG_ANSWER_INCOMPLETE) {
		if (!c->verbose) /* which has said it */
			tell(c, "(ended early: %s)", a->reason[0] ? a->reason : "no reason given");
		return false;
	}
	if (!rc && a->state != IG_ANSWER_FAILED)
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
static void say(struct chat *c, const char *text, size_t len)
{
	struct ig_ask q = c->ask;
	struct ig_error err = { 0 };
	struct ig_answer a;
	int rc;

	q.prompt = text;
	q.prompt_len = len;
	q.history = &c->said;
	q.model = c->said.model;
	q.system = c->said.system;
	ig_strbuf_clear(&c->answer);
	ig_answer_init(&a, on_text, c);
	a.thought = on_thought;
	c->newline = true;
	set_echo(c, false);
	rc = ig_session_ask(&c->session, &q, &a, &err);
	set_echo(c, true);
	if (!ended) /* before a word of it: the next Ctrl-C is for what comes then */
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
		if (!rc && a.state == IG_ANSWER_COMPLETED)
			tell(c, "(the model said nothing)");
	}
	c->leaving = c->leaving || over || ended;
}

/* ---- commands --------------------------------------------------------------------- */

static void do_help(struct chat *c)
{
	for (const struct ig_chat_command_info *i = ig_chat_commands; i->name; i++) {
		char left[32];
		snprintf(left, sizeof left, i->needs_arg || !i->arg ? "/%s %s" : "/%s [%s]",
			 i->name, i->arg ? i->arg : "");
		tell(c, "  %-16s %s", left, i->help);
	}
	tell(c,
	     "A line that ends in \\ goes on in the next; so do lines between \"\"\" and \"\"\".");
}

static void do_system(struct chat *c, const char *text)
{
	if (!*text) {
		tell(c, c->said.system ? "%s" : "no system message is set", c->said.system);
		return;
	}
	if (ig_conversation_set(&c->said.system, strcmp(text, "-") ? text : NULL))
		ig_complain("out of memory");
	else
		tell(c, c->said.system ? "(system message set)" : "(no system message)");
}

static void know_models(struct chat *c, const json_t *list)
{
	json_decref(c->words);
	c->words = json_array();
	for (size_t i = 0; c->words && i < json_array_size(list); i++) {
		char s[160];
		snprintf(s, sizeof s, "model %s", ig_served_name(list, i));
		json_array_append_new(c->words, json_string(s)); /* Tab may lack a word */
	}
}

static void do_model(struct chat *c, const char *name)
{
	struct ig_error err = { 0 };
	json_t *list = ig_served_list(&c->e, &err);
	const char *current = c->said.model ? c->said.model : c->model;

	if (!list) {
		ig_complain("%s", err.text);
		c->status = IG_EXIT_FAILED;
		return;
	}
	know_models(c, list);
	if (!*name) {
		for (size_t i = 0; i < json_array_size(list); i++) {
			const char *s = ig_served_name(list, i);
			tell(c, "%s %s", strcmp(s, current) ? " " : "*", s);
		}
	} else if (!ig_served_has(list, name)) {
		ig_complain("%s serves no model '%s'; /model lists them", c->e.url, name);
		c->status = IG_EXIT_FAILED;
	} else if (ig_conversation_set(&c->said.model, name)) {
		ig_complain("out of memory");
	} else {
		tell(c, "(going on with %s)", name);
	}
	json_decref(list);
}

/* ~/x as the shell would have it. */
static int expand(const char *path, char *buf, size_t size)
{
	const char *home = getenv("HOME");
	int n = !strncmp(path, "~/", 2) && home ? snprintf(buf, size, "%s%s", home, path + 1) :
						  snprintf(buf, size, "%s", path);

	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

static void do_file(struct chat *c, bool save, const char *name)
{
	struct ig_error err = { 0 };
	char path[4096];
	int rc = expand(name, path, sizeof path);

	if (rc)
		ig_fail(&err, rc, "the path is too long");
	else
		rc = save ? ig_conversation_save(&c->said, path, &err) :
			    ig_conversation_load(&c->said, path, &err);
	if (rc) {
		ig_complain("%s", err.text);
		c->status = IG_EXIT_FAILED;
		return;
	}
	if (!save) {
		free(c->unanswered);
		c->unanswered = NULL;
	}
	tell(c, "(%s %s: %zu turn%s)", save ? "saved" : "loaded", path, c->said.n / 2,
	     c->said.n == 2 ? "" : "s");
}

static void do_retry(struct chat *c)
{
	char *question = c->unanswered;
	size_t len = c->n_unanswered;

	c->unanswered = NULL;
	if (!question && !ig_conversation_undo(&c->said, &question, &len)) {
		tell(c, "(nothing was asked yet)");
		return;
	}
	say(c, question, len);
	free(question);
}

static void do_undo(struct chat *c)
{
	if (c->unanswered) {
		free(c->unanswered);
		c->unanswered = NULL;
		tell(c, "(the question without an answer is forgotten)");
	} else if (ig_conversation_undo(&c->said, NULL, NULL)) {
		tell(c, "(taken back; %zu turn%s left)", c->said.n / 2, c->said.n == 2 ? "" : "s");
	} else {
		tell(c, "(there is nothing to take back)");
	}
}

static void do_stats(struct chat *c)
{
	if (!c->n_answers) {
		tell(c, "no answer yet");
		return;
	}
	tell(c, "last answer: %s", c->last);
	tell(c,
	     "in all: %llu answer%s, %llu tokens; prompts %llu tokens, %llu of them cached; "
	     "conversation of %zu turn%s%s%s",
	     (unsigned long long)c->n_answers, c->n_answers == 1 ? "" : "s",
	     (unsigned long long)c->n_output, (unsigned long long)c->n_input,
	     (unsigned long long)c->n_cached, c->said.n / 2, c->said.n == 2 ? "" : "s",
	     c->model[0] ? ", model " : "", c->model);
}

static void do_command(struct chat *c, const struct ig_chat_command *cmd)
{
	switch (cmd->verb) {
	case IG_CHAT_SAY:
		say(c, cmd->rest, cmd->len);
		break;
	case IG_CHAT_HELP:
		do_help(c);
		break;
	case IG_CHAT_SYSTEM:
		do_system(c, cmd->rest);
		break;
	case IG_CHAT_MODEL:
		do_model(c, cmd->rest);
		break;
	case IG_CHAT_SAVE:
	case IG_CHAT_LOAD:
		do_file(c, cmd->verb == IG_CHAT_SAVE, cmd->rest);
		break;
	case IG_CHAT_CLEAR:
		ig_conversation_clear(&c->said);
		free(c->unanswered);
		c->unanswered = NULL;
		tell(c, "(forgotten)");
		break;
	case IG_CHAT_RETRY:
		do_retry(c);
		break;
	case IG_CHAT_UNDO:
		do_undo(c);
		break;
	case IG_CHAT_STATS:
		do_stats(c);
		break;
	case IG_CHAT_EXIT:
		c->leaving = true;
		break;
	case IG_CHAT_NOTHING:
	case IG_CHAT_UNKNOWN:
		break;
	}
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
		if (ended || !c->interactive) {
			c->status = ended ? c->status : IG_EXIT_INTERRUPTED;
			c->leaving = true;
		} else if (++*interrupted == 2) {
			c->leaving = true;
			tell(c, "%s", "");
		} else {
			tell(c, "^C\n(Ctrl-C again, or Ctrl-D, leaves)");
		}
		return;
	}
	*interrupted = 0;
	if (rc <= 0) {
		if (rc < 0) {
			ig_complain("%s", err.text);
			c->status = IG_EXIT_FAILED;
		} else if (c->interactive) {
			tell(c, "%s", "");
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
		do_command(c, &cmd);
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
		know_models(c, list);
	json_decref(list);
	if (wrong) {
		ig_complain("%s serves no model '%s'; ingot models lists them", c->e.url,
			    c->said.model);
		return IG_EXIT_FAILED;
	}
	tell(c, "%s at %s; /help lists the commands, Ctrl-D leaves",
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
		.session = { .n_retries = N_RETRIES, .retrying = on_retry },
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
