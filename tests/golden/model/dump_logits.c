/*
 * dump_logits.c: all logits of a run along a golden's ids, for truth.py --against.
 *
 *   dump_logits MODEL.gguf GOLDEN DUMP [--isa I] [--activations f32|auto] [--kv TYPES]
 *
 * DUMP holds float32 in the host's order, [prompt, step, vocabulary].  Modules are found
 * through INGOT_MODULE_PATH, else in the build's own folders.
 */
#include "base/dtype.h"
#include "tests/golden/model/golden.h"
#include "tests/golden/model/stepper.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

static int write_at(FILE *f, const struct ig_golden *g, uint32_t prompt, uint32_t step,
		    const float *logits)
{
	off_t at = ((off_t)prompt * g->n_steps + step) * g->n_vocab * (off_t)sizeof *logits;

	if (fseeko(f, at, SEEK_SET) ||
	    fwrite(logits, sizeof *logits, g->n_vocab, f) != g->n_vocab) {
		perror("dump_logits: the dump");
		return -1;
	}
	return 0;
}

/* One prompt after another; by the rule of invariance the order changes nothing. */
static int dump(struct ig_stepper *s, const struct ig_golden *g, FILE *f)
{
	for (uint32_t i = 0; i < g->n_prompts; i++) {
		const struct ig_golden_prompt *p = &g->prompts[i];
		int seq;

		ig_stepper_reset(s);
		seq = ig_stepper_add(s, p->n_ids + g->n_steps);
		if (seq < 0 ||
		    ig_stepper_put(s, seq, p->ids, (int32_t)p->n_ids, &ig_stepper_greedy))
			goto fail;
		for (uint32_t t = 0;; t++) {
			if (ig_stepper_run(s, true))
				goto fail;
			if (write_at(f, g, i, t, ig_stepper_logits(s, 0)))
				return -1;
			if (t + 1 == g->n_steps)
				break;
			if (ig_stepper_put(s, seq, &p->forced[t], 1, &ig_stepper_greedy))
				goto fail;
		}
	}
	return 0;
fail:
	fprintf(stderr, "dump_logits: a step was refused\n");
	return -1;
}

static int usage(void)
{
	fprintf(stderr, "usage: dump_logits MODEL.gguf GOLDEN DUMP [--isa I] "
			"[--activations f32|auto] [--kv TYPES]\n");
	return 2;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "isa", required_argument, NULL, 'i' },
		{ "activations", required_argument, NULL, 'a' },
		{ "kv", required_argument, NULL, 'k' },
		{ 0 },
	};
	struct ig_stepper_options o = {
		.k_dtype = IG_F16, .v_dtype = IG_F16, .max_seqs = 1, .shuffle = 1
	};
	struct ig_stepper_model model = { 0 };
	struct ig_stepper *s = NULL;
	struct ig_golden g = { 0 };
	struct ig_error err = { 0 };
	FILE *f = NULL;
	int c, rc = 1;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'i')
			o.isa = optarg;
		else if (c == 'a')
			o.activations = optarg;
		else if (c != 'k' || !ig_cache_dtypes(optarg, &o.k_dtype, &o.v_dtype))
			return usage();
	}
	if (argc - optind != 3)
		return usage();
	if (ig_golden_open(argv[optind + 1], &g, &err) ||
	    ig_stepper_model_open(&model, argv[optind], NULL, &err))
		goto fail;
	for (uint32_t i = 0; i < g.n_prompts; i++)
		if (g.prompts[i].n_ids > o.max_rows)
			o.max_rows = g.prompts[i].n_ids;
	o.max_context = o.max_rows + g.n_steps;
	o.cache_tokens = o.max_context;
	if (model.plan->info.n_vocab != g.n_vocab) {
		ig_fail(&err, -1, "the golden is of a model with another vocabulary");
		goto fail;
	}
	if (ig_stepper_open(&model, &o, &s, &err))
		goto fail;
	fprintf(stderr, "dump_logits: %s\n", ig_stepper_describe(s));
	f = fopen(argv[optind + 2], "wb");
	if (!f) {
		perror(argv[optind + 2]);
		goto out;
	}
	if (dump(s, &g, f))
		goto out;
	rc = 0;
	goto out;
fail:
	fprintf(stderr, "dump_logits: %s\n", err.text);
out:
	if (f && fclose(f)) {
		perror(argv[optind + 2]);
		rc = 1;
	}
	ig_stepper_close(s);
	ig_stepper_model_close(&model);
	ig_golden_close(&g);
	return rc;
}
