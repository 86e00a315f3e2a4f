/*
 * lookup_private.h: guesses at a request's next tokens, from its own text: what followed, earlier
 * in it, the tokens that it ends with now (prompt lookup decoding, Apoorv Saxena 2023).  A guess is
 * a place in the text.  While the tokens that come are those that stand there, it moves on with
 * them; when one is not, the longest match is searched, of equal ones the newest.  Behind the place
 * where a long match ended a shorter one counts: text that is copied with changes goes on there.
 * Whether guesses are right is counted by the length of the match, also while nobody uses them: so
 * it is known before any token is proposed what the next ones are worth.
 *
 * Nothing is allocated after init.  One thread at a time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define IG_LOOKUP_CLASSES 7 /* of lengths of a match */

struct ig_lookup {
	uint32_t
		*newest; /* [n_buckets]: by hash of two tokens the last place after them plus one */
	uint32_t *older; /* [capacity]: the place before with the same hash plus one */
	uint32_t n_buckets, capacity;
	uint32_t n;	  /* tokens of the text so far */
	int32_t at;	  /* the place of the token that is expected next; -1: none is */
	uint32_t n_match; /* tokens before both places that are the same */
	int32_t lost;	  /* the place where a long match ended; -1: none, or long ago */
	uint32_t n_since; /* tokens since then */
	float hits[IG_LOOKUP_CLASSES], trials[IG_LOOKUP_CLASSES]; /* of late */
};

/* For texts of up to so many tokens.  0, -ENOMEM. */
int ig_lookup_init(struct ig_lookup *l, uint32_t capacity);
void ig_lookup_finish(struct ig_lookup *l); /* zeros are fine */
/* The first n tokens of the text. */
void ig_lookup_read(struct ig_lookup *l, const int32_t *text, uint32_t n);
/* Expect next what stands at this place, as if n_match tokens before it were the same. */
void ig_lookup_expect(struct ig_lookup *l, int32_t at, uint32_t n_match);
/* The text has one more token, text[l->n]. */
void ig_lookup_take(struct ig_lookup *l, const int32_t *text);

/* Whether a token is expected. */
static inline bool ig_lookup_expects(const struct ig_lookup *l) { return l->newest && l->at >= 0; }
/* The chance that the i-th token from now on (0: the next) is the expected one if those before it
 * are; 0: none is expected. */
double ig_lookup_chance(const struct ig_lookup *l, uint32_t i);
/* Write the next n tokens as they are expected behind the text; the text has space for them. */
void ig_lookup_guess(const struct ig_lookup *l, int32_t *text, uint32_t n);
