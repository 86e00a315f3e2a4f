/*
 * lark_private.h: a grammar in the notation of the Python package lark, as a tree.  lark_read.c
 * reads the notation, lark.c checks what was read and writes rules, lark_common.c has the terminals
 * that can be imported.
 */
#pragma once

#include "model/grammar/grammar_private.h"

#define IG_LARK_UNBOUNDED UINT32_MAX

enum ig_lark_kind {
	IG_LARK_SEQUENCE,
	IG_LARK_EITHER,
	IG_LARK_REPEAT, /* min to max times what is below */
	IG_LARK_NAME,	/* of a rule or a terminal */
	IG_LARK_TEXT,	/* and IG_REGEX_FOLD: in any case */
	IG_LARK_REGEX,
	IG_LARK_RANGE, /* one character from min to max */
};

struct ig_lark_node {
	enum ig_lark_kind kind;
	unsigned flags;
	uint32_t child, next; /* the first node below, the next one beside; 0: none */
	uint32_t min, max;
	const char *text; /* of NAME, TEXT and REGEX */
	size_t len;
	size_t at;     /* byte of the definition, for errors */
	uint32_t rule; /* of NAME */
	uint32_t dfa;  /* of TEXT with FOLD and of REGEX: index */
	bool may_be_empty;
};

struct ig_lark_rule {
	const char *name;
	size_t len, at;
	uint32_t node; /* an EITHER of SEQUENCEs */
	bool is_terminal, may_be_empty, can_end, is_recursive;
	uint32_t n_nodes; /* of the automaton where it was expanded in place; 0: not yet */
};

struct ig_lark {
	struct ig_lark *next; /* of the same compilation */
	const char *definition;
	size_t len;
	char *text;		    /* of the strings, unescaped */
	struct ig_lark_node *nodes; /* the first is unused */
	uint32_t n_nodes, cap_nodes;
	struct ig_lark_rule *rules;
	uint32_t n_rules, cap_rules;
	struct ig_dfa *dfas;
	uint32_t n_dfas, cap_dfas;
	uint32_t start;	 /* a rule */
	uint32_t ignore; /* an EITHER, below it one for each %ignore; 0: none */
	struct ig_dfa ignored;
};

/* An error at a byte of the definition, with its line and column. */
__attribute__((format(printf, 5, 6))) int ig_lark_fail(const struct ig_lark *l, size_t at,
						       struct ig_error *err, int code,
						       const char *fmt, ...);
/* Read the definition into an empty l: nodes and rules; names are not resolved. */
int ig_lark_read(struct ig_lark *l, struct ig_error *err);
/* The expression of a terminal of lark's library "common"; NULL: there is none such. */
const char *ig_lark_common(const char *name, size_t len);
