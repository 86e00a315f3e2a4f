/*
 * test_cuda_graphs.c: what a tape's dispatches become in the device `cuda`: nodes of graphs with their
 * operands, grids and order, and one graph for each bucket of counts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cuda_case.h"

#include <errno.h>
#include <string.h>

/* Operands, grids, conditions and barriers as the tape has them. */
static void test_recording(void **state)
{
	struct ig_gpu_submission s = cuda_submission(0, 5);
	struct {
		uint32_t a, b;
	} args = { 3, 4 };
	struct ig_gpu_dispatch d;
	struct ig_error err = { 0 };
	struct world w;
	CUdeviceptr value;

	world_begin(&w);
	d = cuda_dispatch("first_8_1", &args, 8); /* writes the value's first half */
	d.n_binds = 2;
	d.grid[0] = (struct ig_gpu_extent){ IG_LIVE_ROWS, 1, 4, 3 };
	d.bind[0] = (struct ig_gpu_bind){ w.value, 512, IG_GPU_WRITE, 0 };
	d.bind[1] = (struct ig_gpu_bind){ w.ids, 16, IG_GPU_READ | IG_GPU_TOUCH, 0 };
	world_record(&w, &d);
	d.bind[0].ref.offset = 512; /* the other half: beside the first */
	d.n_binds = 1;
	d.grid[0] = cuda_one;
	d.grid[1] = (struct ig_gpu_extent){ IG_LIVE_LOGIT_ROWS, 1, 1, 1 };
	world_record(&w, &d);
	d = cuda_dispatch("second_4_2", &args, 4); /* reads both: after a barrier */
	d.n_binds = 2;
	d.threadgroup_bytes = 65536;
	d.bind[0] = (struct ig_gpu_bind){ w.value, 1024, IG_GPU_READ, 0 };
	d.bind[1].ref.buffer = -1;
	world_record(&w, &d);
	d = cuda_dispatch("ids_4_1", &args,
			  4); /* only in steps of many rows; writes what was read */
	d.n_binds = 1;
	d.when_live = IG_LIVE_ROWS;
	d.when_min = 17;
	d.bind[0] = (struct ig_gpu_bind){ w.value, 1024, IG_GPU_WRITE, 0 };
	world_record(&w, &d);
	d = cuda_dispatch("ids_4_1", &args,
			  4); /* its barrier belongs to the one that did not run */
	d.n_binds = 1;
	d.bind[0] = (struct ig_gpu_bind){ w.value, 4, IG_GPU_WRITE, 0 };
	d.when_live = IG_LIVE_ROWS;
	d.when_max = 16;
	world_record(&w, &d);
	assert_int_equal(world_make(&w, &err), 0);
	value = w.d->class->address(w.memory) + w.places[w.value.buffer].offset;

	world_run(&w, &s);
	assert_int_equal(fake->n_runs, 4);
	const struct fake_run *r = fake->runs;
	assert_string_equal(r[0].name, "first_8_1");
	assert_int_equal(r[0].grid[0], 6); /* rows 5 in the bucket of 8: 3 * 8 / 4 */
	assert_memory_equal(r[0].args, &args, 8);
	assert_true(r[0].address[1] == value);
	assert_true(r[1].address[1] == value + 512);
	assert_int_equal(r[1].grid[1], 4); /* logit rows 2 in the bucket of 4 */
	assert_int_equal(r[0].n_after + r[1].n_after, 0);
	assert_string_equal(r[2].name, "second_4_2");
	assert_int_equal(r[2].n_after, 2);
	assert_int_equal(r[2].shared, 65536);
	assert_true(r[2].address[2] == 0);
	assert_int_equal(r[3].n_after, 1);

	s = cuda_submission(0, 17);
	world_run(&w, &s);
	assert_int_equal(fake->n_runs, 8);
	assert_int_equal(r[7].n_after, 1);
	world_end(&w);
}

/* A kernel that waits itself begins while the one before it runs, but for a first one and one that
 * follows several. */
static void record_overlaps(struct world *w)
{
	static const struct {
		const char *kernel;
		uint64_t offset, n_bytes;
	} all[] = { { "waits_4_1", 0, 64 }, { "waits_4_1", 0, 64 },  { "ids_4_1", 0, 64 },
		    { "waits_4_1", 0, 64 }, { "waits_4_1", 64, 64 }, { "waits_4_1", 0, 128 },
		    { "waits_4_1", 0, 128 } };
	uint32_t arg = 0;

	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		struct ig_gpu_dispatch d = cuda_dispatch(all[i].kernel, &arg, 4);

		d.n_binds = 1;
		d.bind[0] = (struct ig_gpu_bind){ w->value, all[i].n_bytes, IG_GPU_WRITE, 0 };
		d.bind[0].ref.offset = all[i].offset;
		world_record(w, &d);
	}
}

