/*
 * test_metal_device.c: the device metal on the double: results, errors, recovery.
 *
 * Every test ends with no report of the double and with none of its objects left.
 */
#include "tests/metal/fake.h"
#include "tests/metal/probe.h"

#include <dispatch/dispatch.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static void no_reports(void)
{
	const char *text = fake_take_report();

	if (text)
		fail_msg("%s", text);
}

static int set_up(void **state)
{
	fake_reset();
	probe_keep_wired_ms = 180000;
	return 0;
}

static int tear_down(void **state)
{
	fake_end_hang();
	fake_let_go();
	fake_settle();
	no_reports();
	const struct fake_counts c = fake_count();
	assert_int_equal(c.devices, 0);
	assert_int_equal(c.queues, 0);
	assert_int_equal(c.buffers, 0);
	assert_int_equal(c.libraries, 0);
	assert_int_equal(c.functions, 0);
	assert_int_equal(c.pipelines, 0);
	assert_int_equal(c.events, 0);
	assert_int_equal(c.fences, 0);
	assert_int_equal(c.sets, 0);
	assert_int_equal(c.command_buffers, 0);
	assert_int_equal(c.encoders, 0);
	return 0;
}

static void must(int rc, const struct ig_error *err)
{
	if (rc)
		fail_msg("%d: %s", rc, err->text);
}

static void says(const struct ig_error *err, const char *text)
{
	if (!strstr(err->text, text))
		fail_msg("'%s' does not say '%s'", err->text, text);
}

static void open_probe(struct probe *p)
{
	struct ig_error err = { 0 };

	must(probe_open(p, &err), &err);
}

static void load_probe(struct probe *p)
{
	struct ig_error err = { 0 };

	must(probe_load(p, &err), &err);
}

static void run_step(struct probe *p, uint32_t slot, uint32_t value)
{
	struct ig_error err = { 0 };

	must(probe_submit(p, slot, value, &err), &err);
	must(probe_wait(p, slot, NULL, &err), &err);
}

/* ---- what it computes ------------------------------------------------------------------- */

static void test_runs_a_tape(void **state)
{
	struct probe p;

	open_probe(&p);
	probe_op(&p, "probe_add", 1.0f, PROBE_X, PROBE_Y);
	probe_op(&p, "probe_scale", 0.0f, PROBE_Y, PROBE_Z);
	probe_op(&p, "probe_turn", 0.0f, PROBE_Z, PROBE_X);
	probe_op(&p, "probe_add", 0.5f, PROBE_X, PROBE_Y);
	load_probe(&p);
	for (uint32_t step = 0; step < 3; step++) {
		probe_write(&p, PROBE_X, 10.0f);
		run_step(&p, step % 2, step + 1);
		for (int i = 0; i < PROBE_N; i++) {
			int from = i / 32 * 32 + 31 - i % 32;
			assert_true(probe_read(&p, PROBE_Y, i) ==
				    (float)(step + 1) * (11.0f + (float)from) + 0.5f);
		}
	}
	assert_int_equal(fake_count().barriers, 9);
	assert_int_equal(fake_count().committed, 4); /* and one when it was opened */
	probe_close(&p);
}

/* Two dispatches that share nothing have no barrier between them, and what is bound
 * already is not bound again. */
static void test_binds_once(void **state)
{
	struct probe p;

	open_probe(&p);
	probe_op(&p, "probe_add", 1.0f, PROBE_X, PROBE_Y);
	probe_op(&p, "probe_add", 1.0f, PROBE_X, PROBE_Z);
	load_probe(&p);
	probe_write(&p, PROBE_X, 0.0f);
	uint32_t before = fake_count().binds;
	run_step(&p, 0, 1);
	assert_int_equal(fake_count().barriers, 0);
	/* pipeline, args, step, x, y; then only the place of y */
	assert_int_equal(fake_count().binds - before, 6);
	assert_true(probe_read(&p, PROBE_Z, 5) == 6.0f);
	probe_close(&p);
}

