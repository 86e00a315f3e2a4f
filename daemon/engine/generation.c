/* generation.c: see generation_private.h. */
#include "daemon/engine/generation_private.h"

#include "daemon/engine/instance_private.h"
#include "daemon/engine/spans_private.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static int check_ids(const struct ig_engine_model *m, const char *of, const int32_t *ids, int32_t n,
		     struct ig_error *err)
{
	int32_t n_vocab = ig_tokenizer_n_vocab(m->tokenizer);

	for (int32_t i = 0; i < n; i++)
		if (ids[i] < 0 || ids[i] >= n_vocab)
			return ig_fail(err, -EINVAL, "token %d of the %s is %d; %s has %d tokens",
				       i, of, ids[i], m->name, n_vocab);
	return 0;
}

/* Texts of a model without a cache. */
static int check_texts(const struct ig_gen_spec *spec, struct ig_error *err)
{
	const struct ig_engine_model *m = spec->model;
	int64_t n = 0;

	if (!spec->texts || spec->n_texts < 1 || !spec->vectors || !spec->prompt ||
	    spec->vectors->n_rows != (uint32_t)spec->n_texts ||
	    spec->vectors->n_columns != m->n_results)
		return ig_fail(err, -EINVAL, "%s makes vectors or scores of texts, and no text",
			       m->name);
	for (int32_t i = 0; i < spec->n_texts; i++) {
		const struct ig_text *t = &spec->texts[i];
		if (t->n_ids < 1 || t->second < 0 || t->second > t->n_ids)
			return ig_fail(err, -EINVAL, "text %d has no tokens", i);
		if ((uint32_t)t->n_ids > m->n_context)
			return ig_fail(err, -E2BIG,
				       "text %d has %d tokens, the context of %s is %u", i,
				       t->n_ids, m->name, m->n_context);
		n += t->n_ids;
	}
	if (n != spec->n_prompt)
		return ig_fail(err, -EINVAL, "the texts have %lld tokens, the prompt %d",
			       (long long)n, spec->n_prompt);
	return check_ids(m, "texts", spec->prompt, spec->n_prompt, err);
}

static int check_prompt(const struct ig_gen_spec *spec, struct ig_error *err)
{
	const struct ig_engine_model *m = spec->model;
	const struct ig_model *model = m->instance;
	int rc;

	if (model->whole_texts)
		return check_texts(spec, err);
	if (spec->texts)
		return ig_fail(err, -EINVAL, "%s is no model of embeddings", m->name);
	if (spec->n_prompt <= 0 || !spec->prompt)
		return ig_fail(err, -EINVAL, "the prompt has no tokens");
	if ((uint32_t)spec->n_prompt > m->n_context)
		return ig_fail(err, -E2BIG, "the prompt has %d tokens, the context of %s is %u",
			       spec->n_prompt, m->name, m->n_context);
	if ((uint32_t)spec->n_prompt == m->n_context)
		return ig_fail(err, -E2BIG,
			       "the prompt has %d tokens, which fills the context of %s, %u",
			       spec->n_prompt, m->name, m->n_context);
	if ((uint32_t)spec->n_prompt > model->max_kv_tokens)
		return ig_fail(err, -E2BIG,
			       "the prompt has %d tokens, the cache holds %u of %s; "
			       "kvcache.arena sets its size",
			       spec->n_prompt, model->max_kv_tokens, m->name);
	if (spec->n_predicted < 0 || (uint32_t)spec->n_predicted > m->n_context)
		return ig_fail(err, -E2BIG, "the prediction has %d tokens, the context of %s is %u",
			       spec->n_predicted, m->name, m->n_context);
	rc = check_ids(m, "prompt", spec->prompt, spec->n_prompt, err);
	if (!rc)
		rc = ig_spans_check(spec, err);
	return rc ? rc : check_ids(m, "prediction", spec->predicted, spec->n_predicted, err);
}

static int check_biases(const struct ig_sampling *p, const struct ig_engine_model *m,
			struct ig_error *err)
{
	int32_t n_vocab = ig_tokenizer_n_vocab(m->tokenizer);

