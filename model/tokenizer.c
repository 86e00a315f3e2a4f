/*
 * tokenizer.c: opening a tokenizer, and encode.
 *
 * Owns the tokens' bytes in one block of memory and the tables over them; the
 * way of a text is: special tokens (tokenizer_special.c) are cut out, the rest goes through the
 * splitter (tokenizer_split.c) and piece by piece through the merger
 * (tokenizer_bpe.c), or as a whole through SentencePiece's ways (tokenizer_spm.c).
 *
 * Opening is on the way of the daemon's start, so it does one pass over the
 * tokens and one over the merges.  A merge's result is nearly always the token
 * after the one before it, which saves a look-up.
 */
#include "model/tokenizer.h"

#include "model/tokenizer-private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_VOCAB ((1u << 24) - 1) /* fits a slot's low bits; real ones have up to 262,144 */
#define LONG_PIECE 4096 /* bytes: words are far shorter */
/* Bytes of a token of SentencePiece's, which by default has 16 characters at most: what
 * a character of a text costs grows with it. */
#define MAX_SPM_TOKEN 1024

/* GGUF's token types. */
enum { TYPE_NORMAL = 1, TYPE_UNKNOWN = 2, TYPE_CONTROL = 3, TYPE_USER = 4, TYPE_UNUSED = 5,
       TYPE_BYTE = 6, MAX_TYPE = 6 };

/* Tokens that begin and end turns: control tokens, also where a file calls them
 * user-defined, for else anybody could write them. */
static const char *const turn_texts[] = {
	"<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<end_of_turn>", /* these end one */
	"<|im_start|>", "<start_of_turn>", "<|start_header_id|>", "<|end_header_id|>",
};
#define N_ENDING 4
#define N_TURN_TEXTS (sizeof turn_texts / sizeof turn_texts[0])

enum model { /* what tokenizer.ggml.model says */
	MODEL_BYTES, /* gpt2: byte-level BPE */
	MODEL_MERGES, /* llama: SentencePiece's BPE */
	MODEL_UNIGRAM, /* t5: SentencePiece's unigram */
};

/* While it is opened. */
struct opening {
	enum model model;
	struct ig_tokenizer *t;
	const struct ig_checkpoint *g;
	struct ig_error *err;
	int32_t *types; /* [n_vocab] as the file has them; NULL: all normal */
	uint16_t alphabet[0x144]; /* the byte that a character stands for; NO_BYTE: none */
	char *scratch; /* [2 * longest_text]: a merge's two sides */
	size_t longest_text;
	uint64_t n_bytes; /* of all tokens' texts in the file */
	int32_t last_result; /* of the merge before */
	int32_t unknown; /* the token of what has no token; -1: none */
	struct ig_error err_inside; /* of a callback */
};

#define NO_BYTE 0xffff

/* ---- the byte alphabet ---------------------------------------------------------- */

/* GPT-2's: printable Latin-1 characters stand for themselves, the other bytes in
 * ascending order for U+0100 and on. */
static void fill_alphabet(uint16_t *alphabet)
{
	unsigned next = 0x100;

	for (unsigned c = 0; c < 0x144; c++)
		alphabet[c] = NO_BYTE;
	for (unsigned b = 0; b < 256; b++) {
		bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad);
		alphabet[printable ? b : next++] = (uint16_t)b;
	}
}

/* Undo the alphabet: the number of bytes written to out (at most len), or -1 when
 * a character is not of it. */
static int64_t to_bytes(const uint16_t *alphabet, const char *s, size_t len, char *out)
{
	const unsigned char *p = (const unsigned char *)s;
	char *start = out;

	for (size_t i = 0; i < len;) {
		unsigned c = p[i++];
		if (c >= 0x80) { /* two bytes: 0x80 to 0x7ff */
			if (c < 0xc2 || c > 0xdf || i == len || (p[i] & 0xc0) != 0x80)
				return -1;
			c = (c & 31) << 6 | (p[i++] & 63);
		}
		if (c >= 0x144 || alphabet[c] == NO_BYTE)
			return -1;
		*out++ = (char)alphabet[c];
	}
	return out - start;
}

/* ---- tokens by their bytes ------------------------------------------------------ */

