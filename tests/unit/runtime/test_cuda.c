/*
 * test_cuda.c: the device `cuda` over a double of libcuda: what it asks of the library, in
 * which order, and what becomes of every error.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cuda_case.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void refused(const char *part)
{
	struct ig_gpu_device *d = (void *)1;
	struct ig_error err = { 0 };

	assert_int_equal(ig_gpu_cuda.open(&cuda_options, &d, &err), -ENOTSUP);
	assert_int_equal(err.code, -ENOTSUP);
	assert_null(d);
	if (!strstr(err.text, part))
		fail_msg("'%s' does not say '%s'", err.text, part);
	cuda_assert_clean();
}

/* ---- opening ---- */

static void test_no_driver(void **state)
{
	ig_libcuda_name = "libno-such-library.so.1";
	refused("libno-such-library.so.1");
	ig_libcuda_name = "libc.so.6"; /* a library, but none of NVIDIA's */
	refused("cuInit");
}

/* Kernels of weights in tiles are for 9.0. */
static void test_layouts(void **state)
{
	static const struct {
		int capability;
		const char *repack;
		int rc;
		uint32_t tiles;
	} layouts[] = { { 90, NULL, 0, 1 },	     { 90, "auto", 0, 1 }, { 90, "always", 0, 1 },
			{ 90, "never", 0, 0 },	     { 80, "auto", 0, 0 }, { 80, "never", 0, 0 },
			{ 80, "always", -EINVAL, 0 } };
	struct ig_gpu_device *d;
	struct ig_error err = { 0 };

	for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
		struct ig_driver_options o = cuda_options;
		o.repack = layouts[i].repack;
		fake->capability[0] = fake->capability[1] = layouts[i].capability;
		assert_int_equal(ig_gpu_cuda.open(&o, &d, &err), layouts[i].rc);
		if (layouts[i].rc)
			assert_non_null(strstr(err.text, "compute capability 8.0, expected 9.0"));
		else
			assert_int_equal(d->class->facts(d)->tiles, layouts[i].tiles);
		if (!layouts[i].rc)
			d->class->close(d);
	}
}

static void test_gpus(void **state)
{
	struct ig_gpu_device *d;

	fake->n_gpus = 0;
	refused("no NVIDIA GPU");
	fake->n_gpus = 2;
	fake->capability[0] = 75;
	fake->capability[1] = 61;
	refused("Fake 0 has compute capability 7.5");
	fake->capability[1] = 86;
	d = cuda_open();
	assert_int_equal(d->class->facts(d)->arch, 86);
	assert_string_equal(d->class->facts(d)->name, "Fake 1");
	assert_int_equal(d->class->facts(d)->kind, IG_GPU_CUDA);
	assert_int_equal(d->class->facts(d)->n_cores, 132);
	assert_int_equal(d->class->facts(d)->max_threadgroup_bytes, 232448);
	assert_int_equal(d->class->facts(d)->max_threads, 1024);
	assert_true(d->class->facts(d)->working_set_bytes < fake->memory_bytes);
	assert_true(d->class->facts(d)->working_set_bytes > fake->memory_bytes / 10 * 9);
	d->class->close(d);
	cuda_assert_clean();
}

/* What the library says of this GPU, not what its number of multiprocessors lets one expect. */
static void test_clusters(void **state)
{
	static const int counts[] = { 66, 30, 15 };
	struct ig_gpu_device *d;

	memcpy(fake->clusters, counts, sizeof counts);
	d = cuda_open();
	for (int i = 0; i < 3; i++)
		assert_int_equal(d->class->facts(d)->n_clusters[i], counts[i]);
	assert_int_equal(fake->modules, 0); /* the kernel that was asked about is gone */
	d->class->close(d);
	fake->capability[0] = 80; /* knows no clusters */
	d = cuda_open();
	for (int i = 0; i < 3; i++)
		assert_int_equal(d->class->facts(d)->n_clusters[i], 0);
	d->class->close(d);
	cuda_assert_clean();
}

/* ---- memory ---- */

