/*
 * test_plan.c: what recording refuses.  An architecture made for the test records
 * one mistake after another; the error must name it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/setting.h"
#include "runtime/modules/modules.h"
#include "runtime/plan.h"
#include "runtime/stages.h"
#include "tests/unit/model/formats/tiny_gguf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct ig_modules *modules;

static int open_file(struct gw *w, const char *arch, struct ig_checkpoint **out)
{
	static const uint64_t table[2] = { 32, 7 }, vector[1] = { 32 };

	gw_init(w);
	if (arch)
		gw_str(w, "general.architecture", arch);
	gw_u32(w, "mistake", 0);
	gw_tensor(w, "table", table, 2, IG_F32, 0);
	gw_tensor(w, "vector", vector, 1, IG_F32, 7 * 32 * 4);
	gw_data(w, 32, 8 * 32 * 4);
	return ig_checkpoint_open_memory(w->data, w->len, "memory", out, NULL);
}

static void expect(const char *arch, int code, const char *text)
{
	struct gw w;
	struct ig_checkpoint *g;
	struct ig_plan *plan;
	struct ig_error err = { 0 };

	assert_int_equal(open_file(&w, arch, &g), 0);
	int rc = ig_plan_record(modules, g, &plan, &err);
	if (code == 0) {
		if (rc)
			fail_msg("%s: %s", arch, err.text);
		for (uint32_t i = 0; i < plan->n_nodes; i++) /* whoever recorded it */
			assert_int_equal(*(const uint32_t *)plan->nodes[i].params,
					 plan->nodes[i].op->params_size);
		assert_true(plan->n_nodes > 0);
		ig_plan_destroy(plan);
	} else {
		assert_int_equal(rc, code);
		assert_null(plan);
		if (!strstr(err.text, text))
			fail_msg("\"%s\" does not say \"%s\"", err.text, text);
	}
	ig_checkpoint_close(g);
	gw_finish(&w);
}

static void test_mistakes(void **state)
{
	expect("toy-good", 0, "");
	expect("toy-missing-tensor", -ENOENT, "tensor \"nowhere\" is missing");
	expect("toy-wrong-shape", -EINVAL, "tensor \"table\" has shape [7, 32], expected [8, 32]");
	expect("toy-two-shapes", -EINVAL, "tensor \"table\" is declared with two shapes");
	expect("toy-unknown-op", -EINVAL, "op levitate, node 1: no module provides it");
	expect("toy-bad-input", -EINVAL, "op norm, node 1: an input is not a value");
	expect("toy-bad-weight", -EINVAL, "op norm, node 1: a weight is not a weight of the plan");
	expect("toy-bad-shape", -EINVAL, "node 1: norm: weight 0 must be [1, 32] of F32");
	expect("toy-no-sample", -EINVAL, "the plan does not end with sample");
	expect("toy-bad-params", -ERANGE, "toy parameters are out of range");
	expect("toy-no-info", -EINVAL, "incomplete model description");
	expect("toy-long-params", 0, "");
	expect("toy-short-params", -EINVAL, "logits: the input's rows are not gathered");
	char text[96];
	snprintf(text, sizeof text,
		 "op norm, node 1: %zu bytes of parameters, of which it knows %zu",
		 sizeof(struct ig_norm_params) + 8, sizeof(struct ig_norm_params));
	expect("toy-future-params", -EINVAL, text);
	expect("toy-endless-params", -EINVAL, "op norm, node 1: its parameters do not begin with");
	expect("toy-no-params", -EINVAL, "op norm, node 1: its parameters do not begin with");
	expect("unheard-of", -ENOTSUP, "architecture \"unheard-of\" is unknown; known: toy-good, ");
	expect(NULL, -ENOENT, "general.architecture");
	ig_plan_destroy(NULL);
}

static void test_registry(void **state)
{
	char names[64];

	assert_non_null(ig_modules_op(modules, "linear"));
	assert_null(ig_modules_op(modules, "line"));
	assert_non_null(ig_modules_arch(modules, "toy-goodness", 8)); /* by length */
	assert_null(ig_modules_arch(modules, "toy", 3));
	assert_null(ig_modules_kvcache(modules, "paged"));
	ig_modules_arch_names(modules, names, 20); /* cut off, not overrun */
	assert_true(strlen(names) < 20);
	struct ig_error err = { 0 };
	assert_int_equal(ig_modules_load(modules, INGOT_TOY_MODULE, &err), -EEXIST);
	assert_non_null(strstr(err.text, "\"toy\" is loaded already"));
}

