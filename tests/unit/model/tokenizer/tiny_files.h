/*
 * tiny_files.h: the files of a small model's folder in memory: tokenizer.json of each kind,
 * tokenizer.model, tekken.json, and whatever a test puts beside them.  For tests and fuzz
 * targets only.  Out of memory aborts.
 */
#pragma once

#include "base/json.h"
#include "model/tokenizer/tokenizer_private.h"
#include "tiny_spm.h"

#include <errno.h>
#include <stdlib.h>

#define N_TINY_FILES 8

struct tiny_folder {
	struct {
		const char *name, *data;
		size_t len;
	} files[N_TINY_FILES];
	unsigned n;
};

static inline void tiny_put(struct tiny_folder *f, const char *name, const char *data, size_t len)
{
	if (f->n == N_TINY_FILES)
		abort();
	f->files[f->n].name = name;
	f->files[f->n].data = data;
	f->files[f->n++].len = len;
}

static inline int tiny_find(void *ctx, const char *name, const char **data, size_t *len,
			    struct ig_error *err)
{
	const struct tiny_folder *f = ctx;

	for (unsigned i = 0; i < f->n; i++)
		if (!strcmp(f->files[i].name, name)) {
			*data = f->files[i].data;
			*len = f->files[i].len;
			return 0;
		}
	return -ENOENT;
}

static inline struct ig_model_files tiny_model_files(struct tiny_folder *f)
{
	return (struct ig_model_files){ tiny_find, f };
}

/* ---- tokenizer.json ------------------------------------------------------------------ */

enum tiny_kind { TINY_BYTES, TINY_PAIRS, TINY_UNIGRAM };

/* Parts of the file in JSON; NULL: the default of the kind. */
struct tiny_json {
	enum tiny_kind kind;
	const char *normalizer, *pre_tokenizer, *post_processor, *decoder, *added;
	const char *settings; /* of the model */
	const char *more_vocab, *merges;
};

enum { /* ids of all kinds */
       TJ_UNKNOWN,
       TJ_START,
       TJ_END,
       TJ_USER,
       TJ_BYTE, /* the byte b is TJ_BYTE + b */
       TJ_SPACE = TJ_BYTE + 256,
       TJ_H,
       TJ_E,
       TJ_L,
       TJ_O,
       TJ_HE,
       TJ_LL,
       TJ_HELL,
       TJ_HELLO,
       TJ_SPACE_HELLO,
       N_TJ,
};

/* GPT-2's letter for a byte, as UTF-8. */
static inline void tiny_letter(unsigned b, char *out)
{
	unsigned c = b, n = 0;
	bool plain = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad);

	for (unsigned i = 0; i < b; i++)
		n += !((i >= 0x21 && i <= 0x7e) || (i >= 0xa1 && i != 0xad));
	if (!plain)
		c = 0x100 + n;
	if (c < 0x80) {
		out[0] = (char)c;
		out[1] = 0;
	} else {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 63));
		out[2] = 0;
	}
}

