/* test_tokenizer.c: the tokenizer over a small vocabulary, and its refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/tokenizer/tokenizer_private.h"
#include "tiny_gguf.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

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

/* Takes over w. */
static int open_file(struct world *x, struct gw *w, struct ig_error *err)
{
	*err = (struct ig_error){ 0 };
	*x = (struct world){ .w = *w };
	assert_int_equal(ig_checkpoint_open_memory(w->data, w->len, "tiny", &x->g, err), 0);
	return ig_tokenizer_open(x->g, &x->t, err);
}

static void open_tiny(struct world *x, const char *pre)
{
	struct ig_error err;
	struct gw w;

	tiny_file(&w, &(struct tiny_options){ .model = "gpt2", .pre = pre });
	if (open_file(x, &w, &err))
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

#define B(c) (TINY_BYTE + (unsigned char)(c))

static void merges(void **state)
{
	struct world x;

	open_tiny(&x, "smollm");
	becomes(x.t, "", 0, false, -1);
	becomes(x.t, "hello", 5, false, TINY_HELLO, -1);
	becomes(x.t, "hellhe", 6, false, TINY_HELL, TINY_HE, -1);
	/* "l l" comes before "he ll": from the left, lowest rank first */
	becomes(x.t, "helllo", 6, false, TINY_HELL, B('l'), B('o'), -1);
	becomes(x.t, "lll", 3, false, TINY_LL, B('l'), -1);
	becomes(x.t, "a w", 3, false, B('a'), TINY_SPACE_W, -1);
	becomes(x.t, "\xf0\x9f\x98\x80", 4, false, TINY_SMILE, B(0x80), -1);
	becomes(x.t, "\xf0\x9f", 2, false, TINY_SMILE2, -1); /* not UTF-8, still bytes */
	becomes(x.t, "\0\xff\n", 3, false, B(0), B(0xff), B('\n'), -1);
	/* Pieces: no merge crosses what does not belong together. */
	becomes(x.t, "he\xffll", 5, false, TINY_HE, B(0xff), TINY_LL, -1);
	becomes(x.t, "he1ll", 5, false, TINY_HE, B('1'), TINY_LL, -1);
	becomes(x.t, "hel!lo", 6, false, TINY_HE, B('l'), B('!'), B('l'), B('o'), -1);
	world_finish(&x);
}

/* Ids of a piece by the definition: while there is a pair, merge the first of the
 * lowest rank. */
static size_t merge_slowly(const struct ig_merges *m, int32_t *ids, size_t n)
{
	for (;;) {
		uint32_t best = UINT32_MAX;
		size_t at = 0;
		for (size_t i = 0; i + 1 < n; i++)
			for (uint32_t r = 0; r < m->n && r < best; r++)
				if (m->list[r].left == ids[i] && m->list[r].right == ids[i + 1]) {
					best = r;
					at = i;
				}
		if (best == UINT32_MAX)
			return n;
		ids[at] = m->list[best].result;
		n--;
		memmove(ids + at + 1, ids + at + 2, (n - at - 1) * sizeof *ids);
	}
}

/* Random merges over few letters, pieces short and long: both ways of merging give
 * what the definition gives. */
static void merges_by_definition(void **state)
{
	uint32_t seed = 12345;
	const int32_t *got;
	size_t n_got;

	for (int round = 0; round < 300; round++) {
		struct ig_merges m;
		struct ig_merge_work work = { 0 };
		int32_t n_ids = 4;

		assert_int_equal(ig_merges_init(&m, 40), 0);
		for (int c = 0; c < 4; c++)
			m.byte_ids['a' + c] = c;
		for (int r = 0; r < 40; r++) {
			seed = seed * 1664525 + 1013904223;
			int32_t left = (int32_t)((seed >> 8) % (uint32_t)n_ids);
			seed = seed * 1664525 + 1013904223;
			int32_t right = (int32_t)((seed >> 8) % (uint32_t)n_ids);
			ig_merges_add(&m, left, right, n_ids++);
		}
		for (size_t len = 0; len < 150; len += 1 + len / 9) {
			char piece[150];
			int32_t want[150];
			size_t n = 0;
			for (size_t i = 0; i < len; i++) {
				seed = seed * 1664525 + 1013904223;
				piece[i] = (char)('a' + (seed >> 16) % 5); /* 'e' has no token */
				if (piece[i] != 'e')
					want[n++] = piece[i] - 'a';
			}
			n = merge_slowly(&m, want, n);
			assert_int_equal(ig_merges_apply(&m, &work, piece, len, &got, &n_got), 0);
			assert_int_equal(n_got, n);
			if (n)
				assert_memory_equal(got, want, n * sizeof *want);
		}
		ig_merge_work_finish(&work);
		ig_merges_finish(&m);
	}
}

static void specials(void **state)
{
	static const char text[] = "<|im_start|>hello<|im_end|><tool>x<|im_";
	struct world x;
	bool special;
	size_t len;

	open_tiny(&x, "smollm");
	becomes(x.t, text, sizeof text - 1, true, TINY_START, TINY_HELLO, TINY_END, TINY_TOOL,
		B('x'), B('<'), B('|'), TINY_IM, B('_'), -1);
	/* Without, only what the user defined is cut out; control ids never come. */
	becomes(x.t, "<|im_end|>", 10, false, B('<'), B('|'), TINY_IM, B('_'), B('e'), B('n'),
		B('d'), B('|'), B('>'), -1);
	becomes(x.t, "a<tool>", 7, false, B('a'), TINY_TOOL, -1);
	becomes(x.t, "he<|im_end|>ll", 14, true, TINY_HE, TINY_END, TINY_LL, -1);
	becomes(x.t, "<|im_end|", 9, true, B('<'), B('|'), TINY_IM, B('_'), B('e'), B('n'), B('d'),
		B('|'), -1);
	assert_int_equal(ig_tokenizer_find_special(x.t, "<|im_end|>"), TINY_END);
	assert_int_equal(ig_tokenizer_find_special(x.t, "<tool>"), -1);
	assert_int_equal(ig_tokenizer_find_special(x.t, ""), -1);
	assert_memory_equal(ig_tokenizer_token(x.t, TINY_SPACE_W, &len, &special), " w", 2);
	assert_true(len == 2 && !special);
	assert_memory_equal(ig_tokenizer_token(x.t, TINY_END, &len, &special), "<|im_end|>", 10);
	assert_true(len == 10 && special);
	assert_non_null(ig_tokenizer_token(x.t, TINY_TOOL, &len, &special));
	assert_true(len == 6 && !special);
	assert_null(ig_tokenizer_token(x.t, -1, &len, &special));
	assert_null(ig_tokenizer_token(x.t, N_TINY, &len, &special));
	assert_int_equal(ig_tokenizer_n_vocab(x.t), N_TINY);
	assert_int_equal(ig_tokenizer_bos(x.t), TINY_START);
	assert_true(ig_tokenizer_is_end(x.t, TINY_END));
	assert_true(ig_tokenizer_is_end(x.t, TINY_END_OF_TEXT)); /* by its text */
	assert_false(ig_tokenizer_is_end(x.t, TINY_START));
	assert_false(ig_tokenizer_is_end(x.t, -1));
	world_finish(&x);
}

/* The longest token wins; user-defined ones are found inside a control token's text
 * when that is plain text. */
static void overlapping_specials(void **state)
{
	static const char *const tokens[] = { "a", "<b>", "<b><c>", "b", "<", ">", "c", "<b><c>" };
	static const int32_t types[] = { 1, 4, 3, 1, 1, 1, 1, 3 };
	struct world x;
	struct gw w;
	struct ig_error err;

	gw_init(&w);
	gw_str(&w, "tokenizer.ggml.model", "gpt2");
	gw_str(&w, "tokenizer.ggml.pre", "gpt-2");
	gw_strs(&w, "tokenizer.ggml.tokens", tokens, 8);
	gw_i32s(&w, "tokenizer.ggml.token_type", types, 8);
	gw_strs(&w, "tokenizer.ggml.merges", NULL, 0);
	assert_int_equal(open_file(&x, &w, &err), 0);
	becomes(x.t, "a<b><c>", 7, true, 0, 2, -1);
	becomes(x.t, "a<b><c>", 7, false, 0, 1, 4, 6, 5, -1);
	becomes(x.t, "<b><b><c", 8, true, 1, 1, 4, 6, -1);
	assert_int_equal(ig_tokenizer_find_special(x.t, "<b><c>"), 2);
	assert_int_equal(ig_tokenizer_bos(x.t), -1);
	/* "x" has no token: left out. */
	becomes(x.t, "axb", 3, true, 0, 3, -1);
	world_finish(&x);
}

static void limits(void **state)
{
	struct world x;
	struct ig_ids l = { 0 };

	open_tiny(&x, "smollm");
	assert_int_equal(ig_tokenizer_encode(x.t, "a b", 3, false, 3, &l), 0);
	assert_int_equal(l.n, 3);
	assert_int_equal(ig_tokenizer_encode(x.t, "a b", 3, false, 5, &l), -E2BIG);
	assert_int_equal(l.n, 3); /* as it was */
	assert_int_equal(ig_tokenizer_encode(x.t, "<tool>", 6, false, 3, &l), -E2BIG);
	assert_int_equal(ig_tokenizer_encode(x.t, "", 0, false, 3, &l), 0);
	assert_int_equal(ig_tokenizer_encode(x.t, "a", 1, false, 2, &l), -E2BIG);
	assert_int_equal(l.n, 3);
	/* A piece that can't fit is refused before it is merged; one that just does, isn't. */
	char *big = malloc(1 << 20);
	assert_non_null(big);
	memset(big, 'x', 1 << 20);
	assert_int_equal(ig_tokenizer_encode(x.t, big, 1 << 20, false, 1000, &l), -E2BIG);
	assert_int_equal(l.n, 3);
	assert_int_equal(ig_tokenizer_encode(x.t, big, 1 << 20, false, 3 + (1 << 20), &l), 0);
	assert_int_equal(l.n, 3 + (1 << 20));
	free(big);
	ig_ids_finish(&l);
	assert_true(!l.ids && !l.n && !l.cap);
	world_finish(&x);
}

struct user {
	pthread_t thread;
	const struct ig_tokenizer *t;
	char text[600];
	struct ig_ids want;
	bool same;
};

static void *encode_often(void *arg)
{
	struct user *u = arg;

	u->same = true;
	for (int i = 0; i < 200 && u->same; i++) {
		struct ig_ids got = { 0 };
		int rc = ig_tokenizer_encode(u->t, u->text, strlen(u->text), true, SIZE_MAX, &got);
		u->same = rc == 0 && got.n == u->want.n &&
			  !memcmp(got.ids, u->want.ids, got.n * sizeof *got.ids);
		ig_ids_finish(&got);
	}
	return NULL;
}

/* One tokenizer, several threads at once. */
static void threads(void **state)
{
	struct user users[4] = { 0 };
	struct world x;

	open_tiny(&x, "smollm");
	for (int i = 0; i < 4; i++) {
		struct user *u = &users[i];
		u->t = x.t;
		for (size_t k = 0; k + 40 < sizeof u->text; k += strlen(u->text + k))
			snprintf(u->text + k, 40, "hello%d he<tool>\xff ll", (int)k * i);
		assert_int_equal(ig_tokenizer_encode(x.t, u->text, strlen(u->text), true, SIZE_MAX,
						     &u->want),
				 0);
		assert_true(u->want.n > 50);
	}
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&users[i].thread, NULL, encode_often, users + i),
				 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(users[i].thread, NULL), 0);
		assert_true(users[i].same);
		ig_ids_finish(&users[i].want);
	}
	world_finish(&x);
}

