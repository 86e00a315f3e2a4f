/* generation.h: one generation of the engine, as it is asked for and as it is listed. */
#ifndef INGOT_ENGINE_GENERATION_H
#define INGOT_ENGINE_GENERATION_H

#include "daemon/engine/model.h"
#include "daemon/engine/stream.h"
#include "model/grammar/grammar.h"

#define IG_MAX_BIASES 1024
#define IG_MAX_SHOWN 8
#define IG_MAX_STOPS 16
#define IG_MAX_STOP_BYTES 4096

struct ig_gen_spec {
	const struct ig_engine_model *model; /* held by the caller; the engine takes its own hold */
	int32_t *prompt; /* [n_prompt], malloc'd; the engine's from a submit that returns 0 */
	int32_t n_prompt;
	int32_t max_tokens;	  /* 0: up to the context (or scheduler.max_output_tokens) */
	float temperature;	  /* 0 … 2 */
	float top_p;		  /* (0, 1] */
	int32_t top_k;		  /* 0: off */
	float min_p;		  /* [0, 1]; 0: off */
	float repetition_penalty; /* (0, 10]; 0 and 1: off.  Of the prompt's tokens too */
	float frequency_penalty, presence_penalty; /* -2 … 2; of the answer's tokens */
	const struct ig_bias {			   /* added to tokens' logits; ids differ; copied */
		int32_t id;
		float bias; /* -100 … 100 */
	} *biases;
	uint32_t n_biases; /* at most IG_MAX_BIASES */
	uint64_t seed;	   /* the caller draws one when the client gave none */
	char **stops;	   /* NULL-terminated, malloc'd; passes over like prompt; may be NULL */
	struct ig_grammar *grammar; /* what the answer must be; its reference passes over; NULL */
	int32_t n_top; /* -1: no log probabilities; else notes in the stream, which must keep
			  some, with so many alternatives (at most IG_MAX_TOP) */
	int32_t shown[IG_MAX_SHOWN]; /* control tokens whose text is part of the answer */
	uint32_t n_shown;
	bool prefill_only; /* read the prompt into the cache, draw nothing */
	bool ignore_end;   /* end tokens do not end it, and give no text; not with a grammar */
	struct ig_stream *stream; /* the writer's reference passes over */
	/* For the ledger; the engine copies them. */
	char id[64], endpoint[32], client[64], key[40];
	int64_t received_ns, received_wall_ns;
};

struct ig_gen_info {
	char id[64], model[129], endpoint[32], client[64],
		state[16]; /* waiting prefill decode paused */
	int32_t n_prompt, n_prefilled, n_output;
	double age_s;
};

#endif
