/*
 * steps_private.h: what tokenizer.json says of a text's way before and behind the
 * model, put into a tokenizer.
 */
#pragma once

#include "model/tokenizer/tokenizer_private.h"

struct json_t;

struct ig_steps_json { /* each may be NULL */
	const struct json_t *normalizer, *pre_tokenizer, *post_processor, *decoder;
};

struct ig_steps {	   /* what was found besides */
	bool byte_level;   /* the last pre-tokenizer is ByteLevel */
	bool marks_spaces; /* spaces become U+2581 */
	int64_t bos;	   /* comes before a text; -1: nothing does */
};

/* Fills in normalizer, splitter, metaspace, prefix, split_words and adds_space.
 * -ENOTSUP names a part that Ingot does not know. */
int ig_steps_read(const struct ig_steps_json *parts, struct ig_tokenizer *t, bool jit,
		  struct ig_steps *out, struct ig_error *err);

/* The number of bytes written to out (which has room for len), or -1. */
int64_t ig_base64_decode(const char *s, size_t len, unsigned char *out);
