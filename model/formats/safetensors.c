/*
 * safetensors.c: see safetensors.h.  A file is the header's length in 8 bytes, the header, and the
 * data.  The header is an object: "__metadata__", which is ignored, and for each tensor its type,
 * shape and data_offsets, begin and end within the data.
 */
#include "model/formats/safetensors.h"

#include "model/formats/checkpoint_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* The format allows 100 MB; tens of thousands of tensors take three. */
#define MAX_HEADER_BYTES (16u << 20)

static const struct {
	const char *name;
	uint8_t bytes; /* 0: values smaller than a byte */
	uint8_t type;
} types[] = {
	{ "F32", 4, IG_ST_F32 },
	{ "F16", 2, IG_ST_F16 },
	{ "BF16", 2, IG_ST_BF16 },
	{ "U32", 4, IG_ST_U32 },
	{ "F64", 8, IG_ST_OTHER },
	{ "C64", 8, IG_ST_OTHER },
	{ "I64", 8, IG_ST_OTHER },
	{ "U64", 8, IG_ST_OTHER },
	{ "I32", 4, IG_ST_OTHER },
	{ "I16", 2, IG_ST_OTHER },
	{ "U16", 2, IG_ST_OTHER },
	{ "I8", 1, IG_ST_OTHER },
	{ "U8", 1, IG_ST_U8 },
	{ "BOOL", 1, IG_ST_OTHER },
	{ "F8_E4M3", 1, IG_ST_OTHER },
	{ "F8_E5M2", 1, IG_ST_OTHER },
	{ "F8_E8M0", 1, IG_ST_OTHER },
	{ "F8_E4M3FNUZ", 1, IG_ST_OTHER },
	{ "F8_E5M2FNUZ", 1, IG_ST_OTHER },
	{ "F4", 0, IG_ST_OTHER },
	{ "F6_E2M3", 0, IG_ST_OTHER },
	{ "F6_E3M2", 0, IG_ST_OTHER },
};

struct reader {
	const char *label;
	const uint8_t *data;
	uint64_t n_data; /* bytes after the header */
	struct ig_error *err;
};

