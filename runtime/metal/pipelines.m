/*
 * pipelines.m: compiles shaders to pipelines.  A shader file is compiled (.metallib, if Apple's
 * compiler was there at build time) or source; if the system rejects the library, the source is
 * compiled with the same flags: language 3.1, exact math.  Shaders with kernels for tensor units, on a GPU that has
 * them, are always compiled from source, in language 4.0.  A pipeline is compiled for the number of
 * threads of its dispatches, so that the compiler uses no more registers than they can have.  A
 * kernel that cannot run is an error here, because the GPU would ignore its dispatches silently.
 */
#include "runtime/metal/metal_private.h"
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SIMD_WIDTH 32 /* all kernels are written for it */

/* ---- libraries ---------------------------------------------------------------------- */

static id<MTLLibrary> load_compiled(struct metal_device *d, const struct ig_shader *s)
{
	NSError *e = nil;
	dispatch_data_t data = dispatch_data_create(s->metallib, s->metallib_size, NULL,
						    DISPATCH_DATA_DESTRUCTOR_DEFAULT);

	if (!data)
		return nil;
	id<MTLLibrary> library = [d->device newLibraryWithData:data error:&e];
	dispatch_release(data);
	if (!library)
		ig_log_warn(
			"metal: the compiled shaders %s were refused (%s); compiling the source",
			s->name, ig_metal_error_text(e));
	return library;
}

static id<MTLLibrary> compile(struct metal_device *d, const struct ig_shader *s, bool tensor,
			      NSError **e)
{
	MTLCompileOptions *options = [[MTLCompileOptions alloc] init];
	NSString *source = [NSString stringWithUTF8String:s->source];

	if (tensor)
		source = [@"#define TILE_TENSOR\n" stringByAppendingString:source];
	/* The default version is the oldest that the binary supports. */
	[options setLanguageVersion:tensor ? METAL_LANGUAGE_4_0 : MTLLanguageVersion3_1];
	/* MTLMathModeSafe alone leaves exp etc. approximate. */
	if ([options respondsToSelector:@selector(setMathMode:)] &&
	    [options respondsToSelector:@selector(setMathFloatingPointFunctions:)]) {
		[METAL_OPTIONS_15(options) setMathMode:MTLMathModeSafe];
		[METAL_OPTIONS_15(options)
			setMathFloatingPointFunctions:MTLMathFloatingPointFunctionsPrecise];
	} else {
		[options setFastMathEnabled:NO];
	}
	id<MTLLibrary> library =
		source ? [d->device newLibraryWithSource:source options:options error:e] : nil;
	[options release];
	return library;
}

/* Under compile_lock. */
static int get_library(struct metal_device *d, const struct ig_shader *s, id<MTLLibrary> *out,
		       struct ig_error *err)
{
	const bool tensor = s->tensor && d->facts.tensor_units;
	struct metal_library *l;
	NSError *e = nil;

	for (l = d->libraries; l; l = l->next) {
		if (l->shader == s) {
			*out = l->library;
			return 0;
		}
	}
	if (!s->source && !s->metallib)
		return ig_fail(err, -ENOTSUP, "metal: shaders %s were built without Metal source",
			       s->name);
	l = calloc(1, sizeof *l);
	if (!l)
		return ig_fail(err, -ENOMEM, "metal: no memory for shaders %s", s->name);
	if (!tensor && s->metallib && s->metallib_size)
		l->library = load_compiled(d, s);
	if (!l->library && s->source)
		l->library = compile(d, s, tensor, &e);
	if (!l->library) {
		free(l);
		return ig_fail(err, -EIO, "metal: shaders %s do not compile%s: %s", s->name,
			       tensor ? " for tensor units (runtime.tensor_units: never does "
					"without)" :
					"",
			       ig_metal_error_text(e));
	}
	l->shader = s;
	l->next = d->libraries;
	d->libraries = l;
	*out = l->library;
	return 0;
}

/* ---- pipelines ------------------------------------------------------------------------- */

