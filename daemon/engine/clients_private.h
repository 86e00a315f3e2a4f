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
 *   - The queue: when it is full, a client that has less of it than another takes a place from it.
 *
 * Those that wait are many, and a step should not be longer for that: the clients that have any are
 * a heap by ig_client_comes_before (a skew heap, which needs no memory of its own), so that each
 * change and each admission visits a few of them.
 */
#pragma once

#include "daemon/engine/sequence_private.h"

#include <pthread.h>

struct ig_sched;

struct ig_client {
	/* ---- fixed ---- */
	uint64_t identity; /* of its key; 0: none */
	char address[64];  /* where it has no key */

	/* ---- under the list's lock ---- */
	TAILQ_ENTRY(ig_client) link;
	struct ig_client_list *list; /* NULL: none */
	uint32_t n_refs;	     /* its sequences */
	uint32_t n_queued;	     /* of them, that wait or were not seen by the engine yet */
	double queue_weight;

	/* ---- the engine's thread ---- */
	double weight;
	uint32_t n_running;	    /* paused ones are not counted */
	struct ig_seq_list waiting; /* by ig_seq.turn: the next one first */
	struct ig_seq *next;	    /* of those, in the admission of this number */
	uint64_t admission;
	struct ig_client *up, *left, *right; /* in the heap */
	bool in_heap;
	double served; /* rows of prompts by weight */
	/* Of the round that is planned: sequences that could take part, and that do. */
	uint32_t n_here, n_chosen;
};

struct ig_client_list {
	pthread_mutex_t *lock;
	TAILQ_HEAD(, ig_client) all; /* under the lock */

	/* ---- the engine's thread ---- */
	struct ig_client *first; /* the heap of those that have waiting sequences */
	uint64_t n_admissions;
};

void ig_client_list_init(struct ig_client_list *list, pthread_mutex_t *lock);
/* Of the origin's client, with one reference.  NULL without memory. */
struct ig_client *ig_client_create(const struct ig_origin *o);
/* One reference less; without any it leaves its list and is freed.  NULL is fine.  Not under the
 * lock. */
void ig_client_drop(struct ig_client *c);

/* ---- any thread, under the lock ---- */

/* s is new: its client becomes the one that the list has, if it has it. */
void ig_client_join(struct ig_client_list *list, struct ig_seq *s);
/* s is in the queue, or no longer is. */
void ig_client_count_queued(struct ig_seq *s, bool queued);
/* The client that has the most of the queue by weight, if it has no less than s's client after it gave
 * a place to s; NULL: none. */
struct ig_client *ig_client_gives_queue(const struct ig_client_list *list, const struct ig_seq *s);

/* ---- the engine's thread ---- */

/* It sees s for the first time. */
void ig_client_arrive(struct ig_seq *s);
/* s begins, or no longer, to wait. */
void ig_client_add_waiting(struct ig_seq *s);
void ig_client_remove_waiting(struct ig_seq *s);
/* n more of its sequences run. */
void ig_client_count_running(struct ig_client *c, int n);

/* An admission begins. */
void ig_client_begin_admission(struct ig_client_list *list);
/* The next of c's waiting sequences that this admission has not passed over; NULL: none. */
struct ig_seq *ig_client_next(struct ig_client *c);
/* Those after c in the heap; without descend none of those that come after c's first one. */
struct ig_client *ig_client_after(const struct ig_client *c, bool descend);

/* Of two sequences that wait, of two clients, whether a is admitted first. */
bool ig_client_comes_before(const struct ig_seq *a, const struct ig_seq *b);
/* The running sequence that should give its place or its blocks to s, or NULL: one with a larger
 * priority number, or of a client that has more than its share, or, if s runs, a younger one of no smaller share.
 * model: only sequences of this model; NULL: of any. */
struct ig_seq *ig_client_find_victim(const struct ig_seq_list *running, const struct ig_seq *s,
				     const struct ig_model *model);

/* Sets ig_seq.held of m's running sequences: those that take no part in the new round. */
void ig_clients_choose(struct ig_seq_list *running, struct ig_model *m);
/* Number of the turn in which rows of s's prompt are due: those with a smaller one come first. */
uint64_t ig_client_turn(const struct ig_seq *s);
/* n rows of its prompt are computed. */
void ig_client_serve(const struct ig_seq *s, int32_t n);
