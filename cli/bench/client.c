/* client.c: see client.h. */
#include "cli/bench/client.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "cli/download/files.h"

#define TICK_MS 100

void ig_bench_token(struct ig_bench_sample *s, int64_t now_ns)
{
	if (!s->first_ns)
		s->first_ns = now_ns;
	else if (ig_array_grow(s->gaps_ms, &s->cap_gaps, s->n_gaps))
		s->gaps_ms[s->n_gaps++] = (float)((double)(now_ns - s->last_ns) / 1e6);
	else
		ig_bench_end(s, IG_BENCH_FAILED, "out of memory");
	s->last_ns = now_ns;
}

void ig_bench_end(struct ig_bench_sample *s, enum ig_bench_outcome outcome, const char *fmt, ...)
{
	va_list ap;

	if (s->outcome)
		return;
	s->outcome = outcome;
	s->ended_ns = ig_now_ns();
	if (fmt) {
		va_start(ap, fmt);
		vsnprintf(s->error, sizeof s->error, fmt, ap);
		va_end(ap);
	}
}

void ig_bench_samples_free(struct ig_bench_sample *samples, size_t n)
{
	for (size_t i = 0; samples && i < n; i++)
		free(samples[i].gaps_ms);
	free(samples);
}

/* End those that have waited too long, or all. */
static void cancel(const struct ig_bench_transport *t, struct ig_bench_wire *w,
		   struct ig_bench_sample *samples, size_t n, int64_t timeout_ns, int64_t now)
{
	for (size_t i = 0; i < n; i++) {
		struct ig_bench_sample *s = &samples[i];
		if (s->outcome || (!ig_interrupted && now - s->due_ns < timeout_ns))
			continue;
		if (s->sent_ns)
			t->cancel(w, s);
		if (ig_interrupted)
			ig_bench_end(s, IG_BENCH_CANCELLED, NULL);
		else
			ig_bench_end(s, IG_BENCH_TIMED_OUT, "no complete answer in time");
	}
}

int ig_bench_drive(const struct ig_bench_transport *t, struct ig_bench_wire *w,
		   const struct ig_strbuf *bodies, struct ig_bench_sample *samples, size_t n,
		   int64_t timeout_ms, struct ig_error *err)
{
	int64_t start = ig_now_ns();
	size_t n_sent = 0, first = 0; /* all before first have ended */
	int rc = 0;

	for (size_t i = 0; i < n; i++) {
		samples[i].due_ns = start + (int64_t)(samples[i].at_s * 1e9);
		samples[i].n_input = samples[i].n_cached = samples[i].n_output = -1;
	}
	while (!rc && first < n) {
		int64_t now = ig_now_ns();
		while (!rc && !ig_interrupted && n_sent < n && samples[n_sent].due_ns <= now) {
			samples[n_sent].sent_ns = now;
			rc = t->send(w, &bodies[n_sent], &samples[n_sent], err);
			n_sent++;
			now = ig_now_ns();
		}
		cancel(t, w, samples + first, (ig_interrupted ? n : n_sent) - first,
		       timeout_ms * 1000000, now);
		while (first < n && samples[first].outcome)
			first++;
		/* the last millisecond is not slept through: waits are of whole ones */
		int64_t wait = n_sent < n ? (samples[n_sent].due_ns - now) / 1000000 : TICK_MS;
		if (!rc && first < n)
			rc = t->step(w, wait < 0 ? 0 : wait < TICK_MS ? (int)wait : TICK_MS, err);
	}
	return rc;
}
