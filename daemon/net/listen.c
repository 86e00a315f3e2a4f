/*
 * listen.c: opens the TCP ports, plain or with TLS, and the unix socket; refuses the network without
 * keys, and a socket of another process.  libwebsockets does not report why it failed, removes whatever
 * is at a unix socket's path, and can't take over a socket that listens: sockets are opened here, and
 * accept.c accepts.
 */
#include "daemon/net/net_private.h"

#include "base/inherit.h"
#include "base/log.h"
#include "daemon/net/check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

struct opening {
	const struct ig_config *config;
	bool probe; /* only to see whether it works */
};

static bool is_set(const char *text) { return text && text[0]; }

static const char *listen_host(const struct ig_config *config)
{
	const char *host = config->server.host;

	return strcmp(host, "localhost") ? host : "127.0.0.1";
}

/* ---- TCP ---------------------------------------------------------------------------- */

static int read_address(const struct ig_config *config, uint32_t port, struct sockaddr_storage *out,
			socklen_t *len, struct ig_error *err)
{
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in a4 = { .sin_family = AF_INET };
	const char *host = listen_host(config);

	a6.sin6_port = a4.sin_port = htons((uint16_t)port);
	if (inet_pton(AF_INET6, host, &a6.sin6_addr) == 1)
		memcpy(out, &a6, *len = sizeof a6);
	else if (inet_pton(AF_INET, host, &a4.sin_addr) == 1)
		memcpy(out, &a4, *len = sizeof a4);
	else
		return ig_fail(err, -EINVAL,
			       "can't listen on %s:%u: server.host must be an IP address "
			       "or localhost",
			       host, port);
	return 0;
}

/* which follows the reason: the option of a port that is not the main one.  A socket that listens, or
 * an error. */
static int open_tcp(const struct opening *o, uint32_t port, const char *which, struct ig_error *err)
{
	struct sockaddr_storage a = { 0 };
	socklen_t len = 0;
	int on = 1, rc = read_address(o->config, port, &a, &len, err);
	bool v6 = a.ss_family == AF_INET6;

	if (rc)
		return rc;
	int fd = ig_inherit_socket((const struct sockaddr *)&a, len, o->probe);
	if (fd >= 0)
		return fd;
	fd = socket(a.ss_family, SOCK_STREAM, 0);
	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (fd >= 0 && !bind(fd, (const struct sockaddr *)&a, len) && !listen(fd, SOMAXCONN))
		return fd;
	rc = ig_fail(err, -errno, "can't listen on %s%s%s:%u: %s%s", v6 ? "[" : "",
		     listen_host(o->config), v6 ? "]" : "", port, strerror(errno), which);
	if (fd >= 0)
		close(fd);
	return rc;
}

static int port_of(int fd)
{
	struct sockaddr_storage a = { 0 };
	socklen_t len = sizeof a;

	getsockname(fd, (struct sockaddr *)&a, &len);
	return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port :
					       ((struct sockaddr_in *)&a)->sin_port);
}

static int check_ports(const struct ig_config *config, struct ig_error *err)
{
	uint32_t port = config->server.port, also = config->server.also_listen;

	if (also && !is_set(config->server.host))
		return ig_fail(err, -EINVAL,
			       "server.also_listen is %u, but server.host is \"\": no port is open",
			       also);
	if (also && also == port)
		return ig_fail(err, -EINVAL, "server.also_listen and server.port are both %u",
			       also);
	return 0;
}

/* Other machines need a key, unless the configuration allows anonymous requests. */
static int check_exposure(const struct ig_config *config, const struct ig_keys *keys,
			  struct ig_error *err)
{
	const char *file = is_set(config->server.keys_command) ? config->server.keys_command :
			   is_set(config->server.keys_file)    ? config->server.keys_file :
								 "server.keys_file";

	if (!is_set(config->server.host) || ig_check_loopback(listen_host(config)) ||
	    config->server.allow_anonymous || ig_keys_count(keys))
		return 0;
	return ig_fail(err, -EACCES,
		       "refusing to listen on %s:%u, where others can reach it, without API "
		       "keys (%.200s has none): run `ingot keys add --admin`, or set server.host: "
		       "127.0.0.1, or server.allow_anonymous: true",
		       config->server.host, config->server.port, file);
}

/* ---- the unix socket ---------------------------------------------------------------- */

static int fail_unix(struct ig_error *err, int code, const char *path)
{
	return ig_fail(err, -code, "can't listen on %.300s: %s", path, strerror(code));
}

