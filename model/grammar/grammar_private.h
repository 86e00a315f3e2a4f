/*
 * grammar_private.h: what the parts of grammars share: the vocabulary as a trie (vocab.c), a
 * compilation (compile.c, schema*.c), the compiled grammar (compile.c), and walks over the trie
 * (walk.c), which masks.c and matcher.c use.
 *
 * A grammar is a pushdown automaton: the deterministic automata of its rules in one table, with
 * edges that read a byte or call another rule.  Which tokens may come next depends on the state
 * and, where a token extends beyond the end of a rule, on the states that calls return to.  The
 * part that doesn't depend on those is computed once for each state and cached (XGrammar, arXiv
 * 2411.15100, after the masks per state of Outlines, arXiv 2307.09702).
 */
#pragma once

#include "model/grammar/automaton_private.h"
#include "model/grammar/grammar.h"

#include <stdatomic.h>

/* ---- the vocabulary -------------------------------------------------------------- */

#define IG_VOCAB_MAX_TOKEN 64 /* bytes; a longer token (runs of spaces) is never allowed */

/* Nodes in depth-first order; the nodes below node i are [i + 1, skip).  The root is node 0. */
struct ig_trie_node {
	uint32_t skip;
	int32_t token;	/* that ends here, or -1 */
	uint32_t order; /* index into the vocabulary's order of the first token at or below */
	uint8_t depth;	/* bytes from the root */
	uint8_t byte;
	uint8_t pure; /* bytes to the deepest node below, if all below are plain bytes */
	bool has_twins;
};

#define IG_NOT_PURE UINT8_MAX
/* Bytes that a JSON string contains without escape: most bytes of most tokens. */
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
	int32_t (*twins)[2];   /* a token in the trie, and another with the same bytes; sorted */
	uint32_t n_twins;
	int32_t *order; /* [n_order] all tokens in the order of the nodes */
	uint32_t n_order;
	int32_t *ends; /* tokens that end a completion */
	uint32_t n_ends;
	int32_t *controls; /* other control tokens */
	uint32_t n_controls;
	bool single[256]; /* a token in the trie is this byte alone */
};

/* Set the bits of the tokens with the same bytes as this one. */
void ig_vocab_add_twins(const struct ig_vocab *v, int32_t token, uint32_t *bits);
/* 0, -ENOMEM, or -EINVAL when it has no end token. */
int ig_vocab_create(const struct ig_tokenizer *t, struct ig_vocab **out, struct ig_error *err);
struct ig_vocab *ig_vocab_ref(struct ig_vocab *v);
void ig_vocab_unref(struct ig_vocab *v);

/* ---- a compilation --------------------------------------------------------------- */

#define IG_MAX_RULES 4096

enum ig_rule_kind {
	IG_RULE_SOURCE, /* the whole source */
	IG_RULE_CHOICE, /* one of the source's choices */
	IG_RULE_SCHEMA,
	IG_RULE_VALUE,	   /* any JSON value */
	IG_RULE_LONG_CHAR, /* a character of a JSON string that is not one plain byte */
	IG_RULE_LARK,	   /* a rule of a grammar in lark's notation */
};

struct ig_lark; /* lark_private.h */

struct ig_rule {
	enum ig_rule_kind kind;
	const struct json_t *schema, *root; /* of SCHEMA; root: what $ref refers to */
	char *path;			    /* of SCHEMA: its place, for errors */
	struct ig_lark *lark;		    /* of LARK */
	uint32_t lark_rule;
	bool in_json; /* between the quotes of a JSON string */
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
	struct ig_lark *larks;
	struct json_t *kept;	/* a list of schemas made by merging */
	struct ig_schema_cost { /* nodes of a schema where it was expanded in place */
		const struct json_t *schema;
		uint32_t n_nodes;
	} *costs;
	uint32_t n_costs, cap_costs;
};

/* The number of the rule for this kind and schema, which is added if there is none (path is
 * copied).  0, -ENOMEM or -E2BIG. */
