/*
 * folder.h: a model in the format of Hugging Face and MLX: a folder with config.json, tensors in one
 * or more safetensors files, a tokenizer.
 *
 *   folder.c     opens the files and calls the parts below
 *   hf_tensors.c maps tensors of the files to GGUF's
 *   hf_shapes.c  their types and shapes
 *   hf_config.c  config.json: the architecture, and keys that all architectures share
 *   hf_keys.c    hyper-parameters as GGUF keys, by the architecture's table
 *   hf_reranker.c rerankers that are made of a model that generates text
 *   hf_names.c   GGUF's names of tensors, by the architecture's table
 *   hf_rows.c    converts rows
 *
 * Private to these files and to checkpoint.c.
 */
#pragma once

#include <ingot/arch_files.h>

#include "model/formats/checkpoint_private.h"
#include "model/formats/safetensors.h"

#include <pthread.h>
#include <stdatomic.h>

#define IG_HF_MAX_LAYERS 1024 /* as the architectures allow */
#define IG_HF_MAX_EXPERTS 1024

/* A file of the folder. */
struct ig_folder_file {
	char *name;
	const uint8_t *base;
	uint64_t size;
	bool mapped;
};

struct ig_hf_part {
	const struct ig_st_tensor *weight;
	const struct ig_st_tensor *scales, *biases; /* MLX's groups, MXFP4's scales; or NULL */
	int64_t first_row;			    /* of the piece's rows, within weight's */
};

/* Heads of n rows from the first on that are reordered from n_groups groups of them; n 0: none are. */
struct ig_hf_tiles {
	int64_t first, n;
	uint32_t n_groups, n_heads;
};

/* The file's index of index i of GGUF. */
static inline int64_t ig_hf_in_groups(int64_t i, const struct ig_hf_tiles *t)
{
	int64_t head;

	if (!t->n || i < t->first)
		return i;
	head = (i - t->first) / t->n;
	head = head % t->n_groups * (t->n_heads / t->n_groups) + head / t->n_groups;
	return t->first + head * t->n + (i - t->first) % t->n;
}

/* Rows of n_heads heads, each with some rows of each section; n_heads 0: they are in order. */
struct ig_hf_sections {
	uint32_t n_heads, n_sections;
	int64_t head_rows;   /* of the file, of a head */
	int64_t n[3], at[3]; /* a section's rows of a head, and where they begin among the head's */
};

/* The file's index of row i of GGUF, which has section after section. */
static inline int64_t ig_hf_in_sections(int64_t i, const struct ig_hf_sections *s)
{
	for (uint32_t k = 0; s->n_heads && k < s->n_sections; k++) {
		if (i < s->n_heads * s->n[k])
			return i / s->n[k] * s->head_rows + s->at[k] + i % s->n[k];
		i -= s->n_heads * s->n[k];
	}
	return i;
}

struct ig_hf_made {
	struct ig_hf_part *pieces; /* [n_pieces], in the order of rows; NULL: no conversion */
	uint32_t n_pieces;
	uint32_t source;    /* dtype of the pieces' rows */
	int64_t piece_rows; /* rows of the tensor in each piece */
	int64_t head_rows;  /* rows of a head, whose halves are interleaved; 0: unchanged */
	bool transposed;    /* the file's columns are the tensor's rows */
	int64_t step;	    /* of the file's rows, or of a vector's values; 2: others are between */
	int64_t skip;	    /* of them, before the first */
	float add;	    /* to every value; the tensor is then F32 */
	bool negative_exp;  /* of every value of a vector */
	struct ig_hf_tiles rows, cols;
	struct ig_hf_sections sections;
};

/* Convert rows first … first + n - 1 of tensor t to buf. */
void ig_hf_make_rows(const struct ig_checkpoint *g, uint32_t t, int64_t first, int64_t n,
		     void *buf);

/* The file's index of row i, or value i of a vector, of GGUF: in a head of n, the two halves are
 * interleaved; n 0: they are in order. */
static inline int64_t ig_hf_in_pairs(int64_t i, int64_t n)
{
	return n ? i - i % n + i % n % 2 * (n / 2) + i % n / 2 : i;
}

/* Entry i of a module's table with entries of entry_bytes, cut or zero-filled to size. */
static inline void ig_hf_entry(void *out, size_t size, const void *table, uint32_t i,
			       uint32_t entry_bytes)
{
	memset(out, 0, size);
	memcpy(out, (const char *)table + (size_t)i * entry_bytes,
	       entry_bytes < size ? entry_bytes : size);
}

#define IG_HF_MAX_VECTORS 4

/* A vector of each layer that is in no file. */
struct ig_hf_vectors {
	char name[64]; /* %u: the layer */
	uint32_t n;
	float *values; /* [n], malloced */
};

