/*
 * fetch.c: see fetch.h.  Over libcurl's easy interface.  FILE.part.meta has the URL and the ETag of
 * the bytes in FILE.part; If-Range makes the server send a changed file whole.  The server's
 * lengths are not trusted: at most n_bytes are written, a Content-Range must continue the bytes in
 * the file, and the hash is computed over the whole file.
 */
#include "cli/download/fetch.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/download/files.h"
#include "cli/term/progress.h"
#include "cli/term/text.h"

#define MAX_REDIRECTS 5
#define STALL_BYTES_PER_S 256
#define GOOD_PROGRESS                                                                              \
	(1u << 20) /* an attempt with so many new bytes resets the count of attempts */

struct attempt {
	const struct ig_fetch *f;
	CURL *curl;
	int fd;
	uint64_t have; /* bytes in the file */
	uint64_t from; /* where this attempt starts */
	bool body_checked;
	char etag_sent[256]; /* of the bytes in the file; "": unknown */
	/* of the current response */
	char etag[256];
	bool has_range;
	uint64_t range_start, range_total; /* total UINT64_MAX: '*' */
	/* the error for which the body was refused */
	int rc;
	bool again; /* another attempt from byte 0 may succeed */
	struct ig_error err;
	struct ig_progress progress;
};

/* ---- FILE.part.meta -------------------------------------------------- */

static bool meta_path(const struct ig_fetch *f, char *buf, size_t size)
{
	int n = snprintf(buf, size, "%s.meta", f->part);

	return n > 0 && (size_t)n < size;
}

/* Whether the part is of this URL; sets its ETag, if known. */
static bool meta_read(const struct ig_fetch *f, char *etag, size_t size)
{
	char path[4096], text[4096];
	bool same = false;

	etag[0] = 0;
	if (!meta_path(f, path, sizeof path))
		return false;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return false;
	ssize_t n = read(fd, text, sizeof text - 1);
	close(fd);
	if (n <= 0)
		return false;
	text[n] = 0;
	size_t len = strcspn(text, "\n");
	if (len == strlen(f->url) && !memcmp(text, f->url, len) && text[len]) {
		same = true;
		const char *e = text + len + 1;
		snprintf(etag, size, "%.*s", (int)strcspn(e, "\n"), e);
	}
	return same;
}

static int meta_write(const struct ig_fetch *f, const char *etag, struct ig_error *err)
{
	char path[4096], text[4096];

	if (!meta_path(f, path, sizeof path))
		return ig_fail(err, -ENAMETOOLONG, "the path is too long");
	int n = snprintf(text, sizeof text, "%s\n%s\n", f->url, etag);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0)
		return ig_fail(err, -errno, "%.300s: %s", path, strerror(errno));
	ssize_t done = write(fd, text, (size_t)n);
	int e = done < 0 ? errno : done < n ? ENOSPC : 0;
	close(fd);
	return e ? ig_fail(err, -e, "%.300s: %s", path, strerror(e)) : 0;
}

static void meta_remove(const struct ig_fetch *f)
{
	char path[4096];

	if (meta_path(f, path, sizeof path))
		unlink(path);
}

/* ---- what curl calls ----------------------------------------------------------- */

static bool parse_content_range(const char *s, size_t n, struct attempt *a)
{
	char text[128], *end;
	const char *p = text;

	if (n >= sizeof text)
		return false;
	memcpy(text, s, n);
	text[n] = 0;
	p += strspn(p, " \t");
	if (strncasecmp(p, "bytes", 5))
		return false;
	p += 5;
	p += strspn(p, " \t");
	if (*p < '0' || *p > '9')
		return false;
	errno = 0;
	a->range_start = strtoull(p, &end, 10);
	if (errno || *end != '-')
		return false;
	p = strchr(end, '/');
	if (!p)
		return false;
	p++;
	if (*p == '*') {
		a->range_total = UINT64_MAX;
		return true;
	}
	if (*p < '0' || *p > '9')
		return false;
	a->range_total = strtoull(p, &end, 10);
	return !errno;
}

