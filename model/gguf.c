/*
 * gguf.c: see checkpoint.h.
 *
 * The file is mapped read-only and read in one pass: header, keys, tensors.
 * Each count is compared with the bytes that are left before anything is
 * allocated for it, so a file can't make us allocate more than a few times its
 * own size.  Keys and tensors are found through keyed hash tables.
 *
 * The file's size is taken once, at open.  If somebody truncates the file while
 * it is mapped, the kernel answers the next touch of a lost page with SIGBUS; a
 * mapping can't be guarded against that, a private one neither.  Replacing a
 * model by rename, as `ingot pull` does, is safe: the old file lives on.
 */
#include "model/checkpoint.h"

#include "model/dtype.h"
#include "model/hash-private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF is read in place");

#define GGUF_VERSION 3
#define HEADER_BYTES 24
#define MIN_KV_BYTES (8 + 1 + 4 + 1) /* key's length, key, type, value */
#define MIN_TENSOR_BYTES (8 + 1 + 4 + 8 + 4 + 8)
#define MAX_ENTRIES (1u << 20) /* keys, tensors: real files have hundreds */
#define MAX_KEY_BYTES 65535 /* as the format says */
#define MAX_NAME_BYTES 64 /* a tensor's, as the format says */
#define DEFAULT_ALIGNMENT 32
#define MIN_ALIGNMENT 8
#define LABEL_BYTES 160

enum value_type {
	T_U8, T_I8, T_U16, T_I16, T_U32, T_I32, T_F32, T_BOOL, T_STRING, T_ARRAY, T_U64, T_I64,
	T_F64, N_TYPES,
};

static const struct {
	const char *name;
	uint8_t bytes; /* 0: its length is in the file */
} types[N_TYPES] = {
	[T_U8] = { "u8", 1 },   [T_I8] = { "i8", 1 },         [T_U16] = { "u16", 2 },
	[T_I16] = { "i16", 2 }, [T_U32] = { "u32", 4 },       [T_I32] = { "i32", 4 },
	[T_F32] = { "f32", 4 }, [T_BOOL] = { "bool", 1 },     [T_STRING] = { "string", 0 },
	[T_ARRAY] = { "array", 0 }, [T_U64] = { "u64", 8 },   [T_I64] = { "i64", 8 },
	[T_F64] = { "f64", 8 },
};

struct kv {
	const char *key; /* into the map, not terminated */
	const uint8_t *value; /* of a string or an array: its first byte or element */
	uint64_t n; /* bytes of a string, elements of an array, else 1 */
	uint32_t key_len;
	uint8_t type, elem; /* enum value_type; elem of arrays only */
};

/* Open addressing over indices into kvs or tensors; 0: free, else index + 1. */
struct index {
	uint32_t *slots;
	uint32_t mask;
};

struct ig_checkpoint {
	const uint8_t *base;
	uint64_t size;
	bool mapped; /* base is ours to unmap */
	struct kv *kvs;
	uint32_t n_kvs;
	struct ig_checkpoint_tensor *tensors;
	uint32_t n_tensors;
	char *names; /* the tensors' names, each with its NUL */
	struct index kv_index, tensor_index;
	struct ig_hash_key hash_key;
	char label[LABEL_BYTES]; /* the path, or its end, for errors */
};

struct reader {
	struct ig_checkpoint *g;
	uint64_t pos;
	struct ig_error *err;
};

/* ---- errors --------------------------------------------------------------------- */

/* Names in a file may hold anything; errors show what can be printed. */
struct shown {
	char text[72];
};

static struct shown show(const char *s, uint64_t len)
{
	struct shown out;
	size_t n = len < sizeof out.text - 4 ? (size_t)len : sizeof out.text - 4;

	for (size_t i = 0; i < n; i++)
		out.text[i] = s[i] >= 0x20 && s[i] < 0x7f ? s[i] : '?';
	memcpy(out.text + n, len > n ? "..." : "", len > n ? 4 : 1);
	return out;
}

