/* clients.c: see clients_private.h. */
#include "daemon/engine/clients_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rows of prompts that a client of weight 1 has before it is another's turn: prompts of usual length
 * are read one after the other, which is sooner for most than all of them together. */
#define TURN_ROWS 4096
/* A step may be so many times as long with streams that are more than a client's share. */
#define SLACK 1.05
/* Of so many rounds that hold streams back one does not, so that it shows what they cost now. */
#define PROBE_ROUNDS 256

struct ig_client *ig_client_create(const struct ig_origin *o)
{
	struct ig_client *c = calloc(1, sizeof *c);

	if (!c)
		return NULL;
	c->n_refs = 1;
	c->identity = o->who.identity;
	memcpy(c->address, o->client, sizeof c->address);
	c->weight = o->who.weight ? o->who.weight : 1;
	TAILQ_INIT(&c->waiting);
	return c;
}

void ig_client_drop(struct ig_client *c)
{
	if (!c || --c->n_refs)
		return;
	if (c->list)
		TAILQ_REMOVE(c->list, c, link);
	free(c);
}

static bool has_work(const struct ig_client *c)
{
	return c->n_running || !TAILQ_EMPTY(&c->waiting);
}

/* Where a client that comes begins to count: it has no claim to what it did not ask for before. */
static double least_served(const struct ig_client_list *list)
{
	const struct ig_client *c;
	double least = INFINITY;

	TAILQ_FOREACH(c, list, link)
		if (has_work(c) && c->served < least)
			least = c->served;
	return least < INFINITY ? least : 0;
}

void ig_client_enter(struct ig_client_list *list, struct ig_seq *s)
{
	struct ig_client *own = s->client, *c;
	double least = least_served(list);

	if (own->list)
		return;
	TAILQ_FOREACH(c, list, link)
		if (ig_same_client(c->identity, c->address, own->identity, own->address))
			break;
	if (c) {
		c->n_refs++;
		c->weight = own->weight; /* a reload may have changed it */
		ig_client_drop(own);
		s->client = c;
	} else {
		TAILQ_INSERT_TAIL(list, own, link);
		own->list = list;
	}
	if (!has_work(s->client) && s->client->served < least)
		s->client->served = least;
}

/* ---- who waits, and who gives way ---------------------------------------------------------- */

/* Of one client: whether a's turn is before b's. */
static bool precedes(const struct ig_seq *a, const struct ig_seq *b)
{
	if (a->priority != b->priority)
		return a->priority < b->priority;
	if (a->deadline_ns != b->deadline_ns)
		return a->deadline_ns && (!b->deadline_ns || a->deadline_ns < b->deadline_ns);
	return a->number < b->number;
}

void ig_client_add_waiting(struct ig_seq *s)
{
	struct ig_seq_list *list = &s->client->waiting;
	struct ig_seq *at = TAILQ_LAST(list, ig_seq_list);

	while (at && precedes(s, at))
		at = TAILQ_PREV(at, ig_seq_list, turn);
	if (at)
		TAILQ_INSERT_AFTER(list, at, s, turn);
	else
		TAILQ_INSERT_HEAD(list, s, turn);
}

void ig_client_remove_waiting(struct ig_seq *s)
{
	if (s->client->next == s)
		s->client->next = TAILQ_NEXT(s, turn);
	TAILQ_REMOVE(&s->client->waiting, s, turn);
}

/* Running sequences by weight, with n more of them. */
static double share_of(const struct ig_client *c, int n)
{
	return ((double)c->n_running + n) / c->weight;
}

bool ig_client_comes_before(const struct ig_seq *a, const struct ig_seq *b)
{
	double mine = share_of(a->client, 1), theirs = share_of(b->client, 1);

	if (a->priority != b->priority)
		return a->priority < b->priority;
	return mine != theirs ? mine < theirs : a->number < b->number;
}

/* Whether v, which runs, should give way to s.  A client keeps at least one, and after the exchange
 * the one that gave still has no less than the one that got: nothing goes back and forth. */
