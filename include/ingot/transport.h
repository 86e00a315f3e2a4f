/*
 * transport.h: what carries messages between the machines that share one model.  A transport is a shared
 * object of its own, transport-NAME.so, which the daemon loads only if the configuration names it, so that
 * nobody else links its library.  It exports one object, `const struct ig_transport ingot_transport`.  It is no
 * module: it has no ops and no architectures, and its own version in place of the ABI's.
 *
 * All functions are called by one thread, the one that called open.  None of them but open, close and abort
 * waits for another rank.
 */
#ifndef INGOT_TRANSPORT_H
#define INGOT_TRANSPORT_H

#include <ingot/error.h>

#define IG_TRANSPORT_MAGIC 0x54474e49u /* "INGT" in a little-endian file */
#define IG_TRANSPORT_VERSION 1u

struct ig_transport_link; /* the transport's own */

struct ig_transport {
	uint32_t magic; /* IG_TRANSPORT_MAGIC */
	uint32_t version;
	uint32_t struct_size;
	uint32_t reserved;
	const char *name;

	/* Join the other ranks; waits for them.  Ranks are 0 … *n_ranks - 1. */
	int (*open)(struct ig_transport_link **out, uint32_t *rank, uint32_t *n_ranks,
		    struct ig_error *err);
	/* When all ranks close; waits for them. */
	void (*close)(struct ig_transport_link *l);
	/* When a rank may be gone: frees nothing that could wait; the process ends soon. */
	void (*abort)(struct ig_transport_link *l);

	/* Begin to send data[n_bytes], which stays as it is until the transfer is done.  Messages from one
	 * rank to another arrive in the order of send. */
	int (*send)(struct ig_transport_link *l, uint32_t to, const void *data, size_t n_bytes,
		    void **transfer, struct ig_error *err);
	/* 1: a message is there, with its sender and its size; the next call is receive.  0: there is none. */
	int (*probe)(struct ig_transport_link *l, uint32_t *from, size_t *n_bytes,
		     struct ig_error *err);
	/* Begin to receive that message to data[n_bytes]. */
	int (*receive)(struct ig_transport_link *l, void *data, void **transfer,
		       struct ig_error *err);
	/* 1: the transfer is done, and its handle is gone.  0: not yet. */
	int (*done)(struct ig_transport_link *l, void *transfer, struct ig_error *err);
};

/* The one symbol that a transport exports. */
extern __attribute__((visibility("default"))) const struct ig_transport ingot_transport;

#endif
