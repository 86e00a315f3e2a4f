/*
 * test_exchange.c: devices of the kind cuda as ranks of a group, over doubles of libcuda and libnccl: how they
 * are opened and connected, what an exchange of a tape becomes in the graph of a step, by NCCL or by a kernel, and
 * each error.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fake_libcuda.h"
#include "fake_libnccl.h"
#include "runtime/cuda/exchange.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define N 3
#define COLS 40 /* of float32: 160 bytes, 192 in a row */
#define ROWS 9

static struct fake_cuda *fake;
static struct fake_nccl *nccl;

static void *load(const char *path, const char *symbol)
{
	void *so = dlopen(path, RTLD_NOW), *at = so ? dlsym(so, symbol) : NULL;

	if (!at)
		fail_msg("%s", dlerror());
	return at;
}

static int setup(void **state)
{
	if (!fake) {
		fake = load(INGOT_FAKE_LIBCUDA, "fake_cuda");
		nccl = load(INGOT_FAKE_LIBNCCL, "fake_nccl");
	}
	memset(fake, 0, sizeof *fake);
	memset(nccl, 0, sizeof *nccl);
	fake->n_gpus = N;
	for (int i = 0; i < N; i++)
		fake->capability[i] = 90;
	fake->version = 12040;
	fake->memory_bytes = (size_t)1 << 30;
	fake->kernel_threads = 1024;
	ig_libcuda_name = INGOT_FAKE_LIBCUDA;
	ig_nccl_name = INGOT_FAKE_LIBNCCL;
	return 0;
}

static void assert_clean(void)
{
	assert_string_equal(fake->misuse, "");
	assert_int_equal(fake->contexts, 0);
	assert_int_equal(fake->memory, 0);
	assert_int_equal(fake->pinned, 0);
	assert_int_equal(fake->streams, 0);
	assert_int_equal(fake->events, 0);
	assert_int_equal(fake->graphs, 0);
	assert_int_equal(fake->execs, 0);
	assert_int_equal(nccl->n_comms, 0);
	assert_int_equal(nccl->depth, 0);
}

static struct ig_gpu_device *open_device(uint32_t number)
{
	const struct ig_driver_options o = { .devices = &number, .n_devices = 1 };
	struct ig_gpu_device *d = NULL;
	struct ig_error err = { 0 };

	if (ig_gpu_cuda.open(&o, &d, &err))
		fail_msg("%s", err.text);
	return d;
}

struct group {
	struct ig_gpu_device *d[N];
};

/* Ranks 0, 1, … on devices 2, 1, …. */
static int connect_all(struct group *g, uint32_t n, struct ig_error *err)
{
	*g = (struct group){ 0 };
	for (uint32_t r = 0; r < n; r++)
		g->d[r] = open_device(N - 1 - r);
	return ig_gpu_cuda.connect(g->d, n, err);
}

static void close_all(struct group *g)
{
	for (uint32_t r = 0; r < N; r++)
		if (g->d[r])
			ig_gpu_cuda.close(g->d[r]);
	assert_clean();
}

static void test_numbers(void **state)
{
	const uint32_t none = N;
	const struct ig_driver_options o = { .devices = &none, .n_devices = 1 };
	struct ig_gpu_device *d = open_device(1);
	struct ig_error err = { 0 };

	assert_string_equal(d->class->facts(d)->name, "Fake 1");
	d->class->close(d);
	assert_int_equal(ig_gpu_cuda.open(&o, &d, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "there is no GPU 3; 3 are here"));
	assert_int_equal(ig_gpu_cuda.count(&err), N);
	fake->fail = "cuInit";
	fake->fail_with = CUDA_ERROR_NO_DEVICE;
	assert_int_equal(ig_gpu_cuda.count(&err), -ENOTSUP);
	assert_clean();
}

/* Every kind of message is sent once by all, in one group, before anything is captured. */
static void test_connect(void **state)
{
	struct ig_error err = { 0 };
	struct group g;

	assert_int_equal(connect_all(&g, 2, &err), 0);
	assert_int_equal(nccl->n_comms, 2);
	assert_int_equal(nccl->devices[0], 2);
	assert_int_equal(nccl->devices[1], 1);
	assert_int_equal(nccl->n_calls % (2 * 3), 0); /* a sum, and each rank's part */
	assert_true(nccl->n_calls >= 8 * 6);
	for (int i = 0; i < nccl->n_calls; i++) {
		assert_true(nccl->calls[i].grouped);
		assert_int_equal(nccl->calls[i].n, nccl->calls[i / 6 * 6].n);
	}
	close_all(&g);
}

