/* harness.c: see harness.h. */
#include "harness.h"
#include "fake_outside.h"

const char *harness_run_ahead = "off";
const char *harness_speculation = "off";
static struct ig_engine *open_engine; /* NULL: none */
/* Not in the client: the last wake may come after the client saw the end. */
static atomic_int n_wakes;
static char *module_path[] = { (char *)"/modules", NULL };

void harness_config(struct ig_config *c, const char *const *models, size_t n)
{
	memset(c, 0, sizeof *c);
	c->server.slow_client_timeout_ms = 10000;
	c->server.prep_threads = 1;
	c->runtime.driver = strdup("auto");
	c->runtime.isa = strdup("auto");
	c->runtime.activations = strdup("auto");
	c->runtime.experts = strdup("packed");
	c->runtime.repack = strdup("auto");
	c->runtime.tensor_units = strdup("auto");
	c->runtime.run_ahead = strdup(harness_run_ahead);
	c->runtime.transport = strdup("none");
	c->runtime.strict = true;
	c->memory.budget = 64 << 20;
	c->kvcache.service = strdup("paged");
	c->kvcache.arena = 4 << 20;
	c->kvcache.slab = SLAB_BYTES;
	c->kvcache.dtype = strdup("f16");
	c->kvcache.prefix_cache = true;
	c->kvcache.share = strdup("key");
	c->modules.path = module_path;
	c->scheduler.max_batch_tokens = 128;
	c->scheduler.prefill_chunk = 64;
	c->scheduler.max_seqs = 16;
	c->scheduler.max_queue = 64;
	c->scheduler.prompt_share = 33;
	c->scheduler.speculation = strdup(harness_speculation);
	c->models = calloc(n ? n : 1, sizeof *c->models);
	c->n_models = n;
	for (size_t i = 0; i < n; i++) {
		c->models[i].name = strdup(models[i]);
		c->models[i].path = strdup(models[i]);
		c->models[i].load = strdup("start");
	}
	c->default_model = strdup("");
}

void harness_config_finish(struct ig_config *c)
{
	free(c->runtime.driver);
	free(c->runtime.isa);
	free(c->runtime.activations);
	free(c->runtime.experts);
	free(c->runtime.repack);
	free(c->runtime.tensor_units);
	free(c->runtime.transport);
	free(c->runtime.run_ahead);
	free(c->scheduler.speculation);
	free(c->kvcache.service);
	free(c->kvcache.dtype);
	free(c->kvcache.share);
	free(c->kvcache.disk);
	for (size_t i = 0; i < c->n_models; i++) {
		free(c->models[i].name);
		free(c->models[i].path);
		free(c->models[i].load);
	}
	free(c->models);
	free(c->default_model);
}

static void count_lost(void *ctx) { atomic_fetch_add(&fake.n_lost, 1); }

int harness_try_engine(const struct ig_config *c, struct ig_engine **out, struct ig_error *err)
{
	struct ig_engine_deps deps = { .config = c,
				       .ledger = (struct ig_ledger *)&fake,
				       .metrics = (struct ig_metrics *)&fake,
				       .device_lost = count_lost };
	int rc = ig_engine_create(&deps, &open_engine, err);

	if (rc)
		open_engine = NULL;
	*out = open_engine;
	return rc;
}

struct ig_engine *harness_engine(const struct ig_config *c)
{
	struct ig_engine *e;
	struct ig_error err = { 0 };
	int rc = harness_try_engine(c, &e, &err);

	if (rc)
		fail_msg("the engine can't be made: %d %s", rc, err.text);
	return e;
}

void harness_close(struct ig_engine *e)
{
	open_engine = NULL;
	ig_engine_destroy(e);
	assert_int_equal(fake.n_grammars, 0);
	if (fake.n_errors)
		fail_msg("%d breaches: %s", fake.n_errors, fake.error);
	assert_int_equal(fake.n_mapped, 0);
	assert_int_equal(fake.n_open, 0);
	assert_int_equal(fake.n_programs, 0);
}

void harness_abandon(void)
{
	if (!open_engine)
		return;
	fake_open_gate();
	ig_engine_destroy(open_engine);
	open_engine = NULL;
}

void make_prompt(int32_t *out, int32_t n, unsigned seed)
{
	for (int32_t i = 0; i < n; i++) {
		seed = seed * 1664525u + 1013904223u;
		out[i] = (int32_t)((seed >> 16) % FAKE_N_TEXT);
	}
}

static void count_wake(void *ctx) { atomic_fetch_add((atomic_int *)ctx, 1); }