static int table_init(struct ig_token_table *x, uint32_t n)
{
	uint64_t size = 8;

	while (size < 2 * (uint64_t)n)
		size *= 2;
	ig_hash_key_init(&x->key);
	x->mask = size - 1;
	x->slots = calloc(size, sizeof *x->slots);
	return x->slots ? 0 : -ENOMEM;
}

/* Of two tokens with the same bytes the first is the one that text becomes. */
static void table_add(struct ig_tokenizer *t, int32_t id)
{
	uint32_t tag;
	const char *bytes = t->bytes + t->starts[id];
	uint32_t *slot = ig_tokenizer_slot(t, bytes, ig_tokenizer_len(t, id), &tag);

	if (*slot == 0)
		*slot = tag | (uint32_t)(id + 1);
}

/* ---- reading the tokens --------------------------------------------------------- */

static int count_token(void *ctx, uint64_t i, const char *s, size_t len)
{
	struct opening *o = ctx;

	o->n_bytes += len; /* no more than the file's size */
	if (len > o->longest_text)
		o->longest_text = len;
	return 0;
}

/* SentencePiece's U+2581 becomes a space: the number of bytes written to out. */
static int64_t to_spaces(const char *s, size_t len, char *out)
{
	char *start = out;

	for (size_t i = 0; i < len;) {
		bool mark = len - i >= 3 && !memcmp(s + i, "\xe2\x96\x81", 3);
		*out++ = mark ? ' ' : s[i];
		i += mark ? 3 : 1;
	}
	return out - start;
}

/* The byte that "<0x0A>" names, or -1. */
static int byte_of_name(const char *s, size_t len)
{
	static const char digits[] = "0123456789ABCDEF";
	const char *high, *low;

	if (len != 6 || memcmp(s, "<0x", 3) || s[5] != '>' || !s[3] || !s[4])
		return -1;
	high = strchr(digits, s[3]);
	low = strchr(digits, s[4]);
	return high && low ? (int)((high - digits) << 4 | (low - digits)) : -1;
}

static bool is_turn_text(const char *s, size_t len)
{
	for (size_t i = 0; i < N_TURN_TEXTS; i++)
		if (strlen(turn_texts[i]) == len && !memcmp(turn_texts[i], s, len))
			return true;
	return false;
}

/* A byte's token is found by its byte, not by its name. */
static int take_byte(struct opening *o, uint64_t i, int byte, char *out)
{
	if (byte < 0)
		return ig_fail(&o->err_inside, -EINVAL, "tokenizer.ggml.tokens: token %" PRIu64
			       " is of type byte, but its name is not <0x00> to <0xFF>", i);
	*out = (char)byte;
	if (o->t->merges.byte_ids[byte] < 0)
		o->t->merges.byte_ids[byte] = (int32_t)i;
	o->t->starts[i + 1] = o->t->starts[i] + 1;
	o->t->kinds[i] = IG_TOKEN_PLAIN;
	return 0;
}

static int take_token(void *ctx, uint64_t i, const char *s, size_t len)
{
	struct opening *o = ctx;
	struct ig_tokenizer *t = o->t;
	char *out = t->bytes + t->starts[i];
	int32_t type = o->types ? o->types[i] : TYPE_NORMAL;
	bool reachable = false, pieces = o->model != MODEL_BYTES;
	int64_t n = -1;

	if (type == TYPE_USER && is_turn_text(s, len))
		type = TYPE_CONTROL;
	if (pieces && type == TYPE_BYTE)
		return take_byte(o, i, byte_of_name(s, len), out);
	if (pieces && !o->types && byte_of_name(s, len) >= 0)
		return take_byte(o, i, byte_of_name(s, len), out);
	if (pieces && type == TYPE_UNKNOWN && o->unknown < 0)
		o->unknown = (int32_t)i;
	switch (type) {
	case TYPE_UNKNOWN:
	case TYPE_CONTROL: t->kinds[i] = IG_TOKEN_CONTROL; break;
	case TYPE_USER:
		t->kinds[i] = IG_TOKEN_USER;
		if (pieces)
			n = to_spaces(s, len, out);
		break;
	default:
		t->kinds[i] = pieces && type == TYPE_UNUSED ? IG_TOKEN_UNUSED : IG_TOKEN_PLAIN;
		n = pieces ? to_spaces(s, len, out) : to_bytes(o->alphabet, s, len, out);
		/* SentencePiece's text never has a space as such. */
		reachable = n > 0 && !(pieces && memchr(s, ' ', len));
	}
	if (n < 0) { /* its name is its text: special, or not in the byte alphabet */
		memcpy(out, s, len);
		n = (int64_t)len;
	}
	if (pieces && n > MAX_SPM_TOKEN)
		return ig_fail(&o->err_inside, -EINVAL, "tokenizer.ggml.tokens: token %" PRIu64
			       " has %" PRId64 " bytes, at most %d are possible", i, n, MAX_SPM_TOKEN);
	t->starts[i + 1] = t->starts[i] + (uint32_t)n;
	if ((size_t)n > t->longest)
		t->longest = (size_t)n;
	if (n > 0 && (t->kinds[i] == IG_TOKEN_USER || t->kinds[i] == IG_TOKEN_CONTROL))
		t->n_specials++;
	if (n > 0 && t->kinds[i] == IG_TOKEN_USER)
		t->has_user = reachable = true;
	if (reachable)
		table_add(t, (int32_t)i);
	return 0;
}

