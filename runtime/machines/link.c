/*
 * link.c: see link.h.  A message is sent as it lies in memory, header and data, so all machines must have the same
 * order of bytes and the same build, which each sign of life says.
 */
#include "runtime/machines/link.h"
#include "base/build_id.h"
#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define BEAT_NS 1000000000
/* Received and not yet taken, of one channel: more than any step has. */
#define MAX_WAITING 4096u
#define MAX_WAITING_BYTES ((size_t)1 << 30)
/* Parts of the time since the last message for which the thread sleeps. */
#define PATIENCE 32
#define LEAST_PAUSE_NS 20000
#define MOST_PAUSE_NS 10000000
#define POLL_NS 50000

/* Of what the bytes of all messages mean; the build id has the structs of a step. */
#define WIRE_VERSION 1u

struct beat {
	uint32_t magic, wire_version, n_ranks, reserved;
	char build_id[24];
};

struct item {
	struct item *next;
	struct ig_message *m;
	uint32_t rank;	/* the other one */
	size_t n_bytes; /* of the message with its header, while it is received */
	void *transfer;
};

struct queue {
	struct item *first, **end;
	size_t n, n_bytes;
};

struct ig_link {
	const struct ig_transport *transport;
	struct ig_transport_link *at;
	int64_t silence_ns;
	uint32_t rank, n_ranks;
	pthread_t thread;
	/* The link's thread alone: */
	struct queue sending;	/* begun */
	struct item *receiving; /* begun; NULL: none */
	int64_t heard_ns[IG_MAX_MACHINES], beat_ns, moved_ns;
	/* Of all, with the lock: */
	pthread_mutex_t lock;
	pthread_cond_t work; /* for the link's thread */
	pthread_cond_t news; /* for those who wait: a message, a failure, the start */
	struct queue outgoing;
	struct queue incoming[IG_N_CHANNELS];
	bool opened, closing;
	struct ig_error error; /* code 0: none */
};

/* ---- queues ---------------------------------------------------------------------------- */

static void put(struct queue *q, struct item *i)
{
	i->next = NULL;
	if (!q->first)
		q->end = &q->first;
	*q->end = i;
	q->end = &i->next;
	q->n++;
	q->n_bytes += (size_t)i->m->n_bytes;
}

static struct item *take(struct queue *q)
{
	struct item *i = q->first;

	if (i) {
		q->first = i->next;
		q->n--;
		q->n_bytes -= (size_t)i->m->n_bytes;
	}
	return i;
}

static void drop_item(struct item *i)
{
	if (i)
		free(i->m);
	free(i);
}

static void drop_queue(struct queue *q)
{
	for (struct item *i; (i = take(q));)
		drop_item(i);
}

struct ig_message *ig_message_create(uint32_t kind, size_t n_bytes)
{
	struct ig_message *m = n_bytes > IG_LINK_MAX_BYTES ? NULL : malloc(sizeof *m + n_bytes);

	if (m)
		*m = (struct ig_message){ .kind = kind, .n_bytes = n_bytes };
	return m;
}

/* ---- failure --------------------------------------------------------------------------- */

void ig_link_fail(struct ig_link *l, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	pthread_mutex_lock(&l->lock);
	if (!l->error.code) {
		l->error.code = -ENODEV;
		vsnprintf(l->error.text, sizeof l->error.text, fmt, ap);
	}
	pthread_cond_broadcast(&l->news);
	pthread_cond_signal(&l->work);
	pthread_mutex_unlock(&l->lock);
	va_end(ap);
}

/* With the lock. */
static int failed(struct ig_link *l, struct ig_error *err)
{
	return l->error.code ? ig_fail(err, -ENODEV, "%s", l->error.text) : 0;
}

/* ---- the link's thread ------------------------------------------------------------------- */

