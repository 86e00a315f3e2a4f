/*
 * run.c: `ingot run "prompt"`: one answer, streamed from the daemon over a WebSocket.
 *
 * Text goes to standard output as it comes, everything else to standard error.
 * Ctrl-C asks the daemon to cancel the request, waits shortly for its end, and
 * exits with 130.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cli/net/response.h"
#include "cli/commands/command.h"
#include "cli/net/endpoint.h"
#include "cli/download/files.h"
#include "cli/options.h"
#include "cli/net/served_models.h"
#include "cli/net/session.h"
#include "cli/term/text.h"

#define MAX_PROMPT (16u << 20)
#define SILENCE_MS 3000

struct run {
	struct ig_ask ask;
	struct ig_where where;
	bool json, events, quiet, help;
	bool tty; /* standard output is a terminal */
	bool ends_with_newline;
	struct ig_strbuf text; /* the whole answer, for --json */
};

/* Output that can't be written ends the run; a closed pipe does so silently. */
static int put(const char *s, size_t n)
{
	errno = 0;
	if (fwrite(s, 1, n, stdout) == n && fflush(stdout) == 0)
		return 0;
	return errno ? -errno : -EIO;
}

static int on_text(void *ctx, const char *s, size_t len)
{
	struct run *r = ctx;
	struct ig_strbuf b;
	int rc;

	if (len == 0 || r->events)
		return 0;
	if (r->json) {
		ig_strbuf_add(&r->text, s, len);
		return ig_strbuf_ok(&r->text) ? 0 : -ENOMEM;
	}
	r->ends_with_newline = s[len - 1] == '\n';
	if (!r->tty)
		return put(s, len);
	/* a model's text must not drive the terminal */
	ig_strbuf_init(&b);
	ig_text_plain(&b, s, len, true);
	rc = ig_strbuf_ok(&b) ? put(b.data, b.len) : -ENOMEM;
	ig_strbuf_finish(&b);
	return rc;
}

static int on_event(void *ctx, const char *json, size_t len)
{
	struct run *r = ctx;
	int rc = r->events ? put(json, len) : 0;

	return rc || !r->events ? rc : put("\n", 1);
}

/* ---- the prompt ------------------------------------------------------------------- */

/* Whether something was piped or redirected into us; /dev/null is nothing. */
static bool input_is_given(void)
{
	struct stat st;

	return fstat(STDIN_FILENO, &st) == 0 &&
	       (S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode) || S_ISSOCK(st.st_mode));
}

/* All of standard input, without the last newline. */
static int read_input(struct ig_strbuf *b, bool hint, struct ig_error *err)
{
	struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };
	size_t before = b->len;

	/* a pipe that somebody left open would make us wait without a word */
	if (hint && poll(&p, 1, SILENCE_MS) == 0)
		fputs("ingot: waiting for standard input, which is no terminal; </dev/null says that "
		      "there is none\n",
		      stderr);
	for (;;) {
		if (!ig_strbuf_reserve(b, 65536))
			return ig_fail(err, -ENOMEM, "out of memory");
		ssize_t n = read(STDIN_FILENO, b->data + b->len, 65536);
		if (n < 0 && errno == EINTR && !ig_interrupted)
			continue;
		if (n < 0)
			return ig_fail(err, -errno, "standard input: %s", strerror(errno));
		if (n == 0)
			break;
		b->len += (size_t)n;
		if (b->len > MAX_PROMPT)
			return ig_fail(err, -E2BIG, "the prompt is larger than %u MiB",
				       MAX_PROMPT >> 20);
	}
	if (b->len > before && b->data[b->len - 1] == '\n')
		b->len--;
	return 0;
}

/* The prompt of the arguments, and standard input below it. */
static int join(const char *prompt, struct ig_strbuf *b, struct ig_error *err)
{
	static const char gap[] = "\n\n";
	size_t n = strlen(prompt);
	int rc;

	if (!input_is_given()) {
		ig_strbuf_puts(b, prompt);
		return 0;
	}
	ig_strbuf_puts(b, prompt);
	ig_strbuf_puts(b, n ? gap : "");
	size_t start = b->len;
	rc = read_input(b, true, err);
	if (!rc && b->len == start && n) { /* nothing came */
		b->len = n;
		b->data[n] = 0;
	}
	return rc;
}

