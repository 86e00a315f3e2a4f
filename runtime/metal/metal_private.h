/*
 * metal_private.h: what the files of runtime/metal share.
 *
 * Objective-C without ARC: whoever gets an object from new… or copy… releases it, and
 * every function that may make autoreleased objects has a pool.  Atomics are the
 * compiler's __atomic_…, since not every Objective-C has _Atomic.  Apple's API is that of
 * macOS 14; what 15 added is asked for at run time, and declared here where the SDK does
 * not know it yet.
 */
#pragma once

#include "runtime/gpu/device.h"

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#include <dispatch/dispatch.h>
#include <pthread.h>
#include <stdbool.h>

#if __has_include(<Metal/MTLResidencySet.h>)
#import <Metal/MTLResidencySet.h>
#else /* an SDK before macOS 15 */
@protocol MTLResidencySet <NSObject>
- (void)requestResidency;
- (void)endResidency;
- (void)addAllocation:(id)allocation;
- (void)removeAllocation:(id)allocation;
- (void)commit;
@end
@interface MTLResidencySetDescriptor : NSObject
@property(copy) NSString *label;
@property NSUInteger initialCapacity;
@end
@protocol metal_device_of_15
- (id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor *)descriptor
					       error:(NSError **)error;
@end
@protocol metal_queue_of_15
- (void)addResidencySet:(id<MTLResidencySet>)set;
- (void)removeResidencySet:(id<MTLResidencySet>)set;
@end
@protocol metal_options_of_15
- (void)setMathMode:(NSInteger)mode;
- (void)setMathFloatingPointFunctions:(NSInteger)functions;
@end
enum { MTLMathModeSafe = 0, MTLMathFloatingPointFunctionsPrecise = 1 };
#define METAL_SDK_BEFORE_15
#endif

/* The casts are to Apple's own types where the SDK has the method. */
#ifdef METAL_SDK_BEFORE_15
#define METAL_DEVICE_15(device) ((id<metal_device_of_15>)(device))
#define METAL_QUEUE_15(queue) ((id<metal_queue_of_15>)(queue))
#define METAL_OPTIONS_15(options) ((id<metal_options_of_15>)(options))
#else
#define METAL_DEVICE_15(device) (device)
#define METAL_QUEUE_15(queue) (queue)
#define METAL_OPTIONS_15(options) (options)
#endif

/* Methods of macOS 15 are only called after respondsToSelector: has said that they are
 * there; clang knows @available alone. */
#ifdef __clang__
#pragma clang diagnostic ignored "-Wunknown-warning-option"
#pragma clang diagnostic ignored "-Wunguarded-availability"
#pragma clang diagnostic ignored "-Wunguarded-availability-new"
#endif

/* ---- residency ------------------------------------------------------------------- */

enum metal_use {
	METAL_USE_WEIGHTS = 0,
	METAL_USE_SCRATCH,
	METAL_USE_SLABS,
	METAL_N_USES,
};

/* A queue takes 32 sets at most. */
#define METAL_MAX_SETS 24

struct metal_set {
	id<MTLResidencySet> set;
	uint32_t use; /* enum metal_use */
	uint64_t n_bytes;
};

/* What stays wired.  All of it under lock, but for last_use_ns. */
struct metal_residency {
	pthread_mutex_t lock;
	pthread_cond_t wake; /* of the keeper */
	pthread_t keeper;
	bool has_sets; /* macOS 15 */
	bool has_keeper, stop;
	uint32_t beat_ms; /* between two looks of the keeper */
	bool asleep;	  /* the keeper waits for a step; atomic */
	struct metal_set sets[METAL_MAX_SETS];
	uint32_t n_sets;
	uint64_t set_bytes; /* a set of weights takes no more once it has so much */
	id<MTLDevice> device;
	id<MTLCommandQueue> queue;
	/* Without sets: the slabs, for every encoder to name. */
	id<MTLResource> *slabs;
	uint32_t n_slabs, cap_slabs;
	int64_t last_use_ns; /* atomic */
};

int ig_metal_residency_init(struct metal_residency *r, id<MTLDevice> device,
			    id<MTLCommandQueue> queue, uint64_t working_set_bytes,
			    struct ig_error *err);
