/*
 * run.c: `ingot run "prompt"`: one answer, streamed from the daemon over a WebSocket.
 *
 * Text goes to standard output as it comes, everything else to standard error.
 * Ctrl-C asks the daemon to cancel the request, waits shortly for its end, and
 * exits with 130.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/answer.h"
#include "cli/command.h"
#include "cli/endpoint.h"
#include "cli/files.h"
#include "cli/options.h"
#include "cli/text.h"
#include "cli/ws_client.h"

#define MAX_PROMPT (16u << 20)
#define CONNECT_TIMEOUT_MS 10000
#define CANCEL_WAIT_MS 2000
#define TICK_MS 100

struct run {
	struct ig_ask ask;
	const char *url, *config;
	bool json, quiet, help;
	bool tty; /* standard output is a terminal */
	bool ends_with_newline;
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

	if (len == 0 || r->json)
		return 0;
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

/* All of standard input, without the last newline. */
static int read_prompt(struct ig_strbuf *b, struct ig_error *err)
{
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
	if (b->len && b->data[b->len - 1] == '\n')
		b->len--;
	return 0;
}

static bool is_utf8(const char *s, size_t n)
{
	const unsigned char *p = (const unsigned char *)s;

	for (size_t i = 0; i < n;) {
		unsigned c = p[i++], more, least;
		if (c < 0x80)
			continue;
		if (c >= 0xc2 && c < 0xe0)
			more = 1, c &= 0x1f, least = 0x80;
		else if (c >= 0xe0 && c < 0xf0)
			more = 2, c &= 0x0f, least = 0x800;
		else if (c >= 0xf0 && c < 0xf5)
			more = 3, c &= 0x07, least = 0x10000;
		else
			return false;
		for (; more; more--, i++) {
			if (i >= n || (p[i] & 0xc0) != 0x80)
				return false;
			c = c << 6 | (p[i] & 0x3f);
		}
		if (c < least || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
			return false;
	}
	return true;
}

static int get_prompt(struct run *r, int n_args, char **args, struct ig_strbuf *b,
		      struct ig_error *err)
{
	int rc = 0;

	if (n_args == 1 && strcmp(args[0], "-")) {
		ig_strbuf_puts(b, args[0]);
	} else if (n_args == 1 || !isatty(STDIN_FILENO)) {
		rc = read_prompt(b, err);
	} else {
		return ig_fail(err, -EINVAL, "what is the prompt? ingot run \"prompt\", or - to read "
			       "standard input");
	}
	if (rc)
		return rc;
	if (!ig_strbuf_ok(b))
		return ig_fail(err, -ENOMEM, "out of memory");
	if (!b->len)
		return ig_fail(err, -EINVAL, "the prompt is empty");
	if (!is_utf8(b->data, b->len))
		return ig_fail(err, -EINVAL, "the prompt is not UTF-8");
	r->ask.prompt = b->data;
	r->ask.prompt_len = b->len;
	return 0;
}

static int send_cancel(struct ig_ws *ws, const struct ig_answer *a)
{
	struct ig_strbuf b;
	int rc = -ENOMEM;

	ig_strbuf_init(&b);
	ig_strbuf_puts(&b, "{\"type\":\"response.cancel\"");
	if (a->id[0]) {
		ig_strbuf_puts(&b, ",\"response_id\":");
		ig_strbuf_json(&b, a->id, strlen(a->id));
	}
	ig_strbuf_puts(&b, "}");
	if (ig_strbuf_ok(&b))
		rc = ig_ws_send(ws, b.data, b.len, NULL);
	ig_strbuf_finish(&b);
	return rc;
}

/* Read events to the end.  0, -EINTR after a cancel, or negative with text. */
static int stream(struct run *r, struct ig_ws *ws, struct ig_answer *a, struct ig_error *err)
{
	struct ig_strbuf msg;
	int64_t give_up = 0;
	int rc = 0;

	ig_strbuf_init(&msg);
	while (!ig_answer_ended(a)) {
		if (ig_interrupted && !give_up) {
			give_up = ig_now_ns() + (int64_t)CANCEL_WAIT_MS * 1000000;
			/* without an id the default lane's request is meant: there is one only */
			if (send_cancel(ws, a))
				break;
		}
		if (give_up && ig_now_ns() > give_up)
			break;
		int n = ig_ws_next(ws, TICK_MS, &msg, err);
		if (n < 0) {
			rc = n;
			break;
		}
		if (n == 0)
			continue;
		if (r->json) {
			ig_strbuf_add(&msg, "\n", 1);
			rc = ig_strbuf_ok(&msg) ? put(msg.data, msg.len) : -ENOMEM;
			msg.len--;
		}
		if (!rc)
			rc = ig_answer_event(a, msg.data, msg.len, ig_now_ns(), err);
		if (rc) {
			if (rc == -EPIPE)
				ig_fail(err, rc, "standard output was closed");
			else if (rc != -EBADMSG)
				ig_fail(err, rc, "standard output: %s", strerror(-rc));
			send_cancel(ws, a);
			break;
		}
	}
	ig_strbuf_finish(&msg);
	return ig_interrupted ? -EINTR : rc;
}

static int report(struct run *r, const struct ig_endpoint *e, const struct ig_answer *a, int rc,
		  const struct ig_error *err)
{
	char line[300];

	if (!r->json && a->first_ns && !r->ends_with_newline && rc != -EPIPE)
		put("\n", 1);
	if (rc == -EPIPE)
		return IG_EXIT_FAILED;
	if (rc && rc != -EINTR) {
		ig_complain("%s: %s", e->url, err->text);
		return IG_EXIT_FAILED;
	}
	if (a->state == IG_ANSWER_FAILED) {
		ig_complain("%s", a->error);
		return rc == -EINTR ? IG_EXIT_INTERRUPTED : IG_EXIT_FAILED;
	}
	if (rc == -EINTR && !ig_answer_ended(a)) {
		ig_complain("interrupted; the daemon did not confirm the end, the connection was closed");
		return IG_EXIT_INTERRUPTED;
	}
	if (!r->quiet) {
		ig_answer_summary(a, line, sizeof line);
		fprintf(stderr, "%s\n", line);
	}
	return rc == -EINTR ? IG_EXIT_INTERRUPTED : IG_EXIT_OK;
}

static int ask(struct run *r, const struct ig_endpoint *e)
{
	struct ig_error err = { 0 };
	struct ig_answer a;
	struct ig_strbuf create;
	struct ig_ws *ws = NULL;
	int rc, status = IG_EXIT_FAILED;

	ig_strbuf_init(&create);
	ig_answer_init(&a, on_text, r);
	if (!ig_ask_write(&r->ask, &create)) {
		ig_complain("out of memory");
		goto out;
	}
	rc = ig_ws_open(e, "/v1/responses", CONNECT_TIMEOUT_MS, &ws, &err);
	if (rc == -EINTR) {
		status = IG_EXIT_INTERRUPTED;
		goto out;
	}
	if (rc == -EPROTO) {
		ig_complain("%s %s; is that Ingot's daemon?", e->url, err.text);
		goto out;
	}
	if (rc) {
		ig_endpoint_complain_absent(e, err.text);
		goto out;
	}
	a.sent_ns = ig_now_ns();
	rc = ig_ws_send(ws, create.data, create.len, &err);
	if (!rc)
		rc = stream(r, ws, &a, &err);
	status = report(r, e, &a, rc, &err);
out:
	ig_ws_close(ws);
	ig_strbuf_finish(&create);
	return status;
}

int ig_run_main(int argc, char **argv)
{
	struct run r = { .tty = isatty(STDOUT_FILENO) };
	struct ig_ask *q = &r.ask;
	const struct ig_option opts[] = {
		{ "model", 'm', IG_OPT_STRING, &q->model, NULL, "NAME",
		  "which model answers (default: the daemon's)" },
		{ "system", 's', IG_OPT_STRING, &q->system, NULL, "TEXT",
		  "the system message (instructions)" },
		{ "max-tokens", 'n', IG_OPT_INT, &q->max_tokens, &q->has_max_tokens, "N",
		  "end after so many tokens", 1, 100000000 },
		{ "temperature", 't', IG_OPT_NUMBER, &q->temperature, &q->has_temperature, "T",
		  "0 … 2; 0 takes the likeliest token each time", 0, 2 },
		{ "top-p", 0, IG_OPT_NUMBER, &q->top_p, &q->has_top_p, "P",
		  "draw from the likeliest tokens that make up P", 0.000001, 1 },
		{ "top-k", 0, IG_OPT_INT, &q->top_k, &q->has_top_k, "K",
		  "draw from the K likeliest tokens; 0: from all", 0, 10000000 },
		{ "seed", 0, IG_OPT_U64, &q->seed, &q->has_seed, "S", "the same seed, the same draws" },
		{ "json", 0, IG_OPT_FLAG, &r.json, NULL, NULL,
		  "print the daemon's events, one JSON object a line" },
		{ "quiet", 'q', IG_OPT_FLAG, &r.quiet, NULL, NULL, "no line about speed at the end" },
		{ "url", 0, IG_OPT_STRING, &r.url, NULL, "URL",
		  "the daemon (default: $INGOT_URL, ingot.yaml, " IG_DEFAULT_URL ")" },
		{ "config", 'c', IG_OPT_STRING, &r.config, NULL, "FILE",
		  "the ingot.yaml that says where the daemon is" },
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
		ig_options_help(stdout, "run [options] \"prompt\"",
				"Stream one answer from the daemon.  The prompt \"-\", or none with standard "
				"input\nredirected, is read from there.  Ctrl-C cancels the request.", opts);
		return IG_EXIT_OK;
	}
	if (n_args > 1) {
		ig_complain("run: one prompt expected, %d given; put it in quotes", n_args);
		return IG_EXIT_USAGE;
	}
	if (q->seed > INT64_MAX) { /* JSON numbers of the daemon's reader end there */
		ig_complain("run: --seed: at most %lld", (long long)INT64_MAX);
		return IG_EXIT_USAGE;
	}
	if ((q->model && !is_utf8(q->model, strlen(q->model))) ||
	    (q->system && !is_utf8(q->system, strlen(q->system)))) {
		ig_complain("run: the arguments are not UTF-8");
		return IG_EXIT_USAGE;
	}
	ig_strbuf_init(&prompt);
	ig_catch_interrupts();
	int rc = get_prompt(&r, n_args, argv, &prompt, &err);
	if (ig_interrupted) {
		status = IG_EXIT_INTERRUPTED;
	} else if (rc) {
		ig_complain("run: %s", err.text);
		status = rc == -EINVAL ? IG_EXIT_USAGE : IG_EXIT_FAILED;
	} else if (ig_endpoint_find(r.url, r.config, &e, &err)) {
		ig_complain("%s", err.text);
	} else {
		status = ask(&r, &e);
	}
	ig_strbuf_finish(&prompt);
	return status;
}
