/*
 * device.m: the device `metal`: choosing the GPU, opening, closing, memory.  GPU and host share all
 * memory, so reading and writing are memcpy, and weights are the mapped file itself.  The engine's
 * and the loader's thread may use a device concurrently: shared state has its own locks
 * (compile_lock, residency), and Metal's objects are thread-safe.
 */
#include "runtime/metal/metal_private.h"
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_FAMILY MTLGPUFamilyApple7 /* simdgroup_matrix: M1 and later */
#define NOTHING_BYTES 256
#define OPEN_TIMEOUT_MS 10000
/* Command buffers in flight: two steps of a long prefill and a step of copies, each with at most
 * METAL_MAX_CUTS (program.m). */
#define MAX_COMMAND_BUFFERS (3 * METAL_MAX_CUTS)

/* The share of the working set to free when the system reports memory pressure. */
#define WARN_SHARE 8 /* 1/8 */
#define CRITICAL_SHARE 4

/* ---- choice --------------------------------------------------------------------------- */

static bool fits(id<MTLDevice> device) { return [device supportsFamily:FIRST_FAMILY]; }

/* The first supported GPU, retained; nil with text.  The default device is nil if no user is
 * logged in at a display: then all are tried. */
static id<MTLDevice> choose(struct ig_error *err)
{
	id<MTLDevice> device = MTLCreateSystemDefaultDevice();
	char names[200] = "";

	if (device && fits(device))
		return device;
	NSArray *all = MTLCopyAllDevices();
	for (NSUInteger i = 0; i < [all count]; i++) {
		id<MTLDevice> candidate = [all objectAtIndex:i];
		if (fits(candidate)) {
			[candidate retain];
			[device release];
			[all release];
			return candidate;
		}
		const char *name = [[candidate name] UTF8String];
		size_t n = strlen(names);
		snprintf(names + n, sizeof names - n, "%s'%s'", n ? ", " : "", name ? name : "?");
	}
	if (device && !names[0]) {
		const char *name = [[device name] UTF8String];
		snprintf(names, sizeof names, "'%s'", name ? name : "?");
	}
	[device release];
	[all release];
	if (names[0])
		ig_fail(err, -ENOTSUP,
			"metal: GPU %s has no simdgroup_matrix; Apple's M1 and later have it",
			names);
	else
		ig_fail(err, -ENOTSUP, "metal: this machine has no GPU that Metal supports");
	return nil;
}

static uint32_t cut_u32(uint64_t n) { return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n; }

static void find_facts(id<MTLDevice> device, struct ig_gpu_facts *f)
{
	const char *name = [[device name] UTF8String];
	uint32_t family = 7;

	while (family < 99 && [device supportsFamily:(MTLGPUFamily)(FIRST_FAMILY + family - 6)])
		family++;
	*f = (struct ig_gpu_facts){
		.struct_size = sizeof *f,
		.kind = IG_GPU_METAL,
		.arch = family,
		.max_threadgroup_bytes = cut_u32([device maxThreadgroupMemoryLength]),
		.max_threads = cut_u32([device maxThreadsPerThreadgroup].width),
		.max_buffer_bytes = [device maxBufferLength],
		.working_set_bytes = [device recommendedMaxWorkingSetSize],
	};
	snprintf(f->name, sizeof f->name, "%s", name ? name : "?");
}

/* ---- memory pressure ---------------------------------------------------------------------- */

/* On the pressure queue. */
static void on_pressure(void *context)
{
	struct metal_device *d = context;
	unsigned long events = dispatch_source_get_data(d->pressure_source);

	uint64_t asked = 0;

	if (events & DISPATCH_MEMORYPRESSURE_CRITICAL)
		asked = d->facts.working_set_bytes / CRITICAL_SHARE;
	else if (events & DISPATCH_MEMORYPRESSURE_WARN)
		asked = d->facts.working_set_bytes / WARN_SHARE;
	__atomic_store_n(&d->pressure, asked, __ATOMIC_SEQ_CST);
	pthread_mutex_lock(&d->notify_lock);
	if (d->notify)
		d->notify(d->notify_ctx, asked);
	pthread_mutex_unlock(&d->notify_lock);
}

static void metal_watch_memory(struct ig_gpu_device *device,
			       void (*fn)(void *ctx, uint64_t n_bytes), void *ctx)
{
	struct metal_device *d = (struct metal_device *)device;

	pthread_mutex_lock(&d->notify_lock);
	d->notify = fn;
	d->notify_ctx = ctx;
	pthread_mutex_unlock(&d->notify_lock);
}

