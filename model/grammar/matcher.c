/*
 * matcher.c: a request's position in its grammar: the configurations after the text so far, each a
 * state and a stack of calls.  When many calls are open, only edges on a way to the end with the
 * fewest further calls are allowed ("closing"; every state has one), so that the depth is bounded
 * without a dead end.
 */
#include "model/grammar/grammar_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct ig_grammar_matcher {
	struct ig_grammar *g;
	bool borrows; /* g is another's */
	struct ig_walk w;
	struct ig_conf confs[2 * IG_MAX_CONFS];
	uint32_t n_confs;
	bool ended;			  /* an end token was accepted */
	uint32_t moved[2 * IG_MAX_NODES]; /* scratch of sweep */
};

struct ig_grammar_matcher *ig_grammar_matcher_create(struct ig_grammar *g)
{
	struct ig_grammar_matcher *m = calloc(1, sizeof *m);

	if (!m)
		return NULL;
	if (ig_walk_init(&m->w)) {
		free(m);
		return NULL;
	}
	m->borrows = !g;
	if (!g)
		return m;
	m->g = ig_grammar_ref(g);
	m->confs[0] = (struct ig_conf){ g->starts[0], IG_STACK_EMPTY };
	m->n_confs = 1;
	return m;
}

void ig_grammar_matcher_destroy(struct ig_grammar_matcher *m)
{
	if (!m)
		return;
	ig_walk_finish(&m->w);
	if (!m->borrows)
		ig_grammar_unref(m->g);
	free(m);
}

void ig_grammar_matcher_copy(struct ig_grammar_matcher *to, const struct ig_grammar_matcher *from)
{
	to->g = from->g;
	to->n_confs = from->n_confs;
	to->ended = from->ended;
	to->w.n_nodes = from->w.n_nodes;
	memcpy(to->confs, from->confs, from->n_confs * sizeof *to->confs);
	memcpy(to->w.nodes, from->w.nodes, from->w.n_nodes * sizeof *to->w.nodes);
	/* what it knows of states may be another grammar's */
	memset(to->w.row_of, 0xff, sizeof to->w.row_of);
}

static bool is_closing(const struct ig_grammar_matcher *m, struct ig_conf c)
{
	return m->w.nodes[c.node].depth >= IG_SOFT_DEPTH;
}

static void set_bit(uint32_t *mask, int32_t id) { mask[id / 32] |= 1u << id % 32; }

/* ---- the mask -------------------------------------------------------------------- */

static void add_others(const struct ig_vocab *v, uint32_t *mask)
{
	for (uint32_t i = 0; i < v->n_controls; i++)
		set_bit(mask, v->controls[i]);
}

static void add_controls(struct ig_grammar_matcher *m, uint32_t *mask)
{
	const struct ig_dfa *a = &m->g->a;
	uint32_t n_nodes = m->w.n_nodes, n;
	bool end;

	n = ig_walk_close(&m->w, m->g, m->confs, m->n_confs, true, &end);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t s = m->w.before[i].state;
		for (uint32_t j = a->symbol_at[s]; j < a->symbol_at[s + 1]; j++)
			if (a->symbols[j].symbol == IG_SYMBOL_OTHERS)
				add_others(m->g->vocab, mask);
			else if (a->symbols[j].symbol & IG_SYMBOL_TOKEN)
				set_bit(mask, (int32_t)(a->symbols[j].symbol & ~IG_SYMBOL_TOKEN));
	}
	m->w.n_nodes = n_nodes;
}

void ig_grammar_matcher_mask(struct ig_grammar_matcher *m, uint32_t *mask)
{
	const struct ig_vocab *v = m->g->vocab;
	struct ig_conf closed[4 * IG_MAX_CONFS];
	uint32_t n;
	bool end = m->ended;

	memset(mask, 0, ig_mask_words(v) * sizeof *mask);
	if (!m->ended) {
		n = ig_walk_close(&m->w, m->g, m->confs, m->n_confs, false, &end);
		memcpy(closed, m->w.before, n * sizeof *closed);
		m->w.work = 0;
		for (uint32_t i = 0; i < n && m->w.work <= IG_WALK_WORK; i++)
			if (m->g->flags[closed[i].state] & (IG_STATE_BYTES | IG_STATE_CALLS))
				ig_masks_add(&m->w, m->g, closed[i], is_closing(m, closed[i]),
					     mask);
		add_controls(m, mask);
	}
	for (uint32_t i = 0; end && i < v->n_ends; i++)
		set_bit(mask, v->ends[i]);
}

/* ---- accepting a token -------------------------------------------------------------------- */

/* Make the first n of w.confs the configurations, and drop stack nodes that none of them uses.
 * Parents precede children, so the others can move down in one pass. */