static size_t on_header(char *s, size_t one, size_t n, void *ctx)
{
	struct attempt *a = ctx;

	if (n >= 5 && !strncasecmp(s, "HTTP/", 5)) { /* of a redirect or the final one */
		a->etag[0] = 0;
		a->has_range = false;
	} else if (n > 5 && !strncasecmp(s, "ETag:", 5)) {
		size_t from = 5, to = n;
		while (from < to && (s[from] == ' ' || s[from] == '\t'))
			from++;
		while (to > from && (unsigned char)s[to - 1] <= 0x20)
			to--;
		bool ok = to - from >= 2 && to - from < sizeof a->etag;
		for (size_t i = from; i < to && ok; i++)
			ok = (unsigned char)s[i] > 0x20 && s[i] != 0x7f;
		/* a weak one (W/) does not identify bytes */
		if (ok && s[from] == '"') {
			memcpy(a->etag, s + from, to - from);
			a->etag[to - from] = 0;
		}
	} else if (n > 14 && !strncasecmp(s, "Content-Range:", 14)) {
		a->has_range = parse_content_range(s + 14, n - 14, a);
	}
	return n;
}

static int refuse(struct attempt *a, int rc, bool again, const char *text)
{
	a->again = again;
	return a->rc = ig_fail(&a->err, rc, "%s", text);
}

