/*
 * imatrix.h: reads importance matrices: for each column of a model's matrices the mean square of
 * the activations that met it in a sample of texts.  `ingot convert` weights squared errors with
 * them.  Both of llama.cpp's formats are read: GGUF files of type "imatrix", and the older binary
 * ones.  A file is mapped; all counts, lengths and values are checked when it is opened.  An open
 * one is immutable; any thread may read.
 */
#pragma once

#include "model/formats/checkpoint.h"

struct ig_imatrix;

/* 0, or -errno with text that names the path and what is wrong. */
int ig_imatrix_open(const char *path, struct ig_imatrix **out, struct ig_error *err);
void ig_imatrix_close(struct ig_imatrix *m); /* NULL is fine */

/* Whether each entry is of a tensor of this model, with a value for each column (of each expert);
 * -EINVAL names the first that is not. */
int ig_imatrix_check(const struct ig_imatrix *m, const struct ig_checkpoint *model,
		     struct ig_error *err);

/* Weights of the columns of t, which ig_imatrix_check passed, to out[dims[2] * n_cols]: above 0,
 * of about 1 on average over a matrix; all 1 where no activation was counted.  False, and out is
 * unchanged: the file has none for t. */
bool ig_imatrix_weights(const struct ig_imatrix *m, const struct ig_checkpoint_tensor *t,
			float *out);

const char *ig_imatrix_label(const struct ig_imatrix *m); /* the end of its path */
uint32_t ig_imatrix_n_entries(const struct ig_imatrix *m);
uint32_t ig_imatrix_n_chunks(const struct ig_imatrix *m); /* of text; 0: unknown */
/* The name of the texts' file, not NUL-terminated; false: unknown. */
bool ig_imatrix_dataset(const struct ig_imatrix *m, const char **s, size_t *len);
