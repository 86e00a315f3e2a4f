/*
 * hub_fetch.c: see hub_fetch.h.  Over libcurl's multi interface.  The Hub's address of a file is
 * resolved to the one that has the bytes, often on another host and signed for an hour; when that
 * refuses, it is resolved again.  Every range must be the one that was asked for.  A server that
 * knows no ranges sends the whole file to one transfer.
 */
#include "cli/download/hub_fetch.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/download/files.h"
#include "cli/download/hub_pieces.h"
#include "cli/term/text.h"

#define POLL_MS 200
#define SAVE_NS ((int64_t)1000000000)
/* so many new bytes since the last failure reset the count of attempts */
#define GOOD_PROGRESS (1u << 20)

struct transfer;

/* One request under way. */
struct stream {
	struct transfer *t;
	CURL *curl; /* NULL: idle */
	struct curl_slist *headers;
	struct ig_hub_piece *piece;
	bool ranged;  /* a range was asked for */
	bool checked; /* the response's head is right */
	/* of the current response */
	bool has_range;
	uint64_t range_start, range_total; /* total UINT64_MAX: '*' */
	char why[CURL_ERROR_SIZE];	   /* curl's words */
	/* why the body was refused */
	int rc;
	struct ig_error err;
};

struct transfer {
	const struct ig_hub_fetch *f;
	CURLM *multi;
	int fd;
	struct ig_hub_pieces pieces;
	struct stream streams[IG_HUB_MAX_CONNECTIONS];
	char url[IG_HUB_MAX_URL]; /* that has the bytes; "": to be resolved */
	bool own;		  /* url is of the Hub's origin */
	bool no_ranges, restart;
	int64_t n_failed; /* since GOOD_PROGRESS */
	uint64_t done_then;
	double wait_s;
	int64_t not_before_ns, saved_ns;
};

/* ---- what curl calls --------------------------------------------------------------------- */

static int refuse(struct stream *s, int rc, const char *text)
{
	return s->rc = ig_fail(&s->err, rc, "%s", text);
}

/* "bytes 0-99/1000" */
static bool parse_range(const char *text, struct stream *s)
{
	const char *p = text;
	char *end;

	p += strspn(p, " \t");
	if (strncasecmp(p, "bytes ", 6) || p[6] < '0' || p[6] > '9')
		return false;
	errno = 0;
	s->range_start = strtoull(p + 6, &end, 10);
	p = strchr(end, '/');
	if (errno || *end != '-' || !p)
		return false;
	s->range_total = UINT64_MAX;
	if (p[1] >= '0' && p[1] <= '9')
		s->range_total = strtoull(p + 1, &end, 10);
	return !errno;
}

static size_t on_header(char *data, size_t one, size_t n, void *ctx)
{
	struct stream *s = ctx;
	char text[128];

	if (n >= 5 && !strncasecmp(data, "HTTP/", 5)) {
		s->has_range = false;
	} else if (n > 14 && n - 14 < sizeof text && !strncasecmp(data, "Content-Range:", 14)) {
		snprintf(text, sizeof text, "%.*s", (int)(n - 14), data + 14);
		s->has_range = parse_range(text, s);
	}
	return n;
}

/* Before the first byte of a body is written. */
static int check_head(struct stream *s, long status)
{
	const struct ig_hub_file *file = s->t->f->file;
	curl_off_t length = -1;
	char text[200];

	curl_easy_getinfo(s->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
	uint64_t total = status == 206 ? s->range_total :
			 length < 0    ? UINT64_MAX :
					 (uint64_t)length;
	if (status == 206 &&
	    (!s->ranged || !s->has_range || s->range_start != s->piece->at + s->piece->done))
		return refuse(s, -EAGAIN, "the server sent another range than was asked for");
	if (total != UINT64_MAX && total != file->n_bytes) {
		snprintf(text, sizeof text, "the server's file has %llu bytes, the Hub lists %llu",
			 (unsigned long long)total, (unsigned long long)file->n_bytes);
		return refuse(s, -EBADMSG, text);
	}
	if (status == 200 && s->ranged) {
		s->t->restart = s->t->no_ranges = true;
		return refuse(s, -EAGAIN, "the server sends the file from its start");
	}
	return 0;
}

static size_t on_body(char *data, size_t one, size_t n, void *ctx)
{
	struct stream *s = ctx;
	struct ig_hub_piece *p = s->piece;
	long status = 0;

	curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &status);
	if (status != 200 && status != 206)
		return n; /* the body of an error */
	if (!s->checked && check_head(s, status))
		return 0;
	s->checked = true;
	if (n > p->n_bytes - p->done) {
		refuse(s, -EBADMSG, "the server sends more bytes than the file has");
		return 0;
	}
	for (size_t done = 0; done < n;) {
		ssize_t w =
			pwrite(s->t->fd, data + done, n - done, (off_t)(p->at + p->done + done));
		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0) {
			int e = w ? errno : ENOSPC;
			s->rc = ig_fail(&s->err, -e, "can't write %.300s: %s", s->t->f->part,
					strerror(e));
			return 0;
		}
		done += (size_t)w;
	}
	p->done += n;
	return n;
}

