/*
 * test_gpu_driver_steps.c: the driver for GPUs, running: steps in flight and what follows each error,
 * copies between cache blocks, slabs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "gpu_driver_case.h"
#include "shaders/step.h"

#include <errno.h>
#include <string.h>

/* ---- steps ---- */

static void test_two_in_flight(void **state)
{
	struct session s;

	session_must_start(&s, *state, "fake");
	struct ig_step *a = session_step(&s, 0, 7, NULL), *b = session_step(&s, 1, 8, &s.batch[0]);
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
	assert_int_equal(ig_program_submit(s.program, session_step(&s, 2, 9, NULL)), -EBUSY);
	assert_int_equal(ig_program_wait(s.program), 0);
	for (int q = 0; q < SEQS; q++) {
		assert_int_equal(s.batch[0].sampled[q], 10 + q);
		assert_int_equal(s.batch[1].sampled[q], -1); /* not yet */
	}
	/* The third goes where the first was. */
	struct ig_step *c = session_step(&s, 2, 9, &s.batch[1]);
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
	session_stop(&s);
}

static void test_logits(void **state)
{
	struct session s;
	static float logits[SEQS * TOY_VOCAB];

	session_must_start(&s, *state, "fake");
	session_step(&s, 0, 7, NULL)->logits = logits;
	assert_int_equal(ig_program_submit(s.program, &s.batch[0].step), 0);
	assert_int_equal(ig_program_wait(s.program), 0);
	assert_true(logits[2 * TOY_VOCAB + 5] == 2005.0f);
	/* Nobody is given a token that is none. */
	session_step(&s, 0, 7, NULL);
	fake_gpu.base = TOY_VOCAB - 3;
	assert_int_equal(ig_program_submit(s.program, &s.batch[0].step), 0);
	assert_int_equal(ig_program_wait(s.program), -EIO);
	assert_string_equal(ig_program_error(s.program)->text,
			    "fake: row 3 was given token 77 of 77");
	fake_gpu.base = 0;
	session_assert_runs(&s);
	session_stop(&s);
}

/* What a submit takes for a recording is no part of the step. */
static void test_preparation(void **state)
{
	struct session s;

	session_must_start(&s, *state, "fake");
	fake_gpu.prepare_us = 20000;
	for (int i = 0; i < 2; i++, fake_gpu.prepare_us = 0) {
		const int64_t begin = ig_now_ns();
		assert_int_equal(ig_program_submit(s.program, session_step(&s, 0, 7, NULL)), 0);
		const int64_t prepared = ig_program_prepare_ns(s.program);
		assert_true(i ? prepared == 0 : prepared >= 20000000);
		assert_int_equal(ig_program_wait(s.program), 0);
		assert_true(ig_driver_step_ns(s.driver) <= ig_now_ns() - begin - prepared);
	}
	session_assert_runs(&s);
	session_stop(&s);
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
		session_must_start(&s, *state, "fake");
		/* Of two steps under way the first fails: neither has results. */
		struct ig_step *a = session_step(&s, 0, 7, NULL),
			       *b = session_step(&s, 1, 8, &s.batch[0]);
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
		session_assert_runs(&s);
		/* A device that refuses a step takes the next. */
		fake_gpu.submit_error = errors[i].code;
		assert_int_equal(ig_program_submit(s.program, session_step(&s, 0, 9, NULL)),
				 errors[i].code);
		assert_string_equal(ig_program_error(s.program)->text,
				    "the fake device refuses a step");
		session_assert_runs(&s);
		session_stop(&s);
	}
	/* A step that hangs keeps its buffers until the device releases them. */
	session_must_start(&s, *state, "fake");
	assert_int_equal(ig_program_submit(s.program, session_step(&s, 0, 7, NULL)), 0);
	fake_gpu.wait_error = -ETIMEDOUT;
	fake_gpu.n_wait_errors = 3;
	assert_int_equal(ig_program_wait(s.program), -ETIMEDOUT);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ig_program_submit(s.program, session_step(&s, 0, 7, NULL)),
				 -ETIMEDOUT);
		assert_string_equal(ig_program_error(s.program)->text,
				    "fake: an earlier step has not finished");
	}
	session_assert_runs(&s);
	session_stop(&s);

	/* Gone for good. */
	session_must_start(&s, *state, "fake");
	assert_int_equal(ig_program_submit(s.program, session_step(&s, 0, 7, NULL)), 0);
	fake_gpu.wait_error = -ENODEV;
	fake_gpu.n_wait_errors = 1;
	assert_int_equal(ig_program_wait(s.program), -ENODEV);
	int submits = fake_gpu.n_submits;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ig_program_submit(s.program, session_step(&s, 0, 7, NULL)),
				 -ENODEV);
		assert_string_equal(ig_program_error(s.program)->text, "the fake device fails");
	}
	assert_int_equal(fake_gpu.n_submits, submits);
	session_stop(&s);

	/* A hostile step is refused, the next one runs. */
	session_must_start(&s, *state, "fake");
	s.tables[2][0] = IG_BLOCK_WORD(5, 0);
	assert_int_equal(ig_program_submit(s.program, session_step(&s, 0, 7, NULL)), -EINVAL);
	assert_string_equal(ig_program_error(s.program)->text,
			    "sequence 2, cache group 0: block 0 of slab 5 is not mapped");
	s.tables[2][0] = 3;
	session_assert_runs(&s);
	session_stop(&s);
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
	session_assert_runs(s);
	for (int i = 0; letters[i]; i++)
		for (int j = 0; j < BLOCK; j++)
			assert_int_equal(block(s, i)[j], letters[i]);
	for (int i = 0; i < 26; i++)
		memset(block(s, i), 'a' + i, BLOCK);
}

