/* http.c: chat completions as server-sent events, each on a connection of its own, by libcurl's multi
 * interface.  What vLLM's and guidellm's clients send by default, so that their figures can be
 * compared. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/bench/client.h"
#include "cli/net/http_private.h"

#define PATH "/v1/chat/completions"
#define MAX_LINE (4u << 20)

struct exchange {
	struct exchange *next;
	CURL *c;
	struct curl_slist *headers;
	struct ig_bench_sample *s;
	struct ig_strbuf line; /* the unfinished one; of an error the body */
	bool done;	       /* [DONE] came */
};

struct ig_bench_wire {
	const struct ig_endpoint *e;
	CURLM *m;
	struct exchange *first;
};

static int open_wire(const struct ig_endpoint *e, struct ig_bench_wire **out, struct ig_error *err)
{
	struct ig_bench_wire *w = calloc(1, sizeof *w);

	*out = w;
	if (!w || curl_global_init(CURL_GLOBAL_DEFAULT)) {
		free(w);
		*out = NULL;
		return ig_fail(err, -ENOMEM, "curl does not start");
	}
	w->e = e;
	w->m = curl_multi_init();
	if (!w->m) {
		curl_global_cleanup();
		free(w);
		*out = NULL;
		return ig_fail(err, -ENOMEM, "out of memory");
	}
	return 0;
}

static void write_body(const char *model, const char *prompt, size_t len, uint32_t n_output,
		       struct ig_strbuf *out)
{
	struct ig_json_writer w = { .out = out };

	ig_json_open_object(&w, NULL);
	if (model)
		ig_json_put_text(&w, "model", model);
	ig_json_putf(&w, "'messages': [{'role': 'user', 'content': %.*s}]", (int)len, prompt);
	ig_json_putf(&w,
		     "'stream': true, 'stream_options': {'include_usage': true}, 'temperature': 0, "
		     "'max_tokens': %u, 'ignore_eos': true",
		     n_output);
	ig_json_close_object(&w);
}

/* ---- events -------------------------------------------------------------------------- */

static int64_t count(const json_t *usage, const char *key)
{
	const json_t *v = json_object_get(usage, key);

	return json_is_integer(v) ? json_integer_value(v) : -1;
}

static bool has_text(const json_t *delta)
{
	static const char *const keys[] = { "content", "reasoning_content", "reasoning" };

	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
		const char *s = ig_json_text(delta, keys[i]);
		if (s && *s)
			return true;
	}
	return json_array_size(json_object_get(delta, "tool_calls"));
}

static void on_error(struct ig_bench_sample *s, long status, const json_t *error)
{
	const char *text = ig_json_text(error, "message");

	ig_bench_end(s, status == 429 || status == 503 ? IG_BENCH_REFUSED : IG_BENCH_FAILED,
		     "HTTP %ld: %.150s", status, text ? text : "no reason given");
}

static void on_event(struct exchange *x, const char *text, size_t len, int64_t now)
{
	/* a model may generate U+0000 */
	const struct ig_json_limits limits = { .allow_nul = true };
	struct ig_json_error why;
	const json_t *choice, *usage, *error;
	json_t *event;

	if (len == 6 && !memcmp(text, "[DONE]", 6)) {
		x->done = true;
		return;
	}
	if (ig_json_read(text, len, &limits, &event, &why)) {
		ig_bench_end(x->s, IG_BENCH_FAILED, "an event is not JSON: %s", why.text);
		return;
	}
	choice = json_array_get(json_object_get(event, "choices"), 0);
	usage = json_object_get(event, "usage");
	error = json_object_get(event, "error");
	if (json_is_object(error))
		on_error(x->s, 200, error);
	if (has_text(json_object_get(choice, "delta")))
		ig_bench_token(x->s, now);
	if (json_is_object(usage)) {
		x->s->n_input = count(usage, "prompt_tokens");
		x->s->n_output = count(usage, "completion_tokens");
		x->s->n_cached =
			count(json_object_get(usage, "prompt_tokens_details"), "cached_tokens");
	}
	json_decref(event);
}

static void on_line(struct exchange *x, const char *line, size_t len, int64_t now)
{
	if (len && line[len - 1] == '\r')
		len--;
	if (len < 5 || memcmp(line, "data:", 5))
		return; /* empty, a comment, or another field */
	line += 5;
	len -= 5;
	if (len && *line == ' ') {
		line++;
		len--;
	}
	on_event(x, line, len, now);
}

