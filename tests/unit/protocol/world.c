/*
 * world.c: see world.h.  The test is the loop: it polls when woken and fills as a
 * connection would.
 */
#include "tests/unit/protocol/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static void wake(void *ctx)
{
	struct world *w = ctx;

	pthread_mutex_lock(&w->lock);
	w->woken = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

static void want_write(void *conn) {}

int world_setup(void **state)
{
	struct world *w = calloc(1, sizeof *w);

	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->cond, NULL);
	w->engine = fake_engine_create();
	struct ig_api_deps deps = {
		.engine = w->engine,
		.wake = wake,
		.wake_ctx = w,
		.want_write = want_write,
		.options = { .client_buffer = 4096,
			     .keepalive_interval_ms = 5000,
			     .retry_after_s = 2,
			     .model_wait_ms = 60000,
			     .max_waiting = 8,
			     .max_stored = 64,
			     .max_stored_bytes = 1 << 20,
			     .max_stored_per_lane = 1,
			     .rules = ig_prompt_rules_create() },
	};
	w->options = deps.options;
	w->api = ig_api_create(&deps);
	w->rules = deps.options.rules;
	w->session = ig_session_open(w->api, "req_1", "127.0.0.1",
				     &(struct ig_principal){ .key = "k1", .identity = 1 }, w);
	*state = w;
	return 0;
}

int world_setup_saying_hi(void **state)
{
	static const char *const pieces[] = { "Hi", NULL };
	int rc = world_setup(state);
	struct world *w = *state;

	fake_engine_script(w->engine,
			   &(struct fake_script){ .pieces = pieces, .finish = IG_FINISH_STOP });
	return rc;
}

int world_teardown(void **state)
{
	struct world *w = *state;

	ig_session_end(w->session);
	ig_api_stop(w->api);
	ig_engine_destroy(w->engine);
	ig_api_destroy(w->api);
	ig_prompt_rules_unref(w->rules);
	assert_int_equal(fake_model_holds(), 0);
	pthread_cond_destroy(&w->cond);
	pthread_mutex_destroy(&w->lock);
	free(w);
	return 0;
}

void wait_a_little(struct world *w)
{
	usleep(200);
	ig_api_poll(w->api);
}

#define NEWS_S 60 /* only a failure takes so long, on a machine however busy */

void wait_news(struct world *w)
{
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += NEWS_S;
	pthread_mutex_lock(&w->lock);
	while (!w->woken)
		if (pthread_cond_timedwait(&w->cond, &w->lock, &end)) {
			pthread_mutex_unlock(&w->lock);
			fail_msg("nothing came for %d s", NEWS_S);
		}
	w->woken = false;
	pthread_mutex_unlock(&w->lock);
	ig_api_poll(w->api);
}

void send_text(struct world *w, const char *text)
{
	ig_session_receive(w->session, strdup(text), strlen(text));
}

/* The next event, or NULL if none is there now. */
json_t *try_event(struct world *w)
{
	struct ig_strbuf b = { 0 };
	json_error_t je;

	enum ig_fill f = ig_session_fill(w->session, &b);
	if (f != IG_FILL_DATA) {
		assert_int_equal(b.len, 0);
		return NULL;
	}
	json_t *v = json_loadb(b.data, b.len, JSON_REJECT_DUPLICATES, &je);
	if (!v)
		fail_msg("not JSON: %s: %s", je.text, b.data);
	ig_strbuf_finish(&b);
	return v;
}

json_t *event(struct world *w)
{
	json_t *v;

	while (!(v = try_event(w)))
		wait_news(w);
	return v;
}

const char *str(json_t *v, const char *key)
{
	const char *s = json_string_value(json_object_get(v, key));

	return s ? s : "(none)";
}

/* v must be exactly want, where "*" stands for anything and "#resp_" for a string
 * that begins so. */
