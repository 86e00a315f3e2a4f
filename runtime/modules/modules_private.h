/*
 * modules_private.h: what the files of the registry share: registry.c has what is
 * registered by name, folders.c the order in which it gets there, load.c how a file is
 * mapped and checked, place.c who may have changed it, host.c what a module is offered,
 * options.c what the configuration says of it.
 */
#pragma once

#include "runtime/modules/modules.h"

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

#define MAX_MODULES IG_MAX_MODULES
#define MAX_OPS 256
#define MAX_ARCHS 128

struct value {
	uint64_t number;
	char *text; /* NULL: the default */
};

/* A module.  Descriptions are copies in our size, zero beyond the size that the module
 * knew them in. */
struct loaded {
	struct ig_module d;
	char *path;
	struct ig_arch *archs; /* [n_archs] */
	uint32_t n_archs, n_ops, n_options;
	struct value *values; /* [n_options] */
	struct ig_host host;  /* this module's own: by it the owner of options is known */
};

struct ig_modules {
	struct loaded *modules[MAX_MODULES];
	uint32_t n_modules, n_started;
	const struct ig_op *ops[MAX_OPS];
	uint32_t n_ops;
	const struct ig_arch *archs[MAX_ARCHS + 1]; /* those of all modules, then NULL */
	uint32_t n_archs;
};

/* ---- registry.c ---- */

/* Register what a module has; it is the registry's then.  -EEXIST, -ENOSPC. */
int modules_add(struct ig_modules *m, struct loaded *l, struct ig_error *err);
/* An op that it requires and that neither it nor the registry has (yet), or NULL. */
const struct ig_op_version *modules_missing(const struct ig_modules *m, const struct loaded *l);
int modules_refuse_missing(const struct ig_modules *m, const struct loaded *l,
			   const struct ig_op_version *op, struct ig_error *err);

/* ---- load.c ---- */

/* Map a file and check it as data: the module, without any of it having been called. */
int modules_open(const char *path, struct loaded **out, struct ig_error *err);
void modules_free(struct loaded *l); /* NULL is fine */

/* ---- host.c ---- */

void modules_fill_host(struct ig_host *host);

/* ---- options.c ---- */

/* Check the table, and begin with its defaults. */
int modules_take_options(struct loaded *l, struct ig_error *err);
void modules_free_options(struct loaded *l);
int modules_set(struct loaded *l, const struct ig_setting *s, struct ig_error *err);
int modules_option_number(const struct ig_host *host, const char *key, uint64_t *out);
int modules_option_text(const struct ig_host *host, const char *key, const char **out);

/* ---- place.c ---- */

enum place { PLACE_ANCESTOR, PLACE_FOLDER, PLACE_FILE };

/* Open the file that path names, links followed once, and look at it and at every folder
 * above it as they are opened.  real: where it lies.  -EPERM: who is neither root nor the
 * one who runs this could change it. */
int place_open(const char *path, char real[PATH_MAX], int *fd, struct ig_error *err);
/* One step of that way: the part of path that ends at `at`, as user me sees it. */
int place_judge(const struct stat *st, uid_t me, enum place what, const char *path, const char *at,
		struct ig_error *err);