static void set_label(struct ig_checkpoint *g, const char *label)
{
	size_t len = strlen(label);

	/* Of a long path the end says more. */
	if (len < sizeof g->label)
		memcpy(g->label, label, len + 1);
	else
		snprintf(g->label, sizeof g->label, "...%s",
			 label + len - (sizeof g->label - 4));
}

__attribute__((format(printf, 3, 4)))
static int bad(const struct reader *r, uint64_t offset, const char *fmt, ...)
{
	char what[320];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	return ig_fail(r->err, -EINVAL, "%s: offset %" PRIu64 ": %s", r->g->label, offset, what);
}

static int no_memory(const struct reader *r, uint64_t bytes)
{
	return ig_fail(r->err, -ENOMEM, "%s: out of memory for %" PRIu64 " bytes", r->g->label,
		       bytes);
}

/* ---- reading -------------------------------------------------------------------- */

static uint64_t left(const struct reader *r)
{
	return r->g->size - r->pos;
}

static int read_bytes(struct reader *r, void *out, uint64_t n, const char *what)
{
	if (n > left(r))
		return bad(r, r->pos, "the file ends inside %s", what);
	memcpy(out, r->g->base + r->pos, (size_t)n);
	r->pos += n;
	return 0;
}

static int read_u32(struct reader *r, uint32_t *out, const char *what)
{
	return read_bytes(r, out, sizeof *out, what);
}

static int read_u64(struct reader *r, uint64_t *out, const char *what)
{
	return read_bytes(r, out, sizeof *out, what);
}

static int read_string(struct reader *r, const char **out, uint64_t *len, const char *what)
{
	uint64_t at = r->pos;
	int rc = read_u64(r, len, what);

	if (rc)
		return rc;
	if (*len > left(r))
		return bad(r, at, "%s says it is %" PRIu64 " bytes long, the file has %" PRIu64
			   " left", what, *len, left(r));
	*out = (const char *)r->g->base + r->pos;
	r->pos += *len;
	return 0;
}

/* A key or a tensor's name: not empty, not too long, no NUL. */
static int read_name(struct reader *r, const char **out, uint64_t *len, uint64_t max,
		     const char *what)
{
	uint64_t at = r->pos;
	int rc = read_string(r, out, len, what);

	if (rc)
		return rc;
	if (*len == 0)
		return bad(r, at, "%s is empty", what);
	if (*len > max)
		return bad(r, at, "%s is %" PRIu64 " bytes long, at most %" PRIu64 " are allowed",
			   what, *len, max);
	if (memchr(*out, 0, (size_t)*len))
		return bad(r, at, "%s '%s' has a NUL in it", what, show(*out, *len).text);
	return 0;
}

static int check_bools(const struct reader *r, const struct kv *kv, uint64_t at)
{
	for (uint64_t i = 0; i < kv->n; i++)
		if (kv->value[i] > 1)
			return bad(r, at + i, "key '%s': a bool is %u",
				   show(kv->key, kv->key_len).text, kv->value[i]);
	return 0;
}

static int read_array(struct reader *r, struct kv *kv)
{
	uint64_t at = r->pos, n = 0, len;
	struct shown key = show(kv->key, kv->key_len);
	const char *s;
	uint32_t elem = 0;
	int rc;

	if ((rc = read_u32(r, &elem, "an array's type")) ||
	    (rc = read_u64(r, &n, "an array's length")))
		return rc;
	if (elem == T_ARRAY)
		return bad(r, at, "key '%s' is an array of arrays", key.text);
	if (elem >= N_TYPES)
		return bad(r, at, "key '%s' is an array of unknown type %" PRIu32, key.text, elem);
	uint64_t least = elem == T_STRING ? 8 : types[elem].bytes;
	if (n > left(r) / least)
		return bad(r, at,
			   "key '%s' says it has %" PRIu64
			   " elements, the file has room for %" PRIu64,
			   key.text, n, left(r) / least);
	kv->elem = (uint8_t)elem;
	kv->n = n;
	kv->value = r->g->base + r->pos;
	if (elem != T_STRING) {
		r->pos += n * least;
		return elem == T_BOOL ? check_bools(r, kv, r->pos - n) : 0;
	}
	for (uint64_t i = 0; i < n; i++)
		if ((rc = read_string(r, &s, &len, "a string in an array")))
			return rc;
	return 0;
}

