/*
 * table.c: the shaders of this program and their kernels.
 *
 * Each object that `msl soft` makes calls soft_add_… from a constructor, before main;
 * afterwards the table is only read.  A program that cannot hold it cannot go on.
 */
#include "private.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct soft_shader *shaders;
static uint32_t n_shaders;

static void *grow(void *p, uint64_t n, size_t size)
{
	p = realloc(p, n * size);
	if (!p) {
		fprintf(stderr, "soft: out of memory for the table of shaders\n");
		abort();
	}
	return p;
}

static struct soft_kernel *last_kernel(uint64_t shader)
{
	struct soft_shader *s = &shaders[shader];

	return (struct soft_kernel *)&s->kernels[s->n_kernels - 1];
}

/* Called by the objects' constructors (tools/msl/entry.py). */
uint64_t soft_add_shader(const char *name, uint64_t hash, uint32_t n_bytes, uint32_t checked);
uint64_t soft_add_shader(const char *name, uint64_t hash, uint32_t n_bytes, uint32_t checked)
{
	shaders = grow(shaders, n_shaders + 1, sizeof *shaders);
	shaders[n_shaders] = (struct soft_shader){
		.name = name,
		.source_hash = hash,
		.source_bytes = n_bytes,
		.checked = checked != 0,
	};
	return n_shaders++;
}

void soft_add_kernel(uint64_t shader, const char *name, uint64_t entry, uint32_t max_threads);
void soft_add_kernel(uint64_t shader, const char *name, uint64_t entry, uint32_t max_threads)
{
	struct soft_shader *s = &shaders[shader];

	s->kernels = grow((void *)s->kernels, s->n_kernels + 1, sizeof *s->kernels);
	s->n_kernels++;
	*last_kernel(shader) = (struct soft_kernel){
		.name = name,
		.entry = entry,
		.max_threads = max_threads ? max_threads : SOFT_MAX_THREADS,
	};
}

void soft_add_argument(uint64_t shader, uint32_t kind, uint32_t index, uint32_t size,
		       uint32_t access);
void soft_add_argument(uint64_t shader, uint32_t kind, uint32_t index, uint32_t size,
		       uint32_t access)
{
	struct soft_kernel *k = last_kernel(shader);

	k->arguments = grow((void *)k->arguments, k->n_arguments + 1, sizeof *k->arguments);
	((struct soft_argument *)k->arguments)[k->n_arguments++] = (struct soft_argument){
		.kind = kind, .index = index, .size = size, .access = access
	};
}

/* The arrays move while they grow: the way back is set when all are there. */
static void link_back(void)
{
	uint32_t i, j;

	for (i = 0; i < n_shaders; i++)
		for (j = 0; j < shaders[i].n_kernels; j++)
			((struct soft_kernel *)shaders[i].kernels)[j].shader = &shaders[i];
}

const struct soft_shader *soft_shader(uint32_t i)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, link_back);
	return i < n_shaders ? &shaders[i] : NULL;
}

const struct soft_shader *soft_find_shader(const char *name)
{
	const struct soft_shader *s;
	uint32_t i;

	for (i = 0; (s = soft_shader(i)) != NULL; i++)
		if (strcmp(s->name, name) == 0)
			return s;
	return NULL;
}

const struct soft_shader *soft_find_source(const char *text, size_t n_bytes)
{
	const struct soft_shader *s;
	uint64_t hash = 0xcbf29ce484222325u;
	uint32_t i;
	size_t at;

	for (at = 0; at < n_bytes; at++)
		hash = (hash ^ (uint8_t)text[at]) * 0x100000001b3u;
	for (i = 0; (s = soft_shader(i)) != NULL; i++)
		if (s->source_hash == hash && s->source_bytes == n_bytes)
			return s;
	return NULL;
}

const struct soft_kernel *soft_find_kernel(const struct soft_shader *in, const char *name)
{
	const struct soft_shader *s;
	uint32_t i, j;

	for (i = 0; (s = soft_shader(i)) != NULL; i++) {
		if (in && s != in)
			continue;
		for (j = 0; j < s->n_kernels; j++)
			if (strcmp(s->kernels[j].name, name) == 0)
				return &s->kernels[j];
	}
	return NULL;
}
