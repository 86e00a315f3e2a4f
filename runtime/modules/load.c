/* load.c: maps a module's file and checks it as data.  A refused module stays mapped, because its
 * constructors may have run, but none of its functions is called. */
#include "runtime/modules/modules_private.h"
#include "base/build_id.h"
#include "model/formats/checkpoint.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The sizes in ABI 1.0, the smallest allowed. */
#define MODULE_BYTES_1_0 96u
#define ARCH_BYTES_1_0 40u

/* ---- checks, on data alone -------------------------------------------------------- */

static int check_op(const struct ig_op *op, const char *path, struct ig_error *err)
{
	if (op->struct_size != sizeof *op || !op->name || !op->version || !op->check ||
	    !op->reference || op->params_size < sizeof(uint32_t))
		return ig_fail(err, -ENOEXEC, "module %s: op \"%s\" is incomplete", path,
			       op->struct_size >= sizeof *op && op->name ? op->name : "?");
	for (uint32_t i = 0; i < op->n_cpu_kernels; i++)
		if (op->cpu_kernels[i].struct_size != sizeof(struct ig_cpu_kernel) ||
		    !op->cpu_kernels[i].n_units || !op->cpu_kernels[i].run)
			return ig_fail(err, -ENOEXEC,
				       "module %s: op \"%s\": kernel %u is incomplete", path,
				       op->name, i);
	return 0;
}

static int check_kvcache(const struct ig_kvcache_service *s, const char *path, struct ig_error *err)
{
	if (s->struct_size != sizeof *s || !s->name)
		return ig_fail(err, -ENOEXEC, "module %s: its kvcache service is incomplete", path);
	if (s->version != IG_KVCACHE_VERSION)
		return ig_fail(err, -ENOEXEC,
			       "module %s: kvcache service \"%s\" is of version %u, expected %u",
			       path, s->name, s->version, IG_KVCACHE_VERSION);
	return 0;
}

/* Tier 2 requires the same build id. */
static int check_tier2(const struct ig_module *d, const char *path, struct ig_error *err)
{
	int rc = 0;

	if (!d->ops && !d->kvcache)
		return 0;
	if (strncmp(d->build_id, ig_build_id, sizeof d->build_id))
		return ig_fail(err, -ENOEXEC,
			       "module %s: brings ops or a kvcache service, and its build id is "
			       "\"%.*s\", expected \"%s\"",
			       path, (int)strnlen(d->build_id, sizeof d->build_id), d->build_id,
			       ig_build_id);
	for (const struct ig_op *const *op = d->ops; !rc && op && *op; op++)
		rc = check_op(*op, path, err);
	return !rc && d->kvcache ? check_kvcache(d->kvcache, path, err) : rc;
}

/* Check version and size before anything else is read. */
static int check_head(const struct ig_module_head *h, const char *path, struct ig_error *err)
{
	if (h->magic != IG_MODULE_MAGIC)
		return ig_fail(err, -ENOEXEC, "module %s: magic is %08x, expected %08x", path,
			       h->magic, IG_MODULE_MAGIC);
	if (h->abi_major != IG_ABI_MAJOR || h->abi_minor > IG_ABI_MINOR)
		return ig_fail(err, -ENOEXEC, "module %s: built for ABI %u.%u, this is %u.%u%s",
			       path, h->abi_major, h->abi_minor, IG_ABI_MAJOR, IG_ABI_MINOR,
			       h->abi_major == IG_ABI_MAJOR ? ", which is older" : "");
	if (h->struct_size < MODULE_BYTES_1_0 || h->struct_size > sizeof(struct ig_module))
		return ig_fail(err, -ENOEXEC,
			       "module %s: describes itself in %u bytes, expected %u to %zu", path,
			       h->struct_size, MODULE_BYTES_1_0, sizeof(struct ig_module));
	return 0;
}

/* ---- copies ---------------------------------------------------------------------------- */

/* Copy a struct of size bytes to one of n_bytes; the rest is zero. */
static void extend(void *to, size_t n_bytes, const void *from, uint32_t size)
{
	memset(to, 0, n_bytes);
	memcpy(to, from, size);
}

