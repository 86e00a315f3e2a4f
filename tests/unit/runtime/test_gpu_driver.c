/*
 * test_gpu_driver.c: the driver for GPUs over a device that only remembers.
 *
 * How a small llama's plan becomes a tape, where its weights lie, steps in flight and
 * what follows each error, copies between cache blocks, and every call that can fail
 * failing in turn.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model/formats/checkpoint.h"
#include "shaders/step.h"
#include "tests/unit/runtime/fake_gpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 32
#define SEQS 4
#define SLAB_BYTES (1u << 20)
#define BLOCKS (TOY_CONTEXT / IG_BLOCK_TOKENS)

static const struct ig_program_limits limits = { ROWS, SEQS, SEQS, TOY_CONTEXT, IG_F16, IG_F16, 8 };

static int setup(void **state)
{
	static struct toy_model m;
	*state = &m;
	return toy_model_init(&m);
}

static int teardown(void **state)
{
	toy_model_finish(*state);
	return 0;
}

/* ---- a session: a driver, a program, a cache of one slab ---- */

struct batch {
	struct ig_step step;
	int32_t ids[ROWS], from[ROWS], positions[ROWS], row_seq[ROWS], lens[SEQS], logit_rows[SEQS];
	struct ig_sample_params sample[SEQS];
	int32_t sampled[SEQS];
};

struct session {
	struct ig_driver *driver;
	struct ig_program *program;
	struct ig_program_memory memory;
	struct ig_kv_layout layout;
	struct ig_step_kv kv;
	uint32_t tables[SEQS][BLOCKS];
	void *slabs[8];
	struct batch batch[3];
};

static struct ig_gpu_lowered *lowered(const struct session *s)
{
	return (struct ig_gpu_lowered *)s->program;
}

static struct ig_gpu_driver *gpu(const struct session *s)
{
	return (struct ig_gpu_driver *)s->driver;
}

static int start(struct session *s, const struct toy_model *m, const char *driver,
		 const struct ig_driver_options *o, struct ig_error *err)
{
	memset(s, 0, sizeof *s);
	int rc = ig_driver_open(driver, o, &s->driver, err);
	if (!rc)
		rc = ig_driver_lower(s->driver, m->plan, &limits, &s->program, &s->memory, err);
	if (!rc)
		rc = ig_program_load(s->program, err);
	if (rc)
		return rc;
	s->slabs[0] = ig_driver_map_slab(s->driver, SLAB_BYTES);
	if (!s->slabs[0])
		return ig_fail(err, -ENOMEM, "no slab");
	const uint64_t token = TOY_HEAD * 2, head = token * IG_BLOCK_TOKENS,
		       v = head * TOY_KV_HEADS;
	s->layout = (struct ig_kv_layout){
		.k_dtype = IG_F16,
		.v_dtype = IG_F16,
		.n_layers = TOY_LAYERS,
		.n_kv_heads = TOY_KV_HEADS,
		.head_dim = TOY_HEAD,
		.block_bytes = 2 * v * TOY_LAYERS,
		.layer_stride = 2 * v,
		.v_offset = v,
		.head_stride = head,
		.k_token_stride = token,
		.v_token_stride = token,
	};
	s->kv = (struct ig_step_kv){ &s->layout, &s->tables[0][0], BLOCKS };
	for (uint32_t q = 0; q < SEQS; q++)
		for (uint32_t b = 0; b < BLOCKS; b++)
			s->tables[q][b] = IG_BLOCK_WORD(0, (q * BLOCKS + b) % 128);
	return 0;
}

static void stop(struct session *s)
{
	ig_program_destroy(s->program);
	if (s->driver && s->slabs[0])
		ig_driver_unmap_slab(s->driver, s->slabs[0], SLAB_BYTES);
	ig_driver_close(s->driver);
	fake_gpu_reset();
}

static void must_start(struct session *s, const struct toy_model *m, const char *driver)
{
	static const struct ig_driver_options o = { .strict = 1 };
	struct ig_error err = { 0 };
	if (start(s, m, driver, &o, &err))
		fail_msg("%s", err.text);
}

/* One row a sequence at position `at`; with ahead, its tokens are the step's before. */
static struct ig_step *make_step(struct session *s, int i, int32_t at, const struct batch *ahead)
{
	struct batch *b = &s->batch[i];

	memset(b, 0, sizeof *b);
	memset(b->sampled, 0xff, sizeof b->sampled);
	for (int32_t q = 0; q < SEQS; q++) {
		b->positions[q] = at;
		b->row_seq[q] = b->logit_rows[q] = b->from[q] = q;
		b->lens[q] = at + 1;
		b->sample[q].mask = -1;
	}
	b->step = (struct ig_step){
		.struct_size = sizeof b->step,
		.n_rows = SEQS,
		.n_seqs = SEQS,
		.n_logit_rows = SEQS,
		.token_ids = b->ids,
		.positions = b->positions,
		.row_seq = b->row_seq,
		.seq_lens = b->lens,
		.logit_rows = b->logit_rows,
		.sample = b->sample,
		.sampled_ids = b->sampled,
		.slab_bases = s->slabs,
		.kv = &s->kv,
		.n_groups = 1,
		.token_from = ahead ? b->from : NULL,
		.prev_ids = ahead ? ahead->sampled : NULL,
	};
	return &b->step;
}

