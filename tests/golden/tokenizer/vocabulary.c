/* vocabulary.c: see vocabulary.h. */
#include "vocabulary.h"

#include "model/tokenizer/tokenizer_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

double vocabulary_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* one thread, whatever runs beside */
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int find_file(void *ctx, const char *name, const char **data, size_t *len,
		     struct ig_error *err)
{
	struct vocabulary *v = ctx;
	char path[4096];
	struct stat st;
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", v->path, name);
	f = v->n_files < VOCABULARY_MAX_FILES ? fopen(path, "rb") : NULL;
	if (!f)
		return -ENOENT;
	char *bytes = v->files[v->n_files++] =
		fstat(fileno(f), &st) ? NULL : malloc((size_t)st.st_size + 1);
	*data = bytes;
	*len = bytes ? fread(bytes, 1, (size_t)st.st_size, f) : 0;
	fclose(f);
	return bytes ? 0 : ig_fail(err, -ENOMEM, "%s: out of memory", path);
}

int vocabulary_open(struct vocabulary *v, const char *path)
{
	struct ig_model_files files = { find_file, v };
	struct ig_error err = { 0 };
	struct stat st;
	int rc = 0;

	*v = (struct vocabulary){ .path = path };
	bool is_folder = !stat(path, &st) && S_ISDIR(st.st_mode);
	if (!is_folder)
		rc = ig_checkpoint_open(path, NULL, &v->checkpoint, &err);
	double begin = vocabulary_now();
	if (!rc)
		rc = is_folder ? ig_tokenizer_open_files(&files, true, &v->tokenizer, &err) :
				 ig_tokenizer_open(v->checkpoint, &v->tokenizer, &err);
	v->opening_s = vocabulary_now() - begin;
	if (rc) {
		fprintf(stderr, "%s: %s\n", path, err.text);
		vocabulary_close(v);
	}
	return rc;
}

void vocabulary_close(struct vocabulary *v)
{
	ig_tokenizer_close(v->tokenizer);
	ig_checkpoint_close(v->checkpoint);
	while (v->n_files)
		free(v->files[--v->n_files]);
	*v = (struct vocabulary){ 0 };
}
