/*
 * test_cuda.c: the device `cuda` over a double of libcuda: what it asks of the library, in
 * which order, and what becomes of every error.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "fake_libcuda.h"
#include "runtime/gpu/device.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define STEP_BYTES 64u

static struct fake_cuda *fake;

/* What the build makes of PTX: one text for each kernel. */
#define N_PTX 16
static uint8_t packed[N_PTX][256];
static struct ig_ptx ptx[N_PTX];
static int n_ptx;

static struct ig_ptx *pack(const char *kernel, const char *text)
{
	uLongf n = sizeof packed[0];
	int i = n_ptx++;

	assert_in_range(i, 0, N_PTX - 1);
	assert_int_equal(compress(packed[i], &n, (const Bytef *)text, strlen(text)), Z_OK);
	ptx[i] = (struct ig_ptx){ kernel, packed[i], (uint32_t)n, (uint32_t)strlen(text) };
	return &ptx[i];
}

#define SHADER(name) { sizeof(struct ig_shader), 0, name, "", NULL, 0, NULL, NULL, 0, 0 }

static struct ig_shader shader = SHADER("test/kernels"), broken = SHADER("test/broken"),
			newer = SHADER("test/newer"), damaged = SHADER("test/damaged"),
			other = SHADER("test/other");
static const struct ig_shader without = SHADER("test/without");

/* Hopper's own PTX has two kernels more. */
static void pack_all(void)
{
	if (n_ptx)
		return;
	shader.ptx_sm80 = shader.ptx_sm90a = pack("first_8_1", ".entry first_8_1 { }");
	pack("second_4_2", ".entry second_4_2 { }");
	pack("ids_4_1", ".entry ids_4_1 { }");
	pack("big_4_0", ".entry big_4_0 { }");
	pack("boxes_4_3", ".entry boxes_4_3 { }");
	pack("hopper_4_0", ".entry hopper_4_0 { }");
	pack("waits_4_1", ".entry waits_4_1 { griddepcontrol.wait; }");
	shader.n_sm80 = 5;
	shader.n_sm90a = 7;
	broken.ptx_sm80 = broken.ptx_sm90a = pack("a_4_0", "broken");
	newer.ptx_sm80 = newer.ptx_sm90a = pack("a_4_0", "newer");
	damaged.ptx_sm80 = damaged.ptx_sm90a = pack("a_4_0", ".entry a_4_0 { }");
	packed[n_ptx - 1][8] ^= 1;
	other.ptx_sm80 = other.ptx_sm90a = pack("other_4_0", ".entry other_4_0 { }");
	broken.n_sm80 = broken.n_sm90a = newer.n_sm80 = newer.n_sm90a = 1;
	damaged.n_sm80 = damaged.n_sm90a = other.n_sm80 = other.n_sm90a = 1;
}

static int setup(void **state)
{
	pack_all();
	if (!fake) {
		void *so = dlopen(INGOT_FAKE_LIBCUDA, RTLD_NOW);

		if (!so)
			fail_msg("%s", dlerror());
		fake = dlsym(so, "fake_cuda");
		assert_non_null(fake);
	}
	memset(fake, 0, sizeof *fake);
	fake->n_gpus = 1;
	fake->capability[0] = 90;
	fake->version = 12040;
	fake->memory_bytes = (size_t)64 << 20;
	fake->kernel_threads = 1024;
	ig_libcuda_name = INGOT_FAKE_LIBCUDA;
	return 0;
}

/* Nothing is alive, and the library was never called wrongly. */
static void assert_clean(void)
{
	assert_string_equal(fake->misuse, "");
	assert_int_equal(fake->contexts, 0);
	assert_int_equal(fake->memory, 0);
	assert_int_equal(fake->pinned, 0);
	assert_int_equal(fake->streams, 0);
	assert_int_equal(fake->events, 0);
	assert_int_equal(fake->modules, 0);
	assert_int_equal(fake->graphs, 0);
	assert_int_equal(fake->execs, 0);
}

static const struct ig_driver_options options = { .isa = "auto", .activations = "auto" };