static void assert_runs(struct session *s)
{
	struct ig_step *step = make_step(s, 2, 3, NULL);
	int rc = ig_program_submit(s->program, step);
	if (rc || ig_program_wait(s->program))
		fail_msg("%d: %s", rc, ig_program_error(s->program)->text);
	assert_int_equal(s->batch[2].sampled[1], fake_gpu.base + 1);
}

/* ---- opening ---- */

static void test_open(void **state)
{
	struct ig_driver_options o = { .activations = "f32", .strict = 1 };
	struct ig_error err = { 0 };
	struct ig_driver *d;

	assert_int_equal(ig_driver_open("fake", &o, &d, &err), 0);
	assert_string_equal(ig_driver_describe(d), "fake, Fake 1, activations f32, strict");
	assert_int_equal(ig_driver_memory(d), 12345678);
	assert_int_equal(ig_driver_steps_in_flight(d), IG_STEPS_IN_FLIGHT);
	ig_driver_close(d);
	o.activations = "auto";
	o.strict = 0;
	assert_int_equal(ig_driver_open("auto", &o, &d, &err), 0);
	assert_string_equal(ig_driver_describe(d), "fake, Fake 1, activations auto");
	ig_driver_close(d);
	o.activations = "f64";
	assert_int_equal(ig_driver_open("fake", &o, &d, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "\"f64\""));
	o.activations = NULL;
	o.experts = "mapped";
	assert_int_equal(ig_driver_open("fake", &o, &d, &err), -ENOTSUP);
	assert_string_equal(err.text, "experts \"mapped\" are not supported by the driver fake; "
				      "packed is");
	o.experts = "packed";
	assert_int_equal(ig_driver_open("fake", &o, &d, &err), 0);
	ig_driver_close(d);
	assert_int_equal(ig_driver_open("vulkan", &o, &d, &err), -ENOTSUP);
	assert_string_equal(err.text,
			    "driver \"vulkan\" is unknown; known: auto, fake, wrapping, cpu");

	/* Where there is no device, auto goes on; who asks by name is told. */
	o.activations = NULL;
	o.n_threads = 1;
	fake_gpu.no_device = true;
	assert_int_equal(ig_driver_open("auto", &o, &d, &err), 0);
	assert_memory_equal(ig_driver_describe(d), "cpu, ", 5);
	ig_driver_close(d);
	assert_int_equal(ig_driver_open("fake", &o, &d, &err), -ENOTSUP);
	assert_string_equal(err.text, "there is no fake device");
	/* A device that is there and fails is not passed over. */
	fake_gpu.no_device = false;
	fake_gpu.fail_at = 1;
	assert_int_equal(ig_driver_open("auto", &o, &d, &err), -ENOMEM);
	assert_string_equal(err.text, "the fake device's open fails");
	fake_gpu_reset();
}

/* ---- lowering ---- */

static const struct ig_gpu_tape_dispatch *find(const struct ig_gpu_tape *t, const struct ig_plan *p,
					       const char *op, uint32_t skip)
{
	for (uint32_t i = 0; i < t->n_dispatches; i++)
		if (!strcmp(p->nodes[t->dispatches[i].node].op->name, op) &&
		    !strcmp(t->dispatches[i].d.kernel, "toy") && skip-- == 0)
			return &t->dispatches[i];
	fail_msg("no dispatch %s", op);
	return NULL;
}

/* Bytes of a row of operand i. */
static uint64_t row_bytes(const struct ig_gpu_tape_dispatch *d, uint32_t i)
{
	return d->d.bind[i].n_bytes;
}

static void test_tape(void **state)
{
	const struct toy_model *m = *state;
	struct session s;

	must_start(&s, m, "fake");
	const struct ig_gpu_tape *t = lowered(&s)->tape;
	/* A layer: norm, qkv few and tile, rope, attention's three, a conversion, output few and
	 * tile, norm, glu few and tile, down few and tile; around it rope_table, embed, the last
	 * norm, logits few and tile, sample. */
	assert_int_equal(t->n_dispatches, TOY_LAYERS * 15 + 6);
	uint32_t barriers = 0, converts = 0;
	for (uint32_t i = 0; i < t->n_dispatches; i++) {
		barriers += t->dispatches[i].barrier;
		converts += !strcmp(t->dispatches[i].d.kernel, "convert_f16");
	}
	/* Ten a layer: split and loop run at once, so do the kernels for few and many rows;
	 * rope_table runs beside embed. */
	assert_int_equal(barriers, TOY_LAYERS * 10 + 3);
	assert_int_equal(converts, TOY_LAYERS);
	/* Norms write what products read; the stream stays float32. */
	assert_int_equal(row_bytes(find(t, m->plan, "norm", 0), 2), TOY_WIDTH * 2);
	assert_int_equal(row_bytes(find(t, m->plan, "linear", 0), 0), TOY_WIDTH * 2);
	assert_int_equal(row_bytes(find(t, m->plan, "linear", 2), 1), TOY_WIDTH * 4); /* residual */
	assert_int_equal(row_bytes(find(t, m->plan, "glu", 0), 3), TOY_FF * 2);
	assert_int_equal(row_bytes(find(t, m->plan, "rope_kv", 0), 0),
			 (TOY_HEADS + 2 * TOY_KV_HEADS) * TOY_HEAD * 4);
	assert_int_equal(row_bytes(find(t, m->plan, "attention", 0), 0), TOY_HEADS * TOY_HEAD * 2);
	assert_int_equal(row_bytes(find(t, m->plan, "attention", 1), 1), TOY_HEADS * TOY_HEAD * 4);
	/* Partials for 32 rows of 4 ranges, as many as there can be. */
	assert_int_equal(lowered(&s)->shape.max_partials, ROWS * (TOY_CONTEXT / 256));
	/* The embedding is the head too: one weight, one buffer. */
	assert_int_equal(find(t, m->plan, "embed", 0)->d.bind[0].ref.buffer,
			 find(t, m->plan, "logits", 0)->d.bind[1].ref.buffer);
	assert_true(s.memory.scratch_bytes >= t->scratch_bytes + 2 * lowered(&s)->shape.area_bytes);
	stop(&s);

	/* In float32 nothing is converted but for attention. */
	static const struct ig_driver_options f32 = { .activations = "f32" };
	struct ig_error err = { 0 };
	assert_int_equal(start(&s, m, "fake", &f32, &err), 0);
	t = lowered(&s)->tape;
	assert_int_equal(t->n_dispatches, TOY_LAYERS * 14 + 6);
	assert_int_equal(row_bytes(find(t, m->plan, "glu", 0), 3), TOY_FF * 4);
	stop(&s);
}

