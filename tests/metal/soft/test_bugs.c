/*
 * test_bugs.c: the table of planted bugs (bugs.metal, built with --checked): each must
 * be reported in the expected words, and where it stands; each sound twin must pass.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bugs_args.h"
#include "soft.h"

#define N 128

struct bug {
	const char *kernel;
	const char *words; /* NULL: sound; "NaN": no report, but NaN comes out */
};

static const struct bug bugs[] = {
	{ "sound_barrier", NULL },
	{ "bug_no_barrier", "race: writes threadgroup byte 4, which thread 0 read" },
	{ "bug_wrong_flags", "race: reads threadgroup byte 0, which thread 0 wrote" },
	{ "bug_no_flags", "race: reads threadgroup byte" },
	{ "bug_simdgroup_barrier", "race: writes threadgroup byte" },
	{ "sound_simdgroup_barrier", NULL },
	{ "bug_sum_as_barrier", "race: reads threadgroup byte" },
	{ "bug_reuse", "race: writes threadgroup byte" },
	{ "sound_reuse", NULL },
	{ "sound_two_halves", NULL },
	{ "bug_two_writers", "race: writes threadgroup byte" },
	{ "sound_atomic", NULL },
	{ "bug_atomic_mixed", "race: " },
	{ "sound_bytes", NULL },
	{ "bug_bytes", "race: writes threadgroup byte 1, which thread 0 read" },
	{ "bug_byte_of_word", "race: reads threadgroup byte 3, which thread 0 wrote" },
	{ "bug_word_of_bytes", "race: writes threadgroup byte 1, which thread 0 read" },
	{ "bug_matrix_race", "race: writes threadgroup byte" },
	{ "bug_divergent_barrier", "divergence: 40 threads wait at threadgroup_barrier" },
	{ "bug_early_return", "divergence: 100 threads wait at threadgroup_barrier" },
	{ "bug_two_barriers", "divergence: at the threadgroup_barrier of line" },
	{ "bug_loop_barrier", "divergence: 32 threads wait at threadgroup_barrier" },
	{ "bug_divergent_sum", "divergence: 16 lanes of simdgroup 0 wait in simd_sum" },
	{ "bug_sum_after_return", "divergence: 31 lanes of simdgroup 0 wait in simd_sum" },
	{ "sound_sum", NULL },
	{ "bug_shuffle_lane", "simd_shuffle from lane 32" },
	{ "bug_read_past", "out of bounds: reads 4 bytes at 512 of buffer 1, which has 512" },
	{ "bug_write_past", "out of bounds: writes 4 bytes at 16384 of buffer 2, which has 512" },
	{ "bug_vector_past", "out of bounds: writes 16 bytes at 512 of buffer 2, which has 512" },
	{ "bug_misaligned", "misaligned: reads 16 bytes" },
	{ "sound_packed", NULL },
	{ "bug_threadgroup_past", "of threadgroup memory, which has 1024" },
	{ "bug_struct_past", "out of bounds: reads" },
	{ "bug_write_const", "writes to buffer 1, which the kernel declares const" },
	{ "bug_atomic_past", "out of bounds: writes 4 bytes at 512 of buffer 2, which has 512" },
	{ "bug_local_past", "out of bounds: reads 4 bytes" },
	{ "bug_unregistered", "out of bounds: reads 4 bytes" },
	{ "sound_registered", NULL },
	{ "bug_unwritten", "NaN" },
	{ "bug_too_many_threads", "128 threads in a threadgroup, at most 64" },
};
#define N_BUGS (sizeof bugs / sizeof *bugs)

/* Each array is followed by memory of nobody's, in this order. */
static float memory[8][64 * N];
static float *const x = memory[0], *const y = memory[1], *const slab = memory[2],
		    *const foreign = memory[3];
static float *slabs[2] = { memory[2], memory[3] };
#define BYTES (N * sizeof(float))

static void prepare(struct soft_dispatch *d, struct bug_args *args, const char *kernel)
{
	memset(d, 0, sizeof *d);
	for (int i = 0; i < N; i++) {
		x[i] = (float)(i + 1);
		y[i] = 0;
	}
	*args = (struct bug_args){ N, 3 };
	d->kernel = soft_find_kernel(NULL, kernel);
	assert_non_null(d->kernel);
	assert_true(d->kernel->shader->checked);
	d->groups[0] = d->groups[1] = d->groups[2] = 1;
	d->threads[0] = N;
	d->threads[1] = d->threads[2] = 1;
	d->threadgroup_bytes = 2 * N * sizeof(float);
	d->buffer[0] = (struct soft_binding){ args, sizeof *args };
	d->buffer[1] = (struct soft_binding){ x, BYTES };
	d->buffer[2] = (struct soft_binding){ y, BYTES };
}