	if (p->n_biases > IG_MAX_BIASES)
		return ig_fail(err, -EINVAL, "logit_bias has %u tokens; %d are allowed",
			       p->n_biases, IG_MAX_BIASES);
	for (uint32_t i = 0; i < p->n_biases; i++)
		if (p->biases[i].id < 0 || p->biases[i].id >= n_vocab ||
		    !(fabsf(p->biases[i].bias) <= 100))
			return ig_fail(err, -EINVAL,
				       "logit_bias gives token %d %g; %s has tokens 0 to %d, "
				       "a bias is from -100 to 100",
				       p->biases[i].id, (double)p->biases[i].bias, m->name,
				       n_vocab - 1);
	return 0;
}

static int check_stops(char *const *stops, struct ig_error *err)
{
	for (size_t i = 0; stops && stops[i]; i++) {
		size_t n = strlen(stops[i]);
		if (i == IG_MAX_STOPS)
			return ig_fail(err, -EINVAL, "more than %d stop strings", IG_MAX_STOPS);
		if (!n || n > IG_MAX_STOP_BYTES)
			return ig_fail(err, -EINVAL,
				       "stop string %zu has %zu bytes; 1 to %d are allowed", i + 1,
				       n, IG_MAX_STOP_BYTES);
	}
	return 0;
}

static int check_sampling(const struct ig_sampling *p, struct ig_error *err)
{
	const struct {
		const char *name;
		double value, min, max;
		bool above;
	} ranges[] = {
		{ "temperature", p->temperature, 0, 2 },
		{ "top_p", p->top_p, 0, 1, true },
		{ "min_p", p->min_p, 0, 1 },
		{ "repetition_penalty", p->repetition_penalty, 0, 10 },
		{ "frequency_penalty", p->frequency_penalty, -2, 2 },
		{ "presence_penalty", p->presence_penalty, -2, 2 },
	};

	if (p->max_tokens < 0)
		return ig_fail(err, -EINVAL, "max_tokens is %d; it must not be negative",
			       p->max_tokens);
	if (p->top_k < 0)
		return ig_fail(err, -EINVAL, "top_k is %d; it must not be negative", p->top_k);
	for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
		double v = ranges[i].value, min = ranges[i].min, max = ranges[i].max;
		if (v >= min && v <= max && !(ranges[i].above && v == min))
			continue;
		return ig_fail(err, -EINVAL, "%s is %g; it must be from %g to %g%s", ranges[i].name,
			       v, min, max, ranges[i].above ? ", but not 0" : "");
	}
	return check_stops(p->stops, err);
}

int ig_spec_check(const struct ig_gen_spec *spec, struct ig_error *err)
{
	const struct ig_engine_model *m = spec->model;
	const struct ig_model *model = m->instance;
	int32_t n_vocab = ig_tokenizer_n_vocab(m->tokenizer);
	int rc = check_prompt(spec, err);

	if (rc || (rc = check_sampling(&spec->sampling, err)) ||
	    (rc = check_biases(&spec->sampling, m, err)))
		return rc;
	if (!spec->stream)
		return ig_fail(err, -EINVAL, "the request has no stream");
	if (spec->n_top < -1 || spec->n_top > IG_MAX_TOP)
		return ig_fail(err, -EINVAL, "n_top is %d; it must be from -1 to %d", spec->n_top,
			       IG_MAX_TOP);
	if (spec->n_top >= 0 && !ig_stream_has_logprobs(spec->stream))
		return ig_fail(err, -EINVAL,
			       "log probabilities are requested, but the stream has no ring for "
			       "them");
	if (spec->n_top >= 0 && !model->gives_logits)
		return ig_fail(err, -EINVAL,
			       "log probabilities of %s are not available: memory.budget "
			       "has no space for them",
			       m->name);
	if (spec->n_shown > IG_MAX_SHOWN)
		return ig_fail(err, -EINVAL, "%u control tokens are to be shown; %d are possible",
			       spec->n_shown, IG_MAX_SHOWN);
	for (uint32_t i = 0; i < spec->n_shown; i++)
		if (spec->shown[i] < 0 || spec->shown[i] >= n_vocab)
			return ig_fail(err, -EINVAL,
				       "control token %d is to be shown; %s has tokens 0 to %d",
				       spec->shown[i], m->name, n_vocab - 1);
	if (spec->grammar && spec->sampling.ignore_end)
		return ig_fail(err, -EINVAL,
			       "ignore_end with a grammar, which defines where the output ends");
	return 0;
}
