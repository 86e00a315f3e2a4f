/*
 * checkpoint.h: a model's file or files in any format: metadata, tensors.  Keys, tensor names and
 * the order of rows are GGUF's, which architectures and tokenizers read; readers of other formats
 * (safetensors, MLX) convert to them.  Every count, length and offset is checked against the file's
 * size before it is used; arithmetic on them can't overflow.  Strings and tensor data point into
 * the map and are valid until ig_checkpoint_close.  An open checkpoint is immutable; any thread may
 * read.
 */
#pragma once

#include <ingot/dtype.h>
#include <ingot/error.h>
#include <stdbool.h>

#include "base/dtype.h"

struct ig_checkpoint;

/* Part of a tensor: row i of it has columns first_col … of row
 * (i / n) * period + first_row + i % n of the other. */
struct ig_checkpoint_slice {
	const struct ig_checkpoint_tensor *of;
	int64_t first_row, n, period;
	int64_t first_col;
};

struct ig_checkpoint_tensor {
	const char *name; /* NUL-terminated, owned by the file */
	uint32_t dtype;	  /* enum ig_dtype; only supported types */
	uint32_t n_dims;
	int64_t n_rows, n_cols; /* n_cols is GGUF's ne[0]; n_rows the product of the rest */
	int64_t dims[4];	/* GGUF's ne; 1 from n_dims on */
	const void *data;	/* into the map; NULL: converted row by row, ig_checkpoint_rows */
	uint64_t n_bytes;	/* of all rows */
	const struct ig_checkpoint_slice *slice; /* NULL: it is the file's own */
};

struct ig_arch;

/* Map and check a GGUF file, or a folder (or one file of it) with safetensors, config.json and a
 * tokenizer.  A folder is read by the tables of these architectures (NULL-terminated, each of this
 * build's size; for a GGUF file they may be NULL).  0, or -errno, or -EINVAL with text that names
 * the path, what is wrong and at which offset. */
int ig_checkpoint_open(const char *path, const struct ig_arch *const *archs,
		       struct ig_checkpoint **out, struct ig_error *err);
/* Whether a GGUF file has only a model's head that guesses (MTP), as llama.cpp's converter writes it (mtp-NAME.gguf). */
bool ig_checkpoint_is_head(const struct ig_checkpoint *g);
/* Make it a part of g, a GGUF file of the same architecture and number of layers, which has none: g has its block and
 * keys, and owns it.  0, or -errno with text that names the head's path; g then is as it was, and head still the
 * caller's. */
int ig_checkpoint_add_head(struct ig_checkpoint *g, struct ig_checkpoint *head,
			   struct ig_error *err);
/* Whether the architecture's tables (struct ig_arch_files) are complete. */
bool ig_checkpoint_arch_is_whole(const struct ig_arch *a);
/* Whether this path names a folder or a safetensors file. */
bool ig_checkpoint_is_folder(const char *path);
/* The same over memory that the caller owns; for tests and fuzzing. */
int ig_checkpoint_open_memory(const void *data, size_t size, const char *label,
			      struct ig_checkpoint **out, struct ig_error *err);
/* A folder's files, in memory that the caller owns; for tests and fuzzing. */
struct ig_checkpoint_file {
	const char *name; /* "config.json" */
	const void *data;
	size_t len;
};
int ig_checkpoint_open_files(const struct ig_checkpoint_file *files, size_t n, const char *label,
			     const struct ig_arch *const *archs, struct ig_checkpoint **out,
			     struct ig_error *err);
void ig_checkpoint_close(struct ig_checkpoint *g); /* NULL is fine */

/* The path that it was opened from, or its end; for errors. */
const char *ig_checkpoint_label(const struct ig_checkpoint *g);
/* "GGUF", "safetensors" or "safetensors, MLX". */
const char *ig_checkpoint_format(const struct ig_checkpoint *g);
/* Parts of a model that Ingot leaves out: nothing that computes a token from text needs them. */
enum ig_left_out {
	IG_LEFT_OUT_VISION,
	IG_LEFT_OUT_AUDIO,
	IG_LEFT_OUT_NEXT, /* predicts tokens further on */
	IG_N_LEFT_OUT,
};
/* The part that a tensor of this GGUF name belongs to, n_layers being the model's without those that
 * predict further tokens; -1: none of them. */