static void refused(int rc, const char *part)
{
	struct ig_error err = { 0 };
	struct group g;

	assert_int_equal(connect_all(&g, 2, &err), rc);
	if (!strstr(err.text, part))
		fail_msg("'%s' does not say '%s'", err.text, part);
	close_all(&g);
}

static void test_errors(void **state)
{
	ig_nccl_name = "libno-nccl.so.2";
	refused(-ENOTSUP, "several devices need NVIDIA's library NCCL (libno-nccl.so.2");
	ig_nccl_name = INGOT_FAKE_LIBCUDA;
	refused(-ENOTSUP, "has no ncclGetVersion");
	ig_nccl_name = INGOT_FAKE_LIBNCCL;
	nccl->fail = "ncclCommInitAll";
	refused(-EIO, "NCCL: connecting devices: invalid usage (5): the fake was told to fail");
	nccl->fail = "ncclBroadcast";
	refused(-EIO, "NCCL: connecting devices");
	nccl->fail = "ncclGroupEnd";
	refused(-EIO, "NCCL: connecting devices");
	nccl->fail = NULL;
	fake->fail = "cuMemAlloc_v2";
	fake->fail_with = CUDA_ERROR_OUT_OF_MEMORY;
	refused(-ENOMEM, "allocating for the first messages");
}

/* ---- a tape ------------------------------------------------------------------------------ */

struct run {
	struct ig_gpu_tape *tape;
	struct ig_gpu_tensor v[4];
	struct ig_gpu_place *places;
	struct ig_gpu_buffer *scratch;
	struct ig_gpu_program *program;
};

static struct ig_gpu_bind bind(const struct run *r, uint32_t i, uint32_t access)
{
	return (struct ig_gpu_bind){ r->v[i].ref, r->v[i].row_stride, access, 0 };
}

