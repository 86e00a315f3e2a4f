/*
 * fuzz_tokenizer.c: any bytes as text.  The first byte chooses a pre-tokenizer; over
 * a small vocabulary that has all bytes the ids must give back the very same bytes,
 * with compiled expressions as with interpreted ones, plain text must give no control
 * tokens, and the detokenizer must give UTF-8.
 */
#include "model/detokenizer.h"
#include "model/tokenizer-private.h"
#include "model/utf8-private.h"
#include "tiny_gguf.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const pres[] = { "smollm", "gpt-2", "llama-bpe", "qwen2", "default" };
#define N_PRES (sizeof pres / sizeof pres[0])

static struct ig_tokenizer *tokenizers[N_PRES][2];

static void open_all(void)
{
	for (size_t i = 0; i < N_PRES; i++) {
		struct gw w;
		struct ig_gguf *g;

		tiny_file(&w, &(struct tiny_options){ .model = "gpt2", .pre = pres[i] });
		if (ig_gguf_open_memory(w.data, w.len, "tiny", &g, NULL) ||
		    ig_tokenizer_open_with(g, true, &tokenizers[i][0], NULL) ||
		    ig_tokenizer_open_with(g, false, &tokenizers[i][1], NULL))
			abort();
		ig_gguf_close(g); /* nothing of the file is kept */
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
		size_t n = i < ids->n ? ig_detokenizer_put(&d, ids->ids[i], buf)
				      : ig_detokenizer_flush(&d, buf);
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!tokenizers[0][0])
		open_all();
	if (size == 0)
		return 0;
	struct ig_tokenizer *const *t = tokenizers[data[0] % N_PRES];
	const char *text = (const char *)data + 1;
	size_t len = size - 1;

	for (int special = 0; special < 2; special++) {
		struct ig_ids a = { 0 }, b = { 0 };
		if (ig_tokenizer_encode(t[0], text, len, special, len, &a) ||
		    ig_tokenizer_encode(t[1], text, len, special, len, &b))
			abort();
		if (a.n != b.n || (a.n && memcmp(a.ids, b.ids, a.n * sizeof *a.ids)))
			abort();
		check_bytes(t[0], &a, text, len, special);
		check_stream(t[0], &a);
		ig_ids_finish(&a);
		ig_ids_finish(&b);
	}
	return 0;
}
