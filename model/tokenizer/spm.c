/*
 * spm.c: encodes a text as SentencePiece does: by merges, the highest score first ("BPE"), or by
 * the path with the highest sum ("unigram").  If no token has a space after another character,
 * words are merged one by one, which keeps their heaps small.  Owns the scores and, for unigram,
 * the trie; tokens and their bytes are the tokenizer's.  Bytes that are not UTF-8 become the tokens
 * of those bytes; SentencePiece itself replaces them by U+FFFD.
 */
#include "model/tokenizer/heap_private.h"
#include "model/tokenizer/tokenizer_private.h"
#include "base/array.h"
#include "base/utf8.h"

#include <errno.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN_PENALTY 10.0f /* below the lowest score: SentencePiece's constant */
#define USER_PENALTY 0.1f     /* of a user-defined token's score, likewise */
#define ROOT 0u

struct edge {	       /* of the trie, in a table with open addressing */
	uint64_t from; /* node << 8 | byte, plus 1; 0: free */
	uint32_t to;
};

struct ig_spm {
	const struct ig_tokenizer *t;
	struct ig_spm_options options;
	double *scores;	 /* [n_vocab] */
	uint32_t *order; /* [n_vocab] lower is a higher score; by merges only */
	bool cut_words;	 /* no token has a space after anything else */
	/* Of unigram: */
	struct edge *edges;
	uint64_t mask;
	int32_t *node_ids; /* the token that ends in a node; -1: none */
	uint32_t n_nodes;
	struct ig_hash_key key;
	double unknown_score, max_score;
};

struct symbol { /* a part of the text that is one token or one character */
	uint32_t start, len;
	int32_t prev, next; /* -1: none */
	int32_t pair;	    /* the token of this and the next symbol together; -1: none */
};

struct span {
	uint32_t start, len;
};

struct path { /* the best path to this position */
	double score;
	uint32_t start; /* of its last token; NOT_REACHED: no path yet */
	int32_t id;	/* -1: unknown */
};

#define NOT_REACHED UINT32_MAX

struct ig_spm_work { /* buffers for many texts */
	char *text;
	size_t text_cap;
	struct symbol *symbols;
	size_t symbols_cap;
	uint64_t *heap; /* order << 32 | symbol: the highest score and, of equals, the leftmost */
	size_t heap_cap;
	struct span *stack;
	size_t stack_cap;
	struct path *paths;
	size_t paths_cap;
};

struct run { /* of one text */
	const struct ig_spm *s;
	struct ig_spm_work *w;
	char *text; /* spaces as spaces */
	size_t len;
	struct ig_ids *out;
	size_t max_ids;
	bool was_unknown; /* several unknown characters in a row are one */
	size_t n;	  /* symbols */
	uint32_t *splits; /* [n_vocab] the left part's bytes of an unused token; 0: none */
};

/* ---- the text ------------------------------------------------------------------- */

/* Copy the text with a space before it, U+2581 as a space, and with trim without surplus spaces. */
static int take_text(struct run *r, const char *text, size_t len)
{
	const struct ig_spm_options *o = &r->s->options;
	char *out;

	if (o->trim)
		for (; len && *text == ' '; text++)
			len--;
	if (len == 0 && o->trim)
		return 0;
	if (len >= UINT32_MAX / 2)
		return -E2BIG;
	if (!ig_array_grow(r->w->text, &r->w->text_cap, len))
		return -ENOMEM;
	r->text = out = r->w->text;
	if (o->add_space)
		*out++ = ' ';
	for (size_t i = 0; i < len;) {
		if (o->trim && text[i] == ' ' && i && text[i - 1] == ' ') {
			i++;
		} else if (ig_is_space_mark(text + i, len - i)) {
			*out++ = ' ';
			i += 3;
		} else {
			*out++ = text[i++];
		}
	}
	r->len = (size_t)(out - r->text);
	while (o->trim && r->len && r->text[r->len - 1] == ' ')
		r->len--;
	return 0;
}