static int read_tokens(struct opening *o)
{
	struct ig_tokenizer *t = o->t;
	uint64_t n, n_types;
	int rc;

	if ((rc = ig_checkpoint_array_len(o->g, "tokenizer.ggml.tokens", &n, o->err)) ||
	    (rc = ig_checkpoint_array_strs(o->g, "tokenizer.ggml.tokens", count_token, o, o->err)))
		return rc;
	if (n == 0 || n > MAX_VOCAB || o->n_bytes >= UINT32_MAX)
		return ig_fail(o->err, -EINVAL,
			       "tokenizer.ggml.tokens has %" PRIu64 " tokens (1 to "
			       "%u are possible) of %" PRIu64 " bytes",
			       n, MAX_VOCAB, o->n_bytes);
	t->n_vocab = (uint32_t)n;
	rc = ig_checkpoint_array_len(o->g, "tokenizer.ggml.token_type", &n_types, o->err);
	if (rc && rc != -ENOENT)
		return rc;
	if (!rc && n_types != n)
		return ig_fail(o->err, -EINVAL, "tokenizer.ggml.token_type has %" PRIu64
			       " elements for %" PRIu64 " tokens", n_types, n);
	if (!rc) {
		o->types = malloc(n * sizeof *o->types);
		if (!o->types)
			return -ENOMEM;
		rc = ig_checkpoint_array_i32(o->g, "tokenizer.ggml.token_type", o->types, n,
					     o->err);
		if (rc)
			return rc;
		for (uint64_t i = 0; i < n; i++)
			if (o->types[i] < 0 || o->types[i] > MAX_TYPE)
				return ig_fail(o->err, -EINVAL, "tokenizer.ggml.token_type: token %"
					       PRIu64 " has unknown type %d", i, (int)o->types[i]);
	}
	t->bytes = malloc(o->n_bytes ? o->n_bytes : 1);
	t->starts = malloc((n + 1) * sizeof *t->starts);
	t->kinds = malloc(n);
	if (!t->bytes || !t->starts || !t->kinds || table_init(&t->table, t->n_vocab))
		return -ENOMEM;
	t->starts[0] = 0;
	t->longest = 1; /* we divide by it */
	for (unsigned b = 0; b < 256; b++)
		t->merges.byte_ids[b] = -1;
	rc = ig_checkpoint_array_strs(o->g, "tokenizer.ggml.tokens", take_token, o, o->err);
	if (rc == -EINVAL && o->err_inside.code)
		*o->err = o->err_inside;
	if (rc)
		return rc;
	/* The bytes are fewer than the characters that stood for them. */
	char *smaller = realloc(t->bytes, t->starts[n] ? t->starts[n] : 1);
	if (smaller)
		t->bytes = smaller;
	return 0;
}

/* ---- reading the merges --------------------------------------------------------- */

static int bad_merge(struct opening *o, uint64_t i, const char *s, size_t len, const char *what)
{
	char text[64];
	size_t n = len < sizeof text ? len : sizeof text;

	for (size_t k = 0; k < n; k++)
		text[k] = (unsigned char)s[k] < 0x20 || s[k] == 0x7f ? '?' : s[k];
	return ig_fail(&o->err_inside, -EINVAL, "tokenizer.ggml.merges: merge %" PRIu64
		       " '%.*s' %s", i, (int)n, text, what);
}