static void test_ids_of_two_steps(void **state)
{
	struct ig_error err = { 0 };
	const int32_t *ids, *later;
	struct probe p;

	open_probe(&p);
	probe_ids(&p);
	load_probe(&p);
	must(probe_submit(&p, 0, 7, &err), &err);
	must(probe_submit(&p, 1, 5, &err), &err);
	must(probe_wait(&p, 0, &ids, &err), &err);
	assert_int_equal(ids[0], 7);
	fake_settle();
	fake_hold();
	must(probe_submit(&p, 0, 100, &err), &err); /* reads the other slot's, writes its own */
	must(probe_wait(&p, 1, &later, &err), &err);
	/* The host may read a slot while the GPU is at work on the other. */
	for (int i = 0; i < PROBE_N; i++)
		assert_int_equal(later[i], 12);
	assert_ptr_equal(later, ids + 2 * PROBE_N);
	fake_let_go();
	must(probe_wait(&p, 0, &ids, &err), &err);
	assert_int_equal(ids[PROBE_N - 1], 112);
	probe_close(&p);
}

static void test_operand_left_out(void **state)
{
	const struct probe_args args = { .n = PROBE_N };
	struct probe p;

	open_probe(&p);
	struct ig_gpu_dispatch d = probe_dispatch(&p, "probe_optional", &args, PROBE_X, PROBE_Z);
	d.bind[2] = d.bind[1];
	d.bind[1] = (struct ig_gpu_bind){ .ref.buffer = -1 };
	d.n_binds = 3;
	probe_emit(&p, &d);
	load_probe(&p);
	probe_write(&p, PROBE_X, 3.0f);
	run_step(&p, 0, 1);
	assert_true(probe_read(&p, PROBE_Z, 1) == 4.0f);
	probe_close(&p);
}

/* Slabs are reached through addresses: by a set where there are any, else by name. */
static void test_slabs_are_resident(void **state)
{
	for (uint32_t macos = 14; macos <= 15; macos++) {
		struct probe p;
		float x = 0;
		fake_machine.macos = macos;
		open_probe(&p);
		probe_far(&p);
		load_probe(&p);
		run_step(&p, 0, 3);
		run_step(&p, 1, 4);
		ig_gpu_metal.read(p.device, p.slab, 4, &x, 4, NULL);
		assert_true(x == 7.0f);
		assert_int_equal(fake_count().sets > 0, macos >= 15);
		probe_close(&p);
	}
}

static void test_views_of_a_file(void **state)
{
	const struct ig_driver_options o = { .isa = "auto" };
	uint64_t page = (uint64_t)getpagesize();
	struct ig_gpu_device *d;
	struct ig_gpu_buffer *b;
	struct ig_error err = { 0 };
	uint32_t word = 0;

	must(ig_gpu_metal.open(&o, &d, &err), &err);
	uint32_t *map =
		mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	map[page / 4] = 42;
	mprotect(map, 2 * page, PROT_READ);
	must(ig_gpu_metal.wrap(d, map, 2 * page, &b, &err), &err);
	assert_true(ig_gpu_metal.address(b) == (uint64_t)(uintptr_t)map);
	must(ig_gpu_metal.read(d, b, page, &word, 4, &err), &err);
	assert_int_equal(word, 42);
	assert_int_equal(ig_gpu_metal.write(d, b, 0, &word, 4, &err), -EPERM);
	assert_int_equal(ig_gpu_metal.read(d, b, 2 * page - 2, &word, 4, &err), -EINVAL);
	says(&err, "at 8190 of a buffer of 8192");
	ig_gpu_metal.free(d, b);
	assert_int_equal(ig_gpu_metal.wrap(d, map, page + 16, &b, &err), -EINVAL);
	says(&err, "not whole pages");
	assert_int_equal(ig_gpu_metal.wrap(d, (char *)map + 32, page, &b, &err), -EINVAL);
	assert_null(b);
	munmap(map, 2 * page);
	ig_gpu_metal.close(d);
}

/* ---- choice of a device ----------------------------------------------------------------------- */

static int open_only(struct ig_error *err)
{
	const struct ig_driver_options o = { .isa = "auto" };
	struct ig_gpu_device *d = NULL;
	int rc = ig_gpu_metal.open(&o, &d, err);

	if (!rc)
		ig_gpu_metal.close(d);
	else
		assert_null(d);
	return rc;
}

static void test_choice(void **state)
{
	struct ig_error err = { 0 };

	fake_machine.no_default = true; /* headless */
	must(open_only(&err), &err);
	fake_machine.no_devices = true;
	assert_int_equal(open_only(&err), -ENOTSUP);
	says(&err, "no GPU that Metal supports");
	fake_machine.no_default = fake_machine.no_devices = false;
	fake_machine.family = 5;
	assert_int_equal(open_only(&err), -ENOTSUP);
	says(&err, "'Apple Paravirtual device' has no simdgroup_matrix");
}

