/*
 * encode_lines.c: texts through a tokenizer and back; compare.py runs it.  It is a GGUF
 * file's, or that of a folder with tokenizer.json, tokenizer.model or tekken.json.
 *
 *   encode_lines FILE: each text on standard input is a uint32 of its bytes, then these;
 *     on standard output come a uint32 of its ids and these, then in the same way as the
 *     text the bytes of these ids and what the detokenizer makes of them
 *   encode_lines FILE special: the same, with the texts of control tokens as these
 *   encode_lines FILE ROUNDS: nothing but the processor's seconds of the fastest of so
 *     many rounds over all texts, and those of opening
 */
#include "model/tokenizer/detokenizer.h"
#include "vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct text {
	char *bytes;
	uint32_t len;
};

static bool read_text(struct text *x)
{
	if (fread(&x->len, sizeof x->len, 1, stdin) != 1)
		return false;
	x->bytes = malloc(x->len + 1u);
	return x->bytes && fread(x->bytes, 1, x->len, stdin) == x->len;
}

static void write_part(const void *data, size_t n, size_t size)
{
	uint32_t count = (uint32_t)n;

	fwrite(&count, sizeof count, 1, stdout);
	fwrite(data, size, n, stdout);
}

static int write_text(const struct ig_tokenizer *t, const struct text *x, bool special)
{
	struct ig_ids l = { 0 };
	struct ig_detokenizer d;
	size_t n_raw = 0, n = 0;

	if (ig_tokenizer_encode(t, x->bytes, x->len, special, SIZE_MAX, &l))
		return -1;
	char *raw = malloc((l.n + 1) * ig_tokenizer_longest(t));
	char *text = malloc((l.n + 2) * ig_detokenizer_max(t));
	if (!raw || !text)
		return -1;
	ig_detokenizer_init(&d, t);
	ig_detokenizer_begin(&d);
	for (size_t i = 0; i < l.n; i++) {
		bool control;
		size_t len;
		const char *bytes = ig_tokenizer_token(t, l.ids[i], &len, &control);
		memcpy(raw + n_raw, bytes, len);
		n_raw += len;
		n += ig_detokenizer_put(&d, l.ids[i], text + n);
	}
	n += ig_detokenizer_flush(&d, text + n);
	write_part(l.ids, l.n, sizeof *l.ids);
	write_part(raw, n_raw, 1);
	write_part(text, n, 1);
	free(raw);
	free(text);
	ig_ids_finish(&l);
	return 0;
}

static double measure(const struct ig_tokenizer *t, int rounds)
{
	struct text *list = NULL;
	size_t n = 0, cap = 0;
	double best = 1e9;

	for (;; n++) {
		if (n == cap) {
			cap = cap ? 2 * cap : 1024;
			list = realloc(list, cap * sizeof *list);
			if (!list)
				exit(1);
		}
		if (!read_text(&list[n]))
			break;
	}
	while (rounds-- > 0) {
		double begin = vocabulary_now();
		for (size_t i = 0; i < n; i++) {
			struct ig_ids l = { 0 };
			if (ig_tokenizer_encode(t, list[i].bytes, list[i].len, false, SIZE_MAX, &l))
				exit(1);
			ig_ids_finish(&l);
		}
		double took = vocabulary_now() - begin;
		best = took < best ? took : best;
	}
	for (size_t i = 0; i < n; i++)
		free(list[i].bytes);
	free(list);
	return best;
}

int main(int argc, char **argv)
{
	struct vocabulary v;
	int rc = 0;

	if (argc < 2 || argc > 3) {
		fprintf(stderr, "encode_lines: a GGUF file or a folder and, to measure, rounds\n");
		return 2;
	}
	if (vocabulary_open(&v, argv[1]))
		return 1;
	bool special = argc == 3 && !strcmp(argv[2], "special");
	if (argc == 3 && !special) {
		double best = measure(v.tokenizer, atoi(argv[2]));
		printf("%.6f %.6f\n", best, v.opening_s);
	} else {
		for (struct text x; !rc && read_text(&x); free(x.bytes))
			rc = write_text(v.tokenizer, &x, special);
	}
	vocabulary_close(&v);
	return rc ? 1 : 0;
}
