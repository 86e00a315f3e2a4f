/* chat_turns_private.h: see chat_turns.c. */
#pragma once

#include "model/chat/chat_template.h"

/* Find out which turns this template of c has a place for.  0 or -ENOMEM. */
int chat_turns_probe(const struct ig_chat_template *c, const char *variant,
		     struct ig_chat_turns *out);
