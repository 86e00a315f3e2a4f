/*
 * step.h: the device's copy of a step, buffer 1 of every kernel.
 *
 * A head, then arrays, whose offsets in bytes from the head (multiples of 16) are in the head.
 * runtime/gpu/step.c writes it, kernels read it with step_at (core/row.h).
 */
#pragma once

#include "shared_types.h"

#define STEP_MAX_GROUPS 4
#define STEP_BLOCK_TOKENS 16
#define STEP_BLOCK_BITS 12
#define STEP_RANGE 256 /* positions that one partial of attention covers */
#define STEP_NONE 0xffffffffu
/* Whether the attention of a sequence's rows is split over its ranges: few rows always, more where
 * it is long, or a few threadgroups would go through all of it one token after another. */
#define STEP_FEW_ROWS 16
#define STEP_SPLIT_ROWS 128
#define STEP_SPLIT_RANGES 4
#define STEP_SPLITS(rows, ranges)                                                                  \
	((rows) <= STEP_FEW_ROWS || ((rows) <= STEP_SPLIT_ROWS && (ranges) >= STEP_SPLIT_RANGES))

/* One cache group: block tables and the layout of a block, in bytes.  Of a group of state a row of the
 * tables has the parts of a state: first those that the rows of each sequence begin with, STEP_NONE for zeros,
 * then those that each segment leads to; layer_stride is the number of parts of a layer. */
struct step_kv {
	ulong block_bytes;
	uint tables; /* place of uint [n_seqs, max_blocks]; of state [n_seqs + segments, max_blocks] */
	uint max_blocks;
	uint layer_stride, v_offset, head_stride, token_stride;
};
SHARED_SIZE(step_kv, 32);

/* As struct ig_sample_params. */
struct step_sample {
	float temperature, top_p, min_p;
	int top_k;
	float repetition_penalty, frequency_penalty, presence_penalty;
	int mask;
	uint first_adjust, n_adjusts;
	int position;
	uint reserved;
	uint seed_low, seed_high;
};
SHARED_SIZE(step_sample, 56);

/* As struct ig_logit_adjust. */
struct step_adjust {
	int id;
	uint n_sampled, seen;
	float bias;
};
SHARED_SIZE(step_adjust, 16);

struct step_copy {
	ulong dst, src; /* addresses */
	uint n_bytes;	/* a multiple of 16 */
	uint reserved;
};
SHARED_SIZE(step_copy, 24);

struct step_head {
	uint n_rows, n_seqs, n_logit_rows;
	uint n_copies;
	uint ids, prev_ids; /* slots of the sampled ids: this step's, the previous one's */
	uint want_logits;
	uint mask_words; /* length of a mask's row */
	/* places */
	uint token_ids;	 /* int [n_rows] */
	uint token_from; /* int [n_rows]: -1, or an index into the last step's ids */
	uint positions;	 /* int [n_rows] */
	uint row_seq;	 /* int [n_rows] */
	uint seq_lens;	 /* int [n_seqs] */
	uint seq_rows;	 /* int [n_seqs + 1]: first row of each sequence */
	uint logit_rows; /* int [n_logit_rows] */
	/* uint [n_rows]: index of the row's first partial, one for each range from 0 to
	 * that of the last position that it may see; STEP_NONE: its sequence loops. */
	uint partials;
	uint sample;  /* step_sample [n_logit_rows] */
	uint adjusts; /* step_adjust [] */
	uint masks;   /* uint [, mask_words] */
	uint copies;  /* step_copy [n_copies] */
	uint slabs;   /* addresses by slab number */
	/* int [n_rows]: the row's adapter, negative: none; only in steps in which a row has one */
	uint row_adapter;
	/* Only with groups of state: rows of a sequence between two of its states. */
	uint seq_segments; /* uint [n_seqs + 1]: first segment of each sequence */
	uint segment_ends; /* uint []: the row behind each segment */
	uint row_types;	   /* int [n_rows]: of the rows' texts; 0: all are of type 0 */
	/* int [n_rows]: the last position that attention with ATTENTION_SPANS lets each row see; of a step
	 * without rows that see ahead the place of positions */
	uint sees_to;
	/* Only in steps with rows that are no token's, else 0. */
	uint rope_positions; /* int [n_rows, 3]: what rope_table turns a row by, along each axis */
	uint outside;	     /* addresses [n_rows]: of a row's embedding; 0: it is its token's */
	/* Only in steps with the head that guesses. */
	uint n_guess_rows;
	uint next_ids;	 /* int [n_rows]: the token after each row; -1 - i: that of logit row i */
	uint guess_rows; /* int [n_guess_rows]: their logit rows */
	uint reserved;
	SHARED_STRUCT(step_kv) kv[STEP_MAX_GROUPS];
};
SHARED_SIZE(step_head, 256);

/* Sampled ids are in slots, one for each step in flight: those of logit rows, then those of guesses, max_logit_rows
 * of each. */
#define STEP_ID_HALVES 2

#if defined(__METAL_VERSION__) || defined(MSL_H)
/* The rows of a value; row_class: enum ig_row_class. */
METAL_FUNC uint step_rows(device const step_head *step, uint row_class)
{
	return row_class == 0 ? step->n_rows :
	       row_class == 1 ? step->n_logit_rows :
				step->n_guess_rows;
}
#endif
