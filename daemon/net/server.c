/*
 * server.c: the loop thread: all connections, drain, stop and reload.  Other threads only set a
 * flag or store something under the lock and call lws_cancel_service; the loop does everything
 * else.
 */
#include "daemon/net/net_private.h"

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* At a stop: for the last events of cancelled requests. */
#define GOODBYE_NS 300000000
/* For the handshake of TLS and the first byte; libwebsockets begins again after the handshake. */
#define FIRST_TIMEOUT_S 20
/* Descriptors besides the connections': database, models, log, pipes. */
#define OWN_FDS 64

uint32_t ig_net_n_fds(uint32_t max_connections)
{
	return max_connections + SPARE_CONNECTIONS + OWN_FDS;
}

/* ---- connections ------------------------------------------------------------------ */

static struct conn *conn_create(struct ig_net *net, struct lws *wsi)
{
	if (net->n_conns >= net->config->server.max_connections + SPARE_CONNECTIONS)
		return NULL;
	struct conn *c = calloc(1, sizeof *c);
	if (!c)
		return NULL;
	c->net = net;
	c->wsi = wsi;
	c->over_limit = net->n_conns >= net->config->server.max_connections;
	const struct listener *l = ig_listener_of(net, wsi);
	c->local = l && l->kind == LISTENS_LOCALLY;
	c->port = l ? l->port : 0;
	if (c->local)
		ig_who_describe_peer(lws_get_socket_fd(wsi), c->client, sizeof c->client);
	else
		lws_get_peer_simple(wsi, c->client, sizeof c->client);
	c->next = net->conns;
	if (c->next)
		c->next->prev = c;
	net->conns = c;
	net->n_conns++;
	lws_set_opaque_user_data(wsi, c);
	/* In place of a timeout of its handshake, if there is TLS. */
	lws_set_timeout(wsi, PENDING_TIMEOUT_ESTABLISH_WITH_SERVER, FIRST_TIMEOUT_S);
	ig_metrics_set(net->deps.metrics, IG_GAUGE_CONNECTIONS, net->n_conns);
	ig_metrics_add(net->deps.metrics, IG_COUNTER_CONNECTIONS, 1);
	return c;
}

static void tell_drained(struct ig_net *net)
{
	if ((!net->draining && !net->handed_over) || net->drained || net->n_conns)
		return;
	net->drained = true;
	if (net->deps.event)
		net->deps.event(net->deps.event_ctx, IG_NET_DRAINED);
}

static void conn_destroy(struct conn *c)
{
	struct ig_net *net = c->net;

	ig_http_finish(c);
	ig_ws_finish(c);
	if (c->next)
		c->next->prev = c->prev;
	if (c->prev)
		c->prev->next = c->next;
	else
		net->conns = c->next;
	net->n_conns--;
	ig_metrics_set(net->deps.metrics, IG_GAUGE_CONNECTIONS, net->n_conns);
	ig_strbuf_finish(&c->out);
	free(c->in);
	free(c->ahead);
	free(c->path);
	free(c->query);
	free(c);
	tell_drained(net);
}

/* ---- requests of other threads ---------------------------------------------------------- */

/* Any thread. */
static void wake(void *ctx)
{
	struct ig_net *net = ctx;

	pthread_mutex_lock(&net->lock);
	if (!net->closed)
		lws_cancel_service(net->context);
	pthread_mutex_unlock(&net->lock);
}

static void rescan(void *ctx)
{
	struct ig_net *net = ctx;

	if (net->deps.event)
		net->deps.event(net->deps.event_ctx, IG_NET_RELOAD);
}

