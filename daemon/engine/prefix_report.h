/* prefix_report.h: what a request found in the prefix cache, where the match ended and why. */
#pragma once

#include <ingot/error.h>
#include <stdbool.h>
#include <stdint.h>

/* The names are stable: replies, the ledger and `ingot cache` have them. */
enum ig_prefix_reason {
	IG_PREFIX_UNKNOWN = 0,	/* not admitted */
	IG_PREFIX_FULL,		/* the whole prompt was cached, in whole blocks */
	IG_PREFIX_EXTENDED,	/* an earlier prompt with its output was; the rest is new */
	IG_PREFIX_DIVERGED,	/* it differs from the earlier prompt that is most like it */
	IG_PREFIX_EVICTED,	/* it was computed, and evicted since */
	IG_PREFIX_STATE,	/* no state of the recurrent layers was kept there */
	IG_PREFIX_WINDOW,	/* the blocks of a sliding window before that place were */
	IG_PREFIX_NOT_COMPUTED, /* the earlier request had not computed it */
	IG_PREFIX_OTHER_MODEL,	/* more of it was computed, for another model */
	IG_PREFIX_OTHER_KEY,	/* or for another key; only administrators learn that */
	IG_PREFIX_FIRST_SEEN,	/* no earlier prompt begins like it */
	IG_PREFIX_SHORT,	/* it is shorter than a block */
	IG_PREFIX_DISABLED,	/* kvcache.prefix_cache is off */
	IG_N_PREFIX_REASONS,
};
/* "full", "diverged" …; "": not known. */
const char *ig_prefix_reason_name(enum ig_prefix_reason r);

#define IG_PREFIX_TEXT_CAP 320

struct ig_prefix_report {
	enum ig_prefix_reason reason; /* never IG_PREFIX_OTHER_KEY: see n_other_key */
	int32_t n_same; /* tokens with which this prompt and the earlier one begin; -1: none is */
	char compared[64]; /* the id of the earlier request; "": none, or another client's */
	/* More tokens, at least a block, are the same as in another key's prompt: so many; else 0.
	 * Not for that client: it would learn what others have asked. */
	int32_t n_other_key;
	bool not_found; /* the request that it was to be compared with is not known any more */
	/* If the client asked for them: some tokens before that place, and what comes after it in the
	 * earlier request and in this one. */
	char same[IG_PREFIX_TEXT_CAP], earlier[IG_PREFIX_TEXT_CAP], now[IG_PREFIX_TEXT_CAP];
};

/* What administrators see. */
static inline enum ig_prefix_reason ig_prefix_full_reason(const struct ig_prefix_report *r)
{
	return r->n_other_key ? IG_PREFIX_OTHER_KEY : r->reason;
}
