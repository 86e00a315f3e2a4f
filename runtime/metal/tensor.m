/*
 * tensor.m: the tensor units that Apple's GPUs have from the M5 on, which Metal 4's language reaches by
 * matmul2d.  A GPU's family and its architecture's name say that they are there; not every GPU of such a name has
 * them, compilers of several versions of macOS did not know them, and the language promises less than our kernels need: that a
 * row has the same bits among few rows as among many.  So the driver multiplies a little when it opens the device
 * (shaders/metal/tensor_probe.metal), and compares.  If anything is wrong, it says so and uses the kernels
 * of older GPUs.
 */
#include "runtime/metal/metal_private.h"
#include "base/log.h"
#include "shaders/args.h"
#include "shaders/core/shapes.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const struct ig_shader ig_shader_tensor_probe;

#define N TENSOR_PROBE_ROWS
#define K 256
/* The largest error of a sum, relative to the sum of its products' sizes: such as float adds 256 products, and far
 * from what half the precision would give. */
#define TOLERANCE 1e-5

/* Values whose sums round, so that their order shows: (1 + m / 64) * 2^e, m below 64, e from -6 to 0, which is exact
 * as half and as bfloat. */
struct value {
	uint16_t half, bfloat;
	double exact;
};

static struct value next_value(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	const uint32_t bits = (uint32_t)(*seed >> 33), sign = bits & 1, m = bits >> 1 & 63,
		       e = (bits >> 7) % 7;
	return (struct value){
		.half = (uint16_t)(sign << 15 | (15 - e) << 10 | m << 4),
		.bfloat = (uint16_t)(sign << 15 | (127 - e) << 7 | m << 1),
		.exact = (sign ? -1.0 : 1.0) * (1.0 + m / 64.0) * ldexp(1.0, -(int)e),
	};
}

/* x and w, as float64 and in one of the types. */
struct operands {
	double x[N][K], w[N][K];
};

static void fill(struct operands *o, uint16_t *x, uint16_t *w, bool half)
{
	uint64_t seed = 1;

	for (int r = 0; r < (int)N; r++) {
		for (int k = 0; k < K; k++) {
			const struct value a = next_value(&seed), b = next_value(&seed);
			o->x[r][k] = a.exact;
			o->w[r][k] = b.exact;
			x[r * K + k] = half ? a.half : a.bfloat;
			w[r * K + k] = half ? b.half : b.bfloat;
		}
	}
}

/* Bytes of the probe's buffer: x, w, the results of few rows and of many. */
#define OPERAND_BYTES (N * K * 2)
#define RESULT_BYTES (N * N * 4)

struct probe_kernel {
	const char *name;
	/* BM, BN, BK, simdgroups along rows, along columns, stages, 1 (shapes.h) */
	uint32_t shape[7];
	uint64_t y; /* in the buffer */
};

static int encode(struct metal_device *d, const struct probe_kernel *p, id<MTLBuffer> memory,
		  id<MTLComputeCommandEncoder> encoder, struct ig_error *err)
{
	const uint32_t *s = p->shape;
	const uint32_t walk = s[5] * (s[0] + s[1]) * s[2] * 2, sums = s[0] * s[1] * 4;
	const struct tensor_probe_args args = { K };
	struct ig_gpu_dispatch q = { .struct_size = sizeof q,
				     .shader = &ig_shader_tensor_probe,
				     .kernel = p->name,
				     .threads = s[3] * s[4] * 32,
				     .threadgroup_bytes = walk > sums ? walk : sums };
	id<MTLComputePipelineState> state;
	int rc = ig_metal_pipeline_get(d, &q, &state, err);

	if (rc)
		return rc;
	[encoder setComputePipelineState:state];
	[encoder setBytes:&args length:sizeof args atIndex:0];
	[encoder setBuffer:memory offset:0 atIndex:1];
	[encoder setBuffer:memory offset:OPERAND_BYTES atIndex:2];
	[encoder setBuffer:memory offset:p->y atIndex:3];
	[encoder setThreadgroupMemoryLength:q.threadgroup_bytes atIndex:0];
	[encoder dispatchThreadgroups:MTLSizeMake(N / s[1], N / s[0], 1)
		threadsPerThreadgroup:MTLSizeMake(q.threads, 1, 1)];
	return 0;
}

