/* logprobs.h: log probabilities from a row of logits. */
#pragma once

#include "daemon/engine/stream.h"

/* What stands for a probability of zero, and for what is no number. */
#define IG_LEAST_LOGPROB (-9999.0f)

/* The log probability of id under the softmax of logits[n_logits], and the n_top
 * likeliest of the ids below n_ids (<= n_logits) in top, descending, of equal ones the
 * smaller id first; *n_found of them are written (n_top, unless there are fewer).  Allocates nothing;
 * a row's result depends on the row alone. */
float ig_logprobs(const float *logits, int32_t n_logits, int32_t n_ids, int32_t id,
		  struct ig_token_prob *top, int32_t n_top, int32_t *n_found);