static int check_limits(const struct metal_device *d, const struct ig_gpu_dispatch *q,
			id<MTLComputePipelineState> state, struct ig_error *err)
{
	uint64_t own = [state staticThreadgroupMemoryLength];

	if ([state threadExecutionWidth] != SIMD_WIDTH)
		return ig_fail(err, -ENOTSUP,
			       "metal: kernel %s: simdgroups of %lu threads on GPU '%s', "
			       "%d are needed",
			       q->kernel, (unsigned long)[state threadExecutionWidth],
			       d->facts.name, SIMD_WIDTH);
	if (q->threads > [state maxTotalThreadsPerThreadgroup])
		return ig_fail(err, -ENOTSUP,
			       "metal: kernel %s: GPU '%s' runs it with at most %lu "
			       "threads, %u are needed",
			       q->kernel, d->facts.name,
			       (unsigned long)[state maxTotalThreadsPerThreadgroup], q->threads);
	if (own + q->threadgroup_bytes > d->facts.max_threadgroup_bytes)
		return ig_fail(err, -ENOTSUP,
			       "metal: kernel %s: %" PRIu64 " bytes of threadgroup "
			       "memory, GPU '%s' has %u",
			       q->kernel, own + q->threadgroup_bytes, d->facts.name,
			       d->facts.max_threadgroup_bytes);
	return 0;
}

static int make_state(struct metal_device *d, const struct ig_gpu_dispatch *q,
		      id<MTLLibrary> library, id<MTLComputePipelineState> *out,
		      struct ig_error *err)
{
	NSError *e = nil;
	NSString *name = [NSString stringWithUTF8String:q->kernel];
	id<MTLFunction> function = name ? [library newFunctionWithName:name] : nil;

	if (!function)
		return ig_fail(err, -ENOTSUP, "metal: there is no kernel %s in shaders %s",
			       q->kernel, q->shader->name);
	MTLComputePipelineDescriptor *descriptor = [[MTLComputePipelineDescriptor alloc] init];
	[descriptor setLabel:name];
	[descriptor setComputeFunction:function];
	[descriptor setMaxTotalThreadsPerThreadgroup:q->threads];
	[descriptor setThreadGroupSizeIsMultipleOfThreadExecutionWidth:YES];
	*out = [d->device newComputePipelineStateWithDescriptor:descriptor
							options:MTLPipelineOptionNone
						     reflection:NULL
							  error:&e];
	[descriptor release];
	[function release];
	if (!*out)
		return ig_fail(err, -EIO, "metal: kernel %s: no pipeline: %s", q->kernel,
			       ig_metal_error_text(e));
	int rc = check_limits(d, q, *out, err);
	if (rc) {
		[*out release];
		*out = nil;
	}
	return rc;
}

/* Under compile_lock. */
static int get_state(struct metal_device *d, const struct ig_gpu_dispatch *q,
		     id<MTLComputePipelineState> *out, struct ig_error *err)
{
	struct metal_pipeline *p;
	id<MTLLibrary> library = nil;
	size_t n = strlen(q->kernel) + 1;

	for (p = d->pipelines; p; p = p->next) {
		if (p->shader != q->shader || p->threads != q->threads ||
		    strcmp(p->kernel, q->kernel))
			continue;
		*out = p->state;
		return check_limits(d, q, p->state, err); /* threadgroup memory may differ */
	}
	int rc = get_library(d, q->shader, &library, err);
	if (rc)
		return rc;
	p = malloc(sizeof *p + n);
	if (!p)
		return ig_fail(err, -ENOMEM, "metal: no memory for kernel %s", q->kernel);
	rc = make_state(d, q, library, &p->state, err);
	if (rc) {
		free(p);
		return rc;
	}
	p->shader = q->shader;
	p->threads = q->threads;
	memcpy(p->kernel, q->kernel, n);
	p->next = d->pipelines;
	d->pipelines = p;
	*out = p->state;
	return 0;
}

int ig_metal_pipeline_get(struct metal_device *d, const struct ig_gpu_dispatch *dispatch,
			  id<MTLComputePipelineState> *out, struct ig_error *err)
{
	NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];

	*out = nil;
	pthread_mutex_lock(&d->compile_lock);
	int rc = get_state(d, dispatch, out, err);
	pthread_mutex_unlock(&d->compile_lock);
	[pool release];
	return rc;
}

void ig_metal_pipelines_free(struct metal_device *d)
{
	while (d->pipelines) {
		struct metal_pipeline *p = d->pipelines;
		d->pipelines = p->next;
		[p->state release];
		free(p);
	}
	while (d->libraries) {
		struct metal_library *l = d->libraries;
		d->libraries = l->next;
		[l->library release];
		free(l);
	}
}
