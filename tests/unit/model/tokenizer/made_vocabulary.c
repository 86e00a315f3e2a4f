/* made_vocabulary.c: see made_vocabulary.h. */
#include "made_vocabulary.h"

#include "tests/unit/model/formats/tiny_gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const controls[] = {
	"<|im_end|>", "<|endoftext|>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]",
};

static const char *const pieces[] = {
	"{\"",
	"\":",
	"\": ",
	"\": \"",
	"\":\"",
	"\",",
	"\", \"",
	"\",\"",
	"\"}",
	"\"},",
	"\"}]",
	"\"}}",
	"{}",
	"[]",
	"[{",
	"}]",
	"}}",
	"},{",
	"},",
	"}, ",
	"],",
	"]]",
	"[[",
	"[\"",
	"\"]",
	"\"],",
	"{\n",
	"{\n  \"",
	",\n",
	",\n  \"",
	"\n}",
	"\n  ",
	"\n    ",
	"  ",
	"   ",
	"    ",
	"                ",
	"                                        ",
	"true",
	"false",
	"null",
	"tru",
	"nul",
	"true,",
	"false}",
	"null]",
	" true",
	" null",
	"0.",
	".5",
	"1e",
	"e+",
	"E-",
	"-1",
	"-0",
	"00",
	"10",
	"123",
	"2024",
	"2024-",
	"-01",
	"T1",
	"Z\"",
	"\\\"",
	"\\\\",
	"\\n",
	"\\u",
	"\\u00",
	"\\ud83d",
	"\\ude00",
	"\\t\\t",
	"\\\"}",
	"//",
	"://",
	"http",
	"@",
	".com",
	"name",
	"\"name\"",
	"value",
	"type",
	"\"type",
	"kind",
	"id\":",
	"left",
	"right",
	"children\":[",
	"é",
	"\xc3",
	"\xa9",
	"\xf0\x9f",
	"\x98\x80",
	"\x80",
	"\xe2\x80",
	"😀",
	"😀\"",
	"日本",
	"日\"}",
	" \"",
	": ",
	", ",
	"the",
	" the",
	"hello",
	" wor",
	"ld\"",
	"a\"b",
	"\"\"",
	"\"\",",
	"\t",
	"\n\n",
	"\x01",
	"<tool",
	"_call>",
	"{\"name\": \"",
	"\"arguments\": {",
	"abc",
	"ABC",
	"a-b",
	"x_y",
	"...",
	"!?",
	"'",
	"''",
	"(",
	")",
	"[^",
	"twin",
	"twin",
};

static unsigned long long seed;

static unsigned draw(unsigned n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (unsigned)(seed % n);
}

/* In GPT-2's alphabet for bytes. */
static size_t spell(const char *s, size_t len, char *out)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		unsigned b = (unsigned char)s[i], c = b, next = 0x100;
		for (unsigned k = 0; k < 256; k++) {
			bool printable = (k >= 0x21 && k <= 0x7e) || (k >= 0xa1 && k != 0xad);
			if (k == b) {
				c = printable ? b : next;
				break;
			}
			next += !printable;
		}
		if (c < 0x80) {
			out[n++] = (char)c;
		} else {
			out[n++] = (char)(0xc0 | c >> 6);
			out[n++] = (char)(0x80 | (c & 63));
		}
	}
	return n;
}

static size_t make_up(char *out)
{
	static const char *const marks[] = {
		"\"", "\",", "\":", "\"}", ",", ".", ":",  ";", ")", "(", "=",
		"==", "->",  "/",   "\\",  "_", "-", "\n", "}", "]", "{", "[",
	};
	static const char *const letters[] = {
		"e", "t", "a", "o", "i", "n", "s",  "r",  "h",	"l", "d", "c",
		"u", "m", "f", "p", "g", "w", "y",  "b",  "v",	"k", "x", "j",
		"q", "z", "é", "ü", "ж", "и", "日", "の", "한", "α",
	};
	unsigned kind = draw(60), len = 4 + draw(9);
	size_t n = 0;

	if (draw(2))
		out[n++] = ' ';
	for (unsigned i = 0; i < len; i++) {
		const char *s = letters[draw(kind < 50 ? 26 : 34)];
		if (kind == 56 && i < 5)
			s = marks[draw(sizeof marks / sizeof marks[0])];
		memcpy(out + n, s, strlen(s));
		n += strlen(s);
		if (kind == 57)
			out[n - 1] = (char)('0' + draw(10));
		if (kind == 58 && out[n - 1] >= 'a')
			out[n - 1] &= (char)~32;
	}
	if (kind == 59) {
		const char *s = marks[draw(sizeof marks / sizeof marks[0])];
		memcpy(out + n, s, strlen(s));
		n += strlen(s);
	}
	return n;
}

struct ig_tokenizer *made_vocabulary(size_t n, const char *lacking, size_t n_lacking)
{
	size_t n_pieces = sizeof pieces / sizeof pieces[0], i;
	struct ig_tokenizer *t;
	struct ig_checkpoint *g;
	struct gw w;
	char text[128], spelt[256];
	int32_t *types;

	seed = 88172645463325252ull;
	if (n < N_MADE_LEAST + n_pieces)
		n = N_MADE_LEAST + n_pieces;
	types = malloc(n * sizeof *types);
	if (!types)
		abort();
	gw_init(&w);
	gw_str(&w, "tokenizer.ggml.model", "gpt2");
	gw_str(&w, "tokenizer.ggml.pre", "default");
	gw_key(&w, "tokenizer.ggml.tokens", GW_ARRAY);
	gw_number(&w, GW_STRING, 4);
	gw_number(&w, n, 8);
	for (i = 0; i < n; i++) {
		size_t len = 1;
		types[i] = i < MADE_BYTE ? 3 : 1;
		if (i < MADE_BYTE) {
			gw_string(&w, controls[i], strlen(controls[i]));
			continue;
		} else if (i < N_MADE_LEAST) {
			text[0] = (char)(i - MADE_BYTE);
			if (n_lacking && memchr(lacking, text[0], n_lacking))
				len = (size_t)sprintf(text, "lacking%zu", i);
		} else if (i - N_MADE_LEAST < n_pieces) {
			len = strlen(pieces[i - N_MADE_LEAST]);
			memcpy(text, pieces[i - N_MADE_LEAST], len);
		} else {
			len = make_up(text);
		}
		gw_string(&w, spelt, spell(text, len, spelt));
	}
	gw_i32s(&w, "tokenizer.ggml.token_type", types, n);
	gw_strs(&w, "tokenizer.ggml.merges", NULL, 0);
	gw_u32(&w, "tokenizer.ggml.eos_token_id", MADE_END);
	if (ig_checkpoint_open_memory(w.data, w.len, "made", &g, NULL) ||
	    ig_tokenizer_open(g, &t, NULL))
		abort();
	ig_checkpoint_close(g);
	gw_finish(&w);
	free(types);
	return t;
}
