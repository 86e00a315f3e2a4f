/*
 * prompt_rules.h: rules that replace text of a prompt's system messages which changes with every
 * request, such as a hash or the time, so that the prefix cache finds what follows.  A rule is a
 * regular expression of PCRE2 and what stands for its matches.  Some are built in.  All is bounded: how
 * much text rules see, how many matches they replace, how long they search.
 */
#pragma once

#include "base/strbuf.h"

#include <ingot/error.h>
#include <stdint.h>

#define IG_PROMPT_MAX_RULES 64
/* Of one prompt the rules see its first texts of the system, so far: */
#define IG_PROMPT_RULE_TEXTS 16
#define IG_PROMPT_RULE_BYTES (64u << 10)
/* Matches of one rule in one text. */
#define IG_PROMPT_RULE_MATCHES 64

/* As the configuration has it. */
struct ig_prompt_rule {
	char *name;	   /* unique; letters, digits and ._:/- */
	char *pattern;	   /* NULL: the built-in rule of this name */
	char *replacement; /* $0 to $9: the match and its groups; $$: a $ */
	bool enabled;
	/* Where it holds; NULL-terminated, * stands for any characters. */
	char **models;	      /* empty: for all */
	char **except_models; /* but for these */
	char **clients;	      /* ids of keys; without a key addresses; empty: for all */
};

void ig_prompt_rule_finish(struct ig_prompt_rule *r);

/* Reference-counted; immutable once it is shared.  Any thread. */
struct ig_prompt_rules;

/* The built-in rules; NULL without memory. */
struct ig_prompt_rules *ig_prompt_rules_create(void);
struct ig_prompt_rules *ig_prompt_rules_ref(struct ig_prompt_rules *rules); /* NULL is fine */
void ig_prompt_rules_unref(struct ig_prompt_rules *rules);		    /* NULL is fine */
/* Compile a rule and add it as the last one, or change where a built-in one holds.  Takes over what r
 * has.  0, -EINVAL or -ENOMEM with the reason, which does not name the rule. */
int ig_prompt_rules_add(struct ig_prompt_rules *rules, struct ig_prompt_rule *r,
			struct ig_error *err);

size_t ig_prompt_rules_n(const struct ig_prompt_rules *rules);
const struct ig_prompt_rule *ig_prompt_rules_get(const struct ig_prompt_rules *rules, size_t i);
bool ig_prompt_rule_is_builtin(const char *name);
/* The name of built-in rule i, and what it does, in words; NULL: there is none. */
const char *ig_prompt_rule_name(size_t i);
const char *ig_prompt_rule_help(size_t i);

/* The rules on their way through one prompt; the first three members are set, the rest is zero. */
struct ig_prompt_pass {
	struct ig_prompt_rules *rules; /* NULL: none */
	const char *model, *client;
	size_t n_texts, n_bytes;
	uint64_t applied;   /* bit i: rule i has replaced something */
	uint64_t abandoned; /* bit i: rule i searched too long */
};

/* The next text of the system.  1: out, which was empty, has the new text; 0: it does not change;
 * -ENOMEM. */
int ig_prompt_pass_text(struct ig_prompt_pass *p, const char *text, size_t len,
			struct ig_strbuf *out);
