/* fake_gpu.c: see fake_gpu.h. */
#include "tests/unit/runtime/fake_gpu.h"

#include "base/clock.h"
#include "runtime/modules/modules.h"
#include "shaders/step.h"
#include "tests/unit/model/formats/tiny_gguf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct fake_gpu fake_gpu;

/* What a broken contract is to a test: the place, and the end. */
#define MUST(what)                                                                                 \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "%s:%d: the driver broke: %s\n", __FILE__, __LINE__,       \
				#what);                                                            \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

struct ig_gpu_buffer {
	uint8_t *bytes;
	uint64_t n_bytes;
	uint32_t memory;
	bool wrapped;
};

struct fake_program {
	struct ig_gpu_program base;
	struct ig_gpu_device *device;
	const struct ig_gpu_tape *tape;
	const struct ig_gpu_place *places;
	uint64_t step_bytes;
	uint8_t *staging[IG_STEPS_IN_FLIGHT];
	bool busy[IG_STEPS_IN_FLIGHT];
	struct ig_gpu_submission submission[IG_STEPS_IN_FLIGHT];
	int32_t *ids[IG_STEPS_IN_FLIGHT];
	float *logits[IG_STEPS_IN_FLIGHT];
};

static struct ig_gpu_facts fake_facts = {
	.struct_size = sizeof fake_facts,
	.kind = IG_GPU_METAL,
	.arch = 7,
	.max_threadgroup_bytes = 32768,
	.max_threads = 1024,
	.name = "Fake 1",
};

void fake_gpu_reset(void)
{
	MUST(fake_gpu.n_open == 0 && fake_gpu.n_buffers == 0 && fake_gpu.n_programs == 0);
	MUST(fake_gpu.n_bytes == 0);
	free(fake_gpu.last_step);
	memset(&fake_gpu, 0, sizeof fake_gpu);
}

/* Counts the call; its turn to fail? */
static bool fails(struct ig_error *err, const char *what)
{
	fake_gpu.n_launches++;
	if (!fake_gpu.fail_at || --fake_gpu.fail_at)
		return false;
	ig_fail(err, -ENOMEM, "the fake device's %s fails", what);
	return true;
}

static int open_as(const struct ig_gpu_device_class *class, struct ig_gpu_device **out,
		   struct ig_error *err)
{
	if (fake_gpu.no_device)
		return ig_fail(err, -ENOTSUP, "there is no fake device");
	if (fails(err, "open"))
		return -ENOMEM;
	*out = calloc(1, sizeof **out);
	MUST(*out);
	(*out)->class = class;
	fake_gpu.n_open++;
	fake_facts.max_buffer_bytes =
		fake_gpu.max_buffer_bytes ? fake_gpu.max_buffer_bytes : 1 << 30;
	fake_facts.tiles = fake_gpu.tiles;
	fake_facts.working_set_bytes =
		fake_gpu.working_set_bytes ? fake_gpu.working_set_bytes : 12345678;
	return 0;
}

static void fake_close(struct ig_gpu_device *d)
{
	/* of all devices */
	MUST(fake_gpu.n_open > 1 || (fake_gpu.n_buffers == 0 && fake_gpu.n_programs == 0));
	fake_gpu.n_open--;
	free(d);
}

static const struct ig_gpu_facts *facts(const struct ig_gpu_device *d) { return &fake_facts; }

/* ---- memory ---- */

static struct ig_gpu_buffer *add(uint8_t *bytes, uint64_t n_bytes, uint32_t memory, bool wrapped)
{
	struct ig_gpu_buffer *b = malloc(sizeof *b);
	MUST(b);
	*b = (struct ig_gpu_buffer){ bytes, n_bytes, memory, wrapped };
	fake_gpu.n_buffers++;
	fake_gpu.n_bytes += n_bytes;
	return b;
}