/* A lone argument is the prompt; but where the prompt can come from standard input, the
 * name of a model that the daemon serves is that. */
static bool is_model(struct run *r, const struct ig_endpoint *e, const char *arg)
{
	bool is = false;

	if (!r->ask.model && ig_served_is_name(arg)) {
		json_t *list = ig_served_list(e, NULL);
		is = ig_served_has(list, arg);
		json_decref(list);
	}
	return is;
}

static int get_prompt(struct run *r, const struct ig_endpoint *e, int n_args, char **args,
		      struct ig_strbuf *b, struct ig_error *err)
{
	bool tty = isatty(STDIN_FILENO);
	int rc = 0;

	if (n_args == 2) {
		if (r->ask.model)
			return ig_fail(err, -EINVAL,
				       "the model is named twice, --model %s and %s; or put "
				       "the prompt in quotes",
				       r->ask.model, args[0]);
		r->ask.model = args[0];
		args++;
		n_args--;
	} else if (n_args == 1 && (tty || input_is_given()) && is_model(r, e, args[0])) {
		if (tty)
			return ig_fail(err, -EINVAL,
				       "%s is a model; what is the prompt? ingot run %s "
				       "\"prompt\" (or talk with it: ingot chat %s)",
				       args[0], args[0], args[0]);
		r->ask.model = args[0];
		n_args = 0;
	}
	if (n_args == 1 && strcmp(args[0], "-"))
		rc = join(args[0], b, err);
	else if (n_args == 1 || !tty)
		rc = read_input(b, false, err);
	else
		return ig_fail(err, -EINVAL,
			       "what is the prompt? ingot run \"prompt\", or - to read "
			       "standard input");
	if (rc)
		return rc;
	if (!ig_strbuf_ok(b))
		return ig_fail(err, -ENOMEM, "out of memory");
	if (!b->len)
		return ig_fail(err, -EINVAL, "the prompt is empty");
	if (b->len > MAX_PROMPT)
		return ig_fail(err, -E2BIG, "the prompt is larger than %u MiB", MAX_PROMPT >> 20);
	if (!ig_utf8_valid(b->data, b->len))
		return ig_fail(err, -EINVAL, "the prompt is not UTF-8");
	r->ask.prompt = b->data;
	r->ask.prompt_len = b->len;
	return 0;
}

/* ---- the answer ------------------------------------------------------------------- */

/* What went wrong, for people; and where JSON is wanted, in a. */
static void complain(struct run *r, const struct ig_endpoint *e, struct ig_response *a, int rc,
		     const struct ig_error *err)
{
	switch (rc) {
	case -EPROTO: ig_complain("%s %s; is that Ingot's daemon?", e->url, err->text); break;
	case -EACCES: ig_complain("%s %s", e->url, err->text); break;
	case -ECONNREFUSED:
	case -ETIMEDOUT: ig_endpoint_complain_absent(e, err->text); break;
	case -ECONNRESET:
	case -EBADMSG:
	case -ENOMEM:
		ig_complain("%s: %s", e->url, err->text[0] ? err->text : "out of memory");
		break;
	default: ig_complain("standard output: %s", strerror(-rc)); return;
	}
	snprintf(a->error, sizeof a->error, "%s", err->text);
	a->state = IG_RESPONSE_FAILED;
}

static int print_json(struct run *r, const struct ig_response *a)
{
	struct ig_strbuf b;
	int rc = -ENOMEM;

	ig_strbuf_init(&b);
	if (ig_response_json(a, r->text.len ? r->text.data : "", r->text.len, &b))
		rc = put(b.data, b.len);
	ig_strbuf_finish(&b);
	if (rc && rc != -EPIPE)
		ig_complain("standard output: %s", strerror(-rc));
	return rc;
}

