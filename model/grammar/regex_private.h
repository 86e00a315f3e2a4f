/* regex_private.h: regular expressions of JSON schemas and requests to automata. */
#pragma once

#include "model/grammar/automaton_private.h"

#include <ingot/error.h>

/* The minimal automaton of the texts (UTF-8) that the whole expression matches; with search, of
 * those in which it matches somewhere.  -EINVAL with what is wrong or not supported and at which
 * byte, -E2BIG, -ENOMEM. */
int ig_regex_to_dfa(const char *text, size_t len, bool search, struct ig_budget *budget,
		    struct ig_dfa *out, struct ig_error *err);
