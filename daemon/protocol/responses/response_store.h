/*
 * response_store.h: finished responses, to be continued, looked at and deleted.
 *
 * A response keeps what is new in it and its parent, so that a conversation of many
 * turns is there once however many responses it has, and forks share what they have in
 * common.  What is kept is never changed again: prep reads it on its own thread, the
 * counts of JSON values are atomic.  Bounded in number and in bytes; the least recently
 * used go first.  All functions are the loop thread's.
 */
#pragma once

#include "store/keys.h"

#include "base/json.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ig_stored_response; /* one response */
struct ig_response_store;

struct ig_response_store *ig_response_store_create(uint32_t max_count, uint64_t max_bytes);
void ig_response_store_destroy(struct ig_response_store *s); /* NULL is fine */
/* From now on; what is too much goes at once. */
void ig_response_store_limit(struct ig_response_store *s, uint32_t max_count, uint64_t max_bytes);

/* What is to be kept.  Lists may be NULL: empty ones. */
struct ig_stored_response_spec {
	const char *id;
	uint64_t owner;		 /* the key's identity; 0: no key */
	bool stored;		 /* for every request with its key; else for its connection alone */
	const void *connection;	 /* NULL: none.  A lane of it keeps its latest response, */
	const char *lane;	 /* and lets go the one before, unless that is stored */
	const char *previous_id; /* NULL: none */
	json_t *history;	 /* what previous_id stands for, for when that is gone by now */
	json_t *messages;	 /* new ones, in the form of templates; the store's from now on */
	json_t *answer;		 /* messages of the answer, likewise */
	json_t *input, *output;	 /* items, to be listed; likewise */
	const char *text;	 /* the response object; NULL: nobody will ask for it */
};

/* 0, -ENOMEM, or -ENOSPC: it is larger than all that may be kept.  Neither stored nor of a
 * connection: nothing is done. */
int ig_response_store_add(struct ig_response_store *s, const struct ig_stored_response_spec *spec);
/* As a request of this connection (NULL: none) with this key may see it; used just now.
 * NULL: there is none.  Good until the next call of add, limit or one that drops. */
struct ig_stored_response *ig_response_store_find(struct ig_response_store *s, const char *id,
						  uint64_t owner, const void *connection);
/* Only what is kept for everybody: what GET and DELETE are about. */
struct ig_stored_response *ig_response_store_find_stored(struct ig_response_store *s,
							 const char *id, uint64_t owner);

/* The conversation up to and with this response, in the form of templates: a new list of
 * shared messages; NULL without memory. */
json_t *ig_stored_response_messages(const struct ig_stored_response *k);
/* The items that the response was made of, those of what it continues first; likewise. */
json_t *ig_stored_response_input(const struct ig_stored_response *k);
const char *ig_stored_response_text(const struct ig_stored_response *k); /* "": it had none */

/* It can't be found any more; those that continue it live on. */
void ig_response_store_remove(struct ig_response_store *s, struct ig_stored_response *k);
/* What a lane keeps, if it is the response with this id (NULL: whatever it is). */
void ig_response_store_remove_lane(struct ig_response_store *s, const void *connection,
				   const char *lane, const char *id);
/* The connection is gone. */
void ig_response_store_remove_connection(struct ig_response_store *s, const void *connection);
