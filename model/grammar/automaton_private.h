/*
 * automaton_private.h: finite automata over bytes for schemas, expressions and literal texts: a
 * nondeterministic one, built edge by edge, and a deterministic one made from it, with set
 * operations.  An edge may also carry a reference to another automaton (a rule of the grammar) or a
 * control token of the vocabulary; automata treat both as opaque symbols.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Limits of one compilation, together below 64 MiB. */
#define IG_NFA_MAX_NODES 500000u
#define IG_NFA_MAX_EDGES 1000000u
#define IG_DFA_MAX_STATES 200000u
#define IG_DFA_MAX_RANGES 1500000u
#define IG_MAX_RANGES 3000000u	    /* of all automata of one compilation */
#define IG_DFA_MAX_MEMBERS 3000000u /* of all sets of nodes together */
#define IG_MAX_WORK 20000000u	    /* nodes visited while sets are made: about 0.2 s */

struct ig_budget {	       /* of one compilation */
	uint64_t work, states; /* still allowed */
	uint64_t n_ranges;     /* made so far */
};

enum ig_nfa_kind {
	IG_NFA_EMPTY,
	IG_NFA_RANGE, /* bytes lo to hi */
	IG_NFA_SYMBOL,
	IG_NFA_BEGIN, /* only before the first byte */
	IG_NFA_END,   /* only after the last byte */
};

#define IG_SYMBOL_TOKEN 0x80000000u /* | id: a control token; else the number of a rule */
#define IG_SYMBOL_OTHERS UINT32_MAX /* any control token for which there is no edge of its own */

struct ig_nfa_edge {
	uint32_t next, to, symbol;
	uint8_t kind, lo, hi;
};

struct ig_nfa {
	struct ig_budget *budget;
	struct ig_nfa_edge *edges; /* [n_edges], the first unused */
	uint32_t *first;	   /* [n_nodes] the newest edge of each; 0: none */
	uint32_t n_edges, cap_edges, n_nodes, cap_nodes;
	int rc; /* -ENOMEM or -E2BIG, and from then on nothing is added */
};

void ig_nfa_init(struct ig_nfa *a, struct ig_budget *budget);
void ig_nfa_finish(struct ig_nfa *a);
/* Remove nodes and edges; the memory stays for reuse. */
void ig_nfa_clear(struct ig_nfa *a);

/* A node; 0 after a failure. */
uint32_t ig_nfa_node(struct ig_nfa *a);
void ig_nfa_add(struct ig_nfa *a, uint32_t from, uint32_t to, enum ig_nfa_kind kind, unsigned lo,
		unsigned hi, uint32_t symbol);
static inline void ig_nfa_join(struct ig_nfa *a, uint32_t from, uint32_t to)
{
	ig_nfa_add(a, from, to, IG_NFA_EMPTY, 0, 0, 0);
}
static inline void ig_nfa_bytes(struct ig_nfa *a, uint32_t from, uint32_t to, unsigned lo,
				unsigned hi)
{
	ig_nfa_add(a, from, to, IG_NFA_RANGE, lo, hi, 0);
}

/* Each of these adds edges after node from and returns the node where they end. */
uint32_t ig_nfa_byte(struct ig_nfa *a, uint32_t from, unsigned byte);
uint32_t ig_nfa_text(struct ig_nfa *a, uint32_t from, const char *s, size_t len);
uint32_t ig_nfa_call(struct ig_nfa *a, uint32_t from, uint32_t rule);

/* The characters first to last (no surrogates) as UTF-8. */
void ig_nfa_chars(struct ig_nfa *a, uint32_t from, uint32_t to, uint32_t first, uint32_t last);

struct ig_dfa_range {
	uint32_t to;
	uint8_t lo, hi;
};

struct ig_dfa_symbol {
	uint32_t symbol, to;
};

/* State 0 is the start.  The ranges of a state ascend and don't overlap. */
struct ig_dfa {
	uint32_t n_states;
	uint32_t *range_at;  /* [n_states + 1] into ranges */
	uint32_t *symbol_at; /* [n_states + 1] into symbols */
	struct ig_dfa_range *ranges;
	struct ig_dfa_symbol *symbols;
	uint8_t *accepts; /* [n_states] */
};

void ig_dfa_finish(struct ig_dfa *d); /* zeros are fine */

/* The automaton of what a reads from start to end.  0, -ENOMEM or -E2BIG. */
int ig_dfa_of(struct ig_nfa *a, uint32_t start, uint32_t end, struct ig_dfa *out);
/* The state that byte leads to; -1: none. */
int64_t ig_dfa_step(const struct ig_dfa *d, uint32_t state, unsigned byte);

/* For automata without symbols: what both accept, or (minus) what a accepts and b does not. */
int ig_dfa_product(const struct ig_dfa *a, const struct ig_dfa *b, bool minus,
		   struct ig_budget *budget, struct ig_dfa *out);
/* The same in place of d, which an error does not change. */
int ig_dfa_combine(struct ig_dfa *d, const struct ig_dfa *other, bool minus,
		   struct ig_budget *budget);
/* Split classes [n_states] (any numbers; *n_classes: how many, or 0) until all states of a class
 * lead, for each byte, to states of one class, or for max_rounds: then states of a class agree
 * on that many bytes.  0, -ENOMEM or -E2BIG (classes is the result of an earlier round). */
int ig_dfa_refine(const struct ig_dfa *d, uint32_t *classes, uint32_t *n_classes,
		  uint32_t max_rounds, struct ig_budget *budget);
/* The smallest automaton that reads the same, without dead states other than the first. */
int ig_dfa_minimise(struct ig_dfa *d, struct ig_budget *budget);
/* Take the empty text out of what d reads.  0 or -ENOMEM. */
int ig_dfa_drop_empty(struct ig_dfa *d);
static inline bool ig_dfa_is_empty(const struct ig_dfa *minimised)
{
	return minimised->n_states == 1 && !minimised->accepts[0];
}

/* Insert d into a after node from; returns the node where it ends. */
uint32_t ig_nfa_insert(struct ig_nfa *a, uint32_t from, const struct ig_dfa *d);
/* The same for a text that is not held to anything but d: between its characters there may also be
 * these control tokens (others: and those that have no edge of their own); it begins anew after
 * them. */
uint32_t ig_nfa_insert_free(struct ig_nfa *a, uint32_t from, const struct ig_dfa *d,
			    const int32_t *tokens, uint32_t n_tokens, bool others);
/* The same between the quotes of a JSON string: d's bytes are UTF-8; each character has exactly
 * one spelling, except control characters. */
uint32_t ig_nfa_insert_json(struct ig_nfa *a, uint32_t from, const struct ig_dfa *d);
