/*
 * test_together.c: one model over three devices that only remember: what each gets of the weights, of the
 * cache and of a step, what comes back, and what follows when one fails.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/split.h"
#include "shaders/step.h"
#include "tests/unit/runtime/fake_gpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define N 3
#define SLAB_BYTES (1u << 16)
#define SEQS 2

static const struct ig_program_limits limits = { 32, 4, 4, TOY_CONTEXT, IG_F16, IG_F16, 8 };
static const uint32_t numbers[] = { 4, 0, 2, 1, 3, 5, 6, 7, 8 };

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

struct session {
	struct ig_driver *driver;
	struct ig_program *program;
	struct ig_program_memory memory;
	struct ig_kv_layout layout;
	struct ig_step_kv kv;
	uint32_t table[SEQS];
	void *slabs[8];
	int32_t ids[SEQS], zeros[SEQS], order[SEQS], lens[SEQS], sampled[2][SEQS];
	struct ig_sample_params sample[SEQS];
	struct ig_step steps[2];
};

static void start(struct session *s, const struct toy_model *m)
{
	const struct ig_driver_options o = { .strict = 1, .devices = numbers, .n_devices = N };
	const uint64_t token = TOY_HEAD * 2, head = token * IG_BLOCK_TOKENS;
	struct ig_model_info info;
	struct ig_error err = { 0 };

	memset(s, 0, sizeof *s);
	if (ig_driver_open("fake", &o, &s->driver, &err) ||
	    ig_driver_model_info(s->driver, m->plan, &info, &err) ||
	    ig_driver_lower(s->driver, m->plan, &limits, &s->program, &s->memory, &err) ||
	    ig_program_load(s->program, &err))
		fail_msg("%s", err.text);
	assert_int_equal(info.groups[0].n_kv_heads, 1);
	for (int i = 0; i < 2; i++)
		assert_non_null(s->slabs[i] = ig_driver_map_slab(s->driver, SLAB_BYTES));
	s->layout = (struct ig_kv_layout){ .k_dtype = IG_F16,
					   .v_dtype = IG_F16,
					   .n_layers = TOY_LAYERS,
					   .n_kv_heads = 1,
					   .head_dim = TOY_HEAD,
					   .block_bytes = 2 * head * TOY_LAYERS,
					   .layer_stride = 2 * head,
					   .v_offset = head,
					   .head_stride = head,
					   .k_token_stride = token,
					   .v_token_stride = token };
	s->table[0] = IG_BLOCK_WORD(0, 1);
	s->table[1] = IG_BLOCK_WORD(1, 0);
	s->kv = (struct ig_step_kv){ &s->layout, s->table, 1 };
	for (int i = 0; i < SEQS; i++) {
		s->order[i] = i;
		s->lens[i] = 1;
		s->sample[i].mask = -1;
	}
}

static const struct ig_step *make_step(struct session *s, int i, bool ahead)
{
	s->steps[i] = (struct ig_step){
		.struct_size = sizeof s->steps[i],
		.n_rows = SEQS,
		.n_seqs = SEQS,
		.n_logit_rows = SEQS,
		.token_ids = s->ids,
		.positions = s->zeros,
		.row_seq = s->order,
		.seq_lens = s->lens,
		.logit_rows = s->order,
		.sample = s->sample,
		.sampled_ids = s->sampled[i],
		.slab_bases = s->slabs,
		.kv = &s->kv,
		.n_groups = 1,
		.token_from = ahead ? s->order : NULL,
		.prev_ids = ahead ? s->sampled[1 - i] : NULL,
	};
	return &s->steps[i];
}

static void stop(struct session *s)
{
	ig_program_destroy(s->program);
	for (int i = 0; i < 2; i++)
		ig_driver_unmap_slab(s->driver, s->slabs[i], SLAB_BYTES);
	ig_driver_close(s->driver);
	fake_gpu_reset();
}

static void refused(const char *driver, uint32_t n, const uint32_t *devices, int rc,
		    const char *part)
{
	const struct ig_driver_options o = { .devices = devices, .n_devices = n };
	struct ig_error err = { 0 };
	struct ig_driver *d;

	assert_int_equal(ig_driver_open(driver, &o, &d, &err), rc);
	if (!strstr(err.text, part))
		fail_msg("'%s' does not say '%s'", err.text, part);
	fake_gpu_reset();
}

static void test_open(void **state)
{
	const uint32_t twice[] = { 1, 0, 1 };
	const struct ig_driver_options all = { .all_devices = 1 },
				       two = { .devices = numbers, .n_devices = 2 };
	struct ig_error err = { 0 };
	struct ig_driver *d;

	assert_int_equal(ig_driver_open("fake", &two, &d, &err), 0);
	assert_int_equal(fake_gpu.n_open, 2);
	assert_int_equal(fake_gpu.n_connected, 2);
	assert_int_equal(ig_driver_n_ranks(d), 2);
	assert_string_equal(ig_driver_describe(d), "2 devices: fake, Fake 1, activations auto");
	assert_int_equal(ig_driver_memory(d), 12345678); /* of each */
	ig_driver_close(d);
	fake_gpu_reset();
	/* All that there are: one is as without the option. */
	fake_gpu.n_devices = 1;
	assert_int_equal(ig_driver_open("fake", &all, &d, &err), 0);
	assert_int_equal(ig_driver_n_ranks(d), 1);
	assert_int_equal(fake_gpu.n_connected, 0);
	ig_driver_close(d);
	fake_gpu.n_devices = 4;
	assert_int_equal(ig_driver_open("fake", &all, &d, &err), 0);
	assert_int_equal(fake_gpu.n_connected, 4);
	ig_driver_close(d);
	fake_gpu_reset();

	refused("fake", 3, twice, -EINVAL, "device 1 is named twice");
	refused("fake", 9, numbers, -ENOTSUP, "9 devices; at most 8");
	refused("wrapping", 1, numbers, -ENOTSUP, "wrapping has no devices with numbers");
	refused("cpu", 1, numbers, -ENOTSUP, "cpu has no devices with numbers");
	fake_gpu.connect_error = -EIO;
	refused("fake", 2, numbers, -EIO, "the fake devices are not connected");
	fake_gpu.no_device = true;
	refused("fake", 2, numbers, -ENOTSUP, "there is no fake device");
	/* Nobody who names devices gets another driver. */
	fake_gpu.no_device = true;
	refused("auto", 2, numbers, -ENOTSUP, "there is no fake device");
}

