/*
 * test_metrics.c: the metrics: their text, by a strict reader of Prometheus's format
 * 0.0.4; what each row, token and step adds; bounded labels; many threads.
 */
#include "support.h"

#include "base/build_id.h"
#include "store/metrics.h"

#include <ctype.h>
#include <math.h>
#include <pthread.h>

/* ---- a strict reader ------------------------------------------------------------------ */

struct sample {
	char name[128], labels[400]; /* labels as they stand between the braces */
	double value;
};

struct text {
	struct sample all[20000];
	size_t n;
};

static struct text *new_text(void)
{
	struct text *t = calloc(1, sizeof *t);

	assert_non_null(t);
	return t;
}

static bool is_name(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!(isalpha((unsigned char)s[i]) || s[i] == '_' || s[i] == ':' ||
		      (i && isdigit((unsigned char)s[i]))))
			return false;
	return n > 0;
}

/* From { to }: name="value", …; the text between. */
static const char *read_labels(const char *p, char *out, size_t size)
{
	const char *start = ++p;

	for (;;) {
		size_t n = strcspn(p, "=");
		assert_true(is_name(p, n));
		p += n;
		assert_int_equal(*p++, '=');
		assert_int_equal(*p++, '"');
		while (*p != '"') {
			assert_true(*p && *p != '\n');
			if (*p == '\\') {
				p++;
				assert_true(*p == '\\' || *p == '"' || *p == 'n');
			}
			p++;
		}
		p++;
		if (*p == '}')
			break;
		assert_int_equal(*p++, ',');
	}
	assert_true((size_t)(p - start) < size);
	snprintf(out, size, "%.*s", (int)(p - start), start);
	return p + 1;
}

static double read_value(const char *s)
{
	char *end;

	if (!strcmp(s, "+Inf"))
		return INFINITY;
	if (!strcmp(s, "NaN"))
		return NAN;
	assert_true(isdigit((unsigned char)s[0]) || s[0] == '-');
	double v = strtod(s, &end);
	assert_int_equal(*end, 0);
	return v;
}

/* The family that a sample's name belongs to, given the family's type. */
static bool belongs(const char *name, const char *family, const char *type)
{
	size_t n = strlen(family);

	if (strncmp(name, family, n))
		return false;
	if (strcmp(type, "histogram"))
		return !name[n];
	return !strcmp(name + n, "_bucket") || !strcmp(name + n, "_sum") ||
	       !strcmp(name + n, "_count");
}

/* Each line is a HELP, the TYPE after it, or a sample of that family; each family
 * comes once; no sample comes twice; the last line ends with a line feed. */
