/*
 * build.c: builds a tokenizer for the readers of all formats: tokens with their types, then merges.
 * Owns the tokenizer until it is finished.  The daemon's start waits for it, so it does one pass
 * over the tokens and one over the merges.  A merge's result is nearly always the token after the
 * previous result, which saves a look-up.
 */
#include "model/tokenizer/tokenizer_private.h"

#include "base/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a SentencePiece token, which by default has at most 16 characters: the cost of a
 * character of a text grows with it. */
#define MAX_PIECE 1024

static const char *const turn_texts[] = {
	"<|im_end|>",
	"<|endoftext|>",
	"<|eot_id|>",
	"<turn|>",	 /* Gemma 4 */
	"<end_of_turn>", /* these end one */
	"<|im_start|>",
	"<start_of_turn>",
	"<|start_header_id|>",
	"<|end_header_id|>",
	"<|turn>",
	"<\357\275\234User\357\275\234>",
	"<\357\275\234Assistant\357\275\234>", /* DeepSeek's */
};
#define N_ENDING 5
#define N_TURN_TEXTS (sizeof turn_texts / sizeof turn_texts[0])
/* After these the client has its say, too: a tool is to be run. */
static const char *const call_texts[] = {
	"<|call|>",	    /* gpt-oss */
	"<|eom_id|>",	    /* Llama 3.1 */
	"<|observation|>",  /* GLM */
	"<|tool_response>", /* Gemma 4 */
};
#define N_CALL_TEXTS (sizeof call_texts / sizeof call_texts[0])
#define NO_BYTE 0xffff

/* ---- the byte alphabet ---------------------------------------------------------- */

/* GPT-2's: printable Latin-1 characters stand for their own byte, U+0100 and on for the other
 * bytes in ascending order. */
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

/* Decode the alphabet: the number of bytes written to out (at most len), or -1 for a character
 * that is not in it. */
