/*
 * test_metal_double.m: the double itself: each rule of Apple's layer is broken once, and
 * the double must say so; the sound way of the same must be quiet.
 */
#include "runtime/gpu/device.h"
#include "tests/metal/fake.h"
#include "tests/metal/probe_args.h"

#import <Metal/Metal.h>
#import <Metal/MTLResidencySet.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

extern const struct ig_shader ig_shader_probe;

#define N 64

/* What a scene has at hand; it fills in what it needs. */
struct stage {
	id<MTLDevice> device;
	id<MTLCommandQueue> queue;
	id<MTLLibrary> library;
	id<MTLFence> fence;
	id<MTLBuffer> x, y, z, step;
	id<MTLCommandBuffer> commands;
	id<MTLComputeCommandEncoder> encoder;
	struct probe_args args;
	bool committed, waited;
};

static id<MTLComputePipelineState> pipeline(struct stage *s, const char *name)
{
	MTLComputePipelineDescriptor *d = [[[MTLComputePipelineDescriptor alloc] init] autorelease];
	id<MTLFunction> f = [s->library newFunctionWithName:[NSString stringWithUTF8String:name]];

	[d setComputeFunction:f];
	[d setThreadGroupSizeIsMultipleOfThreadExecutionWidth:YES];
	[f release];
	return [[s->device newComputePipelineStateWithDescriptor:d
							 options:MTLPipelineOptionNone
						      reflection:NULL
							   error:NULL] autorelease];
}

