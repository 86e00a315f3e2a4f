/*
 * who.c: the principal of a request: by the key in its headers, or by its address; and whether it
 * may request the path.  Without a file of keys all requests are anonymous, and those from this
 * machine that did not come through a proxy are an administrator's.  With one a key is required, on
 * the unix socket too.
 */
#include "daemon/net/net_private.h"

#include "daemon/net/check.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Before a key among the protocols of a handshake. */
#define IG_KEY_PROTOCOL "ingot-key."

void ig_who_describe_peer(int fd, char *out, size_t cap)
{
#ifdef __linux__
	struct ucred u;
	socklen_t n = sizeof u;
	bool known = !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &u, &n) && n == sizeof u;
	unsigned uid = known ? (unsigned)u.uid : 0;
#else
	uid_t u;
	gid_t g;
	bool known = !getpeereid(fd, &u, &g);
	unsigned uid = known ? (unsigned)u : 0;
#endif
	if (known)
		snprintf(out, cap, "unix:uid=%u", uid);
	else
		snprintf(out, cap, "unix");
}

/* The request's key.  1: there is one, 0: none, -1: a header without a valid key. */
static int read_token(const struct ig_head *h, const char **token, size_t *len)
{
	size_t n, m;
	const char *authorization = ig_head_field(h, "authorization", &n),
		   *key = ig_head_field(h, "x-api-key", &m);

	/* Pages cannot set headers of a WebSocket's handshake, but can name protocols. */
	const char *protocol =
		ig_head_find_token(h, "sec-websocket-protocol", IG_KEY_PROTOCOL, len);
	if (protocol && !n && !m && ig_head_field(h, "upgrade", NULL)) {
		*token = protocol;
		return 1;
	}
	if (authorization && !authorization[0])
		n--;
	if (key && !key[0])
		m--;
	if (n == 1 && authorization[0]) {
		*token = ig_check_bearer(authorization, len);
		if (*token)
			return 1;
	}
	if (m == 1 && key[0] && n < 2) {
		*token = key;
		*len = strlen(key);
		return 1;
	}
	return n || m ? -1 : 0;
}

/* Whether the headers say that a proxy forwarded the request: the peer is then the proxy, and
 * the client may be anywhere. */
static bool is_forwarded(const struct ig_head *h)
{
	static const char *const names[] = { "forwarded", "x-forwarded-for",   "x-forwarded-host",
					     "x-real-ip", "x-forwarded-proto", "via" };

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (ig_head_field(h, names[i], NULL))
			return true;
	return false;
}

static void set_anonymous(struct conn *c)
{
	c->who = (struct ig_principal){ .is_free = !c->net->keys_required };
	/* With keys, an administrator needs one. */
	if (!c->net->keys_required && (c->local || ig_check_loopback(c->client)) &&
	    !is_forwarded(&c->head))
		c->who.role = IG_ROLE_ADMINISTRATOR;
}

static int identify(struct conn *c, struct refusal *why)
{
	const char *token;
	size_t len;

	set_anonymous(c);
	/* A key is ignored where none is required: clients send whatever they have. */
	if (!c->net->keys_required)
		return 0;
	int there = read_token(&c->head, &token, &len);
	if (!there && c->net->config->server.allow_anonymous)
		return 0;
	if (!there)
		return ig_refuse(
			why, 401, "missing_api_key",
			"An API key is required: send it as Authorization: Bearer KEY, or as "
			"x-api-key.");
	const struct ig_key *key = there > 0 ? ig_keys_find(c->net->keys, token, len) : NULL;
	if (!key)
		return ig_refuse(why, 401, "invalid_api_key", "The API key is not known here.");
	ig_key_principal(key, &c->who);
	return 0;
}

/* The files of the page have no secrets. */
static bool is_page(const struct conn *c)
{
	return (!strcmp(c->method, "GET") || !strcmp(c->method, "HEAD")) &&
	       (!strcmp(c->path, "/ui") || !strncmp(c->path, "/ui/", 4) ||
		(!strcmp(c->path, "/") && ig_head_wants_html(&c->head)));
}

int ig_who_check(struct conn *c, struct refusal *why)
{
	/* Health checks need no key. */
	if (!strcmp(c->path, "/healthz") || is_page(c) ||
	    (c->net->config->server.open_metrics && !strcmp(c->path, "/metrics"))) {
		set_anonymous(c);
		return 0;
	}
	int status = identify(c, why);
	if (status || ig_check_role(c->who.role, c->path))
		return status;
	if (c->who.role == IG_ROLE_MONITOR)
		return ig_refuse(why, 403, "monitor_key",
				 "The key of a monitor may read /metrics and /healthz alone.");
	return ig_refuse(why, 403, "administrator_required",
			 "Only the key of an administrator may ask for this.");
}

void ig_who_revoke(struct ig_net *net)
{
	for (struct conn *c = net->conns; c; c = c->next) {
		if (c->kind != CONN_WEBSOCKET)
			continue;
		const struct ig_key *key = ig_keys_by_id(net->keys, c->who.key);
		struct ig_principal now = { 0 };
		if (key)
			ig_key_principal(key, &now);
		if (c->who.key[0])
			c->revoked = now.identity != c->who.identity;
		else
			c->revoked = net->keys_required && !net->config->server.allow_anonymous;
		if (c->revoked)
			ig_net_want_write(c); /* some end at once */
	}
}
