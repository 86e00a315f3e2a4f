/*
 * checkpoint.c: what all model formats share: opening by path, keys, tensors, rows; see
 * checkpoint.h.  Files are mapped read-only.  If a file is truncated while it is mapped, the next
 * access to a lost page raises SIGBUS; no mapping can prevent that.  Replacing a model by rename,
 * as `ingot pull` does, is safe: the old file remains.
 */
#include "model/formats/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

const struct ig_kv_type_info ig_kv_types[IG_KV_N_TYPES] = {
	[IG_KV_U8] = { "u8", 1 },	  [IG_KV_I8] = { "i8", 1 },
	[IG_KV_U16] = { "u16", 2 },	  [IG_KV_I16] = { "i16", 2 },
	[IG_KV_U32] = { "u32", 4 },	  [IG_KV_I32] = { "i32", 4 },
	[IG_KV_F32] = { "f32", 4 },	  [IG_KV_BOOL] = { "bool", 1 },
	[IG_KV_STRING] = { "string", 0 }, [IG_KV_ARRAY] = { "array", 0 },
	[IG_KV_U64] = { "u64", 8 },	  [IG_KV_I64] = { "i64", 8 },
	[IG_KV_F64] = { "f64", 8 },
};

struct ig_shown ig_show(const char *s, uint64_t len)
{
	struct ig_shown out;
	size_t n = len < sizeof out.text - 4 ? (size_t)len : sizeof out.text - 4;

	for (size_t i = 0; i < n; i++)
		out.text[i] = s[i] >= 0x20 && s[i] < 0x7f ? s[i] : '?';
	memcpy(out.text + n, len > n ? "..." : "", len > n ? 4 : 1);
	return out;
}

/* An empty checkpoint; NULL without memory. */
static struct ig_checkpoint *create(const char *label)
{
	struct ig_checkpoint *g = calloc(1, sizeof *g);
	size_t len = strlen(label);

	if (!g)
		return NULL;
	/* Of a long path the end is more useful. */
	if (len < sizeof g->label)
		memcpy(g->label, label, len + 1);
	else
		snprintf(g->label, sizeof g->label, "...%s", label + len - (sizeof g->label - 4));
	ig_hash_key_init(&g->hash_key);
	return g;
}

int ig_checkpoint_no_memory(const struct ig_checkpoint *g, uint64_t bytes, struct ig_error *err)
{
	return ig_fail(err, -ENOMEM, "%s: out of memory for %" PRIu64 " bytes", g->label, bytes);
}

/* ---- the tables ----------------------------------------------------------------- */

int ig_checkpoint_index(const struct ig_checkpoint *g, struct ig_index *x, uint32_t n,
			struct ig_error *err)
{
	uint32_t size = 8;

	while (size < 2 * n)
		size *= 2;
	x->slots = calloc(size, sizeof *x->slots);
	x->mask = size - 1;
	return x->slots ? 0 : ig_checkpoint_no_memory(g, (uint64_t)size * sizeof *x->slots, err);
}

uint32_t *ig_checkpoint_kv_index(const struct ig_checkpoint *g, const char *key, size_t len)
{
	uint64_t i = ig_hash_bytes(&g->hash_key, key, len);

	for (;; i++) {
		uint32_t *slot = &g->kv_index.slots[i & g->kv_index.mask];
		if (*slot == 0)
			return slot;
		const struct ig_kv *kv = &g->kvs[*slot - 1];
		if (kv->key_len == len && !memcmp(kv->key, key, len))
			return slot;
	}
}

uint32_t *ig_checkpoint_tensor_index(const struct ig_checkpoint *g, const char *name)
{
	uint64_t i = ig_hash_bytes(&g->hash_key, name, strlen(name));

	for (;; i++) {
		uint32_t *slot = &g->tensor_index.slots[i & g->tensor_index.mask];
		if (*slot == 0 || !strcmp(g->tensors[*slot - 1].name, name))
			return slot;
	}
}

