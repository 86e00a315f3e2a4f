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

void ig_client_list_init(struct ig_client_list *list, pthread_mutex_t *lock)
{
	*list = (struct ig_client_list){ .lock = lock };
	TAILQ_INIT(&list->all);
}

struct ig_client *ig_client_create(const struct ig_origin *o)
{
	struct ig_client *c = calloc(1, sizeof *c);

	if (!c)
		return NULL;
	c->n_refs = 1;
	c->identity = o->who.identity;
	memcpy(c->address, o->client, sizeof c->address);
	c->weight = c->queue_weight = ig_key_weight(o->who.weight);
	TAILQ_INIT(&c->waiting);
	return c;
}

void ig_client_drop(struct ig_client *c)
{
	pthread_mutex_t *lock = c && c->list ? c->list->lock : NULL;
	bool unused;

	if (!c)
		return;
	if (lock)
		pthread_mutex_lock(lock);
	unused = !--c->n_refs;
	if (unused && lock)
		TAILQ_REMOVE(&c->list->all, c, link);
	if (lock)
		pthread_mutex_unlock(lock);
	if (unused)
		free(c);
}

void ig_client_join(struct ig_client_list *list, struct ig_seq *s)
{
	struct ig_client *own = s->client, *c;

	TAILQ_FOREACH(c, &list->all, link)
		if (ig_same_client(c->identity, c->address, own->identity, own->address))
			break;
	if (c) {
		c->n_refs++;
		c->queue_weight = own->queue_weight; /* a reload may have changed it */
		free(own);
		s->client = c;
	} else {
		TAILQ_INSERT_TAIL(&list->all, own, link);
		own->list = list;
	}
}

/* ---- the queue ----------------------------------------------------------------------------- */

void ig_client_count_queued(struct ig_seq *s, bool queued)
{
	if (queued && !s->queued)
		s->client->n_queued++;
	if (!queued && s->queued)
		s->client->n_queued--;
	s->queued = queued;
}

static double queue_share(const struct ig_client *c, double n)
{
	return ((double)c->n_queued + n) / c->queue_weight;
}

struct ig_client *ig_client_gives_queue(const struct ig_client_list *list, const struct ig_seq *s)
{
	struct ig_client *c, *most = NULL;

	TAILQ_FOREACH(c, &list->all, link)
		if (!most || queue_share(c, 0) > queue_share(most, 0))
			most = c;
	return most && most != s->client && queue_share(most, -1) >= queue_share(s->client, 1) ?
		       most :
		       NULL;
}

/* ---- arrivals ------------------------------------------------------------------------------ */

static bool has_work(const struct ig_client *c)
{
	return c->n_running || !TAILQ_EMPTY(&c->waiting);
}

