/*
 * fuzz_request.c: any bytes as a client's request: the first says of which kind.
 * What is accepted must be within what the engine is promised; what is refused must
 * say why, in valid UTF-8 after the copy that every error goes through.
 */
#include "daemon/protocol/request.h"
#include "daemon/protocol/utf8.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_accepted(const struct ig_request *r)
{
	struct ig_utf8 u;
	size_t n = 0;

	if (r->kind != IG_REQUEST_CHAT && r->kind != IG_REQUEST_CREATE)
		return;
	if (!(r->temperature >= 0 && r->temperature <= 2) || !(r->top_p > 0 && r->top_p <= 1) ||
	    r->top_k < 0 || r->max_tokens < 0 || !r->n_messages)
		abort();
	for (size_t i = 0; i < r->n_messages; i++) {
		const struct ig_chat_message *m = &r->messages[i];
		if (strlen(m->content) != m->content_len || !m->role)
			abort();
		u = (struct ig_utf8){ 0 };
		if (!ig_utf8_feed(&u, m->content, m->content_len) || !ig_utf8_whole(&u))
			abort();
	}
	for (char **s = r->stops; s && *s; s++, n++)
		if (!**s)
			abort();
	if (n > IG_MAX_STOPS || strlen(r->stream_id) > IG_MAX_STREAM_ID)
		abort();
}

static void check_refused(const struct ig_api_error *e)
{
	char text[sizeof e->message];
	struct ig_utf8 u = { 0 };

	if (e->status < 400 || e->status > 599 || !e->type || !e->message[0])
		abort();
	ig_utf8_copy(text, sizeof text, e->message);
	if (!ig_utf8_feed(&u, text, strlen(text)) || !ig_utf8_whole(&u))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ig_request r;
	struct ig_api_error e;

	if (!size)
		return 0;
	const char *text = (const char *)data + 1;
	int rc = data[0] & 1 ? ig_request_parse_chat(text, size - 1, &r, &e) :
			       ig_request_parse_ws(text, size - 1, &r, &e);
	if (rc)
		check_refused(&e);
	else
		check_accepted(&r);
	ig_request_finish(&r);
	return 0;
}
