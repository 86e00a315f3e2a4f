/* tiny_gguf.c: see tiny_gguf.h. */
#include "tiny_gguf.h"

#include <jansson.h>

#include <stdlib.h>
#include <string.h>

enum { AT_N_TENSORS = 8, AT_N_KEYS = 16 };

void gw_put(struct gw *w, const void *data, size_t len)
{
	if (w->len + len > w->cap) {
		w->cap = 2 * (w->len + len);
		w->data = realloc(w->data, w->cap);
		if (!w->data)
			abort();
	}
	if (len)
		memcpy(w->data + w->len, data, len);
	w->len += len;
}

void gw_number(struct gw *w, uint64_t v, unsigned n_bytes) { gw_put(w, &v, n_bytes); }

void gw_patch(struct gw *w, size_t at, uint64_t v, unsigned n_bytes)
{
	memcpy(w->data + at, &v, n_bytes);
}

void gw_string(struct gw *w, const char *s, size_t len)
{
	gw_number(w, len, 8);
	gw_put(w, s, len);
}

void gw_init(struct gw *w)
{
	*w = (struct gw){ 0 };
	gw_put(w, "GGUF", 4);
	gw_number(w, 3, 4);
	gw_number(w, 0, 8);
	gw_number(w, 0, 8);
}

void gw_finish(struct gw *w)
{
	free(w->data);
	*w = (struct gw){ 0 };
}

static void count(struct gw *w, size_t at)
{
	uint64_t n;

	memcpy(&n, w->data + at, sizeof n);
	gw_patch(w, at, n + 1, 8);
}

void gw_key(struct gw *w, const char *key, uint32_t type)
{
	count(w, AT_N_KEYS);
	gw_string(w, key, strlen(key));
	gw_number(w, type, 4);
}

void gw_u32(struct gw *w, const char *key, uint32_t v)
{
	gw_key(w, key, GW_U32);
	gw_number(w, v, 4);
}

void gw_f32(struct gw *w, const char *key, float v)
{
	gw_key(w, key, GW_F32);
	gw_put(w, &v, sizeof v);
}

void gw_bool(struct gw *w, const char *key, bool v)
{
	gw_key(w, key, GW_BOOL);
	gw_number(w, v, 1);
}

void gw_str(struct gw *w, const char *key, const char *s)
{
	gw_key(w, key, GW_STRING);
	gw_string(w, s, strlen(s));
}

void gw_strs(struct gw *w, const char *key, const char *const *s, size_t n)
{
	gw_key(w, key, GW_ARRAY);
	gw_number(w, GW_STRING, 4);
	gw_number(w, n, 8);
	for (size_t i = 0; i < n; i++)
		gw_string(w, s[i], strlen(s[i]));
}

void gw_i32s(struct gw *w, const char *key, const int32_t *v, size_t n)
{
	gw_key(w, key, GW_ARRAY);
	gw_number(w, GW_I32, 4);
	gw_number(w, n, 8);
	gw_put(w, v, n * sizeof *v);
}

void gw_tensor(struct gw *w, const char *name, const uint64_t *ne, uint32_t n_dims, uint32_t dtype,
	       uint64_t offset)
{
	count(w, AT_N_TENSORS);
	gw_string(w, name, strlen(name));
	gw_number(w, n_dims, 4);
	for (uint32_t d = 0; d < n_dims; d++)
		gw_number(w, ne[d], 8);
	gw_number(w, dtype, 4);
	gw_number(w, offset, 8);
}

void gw_data(struct gw *w, uint32_t alignment, size_t n)
{
	static const char zeros[64];

	while (w->len % alignment)
		gw_put(w, zeros, 1);
	for (; n > sizeof zeros; n -= sizeof zeros)
		gw_put(w, zeros, sizeof zeros);
	gw_put(w, zeros, n);
}

/* ---- the small vocabulary ------------------------------------------------------- */

