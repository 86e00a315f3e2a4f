/*
 * fake_device.m: the double's device and what it makes: buffers, libraries, pipelines,
 * events, fences, residency sets.
 *
 * A library is made from the exact text of a shader that the program has software code
 * of; a "metallib" is that text behind the letters MTLB.
 */
#import "tests/metal/fake_objects.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static NSError *make_error(NSString *domain, NSInteger code, NSString *text)
{
	return [NSError
		errorWithDomain:domain
			   code:code
		       userInfo:[NSDictionary dictionaryWithObject:text
							    forKey:NSLocalizedDescriptionKey]];
}

NSError *fake_error(const char *domain, int code, const char *text)
{
	return make_error([NSString stringWithUTF8String:domain], code,
			  [NSString stringWithUTF8String:text]);
}

static bool is_of_15(SEL s)
{
	return sel_isEqual(s, @selector(newResidencySetWithDescriptor:error:)) ||
	       sel_isEqual(s, @selector(addResidencySet:)) ||
	       sel_isEqual(s, @selector(setMathMode:)) ||
	       sel_isEqual(s, @selector(setMathFloatingPointFunctions:));
}

/* ---- what GNUstep's Foundation lacks ---------------------------------------------------- */

@implementation NSProcessInfo (FakeVersion)
- (fake_version)operatingSystemVersion
{
	fake_version v = { fake_machine.macos, 0, 0 };
	return v;
}
@end

/* ---- buffers -------------------------------------------------------------------------------- */

@implementation FakeBuffer
- (id)initWithBytes:(void *)base length:(NSUInteger)n untracked:(BOOL)untracked
{
	self = [super init];
	memory = fake_memory_create(base, n, untracked);
	if (!memory) {
		[self release];
		return nil;
	}
	FAKE_ADD(buffers, 1);
	return self;
}
- (void)dealloc
{
	if (memory) {
		FAKE_ADD(buffers, -1);
		if (memory->readers || memory->writers)
			fake_report(
				"buffer %u was freed while a command buffer that uses it is under way",
				memory->serial);
		memory->freed = true;
		fake_memory_unref(memory);
	}
	[label release];
	[super dealloc];
}
- (NSUInteger)length
{
	return memory->n_bytes;
}
- (NSUInteger)allocatedSize
{
	return memory->mapped_bytes;
}
- (void *)contents
{
	return memory->host;
}
- (uint64_t)gpuAddress
{
	fake_memory_address(memory);
	return (uint64_t)(uintptr_t)memory->gpu;
}
@synthesize label;
@end

/* ---- small objects ------------------------------------------------------------------------------ */

@implementation FakeFence
- (id)init
{
	self = [super init];
	FAKE_ADD(fences, 1);
	return self;
}
- (void)dealloc
{
	FAKE_ADD(fences, -1);
	[super dealloc];
}
@end

@implementation FakeEvent
- (id)init
{
	pthread_condattr_t a;

	self = [super init];
	pthread_mutex_init(&lock, NULL);
	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(&changed, &a);
	pthread_condattr_destroy(&a);
	FAKE_ADD(events, 1);
	return self;
}
- (void)dealloc
{
	pthread_cond_destroy(&changed);
	pthread_mutex_destroy(&lock);
	FAKE_ADD(events, -1);
	[super dealloc];
}
- (uint64_t)signaledValue
{
	pthread_mutex_lock(&lock);
	uint64_t v = value;
	pthread_mutex_unlock(&lock);
	return v;
}
- (void)setSignaledValue:(uint64_t)v
{
	pthread_mutex_lock(&lock);
	value = v;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}
- (BOOL)waitUntilSignaledValue:(uint64_t)v timeoutMS:(uint64_t)ms
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (time_t)(ms / 1000);
	until.tv_nsec += (long)(ms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	pthread_mutex_lock(&lock);
	while (value < v && pthread_cond_timedwait(&changed, &lock, &until) == 0)
		;
	BOOL reached = value >= v;
	pthread_mutex_unlock(&lock);
	return reached;
}
@end