static void test_memory(void **state)
{
	struct ig_driver_options o = { .strict = 1 };
	const struct toy_model *m = *state;
	struct ig_program_memory whole;
	struct ig_program *p;
	struct ig_error err = { 0 };
	struct ig_driver *d;
	struct session s;

	assert_int_equal(ig_driver_open("fake", &o, &d, &err), 0);
	assert_int_equal(ig_driver_lower(d, m->plan, &limits, &p, &whole, &err), 0);
	ig_program_destroy(p);
	ig_driver_close(d);
	fake_gpu_reset();
	start(&s, m);
	/* A part of the weights; what all have is the embedding, and keys and values of one head. */
	assert_true(s.memory.weight_bytes < whole.weight_bytes * 6 / 10);
	assert_true(s.memory.weight_bytes > whole.weight_bytes / 3);
	assert_int_equal(fake_gpu.n_programs, 2 * N); /* with those for copies */
	stop(&s);
}

/* The slab that a rank's kernels get under a number. */
static uint64_t slab_of(const uint8_t *step, uint32_t number)
{
	const struct step_head *h = (const struct step_head *)(const void *)step;
	return ((const uint64_t *)(const void *)(step + h->slabs))[number];
}

static void test_steps(void **state)
{
	struct session s;

	start(&s, *state);
	fake_gpu.base = 5;
	assert_int_equal(ig_program_submit(s.program, make_step(&s, 0, false)), 0);
	/* All have got it, each its own slabs: the last one's are not those that the cache knows. */
	for (int r = 0; r < N; r++)
		for (int q = 0; q < r; q++)
			assert_ptr_not_equal(fake_gpu.submitted[r], fake_gpu.submitted[q]);
	assert_true(slab_of(fake_gpu.last_step, 0) && slab_of(fake_gpu.last_step, 1));
	assert_int_not_equal(slab_of(fake_gpu.last_step, 0), (uintptr_t)s.slabs[0]);
	assert_int_not_equal(slab_of(fake_gpu.last_step, 1), (uintptr_t)s.slabs[1]);
	/* The next one starts from tokens that are not read yet. */
	assert_int_equal(ig_program_submit(s.program, make_step(&s, 1, true)), 0);
	const int n_waits = fake_gpu.n_waits;
	assert_int_equal(ig_program_wait(s.program), 0);
	assert_int_equal(fake_gpu.n_waits, n_waits + N);
	assert_int_equal(s.sampled[0][1], 6);
	assert_int_equal(ig_program_wait(s.program), 0);
	assert_int_equal(s.sampled[1][0], 5);
	stop(&s);
}

