/*
 * modules.h: the registry of core ops, and of the ops, architectures and services of modules loaded
 * with dlopen.  A module is checked as data before any of its functions is called, and never
 * unloaded.  The main thread fills the registry at start; afterwards it is read-only.
 */
#pragma once

#include <ingot/arch.h>
#include <ingot/kvcache.h>
#include <ingot/transport.h>

#define IG_MAX_MODULES 64

struct ig_modules;
struct ig_setting;

/* Create a registry with the core ops. */
int ig_modules_create(struct ig_modules **out, struct ig_error *err);
void ig_modules_destroy(struct ig_modules *m); /* modules stay mapped; NULL is fine */

/* Load one file; its init is not called yet.  Errors name the file, what was expected and what
 * was found: a file or folder that other users may change (-EPERM); no ingot_module, wrong magic,
 * ABI version, size or build id (-ENOEXEC); a missing required op (-ENOENT); a name that exists
 * already (-EEXIST). */
int ig_modules_load(struct ig_modules *m, const char *path, struct ig_error *err);
/* Load every *.so (*.dylib) of these folders (NULL-terminated); a module is loaded after those
 * whose ops it requires.  All errors are logged, the first one is returned. */
int ig_modules_load_folders(struct ig_modules *m, char *const *folders, struct ig_error *err);
/* Set the modules' options and call their init functions, in the order of loading.  Call it
 * once, before ops, architectures and services are used. */
int ig_modules_start(struct ig_modules *m, const struct ig_setting *settings, size_t n,
		     struct ig_error *err);

const struct ig_op *ig_modules_op(const struct ig_modules *m, const char *name);
const struct ig_arch *ig_modules_arch(const struct ig_modules *m, const char *name, size_t len);
/* The architecture that claims the file, else the one of this name (general.architecture).
 * Returns 0, -ENOTSUP with the known ones, or -EINVAL if several claim it. */
int ig_modules_arch_of(const struct ig_modules *m, const struct ig_meta *meta, const char *name,
		       size_t len, const struct ig_arch **out, struct ig_error *err);
const struct ig_kvcache_service *ig_modules_kvcache(const struct ig_modules *m, const char *name);
/* The host struct of the module of this architecture. */
const struct ig_host *ig_modules_host(const struct ig_modules *m, const struct ig_arch *arch);

/* The loaded modules, to out[IG_MAX_MODULES]; returns how many. */
size_t ig_modules_list(const struct ig_modules *m, const struct ig_module **out);
/* Call each(ctx, name, version, path) for every loaded module. */
void ig_modules_each(const struct ig_modules *m,
		     void (*each)(void *ctx, const char *name, const char *version,
				  const char *path),
		     void *ctx);
/* All architectures in the order of loading; NULL-terminated. */
const struct ig_arch *const *ig_modules_archs(const struct ig_modules *m);
/* "llama, gpt2": the known architectures. */
void ig_modules_arch_names(const struct ig_modules *m, char *buf, size_t size);

/* The transport of this name, from the first of these folders (NULL-terminated) with its file, transport-NAME.so, which
 * is checked as a module's is and stays mapped.  -ENOENT, -EPERM or -ENOEXEC with text. */
int ig_transport_load(char *const *folders, const char *name, const struct ig_transport **out,
		      struct ig_error *err);
