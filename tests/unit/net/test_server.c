/*
 * test_server.c: a server in this process over the fake engine, and raw sockets:
 * requests that are cut, smuggled, too large, from elsewhere; WebSocket frames as no
 * polite client would send them; clients that do not read or go away.
 */
#include "daemon/net/net.h"
#include "tests/unit/protocol/fake_engine.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
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
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#ifndef MSG_NOSIGNAL /* macOS: SIGPIPE is ignored below */
#define MSG_NOSIGNAL 0
#endif

struct world {
	struct ig_engine *engine;
	struct ig_net *net;
	struct ig_config config;
	atomic_int n_drained;
	atomic_bool holds_loop; /* the event of the drain does not return */
};

static void on_event(void *ctx, enum ig_net_event ev)
{
	struct world *w = ctx;

	if (ev == IG_NET_DRAINED)
		atomic_fetch_add(&w->n_drained, 1);
	while (atomic_load(&w->holds_loop))
		usleep(100);
}

static int setup(void **state)
{
	static char *origins[] = { "http://page.test", NULL }, *hosts[] = { "box.lan", NULL };
	struct world *w = calloc(1, sizeof *w);
	struct ig_error err = { 0 };

	w->engine = fake_engine_create();
	w->config.server.host = "127.0.0.1";
	w->config.server.max_connections = 40;
	w->config.server.max_body = 100000;
	w->config.server.max_header = 8192;
	w->config.server.client_buffer = 16384;
	w->config.server.slow_client_timeout_ms = 500;
	w->config.server.keepalive_interval_ms = 100;
	w->config.server.unknown_parameters = "note";
	w->config.server.model_id_prefix = "";
	w->config.tools.fallback = "hermes";
	w->config.server.allowed_origins = origins;
	w->config.server.allowed_hosts = hosts;
	w->config.scheduler.retry_after_s = 2;
	struct ig_net_deps deps = {
		.engine = w->engine, .config = &w->config, .event = on_event, .event_ctx = w
	};
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
	free(w);
	return 0;
}

/* ---- sockets ---------------------------------------------------------------------- */

static uint16_t port_of(const struct ig_net *net)
{
	char url[160];

	ig_net_url(net, url, sizeof url);
	return (uint16_t)atoi(strrchr(url, ':') + 1);
}

static int dial(struct world *w)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons(port_of(w->net)),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
	return fd;
}

static void put(int fd, const void *data, size_t len)
{
	const char *p = data;

	while (len) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);
		if (n <= 0)
			return; /* the server may have closed: the test reads its reply */
		p += n;
		len -= (size_t)n;
	}
}

static void put_text(int fd, const char *text) { put(fd, text, strlen(text)); }

/* How long to wait for what must happen: only a failure takes it. */
#define PATIENCE_MS 20000

#define wait_for(cond)                                                                             \
	do {                                                                                       \
		int64_t until_ = ig_now_ns() + (int64_t)PATIENCE_MS * 1000000;                     \
		while (!(cond)) {                                                                  \
			if (ig_now_ns() > until_)                                                  \
				fail_msg("waited in vain for %s", #cond);                          \
			usleep(1000);                                                              \
		}                                                                                  \
	} while (0)

/* Read until until is there (NULL: the end).  The number of bytes. */
static size_t get(int fd, char *out, size_t cap, const char *until)
{
	size_t n = 0;

	out[0] = 0;
	while (n + 1 < cap && !(until && strstr(out, until))) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		if (poll(&p, 1, PATIENCE_MS) <= 0)
			fail_msg("no answer for 20 s; so far: %s", out);
		ssize_t r = recv(fd, out + n, cap - 1 - n, 0);
		if (r <= 0)
			break;
		n += (size_t)r;
		out[n] = 0;
	}
	return n;
}

/* Whether the peer closes in time. */
static bool closes(int fd)
{
	int64_t end = ig_now_ns() + (int64_t)PATIENCE_MS * 1000000;
	char b[65536];

	while (ig_now_ns() < end) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		if (poll(&p, 1, 20) > 0 && recv(fd, b, sizeof b, 0) <= 0)
			return true;
	}
	return false;
}

#define CHAT "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}"
#define CHAT_STREAM "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"stream\":true}"

