/* hub.c: see hub.h.  Over libcurl's easy interface. */
#include "cli/download/hub.h"

#include <curl/curl.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/file.h"
#include "cli/download/files.h"

#define MAX_BODY ((size_t)32 << 20)
#define MAX_REDIRECTS 5
#define MAX_WAIT_S 330 /* a window of the Hub's limits has 300 s */

/* ---- addresses ------------------------------------------------------------------------- */

static bool same_part(CURLU *a, CURLU *b, CURLUPart part)
{
	char *x = NULL, *y = NULL;
	bool same = !curl_url_get(a, part, &x, CURLU_DEFAULT_PORT) &&
		    !curl_url_get(b, part, &y, CURLU_DEFAULT_PORT) && !strcasecmp(x, y);

	curl_free(x);
	curl_free(y);
	return same;
}

bool ig_hub_is_own(const struct ig_hub *h, const char *url)
{
	CURLU *a = curl_url(), *b = curl_url();
	bool own = a && b && !curl_url_set(a, CURLUPART_URL, h->endpoint, 0) &&
		   !curl_url_set(b, CURLUPART_URL, url, 0) && same_part(a, b, CURLUPART_SCHEME) &&
		   same_part(a, b, CURLUPART_HOST) && same_part(a, b, CURLUPART_PORT);

	curl_url_cleanup(a);
	curl_url_cleanup(b);
	return own;
}

/* The address `to`, relative to `base`, as an absolute one. */
static bool resolve(const char *base, const char *to, char *buf, size_t size)
{
	CURLU *u = curl_url();
	char *full = NULL;
	bool ok = u && !curl_url_set(u, CURLUPART_URL, base, 0) &&
		  !curl_url_set(u, CURLUPART_URL, to, 0) &&
		  !curl_url_get(u, CURLUPART_URL, &full, 0) && strlen(full) < size;

	if (ok)
		memcpy(buf, full, strlen(full) + 1);
	curl_free(full);
	curl_url_cleanup(u);
	return ok;
}

int ig_hub_url(const struct ig_hub *h, char *buf, size_t size, struct ig_error *err,
	       const char *first, const char *path, const char *last)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789._-~/";
	struct ig_strbuf b = { 0 };

	ig_strbuf_printf(&b, "%s%s", h->endpoint, first);
	for (const char *p = path; *p; p++)
		if (strchr(plain, *p))
			ig_strbuf_add(&b, p, 1);
		else
			ig_strbuf_printf(&b, "%%%02X", (unsigned char)*p);
	ig_strbuf_puts(&b, last);
	int rc = !ig_strbuf_ok(&b) ? ig_fail(err, -ENOMEM, "out of memory") :
		 b.len >= size	   ? ig_fail(err, -ENAMETOOLONG, "an address is too long") :
				     0;
	if (!rc)
		memcpy(buf, b.data, b.len + 1);
	ig_strbuf_finish(&b);
	return rc;
}

static bool is_loopback(const char *url)
{
	CURLU *u = curl_url();
	char *host = NULL;
	bool yes = u && !curl_url_set(u, CURLUPART_URL, url, 0) &&
		   !curl_url_get(u, CURLUPART_HOST, &host, 0) &&
		   (!strcmp(host, "127.0.0.1") || !strcasecmp(host, "localhost") ||
		    !strcmp(host, "[::1]"));

	curl_free(host);
	curl_url_cleanup(u);
	return yes;
}

/* ---- endpoint and token ------------------------------------------------------------------ */

static const char *variable(const char *name)
{
	const char *v = getenv(name);

	return v && *v ? v : NULL;
}

static int find_endpoint(struct ig_hub *h, struct ig_error *err)
{
	const char *e = variable("HF_ENDPOINT");
	size_t n;

	e = e ? e : "https://huggingface.co";
	for (n = strlen(e); n && e[n - 1] == '/'; n--)
		;
	h->plain = !strncasecmp(e, "http://", 7);
	if (!h->plain && strncasecmp(e, "https://", 8))
		return ig_fail(err, -EINVAL, "HF_ENDPOINT: '%.100s' does not begin with https://",
			       e);
	if (n >= sizeof h->endpoint || strpbrk(e, "@?# \t\r\n"))
		return ig_fail(err, -EINVAL, "HF_ENDPOINT: '%.100s' is not an address", e);
	snprintf(h->endpoint, sizeof h->endpoint, "%.*s", (int)n, e);
	return ig_hub_is_own(h, h->endpoint) ?
		       0 :
		       ig_fail(err, -EINVAL, "HF_ENDPOINT: '%.100s' is not an address", e);
}

