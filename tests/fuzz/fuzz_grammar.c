/*
 * fuzz_grammar.c: the first byte says what the rest is: a JSON schema, a regular
 * expression, or a text between two of them.  What compiles is walked through a few times:
 * no mask may be empty, what a mask allows must be taken, and what a schema lets through
 * must be UTF-8 and, when it is whole, JSON.
 */
#include "made_vocabulary.h"
#include "model/grammar/grammar.h"
#include "base/utf8.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define N_WALKS 3
#define N_STEPS 60
#define MAX_SIZE 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct ig_tokenizer *tokenizer;
static struct ig_grammar_cache *cache;

struct text {
	unsigned char bytes[64 * N_STEPS];
	size_t len;
};

static void check_text(const struct text *t, bool whole)
{
	for (size_t i = 0; i < t->len;) {
		int n = ig_utf8_check(t->bytes + i, t->len - i);
		if (n < 0 || (n == 0 && whole))
			abort();
		i += n ? (size_t)n : t->len - i;
	}
	if (whole) {
		json_t *v = json_loadb((const char *)t->bytes, t->len, JSON_DECODE_ANY, NULL);
		if (!v)
			abort();
		json_decref(v);
	}
}

/* The id of the n-th token that is allowed, from some place on. */
static int32_t choose(const uint32_t *mask, uint32_t from)
{
	uint32_t n_vocab = (uint32_t)ig_tokenizer_n_vocab(tokenizer);

	for (uint32_t i = 0; i < n_vocab; i++) {
		uint32_t id = (from + i) % n_vocab;
		if (mask[id / 32] >> id % 32 & 1)
			return (int32_t)id;
	}
	abort(); /* an empty mask */
}

static void walk(struct ig_grammar *g, uint64_t seed, bool is_json)
{
	struct ig_grammar_matcher *m = ig_grammar_matcher_create(g);
	static uint32_t mask[1024];
	static struct text t;
	bool whole = false;

	if (!m)
		abort();
	t.len = 0;
	for (int i = 0; i < N_STEPS && !whole; i++) {
		size_t len;
		bool special;
		ig_grammar_matcher_mask(m, mask);
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		int32_t id = choose(mask, (uint32_t)(seed >> 33));
		if (ig_grammar_matcher_accept(m, id))
			abort();
		whole = ig_tokenizer_is_end(tokenizer, id);
		const char *s = ig_tokenizer_token(tokenizer, id, &len, &special);
		if (whole)
			break;
		memcpy(t.bytes + t.len, s, len);
		t.len += len;
		if (ig_grammar_matcher_is_done(m))
			ig_grammar_matcher_mask(m, mask);
	}
	if (is_json)
		check_text(&t, whole);
	ig_grammar_matcher_destroy(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ig_grammar_part parts[3] = {
		{ .kind = IG_GRAMMAR_TEXT, .text = "<tool_call>", .len = 11 },
		{ 0 },
		{ .kind = IG_GRAMMAR_TEXT, .text = "]", .len = 1 },
	};
	struct ig_grammar_choice choice = { parts + 1, 1 };
	struct ig_grammar_source source = { .choices = &choice, .n_choices = 1, .max_repeats = 1 };
	struct ig_error err = { 0 };
	struct ig_grammar *g;
	json_t *schema = NULL;
	int rc;

	if (!tokenizer && (!(tokenizer = made_vocabulary(600, NULL, 0)) ||
			   ig_grammar_cache_create(1 << 20, &cache)))
		abort();
	if (size < 2 || size > MAX_SIZE)
		return 0;
	parts[1].text = (const char *)data + 1;
	parts[1].len = size - 1;
	if (data[0] % 4 < 2) {
		schema = json_loadb((const char *)data + 1, size - 1, JSON_DECODE_ANY, NULL);
		if (!schema)
			return 0;
		parts[1].kind = IG_GRAMMAR_SCHEMA;
		parts[1].schema = schema;
	} else {
		parts[1].kind = IG_GRAMMAR_REGEX;
	}
	if (data[0] % 4 == 1 || data[0] % 4 == 3) {
		choice = (struct ig_grammar_choice){ parts, 3 };
		source.max_repeats = 3;
		source.between = ", ";
	}
	rc = ig_grammar_cache_get(cache, tokenizer, &source, &g, &err);
	if (!rc != !!g || (rc && (err.code != rc || !err.text[0])))
		abort();
	for (uint64_t i = 0; g && i < N_WALKS; i++)
		walk(g, data[0] + i * 7919, data[0] % 4 == 0);
	ig_grammar_unref(g);
	json_decref(schema);
	return 0;
}
