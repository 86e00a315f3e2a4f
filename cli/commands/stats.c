/* stats.c: `ingot stats`: statistics of past requests by model, key or client, from the ledger.
 * Reads the SQLite file directly: the daemon need not run; with --url asks daemons. */
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

	ig_table_add(t, s->name[0] ? s->name : "(none)");
	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
		ig_table_addf(t, "%" PRId64, counts[i]);
	add_percentiles(t, s->ttft_ms);
	add_percentiles(t, s->itl_ms);
}

bool ig_stats_table(const struct ig_ledger_stats *s, size_t n, enum ig_ledger_by by,
		    struct ig_strbuf *out)
{
	static const char *const titles[IG_N_LEDGER_BY] = { "MODEL", "KEY", "CLIENT" };
	const char *const headers[] = {
		titles[by],	    ">REQUESTS", ">ERRORS",   ">CANCELLED", ">PROMPT",
		">CACHED",	    ">OUTPUT",	 ">TTFT p50", ">p95",	    ">p99",
		">INTER-TOKEN p50", ">p95",	 ">p99",
	};
	struct ig_ledger_stats sum = { .name = "all" };
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

bool ig_stats_json(const struct ig_ledger_stats *s, size_t n, enum ig_ledger_by by, int64_t since_s,
		   struct ig_strbuf *out)
{
	static const char *const lists[IG_N_LEDGER_BY] = { "models", "keys", "clients" };
	struct ig_json_writer w = { .out = out };

	ig_json_open_object(&w, NULL);
	ig_json_put_real(&w, "since_s", "%.0f", since_s ? (double)since_s : NAN);
	ig_json_open_array(&w, lists[by]);
	for (size_t i = 0; i < n; i++) {
		const double *ttft = s[i].ttft_ms, *itl = s[i].itl_ms;
		ig_json_open_object(&w, NULL);
		ig_json_put_text(&w, ig_ledger_by_name(by), s[i].name);
		ig_json_put_int(&w, "requests", s[i].n_requests);
		ig_json_put_int(&w, "errors", s[i].n_errors);
		ig_json_put_int(&w, "cancelled", s[i].n_cancelled);
		ig_json_put_int(&w, "prompt_tokens", s[i].n_prompt);
		ig_json_put_int(&w, "cached_tokens", s[i].n_cached);
		ig_json_put_int(&w, "output_tokens", s[i].n_output);
		ig_json_putf(&w,
			     "'ttft_ms': {'p50': %.3f, 'p95': %.3f, 'p99': %.3f}, "
			     "'inter_token_ms': {'p50': %.3f, 'p95': %.3f, 'p99': %.3f}",
			     ttft[0], ttft[1], ttft[2], itl[0], itl[1], itl[2]);
		ig_json_close_object(&w);
	}
	ig_json_close_array(&w);
	ig_json_close_object(&w);
	ig_strbuf_puts(out, "\n");
	return ig_strbuf_ok(out);
}

/* A quoted field.  Control characters become spaces, so that a row is a line.  Names come from
 * clients: spreadsheets would compute one that begins like a formula, so it gets an apostrophe. */
static void put_field(struct ig_strbuf *out, const char *s)
{
	struct ig_strbuf plain = { 0 };

	ig_text_plain(&plain, s, strlen(s), false);
	ig_strbuf_puts(out, strchr("=+-@", *s) && *s ? "\"'" : "\"");
	for (const char *p = ig_strbuf_text(&plain); *p; p++)
		ig_strbuf_printf(out, *p == '"' ? "\"\"" : "%c", *p);
	ig_strbuf_puts(out, "\"");
	out->failed |= plain.failed;
	ig_strbuf_finish(&plain);
}

bool ig_stats_csv(const struct ig_ledger_stats *s, size_t n, enum ig_ledger_by by,
		  struct ig_strbuf *out)
{
	ig_strbuf_printf(out,
			 "%s,requests,errors,cancelled,prompt_tokens,cached_tokens,output_tokens,"
			 "ttft_p50_ms,ttft_p95_ms,ttft_p99_ms,inter_token_p50_ms,"
			 "inter_token_p95_ms,inter_token_p99_ms\n",
			 ig_ledger_by_name(by));
	for (size_t i = 0; i < n; i++) {
		const int64_t counts[] = { s[i].n_requests, s[i].n_errors, s[i].n_cancelled,
					   s[i].n_prompt,   s[i].n_cached, s[i].n_output };
		put_field(out, s[i].name);
		for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++)
			ig_strbuf_printf(out, ",%" PRId64, counts[k]);
		for (int k = 0; k < 6; k++) {
			double ms = k < 3 ? s[i].ttft_ms[k] : s[i].itl_ms[k - 3];
			ig_strbuf_puts(out, ",");
			if (isfinite(ms))
				ig_strbuf_printf(out, "%.3f", ms);
		}
		ig_strbuf_puts(out, "\n");
	}
	return ig_strbuf_ok(out);
}

