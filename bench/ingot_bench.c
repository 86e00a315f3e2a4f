/*
 * ingot_bench.c: the speed of the runtime with a model, without the daemon.
 *
 *   ingot-bench MODEL.gguf [--prompt N] [--decode M] [--streams S[,S...]] [--rounds R]
 *       [--threads T] [--isa I] [--activations auto|f32] [--kv TYPES] [--chunk C]
 *       [--driver D] [--devices N] [--repack auto|always|never] [--tensor-units auto|never]
 *       [--packed FILE] [--json]
 *       [--ops [--read-gbs X --gmacs Y]]
 *
 * A round prefills S streams with N random tokens each, in steps of up to C rows, then decodes M
 * tokens of all S streams together, each with its own sampled tokens.  Several S are measured one
 * after another, with one load.  With --prompt 0 decoding starts with an empty cache, like
 * llama-bench's tg.  After one round of warm-up, R rounds are timed: tokens per second of all
 * streams together, median (minimum-maximum).  --ops prints instead the cost of each kind of op in
 * a step (ops.c), and its bound if the machine's roofline is given (from ingot-limits).
 * --devices N divides the model over the first N devices (cuda).
 * --packed maps a copy of the packed weights, and writes it first if it is not there.
 */
#include "base/clock.h"
#include "base/dtype.h"
#include "base/json.h"
#include "bench/ops.h"
#include "tests/golden/model/stepper.h"

#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROUNDS 1000
#define MAX_COUNTS 16 /* numbers of streams that one run measures */

struct bench {
	const char *model;
	uint32_t n_prompt, n_decode, n_rounds, chunk;
	uint32_t counts[MAX_COUNTS], n_counts; /* of streams */
	uint32_t n_streams;		       /* of the current measurement */
	bool json, ops;
	double read_gbs, gmacs; /* the machine's roofline; 0: not given */
	struct ig_stepper_options o;
	int32_t *ids;					/* [n_prompt] */
	int32_t *last;					/* [n_streams] */
	double prefill[MAX_ROUNDS], decode[MAX_ROUNDS]; /* seconds */
	double n_phases; /* that a step of decode opens for all threads; 0: the driver does not count */
};

/* The cost of one token, computed from the plan. */
struct work {
	double linear_macs, logits_macs; /* multiply-adds of a token's products */
	double file_bytes;		 /* of all two-dimensional weights, as the file has them */
	double step_bytes;		 /* of those that a step of one row reads */
};

static bool is_product(const struct ig_op *op)
{
	return (op->flags & IG_OP_EXPERTS) || !strcmp(op->name, "linear") ||
	       !strcmp(op->name, "linear_heads") || !strcmp(op->name, "glu") ||
	       !strcmp(op->name, "logits");
}

static void count_work(const struct ig_plan *plan, struct work *w)
{
	memset(w, 0, sizeof *w);
	for (uint32_t i = 0; i < plan->n_nodes; i++) {
		const struct ig_plan_node *node = &plan->nodes[i];
		bool logits = !strcmp(node->op->name, "logits");
		double share = is_product(node->op) ? ig_ops_share(node) : 0;
		for (uint32_t j = 0; share > 0 && j < node->n_weights; j++) {
			const struct ig_plan_weight *weight = &plan->weights[node->weight[j]];
			double macs = (double)weight->shape.n_rows * (double)weight->shape.n_cols;
			w->file_bytes += (double)weight->n_bytes;
			w->step_bytes += share * (double)weight->n_bytes;
			*(logits ? &w->logits_macs : &w->linear_macs) += share * macs;
		}
	}
}

static int prefill(struct bench *b, struct ig_stepper *s)
{
	const struct ig_sample_params *sample;
	uint32_t left = b->chunk, n;
	int rc;

	for (uint32_t i = 0; i < b->n_streams; i++) {
		for (uint32_t at = 0; at < b->n_prompt; at += n) {
			n = b->n_prompt - at < left ? b->n_prompt - at : left;
			sample = at + n == b->n_prompt ? &ig_stepper_greedy : NULL;
			rc = ig_stepper_put(s, (int)i, b->ids + at, (int32_t)n, sample);
			if (rc < 0)
				return rc;
			left -= n;
			if (left && (i + 1 < b->n_streams || at + n < b->n_prompt))
				continue;
			if ((rc = ig_stepper_run(s, false)))
				return rc;
			left = b->chunk;
		}
	}
	return 0;
}

