/* endpoint.c: see endpoint.h. */
#include "cli/net/endpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/term/text.h"
#include "store/config.h"

#define MAX_KEY_FILE 65536 /* bytes */

static bool host_is_sane(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];
		if (c <= 0x20 || c >= 0x7f || strchr("/?#@\\\"'<>[]", c))
			return false;
	}
	return n > 0;
}

/* host: without brackets */
static int set_parts(struct ig_endpoint *e, const char *host, uint32_t port, bool tls,
		     struct ig_error *err)
{
	size_t n = strlen(host);
	bool v6 = strchr(host, ':') != NULL;

	*e = (struct ig_endpoint){ 0 };
	if (n >= sizeof e->host || !host_is_sane(host, n))
		return ig_fail(err, -EINVAL, "'%.80s' is not a host name", host);
	if (port < 1 || port > 65535)
		return ig_fail(err, -EINVAL, "%u is not a port from 1 to 65535", port);
	memcpy(e->host, host, n + 1);
	e->port = (uint16_t)port;
	e->tls = tls;
	snprintf(e->authority, sizeof e->authority, v6 ? "[%s]:%u" : "%s:%u", e->host,
		 (unsigned)e->port);
	snprintf(e->url, sizeof e->url, "%s://%s", tls ? "https" : "http", e->authority);
	return 0;
}

static int set_socket(struct ig_endpoint *e, const char *path, struct ig_error *err)
{
	int rc = set_parts(e, "localhost", 80, false, err);
	size_t n = strlen(path);

	if (rc)
		return rc;
	if (path[0] != '/')
		return ig_fail(err, -EINVAL, "unix:%.200s: the socket's path must begin with /",
			       path);
	if (n >= sizeof e->socket)
		return ig_fail(err, -EINVAL, "unix:%.200s: a socket's path has at most %zu bytes",
			       path, sizeof e->socket - 1);
	memcpy(e->socket, path, n + 1);
	snprintf(e->authority, sizeof e->authority, "localhost");
	snprintf(e->url, sizeof e->url, "unix:%s", path);
	return 0;
}

int ig_endpoint_parse(const char *url, struct ig_endpoint *out, struct ig_error *err)
{
	static const char *const schemes[] = { "http://", "ws://", "https://", "wss://" };
	const char *p = NULL, *end;
	char host[256];
	uint32_t port = 80;
	bool tls = false;

	if (!strncmp(url, "unix:", 5))
		return set_socket(out, url + (strncmp(url, "unix://", 7) ? 5 : 7), err);
	for (size_t i = 0; !p && i < sizeof schemes / sizeof schemes[0]; i++) {
		size_t n = strlen(schemes[i]);
		if (strncmp(url, schemes[i], n))
			continue;
		p = url + n;
		tls = i >= 2;
		port = tls ? 443 : 80;
	}
	if (!p)
		return ig_fail(err, -EINVAL, "'%.200s' is not a daemon's URL, such as %s", url,
			       IG_DEFAULT_URL);
	if (*p == '[') {
		end = strchr(++p, ']');
		if (!end)
			return ig_fail(err, -EINVAL, "%.200s: ']' is missing", url);
	} else {
		end = p + strcspn(p, ":/");
	}
	if ((size_t)(end - p) >= sizeof host || !host_is_sane(p, (size_t)(end - p)))
		return ig_fail(err, -EINVAL, "%.200s: the host is missing or is not a name", url);
	memcpy(host, p, (size_t)(end - p));
	host[end - p] = 0;
	if (*end == ']')
		end++;
	if (*end == ':') {
		port = 0;
		for (p = ++end; *end >= '0' && *end <= '9' && end - p < 6; end++)
			port = port * 10 + (uint32_t)(*end - '0');
		if (end == p)
			port = 0;
	}
	if (strcmp(end, "") && strcmp(end, "/") && strcmp(end, "/v1") && strcmp(end, "/v1/"))
		return ig_fail(err, -EINVAL, "%.200s: unexpected '%.40s'", url, end);
	return set_parts(out, host, port, tls, err);
}

static int from_config(const char *path, struct ig_endpoint *out, struct ig_error *err)
{
	struct ig_config *c;
	int rc = ig_config_load(path, &c, err);

	if (rc)
		return rc;
	const char *host = c->server.host ? c->server.host : "";
	bool tls = c->server.tls_cert && *c->server.tls_cert;
	if (!*host && c->server.unix_socket && *c->server.unix_socket) {
		rc = set_socket(out, c->server.unix_socket, err);
		goto out;
	}
	/* a daemon that listens on all addresses is reached through loopback */
	if (!strcmp(host, "0.0.0.0") || !*host)
		host = "127.0.0.1";
	else if (!strcmp(host, "::"))
		host = "::1";
	if (c->server.port == 0)
		rc = ig_fail(err, -EINVAL,
			     "%s sets server.port: 0 (any free port); give --url with the address "
			     "that ingotd printed",
			     c->file ? c->file : "the configuration");
	else
		rc = set_parts(out, host, c->server.port, tls, err);
out:
	ig_config_destroy(c);
	return rc;
}

