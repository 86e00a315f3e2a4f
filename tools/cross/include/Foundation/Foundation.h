/*
 * Foundation.h: a stand-in for Apple's, with what runtime/metal may use of it: declarations
 * alone, so that a compiler checks types where Apple's headers are not.  Written by hand from
 * Foundation's documentation; what is missing here is missing on purpose until it is needed.
 */
#pragma once

#include <objc/NSObjCRuntime.h>
#include <objc/NSObject.h>
#include <objc/objc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FOUNDATION_EXPORT extern

typedef struct _NSRange {
	NSUInteger location, length;
} NSRange;
typedef double NSTimeInterval;
typedef unsigned short unichar;
typedef NSUInteger NSStringEncoding;
enum { NSUTF8StringEncoding = 4 };
enum { NSNotFound = NSIntegerMax };

static inline NSRange NSMakeRange(NSUInteger location, NSUInteger length)
{
	NSRange range = { location, length };
	return range;
}

@class NSArray, NSBundle, NSData, NSDate, NSDictionary, NSError, NSNumber, NSSet, NSString, NSURL;

typedef NSString *NSErrorDomain;
typedef NSString *NSErrorUserInfoKey;

@protocol NSCopying
@end

typedef struct {
	unsigned long state;
	id __unsafe_unretained *itemsPtr;
	unsigned long *mutationsPtr;
	unsigned long extra[5];
} NSFastEnumerationState;

@protocol NSFastEnumeration
- (NSUInteger)countByEnumeratingWithState:(NSFastEnumerationState *)state
				  objects:(id __unsafe_unretained[])buffer
				    count:(NSUInteger)count;
@end

@interface NSString : NSObject <NSCopying>
+ (instancetype)string;
+ (instancetype)stringWithUTF8String:(const char *)bytes;
+ (instancetype)stringWithFormat:(NSString *)format,
				 ... __attribute__((format(__NSString__, 1, 2)));
- (instancetype)initWithUTF8String:(const char *)bytes;
- (instancetype)initWithBytes:(const void *)bytes
		       length:(NSUInteger)length
		     encoding:(NSStringEncoding)encoding;
- (instancetype)initWithBytesNoCopy:(void *)bytes
			     length:(NSUInteger)length
			   encoding:(NSStringEncoding)encoding
		       freeWhenDone:(BOOL)free_it;
- (BOOL)isEqualToString:(NSString *)other;
- (BOOL)hasPrefix:(NSString *)prefix;
- (NSString *)stringByAppendingString:(NSString *)other;
@property(readonly) const char *UTF8String __attribute__((objc_returns_inner_pointer));
@property(readonly) NSUInteger length;
@end

@interface NSError : NSObject <NSCopying>
+ (instancetype)errorWithDomain:(NSErrorDomain)domain
			   code:(NSInteger)code
		       userInfo:(NSDictionary *)info;
@property(readonly) NSInteger code;
@property(readonly, copy) NSErrorDomain domain;
@property(readonly, copy) NSDictionary *userInfo;
@property(readonly, copy) NSString *localizedDescription;
@property(readonly, copy) NSString *localizedFailureReason;
@end

FOUNDATION_EXPORT NSErrorUserInfoKey const NSLocalizedDescriptionKey;

@interface NSNumber : NSObject <NSCopying>
+ (NSNumber *)numberWithInt:(int)value;
+ (NSNumber *)numberWithBool:(BOOL)value;
+ (NSNumber *)numberWithUnsignedInt:(unsigned int)value;
+ (NSNumber *)numberWithUnsignedInteger:(NSUInteger)value;
+ (NSNumber *)numberWithUnsignedLongLong:(unsigned long long)value;
@property(readonly) int intValue;
@property(readonly) BOOL boolValue;
@property(readonly) unsigned long long unsignedLongLongValue;
@end

@interface NSArray : NSObject <NSCopying, NSFastEnumeration>
+ (instancetype)array;
+ (instancetype)arrayWithObjects:(const id[])objects count:(NSUInteger)count;
- (id)objectAtIndex:(NSUInteger)index;
- (id)objectAtIndexedSubscript:(NSUInteger)index;
@property(readonly) NSUInteger count;
@end

@interface NSMutableArray : NSArray
- (void)addObject:(id)object;
- (void)removeAllObjects;
@end

@interface NSDictionary : NSObject <NSCopying, NSFastEnumeration>
+ (instancetype)dictionaryWithObjects:(const id[])objects
			      forKeys:(const id<NSCopying>[])keys
				count:(NSUInteger)count;
- (id)objectForKey:(id)key;
- (id)objectForKeyedSubscript:(id)key;
@property(readonly) NSUInteger count;
@end

@interface NSSet : NSObject <NSCopying, NSFastEnumeration>
@property(readonly) NSUInteger count;
@end

@interface NSData : NSObject <NSCopying>
+ (instancetype)dataWithBytes:(const void *)bytes length:(NSUInteger)length;
+ (instancetype)dataWithBytesNoCopy:(void *)bytes
			     length:(NSUInteger)length
		       freeWhenDone:(BOOL)free_it;
@property(readonly) const void *bytes __attribute__((objc_returns_inner_pointer));
@property(readonly) NSUInteger length;
@end

@interface NSURL : NSObject <NSCopying>
+ (NSURL *)fileURLWithPath:(NSString *)path;
+ (NSURL *)fileURLWithPath:(NSString *)path isDirectory:(BOOL)is_directory;
@property(readonly, copy) NSString *path;
@end

@interface NSDate : NSObject <NSCopying>
@end

@interface NSBundle : NSObject
@end

@interface NSAutoreleasePool : NSObject
- (void)drain;
@end

typedef struct {
	NSInteger majorVersion, minorVersion, patchVersion;
} NSOperatingSystemVersion;

@interface NSProcessInfo : NSObject
+ (NSProcessInfo *)processInfo;
- (BOOL)isOperatingSystemAtLeastVersion:(NSOperatingSystemVersion)version;
@property(readonly) NSOperatingSystemVersion operatingSystemVersion;
@property(readonly) unsigned long long physicalMemory;
@end

FOUNDATION_EXPORT Class NSClassFromString(NSString *name);
FOUNDATION_EXPORT SEL NSSelectorFromString(NSString *name);
FOUNDATION_EXPORT NSString *NSStringFromClass(Class of);
FOUNDATION_EXPORT void NSLog(NSString *format, ...) __attribute__((format(__NSString__, 1, 2)));
