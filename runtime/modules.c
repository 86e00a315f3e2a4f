/* modules.c: see modules.h.  A refused module stays mapped (its code may have
 * constructors that ran), but nothing in it is ever called. */
#include "runtime/modules.h"

#include "base/log.h"
#include "model/formats/checkpoint.h"
#include "ops/cpu/tile16.h"
#include "ops/ops.h"
#include "runtime/plan_private.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_MODULES 64
#define MAX_OPS 256
#define MAX_ARCHS 128

#ifdef __APPLE__
#define MODULE_SUFFIX ".dylib"
#else
#define MODULE_SUFFIX ".so"
#endif

struct loaded {
	const struct ig_module *module;
	char *path;
};

struct ig_modules {
	struct loaded modules[MAX_MODULES];
	uint32_t n_modules;
	const struct ig_op *ops[MAX_OPS];
	uint32_t n_ops;
	const struct ig_arch *archs[MAX_ARCHS + 1]; /* ends with NULL */
	uint32_t n_archs;
	struct ig_host host;
};

/* ---- what the host offers ------------------------------------------------------- */

static const struct ig_checkpoint *file_of(const struct ig_meta *m)
{
	return (const struct ig_checkpoint *)m;
}

static int meta_u32(const struct ig_meta *m, const char *key, uint32_t *out, struct ig_error *err)
{
	return ig_checkpoint_u32(file_of(m), key, out, err);
}

static int meta_f32(const struct ig_meta *m, const char *key, float *out, struct ig_error *err)
{
	return ig_checkpoint_f32(file_of(m), key, out, err);
}

static int meta_str(const struct ig_meta *m, const char *key, const char **out, size_t *len,
		    struct ig_error *err)
{
	return ig_checkpoint_str(file_of(m), key, out, len, err);
}

static int meta_array_u32(const struct ig_meta *m, const char *key, uint32_t *out, uint64_t cap,
			  uint64_t *n, struct ig_error *err)
{
	int rc = ig_checkpoint_array_len(file_of(m), key, n, err);

	if (rc)
		return rc;
	cap = *n < cap ? *n : cap;
	/* the same bits where the number is not negative */
	rc = ig_checkpoint_array_i32(file_of(m), key, (int32_t *)out, cap, err);
	for (uint64_t i = 0; !rc && i < cap; i++)
		if (out[i] > INT32_MAX)
			return ig_fail(err, -EINVAL, "%s: element %llu is negative", key,
				       (unsigned long long)i);
	return rc;
}

static int meta_has_tensor(const struct ig_meta *m, const char *name)
{
	return ig_checkpoint_find_tensor(file_of(m), name) != NULL;
}

static int meta_tensor(const struct ig_meta *m, const char *name, int64_t *n_rows, int64_t *n_cols)
{
	const struct ig_checkpoint_tensor *t = ig_checkpoint_find_tensor(file_of(m), name);

	if (!t)
		return -ENOENT;
	*n_rows = t->n_rows;
	*n_cols = t->n_cols;
	return 0;
}

static const struct ig_op *core_op(const char *name)
{
	for (size_t i = 0; ig_core_ops[i]; i++)
		if (!strcmp(ig_core_ops[i]->name, name))
			return ig_core_ops[i];
	return NULL;
}

static void tile_pack(uint32_t dtype, const void *rows, int64_t k, void *tile)
{
	ig_tile16_pack(dtype, rows, IG_TILE, k, tile, 0, 1);
}

int ig_modules_create(struct ig_modules **out, struct ig_error *err)
{
	struct ig_modules *m = calloc(1, sizeof *m);

	*out = m;
	if (!m)
		return ig_fail(err, -ENOMEM, "no memory for the module registry");
	m->host = (struct ig_host){
		.struct_size = sizeof m->host,
		.abi_version = IG_MODULE_ABI,
		.log = ig_log,
		.meta_u32 = meta_u32,
		.meta_f32 = meta_f32,
		.meta_str = meta_str,
		.meta_has_tensor = meta_has_tensor,
		.weight = ig_graph_weight,
		.record = ig_graph_record,
		.graph_status = ig_graph_status,
		.meta_tensor = meta_tensor,
		.core_op = core_op,
		.tile_bytes = ig_tile16_tile_bytes,
		.tile_pack = tile_pack,
		.meta_array_u32 = meta_array_u32,
	};
	for (; ig_core_ops[m->n_ops]; m->n_ops++)
		m->ops[m->n_ops] = ig_core_ops[m->n_ops];
	return 0;
}

