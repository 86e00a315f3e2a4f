/*
 * gguf.c: reads a GGUF file's keys and tensors, in place and in one pass.  Each count is checked
 * against the remaining bytes before anything is allocated for it, so allocations are at most a few
 * times the file's size.  Keys and tensors are found through keyed hash tables.
 */
#include "model/formats/checkpoint_private.h"

#include "base/dtype.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define GGUF_VERSION 3
#define MIN_KV_BYTES (8 + 1 + 4 + 1) /* key's length, key, type, value */
#define MIN_TENSOR_BYTES (8 + 1 + 4 + 8 + 4 + 8)
#define MAX_ENTRIES (1u << 20) /* keys, tensors: real files have hundreds */
#define MAX_KEY_BYTES 65535    /* of the format */
#define MAX_NAME_BYTES 64      /* of a tensor, by the format */
#define DEFAULT_ALIGNMENT 32

struct reader {
	struct ig_checkpoint *g;
	uint64_t pos;
	struct ig_error *err;
};

/* ---- errors --------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static int bad(const struct reader *r, uint64_t offset,
						     const char *fmt, ...)
{
	char what[320];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	return ig_fail(r->err, -EINVAL, "%s: offset %" PRIu64 ": %s", r->g->label, offset, what);
}

/* ---- reading -------------------------------------------------------------------- */

static uint64_t left(const struct reader *r) { return r->g->size - r->pos; }

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
		return bad(r, at,
			   "%s says it is %" PRIu64 " bytes long, the file has %" PRIu64 " left",
			   what, *len, left(r));
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
		return bad(r, at, "%s '%s' has a NUL in it", what, ig_show(*out, *len).text);
	return 0;
}

static int check_bools(const struct reader *r, const struct ig_kv *kv, uint64_t at)
{
	for (uint64_t i = 0; i < kv->n; i++)
		if (kv->value[i] > 1)
			return bad(r, at + i, "key '%s': a bool is %u",
				   ig_show(kv->key, kv->key_len).text, kv->value[i]);
	return 0;
}

static int read_array(struct reader *r, struct ig_kv *kv)
{
	uint64_t at = r->pos, n = 0, len;
	struct ig_shown key = ig_show(kv->key, kv->key_len);
	const char *s;
	uint32_t elem = 0;
	int rc;

	if ((rc = read_u32(r, &elem, "an array's type")) ||
	    (rc = read_u64(r, &n, "an array's length")))
		return rc;
	if (elem == IG_KV_ARRAY)
		return bad(r, at, "key '%s' is an array of arrays", key.text);
	if (elem >= IG_KV_N_TYPES)
		return bad(r, at, "key '%s' is an array of unknown type %" PRIu32, key.text, elem);
	uint64_t least = elem == IG_KV_STRING ? 8 : ig_kv_types[elem].bytes;
	if (n > left(r) / least)
		return bad(r, at,
			   "key '%s' says it has %" PRIu64
			   " elements, the file has space for %" PRIu64,
			   key.text, n, left(r) / least);
	kv->elem = (uint8_t)elem;
	kv->n = n;
	kv->value = r->g->base + r->pos;
	if (elem != IG_KV_STRING) {
		r->pos += n * least;
		return elem == IG_KV_BOOL ? check_bools(r, kv, r->pos - n) : 0;
	}
	for (uint64_t i = 0; i < n; i++)
		if ((rc = read_string(r, &s, &len, "a string in an array")))
			return rc;
	return 0;
}

static int read_kv(struct reader *r, struct ig_kv *kv)
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
	if (type >= IG_KV_N_TYPES)
		return bad(r, at, "key '%s' has unknown type %" PRIu32, ig_show(kv->key, len).text,
			   type);
	kv->type = (uint8_t)type;
	if (type == IG_KV_ARRAY)
		return read_array(r, kv);
	if (type == IG_KV_STRING) {
		const char *s;
		rc = read_string(r, &s, &kv->n, "a string");
		kv->value = (const uint8_t *)s;
		return rc;
	}
	if (ig_kv_types[type].bytes > left(r))
		return bad(r, r->pos, "the file ends inside the value of key '%s'",
			   ig_show(kv->key, len).text);
	kv->n = 1;
	kv->value = r->g->base + r->pos;
	r->pos += ig_kv_types[type].bytes;
	return type == IG_KV_BOOL ? check_bools(r, kv, r->pos - 1) : 0;
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
		return bad(r, 0,
			   "not a GGUF file: it begins with %02x %02x %02x %02x and is %" PRIu64
			   " bytes long",
			   m[0], m[1], m[2], m[3], g->size);
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
		return bad(r, 16,
			   "the header counts %" PRIu64 " keys in a file of %" PRIu64
			   " bytes (at most %u)",
			   *n_kvs, g->size, MAX_ENTRIES);
	if (*n_tensors > MAX_ENTRIES || *n_tensors > left(r) / MIN_TENSOR_BYTES)
		return bad(r, 8,
			   "the header counts %" PRIu64 " tensors in a file of %" PRIu64
			   " bytes (at most %u)",
			   *n_tensors, g->size, MAX_ENTRIES);
	return 0;
}

