/*
 * tiny_base.h: a base model for adapters, in memory: two matrices of a llama, of zeros, in a folder of
 * safetensors, of which Q's rows are in another order than in GGUF.  For tests and fuzz targets only.
 */
#pragma once

#include "model/formats/checkpoint.h"
#include "tests/archs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline struct ig_checkpoint *tiny_base(void)
{
	static const char config[] = "{\"model_type\":\"llama\",\"hidden_size\":8,"
				     "\"num_hidden_layers\":1,\"num_attention_heads\":2,"
				     "\"tie_word_embeddings\":true}";
	static const char header[] =
		"{\"model.layers.0.self_attn.q_proj.weight\":{\"dtype\":\"F32\",\"shape\":[8,8],"
		"\"data_offsets\":[0,256]},\"model.layers.0.mlp.down_proj.weight\":{\"dtype\":"
		"\"F32\",\"shape\":[8,4],\"data_offsets\":[256,384]}}";
	static uint8_t file[8 + sizeof header - 1 + 384]; /* outlives the checkpoint */
	const struct ig_checkpoint_file files[] = {
		{ "config.json", config, sizeof config - 1 },
		{ "model.safetensors", file, sizeof file },
	};
	struct ig_checkpoint *base;
	struct ig_error err = { 0 };
	uint64_t n = sizeof header - 1;

	memcpy(file, &n, 8);
	memcpy(file + 8, header, n);
	if (ig_checkpoint_open_files(files, 2, "base", test_archs, &base, &err)) {
		fprintf(stderr, "%s\n", err.text);
		abort();
	}
	return base;
}
