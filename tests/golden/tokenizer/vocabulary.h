/* vocabulary.h: opens the tokenizer of a GGUF file, or of a folder with tokenizer.json, tokenizer.model or
 * tekken.json, for the programs that compare it with others. */
#pragma once

#include "model/tokenizer/tokenizer.h"

#define VOCABULARY_MAX_FILES 64

struct vocabulary {
	struct ig_tokenizer *tokenizer;
	struct ig_checkpoint *checkpoint; /* NULL for a folder */
	const char *path;
	char *files[VOCABULARY_MAX_FILES]; /* of the folder */
	size_t n_files;
	double opening_s; /* processor's seconds, without reading a GGUF file's keys */
};

/* 0, or a negative errno after a line on standard error. */
int vocabulary_open(struct vocabulary *v, const char *path);
void vocabulary_close(struct vocabulary *v);
double vocabulary_now(void); /* processor's seconds of this process */
