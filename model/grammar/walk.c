/*
 * walk.c: reads bytes with a grammar: one byte from all configurations at once, and all tokens of
 * the trie from one configuration.  Stacks are linked lists that share their lower parts, so a call
 * is one node, and a walk that returns to an earlier byte drops the nodes added since.  Nothing is
 * allocated; configurations beyond the limit are dropped, which makes the grammar narrower, never
 * wider.
 */
#include "model/grammar/grammar_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NOWHERE UINT32_MAX
#define CAP_CONFS 8192u
#define CAP_NODES (2 * IG_MAX_NODES)

int ig_walk_init(struct ig_walk *w)
{
	*w = (struct ig_walk){ .cap_confs = CAP_CONFS, .n_nodes = IG_STACK_FIRST };
	w->nodes = calloc(CAP_NODES, sizeof *w->nodes);
	w->confs = malloc(CAP_CONFS * sizeof *w->confs);
	w->before = malloc(4 * IG_MAX_CONFS * sizeof *w->before);
	w->levels = malloc((IG_VOCAB_MAX_TOKEN + 1) * sizeof *w->levels);
	w->rows = malloc(IG_ROWS * sizeof *w->rows);
	memset(w->row_of, 0xff, sizeof w->row_of);
	if (w->nodes && w->confs && w->before && w->levels && w->rows)
		return 0;
	ig_walk_finish(w);
	return -ENOMEM;
}

void ig_walk_finish(struct ig_walk *w)
{
	free(w->nodes);
	free(w->confs);
	free(w->before);
	free(w->levels);
	free(w->rows);
	*w = (struct ig_walk){ 0 };
}

static const struct ig_row *row_of(struct ig_walk *w, const struct ig_grammar *g, uint32_t state)
{
	uint32_t i = state % IG_ROWS;
	struct ig_row *row = &w->rows[i];

	if (w->row_of[i] == state)
		return row;
	w->row_of[i] = state;
	memset(row->to, 0xff, sizeof row->to);
	memset(row->calls, 0, sizeof row->calls);
	for (uint32_t r = g->a.range_at[state]; r < g->a.range_at[state + 1]; r++)
		for (unsigned b = g->a.ranges[r].lo; b <= g->a.ranges[r].hi; b++)
			row->to[b] = g->a.ranges[r].to;
	for (uint32_t s = g->a.symbol_at[state]; s < g->a.symbol_at[state + 1]; s++)
		for (unsigned k = 0; k < 8 && !(g->a.symbols[s].symbol & IG_SYMBOL_TOKEN); k++)
			row->calls[k] |= g->firsts[g->a.symbols[s].symbol][k];
	return row;
}

/* ---- configurations -------------------------------------------------------------------- */

static bool is_over(const struct ig_grammar *g, uint32_t state)
{
	return g->flags[state] == IG_STATE_ACCEPTS;
}

/* The stack with a call pushed, or NOWHERE.  fresh: the first node that may be equal to it. */
static uint32_t push(struct ig_walk *w, const struct ig_grammar *g, uint32_t node, uint32_t back,
		     uint32_t fresh)
{
	if (is_over(g, back)) /* back would only return again */
		return node;
	for (uint32_t i = fresh; i < w->n_nodes; i++)
		if (w->nodes[i].parent == node && w->nodes[i].back == back)
			return i;
	if (w->n_nodes == CAP_NODES)
		return NOWHERE;
	w->nodes[w->n_nodes] = (struct ig_stack_node){ node, back, w->nodes[node].depth + 1 };
	return w->n_nodes++;
}

static void add(struct ig_conf *list, uint32_t *n, uint32_t cap, uint32_t state, uint32_t node)
{
	for (uint32_t i = 0; i < *n; i++)
		if (list[i].state == state && list[i].node == node)
			return;
	if (*n < cap)
		list[(*n)++] = (struct ig_conf){ state, node };
}