/* ---- open and close ------------------------------------------------------------- */

/* The end of opening: g to the caller, or closed after an error. */
static int opened(struct ig_checkpoint *g, int rc, struct ig_checkpoint **out)
{
	if (rc)
		ig_checkpoint_close(g);
	else
		*out = g;
	return rc;
}

void ig_checkpoint_close(struct ig_checkpoint *g)
{
	if (!g)
		return;
	if (g->mapped)
		munmap((void *)(uintptr_t)g->base, (size_t)g->size);
	ig_split_finish(g);
	ig_folder_finish(g);
	free(g->kv_index.slots);
	free(g->tensor_index.slots);
	free(g->kvs);
	free(g->tensors);
	free(g->names);
	free(g);
}

int ig_checkpoint_open_memory(const void *data, size_t size, const char *label,
			      struct ig_checkpoint **out, struct ig_error *err)
{
	struct ig_checkpoint *g;

	*out = NULL;
	/* Tensors' data is used in place as floats. */
	if ((uintptr_t)data % IG_GGUF_ALIGNMENT)
		return ig_fail(err, -EINVAL, "%s: the memory is not aligned to %d bytes", label,
			       IG_GGUF_ALIGNMENT);
	g = create(label);
	if (!g)
		return ig_fail(err, -ENOMEM, "%s: out of memory", label);
	g->base = data;
	g->size = size;
	return opened(g, ig_gguf_read(g, err), out);
}

int ig_map_file(int dir_fd, const char *path, const char *label, uint64_t min, const char *what,
		const uint8_t **base, uint64_t *size, struct ig_error *err)
{
	struct stat st;
	void *map;
	int rc;
	/* O_NONBLOCK: opening a pipe must not wait for its writer. */
	int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return ig_fail(err, -errno, "%s: can't open: %s", label, strerror(errno));
	if (fstat(fd, &st) < 0) {
		rc = ig_fail(err, -errno, "%s: can't stat: %s", label, strerror(errno));
	} else if (!S_ISREG(st.st_mode)) {
		rc = ig_fail(err, -EINVAL, "%s: not a regular file", label);
	} else if (st.st_size < 0 || (uint64_t)st.st_size < min ||
		   (uint64_t)st.st_size > SIZE_MAX) {
		rc = ig_fail(err, -EINVAL, "%s: %" PRId64 " bytes can't be %s", label,
			     (int64_t)st.st_size, what);
	} else {
		map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		rc = map == MAP_FAILED ? ig_fail(err, -errno, "%s: can't map %" PRId64 " bytes: %s",
						 label, (int64_t)st.st_size, strerror(errno)) :
					 0;
		*base = map;
		*size = (uint64_t)st.st_size;
	}
	close(fd);
	return rc;
}

static int read_gguf(struct ig_checkpoint *g, const char *path, struct ig_error *err)
{
	int rc = ig_map_file(AT_FDCWD, path, g->label, IG_GGUF_MIN_BYTES, "a GGUF file", &g->base,
			     &g->size, err);

	g->mapped = rc == 0;
	return rc ? rc : ig_gguf_read(g, err);
}

int ig_checkpoint_open_part(const char *path, struct ig_checkpoint **out, struct ig_error *err)
{
	struct ig_checkpoint *g = create(path);

	*out = NULL;
	if (!g)
		return ig_fail(err, -ENOMEM, "%s: out of memory", path);
	return opened(g, read_gguf(g, path, err), out);
}

int ig_checkpoint_open(const char *path, const struct ig_arch *const *archs,
		       struct ig_checkpoint **out, struct ig_error *err)
{
	struct ig_checkpoint *g;
	int rc;

	*out = NULL;
	g = create(path);
	if (!g)
		return ig_fail(err, -ENOMEM, "%s: out of memory", path);
	if (ig_checkpoint_is_folder(path)) {
		rc = ig_folder_read(g, archs, path, NULL, 0, err);
	} else {
		rc = read_gguf(g, path, err);
		if (!rc)
			rc = ig_split_read(g, path, err);
	}
	return opened(g, rc, out);
}

