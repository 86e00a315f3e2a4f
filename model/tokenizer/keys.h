/*
 * keys.h: a folder's vocabulary and chat templates as the keys that a GGUF file has
 * for them.
 */
#pragma once

#include "model/formats/checkpoint.h"

struct ig_tokenizer_keys {
	char *data;
	struct ig_checkpoint *file; /* keys only, over data */
};

/* The keys give the ids that the folder's own files give: they are read back and compared
 * over texts of many scripts.  0, or
 *   -ENOENT   the folder has no tokenizer
 *   -ENOTSUP  GGUF's keys can't say how this one works
 * and other errors of the files.  Zeros in *out on errors. */
int ig_tokenizer_keys_make(const struct ig_checkpoint *folder, struct ig_tokenizer_keys *out,
			   struct ig_error *err);
void ig_tokenizer_keys_finish(struct ig_tokenizer_keys *k); /* zeros are fine */
