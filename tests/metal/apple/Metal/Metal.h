/*
 * Metal.h: what runtime/metal uses of Apple's Metal, for the double in this folder.
 *
 * Names, selectors and types are Apple's, of macOS 14; the declarations are ours and hold
 * only what is used.  Nothing here needs blocks.
 */
#ifndef FAKE_METAL_H
#define FAKE_METAL_H

#import <Foundation/Foundation.h>
#include <dispatch/dispatch.h>

/* Foundation has this, older ones of GNUstep don't. */
typedef struct {
	NSInteger majorVersion, minorVersion, patchVersion;
} fake_version;
#define operatingSystemVersion fake_operatingSystemVersion
@interface NSProcessInfo (FakeVersion)
- (fake_version)operatingSystemVersion;
@end

typedef struct {
	NSUInteger width, height, depth;
} MTLSize;

static inline MTLSize MTLSizeMake(NSUInteger width, NSUInteger height, NSUInteger depth)
{
	MTLSize s = { width, height, depth };
	return s;
}

typedef enum {
	MTLGPUFamilyApple1 = 1001,
	MTLGPUFamilyApple5 = 1005,
	MTLGPUFamilyApple7 = 1007,
	MTLGPUFamilyApple8 = 1008,
	MTLGPUFamilyApple9 = 1009,
	MTLGPUFamilyApple10 = 1010,
	MTLGPUFamilyMetal4 = 5002,
} MTLGPUFamily;

typedef NSUInteger MTLResourceOptions;
enum {
	MTLResourceStorageModeShared = 0 << 4,
	MTLResourceStorageModePrivate = 2 << 4,
	MTLResourceHazardTrackingModeDefault = 0 << 8,
	MTLResourceHazardTrackingModeUntracked = 1 << 8,
	MTLResourceHazardTrackingModeTracked = 2 << 8,
};

typedef NSUInteger MTLResourceUsage;
enum {
	MTLResourceUsageRead = 1 << 0,
	MTLResourceUsageWrite = 1 << 1,
};

typedef NSUInteger MTLBarrierScope;
enum {
	MTLBarrierScopeBuffers = 1 << 0,
};

typedef NSUInteger MTLPipelineOption;
enum {
	MTLPipelineOptionNone = 0,
};

typedef NSUInteger MTLDispatchType;
enum {
	MTLDispatchTypeSerial = 0,
	MTLDispatchTypeConcurrent = 1,
};

typedef NSUInteger MTLLanguageVersion;
enum {
	MTLLanguageVersion3_0 = (3 << 16) + 0,
	MTLLanguageVersion3_1 = (3 << 16) + 1,
	MTLLanguageVersion3_2 = (3 << 16) + 2,
	MTLLanguageVersion4_0 = (4 << 16) + 0,
};

typedef NSUInteger MTLCommandBufferStatus;
enum {
	MTLCommandBufferStatusNotEnqueued = 0,
	MTLCommandBufferStatusEnqueued = 1,
	MTLCommandBufferStatusCommitted = 2,
	MTLCommandBufferStatusScheduled = 3,
	MTLCommandBufferStatusCompleted = 4,
	MTLCommandBufferStatusError = 5,
};

@protocol MTLDevice;
@protocol MTLBuffer;
@protocol MTLFence;
@protocol MTLResidencySet;
@class MTLResidencySetDescriptor;

@protocol MTLAllocation <NSObject>
@property(readonly) NSUInteger allocatedSize;
@end

@protocol MTLResource <MTLAllocation>
@property(copy) NSString *label;
@end

@protocol MTLBuffer <MTLResource>
@property(readonly) NSUInteger length;
@property(readonly) uint64_t gpuAddress;
- (void *)contents;
@end

@protocol MTLFence <NSObject>
@end

@protocol MTLEvent <NSObject>
@end

@protocol MTLSharedEvent <MTLEvent>
@property(readwrite) uint64_t signaledValue;
- (BOOL)waitUntilSignaledValue:(uint64_t)value timeoutMS:(uint64_t)milliseconds;
@end

@protocol MTLFunction <NSObject>
@property(readonly) NSString *name;
@end

@protocol MTLLibrary <NSObject>
- (id<MTLFunction>)newFunctionWithName:(NSString *)name;
@end

@protocol MTLComputePipelineState <NSObject>
@property(readonly) NSUInteger maxTotalThreadsPerThreadgroup;
@property(readonly) NSUInteger threadExecutionWidth;
@property(readonly) NSUInteger staticThreadgroupMemoryLength;
@end

@protocol MTLCommandEncoder <NSObject>
- (void)endEncoding;
@end

