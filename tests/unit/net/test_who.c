/*
 * test_who.c: a server in this process over the fake engine, with keys and a unix
 * socket: who gets in, also while the keys change under requests, and what cannot be
 * listened on.
 */
#include "daemon/net/net.h"
#include "store/keys.h"
#include "tests/unit/protocol/fake_engine.h"

#include "base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#ifndef MSG_NOSIGNAL /* macOS: SIGPIPE is ignored below */
#define MSG_NOSIGNAL 0
#endif

struct world {
	struct ig_engine *engine;
	struct ig_net *net;
	struct ig_config config;
	char dir[64], keys[100], sock[100];
	char user[IG_KEY_TOKEN_CAP], admin[IG_KEY_TOKEN_CAP], monitor[IG_KEY_TOKEN_CAP];
};

static void write_key(struct world *w, const char *id, enum ig_role role, char *token)
{
	struct ig_key key = { .role = role };
	struct ig_keys *keys = NULL;

	snprintf(key.id, sizeof key.id, "%s", id);
	assert_int_equal(ig_keys_load(w->keys, &keys, NULL), 0);
	assert_int_equal(ig_key_generate(keys, &key, token, NULL), 0);
	assert_int_equal(ig_keys_write(w->keys, keys, id, &key, NULL), 0);
	ig_keys_destroy(keys);
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof *w);
	struct ig_error err = { 0 };

	snprintf(w->dir, sizeof w->dir, "/tmp/ingot-who-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	snprintf(w->keys, sizeof w->keys, "%s/keys", w->dir);
	snprintf(w->sock, sizeof w->sock, "%s/sock", w->dir);
	write_key(w, "user", IG_ROLE_USER, w->user);
	write_key(w, "admin", IG_ROLE_ADMINISTRATOR, w->admin);
	write_key(w, "monitor", IG_ROLE_MONITOR, w->monitor);
	w->engine = fake_engine_create();
	w->config.server.host = "127.0.0.1";
	w->config.server.unix_socket = w->sock;
	w->config.server.unix_socket_mode = 0600;
	w->config.server.keys_file = w->keys;
	w->config.server.max_connections = 40;
	w->config.server.max_body = 100000;
	w->config.server.max_header = 8192;
	w->config.server.client_buffer = 16384;
	w->config.server.slow_client_timeout_ms = 500;
	w->config.server.keepalive_interval_ms = 100;
	w->config.server.unknown_parameters = "note";
	w->config.server.model_id_prefix = "";
	w->config.tools.fallback = "hermes";
	w->config.scheduler.retry_after_s = 2;
	struct ig_net_deps deps = { .engine = w->engine, .config = &w->config };
	if (ig_net_create(&deps, &w->net, &err) < 0)
		fail_msg("%s", err.text);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	if (w->net)
		ig_net_stop(w->net);
	ig_engine_destroy(w->engine);
	ig_net_destroy(w->net);
	int left = access(w->sock, F_OK);
	unlink(w->keys);
	rmdir(w->dir);
	free(w);
	return left ? 0 : -1; /* its socket is gone with it */
}

static uint16_t port_of(const struct ig_net *net)
{
	char url[160];

	ig_net_url(net, url, sizeof url);
	return (uint16_t)atoi(strrchr(url, ':') + 1);
}

static int dial(struct world *w, bool local)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_un u = { .sun_family = AF_UNIX };
	int fd = socket(local ? AF_UNIX : AF_INET, SOCK_STREAM, 0);

	assert_true(fd >= 0);
	a.sin_port = htons(port_of(w->net));
	snprintf(u.sun_path, sizeof u.sun_path, "%s", w->sock);
	assert_int_equal(local ? connect(fd, (struct sockaddr *)&u, sizeof u) :
				 connect(fd, (struct sockaddr *)&a, sizeof a),
			 0);
	return fd;
}

/* The status of a GET with a key (NULL: none), on a connection of its own. */
static int get(struct world *w, bool local, const char *path, const char *key)
{
	char text[512], out[4096];
	size_t n = 0;
	int fd = dial(w, local);

	int len = snprintf(text, sizeof text,
			   "GET %s HTTP/1.1\r\nHost: localhost\r\n%s%s%s"
			   "Connection: close\r\n\r\n",
			   path, key ? "Authorization: Bearer " : "", key ? key : "",
			   key ? "\r\n" : "");
	assert_int_equal(send(fd, text, (size_t)len, MSG_NOSIGNAL), len);
	out[0] = 0;
	while (n + 1 < sizeof out) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		if (poll(&p, 1, 5000) <= 0)
			fail_msg("no answer for 5 s");
		ssize_t r = recv(fd, out + n, sizeof out - 1 - n, 0);
		if (r <= 0)
			break;
		n += (size_t)r;
		out[n] = 0;
	}
	close(fd);
	if (strncmp(out, "HTTP/1.1 ", 9))
		fail_msg("%s: %s", path, out);
	int status = atoi(out + 9);
	/* only a request without a key learns how to send one */
	assert_int_equal(strstr(out, "www-authenticate: Bearer realm=\"ingot\"\r\n") != NULL,
			 status == 401);
	return status;
}

