/*
 * paths.c: the paths of the list of models and of the models folder (catalog.h).  An installed
 * ingot finds share/ingot/models.yaml relative to its bin folder, so that a moved prefix works; a
 * program in a build folder finds etc/ of the source tree.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/download/catalog.h"

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
