/* test_folder_tables.c: folders as the tables of an architecture from elsewhere say. */
#include "folder_case.h"

#include "tests/archs.h"

#include <ingot/arch_files.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tables of a module from elsewhere ---- */

/* Entries of a newer module's tables: unknown fields at their end are ignored. */
struct newer_key {
	struct ig_config_key k;
	uint64_t more;
};
struct newer_name {
	struct ig_tensor_name n;
	uint64_t more[3];
};

#define KEY(...) { { __VA_ARGS__ }, UINT64_MAX }
static const struct newer_key own_keys[] = {
	KEY("depth", "block_count", IG_CONFIG_U32, IG_CONFIG_REQUIRED),
	KEY("old_width|size.width|width", "embedding_length", IG_CONFIG_U32, 0, 64),
	KEY("n_heads", "attention.head_count", IG_CONFIG_U32, 0, 2),
	KEY("ff", "feed_forward_length", IG_CONFIG_U32, IG_CONFIG_TIMES, 3, "embedding_length"),
	KEY("window", "attention.sliding_window", IG_CONFIG_U32, IG_CONFIG_NULLABLE, 7),
	KEY("kinds", "pattern", IG_CONFIG_LAYERS, 0, 0, "a|b"),
	KEY("period", "pattern", IG_CONFIG_U32, 0, 9),
	KEY("letters", "count", IG_CONFIG_COUNT),
	KEY("eps", "eps", IG_CONFIG_F32, IG_CONFIG_OPTIONAL),
	KEY("act", NULL, IG_CONFIG_WORD, 0, 0, "relu"),
	KEY("step", NULL, IG_CONFIG_ONLY, 0, 1),
	KEY("on", NULL, IG_CONFIG_TRUE, 0, 1),
	KEY("off", NULL, IG_CONFIG_FALSE),
	KEY("extra", NULL, IG_CONFIG_REFUSED),
	KEY("value_heads", "ssm.time_step_rank", IG_CONFIG_U32, IG_CONFIG_OPTIONAL),
	KEY("value_groups", "ssm.group_count", IG_CONFIG_U32, IG_CONFIG_OPTIONAL),
	KEY("values", "ssm.inner_size", IG_CONFIG_U32, IG_CONFIG_OPTIONAL),
	KEY("experts", "expert_count", IG_CONFIG_U32, IG_CONFIG_OPTIONAL),
	KEY("key_dim", "ssm.state_size", IG_CONFIG_U32, IG_CONFIG_OPTIONAL),
	KEY("positions", "context_length", IG_CONFIG_U32, IG_CONFIG_OPTIONAL),
};
static const struct newer_name own_names[] = {
	{ { "emb", "token_embd" } },
	{ { "pos", "position_embd", IG_TENSOR_F32 | IG_TENSOR_LAST_ROWS } },
	{ { "b.%u.norm", "blk.%u.attn_norm", IG_TENSOR_BIAS | IG_TENSOR_PLUS_ONE } },
	{ { "b.%u.taps", "blk.%u.taps", IG_TENSOR_CONV } },
	{ { "b.%u.qkv", "blk.%u.qkv", IG_TENSOR_TILED } },
	{ { "b.%u.out", "blk.%u.out", IG_TENSOR_TILED_COLUMNS } },
	{ { "b.%u.qkvz", "blk.%u.abc|blk.%u.d", IG_TENSOR_TWO | IG_TENSOR_BY_KEY } },
	{ { "b.%u.in", "blk.%u.gate_shexp|blk.%u.up_shexp",
	    IG_TENSOR_TWO | IG_TENSOR_IF_EXPERTS } },
	{ { "b.%u.in", "blk.%u.gate|blk.%u.up", IG_TENSOR_TWO } },
	{ { "b.%u.w1", "blk.%u.up_exps", IG_TENSOR_EXPERTS | IG_TENSOR_STACKED } },
	{ { "b.%u.w2", "blk.%u.down_exps",
	    IG_TENSOR_EXPERTS | IG_TENSOR_STACKED | IG_TENSOR_TRANSPOSED } },
	{ { "b.%u.log", "blk.%u.a", IG_TENSOR_NAMED | IG_TENSOR_TILED | IG_TENSOR_NEGATIVE_EXP } },
};