static void script(struct world *w, const char *const *pieces, int repeat, bool hold)
{
	fake_engine_script(w->engine, &(struct fake_script){ .pieces = pieces,
							     .repeat = repeat,
							     .hold = hold,
							     .finish = IG_FINISH_STOP });
}

static const char *const hello[] = { "hello", NULL };
static const char *const block[] = {
	"0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz", NULL
};

static void post_to(int fd, const char *body)
{
	char head[300];

	snprintf(head, sizeof head,
		 "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
		 "Content-Length: %zu\r\n\r\n",
		 strlen(body));
	put_text(fd, head);
	put_text(fd, body);
}

/* ---- HTTP ------------------------------------------------------------------------- */

static void test_heads(void **state)
{
	static const struct {
		const char *request, *status, *text;
		bool closed;
	} rows[] = {
		{ "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "200 OK",
		  "{\"status\":\"ok\"}", false },
		{ "GET /healthz HTTP/1.1\r\nHost: box.lan:99\r\n\r\n", "200 OK",
		  "x-request-id: req_", false },
		{ "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Request-Id:  a-1\r\n\r\n",
		  "200 OK", "x-request-id: a-1\r\n", false },
		{ "GET /healthz HTTP/1.1\r\nHost: localhost\r\nx-request-id: a b\r\n\r\n", "200 OK",
		  "x-request-id: req_", false },
		{ "GET /healthz HTTP/1.1\r\nHost: evil.com\r\nx-request-id: a\r\n\r\n",
		  "403 Forbidden", "x-request-id: a\r\n", true },
		{ "GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n", "200 OK", "connection: close",
		  true },
		{ "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "200 OK",
		  "connection: close", true },
		{ "HEAD /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
		  "200 OK", "content-length: 15", true },
		{ "GET /healthz HTTP/1.1\r\n\r\n", "400 Bad Request", "invalid_host", true },
		/* health checks of proxies */
		{ "GET /healthz HTTP/1.0\r\n\r\n", "200 OK", "connection: close", true },
		{ "GET /healthz HTTP/1.0\r\nHost:\r\n\r\n", "400 Bad Request", "invalid_host",
		  true },
		{ "GET /healthz HTTP/1.0\r\nHost: evil.com\r\n\r\n", "403 Forbidden",
		  "host_not_allowed", true },
		{ "GET /healthz HTTP/1.0\r\nOrigin: http://\r\n\r\n", "403 Forbidden",
		  "origin_not_allowed", true },
		{ "GET /healthz HTTP/1.1\r\nHost: evil.com\r\n\r\n", "403 Forbidden",
		  "host_not_allowed", true },
		{ "GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.com\r\n\r\n", "400",
		  "invalid_host", true },
		{ "GET /healthz HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost:1\r\n\r\n",
		  "403", "origin_not_allowed", true },
		{ "GET /healthz HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\r\n",
		  "200 OK", "access-control-allow-origin: http://localhost\r\n", false },
		{ "GET /healthz HTTP/1.1\r\nHost: localhost\r\nOrigin: http://page.test\r\n\r\n",
		  "200 OK", "access-control-allow-origin: http://page.test", false },
		{ "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: http://page.test\r\n\r\n",
		  "204 No Content", "access-control-allow-headers: authorization, content-type",
		  true },
		{ "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", "400",
		  "unexpected_body", true },
		{ "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n\r\n",
		  "411 Length Required", "length_required", true },
		{ "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
		  "5\r\nhello\r\n0\r\n\r\n",
		  "400", "invalid_json", false },
		{ "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
		  "5\nhello\r\n0\r\n\r\n",
		  "400", "invalid_chunk", true },
		{ "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked"
		  "\r\n\r\n0\r\n\r\n",
		  "501", "unsupported_transfer_encoding", true },
		{ "POST /v1/chat/completions HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
		  "0\r\n\r\n",
		  "400", "unexpected_body", true },
		{ "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n"
		  "Transfer-Encoding : chunked\r\n\r\n{}",
		  "400", "invalid_header", true },
		{ "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n"
		  "\tTransfer-Encoding: chunked\r\n\r\n{}",
		  "400", "invalid_header", true },
		{ "GET /healthz HTTP/2.7\r\nHost: localhost\r\n\r\n", "505",
		  "http_version_not_supported", true },
		{ "GET /healthz\r\nHost: localhost\r\n\r\n", "400", "invalid_request_line", true },
		{ "GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
		  "Sec-WebSocket-Version: 8\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
		  "426", "sec-websocket-version: 13", true },
		{ "GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: close\r\n"
		  "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
		  "400", "invalid_handshake", true },
		{ "GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
		  "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAA\r\n\r\n",
		  "400", "invalid_handshake", true },

		/* both: the classic of smuggling, with a second request inside */
		{ "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
		  "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
		  "400", "invalid_content_length", true },
		{ "GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
		  "400", "unexpected_body", true },
		{ "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n"
		  "Content-Length: 3\r\n\r\n{}",
		  "400", "invalid_content_length", true },
		{ "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -2\r\n\r\n{}",
		  "400", "invalid_content_length", true },
		{ "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2x\r\n\r\n{}",
		  "400", "invalid_content_length", true },
		{ "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100001\r\n\r\n{}",
		  "413 Content Too Large", "body_too_large", true },
		{ "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
		  "18446744073709551617\r\n\r\n{}",
		  "400", "invalid_content_length", true },
		{ "POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", "404",
		  "not_found", true },
		{ "POST /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}",
		  "405", "allow: GET", true },
		{ "PUT /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", "405",
		  "allow: GET", false },
		{ "GET /v1/responses HTTP/1.1\r\nHost: localhost\r\n\r\n", "426 Upgrade Required",
		  "upgrade: websocket", false },
		{ "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
		  "400", "invalid_json", false },
		{ "GET /v1/responses HTTP/1.1\r\nHost: evil.com\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
		  "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
		  "403", "host_not_allowed", true },
		{ "GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nOrigin: http://a\r\nUpgrade: websocket\r\n"
		  "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="
		  "\r\n\r\n",
		  "403", "origin_not_allowed", true },
		{ "GET /other HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
		  "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
		  "404", "not_found", true },
		{ "GET /healthz HTTP/1.1\r\nHost: localhost\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
		  "400", "unsupported_upgrade", true },
	};
	struct world *w = *state;
	char out[8192];

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		int fd = dial(w);
		put_text(fd, rows[i].request);
		get(fd, out, sizeof out, rows[i].closed ? NULL : "}");
		if (strncmp(out, "HTTP/1.", 7) || strlen(out) < 9 ||
		    strncmp(out + 9, rows[i].status, strlen(rows[i].status)) ||
		    !strstr(out, rows[i].text))
			fail_msg("%s\n-> %s", rows[i].request, out);
		if (strstr(out + 1, "HTTP/1."))
			fail_msg("%s\n-> two replies: %s", rows[i].request, out);
		if (!strncmp(rows[i].request, "HEAD", 4) && strstr(out, "status"))
			fail_msg("a body for HEAD");
		if (rows[i].closed && !closes(fd))
			fail_msg("%s\nstays open", rows[i].request);
		close(fd);
	}
}