static void test_not_lowered(void **state)
{
	struct toy_model *m = *state;
	struct ig_driver_options o = { 0 };
	struct ig_error err = { 0 };
	struct ig_program_memory memory;
	struct ig_program *p;
	struct ig_driver *d;
	uint32_t glu = 0;

	assert_int_equal(ig_driver_open("fake", &o, &d, &err), 0);
	while (strcmp(m->plan->nodes[glu].op->name, "glu"))
		glu++;
	const struct ig_op *op = m->plan->nodes[glu].op;
	struct ig_op none = *op;
	none.gpu = NULL;
	m->plan->nodes[glu].op = &none;
	assert_int_equal(ig_driver_lower(d, m->plan, &limits, &p, &memory, &err), -ENOTSUP);
	assert_string_equal(err.text,
			    "op glu, tensor \"blk.0.ffn_gate.weight\" (F16): no GPU runs it");
	m->plan->nodes[glu].op = op;
	struct ig_shape *w = &m->plan->weights[m->plan->nodes[glu].weight[0]].shape;
	w->dtype = IG_Q8_0;
	assert_int_equal(ig_driver_lower(d, m->plan, &limits, &p, &memory, &err), -ENOTSUP);
	assert_string_equal(err.text, "op glu, tensor \"blk.0.ffn_gate.weight\" (Q8_0): no kernel "
				      "multiplies that");
	w->dtype = IG_F16;
	/* An op that loses a tape's error does not get away with it. */
	struct ig_gpu_op broken = *op->gpu;
	broken.in_dtype = NULL;
	broken.lower = NULL;
	none.gpu = &broken;
	m->plan->nodes[glu].op = &none;
	assert_int_equal(ig_driver_lower(d, m->plan, &limits, &p, &memory, &err), -ENOTSUP);
	m->plan->nodes[glu].op = op;
	struct ig_program_limits huge = limits;
	huge.max_context = huge.max_seqs = 1u << 30;
	assert_int_equal(ig_driver_lower(d, m->plan, &huge, &p, &memory, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "allow fewer or shorter ones"));
	ig_driver_close(d);
	fake_gpu_reset();
}

/* The cap on partials: bytes, but one sequence of the longest context at least. */
static void test_partials(void **state)
{
	const struct toy_model *m = *state;
	struct ig_driver_options o = { 0 };
	struct ig_error err = { 0 };
	struct ig_program_memory memory;
	struct ig_program *p;
	struct ig_driver *d;
	const uint64_t bytes = TOY_HEADS * (TOY_HEAD + 2) * 4;
	static const struct {
		uint32_t rows, seqs, context;
		uint64_t expected; /* 0: 64 MiB of them */
	} cases[] = {
		{ 1, 1, 100, 1 },	{ 8, 64, 1000, 8 * 4 },		{ 512, 2, 1000, 256 * 4 },
		{ 512, 64, 100000, 0 }, { 512, 4, 1u << 26, 1u << 18 },
	};

	assert_int_equal(ig_driver_open("fake", &o, &d, &err), 0);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct ig_program_limits l = { cases[i].rows, cases[i].seqs, 1, cases[i].context,
					       IG_F16,	      IG_F16,	     8 };
		assert_int_equal(ig_driver_lower(d, m->plan, &l, &p, &memory, &err), 0);
		assert_int_equal(((struct ig_gpu_lowered *)p)->shape.max_partials,
				 cases[i].expected ? cases[i].expected : (64u << 20) / bytes);
		ig_program_destroy(p);
	}
	/* a 512th of a large device's memory, up to 256 MiB */
	for (uint64_t gib = 64; gib <= 1024; gib *= 16) {
		struct ig_program_limits l = { 512, 64, 1, 2000000, IG_F16, IG_F16, 8 };
		ig_driver_close(d);
		fake_gpu.working_set_bytes = gib << 30;
		assert_int_equal(ig_driver_open("fake", &o, &d, &err), 0);
		assert_int_equal(ig_driver_lower(d, m->plan, &l, &p, &memory, &err), 0);
		assert_int_equal(((struct ig_gpu_lowered *)p)->shape.max_partials,
				 ((gib == 64 ? 128u : 256u) << 20) / bytes);
		ig_program_destroy(p);
	}
	ig_driver_close(d);
	fake_gpu_reset();
}