int ig_checkpoint_open_files(const struct ig_checkpoint_file *files, size_t n, const char *label,
			     const struct ig_arch *const *archs, struct ig_checkpoint **out,
			     struct ig_error *err)
{
	struct ig_checkpoint *g = create(label);

	*out = NULL;
	if (!g)
		return ig_fail(err, -ENOMEM, "%s: out of memory", label);
	return opened(g, ig_folder_read(g, archs, NULL, files, n, err), out);
}

const char *ig_checkpoint_label(const struct ig_checkpoint *g) { return g->label; }

const char *ig_checkpoint_format(const struct ig_checkpoint *g)
{
	return !g->folder		   ? "GGUF" :
	       g->folder->config.quantised ? "safetensors, MLX" :
					     "safetensors";
}

const uint32_t *ig_checkpoint_left_out(const struct ig_checkpoint *g) { return g->left_out; }

int ig_left_out_part(const char *name, uint32_t n_layers)
{
	uint32_t block = 0;

	if (!strncmp(name, "v.", 2) || !strncmp(name, "mm.", 3))
		return IG_LEFT_OUT_VISION;
	if (!strncmp(name, "a.", 2))
		return IG_LEFT_OUT_AUDIO;
	if (strncmp(name, "blk.", 4))
		return -1;
	for (name += 4; *name >= '0' && *name <= '9' && block < 1u << 24; name++)
		block = block * 10 + (uint32_t)(*name - '0');
	return block >= n_layers || !strncmp(name, ".nextn.", 7) ? IG_LEFT_OUT_NEXT : -1;
}

uint64_t ig_checkpoint_file_bytes(const struct ig_checkpoint *g)
{
	uint64_t n = g->size;

	for (uint32_t i = 0; i < g->n_parts; i++)
		n += g->parts[i]->size;
	return n;
}

bool ig_checkpoint_map(const struct ig_checkpoint *g, const void **base, uint64_t *n_bytes)
{
	bool one = g->mapped && !g->n_parts;

	*base = one ? g->base : NULL;
	*n_bytes = one ? g->size : 0;
	return one;
}

int ig_checkpoint_sibling(const struct ig_checkpoint *g, const char *name, const char **data,
			  size_t *len, struct ig_error *err)
{
	if (g->folder)
		return ig_folder_sibling(g, name, data, len, err);
	return ig_fail(err, -ENOENT, "%s: a GGUF file has no %s beside it", g->label, name);
}

/* Release the pages of [data, data + n_bytes), which is in a map. */
static void drop_pages(const void *data, uint64_t n_bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)data;
	/* Whole pages only: adjacent data may still be needed. */
	uintptr_t first = (at + page - 1) & ~(page - 1);
	uintptr_t last = (at + (uintptr_t)n_bytes) & ~(page - 1);

	if (last > first)
		madvise((void *)first, last - first, MADV_DONTNEED);
}

void ig_checkpoint_drop_pages(const struct ig_checkpoint *g, const void *data, uint64_t n_bytes)
{
	uintptr_t base = (uintptr_t)g->base, at = (uintptr_t)data;

	for (uint32_t i = 0; i < g->n_parts; i++)
		ig_checkpoint_drop_pages(g->parts[i], data, n_bytes);
	if (g->folder ? ig_folder_has(g, data, n_bytes) :
			g->mapped && at >= base && at - base <= g->size &&
				n_bytes <= g->size - (at - base))
		drop_pages(data, n_bytes);
}

void ig_checkpoint_drop_tensor(const struct ig_checkpoint *g, const struct ig_checkpoint_tensor *t)
{
	if (t->slice)
		t = t->slice->of;
	if (g->folder)
		ig_folder_drop(g, (uint32_t)(t - g->tensors));
	else
		ig_checkpoint_drop_pages(g, t->data, t->n_bytes);
}