/* Rows that are no token's are in device memory when the step is submitted, each slot's in its own, and their
 * addresses in the step; a step of text has none. */
static void test_rows_from_outside(void **state)
{
	static float rows[2][SEQS][TOY_WIDTH];
	static const int32_t turned[SEQS][IG_ROPE_AXES] = { { 1, 2, 3 }, { 4, 5, 6 } };
	struct session s = { 0 };

	for (int i = 0; i < 2 * SEQS * TOY_WIDTH; i++)
		rows[i / SEQS / TOY_WIDTH][i / TOY_WIDTH % SEQS][i % TOY_WIDTH] = (float)i;
	session_must_start(&s, *state, "fake");
	assert_int_equal(ig_program_outside_width(s.program), TOY_WIDTH);
	const int allocs = fake_gpu.n_allocs, writes = fake_gpu.n_writes;
	session_assert_runs(&s);
	const struct step_head *h = (const struct step_head *)(void *)fake_gpu.last_step;
	assert_int_equal(h->outside, 0);
	assert_int_equal(h->rope_positions, 0);
	assert_int_equal(h->sees_to, h->positions);
	assert_int_equal(fake_gpu.n_allocs, allocs);

	uint64_t seen[2][SEQS];
	for (int i = 0; i < 2; i++) {
		/* the first step has the rows 0 and 2, of which the memory is not together, the other one all */
		const float *outside[SEQS];
		for (int r = 0; r < SEQS; r++)
			outside[r] = i || r == 0 || r == 2 ? rows[i][r] : NULL;
		struct ig_step *step = session_step(&s, i, 7, NULL);
		step->outside = outside;
		step->rope_positions = turned[0];
		step->sees_to = step->positions;
		assert_int_equal(ig_program_submit(s.program, step), 0);
		h = (const struct step_head *)(void *)fake_gpu.last_step;
		assert_memory_equal(fake_gpu.last_step + h->rope_positions, turned, sizeof turned);
		assert_int_not_equal(h->sees_to, h->positions);
		memcpy(seen[i], fake_gpu.last_step + h->outside, sizeof seen[i]);
	}
	assert_int_equal(fake_gpu.n_allocs, allocs + 2);
	assert_int_equal(fake_gpu.n_writes, writes + 2 + 1);
	for (int i = 0; i < 2; i++)
		for (int r = 0; r < SEQS; r++) {
			if (!i && r != 0 && r != 2)
				assert_true(seen[i][r] == 0);
			else
				assert_memory_equal((const float *)(uintptr_t)seen[i][r],
						    rows[i][r], sizeof rows[i][r]);
		}
	assert_int_equal(ig_program_wait(s.program), 0);
	assert_int_equal(ig_program_wait(s.program), 0);

	/* Memory that is there is used again; one that can't be had fails the step, not the next one. */
	const float *one[SEQS] = { NULL, rows[0][1] };
	struct ig_step *step = session_step(&s, 0, 7, NULL);
	step->outside = one;
	assert_int_equal(ig_program_submit(s.program, step), 0);
	assert_int_equal(ig_program_wait(s.program), 0);
	assert_int_equal(fake_gpu.n_allocs, allocs + 2);
	session_stop(&s);

	session_must_start(&s, *state, "fake");
	fake_gpu.max_bytes = fake_gpu.n_bytes;
	step = session_step(&s, 0, 7, NULL);
	step->outside = one;
	assert_int_equal(ig_program_submit(s.program, step), -ENOMEM);
	assert_non_null(strstr(ig_program_error(s.program)->text, "full"));
	session_assert_runs(&s);
	fake_gpu.max_bytes = 0;
	assert_int_equal(ig_program_submit(s.program, step), 0);
	assert_int_equal(ig_program_wait(s.program), 0);
	session_stop(&s);
}

