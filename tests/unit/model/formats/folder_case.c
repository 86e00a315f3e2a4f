/* folder_case.c: see folder_case.h. */
#include "folder_case.h"

#include "tests/archs.h"

#include <stdlib.h>
#include <string.h>

uint8_t folder_data[FOLDER_DATA_BYTES];

uint8_t *folder_make_file(const char *header, size_t n, size_t *len)
{
	uint64_t text = strlen(header), n_header = (text + 7) / 8 * 8;
	uint8_t *p = malloc(8 + n_header + n + 1);

	assert_non_null(p);
	memcpy(p, &n_header, 8);
	memset(p + 8, ' ', n_header);
	memcpy(p + 8, header, text);
	memcpy(p + 8 + n_header, folder_data, n);
	*len = 8 + n_header + n;
	return p;
}

int folder_open_bytes(const char *config, const uint8_t *file, size_t len, struct ig_checkpoint **g,
		      struct ig_error *err)
{
	const struct ig_checkpoint_file files[] = {
		{ "config.json", config, strlen(config) },
		{ "model.safetensors", file, len },
	};

	*err = (struct ig_error){ 0 };
	return ig_checkpoint_open_files(files, 2, "dir", test_archs, g, err);
}

void folder_fails(int rc, struct ig_checkpoint **g, const struct ig_error *err, int code,
		  const char *text)
{
	if (rc != code || !strstr(err->text, text))
		fail_msg("wanted %d and '%s', got %d: %s", code, text, rc, err->text);
	assert_null(*g);
	assert_int_equal(err->code, code);
}

void folder_refused(const char *config, const char *header, size_t n, int code, const char *text)
{
	struct ig_checkpoint *g;
	struct ig_error err;
	size_t len;
	uint8_t *file = folder_make_file(header, n, &len);

	folder_fails(folder_open_bytes(config, file, len, &g, &err), &g, &err, code, text);
	free(file);
}

struct opened folder_opened(const char *config, const char *header, size_t n)
{
	struct opened o;
	struct ig_error err;
	size_t len;

	o.file = folder_make_file(header, n, &len);
	if (folder_open_bytes(config, o.file, len, &o.g, &err))
		fail_msg("%s", err.text);
	return o;
}

void folder_closed(struct opened *o)
{
	ig_checkpoint_close(o->g);
	free(o->file);
}

const struct ig_checkpoint_tensor *folder_tensor(const struct opened *o, const char *name,
						 uint32_t dtype, int64_t n_rows, int64_t n_cols)
{
	const struct ig_checkpoint_tensor *t = ig_checkpoint_find_tensor(o->g, name);

	if (!t)
		fail_msg("%s is missing", name);
	assert_int_equal(t->dtype, dtype);
	assert_int_equal(t->n_rows, n_rows);
	assert_int_equal(t->n_cols, n_cols);
	assert_int_equal(t->n_bytes, (uint64_t)n_rows * ig_dtype_row_bytes(dtype, n_cols));
	return t;
}

float folder_value(const struct opened *o, const struct ig_checkpoint_tensor *t, int64_t row,
		   int64_t col)
{
	uint64_t row_bytes = ig_dtype_row_bytes(t->dtype, t->n_cols);
	uint8_t *all = malloc(t->n_bytes), *one = malloc(row_bytes);
	float *v = malloc((size_t)t->n_cols * sizeof *v);
	const uint8_t *a = ig_checkpoint_rows(o->g, t, 0, t->n_rows, all);
	const uint8_t *b = ig_checkpoint_rows(o->g, t, row, 1, one);

	assert_true(t->data ? a == t->data : a == all && b == one);
	assert_memory_equal(a + (uint64_t)row * row_bytes, b, row_bytes);
	ig_dtype_to_f32(t->dtype, b, v, t->n_cols);
	float out = v[col];
	free(all);
	free(one);
	free(v);
	return out;
}

uint32_t folder_u32(const struct ig_checkpoint *g, const char *key)
{
	struct ig_error err = { 0 };
	uint32_t v;

	if (ig_checkpoint_u32(g, key, &v, &err))
		fail_msg("%s", err.text);
	return v;
}

float folder_f32(const struct ig_checkpoint *g, const char *key)
{
	struct ig_error err = { 0 };
	float v;

	if (ig_checkpoint_f32(g, key, &v, &err))
		fail_msg("%s", err.text);
	return v;
}

void folder_fill_f32(size_t n)
{
	for (size_t i = 0; i < n; i++)
		memcpy(folder_data + 4 * i, &(float){ (float)i }, 4);
}