static void begin_sends(struct ig_link *l)
{
	struct ig_error err = { 0 };
	struct item *i;

	for (;;) {
		pthread_mutex_lock(&l->lock);
		i = take(&l->outgoing);
		pthread_mutex_unlock(&l->lock);
		if (!i)
			return;
		l->moved_ns = ig_now_ns();
		if (l->transport->send(l->at, i->rank, i->m, sizeof *i->m + (size_t)i->m->n_bytes,
				       &i->transfer, &err)) {
			ig_link_fail(l, "sending to rank %u: %.400s", i->rank, err.text);
			drop_item(i);
			return;
		}
		put(&l->sending, i);
	}
}

static void end_sends(struct ig_link *l)
{
	struct ig_error err = { 0 };
	struct queue rest = { 0 };
	struct item *i;

	while ((i = take(&l->sending))) {
		int rc = l->transport->done(l->at, i->transfer, &err);
		if (rc == 0) {
			put(&rest, i);
			continue;
		}
		if (rc < 0)
			ig_link_fail(l, "sending to rank %u: %.400s", i->rank, err.text);
		drop_item(i);
	}
	l->sending = rest;
	if (rest.first == NULL)
		l->sending.end = &l->sending.first;
}

static void check_beat(struct ig_link *l, const struct ig_message *m)
{
	const struct beat *b = (const void *)m->data;

	if (m->n_bytes != sizeof *b || b->magic != IG_TRANSPORT_MAGIC ||
	    b->wire_version != WIRE_VERSION || b->n_ranks != l->n_ranks ||
	    strncmp(b->build_id, ig_build_id, sizeof b->build_id) != 0)
		ig_link_fail(l, "rank %u runs another version of Ingot", m->from);
}

/* A message is whole. */
static void arrive(struct ig_link *l, struct item *i)
{
	struct ig_message *m = i->m;
	const size_t n_bytes = i->n_bytes;

	if (m->n_bytes != n_bytes - sizeof *m || m->channel >= IG_N_CHANNELS) {
		ig_link_fail(l, "rank %u sent what is no message", i->rank);
		drop_item(i);
		return;
	}
	m->from = i->rank;
	l->heard_ns[m->from] = ig_now_ns();
	if (m->channel == IG_CHANNEL_BEATS) {
		check_beat(l, m);
		drop_item(i);
		return;
	}
	l->moved_ns = ig_now_ns();
	pthread_mutex_lock(&l->lock);
	struct queue *q = &l->incoming[m->channel];
	bool fits = q->n < MAX_WAITING && q->n_bytes + n_bytes <= MAX_WAITING_BYTES;
	if (fits)
		put(q, i);
	pthread_cond_broadcast(&l->news);
	pthread_mutex_unlock(&l->lock);
	if (!fits) {
		ig_link_fail(l, "rank %u sends more than is read", i->rank);
		drop_item(i);
	}
}

static bool begin_receive(struct ig_link *l)
{
	struct ig_error err = { 0 };
	size_t n = 0;
	uint32_t from = 0;
	int rc = l->transport->probe(l->at, &from, &n, &err);

	if (rc == 0)
		return false;
	if (rc < 0 || from >= l->n_ranks || n < sizeof(struct ig_message) ||
	    n > sizeof(struct ig_message) + IG_LINK_MAX_BYTES) {
		ig_link_fail(l, "%s%.400s", rc < 0 ? "receiving: " : "a message of a wrong size",
			     rc < 0 ? err.text : "");
		return false;
	}
	struct item *i = calloc(1, sizeof *i);
	if (i)
		i->m = malloc(n);
	if (!i || !i->m) {
		free(i);
		ig_link_fail(l, "no memory for a message of %zu bytes", n);
		return false;
	}
	i->rank = from;
	i->n_bytes = n;
	if (l->transport->receive(l->at, i->m, &i->transfer, &err)) {
		ig_link_fail(l, "receiving from rank %u: %.400s", from, err.text);
		drop_item(i);
		return false;
	}
	l->receiving = i;
	return true;
}

