/* hub_fetch.h: downloads one file of a repository into FILE.part, in ranges side by side, resumes an
 * earlier attempt, and verifies size and hash. */
#pragma once

#include "cli/download/hub_repo.h"

#define IG_HUB_MAX_CONNECTIONS 16

struct ig_hub_fetch {
	const struct ig_hub *hub;
	const struct ig_hub_repo *repo;
	const struct ig_hub_file *file;
	const char *part;
	unsigned n_connections;
	/* Called with the bytes of the part so far, several times a second. */
	void (*progress)(void *ctx, uint64_t done);
	void *ctx;
};

/*
 * 0: part is complete and its hash is correct.  Otherwise part has the ranges received so far, with
 * FILE.part.meta, and the next call resumes them; both are deleted when they are wrong:
 * -EBADMSG  wrong bytes, or the server's file has another size
 * -EACCES, -ENOENT  as ig_hub_ask;  -ETIMEDOUT  no attempts are left
 * -EINTR    ig_interrupted;  -ENOSPC …  part cannot be written;  -EBUSY  another process has it
 */
int ig_hub_fetch_file(const struct ig_hub_fetch *f, struct ig_error *err);
/* How many bytes of the file an earlier attempt has left in part. */
uint64_t ig_hub_fetch_done(const struct ig_hub_file *file, const char *part);
/* 0 when path is this file; -EBADMSG with text when not, -EINTR. */
int ig_hub_check_file(const struct ig_hub_file *file, const char *path, struct ig_error *err);