static void test_garbage(void **state)
{
	static const char *const rows[] = {
		"\r\n\r\n\r\n",
		"NONSENSE\r\n\r\n",
		"GET\r\n\r\n",
		"CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET http://evil.com/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"GET /%ff HTTP/1.1\r\nHost: localhost\r\n\r\n",
	};
	struct world *w = *state;
	char out[8192];

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		int fd = dial(w);
		put_text(fd, rows[i]);
		shutdown(fd, SHUT_WR);
		get(fd, out, sizeof out, NULL);
		if (strstr(out, "HTTP/1.1 2"))
			fail_msg("%s\n-> %s", rows[i], out);
		close(fd);
	}
	/* a head without an end is cut off */
	int fd = dial(w);
	char *big = malloc(100000);
	memset(big, 'a', 100000);
	put_text(fd, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: ");
	put(fd, big, 100000);
	free(big);
	get(fd, out, sizeof out, NULL);
	assert_non_null(strstr(out, "HTTP/1.1 431 "));
	assert_non_null(strstr(out, "header_too_large"));
	close(fd);
	/* and the server still replies */
	fd = dial(w);
	put_text(fd, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
	get(fd, out, sizeof out, "}");
	assert_non_null(strstr(out, "200 OK"));
	close(fd);
}

static void test_keep_alive(void **state)
{
	struct world *w = *state;
	char out[8192];
	int fd = dial(w);

	script(w, hello, 1, false);
	for (int i = 0; i < 5; i++) {
		post_to(fd, CHAT);
		get(fd, out, sizeof out,
		    "\"completion_tokens_details\":{\"reasoning_tokens\":0}}}");
		assert_non_null(strstr(out, "\"content\":\"hello\""));
		assert_non_null(strstr(out, "connection: keep-alive"));
		put_text(fd, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
		get(fd, out, sizeof out, "}]}"); /* of the list for Codex */
		assert_non_null(strstr(out, "\"last_id\":\"spare\""));
		assert_non_null(strstr(out, "\"id\":\"fake\""));
	}
	/* several at once are answered one after the other */
	put_text(fd, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
		     "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
		     "Content-Length: 44\r\n\r\n" CHAT "\r\n"
		     "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
	get(fd, out, sizeof out, NULL);
	const char *first = strstr(out, "content-length: 15\r\n\r\n{\"status\":\"ok\"}");
	assert_non_null(first);
	const char *second = strstr(first, "\"content\":\"hello\"");
	assert_non_null(second);
	assert_non_null(strstr(second, "\"last_id\":\"spare\""));
	close(fd);
	/* a byte at a time */
	fd = dial(w);
	const char *text =
		"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 45\r\n\r\n" CHAT
		" ";
	for (const char *p = text; *p; p++) {
		put(fd, p, 1);
		usleep(300);
	}
	get(fd, out, sizeof out, "hello");
	close(fd);
	/* with Expect, as curl does for larger bodies */
	fd = dial(w);
	put_text(fd,
		 "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 45\r\n"
		 "Expect: 100-continue\r\n\r\n");
	get(fd, out, sizeof out, "100 Continue\r\n\r\n");
	assert_int_equal(strlen(CHAT), 44);
	put_text(fd, CHAT " ");
	get(fd, out, sizeof out, "hello");
	close(fd);
}

static void test_stream(void **state)
{
	struct world *w = *state;
	char out[16384];
	int fd = dial(w);

	script(w, hello, 3, true);
	post_to(fd, CHAT_STREAM);
	/* nothing from the engine: comments on the wall clock (100 ms here), for longer than
	 * libwebsockets would wait by itself is left to the long tests */
	get(fd, out, sizeof out, ": keep-alive\n\n: keep-alive\n\n");
	assert_non_null(strstr(out, "HTTP/1.1 200 OK"));
	assert_non_null(strstr(out, "content-type: text/event-stream"));
	assert_non_null(strstr(out, "\"role\":\"assistant\""));
	fake_engine_release(w->engine);
	get(fd, out, sizeof out, NULL); /* ends with the connection */
	assert_string_equal(out + strlen(out) - 14, "data: [DONE]\n\n");
	close(fd);
}

static void wait_cancelled(struct world *w, int n)
{
	wait_for(fake_engine_seen(w->engine).n_cancelled >= n);
	assert_int_equal(fake_engine_seen(w->engine).n_cancelled, n);
}

static void test_gone(void **state)
{
	struct world *w = *state;
	char out[8192];

	script(w, hello, 1, true);
	for (int i = 0; i < 4; i++) {
		int fd = dial(w);
		post_to(fd, i & 1 ? CHAT : CHAT_STREAM);
		if (!(i & 1))
			get(fd, out, sizeof out, "assistant");
		wait_for(fake_engine_seen(w->engine).n_submitted > i);
		if (i >= 2) { /* a reset instead of a close */
			struct linger l = { .l_onoff = 1 };
			setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
		}
		close(fd);
		wait_cancelled(w, i + 1);
	}
	assert_string_equal(fake_engine_seen(w->engine).cancel_reason, "client_gone");
}

static void test_slow(void **state)
{
	struct world *w = *state;
	char out[8192];
	int fd = dial(w);

	/* more than all buffers hold; the client stops reading */
	script(w, block, 1000000, false);
	post_to(fd, CHAT_STREAM);
	get(fd, out, sizeof out, "assistant");
	wait_cancelled(w, 1); /* slow_client_timeout is 500 ms here */
	assert_string_equal(fake_engine_seen(w->engine).cancel_reason, "slow_client");
	wait_for(fake_engine_seen(w->engine).n_finished);
	assert_int_equal(fake_engine_seen(w->engine).n_finished, 1);
	close(fd);
}

static void test_connections(void **state)
{
	struct world *w = *state;
	char out[8192];
	int fds[80], n_503 = 0, n_ok = 0;

	for (int i = 0; i < 80; i++) {
		fds[i] = dial(w);
		put_text(fds[i], "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
		get(fds[i], out, sizeof out, "}");
		n_ok += strstr(out, "200 OK") != NULL;
		n_503 += strstr(out, "too_many_connections") && strstr(out, "retry-after: 2");
		if (i == 39)
			assert_int_equal(n_ok, 40);
	}
	assert_int_equal(n_ok, 40);
	assert_int_equal(n_503, 40); /* each was closed, so that the next had a place */
	for (int i = 0; i < 80; i++)
		close(fds[i]);
	for (int i = 0; i < 100; i++) {
		int fd = dial(w);
		put_text(fd, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
		get(fd, out, sizeof out, "}");
		close(fd);
		if (strstr(out, "200 OK"))
			return;
		usleep(10000);
	}
	fail_msg("no place again");
}

/* ---- WebSocket ------------------------------------------------------------------- */

static int ws_dial(struct world *w)
{
	char out[2048];
	int fd = dial(w);

	put_text(fd, "GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
		     "Connection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n"
		     "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"
		     "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
	get(fd, out, sizeof out, "\r\n\r\n");
	assert_non_null(strstr(out, " 101 "));
	assert_non_null(strstr(out, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
	assert_null(strcasestr(out, "permessage-deflate"));
	return fd;
}

static void ws_frame(int fd, int head, const void *data, size_t len)
{
	unsigned char *f = malloc(len + 14), mask[4] = { 1, 2, 3, 4 };
	size_t n = 0;

	f[n++] = (unsigned char)head;
	if (len < 126) {
		f[n++] = (unsigned char)(0x80 | len);
	} else if (len < 65536) {
		f[n++] = 0x80 | 126;
		f[n++] = (unsigned char)(len >> 8);
		f[n++] = (unsigned char)len;
	} else {
		f[n++] = 0x80 | 127;
		for (int i = 7; i >= 0; i--)
			f[n++] = (unsigned char)((uint64_t)len >> (8 * i));
	}
	memcpy(f + n, mask, 4);
	n += 4;
	for (size_t i = 0; i < len; i++)
		f[n++] = ((const unsigned char *)data)[i] ^ mask[i % 4];
	put(fd, f, n);
	free(f);
}

static void get_exactly(int fd, unsigned char *out, size_t n)
{
	while (n) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		if (poll(&p, 1, PATIENCE_MS) <= 0)
			fail_msg("no frame for 20 s");
		ssize_t r = recv(fd, out, n, 0);
		if (r <= 0)
			fail_msg("closed within a frame");
		out += r;
		n -= (size_t)r;
	}
}

/* The next frame; its first byte.  Text is NUL-terminated. */
static int ws_read(int fd, char *out, size_t cap, size_t *len)
{
	unsigned char h[10];

	get_exactly(fd, h, 2);
	assert_int_equal(h[1] & 0x80, 0); /* a server does not mask */
	*len = h[1] & 0x7f;
	if (*len == 126) {
		get_exactly(fd, h + 2, 2);
		*len = (size_t)h[2] << 8 | h[3];
	} else if (*len == 127) {
		get_exactly(fd, h + 2, 8);
		*len = 0;
		for (int i = 2; i < 10; i++)
			*len = *len << 8 | h[i];
	}
	assert_true(*len < cap);
	get_exactly(fd, (unsigned char *)out, *len);
	out[*len] = 0;
	return h[0];
}

static void ws_expect(int fd, const char *until)
{
	static char out[200000];
	size_t n;

	for (;;) {
		int head = ws_read(fd, out, sizeof out, &n);
		if (head != 0x81)
			fail_msg("frame %02x instead of text", head);
		if (strstr(out, until))
			return;
	}
}

static void ws_expect_close(int fd, int code)
{
	char out[200000];
	size_t n;
	int head;

	while ((head = ws_read(fd, out, sizeof out, &n)) == 0x81)
		;
	assert_int_equal(head, 0x88);
	assert_true(n >= 2);
	assert_int_equal((unsigned char)out[0] << 8 | (unsigned char)out[1], code);
	unsigned char reply[2] = { (unsigned char)(code >> 8), (unsigned char)code };
	ws_frame(fd, 0x88, reply, 2);
	assert_true(closes(fd));
	close(fd);
}

static const char ws_create[] = "{\"type\":\"response.create\",\"input\":\"q\"}";

static void test_ws(void **state)
{
	struct world *w = *state;
	char out[1000];
	size_t n;
	int fd = ws_dial(w);

	script(w, hello, 2, false);
	ws_frame(fd, 0x81, ws_create, strlen(ws_create));
	ws_expect(fd, "\"type\":\"response.created\",\"sequence_number\":0");
	ws_expect(fd, "response.completed");
	/* in four fragments with a ping between them */
	ws_frame(fd, 0x01, ws_create, 10);
	ws_frame(fd, 0x00, ws_create + 10, 0);
	ws_frame(fd, 0x89, "ping!", 5);
	assert_int_equal(ws_read(fd, out, sizeof out, &n), 0x8a);
	assert_string_equal(out, "ping!");
	ws_frame(fd, 0x00, ws_create + 10, 5);
	ws_frame(fd, 0x80, ws_create + 15, strlen(ws_create) - 15);
	ws_expect(fd, "response.completed");
	/* errors are events, the connection lives on */
	ws_frame(fd, 0x81, "{}", 2);
	ws_expect(fd, "\"type\":\"error\",\"status\":400");
	ws_frame(fd, 0x81, "", 0);
	ws_expect(fd, "invalid_json");
	/* several in one segment */
	for (int i = 0; i < 20; i++)
		ws_frame(fd, 0x81, ws_create, strlen(ws_create));
	for (int i = 0; i < 20; i++)
		ws_expect(fd, "response.completed");
	/* a large one, up to the cap */
	char *big = malloc(100000);
	int k = snprintf(big, 100000, "%s", ws_create);
	memset(big + k, ' ', 100000 - (size_t)k);
	ws_frame(fd, 0x81, big, 100000);
	ws_expect(fd, "response.completed");
	free(big);
	ws_frame(fd, 0x88, "\x03\xe8", 2);
	assert_int_equal(ws_read(fd, out, sizeof out, &n), 0x88);
	close(fd);
}

static void test_ws_bad(void **state)
{
	struct world *w = *state;
	char *big = calloc(1, 100001);
	int fd = ws_dial(w);

	memset(big, ' ', 100001);
	ws_frame(fd, 0x81, big, 100001);
	ws_expect_close(fd, 1009);
	/* in pieces, too */
	fd = ws_dial(w);
	ws_frame(fd, 0x01, big, 60000);
	ws_frame(fd, 0x80, big, 60000);
	ws_expect_close(fd, 1009);
	free(big);
	fd = ws_dial(w);
	ws_frame(fd, 0x81, "{\"a\":\"\xc3(\"}", 10);
	ws_expect_close(fd, 1007);
	/* a character cut over two fragments is fine, one cut at the end is not */
	fd = ws_dial(w);
	ws_frame(fd, 0x01, "{\"\xc3", 3);
	ws_frame(fd, 0x80, "\xa9\":1}", 5);
	ws_expect(fd, "missing_required_parameter");
	ws_frame(fd, 0x81, "\"\xe2\x82", 3);
	ws_expect_close(fd, 1007);
	fd = ws_dial(w);
	ws_frame(fd, 0x82, "{}", 2);
	ws_expect_close(fd, 1003);
}

static void test_ws_close_cancels(void **state)
{
	struct world *w = *state;

	script(w, hello, 1, true);
	int fd = ws_dial(w);
	ws_frame(fd, 0x81, ws_create, strlen(ws_create));
	ws_expect(fd, "response.created");
	/* events, not pings, keep a waiting client from giving up */
	ws_expect(fd, "\"type\":\"response.in_progress\",\"sequence_number\":3");
	close(fd);
	wait_cancelled(w, 1);
	assert_string_equal(fake_engine_seen(w->engine).cancel_reason, "client_gone");
	fd = ws_dial(w);
	ws_frame(fd, 0x81, ws_create, strlen(ws_create));
	ws_expect(fd, "response.created");
	ws_frame(fd, 0x81, "{\"type\":\"response.cancel\"}", 26);
	ws_expect(fd, "\"status\":\"cancelled\"");
	close(fd);
}

static void test_ws_slow(void **state)
{
	struct world *w = *state;

	script(w, block, 1000000, false);
	int fd = ws_dial(w);
	ws_frame(fd, 0x81, ws_create, strlen(ws_create));
	ws_expect(fd, "response.created");
	wait_cancelled(w, 1);
	assert_string_equal(fake_engine_seen(w->engine).cancel_reason, "slow_client");
	close(fd);
}

/* Messages faster than they are answered: not read, not lost. */
static void test_ws_flood(void **state)
{
	struct world *w = *state;
	int fd = ws_dial(w), n = 3000;

	if (!fork()) {
		for (int i = 0; i < n; i++)
			ws_frame(fd, 0x81, "{}", 2);
		_exit(0);
	}
	for (int i = 0; i < n; i++)
		ws_expect(fd, "missing_required_parameter");
	close(fd);
}

static void test_drain(void **state)
{
	struct world *w = *state;
	char out[8192];

	script(w, hello, 1, true);
	int idle = dial(w), ws = ws_dial(w), idle_ws = ws_dial(w), sse = dial(w);
	put_text(idle, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
	get(idle, out, sizeof out, "}");
	ws_frame(ws, 0x81, ws_create, strlen(ws_create));
	ws_expect(ws, "response.created");
	post_to(sse, CHAT_STREAM);
	get(sse, out, sizeof out, "assistant");
	ig_net_drain(w->net);
	assert_true(closes(idle));
	close(idle);
	ws_expect_close(idle_ws, 1001);
	int fd = dial(w);
	post_to(fd, CHAT);
	get(fd, out, sizeof out, NULL);
	assert_non_null(strstr(out, "HTTP/1.1 503"));
	assert_non_null(strcasestr(out, "\r\nretry-after: "));
	assert_non_null(strstr(out, "server_shutting_down"));
	close(fd);
	assert_int_equal(atomic_load(&w->n_drained), 0);
	fake_engine_release(w->engine);
	ws_expect(ws, "response.completed");
	ws_expect_close(ws, 1001);
	get(sse, out, sizeof out, NULL);
	assert_non_null(strstr(out, "[DONE]"));
	close(sse);
	wait_for(atomic_load(&w->n_drained));
	assert_int_equal(atomic_load(&w->n_drained), 1);
}

static void test_alive(void **state)
{
	struct world *w = *state;

	for (int i = 0; i < 3; i++)
		wait_for(ig_net_is_alive(w->net));
	atomic_store(&w->holds_loop, true);
	ig_net_drain(w->net);
	wait_for(atomic_load(&w->n_drained));
	ig_net_is_alive(w->net); /* it turned until now */
	bool turned = ig_net_is_alive(w->net) || ig_net_is_alive(w->net);
	atomic_store(&w->holds_loop, false);
	assert_false(turned);
	wait_for(ig_net_is_alive(w->net));
}

static void test_stop_with_work(void **state)
{
	struct world *w = *state;

	script(w, block, 1000000, false);
	int fds[10];
	for (int i = 0; i < 10; i++) {
		fds[i] = i & 1 ? ws_dial(w) : dial(w);
		if (i & 1)
			ws_frame(fds[i], 0x81, ws_create, strlen(ws_create));
		else
			post_to(fds[i], i & 2 ? CHAT : CHAT_STREAM);
	}
	wait_for(fake_engine_seen(w->engine).n_submitted == 10);
	/* one that reads gets the reason */
	script(w, hello, 1, true);
	int fd = ws_dial(w), sse = dial(w);
	char out[8192];
	ws_frame(fd, 0x81, ws_create, strlen(ws_create));
	ws_expect(fd, "response.created");
	post_to(sse, CHAT_STREAM);
	get(sse, out, sizeof out, "assistant");
	ig_net_stop(w->net);
	ws_expect(fd, "\"code\":\"server_shutting_down\"");
	ws_expect_close(fd, 1001);
	get(sse, out, sizeof out, NULL);
	assert_non_null(strstr(out, "\"code\":\"server_shutting_down\""));
	close(sse);
	for (int i = 0; i < 10; i++) {
		assert_true(closes(fds[i]));
		close(fds[i]);
	}
	struct fake_seen seen = fake_engine_seen(w->engine);
	assert_int_equal(seen.n_submitted, 12);
	assert_int_equal(seen.n_cancelled, 12);
	assert_string_equal(seen.cancel_reason, "shutdown");
}

static void test_reload(void **state)
{
	struct world *w = *state;
	struct ig_config next = w->config;
	char out[8192];

	/* what can be reloaded counts at once, the rest does not */
	next.server.max_body = 10;
	next.server.keepalive_interval_ms = 60000;
	ig_net_reload(w->net, &next);
	memset(&next, 0xff, sizeof next);
	script(w, hello, 1, true);
	int fd = dial(w);
	post_to(fd, CHAT_STREAM);
	get(fd, out, sizeof out, "assistant");
	assert_non_null(strstr(out, "HTTP/1.1 200"));
	/* a slow client's 500 ms, by the loop's own clock: five of the old intervals */
	script(w, block, 1000000, false);
	int slow = dial(w);
	post_to(slow, CHAT_STREAM);
	wait_cancelled(w, 1);
	close(slow);
	fake_engine_release(w->engine);
	get(fd, out, sizeof out, NULL);
	assert_non_null(strstr(out, "[DONE]"));
	assert_null(strstr(out, "keep-alive"));
	close(fd);
}

static void test_listen_errors(void **state)
{
	struct world *w = *state;
	struct ig_config c = w->config;
	c.server.allow_anonymous = true; /* else it would not try */
	struct ig_net_deps deps = { .engine = w->engine, .config = &c };
	struct ig_net *net;
	struct ig_error err;
	char want[100];

	c.server.port = port_of(w->net);
	assert_int_equal(ig_net_create(&deps, &net, &err), -EADDRINUSE);
	snprintf(want, sizeof want, "can't listen on 127.0.0.1:%u: Address already in use",
		 c.server.port);
	assert_string_equal(err.text, want);
	assert_int_equal(ig_net_probe(&c, &err), -EADDRINUSE);
	c.server.host = "example.com";
	assert_int_equal(ig_net_create(&deps, &net, &err), -EINVAL);
	assert_non_null(strstr(err.text, "server.host must be an IP address"));
	c.server.host = "192.0.2.1"; /* for documentation: nobody's */
	assert_int_equal(ig_net_create(&deps, &net, &err), -EADDRNOTAVAIL);
}

/* How often a thread of this process went to sleep by itself in half a second in which this one
 * does nothing. */
static long n_sleeps(void)
{
	struct rusage before, after;

	getrusage(RUSAGE_SELF, &before);
	usleep(500000);
	getrusage(RUSAGE_SELF, &after);
	return after.ru_nvcsw - before.ru_nvcsw;
}

static void *nothing(void *none) { return none; }

/* So many without what is tested: this thread's own, and those of a sanitizer's thread, which comes
 * with the first of ours. */
static long n_sleeps_without(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, nothing, NULL) == 0)
		pthread_join(thread, NULL);
	return n_sleeps();
}

static long n_sleeps_alone;

static void test_idle(void **state)
{
	struct world *w = *state;
	char out[8192];
	int ws = ws_dial(w), fd = dial(w);

	put_text(fd, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
	get(fd, out, sizeof out, "}");
	/* with open, idle connections nothing wakes up.  What still was to be done after the
	 * request may fall into the first stretch. */
	long n = LONG_MAX;
	for (int i = 0; i < 20 && n > n_sleeps_alone + 1; i++)
		n = n_sleeps();
	assert_true(n <= n_sleeps_alone + 1);
	close(ws);
	close(fd);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_heads),	   TEST(test_garbage),
		TEST(test_keep_alive),	   TEST(test_stream),
		TEST(test_gone),	   TEST(test_slow),
		TEST(test_connections),	   TEST(test_ws),
		TEST(test_ws_bad),	   TEST(test_ws_close_cancels),
		TEST(test_ws_slow),	   TEST(test_ws_flood),
		TEST(test_drain),	   TEST(test_alive),
		TEST(test_stop_with_work), TEST(test_reload),
		TEST(test_listen_errors),  TEST(test_idle),
	};
	signal(SIGPIPE, SIG_IGN);
	n_sleeps_alone = n_sleeps_without();
	return cmocka_run_group_tests_name("server", tests, NULL, NULL);
}