static void test_memory(void **state)
{
	const uint64_t n = ((uint64_t)10 << 20) + 12345; /* several pieces and a rest */
	struct ig_gpu_device *d = cuda_open();
	struct ig_gpu_buffer *b, *no;
	struct ig_error err = { 0 };
	uint8_t *x = malloc(n), *y = malloc(n);

	assert_non_null(x);
	assert_non_null(y);
	for (uint64_t i = 0; i < n; i++)
		x[i] = (uint8_t)(i * 2654435761u >> 24);
	assert_int_equal(d->class->alloc(d, n + 7, IG_GPU_MEMORY_PRIVATE, &b, &err), 0);
	assert_true(d->class->address(b) != 0);
	assert_int_equal(d->class->write(d, b, 7, x, n, &err), 0);
	assert_int_equal(d->class->read(d, b, 7, y, n, &err), 0);
	assert_memory_equal(x, y, n);
	assert_int_equal(d->class->write(d, b, 8, x, n, &err), -EINVAL);
	assert_int_equal(d->class->read(d, b, n + 8, y, 0, &err), -EINVAL);
	assert_int_equal(d->class->read(d, b, 0, y, 0, &err), 0);
	assert_int_equal(d->class->read(d, b, 1, y, UINT64_MAX, &err), -EINVAL);
	assert_int_equal(d->class->alloc(d, 0, IG_GPU_MEMORY_SLAB, &no, &err), -EINVAL);
	assert_int_equal(d->class->alloc(d, 1, 7, &no, &err), -EINVAL);
	assert_int_equal(d->class->alloc(d, (uint64_t)1 << 40, IG_GPU_MEMORY_SLAB, &no, &err),
			 -ENOMEM);
	assert_null(no);
	assert_non_null(strstr(err.text, "1099511627776 bytes"));
	assert_non_null(strstr(err.text, "CUDA_ERROR_OUT_OF_MEMORY"));
	d->class->free(d, b);
	d->class->free(d, NULL);
	d->class->close(d);
	cuda_assert_clean();
	free(x);
	free(y);
}

/* ---- programs ---- */

/* Kernel ids: the sampled ids are twice the step's first words, a guess is three times the first. */
static void run_kernel(const struct fake_run *r)
{
	if (!strcmp(r->name, "ids_4_1")) {
		const uint32_t *step = (const uint32_t *)(uintptr_t)r->address[0];
		int32_t *ids = (int32_t *)(uintptr_t)r->address[1] + step[2] * 8;

		ids[0] = (int32_t)(2 * step[0]);
		ids[1] = (int32_t)(2 * step[1]);
		ids[4] = (int32_t)(3 * step[0]); /* a guess */
	}
}

static void bind_ids(struct world *w, struct ig_gpu_dispatch *d)
{
	d->n_binds = 1;
	d->bind[0] = (struct ig_gpu_bind){ w->ids, 64, IG_GPU_WRITE, 0 };
}

static void fill(struct world *w, uint32_t slot, uint32_t a, uint32_t b)
{
	uint32_t words[3] = { a, b, slot };

	memset(w->d->class->staging(w->p, slot), 0, STEP_BYTES);
	memcpy(w->d->class->staging(w->p, slot), words, sizeof words);
}