static void begin(struct stage *s)
{
	s->commands = [s->queue commandBufferWithUnretainedReferences];
	s->encoder = [s->commands computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
	[s->encoder setBytes:&s->args length:sizeof s->args atIndex:0];
	[s->encoder setBuffer:s->step offset:0 atIndex:1];
}

static void launch(struct stage *s, const char *kernel, id<MTLBuffer> x, id<MTLBuffer> y)
{
	[s->encoder setComputePipelineState:pipeline(s, kernel)];
	[s->encoder setBuffer:x offset:0 atIndex:2];
	[s->encoder setBuffer:y offset:0 atIndex:3];
	[s->encoder dispatchThreadgroups:MTLSizeMake(N / 32, 1, 1)
		   threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
}

static void end(struct stage *s)
{
	[s->encoder endEncoding];
	[s->commands commit];
	[s->commands waitUntilCompleted];
}

/* ---- scenes --------------------------------------------------------------------------- */

static void sound_barrier(struct stage *s)
{
	begin(s);
	launch(s, "probe_add", s->x, s->y);
	[s->encoder memoryBarrierWithScope:MTLBarrierScopeBuffers];
	launch(s, "probe_add", s->y, s->z);
	[s->encoder memoryBarrierWithScope:MTLBarrierScopeBuffers];
	launch(s, "probe_add", s->z, s->x);
	end(s);
}

static void sound_apart(struct stage *s)
{
	begin(s);
	launch(s, "probe_add", s->x, s->y);
	launch(s, "probe_add", s->x, s->z);
	end(s);
}

/* Parts of one buffer that do not overlap: what is bound does, what is touched does not. */
static void sound_parts(struct stage *s)
{
	id<MTLBuffer> b = [[s->device newBufferWithLength:4 * N * 4 options:0] autorelease];

	begin(s);
	[s->encoder setComputePipelineState:pipeline(s, "probe_add")];
	[s->encoder setBuffer:b offset:0 atIndex:2];
	[s->encoder setBuffer:b offset:N * 4 atIndex:3];
	[s->encoder dispatchThreadgroups:MTLSizeMake(2, 1, 1)
		   threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
	[s->encoder setBufferOffset:2 * N * 4 atIndex:2];
	[s->encoder setBufferOffset:3 * N * 4 atIndex:3];
	[s->encoder dispatchThreadgroups:MTLSizeMake(2, 1, 1)
		   threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
	end(s);
}

static void read_after_write(struct stage *s)
{
	begin(s);
	launch(s, "probe_add", s->x, s->y);
	launch(s, "probe_add", s->y, s->z);
	end(s);
}

static void write_after_read(struct stage *s)
{
	begin(s);
	launch(s, "probe_add", s->x, s->y);
	launch(s, "probe_add", s->z, s->x);
	end(s);
}

static void write_after_write(struct stage *s)
{
	begin(s);
	launch(s, "probe_add", s->x, s->z);
	launch(s, "probe_add", s->y, s->z);
	end(s);
}

static void far_step(struct stage *s, id<MTLBuffer> slab)
{
	struct probe_step *step = [s->step contents];

	step->value = 1;
	step->slab[0] = [slab gpuAddress];
}

static void launch_far(struct stage *s, bool use, id<MTLBuffer> slab, bool fence)
{
	begin(s);
	if (fence)
		[s->encoder waitForFence:s->fence];
	if (use)
		[s->encoder useResource:slab usage:MTLResourceUsageRead | MTLResourceUsageWrite];
	launch(s, "probe_far", s->x, s->y);
	if (fence)
		[s->encoder updateFence:s->fence];
	end(s);
}

static id<MTLBuffer> make_slab(struct stage *s)
{
	return [[s->device newBufferWithLength:N * 4
				       options:MTLResourceHazardTrackingModeUntracked] autorelease];
}

static void sound_far(struct stage *s)
{
	id<MTLBuffer> slab = make_slab(s);

	far_step(s, slab);
	launch_far(s, true, slab, true);
	launch_far(s, true, slab, true);
}

static void not_resident(struct stage *s)
{
	id<MTLBuffer> slab = make_slab(s);

	far_step(s, slab);
	launch_far(s, false, slab, true);
}

static void no_fence(struct stage *s)
{
	id<MTLBuffer> slab = make_slab(s);

	far_step(s, slab);
	launch_far(s, true, slab, false);
	launch_far(s, true, slab, false);
}

/* In a set that is not committed, it is not resident. */
static void set_not_committed(struct stage *s)
{
	MTLResidencySetDescriptor *d = [[[MTLResidencySetDescriptor alloc] init] autorelease];
	id<MTLResidencySet> set = [s->device newResidencySetWithDescriptor:d error:NULL];
	id<MTLBuffer> slab = make_slab(s);

	[s->queue addResidencySet:set];
	[set addAllocation:slab];
	far_step(s, slab);
	launch_far(s, false, slab, true);
	[s->queue removeResidencySet:set];
	[set release];
}

static void sound_set(struct stage *s)
{
	MTLResidencySetDescriptor *d = [[[MTLResidencySetDescriptor alloc] init] autorelease];
	id<MTLResidencySet> set = [s->device newResidencySetWithDescriptor:d error:NULL];
	id<MTLBuffer> slab = make_slab(s);

	[s->queue addResidencySet:set];
	[set addAllocation:slab];
	[set commit];
	far_step(s, slab);
	launch_far(s, false, slab, true);
	[s->queue removeResidencySet:set];
	[set release];
}

/* A set that is committed again while a command buffer uses what it has. */
static void sound_set_grows(struct stage *s)
{
	MTLResidencySetDescriptor *d = [[[MTLResidencySetDescriptor alloc] init] autorelease];
	id<MTLResidencySet> set = [s->device newResidencySetWithDescriptor:d error:NULL];
	id<MTLBuffer> slab = make_slab(s), other = make_slab(s);

	[s->queue addResidencySet:set];
	[set addAllocation:slab];
	[set commit];
	far_step(s, slab);
	for (int i = 0; i < 100; i++) {
		begin(s);
		[s->encoder waitForFence:s->fence];
		launch(s, "probe_far", s->x, s->y);
		[s->encoder updateFence:s->fence];
		[s->encoder endEncoding];
		[s->commands commit];
		[set addAllocation:other];
		while ([s->commands status] < MTLCommandBufferStatusCompleted)
			[set commit];
		[set removeAllocation:other];
		[set commit];
	}
	[s->queue removeResidencySet:set];
	[set release];
}

static void set_on_queue_freed(struct stage *s)
{
	MTLResidencySetDescriptor *d = [[[MTLResidencySetDescriptor alloc] init] autorelease];
	id<MTLResidencySet> set = [s->device newResidencySetWithDescriptor:d error:NULL];

	[s->queue addResidencySet:set];
	[set release];
}

static void too_many_sets(struct stage *s)
{
	MTLResidencySetDescriptor *d = [[[MTLResidencySetDescriptor alloc] init] autorelease];
	id<MTLResidencySet> sets[33];

	for (int i = 0; i < 33; i++) {
		sets[i] = [s->device newResidencySetWithDescriptor:d error:NULL];
		[s->queue addResidencySet:sets[i]];
	}
	for (int i = 0; i < 33; i++) {
		[s->queue removeResidencySet:sets[i]];
		[sets[i] release];
	}
}

static void read_in_flight(struct stage *s)
{
	volatile float *y = [s->y contents];

	fake_hold();
	begin(s);
	launch(s, "probe_add", s->x, s->y);
	[s->encoder endEncoding];
	[s->commands commit];
	(void)y[3];
	fake_let_go();
	[s->commands waitUntilCompleted];
}

static void write_in_flight(struct stage *s)
{
	volatile float *x = [s->x contents];

	fake_hold();
	begin(s);
	launch(s, "probe_add", s->x, s->y);
	[s->encoder endEncoding];
	[s->commands commit];
	x[5] = 9.0f;
	fake_let_go();
	[s->commands waitUntilCompleted];
}

/* What the GPU only reads may be read, and what it leaves alone of what it writes. */
static void sound_reads_in_flight(struct stage *s)
{
	id<MTLBuffer> b = [[s->device newBufferWithLength:8 * N options:0] autorelease];
	volatile float *x = [s->x contents], *y = [b contents];
	float sum = 0;

	fake_hold();
	begin(s);
	launch(s, "probe_add", s->x, b);
	[s->encoder endEncoding];
	[s->commands commit];
	for (int i = 0; i < N; i++)
		sum += x[i] + y[N + i];
	fake_let_go();
	[s->commands waitUntilCompleted];
	assert_true(sum == 0.0f);
	assert_true(y[3] == 1.0f);
}

static void freed_in_flight(struct stage *s)
{
	id<MTLBuffer> b = [s->device newBufferWithLength:4 * N options:0];

	fake_hold();
	begin(s);
	launch(s, "probe_add", s->x, b);
	[s->encoder endEncoding];
	[s->commands commit];
	[b release];
	fake_let_go();
	[s->commands waitUntilCompleted];
}

static void committed_twice(struct stage *s)
{
	begin(s);
	launch(s, "probe_add", s->x, s->y);
	end(s);
	[s->commands commit];
}

static void encoder_open(struct stage *s)
{
	begin(s);
	[s->commands commit];
	[s->encoder endEncoding];
	[s->commands waitUntilCompleted];
}

static void two_encoders(struct stage *s)
{
	begin(s);
	id<MTLBlitCommandEncoder> blit = [s->commands blitCommandEncoder];
	[s->encoder endEncoding];
	[blit endEncoding];
}

static void used_after_end(struct stage *s)
{
	begin(s);
	[s->encoder endEncoding];
	[s->encoder memoryBarrierWithScope:MTLBarrierScopeBuffers];
}

static void never_ended(struct stage *s)
{
	NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];

	begin(s);
	[pool release];
}

static void signal_in_encoder(struct stage *s)
{
	id<MTLSharedEvent> event = [[s->device newSharedEvent] autorelease];

	begin(s);
	[s->commands encodeSignalEvent:event value:1];
	[s->encoder endEncoding];
}

static void wait_uncommitted(struct stage *s)
{
	begin(s);
	[s->encoder endEncoding];
	[s->commands waitUntilCompleted];
}

static void long_bytes(struct stage *s)
{
	static char bytes[4100];

	begin(s);
	[s->encoder setBytes:bytes length:sizeof bytes atIndex:0];
	[s->encoder endEncoding];
}

static void high_index(struct stage *s)
{
	begin(s);
	[s->encoder setBuffer:s->x offset:0 atIndex:31];
	[s->encoder endEncoding];
}

static void odd_offset(struct stage *s)
{
	begin(s);
	[s->encoder setBuffer:s->x offset:6 atIndex:2];
	[s->encoder endEncoding];
}

static void far_offset(struct stage *s)
{
	begin(s);
	[s->encoder setBuffer:s->x offset:4 * N atIndex:2];
	[s->encoder endEncoding];
}

static void offset_of_nothing(struct stage *s)
{
	begin(s);
	[s->encoder setBufferOffset:16 atIndex:7];
	[s->encoder endEncoding];
}

static void odd_threadgroup(struct stage *s)
{
	begin(s);
	[s->encoder setThreadgroupMemoryLength:136 atIndex:0];
	[s->encoder endEncoding];
}

static void large_threadgroup(struct stage *s)
{
	begin(s);
	[s->encoder setThreadgroupMemoryLength:32784 atIndex:0];
	[s->encoder endEncoding];
}

static void no_threadgroup(struct stage *s)
{
	begin(s);
	launch(s, "probe_turn", s->x, s->y);
	[s->encoder endEncoding];
}

static void no_pipeline(struct stage *s)
{
	begin(s);
	[s->encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1)
		   threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
	[s->encoder endEncoding];
}

static void missing_binding(struct stage *s)
{
	begin(s);
	launch(s, "probe_add", s->x, nil);
	[s->encoder endEncoding];
}

static void short_args(struct stage *s)
{
	begin(s);
	[s->encoder setBytes:&s->args length:12 atIndex:0];
	launch(s, "probe_add", s->x, s->y);
	[s->encoder endEncoding];
}

static void dispatch_of(struct stage *s, NSUInteger groups, NSUInteger threads)
{
	begin(s);
	[s->encoder setComputePipelineState:pipeline(s, "probe_far")];
	[s->encoder dispatchThreadgroups:MTLSizeMake(groups, 1, 1)
		   threadsPerThreadgroup:MTLSizeMake(threads, 1, 1)];
	[s->encoder endEncoding];
}

static void empty_grid(struct stage *s) { dispatch_of(s, 0, 32); }

static void many_threads(struct stage *s)
{
	fake_machine.max_threads = 256;
	dispatch_of(s, 1, 288);
}

static void odd_threads(struct stage *s) { dispatch_of(s, 1, 48); }

static void nil_function(struct stage *s)
{
	MTLComputePipelineDescriptor *d = [[[MTLComputePipelineDescriptor alloc] init] autorelease];

	[s->device newComputePipelineStateWithDescriptor:d
						 options:MTLPipelineOptionNone
					      reflection:NULL
						   error:NULL];
}

static void odd_view(struct stage *s)
{
	[s->device newBufferWithBytesNoCopy:(char *)[s->x contents] + 16
				     length:4096
				    options:0
				deallocator:nil];
}

static void empty_buffer(struct stage *s) { [s->device newBufferWithLength:0 options:0]; }

static void out_of_bounds(struct stage *s)
{
	s->args.flags = PROBE_OUTSIDE;
	begin(s);
	launch(s, "probe_add", s->x, s->y);
	end(s);
	assert_int_equal([s->commands status], MTLCommandBufferStatusError);
	assert_int_equal([[s->commands error] code], 3);
}

static void late_fence(struct stage *s)
{
	begin(s);
	launch(s, "probe_add", s->x, s->y);
	[s->encoder waitForFence:s->fence];
	end(s);
}

static const struct {
	const char *name;
	void (*play)(struct stage *s);
	const char *report, *also; /* NULL: quiet */
} scenes[] = {
#define SCENE(f, ...) { #f, f, __VA_ARGS__ }
	SCENE(sound_barrier, NULL),
	SCENE(sound_apart, NULL),
	SCENE(sound_parts, NULL),
	SCENE(sound_far, NULL),
	SCENE(sound_set, NULL),
	SCENE(sound_set_grows, NULL),
	SCENE(sound_reads_in_flight, NULL),
	SCENE(read_after_write, "reads byte 0 of buffer"),
	SCENE(write_after_read, "writes byte 0 of buffer"),
	SCENE(write_after_write, "which dispatch"),
	SCENE(not_resident, "is in no buffer"),
	SCENE(set_not_committed, "is in no buffer"),
	SCENE(no_fence, "no fence is between"),
	SCENE(late_fence, "waitForFence behind a command"),
	SCENE(set_on_queue_freed, "a residency set was freed while a queue has it",
	      "a queue was freed with 1 residency sets"),
	SCENE(too_many_sets, "33 residency sets"),
	SCENE(read_in_flight, "the host reads byte 12 of buffer"),
	SCENE(write_in_flight, "the host writes byte 20 of buffer"),
	SCENE(freed_in_flight, "was freed while a command buffer that uses it is under way",
	      "was freed before the command buffer ran"),
	SCENE(committed_twice, "committed twice"),
	SCENE(encoder_open, "committed while its encoder is open"),
	SCENE(two_encoders, "before the one before it was ended"),
	SCENE(used_after_end, "memoryBarrierWithScope in an encoder that was ended"),
	SCENE(never_ended, "freed before it was ended"),
	SCENE(signal_in_encoder, "encodeSignalEvent while an encoder is open"),
	SCENE(wait_uncommitted, "was not committed"),
	SCENE(long_bytes, "setBytes of 4100 bytes"),
	SCENE(high_index, "at index 31; the last is 30"),
	SCENE(odd_offset, "not a multiple of 4"),
	SCENE(far_offset, "offset 256 in a buffer of 256 bytes"),
	SCENE(offset_of_nothing, "where no buffer is bound"),
	SCENE(odd_threadgroup, "threadgroup memory of 136 bytes"),
	SCENE(large_threadgroup, "threadgroup memory of 32784 bytes"),
	SCENE(no_threadgroup, "has no length"),
	SCENE(no_pipeline, "without a pipeline"),
	SCENE(missing_binding, "nothing is bound at index 3"),
	SCENE(short_args, "12 bytes at index 0, it reads 16"),
	SCENE(empty_grid, "an empty grid"),
	SCENE(many_threads, "288 threads, its pipeline allows 256"),
	SCENE(odd_threads, "48 threads, its pipeline was promised multiples of 32"),
	SCENE(nil_function, "a pipeline without a function"),
	SCENE(odd_view, "not of whole pages"),
	SCENE(empty_buffer, "a buffer of no bytes"),
	SCENE(out_of_bounds, "out of bounds"),
};

static void expect(const char *name, const char *report)
{
	const char *text = fake_take_report();

	if (!report && text)
		fail_msg("%s: %s", name, text);
	if (report && (!text || !strstr(text, report)))
		fail_msg("%s: expected '%s', got '%s'", name, report, text ? text : "nothing");
}

static void play(size_t i)
{
	NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
	struct stage s = { .args = { .n = N, .a = 1.0f } };

	fake_reset();
	s.device = MTLCreateSystemDefaultDevice();
	s.queue = [s.device newCommandQueueWithMaxCommandBufferCount:64];
	s.library = [s.device
		newLibraryWithSource:[NSString stringWithUTF8String:ig_shader_probe.source]
			     options:[[[MTLCompileOptions alloc] init] autorelease]
			       error:NULL];
	s.fence = [s.device newFence];
	s.x = [s.device newBufferWithLength:4 * N options:0];
	s.y = [s.device newBufferWithLength:4 * N options:0];
	s.z = [s.device newBufferWithLength:4 * N options:0];
	s.step = [s.device newBufferWithLength:sizeof(struct probe_step) options:0];
	scenes[i].play(&s);
	fake_settle();
	[s.x release];
	[s.y release];
	[s.z release];
	[s.step release];
	[s.fence release];
	[s.library release];
	[s.queue release];
	[s.device release];
	[pool release];
	fake_settle();
	expect(scenes[i].name, scenes[i].report);
	expect(scenes[i].name, scenes[i].report ? scenes[i].also : NULL);
	if (scenes[i].also)
		expect(scenes[i].name, NULL);
	const struct fake_counts c = fake_count();
	if (c.devices || c.queues || c.buffers || c.libraries || c.functions || c.pipelines ||
	    c.fences || c.events || c.sets || c.command_buffers || c.encoders)
		fail_msg("%s: objects are left", scenes[i].name);
}

static void test_rules(void **state)
{
	for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
		play(i);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_rules) };

	return cmocka_run_group_tests_name("metal double", tests, NULL, NULL);
}