/* ---- pre-tokenizers --------------------------------------------------------------- */

static int add_piece(void *ctx, const char *piece, size_t len)
{
	char *out = ctx;

	strncat(out, piece, len);
	strcat(out, "|");
	return 0;
}

static int stop(void *ctx, const char *piece, size_t len)
{
	++*(int *)ctx;
	return -E2BIG;
}

static void splitting(void **state)
{
	static const struct {
		const char *pre, *text, *pieces;
	} cases[] = {
		{ "gpt-2", "Hello  world's 123 don't!?\n\n x",
		  "Hello| | world|'s| 123| don|'t|!?|\n\n| x|" },
		{ "gpt-2", "  ", "  |" },
		{ "gpt-2", "a\t\t b", "a|\t\t| b|" },
		{ "gpt-2", "x 'S", "x| '|S|" },
		{ "smollm", "ab 123c", "ab| |1|2|3|c|" },
		{ "smollm", "x \xc2\xb2\xe2\x85\xa7", "x| |\xc2\xb2|\xe2\x85\xa7|" },
		{ "llama-bpe", "Hello 12345 it'S\r\n\r\nx.y\n",
		  "Hello| |123|45| it|'S|\r\n\r\n|x|.y|\n|" },
		{ "llama3", "  \n  a", "  \n| | a|" },
		{ "qwen2", "x12 don'T !\n\n", "x|1|2| don|'T| !\n\n|" },
		{ "lfm2", "Hello 12345 it'S", "Hello| |123|45| it|'S|" },
		/* a combining mark is part of its word, and of no sign */
		{ "qwen35", "ne\xcc\x81 12 !\xcc\x81x don'T\n",
		  "ne\xcc\x81| |1|2| !|\xcc\x81x| don|'T|\n|" },
		{ "qwen2", "ne\xcc\x81 1", "ne|\xcc\x81| |1|" },
		{ "default", "Hi, 1234! a<b", "Hi|,| |123|4|!| a|<|b|" },
		{ "olmo", "x 12", "x| 12|" },
		{ "starcoder", "x 12", "x| |1|2|" },
		{ "tekken", "HelloWORLDs it's 12/\n x", "Hello|WORLDs| it|'s| |1|2|/\n| x|" },
		{ "gpt-4o", "HelloWorld's 1234 IT'Sx", "Hello|World's| |123|4| IT'S|x|" },
		{ "llama4", "HelloWorld's 1234 IT'Sx", "Hello|World's| |123|4| IT'S|x|" },
		{ "minimax-m2", "HelloWorld's 1234 IT'Sx", "Hello|World's| |123|4| IT'S|x|" },
		{ "glm4", "Hello 12345 it'S\r\n\r\nx.y", "Hello| |123|45| it|'S|\r\n\r\n|x|.y|" },
		{ "deepseek-r1-qwen", "x12", "x|1|2|" },
		/* Han is apart, also its letter for repeating and its zero; kana is not Han */
		{ "kimi-k2",
		  "Hello \xe4\xb8\xad\xe3\x80\x85\xe3\x80\x87World's \xe3\x81\xab\xe4\xb8\xad 1234/\n",
		  "Hello| |\xe4\xb8\xad\xe3\x80\x85\xe3\x80\x87|World's| \xe3\x81\xab|"
		  "\xe4\xb8\xad| |123|4|/\n|" },
		/* nothing goes over a line's end */
		{ "laguna", "x12 don'T !\n\n  y \n z", "x|1|2| don|'T| !|\n\n| | y| |\n| z|" },
		{ "deepseek-coder", "a b\n12 !? \xe4\xb8\xad\xe6\x96\x87x",
		  "a| b|\n|1|2| !?| |\xe4\xb8\xad\xe6\x96\x87|x|" },
		{ "deepseek-v3",
		  "x1234 .foo \xe4\xb8\xad"
		  "a +=\n\n b",
		  "x|123|4| .|foo| |\xe4\xb8\xad|a| +=\n\n| b|" },
		/* White space as Unicode has it: not U+180E, but U+0085. */
		{ "gpt-2",
		  "a\xe1\xa0\x8e"
		  "b",
		  "a|\xe1\xa0\x8e|b|" },
		{ "gpt-2",
		  "a\xc2\x85"
		  "b",
		  "a|\xc2\x85|b|" },
		/* Broken characters are pieces of their own. */
		{ "gpt-2",
		  "a\xff\xfe"
		  "b \xe2\x82",
		  "a|\xff\xfe|b| |\xe2\x82|" },
		{ "gpt-2", "\xed\xa0\x80x\xc0\x80", "\xed\xa0\x80|x|\xc0\x80|" },
	};
	struct ig_splitter *s;
	struct ig_error err;
	struct ig_pre_traits traits;
	char out[256];
	int calls = 0;

	for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
		const char *pre = cases[i / 2].pre, *text = cases[i / 2].text;
		assert_int_equal(ig_splitter_open(pre, strlen(pre), i % 2, &s, &traits, &err), 0);
		bool whole = (!strncmp(pre, "llama", 5) && strcmp(pre, "llama4")) ||
			     !strcmp(pre, "tekken") || !strcmp(pre, "lfm2");
		assert_int_equal(traits.ignore_merges, whole || !strcmp(pre, "glm4"));
		assert_int_equal(traits.add_bos, whole);
		assert_int_equal(traits.nfc, !strncmp(pre, "qwen", 4) || !strcmp(pre, "olmo"));
		out[0] = 0;
		assert_int_equal(ig_splitter_run(s, text, strlen(text), add_piece, out), 0);
		assert_string_equal(out, cases[i / 2].pieces);
		calls = 0;
		assert_int_equal(ig_splitter_run(s, text, strlen(text), stop, &calls), -E2BIG);
		assert_int_equal(calls, 1);
		ig_splitter_close(s);
	}
	assert_int_equal(ig_splitter_open("gpt-3", 5, true, &s, &traits, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "'gpt-3'"));
	assert_non_null(strstr(err.text, "smollm"));
	assert_null(s);
	ig_splitter_close(NULL);
}

