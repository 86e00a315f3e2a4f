/*
 * regex_private.h: regular expressions, as JSON schema and users write them, to automata.
 */
#pragma once

#include "model/grammar/automaton_private.h"

#include <ingot/error.h>

/* The texts (UTF-8) that the whole expression matches; with search, those in which it
 * matches somewhere.  The automaton is minimal.  -EINVAL says what is wrong or not
 * supported and at which byte, -E2BIG, -ENOMEM. */
int ig_regex_to_dfa(const char *text, size_t len, bool search, struct ig_budget *budget,
		    struct ig_dfa *out, struct ig_error *err);