/* Run both kernels over what the buffer holds. */
static int run(struct metal_device *d, bool half, id<MTLBuffer> memory, struct ig_error *err)
{
	const struct probe_kernel kernels[] = {
		{ half ? "probe_tensor_few_f16" : "probe_tensor_few_bf16",
		  { SHAPE_METAL_TENSOR_FEW },
		  2 * OPERAND_BYTES },
		{ half ? "probe_tensor_tile_f16" : "probe_tensor_tile_bf16",
		  { SHAPE_METAL_TENSOR_TILE },
		  2 * OPERAND_BYTES + RESULT_BYTES },
	};
	id<MTLCommandBuffer> b = [d->queue commandBuffer];
	id<MTLComputeCommandEncoder> encoder =
		[b computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial];
	int rc = encoder ? 0 : ig_fail(err, -EIO, "metal: no encoder");

	for (int i = 0; i < 2 && !rc; i++)
		rc = encode(d, &kernels[i], memory, encoder, err);
	[encoder endEncoding];
	if (rc)
		return rc;
	[b encodeSignalEvent:d->event value:++d->n_signals];
	[b commit];
	return ig_metal_wait_for(d, b, "the trial of its tensor units", err);
}

static int compare(const struct operands *o, const float *few, const float *tile, const char *type,
		   struct ig_error *err)
{
	for (int r = 0; r < (int)N; r++) {
		for (int c = 0; c < (int)N; c++) {
			double sum = 0.0, size = 0.0;
			const float got = few[r * (int)N + c];
			for (int k = 0; k < K; k++) {
				sum += o->x[r][k] * o->w[c][k];
				size += fabs(o->x[r][k] * o->w[c][k]);
			}
			if (!(fabs(got - sum) <= TOLERANCE * size))
				return ig_fail(err, -EIO, "a product in %s is %.9g, expected %.9g",
					       type, (double)got, sum);
			if (memcmp(&few[r * (int)N + c], &tile[r * (int)N + c], sizeof got))
				return ig_fail(err, -EIO,
					       "a product in %s is %.9g among few rows and %.9g "
					       "among many",
					       type, (double)got, (double)tile[r * (int)N + c]);
		}
	}
	return 0;
}

static int try_out(struct metal_device *d, struct ig_error *err)
{
	struct operands *o = malloc(sizeof *o);
	id<MTLBuffer> memory = [d->device newBufferWithLength:2 * OPERAND_BYTES + 2 * RESULT_BYTES
						      options:MTLResourceStorageModeShared];
	int rc = o && memory ? 0 : ig_fail(err, -ENOMEM, "no memory");

	for (int half = 1; half >= 0 && !rc; half--) {
		char *at = [memory contents];
		memset(at, 0xff, 2 * OPERAND_BYTES + 2 * RESULT_BYTES); /* NaN */
		fill(o, (uint16_t *)at, (uint16_t *)(at + OPERAND_BYTES), half);
		rc = run(d, half, memory, err);
		if (!rc)
			rc = compare(o, (float *)(at + 2 * OPERAND_BYTES),
				     (float *)(at + 2 * OPERAND_BYTES + RESULT_BYTES),
				     half ? "float16" : "bfloat16", err);
	}
	[memory release];
	free(o);
	return rc;
}

/* applegpu_g17s: the generation, and whether it is a phone's; the M5's is 17, the A18's too, without such units. */
static bool is_named(id<MTLDevice> device)
{
	const char *name = [[[device architecture] name] UTF8String];
	unsigned generation = 0;
	char kind = 0;

	return name && sscanf(name, "applegpu_g%3u%c", &generation, &kind) == 2 &&
	       generation >= (kind == 'p' ? 18 : 17);
}

void ig_metal_try_tensor_units(struct metal_device *d)
{
	struct ig_error err = { 0 };

	if (![d->device supportsFamily:METAL_FAMILY_APPLE10] ||
	    ![d->device supportsFamily:METAL_FAMILY_METAL4] || !is_named(d->device))
		return;
	d->facts.tensor_units = 1;
	if (!try_out(d, &err))
		return;
	d->facts.tensor_units = 0;
	ig_log_warn("metal: the tensor units of GPU '%s' are not used: %s", d->facts.name,
		    err.text);
}
