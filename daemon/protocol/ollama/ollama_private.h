/* ollama_private.h: what the files of this folder share. */
#pragma once

#include "daemon/protocol/core/params.h"
#include "daemon/protocol/ollama/ollama.h"

/* The streams' content type: a JSON object in each line. */
#define IG_NDJSON "application/x-ndjson"

extern const struct ig_request_format ig_ollama_chat_request, ig_ollama_generate_request;

/* Parameters of several endpoints (ollama_options.c). */
ig_param_fn ig_ollama_options, ig_ollama_keep_alive, ig_ollama_think, ig_ollama_format,
	ig_ollama_images;

/* ollama_messages.c */
ig_param_fn ig_ollama_messages;

/* Make it a request of one prompt, a text. */
int ig_ollama_set_prompt(struct ig_request *r, const char *text, size_t len,
			 struct ig_api_error *e);

/* Prep's act of chat and generate. */
void ig_ollama_prepare(struct ig_reply *r);

/* An object of a stream's line; the writer begins anew with each. */
static inline void ig_ollama_end_line(struct ig_json_writer *w)
{
	ig_json_close_object(w);
	ig_strbuf_puts(w->out, "\n");
	w->comma = false;
}

/* A time of the wall clock, RFC 3339. */
#define IG_OLLAMA_TIME_CAP 40
const char *ig_ollama_time(char out[IG_OLLAMA_TIME_CAP], int64_t wall_ns);