/* The bytes of the character at p; *valid says whether they are one. */
static inline uint32_t char_len(const char *p, size_t n, bool *valid)
{
	if ((unsigned char)*p < 0x80) {
		*valid = true;
		return 1;
	}
	int c = ig_utf8_check((const unsigned char *)p, n);

	*valid = c > 0;
	return c > 0 ? (uint32_t)c : c < 0 ? (uint32_t)-c : (uint32_t)n;
}

/* ---- ids out -------------------------------------------------------------------- */

static int put_id(struct run *r, int32_t id)
{
	struct ig_ids *l = r->out;

	r->was_unknown = false;
	if (l->n < l->cap && l->n < r->max_ids) {
		l->ids[l->n++] = id;
		return 0;
	}
	return ig_ids_add(l, &id, 1, r->max_ids);
}

/* A text without a token: the tokens of its bytes, or the unknown token. */
static int put_bytes(struct run *r, const char *p, size_t len)
{
	const int32_t *ids = r->s->t->merges.byte_ids;
	bool known = true;
	int rc = 0;

	for (size_t i = 0; i < len; i++)
		known = known && ids[(unsigned char)p[i]] >= 0;
	if (known) {
		for (size_t i = 0; i < len && !rc; i++)
			rc = put_id(r, ids[(unsigned char)p[i]]);
		return rc;
	}
	if (r->s->options.unknown >= 0 && !r->was_unknown)
		rc = put_id(r, r->s->options.unknown);
	r->was_unknown = true;
	return rc;
}

static int push_span(struct run *r, size_t *n, uint32_t start, uint32_t len)
{
	if (!ig_array_grow(r->w->stack, &r->w->stack_cap, *n))
		return -ENOMEM;
	r->w->stack[(*n)++] = (struct span){ start, len };
	return 0;
}

/* A symbol; an unused token is split into the tokens that it was merged from. */
static int put_symbol(struct run *r, uint32_t start, uint32_t len)
{
	const struct ig_tokenizer *t = r->s->t;
	int32_t id = ig_tokenizer_lookup(t, r->text + start, len);
	size_t n = 0;
	int rc;

	if (id >= 0 && t->kinds[id] != IG_TOKEN_UNUSED)
		return put_id(r, id);
	for (rc = push_span(r, &n, start, len); n && !rc;) {
		struct span x = r->w->stack[--n];
		uint32_t left;
		id = ig_tokenizer_lookup(t, r->text + x.start, x.len);
		left = id >= 0 && t->kinds[id] == IG_TOKEN_UNUSED && r->splits ? r->splits[id] : 0;
		if (left) {
			rc = push_span(r, &n, x.start + left, x.len - left);
			if (!rc)
				rc = push_span(r, &n, x.start, left);
		} else {
			rc = id >= 0 ? put_id(r, id) : put_bytes(r, r->text + x.start, x.len);
		}
	}
	return rc;
}

/* ---- merges --------------------------------------------------------------------- */

static int record_split(struct run *r, int32_t id, uint32_t left)
{
	if (!r->splits) {
		r->splits = calloc(r->s->t->n_vocab, sizeof *r->splits);
		if (!r->splits)
			return -ENOMEM;
	}
	r->splits[id] = left;
	return 0;
}

static int push_pair(struct run *r, size_t *n_heap, int32_t left)
{
	const struct ig_tokenizer *t = r->s->t;
	struct symbol *a;
	uint32_t len;

	if (left < 0)
		return 0;
	a = &r->w->symbols[left];
	a->pair = -1;
	if (a->next < 0)
		return 0;
	len = a->len + r->w->symbols[a->next].len;
	if (len > t->longest)
		return 0;
	a->pair = ig_tokenizer_lookup(t, r->text + a->start, len);
	if (a->pair < 0)
		return 0;
	heap_push(r->w->heap, n_heap, (uint64_t)r->s->order[a->pair] << 32 | (uint32_t)left);
	return t->kinds[a->pair] == IG_TOKEN_UNUSED ? record_split(r, a->pair, a->len) : 0;
}