static struct ig_gpu_device *open_device(void)
{
	struct ig_gpu_device *d = NULL;
	struct ig_error err = { 0 };

	if (ig_gpu_cuda.open(&options, &d, &err))
		fail_msg("%s", err.text);
	return d;
}

static void refused(const char *part)
{
	struct ig_gpu_device *d = (void *)1;
	struct ig_error err = { 0 };

	assert_int_equal(ig_gpu_cuda.open(&options, &d, &err), -ENOTSUP);
	assert_int_equal(err.code, -ENOTSUP);
	assert_null(d);
	if (!strstr(err.text, part))
		fail_msg("'%s' does not say '%s'", err.text, part);
	assert_clean();
}

/* ---- opening ---- */

static void test_no_driver(void **state)
{
	ig_libcuda_name = "libno-such-library.so.1";
	refused("libno-such-library.so.1");
	ig_libcuda_name = "libc.so.6"; /* a library, but none of NVIDIA's */
	refused("cuInit");
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
	d = open_device();
	assert_int_equal(d->class->facts(d)->arch, 86);
	assert_string_equal(d->class->facts(d)->name, "Fake 1");
	assert_int_equal(d->class->facts(d)->kind, IG_GPU_CUDA);
	assert_int_equal(d->class->facts(d)->n_cores, 132);
	assert_int_equal(d->class->facts(d)->max_threadgroup_bytes, 232448);
	assert_int_equal(d->class->facts(d)->max_threads, 1024);
	assert_true(d->class->facts(d)->working_set_bytes < fake->memory_bytes);
	assert_true(d->class->facts(d)->working_set_bytes > fake->memory_bytes / 10 * 9);
	d->class->close(d);
	assert_clean();
}

/* ---- memory ---- */

static void test_memory(void **state)
{
	const uint64_t n = ((uint64_t)10 << 20) + 12345; /* several pieces and a rest */
	struct ig_gpu_device *d = open_device();
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
	assert_clean();
	free(x);
	free(y);
}

/* ---- programs ---- */

/* A program of some dispatches and the memory that it needs. */
struct world {
	struct ig_gpu_device *d;
	struct ig_gpu_tape *tape;
	struct ig_gpu_buffer *memory;
	struct ig_gpu_place places[8];
	struct ig_gpu_program *p;
	struct ig_gpu_ref value, ids, logits;
};

static const struct ig_gpu_extent one = { IG_LIVE_ONE, 1, 1, 1 };

static struct ig_gpu_dispatch dispatch(const char *kernel, const void *args, uint32_t n_args)
{
	return (struct ig_gpu_dispatch){
		.struct_size = sizeof(struct ig_gpu_dispatch),
		.shader = &shader,
		.kernel = kernel,
		.args = args,
		.n_arg_bytes = n_args,
		.threads = 64,
		.when_max = UINT32_MAX,
		.grid = { one, one, one },
	};
}

static void record(struct world *w, const struct ig_gpu_dispatch *d)
{
	if (ig_gpu_tape_host.dispatch(w->tape, d))
		fail_msg("%s", w->tape->error.text);
}

static void begin(struct world *w)
{
	memset(w, 0, sizeof *w);
	w->d = open_device();
	assert_int_equal(ig_gpu_tape_create(w->d->class->facts(w->d), 4, &w->tape), 0);
	assert_int_equal(ig_gpu_tape_host.scratch(w->tape, 1024, &w->value), 0);
	assert_int_equal(ig_gpu_tape_host.ids(w->tape, &w->ids), 0);
}

/* Places of all buffers, one after the other; the program. */
static int make(struct world *w, struct ig_error *err)
{
	uint64_t n = 0;
	int rc = ig_gpu_tape_close(w->tape, err);

	assert_int_equal(rc, 0);
	for (uint32_t i = 0; i < w->tape->n_buffers; i++) {
		w->places[i].offset = n;
		n += (w->tape->buffers[i].n_bytes + 255) / 256 * 256;
	}
	rc = w->d->class->alloc(w->d, n, IG_GPU_MEMORY_PRIVATE, &w->memory, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < w->tape->n_buffers; i++)
		w->places[i].buffer = w->memory;
	return w->d->class->program_create(w->d, w->tape, w->places, STEP_BYTES, &w->p, err);
}

