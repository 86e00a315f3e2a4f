/*
 * folder.c: see folder.h: opens the files with tensors, and other files of the folder.  Folders of
 * the hub's cache contain symbolic links, so links are followed; names from a file must be plain
 * names in the folder.
 */
#include "model/formats/folder.h"

#include "base/json.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_CONFIG_BYTES (4u << 20)
#define MAX_INDEX_BYTES (16u << 20)
#define MAX_FILES 1024
#define INDEX "model.safetensors.index.json"
#define ENDING ".safetensors"
#define INDEX_ENDING ".safetensors.index.json"

bool ig_ends_with(const char *s, const char *ending)
{
	size_t len = strlen(s), n = strlen(ending);

	return len > n && !strcmp(s + len - n, ending);
}

bool ig_checkpoint_is_folder(const char *path)
{
	struct stat st;

	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return true;
	return ig_ends_with(path, ENDING) || ig_ends_with(path, INDEX_ENDING);
}

/* ---- files ---------------------------------------------------------------------------- */

/* "FOLDER/NAME", or the end of it. */
struct label {
	char text[2 * IG_LABEL_BYTES];
};

static struct label label_of(const struct ig_folder *f, const char *name)
{
	struct label l;

	snprintf(l.text, sizeof l.text, "%s/%s", f->dir, ig_show(name, strlen(name)).text);
	return l;
}

static void unmap_file(struct ig_folder_file *file)
{
	if (file->mapped)
		munmap((void *)(uintptr_t)file->base, (size_t)file->size);
	free(file->name);
	memset(file, 0, sizeof *file);
}

/* The folder's file of this name; 0, -ENOENT, or another error with text. */
static int open_file(const struct ig_folder *f, const char *name, struct ig_folder_file *out,
		     struct ig_error *err)
{
	struct label label = label_of(f, name);
	int rc;

	memset(out, 0, sizeof *out);
	out->name = strdup(name);
	if (!out->name)
		return ig_fail(err, -ENOMEM, "%s: out of memory", label.text);
	if (f->dir_fd >= 0) {
		rc = ig_map_file(f->dir_fd, name, label.text, 1, "such a file", &out->base,
				 &out->size, err);
		out->mapped = rc == 0;
	} else {
		rc = ig_fail(err, -ENOENT, "%s: there is no such file", label.text);
		for (size_t i = 0; i < f->n_given && rc; i++)
			if (!strcmp(f->given[i].name, name)) {
				out->base = f->given[i].data;
				out->size = f->given[i].len;
				rc = 0;
			}
	}
	if (rc)
		unmap_file(out);
	return rc;
}

int ig_folder_sibling(const struct ig_checkpoint *g, const char *name, const char **data,
		      size_t *len, struct ig_error *err)
{
	struct ig_folder *f = g->folder;
	struct ig_folder_file *s = NULL;
	int rc = 0;

	if (!*name || *name == '.' || *name == '/' || strstr(name, "/.") || strstr(name, "//"))
		return ig_fail(err, -EINVAL, "%s: \"%s\" is not a plain file name", f->dir,
			       ig_show(name, strlen(name)).text);
	pthread_mutex_lock(&f->lock);
	for (uint32_t i = 0; i < f->n_siblings && !s; i++)
		if (!strcmp(f->siblings[i].name, name))
			s = &f->siblings[i];
	if (!s && f->n_siblings == IG_FOLDER_MAX_SIBLINGS) {
		rc = ig_fail(err, -EINVAL, "%s: %d files beside the tensors are open already",
			     f->dir, IG_FOLDER_MAX_SIBLINGS);
	} else if (!s) {
		s = &f->siblings[f->n_siblings];
		rc = open_file(f, name, s, err);
		f->n_siblings += rc == 0;
	}
	if (!rc) {
		*data = (const char *)s->base;
		*len = (size_t)s->size;
	}
	pthread_mutex_unlock(&f->lock);
	return rc;
}

/* ---- which files have tensors ------------------------------------------------------------ */