static int put_word(struct run *r)
{
	size_t n_heap = 0;
	int rc = 0;

	for (size_t i = 0; i < r->n; i++) {
		r->w->symbols[i].prev = (int32_t)i - 1;
		r->w->symbols[i].next = i + 1 < r->n ? (int32_t)i + 1 : -1;
	}
	for (size_t i = 0; i < r->n && !rc; i++)
		rc = push_pair(r, &n_heap, (int32_t)i);
	while (n_heap && !rc) {
		uint64_t top = heap_pop(r->w->heap, &n_heap);
		int32_t left = (int32_t)(uint32_t)top;
		struct symbol *a = &r->w->symbols[left], *b;

		/* Either symbol may have been merged since the pair was pushed. */
		if (a->pair < 0 || r->s->order[a->pair] != top >> 32)
			continue;
		b = &r->w->symbols[a->next];
		a->len += b->len;
		a->next = b->next;
		b->pair = -1;
		if (a->next >= 0)
			r->w->symbols[a->next].prev = left;
		rc = push_pair(r, &n_heap, a->prev);
		if (!rc)
			rc = push_pair(r, &n_heap, left);
	}
	for (int32_t i = r->n ? 0 : -1; i >= 0 && !rc; i = r->w->symbols[i].next)
		rc = put_symbol(r, r->w->symbols[i].start, r->w->symbols[i].len);
	r->n = 0;
	return rc;
}

static int add_symbol(struct run *r, uint32_t start, uint32_t len)
{
	struct ig_spm_work *w = r->w;

	/* n - 1 pairs at first; each merge takes one out and puts at most two in. */
	if (!ig_array_grow(w->symbols, &w->symbols_cap, r->n) ||
	    !ig_array_grow(w->heap, &w->heap_cap, 2 * r->n + 1))
		return -ENOMEM;
	w->symbols[r->n++] = (struct symbol){ .start = start, .len = len };
	return 0;
}

static int by_merges(struct run *r)
{
	const struct ig_tokenizer *t = r->s->t;
	int rc = 0;

	for (size_t i = 0; i < r->len && !rc;) {
		const char *p = r->text + i;
		const struct ig_special *x =
			t->specials.has_user && !t->cuts_user ?
				ig_tokenizer_match(t, &t->specials, p, NULL, r->len - i, false) :
				NULL;
		bool valid;
		uint32_t len = x ? x->len : char_len(p, r->len - i, &valid);

		if (x || !valid) {
			rc = put_word(r);
			if (!rc)
				rc = x ? put_id(r, x->id) : put_bytes(r, p, len);
		} else {
			if (*p == ' ' && r->n && p[-1] != ' ' && r->s->cut_words)
				rc = put_word(r);
			if (!rc)
				rc = add_symbol(r, (uint32_t)i, len);
		}
		i += len;
	}
	return rc ? rc : put_word(r);
}

/* ---- the best path -------------------------------------------------------------- */

static struct edge *find_edge(const struct ig_spm *s, uint32_t node, unsigned char byte)
{
	uint64_t from = ((uint64_t)node << 8 | byte) + 1;

	for (uint64_t i = ig_hash_u64(&s->key, from);; i++) {
		struct edge *e = &s->edges[i & s->mask];
		if (e->from == from || e->from == 0)
			return e;
	}
}

/* Of several paths with the same sum the first is used.  SentencePiece's sums are floats, Hugging
 * Face's doubles: ties are the same only with the same rounding.  Where two paths have the same
 * tokens in another order and some are user-defined, the rounding may still differ from
 * SentencePiece's (398 of 12,000 lines generated for this case). */
static void reach(const struct ig_spm *s, struct path *to, double score, double before,
		  uint32_t start, int32_t id)
{
	double sum = s->options.wide ? score + before : (double)((float)score + (float)before);

	if (to->start == NOT_REACHED || sum > to->score)
		*to = (struct path){ sum, start, id };
}