static void end(struct world *w)
{
	if (w->p)
		w->d->class->program_destroy(w->p);
	if (w->memory)
		w->d->class->free(w->d, w->memory);
	ig_gpu_tape_destroy(w->tape);
	w->d->class->close(w->d);
	assert_clean();
}

static struct ig_gpu_submission submission(uint32_t slot, uint32_t rows)
{
	struct ig_gpu_submission s = { .slot = slot, .step_bytes = STEP_BYTES };

	s.live[IG_LIVE_ONE] = 1;
	s.live[IG_LIVE_ROWS] = rows;
	s.live[IG_LIVE_LOGIT_ROWS] = 2;
	return s;
}

/* Kernel ids: the sampled ids are twice the step's first words. */
static void run_kernel(const struct fake_run *r)
{
	if (!strcmp(r->name, "ids_4_1")) {
		const uint32_t *step = (const uint32_t *)(uintptr_t)r->address[0];
		int32_t *ids = (int32_t *)(uintptr_t)r->address[1] + step[2] * 4;

		ids[0] = (int32_t)(2 * step[0]);
		ids[1] = (int32_t)(2 * step[1]);
	}
}

static void bind_ids(struct world *w, struct ig_gpu_dispatch *d)
{
	d->n_binds = 1;
	d->bind[0] = (struct ig_gpu_bind){ w->ids, 32, IG_GPU_WRITE, 0 };
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

	begin(&w);
	d = dispatch("ids_4_1", &arg, 4);
	bind_ids(&w, &d);
	record(&w, &d);
	assert_int_equal(make(&w, &err), 0);
	fake->kernel = run_kernel;
	for (int i = 0; i < 5; i++) {
		s0 = submission(0, 1);
		s1 = submission(1, 1);
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
	s1 = submission(2, 1);
	assert_int_equal(w.d->class->submit(w.p, &s1, &err), -EINVAL);
	s1 = submission(1, 1);
	s1.live[IG_LIVE_LOGIT_ROWS] = 5;
	assert_int_equal(w.d->class->submit(w.p, &s1, &err), -EINVAL);
	end(&w); /* with a step under way */
}

static void test_logits(void **state)
{
	struct ig_gpu_submission s = submission(0, 1);
	struct ig_gpu_dispatch d;
	struct ig_error err = { 0 };
	struct world w;
	const int32_t *ids;
	const float *logits;
	const float want[2] = { 1.5f, -2.0f };
	uint32_t arg = 0;

	begin(&w);
	assert_int_equal(ig_gpu_tape_host.logits(w.tape, 100, &w.logits), 0);
	d = dispatch("ids_4_1", &arg, 4);
	bind_ids(&w, &d);
	record(&w, &d);
	assert_int_equal(make(&w, &err), 0);
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
	end(&w);
}

/* Operands, grids, conditions and barriers as the tape has them. */
static void test_recording(void **state)
{
	struct ig_gpu_submission s = submission(0, 5);
	struct {
		uint32_t a, b;
	} args = { 3, 4 };
	struct ig_gpu_dispatch d;
	struct ig_error err = { 0 };
	struct world w;
	const int32_t *ids;
	const float *logits;
	CUdeviceptr value;

	begin(&w);
	d = dispatch("first_8_1", &args, 8); /* writes the value's first half */
	d.n_binds = 2;
	d.grid[0] = (struct ig_gpu_extent){ IG_LIVE_ROWS, 1, 4, 3 };
	d.bind[0] = (struct ig_gpu_bind){ w.value, 512, IG_GPU_WRITE, 0 };
	d.bind[1] = (struct ig_gpu_bind){ w.ids, 16, IG_GPU_READ | IG_GPU_TOUCH, 0 };
	record(&w, &d);
	d.bind[0].ref.offset = 512; /* the other half: beside the first */
	d.n_binds = 1;
	d.grid[0] = one;
	d.grid[1] = (struct ig_gpu_extent){ IG_LIVE_LOGIT_ROWS, 1, 1, 1 };
	record(&w, &d);
	d = dispatch("second_4_2", &args, 4); /* reads both: after a barrier */
	d.n_binds = 2;
	d.threadgroup_bytes = 65536;
	d.bind[0] = (struct ig_gpu_bind){ w.value, 1024, IG_GPU_READ, 0 };
	d.bind[1].ref.buffer = -1;
	record(&w, &d);
	d = dispatch("ids_4_1", &args, 4); /* only in steps of many rows; writes what was read */
	d.n_binds = 1;
	d.when_live = IG_LIVE_ROWS;
	d.when_min = 17;
	d.bind[0] = (struct ig_gpu_bind){ w.value, 1024, IG_GPU_WRITE, 0 };
	record(&w, &d);
	d = dispatch("ids_4_1", &args, 4); /* its barrier belongs to the one that did not run */
	d.n_binds = 1;
	d.bind[0] = (struct ig_gpu_bind){ w.value, 4, IG_GPU_WRITE, 0 };
	d.when_live = IG_LIVE_ROWS;
	d.when_max = 16;
	record(&w, &d);
	assert_int_equal(make(&w, &err), 0);
	value = w.d->class->address(w.memory) + w.places[w.value.buffer].offset;

	assert_int_equal(w.d->class->submit(w.p, &s, &err), 0);
	assert_int_equal(w.d->class->wait(w.p, 0, 1000, &ids, &logits, &err), 0);
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

	s = submission(0, 17);
	assert_int_equal(w.d->class->submit(w.p, &s, &err), 0);
	assert_int_equal(w.d->class->wait(w.p, 0, 1000, &ids, &logits, &err), 0);
	assert_int_equal(fake->n_runs, 8);
	assert_int_equal(r[7].n_after, 1);
	end(&w);
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
		struct ig_gpu_dispatch d = dispatch(all[i].kernel, &arg, 4);

		d.n_binds = 1;
		d.bind[0] = (struct ig_gpu_bind){ w->value, all[i].n_bytes, IG_GPU_WRITE, 0 };
		d.bind[0].ref.offset = all[i].offset;
		record(w, &d);
	}
}

