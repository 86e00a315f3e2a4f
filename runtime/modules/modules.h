/*
 * modules.h: what is registered by name: the core ops, and the ops,
 * architectures and services of modules loaded with dlopen.
 *
 * A module is checked as data before anything in it is called, and never
 * unloaded.  Main's thread, at start; read-only afterwards.
 */
#pragma once

#include <ingot/arch.h>
#include <ingot/kvcache.h>

#define IG_MAX_MODULES 64

struct ig_modules;
struct ig_setting;

/* With the core ops registered and no module loaded. */
int ig_modules_create(struct ig_modules **out, struct ig_error *err);
void ig_modules_destroy(struct ig_modules *m); /* frees the registry; code stays */

/* Load one file; its init is not called yet.  Refusals name the file, what was expected
 * and what was found: a file or folder that others may change (-EPERM), no ingot_module,
 * magic, ABI version, size, build id (-ENOEXEC), a required op that nobody provides, a name
 * taken twice (-EEXIST). */
int ig_modules_load(struct ig_modules *m, const char *path, struct ig_error *err);
/* Every *.so (*.dylib) of these folders (NULL-terminated), in an order in which
 * required ops come first.  The first refusal is returned, all are logged. */
int ig_modules_load_folders(struct ig_modules *m, char *const *folders, struct ig_error *err);
/* Give the modules their options and call the init of each, in the order in which they were
 * loaded.  Once; ops, architectures and services are used after it. */
int ig_modules_start(struct ig_modules *m, const struct ig_setting *settings, size_t n,
		     struct ig_error *err);

const struct ig_op *ig_modules_op(const struct ig_modules *m, const char *name);
const struct ig_arch *ig_modules_arch(const struct ig_modules *m, const char *name, size_t len);
/* The architecture that claims the file, else the one of this name (of general.architecture):
 * 0, -ENOTSUP with the known ones, or -EINVAL where several claim it. */
int ig_modules_arch_of(const struct ig_modules *m, const struct ig_meta *meta, const char *name,
		       size_t len, const struct ig_arch **out, struct ig_error *err);
const struct ig_kvcache_service *ig_modules_kvcache(const struct ig_modules *m, const char *name);
/* What the module of this architecture was given. */
const struct ig_host *ig_modules_host(const struct ig_modules *m, const struct ig_arch *arch);

/* The loaded ones' descriptions, to out[IG_MAX_MODULES]; returns how many. */
size_t ig_modules_list(const struct ig_modules *m, const struct ig_module **out);
/* The loaded ones, for people: each(ctx, name, version, path). */
void ig_modules_each(const struct ig_modules *m,
		     void (*each)(void *ctx, const char *name, const char *version,
				  const char *path),
		     void *ctx);
/* All architectures, NULL-terminated, in the order in which they were loaded. */
const struct ig_arch *const *ig_modules_archs(const struct ig_modules *m);
/* "llama, gpt2": the known architectures. */
void ig_modules_arch_names(const struct ig_modules *m, char *buf, size_t size);
