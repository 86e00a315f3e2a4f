/*
 * sequence.c: one request's memory, and its way from ids to text: see sequence_private.h.
 * Everything is allocated when the request is submitted, so that no token allocates.  One buffer
 * has the bytes that the stream may have (n_ready), then those held back: the longest prefix of any
 * stop string that the text so far ends with.  A token's logprob is written when all of its text is
 * ready, before that text.
 */
#include "daemon/engine/sequence_private.h"

#include "base/clock.h"
#include "base/utf8.h"
#include "daemon/engine/clients_private.h"
#include "daemon/engine/logprobs.h"
#include "daemon/engine/generation_private.h"
#include "daemon/engine/spans_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FLUSH_BYTES 16	  /* at most what a flush of the detokenizer adds */
#define PREDICTED_MATCH 8 /* a predicted output's beginning is expected as after so long a match */
/* Tokens that may wait for their text without a stop string that holds it back: of the step that
 * filled the ring, of the steps in flight then, and those that the detokenizer holds. */
#define MAX_UNSHOWN 16
#define MAX_UNSHOWN_DRAFTS (MAX_UNSHOWN + 2 * IG_MAX_DRAFT)

/* ---- from a spec ----------------------------------------------------------------- */

/* fail[i]: the length of the longest proper prefix of text[0 … i] that is also its suffix. */
static int stop_init(struct ig_stop *stop, const char *text)
{
	uint32_t k = 0;

	stop->len = (uint32_t)strlen(text);
	stop->fail = calloc(1, stop->len * (sizeof *stop->fail + 1));
	if (!stop->fail)
		return -ENOMEM;
	stop->text = memcpy(stop->fail + stop->len, text, stop->len);
	for (uint32_t i = 1; i < stop->len; i++) {
		while (k && text[i] != text[k])
			k = stop->fail[k - 1];
		if (text[i] == text[k])
			k++;
		stop->fail[i] = k;
	}
	return 0;
}

/* ---- penalties and biases -------------------------------------------------------- */

/* Where the table has a token's entry, or 0 if there is none. */
static uint32_t *find_adjust(const struct ig_seq *s, int32_t id)
{
	uint32_t mask = s->n_adjust_table - 1, at = (uint32_t)id * 2654435761u;

	for (at ^= at >> 15; s->adjust_table[at & mask]; at++)
		if (s->adjusts[s->adjust_table[at & mask] - 1].id == id)
			break;
	return &s->adjust_table[at & mask];
}

/* The entry of a token, added if there is none; adjusts has space for all. */
static struct ig_logit_adjust *adjust_of(struct ig_seq *s, int32_t id)
{
	uint32_t *at = find_adjust(s, id);

	if (!*at) {
		s->adjusts[s->sample.n_adjusts] = (struct ig_logit_adjust){ .id = id };
		*at = ++s->sample.n_adjusts;
	}
	return &s->adjusts[*at - 1];
}

static int make_adjusts(struct ig_seq *s, const struct ig_gen_spec *spec)
{
	struct ig_sample_params *p = &s->sample;
	bool repetition = p->repetition_penalty != 1.0f;
	uint64_t max = spec->sampling.n_biases;

	s->penalties = repetition || p->frequency_penalty != 0 || p->presence_penalty != 0;
	if (s->penalties)
		max += (uint64_t)s->max_output + (repetition ? (uint64_t)s->n_prompt : 0);
	if (max > (uint64_t)ig_tokenizer_n_vocab(s->model->shown.tokenizer))
		max = (uint64_t)ig_tokenizer_n_vocab(s->model->shown.tokenizer);
	if (!max)
		return 0;
	if (max > IG_MAX_STEP_ADJUSTS)
		return -E2BIG;
	s->max_adjusts = (uint32_t)max;
	for (s->n_adjust_table = 2; s->n_adjust_table < 2 * s->max_adjusts;)
		s->n_adjust_table *= 2;
	s->adjusts = malloc(s->max_adjusts * sizeof *s->adjusts);
	s->adjust_table = calloc(s->n_adjust_table, sizeof *s->adjust_table);
	if (!s->adjusts || !s->adjust_table)
		return -ENOMEM;
	for (uint32_t i = 0; i < spec->sampling.n_biases; i++)
		adjust_of(s, spec->sampling.biases[i].id)->bias += spec->sampling.biases[i].bias;
	for (int32_t i = 0; repetition && i < s->n_prompt; i++)
		adjust_of(s, spec->prompt[i])->seen = 1;
	return 0;
}

