/* test_isa.c: which kernels run where an instruction set was chosen, and by what name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "runtime/cpu/isa.h"

#include <errno.h>
#include <string.h>

static const uint32_t x86[] = { IG_ISA_AVX2, IG_ISA_AVX512, IG_ISA_AVX512_BF16 };
static const uint32_t arm[] = { IG_ISA_NEON, IG_ISA_NEON_DOTPROD, IG_ISA_NEON_I8MM };

static void test_levels(void **state)
{
	for (int i = 0; i < 3; i++) {
		assert_true(ig_isa_includes(x86[i], IG_ISA_GENERIC));
		assert_true(ig_isa_includes(arm[i], IG_ISA_GENERIC));
		assert_false(ig_isa_includes(IG_ISA_GENERIC, x86[i]));
		assert_false(ig_isa_includes(IG_ISA_GENERIC, arm[i]));
		for (int j = 0; j < 3; j++) {
			assert_true(ig_isa_includes(x86[i], x86[j]) == (j <= i));
			assert_true(ig_isa_includes(arm[i], arm[j]) == (j <= i));
			assert_false(ig_isa_includes(x86[i], arm[j]));
			assert_false(ig_isa_includes(arm[i], x86[j]));
		}
	}
}

static void test_names(void **state)
{
	const uint32_t *mine = NULL, *other = x86;
	struct ig_error err;
	uint32_t best = ig_isa_best(), isa;
	unsigned n = 0;

#if defined(__x86_64__)
	mine = x86;
	other = arm;
#elif defined(__aarch64__)
	mine = arm;
	assert_true(ig_isa_includes(best, IG_ISA_NEON));
#endif
	assert_int_equal(ig_isa_parse("auto", &isa, &err), 0);
	assert_int_equal(isa, best);
	assert_int_equal(ig_isa_parse("generic", &isa, &err), 0);
	assert_int_equal(isa, IG_ISA_GENERIC);
	assert_int_equal(ig_isa_parse(ig_isa_name(best), &isa, &err), 0);
	assert_int_equal(isa, best);
	for (int i = 0; mine && i < 3; i++) {
		int rc = ig_isa_parse(ig_isa_name(mine[i]), &isa, &err);

		n += rc == 0;
		assert_int_equal(rc, ig_isa_includes(best, mine[i]) ? 0 : -ENOTSUP);
		if (rc) {
			assert_non_null(strstr(err.text, ig_isa_name(best)));
			print_message("# not run: kernels for %s; this processor has %s\n",
				      ig_isa_name(mine[i]), ig_isa_name(best));
		} else {
			assert_int_equal(isa, mine[i]);
		}
	}
	print_message("# %s; %u levels here\n", ig_isa_name(best), n);
	for (int i = 0; i < 3; i++)
		assert_string_equal(ig_isa_name(other[i]), "unknown");
	assert_int_equal(ig_isa_parse("mmx", &isa, &err), -ENOTSUP);
	assert_string_equal(err.text, "instruction set \"mmx\" is unknown on this machine");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_levels),
		cmocka_unit_test(test_names),
	};
	return cmocka_run_group_tests_name("instruction sets", tests, NULL, NULL);
}
