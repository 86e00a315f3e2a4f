/* test_tokenizer_spm.c: SentencePiece's ways over a small vocabulary, and refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/tokenizer/detokenizer.h"
#include "model/tokenizer/tokenizer_private.h"
#include "tiny_spm.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

struct world {
	struct gw w;
	struct ig_checkpoint *g;
	struct ig_tokenizer *t;
};

static void world_finish(struct world *x)
{
	ig_tokenizer_close(x->t);
	ig_checkpoint_close(x->g);
	gw_finish(&x->w);
}

static int open_world(struct world *x, const struct tiny_spm *o, struct ig_error *err)
{
	*x = (struct world){ 0 };
	*err = (struct ig_error){ 0 };
	tiny_spm_file(&x->w, o);
	assert_int_equal(ig_checkpoint_open_memory(x->w.data, x->w.len, "tiny", &x->g, err), 0);
	return ig_tokenizer_open(x->g, &x->t, err);
}

static void opened(struct world *x, const struct tiny_spm *o)
{
	struct ig_error err;

	if (open_world(x, o, &err))
		fail_msg("%s", err.text);
}

/* text becomes exactly these ids; -1 ends them. */
static void becomes(const struct ig_tokenizer *t, const char *text, size_t len, int special, ...)
{
	struct ig_ids got = { 0 };
	va_list ap;
	size_t i;

	assert_int_equal(ig_tokenizer_encode(t, text, len, special != 0, SIZE_MAX, &got), 0);
	va_start(ap, special);
	for (i = 0;; i++) {
		int32_t want = va_arg(ap, int);
		if (want < 0)
			break;
		if (i >= got.n || got.ids[i] != want)
			fail_msg("'%s': id %zu is %d, not %d", text, i, i < got.n ? got.ids[i] : -1,
				 want);
	}
	va_end(ap);
	assert_int_equal(got.n, i);
	ig_ids_finish(&got);
}

#define S(text) text, sizeof text - 1
#define B(c) (SPM_BYTE + (unsigned char)(c))

static void merges(void **state)
{
	struct world x;

	opened(&x, &(struct tiny_spm){ .model = "llama" });
	becomes(x.t, S(""), 0, -1);
	becomes(x.t, S("hello"), 0, SPM_SPACE_HELLO, -1);
	becomes(x.t, S("hello w"), 0, SPM_SPACE_HELLO, SPM_SPACE_W, -1);
	/* "ll" before "he"; then "hell" is better than "lo". */
	becomes(x.t, S("xhello"), 0, SPM_SPACE, SPM_X, SPM_HELLO, -1);
	becomes(x.t, S("lll"), 0, SPM_SPACE, SPM_LL, SPM_L, -1);
	becomes(x.t, S("\xc3\xa9\xf0\x9f\x98\x80"), 0, SPM_SPACE, SPM_ACUTE, SPM_SMILE, -1);
	/* An unused token comes apart. */
	becomes(x.t, S("lo"), 0, SPM_SPACE, SPM_L, SPM_O, -1);
	/* What has no token becomes bytes; names of tokens are plain text. */
	becomes(x.t, S("a\n"), 0, SPM_SPACE, B('a'), B('\n'), -1);
	becomes(x.t, S("\xe4\xb8\xad"), 0, SPM_SPACE, B(0xe4), B(0xb8), B(0xad), -1);
	becomes(x.t, S("he\xff\xf0\x9fll\0"), 0, SPM_SPACE, SPM_HE, B(0xff), B(0xf0), B(0x9f),
		SPM_LL, B(0), -1);
	becomes(x.t, S("<s>"), 0, SPM_SPACE, B('<'), B('s'), B('>'), -1);
	becomes(x.t, S("<0x0A>"), 0, SPM_SPACE, B('<'), B('0'), SPM_X, B('0'), B('A'), B('>'), -1);
	/* U+2581 is a space. */
	becomes(x.t, S("x\xe2\x96\x81hello"), 0, SPM_SPACE, SPM_X, SPM_SPACE_HELLO, -1);
	becomes(x.t, S("x\xe2\x96"), 0, SPM_SPACE, SPM_X, B(0xe2), B(0x96), -1);
	world_finish(&x);
}

