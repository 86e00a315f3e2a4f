/*
 * tiny_spm.h: a small vocabulary as SentencePiece has them, as a GGUF file in memory; for
 * tests and fuzz targets.
 */
#pragma once

#include "tiny_gguf.h"

#include <stdio.h>
#include <string.h>

enum { /* the ids */
       SPM_UNKNOWN,
       SPM_START,
       SPM_END,
       SPM_BYTE,
       SPM_PIECES = SPM_BYTE + 256,
       SPM_SPACE = SPM_PIECES,
       SPM_H,
       SPM_E,
       SPM_L,
       SPM_O,
       SPM_W,
       SPM_X,
       SPM_ACUTE,
       SPM_SMILE,
       SPM_HE,
       SPM_LL,
       SPM_HELL,
       SPM_LO,
       SPM_HELLO,
       SPM_SPACE_HELLO,
       SPM_SPACE_W,
       SPM_TOOL,
       SPM_SPACES,
       SPM_TURN,
       N_SPM,
};

static const struct tiny_piece {
	const char *text;
	float score;
	int32_t type;
} tiny_pieces[N_SPM - SPM_PIECES] = {
	{ "\xe2\x96\x81", -20, 1 },
	{ "h", -21, 1 },
	{ "e", -22, 1 },
	{ "l", -23, 1 },
	{ "o", -24, 1 },
	{ "w", -25, 1 },
	{ "x", -26, 1 },
	{ "\xc3\xa9", -27, 1 },
	{ "\xf0\x9f\x98\x80", -28, 1 },
	{ "he", -2, 1 },
	{ "ll", -1, 1 },
	{ "hell", -3, 1 },
	{ "lo", -4, 5 },
	{ "hello", -5, 1 },
	{ "\xe2\x96\x81hello", -6, 1 },
	{ "\xe2\x96\x81w", -7, 1 },
	{ "<tool>", 0, 4 },
	{ "\xe2\x96\x81\xe2\x96\x81", 0, 4 },
	{ "<end_of_turn>", 0, 4 },
};

struct tiny_spm {
	const char *model; /* llama or t5 */
	bool no_space;	   /* before a text */
	bool trim;
	bool no_bytes; /* no token stands for a byte */
	/* For refusals: */
	const char *name; /* of the token of byte 0 */
	const char *last; /* the last token */
	float score;	  /* of it, where not 0 */
	int fewer_scores; /* -1: none at all */
	int n_map;	  /* elements of the table of characters */
	uint32_t unknown; /* its id, where not 0 */
};

static inline void tiny_spm_file(struct gw *w, const struct tiny_spm *o)
{
	static const char *const controls[] = { "<unk>", "<s>", "</s>" };
	const char *tokens[N_SPM];
	int32_t types[N_SPM];
	float scores[N_SPM];
	char names[256][8];

	for (int i = 0; i < N_SPM; i++) {
		scores[i] = 0;
		if (i < SPM_BYTE) {
			tokens[i] = controls[i];
			types[i] = i == SPM_UNKNOWN ? 2 : 3;
		} else if (i < SPM_PIECES) {
			snprintf(names[i - SPM_BYTE], sizeof names[0], "<0x%02X>", i - SPM_BYTE);
			tokens[i] = names[i - SPM_BYTE];
			types[i] = o->no_bytes ? 3 : 6;
		} else {
			tokens[i] = tiny_pieces[i - SPM_PIECES].text;
			types[i] = tiny_pieces[i - SPM_PIECES].type;
			scores[i] = tiny_pieces[i - SPM_PIECES].score;
		}
	}
	if (o->name)
		tokens[SPM_BYTE] = o->name;
	if (o->last)
		tokens[N_SPM - 1] = o->last;
	if (o->score != 0)
		scores[N_SPM - 1] = o->score;
	gw_init(w);
	gw_str(w, "tokenizer.ggml.model", o->model);
	gw_strs(w, "tokenizer.ggml.tokens", tokens, N_SPM);
	gw_i32s(w, "tokenizer.ggml.token_type", types, N_SPM);
	if (o->fewer_scores >= 0) {
		size_t n = (size_t)(N_SPM - o->fewer_scores);
		gw_key(w, "tokenizer.ggml.scores", GW_ARRAY);
		gw_number(w, GW_F32, 4);
		gw_number(w, n, 8);
		gw_put(w, scores, n * sizeof *scores);
	}
	if (o->no_space)
		gw_bool(w, "tokenizer.ggml.add_space_prefix", false);
	else if (!strcmp(o->model, "t5"))
		gw_bool(w, "tokenizer.ggml.add_space_prefix", true);
	if (o->trim)
		gw_bool(w, "tokenizer.ggml.remove_extra_whitespaces", true);
	if (o->unknown)
		gw_u32(w, "tokenizer.ggml.unknown_token_id", o->unknown);
	if (o->n_map) {
		gw_key(w, "tokenizer.ggml.precompiled_charsmap", GW_ARRAY);
		gw_number(w, GW_U8, 4);
		gw_number(w, (uint64_t)o->n_map, 8);
		for (int i = 0; i < o->n_map; i++)
			gw_number(w, 0, 1);
	}
}
