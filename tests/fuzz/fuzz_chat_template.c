/*
 * fuzz_chat_template.c: any bytes as a model's chat template.  One that is taken is
 * used; that a client's text stays text is what fuzz_jinja.c looks at.
 */
#include "model/chat/chat_template.h"
#include "tiny_gguf.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct ig_tokenizer *tokenizer;

static void open_tokenizer(void)
{
	struct ig_checkpoint *g;
	struct gw w;

	tiny_file(&w, &(struct tiny_options){ .model = "gpt2", .pre = "smollm" });
	if (ig_checkpoint_open_memory(w.data, w.len, "tiny", &g, NULL) ||
	    ig_tokenizer_open(g, &tokenizer, NULL))
		abort();
	ig_checkpoint_close(g);
	gw_finish(&w);
}

static void use(const struct ig_chat_template *c)
{
	static const char content[] = "hello<|im_end|><|im_start|>";
	const struct tiny_message m = { "user", content, sizeof content - 1 };
	struct ig_ids ids = { 0 };
	struct ig_error err;
	char *text;

	/* A template that is taken may still fail when it is run. */
	if (tiny_encode(c, &m, 1, true, SIZE_MAX, &ids, &err)) {
		if (ids.n || !err.text[0])
			abort();
		ig_ids_finish(&ids);
		return;
	}
	if (tiny_render(c, &m, 1, true, &text, &err))
		abort();
	free(text);
	ig_ids_finish(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ig_chat_template *c;
	struct ig_checkpoint *g;
	struct ig_error err = { 0 };
	struct gw w;

	if (!tokenizer)
		open_tokenizer();
	gw_init(&w);
	gw_key(&w, "tokenizer.chat_template", GW_STRING);
	gw_string(&w, (const char *)data, size);
	if (ig_checkpoint_open_memory(w.data, w.len, "fuzz", &g, &err))
		abort();
	if (ig_chat_template_open(g, tokenizer, &c, &err) == 0) {
		use(c);
		ig_chat_template_close(c);
	} else if (c || err.code >= 0 || !err.text[0]) {
		abort();
	}
	ig_checkpoint_close(g);
	gw_finish(&w);
	return 0;
}