void match(const char *at, json_t *v, json_t *want)
{
	const char *s = json_string_value(want), *key;
	char sub[300];
	json_t *x;
	size_t i;

	if (s && !strcmp(s, "*")) {
		if (!v)
			fail_msg("%s is missing", at);
		return;
	}
	if (s && s[0] == '#') {
		if (strncmp(json_string_value(v) ? json_string_value(v) : "", s + 1, strlen(s) - 1))
			fail_msg("%s: %s", at, s);
		return;
	}
	if (json_is_object(want) && json_is_object(v)) {
		json_object_foreach(want, key, x)
		{
			snprintf(sub, sizeof sub, "%s.%s", at, key);
			match(sub, json_object_get(v, key), x);
		}
		json_object_foreach(v, key, x) if (!json_object_get(want, key))
			fail_msg("%s.%s should not be there", at, key);
		return;
	}
	if (json_is_array(want) && json_is_array(v) &&
	    json_array_size(want) == json_array_size(v)) {
		json_array_foreach(want, i, x)
		{
			snprintf(sub, sizeof sub, "%s[%zu]", at, i);
			match(sub, json_array_get(v, i), x);
		}
		return;
	}
	if (!json_equal(v, want)) {
		char *a = json_dumps(v, JSON_ENCODE_ANY), *b = json_dumps(want, JSON_ENCODE_ANY);
		fail_msg("%s: %s, expected %s", at, a ? a : "(missing)", b);
	}
}

void expect(struct world *w, const char *want)
{
	json_error_t je;
	json_t *a = event(w), *b = json_loads(want, JSON_ALLOW_NUL, &je);

	if (!b)
		fail_msg("the test's JSON: %s at %d", je.text, je.position);
	match(str(a, "type"), a, b);
	json_decref(a);
	json_decref(b);
}

/* ---- exchanges ------------------------------------------------------------------- */

struct ig_exchange *begin_as(struct world *w, const char *path, const char *body,
			     struct ig_principal who)
{
	struct ig_http_request r = { .method = "POST",
				     .path = path,
				     .client = "::1",
				     .who = who,
				     .body = strdup(body),
				     .body_len = strlen(body) };
	struct ig_exchange *x = ig_exchange_begin(w->api, &r, w);

	assert_null(r.body);
	return x;
}

struct ig_exchange *begin(struct world *w, const char *path, const char *body)
{
	return begin_as(w, path, body, (struct ig_principal){ .key = "k2", .identity = 2 });
}

void head_of(struct world *w, struct ig_exchange *x, struct ig_http_head *head)
{
	while (!ig_exchange_head(x, head))
		wait_news(w);
}

struct ig_exchange *post(struct world *w, const char *path, const char *body,
			 struct ig_http_head *head)
{
	struct ig_exchange *x = begin_as(w, path, body, (struct ig_principal){ 0 });

	head_of(w, x, head);
	return x;
}

char *filled(struct ig_exchange *x)
{
	struct ig_strbuf b = { 0 };

	ig_strbuf_puts(&b, "");
	while (ig_exchange_fill(x, &b) == IG_FILL_DATA)
		;
	return ig_strbuf_steal(&b);
}

void check_filled(struct ig_exchange *x, const char *want)
{
	char *got = filled(x);

	assert_string_equal(got ? got : "", want);
	free(got);
}

/* The body, whole. */
char *body_of(struct world *w, struct ig_exchange *x)
{
	struct ig_strbuf b = { 0 };
	enum ig_fill f;

	while ((f = ig_exchange_fill(x, &b)) != IG_FILL_END)
		if (f == IG_FILL_WAIT)
			wait_news(w);
	ig_exchange_end(x);
	return ig_strbuf_steal(&b);
}

void match_text(const char *at, const char *text, const char *want)
{
	json_t *a = json_loads(text, 0, NULL), *b = json_loads(want, 0, NULL);

	if (!a || !b)
		fail_msg("%s is not JSON: %s", a ? "want" : "got", a ? want : text);
	match(at, a, b);
	json_decref(a);
	json_decref(b);
}

void check_frames(char *body, const char *const *want)
{
	size_t i = 0;

	for (char *p = body; *p; i++) {
		char *end = strstr(p, "\n\n");
		assert_non_null(end);
		*end = 0;
		if (!want[i])
			fail_msg("one frame too many: %s", p);
		if (want[i][0] == '{') {
			assert_memory_equal(p, "data: ", 6);
			match_text("frame", p + 6, want[i]);
		} else {
			assert_string_equal(p, want[i]);
		}
		p = end + 2;
	}
	assert_null(want[i]);
	free(body);
}