/* Open the file and read its header. */
static int add_file(struct ig_checkpoint *g, const char *name, struct ig_error *err)
{
	struct ig_folder *f = g->folder;
	struct ig_folder_file *file = &f->files[f->n_files];
	int rc = open_file(f, name, file, err);

	if (rc)
		return rc;
	rc = ig_st_read(file->base, file->size, label_of(f, name).text, &f->headers[f->n_files],
			err);
	if (rc) {
		unmap_file(file);
		return rc;
	}
	for (uint32_t i = 0; i < f->headers[f->n_files].n_tensors; i++)
		f->headers[f->n_files].tensors[i].file = f->n_files;
	f->n_files++;
	g->size += file->size;
	return 0;
}

static int alloc_files(struct ig_folder *f, size_t n, struct ig_error *err)
{
	f->files = calloc(n, sizeof *f->files);
	f->headers = calloc(n, sizeof *f->headers);
	return f->files && f->headers ?
		       0 :
		       ig_fail(err, -ENOMEM, "%s: out of memory for %zu files", f->dir, n);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int by_name(const void *a, const void *b)
{
	const struct ig_st_tensor *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

/* Check that each tensor of the index is in the file that the index names. */
static int check_index(const struct ig_folder *f, const json_t *map, struct ig_error *err)
{
	const struct ig_st_tensor **all, **found;
	struct ig_st_tensor key = { 0 };
	const struct ig_st_tensor *wanted = &key;
	const char *name;
	json_t *value;
	size_t n = 0;
	int rc = 0;

	for (uint32_t i = 0; i < f->n_files; i++)
		n += f->headers[i].n_tensors;
	all = malloc((n + 1) * sizeof *all);
	if (!all)
		return ig_fail(err, -ENOMEM, "%s: out of memory for %zu tensors", f->dir, n);
	n = 0;
	for (uint32_t i = 0; i < f->n_files; i++)
		for (uint32_t j = 0; j < f->headers[i].n_tensors; j++)
			all[n++] = &f->headers[i].tensors[j];
	qsort(all, n, sizeof *all, by_name);
	for (size_t i = 1; i < n && !rc; i++)
		if (!strcmp(all[i]->name, all[i - 1]->name))
			rc = ig_fail(err, -EINVAL, "%s: tensor \"%s\" is in %s and in %s", f->dir,
				     ig_show(all[i]->name, strlen(all[i]->name)).text,
				     f->files[all[i - 1]->file].name, f->files[all[i]->file].name);
	json_object_foreach((json_t *)map, name, value)
	{
		if (rc)
			break;
		key.name = name;
		found = bsearch(&wanted, all, n, sizeof *all, by_name);
		if (!found || strcmp(f->files[(*found)->file].name, json_string_value(value)))
			rc = ig_fail(
				err, -EINVAL,
				"%s: tensor \"%s\" is not in %s, where the index has it", f->dir,
				ig_show(name, strlen(name)).text,
				ig_show(json_string_value(value), json_string_length(value)).text);
	}
	free(all);
	return rc;
}

static int bad_index(const struct ig_folder *f, const char *index, const char *what,
		     const char *name, struct ig_error *err)
{
	return ig_fail(err, -EINVAL, "%s: %s%s%s", label_of(f, index).text, what, name ? " " : "",
		       name ? ig_show(name, strlen(name)).text : "");
}

/* The files of the index, sorted, without duplicates; *n: their number, 0 if `only` is not one of
 * them.  names point into map. */
static int list_files(const struct ig_folder *f, const char *index, const json_t *map,
		      const char *only, const char **names, size_t *n, struct ig_error *err)
{
	const char *tensor, *name;
	bool has_only = !only;
	json_t *value;
	size_t total = 0;

	json_object_foreach((json_t *)map, tensor, value)
	{
		name = json_string_value(value);
		if (!name)
			return bad_index(f, index, "there is no file name for tensor", tensor, err);
		if (*name == '.' || strchr(name, '/') || !ig_ends_with(name, ENDING) ||
		    strlen(name) > 255)
			return bad_index(f, index,
					 "not the name of a safetensors file in this folder:", name,
					 err);
		names[total++] = name;
	}
	qsort(names, total, sizeof *names, by_text);
	*n = 0;
	for (size_t i = 0; i < total; i++) {
		if (i && !strcmp(names[i], names[i - 1]))
			continue;
		has_only |= only && !strcmp(names[i], only);
		names[(*n)++] = names[i];
	}
	if (*n > MAX_FILES)
		return bad_index(f, index, "more files than 1024 are named", NULL, err);
	if (!has_only)
		*n = 0;
	return 0;
}

/* All files of the index; *used false when `only` is not among them. */
static int open_index(struct ig_checkpoint *g, const struct ig_folder_file *index, const char *only,
		      bool *used, struct ig_error *err)
{
	struct ig_folder *f = g->folder;
	const char **names = NULL;
	const json_t *map;
	json_t *root;
	size_t n = 0;
	int rc;

	if (index->size > MAX_INDEX_BYTES)
		return bad_index(f, index->name, "too large for an index", NULL, err);
	if ((rc = ig_json_read_file(label_of(f, index->name).text, (const char *)index->base,
				    (size_t)index->size, &root, err)))
		return rc;
	map = json_object_get(root, "weight_map");
	rc = -EINVAL;
	if (!json_is_object(map) || !json_object_size(map)) {
		bad_index(f, index->name, "\"weight_map\" is missing, empty or not an object", NULL,
			  err);
		goto out;
	}
	names = malloc(json_object_size(map) * sizeof *names);
	if (!names) {
		rc = ig_fail(err, -ENOMEM, "%s: out of memory", f->dir);
		goto out;
	}
	rc = list_files(f, index->name, map, only, names, &n, err);
	*used = n > 0;
	if (rc || !n || (rc = alloc_files(f, n, err)))
		goto out;
	for (size_t i = 0; i < n && !rc; i++)
		rc = add_file(g, names[i], err);
	if (!rc)
		rc = check_index(f, map, err);
out:
	free(names);
	json_decref(root);
	return rc;
}

static int open_one(struct ig_checkpoint *g, const char *name, struct ig_error *err)
{
	int rc = alloc_files(g->folder, 1, err);

	return rc ? rc : add_file(g, name, err);
}

/* The only safetensors file, whose name is not the usual one. */
static int find_one(struct ig_folder *f, char **out, struct ig_error *err)
{
	int fd = f->dir_fd < 0 ? -1 : openat(f->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;
	unsigned n = 0;

	*out = NULL;
	if (!dir && fd >= 0)
		close(fd);
	while (dir && (e = readdir(dir))) {
		if (*e->d_name == '.' || !ig_ends_with(e->d_name, ENDING) || n++)
			continue;
		*out = strdup(e->d_name);
	}
	if (dir)
		closedir(dir);
	if (n == 1 && *out)
		return 0;
	free(*out);
	*out = NULL;
	if (n == 1)
		return ig_fail(err, -ENOMEM, "%s: out of memory", f->dir);
	return ig_fail(err, -EINVAL,
		       n ? "%s: several safetensors files and no " INDEX :
			   "%s: no safetensors file in this folder",
		       f->dir);
}

/* wanted: the file that the path named, or NULL. */
static int open_files(struct ig_checkpoint *g, const char *wanted, struct ig_error *err)
{
	bool named_index = wanted && ig_ends_with(wanted, INDEX_ENDING), used = false;
	struct ig_folder_file index;
	char *one = NULL;
	int rc;

	rc = open_file(g->folder, named_index ? wanted : INDEX, &index, err);
	if (!rc) {
		rc = open_index(g, &index, named_index ? NULL : wanted, &used, err);
		unmap_file(&index);
		if (rc || used)
			return rc;
	} else if (rc != -ENOENT || named_index) {
		return rc;
	}
	if (wanted)
		return open_one(g, wanted, err);
	rc = open_one(g, "model" ENDING, err);
	if (rc != -ENOENT)
		return rc;
	rc = find_one(g->folder, &one, err);
	if (!rc) {
		free(g->folder->files);
		free(g->folder->headers);
		rc = open_one(g, one, err);
	}
	free(one);
	return rc;
}

/* ---- open and close ------------------------------------------------------------------------ */

static int read_config(struct ig_checkpoint *g, const struct ig_arch *const *archs,
		       struct ig_error *err)
{
	struct ig_folder *f = g->folder;
	struct label label = label_of(f, "config.json");
	struct ig_folder_file file;
	int rc = open_file(f, "config.json", &file, err);

	if (rc == -ENOENT)
		return ig_fail(err, -EINVAL, "%s: no model: there is no config.json", f->dir);
	if (rc)
		return rc;
	if (file.size > MAX_CONFIG_BYTES)
		rc = ig_fail(err, -EINVAL,
			     "%s: %" PRIu64 " bytes are too large for a configuration", label.text,
			     file.size);
	else
		rc = ig_hf_config_read(g, archs, (const char *)file.base, (size_t)file.size,
				       label.text, &f->config, err);
	unmap_file(&file);
	return rc;
}

/* Open the folder; *wanted is the file that path names in it, or NULL. */
static int open_dir(struct ig_folder *f, const char *path, const char *label, const char **wanted,
		    struct ig_error *err)
{
	const char *slash = strrchr(path, '/');
	struct stat st;
	char *dir;

	*wanted = NULL;
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
		dir = strdup(path);
	} else {
		*wanted = slash ? slash + 1 : path;
		dir = !slash	    ? strdup(".") :
		      slash == path ? strdup("/") :
				      strndup(path, (size_t)(slash - path));
	}
	if (!dir)
		return ig_fail(err, -ENOMEM, "%s: out of memory", label);
	size_t len = strlen(dir), skip = len < sizeof f->dir ? 0 : len - (sizeof f->dir - 4);
	snprintf(f->dir, sizeof f->dir, "%s%s", skip ? "..." : "", dir + skip);
	for (len = strlen(f->dir); len > 1 && f->dir[len - 1] == '/'; len--)
		f->dir[len - 1] = 0;
	f->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	free(dir);
	return f->dir_fd < 0 ? ig_fail(err, -errno, "%s: can't open: %s", label, strerror(errno)) :
			       0;
}

int ig_folder_read(struct ig_checkpoint *g, const struct ig_arch *const *archs, const char *path,
		   const struct ig_checkpoint_file *files, size_t n, struct ig_error *err)
{
	struct ig_folder *f = calloc(1, sizeof *f);
	const char *wanted = NULL;
	int rc = 0;

	if (!f)
		return ig_fail(err, -ENOMEM, "%s: out of memory", g->label);
	g->folder = f;
	f->dir_fd = -1;
	f->given = files;
	f->n_given = n;
	pthread_mutex_init(&f->lock, NULL);
	if (path)
		rc = open_dir(f, path, g->label, &wanted, err);
	else
		memcpy(f->dir, g->label, sizeof f->dir);
	if (rc || (rc = read_config(g, archs, err)) || (rc = open_files(g, wanted, err)))
		return rc;
	rc = ig_hf_place_tensors(g, err);
	json_decref(f->config.root);
	f->config.root = f->config.quantization = NULL;
	return rc;
}

void ig_folder_finish(struct ig_checkpoint *g)
{
	struct ig_folder *f = g->folder;

	if (!f)
		return;
	for (uint32_t i = 0; i < f->n_files; i++) {
		unmap_file(&f->files[i]);
		ig_st_finish(&f->headers[i]);
	}
	for (uint32_t i = 0; i < f->n_siblings; i++)
		unmap_file(&f->siblings[i]);
	for (size_t i = 0; i < f->n_owned; i++)
		free(f->owned[i]);
	if (f->dir_fd >= 0)
		close(f->dir_fd);
	pthread_mutex_destroy(&f->lock);
	ig_hf_config_finish(&f->config);
	free(f->owned);
	free(f->files);
	free(f->headers);
	free(f->made);
	free(f->pieces);
	free(f);
	g->folder = NULL;
}

bool ig_folder_has(const struct ig_checkpoint *g, const void *data, uint64_t n_bytes)
{
	const struct ig_folder *f = g->folder;
	uintptr_t at = (uintptr_t)data;

	for (uint32_t i = 0; i < f->n_files; i++) {
		uintptr_t base = (uintptr_t)f->files[i].base;
		uint64_t size = f->files[i].size;
		if (f->files[i].mapped && at >= base && at - base <= size &&
		    n_bytes <= size - (at - base))
			return true;
	}
	return false;
}

void ig_folder_drop(const struct ig_checkpoint *g, uint32_t tensor)
{
	const struct ig_hf_made *m = &g->folder->made[tensor];

	for (uint32_t i = 0; i < m->n_pieces; i++) {
		const struct ig_hf_part *p = &m->pieces[i];
		ig_checkpoint_drop_pages(g, p->weight->data, p->weight->n_bytes);
		if (!p->scales)
			continue;
		ig_checkpoint_drop_pages(g, p->scales->data, p->scales->n_bytes);
		if (p->biases)
			ig_checkpoint_drop_pages(g, p->biases->data, p->biases->n_bytes);
	}
}
