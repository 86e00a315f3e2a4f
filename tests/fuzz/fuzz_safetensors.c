/*
 * fuzz_safetensors.c: a folder: config.json, a NUL, the index (or nothing), a NUL, and a
 * file of safetensors.  What opens is walked: every key, every tensor's first and last row,
 * made alone and together with its neighbours.
 */
#include "base/log.h"
#include "model/formats/checkpoint.h"
#include "tests/archs.h"

#include <stdlib.h>
#include <string.h>

#define MAX_BYTES (1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void read_rows(const struct ig_checkpoint *g, const struct ig_checkpoint_tensor *t)
{
	uint64_t bytes = ig_dtype_row_bytes(t->dtype, t->n_cols);
	int64_t n = t->n_rows < 20 ? t->n_rows : 20, first = t->n_rows - n;

	check(bytes && bytes * (uint64_t)t->n_rows == t->n_bytes);
	check(t->dims[0] == t->n_cols && t->dims[1] * t->dims[2] * t->dims[3] == t->n_rows);
	if (bytes > MAX_BYTES)
		return;
	uint8_t *all = malloc((size_t)bytes * (size_t)n), *one = malloc((size_t)bytes);
	float *row = malloc((size_t)t->n_cols * sizeof *row);
	if (all && one && row) {
		const uint8_t *a = ig_checkpoint_rows(g, t, first, n, all);
		for (int64_t i = 0; i < n; i++) {
			const void *b = ig_checkpoint_rows(g, t, first + i, 1, one);
			check(!memcmp(a + (uint64_t)i * bytes, b, (size_t)bytes));
			ig_dtype_to_f32(t->dtype, b, row, t->n_cols);
		}
		ig_dtype_to_f32(t->dtype, ig_checkpoint_rows(g, t, 0, 1, one), row, t->n_cols);
	}
	ig_checkpoint_drop_tensor(g, t);
	free(all);
	free(one);
	free(row);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *end = data + size, *config_end = size ? memchr(data, 0, size) : NULL;
	const uint8_t *index_end =
		config_end ? memchr(config_end + 1, 0, (size_t)(end - config_end - 1)) : NULL;
	struct ig_checkpoint *g;
	struct ig_error err = { 0 };
	size_t n = 0;

	ig_log_set_level(IG_LOG_ERROR); /* of each rounded scale */
	if (!index_end)
		return 0;
	/* Memory of its own, so that a byte behind it is noticed. */
	size_t len = (size_t)(end - index_end - 1);
	uint8_t *file = malloc(len ? len : 1);
	if (!file)
		return 0;
	memcpy(file, index_end + 1, len);
	struct ig_checkpoint_file files[3] = {
		{ "config.json", data, (size_t)(config_end - data) },
		{ "model.safetensors", file, len },
		{ "model.safetensors.index.json", config_end + 1,
		  (size_t)(index_end - config_end - 1) },
	};
	n = files[2].len ? 3 : 2;
	if (ig_checkpoint_open_files(files, n, "fuzz", test_archs, &g, &err)) {
		check(!g && err.code < 0 && err.text[0]);
		free(file);
		return 0;
	}
	for (uint64_t i = 0; i < ig_checkpoint_n_keys(g); i++) {
		struct ig_checkpoint_key k;
		ig_checkpoint_key(g, i, &k);
		uint8_t *copy = malloc((size_t)k.n_bytes + 1);
		if (copy)
			memcpy(copy, k.value, (size_t)k.n_bytes);
		free(copy);
	}
	for (uint64_t i = 0; i < ig_checkpoint_n_tensors(g); i++) {
		const struct ig_checkpoint_tensor *t = ig_checkpoint_tensor(g, i);
		check(ig_checkpoint_find_tensor(g, t->name) == t);
		read_rows(g, t);
	}
	ig_checkpoint_close(g);
	free(file);
	return 0;
}