int ig_compiling_rule(struct ig_compiling *c, enum ig_rule_kind kind, const struct json_t *schema,
		      const struct json_t *root, const char *path, uint32_t *out);

/* schema.c: write a rule into c->nfa, from node from to *end.  Errors as in ig_grammar_compile;
 * those of c->nfa may be only in its rc. */
int ig_schema_build_rule(struct ig_compiling *c, const struct ig_rule *rule, uint32_t from,
			 uint32_t *end);
/* Write a part that is a schema, or any object (schema NULL). */
int ig_schema_build(struct ig_compiling *c, const struct json_t *schema, uint32_t from,
		    uint32_t *end);

/* The same for the members of an object in another format. */
int ig_schema_build_members(struct ig_compiling *c, const struct json_t *schema,
			    const struct ig_grammar_members *members, uint32_t from, uint32_t *end);
/* schema_text.c: the automaton of all texts that don't contain this one. */
int ig_text_without(const char *text, size_t len, struct ig_budget *budget, struct ig_dfa *out);

/* schema_scalar.c: the automaton of a text of {"syntax", "definition"}, which may call rules; those
 * are spelled for the inside of a JSON string, or as they are. */
int ig_schema_format_dfa(struct ig_compiling *c, const struct json_t *format, bool in_json,
			 struct ig_dfa *out, struct ig_error *err);

/* As ig_compiling_rule for a rule of a lark grammar. */
int ig_compiling_lark(struct ig_compiling *c, struct ig_lark *l, uint32_t rule, bool in_json,
		      uint32_t *out);
/* lark.c: the automaton of the texts of a grammar in lark's notation.  The definition must outlive
 * the compilation.  Errors name line and column. */
int ig_lark_dfa(struct ig_compiling *c, const char *definition, size_t len, bool in_json,
		struct ig_dfa *out, struct ig_error *err);
/* Write an IG_RULE_LARK, but not the empty text. */
int ig_lark_build_rule(struct ig_compiling *c, const struct ig_rule *rule, uint32_t from,
		       uint32_t *end);
void ig_lark_destroy(struct ig_lark *l); /* and those after it; NULL is fine */

/* source.c: write the whole source, or one of its choices, into c->nfa. */
int ig_source_build(struct ig_compiling *c, uint32_t from, uint32_t *end);
int ig_source_build_choices(struct ig_compiling *c, uint32_t from, uint32_t *end);

/* ---- a grammar ------------------------------------------------------------------- */

/* Calls that may be open when a token begins.  A token may open more; to close them all, up to
 * IG_MAX_NEED further calls may be needed. */
#define IG_SOFT_DEPTH 96u
#define IG_MAX_NEED 48u

enum { /* flags of a state */
       IG_STATE_ACCEPTS = 1,
       IG_STATE_CALLS = 2,
       IG_STATE_TOKENS = 4, /* a control token may come */
       IG_STATE_BYTES = 8,
};

/* The mask of a class of states, a value in entries: */
enum {
	IG_MASK_UNKNOWN,
	IG_MASK_BUSY,	/* a thread computes it */
	IG_MASK_NARROW, /* a walk visits so few nodes that a mask saves nothing */
	IG_MASK_FULL,
	IG_MASK_ENTRY, /* + the slot's number */
};

struct ig_mask_entry {
	uint32_t *bits;	 /* tokens that are allowed whatever the stack below holds */
	uint32_t *roots; /* nodes of the trie at which the rule has ended: the returned-to
			  * state decides about the tokens below them */
	uint32_t n_roots, cap_roots;
};