static void test_facts(void **state)
{
	const struct ig_driver_options o = { .isa = "auto" };
	struct ig_gpu_device *d;
	struct ig_error err = { 0 };

	fake_machine.family = 9;
	fake_machine.working_set_bytes = (uint64_t)5 << 30;
	fake_machine.max_buffer_bytes = (uint64_t)3 << 30;
	must(ig_gpu_metal.open(&o, &d, &err), &err);
	const struct ig_gpu_facts *f = ig_gpu_metal.facts(d);
	assert_int_equal(f->struct_size, sizeof *f);
	assert_int_equal(f->kind, IG_GPU_METAL);
	assert_int_equal(f->arch, 9);
	assert_int_equal(f->max_threadgroup_bytes, 32768);
	assert_int_equal(f->max_threads, 1024);
	assert_true(f->working_set_bytes == (uint64_t)5 << 30);
	assert_true(f->max_buffer_bytes == (uint64_t)3 << 30);
	assert_string_equal(f->name, "Software M1");
	ig_gpu_metal.close(d);
}

/* Whatever can't be had while a device is opened: an error, and nothing stays. */
static void test_open_fails(void **state)
{
	struct ig_error err = { 0 };

	for (uint32_t i = 1; i <= 3; i++) {
		fake_machine.fail_object = i;
		assert_int_equal(open_only(&err), -ENOMEM);
		says(&err, i == 1 ? "command queue" : i == 2 ? "event" : "fence");
	}
	fake_machine.fail_buffer = 1;
	assert_int_equal(open_only(&err), -ENOMEM);
	fake_machine.fail_commands = 1;
	fake_machine.error_code = 4;
	assert_int_equal(open_only(&err), -ENODEV);
	says(&err, "its first command");
	must(open_only(&err), &err);
}

/* ---- errors of command buffers ------------------------------------------------------------------- */

static const struct {
	int32_t code;
	const char *text;
	int rc;
	const char *says;
} errors[] = {
	{ 1, "Internal Error", -EIO, "an internal error of the system" },
	{ 2, "Caused GPU Timeout Error (00000002:kIOGPUCommandBufferCallbackErrorTimeout)", -EIO,
	  "longer than the system allows" },
	{ 3, "Page fault", -EIO, "memory that is not the GPU's" },
	{ 4, "Access revoked", -ENODEV, "taken the GPU away" },
	{ 5, "Innocent victim", -EIO, "another process's failure" },
	{ 7, "Not permitted", -EIO, "may not use the GPU now" },
	{ 8, "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)", -ENOMEM,
	  "no memory left" },
	{ 9, "Invalid resource", -EIO, "a buffer was gone" },
	{ 10, "Memoryless", -EIO, "without backing" },
	{ 11, "Device removed", -ENODEV, "was removed" },
	{ 12, "Stack overflow", -EIO, "stack overflowed" },
	{ 14, "Impacting Interactivity", -EIO, "held up the display" },
	{ 77, "Something new", -EIO, "an error that has no name (error 77: Something new)" },
	/* Older systems hide the number in the text. */
	{ 1,
	  "Impacting Interactivity (0000000e:kIOGPUCommandBufferCallbackErrorImpactingInteractivity)",
	  -EIO, "held up the display" },
	{ 1,
	  "Ignored (for causing prior/excessive GPU errors) (00000004:kIOGPUCommandBufferCallback"
	  "ErrorSubmissionsIgnored)",
	  -ENODEV, "ignores this process" },
	{ 1, "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)", -ENOMEM,
	  "no memory left" },
};

static void test_errors(void **state)
{
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
		struct ig_error err = { 0 };
		struct probe p;
		open_probe(&p);
		probe_op(&p, "probe_add", 1.0f, PROBE_X, PROBE_Y);
		load_probe(&p);
		fake_machine.fail_commands = 1;
		fake_machine.error_code = errors[i].code;
		fake_machine.error_text = errors[i].text;
		must(probe_submit(&p, 0, 1, &err), &err);
		assert_int_equal(probe_wait(&p, 0, NULL, &err), errors[i].rc);
		assert_int_equal(err.code, errors[i].rc);
		says(&err, errors[i].says);
		says(&err, errors[i].text);
		says(&err, "GPU 'Software M1'");
		says(&err, "probe_add");
		if (errors[i].rc == -ENODEV) { /* for good */
			struct ig_gpu_buffer *b;
			assert_int_equal(probe_submit(&p, 0, 1, &err), -ENODEV);
			says(&err, "restart");
			assert_int_equal(
				ig_gpu_metal.alloc(p.device, 16, IG_GPU_MEMORY_PRIVATE, &b, &err),
				-ENODEV);
		} else { /* as if nothing had been */
			probe_write(&p, PROBE_X, 1.0f);
			run_step(&p, 0, 1);
			assert_true(probe_read(&p, PROBE_Y, 0) == 2.0f);
		}
		probe_close(&p);
	}
}

