/*
 * device.c: the device `cuda`: opening it and its memory.  Owns the primary context of one GPU and
 * two streams (steps; transfers of weights and of tests, so that a model loads while another one
 * runs).  Its kernels: modules.c.
 */
#include "runtime/cuda/cuda_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Two buffers, used alternately: the processor fills one while the other is copied.  Copying
 * 4 MiB (about 80 µs at the 50 GB/s of PCIe) takes longer than the two calls for it. */
#define TRANSFER_BYTES ((uint64_t)4 << 20)

/* ---- errors ------------------------------------------------------------------------ */

int ig_cuda_check(struct ig_cuda *d, CUresult r, const char *what, struct ig_error *err)
{
	struct ig_error e = { 0 };
	int rc = ig_libcuda_check(&d->cu, r, what, &e);

	if (!rc)
		return 0;
	if (rc == -ENODEV) {
		pthread_mutex_lock(&d->lost_lock);
		if (!atomic_exchange(&d->lost, true))
			d->why = e;
		pthread_mutex_unlock(&d->lost_lock);
	}
	if (err)
		*err = e;
	return rc;
}

int ig_cuda_enter(struct ig_cuda *d, struct ig_error *err)
{
	if (atomic_load(&d->lost)) {
		if (err) {
			pthread_mutex_lock(&d->lost_lock);
			*err = d->why;
			pthread_mutex_unlock(&d->lost_lock);
		}
		return -ENODEV;
	}
	return CUDA(d, ctx_set(d->ctx), "taking the context", err);
}

/* ---- opening ------------------------------------------------------------------------- */

/* Choose the GPU of that number, or of a negative one the first supported: sets dev, facts.name and
 * facts.arch.  The error names the first unsupported one. */
static int choose(struct ig_cuda *d, int64_t only, struct ig_error *err)
{
	char old[64] = "";
	int n = 0, rc, first_arch = 0;

	if ((rc = CUDA(d, device_count(&n), "counting GPUs", err)))
		return rc;
	if (only >= n)
		return ig_fail(err, -ENOTSUP, "cuda: there is no GPU %lld; %d are here",
			       (long long)only, n);
	for (int i = only < 0 ? 0 : (int)only; i < (only < 0 ? n : (int)only + 1); i++) {
		char name[64] = "";
		int major = 0, minor = 0;
		if ((rc = CUDA(d, device_get(&d->dev, i), "asking for a GPU", err)) ||
		    (rc = CUDA(d, device_name(name, (int)sizeof name, d->dev),
			       "asking for a GPU's name", err)) ||
		    (rc = CUDA(d, device_attribute(&major, CU_ATTRIBUTE_CAPABILITY_MAJOR, d->dev),
			       "asking for a GPU's capability", err)) ||
		    (rc = CUDA(d, device_attribute(&minor, CU_ATTRIBUTE_CAPABILITY_MINOR, d->dev),
			       "asking for a GPU's capability", err)))
			return rc;
		name[sizeof name - 1] = 0;
		if (major >= 8) {
			memcpy(d->facts.name, name, sizeof name);
			d->facts.arch = (uint32_t)(major * 10 + minor);
			return 0;
		}
		if (!first_arch) {
			first_arch = major * 10 + minor;
			memcpy(old, name, sizeof old);
		}
	}
	if (!n)
		return ig_fail(err, -ENOTSUP, "cuda: there is no NVIDIA GPU");
	return ig_fail(err, -ENOTSUP, "cuda: %s has compute capability %d.%d, expected 8.0 or more",
		       old, first_arch / 10, first_arch % 10);
}

/* The kernels of tiles need the barriers and copies of compute capability 9.0. */
static int choose_layout(struct ig_cuda *d, const char *repack, struct ig_error *err)
{
	d->facts.tiles = d->facts.arch == 90 && (!repack || strcmp(repack, "never") != 0);
	if (d->facts.tiles || !repack || strcmp(repack, "always") != 0)
		return 0;
	return ig_fail(err, -EINVAL,
		       "cuda: repack \"always\": %s has compute capability %u.%u, expected 9.0",
		       d->facts.name, d->facts.arch / 10, d->facts.arch % 10);
}