static void test_overlaps(void **state)
{
	static const bool overlaps[] = { false, true, false, true, true, false, true };
	static const unsigned after[] = { 0, 1, 1, 1, 1, 2, 1 };
	struct ig_gpu_submission s = cuda_submission(0, 1);
	struct ig_error err = { 0 };
	struct world w;

	for (int refused = 0; refused < 2; refused++) {
		fake->n_runs = fake->n_refused = fake->n_instantiated = 0;
		fake->refuse_overlaps = refused;
		world_begin(&w);
		record_overlaps(&w);
		assert_int_equal(world_make(&w, &err), 0);
		for (uint32_t rows = 1; rows < 4; rows++) { /* no grid follows them */
			s = cuda_submission(0, rows);
			world_run(&w, &s);
		}
		assert_int_equal(fake->n_refused, refused);
		assert_int_equal(fake->n_instantiated, 1);
		assert_int_equal(fake->n_runs, 21);
		for (size_t i = 0; i < sizeof after / sizeof *after; i++) {
			assert_int_equal(fake->runs[i].overlaps, !refused && overlaps[i]);
			assert_int_equal(fake->runs[i].n_after, after[i]);
		}
		world_end(&w);
	}
}

/* Not in steps of many rows. */
static void test_overlaps_of_few_rows(void **state)
{
	struct ig_error err = { 0 };
	struct world w;
	uint32_t arg = 0;

	world_begin(&w);
	for (int i = 0; i < 2; i++) {
		struct ig_gpu_dispatch d = cuda_dispatch("waits_4_1", &arg, 4);

		d.n_binds = 1;
		d.bind[0] = (struct ig_gpu_bind){ w.value, 64, IG_GPU_WRITE, 0 };
		d.grid[0] = (struct ig_gpu_extent){ IG_LIVE_ROWS, 1, 1, 1 };
		world_record(&w, &d);
	}
	assert_int_equal(world_make(&w, &err), 0);
	for (uint32_t rows = 127; rows < 131; rows++) {
		struct ig_gpu_submission s = cuda_submission(0, rows);

		fake->n_runs = 0;
		world_run(&w, &s);
		assert_int_equal(fake->runs[1].overlaps, rows <= 128);
		assert_int_equal(fake->runs[1].n_after, 1);
	}
	world_end(&w);
}

/* What a head that guesses recorded is in the graphs of steps that have it. */
static void test_head(void **state)
{
	struct ig_error err = { 0 };
	struct world w;
	uint32_t arg = 0;

	world_begin(&w);
	w.tape->first_head_node = 1;
	for (uint32_t i = 0; i < 2; i++) {
		struct ig_gpu_dispatch d = cuda_dispatch("ids_4_1", &arg, 4);

		d.n_binds = 1;
		d.bind[0] = (struct ig_gpu_bind){ w.value, 64, IG_GPU_WRITE, 0 };
		w.tape->node = i;
		world_record(&w, &d);
	}
	assert_int_equal(world_make(&w, &err), 0);
	for (uint32_t i = 0; i < 4; i++) {
		struct ig_gpu_submission s = cuda_submission(0, 5);

		s.live[IG_LIVE_HEAD] = i % 2;
		fake->n_runs = 0;
		world_run(&w, &s);
		assert_int_equal(fake->n_runs, 1 + i % 2);
	}
	world_end(&w);
}

/* Operands that a kernel takes in boxes are handed over as maps; its threadgroups go in
 * clusters. */