static int decode(struct bench *b, struct ig_stepper *s)
{
	for (uint32_t t = 0; t < b->n_decode; t++) {
		int rc;
		for (uint32_t i = 0; i < b->n_streams; i++) {
			rc = ig_stepper_put(s, (int)i, &b->last[i], 1, &ig_stepper_greedy);
			if (rc < 0)
				return rc;
		}
		if ((rc = ig_stepper_run(s, false)))
			return rc;
		for (uint32_t i = 0; i < b->n_streams; i++)
			b->last[i] = ig_stepper_sampled(s, (int)i);
	}
	return 0;
}

/* Run and time round r; a negative r is warm-up and not timed. */
static int run_round(struct bench *b, struct ig_stepper *s, int r)
{
	int64_t t0, t1, t2;
	int rc;

	for (uint32_t i = 0; i < b->n_streams; i++) {
		ig_stepper_rewind(s, (int)i, 0);
		b->last[i] = (int32_t)(1 + i);
	}
	t0 = ig_now_ns();
	if ((rc = b->n_prompt ? prefill(b, s) : 0))
		return rc;
	t1 = ig_now_ns();
	b->n_phases = -(double)ig_stepper_pulse(s);
	if ((rc = decode(b, s)))
		return rc;
	t2 = ig_now_ns();
	b->n_phases = b->n_decode ? (b->n_phases + (double)ig_stepper_pulse(s)) / b->n_decode : 0;
	if (r >= 0) {
		b->prefill[r] = (double)(t1 - t0) * 1e-9;
		b->decode[r] = (double)(t2 - t1) * 1e-9;
	}
	return 0;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Tokens per second from the seconds of all rounds and the tokens of one: minimum, median,
 * maximum. */
static void rates(double *seconds, uint32_t n, double tokens, double out[3])
{
	qsort(seconds, n, sizeof *seconds, by_value);
	out[0] = tokens / seconds[n - 1];
	out[1] = 2.0 * tokens / (seconds[n / 2] + seconds[(n - 1) / 2]);
	out[2] = tokens / seconds[0];
}

static void put_rates(struct ig_json_writer *w, const char *name, double tokens,
		      const double *seconds, uint32_t n, const double r[3])
{
	ig_json_open_object(w, name);
	ig_json_put_real(w, "tokens", "%.0f", tokens);
	ig_json_put_real(w, "min", "%.3f", r[0]);
	ig_json_put_real(w, "median", "%.3f", r[1]);
	ig_json_put_real(w, "max", "%.3f", r[2]);
	ig_json_open_array(w, "samples");
	for (uint32_t i = 0; i < n; i++)
		ig_json_put_real(w, NULL, "%.3f", tokens / seconds[i]);
	ig_json_close_array(w);
	ig_json_close_object(w);
}

static void report(struct bench *b, struct ig_stepper *s, const struct work *w, double load_s)
{
	bool first = b->n_streams == b->counts[0];

	double tokens[2] = { (double)b->n_prompt * b->n_streams,
			     (double)b->n_decode * b->n_streams };
	double *seconds[2] = { b->prefill, b->decode }, r[3];
	struct ig_strbuf line = { 0 };
	struct ig_json_writer json = { .out = &line, .spaced = true };
	static const char *const names[2] = { "prefill", "decode" };

	if (!b->json && first)
		printf("%s\n%s; %.1f MiB of packed weights, %.1f MiB of scratch, %s in %.0f ms\n",
		       b->model, ig_stepper_describe(s),
		       (double)ig_stepper_weight_bytes(s) / 1048576,
		       (double)ig_stepper_scratch_bytes(s) / 1048576,
		       ig_stepper_is_mapped(s) ? "mapped" : "loaded", load_s * 1e3);
	if (b->json) {
		ig_json_open_object(&json, NULL);
		ig_json_put_text(&json, "model", b->model);
		ig_json_put_text(&json, "device", ig_stepper_describe(s));
		ig_json_put_uint(&json, "weight_bytes", ig_stepper_weight_bytes(s));
		ig_json_put_uint(&json, "scratch_bytes", ig_stepper_scratch_bytes(s));
		ig_json_put_real(&json, "load_s", "%.6f", load_s);
		ig_json_put_real(&json, "linear_macs", "%.0f", w->linear_macs);
		ig_json_put_real(&json, "logits_macs", "%.0f", w->logits_macs);
		ig_json_put_real(&json, "file_bytes", "%.0f", w->file_bytes);
		ig_json_put_real(&json, "step_bytes", "%.0f", w->step_bytes);
		ig_json_put_uint(&json, "streams", b->n_streams);
		ig_json_put_uint(&json, "rounds", b->n_rounds);
	}
	for (int i = 0; i < 2; i++) {
		if (!(tokens[i] > 0))
			continue;
		rates(seconds[i], b->n_rounds, tokens[i], r);
		if (b->json)
			put_rates(&json, names[i], tokens[i], seconds[i], b->n_rounds, r);
		else
			printf("%-8s %5.0f tokens of %u stream%s: %8.1f tok/s (%.1f-%.1f)\n",
			       names[i], tokens[i], b->n_streams, b->n_streams == 1 ? "" : "s",
			       r[1], r[0], r[2]);
	}
	if (!b->json && b->n_phases > 0)
		printf("a step of decode opens %.0f phases for all threads\n", b->n_phases);
	if (b->json) {
		ig_json_close_object(&json);
		puts(ig_strbuf_ok(&line) ? line.data : "null");
	}
	ig_strbuf_finish(&line);
}

static int run(struct bench *b, struct ig_error *err)
{
	struct ig_stepper_model model = { 0 };
	struct ig_stepper *s = NULL;
	struct work w;
	uint64_t state = 1;
	uint32_t most = 0;
	int64_t t0 = ig_now_ns();
	double load_s;
	int rc;

	if ((rc = ig_stepper_model_open(&model, b->model, NULL, err)))
		return rc;
	count_work(model.plan, &w);
	b->n_streams = b->counts[0];
	if (b->ops) {
		const struct ig_ops_options ops = {
			.n_prompt = b->n_prompt,
			.n_streams = b->n_streams,
			.n_rounds = b->n_rounds,
			.read_bytes = b->read_gbs * 1e9,
			.macs = b->gmacs * 1e9,
		};

		rc = ig_ops_bench(&model, &b->o, &ops, err);
		goto out;
	}
	for (uint32_t i = 0; i < b->n_counts; i++)
		most = b->counts[i] > most ? b->counts[i] : most;
	b->o.max_rows = b->chunk > most ? b->chunk : most;
	b->o.max_seqs = most;
	b->o.max_context = b->n_prompt + b->n_decode;
	b->o.cache_tokens = (uint64_t)b->o.max_context * most;
	if ((rc = ig_stepper_open(&model, &b->o, &s, err)))
		goto out;
	load_s = (double)(ig_now_ns() - t0) * 1e-9;
	b->ids = calloc(b->n_prompt + 1, sizeof *b->ids);
	b->last = calloc(most, sizeof *b->last);
	if (!b->ids || !b->last) {
		rc = ig_fail(err, -12, "no memory");
		goto out;
	}
	for (uint32_t i = 0; i < b->n_prompt; i++) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		b->ids[i] = (int32_t)((state >> 33) % ig_stepper_n_vocab(s));
	}
	for (uint32_t i = 0; i < most; i++)
		if (ig_stepper_add(s, b->o.max_context) != (int)i) {
			rc = ig_fail(err, -28, "the cache can't hold %u streams", most);
			goto out;
		}
	for (uint32_t i = 0; i < b->n_counts; i++) {
		b->n_streams = b->counts[i];
		/* one round of warm-up for all counts */
		for (int r = i ? 0 : -1; r < (int)b->n_rounds; r++) {
			rc = run_round(b, s, r);
			if (rc) {
				ig_fail(err, rc, "a step was refused: %s", strerror(-rc));
				goto out;
			}
		}
		report(b, s, &w, load_s);
	}
out:
	free(b->ids);
	free(b->last);
	ig_stepper_close(s);
	ig_stepper_model_close(&model);
	return rc;
}

