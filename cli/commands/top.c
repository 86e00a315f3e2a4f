/*
 * top.c: `ingot top`: what the daemon does now, on the whole window: models, memory, requests and the
 * last hour's figures, from /v1/ingot/events and /v1/ingot/stats.  One thread: it waits for keys and for
 * the WebSocket; the ledger's figures and a cancellation are short HTTP requests in between.
 */
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/commands/command.h"
#include "cli/download/files.h"
#include "cli/net/http_client.h"
#include "cli/net/ws_client.h"
#include "cli/options.h"
#include "cli/term/keys.h"
#include "cli/term/screen.h"
#include "cli/term/text.h"
#include "cli/top/top.h"

#define CONNECT_TIMEOUT_MS 5000
#define HTTP_TIMEOUT_MS 3000
#define FIRST_EVENTS_MS 5000
#define SECOND_LOOK_MS 2500 /* the daemon looks once a second */
#define STATS_EVERY_NS INT64_C(5000000000)
#define SECOND_NS INT64_C(1000000000)
#define FIRST_PAUSE_MS 250
#define MAX_PAUSE_MS 5000

struct top {
	struct ig_endpoint e;
	struct ig_ws *ws; /* NULL: not connected */
	struct ig_top_data now, shown;
	struct ig_top_view view;
	char trouble[400], message[200];
	char cancelling[64]; /* the id of which is asked whether to cancel it; "": none */
	unsigned pause_ms;   /* before the next attempt to connect */
	int64_t retry_ns, stats_ns, tick_ns, shown_ns, interval_ns;
	bool done;
};

/* ---- the daemon ----------------------------------------------------------------------- */

/* Why there are no events, in the daemon's words if it says more than the handshake does. */
static int complain(const struct ig_endpoint *e, int rc, const struct ig_error *err)
{
	struct ig_error more = { 0 };
	json_t *reply = NULL;
	long status = 0;

	if (rc != -EACCES && rc != -EPROTO)
		return ig_endpoint_complain(e, rc, err->text);
	ig_http_get_json(e, "/v1/ingot/requests", HTTP_TIMEOUT_MS, &reply, &status, &more);
	json_decref(reply);
	if (status == 403)
		return ig_complain(
			"%s; ingot top needs the key of an administrator (ingot keys add "
			"--admin)",
			more.text);
	return ig_endpoint_complain(e, rc, err->text);
}

static int connect_to(struct top *t, struct ig_error *err)
{
	return ig_ws_open(&t->e, "/v1/ingot/events", CONNECT_TIMEOUT_MS, &t->ws, err);
}

static void read_stats(struct top *t)
{
	struct ig_error err = { 0 };
	json_t *stats = NULL;
	char path[160];
	long status;
	/* steps begin at round times, as the page's do */
	int64_t step = IG_TOP_RANGE_S / IG_TOP_STEPS;
	int64_t to = (ig_wall_ns() / SECOND_NS + step) / step * step;

	snprintf(path, sizeof path, "/v1/ingot/stats?from=%lld&to=%lld&step=%lld",
		 (long long)(to - IG_TOP_RANGE_S), (long long)to, (long long)step);
	t->stats_ns = ig_now_ns() + STATS_EVERY_NS;
	t->now.no_stats[0] = 0;
	if (ig_http_get_json(&t->e, path, HTTP_TIMEOUT_MS, &stats, &status, &err))
		snprintf(t->now.no_stats, sizeof t->now.no_stats,
			 "no figures of the last hour: %.150s",
			 status == 404 ? "the daemon keeps no ledger" : err.text);
	json_decref(t->now.stats);
	t->now.stats = stats;
}

static void lose(struct top *t, const char *why)
{
	ig_ws_close(t->ws);
	t->ws = NULL;
	t->retry_ns = ig_now_ns() + (int64_t)t->pause_ms * 1000000;
	t->pause_ms = t->pause_ms * 2 < MAX_PAUSE_MS ? t->pause_ms * 2 : MAX_PAUSE_MS;
	snprintf(t->trouble, sizeof t->trouble, "No connection, trying again: %.350s", why);
}

/* Take the events that have come. */
static int take_events(struct top *t, int timeout_ms, struct ig_error *err)
{
	struct ig_strbuf msg = { 0 };
	int rc;

	while ((rc = ig_ws_next(t->ws, timeout_ms, &msg, err)) == 1) {
		rc = ig_top_event(&t->now, ig_strbuf_text(&msg), msg.len, err);
		if (rc)
			break;
		timeout_ms = 0;
		t->trouble[0] = 0;
		t->pause_ms = FIRST_PAUSE_MS;
	}
	ig_strbuf_finish(&msg);
	return rc;
}

static bool is_complete(const struct ig_top_data *d)
{
	return d->status && d->requests && d->models;
}

/* Wait for the first event of each type, and for requests that run for the second, which gives their
 * speed. */