static int fake_alloc(struct ig_gpu_device *d, uint64_t n_bytes, uint32_t memory,
		      struct ig_gpu_buffer **out, struct ig_error *err)
{
	MUST(n_bytes > 0 && n_bytes <= fake_facts.max_buffer_bytes);
	fake_gpu.n_allocs++;
	if (fails(err, "alloc"))
		return -ENOMEM;
	if (fake_gpu.max_bytes && fake_gpu.n_bytes + n_bytes > fake_gpu.max_bytes)
		return ig_fail(err, -ENOMEM, "the fake device is full");
	uint8_t *p = aligned_alloc(256, (n_bytes + 255) / 256 * 256);
	MUST(p);
	memset(p, 0xa5, n_bytes);
	*out = add(p, n_bytes, memory, false);
	return 0;
}

static int fake_wrap(struct ig_gpu_device *d, const void *base, uint64_t n_bytes,
		     struct ig_gpu_buffer **out, struct ig_error *err)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	volatile const uint8_t *p = base;

	MUST(n_bytes > 0 && n_bytes <= fake_facts.max_buffer_bytes);
	MUST((uintptr_t)base % page == 0 && n_bytes % page == 0);
	(void)p[0];
	(void)p[n_bytes - 1];
	fake_gpu.n_wraps++;
	if (fails(err, "wrap"))
		return -ENOMEM;
	*out = add((uint8_t *)(uintptr_t)base, n_bytes, 0, true);
	return 0;
}

static void fake_free(struct ig_gpu_device *d, struct ig_gpu_buffer *b)
{
	if (!b)
		return;
	fake_gpu.n_frees++;
	fake_gpu.n_buffers--;
	fake_gpu.n_bytes -= b->n_bytes;
	if (!b->wrapped)
		free(b->bytes);
	free(b);
}

static uint64_t fake_address(const struct ig_gpu_buffer *b)
{
	MUST(b->memory == IG_GPU_MEMORY_SLAB);
	return (uint64_t)(uintptr_t)b->bytes;
}

static int fake_write(struct ig_gpu_device *d, struct ig_gpu_buffer *b, uint64_t offset,
		      const void *src, uint64_t n_bytes, struct ig_error *err)
{
	MUST(!b->wrapped && offset <= b->n_bytes && n_bytes <= b->n_bytes - offset);
	fake_gpu.n_writes++;
	if (fake_gpu.largest_write < n_bytes)
		fake_gpu.largest_write = n_bytes;
	if (fails(err, "write"))
		return -ENOMEM;
	memcpy(b->bytes + offset, src, n_bytes);
	return 0;
}

static int fake_read(struct ig_gpu_device *d, struct ig_gpu_buffer *b, uint64_t offset, void *dst,
		     uint64_t n_bytes, struct ig_error *err)
{
	MUST(offset <= b->n_bytes && n_bytes <= b->n_bytes - offset);
	memcpy(dst, b->bytes + offset, n_bytes);
	return 0;
}

const uint8_t *fake_gpu_bytes(const struct ig_gpu_buffer *b) { return b->bytes; }

/* ---- programs ---- */

static void program_free(struct fake_program *p)
{
	for (int i = 0; i < IG_STEPS_IN_FLIGHT; i++) {
		free(p->staging[i]);
		free(p->ids[i]);
		free(p->logits[i]);
	}
	free(p);
}

static int fake_program_create(struct ig_gpu_device *d, const struct ig_gpu_tape *tape,
			       const struct ig_gpu_place *places, uint64_t step_bytes,
			       struct ig_gpu_program **out, struct ig_error *err)
{
	MUST(tape->closed && tape->status == 0 && step_bytes >= sizeof(struct step_head));
	for (uint32_t i = 0; i < tape->n_buffers; i++) {
		const struct ig_gpu_tape_buffer *b = &tape->buffers[i];
		if (b->kind == IG_GPU_BUFFER_KV || b->first > b->last)
			continue;
		MUST(places[i].buffer && places[i].offset % 32 == 0);
		MUST(places[i].offset + b->n_bytes <= places[i].buffer->n_bytes);
	}
	if (fails(err, "program_create"))
		return -ENOMEM;
	struct fake_program *p = calloc(1, sizeof *p);
	MUST(p);
	p->base.class = d->class;
	p->device = d;
	p->tape = tape;
	p->places = places;
	p->step_bytes = step_bytes;
	for (int i = 0; i < IG_STEPS_IN_FLIGHT; i++) {
		p->staging[i] = malloc(step_bytes);
		p->ids[i] = calloc(tape->max_logit_rows + 1, sizeof(int32_t));
		p->logits[i] = calloc((size_t)tape->max_logit_rows * (size_t)tape->n_vocab + 1,
				      sizeof(float));
		MUST(p->staging[i] && p->ids[i] && p->logits[i]);
	}
	fake_gpu.n_programs++;
	*out = &p->base;
	return 0;
}