@implementation MTLCompileOptions
- (id)init
{
	self = [super init];
	fastMathEnabled = YES;
	mathMode = MTLMathModeFast;
	mathFloatingPointFunctions = MTLMathFloatingPointFunctionsFast;
	return self;
}
- (BOOL)respondsToSelector:(SEL)s
{
	return (fake_machine.macos >= 15 || !is_of_15(s)) && [super respondsToSelector:s];
}
@synthesize languageVersion, fastMathEnabled, mathMode, mathFloatingPointFunctions;
@end

@implementation MTLComputePipelineDescriptor
- (void)dealloc
{
	[label release];
	[computeFunction release];
	[super dealloc];
}
@synthesize label, computeFunction, maxTotalThreadsPerThreadgroup,
	threadGroupSizeIsMultipleOfThreadExecutionWidth;
@end

@implementation MTLResidencySetDescriptor
- (void)dealloc
{
	[label release];
	[super dealloc];
}
@synthesize label, initialCapacity;
@end

/* ---- libraries and pipelines ------------------------------------------------------------------------ */

@implementation FakeFunction
- (id)initWithKernel:(const struct soft_kernel *)k
{
	self = [super init];
	kernel = k;
	FAKE_ADD(functions, 1);
	return self;
}
- (void)dealloc
{
	FAKE_ADD(functions, -1);
	[super dealloc];
}
- (NSString *)name
{
	return [NSString stringWithUTF8String:kernel->name];
}
@end

@implementation FakeLibrary
- (id)initWithShader:(const struct soft_shader *)s
{
	self = [super init];
	shader = s;
	FAKE_ADD(libraries, 1);
	return self;
}
- (void)dealloc
{
	FAKE_ADD(libraries, -1);
	[super dealloc];
}
- (id<MTLFunction>)newFunctionWithName:(NSString *)name
{
	const struct soft_kernel *k = soft_find_kernel(shader, [name UTF8String]);

	return k ? [[FakeFunction alloc] initWithKernel:k] : nil;
}
@end

@implementation FakePipeline
- (id)initWithKernel:(const struct soft_kernel *)k threads:(NSUInteger)n multiple:(BOOL)m
{
	self = [super init];
	kernel = k;
	maxThreads = n;
	multiple = m;
	FAKE_ADD(pipelines, 1);
	return self;
}
- (void)dealloc
{
	FAKE_ADD(pipelines, -1);
	[super dealloc];
}
- (NSUInteger)maxTotalThreadsPerThreadgroup
{
	return maxThreads;
}
- (NSUInteger)threadExecutionWidth
{
	return 32;
}
- (NSUInteger)staticThreadgroupMemoryLength
{
	return 0;
}
@end

/* ---- residency sets ---------------------------------------------------------------------------------- */

static void show(NSArray *allocations, int by)
{
	for (NSUInteger i = 0; i < [allocations count]; i++)
		fake_memory_resident(((FakeBuffer *)[allocations objectAtIndex:i])->memory, by);
}

@implementation FakeResidencySet
- (id)init
{
	self = [super init];
	pthread_mutex_init(&lock, NULL);
	wanted = [[NSMutableArray alloc] init];
	committed = [[NSMutableArray alloc] init];
	FAKE_ADD(sets, 1);
	return self;
}
- (void)dealloc
{
	if (queues)
		fake_report("a residency set was freed while a queue has it");
	[self wire:false];
	[wanted release];
	[committed release];
	pthread_mutex_destroy(&lock);
	FAKE_ADD(sets, -1);
	[super dealloc];
}
- (void)requestResidency
{
	[self wire:true];
	FAKE_ADD(requests, 1);
}
- (void)endResidency
{
	[self wire:false];
}
- (void)wire:(bool)now
{
	pthread_mutex_lock(&lock);
	if (now != wired)
		fake_wire(now ? 1 : -1);
	wired = now;
	pthread_mutex_unlock(&lock);
}
- (void)addAllocation:(id<MTLAllocation>)allocation
{
	pthread_mutex_lock(&lock);
	[wanted addObject:allocation];
	pthread_mutex_unlock(&lock);
}
- (void)removeAllocation:(id<MTLAllocation>)allocation
{
	pthread_mutex_lock(&lock);
	if (![wanted containsObject:allocation])
		fake_report("an allocation is taken out of a residency set that does not have it");
	[wanted removeObject:allocation];
	pthread_mutex_unlock(&lock);
}
- (void)commit
{
	pthread_mutex_lock(&lock);
	NSArray *before = [committed copy];
	[committed setArray:wanted];
	/* What stays in the set is resident throughout: a command buffer may be using it. */
	if (queues) {
		show(committed, 1);
		show(before, -1);
	}
	[before release];
	pthread_mutex_unlock(&lock);
}
- (void)attach:(int)by
{
	pthread_mutex_lock(&lock);
	if (!queues)
		show(committed, 1);
	queues += by;
	if (!queues)
		show(committed, -1);
	pthread_mutex_unlock(&lock);
}
@end