/* ---- keys ----------------------------------------------------------------------- */

static int find(const struct ig_checkpoint *g, const char *key, const struct ig_kv **out,
		struct ig_error *err)
{
	uint32_t slot = *ig_checkpoint_kv_index(g, key, strlen(key));

	if (!slot)
		return ig_fail(err, -ENOENT, "%s: key '%s' is missing", g->label, key);
	*out = &g->kvs[slot - 1];
	return 0;
}

static int wrong_type(const struct ig_checkpoint *g, const struct ig_kv *kv, const char *wanted,
		      struct ig_error *err)
{
	bool array = kv->type == IG_KV_ARRAY;

	return ig_fail(err, -EINVAL, "%s: key '%s' is %s%s, not %s", g->label,
		       ig_show(kv->key, kv->key_len).text,
		       array ? "an array of " : "a value of type ",
		       ig_kv_types[array ? kv->elem : kv->type].name, wanted);
}

/* A key of this type; wanted: the type's name for the error. */
static int find_typed(const struct ig_checkpoint *g, const char *key, enum ig_kv_type type,
		      const char *wanted, const struct ig_kv **out, struct ig_error *err)
{
	int rc = find(g, key, out, err);

	return rc ? rc : (*out)->type == type ? 0 : wrong_type(g, *out, wanted, err);
}

static int out_of_range(const struct ig_checkpoint *g, const struct ig_kv *kv, uint64_t i,
			struct ig_error *err)
{
	return ig_fail(err, -EINVAL, "%s: key '%s': element %" PRIu64 " is out of range", g->label,
		       ig_show(kv->key, kv->key_len).text, i);
}

/* An integer of any width; false for another type.  Values above INT64_MAX become INT64_MAX; no
 * caller accepts such values. */
static bool load_integer(const uint8_t *p, uint8_t type, int64_t *out)
{
	union {
		uint16_t u16;
		int16_t i16;
		uint32_t u32;
		int32_t i32;
		uint64_t u64;
		int64_t i64;
	} v;

	memcpy(&v, p, ig_kv_types[type].bytes <= sizeof v ? ig_kv_types[type].bytes : 0);
	switch (type) {
	case IG_KV_U8: *out = p[0]; return true;
	case IG_KV_I8: *out = (int8_t)p[0]; return true;
	case IG_KV_U16: *out = v.u16; return true;
	case IG_KV_I16: *out = v.i16; return true;
	case IG_KV_U32: *out = v.u32; return true;
	case IG_KV_I32: *out = v.i32; return true;
	case IG_KV_U64: *out = v.u64 > INT64_MAX ? INT64_MAX : (int64_t)v.u64; return true;
	case IG_KV_I64: *out = v.i64; return true;
	default: return false;
	}
}

static bool load_float(const uint8_t *p, uint8_t type, double *out)
{
	float f;

	switch (type) {
	case IG_KV_F32:
		memcpy(&f, p, sizeof f);
		*out = f;
		return true;
	case IG_KV_F64: memcpy(out, p, sizeof *out); return true;
	default: return false;
	}
}

int ig_checkpoint_u32(const struct ig_checkpoint *g, const char *key, uint32_t *out,
		      struct ig_error *err)
{
	const struct ig_kv *kv;
	int64_t v;
	int rc = find(g, key, &kv, err);

	if (rc)
		return rc;
	if (!load_integer(kv->value, kv->type, &v))
		return wrong_type(g, kv, "an integer", err);
	if (v < 0 || v > UINT32_MAX)
		return ig_fail(err, -EINVAL, "%s: key '%s' is out of range", g->label, key);
	*out = (uint32_t)v;
	return 0;
}

int ig_checkpoint_f32(const struct ig_checkpoint *g, const char *key, float *out,
		      struct ig_error *err)
{
	const struct ig_kv *kv;
	double v;
	int rc = find(g, key, &kv, err);

