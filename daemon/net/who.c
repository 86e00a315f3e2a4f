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

/* Longer than any key. */
#define MAX_VALUE 1024

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
static int read_token(struct lws *wsi, char buf[MAX_VALUE], const char **token, size_t *len)
{
	static const char name[] = "x-api-key:";
	int n = lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_AUTHORIZATION);

	if (n > 0) {
		if (lws_hdr_copy(wsi, buf, MAX_VALUE, WSI_TOKEN_HTTP_AUTHORIZATION) <= 0)
			return -1;
		*token = ig_check_bearer(buf, len);
		if (*token)
			return 1;
	}
	int m = lws_hdr_custom_length(wsi, name, sizeof name - 1);
	if (m > 0) {
		if (lws_hdr_custom_copy(wsi, buf, MAX_VALUE, name, sizeof name - 1) <= 0)
			return -1;
		*token = buf;
		*len = strlen(buf);
		return 1;
	}
	return n > 0 ? -1 : 0;
}

/* Whether the headers say that a proxy forwarded the request: the peer is then the proxy, and
 * the client may be anywhere. */
static bool is_forwarded(struct lws *wsi)
{
	static const char *const names[] = { "forwarded:", "x-forwarded-host:",
					     "x-forwarded-proto:" };
	static const enum lws_token_indexes tokens[] = { WSI_TOKEN_X_FORWARDED_FOR,
							 WSI_TOKEN_HTTP_X_REAL_IP,
							 WSI_TOKEN_HTTP_VIA };

	for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++)
		if (lws_hdr_total_length(wsi, tokens[i]) > 0)
			return true;
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (lws_hdr_custom_length(wsi, names[i], (int)strlen(names[i])) >= 0)
			return true;
	return false;
}

static void set_anonymous(struct conn *c)
{
	c->who = (struct ig_principal){ 0 };
	/* With keys, an administrator needs one. */
	if (!c->net->keys_required && (c->local || ig_check_loopback(c->client)) &&
	    !is_forwarded(c->wsi))
		c->who.role = IG_ROLE_ADMINISTRATOR;
}

static int identify(struct conn *c, struct refusal *why)
{
	char buf[MAX_VALUE];
	const char *token;
	size_t len;

	set_anonymous(c);
	/* A key is ignored where none is required: clients send whatever they have. */
	if (!c->net->keys_required)
		return 0;
	int there = read_token(c->wsi, buf, &token, &len);
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

int ig_who_check(struct conn *c, struct refusal *why)
{
	/* Health checks need no key. */
	if (!strcmp(c->path, "/healthz")) {
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
	}
}