/* Remove what is at the path only if it is a socket that nobody listens on. */
static int remove_stale(const char *path, const struct sockaddr_un *a, struct ig_error *err)
{
	struct stat st;

	if (lstat(path, &st))
		return errno == ENOENT ? 0 : fail_unix(err, errno, path);
	if (!S_ISSOCK(st.st_mode))
		return ig_fail(err, -EEXIST,
			       "can't listen on %.300s: it exists and is not a socket", path);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (fd < 0)
		return fail_unix(err, errno, path);
	fcntl(fd, F_SETFL, O_NONBLOCK); /* a full queue means that somebody listens */
	int refused = connect(fd, (const struct sockaddr *)a, sizeof *a) ? errno : 0;
	close(fd);
	if (refused && refused != ECONNREFUSED && refused != EAGAIN)
		return fail_unix(err, refused, path);
	if (refused != ECONNREFUSED)
		return ig_fail(err, -EADDRINUSE, "can't listen on %.300s: another process does",
			       path);
	if (unlink(path) && errno != ENOENT)
		return fail_unix(err, errno, path);
	return 0;
}

/* Nobody else may connect before its permissions are set. */
static int open_unix(const struct opening *o, struct ig_error *err)
{
	const char *path = o->config->server.unix_socket;
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int rc, fd;

	if (strlen(path) >= sizeof a.sun_path)
		return ig_fail(err, -ENAMETOOLONG,
			       "can't listen on %.300s: a unix socket's path has at most %zu bytes",
			       path, sizeof a.sun_path - 1);
	memcpy(a.sun_path, path, strlen(path) + 1);
	fd = ig_inherit_socket((const struct sockaddr *)&a, sizeof a, o->probe);
	bool inherited = fd >= 0;
	if (!inherited) {
		if ((rc = remove_stale(path, &a, err)))
			return rc;
		fd = socket(AF_UNIX, SOCK_STREAM, 0);
		mode_t mask = umask(0177);
		bool good = fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof a) &&
			    !listen(fd, SOMAXCONN);
		int why = errno;
		umask(mask);
		if (!good) {
			if (fd >= 0)
				close(fd);
			return fail_unix(err, why, path);
		}
	}
	rc = chmod(path, (mode_t)o->config->server.unix_socket_mode) ?
		     ig_fail(err, -errno, "can't set the permissions of %.300s: %s", path,
			     strerror(errno)) :
		     0;
	if (!inherited && (rc || o->probe))
		unlink(path);
	if (rc)
		close(fd);
	return rc ? rc : fd;
}

/* ---- all of them --------------------------------------------------------------------------- */

static int add(struct listener *list, size_t *n, enum listener_kind kind, int fd)
{
	if (fd < 0)
		return fd;
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	list[(*n)++] = (struct listener){ .kind = kind,
					  .fd = fd,
					  .port = kind == LISTENS_LOCALLY ? 0 : port_of(fd) };
	return 0;
}

static int open_all(const struct opening *o, struct listener *list, size_t *n, struct ig_error *err)
{
	const struct ig_config *config = o->config;
	uint32_t also = config->server.also_listen;
	int rc = 0;

	if (is_set(config->server.host))
		rc = add(list, n, LISTENS, open_tcp(o, config->server.port, "", err));
	if (!rc && also)
		rc = add(list, n, LISTENS_TOO, open_tcp(o, also, " (server.also_listen)", err));
	if (!rc && is_set(config->server.unix_socket))
		rc = add(list, n, LISTENS_LOCALLY, open_unix(o, err));
	return rc;
}

static void warn_of_clear_text(const struct ig_config *config, const struct ig_keys *keys)
{
	if (is_set(config->server.host) && !ig_check_loopback(listen_host(config)) &&
	    ig_keys_count(keys) && !is_set(config->server.tls_cert))
		ig_log_warn("API keys are sent to %s:%u in clear text: server.tls_cert is not set",
			    config->server.host, config->server.port);
}

/* For messages and the URL: with brackets round a v6 address. */
static void name_host(const struct ig_config *config, char *out, size_t cap)
{
	const char *host = listen_host(config);
	bool v6 = strchr(host, ':') != NULL;

	snprintf(out, cap, "%s%s%s", v6 ? "[" : "", host, v6 ? "]" : "");
}

int ig_listen_open(struct ig_net *net, const struct ig_config *config, const struct ig_keys *keys,
		   struct ig_error *err)
{
	const struct opening o = { config, !net };
	struct listener probed[MAX_LISTENERS], *list = net ? net->listeners : probed;
	size_t n = 0;
	int rc = check_exposure(config, keys, err);

	if (!rc)
		rc = check_ports(config, err);
	if (!rc)
		rc = open_all(&o, list, &n, err);
	if (net)
		net->n_listeners = n;
	while (!net && n)
		close(list[--n].fd);
	if (rc || !net)
		return rc;
	if (is_set(config->server.host)) {
		name_host(config, net->host, sizeof net->host);
		net->port = list[0].port;
	}
	for (size_t i = 0; i < n; i++)
		if (list[i].kind == LISTENS_TOO)
			ig_log_info("also listening on %s:%d", net->host, list[i].port);
	warn_of_clear_text(config, keys);
	return 0;
}

void ig_listen_close(struct ig_net *net)
{
	for (size_t i = 0; i < net->n_listeners; i++) {
		close(net->listeners[i].fd);
		if (net->listeners[i].kind == LISTENS_LOCALLY && !net->handed_over)
			unlink(net->config->server.unix_socket);
	}
	net->n_listeners = 0;
}
