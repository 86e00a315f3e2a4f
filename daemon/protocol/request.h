/*
 * request.h: bytes of a client to a request that is checked.
 *
 * Every parameter works, or is accepted at values that change nothing, or is
 * refused by name.  Pure functions of their input: any thread, no globals.
 */
#ifndef INGOT_PROTOCOL_REQUEST_H
#define INGOT_PROTOCOL_REQUEST_H

#include "model/chat_template.h"

#include <stdbool.h>
#include <stdint.h>

#define IG_MAX_STREAM_ID 256
#define IG_MAX_STOPS 16

struct ig_bias;

/* An error as a client reads it. */
struct ig_api_error {
	int status; /* HTTP's; 0: no error */
	const char *type; /* invalid_request_error, server_error … */
	const char *code; /* NULL: null */
	char param[160]; /* "": null */
	char message[640];
	uint32_t retry_after_s; /* 0: not said */
};

enum ig_request_kind {
	IG_REQUEST_CHAT, /* POST /v1/chat/completions */
	IG_REQUEST_CREATE, /* response.create */
	IG_REQUEST_CANCEL, /* response.cancel */
	IG_REQUEST_STEER, /* response.steer */
	IG_REQUEST_IGNORED, /* response.processed */
};

struct ig_request {
	enum ig_request_kind kind;
	char *model; /* NULL: the default one */
	char *instructions; /* NULL: none; also messages[0] then */
	struct ig_chat_message *messages; /* [n_messages]; contents are malloc'd, roles static */
	size_t n_messages;
	double temperature, top_p;
	int32_t top_k; /* 0: off */
	double min_p, frequency_penalty, presence_penalty; /* 0: off */
	double repetition_penalty; /* 1: off */
	struct ig_bias *biases; /* [n_biases], ids differ */
	uint32_t n_biases;
	bool has_seed;
	uint64_t seed;
	int32_t max_tokens; /* 0: not said */
	char **stops; /* NULL-terminated; NULL: none */
	char *metadata; /* a JSON object; NULL: none */
	bool stream, include_usage, store;
	bool parallel_tool_calls, tool_choice_none; /* only echoed: there are no tools */
	char stream_id[IG_MAX_STREAM_ID + 1]; /* "": the default lane; set before any error */
	char *response_id; /* of a cancel; NULL: none */
	char *steer; /* of a steer: what came, as a JSON object to send back */
};

/* 0, or -1 with *e filled in.  r is to be finished in either case. */
int ig_request_parse_chat(const char *text, size_t len, struct ig_request *r,
			  struct ig_api_error *e);
/* One message of the Responses WebSocket. */
int ig_request_parse_ws(const char *text, size_t len, struct ig_request *r,
			struct ig_api_error *e);
void ig_request_finish(struct ig_request *r);

/* Fill in *e; returns -1. */
__attribute__((format(printf, 6, 7)))
int ig_api_fail(struct ig_api_error *e, int status, const char *type, const char *code,
		const char *param, const char *fmt, ...);

#endif
