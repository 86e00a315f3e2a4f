/*
 * fuzz_request.c: any bytes as a client's request: the first says to which endpoint.
 * What is accepted must be within what prep and the engine are promised; what is refused
 * must say why, in valid UTF-8 after the copy that every error goes through.
 */
#include "daemon/protocol/chat/chat.h"
#include "daemon/protocol/messages/messages.h"
#include "daemon/protocol/ollama/ollama_private.h"
#include "daemon/protocol/responses/responses.h"
#include "daemon/protocol/tokens/tokens.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* By the first byte: its lowest three bits, and with the highest one Ollama's. */
static const struct ig_request_format *const formats[16] = {
	&ig_ws_request,		 &ig_chat_request,
	&ig_completion_request,	 &ig_create_request,
	&ig_messages_request,	 &ig_count_request,
	&ig_tokenize_request,	 &ig_detokenize_request,
	&ig_ollama_chat_request, &ig_ollama_generate_request,
	&ig_ollama_chat_request, &ig_ollama_generate_request,
	&ig_ollama_chat_request, &ig_ollama_generate_request,
	&ig_ollama_chat_request, &ig_ollama_generate_request,
};

static void must(bool holds)
{
	if (!holds)
		abort();
}

static void check_message(json_t *m)
{
	json_t *content = json_object_get(m, "content"), *calls = json_object_get(m, "tool_calls"),
	       *c;
	size_t i;

	must(json_is_string(json_object_get(m, "role")));
	must(json_is_string(content) || json_is_array(calls));
	must(!calls || json_is_array(calls));
	json_array_foreach(calls, i, c)
		must(json_is_string(json_object_get(json_object_get(c, "function"), "name")));
}

static void check_accepted(const struct ig_request *r)
{
	size_t n = 0, i;
	json_t *x;

	if (r->notice)
		return;
	must(r->sampling.temperature >= 0 && r->sampling.temperature <= 2 &&
	     r->sampling.top_p > 0 && r->sampling.top_p <= 1);
	must(r->sampling.top_k >= 0 && r->sampling.max_tokens >= 0 && r->n >= 1 &&
	     r->n <= IG_MAX_CHOICES);
	must(r->n_top >= 0 && r->n_top <= 20 && (r->logprobs || !r->n_top));
	/* a conversation or prompts; only what continues a response may bring nothing */
	must(!r->messages != !r->n_prompts || r->items || r->no_output);
	must(r->n_prompts * (size_t)r->n <= IG_MAX_CHOICES);
	json_array_foreach(r->messages, i, x) check_message(x);
	for (i = 0; i < r->n_prompts; i++)
		for (size_t k = 0; k < r->prompts[i].n_ids; k++)
			must(r->prompts[i].ids[k] >= 0);
	json_array_foreach(r->tools, i, x)
		must(json_is_string(json_object_get(json_object_get(x, "function"), "name")));
	must(r->tool_choice < IG_TOOLS_REQUIRED || json_array_size(r->tools) > 0);
	must((r->form == IG_OUTPUT_SCHEMA) <= (r->schema != NULL));
	must((r->form == IG_OUTPUT_REGEX) <= (r->regex != NULL));
	for (char **s = r->sampling.stops; s && *s; s++, n++)
		must(**s != 0);
	must(n <= IG_MAX_STOPS && strlen(r->stream_id) <= IG_MAX_STREAM_ID);
}

static void check_refused(const struct ig_api_error *e)
{
	char text[sizeof e->message];
	struct ig_utf8 u = { 0 };

	must(e->status >= 400 && e->status <= 599 && e->type && e->message[0]);
	ig_utf8_copy(text, sizeof text, e->message);
	must(ig_utf8_feed(&u, text, strlen(text)) && ig_utf8_whole(&u));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ig_request r;
	struct ig_api_error e;

	if (!size)
		return 0;
	if (ig_request_read(formats[(data[0] & 7) | (data[0] & 128) >> 4], (const char *)data + 1,
			    size - 1, data[0] & 8, &r, &e))
		check_refused(&e);
	else
		check_accepted(&r);
	ig_request_finish(&r);
	return 0;
}