static int read_kv(struct reader *r, struct kv *kv)
{
	uint64_t at, len = 0;
	uint32_t type = 0;
	int rc;

	if ((rc = read_name(r, &kv->key, &len, MAX_KEY_BYTES, "a key")))
		return rc;
	kv->key_len = (uint32_t)len;
	at = r->pos;
	if ((rc = read_u32(r, &type, "a value's type")))
		return rc;
	if (type >= N_TYPES)
		return bad(r, at, "key '%s' has unknown type %" PRIu32, show(kv->key, len).text,
			   type);
	kv->type = (uint8_t)type;
	if (type == T_ARRAY)
		return read_array(r, kv);
	if (type == T_STRING) {
		const char *s;
		rc = read_string(r, &s, &kv->n, "a string");
		kv->value = (const uint8_t *)s;
		return rc;
	}
	if (types[type].bytes > left(r))
		return bad(r, r->pos, "the file ends inside the value of key '%s'",
			   show(kv->key, len).text);
	kv->n = 1;
	kv->value = r->g->base + r->pos;
	r->pos += types[type].bytes;
	return type == T_BOOL ? check_bools(r, kv, r->pos - 1) : 0;
}

/* ---- the tables ----------------------------------------------------------------- */

static int index_create(const struct reader *r, struct index *x, uint32_t n)
{
	uint32_t size = 8;

	while (size < 2 * n)
		size *= 2;
	x->slots = calloc(size, sizeof *x->slots);
	x->mask = size - 1;
	return x->slots ? 0 : no_memory(r, (uint64_t)size * sizeof *x->slots);
}

/* The slot of this key: taken by it, or free. */
static uint32_t *kv_slot(const struct ig_checkpoint *g, const char *key, size_t len)
{
	uint64_t i = ig_hash_bytes(&g->hash_key, key, len);

	for (;; i++) {
		uint32_t *slot = &g->kv_index.slots[i & g->kv_index.mask];
		if (*slot == 0)
			return slot;
		const struct kv *kv = &g->kvs[*slot - 1];
		if (kv->key_len == len && !memcmp(kv->key, key, len))
			return slot;
	}
}

static uint32_t *tensor_slot(const struct ig_checkpoint *g, const char *name)
{
	uint64_t i = ig_hash_bytes(&g->hash_key, name, strlen(name));

	for (;; i++) {
		uint32_t *slot = &g->tensor_index.slots[i & g->tensor_index.mask];
		if (*slot == 0 || !strcmp(g->tensors[*slot - 1].name, name))
			return slot;
	}
}

/* ---- the parts of the file ------------------------------------------------------ */

static int read_header(struct reader *r, uint64_t *n_tensors, uint64_t *n_kvs)
{
	const struct ig_checkpoint *g = r->g;
	uint32_t version = 0;
	int rc;

	if (g->size < 4 || memcmp(g->base, "GGUF", 4)) {
		unsigned m[4] = { 0 };
		for (unsigned i = 0; i < 4 && i < g->size; i++)
			m[i] = g->base[i];
		return bad(r, 0, "not a GGUF file: it begins with %02x %02x %02x %02x and is %"
			   PRIu64 " bytes long", m[0], m[1], m[2], m[3], g->size);
	}
	r->pos = 4;
	if ((rc = read_u32(r, &version, "the header")))
		return rc;
	if (version == 1 || version == 2)
		return bad(r, 4, "GGUF version %" PRIu32 " is too old, Ingot reads version %d",
			   version, GGUF_VERSION);
	if (version && !(version & 0xffff))
		return bad(r, 4, "a big-endian GGUF file, Ingot reads little-endian ones");
	if (version != GGUF_VERSION)
		return bad(r, 4, "unknown GGUF version %" PRIu32 ", Ingot reads version %d",
			   version, GGUF_VERSION);
	if ((rc = read_u64(r, n_tensors, "the header")) || (rc = read_u64(r, n_kvs, "the header")))
		return rc;
	if (*n_kvs > MAX_ENTRIES || *n_kvs > left(r) / MIN_KV_BYTES)
		return bad(r, 16, "the header counts %" PRIu64 " keys in a file of %" PRIu64
			   " bytes (at most %u)", *n_kvs, g->size, MAX_ENTRIES);
	if (*n_tensors > MAX_ENTRIES || *n_tensors > left(r) / MIN_TENSOR_BYTES)
		return bad(r, 8, "the header counts %" PRIu64 " tensors in a file of %" PRIu64
			   " bytes (at most %u)", *n_tensors, g->size, MAX_ENTRIES);
	return 0;
}