/* Gemma 4's: merges between characters, by rank; a text begins without a space, and no merge crosses
 * a line break. */
static void pairs(void **state)
{
	static const char *const tokens[] = {
		"<pad>",
		"<eos>",
		"<bos>",
		"<unk>",
		"<0x0A>",
		"<0xC3>",
		"<0xA9>",
		"\xe2\x96\x81",
		"a",
		"b",
		"\n",
		"ab",
		("\xe2\x96\x81"
		 "ab"),
		"\n\n",
		"b\n",
		"<|turn>",
		"<turn|>",
	};
	enum {
		EOS = 1,
		BOS,
		UNK,
		C3 = 5,
		A9,
		SPACE,
		A,
		B_,
		LF,
		AB,
		SPACE_AB,
		LFLF,
		BLF,
		TURN,
		END
	};
	static const int32_t types[] = { 3, 3, 3, 2, 6, 6, 6, 1, 1, 1, 1, 1, 1, 1, 1, 4, 4 };
	static const char *const ranks[] = { "b \n", "a b", "\xe2\x96\x81 ab", "\n \n" };
	struct world x = { 0 };
	struct ig_error err = { 0 };
	int32_t bos;

	gw_init(&x.w);
	gw_str(&x.w, "tokenizer.ggml.model", "gemma4");
	gw_strs(&x.w, "tokenizer.ggml.tokens", tokens, 17);
	gw_i32s(&x.w, "tokenizer.ggml.token_type", types, 17);
	gw_strs(&x.w, "tokenizer.ggml.merges", ranks, 4);
	gw_u32(&x.w, "tokenizer.ggml.bos_token_id", BOS);
	gw_u32(&x.w, "tokenizer.ggml.eos_token_id", EOS);
	gw_u32(&x.w, "tokenizer.ggml.unknown_token_id", UNK);
	assert_int_equal(ig_checkpoint_open_memory(x.w.data, x.w.len, "tiny", &x.g, &err), 0);
	if (ig_tokenizer_open(x.g, &x.t, &err))
		fail_msg("%s", err.text);
	becomes(x.t, S("ab ab"), 0, AB, SPACE_AB, -1);
	becomes(x.t, S(" ab  b"), 0, SPACE_AB, SPACE, SPACE, B_, -1);
	becomes(x.t, S("ab\n\nab"), 0, AB, LFLF, AB, -1); /* not a, b\n */
	becomes(x.t, S("\xc3\xa9zz"), 0, C3, A9, UNK, -1);
	becomes(x.t, S("<|turn>ab<turn|>"), 1, TURN, AB, END, -1);
	assert_true(ig_tokenizer_is_end(x.t, END));
	bos = ig_tokenizer_find_special(x.t, "<bos>");
	assert_int_equal(bos, BOS);
	world_finish(&x);
}