static void run_bug(void **state)
{
	const struct bug *b = *state;
	struct soft_dispatch d;
	struct soft_report report;
	struct bug_args args;
	bool nan = false;
	int rc;

	prepare(&d, &args, b->kernel);
	if (strstr(b->kernel, "registered"))
		d.buffer[1] = (struct soft_binding){ slabs, sizeof slabs };
	rc = soft_run(&d, &report);
	for (int i = 0; i < N; i++)
		nan |= isnan(y[i]);
	if (rc)
		print_message("# %s\n", report.text);
	if (!b->words || strcmp(b->words, "NaN") == 0) {
		assert_int_equal(rc, 0);
		assert_int_equal(nan, b->words != NULL);
		return;
	}
	assert_int_equal(rc, strstr(b->words, "at most") ? -EINVAL : -EFAULT);
	assert_non_null(strstr(report.text, b->words));
	assert_int_equal(strncmp(report.text, b->kernel, strlen(b->kernel)), 0);
	if (rc == -EFAULT && report.where[0])
		assert_int_equal(strncmp(report.where, "bugs.metal:", 11), 0);
}

/* After all those kernels that were stopped half-way, the device still works. */
static void still_works(void **state)
{
	struct soft_dispatch d;
	struct soft_report report;
	struct bug_args args;

	(void)state;
	for (int i = 0; i < 50; i++) {
		prepare(&d, &args, i % 2 ? "bug_no_barrier" : "sound_barrier");
		d.groups[0] = 1;
		assert_int_equal(soft_run(&d, &report), i % 2 ? -EFAULT : 0);
	}
	for (int i = 0; i < N; i++)
		x[i] = y[i];
	prepare(&d, &args, "sound_barrier");
	assert_int_equal(soft_run(&d, &report), 0);
	for (int i = 0; i < N; i++)
		assert_true(y[i] == x[(i + 1) % N]);
}

static void refused(void **state)
{
	static const char *const words[] = {
		"a grid of zero",	    "a grid of zero",
		"buffer 1 is not bound",    "buffer 0 has 4 bytes, the kernel's struct 8",
		"not a multiple of 16",	    "bytes of threadgroup memory, at most 32768",
		"needs threadgroup memory", "threads in a threadgroup, at most 1024",
		"not aligned to 4",
	};
	struct soft_dispatch d;
	struct soft_report report;
	struct bug_args args;

	(void)state;
	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		prepare(&d, &args, "sound_barrier");
		switch (i) {
		case 0: d.groups[1] = 0; break;
		case 1: d.threads[0] = 0; break;
		case 2: d.buffer[1].base = NULL; break;
		case 3: d.buffer[0].n_bytes = 4; break;
		case 4: d.threadgroup_bytes = 1000; break;
		case 5: d.threadgroup_bytes = 32784; break;
		case 6: d.threadgroup_bytes = 0; break;
		case 7: d.threads[1] = 9; break;
		case 8: d.buffer[2].base = (char *)d.buffer[2].base + 2; break;
		}
		assert_int_equal(soft_run(&d, &report), -EINVAL);
		assert_non_null(strstr(report.text, words[i]));
	}
}

/* What the registration says of a range counts from the next dispatch on. */
static void ranges(void **state)
{
	struct soft_dispatch d;
	struct soft_report report;
	struct bug_args args;

	(void)state;
	assert_int_equal(soft_register_range(slab + 4, 16), -EINVAL); /* overlaps */
	assert_int_equal(soft_register_range(slab, 0), -EINVAL);
	assert_int_equal(soft_unregister_range(slab + 1), -ENOENT);
	for (int i = 0; i < 4; i++) {
		prepare(&d, &args, i % 2 ? "sound_registered" : "bug_unregistered");
		d.buffer[1] = (struct soft_binding){ slabs, sizeof slabs };
		if (i == 2) {
			assert_int_equal(soft_register_range(foreign, BYTES), 0);
			assert_int_equal(soft_unregister_range(slab), 0);
		}
		assert_int_equal(soft_run(&d, &report), i == 0 || i == 3 ? -EFAULT : 0);
	}
	assert_int_equal(soft_unregister_range(foreign), 0);
	assert_int_equal(soft_register_range(slab, BYTES), 0);
}

static int start(void **state)
{
	(void)state;
	return soft_start(2) || soft_register_range(slab, BYTES);
}

int main(void)
{
	struct CMUnitTest tests[N_BUGS + 3];

	for (size_t i = 0; i < N_BUGS; i++)
		tests[i] = (struct CMUnitTest){ bugs[i].kernel, run_bug, NULL, NULL,
						(void *)&bugs[i] };
	tests[N_BUGS] = (struct CMUnitTest)cmocka_unit_test(still_works);
	tests[N_BUGS + 1] = (struct CMUnitTest)cmocka_unit_test(refused);
	tests[N_BUGS + 2] = (struct CMUnitTest)cmocka_unit_test(ranges);
	return _cmocka_run_group_tests("planted bugs", tests, N_BUGS + 3, start, NULL);
}