static void sweep(struct ig_grammar_matcher *m, uint32_t n)
{
	struct ig_stack_node *nodes = m->w.nodes;
	uint32_t live = IG_STACK_FIRST;

	memset(m->moved, 0, m->w.n_nodes * sizeof *m->moved);
	m->n_confs = 0;
	for (uint32_t i = 0; i < n && m->n_confs < IG_MAX_CONFS; i++) {
		struct ig_conf c = m->w.confs[i];
		uint32_t fresh = 0;
		for (uint32_t x = c.node; x >= IG_STACK_FIRST && !m->moved[x]; x = nodes[x].parent)
			fresh++;
		if (live + fresh > IG_MAX_NODES)
			continue;
		live += fresh;
		for (uint32_t x = c.node; x >= IG_STACK_FIRST && !m->moved[x]; x = nodes[x].parent)
			m->moved[x] = 1;
		m->confs[m->n_confs++] = c;
	}
	live = IG_STACK_FIRST;
	for (uint32_t x = IG_STACK_FIRST; x < m->w.n_nodes; x++) {
		if (!m->moved[x])
			continue;
		m->moved[x] = live;
		nodes[live] = nodes[x];
		if (nodes[live].parent >= IG_STACK_FIRST)
			nodes[live].parent = m->moved[nodes[live].parent];
		live++;
	}
	for (uint32_t i = 0; i < m->n_confs; i++)
		if (m->confs[i].node >= IG_STACK_FIRST)
			m->confs[i].node = m->moved[m->confs[i].node];
	m->w.n_nodes = live;
}

/* Replace the n configurations at w.confs + first by those after len bytes; returns their
 * number. */
static uint32_t read_bytes(struct ig_grammar_matcher *m, uint32_t first, uint32_t n,
			   const char *bytes, size_t len, bool closing)
{
	struct ig_walk *w = &m->w;

	for (size_t i = 0; i < len && n; i++) {
		ig_walk_step(w, m->g, w->confs + first, n, (unsigned char)bytes[i], closing,
			     first + n);
		uint32_t n_out = w->n_confs - (first + n);
		memmove(w->confs + first, w->confs + first + n, n_out * sizeof *w->confs);
		n = n_out;
	}
	return n;
}

/* Configurations after a plain token, into w.confs; returns their number.  As for the mask, each
 * is closing or not by its depth after it has returned from finished rules. */
static uint32_t read_plain(struct ig_grammar_matcher *m, const char *bytes, size_t len)
{
	struct ig_conf closed[4 * IG_MAX_CONFS];
	uint32_t n = 0, n_closed;
	bool end;

	n_closed = ig_walk_close(&m->w, m->g, m->confs, m->n_confs, false, &end);
	memcpy(closed, m->w.before, n_closed * sizeof *closed);
	for (unsigned closing = 0; closing < 2; closing++) {
		uint32_t first = n, k = 0;
		for (uint32_t i = 0; i < n_closed; i++)
			if (is_closing(m, closed[i]) == closing)
				m->w.confs[first + k++] = closed[i];
		n = first + read_bytes(m, first, k, bytes, len, closing);
	}
	/* If configurations beyond the limit were dropped, a single one may still continue. */
	for (uint32_t i = 0; i < n_closed && !n; i++) {
		m->w.confs[0] = closed[i];
		n = read_bytes(m, 0, 1, bytes, len, is_closing(m, closed[i]));
	}
	return n;
}

/* The state after a control token; -1: none. */
static int64_t after_control(const struct ig_dfa *a, uint32_t state, int32_t id)
{
	int64_t to = -1;

	for (uint32_t i = a->symbol_at[state]; i < a->symbol_at[state + 1]; i++) {
		if (a->symbols[i].symbol == (IG_SYMBOL_TOKEN | (uint32_t)id))
			return a->symbols[i].to;
		if (a->symbols[i].symbol == IG_SYMBOL_OTHERS)
			to = a->symbols[i].to;
	}
	return to;
}

static uint32_t read_control(struct ig_grammar_matcher *m, int32_t id)
{
	const struct ig_dfa *a = &m->g->a;
	uint32_t n_out = 0, n;
	bool end;

	n = ig_walk_close(&m->w, m->g, m->confs, m->n_confs, true, &end);
	for (uint32_t i = 0; i < n; i++) {
		struct ig_conf c = m->w.before[i];
		int64_t to = after_control(a, c.state, id);
		if (to >= 0 && n_out < IG_MAX_CONFS)
			m->w.confs[n_out++] = (struct ig_conf){ (uint32_t)to, c.node };
	}
	return n_out;
}

int ig_grammar_matcher_accept(struct ig_grammar_matcher *m, int32_t id)
{
	size_t len;
	bool special, end = m->ended;
	const char *bytes = ig_tokenizer_token(m->g->vocab->tokenizer, id, &len, &special);
	uint32_t n_nodes = m->w.n_nodes, n;

	if (!bytes)
		return -EINVAL;
	if (ig_tokenizer_is_end(m->g->vocab->tokenizer, id)) {
		if (!end)
			ig_walk_close(&m->w, m->g, m->confs, m->n_confs, false, &end);
		m->ended = end;
		return end ? 0 : -EINVAL;
	}
	if (m->ended || !len || (!special && len > IG_VOCAB_MAX_TOKEN))
		return -EINVAL;
	n = special ? read_control(m, id) : read_plain(m, bytes, len);
	if (!n) {
		m->w.n_nodes = n_nodes;
		return -EINVAL;
	}
	sweep(m, n);
	return 0;
}

/* ---- the end -------------------------------------------------------------- */

bool ig_grammar_matcher_is_done(const struct ig_grammar_matcher *m)
{
	/* Returning from rules adds no nodes; w.before is scratch. */
	struct ig_walk w = m->w;
	uint32_t n;
	bool end;

	if (m->ended)
		return true;
	n = ig_walk_close(&w, m->g, m->confs, m->n_confs, false, &end);
	for (uint32_t i = 0; i < n; i++)
		if (m->g->flags[w.before[i].state] & ~IG_STATE_ACCEPTS)
			return false;
	return end;
}