static void specials(void **state)
{
	struct world x;
	bool special;
	size_t len;

	opened(&x, &(struct tiny_spm){ .model = "llama" });
	/* User-defined ones are cut out of plain text, the space before it included. */
	becomes(x.t, S("he<tool>hello"), 0, SPM_SPACE, SPM_HE, SPM_TOOL, SPM_HELLO, -1);
	becomes(x.t, S(" hello"), 0, SPM_SPACES, SPM_HELLO, -1);
	/* A control token ends a text, so that what follows begins one. */
	becomes(x.t, S("<s>hello</s><s>"), 1, SPM_START, SPM_SPACE_HELLO, SPM_END, SPM_START, -1);
	becomes(x.t, S("<s>he<tool>he"), 1, SPM_START, SPM_SPACE, SPM_HE, SPM_TOOL, SPM_HE, -1);
	/* An end-of-turn token is a control token, whatever its type in the file. */
	becomes(x.t, S("x<end_of_turn>"), 1, SPM_SPACE, SPM_X, SPM_TURN, -1);
	struct ig_ids l = { 0 };
	assert_int_equal(ig_tokenizer_encode(x.t, S("<end_of_turn>"), false, SIZE_MAX, &l), 0);
	for (size_t i = 0; i < l.n; i++)
		assert_int_not_equal(l.ids[i], SPM_TURN);
	ig_ids_finish(&l);
	assert_int_equal(ig_tokenizer_find_special(x.t, "<end_of_turn>"), SPM_TURN);
	assert_true(ig_tokenizer_is_end(x.t, SPM_TURN));
	/* A client's bytes never make a control token. */
	uint8_t client[8] = { 0, 0, 0, 1, 1, 1, 1, 1 };
	assert_int_equal(ig_tokenizer_encode_marked(x.t, "<s></s>x", client, 8, SIZE_MAX, &l), 0);
	assert_int_equal(l.ids[0], SPM_START);
	for (size_t i = 1; i < l.n; i++)
		assert_true(l.ids[i] >= SPM_BYTE);
	ig_ids_finish(&l);
	/* After a control token a template's own space is the one that is added; a client's is not. */
	static const struct {
		const char *text;
		size_t client; /* the first byte that one wrote */
		int32_t ids[3];
	} owned[] = {
		{ "<s> hello", 4, { SPM_START, SPM_SPACE_HELLO } },
		{ "<s> hello", 3, { SPM_START, SPM_SPACES, SPM_HELLO } },
		{ "<s>  hello", 4, { SPM_START, SPM_SPACES, SPM_HELLO } },
		{ "<s> ", 4, { SPM_START } },
	};
	for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) {
		uint8_t marks[16] = { 0 };
		len = strlen(owned[i].text);
		memset(marks + owned[i].client, 1, len - owned[i].client);
		assert_int_equal(
			ig_tokenizer_encode_marked(x.t, owned[i].text, marks, len, SIZE_MAX, &l),
			0);
		for (size_t k = 0; k < 3; k++)
			assert_int_equal(k < l.n ? l.ids[k] : 0, owned[i].ids[k]);
		ig_ids_finish(&l);
	}
	/* Without keys: by their names. */
	assert_int_equal(ig_tokenizer_bos(x.t), SPM_START);
	assert_true(ig_tokenizer_add_bos(x.t));
	assert_true(ig_tokenizer_is_end(x.t, SPM_END));
	/* The bytes of tokens are those of their text. */
	assert_memory_equal(ig_tokenizer_token(x.t, SPM_SPACE_W, &len, &special), " w", 2);
	assert_true(len == 2 && !special);
	assert_memory_equal(ig_tokenizer_token(x.t, B(0xe4), &len, &special), "\xe4", 1);
	assert_true(len == 1 && !special);
	assert_memory_equal(ig_tokenizer_token(x.t, SPM_UNKNOWN, &len, &special), "<unk>", 5);
	assert_true(len == 5 && special);
	assert_int_equal(ig_tokenizer_longest(x.t), 13);
	world_finish(&x);
}

static void spaces(void **state)
{
	struct world x;

	opened(&x, &(struct tiny_spm){ .model = "llama", .no_space = true });
	becomes(x.t, S("hello"), 0, SPM_HELLO, -1);
	becomes(x.t, S(" hello"), 0, SPM_SPACE_HELLO, -1);
	becomes(x.t, S("   x"), 0, SPM_SPACES, SPM_SPACE, SPM_X, -1);
	world_finish(&x);
	opened(&x, &(struct tiny_spm){ .model = "llama", .trim = true });
	becomes(x.t, S("  hello   w  "), 0, SPM_SPACE_HELLO, SPM_SPACE_W, -1);
	becomes(x.t, S("   "), 0, -1);
	world_finish(&x);
	/* Several unknown characters in a row are one. */
	opened(&x, &(struct tiny_spm){ .model = "llama", .no_bytes = true });
	becomes(x.t, S("abhab\xff"), 0, SPM_SPACE, SPM_UNKNOWN, SPM_H, SPM_UNKNOWN, -1);
	world_finish(&x);
}

