/*
 * fuzz_adapter.c: an adapter of a small model: a GGUF file, or adapter_config.json, a NUL, and
 * adapter_model.safetensors.  Of one that opens each part fits the base, and each value is finite.
 */
#include "model/formats/adapter.h"
#include "tiny_base.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void read_part(const struct ig_checkpoint *base, const struct ig_adapter_part *p)
{
	const struct ig_checkpoint_tensor *t = ig_checkpoint_find_tensor(base, p->weight);

	check(t && t->n_rows == p->n_rows && t->n_cols == p->n_cols);
	check(p->rank >= 1 && p->rank <= IG_ADAPTER_MAX_RANK);
	check(isfinite(p->scale) && p->scale > 0);
	for (int64_t i = 0; i < p->rank * p->n_cols; i++)
		check(isfinite(p->a[i]));
	for (int64_t i = 0; i < p->rank * p->n_rows; i++)
		check(isfinite(p->b[i]));
}

/* The data in memory of its own, so that a byte behind it is noticed. */
static uint8_t *copy(const uint8_t *data, size_t len)
{
	uint8_t *out = malloc(len ? len : 1);

	if (out && len)
		memcpy(out, data, len);
	return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct ig_checkpoint *base;
	const uint8_t *end = size ? memchr(data, 0, size) : NULL;
	bool one = size >= 4 && !memcmp(data, "GGUF", 4);
	struct ig_adapter *a;
	struct ig_error err = { 0 };

	if (!base)
		base = tiny_base();
	if (!one && !end)
		return 0;
	size_t at = one ? 0 : (size_t)(end - data) + 1;
	uint8_t *file = copy(data + at, size - at);
	if (!file)
		return 0;
	const struct ig_checkpoint_file pair[2] = {
		{ "adapter_config.json", data, at ? at - 1 : 0 },
		{ "adapter_model.safetensors", file, size - at },
	};
	const struct ig_checkpoint_file gguf = { "adapter.gguf", file, size };
	int rc = ig_adapter_open_files(one ? &gguf : pair, one ? 1 : 2, base, test_archs, &a, &err);
	if (rc) {
		check(!a && rc < 0 && err.code == rc && err.text[0]);
	} else {
		check(a->n_parts > 0);
		for (uint32_t i = 0; i < a->n_parts; i++) {
			check(!i || strcmp(a->parts[i - 1].weight, a->parts[i].weight) < 0);
			read_part(base, &a->parts[i]);
		}
		ig_adapter_close(a);
	}
	free(file);
	return 0;
}
