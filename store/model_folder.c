/* model_folder.c: see model_folder.h.  Looks at names, at the first bytes of files and at locks; what
 * a model is worth, its loader finds out. */
#include "store/model_folder.h"

#include "base/array.h"
#include "base/file.h"
#include "base/file_name.h"
#include "base/json.h"
#include "store/config_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_NAME 128
#define MAX_LOCK (1u << 20)
#define MAX_ENTRIES 10000 /* of the folder, whatever they are */

static bool is_gguf(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char magic[4];
	bool yes = fd >= 0 && read(fd, magic, 4) == 4 && !memcmp(magic, "GGUF", 4);

	if (fd >= 0)
		close(fd);
	return yes;
}

/* The number of a split file's part; 0: the name is not one. */
static unsigned part_of(const char *name)
{
	unsigned i, n;
	size_t len;

	return ig_split_name(name, &i, &n, &len) ? i : 0;
}

static char *join(const char *folder, const char *name)
{
	struct ig_strbuf b = { 0 };

	ig_strbuf_printf(&b, "%s/%s", folder, name);
	char *out = ig_strbuf_steal(&b);
	ig_strbuf_finish(&b);
	return out;
}

/* The model that a folder is or has: itself, with config.json and tensors, or the first part of a
 * split file; NULL: it is something else. */
static char *model_of_folder(const char *path)
{
	DIR *d = opendir(path);
	bool config = false, tensors = false;
	const struct dirent *e;
	char *first = NULL;

	for (size_t i = 0; d && i < MAX_ENTRIES && (e = readdir(d)); i++) {
		config |= !strcmp(e->d_name, "config.json");
		tensors |= e->d_name[0] != '.' && ig_has_ending(e->d_name, ".safetensors");
		if (!first && e->d_name[0] != '.' && ig_has_ending(e->d_name, ".gguf") &&
		    part_of(e->d_name) == 1)
			first = join(path, e->d_name);
	}
	if (d)
		closedir(d);
	if (config && tensors) {
		free(first);
		return strdup(path);
	}
	if (first && is_gguf(first))
		return first;
	free(first);
	return NULL;
}

/* The path to open, of an entry of the folder; NULL: it is no model. */
static char *model_at(const char *path, const char *name)
{
	struct stat st;

	if (name[0] == '.' || ig_has_ending(name, ".part") || stat(path, &st))
		return NULL;
	if (S_ISDIR(st.st_mode))
		return model_of_folder(path);
	/* a model's eyes are no model, and the first part stands for all */
	if (!S_ISREG(st.st_mode) || !ig_has_ending(name, ".gguf") || strcasestr(name, "mmproj") ||
	    part_of(name) > 1 || !is_gguf(path))
		return NULL;
	return strdup(path);
}

/* The name in the lock of path, if it is one. */
static char *locked_name(const char *path)
{
	struct ig_strbuf lock = { 0 }, text = { 0 };
	char *out = NULL;
	json_t *v = NULL;

	ig_strbuf_printf(&lock, "%s.lock", path);
	if (ig_strbuf_ok(&lock) && !ig_read_file(lock.data, MAX_LOCK, &text, NULL) && text.len &&
	    !ig_json_read(text.data, text.len, &(struct ig_json_limits){ .max_depth = 8 }, &v,
			  &(struct ig_json_error){ 0 })) {
		const char *name = ig_json_text(v, "name");
		if (name && *name && strlen(name) <= MAX_NAME &&
		    config_is_name(name, strlen(name), ""))
			out = strdup(name);
	}
	json_decref(v);
	ig_strbuf_finish(&lock);
	ig_strbuf_finish(&text);
	return out;
}

/* A file's name without its end, with what a model's name may not have replaced. */
static char *own_name(const char *file)
{
	size_t len;
	unsigned i, n;

	if (!ig_split_name(file, &i, &n, &len) || !i)
		len = strlen(file) - (ig_has_ending(file, ".gguf") ? strlen(".gguf") : 0);
	char *out = strndup(file, len < MAX_NAME ? len : MAX_NAME);

	for (char *p = out; p && *p; p++)
		if (!config_is_name(p, 1, ""))
			*p = '-';
	return out;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct ig_folder_model *)a)->path,
		      ((const struct ig_folder_model *)b)->path);
}

static int by_name(const void *a, const void *b)
{
	const struct ig_folder_model *x = a, *y = b;
	int c = strcmp(x->name, y->name);

	return c ? c : by_path(a, b);
}

static void free_one(struct ig_folder_model *m)
{
	free(m->name);
	free(m->path);
}

/* Sort; drop what has a name that was there, and what is beyond max. */
static size_t tidy(struct ig_folder_model *list, size_t n, size_t max)
{
	size_t kept = 0;

	if (n)
		qsort(list, n, sizeof *list, by_name);
	for (size_t i = 0; i < n; i++) {
		if (kept == max || (kept && !strcmp(list[kept - 1].name, list[i].name)))
			free_one(&list[i]);
		else
			list[kept++] = list[i];
	}
	return kept;
}

int ig_model_folder_read(const char *folder, size_t max, struct ig_folder_model **out, size_t *n)
{
	DIR *d = opendir(folder);
	const struct dirent *e;
	size_t cap = 0;
	int rc = 0;

	*out = NULL;
	*n = 0;
	if (!d)
		return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
	for (size_t i = 0; !rc && i < MAX_ENTRIES && (e = readdir(d)); i++) {
		char *path = join(folder, e->d_name);
		struct ig_folder_model m = { .path = path ? model_at(path, e->d_name) : NULL };
		if (m.path) {
			m.name = locked_name(path);
			m.name = m.name ? m.name : own_name(e->d_name);
		}
		if (!path || (m.path && (!m.name || !ig_array_grow(*out, &cap, *n)))) {
			free_one(&m);
			rc = -ENOMEM;
		} else if (m.path) {
			(*out)[(*n)++] = m;
		}
		free(path);
	}
	closedir(d);
	if (!rc)
		*n = tidy(*out, *n, max);
	return rc;
}

void ig_model_folder_free(struct ig_folder_model *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free_one(&list[i]);
	free(list);
}
