/* responses_private.h: shared by the files of this folder. */
#pragma once

#include "base/json.h"
#include "daemon/protocol/responses/responses.h"
#include "daemon/protocol/responses/response_store.h"

/* The loop's. */
struct ig_responses {
	struct ig_response_store *store;
	struct link sessions; /* all of them */
};

/* ig_protocol's recall: set q->history by its previous_response_id. */
int ig_responses_recall(struct ig_api *api, struct ig_request *q, const struct ig_principal *who,
			const void *connection, struct ig_api_error *e);

/* r->stage: the state of a response's writer. */
enum { STAGE_CREATED, STAGE_IN_PROGRESS, STAGE_PARTS, STAGE_FINAL, STAGE_ERROR, STAGE_END };

enum ig_outcome {
	IG_OUTCOME_RUNS,
	IG_OUTCOME_COMPLETED,
	IG_OUTCOME_INCOMPLETE,
	IG_OUTCOME_CANCELLED,
	IG_OUTCOME_FAILED,
};
enum ig_outcome ig_response_outcome(const struct ig_reply *r);

/* With its outcome from STAGE_FINAL on, before as it runs. */
void ig_response_object(struct ig_reply *r, struct ig_strbuf *out);
void ig_response_items(struct ig_reply *r, const char *key, struct ig_json_writer *w);
/* The i-th part as an item; done: complete, else empty. */
void ig_response_item(struct ig_reply *r, const char *key, size_t i, bool done,
		      struct ig_json_writer *w);
void ig_response_content(struct ig_reply *r, const char *key, const struct ig_part *p, bool whole,
			 struct ig_json_writer *w);
/* The member "logprobs". */
void ig_response_logprobs(struct ig_reply *r, size_t first, size_t last, bool with_bytes,
			  struct ig_json_writer *w);
/* A part's text; the input of a custom tool's call. */
void ig_response_text(const char *key, const struct ig_strbuf *text, struct ig_json_writer *w);
void ig_response_custom_input(const char *key, const struct ig_part *p, struct ig_json_writer *w);
/* The name of a call's tool, and its namespace. */
void ig_response_tool_name(const struct ig_reply *r, const struct ig_part *p,
			   struct ig_json_writer *w);
/* Whether reasoning is sent as a summary, too. */
bool ig_response_has_summary(const struct ig_reply *r, const struct ig_part *p);
/* Whether a call is of a custom tool. */
bool ig_response_is_custom(const struct ig_reply *r, const struct ig_part *p);
/* A response without output gets an empty message; true: added now. */
bool ig_response_add_nothing(struct ig_reply *r);

/* Write the final object, and store the response, which may be continued or retrieved. */
void ig_response_final(struct ig_reply *r, struct ig_strbuf *out);

/* As ig_protocol's next and wait. */
bool ig_responses_next_event(struct ig_reply *r, struct ig_strbuf *out, bool *last);
bool ig_responses_wait_event(struct ig_reply *r, struct ig_strbuf *out);
void ig_ws_error_event(struct ig_strbuf *out, const struct ig_api_error *e, const char *stream_id);
void ig_ws_steer_failed(struct ig_strbuf *out, const char *steer, const char *stream_id);
