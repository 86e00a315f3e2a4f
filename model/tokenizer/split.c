/*
 * split.c: splits text into pieces, by tokenizer.ggml.pre or by a file's own expressions.  A
 * pre-tokenizer is a sequence of regular expressions: each splits the pieces of the previous one
 * into its matches and the text between them.  Merges never cross pieces.  Every expression of the
 * table is linear: each match takes the run of characters that it examined, or all but one of it.
 */
#include "model/tokenizer/tokenizer_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_STAGES 16
#define MAX_PRE_STAGES 5

#define WS IG_REGEX_SPACE
#define SPACES_BUT_LAST "[" WS "]+(?![^" WS "])|[" WS "]+"

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|" SPACES_BUT_LAST
#define CL100K(digits)                                                                             \
	"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" WS            \
	"\\p{L}\\p{N}]+[\\r\\n]*|[" WS "]*[\\r\\n]+|" SPACES_BUT_LAST

#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K(digits, suffix)                                                                      \
	"[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" suffix "|[^\\r\\n\\p{L}\\p{N}]?" UPPER        \
	"+" LOWER "*" suffix "|" digits "| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n/]*|[" WS                 \
	"]*[\\r\\n]+|" SPACES_BUT_LAST
#define SUFFIXES "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"

/* Qwen 3.5's: Qwen 2's with marks among letters. */
#define QWEN35                                                                                     \
	"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS        \
	"\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|[" WS "]*[\\r\\n]+|" SPACES_BUT_LAST

/* Kimi's: GPT-4o's with runs of Han, which no other piece has. */
#define HAN                                                                                               \
	"\\x{2e80}-\\x{2e99}\\x{2e9b}-\\x{2ef3}\\x{2f00}-\\x{2fd5}\\x{3005}\\x{3007}\\x{3021}-\\x{3029}"  \
	"\\x{3038}-\\x{303b}\\x{3400}-\\x{4dbf}\\x{4e00}-\\x{9fff}\\x{f900}-\\x{fa6d}\\x{fa70}-\\x{fad9}" \
	"\\x{16fe2}\\x{16fe3}\\x{16ff0}\\x{16ff1}\\x{20000}-\\x{2a6df}\\x{2a700}-\\x{2b739}"              \
	"\\x{2b740}-\\x{2b81d}\\x{2b820}-\\x{2cea1}\\x{2ceb0}-\\x{2ebe0}\\x{2f800}-\\x{2fa1d}"            \
	"\\x{30000}-\\x{3134a}\\x{31350}-\\x{323af}"
#define NO_HAN(class) "(?:(?![" HAN "])" class ")"
#define KIMI_K2                                                                                    \
	"[" HAN "]+|[^\\r\\n\\p{L}\\p{N}]?" NO_HAN(UPPER) "*" NO_HAN(                              \
		LOWER) "+" SUFFIXES                                                                \
		       "|[^\\r\\n\\p{L}\\p{N}]?" NO_HAN(UPPER) "+" NO_HAN(                         \
			       LOWER) "*" SUFFIXES "|\\p{N}{1,3}"                                  \
				      "| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n]*|[" WS                    \
				      "]*[\\r\\n]+|" SPACES_BUT_LAST

/* DeepSeek's: an ASCII mark takes the ASCII letters after it. */
#define DEEPSEEK3                                                                                  \
	"[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"                    \
	"| ?[\\p{P}\\p{S}]+[\\r\\n]*|[" WS "]*[\\r\\n]+|" SPACES_BUT_LAST