static int read_facts(struct ig_cuda *d, struct ig_error *err)
{
	struct ig_gpu_facts *f = &d->facts;
	size_t free_bytes = 0, total_bytes = 0;
	int cores = 0, shared = 0, threads = 0, rc;

	if ((rc = CUDA(d, mem_info(&free_bytes, &total_bytes), "asking for free memory", err)) ||
	    (rc = CUDA(d, device_attribute(&cores, CU_ATTRIBUTE_MULTIPROCESSOR_COUNT, d->dev),
		       "counting multiprocessors", err)) ||
	    (rc = CUDA(d, device_attribute(&shared, CU_ATTRIBUTE_MAX_SHARED_OPTIN, d->dev),
		       "asking for shared memory", err)) ||
	    (rc = CUDA(d, device_attribute(&threads, CU_ATTRIBUTE_MAX_THREADS_PER_BLOCK, d->dev),
		       "asking for the number of threads", err)))
		return rc;
	f->struct_size = sizeof *f;
	f->kind = IG_GPU_CUDA;
	f->n_cores = (uint32_t)(cores > 0 ? cores : 0);
	f->max_threadgroup_bytes = (uint32_t)(shared > 0 ? shared : 0);
	f->max_threads = (uint32_t)(threads > 0 ? threads : 0);
	f->max_buffer_bytes = total_bytes;
	/* Without the memory of other processes, and without 2 % for the NVIDIA driver, which
	 * allocates for kernels and recordings when they are created. */
	f->working_set_bytes = free_bytes - free_bytes / 50;
	return 0;
}

/* A kernel for count_clusters(). */
static const char nothing_ptx[] = ".version 7.8\n"
				  ".target sm_90\n"
				  ".address_size 64\n"
				  ".visible .entry nothing () { ret; }\n";

/* Sets facts.n_clusters.  How many clusters fit is a property of the single GPU: of eight threadgroups
 * one H200 has room for 15, and its 132 multiprocessors let one expect 16. */
static int count_clusters(struct ig_cuda *d, struct ig_error *err)
{
	static const char what[] = "counting clusters";
	const uint32_t bytes = d->facts.max_threadgroup_bytes;
	CUmodule m = NULL;
	CUfunction f;
	int rc;

	if (d->facts.arch != 90 || !d->cu.max_clusters)
		return 0;
	rc = CUDA(d, module_load(&m, nothing_ptx, 0, NULL, NULL), what, err);
	if (rc)
		return rc;
	rc = CUDA(d, module_function(&f, m, "nothing"), what, err);
	if (!rc)
		rc = CUDA(d, func_set(f, CU_FUNC_MAX_DYNAMIC_SHARED_BYTES, (int)bytes), what, err);
	for (uint32_t i = 0; i < 3 && 2u << i <= d->facts.n_cores && !rc; i++) {
		const uint32_t size = 2u << i;
		CUlaunchAttribute cluster = { .id = CU_NODE_CLUSTER,
					      .value.cluster = { size, 1, 1 } };
		const CUlaunchConfig config = { .grid_x = d->facts.n_cores / size * size,
						.grid_y = 1,
						.grid_z = 1,
						.block_x = 32,
						.block_y = 1,
						.block_z = 1,
						.shared_bytes = bytes,
						.attributes = &cluster,
						.n_attributes = 1 };
		int n = 0;
		rc = CUDA(d, max_clusters(&n, f, &config), what, err);
		d->facts.n_clusters[i] = (uint32_t)(n > 0 ? n : 0);
	}
	d->cu.module_unload(m);
	return rc;
}

static int make_transfers(struct ig_cuda *d, struct ig_error *err)
{
	int rc =
		CUDA(d, stream_create(&d->steps, CU_STREAM_NON_BLOCKING), "creating a stream", err);

	if (!rc)
		rc = CUDA(d, stream_create(&d->transfers, CU_STREAM_NON_BLOCKING),
			  "creating a stream", err);
	for (int i = 0; !rc && i < 2; i++) {
		rc = ig_cuda_pin(d, TRANSFER_BYTES, &d->pinned[i], err);
		if (!rc)
			rc = CUDA(d, event_create(&d->pinned_free[i], CU_EVENT_DISABLE_TIMING),
				  "creating an event", err);
	}
	return rc;
}

