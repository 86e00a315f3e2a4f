/*
 * response_store.c: see response_store.h.  A tree of counted nodes (a child holds its parent) beside an
 * index by id and a list by last use.  A node that is dropped from the index lives as
 * long as a child does, and its bytes count as long as it lives: so what is counted is
 * what is held.
 */
#include "daemon/protocol/responses/response_store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_BUCKETS 64

struct ig_stored_response {
	uint32_t n_refs;		   /* the index, and children */
	struct ig_stored_response *parent; /* counted; NULL: none */
	json_t *messages, *input, *output; /* its own */
	char *text;			   /* NULL: none */
	uint64_t bytes, text_bytes;	   /* text_bytes are among bytes */
	/* of the index */
	char *id, *lane; /* lane: NULL for one that is stored */
	uint64_t owner;
	const void *connection; /* likewise */
	struct ig_stored_response *next_in_bucket;
	struct ig_stored_response *newer, *older;
	struct ig_stored_response *lane_prev, *lane_next; /* those of connections */
};

struct ig_response_store {
	uint32_t max_count;
	uint64_t max_bytes, bytes;
	size_t count, n_buckets; /* n_buckets: a power of two */
	struct ig_stored_response **buckets;
	struct ig_stored_response *newest, *oldest, *lanes;
};

/* ---- sizes ------------------------------------------------------------------------- */

/* About what jansson takes for a value; values are shared between what is kept only from
 * child to parent, which is counted once. */
static uint64_t size_of(const json_t *v)
{
	const char *key;
	uint64_t n = 0;
	json_t *x;
	size_t i;

	switch (v ? json_typeof(v) : JSON_NULL) {
	case JSON_OBJECT:
		n = 200; /* the object and its table */
		json_object_foreach((json_t *)v, key, x) n += 72 + strlen(key) + size_of(x);
		return n;
	case JSON_ARRAY:
		n = 112;
		json_array_foreach((json_t *)v, i, x) n += 8 + size_of(x);
		return n;
	case JSON_STRING: return 64 + json_string_length(v);
	case JSON_INTEGER:
	case JSON_REAL: return 32;
	default: return 0; /* constants are there once */
	}
}

/* ---- nodes ------------------------------------------------------------------------- */

static void node_free(struct ig_stored_response *k)
{
	json_decref(k->messages);
	json_decref(k->input);
	json_decref(k->output);
	free(k->text);
	free(k->id);
	free(k->lane);
	free(k);
}

/* Up the line of parents as far as nobody else holds them. */
static void node_put(struct ig_response_store *s, struct ig_stored_response *k)
{
	while (k && !--k->n_refs) {
		struct ig_stored_response *parent = k->parent;
		s->bytes -= k->bytes;
		node_free(k);
		k = parent;
	}
}

static json_t *joined(json_t *a, json_t *b, json_t *c)
{
	json_t *list = json_array();

	if (list && !(a && json_array_extend(list, a) < 0) &&
	    !(b && json_array_extend(list, b) < 0) && !(c && json_array_extend(list, c) < 0))
		return list;
	json_decref(list);
	return NULL;
}

static struct ig_stored_response *node_new(const struct ig_stored_response_spec *spec,
					   bool with_history)
{
	struct ig_stored_response *k = calloc(1, sizeof *k);

	if (!k)
		return NULL;
	k->n_refs = 1;
	k->connection = spec->stored ? NULL : spec->connection;
	k->messages = joined(with_history ? spec->history : NULL, spec->messages, spec->answer);
	k->input = joined(spec->input, NULL, NULL);
	k->output = joined(spec->output, NULL, NULL);
	k->text = spec->text ? strdup(spec->text) : NULL;
	k->id = strdup(spec->id);
	k->owner = spec->owner;
	k->lane = k->connection ? strdup(spec->lane) : NULL;
	if (!k->messages || !k->input || !k->output || (spec->text && !k->text) || !k->id ||
	    (k->connection && !k->lane)) {
		node_free(k);
		return NULL;
	}
	k->text_bytes = k->text ? strlen(k->text) + 1 : 0;
	k->bytes = sizeof *k + k->text_bytes + strlen(k->id) + (k->lane ? strlen(k->lane) : 0) +
		   size_of(k->messages) + size_of(k->input) + size_of(k->output);
	return k;
}

