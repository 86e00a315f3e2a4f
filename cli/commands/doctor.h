/* doctor.h: what `ingot doctor` found, and how it is shown. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

enum ig_finding_kind {
	IG_FINDING_OK,
	IG_FINDING_NOTE, /* nothing wrong, but worth knowing */
	IG_FINDING_WRONG,
};

struct ig_finding {
	enum ig_finding_kind kind;
	char *what; /* "module attention" */
	char *text; /* what was found */
	char *todo; /* what to do; NULL when it is ok */
};

struct ig_findings {
	struct ig_finding *list;
	size_t n, cap;
	bool failed; /* memory ran out */
};

void ig_findings_finish(struct ig_findings *f);
__attribute__((format(printf, 5, 6))) void ig_findings_add(struct ig_findings *f,
							   enum ig_finding_kind kind,
							   const char *what, const char *todo,
							   const char *fmt, ...);

struct ig_memory_facts {
	uint64_t budget;  /* memory.budget */
	uint64_t machine; /* ig_machine_memory */
	uint64_t device;  /* ig_driver_memory */
	bool unified;
	int64_t wired_limit_mb; /* ig_gpu_wired_limit_mb */
};
/* memory.budget, its default and what limits it. */
void ig_findings_memory(struct ig_findings *f, const struct ig_memory_facts *m);

size_t ig_findings_wrong(const struct ig_findings *f);
/* Append lines for people, or one JSON object. */
bool ig_findings_text(const struct ig_findings *f, struct ig_strbuf *out);
bool ig_findings_json(const struct ig_findings *f, struct ig_strbuf *out);
