/*
 * module_path.c: where modules are looked for: see engine-private.h.  Only finds
 * folders; what lies in them is judged by the runtime's loader.
 */
#include "daemon/engine/engine-private.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

struct folders {
	char **list; /* NULL-terminated */
	size_t n;
	int status;
};

static void add(struct folders *f, const char *path, size_t len)
{
	char **list = realloc(f->list, (f->n + 2) * sizeof *list);
	char *copy;

	if (list)
		f->list = list;
	copy = strndup(path, len);
	if (!list || !copy) {
		free(copy);
		f->status = -ENOMEM;
		return;
	}
	list[f->n++] = copy;
	list[f->n] = NULL;
}

/* The folder of the running executable, without the last slash. */
static int executable_folder(char *buf, size_t size)
{
	char *slash;
#ifdef __APPLE__
	char raw[PATH_MAX];
	char real[PATH_MAX];
	uint32_t n = sizeof raw;

	if (_NSGetExecutablePath(raw, &n) || !realpath(raw, real) || strlen(real) >= size)
		return -ENOENT;
	strcpy(buf, real);
#else
	ssize_t n = readlink("/proc/self/exe", buf, size - 1);

	if (n <= 0 || (size_t)n >= size - 1)
		return -ENOENT;
	buf[n] = 0;
#endif
	slash = strrchr(buf, '/');
	if (!slash)
		return -ENOENT;
	*slash = 0;
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A build tree has daemon/ingotd beside modules/NAME/NAME.so. */
static void add_build_tree(struct folders *f)
{
	char exe[PATH_MAX], top[PATH_MAX + 16], folder[PATH_MAX + 300], file[PATH_MAX + 600];
	struct dirent *d;
	struct stat st;
	DIR *dir;

	if (executable_folder(exe, sizeof exe) < 0)
		return;
	snprintf(top, sizeof top, "%s/../modules", exe);
	dir = opendir(top);
	if (!dir)
		return;
	while (!f->status && (d = readdir(dir))) {
		static const char *const suffixes[] = { "so", "dylib" };

		if (d->d_name[0] == '.')
			continue;
		snprintf(folder, sizeof folder, "%s/%s", top, d->d_name);
		for (size_t i = 0; i < 2; i++) {
			snprintf(file, sizeof file, "%s/%s.%s", folder, d->d_name, suffixes[i]);
			if (!stat(file, &st) && S_ISREG(st.st_mode)) {
				add(f, folder, strlen(folder));
				break;
			}
		}
	}
	closedir(dir);
	if (f->n)
		qsort(f->list, f->n, sizeof *f->list, by_name);
}

int ig_module_folders(char *const *configured, char ***out)
{
	struct folders f = { 0 };
	const char *env = getenv("INGOT_MODULE_PATH");

	if (configured && configured[0]) {
		for (; *configured && !f.status; configured++)
			add(&f, *configured, strlen(*configured));
	} else if (env && *env) {
		while (*env && !f.status) {
			size_t n = strcspn(env, ":");

			if (n)
				add(&f, env, n);
			env += n + (env[n] == ':');
		}
	} else {
		add_build_tree(&f);
		if (!f.n && !f.status)
			add(&f, IG_MODULE_DIR, strlen(IG_MODULE_DIR));
	}
	if (!f.status && !f.n)
		add(&f, IG_MODULE_DIR, strlen(IG_MODULE_DIR));
	if (f.status) {
		ig_module_folders_free(f.list);
		return f.status;
	}
	*out = f.list;
	return 0;
}

void ig_module_folders_free(char **folders)
{
	for (size_t i = 0; folders && folders[i]; i++)
		free(folders[i]);
	free(folders);
}
