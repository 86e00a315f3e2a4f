/*
 * paths.c: the paths of the list of models and of the models folder (catalog.h).  An installed
 * ingot finds share/ingot/models.yaml relative to its bin folder, so that a moved prefix works; a
 * program in a build folder finds etc/ of the source tree.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "cli/download/catalog.h"
#include "store/config.h"

static bool fits(int n, size_t size) { return n >= 0 && (size_t)n < size; }

int ig_catalog_locate(const char *path, char *buf, size_t size, struct ig_error *err)
{
	static const char *const relative[] = {
		"../share/ingot/models.yaml", /* PREFIX/bin */
		"../../etc/models.yaml",      /* SOURCE/build/cli */
	};
	const char *env = getenv("INGOT_MODELS");
	char dir[4096];

	if (!path && env && *env)
		path = env;
	if (path)
		return fits(snprintf(buf, size, "%s", path), size) ?
			       0 :
			       ig_fail(err, -ENAMETOOLONG, "the path is too long");
	if (ig_program_folder(dir, sizeof dir))
		for (size_t i = 0; i < sizeof relative / sizeof relative[0]; i++)
			if (fits(snprintf(buf, size, "%s/%s", dir, relative[i]), size) &&
			    access(buf, R_OK) == 0)
				return 0;
	if (fits(snprintf(buf, size, "%s", IG_DATA_DIR "/models.yaml"), size) &&
	    access(buf, R_OK) == 0)
		return 0;
	return ig_fail(err, -ENOENT, "no models.yaml found (looked for %s); name one with --models",
		       IG_DATA_DIR "/models.yaml");
}

int ig_models_dir(const char *dir, char *buf, size_t size, struct ig_error *err)
{
	const char *env = getenv("INGOT_MODELS_DIR"), *home = getenv("HOME");
	int n;

	if (!dir && env && *env)
		dir = env;
	if (dir && !*dir)
		return ig_fail(err, -EINVAL, "--to: the folder's name is empty");
	if (dir)
		n = snprintf(buf, size, "%s", dir);
	else if (home && home[0] == '/')
		n = snprintf(buf, size, "%s/.local/share/ingot/models", home);
	else
		return ig_fail(err, -ENOENT, "HOME is not set; name a folder with --to");
	return fits(n, size) ? 0 :
			       ig_fail(err, -ENAMETOOLONG, "the models folder's path is too long");
}

static bool is_same_folder(const char *a, const char *b)
{
	struct stat x, y;

	if (!strcmp(a, b))
		return true;
	return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int ig_models_dir_find(const char *dir, char *buf, size_t size, bool *is_served,
		       struct ig_error *err)
{
	const char *env = getenv("INGOT_MODELS_DIR");
	struct ig_config *c = NULL;
	const char *folder;
	int rc;

	ig_log_set_level(-1); /* what is wrong with a configuration is the doctor's to say */
	if (ig_config_load_or_defaults(NULL, &c, NULL))
		c = NULL;
	folder = c ? c->models_folder : "";
	rc = ig_models_dir(dir || (env && *env) || !folder[0] ? dir : folder, buf, size, err);
	*is_served = !rc && is_same_folder(buf, folder);
	ig_config_destroy(c);
	return rc;
}
