/* loopback.h: a transport between threads of one process, for tests. */
#pragma once

#include <ingot/transport.h>

#include <stdbool.h>

/* The threads of the next links are ranks 0 … n - 1 of n, in the order in which they open. */
void loopback_begin(uint32_t n_ranks);
extern const struct ig_transport loopback;
/* The rank sends nothing any more, as if it were killed. */
void loopback_kill(uint32_t rank);
/* Bytes to rank `to` that no link has made. */
void loopback_put(uint32_t from, uint32_t to, const void *data, size_t n_bytes);
