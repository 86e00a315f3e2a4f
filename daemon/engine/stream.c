/*
 * stream.c: see stream.h.  One writer and one reader share a ring of bytes through two counters
 * that only grow: the writer owns head, the reader owns tail, each publishes its own with release
 * and reads the other's with acquire.  Logprobs are a second such ring; a token's is written before
 * its text, so that a reader that has the text finds it.
 */
#include "daemon/engine/stream.h"

#include "base/clock.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct ig_stream {
	size_t capacity;
	void (*wake)(void *ctx);
	void *wake_ctx;
	atomic_int n_refs;
	_Atomic uint64_t head; /* bytes ever written; the writer's */
	_Atomic uint64_t tail; /* bytes ever taken; the reader's */
	_Atomic int64_t last_take_ns;
	_Atomic int32_t n_cached; /* -1: not known yet; publishes report */
	struct ig_prefix_report report;
	atomic_bool finished;		   /* publishes result */
	struct ig_token_logprob *logprobs; /* logprobs, [n_logprobs]; NULL: none */
	uint32_t n_logprobs;
	_Atomic uint64_t logprob_head; /* logprobs ever written; the writer's */
	_Atomic uint64_t logprob_tail; /* logprobs ever taken; the reader's */
	struct ig_gen_result result;
	char ring[];
};

/* A ring must hold at least any one character. */
#define MIN_CAPACITY 16
#define MAX_CAPACITY ((size_t)1 << 30)

const char *ig_finish_name(enum ig_finish f)
{
	switch (f) {
	case IG_FINISH_NONE: return "none";
	case IG_FINISH_STOP: return "stop";
	case IG_FINISH_LENGTH: return "length";
	case IG_FINISH_CANCELLED: return "cancelled";
	case IG_FINISH_ERROR: return "error";
	}
	return "unknown";
}

const char *ig_prefix_reason_name(enum ig_prefix_reason r)
{
	static const char *const names[IG_N_PREFIX_REASONS] = {
		[IG_PREFIX_UNKNOWN] = "",
		[IG_PREFIX_FULL] = "full",
		[IG_PREFIX_EXTENDED] = "extended",
		[IG_PREFIX_DIVERGED] = "diverged",
		[IG_PREFIX_EVICTED] = "evicted",
		[IG_PREFIX_STATE] = "state",
		[IG_PREFIX_WINDOW] = "window",
		[IG_PREFIX_NOT_COMPUTED] = "not_computed",
		[IG_PREFIX_OTHER_MODEL] = "other_model",
		[IG_PREFIX_OTHER_KEY] = "other_key",
		[IG_PREFIX_FIRST_SEEN] = "first_seen",
		[IG_PREFIX_SHORT] = "short",
		[IG_PREFIX_DISABLED] = "disabled",
	};

	return (unsigned)r < IG_N_PREFIX_REASONS ? names[r] : "";
}

struct ig_stream *ig_stream_create(size_t capacity, void (*wake)(void *ctx), void *ctx)
{
	struct ig_stream *s;

	if (capacity < MIN_CAPACITY)
		capacity = MIN_CAPACITY;
	if (capacity > MAX_CAPACITY)
		return NULL;
	s = calloc(1, sizeof *s + capacity);
	if (!s)
		return NULL;
	s->capacity = capacity;
	s->wake = wake;
	s->wake_ctx = ctx;
	atomic_init(&s->n_refs, 2);
	atomic_init(&s->last_take_ns, ig_now_ns());
	atomic_init(&s->n_cached, -1);
	return s;
}

int ig_stream_enable_logprobs(struct ig_stream *s, uint32_t n_logprobs)
{
	struct ig_token_logprob *logprobs = calloc(n_logprobs ? n_logprobs : 1, sizeof *logprobs);

	if (!logprobs)
		return -ENOMEM;
	free(s->logprobs);
	s->logprobs = logprobs;
	s->n_logprobs = n_logprobs ? n_logprobs : 1;
	return 0;
}

bool ig_stream_has_logprobs(const struct ig_stream *s) { return s->logprobs != NULL; }

void ig_stream_unref(struct ig_stream *s)
{
	if (s && atomic_fetch_sub_explicit(&s->n_refs, 1, memory_order_acq_rel) == 1) {
		free(s->logprobs);
		free(s);
	}
}

/* ---- the engine's side ---- */

void ig_stream_begin(struct ig_stream *s, int32_t n_cached, const struct ig_prefix_report *report)
{
	s->report = *report;
	atomic_store_explicit(&s->n_cached, n_cached, memory_order_release);
	if (s->wake)
		s->wake(s->wake_ctx);
}

static size_t space(const struct ig_stream *s)
{
	uint64_t head = atomic_load_explicit(&s->head, memory_order_relaxed);
	uint64_t tail = atomic_load_explicit(&s->tail, memory_order_acquire);

	return s->capacity - (size_t)(head - tail);
}

bool ig_stream_has_space(const struct ig_stream *s, size_t len) { return len <= space(s); }