static bool yields(const struct ig_seq *v, const struct ig_seq *s)
{
	bool runs = s->kv;

	if (v == s || ig_seq_is_paused(v) || v->priority < s->priority)
		return false;
	if (v->priority > s->priority)
		return true;
	if (runs && v->number > s->number && share_of(v->client, 0) >= share_of(s->client, 0))
		return true;
	return v->client != s->client && v->client->n_running > 1 &&
	       share_of(s->client, runs ? 0 : 1) <= share_of(v->client, -1);
}

/* Of two that may give way, whether a does: of the client with the largest share the youngest. */
static bool is_worse(const struct ig_seq *a, const struct ig_seq *b)
{
	double mine = share_of(a->client, 0), theirs = share_of(b->client, 0);

	if (a->priority != b->priority)
		return a->priority > b->priority;
	return mine != theirs ? mine > theirs : a->number > b->number;
}

struct ig_seq *ig_client_find_victim(const struct ig_seq_list *running, const struct ig_seq *s,
				     const struct ig_model *model)
{
	struct ig_seq *v, *worst = NULL;

	TAILQ_FOREACH(v, running, link)
		if ((!model || v->model == model) && yields(v, s) && (!worst || is_worse(v, worst)))
			worst = v;
	return worst;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static bool could_join(const struct ig_seq *s, const struct ig_model *m)
{
	return s->model == m && !ig_seq_is_paused(s);
}

/* Sequences of a client, by weight, that take part: as many as the client with the second most has.
 * INFINITY: there is only one client. */
static double level_of(const struct ig_client_list *list)
{
	double most = 0, second = 0;
	const struct ig_client *c;

	TAILQ_FOREACH(c, list, link) {
		double n = c->n_here / c->weight;
		if (n > most) {
			second = most;
			most = n;
		} else if (n > second) {
			second = n;
		}
	}
	return second > 0 ? second : INFINITY;
}

/* Held streams join up to so many that the step is hardly longer. */
static void let_streams_join(struct ig_seq_list *running, struct ig_model *m, uint32_t n_streams,
			     uint32_t n_all)
{
	uint32_t most = ig_pace_most_streams(&m->pace, n_streams, n_all, SLACK);
	struct ig_seq *s;

	if (most < n_all && ++m->n_holding_rounds % PROBE_ROUNDS == 0)
		most = n_all;

	for (s = TAILQ_FIRST(running); s && n_streams < most; s = TAILQ_NEXT(s, link)) {
		if (!could_join(s, m) || !s->held || ig_seq_n_left(s) > 1)
			continue;
		s->held = false;
		s->is_extra = true;
		n_streams++;
	}
}

void ig_clients_choose(struct ig_client_list *list, struct ig_seq_list *running, struct ig_model *m)
{
	uint32_t n_streams = 0, n_all = 0;
	int32_t first = INT32_MAX;
	bool any_held = false;
	struct ig_client *c;
	struct ig_seq *s;

	TAILQ_FOREACH(c, list, link)
		c->n_here = c->n_chosen = 0;
	TAILQ_FOREACH(s, running, link)
		if (could_join(s, m) && s->priority < first)
			first = s->priority;
	TAILQ_FOREACH(s, running, link)
		s->client->n_here += could_join(s, m) && s->priority == first;
	double level = level_of(list);
	TAILQ_FOREACH(s, running, link) {
		if (!could_join(s, m))
			continue;
		c = s->client;
		s->is_extra = false;
		s->held = s->priority != first || (c->n_chosen && c->n_chosen >= level * c->weight);
		c->n_chosen += !s->held;
		any_held = any_held || s->held;
		n_all += ig_seq_n_left(s) <= 1;
		n_streams += ig_seq_n_left(s) <= 1 && !s->held;
	}
	if (any_held && n_streams)
		let_streams_join(running, m, n_streams, n_all);
}

uint64_t ig_client_turn(const struct ig_seq *s)
{
	return (uint64_t)(s->client->served / TURN_ROWS);
}

void ig_client_serve(const struct ig_seq *s, int32_t n)
{
	s->client->served += n / s->client->weight;
}