int ig_endpoint_find(const char *url, const char *config, struct ig_endpoint *out,
		     struct ig_error *err)
{
	const char *env = getenv("INGOT_URL");

	if (url)
		return ig_endpoint_parse(url, out, err);
	if (config)
		return from_config(config, out, err);
	if (env && *env)
		return ig_endpoint_parse(env, out, err);
	int rc = from_config(NULL, out, err);
	return rc == -ENOENT ? ig_endpoint_parse(IG_DEFAULT_URL, out, err) : rc;
}

/* The key is sent as a header's value: no character of it may end the header. */
static int set_key(struct ig_endpoint *e, const char *key, size_t len, const char *where,
		   struct ig_error *err)
{
	if (!len)
		return ig_fail(err, -EINVAL, "%s: the API key is empty", where);
	if (len >= sizeof e->api_key)
		return ig_fail(err, -EINVAL, "%s: an API key has at most %zu characters", where,
			       sizeof e->api_key - 1);
	for (size_t i = 0; i < len; i++)
		if (key[i] <= ' ' || key[i] > '~')
			return ig_fail(err, -EINVAL,
				       "%s: character %zu of the API key is a space, a "
				       "control character or not ASCII",
				       where, i + 1);
	memcpy(e->api_key, key, len);
	e->api_key[len] = 0;
	return 0;
}

static int read_key(struct ig_endpoint *e, const char *path, struct ig_error *err)
{
	struct ig_strbuf b = { 0 };
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int rc = fd < 0 ? -errno : ig_read_all(fd, MAX_KEY_FILE, NULL, &b);

	if (rc) {
		ig_fail(err, rc, "--api-key-file %.300s: %s", path, strerror(-rc));
	} else {
		const char *end = b.len ? memchr(b.data, '\n', b.len) : NULL;
		size_t len = end ? (size_t)(end - b.data) : b.len;
		if (len && b.data[len - 1] == '\r')
			len--;
		rc = set_key(e, ig_strbuf_text(&b), len, path, err);
	}
	if (b.data)
		memset(b.data, 0, b.len);
	ig_strbuf_finish(&b);
	if (fd >= 0)
		close(fd);
	return rc;
}

int ig_endpoint_open(const struct ig_where *w, struct ig_endpoint *out, struct ig_error *err)
{
	const char *env = getenv("INGOT_API_KEY");
	const char *cacert = w->cacert ? w->cacert : getenv("INGOT_CACERT");
	int rc = ig_endpoint_find(w->url, w->config, out, err);

	if (!rc && w->api_key_file && w->api_key)
		rc = ig_fail(err, -EINVAL, "--api-key-file and --api-key exclude each other");
	else if (!rc && w->api_key_file)
		rc = read_key(out, w->api_key_file, err);
	else if (!rc && w->api_key)
		rc = set_key(out, w->api_key, strlen(w->api_key), "--api-key", err);
	else if (!rc && env && *env)
		rc = set_key(out, env, strlen(env), "INGOT_API_KEY", err);
	/* other users can read a process's arguments */
	if (w->api_key)
		memset((char *)(uintptr_t)w->api_key, 'x', strlen(w->api_key));
	if (!rc && cacert && *cacert) {
		if (strlen(cacert) >= sizeof out->cacert)
			rc = ig_fail(err, -ENAMETOOLONG, "--cacert: the path is too long");
		else if (access(cacert, R_OK))
			rc = ig_fail(err, -errno, "--cacert %.300s: %s", cacert, strerror(errno));
		else
			memcpy(out->cacert, cacert, strlen(cacert) + 1);
	}
	return rc;
}

int ig_endpoint_complain(const struct ig_endpoint *e, int rc, const char *why)
{
	if (rc == -EPROTO)
		return ig_complain("%s %s; is that Ingot's daemon?", e->url, why);
	if (rc == -EACCES)
		return ig_complain("%s %s", e->url, why);
	if (rc != -ECONNREFUSED && rc != -ETIMEDOUT)
		return ig_complain("%s: %s", e->url, why[0] ? why : strerror(-rc));
	if (e->tls) /* a daemon may be there whose certificate is not trusted */
		return ig_complain(
			"no connection to %s (%s); --cacert names certificates to trust, --url or "
			"INGOT_URL another address",
			e->url, why);
	return ig_complain(
		"nothing answers at %s (%s); start the daemon (ingotd, or as a service: brew "
		"services start ingot, systemctl start ingot), or name another address with --url "
		"or INGOT_URL",
		e->url, why);
}
