/*
 * test_heads.c: the op linear_heads on the CPU: every kernel gives each head the bits that linear's kernel
 * gives its columns alone, however units and rows are cut up, and writes nothing else; what is passed on
 * stays as it is; the reference by its definition; what is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/formats/checkpoint.h"
#include "ops/op_private.h"
#include "runtime/cpu/isa.h"
#include "tests/emulated.h"
#include "tests/ops/cases.h"
#include "tests/ops/heads_case.h"

#include <math.h>
#include <string.h>

static void *must(void *p)
{
	if (!p)
		abort();
	return p;
}

static void *aligned(uint64_t bytes)
{
	return must(aligned_alloc(64, ((size_t)bytes + 127) & ~(size_t)63));
}

/* n rows of k floats, `stride` bytes apart, in a layout; the caller frees them. */
static struct ig_tensor in_layout(const float *x, int32_t n, int64_t k, int64_t stride,
				  uint32_t layout)
{
	struct ig_op_launch c = { .n_in = 1, .n_out = 1 };

	c.in[0] = (struct ig_tensor){ (void *)(uintptr_t)x, n, k, stride, IG_F32, IG_LAYOUT_ROWS };
	c.out[0] = c.in[0];
	if (layout == IG_LAYOUT_ROWS)
		return c.out[0];
	c.out[0].row_stride = (int64_t)ig_layout_row_bytes(layout, k);
	c.out[0].layout = layout;
	c.out[0].data = aligned((uint64_t)(n * c.out[0].row_stride));
	if (layout == IG_LAYOUT_Q8)
		ig_pack_q8_generic(&c, 0, n, NULL);
	else
		ig_pack_bf16_generic(&c, 0, n, NULL);
	return c.out[0];
}

/* What linear's kernel gives each head's columns, and what is passed on. */
static void expect(const struct heads_case *c, const struct ig_cpu_kernel *inner,
		   const uint8_t *tiles, float *y)
{
	static const struct ig_linear_params params = { sizeof params, 1, IG_ACT_NONE, 0 };
	const struct heads_shape *s = c->s;
	const int64_t tile = (int64_t)ig_tile16_tile_bytes(s->dtype, s->k);

	for (int64_t h = 0; h < s->n_heads; h++) {
		const float *x = c->x + h * (s->k + s->n_rest);
		struct ig_op_launch l = { .struct_size = sizeof l,
					  .n_in = 1,
					  .n_weights = 1,
					  .n_out = 1,
					  .params = &params,
					  .kernel = inner };
		float *to = y + h * (s->m + s->n_rest);

		l.in[0] = in_layout(x, s->rows, s->k, c->x_cols * 4, inner->in_layout);
		l.weight[0] = (struct ig_tensor){ (void *)(uintptr_t)(tiles + h * s->m / 16 * tile),
						  s->m,
						  s->k,
						  0,
						  s->dtype,
						  IG_LAYOUT_TILE16 };
		l.out[0] = (struct ig_tensor){ to,     s->rows,	      s->m, c->y_cols * 4,
					       IG_F32, IG_LAYOUT_ROWS };
		inner->run(&l, 0, inner->n_units(&l), NULL);
		for (int32_t r = 0; r < s->rows; r++)
			memcpy(to + s->m + r * c->y_cols, x + s->k + r * c->x_cols,
			       s->n_rest * sizeof *to);
		if (inner->in_layout != IG_LAYOUT_ROWS)
			free(l.in[0].data);
	}
}

enum cut { WHOLE, UNITS, ROWS };

/* The kernel's result in y; a row has a guard behind it. */
static void run(const struct heads_case *c, const struct ig_cpu_kernel *k, void *tiles,
		enum cut cut, float *y)
{
	const int64_t stride = c->y_cols + 16, n = (stride * c->s->rows + 16) * 4;
	const struct ig_tensor x =
		in_layout(c->x, c->s->rows, c->x_cols, c->x_cols * 4, k->in_layout);
	uint8_t *out = aligned((uint64_t)n);
	struct ig_op_launch l;
	struct ig_step step;

	memset(out, 0xa5, (size_t)n);
	for (int32_t r = 0; r < (cut == ROWS ? c->s->rows : 1); r++) {
		heads_launch(c, r, cut == ROWS ? 1 : c->s->rows, (float *)(void *)out, &step, &l);
		l.in[0] = x;
		l.in[0].n_rows = l.out[0].n_rows;
		l.in[0].data = (char *)x.data + r * x.row_stride;
		l.weight[0].data = tiles;
		l.weight[0].layout = IG_LAYOUT_TILE16;
		l.weight[0].row_stride = 0;
		l.out[0].data = out + r * stride * 4;
		l.out[0].row_stride = stride * 4;
		l.kernel = k;
		const uint64_t bytes = k->scratch_bytes(&l);
		void *scratch = aligned(bytes);
		for (int64_t n_units = k->n_units(&l), u = n_units - 1; u >= 0; u--)
			if (cut == UNITS)
				k->run(&l, u, u + 1, scratch);
			else if (u == 0)
				k->run(&l, 0, n_units, scratch);
		free(scratch);
	}
	for (int32_t r = 0; r < c->s->rows; r++) {
		memcpy(y + r * c->y_cols, out + r * stride * 4, (size_t)c->y_cols * 4);
		for (int64_t i = c->y_cols * 4; i < stride * 4; i++)
			assert_int_equal(out[r * stride * 4 + i], 0xa5);
	}
	free(out);
	if (k->in_layout != IG_LAYOUT_ROWS)
		free(x.data);
}