static void reads_words(const struct ig_config *c)
{
	assert_int_equal(c->word_at(c, "letters", 1, "E|MM|M"), 0);
	assert_int_equal(c->word_at(c, "letters", 2, "E|MM|M"), 2);
	assert_int_equal(c->word_at(c, "letters", 4, "E|M"), -1);
	assert_int_equal(c->word_at(c, "kinds", 1, "bb|a|b"), 2);
	assert_int_equal(c->word_at(c, "kinds", 2, "a|b"), -1);
	assert_int_equal(c->word_at(c, "none", 0, "a|b"), -1);
	assert_int_equal(c->word_at(c, "own.five", 0, "a|b"), -1);
	assert_int_equal(c->word(c, "letters", "M|ME|MEM*"), 2);
	assert_int_equal(c->word(c, "own.null", "a|b"), -1);
	assert_int_equal(c->word(c, "none", "a|b"), -1);
}

static void reads_items(const struct ig_config *c)
{
	static const char *const none[] = {
		"own.list.2.n",	 "own.list.-1.n", "own.list.+1.n",
		"own.list. 1.n", "own.list.1x.n", "own.list..n",
		"own.list.n",	 "own.five.0.n",  "own.list.99999999999999999999.n"
	};
	uint32_t n = 0;

	assert_int_equal(c->u32(c, "own.list.1.n", &n), 1);
	assert_int_equal(n, 6);
	assert_int_equal(c->u32(c, "own.list.2.n|own.list.0.n|own.five", &n), 1);
	assert_int_equal(n, 4);
	for (size_t i = 0; i < sizeof none / sizeof *none; i++)
		assert_int_equal(c->u32(c, none[i], &n), 0);
}

static void own_config(const struct ig_config *c)
{
	uint32_t n = 1, on = 0;
	float f = 0;

	if (c->flag(c, "own.on", &on) != 1 || !on)
		return;
	assert_int_equal(c->get_u32(c, "block_count"), 2);
	assert_int_equal(c->get_u32(c, "nothing"), 0);
	assert_int_equal(c->u32(c, "own.nothing", &n), 0);
	assert_int_equal(c->u32(c, "own.null", &n), -1);
	assert_int_equal(c->u32(c, "own.none|own.five", &n), 1);
	assert_int_equal(c->f32(c, "own.five", &f), 1);
	assert_true(n == 5 && f == 5);
	c->put_u32(c, "five", n);
	if (c->get_u32(c, "count")) {
		reads_words(c);
		reads_items(c);
	}
	if (c->u32(c, "own.six", &n))
		c->refuse(c, -ENOTSUP, "six", "is %u: not done", n);
}

static const struct ig_arch_files own_files = {
	.struct_size = sizeof own_files,
	.tied = 1,
	.model_type = "own",
	.outer_type = "own_that_sees",
	.keys = &own_keys[0].k,
	.n_keys = sizeof own_keys / sizeof *own_keys,
	.key_bytes = sizeof *own_keys,
	.names = &own_names[0].n,
	.n_names = sizeof own_names / sizeof *own_names,
	.name_bytes = sizeof *own_names,
	.config = own_config,
};
static const struct ig_arch_files *const own_table[] = { &own_files, NULL };
static const struct ig_arch own_arch = { .struct_size = sizeof own_arch,
					 .name = "own",
					 .files = own_table };
/* One that no folder has. */
static const struct ig_arch old_arch = { .struct_size = sizeof old_arch, .name = "old" };
static const struct ig_arch *const own_archs[] = { &old_arch, &own_arch, NULL };

