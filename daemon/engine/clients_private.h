/*
 * clients_private.h: whose sequences wait and run.  Not requests share the engine but clients, by
 * their weights: a client is a key, or without one an address.  Whoever has more sequences than the
 * others has no more of the engine for that while others want it; alone it has all.
 *
 *   - Admission: of those with the smallest priority number the client that has the fewest running,
 *     then its earliest deadline, then its oldest.  Where all places or blocks are taken, a client
 *     with more than its share gives one back.
 *   - Rounds: beside others, of each client only so many sequences take part as the client with
 *     the second most has.  Further streams may join while they make the step hardly longer.
 *   - Rows of prompts: clients take turns of TURN_ROWS (deficit round robin, with the counters of
 *     "Fairness in Serving Large Language Models", Sheng et al. 2024, which a client that comes
 *     begins at the least of the others).
 *
 * The engine's thread, but for create and drop of a client that is in no list.
 */
#pragma once

#include "daemon/engine/sequence_private.h"

struct ig_sched;

TAILQ_HEAD(ig_client_list, ig_client);

struct ig_client {
	TAILQ_ENTRY(ig_client) link;
	struct ig_client_list *list; /* NULL: none */
	uint32_t n_refs;	     /* its sequences */
	uint64_t identity;	     /* of its key; 0: none */
	char address[64];	     /* where it has no key */
	double weight;
	uint32_t n_running;	    /* paused ones are not counted */
	struct ig_seq_list waiting; /* by ig_seq.turn: the next one first */
	struct ig_seq *next;	    /* of those, in one admission */
	double served;		    /* rows of prompts by weight */
	/* Of the round that is planned: sequences that could take part, and that do. */
	uint32_t n_here, n_chosen;
};

/* Of the origin's client, with one reference.  NULL without memory. */
struct ig_client *ig_client_create(const struct ig_origin *o);
/* One reference less; without any it leaves its list and is freed.  NULL is fine. */
void ig_client_drop(struct ig_client *c);
/* s is new: its client becomes the one that the list has, if it has it. */
void ig_client_enter(struct ig_client_list *list, struct ig_seq *s);
/* s begins, or no longer, to wait. */
void ig_client_add_waiting(struct ig_seq *s);
void ig_client_remove_waiting(struct ig_seq *s);

/* Of two sequences that wait, of two clients, whether a is admitted first. */
bool ig_client_comes_before(const struct ig_seq *a, const struct ig_seq *b);
/* The running sequence that should give its place or its blocks to s, or NULL: one with a larger
 * priority number, or of a client that has more than its share, or, if s runs, a younger one of no smaller share.
 * model: only sequences of this model; NULL: of any. */
struct ig_seq *ig_client_find_victim(const struct ig_seq_list *running, const struct ig_seq *s,
				     const struct ig_model *model);

/* Sets ig_seq.held of m's running sequences: those that take no part in the new round. */
void ig_clients_choose(struct ig_client_list *list, struct ig_seq_list *running,
		       struct ig_model *m);
/* Number of the turn in which rows of s's prompt are due: those with a smaller one come first. */
uint64_t ig_client_turn(const struct ig_seq *s);
/* n rows of its prompt are computed. */
void ig_client_serve(const struct ig_seq *s, int32_t n);
