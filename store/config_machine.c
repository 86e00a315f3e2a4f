/*
 * config_machine.c: defaults that depend on the machine: where the ledger and the keys
 * lie and where modules are.  Only names places; whether they are any good is judged by
 * those who use them.
 */
#include "store/config_private.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

/* A file in the folder where the daemon keeps what it knows; the caller's.  NULL with
 * -ENOMEM, or -EINVAL: there is no such folder. */
static char *state_file(const char *name, int *rc)
{
	struct ig_strbuf b;

	ig_strbuf_init(&b);
#ifdef __APPLE__
	ig_strbuf_printf(&b, IG_LOCALSTATEDIR "/ingot/%s", name);
#else
	const char *state = getenv("XDG_STATE_HOME");
	if (state && state[0] == '/') {
		ig_strbuf_printf(&b, "%s/ingot/%s", state, name);
	} else {
		char *home = config_home();
		if (!home) {
			*rc = -EINVAL;
			return NULL;
		}
		ig_strbuf_printf(&b, "%s/.local/state/ingot/%s", home, name);
		free(home);
	}
#endif
	char *path = ig_strbuf_steal(&b);
	ig_strbuf_finish(&b);
	*rc = path ? 0 : -ENOMEM;
	return path;
}

static int default_ledger_path(struct config *c, struct ig_error *err)
{
	int rc;
	char *path = state_file("ledger.db", &rc);

	if (rc == -EINVAL)
		return ig_fail(err, rc,
			       "ledger.path: HOME is not set, so there is no default; "
			       "name a path, or set ledger.enabled: false");
	if (rc)
		return ig_fail(err, rc, "out of memory");
	free(c->pub.ledger.path);
	c->pub.ledger.path = path;
	return 0;
}

static int default_keys_file(struct config *c, struct ig_error *err)
{
	int rc;
	char *path = state_file("keys", &rc);

	/* Where no state can lie there are no keys; it stays empty. */
	if (rc == -EINVAL)
		return 0;
	if (rc)
		return ig_fail(err, rc, "out of memory");
	free(c->pub.server.keys_file);
	c->pub.server.keys_file = path;
	return 0;
}

/* The folder of the running executable, without its last slash; the caller's, or NULL. */
static char *executable_folder(void)
{
	char path[PATH_MAX];
#ifdef __APPLE__
	char raw[PATH_MAX];
	uint32_t size = sizeof raw;

	if (_NSGetExecutablePath(raw, &size) || !realpath(raw, path))
		return NULL;
#else
	ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);

	if (n <= 0 || (size_t)n >= sizeof path - 1)
		return NULL;
	path[n] = 0;
#endif
	char *slash = strrchr(path, '/');
	if (!slash || slash == path)
		return NULL;
	*slash = 0;
	return strdup(path);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A build tree has its programs in daemon/ and cli/ beside modules/NAME/NAME.so.  Up
 * to cap folders of such modules, in the order of their names; the caller's. */
static size_t find_build_tree(char **out, size_t cap)
{
	char *exe = executable_folder();
	char *slash = exe ? strrchr(exe, '/') : NULL;
	struct ig_strbuf b;
	struct dirent *d;
	DIR *dir = NULL;
	size_t n = 0;

	ig_strbuf_init(&b);
	if (slash) {
		*slash = 0;
		ig_strbuf_printf(&b, "%s/modules", exe);
		dir = ig_strbuf_ok(&b) ? opendir(b.data) : NULL;
	}
	while (dir && n < cap && (d = readdir(dir))) {
		if (d->d_name[0] == '.')
			continue;
		bool found = false;
		for (size_t i = 0; i < 2 && !found; i++) {
			ig_strbuf_clear(&b);
			ig_strbuf_printf(&b, "%s/modules/%s/%s.%s", exe, d->d_name, d->d_name,
					 i ? "dylib" : "so");
			found = ig_strbuf_ok(&b) && !access(b.data, F_OK);
		}
		if (!found)
			continue;
		*strrchr(b.data, '/') = 0;
		out[n] = strdup(b.data);
		if (out[n])
			n++;
	}
	if (dir)
		closedir(dir);
	free(exe);
	ig_strbuf_finish(&b);
	qsort(out, n, sizeof *out, by_name);
	return n;
}

static int default_module_path(struct config *c, struct ig_error *err)
{
	const struct config_option *o = config_find("modules.path", strlen("modules.path"));
	char *installed[] = { (char *)(uintptr_t)IG_MODULE_DIR }, *built[64];
	size_t n = find_build_tree(built, sizeof built / sizeof built[0]);
	int rc = n ? config_store_list(c->dir, &c->pub, o, o->key, built, n, err) :
		     config_store_list(c->dir, &c->pub, o, o->key, installed, 1, err);

	for (size_t i = 0; i < n; i++)
		free(built[i]);
	return rc;
}

int config_fill_in(struct config *c, struct ig_error *err)
{
	if (!c->pub.ledger.path[0]) {
		int rc = default_ledger_path(c, err);
		if (rc && (c->pub.ledger.enabled || rc == -ENOMEM))
			return rc;
	}
	if (!c->pub.server.keys_file[0]) {
		int rc = default_keys_file(c, err);
		if (rc)
			return rc;
	}
	return c->pub.modules.path[0] ? 0 : default_module_path(c, err);
}