static const struct pre {
	const char *name;
	bool ignore_merges; /* a piece that is a token is not merged */
	bool add_bos;	    /* the default, if the file has no key for it */
	bool nfc;	    /* normalize to NFC first */
	const char *stages[MAX_PRE_STAGES];
} pres[] = {
	{ "default",
	  false,
	  false,
	  false,
	  { "[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]" } },
	{ "gpt-2", false, false, false, { GPT2 } },
	{ "phi-2", false, false, false, { GPT2 } },
	{ "olmo", false, false, true, { GPT2 } },
	{ "smollm", false, false, false, { "\\p{N}", GPT2 } },
	{ "starcoder", false, false, false, { "\\p{N}", GPT2 } },
	{ "refact", false, false, false, { "\\p{N}", GPT2 } },
	{ "llama-bpe", true, true, false, { CL100K("\\p{N}{1,3}") } },
	{ "llama3", true, true, false, { CL100K("\\p{N}{1,3}") } },
	{ "llama-v3", true, true, false, { CL100K("\\p{N}{1,3}") } },
	{ "lfm2", true, true, false, { CL100K("\\p{N}{1,3}") } },
	{ "qwen2", false, false, true, { CL100K("\\p{N}") } },
	{ "qwen35", false, false, true, { QWEN35 } },
	{ "deepseek-r1-qwen", false, false, false, { CL100K("\\p{N}") } },
	{ "tekken", true, true, false, { O200K("\\p{N}", "") } },
	{ "gpt-4o", false, false, false, { O200K("\\p{N}{1,3}", SUFFIXES) } },
	{ "llama4",
	  false,
	  false,
	  false,
	  { O200K("\\p{N}{1,3}", SUFFIXES) } }, /* Muse Glimmer, too */
	{ "minimax-m2", false, false, false, { O200K("\\p{N}{1,3}", SUFFIXES) } },
	{ "glm4", true, false, false, { CL100K("\\p{N}{1,3}") } },
	{ "kimi-k2", false, false, false, { KIMI_K2 } },
	{ "laguna", false, false, false, { "[^\\n]+|\\n+", CL100K("\\p{N}") } },
	{ "deepseek-coder",
	  false,
	  false,
	  false,
	  { "[\\r\\n]", "[" WS "]?\\p{L}+", "[" WS "]?\\p{P}+",
	    "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+", "\\p{N}" } },
	{ "deepseek-v3",
	  false,
	  false,
	  false,
	  { "\\p{N}{1,3}", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+",
	    DEEPSEEK3 } },
};

#define N_PRES (sizeof pres / sizeof pres[0])

const char ig_splitter_gpt2[] = GPT2;

struct stage {
	struct ig_regex *regex;
	enum ig_split_behavior behavior;
	bool invert;
};

struct ig_splitter {
	unsigned n_stages;
	struct stage stages[MAX_STAGES];
};

/* One run over one text. */
struct run {
	const struct ig_splitter *s;
	struct ig_regex_work *work;
	int (*each)(void *ctx, const char *piece, size_t len);
	void *ctx;
};

/* ---- open and close ----------------------------------------------------------------- */

void ig_splitter_close(struct ig_splitter *s)
{
	if (!s)
		return;
	for (unsigned i = 0; i < s->n_stages; i++)
		ig_regex_destroy(s->stages[i].regex);
	free(s);
}

int ig_splitter_create(struct ig_splitter **out)
{
	*out = calloc(1, sizeof **out);
	return *out ? 0 : -ENOMEM;
}

int ig_splitter_add(struct ig_splitter *s, const char *pattern, enum ig_split_behavior behavior,
		    bool invert, bool jit, struct ig_error *err)
{
	struct stage *stage = &s->stages[s->n_stages];
	int rc;

	if (s->n_stages == MAX_STAGES)
		return ig_fail(err, -ENOTSUP, "more than %d pre-tokenizers", MAX_STAGES);
	*stage = (struct stage){ .behavior = behavior, .invert = invert };
	rc = ig_regex_compile(pattern, jit, &stage->regex, err);
	s->n_stages += !rc;
	return rc;
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
		n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "",
				      pres[i].name);
	return ig_fail(err, -ENOTSUP, "the pre-tokenizer '%.*s' is unknown; known: %s",
		       len < 64 ? (int)len : 64, name, list);
}

