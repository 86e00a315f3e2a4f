/* response.c: see response.h. */
#include "cli/net/response.h"

#include <errno.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "cli/term/text.h"

int ig_cli_request_check(const struct ig_cli_request *q, struct ig_error *err)
{
	if (q->seed > INT64_MAX) /* the daemon reads JSON integers as int64_t */
		return ig_fail(err, -EINVAL, "--seed: at most %lld", (long long)INT64_MAX);
	if (q->model && (!q->model[0] || !ig_utf8_valid(q->model, strlen(q->model))))
		return ig_fail(err, -EINVAL, "the model's name is empty or not UTF-8");
	if (q->system && !ig_utf8_valid(q->system, strlen(q->system)))
		return ig_fail(err, -EINVAL, "--system is not UTF-8");
	return 0;
}

static void write_message(struct ig_json_writer *w, const char *role, const char *text, size_t len)
{
	ig_json_putf(w, "{'role': %s", role);
	ig_json_put_string(w, "content", text, len);
	ig_json_putf(w, "}");
}

static void write_input(const struct ig_cli_request *q, struct ig_json_writer *w)
{
	const struct ig_conversation *h = q->history;

	if (!h || !h->n) {
		ig_json_put_string(w, "input", q->prompt, q->prompt_len);
		return;
	}
	ig_json_open_array(w, "input");
	for (size_t i = 0; i < h->n; i++)
		write_message(w, h->turns[i].assistant ? "assistant" : "user", h->turns[i].text,
			      h->turns[i].len);
	write_message(w, "user", q->prompt, q->prompt_len);
	ig_json_close_array(w);
}

bool ig_cli_request_cancel(const char *id, struct ig_strbuf *out)
{
	struct ig_json_writer w = { .out = out };

	ig_json_putf(&w, "{'type': 'response.cancel'");
	if (id[0])
		ig_json_put_text(&w, "response_id", id);
	ig_json_close_object(&w);
	return ig_strbuf_ok(out);
}

bool ig_cli_request_write(const struct ig_cli_request *q, struct ig_strbuf *out)
{
	struct ig_json_writer w = { .out = out };

	ig_json_putf(&w, "{'type': 'response.create', 'store': false");
	write_input(q, &w);
	if (q->model)
		ig_json_put_text(&w, "model", q->model);
	if (q->system)
		ig_json_put_text(&w, "instructions", q->system);
	if (q->has_max_tokens)
		ig_json_put_int(&w, "max_output_tokens", q->max_tokens);
	if (q->has_temperature)
		ig_json_put_real(&w, "temperature", "%.9g", q->temperature);
	if (q->has_top_p)
		ig_json_put_real(&w, "top_p", "%.9g", q->top_p);
	if (q->has_top_k)
		ig_json_put_int(&w, "top_k", q->top_k);
	if (q->has_seed)
		ig_json_put_uint(&w, "seed", q->seed);
	ig_json_close_object(&w);
	return ig_strbuf_ok(out);
}

void ig_response_init(struct ig_response *a, int (*text)(void *ctx, const char *s, size_t len),
		      void *ctx)
{
	*a = (struct ig_response){
		.text = text, .ctx = ctx, .n_input = -1, .n_cached = -1, .n_output = -1
	};
}

/* A string of the server as one plain line, cut to fit. */
static void take_text(char *buf, size_t size, const json_t *v)
{
	struct ig_strbuf b = { 0 };
	const char *s = json_string_value(v);

	buf[0] = 0;
	if (!s)
		return;
	ig_text_plain(&b, s, json_string_length(v), false);
	if (ig_strbuf_ok(&b) && b.data) {
		size_t n = ig_utf8_cut(b.data, b.len, size - 1);
		memcpy(buf, b.data, n);
		buf[n] = 0;
	}
	ig_strbuf_finish(&b);
}

static void take_count(int64_t *out, const json_t *object, const char *key)
{
	const json_t *v = json_object_get(object, key);

	if (json_is_integer(v) && json_integer_value(v) >= 0)
		*out = json_integer_value(v);
}