static int open_of(const struct ig_arch *const *archs, const char *config, const char *header,
		   size_t n, struct opened *o, struct ig_error *err)
{
	size_t len;

	o->file = folder_make_file(header, n, &len);
	const struct ig_checkpoint_file files[] = {
		{ "config.json", config, strlen(config) },
		{ "model.safetensors", o->file, len },
	};
	*err = (struct ig_error){ 0 };
	return ig_checkpoint_open_files(files, 2, "dir", archs, &o->g, err);
}

static int open_own(const char *config, const char *header, size_t n, struct opened *o,
		    struct ig_error *err)
{
	return open_of(own_archs, config, header, n, o, err);
}

static void tables_are_followed(void **state)
{
	const struct ig_checkpoint_tensor *t;
	struct ig_error err;
	struct opened o;
	uint64_t n;

	folder_fill_f32(4);
	if (open_own(
		    "{\"model_type\":\"own_that_sees\",\"text_config\":{\"depth\":2,"
		    "\"size\":{\"width\":8},\"width\":9,\"kinds\":[\"a\",\"b\"],\"window\":null,"
		    "\"letters\":\"MEM*\",\"own\":{\"on\":true,\"null\":null,\"five\":5,\"list\":[{\"n\":4},{\"n\":6}]}}}",
		    "{" T("b.1.norm.weight", "F32", "[2]", 0, 8) "," T("b.1.norm.bias", "F32",
								       "[2]", 8, 16) "}",
		    16, &o, &err))
		fail_msg("%s", err.text);
	assert_int_equal(folder_u32(o.g, "own.block_count"), 2);
	assert_int_equal(folder_u32(o.g, "own.embedding_length"), 8);
	assert_int_equal(folder_u32(o.g, "own.feed_forward_length"), 24);
	assert_int_equal(folder_u32(o.g, "own.five"), 5);
	assert_int_equal(folder_u32(o.g, "own.count"), 4);
	assert_int_equal(ig_checkpoint_array_len(o.g, "own.pattern", &n, NULL), 0);
	assert_int_equal(n, 2);
	assert_int_equal(
		ig_checkpoint_u32(o.g, "own.attention.sliding_window", &(uint32_t){ 0 }, NULL),
		-ENOENT);
	assert_int_equal(ig_checkpoint_f32(o.g, "own.eps", &(float){ 0 }, NULL), -ENOENT);
	/* no RoPE, so no key of it */
	assert_int_equal(ig_checkpoint_f32(o.g, "own.rope.freq_base", &(float){ 0 }, NULL),
			 -ENOENT);
	t = folder_tensor(&o, "blk.1.attn_norm.weight", IG_F32, 1, 2);
	assert_true(folder_value(&o, t, 0, 1) == 2.0f); /* 1 + w */
	t = folder_tensor(&o, "blk.1.attn_norm.bias", IG_F32, 1, 2);
	assert_true(folder_value(&o, t, 0, 1) == 3.0f);
	folder_closed(&o);
	if (open_own("{\"model_type\":\"own\",\"depth\":1,\"old_width\":16,\"ff\":5}", "{}", 0, &o,
		     &err))
		fail_msg("%s", err.text);
	assert_int_equal(folder_u32(o.g, "own.embedding_length"), 16);
	assert_int_equal(folder_u32(o.g, "own.feed_forward_length"), 5);
	assert_int_equal(folder_u32(o.g, "own.attention.sliding_window"), 7);
	assert_int_equal(folder_u32(o.g, "own.pattern"), 9);
	folder_closed(&o);
}