/* Check the response's headers before its first byte is written. */
static int check_response(struct attempt *a)
{
	long status = 0;
	curl_off_t length = -1;
	char text[200];

	curl_easy_getinfo(a->curl, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_getinfo(a->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
	uint64_t total = status == 206 ? a->range_total :
			 length < 0    ? UINT64_MAX :
					 (uint64_t)length;
	if (status == 206 && (!a->has_range || a->range_start != a->from ||
			      (a->etag_sent[0] && a->etag[0] && strcmp(a->etag_sent, a->etag))))
		return refuse(a, -EBADMSG, true,
			      "the server resumed at another offset or with another file");
	if (total != UINT64_MAX && total != a->f->n_bytes) {
		snprintf(text, sizeof text, "the server's file has %llu bytes, %llu expected",
			 (unsigned long long)total, (unsigned long long)a->f->n_bytes);
		return refuse(a, -EBADMSG, false, text);
	}
	if (status == 200 && a->have) {
		if (ftruncate(a->fd, 0))
			return refuse(a, -errno, false, strerror(errno));
		fputs("  the server sends the file from its start\n", stderr);
		a->have = 0;
	}
	int rc = meta_write(a->f, a->etag, &a->err);
	if (rc)
		a->rc = rc;
	return rc;
}

static size_t on_body(char *data, size_t one, size_t n, void *ctx)
{
	struct attempt *a = ctx;
	long status = 0;
	size_t done = 0;

	curl_easy_getinfo(a->curl, CURLINFO_RESPONSE_CODE, &status);
	if (status != 200 && status != 206)
		return n; /* the body of an error, which try_once reports */
	if (!a->body_checked && check_response(a))
		return 0;
	a->body_checked = true;
	if (n > a->f->n_bytes - a->have) {
		refuse(a, -EBADMSG, false, "the server sends more bytes than the file has");
		if (ftruncate(a->fd, 0) == 0)
			a->have = 0;
		return 0;
	}
	while (done < n) {
		ssize_t w = pwrite(a->fd, data + done, n - done, (off_t)(a->have + done));
		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0) {
			int e = w ? errno : ENOSPC;
			a->rc = ig_fail(&a->err, -e, "can't write %.300s: %s", a->f->part,
					strerror(e));
			return 0;
		}
		done += (size_t)w;
	}
	a->have += n;
	ig_progress_update(&a->progress, a->have);
	return n;
}

static int on_progress(void *ctx, curl_off_t x1, curl_off_t x2, curl_off_t x3, curl_off_t x4)
{
	const struct attempt *a = ctx;

	if (a->f->progress)
		a->f->progress(a->f->ctx, a->have);
	return ig_interrupted != 0;
}

/* ---- one attempt ---------------------------------------------------------------- */

static int setup(struct attempt *a, struct curl_slist **headers, char *why)
{
	CURL *c = a->curl;
	bool plain =
		!strncmp(a->f->url, "http://", 7); /* the catalog allows it for loopback only */
	CURLcode rc = CURLE_OK;
	char text[320];

#define SET(opt, value)                                                                            \
	do {                                                                                       \
		if (!rc)                                                                           \
			rc = curl_easy_setopt(c, opt, value);                                      \
	} while (0)
	SET(CURLOPT_URL, a->f->url);
	SET(CURLOPT_ERRORBUFFER, why);
	SET(CURLOPT_USERAGENT, "ingot/" IG_VERSION);
	SET(CURLOPT_NOSIGNAL, 1L);
	SET(CURLOPT_FOLLOWLOCATION, 1L);
	SET(CURLOPT_MAXREDIRS, (long)MAX_REDIRECTS);
#if LIBCURL_VERSION_NUM >= 0x075500
	SET(CURLOPT_PROTOCOLS_STR, plain ? "http,https" : "https");
	SET(CURLOPT_REDIR_PROTOCOLS_STR, plain ? "http,https" : "https");
#else
	SET(CURLOPT_PROTOCOLS, (long)(plain ? CURLPROTO_HTTP | CURLPROTO_HTTPS : CURLPROTO_HTTPS));
	SET(CURLOPT_REDIR_PROTOCOLS,
	    (long)(plain ? CURLPROTO_HTTP | CURLPROTO_HTTPS : CURLPROTO_HTTPS));
#endif
	if (plain)
		SET(CURLOPT_NOPROXY, "*");
	SET(CURLOPT_CONNECTTIMEOUT, 15L);
	SET(CURLOPT_LOW_SPEED_LIMIT, (long)STALL_BYTES_PER_S);
	SET(CURLOPT_LOW_SPEED_TIME, (long)a->f->stall_s);
	SET(CURLOPT_HEADERFUNCTION, on_header);
	SET(CURLOPT_HEADERDATA, a);
	SET(CURLOPT_WRITEFUNCTION, on_body);
	SET(CURLOPT_WRITEDATA, a);
	SET(CURLOPT_NOPROGRESS, 0L);
	SET(CURLOPT_XFERINFOFUNCTION, on_progress);
	SET(CURLOPT_XFERINFODATA, a);
	if (a->from) {
		snprintf(text, sizeof text, "%llu-", (unsigned long long)a->from);
		SET(CURLOPT_RANGE, text);
		if (a->etag_sent[0]) {
			snprintf(text, sizeof text, "If-Range: %s", a->etag_sent);
			*headers = curl_slist_append(NULL, text);
			if (!*headers)
				return -ENOMEM;
			SET(CURLOPT_HTTPHEADER, *headers);
		}
	}
#undef SET
	return rc == CURLE_OK ? 0 : rc == CURLE_OUT_OF_MEMORY ? -ENOMEM : -EINVAL;
}

/* 0: the response has ended.  -EAGAIN with text: try again.  Other errors are final. */
static int try_once(struct attempt *a, struct ig_error *err)
{
	struct curl_slist *headers = NULL;
	char why[CURL_ERROR_SIZE] = "";
	long status = 0;
	CURLcode code;
	int rc;

	a->body_checked = a->again = false;
	a->rc = 0;
	a->from = a->have;
	a->curl = curl_easy_init();
	if (!a->curl)
		return ig_fail(err, -ENOMEM, "out of memory");
	rc = setup(a, &headers, why);
	if (rc) {
		ig_fail(err, rc, "curl refused an option: %s", why);
		goto out;
	}
	if (!a->f->progress)
		ig_progress_start(&a->progress, a->f->n_bytes, a->have);
	code = curl_easy_perform(a->curl);
	ig_progress_stop(&a->progress);
	curl_easy_getinfo(a->curl, CURLINFO_RESPONSE_CODE, &status);
	if (!why[0])
		snprintf(why, sizeof why, "%s", curl_easy_strerror(code));

	a->again = a->again || (code == CURLE_OK && status == 416);
	if (ig_interrupted)
		rc = ig_fail(err, -EINTR, "interrupted");
	else if (a->rc) /* of check_response or on_body */
		rc = ig_fail(err, a->again ? -EAGAIN : a->rc, "%s", a->err.text);
	else if (code == CURLE_OK && (status == 200 || status == 206))
		rc = 0;
	else if (code == CURLE_OK && status == 416)
		rc = ig_fail(err, -EAGAIN, "the server cannot resume at this offset");
	else if (code == CURLE_OK && (status >= 500 || status == 408 || status == 429))
		rc = ig_fail(err, -EAGAIN, "the server replied HTTP %ld", status);
	else if (code == CURLE_OK)
		rc = ig_fail(err, status == 404 || status == 410 ? -ENOENT : -ECONNREFUSED,
			     "the server replied HTTP %ld for %.250s", status, a->f->url);
	else if (code == CURLE_OPERATION_TIMEDOUT)
		rc = ig_fail(err, -EAGAIN, "the transfer stalled: %s", why);
	else if (code == CURLE_TOO_MANY_REDIRECTS)
		rc = ig_fail(err, -ELOOP, "more than %d redirects from %.250s", MAX_REDIRECTS,
			     a->f->url);
	else if (code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT ||
		 code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE ||
		 code == CURLE_OUT_OF_MEMORY)
		rc = ig_fail(err, -EPROTO, "%.250s: %s", a->f->url, why);
	else /* no connection, a broken connection, … */
		rc = ig_fail(err, -EAGAIN, "%s", why);
out:
	curl_slist_free_all(headers);
	curl_easy_cleanup(a->curl);
	a->curl = NULL;
	return rc;
}

static void forget_bytes(struct attempt *a)
{
	if (ftruncate(a->fd, 0) == 0)
		a->have = 0;
	a->etag_sent[0] = 0;
}

static int open_part(struct attempt *a, struct ig_error *err)
{
	const struct ig_fetch *f = a->f;
	struct stat st;

	a->fd = open(f->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (a->fd < 0)
		return ig_fail(err, -errno, "can't write %.300s: %s", f->part, strerror(errno));
	if (flock(a->fd, LOCK_EX | LOCK_NB))
		return ig_fail(err, -EBUSY, "another process is fetching %.300s", f->part);
	if (fstat(a->fd, &st) || !S_ISREG(st.st_mode))
		return ig_fail(err, -EACCES, "%.300s is not a plain file", f->part);
	a->have = (uint64_t)st.st_size;
	if (!meta_read(f, a->etag_sent, sizeof a->etag_sent) || a->have > f->n_bytes)
		forget_bytes(a);
	if (a->have)
		fprintf(stderr, "  resuming after the %llu bytes of an earlier attempt\n",
			(unsigned long long)a->have);
	return 0;
}

/* Seconds, unless Ctrl-C comes. */
static void wait_s(double s)
{
	struct timespec ts = { .tv_sec = (time_t)s,
			       .tv_nsec = (long)((s - (double)(time_t)s) * 1e9) };

	while (!ig_interrupted && nanosleep(&ts, &ts) && errno == EINTR)
		;
}

int ig_fetch_file(const struct ig_fetch *f, struct ig_error *err)
{
	struct attempt a = { .f = f, .fd = -1 };
	int64_t idle = 0; /* consecutive attempts with little progress */
	double wait = f->retry_wait_s;
	bool restarted = false;
	int rc;

	if (curl_global_init(CURL_GLOBAL_DEFAULT))
		return ig_fail(err, -ENOMEM, "curl does not start");
	if ((rc = open_part(&a, err)) || (rc = ig_check_space(f->part, f->n_bytes - a.have, err)))
		goto out;
	for (;;) {
		uint64_t before = a.have;
		bool resumed = before > 0;

		rc = a.have == f->n_bytes ? 0 : try_once(&a, err);
		if (rc == 0 && a.have < f->n_bytes)
			rc = ig_fail(err, -EAGAIN, "the server ended after %llu of %llu bytes",
				     (unsigned long long)a.have, (unsigned long long)f->n_bytes);
		if (rc == 0) {
			rc = ig_check_file(f->part, f->n_bytes, f->sha256, err);
			if (rc != -EBADMSG)
				break;
			forget_bytes(&a);
			/* the parts may be of two files: once more from the start */
			if (!resumed || restarted)
				break;
			restarted = true;
			ig_complain("the resumed file is wrong (%s); downloading it from the start",
				    err ? err->text : "");
			continue;
		}
		if (rc != -EAGAIN)
			break;
		if (a.again)
			forget_bytes(&a);
		else
			meta_read(f, a.etag_sent, sizeof a.etag_sent);
		if (a.have >= before + GOOD_PROGRESS) {
			idle = 0;
			wait = f->retry_wait_s;
		}
		if (idle++ >= f->retries) {
			rc = -ETIMEDOUT;
			if (err)
				err->code = rc;
			break;
		}
		fprintf(stderr, "  %s; retrying in %.3g s (%lld of %lld)\n", err ? err->text : "",
			wait, (long long)idle, (long long)f->retries);
		wait_s(wait);
		wait *= 2;
	}
out:
	if (a.fd >= 0) {
		/* delete an empty part */
		if (rc != -EBUSY && rc != 0 && a.have == 0) {
			unlink(f->part);
			meta_remove(f);
		} else if (rc == 0) {
			meta_remove(f);
		}
		close(a.fd);
	}
	curl_global_cleanup();
	return rc;
}