static int copy_archs(struct loaded *l, const char *path, struct ig_error *err)
{
	uint32_t n = 0;

	while (l->d.archs && l->d.archs[n])
		n++;
	l->archs = n ? calloc(n, sizeof *l->archs) : NULL;
	if (n && !l->archs)
		return ig_fail(err, -ENOMEM, "module %s: no memory", path);
	for (; l->n_archs < n; l->n_archs++) {
		const struct ig_arch *a = l->d.archs[l->n_archs];
		if (a->struct_size >= ARCH_BYTES_1_0 && a->struct_size <= sizeof *a)
			extend(&l->archs[l->n_archs], sizeof *a, a, a->struct_size);
		a = &l->archs[l->n_archs];
		if (!a->name || !a->read_params || !a->record || !ig_checkpoint_arch_is_whole(a))
			return ig_fail(err, -ENOEXEC, "module %s: an architecture is incomplete",
				       path);
	}
	return 0;
}

void modules_free(struct loaded *l)
{
	if (!l)
		return;
	modules_free_options(l);
	free(l->archs);
	free(l->path);
	free(l);
}

static int take(const struct ig_module *d, const char *path, struct loaded **out,
		struct ig_error *err)
{
	int rc = check_head(&d->head, path, err);

	if (rc)
		return rc;
	struct loaded *l = calloc(1, sizeof *l);
	if (!l || !(l->path = strdup(path))) {
		rc = ig_fail(err, -ENOMEM, "module %s: no memory", path);
		goto fail;
	}
	extend(&l->d, sizeof l->d, d, d->head.struct_size);
	if (!l->d.name || !l->d.version) {
		rc = ig_fail(err, -ENOEXEC, "module %s: has no name or version", path);
		goto fail;
	}
	if ((rc = check_tier2(&l->d, path, err)) || (rc = copy_archs(l, path, err)) ||
	    (rc = modules_take_options(l, err)))
		goto fail;
	while (l->d.ops && l->d.ops[l->n_ops])
		l->n_ops++;
	modules_fill_host(&l->host);
	*out = l;
	return 0;
fail:
	modules_free(l);
	return rc;
}

/* ---- the file ------------------------------------------------------------------------- */

#ifdef __linux__
/* Map it by its descriptor, which stays open: the dynamic linker identifies it by this name. */
static int map(const char *path, const char *real, int fd, void **handle, struct ig_error *err)
{
	char name[32];

	snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
	*handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (*handle)
		return 0;
	const char *why = dlerror();
	const char *colon = why ? strstr(why, ": ") : NULL;
	close(fd);
	return ig_fail(err, -ENOEXEC, "module %s: %s", path,
		       colon ? colon + 2 : "cannot be loaded");
}
#else
/* Only Linux can map a library by its descriptor.  Elsewhere it is mapped by its path, which must
 * still name the checked file afterwards. */
static int map(const char *path, const char *real, int fd, void **handle, struct ig_error *err)
{
	struct stat then, now;
	int rc = 0;

	*handle = dlopen(real, RTLD_NOW | RTLD_LOCAL);
	if (!*handle) {
		const char *why = dlerror();
		rc = ig_fail(err, -ENOEXEC, "module %s: %s", path, why ? why : "cannot be loaded");
	} else if (fstat(fd, &then) < 0 || stat(real, &now) < 0 || then.st_dev != now.st_dev ||
		   then.st_ino != now.st_ino) {
		rc = ig_fail(err, -EPERM, "module %s: refused, it changed while it was loaded",
			     path);
	}
	close(fd);
	return rc;
}
#endif

int modules_map(const char *path, void **handle, struct ig_error *err)
{
	char real[PATH_MAX];
	int fd, rc = place_open(path, real, &fd, err);

	return rc ? rc : map(path, real, fd, handle, err);
}

int modules_open(const char *path, struct loaded **out, struct ig_error *err)
{
	void *handle;
	int rc = modules_map(path, &handle, err);

	if (rc)
		return rc;
	const struct ig_module *d = dlsym(handle, "ingot_module");
	return d ? take(d, path, out, err) :
		   ig_fail(err, -ENOEXEC, "module %s: exports no ingot_module", path);
}