static size_t on_data(char *data, size_t one, size_t n, void *ctx)
{
	struct exchange *x = ctx;
	int64_t now = ig_now_ns();
	long status = 0;
	char *newline;

	curl_easy_getinfo(x->c, CURLINFO_RESPONSE_CODE, &status);
	if (x->s->outcome || n > MAX_LINE - x->line.len)
		return 0;
	ig_strbuf_add(&x->line, data, n);
	if (!ig_strbuf_ok(&x->line))
		return 0;
	if (status != 200 || !x->line.len)
		return n;
	size_t used = 0;
	while ((newline = memchr(x->line.data + used, '\n', x->line.len - used))) {
		size_t end = (size_t)(newline - x->line.data);
		on_line(x, x->line.data + used, end - used, now);
		used = end + 1;
	}
	x->line.len -= used;
	memmove(x->line.data, x->line.data + used, x->line.len + 1);
	return n;
}

/* ---- requests ------------------------------------------------------------------------ */

static void destroy(struct ig_bench_wire *w, struct exchange *x)
{
	for (struct exchange **p = &w->first; *p; p = &(*p)->next)
		if (*p == x) {
			*p = x->next;
			break;
		}
	if (x->c)
		curl_multi_remove_handle(w->m, x->c);
	curl_easy_cleanup(x->c);
	curl_slist_free_all(x->headers);
	ig_strbuf_finish(&x->line);
	free(x);
}

static int send_request(struct ig_bench_wire *w, const struct ig_strbuf *body,
			struct ig_bench_sample *s, struct ig_error *err)
{
	struct exchange *x = calloc(1, sizeof *x);

	if (!x)
		return ig_fail(err, -ENOMEM, "out of memory");
	x->s = s;
	x->next = w->first;
	w->first = x;
	x->c = curl_easy_init();
	if (!x->c || !ig_http_prepare(x->c, w->e, PATH, true, &x->headers) ||
	    curl_easy_setopt(x->c, CURLOPT_WRITEFUNCTION, on_data) ||
	    curl_easy_setopt(x->c, CURLOPT_WRITEDATA, x) ||
	    curl_easy_setopt(x->c, CURLOPT_PRIVATE, x) ||
	    curl_easy_setopt(x->c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->len) ||
	    curl_easy_setopt(x->c, CURLOPT_POSTFIELDS, body->data) ||
	    curl_multi_add_handle(w->m, x->c)) {
		destroy(w, x);
		return ig_fail(err, -ENOMEM, "out of memory");
	}
	return 0;
}

/* An exchange is over: judge it by what came. */
static void judge(struct exchange *x, CURLcode code)
{
	struct ig_json_error why;
	json_t *body = NULL;
	long status = 0;

	curl_easy_getinfo(x->c, CURLINFO_RESPONSE_CODE, &status);
	if (!status)
		ig_bench_end(x->s, IG_BENCH_FAILED, "%s", curl_easy_strerror(code));
	else if (status != 200) {
		ig_json_read(ig_strbuf_text(&x->line), x->line.len, NULL, &body, &why);
		on_error(x->s, status, json_object_get(body, "error"));
		json_decref(body);
	} else if (code || !x->done)
		ig_bench_end(x->s, IG_BENCH_FAILED, "the stream broke off%s%s", code ? ": " : "",
			     code ? curl_easy_strerror(code) : "");
	else
		ig_bench_end(x->s, IG_BENCH_OK, NULL);
}

static int step(struct ig_bench_wire *w, int timeout_ms, struct ig_error *err)
{
	CURLMsg *message;
	int running, left;
	CURLMcode code = curl_multi_perform(w->m, &running);

	while (!code && (message = curl_multi_info_read(w->m, &left))) {
		char *x = NULL;
		CURLcode result = message->data.result;
		curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &x);
		judge((struct exchange *)(void *)x, result);
		destroy(w, (struct exchange *)(void *)x);
		timeout_ms = 0;
	}
	if (!code && timeout_ms > 0)
		code = curl_multi_poll(w->m, NULL, 0, timeout_ms, NULL);
	return code ? ig_fail(err, -EIO, "%s", curl_multi_strerror(code)) : 0;
}

static void cancel(struct ig_bench_wire *w, struct ig_bench_sample *s)
{
	for (struct exchange *x = w->first; x; x = x->next)
		if (x->s == s) {
			destroy(w, x);
			return;
		}
}

static void close_wire(struct ig_bench_wire *w)
{
	if (!w)
		return;
	while (w->first)
		destroy(w, w->first);
	curl_multi_cleanup(w->m);
	curl_global_cleanup();
	free(w);
}

const struct ig_bench_transport ig_bench_http = {
	.name = "http",
	.open = open_wire,
	.write = write_body,
	.send = send_request,
	.step = step,
	.cancel = cancel,
	.close = close_wire,
};