/* What config.json tells about the tensors. */
struct ig_hf_config {
	struct ig_arch_files files; /* the architecture's tables */
	const char *gguf;	    /* general.architecture */
	/* Heads of values of recurrent layers, their groups, which are heads of keys, all their values,
	 * and a key's; 0: none. */
	uint32_t n_value_heads, n_value_groups, n_values, key_dim;
	uint32_t n_layers, n_heads, n_kv_heads, head_dim, n_experts;
	uint32_t n_positions; /* context_length */
	uint32_t value_dim;   /* of latent attention's heads */
	uint32_t n_next;      /* layers behind them that predict further tokens */
	bool head;	/* the first of these is read: the architecture knows it, and it is whole */
	bool tied;	/* lm_head is the embedding */
	bool no_output; /* a classifier: there is no lm_head */
	uint32_t
		n_scores; /* rows of the output matrix that are a reranker's, cls.output; 0: none */
	uint32_t score_rows[2];
	float *rope_factors; /* [head_dim / 2], malloced; or NULL */
	struct ig_hf_vectors vectors[IG_HF_MAX_VECTORS];
	uint32_t n_vectors;
	bool quantised;	      /* MLX's */
	json_t *quantization; /* MLX's object, borrowed from root; or NULL */
	json_t *root;
};

/* Read and check config.json, and convert it to g's keys.  label names the file. */
int ig_hf_config_read(struct ig_checkpoint *g, const struct ig_arch *const *archs, const char *text,
		      size_t len, const char *label, struct ig_hf_config *out,
		      struct ig_error *err);
void ig_hf_config_finish(struct ig_hf_config *c);

#define IG_HF_NAME_BYTES 64

enum ig_hf_kind { IG_HF_MAIN, IG_HF_SCALES, IG_HF_BIASES }; /* the last is MLX's */

/* A file's tensor in GGUF's terms. */
struct ig_hf_place {
	char name[IG_HF_NAME_BYTES]; /* in GGUF; empty: not needed */
	int32_t part;		     /* then: enum ig_left_out; -1: of no part */
	enum ig_hf_kind kind;
	uint32_t flags; /* enum ig_tensor_flags */
	int32_t expert; /* -1: not of one expert */
};

/* second: the second half of a tensor with IG_TENSOR_TWO.  0, or -ENOTSUP with text: not a part of
 * this architecture. */
int ig_hf_name(const struct ig_hf_config *c, const char *hf, bool second, const char *label,
	       struct ig_hf_place *out, struct ig_error *err);
/* Whether the tensor is of a layer that predicts further tokens. */
bool ig_hf_is_next(const struct ig_hf_config *c, const char *hf);
/* Count c's head among g's blocks: its keys say so, as a GGUF file's do. */
int ig_hf_put_head(struct ig_checkpoint *g, struct ig_hf_config *c, const char *label,
		   struct ig_error *err);

/* Fill g's tensors from the files' headers, and index them and the keys. */
int ig_hf_place_tensors(struct ig_checkpoint *g, struct ig_error *err);

#define IG_FOLDER_MAX_SIBLINGS 16

struct ig_folder {
	char dir[IG_LABEL_BYTES];		/* for errors */
	int dir_fd;				/* -1: given files */
	const struct ig_checkpoint_file *given; /* in the caller's memory */
	size_t n_given;
	struct ig_folder_file *files; /* with tensors */
	struct ig_st_file *headers;   /* [n_files] */
	uint32_t n_files;
	struct ig_hf_config config;
	struct ig_hf_made *made;   /* [n_tensors] */
	struct ig_hf_part *pieces; /* those of all tensors */
	void **owned;		   /* keys and their values */
	size_t n_owned;
	pthread_mutex_t lock; /* over the siblings */
	struct ig_folder_file siblings[IG_FOLDER_MAX_SIBLINGS];
	uint32_t n_siblings;
	atomic_bool warned; /* about a rounded scale */
};

/* Fill g from the folder: path is the folder, or a safetensors file or index in one; NULL: from
 * files in the caller's memory. */
int ig_folder_read(struct ig_checkpoint *g, const struct ig_arch *const *archs, const char *path,
		   const struct ig_checkpoint_file *files, size_t n, struct ig_error *err);
void ig_folder_finish(struct ig_checkpoint *g);
int ig_folder_sibling(const struct ig_checkpoint *g, const char *name, const char **data,
		      size_t *len, struct ig_error *err);
bool ig_ends_with(const char *s, const char *ending); /* and has more before it */
/* Whether this is within a map of the folder's. */
bool ig_folder_has(const struct ig_checkpoint *g, const void *data, uint64_t n_bytes);
void ig_folder_drop(const struct ig_checkpoint *g, uint32_t tensor);