int32_t ig_seq_first_message(const struct ig_seq *s)
{
	int32_t n = 0;

	while (n < s->n_prompt && !ig_tokenizer_is_end(s->model->tokenizer, s->tokens[n]))
		n++;
	return n < s->n_prompt ? n + 1 : n;
}

void ig_seq_count(struct ig_seq *s, int32_t id)
{
	if (!s->penalties)
		return;
	struct ig_logit_adjust *e = adjust_of(s, id);
	e->n_sampled++;
	e->seen = 1;
}

uint32_t ig_seq_adjusts_then(const struct ig_seq *s, int32_t n, struct ig_logit_adjust *out)
{
	uint32_t n_adjusts = s->sample.n_adjusts;

	if (n_adjusts)
		memcpy(out, s->adjusts, n_adjusts * sizeof *out);
	for (int32_t i = 0; s->penalties && i < n; i++) {
		int32_t id = s->tokens[s->n_tokens + i];
		uint32_t at = *find_adjust(s, id);
		/* those that are not in the table are behind the others */
		for (at = at ? at - 1 : s->sample.n_adjusts; at < n_adjusts; at++)
			if (out[at].id == id)
				break;
		if (at == n_adjusts)
			out[n_adjusts++] = (struct ig_logit_adjust){ .id = id };
		out[at].n_sampled++;
		out[at].seen = 1;
	}
	return n_adjusts;
}

/* Allocate for all logprobs that can wait at once: a stop string holds back few bytes, but with
 * control tokens that have no text any number of tokens. */
static int make_logprobs(struct ig_seq *s)
{
	bool drafts = s->lookup.newest || s->model->draft || s->model->has_mtp;
	int32_t most = drafts ? MAX_UNSHOWN_DRAFTS : MAX_UNSHOWN;

	s->logprob_base = s->n_given = s->n_prompt;
	s->logprob_end = INT32_MAX;
	if (s->n_top < 0 || !s->max_output)
		return 0;
	s->logprob_cap = s->n_stops || s->max_output < most ? s->max_output : most;
	s->logprobs = malloc((size_t)s->logprob_cap * sizeof *s->logprobs);
	if (s->n_top)
		s->logprob_tops =
			malloc((size_t)s->logprob_cap * (size_t)s->n_top * sizeof *s->logprob_tops);
	return s->logprobs && (s->logprob_tops || !s->n_top) ? 0 : -ENOMEM;
}

/* The op's parameters; a top_p above 0 as a double may be 0 as a float. */
static struct ig_sample_params sample_params(const struct ig_sampling *p)
{
	return (struct ig_sample_params){
		.temperature = (float)p->temperature,
		.top_p = (float)p->top_p > 0 ? (float)p->top_p : 1e-30f,
		.top_k = p->top_k,
		.min_p = (float)p->min_p,
		.repetition_penalty =
			p->repetition_penalty > 0 ? (float)p->repetition_penalty : 1.0f,
		.frequency_penalty = (float)p->frequency_penalty,
		.presence_penalty = (float)p->presence_penalty,
		.mask = -1,
		.seed = p->seed,
	};
}

static int make_stops(struct ig_seq *s, char *const *stops)
{
	while (stops && stops[s->n_stops])
		s->n_stops++;
	if (!s->n_stops)
		return 0;
	s->stops = calloc(s->n_stops, sizeof *s->stops);
	for (uint32_t i = 0; s->stops && i < s->n_stops; i++)
		if (stop_init(&s->stops[i], stops[i]) < 0)
			return -ENOMEM;
	return s->stops ? 0 : -ENOMEM;
}

/* Text that is held back, one token more and, with logprobs, the token before it. */
static size_t text_capacity(const struct ig_seq *s)
{
	uint32_t longest = 0;

	for (uint32_t i = 0; i < s->n_stops; i++)
		if (s->stops[i].len > longest)
			longest = s->stops[i].len;
	return longest + 2 * ig_detokenizer_max(s->model->tokenizer) + FLUSH_BYTES;
}