static void test_overlaps(void **state)
{
	static const bool overlaps[] = { false, true, false, true, true, false, true };
	static const unsigned after[] = { 0, 1, 1, 1, 1, 2, 1 };
	struct ig_gpu_submission s = submission(0, 1);
	struct ig_error err = { 0 };
	struct world w;
	const int32_t *ids;
	const float *logits;

	for (int refused = 0; refused < 2; refused++) {
		fake->n_runs = fake->n_refused = fake->n_instantiated = 0;
		fake->refuse_overlaps = refused;
		begin(&w);
		record_overlaps(&w);
		assert_int_equal(make(&w, &err), 0);
		for (uint32_t rows = 1; rows < 4; rows++) { /* no grid follows them */
			s = submission(0, rows);
			assert_int_equal(w.d->class->submit(w.p, &s, &err), 0);
			assert_int_equal(w.d->class->wait(w.p, 0, 1000, &ids, &logits, &err), 0);
		}
		assert_int_equal(fake->n_refused, refused);
		assert_int_equal(fake->n_instantiated, 1);
		assert_int_equal(fake->n_runs, 21);
		for (size_t i = 0; i < sizeof after / sizeof *after; i++) {
			assert_int_equal(fake->runs[i].overlaps, !refused && overlaps[i]);
			assert_int_equal(fake->runs[i].n_after, after[i]);
		}
		end(&w);
	}
}

