/*
 * accept.c: libwebsockets' context, and the connections that it gets: each socket that listens
 * (listen.c) is a file to it, which is read by accepting.  A virtual host for each, because one may
 * have TLS and another not.
 */
#include "daemon/net/net_private.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HANDSHAKE_TIMEOUT_S 20
/* Connections that are accepted before others are served. */
#define MAX_ACCEPTED 64

static bool has_tls(const struct ig_config *config)
{
	return config->server.tls_cert && config->server.tls_cert[0];
}

/* ---- accepting ------------------------------------------------------------------------- */

static int accept_one(int fd)
{
	int on = 1;
#ifdef __linux__
	int s = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
#else
	int s = accept(fd, NULL, NULL);
	if (s >= 0) {
		fcntl(s, F_SETFL, O_NONBLOCK);
		fcntl(s, F_SETFD, FD_CLOEXEC);
	}
#endif
	int why = errno;
	if (s >= 0)
		setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* not of a unix socket */
	errno = why;
	return s;
}

/* No descriptor is left: the one that was kept for this accepts the client, so that it is not
 * reported again and again. */
static void turn_away(struct ig_net *net, int fd)
{
	if (net->spare_fd < 0)
		return;
	close(net->spare_fd);
	int s = accept_one(fd);
	if (s >= 0)
		close(s);
	net->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void accept_all(struct ig_net *net, const struct listener *l)
{
	lws_adoption_type how = LWS_ADOPT_SOCKET;

	if (l->kind != LISTENS_LOCALLY && has_tls(net->config))
		how |= LWS_ADOPT_ALLOW_SSL;
	for (int i = 0; i < MAX_ACCEPTED; i++) {
		int s = accept_one(l->fd);
		if (s < 0 && (errno == EMFILE || errno == ENFILE))
			turn_away(net, l->fd);
		else if (s < 0 && errno != EINTR && errno != ECONNABORTED)
			return;
		else if (s >= 0) /* it closes the socket if it fails */
			lws_adopt_descriptor_vhost(l->vhost, how,
						   (lws_sock_file_fd_type){ .sockfd = s },
						   IG_CONN_PROTOCOL, NULL);
	}
}

int ig_accept_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
		       size_t len)
{
	struct ig_net *net = lws_context_user(lws_get_context(wsi));
	struct listener *l;

	/* once handed over, what comes before it is closed is the successor's */
	if (reason == LWS_CALLBACK_RAW_RX_FILE && !net->handed_over &&
	    (l = lws_get_opaque_user_data(wsi)))
		accept_all(net, l);
	if (reason == LWS_CALLBACK_RAW_CLOSE_FILE && (l = lws_get_opaque_user_data(wsi))) {
		l->wsi = NULL;
		lws_set_opaque_user_data(wsi, NULL); /* what else is called takes it for a conn */
	}
	return 0;
}

struct listener *ig_listener_of(struct ig_net *net, struct lws *wsi)
{
	for (size_t i = 0; i < net->n_listeners; i++)
		if (lws_get_vhost(wsi) == net->listeners[i].vhost)
			return &net->listeners[i];
	return NULL;
}

/* ---- the context -------------------------------------------------------------------------- */

static void fill_info(struct lws_context_creation_info *info, struct ig_net *net,
		      const struct lws_protocols *protocols)
{
	const struct ig_config *config = net->config;

	*info = (struct lws_context_creation_info){ 0 };
	info->port = CONTEXT_PORT_NO_LISTEN_SERVER;
	info->protocols = protocols;
	info->user = net;
	info->options =
		LWS_SERVER_OPTION_SKIP_SERVER_CANONICAL_NAME | LWS_SERVER_OPTION_EXPLICIT_VHOSTS;
	/* For every vhost and the context: both are checked. */
	if (has_tls(config))
		info->options |= LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT |
				 LWS_SERVER_OPTION_DISABLE_OS_CA_CERTS;
	info->fd_limit_per_thread = config->server.max_connections + SPARE_CONNECTIONS + 10;
	info->pt_serv_buf_size = 16384;
	info->timeout_secs = HANDSHAKE_TIMEOUT_S;
	/* gid and uid stay 0: no change of user */
}

static int begin(struct ig_net *net, struct listener *l, const struct lws_protocols *protocols)
{
	static const char *const names[] = { "tcp", "also", "unix" };
	struct lws_context_creation_info info;

	fill_info(&info, net, protocols);
	info.vhost_name = names[l->kind];
	if (l->kind != LISTENS_LOCALLY && has_tls(net->config)) {
		info.options |= LWS_SERVER_OPTION_CREATE_VHOST_SSL_CTX; /* then see ig_tls_serve */
		info.alpn = "http/1.1";					/* no HTTP/2 */
	}
	l->vhost = lws_create_vhost(net->context, &info);
	/* libwebsockets closes its own copy */
	int copy = l->vhost ? fcntl(l->fd, F_DUPFD_CLOEXEC, 3) : -1;
	if (copy >= 0)
		l->wsi = lws_adopt_descriptor_vhost(l->vhost, LWS_ADOPT_RAW_FILE_DESC,
						    (lws_sock_file_fd_type){ .filefd = copy },
						    IG_LISTEN_PROTOCOL, NULL);
	if (!l->wsi)
		return -EIO;
	lws_set_opaque_user_data(l->wsi, l);
	return 0;
}

int ig_accept_begin(struct ig_net *net, const struct lws_protocols *protocols, struct ig_error *err)
{
	struct lws_context_creation_info info;

	net->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	fill_info(&info, net, protocols);
	net->context = lws_create_context(&info);
	if (!net->context)
		return ig_fail(err, -EIO, "can't listen: libwebsockets could not start");
	for (size_t i = 0; i < net->n_listeners; i++)
		if (begin(net, &net->listeners[i], protocols)) {
			lws_context_destroy(net->context);
			net->context = NULL;
			return ig_fail(err, -EIO, "can't listen: libwebsockets takes no socket");
		}
	return 0;
}

void ig_accept_end(struct ig_net *net)
{
	for (size_t i = 0; i < net->n_listeners; i++)
		if (net->listeners[i].wsi)
			lws_set_timeout(net->listeners[i].wsi, PENDING_TIMEOUT_CLOSE_SEND,
					LWS_TO_KILL_ASYNC);
}