/* The sum of value 0 to value 1, then values first … 2 as the parts of their ranks. */
static void make_tape_of(struct run *r, struct ig_gpu_device *d, uint32_t rows, uint32_t first)
{
	struct ig_error err = { 0 };

	assert_int_equal(ig_gpu_tape_create(d->class->facts(d), 1, &r->tape), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(
			ig_gpu_tape_value(r->tape, IG_F32, COLS, IG_ROWS_TOKENS, rows, &r->v[i]),
			0);
	const struct ig_gpu_bind sum[] = { bind(r, 0, IG_GPU_READ), bind(r, 1, IG_GPU_WRITE) };
	const struct ig_gpu_bind parts[] = { bind(r, 0, IG_GPU_WRITE), bind(r, 1, IG_GPU_READ),
					     bind(r, 2, IG_GPU_WRITE) };
	assert_int_equal(ig_gpu_tape_exchange(r->tape, IG_GPU_ADD, 0, sum, 2, IG_ROWS_TOKENS), 0);
	assert_int_equal(ig_gpu_tape_exchange(r->tape, IG_GPU_FETCH, first, parts + first,
					      3 - first, IG_ROWS_TOKENS),
			 0);
	assert_int_equal(ig_gpu_tape_close(r->tape, &err), 0);
	assert_true(r->tape->dispatches[1].barrier);
	r->places = calloc(r->tape->n_buffers, sizeof *r->places);
	assert_int_equal(d->class->alloc(d, r->tape->scratch_bytes, IG_GPU_MEMORY_PRIVATE,
					 &r->scratch, &err),
			 0);
	for (uint32_t i = 0; i < r->tape->n_buffers; i++)
		r->places[i] = (struct ig_gpu_place){ r->scratch, r->tape->buffers[i].offset };
}

static void make_program(struct run *r, struct ig_gpu_device *d, uint32_t rows, uint32_t first)
{
	struct ig_error err = { 0 };

	make_tape_of(r, d, rows, first);
	if (d->class->program_create(d, r->tape, r->places, 256, &r->program, &err))
		fail_msg("%s", err.text);
}

static void make_tape(struct run *r, struct ig_gpu_device *d) { make_program(r, d, ROWS, 1); }

static void free_tape(struct run *r, struct ig_gpu_device *d)
{
	d->class->program_destroy(r->program);
	d->class->free(d, r->scratch);
	ig_gpu_tape_destroy(r->tape);
	free(r->places);
}

static int submit(struct run *r, struct ig_gpu_device *d, uint32_t rows, struct ig_error *err)
{
	const struct ig_gpu_submission s = { .step_bytes = 256,
					     .live = { [IG_LIVE_ONE] = 1, [IG_LIVE_ROWS] = rows } };
	const int32_t *ids;
	const float *logits;
	int rc = d->class->submit(r->program, &s, err);

	return rc ? rc : d->class->wait(r->program, 0, 1000, &ids, &logits, err);
}

static const void *at(const struct run *r, int i)
{
	return (const void *)(uintptr_t)(r->scratch->at +
					 r->tape->buffers[r->v[i].ref.buffer].offset);
}

static void test_exchange(void **state)
{
	struct ig_error err = { 0 };
	struct group g;
	struct run r;

	assert_int_equal(connect_all(&g, 3, &err), 0);
	make_tape(&r, g.d[1]);
	nccl->n_calls = 0;
	if (submit(&r, g.d[1], 3, &err)) /* a bucket of 4 */
		fail_msg("%s", err.text);
	assert_int_equal(nccl->n_calls, 3);
	assert_int_equal(fake->n_children, 2);
	const struct fake_nccl_call *c = nccl->calls;
	assert_int_equal(c[0].kind, FAKE_NCCL_SUM);
	assert_int_equal(c[0].rank, 1);
	assert_ptr_equal(c[0].from, at(&r, 0));
	assert_ptr_equal(c[0].to, at(&r, 1));
	assert_int_equal(c[0].n, 4 * 192 / 4);
	for (int i = 1; i < 3; i++) {
		assert_int_equal(c[i].kind, FAKE_NCCL_BROADCAST);
		assert_int_equal(c[i].root, i);
		assert_ptr_equal(c[i].from, at(&r, i));
		assert_ptr_equal(c[i].to, at(&r, i));
		assert_int_equal(c[i].n, 4 * 192 / 4);
		assert_true(c[i].grouped);
	}
	/* The same bucket again is no new recording; another one is. */
	assert_int_equal(submit(&r, g.d[1], 4, &err), 0);
	assert_int_equal(nccl->n_calls, 3);
	assert_int_equal(submit(&r, g.d[1], 8, &err), 0);
	assert_int_equal(nccl->n_calls, 6);
	assert_int_equal(nccl->calls[3].n, 8 * 192 / 4);
	/* A bucket of 16, of which the values have memory for nine. */
	assert_int_equal(submit(&r, g.d[1], ROWS, &err), 0);
	assert_int_equal(nccl->n_calls, 9);
	for (int i = 6; i < 9; i++)
		assert_int_equal(nccl->calls[i].n, ROWS * 192 / 4);
	free_tape(&r, g.d[1]);
	close_all(&g);
}

/* Rows are counted by a value's row; other buffers have none. */
static void test_no_value(void **state)
{
	struct ig_error err = { 0 };
	struct ig_gpu_tape *t;
	struct ig_gpu_tensor v;
	struct ig_gpu_ref weight;
	struct group g;

	assert_int_equal(connect_all(&g, 3, &err), 0);
	assert_int_equal(ig_gpu_tape_create(g.d[0]->class->facts(g.d[0]), 1, &t), 0);
	assert_int_equal(ig_gpu_tape_value(t, IG_F32, COLS, IG_ROWS_TOKENS, ROWS, &v), 0);
	assert_int_equal(ig_gpu_tape_weight(t, 4096, &weight), 0);
	const struct ig_gpu_bind parts[] = { { weight, 192, IG_GPU_READ, 0 },
					     { v.ref, 192, IG_GPU_WRITE, 0 } };
	assert_int_equal(ig_gpu_tape_exchange(t, IG_GPU_FETCH, 0, parts, 2, IG_ROWS_TOKENS),
			 -EINVAL);
	assert_int_equal(ig_gpu_tape_close(t, &err), -EINVAL);
	assert_non_null(strstr(err.text, "exchange: parts: operand 0 is no value"));
	ig_gpu_tape_destroy(t);
	close_all(&g);
}

static void test_exchange_fails(void **state)
{
	static const char *const cuda[] = { "cuStreamBeginCapture_v2", "cuStreamEndCapture",
					    "cuGraphAddChildGraphNode" };
	struct ig_error err = { 0 };
	struct group g;
	struct run r;

	assert_int_equal(connect_all(&g, 3, &err), 0);
	make_tape(&r, g.d[0]);
	for (size_t i = 0; i < sizeof cuda / sizeof *cuda; i++) {
		fake->fail = cuda[i];
		fake->fail_with = CUDA_ERROR_INVALID_VALUE;
		assert_int_equal(submit(&r, g.d[0], 1, &err), -EIO);
		assert_non_null(strstr(err.text, "recording an exchange"));
	}
	fake->fail = NULL;
	nccl->fail = "ncclAllReduce";
	assert_int_equal(submit(&r, g.d[0], 1, &err), -EIO);
	assert_non_null(strstr(err.text, "NCCL: recording a sum: invalid usage"));
	nccl->fail = NULL;
	assert_int_equal(submit(&r, g.d[0], 1, &err), 0);
	/* After one has failed the others are told, once, and nothing more is recorded. */
	ig_gpu_cuda.abort(g.d[2]);
	ig_gpu_cuda.abort(g.d[1]);
	assert_int_equal(nccl->n_aborts, 3);
	assert_int_equal(submit(&r, g.d[0], 8, &err), -EIO);
	assert_non_null(strstr(err.text, "the other devices are not connected"));
	free_tape(&r, g.d[0]);
	close_all(&g);
}

/* ---- by a kernel ------------------------------------------------------------------------- */

/* Have each GPU reach the memory of all others, and the exchange kernel be one that the double knows. */
static int setup_peers(void **state)
{
	static const char text[] = ".entry sends_208_0 ; griddepcontrol.wait";
	static uint8_t packed[128];
	static struct ig_ptx ptx = { "sends_208_0", packed, 0, sizeof text - 1 };
	static const struct ig_shader shader = {
		.struct_size = sizeof shader, .name = "test/sends", .ptx_sm80 = &ptx, .n_sm80 = 1
	};
	uLongf n = sizeof packed;
	int rc = setup(state);

	assert_int_equal(compress(packed, &n, (const Bytef *)text, sizeof text - 1), Z_OK);
	ptx.n_bytes = (uint32_t)n;
	ig_cuda_exchange_shader = &shader;
	ig_cuda_exchange_kernel = "sends_208_0";
	ig_nccl_name = "libno-nccl.so.2"; /* nothing asks for it */
	fake->reaches = true;
	return rc;
}

static const struct exchange_args *args_of(int run)
{
	return (const struct exchange_args *)fake->runs[run].args;
}

static void test_peers(void **state)
{
	struct ig_error err = { 0 };
	struct group g;
	struct run r;

	if (connect_all(&g, 3, &err))
		fail_msg("%s", err.text);
	assert_int_equal(fake->n_enabled, 6);
	make_program(&r, g.d[1], ROWS, 0);
	assert_int_equal(submit(&r, g.d[1], 3, &err), 0); /* a bucket of 4 */
	assert_int_equal(fake->n_runs, 2);
	assert_int_equal(fake->n_children, 0);
	assert_true(fake->runs[1].overlaps);
	const struct exchange_args *sum = args_of(0), *parts = args_of(1);
	for (int i = 0; i < 2; i++) {
		const struct exchange_args *a = args_of(i);
		assert_int_equal(fake->runs[i].threads, EXCHANGE_THREADS);
		assert_int_equal(fake->runs[i].grid[0], 1); /* 4 rows of 24 pairs */
		assert_int_equal(a->rank, 1);
		assert_int_equal(a->n_ranks, 3);
		assert_int_equal(a->rows_live, IG_ROWS_TOKENS);
		assert_int_equal(a->turn, 1 + i);
		assert_int_equal(a->n_turns, i ? 2 : 0);
		for (int k = 0; k < 3; k++) {
			assert_int_equal(a->row_pairs[k], 192 / 8);
			assert_int_not_equal(a->inbox[k], 0);
			assert_int_not_equal(a->inbox[k], a->inbox[(k + 1) % 3]);
		}
		assert_int_equal(*(const uint32_t *)(uintptr_t)a->stop, 0);
		assert_int_equal(*(const uint32_t *)(uintptr_t)a->turns, 0);
	}
	assert_ptr_equal((void *)(uintptr_t)sum->part[1], at(&r, 0));
	assert_ptr_equal((void *)(uintptr_t)sum->sum, at(&r, 1));
	assert_int_equal(sum->part[0] | sum->part[2], 0);
	for (int k = 0; k < 3; k++)
		assert_ptr_equal((void *)(uintptr_t)parts->part[k], at(&r, k));
	assert_int_equal(parts->sum, 0);
	/* A bucket of 16, of which the values have memory for nine; the recording is changed. */
	assert_int_equal(submit(&r, g.d[1], ROWS, &err), 0);
	assert_int_equal(fake->n_instantiated, 1);
	assert_int_equal(fake->n_changed, 2);
	assert_int_equal(fake->runs[3].grid[0], 1); /* 216 pairs */
	assert_int_equal(args_of(3)->n_turns, 2);
	free_tape(&r, g.d[1]);
	close_all(&g);
}

/* Many rows go in chunks and have no turn; a recording with the same kernels is changed to that and back. */
static void test_chunks(void **state)
{
	static const struct {
		uint32_t rows, grid;
		bool in_chunks;
	} steps[] = {
		{ 256, 24, false }, { 5000, 480, false }, { 6000, 288, true }, { 256, 24, false }
	};
	struct ig_error err = { 0 };
	struct group g;
	struct run r;

	assert_int_equal(connect_all(&g, 3, &err), 0);
	make_program(&r, g.d[0], 6144, 0);
	for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
		fake->n_runs = 0;
		assert_int_equal(submit(&r, g.d[0], steps[i].rows, &err), 0);
		assert_int_equal(fake->n_runs, 2);
		for (int k = 0; k < 2; k++) {
			assert_int_equal(fake->runs[k].grid[0], steps[i].grid);
			assert_int_equal(args_of(k)->turn, steps[i].in_chunks ? 0 : 1 + k);
			assert_int_equal(args_of(k)->n_turns, k && !steps[i].in_chunks ? 2 : 0);
		}
	}
	assert_true(fake->n_changed > 0);
	free_tape(&r, g.d[0]);
	close_all(&g);
}