/* A failed step takes the one behind it along; the one before it has its results. */
static void test_steps_behind_a_failed_one(void **state)
{
	struct ig_error err = { 0 };
	const int32_t *ids;
	struct probe p;

	open_probe(&p);
	probe_ids(&p);
	load_probe(&p);
	fake_hold();
	must(probe_submit(&p, 0, 1, &err), &err);
	must(probe_submit(&p, 1, 1, &err), &err);
	fake_machine.fail_commands = 2;
	fake_machine.error_code = 8;
	fake_let_go();
	must(probe_wait(&p, 0, &ids, &err), &err);
	assert_int_equal(ids[0], 1);
	assert_int_equal(probe_wait(&p, 1, &ids, &err), -ENOMEM);
	assert_null(ids);
	run_step(&p, 0, 1);

	/* The failed one signals nothing, but the one behind it does: its value must not be
	 * taken for that of both. */
	fake_hold();
	must(probe_submit(&p, 0, 1, &err), &err);
	must(probe_submit(&p, 1, 1, &err), &err);
	fake_machine.fail_commands = 1;
	fake_machine.error_code = 2;
	fake_machine.lag_us = 20000;
	fake_let_go();
	assert_int_equal(probe_wait(&p, 0, &ids, &err), -EIO);
	assert_int_equal(probe_wait(&p, 1, &ids, &err), -EIO);
	says(&err, "the step before it failed");
	fake_machine.lag_us = 0;
	run_step(&p, 0, 1);
	probe_close(&p);
}

static void test_wait_has_a_deadline(void **state)
{
	struct ig_error err = { 0 };
	const int32_t *ids;
	const float *logits;
	struct probe p;

	open_probe(&p);
	probe_op(&p, "probe_add", 1.0f, PROBE_X, PROBE_Y);
	load_probe(&p);
	fake_machine.hang_commands = 1;
	must(probe_submit(&p, 0, 1, &err), &err);
	assert_int_equal(ig_gpu_metal.wait(p.program, 0, 120, &ids, &logits, &err), -ETIMEDOUT);
	says(&err, "made no progress with a step for 120 ms");
	assert_int_equal(ig_gpu_metal.wait(p.program, 0, 0, &ids, &logits, &err), -ETIMEDOUT);
	assert_int_equal(
		ig_gpu_metal.submit(p.program, &(struct ig_gpu_submission){ .slot = 0 }, &err),
		-EBUSY);
	fake_end_hang();
	must(probe_wait(&p, 0, NULL, &err), &err);
	assert_int_equal(probe_wait(&p, 0, NULL, &err), -EINVAL);
	run_step(&p, 0, 1);
	probe_close(&p);
}

/* A kernel that reads outside its buffer is the page fault of Apple's side. */
static void test_fault_in_a_kernel(void **state)
{
	const struct probe_args args = { .n = 256, .flags = PROBE_OUTSIDE };
	struct ig_error err = { 0 };
	struct probe p;

	open_probe(&p);
	struct ig_gpu_dispatch d = probe_dispatch(&p, "probe_add", &args, PROBE_X, PROBE_Y);
	d.args = &args;
	probe_emit(&p, &d);
	load_probe(&p);
	must(probe_submit(&p, 0, 1, &err), &err);
	assert_int_equal(probe_wait(&p, 0, NULL, &err), -EIO);
	says(&err, "memory that is not the GPU's");
	const char *report = fake_take_report();
	assert_non_null(report);
	assert_non_null(strstr(report, "out of bounds"));
	assert_non_null(strstr(report, "probe.metal"));
	probe_close(&p);
}

/* ---- steps in parts ------------------------------------------------------------------------------- */