void ig_walk_step(struct ig_walk *w, const struct ig_grammar *g, const struct ig_conf *in,
		  uint32_t n, unsigned byte, bool closing, uint32_t first)
{
	uint32_t n_before = 0, fresh = w->n_nodes, n_out = 0, cap;
	struct ig_conf *out = w->confs + first;

	w->n_confs = first;
	cap = w->cap_confs - first < IG_MAX_CONFS ? w->cap_confs - first : IG_MAX_CONFS;
	for (uint32_t i = 0; i < n; i++)
		add(w->before, &n_before, 4 * IG_MAX_CONFS, in[i].state, in[i].node);
	for (uint32_t i = 0; i < n_before; i++) {
		struct ig_conf c = w->before[i];
		uint16_t need = g->needs[c.state];
		uint32_t to;
		if (g->flags[c.state] & IG_STATE_BYTES) {
			to = row_of(w, g, c.state)->to[byte];
			if (to != NOWHERE && (!closing || g->needs[to] <= need))
				add(out, &n_out, cap, to, c.node);
		}
		if (g->flags[c.state] & IG_STATE_ACCEPTS && c.node >= IG_STACK_FIRST)
			add(w->before, &n_before, 4 * IG_MAX_CONFS, w->nodes[c.node].back,
			    w->nodes[c.node].parent);
		if (!(g->flags[c.state] & IG_STATE_CALLS))
			continue;
		for (uint32_t s = g->a.symbol_at[c.state]; s < g->a.symbol_at[c.state + 1]; s++) {
			const struct ig_dfa_symbol *x = &g->a.symbols[s];
			if (x->symbol & IG_SYMBOL_TOKEN ||
			    !(g->firsts[x->symbol][byte / 32] >> byte % 32 & 1))
				continue;
			if (closing &&
			    (g->needs[g->starts[x->symbol]] + 1 > need || g->needs[x->to] > need))
				continue;
			to = push(w, g, c.node, x->to, fresh);
			if (to != NOWHERE)
				add(w->before, &n_before, 4 * IG_MAX_CONFS, g->starts[x->symbol],
				    to);
		}
	}
	w->n_confs += n_out;
	w->work += (uint64_t)n_before * n_before / 2 + (uint64_t)n_out * n_out / 2;
}

uint32_t ig_walk_close(struct ig_walk *w, const struct ig_grammar *g, const struct ig_conf *in,
		       uint32_t n, bool calls, bool *end)
{
	uint32_t n_before = 0, fresh = w->n_nodes;

	*end = false;
	for (uint32_t i = 0; i < n; i++)
		add(w->before, &n_before, 4 * IG_MAX_CONFS, in[i].state, in[i].node);
	for (uint32_t i = 0; i < n_before; i++) {
		struct ig_conf c = w->before[i];
		if (g->flags[c.state] & IG_STATE_ACCEPTS) {
			if (c.node == IG_STACK_EMPTY)
				*end = true;
			else if (c.node != IG_STACK_BASE)
				add(w->before, &n_before, 4 * IG_MAX_CONFS, w->nodes[c.node].back,
				    w->nodes[c.node].parent);
		}
		if (!calls || !(g->flags[c.state] & IG_STATE_CALLS))
			continue;
		for (uint32_t s = g->a.symbol_at[c.state]; s < g->a.symbol_at[c.state + 1]; s++) {
			const struct ig_dfa_symbol *x = &g->a.symbols[s];
			uint32_t to = x->symbol & IG_SYMBOL_TOKEN ?
					      NOWHERE :
					      push(w, g, c.node, x->to, fresh);
			if (to != NOWHERE)
				add(w->before, &n_before, 4 * IG_MAX_CONFS, g->starts[x->symbol],
				    to);
		}
	}
	return n_before;
}

/* Set the bits of all tokens at and below a node. */
static void add_all(const struct ig_vocab *v, uint32_t node, uint32_t *bits)
{
	uint32_t skip = v->nodes[node].skip;
	uint32_t end = skip < v->n_nodes ? v->nodes[skip].order : v->n_order;

	for (uint32_t i = v->nodes[node].order; i < end; i++)
		bits[v->order[i] / 32] |= 1u << v->order[i] % 32;
}

/* ---- tokens ---------------------------------------------------------------------- */

/* Whether a configuration of a level is at the end of the rule that the walk began in. */
static bool at_base(const struct ig_walk *w, const struct ig_grammar *g, uint32_t first)
{
	for (uint32_t i = first; i < w->n_confs; i++)
		if (w->confs[i].node == IG_STACK_BASE &&
		    g->flags[w->confs[i].state] & IG_STATE_ACCEPTS)
			return true;
	return false;
}