/* Free everything; errors are ignored. */
static void close_device(struct ig_gpu_device *base)
{
	struct ig_cuda *d = ig_cuda_of(base);

	if (d->ctx) {
		d->cu.ctx_set(d->ctx);
		ig_cuda_disconnect(d);
		ig_cuda_modules_unload(d);
		/* Memory must not be freed while it is in use. */
		if (d->transfers) {
			d->cu.stream_sync(d->transfers);
			d->cu.stream_destroy(d->transfers);
		}
		if (d->steps) {
			d->cu.stream_sync(d->steps);
			d->cu.stream_destroy(d->steps);
		}
		for (int i = 0; i < 2; i++) {
			if (d->pinned_free[i])
				d->cu.event_destroy(d->pinned_free[i]);
			if (d->pinned[i])
				d->cu.host_free(d->pinned[i]);
		}
		d->cu.ctx_set(NULL);
		d->cu.ctx_release(d->dev);
	}
	ig_libcuda_close(&d->cu);
	pthread_mutex_destroy(&d->transfer_lock);
	pthread_mutex_destroy(&d->module_lock);
	pthread_mutex_destroy(&d->lost_lock);
	free(d);
}

static int open_device(const struct ig_driver_options *o, struct ig_gpu_device **out,
		       struct ig_error *err)
{
	struct ig_cuda *d = calloc(1, sizeof *d);
	int rc;

	*out = NULL;
	if (!d)
		return ig_fail(err, -ENOMEM, "cuda: no memory");
	d->base.class = &ig_gpu_cuda;
	pthread_mutex_init(&d->transfer_lock, NULL);
	pthread_mutex_init(&d->module_lock, NULL);
	pthread_mutex_init(&d->lost_lock, NULL);
	if ((rc = ig_libcuda_open(&d->cu, err)))
		goto fail;
	/* A library without a GPU, or one that does not fit the kernel module: -ENOTSUP, so that
	 * "auto" tries the next driver. */
	rc = CUDA(d, init(0), "starting the NVIDIA driver", err);
	if (!rc)
		rc = choose(d, o->n_devices ? (int64_t)o->devices[0] : -1, err);
	if (rc) {
		rc = -ENOTSUP;
		goto fail;
	}
	if ((rc = CUDA(d, driver_version(&d->driver_version), "asking for the version", err)) ||
	    (rc = CUDA(d, ctx_retain(&d->ctx, d->dev), "creating a context", err)) ||
	    (rc = ig_cuda_enter(d, err)) || (rc = read_facts(d, err)) ||
	    (rc = choose_layout(d, o->repack, err)) || (rc = count_clusters(d, err)) ||
	    (rc = make_transfers(d, err)))
		goto fail;
	*out = &d->base;
	return 0;
fail:
	if (err && err->code != rc)
		err->code = rc;
	close_device(&d->base);
	return rc;
}

static int count_devices(struct ig_error *err)
{
	struct ig_libcuda cu;
	int n = 0, rc = ig_libcuda_open(&cu, err);

	if (rc)
		return rc;
	rc = ig_libcuda_check(&cu, cu.init(0), "starting the NVIDIA driver", err);
	if (!rc)
		rc = ig_libcuda_check(&cu, cu.device_count(&n), "counting GPUs", err);
	ig_libcuda_close(&cu);
	return rc ? -ENOTSUP : n;
}

static const struct ig_gpu_facts *facts(const struct ig_gpu_device *d)
{
	return &((const struct ig_cuda *)d)->facts;
}

/* ---- memory ---------------------------------------------------------------------------- */

int ig_cuda_pin(struct ig_cuda *d, uint64_t n_bytes, void **out, struct ig_error *err)
{
	return CUDA(d, host_alloc(out, n_bytes, 0), "pinning memory of the host", err);
}

static int alloc_buffer(struct ig_gpu_device *base, uint64_t n_bytes, uint32_t memory,
			struct ig_gpu_buffer **out, struct ig_error *err)
{
	struct ig_cuda *d = ig_cuda_of(base);
	struct ig_gpu_buffer *b;
	char what[64];
	int rc = ig_cuda_enter(d, err);

	*out = NULL;
	if (rc)
		return rc;
	if (!n_bytes || memory > IG_GPU_MEMORY_SLAB)
		return ig_fail(err, -EINVAL, "cuda: %llu bytes of memory of kind %u",
			       (unsigned long long)n_bytes, memory);
	b = calloc(1, sizeof *b);
	if (!b)
		return ig_fail(err, -ENOMEM, "cuda: no memory");
	b->n_bytes = n_bytes;
	snprintf(what, sizeof what, "allocating %llu bytes", (unsigned long long)n_bytes);
	rc = CUDA(d, mem_alloc(&b->at, n_bytes), what, err);
	if (rc) {
		free(b);
		return rc;
	}
	*out = b;
	return 0;
}

