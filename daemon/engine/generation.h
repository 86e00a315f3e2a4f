/* generation.h: one generation of the engine: its specification, and as it is listed. */
#pragma once

#include "daemon/engine/model.h"
#include "daemon/engine/origin.h"
#include "daemon/engine/sampling.h"
#include "daemon/engine/spans.h"
#include "daemon/engine/stream.h"
#include "daemon/engine/vectors.h"
#include "model/grammar/grammar.h"

#define IG_MAX_SHOWN 16

/* A text of a request for embeddings or scores. */
struct ig_text {
	int32_t n_ids;
	int32_t second; /* from this one on they are of another text than the first; n_ids: none */
};

/* Owned by the caller: the engine copies or references what it needs. */
struct ig_gen_spec {
	char id[64];
	struct ig_origin *origin;
	const struct ig_engine_model *model;
	const int32_t *prompt; /* [n_prompt] */
	int32_t n_prompt;
	/* Of a model of embeddings: the prompt is so many texts, one after the other; vectors, which has a
	 * row for each, gets the results. */
	const struct ig_text *texts; /* [n_texts] */
	int32_t n_texts;
	struct ig_vectors *vectors;
	/* Of this prompt and model.  Protocols have none yet: their requests' images are refused.  NULL: none. */
	struct ig_spans *spans;
	const int32_t *predicted; /* [n_predicted]: what the output may be; it changes no token */
	int32_t n_predicted;
	struct ig_sampling sampling;
	struct ig_grammar *grammar; /* what the text must match; NULL: anything */
	int32_t n_top; /* -1: no logprobs; else with so many alternatives (at most IG_MAX_TOP);
			  the stream must have a ring for them */
	int32_t shown[IG_MAX_SHOWN]; /* control tokens whose text is output */
	uint32_t n_shown;
	int32_t priority;	  /* those with a smaller number come first; 0: the usual one */
	int64_t deadline_ns;	  /* by ig_now_ns: it ends with -ETIME then; 0: none */
	bool prefill_only;	  /* prefill the prompt into the cache, sample nothing */
	bool wants_report;	  /* its result's report has texts */
	char compare_with[64];	  /* the id of the request to compare it with; "": any */
	struct ig_stream *stream; /* a successful submit takes the writer's reference */
};

struct ig_gen_info {
	char id[64], model[129], endpoint[32], client[64], key[IG_KEY_ID_CAP],
		state[16]; /* waiting prefill decode paused */
	int32_t n_prompt, n_prefilled, n_output, priority;
	int32_t n_drafted, n_accepted;	/* see struct ig_gen_result */
	int32_t n_cached;		/* -1: not known yet */
	struct ig_prefix_report report; /* once n_cached is known */
	double age_s;
};
