/* regex_tree_private.h: a parsed expression: nodes and sets of characters by number. */
#pragma once

#include "model/grammar/charset_private.h"
#include "model/grammar/regex_private.h"

#define UNBOUNDED UINT32_MAX

enum kind { EMPTY, SET, JOIN, EITHER, REPEAT, BEGIN, END };

struct tree { /* one node */
	enum kind kind;
	uint32_t left, right; /* of JOIN and EITHER; left of REPEAT; SET: a number */
	uint32_t min, max;
};

struct set {
	struct ig_charset chars;
	struct ig_dfa dfa; /* made on first use, if there are many ranges */
};

struct parser {
	const char *start, *p, *end;
	unsigned flags;
	struct ig_budget *budget;
	struct ig_error *err;
	struct tree *nodes;
	uint32_t n_nodes, cap_nodes;
	struct set *sets;
	uint32_t n_sets, cap_sets;
	unsigned depth;
};

/* regex_build.c: adds the automaton of a node after state from; returns its last state. */
uint32_t ig_regex_build(struct parser *x, struct ig_nfa *a, uint32_t from, uint32_t node);