static void fake_program_destroy(struct ig_gpu_program *p)
{
	if (!p)
		return;
	fake_gpu.n_programs--;
	program_free((struct fake_program *)p);
}

static void *fake_staging(struct ig_gpu_program *base, uint32_t slot)
{
	struct fake_program *p = (struct fake_program *)base;
	MUST(slot < IG_STEPS_IN_FLIGHT && !p->busy[slot]);
	return p->staging[slot];
}

static void do_copies(const uint8_t *step)
{
	const struct step_head *head = (const struct step_head *)(const void *)step;
	const struct step_copy *c = (const struct step_copy *)(const void *)(step + head->copies);

	/* They run at the same time: all that is read is read first. */
	uint8_t **held = calloc(head->n_copies, sizeof *held);
	MUST(held);
	for (uint32_t i = 0; i < head->n_copies; i++) {
		held[i] = malloc(c[i].n_bytes);
		MUST(held[i]);
		memcpy(held[i], (const void *)(uintptr_t)c[i].src, c[i].n_bytes);
	}
	for (uint32_t i = head->n_copies; i-- > 0;) {
		memcpy((void *)(uintptr_t)c[i].dst, held[i], c[i].n_bytes);
		free(held[i]);
	}
	free(held);
	fake_gpu.n_copies += head->n_copies;
}

static int fake_submit(struct ig_gpu_program *base, const struct ig_gpu_submission *s,
		       struct ig_error *err)
{
	struct fake_program *p = (struct fake_program *)base;

	MUST(s->slot < IG_STEPS_IN_FLIGHT && !p->busy[s->slot]);
	MUST(s->step_bytes <= p->step_bytes && s->live[IG_LIVE_ONE] == 1);
	fake_gpu.n_submits++;
	if (fails(err, "submit"))
		return -ENOMEM;
	if (fake_gpu.submit_error) {
		int rc = fake_gpu.submit_error;
		fake_gpu.submit_error = 0;
		return ig_fail(err, rc, "the fake device refuses a step");
	}
	if (fake_gpu.prepare_us) {
		const int64_t begin = ig_now_ns();
		usleep((useconds_t)fake_gpu.prepare_us);
		p->device->prepared_ns += ig_now_ns() - begin;
	}
	p->busy[s->slot] = true;
	p->submission[s->slot] = *s;
	if (s->live[IG_LIVE_COPIES]) {
		MUST(s->live[IG_LIVE_ROWS] == 0);
		do_copies(p->staging[s->slot]);
		return 0;
	}
	fake_gpu.last = *s;
	memmove(fake_gpu.submitted + 1, fake_gpu.submitted, 3 * sizeof *fake_gpu.submitted);
	fake_gpu.submitted[0] = base;
	free(fake_gpu.last_step);
	fake_gpu.last_step = malloc(s->step_bytes);
	MUST(fake_gpu.last_step);
	memcpy(fake_gpu.last_step, p->staging[s->slot], s->step_bytes);
	for (uint32_t i = 0; i < s->live[IG_LIVE_LOGIT_ROWS]; i++) {
		p->ids[s->slot][i] = fake_gpu.base + (int32_t)i;
		for (int64_t v = 0; v < p->tape->n_vocab; v++)
			p->logits[s->slot][i * p->tape->n_vocab + v] =
				(float)(i * 1000 + (uint32_t)v);
	}
	return 0;
}