static void refuse_tape(struct run *r, struct ig_gpu_device *d, uint32_t first, int rc,
			const char *part)
{
	struct ig_error err = { 0 };

	make_tape_of(r, d, ROWS, first);
	r->program = NULL;
	assert_int_equal(d->class->program_create(d, r->tape, r->places, 256, &r->program, &err),
			 rc);
	assert_non_null(strstr(err.text, part));
	free_tape(r, d);
}

static void test_peers_fail(void **state)
{
	static const struct {
		const char *call, *says;
		int after;
	} fails[] = {
		{ "cuCtxEnablePeerAccess", "reaching", 0 },
		{ "cuCtxEnablePeerAccess", "reaching", 1 },
		{ "cuMemAlloc_v2", "allocating", 0 },
		{ "cuMemAlloc_v2", "allocating", 1 },
		{ "cuMemsetD8Async", "clearing", 0 },
		{ "cuMemsetD8Async", "clearing", 1 },
		{ "cuMemHostAlloc", "pinning", 0 },
		/* Two memories of each device are cleared, then written to. */
		{ "cuMemsetD8Async", "trying to write into another", 2 * N },
		{ "cuMemsetD8Async", "clearing", 2 * N + N * N },
		{ "cuMemcpyDtoHAsync_v2", "reading what other devices wrote", 1 },
	};
	struct ig_error err = { 0 };
	struct group g;
	struct run r;

	for (size_t i = 0; i < sizeof fails / sizeof *fails; i++) {
		for (uint32_t k = 0; k < N; k++)
			g.d[k] = open_device(k);
		fake->fail = fails[i].call;
		fake->n_failing = 0;
		fake->fail_after = fails[i].after;
		fake->fail_with = CUDA_ERROR_INVALID_VALUE;
		assert_int_equal(ig_gpu_cuda.connect(g.d, N, &err), -EIO);
		if (!strstr(err.text, fails[i].says))
			fail_msg("'%s' does not say '%s'", err.text, fails[i].says);
		fake->fail = NULL;
		close_all(&g);
	}
	assert_int_equal(connect_all(&g, 3, &err), 0);
	/* The part of rank 0 is missing. */
	refuse_tape(&r, g.d[0], 1, -EINVAL, "an exchange of 2 parts between 3 devices");
	ig_cuda_exchange_kernel = "other";
	refuse_tape(&r, g.d[0], 0, -ENOTSUP, "has no kernel other");
	close_all(&g);
}