static int read_kvs(struct reader *r, uint32_t n)
{
	struct ig_checkpoint *g = r->g;
	int rc;

	g->kvs = calloc(n ? n : 1, sizeof *g->kvs);
	if (!g->kvs)
		return no_memory(r, n * sizeof *g->kvs);
	if ((rc = index_create(r, &g->kv_index, n)))
		return rc;
	for (uint32_t i = 0; i < n; i++) {
		struct kv *kv = &g->kvs[i];
		uint64_t at = r->pos;
		if ((rc = read_kv(r, kv)))
			return rc;
		uint32_t *slot = kv_slot(g, kv->key, kv->key_len);
		if (*slot)
			return bad(r, at, "key '%s' is there twice",
				   show(kv->key, kv->key_len).text);
		*slot = i + 1;
		g->n_kvs = i + 1;
	}
	return 0;
}

/* A tensor's entry, but for its data, whose place is not known yet: *offset is
 * relative to it. */
static int read_tensor(struct reader *r, struct ig_checkpoint_tensor *t, char **name_end,
		       uint64_t *offset)
{
	uint64_t at = r->pos, len = 0, row_bytes;
	uint64_t ne[4] = { 1, 1, 1, 1 };
	const char *name;
	int rc;

	if ((rc = read_name(r, &name, &len, MAX_NAME_BYTES, "a tensor's name")))
		return rc;
	t->name = memcpy(*name_end, name, (size_t)len);
	(*name_end)[len] = 0;
	*name_end += len + 1;
	struct shown shown_name = show(name, len);

	if ((rc = read_u32(r, &t->n_dims, "a tensor's entry")))
		return rc;
	if (t->n_dims < 1 || t->n_dims > 4)
		return bad(r, at, "tensor '%s' has %" PRIu32 " dimensions, 1 to 4 are allowed",
			   shown_name.text, t->n_dims);
	for (uint32_t d = 0; d < t->n_dims; d++) {
		if ((rc = read_u64(r, &ne[d], "a tensor's entry")))
			return rc;
		if (ne[d] == 0 || ne[d] > INT64_MAX)
			return bad(r, at, "tensor '%s' has size %" PRIu64 " in dimension %" PRIu32,
				   shown_name.text, ne[d], d);
	}
	if ((rc = read_u32(r, &t->dtype, "a tensor's entry")) ||
	    (rc = read_u64(r, offset, "a tensor's entry")))
		return rc;

	if (t->dtype != IG_F32 && t->dtype != IG_F16 && t->dtype != IG_BF16 &&
	    !ig_quant_type(t->dtype))
		return bad(r, at, "tensor '%s' has type %" PRIu32 " (%s); Ingot reads F32, F16, "
			   "BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL, IQ4_XS and "
			   "MXFP4", shown_name.text, t->dtype, ig_dtype_name(t->dtype));
	t->n_cols = (int64_t)ne[0];
	for (int d = 0; d < 4; d++)
		t->dims[d] = (int64_t)ne[d];
	if (__builtin_mul_overflow((int64_t)ne[1], (int64_t)ne[2], &t->n_rows) ||
	    __builtin_mul_overflow(t->n_rows, (int64_t)ne[3], &t->n_rows))
		return bad(r, at, "tensor '%s' has more rows than a number can hold",
			   shown_name.text);
	row_bytes = ig_dtype_row_bytes(t->dtype, t->n_cols);
	if (row_bytes == 0)
		return bad(r, at, "tensor '%s' has rows of %" PRId64 " values, which %s can't hold",
			   shown_name.text, t->n_cols, ig_dtype_name(t->dtype));
	if (__builtin_mul_overflow(row_bytes, (uint64_t)t->n_rows, &t->n_bytes))
		return bad(r, at, "tensor '%s' has more bytes than a number can hold",
			   shown_name.text);
	return 0;
}

