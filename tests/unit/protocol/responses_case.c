/* responses_case.c: see responses_case.h. */
#include "tests/unit/protocol/responses_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const char *const say_x[] = { "x", NULL };

const struct fake_script says_x = { .pieces = say_x, .finish = IG_FINISH_STOP };

void match_value(const char *at, json_t *v, const char *want)
{
	char *text = json_dumps(v, 0);

	match_text(at, text, want);
	free(text);
}

bool is_final(json_t *v)
{
	const char *type = str(v, "type");

	return !strcmp(type, "response.completed") || !strcmp(type, "response.incomplete") ||
	       !strcmp(type, "response.failed") || !strcmp(type, "error");
}

json_t * final(struct world *w)
{
	for (;;) {
		json_t *v = event(w);
		if (is_final(v))
			return v;
		json_decref(v);
	}
}

json_t *ask(struct world *w, const char *members)
{
	char text[2000];

	assert_true(snprintf(text, sizeof text, "{\"type\":\"response.create\",%s}", members) <
		    (int)sizeof text);
	send_text(w, text);
	return final(w);
}

const char *id_of(json_t *v) { return str(json_object_get(v, "response"), "id"); }

void expect_code(json_t *v, const char *code, const char *param)
{
	json_t *e = json_object_get(v, "error");

	assert_string_equal(str(v, "type"), "error");
	assert_string_equal(str(e, "code"), code);
	assert_string_equal(str(e, "param"), param);
	assert_int_equal(json_integer_value(json_object_get(v, "status")), 400);
	json_decref(v);
}

void expect_prompt(struct world *w, const char *want)
{
	assert_string_equal(fake_engine_seen(w->engine).prompt, want);
}

void go_on(struct world *w, const char *more, const char *id, const char *text, char out[64])
{
	char members[400];

	snprintf(members, sizeof members, "%s\"input\":\"%s\",\"previous_response_id\":\"%s\"",
		 more, text, id);
	json_t *v = ask(w, members);
	if (strcmp(str(v, "type"), "response.completed"))
		fail_msg("%s", json_dumps(v, 0));
	assert_string_equal(str(json_object_get(v, "response"), "previous_response_id"), id);
	snprintf(out, 64, "%s", id_of(v));
	json_decref(v);
}