static int report(struct run *r, const struct ig_endpoint *e, struct ig_response *a, int rc,
		  const struct ig_error *err)
{
	int status = IG_EXIT_OK;
	char line[300];

	if (!r->json && !r->events && a->first_ns && !r->ends_with_newline && rc != -EPIPE) {
		int failed = put("\n", 1);
		rc = rc ? rc : failed;
	}
	if (rc == -EPIPE)
		return IG_EXIT_FAILED;
	if (rc && rc != -EINTR) {
		complain(r, e, a, rc, err);
		status = IG_EXIT_FAILED;
	} else if (a->state == IG_RESPONSE_FAILED) {
		ig_complain("%s", a->error);
		status = IG_EXIT_FAILED;
	} else if (!ig_response_ended(a)) {
		if (a->sent_ns)
			ig_complain(
				"interrupted; the daemon did not confirm the end, the connection was "
				"closed");
		a->state = IG_RESPONSE_CANCELLED;
	} else if (!r->quiet && !r->json) {
		ig_response_summary(a, line, sizeof line);
		fprintf(stderr, "%s\n", line);
	}
	if (r->json && print_json(r, a))
		status = IG_EXIT_FAILED;
	return ig_interrupted ? IG_EXIT_INTERRUPTED : status;
}

static int ask(struct run *r, const struct ig_endpoint *e)
{
	struct ig_session s = { .e = e, .raw = on_event, .ctx = r };
	struct ig_error err = { 0 };
	struct ig_response a;
	int rc, status;

	ig_strbuf_init(&r->text);
	ig_response_init(&a, on_text, r);
	rc = ig_session_ask(&s, &r->ask, &a, &err);
	status = report(r, e, &a, rc, &err);
	ig_session_close(&s);
	ig_strbuf_finish(&r->text);
	return status;
}

int ig_run_main(int argc, char **argv)
{
	struct run r = { .tty = isatty(STDOUT_FILENO) };
	struct ig_ask *q = &r.ask;
	const struct ig_option opts[] = {
		{ "model", 'm', IG_OPT_STRING, &q->model, NULL, "NAME",
		  "which model answers (default: the daemon's)" },
		IG_ASK_OPTIONS(q),
		{ "json", 0, IG_OPT_FLAG, &r.json, NULL, NULL,
		  "print one JSON object at the end: model, text, finish_reason, usage, timings" },
		{ "events", 0, IG_OPT_FLAG, &r.events, NULL, NULL,
		  "print the daemon's events as they come, one JSON object a line" },
		{ "quiet", 'q', IG_OPT_FLAG, &r.quiet, NULL, NULL,
		  "no line about speed at the end" },
		IG_WHERE_OPTIONS(&r.where),
		{ "help", 'h', IG_OPT_FLAG, &r.help, NULL, NULL, "print this" },
		{ 0 },
	};
	struct ig_endpoint e;
	struct ig_error err = { 0 };
	struct ig_strbuf prompt;
	int n_args, status = IG_EXIT_FAILED;

	if (ig_options_parse(opts, argc, argv, &n_args, &err)) {
		ig_complain("run: %s (ingot help run)", err.text);
		return IG_EXIT_USAGE;
	}
	if (r.help) {
		ig_options_help(
			stdout, "run [options] [MODEL] [\"prompt\"]",
			"Stream one answer from the daemon.  Standard input, when redirected, is "
			"appended to\nthe prompt, or is the prompt where none is given or it is -.  "
			"Ctrl-C cancels.",
			opts);
		return IG_EXIT_OK;
	}
	if (n_args > 2) {
		ig_complain(
			"run: at most a model and a prompt are expected, %d words given; put the "
			"prompt in quotes",
			n_args);
		return IG_EXIT_USAGE;
	}
	if (r.json && r.events) {
		ig_complain("run: --json and --events exclude each other");
		return IG_EXIT_USAGE;
	}
	ig_strbuf_init(&prompt);
	ig_catch_interrupts();
	int rc = ig_endpoint_open(&r.where, &e, &err);
	if (rc) {
		ig_complain("%s", err.text);
		return IG_EXIT_FAILED;
	}
	rc = get_prompt(&r, &e, n_args, argv, &prompt, &err);
	if (!rc)
		rc = ig_ask_check(q, &err);
	if (ig_interrupted) {
		status = IG_EXIT_INTERRUPTED;
	} else if (rc) {
		ig_complain("run: %s", err.text);
		status = rc == -EINVAL ? IG_EXIT_USAGE : IG_EXIT_FAILED;
	} else {
		status = ask(&r, &e);
	}
	ig_strbuf_finish(&prompt);
	return status;
}