int ig_stats_ledger(const char *ledger, const char *config, char **out, struct ig_error *err)
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

enum format { TABLE, JSON, CSV };

/* Print what was found; false without memory. */
static bool print_stats(const struct ig_ledger_stats *s, size_t n, enum ig_ledger_by by,
			int64_t since_s, enum format format)
{
	struct ig_strbuf out = { 0 };
	bool ok = format == JSON ? ig_stats_json(s, n, by, since_s, &out) :
		  format == CSV	 ? ig_stats_csv(s, n, by, &out) :
				   ig_stats_table(s, n, by, &out);

	if (ok)
		fwrite(out.data, 1, out.len, stdout);
	ig_strbuf_finish(&out);
	return ok;
}

/* The column with this name; IG_N_LEDGER_BY: none. */
static enum ig_ledger_by find_by(const char *name)
{
	enum ig_ledger_by by = 0;

	while (by < IG_N_LEDGER_BY && strcmp(name, ig_ledger_by_name(by)))
		by++;
	return by;
}

int ig_stats_main(int argc, char **argv)
{
	const char *ledger = NULL, *by_name = "model";
	struct ig_where where = { 0 };
	int64_t since_s = 0;
	bool json = false, csv = false;
	const struct ig_option opts[] = {
		{ "since", 0, IG_OPT_DURATION, &since_s, NULL, "SPAN",
		  "the last 90s, 15m, 24h, 7d, 2w; all (default)" },
		IG_TEXT("by", 0, &by_name, "COLUMN",
			"a row for each model (default), key or client"),
		IG_FLAG("json", 0, &json, "print JSON"),
		IG_FLAG("csv", 0, &csv, "print CSV"),
		IG_TEXT("ledger", 0, &ledger, "FILE", "the ledger (SQLite)"),
		IG_TEXT("config", 'c', &where.config, "FILE",
			"the ingot.yaml that names the ledger"),
		IG_TEXT("url", 0, &where.url, "LIST",
			"instead, the joined ledgers of the daemons at these addresses, with commas"),
		IG_TEXT("api-key-file", 0, &where.api_key_file, "FILE",
			"a file whose first line is an administrator's API key, for --url"),
		IG_TEXT("api-key", 0, &where.api_key, "KEY",
			"the API key; stays in the shell's history, so prefer --api-key-file"),
		IG_TEXT("cacert", 0, &where.cacert, "FILE",
			"certificates (PEM) to trust for https (default: the system's)"),
		{ 0 },
	};
	struct ig_ledger_stats *s = NULL;
	struct ig_error err = { 0 };
	enum ig_ledger_by by;
	char *path = NULL;
	size_t n = 0;
	int rc = ig_command_start(
		"stats [options]",
		"Requests, tokens and latencies by model, key or client, from the ledger.", opts,
		argc, argv, NULL);

	if (rc >= 0)
		return rc;
	if (json && csv)
		return ig_wrong_usage("stats", "--json and --csv exclude each other");
	by = find_by(by_name);
	if (by == IG_N_LEDGER_BY)
		return ig_wrong_usage("stats", "--by %.40s: model, key or client", by_name);
	if (where.url && (ledger || where.config))
		return ig_wrong_usage("stats", "--url asks daemons, which know their ledgers: no "
					       "--ledger and no --config with it");
	if (!where.url && (where.api_key || where.api_key_file || where.cacert))
		return ig_wrong_usage("stats", "keys and certificates are for --url");
	rc = where.url ? ig_stats_fleet(&where, by, since_s, &s, &n, &err) :
			 ig_stats_ledger(ledger, where.config, &path, &err) ||
				 ig_ledger_stats(path, by,
						 since_s ? ig_wall_ns() - since_s * 1000000000 : 0,
						 &s, &n, &err);
	if (rc)
		ig_complain("%s%s", err.text,
			    path && access(path, F_OK) && errno == ENOENT ?
				    "; the daemon creates it when it starts" :
				    "");
	else if (!json && !csv && n == 0)
		printf("no request in %s%s\n", path ? path : where.url,
		       since_s ? " in that span" : "");
	else if (!print_stats(s, n, by, since_s, json ? JSON : csv ? CSV : TABLE))
		rc = ig_complain("out of memory");
	free(s);
	free(path);
	return rc ? IG_EXIT_FAILED : IG_EXIT_OK;
}
