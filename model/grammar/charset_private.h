/* charset_private.h: sets of characters (code points) of regular expressions. */
#pragma once

#include "model/grammar/automaton_private.h"

#define IG_CHAR_MAX 0x10ffffu

struct ig_char_range {
	uint32_t first, last;
};

struct ig_charset {		      /* init with zeros */
	struct ig_char_range *ranges; /* after ig_charset_sort ascending and disjoint */
	uint32_t n, cap;
	int rc; /* -ENOMEM sticks */
};

void ig_charset_finish(struct ig_charset *s);
void ig_charset_add(struct ig_charset *s, uint32_t first, uint32_t last);
void ig_charset_add_set(struct ig_charset *s, const struct ig_charset *t);
void ig_charset_sort(struct ig_charset *s);
/* All characters but these, without surrogates and U+0000. */
void ig_charset_negate(struct ig_charset *s);
/* Add the lower and upper case of each character. */
void ig_charset_fold(struct ig_charset *s);
/* Add the characters of a general category ("Lu") or a group of them ("L"); false: unknown. */
bool ig_charset_add_category(struct ig_charset *s, const char *name, size_t len);
