/* http_client.c: see http_client.h.  No proxy, no redirects; at most 16 MiB. */
#include "cli/net/http_client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "cli/net/http_private.h"

#define MAX_BODY (16u << 20)

static size_t on_body(char *data, size_t one, size_t n, void *ctx)
{
	struct ig_strbuf *b = ctx;

	if (n > MAX_BODY - b->len)
		return 0;
	ig_strbuf_add(b, data, n);
	return ig_strbuf_ok(b) ? n : 0;
}

/* The message of an error in OpenAI's format. */
static const char *error_message(const json_t *root)
{
	const char *s = ig_json_text(json_object_get(root, "error"), "message");

	return s ? s : "no reason given";
}

static bool add_header(struct curl_slist **headers, const char *text)
{
	struct curl_slist *all = curl_slist_append(*headers, text);

	if (all)
		*headers = all;
	return all;
}

static bool set_headers(CURL *c, const struct ig_endpoint *e, bool has_body,
			struct curl_slist **headers)
{
	char bearer[sizeof e->api_key + 32];
	bool ok = true;

	if (e->api_key[0]) {
		snprintf(bearer, sizeof bearer, "Authorization: Bearer %s", e->api_key);
		ok = add_header(headers, bearer);
		memset(bearer, 0, sizeof bearer);
	}
	if (ok && has_body)
		ok = add_header(headers, "Content-Type: application/json");
	return ok && !curl_easy_setopt(c, CURLOPT_HTTPHEADER, *headers);
}

bool ig_http_prepare(CURL *c, const struct ig_endpoint *e, const char *path, bool has_body,
		     struct curl_slist **headers)
{
	char url[600];
	CURLcode code = CURLE_OK;

	snprintf(url, sizeof url, "%s://%s%.200s", e->tls ? "https" : "http", e->authority, path);
	if (!set_headers(c, e, has_body, headers))
		return false;
#define SET(opt, value)                                                                            \
	do {                                                                                       \
		if (!code)                                                                         \
			code = curl_easy_setopt(c, opt, value);                                    \
	} while (0)
	SET(CURLOPT_URL, url);
	SET(CURLOPT_USERAGENT, "ingot/" IG_VERSION);
	SET(CURLOPT_NOPROXY, "*");
	SET(CURLOPT_NOSIGNAL, 1L);
	if (e->socket[0])
		SET(CURLOPT_UNIX_SOCKET_PATH, e->socket);
	if (e->cacert[0])
		SET(CURLOPT_CAINFO, e->cacert);
#undef SET
	return !code;
}

/* method NULL: GET, or with text POST.  0 when a reply came, whatever its status; *out is NULL if its body is not
 * JSON, for the reason in je. */
static int send_request(const struct ig_endpoint *e, const char *method, const char *path,
			const char *text, int timeout_ms, json_t **out, struct ig_json_error *je,
			long *status, struct ig_error *err)
{
	char why[CURL_ERROR_SIZE] = "";
	struct curl_slist *headers = NULL;
	struct ig_strbuf body = { 0 };
	CURLcode code = CURLE_OK;
	CURL *c = NULL;
	int rc = 0;

	*out = NULL;
	*status = 0;
	if (curl_global_init(CURL_GLOBAL_DEFAULT))
		return ig_fail(err, -ENOMEM, "curl does not start");
	c = curl_easy_init();
	if (!c || !ig_http_prepare(c, e, path, text, &headers)) {
		rc = ig_fail(err, -ENOMEM, "out of memory");
		goto out;
	}
#define SET(opt, value)                                                                            \
	do {                                                                                       \
		if (!code)                                                                         \
			code = curl_easy_setopt(c, opt, value);                                    \
	} while (0)
	SET(CURLOPT_ERRORBUFFER, why);
	SET(CURLOPT_TIMEOUT_MS, (long)timeout_ms);
	SET(CURLOPT_WRITEFUNCTION, on_body);
	SET(CURLOPT_WRITEDATA, &body);
	if (text)
		SET(CURLOPT_POSTFIELDS, text);
	if (method)
		SET(CURLOPT_CUSTOMREQUEST, method);
#undef SET
	if (!code)
		code = curl_easy_perform(c);
	curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, status);
	if (code) {
		rc = ig_fail(err,
			     code == CURLE_OPERATION_TIMEDOUT ? -ETIMEDOUT :
			     *status			      ? -EPROTO :
								-ECONNREFUSED,
			     "%s", why[0] ? why : curl_easy_strerror(code));
		goto out;
	}
	ig_json_read(ig_strbuf_text(&body), body.len, NULL, out, je);
out:
	curl_easy_cleanup(c);
	curl_slist_free_all(headers);
	curl_global_cleanup();
	ig_strbuf_finish(&body);
	return rc;
}

static int fail_json(const struct ig_endpoint *e, const char *path, const struct ig_json_error *je,
		     struct ig_error *err)
{
	return ig_fail(err, -EPROTO, "%.200s%.200s: the reply is not JSON: %.100s", e->url, path,
		       je->text);
}

static int request_json(const struct ig_endpoint *e, const char *method, const char *path,
			int timeout_ms, json_t **out, long *status, struct ig_error *err)
{
	struct ig_json_error je;
	int rc = send_request(e, method, path, NULL, timeout_ms, out, &je, status, err);

	if (!rc && *status != 200)
		rc = ig_fail(err, -EPROTO, "%.200s%.200s: HTTP %ld: %.200s", e->url, path, *status,
			     error_message(*out));
	else if (!rc && !*out)
		rc = fail_json(e, path, &je, err);
	if (rc) {
		json_decref(*out);
		*out = NULL;
	}
	return rc;
}

int ig_http_get_json(const struct ig_endpoint *e, const char *path, int timeout_ms, json_t **out,
		     long *status, struct ig_error *err)
{
	return request_json(e, NULL, path, timeout_ms, out, status, err);
}

int ig_http_delete(const struct ig_endpoint *e, const char *path, int timeout_ms, long *status,
		   struct ig_error *err)
{
	json_t *reply = NULL;
	int rc = request_json(e, "DELETE", path, timeout_ms, &reply, status, err);

	json_decref(reply);
	return rc;
}

int ig_http_post_json(const struct ig_endpoint *e, const char *path, json_t *body, int timeout_ms,
		      json_t **out, long *status, char code[64], struct ig_error *err)
{
	char *text = ig_json_to_text(body);
	struct ig_json_error je;
	int rc;

	*out = NULL;
	*status = 0;
	code[0] = 0;
	rc = text ? send_request(e, NULL, path, text, timeout_ms, out, &je, status, err) :
		    ig_fail(err, -ENOMEM, "out of memory");
	free(text);
	if (!rc && !*out) {
		rc = fail_json(e, path, &je, err);
	} else if (!rc && *status != 200 && *status != 202) {
		const char *s = ig_json_text(json_object_get(*out, "error"), "code");
		snprintf(code, 64, "%.63s", s ? s : "");
		rc = ig_fail(err, -EPROTO, "%.600s", error_message(*out));
	}
	if (rc) {
		json_decref(*out);
		*out = NULL;
	}
	return rc;
}