/* Where a client that comes begins to count: it has no claim to what it did not ask for before. */
static double least_served(const struct ig_client_list *list)
{
	const struct ig_client *c;
	double least = INFINITY;

	pthread_mutex_lock(list->lock);
	TAILQ_FOREACH(c, &list->all, link)
		if (has_work(c) && c->served < least)
			least = c->served;
	pthread_mutex_unlock(list->lock);
	return least < INFINITY ? least : 0;
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

/* Whether a is before b in the heap. */
static bool is_before(const struct ig_client *a, const struct ig_client *b)
{
	return ig_client_comes_before(TAILQ_FIRST(&a->waiting), TAILQ_FIRST(&b->waiting));
}

/* One heap of two; either may be NULL. */
static struct ig_client *merge(struct ig_client *a, struct ig_client *b)
{
	struct ig_client *root = NULL, *up = NULL, **at = &root, *other;

	while (a && b) {
		if (is_before(b, a)) {
			other = a;
			a = b;
			b = other;
		}
		*at = a;
		a->up = up;
		up = a;
		at = &a->left;
		other = a->right;
		a->right = a->left;
		a = other;
	}
	*at = a ? a : b;
	if (*at)
		(*at)->up = up;
	return root;
}

static void leave_heap(struct ig_client *c)
{
	struct ig_client *below = merge(c->left, c->right), *up = c->up;

	if (below)
		below->up = up;
	if (!up)
		c->list->first = below;
	else if (up->left == c)
		up->left = below;
	else
		up->right = below;
	c->up = c->left = c->right = NULL;
	c->in_heap = false;
}

/* Its first waiting sequence, or its share, is another one. */
static void update_heap(struct ig_client *c)
{
	if (c->in_heap)
		leave_heap(c);
	if (!c->list || TAILQ_EMPTY(&c->waiting))
		return;
	c->list->first = merge(c->list->first, c);
	c->in_heap = true;
}

struct ig_client *ig_client_after(const struct ig_client *c, bool descend)
{
	if (descend && c->left)
		return c->left;
	if (descend && c->right)
		return c->right;
	for (; c->up; c = c->up)
		if (c->up->left == c && c->up->right)
			return c->up->right;
	return NULL;
}

void ig_client_arrive(struct ig_seq *s)
{
	struct ig_client *c = s->client;
	double weight = ig_key_weight(s->origin->who.weight), least;

	if (weight != c->weight) { /* a reload has changed it */
		c->weight = weight;
		update_heap(c);
	}
	if (has_work(c))
		return;
	least = least_served(c->list);
	if (c->served < least)
		c->served = least;
}

void ig_client_begin_admission(struct ig_client_list *list) { list->n_admissions++; }

struct ig_seq *ig_client_next(struct ig_client *c)
{
	if (c->admission != c->list->n_admissions)
		c->next = TAILQ_FIRST(&c->waiting);
	c->admission = c->list->n_admissions;
	return c->next;
}

static void count_queued(struct ig_seq *s, bool queued)
{
	pthread_mutex_lock(s->client->list->lock);
	ig_client_count_queued(s, queued);
	pthread_mutex_unlock(s->client->list->lock);
}

void ig_client_add_waiting(struct ig_seq *s)
{
	struct ig_seq_list *list = &s->client->waiting;
	struct ig_seq *at = TAILQ_LAST(list, ig_seq_list);

	count_queued(s, true);
	s->prefix.number = 0;
	ig_client_next(s->client); /* what is preempted in an admission waits for the next one */
	while (at && precedes(s, at))
		at = TAILQ_PREV(at, ig_seq_list, turn);
	if (at)
		TAILQ_INSERT_AFTER(list, at, s, turn);
	else
		TAILQ_INSERT_HEAD(list, s, turn);
	if (!at)
		update_heap(s->client);
}

void ig_client_remove_waiting(struct ig_seq *s)
{
	struct ig_client *c = s->client;
	bool first = TAILQ_FIRST(&c->waiting) == s;

	count_queued(s, false);
	if (c->next == s)
		c->next = TAILQ_NEXT(s, turn);
	TAILQ_REMOVE(&c->waiting, s, turn);
	if (first)
		update_heap(c);
}

void ig_client_count_running(struct ig_client *c, int n)
{
	c->n_running += (uint32_t)n;
	update_heap(c);
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
	bool runs = s->kv && !ig_seq_is_paused(s); /* its client counts it */

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
		/* who needs blocks is not helped by one that has none */
		if ((!model || v->model == model) && (v->kv || !s->kv) && yields(v, s) &&
		    (!worst || is_worse(v, worst)))
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
static double level_of(const struct ig_seq_list *running)
{
	const struct ig_client *first = NULL;
	double most = 0, second = 0;
	const struct ig_seq *s;

	TAILQ_FOREACH(s, running, link) {
		double n = s->client->n_here / s->client->weight;
		if (s->client == first)
			continue;
		if (n > most) {
			second = most;
			most = n;
			first = s->client;
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
		if (!could_join(s, m) || !s->held || !ig_seq_is_read(s))
			continue;
		s->held = false;
		s->is_extra = true;
		n_streams++;
	}
}

void ig_clients_choose(struct ig_seq_list *running, struct ig_model *m)
{
	uint32_t n_streams = 0, n_all = 0;
	int32_t first = INT32_MAX;
	bool any_held = false;
	struct ig_client *c;
	struct ig_seq *s;

	TAILQ_FOREACH(s, running, link) {
		s->client->n_here = s->client->n_chosen = 0;
		if (could_join(s, m) && s->priority < first)
			first = s->priority;
	}
	TAILQ_FOREACH(s, running, link)
		s->client->n_here += could_join(s, m) && s->priority == first;
	double level = level_of(running);
	TAILQ_FOREACH(s, running, link) {
		if (!could_join(s, m))
			continue;
		c = s->client;
		s->is_extra = false;
		s->held = s->priority != first || (c->n_chosen && c->n_chosen >= level * c->weight);
		c->n_chosen += !s->held;
		any_held = any_held || s->held;
		n_all += ig_seq_is_read(s);
		n_streams += ig_seq_is_read(s) && !s->held;
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
