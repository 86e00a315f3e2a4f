/* files.c: see files.h. */
#include "cli/download/files.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/term/text.h"

volatile sig_atomic_t ig_interrupted;

static void on_interrupt(int sig)
{
	if (ig_interrupted)
		_exit(130);
	ig_interrupted = 1;
}

void ig_catch_interrupts(void)
{
	struct sigaction sa = { .sa_handler = on_interrupt }; /* no SA_RESTART: ends waits */

	sigemptyset(&sa.sa_mask);
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
}

int ig_make_folders(const char *path, struct ig_error *err)
{
	struct ig_strbuf inside = { 0 };
	struct stat st;
	int rc;

	ig_strbuf_printf(&inside, "%s/", path);
	rc = ig_strbuf_ok(&inside) ? ig_make_folders_above(inside.data, 0755, err) :
				     ig_fail(err, -ENOMEM, "out of memory");
	ig_strbuf_finish(&inside);
	if (rc)
		return rc;
	if (stat(path, &st))
		return ig_fail(err, -errno, "%.300s: %s", path, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return ig_fail(err, -ENOTDIR, "%.300s is not a folder", path);
	if (access(path, W_OK | X_OK))
		return ig_fail(err, -errno, "can't write into %.300s: %s", path, strerror(errno));
	return 0;
}

/* The hash of head and then a file, in lower-case digits, and the file's size.  -EINTR:
 * ig_interrupted is set. */
static int hash_file(const char *path, const EVP_MD *kind, const char *head, size_t head_len,
		     char hex[2 * EVP_MAX_MD_SIZE + 1], uint64_t *n_bytes, struct ig_error *err)
{
	enum { CHUNK = 1 << 20 };
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned n_digest = 0;
	EVP_MD_CTX *md = NULL;
	char *buf = NULL;
	int rc = 0, fd = open(path, O_RDONLY | O_CLOEXEC);

	*n_bytes = 0;
	if (fd < 0)
		return ig_fail(err, -errno, "%.300s: %s", path, strerror(errno));
	md = EVP_MD_CTX_new();
	buf = malloc(CHUNK);
	if (!md || !buf || !EVP_DigestInit_ex(md, kind, NULL) ||
	    !EVP_DigestUpdate(md, head, head_len)) {
		rc = ig_fail(err, -ENOMEM, "out of memory");
		goto out;
	}
	for (ssize_t n = 1; n;) {
		n = read(fd, buf, CHUNK);
		if (ig_interrupted)
			rc = ig_fail(err, -EINTR, "interrupted");
		else if (n < 0 && errno == EINTR)
			continue;
		else if (n < 0)
			rc = ig_fail(err, -errno, "%.300s: %s", path, strerror(errno));
		else if (n && !EVP_DigestUpdate(md, buf, (size_t)n))
			rc = ig_fail(err, -EIO, "the hash failed");
		if (rc)
			goto out;
		*n_bytes += (uint64_t)n;
	}
	if (!EVP_DigestFinal_ex(md, digest, &n_digest)) {
		rc = ig_fail(err, -EIO, "the hash failed");
		goto out;
	}
	for (unsigned i = 0; i < n_digest; i++)
		snprintf(hex + (size_t)2 * i, 3, "%02x", digest[i]);
out:
	EVP_MD_CTX_free(md);
	free(buf);
	close(fd);
	return rc;
}

static int check_hash(const char *path, uint64_t n_bytes, const EVP_MD *kind, const char *head,
		      size_t head_len, const char *expected, const char *name, struct ig_error *err)
{
	char hex[2 * EVP_MAX_MD_SIZE + 1];
	uint64_t n;
	int rc = hash_file(path, kind, head, head_len, hex, &n, err);

	if (rc)
		return rc;
	if (n != n_bytes)
		return ig_fail(err, -EBADMSG, "it has %llu bytes, %llu expected",
			       (unsigned long long)n, (unsigned long long)n_bytes);
	if (strcmp(hex, expected))
		return ig_fail(err, -EBADMSG, "%s is %s, expected %s", name, hex, expected);
	return 0;
}

int ig_check_file(const char *path, uint64_t n_bytes, const char *sha256, struct ig_error *err)
{
	return check_hash(path, n_bytes, EVP_sha256(), "", 0, sha256, "SHA-256", err);
}

int ig_check_blob(const char *path, uint64_t n_bytes, const char *sha1, struct ig_error *err)
{
	char head[40];
	int n = snprintf(head, sizeof head, "blob %llu", (unsigned long long)n_bytes);

	return check_hash(path, n_bytes, EVP_sha1(), head, (size_t)n + 1, sha1, "git's SHA-1", err);
}

int ig_move_into_place(const char *from, const char *to, struct ig_error *err)
{
	int fd = open(from, O_RDONLY | O_CLOEXEC);

	/* on the disk before it is renamed: after a power cut the file must be whole */
	if (fd < 0 || fsync(fd)) {
		int e = errno;
		if (fd >= 0)
			close(fd);
		return ig_fail(err, -e, "%.300s: %s", from, strerror(e));
	}
	close(fd);
	if (chmod(from, 0644) || rename(from, to))
		return ig_fail(err, -errno, "can't move %.150s to %.150s: %s", from, to,
			       strerror(errno));
	/* some file systems cannot sync a folder; the file has its name anyway */
	(void)ig_sync_folder_of(to);
	return 0;
}

int ig_check_space(const char *dir, uint64_t n_bytes, struct ig_error *err)
{
	struct statvfs v;
	char need[32], have[32];

	if (statvfs(dir, &v))
		return 0; /* unknown: writing will fail if there is too little */
	uint64_t left = (uint64_t)v.f_bavail * (v.f_frsize ? v.f_frsize : v.f_bsize);
	if (left >= n_bytes)
		return 0;
	return ig_fail(err, -ENOSPC,
		       "the disk of %.250s has %s left, %s are needed; free some space or name "
		       "another folder with --to",
		       dir, ig_text_bytes(have, sizeof have, left),
		       ig_text_bytes(need, sizeof need, n_bytes));
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path) && errno != ENOENT ? -1 : 0;
}

void ig_remove_tree(const char *dir)
{
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

bool ig_is_local_failure(int rc)
{
	switch (rc) {
	case -EINTR:
	case -ENOSPC:
	case -EDQUOT:
	case -EFBIG:
	case -EROFS:
	case -EACCES:
	case -EPERM:
	case -ENOMEM:
	case -ENOTDIR:
	case -EBUSY:
	case -EIO: return true;
	default: return false;
	}
}