struct search { /* a walk over a subtree of the trie */
	const struct ig_grammar *g;
	bool closing;
	uint32_t base; /* depth of the node that it began at */
	uint32_t *bits;
	struct ig_mask_entry *slot;
	bool *full;
};

/* Visit the nodes [first, last): siblings and all below them.  Returns the number of visited
 * nodes. */
static uint32_t search(struct ig_walk *w, const struct search *x, uint32_t first, uint32_t last)
{
	const struct ig_grammar *g = x->g;
	const struct ig_trie_node *nodes = g->vocab->nodes;
	uint32_t n_looked = 0;

	for (uint32_t i = first; i < last;) {
		const struct ig_trie_node *t = &nodes[i];
		uint32_t d = t->depth - x->base, at = w->levels[d - 1].at,
			 end = w->levels[d - 1].end;
		struct ig_conf c = w->confs[at];
		if (w->work > IG_WALK_WORK) {
			*x->full = true;
			break;
		}
		n_looked++;
		w->n_nodes = w->levels[d - 1].n_nodes;
		/* A single configuration that neither returns nor calls with this byte. */
		const struct ig_row *row = row_of(w, g, c.state);
		if (end - at == 1 && !(row->calls[t->byte / 32] >> t->byte % 32 & 1) &&
		    (c.node < IG_STACK_FIRST || !(g->flags[c.state] & IG_STATE_ACCEPTS))) {
			uint32_t to = row->to[t->byte];
			if (to == NOWHERE || end == w->cap_confs ||
			    (x->closing && g->needs[to] > g->needs[c.state])) {
				i = t->skip;
				continue;
			}
			if (t->pure <= g->plains[to] && !x->closing) {
				add_all(g->vocab, i, x->bits);
				i = t->skip;
				continue;
			}
			w->confs[end] = (struct ig_conf){ to, c.node };
			w->n_confs = end + 1;
		} else {
			ig_walk_step(w, g, w->confs + at, end - at, t->byte, x->closing, end);
			if (w->n_confs == end) {
				i = t->skip;
				continue;
			}
		}
		w->levels[d].at = end;
		w->levels[d].end = w->n_confs;
		w->levels[d].n_nodes = w->n_nodes;
		if (t->token >= 0) {
			x->bits[t->token / 32] |= 1u << t->token % 32;
			if (t->has_twins)
				ig_vocab_add_twins(g->vocab, t->token, x->bits);
		}
		if (x->slot && t->skip > i + 1 && at_base(w, g, end)) {
			if (x->slot->n_roots < x->slot->cap_roots)
				x->slot->roots[x->slot->n_roots++] = i;
			else
				*x->full = true;
		}
		i++;
	}
	return n_looked;
}

/* Whether a configuration may read this byte. */
static bool may_read(struct ig_walk *w, const struct ig_grammar *g, struct ig_conf c, unsigned byte)
{
	const struct ig_row *row = row_of(w, g, c.state);

	return row->to[byte] != NOWHERE || row->calls[byte / 32] >> byte % 32 & 1 ||
	       (c.node >= IG_STACK_FIRST && g->flags[c.state] & IG_STATE_ACCEPTS);
}

uint32_t ig_walk_tokens(struct ig_walk *w, const struct ig_grammar *g, uint32_t top,
			struct ig_conf conf, bool closing, uint32_t *bits,
			struct ig_mask_entry *slot, bool *full)
{
	const struct ig_vocab *v = g->vocab;
	const struct search x = { g, closing, v->nodes[top].depth, bits, slot, full };
	uint32_t n_nodes = w->n_nodes, n_looked = 0;

	w->confs[0] = conf;
	w->levels[0].at = 0;
	w->levels[0].end = 1;
	w->levels[0].n_nodes = n_nodes;
	if (top) {
		n_looked = search(w, &x, top + 1, v->nodes[top].skip);
	} else {
		/* The root's children are far apart in memory: visit only those that may match. */
		for (unsigned b = 0; b < 256; b++)
			if (v->by_byte[b] && may_read(w, g, conf, b))
				n_looked +=
					search(w, &x, v->by_byte[b], v->nodes[v->by_byte[b]].skip);
	}
	w->n_nodes = n_nodes;
	return n_looked;
}