/* A long step is cut into several command buffers, in order. */
static void test_cuts(void **state)
{
	struct ig_error err = { 0 };
	struct probe p;

	open_probe(&p);
	const struct probe_args args = { .n = PROBE_N, .a = 1.0f };
	for (int i = 0; i < 20; i++) {
		struct ig_gpu_dispatch d = probe_dispatch(&p, "probe_add", &args, i % 2, 1 - i % 2);
		d.grid[1] = (struct ig_gpu_extent){ IG_LIVE_LOOP_ROWS, 1, 1, 1 };
		probe_emit(&p, &d);
	}
	load_probe(&p);
	probe_write(&p, PROBE_X, 0.0f);
	uint32_t before = fake_count().committed;
	fake_machine.lag_us = 1000;
	run_step(&p, 0, 1);
	assert_int_equal(fake_count().committed - before, 5);
	assert_true(probe_read(&p, PROBE_X, 7) == 27.0f);

	/* One in the middle fails. */
	fake_machine.fail_commands = 3;
	fake_machine.error_code = 14;
	must(probe_submit(&p, 1, 1, &err), &err);
	assert_int_equal(probe_wait(&p, 1, NULL, &err), -EIO);
	says(&err, "part 3 of 5 of a step");
	fake_settle();

	/* One in the middle can't be begun: the step never was. */
	fake_machine.fail_encoder = 3;
	assert_int_equal(probe_submit(&p, 0, 1, &err), -ENOMEM);
	says(&err, "takes no more commands");
	assert_int_equal(probe_wait(&p, 0, NULL, &err), -EINVAL);
	probe_write(&p, PROBE_X, 0.0f);
	run_step(&p, 0, 1);
	assert_true(probe_read(&p, PROBE_X, 7) == 27.0f);
	probe_close(&p);
}

static void test_step_of_nothing(void **state)
{
	struct ig_error err = { 0 };
	struct ig_gpu_submission s = { .slot = 0 };
	struct probe p;

	open_probe(&p);
	probe_op(&p, "probe_add", 1.0f, PROBE_X, PROBE_Y);
	load_probe(&p);
	must(ig_gpu_metal.submit(p.program, &s, &err), &err); /* no live count: nothing runs */
	must(probe_wait(&p, 0, NULL, &err), &err);
	s.slot = IG_STEPS_IN_FLIGHT;
	assert_int_equal(ig_gpu_metal.submit(p.program, &s, &err), -EINVAL);
	s.slot = 0;
	s.step_bytes = p.step_bytes + 1;
	assert_int_equal(ig_gpu_metal.submit(p.program, &s, &err), -EINVAL);
	assert_null(ig_gpu_metal.staging(p.program, IG_STEPS_IN_FLIGHT));
	probe_close(&p);
}

/* A program that is destroyed waits for its steps; a step that was never waited for
 * leaves nothing behind. */
static void test_destroy_waits(void **state)
{
	struct ig_error err = { 0 };
	struct probe p;

	open_probe(&p);
	probe_op(&p, "probe_add", 1.0f, PROBE_X, PROBE_Y);
	load_probe(&p);
	fake_machine.lag_us = 30000;
	must(probe_submit(&p, 0, 1, &err), &err);
	must(probe_submit(&p, 1, 1, &err), &err);
	probe_close(&p);
}

/* ---- pipelines ------------------------------------------------------------------------------------- */

static int load_one(const char *kernel, struct ig_error *err)
{
	struct probe p;

	open_probe(&p);
	probe_op(&p, kernel, 1.0f, PROBE_X, PROBE_Y);
	int rc = probe_load(&p, err);
	assert_true(!rc == !!p.program);
	probe_close(&p);
	return rc;
}

static void test_pipeline_errors(void **state)
{
	struct ig_error err = { 0 };

	assert_int_equal(load_one("probe_nowhere", &err), -ENOTSUP);
	says(&err, "there is no kernel probe_nowhere in shaders probe");
	fake_machine.max_threads = 16;
	assert_int_equal(load_one("probe_add", &err), -ENOTSUP);
	says(&err,
	     "kernel probe_add: GPU 'Software M1' runs it with at most 16 threads, 32 are needed");
	fake_machine.max_threads = 1024;
	fake_machine.fail_pipeline = "probe_turn";
	assert_int_equal(load_one("probe_turn", &err), -EIO);
	says(&err, "kernel probe_turn: no pipeline: Compiler encountered an internal error");
	must(load_one("probe_add", &err), &err);
	fake_machine.fail_library = "probe_far";
	assert_int_equal(load_one("probe_add", &err), -EIO);
	says(&err, "shaders probe do not compile: program_source:7:3");
}