/* Many a merge has a single byte on one side. */
static int32_t find_part(const struct ig_tokenizer *t, const char *s, size_t len)
{
	return len == 1 ? t->merges.byte_ids[(unsigned char)s[0]] : ig_tokenizer_lookup(t, s, len);
}

static int take_merge(void *ctx, uint64_t i, const char *s, size_t len)
{
	struct opening *o = ctx;
	struct ig_tokenizer *t = o->t;
	const char *space = memchr(s, ' ', len);
	int64_t n_left, n_right;
	int32_t left, right, result;

	if (!space || space == s || space == s + len - 1)
		return bad_merge(o, i, s, len, "is not two tokens with a space between");
	if (len > 2 * o->longest_text)
		return bad_merge(o, i, s, len, "is longer than any token");
	n_left = to_bytes(o->alphabet, s, (size_t)(space - s), o->scratch);
	if (n_left < 0)
		return bad_merge(o, i, s, len, "is not in the byte alphabet");
	n_right = to_bytes(o->alphabet, space + 1, (size_t)(s + len - space - 1),
			   o->scratch + n_left);
	if (n_right < 0)
		return bad_merge(o, i, s, len, "is not in the byte alphabet");
	size_t n = (size_t)(n_left + n_right);

	left = find_part(t, o->scratch, (size_t)n_left);
	right = find_part(t, o->scratch + n_left, (size_t)n_right);
	result = o->last_result + 1;
	if (result >= (int32_t)t->n_vocab || t->kinds[result] == IG_TOKEN_CONTROL ||
	    ig_tokenizer_len(t, result) != n || memcmp(t->bytes + t->starts[result], o->scratch, n))
		result = ig_tokenizer_lookup(t, o->scratch, n);
	if (left < 0 || right < 0 || result < 0) {
		/* Plain text must never become a control token, so a merge that has to do
		 * with one is left out. */
		if ((left >= 0 || ig_tokenizer_is_control(t, o->scratch, (size_t)n_left)) &&
		    (right >= 0 || ig_tokenizer_is_control(t, o->scratch + n_left, (size_t)n_right)) &&
		    (result >= 0 || ig_tokenizer_is_control(t, o->scratch, n)))
			return 0;
		return bad_merge(o, i, s, len, "names or makes a token that is not there");
	}
	ig_merges_add(&t->merges, left, right, result);
	o->last_result = result;
	return 0;
}

static int read_merges(struct opening *o)
{
	struct ig_tokenizer *t = o->t;
	uint64_t n;
	int rc = ig_checkpoint_array_len(o->g, "tokenizer.ggml.merges", &n, o->err);

	if (rc)
		return rc;
	if (n > MAX_VOCAB)
		return ig_fail(o->err, -EINVAL, "tokenizer.ggml.merges has %" PRIu64
			       " merges, at most %u are possible", n, MAX_VOCAB);
	o->scratch = malloc(2 * o->longest_text + 1);
	if (!o->scratch || ig_merges_init(&t->merges, (uint32_t)n))
		return -ENOMEM;
	for (unsigned b = 0; b < 256; b++) {
		char byte = (char)b;
		t->merges.byte_ids[b] = ig_tokenizer_lookup(t, &byte, 1);
	}
	rc = ig_checkpoint_array_strs(o->g, "tokenizer.ggml.merges", take_merge, o, o->err);
	if (rc == -EINVAL && o->err_inside.code)
		*o->err = o->err_inside;
	return rc;
}

/* ---- open and close ------------------------------------------------------------- */

static void add_end(struct ig_tokenizer *t, int32_t id)
{
	if (id >= 0 && !ig_tokenizer_is_end(t, id) && t->n_ends < IG_MAX_ENDS)
		t->ends[t->n_ends++] = id;
}

/* An id from the file; *id stays -1 when it has none. */
static int read_id(struct opening *o, const char *key, int32_t *id)
{
	uint32_t v;
	int rc = ig_checkpoint_u32(o->g, key, &v, o->err);

	*id = -1;
	if (rc == -ENOENT)
		return 0;
	if (rc)
		return rc;
	if (v >= o->t->n_vocab)
		return ig_fail(o->err, -EINVAL, "%s is %" PRIu32 ", the vocabulary has %" PRIu32
			       " tokens", key, v, o->t->n_vocab);
	*id = (int32_t)v;
	return 0;
}