static int on_progress(void *ctx, curl_off_t x1, curl_off_t x2, curl_off_t x3, curl_off_t x4)
{
	return ig_interrupted != 0;
}

/* ---- streams ---------------------------------------------------------------------------------- */

static void end_stream(struct stream *s)
{
	if (!s->curl)
		return;
	curl_multi_remove_handle(s->t->multi, s->curl);
	curl_easy_cleanup(s->curl);
	curl_slist_free_all(s->headers);
	s->piece->busy = false;
	s->curl = NULL;
	s->headers = NULL;
}

static void end_streams(struct transfer *t)
{
	for (size_t i = 0; i < t->f->n_connections; i++)
		end_stream(&t->streams[i]);
}

static bool add_headers(struct stream *s)
{
	const struct ig_hub *h = s->t->f->hub;
	char text[600];

	s->headers = curl_slist_append(NULL, "Accept-Encoding: identity");
	if (!s->headers || !s->t->own || !h->token[0])
		return s->headers != NULL;
	snprintf(text, sizeof text, "Authorization: Bearer %s", h->token);
	struct curl_slist *more = curl_slist_append(s->headers, text);
	s->headers = more ? more : s->headers;
	return more != NULL;
}

static int start_stream(struct transfer *t, struct stream *s, struct ig_hub_piece *p)
{
	uint64_t from = p->at + p->done;
	char range[64];
	CURL *c = curl_easy_init();

	*s = (struct stream){ .t = t, .curl = c, .piece = p };
	s->ranged = !t->no_ranges && (t->pieces.n > 1 || from);
	snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)from,
		 (unsigned long long)(p->at + p->n_bytes - 1));
	p->busy = true;
	/* the token is only sent where redirects are not followed */
	if (c && add_headers(s) && ig_hub_setup(t->f->hub, c, t->url) &&
	    !curl_easy_setopt(c, CURLOPT_PRIVATE, s) &&
	    !curl_easy_setopt(c, CURLOPT_ERRORBUFFER, s->why) &&
	    !curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, (long)!t->own) &&
	    !curl_easy_setopt(c, CURLOPT_HTTPHEADER, s->headers) &&
	    (!s->ranged || !curl_easy_setopt(c, CURLOPT_RANGE, range)) &&
	    !curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header) &&
	    !curl_easy_setopt(c, CURLOPT_HEADERDATA, s) &&
	    !curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body) &&
	    !curl_easy_setopt(c, CURLOPT_WRITEDATA, s) &&
	    !curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L) &&
	    !curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress) &&
	    !curl_multi_add_handle(t->multi, c))
		return 0;
	if (c)
		curl_easy_cleanup(c);
	curl_slist_free_all(s->headers);
	*s = (struct stream){ 0 };
	p->busy = false;
	return -ENOMEM;
}

/* ---- where the bytes are ------------------------------------------------------------------------ */

static int resolve(struct transfer *t, struct ig_error *err)
{
	const struct ig_hub_repo *repo = t->f->repo;
	const struct ig_hub_file *file = t->f->file;
	struct ig_hub_reply *r = calloc(1, sizeof *r);
	char first[400], url[IG_HUB_MAX_URL];
	int rc;

	snprintf(first, sizeof first, "/%s/resolve/%s/", repo->id, repo->commit);
	rc = r ? ig_hub_url(t->f->hub, url, sizeof url, err, first, file->path, "") :
		 ig_fail(err, -ENOMEM, "out of memory");
	if (!rc)
		rc = ig_hub_ask(t->f->hub, url, true, repo->id, r, err);
	if (!rc && r->commit[0] && strcasecmp(r->commit, repo->commit))
		rc = ig_fail(err, -EBADMSG, "%.150s: the Hub answers for another revision",
			     file->path);
	if (!rc && r->linked_size != UINT64_MAX && r->linked_size != file->n_bytes)
		rc = ig_fail(err, -EBADMSG,
			     "%.150s: the Hub lists %llu bytes and then says that it has %llu",
			     file->path, (unsigned long long)file->n_bytes,
			     (unsigned long long)r->linked_size);
	if (!rc && file->sha256[0] && strlen(r->etag) == 64 && strcasecmp(r->etag, file->sha256))
		rc = ig_fail(err, -EBADMSG, "%.150s: the Hub lists one hash and then says another",
			     file->path);
	if (!rc) {
		t->own = !r->location[0];
		snprintf(t->url, sizeof t->url, "%s", t->own ? r->url : r->location);
	}
	if (r)
		ig_hub_reply_finish(r);
	free(r);
	return rc;
}

