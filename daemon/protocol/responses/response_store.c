/*
 * response_store.c: see response_store.h.  A tree of reference-counted nodes (a child holds its parent), an
 * index by id and a list by last use.  A node that is dropped from the index exists, and
 * its bytes count, as long as it has children.
 */
#include "daemon/protocol/responses/response_store.h"

#include "base/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define FIRST_BUCKETS 64

struct ig_stored_response {
	uint32_t n_refs;		   /* the index, and children */
	struct ig_stored_response *parent; /* counted; NULL: none */
	json_t *messages, *input, *output; /* its own */
	char *text;			   /* NULL: none */
	uint64_t bytes, text_bytes;	   /* text_bytes are among bytes */
	bool listed;			   /* in the index */
	bool in_file;
	/* of the index */
	char *id, *lane; /* lane: NULL if it is stored */
	uint64_t owner;
	const void *connection; /* likewise */
	struct ig_stored_response *next_in_bucket;
	TAILQ_ENTRY(ig_stored_response) by_use;
	LIST_ENTRY(ig_stored_response) of_lane; /* those of connections */
};

struct ig_response_store {
	uint32_t max_count, max_per_lane;
	uint64_t max_bytes, bytes;
	size_t count, n_buckets; /* n_buckets: a power of two */
	struct ig_stored_response **buckets;
	struct ig_response_file *file;			  /* NULL: none */
	TAILQ_HEAD(kept_list, ig_stored_response) by_use; /* the latest first */
	LIST_HEAD(, ig_stored_response) lanes;
};

/* ---- sizes ------------------------------------------------------------------------- */

/* The approximate memory of a value in jansson. */
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
	default: return 0; /* constants are static */
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

