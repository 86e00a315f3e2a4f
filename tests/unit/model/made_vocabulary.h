/*
 * made_vocabulary.h: a byte-level vocabulary of any size, made up, for tests and benches
 * of grammars: every byte, what JSON is made of in odd cuts, words, numbers, pieces of
 * UTF-8, runs of spaces, two tokens of the same bytes, control tokens.
 */
#pragma once

#include "model/tokenizer/tokenizer.h"

enum {
	MADE_END,	  /* <|im_end|> */
	MADE_END_OF_TEXT, /* <|endoftext|> */
	MADE_CALL,	  /* <tool_call> */
	MADE_CALL_END,	  /* </tool_call> */
	MADE_CALLS,	  /* [TOOL_CALLS] */
	MADE_ARGS,	  /* [ARGS] */
	MADE_BYTE,	  /* the byte b is token MADE_BYTE + b */
	N_MADE_LEAST = MADE_BYTE + 256,
};

/* Of n tokens or as many as the fixed ones; those of the bytes in lacking (NULL: none) are
 * other tokens instead.  Out of memory aborts. */
struct ig_tokenizer *made_vocabulary(size_t n, const char *lacking, size_t n_lacking);