@protocol MTLBlitCommandEncoder <MTLCommandEncoder>
- (void)fillBuffer:(id<MTLBuffer>)buffer range:(NSRange)range value:(uint8_t)value;
@end

@protocol MTLComputeCommandEncoder <MTLCommandEncoder>
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state;
- (void)setBytes:(const void *)bytes length:(NSUInteger)length atIndex:(NSUInteger)index;
- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index;
- (void)setBufferOffset:(NSUInteger)offset atIndex:(NSUInteger)index;
- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index;
- (void)dispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)threads;
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope;
- (void)useResource:(id<MTLResource>)resource usage:(MTLResourceUsage)usage;
- (void)useResources:(const id<MTLResource> *)resources
	       count:(NSUInteger)count
	       usage:(MTLResourceUsage)usage;
- (void)waitForFence:(id<MTLFence>)fence;
- (void)updateFence:(id<MTLFence>)fence;
@end

@protocol MTLCommandBuffer <NSObject>
@property(copy) NSString *label;
@property(readonly) MTLCommandBufferStatus status;
@property(readonly) NSError *error;
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)type;
- (id<MTLBlitCommandEncoder>)blitCommandEncoder;
- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value;
- (void)commit;
- (void)waitUntilCompleted;
@end

@protocol MTLCommandQueue <NSObject>
- (id<MTLCommandBuffer>)commandBuffer;
- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences;
/* macOS 15 */
- (void)addResidencySet:(id<MTLResidencySet>)set;
- (void)removeResidencySet:(id<MTLResidencySet>)set;
@end

@interface MTLCompileOptions : NSObject {
      @public
	MTLLanguageVersion languageVersion;
	BOOL fastMathEnabled;
	NSInteger mathMode, mathFloatingPointFunctions;
}
@property(readwrite) MTLLanguageVersion languageVersion;
@property(readwrite) BOOL fastMathEnabled;
/* macOS 15 */
@property(readwrite) NSInteger mathMode;
@property(readwrite) NSInteger mathFloatingPointFunctions;
@end

enum {
	MTLMathModeSafe = 0,
	MTLMathModeRelaxed = 1,
	MTLMathModeFast = 2,
	MTLMathFloatingPointFunctionsFast = 0,
	MTLMathFloatingPointFunctionsPrecise = 1,
};

@interface MTLComputePipelineDescriptor : NSObject {
      @public
	NSString *label;
	id<MTLFunction> computeFunction;
	NSUInteger maxTotalThreadsPerThreadgroup;
	BOOL threadGroupSizeIsMultipleOfThreadExecutionWidth;
}
@property(copy) NSString *label;
@property(retain) id<MTLFunction> computeFunction;
@property(readwrite) NSUInteger maxTotalThreadsPerThreadgroup;
@property(readwrite) BOOL threadGroupSizeIsMultipleOfThreadExecutionWidth;
@end

@interface MTLArchitecture : NSObject
@property(readonly) NSString *name;
@end

@protocol MTLDevice <NSObject>
@property(readonly) NSString *name;
@property(readonly) MTLArchitecture *architecture;
@property(readonly) NSUInteger maxThreadgroupMemoryLength;
@property(readonly) MTLSize maxThreadsPerThreadgroup;
@property(readonly) NSUInteger maxBufferLength;
@property(readonly) uint64_t recommendedMaxWorkingSetSize;
@property(readonly) NSUInteger currentAllocatedSize;
- (BOOL)supportsFamily:(MTLGPUFamily)family;
- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)count;
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options;
/* The deallocator is a block; this file is for compilers that have none. */
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void *)bytes
				   length:(NSUInteger)length
				  options:(MTLResourceOptions)options
			      deallocator:(id)deallocator;
- (id<MTLLibrary>)newLibraryWithSource:(NSString *)source
			       options:(MTLCompileOptions *)options
				 error:(NSError **)error;
- (id<MTLLibrary>)newLibraryWithData:(dispatch_data_t)data error:(NSError **)error;
- (id<MTLComputePipelineState>)newComputePipelineStateWithDescriptor:
				       (MTLComputePipelineDescriptor *)descriptor
							     options:(MTLPipelineOption)options
							  reflection:(id *)reflection
							       error:(NSError **)error;
- (id<MTLSharedEvent>)newSharedEvent;
- (id<MTLFence>)newFence;
/* macOS 15 */
- (id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor *)descriptor
					       error:(NSError **)error;
@end

id<MTLDevice> MTLCreateSystemDefaultDevice(void);
NSArray *MTLCopyAllDevices(void);

#endif