/* Release k, and its parents that nobody else holds. */
static void node_put(struct ig_response_store *s, struct ig_stored_response *k)
{
	while (k && !--k->n_refs) {
		struct ig_stored_response *parent = k->parent;
		if (k->in_file && s->file)
			ig_response_file_remove(s->file, k->id);
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

/* Of the lists it takes references.  connection, lane: NULL if it is stored. */
static struct ig_stored_response *node_new(const struct ig_response_record *r,
					   const void *connection, const char *lane)
{
	struct ig_stored_response *k = calloc(1, sizeof *k);

	if (!k)
		return NULL;
	k->n_refs = 1;
	k->connection = connection;
	k->messages = json_incref(r->messages);
	k->input = json_incref(r->input);
	k->output = json_incref(r->output);
	k->text = r->text ? strdup(r->text) : NULL;
	k->id = strdup(r->id);
	k->owner = r->owner;
	k->lane = connection ? strdup(lane) : NULL;
	if (!k->messages || !k->input || !k->output || (r->text && !k->text) || !k->id ||
	    (connection && !k->lane)) {
		node_free(k);
		return NULL;
	}
	k->text_bytes = k->text ? strlen(k->text) + 1 : 0;
	k->bytes = sizeof *k + k->text_bytes + strlen(k->id) + (k->lane ? strlen(k->lane) : 0) +
		   size_of(k->messages) + size_of(k->input) + size_of(k->output);
	return k;
}

/* ---- the index --------------------------------------------------------------------- */

/* Ids are random and our own: clients can't provoke collisions. */
static size_t hash_of(const char *id)
{
	uint64_t h = ig_fnv1a(IG_FNV1A, id, strlen(id));

	return (size_t)(h ^ h >> 32);
}

static struct ig_stored_response **bucket_of(const struct ig_response_store *s, const char *id)
{
	return &s->buckets[hash_of(id) & (s->n_buckets - 1)];
}

/* Without memory for more buckets the chains become longer. */
static void grow(struct ig_response_store *s)
{
	struct ig_response_store larger = { .n_buckets = s->n_buckets * 2 };
	struct ig_stored_response *k;

	if (s->count < s->n_buckets || s->n_buckets > SIZE_MAX / 16)
		return;
	larger.buckets = calloc(larger.n_buckets, sizeof *larger.buckets);
	if (!larger.buckets)
		return;
	TAILQ_FOREACH(k, &s->by_use, by_use) {
		struct ig_stored_response **b = bucket_of(&larger, k->id);
		k->next_in_bucket = *b;
		*b = k;
	}
	free(s->buckets);
	s->buckets = larger.buckets;
	s->n_buckets = larger.n_buckets;
}

static void index_add(struct ig_response_store *s, struct ig_stored_response *k,
		      struct ig_stored_response *parent)
{
	struct ig_stored_response **b = bucket_of(s, k->id);

	if (parent) {
		k->parent = parent;
		parent->n_refs++;
	}
	k->next_in_bucket = *b;
	*b = k;
	k->listed = true;
	TAILQ_INSERT_HEAD(&s->by_use, k, by_use);
	if (k->connection)
		LIST_INSERT_HEAD(&s->lanes, k, of_lane);
	s->count++;
	s->bytes += k->bytes;
	grow(s);
}

static void index_remove(struct ig_response_store *s, struct ig_stored_response *k)
{
	struct ig_stored_response **b = bucket_of(s, k->id);

	while (*b != k)
		b = &(*b)->next_in_bucket;
	*b = k->next_in_bucket;
	TAILQ_REMOVE(&s->by_use, k, by_use);
	if (k->connection)
		LIST_REMOVE(k, of_lane);
	k->listed = false;
	s->count--;
	/* Its text can't be retrieved any more; children need the rest. */
	s->bytes -= k->text_bytes;
	k->bytes -= k->text_bytes;
	k->text_bytes = 0;
	free(k->text);
	k->text = NULL;
	if (k->n_refs > 1 && k->in_file && s->file)
		ig_response_file_unlist(s->file, k->id);
	node_put(s, k);
}

void ig_response_store_remove(struct ig_response_store *s, struct ig_stored_response *k)
{
	index_remove(s, k);
	if (s->file)
		ig_response_file_erase(s->file);
}

static void trim(struct ig_response_store *s)
{
	struct ig_stored_response *oldest;

	while ((oldest = TAILQ_LAST(&s->by_use, kept_list)) &&
	       (s->count > s->max_count || s->bytes > s->max_bytes))
		index_remove(s, oldest);
}

void ig_response_store_remove_lane(struct ig_response_store *s, const void *connection,
				   const char *lane, const char *id)
{
	for (struct ig_stored_response *k = LIST_FIRST(&s->lanes), *next; k; k = next) {
		next = LIST_NEXT(k, of_lane);
		if (k->connection == connection && (!lane || !strcmp(k->lane, lane)) &&
		    (!id || !strcmp(k->id, id)))
			index_remove(s, k);
	}
}

/* The list has the latest first. */
static void trim_lane(struct ig_response_store *s, const void *connection, const char *lane)
{
	uint32_t n = 0;

	for (struct ig_stored_response *k = LIST_FIRST(&s->lanes), *next; k; k = next) {
		next = LIST_NEXT(k, of_lane);
		if (k->connection == connection && !strcmp(k->lane, lane) && ++n > s->max_per_lane)
			index_remove(s, k);
	}
}

/* ---- the file ------------------------------------------------------------------------ */

/* Append the lists of k and its parents, the oldest first, down from the first behind until (NULL:
 * the root): messages, or input and output items without the output of k itself. */
static json_t *collect(const struct ig_stored_response *k, const struct ig_stored_response *until,
		       bool items)
{
	size_t n = 0;
	bool ok = true;

	for (const struct ig_stored_response *p = k; p != until; p = p->parent)
		n++;
	const struct ig_stored_response **line = calloc(n, sizeof *line);
	json_t *list = line ? json_array() : NULL;
	for (size_t i = n; line && i; k = k->parent)
		line[--i] = k;
	for (size_t i = 0; list && ok && i < n; i++)
		ok = json_array_extend(list, items ? line[i]->input : line[i]->messages) == 0 &&
		     (!items || i + 1 == n || json_array_extend(list, line[i]->output) == 0);
	free(line);
	if (ok)
		return list;
	json_decref(list);
	return NULL;
}

/* Responses of connections are not in the file: what they add is written with those that continue
 * them. */
static void file_put(struct ig_response_store *s, struct ig_stored_response *k)
{
	const struct ig_stored_response *parent = k->parent;

	while (parent && !parent->in_file)
		parent = parent->parent;
	bool own = parent == k->parent;
	struct ig_response_record r = {
		.id = k->id,
		.parent = parent ? parent->id : NULL,
		.owner = k->owner,
		.listed = k->listed,
		.messages = own ? json_incref(k->messages) : collect(k, parent, false),
		.input = own ? json_incref(k->input) : collect(k, parent, true),
		.output = k->output,
		.text = k->text,
	};
	k->in_file = r.messages && r.input; /* without memory a restart forgets it */
	if (k->in_file)
		ig_response_file_put(s->file, &r);
	json_decref(r.messages);
	json_decref(r.input);
}

/* k, after those of its parents that are not in the file; a line may be as long as memory allows. */
static void file_put_line(struct ig_response_store *s, struct ig_stored_response *k)
{
	for (;;) {
		struct ig_stored_response *first = NULL;
		for (struct ig_stored_response *p = k; p && !p->in_file; p = p->parent)
			if (!p->connection)
				first = p;
		if (!first)
			return;
		file_put(s, first);
		if (!first->in_file)
			return;
	}
}

/* The file has lost something, and was emptied: write all. */
static void file_put_all(struct ig_response_store *s)
{
	struct ig_stored_response *k;

	TAILQ_FOREACH(k, &s->by_use, by_use)
		for (struct ig_stored_response *p = k; p; p = p->parent)
			p->in_file = false;
	TAILQ_FOREACH_REVERSE(k, &s->by_use, kept_list, by_use)
	if (!k->connection)
		file_put_line(s, k);
}

static void file_update(struct ig_response_store *s, struct ig_stored_response *k)
{
	if (!s->file)
		return;
	if (ig_response_file_lost(s->file))
		file_put_all(s);
	else if (!k->connection)
		file_put(s, k);
}

static struct ig_stored_response *find_any(const struct ig_response_store *s, const char *id)
{
	struct ig_stored_response *k = *bucket_of(s, id);

	while (k && strcmp(k->id, id))
		k = k->next_in_bucket;
	return k;
}

struct reading {
	struct ig_response_store *store;
	struct ig_stored_response **unlisted; /* [n] they are in the index until all are read */
	size_t n, cap;
};

static bool note_unlisted(struct reading *rd, struct ig_stored_response *k)
{
	if (rd->n == rd->cap) {
		size_t cap = rd->cap ? rd->cap * 2 : 64;
		void *p = realloc(rd->unlisted, cap * sizeof *rd->unlisted);
		if (!p)
			return false;
		rd->unlisted = p;
		rd->cap = cap;
	}
	rd->unlisted[rd->n++] = k;
	return true;
}

/* 0, -ENOENT: it is not wanted, -ENOMEM */
static int read_one(void *ctx, const struct ig_response_record *r)
{
	struct reading *rd = ctx;
	struct ig_response_store *s = rd->store;
	struct ig_stored_response *parent = r->parent ? find_any(s, r->parent) : NULL, *k;

	if (find_any(s, r->id))
		return 0;
	if (r->parent && !parent)
		return -ENOENT;
	k = node_new(r, NULL, NULL);
	if (!k)
		return -ENOMEM;
	int rc = k->bytes > s->max_bytes	     ? -ENOENT :
		 !r->listed && !note_unlisted(rd, k) ? -ENOMEM :
						       0;
	if (rc) {
		node_free(k);
		return rc;
	}
	k->in_file = true;
	index_add(s, k, parent);
	return 0;
}

int ig_response_store_read(struct ig_response_store *s, struct ig_error *err)
{
	struct reading rd = { .store = s };
	int rc = ig_response_file_read(s->file, read_one, &rd, err);

	for (size_t i = 0; i < rd.n; i++)
		index_remove(s, rd.unlisted[i]);
	free(rd.unlisted);
	trim(s);
	return rc;
}

int ig_response_store_keep(struct ig_response_store *s, struct ig_response_file *f,
			   struct ig_error *err)
{
	s->file = f;
	return ig_response_store_read(s, err);
}

/* ---- adding and finding --------------------------------------------------------------- */

int ig_response_store_add(struct ig_response_store *s, const struct ig_stored_response_spec *spec)
{
	struct ig_stored_response *parent = NULL, *k = NULL;

	if (!spec->stored && !spec->connection)
		return 0;
	if (spec->previous_id)
		parent =
			ig_response_store_find(s, spec->previous_id, spec->owner, spec->connection);
	struct ig_response_record r = {
		.id = spec->id,
		.owner = spec->owner,
		.messages = joined(parent ? NULL : spec->history, spec->messages,
				   spec->output_messages),
		.input = joined(spec->input, NULL, NULL),
		.output = joined(spec->output, NULL, NULL),
		.text = spec->text,
	};
	if (r.messages && r.input && r.output)
		k = node_new(&r, spec->stored ? NULL : spec->connection, spec->lane);
	json_decref(r.messages);
	json_decref(r.input);
	json_decref(r.output);
	if (!k)
		return -ENOMEM;
	if (k->bytes > s->max_bytes || !s->max_count) {
		node_free(k);
		return -ENOSPC;
	}
	index_add(s, k, parent);
	file_update(s, k);
	trim_lane(s, spec->connection, spec->lane);
	trim(s);
	return 0;
}

static struct ig_stored_response *find(struct ig_response_store *s, const char *id, uint64_t owner,
				       const void *connection, bool stored)
{
	struct ig_stored_response *k = find_any(s, id);
	struct ig_error err = { 0 };

	if (!k && s->file && ig_response_file_has_news(s->file) && !ig_response_store_read(s, &err))
		k = find_any(s, id);
	if (!k || k->owner != owner || (k->connection && (stored || k->connection != connection)))
		return NULL;
	TAILQ_REMOVE(&s->by_use, k, by_use);
	TAILQ_INSERT_HEAD(&s->by_use, k, by_use);
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

/* ---- contents --------------------------------------------------------------- */

json_t *ig_stored_response_messages(const struct ig_stored_response *k)
{
	return collect(k, NULL, false);
}

json_t *ig_stored_response_input(const struct ig_stored_response *k)
{
	return collect(k, NULL, true);
}

const char *ig_stored_response_text(const struct ig_stored_response *k)
{
	return k->text ? k->text : "";
}

/* ---- life -------------------------------------------------------------------------- */

struct ig_response_store *ig_response_store_create(uint32_t max_count, uint32_t max_per_lane,
						   uint64_t max_bytes)
{
	struct ig_response_store *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->max_count = max_count;
	s->max_per_lane = max_per_lane;
	s->max_bytes = max_bytes;
	s->n_buckets = FIRST_BUCKETS;
	s->buckets = calloc(s->n_buckets, sizeof *s->buckets);
	TAILQ_INIT(&s->by_use);
	LIST_INIT(&s->lanes);
	if (s->buckets)
		return s;
	free(s);
	return NULL;
}

void ig_response_store_destroy(struct ig_response_store *s)
{
	if (!s)
		return;
	if (s->file && ig_response_file_lost(s->file))
		file_put_all(s);
	s->file = NULL;
	while (!TAILQ_EMPTY(&s->by_use))
		index_remove(s, TAILQ_FIRST(&s->by_use));
	free(s->buckets);
	free(s);
}

void ig_response_store_limit(struct ig_response_store *s, uint32_t max_count, uint32_t max_per_lane,
			     uint64_t max_bytes)
{
	s->max_count = max_count;
	s->max_per_lane = max_per_lane;
	s->max_bytes = max_bytes;
	trim(s);
}

struct ig_response_store_figures ig_response_store_figures(const struct ig_response_store *s)
{
	struct ig_response_store_figures f = { s->count, s->bytes, s->file != NULL, "" };

	if (s->file)
		ig_response_file_failure(s->file, f.failure, sizeof f.failure);
	return f;
}
