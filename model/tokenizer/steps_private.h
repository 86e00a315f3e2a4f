/*
 * steps_private.h: reads the steps of tokenizer.json before and after the model into a tokenizer.
 */
#pragma once

#include "model/tokenizer/tokenizer_private.h"

struct json_t;

struct ig_steps_json { /* each may be NULL */
	const struct json_t *normalizer, *pre_tokenizer, *post_processor, *decoder;
};

struct ig_steps {	       /* further results */
	bool byte_level;       /* the last pre-tokenizer is ByteLevel */
	bool marks_spaces;     /* spaces become U+2581 */
	int64_t bos;	       /* the token before a text; -1: none */
	int64_t suffix;	       /* after a text; -1: none, or more than one */
	int64_t separators[2]; /* between two texts; [n_separators] */
	unsigned n_separators;
	bool words, normalizes_words; /* BertPreTokenizer, BertNormalizer */
};

/* Fills in normalizer, splitter, metaspace, prefix, split_words and adds_space.
 * -ENOTSUP names a part that Ingot does not support. */
int ig_steps_read(const struct ig_steps_json *parts, struct ig_tokenizer *t, bool jit,
		  struct ig_steps *out, struct ig_error *err);

/* The number of bytes written to out (capacity: len bytes), or -1. */
int64_t ig_base64_decode(const char *s, size_t len, unsigned char *out);
