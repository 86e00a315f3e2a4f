/*
 * test_server_websocket.c: WebSocket frames as no polite client would send them, and clients that
 * flood, do not read or close in the middle of an answer.
 */
#include "tests/unit/net/server_world.h"

#include <signal.h>
#include <string.h>

static void test_ws(void **state)
{
	struct world *w = *state;
	char out[1000];
	size_t n;
	int fd = world_dial_ws(w);

	world_script(w, world_hello, 2, false);
	wire_frame(fd, 0x81, world_ws_create, strlen(world_ws_create));
	wire_expect(fd, "\"type\":\"response.created\",\"sequence_number\":0");
	wire_expect(fd, "response.completed");
	/* in four fragments with a ping between them */
	wire_frame(fd, 0x01, world_ws_create, 10);
	wire_frame(fd, 0x00, world_ws_create + 10, 0);
	wire_frame(fd, 0x89, "ping!", 5);
	assert_int_equal(wire_read_frame(fd, out, sizeof out, &n), 0x8a);
	assert_string_equal(out, "ping!");
	wire_frame(fd, 0x00, world_ws_create + 10, 5);
	wire_frame(fd, 0x80, world_ws_create + 15, strlen(world_ws_create) - 15);
	wire_expect(fd, "response.completed");
	/* errors are events, the connection lives on */
	wire_frame(fd, 0x81, "{}", 2);
	wire_expect(fd, "\"type\":\"error\",\"status\":400");
	wire_frame(fd, 0x81, "", 0);
	wire_expect(fd, "invalid_json");
	/* several in one segment */
	for (int i = 0; i < 20; i++)
		wire_frame(fd, 0x81, world_ws_create, strlen(world_ws_create));
	for (int i = 0; i < 20; i++)
		wire_expect(fd, "response.completed");
	/* a large one, up to the cap */
	char *big = malloc(100000);
	int k = snprintf(big, 100000, "%s", world_ws_create);
	memset(big + k, ' ', 100000 - (size_t)k);
	wire_frame(fd, 0x81, big, 100000);
	wire_expect(fd, "response.completed");
	free(big);
	wire_frame(fd, 0x88, "\x03\xe8", 2);
	assert_int_equal(wire_read_frame(fd, out, sizeof out, &n), 0x88);
	close(fd);
}

static void test_ws_bad(void **state)
{
	struct world *w = *state;
	char *big = calloc(1, 100001);
	int fd = world_dial_ws(w);

	memset(big, ' ', 100001);
	wire_frame(fd, 0x81, big, 100001);
	wire_expect_close(fd, 1009);
	/* in pieces, too */
	fd = world_dial_ws(w);
	wire_frame(fd, 0x01, big, 60000);
	wire_frame(fd, 0x80, big, 60000);
	wire_expect_close(fd, 1009);
	free(big);
	fd = world_dial_ws(w);
	wire_frame(fd, 0x81, "{\"a\":\"\xc3(\"}", 10);
	wire_expect_close(fd, 1007);
	/* a character cut over two fragments is fine, one cut at the end is not */
	fd = world_dial_ws(w);
	wire_frame(fd, 0x01, "{\"\xc3", 3);
	wire_frame(fd, 0x80, "\xa9\":1}", 5);
	wire_expect(fd, "missing_required_parameter");
	wire_frame(fd, 0x81, "\"\xe2\x82", 3);
	wire_expect_close(fd, 1007);
	fd = world_dial_ws(w);
	wire_frame(fd, 0x82, "{}", 2);
	wire_expect_close(fd, 1003);
}

static void test_ws_close_cancels(void **state)
{
	struct world *w = *state;

	world_script(w, world_hello, 1, true);
	int fd = world_dial_ws(w);
	wire_frame(fd, 0x81, world_ws_create, strlen(world_ws_create));
	wire_expect(fd, "response.created");
	/* events, not pings, keep a waiting client from giving up */
	wire_expect(fd, "\"type\":\"response.in_progress\",\"sequence_number\":3");
	close(fd);
	world_wait_cancelled(w, 1);
	assert_string_equal(fake_engine_seen(w->engine).cancel_reason, "client_gone");
	fd = world_dial_ws(w);
	wire_frame(fd, 0x81, world_ws_create, strlen(world_ws_create));
	wire_expect(fd, "response.created");
	wire_frame(fd, 0x81, "{\"type\":\"response.cancel\"}", 26);
	wire_expect(fd, "\"status\":\"cancelled\"");
	close(fd);
}

static void test_ws_slow(void **state)
{
	struct world *w = *state;

	world_script(w, world_block, 1000000, false);
	int fd = world_dial_ws(w);
	wire_frame(fd, 0x81, world_ws_create, strlen(world_ws_create));
	wire_expect(fd, "response.created");
	world_wait_cancelled(w, 1);
	assert_string_equal(fake_engine_seen(w->engine).cancel_reason, "slow_client");
	close(fd);
}

/* Messages faster than they are answered: not read, not lost. */
static void test_ws_flood(void **state)
{
	struct world *w = *state;
	int fd = world_dial_ws(w), n = 3000;

	if (!fork()) {
		for (int i = 0; i < n; i++)
			wire_frame(fd, 0x81, "{}", 2);
		_exit(0);
	}
	for (int i = 0; i < n; i++)
		wire_expect(fd, "missing_required_parameter");
	close(fd);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_ws),	    TEST(test_ws_bad),	 TEST(test_ws_close_cancels),
		TEST(test_ws_slow), TEST(test_ws_flood),
	};
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("websockets of a server", tests, NULL, NULL);
}
