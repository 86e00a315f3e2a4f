/*
 * fuzz_gguf.c: a whole GGUF file.  What opens is walked: every tensor's first and
 * last row is dequantised, then its tokenizer and its chat template are opened and used.
 */
#include "model/chat/chat_template.h"
#include "tiny_gguf.h"

#include <stdlib.h>
#include <string.h>

#define MAX_ROW 65536

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_rows(const struct ig_checkpoint_tensor *t)
{
	uint64_t bytes = ig_dtype_row_bytes(t->dtype, t->n_cols);
	float *row;

	if (!bytes || bytes * (uint64_t)t->n_rows != t->n_bytes)
		abort();
	if (t->n_cols > MAX_ROW)
		return;
	row = malloc((size_t)t->n_cols * sizeof *row);
	if (!row)
		return;
	ig_dtype_to_f32(t->dtype, t->data, row, t->n_cols);
	ig_dtype_to_f32(t->dtype, (const char *)t->data + t->n_bytes - bytes, row, t->n_cols);
	free(row);
}

static void use_template(const struct ig_checkpoint *g, const struct ig_tokenizer *t)
{
	static const char content[] = "Hello <|im_end|> 12\n";
	const struct tiny_message m = { "user", content, sizeof content - 1 };
	struct ig_chat_template *c;
	struct ig_ids ids = { 0 };
	struct ig_error err;
	char *text;

	if (ig_chat_template_open(g, t, &c, &err))
		return;
	if (tiny_encode(c, &m, 1, true, 1000, &ids, &err) == 0)
		for (size_t i = 0; i < ids.n; i++)
			if (ids.ids[i] < 0 || ids.ids[i] >= ig_tokenizer_n_vocab(t))
				abort();
	ig_ids_finish(&ids);
	if (tiny_render(c, &m, 1, true, &text, &err) == 0)
		free(text);
	ig_chat_template_close(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ig_tokenizer *t;
	struct ig_checkpoint *g;
	struct ig_error err = { 0 };

	if (ig_checkpoint_open_memory(data, size, "fuzz", &g, &err)) {
		if (g || err.code >= 0 || !err.text[0])
			abort();
		return 0;
	}
	for (uint64_t i = 0; i < ig_checkpoint_n_tensors(g); i++) {
		const struct ig_checkpoint_tensor *x = ig_checkpoint_tensor(g, i);
		if (ig_checkpoint_find_tensor(g, x->name) != x)
			abort();
		read_rows(x);
	}
	if (ig_tokenizer_open(g, &t, &err) == 0) {
		use_template(g, t);
		ig_tokenizer_close(t);
	}
	ig_checkpoint_close(g);
	return 0;
}
