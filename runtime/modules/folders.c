/* folders.c: loads the modules of folders, so that required ops are loaded first. */
#include "runtime/modules/modules_private.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Transports lie beside modules, and are loaded by name (transport.c). */
static int is_module_file(const struct dirent *e)
{
	size_t n = strlen(e->d_name), s = strlen(MODULE_SUFFIX);
	return n > s && strncmp(e->d_name, MODULE_TRANSPORT, strlen(MODULE_TRANSPORT)) != 0 &&
	       e->d_name[0] != '.' && !strcmp(e->d_name + n - s, MODULE_SUFFIX);
}

/* Log an error and store the first one. */
static void report(struct ig_error *first, const struct ig_error *e)
{
	ig_log_error("%s", e->text);
	if (!first->code)
		*first = *e;
}

/* Opened modules whose required ops are not loaded yet. */
struct pending {
	struct loaded *modules[MAX_MODULES];
	uint32_t n;
};

static int open_one(struct pending *p, const char *folder, const char *name, struct ig_error *err)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
		return ig_fail(err, -ENAMETOOLONG, "module folder %s: path too long", folder);
	if (p->n == MAX_MODULES)
		return ig_fail(err, -ENOSPC, "module %s: too many modules", path);
	int rc = modules_open(path, &p->modules[p->n], err);
	p->n += !rc;
	return rc;
}

static void open_folder(struct pending *p, const char *folder, struct ig_error *first)
{
	struct ig_error e = { 0 };
	struct dirent **names;
	int n = scandir(folder, &names, is_module_file, alphasort);

	if (n < 0) {
		ig_fail(&e, -errno, "module folder %s: %s", folder, strerror(errno));
		report(first, &e);
		return;
	}
	for (int i = 0; i < n; i++) {
		if (open_one(p, folder, names[i]->d_name, &e))
			report(first, &e);
		free(names[i]);
	}
	free(names);
}

/* Add the modules whose required ops are there; false: none was added. */
static bool add_pending(struct ig_modules *m, struct pending *p, struct ig_error *first)
{
	struct ig_error e = { 0 };
	bool moved = false;

	for (uint32_t i = 0; i < p->n; i++) {
		if (!p->modules[i] || modules_missing(m, p->modules[i]))
			continue;
		if (modules_add(m, p->modules[i], &e)) {
			modules_free(p->modules[i]);
			report(first, &e);
		}
		p->modules[i] = NULL;
		moved = true;
	}
	return moved;
}

int ig_modules_load_folders(struct ig_modules *m, char *const *folders, struct ig_error *err)
{
	struct pending p = { .n = 0 };
	struct ig_error first = { 0 }, e = { 0 };

	for (; *folders; folders++)
		open_folder(&p, *folders, &first);
	while (add_pending(m, &p, &first))
		;
	for (uint32_t i = 0; i < p.n; i++) {
		if (!p.modules[i])
			continue;
		modules_refuse_missing(m, p.modules[i], modules_missing(m, p.modules[i]), &e);
		report(&first, &e);
		modules_free(p.modules[i]);
	}
	if (first.code && err)
		*err = first;
	return first.code;
}
