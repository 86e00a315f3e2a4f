/* hf_tensors_private.h: shared by hf_tensors.c, which places a folder's tensors, and hf_shapes.c, which finds their shapes. */
#pragma once

#include "model/formats/folder.h"

#include <string.h>

struct ig_hf_entry {
	struct ig_hf_place place;
	const struct ig_st_tensor *t;
	bool second; /* of two halves */
};

struct ig_hf_placing {
	struct ig_checkpoint *g;
	struct ig_folder *f;
	struct ig_hf_entry *entries;
	size_t n_entries;
	uint32_t n_pieces;
	bool shifted; /* norms have their 1 already */
	struct ig_error *err;
};

/* Entries of one tensor, those of a kind in ascending order of experts. */
struct ig_hf_group {
	const struct ig_hf_entry *main, *scales, *biases;
	size_t n, n_scales, n_biases;
};

/* Fails with the file's and the tensor's name; returns code. */
__attribute__((format(printf, 4, 5))) int ig_hf_bad(const struct ig_hf_placing *p, int code,
						    const struct ig_st_tensor *t, const char *fmt,
						    ...);
bool ig_hf_is_mxfp4(const struct ig_hf_group *x);
/* The same of MLX: words of eight codes, [.., words], with bytes as scales, [.., blocks]. */
bool ig_hf_is_mlx_mxfp4(const struct ig_hf_group *x);
/* [rows, columns] of one of the group's tensors; n_dims of GGUF.  Sets the source's dtype and how its rows are taken in
 * m.  -EINVAL or -ENOTSUP with text. */
int ig_hf_shape_of(const struct ig_hf_placing *p, const struct ig_hf_group *x, struct ig_hf_made *m,
		   struct ig_checkpoint_tensor *out);
