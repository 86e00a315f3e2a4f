/*
 * embeddings_peer.c: texts a second of llama.cpp's library, for bench/embeddings.
 *
 * Not part of the build: bench/embeddings compiles it against a llama.cpp tree and its libraries.
 *   embeddings_peer MODEL.gguf N_THREADS
 * reads "N\n" and N texts, a line each, and writes the vectors as float32 [N, width] after a line
 * "WIDTH SECONDS CPU_SECONDS\n"; then the next texts.  A step has as many whole texts as fit in 2048
 * tokens, as llama-server's with -b 2048 -ub 2048 has; the time is that of tokenizing and computing, without
 * HTTP and JSON.
 */
#include "../tests/golden/model/llama_peer.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { max_rows = 2048, max_texts = 256, max_bytes = 1 << 16 };

static void die(const char *what) { peer_die("embeddings_peer", what); }

static double seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The vectors of the n texts of a step, divided by their lengths. */
static void step(struct llama_context *ctx, struct llama_batch *b, int n, int width, float *out)
{
	if (llama_encode(ctx, *b))
		die("llama_encode failed");
	for (int i = 0; i < n; i++, out += width) {
		const float *v = llama_get_embeddings_seq(ctx, i);
		double sum = 0;

		if (!v)
			die("no vector");
		for (int k = 0; k < width; k++)
			sum += (double)v[k] * (double)v[k];
		for (int k = 0; k < width; k++)
			out[k] = (float)(v[k] / sqrt(sum));
	}
	b->n_tokens = 0;
}

static void embed(struct llama_context *ctx, const struct llama_vocab *vocab, struct llama_batch *b,
		  char **texts, int n, int width, float *out)
{
	static llama_token ids[max_rows];
	int in_step = 0;

	for (int i = 0; i < n; i++) {
		int n_ids = llama_tokenize(vocab, texts[i], (int)strlen(texts[i]), ids, max_rows,
					   true, false);

		if (n_ids < 0)
			die("a text is too long");
		if (b->n_tokens + n_ids > max_rows) {
			step(ctx, b, in_step, width, out);
			out += (size_t)in_step * (size_t)width;
			in_step = 0;
		}
		for (int k = 0; k < n_ids; k++) {
			const int at = b->n_tokens++;

			b->token[at] = ids[k];
			b->pos[at] = k;
			b->n_seq_id[at] = 1;
			b->seq_id[at][0] = in_step;
			b->logits[at] = 1;
		}
		in_step++;
	}
	step(ctx, b, in_step, width, out);
}

int main(int argc, char **argv)
{
	static char lines[max_texts][max_bytes];
	char *texts[max_texts];
	int n;

	if (argc != 3)
		die("usage: embeddings_peer MODEL.gguf N_THREADS");
	llama_log_set(peer_quiet, NULL);
	llama_backend_init();
	struct llama_model *m = llama_model_load_from_file(argv[1], llama_model_default_params());
	struct llama_context_params cp = llama_context_default_params();
	cp.n_ctx = cp.n_batch = cp.n_ubatch = max_rows;
	cp.n_seq_max = max_texts;
	cp.kv_unified = true;
	cp.n_threads = cp.n_threads_batch = atoi(argv[2]);
	cp.embeddings = true;
	struct llama_context *ctx = m ? llama_init_from_model(m, cp) : NULL;
	if (!ctx)
		die("can't load the model");
	struct llama_batch b = llama_batch_init(max_rows, 0, 1);
	const int width = llama_model_n_embd(m);
	float *out = malloc(sizeof *out * (size_t)width * max_texts);
	while (out && scanf("%d\n", &n) == 1 && n > 0 && n <= max_texts) {
		for (int i = 0; i < n; i++) {
			if (!fgets(lines[i], max_bytes, stdin))
				die("a text is missing");
			lines[i][strcspn(lines[i], "\n")] = 0;
			texts[i] = lines[i];
		}
		double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
		embed(ctx, llama_model_get_vocab(m), &b, texts, n, width, out);
		printf("%d %.9f %.9f\n", width, seconds(CLOCK_MONOTONIC) - wall,
		       seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu);
		fwrite(out, sizeof *out, (size_t)width * (size_t)n, stdout);
		fflush(stdout);
	}
	free(out);
	llama_batch_free(b);
	llama_free(ctx);
	llama_model_free(m);
	return 0;
}