static int fake_wait(struct ig_gpu_program *base, uint32_t slot, uint32_t timeout_ms,
		     const int32_t **ids, const float **logits, struct ig_error *err)
{
	struct fake_program *p = (struct fake_program *)base;

	MUST(slot < IG_STEPS_IN_FLIGHT && p->busy[slot]);
	fake_gpu.n_waits++;
	fake_gpu.last_timeout_ms = timeout_ms;
	if (fake_gpu.n_wait_errors) {
		fake_gpu.n_wait_errors--;
		if (fake_gpu.wait_error != -ETIMEDOUT)
			p->busy[slot] = false;
		return fake_gpu.wait_error == -ETIMEDOUT || !err ?
			       fake_gpu.wait_error :
			       ig_fail(err, fake_gpu.wait_error, "the fake device fails");
	}
	p->busy[slot] = false;
	*ids = p->ids[slot];
	*logits = p->submission[slot].live[IG_LIVE_WANT_LOGITS] ? p->logits[slot] : NULL;
	return 0;
}

static uint64_t fake_pressure(struct ig_gpu_device *d)
{
	uint64_t n = fake_gpu.pressure;
	fake_gpu.pressure = 0;
	return n;
}

static int fake_count(struct ig_error *err) { return fake_gpu.n_devices; }

static int fake_connect(struct ig_gpu_device **devices, uint32_t n, struct ig_error *err)
{
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t j = 0; j < i; j++)
			MUST(devices[i] != devices[j]);
	fake_gpu.n_connected = n;
	return fake_gpu.connect_error ?
		       ig_fail(err, fake_gpu.connect_error, "the fake devices are not connected") :
		       0;
}

static void fake_abort(struct ig_gpu_device *d) { fake_gpu.n_aborts++; }

#define CLASS(device, wrap_function, connect_function)                                             \
	static int open_device_##device(const struct ig_driver_options *o,                         \
					struct ig_gpu_device **out, struct ig_error *err)          \
	{                                                                                          \
		return open_as(&ig_gpu_##device, out, err);                                        \
	}                                                                                          \
	const struct ig_gpu_device_class ig_gpu_##device = {                                       \
		.name = #device,                                                                   \
		.open = open_device_##device,                                                      \
		.close = fake_close,                                                               \
		.facts = facts,                                                                    \
		.alloc = fake_alloc,                                                               \
		.wrap = wrap_function,                                                             \
		.free = fake_free,                                                                 \
		.address = fake_address,                                                           \
		.write = fake_write,                                                               \
		.read = fake_read,                                                                 \
		.program_create = fake_program_create,                                             \
		.program_destroy = fake_program_destroy,                                           \
		.staging = fake_staging,                                                           \
		.submit = fake_submit,                                                             \
		.wait = fake_wait,                                                                 \
		.pressure = fake_pressure,                                                         \
		.count = fake_count,                                                               \
		.connect = connect_function,                                                       \
		.abort = fake_abort,                                                               \
	};                                                                                         \
	IG_GPU_DRIVER(device)

CLASS(fake, NULL, fake_connect);
CLASS(wrapping, fake_wrap, NULL); /* the same with views of host memory */

const struct ig_driver_class *const ig_driver_classes[] = {
	&ig_driver_fake,
	&ig_driver_wrapping,
	&ig_driver_cpu,
	NULL,
};

/* Shaders of the runtime's own kernels: their names are enough here. */
extern const struct ig_shader ig_shader_convert, ig_shader_copy;
const struct ig_shader ig_shader_convert = { .struct_size = sizeof(struct ig_shader),
					     .name = "core/convert" };
const struct ig_shader ig_shader_copy = { .struct_size = sizeof(struct ig_shader),
					  .name = "kvcache/copy" };

/* ---- the model -------------------------------------------------------------------- */

static const uint32_t toy_args = 1;
static const struct ig_shader toy_shader = { .struct_size = sizeof toy_shader, .name = "toy" };

