/*
 * listen.c: opens the TCP ports, plain or with TLS, and the unix socket; refuses the network without
 * keys, and a socket of another process.  libwebsockets does not report why it failed, and removes
 * whatever is at a unix socket's path, so each address is bound here once before.
 */
#include "daemon/net/net_private.h"

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

#define HANDSHAKE_TIMEOUT_S 20

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

/* which follows the reason: the option of a port that is not the main one. */
static int probe_tcp(const struct ig_config *config, uint32_t port, const char *which,
		     struct ig_error *err)
{
	struct sockaddr_storage a = { 0 };
	socklen_t len = 0;
	int on = 1, rc = read_address(config, port, &a, &len, err);
	bool v6 = a.ss_family == AF_INET6;

	if (rc)
		return rc;
	int fd = socket(a.ss_family, SOCK_STREAM, 0);
	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (fd < 0 || bind(fd, (const struct sockaddr *)&a, len) < 0 || listen(fd, 1) < 0)
		rc = ig_fail(err, -errno, "can't listen on %s%s%s:%u: %s%s", v6 ? "[" : "",
			     listen_host(config), v6 ? "]" : "", port, strerror(errno), which);
	if (fd >= 0)
		close(fd);
	return rc;
}

static int probe_ports(const struct ig_config *config, struct ig_error *err)
{
	uint32_t port = config->server.port, also = config->server.also_listen;
	int rc = is_set(config->server.host) ? probe_tcp(config, port, "", err) : 0;

	if (rc || !also)
		return rc;
	if (!is_set(config->server.host))
		return ig_fail(err, -EINVAL,
			       "server.also_listen is %u, but server.host is \"\": no port is open",
			       also);
	if (also == port)
		return ig_fail(err, -EINVAL, "server.also_listen and server.port are both %u",
			       also);
	return probe_tcp(config, also, " (server.also_listen)", err);
}

/* Other machines need a key, unless the configuration allows anonymous requests. */
static int check_exposure(const struct ig_config *config, const struct ig_keys *keys,
			  struct ig_error *err)
{
	const char *file =
		is_set(config->server.keys_file) ? config->server.keys_file : "server.keys_file";

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

static int probe_unix(const char *path, struct ig_error *err)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int rc;

	if (strlen(path) >= sizeof a.sun_path)
		return ig_fail(err, -ENAMETOOLONG,
			       "can't listen on %.300s: a unix socket's path has at most %zu bytes",
			       path, sizeof a.sun_path - 1);
	memcpy(a.sun_path, path, strlen(path) + 1);
	if ((rc = remove_stale(path, &a, err)))
		return rc;
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (fd < 0)
		return fail_unix(err, errno, path);
	if (bind(fd, (struct sockaddr *)&a, sizeof a))
		rc = fail_unix(err, errno, path);
	else
		unlink(path);
	close(fd);
	return rc;
}

/* ---- libwebsockets ------------------------------------------------------------------- */

static void fill_info(struct lws_context_creation_info *info, struct ig_net *net,
		      const struct ig_config *config, const struct lws_protocols *protocols)
{
	*info = (struct lws_context_creation_info){ 0 };
	info->protocols = protocols;
	info->user = net;
	info->options = LWS_SERVER_OPTION_SKIP_SERVER_CANONICAL_NAME |
			LWS_SERVER_OPTION_FAIL_UPON_UNABLE_TO_BIND |
			LWS_SERVER_OPTION_EXPLICIT_VHOSTS |
			LWS_SERVER_OPTION_ADOPT_APPLY_LISTEN_ACCEPT_CONFIG;
	info->listen_accept_role = "raw-skt";
	info->listen_accept_protocol = protocols[0].name;
	/* For every vhost and the context: both are checked. */
	if (is_set(config->server.tls_cert))
		info->options |= LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT |
				 LWS_SERVER_OPTION_DISABLE_OS_CA_CERTS;
	info->fd_limit_per_thread = config->server.max_connections + SPARE_CONNECTIONS + 10;
	info->pt_serv_buf_size = 16384;
	info->timeout_secs = HANDSHAKE_TIMEOUT_S;
	/* gid and uid stay 0: no change of user; with others the unix socket would be opened
	 * to the group. */
}

