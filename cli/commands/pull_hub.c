/*
 * pull_hub.c: `ingot pull` of a repository of the Hugging Face Hub.  Says revision, licence and size
 * before the first byte; downloads into DIR/FILE.part, or DIR/FOLDER.part for a model of several
 * files, and moves that into place when all sizes and hashes are right, beside its lock.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/commands/command.h"
#include "cli/commands/pull_private.h"
#include "cli/download/files.h"
#include "cli/download/fits.h"
#include "cli/download/hub_fetch.h"
#include "cli/download/lock.h"
#include "cli/term/progress.h"
#include "cli/term/text.h"

struct job {
	struct pull *p;
	const struct ig_hub *hub;
	const struct ig_hub_repo *repo;
	const struct ig_hub_choice *choice;
	const char *name;	/* to serve it under */
	char path[PATH_MAX];	/* of the file or the folder */
	char part[PATH_MAX];	/* what is downloaded, before it is moved to path */
	uint64_t total, before; /* of all files; of those that are finished */
	struct ig_progress progress;
};

static const struct ig_hub_file *file_of(const struct job *j, size_t i)
{
	return &j->repo->files[j->choice->files[i]];
}

/* Where file i lies when top is the file or folder of the model. */
static int place_of(const struct job *j, const char *top, size_t i, char *buf, size_t size,
		    struct ig_error *err)
{
	const char *path = file_of(j, i)->path, *slash = strrchr(path, '/');
	int n = j->choice->is_folder ? snprintf(buf, size, "%s/%s", top, slash ? slash + 1 : path) :
				       snprintf(buf, size, "%s", top);

	return n > 0 && (size_t)n < size ? 0 : ig_fail(err, -ENAMETOOLONG, "the path is too long");
}

/* ---- what is there already ------------------------------------------------------------------- */

/* 0: all files are there and right. */
static int check_all(const struct job *j, const char *top, struct ig_error *err)
{
	char path[PATH_MAX];
	int rc = 0;

	for (size_t i = 0; !rc && i < j->choice->n_files; i++)
		if (!(rc = place_of(j, top, i, path, sizeof path, err)))
			rc = ig_hub_check_file(file_of(j, i), path, err);
	return rc;
}

/* Bytes of file i that are in the part's folder, whole or begun. */
static uint64_t done_of(const struct job *j, size_t i)
{
	char path[PATH_MAX], part[PATH_MAX + 8];
	const struct ig_hub_file *f = file_of(j, i);
	struct stat st;

	if (!j->choice->is_folder)
		return ig_hub_fetch_done(f, j->part);
	if (place_of(j, j->part, i, path, sizeof path, NULL))
		return 0;
	if (!lstat(path, &st) && S_ISREG(st.st_mode) && (uint64_t)st.st_size == f->n_bytes)
		return f->n_bytes;
	snprintf(part, sizeof part, "%s.part", path);
	return ig_hub_fetch_done(f, part);
}

static bool part_is_left(const struct job *j)
{
	struct stat st;

	if (j->choice->is_folder)
		return !rmdir(j->part) || errno == ENOENT ? false : true;
	return !lstat(j->part, &st);
}

/* ---- downloading ------------------------------------------------------------------------------ */

static void on_progress(void *ctx, uint64_t done)
{
	struct job *j = ctx;

	ig_progress_update(&j->progress, j->before + done);
	if (j->p->lines)
		pull_on_progress(j->p, done);
}

static int fetch(struct job *j, size_t i, const char *part, struct ig_error *err)
{
	const struct ig_hub_file *f = file_of(j, i);
	struct ig_hub_fetch get = { .hub = j->hub,
				    .repo = j->repo,
				    .file = f,
				    .part = part,
				    .n_connections = (unsigned)j->p->connections,
				    .progress = on_progress,
				    .ctx = j };

	pull_begin_file(j->p, f->sha256[0] ? "sha256" : "sha1", f->sha256[0] ? f->sha256 : f->sha1,
			f->n_bytes);
	int rc = ig_hub_fetch_file(&get, err);
	if (!rc)
		pull_put_progress(j->p, f->n_bytes);
	return rc;
}

/* File i of a folder, unless it is there from an earlier attempt. */
static int fetch_into(struct job *j, size_t i, struct ig_error *err)
{
	char path[PATH_MAX], part[PATH_MAX];
	struct stat st;
	int rc = place_of(j, j->part, i, path, sizeof path, err);

	if (rc)
		return rc;
	if (!lstat(path, &st) && !ig_hub_check_file(file_of(j, i), path, NULL) &&
	    S_ISREG(st.st_mode))
		return 0;
	if (ig_interrupted)
		return ig_fail(err, -EINTR, "interrupted");
	unlink(path);
	if (snprintf(part, sizeof part, "%s.part", path) >= (int)sizeof part)
		return ig_fail(err, -ENAMETOOLONG, "the path is too long");
	rc = fetch(j, i, part, err);
	return rc ? rc : ig_move_into_place(part, path, err);
}

