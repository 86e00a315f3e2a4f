/* errors.c: see errors.h. */
#include "daemon/protocol/core/errors.h"

#include "base/utf8.h"
#include "daemon/engine/stream.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *type_of(int status)
{
	return status == 429 ? "rate_limit_error" :
	       status >= 500 ? "server_error" :
			       "invalid_request_error";
}

int ig_api_fail(struct ig_api_error *e, int status, const char *code, const char *param,
		const char *fmt, ...)
{
	va_list ap;

	*e = (struct ig_api_error){ .status = status, .type = type_of(status), .code = code };
	if (param)
		snprintf(e->param, sizeof e->param, "%s", param);
	va_start(ap, fmt);
	vsnprintf(e->message, sizeof e->message, fmt, ap);
	va_end(ap);
	return -1;
}

/* ---- a parameter ---------------------------------------------------------------------- */

int ig_fail_value(struct ig_api_error *e, const char *param, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	return ig_api_fail(e, 400, "invalid_value", param, "Invalid value for '%s': %s.", param,
			   text);
}

const char *ig_json_type_name(const json_t *v)
{
	switch (json_typeof(v)) {
	case JSON_OBJECT: return "an object";
	case JSON_ARRAY: return "a list";
	case JSON_STRING: return "a string";
	case JSON_INTEGER: return "an integer";
	case JSON_REAL: return "a number";
	case JSON_TRUE:
	case JSON_FALSE: return "a boolean";
	default: return "null";
	}
}

int ig_fail_type(struct ig_api_error *e, const char *param, const char *expected, const json_t *v)
{
	return ig_api_fail(e, 400, "invalid_type", param,
			   "Invalid type for '%s': expected %s, got %s.", param, expected,
			   ig_json_type_name(v));
}

int ig_fail_unsupported(struct ig_api_error *e, const char *param, const char *accepted)
{
	if (!accepted)
		return ig_api_fail(e, 400, "unsupported_parameter", param,
				   "Unsupported parameter: '%s' is not supported by this server.",
				   param);
	return ig_api_fail(e, 400, "unsupported_parameter", param,
			   "Unsupported parameter: '%s' is accepted only as %s.", param, accepted);
}

int ig_fail_missing(struct ig_api_error *e, const char *param)
{
	return ig_api_fail(e, 400, "missing_required_parameter", param,
			   "Missing required parameter: '%s'.", param);
}

void ig_printable(char *out, size_t cap, const char *name)
{
	ig_utf8_copy(out, cap, name);
	for (char *p = out; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
}

/* ---- the server ------------------------------------------------------------------------ */

int ig_fail_memory(struct ig_api_error *e)
{
	return ig_api_fail(e, 500, "server_error", NULL, IG_OUT_OF_MEMORY);
}

int ig_fail_shutting_down(struct ig_api_error *e, uint32_t retry_after_s)
{
	ig_api_fail(e, 503, "server_shutting_down", NULL, "The server is shutting down.");
	e->retry_after_s = retry_after_s;
	return -1;
}

int ig_fail_overloaded(struct ig_api_error *e, uint32_t retry_after_s, const char *why)
{
	ig_api_fail(e, 503, "server_busy", NULL, "%s", why);
	e->retry_after_s = retry_after_s;
	return -1;
}

int ig_fail_unread(struct ig_api_error *e, int rc, uint32_t retry_after_s)
{
	return rc == -EAGAIN ? ig_fail_overloaded(e, retry_after_s,
						  "Too many requests are waiting to be read.") :
			       ig_fail_memory(e);
}

int ig_fail_model(struct ig_api_error *e, int rc, const struct ig_error *err)
{
	switch (rc) {
	case -ENOENT: return ig_api_fail(e, 404, "model_not_found", "model", "%s", err->text);
	case -ENOMEM: return ig_api_fail(e, 503, "insufficient_memory", "model", "%s", err->text);
	case -EIO: return ig_api_fail(e, 503, "model_load_failed", "model", "%s", err->text);
	case -ESHUTDOWN: return ig_fail_shutting_down(e, 0);
	default: return ig_api_fail(e, 500, "server_error", NULL, "%s", err->text);
	}
}

int ig_fail_deadline(struct ig_api_error *e, const char *why)
{
	return ig_api_fail(e, 504, "deadline_exceeded", "deadline", "%s",
			   why[0] ? why :
				    "The request's deadline has passed before it was complete.");
}

uint32_t ig_error_retry_after(const struct ig_api_error *e, uint32_t by_default)
{
	bool refused = e->status == 429 || e->status == 503;

	return e->retry_after_s ? e->retry_after_s : refused ? by_default : 0;
}

/* ---- an end ---------------------------------------------------------------------------- */

int ig_fail_cancelled(struct ig_api_error *e, const char *reason)
{
	return ig_api_fail(e, 499, NULL, NULL, "cancelled before it ran (%s)", reason);
}

void ig_result_error(const struct ig_gen_result *r, struct ig_api_error *e)
{
	*e = (struct ig_api_error){ 0 };
	if (r->finish == IG_FINISH_ERROR && r->error.code == -ETIME)
		ig_fail_deadline(e, r->error.text);
	else if (r->finish == IG_FINISH_ERROR && r->error.code == -EAGAIN)
		ig_fail_overloaded(e, 0, r->error.text);
	else if (r->finish == IG_FINISH_ERROR)
		ig_api_fail(e, 500, "server_error", NULL, "%s",
			    r->error.text[0] ? r->error.text : "The model failed.");
	else if (r->finish == IG_FINISH_CANCELLED && !strcmp(r->cancel_reason, "shutdown"))
		ig_fail_shutting_down(e, 0);
	else if (r->finish == IG_FINISH_CANCELLED)
		ig_api_fail(e, 500, "request_cancelled", NULL, "The request was cancelled (%s).",
			    r->cancel_reason);
}

/* ---- as JSON --------------------------------------------------------------------------- */

void ig_error_message(struct ig_json_writer *w, const struct ig_api_error *e)
{
	char text[sizeof e->message];

	ig_utf8_copy(text, sizeof text, e->message);
	ig_json_put_text(w, "message", text);
}

void ig_error_member(struct ig_json_writer *w, const struct ig_api_error *e)
{
	char param[sizeof e->param];

	ig_utf8_copy(param, sizeof param, e->param);
	ig_json_open_object(w, "error");
	ig_error_message(w, e);
	ig_json_putf(w, "'type': %s, 'param': %s, 'code': %s}", e->type, param[0] ? param : NULL,
		     e->code);
}

void ig_error_object(struct ig_strbuf *out, const struct ig_api_error *e)
{
	struct ig_json_writer w = { .out = out };

	ig_json_open_object(&w, NULL);
	ig_error_member(&w, e);
	ig_json_close_object(&w);
}
