/*
 * fake_commands.m: the double's queue, command buffers and encoders.
 *
 * What is encoded is checked at once and kept as commands; a committed command buffer
 * runs on its queue's thread, after those committed before it.  As on Apple's side, its
 * events are signalled when its commands are done and a moment before its state says so,
 * and a failed one signals nothing.
 */
#import "tests/metal/fake_objects.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_SETS_OF_A_QUEUE 32
#define MAX_BYTES 4096 /* of setBytes */

static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_changed = PTHREAD_COND_INITIALIZER;
static bool held, hangs;     /* under gate_lock */
static uint32_t n_under_way; /* command buffers; under gate_lock */

/* ---- the gate -------------------------------------------------------------------------- */

static void set_gate(bool *which, bool to)
{
	pthread_mutex_lock(&gate_lock);
	*which = to;
	pthread_cond_broadcast(&gate_changed);
	pthread_mutex_unlock(&gate_lock);
}

void fake_hold(void) { set_gate(&held, true); }

void fake_let_go(void) { set_gate(&held, false); }

void fake_end_hang(void) { set_gate(&hangs, false); }

static void pass_gate(const bool *which)
{
	pthread_mutex_lock(&gate_lock);
	while (*which)
		pthread_cond_wait(&gate_changed, &gate_lock);
	pthread_mutex_unlock(&gate_lock);
}

static void count_under_way(int by)
{
	pthread_mutex_lock(&gate_lock);
	n_under_way += (uint32_t)by;
	pthread_cond_broadcast(&gate_changed);
	pthread_mutex_unlock(&gate_lock);
}

void fake_settle(void)
{
	pthread_mutex_lock(&gate_lock);
	while (n_under_way)
		pthread_cond_wait(&gate_changed, &gate_lock);
	pthread_mutex_unlock(&gate_lock);
}

/* ---- command buffers ---------------------------------------------------------------------- */

static void need_pool(const char *what)
{
	if (![NSAutoreleasePool currentPool])
		fake_report("%s without an autorelease pool: it is never freed", what);
}