/* The file that Hugging Face's programs keep the token in. */
static bool token_file(char *buf, size_t size)
{
	const char *path = variable("HF_TOKEN_PATH"), *home = variable("HF_HOME"),
		   *cache = variable("XDG_CACHE_HOME"), *user = variable("HOME");
	int n = path  ? snprintf(buf, size, "%s", path) :
		home  ? snprintf(buf, size, "%s/token", home) :
		cache ? snprintf(buf, size, "%s/huggingface/token", cache) :
		user  ? snprintf(buf, size, "%s/.cache/huggingface/token", user) :
			-1;

	return n > 0 && (size_t)n < size;
}

/* It becomes a header: white space at its ends is cut, and it must be printable. */
static int take_token(struct ig_hub *h, const char *text, const char *from, struct ig_error *err)
{
	size_t n;

	text += strspn(text, " \t\r\n");
	n = strcspn(text, " \t\r\n");
	snprintf(h->token_from, sizeof h->token_from, "%.400s", from);
	bool ok = n < sizeof h->token && !text[n + strspn(text + n, " \t\r\n")];
	for (size_t i = 0; i < n; i++)
		ok = ok && (unsigned char)text[i] > 0x20 && (unsigned char)text[i] < 0x7f;
	if (!ok)
		return ig_fail(err, -EINVAL, "%.300s: this is not a token", from);
	memcpy(h->token, text, n);
	h->token[n] = 0;
	return 0;
}

static int find_token(struct ig_hub *h, struct ig_error *err)
{
	static const char *const names[] = { "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN" };
	struct ig_strbuf text = { 0 };
	struct ig_error why = { 0 };
	char path[4096];
	int rc;

	h->token[0] = 0;
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (variable(names[i]))
			return take_token(h, getenv(names[i]), names[i], err);
	if (!token_file(path, sizeof path))
		return 0;
	rc = ig_read_file(path, 4096, &text, &why);
	if (!rc)
		rc = take_token(h, ig_strbuf_text(&text), path, err);
	else if (rc == -ENOENT && !variable("HF_TOKEN_PATH"))
		rc = 0;
	else
		rc = ig_fail(err, rc, "the file of the token: %.300s", why.text);
	ig_strbuf_finish(&text);
	return rc;
}

int ig_hub_open(struct ig_hub *h, struct ig_error *err)
{
	int rc = find_endpoint(h, err);

	if (!rc)
		rc = find_token(h, err);
	if (!rc && h->token[0] && h->plain && !is_loopback(h->endpoint)) {
		fprintf(stderr, "the token is not sent: %s is not https\n", h->endpoint);
		h->token[0] = 0;
	}
	return rc;
}

/* ---- one request --------------------------------------------------------------------------- */

static size_t on_body(char *data, size_t one, size_t n, void *ctx)
{
	struct ig_hub_reply *r = ctx;

	if (n > MAX_BODY - r->body.len)
		return 0;
	ig_strbuf_add(&r->body, data, n);
	return ig_strbuf_ok(&r->body) ? n : 0;
}

/* Copy the value of header `name`, if this is it and is printable ASCII that fits. */
static bool take_header(const char *s, size_t n, const char *name, char *buf, size_t size)
{
	size_t len = strlen(name), from = len + 1, to = n;

	if (n <= len || strncasecmp(s, name, len) || s[len] != ':')
		return false;
	while (from < to && (s[from] == ' ' || s[from] == '\t'))
		from++;
	while (to > from && (unsigned char)s[to - 1] <= 0x20)
		to--;
	bool ok = to - from < size;
	for (size_t i = from; i < to; i++)
		ok = ok && (unsigned char)s[i] >= 0x20 && (unsigned char)s[i] < 0x7f;
	snprintf(buf, size, "%.*s", ok ? (int)(to - from) : 0, s + from);
	return true;
}

