/*
 * grammar_private.h: what the parts of the grammars share: the vocabulary as a trie
 * (vocab.c), a compilation under way (compile.c, schema*.c), the compiled grammar
 * (compile.c), and walks over the trie (walk.c), which masks (masks.c) and the matcher
 * (matcher.c) are made of.
 *
 * A grammar is a pushdown automaton: the deterministic automata of its rules, state after
 * state in one table, whose edges read a byte or call another rule.  Which tokens may come
 * next depends on the state and, where a token reaches beyond the end of a rule, on the
 * states that calls will return to.  What doesn't depend on them is worked out once for
 * each state and kept (the idea of XGrammar, arXiv 2411.15100, which has it from the masks
 * per state of Outlines, arXiv 2307.09702).
 */
#pragma once

#include "model/grammar/automaton_private.h"
#include "model/grammar/grammar.h"

#include <stdatomic.h>

/* ---- the vocabulary -------------------------------------------------------------- */

#define IG_VOCAB_MAX_TOKEN 64 /* bytes; a longer token (runs of spaces) is never allowed */

/* Nodes in the order of a walk that goes down first; what is below node i lies in
 * [i + 1, skip).  The root is node 0. */
struct ig_trie_node {
	uint32_t skip;
	int32_t token;	/* that ends here, or -1 */
	uint32_t order; /* of the vocabulary's tokens in order, how many come before */
	uint8_t depth;	/* bytes from the root */
	uint8_t byte;
	uint8_t pure; /* bytes to the deepest node below, if all below read a plain byte */
	bool has_twins;
};

#define IG_NOT_PURE UINT8_MAX
/* What stands for itself in a JSON string: most of the bytes of most tokens. */
static inline bool ig_is_plain_byte(unsigned b)
{
	return b >= ' ' && b < 0x7f && b != '"' && b != '\\';
}

struct ig_vocab { /* immutable, counted */
	atomic_uint refs;
	const struct ig_tokenizer *tokenizer;
	uint32_t n_vocab;
	struct ig_trie_node *nodes;
	uint32_t n_nodes;
	uint32_t by_byte[256]; /* the root's children; 0: none */
	uint32_t longest;      /* bytes of a token in the trie */
	int32_t (*twins)[2];   /* a token in the trie, and another of the same bytes; sorted */
	uint32_t n_twins;
	int32_t *order; /* [n_order] all tokens in the order of the nodes */
	uint32_t n_order;
	int32_t *ends; /* tokens that end an answer */
	uint32_t n_ends;
	int32_t *controls; /* control tokens that end nothing */
	uint32_t n_controls;
	bool single[256]; /* a token in the trie is this byte alone */
};

/* Set the bits of the tokens that have the bytes of this one. */
void ig_vocab_add_twins(const struct ig_vocab *v, int32_t token, uint32_t *bits);
/* 0, -ENOMEM, or -EINVAL when it has no end token. */
int ig_vocab_create(const struct ig_tokenizer *t, struct ig_vocab **out, struct ig_error *err);
struct ig_vocab *ig_vocab_ref(struct ig_vocab *v);
void ig_vocab_unref(struct ig_vocab *v);

/* ---- a compilation --------------------------------------------------------------- */

#define IG_MAX_RULES 4096

enum ig_rule_kind {
	IG_RULE_SOURCE, /* all of it */
	IG_RULE_CHOICE, /* one of the source's choices */
	IG_RULE_SCHEMA,
	IG_RULE_VALUE,	   /* any JSON value */
	IG_RULE_LONG_CHAR, /* a character of a JSON string that is not one plain byte */
};

struct ig_rule {
	enum ig_rule_kind kind;
	const struct json_t *schema, *root; /* of SCHEMA; root: what $ref looks in */
	char *path;			    /* of SCHEMA: its place */
	struct ig_dfa dfa;
};

struct ig_compiling {
	const struct ig_vocab *vocab;
	const struct ig_grammar_source *source;
	struct ig_error *err;
	struct ig_budget budget;
	struct ig_nfa nfa; /* of the rule that is being built */
	struct ig_rule *rules;
	uint32_t n_rules, cap_rules;
	struct json_t *kept;	/* schemas that were made by merging */
	struct ig_schema_cost { /* nodes that a schema took where it was written in place */
		const struct json_t *schema;
		uint32_t n_nodes;
	} *costs;
	uint32_t n_costs, cap_costs;
};

/* The number of a rule, made if there is none for this schema (of SCHEMA; path is copied).
 * 0, -ENOMEM or -E2BIG. */
int ig_compiling_rule(struct ig_compiling *c, enum ig_rule_kind kind, const struct json_t *schema,
		      const struct json_t *root, const char *path, uint32_t *out);

/* schema.c: what a rule reads, into c->nfa from from to *end.  Errors as in
 * ig_grammar_compile; those of c->nfa may also be found there only. */
int ig_schema_build_rule(struct ig_compiling *c, const struct ig_rule *rule, uint32_t from,
			 uint32_t *end);
/* A part that is a schema, or any object (schema NULL), in place. */
int ig_schema_build(struct ig_compiling *c, const struct json_t *schema, uint32_t from,
		    uint32_t *end);

/* ---- a grammar ------------------------------------------------------------------- */

/* Calls that may be open when a token begins.  A token may open more, and what is then open
 * still may need IG_MAX_NEED more to be closed. */
