/* kv_files_private.h: parts of the store of cache blocks: what is in the folder (kv_index.c), one file
 * (kv_file.c), the thread and its queues (kv_files.c), rates (kv_rates.c). */
#pragma once

#include "store/kv_files.h"

#define KV_HEADER_BYTES 160
#define KV_PATH_BYTES 80 /* of a file, from the folder on */

/* ---- kv_index.c: by name, and by use ---- */

struct kv_entry {
	struct ig_kv_name name;
	uint32_t depth, groups;
	uint64_t n_bytes; /* that the file takes */
	int64_t stamp;	  /* kv_stamp */
	uint32_t at;	  /* in the heap */
	struct kv_entry *chain;
};

struct kv_index {
	struct kv_entry **heads; /* [KV_HEADS] by name */
	struct kv_entry **heap;	 /* [n]: the first is the next to go */
	uint32_t n, cap;
	uint64_t n_bytes;
};

/* Of two blocks of one prompt, used together, the later one is the older one. */
static inline int64_t kv_stamp(int64_t used_ns, uint32_t depth)
{
	return used_ns - (int64_t)depth * 1000;
}

/* -ENOMEM */
int kv_index_init(struct kv_index *x);
void kv_index_finish(struct kv_index *x);
struct kv_entry *kv_index_find(const struct kv_index *x, const struct ig_kv_name *name);
/* A new name; false: no memory, or there are too many. */
bool kv_index_add(struct kv_index *x, const struct kv_entry *e);
void kv_index_touch(struct kv_index *x, struct kv_entry *e, int64_t stamp);
void kv_index_remove(struct kv_index *x, struct kv_entry *e);

/* ---- kv_file.c: one file; folder is a descriptor ---- */

/* What the file takes with so much data: whole pages. */
uint64_t kv_file_bytes(uint64_t n_data);
void kv_file_path(char out[KV_PATH_BYTES], const struct ig_kv_name *name, uint32_t groups,
		  uint32_t depth);
/* Of a file's name in the sub-folder with these two digits.  False: it is none. */
bool kv_file_parse(const char *folder, const char *file, struct kv_entry *out);
/* 0 or -errno. */
int kv_file_write(int folder, struct ig_kv_namer *n, const struct ig_kv_block *b, uint64_t number);
/* 0; -ENOENT; -EBADMSG: it is not as it must be; or -errno. */
int kv_file_read(int folder, struct ig_kv_namer *n, struct ig_kv_block *b);
void kv_file_remove(int folder, const struct kv_entry *e);

/* ---- kv_rates.c ---- */

#define KV_MAX_RATES 256

struct kv_rates {
	struct {
		struct ig_kv_name model;
		struct ig_kv_rate rate;
	} all[KV_MAX_RATES];
	uint32_t n;
	bool changed;
};

/* Of FOLDER/rates; what is not understood there is left out. */
void kv_rates_load(struct kv_rates *r, const char *folder);
int kv_rates_save(const struct kv_rates *r, const char *folder, struct ig_error *err);
void kv_rates_get(const struct kv_rates *r, const struct ig_kv_name *model, struct ig_kv_rate *out);
void kv_rates_set(struct kv_rates *r, const struct ig_kv_name *model,
		  const struct ig_kv_rate *rate);
