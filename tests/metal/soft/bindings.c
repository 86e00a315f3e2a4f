/*
 * bindings.c: what is bound to a dispatch: its checks before it runs, and the ranges of memory that
 * kernels may reach by address.
 */
#include "private.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int soft_refuse(const struct soft_dispatch *d, struct soft_report *r)
{
	const struct soft_kernel *k = d->kernel;
	uint64_t threads = 1;
	uint32_t i;

#define REFUSE(...) return snprintf(r->text, sizeof r->text, __VA_ARGS__), -EINVAL
	for (i = 0; i < 3; i++) {
		if (d->groups[i] == 0 || d->threads[i] == 0)
			REFUSE("%s: a grid of zero: %u x %u x %u groups of %u x %u x %u threads",
			       k->name, d->groups[0], d->groups[1], d->groups[2], d->threads[0],
			       d->threads[1], d->threads[2]);
		if (d->threads[i] > SOFT_MAX_THREADS)
			REFUSE("%s: %u threads in one dimension", k->name, d->threads[i]);
		threads *= d->threads[i];
	}
	if ((uint64_t)d->groups[0] * d->groups[1] > UINT32_MAX ||
	    (uint64_t)d->groups[0] * d->groups[1] * d->groups[2] > UINT32_MAX)
		REFUSE("%s: too many groups", k->name);
	if (threads > k->max_threads)
		REFUSE("%s: %llu threads in a threadgroup, at most %u", k->name,
		       (unsigned long long)threads, k->max_threads);
	if (d->threadgroup_bytes > SOFT_MAX_THREADGROUP_BYTES)
		REFUSE("%s: %u bytes of threadgroup memory, at most %u", k->name,
		       d->threadgroup_bytes, SOFT_MAX_THREADGROUP_BYTES);
	if (d->threadgroup_bytes % 16)
		REFUSE("%s: %u bytes of threadgroup memory, not a multiple of 16", k->name,
		       d->threadgroup_bytes);
	for (i = 0; i < k->n_arguments; i++) {
		const struct soft_argument *a = &k->arguments[i];
		const struct soft_binding *b =
			&d->buffer[a->kind == SOFT_THREADGROUP ? 0 : a->index];

		if (a->kind == SOFT_THREADGROUP) {
			if (d->threadgroup_bytes == 0)
				REFUSE("%s: needs threadgroup memory, none was given", k->name);
		} else if (!b->base) {
			REFUSE("%s: buffer %u is not bound", k->name, a->index);
		} else if (b->n_bytes < a->size) {
			REFUSE("%s: buffer %u has %llu bytes, the kernel's struct %u", k->name,
			       a->index, (unsigned long long)b->n_bytes, a->size);
		} else if ((uintptr_t)b->base % 4) {
			REFUSE("%s: buffer %u is not aligned to 4 bytes", k->name, a->index);
		} else if (b->n_bytes > UINTPTR_MAX - (uintptr_t)b->base) {
			REFUSE("%s: buffer %u has no such length", k->name, a->index);
		}
	}
#undef REFUSE
	return 0;
}

/* Ranges that kernels reach by address, ascending; a dispatch takes its own copy. */
static struct {
	pthread_mutex_t lock;
	struct soft_range *list;
	uint32_t n, capacity;
} ranges = { .lock = PTHREAD_MUTEX_INITIALIZER };

int soft_register_range(void *base, uint64_t n_bytes)
{
	uintptr_t from = (uintptr_t)base;
	uint32_t at;
	int rc = 0;

	if (!base || n_bytes == 0 || n_bytes > UINTPTR_MAX - from)
		return -EINVAL;
	pthread_mutex_lock(&ranges.lock);
	if (ranges.n == ranges.capacity) {
		uint32_t capacity = ranges.capacity ? ranges.capacity * 2 : 16;
		struct soft_range *list = realloc(ranges.list, capacity * sizeof *list);

		if (!list) {
			rc = -ENOMEM;
			goto out;
		}
		ranges.list = list;
		ranges.capacity = capacity;
	}
	for (at = 0; at < ranges.n && ranges.list[at].from < from; at++)
		;
	if ((at > 0 && ranges.list[at - 1].to > from) ||
	    (at < ranges.n && ranges.list[at].from < from + n_bytes)) {
		rc = -EINVAL;
		goto out;
	}
	memmove(&ranges.list[at + 1], &ranges.list[at], (ranges.n - at) * sizeof *ranges.list);
	ranges.list[at] = (struct soft_range){ from, from + n_bytes };
	ranges.n++;
out:
	pthread_mutex_unlock(&ranges.lock);
	return rc;
}

int soft_unregister_range(void *base)
{
	uint32_t at;
	int rc = -ENOENT;

	pthread_mutex_lock(&ranges.lock);
	for (at = 0; at < ranges.n; at++) {
		if (ranges.list[at].from != (uintptr_t)base)
			continue;
		memmove(&ranges.list[at], &ranges.list[at + 1],
			(ranges.n - at - 1) * sizeof *ranges.list);
		ranges.n--;
		rc = 0;
		break;
	}
	pthread_mutex_unlock(&ranges.lock);
	return rc;
}

int soft_copy_ranges(const struct soft_range **list, uint32_t *n)
{
	static struct soft_range *copy;
	static uint32_t capacity;
	int rc = 0;

	pthread_mutex_lock(&ranges.lock);
	if (ranges.n > capacity) {
		struct soft_range *more = realloc(copy, ranges.capacity * sizeof *more);

		if (more) {
			copy = more;
			capacity = ranges.capacity;
		} else {
			rc = -ENOMEM;
		}
	}
	if (rc == 0 && ranges.n)
		memcpy(copy, ranges.list, ranges.n * sizeof *copy);
	*list = copy;
	*n = ranges.n;
	pthread_mutex_unlock(&ranges.lock);
	return rc;
}