/* <ADDRESS>; rel="next" */
static void take_link(struct ig_hub_reply *r, const char *value)
{
	const char *end = strchr(value, '>');

	if (value[0] == '<' && end && strstr(end, "rel=\"next\""))
		snprintf(r->next, sizeof r->next, "%.*s", (int)(end - value - 1), value + 1);
}

/* "api";r=0;t=55 */
static void take_limit(struct ig_hub_reply *r, const char *value)
{
	const char *t = strstr(value, ";t=");

	if (t)
		r->wait_s = strtod(t + 3, NULL);
}

static size_t on_header(char *s, size_t one, size_t n, void *ctx)
{
	struct ig_hub_reply *r = ctx;
	char value[IG_HUB_MAX_URL], *end;

	if (take_header(s, n, "Location", r->location, sizeof r->location) ||
	    take_header(s, n, "X-Error-Code", r->error_code, sizeof r->error_code) ||
	    take_header(s, n, "X-Error-Message", r->error_message, sizeof r->error_message) ||
	    take_header(s, n, "X-Repo-Commit", r->commit, sizeof r->commit))
		return n;
	if (take_header(s, n, "X-Linked-Etag", value, sizeof value)) {
		size_t len = strlen(value);
		bool quoted = len >= 2 && value[0] == '"' && value[len - 1] == '"';
		snprintf(r->etag, sizeof r->etag, "%.*s", (int)(quoted ? len - 2 : len),
			 value + quoted);
	} else if (take_header(s, n, "X-Linked-Size", value, sizeof value)) {
		errno = 0;
		unsigned long long size = strtoull(value, &end, 10);
		if (value[0] >= '0' && value[0] <= '9' && !*end && !errno)
			r->linked_size = size;
	} else if (take_header(s, n, "Link", value, sizeof value)) {
		take_link(r, value);
	} else if (take_header(s, n, "RateLimit", value, sizeof value)) {
		take_limit(r, value);
	} else if (take_header(s, n, "Retry-After", value, sizeof value) && r->wait_s < 0 &&
		   value[0] >= '0' && value[0] <= '9') {
		r->wait_s = strtod(value, NULL);
	}
	return n;
}

static int on_progress(void *ctx, curl_off_t x1, curl_off_t x2, curl_off_t x3, curl_off_t x4)
{
	return ig_interrupted != 0;
}

bool ig_hub_setup(const struct ig_hub *h, void *c, const char *url)
{
	CURLcode rc = CURLE_OK;

#define SET(opt, value)                                                                            \
	do {                                                                                       \
		if (!rc)                                                                           \
			rc = curl_easy_setopt(c, opt, value);                                      \
	} while (0)
	SET(CURLOPT_URL, url);
	SET(CURLOPT_USERAGENT, "ingot/" IG_VERSION);
	SET(CURLOPT_NOSIGNAL, 1L);
	SET(CURLOPT_MAXREDIRS, (long)MAX_REDIRECTS);
#if LIBCURL_VERSION_NUM >= 0x075500
	SET(CURLOPT_PROTOCOLS_STR, h->plain ? "http,https" : "https");
	SET(CURLOPT_REDIR_PROTOCOLS_STR, h->plain ? "http,https" : "https");
#else
	long allowed = h->plain ? CURLPROTO_HTTP | CURLPROTO_HTTPS : CURLPROTO_HTTPS;
	SET(CURLOPT_PROTOCOLS, allowed);
	SET(CURLOPT_REDIR_PROTOCOLS, allowed);
#endif
	if (is_loopback(url))
		SET(CURLOPT_NOPROXY, "*");
	SET(CURLOPT_CONNECTTIMEOUT, 15L);
	SET(CURLOPT_LOW_SPEED_LIMIT, 256L);
	SET(CURLOPT_LOW_SPEED_TIME, (long)h->stall_s);
#undef SET
	return rc == CURLE_OK;
}