/* Blocks are copied on every device. */
static void test_copies(void **state)
{
	struct session s;
	char text[16];
	struct ig_error err = { 0 };

	start(&s, *state);
	ig_driver_copy(s.driver, (char *)s.slabs[0] + 64, (char *)s.slabs[1] + 128, 64);
	assert_int_equal(ig_program_submit(s.program, make_step(&s, 0, false)), 0);
	assert_int_equal(ig_program_wait(s.program), 0);
	assert_int_equal(fake_gpu.n_copies, N);
	ig_driver_copy(s.driver, text, (char *)s.slabs[1], 16);
	assert_int_not_equal(ig_program_submit(s.program, make_step(&s, 0, false)), 0);
	assert_non_null(strstr(ig_program_error(s.program)->text, "which is not between slabs"));
	assert_int_equal(ig_driver_read_slab(s.driver, text, s.slabs[0], 16, &err), -ENOTSUP);
	assert_int_equal(ig_driver_write_slab(s.driver, s.slabs[0], text, 16, &err), -ENOTSUP);
	stop(&s);
}

static void test_slabs(void **state)
{
	struct session s;

	start(&s, *state);
	/* All or none: the second device has no memory for it. */
	const uint64_t before = fake_gpu.n_bytes;
	fake_gpu.max_bytes = before + SLAB_BYTES + SLAB_BYTES / 2;
	assert_null(ig_driver_map_slab(s.driver, SLAB_BYTES));
	fake_gpu.max_bytes = 0;
	assert_true(ig_driver_release(s.driver, UINT64_MAX) >= SLAB_BYTES);
	assert_int_equal(fake_gpu.n_bytes, before);
	void *more = ig_driver_map_slab(s.driver, SLAB_BYTES);
	assert_non_null(more);
	assert_int_equal(fake_gpu.n_bytes, before + N * SLAB_BYTES);
	ig_driver_unmap_slab(s.driver, more, SLAB_BYTES);
	stop(&s);
}

static void test_failures(void **state)
{
	struct session s;

	/* One fails: nobody waits for it any more, and the reason has its number. */
	start(&s, *state);
	assert_int_equal(ig_program_submit(s.program, make_step(&s, 0, false)), 0);
	fake_gpu.wait_error = -EIO;
	fake_gpu.n_wait_errors = 1;
	assert_int_equal(ig_program_wait(s.program), -ENODEV);
	assert_string_equal(ig_program_error(s.program)->text, "device 0: the fake device fails");
	assert_true(fake_gpu.n_aborts > 0);
	stop(&s);
	/* The first has the step, the second refuses it. */
	start(&s, *state);
	fake_gpu.fail_at = 0;
	const int n_submits = fake_gpu.n_submits;
	fake_gpu.submit_error = -EIO;
	assert_int_equal(ig_program_submit(s.program, make_step(&s, 0, false)), -EIO);
	assert_int_equal(fake_gpu.n_submits, n_submits + 1);
	assert_int_equal(fake_gpu.n_aborts, 0); /* none has it: the next one runs */
	assert_int_equal(ig_program_submit(s.program, make_step(&s, 0, false)), 0);
	assert_int_equal(ig_program_wait(s.program), 0);
	fake_gpu.fail_at = 2;
	assert_int_equal(ig_program_submit(s.program, make_step(&s, 0, false)), -ENODEV);
	assert_non_null(strstr(ig_program_error(s.program)->text, "device 1: "));
	assert_true(fake_gpu.n_aborts > 0);
	fake_gpu.fail_at = 0;
	stop(&s);
}

/* What can't be divided is refused when it is lowered. */
static void test_refused(void **state)
{
	const struct toy_model *m = *state;
	const struct ig_driver_options o = { .devices = numbers, .n_devices = 2 };
	struct ig_program_memory memory;
	struct ig_program *p;
	struct ig_error err = { 0 };
	struct ig_driver *d;

	assert_int_equal(ig_driver_open("fake", &o, &d, &err), 0);
	assert_int_equal(ig_driver_lower(d, m->plan, &limits, &p, &memory, &err), -ENOTSUP);
	assert_non_null(
		strstr(err.text, "op rope_kv can't be divided over 2 devices: it has 3 heads"));
	assert_null(p);
	ig_driver_close(d);
	fake_gpu_reset();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open),	cmocka_unit_test(test_memory),
		cmocka_unit_test(test_steps),	cmocka_unit_test(test_copies),
		cmocka_unit_test(test_slabs),	cmocka_unit_test(test_failures),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests_name("several devices", tests, setup, teardown);
}
