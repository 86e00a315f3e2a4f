/*
 * adapter.h: low-rank adapters of a model (LoRA, Hu et al. 2021, arXiv:2106.09685): for some of its
 * matrices W two small ones, A and B, with which a product becomes W x + scale B (A x).  Read from a
 * GGUF file (general.type adapter), or from a folder that PEFT has written (adapter_config.json,
 * adapter_model.safetensors); names and the order of rows become those of the base's checkpoint.
 * What is not supported, or does not fit the base, is refused by name.  An open adapter is immutable.
 */
#pragma once

#include "model/formats/checkpoint.h"

#define IG_ADAPTER_MAX_RANK 1024

struct ig_adapter_part {
	char weight[64]; /* the base's tensor, "blk.0.attn_q.weight" */
	int64_t n_rows, n_cols, rank;
	float scale; /* alpha / rank, or alpha / sqrt(rank) */
	float *a;    /* [rank, n_cols] */
	float *b;    /* [rank, n_rows]: B transposed */
};

struct ig_adapter {
	struct ig_adapter_part *parts; /* in the order of their names */
	uint32_t n_parts;
	uint64_t n_bytes; /* of all a and b */
};

/* base and archs: of ig_checkpoint_open.  0, or -errno with text that names the file, the tensor or the
 * key, and what is wrong. */
int ig_adapter_open(const char *path, const struct ig_checkpoint *base,
		    const struct ig_arch *const *archs, struct ig_adapter **out,
		    struct ig_error *err);
/* The same in memory that the caller owns, for tests and fuzzing: one file is GGUF, two are
 * adapter_config.json and adapter_model.safetensors. */
int ig_adapter_open_files(const struct ig_checkpoint_file *files, size_t n,
			  const struct ig_checkpoint *base, const struct ig_arch *const *archs,
			  struct ig_adapter **out, struct ig_error *err);
void ig_adapter_close(struct ig_adapter *a); /* NULL is fine */