/* User-defined tokens get a score by their bytes in SentencePiece's spelling: 3 for a space. */
static double score_of(const struct ig_spm *s, int32_t id, const char *text, size_t len)
{
	size_t n = len;

	if (s->options.wide || s->t->kinds[id] != IG_TOKEN_USER)
		return s->scores[id];
	for (size_t i = 0; i < len; i++)
		n += text[i] == ' ' ? 2 : 0;
	return (double)((float)n * (float)s->max_score - USER_PENALTY);
}

static int by_path(struct run *r)
{
	const struct ig_spm *s = r->s;
	size_t n = 0;
	int rc = 0;

	if (!ig_array_grow(r->w->paths, &r->w->paths_cap, r->len))
		return -ENOMEM;
	struct path *paths = r->w->paths;
	for (size_t i = 0; i <= r->len; i++)
		paths[i] = (struct path){ .start = NOT_REACHED, .id = -1 };
	paths[0].score = 0;
	for (size_t i = 0; i < r->len;) {
		bool valid, alone = false;
		uint32_t len = char_len(r->text + i, r->len - i, &valid), node = ROOT;
		for (size_t k = i; valid && k < r->len; k++) {
			const struct edge *e = find_edge(s, node, (unsigned char)r->text[k]);
			if (!e->from)
				break;
			node = e->to;
			int32_t id = s->node_ids[node];
			if (id < 0)
				continue;
			size_t used = k + 1 - i;
			reach(s, &paths[k + 1], score_of(s, id, r->text + i, used), paths[i].score,
			      (uint32_t)i, id);
			alone = alone || used == len;
		}
		if (!alone)
			reach(s, &paths[i + len], s->unknown_score, paths[i].score, (uint32_t)i,
			      -1);
		i += len;
	}
	/* Follow the path back, then emit it from the start. */
	for (size_t at = r->len; at > 0; at = paths[at].start)
		n++;
	if (!ig_array_grow(r->w->stack, &r->w->stack_cap, n))
		return -ENOMEM;
	for (size_t at = r->len, k = n; at > 0; at = paths[at].start)
		r->w->stack[--k] = (struct span){ paths[at].start, (uint32_t)at };
	for (size_t k = 0; k < n && !rc; k++) {
		struct span x = r->w->stack[k];
		int32_t id = paths[x.len].id;
		rc = id >= 0 ? put_id(r, id) : put_bytes(r, r->text + x.start, x.len - x.start);
	}
	return rc;
}

int ig_spm_encode(const struct ig_spm *s, struct ig_spm_work **work, const char *text, size_t len,
		  size_t max_ids, struct ig_ids *out)
{
	struct run r = { .s = s, .out = out, .max_ids = max_ids };
	size_t left = max_ids > out->n ? max_ids - out->n : 0;
	int rc;

	if (!*work && !(*work = calloc(1, sizeof **work)))
		return -ENOMEM;
	r.w = *work;
	rc = take_text(&r, text, len);
	/* Refuse early a text that has too many ids however it is split.  Without tokens for all
	 * bytes a long text may be one unknown token. */
	if (!rc && s->t->merges.byte_ids[0xff] >= 0 && r.len / s->t->longest > left)
		rc = -E2BIG;
	if (!rc)
		rc = s->options.unigram ? by_path(&r) : by_merges(&r);
	free(r.splits);
	return rc;
}

void ig_spm_work_destroy(struct ig_spm_work *w)
{
	if (!w)
		return;
	free(w->paths);
	free(w->stack);
	free(w->heap);
	free(w->symbols);
	free(w->text);
	free(w);
}

/* ---- the tables ----------------------------------------------------------------- */

/* Lower for a higher score: the bits of the float in reversed order. */
static uint32_t order_of(double wide)
{
	float score = (float)wide;
	uint32_t bits;

	score += 0.0f; /* -0 is 0 */
	memcpy(&bits, &score, sizeof bits);
	return bits >> 31 ? bits : ~bits & 0x7fffffffu;
}