static void read_text(const struct ig_metrics *m, struct text *t)
{
	char family[128] = "", type[32] = "", seen[16384] = " ", *save = NULL;
	struct ig_strbuf b = { 0 };

	ig_metrics_write(m, &b);
	assert_true(ig_strbuf_ok(&b) && b.len > 0);
	assert_int_equal(b.data[b.len - 1], '\n');
	assert_null(strstr(b.data, "\n\n"));
	t->n = 0;
	for (char *line = strtok_r(b.data, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (!strncmp(line, "# HELP ", 7)) {
			size_t n = strcspn(line + 7, " ");
			assert_true(is_name(line + 7, n) && n < sizeof family);
			assert_true(line[7 + n] == ' ' && line[8 + n]);
			snprintf(family, sizeof family, "%.*s", (int)n, line + 7);
			char word[140];
			snprintf(word, sizeof word, " %s ", family);
			if (strstr(seen, word))
				fail_msg("%s comes twice", family);
			assert_true(strlen(seen) + strlen(word) < sizeof seen);
			strcat(seen, word);
			type[0] = 0;
			continue;
		}
		if (!strncmp(line, "# TYPE ", 7)) {
			size_t n = strlen(family);
			assert_int_equal(type[0], 0);
			assert_true(!strncmp(line + 7, family, n) && line[7 + n] == ' ');
			snprintf(type, sizeof type, "%s", line + 8 + n);
			assert_true(!strcmp(type, "counter") || !strcmp(type, "gauge") ||
				    !strcmp(type, "histogram"));
			continue;
		}
		assert_true(line[0] != '#' && t->n < N_OF(t->all));
		struct sample *s = &t->all[t->n++];
		size_t n = strcspn(line, "{ ");
		assert_true(is_name(line, n) && n < sizeof s->name);
		snprintf(s->name, sizeof s->name, "%.*s", (int)n, line);
		s->labels[0] = 0;
		const char *p = line + n;
		if (*p == '{')
			p = read_labels(p, s->labels, sizeof s->labels);
		assert_int_equal(*p, ' ');
		s->value = read_value(p + 1);
		if (!belongs(s->name, family, type))
			fail_msg("%s in the family %s", s->name, family);
		if (!strcmp(type, "counter"))
			assert_string_equal(s->name + n - 6, "_total");
		if (strcmp(type, "gauge"))
			assert_true(s->value >= 0);
	}
	for (size_t i = 0; i < t->n && t->n < 2000; i++)
		for (size_t j = 0; j < i; j++)
			assert_false(!strcmp(t->all[i].name, t->all[j].name) &&
				     !strcmp(t->all[i].labels, t->all[j].labels));
	ig_strbuf_finish(&b);
}

static const struct sample *find(const struct text *t, const char *name, const char *labels)
{
	for (size_t i = 0; i < t->n; i++)
		if (!strcmp(t->all[i].name, name) && !strcmp(t->all[i].labels, labels))
			return &t->all[i];
	return NULL;
}

static double value(const struct text *t, const char *name, const char *labels)
{
	const struct sample *s = find(t, name, labels);

	if (!s)
		fail_msg("%s{%s} is missing", name, labels);
	return s->value;
}

static void assert_value(const struct text *t, const char *name, const char *labels, double v)
{
	double is = value(t, name, labels);

	if (!(fabs(is - v) <= 1e-6 * fabs(v)))
		fail_msg("%s{%s} is %.9g, not %.9g", name, labels, is, v);
}

static struct ig_ledger_row a_row(const char *model, const char *finish)
{
	struct ig_ledger_row r = { .status = 200,
				   .n_prompt = 10,
				   .n_cached = 4,
				   .n_output = 3,
				   .queue_ms = 20,
				   .prefill_ms = 100,
				   .decode_ms = 2000,
				   .ttft_ms = 125,
				   .total_ms = 2120 };

	snprintf(r.model, sizeof r.model, "%s", model);
	snprintf(r.finish, sizeof r.finish, "%s", finish);
	return r;
}

/* ---- what is there ----------------------------------------------------------------------- */

static void test_empty(void **state)
{
	static const char *const names[] = {
		"ingot_num_requests_running",
		"ingot_num_requests_waiting",
		"ingot_num_requests_paused",
		"ingot_kv_cache_arena_bytes",
		"ingot_kv_cache_committed_bytes",
		"ingot_kv_cache_used_bytes",
		"ingot_kv_cache_blocks_used",
		"ingot_kv_cache_usage_perc",
		"ingot_weight_bytes",
		"ingot_scratch_bytes",
		"ingot_connections",
		"ingot_num_preemptions_total",
		"ingot_requests_refused_total",
		"ingot_ledger_rows_dropped_total",
		"ingot_connections_total",
		"ingot_engine_steps_total",
		"ingot_models_loaded",
		"ingot_ledger_failing",
		"ingot_responses_failing",
		"ingot_model_unloads_total",
		"ingot_model_load_failures_total",
		"ingot_model_load_seconds_count",
		"ingot_inter_token_latency_seconds_count",
		"ingot_engine_step_seconds_count",
	};
	static const char *const by_model[] = {
		"ingot_prompt_tokens_total",
		"ingot_prompt_tokens_cached_total",
		"ingot_generation_tokens_total",
		"ingot_time_to_first_token_seconds_count",
		"ingot_e2e_request_latency_seconds_count",
		"ingot_request_queue_time_seconds_count",
		"ingot_request_prefill_time_seconds_count",
		"ingot_request_decode_time_seconds_count",
		"ingot_request_inference_time_seconds_count",
	};
	struct ig_metrics *m = ig_metrics_create();
	struct text *t = new_text();

	assert_non_null(m);
	read_text(m, t);
	for (size_t i = 0; i < N_OF(names); i++)
		assert_value(t, names[i], "", 0);
	for (size_t i = 0; i < N_OF(by_model); i++)
		assert_value(t, by_model[i], "model_name=\"\"", 0);
	assert_value(t, "ingot_request_success_total", "model_name=\"\",finished_reason=\"stop\"",
		     0);
	char labels[128];
	snprintf(labels, sizeof labels, "version=\"%s\",build_id=\"%s\"", IG_VERSION, ig_build_id);
	assert_value(t, "ingot_build_info", labels, 1);
	/* This process uses some MB, and less than a GB (also with sanitizers). */
	double resident = value(t, "process_resident_memory_bytes", "");
	assert_true(resident > 1e6 && resident < 4e9);
	free(t);
	ig_metrics_destroy(m);
	ig_metrics_destroy(NULL);
}

static void test_requests(void **state)
{
	struct ig_metrics *m = ig_metrics_create();
	struct text *t = new_text();
	struct ig_ledger_row r;

	r = a_row("a", "stop");
	ig_metrics_request(m, &r);
	r = a_row("a", "length");
	ig_metrics_request(m, &r);
	ig_metrics_request(m, &r);
	r = a_row("a", "cancelled");
	r.ttft_ms = r.prefill_ms = r.decode_ms = -1; /* it never ran */
	r.n_output = 0;
	ig_metrics_request(m, &r);
	r = a_row("a", "error");
	r.decode_ms = -1;
	ig_metrics_request(m, &r);
	r = a_row("b", "stop");
	ig_metrics_request(m, &r);
	r = a_row("a", "something new");
	r.queue_ms = NAN;
	ig_metrics_request(m, &r);
	read_text(m, t);
	assert_value(t, "ingot_request_success_total", "model_name=\"a\",finished_reason=\"stop\"",
		     1);
	assert_value(t, "ingot_request_success_total",
		     "model_name=\"a\",finished_reason=\"length\"", 2);
	assert_value(t, "ingot_request_success_total", "model_name=\"a\",finished_reason=\"abort\"",
		     1);
	assert_value(t, "ingot_request_success_total", "model_name=\"b\",finished_reason=\"stop\"",
		     1);
	assert_value(t, "ingot_request_failure_total", "model_name=\"a\",reason=\"error\"", 2);
	assert_value(t, "ingot_request_failure_total", "model_name=\"a\",reason=\"refused\"", 0);
	assert_value(t, "ingot_prompt_tokens_total", "model_name=\"a\"", 60);
	assert_value(t, "ingot_prompt_tokens_cached_total", "model_name=\"a\"", 24);
	assert_value(t, "ingot_generation_tokens_total", "model_name=\"a\"", 15);
	assert_value(t, "ingot_generation_tokens_total", "model_name=\"b\"", 3);
	/* Seconds, cumulative buckets with their ends inside: 0.125 s, 5 of the 6 rows. */
	assert_value(t, "ingot_time_to_first_token_seconds_bucket", "model_name=\"a\",le=\"0.1\"",
		     0);
	assert_value(t, "ingot_time_to_first_token_seconds_bucket", "model_name=\"a\",le=\"0.25\"",
		     5);
	assert_value(t, "ingot_time_to_first_token_seconds_bucket", "model_name=\"a\",le=\"80\"",
		     5);
	assert_value(t, "ingot_time_to_first_token_seconds_bucket", "model_name=\"a\",le=\"+Inf\"",
		     5);
	assert_value(t, "ingot_time_to_first_token_seconds_sum", "model_name=\"a\"", 0.625);
	assert_value(t, "ingot_time_to_first_token_seconds_count", "model_name=\"a\"", 5);
	assert_value(t, "ingot_e2e_request_latency_seconds_sum", "model_name=\"b\"", 2.12);
	assert_value(t, "ingot_e2e_request_latency_seconds_count", "model_name=\"a\"", 6);
	assert_value(t, "ingot_request_queue_time_seconds_count", "model_name=\"a\"", 5);
	assert_value(t, "ingot_request_queue_time_seconds_sum", "model_name=\"b\"", 0.02);
	assert_value(t, "ingot_request_prefill_time_seconds_bucket", "model_name=\"b\",le=\"0.1\"",
		     1);
	assert_value(t, "ingot_request_prefill_time_seconds_bucket", "model_name=\"b\",le=\"0.05\"",
		     0);
	assert_value(t, "ingot_request_decode_time_seconds_count", "model_name=\"a\"", 4);
	assert_value(t, "ingot_request_decode_time_seconds_sum", "model_name=\"b\"", 2);
	/* Prefill and decode; prefill alone where it ended there. */
	assert_value(t, "ingot_request_inference_time_seconds_sum", "model_name=\"b\"", 2.1);
	assert_value(t, "ingot_request_inference_time_seconds_sum", "model_name=\"a\"",
		     4 * 2.1 + 0.1);
	free(t);
	ig_metrics_destroy(m);
}

/* Counters of drafts come in threes. */
static const char *source_of(int c)
{
	static const char *const sources[] = { "source=\"lookup\"", "source=\"model\"",
					       "source=\"mtp\"" };

	if (c < IG_COUNTER_DRAFTS || c > IG_COUNTER_MTP_DRAFT_SPENT_NS)
		return "";
	return sources[(c - IG_COUNTER_DRAFTS) % 3];
}

static bool is_ns(int c)
{
	return c >= IG_COUNTER_DRAFT_SAVED_NS && c <= IG_COUNTER_MTP_DRAFT_SPENT_NS;
}

static void test_gauges_and_counters(void **state)
{
	static const char *const gauges[IG_N_GAUGES] = {
		[IG_GAUGE_REQUESTS_RUNNING] = "ingot_num_requests_running",
		[IG_GAUGE_REQUESTS_WAITING] = "ingot_num_requests_waiting",
		[IG_GAUGE_REQUESTS_PAUSED] = "ingot_num_requests_paused",
		[IG_GAUGE_KV_ARENA_BYTES] = "ingot_kv_cache_arena_bytes",
		[IG_GAUGE_KV_COMMITTED_BYTES] = "ingot_kv_cache_committed_bytes",
		[IG_GAUGE_KV_USED_BYTES] = "ingot_kv_cache_used_bytes",
		[IG_GAUGE_KV_BLOCKS_USED] = "ingot_kv_cache_blocks_used",
		[IG_GAUGE_KV_CACHED_BYTES] = "ingot_kv_cache_cached_bytes",
		[IG_GAUGE_KV_DISK_BYTES] = "ingot_kv_cache_disk_bytes",
		[IG_GAUGE_WEIGHT_BYTES] = "ingot_weight_bytes",
		[IG_GAUGE_SCRATCH_BYTES] = "ingot_scratch_bytes",
		[IG_GAUGE_CONNECTIONS] = "ingot_connections",
		[IG_GAUGE_MODELS_LOADED] = "ingot_models_loaded",
		[IG_GAUGE_LEDGER_FAILING] = "ingot_ledger_failing",
		[IG_GAUGE_RESPONSES_FAILING] = "ingot_responses_failing",
	};
	static const char *const counters[IG_N_COUNTERS] = {
		[IG_COUNTER_PREEMPTIONS] = "ingot_num_preemptions_total",
		[IG_COUNTER_STANDSTILLS] = "ingot_engine_standstills_total",
		[IG_COUNTER_REFUSED] = "ingot_requests_refused_total",
		[IG_COUNTER_LEDGER_DROPPED] = "ingot_ledger_rows_dropped_total",
		[IG_COUNTER_CONNECTIONS] = "ingot_connections_total",
		[IG_COUNTER_DRAFTS] = "ingot_spec_decode_num_drafts_total",
		[IG_COUNTER_MODEL_DRAFTS] = "ingot_spec_decode_num_drafts_total",
		[IG_COUNTER_MTP_DRAFTS] = "ingot_spec_decode_num_drafts_total",
		[IG_COUNTER_DRAFT_TOKENS] = "ingot_spec_decode_num_draft_tokens_total",
		[IG_COUNTER_MODEL_DRAFT_TOKENS] = "ingot_spec_decode_num_draft_tokens_total",
		[IG_COUNTER_MTP_DRAFT_TOKENS] = "ingot_spec_decode_num_draft_tokens_total",
		[IG_COUNTER_ACCEPTED_TOKENS] = "ingot_spec_decode_num_accepted_tokens_total",
		[IG_COUNTER_MODEL_ACCEPTED_TOKENS] = "ingot_spec_decode_num_accepted_tokens_total",
		[IG_COUNTER_MTP_ACCEPTED_TOKENS] = "ingot_spec_decode_num_accepted_tokens_total",
		[IG_COUNTER_DRAFT_SAVED_NS] = "ingot_spec_decode_saved_seconds_total",
		[IG_COUNTER_MODEL_DRAFT_SAVED_NS] = "ingot_spec_decode_saved_seconds_total",
		[IG_COUNTER_MTP_DRAFT_SAVED_NS] = "ingot_spec_decode_saved_seconds_total",
		[IG_COUNTER_DRAFT_SPENT_NS] = "ingot_spec_decode_spent_seconds_total",
		[IG_COUNTER_MODEL_DRAFT_SPENT_NS] = "ingot_spec_decode_spent_seconds_total",
		[IG_COUNTER_MTP_DRAFT_SPENT_NS] = "ingot_spec_decode_spent_seconds_total",
		[IG_COUNTER_MODELS_UNLOADED] = "ingot_model_unloads_total",
		[IG_COUNTER_MEMORY_PRESSURE] = "ingot_memory_pressure_total",
		[IG_COUNTER_RECLAIMED_BYTES] = "ingot_memory_reclaimed_bytes_total",
		[IG_COUNTER_KV_SAVED_TOKENS] = "ingot_kv_cache_disk_saved_tokens_total",
		[IG_COUNTER_KV_RESTORED_TOKENS] = "ingot_kv_cache_disk_restored_tokens_total",
		[IG_COUNTER_MODEL_LOAD_FAILURES] = "ingot_model_load_failures_total",
	};
	struct ig_metrics *m = ig_metrics_create();
	struct text *t = new_text();

	for (int g = 0; g < IG_N_GAUGES; g++)
		ig_metrics_set(m, (enum ig_gauge)g, 100 + g);
	ig_metrics_set(m, IG_GAUGE_KV_ARENA_BYTES, 8589934592.0);
	ig_metrics_set(m, IG_GAUGE_KV_USED_BYTES, 2147483649.0);
	for (int c = 0; c < IG_N_COUNTERS; c++) {
		ig_metrics_add(m, (enum ig_counter)c, is_ns(c) ? 5000000000 : 5);
		ig_metrics_add(m, (enum ig_counter)c, (uint64_t)c);
	}
	ig_metrics_step(m, 7, 3, 0.0042);
	ig_metrics_step(m, 0, 4, 0.5);
	ig_metrics_model_load(m, 1.5);
	ig_metrics_model_load(m, 0.5);
	ig_metrics_inter_token(m, 0.0075); /* an end belongs to its bucket */
	ig_metrics_inter_token(m, 1000);
	ig_metrics_inter_token(m, -1); /* no time at all */
	ig_metrics_inter_token(m, NAN);
	ig_metrics_inter_token(m, INFINITY);
	read_text(m, t);
	for (int g = 0; g < IG_N_GAUGES; g++)
		if (g != IG_GAUGE_KV_ARENA_BYTES && g != IG_GAUGE_KV_USED_BYTES)
			assert_value(t, gauges[g], "", 100 + g);
	/* To the byte. */
	assert_true(value(t, gauges[IG_GAUGE_KV_USED_BYTES], "") - 2147483649.0 == 0);
	assert_value(t, "ingot_kv_cache_usage_perc", "", 2147483649.0 / 8589934592.0);
	/* once more for the gateway's endpoint picker */
	assert_value(t, "vllm:kv_cache_usage_perc", "", 2147483649.0 / 8589934592.0);
	assert_value(t, "vllm:num_requests_running", "", 100 + IG_GAUGE_REQUESTS_RUNNING);
	assert_value(t, "vllm:num_requests_waiting", "", 100 + IG_GAUGE_REQUESTS_WAITING);
	for (int c = 0; c < IG_N_COUNTERS; c++)
		assert_value(t, counters[c], source_of(c), is_ns(c) ? (5e9 + c) * 1e-9 : 5 + c);
	assert_value(t, "ingot_model_load_seconds_count", "", 2);
	assert_value(t, "ingot_model_load_seconds_sum", "", 2);
	assert_value(t, "ingot_engine_steps_total", "", 2);
	assert_value(t, "ingot_engine_step_rows_total", "kind=\"prefill\"", 7);
	assert_value(t, "ingot_engine_step_rows_total", "kind=\"decode\"", 7);
	assert_value(t, "ingot_engine_step_seconds_count", "", 2);
	assert_value(t, "ingot_engine_step_seconds_sum", "", 0.5042);
	assert_value(t, "ingot_engine_step_seconds_bucket", "le=\"0.005\"", 1);
	assert_value(t, "ingot_inter_token_latency_seconds_bucket", "le=\"0.005\"", 0);
	assert_value(t, "ingot_inter_token_latency_seconds_bucket", "le=\"0.0075\"", 1);
	assert_value(t, "ingot_inter_token_latency_seconds_bucket", "le=\"2.5\"", 1);
	assert_value(t, "ingot_inter_token_latency_seconds_bucket", "le=\"+Inf\"", 2);
	assert_value(t, "ingot_inter_token_latency_seconds_count", "", 2);
	free(t);
	ig_metrics_destroy(m);
}

/* One device has all; of several it is said what each has. */
static void test_ranks(void **state)
{
	struct ig_metrics *m = ig_metrics_create();
	struct text *t = new_text();
	struct ig_rank_bytes ranks[IG_METRICS_RANKS + 1] = { { 8589934593, 7 }, { 5, 0 } };
	struct ig_rank_bytes now[IG_METRICS_RANKS];

	ig_metrics_set(m, IG_GAUGE_KV_COMMITTED_BYTES, 4096);
	ig_metrics_set(m, IG_GAUGE_WEIGHT_BYTES, 8589934595.0);
	ig_metrics_set(m, IG_GAUGE_SCRATCH_BYTES, 9);
	read_text(m, t);
	assert_value(t, "ingot_rank_memory_bytes", "rank=\"0\",kind=\"weights\"", 8589934595.0);
	assert_value(t, "ingot_rank_memory_bytes", "rank=\"0\",kind=\"scratch\"", 9);
	assert_value(t, "ingot_rank_memory_bytes", "rank=\"0\",kind=\"kv_cache\"", 4096);
	assert_int_equal(ig_metrics_ranks(m, now), 0);
	ig_metrics_set_ranks(m, ranks, 2);
	assert_int_equal(ig_metrics_ranks(m, now), 2);
	assert_memory_equal(now, ranks, 2 * sizeof *now);
	read_text(m, t);
	assert_value(t, "ingot_rank_memory_bytes", "rank=\"0\",kind=\"weights\"", 8589934593.0);
	assert_value(t, "ingot_rank_memory_bytes", "rank=\"0\",kind=\"scratch\"", 7);
	assert_value(t, "ingot_rank_memory_bytes", "rank=\"1\",kind=\"weights\"", 5);
	assert_value(t, "ingot_rank_memory_bytes", "rank=\"1\",kind=\"scratch\"", 0);
	for (int r = 0; r < 2; r++)
		assert_value(t, "ingot_rank_memory_bytes",
			     r ? "rank=\"1\",kind=\"kv_cache\"" : "rank=\"0\",kind=\"kv_cache\"",
			     4096);
	/* more than have gauges */
	ig_metrics_set_ranks(m, ranks, IG_METRICS_RANKS + 1);
	assert_int_equal(ig_metrics_ranks(m, now), IG_METRICS_RANKS);
	read_text(m, t);
	assert_value(t, "ingot_rank_memory_bytes", "rank=\"63\",kind=\"weights\"", 0);
	free(t);
	ig_metrics_destroy(m);
}

/* Every histogram: buckets ascend, the last is +Inf and equals the count. */
static void test_histograms_agree(void **state)
{
	struct ig_metrics *m = ig_metrics_create();
	struct text *t = new_text();
	size_t n_closed = 0;

	for (int i = 0; i < 500; i++) {
		struct ig_ledger_row r = a_row(i % 3 ? "a" : "b", "stop");
		r.ttft_ms = (float)(i * i);
		r.total_ms = (float)i * 400;
		ig_metrics_request(m, &r);
		ig_metrics_inter_token(m, i / 100.0);
		ig_metrics_step(m, 1, 1, i / 200.0);
	}
	read_text(m, t);
	for (size_t i = 1; i < t->n; i++) {
		const struct sample *s = &t->all[i], *last = s - 1;
		if (strstr(s->name, "_bucket") && !strcmp(s->name, last->name) &&
		    !strstr(last->labels, "+Inf"))
			assert_true(s->value >= last->value);
		if (strstr(s->labels, "le=\"+Inf\"")) {
			assert_non_null(strstr(s[1].name, "_sum"));
			assert_non_null(strstr(s[2].name, "_count"));
			assert_true(s[2].value - s->value == 0);
			n_closed++;
		}
	}
	assert_int_equal(n_closed, 6 * 3 + 3); /* a, b and the nameless one */
	free(t);
	ig_metrics_destroy(m);
}

/* ---- labels ------------------------------------------------------------------------------- */

static void test_labels_are_escaped(void **state)
{
	struct ig_metrics *m = ig_metrics_create();
	struct text *t = new_text();
	struct ig_ledger_row r = a_row("a\"b\\c\nd{}=,", "stop");

	ig_metrics_request(m, &r);
	read_text(m, t);
	assert_value(t, "ingot_prompt_tokens_total", "model_name=\"a\\\"b\\\\c\\nd{}=,\"", 10);
	free(t);
	ig_metrics_destroy(m);
}

/* The model's name of a refused request comes from the client. */
static void test_unknown_models_make_no_series(void **state)
{
	struct ig_metrics *m = ig_metrics_create();
	struct text *t = new_text();
	struct ig_ledger_row r;
	char name[32];

	r = a_row("known", "stop");
	ig_metrics_request(m, &r);
	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof name, "unknown-%d", i);
		r = a_row(name, "refused");
		ig_metrics_request(m, &r);
		r = a_row(name, "error"); /* it failed before a prompt was there */
		r.n_prompt = 0;
		ig_metrics_request(m, &r);
	}
	r = a_row("known", "refused");
	ig_metrics_request(m, &r);
	/* A name that fills its field. */
	r = a_row("", "stop");
	memset(r.model, 'x', sizeof r.model);
	ig_metrics_request(m, &r);
	read_text(m, t);
	for (size_t i = 0; i < t->n; i++)
		assert_null(strstr(t->all[i].labels, "unknown"));
	assert_value(t, "ingot_request_failure_total", "model_name=\"\",reason=\"refused\"", 1000);
	assert_value(t, "ingot_request_failure_total", "model_name=\"\",reason=\"error\"", 1000);
	assert_value(t, "ingot_request_failure_total", "model_name=\"known\",reason=\"refused\"",
		     1);
	assert_value(t, "ingot_request_success_total", "model_name=\"\",finished_reason=\"stop\"",
		     1);
	free(t);
	ig_metrics_destroy(m);
}