void ig_modules_destroy(struct ig_modules *m)
{
	if (!m)
		return;
	for (uint32_t i = 0; i < m->n_modules; i++)
		free(m->modules[i].path);
	free(m);
}

/* ---- checks, on data alone -------------------------------------------------------- */

/* Nobody but owner and group may be able to change code that we will run. */
static int check_writable(const char *path, const char *shown, struct ig_error *err)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return ig_fail(err, -errno, "module %s: %s", shown, strerror(errno));
	if (st.st_mode & S_IWOTH)
		return ig_fail(err, -EPERM,
			       "module %s: refused, %s can be written by everyone (mode %04o)",
			       shown, path, (unsigned)(st.st_mode & 07777));
	return 0;
}

static int check_place(const char *path, struct ig_error *err)
{
	char real[PATH_MAX];

	if (!realpath(path, real))
		return ig_fail(err, -errno, "module %s: %s", path, strerror(errno));
	int rc = check_writable(real, path, err);
	char *slash = strrchr(real, '/');
	if (rc || !slash)
		return rc;
	slash[slash == real] = 0;
	return check_writable(real, path, err);
}

static int check_op(const struct ig_op *op, const char *path, struct ig_error *err)
{
	if (op->struct_size != sizeof *op || !op->name || !op->check || !op->reference ||
	    op->params_size < sizeof(uint32_t))
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

static int check_data(const struct ig_module *d, const char *path, struct ig_error *err)
{
	if (d->magic != IG_MODULE_MAGIC)
		return ig_fail(err, -ENOEXEC, "module %s: magic is %08x, expected %08x", path,
			       d->magic, IG_MODULE_MAGIC);
	if (d->abi_version != IG_MODULE_ABI)
		return ig_fail(err, -ENOEXEC, "module %s: built for ABI version %u, this is %u",
			       path, d->abi_version, IG_MODULE_ABI);
	if (d->struct_size != sizeof *d)
		return ig_fail(err, -ENOEXEC,
			       "module %s: describes itself in %u bytes, expected %zu", path,
			       d->struct_size, sizeof *d);
	if (strncmp(d->build_id, IG_BUILD_ID, sizeof d->build_id))
		return ig_fail(err, -ENOEXEC, "module %s: build id is \"%.*s\", expected \"%s\"",
			       path, (int)strnlen(d->build_id, sizeof d->build_id), d->build_id,
			       IG_BUILD_ID);
	if (!d->name || !d->version)
		return ig_fail(err, -ENOEXEC, "module %s: has no name or version", path);
	for (const struct ig_op *const *op = d->ops; op && *op; op++) {
		int rc = check_op(*op, path, err);
		if (rc)
			return rc;
	}
	for (const struct ig_arch *const *a = d->archs; a && *a; a++)
		if ((*a)->struct_size != sizeof **a || !(*a)->name || !(*a)->read_params ||
		    !(*a)->record || !ig_checkpoint_arch_is_whole(*a))
			return ig_fail(err, -ENOEXEC, "module %s: an architecture is incomplete",
				       path);
	if (d->kvcache && (d->kvcache->struct_size != sizeof *d->kvcache || !d->kvcache->name))
		return ig_fail(err, -ENOEXEC, "module %s: its kvcache service is incomplete", path);
	return 0;
}

/* Map the file and check it; nothing in it is called beyond what dlopen runs. */
static int open_module(const char *path, const struct ig_module **out, struct ig_error *err)
{
	int rc = check_place(path, err);
	if (rc)
		return rc;
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!handle) {
		const char *why = dlerror();
		return ig_fail(err, -ENOEXEC, "module %s: %s", path,
			       why ? why : "cannot be loaded");
	}
	const struct ig_module *d = dlsym(handle, "ingot_module");
	if (!d)
		return ig_fail(err, -ENOEXEC, "module %s: exports no ingot_module", path);
	rc = check_data(d, path, err);
	if (!rc)
		*out = d;
	return rc;
}

