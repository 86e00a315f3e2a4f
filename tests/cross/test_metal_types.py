"""The Metal driver against Apple's own declarations, and that a mistake in it is seen."""
import os
import re

import pytest

from conftest import ROOT, folder

# What the driver's sources are made of: all of this is right, on every SDK.
RIGHT = """
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

int all_right(const void *weights, size_t n_bytes)
{
	@autoreleasepool {
		NSError *error = nil;
		NSArray *devices = MTLCopyAllDevices();
		id<MTLDevice> device = MTLCreateSystemDefaultDevice();
		for (id<MTLDevice> other in devices)
			if (!device && [other supportsFamily:MTLGPUFamilyApple7] && !other.isRemovable)
				device = [other retain];
		[devices release];
		if (!device || device.lowPower || n_bytes > [device maxBufferLength])
			return -1;
		MTLCompileOptions *options = [[MTLCompileOptions alloc] init];
		options.languageVersion = MTLLanguageVersion3_1;
		id<MTLLibrary> library = [device newLibraryWithSource:@"" options:options error:&error];
		id<MTLFunction> function = [library newFunctionWithName:@"norm_f32"];
		id<MTLComputePipelineState> pipeline =
			[device newComputePipelineStateWithFunction:function error:&error];
		id<MTLBuffer> buffer =
			[device newBufferWithBytesNoCopy:(void *)weights
						  length:n_bytes
						 options:MTLResourceStorageModeShared |
							 MTLResourceHazardTrackingModeUntracked
					     deallocator:nil];
		id<MTLCommandQueue> queue = [device newCommandQueueWithMaxCommandBufferCount:8];
		id<MTLCommandBuffer> commands = [queue commandBufferWithUnretainedReferences];
		id<MTLComputeCommandEncoder> encoder =
			[commands computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
		[encoder setComputePipelineState:pipeline];
		[encoder setBuffer:buffer offset:0 atIndex:0];
		[encoder setBytes:&n_bytes length:sizeof n_bytes atIndex:1];
		[encoder useResource:buffer usage:MTLResourceUsageRead];
		[encoder setThreadgroupMemoryLength:1024 atIndex:0];
		[encoder dispatchThreadgroups:MTLSizeMake(1, 2, 3)
			threadsPerThreadgroup:MTLSizeMake(pipeline.threadExecutionWidth, 1, 1)];
		[encoder memoryBarrierWithScope:MTLBarrierScopeBuffers];
		[encoder endEncoding];
		[commands commit];
		[commands waitUntilCompleted];
		if (commands.status == MTLCommandBufferStatusError &&
		    commands.error.code == MTLCommandBufferErrorOutOfMemory)
			return (int)[[commands.error localizedDescription] length];
		%s
		return commands.GPUEndTime > commands.GPUStartTime;
	}
}
"""

GUARDED = """
	if (@available(macOS 15.0, *)) {
		MTLResidencySetDescriptor *d = [[MTLResidencySetDescriptor alloc] init];
		d.initialCapacity = 8;
		id<MTLResidencySet> set = [device newResidencySetWithDescriptor:d error:&error];
		[set addAllocation:buffer];
		[set commit];
		[set requestResidency];
		[queue addResidencySet:set];
		options.mathMode = MTLMathModeSafe;
		options.mathFloatingPointFunctions = MTLMathFloatingPointFunctionsPrecise;
	}
	if (@available(macOS 26.0, *)) {
		id<MTL4CommandQueue> newer = [device newMTL4CommandQueue];
		[newer release];
		if ([device supportsFamily:MTLGPUFamilyMetal4])
			options.languageVersion = MTLLanguageVersion4_0;
	}
"""