static void check_shape(const struct heads_shape *s)
{
	struct heads_case c;

	heads_open(&c, s);
	const int64_t n_rows = s->n_heads * s->m;
	const size_t bytes = (size_t)(s->rows * c.y_cols) * sizeof(float);
	float *want = must(malloc(bytes)), *got = must(malloc(bytes));
	void *tiles =
		aligned(ig_tile16_tile_bytes(s->dtype, s->k) * (uint64_t)ig_tile16_n_tiles(n_rows));
	int n_ran = 0;

	ig_tile16_pack(s->dtype, c.w, n_rows, s->k, tiles, 0, ig_tile16_n_tiles(n_rows));
	for (uint32_t i = 0; i < ig_op_linear_heads.n_cpu_kernels; i++) {
		const struct ig_cpu_kernel *k = &ig_op_linear_heads.cpu_kernels[i];
		if (!ig_isa_includes(ig_isa_best(), k->isa) || k->weight_dtype != s->dtype)
			continue;
		expect(&c, k->inner, tiles, want);
		for (enum cut cut = WHOLE; cut <= ROWS; cut++) {
			if (cut != WHOLE && !cuts_are_tested(k))
				continue;
			run(&c, k, tiles, cut, got);
			if (memcmp(want, got, bytes))
				fail_msg("%s, %s, layout %u: other bits than linear's, cut %d",
					 ig_dtype_name(s->dtype), ig_isa_name(k->isa), k->in_layout,
					 (int)cut);
		}
		n_ran++;
	}
	assert_true(n_ran > 0);
	free(want);
	free(got);
	free(tiles);
	heads_close(&c);
}

static void test_kernels(void **state)
{
	for (size_t i = 0; i < n_heads_shapes; i++)
		check_shape(&heads_shapes[i]);
}

static void test_reference(void **state)
{
	const struct heads_shape *s = &heads_shapes[0];
	struct heads_case c;
	struct ig_op_launch l;
	struct ig_step step;

	heads_open(&c, s);
	float *y = must(malloc((size_t)(s->rows * c.y_cols) * sizeof *y));
	heads_launch(&c, 0, s->rows, y, &step, &l);
	ig_op_linear_heads.reference(&l);
	for (int32_t r = 0; r < s->rows; r++)
		for (int64_t i = 0; i < c.y_cols; i++) {
			const int64_t h = i / (s->m + s->n_rest), o = i % (s->m + s->n_rest);
			const float *x = c.x + r * c.x_cols + h * (s->k + s->n_rest);
			const float *w = (const float *)c.w + (h * s->m + o) * s->k;
			double sum = 0;
			for (int64_t j = 0; o < s->m && j < s->k; j++)
				sum += (double)x[j] * (double)w[j];
			assert_true(y[r * c.y_cols + i] ==
				    (o < s->m ? (float)sum : x[s->k + o - s->m]));
		}
	free(y);
	heads_close(&c);
}

static void refuse(const struct ig_op_shape *shape, int code, const char *text)
{
	struct ig_op_shape s = *shape;
	struct ig_error err = { 0 };

	assert_int_equal(ig_op_linear_heads.check(&s, &err), code);
	if (!strstr(err.text, text))
		fail_msg("\"%s\" does not say \"%s\"", err.text, text);
}

static void test_check(void **state)
{
	struct ig_linear_heads_params p = { sizeof p, 4, 64 };
	struct ig_op_shape good = { .struct_size = sizeof good,
				    .n_in = 2,
				    .n_weights = 1,
				    .n_out = 1,
				    .params = &p,
				    .in = { { 0, 4 * 256, IG_F32, IG_ROWS_LOGITS },
					    { 0, 4 * 256, IG_F32, IG_ROWS_LOGITS } },
				    .weight = { { 4 * 512, 192, IG_Q8_0, 0 } } },
			   s = good;
	struct ig_error err;

	assert_int_equal(ig_op_linear_heads.check(&s, &err), 0);
	assert_int_equal(s.out[0].n_cols, 4 * 576);
	assert_int_equal(s.out[0].row_class, IG_ROWS_LOGITS);
	s = good;
	s.n_in = 1;
	refuse(&s, -EINVAL, "1 inputs");
	s = good;
	s.in[1].n_cols = 4 * 64;
	refuse(&s, -EINVAL, "not of x");
	s = good;
	s.in[0].n_cols = 4 * 255;
	refuse(&s, -EINVAL, "do not fit 1020");
	s = good;
	s.weight[0].n_rows = 4 * 500;
	refuse(&s, -ENOTSUP, "must have a multiple of 16");
	s = good;
	s.in[0].n_cols = s.in[1].n_cols = 4 * (192 + 8);
	p.n_rest = 8;
	refuse(&s, -ENOTSUP, "heads of 200 columns; with weights of Q8_0");
	s.weight[0].dtype = IG_F16;
	assert_int_equal(ig_op_linear_heads.check(&s, &err), 0);
	p.n_rest = 4;
	s.in[0].n_cols = s.in[1].n_cols = 4 * (192 + 4);
	refuse(&s, -ENOTSUP, "multiples of 8");
	p.n_heads = 0;
	refuse(&good, -EINVAL, "0 heads");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kernels),
		cmocka_unit_test(test_reference),
		cmocka_unit_test(test_check),
	};
	return cmocka_run_group_tests_name("linear_heads", tests, NULL, NULL);
}
