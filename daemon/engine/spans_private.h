/*
 * spans_private.h: the rows of a prompt that are no token's (struct ig_span).  A sequence copies them.  Among its
 * tokens they have ids below 0, the same for all rows of a span, which stand for what the rows are: equal spans have
 * equal ones, others never.  So whatever compares tokens (the prefix index, prompts that wait for each other,
 * reports) tells images apart.  Steps have the ids of the prompt in their place.
 *
 * No step cuts a span, and no prefix that is found ends within one: its rows may see each other both ways.
 */
#pragma once

#include "daemon/engine/sequence_private.h"

struct ig_seq_span {
	int32_t first, end;	  /* rows of the prompt, end excluded */
	int32_t base, next;	  /* what RoPE turns the first one by, and the token behind them */
	const float *rows;	  /* [n, width] */
	const int32_t *positions; /* [n, IG_ROPE_AXES], from base on; NULL: 0, 1, 2, … */
	const int32_t *ids;	  /* [n], of the prompt */
	bool both_ways;
};

/* Any thread.  -EINVAL, -E2BIG or -ENOTSUP with text; limits: of the model's program. */
int ig_spans_check(const struct ig_gen_spec *spec, struct ig_error *err);
/* Copy the spec's spans, and put their ids among s's tokens.  -ENOMEM. */
int ig_spans_create(struct ig_seq *s, const struct ig_gen_spec *spec);
void ig_spans_destroy(struct ig_seq *s);

/* ---- the engine's thread ---- */

/* As many of its next n rows as cut no span.  If they end within their first one, all of that, but not more
 * than `most` rows: 0 then. */
int32_t ig_spans_whole_rows(const struct ig_seq *s, int32_t n, int32_t most);
/* The largest number of its tokens, up to n, that ends in no span. */
int32_t ig_spans_outside(const struct ig_seq *s, int32_t n);
/* The tokens before its first span, up to n: what later processes can know by their ids. */
int32_t ig_spans_before(const struct ig_seq *s, int32_t n);
/* The id that a step has of its i-th token. */
int32_t ig_spans_id(const struct ig_seq *s, int32_t i);
/* Rows first … first + n - 1 of the step are s's, whose positions b has. */
void ig_spans_add_rows(struct ig_step_buffer *b, const struct ig_seq *s, int32_t first, int32_t n);
