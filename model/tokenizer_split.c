/*
 * tokenizer_split.c: text to pieces, as tokenizer.ggml.pre says.
 *
 * A pre-tokenizer is one regular expression or a sequence of them: each cuts
 * the pieces of the one before into its matches and what lies between.  Merges
 * never cross a piece.
 *
 * Cost: every expression here is linear.  Each match either takes the run of
 * characters that it looked at, or gives back one character of it.  The limits
 * below hold that for whatever text comes; PCRE2 keeps its frames on the heap
 * (and its compiled code on 32 KB of stack), so long texts can't exhaust the
 * stack either.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "model/tokenizer-private.h"
#include "model/utf8-private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_STAGES 5
/* Steps of one match; a run of n characters takes about n. */
#define MATCH_LIMIT_BASE 100000
#define MATCH_LIMIT_PER_BYTE 8
#define HEAP_LIMIT_KIB 4096
#define DEPTH_LIMIT 10000

/* White space by Unicode's property.  PCRE2's own \s has U+180E in it besides, which
 * lost the property in Unicode 6.3; the vocabularies were trained without it. */
#define WS "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}" \
	   "\\x{205f}\\x{3000}"
#define SPACES_BUT_LAST "[" WS "]+(?![^" WS "])|[" WS "]+"

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|" \
	     SPACES_BUT_LAST
#define CL100K(digits) "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits \
	"| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n]*|[" WS "]*[\\r\\n]+|" SPACES_BUT_LAST

#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K(digits, suffix) \
	"[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" suffix \
	"|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" suffix "|" digits \
	"| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n/]*|[" WS "]*[\\r\\n]+|" SPACES_BUT_LAST
#define SUFFIXES "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"

/* DeepSeek's: an ASCII mark takes the ASCII letters after it. */
#define DEEPSEEK3 "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+" \
	"| ?[\\p{P}\\p{S}]+[\\r\\n]*|[" WS "]*[\\r\\n]+|" SPACES_BUT_LAST

static const struct pre {
	const char *name;
	bool ignore_merges; /* a piece that is a token is taken whole */
	bool add_bos; /* unless the file says otherwise */
	const char *stages[MAX_STAGES];
} pres[] = {
	{ "default", false, false,
	  { "[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]" } },
	{ "gpt-2", false, false, { GPT2 } },
	{ "phi-2", false, false, { GPT2 } },
	{ "olmo", false, false, { GPT2 } },
	{ "smollm", false, false, { "\\p{N}", GPT2 } },
	{ "starcoder", false, false, { "\\p{N}", GPT2 } },
	{ "refact", false, false, { "\\p{N}", GPT2 } },
	{ "llama-bpe", true, true, { CL100K("\\p{N}{1,3}") } },
	{ "llama3", true, true, { CL100K("\\p{N}{1,3}") } },
	{ "llama-v3", true, true, { CL100K("\\p{N}{1,3}") } },
	/* The original also composes characters (NFC) first; that would lose bytes, and
	 * text that people send is composed already. */
	{ "qwen2", false, false, { CL100K("\\p{N}") } },
	{ "deepseek-r1-qwen", false, false, { CL100K("\\p{N}") } },
	{ "tekken", true, true, { O200K("\\p{N}", "") } },
	{ "gpt-4o", false, false, { O200K("\\p{N}{1,3}", SUFFIXES) } },
	{ "deepseek-coder", false, false,
	  { "[\\r\\n]", "[" WS "]?\\p{L}+", "[" WS "]?\\p{P}+",
	    "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+", "\\p{N}" } },
	{ "deepseek-v3", false, false,
	  { "\\p{N}{1,3}", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+",
	    DEEPSEEK3 } },
};

#define N_PRES (sizeof pres / sizeof pres[0])

struct ig_splitter {
	unsigned n_stages;
	pcre2_code *stages[MAX_STAGES];
};

/* One run over one text. */
struct run {
	const struct ig_splitter *s;
	pcre2_match_context *match;
	pcre2_match_data *data;
	int (*each)(void *ctx, const char *piece, size_t len);
	void *ctx;
};

void ig_splitter_close(struct ig_splitter *s)
{
	if (!s)
		return;
	for (unsigned i = 0; i < s->n_stages; i++)
		pcre2_code_free(s->stages[i]);
	free(s);
}

static const struct pre *find_pre(const char *name, size_t len)
{
	for (size_t i = 0; i < N_PRES; i++)
		if (strlen(pres[i].name) == len && !memcmp(pres[i].name, name, len))
			return &pres[i];
	return NULL;
}