static void test_roles(void **state)
{
	struct world *w = *state;

	for (int local = 0; local < 2; local++) {
		assert_int_equal(get(w, local, "/healthz", NULL), 200);
		assert_int_equal(get(w, local, "/v1/models", NULL), 401);
		assert_int_equal(get(w, local, "/v1/models", "ingot-0"), 401);
		assert_int_equal(get(w, local, "/v1/models", w->user), 200);
		assert_int_equal(get(w, local, "/v1/ingot/status", w->user), 403);
		assert_int_equal(get(w, local, "/v1/ingot/status", w->admin), 200);
		assert_int_equal(get(w, local, "/metrics", NULL), 401);
		assert_int_equal(get(w, local, "/nothing", w->user), 403);
		assert_int_equal(get(w, local, "/nothing", w->admin), 404);
		assert_int_equal(get(w, local, "/healthz", w->monitor), 200);
		assert_int_equal(get(w, local, "/v1/models", w->monitor), 403);
		assert_int_equal(get(w, local, "/v1/ingot/status", w->monitor), 403);
		assert_int_equal(get(w, local, "/", w->monitor), 403);
	}
}

static atomic_bool over;

static void *reload_often(void *arg)
{
	struct world *w = arg;

	while (!atomic_load(&over)) {
		ig_net_reload_files(w->net);
		usleep(500);
	}
	return NULL;
}

/* Sets of keys come and go while requests are judged by them: nobody is judged by half
 * of one. */
static void test_reloads(void **state)
{
	struct world *w = *state;
	char fresh[IG_KEY_TOKEN_CAP];
	pthread_t thread;

	atomic_store(&over, false);
	assert_int_equal(pthread_create(&thread, NULL, reload_often, w), 0);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(get(w, false, "/v1/models", w->user), 200);
		assert_int_equal(get(w, true, "/v1/models", "ingot-0"), 401);
		write_key(w, "other", IG_ROLE_USER, fresh);
	}
	atomic_store(&over, true);
	pthread_join(thread, NULL);
	write_key(w, "user", IG_ROLE_USER, fresh); /* in place of the old one */
	ig_net_reload_files(w->net);
	assert_int_equal(get(w, false, "/v1/models", fresh), 200);
	assert_int_equal(get(w, false, "/v1/models", w->user), 401);
	/* gone: nobody gets in, for as long as it lives */
	unlink(w->keys);
	ig_net_reload_files(w->net);
	assert_int_equal(get(w, false, "/v1/models", NULL), 401);
	assert_int_equal(get(w, false, "/v1/models", fresh), 401);
	assert_int_equal(get(w, false, "/v1/models", w->admin), 401);
	assert_int_equal(get(w, true, "/healthz", NULL), 200);
}

static void test_probe(void **state)
{
	struct world *w = *state;
	struct ig_config c = w->config;
	struct ig_error err = { 0 };

	c.server.unix_socket = NULL;
	c.server.port = 0;
	c.server.host = "0.0.0.0";
	assert_int_equal(ig_net_probe(&c, &err), 0); /* with keys */
	c.server.keys_file = "/nonexistent/keys";
	assert_int_equal(ig_net_probe(&c, &err), -EACCES);
	assert_non_null(strstr(err.text, "refusing to listen on 0.0.0.0:0"));
	c.server.allow_anonymous = true;
	assert_int_equal(ig_net_probe(&c, &err), 0);
	c.server.host = "127.0.0.1";
	c.server.unix_socket = w->sock;
	assert_int_equal(ig_net_probe(&c, &err), -EADDRINUSE);
	assert_non_null(strstr(err.text, w->sock));
	c.server.unix_socket = NULL;
	c.server.tls_cert = c.server.tls_key = "/nonexistent/pem";
	assert_int_equal(ig_net_probe(&c, &err), -EINVAL);
	assert_non_null(strstr(err.text, "/nonexistent/pem: cannot be read: No such file"));
	assert_int_equal(chmod(w->keys, 0640), 0);
	c.server.keys_file = w->keys;
	assert_int_equal(ig_net_probe(&c, &err), -EPERM);
	/* and the one that runs does not mind */
	assert_int_equal(get(w, true, "/v1/models", w->user), 200);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_roles, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reloads, setup, teardown),
		cmocka_unit_test_setup_teardown(test_probe, setup, teardown),
	};

	signal(SIGPIPE, SIG_IGN);
	ig_log_set_level(IG_LOG_WARN); /* each reload would be a line */
	return cmocka_run_group_tests_name("who", tests, NULL, NULL);
}
