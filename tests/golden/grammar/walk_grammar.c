/*
 * walk_grammar.c: walks through grammars for golden.py.  A JSON list of cases on standard
 * input, each {"schema": … | "regex": … | "format": {"syntax", "definition"} | "object": true,
 * "walks": N, "most": N, "accept": [texts], "reject": [texts]}; on standard output a line for each, {"error": …} or {"outputs":
 * [texts], "accepted": [bool], "rejected": [bool]}, and "problem" when a mask was empty,
 * lied, or a walk did not end.  With "most" a walk of more tokens is broken off: false.
 *
 *   walk_grammar SEED [MODEL.gguf]      without a model: a made-up vocabulary
 */
#include "made_vocabulary.h"
#include "base/strbuf.h"
#include "model/grammar/grammar.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_FREE 40 /* tokens before a walk turns to what closes */
#define N_MOST 6000

static struct ig_tokenizer *tokenizer;
static struct ig_grammar_cache *cache;
static uint32_t *mask;
static int32_t *allowed, byte_ids[256];
static unsigned long long seed;

static unsigned draw(unsigned n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (unsigned)((seed >> 11) % n);
}

static size_t list_allowed(void)
{
	int32_t n_vocab = ig_tokenizer_n_vocab(tokenizer);
	size_t n = 0;

	for (int32_t w = 0; w < (n_vocab + 31) / 32; w++)
		for (uint32_t bits = mask[w]; bits; bits &= bits - 1)
			allowed[n++] = w * 32 + __builtin_ctz(bits);
	return n;
}

static bool is_allowed(int32_t id) { return mask[id / 32] >> id % 32 & 1; }

/* How odd a token is: what isn't a letter or a digit, and length. */
static unsigned oddness(int32_t id)
{
	size_t len;
	bool special;
	const unsigned char *s =
		(const unsigned char *)ig_tokenizer_token(tokenizer, id, &len, &special);
	unsigned odd = special ? 8 : (unsigned)(len < 8 ? len : 8);

	for (size_t i = 0; i < len; i++)
		odd += s[i] >= 0x80 ? 3 : !((s[i] | 32) >= 'a' && (s[i] | 32) <= 'z') ? 2 : 0;
	return odd;
}

static int32_t odd_token(size_t n)
{
	int32_t best = allowed[draw((unsigned)n)];

	for (unsigned i = 0; i < 12; i++) {
		int32_t other = allowed[draw((unsigned)n)];
		if (oddness(other) > oddness(best))
			best = other;
	}
	return best;
}

static int32_t closing_token(size_t n, bool late)
{
	const char *order = draw(4) > (late ? 2 : 0) ? "\"}]fnt0123456789:eEuls-. " :
						       "}]\"fnt0123456789:eEuls-. ";

	for (size_t i = 0; i < n; i++)
		if (ig_tokenizer_is_end(tokenizer, allowed[i]))
			return allowed[i];
	if (draw(late ? 4 : 2))
		for (const char *p = order; *p; p++)
			if (byte_ids[(unsigned char)*p] >= 0 &&
			    is_allowed(byte_ids[(unsigned char)*p]))
				return byte_ids[(unsigned char)*p];
	for (unsigned i = draw(2); i < 1000; i++) {
		int b = i % 2 ? "ab,"[draw(3)] : (int)draw(i < 500 ? 128 : 256);
		if (byte_ids[b] >= 0 && is_allowed(byte_ids[b]))
			return byte_ids[b];
	}
	return allowed[draw((unsigned)n)];
}

static const char *walk(struct ig_grammar *g, unsigned kind, unsigned n_most,
			struct ig_strbuf *text, bool *broken_off)
{
	struct ig_grammar_matcher *m = ig_grammar_matcher_create(g);
	const char *problem = NULL;
	unsigned n_free = kind == 2 ? 400 : N_FREE;

	if (!m)
		return "out of memory";
	for (unsigned i = 0;; i++) {
		int32_t id, other = (int32_t)draw((unsigned)ig_tokenizer_n_vocab(tokenizer));
		size_t n, len;
		bool special;
		const char *bytes;
		ig_grammar_matcher_mask(m, mask);
		n = list_allowed();
		*broken_off = n_most && i == n_most;
		if (*broken_off)
			break;
		if (i > N_MOST)
			problem = "a walk does not end";
		else if (!n)
			problem = "an empty mask";
		else if (!is_allowed(other) && ig_grammar_matcher_accept(m, other) != -EINVAL)
			problem = "accepted what the mask forbids";
		if (problem)
			break;
		id = i >= n_free	 ? closing_token(n, i > 1500) :
		     kind == 1		 ? odd_token(n) :
		     kind == 2 && n < 40 ? allowed[n - 1] :
					   allowed[draw((unsigned)n)];
		if (i < 6 && n > 1 && kind != 0 && ig_tokenizer_is_end(tokenizer, id))
			id = allowed[draw((unsigned)n)];
		if (ig_grammar_matcher_accept(m, id)) {
			problem = "refused what the mask allows";
			break;
		}
		if (ig_tokenizer_is_end(tokenizer, id))
			break;
		bytes = ig_tokenizer_token(tokenizer, id, &len, &special);
		ig_strbuf_add(text, bytes, len);
	}
	ig_grammar_matcher_destroy(m);
	return problem;
}

