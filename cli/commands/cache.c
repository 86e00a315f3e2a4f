/* cache.c: `ingot cache`: the last requests in words: how much of each prompt was cached, and why no
 * more.  Reads the ledger directly, as `ingot stats`: the daemon need not run. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/commands/command.h"
#include "cli/commands/stats.h"
#include "cli/options.h"
#include "cli/term/text.h"
#include "store/ledger_history.h"

#define MAX_ROWS 1000

/* One row of the ledger. */
struct row {
	const char *id, *model, *client, *key, *reason, *compared;
	int64_t received_ns, n_prompt, n_cached, n_same;
};

static int64_t number(const json_t *v, const char *key)
{
	return json_integer_value(json_object_get(v, key));
}

static const char *text(const json_t *v, const char *key)
{
	const char *s = ig_json_text(v, key);

	return s ? s : "";
}

static struct row row_of(const json_t *v)
{
	return (struct row){
		.id = text(v, "id"),
		.model = text(v, "model"),
		.client = text(v, "client"),
		.key = text(v, "key"),
		.reason = text(v, "cache_reason"),
		.compared = text(v, "cache_compared"),
		.received_ns = number(v, "received_ns"),
		.n_prompt = number(v, "prompt_tokens"),
		.n_cached = number(v, "cached_tokens"),
		.n_same = json_is_integer(json_object_get(v, "cache_same_tokens")) ?
				  number(v, "cache_same_tokens") :
				  -1,
	};
}

static int percent(int64_t part, int64_t whole)
{
	return whole > 0 ? (int)(100.0 * (double)part / (double)whole + 0.5) : 0;
}

/* Words with the tokens in common and the earlier request. */
static const struct {
	const char *reason, *before, *between, *after;
} words[] = {
	{ "extended", "it continues ", NULL, ", which was cached; the rest is new" },
	{ "diverged", "after ", " tokens it differs from ", "" },
	{ "evicted", "its first ", " tokens are those of ",
	  ", but were evicted since: other requests needed the memory (kvcache.arena), or the "
	  "model was unloaded" },
	{ "state", "its first ", " tokens are those of ",
	  ", but no state of the recurrent layers was kept there (kvcache.max_snapshots)" },
	{ "window", "its first ", " tokens are those of ",
	  ", but the sliding window before that place was evicted since (kvcache.arena)" },
	{ "not_computed", "its first ", " tokens are those of ", ", which had not computed them" },
	{ "other_model", "its first ", " tokens are those of ",
	  ", which asked another model; models share nothing" },
	{ "other_key", "its first ",
	  " tokens were computed, but for another key: ", "; keys share nothing (kvcache.share)" },
};

static void put_words(const struct row *r, struct ig_strbuf *out)
{
	static const char *const plain[][2] = {
		{ "full", "the whole prompt was cached" },
		{ "first_seen", "no earlier request begins like it" },
		{ "short", "it is too short: less than a block of 16 tokens is not cached" },
		{ "disabled", "the prefix cache is off (kvcache.prefix_cache)" },
	};
	bool other_key = !strcmp(r->reason, "other_key");
	const char *compared = r->compared[0] ? r->compared :
			       other_key      ? "not shown" :
						"an earlier prompt";

	for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
		if (!strcmp(r->reason, plain[i][0])) {
			ig_strbuf_puts(out, plain[i][1]);
			return;
		}
	}
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		if (strcmp(r->reason, words[i].reason))
			continue;
		ig_strbuf_puts(out, words[i].before);
		if (words[i].between)
			ig_strbuf_printf(out, "%" PRId64 "%s", r->n_same, words[i].between);
		ig_strbuf_printf(out, "%s%s", compared, words[i].after);
		return;
	}
	ig_strbuf_puts(out, r->reason); /* of a newer daemon */
}

static void put_row(const struct row *r, struct ig_strbuf *out)
{
	time_t s = (time_t)(r->received_ns / 1000000000);
	struct tm tm;
	char at[32] = "";

	if (localtime_r(&s, &tm))
		strftime(at, sizeof at, "%Y-%m-%d %H:%M:%S", &tm);
	ig_strbuf_printf(out, "%s  %s  %s  %s%s%s\n", at, r->id, r->model, r->client,
			 r->key[0] ? "  key " : "", r->key);
	ig_strbuf_printf(out,
			 "    %" PRId64 " prompt tokens, %" PRId64 " cached (%d %%): ", r->n_prompt,
			 r->n_cached, percent(r->n_cached, r->n_prompt));
	put_words(r, out);
	ig_strbuf_puts(out, "\n");
}

/* The latest at the end, where a terminal shows it. */
static void put_text(const json_t *rows, struct ig_strbuf *out)
{
	int64_t n_prompt = 0, n_cached = 0;
	size_t n = json_array_size(rows);

	for (size_t i = n; i-- > 0;) {
		struct row r = row_of(json_array_get(rows, i));
		put_row(&r, out);
		n_prompt += r.n_prompt;
		n_cached += r.n_cached;
	}
	if (n > 1)
		ig_strbuf_printf(out,
				 "%zu requests: %" PRId64 " prompt tokens, %" PRId64
				 " cached (%d %%)\n",
				 n, n_prompt, n_cached, percent(n_cached, n_prompt));
}