/* Not in steps of many rows. */
static void test_overlaps_of_few_rows(void **state)
{
	struct ig_error err = { 0 };
	struct world w;
	const int32_t *ids;
	const float *logits;
	uint32_t arg = 0;

	begin(&w);
	for (int i = 0; i < 2; i++) {
		struct ig_gpu_dispatch d = dispatch("waits_4_1", &arg, 4);

		d.n_binds = 1;
		d.bind[0] = (struct ig_gpu_bind){ w.value, 64, IG_GPU_WRITE, 0 };
		d.grid[0] = (struct ig_gpu_extent){ IG_LIVE_ROWS, 1, 1, 1 };
		record(&w, &d);
	}
	assert_int_equal(make(&w, &err), 0);
	for (uint32_t rows = 127; rows < 131; rows++) {
		struct ig_gpu_submission s = submission(0, rows);

		fake->n_runs = 0;
		assert_int_equal(w.d->class->submit(w.p, &s, &err), 0);
		assert_int_equal(w.d->class->wait(w.p, 0, 1000, &ids, &logits, &err), 0);
		assert_int_equal(fake->runs[1].overlaps, rows <= 128);
		assert_int_equal(fake->runs[1].n_after, 1);
	}
	end(&w);
}

/* Operands that a kernel takes in boxes are handed over as maps; its threadgroups go in
 * clusters. */
static void test_boxes(void **state)
{
	struct ig_gpu_submission s = submission(0, 5);
	struct ig_gpu_dispatch d;
	struct ig_error err = { 0 };
	struct world w;
	const int32_t *ids;
	const float *logits;
	uint32_t arg = 7;

	begin(&w);
	d = dispatch("boxes_4_3", &arg, 4);
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
	record(&w, &d);
	assert_int_equal(make(&w, &err), 0);
	assert_int_equal(w.d->class->submit(w.p, &s, &err), 0);
	assert_int_equal(w.d->class->wait(w.p, 0, 1000, &ids, &logits, &err), 0);
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
	end(&w);
}

/* Many dispatches before and after a barrier: joined by one node between them. */
static void test_wide(void **state)
{
	struct ig_gpu_submission s = submission(0, 1);
	struct ig_gpu_dispatch d;
	struct ig_error err = { 0 };
	struct world w;
	const int32_t *ids;
	const float *logits;
	uint32_t arg = 0;

	begin(&w);
	for (uint32_t i = 0; i < 40; i++) {
		d = dispatch("ids_4_1", &arg, 4);
		d.n_binds = 1;
		d.bind[0] = (struct ig_gpu_bind){ w.value, 16, IG_GPU_WRITE, 0 };
		d.bind[0].ref.offset = i % 20 * 16;
		record(&w, &d);
	}
	assert_int_equal(make(&w, &err), 0);
	assert_int_equal(w.d->class->submit(w.p, &s, &err), 0);
	assert_int_equal(w.d->class->wait(w.p, 0, 1000, &ids, &logits, &err), 0);
	assert_int_equal(fake->n_runs, 40);
	for (int i = 0; i < 20; i++)
		assert_int_equal(fake->runs[i].n_after, 0);
	for (int i = 20; i < 40; i++) /* 20 each for four of them, then one for all */
		assert_true(fake->runs[i].n_after == (i < 24 ? 20 : 1));
	end(&w);
}

/* Other counts than rows come in fewer buckets. */
static void test_coarse_buckets(void **state)
{
	static const uint32_t counts[] = { 1, 2, 3, 4, 5, 16, 17, 32, 33, 64, 65 };
	static const uint32_t grids[] = { 1, 4, 4, 4, 16, 16, 32, 32, 64, 64, 128 };
	struct ig_gpu_dispatch d;
	struct ig_error err = { 0 };
	struct world w;
	const int32_t *ids;
	const float *logits;
	uint32_t arg = 0;

	begin(&w);
	d = dispatch("big_4_0", &arg, 4);
	d.grid[0] = (struct ig_gpu_extent){ IG_LIVE_LOOP_ROWS, 1, 1, 1 };
	record(&w, &d);
	assert_int_equal(make(&w, &err), 0);
	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
		struct ig_gpu_submission s = submission(0, 5);

		s.live[IG_LIVE_LOOP_ROWS] = counts[i];
		assert_int_equal(w.d->class->submit(w.p, &s, &err), 0);
		assert_int_equal(w.d->class->wait(w.p, 0, 1000, &ids, &logits, &err), 0);
		assert_int_equal(fake->runs[i].grid[0], grids[i]);
	}
	assert_int_equal(fake->n_instantiated, 6);
	end(&w);
}