/* One message after another; the link's thread has others to send meanwhile. */
static void receive_all(struct ig_link *l)
{
	struct ig_error err = { 0 };

	while (l->receiving || begin_receive(l)) {
		struct item *i = l->receiving;
		int rc = l->transport->done(l->at, i->transfer, &err);
		if (rc == 0)
			return;
		l->receiving = NULL;
		if (rc > 0) {
			arrive(l, i);
			continue;
		}
		ig_link_fail(l, "receiving from rank %u: %.400s", i->rank, err.text);
		drop_item(i);
		return;
	}
}

/* Rank 0 hears all, the others hear rank 0. */
static void beat(struct ig_link *l, int64_t now)
{
	struct beat b = { IG_TRANSPORT_MAGIC, WIRE_VERSION, l->n_ranks, 0, { 0 } };

	if (now - l->beat_ns < BEAT_NS)
		return;
	l->beat_ns = now;
	strncpy(b.build_id, ig_build_id, sizeof b.build_id - 1);
	for (uint32_t r = 0; r < l->n_ranks; r++) {
		struct ig_message *m = NULL;
		if (r == l->rank || (r != 0 && l->rank != 0))
			continue;
		if (now - l->heard_ns[r] > l->silence_ns)
			ig_link_fail(l, "rank %u has not been heard for %lld s", r,
				     (long long)((now - l->heard_ns[r]) / BEAT_NS));
		else if ((m = ig_message_create(0, sizeof b)))
			memcpy(m->data, &b, sizeof b);
		if (m) /* one that fails is known already */
			ig_link_send(l, r, IG_CHANNEL_BEATS, m, NULL);
	}
}

/* Sleep, longer the longer nothing has come, unless there is something to send. */
static void rest(struct ig_link *l, int64_t now)
{
	int64_t ns = (now - l->moved_ns) / PATIENCE;
	struct timespec until;

	if (now - l->moved_ns < POLL_NS) {
		sched_yield();
		return;
	}
	ns = ns < LEAST_PAUSE_NS ? LEAST_PAUSE_NS : ns > MOST_PAUSE_NS ? MOST_PAUSE_NS : ns;
	ns += ig_wall_ns();
	until = (struct timespec){ .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };
	pthread_mutex_lock(&l->lock);
	if (!l->outgoing.first && !l->closing)
		pthread_cond_timedwait(&l->work, &l->lock, &until);
	pthread_mutex_unlock(&l->lock);
}

/* Whether the thread has an end: a failure, or all that was to be sent is sent. */
static bool has_ended(struct ig_link *l)
{
	pthread_mutex_lock(&l->lock);
	bool is = l->error.code || (l->closing && !l->outgoing.first && !l->sending.first);
	pthread_mutex_unlock(&l->lock);
	return is;
}

static bool open_transport(struct ig_link *l)
{
	struct ig_error err = { 0 };
	uint32_t rank = 0, n = 0;
	int rc = l->transport->open(&l->at, &rank, &n, &err);

	if (!rc && (n > IG_MAX_MACHINES || rank >= n))
		rc = ig_fail(&err, -ENOTSUP, "%u ranks; at most %u are possible", n,
			     IG_MAX_MACHINES);
	if (rc)
		ig_link_fail(l, "%s", err.text);
	pthread_mutex_lock(&l->lock);
	l->rank = rank;
	l->n_ranks = n;
	l->opened = true;
	l->moved_ns = ig_now_ns();
	for (uint32_t r = 0; r < n && r < IG_MAX_MACHINES; r++)
		l->heard_ns[r] = l->moved_ns;
	pthread_cond_broadcast(&l->news);
	pthread_mutex_unlock(&l->lock);
	return rc == 0;
}

static void *run(void *ctx)
{
	struct ig_link *l = ctx;

	if (open_transport(l)) {
		while (!has_ended(l)) {
			const int64_t now = ig_now_ns();
			beat(l, now);
			begin_sends(l);
			end_sends(l);
			receive_all(l);
			rest(l, now);
		}
	}
	pthread_mutex_lock(&l->lock);
	const bool whole = !l->error.code;
	pthread_mutex_unlock(&l->lock);
	if (l->at && whole)
		l->transport->close(l->at);
	else if (l->at)
		l->transport->abort(l->at);
	return NULL;
}

