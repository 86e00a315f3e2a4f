/* isa.h: which instruction sets this processor and system have. */
#pragma once

#include <ingot/op.h>
#include <stdbool.h>

/* The best one here. */
uint32_t ig_isa_best(void);
/* "auto" or a name to enum ig_isa; -ENOTSUP names one that is unknown or not here. */
int ig_isa_parse(const char *name, uint32_t *isa, struct ig_error *err);
const char *ig_isa_name(uint32_t isa);
/* Whether a kernel for `kernel` runs where `chosen` was chosen. */
bool ig_isa_includes(uint32_t chosen, uint32_t kernel);
