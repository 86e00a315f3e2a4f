/*
 * test_gpu_driver.c: the driver for GPUs over a device that only remembers.
 *
 * How a small llama's plan becomes a tape, where its weights lie, and every call that can fail
 * failing in turn.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gpu_driver_case.h"
#include "model/formats/checkpoint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct ig_gpu_driver *gpu(const struct session *s)
{
	return (struct ig_gpu_driver *)s->driver;
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

	session_must_start(&s, m, "fake");
	const struct ig_gpu_tape *t = session_lowered(&s)->tape;
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
	assert_int_equal(session_lowered(&s)->shape.max_partials, ROWS * (TOY_CONTEXT / 256));
	/* The embedding is the head too: one weight, one buffer. */
	assert_int_equal(find(t, m->plan, "embed", 0)->d.bind[0].ref.buffer,
			 find(t, m->plan, "logits", 0)->d.bind[1].ref.buffer);
	assert_true(s.memory.scratch_bytes >=
		    t->scratch_bytes + 2 * session_lowered(&s)->shape.area_bytes);
	session_stop(&s);

	/* In float32 nothing is converted but for attention. */
	static const struct ig_driver_options f32 = { .activations = "f32" };
	struct ig_error err = { 0 };
	assert_int_equal(session_start(&s, m, "fake", &f32, &err), 0);
	t = session_lowered(&s)->tape;
	assert_int_equal(t->n_dispatches, TOY_LAYERS * 14 + 6);
	assert_int_equal(row_bytes(find(t, m->plan, "glu", 0), 3), TOY_FF * 4);
	session_stop(&s);
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
	assert_int_equal(ig_driver_lower(d, m->plan, &driver_limits, &p, &memory, &err), -ENOTSUP);
	assert_string_equal(err.text,
			    "op glu, tensor \"blk.0.ffn_gate.weight\" (F16): no GPU runs it");
	m->plan->nodes[glu].op = op;
	struct ig_shape *w = &m->plan->weights[m->plan->nodes[glu].weight[0]].shape;
	w->dtype = IG_Q8_0;
	assert_int_equal(ig_driver_lower(d, m->plan, &driver_limits, &p, &memory, &err), -ENOTSUP);
	assert_string_equal(err.text, "op glu, tensor \"blk.0.ffn_gate.weight\" (Q8_0): no kernel "
				      "multiplies that");
	w->dtype = IG_F16;
	/* An op that loses a tape's error does not get away with it. */
	struct ig_gpu_op broken = *op->gpu;
	broken.in_dtype = NULL;
	broken.lower = NULL;
	none.gpu = &broken;
	m->plan->nodes[glu].op = &none;
	assert_int_equal(ig_driver_lower(d, m->plan, &driver_limits, &p, &memory, &err), -ENOTSUP);
	m->plan->nodes[glu].op = op;
	struct ig_program_limits huge = driver_limits;
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
	const struct ig_gpu_weights *w = &session_lowered(s)->weights;

	for (uint32_t i = 0; i < m->plan->n_weights; i++) {
		const struct ig_gpu_place *p = &session_lowered(s)->places[w->weights[i].buffer];
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
	session_must_start(&s, m, "fake");
	assert_int_equal(session_lowered(&s)->weights.n_views, 1);
	assert_true(s.memory.weight_bytes >= total && s.memory.weight_bytes < total + 256 * 40);
	assert_weights(&s, m);
	/* A tape's constants are written too. */
	const struct ig_gpu_tape *t = session_lowered(&s)->tape;
	assert_memory_equal(fake_gpu_bytes(session_lowered(&s)->constants), t->constants,
			    t->n_constant_bytes);
	session_stop(&s);

	fake_gpu.max_buffer_bytes = 2 * SLAB_BYTES;
	session_must_start(&s, m, "wrapping");
	assert_int_equal(fake_gpu.n_wraps, 1);
	assert_int_equal(session_lowered(&s)->weights.n_views, 1);
	assert_true(s.memory.weight_bytes >= total && s.memory.weight_bytes < total + 3 * 65536);
	assert_weights(&s, m);
	session_stop(&s);

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
		struct ig_gpu_weights *w = &session_lowered(&s)->weights;
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
		session_stop(&s);
		fake_gpu.max_buffer_bytes = largest - 4096;
		assert_int_equal(ig_driver_open(wrap ? "wrapping" : "fake", &o, &s.driver, &err),
				 0);
		assert_int_equal(
			ig_driver_lower(s.driver, m->plan, &small, &s.program, &memory, &err),
			-ENOTSUP);
		assert_non_null(
			strstr(err.text, "tensor \"blk.0.ffn_gate.weight\" has 30720 bytes"));
		s.program = NULL;
		session_stop(&s);
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
		session_must_start(&s, m, have ? "wrapping" : "fake");
		const struct ig_gpu_weights *w = &session_lowered(&s)->weights;
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
		session_assert_runs(&s);
		session_stop(&s);
	}
	assert_true(n_tiled > 2 * TOY_LAYERS);
	/* Every call fails in turn, those of repacking too. */
	for (int at = 1;; at++) {
		static const struct ig_driver_options o = { .strict = 1 };
		struct ig_error err = { 0 };
		fake_gpu.tiles = true;
		fake_gpu.fail_at = at;
		int rc = session_start(&s, m, "fake", &o, &err);
		bool last = !rc && fake_gpu.fail_at;
		fake_gpu.fail_at = 0;
		assert_true(last || (rc == -ENOMEM && err.text[0]));
		session_stop(&s);
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
		struct ig_gpu_weights *w = &session_lowered(&s)->weights;
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
		session_stop(&s);
	}
	assert_int_equal(n_made, 2 * 4); /* q and k of two layers, twice */
	toy_model_finish(&m);
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
			int rc = session_start(&s, *state, drivers[d], &o, &err);
			if (!rc && fake_gpu.fail_at) {
				fake_gpu.fail_at = 0;
				session_assert_runs(&s);
				session_stop(&s);
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
			session_stop(&s);
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
		cmocka_unit_test(test_tiles),	    cmocka_unit_test(test_each_failure),
	};
	return cmocka_run_group_tests_name("the driver for GPUs", tests, driver_setup,
					   driver_teardown);
}
