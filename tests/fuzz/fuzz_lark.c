/*
 * fuzz_lark.c: grammars in lark's notation.  The first byte says whether text is held as it is or
 * inside a JSON string.  What compiles is walked through a few times: no mask may be empty, what a
 * mask allows must be taken, and a string that is whole must be JSON.
 */
#include "made_vocabulary.h"
#include "model/grammar/grammar.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define N_WALKS 3
#define N_STEPS 60
#define MAX_SIZE 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct ig_tokenizer *tokenizer;

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

static void walk(struct ig_grammar *g, uint64_t seed, bool in_json)
{
	struct ig_grammar_matcher *m = ig_grammar_matcher_create(g);
	static char text[64 * N_STEPS];
	static uint32_t mask[1024];
	size_t n = 0, len;

	if (!m)
		abort();
	for (int i = 0; i < N_STEPS; i++) {
		bool special;
		ig_grammar_matcher_mask(m, mask);
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		int32_t id = choose(mask, (uint32_t)(seed >> 33));
		if (ig_grammar_matcher_accept(m, id))
			abort();
		const char *s = ig_tokenizer_token(tokenizer, id, &len, &special);
		if (ig_tokenizer_is_end(tokenizer, id)) {
			json_t *v = json_loadb(text, n, JSON_DECODE_ANY, NULL);
			if (in_json && !json_is_string(v))
				abort();
			json_decref(v);
			break;
		}
		memcpy(text + n, s, len);
		n += len;
	}
	ig_grammar_matcher_destroy(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ig_error err = { 0 };
	struct ig_grammar *g;
	json_t *definition, *format, *schema;
	bool in_json;
	int rc;

	if (!tokenizer && !(tokenizer = made_vocabulary(600, NULL, 0)))
		abort();
	if (size < 2 || size > MAX_SIZE)
		return 0;
	in_json = data[0] & 1;
	if (!(definition = json_stringn((const char *)data + 1, size - 1)))
		return 0; /* not UTF-8 */
	format = json_pack("{s:s, s:o}", "syntax", "lark", "definition", definition);
	schema = json_pack("{s:s, s:O}", "type", "string", "x-ingot-grammar", format);
	if (!schema)
		abort();
	struct ig_grammar_part part = { .kind = in_json ? IG_GRAMMAR_SCHEMA : IG_GRAMMAR_FORMAT,
					.schema = in_json ? schema : format };
	struct ig_grammar_choice choice = { &part, 1 };
	struct ig_grammar_source source = { .choices = &choice, .n_choices = 1, .max_repeats = 1 };
	rc = ig_grammar_compile(tokenizer, &source, &g, &err);
	if (!rc != !!g || (rc && (err.code != rc || !err.text[0])))
		abort();
	for (uint64_t i = 0; g && i < N_WALKS; i++)
		walk(g, data[0] + i * 7919, in_json);
	ig_grammar_unref(g);
	json_decref(schema);
	json_decref(format);
	return 0;
}