static int32_t max_output_of(const struct ig_gen_spec *spec, uint32_t by_default)
{
	int32_t max = (int32_t)spec->model->n_context - spec->n_prompt;
	uint32_t limit =
		spec->sampling.max_tokens ? (uint32_t)spec->sampling.max_tokens : by_default;

	if (spec->prefill_only || spec->texts)
		return 0;
	return limit && limit < (uint32_t)max ? (int32_t)limit : max;
}

/* The text in which tokens are looked up, and what the next one may be. */
static int make_lookup(struct ig_seq *s)
{
	uint32_t n = (uint32_t)s->n_predicted + (uint32_t)s->n_prompt;

	if (ig_lookup_init(&s->lookup, n + (uint32_t)s->max_output) < 0)
		return -ENOMEM;
	ig_lookup_read(&s->lookup, s->history, n);
	if (s->n_predicted)
		ig_lookup_expect(&s->lookup, 0, PREDICTED_MATCH);
	return 0;
}

static int make_tokens(struct ig_seq *s, const struct ig_gen_spec *spec, bool looks_up)
{
	s->n_predicted = looks_up ? spec->n_predicted : 0;
	s->history = malloc(((size_t)s->n_predicted + (size_t)s->n_prompt + (size_t)s->max_output) *
			    sizeof *s->history);
	if (!s->history)
		return -ENOMEM;
	s->tokens = s->history + s->n_predicted;
	if (s->n_predicted)
		memcpy(s->history, spec->predicted, (size_t)s->n_predicted * sizeof *s->history);
	memcpy(s->tokens, spec->prompt, (size_t)s->n_prompt * sizeof *s->tokens);
	if (spec->texts) {
		s->texts = malloc((size_t)spec->n_texts * sizeof *s->texts);
		if (!s->texts)
			return -ENOMEM;
		memcpy(s->texts, spec->texts, (size_t)spec->n_texts * sizeof *s->texts);
		s->n_texts = spec->n_texts;
	}
	s->n_tokens = s->n_shown = s->n_prompt;
	ig_spans_mark(spec->spans, s->tokens);
	return looks_up && s->max_output > 1 ? make_lookup(s) : 0;
}

int ig_seq_create(const struct ig_gen_spec *spec, uint32_t max_output, bool looks_up,
		  struct ig_seq **out, struct ig_error *err)
{
	const struct ig_engine_model *m = spec->model;
	struct ig_seq *s;
	int rc = ig_spec_check(spec, err);

	if (rc < 0)
		return rc;
	s = calloc(1, sizeof *s);
	if (!s)
		goto no_memory;
	s->shown = m;
	s->model = m->instance;
	snprintf(s->id, sizeof s->id, "%s", spec->id);
	s->origin = spec->origin;
	s->n_prompt = spec->n_prompt;
	s->max_output = max_output_of(spec, max_output);
	s->prefill_only = spec->prefill_only || spec->texts;
	s->wants_report = spec->wants_report;
	s->priority = spec->priority;
	s->deadline_ns = spec->deadline_ns;
	snprintf(s->compare_with, sizeof s->compare_with, "%s", spec->compare_with);
	s->ignore_end = spec->sampling.ignore_end;
	s->n_top = spec->n_top;
	s->sample = sample_params(&spec->sampling);
	rc = make_adjusts(s, spec);
	if (rc == -E2BIG) {
		ig_seq_destroy(s);
		return ig_fail(err, -EINVAL, "penalties of more than %u different tokens",
			       IG_MAX_STEP_ADJUSTS);
	}
	if (rc < 0 || make_stops(s, spec->sampling.stops) < 0)
		goto no_memory;
	s->result.n_prompt = spec->n_prompt;
	s->result.stop_index = -1;
	s->result.report.n_same = -1;
	s->text_cap = text_capacity(s);
	s->text = malloc(s->text_cap);
	s->client = ig_client_create(s->origin);
	if (make_tokens(s, spec, looks_up) < 0 || !s->text || !s->client || make_logprobs(s) < 0)
		goto no_memory;
	if (spec->grammar && !s->prefill_only) {
		s->matcher = ig_grammar_matcher_create(spec->grammar);
		if (!s->matcher)
			goto no_memory;
	}
	ig_detokenizer_init(&s->detokenizer, m->tokenizer);
	memcpy(s->control, spec->shown, spec->n_shown * sizeof *s->control);
	ig_detokenizer_show(&s->detokenizer, s->control, spec->n_shown);
	*out = s;
	return 0;
no_memory:
	ig_seq_destroy(s);
	return ig_fail(err, -ENOMEM, "out of memory for a request of %d tokens", spec->n_prompt);
}