/* "Ġ" is a space; the emoji's bytes are f0 9f 98 80, "ðŁĺĢ" in the alphabet. */
static const char *const merges[] = {
	"h e",
	"l l",
	"he ll",
	"hell o",
	"\xc4\xa0 w",
	"\xc3\xb0 \xc5\x81",
	"\xc3\xb0\xc5\x81 \xc4\xba",
	"i m",
};
static const char *const merged[] = {
	"he", "ll", "hell", "hello", "\xc4\xa0w", "\xc3\xb0\xc5\x81", "\xc3\xb0\xc5\x81\xc4\xba",
	"im",
};

void tiny_vocabulary(const char *const **tokens, const int32_t **types, size_t *n_tokens,
		     const char *const **merge_list, size_t *n_merges)
{
	static char names[256][3];
	static const char *list[N_TINY];
	static int32_t kinds[N_TINY];
	unsigned next = 0x100;

	for (unsigned i = 0; i < N_TINY; i++)
		kinds[i] = 1;
	list[TINY_END_OF_TEXT] = "<|endoftext|>";
	list[TINY_START] = "<|im_start|>";
	list[TINY_END] = "<|im_end|>";
	kinds[TINY_END_OF_TEXT] = kinds[TINY_START] = kinds[TINY_END] = 3;
	for (unsigned b = 0; b < 256; b++) {
		bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad);
		unsigned c = printable ? b : next++;
		if (c < 0x80) {
			names[b][0] = (char)c;
			names[b][1] = 0;
		} else {
			names[b][0] = (char)(0xc0 | c >> 6);
			names[b][1] = (char)(0x80 | (c & 63));
			names[b][2] = 0;
		}
		list[TINY_BYTE + b] = names[b];
	}
	for (unsigned i = 0; i < sizeof merged / sizeof merged[0]; i++)
		list[TINY_HE + i] = merged[i];
	list[TINY_TOOL] = "<tool>";
	kinds[TINY_TOOL] = 4;
	*tokens = list;
	*types = kinds;
	*n_tokens = N_TINY;
	*merge_list = merges;
	*n_merges = sizeof merges / sizeof merges[0];
}

void tiny_file(struct gw *w, const struct tiny_options *o)
{
	const char *const *tokens, *const *list;
	const int32_t *types;
	size_t n_tokens, n_merges;

	tiny_vocabulary(&tokens, &types, &n_tokens, &list, &n_merges);
	gw_init(w);
	if (o->model)
		gw_str(w, "tokenizer.ggml.model", o->model);
	if (o->pre)
		gw_str(w, "tokenizer.ggml.pre", o->pre);
	gw_strs(w, "tokenizer.ggml.tokens", tokens, n_tokens);
	gw_i32s(w, "tokenizer.ggml.token_type", types, n_tokens);
	gw_strs(w, "tokenizer.ggml.merges", list, n_merges);
	gw_u32(w, "tokenizer.ggml.bos_token_id", TINY_START);
	gw_u32(w, "tokenizer.ggml.eos_token_id", TINY_END);
	if (!o->no_bos_key)
		gw_bool(w, "tokenizer.ggml.add_bos_token", false);
	if (o->chat_template)
		gw_str(w, "tokenizer.chat_template", o->chat_template);
}

static json_t *messages_of(const struct tiny_message *m, size_t n)
{
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(
			list,
			json_pack("{s:o, s:o}", "role",
				  json_stringn_nocheck(m[i].role, strlen(m[i].role)), "content",
				  json_stringn_nocheck(m[i].content, m[i].content_len)));
	return list;
}

int tiny_encode(const struct ig_chat_template *c, const struct tiny_message *m, size_t n,
		bool add_generation_prompt, size_t max_ids, struct ig_ids *out,
		struct ig_error *err)
{
	json_t *messages = messages_of(m, n);
	struct ig_chat_input in = { .messages = messages,
				    .add_generation_prompt = add_generation_prompt };
	int rc = ig_chat_template_encode_json(c, &in, max_ids, out, err);

	json_decref(messages);
	return rc;
}

int tiny_render(const struct ig_chat_template *c, const struct tiny_message *m, size_t n,
		bool add_generation_prompt, char **text, struct ig_error *err)
{
	json_t *messages = messages_of(m, n);
	struct ig_chat_input in = { .messages = messages,
				    .add_generation_prompt = add_generation_prompt };
	int rc = ig_chat_template_render_json(c, &in, text, err);

	json_decref(messages);
	return rc;
}