static int read_tensors(struct reader *r, uint32_t n)
{
	struct ig_checkpoint *g = r->g;
	uint64_t *offsets = NULL;
	uint64_t names_bytes, data_at;
	uint32_t alignment = DEFAULT_ALIGNMENT;
	char *name_end;
	int rc;

	rc = ig_checkpoint_u32(g, "general.alignment", &alignment, NULL);
	if (rc && rc != -ENOENT)
		return ig_checkpoint_u32(g, "general.alignment", &alignment, r->err);
	if (alignment < MIN_ALIGNMENT || (alignment & (alignment - 1)))
		return ig_fail(r->err, -EINVAL, "%s: general.alignment is %" PRIu32
			       ", not a power of two of at least %d", g->label, alignment,
			       MIN_ALIGNMENT);

	/* Names with their NULs take no more than the entries that are in the file. */
	names_bytes = (uint64_t)n * (MAX_NAME_BYTES + 1);
	if (names_bytes > left(r))
		names_bytes = left(r);
	rc = -ENOMEM;
	g->tensors = calloc(n ? n : 1, sizeof *g->tensors);
	g->names = malloc(names_bytes ? (size_t)names_bytes : 1);
	offsets = malloc((n ? n : 1) * sizeof *offsets);
	if (!g->tensors || !g->names || !offsets) {
		no_memory(r, n * sizeof *g->tensors + names_bytes + n * sizeof *offsets);
		goto out;
	}
	if ((rc = index_create(r, &g->tensor_index, n)))
		goto out;
	name_end = g->names;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t at = r->pos;
		if ((rc = read_tensor(r, &g->tensors[i], &name_end, &offsets[i])))
			goto out;
		const char *name = g->tensors[i].name;
		uint32_t *slot = tensor_slot(g, name);
		if (*slot) {
			rc = bad(r, at, "tensor '%s' is there twice",
				 show(name, strlen(name)).text);
			goto out;
		}
		*slot = i + 1;
		g->n_tensors = i + 1;
	}

	/* The data begins at the next multiple of the alignment. */
	data_at = r->pos + (alignment - r->pos % alignment) % alignment;
	for (uint32_t i = 0; i < n; i++) {
		struct ig_checkpoint_tensor *t = &g->tensors[i];
		struct shown name = show(t->name, strlen(t->name));
		if (offsets[i] % alignment) {
			rc = bad(r, r->pos, "tensor '%s' is at %" PRIu64 " of the data, not a "
				 "multiple of %" PRIu32, name.text, offsets[i], alignment);
			goto out;
		}
		if (data_at > g->size || offsets[i] > g->size - data_at ||
		    t->n_bytes > g->size - data_at - offsets[i]) {
			rc = bad(r, r->pos,
				 "tensor '%s' (%" PRIu64 " bytes at %" PRIu64 " of the "
				 "data, which begins at %" PRIu64
				 ") ends beyond the file's %" PRIu64 " bytes",
				 name.text, t->n_bytes, offsets[i], data_at, g->size);
			goto out;
		}
		t->data = g->base + data_at + offsets[i];
	}
	rc = 0;
out:
	free(offsets);
	return rc;
}

