/*
 * spans_private.h: what a sequence has of the rows of its prompt that are no token's (spans.h).  Among its
 * tokens they have ids below 0, the same for all rows of a span, which stand for what the rows are: equal spans have
 * equal ones, others never.  So whatever compares tokens (the prefix index, prompts that wait for each other,
 * reports) tells images apart.  Steps have the ids of the prompt in their place.
 *
 * No step cuts a span, and no prefix that is found ends within one: its rows may see each other both ways.
 */
#pragma once

#include "daemon/engine/sequence_private.h"

#include <stdatomic.h>

struct ig_seq_span {
	int32_t first, end;	  /* rows of the prompt, end excluded */
	int32_t base, next;	  /* what RoPE turns the first one by, and the token behind them */
	const float *rows;	  /* [n, width] */
	const int32_t *positions; /* [n, IG_ROPE_AXES], from base on; NULL: 0, 1, 2, … */
	const int32_t *ids;	  /* [n], of the prompt */
	int32_t id;		  /* below 0: of all rows, among the sequence's tokens */
	bool both_ways;
};

struct ig_spans {
	atomic_uint n_refs;
	const struct ig_model *model;
	int32_t n_prompt, n;
	size_t width;		  /* of a row */
	struct ig_seq_span *list; /* [n] */
	float *rows;		  /* of all */
	int32_t *numbers;	  /* ids and positions of all */
};

/* Any thread.  -EINVAL with text if they are of another prompt or model. */
int ig_spans_check(const struct ig_gen_spec *spec, struct ig_error *err);
/* Put their ids among the prompt's tokens. */
void ig_spans_mark(const struct ig_spans *spans, int32_t *tokens);

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
