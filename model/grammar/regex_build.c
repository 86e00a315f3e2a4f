/* regex_build.c: turns the tree of an expression into an automaton over UTF-8. */
#include "model/grammar/regex_tree_private.h"

#include <errno.h>
#include <stdlib.h>

static uint32_t build_set(struct parser *x, struct ig_nfa *a, uint32_t from, struct set *s)
{
	uint32_t to;

	if (s->chars.n > 8) { /* as one small automaton, made once */
		if (!s->dfa.n_states && !a->rc) {
			struct ig_nfa one;
			ig_nfa_init(&one, x->budget);
			uint32_t first = ig_nfa_node(&one), last = ig_nfa_node(&one);
			for (uint32_t i = 0; i < s->chars.n; i++)
				ig_nfa_chars(&one, first, last, s->chars.ranges[i].first,
					     s->chars.ranges[i].last);
			a->rc = ig_dfa_of(&one, first, last, &s->dfa);
			ig_nfa_finish(&one);
			if (!a->rc)
				a->rc = ig_dfa_minimise(&s->dfa, x->budget);
		}
		return a->rc ? 0 : ig_nfa_insert(a, from, &s->dfa);
	}
	to = ig_nfa_node(a);
	for (uint32_t i = 0; i < s->chars.n; i++)
		ig_nfa_chars(a, from, to, s->chars.ranges[i].first, s->chars.ranges[i].last);
	return to;
}

static uint32_t build_repeat(struct parser *x, struct ig_nfa *a, uint32_t from,
			     const struct tree *t)
{
	uint32_t end, loop;

	for (uint32_t i = 0; i < t->min && !a->rc; i++) {
		uint32_t n_edges = a->n_edges;
		from = ig_regex_build(x, a, from, t->left);
		if (a->n_edges == n_edges) /* it reads nothing: once is enough */
			break;
	}
	if (t->max == UNBOUNDED) {
		loop = ig_nfa_node(a);
		ig_nfa_join(a, from, loop);
		ig_nfa_join(a, ig_regex_build(x, a, loop, t->left), loop);
		end = ig_nfa_node(a); /* what follows must not add to the loop's own node */
		ig_nfa_join(a, loop, end);
		return end;
	}
	end = ig_nfa_node(a);
	for (uint32_t i = t->min; i < t->max && !a->rc; i++) {
		uint32_t n_edges;
		ig_nfa_join(a, from, end);
		n_edges = a->n_edges;
		from = ig_regex_build(x, a, from, t->left);
		if (a->n_edges == n_edges)
			break;
	}
	ig_nfa_join(a, from, end);
	return end;
}

/* A copy of the tree below node, from from to the returned node.  JOINs lean to the left and are
 * as deep as the expression is long, so they are handled by a loop, not by recursion. */
uint32_t ig_regex_build(struct parser *x, struct ig_nfa *a, uint32_t from, uint32_t node)
{
	struct tree t = x->nodes[node];
	uint32_t to, *parts, n = 0;

	if (!a->rc && !x->budget->work)
		a->rc = -E2BIG;
	if (a->rc)
		return 0;
	x->budget->work--;
	switch (t.kind) {
	case EMPTY: return from;
	case SET: return build_set(x, a, from, &x->sets[t.left]);
	case REPEAT:
		/* A node of its own: repeats may lead back to their first node. */
		to = ig_nfa_node(a);
		ig_nfa_join(a, from, to);
		return build_repeat(x, a, to, &t);
	case BEGIN:
	case END:
		to = ig_nfa_node(a);
		ig_nfa_add(a, from, to, t.kind == BEGIN ? IG_NFA_BEGIN : IG_NFA_END, 0, 0, 0);
		return to;
	case JOIN:
	case EITHER: break;
	}
	for (uint32_t i = node; x->nodes[i].kind == t.kind; i = x->nodes[i].left)
		n++;
	parts = malloc(((size_t)n + 1) * sizeof *parts);
	if (!parts) {
		a->rc = -ENOMEM;
		return 0;
	}
	for (uint32_t i = node, k = n;; i = x->nodes[i].left, k--) {
		parts[k] = k ? x->nodes[i].right : i;
		if (!k)
			break;
	}
	to = t.kind == EITHER ? ig_nfa_node(a) : 0;
	for (uint32_t i = 0; i <= n; i++) {
		if (t.kind == JOIN) {
			from = ig_regex_build(x, a, from, parts[i]);
		} else {
			uint32_t start = ig_nfa_node(a);
			ig_nfa_join(a, from, start);
			ig_nfa_join(a, ig_regex_build(x, a, start, parts[i]), to);
		}
	}
	free(parts);
	return t.kind == EITHER ? to : from;
}