static void test_models_are_capped(void **state)
{
	struct ig_metrics *m = ig_metrics_create();
	struct text *t = new_text();
	size_t n = 0;

	for (int i = 0; i < IG_METRICS_MODELS + 10; i++) {
		char name[32];
		snprintf(name, sizeof name, "m%d", i);
		struct ig_ledger_row r = a_row(name, "stop");
		ig_metrics_request(m, &r);
		ig_metrics_request(m, &r);
	}
	read_text(m, t);
	for (size_t i = 0; i < t->n; i++)
		n += !strcmp(t->all[i].name, "ingot_prompt_tokens_total");
	assert_int_equal(n, IG_METRICS_MODELS + 1);
	assert_value(t, "ingot_request_success_total",
		     "model_name=\"m63\",finished_reason=\"stop\"", 2);
	assert_value(t, "ingot_request_success_total", "model_name=\"\",finished_reason=\"stop\"",
		     20);
	free(t);
	ig_metrics_destroy(m);
}

/* ---- threads -------------------------------------------------------------------------------- */

enum { N_THREADS = 8, N_EACH = 5000 };

static void *add_many(void *arg)
{
	struct ig_metrics *m = arg;
	static const char *const models[] = { "a", "b", "c", "d" };

	for (int i = 0; i < N_EACH; i++) {
		struct ig_ledger_row r = a_row(models[i % 4], "stop");
		r.ttft_ms = 250;
		ig_metrics_request(m, &r);
		ig_metrics_inter_token(m, 0.5);
		ig_metrics_add(m, IG_COUNTER_REFUSED, 1);
		ig_metrics_set(m, IG_GAUGE_CONNECTIONS, 3);
		ig_metrics_step(m, 2, 1, 0.25);
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct ig_metrics *m = ig_metrics_create();
	struct text *t = new_text();
	pthread_t threads[N_THREADS];
	double sum = 0;

	for (int i = 0; i < N_THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, add_many, m), 0);
	for (int i = 0; i < 20; i++)
		read_text(m, t); /* while they run, it is a valid text all the same */
	for (int i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
	read_text(m, t);
	for (int i = 0; i < 4; i++) {
		char labels[64];
		snprintf(labels, sizeof labels, "model_name=\"%c\"", 'a' + i);
		sum += value(t, "ingot_time_to_first_token_seconds_count", labels);
		assert_value(t, "ingot_time_to_first_token_seconds_sum", labels,
			     N_THREADS * N_EACH / 4 * 0.25);
	}
	assert_int_equal(sum, N_THREADS * N_EACH);
	assert_value(t, "ingot_requests_refused_total", "", N_THREADS * N_EACH);
	assert_value(t, "ingot_inter_token_latency_seconds_sum", "", N_THREADS * N_EACH * 0.5);
	assert_value(t, "ingot_engine_step_rows_total", "kind=\"prefill\"", N_THREADS * N_EACH * 2);
	assert_value(t, "ingot_connections", "", 3);
	assert_null(find(t, "ingot_prompt_tokens_total", "model_name=\"e\""));
	free(t);
	ig_metrics_destroy(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_requests),
		cmocka_unit_test(test_gauges_and_counters),
		cmocka_unit_test(test_ranks),
		cmocka_unit_test(test_histograms_agree),
		cmocka_unit_test(test_labels_are_escaped),
		cmocka_unit_test(test_unknown_models_make_no_series),
		cmocka_unit_test(test_models_are_capped),
		cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
