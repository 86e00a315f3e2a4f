/* contract_private.h: the memory contract; see contract.c. */
#pragma once

#include "daemon/engine/registry_private.h"

/* Count those that load at start, find the arena's size, refuse what can't be: the entries'
 * figures are known.  Before there are threads. */
int ig_contract_start(struct ig_models *ms, const struct ig_config *config, struct ig_error *err);
/* What m takes: m->need. */
void ig_contract_measure(const struct ig_contract *c, struct ig_model *m);
/* How many tokens of m the arena holds; -EINVAL: too few. */
int ig_contract_fit_cache(const struct ig_contract *c, struct ig_model *m, struct ig_error *err);
uint64_t ig_contract_free(const struct ig_contract *c);
/* -ENOMEM, with the figures. */
int ig_contract_refuse(const struct ig_contract *c, const char *name, const struct ig_need *n,
		       uint64_t idle, struct ig_error *err);

/* The copies of logits, `all` bytes together; 0 or -ENOMEM. */
int ig_logits_alloc(const struct ig_backend *b, uint64_t all, float *out[IG_STEPS_IN_FLIGHT]);
void ig_logits_free(float *logits[IG_STEPS_IN_FLIGHT]);
