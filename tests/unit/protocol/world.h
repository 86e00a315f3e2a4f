/*
 * world.h: an api over the fake engine, a session in it, and what tests of the protocol do
 * with them: send, wait for events, compare them field by field.
 */
#pragma once

#include "daemon/protocol/api.h"
#include "tests/unit/protocol/fake_engine.h"

#include <jansson.h>
#include <pthread.h>

struct world {
	struct ig_engine *engine;
	struct ig_api *api;
	struct ig_api_options options;
	struct ig_session *session;
	struct ig_prompt_rules *rules; /* the built-in ones */
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool woken;
};

/* For cmocka. */
int world_setup(void **state);
/* The model answers "Hi". */
int world_setup_saying_hi(void **state);
int world_teardown(void **state);

/* Sleep until there is news, 5 s at most. */
void wait_news(struct world *w);
/* For what comes without news; to be asked for again, with a limit. */
void wait_a_little(struct world *w);

/* ---- the session ---- */

void send_text(struct world *w, const char *text);
/* The next event, or NULL if none is there now. */
json_t *try_event(struct world *w);
json_t *event(struct world *w);
/* The next event is this one, as match says. */
void expect(struct world *w, const char *want);

/* ---- exchanges ---- */

/* POST, with key k2. */
struct ig_exchange *begin(struct world *w, const char *path, const char *body);
struct ig_exchange *begin_as(struct world *w, const char *path, const char *body,
			     struct ig_principal who);
/* Wait for the head. */
void head_of(struct world *w, struct ig_exchange *x, struct ig_http_head *head);
/* What a stream is given now, all of it. */
char *filled(struct ig_exchange *x);
void check_filled(struct ig_exchange *x, const char *want);
/* POST and wait for the head. */
struct ig_exchange *post(struct world *w, const char *path, const char *body,
			 struct ig_http_head *head);
/* The body, whole; the exchange is ended. */
char *body_of(struct world *w, struct ig_exchange *x);
/* SSE frames: JSON objects ("{…") as match says, other lines exactly; frees body. */
void check_frames(char *body, const char *const *want);

/* ---- JSON ---- */

/* A member's string, "(none)" when there is none. */
const char *str(json_t *v, const char *key);
/* v must be exactly want, where "*" stands for anything and "#resp_" for a string
 * that begins so. */
void match(const char *at, json_t *v, json_t *want);
void match_text(const char *at, const char *text, const char *want);