/* One recording a bucket; beyond 128 the one used longest ago goes. */
static void test_buckets(void **state)
{
	static const uint32_t rows[] = { 1, 2, 3, 4, 5, 8, 9, 16, 33, 64, 65, 72, 73, 1000, 1024 };
	static const int made[] = { 1, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 7, 8, 8 };
	struct ig_gpu_dispatch d;
	struct ig_error err = { 0 };
	struct world w;
	const int32_t *ids;
	const float *logits;
	uint32_t arg = 0;

	begin(&w);
	d = dispatch("big_4_0", &arg, 4);
	d.grid[0] = (struct ig_gpu_extent){ IG_LIVE_ROWS, 1, 1, 1 };
	record(&w, &d);
	assert_int_equal(make(&w, &err), 0);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct ig_gpu_submission s = submission(0, rows[i]);

		s.live[IG_LIVE_SEQS] = (uint32_t)i; /* nothing follows it */
		assert_int_equal(w.d->class->submit(w.p, &s, &err), 0);
		assert_int_equal(w.d->class->wait(w.p, 0, 1000, &ids, &logits, &err), 0);
		assert_int_equal(fake->n_instantiated, made[i]);
		assert_true(fake->runs[i].grid[0] >= rows[i]);
		assert_true(fake->runs[i].grid[0] < 2 * rows[i]);
	}
	for (uint32_t i = 0; i < 160; i++) {
		/* an eighth more each time: its own bucket */
		struct ig_gpu_submission s = submission(0, (8 + i % 8) << (7 + i / 8));

		assert_int_equal(w.d->class->submit(w.p, &s, &err), 0);
		assert_int_equal(w.d->class->wait(w.p, 0, 1000, &ids, &logits, &err), 0);
		s = submission(1, 3); /* used again and again: it stays */
		assert_int_equal(w.d->class->submit(w.p, &s, &err), 0);
		assert_int_equal(w.d->class->wait(w.p, 1, 1000, &ids, &logits, &err), 0);
		assert_in_range(fake->execs, 1, 128);
	}
	int before = fake->n_instantiated;
	struct ig_gpu_submission s = submission(0, 4);
	assert_true(before > 140);
	assert_int_equal(w.d->class->submit(w.p, &s, &err), 0);
	assert_int_equal(w.d->class->wait(w.p, 0, 1000, &ids, &logits, &err), 0);
	assert_int_equal(fake->n_instantiated, before);
	/* a step in which nothing runs is a step still */
	s = submission(0, 0);
	int runs = fake->n_runs;
	assert_int_equal(w.d->class->submit(w.p, &s, &err), 0);
	assert_int_equal(w.d->class->wait(w.p, 0, 1000, &ids, &logits, &err), 0);
	assert_int_equal(fake->n_runs, runs);
	/* a grid beyond what the machine takes is refused, not cut off */
	s = submission(0, UINT32_MAX);
	assert_int_equal(w.d->class->submit(w.p, &s, &err), -EINVAL);
	assert_non_null(strstr(err.text, "big_4_0"));
	end(&w);
}

static void refuse_kernel(const struct ig_shader *sh, const char *kernel, uint32_t n_args,
			  uint32_t n_binds, uint32_t threads, uint32_t bytes, int rc,
			  const char *part)
{
	static const uint32_t args[4];
	struct ig_gpu_dispatch d;
	struct ig_error err = { 0 };
	struct world w;

	begin(&w);
	d = dispatch(kernel, args, n_args);
	d.shader = sh;
	d.threads = threads;
	d.threadgroup_bytes = bytes;
	d.n_binds = n_binds;
	for (uint32_t i = 0; i < n_binds; i++)
		d.bind[i] = (struct ig_gpu_bind){ w.value, 16, IG_GPU_READ, 0 };
	record(&w, &d);
	assert_int_equal(make(&w, &err), rc);
	assert_int_equal(err.code, rc);
	assert_null(w.p);
	if (!strstr(err.text, part))
		fail_msg("'%s' does not say '%s'", err.text, part);
	end(&w);
}