static void unigram(void **state)
{
	struct world x;

	opened(&x, &(struct tiny_spm){ .model = "t5" });
	becomes(x.t, S(""), 0, -1);
	becomes(x.t, S("hello"), 0, SPM_SPACE_HELLO, -1);
	/* -20 -26 -5, not -20 -26 -3 -24 */
	becomes(x.t, S("xhello"), 0, SPM_SPACE, SPM_X, SPM_HELLO, -1);
	becomes(x.t, S("lo"), 0, SPM_SPACE, SPM_L, SPM_O, -1);	 /* not the unused one */
	becomes(x.t, S("lll"), 0, SPM_SPACE, SPM_L, SPM_LL, -1); /* of equals the first found */
	becomes(x.t, S("a<tool>\xff"), 0, SPM_SPACE, B('a'), SPM_TOOL, B(0xff), -1);
	becomes(x.t, S("x\xe2\x96\x81w"), 0, SPM_SPACE, SPM_X, SPM_SPACE_W, -1);
	assert_false(ig_tokenizer_add_bos(x.t));
	world_finish(&x);
	opened(&x, &(struct tiny_spm){ .model = "t5", .no_bytes = true, .trim = true });
	becomes(x.t, S("  ab  hello "), 0, SPM_SPACE, SPM_UNKNOWN, SPM_SPACE_HELLO, -1);
	world_finish(&x);
}

/* ---- by the definition ----------------------------------------------------------- */

#define N_RANDOM 60

static uint32_t seed = 4711;

static uint32_t draw(uint32_t n)
{
	seed = seed * 1664525 + 1013904223;
	return (seed >> 8) % n;
}

static int find(char tokens[N_RANDOM][8], const char *s, size_t len)
{
	for (int i = 0; i < N_RANDOM; i++)
		if (strlen(tokens[i]) == len && !memcmp(tokens[i], s, len))
			return i;
	return -1;
}

/* While neighbours make a token: merge the best, the leftmost of equals. */
static size_t merge_slowly(char tokens[N_RANDOM][8], const float *scores, const char *s, size_t n,
			   int32_t *ids)
{
	size_t cuts[200], n_cuts = n + 1;

	for (size_t i = 0; i <= n; i++)
		cuts[i] = i;
	for (;;) {
		int best = -1;
		size_t at = 0;
		for (size_t i = 0; i + 2 < n_cuts; i++) {
			int id = find(tokens, s + cuts[i], cuts[i + 2] - cuts[i]);
			if (id >= 0 && (best < 0 || scores[id] > scores[best])) {
				best = id;
				at = i;
			}
		}
		if (best < 0)
			break;
		memmove(cuts + at + 1, cuts + at + 2, (n_cuts - at - 2) * sizeof *cuts);
		n_cuts--;
	}
	for (size_t i = 0; i + 1 < n_cuts; i++)
		ids[i] = find(tokens, s + cuts[i], cuts[i + 1] - cuts[i]);
	return n_cuts - 1;
}

