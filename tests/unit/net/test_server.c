/*
 * test_server.c: a server in this process over the fake engine, and raw sockets:
 * requests that are cut, smuggled, too large, from elsewhere; clients that do not read or
 * go away; how it drains, stops and reloads.
 */
#include "tests/unit/net/server_world.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

/* ---- requests ---- */

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
		int fd = world_dial(w);
		wire_put_text(fd, rows[i].request);
		wire_get(fd, out, sizeof out, rows[i].closed ? NULL : "}");
		if (strncmp(out, "HTTP/1.", 7) || strlen(out) < 9 ||
		    strncmp(out + 9, rows[i].status, strlen(rows[i].status)) ||
		    !strstr(out, rows[i].text))
			fail_msg("%s\n-> %s", rows[i].request, out);
		if (strstr(out + 1, "HTTP/1."))
			fail_msg("%s\n-> two replies: %s", rows[i].request, out);
		if (!strncmp(rows[i].request, "HEAD", 4) && strstr(out, "status"))
			fail_msg("a body for HEAD");
		if (rows[i].closed && !wire_closes(fd))
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
		int fd = world_dial(w);
		wire_put_text(fd, rows[i]);
		shutdown(fd, SHUT_WR);
		wire_get(fd, out, sizeof out, NULL);
		if (strstr(out, "HTTP/1.1 2"))
			fail_msg("%s\n-> %s", rows[i], out);
		close(fd);
	}
	/* a head without an end is cut off */
	int fd = world_dial(w);
	char *big = malloc(100000);
	memset(big, 'a', 100000);
	wire_put_text(fd, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: ");
	wire_put(fd, big, 100000);
	free(big);
	wire_get(fd, out, sizeof out, NULL);
	assert_non_null(strstr(out, "HTTP/1.1 431 "));
	assert_non_null(strstr(out, "header_too_large"));
	close(fd);
	/* and the server still replies */
	fd = world_dial(w);
	wire_put_text(fd, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
	wire_get(fd, out, sizeof out, "}");
	assert_non_null(strstr(out, "200 OK"));
	close(fd);
}

static void test_keep_alive(void **state)
{
	struct world *w = *state;
	char out[8192];
	int fd = world_dial(w);

	world_script(w, world_hello, 1, false);
	for (int i = 0; i < 5; i++) {
		wire_post(fd, CHAT);
		wire_get(fd, out, sizeof out,
			 "\"completion_tokens_details\":{\"reasoning_tokens\":0}}}");
		assert_non_null(strstr(out, "\"content\":\"hello\""));
		assert_non_null(strstr(out, "connection: keep-alive"));
		wire_put_text(fd, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
		wire_get(fd, out, sizeof out, "}]}"); /* of the list for Codex */
		assert_non_null(strstr(out, "\"last_id\":\"spare\""));
		assert_non_null(strstr(out, "\"id\":\"fake\""));
	}
	/* several at once are answered one after the other */
	wire_put_text(fd,
		      "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
		      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
		      "Content-Length: 44\r\n\r\n" CHAT "\r\n"
		      "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
	wire_get(fd, out, sizeof out, NULL);
	const char *first = strstr(out, "content-length: 15\r\n\r\n{\"status\":\"ok\"}");
	assert_non_null(first);
	const char *second = strstr(first, "\"content\":\"hello\"");
	assert_non_null(second);
	assert_non_null(strstr(second, "\"last_id\":\"spare\""));
	close(fd);
	/* a byte at a time */
	fd = world_dial(w);
	const char *text =
		"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 45\r\n\r\n" CHAT
		" ";
	for (const char *p = text; *p; p++) {
		wire_put(fd, p, 1);
		usleep(300);
	}
	wire_get(fd, out, sizeof out, "hello");
	close(fd);
	/* with Expect, as curl does for larger bodies */
	fd = world_dial(w);
	wire_put_text(
		fd,
		"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 45\r\n"
		"Expect: 100-continue\r\n\r\n");
	wire_get(fd, out, sizeof out, "100 Continue\r\n\r\n");
	assert_int_equal(strlen(CHAT), 44);
	wire_put_text(fd, CHAT " ");
	wire_get(fd, out, sizeof out, "hello");
	close(fd);
}

static void test_stream(void **state)
{
	struct world *w = *state;
	char out[16384];
	int fd = world_dial(w);

	world_script(w, world_hello, 3, true);
	wire_post(fd, CHAT_STREAM);
	/* nothing from the engine: comments on the wall clock (100 ms here), for longer than
	 * libwebsockets would wait by itself is left to the long tests */
	wire_get(fd, out, sizeof out, ": keep-alive\n\n: keep-alive\n\n");
	assert_non_null(strstr(out, "HTTP/1.1 200 OK"));
	assert_non_null(strstr(out, "content-type: text/event-stream"));
	assert_non_null(strstr(out, "\"role\":\"assistant\""));
	fake_engine_release(w->engine);
	wire_get(fd, out, sizeof out, NULL); /* ends with the connection */
	assert_string_equal(out + strlen(out) - 14, "data: [DONE]\n\n");
	close(fd);
}

static void test_gone(void **state)
{
	struct world *w = *state;
	char out[8192];

	world_script(w, world_hello, 1, true);
	for (int i = 0; i < 4; i++) {
		int fd = world_dial(w);
		wire_post(fd, i & 1 ? CHAT : CHAT_STREAM);
		if (!(i & 1))
			wire_get(fd, out, sizeof out, "assistant");
		wait_for(fake_engine_seen(w->engine).n_submitted > i);
		if (i >= 2) { /* a reset instead of a close */
			struct linger l = { .l_onoff = 1 };
			setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
		}
		close(fd);
		world_wait_cancelled(w, i + 1);
	}
	assert_string_equal(fake_engine_seen(w->engine).cancel_reason, "client_gone");
}

static void test_slow(void **state)
{
	struct world *w = *state;
	char out[8192];
	int fd = world_dial(w);

	/* more than all buffers hold; the client stops reading */
	world_script(w, world_block, 1000000, false);
	wire_post(fd, CHAT_STREAM);
	wire_get(fd, out, sizeof out, "assistant");
	world_wait_cancelled(w, 1); /* slow_client_timeout is 500 ms here */
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
		fds[i] = world_dial(w);
		wire_put_text(fds[i], "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
		wire_get(fds[i], out, sizeof out, "}");
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
		int fd = world_dial(w);
		wire_put_text(fd, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
		wire_get(fd, out, sizeof out, "}");
		close(fd);
		if (strstr(out, "200 OK"))
			return;
		usleep(10000);
	}
	fail_msg("no place again");
}

/* ---- its life ---- */

static void test_drain(void **state)
{
	struct world *w = *state;
	char out[8192];

	world_script(w, world_hello, 1, true);
	int idle = world_dial(w), ws = world_dial_ws(w), idle_ws = world_dial_ws(w),
	    sse = world_dial(w);
	wire_put_text(idle, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
	wire_get(idle, out, sizeof out, "}");
	wire_frame(ws, 0x81, world_ws_create, strlen(world_ws_create));
	wire_expect(ws, "response.created");
	wire_post(sse, CHAT_STREAM);
	wire_get(sse, out, sizeof out, "assistant");
	ig_net_drain(w->net);
	assert_true(wire_closes(idle));
	close(idle);
	wire_expect_close(idle_ws, 1001);
	int fd = world_dial(w);
	wire_post(fd, CHAT);
	wire_get(fd, out, sizeof out, NULL);
	assert_non_null(strstr(out, "HTTP/1.1 503"));
	assert_non_null(strcasestr(out, "\r\nretry-after: "));
	assert_non_null(strstr(out, "server_shutting_down"));
	close(fd);
	assert_int_equal(atomic_load(&w->n_drained), 0);
	fake_engine_release(w->engine);
	wire_expect(ws, "response.completed");
	wire_expect_close(ws, 1001);
	wire_get(sse, out, sizeof out, NULL);
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

	world_script(w, world_block, 1000000, false);
	int fds[10];
	for (int i = 0; i < 10; i++) {
		fds[i] = i & 1 ? world_dial_ws(w) : world_dial(w);
		if (i & 1)
			wire_frame(fds[i], 0x81, world_ws_create, strlen(world_ws_create));
		else
			wire_post(fds[i], i & 2 ? CHAT : CHAT_STREAM);
	}
	wait_for(fake_engine_seen(w->engine).n_submitted == 10);
	/* one that reads gets the reason */
	world_script(w, world_hello, 1, true);
	int fd = world_dial_ws(w), sse = world_dial(w);
	char out[8192];
	wire_frame(fd, 0x81, world_ws_create, strlen(world_ws_create));
	wire_expect(fd, "response.created");
	wire_post(sse, CHAT_STREAM);
	wire_get(sse, out, sizeof out, "assistant");
	ig_net_stop(w->net);
	wire_expect(fd, "\"code\":\"server_shutting_down\"");
	wire_expect_close(fd, 1001);
	wire_get(sse, out, sizeof out, NULL);
	assert_non_null(strstr(out, "\"code\":\"server_shutting_down\""));
	close(sse);
	for (int i = 0; i < 10; i++) {
		assert_true(wire_closes(fds[i]));
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
	world_script(w, world_hello, 1, true);
	int fd = world_dial(w);
	wire_post(fd, CHAT_STREAM);
	wire_get(fd, out, sizeof out, "assistant");
	assert_non_null(strstr(out, "HTTP/1.1 200"));
	/* a slow client's 500 ms, by the loop's own clock: five of the old intervals */
	world_script(w, world_block, 1000000, false);
	int slow = world_dial(w);
	wire_post(slow, CHAT_STREAM);
	world_wait_cancelled(w, 1);
	close(slow);
	fake_engine_release(w->engine);
	wire_get(fd, out, sizeof out, NULL);
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

	c.server.port = world_port(w->net);
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
	int ws = world_dial_ws(w), fd = world_dial(w);

	wire_put_text(fd, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
	wire_get(fd, out, sizeof out, "}");
	/* with open, idle connections nothing wakes up.  What still was to be done after the
	 * request may fall into the first stretch. */
	long n = LONG_MAX;
	for (int i = 0; i < 20 && n > n_sleeps_alone + 1; i++)
		n = n_sleeps();
	assert_true(n <= n_sleeps_alone + 1);
	close(ws);
	close(fd);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_heads),	   TEST(test_garbage), TEST(test_keep_alive),
		TEST(test_stream),	   TEST(test_gone),    TEST(test_slow),
		TEST(test_connections),	   TEST(test_drain),   TEST(test_alive),
		TEST(test_stop_with_work), TEST(test_reload),  TEST(test_listen_errors),
		TEST(test_idle),
	};
	signal(SIGPIPE, SIG_IGN);
	n_sleeps_alone = n_sleeps_without();
	return cmocka_run_group_tests_name("server", tests, NULL, NULL);
}
