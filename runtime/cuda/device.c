/*
 * device.c: the device `cuda`: opening it, its memory, its kernels.  Owns the primary context of
 * one GPU, two streams (steps; transfers of weights and of tests, so that a model loads while
 * another one runs) and the modules compiled from PTX.
 */
#include "runtime/cuda/cuda_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Two buffers, used alternately: the processor fills one while the other is copied.  Copying
 * 4 MiB (about 80 µs at the 50 GB/s of PCIe) takes longer than the two calls for it. */
#define TRANSFER_BYTES ((uint64_t)4 << 20)
#define JIT_LOG_BYTES 4096u

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

/* Choose the first supported GPU: sets dev, facts.name and facts.arch.  The error names the first
 * unsupported one. */
static int choose(struct ig_cuda *d, struct ig_error *err)
{
	char old[64] = "";
	int n = 0, rc, first_arch = 0;

	if ((rc = CUDA(d, device_count(&n), "counting GPUs", err)))
		return rc;
	for (int i = 0; i < n; i++) {
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
	f->tiles = f->arch == 90; /* their kernels need its barriers and copies */
	f->n_cores = (uint32_t)(cores > 0 ? cores : 0);
	f->max_threadgroup_bytes = (uint32_t)(shared > 0 ? shared : 0);
	f->max_threads = (uint32_t)(threads > 0 ? threads : 0);
	f->max_buffer_bytes = total_bytes;
	/* Without the memory of other processes, and without 2 % for the NVIDIA driver, which
	 * allocates for kernels and recordings when they are created. */
	f->working_set_bytes = free_bytes - free_bytes / 50;
	return 0;
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
		for (struct ig_cuda_module *m = d->modules, *next; m; m = next) {
			next = m->next;
			d->cu.module_unload(m->module);
			free(m);
		}
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
		rc = choose(d, err);
	if (rc) {
		rc = -ENOTSUP;
		goto fail;
	}
	if ((rc = CUDA(d, driver_version(&d->driver_version), "asking for the version", err)) ||
	    (rc = CUDA(d, ctx_retain(&d->ctx, d->dev), "creating a context", err)) ||
	    (rc = ig_cuda_enter(d, err)) || (rc = read_facts(d, err)) ||
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

/* ---- kernels ------------------------------------------------------------------------------ */

static int load_module(struct ig_cuda *d, const struct ig_shader *shader, CUmodule *out,
		       struct ig_error *err)
{
	const char *ptx =
		d->facts.arch == 90 && shader->ptx_sm90a ? shader->ptx_sm90a : shader->ptx_sm80;
	char log[JIT_LOG_BYTES] = "", what[128];
	int options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_BYTES };
	void *values[] = { log, (void *)(uintptr_t)sizeof log };
	struct ig_cuda_module *m;
	struct ig_error e = { 0 };
	int rc;

	for (m = d->modules; m; m = m->next)
		if (m->shader == shader) {
			*out = m->module;
			return 0;
		}
	if (!ptx)
		return ig_fail(err, -ENOTSUP,
			       "cuda: shader %s was built without PTX (build with clang 19)",
			       shader->name);
	m = calloc(1, sizeof *m);
	if (!m)
		return ig_fail(err, -ENOMEM, "cuda: no memory");
	m->shader = shader;
	snprintf(what, sizeof what, "compiling shader %s", shader->name);
	rc = CUDA(d, module_load(&m->module, ptx, 2, options, values), what, &e);
	if (rc) {
		free(m);
		log[sizeof log - 1] = 0;
		for (char *c = log; *c; c++)
			if (*c == '\n')
				*c = ' ';
		if (rc == -ENOTSUP)
			return ig_fail(err, rc, "%.300s; the driver is CUDA %d.%d", e.text,
				       d->driver_version / 1000, d->driver_version % 1000 / 10);
		return ig_fail(err, rc, "%.200s%s%.280s", e.text, log[0] ? ": " : "", log);
	}
	m->next = d->modules;
	d->modules = m;
	*out = m->module;
	return 0;
}

/* Check that the kernel's parameters fit the dispatch.  Argument structs are passed by value: if
 * sizes differ, the library reads past the end. */
static int check_params(struct ig_cuda *d, const struct ig_gpu_dispatch *dispatch, CUfunction f,
			struct ig_error *err)
{
	uint32_t n = 2;
	size_t offset, size;

	if (!d->cu.func_param)
		return 0;
	for (uint32_t i = 0; i < dispatch->n_binds; i++)
		n += !(dispatch->bind[i].access & IG_GPU_TOUCH);
	if (d->cu.func_param(f, 0, &offset, &size) || size != dispatch->n_arg_bytes)
		return ig_fail(err, -EINVAL,
			       "cuda: kernel %s of %s takes arguments of another size than "
			       "%u bytes",
			       dispatch->kernel, dispatch->shader->name, dispatch->n_arg_bytes);
	if (d->cu.func_param(f, n - 1, &offset, &size) ||
	    d->cu.func_param(f, n, &offset, &size) == CUDA_SUCCESS)
		return ig_fail(err, -EINVAL, "cuda: kernel %s of %s does not take %u operands",
			       dispatch->kernel, dispatch->shader->name, n - 2);
	for (uint32_t i = 0, at = 2; i < dispatch->n_binds; i++) {
		size_t expected = sizeof(CUdeviceptr);
		if (dispatch->bind[i].access & IG_GPU_TOUCH)
			continue;
		if (ig_cuda_box(dispatch, i))
			expected = sizeof(CUtensorMap);
		if (d->cu.func_param(f, at++, &offset, &size) || size != expected)
			return ig_fail(err, -EINVAL,
				       "cuda: kernel %s of %s takes operand %u as another type",
				       dispatch->kernel, dispatch->shader->name, i);
	}
	return 0;
}

static int prepare(struct ig_cuda *d, const struct ig_gpu_dispatch *dispatch, CUfunction f,
		   struct ig_error *err)
{
	const uint32_t bytes = dispatch->threadgroup_bytes;
	int threads = 0, own = 0, now = 0, rc;
	char what[128];

	snprintf(what, sizeof what, "looking at kernel %s", dispatch->kernel);
	if ((rc = CUDA(d, func_get(&threads, CU_FUNC_MAX_THREADS_PER_BLOCK, f), what, err)) ||
	    (rc = CUDA(d, func_get(&own, CU_FUNC_SHARED_BYTES, f), what, err)) ||
	    (rc = CUDA(d, func_get(&now, CU_FUNC_MAX_DYNAMIC_SHARED_BYTES, f), what, err)))
		return rc;
	if (dispatch->threads > (uint32_t)threads)
		return ig_fail(err, -ENOTSUP,
			       "cuda: kernel %s runs with at most %d threads a group, not %u",
			       dispatch->kernel, threads, dispatch->threads);
	if ((uint64_t)bytes + (uint32_t)own > d->facts.max_threadgroup_bytes)
		return ig_fail(err, -ENOTSUP,
			       "cuda: kernel %s wants %u bytes of threadgroup memory, %s has %u",
			       dispatch->kernel, bytes + (uint32_t)own, d->facts.name,
			       d->facts.max_threadgroup_bytes);
	/* More than 48 KB must be requested.  The limit is never lowered: another dispatch of the
	 * same kernel may need it. */
	if (bytes > (uint32_t)(now > 0 ? now : 0)) {
		snprintf(what, sizeof what, "giving kernel %s %u bytes of threadgroup memory",
			 dispatch->kernel, bytes);
		rc = CUDA(d, func_set(f, CU_FUNC_MAX_DYNAMIC_SHARED_BYTES, (int)bytes), what, err);
	}
	return rc ? rc : check_params(d, dispatch, f, err);
}

int ig_cuda_function(struct ig_cuda *d, const struct ig_gpu_dispatch *dispatch, CUfunction *out,
		     struct ig_error *err)
{
	CUmodule module;
	CUresult r;
	char what[128];
	int rc;

	pthread_mutex_lock(&d->module_lock);
	if ((rc = load_module(d, dispatch->shader, &module, err)))
		goto out;
	r = d->cu.module_function(out, module, dispatch->kernel);
	if (r == CUDA_ERROR_NOT_FOUND) {
		rc = ig_fail(err, -ENOTSUP, "cuda: shader %s has no kernel %s",
			     dispatch->shader->name, dispatch->kernel);
		goto out;
	}
	snprintf(what, sizeof what, "finding kernel %s", dispatch->kernel);
	rc = ig_cuda_check(d, r, what, err);
	if (!rc)
		rc = prepare(d, dispatch, *out, err);
out:
	pthread_mutex_unlock(&d->module_lock);
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
	.staging = ig_cuda_staging,
	.submit = ig_cuda_submit,
	.wait = ig_cuda_wait,
};
