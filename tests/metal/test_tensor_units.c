/*
 * test_tensor_units.c: when the driver metal uses a GPU's tensor units: the double plays GPUs that have them, that have
 * not, and some whose units are not what they should be.
 */
#include "runtime/gpu/device.h"
#include "tests/metal/fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

static int set_up(void **state)
{
	fake_reset();
	fake_play_m5();
	return 0;
}

static int tear_down(void **state)
{
	const char *report = fake_take_report();

	if (report)
		print_error("%s\n", report);
	return report != NULL;
}

/* Whether a device that is opened now uses them. */
static bool uses(const struct ig_driver_options *o)
{
	struct ig_gpu_device *d;
	struct ig_error err = { 0 };

	if (ig_gpu_metal.open(o, &d, &err))
		fail_msg("%s", err.text);
	const bool used = ig_gpu_metal.facts(d)->tensor_units;
	ig_gpu_metal.close(d);
	fake_settle();
	return used;
}

static const struct ig_driver_options plain = { .isa = "auto" };

static void test_an_m5(void **state)
{
	assert_true(uses(&plain));
	assert_int_equal(fake_count().language, 4 << 16);
	assert_int_equal(fake_count().math_mode, 0);
	assert_int_equal(fake_count().from_source, 1);
	assert_int_equal(fake_count().dispatches, 4); /* few and many rows, of two types */
	assert_int_equal(fake_count().libraries, 0);  /* nothing stays */
	assert_int_equal(fake_count().buffers, 0);
}

static void test_options(void **state)
{
	assert_true(uses(&(struct ig_driver_options){ .tensor_units = "auto" }));
	assert_false(uses(&(struct ig_driver_options){ .tensor_units = "never" }));
	assert_false(uses(&(struct ig_driver_options){ .repack = "always" }));
	assert_true(uses(&(struct ig_driver_options){ .repack = "never" }));
}

/* GPUs without them are asked for nothing. */
static void test_others(void **state)
{
	static const struct {
		uint32_t family, macos;
		const char *architecture;
		bool has;
	} gpus[] = {
		{ 10, 26, "applegpu_g17g", true },  /* M5 */
		{ 10, 26, "applegpu_g17d", true },  /* an Ultra's letter */
		{ 10, 27, "applegpu_g18s", true },  /* a later one */
		{ 11, 27, "applegpu_g101c", true }, /* much later */
		{ 10, 26, "applegpu_g18p", true },  /* A19 */
		{ 9, 26, "applegpu_g16s", false },  /* M4 */
		{ 9, 26, "applegpu_g17p", false },  /* A18 Pro: the M5's generation, without */
		{ 10, 26, "applegpu_g17p", false },
		{ 10, 15, "applegpu_g17s", false }, /* before Metal 4 */
		{ 10, 26, "applegpu", false },
		{ 10, 26, "applegpu_gs", false },
		{ 10, 26, NULL, false },
	};

	for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
		fake_reset();
		fake_machine.family = gpus[i].family;
		fake_machine.macos = gpus[i].macos;
		fake_machine.architecture = gpus[i].architecture;
		if (uses(&plain) != gpus[i].has)
			fail_msg("%s of family %u with macOS %u", gpus[i].architecture,
				 gpus[i].family, gpus[i].macos);
		assert_int_equal(fake_count().from_source, gpus[i].has);
	}
}

/* A compiler that does not know them, a kernel that cannot run, a GPU that fails: the device is opened without. */
static void test_failures(void **state)
{
	fake_machine.fail_library = "#define TILE_TENSOR";
	assert_false(uses(&plain));
	fake_machine.fail_library = NULL;
	fake_machine.fail_pipeline = "probe_tensor_tile_bf16";
	assert_false(uses(&plain));
	fake_machine.fail_pipeline = NULL;
	fake_machine.max_threads = 64;
	assert_false(uses(&plain));
	fake_machine.max_threads = 1024;
	fake_machine.fail_commands = 2; /* the first one tries the queue out */
	fake_machine.error_code = 2;
	fake_machine.error_text = "Caused GPU Timeout Error";
	assert_false(uses(&plain));
	fake_machine.fail_buffer = 2; /* the first one is the device's */
	assert_false(uses(&plain));
	fake_machine.fail_encoder = 2; /* the first one is that of the device's trial */
	assert_false(uses(&plain));
	assert_true(uses(&plain));
	assert_int_equal(fake_count().libraries, 0);
	assert_int_equal(fake_count().buffers, 0);
}

/* A wrong result, and one that is right but not that of few rows. */
static void test_wrong_results(void **state)
{
	static const char *const kernels[] = { "probe_tensor_few_f16", "probe_tensor_tile_f16",
					       "probe_tensor_few_bf16", "probe_tensor_tile_bf16" };

	for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
		for (uint32_t bit = 0; bit <= 22; bit += 22) {
			fake_machine.wrong_kernel = kernels[i];
			fake_machine.wrong_bit = bit;
			if (uses(&plain))
				fail_msg("bit %u of %s", bit, kernels[i]);
		}
	}
	fake_machine.wrong_kernel = NULL;
	assert_true(uses(&plain));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_an_m5),    TEST(test_options),       TEST(test_others),
		TEST(test_failures), TEST(test_wrong_results),
	};
	return cmocka_run_group_tests_name("tensor units", tests, NULL, NULL);
}