static void test_kernels(void **state)
{
	refuse_kernel(&shader, "gone_4_0", 4, 0, 32, 0, -ENOTSUP,
		      "test/kernels has no kernel gone_4_0");
	refuse_kernel(&shader, "first_8_1", 4, 1, 32, 0, -EINVAL, "another size than 4 bytes");
	refuse_kernel(&shader, "first_8_1", 8, 2, 32, 0, -EINVAL, "does not take 2 operands");
	refuse_kernel(&shader, "first_8_1", 8, 0, 32, 0, -EINVAL, "does not take 0 operands");
	refuse_kernel(&shader, "boxes_4_3", 4, 3, 32, 0, -EINVAL,
		      "takes operand 0 as another type");
	refuse_kernel(&broken, "a_4_0", 4, 0, 32, 0, -EIO, "line 3; unknown symbol broken");
	refuse_kernel(&newer, "a_4_0", 4, 0, 32, 0, -ENOTSUP, "the driver is CUDA 12.4");
	refuse_kernel(&without, "a_4_0", 4, 0, 32, 0, -ENOTSUP, "without PTX");
	refuse_kernel(&damaged, "a_4_0", 4, 0, 32, 0, -ENOMEM,
		      "PTX of kernel a_4_0, or it is damaged");
	fake->kernel_threads = 256;
	refuse_kernel(&shader, "big_4_0", 4, 0, 512, 0, -ENOTSUP, "at most 256 threads");
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
		begin(&w);
		d = dispatch("hopper_4_0", &arg, 4);
		record(&w, &d);
		assert_int_equal(make(&w, &err), capabilities[i] == 90 ? 0 : -ENOTSUP);
		end(&w);
	}
}

/* Each is compiled once; one that fails leaves those before it. */
static void test_compiling(void **state)
{
	const struct ig_shader *good[] = { &shader, &other, &shader, &other };
	const char *kernels[] = { "big_4_0", "other_4_0", "big_4_0", "other_4_0" };

	for (int bad = 0; bad < 2; bad++) {
		struct ig_gpu_dispatch d;
		struct ig_error err = { 0 };
		struct world w;
		uint32_t arg = 0;

		begin(&w);
		for (int i = 0; i < 4; i++) {
			bool is_bad = bad && i == 2;
			d = dispatch(is_bad ? "a_4_0" : kernels[i], &arg, 4);
			d.shader = is_bad ? &broken : good[i];
			record(&w, &d);
		}
		assert_int_equal(make(&w, &err), bad ? -EIO : 0);
		assert_int_equal(fake->modules, 2);
		if (bad)
			assert_non_null(strstr(err.text, "a_4_0"));
		end(&w);
		assert_int_equal(fake->modules, 0);
	}
}

/* ---- errors ---- */

static void test_deadline(void **state)
{
	struct ig_gpu_submission s = submission(0, 1);
	struct ig_gpu_dispatch d;
	struct ig_error err = { 0 };
	struct world w;
	const int32_t *ids;
	const float *logits;
	uint32_t arg = 0;

	begin(&w);
	d = dispatch("big_4_0", &arg, 4);
	record(&w, &d);
	assert_int_equal(make(&w, &err), 0);
	assert_int_equal(w.d->class->submit(w.p, &s, &err), 0);
	fake->n_not_ready = 1 << 30;
	int launches = fake->n_launches;
	assert_int_equal(w.d->class->wait(w.p, 0, 50, &ids, &logits, &err), -ETIMEDOUT);
	assert_non_null(strstr(err.text, "50 ms"));
	/* it slept in between */
	assert_in_range(fake->n_launches - launches, 2, 20000);
	fake->n_not_ready = 3;
	assert_int_equal(w.d->class->wait(w.p, 0, 1000, &ids, &logits, &err), 0);
	end(&w);
}