static void test_boxes(void **state)
{
	struct ig_gpu_submission s = cuda_submission(0, 5);
	struct ig_gpu_dispatch d;
	struct ig_error err = { 0 };
	struct world w;
	uint32_t arg = 7;

	world_begin(&w);
	d = cuda_dispatch("boxes_4_3", &arg, 4);
	d.n_binds = 3;
	d.bind[0] = (struct ig_gpu_bind){ w.value, 512, IG_GPU_READ, 0 };
	d.bind[0].ref.offset = 256;
	d.bind[1].ref.buffer = -1;
	d.bind[2] = (struct ig_gpu_bind){ w.value, 128, IG_GPU_WRITE, 0 };
	d.n_boxes = 2;
	d.box[0] = (struct ig_gpu_box){ 1, 24, 100, 64, 128 };
	d.box[1] = (struct ig_gpu_box){ 0, 8, 3, 32, 256 };
	d.cluster = 2;
	d.grid[0] = (struct ig_gpu_extent){ IG_LIVE_ONE, 1, 1, 6 };
	world_record(&w, &d);
	assert_int_equal(world_make(&w, &err), 0);
	world_run(&w, &s);
	assert_int_equal(fake->n_runs, 1);
	const struct fake_run *r = fake->runs;
	CUdeviceptr value = w.d->class->address(w.memory) + w.places[w.value.buffer].offset;
	const uint64_t expected[] = { value + 256, 32, 3, 256, 64, 8 }, nothing[16] = { 0 };
	assert_memory_equal(r->map[0].opaque, expected, sizeof expected);
	assert_memory_equal(r->map[1].opaque, nothing, sizeof nothing);
	assert_true(r->address[3] == value);
	assert_int_equal(r->grid[0], 6);
	assert_int_equal(r->cluster[0], 2);
	assert_int_equal(r->cluster[1], 1);
	assert_int_equal(r->cluster[2], 1);
	world_end(&w);
}

/* Many dispatches before and after a barrier: joined by one node between them. */
static void test_wide(void **state)
{
	struct ig_gpu_submission s = cuda_submission(0, 1);
	struct ig_gpu_dispatch d;
	struct ig_error err = { 0 };
	struct world w;
	uint32_t arg = 0;

	world_begin(&w);
	for (uint32_t i = 0; i < 40; i++) {
		d = cuda_dispatch("ids_4_1", &arg, 4);
		d.n_binds = 1;
		d.bind[0] = (struct ig_gpu_bind){ w.value, 16, IG_GPU_WRITE, 0 };
		d.bind[0].ref.offset = i % 20 * 16;
		world_record(&w, &d);
	}
	assert_int_equal(world_make(&w, &err), 0);
	world_run(&w, &s);
	assert_int_equal(fake->n_runs, 40);
	for (int i = 0; i < 20; i++)
		assert_int_equal(fake->runs[i].n_after, 0);
	for (int i = 20; i < 40; i++) /* 20 each for four of them, then one for all */
		assert_true(fake->runs[i].n_after == (i < 24 ? 20 : 1));
	world_end(&w);
}

/* Other counts than rows come in fewer buckets. */
static void test_coarse_buckets(void **state)
{
	static const uint32_t counts[] = { 1, 2, 3, 4, 5, 16, 17, 32, 33, 64, 65 };
	static const uint32_t grids[] = { 1, 4, 4, 4, 16, 16, 32, 32, 64, 64, 128 };
	struct ig_gpu_dispatch d;
	struct ig_error err = { 0 };
	struct world w;
	uint32_t arg = 0;

	world_begin(&w);
	d = cuda_dispatch("big_4_0", &arg, 4);
	d.grid[0] = (struct ig_gpu_extent){ IG_LIVE_LOOP_ROWS, 1, 1, 1 };
	world_record(&w, &d);
	assert_int_equal(world_make(&w, &err), 0);
	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
		struct ig_gpu_submission s = cuda_submission(0, 5);

		s.live[IG_LIVE_LOOP_ROWS] = counts[i];
		world_run(&w, &s);
		assert_int_equal(fake->runs[i].grid[0], grids[i]);
	}
	assert_int_equal(fake->n_instantiated + fake->n_changed, 6);
	world_end(&w);
}

/* Buckets of the same kernels: one recording, whose grids change, until a second one is worth it.  A step under way keeps
 * its own. */