/* ---- other threads ----------------------------------------------------------------------- */

int ig_link_open(const struct ig_link_options *o, struct ig_link **out, struct ig_error *err)
{
	struct ig_link *l = calloc(1, sizeof *l);
	int rc;

	*out = NULL;
	if (!l)
		return ig_fail(err, -ENOMEM, "no memory for the link between ranks");
	l->transport = o->transport;
	l->silence_ns = (int64_t)o->silence_ms * 1000000;
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->work, NULL);
	pthread_cond_init(&l->news, NULL);
	rc = -pthread_create(&l->thread, NULL, run, l);
	if (rc) {
		free(l);
		return ig_fail(err, rc, "the link's thread can't be started: %s", strerror(-rc));
	}
	pthread_mutex_lock(&l->lock);
	while (!l->opened)
		pthread_cond_wait(&l->news, &l->lock);
	rc = failed(l, err);
	pthread_mutex_unlock(&l->lock);
	if (rc) {
		ig_link_close(l);
		return rc;
	}
	*out = l;
	return 0;
}

void ig_link_close(struct ig_link *l)
{
	if (!l)
		return;
	pthread_mutex_lock(&l->lock);
	l->closing = true;
	pthread_cond_signal(&l->work);
	pthread_mutex_unlock(&l->lock);
	pthread_join(l->thread, NULL);
	drop_queue(&l->outgoing);
	/* After a failure a transfer may still be under way: then its memory is left to the process's end. */
	if (!l->error.code) {
		drop_queue(&l->sending);
		drop_item(l->receiving);
	}
	for (int c = 0; c < IG_N_CHANNELS; c++)
		drop_queue(&l->incoming[c]);
	pthread_cond_destroy(&l->news);
	pthread_cond_destroy(&l->work);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

uint32_t ig_link_rank(const struct ig_link *l) { return l->rank; }

uint32_t ig_link_n_ranks(const struct ig_link *l) { return l->n_ranks; }

int ig_link_send(struct ig_link *l, uint32_t to, enum ig_channel channel, struct ig_message *m,
		 struct ig_error *err)
{
	struct item *i = calloc(1, sizeof *i);
	int rc;

	if (!i || !m || to >= l->n_ranks || to == l->rank) {
		free(i);
		free(m);
		return ig_fail(err, -ENOMEM, "no memory for a message to rank %u", to);
	}
	m->channel = (uint32_t)channel;
	i->m = m;
	i->rank = to;
	pthread_mutex_lock(&l->lock);
	rc = failed(l, err);
	if (!rc) {
		put(&l->outgoing, i);
		pthread_cond_signal(&l->work);
	}
	pthread_mutex_unlock(&l->lock);
	if (rc)
		drop_item(i);
	return rc;
}

int ig_link_receive(struct ig_link *l, enum ig_channel channel, uint32_t timeout_ms,
		    struct ig_message **out, struct ig_error *err)
{
	const int64_t end = ig_wall_ns() + (int64_t)timeout_ms * 1000000;
	const struct timespec until = { .tv_sec = end / 1000000000, .tv_nsec = end % 1000000000 };
	struct queue *q = &l->incoming[channel];
	int rc = 0, timed = 0;

	*out = NULL;
	pthread_mutex_lock(&l->lock);
	while (!q->first && !(rc = failed(l, err)) && timed != ETIMEDOUT)
		timed = pthread_cond_timedwait(&l->news, &l->lock, &until);
	struct item *i = rc ? NULL : take(q);
	pthread_mutex_unlock(&l->lock);
	if (rc)
		return rc;
	if (!i)
		return ig_fail(err, -ETIMEDOUT, "no message in %u ms", timeout_ms);
	*out = i->m;
	free(i);
	return 0;
}