/* ---- open and close ------------------------------------------------------------- */

static int parse(struct ig_checkpoint *g, struct ig_error *err)
{
	struct reader r = { .g = g, .err = err };
	uint64_t n_tensors = 0, n_kvs = 0;
	int rc;

	ig_hash_key_init(&g->hash_key);
	if ((rc = read_header(&r, &n_tensors, &n_kvs)) ||
	    (rc = read_kvs(&r, (uint32_t)n_kvs)) ||
	    (rc = read_tensors(&r, (uint32_t)n_tensors)))
		return rc;
	return 0;
}

void ig_checkpoint_close(struct ig_checkpoint *g)
{
	if (!g)
		return;
	if (g->mapped)
		munmap((void *)(uintptr_t)g->base, (size_t)g->size);
	free(g->kv_index.slots);
	free(g->tensor_index.slots);
	free(g->kvs);
	free(g->tensors);
	free(g->names);
	free(g);
}

int ig_checkpoint_open_memory(const void *data, size_t size, const char *label,
			      struct ig_checkpoint **out,
			struct ig_error *err)
{
	struct ig_checkpoint *g;
	int rc;

	*out = NULL;
	/* Tensors' data is read in place as floats. */
	if ((uintptr_t)data % MIN_ALIGNMENT)
		return ig_fail(err, -EINVAL, "%s: the memory is not aligned to %d bytes", label,
			       MIN_ALIGNMENT);
	g = calloc(1, sizeof *g);
	if (!g)
		return ig_fail(err, -ENOMEM, "%s: out of memory", label);
	set_label(g, label);
	g->base = data;
	g->size = size;
	rc = parse(g, err);
	if (rc) {
		ig_checkpoint_close(g);
		return rc;
	}
	*out = g;
	return 0;
}

int ig_checkpoint_open(const char *path, struct ig_checkpoint **out, struct ig_error *err)
{
	struct ig_checkpoint *g;
	struct stat st;
	void *map;
	int fd, rc;

	*out = NULL;
	g = calloc(1, sizeof *g);
	if (!g)
		return ig_fail(err, -ENOMEM, "%s: out of memory", path);
	set_label(g, path);
	/* O_NONBLOCK: opening a pipe must not wait for its writer. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0) {
		rc = ig_fail(err, -errno, "%s: can't open: %s", g->label, strerror(errno));
		goto fail;
	}
	if (fstat(fd, &st) < 0) {
		rc = ig_fail(err, -errno, "%s: can't stat: %s", g->label, strerror(errno));
		goto fail_fd;
	}
	if (!S_ISREG(st.st_mode)) {
		rc = ig_fail(err, -EINVAL, "%s: not a regular file", g->label);
		goto fail_fd;
	}
	if (st.st_size < HEADER_BYTES || (uint64_t)st.st_size > SIZE_MAX) {
		rc = ig_fail(err, -EINVAL, "%s: %" PRId64 " bytes can't be a GGUF file", g->label,
			     (int64_t)st.st_size);
		goto fail_fd;
	}
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED) {
		rc = ig_fail(err, -errno, "%s: can't map %" PRId64 " bytes: %s", g->label,
			     (int64_t)st.st_size, strerror(errno));
		goto fail_fd;
	}
	close(fd);
	g->base = map;
	g->size = (uint64_t)st.st_size;
	g->mapped = true;
	rc = parse(g, err);
	if (rc)
		goto fail;
	*out = g;
	return 0;

fail_fd:
	close(fd);
fail:
	ig_checkpoint_close(g);
	return rc;
}

const char *ig_checkpoint_label(const struct ig_checkpoint *g)
{
	return g->label;
}

uint64_t ig_checkpoint_file_bytes(const struct ig_checkpoint *g)
{
	return g->size;
}

bool ig_checkpoint_map(const struct ig_checkpoint *g, const void **base, uint64_t *n_bytes)
{
	*base = g->mapped ? g->base : NULL;
	*n_bytes = g->mapped ? g->size : 0;
	return g->mapped;
}

void ig_checkpoint_drop_pages(const struct ig_checkpoint *g, const void *data, uint64_t n_bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t base = (uintptr_t)g->base, at = (uintptr_t)data;

	if (!g->mapped || at < base || at - base > g->size || n_bytes > g->size - (at - base))
		return;
	/* Whole pages only: their neighbours may still be needed. */
	uintptr_t first = (at + page - 1) & ~(page - 1);
	uintptr_t last = (at + (uintptr_t)n_bytes) & ~(page - 1);
	if (last > first)
		madvise((void *)first, last - first, MADV_DONTNEED);
}

