/* registry.c: see modules.h. */
#include "runtime/modules/modules_private.h"
#include "base/log.h"
#include "base/setting.h"
#include "ops/ops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- creation ----------------------------------------------------------------------- */

int ig_modules_create(struct ig_modules **out, struct ig_error *err)
{
	struct ig_modules *m = calloc(1, sizeof *m);

	*out = m;
	if (!m)
		return ig_fail(err, -ENOMEM, "no memory for the module registry");
	for (; ig_core_ops[m->n_ops]; m->n_ops++)
		m->ops[m->n_ops] = ig_core_ops[m->n_ops];
	return 0;
}

void ig_modules_destroy(struct ig_modules *m)
{
	if (!m)
		return;
	for (uint32_t i = 0; i < m->n_modules; i++)
		modules_free(m->modules[i]);
	free(m);
}

/* ---- adding ------------------------------------------------------------------------- */

const struct ig_op_version *modules_missing(const struct ig_modules *m, const struct loaded *l)
{
	for (const struct ig_op_version *r = l->d.requires_ops; r && r->name; r++) {
		const struct ig_op *op = ig_modules_op(m, r->name);
		for (uint32_t i = 0; !op && i < l->n_ops; i++)
			op = strcmp(l->d.ops[i]->name, r->name) ? NULL : l->d.ops[i];
		if (!op || op->version < r->version)
			return r;
	}
	return NULL;
}

int modules_refuse_missing(const struct ig_modules *m, const struct loaded *l,
			   const struct ig_op_version *r, struct ig_error *err)
{
	const struct ig_op *op = ig_modules_op(m, r->name);

	if (op)
		return ig_fail(err, -ENOENT,
			       "module %s: requires op \"%s\" of version %u, which is %u here",
			       l->path, r->name, r->version, op->version);
	return ig_fail(err, -ENOENT, "module %s: requires op \"%s\", which no module provides",
		       l->path, r->name);
}

/* Check that all names are new. */
static int check_names(const struct ig_modules *m, const struct loaded *l, struct ig_error *err)
{
	for (uint32_t i = 0; i < m->n_modules; i++)
		if (!strcmp(m->modules[i]->d.name, l->d.name))
			return ig_fail(err, -EEXIST, "module %s: \"%s\" is loaded already, from %s",
				       l->path, l->d.name, m->modules[i]->path);
	for (uint32_t i = 0; i < l->n_ops; i++)
		if (ig_modules_op(m, l->d.ops[i]->name))
			return ig_fail(err, -EEXIST, "module %s: op \"%s\" exists already", l->path,
				       l->d.ops[i]->name);
	for (uint32_t i = 0; i < l->n_archs; i++)
		if (ig_modules_arch(m, l->archs[i].name, strlen(l->archs[i].name)))
			return ig_fail(err, -EEXIST,
				       "module %s: architecture \"%s\" exists already", l->path,
				       l->archs[i].name);
	if (l->d.kvcache && ig_modules_kvcache(m, l->d.kvcache->name))
		return ig_fail(err, -EEXIST, "module %s: kvcache service \"%s\" exists already",
			       l->path, l->d.kvcache->name);
	return 0;
}

int modules_add(struct ig_modules *m, struct loaded *l, struct ig_error *err)
{
	int rc = check_names(m, l, err);

	if (rc)
		return rc;
	if (m->n_modules == MAX_MODULES || l->n_ops > MAX_OPS - m->n_ops ||
	    l->n_archs > MAX_ARCHS - m->n_archs)
		return ig_fail(err, -ENOSPC, "module %s: too many modules, ops or architectures",
			       l->path);
	for (uint32_t i = 0; i < l->n_ops; i++)
		m->ops[m->n_ops++] = l->d.ops[i];
	for (uint32_t i = 0; i < l->n_archs; i++)
		m->archs[m->n_archs++] = &l->archs[i];
	m->modules[m->n_modules++] = l;
	ig_log_debug("module %s %s from %s", l->d.name, l->d.version, l->path);
	return 0;
}

int ig_modules_load(struct ig_modules *m, const char *path, struct ig_error *err)
{
	struct loaded *l;
	int rc = modules_open(path, &l, err);

	if (rc)
		return rc;
	const struct ig_op_version *missing = modules_missing(m, l);
	rc = missing ? modules_refuse_missing(m, l, missing, err) : modules_add(m, l, err);
	if (rc)
		modules_free(l);
	return rc;
}

