/*
 * metrics.c: counters, gauges and histograms, and their text for Prometheus.  All numbers are
 * atomics that any thread adds to without a lock.  The text is not a snapshot, but each histogram
 * is consistent: its count is the sum of the buckets that were read.  The number of label values is
 * bounded: clients cannot create series.
 */
#include "store/metrics.h"

#include "base/build_id.h"
#include "base/machine.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define N_OF(a) (sizeof(a) / sizeof((a)[0]))
#define MAX_BUCKETS 24

/* ---- numbers ------------------------------------------------------------------------- */

/* A double as its bits: C11 has atomic doubles, but no addition for them. */
typedef _Atomic uint64_t atomic_number;

static double number_get(const atomic_number *a)
{
	uint64_t bits = atomic_load_explicit((atomic_number *)(uintptr_t)a, memory_order_relaxed);
	double v;

	memcpy(&v, &bits, sizeof v);
	return v;
}

static void number_set(atomic_number *a, double v)
{
	uint64_t bits;

	memcpy(&bits, &v, sizeof bits);
	atomic_store_explicit(a, bits, memory_order_relaxed);
}

static void number_add(atomic_number *a, double v)
{
	uint64_t old = atomic_load_explicit(a, memory_order_relaxed), new_;
	double sum;

	do {
		memcpy(&sum, &old, sizeof sum);
		sum += v;
		memcpy(&new_, &sum, sizeof new_);
	} while (!atomic_compare_exchange_weak_explicit(a, &old, new_, memory_order_relaxed,
							memory_order_relaxed));
}

static void count_add(_Atomic uint64_t *c, uint64_t n)
{
	atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}

static uint64_t count_get(const _Atomic uint64_t *c)
{
	return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)c, memory_order_relaxed);
}

/* ---- histograms ------------------------------------------------------------------------ */

struct histogram {
	_Atomic uint64_t counts[MAX_BUCKETS]; /* not cumulative; the last one has no bound */
	atomic_number sum;
};

/* Upper bounds in seconds; the last bucket of each list has none. */
static const double ttft_bounds[] = { .001, .005, .01, .02, .04, .06, .08, .1, .25, .5,
				      .75,  1,	  2.5, 5,   7.5, 10,  20,  40, 80,  INFINITY };
static const double token_bounds[] = { .001, .002, .003, .004, .005, .0075, .01,     .015,
				       .02,  .025, .03,	 .04,  .05,  .075,  .1,	     .15,
				       .2,   .3,   .5,	 .75,  1,    2.5,   INFINITY };
static const double request_bounds[] = { .005, .01, .025, .05, .1, .2, .3, .5, .8, 1,	1.5,	 2,
					 2.5,  5,   10,	  15,  20, 30, 40, 50, 60, 120, INFINITY };
_Static_assert(N_OF(ttft_bounds) <= MAX_BUCKETS && N_OF(token_bounds) <= MAX_BUCKETS &&
		       N_OF(request_bounds) <= MAX_BUCKETS,
	       "each list fits struct histogram");

static void observe(struct histogram *h, const double *bounds, double v)
{
	size_t i = 0;

	if (!(v >= 0) || isinf(v))
		return; /* the request never reached this state */
	while (v > bounds[i])
		i++;
	number_add(&h->sum, v);
	count_add(&h->counts[i], 1);
}

/* ---- series --------------------------------------------------------------------- */

enum latency { TTFT, E2E, QUEUE, PREFILL, DECODE, INFERENCE, N_LATENCIES };

static const struct {
	const char *name, *help;
	const double *bounds;
} latencies[N_LATENCIES] = {
	[TTFT] = { "time_to_first_token_seconds",
		   "Time from a request's arrival to its first token.", ttft_bounds },
	[E2E] = { "e2e_request_latency_seconds", "Time from a request's arrival to its end.",
		  request_bounds },
	[QUEUE] = { "request_queue_time_seconds", "Time that a request waited to be scheduled.",
		    request_bounds },
	[PREFILL] = { "request_prefill_time_seconds", "Time of a request's prefill.",
		      request_bounds },
	[DECODE] = { "request_decode_time_seconds",
		     "Time from a request's first token to its last.", request_bounds },
	[INFERENCE] = { "request_inference_time_seconds", "Prefill and decode together.",
			request_bounds },
};