static bool add_header(struct curl_slist **list, const char *text)
{
	struct curl_slist *l = curl_slist_append(*list, text);

	if (l)
		*list = l;
	return l != NULL;
}

static struct curl_slist *headers_of(const struct ig_hub *h)
{
	struct curl_slist *list = NULL;
	char text[600];

	snprintf(text, sizeof text, "Authorization: Bearer %s", h->token);
	if (add_header(&list, "Accept-Encoding: identity") &&
	    (!h->token[0] || add_header(&list, text)))
		return list;
	curl_slist_free_all(list);
	return NULL;
}

static void clear_reply(struct ig_hub_reply *r)
{
	struct ig_strbuf body = r->body;

	ig_strbuf_clear(&body);
	*r = (struct ig_hub_reply){ .body = body, .wait_s = -1, .linked_size = UINT64_MAX };
}

/* 0: there is a response.  -EAGAIN: another attempt may succeed. */
static int ask_once(const struct ig_hub *h, const char *url, bool head, struct ig_hub_reply *r,
		    struct ig_error *err)
{
	char why[CURL_ERROR_SIZE] = "";
	struct curl_slist *headers = headers_of(h);
	CURL *c = curl_easy_init();
	CURLcode code = CURLE_OUT_OF_MEMORY;
	int rc;

	clear_reply(r);
	snprintf(r->url, sizeof r->url, "%s", url);
	if (c && headers && ig_hub_setup(h, c, url) &&
	    !curl_easy_setopt(c, CURLOPT_ERRORBUFFER, why) &&
	    !curl_easy_setopt(c, CURLOPT_NOBODY, (long)head) &&
	    !curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers) &&
	    !curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header) &&
	    !curl_easy_setopt(c, CURLOPT_HEADERDATA, r) &&
	    !curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body) &&
	    !curl_easy_setopt(c, CURLOPT_WRITEDATA, r) &&
	    !curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L) &&
	    !curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress))
		code = curl_easy_perform(c);
	if (c)
		curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &r->status);
	if (ig_interrupted)
		rc = ig_fail(err, -EINTR, "interrupted");
	else if (code == CURLE_OK)
		rc = 0;
	else if (code == CURLE_WRITE_ERROR)
		rc = ig_fail(err, -EBADMSG, "%.200s: the reply is larger than 32 MiB", url);
	else if (code == CURLE_OUT_OF_MEMORY)
		rc = ig_fail(err, -ENOMEM, "out of memory");
	else if (code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT ||
		 code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE)
		rc = ig_fail(err, -EPROTO, "%.200s: %s", url,
			     why[0] ? why : curl_easy_strerror(code));
	else
		rc = ig_fail(err, -EAGAIN, "%.200s: %s", url,
			     why[0] ? why : curl_easy_strerror(code));
	curl_slist_free_all(headers);
	curl_easy_cleanup(c);
	return rc;
}

void ig_wait_s(double s)
{
	struct timespec ts = { .tv_sec = (time_t)s,
			       .tv_nsec = (long)((s - (double)(time_t)s) * 1e9) };

	while (!ig_interrupted && nanosleep(&ts, &ts) && errno == EINTR)
		;
}

/* ---- what its errors mean ------------------------------------------------------------------------ */

static int explain(const struct ig_hub *h, const struct ig_hub_reply *r, const char *what,
		   struct ig_error *err)
{
	const char *code = r->error_code, *said = r->error_message;