static void last_rows(void **state)
{
#define OF_POSITIONS "{\"model_type\":\"own\",\"depth\":1,\"positions\":2}"
	const struct ig_checkpoint_tensor *t;
	struct ig_error err;
	struct opened o;

	folder_fill_f32(8);
	if (open_own(OF_POSITIONS, "{" T("pos.weight", "F32", "[4,2]", 0, 32) "}", 32, &o, &err))
		fail_msg("%s", err.text);
	t = folder_tensor(&o, "position_embd.weight", IG_F32, 2, 2);
	assert_true(folder_value(&o, t, 0, 0) == 4.0f);
	assert_true(folder_value(&o, t, 1, 1) == 7.0f);
	folder_closed(&o);
	folder_fails(
		open_own(OF_POSITIONS, "{" T("pos.weight", "F32", "[1,2]", 0, 8) "}", 8, &o, &err),
		&o.g, &err, -EINVAL, "has not a row for each of 2 positions");
	free(o.file);
	folder_fails(
		open_own(OF_POSITIONS, "{" T("pos.weight", "F32", "[4]", 0, 16) "}", 16, &o, &err),
		&o.g, &err, -EINVAL, "has not a row for each of 2 positions");
	free(o.file);
}

#define HEADS                                                                                      \
	"{\"model_type\":\"own\",\"depth\":1,\"value_heads\":4,\"value_groups\":2,\"values\":8,"   \
	"\"key_dim\":1}"

/* q | k | v | z by heads of keys: one matrix of q, k and v, one of z. */
static void rows_by_heads_of_keys(void **state)
{
	static const float first[] = { 0, 10, 1, 11, 2, 3, 4, 5, 12, 13, 14, 15 },
			   second[] = { 6, 7, 8, 9, 16, 17, 18, 19 };
	const struct ig_checkpoint_tensor *t;
	struct ig_error err;
	struct opened o;

	folder_fill_f32(20);
	if (open_own(HEADS, "{" T("b.0.qkvz.weight", "F32", "[20,1]", 0, 80) "}", 80, &o, &err))
		fail_msg("%s", err.text);
	t = folder_tensor(&o, "blk.0.abc.weight", IG_F32, 12, 1);
	for (int i = 0; i < 12; i++)
		assert_true(folder_value(&o, t, i, 0) == first[i]);
	t = folder_tensor(&o, "blk.0.d.weight", IG_F32, 8, 1);
	for (int i = 0; i < 8; i++)
		assert_true(folder_value(&o, t, i, 0) == second[i]);
	folder_closed(&o);
}

/* One matrix of two's rows; which two it is of depends on whether there are experts. */
static void rows_of_two_matrices(void **state)
{
	static const struct {
		const char *config, *first, *second;
	} cases[] = {
		{ "{\"model_type\":\"own\",\"depth\":1}", "blk.0.gate.weight", "blk.0.up.weight" },
		{ "{\"model_type\":\"own\",\"depth\":1,\"experts\":2}", "blk.0.gate_shexp.weight",
		  "blk.0.up_shexp.weight" },
	};
	const struct ig_checkpoint_tensor *t;
	struct ig_error err;
	struct opened o;

	folder_fill_f32(12);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		if (open_own(cases[i].config, "{" T("b.0.in.weight", "F32", "[6,2]", 0, 48) "}", 48,
			     &o, &err))
			fail_msg("%s", err.text);
		t = folder_tensor(&o, cases[i].first, IG_F32, 3, 2);
		assert_true(folder_value(&o, t, 0, 0) == 0.0f);
		assert_true(folder_value(&o, t, 2, 1) == 5.0f);
		t = folder_tensor(&o, cases[i].second, IG_F32, 3, 2);
		assert_true(folder_value(&o, t, 0, 0) == 6.0f);
		assert_true(folder_value(&o, t, 2, 1) == 11.0f);
		folder_closed(&o);
	}
	for (int vector = 0; vector < 2; vector++) {
		int rc = open_own(cases[0].config,
				  vector ? "{" T("b.0.in.weight", "F32", "[10]", 0, 40) "}" :
					   "{" T("b.0.in.weight", "F32", "[5,2]", 0, 40) "}",
				  40, &o, &err);
		folder_fails(rc, &o.g, &err, -EINVAL, "has no two halves");
		free(o.file);
	}
}