/* Settings of modules that are not loaded are ignored; the configuration was checked before. */
static int configure(struct ig_modules *m, const struct ig_setting *settings, size_t n,
		     struct ig_error *err)
{
	int rc = 0;
	for (size_t s = 0; s < n && !rc; s++)
		for (uint32_t i = 0; i < m->n_modules && !rc; i++)
			if (!strcmp(m->modules[i]->d.name, settings[s].module))
				rc = modules_set(m->modules[i], &settings[s], err);
	return rc;
}

int ig_modules_start(struct ig_modules *m, const struct ig_setting *settings, size_t n,
		     struct ig_error *err)
{
	int failed = configure(m, settings, n, err);

	if (failed)
		return failed;
	for (; m->n_started < m->n_modules; m->n_started++) {
		const struct loaded *l = m->modules[m->n_started];
		int rc = l->d.init ? l->d.init(&l->host) : 0;
		if (rc)
			return ig_fail(err, rc, "module %s: its init failed: %s", l->path,
				       strerror(-rc));
	}
	return 0;
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
		const struct ig_kvcache_service *s = m->modules[i]->d.kvcache;
		if (s && !strcmp(s->name, name))
			return s;
	}
	return NULL;
}

/* The architecture that claims the file, or NULL. */
static int find_claim(const struct ig_modules *m, const struct ig_meta *meta,
		      const struct ig_arch **out, struct ig_error *err)
{
	const struct loaded *by = NULL;

	*out = NULL;
	for (uint32_t i = 0; i < m->n_modules; i++)
		for (uint32_t j = 0; j < m->modules[i]->n_archs; j++) {
			const struct loaded *l = m->modules[i];
			const struct ig_arch *a = &l->archs[j];
			if (!a->claims || !a->claims(&l->host, meta))
				continue;
			if (*out)
				return ig_fail(err, -EINVAL,
					       "architecture %s of module %s and %s of module %s "
					       "both claim this file",
					       (*out)->name, by->d.name, a->name, l->d.name);
			*out = a;
			by = l;
		}
	return 0;
}

int ig_modules_arch_of(const struct ig_modules *m, const struct ig_meta *meta, const char *name,
		       size_t len, const struct ig_arch **out, struct ig_error *err)
{
	char known[200];
	int rc = find_claim(m, meta, out, err);

	if (!rc && !*out)
		*out = ig_modules_arch(m, name, len);
	if (rc || *out)
		return rc;
	ig_modules_arch_names(m, known, sizeof known);
	return ig_fail(err, -ENOTSUP, "architecture \"%.*s\" is unknown; known: %s",
		       (int)(len < 64 ? len : 64), name, known);
}

const struct ig_host *ig_modules_host(const struct ig_modules *m, const struct ig_arch *arch)
{
	for (uint32_t i = 0; i < m->n_modules; i++) {
		const struct loaded *l = m->modules[i];
		for (uint32_t a = 0; a < l->n_archs; a++)
			if (arch == &l->archs[a])
				return &l->host;
	}
	return NULL;
}

size_t ig_modules_list(const struct ig_modules *m, const struct ig_module **out)
{
	for (uint32_t i = 0; i < m->n_modules; i++)
		out[i] = &m->modules[i]->d;
	return m->n_modules;
}

void ig_modules_each(const struct ig_modules *m,
		     void (*each)(void *ctx, const char *name, const char *version,
				  const char *path),
		     void *ctx)
{
	for (uint32_t i = 0; i < m->n_modules; i++)
		each(ctx, m->modules[i]->d.name, m->modules[i]->d.version, m->modules[i]->path);
}

const struct ig_arch *const *ig_modules_archs(const struct ig_modules *m) { return m->archs; }

void ig_modules_arch_names(const struct ig_modules *m, char *buf, size_t size)
{
	size_t n = 0;
	if (size)
		snprintf(buf, size, "none (no module with an architecture is loaded)");
	for (uint32_t i = 0; i < m->n_archs && n < size; i++)
		n += (size_t)snprintf(buf + n, size - n, "%s%s", i ? ", " : "", m->archs[i]->name);
}
