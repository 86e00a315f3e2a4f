/*
 * response_store.h: finished responses, to be continued, retrieved and deleted.  A response stores
 * its new messages and refers to its parent, so that a conversation is stored once however many
 * responses it has, and forks share their prefix.  Stored values never change: prep reads them on
 * its own thread, and JSON values have atomic reference counts.  Bounded in number and bytes; the
 * least recently used are evicted.  With a file, it has the same responses as the memory, but for
 * those of connections.  All functions are the loop thread's.
 */
#pragma once

#include "base/json.h"
#include "store/response_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ig_stored_response; /* one response */
struct ig_response_store;

struct ig_response_store *ig_response_store_create(uint32_t max_count, uint32_t max_per_lane,
						   uint64_t max_bytes);
/* Nothing is removed from its file.  NULL is fine. */
void ig_response_store_destroy(struct ig_response_store *s);
/* Keep the responses in this file, which must outlive the store, after reading those that it has. */
int ig_response_store_keep(struct ig_response_store *s, struct ig_response_file *f,
			   struct ig_error *err);
/* Read what another daemon has written to the file since. */
int ig_response_store_read(struct ig_response_store *s, struct ig_error *err);
/* Evicts at once what is beyond the new limits; of lanes, with their next response. */
void ig_response_store_limit(struct ig_response_store *s, uint32_t max_count, uint32_t max_per_lane,
			     uint64_t max_bytes);

struct ig_response_store_figures {
	size_t count;	   /* that can be found */
	uint64_t bytes;	   /* of all */
	bool persist;	   /* in a file */
	char failure[256]; /* why the file can't be written; "": it can */
};
struct ig_response_store_figures ig_response_store_figures(const struct ig_response_store *s);

/* A response to store.  Lists may be NULL: empty. */
struct ig_stored_response_spec {
	const char *id;
	uint64_t owner;		 /* the key's identity; 0: no key */
	bool stored;		 /* for all requests with its key; else for its connection only */
	const void *connection;	 /* NULL: none.  Each of its lanes has its latest responses */
	const char *lane;	 /* that are not stored, at most max_per_lane */
	const char *previous_id; /* NULL: none */
	json_t *history;	 /* of previous_id, in case that was evicted */
	json_t *messages;	 /* new ones, for templates; must not change afterwards */
	json_t *output_messages; /* likewise */
	json_t *input, *output;	 /* items, to be listed, likewise */
	const char *text;	 /* the response object; NULL: can't be retrieved */
};

/* 0, -ENOMEM, or -ENOSPC: larger than the limit.  Does nothing if it is neither stored nor of a
 * connection. */
int ig_response_store_add(struct ig_response_store *s, const struct ig_stored_response_spec *spec);
/* What a request of this connection (NULL: none) with this key may use; marks it as used.
 * NULL: none.  Valid until the next add, limit or drop. */
struct ig_stored_response *ig_response_store_find(struct ig_response_store *s, const char *id,
						  uint64_t owner, const void *connection);
/* Only stored ones, for GET and DELETE. */
struct ig_stored_response *ig_response_store_find_stored(struct ig_response_store *s,
							 const char *id, uint64_t owner);

/* The conversation up to and including this response, for templates: a new list of shared
 * messages; NULL without memory. */
json_t *ig_stored_response_messages(const struct ig_stored_response *k);
/* The input items of the response, those of its parents first; likewise. */
json_t *ig_stored_response_input(const struct ig_stored_response *k);
const char *ig_stored_response_text(const struct ig_stored_response *k); /* "": it had none */

/* Delete it, from the file too; responses that continue it remain, and what they share with it. */
void ig_response_store_remove(struct ig_response_store *s, struct ig_stored_response *k);
/* Drop the responses of a lane (NULL: of all lanes) that have this id (NULL: any).  connection
 * NULL: nothing. */
void ig_response_store_remove_lane(struct ig_response_store *s, const void *connection,
				   const char *lane, const char *id);