/* ---- weights ---- */

static void assert_weights(const struct session *s, const struct toy_model *m)
{
	const struct ig_gpu_weights *w = &lowered(s)->weights;

	for (uint32_t i = 0; i < m->plan->n_weights; i++) {
		const struct ig_gpu_place *p = &lowered(s)->places[w->weights[i].buffer];
		assert_int_equal(p->offset % 32, 0);
		assert_memory_equal(fake_gpu_bytes(p->buffer) + p->offset,
				    m->plan->weights[i].tensor->data, m->plan->weights[i].n_bytes);
	}
}

static void test_weights(void **state)
{
	const struct toy_model *m = *state;
	const uint64_t largest = 2 * TOY_FF * TOY_WIDTH;
	uint64_t total = 0;
	struct session s;

	for (uint32_t i = 0; i < m->plan->n_weights; i++)
		total += m->plan->weights[i].n_bytes;
	must_start(&s, m, "fake");
	assert_int_equal(lowered(&s)->weights.n_views, 1);
	assert_true(s.memory.weight_bytes >= total && s.memory.weight_bytes < total + 256 * 40);
	assert_weights(&s, m);
	/* A tape's constants are written too. */
	const struct ig_gpu_tape *t = lowered(&s)->tape;
	assert_memory_equal(fake_gpu_bytes(lowered(&s)->constants), t->constants,
			    t->n_constant_bytes);
	stop(&s);

	fake_gpu.max_buffer_bytes = 2 * SLAB_BYTES;
	must_start(&s, m, "wrapping");
	assert_int_equal(fake_gpu.n_wraps, 1);
	assert_int_equal(lowered(&s)->weights.n_views, 1);
	assert_true(s.memory.weight_bytes >= total && s.memory.weight_bytes < total + 3 * 65536);
	assert_weights(&s, m);
	stop(&s);

	/* Cut between tensors where a view would be too large. */
	struct ig_driver_options o = { 0 };
	struct ig_error err = { 0 };
	struct ig_program_memory memory;
	for (int wrap = 0; wrap < 2; wrap++) {
		fake_gpu.max_buffer_bytes = largest + 16384;
		memset(&s, 0, sizeof s);
		assert_int_equal(ig_driver_open(wrap ? "wrapping" : "fake", &o, &s.driver, &err),
				 0);
		struct ig_program_limits small = { 1, 1, 1, 16, IG_F16, IG_F16, 1 };
		assert_int_equal(
			ig_driver_lower(s.driver, m->plan, &small, &s.program, &memory, &err), 0);
		struct ig_gpu_weights *w = &lowered(&s)->weights;
		assert_true(w->n_views >= total / (largest + 16384) && w->n_views < 30);
		assert_int_equal(ig_gpu_weights_load(w, gpu(&s)->device, &err), 0);
		for (uint32_t i = 0; i < m->plan->n_weights; i++) {
			const struct ig_gpu_view *v = &w->views[w->weights[i].view];
			assert_true(w->weights[i].offset + m->plan->weights[i].n_bytes <=
				    v->n_bytes);
			assert_memory_equal(fake_gpu_bytes(v->buffer) + w->weights[i].offset,
					    m->plan->weights[i].tensor->data,
					    m->plan->weights[i].n_bytes);
		}
		stop(&s);
		fake_gpu.max_buffer_bytes = largest - 4096;
		assert_int_equal(ig_driver_open(wrap ? "wrapping" : "fake", &o, &s.driver, &err),
				 0);
		assert_int_equal(
			ig_driver_lower(s.driver, m->plan, &small, &s.program, &memory, &err),
			-ENOTSUP);
		assert_non_null(
			strstr(err.text, "tensor \"blk.0.ffn_gate.weight\" has 30720 bytes"));
		s.program = NULL;
		stop(&s);
	}
}

static bool any_weight(const struct ig_gpu_launch *c, uint32_t i) { return true; }

/* Weights whose readers all agree lie in tiles, filled up to sixteen rows, and are repacked once
 * each. */
