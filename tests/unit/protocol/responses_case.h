/*
 * responses_case.h: asking for responses over the WebSocket of a world, and what must come, for the
 * tests of Responses.
 */
#pragma once

#include "tests/unit/protocol/world.h"

/* A script that says "x", and its pieces. */
extern const char *const say_x[2];
extern const struct fake_script says_x;

void match_value(const char *at, json_t *v, const char *want);
bool is_final(json_t *v);
/* The next final event, whatever the lane. */
json_t * final(struct world *w);
/* Send a create with these members; its final event. */
json_t *ask(struct world *w, const char *members);
/* The id of an event's response. */
const char *id_of(json_t *v);
/* v is this error; it is released. */
void expect_code(json_t *v, const char *code, const char *param);
/* The prompt that the engine was given last. */
void expect_prompt(struct world *w, const char *want);
/* Continue id with text; the response's id. */
void go_on(struct world *w, const char *more, const char *id, const char *text, char out[64]);