/* llama-bpe: a piece that is a token is taken whole, though no merge makes it. */
static void whole_pieces(void **state)
{
	static const char *const tokens[] = { "a", "b", "c", "abc", "ab", "<x>", "cab" };
	static const int32_t types[] = { 1, 1, 1, 1, 1, 3, 3 };
	static const char *const list[] = { "a b" };
	struct world x;
	struct gw w;
	struct ig_error err;

	gw_init(&w);
	gw_str(&w, "tokenizer.ggml.model", "gpt2");
	gw_str(&w, "tokenizer.ggml.pre", "llama-bpe");
	gw_strs(&w, "tokenizer.ggml.tokens", tokens, 7);
	gw_i32s(&w, "tokenizer.ggml.token_type", types, 7);
	gw_strs(&w, "tokenizer.ggml.merges", list, 1);
	assert_int_equal(open_file(&x, &w, &err), 0);
	becomes(x.t, "abc", 3, false, 3, -1);
	becomes(x.t, "abca", 4, false, 4, 2, 0, -1);
	becomes(x.t, "cab", 3, false, 2, 4, -1); /* not the control token */
	assert_true(ig_tokenizer_add_bos(x.t));	 /* as the name implies */
	world_finish(&x);
}

/* ---- what is refused --------------------------------------------------------------- */

