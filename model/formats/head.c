/*
 * head.c: a GGUF file that has only the head of a model, which guesses the token after the next one (MTP): blocks
 * behind the last layer, with the model's keys, and copies of what both share (token_embd, output_norm, output).
 * llama.cpp's converter writes such files (--mtp, mtp-NAME.gguf).  The blocks become the model's, as if they had been
 * in its own file; the copies are not used.
 */
#include "model/formats/checkpoint_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct blocks {
	const char *arch;
	size_t n_arch;
	uint32_t n_layers, n_next;
	bool has_next; /* tensors of a block that predicts */
	bool has_layers;
	char block_count[96], nextn[96]; /* the keys */
};

/* "blk.N." at the beginning of a name; -1: it has no such. */
static int64_t block_of(const char *name)
{
	int64_t n = 0;

	if (strncmp(name, "blk.", 4) || name[4] < '0' || name[4] > '9')
		return -1;
	for (name += 4; *name >= '0' && *name <= '9' && n < INT32_MAX; name++)
		n = n * 10 + (*name - '0');
	return *name == '.' ? n : -1;
}

static int count_blocks(const struct ig_checkpoint *g, struct blocks *b, struct ig_error *err)
{
	uint32_t n_blocks = 0;
	int rc = ig_checkpoint_str(g, "general.architecture", &b->arch, &b->n_arch, err);

	*b = (struct blocks){ .arch = b->arch, .n_arch = b->n_arch };
	if (rc)
		return rc;
	if (b->n_arch > 60)
		return ig_fail(err, -EINVAL, "%s: general.architecture is too long", g->label);
	snprintf(b->block_count, sizeof b->block_count, "%.*s.block_count", (int)b->n_arch,
		 b->arch);
	snprintf(b->nextn, sizeof b->nextn, "%.*s.nextn_predict_layers", (int)b->n_arch, b->arch);
	if ((rc = ig_checkpoint_u32(g, b->block_count, &n_blocks, err)))
		return rc;
	rc = ig_checkpoint_u32(g, b->nextn, &b->n_next, err);
	if (rc && rc != -ENOENT)
		return rc;
	if (b->n_next >= n_blocks)
		return ig_fail(err, -EINVAL, "%s: %s is %" PRIu32 ", %s %" PRIu32, g->label,
			       b->nextn, b->n_next, b->block_count, n_blocks);
	b->n_layers = n_blocks - b->n_next;
	for (uint32_t i = 0; i < g->n_tensors; i++) {
		const int64_t n = block_of(g->tensors[i].name);
		b->has_layers |= n >= 0 && n < b->n_layers;
		b->has_next |= n >= b->n_layers;
	}
	return 0;
}

bool ig_checkpoint_is_head(const struct ig_checkpoint *g)
{
	struct blocks b;

	return !g->folder && !count_blocks(g, &b, NULL) && b.n_next && b.has_next && !b.has_layers;
}

/* Indexes with space for more; without memory for them g keeps its own. */
static int index_again(struct ig_checkpoint *g, uint32_t more_tensors, struct ig_error *err)
{
	struct ig_index keys = { 0 }, tensors = { 0 };
	int rc = ig_checkpoint_index(g, &keys, g->n_kvs + 1, err);

	if (!rc)
		rc = ig_checkpoint_index(g, &tensors, g->n_tensors + more_tensors, err);
	if (rc) {
		free(keys.slots);
		return rc;
	}
	free(g->kv_index.slots);
	free(g->tensor_index.slots);
	g->kv_index = keys;
	g->tensor_index = tensors;
	for (uint32_t i = 0; i < g->n_kvs; i++)
		*ig_checkpoint_kv_index(g, g->kvs[i].key, g->kvs[i].key_len) = i + 1;
	for (uint32_t i = 0; i < g->n_tensors; i++)
		*ig_checkpoint_tensor_index(g, g->tensors[i].name) = i + 1;
	return 0;
}

/* Space for all that the head has. */
static int grow(struct ig_checkpoint *g, const struct ig_checkpoint *head, struct ig_error *err)
{
	const size_t n_tensors = (size_t)g->n_tensors + head->n_tensors;
	struct ig_kv *kvs = realloc(g->kvs, ((size_t)g->n_kvs + 1) * sizeof *kvs);
	struct ig_checkpoint_tensor *tensors = realloc(g->tensors, n_tensors * sizeof *tensors);
	struct ig_checkpoint **parts = realloc(g->parts, (g->n_parts + 1) * sizeof *parts);

	g->kvs = kvs ? kvs : g->kvs;
	g->tensors = tensors ? tensors : g->tensors;
	g->parts = parts ? parts : g->parts;
	if (!kvs || !tensors || !parts || n_tensors > UINT32_MAX / 4)
		return ig_checkpoint_no_memory(g, n_tensors * sizeof *tensors, err);
	return index_again(g, head->n_tensors, err);
}

/* A key's value of the head's file, in place of what g has. */
static void take_key(struct ig_checkpoint *g, const struct ig_checkpoint *head, const char *key)
{
	uint32_t *slot = ig_checkpoint_kv_index(g, key, strlen(key));

	if (!*slot)
		*slot = ++g->n_kvs;
	g->kvs[*slot - 1] = head->kvs[*ig_checkpoint_kv_index(head, key, strlen(key)) - 1];
}

static int check(const struct ig_checkpoint *g, const struct ig_checkpoint *head,
		 const struct blocks *own, const struct blocks *b, struct ig_error *err)
{
	if (g->folder)
		return ig_fail(err, -ENOTSUP, "%s: a head in a GGUF file needs a model in one, too",
			       head->label);
	if (own->n_arch != b->n_arch || memcmp(own->arch, b->arch, b->n_arch) != 0)
		return ig_fail(err, -EINVAL,
			       "%s: a head for architecture %.*s; the model's is %.*s", head->label,
			       (int)b->n_arch, b->arch, (int)own->n_arch, own->arch);
	if (own->n_layers != b->n_layers)
		return ig_fail(err, -EINVAL,
			       "%s: a head for %" PRIu32 " layers; the model has %" PRIu32,
			       head->label, b->n_layers, own->n_layers);
	if (own->has_next)
		return ig_fail(err, -EINVAL, "%s: the model has a head of its own already",
			       head->label);
	return 0;
}

int ig_checkpoint_add_head(struct ig_checkpoint *g, struct ig_checkpoint *head,
			   struct ig_error *err)
{
	struct blocks own, b;
	int rc;

	if ((rc = count_blocks(g, &own, err)) || (rc = count_blocks(head, &b, err)) ||
	    (rc = check(g, head, &own, &b, err)) || (rc = grow(g, head, err)))
		return rc;
	take_key(g, head, b.block_count);
	take_key(g, head, b.nextn);
	for (uint32_t i = 0; i < head->n_tensors; i++) {
		const struct ig_checkpoint_tensor *t = &head->tensors[i];
		if (block_of(t->name) < b.n_layers)
			continue;
		g->tensors[g->n_tensors] = *t; /* the model has none of that block */
		*ig_checkpoint_tensor_index(g, t->name) = ++g->n_tensors;
	}
	g->parts[g->n_parts++] = head;
	return 0;
}