static int watch_pressure(struct metal_device *d, struct ig_error *err)
{
	d->pressure_queue = dispatch_queue_create("ingot.pressure", NULL);
	if (!d->pressure_queue)
		return ig_fail(err, -ENOMEM, "metal: no queue for memory pressure");
	d->pressure_source = dispatch_source_create(DISPATCH_SOURCE_TYPE_MEMORYPRESSURE, 0,
						    DISPATCH_MEMORYPRESSURE_NORMAL |
							    DISPATCH_MEMORYPRESSURE_WARN |
							    DISPATCH_MEMORYPRESSURE_CRITICAL,
						    d->pressure_queue);
	if (!d->pressure_source)
		return ig_fail(err, -ENOMEM, "metal: memory pressure can't be watched");
	dispatch_set_context(d->pressure_source, d);
	dispatch_source_set_event_handler_f(d->pressure_source, on_pressure);
	dispatch_resume(d->pressure_source);
	return 0;
}

static void nothing(void *context) {}

static void unwatch_pressure(struct metal_device *d)
{
	if (d->pressure_source) {
		dispatch_source_cancel(d->pressure_source);
		/* The queue is serial: after this no handler runs. */
		dispatch_sync_f(d->pressure_queue, NULL, nothing);
		dispatch_release(d->pressure_source);
	}
	if (d->pressure_queue)
		dispatch_release(d->pressure_queue);
}

static uint64_t metal_pressure(struct ig_gpu_device *device)
{
	struct metal_device *d = (struct metal_device *)device;
	uint64_t asked = __atomic_exchange_n(&d->pressure, 0, __ATOMIC_SEQ_CST);
	uint64_t used = [d->device currentAllocatedSize];
	uint64_t beyond = used > d->facts.working_set_bytes ? used - d->facts.working_set_bytes : 0;
	return asked > beyond ? asked : beyond;
}

/* ---- opening and closing --------------------------------------------------------------- */

static void close_device(struct metal_device *d)
{
	unwatch_pressure(d);
	ig_metal_pipelines_free(d);
	if (d->residency.device)
		ig_metal_residency_finish(&d->residency);
	[d->nothing release];
	[d->fence release];
	[d->event release];
	[d->queue release];
	[d->device release];
	pthread_mutex_destroy(&d->compile_lock);
	pthread_mutex_destroy(&d->notify_lock);
	free(d);
}

static void metal_close(struct ig_gpu_device *device)
{
	NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
	close_device((struct metal_device *)device);
	[pool release];
}

int ig_metal_wait_for(struct metal_device *d, id<MTLCommandBuffer> b, const char *what,
		      struct ig_error *err)
{
	for (uint32_t ms = 0; ms < OPEN_TIMEOUT_MS; ms += METAL_LOOK_MS) {
		if ([d->event waitUntilSignaledValue:d->n_signals timeoutMS:METAL_LOOK_MS])
			return 0;
		if ([b status] == MTLCommandBufferStatusError)
			return ig_metal_fail_buffer(d, b, what, err);
	}
	return ig_fail(err, -EIO, "metal: GPU '%s' did nothing for %d s", d->facts.name,
		       OPEN_TIMEOUT_MS / 1000);
}

/* Run one small command: a broken GPU is then known before a model is loaded, and the residency
 * sets of a process that never used the GPU would not be released. */
static int try_out(struct metal_device *d, struct ig_error *err)
{
	id<MTLCommandBuffer> b = [d->queue commandBuffer];
	id<MTLBlitCommandEncoder> blit = [b blitCommandEncoder];

	if (!blit)
		return ig_fail(err, -EIO, "metal: GPU '%s' takes no commands", d->facts.name);
	[blit fillBuffer:d->nothing range:NSMakeRange(0, NOTHING_BYTES) value:0];
	[blit endEncoding];
	[b encodeSignalEvent:d->event value:++d->n_signals];
	[b commit];
	return ig_metal_wait_for(d, b, "its first command", err);
}

