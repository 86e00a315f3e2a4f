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
#include "model/tokenizer/tokenizer_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

struct text {
	char *bytes;
	uint32_t len;
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* one thread, whatever runs beside */
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

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
		double begin = now();
		for (size_t i = 0; i < n; i++) {
			struct ig_ids l = { 0 };
			if (ig_tokenizer_encode(t, list[i].bytes, list[i].len, false, SIZE_MAX, &l))
				exit(1);
			ig_ids_finish(&l);
		}
		double took = now() - begin;
		best = took < best ? took : best;
	}
	for (size_t i = 0; i < n; i++)
		free(list[i].bytes);
	free(list);
	return best;
}

#define MAX_FILES 64

struct folder {
	const char *path;
	char *files[MAX_FILES]; /* until the end */
	size_t n;
};

static int find_file(void *ctx, const char *name, const char **data, size_t *len,
		     struct ig_error *err)
{
	struct folder *folder = ctx;
	char path[4096];
	struct stat st;
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", folder->path, name);
	f = folder->n < MAX_FILES ? fopen(path, "rb") : NULL;
	if (!f)
		return -ENOENT;
	char *bytes = folder->files[folder->n++] =
		fstat(fileno(f), &st) ? NULL : malloc((size_t)st.st_size + 1);
	*data = bytes;
	*len = bytes ? fread(bytes, 1, (size_t)st.st_size, f) : 0;
	fclose(f);
	return bytes ? 0 : ig_fail(err, -ENOMEM, "%s: out of memory", path);
}

int main(int argc, char **argv)
{
	struct ig_error err = { 0 };
	struct ig_tokenizer *t;
	struct ig_checkpoint *g = NULL;
	int rc = 0;

	if (argc < 2 || argc > 3) {
		fprintf(stderr, "encode_lines: a GGUF file or a folder and, to measure, rounds\n");
		return 2;
	}
	struct folder folder = { .path = argv[1] };
	struct ig_model_files files = { find_file, &folder };
	struct stat st;
	bool is_folder = !stat(argv[1], &st) && S_ISDIR(st.st_mode);
	if (!is_folder && ig_checkpoint_open(argv[1], NULL, &g, &err)) {
		fprintf(stderr, "encode_lines: %s\n", err.text);
		return 1;
	}
	double begin = now();
	rc = is_folder ? ig_tokenizer_open_files(&files, true, &t, &err) :
			 ig_tokenizer_open(g, &t, &err);
	if (rc) {
		fprintf(stderr, "encode_lines: %s\n", err.text);
		ig_checkpoint_close(g);
		return 1;
	}
	double opening = now() - begin;
	bool special = argc == 3 && !strcmp(argv[2], "special");
	if (argc == 3 && !special) {
		double best = measure(t, atoi(argv[2]));
		printf("%.6f %.6f\n", best, opening);
	} else {
		for (struct text x; !rc && read_text(&x); free(x.bytes))
			rc = write_text(t, &x, special);
	}
	ig_tokenizer_close(t);
	ig_checkpoint_close(g);
	while (folder.n)
		free(folder.files[--folder.n]);
	return rc ? 1 : 0;
}
