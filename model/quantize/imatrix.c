/* imatrix.c: see imatrix.h.  Entries point into the map; their floats are not aligned in the older
 * format. */
#include "model/quantize/imatrix.h"

#include "model/formats/checkpoint_private.h"
#include "model/formats/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MAX_ENTRIES (1 << 16)
#define MAX_NAME 255
#define SUMS ".in_sum2" /* the end of an entry's name in GGUF */
/* Of the mean: the least weight of a column.  The sample of texts has not said everything. */
#define LEAST 1e-4

struct entry {
	char *name;
	const uint8_t *values; /* sums of squares, float32 */
	uint64_t n;
};

struct ig_imatrix {
	char *label;		    /* the end of its path */
	struct ig_checkpoint *gguf; /* NULL: the older format, mapped at base */
	const uint8_t *base;
	uint64_t size;
	struct entry *entries;
	uint32_t n_entries, n_chunks;
	const char *dataset;
	size_t dataset_len;
};

static float value_at(const uint8_t *values, uint64_t i)
{
	float f;

	memcpy(&f, values + 4 * i, sizeof f);
	return f;
}

static int no_memory(const struct ig_imatrix *m, struct ig_error *err)
{
	return ig_fail(err, -ENOMEM, "%s: out of memory", m->label);
}

static int add(struct ig_imatrix *m, const char *name, size_t len, const uint8_t *values,
	       uint64_t n, struct ig_error *err)
{
	struct entry *e = &m->entries[m->n_entries];

	for (uint64_t i = 0; i < n; i++) {
		float v = value_at(values, i);
		if (!(v >= 0 && v <= 3e38f))
			return ig_fail(err, -EINVAL,
				       "%s: entry '%s', value %" PRIu64
				       " is %g, which is no mean of squares",
				       m->label, ig_show(name, len).text, i, (double)v);
	}
	e->name = strndup(name, len);
	if (!e->name)
		return no_memory(m, err);
	e->values = values;
	e->n = n;
	m->n_entries++;
	return 0;
}

static int make_entries(struct ig_imatrix *m, uint64_t n, struct ig_error *err)
{
	m->entries = calloc(n ? n : 1, sizeof *m->entries);
	return m->entries ? 0 : no_memory(m, err);
}

/* ---- GGUF ---------------------------------------------------------------------------- */

static int first_text(void *ctx, uint64_t i, const char *s, size_t len)
{
	struct ig_imatrix *m = ctx;

	if (i == 0) {
		m->dataset = s;
		m->dataset_len = len;
	}
	return 0;
}

static int read_pair(struct ig_imatrix *m, const struct ig_checkpoint_tensor *sums,
		     struct ig_error *err)
{
	size_t len = strlen(sums->name) - strlen(SUMS);
	const struct ig_checkpoint_tensor *counts;
	char name[MAX_NAME + 16];

	if (len == 0 || len > MAX_NAME)
		return ig_fail(err, -EINVAL, "%s: a name is empty or too long: '%s'", m->label,
			       ig_show(sums->name, strlen(sums->name)).text);
	snprintf(name, sizeof name, "%.*s.counts", (int)len, sums->name);
	counts = ig_checkpoint_find_tensor(m->gguf, name);
	if (!counts)
		return ig_fail(err, -EINVAL, "%s: has no '%s'", m->label,
			       ig_show(name, strlen(name)).text);
	if (sums->dtype != IG_F32 || counts->dtype != IG_F32 || counts->n_cols != 1 ||
	    sums->n_rows != counts->n_rows)
		return ig_fail(err, -EINVAL,
			       "%s: '%s' and its counts are not float32 with the same number of "
			       "matrices",
			       m->label, ig_show(sums->name, strlen(sums->name)).text);
	return add(m, sums->name, len, sums->data, (uint64_t)(sums->n_rows * sums->n_cols), err);
}

static int read_gguf(struct ig_imatrix *m, const char *path, struct ig_error *err)
{
	const char *type = "";
	size_t len = 0;
	int rc = ig_checkpoint_open(path, NULL, &m->gguf, err);

	if (rc)
		return rc;
	if (ig_checkpoint_str(m->gguf, "general.type", &type, &len, NULL) || len != 7 ||
	    memcmp(type, "imatrix", 7))
		return ig_fail(err, -EINVAL, "%s: is a GGUF file, but no importance matrix",
			       m->label);
	if (ig_checkpoint_u32(m->gguf, "imatrix.chunk_count", &m->n_chunks, NULL))
		m->n_chunks = 0;
	ig_checkpoint_array_strs(m->gguf, "imatrix.datasets", first_text, m, NULL);
	rc = make_entries(m, ig_checkpoint_n_tensors(m->gguf), err);
	for (uint64_t i = 0; i < ig_checkpoint_n_tensors(m->gguf) && rc == 0; i++) {
		const struct ig_checkpoint_tensor *t = ig_checkpoint_tensor(m->gguf, i);
		if (ig_ends_with(t->name, SUMS) || !strcmp(t->name, SUMS))
			rc = read_pair(m, t, err);
	}
	return rc;
}

/* ---- the older format ------------------------------------------------------------------- */

struct cursor {
	const uint8_t *p;
	uint64_t left;
};

static bool take(struct cursor *c, uint64_t n, const uint8_t **out)
{
	if (n > c->left)
		return false;
	*out = c->p;
	c->p += n;
	c->left -= n;
	return true;
}

/* A number from least to most. */
static bool take_number(struct cursor *c, int32_t least, int32_t most, int32_t *out)
{
	const uint8_t *p;

	if (!take(c, 4, &p))
		return false;
	memcpy(out, p, 4);
	return *out >= least && *out <= most;
}