static int open_parts(struct metal_device *d, uint32_t keep_ms, struct ig_error *err)
{
	d->queue = [d->device newCommandQueueWithMaxCommandBufferCount:MAX_COMMAND_BUFFERS];
	d->event = [d->device newSharedEvent];
	d->fence = [d->device newFence];
	d->nothing = [d->device newBufferWithLength:NOTHING_BYTES
					    options:MTLResourceStorageModeShared];
	if (!d->queue || !d->event || !d->fence || !d->nothing)
		return ig_fail(err, -ENOMEM, "metal: GPU '%s' has no %s", d->facts.name,
			       !d->queue ? "command queue" :
			       !d->event ? "event" :
			       !d->fence ? "fence" :
					   "memory");
	d->n_signals = [d->event signaledValue];
	int rc = ig_metal_residency_init(&d->residency, d->device, d->queue,
					 d->facts.working_set_bytes, keep_ms, err);
	if (rc) {
		d->residency.device = nil;
		return rc;
	}
	rc = try_out(d, err);
	return rc ? rc : watch_pressure(d, err);
}

static int metal_open(const struct ig_driver_options *o, struct ig_gpu_device **out,
		      struct ig_error *err)
{
	struct metal_device *d = calloc(1, sizeof *d);
	int rc;

	*out = NULL;
	if (!d)
		return ig_fail(err, -ENOMEM, "metal: no memory for the device");
	NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
	d->base.class = &ig_gpu_metal;
	rc = -pthread_mutex_init(&d->compile_lock, NULL);
	if (!rc && (rc = -pthread_mutex_init(&d->notify_lock, NULL)))
		pthread_mutex_destroy(&d->compile_lock);
	if (rc) {
		free(d);
		[pool release];
		return ig_fail(err, rc, "metal: no lock: %s", strerror(-rc));
	}
	d->device = choose(err);
	if (d->device) {
		find_facts(d->device, &d->facts);
		/* nobody has measured yet where they are faster */
		d->facts.tiles = o->repack && !strcmp(o->repack, "always");
		rc = open_parts(d, o->keep_wired_ms, err);
		/* kernels for weights in tiles multiply by simdgroup matrices, whose bits are others */
		if (!rc && !d->facts.tiles &&
		    (!o->tensor_units || strcmp(o->tensor_units, "never") != 0))
			ig_metal_try_tensor_units(d);
	} else {
		rc = -ENOTSUP;
	}
	if (rc)
		close_device(d);
	else
		*out = &d->base;
	[pool release];
	return rc;
}

static const struct ig_gpu_facts *metal_facts(const struct ig_gpu_device *device)
{
	return &((const struct metal_device *)device)->facts;
}

/* ---- memory ------------------------------------------------------------------------------- */

static int take(struct metal_device *d, id<MTLBuffer> mtl, uint32_t use, bool read_only,
		uint64_t n_bytes, struct ig_gpu_buffer **out, struct ig_error *err)
{
	struct ig_gpu_buffer *b = calloc(1, sizeof *b);
	int rc;

	if (!b) {
		[mtl release];
		return ig_fail(err, -ENOMEM, "metal: no memory for a buffer's record");
	}
	b->mtl = mtl;
	b->n_bytes = n_bytes;
	b->read_only = read_only;
	rc = ig_metal_residency_add(&d->residency, mtl, use, &b->set, err);
	if (rc) {
		[mtl release];
		free(b);
		return rc;
	}
	*out = b;
	return 0;
}

static int too_large(const struct metal_device *d, uint64_t n_bytes, struct ig_error *err)
{
	return ig_fail(err, -ENOMEM,
		       "metal: a buffer of %" PRIu64 " bytes; GPU '%s' allows %" PRIu64, n_bytes,
		       d->facts.name, d->facts.max_buffer_bytes);
}

int ig_metal_alloc(struct ig_gpu_device *device, uint64_t n_bytes, uint32_t memory,
		   struct ig_gpu_buffer **out, struct ig_error *err)
{
	struct metal_device *d = (struct metal_device *)device;
	bool slab = memory == IG_GPU_MEMORY_SLAB;
	/* Kernels reach slabs through addresses, which Metal does not track: the device's fence
	 * orders all encoders. */
	MTLResourceOptions options =
		MTLResourceStorageModeShared | (slab ? MTLResourceHazardTrackingModeUntracked :
						       MTLResourceHazardTrackingModeDefault);
	int rc;