/* ---- the index --------------------------------------------------------------------- */

/* Ids in the index are ours and random: nobody can choose them to meet in a bucket. */
static size_t hash_of(const char *id)
{
	uint64_t h = 1469598103934665603u;

	for (; *id; id++)
		h = (h ^ (unsigned char)*id) * 1099511628211u;
	return (size_t)(h ^ h >> 32);
}

static struct ig_stored_response **bucket_of(const struct ig_response_store *s, const char *id)
{
	return &s->buckets[hash_of(id) & (s->n_buckets - 1)];
}

/* Longer chains are no harm when there is no memory for more buckets. */
static void grow(struct ig_response_store *s)
{
	struct ig_response_store larger = { .n_buckets = s->n_buckets * 2 };

	if (s->count < s->n_buckets || s->n_buckets > SIZE_MAX / 16)
		return;
	larger.buckets = calloc(larger.n_buckets, sizeof *larger.buckets);
	if (!larger.buckets)
		return;
	for (struct ig_stored_response *k = s->newest; k; k = k->older) {
		struct ig_stored_response **b = bucket_of(&larger, k->id);
		k->next_in_bucket = *b;
		*b = k;
	}
	free(s->buckets);
	s->buckets = larger.buckets;
	s->n_buckets = larger.n_buckets;
}

static void lanes_push(struct ig_response_store *s, struct ig_stored_response *k)
{
	k->lane_next = s->lanes;
	if (s->lanes)
		s->lanes->lane_prev = k;
	s->lanes = k;
}

static void lanes_remove(struct ig_response_store *s, struct ig_stored_response *k)
{
	*(k->lane_prev ? &k->lane_prev->lane_next : &s->lanes) = k->lane_next;
	if (k->lane_next)
		k->lane_next->lane_prev = k->lane_prev;
	k->lane_prev = k->lane_next = NULL;
}

static void list_remove(struct ig_response_store *s, struct ig_stored_response *k)
{
	*(k->newer ? &k->newer->older : &s->newest) = k->older;
	*(k->older ? &k->older->newer : &s->oldest) = k->newer;
	k->newer = k->older = NULL;
}

static void list_push(struct ig_response_store *s, struct ig_stored_response *k)
{
	k->older = s->newest;
	*(s->newest ? &s->newest->newer : &s->oldest) = k;
	s->newest = k;
}

void ig_response_store_remove(struct ig_response_store *s, struct ig_stored_response *k)
{
	struct ig_stored_response **b = bucket_of(s, k->id);

	while (*b != k)
		b = &(*b)->next_in_bucket;
	*b = k->next_in_bucket;
	list_remove(s, k);
	if (k->connection)
		lanes_remove(s, k);
	s->count--;
	/* Nobody can ask for its text; what children need stays. */
	s->bytes -= k->text_bytes;
	k->bytes -= k->text_bytes;
	k->text_bytes = 0;
	free(k->text);
	k->text = NULL;
	node_put(s, k);
}

static void trim(struct ig_response_store *s)
{
	while (s->oldest && (s->count > s->max_count || s->bytes > s->max_bytes))
		ig_response_store_remove(s, s->oldest);
}

static void drop_some(struct ig_response_store *s, const void *connection, const char *lane,
		      const char *id)
{
	for (struct ig_stored_response *k = s->lanes, *next; k; k = next) {
		next = k->lane_next;
		if (k->connection == connection && (!lane || !strcmp(k->lane, lane)) &&
		    (!id || !strcmp(k->id, id)))
			ig_response_store_remove(s, k);
	}
}

void ig_response_store_remove_lane(struct ig_response_store *s, const void *connection,
				   const char *lane, const char *id)
{
	if (connection)
		drop_some(s, connection, lane, id);
}

void ig_response_store_remove_connection(struct ig_response_store *s, const void *connection)
{
	if (connection)
		drop_some(s, connection, NULL, NULL);
}

