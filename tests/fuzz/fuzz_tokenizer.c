/*
 * fuzz_tokenizer.c: any bytes as text, and as a vocabulary.  The first byte chooses a
 * pre-tokenizer or one of SentencePiece's ways; over a small vocabulary that has all
 * bytes the ids must give back the very same bytes, with compiled expressions as with
 * interpreted ones, plain text must give no control tokens, and the detokenizer must give
 * UTF-8.  From MADE on, the bytes are tokens with types and scores, and what is left is
 * the text: ids must be of the vocabulary, and never control tokens.
 */
#include "model/tokenizer/detokenizer.h"
#include "model/tokenizer/tokenizer_private.h"
#include "base/utf8.h"
#include "tiny_spm.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const pres[] = {
	"smollm", "gpt-2",  "llama-bpe",      "deepseek-r1-qwen", "default",
	"tekken", "gpt-4o", "deepseek-coder", "deepseek-v3",
};
#define N_PRES (sizeof pres / sizeof pres[0])

static const struct tiny_spm spms[] = {
	{ .model = "llama" },
	{ .model = "llama", .no_space = true },
	{ .model = "t5" },
};
#define N_SPMS (sizeof spms / sizeof spms[0])
#define N_KINDS (N_PRES + N_SPMS)
#define MADE 192

static struct ig_tokenizer *tokenizers[N_KINDS][2];

static void open_all(void)
{
	for (size_t i = 0; i < N_KINDS; i++) {
		struct gw w;
		struct ig_checkpoint *g;

		if (i < N_PRES)
			tiny_file(&w, &(struct tiny_options){ .model = "gpt2", .pre = pres[i] });
		else
			tiny_spm_file(&w, &spms[i - N_PRES]);
		if (ig_checkpoint_open_memory(w.data, w.len, "tiny", &g, NULL) ||
		    ig_tokenizer_open_with(g, true, &tokenizers[i][0], NULL) ||
		    ig_tokenizer_open_with(g, false, &tokenizers[i][1], NULL))
			abort();
		ig_checkpoint_close(g); /* nothing of the file is kept */
		gw_finish(&w);
	}
}

static void check_bytes(const struct ig_tokenizer *t, const struct ig_ids *ids, const char *text,
			size_t len, bool special)
{
	size_t done = 0;

	for (size_t i = 0; i < ids->n; i++) {
		size_t n;
		bool control;
		const char *bytes = ig_tokenizer_token(t, ids->ids[i], &n, &control);

		if (!bytes || n > len - done || memcmp(bytes, text + done, n) ||
		    (control && !special))
			abort();
		done += n;
	}
	if (done != len)
		abort();
}

static void check_stream(const struct ig_tokenizer *t, const struct ig_ids *ids)
{
	size_t max = ig_detokenizer_max(t);
	char *buf = malloc(max);
	struct ig_detokenizer d;

	if (!buf)
		return;
	ig_detokenizer_init(&d, t);
	for (size_t i = 0; i <= ids->n; i++) {
		size_t n = i < ids->n ? ig_detokenizer_put(&d, ids->ids[i], buf) :
					ig_detokenizer_flush(&d, buf);
		int c;
		if (n > max)
			abort();
		for (size_t k = 0; k < n; k += (size_t)c) {
			c = ig_utf8_check((const unsigned char *)buf + k, n - k);
			if (c <= 0)
				abort();
		}
	}
	free(buf);
}

/* What SentencePiece sees: a space before, and U+2581 as one.  The caller frees it. */
static char *with_spaces(const char *text, size_t *len, bool before)
{
	char *out = malloc(*len + 1);
	size_t n = 0;

	if (!out)
		abort();
	if (before && *len)
		out[n++] = ' ';
	for (size_t i = 0; i < *len;) {
		bool mark = *len - i >= 3 && !memcmp(text + i, "\xe2\x96\x81", 3);
		out[n++] = mark ? ' ' : text[i];
		i += mark ? 3 : 1;
	}
	*len = n;
	return out;
}

/* A vocabulary of the input's own; what comes after it is the text. */
static void check_made(const uint8_t *data, size_t size)
{
	size_t n = size ? data[0] % 64u + 1 : 0, at = 1;
	int32_t types[64];
	float scores[64];
	struct ig_tokenizer *t;
	struct ig_error err;
	struct ig_checkpoint *g;
	struct gw w;

	if (size < 1 + 2 * n)
		return;
	gw_init(&w);
	gw_str(&w, "tokenizer.ggml.model", data[0] & 64 ? "t5" : "llama");
	gw_bool(&w, "tokenizer.ggml.add_space_prefix", data[0] & 128);
	gw_key(&w, "tokenizer.ggml.tokens", GW_ARRAY);
	gw_number(&w, GW_STRING, 4);
	gw_number(&w, n, 8);
	for (size_t i = 0; i < n; i++) {
		uint8_t head = at < size ? data[at++] : 0;
		size_t len = head & 7, left = size - at;
		types[i] = (head >> 3 & 7) % 7;
		scores[i] = at < size ? (float)(int8_t)data[at] : 0;
		gw_string(&w, (const char *)data + at, len < left ? len : left);
		at += len < left ? len : left;
	}
	gw_i32s(&w, "tokenizer.ggml.token_type", types, n);
	gw_key(&w, "tokenizer.ggml.scores", GW_ARRAY);
	gw_number(&w, GW_F32, 4);
	gw_number(&w, n, 8);
	gw_put(&w, scores, n * sizeof *scores);
	if (ig_checkpoint_open_memory(w.data, w.len, "made", &g, NULL))
		abort();
	if (!ig_tokenizer_open(g, &t, &err)) {
		struct ig_ids l = { 0 };
		if (ig_tokenizer_encode(t, (const char *)data + at, size - at, false, SIZE_MAX, &l))
			abort();
		for (size_t i = 0; i < l.n; i++)
			if (l.ids[i] < 0 || l.ids[i] >= (int32_t)n || types[l.ids[i]] == 3)
				abort();
		check_stream(t, &l);
		ig_ids_finish(&l);
		ig_tokenizer_close(t);
	}
	ig_checkpoint_close(g);
	gw_finish(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!tokenizers[0][0])
		open_all();
	if (size == 0)
		return 0;
	if (data[0] >= MADE) {
		check_made(data + 1, size - 1);
		return 0;
	}
	size_t kind = data[0] % N_KINDS;
	struct ig_tokenizer *const *t = tokenizers[kind];
	const char *text = (const char *)data + 1;
	size_t len = size - 1;

	for (int special = 0; special < 2; special++) {
		struct ig_ids a = { 0 }, b = { 0 };
		if (ig_tokenizer_encode(t[0], text, len, special, len + 1, &a) ||
		    ig_tokenizer_encode(t[1], text, len, special, len + 1, &b))
			abort();
		if (a.n != b.n || (a.n && memcmp(a.ids, b.ids, a.n * sizeof *a.ids)))
			abort();
		if (kind < N_PRES) {
			check_bytes(t[0], &a, text, len, special);
		} else if (!special) { /* each text between control tokens has its own space */
			size_t n = len;
			char *seen = with_spaces(text, &n, !spms[kind - N_PRES].no_space);
			check_bytes(t[0], &a, seen, n, false);
			free(seen);
		}
		check_stream(t[0], &a);
		ig_ids_finish(&a);
		ig_ids_finish(&b);
	}
	return 0;
}