static void test_copies(void **state)
{
	struct session s;

	session_must_start(&s, *state, "fake");
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
	session_assert_runs(&s);
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
		assert_int_equal(ig_program_submit(s.program, session_step(&s, 0, 7, NULL)),
				 -EINVAL);
		assert_non_null(strstr(ig_program_error(s.program)->text, "not between slabs"));
		session_assert_runs(&s);
		assert_int_equal(fake_gpu.n_copies, copies);
	}
	/* Copies that were refused are sent again; copies that failed fail the step behind. */
	copy(&s, B, A);
	fake_gpu.submit_error = -EIO;
	assert_int_equal(ig_program_submit(s.program, session_step(&s, 0, 7, NULL)), -EIO);
	assert_blocks(&s, "aacdef");
	for (int i = 0; i < 2; i++) {
		copy(&s, B, A);
		assert_int_equal(ig_program_submit(s.program, session_step(&s, 0, 7, NULL)), 0);
		fake_gpu.wait_error = -EIO;
		fake_gpu.n_wait_errors = 2; /* the step's, then the copies' */
		assert_int_equal(ig_program_wait(s.program), -EIO);
		fake_gpu.n_wait_errors = 0;
		session_assert_runs(&s);
	}
	session_stop(&s);
}

/* ---- slabs ---- */

/* Blocks from and to the host: copies that were queued before come first. */
static void test_host_copies(void **state)
{
	struct ig_error err = { 0 };
	struct session s;
	uint8_t x[BLOCK], y[BLOCK];

	session_must_start(&s, *state, "fake");
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
	session_stop(&s);
}

static void test_slabs(void **state)
{
	struct session s;

	session_must_start(&s, *state, "fake");
	void *a = ig_driver_map_slab(s.driver, 65536), *b = ig_driver_map_slab(s.driver, 65536);
	assert_non_null(a);
	assert_non_null(b);
	ig_driver_unmap_slab(s.driver, a, 65536);
	assert_ptr_equal(ig_driver_map_slab(s.driver, 65536), a);
	/* Given back with a step under way: not freed before that step is done. */
	assert_int_equal(ig_program_submit(s.program, session_step(&s, 0, 7, NULL)), 0);
	ig_driver_unmap_slab(s.driver, a, 65536);
	ig_driver_unmap_slab(s.driver, b, 65536);
	int frees = fake_gpu.n_frees;
	fake_gpu.pressure = 1;
	assert_int_equal(ig_program_submit(s.program, session_step(&s, 1, 8, NULL)), 0);
	assert_int_equal(fake_gpu.n_frees, frees);
	assert_int_equal(ig_program_wait(s.program), 0);
	assert_int_equal(ig_program_wait(s.program), 0);
	fake_gpu.pressure = 1;
	session_assert_runs(&s);
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
	assert_int_equal(ig_program_submit(s.program, session_step(&s, 0, 7, NULL)), 0);
	assert_int_equal(fake_gpu.n_frees, frees);
	assert_int_equal(block(&s, B)[9], 'x');
	assert_int_equal(ig_program_wait(s.program), 0);
	/* Where that can't be, the next step says so. */
	a = ig_driver_map_slab(s.driver, 65536);
	ig_driver_copy(s.driver, block(&s, B), a, BLOCK);
	fake_gpu.submit_error = -EIO;
	ig_driver_unmap_slab(s.driver, a, 65536);
	assert_int_equal(ig_program_submit(s.program, session_step(&s, 0, 7, NULL)), -EIO);
	uint32_t copies = fake_gpu.n_copies;
	session_assert_runs(&s);
	assert_int_equal(fake_gpu.n_copies, copies);
	fake_gpu.max_bytes = 1;
	assert_null(ig_driver_map_slab(s.driver, 131072));
	session_stop(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_two_in_flight), cmocka_unit_test(test_logits),
		cmocka_unit_test(test_preparation),   cmocka_unit_test(test_errors),
		cmocka_unit_test(test_copies),	      cmocka_unit_test(test_host_copies),
		cmocka_unit_test(test_slabs),	      cmocka_unit_test(test_rows_from_outside),
	};
	return cmocka_run_group_tests_name("the driver for GPUs, steps", tests, driver_setup,
					   driver_teardown);
}