	if (rc)
		return rc;
	if (!load_float(kv->value, kv->type, &v))
		return wrong_type(g, kv, "a float", err);
	if (!isfinite(v) || !isfinite((float)v))
		return ig_fail(err, -EINVAL, "%s: key '%s' is not a finite number", g->label, key);
	*out = (float)v;
	return 0;
}

int ig_checkpoint_bool(const struct ig_checkpoint *g, const char *key, bool *out,
		       struct ig_error *err)
{
	const struct ig_kv *kv;
	int rc = find_typed(g, key, IG_KV_BOOL, "a bool", &kv, err);

	if (rc)
		return rc;
	*out = kv->value[0] != 0;
	return 0;
}

int ig_checkpoint_str(const struct ig_checkpoint *g, const char *key, const char **out, size_t *len,
		      struct ig_error *err)
{
	const struct ig_kv *kv;
	int rc = find_typed(g, key, IG_KV_STRING, "a string", &kv, err);

	if (rc)
		return rc;
	*out = (const char *)kv->value;
	*len = (size_t)kv->n;
	return 0;
}

int ig_checkpoint_array_len(const struct ig_checkpoint *g, const char *key, uint64_t *n,
			    struct ig_error *err)
{
	const struct ig_kv *kv;
	int rc = find_typed(g, key, IG_KV_ARRAY, "an array", &kv, err);

	if (rc)
		return rc;
	*n = kv->n;
	return 0;
}

int ig_checkpoint_array_strs(const struct ig_checkpoint *g, const char *key,
			     int (*each)(void *ctx, uint64_t i, const char *s, size_t len),
			     void *ctx, struct ig_error *err)
{
	const struct ig_kv *kv;
	int rc = find(g, key, &kv, err);

	if (rc)
		return rc;
	if (kv->type != IG_KV_ARRAY || kv->elem != IG_KV_STRING)
		return wrong_type(g, kv, "an array of strings", err);
	const uint8_t *p = kv->value; /* the lengths were checked when the file was opened */
	for (uint64_t i = 0; i < kv->n; i++) {
		uint64_t len;
		memcpy(&len, p, sizeof len);
		if ((rc = each(ctx, i, (const char *)p + sizeof len, (size_t)len)))
			return rc;
		p += sizeof len + len;
	}
	return 0;
}

/* An array with at least n elements. */
static int find_array(const struct ig_checkpoint *g, const char *key, uint64_t n,
		      const struct ig_kv **out, struct ig_error *err)
{
	int rc = find_typed(g, key, IG_KV_ARRAY, "an array", out, err);

	if (rc)
		return rc;
	if ((*out)->n < n)
		return ig_fail(err, -EINVAL, "%s: key '%s' has %" PRIu64 " elements, not %" PRIu64,
			       g->label, key, (*out)->n, n);
	return 0;
}

int ig_checkpoint_array_i32(const struct ig_checkpoint *g, const char *key, int32_t *out,
			    uint64_t n, struct ig_error *err)
{
	const struct ig_kv *kv;
	int64_t v;
	int rc = find_array(g, key, n, &kv, err);

	if (rc)
		return rc;
	for (uint64_t i = 0; i < n; i++) {
		/* a bool is a byte, 0 or 1 */
		if (!load_integer(kv->value + i * ig_kv_types[kv->elem].bytes,
				  kv->elem == IG_KV_BOOL ? IG_KV_U8 : kv->elem, &v))
			return wrong_type(g, kv, "an array of integers", err);
		if (v < INT32_MIN || v > INT32_MAX)
			return out_of_range(g, kv, i, err);
		out[i] = (int32_t)v;
	}
	return 0;
}

int ig_checkpoint_array_f32(const struct ig_checkpoint *g, const char *key, float *out, uint64_t n,
			    struct ig_error *err)
{
	const struct ig_kv *kv;
	double v;
	int rc = find_array(g, key, n, &kv, err);

