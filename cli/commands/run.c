/*
 * run.c: `ingot run "prompt"`: one response, streamed from the daemon over a WebSocket.  Text is
 * written to standard output as it arrives, everything else to standard error.  Ctrl-C cancels the
 * request, waits at most 2 s for the daemon's confirmation, and exits with 130.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/utf8.h"
#include "cli/net/response.h"
#include "cli/commands/command.h"
#include "cli/net/endpoint.h"
#include "cli/download/files.h"
#include "cli/options.h"
#include "cli/net/served_models.h"
#include "cli/net/session.h"
#include "cli/term/reply.h"
#include "cli/term/text.h"

#define MAX_PROMPT (16u << 20) /* bytes */
#define TOO_LARGE "the prompt is larger than 16 MiB"
#define SILENCE_MS 3000

struct run {
	struct ig_cli_request request;
	struct ig_where where;
	bool json, events, quiet, plain;
	struct ig_reply view;  /* the response as it is shown */
	struct ig_strbuf text; /* the whole response, for --json */
};

static int on_text(void *ctx, const char *s, size_t len)
{
	struct run *r = ctx;

	if (len == 0 || r->events)
		return 0;
	if (r->json) {
		ig_strbuf_add(&r->text, s, len);
		return ig_strbuf_ok(&r->text) ? 0 : -ENOMEM;
	}
	return ig_reply_text(&r->view, s, len);
}

/* Reasoning is shown to a person. */
static int on_reasoning(void *ctx, const char *s, size_t len)
{
	struct run *r = ctx;

	return r->view.rich && !r->events && !r->json ? ig_reply_reasoning(&r->view, s, len) : 0;
}

static int on_event(void *ctx, const char *json, size_t len)
{
	struct run *r = ctx;
	int rc = r->events ? ig_print_text(json, len, false) : 0;

	return rc || !r->events ? rc : ig_print_text("\n", 1, false);
}

/* ---- the prompt ------------------------------------------------------------------- */

/* Whether standard input is a pipe, a file or a socket; /dev/null is none of them. */
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

	/* an open pipe into which nobody writes would make us wait silently */
	if (hint && poll(&p, 1, SILENCE_MS) == 0)
		fputs("ingot: waiting for standard input, which is not a terminal; </dev/null means "
		      "no input\n",
		      stderr);
	int rc = ig_read_all(STDIN_FILENO, MAX_PROMPT, &ig_interrupted, b);
	if (rc == -EFBIG)
		return ig_fail(err, -E2BIG, TOO_LARGE);
	if (rc)
		return ig_fail(err, rc, "standard input: %s", strerror(-rc));
	if (b->len > before && b->data[b->len - 1] == '\n')
		b->len--;
	return 0;
}

/* The prompt of the arguments, then standard input after an empty line. */
static int join(const char *prompt, struct ig_strbuf *b, struct ig_error *err)
{
	size_t n = strlen(prompt);
	int rc;

	ig_strbuf_puts(b, prompt);
	if (!input_is_given())
		return 0;
	ig_strbuf_puts(b, n ? "\n\n" : "");
	size_t start = b->len;
	rc = read_input(b, true, err);
	if (!rc && b->len == start && n) { /* the input is empty */
		b->len = n;
		b->data[n] = 0;
	}
	return rc;
}

/* A lone argument is the prompt, unless the prompt can come from standard input and the argument
 * is the name of a served model. */
static bool is_model(struct run *r, const struct ig_endpoint *e, const char *arg)
{
	json_t *list = !r->request.model && ig_is_model_name(arg) ? ig_served_list(e, NULL) : NULL;
	bool is = ig_served_has(list, arg);

	json_decref(list);
	return is;
}

static int get_prompt(struct run *r, const struct ig_endpoint *e, int n_args, char **args,
		      struct ig_strbuf *b, struct ig_error *err)
{
	bool tty = isatty(STDIN_FILENO);
	int rc = 0;

