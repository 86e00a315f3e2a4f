/* loopback.c: see loopback.h. */
#include "tests/unit/runtime/loopback.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MOST 8u

struct packet {
	struct packet *next;
	uint32_t from;
	size_t n_bytes;
	unsigned char data[];
};

struct ig_transport_link {
	uint32_t rank;
	struct packet *first, *probed;
	bool dead;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ig_transport_link ranks[MOST];
static uint32_t n_all, n_open;

static void drop(struct ig_transport_link *l)
{
	for (struct packet *p; (p = l->first);) {
		l->first = p->next;
		free(p);
	}
	free(l->probed);
	l->probed = NULL;
}

void loopback_begin(uint32_t n_ranks)
{
	for (uint32_t i = 0; i < MOST; i++)
		drop(&ranks[i]);
	memset(ranks, 0, sizeof ranks);
	n_all = n_ranks;
	n_open = 0;
}

void loopback_kill(uint32_t rank)
{
	pthread_mutex_lock(&lock);
	ranks[rank].dead = true;
	pthread_mutex_unlock(&lock);
}

void loopback_put(uint32_t from, uint32_t to, const void *data, size_t n_bytes)
{
	struct packet *p = malloc(sizeof *p + n_bytes), **end;

	*p = (struct packet){ .from = from, .n_bytes = n_bytes };
	memcpy(p->data, data, n_bytes);
	pthread_mutex_lock(&lock);
	for (end = &ranks[to].first; *end; end = &(*end)->next)
		;
	if (ranks[from].dead)
		free(p);
	else
		*end = p;
	pthread_mutex_unlock(&lock);
}

static int open_loopback(struct ig_transport_link **out, uint32_t *rank, uint32_t *n_ranks,
			 struct ig_error *err)
{
	pthread_mutex_lock(&lock);
	*rank = n_open++;
	*n_ranks = n_all;
	*out = &ranks[*rank];
	(*out)->rank = *rank;
	pthread_mutex_unlock(&lock);
	return 0;
}

static void close_loopback(struct ig_transport_link *l)
{
	pthread_mutex_lock(&lock);
	drop(l);
	pthread_mutex_unlock(&lock);
}

static int send_packet(struct ig_transport_link *l, uint32_t to, const void *data, size_t n_bytes,
		       void **transfer, struct ig_error *err)
{
	loopback_put(l->rank, to, data, n_bytes);
	*transfer = l;
	return 0;
}

static int probe(struct ig_transport_link *l, uint32_t *from, size_t *n_bytes, struct ig_error *err)
{
	pthread_mutex_lock(&lock);
	if (!l->probed && l->first) {
		l->probed = l->first;
		l->first = l->first->next;
	}
	if (l->probed) {
		*from = l->probed->from;
		*n_bytes = l->probed->n_bytes;
	}
	pthread_mutex_unlock(&lock);
	return l->probed != NULL;
}

static int receive(struct ig_transport_link *l, void *data, void **transfer, struct ig_error *err)
{
	memcpy(data, l->probed->data, l->probed->n_bytes);
	free(l->probed);
	l->probed = NULL;
	*transfer = l;
	return 0;
}

static int done(struct ig_transport_link *l, void *transfer, struct ig_error *err) { return 1; }

const struct ig_transport loopback = {
	.magic = IG_TRANSPORT_MAGIC,
	.version = IG_TRANSPORT_VERSION,
	.struct_size = sizeof loopback,
	.name = "loopback",
	.open = open_loopback,
	.close = close_loopback,
	.abort = close_loopback,
	.send = send_packet,
	.probe = probe,
	.receive = receive,
	.done = done,
};
