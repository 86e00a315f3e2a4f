/* fake_objects.h: the double's classes. */
#pragma once

#include "tests/metal/fake_private.h"

#import <Metal/Metal.h>
#import <Metal/MTLResidencySet.h>

NSError *fake_error(const char *domain, int code, const char *text); /* autoreleased */
const void *fake_data_bytes(dispatch_data_t data, size_t *n);

@interface FakeBuffer : NSObject <MTLBuffer> {
      @public
	struct fake_memory *memory;
	NSString *label;
}
- (id)initWithBytes:(void *)base length:(NSUInteger)n untracked:(BOOL)untracked;
@end

@interface FakeFence : NSObject <MTLFence> {
      @public
	struct fake_fence fence;
}
@end

@interface FakeEvent : NSObject <MTLSharedEvent> {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint64_t value;
}
@end

@interface FakeFunction : NSObject <MTLFunction> {
      @public
	const struct soft_kernel *kernel;
}
- (id)initWithKernel:(const struct soft_kernel *)k;
@end

@interface FakeLibrary : NSObject <MTLLibrary> {
	const struct soft_shader *shader;
}
- (id)initWithShader:(const struct soft_shader *)s;
@end

@interface FakePipeline : NSObject <MTLComputePipelineState> {
      @public
	const struct soft_kernel *kernel;
	NSUInteger maxThreads;
	BOOL multiple;
}
- (id)initWithKernel:(const struct soft_kernel *)k threads:(NSUInteger)n multiple:(BOOL)m;
@end

@interface FakeResidencySet : NSObject <MTLResidencySet> {
	pthread_mutex_t lock;
	NSMutableArray *wanted, *committed;
	int queues;
	bool wired;
}
- (void)wire:(bool)now;
- (void)attach:(int)by; /* to a queue */
@end

@interface FakeDevice : NSObject <MTLDevice>
@end

@class FakeCommands;

@interface FakeQueue : NSObject <MTLCommandQueue> {
      @public
	FakeDevice *device;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t thread;
	NSMutableArray *committed;   /* in order */
	NSUInteger n_open, max_open; /* command buffers that are not done */
	struct fake_timeline *timeline;
	int n_sets;
	BOOL stop;
}
- (id)initWithDevice:(FakeDevice *)d count:(NSUInteger)n;
@end

enum fake_stage { FAKE_NEW, FAKE_COMMITTED, FAKE_DONE };

struct fake_signal {
	struct fake_signal *next;
	FakeEvent *event;
	uint64_t value;
};

@interface FakeCommands : NSObject <MTLCommandBuffer> {
      @public
	FakeQueue *queue;
	enum fake_stage stage;
	uint64_t number;	       /* in the order of commits */
	MTLCommandBufferStatus status; /* under the queue's lock */
	NSError *error;
	NSString *label;
	struct fake_pass *passes, **last_pass;
	struct fake_signal *signals;
	id open;		/* an encoder, not retained */
	NSMutableArray *kept;	/* nil: unretained references */
	NSMutableArray *fences; /* always kept: their state is written when it has run */
}
- (id)initWithQueue:(FakeQueue *)q retained:(BOOL)r;
@end

@interface FakeEncoder : NSObject <MTLComputeCommandEncoder, MTLBlitCommandEncoder> {
      @public
	FakeCommands *commands;
	struct fake_pass *pass;
	FakePipeline *pipeline;
	struct fake_binding bound[SOFT_MAX_BUFFERS];
	uint32_t threadgroup_bytes[SOFT_MAX_BUFFERS];
	BOOL ended, blit, concurrent;
}
- (id)initWithCommands:(FakeCommands *)c;
@end
