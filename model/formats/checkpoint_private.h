/*
 * checkpoint_private.h: what the readers of model files share: the tables that a reader fills and
 * checkpoint.c reads.  A reader converts keys and tensors to GGUF's.  Values of keys have GGUF's
 * format, in the file's map or in memory that the checkpoint owns.  Tensors whose rows must be
 * converted have no data; their reader converts them (struct ig_folder).
 */
#pragma once

#include "model/formats/checkpoint.h"
#include "base/hash.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "models are read in place");

/* GGUF's types of values. */
enum ig_kv_type {
	IG_KV_U8,
	IG_KV_I8,
	IG_KV_U16,
	IG_KV_I16,
	IG_KV_U32,
	IG_KV_I32,
	IG_KV_F32,
	IG_KV_BOOL,
	IG_KV_STRING,
	IG_KV_ARRAY,
	IG_KV_U64,
	IG_KV_I64,
	IG_KV_F64,
	IG_KV_N_TYPES,
};

struct ig_kv_type_info {
	const char *name;
	uint8_t bytes; /* 0: its length is in the file */
};

extern const struct ig_kv_type_info ig_kv_types[IG_KV_N_TYPES];

struct ig_kv {
	const char *key; /* not terminated */
	/* of a string or an array: its first byte or element; before it are its length, or type
	 * and length, as in GGUF */
	const uint8_t *value;
	uint64_t n; /* bytes of a string, elements of an array, else 1 */
	uint32_t key_len;
	uint8_t type, elem; /* enum ig_kv_type; elem of arrays only */
};

/* Open addressing over indices into kvs or tensors; 0: free, else index + 1. */
struct ig_index {
	uint32_t *slots;
	uint32_t mask;
};

struct ig_folder; /* folder.h */

/* split.c: of a GGUF file at path that is the first of several, add the others' tensors; others are
 * left as they are. */
int ig_split_read(struct ig_checkpoint *g, const char *path, struct ig_error *err);
void ig_split_finish(struct ig_checkpoint *g);
/* Opens one file of a split one by itself. */
int ig_checkpoint_open_part(const char *path, struct ig_checkpoint **out, struct ig_error *err);

#define IG_LABEL_BYTES 160

struct ig_checkpoint {
	const uint8_t *base; /* a GGUF file; for a folder see folder */
	uint64_t size;	     /* bytes of the file, or of a folder's tensors' files */
	bool mapped;	     /* base must be unmapped */
	struct ig_kv *kvs;
	uint32_t n_kvs;
	struct ig_checkpoint_tensor *tensors;
	uint32_t n_tensors;
	uint32_t left_out[IG_N_LEFT_OUT]; /* tensors of a folder that are not in `tensors` */
	char *names;			  /* the tensors' names, each with its NUL */
	struct ig_index kv_index, tensor_index;
	struct ig_hash_key hash_key;
	struct ig_folder *folder;     /* NULL: a GGUF file */
	struct ig_checkpoint **parts; /* [n_parts]: the further files of a split one; their tensors
					 are in tensors too */
	uint32_t n_parts;
	char label[IG_LABEL_BYTES]; /* the path, or its end, for errors */
};

/* Names in a file may hold anything; errors show what can be printed. */
struct ig_shown {
	char text[72];
};

struct ig_shown ig_show(const char *s, uint64_t len);

/* Capacity for n entries; 0 or -ENOMEM with text. */
int ig_checkpoint_index(const struct ig_checkpoint *g, struct ig_index *x, uint32_t n,
			struct ig_error *err);
/* The slot of this key or name, or the free one for it. */
uint32_t *ig_checkpoint_kv_index(const struct ig_checkpoint *g, const char *key, size_t len);
uint32_t *ig_checkpoint_tensor_index(const struct ig_checkpoint *g, const char *name);
int ig_checkpoint_no_memory(const struct ig_checkpoint *g, uint64_t bytes, struct ig_error *err);

/* A regular file of at least min bytes ("can't be WHAT" otherwise), mapped read-only.  0 or
 * -errno with text that begins with label. */
int ig_map_file(int dir_fd, const char *path, const char *label, uint64_t min, const char *what,
		const uint8_t **base, uint64_t *size, struct ig_error *err);

/* Fill g from the GGUF file at g->base. */
int ig_gguf_read(struct ig_checkpoint *g, struct ig_error *err);
#define IG_GGUF_MIN_BYTES 24
#define IG_GGUF_ALIGNMENT 8 /* the smallest of a file, and of memory */