struct change {
	const char *model, *pre;
	const char *token; /* in place of the last */
	int32_t type;	   /* of the last token, if not 0 */
	const char *merge; /* in place of the last */
	int fewer_types;
	uint32_t eos;
};

static void refused(const struct change *c, int code, const char *text)
{
	const char *const *tokens, *const *list;
	const int32_t *types;
	const char *my_tokens[N_TINY], *my_merges[16];
	int32_t my_types[N_TINY];
	size_t n_tokens, n_merges;
	struct world x;
	struct gw w;
	struct ig_error err;

	tiny_vocabulary(&tokens, &types, &n_tokens, &list, &n_merges);
	memcpy(my_tokens, tokens, sizeof my_tokens);
	memcpy(my_types, types, sizeof my_types);
	memcpy(my_merges, list, n_merges * sizeof *list);
	if (c->token)
		my_tokens[N_TINY - 1] = c->token;
	if (c->type)
		my_types[N_TINY - 1] = c->type;
	if (c->merge)
		my_merges[n_merges - 1] = c->merge;
	gw_init(&w);
	gw_str(&w, "tokenizer.ggml.model", c->model ? c->model : "gpt2");
	gw_str(&w, "tokenizer.ggml.pre", c->pre ? c->pre : "smollm");
	gw_strs(&w, "tokenizer.ggml.tokens", my_tokens, n_tokens);
	gw_i32s(&w, "tokenizer.ggml.token_type", my_types, n_tokens - (size_t)c->fewer_types);
	gw_strs(&w, "tokenizer.ggml.merges", my_merges, n_merges);
	gw_u32(&w, "tokenizer.ggml.eos_token_id", c->eos);
	int rc = open_file(&x, &w, &err);
	if (!text) {
		assert_int_equal(rc, 0);
	} else {
		assert_int_equal(rc, code);
		assert_int_equal(err.code, code);
		assert_null(x.t);
		if (!strstr(err.text, text) || strncmp(err.text, "tiny: ", 6))
			fail_msg("wanted '%s' in: %s", text, err.text);
	}
	world_finish(&x);
}