/* Two steps under way: each sees its own step and gives its own ids. */
static void test_two_steps(void **state)
{
	struct ig_gpu_submission s0 = { 0 }, s1;
	struct ig_gpu_dispatch d;
	struct ig_error err = { 0 };
	struct world w;
	const int32_t *ids;
	const float *logits = (const float *)1;
	uint32_t arg = 5;

	world_begin(&w);
	d = cuda_dispatch("ids_4_1", &arg, 4);
	bind_ids(&w, &d);
	world_record(&w, &d);
	assert_int_equal(world_make(&w, &err), 0);
	fake->kernel = run_kernel;
	for (int i = 0; i < 5; i++) {
		s0 = cuda_submission(0, 1);
		s1 = cuda_submission(1, 1);
		fill(&w, 0, 10u + (uint32_t)i, 11);
		assert_int_equal(w.d->class->submit(w.p, &s0, &err), 0);
		fill(&w, 1, 20, 21);
		assert_int_equal(w.d->class->submit(w.p, &s1, &err), 0);
		assert_int_equal(w.d->class->wait(w.p, 0, 1000, &ids, &logits, &err), 0);
		assert_int_equal(ids[0], 2 * (10 + i));
		assert_int_equal(ids[1], 22);
		assert_null(logits);
		assert_int_equal(w.d->class->wait(w.p, 1, 1000, &ids, &logits, &err), 0);
		assert_int_equal(ids[0], 40);
		assert_int_equal(ids[1], 42);
	}
	assert_int_equal(fake->n_instantiated, 1);
	assert_int_equal(fake->n_runs, 10);
	assert_int_equal(fake->runs[0].threads, 64);
	assert_memory_equal(fake->runs[0].args, &arg, 4);

	assert_int_equal(w.d->class->wait(w.p, 0, 1, &ids, &logits, &err), -EINVAL);
	assert_int_equal(w.d->class->wait(w.p, 2, 1, &ids, &logits, &err), -EINVAL);
	assert_int_equal(w.d->class->submit(w.p, &s0, &err), 0);
	assert_int_equal(w.d->class->submit(w.p, &s0, &err), -EBUSY);
	s1.step_bytes = STEP_BYTES + 1;
	assert_int_equal(w.d->class->submit(w.p, &s1, &err), -EINVAL);
	s1.step_bytes = 0;
	assert_int_equal(w.d->class->submit(w.p, &s1, &err), -EINVAL);
	s1 = cuda_submission(2, 1);
	assert_int_equal(w.d->class->submit(w.p, &s1, &err), -EINVAL);
	s1 = cuda_submission(1, 1);
	s1.live[IG_LIVE_LOGIT_ROWS] = 5;
	assert_int_equal(w.d->class->submit(w.p, &s1, &err), -EINVAL);
	s1 = cuda_submission(1, 1);
	s1.live[IG_LIVE_GUESS_ROWS] = 3;
	assert_int_equal(w.d->class->submit(w.p, &s1, &err), -EINVAL);
	world_end(&w); /* with a step under way */
}

static void test_logits(void **state)
{
	struct ig_gpu_submission s = cuda_submission(0, 1);
	struct ig_gpu_dispatch d;
	struct ig_error err = { 0 };
	struct world w;
	const int32_t *ids;
	const float *logits;
	const float want[2] = { 1.5f, -2.0f };
	uint32_t arg = 0;

	world_begin(&w);
	assert_int_equal(ig_gpu_tape_host.logits(w.tape, 100, &w.logits), 0);
	d = cuda_dispatch("ids_4_1", &arg, 4);
	bind_ids(&w, &d);
	world_record(&w, &d);
	assert_int_equal(world_make(&w, &err), 0);
	int pinned = fake->pinned;
	assert_int_equal(w.d->class->submit(w.p, &s, &err), 0);
	assert_int_equal(w.d->class->wait(w.p, 0, 1000, &ids, &logits, &err), 0);
	assert_null(logits);
	assert_int_equal(fake->pinned, pinned);
	s.live[IG_LIVE_WANT_LOGITS] = 1;
	assert_int_equal(w.d->class->write(w.d, w.memory, w.places[w.logits.buffer].offset + 400,
					   want, sizeof want, &err),
			 0);
	assert_int_equal(w.d->class->submit(w.p, &s, &err), 0);
	assert_int_equal(w.d->class->wait(w.p, 0, 1000, &ids, &logits, &err), 0);
	assert_non_null(logits);
	assert_memory_equal(logits + 100, want, sizeof want);
	world_end(&w);
}

/* Guesses are behind as many rows as the tape has. */
static void test_guesses(void **state)
{
	struct ig_gpu_submission s = cuda_submission(1, 1);
	struct ig_gpu_dispatch d;
	struct ig_error err = { 0 };
	struct world w;
	const int32_t *ids;
	const float *logits;
	const float want[2] = { 2.5f, -3.0f };
	uint32_t arg = 0;

	world_begin(&w);
	w.tape->first_head_node = 1;
	assert_int_equal(ig_gpu_tape_host.logits(w.tape, 100, &w.logits), 0);
	d = cuda_dispatch("ids_4_1", &arg, 4);
	bind_ids(&w, &d);
	world_record(&w, &d);
	assert_int_equal(world_make(&w, &err), 0);
	fake->kernel = run_kernel;
	fill(&w, 1, 10, 11);
	s.live[IG_LIVE_HEAD] = s.live[IG_LIVE_GUESS_ROWS] = s.live[IG_LIVE_WANT_LOGITS] = 1;
	assert_int_equal(w.d->class->write(w.d, w.memory,
					   w.places[w.logits.buffer].offset + 4 * 400, want,
					   sizeof want, &err),
			 0);
	assert_int_equal(w.d->class->submit(w.p, &s, &err), 0);
	assert_int_equal(w.d->class->wait(w.p, 1, 1000, &ids, &logits, &err), 0);
	assert_int_equal(ids[0], 20);
	assert_int_equal(ids[1], 22);
	assert_int_equal(ids[4], 30);
	assert_memory_equal(logits + 4 * 100, want, sizeof want);
	world_end(&w);
}