static void test_compile_options(void **state)
{
	struct ig_error err = { 0 };

	must(load_one("probe_add", &err), &err);
	assert_int_equal(fake_count().language, (3 << 16) + 1);
	assert_int_equal(fake_count().math_mode, 0);
	assert_int_equal(fake_count().math_functions, 1);
	fake_machine.macos = 14;
	must(load_one("probe_add", &err), &err);
	assert_int_equal(fake_count().fast_math, 0);
	assert_int_equal(fake_count().from_source, 2);
}

/* One library a file, one pipeline a kernel and number of threads, whoever asks. */
static void test_pipelines_are_shared(void **state)
{
	struct ig_error err = { 0 };
	struct ig_gpu_program *other;
	struct probe p;

	open_probe(&p);
	probe_op(&p, "probe_add", 1.0f, PROBE_X, PROBE_Y);
	probe_op(&p, "probe_add", 2.0f, PROBE_Y, PROBE_Z);
	probe_op(&p, "probe_scale", 2.0f, PROBE_X, PROBE_Y);
	load_probe(&p);
	must(ig_gpu_metal.program_create(p.device, p.tape, p.places, 64, &other, &err), &err);
	assert_int_equal(fake_count().pipelines, 2);
	assert_int_equal(fake_count().libraries, 1);
	ig_gpu_metal.program_destroy(other);
	ig_gpu_metal.program_destroy(NULL);
	probe_close(&p);
}

static void test_metallib(void **state)
{
	extern const struct ig_shader ig_shader_probe;
	struct ig_shader s = ig_shader_probe;
	struct ig_error err = { 0 };
	size_t n = strlen(s.source);
	uint8_t *lib = malloc(n + 4);

	assert_non_null(lib);
	memcpy(lib, "MTLB", 4);
	memcpy(lib + 4, s.source, n);
	s.metallib = lib;
	s.metallib_size = n + 4;
	for (int refuse = 0; refuse < 2; refuse++) {
		const struct probe_args args = { .n = PROBE_N, .a = 1.0f };
		struct probe p;
		fake_machine.refuse_metallib = refuse;
		open_probe(&p);
		struct ig_gpu_dispatch d = probe_dispatch(&p, "probe_add", &args, PROBE_X, PROBE_Y);
		d.shader = &s;
		probe_emit(&p, &d);
		load_probe(&p);
		probe_write(&p, PROBE_X, 1.0f);
		run_step(&p, 0, 1);
		assert_true(probe_read(&p, PROBE_Y, 0) == 2.0f);
		probe_close(&p);
		assert_int_equal(fake_count().from_data, 1);
		assert_int_equal(fake_count().from_source, refuse);
	}
	/* Neither: refused by name. */
	struct probe p;
	const struct probe_args args = { .n = PROBE_N };
	s.metallib = NULL;
	s.source = NULL;
	open_probe(&p);
	struct ig_gpu_dispatch d = probe_dispatch(&p, "probe_add", &args, PROBE_X, PROBE_Y);
	d.shader = &s;
	probe_emit(&p, &d);
	assert_int_equal(probe_load(&p, &err), -ENOTSUP);
	says(&err, "shaders probe were built without Metal source");
	probe_close(&p);
	free(lib);
}

/* ---- memory ------------------------------------------------------------------------------------------ */

static void test_allocation_fails(void **state)
{
	const struct ig_driver_options o = { .isa = "auto" };
	struct ig_gpu_buffer *b;
	struct ig_gpu_device *d;
	struct ig_error err = { 0 };

	fake_machine.max_buffer_bytes = 1 << 20;
	must(ig_gpu_metal.open(&o, &d, &err), &err);
	assert_int_equal(ig_gpu_metal.alloc(d, 2 << 20, IG_GPU_MEMORY_PRIVATE, &b, &err), -ENOMEM);
	says(&err, "a buffer of 2097152 bytes; GPU 'Software M1' allows 1048576");
	assert_int_equal(ig_gpu_metal.alloc(d, 0, IG_GPU_MEMORY_SLAB, &b, &err), -EINVAL);
	fake_machine.fail_buffer = 1;
	assert_int_equal(ig_gpu_metal.alloc(d, 4096, IG_GPU_MEMORY_SLAB, &b, &err), -ENOMEM);
	says(&err, "has no 4096 bytes left");
	fake_machine.fail_set = 1;
	assert_int_equal(ig_gpu_metal.alloc(d, 4096, IG_GPU_MEMORY_SLAB, &b, &err), -ENOMEM);
	says(&err, "no residency set for slabs");
	assert_null(b);
	must(ig_gpu_metal.alloc(d, 4096, IG_GPU_MEMORY_SLAB, &b, &err), &err);
	ig_gpu_metal.free(d, b);
	ig_gpu_metal.free(d, NULL);
	ig_gpu_metal.close(d);
}