static struct ig_gpu_dispatch toy_dispatch(uint32_t row_class)
{
	uint32_t live = row_class == IG_ROWS_TOKENS ? IG_LIVE_ROWS : IG_LIVE_LOGIT_ROWS;
	return (struct ig_gpu_dispatch){
		.struct_size = sizeof(struct ig_gpu_dispatch),
		.shader = &toy_shader,
		.kernel = "toy",
		.args = &toy_args,
		.n_arg_bytes = sizeof toy_args,
		.threads = 32,
		.when_max = UINT32_MAX,
		.grid = { { live, 1, 1, 1 }, { 0, 1, 1, 1 }, { 0, 1, 1, 1 } },
	};
}

static void toy_bind(struct ig_gpu_dispatch *d, const struct ig_gpu_tensor *t, uint32_t access)
{
	uint64_t n = t->n_rows ? (uint64_t)t->n_rows * t->row_stride :
				 (uint64_t)t->n_cols * (t->dtype == IG_F32 ? 4 : 2);
	d->bind[d->n_binds++] = (struct ig_gpu_bind){ t->ref, n, access, 0 };
}

/* All operands, in order. */
static struct ig_gpu_dispatch toy_call(const struct ig_gpu_launch *c)
{
	struct ig_gpu_dispatch d = toy_dispatch(c->n_out ? c->out[0].row_class : IG_ROWS_LOGITS);
	for (uint32_t i = 0; i < c->n_in; i++)
		toy_bind(&d, &c->in[i], IG_GPU_READ);
	for (uint32_t i = 0; i < c->n_weights; i++)
		toy_bind(&d, &c->weight[i], IG_GPU_READ);
	for (uint32_t i = 0; i < c->n_out; i++)
		toy_bind(&d, &c->out[i], IG_GPU_WRITE);
	return d;
}

static int lower_plain(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
		       struct ig_gpu_tape *t, struct ig_error *err)
{
	struct ig_gpu_dispatch d = toy_call(c);
	return h->dispatch(t, &d);
}

/* Kernels for few and for many rows. */
static int lower_product(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
			 struct ig_gpu_tape *t, struct ig_error *err)
{
	struct ig_gpu_dispatch d = toy_call(c);
	if (c->weight[0].dtype != IG_F16)
		return ig_fail(err, -ENOTSUP, "no kernel multiplies that");
	d.when_live = c->in[0].row_class == IG_ROWS_TOKENS ? IG_LIVE_ROWS : IG_LIVE_LOGIT_ROWS;
	d.when_max = IG_GPU_FEW_ROWS;
	int rc = h->dispatch(t, &d);
	d.when_min = IG_GPU_FEW_ROWS + 1;
	d.when_max = UINT32_MAX;
	return rc ? rc : h->dispatch(t, &d);
}

static void toy_touch(const struct ig_gpu_host *h, struct ig_gpu_tape *t, struct ig_gpu_dispatch *d,
		      uint32_t group, uint32_t layer, uint32_t access)
{
	struct ig_gpu_ref r;
	if (!h->kv(t, group, layer, &r))
		d->bind[d->n_binds++] = (struct ig_gpu_bind){ r, 0, access | IG_GPU_TOUCH, 0 };
}

static int lower_rope_kv(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
			 struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_rope_kv_params *p = c->params;
	struct ig_gpu_dispatch d = toy_call(c);
	toy_touch(h, t, &d, p->group, p->layer, IG_GPU_WRITE);
	return h->dispatch(t, &d);
}