static void take_error(struct ig_response *a, const json_t *error, const char *otherwise)
{
	take_text(a->error, sizeof a->error, json_object_get(error, "message"));
	take_text(a->code, sizeof a->code, json_object_get(error, "code"));
	if (!a->error[0])
		snprintf(a->error, sizeof a->error, "%s", otherwise);
	a->state = IG_RESPONSE_FAILED;
}

static void take_id(struct ig_response *a, const json_t *response)
{
	const char *id = ig_json_text(response, "id");

	if (json_is_string(json_object_get(response, "model")))
		take_text(a->model, sizeof a->model, json_object_get(response, "model"));
	if (id && strlen(id) < sizeof a->id)
		memcpy(a->id, id, strlen(id) + 1);
}

static void take_end(struct ig_response *a, const char *type, const json_t *response,
		     int64_t now_ns)
{
	const json_t *usage = json_object_get(response, "usage");
	const char *status = ig_json_text(response, "status");

	take_id(a, response);
	a->ended_ns = now_ns;
	take_count(&a->n_input, usage, "input_tokens");
	take_count(&a->n_output, usage, "output_tokens");
	take_count(&a->n_cached, json_object_get(usage, "input_tokens_details"), "cached_tokens");
	if (!a->last_ns)
		a->last_ns = now_ns;
	if (!strcmp(type, "response.failed")) {
		take_error(a, json_object_get(response, "error"), "the response failed");
	} else if (status && !strcmp(status, "cancelled")) {
		a->state = IG_RESPONSE_CANCELLED;
	} else if (!strcmp(type, "response.incomplete")) {
		a->state = IG_RESPONSE_INCOMPLETE;
		take_text(
			a->reason, sizeof a->reason,
			json_object_get(json_object_get(response, "incomplete_details"), "reason"));
	} else {
		a->state = IG_RESPONSE_COMPLETED;
	}
}

int ig_response_event(struct ig_response *a, const char *json, size_t len, int64_t now_ns,
		      struct ig_error *err)
{
	/* a model may generate U+0000 */
	const struct ig_json_limits limits = { .allow_nul = true };
	struct ig_json_error why;
	const char *type;
	json_t *root;
	int rc = ig_json_read(json, len, &limits, &root, &why);

	if (rc)
		return ig_fail(err, -EBADMSG, "the server sent text that is not JSON: %.100s",
			       why.text);
	type = ig_json_text(root, "type");
	if (!type) {
		rc = ig_fail(err, -EBADMSG, "the server sent an event without a type");
		goto out;
	}
	bool is_text = !strcmp(type, "response.output_text.delta");
	if (is_text || !strcmp(type, "response.reasoning_text.delta")) {
		const json_t *delta = json_object_get(root, "delta");
		int (*each)(void *ctx, const char *s, size_t len) = is_text ? a->text : a->thought;
		if (is_text && !json_is_string(delta)) {
			rc = ig_fail(err, -EBADMSG, "%s without a text", type);
			goto out;
		}
		if (!a->first_ns)
			a->first_ns = now_ns;
		a->last_ns = now_ns;
		a->state = IG_RESPONSE_STREAMING;
		if (each && json_is_string(delta))
			rc = each(a->ctx, json_string_value(delta), json_string_length(delta));
	} else if (!strcmp(type, "response.created")) {
		take_id(a, json_object_get(root, "response"));
		a->state = IG_RESPONSE_STREAMING;
	} else if (!strcmp(type, "response.completed") || !strcmp(type, "response.incomplete") ||
		   !strcmp(type, "response.failed")) {
		const json_t *response = json_object_get(root, "response");
		if (!json_is_object(response)) {
			rc = ig_fail(err, -EBADMSG, "%.60s without a response", type);
			goto out;
		}
		take_end(a, type, response, now_ns);
	} else if (!strcmp(type, "error")) {
		/* nested over a WebSocket, flat over SSE */
		const json_t *error = json_object_get(root, "error");
		int64_t status = 0;
		take_count(&status, root, "status");
		a->status = status < 1000 ? (int)status : 0;
		a->ended_ns = now_ns;
		take_error(a, json_is_object(error) ? error : root, "the server reported an error");
	}
out:
	json_decref(root);
	return rc;
}

