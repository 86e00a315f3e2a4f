/* sampling.h: how a request's tokens are sampled and what ends them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define IG_MAX_BIASES 1024
#define IG_MAX_STOPS 16
#define IG_MAX_STOP_BYTES 4096 /* of one stop string */

struct ig_bias {
	int32_t id;
	float bias; /* -100 … 100 */
};

struct ig_sampling {
	double temperature;	   /* 0 … 2 */
	double top_p;		   /* (0, 1] */
	int32_t top_k;		   /* 0: off */
	double min_p;		   /* [0, 1]; 0: off */
	double repetition_penalty; /* (0, 10]; 0 and 1: off.  Of the prompt's tokens too */
	double frequency_penalty, presence_penalty; /* -2 … 2; of the answer's tokens */
	struct ig_bias *biases;			    /* added to tokens' logits; ids differ */
	uint32_t n_biases;
	uint64_t seed;
	int32_t max_tokens; /* 0: up to the context (or scheduler.max_output_tokens) */
	char **stops;	    /* NULL-terminated; NULL: none */
	bool ignore_end;    /* end tokens do not end it, and give no text; not with a grammar */
};