/* The latest first, as the ledger. */
static void put_json(const json_t *rows, struct ig_strbuf *out)
{
	struct ig_json_writer w = { .out = out };
	size_t i;
	json_t *v;

	ig_json_open_object(&w, NULL);
	ig_json_open_array(&w, "requests");
	json_array_foreach(rows, i, v)
	{
		struct row r = row_of(v);
		struct ig_strbuf said = { 0 };
		put_words(&r, &said);
		ig_json_open_object(&w, NULL);
		ig_json_putf(&w,
			     "'id': %s, 'received_ns': %lld, 'model': %s, 'client': %s, 'key': %s, "
			     "'prompt_tokens': %lld, 'cached_tokens': %lld, 'cache_reason': %s, "
			     "'cache_same_tokens': %.0f, 'cache_compared': %s, 'words': %s}",
			     r.id, (long long)r.received_ns, r.model, r.client, r.key,
			     (long long)r.n_prompt, (long long)r.n_cached, r.reason,
			     r.n_same < 0 ? NAN : (double)r.n_same, r.compared,
			     ig_strbuf_text(&said));
		out->failed |= said.failed;
		ig_strbuf_finish(&said);
	}
	ig_json_close_array(&w);
	ig_json_close_object(&w);
	ig_strbuf_puts(out, "\n");
}

/* The rows as a list. */
static int read_rows(const char *path, const struct ig_ledger_query *q, json_t **out,
		     struct ig_error *err)
{
	static const struct ig_json_limits limits = { 0 };
	struct ig_strbuf b = { 0 };
	struct ig_json_writer w = { .out = &b };
	json_t *root = NULL;
	int rc;

	ig_json_open_object(&w, NULL);
	rc = ig_ledger_write_rows(path, q, &w, err);
	ig_json_close_object(&w);
	if (!rc && (!ig_strbuf_ok(&b) || ig_json_read(b.data, b.len, &limits, &root, NULL) < 0))
		rc = ig_fail(err, -ENOMEM, "out of memory");
	ig_strbuf_finish(&b);
	*out = json_incref(json_object_get(root, "data"));
	json_decref(root);
	return rc;
}

static bool copy_name(char *out, size_t cap, const char *option, const char *value)
{
	if (value && strlen(value) >= cap) {
		ig_wrong_usage("cache", "--%s: longer than %zu bytes", option, cap - 1);
		return false;
	}
	snprintf(out, cap, "%s", value ? value : "");
	return true;
}

static int show(const char *path, const struct ig_ledger_query *q, bool json)
{
	struct ig_strbuf out = { 0 };
	struct ig_error err = { 0 };
	json_t *rows = NULL;
	int rc = access(path, R_OK) ? ig_fail(&err, -errno, "ledger %s: cannot be read: %s", path,
					      strerror(errno)) :
				      read_rows(path, q, &rows, &err);

	if (rc) {
		ig_complain("%s%s", err.text,
			    rc == -ENOENT ? "; the daemon creates it when it starts" : "");
	} else {
		if (json)
			put_json(rows, &out);
		else if (json_array_size(rows))
			put_text(rows, &out);
		else
			ig_strbuf_printf(&out, "no such request in %s\n", path);
		rc = ig_strbuf_ok(&out) ? ig_print_text(out.data, out.len, true) :
					  ig_complain("out of memory");
	}
	ig_strbuf_finish(&out);
	json_decref(rows);
	return rc ? IG_EXIT_FAILED : IG_EXIT_OK;
}

int ig_cache_main(int argc, char **argv)
{
	const char *ledger = NULL, *config = NULL, *model = NULL, *key = NULL, *client = NULL;
	int64_t since_s = 0, last = 10;
	bool json = false;
	const struct ig_option opts[] = {
		IG_TEXT("client", 0, &client, "ADDRESS", "only of this client"),
		IG_TEXT("key", 'k', &key, "ID", "only with this API key"),
		IG_TEXT("model", 'm', &model, "NAME", "only of this model"),
		{ "last", 'n', IG_OPT_INT, &last, NULL, "N", "so many requests (10)", 1, MAX_ROWS },
		{ "since", 0, IG_OPT_DURATION, &since_s, NULL, "SPAN",
		  "the last 90s, 15m, 24h, 7d, 2w; all (default)" },
		IG_FLAG("json", 0, &json, "print JSON"),
		IG_TEXT("ledger", 0, &ledger, "FILE", "the ledger (SQLite)"),
		IG_TEXT("config", 'c', &config, "FILE", "the ingot.yaml that names the ledger"),
		{ 0 },
	};
	struct ig_ledger_query q = { .to_ns = INT64_MAX, .ran = true };
	struct ig_error err = { 0 };
	char *path = NULL;
	int rc = ig_command_start(
		"cache [options]",
		"How much of the last prompts was cached, and why no more, from the ledger.", opts,
		argc, argv, NULL);

	if (rc >= 0)
		return rc;
	if (!copy_name(q.model, sizeof q.model, "model", model) ||
	    !copy_name(q.key, sizeof q.key, "key", key) ||
	    !copy_name(q.client, sizeof q.client, "client", client))
		return IG_EXIT_USAGE;
	q.limit = (int32_t)last;
	q.from_ns = since_s ? ig_wall_ns() - since_s * 1000000000 : 0;
	rc = ig_stats_ledger(ledger, config, &path, &err) ? ig_complain("%s", err.text) :
							    show(path, &q, json);
	free(path);
	return rc;
}
