/* config_machine.c: defaults that depend on the machine: the paths of the ledger, the file of keys,
 * the folder of models and the modules.  Does not check that they exist. */
#include "store/config_private.h"

#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The text of b in place of *path; b is empty then. */
static int replace(char **path, struct ig_strbuf *b)
{
	char *text = ig_strbuf_steal(b);

	ig_strbuf_finish(b);
	if (!text)
		return -ENOMEM;
	free(*path);
	*path = text;
	return 0;
}

/* Set *path to a file in the daemon's folder of state.  -EINVAL: there is no such folder. */
static int set_state_file(char **path, const char *name)
{
	struct ig_strbuf b = { 0 };

#ifdef __APPLE__
	ig_strbuf_printf(&b, IG_LOCALSTATEDIR "/ingot/%s", name);
#else
	const char *state = getenv("XDG_STATE_HOME");
	if (state && state[0] == '/') {
		ig_strbuf_printf(&b, "%s/ingot/%s", state, name);
	} else {
		char *home = config_home();
		if (!home)
			return -EINVAL;
		ig_strbuf_printf(&b, "%s/.local/state/ingot/%s", home, name);
		free(home);
	}
#endif
	return replace(path, &b);
}

/* Where `ingot pull` puts models (cli/download/paths.c); "" where no home is known. */
static int set_models_folder(char **path)
{
	const char *named = getenv("INGOT_MODELS_DIR");
	struct ig_strbuf b = { 0 };

	if (named && *named) {
		ig_strbuf_puts(&b, named);
	} else {
		char *home = config_home();
		if (!home)
			return 0;
		ig_strbuf_printf(&b, "%s/.local/share/ingot/models", home);
		free(home);
	}
	return replace(path, &b);
}

/* "/x/ledger.db" with "-responses": "/x/ledger-responses.db"; "" if other is "". */
static int set_beside(char **path, const char *other, const char *tail)
{
	const char *slash = strrchr(other, '/'), *dot = strrchr(other, '.');
	struct ig_strbuf b = { 0 };

	if (!other[0])
		return 0;
	if (!dot || (slash && dot <= slash + 1))
		dot = other + strlen(other);
	ig_strbuf_add(&b, other, (size_t)(dot - other));
	ig_strbuf_printf(&b, "%s%s", tail, dot);
	return replace(path, &b);
}

/* "/x/kv" for a ledger at /x/ledger.db. */
static int set_disk_folder(struct config *c)
{
	const char *ledger = c->pub.ledger.path, *slash = strrchr(ledger, '/');
	struct ig_strbuf b = { 0 };

	if (!slash)
		return 0;
	ig_strbuf_add(&b, ledger, (size_t)(slash - ledger));
	ig_strbuf_puts(&b, "/kv");
	c->pub.kvcache.disk_by_default = true;
	return replace(&c->pub.kvcache.disk, &b);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A build tree has its programs in daemon/ and cli/, and modules/NAME/NAME.so.  Returns at most cap
 * folders of such modules, sorted by name; the caller frees them. */
static size_t find_build_tree(char **out, size_t cap)
{
	char exe[PATH_MAX];
	char *slash = ig_program_folder(exe, sizeof exe) ? strrchr(exe, '/') : NULL;
	struct ig_strbuf b = { 0 };
	struct dirent *d;
	DIR *dir = NULL;
	size_t n = 0;

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
	ig_strbuf_finish(&b);
	qsort(out, n, sizeof *out, by_name);
	return n;
}

static int default_module_path(struct config *c, struct ig_error *err)
{
	const struct config_option *o = config_find("modules.path");
	char *installed[] = { (char *)(uintptr_t)IG_MODULE_DIR }, *built[64];
	size_t n = find_build_tree(built, sizeof built / sizeof built[0]);
	int rc = config_store_list(c->dir, &c->pub, o, o->key, n ? built : installed, n ? n : 1,
				   err);

	for (size_t i = 0; i < n; i++)
		free(built[i]);
	return rc;
}

int config_fill_in(struct config *c, struct ig_error *err)
{
	int rc = c->pub.ledger.path[0] ? 0 : set_state_file(&c->pub.ledger.path, "ledger.db");

	if (rc == -EINVAL && c->pub.ledger.enabled)
		return ig_fail(err, rc,
			       "ledger.path: HOME is not set, so there is no default; "
			       "name a path, or set ledger.enabled: false");
	if (rc != -ENOMEM && !c->pub.responses.path[0])
		rc = set_beside(&c->pub.responses.path, c->pub.ledger.path, "-responses");
	if (rc != -ENOMEM && !c->pub.responses.path[0] && c->pub.responses.persist)
		return ig_fail(err, -EINVAL,
			       "responses.path: HOME is not set, so there is no default; "
			       "name a path, or set responses.persist: false");
	/* Without a folder of state there are no keys, and keys_file stays empty. */
	if (rc != -ENOMEM && !c->pub.server.keys_file[0])
		rc = set_state_file(&c->pub.server.keys_file, "keys");
	if (!strcmp(c->pub.kvcache.disk, "none"))
		c->pub.kvcache.disk[0] = 0;
	else if (rc != -ENOMEM && !c->pub.kvcache.disk[0])
		rc = set_disk_folder(c);
	if (!strcmp(c->pub.models_folder, "none"))
		c->pub.models_folder[0] = 0;
	else if (rc != -ENOMEM && !c->pub.models_folder[0])
		rc = set_models_folder(&c->pub.models_folder);
	if (rc == -ENOMEM)
		return ig_fail(err, rc, "out of memory");
	return c->pub.modules.path[0] ? 0 : default_module_path(c, err);
}