@implementation FakeCommands
- (id)initWithQueue:(FakeQueue *)q retained:(BOOL)r
{
	self = [super init];
	queue = [q retain];
	last_pass = &passes;
	status = MTLCommandBufferStatusNotEnqueued;
	kept = r ? [[NSMutableArray alloc] init] : nil;
	fences = [[NSMutableArray alloc] init];
	FAKE_ADD(command_buffers, 1);
	return self;
}
- (void)dealloc
{
	if (stage == FAKE_NEW) {
		pthread_mutex_lock(&queue->lock);
		queue->n_open--;
		pthread_cond_broadcast(&queue->changed);
		pthread_mutex_unlock(&queue->lock);
	}
	while (passes) {
		struct fake_pass *p = passes;
		passes = p->next;
		fake_pass_destroy(p);
	}
	while (signals) {
		struct fake_signal *s = signals;
		signals = s->next;
		[s->event release];
		free(s);
	}
	[kept release];
	[fences release];
	[error release];
	[label release];
	[queue release];
	FAKE_ADD(command_buffers, -1);
	[super dealloc];
}
- (MTLCommandBufferStatus)status
{
	pthread_mutex_lock(&queue->lock);
	MTLCommandBufferStatus s = status;
	pthread_mutex_unlock(&queue->lock);
	return s;
}
- (NSError *)error
{
	pthread_mutex_lock(&queue->lock);
	NSError *e = [[error retain] autorelease];
	pthread_mutex_unlock(&queue->lock);
	return e;
}
- (FakeEncoder *)encoder
{
	if (stage != FAKE_NEW)
		fake_report("an encoder of a command buffer that was committed");
	if (open)
		fake_report("an encoder was begun before the one before it was ended");
	if (fake_due(&fake_machine.fail_encoder))
		return nil;
	need_pool("an encoder");
	FakeEncoder *e = [[[FakeEncoder alloc] initWithCommands:self] autorelease];
	*last_pass = e->pass;
	last_pass = &e->pass->next;
	open = e;
	return e;
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)type
{
	FakeEncoder *e = [self encoder];

	if (e)
		e->concurrent = type == MTLDispatchTypeConcurrent;
	return e;
}
- (id<MTLBlitCommandEncoder>)blitCommandEncoder
{
	FakeEncoder *e = [self encoder];

	if (e)
		e->blit = YES;
	return e;
}
- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value
{
	struct fake_signal **last = &signals, *s = calloc(1, sizeof *s);

	if (open)
		fake_report("encodeSignalEvent while an encoder is open");
	if (stage != FAKE_NEW)
		fake_report("encodeSignalEvent in a command buffer that was committed");
	while (*last)
		last = &(*last)->next;
	s->event = [(FakeEvent *)event retain];
	s->value = value;
	*last = s;
}
- (void)commit
{
	if (open)
		fake_report("a command buffer was committed while its encoder is open");
	if (stage != FAKE_NEW) {
		fake_report("a command buffer was committed twice");
		return;
	}
	FAKE_ADD(committed, 1);
	stage = FAKE_COMMITTED;
	for (struct fake_pass *p = passes; p; p = p->next)
		fake_pass_under_way(p, queue->timeline, 1);
	count_under_way(1);
	number = fake_memory_commit(queue->timeline);
	pthread_mutex_lock(&queue->lock);
	status = MTLCommandBufferStatusCommitted;
	[queue->committed addObject:self];
	pthread_cond_broadcast(&queue->changed);
	pthread_mutex_unlock(&queue->lock);
}
- (void)waitUntilCompleted
{
	if (stage == FAKE_NEW) {
		fake_report("waitUntilCompleted for a command buffer that was not committed");
		return;
	}
	pthread_mutex_lock(&queue->lock);
	while (status < MTLCommandBufferStatusCompleted)
		pthread_cond_wait(&queue->changed, &queue->lock);
	pthread_mutex_unlock(&queue->lock);
}
/* On the queue's thread. */
- (void)run
{
	NSError *e = nil;

	pass_gate(&held);
	if (fake_due(&fake_machine.hang_commands)) {
		set_gate(&hangs, true);
		pass_gate(&hangs);
	}
	if (fake_due(&fake_machine.fail_commands))
		e = fake_error("MTLCommandBufferErrorDomain", fake_machine.error_code,
			       fake_machine.error_text ? fake_machine.error_text :
							 "an injected error");
	for (struct fake_pass *p = passes; p && !e; p = p->next)
		if (fake_pass_run(p))
			e = fake_error(
				"MTLCommandBufferErrorDomain", 3,
				"Caused GPU Address Fault Error (0000000b:kIOGPUCommandBufferCallback"
				"ErrorPageFault)");
	fake_memory_judge(queue->timeline, number);
	for (struct fake_pass *p = passes; p; p = p->next)
		fake_pass_under_way(p, queue->timeline, -1);
	for (struct fake_signal *s = signals; s && !e; s = s->next)
		[s->event setSignaledValue:s->value];
	if (fake_machine.lag_us)
		usleep(fake_machine.lag_us);
	pthread_mutex_lock(&queue->lock);
	stage = FAKE_DONE;
	error = [e retain];
	status = e ? MTLCommandBufferStatusError : MTLCommandBufferStatusCompleted;
	queue->n_open--;
	pthread_cond_broadcast(&queue->changed);
	pthread_mutex_unlock(&queue->lock);
}
@synthesize label;
@end

/* ---- the queue -------------------------------------------------------------------------------- */

/* The queue of this thread was freed by the last command buffer that held it. */
static __thread bool orphaned;

static void *run_queue(void *arg)
{
	FakeQueue *q = arg;

	for (;;) {
		NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
		FakeCommands *c = nil;
		pthread_mutex_lock(&q->lock);
		while (![q->committed count] && !q->stop)
			pthread_cond_wait(&q->changed, &q->lock);
		if ([q->committed count]) {
			c = [[q->committed objectAtIndex:0] retain];
			[q->committed removeObjectAtIndex:0];
		}
		pthread_mutex_unlock(&q->lock);
		if (!c) {
			[pool release];
			return NULL;
		}
		[c run];
		[q retain];
		[c release];
		[pool release];
		[q release];
		count_under_way(-1);
		if (orphaned)
			return NULL;
	}
}

