/*
 * spans.h: rows of a prompt that are no token's: those of an image, say, as the model's own tower computes them.  The
 * requests of one prompt share them: they are counted, and nothing in them changes.
 */
#pragma once

#include "daemon/engine/model.h"

#include <ingot/params.h>

/* Of the prompt's ids those in the places of the rows count only for tables beside the model's input. */
struct ig_span {
	int32_t first, n;  /* of the prompt's rows; n at most what a step has of one request */
	const float *rows; /* [n, width_outside of the model] */
	/* [n, IG_ROPE_AXES]: by what RoPE turns them along time, height and width, from that of the token
	 * after the one before them on; NULL: by 0, 1, 2, … */
	const int32_t *positions;
	int32_t n_positions; /* by so much the token behind them is further on than the first of them; 0: n */
	bool both_ways; /* they see each other, not only back, in layers that know it */
};

struct ig_spans;

/* Copy and hash the spans of a prompt, which are in their order and do not overlap: on a thread that may compute.
 * The model must be held as long as they are.  0, or -EINVAL, -E2BIG, -ENOTSUP or -ENOMEM with text. */
int ig_spans_create(const struct ig_engine_model *m, const int32_t *prompt, int32_t n_prompt,
		    const struct ig_span *spans, int32_t n, struct ig_spans **out,
		    struct ig_error *err);
struct ig_spans *ig_spans_ref(struct ig_spans *s);
void ig_spans_unref(struct ig_spans *s); /* NULL is fine */