static int read_ends(struct opening *o)
{
	struct ig_tokenizer *t = o->t;
	int32_t eos, eot;
	int rc;

	if ((rc = read_id(o, "tokenizer.ggml.bos_token_id", &t->bos)) ||
	    (rc = read_id(o, "tokenizer.ggml.eos_token_id", &eos)) ||
	    (rc = read_id(o, "tokenizer.ggml.eot_token_id", &eot)))
		return rc;
	if (t->spm && t->bos < 0)
		t->bos = ig_tokenizer_find_special(t, "<s>");
	if (t->spm && eos < 0)
		eos = ig_tokenizer_find_special(t, "</s>");
	add_end(t, eos);
	add_end(t, eot);
	for (size_t i = 0; i < N_ENDING; i++)
		add_end(t, ig_tokenizer_find_special(t, turn_texts[i]));
	return 0;
}

/* *flag stays as it is when the file has none. */
static int read_flag(struct opening *o, const char *key, bool *flag)
{
	int rc = ig_checkpoint_bool(o->g, key, flag, o->err);

	return rc == -ENOENT ? 0 : rc;
}

static int read_scores(struct opening *o, float **out)
{
	uint64_t n;
	float *scores;
	int rc = ig_checkpoint_array_len(o->g, "tokenizer.ggml.scores", &n, o->err);

	*out = NULL;
	if (rc)
		return rc;
	if (n != o->t->n_vocab)
		return ig_fail(o->err, -EINVAL, "tokenizer.ggml.scores has %" PRIu64
			       " elements for %" PRIu32 " tokens", n, o->t->n_vocab);
	scores = malloc(n * sizeof *scores);
	if (!scores)
		return -ENOMEM;
	rc = ig_checkpoint_array_f32(o->g, "tokenizer.ggml.scores", scores, n, o->err);
	if (rc) /* also when one is not finite */
		free(scores);
	else
		*out = scores;
	return rc;
}

static int read_pieces(struct opening *o)
{
	struct ig_spm_options options = {
		.unigram = o->model == MODEL_UNIGRAM, .add_space = o->model == MODEL_MERGES,
	};
	uint64_t n_map;
	float *scores;
	int rc;

	if ((rc = read_flag(o, "tokenizer.ggml.add_space_prefix", &options.add_space)) ||
	    (rc = read_flag(o, "tokenizer.ggml.remove_extra_whitespaces", &options.trim)))
		return rc;
	rc = ig_checkpoint_array_len(o->g, "tokenizer.ggml.precompiled_charsmap", &n_map, o->err);
	if (rc && rc != -ENOENT)
		return rc;
	if (!rc && n_map)
		return ig_fail(o->err, -ENOTSUP, "tokenizer.ggml.precompiled_charsmap: Ingot can't "
			       "replace characters before it cuts a text");
	rc = read_id(o, "tokenizer.ggml.unknown_token_id", &options.unknown);
	if (rc)
		return rc;
	if (options.unknown < 0)
		options.unknown = o->unknown;
	rc = read_scores(o, &scores);
	return rc ? rc : ig_spm_create(o->t, &options, scores, &o->t->spm);
}

static int read_model(struct opening *o, bool jit)
{
	struct ig_tokenizer *t = o->t;
	const char *s;
	size_t len;
	int rc;

	if ((rc = ig_checkpoint_str(o->g, "tokenizer.ggml.model", &s, &len, o->err)))
		return rc;
	if (len == 5 && !memcmp(s, "llama", 5))
		o->model = MODEL_MERGES;
	else if (len == 2 && !memcmp(s, "t5", 2))
		o->model = MODEL_UNIGRAM;
	else if (len != 4 || memcmp(s, "gpt2", 4))
		return ig_fail(o->err, -ENOTSUP,
			       "tokenizer.ggml.model is '%.*s'; Ingot knows 'gpt2' (byte-level BPE), "
			       "'llama' (SentencePiece BPE) and 't5' (SentencePiece unigram)",
			       len < 64 ? (int)len : 64, s);
	if (o->model != MODEL_BYTES) {
		t->add_bos = o->model == MODEL_MERGES;
		return read_flag(o, "tokenizer.ggml.add_bos_token", &t->add_bos);
	}
	rc = ig_checkpoint_str(o->g, "tokenizer.ggml.pre", &s, &len, o->err);
	if (rc == -ENOENT) {
		s = "default";
		len = strlen(s);
	} else if (rc) {
		return rc;
	}
	rc = ig_splitter_open(s, len, jit, &t->splitter, &t->ignore_merges, &t->add_bos, o->err);
	if (rc)
		return rc;
	return read_flag(o, "tokenizer.ggml.add_bos_token", &t->add_bos);
}