/* Experts below each other in one matrix, and such as are [in, out] each by themselves. */
static void stacked_experts(void **state)
{
#define EXPERTS "{\"model_type\":\"own\",\"depth\":1,\"experts\":2}"
	static const struct {
		const char *header, *text;
	} bad[] = {
		{ "{" T("b.0.w1", "F32", "[5,2]", 0, 40) "}",
		  "model.safetensors: tensor \"b.0.w1\" has 5 rows, which are not of 2 experts" },
		{ "{" T("b.0.w2", "F32", "[5,2]", 0, 40) "}",
		  "\"b.0.w2\" has 5 rows, which are not of 2 experts" },
		{ "{" T("b.0.w2", "F32", "[2,1,5]", 0, 40) "}", "\"b.0.w2\" has 3 dimensions" },
		{ "{" T("b.0.w1", "F32", "[10]", 0, 40) "}", "\"b.0.w1\" has 1 dimensions" },
	};
	const struct ig_checkpoint_tensor *t;
	struct ig_error err;
	struct opened o;

	folder_fill_f32(24);
	if (open_own(EXPERTS,
		     "{" T("b.0.w1", "F32", "[4,3]", 0, 48) "," T("b.0.w2", "F32", "[4,3]", 48,
								  96) "}",
		     96, &o, &err))
		fail_msg("%s", err.text);
	t = folder_tensor(&o, "blk.0.up_exps.weight", IG_F32, 4, 3);
	assert_true(t->n_dims == 3 && t->dims[1] == 2 && t->dims[2] == 2);
	for (int i = 0; i < 12; i++)
		assert_true(folder_value(&o, t, i / 3, i % 3) == (float)i);
	t = folder_tensor(&o, "blk.0.down_exps.weight", IG_F32, 6, 2);
	assert_true(t->n_dims == 3 && t->dims[1] == 3 && t->dims[2] == 2);
	for (int i = 0; i < 12; i++) /* of expert e the rows 2 e and 2 e + 1 of the file */
		assert_true(folder_value(&o, t, i / 2, i % 2) ==
			    (float)(12 + (i / 6 * 2 + i % 2) * 3 + i / 2 % 3));
	folder_closed(&o);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		int rc = open_own(EXPERTS, bad[i].header, 40, &o, &err);
		folder_fails(rc, &o.g, &err, -EINVAL, bad[i].text);
		free(o.file);
	}
#undef EXPERTS
}

/* Two tables of one type: the one whose key is set, in whatever order they are; without it the other. */
static void tables_with_a_key(void **state)
{
	static const struct {
		const char *more, *arch;
	} cases[] = {
		{ "", "own" },
		{ ",\"size\":{\"experts\":8}", "other" },
		{ ",\"old\":true", "other" },
		{ ",\"old\":[1],\"size\":{\"experts\":0}", "other" },
		{ ",\"size\":{\"experts\":0}", "own" },
		{ ",\"old\":false,\"size\":{\"experts\":null}", "own" },
		{ ",\"size\":{\"experts\":[]}", "own" },
		{ ",\"size\":7", "own" },
	};
	struct ig_arch_files files = own_files;
	const struct ig_arch_files *const table[] = { &files, NULL };
	const struct ig_arch other = { .struct_size = sizeof other,
				       .name = "other",
				       .files = table };
	const struct ig_arch *const orders[2][3] = { { &own_arch, &other, NULL },
						     { &other, &own_arch, NULL } };
	const struct ig_arch *const alone[] = { &other, NULL };
	struct ig_error err;
	const char *name;
	char config[128];
	struct opened o;
	size_t n;

	files.if_set = "old|size.experts";
	for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
		snprintf(config, sizeof config, "{\"model_type\":\"own\",\"depth\":1%s}",
			 cases[i / 2].more);
		if (open_of(orders[i % 2], config, "{}", 0, &o, &err))
			fail_msg("%s: %s", config, err.text);
		assert_int_equal(ig_checkpoint_str(o.g, "general.architecture", &name, &n, &err),
				 0);
		if (n != strlen(cases[i / 2].arch) || memcmp(name, cases[i / 2].arch, n))
			fail_msg("%s: the architecture is %.*s", config, (int)n, name);
		folder_closed(&o);
	}
	folder_fails(open_of(alone, "{\"model_type\":\"own\",\"depth\":1}", "{}", 0, &o, &err),
		     &o.g, &err, -ENOTSUP, "\"own\": not supported; known: none");
	free(o.file);
}

