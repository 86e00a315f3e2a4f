/* entries_private.h: the entries of configured models; see entries.c. */
#pragma once

#include "daemon/engine/registry_private.h"

/* ---- without the lock ------------------------------------------------------------- */

/* NULL: out of memory. */
struct ig_model_entry *ig_entry_create(const struct ig_config_model *c);
void ig_entry_free(struct ig_model_entry *s); /* NULL is fine */
/* The entries of a configuration, before there are threads. */
int ig_models_set_entries(struct ig_models *ms, const struct ig_config *config,
			  struct ig_error *err);
/* Call them, and free the list. */
void ig_waiters_notify(struct ig_waiter *w);

/* ---- under the lock --------------------------------------------------------------- */

/* Once there are threads. */
int ig_models_set_default(struct ig_models *ms, const char *name, struct ig_error *err);
/* The entry of this configured name; NULL: there is none. */
struct ig_model_entry *ig_entry_named(const struct ig_entry_list *list, const char *name);
/* The entry of a request's name; NULL or "": the default.  *adapter: the number plus one of its
 * adapter, 0: none; the pointer may be NULL. */
int ig_entry_find(const struct ig_models *ms, const char *name, struct ig_model_entry **out,
		  uint32_t *adapter, struct ig_error *err);
/* ready is called at the end of the load, unless it is NULL. */
int ig_entry_add_waiter(struct ig_model_entry *s, void (*ready)(void *ctx), void *ctx,
			struct ig_error *err);
struct ig_waiter *ig_entry_take_waiters(struct ig_model_entry *s);
/* Store the figures of the opened file in s. */
void ig_entry_set_figures(struct ig_model_entry *s, const struct ig_model *m);
void ig_entry_forget_figures(struct ig_model_entry *s);
