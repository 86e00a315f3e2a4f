/* catalog.h: the models as Codex's model catalog wants them. */
#pragma once

#include "base/json.h"
#include "daemon/engine/engine.h"

/* The member "models": a list with an object for each model. */
void ig_catalog_write(struct ig_json_writer *w, const struct ig_model_status *list, size_t n);