static void test_lost_device(void **state)
{
	struct ig_gpu_submission s = submission(0, 1);
	struct ig_gpu_buffer *b = (void *)1;
	struct ig_gpu_dispatch d;
	struct ig_error err = { 0 };
	struct world w;
	const int32_t *ids;
	const float *logits;
	uint32_t arg = 0;

	begin(&w);
	d = dispatch("big_4_0", &arg, 4);
	record(&w, &d);
	assert_int_equal(make(&w, &err), 0);
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
	end(&w);
}

/* All that a device does once; the first error. */
static int scenario(struct ig_error *err)
{
	struct ig_gpu_dispatch d;
	struct world w = { 0 };
	const int32_t *ids;
	const float *logits;
	uint32_t words[32] = { 0 };
	int rc = ig_gpu_cuda.open(&options, &w.d, err);

	if (rc)
		return rc;
	assert_int_equal(ig_gpu_tape_create(w.d->class->facts(w.d), 4, &w.tape), 0);
	assert_int_equal(ig_gpu_tape_host.scratch(w.tape, 1024, &w.value), 0);
	assert_int_equal(ig_gpu_tape_host.ids(w.tape, &w.ids), 0);
	assert_int_equal(ig_gpu_tape_host.logits(w.tape, 10, &w.logits), 0);
	d = dispatch("ids_4_1", words, 4);
	bind_ids(&w, &d);
	record(&w, &d);
	d = dispatch("big_4_0", words, 4);
	d.threadgroup_bytes = 100000;
	record(&w, &d);
	d = dispatch("boxes_4_3", words, 4);
	d.n_binds = 3;
	for (uint32_t i = 0; i < 3; i++)
		d.bind[i] = (struct ig_gpu_bind){ w.value, 512, IG_GPU_READ, 0 };
	d.n_boxes = 2;
	d.box[0] = d.box[1] = (struct ig_gpu_box){ 0, 8, 2, 64, 256 };
	d.box[1].bind = 1;
	d.cluster = 2;
	d.grid[0].times = 2;
	record(&w, &d);
	rc = make(&w, err);
	if (!rc)
		rc = w.d->class->write(w.d, w.memory, 0, words, sizeof words, err);
	for (uint32_t slot = 0; !rc && slot < 2; slot++) {
		struct ig_gpu_submission s = submission(slot, 1 + slot);

		s.live[IG_LIVE_WANT_LOGITS] = 1;
		rc = w.d->class->submit(w.p, &s, err);
	}
	for (uint32_t slot = 0; !rc && slot < 2; slot++)
		rc = w.d->class->wait(w.p, slot, 1000, &ids, &logits, err);
	if (!rc)
		rc = w.d->class->read(w.d, w.memory, 0, words, sizeof words, err);
	/* cleaning up has no errors to tell */
	int at = fake->n_failing;
	end(&w);
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
			setup(state);
			memset(&err, 0, sizeof err);
			fake->fail = "*";
			fake->fail_after = i;
			fake->fail_with = ways[way].r;
			int rc = scenario(&err);
			assert_clean();
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
		cmocka_unit_test_setup(test_no_driver, setup),
		cmocka_unit_test_setup(test_gpus, setup),
		cmocka_unit_test_setup(test_memory, setup),
		cmocka_unit_test_setup(test_two_steps, setup),
		cmocka_unit_test_setup(test_logits, setup),
		cmocka_unit_test_setup(test_recording, setup),
		cmocka_unit_test_setup(test_overlaps, setup),
		cmocka_unit_test_setup(test_overlaps_of_few_rows, setup),
		cmocka_unit_test_setup(test_boxes, setup),
		cmocka_unit_test_setup(test_wide, setup),
		cmocka_unit_test_setup(test_buckets, setup),
		cmocka_unit_test_setup(test_coarse_buckets, setup),
		cmocka_unit_test_setup(test_kernels, setup),
		cmocka_unit_test_setup(test_ptx, setup),
		cmocka_unit_test_setup(test_compiling, setup),
		cmocka_unit_test_setup(test_deadline, setup),
		cmocka_unit_test_setup(test_lost_device, setup),
		cmocka_unit_test_setup(test_every_call_fails, setup),
	};

	return cmocka_run_group_tests_name("cuda", tests, NULL, NULL);
}