static int usage(const char *what)
{
	fprintf(stderr,
		"ingot-bench: %s\n"
		"usage: ingot-bench MODEL.gguf [--prompt N] [--decode M] [--streams S[,S...]]\n"
		"    [--rounds R]\n"
		"    [--threads T] [--isa I] [--activations auto|f32] [--kv TYPES] [--chunk C]\n"
		"    [--driver D] [--devices N] [--repack auto|always|never] [--tensor-units auto|never]\n"
		"    [--packed FILE] [--json]\n"
		"    [--ops [--read-gbs X --gmacs Y]]\n",
		what);
	return 2;
}

/* An integer in least … most. */
static bool number(const char *text, uint32_t least, uint32_t most, uint32_t *out)
{
	char *end;
	unsigned long v = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || v < least || v > most)
		return false;
	*out = (uint32_t)v;
	return true;
}

/* Numbers of streams, separated by commas. */
static bool counts(char *text, struct bench *b)
{
	char *save = NULL;
	b->n_counts = 0;
	for (char *one = strtok_r(text, ",", &save); one; one = strtok_r(NULL, ",", &save))
		if (b->n_counts == MAX_COUNTS || !number(one, 1, 1024, &b->counts[b->n_counts++]))
			return false;
	return b->n_counts > 0;
}