/* ---- the ends of streams -------------------------------------------------------------------------- */

static bool is_final(CURLcode code)
{
	return code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT ||
	       code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE ||
	       code == CURLE_OUT_OF_MEMORY || code == CURLE_TOO_MANY_REDIRECTS;
}

/* What became of a stream: 0, -EAGAIN: another attempt may succeed, or a final error. */
static int judge(struct stream *s, CURLcode code, struct ig_error *err)
{
	long status = 0;

	curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &status);
	if (ig_interrupted)
		return ig_fail(err, -EINTR, "interrupted");
	if (s->rc)
		return ig_fail(err, s->rc, "%s", s->err.text);
	if (code != CURLE_OK)
		return ig_fail(err, is_final(code) ? -EPROTO : -EAGAIN, "%.150s: %s",
			       s->t->f->file->path, s->why[0] ? s->why : curl_easy_strerror(code));
	if (status != 200 && status != 206) {
		/* signed addresses expire; and a busy server may not be so next time */
		s->t->url[0] = 0;
		return ig_fail(err, -EAGAIN, "%.150s: the server replied HTTP %ld",
			       s->t->f->file->path, status);
	}
	return s->piece->done == s->piece->n_bytes ?
		       0 :
		       ig_fail(err, -EAGAIN, "%.150s: the server ended early", s->t->f->file->path);
}

/* Count a failure that another attempt may mend; -ETIMEDOUT: there were enough. */
static int count_failure(struct transfer *t, struct ig_error *err)
{
	uint64_t done = ig_hub_pieces_done(&t->pieces);
	const struct ig_hub *h = t->f->hub;

	if (t->restart) { /* no failure: once, from the start */
		t->restart = false;
		end_streams(t);
		fputs("  the server sends the file from its start\n", stderr);
		return ig_hub_pieces_reset(t->f->file, t->f->file->n_bytes, &t->pieces) ?
			       ig_fail(err, -ENOMEM, "out of memory") :
			       0;
	}
	if (ig_now_ns() < t->not_before_ns)
		return 0; /* the streams of one break count once */
	if (done >= t->done_then + GOOD_PROGRESS) {
		t->n_failed = 0;
		t->wait_s = h->retry_wait_s;
	}
	t->done_then = done;
	if (t->n_failed++ >= h->retries) {
		if (err)
			err->code = -ETIMEDOUT;
		return -ETIMEDOUT;
	}
	fprintf(stderr, "  %s; retrying in %.3g s (%lld of %lld)\n", err ? err->text : "",
		t->wait_s, (long long)t->n_failed, (long long)h->retries);
	t->not_before_ns = ig_now_ns() + (int64_t)(t->wait_s * 1e9);
	t->wait_s *= 2;
	return 0;
}

static int take_ends(struct transfer *t, struct ig_error *err)
{
	const CURLMsg *m;
	int left, rc = 0;

	while (!rc && (m = curl_multi_info_read(t->multi, &left))) {
		struct stream *s = NULL;
		CURLcode code = m->data.result;
		if (m->msg != CURLMSG_DONE ||
		    curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&s) || !s)
			continue;
		rc = judge(s, code, err);
		if (t->no_ranges && rc == -EAGAIN)
			s->piece->done = 0;
		end_stream(s);
		if (rc == -EAGAIN)
			rc = count_failure(t, err);
	}
	return rc;
}

/* ---- the file ------------------------------------------------------------------------------------- */

static struct ig_hub_piece *next_piece(struct transfer *t)
{
	for (size_t i = 0; i < t->pieces.n; i++) {
		struct ig_hub_piece *p = &t->pieces.list[i];
		if (!p->busy && p->done < p->n_bytes)
			return p;
	}
	return NULL;
}

static int start_streams(struct transfer *t, struct ig_error *err)
{
	struct ig_hub_piece *p;

	for (size_t i = 0; i < t->f->n_connections; i++) {
		if (t->streams[i].curl)
			continue;
		if (ig_now_ns() < t->not_before_ns || !(p = next_piece(t)))
			return 0;
		int rc = t->url[0] ? 0 : resolve(t, err);
		if (rc)
			return rc;
		if (start_stream(t, &t->streams[i], p))
			return ig_fail(err, -ENOMEM, "out of memory");
	}
	return 0;
}

static int save(struct transfer *t, struct ig_error *err)
{
	t->saved_ns = ig_now_ns();
	return ig_hub_pieces_save(t->f->file, t->f->part, &t->pieces, err);
}