/* After one has failed the kernels of the others stop waiting, and no step begins. */
static void test_peers_abort(void **state)
{
	struct ig_error err = { 0 };
	struct group g;
	struct run r;

	assert_int_equal(connect_all(&g, 3, &err), 0);
	make_program(&r, g.d[0], ROWS, 0);
	assert_int_equal(submit(&r, g.d[0], 1, &err), 0);
	ig_gpu_cuda.abort(g.d[2]);
	assert_int_equal(*(const uint32_t *)(uintptr_t)args_of(0)->stop, 1);
	assert_int_equal(submit(&r, g.d[0], 1, &err), -EIO);
	assert_non_null(strstr(err.text, "the other devices are not connected"));
	free_tape(&r, g.d[0]);
	close_all(&g);
}

/* Where one does not reach another, NCCL is needed. */
static void test_one_out_of_reach(void **state)
{
	fake->reaches = false;
	refused(-ENOTSUP, "several devices need NVIDIA's library NCCL (libno-nccl.so.2");
}

/* What the driver promises is tried: if nothing arrives, NCCL does it; else the inboxes are left as they were. */
static void test_writes_are_lost(void **state)
{
	struct ig_error err = { 0 };
	struct group g;
	struct run r;

	fake->loses_writes = true;
	refused(-ENOTSUP, "several devices need NVIDIA's library NCCL (libno-nccl.so.2");
	ig_nccl_name = INGOT_FAKE_LIBNCCL;
	assert_int_equal(connect_all(&g, 3, &err), 0);
	make_tape(&r, g.d[1]);
	nccl->n_calls = 0;
	assert_int_equal(submit(&r, g.d[1], 3, &err), 0);
	assert_int_equal(nccl->n_calls, 3);
	assert_int_equal(fake->n_runs, 0);
	free_tape(&r, g.d[1]);
	close_all(&g);
	fake->loses_writes = false;
	assert_int_equal(connect_all(&g, 3, &err), 0);
	make_program(&r, g.d[1], ROWS, 0);
	assert_int_equal(submit(&r, g.d[1], 3, &err), 0);
	assert_int_equal(fake->n_runs, 2);
	for (int k = 0; k < 3; k++) {
		const uint8_t *inbox = (const void *)(uintptr_t)args_of(0)->inbox[k];
		for (int i = 0; i < 4096; i++)
			assert_int_equal(inbox[i], 0);
	}
	free_tape(&r, g.d[1]);
	close_all(&g);
}

