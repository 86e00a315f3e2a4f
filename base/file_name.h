/* file_name.h: what the names of models' files say. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Whether s ends with `end`, in any case, and is longer. */
bool ig_has_ending(const char *s, const char *end);

/* NAME-00001-of-00003.gguf, as gguf-split names parts: the part's number and how many there are, as
 * they stand there, and the length of NAME.  False: name is another one. */
bool ig_split_name(const char *name, unsigned *i, unsigned *n, size_t *len);