/* Ranges apart, sequences that loop, then what the ranges gave. */
static int lower_attention(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
			   struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_attention_params *p = c->params;
	struct ig_gpu_ref partials;
	uint64_t n = (uint64_t)c->max_partials * p->n_heads * (p->head_dim + 2) * 4;
	int rc = h->scratch(t, n, &partials);
	struct ig_gpu_dispatch d = toy_dispatch(IG_ROWS_TOKENS);
	toy_bind(&d, &c->in[0], IG_GPU_READ);
	toy_touch(h, t, &d, p->group, p->layer, IG_GPU_READ);
	d.bind[d.n_binds++] = (struct ig_gpu_bind){ partials, n, IG_GPU_WRITE, 0 };
	d.when_live = IG_LIVE_SPLIT_ROWS;
	d.when_min = 1;
	rc = rc ? rc : h->dispatch(t, &d);
	d = toy_dispatch(IG_ROWS_TOKENS);
	toy_bind(&d, &c->in[0], IG_GPU_READ);
	toy_bind(&d, &c->out[0], IG_GPU_WRITE);
	toy_touch(h, t, &d, p->group, p->layer, IG_GPU_READ);
	d.when_live = IG_LIVE_LOOP_ROWS;
	d.when_min = 1;
	rc = rc ? rc : h->dispatch(t, &d);
	d = toy_dispatch(IG_ROWS_TOKENS);
	d.bind[d.n_binds++] = (struct ig_gpu_bind){ partials, n, IG_GPU_READ, 0 };
	toy_bind(&d, &c->out[0], IG_GPU_WRITE);
	d.when_live = IG_LIVE_SPLIT_ROWS;
	d.when_min = 1;
	return rc ? rc : h->dispatch(t, &d);
}

static int lower_sample(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
			struct ig_gpu_tape *t, struct ig_error *err)
{
	struct ig_gpu_dispatch d = toy_call(c);
	struct ig_gpu_ref ids, logits = { 0 };
	static const uint32_t constant[5] = { 1, 2, 3, 4, 5 };
	struct ig_gpu_ref table = { 0 };
	int rc = h->ids(t, &ids);
	rc = rc ? rc : h->logits(t, c->in[0].n_cols, &logits);
	rc = rc ? rc : h->constant(t, constant, sizeof constant, &table);
	d.bind[d.n_binds++] = (struct ig_gpu_bind){ table, sizeof constant, IG_GPU_READ, 0 };
	d.bind[d.n_binds++] = (struct ig_gpu_bind){ ids, 4, IG_GPU_WRITE, 0 };
	d.bind[d.n_binds++] = (struct ig_gpu_bind){ logits, 4, IG_GPU_WRITE, 0 };
	return rc ? rc : h->dispatch(t, &d);
}

static uint32_t product_dtype(const struct ig_gpu_launch *c, uint32_t i)
{
	MUST(c->in[i].dtype == IG_DTYPE_NONE && c->weight[0].dtype != IG_DTYPE_NONE);
	return i || c->f32 ? IG_F32 : IG_F16;
}

static uint32_t attention_dtype(const struct ig_gpu_launch *c, uint32_t i) { return c->k_dtype; }

static const struct {
	const char *op;
	struct ig_gpu_op gpu;
} toys[] = {
	{ "embed", { sizeof(struct ig_gpu_op), 0, NULL, lower_plain } },
	{ "norm", { sizeof(struct ig_gpu_op), IG_GPU_OUT_ANY, NULL, lower_plain } },
	{ "linear", { sizeof(struct ig_gpu_op), 0, product_dtype, lower_product } },
	{ "glu", { sizeof(struct ig_gpu_op), IG_GPU_OUT_ANY, product_dtype, lower_product } },
	{ "rope_table", { sizeof(struct ig_gpu_op), 0, NULL, lower_plain } },
	{ "rope_kv", { sizeof(struct ig_gpu_op), IG_GPU_OUT_ANY, NULL, lower_rope_kv } },
	/* Without OUT_ANY, so that a conversion is needed. */
	{ "attention", { sizeof(struct ig_gpu_op), 0, attention_dtype, lower_attention } },
	{ "logits", { sizeof(struct ig_gpu_op), 0, product_dtype, lower_product } },
	{ "sample", { sizeof(struct ig_gpu_op), 0, NULL, lower_sample } },
};

static uint64_t add_tensor(struct gw *w, const char *name, uint64_t n, uint64_t k, uint64_t offset)
{
	const uint64_t ne[2] = { k, n };
	uint64_t bytes = n ? n * k * 2 : k * 4;

	gw_tensor(w, name, ne, n ? 2 : 1, n ? IG_F16 : IG_F32, offset);
	return offset + (bytes + 31) / 32 * 32;
}

