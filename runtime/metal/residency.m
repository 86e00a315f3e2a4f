/*
 * residency.m: keeps the GPU's memory resident.  The system unwires memory that a process has not
 * used for about 1 s, and the next step waits until it is wired again: 320 ms instead of 56 ms in
 * one report.  From macOS 15 on residency sets prevent that; weights have several, because under
 * memory pressure a set is dropped as a whole.  A keeper thread requests them periodically until
 * keep_ns (runtime.keep_wired) after the last step, and then ends their residency: macOS 15 would
 * keep them.  The queue has the sets, too: while commands run, their memory is resident in any
 * case.  macOS 14 has no residency sets.  Buffers bound to an encoder are
 * resident while it runs; slabs are reached through addresses, so every encoder names all of them.
 */
#include "runtime/metal/metal_private.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* macOS 15 unwires after about 1 s; macOS 26 was observed to drop sets unless they are requested
 * every 5 ms. */
#define BEAT_MS 500
#define BEAT_MS_26 5
/* A set of weights has at most 1/16 of the working set, so that dropping one costs little. */
#define SET_SHARE 16
#define MAX_WEIGHT_SETS (METAL_MAX_SETS - 2)

static const char *const use_names[METAL_N_USES] = { "weights", "scratch", "slabs" };

/* ---- the keeper ------------------------------------------------------------------- */

static void wait_ms(struct metal_residency *r, uint32_t ms)
{
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };
#ifdef __APPLE__
	pthread_cond_timedwait_relative_np(&r->wake, &r->lock, &t);
#else
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	t.tv_sec += now.tv_sec;
	t.tv_nsec += now.tv_nsec;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	pthread_cond_timedwait(&r->wake, &r->lock, &t);
#endif
}

static int init_wake(pthread_cond_t *wake)
{
#ifdef __APPLE__
	return -pthread_cond_init(wake, NULL);
#else
	pthread_condattr_t a;
	int rc = pthread_condattr_init(&a);

	if (rc)
		return -rc;
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	rc = pthread_cond_init(wake, &a);
	pthread_condattr_destroy(&a);
	return -rc;
#endif
}

static void request_all(struct metal_residency *r)
{
	NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
	for (uint32_t i = 0; i < r->n_sets; i++)
		[r->sets[i].set requestResidency];
	[pool release];
	r->requested = true;
}

static void end_all(struct metal_residency *r)
{
	NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
	for (uint32_t i = 0; i < r->n_sets; i++)
		[r->sets[i].set endResidency];
	[pool release];
	r->requested = false;
}

static bool used_lately(const struct metal_residency *r)
{
	return ig_now_ns() - __atomic_load_n(&r->last_use_ns, __ATOMIC_SEQ_CST) < r->keep_ns;
}

static void *keep(void *arg)
{
	struct metal_residency *r = arg;

	pthread_mutex_lock(&r->lock);
	while (!r->stop) {
		if (used_lately(r)) {
			request_all(r);
			wait_ms(r, r->beat_ms);
			continue;
		}
		if (r->requested) {
			end_all(r);
			ig_log_debug("metal: memory is no longer kept wired");
		}
		/* A step may have started since the check: check again. */
		__atomic_store_n(&r->asleep, true, __ATOMIC_SEQ_CST);
		if (!used_lately(r) && !r->stop)
			pthread_cond_wait(&r->wake, &r->lock);
		__atomic_store_n(&r->asleep, false, __ATOMIC_SEQ_CST);
	}
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

void ig_metal_residency_touch(struct metal_residency *r)
{
	if (!r->has_keeper)
		return;
	__atomic_store_n(&r->last_use_ns, ig_now_ns(), __ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&r->asleep, __ATOMIC_SEQ_CST))
		return;
	pthread_mutex_lock(&r->lock);
	pthread_cond_signal(&r->wake);
	request_all(r);
	pthread_mutex_unlock(&r->lock);
}

/* ---- opening and closing ------------------------------------------------------------ */

int ig_metal_residency_init(struct metal_residency *r, id<MTLDevice> device,
			    id<MTLCommandQueue> queue, uint64_t working_set_bytes, uint32_t keep_ms,
			    struct ig_error *err)
{
	int rc;

	memset(r, 0, sizeof *r);
	r->device = device;
	r->queue = queue;
	r->set_bytes = working_set_bytes / SET_SHARE;
	r->keep_ns = (int64_t)keep_ms * 1000000;
	r->has_sets = [device respondsToSelector:@selector(newResidencySetWithDescriptor:error:)] &&
		      [queue respondsToSelector:@selector(addResidencySet:)] &&
		      NSClassFromString(@"MTLResidencySetDescriptor") != Nil;
	r->beat_ms = [[NSProcessInfo processInfo] operatingSystemVersion].majorVersion >= 26 ?
			     BEAT_MS_26 :
			     BEAT_MS;
	r->last_use_ns = ig_now_ns();
	rc = -pthread_mutex_init(&r->lock, NULL);
	if (rc)
		return ig_fail(err, rc, "metal: no lock: %s", strerror(-rc));
	rc = init_wake(&r->wake);
	if (rc) {
		pthread_mutex_destroy(&r->lock);
		return ig_fail(err, rc, "metal: no condition: %s", strerror(-rc));
	}
	if (!r->has_sets || !r->keep_ns)
		return 0;
	rc = -pthread_create(&r->keeper, NULL, keep, r);
	if (rc) {
		pthread_cond_destroy(&r->wake);
		pthread_mutex_destroy(&r->lock);
		return ig_fail(err, rc, "metal: no thread that keeps memory resident: %s",
			       strerror(-rc));
	}
	r->has_keeper = true;
	return 0;
}

