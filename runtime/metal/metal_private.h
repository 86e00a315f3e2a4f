/*
 * metal_private.h: shared by the files of runtime/metal.  Objective-C without ARC: the caller of
 * new… or copy… releases the object, and every function that may create autoreleased objects has a
 * pool.  Atomics are the compiler's __atomic_…, because not every Objective-C compiler has _Atomic.
 * The API is that of macOS 14; additions of macOS 15 and 26 are checked for at run time, and declared here
 * for older SDKs.
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

/* No casts if the SDK has the methods. */
#ifdef METAL_SDK_BEFORE_15
#define METAL_DEVICE_15(device) ((id<metal_device_of_15>)(device))
#define METAL_QUEUE_15(queue) ((id<metal_queue_of_15>)(queue))
#define METAL_OPTIONS_15(options) ((id<metal_options_of_15>)(options))
#else
#define METAL_DEVICE_15(device) (device)
#define METAL_QUEUE_15(queue) (queue)
#define METAL_OPTIONS_15(options) (options)
#endif

/* Numbers of macOS 26, which older SDKs do not have. */
#define METAL_FAMILY_APPLE10 ((MTLGPUFamily)1010)
#define METAL_FAMILY_METAL4 ((MTLGPUFamily)5002)
#define METAL_LANGUAGE_4_0 ((MTLLanguageVersion)(4 << 16))

/* Methods of macOS 15 are only called after a check with respondsToSelector:, which clang does not
 * recognise. */
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

/* A queue supports at most 32 sets. */
#define METAL_MAX_SETS 24

struct metal_set {
	id<MTLResidencySet> set;
	uint32_t use; /* enum metal_use */
	uint64_t n_bytes;
};

/* Keeps memory wired.  Protected by lock, except for last_use_ns. */
struct metal_residency {
	pthread_mutex_t lock;
	pthread_cond_t wake; /* of the keeper */
	pthread_t keeper;
	bool has_sets; /* macOS 15 */
	bool has_keeper, stop;
	bool requested;	  /* since residency was ended last */
	int64_t keep_ns;  /* after the last step; 0: residency is never requested */
	uint32_t beat_ms; /* interval of the keeper's requests */
	bool asleep;	  /* the keeper waits for a step; atomic */
	struct metal_set sets[METAL_MAX_SETS];
	uint32_t n_sets;
	uint64_t set_bytes; /* size limit of a set of weights */
	id<MTLDevice> device;
	id<MTLCommandQueue> queue;
	/* Without sets: the slabs, which every encoder must name. */
	id<MTLResource> *slabs;
	uint32_t n_slabs, cap_slabs;
	int64_t last_use_ns; /* atomic */
};

int ig_metal_residency_init(struct metal_residency *r, id<MTLDevice> device,
			    id<MTLCommandQueue> queue, uint64_t working_set_bytes, uint32_t keep_ms,
			    struct ig_error *err);
void ig_metal_residency_finish(struct metal_residency *r);
/* Keep b resident until it is removed; *set is needed for removal. */
int ig_metal_residency_add(struct metal_residency *r, id<MTLBuffer> b, uint32_t use, int32_t *set,
			   struct ig_error *err);
void ig_metal_residency_remove(struct metal_residency *r, id<MTLBuffer> b, int32_t set);
/* A step starts. */
void ig_metal_residency_touch(struct metal_residency *r);
/* Without sets: name the memory that an encoder reaches through addresses. */
void ig_metal_residency_use(struct metal_residency *r, id<MTLComputeCommandEncoder> encoder);

/* ---- the device -------------------------------------------------------------------- */

struct ig_gpu_buffer {
	id<MTLBuffer> mtl;
	uint64_t n_bytes;
	int32_t set;
	bool read_only;
};

/* A compiled shader file, and one of its kernels for a number of threads. */
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
	id<MTLSharedEvent> event; /* counts finished command buffers */
	id<MTLFence> fence;	  /* orders encoders; replaced after a failure */
	id<MTLBuffer> nothing;	  /* bound for omitted operands */
	struct ig_gpu_facts facts;
	struct metal_residency residency;
	uint64_t n_signals;   /* the event's value when all submitted work has finished */
	uint32_t n_in_flight; /* steps; atomic like failed: the loader may destroy a program */
	bool failed;	      /* a step failed: replace the fence when none is in flight */
	bool gone;	      /* the device is lost; atomic */

	pthread_mutex_t compile_lock;
	struct metal_library *libraries; /* protected by compile_lock, like pipelines */
	struct metal_pipeline *pipelines;

	dispatch_queue_t pressure_queue;
	dispatch_source_t pressure_source;
	uint64_t pressure; /* bytes to free since the last call; atomic */
	pthread_mutex_t notify_lock;
	void (*notify)(void *ctx, uint64_t n_bytes); /* under notify_lock, as its ctx; NULL: none */
	void *notify_ctx;
};

/* The most command buffers of one step. */
#define METAL_MAX_CUTS 64
/* Interval at which a wait checks for failed command buffers, which signal nothing. */
#define METAL_LOOK_MS 50

/* The error of a failed command buffer as an errno with text; marks a lost device. */
int ig_metal_fail_buffer(struct metal_device *d, id<MTLCommandBuffer> b, const char *what,
			 struct ig_error *err);
/* -ENODEV with text. */
int ig_metal_fail_lost(struct metal_device *d, struct ig_error *err);
/* Wait until b, which was committed with a signal of the event's value n_signals, has finished. */
int ig_metal_wait_for(struct metal_device *d, id<MTLCommandBuffer> b, const char *what,
		      struct ig_error *err);
/* Text of an NSError, never NULL; valid as long as the autorelease pool. */
const char *ig_metal_error_text(NSError *e);

/* The pipeline of a kernel, compiled at most once per device, which owns it. */
int ig_metal_pipeline_get(struct metal_device *d, const struct ig_gpu_dispatch *dispatch,
			  id<MTLComputePipelineState> *out, struct ig_error *err);
void ig_metal_pipelines_free(struct metal_device *d);

/* tensor.m: whether products run on the GPU's tensor units, as facts.tensor_units then says: where it has them, a trial
 * of theirs gave right results. */
void ig_metal_try_tensor_units(struct metal_device *d);

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

/* device.m */
int ig_metal_alloc(struct ig_gpu_device *device, uint64_t n_bytes, uint32_t memory,
		   struct ig_gpu_buffer **out, struct ig_error *err);
void ig_metal_free(struct ig_gpu_device *device, struct ig_gpu_buffer *b);