	*out = NULL;
	if (__atomic_load_n(&d->gone, __ATOMIC_SEQ_CST))
		return ig_metal_fail_lost(d, err);
	if (n_bytes == 0)
		return ig_fail(err, -EINVAL, "metal: a buffer of no bytes");
	if (n_bytes > d->facts.max_buffer_bytes)
		return too_large(d, n_bytes, err);
	NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
	id<MTLBuffer> mtl = [d->device newBufferWithLength:n_bytes options:options];
	if (mtl)
		rc = take(d, mtl, slab ? METAL_USE_SLABS : METAL_USE_SCRATCH, false, n_bytes, out,
			  err);
	else
		rc = ig_fail(err, -ENOMEM, "metal: GPU '%s' has no %" PRIu64 " bytes left",
			     d->facts.name, n_bytes);
	[pool release];
	return rc;
}

static int metal_wrap(struct ig_gpu_device *device, const void *base, uint64_t n_bytes,
		      struct ig_gpu_buffer **out, struct ig_error *err)
{
	struct metal_device *d = (struct metal_device *)device;
	uint64_t page = (uint64_t)getpagesize();
	int rc;

	*out = NULL;
	if (__atomic_load_n(&d->gone, __ATOMIC_SEQ_CST))
		return ig_metal_fail_lost(d, err);
	if (!n_bytes || (uintptr_t)base % page || n_bytes % page)
		return ig_fail(err, -EINVAL,
			       "metal: a view of %" PRIu64 " bytes at %p, not whole pages "
			       "of %" PRIu64,
			       n_bytes, base, page);
	if (n_bytes > d->facts.max_buffer_bytes)
		return too_large(d, n_bytes, err);
	NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
	/* No deallocator: the caller owns the pages. */
	id<MTLBuffer> mtl = [d->device newBufferWithBytesNoCopy:(void *)(uintptr_t)base
							 length:n_bytes
							options:MTLResourceStorageModeShared
						    deallocator:nil];
	if (mtl)
		rc = take(d, mtl, METAL_USE_WEIGHTS, true, n_bytes, out, err);
	else
		rc = ig_fail(err, -ENOMEM, "metal: GPU '%s' can't take a view of %" PRIu64 " bytes",
			     d->facts.name, n_bytes);
	[pool release];
	return rc;
}

void ig_metal_free(struct ig_gpu_device *device, struct ig_gpu_buffer *b)
{
	struct metal_device *d = (struct metal_device *)device;

	if (!b)
		return;
	NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
	ig_metal_residency_remove(&d->residency, b->mtl, b->set);
	[b->mtl release];
	free(b);
	[pool release];
}

static uint64_t metal_address(const struct ig_gpu_buffer *b) { return [b->mtl gpuAddress]; }

static int check_range(const struct ig_gpu_buffer *b, uint64_t offset, uint64_t n_bytes,
		       const char *what, struct ig_error *err)
{
	if (offset <= b->n_bytes && n_bytes <= b->n_bytes - offset)
		return 0;
	return ig_fail(err, -EINVAL,
		       "metal: %s of %" PRIu64 " bytes at %" PRIu64 " of a buffer of %" PRIu64,
		       what, n_bytes, offset, b->n_bytes);
}

static int metal_write(struct ig_gpu_device *device, struct ig_gpu_buffer *b, uint64_t offset,
		       const void *src, uint64_t n_bytes, struct ig_error *err)
{
	int rc = check_range(b, offset, n_bytes, "a write", err);

	if (rc)
		return rc;
	if (b->read_only)
		return ig_fail(err, -EPERM, "metal: a view of a file can't be written");
	memcpy((char *)[b->mtl contents] + offset, src, n_bytes);
	return 0;
}

static int metal_read(struct ig_gpu_device *device, struct ig_gpu_buffer *b, uint64_t offset,
		      void *dst, uint64_t n_bytes, struct ig_error *err)
{
	int rc = check_range(b, offset, n_bytes, "a read", err);
	if (!rc)
		memcpy(dst, (const char *)[b->mtl contents] + offset, n_bytes);
	return rc;
}

const struct ig_gpu_device_class ig_gpu_metal = {
	.name = "metal",
	.open = metal_open,
	.close = metal_close,
	.facts = metal_facts,
	.alloc = ig_metal_alloc,
	.wrap = metal_wrap,
	.free = ig_metal_free,
	.address = metal_address,
	.write = metal_write,
	.read = metal_read,
	.program_create = ig_metal_program_create,
	.program_destroy = ig_metal_program_destroy,
	.staging = ig_metal_program_staging,
	.submit = ig_metal_program_submit,
	.wait = ig_metal_program_wait,
	.pressure = metal_pressure,
	.watch_memory = metal_watch_memory,
};
