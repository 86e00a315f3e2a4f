/*
 * test_parts.c: into how many parts a step is cut: on made-up devices, whose steps take what the pipeline would, the sum
 * is close to that of the best number, whatever the device.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "runtime/machines/parts.h"

#include <stdint.h>

/* What a part takes, in milliseconds: once, for each row, and more from a number of rows. */
struct device {
	const char *name;
	double once, row, from, more;
};

static const struct device processor = { "a slow processor", 31, 28, 1e9, 0 };
static const struct device gpu = { "a GPU", 12, 0.026, 16, 3 };
static const struct device free_rows = { "rows for nothing", 5, 0, 1e9, 0 };

static double part_ms(const struct device *d, double n_rows)
{
	return d->once + d->row * n_rows + (n_rows > d->from ? d->more : 0);
}

/* A step in parts of so many rows: all ranks but the first wait for the first part. */
static double step_ms(const struct device *d, uint32_t n_rows, uint32_t rows, uint32_t n_ranks)
{
	double ms = (n_ranks - 1) * part_ms(d, rows);

	for (uint32_t first = 0; first < n_rows; first += rows)
		ms += part_ms(d, first + rows < n_rows ? rows : n_rows - first);
	return ms;
}

static double best_ms(const struct device *d, uint32_t n_rows, uint32_t n_ranks)
{
	double best = step_ms(d, n_rows, n_rows, n_ranks);

	for (uint32_t rows = 1; rows < n_rows; rows++) {
		const double ms = step_ms(d, n_rows, rows, n_ranks);
		best = ms < best ? ms : best;
	}
	return best;
}

/* What n steps take beside the best; the first part of all is that of a cold start. */
static double run(struct ig_parts *p, const struct device *d, uint32_t n_rows, uint32_t n_ranks,
		  uint32_t n)
{
	double ms = 0;

	for (uint32_t i = 0; i < n; i++) {
		const uint32_t rows = ig_parts_choose(p, n_rows, n_ranks);
		assert_in_range(rows, 1, n_rows);
		ms += step_ms(d, n_rows, rows, n_ranks);
		for (uint32_t first = 0; first < n_rows; first += rows) {
			const uint32_t left = n_rows - first, now = left < rows ? left : rows;
			ig_parts_measure(p, now,
					 part_ms(d, now) * (p->n_steps == 1 ? 50 : 1) * 1e6);
		}
	}
	return ms / n / best_ms(d, n_rows, n_ranks);
}

static void test_nothing_is_known(void **state)
{
	struct ig_parts p = { 0 };

	assert_int_equal(ig_parts_choose(&p, 1, 2), 1);
	assert_int_equal(ig_parts_choose(&p, 15, 2), 15);
	assert_int_equal(ig_parts_choose(&p, 16, 2), 8);
	assert_int_equal(ig_parts_choose(&p, 512, 2), 128);
	assert_int_equal(ig_parts_choose(&p, 512, 4), 64);
}

static void test_what_is_measured_decides(void **state)
{
	const struct device *devices[] = { &processor, &gpu, &free_rows };
	const uint32_t rows[] = { 1, 4, 16, 100, 512 };

	for (size_t d = 0; d < 3; d++) {
		for (uint32_t n_ranks = 2; n_ranks <= 4; n_ranks++) {
			for (size_t i = 0; i < 5; i++) {
				struct ig_parts p = { 0 };
				run(&p, devices[d], rows[i], n_ranks, 200);
				const double times = run(&p, devices[d], rows[i], n_ranks, 200);
				if (times > 1.1)
					fail_msg("%s, %u rows on %u ranks: %.3f times the best",
						 devices[d]->name, rows[i], n_ranks, times);
			}
		}
	}
}

/* Prompts and streams in turn, as a daemon has them, and one struct for both. */
static void test_steps_of_several_sizes(void **state)
{
	const struct device *devices[] = { &processor, &gpu };

	for (size_t d = 0; d < 2; d++) {
		struct ig_parts p = { 0 };
		for (uint32_t i = 0; i < 20; i++) {
			run(&p, devices[d], 512, 2, 3);
			run(&p, devices[d], 1 + i, 2, 20);
		}
		assert_true(run(&p, devices[d], 16, 2, 100) < 1.1);
		assert_true(run(&p, devices[d], 512, 2, 100) < 1.1);
	}
}

/* The device becomes another one: its fan fails, or another program goes. */
static void test_it_changes(void **state)
{
	struct ig_parts p = { 0 };

	run(&p, &gpu, 16, 2, 300);
	run(&p, &processor, 16, 2, 1500);
	assert_true(run(&p, &processor, 16, 2, 300) < 1.1);
	run(&p, &gpu, 16, 2, 1500);
	assert_true(run(&p, &gpu, 16, 2, 300) < 1.1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_is_known),
		cmocka_unit_test(test_what_is_measured_decides),
		cmocka_unit_test(test_steps_of_several_sizes),
		cmocka_unit_test(test_it_changes),
	};

	return cmocka_run_group_tests_name("parts of a step", tests, NULL, NULL);
}
