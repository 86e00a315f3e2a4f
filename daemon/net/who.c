/*
 * who.c: whose request it is: the key in its headers, or where it comes from; and
 * whether that one may ask for the path.
 *
 * Without a file of keys everybody is anonymous, and an administrator who comes from
 * this machine and through no proxy.  Once there is one, a key is needed: on the unix
 * socket too.
 */
#include "daemon/net/net_private.h"

#include "daemon/net/check.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Longer than any key, and what is longer is none. */
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

/* The key that came with the request.  1 there, 0 none, -1 something that is no key. */
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

/* Whether the headers say that a proxy has passed the request on: the peer is then the
 * proxy, and the client may be anywhere. */
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
	/* With keys, who wants to be an administrator shows one. */
	if (!c->net->keys_required && (c->local || ig_check_loopback(c->client)) &&
	    !is_forwarded(c->wsi))
		c->who.role = IG_ROLE_ADMINISTRATOR;
}

static int identify(struct conn *c, const char **code, const char **message)
{
	char buf[MAX_VALUE];
	const char *token;
	size_t len;

	set_anonymous(c);
	/* A key is no harm where none is asked for: clients send whatever they have. */
	if (!c->net->keys_required)
		return 0;
	int there = read_token(c->wsi, buf, &token, &len);
	if (!there && c->net->config->server.allow_anonymous)
		return 0;
	if (!there) {
		*code = "missing_api_key";
		*message = "An API key is required: send it as Authorization: Bearer KEY, or as "
			   "x-api-key.";
		return 401;
	}
	const struct ig_key *key = there > 0 ? ig_keys_find(c->net->keys, token, len) : NULL;
	if (!key) {
		*code = "invalid_api_key";
		*message = "The API key is not known here.";
		return 401;
	}
	ig_key_principal(key, &c->who);
	return 0;
}

int ig_who_check(struct conn *c, const char **code, const char **message)
{
	/* Who watches whether the daemon is up needs to know nothing else of it. */
	if (!strcmp(c->path, "/healthz")) {
		set_anonymous(c);
		return 0;
	}
	int status = identify(c, code, message);
	if (status || ig_check_role(c->who.role, c->path))
		return status;
	if (c->who.role == IG_ROLE_MONITOR) {
		*code = "monitor_key";
		*message = "The key of a monitor may read /metrics and /healthz alone.";
	} else {
		*code = "administrator_required";
		*message = "Only the key of an administrator may ask for this.";
	}
	return 403;
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