static struct net_options read_options(const struct ig_net *net, const struct ig_config *config)
{
	struct net_options o = {
		.slow_client_timeout_ms = config->server.slow_client_timeout_ms,
		.api = {
			.client_buffer = net->config->server.client_buffer,
			.keepalive_interval_ms = config->server.keepalive_interval_ms,
			.retry_after_s = config->scheduler.retry_after_s,
			.model_wait_ms = config->server.model_wait_ms,
			.max_waiting = config->scheduler.max_queue,
			.limits = { config->limits.max_concurrent,
				    config->limits.requests_per_minute,
				    config->limits.tokens_per_minute },
			.max_stored = config->responses.max_stored,
			.max_stored_bytes = config->responses.max_stored_bytes,
			.refuse_tools = !strcmp(config->tools.fallback, "refuse"),
			.max_stored_per_lane = config->responses.max_stored_per_lane,
			.refuse_unknown = !strcmp(config->server.unknown_parameters, "refuse"),
			.rules = config->kvcache.normalize,
		},
	};

	snprintf(o.api.model_id_prefix, sizeof o.api.model_id_prefix, "%s",
		 config->server.model_id_prefix);
	if (config->models_folder && strlen(config->models_folder) < sizeof o.api.models_folder)
		snprintf(o.api.models_folder, sizeof o.api.models_folder, "%s",
			 config->models_folder);
	return o;
}

static void take_keys(struct ig_net *net, struct ig_keys *keys)
{
	ig_keys_destroy(net->keys);
	net->keys = keys;
	/* A lost file does not remove the requirement. */
	net->keys_required |= keys != NULL;
	ig_who_revoke(net);
}

static void take_reloaded(struct ig_net *net)
{
	pthread_mutex_lock(&net->lock);
	uint64_t n_handed = net->n_handed;
	if (net->n_taken == n_handed) {
		pthread_mutex_unlock(&net->lock);
		return;
	}
	bool reloaded = net->reloaded, new_keys = net->new_keys;
	struct ig_certificate *certificate = net->next_certificate;
	struct ig_keys *keys = net->next_keys;
	if (reloaded)
		net->options = net->next;
	net->reloaded = net->new_keys = false;
	net->next_keys = NULL;
	net->next_certificate = NULL;
	pthread_mutex_unlock(&net->lock);
	if (new_keys)
		take_keys(net, keys);
	if (certificate) {
		ig_tls_free(net->certificate);
		net->certificate = certificate;
	}
	if (reloaded)
		ig_api_set_options(net->api, &net->options.api);
	ig_api_reloaded(net->api);
	pthread_mutex_lock(&net->lock);
	net->n_taken = n_handed;
	pthread_cond_broadcast(&net->taken);
	pthread_mutex_unlock(&net->lock);
}

/* Under the lock, by a thread that left something for the loop: wait until it is in use. */
static void hand_over(struct ig_net *net)
{
	uint64_t number = ++net->n_handed;

	if (!net->closed)
		lws_cancel_service(net->context);
	while (!net->closed && net->n_taken < number)
		pthread_cond_wait(&net->taken, &net->lock);
}

static void begin_drain(struct ig_net *net)
{
	net->draining = true;
	ig_api_drain(net->api);
	for (struct conn *c = net->conns; c; c = c->next)
		if (c->kind == CONN_HTTP && !c->exchange && !c->reading_body && !c->ended)
			lws_set_timeout(c->wsi, PENDING_TIMEOUT_CLOSE_SEND, LWS_TO_KILL_ASYNC);
	tell_drained(net);
}

static void begin_hand_over(struct ig_net *net)
{
	net->handed_over = true;
	ig_accept_end(net);
	tell_drained(net);
}

static void woken(struct ig_net *net)
{
	atomic_fetch_add(&net->n_woken, 1);
	take_reloaded(net);
	if (atomic_load(&net->want_hand_over) && !net->handed_over)
		begin_hand_over(net);
	if (atomic_load(&net->want_drain) && !net->draining)
		begin_drain(net);
	ig_api_poll(net->api);
}

/* ---- libwebsockets ------------------------------------------------------------------------ */