/* port 0: any free one.  The port that it listens on, or an error. */
static int listen_tcp(struct ig_net *net, const struct ig_config *config,
		      const struct lws_protocols *protocols, const char *name, uint32_t port,
		      bool v6, struct ig_error *err)
{
	struct lws_context_creation_info info;

	fill_info(&info, net, config, protocols);
	info.vhost_name = name;
	info.port = (int)port;
	info.iface = listen_host(config);
	if (!v6)
		info.options |= LWS_SERVER_OPTION_DISABLE_IPV6;
	if (is_set(config->server.tls_cert)) {
		info.options |= LWS_SERVER_OPTION_CREATE_VHOST_SSL_CTX; /* then see ig_tls_serve */
		info.alpn = "http/1.1";					/* no HTTP/2 */
	}
	struct lws_vhost *vhost = lws_create_vhost(net->context, &info);
	int got = vhost ? lws_get_vhost_listen_port(vhost) : -1;
	if (got > 0)
		return got;
	return ig_fail(err, -EIO, "can't listen on %s:%u: libwebsockets made no listening socket",
		       net->host, port);
}

static int listen_ports(struct ig_net *net, const struct ig_config *config,
			const struct lws_protocols *protocols, bool v6, struct ig_error *err)
{
	int rc = listen_tcp(net, config, protocols, "tcp", config->server.port, v6, err);

	net->port = rc > 0 ? rc : 0;
	if (rc > 0 && config->server.also_listen)
		rc = listen_tcp(net, config, protocols, "also", config->server.also_listen, v6,
				err);
	if (rc > 0 && config->server.also_listen)
		ig_log_info("also listening on %s:%d", net->host, rc);
	return rc > 0 ? 0 : rc;
}

static int listen_unix(struct ig_net *net, const struct ig_config *config,
		       const struct lws_protocols *protocols, struct ig_error *err)
{
	const char *path = config->server.unix_socket;
	struct lws_context_creation_info info;

	fill_info(&info, net, config, protocols);
	info.vhost_name = "unix";
	info.iface = path;
	info.options |= LWS_SERVER_OPTION_UNIX_SOCK;
	/* Nobody else may connect before its permissions are set. */
	mode_t mask = umask(0177);
	net->local = lws_create_vhost(net->context, &info);
	umask(mask);
	if (!net->local)
		return ig_fail(err, -EIO, "can't listen on %.300s: libwebsockets made no socket",
			       path);
	if (chmod(path, (mode_t)config->server.unix_socket_mode))
		return ig_fail(err, -errno, "can't set the permissions of %.300s: %s", path,
			       strerror(errno));
	return 0;
}

static void warn_of_clear_text(const struct ig_config *config, const struct ig_keys *keys)
{
	if (is_set(config->server.host) && !ig_check_loopback(listen_host(config)) &&
	    ig_keys_count(keys) && !is_set(config->server.tls_cert))
		ig_log_warn("API keys are sent to %s:%u in clear text: server.tls_cert is not set",
			    config->server.host, config->server.port);
}

int ig_listen(struct ig_net *net, const struct ig_config *config, const struct ig_keys *keys,
	      const struct lws_protocols *protocols, struct ig_error *err)
{
	bool tcp = is_set(config->server.host), local = is_set(config->server.unix_socket);
	struct lws_context_creation_info info;
	struct sockaddr_storage a = { 0 };
	socklen_t len = 0;
	int rc = tcp ? read_address(config, config->server.port, &a, &len, err) : 0;
	bool v6 = a.ss_family == AF_INET6;

	if (!rc)
		rc = check_exposure(config, keys, err);
	if (!rc)
		rc = probe_ports(config, err);
	if (!rc && local)
		rc = probe_unix(config->server.unix_socket, err);
	if (rc || !net)
		return rc;
	if (tcp)
		snprintf(net->host, sizeof net->host, "%s%s%s", v6 ? "[" : "", listen_host(config),
			 v6 ? "]" : "");
	fill_info(&info, net, config, protocols);
	net->context = lws_create_context(&info);
	if (!net->context)
		return ig_fail(err, -EIO, "can't listen: libwebsockets could not start");
	if (tcp)
		rc = listen_ports(net, config, protocols, v6, err);
	if (!rc && local)
		rc = listen_unix(net, config, protocols, err);
	if (rc) {
		lws_context_destroy(net->context);
		net->context = NULL;
		return rc;
	}
	warn_of_clear_text(config, keys);
	return 0;
}