static int unknown(const char *name, size_t len, struct ig_error *err)
{
	char list[256] = "";
	size_t n = 0;

	for (size_t i = 0; i < N_PRES && n < sizeof list; i++)
		n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", pres[i].name);
	return ig_fail(err, -ENOTSUP, "the pre-tokenizer '%.*s' is not known; known are %s",
		       len < 64 ? (int)len : 64, name, list);
}

int ig_splitter_open(const char *pre, size_t len, bool jit, struct ig_splitter **out,
		     bool *ignore_merges, bool *add_bos, struct ig_error *err)
{
	const struct pre *p = find_pre(pre, len);
	struct ig_splitter *s;

	*out = NULL;
	if (!p)
		return unknown(pre, len, err);
	s = calloc(1, sizeof *s);
	if (!s)
		return ig_fail(err, -ENOMEM, "out of memory for the pre-tokenizer");
	for (unsigned i = 0; i < MAX_STAGES && p->stages[i]; i++) {
		PCRE2_SIZE at;
		int code;
		s->stages[i] = pcre2_compile((PCRE2_SPTR)p->stages[i], PCRE2_ZERO_TERMINATED,
					     PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
		if (!s->stages[i]) {
			PCRE2_UCHAR text[128] = "";
			pcre2_get_error_message(code, text, sizeof text);
			ig_splitter_close(s);
			return ig_fail(err, -EINVAL, "the pre-tokenizer '%s' does not compile: %s",
				       p->name, (const char *)text);
		}
		s->n_stages++;
		/* Where code can't be made (a hardened service), matching is only slower. */
		if (jit)
			pcre2_jit_compile(s->stages[i], PCRE2_JIT_COMPLETE);
	}
	*ignore_merges = p->ignore_merges;
	*add_bos = p->add_bos;
	*out = s;
	return 0;
}

/* Cut text, which is UTF-8, by the expressions from stage on. */
static int split(const struct run *r, unsigned stage, const char *text, size_t len)
{
	size_t done = 0;
	int rc;

	if (stage == r->s->n_stages)
		return len ? r->each(r->ctx, text, len) : 0;
	while (done < len) {
		PCRE2_SPTR subject = (PCRE2_SPTR)text;
		const PCRE2_SIZE *span = pcre2_get_ovector_pointer(r->data);
		int n = pcre2_match(r->s->stages[stage], subject, len, done, PCRE2_NO_UTF_CHECK,
				    r->data, r->match);

		if (n == PCRE2_ERROR_JIT_STACKLIMIT)
			n = pcre2_match(r->s->stages[stage], subject, len, done,
					PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, r->data, r->match);
		if (n == PCRE2_ERROR_NOMATCH)
			break;
		if (n < 0)
			return -ENOMEM;
		size_t from = span[0], to = span[1];
		if (from > done && (rc = split(r, stage + 1, text + done, from - done)))
			return rc;
		if ((rc = split(r, stage + 1, text + from, to - from)))
			return rc;
		done = to; /* no expression matches nothing: done grows */
	}
	return done < len ? split(r, stage + 1, text + done, len - done) : 0;
}

/* How many bytes at p are whole characters (*valid), or none are. */
static size_t same_kind(const unsigned char *p, size_t n, bool *valid)
{
	size_t i = 0;

	*valid = ig_utf8_check(p, n) > 0;
	while (i < n) {
		int c = ig_utf8_check(p + i, n - i);
		if ((c > 0) != *valid)
			break;
		i += c > 0 ? (size_t)c : c < 0 ? (size_t)-c : n - i;
	}
	return i;
}

int ig_splitter_run(const struct ig_splitter *s, const char *text, size_t len,
		    int (*each)(void *ctx, const char *piece, size_t len), void *ctx)
{
	struct run r = { .s = s, .each = each, .ctx = ctx };
	uint64_t limit = MATCH_LIMIT_BASE + (uint64_t)len * MATCH_LIMIT_PER_BYTE;
	int rc = -ENOMEM;

	if (len == 0)
		return 0;
	r.match = pcre2_match_context_create(NULL);
	r.data = pcre2_match_data_create(1, NULL);
	if (!r.match || !r.data)
		goto out;
	pcre2_set_match_limit(r.match, limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
	pcre2_set_heap_limit(r.match, HEAP_LIMIT_KIB);
	pcre2_set_depth_limit(r.match, DEPTH_LIMIT);
	rc = 0;
	for (size_t i = 0; i < len && !rc;) {
		bool valid;
		size_t n = same_kind((const unsigned char *)text + i, len - i, &valid);
		rc = valid ? split(&r, 0, text + i, n) : each(ctx, text + i, n);
		i += n;
	}
out:
	pcre2_match_data_free(r.data);
	pcre2_match_context_free(r.match);
	return rc;
}