static int callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
		    size_t len)
{
	struct ig_net *net = lws_context_user(lws_get_context(wsi));
	struct conn *c;

	switch (reason) {
	case LWS_CALLBACK_EVENT_WAIT_CANCELLED:
		if (net->api)
			woken(net);
		return 0;
	case LWS_CALLBACK_OPENSSL_LOAD_EXTRA_SERVER_VERIFY_CERTS:
		ig_tls_serve(net, user); /* the vhost's SSL_CTX, before it listens */
		return 0;
	case LWS_CALLBACK_RAW_ADOPT: return conn_create(net, wsi) ? 0 : -1;
	case LWS_CALLBACK_WSI_DESTROY:
		c = conn_of(wsi);
		lws_set_opaque_user_data(wsi, NULL);
		if (c)
			conn_destroy(c);
		return 0;
	case LWS_CALLBACK_RAW_RX: c = conn_of(wsi); return c ? ig_conn_receive(c, in, len) : -1;
	case LWS_CALLBACK_RAW_WRITEABLE: c = conn_of(wsi); return c ? ig_conn_writable(c) : -1;
	case LWS_CALLBACK_TIMER: c = conn_of(wsi); return c ? ig_ws_timer(c) : -1;
	case LWS_CALLBACK_RAW_CLOSE:
		c = conn_of(wsi);
		if (c) {
			ig_http_finish(c);
			ig_ws_finish(c);
		}
		return 0;
	default: return 0;
	}
}

/* Sockets, with or without TLS, of which libwebsockets knows no protocol: it would let pass what a
 * server must refuse, answer with pages of its own, and can't let a request wait for another's reply.
 * With a size of 0 it would omit callbacks about closing. */
static const struct lws_protocols protocols[] = {
	{ .name = IG_CONN_PROTOCOL,
	  .callback = callback,
	  .per_session_data_size = sizeof(void *),
	  .rx_buffer_size = 16384 },
	{ .name = IG_LISTEN_PROTOCOL, .callback = ig_accept_callback },
	{ 0 },
};

/* libwebsockets' own lines are for debugging: clients can provoke many of them. */
static void emit(int level, const char *line)
{
	size_t n = strlen(line);

	while (n && (line[n - 1] == '\n' || line[n - 1] == '\r'))
		n--;
	ig_log_debug("libwebsockets: %.*s", (int)n, line);
}

/* ---- the thread --------------------------------------------------------------------------- */

static void time_is_up(lws_sorted_usec_list_t *sul) { /* only makes lws_service return */ }

/* Cancel what still runs; wait shortly for its last events and for closing handshakes. */
static void say_goodbye(struct ig_net *net)
{
	int64_t end = ig_now_ns() + GOODBYE_NS;

	for (struct conn *c = net->conns; c; c = c->next) {
		ig_exchange_cancel(c->exchange, "shutdown");
		ig_session_cancel(c->session, "shutdown");
	}
	net->drained = true; /* no event any more */
	if (!net->draining)
		begin_drain(net);
	lws_sul_schedule(net->context, 0, &net->goodbye, time_is_up, GOODBYE_NS / 1000);
	while (net->n_conns && ig_now_ns() < end)
		if (lws_service(net->context, 0) < 0)
			break;
}

static void *loop(void *ctx)
{
	struct ig_net *net = ctx;
	bool failed = false;

	ig_name_thread("ingot-loop");
	while (!atomic_load(&net->want_stop) && !failed)
		failed = lws_service(net->context, 0) < 0;
	if (!failed)
		say_goodbye(net);
	/* Requests end before their sockets; nothing wakes the context from here on. */
	for (struct conn *c = net->conns; c; c = c->next) {
		ig_http_finish(c);
		ig_ws_finish(c);
	}
	ig_api_stop(net->api);
	pthread_mutex_lock(&net->lock);
	net->closed = true;
	pthread_cond_broadcast(&net->taken);
	pthread_mutex_unlock(&net->lock);
	lws_context_destroy(net->context);
	if (failed && net->deps.event)
		net->deps.event(net->deps.event_ctx, IG_NET_FAILED);
	return NULL;
}