/* Whether the grammar takes the text, cut into tokens in some way. */
static bool takes(struct ig_grammar *g, const char *text, size_t len, bool bytes_only)
{
	struct ig_grammar_matcher *m = ig_grammar_matcher_create(g);
	bool ok = m, end = false;

	for (size_t i = 0; i < len && ok;) {
		int32_t id = byte_ids[(unsigned char)text[i]];
		size_t n = 1;
		for (int32_t k = 0; k < 40 && !bytes_only; k++) {
			int32_t other = (int32_t)draw((unsigned)ig_tokenizer_n_vocab(tokenizer));
			size_t other_n;
			bool special;
			const char *s = ig_tokenizer_token(tokenizer, other, &other_n, &special);
			if (!special && other_n > n && other_n <= len - i &&
			    !memcmp(s, text + i, other_n)) {
				id = other;
				n = other_n;
			}
		}
		ig_grammar_matcher_mask(m, mask);
		ok = id >= 0 && is_allowed(id);
		if (ok != (id >= 0 && !ig_grammar_matcher_accept(m, id)))
			abort(); /* mask and accept disagree */
		i += n;
	}
	if (ok) {
		ig_grammar_matcher_mask(m, mask);
		for (int32_t id = 0; id < ig_tokenizer_n_vocab(tokenizer); id++)
			end = end || (ig_tokenizer_is_end(tokenizer, id) && is_allowed(id));
	}
	ig_grammar_matcher_destroy(m);
	return ok && end;
}

static json_t *run_texts(struct ig_grammar *g, const json_t *texts)
{
	json_t *out = json_array(), *one;
	size_t i;

	json_array_foreach(texts, i, one)
	{
		const char *s = json_string_value(one);
		size_t len = json_string_length(one);
		bool ok = takes(g, s, len, true);
		if (ok != takes(g, s, len, false))
			abort();
		json_array_append_new(out, json_boolean(ok));
	}
	return out;
}

static json_t *run_case(const json_t *one)
{
	const json_t *regex = json_object_get(one, "regex"),
		     *schema = json_object_get(one, "schema"),
		     *format = json_object_get(one, "format");
	struct ig_grammar_part part = {
		.kind = regex  ? IG_GRAMMAR_REGEX :
			schema ? IG_GRAMMAR_SCHEMA :
			format ? IG_GRAMMAR_FORMAT :
				 IG_GRAMMAR_OBJECT,
		.text = json_string_value(regex),
		.len = json_string_length(regex),
		.schema = schema ? schema : format,
	};
	const struct ig_grammar_choice choice = { &part, 1 };
	const struct ig_grammar_source source = { .choices = &choice,
						  .n_choices = 1,
						  .max_repeats = 1 };
	json_t *result, *outputs = json_array();
	struct ig_error err = { 0 };
	struct ig_grammar *g;
	const char *problem = NULL;

	if (ig_grammar_cache_get(cache, tokenizer, &source, &g, &err))
		return json_pack("{s:o, s:s}", "outputs", outputs, "error", err.text);
	for (int i = 0; i < json_integer_value(json_object_get(one, "walks")) && !problem; i++) {
		struct ig_strbuf text = { 0 };
		bool off = false;
		problem = walk(g, (unsigned)i % 3,
			       (unsigned)json_integer_value(json_object_get(one, "most")), &text,
			       &off);
		/* Bytes that are no UTF-8 come out as null. */
		json_t *s = off ? json_false() : json_stringn(text.data ? text.data : "", text.len);
		json_array_append_new(outputs, s ? s : json_null());
		ig_strbuf_finish(&text);
	}
	result = json_pack("{s:o, s:o, s:o, s:s?}", "outputs", outputs, "accepted",
			   run_texts(g, json_object_get(one, "accept")), "rejected",
			   run_texts(g, json_object_get(one, "reject")), "problem", problem);
	ig_grammar_unref(g);
	return result;
}

int main(int argc, char **argv)
{
	json_error_t err;
	json_t *cases = json_loadf(stdin, JSON_ALLOW_NUL, &err), *one;
	struct ig_checkpoint *file = NULL;
	struct ig_error error = { 0 };
	size_t i;

	if (!cases || argc < 2 || argc > 3) {
		fprintf(stderr, "walk_grammar: usage, or line %d: %s\n", err.line, err.text);
		return 2;
	}
	seed = strtoull(argv[1], NULL, 10) * 2654435769u + 88172645463325252ull;
	if (argc == 3) {
		if (ig_checkpoint_open(argv[2], NULL, &file, &error) ||
		    ig_tokenizer_open(file, &tokenizer, &error)) {
			fprintf(stderr, "walk_grammar: %s\n", error.text);
			return 2;
		}
	} else {
		unsigned long long kept = seed;
		tokenizer = made_vocabulary(2500, NULL, 0);
		seed = kept;
	}
	size_t n_vocab = (size_t)ig_tokenizer_n_vocab(tokenizer);
	mask = calloc(n_vocab / 32 + 1, sizeof *mask);
	allowed = malloc(n_vocab * sizeof *allowed);
	if (!mask || !allowed || ig_grammar_cache_create(64 << 20, &cache))
		return 2;
	memset(byte_ids, 0xff, sizeof byte_ids);
	for (int32_t id = 0; id < (int32_t)n_vocab; id++) {
		size_t len;
		bool special;
		const char *s = ig_tokenizer_token(tokenizer, id, &len, &special);
		if (len == 1 && !special && byte_ids[(unsigned char)*s] < 0)
			byte_ids[(unsigned char)*s] = id;
	}
	json_array_foreach(cases, i, one)
	{
		json_t *result = run_case(one);
		if (!result || json_dumpf(result, stdout, JSON_COMPACT))
			return 2;
		putchar('\n');
		fflush(stdout);
		json_decref(result);
	}
	json_decref(cases);
	ig_grammar_cache_destroy(cache);
	ig_tokenizer_close(tokenizer);
	if (file)
		ig_checkpoint_close(file);
	free(mask);
	free(allowed);
	return 0;
}