static bool in_table(const struct ig_tokenizer *t, int32_t id)
{
	size_t len = ig_tokenizer_len(t, id);

	return len && t->kinds[id] != IG_TOKEN_CONTROL &&
	       ig_tokenizer_lookup(t, t->bytes + t->starts[id], len) == id;
}

static void add_to_trie(struct ig_spm *s, int32_t id)
{
	const struct ig_tokenizer *t = s->t;
	uint32_t node = ROOT;

	for (uint32_t i = t->starts[id]; i < t->starts[id + 1]; i++) {
		unsigned char byte = (unsigned char)t->bytes[i];
		struct edge *e = find_edge(s, node, byte);
		if (!e->from) {
			*e = (struct edge){ ((uint64_t)node << 8 | byte) + 1, s->n_nodes };
			s->node_ids[s->n_nodes++] = -1;
		}
		node = e->to;
	}
	s->node_ids[node] = id;
}

static int make_trie(struct ig_spm *s)
{
	const struct ig_tokenizer *t = s->t;
	uint64_t n = (uint64_t)t->starts[t->n_vocab] + 1, size = 8;
	double min = 0;
	bool any = false;

	while (size < 2 * n)
		size *= 2;
	s->mask = size - 1;
	ig_hash_key_init(&s->key);
	s->edges = calloc(size, sizeof *s->edges);
	s->node_ids = malloc(n * sizeof *s->node_ids);
	if (!s->edges || !s->node_ids)
		return -ENOMEM;
	s->node_ids[s->n_nodes++] = -1;
	/* SentencePiece's initial value; log-probabilities are below it. */
	s->max_score = FLT_MIN;
	for (int32_t id = 0; id < (int32_t)t->n_vocab; id++) {
		if (s->options.wide && (!any || s->scores[id] < min)) {
			min = s->scores[id];
			any = true;
		}
		if (!in_table(t, id))
			continue;
		if (t->kinds[id] != IG_TOKEN_UNUSED)
			add_to_trie(s, id);
		if (t->kinds[id] != IG_TOKEN_PLAIN || s->options.wide)
			continue;
		if (!any || s->scores[id] < min)
			min = s->scores[id];
		if (s->scores[id] > s->max_score)
			s->max_score = s->scores[id];
		any = true;
	}
	s->unknown_score = s->options.wide ? min - UNKNOWN_PENALTY : (float)min - UNKNOWN_PENALTY;
	return 0;
}

int ig_spm_create(const struct ig_tokenizer *t, const struct ig_spm_options *o, double *scores,
		  struct ig_spm **out)
{
	struct ig_spm *s = calloc(1, sizeof *s);
	int rc = -ENOMEM;

	*out = NULL;
	if (!s) {
		free(scores);
		return rc;
	}
	*s = (struct ig_spm){ .t = t, .options = *o, .scores = scores, .cut_words = true };
	if (o->unigram) {
		rc = make_trie(s);
		goto out;
	}
	s->order = malloc(t->n_vocab * sizeof *s->order);
	if (!s->order)
		goto out;
	rc = 0;
	for (int32_t id = 0; id < (int32_t)t->n_vocab; id++) {
		s->order[id] = order_of(scores[id]);
		if (!in_table(t, id))
			continue;
		/* The splits of an unused token are recorded across words. */
		if (t->kinds[id] == IG_TOKEN_UNUSED ||
		    (t->kinds[id] == IG_TOKEN_PLAIN &&
		     ig_crosses_words(t->bytes + t->starts[id], ig_tokenizer_len(t, id))))
			s->cut_words = false;
	}
out:
	if (rc) {
		ig_spm_destroy(s);
		return rc;
	}
	*out = s;
	return 0;
}

const struct ig_spm_options *ig_spm_made_of(const struct ig_spm *s, const double **scores)
{
	*scores = s->scores;
	return &s->options;
}

void ig_spm_destroy(struct ig_spm *s)
{
	if (!s)
		return;
	free(s->node_ids);
	free(s->edges);
	free(s->order);
	free(s->scores);
	free(s);
}