/* ---- life --------------------------------------------------------------------------------- */

#define KEYS_COMMAND_MS 10000

static bool has_keys_command(const struct ig_config *config)
{
	return config->server.keys_command && config->server.keys_command[0];
}

static int load_keys(const struct ig_config *config, struct ig_keys **out, struct ig_error *err)
{
	const char *path = config->server.keys_file;

	*out = NULL;
	if (has_keys_command(config))
		return ig_keys_run(config->server.keys_command, KEYS_COMMAND_MS, out, err);
	return path && path[0] ? ig_keys_load(path, out, err) : 0;
}

static int load_certificate(const struct ig_config *config, struct ig_certificate **out,
			    struct ig_error *err)
{
	const char *cert = config->server.tls_cert;

	*out = NULL;
	return cert && cert[0] ? ig_tls_load(cert, config->server.tls_key, out, err) : 0;
}

int ig_net_probe(const struct ig_config *config, struct ig_error *err)
{
	struct ig_certificate *certificate = NULL;
	struct ig_keys *keys = NULL;
	int rc = load_keys(config, &keys, err);

	if (!rc)
		rc = load_certificate(config, &certificate, err);
	if (!rc)
		rc = ig_listen_open(NULL, config, keys, err);
	ig_tls_free(certificate);
	ig_keys_destroy(keys);
	return rc;
}

static void reload_keys(void *ctx) { ig_net_reload_files(ctx); }

int ig_net_create(const struct ig_net_deps *deps, struct ig_net **out, struct ig_error *err)
{
	struct ig_net *net = calloc(1, sizeof *net);
	int rc;

	*out = NULL;
	if (!net)
		return ig_fail(err, -ENOMEM, "out of memory");
	net->deps = *deps;
	net->spare_fd = -1;
	net->config = deps->config;
	net->options = read_options(net, net->config);
	pthread_mutex_init(&net->lock, NULL);
	pthread_mutex_init(&net->reloading, NULL);
	pthread_cond_init(&net->taken, NULL);
	struct ig_api_deps api = {
		.engine = deps->engine,
		.metrics = deps->metrics,
		.wake = wake,
		.rescan = rescan,
		.wake_ctx = net,
		.want_write = ig_net_want_write,
		.reload_keys = reload_keys,
		.responses = deps->responses,
		.ledger_path = net->config->ledger.enabled ? net->config->ledger.path : NULL,
		.keys_path = has_keys_command(net->config) ? "" : net->config->server.keys_file,
		.options = net->options.api,
	};
	net->api = ig_api_create(&api);
	if (!net->api) {
		rc = ig_fail(err, -ENOMEM, "out of memory");
		goto fail;
	}
	rc = load_keys(net->config, &net->keys, err);
	if (rc < 0)
		goto fail;
	net->keys_required = net->had_keys = net->keys != NULL;
	rc = load_certificate(net->config, &net->certificate, err);
	if (rc < 0)
		goto fail;
	lws_set_log_level(LLL_ERR | LLL_WARN, emit);
	rc = ig_listen_open(net, net->config, net->keys, err);
	if (!rc)
		rc = ig_accept_begin(net, protocols, err);
	if (rc < 0)
		goto fail;
	rc = -pthread_create(&net->thread, NULL, loop, net);
	if (rc < 0) {
		ig_fail(err, rc, "can't start the network thread: %s", strerror(-rc));
		lws_context_destroy(net->context);
		goto fail;
	}
	net->started = true;
	*out = net;
	return 0;
fail:
	net->closed = true;
	ig_net_destroy(net);
	return rc;
}