static int look(struct top *t, struct ig_error *err)
{
	int64_t until = ig_now_ns() + (int64_t)FIRST_EVENTS_MS * 1000000;
	int rc = connect_to(t, err);

	while (!rc && !is_complete(&t->now)) {
		rc = take_events(t, 100, err);
		if (!rc && ig_interrupted)
			rc = -EINTR;
		if (!rc && ig_now_ns() > until)
			rc = ig_fail(err, -ETIMEDOUT, "no events in time");
	}
	json_t *first = json_incref(t->now.requests);
	until = ig_now_ns() + (int64_t)SECOND_LOOK_MS * 1000000;
	while (!rc && json_array_size(json_object_get(t->now.requests, "data")) &&
	       t->now.requests == first && ig_now_ns() < until && !ig_interrupted)
		rc = take_events(t, 100, err);
	json_decref(first);
	if (!rc)
		read_stats(t);
	return rc;
}

/* ---- once ------------------------------------------------------------------------------- */

static int print_json(const struct ig_top_data *d)
{
	json_t *root = json_object();
	int rc = !root || json_object_set(root, "status", d->status) ||
		 json_object_set(root, "requests", d->requests) ||
		 json_object_set(root, "models", d->models) ||
		 json_object_set_new(root, "stats",
				     d->stats ? json_incref(d->stats) : json_null()) ||
		 json_object_set_new(root, "tokens_per_second", json_real(ig_top_speed(d)));

	rc = rc ? ig_complain("out of memory") : ig_json_print(root, 0);
	json_decref(root);
	return rc;
}

static int print_screen(struct top *t)
{
	struct ig_strbuf out = { 0 };
	int rc;

	t->view.data = &t->now;
	t->view.columns = 120;
	if (isatty(STDOUT_FILENO))
		ig_screen_size(&t->view.columns, &t->view.rows);
	ig_top_draw(&t->view, &out);
	rc = ig_strbuf_ok(&out) ? ig_print_text(out.data, out.len, false) : -ENOMEM;
	ig_strbuf_finish(&out);
	return rc && rc != -EPIPE ? ig_complain("standard output: %s", strerror(-rc)) : rc;
}

/* ---- keys ----------------------------------------------------------------------------------- */

static void ask(struct top *t)
{
	if (!t->view.selected[0]) {
		snprintf(t->message, sizeof t->message,
			 "Select a request first: j, k or the arrows.");
		return;
	}
	snprintf(t->cancelling, sizeof t->cancelling, "%s", t->view.selected);
	snprintf(t->message, sizeof t->message, "Cancel %s? y: yes, any other key: no",
		 t->cancelling);
}