static void free_buffer(struct ig_gpu_device *base, struct ig_gpu_buffer *b)
{
	struct ig_cuda *d = ig_cuda_of(base);
	if (!b)
		return;
	d->cu.ctx_set(d->ctx);
	d->cu.mem_free(b->at); /* fails if the context is lost */
	free(b);
}

static uint64_t address(const struct ig_gpu_buffer *b) { return b->at; }

static int check_range(const struct ig_gpu_buffer *b, uint64_t offset, uint64_t n_bytes,
		       struct ig_error *err)
{
	if (offset > b->n_bytes || n_bytes > b->n_bytes - offset)
		return ig_fail(err, -EINVAL, "cuda: %llu bytes at %llu of a buffer of %llu",
			       (unsigned long long)n_bytes, (unsigned long long)offset,
			       (unsigned long long)b->n_bytes);
	return 0;
}

static int write_buffer(struct ig_gpu_device *base, struct ig_gpu_buffer *b, uint64_t offset,
			const void *src, uint64_t n_bytes, struct ig_error *err)
{
	static const char what[] = "copying to the GPU";
	struct ig_cuda *d = ig_cuda_of(base);
	int rc = check_range(b, offset, n_bytes, err), i = 0;

	if (rc || (rc = ig_cuda_enter(d, err)))
		return rc;
	pthread_mutex_lock(&d->transfer_lock);
	for (uint64_t done = 0, n; !rc && done < n_bytes; done += n, i ^= 1) {
		n = n_bytes - done < TRANSFER_BYTES ? n_bytes - done : TRANSFER_BYTES;
		/* returns at once if the event was never recorded */
		rc = CUDA(d, event_sync(d->pinned_free[i]), what, err);
		if (rc)
			break;
		memcpy(d->pinned[i], (const char *)src + done, n);
		rc = CUDA(d, to_device(b->at + offset + done, d->pinned[i], n, d->transfers), what,
			  err);
		if (!rc)
			rc = CUDA(d, event_record(d->pinned_free[i], d->transfers), what, err);
	}
	/* Also after an error: the next transfer overwrites the buffers. */
	int end = CUDA(d, stream_sync(d->transfers), what, rc ? NULL : err);
	pthread_mutex_unlock(&d->transfer_lock);
	return rc ? rc : end;
}

static int read_buffer(struct ig_gpu_device *base, struct ig_gpu_buffer *b, uint64_t offset,
		       void *dst, uint64_t n_bytes, struct ig_error *err)
{
	static const char what[] = "copying from the GPU";
	struct ig_cuda *d = ig_cuda_of(base);
	int rc = check_range(b, offset, n_bytes, err);

	if (rc || (rc = ig_cuda_enter(d, err)))
		return rc;
	pthread_mutex_lock(&d->transfer_lock);
	for (uint64_t done = 0, n; !rc && done < n_bytes; done += n) {
		n = n_bytes - done < TRANSFER_BYTES ? n_bytes - done : TRANSFER_BYTES;
		rc = CUDA(d, to_host(d->pinned[0], b->at + offset + done, n, d->transfers), what,
			  err);
		if (!rc)
			rc = CUDA(d, stream_sync(d->transfers), what, err);
		if (!rc)
			memcpy((char *)dst + done, d->pinned[0], n);
	}
	pthread_mutex_unlock(&d->transfer_lock);
	return rc;
}

const struct ig_gpu_device_class ig_gpu_cuda = {
	.name = "cuda",
	.open = open_device,
	.close = close_device,
	.facts = facts,
	.alloc = alloc_buffer,
	.free = free_buffer,
	.address = address,
	.write = write_buffer,
	.read = read_buffer,
	.program_create = ig_cuda_program_create,
	.program_destroy = ig_cuda_program_destroy,
	.prepare = ig_cuda_prepare,
	.staging = ig_cuda_staging,
	.submit = ig_cuda_submit,
	.wait = ig_cuda_wait,
	.count = count_devices,
	.connect = ig_cuda_connect,
	.abort = ig_cuda_abort,
};