/* The number of entries; of each its name's length, name, number of chunks, number of values,
 * values; then, in all but the first versions, the number of chunks and the texts' name. */
static int read_old(struct ig_imatrix *m, struct ig_error *err)
{
	struct cursor c = { m->base, m->size };
	const uint8_t *name, *values;
	int32_t n, len, chunks, n_values;
	int rc;

	if (!take_number(&c, 1, MAX_ENTRIES, &n))
		return ig_fail(err, -EINVAL, "%s: is no importance matrix", m->label);
	if ((rc = make_entries(m, (uint64_t)n, err)))
		return rc;
	for (int32_t i = 0; i < n; i++) {
		if (!take_number(&c, 1, MAX_NAME, &len) || !take(&c, (uint64_t)len, &name) ||
		    memchr(name, 0, (size_t)len) ||
		    !take_number(&c, INT32_MIN, INT32_MAX, &chunks) ||
		    !take_number(&c, 1, INT32_MAX, &n_values) ||
		    !take(&c, 4 * (uint64_t)n_values, &values))
			return ig_fail(err, -EINVAL,
				       "%s: is truncated or no importance matrix: entry %" PRId32
				       " of %" PRId32 " at byte %" PRIu64,
				       m->label, i + 1, n, m->size - c.left);
		if ((rc = add(m, (const char *)name, (size_t)len, values, (uint64_t)n_values, err)))
			return rc;
	}
	if (!c.left)
		return 0;
	if (!take_number(&c, INT32_MIN, INT32_MAX, &chunks) ||
	    !take_number(&c, 0, INT32_MAX, &len) || !take(&c, (uint64_t)len, &name))
		return ig_fail(err, -EINVAL, "%s: is truncated after its entries", m->label);
	m->n_chunks = chunks > 0 ? (uint32_t)chunks : 0;
	m->dataset = (const char *)name;
	m->dataset_len = (size_t)len;
	return 0;
}

/* ---- the file ---------------------------------------------------------------------------- */

int ig_imatrix_open(const char *path, struct ig_imatrix **out, struct ig_error *err)
{
	struct ig_imatrix *m = calloc(1, sizeof *m);
	const char *slash = strrchr(path, '/');
	int rc;

	*out = NULL;
	if (!m || !(m->label = strdup(slash ? slash + 1 : path))) {
		free(m);
		return ig_fail(err, -ENOMEM, "%s: out of memory", path);
	}
	rc = ig_map_file(AT_FDCWD, path, path, 8, "an importance matrix", &m->base, &m->size, err);
	if (rc) {
		m->base = NULL;
	} else if (!memcmp(m->base, "GGUF", 4)) {
		munmap((void *)(uintptr_t)m->base, (size_t)m->size);
		m->base = NULL;
		rc = read_gguf(m, path, err);
	} else {
		rc = read_old(m, err);
	}
	if (!rc && !m->n_entries)
		rc = ig_fail(err, -EINVAL, "%s: has no entries", m->label);
	if (rc) {
		ig_imatrix_close(m);
		return rc;
	}
	*out = m;
	return 0;
}

void ig_imatrix_close(struct ig_imatrix *m)
{
	if (!m)
		return;
	for (uint32_t i = 0; i < m->n_entries; i++)
		free(m->entries[i].name);
	free(m->entries);
	ig_checkpoint_close(m->gguf);
	if (m->base)
		munmap((void *)(uintptr_t)m->base, (size_t)m->size);
	free(m->label);
	free(m);
}

int ig_imatrix_check(const struct ig_imatrix *m, const struct ig_checkpoint *model,
		     struct ig_error *err)
{
	for (uint32_t i = 0; i < m->n_entries; i++) {
		const struct entry *e = &m->entries[i];
		const struct ig_shown shown = ig_show(e->name, strlen(e->name));
		const struct ig_checkpoint_tensor *t = ig_checkpoint_find_tensor(model, e->name);
		if (!t)
			return ig_fail(err, -EINVAL,
				       "%s: is of another model: %s has no tensor '%s'", m->label,
				       ig_checkpoint_label(model), shown.text);
		if (e->n != (uint64_t)t->n_cols * (uint64_t)t->dims[2])
			return ig_fail(err, -EINVAL,
				       "%s: is of another model: '%s' has %" PRIu64
				       " values, but in %s %" PRId64 " matrices of %" PRId64
				       " columns",
				       m->label, shown.text, e->n, ig_checkpoint_label(model),
				       t->dims[2], t->n_cols);
	}
	return 0;
}

bool ig_imatrix_weights(const struct ig_imatrix *m, const struct ig_checkpoint_tensor *t,
			float *out)
{
	const struct entry *e = m->entries, *end = e + m->n_entries;

	while (e < end && strcmp(e->name, t->name))
		e++;
	if (e == end)
		return false;
	for (int64_t at = 0; at < (int64_t)e->n; at += t->n_cols) {
		double mean = 0;
		for (int64_t i = 0; i < t->n_cols; i++)
			mean += value_at(e->values, (uint64_t)(at + i)) / (double)t->n_cols;
		for (int64_t i = 0; i < t->n_cols; i++) {
			double v = value_at(e->values, (uint64_t)(at + i));
			out[at + i] = mean > 0 ? (float)fmax(v / mean, LEAST) : 1;
		}
	}
	return true;
}

const char *ig_imatrix_label(const struct ig_imatrix *m) { return m->label; }
uint32_t ig_imatrix_n_entries(const struct ig_imatrix *m) { return m->n_entries; }
uint32_t ig_imatrix_n_chunks(const struct ig_imatrix *m) { return m->n_chunks; }

bool ig_imatrix_dataset(const struct ig_imatrix *m, const char **s, size_t *len)
{
	*s = m->dataset;
	*len = m->dataset_len;
	return m->dataset_len > 0;
}