/* Each allocation that loading makes may fail: an error, and what is left works. */
static void test_load_fails_at_every_allocation(void **state)
{
	struct ig_error err = { 0 };
	uint32_t i = 0;
	int rc;

	do {
		struct probe p;
		open_probe(&p);
		probe_op(&p, "probe_add", 1.0f, PROBE_X, PROBE_Y);
		probe_ids(&p);
		fake_machine.fail_buffer = ++i;
		rc = probe_load(&p, &err);
		fake_machine.fail_buffer = 0;
		if (rc)
			assert_int_equal(rc, -ENOMEM);
		else
			run_step(&p, 0, 1);
		probe_close(&p);
	} while (rc);
	assert_int_equal(i,
			 6); /* scratch, slab, ids, two staging areas; then none is left to fail */
}

static void test_sets_of_weights(void **state)
{
	const struct ig_driver_options o = { .isa = "auto" };
	struct ig_gpu_buffer *b[80];
	struct ig_gpu_device *d;
	struct ig_error err = { 0 };
	uint64_t page = (uint64_t)getpagesize();

	fake_machine.working_set_bytes = 64 * page; /* a set of weights takes 4 pages */
	must(ig_gpu_metal.open(&o, &d, &err), &err);
	char *map = mmap(NULL, 80 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < 8; i++)
		must(ig_gpu_metal.wrap(d, map + (uint64_t)i * page, page, &b[i], &err), &err);
	assert_int_equal(fake_count().sets, 2);
	for (int i = 8; i < 80; i++) /* 20 sets' worth: all fit below the queue's 32 */
		must(ig_gpu_metal.wrap(d, map + (uint64_t)i * page, page, &b[i], &err), &err);
	assert_int_equal(fake_count().sets, 20);
	for (int i = 0; i < 80; i++)
		ig_gpu_metal.free(d, b[i]);
	/* One that is too large for any set still has one. */
	must(ig_gpu_metal.wrap(d, map, 80 * page, &b[0], &err), &err);
	ig_gpu_metal.free(d, b[0]);
	munmap(map, 80 * page);
	ig_gpu_metal.close(d);
}

static void test_memory_stays_wired(void **state)
{
	struct probe p;

	for (uint32_t macos = 15; macos <= 26; macos += 11) {
		fake_machine.macos = macos;
		open_probe(&p);
		probe_op(&p, "probe_add", 1.0f, PROBE_X, PROBE_Y);
		load_probe(&p);
		uint32_t before = fake_count().requests;
		run_step(&p, 0, 1);
		usleep(600000);
		uint32_t asked = fake_count().requests - before;
		assert_true(asked >= 1);
		if (macos == 26)
			assert_true(asked > 20); /* every 5 ms, two sets */
		probe_close(&p);
	}
}

/* How long memory stays wired is an option, and macOS 15 is told when it need not any more; then a
 * step wires it again. */
static void test_memory_is_unwired(void **state)
{
	const uint32_t keep_ms[] = { 100, 0, 180000 };
	struct probe p;

	for (size_t i = 0; i < sizeof keep_ms / sizeof *keep_ms; i++) {
		probe_keep_wired_ms = keep_ms[i];
		open_probe(&p);
		probe_op(&p, "probe_add", 1.0f, PROBE_X, PROBE_Y);
		load_probe(&p);
		uint32_t n_sets = fake_count().sets;
		assert_true(n_sets >= 1);
		for (uint32_t step = 0; step < 3; step++) {
			/* before that a step may find it wired still, and ask for nothing */
			for (int ms = 0; keep_ms[i] == 100 && fake_count().wired && ms < 10000;
			     ms++)
				usleep(1000);
			uint32_t asked = fake_count().requests;
			run_step(&p, 0, 1);
			if (keep_ms[i] != 100)
				continue;
			for (int ms = 0; fake_count().requests <= asked && ms < 10000; ms++)
				usleep(1000);
			assert_true(fake_count().requests > asked);
			for (int ms = 0; fake_count().wired && ms < 10000; ms++)
				usleep(1000);
			assert_int_equal(fake_count().wired, 0);
		}
		assert_int_equal(fake_count().wired, keep_ms[i] == 180000 ? n_sets : 0);
		if (!keep_ms[i])
			assert_int_equal(fake_count().requests, 0);
		probe_close(&p);
		fake_settle();
		fake_reset();
	}
}