void ig_metal_residency_finish(struct metal_residency *r);
/* Keep b resident until it is removed; *set is what removal wants to know. */
int ig_metal_residency_add(struct metal_residency *r, id<MTLBuffer> b, uint32_t use, int32_t *set,
			   struct ig_error *err);
void ig_metal_residency_remove(struct metal_residency *r, id<MTLBuffer> b, int32_t set);
/* A step begins. */
void ig_metal_residency_touch(struct metal_residency *r);
/* Name what an encoder reaches through addresses, where no set does it. */
void ig_metal_residency_use(struct metal_residency *r, id<MTLComputeCommandEncoder> encoder);

/* ---- the device -------------------------------------------------------------------- */

struct ig_gpu_buffer {
	id<MTLBuffer> mtl;
	uint64_t n_bytes;
	int32_t set;
	bool read_only;
};

/* A compiled file of shaders, and a kernel of it for so many threads. */
struct metal_library {
	struct metal_library *next;
	const struct ig_shader *shader;
	id<MTLLibrary> library;
};

struct metal_pipeline {
	struct metal_pipeline *next;
	const struct ig_shader *shader;
	uint32_t threads;
	id<MTLComputePipelineState> state;
	char kernel[];
};

struct metal_device {
	struct ig_gpu_device base;
	id<MTLDevice> device;
	id<MTLCommandQueue> queue;
	id<MTLSharedEvent> event; /* counts command buffers that are done */
	id<MTLFence> fence;	  /* orders encoders; a new one after a failure */
	id<MTLBuffer> nothing;	  /* stands where an operand is left out */
	struct ig_gpu_facts facts;
	struct metal_residency residency;
	uint64_t n_signals;   /* the event's value when all that was submitted is done */
	uint32_t n_under_way; /* steps; atomic, as failed: the loader may destroy a program */
	bool failed;	      /* a step failed: a new fence when none is under way */
	bool gone;	      /* for good; atomic */

	pthread_mutex_t compile_lock;
	struct metal_library *libraries; /* under compile_lock, as pipelines */
	struct metal_pipeline *pipelines;

	dispatch_queue_t pressure_queue;
	dispatch_source_t pressure_source;
	uint64_t pressure; /* asked for since the last look; atomic */
};

/* Command buffers that one step is cut into, at most. */
#define METAL_MAX_CUTS 64
/* How often a wait looks whether the GPU has failed: then nothing is ever signalled. */
#define METAL_LOOK_MS 50

/* A GPU's failure as an errno and text; the device is marked gone when it is. */
int ig_metal_fail_buffer(struct metal_device *d, id<MTLCommandBuffer> b, const char *what,
			 struct ig_error *err);
/* -ENODEV with text. */
int ig_metal_fail_gone(struct metal_device *d, struct ig_error *err);
/* Text of an NSError, never NULL; valid while the pool is. */
const char *ig_metal_error_text(NSError *e);

/* The pipeline of a kernel; compiled at most once a device.  It is the device's. */
int ig_metal_pipeline_get(struct metal_device *d, const struct ig_gpu_dispatch *dispatch,
			  id<MTLComputePipelineState> *out, struct ig_error *err);
void ig_metal_pipelines_free(struct metal_device *d);

/* program.m */
int ig_metal_program_create(struct ig_gpu_device *device, const struct ig_gpu_tape *tape,
			    const struct ig_gpu_place *places, uint64_t step_bytes,
			    struct ig_gpu_program **out, struct ig_error *err);
void ig_metal_program_destroy(struct ig_gpu_program *program);
void *ig_metal_program_staging(struct ig_gpu_program *program, uint32_t slot);
int ig_metal_program_submit(struct ig_gpu_program *program, const struct ig_gpu_submission *s,
			    struct ig_error *err);
int ig_metal_program_wait(struct ig_gpu_program *program, uint32_t slot, uint32_t timeout_ms,
			  const int32_t **ids, const float **logits, struct ig_error *err);

/* device.m: memory for program.m too. */
int ig_metal_alloc(struct ig_gpu_device *device, uint64_t n_bytes, uint32_t memory,
		   struct ig_gpu_buffer **out, struct ig_error *err);
void ig_metal_free(struct ig_gpu_device *device, struct ig_gpu_buffer *b);