const char *ig_response_finish_reason(const struct ig_response *a)
{
	switch (a->state) {
	case IG_RESPONSE_COMPLETED: return "stop";
	case IG_RESPONSE_CANCELLED: return "cancelled";
	case IG_RESPONSE_INCOMPLETE:
		return !strcmp(a->reason, "max_output_tokens") || !a->reason[0] ? "length" :
										  a->reason;
	default: return "error";
	}
}

/* Tokens in a second after the first one, whose time is the prompt's; -1: unknown. */
static double rate_of(const struct ig_response *a)
{
	double s = (double)(a->last_ns - a->first_ns) / 1e9;

	return a->n_output > 1 && a->first_ns && s > 0 ? (double)(a->n_output - 1) / s : -1;
}

static void write_count(struct ig_json_writer *w, const char *name, int64_t n)
{
	if (n >= 0)
		ig_json_put_int(w, name, n);
	else
		ig_json_put_raw(w, name, NULL);
}

static void write_real(struct ig_json_writer *w, const char *name, double x)
{
	ig_json_put_real(w, name, "%.3f", x >= 0 ? x : NAN);
}

static void write_text(struct ig_json_writer *w, const char *name, const char *text)
{
	ig_json_put_text(w, name, text[0] ? text : NULL);
}

bool ig_response_json(const struct ig_response *a, const char *text, size_t len,
		      struct ig_strbuf *out)
{
	struct ig_json_writer w = { .out = out };

	ig_json_open_object(&w, NULL);
	write_text(&w, "model", a->model);
	ig_json_put_string(&w, "text", text, len);
	write_text(&w, "finish_reason", ig_response_finish_reason(a));
	ig_json_open_object(&w, "usage");
	write_count(&w, "input_tokens", a->n_input);
	write_count(&w, "cached_tokens", a->n_cached);
	write_count(&w, "output_tokens", a->n_output);
	ig_json_close_object(&w);
	ig_json_open_object(&w, "timings");
	write_real(&w, "first_token_ms",
		   a->first_ns ? (double)(a->first_ns - a->sent_ns) / 1e6 : -1);
	write_real(&w, "total_ms", a->ended_ns ? (double)(a->ended_ns - a->sent_ns) / 1e6 : -1);
	write_real(&w, "tokens_per_second", rate_of(a));
	ig_json_close_object(&w);
	if (!strcmp(ig_response_finish_reason(a), "error")) {
		ig_json_open_object(&w, "error");
		write_text(&w, "code", a->code);
		write_text(&w, "message", a->error);
		ig_json_close_object(&w);
	}
	ig_json_close_object(&w);
	ig_strbuf_puts(out, "\n");
	return ig_strbuf_ok(out);
}

void ig_response_summary(const struct ig_response *a, char *buf, size_t size)
{
	struct ig_strbuf b = { 0 };
	char ms[32];

	if (a->n_output >= 0)
		ig_strbuf_printf(&b, "%lld token%s", (long long)a->n_output,
				 a->n_output == 1 ? "" : "s");
	else
		ig_strbuf_puts(&b, "tokens not counted");
	if (rate_of(a) >= 0)
		ig_strbuf_printf(&b, ", %.1f tok/s", rate_of(a));
	if (a->first_ns)
		ig_strbuf_printf(
			&b, ", first token after %s",
			ig_text_ms(ms, sizeof ms, (double)(a->first_ns - a->sent_ns) / 1e6));
	if (a->n_input >= 0) {
		ig_strbuf_printf(&b, ", prompt %lld tokens", (long long)a->n_input);
		if (a->n_cached > 0)
			ig_strbuf_printf(&b, " (%lld cached)", (long long)a->n_cached);
	}
	if (a->state == IG_RESPONSE_CANCELLED)
		ig_strbuf_puts(&b, ", cancelled");
	else if (a->state == IG_RESPONSE_INCOMPLETE)
		ig_strbuf_printf(&b, ", ended early: %s",
				 a->reason[0] ? a->reason : "no reason given");
	snprintf(buf, size, "%s", ig_strbuf_ok(&b) ? ig_strbuf_text(&b) : "");
	ig_strbuf_finish(&b);
}