/* ---- keys ----------------------------------------------------------------------- */

static int find(const struct ig_checkpoint *g, const char *key, const struct kv **out,
		struct ig_error *err)
{
	uint32_t slot = *kv_slot(g, key, strlen(key));

	if (!slot)
		return ig_fail(err, -ENOENT, "%s: key '%s' is missing", g->label, key);
	*out = &g->kvs[slot - 1];
	return 0;
}

static int wrong_type(const struct ig_checkpoint *g, const struct kv *kv, const char *wanted,
		      struct ig_error *err)
{
	bool array = kv->type == T_ARRAY;

	return ig_fail(err, -EINVAL, "%s: key '%s' is %s%s, not %s", g->label,
		       show(kv->key, kv->key_len).text, array ? "an array of " : "a value of type ",
		       types[array ? kv->elem : kv->type].name, wanted);
}

static int out_of_range(const struct ig_checkpoint *g, const struct kv *kv, uint64_t i,
			struct ig_error *err)
{
	return ig_fail(err, -EINVAL, "%s: key '%s': element %" PRIu64 " is out of range", g->label,
		       show(kv->key, kv->key_len).text, i);
}

/* An integer of any width: false when it is none.  What is over INT64_MAX comes
 * back as INT64_MAX; no caller takes values that large. */
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

	memcpy(&v, p, types[type].bytes <= sizeof v ? types[type].bytes : 0);
	switch (type) {
	case T_U8: *out = p[0]; return true;
	case T_I8: *out = (int8_t)p[0]; return true;
	case T_U16: *out = v.u16; return true;
	case T_I16: *out = v.i16; return true;
	case T_U32: *out = v.u32; return true;
	case T_I32: *out = v.i32; return true;
	case T_U64: *out = v.u64 > INT64_MAX ? INT64_MAX : (int64_t)v.u64; return true;
	case T_I64: *out = v.i64; return true;
	default: return false;
	}
}

static bool load_float(const uint8_t *p, uint8_t type, double *out)
{
	float f;

	switch (type) {
	case T_F32:
		memcpy(&f, p, sizeof f);
		*out = f;
		return true;
	case T_F64:
		memcpy(out, p, sizeof *out);
		return true;
	default:
		return false;
	}
}

int ig_checkpoint_u32(const struct ig_checkpoint *g, const char *key, uint32_t *out,
		      struct ig_error *err)
{
	const struct kv *kv;
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
	const struct kv *kv;
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
	const struct kv *kv;
	int rc = find(g, key, &kv, err);

	if (rc)
		return rc;
	if (kv->type != T_BOOL)
		return wrong_type(g, kv, "a bool", err);
	*out = kv->value[0] != 0;
	return 0;
}

int ig_checkpoint_str(const struct ig_checkpoint *g, const char *key, const char **out, size_t *len,
		struct ig_error *err)
{
	const struct kv *kv;
	int rc = find(g, key, &kv, err);

	if (rc)
		return rc;
	if (kv->type != T_STRING)
		return wrong_type(g, kv, "a string", err);
	*out = (const char *)kv->value;
	*len = (size_t)kv->n;
	return 0;
}

int ig_checkpoint_array_len(const struct ig_checkpoint *g, const char *key, uint64_t *n,
			    struct ig_error *err)
{
	const struct kv *kv;
	int rc = find(g, key, &kv, err);

