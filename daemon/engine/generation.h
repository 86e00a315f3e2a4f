/* generation.h: one generation of the engine, as it is asked for and as it is listed. */
#pragma once

#include "daemon/engine/model.h"
#include "daemon/engine/origin.h"
#include "daemon/engine/sampling.h"
#include "daemon/engine/stream.h"
#include "model/grammar/grammar.h"

#define IG_MAX_SHOWN 8

/* All of it is the caller's: what the engine needs of it, it copies or counts. */
struct ig_gen_spec {
	char id[64];
	struct ig_origin *origin;
	const struct ig_engine_model *model;
	const int32_t *prompt; /* [n_prompt] */
	int32_t n_prompt;
	struct ig_sampling sampling;
	struct ig_grammar *grammar; /* what the answer must be; NULL: anything */
	int32_t n_top; /* -1: no log probabilities; else notes in the stream, which must keep
			  some, with so many alternatives (at most IG_MAX_TOP) */
	int32_t shown[IG_MAX_SHOWN]; /* control tokens whose text is part of the answer */
	uint32_t n_shown;
	bool prefill_only;	  /* read the prompt into the cache, draw nothing */
	struct ig_stream *stream; /* the writer's reference passes over with a submit of 0 */
};

struct ig_gen_info {
	char id[64], model[129], endpoint[32], client[64],
		state[16]; /* waiting prefill decode paused */
	int32_t n_prompt, n_prefilled, n_output;
	double age_s;
};