enum tally {
	PROMPT_TOKENS,
	CACHED_TOKENS,
	GENERATION_TOKENS,
	/* The finish reasons; the first three are in request_success_total. */
	FINISH_STOP,
	FINISH_LENGTH,
	FINISH_ABORT,
	FINISH_ERROR,
	FINISH_REFUSED,
	N_TALLIES,
};

static const struct {
	const char *name, *help;
} token_counters[] = {
	[PROMPT_TOKENS] = { "prompt_tokens_total", "Tokens of prompts." },
	[CACHED_TOKENS] = { "prompt_tokens_cached_total",
			    "Tokens of prompts that were found in the cache." },
	[GENERATION_TOKENS] = { "generation_tokens_total", "Tokens generated." },
};

/* A row's finish, and vLLM's label value for it. */
static const struct {
	const char *finish, *label;
	enum tally tally;
} finishes[] = {
	{ "stop", "stop", FINISH_STOP },	  { "length", "length", FINISH_LENGTH },
	{ "cancelled", "abort", FINISH_ABORT },	  { "error", "error", FINISH_ERROR },
	{ "refused", "refused", FINISH_REFUSED },
};

static const struct {
	const char *name, *help;
} gauges[IG_N_GAUGES] = {
	[IG_GAUGE_REQUESTS_RUNNING] = { "num_requests_running",
					"Requests that are being computed." },
	[IG_GAUGE_REQUESTS_WAITING] = { "num_requests_waiting",
					"Requests that wait in the queue." },
	[IG_GAUGE_REQUESTS_PAUSED] = { "num_requests_paused",
				       "Requests that are paused because their client reads too slowly." },
	[IG_GAUGE_KV_ARENA_BYTES] = { "kv_cache_arena_bytes", "Memory reserved for the cache." },
	[IG_GAUGE_KV_COMMITTED_BYTES] = { "kv_cache_committed_bytes",
					  "Memory of the arena's slabs in use." },
	[IG_GAUGE_KV_USED_BYTES] = { "kv_cache_used_bytes", "Memory of blocks in use." },
	[IG_GAUGE_KV_BLOCKS_USED] = { "kv_cache_blocks_used", "Blocks in use." },
	[IG_GAUGE_KV_CACHED_BYTES] = { "kv_cache_cached_bytes",
				       "Memory of unused blocks that are kept for prompts with the same "
				       "prefix." },
	[IG_GAUGE_KV_DISK_BYTES] = { "kv_cache_disk_bytes",
				     "Bytes of computed blocks in the folder kvcache.disk." },
	[IG_GAUGE_WEIGHT_BYTES] = { "weight_bytes", "Memory of packed weights." },
	[IG_GAUGE_SCRATCH_BYTES] = { "scratch_bytes", "Memory of scratch buffers." },
	[IG_GAUGE_CONNECTIONS] = { "connections", "Connections that are open." },
	[IG_GAUGE_MODELS_LOADED] = { "models_loaded", "Models that are loaded and ready." },
	[IG_GAUGE_LEDGER_FAILING] = { "ledger_failing",
				      "1 while the ledger cannot be written, as on a full disk." },
	[IG_GAUGE_RESPONSES_FAILING] = { "responses_failing",
					 "1 while stored responses cannot be written to the disk." },
};