int ig_left_out_part(const char *name, uint32_t n_layers);
/* How many of the file's tensors a folder's reader left out of its tables, by part. */
const uint32_t *ig_checkpoint_left_out(const struct ig_checkpoint *g);

/* Of the file, or of all files with tensors. */
uint64_t ig_checkpoint_file_bytes(const struct ig_checkpoint *g);
/* Where the file is mapped, page-aligned; the last page is filled with zeros after the file's end.
 * False for a file that was opened from memory. */
bool ig_checkpoint_map(const struct ig_checkpoint *g, const void **base, uint64_t *n_bytes);

/* 0, -ENOENT when missing, -EINVAL when of another type or out of range. */
int ig_checkpoint_u32(const struct ig_checkpoint *g, const char *key, uint32_t *out,
		      struct ig_error *err);
int ig_checkpoint_f32(const struct ig_checkpoint *g, const char *key, float *out,
		      struct ig_error *err);
int ig_checkpoint_bool(const struct ig_checkpoint *g, const char *key, bool *out,
		       struct ig_error *err);
/* *out is not NUL-terminated. */
int ig_checkpoint_str(const struct ig_checkpoint *g, const char *key, const char **out, size_t *len,
		      struct ig_error *err);
/* Arrays: the number of elements, and one element. */
int ig_checkpoint_array_len(const struct ig_checkpoint *g, const char *key, uint64_t *n,
			    struct ig_error *err);
int ig_checkpoint_array_strs(const struct ig_checkpoint *g, const char *key,
			     int (*each)(void *ctx, uint64_t i, const char *s, size_t len),
			     void *ctx, struct ig_error *err);
/* The elements of an array of integers or bools / of floats as int32_t / float, copied to
 * out[n]. */
int ig_checkpoint_array_i32(const struct ig_checkpoint *g, const char *key, int32_t *out,
			    uint64_t n, struct ig_error *err);
int ig_checkpoint_array_f32(const struct ig_checkpoint *g, const char *key, float *out, uint64_t n,
			    struct ig_error *err);

/* Keys one by one, for copying them. */
struct ig_checkpoint_key {
	const char *name; /* not NUL-terminated */
	size_t name_len;
	uint32_t type;	   /* GGUF's number */
	const void *value; /* in GGUF's format, after the type */
	uint64_t n_bytes;
};
uint64_t ig_checkpoint_n_keys(const struct ig_checkpoint *g);
void ig_checkpoint_key(const struct ig_checkpoint *g, uint64_t i, struct ig_checkpoint_key *out);

uint64_t ig_checkpoint_n_tensors(const struct ig_checkpoint *g);
const struct ig_checkpoint_tensor *ig_checkpoint_tensor(const struct ig_checkpoint *g, uint64_t i);
const struct ig_checkpoint_tensor *ig_checkpoint_find_tensor(const struct ig_checkpoint *g,
							     const char *name);

/* Rows first … first + n - 1 in IG_LAYOUT_ROWS: a pointer into the map, or buf (n *
 * ig_dtype_row_bytes(t->dtype, t->n_cols) bytes), to which they were written.  This joins and
 * transposes a file's parts and converts encodings without kernels.  Any thread. */
const void *ig_checkpoint_rows(const struct ig_checkpoint *g, const struct ig_checkpoint_tensor *t,
			       int64_t first, int64_t n, void *buf);

/* Release the pages of these bytes, which are no longer needed (they were packed). */
void ig_checkpoint_drop_pages(const struct ig_checkpoint *g, const void *data, uint64_t n_bytes);
/* The same for the source of the tensor's rows. */
void ig_checkpoint_drop_tensor(const struct ig_checkpoint *g, const struct ig_checkpoint_tensor *t);

/* Another file of the same folder, mapped until ig_checkpoint_close.  0, -ENOENT (also for a
 * GGUF file), -EINVAL.  Any thread. */
int ig_checkpoint_sibling(const struct ig_checkpoint *g, const char *name, const char **data,
			  size_t *len, struct ig_error *err);