/* A positive number. */
static bool positive(const char *text, double *out)
{
	char *end;
	*out = strtod(text, &end);
	return end != text && !*end && *out > 0 && *out < 1e9;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "prompt", required_argument, NULL, 'p' },
		{ "decode", required_argument, NULL, 'n' },
		{ "streams", required_argument, NULL, 's' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "threads", required_argument, NULL, 't' },
		{ "isa", required_argument, NULL, 'i' },
		{ "activations", required_argument, NULL, 'a' },
		{ "repack", required_argument, NULL, 'R' },
		{ "tensor-units", required_argument, NULL, 'T' },
		{ "kv", required_argument, NULL, 'k' },
		{ "chunk", required_argument, NULL, 'c' },
		{ "driver", required_argument, NULL, 'd' },
		{ "devices", required_argument, NULL, 'D' },
		{ "packed", required_argument, NULL, 'w' },
		{ "json", no_argument, NULL, 'j' },
		{ "ops", no_argument, NULL, 'o' },
		{ "read-gbs", required_argument, NULL, 'b' },
		{ "gmacs", required_argument, NULL, 'm' },
		{ 0 },
	};
	static struct bench b = {
		.n_prompt = 512,
		.n_decode = 128,
		.counts = { 1 },
		.n_counts = 1,
		.n_rounds = 5,
		.chunk = 512,
		.o = { .k_dtype = IG_F16, .v_dtype = IG_F16, .shuffle = 1 },
	};
	struct ig_error err = { 0 };
	bool ok = true;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1 && ok) {
		switch (c) {
		case 'p': ok = number(optarg, 0, 1u << 20, &b.n_prompt); break;
		case 'n': ok = number(optarg, 0, 1u << 20, &b.n_decode); break;
		case 's': ok = counts(optarg, &b); break;
		case 'r': ok = number(optarg, 1, MAX_ROUNDS, &b.n_rounds); break;
		case 't': ok = number(optarg, 0, 1024, &b.o.n_threads); break;
		case 'c': ok = number(optarg, 1, 1u << 16, &b.chunk); break;
		case 'i': b.o.isa = optarg; break;
		case 'a': b.o.activations = optarg; break;
		case 'R': b.o.repack = optarg; break;
		case 'T': b.o.tensor_units = optarg; break;
		case 'd': b.o.driver = optarg; break;
		case 'D': ok = number(optarg, 1, 8, &b.o.n_devices); break;
		case 'w': b.o.packed = optarg; break;
		case 'k': ok = ig_cache_dtypes(optarg, &b.o.k_dtype, &b.o.v_dtype); break;
		case 'j': b.json = true; break;
		case 'o': b.ops = true; break;
		case 'b': ok = positive(optarg, &b.read_gbs); break;
		case 'm': ok = positive(optarg, &b.gmacs); break;
		default: return usage("an option that does not exist");
		}
	}
	if (!ok)
		return usage("an option's value is out of range");
	if (argc - optind != 1)
		return usage("name one model");
	if (!b.n_prompt && !b.n_decode)
		return usage("nothing to do with --prompt 0 --decode 0");
	if (b.ops && b.n_counts > 1)
		return usage("--ops takes one number of streams");
	if (b.ops && (b.json || !b.n_prompt))
		return usage("--ops prints a table, and wants a prompt");
	b.model = argv[optind];
	if (run(&b, &err)) {
		fprintf(stderr, "ingot-bench: %s\n", err.text);
		return 1;
	}
	return 0;
}
