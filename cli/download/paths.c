/*
 * paths.c: where the list of models and the models themselves are (catalog.h).  An
 * installed ingot finds share/ingot/models.yaml beside its bin folder, so that a
 * moved prefix keeps working; one that runs from a build folder finds etc/ of the
 * source tree.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

#include "cli/download/catalog.h"

static bool own_folder(char *buf, size_t size)
{
	char raw[4096];
#ifdef __APPLE__
	uint32_t n = sizeof raw;
	if (_NSGetExecutablePath(raw, &n))
		return false;
	char *real = realpath(raw, NULL);
#else
	ssize_t n = readlink("/proc/self/exe", raw, sizeof raw - 1);
	if (n <= 0)
		return false;
	raw[n] = 0;
	char *real = realpath(raw, NULL);
#endif
	if (!real)
		return false;
	char *slash = strrchr(real, '/');
	if (slash)
		*slash = 0;
	int m = snprintf(buf, size, "%s", real);
	free(real);
	return m >= 0 && (size_t)m < size;
}

int ig_catalog_locate(const char *path, char *buf, size_t size, struct ig_error *err)
{
	static const char *const beside[] = {
		"../share/ingot/models.yaml", /* PREFIX/bin */
		"../../etc/models.yaml",      /* SOURCE/build/cli */
	};
	const char *env = getenv("INGOT_MODELS");
	char dir[4096];
	int n;

	if (!path && env && *env)
		path = env;
	if (path) {
		n = snprintf(buf, size, "%s", path);
		return n < 0 || (size_t)n >= size ? ig_fail(err, -ENAMETOOLONG, "path too long") :
						    0;
	}
	if (own_folder(dir, sizeof dir))
		for (size_t i = 0; i < sizeof beside / sizeof beside[0]; i++) {
			n = snprintf(buf, size, "%s/%s", dir, beside[i]);
			if (n >= 0 && (size_t)n < size && access(buf, R_OK) == 0)
				return 0;
		}
	n = snprintf(buf, size, "%s", IG_DATA_DIR "/models.yaml");
	if (n >= 0 && (size_t)n < size && access(buf, R_OK) == 0)
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
	if (n < 0 || (size_t)n >= size)
		return ig_fail(err, -ENAMETOOLONG, "the models folder's path is too long");
	return 0;
}
