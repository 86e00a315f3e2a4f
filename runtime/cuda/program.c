/*
 * program.c: a tape prepared for a GPU, and its steps.  A step is, in one stream: a copy of its
 * bytes from the slot's pinned staging area to the device, the graph, a copy of the sampled ids
 * (and the logits, if requested) to pinned memory, and an event.  Steps in flight share the
 * device's copy of the step: copying some kilobytes between two of them takes 2 to 3 µs.
 */
#include "runtime/cuda/cuda_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct slot {
	void *staging; /* pinned, [step_bytes] */
	int32_t *ids;  /* pinned, [2, max_logit_rows]: of rows, of guesses */
	float *logits; /* pinned, the same [, n_vocab], guesses if there are any; allocated on first use */
	CUevent done;
	bool in_flight, has_logits;
};

struct program {
	struct ig_gpu_program base; /* first */
	struct ig_cuda *d;
	const struct ig_gpu_tape *tape;
	uint64_t step_bytes;
	CUdeviceptr step, ids, logits; /* ids, logits 0: the tape has none */
	struct ig_cuda_graphs *graphs;
	struct slot slots[IG_STEPS_IN_FLIGHT];
};

static struct program *program_of(struct ig_gpu_program *p) { return (struct program *)p; }

/* The address of a tape's buffer; 0: negative number. */
static CUdeviceptr place_of(const struct ig_gpu_place *places, int32_t buffer)
{
	return buffer < 0 ? 0 : places[buffer].buffer->at + places[buffer].offset;
}

static int make_slot(struct program *p, struct slot *s, struct ig_error *err)
{
	uint64_t n_ids = p->tape->max_logit_rows ? ig_gpu_tape_slot_ids(p->tape) : 1;
	void *ids = NULL;
	int rc = ig_cuda_pin(p->d, p->step_bytes, &s->staging, err);

	if (!rc)
		rc = ig_cuda_pin(p->d, n_ids * sizeof *s->ids, &ids, err);
	s->ids = ids;
	return rc ? rc :
		    CUDA(p->d, event_create(&s->done, CU_EVENT_DISABLE_TIMING), "creating an event",
			 err);
}

int ig_cuda_program_create(struct ig_gpu_device *base, const struct ig_gpu_tape *tape,
			   const struct ig_gpu_place *places, uint64_t step_bytes,
			   struct ig_gpu_program **out, struct ig_error *err)
{
	struct ig_cuda *d = ig_cuda_of(base);
	struct program *p;
	int rc = ig_cuda_enter(d, err);

	*out = NULL;
	if (rc)
		return rc;
	if (!step_bytes)
		return ig_fail(err, -EINVAL, "cuda: a program without a step");
	p = calloc(1, sizeof *p);
	if (!p)
		return ig_fail(err, -ENOMEM, "cuda: no memory");
	p->base.class = &ig_gpu_cuda;
	p->d = d;
	p->tape = tape;
	p->step_bytes = step_bytes;
	p->ids = place_of(places, tape->ids);
	p->logits = place_of(places, tape->logits);
	rc = CUDA(d, mem_alloc(&p->step, step_bytes), "allocating the step", err);
	for (uint32_t i = 0; !rc && i < IG_STEPS_IN_FLIGHT; i++)
		rc = make_slot(p, &p->slots[i], err);
	if (!rc)
		rc = ig_cuda_graphs_create(d, tape, places, p->step, &p->graphs, err);
	if (rc) {
		ig_cuda_program_destroy(&p->base);
		return rc;
	}
	*out = &p->base;
	return 0;
}

void ig_cuda_program_destroy(struct ig_gpu_program *base)
{
	struct program *p = program_of(base);
	const struct ig_libcuda *cu;

	if (!p)
		return;
	cu = &p->d->cu;
	/* If the context is lost, these calls fail harmlessly. */
	cu->ctx_set(p->d->ctx);
	cu->stream_sync(p->d->steps);
	ig_cuda_graphs_destroy(p->graphs);
	for (uint32_t i = 0; i < IG_STEPS_IN_FLIGHT; i++) {
		struct slot *s = &p->slots[i];
		if (s->done)
			cu->event_destroy(s->done);
		if (s->staging)
			cu->host_free(s->staging);
		if (s->ids)
			cu->host_free(s->ids);
		if (s->logits)
			cu->host_free(s->logits);
	}
	if (p->step)
		cu->mem_free(p->step);
	free(p);
}

void *ig_cuda_staging(struct ig_gpu_program *base, uint32_t slot)
{
	return program_of(base)->slots[slot].staging;
}

/* ---- a step ------------------------------------------------------------------------------- */

/* Pinned memory for the logits, allocated late because few steps need it. */
static int make_logits(struct program *p, struct slot *s, struct ig_error *err)
{
	void *at = NULL;
	int rc = ig_cuda_pin(p->d, ig_gpu_tape_logits_bytes(p->tape), &at, err);

	s->logits = at;
	return rc;
}

static int check_submission(const struct program *p, const struct ig_gpu_submission *s,
			    struct ig_error *err)
{
	if (s->slot >= IG_STEPS_IN_FLIGHT)
		return ig_fail(err, -EINVAL, "cuda: slot %u of %d", s->slot, IG_STEPS_IN_FLIGHT);
	if (p->slots[s->slot].in_flight)
		return ig_fail(err, -EBUSY, "cuda: the step in slot %u was not waited for",
			       s->slot);
	if (!s->step_bytes || s->step_bytes > p->step_bytes)
		return ig_fail(err, -EINVAL, "cuda: a step of %llu bytes, at most %llu fit",
			       (unsigned long long)s->step_bytes,
			       (unsigned long long)p->step_bytes);
	if (s->live[IG_LIVE_LOGIT_ROWS] > p->tape->max_logit_rows ||
	    s->live[IG_LIVE_GUESS_ROWS] > s->live[IG_LIVE_LOGIT_ROWS])
		return ig_fail(err, -EINVAL,
			       "cuda: %u rows of logits and %u guesses, at most %u are possible",
			       s->live[IG_LIVE_LOGIT_ROWS], s->live[IG_LIVE_GUESS_ROWS],
			       p->tape->max_logit_rows);
	return 0;
}