	if (!strncasecmp(said, "Invalid credentials", 19))
		return ig_fail(err, -EACCES, "%s does not know the token of %.200s", h->endpoint,
			       h->token_from);
	if (!strcmp(code, "GatedRepo"))
		return ig_fail(
			err, -EACCES,
			"%.150s is gated: its terms must be accepted at %s/%.150s; %s%.200s%s",
			what, h->endpoint, what,
			h->token[0] ? "the account of the token of " :
				      "then set HF_TOKEN to a "
				      "token of the same "
				      "account",
			h->token[0] ? h->token_from : "", h->token[0] ? " has not done so" : "");
	if (!strcmp(code, "EntryNotFound"))
		return ig_fail(err, -ENOENT, "%.150s: %s has no such file", what, h->endpoint);
	if (!strcmp(code, "RevisionNotFound"))
		return ig_fail(err, -ENOENT, "%.150s: %s has no such revision", what, h->endpoint);
	if (!strcmp(code, "RepoNotFound") || r->status == 401 || r->status == 404)
		return ig_fail(err, -ENOENT,
			       h->token[0] ?
				       "%s has no %.150s that the token of %.200s may see; "
				       "check the name" :
				       "%s has no %.150s, or it is private or gated; check the "
				       "name, and for one that is not public set HF_TOKEN",
			       h->endpoint, what, h->token_from);
	if (r->status == 403)
		return ig_fail(err, -EACCES, "%s does not give access to %.150s%s%.240s",
			       h->endpoint, what, said[0] ? ": " : "", said);
	return ig_fail(err, -ECONNREFUSED, "%s replied HTTP %ld about %.150s%s%.240s", h->endpoint,
		       r->status, what, said[0] ? ": " : "", said);
}

/* ---- with redirects and further attempts ------------------------------------------------------- */

/* Whether to go on with r->location as *url, which is of the Hub's origin too. */
static int follow(const struct ig_hub *h, struct ig_hub_reply *r, char *url, unsigned *n,
		  struct ig_error *err)
{
	char to[IG_HUB_MAX_URL];

	if (!r->location[0] || !resolve(url, r->location, to, sizeof to))
		return ig_fail(err, -EPROTO, "%.200s: a redirect to nowhere", url);
	memcpy(r->location, to, sizeof to);
	if (!ig_hub_is_own(h, to))
		return 0;
	if (++*n > MAX_REDIRECTS)
		return ig_fail(err, -ELOOP, "more than %d redirects from %.250s", MAX_REDIRECTS,
			       url);
	memcpy(url, to, sizeof to);
	return 1;
}

static bool is_busy(long status) { return status == 429 || status == 408 || status >= 500; }

static int finish_reply(const struct ig_hub *h, struct ig_hub_reply *r, const char *what,
			struct ig_error *err)
{
	char to[IG_HUB_MAX_URL];

	if (r->status < 200 || r->status >= 400)
		return explain(h, r, what, err);
	if (!r->next[0])
		return 0;
	if (!resolve(r->url, r->next, to, sizeof to) || !ig_hub_is_own(h, to))
		return ig_fail(err, -EPROTO, "%.150s: the next page is at another host", what);
	memcpy(r->next, to, sizeof to);
	return 0;
}

int ig_hub_ask(const struct ig_hub *h, const char *first, bool head, const char *what,
	       struct ig_hub_reply *r, struct ig_error *err)
{
	double wait = h->retry_wait_s;
	unsigned n_redirects = 0;
	char url[IG_HUB_MAX_URL];
	int64_t failed = 0;

	snprintf(url, sizeof url, "%s", first);
	for (;;) {
		int rc = ask_once(h, url, head, r, err);
		if (!rc && r->status >= 300 && r->status < 400) {
			rc = follow(h, r, url, &n_redirects, err);
			if (rc <= 0)
				return rc;
			continue;
		}
		if (!rc && !is_busy(r->status))
			return finish_reply(h, r, what, err);
		if (rc && rc != -EAGAIN)
			return rc;
		if (failed++ >= h->retries)
			return rc ? -ETIMEDOUT : explain(h, r, what, err);
		double s = !rc && r->status == 429 && isfinite(r->wait_s) && r->wait_s >= 0 ?
				   fmin(r->wait_s, MAX_WAIT_S) :
				   wait;
		if (rc)
			fprintf(stderr, "  %s; retrying in %.3g s\n", err ? err->text : "", s);
		else
			fprintf(stderr, "  %s replied HTTP %ld; retrying in %.3g s\n", h->endpoint,
				r->status, s);
		ig_wait_s(s);
		if (ig_interrupted)
			return ig_fail(err, -EINTR, "interrupted");
		wait *= 2;
	}
}

void ig_hub_reply_finish(struct ig_hub_reply *r) { ig_strbuf_finish(&r->body); }