void ig_metal_residency_finish(struct metal_residency *r)
{
	if (r->has_keeper) {
		pthread_mutex_lock(&r->lock);
		r->stop = true;
		pthread_cond_signal(&r->wake);
		pthread_mutex_unlock(&r->lock);
		pthread_join(r->keeper, NULL);
	}
	for (uint32_t i = 0; i < r->n_sets; i++) {
		[r->sets[i].set endResidency];
		[METAL_QUEUE_15(r->queue) removeResidencySet:r->sets[i].set];
		[r->sets[i].set release];
	}
	free(r->slabs);
	pthread_cond_destroy(&r->wake);
	pthread_mutex_destroy(&r->lock);
}

/* ---- sets ------------------------------------------------------------------------------ */

/* The set for n_bytes more of this use; -1: a new one is needed. */
static int32_t find_set(const struct metal_residency *r, uint32_t use, uint64_t n_bytes)
{
	uint32_t n = 0;
	int32_t least = -1;

	for (uint32_t i = 0; i < r->n_sets; i++) {
		if (r->sets[i].use != use)
			continue;
		n++;
		if (use != METAL_USE_WEIGHTS || (r->sets[i].n_bytes <= r->set_bytes &&
						 n_bytes <= r->set_bytes - r->sets[i].n_bytes))
			return (int32_t)i;
		if (least < 0 || r->sets[i].n_bytes < r->sets[least].n_bytes)
			least = (int32_t)i;
	}
	if (least >= 0 && (n >= MAX_WEIGHT_SETS || r->sets[least].n_bytes == 0))
		return least;
	return -1;
}

static int make_set(struct metal_residency *r, uint32_t use, int32_t *out, struct ig_error *err)
{
	MTLResidencySetDescriptor *descriptor =
		[[NSClassFromString(@"MTLResidencySetDescriptor") alloc] init];
	NSError *e = nil;

	[descriptor setLabel:[NSString stringWithUTF8String:use_names[use]]];
	id<MTLResidencySet> set =
		[METAL_DEVICE_15(r->device) newResidencySetWithDescriptor:descriptor error:&e];
	[descriptor release];
	if (!set)
		return ig_fail(err, -ENOMEM, "metal: no residency set for %s: %s", use_names[use],
			       ig_metal_error_text(e));
	[METAL_QUEUE_15(r->queue) addResidencySet:set];
	r->sets[r->n_sets] = (struct metal_set){ .set = set, .use = use };
	*out = (int32_t)r->n_sets++;
	return 0;
}

static int add_to_set(struct metal_residency *r, id<MTLBuffer> b, uint32_t use, int32_t *set,
		      struct ig_error *err)
{
	uint64_t n_bytes = [b length];
	int32_t i = find_set(r, use, n_bytes);

	if (i < 0) {
		int rc = make_set(r, use, &i, err);
		if (rc)
			return rc;
	}
	[r->sets[i].set addAllocation:(id)b];
	[r->sets[i].set commit];
	if (r->has_keeper) {
		/* The keeper ends this, too. */
		__atomic_store_n(&r->last_use_ns, ig_now_ns(), __ATOMIC_SEQ_CST);
		[r->sets[i].set requestResidency];
		r->requested = true;
		pthread_cond_signal(&r->wake);
	}
	r->sets[i].n_bytes += n_bytes;
	*set = i;
	return 0;
}

static int add_slab(struct metal_residency *r, id<MTLBuffer> b, struct ig_error *err)
{
	if (r->n_slabs == r->cap_slabs) {
		uint32_t cap = r->cap_slabs ? r->cap_slabs * 2 : 64;
		id<MTLResource> *p =
			cap > UINT32_MAX / 16 ? NULL : realloc(r->slabs, cap * sizeof *p);
		if (!p)
			return ig_fail(err, -ENOMEM, "metal: no memory for a table of slabs");
		r->slabs = p;
		r->cap_slabs = cap;
	}
	r->slabs[r->n_slabs++] = b;
	return 0;
}

int ig_metal_residency_add(struct metal_residency *r, id<MTLBuffer> b, uint32_t use, int32_t *set,
			   struct ig_error *err)
{
	int rc = 0;

	*set = -1;
	pthread_mutex_lock(&r->lock);
	if (r->has_sets)
		rc = add_to_set(r, b, use, set, err);
	else if (use == METAL_USE_SLABS)
		rc = add_slab(r, b, err);
	pthread_mutex_unlock(&r->lock);
	return rc;
}

void ig_metal_residency_remove(struct metal_residency *r, id<MTLBuffer> b, int32_t set)
{
	pthread_mutex_lock(&r->lock);
	if (set >= 0) {
		r->sets[set].n_bytes -= [b length];
		[r->sets[set].set removeAllocation:(id)b];
		[r->sets[set].set commit];
	}
	for (uint32_t i = 0; i < r->n_slabs; i++)
		if (r->slabs[i] == b)
			r->slabs[i--] = r->slabs[--r->n_slabs];
	pthread_mutex_unlock(&r->lock);
}

void ig_metal_residency_use(struct metal_residency *r, id<MTLComputeCommandEncoder> encoder)
{
	pthread_mutex_lock(&r->lock);
	if (r->n_slabs)
		[encoder useResources:r->slabs
				count:r->n_slabs
				usage:MTLResourceUsageRead | MTLResourceUsageWrite];
	pthread_mutex_unlock(&r->lock);
}