int ig_stream_put(struct ig_stream *s, const char *text, size_t len)
{
	uint64_t head = atomic_load_explicit(&s->head, memory_order_relaxed);
	size_t at = (size_t)(head % s->capacity);
	size_t first = s->capacity - at;

	if (!len)
		return 0;
	if (len > space(s))
		return -EAGAIN;
	if (first > len)
		first = len;
	memcpy(s->ring + at, text, first);
	memcpy(s->ring, text + first, len - first);
	atomic_store_explicit(&s->head, head + len, memory_order_release);
	if (s->wake)
		s->wake(s->wake_ctx);
	return 0;
}

bool ig_stream_has_logprob_space(const struct ig_stream *s)
{
	uint64_t head = atomic_load_explicit(&s->logprob_head, memory_order_relaxed);
	uint64_t tail = atomic_load_explicit(&s->logprob_tail, memory_order_acquire);

	return head - tail < s->n_logprobs;
}

int ig_stream_put_logprob(struct ig_stream *s, const struct ig_token_logprob *logprob)
{
	uint64_t head = atomic_load_explicit(&s->logprob_head, memory_order_relaxed);

	if (!ig_stream_has_logprob_space(s))
		return -EAGAIN;
	s->logprobs[head % s->n_logprobs] = *logprob;
	atomic_store_explicit(&s->logprob_head, head + 1, memory_order_release);
	if (s->wake)
		s->wake(s->wake_ctx);
	return 0;
}

void ig_stream_finish(struct ig_stream *s, const struct ig_gen_result *r)
{
	s->result = *r;
	atomic_store_explicit(&s->finished, true, memory_order_release);
	if (s->wake)
		s->wake(s->wake_ctx);
}

int64_t ig_stream_last_take_ns(const struct ig_stream *s)
{
	return atomic_load_explicit(&s->last_take_ns, memory_order_relaxed);
}

/* ---- the loop's side ---- */

int32_t ig_stream_n_cached(const struct ig_stream *s)
{
	return atomic_load_explicit(&s->n_cached, memory_order_acquire);
}

struct ig_prefix_report ig_stream_report(const struct ig_stream *s)
{
	return ig_stream_n_cached(s) < 0 ? (struct ig_prefix_report){ 0 } : s->report;
}

/* How many of the n bytes from ring position at are whole characters, when more bytes
 * follow.  Bytes that are not UTF-8 are cut anywhere. */
static size_t whole_characters(const struct ig_stream *s, size_t at, size_t n)
{
	for (size_t back = 0; back < 4 && back <= n; back++) {
		if (!ig_utf8_continues(s->ring[(at + n - back) % s->capacity]))
			return n - back;
	}
	return n;
}

size_t ig_stream_take(struct ig_stream *s, char *buf, size_t cap)
{
	uint64_t tail = atomic_load_explicit(&s->tail, memory_order_relaxed);
	uint64_t head = atomic_load_explicit(&s->head, memory_order_acquire);
	size_t at = (size_t)(tail % s->capacity);
	size_t n = (size_t)(head - tail);
	size_t first;

	if (n > cap)
		n = whole_characters(s, at, cap);
	if (!n)
		return 0;
	first = s->capacity - at < n ? s->capacity - at : n;
	memcpy(buf, s->ring + at, first);
	memcpy(buf + first, s->ring, n - first);
	atomic_store_explicit(&s->last_take_ns, ig_now_ns(), memory_order_relaxed);
	atomic_store_explicit(&s->tail, tail + n, memory_order_release);
	return n;
}

/* The oldest logprob that was not taken, if all of its text was; NULL: none. */
static const struct ig_token_logprob *next_logprob(const struct ig_stream *s)
{
	uint64_t tail = atomic_load_explicit(&s->logprob_tail, memory_order_relaxed);
	uint64_t head = atomic_load_explicit(&s->logprob_head, memory_order_acquire);
	uint64_t taken = atomic_load_explicit(&s->tail, memory_order_relaxed);

	if (head == tail || s->logprobs[tail % s->n_logprobs].text_end > taken)
		return NULL;
	return &s->logprobs[tail % s->n_logprobs];
}

size_t ig_stream_take_logprobs(struct ig_stream *s, struct ig_token_logprob *out, size_t cap)
{
	const struct ig_token_logprob *logprob;
	size_t n = 0;

	while (n < cap && (logprob = next_logprob(s))) {
		out[n++] = *logprob;
		atomic_fetch_add_explicit(&s->logprob_tail, 1, memory_order_release);
	}
	if (n)
		atomic_store_explicit(&s->last_take_ns, ig_now_ns(), memory_order_relaxed);
	return n;
}

bool ig_stream_finished(struct ig_stream *s, struct ig_gen_result *r)
{
	/* The flag first: head then includes all bytes before it. */
	if (!atomic_load_explicit(&s->finished, memory_order_acquire))
		return false;
	if (atomic_load_explicit(&s->head, memory_order_acquire) !=
	    atomic_load_explicit(&s->tail, memory_order_relaxed))
		return false;
	/* Logprobs whose text was discarded (the request was cancelled) can't be taken. */
	if (next_logprob(s))
		return false;
	*r = s->result;
	return true;
}
