/*
 * server_world.h: a server in this process over the fake engine, and raw sockets to it, for the tests of
 * the network.
 */
#pragma once

#include "base/clock.h"
#include "daemon/net/net.h"
#include "tests/unit/protocol/fake_engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

struct world {
	struct ig_engine *engine;
	struct ig_net *net;
	struct ig_config config;
	atomic_int n_drained;
	atomic_bool holds_loop; /* the event of the drain does not return */
};

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

#define CHAT "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}"
#define CHAT_STREAM "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"stream\":true}"

/* What the fake engine says, and a WebSocket's request. */
extern const char *const world_hello[], *const world_block[];
extern const char world_ws_create[];

int world_setup(void **state);
int world_teardown(void **state);
uint16_t world_port(const struct ig_net *net);
int world_dial(struct world *w);
void wire_put(int fd, const void *data, size_t len);
void wire_put_text(int fd, const char *text);
/* Read until until is there (NULL: the end).  The number of bytes. */
size_t wire_get(int fd, char *out, size_t cap, const char *until);
/* Whether the peer closes in time. */
bool wire_closes(int fd);
void world_script(struct world *w, const char *const *pieces, int repeat, bool hold);
void wire_post(int fd, const char *body);
void world_wait_cancelled(struct world *w, int n);
int world_dial_ws(struct world *w);
void wire_frame(int fd, int head, const void *data, size_t len);
/* The next frame; its first byte.  Text is NUL-terminated. */
int wire_read_frame(int fd, char *out, size_t cap, size_t *len);
void wire_expect(int fd, const char *until);
void wire_expect_close(int fd, int code);