/* ---- kernels ---- */

static const struct ig_shader without = SHADER("test/without");

static void refuse_kernel(const struct ig_shader *sh, const char *kernel, uint32_t n_args,
			  uint32_t n_binds, uint32_t threads, uint32_t bytes, int rc,
			  const char *part)
{
	static const uint32_t args[4];
	struct ig_gpu_dispatch d;
	struct ig_error err = { 0 };
	struct world w;

	world_begin(&w);
	d = cuda_dispatch(kernel, args, n_args);
	d.shader = sh;
	d.threads = threads;
	d.threadgroup_bytes = bytes;
	d.n_binds = n_binds;
	for (uint32_t i = 0; i < n_binds; i++)
		d.bind[i] = (struct ig_gpu_bind){ w.value, 16, IG_GPU_READ, 0 };
	world_record(&w, &d);
	assert_int_equal(world_make(&w, &err), rc);
	assert_int_equal(err.code, rc);
	assert_null(w.p);
	if (!strstr(err.text, part))
		fail_msg("'%s' does not say '%s'", err.text, part);
	world_end(&w);
}

static void test_kernels(void **state)
{
	refuse_kernel(&cuda_shader, "gone_4_0", 4, 0, 32, 0, -ENOTSUP,
		      "test/kernels has no kernel gone_4_0");
	refuse_kernel(&cuda_shader, "first_8_1", 4, 1, 32, 0, -EINVAL, "another size than 4 bytes");
	refuse_kernel(&cuda_shader, "first_8_1", 8, 2, 32, 0, -EINVAL, "does not take 2 operands");
	refuse_kernel(&cuda_shader, "first_8_1", 8, 0, 32, 0, -EINVAL, "does not take 0 operands");
	refuse_kernel(&cuda_shader, "boxes_4_3", 4, 3, 32, 0, -EINVAL,
		      "takes operand 0 as another type");
	refuse_kernel(&cuda_broken, "a_4_0", 4, 0, 32, 0, -EIO, "line 3; unknown symbol broken");
	refuse_kernel(&cuda_newer, "a_4_0", 4, 0, 32, 0, -ENOTSUP, "the driver is CUDA 12.4");
	refuse_kernel(&without, "a_4_0", 4, 0, 32, 0, -ENOTSUP, "without PTX");
	refuse_kernel(&cuda_damaged, "a_4_0", 4, 0, 32, 0, -ENOMEM,
		      "PTX of kernel a_4_0, or it is damaged");
	fake->kernel_threads = 256;
	refuse_kernel(&cuda_shader, "big_4_0", 4, 0, 512, 0, -ENOTSUP, "at most 256 threads");
}

/* Hopper's own PTX runs on 9.0 alone. */
static void test_ptx(void **state)
{
	static const int capabilities[] = { 80, 89, 90, 100, 120 };

	for (size_t i = 0; i < 5; i++) {
		struct ig_gpu_dispatch d;
		struct ig_error err = { 0 };
		struct world w;
		uint32_t arg = 0;

		fake->capability[0] = capabilities[i];
		world_begin(&w);
		d = cuda_dispatch("hopper_4_0", &arg, 4);
		world_record(&w, &d);
		assert_int_equal(world_make(&w, &err), capabilities[i] == 90 ? 0 : -ENOTSUP);
		world_end(&w);
	}
}

/* Each is compiled once; one that fails leaves those before it. */
static void test_compiling(void **state)
{
	const struct ig_shader *good[] = { &cuda_shader, &cuda_other, &cuda_shader, &cuda_other };
	const char *kernels[] = { "big_4_0", "other_4_0", "big_4_0", "other_4_0" };

	for (int bad = 0; bad < 2; bad++) {
		struct ig_gpu_dispatch d;
		struct ig_error err = { 0 };
		struct world w;
		uint32_t arg = 0;

		world_begin(&w);
		for (int i = 0; i < 4; i++) {
			bool is_bad = bad && i == 2;
			d = cuda_dispatch(is_bad ? "a_4_0" : kernels[i], &arg, 4);
			d.shader = is_bad ? &cuda_broken : good[i];
			world_record(&w, &d);
		}
		assert_int_equal(world_make(&w, &err), bad ? -EIO : 0);
		assert_int_equal(fake->modules, 2);
		if (bad)
			assert_non_null(strstr(err.text, "a_4_0"));
		world_end(&w);
		assert_int_equal(fake->modules, 0);
	}
}