/* Taps of convolutions, and heads of values, which lie by their heads of keys. */
static void recurrent_layers(void **state)
{
	static const float rows[] = { 0, 1, 2, 3, 6, 7, 4, 5, 8, 9 }, heads[] = { 0, 2, 1, 3 };
	const struct ig_checkpoint_tensor *t;
	struct ig_error err;
	struct opened o;

	folder_fill_f32(41);
	if (open_own(HEADS,
		     "{" T("b.0.qkv.weight", "F32", "[10,1]", 0,
			   40) "," T("b.0.out.weight", "F32", "[1,10]", 40,
				     80) "," T("b.0.log", "F32", "[4]", 80,
					       96) "," T("b.0.norm.weight", "F32", "[2]", 96,
							 104) "," T("b.0.taps.weight", "F32",
								    "[5,1,3]", 104, 164) "}",
		     164, &o, &err))
		fail_msg("%s", err.text);
	t = folder_tensor(&o, "blk.0.qkv.weight", IG_F32, 10, 1);
	for (int i = 0; i < 10; i++)
		assert_true(folder_value(&o, t, i, 0) == rows[i]);
	t = folder_tensor(&o, "blk.0.out.weight", IG_F32, 1, 10);
	for (int i = 0; i < 10; i++)
		assert_true(folder_value(&o, t, 0, i) == 10 + rows[i]);
	t = folder_tensor(&o, "blk.0.a", IG_F32, 1, 4);
	for (int i = 0; i < 4; i++)
		assert_true(folder_value(&o, t, 0, i) == (float)-exp(20 + (double)heads[i]));
	t = folder_tensor(&o, "blk.0.taps.weight", IG_F32, 5, 3);
	assert_true(folder_value(&o, t, 4, 2) == 40.0f);
	t = folder_tensor(&o, "blk.0.attn_norm.weight", IG_F32, 1, 2);
	assert_true(folder_value(&o, t, 0, 1) == 26.0f); /* 1 + w */
	folder_closed(&o);
	/* MLX's taps: its norms have their 1 */
	if (open_own(HEADS,
		     "{" T("b.0.norm.weight", "F32", "[2]", 0, 8) "," T("b.0.taps.weight", "F32",
									"[5,3,1]", 8, 68) "}",
		     68, &o, &err))
		fail_msg("%s", err.text);
	t = folder_tensor(&o, "blk.0.attn_norm.weight", IG_F32, 1, 2);
	assert_true(folder_value(&o, t, 0, 1) == 1.0f);
	t = folder_tensor(&o, "blk.0.taps.weight", IG_F32, 5, 3);
	assert_true(folder_value(&o, t, 4, 2) == 16.0f);
	folder_closed(&o);
#define BAD(config, name, shape, n, text)                                                          \
	do {                                                                                       \
		int rc = open_own(config, "{" T(name, "F32", shape, 0, n) "}", n, &o, &err);       \
		folder_fails(rc, &o.g, &err, -EINVAL, text);                                       \
		free(o.file);                                                                      \
	} while (0)
	BAD(HEADS, "b.0.taps.weight", "[5,3]", 60, "has not the shape");
	BAD(HEADS, "b.0.taps.weight", "[1,5,3]", 60, "has not the shape");
	BAD(HEADS, "b.0.qkv.weight", "[5,3]", 60, "is not of 4 heads of values in 2");
	BAD(HEADS, "b.0.out.weight", "[3,5]", 60, "is not of 4 heads of values in 2");
	BAD(HEADS, "b.0.log", "[4,3]", 48, "is not a vector");
	BAD(HEADS, "b.0.qkvz.weight", "[19,1]", 76, "is not of 2 heads of keys of 1 and 8 values");
	BAD(HEADS, "b.0.qkvz.weight", "[20]", 80, "is not of 2 heads of keys");
	BAD("{\"model_type\":\"own\",\"depth\":1}", "b.0.qkvz.weight", "[20,1]", 80,
	    "is not of 0 heads of keys");
	BAD("{\"model_type\":\"own\",\"depth\":1}", "b.0.qkv.weight", "[10,1]", 40,
	    "is not of 0 heads");
	BAD("{\"model_type\":\"own\",\"depth\":1,\"value_heads\":4,\"value_groups\":3,\"values\":8}",
	    "b.0.qkv.weight", "[10,1]", 40, "is not of 4 heads of values in 3");
#undef BAD
}

