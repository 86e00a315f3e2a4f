/*
 * replay.c: runs a fuzz target once over each file of its corpus.
 *
 * Arguments are files and folders.  Every input is copied into memory of exactly
 * its size, so that AddressSanitizer sees a read past its end; the name goes to
 * standard error first, so that the last line before a crash names the input.
 * A folder that is missing or empty is a failure: nothing was replayed.
 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned n_replayed;

static int replay_file(const char *path, off_t size)
{
	FILE *f = fopen(path, "rb");
	uint8_t *data;
	size_t n = (size_t)size;

	if (!f) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		return -1;
	}
	data = malloc(n ? n : 1);
	if (!data || fread(data, 1, n, f) != n) {
		fprintf(stderr, "%s: can't be read\n", path);
		free(data);
		fclose(f);
		return -1;
	}
	fclose(f);
	fprintf(stderr, "%s (%zu bytes)\n", path, n);
	fflush(stderr);
	LLVMFuzzerTestOneInput(data, n);
	free(data);
	n_replayed++;
	return 0;
}

static int compare_names(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int visible(const struct dirent *e) { return e->d_name[0] != '.'; }

static int replay_path(const char *path)
{
	struct dirent **entries;
	struct stat st;
	int n, rc = 0;

	if (stat(path, &st) < 0) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		return -1;
	}
	if (!S_ISDIR(st.st_mode))
		return replay_file(path, st.st_size);
	n = scandir(path, &entries, visible, compare_names);
	if (n < 0) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		return -1;
	}
	for (int i = 0; i < n; i++) {
		size_t len = strlen(path) + strlen(entries[i]->d_name) + 2;
		char *child = malloc(len);

		if (!child) {
			rc = -1;
		} else {
			snprintf(child, len, "%s/%s", path, entries[i]->d_name);
			if (replay_path(child) < 0)
				rc = -1;
			free(child);
		}
		free(entries[i]);
	}
	free(entries);
	return rc;
}

int main(int argc, char **argv)
{
	int rc = 0;

	for (int i = 1; i < argc; i++)
		if (replay_path(argv[i]) < 0)
			rc = 1;
	if (n_replayed == 0) {
		fprintf(stderr, "no input was replayed\n");
		return 1;
	}
	printf("%u inputs replayed\n", n_replayed);
	return rc;
}
