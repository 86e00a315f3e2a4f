/*
 * kv_name.h: names of computed cache blocks: a hash (SHA-256, its first half) of all that a block's
 * bytes depend on.  A name is made from the name of what was before: first of the programs that
 * compute, then of the model, then of whose prompts it may serve, then of each block's tokens.  So two
 * blocks with the same name have the same bytes, and nobody can make another prompt with that name.
 */
#pragma once

#include <ingot/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IG_KV_NAME_BYTES 16

struct ig_kv_name {
	uint8_t bytes[IG_KV_NAME_BYTES];
};

#define IG_KV_NAME_TEXT (2 * IG_KV_NAME_BYTES + 1)
/* Its hexadecimal digits; the name that a text begins with, or false. */
void ig_kv_name_write(const struct ig_kv_name *name, char out[IG_KV_NAME_TEXT]);
bool ig_kv_name_read(const char *text, struct ig_kv_name *out);

/* Makes names.  One thread at a time. */
struct ig_kv_namer;

struct ig_kv_namer *ig_kv_namer_create(void);	 /* NULL: out of memory */
void ig_kv_namer_destroy(struct ig_kv_namer *n); /* NULL is fine */

/* A name of several parts: begin with the name before (NULL: none), add, end.  The length of a part
 * counts: "ab", "c" and "a", "bc" give different names.  False: the library failed. */
void ig_kv_name_begin(struct ig_kv_namer *n, const struct ig_kv_name *before);
void ig_kv_name_add(struct ig_kv_namer *n, const void *part, size_t len);
bool ig_kv_name_end(struct ig_kv_namer *n, struct ig_kv_name *out);
/* Add a file's bytes.  0 or -errno with text. */
int ig_kv_name_add_file(struct ig_kv_namer *n, const char *path, struct ig_error *err);

/* The name of one part, as above. */
bool ig_kv_name_of(struct ig_kv_namer *n, const struct ig_kv_name *before, const void *part,
		   size_t len, struct ig_kv_name *out);
/* SHA-256 of several parts, without their lengths; for checksums. */
struct ig_kv_part {
	const void *data;
	size_t len;
};
bool ig_kv_sum(struct ig_kv_namer *n, const struct ig_kv_part *parts, size_t n_parts,
	       uint8_t out[32]);
