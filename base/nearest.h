/* nearest.h: which known name a mistyped one may stand for. */
#pragma once

#include <stddef.h>

/* Insertions, deletions, replacements and swaps of neighbours between two words (the restricted
 * Damerau-Levenshtein distance); SIZE_MAX where one is longer than 64 bytes. */
size_t ig_edit_distance(const char *a, const char *b);

/* The name nearest to s, at most strlen(s) / 3 + 1 edits away, or NULL.  The table's entries have
 * `stride` bytes each and begin with their const char *name; a NULL name ends the table. */
const char *ig_nearest_name(const char *s, const void *table, size_t stride);

/* "; did you mean PREFIXname?" in buf, or "". */
const char *ig_did_you_mean(char buf[96], const char *s, const char *prefix, const void *table,
			    size_t stride);