static void test_tiles(void **state)
{
	const struct toy_model *m = *state;
	struct ig_op ops[64];
	const struct ig_op *before[64];
	struct ig_gpu_op gpus[64];
	struct session s;
	uint32_t n_tiled = 0;

	assert_true(m->plan->n_nodes <= 64);
	for (uint32_t i = 0; i < m->plan->n_nodes; i++) {
		before[i] = m->plan->nodes[i].op;
		ops[i] = *before[i];
		gpus[i] = *ops[i].gpu;
		ops[i].gpu = &gpus[i];
		if (!strcmp(ops[i].name, "linear") || !strcmp(ops[i].name, "logits"))
			gpus[i].tiles = any_weight;
		m->plan->nodes[i].op = &ops[i];
	}
	for (int have = 0; have < 2; have++) {
		fake_gpu.tiles = have;
		must_start(&s, m, have ? "wrapping" : "fake");
		const struct ig_gpu_weights *w = &lowered(&s)->weights;
		for (uint32_t i = 0; i < m->plan->n_nodes; i++) {
			const struct ig_plan_node *n = &m->plan->nodes[i];
			for (uint32_t j = 0; j < n->n_weights; j++) {
				if (n->weight[j] == IG_NONE)
					continue;
				const struct ig_plan_weight *pw = &m->plan->weights[n->weight[j]];
				const struct ig_gpu_weight *gw = &w->weights[n->weight[j]];
				/* embed, which reads the logits' weight too, does not agree */
				if (!have || strcmp(ops[i].name, "linear") != 0) {
					assert_int_equal(gw->layout, IG_GPU_ROWS);
					assert_int_equal(gw->n_bytes, pw->n_bytes);
					continue;
				}
				assert_int_equal(gw->layout, IG_GPU_TILES);
				assert_int_equal(gw->n_bytes,
						 (pw->shape.n_rows + 15) / 16 * 16 *
							 ((pw->shape.n_cols + 255) / 256 * 512));
				n_tiled++;
			}
		}
		/* views of a file are in rows: all is copied */
		assert_int_equal(fake_gpu.n_wraps, 0);
		assert_int_equal(fake_gpu.n_submits, n_tiled);
		assert_runs(&s);
		stop(&s);
	}
	assert_true(n_tiled > 2 * TOY_LAYERS);
	/* Every call fails in turn, those of repacking too. */
	for (int at = 1;; at++) {
		static const struct ig_driver_options o = { .strict = 1 };
		struct ig_error err = { 0 };
		fake_gpu.tiles = true;
		fake_gpu.fail_at = at;
		int rc = start(&s, m, "fake", &o, &err);
		bool last = !rc && fake_gpu.fail_at;
		fake_gpu.fail_at = 0;
		assert_true(last || (rc == -ENOMEM && err.text[0]));
		stop(&s);
		if (last)
			break;
	}
	for (uint32_t i = 0; i < m->plan->n_nodes; i++)
		m->plan->nodes[i].op = before[i];
}

/* Rows that no file has as they are wanted are made, whether a device could wrap or
 * not. */
static void test_weights_of_a_folder(void **state)
{
	static const struct ig_driver_options o = { .strict = 1 };
	const struct ig_program_limits small = { 1, 1, 1, 16, IG_F16, IG_F16, 1 };
	struct ig_error err = { 0 };
	struct ig_program_memory memory;
	struct toy_model m;
	uint32_t n_made = 0;

	if (toy_model_open(&m, INGOT_TEST_ARCHS "/llama3"))
		fail_msg("no model");
	for (int wrap = 0; wrap < 2; wrap++) {
		struct session s = { 0 };
		assert_int_equal(ig_driver_open(wrap ? "wrapping" : "fake", &o, &s.driver, &err),
				 0);
		assert_int_equal(
			ig_driver_lower(s.driver, m.plan, &small, &s.program, &memory, &err), 0);
		struct ig_gpu_weights *w = &lowered(&s)->weights;
		assert_int_equal(ig_gpu_weights_load(w, gpu(&s)->device, &err), 0);
		for (uint32_t i = 0; i < m.plan->n_weights; i++) {
			const struct ig_plan_weight *pw = &m.plan->weights[i];
			const struct ig_gpu_view *v = &w->views[w->weights[i].view];
			uint8_t *buf = malloc(pw->n_bytes);
			assert_non_null(buf);
			assert_null(v->base);
			n_made += !pw->tensor->data;
			assert_memory_equal(
				fake_gpu_bytes(v->buffer) + w->weights[i].offset,
				ig_checkpoint_rows(m.file, pw->tensor, 0, pw->shape.n_rows, buf),
				pw->n_bytes);
			free(buf);
		}
		stop(&s);
	}
	assert_int_equal(n_made, 2 * 4); /* q and k of two layers, twice */
	toy_model_finish(&m);
}

/* ---- steps ---- */

static void test_two_in_flight(void **state)
{
	struct session s;

	must_start(&s, *state, "fake");
	struct ig_step *a = make_step(&s, 0, 7, NULL), *b = make_step(&s, 1, 8, &s.batch[0]);
	fake_gpu.base = 10;
	assert_int_equal(ig_program_submit(s.program, a), 0);
	const struct step_head *h = (const struct step_head *)(void *)fake_gpu.last_step;
	uint32_t slot = fake_gpu.last.slot;
	assert_int_equal(h->ids, slot);
	fake_gpu.base = 20;
	assert_int_equal(ig_program_submit(s.program, b), 0);
	h = (const struct step_head *)(void *)fake_gpu.last_step;
	assert_int_equal(fake_gpu.last.slot, 1 - slot);
	assert_int_equal(h->ids, 1 - slot);
	assert_int_equal(h->prev_ids, slot);
	assert_int_equal(((const int32_t *)(void *)(fake_gpu.last_step + h->token_from))[2], 2);
	assert_int_equal(ig_program_submit(s.program, make_step(&s, 2, 9, NULL)), -EBUSY);
	assert_int_equal(ig_program_wait(s.program), 0);
	for (int q = 0; q < SEQS; q++) {
		assert_int_equal(s.batch[0].sampled[q], 10 + q);
		assert_int_equal(s.batch[1].sampled[q], -1); /* not yet */
	}
	/* The third goes where the first was. */
	struct ig_step *c = make_step(&s, 2, 9, &s.batch[1]);
	fake_gpu.base = 30;
	assert_int_equal(ig_program_submit(s.program, c), 0);
	assert_int_equal(fake_gpu.last.slot, slot);
	assert_int_equal(ig_program_wait(s.program), 0);
	assert_int_equal(s.batch[1].sampled[3], 23);
	assert_int_equal(ig_program_wait(s.program), 0);
	assert_int_equal(s.batch[2].sampled[3], 33);
	/* One wait a step: the device was asked three times. */
	assert_int_equal(fake_gpu.n_waits, 3);
	assert_int_equal(fake_gpu.n_submits, 3);
	assert_int_equal(fake_gpu.last_timeout_ms, 30000);
	stop(&s);
}