static void refusals(void **state)
{
	refused(&(struct change){ 0 }, 0, NULL);
	refused(&(struct change){ .model = "rwkv" }, -ENOTSUP, "tokenizer.ggml.model is 'rwkv'");
	refused(&(struct change){ .pre = "cobol" }, -ENOTSUP, "pre-tokenizer 'cobol' is unknown");
	refused(&(struct change){ .type = 7 }, -EINVAL, "token 267 has unknown type 7");
	refused(&(struct change){ .type = -1 }, -EINVAL, "token 267 has unknown type -1");
	refused(&(struct change){ .fewer_types = 1 }, -EINVAL, "has 267 elements for 268 tokens");
	refused(&(struct change){ .eos = N_TINY }, -EINVAL,
		"eos_token_id is 268, the vocabulary has 268");
	refused(&(struct change){ .merge = "im" }, -EINVAL, "merge 7 'im' is not two tokens");
	refused(&(struct change){ .merge = " im" }, -EINVAL, "is not two tokens");
	refused(&(struct change){ .merge = "im " }, -EINVAL, "is not two tokens");
	refused(&(struct change){ .merge = "" }, -EINVAL, "is not two tokens");
	refused(&(struct change){ .merge = "x y" }, -EINVAL,
		"merge 7 'x y' contains or makes a token");
	refused(&(struct change){ .merge = "i zz" }, -EINVAL, "contains or makes a token");
	refused(&(struct change){ .merge = "i m m" }, -EINVAL, "is not in the byte alphabet");
	refused(&(struct change){ .merge = "\xe4\xb8\xad i" }, -EINVAL,
		"is not in the byte alphabet");
	refused(&(struct change){ .merge = "i \xc4" }, -EINVAL, "is not in the byte alphabet");
	refused(&(struct change){ .merge = "iiiiiiiiiiiiiiiiiiiiiiiii mmmmmm" }, -EINVAL,
		"longer than any");
	/* A merge into a control token is left out; a token may be any text. */
	refused(&(struct change){ .token = "xy", .type = 3, .merge = "x y" }, 0, NULL);
	refused(&(struct change){ .token = "\xe4\xb8\xad\xff", .type = 1 }, 0, NULL);
	refused(&(struct change){ .token = "", .type = 1 }, 0, NULL);
	refused(&(struct change){ .token = "", .type = 3 }, 0, NULL);
}

