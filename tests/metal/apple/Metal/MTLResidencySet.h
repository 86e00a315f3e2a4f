/* MTLResidencySet.h: of macOS 15; see Metal.h. */
#ifndef FAKE_MTLRESIDENCYSET_H
#define FAKE_MTLRESIDENCYSET_H

#import <Metal/Metal.h>

@interface MTLResidencySetDescriptor : NSObject {
      @public
	NSString *label;
	NSUInteger initialCapacity;
}
@property(copy) NSString *label;
@property(readwrite) NSUInteger initialCapacity;
@end

@protocol MTLResidencySet <NSObject>
- (void)requestResidency;
- (void)endResidency;
- (void)addAllocation:(id<MTLAllocation>)allocation;
- (void)removeAllocation:(id<MTLAllocation>)allocation;
- (void)commit;
@end

#endif