@implementation MTLArchitecture
- (NSString *)name
{
	return nil;
}
@end

@interface FakeArchitecture : MTLArchitecture
@end
@implementation FakeArchitecture
- (NSString *)name
{
	return fake_machine.architecture ?
		       [NSString stringWithUTF8String:fake_machine.architecture] :
		       nil;
}
@end

/* ---- the device ------------------------------------------------------------------------------------------ */

@implementation FakeDevice
- (id)init
{
	self = [super init];
	FAKE_ADD(devices, 1);
	return self;
}
- (void)dealloc
{
	FAKE_ADD(devices, -1);
	[super dealloc];
}
- (BOOL)respondsToSelector:(SEL)s
{
	return (fake_machine.macos >= 15 || !is_of_15(s)) && [super respondsToSelector:s];
}
- (NSString *)name
{
	return fake_machine.family >= 10 ? @"Software M5" :
	       fake_machine.family >= 7	 ? @"Software M1" :
					   @"Apple Paravirtual device";
}
- (MTLArchitecture *)architecture
{
	static FakeArchitecture *made; /* one is enough, for as long as the program runs */

	if (!made)
		made = [[FakeArchitecture alloc] init];
	return made;
}
- (NSUInteger)maxThreadgroupMemoryLength
{
	return SOFT_MAX_THREADGROUP_BYTES;
}
- (MTLSize)maxThreadsPerThreadgroup
{
	return MTLSizeMake(1024, 1024, 1024);
}
- (NSUInteger)maxBufferLength
{
	return fake_machine.max_buffer_bytes;
}
- (uint64_t)recommendedMaxWorkingSetSize
{
	return fake_machine.working_set_bytes;
}
- (NSUInteger)currentAllocatedSize
{
	return fake_memory_allocated() + fake_machine.allocated_bytes;
}
- (BOOL)supportsFamily:(MTLGPUFamily)family
{
	if (family == MTLGPUFamilyMetal4)
		return fake_machine.family >= 7 && fake_machine.macos >= 26;
	return (uint32_t)family >= 1001 && (uint32_t)family <= 1000 + fake_machine.family;
}
- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)count
{
	if (fake_due(&fake_machine.fail_object))
		return nil;
	return [[FakeQueue alloc] initWithDevice:self count:count];
}
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options
{
	if (length == 0) {
		fake_report("a buffer of no bytes");
		return nil;
	}
	if (length > fake_machine.max_buffer_bytes || fake_due(&fake_machine.fail_buffer))
		return nil;
	return [[FakeBuffer alloc]
		initWithBytes:NULL
		       length:length
		    untracked:(options & MTLResourceHazardTrackingModeUntracked) != 0];
}
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void *)bytes
				   length:(NSUInteger)length
				  options:(MTLResourceOptions)options
			      deallocator:(id)deallocator
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	if (!bytes || (uintptr_t)bytes % page || !length || length % page) {
		fake_report("a view of %lu bytes at %p is not of whole pages",
			    (unsigned long)length, bytes);
		return nil;
	}
	if (length > fake_machine.max_buffer_bytes || fake_due(&fake_machine.fail_buffer))
		return nil;
	return [[FakeBuffer alloc] initWithBytes:bytes length:length untracked:NO];
}
- (id<MTLLibrary>)libraryOfText:(const char *)text length:(size_t)n error:(NSError **)error
{
	const struct soft_shader *s = soft_find_source(text, n);

	if (!s) {
		if (error)
			*error = fake_error("MTLLibraryErrorDomain", 3,
					    "the program has no software code of "
					    "this text");
		return nil;
	}
	return [[FakeLibrary alloc] initWithShader:s];
}
- (id<MTLLibrary>)newLibraryWithSource:(NSString *)source
			       options:(MTLCompileOptions *)options
				 error:(NSError **)error
{
	const char *text = [source UTF8String];

	if (fake_machine.fail_library && strstr(text, fake_machine.fail_library)) {
		if (error)
			*error = fake_error(
				"MTLLibraryErrorDomain", 3,
				"program_source:7:3: error: use of undeclared identifier");
		return nil;
	}
	if (!strncmp(text, "#define TILE_TENSOR\n", 20) &&
	    (fake_machine.macos < 26 || [options languageVersion] < MTLLanguageVersion4_0)) {
		if (error)
			*error =
				fake_error("MTLLibraryErrorDomain", 3,
					   "program_source:40:10: fatal error: 'metal_tensor' file "
					   "not found");
		return nil;
	}
	FAKE_ADD(from_source, 1);
	fake_counts.language = (uint32_t)[options languageVersion];
	fake_counts.math_mode = (int32_t)options->mathMode;
	fake_counts.math_functions = (int32_t)options->mathFloatingPointFunctions;
	fake_counts.fast_math = options->fastMathEnabled;
	return [self libraryOfText:text length:strlen(text) error:error];
}
- (id<MTLLibrary>)newLibraryWithData:(dispatch_data_t)data error:(NSError **)error
{
	size_t n;
	const char *bytes = fake_data_bytes(data, &n);

	if (fake_machine.refuse_metallib || n < 4 || memcmp(bytes, "MTLB", 4)) {
		if (error)
			*error = fake_error("MTLLibraryErrorDomain", 1,
					    "This library is of a later version");
		return nil;
	}
	FAKE_ADD(from_data, 1);
	return [self libraryOfText:bytes + 4 length:n - 4 error:error];
}
- (id<MTLComputePipelineState>)newComputePipelineStateWithDescriptor:
				       (MTLComputePipelineDescriptor *)descriptor
							     options:(MTLPipelineOption)options
							  reflection:(id *)reflection
							       error:(NSError **)error
{
	FakeFunction *f = (FakeFunction *)[descriptor computeFunction];

	if (!f) {
		fake_report("a pipeline without a function");
		return nil;
	}
	if (fake_machine.fail_pipeline && !strcmp(f->kernel->name, fake_machine.fail_pipeline)) {
		if (error)
			*error = fake_error("AGXMetalG13X", 3,
					    "Compiler encountered an internal error");
		return nil;
	}
	NSUInteger n = f->kernel->max_threads;
	if (n > fake_machine.max_threads)
		n = fake_machine.max_threads;
	return [[FakePipeline alloc]
		initWithKernel:f->kernel
		       threads:n
		      multiple:[descriptor threadGroupSizeIsMultipleOfThreadExecutionWidth]];
}
- (id<MTLSharedEvent>)newSharedEvent
{
	return fake_due(&fake_machine.fail_object) ? nil : [[FakeEvent alloc] init];
}
- (id<MTLFence>)newFence
{
	return fake_due(&fake_machine.fail_object) ? nil : [[FakeFence alloc] init];
}
- (id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor *)descriptor
					       error:(NSError **)error
{
	if (fake_due(&fake_machine.fail_set)) {
		if (error)
			*error = fake_error("MTLResidencySetErrorDomain", 1, "Out of memory");
		return nil;
	}
	return [[FakeResidencySet alloc] init];
}
@end

id<MTLDevice> MTLCreateSystemDefaultDevice(void)
{
	return fake_machine.no_default || fake_machine.no_devices ? nil : [[FakeDevice alloc] init];
}

NSArray *MTLCopyAllDevices(void)
{
	FakeDevice *d;
	NSArray *all;

	if (fake_machine.no_devices)
		return [[NSArray alloc] init];
	d = [[FakeDevice alloc] init];
	all = [[NSArray alloc] initWithObjects:d, nil];
	[d release];
	return all;
}