@implementation FakeQueue
- (id)initWithDevice:(FakeDevice *)d count:(NSUInteger)n
{
	self = [super init];
	device = [d retain];
	max_open = n;
	timeline = fake_timeline_take();
	pthread_mutex_init(&lock, NULL);
	pthread_cond_init(&changed, NULL);
	committed = [[NSMutableArray alloc] init];
	pthread_create(&thread, NULL, run_queue, self);
	FAKE_ADD(queues, 1);
	return self;
}
/* The last command buffer may be what held it. */
- (void)dealloc
{
	pthread_mutex_lock(&lock);
	stop = YES;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	orphaned = pthread_equal(pthread_self(), thread);
	if (orphaned)
		pthread_detach(thread);
	else
		pthread_join(thread, NULL);
	if (n_sets)
		fake_report("a queue was freed with %d residency sets", n_sets);
	[committed release];
	[device release];
	FAKE_ADD(queues, -1);
	[super dealloc];
}
- (BOOL)respondsToSelector:(SEL)s
{
	return (fake_machine.macos >= 15 || !sel_isEqual(s, @selector(addResidencySet:))) &&
	       [super respondsToSelector:s];
}
- (id<MTLCommandBuffer>)make:(BOOL)retained
{
	need_pool("a command buffer");
	pthread_mutex_lock(&lock);
	while (n_open >= max_open)
		pthread_cond_wait(&changed, &lock);
	n_open++;
	pthread_mutex_unlock(&lock);
	return [[[FakeCommands alloc] initWithQueue:self retained:retained] autorelease];
}
- (id<MTLCommandBuffer>)commandBuffer
{
	return [self make:YES];
}
- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences
{
	return [self make:NO];
}
- (void)addResidencySet:(id<MTLResidencySet>)set
{
	if (++n_sets > MAX_SETS_OF_A_QUEUE)
		fake_report("a queue with %d residency sets; %d are possible", n_sets,
			    MAX_SETS_OF_A_QUEUE);
	[(FakeResidencySet *)set attach:1];
}
- (void)removeResidencySet:(id<MTLResidencySet>)set
{
	n_sets--;
	[(FakeResidencySet *)set attach:-1];
}
@end

/* ---- encoders ---------------------------------------------------------------------------------- */

