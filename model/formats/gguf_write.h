/*
 * gguf_write.h: writes a GGUF version 3 file sequentially.  Keys first, then the tensors' entries,
 * then ig_gguf_begin, then the tensors' bytes in the same order, in chunks of any size: memory
 * holds the header only.  The file has another name (PATH.part-N) until ig_gguf_finish, so that
 * PATH is never an incomplete model.  One thread.
 */
#pragma once

#include <ingot/error.h>
#include <stdbool.h>
#include <stddef.h>

struct ig_gguf_writer;

/* GGUF's numbers of value types. */
enum {
	IG_GGUF_U8 = 0,
	IG_GGUF_U32 = 4,
	IG_GGUF_I32 = 5,
	IG_GGUF_F32 = 6,
	IG_GGUF_BOOL = 7,
	IG_GGUF_STRING = 8,
	IG_GGUF_ARRAY = 9,
};

/* -EEXIST when there is something at path and replace is not set; -EISDIR. */
int ig_gguf_create(const char *path, bool replace, struct ig_gguf_writer **out,
		   struct ig_error *err);

/* A key; a failed allocation is reported by ig_gguf_begin.  raw: the value in the file's format,
 * after its type. */
void ig_gguf_put(struct ig_gguf_writer *w, const char *key, size_t key_len, uint32_t type,
		 const void *raw, size_t n_bytes);
void ig_gguf_put_u32(struct ig_gguf_writer *w, const char *key, uint32_t v);
void ig_gguf_put_str(struct ig_gguf_writer *w, const char *key, const char *s, size_t len);

/* A tensor's entry; dims[0] is the length of a row.  -EINVAL names what is wrong with it. */
int ig_gguf_add_tensor(struct ig_gguf_writer *w, const char *name, const int64_t *dims,
		       uint32_t n_dims, uint32_t dtype, struct ig_error *err);
/* Bytes of the whole file, once all tensors were added. */
uint64_t ig_gguf_file_bytes(const struct ig_gguf_writer *w);

/* Write the header; -ENOSPC when the disk has less free space than the file needs. */
int ig_gguf_begin(struct ig_gguf_writer *w, struct ig_error *err);
/* Write the next bytes of the tensors; padding between them is added. */
int ig_gguf_write(struct ig_gguf_writer *w, const void *data, size_t n_bytes, struct ig_error *err);
/* After all bytes: sync the file and rename it.  Afterwards only ig_gguf_close may be called. */
int ig_gguf_finish(struct ig_gguf_writer *w, struct ig_error *err);
/* Removes the file unless ig_gguf_finish succeeded.  NULL is fine. */
void ig_gguf_close(struct ig_gguf_writer *w);
