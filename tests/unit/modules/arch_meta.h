/*
 * arch_meta.h: a file's metadata as a list of keys, for tests that give architectures
 * good and bad ones.
 */
#pragma once

#include <ingot/arch.h>

#include <errno.h>
#include <string.h>

enum kind { U32, F32, STR, TENSOR, LIST };

struct entry {
	const char *key;
	enum kind kind;
	double number; /* of a list: its length */
	const char *text;
	const uint32_t *list;
};

struct ig_meta {
	struct entry entries[40];
	int n;
};

static void meta_drop(struct ig_meta *m, const char *key)
{
	for (int i = 0; i < m->n; i++)
		if (!strcmp(m->entries[i].key, key))
			m->entries[i] = m->entries[--m->n];
}

static void meta_set(struct ig_meta *m, struct entry e)
{
	meta_drop(m, e.key);
	m->entries[m->n++] = e;
}

static const struct entry *meta_find(const struct ig_meta *m, const char *key)
{
	for (int i = 0; i < m->n; i++)
		if (!strcmp(m->entries[i].key, key))
			return &m->entries[i];
	return NULL;
}

static int meta_get(const struct ig_meta *m, const char *key, enum kind kind,
		    const struct entry **out, struct ig_error *err)
{
	*out = meta_find(m, key);
	if (!*out)
		return ig_fail(err, -ENOENT, "%s is missing", key);
	if ((*out)->kind != kind)
		return ig_fail(err, -EINVAL, "%s has another type", key);
	return 0;
}

static int meta_u32(const struct ig_meta *m, const char *key, uint32_t *out, struct ig_error *err)
{
	const struct entry *e;
	int rc = meta_get(m, key, U32, &e, err);

	if (!rc)
		*out = (uint32_t)e->number;
	return rc;
}

static int meta_f32(const struct ig_meta *m, const char *key, float *out, struct ig_error *err)
{
	const struct entry *e;
	int rc = meta_get(m, key, F32, &e, err);

	if (!rc)
		*out = (float)e->number;
	return rc;
}

static int meta_str(const struct ig_meta *m, const char *key, const char **out, size_t *len,
		    struct ig_error *err)
{
	const struct entry *e;
	int rc = meta_get(m, key, STR, &e, err);

	if (!rc) {
		*out = e->text;
		*len = strlen(e->text);
	}
	return rc;
}

static int meta_array_u32(const struct ig_meta *m, const char *key, uint32_t *out, uint64_t cap,
			  uint64_t *n, struct ig_error *err)
{
	const struct entry *e;
	int rc = meta_get(m, key, LIST, &e, err);

	if (rc)
		return rc;
	*n = (uint64_t)e->number;
	memcpy(out, e->list, (*n < cap ? *n : cap) * sizeof *out);
	return 0;
}

static int meta_has_tensor(const struct ig_meta *m, const char *name)
{
	const struct entry *e = meta_find(m, name);

	return e && e->kind == TENSOR;
}

static int meta_tensor(const struct ig_meta *m, const char *name, int64_t *n_rows, int64_t *n_cols)
{
	const struct entry *e = meta_find(m, name);

	if (!e || e->kind != TENSOR)
		return -ENOENT;
	*n_rows = (int64_t)e->number;
	*n_cols = 576;
	return 0;
}