@implementation FakeEncoder
- (id)initWithCommands:(FakeCommands *)c
{
	self = [super init];
	commands = [c retain];
	pass = fake_pass_create();
	FAKE_ADD(encoders, 1);
	return self;
}
- (void)clear:(NSUInteger)i
{
	if (bound[i].memory)
		fake_memory_unref(bound[i].memory);
	free(bound[i].bytes);
	bound[i] = (struct fake_binding){ 0 };
}
- (void)dealloc
{
	if (!ended)
		fake_report("an encoder was freed before it was ended");
	for (NSUInteger i = 0; i < SOFT_MAX_BUFFERS; i++)
		[self clear:i];
	[commands release];
	FAKE_ADD(encoders, -1);
	[super dealloc];
}
- (BOOL)usable:(const char *)what
{
	if (ended)
		fake_report("%s in an encoder that was ended", what);
	return !ended;
}
- (BOOL)index:(NSUInteger)index of:(const char *)what
{
	if (index >= SOFT_MAX_BUFFERS)
		fake_report("%s at index %lu; the last is %d", what, (unsigned long)index,
			    SOFT_MAX_BUFFERS - 1);
	return index < SOFT_MAX_BUFFERS;
}
- (void)endEncoding
{
	if (![self usable:"endEncoding"])
		return;
	ended = YES;
	commands->open = nil;
}
- (void)keep:(id)object
{
	[commands->kept addObject:object];
}
- (void)append:(struct fake_command *)c
{
	*pass->last = c;
	pass->last = &c->next;
}
- (void)fillBuffer:(id<MTLBuffer>)buffer range:(NSRange)range value:(uint8_t)value
{
	struct fake_command *c;
	FakeBuffer *b = (FakeBuffer *)buffer;

	if (![self usable:"fillBuffer"])
		return;
	if (!blit || !b || !range.length || range.location > b->memory->n_bytes ||
	    range.length > b->memory->n_bytes - range.location) {
		fake_report("fillBuffer of %lu bytes at %lu", (unsigned long)range.length,
			    (unsigned long)range.location);
		return;
	}
	c = calloc(1, sizeof *c + sizeof c->binding[0]);
	*c = (struct fake_command){ .kind = FAKE_FILL,
				    .n_bindings = 1,
				    .fill = value,
				    .fill_offset = range.location,
				    .fill_bytes = range.length };
	c->binding[0] = (struct fake_binding){ .memory = b->memory };
	fake_memory_ref(b->memory);
	[self keep:b];
	[self append:c];
}
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state
{
	if (![self usable:"setComputePipelineState"])
		return;
	if (!state || blit)
		fake_report("setComputePipelineState: nil, or in a blit encoder");
	pipeline = (FakePipeline *)state;
	FAKE_ADD(binds, 1);
	if (state)
		[self keep:state];
}
- (void)setBytes:(const void *)bytes length:(NSUInteger)length atIndex:(NSUInteger)index
{
	if (![self usable:"setBytes"] || ![self index:index of:"setBytes"])
		return;
	if (!bytes || !length || length > MAX_BYTES) {
		fake_report("setBytes of %lu bytes; 1 to %d are possible", (unsigned long)length,
			    MAX_BYTES);
		return;
	}
	[self clear:index];
	bound[index].bytes = malloc(length);
	bound[index].n_bytes = (uint32_t)length;
	memcpy(bound[index].bytes, bytes, length);
	FAKE_ADD(binds, 1);
}
- (BOOL)offset:(NSUInteger)offset in:(struct fake_memory *)memory at:(NSUInteger)index
{
	if (offset >= memory->n_bytes || offset % 4)
		fake_report("index %lu: offset %lu in a buffer of %llu bytes%s",
			    (unsigned long)index, (unsigned long)offset,
			    (unsigned long long)memory->n_bytes,
			    offset % 4 ? ", not a multiple of 4" : "");
	return offset < memory->n_bytes && offset % 4 == 0;
}
- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index
{
	FakeBuffer *b = (FakeBuffer *)buffer;

	if (![self usable:"setBuffer"] || ![self index:index of:"setBuffer"])
		return;
	[self clear:index];
	FAKE_ADD(binds, 1);
	if (!b || ![self offset:offset in:b->memory at:index])
		return;
	bound[index] = (struct fake_binding){ .memory = b->memory, .offset = offset };
	fake_memory_ref(b->memory);
	[self keep:b];
}
- (void)setBufferOffset:(NSUInteger)offset atIndex:(NSUInteger)index
{
	if (![self usable:"setBufferOffset"] || ![self index:index of:"setBufferOffset"])
		return;
	FAKE_ADD(binds, 1);
	if (!bound[index].memory)
		fake_report("setBufferOffset at index %lu, where no buffer is bound",
			    (unsigned long)index);
	else if ([self offset:offset in:bound[index].memory at:index])
		bound[index].offset = offset;
}
- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index
{
	uint64_t total = length;

	if (![self usable:"setThreadgroupMemoryLength"] ||
	    ![self index:index of:"setThreadgroupMemoryLength"])
		return;
	for (NSUInteger i = 0; i < SOFT_MAX_BUFFERS; i++)
		total += i == index ? 0 : threadgroup_bytes[i];
	if (!length || length % 16 || total > SOFT_MAX_THREADGROUP_BYTES) {
		fake_report(
			"threadgroup memory of %lu bytes at index %lu, %llu in all; a multiple of 16 up "
			"to %d is possible",
			(unsigned long)length, (unsigned long)index, (unsigned long long)total,
			SOFT_MAX_THREADGROUP_BYTES);
		return;
	}
	threadgroup_bytes[index] = (uint32_t)length;
	FAKE_ADD(binds, 1);
}
/* Is everything there that the kernel names? */
- (BOOL)complete:(const struct soft_kernel *)k
{
	for (uint32_t i = 0; i < k->n_arguments; i++) {
		const struct soft_argument *a = &k->arguments[i];
		const struct fake_binding *b = &bound[a->index];
		if (a->kind == SOFT_THREADGROUP) {
			if (threadgroup_bytes[a->index])
				continue;
			fake_report("kernel %s: threadgroup memory at index %u has no length",
				    k->name, a->index);
			return NO;
		}
		if (!b->memory && !b->bytes) {
			fake_report("kernel %s: nothing is bound at index %u", k->name, a->index);
			return NO;
		}
		uint64_t n = b->bytes ? b->n_bytes : b->memory->n_bytes - b->offset;
		if (a->kind == SOFT_CONSTANTS && n < a->size) {
			fake_report("kernel %s: %llu bytes at index %u, it reads %u", k->name,
				    (unsigned long long)n, a->index, a->size);
			return NO;
		}
	}
	return YES;
}
- (void)dispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)threads
{
	const struct soft_kernel *k = pipeline ? pipeline->kernel : NULL;
	NSUInteger n = threads.width * threads.height * threads.depth;
	uint32_t n_bindings = SOFT_MAX_BUFFERS;
	struct fake_command *c;

	if (![self usable:"a dispatch"])
		return;
	if (!k) {
		fake_report("a dispatch without a pipeline");
		return;
	}
	if (!groups.width || !groups.height || !groups.depth || !n) {
		fake_report("kernel %s: an empty grid", k->name);
		return;
	}
	if (n > pipeline->maxThreads) {
		fake_report("kernel %s: %lu threads, its pipeline allows %lu", k->name,
			    (unsigned long)n, (unsigned long)pipeline->maxThreads);
		return;
	}
	if (pipeline->multiple && n % 32) {
		fake_report("kernel %s: %lu threads, its pipeline was promised multiples of 32",
			    k->name, (unsigned long)n);
		return;
	}
	if (threads.height != 1 || threads.depth != 1) {
		fake_report("kernel %s: threadgroups of more than one dimension", k->name);
		return;
	}
	if (![self complete:k])
		return;
	/* In a serial encoder a barrier stands before every dispatch. */
	if (!concurrent && pass->first)
		[self memoryBarrierWithScope:MTLBarrierScopeBuffers];
	while (n_bindings && !bound[n_bindings - 1].memory && !bound[n_bindings - 1].bytes)
		n_bindings--;
	c = calloc(1, sizeof *c + n_bindings * sizeof c->binding[0]);
	*c = (struct fake_command){ .kind = FAKE_DISPATCH,
				    .kernel = k,
				    .threads = (uint32_t)n,
				    .groups = { (uint32_t)groups.width, (uint32_t)groups.height,
						(uint32_t)groups.depth },
				    .n_bindings = n_bindings };
	/* Only what the kernel names: the rest was for others. */
	for (uint32_t i = 0; i < k->n_arguments; i++) {
		uint32_t at = k->arguments[i].index;
		if (k->arguments[i].kind == SOFT_THREADGROUP) {
			c->threadgroup_bytes = threadgroup_bytes[at];
			continue;
		}
		c->binding[at] = bound[at];
		if (bound[at].memory)
			fake_memory_ref(bound[at].memory);
		if (bound[at].bytes) {
			c->binding[at].bytes = malloc(bound[at].n_bytes);
			memcpy(c->binding[at].bytes, bound[at].bytes, bound[at].n_bytes);
		}
	}
	[self append:c];
}
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope
{
	struct fake_command *c;

	if (![self usable:"memoryBarrierWithScope"])
		return;
	c = calloc(1, sizeof *c);
	if (scope != MTLBarrierScopeBuffers)
		fake_report("a barrier of scope %lu", (unsigned long)scope);
	c->kind = FAKE_BARRIER;
	FAKE_ADD(barriers, 1);
	[self append:c];
}
- (void)useResource:(id<MTLResource>)resource usage:(MTLResourceUsage)usage
{
	[self useResources:&resource count:1 usage:usage];
}
- (void)useResources:(const id<MTLResource> *)resources
	       count:(NSUInteger)count
	       usage:(MTLResourceUsage)usage
{
	if (![self usable:"useResources"])
		return;
	pass->used = realloc(pass->used, (pass->n_used + count) * sizeof *pass->used);
	for (NSUInteger i = 0; i < count; i++) {
		FakeBuffer *b = (FakeBuffer *)resources[i];
		if (usage != (MTLResourceUsageRead | MTLResourceUsageWrite))
			fake_report("useResources with usage %lu", (unsigned long)usage);
		fake_memory_ref(b->memory);
		pass->used[pass->n_used++] = b->memory;
		[self keep:b];
	}
}
- (void)waitForFence:(id<MTLFence>)fence
{
	if (!fence) {
		fake_report("waitForFence: nil");
		return;
	}
	[commands->fences addObject:fence];
	if ([self usable:"waitForFence"] && pass->n_waits < 8)
		pass->waits[pass->n_waits++] = &((FakeFence *)fence)->fence;
	if (pass->first)
		fake_report("waitForFence behind a command: it is waited for before all of them");
}
- (void)updateFence:(id<MTLFence>)fence
{
	if (!fence) {
		fake_report("updateFence: nil");
		return;
	}
	[commands->fences addObject:fence];
	if ([self usable:"updateFence"] && pass->n_updates < 8)
		pass->updates[pass->n_updates++] = &((FakeFence *)fence)->fence;
}
@end
