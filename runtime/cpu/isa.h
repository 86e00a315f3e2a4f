/* isa.h: the instruction sets of this processor and system. */
#pragma once

#include <ingot/op.h>
#include <stdbool.h>

/* The best supported one. */
uint32_t ig_isa_best(void);
/* "auto" or a name to enum ig_isa; -ENOTSUP if it is unknown or not supported. */
int ig_isa_parse(const char *name, uint32_t *isa, struct ig_error *err);
const char *ig_isa_name(uint32_t isa);
/* Whether a kernel for instruction set `kernel` can run if `chosen` was chosen. */
bool ig_isa_includes(uint32_t chosen, uint32_t kernel);