static void tables_refuse(void **state)
{
#define OWN(more) "{\"model_type\":\"own\",\"depth\":1" more "}"
	static const struct {
		const char *config, *text;
		int code;
	} bad[] = {
		{ "{\"model_type\":\"own\"}", "\"depth\" is missing", -EINVAL },
		{ "{\"model_type\":\"own\",\"depth\":null}", "\"depth\" is missing", -EINVAL },
		{ "{\"model_type\":\"old\"}", "\"old\": not supported; known: own", -ENOTSUP },
		{ OWN(",\"size\":{\"width\":-1}"), "\"width\" is not a whole number", -EINVAL },
		{ OWN(",\"kinds\":[\"b\",\"a\"]"), "\"kinds\" is not a list of 1 layers", -EINVAL },
		{ OWN(",\"kinds\":[\"ab\"]"), "has \"ab\": not supported; a and b are", -ENOTSUP },
		{ OWN(",\"act\":\"silu\""), "\"act\" is \"silu\": only relu is supported with own",
		  -ENOTSUP },
		{ OWN(",\"step\":2"), "\"step\" is 2: only 1 is supported", -ENOTSUP },
		{ OWN(",\"on\":false"), "\"on\" is false: not supported with own", -ENOTSUP },
		{ OWN(",\"off\":true"), "\"off\" is true: not supported with own", -ENOTSUP },
		{ OWN(",\"extra\":\"x\""), "\"extra\" is set", -ENOTSUP },
		{ OWN(",\"width\":4294967295"), "\"ff\" is missing", -EINVAL },
		{ "{\"model_type\":\"own\",\"depth\":2,\"own\":{\"on\":true,\"null\":null,"
		  "\"five\":5,\"six\":6}}",
		  "\"six\" is 6: not done", -ENOTSUP },
		{ OWN(",\"own\":{\"on\":3}"), "\"on\" is neither true nor false", -EINVAL },
	};
	struct ig_error err;
	struct opened o;

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		int rc = open_own(bad[i].config, "{}", 0, &o, &err);
		folder_fails(rc, &o.g, &err, bad[i].code, bad[i].text);
		free(o.file);
	}
	/* a kind that a newer module knows */
	struct ig_config_key kind = { "depth", NULL, 99 };
	struct ig_arch_files files = { .struct_size = sizeof files,
				       .model_type = "own",
				       .keys = &kind,
				       .n_keys = 1,
				       .key_bytes = sizeof kind };
	const struct ig_arch_files *const table[] = { &files, NULL };
	const struct ig_arch arch = { .struct_size = sizeof arch, .name = "own", .files = table };
	const struct ig_arch *const archs[] = { &arch, NULL };
	const struct ig_checkpoint_file file = { "config.json", OWN(""), sizeof OWN("") - 1 };
	err = (struct ig_error){ 0 };
	folder_fails(ig_checkpoint_open_files(&file, 1, "dir", archs, &o.g, &err), &o.g, &err,
		     -ENOTSUP, "of kind 99, which is not supported");
	/* without architectures no folder is known */
	err = (struct ig_error){ 0 };
	folder_fails(ig_checkpoint_open_files(&file, 1, "dir", NULL, &o.g, &err), &o.g, &err,
		     -ENOTSUP, "\"own\": not supported; known: none");
}