static void merges_by_definition(void **state)
{
	for (int round = 0; round < 60; round++) {
		char tokens[N_RANDOM][8];
		const char *list[N_RANDOM];
		float scores[N_RANDOM];
		struct ig_error err;
		struct world x = { 0 };

		for (int i = 0; i < N_RANDOM; i++) {
			do { /* letters first, then what is not there yet */
				size_t len = i < 4 ? 1 : 2 + draw(4);
				for (size_t k = 0; k < len; k++)
					tokens[i][k] = "abc "[i < 4 ? (uint32_t)i :
								      draw(round % 2 ? 4 : 3)];
				tokens[i][len] = 0;
			} while (find(tokens, tokens[i], strlen(tokens[i])) != i);
			scores[i] = (float)draw(30) - 15.0f;
			list[i] = tokens[i];
		}
		gw_init(&x.w);
		gw_str(&x.w, "tokenizer.ggml.model", "llama");
		/* Spaces are written as U+2581. */
		gw_key(&x.w, "tokenizer.ggml.tokens", GW_ARRAY);
		gw_number(&x.w, GW_STRING, 4);
		gw_number(&x.w, N_RANDOM, 8);
		for (int i = 0; i < N_RANDOM; i++) {
			char text[32];
			size_t n = 0;
			for (const char *p = list[i]; *p; p++) {
				memcpy(text + n, *p == ' ' ? "\xe2\x96\x81" : p, *p == ' ' ? 3 : 1);
				n += *p == ' ' ? 3 : 1;
			}
			gw_string(&x.w, text, n);
		}
		gw_key(&x.w, "tokenizer.ggml.scores", GW_ARRAY);
		gw_number(&x.w, GW_F32, 4);
		gw_number(&x.w, N_RANDOM, 8);
		gw_put(&x.w, scores, sizeof scores);
		gw_bool(&x.w, "tokenizer.ggml.add_space_prefix", false);
		assert_int_equal(ig_checkpoint_open_memory(x.w.data, x.w.len, "tiny", &x.g, &err),
				 0);
		assert_int_equal(ig_tokenizer_open(x.g, &x.t, &err), 0);
		for (size_t len = 0; len < 150; len += 1 + len / 6) {
			struct ig_ids got = { 0 };
			char text[150];
			int32_t want[150];
			for (size_t i = 0; i < len; i++)
				text[i] = "abc "[draw(4)];
			size_t n = merge_slowly(tokens, scores, text, len, want);
			assert_int_equal(ig_tokenizer_encode(x.t, text, len, false, SIZE_MAX, &got),
					 0);
			assert_int_equal(got.n, n);
			if (n)
				assert_memory_equal(got.ids, want, n * sizeof *want);
			ig_ids_finish(&got);
		}
		world_finish(&x);
	}
}

/* ---- limits, refusals, and back --------------------------------------------------- */

static void limits(void **state)
{
	static const char *const models[] = { "llama", "t5" };

	for (int i = 0; i < 2; i++) {
		struct ig_ids l = { 0 };
		struct world x;
		size_t size = 1 << 20;
		char *big = malloc(size);

		assert_non_null(big);
		memset(big, 'a', size);
		opened(&x, &(struct tiny_spm){ .model = models[i] });
		assert_int_equal(ig_tokenizer_encode(x.t, "x", 1, false, 2, &l), 0);
		assert_int_equal(ig_tokenizer_encode(x.t, "aa", 2, false, 4, &l), -E2BIG);
		assert_int_equal(l.n, 2); /* as it was */
		assert_int_equal(ig_tokenizer_encode(x.t, big, size, false, 1000, &l), -E2BIG);
		assert_int_equal(l.n, 2);
		assert_int_equal(ig_tokenizer_encode(x.t, big, size, false, size + 3, &l), 0);
		assert_int_equal(l.n, size + 3);
		ig_ids_finish(&l);
		/* One word of a megabyte is merged in good time, too. */
		memset(big, 'l', size);
		assert_int_equal(ig_tokenizer_encode(x.t, big, size, false, size, &l), 0);
		assert_int_equal(l.n, size / 2 + 1);
		ig_ids_finish(&l);
		world_finish(&x);
		free(big);
	}
}

static void refused(const struct tiny_spm *o, int code, const char *text)
{
	struct ig_error err;
	struct world x;

	assert_int_equal(open_world(&x, o, &err), code);
	assert_null(x.t);
	if (!strstr(err.text, text) || strncmp(err.text, "tiny: ", 6))
		fail_msg("wanted '%s' in: %s", text, err.text);
	world_finish(&x);
}

