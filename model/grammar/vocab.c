/*
 * vocab.c: a tokenizer's plain tokens as a trie over their bytes, in one array in depth-first order
 * (as in llama.cpp and llguidance): a walk goes to the next node, or skips a subtree.  Control
 * tokens are not in it: text never becomes one.
 */
#include "model/grammar/grammar_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct word {
	const unsigned char *bytes;
	uint32_t len;
	int32_t id;
};

static int compare(const void *a, const void *b)
{
	const struct word *x = a, *y = b;
	int c = memcmp(x->bytes, y->bytes, x->len < y->len ? x->len : y->len);

	if (c)
		return c;
	if (x->len != y->len)
		return x->len < y->len ? -1 : 1;
	return x->id < y->id ? -1 : 1;
}

/* Separate the tokens into the trie's words, control tokens and end tokens. */
static uint32_t sort_tokens(struct ig_vocab *v, struct word *words)
{
	uint32_t n = 0;

	for (int32_t id = 0; (uint32_t)id < v->n_vocab; id++) {
		size_t len;
		bool special;
		const char *bytes = ig_tokenizer_token(v->tokenizer, id, &len, &special);
		if (ig_tokenizer_is_end(v->tokenizer, id))
			v->ends[v->n_ends++] = id;
		else if (special && len)
			v->controls[v->n_controls++] = id;
		else if (!special && len && len <= IG_VOCAB_MAX_TOKEN)
			words[n++] =
				(struct word){ (const unsigned char *)bytes, (uint32_t)len, id };
	}
	qsort(words, n, sizeof *words, compare);
	return n;
}

static uint32_t common(const struct word *a, const struct word *b)
{
	uint32_t n = a->len < b->len ? a->len : b->len, i = 0;

	while (i < n && a->bytes[i] == b->bytes[i])
		i++;
	return i;
}

static uint32_t count_nodes(const struct word *words, uint32_t n)
{
	uint64_t nodes = 1;

	for (uint32_t i = 0; i < n; i++)
		nodes += words[i].len - (i ? common(&words[i - 1], &words[i]) : 0);
	return nodes < UINT32_MAX ? (uint32_t)nodes : 0;
}

static void fill(struct ig_vocab *v, const struct word *words, uint32_t n)
{
	uint32_t path[IG_VOCAB_MAX_TOKEN + 1] = { 0 }, depth = 0;

	v->nodes[0] = (struct ig_trie_node){ .token = -1 };
	v->n_nodes = 1;
	for (uint32_t i = 0; i < n; i++) {
		const struct word *w = &words[i];
		v->order[v->n_order++] = w->id;
		uint32_t shared = i ? common(w - 1, w) : 0;
		if (i && shared == w->len && shared == w[-1].len) {
			v->nodes[path[depth]].has_twins = true;
			v->twins[v->n_twins][0] = v->nodes[path[depth]].token;
			v->twins[v->n_twins++][1] = w->id;
			continue;
		}
		for (; depth > shared; depth--)
			v->nodes[path[depth]].skip = v->n_nodes;
		for (; depth < w->len; path[++depth] = v->n_nodes++)
			v->nodes[v->n_nodes] = (struct ig_trie_node){
				.token = -1,
				.depth = (uint8_t)(depth + 1),
				.byte = w->bytes[depth],
				.order = i,
			};
		v->nodes[path[depth]].token = w->id;
		if (w->len == 1)
			v->single[w->bytes[0]] = true;
		if (w->len > v->longest)
			v->longest = w->len;
	}
	for (;; depth--) {
		v->nodes[path[depth]].skip = v->n_nodes;
		if (!depth)
			break;
	}
}

/* From the last node to the first, since a node precedes those below it. */
static void find_pure(struct ig_vocab *v)
{
	for (uint32_t i = v->n_nodes; i-- > 0;) {
		struct ig_trie_node *t = &v->nodes[i];
		for (uint32_t k = i + 1; k < t->skip && t->pure != IG_NOT_PURE;
		     k = v->nodes[k].skip) {
			const struct ig_trie_node *below = &v->nodes[k];
			if (!ig_is_plain_byte(below->byte) || below->pure == IG_NOT_PURE)
				t->pure = IG_NOT_PURE;
			else if (below->pure + 1 > t->pure)
				t->pure = (uint8_t)(below->pure + 1);
		}
	}
}

static int compare_twins(const void *a, const void *b)
{
	const int32_t *x = a, *y = b;

	return x[0] < y[0] ? -1 : x[0] > y[0] ? 1 : x[1] < y[1] ? -1 : x[1] > y[1];
}

void ig_vocab_add_twins(const struct ig_vocab *v, int32_t token, uint32_t *bits)
{
	uint32_t first = 0, last = v->n_twins;

	while (first < last) {
		uint32_t mid = first + (last - first) / 2;
		if (v->twins[mid][0] < token)
			first = mid + 1;
		else
			last = mid;
	}
	for (; first < v->n_twins && v->twins[first][0] == token; first++)
		bits[v->twins[first][1] / 32] |= 1u << v->twins[first][1] % 32;
}

int ig_vocab_create(const struct ig_tokenizer *t, struct ig_vocab **out, struct ig_error *err)
{
	struct ig_vocab *v = calloc(1, sizeof *v);
	size_t n_vocab = (size_t)ig_tokenizer_n_vocab(t);
	struct word *words = malloc((n_vocab + 1) * sizeof *words);
	uint32_t n, n_nodes;
	int rc = -ENOMEM;

	*out = NULL;
	if (!v || !words)
		goto out;
	atomic_init(&v->refs, 1);
	v->tokenizer = t;
	v->n_vocab = (uint32_t)n_vocab;
	v->twins = malloc((n_vocab + 1) * sizeof *v->twins);
	v->order = malloc((n_vocab + 1) * sizeof *v->order);
	v->ends = malloc((n_vocab + 1) * sizeof *v->ends);
	v->controls = malloc((n_vocab + 1) * sizeof *v->controls);
	if (!v->twins || !v->order || !v->ends || !v->controls)
		goto out;
	n = sort_tokens(v, words);
	if (!v->n_ends) {
		rc = ig_fail(err, -EINVAL, "the model's vocabulary has no end-of-text token");
		goto out;
	}
	n_nodes = count_nodes(words, n);
	v->nodes = n_nodes ? malloc(n_nodes * sizeof *v->nodes) : NULL;
	if (!v->nodes)
		goto out;
	fill(v, words, n);
	for (uint32_t i = 1; i < v->n_nodes; i = v->nodes[i].skip)
		v->by_byte[v->nodes[i].byte] = i;
	find_pure(v);
	qsort(v->twins, v->n_twins, sizeof *v->twins, compare_twins);
	*out = v;
	v = NULL;
	rc = 0;
out:
	free(words);
	ig_vocab_unref(v);
	if (rc == -ENOMEM)
		ig_fail(err, rc, "out of memory for the vocabulary's trie");
	return rc;
}

struct ig_vocab *ig_vocab_ref(struct ig_vocab *v)
{
	atomic_fetch_add_explicit(&v->refs, 1, memory_order_relaxed);
	return v;
}

void ig_vocab_unref(struct ig_vocab *v)
{
	if (!v || atomic_fetch_sub_explicit(&v->refs, 1, memory_order_acq_rel) > 1)
		return;
	free(v->nodes);
	free(v->twins);
	free(v->order);
	free(v->ends);
	free(v->controls);
	free(v);
}