void ig_net_url(const struct ig_net *net, char *out, size_t cap)
{
	const char *cert = net->config->server.tls_cert;

	if (net->host[0])
		snprintf(out, cap, "%s://%s:%d", cert && cert[0] ? "https" : "http", net->host,
			 net->port);
	else
		snprintf(out, cap, "unix:%s", net->config->server.unix_socket);
}

void ig_net_reload(struct ig_net *net, const struct ig_config *config)
{
	pthread_mutex_lock(&net->lock);
	net->next = read_options(net, config);
	net->reloaded = true;
	hand_over(net);
	pthread_mutex_unlock(&net->lock);
}

static void log_keys(const struct ig_net *net, bool there, size_t n_keys, bool had_keys)
{
	const char *path = net->config->server.keys_file;

	if (there && has_keys_command(net->config))
		ig_log_info("reload: %zu keys from %s", n_keys, net->config->server.keys_command);
	else if (there)
		ig_log_info("reload: %zu keys in %s", n_keys, path);
	else if (had_keys)
		ig_log_error(
			"reload: %s is missing: no key is accepted until it is back, or until a restart",
			path);
}

/* The paths are those of the start. */
void ig_net_reload_files(struct ig_net *net)
{
	struct ig_certificate *certificate;
	struct ig_keys *keys;
	struct ig_error err = { 0 };

	/* The file that was read last must be the one that counts. */
	pthread_mutex_lock(&net->reloading);
	bool good_keys = !load_keys(net->config, &keys, &err);

	if (!good_keys)
		ig_log_error("reload: %s; the old keys stay", err.text);
	if (load_certificate(net->config, &certificate, &err) < 0)
		ig_log_error("reload: %s; the old certificate stays", err.text);
	bool there = good_keys && keys;
	size_t n_keys = there ? ig_keys_count(keys) : 0;
	pthread_mutex_lock(&net->lock);
	bool had_keys = net->had_keys;
	/* What the loop has not taken yet is out of date. */
	if (good_keys) {
		net->had_keys |= there;
		ig_keys_destroy(net->next_keys);
		net->next_keys = keys;
		net->new_keys = true;
	}
	if (certificate) {
		ig_tls_free(net->next_certificate);
		net->next_certificate = certificate;
	}
	hand_over(net);
	pthread_mutex_unlock(&net->lock);
	if (good_keys)
		log_keys(net, there, n_keys, had_keys);
	pthread_mutex_unlock(&net->reloading);
}

size_t ig_net_sockets(const struct ig_net *net, int *fds)
{
	for (size_t i = 0; i < net->n_listeners; i++)
		fds[i] = net->listeners[i].fd;
	return net->n_listeners;
}

void ig_net_hand_over(struct ig_net *net)
{
	atomic_store(&net->want_hand_over, true);
	wake(net);
}

bool ig_net_is_alive(struct ig_net *net)
{
	unsigned n = atomic_load(&net->n_woken);
	bool alive = n != net->seen_woken;

	net->seen_woken = n;
	wake(net);
	return alive;
}

void ig_net_drain(struct ig_net *net)
{
	atomic_store(&net->want_drain, true);
	wake(net);
}

void ig_net_stop(struct ig_net *net)
{
	if (!net->started)
		return;
	atomic_store(&net->want_stop, true);
	wake(net);
	pthread_join(net->thread, NULL);
	net->started = false;
}

void ig_net_destroy(struct ig_net *net)
{
	if (!net)
		return;
	ig_net_stop(net);
	ig_listen_close(net);
	if (net->spare_fd >= 0)
		close(net->spare_fd);
	ig_api_destroy(net->api);
	ig_keys_destroy(net->keys);
	ig_keys_destroy(net->next_keys);
	ig_tls_free(net->certificate);
	ig_tls_free(net->next_certificate);
	pthread_cond_destroy(&net->taken);
	pthread_mutex_destroy(&net->lock);
	pthread_mutex_destroy(&net->reloading);
	free(net);
}