static inline void tiny_json(struct ig_strbuf *b, const struct tiny_json *o)
{
	/* Of byte-level BPE the letters are bytes, and these ids are left free. */
	static const char *const pieces[N_TJ - TJ_SPACE] = {
		"\xe2\x96\x81", "h",  "e",    "l",     "o",
		"he",		"ll", "hell", "hello", "\xe2\x96\x81hello",
	};
	static const char *const merges[] = { "l l", "h e", "he ll", "hell o" };
	bool bytes = o->kind == TINY_BYTES, unigram = o->kind == TINY_UNIGRAM;
	const char *space = bytes ? "\xc4\xa0" : "\xe2\x96\x81";
	char letter[8];

#define PART(given, otherwise) ((given) ? (given) : (otherwise))
	*b = (struct ig_strbuf){ 0 };
	ig_strbuf_printf(b, "{\"version\": \"1.0\", \"truncation\": null, \"added_tokens\": %s,\n",
			 PART(o->added,
			      "[{\"id\": 0, \"content\": \"<unk>\", \"special\": true},"
			      "{\"id\": 1, \"content\": \"<s>\", \"special\": true},"
			      "{\"id\": 2, \"content\": \"</s>\", \"special\": true},"
			      "{\"id\": 3, \"content\": \"<tool>\", \"special\": false}]"));
	ig_strbuf_printf(
		b,
		"\"normalizer\": %s, \"pre_tokenizer\": %s, \"post_processor\": %s,"
		"\"decoder\": %s,\n\"model\": {\"type\": \"%s\", %s \"vocab\": %s",
		PART(o->normalizer,
		     bytes || unigram ?
			     "null" :
			     "{\"type\": \"Sequence\", \"normalizers\": ["
			     "{\"type\": \"Prepend\", \"prepend\": \"\\u2581\"}, {\"type\": "
			     "\"Replace\","
			     "\"pattern\": {\"String\": \" \"}, \"content\": \"\\u2581\"}]}"),
		PART(o->pre_tokenizer,
		     bytes   ? "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}" :
		     unigram ? "{\"type\": \"Metaspace\", \"replacement\": \"\\u2581\","
			       "\"prepend_scheme\": \"always\", \"split\": true}" :
			       "null"),
		PART(o->post_processor,
		     "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\":"
		     "{\"id\": \"<s>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\"}}],"
		     "\"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [1]}}}"),
		PART(o->decoder,
		     bytes ? "{\"type\": \"ByteLevel\"}" :
			     "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\","
			     " \"pattern\":"
			     "{\"String\": \"\\u2581\"}, \"content\": \" \"}, {\"type\": "
			     "\"ByteFallback\"},"
			     "{\"type\": \"Fuse\"}, {\"type\": \"Strip\", \"content\": \" \","
			     " \"start\": 1,"
			     "\"stop\": 0}]}"),
		unigram ? "Unigram" : "BPE",
		PART(o->settings,
		     bytes   ? "" :
		     unigram ? "\"unk_id\": 0, \"byte_fallback\": true," :
			       "\"unk_token\": \"<unk>\", \"fuse_unk\": true, \"byte_fallback\": "
			       "true,"),
		unigram ? "[" : "{");
#undef PART
	for (int i = 0; i < N_TJ; i++) {
		char name[8] = "";
		const char *text = i == TJ_UNKNOWN ? "<unk>" :
				   i == TJ_START   ? "<s>" :
				   i == TJ_END	   ? "</s>" :
				   i == TJ_USER	   ? "<tool>" :
						     name;
		double score = i < TJ_SPACE ? 0 : -20 + (i - TJ_SPACE);
		if (i >= TJ_SPACE && (!bytes || i >= TJ_HE)) {
			text = pieces[i - TJ_SPACE];
			if (i == TJ_SPACE_HELLO && bytes)
				text = "\xc4\xa0hello";
		} else if (i >= TJ_SPACE) {
			continue;
		} else if (i >= TJ_BYTE && bytes) {
			tiny_letter((unsigned)(i - TJ_BYTE), letter);
			text = letter;
		} else if (i >= TJ_BYTE) {
			snprintf(name, sizeof name, "<0x%02X>", (unsigned)(i - TJ_BYTE) & 0xff);
		}
		ig_strbuf_puts(b, i ? unigram ? ", [" : ", " : unigram ? "[" : "");
		ig_json_put_text(&(struct ig_json_writer){ .out = b }, NULL, text);
		if (unigram)
			ig_strbuf_printf(b, ", %g]", score);
		else
			ig_strbuf_printf(b, ": %d", i);
	}
	ig_strbuf_printf(b, "%s%s", o->more_vocab ? o->more_vocab : "", unigram ? "]" : "}");
	if (o->merges) {
		ig_strbuf_printf(b, ", \"merges\": %s", o->merges);
	} else if (!unigram) {
		ig_strbuf_puts(b, ", \"merges\": [");
		for (unsigned i = 0; i < 4; i++) /* both ways to write them */
			ig_strbuf_printf(b, i % 2 ? "[\"%.*s\", \"%s\"], " : "\"%.*s %s\", ",
					 (int)(strchr(merges[i], ' ') - merges[i]), merges[i],
					 strchr(merges[i], ' ') + 1);
		ig_strbuf_printf(b, "[\"%s\", \"hello\"]]", space);
	}
	ig_strbuf_puts(b, "}}");
	if (!ig_strbuf_ok(b))
		abort();
}

/* ---- tokenizer.model ------------------------------------------------------------------- */

static inline void tiny_varint(struct ig_strbuf *b, uint64_t v)
{
	do {
		unsigned char byte = (unsigned char)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
		ig_strbuf_add(b, &byte, 1);
		v >>= 7;
	} while (v);
}

static inline void tiny_number(struct ig_strbuf *b, unsigned field, uint64_t v)
{
	tiny_varint(b, field << 3);
	tiny_varint(b, v);
}

static inline void tiny_message(struct ig_strbuf *b, unsigned field, const void *data, size_t len)
{
	tiny_varint(b, field << 3 | 2);
	tiny_varint(b, len);
	ig_strbuf_add(b, data, len);
}

struct tiny_model {
	uint64_t type; /* 1 unigram, 2 BPE */
	const char *charsmap;
	size_t n_charsmap;
	unsigned field; /* of trainer_spec, or with 100 added of normalizer_spec; with value */
	uint64_t value;
	bool no_space, trim, no_fallback, denormal;
};

