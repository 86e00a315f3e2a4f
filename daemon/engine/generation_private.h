/* generation_private.h: what a request may ask of the engine. */
#pragma once

#include "daemon/engine/generation.h"

/* Whether its model can serve it.  Any thread.  -EINVAL, -E2BIG with text. */
int ig_spec_check(const struct ig_gen_spec *spec, struct ig_error *err);