# A line, and what the compiler has to say of it.
MISTAKES = {
    "no such message": ("[commands commitAndWait];", "-commitAndWait"),
    "a message of another class": ("[queue commit];", "-commit"),
    "a selector with a part missing": ("[encoder setBuffer:buffer atIndex:0];", "setBuffer:atIndex:"),
    "a selector misspelt": ("[encoder setBuffer:buffer Offset:0 atIndex:0];", "Offset"),
    "no such property": ("return (int)buffer.size;", "size"),
    "an assignment to what is read only": ("pipeline.threadExecutionWidth = 32;", "setThreadExecutionWidth:"),
    "another object": ("[encoder setComputePipelineState:function];", "MTLComputePipelineState"),
    "another class": ("options.languageVersion = 0; [device newLibraryWithSource:@\"\" "
                      "options:error error:&error];", "MTLCompileOptions"),
    "an object for a number": ("[encoder setBuffer:buffer offset:buffer atIndex:0];", "NSUInteger"),
    "a number for a structure": ("[encoder dispatchThreads:64 threadsPerThreadgroup:"
                                 "MTLSizeMake(64, 1, 1)];", "MTLSize"),
    "a C string for an object": ("[library newFunctionWithName:\"norm\"];", "must be prefixed by"),
    "an error by value": ("[device newComputePipelineStateWithFunction:function error:error];",
                          "NSError"),
    "another enumeration": ("[commands computeCommandEncoderWithDispatchType:"
                            "MTLGPUFamilyApple7];", "enumeration"),
    "another enumeration in a property": ("options.languageVersion = MTLDispatchTypeSerial;",
                                          "enumeration"),
    "no such constant": ("return MTLBarrierScopeBuffer;", "MTLBarrierScopeBuffer"),
    "a result of another type": ("id<MTLBuffer> b = [device newCommandQueue]; (void)b;", "MTLBuffer"),
    "macOS 15 unguarded": ("options.mathMode = MTLMathModeSafe;", "macOS 15"),
    "macOS 26 unguarded": ("[device newMTL4CommandQueue];", "macOS 26"),
    "macOS 26 behind a guard for 15": ("if (@available(macOS 15.0, *)) [device newMTL4CommandQueue];",
                                       "macOS 26"),
}


def compiled(compiler, tmp_path, line, *flags):
    return compiler(written(tmp_path, line), "-c", "-o", tmp_path / "probe.o", *flags)


def written(tmp_path, line):
    source = tmp_path / "probe.m"
    source.write_text(RIGHT % line)
    return source


def test_what_is_right_passes(tmp_path, compiler):
    assert compiled(compiler, tmp_path, "") is None


def test_what_is_newer_passes_behind_guards(tmp_path, newest):
    assert compiled(newest, tmp_path, GUARDED) is None


def test_what_is_newer_is_not_in_an_older_sdk(tmp_path, compiler):
    said = compiled(compiler, tmp_path, GUARDED)
    assert (said is None) == ("Frameworks-14" not in compiler.flags[-1])
    assert said is None or "MTLResidencySet" in said


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_seen(tmp_path, newest, mistake):
    line, words = MISTAKES[mistake]
    said = compiled(newest, tmp_path, line)
    assert said is not None, "%s passed" % line
    assert re.search(r"error: .*" + re.escape(words), said), said


def test_it_links(tmp_path, newest):
    main = tmp_path / "main.c"
    main.write_text("int all_right(const void *, unsigned long);\n"
                    "int main(void) { return all_right(0, 0); }\n")
    assert compiled(newest, tmp_path, "") is None
    link = ["-o", tmp_path / "probe", tmp_path / "probe.o", "-L%s" % (newest.stand_in / "lib"), "-lobjc",
            "-framework", "Foundation"]
    assert newest(main, *link, "-framework", "Metal") is None
    assert "MTLCreateSystemDefaultDevice" in newest(main, *link)


DRIVER = sorted((ROOT / "runtime" / "metal").glob("*.m"))


@pytest.mark.skipif(not DRIVER, reason="runtime/metal has no sources yet")
@pytest.mark.parametrize("source", DRIVER, ids=lambda p: p.name)
def test_the_driver(tmp_path, compiler, source):
    """Each file of the driver, against the SDKs of macOS 14 and 26."""
    build = folder("build-macos")
    said = compiler(source, "-c", "-o", tmp_path / "driver.o", "-I%s" % ROOT, "-I%s" % (ROOT / "include"),
                    "-I%s" % build, '-DIG_VERSION="0"',
                    *["-I%s" % d for d in generated_headers(build)])
    assert said is None, said


def generated_headers(build):
    """The folders of the macOS build in which headers were made."""
    return sorted({os.path.dirname(p) for p in build.rglob("*.h")})
