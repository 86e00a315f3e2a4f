/*
 * llama_peer.h: what programs over llama.cpp's library share (peer_logits.c, bench/embeddings_peer.c).  Not part of the
 * build: each is one source file, compiled against a llama.cpp tree.
 */
#pragma once

#include "llama.h"

#include <stdio.h>
#include <stdlib.h>

/* For llama_log_set: errors alone. */
static inline void peer_quiet(enum ggml_log_level level, const char *text, void *ctx)
{
	(void)ctx;
	if (level >= GGML_LOG_LEVEL_ERROR)
		fputs(text, stderr);
}

/* An error of the program of this name. */
static inline void peer_die(const char *program, const char *what)
{
	fprintf(stderr, "%s: %s\n", program, what);
	exit(1);
}