#define IG_SOFT_DEPTH 96u
#define IG_MAX_NEED 48u

enum { /* flags of a state */
       IG_STATE_ACCEPTS = 1,
       IG_STATE_CALLS = 2,
       IG_STATE_TOKENS = 4, /* a control token may come */
       IG_STATE_BYTES = 8,
};

/* The mask of a class of states, in entries: */
enum {
	IG_MASK_UNKNOWN,
	IG_MASK_BUSY,	/* somebody makes it */
	IG_MASK_NARROW, /* so few tokens are looked at that a walk is as good */
	IG_MASK_FULL,
	IG_MASK_ENTRY, /* + the slot's number */
};

struct ig_mask_entry {
	uint32_t *bits;	 /* tokens that may come whatever is below on the stack */
	uint32_t *roots; /* nodes of the trie at which the rule has ended: what is below
			  * them is for the state that is returned to */
	uint32_t n_roots, cap_roots;
};

/* Pairs of a mask that has many roots and the state that is returned to: what comes of the
 * roots is kept like a mask. */
#define IG_PAIRS 256u
struct ig_mask_pair {
	_Atomic uint64_t key; /* 0: free */
	_Atomic uint32_t entry;
};

struct ig_grammar {
	atomic_uint refs;
	struct ig_vocab *vocab;
	struct ig_dfa a; /* all rules' states */
	uint8_t *flags;	 /* [n_states] */
	uint8_t *plains; /* [n_states] so many plain bytes, any, are read by leading on only */
	uint16_t *needs; /* [n_states] calls that must be opened, one in the other, to end */
	uint32_t n_rules;
	uint32_t *starts;      /* [n_rules] */
	uint32_t (*firsts)[8]; /* [n_rules] a bit for each byte that it may begin with */
	uint32_t n_classes;
	uint32_t *classes;	   /* [n_states] states of one class have the same mask */
	_Atomic uint32_t *entries; /* [2 * n_classes] by class, then whether it is to close */
	struct ig_mask_entry *slots;
	uint32_t cap_entries;
	_Atomic uint32_t n_slots;   /* that are taken */
	struct ig_mask_pair *pairs; /* [IG_PAIRS] */
	size_t bytes;		    /* of memory */
};

int ig_grammar_compile_for(struct ig_vocab *v, const struct ig_grammar_source *source,
			   struct ig_grammar **out, struct ig_error *err);

/* ---- walks ----------------------------------------------------------------------- */

#define IG_MAX_CONFS 64u   /* readings of a text at one time */
#define IG_MAX_NODES 4096u /* of the stacks of them */
#define IG_ROWS 32u

enum { IG_STACK_EMPTY, IG_STACK_BASE, IG_STACK_FIRST }; /* nodes without meaning of their own */

struct ig_stack_node { /* a call: where it returns to, and the calls below it */
	uint32_t parent, back, depth;
};

struct ig_conf { /* one reading: its state and the top of its stack */
	uint32_t state, node;
};

struct ig_walk {		     /* work memory, allocated once */
	struct ig_stack_node *nodes; /* [2 * IG_MAX_NODES] parents before children */
	uint32_t n_nodes;
	struct ig_conf *confs; /* [cap_confs] of the levels of a walk, one after the other */
	uint32_t n_confs, cap_confs;
	struct ig_conf *before; /* [4 * IG_MAX_CONFS] readings of a step before its byte */
	struct {
		uint32_t at, end, n_nodes;
	} *levels;		   /* [IG_VOCAB_MAX_TOKEN + 1] */
	struct ig_row {		   /* of a state, made when it is first met */
		uint32_t to[256];  /* by byte; UINT32_MAX: nowhere */
		uint32_t calls[8]; /* bits of bytes that calls may begin with */
	} *rows;		   /* [IG_ROWS] */
	uint32_t row_of[IG_ROWS];
};

int ig_walk_init(struct ig_walk *w);
void ig_walk_finish(struct ig_walk *w);

/* Add to w->confs, from the first-th on, what the n readings at in become with byte. */
void ig_walk_step(struct ig_walk *w, const struct ig_grammar *g, const struct ig_conf *in,
		  uint32_t n, unsigned byte, bool closing, uint32_t first);
/* The readings at in and those that they become by returning from rules, and with calls by
 * calling, into w->before: how many; *end: a text may end here. */
uint32_t ig_walk_close(struct ig_walk *w, const struct ig_grammar *g, const struct ig_conf *in,
		       uint32_t n, bool calls, bool *end);
/* Set the bits of the tokens below trie node top that can be read from conf, and with slot
 * note the nodes at which conf's rule ends (*full: there were too many).  How many nodes
 * were looked at. */
uint32_t ig_walk_tokens(struct ig_walk *w, const struct ig_grammar *g, uint32_t top,
			struct ig_conf conf, bool closing, uint32_t *bits,
			struct ig_mask_entry *slot, bool *full);

/* masks.c: the tokens that can be read from conf, into mask.  No allocation. */
void ig_masks_add(struct ig_walk *w, struct ig_grammar *g, struct ig_conf conf, bool closing,
		  uint32_t *mask);
/* Room for masks, and those of states that are common, at compile time. */
int ig_masks_create(struct ig_grammar *g);
void ig_masks_destroy(struct ig_grammar *g);

static inline uint32_t ig_mask_words(const struct ig_vocab *v) { return (v->n_vocab + 31) / 32; }