void ig_seq_adopt(struct ig_seq *s, const struct ig_gen_spec *spec)
{
	ig_engine_keep_model(spec->model);
	ig_origin_ref(s->origin);
	s->grammar = spec->grammar ? ig_grammar_ref(spec->grammar) : NULL;
	s->stream = spec->stream;
	s->spans = spec->spans ? ig_spans_ref(spec->spans) : NULL;
	s->vectors = spec->vectors ? ig_vectors_ref(spec->vectors) : NULL;
	atomic_fetch_add(&s->model->n_active, 1);
	s->adopted = true;
}

void ig_seq_destroy(struct ig_seq *s)
{
	if (!s)
		return;
	for (uint32_t i = 0; s->stops && i < s->n_stops; i++)
		free(s->stops[i].fail);
	free(s->stops);
	free(s->adjusts);
	free(s->adjust_table);
	ig_lookup_finish(&s->lookup);
	free(s->history);
	free(s->texts);
	ig_spans_unref(s->spans);
	ig_vectors_unref(s->vectors);
	free(s->text);
	free(s->logprobs);
	free(s->logprob_tops);
	ig_client_drop(s->client);
	ig_grammar_matcher_destroy(s->matcher);
	ig_grammar_unref(s->grammar);
	ig_stream_unref(s->stream);
	if (s->adopted) {
		atomic_fetch_sub(&s->model->n_active, 1);
		ig_engine_release_model(s->shown);
		ig_origin_unref(s->origin);
	}
	free(s);
}

/* ---- logprobs ---------------------------------------------------------------------- */

static struct ig_seq_logprob *logprob_of(const struct ig_seq *s, int32_t token)
{
	return &s->logprobs[(token - s->logprob_base) % s->logprob_cap];
}

int ig_seq_add_logprob(struct ig_seq *s, int32_t id, const float *logits)
{
	struct ig_seq_logprob *logprob;
	size_t at;

	if (s->n_tokens == s->n_given)
		s->logprob_base = s->n_given; /* none waits: start again at the first */
	if (s->n_tokens - s->n_given >= s->logprob_cap)
		return -ENOSPC;
	logprob = logprob_of(s, s->n_tokens);
	at = (size_t)(logprob - s->logprobs) * (size_t)s->n_top;
	logprob->logprob = ig_logprobs(
		logits, (int32_t)s->model->n_logits, ig_tokenizer_n_vocab(s->model->tokenizer), id,
		s->n_top ? s->logprob_tops + at : NULL, s->n_top, &logprob->n_top);
	return 0;
}

/* Whether the next logprob may be written: all text of its token must be ready, and bytes in the
 * detokenizer may still become text of the last token. */
static bool logprob_is_ready(const struct ig_seq *s)
{
	if (s->n_top < 0 || s->n_given >= s->n_shown || s->n_given >= s->logprob_end)
		return false;
	return s->text_done || (logprob_of(s, s->n_given)->text_end <= s->text_at + s->n_ready &&
				(s->n_given + 1 < s->n_shown || !s->detokenizer.n_held));
}

static int give_logprob(struct ig_seq *s)
{
	const struct ig_seq_logprob *from = logprob_of(s, s->n_given);
	struct ig_token_logprob logprob = { .id = s->tokens[s->n_given],
					    .logprob = from->logprob,
					    .text_end = from->text_end,
					    .n_top = from->n_top };
	int rc;

	if (logprob.n_top)
		memcpy(logprob.top,
		       s->logprob_tops + (size_t)(from - s->logprobs) * (size_t)s->n_top,
		       (size_t)logprob.n_top * sizeof *logprob.top);
	rc = ig_stream_put_logprob(s->stream, &logprob);
	if (rc < 0)
		return rc;
	s->given_end = from->text_end;
	s->n_given++;
	return 0;
}