int ig_splitter_open(const char *pre, size_t len, bool jit, struct ig_splitter **out,
		     struct ig_pre_traits *traits, struct ig_error *err)
{
	const struct pre *p = find_pre(pre, len);
	struct ig_splitter *s;
	int rc;

	*out = NULL;
	if (!p)
		return unknown(pre, len, err);
	if (ig_splitter_create(&s))
		return ig_fail(err, -ENOMEM, "out of memory for the pre-tokenizer");
	for (unsigned i = 0; i < MAX_PRE_STAGES && p->stages[i]; i++) {
		rc = ig_splitter_add(s, p->stages[i], IG_SPLIT_ISOLATED, false, jit, err);
		if (rc) {
			ig_splitter_close(s);
			return rc;
		}
	}
	*traits = (struct ig_pre_traits){ p->ignore_merges, p->add_bos, p->nfc };
	*out = s;
	return 0;
}

/* ---- cutting -------------------------------------------------------------------------- */

static int split(const struct run *r, unsigned stage, const char *text, size_t len);

struct joined { /* merges adjacent pieces of a stage */
	const struct run *r;
	unsigned next_stage;
	const char *text; /* the pending piece; NULL: none */
	size_t len;
	bool was_match;
};

static int put_pending(struct joined *j)
{
	const char *text = j->text;

	j->text = NULL;
	return text ? split(j->r, j->next_stage, text, j->len) : 0;
}

static int put_joined(struct joined *j, enum ig_split_behavior behavior, const char *text,
		      size_t len, bool match)
{
	bool join = j->text && (behavior == IG_SPLIT_CONTIGUOUS		  ? match == j->was_match :
				behavior == IG_SPLIT_MERGED_WITH_PREVIOUS ? match && !j->was_match :
									    !match && j->was_match);
	int rc = 0;

	if (join) {
		j->len += len;
	} else {
		rc = put_pending(j);
		j->text = text;
		j->len = len;
	}
	j->was_match = match;
	return rc;
}

/* Split text, which is UTF-8, by the expressions from stage on. */
static int split(const struct run *r, unsigned stage, const char *text, size_t len)
{
	const struct stage *x = &r->s->stages[stage];
	struct joined j = { .r = r, .next_stage = stage + 1 };
	bool joins = stage < r->s->n_stages && x->behavior > IG_SPLIT_REMOVED;
	size_t done = 0;
	int rc = 0;

	if (stage == r->s->n_stages)
		return len ? r->each(r->ctx, text, len) : 0;
	while (done < len && !rc) {
		size_t from, to;
		int found = ig_regex_find(x->regex, r->work, text, len, done, &from, &to);

		if (found < 0)
			return found;
		if (!found)
			from = to = len;
		for (int match = 0; match < 2 && !rc; match++) {
			const char *p = text + (match ? from : done);
			size_t n = match ? to - from : from - done;
			bool is_match = match != x->invert;
			if (n == 0 || (is_match && x->behavior == IG_SPLIT_REMOVED))
				continue;
			rc = joins ? put_joined(&j, x->behavior, p, n, is_match) :
				     split(r, stage + 1, p, n);
		}
		done = to; /* no expression matches the empty text */
	}
	return rc ? rc : put_pending(&j);
}

int ig_splitter_run(const struct ig_splitter *s, const char *text, size_t len,
		    int (*each)(void *ctx, const char *piece, size_t len), void *ctx)
{
	struct run r = { .s = s, .each = each, .ctx = ctx };
	int rc = 0;

	if (len == 0)
		return 0;
	r.work = ig_regex_work_create(len);
	if (!r.work)
		return -ENOMEM;
	for (size_t i = 0; i < len && !rc;) {
		bool valid;
		size_t n = ig_utf8_same_kind(text + i, len - i, &valid);
		rc = valid ? split(&r, 0, text + i, n) : each(ctx, text + i, n);
		i += n;
	}
	ig_regex_work_destroy(r.work);
	return rc;
}