int client_try(struct client *c, struct ig_engine *e, const struct ask *a, struct ig_error *err)
{
	struct ig_gen_spec spec = { 0 };
	struct ig_error why = { 0 };
	int32_t *prompt;
	int rc;

	memset(c, 0, sizeof *c);
	if (a->held) {
		spec.model = ig_engine_keep_model(a->held);
	} else {
		rc = ig_engine_take_model(e, a->model, NULL, NULL, &spec.model, &why);
		if (rc == -ESHUTDOWN || rc == -EINPROGRESS || rc == -EIO) {
			*err = why;
			return rc;
		}
		if (rc)
			fail_msg("%s", why.text);
	}
	spec.n_prompt = a->n_prompt;
	prompt = malloc(((size_t)a->n_prompt + 1) * sizeof *prompt);
	if (!a->prompt)
		make_prompt(prompt, a->n_prompt, a->prompt_seed);
	else if (a->n_spans)
		memcpy(prompt, a->prompt, (size_t)a->n_prompt * sizeof *prompt);
	for (int32_t i = 0; i < a->n_spans; i++)
		for (int32_t k = 0; k < a->spans[i].n; k++)
			if (a->spans[i].first >= 0 && a->spans[i].first + k < a->n_prompt)
				prompt[a->spans[i].first + k] = FAKE_OUTSIDE_ID;
	spec.prompt = a->prompt && !a->n_spans ? a->prompt : prompt;
	spec.texts = a->texts;
	spec.n_texts = a->n_texts;
	spec.vectors = a->vectors;
	spec.predicted = a->predicted;
	spec.n_predicted = a->n_predicted;
	spec.sampling = (struct ig_sampling){
		.temperature = 1,
		.top_p = 1,
		.repetition_penalty = (double)a->repetition_penalty,
		.frequency_penalty = (double)a->frequency_penalty,
		.biases = (struct ig_bias *)a->bias,
		.n_biases = a->bias ? 1 : 0,
		.seed = a->seed,
		.max_tokens = a->max_tokens,
		.stops = a->stops[0] ? (char **)a->stops : NULL,
		.ignore_end = a->ignore_end,
	};
	spec.n_top = a->n_probs - 1;
	spec.prefill_only = a->prefill_only;
	spec.priority = a->priority;
	spec.deadline_ns = a->deadline_ns;
	if (a->shows_control)
		spec.shown[spec.n_shown++] = FAKE_CONTROL;
	if (a->grammar)
		spec.grammar = fake_grammar(a->grammar);
	spec.stream = ig_stream_create(a->ring ? a->ring : 65536, count_wake, &n_wakes);
	if (a->n_probs)
		assert_int_equal(ig_stream_enable_logprobs(
					 spec.stream, a->logprob_ring ? a->logprob_ring : 1024),
				 0);
	snprintf(spec.id, sizeof spec.id, "%s", a->id ? a->id : "req");
	spec.wants_report = a->wants_report;
	snprintf(spec.compare_with, sizeof spec.compare_with, "%s",
		 a->compare_with ? a->compare_with : "");
	spec.origin = ig_origin_create(
		"req_1", "test", a->client ? a->client : "127.0.0.1",
		&(struct ig_principal){ .identity = a->salt, .weight = a->weight });
	c->stream = spec.stream;
	rc = a->n_spans ? ig_spans_create(spec.model, prompt, a->n_prompt, a->spans, a->n_spans,
					  &spec.spans, err) :
			  0;
	if (!rc)
		rc = ig_engine_submit(e, &spec, &c->gen, err);
	ig_spans_unref(spec.spans);
	ig_engine_release_model(spec.model);
	ig_origin_unref(spec.origin);
	ig_grammar_unref(spec.grammar);
	free(prompt);
	if (rc) {
		ig_stream_unref(spec.stream);
		ig_stream_unref(c->stream);
		c->stream = NULL;
	}
	return rc;
}

void client_ask(struct client *c, struct ig_engine *e, const struct ask *a)
{
	struct ig_error err = { 0 };
	int rc = client_try(c, e, a, &err);

	if (rc)
		fail_msg("refused: %d %s", rc, err.text);
}

void client_take(struct client *c)
{
	c->n_text += ig_stream_take(c->stream, c->text + c->n_text, sizeof c->text - 1 - c->n_text);
	c->text[c->n_text] = 0;
	c->n_logprobs += ig_stream_take_logprobs(c->stream, c->logprobs + c->n_logprobs,
						 FAKE_CONTEXT - c->n_logprobs);
	c->over = ig_stream_finished(c->stream, &c->result);
}

void client_finish(struct client *c)
{
	wait_for((client_take(c), c->over));
	client_drop(c);
}

void client_drop(struct client *c)
{
	ig_stream_unref(c->stream);
	c->stream = NULL;
}

int32_t expected(const struct ask *a, char *text, size_t cap)
{
	int32_t tokens[FAKE_CONTEXT + 1], n = a->n_prompt, max = FAKE_CONTEXT - n;
	size_t len = 0;

	if (a->prompt)
		memcpy(tokens, a->prompt, (size_t)n * sizeof *tokens);
	else
		make_prompt(tokens, n, a->prompt_seed);
	if (a->max_tokens && a->max_tokens < max)
		max = a->max_tokens;
	text[0] = 0;
	while (n - a->n_prompt < max) {
		int32_t id = fake_next(a->kind	? a->kind :
				       a->model ? a->model :
						  "good",
				       tokens, n, a->seed);

		if (id == FAKE_END)
			break;
		tokens[n++] = id;
		len += (size_t)snprintf(text + len, cap - len, "%s", fake_token_text(id));
	}
	return n - a->n_prompt;
}

double gauge(enum ig_gauge g) { return atomic_load(&fake.gauges[g]); }

int counter(enum ig_counter c) { return atomic_load(&fake.counters[c]); }

struct ig_ledger_row ledger_row(int n)
{
	struct ig_ledger_row row;

	pthread_mutex_lock(&fake.lock);
	row = fake.rows[n];
	pthread_mutex_unlock(&fake.lock);
	return row;
}

struct ig_ledger_row ledger_find(const char *id)
{
	struct ig_ledger_row row = { 0 };
	int found = 0;

	pthread_mutex_lock(&fake.lock);
	for (int i = 0; i < fake.n_rows; i++) {
		if (!strcmp(fake.rows[i].id, id)) {
			row = fake.rows[i];
			found++;
		}
	}
	pthread_mutex_unlock(&fake.lock);
	if (found != 1)
		fail_msg("the ledger has %d rows of %s", found, id);
	return row;
}