static void test_logits(void **state)
{
	struct session s;
	static float logits[SEQS * TOY_VOCAB];

	must_start(&s, *state, "fake");
	make_step(&s, 0, 7, NULL)->logits = logits;
	assert_int_equal(ig_program_submit(s.program, &s.batch[0].step), 0);
	assert_int_equal(ig_program_wait(s.program), 0);
	assert_true(logits[2 * TOY_VOCAB + 5] == 2005.0f);
	/* Nobody is given a token that is none. */
	make_step(&s, 0, 7, NULL);
	fake_gpu.base = TOY_VOCAB - 3;
	assert_int_equal(ig_program_submit(s.program, &s.batch[0].step), 0);
	assert_int_equal(ig_program_wait(s.program), -EIO);
	assert_string_equal(ig_program_error(s.program)->text,
			    "fake: row 3 was given token 77 of 77");
	fake_gpu.base = 0;
	assert_runs(&s);
	stop(&s);
}

static void test_errors(void **state)
{
	static const struct {
		int code;
		const char *text;
	} errors[] = {
		{ -EIO, "the fake device fails" },
		{ -ENOMEM, "the fake device fails" },
		{ -ETIMEDOUT, "fake: a step made no progress for 30 s" },
	};
	struct session s;

	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
		must_start(&s, *state, "fake");
		/* Of two steps under way the first fails: neither has results. */
		struct ig_step *a = make_step(&s, 0, 7, NULL),
			       *b = make_step(&s, 1, 8, &s.batch[0]);
		assert_int_equal(ig_program_submit(s.program, a), 0);
		assert_int_equal(ig_program_submit(s.program, b), 0);
		fake_gpu.wait_error = errors[i].code;
		fake_gpu.n_wait_errors = 1;
		assert_int_equal(ig_program_wait(s.program), errors[i].code);
		assert_int_equal(ig_program_error(s.program)->code, errors[i].code);
		assert_string_equal(ig_program_error(s.program)->text, errors[i].text);
		assert_int_equal(s.batch[0].sampled[0], -1);
		assert_int_equal(s.batch[1].sampled[0], -1);
		assert_int_equal(ig_program_wait(s.program), -EINVAL); /* none is under way */
		assert_runs(&s);
		/* A device that refuses a step takes the next. */
		fake_gpu.submit_error = errors[i].code;
		assert_int_equal(ig_program_submit(s.program, make_step(&s, 0, 9, NULL)),
				 errors[i].code);
		assert_string_equal(ig_program_error(s.program)->text,
				    "the fake device refuses a step");
		assert_runs(&s);
		stop(&s);
	}
	/* A step that hangs keeps its buffers until the device releases them. */
	must_start(&s, *state, "fake");
	assert_int_equal(ig_program_submit(s.program, make_step(&s, 0, 7, NULL)), 0);
	fake_gpu.wait_error = -ETIMEDOUT;
	fake_gpu.n_wait_errors = 3;
	assert_int_equal(ig_program_wait(s.program), -ETIMEDOUT);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ig_program_submit(s.program, make_step(&s, 0, 7, NULL)),
				 -ETIMEDOUT);
		assert_string_equal(ig_program_error(s.program)->text,
				    "fake: an earlier step has not finished");
	}
	assert_runs(&s);
	stop(&s);

	/* Gone for good. */
	must_start(&s, *state, "fake");
	assert_int_equal(ig_program_submit(s.program, make_step(&s, 0, 7, NULL)), 0);
	fake_gpu.wait_error = -ENODEV;
	fake_gpu.n_wait_errors = 1;
	assert_int_equal(ig_program_wait(s.program), -ENODEV);
	int submits = fake_gpu.n_submits;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ig_program_submit(s.program, make_step(&s, 0, 7, NULL)), -ENODEV);
		assert_string_equal(ig_program_error(s.program)->text, "the fake device fails");
	}
	assert_int_equal(fake_gpu.n_submits, submits);
	stop(&s);

	/* A hostile step is refused, the next one runs. */
	must_start(&s, *state, "fake");
	s.tables[2][0] = IG_BLOCK_WORD(5, 0);
	assert_int_equal(ig_program_submit(s.program, make_step(&s, 0, 7, NULL)), -EINVAL);
	assert_string_equal(ig_program_error(s.program)->text,
			    "sequence 2, cache group 0: block 0 of slab 5 is not mapped");
	s.tables[2][0] = 3;
	assert_runs(&s);
	stop(&s);
}

/* ---- copies ---- */

enum { BLOCK = 256, A = 0, B, C, D, E };

static uint8_t *block(const struct session *s, int i) { return (uint8_t *)s->slabs[0] + i * BLOCK; }

static void copy(struct session *s, int to, int from)
{
	ig_driver_copy(s->driver, block(s, to), block(s, from), BLOCK);
}