static void test_changed_grids(void **state)
{
	struct ig_gpu_submission s, other = cuda_submission(1, 4);
	struct ig_gpu_dispatch d;
	struct ig_error err = { 0 };
	struct world w;
	const int32_t *ids;
	const float *logits;
	uint32_t arg = 0;

	world_begin(&w);
	for (int i = 0; i < 3; i++) {
		d = cuda_dispatch("ids_4_1", &arg, 4);
		d.n_binds = 1;
		d.bind[0] = (struct ig_gpu_bind){ w.value, 16, IG_GPU_WRITE, 0 };
		d.grid[0].live = i == 1 ? IG_LIVE_ROWS : IG_LIVE_ONE;
		d.grid[1].live = i == 2 ? IG_LIVE_LOOP_ROWS : IG_LIVE_ONE;
		world_record(&w, &d);
	}
	assert_int_equal(world_make(&w, &err), 0);
	for (uint32_t rows = 1; rows <= 64; rows *= 2) {
		s = cuda_submission(0, rows);
		s.live[IG_LIVE_LOOP_ROWS] = rows > 16 ? 0 : 1;
		fake->n_runs = 0;
		world_run(&w, &s);
		assert_int_equal(fake->n_runs, rows > 16 ? 2 : 3);
		assert_int_equal(fake->runs[1].grid[0], rows);
	}
	/* of three kernels 1, then 2, 4, 8 and 16; of two 32, then 64 */
	assert_int_equal(fake->n_instantiated, 2);
	assert_int_equal(fake->n_changed, 5);
	other.live[IG_LIVE_LOOP_ROWS] = s.live[IG_LIVE_LOOP_ROWS] = 1;
	for (uint32_t i = 0; i < 40; i++) { /* after twelve more both have a recording */
		fake->n_runs = 0;
		s.live[IG_LIVE_ROWS] = i % 2 ? 16 : 8;
		world_run(&w, &s);
		assert_int_equal(fake->runs[1].grid[0], i % 2 ? 16 : 8);
	}
	assert_int_equal(fake->n_instantiated, 3);
	assert_int_equal(fake->n_changed, 5 + 12);
	s.live[IG_LIVE_ROWS] = 16;
	fake->n_runs = 0;
	assert_int_equal(w.d->class->submit(w.p, &s, &err), 0);
	other.live[IG_LIVE_ROWS] = 8;
	assert_int_equal(w.d->class->submit(w.p, &other, &err), 0);
	assert_int_equal(w.d->class->wait(w.p, 0, 1000, &ids, &logits, &err), 0);
	s.live[IG_LIVE_ROWS] = 2; /* in place of 16 */
	assert_int_equal(w.d->class->submit(w.p, &s, &err), 0);
	assert_int_equal(w.d->class->wait(w.p, 1, 1000, &ids, &logits, &err), 0);
	assert_int_equal(w.d->class->wait(w.p, 0, 1000, &ids, &logits, &err), 0);
	assert_int_equal(fake->n_runs, 9);
	assert_int_equal(fake->runs[1].grid[0], 16);
	assert_int_equal(fake->runs[4].grid[0], 8);
	assert_int_equal(fake->runs[7].grid[0], 2);
	assert_int_equal(fake->n_instantiated, 3);
	/* One that could not be changed is made anew. */
	fake->fail = "cuGraphExecKernelNodeSetParams_v2";
	fake->fail_with = CUDA_ERROR_OUT_OF_MEMORY;
	s.live[IG_LIVE_ROWS] = 4;
	assert_int_equal(w.d->class->submit(w.p, &s, &err), -ENOMEM);
	assert_non_null(strstr(err.text, "changing a grid"));
	fake->fail = NULL;
	fake->n_runs = 0;
	world_run(&w, &s);
	assert_int_equal(fake->runs[1].grid[0], 4);
	assert_int_equal(fake->n_instantiated, 4);
	world_end(&w);
}

/* Of each kind of step one recording is ready before the first. */
static void test_prepared(void **state)
{
	struct ig_gpu_submission s = cuda_submission(0, 64);
	struct ig_gpu_dispatch d;
	struct ig_error err = { 0 };
	struct world w;
	uint32_t arg = 0;

	world_begin(&w);
	for (int i = 0; i < 2; i++) {
		d = cuda_dispatch("ids_4_1", &arg, 4);
		d.n_binds = 1;
		d.bind[0] = (struct ig_gpu_bind){ w.value, 16, IG_GPU_WRITE, 0 };
		d.grid[0].live = i ? IG_LIVE_LOOP_ROWS : IG_LIVE_ROWS;
		world_record(&w, &d);
	}
	assert_int_equal(world_make(&w, &err), 0);
	for (uint32_t rows = 1; rows <= 64; rows *= 2)
		for (uint32_t loop = 0; loop < 2; loop++) {
			s.live[IG_LIVE_ROWS] = rows;
			s.live[IG_LIVE_LOOP_ROWS] = loop ? rows : 0;
			assert_int_equal(w.d->class->prepare(w.p, s.live, &err), 0);
		}
	assert_int_equal(fake->n_instantiated, 2);
	assert_int_equal(fake->n_runs, 0);
	s.live[IG_LIVE_ROWS] = 33;
	s.live[IG_LIVE_LOOP_ROWS] = 20;
	world_run(&w, &s);
	assert_int_equal(fake->n_instantiated, 2);
	assert_int_equal(fake->n_changed, 2);
	assert_int_equal(fake->runs[0].grid[0], 64);
	assert_int_equal(fake->runs[1].grid[0], 32);
	world_end(&w);
}

