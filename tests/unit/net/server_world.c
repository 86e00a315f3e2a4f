/* server_world.c: see server_world.h. */
#include "tests/unit/net/server_world.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#ifndef MSG_NOSIGNAL /* macOS: SIGPIPE is ignored in main() */
#define MSG_NOSIGNAL 0
#endif

static void on_event(void *ctx, enum ig_net_event ev)
{
	struct world *w = ctx;

	if (ev == IG_NET_DRAINED)
		atomic_fetch_add(&w->n_drained, 1);
	while (atomic_load(&w->holds_loop))
		usleep(100);
}

int world_setup(void **state)
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

int world_teardown(void **state)
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

uint16_t world_port(const struct ig_net *net)
{
	char url[160];

	ig_net_url(net, url, sizeof url);
	return (uint16_t)atoi(strrchr(url, ':') + 1);
}

int world_dial(struct world *w)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons(world_port(w->net)),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
	return fd;
}

void wire_put(int fd, const void *data, size_t len)
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

void wire_put_text(int fd, const char *text) { wire_put(fd, text, strlen(text)); }

size_t wire_get(int fd, char *out, size_t cap, const char *until)
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

bool wire_closes(int fd)
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

void world_script(struct world *w, const char *const *pieces, int repeat, bool hold)
{
	fake_engine_script(w->engine, &(struct fake_script){ .pieces = pieces,
							     .repeat = repeat,
							     .hold = hold,
							     .finish = IG_FINISH_STOP });
}

const char *const world_hello[] = { "hello", NULL };
const char *const world_block[] = {
	"0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz", NULL
};

void wire_post(int fd, const char *body)
{
	char head[300];

	snprintf(head, sizeof head,
		 "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
		 "Content-Length: %zu\r\n\r\n",
		 strlen(body));
	wire_put_text(fd, head);
	wire_put_text(fd, body);
}

void world_wait_cancelled(struct world *w, int n)
{
	wait_for(fake_engine_seen(w->engine).n_cancelled >= n);
	assert_int_equal(fake_engine_seen(w->engine).n_cancelled, n);
}

int world_dial_ws(struct world *w)
{
	char out[2048];
	int fd = world_dial(w);

	wire_put_text(fd, "GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
			  "Connection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n"
			  "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"
			  "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
	wire_get(fd, out, sizeof out, "\r\n\r\n");
	assert_non_null(strstr(out, " 101 "));
	assert_non_null(strstr(out, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
	assert_null(strcasestr(out, "permessage-deflate"));
	return fd;
}

void wire_frame(int fd, int head, const void *data, size_t len)
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
	wire_put(fd, f, n);
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

int wire_read_frame(int fd, char *out, size_t cap, size_t *len)
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

void wire_expect(int fd, const char *until)
{
	static char out[200000];
	size_t n;

	for (;;) {
		int head = wire_read_frame(fd, out, sizeof out, &n);
		if (head != 0x81)
			fail_msg("frame %02x instead of text", head);
		if (strstr(out, until))
			return;
	}
}

void wire_expect_close(int fd, int code)
{
	char out[200000];
	size_t n;
	int head;

	while ((head = wire_read_frame(fd, out, sizeof out, &n)) == 0x81)
		;
	assert_int_equal(head, 0x88);
	assert_true(n >= 2);
	assert_int_equal((unsigned char)out[0] << 8 | (unsigned char)out[1], code);
	unsigned char reply[2] = { (unsigned char)(code >> 8), (unsigned char)code };
	wire_frame(fd, 0x88, reply, 2);
	assert_true(wire_closes(fd));
	close(fd);
}

const char world_ws_create[] = "{\"type\":\"response.create\",\"input\":\"q\"}";
