/* pull_private.h: what pull.c (the command, models with sources), pull_hub.c (those of the Hub) and
 * pull_output.c (what they print) share. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cli/download/hub_repo.h"

struct pull {
	const char *models, *to;
	int64_t stall_s, retries, connections;
	double retry_wait_s;
	bool json, lines;
	bool is_served; /* what is in the models folder is */
	/* Of the lines: the file that is being pulled, and when the last line was written. */
	char digest[80];
	uint64_t total;
	int64_t told_ns;
};

/* A model that is there now. */
struct pulled {
	const char *name, *path, *license;
	uint64_t n_bytes;
	const char *sha256; /* of its only file; NULL: there are several */
	const char *source; /* "OWNER/REPO:Q4_K_M"; NULL: of models.yaml's sources */
	const char *revision;
	bool was_there;
};

/* ---- pull_output.c ---- */

void pull_put_status(const struct pull *p, const char *status);
/* A file begins; kind: "sha256", "sha1". */
void pull_begin_file(struct pull *p, const char *kind, const char *hash, uint64_t total);
/* A line about it, or, pull_on_progress, one if the last is long ago; with --json-lines only. */
void pull_put_progress(struct pull *p, uint64_t done);
void pull_on_progress(void *ctx, uint64_t done);
/* A failure for people, and for who reads the lines; the exit status. */
__attribute__((format(printf, 2, 3))) int pull_fail(const struct pull *p, const char *fmt, ...);
void pull_print_result(const struct pull *p, const struct pulled *m);
/* The choices of a repository, because none was named or `why`; the exit status. */
int pull_print_choices(const struct pull *p, const struct ig_hub_repo *repo,
		       const struct ig_hub_choices *choices, const char *why);

/* ---- pull_hub.c ---- */

/* Pull from the Hub into dir: the first of tags (separated by spaces) that the repository has, or
 * else what ref names.  name: to serve it under; NULL: as the file is called. */
int pull_hub(struct pull *p, const struct ig_hub_ref *ref, const char *tags, const char *name,
	     const char *dir);
