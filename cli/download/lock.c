/* lock.c: see lock.h. */
#include "cli/download/lock.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"

static bool path_of(const char *path, char *buf, size_t size)
{
	int n = snprintf(buf, size, "%s.lock", path);

	return n > 0 && (size_t)n < size;
}

static void put_files(struct ig_json_writer *w, const struct ig_lock *l)
{
	ig_json_open_array(w, "files");
	for (size_t i = 0; l->choice && i < l->choice->n_files; i++) {
		const struct ig_hub_file *f = &l->repo->files[l->choice->files[i]];
		ig_json_putf(w, "{'path': %s, 'bytes': %llu", f->path,
			     (unsigned long long)f->n_bytes);
		ig_json_put_text(w, f->sha256[0] ? "sha256" : "git_sha1",
				 f->sha256[0] ? f->sha256 : f->sha1);
		ig_json_close_object(w);
	}
	if (!l->choice)
		ig_json_putf(w, "{'path': %s, 'bytes': %llu, 'sha256': %s}", l->file,
			     (unsigned long long)l->n_bytes, l->sha256);
	ig_json_close_array(w);
}

int ig_lock_write(const char *path, const struct ig_lock *l, struct ig_error *err)
{
	struct ig_strbuf b = { 0 };
	struct ig_json_writer w = { .out = &b, .spaced = true };
	char lock[4096];
	int rc;

	if (!path_of(path, lock, sizeof lock))
		return ig_fail(err, -ENAMETOOLONG, "the path is too long");
	ig_json_putf(&w, "{'name': %s, 'license': %s", l->name, l->license);
	if (l->repo)
		ig_json_putf(&w, "'endpoint': %s, 'repository': %s, 'revision': %s, 'choice': %s",
			     l->hub->endpoint, l->repo->id, l->repo->commit, l->choice->label);
	put_files(&w, l);
	ig_json_close_object(&w);
	ig_strbuf_puts(&b, "\n");
	rc = ig_strbuf_ok(&b) ? ig_replace_file(lock, b.data, b.len, err) :
				ig_fail(err, -ENOMEM, "out of memory");
	if (!rc && chmod(lock, 0644))
		rc = ig_fail(err, -errno, "%.300s: %s", lock, strerror(errno));
	ig_strbuf_finish(&b);
	return rc;
}

void ig_lock_remove(const char *path)
{
	char lock[4096];

	if (path_of(path, lock, sizeof lock))
		unlink(lock);
}