	if (rc)
		return rc;
	if (kv->type != T_ARRAY)
		return wrong_type(g, kv, "an array", err);
	*n = kv->n;
	return 0;
}

int ig_checkpoint_array_strs(const struct ig_checkpoint *g, const char *key,
		       int (*each)(void *ctx, uint64_t i, const char *s, size_t len), void *ctx,
		       struct ig_error *err)
{
	const struct kv *kv;
	int rc = find(g, key, &kv, err);

	if (rc)
		return rc;
	if (kv->type != T_ARRAY || kv->elem != T_STRING)
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
		      const struct kv **out,
		      struct ig_error *err)
{
	int rc = find(g, key, out, err);

	if (rc)
		return rc;
	if ((*out)->type != T_ARRAY)
		return wrong_type(g, *out, "an array", err);
	if ((*out)->n < n)
		return ig_fail(err, -EINVAL, "%s: key '%s' has %" PRIu64 " elements, not %" PRIu64,
			       g->label, key, (*out)->n, n);
	return 0;
}

int ig_checkpoint_array_i32(const struct ig_checkpoint *g, const char *key, int32_t *out,
			    uint64_t n,
		      struct ig_error *err)
{
	const struct kv *kv;
	int64_t v;
	int rc = find_array(g, key, n, &kv, err);

	if (rc)
		return rc;
	for (uint64_t i = 0; i < n; i++) {
		/* a bool is a byte, 0 or 1 */
		if (!load_integer(kv->value + i * types[kv->elem].bytes,
				  kv->elem == T_BOOL ? T_U8 : kv->elem, &v))
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
	const struct kv *kv;
	double v;
	int rc = find_array(g, key, n, &kv, err);

	if (rc)
		return rc;
	for (uint64_t i = 0; i < n; i++) {
		if (!load_float(kv->value + i * types[kv->elem].bytes, kv->elem, &v))
			return wrong_type(g, kv, "an array of floats", err);
		if (!isfinite(v) || !isfinite((float)v))
			return out_of_range(g, kv, i, err);
		out[i] = (float)v;
	}
	return 0;
}

uint64_t ig_checkpoint_n_keys(const struct ig_checkpoint *g)
{
	return g->n_kvs;
}

void ig_checkpoint_key(const struct ig_checkpoint *g, uint64_t i, struct ig_checkpoint_key *out)
{
	const struct kv *kv = &g->kvs[i];
	const uint8_t *end = kv->value;

	*out = (struct ig_checkpoint_key){ .name = kv->key, .name_len = kv->key_len,
					   .type = kv->type, .value = kv->value };
	if (kv->type == T_STRING || (kv->type == T_ARRAY && kv->elem != T_STRING)) {
		end += kv->n * (kv->type == T_ARRAY ? types[kv->elem].bytes : 1);
	} else if (kv->type == T_ARRAY) {
		for (uint64_t j = 0; j < kv->n; j++) {
			uint64_t len;
			memcpy(&len, end, sizeof len);
			end += sizeof len + len;
		}
	} else {
		end += types[kv->type].bytes;
	}
	/* A string's length stands before it, an array's type and length. */
	if (kv->type == T_STRING)
		out->value = kv->value - 8;
	else if (kv->type == T_ARRAY)
		out->value = kv->value - 12;
	out->n_bytes = (uint64_t)(end - (const uint8_t *)out->value);
}

/* ---- tensors -------------------------------------------------------------------- */

uint64_t ig_checkpoint_n_tensors(const struct ig_checkpoint *g)
{
	return g->n_tensors;
}

const struct ig_checkpoint_tensor *ig_checkpoint_tensor(const struct ig_checkpoint *g, uint64_t i)
{
	return i < g->n_tensors ? &g->tensors[i] : NULL;
}

const struct ig_checkpoint_tensor *ig_checkpoint_find_tensor(const struct ig_checkpoint *g,
							     const char *name)
{
	uint32_t slot = *tensor_slot(g, name);

	return slot ? &g->tensors[slot - 1] : NULL;
}
