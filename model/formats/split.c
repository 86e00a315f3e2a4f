/*
 * split.c: a GGUF model in several files, as gguf-split makes it: NAME-00001-of-00003.gguf and so on.
 * The first has the keys; each has tensors of its own, and says its number and how many there are.
 * They become one checkpoint, which owns the other files' maps.
 */
#include "model/formats/checkpoint_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PARTS 999
#define TAIL_BYTES 20 /* -00001-of-00003.gguf */

/* split.no (from 0) and split.count; a count of 0: the file is not split. */
static int read_numbers(const struct ig_checkpoint *g, uint32_t *no, uint32_t *count,
			struct ig_error *err)
{
	int rc = ig_checkpoint_u32(g, "split.count", count, NULL);

	*no = 0;
	if (rc == -ENOENT) {
		*count = 0;
		return 0;
	}
	if (rc)
		return ig_checkpoint_u32(g, "split.count", count, err);
	return ig_checkpoint_u32(g, "split.no", no, err);
}

/* The path of part i (from 1) of n, from that of the first. */
static int path_of(const struct ig_checkpoint *g, const char *first, uint32_t i, uint32_t n,
		   char *buf, size_t size, struct ig_error *err)
{
	size_t len = strlen(first);
	char tail[40];

	snprintf(tail, sizeof tail, "-00001-of-%05" PRIu32 ".gguf", n);
	if (len <= TAIL_BYTES || len >= size || strcmp(first + len - TAIL_BYTES, tail))
		return ig_fail(err, -EINVAL,
			       "%s: the file is the first of %" PRIu32
			       " parts, so its name must end in %s",
			       g->label, n, tail);
	snprintf(tail, sizeof tail, "-%05" PRIu32 "-of-%05" PRIu32 ".gguf", i, n);
	memcpy(buf, first, len - TAIL_BYTES);
	memcpy(buf + len - TAIL_BYTES, tail, TAIL_BYTES + 1);
	return 0;
}

static int open_part(struct ig_checkpoint *g, const char *first, uint32_t i, uint32_t n,
		     struct ig_error *err)
{
	uint32_t no = 0, count = 0;
	struct ig_checkpoint *p = NULL;
	char path[4096];
	int rc = path_of(g, first, i, n, path, sizeof path, err);

	if (!rc)
		rc = ig_checkpoint_open_part(path, &p, err);
	if (rc)
		return rc;
	g->parts[g->n_parts++] = p; /* ig_split_finish closes it */
	rc = read_numbers(p, &no, &count, err);
	if (!rc && (count != n || no != i - 1))
		rc = ig_fail(err, -EINVAL,
			     "%s: it is part %" PRIu64 " of %" PRIu32 ", not %" PRIu32
			     " of %" PRIu32,
			     p->label, (uint64_t)no + 1, count, i, n);
	return rc;
}

/* All parts' tensors in one table with an index of its own. */
static int join(struct ig_checkpoint *g, struct ig_error *err)
{
	uint64_t n = g->n_tensors;
	struct ig_checkpoint_tensor *all;

	for (uint32_t i = 0; i < g->n_parts; i++)
		n += g->parts[i]->n_tensors;
	if (n > UINT32_MAX / 4)
		return ig_fail(err, -EINVAL, "%s: the parts have too many tensors", g->label);
	all = realloc(g->tensors, (n ? n : 1) * sizeof *all);
	if (!all)
		return ig_checkpoint_no_memory(g, n * sizeof *all, err);
	g->tensors = all;
	free(g->tensor_index.slots);
	g->tensor_index.slots = NULL;
	int rc = ig_checkpoint_index(g, &g->tensor_index, (uint32_t)n, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < g->n_tensors; i++)
		*ig_checkpoint_tensor_index(g, all[i].name) = i + 1;
	for (uint32_t i = 0; i < g->n_parts; i++)
		for (uint32_t k = 0; k < g->parts[i]->n_tensors; k++) {
			const struct ig_checkpoint_tensor *t = &g->parts[i]->tensors[k];
			uint32_t *slot = ig_checkpoint_tensor_index(g, t->name);
			if (*slot)
				return ig_fail(
					err, -EINVAL, "%s: tensor '%s' is in another part already",
					g->parts[i]->label, ig_show(t->name, strlen(t->name)).text);
			all[g->n_tensors] = *t;
			*slot = ++g->n_tensors;
		}
	return 0;
}

int ig_split_read(struct ig_checkpoint *g, const char *path, struct ig_error *err)
{
	uint32_t no, n, n_tensors = 0;
	int rc = read_numbers(g, &no, &n, err);

	if (rc || n <= 1)
		return rc;
	if (no)
		return ig_fail(err, -EINVAL,
			       "%s: the file is part %" PRIu64 " of %" PRIu32 "; name the first",
			       g->label, (uint64_t)no + 1, n);
	if (n > MAX_PARTS)
		return ig_fail(err, -EINVAL, "%s: split.count is %" PRIu32 ", at most %d are read",
			       g->label, n, MAX_PARTS);
	g->parts = calloc(n, sizeof(struct ig_checkpoint *));
	if (!g->parts)
		return ig_checkpoint_no_memory(g, n * sizeof(struct ig_checkpoint *), err);
	for (uint32_t i = 2; i <= n && !rc; i++)
		rc = open_part(g, path, i, n, err);
	if (!rc)
		rc = join(g, err);
	if (!rc && !ig_checkpoint_u32(g, "split.tensors.count", &n_tensors, NULL) &&
	    n_tensors != g->n_tensors)
		rc = ig_fail(err, -EINVAL,
			     "%s: split.tensors.count is %" PRIu32 ", the parts have %" PRIu32,
			     g->label, n_tensors, g->n_tensors);
	return rc;
}

void ig_split_finish(struct ig_checkpoint *g)
{
	for (uint32_t i = 0; i < g->n_parts; i++)
		ig_checkpoint_close(g->parts[i]);
	free(g->parts);
}