static void assert_blocks(struct session *s, const char *letters)
{
	assert_runs(s);
	for (int i = 0; letters[i]; i++)
		for (int j = 0; j < BLOCK; j++)
			assert_int_equal(block(s, i)[j], letters[i]);
	for (int i = 0; i < 26; i++)
		memset(block(s, i), 'a' + i, BLOCK);
}

static void test_copies(void **state)
{
	struct session s;

	must_start(&s, *state, "fake");
	for (int i = 0; i < 26; i++)
		memset(block(&s, i), 'a' + i, BLOCK);
	copy(&s, B, A);
	copy(&s, D, C);
	assert_int_equal(fake_gpu.n_submits, 0); /* they wait */
	assert_blocks(&s, "aaccef");
	assert_int_equal(fake_gpu.n_submits, 2); /* copies, then the step */
	/* As if one after another: a chain, a target twice, a source that is overwritten, a swap,
	 * a part of a block. */
	copy(&s, B, A);
	copy(&s, C, B);
	copy(&s, D, C);
	assert_blocks(&s, "aaaaef");
	copy(&s, B, A);
	copy(&s, C, B);
	copy(&s, B, E);
	assert_blocks(&s, "aeadef");
	copy(&s, B, A);
	copy(&s, A, C);
	assert_blocks(&s, "cacdef");
	copy(&s, E, A);
	copy(&s, A, B);
	copy(&s, B, E);
	copy(&s, A, A);
	assert_blocks(&s, "bacdaf");
	copy(&s, B, A);
	copy(&s, A, B);
	assert_blocks(&s, "aacdef");
	copy(&s, B, A);
	ig_driver_copy(s.driver, block(&s, D), block(&s, B) + 16, BLOCK - 16);
	ig_driver_copy(s.driver, block(&s, D) + BLOCK - 16, block(&s, B), 16);
	assert_blocks(&s, "aacaef");
	/* More than one step of copies holds. */
	int before = fake_gpu.n_submits;
	for (int i = 0; i < 3 * IG_GPU_MAX_COPIES; i++)
		ig_driver_copy(s.driver, block(&s, 100 + i), block(&s, A), BLOCK);
	assert_runs(&s);
	assert_int_equal(fake_gpu.n_submits, before + 4);
	for (int i = 0; i < 3 * IG_GPU_MAX_COPIES; i++)
		assert_int_equal(block(&s, 100 + i)[5], 'a');

	/* What is no copy between slabs is told once, and does nothing. */
	static const struct {
		int64_t to, from;
		uint64_t n;
	} bad[] = {
		{ 0, 8, BLOCK },
		{ 8, 512, BLOCK },
		{ 0, 512, 8 },
		{ 0, SLAB_BYTES, 16 },
		{ SLAB_BYTES - 16, 0, 32 },
		{ 0, 16, 32 },
		{ 0, 512, (uint64_t)1 << 40 },
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		int copies = (int)fake_gpu.n_copies;
		ig_driver_copy(s.driver, (uint8_t *)s.slabs[0] + bad[i].to,
			       (uint8_t *)s.slabs[0] + bad[i].from, bad[i].n);
		assert_int_equal(ig_program_submit(s.program, make_step(&s, 0, 7, NULL)), -EINVAL);
		assert_non_null(strstr(ig_program_error(s.program)->text, "not between slabs"));
		assert_runs(&s);
		assert_int_equal(fake_gpu.n_copies, copies);
	}
	/* Copies that were refused are sent again; copies that failed fail the step behind. */
	copy(&s, B, A);
	fake_gpu.submit_error = -EIO;
	assert_int_equal(ig_program_submit(s.program, make_step(&s, 0, 7, NULL)), -EIO);
	assert_blocks(&s, "aacdef");
	for (int i = 0; i < 2; i++) {
		copy(&s, B, A);
		assert_int_equal(ig_program_submit(s.program, make_step(&s, 0, 7, NULL)), 0);
		fake_gpu.wait_error = -EIO;
		fake_gpu.n_wait_errors = 2; /* the step's, then the copies' */
		assert_int_equal(ig_program_wait(s.program), -EIO);
		fake_gpu.n_wait_errors = 0;
		assert_runs(&s);
	}
	stop(&s);
}

/* ---- slabs ---- */

/* Blocks from and to the host: copies that were queued before come first. */
static void test_host_copies(void **state)
{
	struct ig_error err = { 0 };
	struct session s;
	uint8_t x[BLOCK], y[BLOCK];

	must_start(&s, *state, "fake");
	for (int i = 0; i < 26; i++)
		memset(block(&s, i), 'a' + i, BLOCK);
	memset(x, 'x', sizeof x);
	assert_int_equal(ig_driver_read_slab(s.driver, y, block(&s, C), BLOCK, &err), 0);
	assert_int_equal(y[0] + y[BLOCK - 1], 2 * 'c');
	copy(&s, B, A);
	assert_int_equal(ig_driver_write_slab(s.driver, block(&s, A), x, BLOCK, &err), 0);
	assert_int_equal(ig_driver_read_slab(s.driver, y, block(&s, A), BLOCK, &err), 0);
	assert_memory_equal(x, y, BLOCK);
	assert_blocks(&s, "xacdef");
	copy(&s, B, A);
	assert_int_equal(ig_driver_write_slab(s.driver, block(&s, B), x, BLOCK, &err), 0);
	assert_blocks(&s, "axcdef");
	/* beyond a slab */
	assert_int_equal(
		ig_driver_write_slab(s.driver, block(&s, 0) + SLAB_BYTES - 16, x, 17, &err),
		-EINVAL);
	assert_non_null(strstr(err.text, "not in a slab"));
	assert_int_equal(ig_driver_read_slab(s.driver, y, x, 16, &err), -EINVAL);
	stop(&s);
}

