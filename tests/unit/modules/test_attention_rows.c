/*
 * test_attention_rows.c: the ops without a cache, rope_rows and attention_rows: every kernel against the
 * reference over windows, directions and lengths, with equal bits on every instruction set, unit by unit,
 * and alone as beside other texts; shapes that are refused.
 */
#include "attention_rows_case.h"
#include "tests/emulated.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static const uint32_t isas[] = { IG_ISA_GENERIC, IG_ISA_AVX2, IG_ISA_AVX512 };

/* Text i alone has the bits that it has in `all`. */
static void check_alone(const struct rows_case *c, const struct ig_cpu_kernel *k, int32_t i,
			const struct guarded *all)
{
	struct ig_op_launch launch;
	struct guarded one;
	static struct rows_step step;

	guarded_create(&one, c->lens[i], c->n_cols);
	rows_case_launch(c, i, 1, &one, &step, &launch);
	world_run(k, &launch, 0);
	guarded_check(&one);
	rows_expect_same(all, rows_case_first(c, i), &one, c->lens[i]);
	guarded_destroy(&one);
}

static void check_isa(const struct rows_case *c, const char *what, const struct ig_cpu_kernel *k,
		      const struct guarded *want, struct guarded *got)
{
	struct ig_op_launch launch;
	struct guarded other;
	static struct rows_step step;

	rows_case_launch(c, 0, c->n_texts, got, &step, &launch);
	world_run(k, &launch, 0);
	guarded_check(got);
	double most = rows_difference(got, want);
	if (!(most <= 1e-5))
		fail_msg("%s, %s: a difference of %g", what, world_isa_name(k->isa), most);
	if (!cuts_are_tested(k))
		return;
	guarded_create(&other, c->n_rows, c->n_cols);
	launch.out[0] = other.t;
	world_run(k, &launch, 1);
	rows_expect_same(&other, 0, got, c->n_rows);
	guarded_destroy(&other);
	for (int32_t i = 0; i < c->n_texts; i++)
		check_alone(c, k, i, got);
}

static void test_cases(void **state)
{
	for (size_t s = 0; s < n_rows_cases; s++) {
		struct guarded want, got, first = { 0 };
		struct ig_op_launch launch;
		static struct rows_step step;
		struct rows_case c;
		char what[40];

		rows_case_open(&c, s);
		snprintf(what, sizeof what, "case %zu of %s", s, c.op->name);
		guarded_create(&want, c.n_rows, c.n_cols);
		rows_case_launch(&c, 0, c.n_texts, &want, &step, &launch);
		c.op->reference(&launch);
		for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
			const struct ig_cpu_kernel *k = world_kernel(c.op, isas[i]);
			if (!k)
				continue;
			guarded_create(&got, c.n_rows, c.n_cols);
			check_isa(&c, what, k, &want, &got);
			if (!first.bytes) {
				first = got;
				continue;
			}
			rows_expect_same(&first, 0, &got, c.n_rows);
			guarded_destroy(&got);
		}
		guarded_destroy(&first);
		guarded_destroy(&want);
		rows_case_close(&c);
	}
}

/* Values are as they were, whatever they are. */
static void test_values(void **state)
{
	for (size_t s = 0; s < n_rows_cases; s++) {
		struct ig_op_launch launch;
		static struct rows_step step;
		struct guarded got;
		struct rows_case c;

		rows_case_open(&c, s);
		const struct ig_rope_kv_params *p = c.params;
		if (!strcmp(c.op->name, "rope_rows")) {
			const int64_t at = (int64_t)(p->n_heads + p->n_kv_heads) * p->head_dim;
			guarded_row(&c.in[0], 3)[at + 1] = NAN;
			guarded_create(&got, c.n_rows, c.n_cols);
			rows_case_launch(&c, 0, c.n_texts, &got, &step, &launch);
			world_run(world_kernel(c.op, IG_ISA_GENERIC), &launch, 1);
			for (int64_t r = 0; r < c.n_rows; r++)
				assert_memory_equal(guarded_row(&got, r) + at,
						    guarded_row(&c.in[0], r) + at,
						    (size_t)(p->n_kv_heads * p->head_dim) * 4);
			guarded_destroy(&got);
		}
		rows_case_close(&c);
	}
}

static void refused(const char *name, const void *params, int64_t n_cols, uint32_t row_class,
		    const char *text)
{
	struct ig_op_shape s = { .struct_size = sizeof s,
				 .n_in = 1,
				 .n_out = 1,
				 .params = params,
				 .in = { { 0, n_cols, IG_F32, row_class } } };
	struct ig_error err = { 0 };

	assert_int_equal(world_op(name)->check(&s, &err), -EINVAL);
	if (!strstr(err.text, text))
		fail_msg("wanted '%s' in: %s", text, err.text);
}

static void test_refused(void **state)
{
	const struct ig_attention_rows_params good = { sizeof good,	 4, 2, 16, 0.25f,
						       IG_ATTENTION_ALL, 0 };
	struct ig_attention_rows_params p = good;
	struct ig_rope_kv_params rope = {
		.struct_size = sizeof rope, .n_heads = 4, .n_kv_heads = 2, .head_dim = 16
	};

	refused("attention_rows", &p, 127, IG_ROWS_TOKENS, "127 columns");
	refused("attention_rows", &p, 128, IG_ROWS_LOGITS, "one row a token");
	p.head_dim = 12;
	refused("attention_rows", &p, 96, IG_ROWS_TOKENS, "head_dim is 12");
	p = good;
	p.n_kv_heads = 3;
	refused("attention_rows", &p, 160, IG_ROWS_TOKENS, "do not share");
	p = good;
	p.scale = NAN;
	refused("attention_rows", &p, 128, IG_ROWS_TOKENS, "scale");
	rope.layer = 1;
	refused("rope_rows", &rope, 128, IG_ROWS_TOKENS, "it has none of these");
	rope.layer = 0;
	refused("rope_rows", &rope, 100, IG_ROWS_TOKENS, "rope_rows, as rope_kv");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cases),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests_name("attention_rows", tests, NULL, NULL);
}
