/* endpoint.c: see endpoint.h.  Ingot's daemon speaks plain HTTP; https is refused by
 * name rather than tried. */
#include "cli/endpoint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/text.h"
#include "daemon/store/config.h"

static bool host_is_sane(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];
		if (c <= 0x20 || c >= 0x7f || strchr("/?#@\\\"'<>[]", c))
			return false;
	}
	return n > 0;
}

int ig_endpoint_set(struct ig_endpoint *e, const char *host, uint32_t port, struct ig_error *err)
{
	size_t n = strlen(host);
	bool v6 = strchr(host, ':') != NULL;

	if (n >= sizeof e->host || !host_is_sane(host, n))
		return ig_fail(err, -EINVAL, "'%.80s' is no host name", host);
	if (port < 1 || port > 65535)
		return ig_fail(err, -EINVAL, "%u is no port; ports are 1 … 65535", port);
	memcpy(e->host, host, n + 1);
	e->port = (uint16_t)port;
	snprintf(e->authority, sizeof e->authority, v6 ? "[%s]:%u" : "%s:%u", e->host,
		 (unsigned)e->port);
	snprintf(e->url, sizeof e->url, "http://%s", e->authority);
	return 0;
}

int ig_endpoint_parse(const char *url, struct ig_endpoint *out, struct ig_error *err)
{
	const char *p, *end;
	char host[256];
	uint32_t port = 80;

	if (!strncmp(url, "http://", 7))
		p = url + 7;
	else if (!strncmp(url, "ws://", 5))
		p = url + 5;
	else if (!strncmp(url, "https://", 8) || !strncmp(url, "wss://", 6))
		return ig_fail(err, -ENOTSUP, "%.200s: TLS is not supported; ingotd speaks plain http",
			       url);
	else
		return ig_fail(err, -EINVAL, "'%.200s' is no URL of a daemon; it looks like %s", url,
			       IG_DEFAULT_URL);
	if (*p == '[') {
		end = strchr(++p, ']');
		if (!end)
			return ig_fail(err, -EINVAL, "%.200s: ']' is missing", url);
	} else {
		end = p + strcspn(p, ":/");
	}
	if ((size_t)(end - p) >= sizeof host || !host_is_sane(p, (size_t)(end - p)))
		return ig_fail(err, -EINVAL, "%.200s: the host is missing or is none", url);
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
		return ig_fail(err, -EINVAL, "%.200s: '%.40s' does not belong there", url, end);
	return ig_endpoint_set(out, host, port, err);
}

static int from_config(const char *path, struct ig_endpoint *out, struct ig_error *err)
{
	struct ig_config *c;
	int rc = ig_config_load(path, &c, err);

	if (rc)
		return rc;
	const char *host = c->server.host;
	/* a daemon that listens everywhere is reached by loopback */
	if (!strcmp(host, "0.0.0.0") || !*host)
		host = "127.0.0.1";
	else if (!strcmp(host, "::"))
		host = "::1";
	if (c->server.port == 0)
		rc = ig_fail(err, -EINVAL,
			     "%s says server.port: 0 (any free port); give --url with the address "
			     "that ingotd printed", c->file ? c->file : "the configuration");
	else
		rc = ig_endpoint_set(out, host, c->server.port, err);
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
	if (rc == -ENOENT)
		return ig_endpoint_parse(IG_DEFAULT_URL, out, err);
	return rc;
}

void ig_endpoint_complain_absent(const struct ig_endpoint *e, const char *why)
{
	ig_complain("nothing answers at %s (%s); start the daemon with: ingotd --config FILE, or name "
		    "another address with --url or INGOT_URL", e->url, why);
}