/* ---- errors ---- */

static void test_deadline(void **state)
{
	struct ig_gpu_submission s = cuda_submission(0, 1);
	struct ig_gpu_dispatch d;
	struct ig_error err = { 0 };
	struct world w;
	const int32_t *ids;
	const float *logits;
	uint32_t arg = 0;

	world_begin(&w);
	d = cuda_dispatch("big_4_0", &arg, 4);
	world_record(&w, &d);
	assert_int_equal(world_make(&w, &err), 0);
	assert_int_equal(w.d->class->submit(w.p, &s, &err), 0);
	fake->n_not_ready = 1 << 30;
	int launches = fake->n_launches;
	assert_int_equal(w.d->class->wait(w.p, 0, 50, &ids, &logits, &err), -ETIMEDOUT);
	assert_non_null(strstr(err.text, "50 ms"));
	/* it slept in between */
	assert_in_range(fake->n_launches - launches, 2, 20000);
	fake->n_not_ready = 3;
	assert_int_equal(w.d->class->wait(w.p, 0, 1000, &ids, &logits, &err), 0);
	world_end(&w);
}

static void test_lost_device(void **state)
{
	struct ig_gpu_submission s = cuda_submission(0, 1);
	struct ig_gpu_buffer *b = (void *)1;
	struct ig_gpu_dispatch d;
	struct ig_error err = { 0 };
	struct world w;
	const int32_t *ids;
	const float *logits;
	uint32_t arg = 0;

	world_begin(&w);
	d = cuda_dispatch("big_4_0", &arg, 4);
	world_record(&w, &d);
	assert_int_equal(world_make(&w, &err), 0);
	assert_int_equal(w.d->class->submit(w.p, &s, &err), 0);
	s.slot = 1;
	assert_int_equal(w.d->class->submit(w.p, &s, &err), 0);
	fake->fail = "cuEventQuery";
	fake->fail_with = CUDA_ERROR_ILLEGAL_ADDRESS;
	assert_int_equal(w.d->class->wait(w.p, 0, 1000, &ids, &logits, &err), -ENODEV);
	assert_string_equal(err.text,
			    "cuda: running a step: CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal "
			    "memory access was encountered");
	/* from now on nothing reaches the library, and all say why */
	int launches = fake->n_launches;
	for (int i = 0; i < 5; i++) {
		memset(&err, 0, sizeof err);
		int rc = i == 0 ? w.d->class->wait(w.p, 1, 1000, &ids, &logits, &err) :
			 i == 1 ? w.d->class->submit(w.p, &s, &err) :
			 i == 2 ? w.d->class->alloc(w.d, 16, 0, &b, &err) :
			 i == 3 ? w.d->class->write(w.d, w.memory, 0, &arg, 4, &err) :
				  w.d->class->read(w.d, w.memory, 0, &arg, 4, &err);
		assert_int_equal(rc, -ENODEV);
		assert_int_equal(err.code, -ENODEV);
		assert_non_null(strstr(err.text, "running a step: CUDA_ERROR_ILLEGAL_ADDRESS"));
	}
	assert_int_equal(fake->n_launches, launches);
	assert_null(b);
	world_end(&w);
}

