/*
 * test_head.c: a file that has only a model's head becomes a part of the model's; another model's is refused, and each
 * allocation fails once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/formats/checkpoint.h"
#include "tests/unit/no_memory.h"
#include "tiny_gguf.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Blocks of the file, those that predict (-1: no key), and which tensors it has; the first value of each is `first`. */
struct made {
	const char *arch;
	uint32_t n_blocks;
	int32_t n_next;
	const char *names[4];
	float first;
};
static const struct made trunk = {
	"own", 2, -1, { "token_embd.weight", "blk.0.a.weight", "blk.1.a.weight" }, 1
};
static const struct made head = {
	"own", 3, 1, { "token_embd.weight", "blk.2.a.weight", "blk.2.nextn.eh_proj.weight" }, 2
};

static struct ig_checkpoint *make(struct gw *w, const struct made *m)
{
	static const uint64_t ne[4] = { 8, 1, 1, 1 };
	struct ig_checkpoint *g;
	struct ig_error err = { 0 };
	char key[64];
	size_t n = 0;

	gw_init(w);
	gw_str(w, "general.architecture", m->arch);
	snprintf(key, sizeof key, "%s.block_count", m->arch);
	gw_u32(w, key, m->n_blocks);
	snprintf(key, sizeof key, "%s.nextn_predict_layers", m->arch);
	if (m->n_next >= 0)
		gw_u32(w, key, (uint32_t)m->n_next);
	for (; n < 4 && m->names[n]; n++)
		gw_tensor(w, m->names[n], ne, 1, IG_F32, n * 32);
	gw_data(w, 32, n * 32);
	for (size_t i = 0; i < n; i++)
		memcpy(w->data + w->len - (n - i) * 32, &m->first, sizeof m->first);
	if (ig_checkpoint_open_memory(w->data, w->len, m->first == 1 ? "model" : "head", &g, &err))
		fail_msg("%s", err.text);
	return g;
}

static void expect_first(const struct ig_checkpoint *g, const char *name, float first)
{
	const struct ig_checkpoint_tensor *t = ig_checkpoint_find_tensor(g, name);

	assert_non_null(t);
	assert_true(*(const float *)t->data == first);
}

static void expect_key(const struct ig_checkpoint *g, const char *key, uint32_t want)
{
	struct ig_error err = { 0 };
	uint32_t n = 0;

	if (ig_checkpoint_u32(g, key, &n, &err))
		fail_msg("%s", err.text);
	assert_int_equal(n, want);
}

/* It has its block and its keys; what both have stays the model's.  Every allocation fails once. */
static void becomes_a_part(void **state)
{
	struct made with_key = trunk;
	long i;

	for (int keys = 0; keys < 2; keys++) {
		with_key.n_next = keys ? 0 : -1;
		for (i = 0;; i++) {
			struct ig_error err = { 0 };
			struct gw w[2];
			struct ig_checkpoint *g = make(&w[0], &with_key), *h = make(&w[1], &head);
			assert_true(ig_checkpoint_is_head(h) && !ig_checkpoint_is_head(g));
			no_memory_at(i);
			int rc = ig_checkpoint_add_head(g, h, &err);
			no_memory_at(-1);
			if (!rc) {
				assert_int_equal(ig_checkpoint_n_tensors(g), 5);
				expect_first(g, "token_embd.weight", 1);
				expect_first(g, "blk.1.a.weight", 1);
				expect_first(g, "blk.2.nextn.eh_proj.weight", 2);
				expect_key(g, "own.block_count", 3);
				expect_key(g, "own.nextn_predict_layers", 1);
				assert_int_equal(ig_checkpoint_file_bytes(g), w[0].len + w[1].len);
			} else {
				assert_int_equal(rc, -ENOMEM);
				assert_non_null(strstr(err.text, "out of memory"));
				assert_int_equal(ig_checkpoint_n_tensors(g), 3);
				expect_first(g, "blk.1.a.weight", 1);
				expect_key(g, "own.block_count", 2);
				ig_checkpoint_close(h);
			}
			ig_checkpoint_close(g);
			gw_finish(&w[0]);
			gw_finish(&w[1]);
			if (!rc)
				break;
		}
		assert_int_equal(i, 5);
	}
}

static void others_are_refused(void **state)
{
	static const struct {
		struct made model, head;
		const char *text;
	} bad[] = {
		{ { "other", 2, -1, { "blk.0.a.weight" }, 1 },
		  { "own", 3, 1, { "blk.2.nextn.eh_proj.weight" }, 2 },
		  "head: a head for architecture own; the model's is other" },
		{ { "own", 3, -1, { "blk.0.a.weight" }, 1 },
		  { "own", 3, 1, { "blk.2.nextn.eh_proj.weight" }, 2 },
		  "head: a head for 2 layers; the model has 3" },
		{ { "own", 3, 1, { "blk.0.a.weight", "blk.2.b.weight" }, 1 },
		  { "own", 3, 1, { "blk.2.nextn.eh_proj.weight" }, 2 },
		  "head: the model has a head of its own already" },
		{ { "own", 2, 2, { "blk.0.a.weight" }, 1 },
		  { "own", 3, 1, { "blk.2.nextn.eh_proj.weight" }, 2 },
		  "model: own.nextn_predict_layers is 2, own.block_count 2" },
	};
	static const struct made no_heads[] = {
		{ "own", 3, 0, { "blk.3.a.weight" }, 2 }, /* none predicts */
		{ "own", 3, 1, { "token_embd.weight" }, 2 },
		{ "own", 3, 1, { "blk.1.a.weight", "blk.2.nextn.eh_proj.weight" }, 2 },
		{ "own", 3, 3, { "blk.2.nextn.eh_proj.weight" }, 2 },
		{ "own", 0, 1, { "blk.2.nextn.eh_proj.weight" }, 2 },
	};
	struct gw w[2];

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct ig_error err = { 0 };
		struct ig_checkpoint *g = make(&w[0], &bad[i].model),
				     *h = make(&w[1], &bad[i].head);
		assert_true(ig_checkpoint_is_head(h));
		assert_int_equal(ig_checkpoint_add_head(g, h, &err), -EINVAL);
		if (strcmp(err.text, bad[i].text) != 0)
			fail_msg("wanted '%s': %s", bad[i].text, err.text);
		ig_checkpoint_close(g);
		ig_checkpoint_close(h);
		gw_finish(&w[0]);
		gw_finish(&w[1]);
	}
	for (size_t i = 0; i < sizeof no_heads / sizeof *no_heads; i++) {
		struct ig_checkpoint *h = make(&w[0], &no_heads[i]);
		assert_false(ig_checkpoint_is_head(h));
		ig_checkpoint_close(h);
		gw_finish(&w[0]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(becomes_a_part),
		cmocka_unit_test(others_are_refused),
	};

	return cmocka_run_group_tests_name("model/head", tests, NULL, NULL);
}
