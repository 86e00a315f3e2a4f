/*
 * modules_private.h: shared by the files of the registry: registry.c (names), folders.c (order of
 * loading), load.c (mapping and checking a file), place.c (who may change it), host.c (functions
 * for modules), options.c (options of modules).
 */
#pragma once

#include "runtime/modules/modules.h"

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

#ifdef __APPLE__
#define MODULE_SUFFIX ".dylib"
#else
#define MODULE_SUFFIX ".so"
#endif
#define MODULE_TRANSPORT "transport-" /* begins the names of transports' files */

#define MAX_MODULES IG_MAX_MODULES
#define MAX_OPS 256
#define MAX_ARCHS 128

struct value {
	uint64_t number;
	char *text; /* NULL: the default */
};

/* A module.  Its structs are copied in our size; what the module's struct lacks is zero. */
struct loaded {
	struct ig_module d;
	char *path;
	struct ig_arch *archs; /* [n_archs] */
	uint32_t n_archs, n_ops, n_options;
	struct value *values; /* [n_options] */
	struct ig_host host;  /* of this module; identifies the owner of options */
};

struct ig_modules {
	struct loaded *modules[MAX_MODULES];
	uint32_t n_modules, n_started;
	const struct ig_op *ops[MAX_OPS];
	uint32_t n_ops;
	const struct ig_arch *archs[MAX_ARCHS + 1]; /* of all modules; NULL-terminated */
	uint32_t n_archs;
};

/* ---- registry.c ---- */

/* Register a module; the registry takes ownership.  -EEXIST, -ENOSPC. */
int modules_add(struct ig_modules *m, struct loaded *l, struct ig_error *err);
/* A required op that neither the module nor the registry has, or NULL. */
const struct ig_op_version *modules_missing(const struct ig_modules *m, const struct loaded *l);
int modules_refuse_missing(const struct ig_modules *m, const struct loaded *l,
			   const struct ig_op_version *op, struct ig_error *err);

/* ---- load.c ---- */

/* Check who may change the file and map it; *handle is for dlsym. */
int modules_map(const char *path, void **handle, struct ig_error *err);
/* Map a file and check it as data; none of its functions is called. */
int modules_open(const char *path, struct loaded **out, struct ig_error *err);
void modules_free(struct loaded *l); /* NULL is fine */

/* ---- host.c ---- */

void modules_fill_host(struct ig_host *host);

/* ---- options.c ---- */

/* Check the table; set the defaults. */
int modules_take_options(struct loaded *l, struct ig_error *err);
void modules_free_options(struct loaded *l);
int modules_set(struct loaded *l, const struct ig_setting *s, struct ig_error *err);
int modules_option_number(const struct ig_host *host, const char *key, uint64_t *out);
int modules_option_text(const struct ig_host *host, const char *key, const char **out);

/* ---- place.c ---- */

enum place { PLACE_ANCESTOR, PLACE_FOLDER, PLACE_FILE };

/* Open the file that path names, following links once; check it and every folder above it.  real:
 * its path without links.  -EPERM: another user than root and the current one may change it. */
int place_open(const char *path, char real[PATH_MAX], int *fd, struct ig_error *err);
/* Check one of them, `at`, for user me; path is for the error. */
int place_check(const struct stat *st, uid_t me, enum place what, const char *path, const char *at,
		struct ig_error *err);