__attribute__((format(printf, 3, 4))) static int bad(const struct reader *r, const char *tensor,
						     const char *fmt, ...)
{
	char what[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	return ig_fail(r->err, -EINVAL, "%s: tensor \"%s\": %s", r->label,
		       ig_show(tensor, strlen(tensor)).text, what);
}

static int read_type(const struct reader *r, struct ig_st_tensor *t, const json_t *entry,
		     uint8_t *value_bytes)
{
	const char *name = json_string_value(json_object_get(entry, "dtype"));

	if (!name)
		return bad(r, t->name, "dtype is missing, or not a string");
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (!strcmp(types[i].name, name)) {
			t->type = types[i].type;
			t->type_name = types[i].name;
			*value_bytes = types[i].bytes;
			return 0;
		}
	return bad(r, t->name, "dtype \"%s\" is unknown", ig_show(name, strlen(name)).text);
}

static int read_shape(const struct reader *r, struct ig_st_tensor *t, const json_t *entry,
		      uint64_t *n_values)
{
	const json_t *shape = json_object_get(entry, "shape");

	if (!json_is_array(shape))
		return bad(r, t->name, "shape is missing, or not a list");
	if (json_array_size(shape) > IG_ST_MAX_DIMS)
		return bad(r, t->name, "shape has %zu dimensions, at most %d are read",
			   json_array_size(shape), IG_ST_MAX_DIMS);
	*n_values = 1;
	t->n_dims = (uint32_t)json_array_size(shape);
	for (uint32_t i = 0; i < t->n_dims; i++) {
		const json_t *n = json_array_get(shape, i);
		if (!json_is_integer(n) || json_integer_value(n) < 0)
			return bad(r, t->name,
				   "shape[%" PRIu32 "] is not a whole number of at least 0", i);
		t->dims[i] = json_integer_value(n);
		if (__builtin_mul_overflow(*n_values, (uint64_t)t->dims[i], n_values))
			return bad(r, t->name, "shape has more values than a number can hold");
	}
	return 0;
}

static int read_entry(const struct reader *r, struct ig_st_tensor *t, const json_t *entry)
{
	const json_t *offsets = json_object_get(entry, "data_offsets");
	uint64_t n_values = 0, want, at[2];
	uint8_t value_bytes = 0;
	int rc;

	if (!json_is_object(entry))
		return bad(r, t->name, "its entry in the header is not an object");
	if ((rc = read_type(r, t, entry, &value_bytes)) ||
	    (rc = read_shape(r, t, entry, &n_values)))
		return rc;
	if (!json_is_array(offsets) || json_array_size(offsets) != 2)
		return bad(r, t->name, "data_offsets is missing, or not a list of two numbers");
	for (size_t i = 0; i < 2; i++) {
		const json_t *n = json_array_get(offsets, i);
		if (!json_is_integer(n) || json_integer_value(n) < 0)
			return bad(r, t->name,
				   "data_offsets[%zu] is not a whole number of at least 0", i);
		at[i] = (uint64_t)json_integer_value(n);
	}
	if (at[0] > at[1] || at[1] > r->n_data)
		return bad(r, t->name,
			   "data_offsets %" PRIu64 " to %" PRIu64 " are not within "
			   "the data's %" PRIu64 " bytes",
			   at[0], at[1], r->n_data);
	if (value_bytes && (__builtin_mul_overflow(n_values, (uint64_t)value_bytes, &want) ||
			    want != at[1] - at[0]))
		return bad(r, t->name,
			   "%" PRIu64 " values of %s do not fill data_offsets %" PRIu64
			   " to %" PRIu64,
			   n_values, t->type_name, at[0], at[1]);
	t->data = r->data + at[0];
	t->n_bytes = at[1] - at[0];
	return 0;
}

static int by_place(const void *a, const void *b)
{
	const struct ig_st_tensor *x = a, *y = b;

	if (x->data != y->data)
		return x->data < y->data ? -1 : 1;
	if (x->n_bytes != y->n_bytes)
		return x->n_bytes < y->n_bytes ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* Refuse gaps and overlaps: unchecked data could be hidden there. */
static int check_places(const struct reader *r, const struct ig_st_file *f)
{
	uint64_t end = 0;

	for (uint32_t i = 0; i < f->n_tensors; i++) {
		const struct ig_st_tensor *t = &f->tensors[i];
		uint64_t at = (uint64_t)(t->data - r->data);
		if (at < end)
			return bad(r, t->name, "its data at %" PRIu64 " overlaps that of \"%s\"",
				   at, ig_show(t[-1].name, strlen(t[-1].name)).text);
		if (at > end)
			return bad(r, t->name,
				   "the %" PRIu64 " bytes before its data at %" PRIu64
				   " belong to no tensor",
				   at - end, at);
		end = at + t->n_bytes;
	}
	if (end != r->n_data)
		return ig_fail(r->err, -EINVAL,
			       "%s: the tensors' data ends at %" PRIu64 ", the file has %" PRIu64
			       " bytes of it",
			       r->label, end, r->n_data);
	return 0;
}

static int read_tensors(const struct reader *r, const json_t *header, uint64_t header_bytes,
			struct ig_st_file *f)
{
	size_t n = json_object_size(header);
	const char *name;
	json_t *entry;
	char *end;

	/* Names with their NULs take no more than the header, where each has its quotes. */
	f->tensors = calloc(n ? n : 1, sizeof *f->tensors);
	f->names = end = malloc((size_t)header_bytes);
	if (!f->tensors || !f->names)
		return ig_fail(r->err, -ENOMEM, "%s: out of memory for %zu tensors", r->label, n);
	json_object_foreach((json_t *)header, name, entry)
	{
		struct ig_st_tensor *t = &f->tensors[f->n_tensors];
		size_t len = strlen(name);
		int rc;
		if (!strcmp(name, "__metadata__"))
			continue;
		if (len == 0 || len > IG_ST_MAX_NAME)
			return bad(r, name, "its name has %zu bytes, 1 to %d are read", len,
				   IG_ST_MAX_NAME);
		t->name = memcpy(end, name, len + 1);
		end += len + 1;
		if ((rc = read_entry(r, t, entry)))
			return rc;
		f->n_tensors++;
	}
	qsort(f->tensors, f->n_tensors, sizeof *f->tensors, by_place);
	return check_places(r, f);
}

int ig_st_read(const uint8_t *base, uint64_t size, const char *label, struct ig_st_file *out,
	       struct ig_error *err)
{
	struct reader r = { .label = label, .err = err };
	json_t *header;
	uint64_t n;
	int rc;

	memset(out, 0, sizeof *out);
	if (size < 10)
		return ig_fail(err, -EINVAL, "%s: %" PRIu64 " bytes can't be a safetensors file",
			       label, size);
	memcpy(&n, base, sizeof n);
	if (n > size - 8)
		return ig_fail(err, -EINVAL,
			       "%s: the header says it is %" PRIu64 " bytes long, "
			       "the file has %" PRIu64,
			       label, n, size);
	if (n < 2 || n > MAX_HEADER_BYTES)
		return ig_fail(err, -EINVAL, "%s: a header of %" PRIu64 " bytes; 2 to %u are read",
			       label, n, MAX_HEADER_BYTES);
	if (base[8] != '{')
		return ig_fail(err, -EINVAL,
			       "%s: offset 8: the header begins with byte %02x, not with '{'",
			       label, base[8]);
	if ((rc = ig_json_read_file(label, (const char *)base + 8, (size_t)n, &header, err)))
		return rc;
	r.data = base + 8 + n;
	r.n_data = size - 8 - n;
	rc = read_tensors(&r, header, n, out);
	json_decref(header);
	if (rc)
		ig_st_finish(out);
	return rc;
}

void ig_st_finish(struct ig_st_file *f)
{
	free(f->tensors);
	free(f->names);
	memset(f, 0, sizeof *f);
}
