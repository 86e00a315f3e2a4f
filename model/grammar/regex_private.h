/* regex_private.h: regular expressions of JSON schemas and requests to automata. */
#pragma once

#include "base/strbuf.h"
#include "model/grammar/automaton_private.h"

#include <ingot/error.h>

enum {			    /* flags */
       IG_REGEX_SEARCH = 1, /* texts in which the expression matches somewhere, not as a whole */
       IG_REGEX_FOLD = 2,   /* upper and lower case are the same */
       IG_REGEX_DOTALL = 4, /* a dot is any character */
       IG_REGEX_LINE = 8,   /* a dot is any character but \n, as in Python and Rust */
       /* A part of a larger text: no ^ and $, and no lazy quantifiers, which would mean more. */
       IG_REGEX_PART = 16,
};

/* The minimal automaton of the texts (UTF-8) that the whole expression matches.  -EINVAL with what
 * is wrong or not supported and at which byte, -E2BIG, -ENOMEM. */
int ig_regex_to_dfa(const char *text, size_t len, unsigned flags, struct ig_budget *budget,
		    struct ig_dfa *out, struct ig_error *err);

/* Append an expression that matches this text alone. */
void ig_regex_quote(struct ig_strbuf *out, const char *text, size_t len);