/* The folder of the parts, which must be one of ours and no link. */
static int make_folder(const struct job *j, struct ig_error *err)
{
	struct stat st;

	if (mkdir(j->part, 0755) && errno != EEXIST)
		return ig_fail(err, -errno, "%.300s: %s", j->part, strerror(errno));
	if (lstat(j->part, &st) || !S_ISDIR(st.st_mode))
		return ig_fail(err, -ENOTDIR, "%.300s is not a folder; delete it, then pull again",
			       j->part);
	return 0;
}

/* The lock stands before its model, so that the model is never there without it. */
static int put_in_place(const struct job *j, struct ig_error *err)
{
	const struct ig_lock lock = { .name = j->name,
				      .license = j->repo->license[0] ? j->repo->license : NULL,
				      .hub = j->hub,
				      .repo = j->repo,
				      .choice = j->choice };
	int rc = ig_lock_write(j->path, &lock, err);

	if (rc)
		return rc;
	if (!j->choice->is_folder) {
		rc = ig_move_into_place(j->part, j->path, err);
	} else if (rename(j->part, j->path)) {
		rc = ig_fail(err, -errno, "can't move %.150s to %.150s: %s", j->part, j->path,
			     strerror(errno));
	} else {
		(void)ig_sync_folder_of(j->path);
	}
	if (rc)
		ig_lock_remove(j->path);
	return rc;
}

static int download(struct job *j, struct ig_error *err)
{
	uint64_t done = 0, all = 0;
	char dir[PATH_MAX];
	int rc = 0;

	for (size_t i = 0; i < j->choice->n_files; i++) {
		all += file_of(j, i)->n_bytes;
		done += done_of(j, i);
	}
	snprintf(dir, sizeof dir, "%s", j->path);
	*strrchr(dir, '/') = 0;
	if ((rc = ig_check_space(dir[0] ? dir : "/", all - done, err)))
		return rc;
	if (j->choice->is_folder && (rc = make_folder(j, err)))
		return rc;
	j->total = all;
	if (!j->p->lines)
		ig_progress_start(&j->progress, all, done);
	for (size_t i = 0; !rc && i < j->choice->n_files; i++) {
		rc = j->choice->is_folder ? fetch_into(j, i, err) : fetch(j, i, j->part, err);
		j->before += file_of(j, i)->n_bytes;
		if (!rc)
			ig_progress_update(&j->progress, j->before);
	}
	ig_progress_stop(&j->progress);
	return rc ? rc : put_in_place(j, err);
}

/* ---- one choice ------------------------------------------------------------------------------------ */

static bool is_split(const struct job *j)
{
	return j->choice->is_folder && strcmp(j->choice->label, "safetensors") != 0;
}

static void print_result(const struct job *j, bool was_there)
{
	char source[420], first[PATH_MAX];

	/* a split file is opened by its first part */
	if (!is_split(j) || place_of(j, j->path, 0, first, sizeof first, NULL))
		snprintf(first, sizeof first, "%s", j->path);

	snprintf(source, sizeof source, "%s:%s", j->repo->id, j->choice->label);
	pull_print_result(
		j->p,
		&(struct pulled){ .name = j->name,
				  .path = first,
				  .license = j->repo->license[0] ? j->repo->license : NULL,
				  .n_bytes = j->choice->n_bytes,
				  .sha256 = j->choice->n_files == 1 && file_of(j, 0)->sha256[0] ?
						    file_of(j, 0)->sha256 :
						    NULL,
				  .source = source,
				  .revision = j->repo->commit,
				  .was_there = was_there });
}

static int pull_existing(const struct job *j)
{
	struct ig_error err = { 0 };
	int rc;

	pull_put_status(j->p, "verifying sha256 digest");
	rc = check_all(j, j->path, &err);
	if (rc == -EINTR)
		return IG_EXIT_INTERRUPTED;
	if (rc)
		return pull_fail(j->p,
				 "%s exists but is not %s:%s as the Hub has it: %s; move or delete "
				 "it, then pull again",
				 j->path, j->repo->id, j->choice->label, err.text);
	fprintf(stderr, "%s is downloaded already; sizes and hashes are correct\n", j->name);
	print_result(j, true);
	return IG_EXIT_OK;
}

