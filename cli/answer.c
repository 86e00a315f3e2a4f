/* answer.c: see answer.h. */
#include "cli/answer.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "cli/text.h"

bool ig_ask_write(const struct ig_ask *q, struct ig_strbuf *out)
{
	ig_strbuf_puts(out, "{\"type\":\"response.create\",\"store\":false,\"input\":");
	ig_strbuf_json(out, q->prompt, q->prompt_len);
	if (q->model) {
		ig_strbuf_puts(out, ",\"model\":");
		ig_strbuf_json(out, q->model, strlen(q->model));
	}
	if (q->system) {
		ig_strbuf_puts(out, ",\"instructions\":");
		ig_strbuf_json(out, q->system, strlen(q->system));
	}
	if (q->has_max_tokens)
		ig_strbuf_printf(out, ",\"max_output_tokens\":%lld", (long long)q->max_tokens);
	if (q->has_temperature)
		ig_strbuf_printf(out, ",\"temperature\":%.9g", q->temperature);
	if (q->has_top_p)
		ig_strbuf_printf(out, ",\"top_p\":%.9g", q->top_p);
	if (q->has_top_k)
		ig_strbuf_printf(out, ",\"top_k\":%lld", (long long)q->top_k);
	if (q->has_seed)
		ig_strbuf_printf(out, ",\"seed\":%llu", (unsigned long long)q->seed);
	ig_strbuf_puts(out, "}");
	return ig_strbuf_ok(out);
}

void ig_answer_init(struct ig_answer *a, int (*text)(void *ctx, const char *s, size_t len), void *ctx)
{
	*a = (struct ig_answer){ .text = text, .ctx = ctx, .n_input = -1, .n_cached = -1,
				 .n_output = -1 };
}

/* A string of the server for people: one line, cut to fit. */
static void take_text(char *buf, size_t size, const json_t *v)
{
	struct ig_strbuf b;
	const char *s = json_string_value(v);

	buf[0] = 0;
	if (!s)
		return;
	ig_strbuf_init(&b);
	ig_text_plain(&b, s, json_string_length(v), false);
	if (ig_strbuf_ok(&b) && b.data) {
		size_t n = b.len < size - 1 ? b.len : size - 1;
		while (n < b.len && n > 0 && ((unsigned char)b.data[n] & 0xc0) == 0x80)
			n--;
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

static void take_error(struct ig_answer *a, const json_t *error, const char *otherwise)
{
	take_text(a->error, sizeof a->error, json_object_get(error, "message"));
	take_text(a->code, sizeof a->code, json_object_get(error, "code"));
	if (!a->error[0])
		snprintf(a->error, sizeof a->error, "%s", otherwise);
	a->state = IG_ANSWER_FAILED;
}

static void take_id(struct ig_answer *a, const json_t *response)
{
	const char *id = json_string_value(json_object_get(response, "id"));

	if (id && strlen(id) < sizeof a->id)
		memcpy(a->id, id, strlen(id) + 1);
}

static void take_end(struct ig_answer *a, const char *type, const json_t *response, int64_t now_ns)
{
	const json_t *usage = json_object_get(response, "usage");
	const char *status = json_string_value(json_object_get(response, "status"));

	take_id(a, response);
	take_count(&a->n_input, usage, "input_tokens");
	take_count(&a->n_output, usage, "output_tokens");
	take_count(&a->n_cached, json_object_get(usage, "input_tokens_details"), "cached_tokens");
	if (!a->last_ns)
		a->last_ns = now_ns;
	if (!strcmp(type, "response.failed")) {
		take_error(a, json_object_get(response, "error"), "the response failed");
	} else if (status && !strcmp(status, "cancelled")) {
		a->state = IG_ANSWER_CANCELLED;
	} else if (!strcmp(type, "response.incomplete")) {
		a->state = IG_ANSWER_INCOMPLETE;
		take_text(a->reason, sizeof a->reason,
			  json_object_get(json_object_get(response, "incomplete_details"), "reason"));
	} else {
		a->state = IG_ANSWER_COMPLETED;
	}
}

int ig_answer_event(struct ig_answer *a, const char *json, size_t len, int64_t now_ns,
		    struct ig_error *err)
{
	json_error_t je;
	/* a model may well write U+0000 */
	json_t *root = json_loadb(json, len, JSON_ALLOW_NUL, &je);
	const char *type;
	int rc = 0;

	if (!root)
		return ig_fail(err, -EBADMSG, "the server sent no JSON: %.100s", je.text);
	type = json_string_value(json_object_get(root, "type"));
	if (!type) {
		rc = ig_fail(err, -EBADMSG, "the server sent an event without a type");
		goto out;
	}
	if (!strcmp(type, "response.output_text.delta")) {
		const json_t *delta = json_object_get(root, "delta");
		if (!json_is_string(delta)) {
			rc = ig_fail(err, -EBADMSG, "%s without a text", type);
			goto out;
		}
		if (!a->first_ns)
			a->first_ns = now_ns;
		a->last_ns = now_ns;
		a->state = IG_ANSWER_STREAMING;
		rc = a->text(a->ctx, json_string_value(delta), json_string_length(delta));
	} else if (!strcmp(type, "response.created")) {
		take_id(a, json_object_get(root, "response"));
		a->state = IG_ANSWER_STREAMING;
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
		take_error(a, json_is_object(error) ? error : root, "the server reported an error");
	}
out:
	json_decref(root);
	return rc;
}

void ig_answer_summary(const struct ig_answer *a, char *buf, size_t size)
{
	struct ig_strbuf b;
	char ms[32];

	ig_strbuf_init(&b);
	if (a->n_output >= 0)
		ig_strbuf_printf(&b, "%lld token%s", (long long)a->n_output,
				 a->n_output == 1 ? "" : "s");
	else
		ig_strbuf_puts(&b, "tokens not counted");
	/* the first token's time is the prompt's; the rate is that of the others */
	double s = (double)(a->last_ns - a->first_ns) / 1e9;
	if (a->n_output > 1 && a->first_ns && s > 0)
		ig_strbuf_printf(&b, ", %.1f tok/s", (double)(a->n_output - 1) / s);
	if (a->first_ns)
		ig_strbuf_printf(&b, ", first token after %s",
				 ig_text_ms(ms, sizeof ms, (double)(a->first_ns - a->sent_ns) / 1e6));
	if (a->n_input >= 0) {
		ig_strbuf_printf(&b, ", prompt %lld tokens", (long long)a->n_input);
		if (a->n_cached > 0)
			ig_strbuf_printf(&b, " (%lld cached)", (long long)a->n_cached);
	}
	if (a->state == IG_ANSWER_CANCELLED)
		ig_strbuf_puts(&b, ", cancelled");
	else if (a->state == IG_ANSWER_INCOMPLETE)
		ig_strbuf_printf(&b, ", ended early: %s", a->reason[0] ? a->reason : "no reason given");
	snprintf(buf, size, "%s", ig_strbuf_ok(&b) && b.data ? b.data : "");
	ig_strbuf_finish(&b);
}
