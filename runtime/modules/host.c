/* host.c: the functions for modules: struct ig_host, and struct ig_kernel_host for modules with
 * the same build id. */
#include "runtime/modules/modules_private.h"
#include "base/build_id.h"
#include "base/log.h"
#include "model/formats/checkpoint.h"
#include "ops/cpu/tile16.h"
#include "ops/ops.h"
#include "runtime/plan_private.h"

#include <errno.h>
#include <string.h>

static const struct ig_checkpoint *file_of(const struct ig_meta *m)
{
	return (const struct ig_checkpoint *)m;
}

static int meta_u32(const struct ig_meta *m, const char *key, uint32_t *out, struct ig_error *err)
{
	bool flag;

	if (!ig_checkpoint_bool(file_of(m), key, &flag, NULL)) {
		*out = flag;
		return 0;
	}
	return ig_checkpoint_u32(file_of(m), key, out, err);
}

static int meta_f32(const struct ig_meta *m, const char *key, float *out, struct ig_error *err)
{
	return ig_checkpoint_f32(file_of(m), key, out, err);
}

static int meta_str(const struct ig_meta *m, const char *key, const char **out, size_t *len,
		    struct ig_error *err)
{
	return ig_checkpoint_str(file_of(m), key, out, len, err);
}

static int meta_array_u32(const struct ig_meta *m, const char *key, uint32_t *out, uint64_t cap,
			  uint64_t *n, struct ig_error *err)
{
	int rc = ig_checkpoint_array_len(file_of(m), key, n, err);

	if (rc)
		return rc;
	cap = *n < cap ? *n : cap;
	/* int32 and uint32 have the same bits if the number is not negative */
	rc = ig_checkpoint_array_i32(file_of(m), key, (int32_t *)out, cap, err);
	for (uint64_t i = 0; !rc && i < cap; i++)
		if (out[i] > INT32_MAX)
			return ig_fail(err, -EINVAL, "%s: element %llu is negative", key,
				       (unsigned long long)i);
	return rc;
}

static int meta_has_tensor(const struct ig_meta *m, const char *name)
{
	return ig_checkpoint_find_tensor(file_of(m), name) != NULL;
}

static int meta_tensor(const struct ig_meta *m, const char *name, int64_t *n_rows, int64_t *n_cols)
{
	const struct ig_checkpoint_tensor *t = ig_checkpoint_find_tensor(file_of(m), name);
	if (!t)
		return -ENOENT;
	*n_rows = t->n_rows;
	*n_cols = t->n_cols;
	return 0;
}

static const struct ig_op *core_op(const char *name)
{
	for (size_t i = 0; ig_core_ops[i]; i++)
		if (!strcmp(ig_core_ops[i]->name, name))
			return ig_core_ops[i];
	return NULL;
}

static void tile_pack(uint32_t dtype, const void *rows, int64_t k, void *tile)
{
	ig_tile16_pack(dtype, rows, IG_TILE, k, tile, 0, 1);
}

static const struct ig_kernel_host *kernels(const char *build_id)
{
	static const struct ig_kernel_host host = {
		.struct_size = sizeof host,
		.core_op = core_op,
		.tile_bytes = ig_tile16_tile_bytes,
		.tile_pack = tile_pack,
	};

	return strcmp(build_id, ig_build_id) ? NULL : &host;
}

void modules_fill_host(struct ig_host *host)
{
	*host = (struct ig_host){
		.struct_size = sizeof *host,
		.abi_major = IG_ABI_MAJOR,
		.abi_minor = IG_ABI_MINOR,
		.log = ig_log,
		.meta_u32 = meta_u32,
		.meta_f32 = meta_f32,
		.meta_str = meta_str,
		.meta_array_u32 = meta_array_u32,
		.meta_has_tensor = meta_has_tensor,
		.meta_tensor = meta_tensor,
		.weight = ig_graph_weight,
		.record = ig_graph_record,
		.graph_status = ig_graph_status,
		.kernels = kernels,
		.option_number = modules_option_number,
		.option_text = modules_option_text,
	};
}