static int read_kvs(struct reader *r, uint32_t n)
{
	struct ig_checkpoint *g = r->g;
	int rc;

	g->kvs = calloc(n ? n : 1, sizeof *g->kvs);
	if (!g->kvs)
		return ig_checkpoint_no_memory(g, n * sizeof *g->kvs, r->err);
	if ((rc = ig_checkpoint_index(g, &g->kv_index, n, r->err)))
		return rc;
	for (uint32_t i = 0; i < n; i++) {
		struct ig_kv *kv = &g->kvs[i];
		uint64_t at = r->pos;
		if ((rc = read_kv(r, kv)))
			return rc;
		uint32_t *slot = ig_checkpoint_kv_index(g, kv->key, kv->key_len);
		if (*slot)
			return bad(r, at, "key '%s' is a duplicate",
				   ig_show(kv->key, kv->key_len).text);
		*slot = i + 1;
		g->n_kvs = i + 1;
	}
	return 0;
}

/* A tensor's entry without its data, whose position is not known yet; *offset is relative to it. */
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
	struct ig_shown shown_name = ig_show(name, len);

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

	if (t->dtype == IG_Q8_M || (t->dtype != IG_F32 && t->dtype != IG_F16 &&
				    t->dtype != IG_BF16 && !ig_quant_type(t->dtype)))
		return bad(r, at,
			   "tensor '%s' has type %" PRIu32 " (%s); Ingot reads F32, F16, "
			   "BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL, IQ4_XS and "
			   "MXFP4",
			   shown_name.text, t->dtype, ig_dtype_name(t->dtype));
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
	if (alignment < IG_GGUF_ALIGNMENT || (alignment & (alignment - 1)))
		return ig_fail(r->err, -EINVAL,
			       "%s: general.alignment is %" PRIu32
			       ", not a power of two of at least %d",
			       g->label, alignment, IG_GGUF_ALIGNMENT);

	/* Names with their NULs take no more than the entries that are in the file. */
	names_bytes = (uint64_t)n * (MAX_NAME_BYTES + 1);
	if (names_bytes > left(r))
		names_bytes = left(r);
	rc = -ENOMEM;
	g->tensors = calloc(n ? n : 1, sizeof *g->tensors);
	g->names = malloc(names_bytes ? (size_t)names_bytes : 1);
	offsets = malloc((n ? n : 1) * sizeof *offsets);
	if (!g->tensors || !g->names || !offsets) {
		ig_checkpoint_no_memory(
			g, n * sizeof *g->tensors + names_bytes + n * sizeof *offsets, r->err);
		goto out;
	}
	if ((rc = ig_checkpoint_index(g, &g->tensor_index, n, r->err)))
		goto out;
	name_end = g->names;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t at = r->pos;
		if ((rc = read_tensor(r, &g->tensors[i], &name_end, &offsets[i])))
			goto out;
		const char *name = g->tensors[i].name;
		uint32_t *slot = ig_checkpoint_tensor_index(g, name);
		if (*slot) {
			rc = bad(r, at, "tensor '%s' is a duplicate",
				 ig_show(name, strlen(name)).text);
			goto out;
		}
		*slot = i + 1;
		g->n_tensors = i + 1;
	}

	/* The data begins at the next multiple of the alignment. */
	data_at = r->pos + (alignment - r->pos % alignment) % alignment;
	for (uint32_t i = 0; i < n; i++) {
		struct ig_checkpoint_tensor *t = &g->tensors[i];
		struct ig_shown name = ig_show(t->name, strlen(t->name));
		if (offsets[i] % alignment) {
			rc = bad(r, r->pos,
				 "tensor '%s' is at %" PRIu64 " of the data, not a "
				 "multiple of %" PRIu32,
				 name.text, offsets[i], alignment);
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

int ig_gguf_read(struct ig_checkpoint *g, struct ig_error *err)
{
	struct reader r = { .g = g, .err = err };
	uint64_t n_tensors = 0, n_kvs = 0;
	int rc = read_header(&r, &n_tensors, &n_kvs);

	if (!rc)
		rc = read_kvs(&r, (uint32_t)n_kvs);
	return rc ? rc : read_tensors(&r, (uint32_t)n_tensors);
}