static int run(struct transfer *t, struct ig_error *err)
{
	uint64_t done;
	int n, rc;

	while ((done = ig_hub_pieces_done(&t->pieces)) < t->f->file->n_bytes) {
		if (ig_interrupted)
			return ig_fail(err, -EINTR, "interrupted");
		if (t->f->progress)
			t->f->progress(t->f->ctx, done);
		if ((rc = start_streams(t, err)))
			return rc;
		if (ig_now_ns() - t->saved_ns > SAVE_NS && (rc = save(t, err)))
			return rc;
		if (curl_multi_perform(t->multi, &n) ||
		    curl_multi_poll(t->multi, NULL, 0, POLL_MS, NULL))
			return ig_fail(err, -EIO, "curl failed");
		if ((rc = take_ends(t, err)))
			return rc;
	}
	if (t->f->progress)
		t->f->progress(t->f->ctx, done);
	return 0;
}

static int open_part(struct transfer *t, struct ig_error *err)
{
	const struct ig_hub_fetch *f = t->f;
	struct stat st;

	t->fd = open(f->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (t->fd < 0)
		return ig_fail(err, -errno, "can't write %.300s: %s", f->part, strerror(errno));
	if (flock(t->fd, LOCK_EX | LOCK_NB))
		return ig_fail(err, -EBUSY, "another process is fetching %.300s", f->part);
	if (fstat(t->fd, &st) || !S_ISREG(st.st_mode) || st.st_nlink > 1)
		return ig_fail(err, -EACCES, "%.300s is not a plain file", f->part);
	if (ig_hub_pieces_load(f->file, f->part, f->n_connections, &t->pieces))
		return ig_fail(err, -ENOMEM, "out of memory");
	/* a part of another size is not what the meta is about */
	if ((uint64_t)st.st_size != f->file->n_bytes)
		for (size_t i = 0; i < t->pieces.n; i++)
			t->pieces.list[i].done = 0;
	if (ig_hub_pieces_done(&t->pieces))
		fprintf(stderr, "  resuming after the %llu bytes of an earlier attempt\n",
			(unsigned long long)ig_hub_pieces_done(&t->pieces));
	if (ftruncate(t->fd, (off_t)f->file->n_bytes)) {
		int e = errno;
		if (!st.st_size)
			unlink(f->part);
		return ig_fail(err, -e, "can't write %.300s: %s", f->part, strerror(e));
	}
	return 0;
}

/* Run, check; a file that was resumed and is wrong is downloaded once more from its start. */
static int run_and_check(struct transfer *t, struct ig_error *err)
{
	bool resumed = ig_hub_pieces_done(&t->pieces) > 0;

	for (;;) {
		int rc = run(t, err);
		if (!rc)
			rc = ig_hub_check_file(t->f->file, t->f->part, err);
		if (rc != -EBADMSG)
			return rc;
		end_streams(t);
		if (ig_hub_pieces_reset(t->f->file, t->pieces.piece_bytes, &t->pieces))
			return ig_fail(err, -ENOMEM, "out of memory");
		if (!resumed)
			return rc;
		resumed = false;
		t->url[0] = 0;
		ig_complain("the resumed file is wrong (%s); downloading it from the start",
			    err ? err->text : "");
	}
}

int ig_hub_fetch_file(const struct ig_hub_fetch *f, struct ig_error *err)
{
	struct transfer *t = calloc(1, sizeof *t);
	struct ig_error why = { 0 };
	int rc;

	if (!t || !(t->multi = curl_multi_init())) {
		free(t);
		return ig_fail(err, -ENOMEM, "out of memory");
	}
	t->f = f;
	t->fd = -1;
	t->wait_s = f->hub->retry_wait_s;
	rc = open_part(t, err);
	bool mine = !rc; /* otherwise it is another's, or no file */
	if (!rc)
		rc = run_and_check(t, err);
	end_streams(t);
	if (mine && rc && ig_hub_pieces_done(&t->pieces)) {
		save(t, &why);
	} else if (mine) {
		ig_hub_pieces_forget(f->part);
		if (rc)
			unlink(f->part);
	}
	if (t->fd >= 0)
		close(t->fd);
	ig_hub_pieces_finish(&t->pieces);
	curl_multi_cleanup(t->multi);
	free(t);
	return rc;
}

uint64_t ig_hub_fetch_done(const struct ig_hub_file *file, const char *part)
{
	struct ig_hub_pieces p = { 0 };
	struct stat st;
	uint64_t n = 0;

	if (!lstat(part, &st) && S_ISREG(st.st_mode) && (uint64_t)st.st_size == file->n_bytes &&
	    !ig_hub_pieces_load(file, part, 1, &p))
		n = ig_hub_pieces_done(&p);
	ig_hub_pieces_finish(&p);
	return n;
}

int ig_hub_check_file(const struct ig_hub_file *file, const char *path, struct ig_error *err)
{
	return file->sha256[0] ? ig_check_file(path, file->n_bytes, file->sha256, err) :
				 ig_check_blob(path, file->n_bytes, file->sha1, err);
}
