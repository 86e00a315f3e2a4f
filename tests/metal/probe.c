/* probe.c: see probe.h. */
#include "tests/metal/probe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

extern const struct ig_shader ig_shader_probe;

#define VALUE_BYTES (PROBE_N * sizeof(float))
#define TIMEOUT_MS 60000

uint32_t probe_keep_wired_ms = 180000;

int probe_open(struct probe *p, struct ig_error *err)
{
	const struct ig_driver_options o = { .isa = "auto",
					     .activations = "auto",
					     .strict = 1,
					     .keep_wired_ms = probe_keep_wired_ms };
	struct ig_gpu_tensor t;
	int rc;

	*p = (struct probe){ .step_bytes = sizeof(struct probe_step) };
	rc = ig_gpu_metal.open(&o, &p->device, err);
	if (rc)
		return rc;
	rc = ig_gpu_tape_create(ig_gpu_metal.facts(p->device), PROBE_N, &p->tape);
	for (int i = 0; !rc && i < PROBE_N_VALUES; i++) {
		rc = ig_gpu_tape_value(p->tape, IG_F32, PROBE_N, IG_ROWS_TOKENS, 1, &t);
		p->value[i] = t.ref;
	}
	if (!rc)
		rc = ig_gpu_tape_host.kv(p->tape, 0, 0, &p->kv);
	return rc;
}

void probe_close(struct probe *p)
{
	if (!p->device)
		return;
	ig_gpu_metal.program_destroy(p->program);
	ig_gpu_metal.free(p->device, p->scratch);
	ig_gpu_metal.free(p->device, p->id_buffer);
	ig_gpu_metal.free(p->device, p->slab);
	ig_gpu_tape_destroy(p->tape);
	free(p->places);
	ig_gpu_metal.close(p->device);
}

struct ig_gpu_dispatch probe_dispatch(struct probe *p, const char *kernel,
				      const struct probe_args *args, int x, int y)
{
	return (struct ig_gpu_dispatch){
		.struct_size = sizeof(struct ig_gpu_dispatch),
		.n_binds = 2,
		.shader = &ig_shader_probe,
		.kernel = kernel,
		.args = args,
		.n_arg_bytes = sizeof *args,
		.threads = 32,
		.when_live = IG_LIVE_ONE,
		.when_min = 1,
		.when_max = 1,
		.grid = { { IG_LIVE_ONE, PROBE_N, 32, 1 },
			  { IG_LIVE_ONE, 1, 1, 1 },
			  { IG_LIVE_ONE, 1, 1, 1 } },
		.bind = { { p->value[x], VALUE_BYTES, IG_GPU_READ, 0 },
			  { p->value[y], VALUE_BYTES, IG_GPU_WRITE, 0 } },
	};
}

void probe_emit(struct probe *p, const struct ig_gpu_dispatch *d)
{
	ig_gpu_tape_host.dispatch(p->tape, d);
}

void probe_op(struct probe *p, const char *kernel, float a, int x, int y)
{
	const struct probe_args args = { .n = PROBE_N, .a = a };
	struct ig_gpu_dispatch d = probe_dispatch(p, kernel, &args, x, y);

	if (!strcmp(kernel, "probe_turn"))
		d.threadgroup_bytes = 128;
	probe_emit(p, &d);
}

void probe_far(struct probe *p)
{
	const struct probe_args args = { .n = PROBE_N };
	struct ig_gpu_dispatch d = probe_dispatch(p, "probe_far", &args, 0, 0);

	d.n_binds = 1;
	d.bind[0] = (struct ig_gpu_bind){ p->kv, 1, IG_GPU_READ | IG_GPU_WRITE | IG_GPU_TOUCH, 0 };
	probe_emit(p, &d);
}

void probe_ids(struct probe *p)
{
	const struct probe_args args = { .n = PROBE_N };
	struct ig_gpu_dispatch d = probe_dispatch(p, "probe_ids", &args, 0, 0);

	ig_gpu_tape_host.ids(p->tape, &p->ids);
	d.n_binds = 1;
	d.bind[0] = (struct ig_gpu_bind){ p->ids, PROBE_N * 2 * 4 * IG_STEPS_IN_FLIGHT,
					  IG_GPU_READ | IG_GPU_WRITE, 0 };
	probe_emit(p, &d);
}

int probe_load(struct probe *p, struct ig_error *err)
{
	const struct ig_gpu_device_class *c = p->device->class;
	int rc = ig_gpu_tape_close(p->tape, err);

	if (!rc)
		rc = c->alloc(p->device, p->tape->scratch_bytes ? p->tape->scratch_bytes : 16,
			      IG_GPU_MEMORY_PRIVATE, &p->scratch, err);
	if (!rc)
		rc = c->alloc(p->device, VALUE_BYTES, IG_GPU_MEMORY_SLAB, &p->slab, err);
	if (!rc && p->tape->ids >= 0)
		rc = c->alloc(p->device, PROBE_N * 2 * 4 * IG_STEPS_IN_FLIGHT,
			      IG_GPU_MEMORY_PRIVATE, &p->id_buffer, err);
	if (rc)
		return rc;
	p->places = calloc(p->tape->n_buffers, sizeof *p->places);
	if (!p->places)
		return ig_fail(err, -ENOMEM, "no memory");
	for (uint32_t i = 0; i < p->tape->n_buffers; i++) {
		const struct ig_gpu_tape_buffer *b = &p->tape->buffers[i];
		p->places[i].offset = b->offset;
		p->places[i].buffer = b->kind == IG_GPU_BUFFER_IDS     ? p->id_buffer :
				      b->kind == IG_GPU_BUFFER_SCRATCH ? p->scratch :
									 NULL;
	}
	return c->program_create(p->device, p->tape, p->places, p->step_bytes, &p->program, err);
}

void probe_write(struct probe *p, int value, float first)
{
	float x[PROBE_N];

	for (int i = 0; i < PROBE_N; i++)
		x[i] = first + (float)i;
	ig_gpu_metal.write(p->device, p->scratch, p->tape->buffers[p->value[value].buffer].offset,
			   x, sizeof x, NULL);
}

float probe_read(struct probe *p, int value, int i)
{
	float x = 0;

	ig_gpu_metal.read(p->device, p->scratch,
			  p->tape->buffers[p->value[value].buffer].offset + (uint64_t)i * 4, &x, 4,
			  NULL);
	return x;
}

int probe_submit(struct probe *p, uint32_t slot, uint32_t step_value, struct ig_error *err)
{
	struct probe_step *s = ig_gpu_metal.staging(p->program, slot);
	struct ig_gpu_submission sub = { .slot = slot, .step_bytes = p->step_bytes };

	*s = (struct probe_step){ .value = step_value, .slot = slot };
	s->slab[0] = ig_gpu_metal.address(p->slab);
	for (int i = 0; i < IG_N_LIVE; i++)
		sub.live[i] = 1;
	return ig_gpu_metal.submit(p->program, &sub, err);
}

int probe_wait(struct probe *p, uint32_t slot, const int32_t **ids, struct ig_error *err)
{
	const int32_t *none;
	const float *logits;

	return ig_gpu_metal.wait(p->program, slot, TIMEOUT_MS, ids ? ids : &none, &logits, err);
}