/* The text of the last detokenized token ends here. */
static void end_logprob(struct ig_seq *s)
{
	if (s->n_top >= 0 && s->n_shown > s->n_given)
		logprob_of(s, s->n_shown - 1)->text_end = s->text_at + s->n_text;
}

/* The output ends after n_text bytes: tokens whose text begins there or later have no logprob in
 * the stream. */
static void cut_logprobs(struct ig_seq *s)
{
	uint64_t end = s->text_at + s->n_text, start = s->given_end;
	int32_t i;

	for (i = s->n_given; s->n_top >= 0 && i < s->n_shown; i++) {
		struct ig_seq_logprob *logprob = logprob_of(s, i);
		if (start >= end && logprob->text_end > end)
			break;
		start = logprob->text_end;
		if (logprob->text_end > end)
			logprob->text_end = end;
	}
	s->logprob_end = i;
}

/* ---- text -------------------------------------------------------------------------- */

/* Move ready text into the stream, by whole characters; with logprobs no text before that of its
 * token. */
static void flush(struct ig_seq *s)
{
	size_t done = 0, ready = s->n_ready;

	s->stuck = false;
	while (!s->stuck && logprob_is_ready(s))
		s->stuck = give_logprob(s) < 0;
	if (s->n_top >= 0 && (!s->text_done || s->stuck))
		ready = (size_t)(s->given_end - s->text_at);
	while (done < ready) {
		size_t n = ready - done;
		while (n && ig_stream_put(s->stream, s->text + done, n) < 0) {
			/* not past a first character that fits: the last few one by one */
			n = ig_utf8_cut(s->text + done, n, n > 8 ? n / 2 : n - 1);
		}
		if (!n)
			break;
		done += n;
	}
	if (done < ready)
		s->stuck = true;
	if (!done)
		return;
	memmove(s->text, s->text + done, s->n_text - done);
	s->n_text -= done;
	s->n_ready -= done;
	s->text_at += done;
}

bool ig_seq_has_capacity(const struct ig_seq *s)
{
	size_t ready = s->n_ready;

	if (logprob_is_ready(s)) {
		if (ig_stream_has_logprob_space(s->stream))
			return true;
		ready = (size_t)(s->given_end - s->text_at);
		if (!ready)
			return false;
	}
	/* space for any one character is progress; less may never hold one */
	return ig_stream_has_space(s->stream, ready < 4 ? ready : 4);
}

/* Match the last n bytes of the text.  If a stop string ends in them, the text is cut before
 * it and complete; else all bytes in which no stop string can begin become ready. */
static void match_stops(struct ig_seq *s, size_t n)
{
	uint32_t held = 0;

	for (size_t i = s->n_text - n; s->n_stops && i < s->n_text; i++) {
		const struct ig_stop *found = NULL;
		for (uint32_t k = 0; k < s->n_stops; k++) {
			struct ig_stop *stop = &s->stops[k];
			while (stop->n_matched && s->text[i] != stop->text[stop->n_matched])
				stop->n_matched = stop->fail[stop->n_matched - 1];
			if (s->text[i] == stop->text[stop->n_matched])
				stop->n_matched++;
			if (stop->n_matched == stop->len && (!found || stop->len > found->len))
				found = stop;
		}
		if (found) {
			s->n_text = s->n_ready = i + 1 - found->len;
			cut_logprobs(s);
			s->text_done = true;
			s->result.finish = IG_FINISH_STOP;
			s->result.stop_index = (int32_t)(found - s->stops);
			return;
		}
	}
	for (uint32_t k = 0; k < s->n_stops; k++)
		if (s->stops[k].n_matched > held)
			held = s->stops[k].n_matched;
	s->n_ready = s->n_text - held;
}

/* The text of one more token; an ignored end token has none. */
static size_t put_token(struct ig_seq *s, int32_t id)
{
	if (s->ignore_end && ig_tokenizer_is_end(s->model->tokenizer, id))
		return 0;
	return ig_detokenizer_put(&s->detokenizer, id, s->text + s->n_text);
}