void ig_tokenizer_close(struct ig_tokenizer *t)
{
	if (!t)
		return;
	ig_spm_destroy(t->spm);
	ig_splitter_close(t->splitter);
	ig_merges_finish(&t->merges);
	free(t->table.slots);
	free(t->specials);
	free(t->kinds);
	free(t->starts);
	free(t->bytes);
	free(t);
}

int ig_tokenizer_open_with(const struct ig_checkpoint *g, bool jit, struct ig_tokenizer **out,
			   struct ig_error *err)
{
	struct ig_error inside = { 0 };
	struct opening o = { .g = g, .err = &inside, .last_result = -1, .unknown = -1 };
	int rc = -ENOMEM;

	*out = NULL;
	o.t = calloc(1, sizeof *o.t);
	if (!o.t)
		goto out;
	fill_alphabet(o.alphabet);
	if ((rc = read_model(&o, jit)) || (rc = read_tokens(&o)) || (rc = ig_tokenizer_sort_specials(o.t)) ||
	    (rc = o.model == MODEL_BYTES ? read_merges(&o) : read_pieces(&o)) ||
	    (rc = read_ends(&o)))
		goto out;
	if (!o.t->ignore_merges && !o.t->spm) {
		free(o.t->table.slots);
		o.t->table.slots = NULL;
	}
	*out = o.t;
	o.t = NULL;
out:
	if (rc == -ENOMEM)
		ig_fail(err, rc, "out of memory for the tokenizer");
	else if (rc && !strncmp(inside.text, ig_checkpoint_label(g),
				strlen(ig_checkpoint_label(g))))
		ig_fail(err, rc, "%s", inside.text); /* gguf.c names the file itself */
	else if (rc)
		ig_fail(err, rc, "%s: %s", ig_checkpoint_label(g), inside.text);
	free(o.types);
	free(o.scratch);
	ig_tokenizer_close(o.t);
	return rc;
}

int ig_tokenizer_open(const struct ig_checkpoint *g, struct ig_tokenizer **out,
		      struct ig_error *err)
{
	return ig_tokenizer_open_with(g, true, out, err);
}

/* ---- what is in it -------------------------------------------------------------- */

const char *ig_tokenizer_token(const struct ig_tokenizer *t, int32_t id, size_t *len,
			       bool *special)
{
	if (id < 0 || (uint32_t)id >= t->n_vocab)
		return NULL;
	*len = ig_tokenizer_len(t, id);
	*special = t->kinds[id] == IG_TOKEN_CONTROL;
	return t->bytes + t->starts[id];
}

int32_t ig_tokenizer_n_vocab(const struct ig_tokenizer *t)
{
	return (int32_t)t->n_vocab;
}

int32_t ig_tokenizer_bos(const struct ig_tokenizer *t)
{
	return t->bos;
}

bool ig_tokenizer_add_bos(const struct ig_tokenizer *t)
{
	return t->add_bos;
}

bool ig_tokenizer_is_end(const struct ig_tokenizer *t, int32_t id)
{
	for (unsigned i = 0; i < t->n_ends; i++)
		if (t->ends[i] == id)
			return true;
	return false;
}

size_t ig_tokenizer_longest(const struct ig_tokenizer *t)
{
	return t->longest;
}

bool ig_tokenizer_adds_space(const struct ig_tokenizer *t)
{
	return t->spm && ig_spm_adds_space(t->spm);
}

bool ig_tokenizer_trims(const struct ig_tokenizer *t)
{
	return t->spm && ig_spm_trims(t->spm);
}

/* ---- encode --------------------------------------------------------------------- */