static bool is_plain_id(const char *id)
{
	return *id &&
	       id[strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")] ==
		       0;
}

static void cancel(struct top *t)
{
	struct ig_error err = { 0 };
	char path[120];
	long status;

	snprintf(path, sizeof path, "/v1/ingot/requests/%s", t->cancelling);
	if (!is_plain_id(t->cancelling))
		snprintf(t->message, sizeof t->message, "Its id cannot be in an address.");
	else if (ig_http_delete(&t->e, path, HTTP_TIMEOUT_MS, &status, &err))
		snprintf(t->message, sizeof t->message, "Not cancelled: %.180s", err.text);
	else
		snprintf(t->message, sizeof t->message, "Cancelled %s.", t->cancelling);
}

/* Whether the key is the answer to a question, or closes the help. */
static bool answer(struct top *t, int key)
{
	bool asked = t->cancelling[0];

	if (t->view.help) {
		t->view.help = false;
		return key != 'q';
	}
	t->message[0] = 0;
	if (asked && (key == 'y' || key == 'Y'))
		cancel(t);
	t->cancelling[0] = 0;
	return asked;
}

static void press(struct top *t, int key)
{
	struct ig_top_view *v = &t->view;

	if (answer(t, key))
		return;
	switch (key) {
	case 'q': t->done = true; break;
	case 'j':
	case IG_KEY_DOWN: ig_top_move(v, 1); break;
	case 'k':
	case IG_KEY_UP: ig_top_move(v, -1); break;
	case IG_KEY_PAGE_DOWN: ig_top_move(v, 10); break;
	case IG_KEY_PAGE_UP: ig_top_move(v, -10); break;
	case 'g':
	case IG_KEY_HOME: ig_top_move(v, -100000); break;
	case 'G':
	case IG_KEY_END: ig_top_move(v, 100000); break;
	case 'x':
	case IG_KEY_DELETE: ask(t); break;
	case 's': v->sort = (v->sort + 1) % IG_TOP_N_SORTS; break;
	case 'p':
		v->paused = !v->paused;
		t->shown_ns = 0;
		break;
	case 'h':
	case '?': v->help = true; break;
	default: break;
	}
}

/* ---- the window ---------------------------------------------------------------------------------- */

static int draw(struct top *t)
{
	struct ig_strbuf out = { 0 };
	int rc;

	ig_screen_size(&t->view.columns, &t->view.rows);
	ig_top_draw(&t->view, &out);
	rc = ig_strbuf_ok(&out) ? ig_print_text(out.data, out.len, false) : -ENOMEM;
	ig_strbuf_finish(&out);
	return rc;
}

/* Serve the connection, and open it again when it is lost.  -EACCES: the key is no longer one. */
static int serve(struct top *t, struct ig_error *err)
{
	int rc;

	if (!t->ws && ig_now_ns() >= t->retry_ns) {
		rc = connect_to(t, err);
		if (rc == -EACCES || rc == -EINTR)
			return rc;
		if (rc)
			lose(t, err->text);
		else
			t->stats_ns = 0;
	}
	if (t->ws) {
		ig_ws_idle(t->ws);
		rc = take_events(t, 0, err);
		if (rc < 0)
			lose(t, err->text);
	}
	return 0;
}

/* What is due by the clock; true: the screen changes. */
static bool keep_time(struct top *t)
{
	int64_t now = ig_now_ns();

	if (t->ws && now >= t->stats_ns)
		read_stats(t);
	if (now >= t->tick_ns) {
		t->tick_ns = now + SECOND_NS;
		ig_top_tick(&t->now);
	}
	if (t->view.paused || now < t->shown_ns)
		return false;
	t->shown_ns = now + t->interval_ns;
	ig_top_data_copy(&t->shown, &t->now);
	return true;
}

static int watch(struct top *t, struct ig_error *err)
{
	char trouble[sizeof t->trouble] = "";
	bool changed = true;
	int rc = 0, key;

	t->view.data = &t->shown;
	t->view.trouble = t->trouble;
	t->view.message = t->message;
	while (!t->done && !ig_interrupted && !rc) {
		changed |= keep_time(t);
		changed |= strcmp(trouble, t->trouble) != 0;
		if (changed) {
			snprintf(trouble, sizeof trouble, "%s", t->trouble);
			rc = draw(t);
		}
		changed = ig_keys_wait(t->ws ? ig_ws_socket(t->ws) : -1, 100);
		while ((key = ig_keys_next()) != IG_KEY_NONE) {
			press(t, key);
			changed = true;
		}
		if (!rc)
			rc = serve(t, err);
	}
	return rc;
}

static int show(struct top *t)
{
	struct ig_error err = { 0 };
	int rc = ig_keys_open(&err);

	if (rc)
		return ig_complain("%s; ingot top --once prints one screen, --json one object",
				   err.text);
	t->view.screen = true;
	t->view.colours = ig_screen_has_colours();
	rc = watch(t, &err);
	ig_keys_close();
	if (rc == -EACCES)
		return complain(&t->e, rc, &err);
	if (rc && rc != -EINTR && rc != -EPIPE && rc != -EIO)
		return ig_complain("%s", err.text[0] ? err.text : strerror(-rc));
	return rc == -EPIPE || rc == -EIO;
}

/* Whether the terminal, or what reads the pipe, shows UTF-8. */
static bool is_unicode(void)
{
	return setlocale(LC_CTYPE, "") && !strcmp(nl_langinfo(CODESET), "UTF-8");
}

int ig_top_main(int argc, char **argv)
{
	struct ig_where where = { 0 };
	struct top t = { .pause_ms = FIRST_PAUSE_MS };
	bool once = false, json = false;
	double interval = 1;
	const struct ig_option opts[] = {
		IG_FLAG("once", 0, &once, "print one screen without colours and exit"),
		IG_FLAG("json", 0, &json, "print one JSON object and exit"),
		IG_OPTION("interval", 'i', IG_OPT_NUMBER, &interval, NULL, "SECONDS",
			  "how often the screen changes, 0.1 … 3600 (default: 1)", 0.1, 3600),
		IG_WHERE_OPTIONS(&where),
		{ 0 },
	};
	struct ig_error err = { 0 };
	int rc = ig_command_start("top [options]",
				  "Show models, memory and requests of the daemon, and the last "
				  "hour's figures.\nKeys: q quits, j and k select, x cancels a "
				  "request, s sorts, p pauses, h helps.",
				  opts, argc, argv, NULL);

	if (rc >= 0)
		return rc;
	if (once && json)
		return ig_wrong_usage("top", "--once and --json exclude each other");
	ig_catch_interrupts();
	if (ig_endpoint_open(&where, &t.e, &err))
		return ig_complain("%s", err.text);
	t.interval_ns = (int64_t)(interval * 1e9);
	t.view = (struct ig_top_view){
		.url = t.e.url, .trouble = "", .message = "", .unicode = is_unicode()
	};
	rc = once || json ? look(&t, &err) : connect_to(&t, &err);
	if (rc && rc != -EINTR)
		rc = complain(&t.e, rc, &err);
	else if (!rc)
		rc = json ? print_json(&t.now) : once ? print_screen(&t) : show(&t);
	ig_ws_close(t.ws);
	ig_top_data_finish(&t.now);
	ig_top_data_finish(&t.shown);
	return ig_interrupted && (once || json) ? IG_EXIT_INTERRUPTED :
	       rc				? IG_EXIT_FAILED :
						  IG_EXIT_OK;
}