static void refusals(void **state)
{
	static const char *const models[] = { "llama", "t5" };
	char big[1026];

	memset(big, 'x', sizeof big - 1);
	big[sizeof big - 1] = 0;
	for (int i = 0; i < 2; i++) {
		struct tiny_spm o = { .model = models[i], .last = big };
		struct world x;
		refused(&o, -EINVAL, "token 277 has 1025 bytes, at most 1024 are possible");
		o.last = big + 1;
		opened(&x, &o);
		becomes(x.t, big + 1, 1024, 0, SPM_SPACE, N_SPM - 1, -1);
		world_finish(&x);
		o = (struct tiny_spm){ .model = models[i], .fewer_scores = -1 };
		refused(&o, -ENOENT, "tokenizer.ggml.scores");
		o.fewer_scores = 1;
		refused(&o, -EINVAL, "tokenizer.ggml.scores has 277 elements for 278 tokens");
		o.fewer_scores = 0;
		o.score = NAN;
		refused(&o, -EINVAL, "'tokenizer.ggml.scores': element 277 is out of range");
		o.score = INFINITY;
		refused(&o, -EINVAL, "'tokenizer.ggml.scores': element 277 is out of range");
		o.score = 0;
		o.name = "<0x0g>";
		refused(&o, -EINVAL,
			"token 3 is of type byte, but its name is not <0x00> to <0xFF>");
		o.name = "<0xA>";
		refused(&o, -EINVAL, "token 3 is of type byte");
		o.name = NULL;
		o.n_map = 4;
		refused(&o, -EINVAL, "a precompiled_charsmap of 4 bytes whose trie has 0");
		o.n_map = 0;
		o.unknown = N_SPM;
		refused(&o, -EINVAL, "unknown_token_id is 278, the vocabulary has 278");
	}
	refused(&(struct tiny_spm){ .model = "rwkv" }, -ENOTSUP, "tokenizer.ggml.model is 'rwkv'");
}

static void text_of(const struct ig_tokenizer *t, bool begin, const char *want, ...)
{
	struct ig_detokenizer d;
	char got[512];
	size_t n = 0;
	va_list ap;
	int id;

	ig_detokenizer_init(&d, t);
	if (begin)
		ig_detokenizer_begin(&d);
	va_start(ap, want);
	while ((id = va_arg(ap, int)) >= 0)
		n += ig_detokenizer_put(&d, id, got + n);
	va_end(ap);
	n += ig_detokenizer_flush(&d, got + n);
	got[n] = 0;
	assert_string_equal(got, want);
}

static void and_back(void **state)
{
	struct world x;

	opened(&x, &(struct tiny_spm){ .model = "llama" });
	/* A completion continues the prompt; a text starts without the added space. */
	text_of(x.t, false, " hello w", SPM_SPACE_HELLO, SPM_SPACE_W, -1);
	text_of(x.t, true, "hello w", SPM_SPACE_HELLO, SPM_SPACE_W, -1);
	text_of(x.t, true, "hello w", SPM_START, SPM_SPACE_HELLO, SPM_SPACE_W, -1);
	text_of(x.t, true, " x", SPM_SPACE, SPM_SPACE, SPM_X, -1);
	text_of(x.t, true, "x hello", SPM_X, SPM_SPACE_HELLO, -1);
	text_of(x.t, true, "\xe4\xb8\xad", SPM_SPACE, B(0xe4), B(0xb8), B(0xad), -1);
	text_of(x.t, true, "\xef\xbf\xbd hello", B(0xe4), SPM_SPACE_HELLO, -1);
	world_finish(&x);
	opened(&x, &(struct tiny_spm){ .model = "llama", .no_space = true });
	text_of(x.t, true, " hello", SPM_SPACE_HELLO, -1);
	world_finish(&x);
	opened(&x, &(struct tiny_spm){ .model = "llama", .trim = true });
	text_of(x.t, true, "x", SPM_SPACE, SPM_SPACE, SPM_X, -1);
	world_finish(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(merges),   cmocka_unit_test(pairs),
		cmocka_unit_test(specials), cmocka_unit_test(spaces),
		cmocka_unit_test(unigram),  cmocka_unit_test(merges_by_definition),
		cmocka_unit_test(limits),   cmocka_unit_test(refusals),
		cmocka_unit_test(and_back),
	};

	return cmocka_run_group_tests_name("model/tokenizer_spm", tests, NULL, NULL);
}
