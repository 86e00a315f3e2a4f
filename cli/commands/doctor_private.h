/*
 * doctor_private.h: what the checks of `ingot doctor` share: configuration, driver and modules as far
 * as they could be opened, and the list of findings.
 */
#pragma once

#include "cli/commands/doctor.h"
#include "cli/net/endpoint.h"
#include "runtime/driver.h"
#include "runtime/modules/modules.h"
#include "store/config.h"

struct ig_doctor {
	struct ig_findings found;
	struct ig_config *config; /* NULL: it is wrong */
	struct ig_modules *modules;
	struct ig_error refusal; /* of the first module that was not loaded */
	struct ig_driver *driver;
	/* Memory of the models that can be planned: all, those loaded at the start, the pinned. */
	uint64_t all_bytes, start_bytes, pinned_bytes;
	bool files; /* only the named files are checked */
};

#define OK(d, what, ...) ig_findings_add(&(d)->found, IG_FINDING_OK, what, NULL, __VA_ARGS__)
#define NOTE(d, what, todo, ...)                                                                   \
	ig_findings_add(&(d)->found, IG_FINDING_NOTE, what, todo, __VA_ARGS__)
#define WRONG(d, what, todo, ...)                                                                  \
	ig_findings_add(&(d)->found, IG_FINDING_WRONG, what, todo, __VA_ARGS__)

/* doctor_machine.c */
void ig_doctor_machine(struct ig_doctor *d);

/* doctor_models.c: those that the configuration names and their memory together, or a file or a
 * folder that it does not name. */
void ig_doctor_models(struct ig_doctor *d);
void ig_doctor_file(struct ig_doctor *d, char *path);

/* doctor_daemon.c: the file of requests, and the daemon that runs. */
void ig_doctor_ledger(struct ig_doctor *d);
void ig_doctor_daemon(struct ig_doctor *d, const struct ig_where *where);
