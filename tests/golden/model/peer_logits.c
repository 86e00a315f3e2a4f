/*
 * peer_logits.c: the logits of llama.cpp for the ids of a golden, for comparing.
 *
 * Not part of the build.  Compile it against a llama.cpp tree and its libraries:
 *   cc -O2 -I LLAMA/include -I LLAMA/ggml/include tests/golden/model/peer_logits.c
 *      -o peer_logits -L DIR -lllama -lggml -lggml-base -Wl,-rpath,DIR -lm
 *   ./peer_logits MODEL.gguf smollm2.truth DUMP f32|f16|vectors
 * writes DUMP as truth.py --full does, with that type of the KV cache.  On the weights
 * widened to F32 it is a second opinion about the truth itself; on the quantised file it
 * says what the peer's own arithmetic loses.  With "vectors" a prompt's row is its pooled vector
 * (embeddings, scores of rerankers), of so many values as the golden's head says for a vocabulary.
 */
#include "llama_peer.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *what) { peer_die("peer_logits", what); }

static void must_read(void *p, size_t size, size_t n, FILE *f)
{
	if (fread(p, size, n, f) != n)
		die("the golden is too short");
}

static void feed(struct llama_context *ctx, struct llama_batch *b, const uint16_t *ids, int n,
		 int first)
{
	for (int i = 0; i < n; i++) {
		b->token[i] = ids[i];
		b->pos[i] = first + i;
		b->n_seq_id[i] = 1;
		b->seq_id[i][0] = 0;
		b->logits[i] = i == n - 1;
	}
	b->n_tokens = n;
	if (llama_decode(ctx, *b))
		die("llama_decode failed");
}

int main(int argc, char **argv)
{
	enum { max_ids = 4096 };
	static uint16_t ids[max_ids], forced[256];
	char magic[8];
	uint32_t head[6], n;
	uint8_t sha[32];

	if (argc != 5)
		die("usage: peer_logits MODEL GOLDEN DUMP f32|f16|vectors");
	const bool vectors = !strcmp(argv[4], "vectors");
	FILE *in = fopen(argv[2], "rb"), *out = fopen(argv[3], "wb");
	if (!in || !out)
		die("can't open the golden or the dump");
	must_read(magic, 1, 8, in);
	must_read(head, 4, 6, in);
	must_read(sha, 1, 32, in);
	if (memcmp(magic, "IGTRUTH1", 8) || head[1] > 256)
		die("not a golden");

	llama_log_set(peer_quiet, NULL);
	llama_backend_init();
	struct llama_model *m = llama_model_load_from_file(argv[1], llama_model_default_params());
	if (!m)
		die("can't load the model");
	struct llama_context_params cp = llama_context_default_params();
	cp.n_ctx = max_ids;
	cp.n_batch = cp.n_ubatch = 2048;
	cp.n_threads = cp.n_threads_batch = 2;
	cp.type_k = cp.type_v = strcmp(argv[4], "f16") ? GGML_TYPE_F32 : GGML_TYPE_F16;
	cp.embeddings = vectors;
	cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
	struct llama_context *ctx = llama_init_from_model(m, cp);
	if (!ctx)
		die("can't make a context");
	struct llama_batch b = llama_batch_init(2048, 0, 1);
	long record = 12 + 6L * head[2] + 4L * head[3];
	for (uint32_t p = 0; p < head[0]; p++) {
		must_read(&n, 4, 1, in);
		if (n > 2048)
			die("a prompt is too long");
		must_read(ids, 2, n, in);
		must_read(forced, 2, head[1], in);
		if (fseek(in, record * head[1], SEEK_CUR))
			die("the golden is too short");
		llama_memory_clear(llama_get_memory(ctx), true);
		feed(ctx, &b, ids, (int)n, 0);
		for (uint32_t t = 0; t < head[1]; t++) {
			const float *row = vectors ? llama_get_embeddings_seq(ctx, 0) :
						     llama_get_logits_ith(ctx, -1);
			if (!row)
				die("no result");
			if (fwrite(row, 4, head[4], out) != head[4])
				die("can't write the dump");
			if (t + 1 < head[1])
				feed(ctx, &b, forced + t, 1, (int)(n + t));
		}
	}
	if (fclose(out))
		die("can't write the dump");
	llama_batch_free(b);
	llama_free(ctx);
	llama_model_free(m);
	fclose(in);
	return 0;
}
