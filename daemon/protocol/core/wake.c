/* wake.c: see wake.h. */
#include "daemon/protocol/core/wake.h"

#include <stdlib.h>

#define HANDLES_PER_CHUNK 64

struct ig_wake {
	struct ig_wakes *of;
	atomic_bool signalled;
	void (*fn)(void *ctx); /* loop; NULL: idle */
	void *ctx;
	struct ig_wake *next, *next_idle;
};

struct wake_chunk {
	struct wake_chunk *next;
	struct ig_wake handles[HANDLES_PER_CHUNK];
};

void ig_wake_loop(struct ig_wakes *w)
{
	if (!atomic_exchange(&w->woken, true))
		w->loop(w->loop_ctx);
}

void ig_wake_signal(void *wake)
{
	struct ig_wake *h = wake;

	atomic_store(&h->signalled, true);
	ig_wake_loop(h->of);
}

static bool add_chunk(struct ig_wakes *w)
{
	struct wake_chunk *k = calloc(1, sizeof *k);

	if (!k)
		return false;
	k->next = w->chunks;
	w->chunks = k;
	for (size_t i = 0; i < HANDLES_PER_CHUNK; i++) {
		struct ig_wake *h = &k->handles[i];
		h->of = w;
		atomic_init(&h->signalled, false);
		h->next = w->all;
		w->all = h;
		h->next_idle = w->idle;
		w->idle = h;
	}
	return true;
}

struct ig_wake *ig_wake_get(struct ig_wakes *w, void (*fn)(void *ctx), void *ctx)
{
	if (!w->idle && !add_chunk(w))
		return NULL;
	struct ig_wake *h = w->idle;
	w->idle = h->next_idle;
	h->fn = fn;
	h->ctx = ctx;
	return h;
}

void ig_wake_put(struct ig_wake *h)
{
	h->fn = NULL;
	h->next_idle = h->of->idle;
	h->of->idle = h;
}

void ig_wakes_init(struct ig_wakes *w, void (*loop)(void *ctx), void *ctx)
{
	*w = (struct ig_wakes){ .loop = loop, .loop_ctx = ctx };
	atomic_init(&w->woken, false);
}

void ig_wakes_clear(struct ig_wakes *w) { atomic_store(&w->woken, false); }

void ig_wakes_deliver(struct ig_wakes *w)
{
	for (struct ig_wake *h = w->all; h; h = h->next)
		if (h->fn && atomic_exchange(&h->signalled, false))
			h->fn(h->ctx);
}

void ig_wakes_finish(struct ig_wakes *w)
{
	while (w->chunks) {
		struct wake_chunk *k = w->chunks;
		w->chunks = k->next;
		free(k);
	}
}