static void test_slabs(void **state)
{
	struct session s;

	must_start(&s, *state, "fake");
	void *a = ig_driver_map_slab(s.driver, 65536), *b = ig_driver_map_slab(s.driver, 65536);
	assert_non_null(a);
	assert_non_null(b);
	ig_driver_unmap_slab(s.driver, a, 65536);
	assert_ptr_equal(ig_driver_map_slab(s.driver, 65536), a);
	/* Given back with a step under way: not freed before that step is done. */
	assert_int_equal(ig_program_submit(s.program, make_step(&s, 0, 7, NULL)), 0);
	ig_driver_unmap_slab(s.driver, a, 65536);
	ig_driver_unmap_slab(s.driver, b, 65536);
	int frees = fake_gpu.n_frees;
	fake_gpu.pressure = 1;
	assert_int_equal(ig_program_submit(s.program, make_step(&s, 1, 8, NULL)), 0);
	assert_int_equal(fake_gpu.n_frees, frees);
	assert_int_equal(ig_program_wait(s.program), 0);
	assert_int_equal(ig_program_wait(s.program), 0);
	fake_gpu.pressure = 1;
	assert_runs(&s);
	assert_int_equal(fake_gpu.n_frees, frees + 1);
	/* Asked to, the driver gives back what it keeps and no step needs. */
	assert_int_equal(ig_driver_release(s.driver, UINT64_MAX), 65536);
	assert_int_equal(fake_gpu.n_frees, frees + 2);
	assert_int_equal(ig_driver_release(s.driver, UINT64_MAX), 0);
	/* A block is copied from a slab that then goes: the copy goes ahead, and the slab is not
	 * freed before it is done. */
	a = ig_driver_map_slab(s.driver, 65536);
	memset(a, 'x', BLOCK);
	ig_driver_copy(s.driver, block(&s, B), a, BLOCK);
	ig_driver_unmap_slab(s.driver, a, 65536);
	frees = fake_gpu.n_frees;
	fake_gpu.pressure = UINT64_MAX;
	assert_int_equal(ig_program_submit(s.program, make_step(&s, 0, 7, NULL)), 0);
	assert_int_equal(fake_gpu.n_frees, frees);
	assert_int_equal(block(&s, B)[9], 'x');
	assert_int_equal(ig_program_wait(s.program), 0);
	/* Where that can't be, the next step says so. */
	a = ig_driver_map_slab(s.driver, 65536);
	ig_driver_copy(s.driver, block(&s, B), a, BLOCK);
	fake_gpu.submit_error = -EIO;
	ig_driver_unmap_slab(s.driver, a, 65536);
	assert_int_equal(ig_program_submit(s.program, make_step(&s, 0, 7, NULL)), -EIO);
	uint32_t copies = fake_gpu.n_copies;
	assert_runs(&s);
	assert_int_equal(fake_gpu.n_copies, copies);
	fake_gpu.max_bytes = 1;
	assert_null(ig_driver_map_slab(s.driver, 131072));
	stop(&s);
}

/* ---- every call fails in turn ---- */

static void test_each_failure(void **state)
{
	static const char *const drivers[] = { "fake", "wrapping" };
	static const struct ig_driver_options o = { .strict = 1 };
	struct session s;
	struct ig_error err;
	int failed = 0;

	for (size_t d = 0; d < 2; d++) {
		for (int at = 1;; at++) {
			fake_gpu.fail_at = at;
			err = (struct ig_error){ 0 };
			int rc = start(&s, *state, drivers[d], &o, &err);
			if (!rc && fake_gpu.fail_at) {
				fake_gpu.fail_at = 0;
				assert_runs(&s);
				stop(&s);
				break; /* there are no more calls */
			}
			assert_int_equal(rc, -ENOMEM);
			assert_int_equal(err.code, -ENOMEM);
			assert_true(err.text[0]);
			failed++;
			/* A load that failed can be tried again. */
			if (s.program && !s.program->loaded) {
				err = (struct ig_error){ 0 };
				if (ig_program_load(s.program, &err))
					fail_msg("%s", err.text);
			}
			stop(&s);
		}
	}
	assert_true(failed > 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open),	    cmocka_unit_test(test_tape),
		cmocka_unit_test(test_not_lowered), cmocka_unit_test(test_partials),
		cmocka_unit_test(test_weights),	    cmocka_unit_test(test_weights_of_a_folder),
		cmocka_unit_test(test_tiles),	    cmocka_unit_test(test_two_in_flight),
		cmocka_unit_test(test_logits),	    cmocka_unit_test(test_errors),
		cmocka_unit_test(test_copies),	    cmocka_unit_test(test_host_copies),
		cmocka_unit_test(test_slabs),	    cmocka_unit_test(test_each_failure),
	};
	return cmocka_run_group_tests_name("the driver for GPUs", tests, setup, teardown);
}