static int64_t to_bytes(const uint16_t *alphabet, const char *s, size_t len, char *out)
{
	const unsigned char *p = (const unsigned char *)s;
	char *start = out;

	for (size_t i = 0; i < len;) {
		int n = ig_utf8_check(p + i, len - i);
		uint32_t c = n == 1 || n == 2 ? ig_utf8_char(p + i, n) : 0x144;
		if (c >= 0x144 || alphabet[c] == NO_BYTE)
			return -1;
		*out++ = (char)alphabet[c];
		i += (size_t)n;
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

/* Of two tokens with the same bytes, text becomes the first: false for the second. */
static bool table_add(struct ig_tokenizer *t, int32_t id)
{
	uint32_t tag;
	const char *bytes = t->bytes + t->starts[id];
	uint32_t *slot = ig_tokenizer_entry(t, bytes, ig_tokenizer_len(t, id), &tag);

	if (*slot)
		return false;
	*slot = tag | (uint32_t)(id + 1);
	return true;
}

/* ---- begin and finish ---------------------------------------------------------------- */

int ig_builder_begin(struct ig_builder *b, enum ig_token_model model, uint64_t n, uint64_t n_bytes,
		     size_t longest)
{
	struct ig_tokenizer *t;

	if (n == 0 || n > IG_MAX_VOCAB || n_bytes >= UINT32_MAX)
		return ig_fail(b->err, -EINVAL,
			       "%s has %" PRIu64 " tokens (1 to %u are possible) "
			       "of %" PRIu64 " bytes",
			       b->tokens, n, IG_MAX_VOCAB, n_bytes);
	b->t = t = calloc(1, sizeof *t);
	if (!t)
		return -ENOMEM;
	t->model = model;
	t->n_vocab = (uint32_t)n;
	t->bos = t->suffix = -1;
	t->pairs.unknown = b->unknown = b->twice = b->last_result = -1;
	b->longest_text = longest;
	fill_alphabet(b->alphabet);
	t->bytes = malloc(n_bytes ? n_bytes : 1);
	t->starts = malloc((n + 1) * sizeof *t->starts);
	t->kinds = malloc(n);
	if (!t->bytes || !t->starts || !t->kinds || table_init(&t->table, t->n_vocab))
		return -ENOMEM;
	t->starts[0] = 0;
	t->longest = 1; /* a divisor */
	for (unsigned i = 0; i < 256; i++)
		t->merges.byte_ids[i] = -1;
	return 0;
}

void ig_builder_cancel(struct ig_builder *b)
{
	free(b->scratch);
	ig_tokenizer_close(b->t);
	b->scratch = NULL;
	b->t = NULL;
}

void ig_builder_end(struct ig_builder *b, int32_t id)
{
	struct ig_tokenizer *t = b->t;

	if (id >= 0 && (uint32_t)id < t->n_vocab && !ig_tokenizer_is_end(t, id) &&
	    t->n_ends < IG_MAX_ENDS)
		t->ends[t->n_ends++] = id;
}

static void remove_end(struct ig_tokenizer *t, int32_t id)
{
	unsigned n = 0;

	for (unsigned i = 0; i < t->n_ends; i++)
		if (t->ends[i] != id)
			t->ends[n++] = t->ends[i];
	t->n_ends = n;
}

void ig_builder_finish(struct ig_builder *b, struct ig_tokenizer **out)
{
	struct ig_tokenizer *t = b->t;

	for (size_t i = 0; i < N_ENDING; i++)
		ig_builder_end(b, ig_tokenizer_find_special(t, turn_texts[i]));
	for (size_t i = 0; i < N_CALL_TEXTS; i++)
		ig_builder_end(b, ig_tokenizer_find_special(t, call_texts[i]));
	/* gpt-oss goes on after the message that this ends. */
	if (ig_tokenizer_find_special(t, call_texts[0]) >= 0)
		remove_end(t, ig_tokenizer_find_special(t, "<|end|>"));
	if (t->model == IG_MODEL_BYTES && !t->ignore_merges) {
		free(t->table.slots);
		t->table.slots = NULL;
	}
	*out = t;
	b->t = NULL;
	ig_builder_cancel(b);
}

/* ---- tokens ------------------------------------------------------------------------- */

/* SentencePiece's U+2581 becomes a space: the number of bytes written to out. */
static int64_t to_spaces(const char *s, size_t len, char *out)
{
	char *start = out;

	for (size_t i = 0; i < len;) {
		bool mark = ig_is_space_mark(s + i, len - i);
		*out++ = mark ? ' ' : s[i];
		i += mark ? 3 : 1;
	}
	return out - start;
}

/* The byte that "<0x0A>" names, or -1. */
int ig_byte_of_name(const char *s, size_t len)
{
	static const char digits[] = "0123456789ABCDEF";
	const char *high, *low;

	if (len != 6 || memcmp(s, "<0x", 3) || s[5] != '>' || !s[3] || !s[4])
		return -1;
	high = strchr(digits, s[3]);
	low = strchr(digits, s[4]);
	return high && low ? (int)((high - digits) << 4 | (low - digits)) : -1;
}

bool ig_is_turn_marker(const char *s, size_t len)
{
	for (size_t i = 0; i < N_TURN_TEXTS; i++)
		if (strlen(turn_texts[i]) == len && !memcmp(turn_texts[i], s, len))
			return true;
	return false;
}

/* A byte's token is looked up by its byte, not by its name. */
static int take_byte(struct ig_builder *b, uint64_t i, int byte)
{
	struct ig_tokenizer *t = b->t;

	if (byte < 0)
		return ig_fail(b->err, -EINVAL,
			       "%s: token %" PRIu64 " is of type byte, but its name "
			       "is not <0x00> to <0xFF>",
			       b->tokens, i);
	t->bytes[t->starts[i]] = (char)byte;
	if (t->merges.byte_ids[byte] < 0)
		t->merges.byte_ids[byte] = (int32_t)i;
	t->starts[i + 1] = t->starts[i] + 1;
	t->kinds[i] = IG_TOKEN_PLAIN;
	return 0;
}

int ig_builder_token(struct ig_builder *b, uint64_t i, int32_t type, const char *s, size_t len)
{
	struct ig_tokenizer *t = b->t;
	char *out = t->bytes + t->starts[i];
	bool reachable = false, pieces = t->model != IG_MODEL_BYTES;
	bool user = type == IG_TYPE_USER || type == IG_TYPE_ADDED || type == IG_TYPE_USER_PIECE;
	int64_t n = -1;

	if (user && ig_is_turn_marker(s, len))
		type = IG_TYPE_CONTROL;
	if (pieces && type == IG_TYPE_BYTE)
		return take_byte(b, i, ig_byte_of_name(s, len));
	if (pieces && type == IG_TYPE_UNKNOWN && b->unknown < 0)
		b->unknown = (int32_t)i;
	switch (type) {
	case IG_TYPE_UNKNOWN:
	case IG_TYPE_CONTROL: t->kinds[i] = IG_TOKEN_CONTROL; break;
	case IG_TYPE_USER:
	case IG_TYPE_ADDED:
		t->kinds[i] = IG_TOKEN_USER;
		if (pieces)
			n = to_spaces(s, len, out);
		reachable = type == IG_TYPE_USER && len > 0;
		break;
	case IG_TYPE_RAW:
		t->kinds[i] = IG_TOKEN_PLAIN;
		reachable = true;
		break;
	default:
		t->kinds[i] = type == IG_TYPE_USER_PIECE       ? IG_TOKEN_USER :
			      pieces && type == IG_TYPE_UNUSED ? IG_TOKEN_UNUSED :
								 IG_TOKEN_PLAIN;
		n = pieces ? to_spaces(s, len, out) : to_bytes(b->alphabet, s, len, out);
		/* SentencePiece's tokens never contain a plain space. */
		reachable = n > 0 && !(pieces && memchr(s, ' ', len));
	}
	if (n < 0) { /* its name is its text: special, or not in the byte alphabet */
		memcpy(out, s, len);
		n = (int64_t)len;
	}
	if (pieces && n > MAX_PIECE)
		return ig_fail(b->err, -EINVAL,
			       "%s: token %" PRIu64 " has %" PRId64 " bytes, at most "
			       "%d are possible",
			       b->tokens, i, n, MAX_PIECE);
	t->starts[i + 1] = t->starts[i] + (uint32_t)n;
	if ((size_t)n > t->longest)
		t->longest = (size_t)n;
	if (reachable && !table_add(t, (int32_t)i))
		b->twice = (int32_t)i;
	return 0;
}

void ig_builder_tokens_end(struct ig_builder *b)
{
	struct ig_tokenizer *t = b->t;

	/* There are fewer bytes than characters in the file. */
	char *smaller = realloc(t->bytes, t->starts[t->n_vocab] ? t->starts[t->n_vocab] : 1);
	if (smaller)
		t->bytes = smaller;
}

/* ---- merges ------------------------------------------------------------------------- */

int ig_builder_begin_merges(struct ig_builder *b, uint64_t n)
{
	struct ig_tokenizer *t = b->t;
	int32_t byte_ids[256];

	if (n > IG_MAX_VOCAB)
		return ig_fail(b->err, -EINVAL,
			       "%s has %" PRIu64 " merges, at most %u are possible", b->merges, n,
			       IG_MAX_VOCAB);
	memcpy(byte_ids, t->merges.byte_ids, sizeof byte_ids);
	b->scratch = malloc(2 * b->longest_text + 1);
	if (!b->scratch || ig_merges_init(&t->merges, (uint32_t)n))
		return -ENOMEM;
	t->pairs.cut_words = true;
	for (unsigned i = 0; i < 256; i++) {
		char byte = (char)i;
		t->merges.byte_ids[i] =
			t->model == IG_MODEL_BYTES ? ig_tokenizer_lookup(t, &byte, 1) : byte_ids[i];
	}
	return 0;
}

static int bad_merge(struct ig_builder *b, uint64_t i, const char *left, size_t n_left,
		     const char *right, size_t n_right, const char *what)
{
	char text[64];
	size_t n = 0;

	for (size_t k = 0; k < n_left && n < sizeof text; k++)
		text[n++] = left[k];
	if (n < sizeof text)
		text[n++] = ' ';
	for (size_t k = 0; k < n_right && n < sizeof text; k++)
		text[n++] = right[k];
	for (size_t k = 0; k < n; k++)
		text[k] = (unsigned char)text[k] < 0x20 || text[k] == 0x7f ? '?' : text[k];
	return ig_fail(b->err, -EINVAL, "%s: merge %" PRIu64 " '%.*s' %s", b->merges, i, (int)n,
		       text, what);
}

/* Many merges have a single byte on one side. */
static int32_t find_part(const struct ig_tokenizer *t, const char *s, size_t len)
{
	return len == 1 && t->model == IG_MODEL_BYTES ? t->merges.byte_ids[(unsigned char)s[0]] :
							ig_tokenizer_lookup(t, s, len);
}

int ig_builder_merge(struct ig_builder *b, uint64_t i, const char *left, size_t n_left,
		     const char *right, size_t n_right)
{
	struct ig_tokenizer *t = b->t;
	bool pieces = t->model != IG_MODEL_BYTES;
	int64_t len_left, len_right;
	int32_t id_left, id_right, result;

	if (n_left > b->longest_text || n_right > b->longest_text)
		return bad_merge(b, i, left, n_left, right, n_right, "is longer than any token");
	len_left = pieces ? to_spaces(left, n_left, b->scratch) :
			    to_bytes(b->alphabet, left, n_left, b->scratch);
	len_right = len_left < 0 ? -1 :
		    pieces	 ? to_spaces(right, n_right, b->scratch + len_left) :
				   to_bytes(b->alphabet, right, n_right, b->scratch + len_left);
	if (len_right < 0)
		return bad_merge(b, i, left, n_left, right, n_right, "is not in the byte alphabet");
	size_t n = (size_t)(len_left + len_right);

	id_left = find_part(t, b->scratch, (size_t)len_left);
	id_right = find_part(t, b->scratch + len_left, (size_t)len_right);
	result = b->last_result + 1;
	if (result >= (int32_t)t->n_vocab || t->kinds[result] != IG_TOKEN_PLAIN ||
	    ig_tokenizer_len(t, result) != n || memcmp(t->bytes + t->starts[result], b->scratch, n))
		result = ig_tokenizer_lookup(t, b->scratch, n);
	if (id_left < 0 || id_right < 0 || result < 0) {
		/* Plain text must never become a control token, so a merge that involves one
		 * is dropped. */
		const char *p = b->scratch;
		if ((id_left >= 0 || ig_tokenizer_is_control(t, p, (size_t)len_left)) &&
		    (id_right >= 0 ||
		     ig_tokenizer_is_control(t, p + len_left, (size_t)len_right)) &&
		    (result >= 0 || ig_tokenizer_is_control(t, p, n)))
			return 0;
		return bad_merge(b, i, left, n_left, right, n_right,
				 "contains or makes a token that does not exist");
	}
	if (ig_crosses_words(b->scratch, n))
		t->pairs.cut_words = false;
	ig_merges_add(&t->merges, id_left, id_right, result);
	b->last_result = result;
	return 0;
}
