/* cuda_case.c: see cuda_case.h. */
#include "cuda_case.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

struct fake_cuda *fake;

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

struct ig_shader cuda_shader = SHADER("test/kernels");
struct ig_shader cuda_broken = SHADER("test/broken");
struct ig_shader cuda_newer = SHADER("test/newer");
struct ig_shader cuda_damaged = SHADER("test/damaged");
struct ig_shader cuda_other = SHADER("test/other");

/* Hopper's own PTX has two kernels more. */
static void pack_all(void)
{
	if (n_ptx)
		return;
	cuda_shader.ptx_sm80 = cuda_shader.ptx_sm90a = pack("first_8_1", ".entry first_8_1 { }");
	pack("second_4_2", ".entry second_4_2 { }");
	pack("ids_4_1", ".entry ids_4_1 { }");
	pack("big_4_0", ".entry big_4_0 { }");
	pack("boxes_4_3", ".entry boxes_4_3 { }");
	pack("hopper_4_0", ".entry hopper_4_0 { }");
	pack("waits_4_1", ".entry waits_4_1 { griddepcontrol.wait; }");
	cuda_shader.n_sm80 = 5;
	cuda_shader.n_sm90a = 7;
	cuda_broken.ptx_sm80 = cuda_broken.ptx_sm90a = pack("a_4_0", "broken");
	cuda_newer.ptx_sm80 = cuda_newer.ptx_sm90a = pack("a_4_0", "newer");
	cuda_damaged.ptx_sm80 = cuda_damaged.ptx_sm90a = pack("a_4_0", ".entry a_4_0 { }");
	packed[n_ptx - 1][8] ^= 1;
	cuda_other.ptx_sm80 = cuda_other.ptx_sm90a = pack("other_4_0", ".entry other_4_0 { }");
	cuda_broken.n_sm80 = cuda_broken.n_sm90a = cuda_newer.n_sm80 = cuda_newer.n_sm90a = 1;
	cuda_damaged.n_sm80 = cuda_damaged.n_sm90a = cuda_other.n_sm80 = cuda_other.n_sm90a = 1;
}

int cuda_setup(void **state)
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

void cuda_assert_clean(void)
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

const struct ig_driver_options cuda_options = { .isa = "auto", .activations = "auto" };

struct ig_gpu_device *cuda_open(void)
{
	struct ig_gpu_device *d = NULL;
	struct ig_error err = { 0 };

	if (ig_gpu_cuda.open(&cuda_options, &d, &err))
		fail_msg("%s", err.text);
	return d;
}

const struct ig_gpu_extent cuda_one = { IG_LIVE_ONE, 1, 1, 1 };

struct ig_gpu_dispatch cuda_dispatch(const char *kernel, const void *args, uint32_t n_args)
{
	return (struct ig_gpu_dispatch){
		.struct_size = sizeof(struct ig_gpu_dispatch),
		.shader = &cuda_shader,
		.kernel = kernel,
		.args = args,
		.n_arg_bytes = n_args,
		.threads = 64,
		.when_max = UINT32_MAX,
		.grid = { cuda_one, cuda_one, cuda_one },
	};
}

void world_record(struct world *w, const struct ig_gpu_dispatch *d)
{
	if (ig_gpu_tape_host.dispatch(w->tape, d))
		fail_msg("%s", w->tape->error.text);
}

void world_begin(struct world *w)
{
	memset(w, 0, sizeof *w);
	w->d = cuda_open();
	assert_int_equal(ig_gpu_tape_create(w->d->class->facts(w->d), 4, &w->tape), 0);
	assert_int_equal(ig_gpu_tape_host.scratch(w->tape, 1024, &w->value), 0);
	assert_int_equal(ig_gpu_tape_host.ids(w->tape, &w->ids), 0);
}

int world_make(struct world *w, struct ig_error *err)
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

void world_run(struct world *w, const struct ig_gpu_submission *s)
{
	struct ig_error err = { 0 };
	const int32_t *ids;
	const float *logits;

	assert_int_equal(w->d->class->submit(w->p, s, &err), 0);
	assert_int_equal(w->d->class->wait(w->p, s->slot, 1000, &ids, &logits, &err), 0);
}

void world_end(struct world *w)
{
	if (w->p)
		w->d->class->program_destroy(w->p);
	if (w->memory)
		w->d->class->free(w->d, w->memory);
	ig_gpu_tape_destroy(w->tape);
	w->d->class->close(w->d);
	cuda_assert_clean();
}

struct ig_gpu_submission cuda_submission(uint32_t slot, uint32_t rows)
{
	struct ig_gpu_submission s = { .slot = slot, .step_bytes = STEP_BYTES };

	s.live[IG_LIVE_ONE] = 1;
	s.live[IG_LIVE_ROWS] = rows;
	s.live[IG_LIVE_LOGIT_ROWS] = 2;
	return s;
}