struct encoding {
	const struct ig_tokenizer *t;
	struct ig_merge_work work;
	struct ig_ids *out;
	size_t max_ids;
};

void ig_ids_finish(struct ig_ids *l)
{
	free(l->ids);
	*l = (struct ig_ids){ 0 };
}

int ig_ids_add(struct ig_ids *l, const int32_t *ids, size_t n, size_t max_ids)
{
	if (n == 0) /* bytes that no token stands for */
		return 0;
	if (l->n > max_ids || n > max_ids - l->n)
		return -E2BIG;
	if (n > l->cap - l->n) {
		size_t cap = l->cap ? l->cap : 64;
		while (cap - l->n < n) {
			if (cap > SIZE_MAX / 2 / sizeof *l->ids)
				return -ENOMEM;
			cap *= 2;
		}
		int32_t *p = realloc(l->ids, cap * sizeof *p);
		if (!p)
			return -ENOMEM;
		l->ids = p;
		l->cap = cap;
	}
	memcpy(l->ids + l->n, ids, n * sizeof *ids);
	l->n += n;
	return 0;
}

/* Whether a piece has more ids than there is room for, however it is merged: a hostile
 * megabyte without a space is refused before memory and time go into it. */
static bool surely_too_long(const struct encoding *e, const char *piece, size_t len)
{
	size_t room = e->max_ids > e->out->n ? e->max_ids - e->out->n : 0, n = 0;

	if (len < LONG_PIECE || len / e->t->longest <= room)
		return false;
	for (size_t i = 0; i < len; i++)
		n += e->t->merges.byte_ids[(unsigned char)piece[i]] >= 0;
	return n / e->t->longest > room;
}

static int encode_piece(void *ctx, const char *piece, size_t len)
{
	struct encoding *e = ctx;
	const struct ig_tokenizer *t = e->t;
	const int32_t *ids;
	size_t n;
	int rc;

	if (len <= t->longest && t->ignore_merges) {
		int32_t id = ig_tokenizer_lookup(t, piece, len);
		if (id >= 0)
			return ig_ids_add(e->out, &id, 1, e->max_ids);
	}
	if (surely_too_long(e, piece, len))
		return -E2BIG;
	rc = ig_merges_apply(&t->merges, &e->work, piece, len, &ids, &n);
	return rc ? rc : ig_ids_add(e->out, ids, n, e->max_ids);
}

/* What lies between special tokens. */
static int encode_text(struct encoding *e, const char *text, size_t len)
{
	const struct ig_tokenizer *t = e->t;

	return t->spm ? ig_spm_encode(t->spm, text, len, e->max_ids, e->out) :
	       ig_splitter_run(t->splitter, text, len, encode_piece, e);
}

static int encode(const struct ig_tokenizer *t, const char *text, const uint8_t *client, size_t len,
		  bool special, size_t max_ids, struct ig_ids *out)
{
	struct encoding e = { .t = t, .out = out, .max_ids = max_ids };
	size_t n_before = out->n, done = 0;
	bool cut = special ? t->n_specials > 0 : t->has_user && !t->spm;
	int rc = 0;

	for (size_t i = 0; cut && i < len && !rc;) {
		const struct ig_special *x = ig_tokenizer_match(t, text + i, client ? client + i : NULL,
								len - i, special);
		/* SentencePiece's user-defined tokens do not end a text. */
		if (!x || (t->spm && t->kinds[x->id] == IG_TOKEN_USER)) {
			i += x ? x->len : 1;
			continue;
		}
		rc = encode_text(&e, text + done, i - done);
		if (!rc)
			rc = ig_ids_add(out, &x->id, 1, max_ids);
		i += x->len;
		done = i;
	}
	if (!rc)
		rc = encode_text(&e, text + done, len - done);
	if (rc)
		out->n = n_before;
	ig_merge_work_finish(&e.work);
	return rc;
}

int ig_tokenizer_encode(const struct ig_tokenizer *t, const char *text, size_t len, bool special,
			size_t max_ids, struct ig_ids *out)
{
	return encode(t, text, NULL, len, special, max_ids, out);
}

int ig_tokenizer_encode_marked(const struct ig_tokenizer *t, const char *text,
			       const uint8_t *client, size_t len, size_t max_ids, struct ig_ids *out)
{
	return encode(t, text, client, len, true, max_ids, out);
}
