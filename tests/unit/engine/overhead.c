/* overhead.c: see overhead.h. */
#include "overhead.h"

#include "harness.h"

#include <poll.h>

#define N_STEPS_BEFORE 50 /* that are not measured */
#define MORE_STEPS 1000	  /* that prompts and those before take at most */
#define RING 4096
#define RING_LOGPROBS 256
/* Of the priorities and deadlines of those that wait. */
#define N_PRIORITIES 100
#define HOUR_NS ((int64_t)3600 * 1000000000)

static const char *const plain[] = { "good" }, *const wide[] = { "wide" };

struct request {
	struct ig_stream *stream;
	uint64_t gen;
	atomic_bool has_news;
};

static struct {
	struct ig_config config;
	struct ig_engine *engine;
	struct request *requests;
	uint32_t n_requests;
	pthread_t reader;
	int pipe[2];
	atomic_bool woken, stopping;
} o;

/* ---- the reader ------------------------------------------------------------------------------ */

static void wake(void *ctx)
{
	struct request *r = ctx;

	atomic_store(&r->has_news, true);
	if (!atomic_exchange(&o.woken, true) && write(o.pipe[1], "", 1) < 0)
		abort();
}

static void take(struct request *r)
{
	static struct ig_token_logprob logprobs[RING_LOGPROBS];
	char text[RING];
	size_t n;

	if (!atomic_exchange(&r->has_news, false))
		return;
	n = ig_stream_take(r->stream, text, sizeof text);
	n += ig_stream_take_logprobs(r->stream, logprobs, RING_LOGPROBS);
	if (n)
		ig_engine_resume(o.engine, r->gen);
}

static void *read_streams(void *arg)
{
	struct pollfd p = { .fd = o.pipe[0], .events = POLLIN };
	char bytes[16];

	while (!atomic_load(&o.stopping)) {
		if (poll(&p, 1, 1000) <= 0 || read(o.pipe[0], bytes, sizeof bytes) < 0)
			continue;
		atomic_store(&o.woken, false);
		for (uint32_t i = 0; i < o.n_requests; i++)
			take(&o.requests[i]);
	}
	return NULL;
}

/* ---- requests ---------------------------------------------------------------------------------- */

static void submit(const struct overhead_case *c, struct request *r, const char *client, uint32_t i,
		   bool runs)
{
	static const struct fake_grammar rules = { INT32_MAX, 1, false, false };
	struct ig_error err = { 0 };
	struct ig_gen_spec spec = { .n_prompt = c->n_prompt, .n_top = -1 };
	int32_t *prompt = malloc((size_t)c->n_prompt * sizeof *prompt);

	if (!prompt || ig_engine_take_model(o.engine, NULL, NULL, NULL, &spec.model, &err) < 0)
		abort();
	make_prompt(prompt, c->n_prompt, i);
	spec.prompt = prompt;
	spec.sampling =
		(struct ig_sampling){ .temperature = 1, .top_p = 1, .repetition_penalty = 1 };
	if (runs && c->penalties)
		spec.sampling.repetition_penalty = 1.1;
	if (runs && c->logprobs)
		spec.n_top = 5;
	if (runs && c->grammar)
		spec.grammar = fake_grammar(&rules);
	if (!runs && c->priorities)
		spec.priority = 1 + (int32_t)(i * 37 % N_PRIORITIES);
	if (!runs && c->deadlines)
		spec.deadline_ns = ig_now_ns() + HOUR_NS + i * 7919 % N_PRIORITIES;
	spec.stream = ig_stream_create(RING, wake, r);
	if (spec.n_top >= 0 && ig_stream_enable_logprobs(spec.stream, RING_LOGPROBS) < 0)
		abort();
	snprintf(spec.id, sizeof spec.id, "r%u", i);
	spec.origin = ig_origin_create("req", "bench", client, &(struct ig_principal){ 0 });
	r->stream = spec.stream;
	if (ig_engine_submit(o.engine, &spec, &r->gen, &err) < 0) {
		fprintf(stderr, "overhead: %s\n", err.text);
		abort();
	}
	ig_engine_release_model(spec.model);
	ig_origin_unref(spec.origin);
	ig_grammar_unref(spec.grammar);
	free(prompt);
}