/* All that a device does once; the first error. */
static int scenario(struct ig_error *err)
{
	struct ig_gpu_dispatch d;
	struct world w = { 0 };
	const int32_t *ids;
	const float *logits;
	uint32_t words[32] = { 0 };
	int rc = ig_gpu_cuda.open(&cuda_options, &w.d, err);

	if (rc)
		return rc;
	assert_int_equal(ig_gpu_tape_create(w.d->class->facts(w.d), 4, &w.tape), 0);
	assert_int_equal(ig_gpu_tape_host.scratch(w.tape, 1024, &w.value), 0);
	assert_int_equal(ig_gpu_tape_host.ids(w.tape, &w.ids), 0);
	assert_int_equal(ig_gpu_tape_host.logits(w.tape, 10, &w.logits), 0);
	d = cuda_dispatch("ids_4_1", words, 4);
	bind_ids(&w, &d);
	world_record(&w, &d);
	d = cuda_dispatch("big_4_0", words, 4);
	d.threadgroup_bytes = 100000;
	world_record(&w, &d);
	d = cuda_dispatch("boxes_4_3", words, 4);
	d.n_binds = 3;
	for (uint32_t i = 0; i < 3; i++)
		d.bind[i] = (struct ig_gpu_bind){ w.value, 512, IG_GPU_READ, 0 };
	d.n_boxes = 2;
	d.box[0] = d.box[1] = (struct ig_gpu_box){ 0, 8, 2, 64, 256 };
	d.box[1].bind = 1;
	d.cluster = 2;
	d.grid[0].times = 2;
	world_record(&w, &d);
	rc = world_make(&w, err);
	if (!rc)
		rc = w.d->class->write(w.d, w.memory, 0, words, sizeof words, err);
	for (uint32_t slot = 0; !rc && slot < 2; slot++) {
		struct ig_gpu_submission s = cuda_submission(slot, 1 + slot);

		s.live[IG_LIVE_WANT_LOGITS] = 1;
		rc = w.d->class->submit(w.p, &s, err);
	}
	for (uint32_t slot = 0; !rc && slot < 2; slot++)
		rc = w.d->class->wait(w.p, slot, 1000, &ids, &logits, err);
	if (!rc)
		rc = w.d->class->read(w.d, w.memory, 0, words, sizeof words, err);
	/* cleaning up has no errors to tell */
	int at = fake->n_failing;
	world_end(&w);
	return rc ? rc : at < fake->n_failing ? 1 : 0;
}

static void test_every_call_fails(void **state)
{
	static const struct {
		CUresult r;
		int rc;
	} ways[] = { { CUDA_ERROR_OUT_OF_MEMORY, -ENOMEM },
		     { CUDA_ERROR_ILLEGAL_ADDRESS, -ENODEV },
		     { CUDA_ERROR_INVALID_VALUE, -EIO } };
	struct ig_error err = { 0 };
	int n_launches, n_seen = 0;

	assert_int_equal(scenario(&err), 0);
	n_launches = fake->n_launches;
	assert_true(n_launches > 60);
	for (size_t way = 0; way < 3; way++)
		for (int i = 0; i < n_launches; i++) {
			cuda_setup(state);
			memset(&err, 0, sizeof err);
			fake->fail = "*";
			fake->fail_after = i;
			fake->fail_with = ways[way].r;
			int rc = scenario(&err);
			cuda_assert_clean();
			if (rc >= 0)
				continue; /* it met the cleaning up, or a question about parameters */
			n_seen += rc == ways[way].rc;
			if (rc != ways[way].rc && rc != -ENOTSUP && rc != -EINVAL)
				fail_msg("call %d fails with %d: %d, %s", i, ways[way].r, rc,
					 err.text);
			assert_int_equal(err.code, rc);
			assert_true(strlen(err.text) > 10);
		}
	/* most calls tell their own error; opening says -ENOTSUP */
	assert_true(n_seen > 3 * (n_launches - 40));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_no_driver, cuda_setup),
		cmocka_unit_test_setup(test_layouts, cuda_setup),
		cmocka_unit_test_setup(test_gpus, cuda_setup),
		cmocka_unit_test_setup(test_clusters, cuda_setup),
		cmocka_unit_test_setup(test_memory, cuda_setup),
		cmocka_unit_test_setup(test_two_steps, cuda_setup),
		cmocka_unit_test_setup(test_logits, cuda_setup),
		cmocka_unit_test_setup(test_guesses, cuda_setup),
		cmocka_unit_test_setup(test_kernels, cuda_setup),
		cmocka_unit_test_setup(test_ptx, cuda_setup),
		cmocka_unit_test_setup(test_compiling, cuda_setup),
		cmocka_unit_test_setup(test_deadline, cuda_setup),
		cmocka_unit_test_setup(test_lost_device, cuda_setup),
		cmocka_unit_test_setup(test_every_call_fails, cuda_setup),
	};

	return cmocka_run_group_tests_name("cuda", tests, NULL, NULL);
}
