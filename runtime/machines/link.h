/*
 * link.h: messages between the ranks that share one model, over a transport (ingot/transport.h).  A thread of the
 * link's own is the only one that calls the transport.  It sends what other threads have queued, receives, gives
 * a sign of life each second, and ends the link when a rank is not heard any more: from then on every call
 * returns -ENODEV with the reason, which names the rank.
 *
 * While nothing is on the way the thread sleeps, at most 10 ms at a time.
 */
#pragma once

#include <ingot/transport.h>

#include <stdbool.h>

#define IG_MAX_MACHINES 64u
/* Of one message. */
#define IG_LINK_MAX_BYTES ((size_t)256 << 20)

struct ig_link;

/* Messages of one channel, and from one rank, come in order. */
enum ig_channel {
	IG_CHANNEL_BEATS,    /* the link's own */
	IG_CHANNEL_COMMANDS, /* from rank 0 */
	IG_CHANNEL_REPLIES,  /* to rank 0, of loading */
	IG_CHANNEL_ROWS,     /* from one stage to the next */
	IG_CHANNEL_RESULTS,  /* from the last rank to rank 0 */
	IG_N_CHANNELS,
};

struct ig_message {
	uint32_t channel; /* written by ig_link_send */
	uint32_t from;	  /* not sent; by the transport */
	uint32_t kind;	  /* its owner's */
	uint32_t reserved;
	uint64_t n_bytes; /* of data */
	_Alignas(8) uint8_t data[];
};

struct ig_link_options {
	const struct ig_transport *transport;
	uint32_t silence_ms; /* a rank that is not heard for so long is gone */
};

/* Waits for all ranks.  -ENOTSUP for more than IG_MAX_MACHINES of them. */
int ig_link_open(const struct ig_link_options *o, struct ig_link **out, struct ig_error *err);
/* Queued messages are sent first, unless the link has failed: then nothing waits. NULL is fine. */
void ig_link_close(struct ig_link *l);
uint32_t ig_link_rank(const struct ig_link *l);
uint32_t ig_link_n_ranks(const struct ig_link *l);

/* A message with memory for n_bytes, which are not set; NULL: no memory, or too many. */
struct ig_message *ig_message_create(uint32_t kind, size_t n_bytes);
/* Any thread.  Takes the message, also if it fails.  0, or -ENODEV with text. */
int ig_link_send(struct ig_link *l, uint32_t to, enum ig_channel channel, struct ig_message *m,
		 struct ig_error *err);
/* Any thread, one for each channel: wait for the next message of the channel, which the caller frees with
 * free().  -ETIMEDOUT after timeout_ms; -ENODEV with text. */
int ig_link_receive(struct ig_link *l, enum ig_channel channel, uint32_t timeout_ms,
		    struct ig_message **out, struct ig_error *err);
/* Any thread: end the link for this reason, if it has not ended. */
void ig_link_fail(struct ig_link *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