/* The same two modules in both orders: what is found does not depend on it. */
static void test_claims(void **state)
{
	static const char *const paths[2] = { INGOT_CLAIMS_A, INGOT_CLAIMS_B };
	struct ig_modules *all = modules;
	struct ig_error err = { 0 };

	for (int first = 0; first < 2; first++) {
		assert_int_equal(ig_modules_create(&modules, &err), 0);
		assert_int_equal(ig_modules_load(modules, paths[first], &err), 0);
		expect("anything", -ERANGE, first ? "read by b" : "read by a"); /* it alone */
		assert_int_equal(ig_modules_load(modules, paths[!first], &err), 0);
		expect("anything", -EINVAL, "arch-a of module module-a");
		expect("anything", -EINVAL, "arch-b of module module-b");
		expect("anything", -EINVAL, "both claim this file");
		expect("arch-a", -ERANGE, "read by a");
		expect("arch-b", -ERANGE, "read by b");
		ig_modules_destroy(modules);
	}
	modules = all;
}

/* What a module's init reads of its options: defaults, then what was set. */
static void test_options(void **state)
{
	static const struct ig_setting set[] = {
		{ (char *)"toy", (char *)"rows", 7, NULL },
		{ (char *)"elsewhere", (char *)"rows", 8, NULL },
		{ (char *)"toy", (char *)"colour", 0, (char *)"red" },
		{ (char *)"toy", (char *)"loud", 0, NULL },
		{ (char *)"toy", (char *)"motto", 0, (char *)"on" },
	};
	static const char *const said[] = { "toy: 1 4 4096 1500 green \"\"",
					    "toy: 0 7 4096 1500 red \"on\"" };
	char path[] = "/tmp/ingot-plan-XXXXXX", text[256] = "";
	struct ig_modules *m;
	struct ig_error err = { 0 };
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(ig_log_set_file(path), 0);
		assert_int_equal(ig_modules_create(&m, &err), 0);
		assert_int_equal(ig_modules_load(m, INGOT_TOY_MODULE, &err), 0);
		if (ig_modules_start(m, set, i ? 5 : 0, &err))
			fail_msg("%s", err.text);
		ig_modules_destroy(m);
		ig_log_set_file(NULL);
		assert_true(pread(fd, text, sizeof text - 1, 0) > 0);
		if (!strstr(text, said[i]))
			fail_msg("\"%s\" does not say \"%s\"", text, said[i]);
	}
	const struct ig_setting none = { (char *)"toy", (char *)"zeppelin", 1, NULL };
	assert_int_equal(ig_modules_create(&m, &err), 0);
	assert_int_equal(ig_modules_load(m, INGOT_TOY_MODULE, &err), 0);
	assert_int_equal(ig_modules_start(m, &none, 1, &err), -ENOENT);
	ig_modules_destroy(m);
	close(fd);
	unlink(path);
}

static int setup(void **state)
{
	struct ig_error err = { 0 };
	if (ig_modules_create(&modules, &err) || ig_modules_load(modules, INGOT_TOY_MODULE, &err)) {
		print_error("%s\n", err.text);
		return -1;
	}
	return 0;
}

static int teardown(void **state)
{
	ig_modules_destroy(modules);
	return 0;
}

/* What can't be cut between layers; test_arch_divided.c has what can. */
static void test_stages(void **state)
{
	struct ig_op op = { .name = "remember", .flags = IG_OP_READS_KV };
	struct ig_plan_node node = { .op = &op };
	struct ig_error err = { 0 };
	struct ig_plan *out;
	struct {
		struct ig_plan plan;
		uint32_t n, stage;
		int code;
		const char *text;
	} cases[] = {
		{ { 0 }, 2, 2, -EINVAL, "stage 2 of 2" },
		{ { 0 }, 0, 0, -EINVAL, "stage 0 of 0" },
		{ { 0 }, IG_MAX_STAGES + 1, 0, -EINVAL, "at most 64" },
		{ { .n_adapters = 1 }, 2, 0, -ENOTSUP, "with adapters" },
		{ { .first_mtp_node = 9 }, 2, 0, -ENOTSUP, "with a head that guesses" },
		{ { .n_ranks = 2 }, 2, 0, -ENOTSUP, "divided over devices" },
		{ { .info.result = IG_RESULT_EMBEDDING }, 2, 0, -ENOTSUP, "of embeddings" },
		{ { .info = { .n_groups = 1, .groups = { { .n_layers = 3 } } } },
		  2,
		  0,
		  -ENOTSUP,
		  "cache group 0 has 3 layers, of which ops use 0" },
		{ { .nodes = &node, .n_nodes = 1 }, 2, 0, -ENOTSUP, "the op remember has" },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		assert_int_equal(
			ig_plan_cut(&cases[i].plan, cases[i].n, cases[i].stage, &out, &err),
			cases[i].code);
		assert_null(out);
		if (!strstr(err.text, cases[i].text))
			fail_msg("\"%s\" does not say \"%s\"", err.text, cases[i].text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mistakes), cmocka_unit_test(test_registry),
		cmocka_unit_test(test_claims),	 cmocka_unit_test(test_options),
		cmocka_unit_test(test_stages),
	};
	return cmocka_run_group_tests_name("recording", tests, setup, teardown);
}