static const struct {
	const char *name, *help;
	const char *source; /* the label; NULL: none.  Counters of one name follow each other */
	bool is_ns;	    /* shown as seconds */
} counters[IG_N_COUNTERS] = {
	[IG_COUNTER_PREEMPTIONS] = { "num_preemptions_total",
				     "Sequences that were preempted to free their blocks." },
	[IG_COUNTER_STANDSTILLS] = { "engine_standstills_total",
				     "Times that the engine's loop went round and moved nothing." },
	[IG_COUNTER_REFUSED] = { "requests_refused_total",
				 "Requests refused with 503: the queue is full, or their model does "
				 "not fit in memory or was not loaded in time." },
	[IG_COUNTER_LEDGER_DROPPED] = { "ledger_rows_dropped_total",
					"Ledger rows that were dropped." },
	[IG_COUNTER_CONNECTIONS] = { "connections_total", "Connections accepted." },
	[IG_COUNTER_MEMORY_PRESSURE] = { "memory_pressure_total",
					 "Times that the system said it is short of memory." },
	[IG_COUNTER_RECLAIMED_BYTES] = { "memory_reclaimed_bytes_total",
					 "Bytes of idle cache and idle models freed because of it." },
#define DRAFT_COUNTER(NAME, name, help, is_ns)                                                     \
	[IG_COUNTER_##NAME] = { "spec_decode_" name, help, "lookup", is_ns },                      \
	[IG_COUNTER_MODEL_##NAME] = { "spec_decode_" name, help, "model", is_ns },                 \
	[IG_COUNTER_MTP_##NAME] = { "spec_decode_" name, help, "mtp", is_ns }
	DRAFT_COUNTER(DRAFTS, "num_drafts_total",
		      "Drafts that were verified: guesses at a request's next tokens.", false),
	DRAFT_COUNTER(DRAFT_TOKENS, "num_draft_tokens_total", "Tokens of drafts.", false),
	DRAFT_COUNTER(ACCEPTED_TOKENS, "num_accepted_tokens_total",
		      "Tokens of drafts that were right.", false),
	DRAFT_COUNTER(DRAFT_SAVED_NS, "saved_seconds_total",
		      "What steps for the tokens of drafts that were right would have taken.",
		      true),
	DRAFT_COUNTER(DRAFT_SPENT_NS, "spent_seconds_total",
		      "What drafts took: making them, and their rows in steps.", true),
	[IG_COUNTER_KV_SAVED_TOKENS] = { "kv_cache_disk_saved_tokens_total",
					 "Tokens whose blocks were given to kvcache.disk." },
	[IG_COUNTER_KV_RESTORED_TOKENS] = { "kv_cache_disk_restored_tokens_total",
					    "Tokens whose blocks came from kvcache.disk." },
	[IG_COUNTER_MODELS_UNLOADED] = { "model_unloads_total", "Models that were unloaded." },
	[IG_COUNTER_MODEL_LOAD_FAILURES] = { "model_load_failures_total",
					     "Loads of models that failed." },
};

/* The beginning of series that have a name. */
struct named {
	char name[129];
};

struct model_series {
	struct named head;
	_Atomic uint64_t tallies[N_TALLIES];
	struct histogram latencies[N_LATENCIES];
};

struct name_series {
	struct named head;
	_Atomic uint64_t count;
};

struct ig_metrics {
	/* Filled from the front by compare-and-exchange; entries are never removed. */
	struct named *_Atomic models[IG_METRICS_MODELS];   /* struct model_series */
	struct model_series nameless;			   /* requests without a known model */
	struct named *_Atomic ignored[IG_METRICS_IGNORED]; /* struct name_series */
	struct name_series other_ignored;
	struct named *_Atomic normalized[IG_PROMPT_MAX_RULES]; /* struct name_series */
	struct name_series other_normalized;
	struct histogram inter_token, step, model_load;
	_Atomic uint64_t n_steps, n_prefill_rows, n_decode_rows;
	_Atomic uint64_t counters[IG_N_COUNTERS];
	atomic_number gauges[IG_N_GAUGES];
	_Atomic uint32_t n_ranks;
	struct {
		_Atomic uint64_t weights, scratch;
	} ranks[IG_METRICS_RANKS];
};

struct ig_metrics *ig_metrics_create(void) { return calloc(1, sizeof(struct ig_metrics)); }

void ig_metrics_destroy(struct ig_metrics *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < IG_METRICS_MODELS; i++)
		free(atomic_load(&m->models[i]));
	for (size_t i = 0; i < IG_METRICS_IGNORED; i++)
		free(atomic_load(&m->ignored[i]));
	for (size_t i = 0; i < IG_PROMPT_MAX_RULES; i++)
		free(atomic_load(&m->normalized[i]));
	free(m);
}

/* ---- writers ------------------------------------------------------------------------------- */

/* The entry of a name in a list, created with this size if it is new and make is true; NULL: there is
 * none, no space or no memory.  When two threads create the same one, both get the first. */
static struct named *find_named(struct named *_Atomic *list, size_t n, const char *name,
				size_t size, bool make)
{
	struct named *mine = NULL, *found = NULL;

	for (size_t i = 0; i < n && !found; i++) {
		struct named *s = atomic_load_explicit(&list[i], memory_order_acquire);
		if (!s && make && !mine) {
			mine = calloc(1, size);
			if (mine)
				snprintf(mine->name, sizeof mine->name, "%s", name);
		}
		if (!s && !mine)
			break;
		if (!s && atomic_compare_exchange_strong(&list[i], &s, mine))
			return mine;
		/* s is now another thread's, if it was none */
		if (!strncmp(s->name, name, sizeof s->name - 1))
			found = s;
	}
	free(mine);
	return found;
}

/* The series of a model; the common one if it has none. */
static struct model_series *series(struct ig_metrics *m, const char *name, size_t len, bool make)
{
	struct named *s = len && len < sizeof s->name ?
				  find_named(m->models, IG_METRICS_MODELS, name,
					     sizeof(struct model_series), make) :
				  NULL;

	return s ? (struct model_series *)s : &m->nameless;
}

static void count_tokens(struct model_series *s, enum tally t, int32_t n)
{
	if (n > 0)
		count_add(&s->tallies[t], (uint64_t)n);
}

void ig_metrics_request(struct ig_metrics *m, const struct ig_ledger_row *row)
{
	size_t f = 0, len = strnlen(row->model, sizeof row->model);

	while (f < N_OF(finishes) && strncmp(row->finish, finishes[f].finish, sizeof row->finish))
		f++;
	/* an unknown finish counts as an error */
	enum tally t = f < N_OF(finishes) ? finishes[f].tally : FINISH_ERROR;
	struct model_series *s =
		series(m, row->model, len, t != FINISH_REFUSED && row->n_prompt > 0);
	count_add(&s->tallies[t], 1);
	count_tokens(s, PROMPT_TOKENS, row->n_prompt);
	count_tokens(s, CACHED_TOKENS, row->n_cached);
	count_tokens(s, GENERATION_TOKENS, row->n_output);
	const double ms[N_LATENCIES] = {
		[TTFT] = (double)row->ttft_ms,
		[E2E] = (double)row->total_ms,
		[QUEUE] = (double)row->queue_ms,
		[PREFILL] = (double)row->prefill_ms,
		[DECODE] = (double)row->decode_ms,
		[INFERENCE] = row->prefill_ms >= 0 && row->decode_ms >= 0 ?
				      (double)row->prefill_ms + (double)row->decode_ms :
				      (double)row->prefill_ms,
	};
	for (size_t i = 0; i < N_LATENCIES; i++)
		observe(&s->latencies[i], latencies[i].bounds, ms[i] / 1e3);
}

void ig_metrics_inter_token(struct ig_metrics *m, double seconds)
{
	observe(&m->inter_token, token_bounds, seconds);
}

void ig_metrics_step(struct ig_metrics *m, uint32_t n_prefill, uint32_t n_decode, double seconds)
{
	count_add(&m->n_steps, 1);
	count_add(&m->n_prefill_rows, n_prefill);
	count_add(&m->n_decode_rows, n_decode);
	observe(&m->step, token_bounds, seconds);
}

static void count_name(struct named *_Atomic *list, size_t n, const char *name,
		       struct name_series *other)
{
	struct named *s = find_named(list, n, name, sizeof(struct name_series), true);

	count_add(s ? &((struct name_series *)s)->count : &other->count, 1);
}

void ig_metrics_ignored(struct ig_metrics *m, const char *name)
{
	count_name(m->ignored, IG_METRICS_IGNORED, name, &m->other_ignored);
}

void ig_metrics_normalized(struct ig_metrics *m, const char *rule)
{
	count_name(m->normalized, IG_PROMPT_MAX_RULES, rule, &m->other_normalized);
}

void ig_metrics_model_load(struct ig_metrics *m, double seconds)
{
	observe(&m->model_load, request_bounds, seconds);
}

void ig_metrics_set(struct ig_metrics *m, enum ig_gauge g, double v)
{
	if ((unsigned)g < IG_N_GAUGES)
		number_set(&m->gauges[g], v);
}

void ig_metrics_set_ranks(struct ig_metrics *m, const struct ig_rank_bytes *ranks, uint32_t n)
{
	if (n > IG_METRICS_RANKS)
		n = IG_METRICS_RANKS;
	for (uint32_t r = 0; r < n; r++) {
		atomic_store_explicit(&m->ranks[r].weights, ranks[r].weights, memory_order_relaxed);
		atomic_store_explicit(&m->ranks[r].scratch, ranks[r].scratch, memory_order_relaxed);
	}
	atomic_store_explicit(&m->n_ranks, n, memory_order_release);
}

uint32_t ig_metrics_ranks(const struct ig_metrics *m, struct ig_rank_bytes ranks[IG_METRICS_RANKS])
{
	const uint32_t n = atomic_load_explicit(&m->n_ranks, memory_order_acquire);

	for (uint32_t r = 0; r < n; r++)
		ranks[r] = (struct ig_rank_bytes){ count_get(&m->ranks[r].weights),
						   count_get(&m->ranks[r].scratch) };
	return n;
}

void ig_metrics_add(struct ig_metrics *m, enum ig_counter c, uint64_t n)
{
	if ((unsigned)c < IG_N_COUNTERS)
		count_add(&m->counters[c], n);
}

/* ---- text ------------------------------------------------------------------------------------ */

/* The shortest text of at least 6 digits that reads back as the same number. */
static void put_number(struct ig_strbuf *b, double v)
{
	char text[40];

	if (isnan(v) || isinf(v)) {
		ig_strbuf_puts(b, isnan(v) ? "NaN" : v > 0 ? "+Inf" : "-Inf");
		return;
	}
	for (int digits = 6; digits <= 17; digits++) {
		snprintf(text, sizeof text, "%.*g", digits, v);
		if (!(strtod(text, NULL) < v || strtod(text, NULL) > v))
			break;
	}
	ig_strbuf_puts(b, text);
}

/* A label; \, " and line feeds of its value are escaped. */
static void put_label(struct ig_strbuf *b, const char *name, const char *value)
{
	ig_strbuf_printf(b, "%s=\"", name);
	for (; *value; value++) {
		if (*value == '\n')
			ig_strbuf_puts(b, "\\n");
		else if (*value == '\\' || *value == '"')
			ig_strbuf_printf(b, "\\%c", *value);
		else
			ig_strbuf_add(b, value, 1);
	}
	ig_strbuf_puts(b, "\"");
}

static void put_head(struct ig_strbuf *b, const char *name, const char *type, const char *help)
{
	ig_strbuf_printf(b, "# HELP ingot_%s %s\n# TYPE ingot_%s %s\n", name, help, name, type);
}

/* {model_name="MODEL",EXTRA="VALUE"}; model and extra may be NULL. */
static void put_labels(struct ig_strbuf *b, const char *model, const char *extra, const char *value)
{
	if (!model && !extra)
		return;
	ig_strbuf_puts(b, "{");
	if (model)
		put_label(b, "model_name", model);
	if (model && extra)
		ig_strbuf_puts(b, ",");
	if (extra)
		put_label(b, extra, value);
	ig_strbuf_puts(b, "}");
}

static void put_count(struct ig_strbuf *b, const char *name, const char *model, const char *extra,
		      const char *value, const _Atomic uint64_t *n)
{
	ig_strbuf_printf(b, "ingot_%s", name);
	put_labels(b, model, extra, value);
	ig_strbuf_printf(b, " %" PRIu64 "\n", count_get(n));
}

static void put_counter(struct ig_strbuf *b, size_t i, const _Atomic uint64_t *n)
{
	const char *label = counters[i].source ? "source" : NULL;

	if (!counters[i].is_ns) {
		put_count(b, counters[i].name, NULL, label, counters[i].source, n);
		return;
	}
	ig_strbuf_printf(b, "ingot_%s", counters[i].name);
	put_labels(b, NULL, label, counters[i].source);
	ig_strbuf_puts(b, " ");
	put_number(b, (double)count_get(n) * 1e-9);
	ig_strbuf_puts(b, "\n");
}

static void put_gauge(struct ig_strbuf *b, const char *name, const char *help, double v)
{
	put_head(b, name, "gauge", help);
	ig_strbuf_printf(b, "ingot_%s ", name);
	put_number(b, v);
	ig_strbuf_puts(b, "\n");
}

/* What each device or machine has of the models and of the cache, of which each has slabs of the same size.  One
 * device has all that the gauges say. */
static void put_ranks(const struct ig_metrics *m, struct ig_strbuf *b)
{
	static const char *const kinds[] = { "weights", "scratch", "kv_cache" };
	struct ig_rank_bytes ranks[IG_METRICS_RANKS];
	const uint32_t n = ig_metrics_ranks(m, ranks);
	const double cache = number_get(&m->gauges[IG_GAUGE_KV_COMMITTED_BYTES]);

	put_head(b, "rank_memory_bytes", "gauge",
		 "Memory of each device or machine over which models are divided, by kind.");
	for (uint32_t r = 0; r < (n ? n : 1); r++) {
		const double bytes[] = { n ? (double)ranks[r].weights :
					     number_get(&m->gauges[IG_GAUGE_WEIGHT_BYTES]),
					 n ? (double)ranks[r].scratch :
					     number_get(&m->gauges[IG_GAUGE_SCRATCH_BYTES]),
					 cache };
		for (size_t k = 0; k < N_OF(kinds); k++) {
			ig_strbuf_printf(b, "ingot_rank_memory_bytes{rank=\"%u\",kind=\"%s\"} ", r,
					 kinds[k]);
			put_number(b, bytes[k]);
			ig_strbuf_puts(b, "\n");
		}
	}
}

/* A gauge again, under vLLM's own name: what the endpoint picker of Kubernetes' inference gateway reads
 * unless it is configured otherwise. */
static void put_vllm_gauge(struct ig_strbuf *b, const char *name, double v)
{
	ig_strbuf_printf(b, "# HELP vllm:%s ingot_%s.\n# TYPE vllm:%s gauge\nvllm:%s ", name, name,
			 name, name);
	put_number(b, v);
	ig_strbuf_puts(b, "\n");
}

static void put_histogram(struct ig_strbuf *b, const char *name, const char *model,
			  const struct histogram *h, const double *bounds)
{
	struct ig_strbuf le = { 0 };
	uint64_t total = 0;

	for (size_t i = 0;; i++) {
		total += count_get(&h->counts[i]);
		ig_strbuf_clear(&le);
		put_number(&le, bounds[i]);
		ig_strbuf_printf(b, "ingot_%s_bucket", name);
		put_labels(b, model, "le", ig_strbuf_text(&le));
		ig_strbuf_printf(b, " %" PRIu64 "\n", total);
		if (isinf(bounds[i]))
			break;
	}
	b->failed |= le.failed;
	ig_strbuf_finish(&le);
	ig_strbuf_printf(b, "ingot_%s_sum", name);
	put_labels(b, model, NULL, NULL);
	ig_strbuf_puts(b, " ");
	put_number(b, number_get(&h->sum));
	ig_strbuf_printf(b, "\ningot_%s_count", name);
	put_labels(b, model, NULL, NULL);
	ig_strbuf_printf(b, " %" PRIu64 "\n", total);
}

static const struct named *named_at(struct named *const _Atomic *list, size_t i)
{
	return atomic_load_explicit((struct named * _Atomic *)(uintptr_t)&list[i],
				    memory_order_acquire);
}

/* All series, the nameless one last; returns their number. */
static size_t list_series(const struct ig_metrics *m, const struct model_series **out)
{
	size_t n = 0;

	while (n < IG_METRICS_MODELS) {
		out[n] = (const struct model_series *)named_at(m->models, n);
		if (!out[n])
			break;
		n++;
	}
	out[n++] = &m->nameless;
	return n;
}

static void put_names(struct ig_strbuf *b, const char *name, const char *help, const char *label,
		      struct named *const _Atomic *list, size_t n, const struct name_series *other)
{
	put_head(b, name, "counter", help);
	for (size_t i = 0; i < n; i++) {
		const struct name_series *s = (const struct name_series *)named_at(list, i);
		if (!s)
			break;
		put_count(b, name, NULL, label, s->head.name, &s->count);
	}
	put_count(b, name, NULL, label, "", &other->count);
}

/* One counter by finish reason, of finishes[from … to-1]. */
static void put_finishes(struct ig_strbuf *b, const char *name, const char *label, size_t from,
			 size_t to, const struct model_series *const *all, size_t n)
{
	for (size_t i = 0; i < n; i++)
		for (size_t f = from; f < to; f++)
			put_count(b, name, all[i]->head.name, label, finishes[f].label,
				  &all[i]->tallies[finishes[f].tally]);
}

static void put_models(const struct ig_metrics *m, struct ig_strbuf *b)
{
	const struct model_series *all[IG_METRICS_MODELS + 1];
	size_t n = list_series(m, all);

	for (size_t t = 0; t < N_OF(token_counters); t++) {
		put_head(b, token_counters[t].name, "counter", token_counters[t].help);
		for (size_t i = 0; i < n; i++)
			put_count(b, token_counters[t].name, all[i]->head.name, NULL, NULL,
				  &all[i]->tallies[t]);
	}
	put_head(b, "request_success_total", "counter",
		 "Requests that finished, by reason; abort: cancelled.");
	put_finishes(b, "request_success_total", "finished_reason", 0, 3, all, n);
	put_head(b, "request_failure_total", "counter",
		 "Requests that were refused or ended with an error.");
	put_finishes(b, "request_failure_total", "reason", 3, N_OF(finishes), all, n);
	for (size_t k = 0; k < N_LATENCIES; k++) {
		put_head(b, latencies[k].name, "histogram", latencies[k].help);
		for (size_t i = 0; i < n; i++)
			put_histogram(b, latencies[k].name, all[i]->head.name,
				      &all[i]->latencies[k], latencies[k].bounds);
	}
}

double ig_metrics_get(const struct ig_metrics *m, enum ig_gauge g)
{
	return number_get(&m->gauges[g]);
}

void ig_metrics_write(const struct ig_metrics *m, struct ig_strbuf *b)
{
	uint64_t bytes = ig_process_memory();
	double arena = number_get(&m->gauges[IG_GAUGE_KV_ARENA_BYTES]);
	double used = number_get(&m->gauges[IG_GAUGE_KV_USED_BYTES]);
	double share = arena > 0 ? used / arena : 0;

	put_head(b, "build_info", "gauge", "Always 1; the labels identify the build.");
	ig_strbuf_puts(b, "ingot_build_info{");
	put_label(b, "version", IG_VERSION);
	ig_strbuf_puts(b, ",");
	put_label(b, "build_id", ig_build_id);
	ig_strbuf_puts(b, "} 1\n");
	for (size_t i = 0; i < IG_N_GAUGES; i++)
		put_gauge(b, gauges[i].name, gauges[i].help, number_get(&m->gauges[i]));
	put_ranks(m, b);
	put_gauge(b, "kv_cache_usage_perc", "Share of the arena in blocks in use, from 0 to 1.",
		  share);
	put_vllm_gauge(b, "num_requests_running",
		       number_get(&m->gauges[IG_GAUGE_REQUESTS_RUNNING]));
	put_vllm_gauge(b, "num_requests_waiting",
		       number_get(&m->gauges[IG_GAUGE_REQUESTS_WAITING]));
	put_vllm_gauge(b, "kv_cache_usage_perc", share);
	for (size_t i = 0; i < IG_N_COUNTERS; i++) {
		if (!i || strcmp(counters[i].name, counters[i - 1].name))
			put_head(b, counters[i].name, "counter", counters[i].help);
		put_counter(b, i, &m->counters[i]);
	}
	put_head(b, "engine_steps_total", "counter", "Steps that the engine has computed.");
	put_count(b, "engine_steps_total", NULL, NULL, NULL, &m->n_steps);
	put_head(b, "engine_step_rows_total", "counter", "Rows of those steps, by kind.");
	put_count(b, "engine_step_rows_total", NULL, "kind", "prefill", &m->n_prefill_rows);
	put_count(b, "engine_step_rows_total", NULL, "kind", "decode", &m->n_decode_rows);
	put_head(b, "engine_step_seconds", "histogram", "Time of one step.");
	put_histogram(b, "engine_step_seconds", NULL, &m->step, token_bounds);
	put_head(b, "inter_token_latency_seconds", "histogram",
		 "Time between two tokens of one request.");
	put_histogram(b, "inter_token_latency_seconds", NULL, &m->inter_token, token_bounds);
	put_head(b, "model_load_seconds", "histogram", "Time to load a model.");
	put_histogram(b, "model_load_seconds", NULL, &m->model_load, request_bounds);
	put_names(b, "ignored_parameters_total",
		  "What requests had that is not known here, by name.", "parameter", m->ignored,
		  IG_METRICS_IGNORED, &m->other_ignored);
	put_names(b, "prompts_normalized_total",
		  "Prompts that a rule of kvcache.normalize has changed.", "rule", m->normalized,
		  IG_PROMPT_MAX_RULES, &m->other_normalized);
	put_models(m, b);
	/* Prometheus's own name, without the prefix */
	ig_strbuf_puts(b, "# HELP process_resident_memory_bytes Resident memory size in bytes.\n"
			  "# TYPE process_resident_memory_bytes gauge\n"
			  "process_resident_memory_bytes ");
	put_number(b, bytes ? (double)bytes : NAN);
	ig_strbuf_puts(b, "\n");
}
