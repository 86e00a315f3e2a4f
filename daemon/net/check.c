/* check.c: see check.h. */
#include "daemon/net/check.h"

#include "store/ledger.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The length of the name in "name", "name:port", "[v6]" or "[v6]:port"; 0: none of them. */
static size_t name_length(const char *host)
{
	size_t n = 0;

	if (host[0] == '[') {
		const char *end = strchr(host, ']');
		if (!end)
			return 0;
		n = (size_t)(end - host) + 1;
	} else {
		n = strcspn(host, ":");
	}
	if (host[n] == ':') {
		size_t digits = strspn(host + n + 1, "0123456789");
		if (!digits || digits > 5 || host[n + 1 + digits])
			return 0;
	} else if (host[n]) {
		return 0;
	}
	return n;
}

static bool same(const char *host, size_t n, const char *name)
{
	/* A v6 address is in brackets in the header and bare in a configuration. */
	if (host[0] == '[' && name[0] != '[')
		return n >= 2 && strchr(name, ':') && strlen(name) == n - 2 &&
		       !strncasecmp(host + 1, name, n - 2);
	return strlen(name) == n && !strncasecmp(host, name, n);
}

bool ig_check_host(const char *host, const char *configured, char *const *allowed)
{
	static const char *const loopback[] = { "localhost", "127.0.0.1", "::1", NULL };
	size_t n = name_length(host);

	if (!n)
		return false;
	for (const char *const *l = loopback; *l; l++)
		if (same(host, n, *l))
			return true;
	if (configured && same(host, n, configured))
		return true;
	for (; allowed && *allowed; allowed++)
		if (same(host, n, *allowed))
			return true;
	return false;
}

bool ig_check_origin(const char *origin, char *const *allowed)
{
	for (; allowed && *allowed; allowed++)
		if (!strcasecmp(origin, *allowed))
			return true;
	return false;
}

bool ig_check_own_origin(const char *origin, const char *host, const char *configured,
			 char *const *allowed, int port)
{
	bool tls = !strncasecmp(origin, "https://", 8);

	if (!tls && strncasecmp(origin, "http://", 7))
		return false;
	origin += tls ? 8 : 7;
	if (host[0] && !strcasecmp(origin, host))
		return true;
	size_t n = name_length(origin);
	int its = n && origin[n] ? atoi(origin + n + 1) : tls ? 443 : 80;
	return n && its == port && ig_check_host(origin, configured, allowed);
}

bool ig_check_length(const char *text, uint64_t *out)
{
	uint64_t v = 0;
	size_t n = strlen(text);

	/* 18 digits are no overflow, and more than any body. */
	if (!n || n > 18 || strspn(text, "0123456789") != n)
		return false;
	for (; *text; text++)
		v = v * 10 + (uint64_t)(*text - '0');
	*out = v;
	return true;
}

const char *ig_check_bearer(const char *value, size_t *len)
{
	if (strncasecmp(value, "Bearer ", 7))
		return NULL;
	value += 7;
	value += strspn(value, " ");
	*len = strlen(value);
	while (*len && value[*len - 1] == ' ')
		--*len;
	return *len ? value : NULL;
}

bool ig_check_request_id(const char *text)
{
	size_t n = 0;

	while (text[n] > 0x20 && text[n] < 0x7f)
		n++;
	return n && n < IG_REQUEST_ID_CAP && !text[n];
}

/* Whether path is the folder, without its last slash, or lies in it. */
static bool within(const char *path, const char *folder)
{
	size_t n = strlen(folder);

	return !strncmp(path, folder, n) && (!path[n] || path[n] == '/');
}

bool ig_check_role(enum ig_role role, const char *path)
{
	if (role == IG_ROLE_ADMINISTRATOR || !strcmp(path, "/healthz"))
		return true;
	if (role == IG_ROLE_MONITOR)
		return !strcmp(path, "/metrics");
	if (!strcmp(path, "/"))
		return true;
	return within(path, "/api") || (within(path, "/v1") && !within(path, "/v1/ingot"));
}

bool ig_check_loopback(const char *address)
{
	struct in6_addr a6;
	struct in_addr a4;

	if (!strcmp(address, "localhost"))
		return true;
	if (inet_pton(AF_INET, address, &a4) == 1)
		return ntohl(a4.s_addr) >> 24 == 127;
	if (inet_pton(AF_INET6, address, &a6) != 1)
		return false;
	return IN6_IS_ADDR_LOOPBACK(&a6) || (IN6_IS_ADDR_V4MAPPED(&a6) && a6.s6_addr[12] == 127);
}
