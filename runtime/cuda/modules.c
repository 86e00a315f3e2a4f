/*
 * modules.c: kernels.  Each is compiled from PTX by NVIDIA's driver when the first program uses it,
 * which takes up to a second.  Several threads are not faster: the driver compiles one at a time.  It
 * keeps what it compiled in a folder of its own (CUDA_CACHE_PATH), and later starts only read it.
 */
#include "base/clock.h"
#include "base/log.h"
#include "runtime/cuda/cuda_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define JIT_LOG_BYTES 4096u
#define PROGRESS_NS 3000000000 /* of compiling, between two lines of the log */

static struct ig_cuda_module *find(const struct ig_cuda *d, const struct ig_ptx *ptx)
{
	struct ig_cuda_module *m = d->modules;

	while (m && m->ptx != ptx)
		m = m->next;
	return m;
}

/* The PTX of a dispatch's kernel for this device. */
static const struct ig_ptx *choose(const struct ig_cuda *d, const struct ig_gpu_dispatch *dispatch,
				   struct ig_error *err)
{
	const struct ig_shader *s = dispatch->shader;
	bool own = d->facts.arch == 90 && s->n_sm90a;
	const struct ig_ptx *p = own ? s->ptx_sm90a : s->ptx_sm80;
	uint32_t n = own ? s->n_sm90a : s->n_sm80;

	for (uint32_t i = 0; i < n; i++)
		if (!strcmp(p[i].kernel, dispatch->kernel))
			return &p[i];
	ig_fail(err, -ENOTSUP,
		n ? "cuda: shader %s has no kernel %s" :
		    "cuda: shader %s was built without PTX (build with clang 19), kernel %s",
		s->name, dispatch->kernel);
	return NULL;
}

/* ---- compiling ---------------------------------------------------------------------- */

/* The PTX as text, to be freed. */
static char *inflate_ptx(const struct ig_ptx *p)
{
	uLongf n = p->n_text;
	char *text = malloc((size_t)p->n_text + 1);

	if (!text)
		return NULL;
	if (uncompress((Bytef *)text, &n, p->zlib, p->n_bytes) != Z_OK || n != p->n_text) {
		free(text);
		return NULL;
	}
	text[n] = 0;
	return text;
}

static int compile(struct ig_cuda *d, const struct ig_ptx *ptx, CUmodule *out, bool *waits,
		   struct ig_error *err)
{
	char log[JIT_LOG_BYTES] = "", what[128];
	int options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_BYTES };
	void *values[] = { log, (void *)(uintptr_t)sizeof log };
	struct ig_error e = { 0 };
	char *text = inflate_ptx(ptx);

	if (!text)
		return ig_fail(err, -ENOMEM,
			       "cuda: no memory for the PTX of kernel %s, or it is damaged",
			       ptx->kernel);
	snprintf(what, sizeof what, "compiling kernel %s", ptx->kernel);
	int rc = CUDA(d, module_load(out, text, 2, options, values), what, &e);
	*waits = strstr(text, "griddepcontrol.wait") != NULL;
	free(text);
	if (!rc)
		return 0;
	log[sizeof log - 1] = 0;
	for (char *c = log; *c; c++)
		if (*c == '\n')
			*c = ' ';
	if (rc == -ENOTSUP)
		return ig_fail(err, rc, "%.300s; the driver is CUDA %d.%d", e.text,
			       d->driver_version / 1000, d->driver_version % 1000 / 10);
	return ig_fail(err, rc, "%.200s%s%.280s", e.text, log[0] ? ": " : "", log);
}

/* ---- modules ------------------------------------------------------------------------ */

static int load(struct ig_cuda *d, const struct ig_ptx *ptx, struct ig_cuda_module **out,
		struct ig_error *err)
{
	struct ig_cuda_module *m = calloc(1, sizeof *m);
	int64_t start = ig_now_ns();
	int rc;

	if (!m)
		return ig_fail(err, -ENOMEM, "cuda: no memory");
	rc = compile(d, ptx, &m->module, &m->waits, err);
	if (rc) {
		free(m);
		return rc;
	}
	m->ptx = ptx;
	m->next = d->modules;
	d->modules = *out = m;
	d->n_modules++;
	d->untold_ns += ig_now_ns() - start;
	if (d->untold_ns > PROGRESS_NS) {
		ig_log_info("cuda: %u kernels are compiled for %s; the driver keeps them for the "
			    "next start",
			    d->n_modules, d->facts.name);
		d->untold_ns = 0;
	}
	return 0;
}

void ig_cuda_modules_unload(struct ig_cuda *d)
{
	for (struct ig_cuda_module *m = d->modules, *next; m; m = next) {
		next = m->next;
		d->cu.module_unload(m->module);
		free(m);
	}
	d->modules = NULL;
}

/* ---- kernels ------------------------------------------------------------------------ */

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
		     bool *waits, struct ig_error *err)
{
	const struct ig_ptx *ptx = choose(d, dispatch, err);
	struct ig_cuda_module *m;
	char what[128];
	int rc = 0;

	if (!ptx)
		return -ENOTSUP;
	pthread_mutex_lock(&d->module_lock);
	m = find(d, ptx);
	if (!m)
		rc = load(d, ptx, &m, err);
	snprintf(what, sizeof what, "finding kernel %s", dispatch->kernel);
	if (!rc)
		*waits = m->waits;
	if (!rc)
		rc = CUDA(d, module_function(out, m->module, dispatch->kernel), what, err);
	if (!rc)
		rc = prepare(d, dispatch, *out, err);
	pthread_mutex_unlock(&d->module_lock);
	return rc;
}
