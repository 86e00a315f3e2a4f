/* stats.c: `ingot stats`: statistics of past requests by model, from the ledger.
 * Reads the SQLite file directly: the daemon need not run. */
#include "cli/commands/stats.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/commands/command.h"
#include "cli/options.h"
#include "cli/term/text.h"
#include "store/config.h"

static void add_percentiles(struct ig_table *t, const double v[3])
{
	char ms[32];

	for (int i = 0; i < 3; i++)
		ig_table_add(t, ig_text_ms(ms, sizeof ms, v[i]));
}

static void add_row(struct ig_table *t, const struct ig_ledger_stats *s)
{
	const int64_t counts[] = { s->n_requests, s->n_errors, s->n_cancelled,
				   s->n_prompt,	  s->n_cached, s->n_output };

	ig_table_add(t, s->model[0] ? s->model : "(none)");
	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
		ig_table_addf(t, "%" PRId64, counts[i]);
	add_percentiles(t, s->ttft_ms);
	add_percentiles(t, s->itl_ms);
}

bool ig_stats_table(const struct ig_ledger_stats *s, size_t n, struct ig_strbuf *out)
{
	static const char *const headers[] = {
		"MODEL",   ">REQUESTS", ">ERRORS", ">CANCELLED", ">PROMPT",	     ">CACHED",
		">OUTPUT", ">TTFT p50", ">p95",	   ">p99",	 ">INTER-TOKEN p50", ">p95",
		">p99",
	};
	struct ig_ledger_stats sum = { .model = "all" };
	struct ig_table t;
	bool ok;

	ig_table_init(&t, headers, sizeof headers / sizeof headers[0]);
	for (int i = 0; i < 3; i++)
		sum.ttft_ms[i] = sum.itl_ms[i] = NAN; /* percentiles cannot be added */
	for (size_t i = 0; i < n; i++) {
		add_row(&t, &s[i]);
		sum.n_requests += s[i].n_requests;
		sum.n_errors += s[i].n_errors;
		sum.n_cancelled += s[i].n_cancelled;
		sum.n_prompt += s[i].n_prompt;
		sum.n_cached += s[i].n_cached;
		sum.n_output += s[i].n_output;
	}
	if (n > 1)
		add_row(&t, &sum);
	ok = ig_table_write(&t, out);
	ig_table_finish(&t);
	return ok;
}

bool ig_stats_json(const struct ig_ledger_stats *s, size_t n, int64_t since_s,
		   struct ig_strbuf *out)
{
	struct ig_json_writer w = { .out = out };

	ig_json_putf(&w, "{'since_s': %.0f, 'models': [", since_s ? (double)since_s : NAN);
	for (size_t i = 0; i < n; i++) {
		const double *ttft = s[i].ttft_ms, *itl = s[i].itl_ms;
		ig_json_putf(&w, "{'model': %s", s[i].model);
		ig_json_put_int(&w, "requests", s[i].n_requests);
		ig_json_put_int(&w, "errors", s[i].n_errors);
		ig_json_put_int(&w, "cancelled", s[i].n_cancelled);
		ig_json_put_int(&w, "prompt_tokens", s[i].n_prompt);
		ig_json_put_int(&w, "cached_tokens", s[i].n_cached);
		ig_json_put_int(&w, "output_tokens", s[i].n_output);
		ig_json_putf(&w,
			     "'ttft_ms': {'p50': %.3f, 'p95': %.3f, 'p99': %.3f}, "
			     "'inter_token_ms': {'p50': %.3f, 'p95': %.3f, 'p99': %.3f}}",
			     ttft[0], ttft[1], ttft[2], itl[0], itl[1], itl[2]);
	}
	ig_json_putf(&w, "]}");
	ig_strbuf_puts(out, "\n");
	return ig_strbuf_ok(out);
}

/* The ledger's path, from --ledger or the configuration. */
static int find_ledger(const char *ledger, const char *config, char **out, struct ig_error *err)
{
	struct ig_config *c = NULL;
	int rc = ledger ? 0 : ig_config_load_or_defaults(config, &c, err);

	if (rc)
		return rc;
	if (c && !c->ledger.enabled)
		rc = ig_fail(err, -ENOENT, "%s: the ledger is disabled (ledger.enabled)", c->file);
	else if (!(*out = strdup(c ? c->ledger.path : ledger)))
		rc = ig_fail(err, -ENOMEM, "out of memory");
	ig_config_destroy(c);
	return rc;
}

int ig_stats_main(int argc, char **argv)
{
	const char *ledger = NULL, *config = NULL;
	int64_t since_s = 0;
	bool json = false;
	const struct ig_option opts[] = {
		{ "since", 0, IG_OPT_DURATION, &since_s, NULL, "SPAN",
		  "the last 90s, 15m, 24h, 7d, 2w; all (default)" },
		IG_FLAG("json", 0, &json, "print JSON"),
		IG_TEXT("ledger", 0, &ledger, "FILE", "the ledger (SQLite)"),
		IG_TEXT("config", 'c', &config, "FILE", "the ingot.yaml that names the ledger"),
		{ 0 },
	};
	struct ig_ledger_stats *s = NULL;
	struct ig_error err = { 0 };
	struct ig_strbuf out = { 0 };
	char *path = NULL;
	size_t n = 0;
	int rc = ig_command_start("stats [options]",
				  "Requests, tokens and latencies by model, from the ledger.", opts,
				  argc, argv, NULL);

	if (rc >= 0)
		return rc;
	rc = find_ledger(ledger, config, &path, &err) ||
	     ig_ledger_stats(path, since_s ? ig_wall_ns() - since_s * 1000000000 : 0, &s, &n, &err);
	if (rc)
		ig_complain("%s%s", err.text,
			    path && access(path, F_OK) && errno == ENOENT ?
				    "; the daemon creates it when it starts" :
				    "");
	else if (!json && n == 0)
		printf("no request in %s%s\n", path, since_s ? " in that span" : "");
	else if (json ? ig_stats_json(s, n, since_s, &out) : ig_stats_table(s, n, &out))
		fwrite(out.data, 1, out.len, stdout);
	else
		rc = ig_complain("out of memory");
	ig_strbuf_finish(&out);
	free(s);
	free(path);
	return rc ? IG_EXIT_FAILED : IG_EXIT_OK;
}