static void test_alone(void **state)
{
	struct ig_gpu_device *d = open_device(0);
	struct ig_error err = { 0 };
	struct run r;

	make_tape(&r, d);
	ig_gpu_cuda.abort(d);
	assert_int_equal(submit(&r, d, 1, &err), -EIO);
	assert_non_null(strstr(err.text, "the other devices are not connected"));
	free_tape(&r, d);
	d->class->close(d);
	assert_clean();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_numbers, setup),
		cmocka_unit_test_setup(test_connect, setup),
		cmocka_unit_test_setup(test_errors, setup),
		cmocka_unit_test_setup(test_exchange, setup),
		cmocka_unit_test_setup(test_no_value, setup),
		cmocka_unit_test_setup(test_exchange_fails, setup),
		cmocka_unit_test_setup(test_peers, setup_peers),
		cmocka_unit_test_setup(test_chunks, setup_peers),
		cmocka_unit_test_setup(test_peers_fail, setup_peers),
		cmocka_unit_test_setup(test_peers_abort, setup_peers),
		cmocka_unit_test_setup(test_one_out_of_reach, setup_peers),
		cmocka_unit_test_setup(test_writes_are_lost, setup_peers),
		cmocka_unit_test_setup(test_alone, setup),
	};

	return cmocka_run_group_tests_name("exchange", tests, NULL, NULL);
}
