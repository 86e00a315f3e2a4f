/*
 * test_latent.c: the op rope_latent on the CPU: the reference against its definition, every kernel against the
 * reference, the same bits however rows are cut up, nothing written but the rows' keys; what is refused.
 */
#include "latent_case.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static const uint32_t isas[] = { IG_ISA_GENERIC, IG_ISA_AVX2, IG_ISA_AVX512, IG_ISA_NEON };

static void run(struct latent_case *c, const struct ig_cpu_kernel *k, int32_t first, int32_t n,
		struct guarded *out)
{
	struct ig_op_launch launch;
	struct ig_step step;

	latent_launch(c, first, n, out, &step, &launch);
	if (k)
		world_run(k, &launch, n == 1);
	else
		world_op("rope_latent")->reference(&launch);
}

static void assert_near(const struct guarded *a, const struct guarded *b, double relative,
			const char *what)
{
	for (int64_t r = 0; r < a->t.n_rows; r++)
		for (int64_t i = 0; i < a->t.n_cols; i++) {
			const double x = (double)guarded_row(a, r)[i],
				     y = (double)guarded_row(b, r)[i];
			if (!(fabs(x - y) <= relative * (fabs(y) + 1)))
				fail_msg("%s, row %lld, column %lld: %g, expected %g", what,
					 (long long)r, (long long)i, x, y);
		}
}

/* Dimension d of a head of n whose last columns rotate. */
static double rotated(const struct latent_case *c, int32_t r, const float *x, uint32_t n,
		      uint32_t d)
{
	const uint32_t pairs = c->s->n_pairs, first = n - 2 * pairs;
	const float *cs = guarded_row(&c->table, r);
	const uint32_t at = d - first, halves = c->s->mode == IG_ROPE_HALVES;
	const uint32_t i = halves ? at % pairs : at / 2, odd = halves ? at / pairs : at % 2;
	const double a = (double)x[first + (halves ? i : 2 * i)],
		     b = (double)x[first + (halves ? i + pairs : 2 * i + 1)];

	return odd ? b * (double)cs[i] + a * (double)cs[pairs + i] :
		     a * (double)cs[i] - b * (double)cs[pairs + i];
}

static void define(const struct latent_case *c, struct guarded *q, struct guarded *keys)
{
	const uint32_t n = c->s->head_dim, plain = n - 2 * c->s->n_pairs, latent = c->s->n_latent;

	for (int32_t r = 0; r < LATENT_ROWS; r++) {
		const float *kv = guarded_row(&c->kv, r);
		double squares = 0;

		for (uint32_t i = 0; i < c->s->n_heads * n; i++) {
			const float *x = guarded_row(&c->q, r) + i / n * n;
			guarded_row(q, r)[i] =
				i % n < plain ? x[i % n] : (float)rotated(c, r, x, n, i % n);
		}
		for (uint32_t i = 0; i < latent; i++)
			squares += (double)kv[i] * (double)kv[i];
		for (uint32_t i = 0; i < c->dim; i++)
			guarded_row(keys, r)[i] =
				(float)(i < latent ? (double)kv[i] /
							     sqrt(squares / latent +
								  (double)c->p.norm_eps) *
							     (double)guarded_row(&c->norm, 0)[i] :
						     rotated(c, r, kv, c->dim, i));
	}
}