/* Beyond 128 recordings the one used longest ago goes. */
static void test_most_recordings(void **state)
{
	struct ig_gpu_dispatch d;
	struct ig_error err = { 0 };
	struct world w;
	uint32_t arg = 0;

	world_begin(&w);
	for (uint32_t i = 0; i < 8; i++) { /* each of them or not: 256 kinds of steps */
		d = cuda_dispatch("big_4_0", &arg, 4);
		d.when_live = IG_LIVE_SEQS + i;
		d.when_min = 1;
		world_record(&w, &d);
	}
	assert_int_equal(world_make(&w, &err), 0);
	for (uint32_t i = 1; i <= 160; i++) {
		struct ig_gpu_submission s = cuda_submission(0, 1);

		for (uint32_t bit = 0; bit < 8; bit++)
			s.live[IG_LIVE_SEQS + bit] = i >> bit & 1;
		world_run(&w, &s);
		s = cuda_submission(1, 3); /* used again and again: it stays */
		s.live[IG_LIVE_SEQS] = s.live[IG_LIVE_SPLIT_ROWS] = 1;
		world_run(&w, &s);
		assert_in_range(fake->execs, 1, 128);
	}
	assert_int_equal(fake->n_instantiated, 160);
	assert_int_equal(fake->execs, 128);
	world_end(&w);
}

/* One recording a bucket. */
static void test_buckets(void **state)
{
	static const uint32_t rows[] = { 1, 2, 3, 4, 5, 8, 9, 16, 33, 64, 65, 72, 73, 1000, 1024 };
	static const int made[] = { 1, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 7, 8, 8 };
	struct ig_gpu_dispatch d;
	struct ig_error err = { 0 };
	struct world w;
	uint32_t arg = 0;

	world_begin(&w);
	d = cuda_dispatch("big_4_0", &arg, 4);
	d.grid[0] = (struct ig_gpu_extent){ IG_LIVE_ROWS, 1, 1, 1 };
	world_record(&w, &d);
	assert_int_equal(world_make(&w, &err), 0);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct ig_gpu_submission s = cuda_submission(0, rows[i]);

		s.live[IG_LIVE_SEQS] = (uint32_t)i; /* nothing follows it */
		world_run(&w, &s);
		assert_int_equal(fake->n_instantiated + fake->n_changed, made[i]);
		assert_true(fake->runs[i].grid[0] >= rows[i]);
		assert_true(fake->runs[i].grid[0] < 2 * rows[i]);
	}
	/* a step in which nothing runs is a step still */
	struct ig_gpu_submission s = cuda_submission(0, 0);
	int runs = fake->n_runs;
	world_run(&w, &s);
	assert_int_equal(fake->n_runs, runs);
	/* a grid beyond what the machine takes is refused, not cut off */
	s = cuda_submission(0, UINT32_MAX);
	assert_int_equal(w.d->class->submit(w.p, &s, &err), -EINVAL);
	assert_non_null(strstr(err.text, "big_4_0"));
	world_end(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_recording, cuda_setup),
		cmocka_unit_test_setup(test_overlaps, cuda_setup),
		cmocka_unit_test_setup(test_overlaps_of_few_rows, cuda_setup),
		cmocka_unit_test_setup(test_head, cuda_setup),
		cmocka_unit_test_setup(test_boxes, cuda_setup),
		cmocka_unit_test_setup(test_wide, cuda_setup),
		cmocka_unit_test_setup(test_changed_grids, cuda_setup),
		cmocka_unit_test_setup(test_prepared, cuda_setup),
		cmocka_unit_test_setup(test_most_recordings, cuda_setup),
		cmocka_unit_test_setup(test_buckets, cuda_setup),
		cmocka_unit_test_setup(test_coarse_buckets, cuda_setup),
	};

	return cmocka_run_group_tests_name("cuda, graphs", tests, NULL, NULL);
}
