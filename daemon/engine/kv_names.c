/*
 * kv_names.c: what the bytes of cached blocks and of packed weights depend on, as names (store/kv_name.h): first the programs that
 * compute them, by their files, since no number says when a compiler orders two sums differently; the device
 * and the options of arithmetic; then the model's file.  Of the weights, which are too many to be read,
 * each tensor's first and last bytes count.
 */
#include "daemon/engine/kv_disk_private.h"

#include "base/file.h"
#include "model/formats/checkpoint.h"

#include <errno.h>
#include <string.h>

#define FORMAT "ingot kv 1"
#define PACKED_FORMAT "ingot packed weights 1"
#define SAMPLE_BYTES 64u

static void add_text(struct ig_kv_namer *n, const char *text)
{
	ig_kv_name_add(n, text ? text : "", text ? strlen(text) : 0);
}

struct adding {
	struct ig_kv_namer *n;
	struct ig_error *err;
	int rc;
};

static void add_module(void *ctx, const char *name, const char *version, const char *path)
{
	struct adding *a = ctx;

	if (!a->rc)
		a->rc = ig_kv_name_add_file(a->n, path, a->err);
}

/* "cpu, avx2, 2 threads, strict" without the number of threads, on which no bit depends. */
static void add_driver(struct ig_kv_namer *n, const char *text)
{
	while (*text) {
		size_t len = strcspn(text, ",");
		const char *digits = text + strspn(text, " ");
		if (strncmp(digits + strspn(digits, "0123456789"), " thread", 7))
			ig_kv_name_add(n, text, len);
		text += len + (text[len] == ',');
	}
}

int ig_kv_name_programs(const struct ig_backend *b, const struct ig_config *config,
			struct ig_kv_name *out, struct ig_error *err)
{
	struct ig_kv_namer *n = ig_kv_namer_create();
	struct adding a = { .n = n, .err = err };
	const uint32_t order = 0x01020304; /* of bytes */
	char program[4096];

	if (!n)
		return ig_fail(err, -ENOMEM, "out of memory");
	ig_kv_name_begin(n, NULL);
	add_text(n, FORMAT);
	ig_kv_name_add(n, &order, sizeof order);
	a.rc = ig_program_path(program, sizeof program) ?
		       ig_kv_name_add_file(n, program, err) :
		       ig_fail(err, -ENOENT, "the file of this program is not known");
	ig_modules_each(b->modules, add_module, &a);
	add_driver(n, ig_driver_describe(b->driver));
	add_text(n, config->runtime.activations);
	add_text(n, config->runtime.experts);
	if (!ig_kv_name_end(n, out) && !a.rc)
		a.rc = ig_fail(err, -EIO, "SHA-256 failed");
	ig_kv_namer_destroy(n);
	return a.rc;
}

static void add_tensor(struct ig_kv_namer *n, const struct ig_checkpoint_tensor *t)
{
	uint64_t sample = t->n_bytes < SAMPLE_BYTES ? t->n_bytes : SAMPLE_BYTES;

	add_text(n, t->name);
	ig_kv_name_add(n, &t->dtype, sizeof t->dtype);
	ig_kv_name_add(n, t->dims, sizeof t->dims);
	if (!t->data)
		return;
	ig_kv_name_add(n, t->data, sample);
	ig_kv_name_add(n, (const char *)t->data + t->n_bytes - sample, sample);
}

/* The model's file. */
static void add_model(struct ig_kv_namer *n, const struct ig_model *m)
{
	add_text(n, m->arch);
	ig_kv_name_add(n, &m->file_id.size, sizeof m->file_id.size);
	ig_kv_name_add(n, &m->file_id.mtime_ns, sizeof m->file_id.mtime_ns);
	ig_kv_name_add(n, &m->file_id.files, sizeof m->file_id.files);
	for (uint64_t i = 0; i < ig_checkpoint_n_tensors(m->file); i++)
		add_tensor(n, ig_checkpoint_tensor(m->file, i));
}

static bool end_name(struct ig_kv_namer *n, struct ig_kv_name *out)
{
	bool ok = ig_kv_name_end(n, out);

	ig_kv_namer_destroy(n);
	return ok;
}

bool ig_kv_name_packed(const struct ig_model *m, uint64_t layout, struct ig_kv_name *out)
{
	struct ig_kv_namer *n = ig_kv_namer_create();

	if (!n)
		return false;
	ig_kv_name_begin(n, &m->backend->programs);
	add_text(n, PACKED_FORMAT);
	add_model(n, m);
	ig_kv_name_add(n, &layout, sizeof layout);
	return end_name(n, out);
}

bool ig_kv_name_model(const struct ig_model *m, struct ig_kv_name *out)
{
	struct ig_kv_namer *n = ig_kv_namer_create();

	if (!n)
		return false;
	ig_kv_name_begin(n, &m->backend->programs);
	add_model(n, m);
	ig_kv_name_add(n, &m->limits.max_context, sizeof m->limits.max_context);
	for (uint32_t g = 0; g < m->n_groups; g++) {
		const struct ig_kv_layout *l = &m->layouts[g];
		const uint64_t shape[] = { l->k_dtype,
					   l->v_dtype,
					   l->n_layers,
					   l->n_kv_heads,
					   l->head_dim,
					   l->k_token_stride,
					   l->v_token_stride,
					   l->head_stride,
					   l->v_offset,
					   l->layer_stride,
					   l->block_bytes,
					   m->plan->info.groups[g].window,
					   l->kind };
		ig_kv_name_add(n, shape, sizeof shape);
	}
	return end_name(n, out);
}