	if (rc)
		return rc;
	for (uint64_t i = 0; i < n; i++) {
		if (!load_float(kv->value + i * ig_kv_types[kv->elem].bytes, kv->elem, &v))
			return wrong_type(g, kv, "an array of floats", err);
		if (!isfinite(v) || !isfinite((float)v))
			return out_of_range(g, kv, i, err);
		out[i] = (float)v;
	}
	return 0;
}

uint64_t ig_checkpoint_n_keys(const struct ig_checkpoint *g) { return g->n_kvs; }

void ig_checkpoint_key(const struct ig_checkpoint *g, uint64_t i, struct ig_checkpoint_key *out)
{
	const struct ig_kv *kv = &g->kvs[i];
	const uint8_t *end = kv->value;

	*out = (struct ig_checkpoint_key){
		.name = kv->key, .name_len = kv->key_len, .type = kv->type, .value = kv->value
	};
	if (kv->type == IG_KV_STRING || (kv->type == IG_KV_ARRAY && kv->elem != IG_KV_STRING)) {
		end += kv->n * (kv->type == IG_KV_ARRAY ? ig_kv_types[kv->elem].bytes : 1);
	} else if (kv->type == IG_KV_ARRAY) {
		for (uint64_t j = 0; j < kv->n; j++) {
			uint64_t len;
			memcpy(&len, end, sizeof len);
			end += sizeof len + len;
		}
	} else {
		end += ig_kv_types[kv->type].bytes;
	}
	/* Before it are a string's length, or an array's type and length. */
	if (kv->type == IG_KV_STRING)
		out->value = kv->value - 8;
	else if (kv->type == IG_KV_ARRAY)
		out->value = kv->value - 12;
	out->n_bytes = (uint64_t)(end - (const uint8_t *)out->value);
}

/* ---- tensors -------------------------------------------------------------------- */

uint64_t ig_checkpoint_n_tensors(const struct ig_checkpoint *g) { return g->n_tensors; }

const struct ig_checkpoint_tensor *ig_checkpoint_tensor(const struct ig_checkpoint *g, uint64_t i)
{
	return i < g->n_tensors ? &g->tensors[i] : NULL;
}

const struct ig_checkpoint_tensor *ig_checkpoint_find_tensor(const struct ig_checkpoint *g,
							     const char *name)
{
	uint32_t slot = *ig_checkpoint_tensor_index(g, name);

	return slot ? &g->tensors[slot - 1] : NULL;
}

/* Rows of a slice that do not lie in the map as they are. */
static const void *slice_rows(const struct ig_checkpoint *g, const struct ig_checkpoint_tensor *t,
			      int64_t first, int64_t n, void *buf)
{
	const struct ig_checkpoint_slice *s = t->slice;
	const uint64_t row_bytes = ig_dtype_row_bytes(t->dtype, t->n_cols);

	for (int64_t i = 0; i < n; i++) {
		const int64_t row =
			(first + i) / s->n * s->period + s->first_row + (first + i) % s->n;
		uint8_t *to = (uint8_t *)buf + (uint64_t)i * row_bytes;
		/* Only whole rows of converted tensors are sliced. */
		const uint8_t *from = ig_checkpoint_rows(g, s->of, row, 1, to);
		if (from != to)
			memcpy(to, from + ig_dtype_row_bytes(t->dtype, s->first_col), row_bytes);
	}
	return buf;
}

const void *ig_checkpoint_rows(const struct ig_checkpoint *g, const struct ig_checkpoint_tensor *t,
			       int64_t first, int64_t n, void *buf)
{
	if (!t->data && t->slice)
		return slice_rows(g, t, first, n, buf);
	if (!t->data) {
		ig_hf_make_rows(g, (uint32_t)(t - g->tensors), first, n, buf);
		return buf;
	}
	return (const uint8_t *)t->data + (uint64_t)first * ig_dtype_row_bytes(t->dtype, t->n_cols);
}