static void write_toy(struct gw *w)
{
	static const struct {
		const char *name;
		uint64_t n, k;
	} layer[] = {
		{ "attn_norm", 0, TOY_WIDTH },
		{ "attn_q", TOY_HEADS * TOY_HEAD, TOY_WIDTH },
		{ "attn_k", TOY_KV_HEADS * TOY_HEAD, TOY_WIDTH },
		{ "attn_v", TOY_KV_HEADS * TOY_HEAD, TOY_WIDTH },
		{ "attn_output", TOY_WIDTH, TOY_HEADS * TOY_HEAD },
		{ "ffn_norm", 0, TOY_WIDTH },
		{ "ffn_gate", TOY_FF, TOY_WIDTH },
		{ "ffn_up", TOY_FF, TOY_WIDTH },
		{ "ffn_down", TOY_WIDTH, TOY_FF },
	};
	uint64_t offset;

	gw_init(w);
	gw_str(w, "general.architecture", "llama");
	gw_u32(w, "llama.block_count", TOY_LAYERS);
	gw_u32(w, "llama.embedding_length", TOY_WIDTH);
	gw_u32(w, "llama.feed_forward_length", TOY_FF);
	gw_u32(w, "llama.attention.head_count", TOY_HEADS);
	gw_u32(w, "llama.attention.head_count_kv", TOY_KV_HEADS);
	gw_u32(w, "llama.context_length", TOY_CONTEXT);
	gw_u32(w, "llama.vocab_size", TOY_VOCAB);
	gw_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
	offset = add_tensor(w, "token_embd.weight", TOY_VOCAB, TOY_WIDTH, 0);
	offset = add_tensor(w, "output_norm.weight", 0, TOY_WIDTH, offset);
	for (unsigned l = 0; l < TOY_LAYERS; l++)
		for (size_t i = 0; i < sizeof layer / sizeof *layer; i++) {
			char name[64];
			snprintf(name, sizeof name, "blk.%u.%s.weight", l, layer[i].name);
			offset = add_tensor(w, name, layer[i].n, layer[i].k, offset);
		}
	gw_data(w, 32, offset);
	for (uint64_t i = 0; i < offset; i++)
		w->data[w->len - offset + i] = (uint8_t)(i * 131 + i / 251);
}

int toy_model_init(struct toy_model *m)
{
	char path[] = "/tmp/ingot-toy-XXXXXX";
	struct gw w;
	int fd, rc;

	write_toy(&w);
	fd = mkstemp(path);
	MUST(fd >= 0 && write(fd, w.data, w.len) == (ssize_t)w.len && close(fd) == 0);
	gw_finish(&w);
	rc = toy_model_open(m, path);
	strcpy(m->path, path);
	return rc;
}

int toy_model_open(struct toy_model *m, const char *path)
{
	struct ig_error err = { 0 };

	memset(m, 0, sizeof *m);
	if (ig_modules_create(&m->modules, &err) ||
	    ig_modules_load(m->modules, INGOT_ATTENTION_MODULE, &err) ||
	    ig_checkpoint_open(path, ig_modules_archs(m->modules), &m->file, &err) ||
	    ig_plan_record(m->modules, m->file, &m->plan, &err)) {
		fprintf(stderr, "%s\n", err.text);
		return -1;
	}
	m->ops = calloc(m->plan->n_nodes, sizeof *m->ops);
	MUST(m->ops);
	for (uint32_t i = 0; i < m->plan->n_nodes; i++) {
		struct ig_plan_node *n = &m->plan->nodes[i];
		m->ops[i] = *n->op;
		m->ops[i].gpu = NULL;
		for (size_t j = 0; j < sizeof toys / sizeof *toys; j++)
			if (!strcmp(toys[j].op, n->op->name))
				m->ops[i].gpu = &toys[j].gpu;
		MUST(m->ops[i].gpu);
		n->op = &m->ops[i];
	}
	return 0;
}

void toy_model_finish(struct toy_model *m)
{
	ig_plan_destroy(m->plan);
	ig_modules_destroy(m->modules);
	ig_checkpoint_close(m->file);
	free(m->ops);
	if (m->path[0])
		unlink(m->path);
}