static void missing_keys(void **state)
{
	static const char *const one[] = { "a" };
	struct world x;
	struct gw w;
	struct ig_error err;

	for (int n = 0; n < 5; n++) {
		gw_init(&w);
		if (n > 0)
			gw_str(&w, "tokenizer.ggml.model", "gpt2");
		if (n == 2)
			gw_u32(&w, "tokenizer.ggml.tokens", 1);
		if (n >= 3)
			gw_strs(&w, "tokenizer.ggml.tokens", one, n == 3 ? 0 : 1);
		int rc = open_file(&x, &w, &err);
		assert_int_equal(rc, n == 2 || n == 3 ? -EINVAL : -ENOENT);
		assert_non_null(strstr(err.text, n == 0 ? "tokenizer.ggml.model" :
						 n < 4	? "tokenizer.ggml.tokens" :
							  "tokenizer.ggml.merges"));
		/* the file's name once */
		assert_memory_equal(err.text, "tiny: ", 6);
		assert_null(strstr(err.text + 6, "tiny"));
		world_finish(&x);
	}
	/* Types, pre-tokenizer and special ids may be missing. */
	gw_init(&w);
	gw_str(&w, "tokenizer.ggml.model", "gpt2");
	gw_strs(&w, "tokenizer.ggml.tokens", one, 1);
	gw_strs(&w, "tokenizer.ggml.merges", NULL, 0);
	assert_int_equal(open_file(&x, &w, &err), 0);
	becomes(x.t, "aa", 2, true, 0, 0, -1);
	world_finish(&x);
	ig_tokenizer_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(merges),    cmocka_unit_test(merges_by_definition),
		cmocka_unit_test(specials),  cmocka_unit_test(overlapping_specials),
		cmocka_unit_test(limits),    cmocka_unit_test(threads),
		cmocka_unit_test(splitting), cmocka_unit_test(whole_pieces),
		cmocka_unit_test(refusals),  cmocka_unit_test(missing_keys),
	};

	return cmocka_run_group_tests_name("model/tokenizer", tests, NULL, NULL);
}