/* Copy the results of n rows that begin at row `first` of the slot's, after the graph. */
static int copy_rows(struct program *p, struct slot *slot, uint32_t number, uint64_t first,
		     uint64_t n, struct ig_error *err)
{
	const struct ig_libcuda *cu = &p->d->cu;
	const uint64_t at = number * ig_gpu_tape_slot_ids(p->tape) + first;
	const uint64_t n_vocab = (uint64_t)p->tape->n_vocab;
	int rc = 0;

	if (n && p->ids)
		rc = ig_cuda_check(p->d,
				   cu->to_host(slot->ids + first, p->ids + at * sizeof *slot->ids,
					       n * sizeof *slot->ids, p->d->steps),
				   "copying ids", err);
	if (!rc && n && slot->has_logits)
		rc = ig_cuda_check(p->d,
				   cu->to_host(slot->logits + first * n_vocab,
					       p->logits + first * n_vocab * sizeof *slot->logits,
					       n * n_vocab * sizeof *slot->logits, p->d->steps),
				   "copying logits", err);
	return rc;
}

static int copy_results(struct program *p, struct slot *slot, const struct ig_gpu_submission *s,
			struct ig_error *err)
{
	const uint32_t rows = s->live[IG_LIVE_LOGIT_ROWS];
	int rc;

	slot->has_logits = rows && p->logits && s->live[IG_LIVE_WANT_LOGITS];
	rc = copy_rows(p, slot, s->slot, 0, rows, err);
	return rc ? rc :
		    copy_rows(p, slot, s->slot, p->tape->max_logit_rows,
			      s->live[IG_LIVE_GUESS_ROWS], err);
}

int ig_cuda_prepare(struct ig_gpu_program *base, const uint32_t live[IG_N_LIVE],
		    struct ig_error *err)
{
	struct program *p = program_of(base);
	int rc = ig_cuda_enter(p->d, err);

	return rc ? rc : ig_cuda_graphs_prepare(p->graphs, live, err);
}

int ig_cuda_submit(struct ig_gpu_program *base, const struct ig_gpu_submission *s,
		   struct ig_error *err)
{
	struct program *p = program_of(base);
	struct ig_cuda *d = p->d;
	struct slot *slot;
	CUgraphExec exec = NULL;
	int rc = check_submission(p, s, err);

	if (rc || (rc = ig_cuda_enter(d, err)))
		return rc;
	slot = &p->slots[s->slot];
	if (p->logits && s->live[IG_LIVE_WANT_LOGITS] && !slot->logits)
		rc = make_logits(p, slot, err);
	if (rc || (rc = ig_cuda_graphs_get(p->graphs, s->live, &exec, err)))
		return rc;
	/* After an error from here on the stream is drained, so that the host may use the slot's
	 * memory. */
	if ((rc = CUDA(d, to_device(p->step, slot->staging, s->step_bytes, d->steps),
		       "copying the step", err)) ||
	    (exec && (rc = CUDA(d, graph_launch(exec, d->steps), "starting a step", err))) ||
	    (rc = copy_results(p, slot, s, err)) ||
	    (rc = CUDA(d, event_record(slot->done, d->steps), "recording an event", err)))
		d->cu.stream_sync(d->steps);
	slot->in_flight = !rc;
	return rc;
}

/* ---- waiting ---------------------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The event is polled with sleeps in between, because the library's wait has no timeout and
 * either uses a whole core or wakes up by an interrupt.  A query takes about 1 µs.  For the first
 * 10 µs there is no sleep; then each sleep is 1/32 of the time waited so far, so that the delay
 * is at most 3 % (or the system's 50 µs) and a few percent of a core are used. */
static uint64_t pause_ns(uint64_t waited_ns)
{
	uint64_t n = waited_ns / 32;
	return waited_ns < 10000 ? 0 : n < 20000 ? 20000 : n > 1000000 ? 1000000 : n;
}

int ig_cuda_wait(struct ig_gpu_program *base, uint32_t number, uint32_t timeout_ms,
		 const int32_t **ids, const float **logits, struct ig_error *err)
{
	struct program *p = program_of(base);
	struct ig_cuda *d = p->d;
	const uint64_t start = now_ns(), timeout = (uint64_t)timeout_ms * 1000000u;
	struct slot *slot;
	int rc;

	if (number >= IG_STEPS_IN_FLIGHT || !p->slots[number].in_flight)
		return ig_fail(err, -EINVAL, "cuda: no step is in flight in slot %u", number);
	slot = &p->slots[number];
	rc = ig_cuda_enter(d, err);
	while (!rc) {
		CUresult r = d->cu.event_query(slot->done);
		uint64_t waited = now_ns() - start, n = pause_ns(waited);
		struct timespec t = { 0, (long)n };
		if (r == CUDA_SUCCESS)
			break;
		if (r != CUDA_ERROR_NOT_READY)
			rc = ig_cuda_check(d, r, "running a step", err);
		else if (waited >= timeout)
			return ig_fail(err, -ETIMEDOUT, "cuda: a step was not done after %u ms",
				       timeout_ms);
		else if (n)
			nanosleep(&t, NULL);
	}
	slot->in_flight = false;
	if (rc)
		return rc;
	*ids = slot->ids;
	*logits = slot->has_logits ? slot->logits : NULL;
	return 0;
}