/* The first required op that nobody provides (yet), or NULL. */
static const char *missing_op(const struct ig_modules *m, const struct ig_module *d)
{
	for (const char *const *name = d->requires_ops; name && *name; name++) {
		bool own = false;
		for (const struct ig_op *const *op = d->ops; op && *op; op++)
			own = own || !strcmp((*op)->name, *name);
		if (!own && !ig_modules_op(m, *name))
			return *name;
	}
	return NULL;
}

static int refuse_missing(const char *path, const char *op, struct ig_error *err)
{
	return ig_fail(err, -ENOENT, "module %s: requires op \"%s\", which no module provides",
		       path, op);
}

static int add_module(struct ig_modules *m, const struct ig_module *d, const char *path,
		      struct ig_error *err)
{
	uint32_t n_ops = 0, n_archs = 0;

	for (uint32_t i = 0; i < m->n_modules; i++)
		if (!strcmp(m->modules[i].module->name, d->name))
			return ig_fail(err, -EEXIST, "module %s: \"%s\" is loaded already, from %s",
				       path, d->name, m->modules[i].path);
	for (const struct ig_op *const *op = d->ops; op && *op; op++, n_ops++)
		if (ig_modules_op(m, (*op)->name))
			return ig_fail(err, -EEXIST, "module %s: op \"%s\" exists already", path,
				       (*op)->name);
	for (const struct ig_arch *const *a = d->archs; a && *a; a++, n_archs++)
		if (ig_modules_arch(m, (*a)->name, strlen((*a)->name)))
			return ig_fail(err, -EEXIST,
				       "module %s: architecture \"%s\" exists already", path,
				       (*a)->name);
	if (d->kvcache && ig_modules_kvcache(m, d->kvcache->name))
		return ig_fail(err, -EEXIST, "module %s: kvcache service \"%s\" exists already",
			       path, d->kvcache->name);
	if (m->n_modules == MAX_MODULES || n_ops > MAX_OPS - m->n_ops ||
	    n_archs > MAX_ARCHS - m->n_archs)
		return ig_fail(err, -ENOSPC, "module %s: too many modules, ops or architectures",
			       path);
	char *copy = strdup(path);
	if (!copy)
		return ig_fail(err, -ENOMEM, "module %s: no memory", path);
	if (d->init) {
		int rc = d->init(&m->host);
		if (rc) {
			free(copy);
			return ig_fail(err, rc, "module %s: its init failed: %s", path,
				       strerror(-rc));
		}
	}
	for (uint32_t i = 0; i < n_ops; i++)
		m->ops[m->n_ops++] = d->ops[i];
	for (uint32_t i = 0; i < n_archs; i++)
		m->archs[m->n_archs++] = d->archs[i];
	m->modules[m->n_modules++] = (struct loaded){ d, copy };
	ig_log_debug("module %s %s from %s", d->name, d->version, path);
	return 0;
}

int ig_modules_load(struct ig_modules *m, const char *path, struct ig_error *err)
{
	const struct ig_module *d = NULL;
	int rc = open_module(path, &d, err);
	if (rc)
		return rc;
	const char *op = missing_op(m, d);
	return op ? refuse_missing(path, op, err) : add_module(m, d, path, err);
}

/* ---- folders ----------------------------------------------------------------------- */

static int is_module_file(const struct dirent *e)
{
	size_t n = strlen(e->d_name), s = strlen(MODULE_SUFFIX);
	return n > s && e->d_name[0] != '.' && !strcmp(e->d_name + n - s, MODULE_SUFFIX);
}

/* Log a refusal, and keep it if it is the first. */
static void note(struct ig_error *first, const struct ig_error *e)
{
	ig_log_error("%s", e->text);
	if (!first->code)
		*first = *e;
}