static void test_kernels(void **state)
{
	for (size_t i = 0; i < n_latent_shapes; i++) {
		const struct latent_shape *s = &latent_shapes[i];
		/* a half may round to its neighbour, a scale of Q8_0 too */
		const double stored = s->dtype == IG_F32 ? 1e-6 : s->dtype == IG_F16 ? 1e-3 : 2e-2;
		struct guarded want, want_keys, ref, ref_keys, got, keys, other, other_keys;
		struct guarded *all[] = { &want,      &ref,	 &got,	&other,
					  &want_keys, &ref_keys, &keys, &other_keys };
		struct latent_case c;
		int n_isas = 0;

		world_seed(i + 31);
		latent_open(&c, s);
		for (int j = 0; j < 8; j++)
			guarded_create(all[j], LATENT_ROWS, j < 4 ? c.q.t.n_cols : c.dim);
		define(&c, &want, &want_keys);
		run(&c, NULL, 0, LATENT_ROWS, &ref);
		guarded_check(&ref);
		latent_take(&c, &c.w, &ref_keys);
		assert_near(&ref, &want, 1e-6, "the reference's q");
		assert_near(&ref_keys, &want_keys, stored, "the reference's keys");
		for (size_t j = 0; j < sizeof isas / sizeof *isas; j++) {
			const struct ig_cpu_kernel *k =
				world_kernel(world_op("rope_latent"), isas[j]);

			if (!k)
				continue;
			run(&c, k, 0, LATENT_ROWS, &got);
			guarded_check(&got);
			latent_take(&c, &c.w, &keys);
			assert_near(&got, &ref, 1e-6, world_isa_name(isas[j]));
			assert_near(&keys, &ref_keys, stored, world_isa_name(isas[j]));
			if (n_isas++) /* of the instruction set before */
				assert_memory_equal(keys.bytes, other_keys.bytes, keys.n_bytes);
			for (int32_t r = LATENT_ROWS - 1; r >= 0; r--)
				run(&c, k, r, 1, &other);
			latent_take(&c, &c.w, &other_keys);
			assert_memory_equal(got.bytes, other.bytes, got.n_bytes);
			assert_memory_equal(keys.bytes, other_keys.bytes, keys.n_bytes);
		}
		assert_true(n_isas > 0);
		for (int j = 0; j < 8; j++)
			guarded_destroy(all[j]);
		latent_close(&c);
	}
}

static struct ig_rope_latent_params good = { sizeof good,   20, 256, 512,  32,
					     IG_ROPE_PAIRS, 0,	0,   1e-6f };

/* The op with these parameters, and shapes that fit the good ones. */
static void refuse(struct ig_rope_latent_params p, const char *text)
{
	struct ig_op_shape s = {
		.struct_size = sizeof s,
		.n_in = 3,
		.n_weights = 1,
		.n_out = 1,
		.params = &p,
		.in = { { 0, 20 * 256, IG_F32, 0 }, { 0, 576, IG_F32, 0 }, { 0, 64, IG_F32, 0 } },
		.weight = { { 1, 512, IG_F32, 0 } }
	};
	struct ig_error err = { 0 };
	int rc = world_op("rope_latent")->check(&s, &err);

	if (!text) {
		assert_int_equal(rc, 0);
		assert_int_equal(s.out[0].n_cols, 20 * 256);
		return;
	}
	assert_int_equal(rc, -EINVAL);
	if (!strstr(err.text, text))
		fail_msg("\"%s\" does not say \"%s\"", err.text, text);
}

#define REFUSED(text, ...)                                                                         \
	do {                                                                                       \
		struct ig_rope_latent_params p = good;                                             \
		__VA_ARGS__;                                                                       \
		refuse(p, text);                                                                   \
	} while (0)

static void test_check(void **state)
{
	refuse(good, NULL);
	REFUSED("0 heads of 256", p.n_heads = 0);
	REFUSED("20 heads of 252", p.head_dim = 252);
	REFUSED("keys of 576 + 64", p.n_latent = 576);
	REFUSED("keys of 512 + 60", p.n_pairs = 30);
	REFUSED("more rotated ones than q's 56", p.head_dim = 56);
	REFUSED("mode 2", p.mode = 2);
	REFUSED("cache group 4", p.group = 4);
	REFUSED("norm_eps is nan", p.norm_eps = NAN);
	REFUSED("q has 5120 columns", p.n_heads = 10);
	REFUSED("kv has 576 columns", p.n_latent = 504);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kernels),
		cmocka_unit_test(test_check),
	};
	return cmocka_run_group_tests_name("rope_latent", tests, NULL, NULL);
}