/* Pairs of a mask with many roots and a returned-to state: the result for the roots is cached
 * like a mask. */
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
	uint8_t *plains; /* [n_states] number of arbitrary plain bytes that stay in the rule */
	uint16_t *needs; /* [n_states] nested calls that are needed to reach the end */
	uint32_t n_rules;
	uint32_t *starts;      /* [n_rules] */
	uint32_t (*firsts)[8]; /* [n_rules] a bit for each byte that a rule may begin with */
	uint32_t n_classes;
	uint32_t *classes;	   /* [n_states] states of one class have the same mask */
	_Atomic uint32_t *entries; /* [2 * n_classes] by class, then by closing */
	struct ig_mask_entry *slots;
	uint32_t cap_entries;
	_Atomic uint32_t n_slots;   /* in use */
	struct ig_mask_pair *pairs; /* [IG_PAIRS] */
	size_t bytes;		    /* of memory */
};

int ig_grammar_compile_for(struct ig_vocab *v, const struct ig_grammar_source *source,
			   struct ig_grammar **out, struct ig_error *err);

/* ---- walks ----------------------------------------------------------------------- */

#define IG_MAX_CONFS 64u   /* configurations of a text at the same time */
#define IG_MAX_NODES 4096u /* of their stacks */
#define IG_ROWS 32u
/* Comparisons of configurations for one mask: some milliseconds.  Only grammars that are very
 * ambiguous need more; their masks are then narrower. */
#define IG_WALK_WORK 4000000u

enum {
	IG_STACK_EMPTY,
	IG_STACK_BASE,
	IG_STACK_FIRST
}; /* reserved nodes, then the first real one */

struct ig_stack_node { /* a call: the state it returns to, and the calls below it */
	uint32_t parent, back, depth;
};

struct ig_conf { /* a configuration of the automaton: its state and the top of its stack */
	uint32_t state, node;
};

struct ig_walk {		     /* work memory, allocated once */
	uint64_t work;		     /* comparisons so far; the caller sets it to zero */
	struct ig_stack_node *nodes; /* [2 * IG_MAX_NODES] parents before children */
	uint32_t n_nodes;
	struct ig_conf *confs; /* [cap_confs] of all levels of a walk */
	uint32_t n_confs, cap_confs;
	struct ig_conf *before; /* [4 * IG_MAX_CONFS] configurations of a step before its byte */
	struct {
		uint32_t at, end, n_nodes;
	} *levels;		   /* [IG_VOCAB_MAX_TOKEN + 1] */
	struct ig_row {		   /* of a state, filled on first use */
		uint32_t to[256];  /* by byte; UINT32_MAX: none */
		uint32_t calls[8]; /* bits of bytes that calls may begin with */
	} *rows;		   /* [IG_ROWS] */
	uint32_t row_of[IG_ROWS];
};

int ig_walk_init(struct ig_walk *w);
void ig_walk_finish(struct ig_walk *w);

/* The configurations after byte of the n at in, into w->confs from index first on. */
void ig_walk_step(struct ig_walk *w, const struct ig_grammar *g, const struct ig_conf *in,
		  uint32_t n, unsigned byte, bool closing, uint32_t first);
/* The configurations at in and those that follow by returning from rules, and with calls by
 * calling rules, into w->before; returns their number.  *end: a text may end here. */
uint32_t ig_walk_close(struct ig_walk *w, const struct ig_grammar *g, const struct ig_conf *in,
		       uint32_t n, bool calls, bool *end);
/* Set the bits of the tokens below trie node top that can be read from conf, and with slot
 * collect the nodes at which conf's rule ends (*full: there were too many, or too much work, and
 * the bits are not all).  Returns the number of visited nodes. */
uint32_t ig_walk_tokens(struct ig_walk *w, const struct ig_grammar *g, uint32_t top,
			struct ig_conf conf, bool closing, uint32_t *bits,
			struct ig_mask_entry *slot, bool *full);

/* masks.c: add the tokens that can be read from conf to mask.  No allocation. */
void ig_masks_add(struct ig_walk *w, struct ig_grammar *g, struct ig_conf conf, bool closing,
		  uint32_t *mask);
/* Allocate masks, and compute those of common states, at compile time. */
int ig_masks_create(struct ig_grammar *g);
void ig_masks_destroy(struct ig_grammar *g);

static inline uint32_t ig_mask_words(const struct ig_vocab *v) { return (v->n_vocab + 31) / 32; }