static int pull_choice(struct job *j)
{
	struct ig_error err = { 0 };
	struct ig_fit fit;
	struct stat st;
	char size[32], have[32];
	int rc;

	fprintf(stderr, "%s: %zu file%s, %s\n", j->choice->label, j->choice->n_files,
		j->choice->n_files == 1 ? "" : "s",
		ig_text_bytes(size, sizeof size, j->choice->n_bytes));
	if (stat(j->path, &st) == 0)
		return pull_existing(j);
	ig_fit_read(&fit);
	if (!ig_fits(&fit, j->choice->n_bytes))
		fprintf(stderr, "it does not fit your memory: models have %s\n",
			ig_text_bytes(have, sizeof have, fit.budget));
	rc = download(j, &err);
	if (!rc) {
		fprintf(stderr, "%s: sizes and hashes are correct\n", j->name);
		pull_put_status(j->p, "verifying sha256 digest");
		pull_put_status(j->p, "writing manifest");
		print_result(j, false);
		return IG_EXIT_OK;
	}
	bool left = part_is_left(j);
	if (rc == -EINTR || ig_interrupted) {
		fprintf(stderr, "\ninterrupted%s\n",
			left ? "; the received part is kept, the same command resumes" : "");
		return IG_EXIT_INTERRUPTED;
	}
	return pull_fail(j->p, "%s; %s was not pulled: %s", err.text, j->name,
			 left ? "the received part is kept, the same command resumes" :
				"nothing is left of it");
}

/* ---- which one --------------------------------------------------------------------------------------- */

/* *out NULL and 0: nothing is named, and there are several. */
static int choose(const struct ig_hub_repo *repo, const struct ig_hub_choices *c,
		  const struct ig_hub_ref *ref, const char *tags, const struct ig_hub_choice **out,
		  struct ig_error *err)
{
	char list[204], *save = NULL;
	int rc = 0;

	*out = NULL;
	if (ref->pick[0])
		return ig_hub_pick(repo, c, ref->pick, out, err);
	snprintf(list, sizeof list, "%s", tags ? tags : "");
	for (char *tag = strtok_r(list, " ", &save); tag; tag = strtok_r(NULL, " ", &save))
		if ((rc = ig_hub_pick(repo, c, tag, out, err)) != -ENOENT)
			return rc;
	if (rc)
		return ig_fail(err, rc, "%.100s has none of %.200s", repo->id, tags);
	if (c->n == 1)
		return ig_hub_pick(repo, c, repo->files[c->list[0].files[0]].path, out, err);
	return 0;
}

static int pull_from(struct job *j, const struct ig_hub_ref *ref, const char *tags,
		     const char *name, const char *dir)
{
	struct ig_hub_choices choices = { 0 };
	struct ig_error err = { 0 };
	char why[700];
	int status;

	fprintf(stderr, "%s at %s, revision %.12s, licence %s\n", j->repo->id, j->hub->endpoint,
		j->repo->commit, j->repo->license[0] ? j->repo->license : "not named");
	int rc = ig_hub_choices_of(j->repo, &choices, &err);
	if (!rc && !choices.n)
		rc = ig_fail(&err, -ENOENT,
			     "%.150s has neither a GGUF file nor a config.json with safetensors",
			     j->repo->id);
	if (!rc)
		rc = choose(j->repo, &choices, ref, tags, &j->choice, &err);
	if ((rc == -ENOENT || rc == -E2BIG) && choices.n) {
		snprintf(why, sizeof why, "%s; its choices are listed", err.text);
		status = pull_print_choices(j->p, j->repo, &choices, why);
	} else if (rc) {
		status = pull_fail(j->p, "%s", err.text);
	} else if (!j->choice) {
		snprintf(why, sizeof why, "%s has several models; name one: ingot pull %s:%s",
			 j->repo->id, j->repo->id, choices.list[0].label);
		status = pull_print_choices(j->p, j->repo, &choices, why);
	} else {
		j->name = name ? name : j->choice->name;
		int n = snprintf(j->path, sizeof j->path, "%s/%s", dir, j->choice->local);
		int m = snprintf(j->part, sizeof j->part, "%s/%s.part", dir, j->choice->local);
		status = n < (int)sizeof j->path - 16 && m < (int)sizeof j->part - 16 ?
				 pull_choice(j) :
				 pull_fail(j->p, "the models folder's path is too long");
	}
	ig_hub_choices_finish(&choices);
	return status;
}

int pull_hub(struct pull *p, const struct ig_hub_ref *ref, const char *tags, const char *name,
	     const char *dir)
{
	struct ig_hub hub = { .stall_s = p->stall_s,
			      .retries = p->retries,
			      .retry_wait_s = p->retry_wait_s };
	struct ig_hub_repo repo = { 0 };
	struct job *j = calloc(1, sizeof *j);
	struct ig_error err = { 0 };
	int status, rc = j ? ig_hub_open(&hub, &err) : ig_fail(&err, -ENOMEM, "out of memory");

	if (!rc)
		rc = ig_hub_repo_read(&hub, ref->repo, &repo, &err);
	if (rc == -EINTR) {
		status = IG_EXIT_INTERRUPTED;
	} else if (rc) {
		status = pull_fail(p, "%s", err.text);
	} else {
		j->p = p;
		j->hub = &hub;
		j->repo = &repo;
		status = pull_from(j, ref, tags, name, dir);
	}
	ig_hub_repo_finish(&repo);
	free(j);
	return status;
}