void ig_seq_show(struct ig_seq *s)
{
	size_t n;

	flush(s);
	while (!s->stuck && !s->text_done && s->n_shown < s->n_tokens) {
		n = put_token(s, s->tokens[s->n_shown++]);
		s->n_text += n;
		end_logprob(s);
		match_stops(s, n);
		flush(s);
	}
	if (s->stuck || s->text_done || s->result.finish == IG_FINISH_NONE)
		return;
	/* The rest of a character that max_tokens cuts would have come. */
	if (s->result.finish == IG_FINISH_LENGTH)
		ig_detokenizer_drop(&s->detokenizer);
	n = ig_detokenizer_flush(&s->detokenizer, s->text + s->n_text);
	s->n_text += n;
	end_logprob(s);
	match_stops(s, n);
	s->n_ready = s->n_text; /* the bytes held back are not a stop string */
	s->text_done = true;
	flush(s);
}

void ig_seq_drop_text(struct ig_seq *s)
{
	s->n_text = s->n_ready = 0;
	s->logprob_end = s->n_given;
	s->text_done = true;
	s->stuck = false;
}

int32_t ig_seq_n_output(const struct ig_seq *s)
{
	/* Tokens past a stop string were computed, but are not output. */
	if (s->result.finish == IG_FINISH_STOP && s->text_done)
		return s->n_shown - s->n_prompt;
	return s->n_tokens - s->n_prompt;
}

/* ---- the ledger --------------------------------------------------------------------- */

static float ms_between(int64_t from, int64_t to)
{
	return from && to ? (float)((double)(to - from) * 1e-6) : -1.0f;
}

void ig_seq_row(const struct ig_seq *s, int64_t now_ns, struct ig_ledger_row *row)
{
	static const int32_t status[] = {
		[IG_FINISH_NONE] = 500,	     [IG_FINISH_STOP] = 200,  [IG_FINISH_LENGTH] = 200,
		[IG_FINISH_CANCELLED] = 499, [IG_FINISH_ERROR] = 500,
	};

	const struct ig_prefix_report *report = &s->result.report;

	ig_origin_row(s->origin, now_ns, row);
	snprintf(row->id, sizeof row->id, "%s", s->id);
	snprintf(row->model, sizeof row->model, "%s", s->shown->name);
	snprintf(row->finish, sizeof row->finish, "%s", ig_finish_name(s->result.finish));
	snprintf(row->cancel_reason, sizeof row->cancel_reason, "%s", s->result.cancel_reason);
	if (s->result.finish == IG_FINISH_ERROR)
		snprintf(row->error, sizeof row->error, "%.*s", (int)sizeof row->error - 1,
			 s->result.error.text);
	row->status = status[s->result.finish];
	if (s->result.finish == IG_FINISH_ERROR && s->result.error.code == -ETIME)
		row->status = 504;
	if (s->result.finish == IG_FINISH_ERROR && s->result.error.code == -EAGAIN) {
		row->status = 503; /* its place in the queue is another client's */
		snprintf(row->finish, sizeof row->finish, "refused");
	}
	row->priority = s->priority;
	row->n_prompt = s->n_prompt;
	row->n_cached = s->result.n_cached;
	row->n_output = s->result.n_output;
	row->n_drafted = s->result.n_drafted;
	row->n_accepted = s->result.n_accepted;
	row->n_model_drafted = s->result.n_model_drafted;
	row->n_model_accepted = s->result.n_model_accepted;
	row->n_mtp_drafted = s->result.n_mtp_drafted;
	row->n_mtp_accepted = s->result.n_mtp_accepted;
	row->draft_gain_ms = (float)((double)s->result.draft_gain_ns * 1e-6);
	row->n_restored = s->result.n_restored;
	snprintf(row->cache_reason, sizeof row->cache_reason, "%s",
		 ig_prefix_reason_name(ig_prefix_full_reason(report)));
	snprintf(row->cache_compared, sizeof row->cache_compared, "%s", report->compared);
	row->n_same = report->n_other_key ? report->n_other_key : report->n_same;
	row->queue_ms = ms_between(s->origin->received_ns, s->admitted_ns);
	row->prefill_ms = ms_between(s->admitted_ns, s->first_ns ? s->first_ns : s->read_ns);
	row->decode_ms = ms_between(s->first_ns, s->last_ns);
	row->ttft_ms = ms_between(s->origin->received_ns, s->first_ns);
	memcpy(row->itl, s->itl, sizeof row->itl);
}