/* The pieces of tiny_spm.h. */
static inline void tiny_spm_model(struct ig_strbuf *b, const struct tiny_model *o)
{
	static const char *const controls[] = { "<unk>", "<s>", "</s>" };
	struct ig_strbuf part = { 0 };

	*b = (struct ig_strbuf){ 0 };
	for (int i = 0; i < N_SPM; i++) {
		bool made = i >= SPM_PIECES;
		const struct tiny_piece *x = &tiny_pieces[made ? i - SPM_PIECES : 0];
		char name[8];
		float score = made ? x->score : 0;
		const char *text = made ? x->text : i < SPM_BYTE ? controls[i] : name;
		if (!made)
			snprintf(name, sizeof name, "<0x%02X>", (unsigned)(i - SPM_BYTE) & 0xff);
		ig_strbuf_clear(&part);
		tiny_message(&part, 1, text, strlen(text));
		tiny_varint(&part, 2 << 3 | 5);
		ig_strbuf_add(&part, &score, sizeof score);
		tiny_number(&part, 3, made ? (uint64_t)x->type : i == 0 ? 2 : i < SPM_BYTE ? 3 : 6);
		tiny_message(b, 1, part.data, part.len);
	}
	ig_strbuf_clear(&part);
	tiny_number(&part, 3, o->type);
	tiny_number(&part, 35, !o->no_fallback);
	tiny_number(&part, 43, UINT64_MAX); /* no padding: -1 */
	if (o->field && o->field < 100)
		tiny_number(&part, o->field, o->value);
	tiny_message(b, 2, part.data, part.len);
	ig_strbuf_clear(&part);
	tiny_message(&part, 1, "tiny", 4);
	if (o->n_charsmap)
		tiny_message(&part, 2, o->charsmap, o->n_charsmap);
	tiny_number(&part, 3, !o->no_space);
	tiny_number(&part, 4, o->trim);
	if (o->field >= 100)
		tiny_number(&part, o->field - 100, o->value);
	tiny_message(b, 3, part.data, part.len);
	if (o->denormal) {
		ig_strbuf_clear(&part);
		tiny_message(&part, 2, "x", 1);
		tiny_message(b, 5, part.data, part.len);
	}
	if (!ig_strbuf_ok(b) || !ig_strbuf_ok(&part))
		abort();
	ig_strbuf_finish(&part);
}

/* A table that makes "A" an "a", "AB" an "x" and U+0001 nothing.  Little-endian machines. */
#define TINY_MAP_UNITS 512
static inline size_t tiny_charsmap(char *out)
{
	static const char texts[] = "a\0x\0"; /* 0: a, 2: x, 4: nothing */
	uint32_t units[TINY_MAP_UNITS] = { 0 }, n = sizeof units;

	/* The root's children lie at 0 ^ byte, those of A at 256 ^ byte: a unit has what to go
	 * on with from its own place in its bits from 10 on, and bit 8 when a value lies there. */
	units[0] = 0 << 10;
	units['A'] = ((uint32_t)('A' ^ 256) << 10) | 1 << 8 | 'A';
	units[256] = 1u << 31 | 0;
	units[256 ^ 'B'] = ((uint32_t)(256 ^ 'B' ^ 300) << 10) | 1 << 8 | 'B';
	units[300] = 1u << 31 | 2;
	units[1] = ((uint32_t)(1 ^ 310) << 10) | 1 << 8 | 1;
	units[310] = 1u << 31 | 4;
	memcpy(out, &n, 4);
	memcpy(out + 4, units, sizeof units);
	memcpy(out + 4 + sizeof units, texts, sizeof texts);
	return 4 + sizeof units + sizeof texts;
}
#define TINY_MAP_MAX (4 + 4 * TINY_MAP_UNITS + 16)

/* ---- tekken.json --------------------------------------------------------------------------- */

enum {
	TK_SPECIAL = 5,
	TK_BYTE = TK_SPECIAL,
	TK_HE = TK_BYTE + 256,
	TK_LL,
	TK_HELL,
	TK_HELLO,
	N_TK
};

static inline void tiny_tekken(struct ig_strbuf *b, const char *extra, const char *special)
{
	static const char alphabet[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	static const char *const more[] = { "aGU=", "bGw=", "aGVsbA==", "aGVsbG8=" };

	*b = (struct ig_strbuf){ 0 };
	ig_strbuf_printf(
		b,
		"{\"config\": {\"pattern\": \"\\\\p{L}+|\\\\s+(?!\\\\S)|[^\\\\p{L}]\","
		"\"default_vocab_size\": %d, \"default_num_special_tokens\": %d},%s\n\"vocab\": [",
		N_TK, TK_SPECIAL, special ? special : "");
	for (int i = 0; i < 256; i++)
		ig_strbuf_printf(
			b, "%s{\"rank\": %d, \"token_bytes\": \"%c%c==\", \"token_str\": null}",
			i ? ",\n" : "", i, alphabet[i >> 2], alphabet[(i & 3) << 4]);
	for (int i = 0; i < 4; i++)
		ig_strbuf_printf(b, ", {\"rank\": %d, \"token_bytes\": \"%s\"}", 256 + i, more[i]);
	ig_strbuf_printf(b, "%s]}", extra ? extra : "");
	if (!ig_strbuf_ok(b))
		abort();
}