int ig_modules_load_folders(struct ig_modules *m, char *const *folders, struct ig_error *err)
{
	struct loaded pending[MAX_MODULES];
	uint32_t n_pending = 0;
	struct ig_error first = { 0 }, e = { 0 };

	for (; *folders; folders++) {
		struct dirent **names;
		int n = scandir(*folders, &names, is_module_file, alphasort);
		if (n < 0) {
			ig_fail(&e, -errno, "module folder %s: %s", *folders, strerror(errno));
			note(&first, &e);
			continue;
		}
		for (int i = 0; i < n; i++) {
			char path[PATH_MAX];
			const struct ig_module *d = NULL;
			if (snprintf(path, sizeof path, "%s/%s", *folders, names[i]->d_name) >=
			    (int)sizeof path) {
				ig_fail(&e, -ENAMETOOLONG, "module folder %s: path too long",
					*folders);
				note(&first, &e);
			} else if (n_pending == MAX_MODULES) {
				ig_fail(&e, -ENOSPC, "module %s: too many modules", path);
				note(&first, &e);
			} else if (open_module(path, &d, &e)) {
				note(&first, &e);
			} else {
				char *copy = strdup(path);
				if (copy)
					pending[n_pending++] = (struct loaded){ d, copy };
				else
					ig_fail(&first, -ENOMEM, "module %s: no memory", path);
			}
			free(names[i]);
		}
		free(names);
	}
	/* Whatever has all it requires is added, until nothing moves any more. */
	for (bool moved = true; moved;) {
		moved = false;
		for (uint32_t i = 0; i < n_pending; i++) {
			if (!pending[i].module || missing_op(m, pending[i].module))
				continue;
			if (add_module(m, pending[i].module, pending[i].path, &e))
				note(&first, &e);
			pending[i].module = NULL;
			moved = true;
		}
	}
	for (uint32_t i = 0; i < n_pending; i++) {
		if (pending[i].module) {
			refuse_missing(pending[i].path, missing_op(m, pending[i].module), &e);
			note(&first, &e);
		}
		free(pending[i].path);
	}
	if (first.code && err)
		*err = first;
	return first.code;
}

/* ---- finding ------------------------------------------------------------------------ */

const struct ig_op *ig_modules_op(const struct ig_modules *m, const char *name)
{
	for (uint32_t i = 0; i < m->n_ops; i++)
		if (!strcmp(m->ops[i]->name, name))
			return m->ops[i];
	return NULL;
}

const struct ig_arch *ig_modules_arch(const struct ig_modules *m, const char *name, size_t len)
{
	for (uint32_t i = 0; i < m->n_archs; i++)
		if (strlen(m->archs[i]->name) == len && !memcmp(m->archs[i]->name, name, len))
			return m->archs[i];
	return NULL;
}

const struct ig_kvcache_service *ig_modules_kvcache(const struct ig_modules *m, const char *name)
{
	for (uint32_t i = 0; i < m->n_modules; i++) {
		const struct ig_kvcache_service *s = m->modules[i].module->kvcache;
		if (s && !strcmp(s->name, name))
			return s;
	}
	return NULL;
}

const struct ig_arch *ig_modules_arch_of(const struct ig_modules *m, const struct ig_meta *meta,
					 const char *name, size_t len)
{
	for (uint32_t i = 0; i < m->n_archs; i++)
		if (m->archs[i]->claims && m->archs[i]->claims(&m->host, meta))
			return m->archs[i];
	return ig_modules_arch(m, name, len);
}

const struct ig_host *ig_modules_host(const struct ig_modules *m)
{
	return &m->host;
}

void ig_modules_each(const struct ig_modules *m,
		     void (*each)(void *ctx, const char *name, const char *version,
				  const char *path),
		     void *ctx)
{
	for (uint32_t i = 0; i < m->n_modules; i++)
		each(ctx, m->modules[i].module->name, m->modules[i].module->version,
		     m->modules[i].path);
}

const struct ig_arch *const *ig_modules_archs(const struct ig_modules *m)
{
	return m->archs;
}

void ig_modules_arch_names(const struct ig_modules *m, char *buf, size_t size)
{
	size_t n = 0;

	if (size)
		snprintf(buf, size, "none (no module with an architecture is loaded)");
	for (uint32_t i = 0; i < m->n_archs && n < size; i++)
		n += (size_t)snprintf(buf + n, size - n, "%s%s", i ? ", " : "", m->archs[i]->name);
}