static void step(int n)
{
	fake_allow(n);
	fake_wait_at_gate();
}

static void make_engine(const struct overhead_case *c)
{
	uint32_t n_blocks = ((uint32_t)c->n_prompt + OVERHEAD_STEPS + MORE_STEPS) / 16 + 2;

	fake_reset();
	fake.no_compute = fake.gated = true;
	fake.n_context = n_blocks * 16;
	/* no prompt is long, or it would wait for what steps cost */
	fake.split_rows = (uint32_t)c->n_prompt + c->n_streams;
	harness_config(&o.config, c->logprobs ? wide : plain, 1);
	o.config.server.slow_client_timeout_ms = 3600000;
	o.config.kvcache.slab = 1 << 20;
	o.config.kvcache.arena =
		((uint64_t)c->n_streams + 1) * n_blocks * GOOD_BLOCK_BYTES + (8 << 20);
	o.config.memory.budget = o.config.kvcache.arena + ((uint64_t)256 << 20);
	o.config.scheduler.max_batch_tokens = 2 * fake.split_rows;
	o.config.scheduler.prefill_chunk = 512;
	o.config.scheduler.max_seqs = c->n_streams;
	o.config.scheduler.max_queue = c->n_streams + c->n_waiting;
	o.engine = harness_engine(&o.config);
}

void overhead_begin(const struct overhead_case *c)
{
	char client[32];
	int decoded;

	make_engine(c);
	atomic_store(&o.stopping, false);
	atomic_store(&o.woken, false);
	o.n_requests = 0;
	o.requests = calloc(c->n_streams + c->n_waiting, sizeof *o.requests);
	if (!o.requests || pipe(o.pipe) < 0)
		abort();
	for (uint32_t i = 0; i < c->n_streams; i++) {
		snprintf(client, sizeof client, "s%u", c->n_clients > 1 ? i : 0);
		submit(c, &o.requests[o.n_requests++], client, i, true);
	}
	for (uint32_t i = 0; i < c->n_waiting; i++) {
		snprintf(client, sizeof client, c->n_clients > 1 ? "w%u" : "s%u", i % c->n_clients);
		submit(c, &o.requests[o.n_requests++], client, c->n_streams + i, false);
	}
	if (pthread_create(&o.reader, NULL, read_streams, NULL))
		abort();
	fake_wait_at_gate();
	for (int i = 0;; i++) {
		decoded = fake.n_decode_rows;
		step(1);
		if (fake.n_decode_rows - decoded == (int)c->n_streams)
			break;
		if (i > MORE_STEPS - 2 * N_STEPS_BEFORE) {
			fprintf(stderr, "overhead: of %u streams %d decode\n", c->n_streams,
				fake.n_decode_rows - decoded);
			abort();
		}
	}
	step(N_STEPS_BEFORE);
}

struct overhead overhead_measure(int n)
{
	int64_t cpu = fake.engine_cpu_ns, wall = fake.engine_wall_ns;

	step(n);
	return (struct overhead){ .cpu_us = (double)(fake.engine_cpu_ns - cpu) * 1e-3 / n,
				  .wall_us = (double)(fake.engine_wall_ns - wall) * 1e-3 / n };
}

void overhead_end(void)
{
	for (uint32_t i = 0; i < o.n_requests; i++)
		ig_engine_cancel(o.engine, o.requests[i].gen, "test");
	fake_open_gate();
	wait_for(ig_engine_n_active(o.engine) == 0);
	atomic_store(&o.stopping, true);
	if (write(o.pipe[1], "", 1) < 0)
		abort();
	pthread_join(o.reader, NULL);
	harness_close(o.engine);
	for (uint32_t i = 0; i < o.n_requests; i++)
		ig_stream_unref(o.requests[i].stream);
	free(o.requests);
	close(o.pipe[0]);
	close(o.pipe[1]);
	harness_config_finish(&o.config);
}