int ig_response_store_add(struct ig_response_store *s, const struct ig_stored_response_spec *spec)
{
	struct ig_stored_response *parent = NULL;

	if (!spec->stored && !spec->connection)
		return 0;
	if (spec->previous_id)
		parent =
			ig_response_store_find(s, spec->previous_id, spec->owner, spec->connection);
	struct ig_stored_response *k = node_new(spec, !parent);
	if (!k)
		return -ENOMEM;
	if (k->bytes > s->max_bytes || !s->max_count) {
		node_free(k);
		return -ENOSPC;
	}
	if (parent) {
		k->parent = parent;
		parent->n_refs++;
	}
	ig_response_store_remove_lane(s, spec->connection, spec->lane, NULL);
	struct ig_stored_response **b = bucket_of(s, k->id);
	k->next_in_bucket = *b;
	*b = k;
	list_push(s, k);
	if (k->connection)
		lanes_push(s, k);
	s->count++;
	s->bytes += k->bytes;
	grow(s);
	trim(s);
	return 0;
}

static struct ig_stored_response *find(struct ig_response_store *s, const char *id, uint64_t owner,
				       const void *connection, bool stored)
{
	struct ig_stored_response *k = *bucket_of(s, id);

	while (k && strcmp(k->id, id))
		k = k->next_in_bucket;
	if (!k || k->owner != owner || (k->connection && (stored || k->connection != connection)))
		return NULL;
	list_remove(s, k);
	list_push(s, k);
	return k;
}

struct ig_stored_response *ig_response_store_find(struct ig_response_store *s, const char *id,
						  uint64_t owner, const void *connection)
{
	return find(s, id, owner, connection, false);
}

struct ig_stored_response *ig_response_store_find_stored(struct ig_response_store *s,
							 const char *id, uint64_t owner)
{
	return find(s, id, owner, NULL, true);
}

/* ---- what is in them --------------------------------------------------------------- */

static const struct ig_stored_response **line_of(const struct ig_stored_response *k, size_t *n)
{
	*n = 0;
	for (const struct ig_stored_response *p = k; p; p = p->parent)
		++*n;
	const struct ig_stored_response **line = calloc(*n, sizeof *line);
	for (size_t i = *n; line && i; k = k->parent)
		line[--i] = k;
	return line;
}

json_t *ig_stored_response_messages(const struct ig_stored_response *k)
{
	size_t n;
	const struct ig_stored_response **line = line_of(k, &n);
	json_t *list = line ? json_array() : NULL;

	for (size_t i = 0; list && i < n; i++)
		if (json_array_extend(list, line[i]->messages) < 0) {
			json_decref(list);
			list = NULL;
		}
	free(line);
	return list;
}

json_t *ig_stored_response_input(const struct ig_stored_response *k)
{
	size_t n;
	const struct ig_stored_response **line = line_of(k, &n);
	json_t *list = line ? json_array() : NULL;

	for (size_t i = 0; list && i < n; i++)
		if (json_array_extend(list, line[i]->input) < 0 ||
		    (i + 1 < n && json_array_extend(list, line[i]->output) < 0)) {
			json_decref(list);
			list = NULL;
		}
	free(line);
	return list;
}

const char *ig_stored_response_text(const struct ig_stored_response *k)
{
	return k->text ? k->text : "";
}

/* ---- life -------------------------------------------------------------------------- */

struct ig_response_store *ig_response_store_create(uint32_t max_count, uint64_t max_bytes)
{
	struct ig_response_store *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->max_count = max_count;
	s->max_bytes = max_bytes;
	s->n_buckets = FIRST_BUCKETS;
	s->buckets = calloc(s->n_buckets, sizeof *s->buckets);
	if (s->buckets)
		return s;
	free(s);
	return NULL;
}

void ig_response_store_destroy(struct ig_response_store *s)
{
	if (!s)
		return;
	while (s->oldest)
		ig_response_store_remove(s, s->oldest);
	free(s->buckets);
	free(s);
}

void ig_response_store_limit(struct ig_response_store *s, uint32_t max_count, uint64_t max_bytes)
{
	s->max_count = max_count;
	s->max_bytes = max_bytes;
	trim(s);
}