/* The check of a module before it is used. */
static void tables_are_whole(void **state)
{
	static const struct {
		struct ig_config_key k;
		bool whole;
	} keys[] = {
		{ { "a", "b", IG_CONFIG_U32 }, true },
		{ { NULL, "b", IG_CONFIG_U32 }, false },
		{ { "a", NULL, IG_CONFIG_F32 }, false },
		{ { "a", NULL, IG_CONFIG_REFUSED }, true },
		{ { "a", NULL, IG_CONFIG_WORD }, false },
		{ { "a", NULL, IG_CONFIG_WORD, 0, 0, "x" }, true },
		{ { "a", "b", IG_CONFIG_LAYERS, 0, 0, "x" }, false },
		{ { "a", "b", IG_CONFIG_LAYERS, 0, 0, "x|y" }, true },
		{ { "a", "b", IG_CONFIG_U32, IG_CONFIG_TIMES, 1 }, false },
		{ { "a", "b", IG_CONFIG_U32, IG_CONFIG_TIMES, 1, "c" }, true },
	};
	struct ig_arch_files files = own_files;
	const struct ig_arch_files *const table[] = { &own_files, &files, NULL };
	const struct ig_arch arch = { .struct_size = sizeof arch, .files = table };
	const struct ig_tensor_name nameless[] = { { "a", "b" }, { NULL, "b" }, { "a", NULL } };

	for (const struct ig_arch *const *a = test_archs; *a; a++)
		assert_true(ig_checkpoint_arch_is_whole(*a));
	assert_true(ig_checkpoint_arch_is_whole(&old_arch));
	assert_true(ig_checkpoint_arch_is_whole(&arch));
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
		files.keys = &keys[i].k;
		files.n_keys = 1;
		assert_int_equal(ig_checkpoint_arch_is_whole(&arch), keys[i].whole);
	}
	files = own_files;
	for (uint32_t i = 1; i <= 3; i++) {
		files.names = nameless + (i == 3);
		files.n_names = i == 3 ? 2 : i;
		files.name_bytes = sizeof *nameless;
		assert_int_equal(ig_checkpoint_arch_is_whole(&arch), i == 1);
	}
	files = own_files;
	files.key_bytes = sizeof(struct ig_config_key) - 8;
	assert_false(ig_checkpoint_arch_is_whole(&arch));
	files = own_files;
	files.struct_size = offsetof(struct ig_arch_files, if_set); /* an older module's */
	assert_true(ig_checkpoint_arch_is_whole(&arch));
	files.struct_size -= 8;
	assert_false(ig_checkpoint_arch_is_whole(&arch));
	files = own_files;
	files.model_type = NULL;
	assert_false(ig_checkpoint_arch_is_whole(&arch));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tables_are_followed),	 cmocka_unit_test(last_rows),
		cmocka_unit_test(rows_by_heads_of_keys), cmocka_unit_test(rows_of_two_matrices),
		cmocka_unit_test(recurrent_layers),	 cmocka_unit_test(tables_refuse),
		cmocka_unit_test(stacked_experts),	 cmocka_unit_test(tables_with_a_key),
		cmocka_unit_test(tables_are_whole),
	};

	return cmocka_run_group_tests_name("model/folder tables", tests, NULL, NULL);
}