	if (n_args == 2) {
		if (r->request.model)
			return ig_fail(err, -EINVAL,
				       "two models are named, --model %s and %s; put a prompt of "
				       "several words in quotes",
				       r->request.model, args[0]);
		r->request.model = args[0];
		args++;
		n_args--;
	} else if (n_args == 1 && (tty || input_is_given()) && is_model(r, e, args[0])) {
		if (tty)
			return ig_fail(err, -EINVAL,
				       "%s is a model; what is the prompt? ingot run %s "
				       "\"prompt\" (or ingot chat %s)",
				       args[0], args[0], args[0]);
		r->request.model = args[0];
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
		return ig_fail(err, -E2BIG, TOO_LARGE);
	if (!ig_utf8_valid(b->data, b->len))
		return ig_fail(err, -EINVAL, "the prompt is not UTF-8");
	r->request.prompt = b->data;
	r->request.prompt_len = b->len;
	return 0;
}

/* ---- the response ------------------------------------------------------------------- */

/* Print the error, and store it in a for --json. */
static void complain(const struct ig_endpoint *e, struct ig_response *a, int rc,
		     const struct ig_error *err)
{
	if (!err->code && rc != -ENOMEM) { /* of on_text or on_event */
		ig_complain("standard output: %s", strerror(-rc));
		return;
	}
	ig_endpoint_complain(e, rc, err->text);
	snprintf(a->error, sizeof a->error, "%s", err->text);
	a->state = IG_RESPONSE_FAILED;
}

static int print_json(struct run *r, const struct ig_response *a)
{
	struct ig_strbuf b = { 0 };
	int rc = ig_response_json(a, ig_strbuf_text(&r->text), r->text.len, &b) ?
			 ig_print_text(b.data, b.len, false) :
			 -ENOMEM;

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

	if (!r->json && !r->events && a->first_ns && rc != -EPIPE) {
		int failed = ig_reply_end(&r->view);
		/* a response without text is an empty line */
		if (!failed && !r->view.began)
			failed = ig_print_text("\n", 1, false);
		rc = rc ? rc : failed;
	}
	if (rc == -EPIPE)
		return IG_EXIT_FAILED;
	if (rc && rc != -EINTR) {
		complain(e, a, rc, err);
		status = IG_EXIT_FAILED;
	} else if (a->state == IG_RESPONSE_FAILED) {
		ig_complain("%s", a->error);
		status = IG_EXIT_FAILED;
	} else if (!ig_response_ended(a)) {
		if (a->sent_ns)
			ig_complain(
				"interrupted; the daemon did not confirm it, the connection was closed");
		a->state = IG_RESPONSE_CANCELLED;
	} else if (!r->quiet && !r->json) {
		ig_response_summary(a, line, sizeof line);
		fprintf(stderr, "%s\n", line);
	}
	if (r->json && print_json(r, a))
		status = IG_EXIT_FAILED;
	return ig_interrupted ? IG_EXIT_INTERRUPTED : status;
}

static int send_prompt(struct run *r, const struct ig_endpoint *e)
{
	struct ig_session s = { .e = e, .raw = on_event, .ctx = r };
	struct ig_error err = { 0 };
	struct ig_response a;
	int rc, status;

	ig_response_init(&a, on_text, r);
	a.thought = on_reasoning;
	ig_reply_init(&r->view, r->plain);
	rc = ig_session_request(&s, &r->request, &a, &err);
	status = report(r, e, &a, rc, &err);
	ig_session_close(&s);
	ig_strbuf_finish(&r->text);
	ig_reply_finish(&r->view);
	return status;
}

int ig_run_main(int argc, char **argv)
{
	struct run r = { 0 };
	struct ig_cli_request *q = &r.request;
	const struct ig_option opts[] = {
		IG_TEXT("model", 'm', &q->model, "NAME", "the model (default: the daemon's)"),
		IG_CLI_REQUEST_OPTIONS(q),
		IG_FLAG("json", 0, &r.json,
			"print one JSON object at the end: model, text, finish_reason, usage, timings"),
		IG_FLAG("events", 0, &r.events,
			"print the daemon's events as they arrive, one JSON object a line"),
		IG_PLAIN_OPTION(&r.plain),
		IG_FLAG("quiet", 'q', &r.quiet, "print no line about speed at the end"),
		IG_WHERE_OPTIONS(&r.where),
		{ 0 },
	};
	struct ig_endpoint e;
	struct ig_error err = { 0 };
	struct ig_strbuf prompt = { 0 };
	int n_args,
		status = ig_command_start(
			"run [options] [MODEL] [\"prompt\"]",
			"Stream one response from the daemon.  Standard input, when redirected, is "
			"appended to\nthe prompt; it is the prompt when none is given or it is -.  "
			"Ctrl-C cancels.",
			opts, argc, argv, &n_args);

	if (status >= 0)
		return status;
	if (n_args > 2)
		return ig_wrong_usage(
			"run",
			"expected at most a model and a prompt, got %d words; put the "
			"prompt in quotes",
			n_args);
	if (r.json && r.events)
		return ig_wrong_usage("run", "--json and --events exclude each other");
	ig_catch_interrupts();
	if (ig_endpoint_open(&r.where, &e, &err))
		return ig_complain("%s", err.text);
	int rc = get_prompt(&r, &e, n_args, argv, &prompt, &err);
	if (!rc)
		rc = ig_cli_request_check(q, &err);
	if (ig_interrupted) {
		status = IG_EXIT_INTERRUPTED;
	} else if (rc) {
		ig_complain("run: %s", err.text);
		status = rc == -EINVAL ? IG_EXIT_USAGE : IG_EXIT_FAILED;
	} else {
		status = send_prompt(&r, &e);
	}
	ig_strbuf_finish(&prompt);
	return status;
}