static void note_bytes(void *ctx, uint64_t n_bytes)
{
	uint64_t *noted = ctx; /* [0] so many times, the last with [1] bytes */

	noted[0]++;
	noted[1] = n_bytes;
}

/* Who watches is told at once, not at the next step. */
static void test_pressure_is_told(void **state)
{
	const struct ig_driver_options o = { .isa = "auto" };
	struct ig_gpu_device *d;
	struct ig_error err = { 0 };
	uint64_t noted[2] = { 0, 1 };

	fake_machine.working_set_bytes = (uint64_t)8 << 30;
	must(ig_gpu_metal.open(&o, &d, &err), &err);
	fake_memory_pressure(DISPATCH_MEMORYPRESSURE_WARN);
	ig_gpu_metal.watch_memory(d, note_bytes, noted);
	assert_true(noted[0] == 0);
	fake_memory_pressure(DISPATCH_MEMORYPRESSURE_CRITICAL);
	assert_true(noted[0] == 1 && noted[1] == (uint64_t)2 << 30);
	fake_memory_pressure(DISPATCH_MEMORYPRESSURE_NORMAL);
	assert_true(noted[0] == 2 && noted[1] == 0);
	ig_gpu_metal.watch_memory(d, NULL, NULL);
	fake_memory_pressure(DISPATCH_MEMORYPRESSURE_WARN);
	assert_true(noted[0] == 2);
	ig_gpu_metal.close(d);
}

static void test_pressure(void **state)
{
	const struct ig_driver_options o = { .isa = "auto" };
	struct ig_gpu_device *d;
	struct ig_error err = { 0 };
	uint64_t set = (uint64_t)8 << 30;

	fake_machine.working_set_bytes = set;
	must(ig_gpu_metal.open(&o, &d, &err), &err);
	assert_true(ig_gpu_metal.pressure(d) == 0);
	fake_memory_pressure(DISPATCH_MEMORYPRESSURE_WARN);
	assert_true(ig_gpu_metal.pressure(d) == set / 8);
	assert_true(ig_gpu_metal.pressure(d) == 0); /* answered */
	fake_memory_pressure(DISPATCH_MEMORYPRESSURE_CRITICAL);
	assert_true(ig_gpu_metal.pressure(d) == set / 4);
	fake_memory_pressure(DISPATCH_MEMORYPRESSURE_WARN);
	fake_memory_pressure(DISPATCH_MEMORYPRESSURE_NORMAL);
	assert_true(ig_gpu_metal.pressure(d) == 0); /* it passed */
	fake_machine.allocated_bytes = set + (1 << 30);
	assert_true(ig_gpu_metal.pressure(d) >= 1 << 30);
	ig_gpu_metal.close(d);
	fake_memory_pressure(DISPATCH_MEMORYPRESSURE_WARN); /* nobody listens any more */
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(test_runs_a_tape),
		TEST(test_binds_once),
		TEST(test_ids_of_two_steps),
		TEST(test_operand_left_out),
		TEST(test_slabs_are_resident),
		TEST(test_views_of_a_file),
		TEST(test_choice),
		TEST(test_facts),
		TEST(test_open_fails),
		TEST(test_errors),
		TEST(test_steps_behind_a_failed_one),
		TEST(test_wait_has_a_deadline),
		TEST(test_fault_in_a_kernel),
		TEST(test_cuts),
		TEST(test_step_of_nothing),
		TEST(test_destroy_waits),
		TEST(test_pipeline_errors),
		TEST(test_compile_options),
		TEST(test_pipelines_are_shared),
		TEST(test_metallib),
		TEST(test_allocation_fails),
		TEST(test_load_fails_at_every_allocation),
		TEST(test_sets_of_weights),
		TEST(test_memory_stays_wired),
		TEST(test_memory_is_unwired),
		TEST(test_pressure),
		TEST(test_pressure_is_told),
	};

	return cmocka_run_group_tests_name("metal device", tests, NULL, NULL);
}
