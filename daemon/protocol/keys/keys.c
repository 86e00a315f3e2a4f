/*
 * keys.c: /v1/ingot/keys: lists, adds and removes API keys, as `ingot keys` does, and has the daemon
 * read them again.  A change that would leave keys but no administrator's among them is refused: nobody
 * could undo it from a browser.
 */
#include "daemon/protocol/keys/keys.h"

#include "daemon/protocol/core/errand.h"
#include "daemon/protocol/core/params.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What is wrong with the file is the server's trouble. */
static int fail_file(struct ig_api_error *e, const struct ig_error *err)
{
	return ig_api_fail(e, 500, "keys_unusable", NULL, "%s", err->text);
}

static const char *keys_path(const struct ig_api *api, struct ig_api_error *e)
{
	const char *path = api->deps.keys_path;

	if (path && path[0])
		return path;
	ig_api_fail(e, 409, "no_keys_file", NULL,
		    "There is no file of keys here: server.keys_file names none, or the keys come "
		    "from server.keys_command.");
	return NULL;
}

/* ---- the list --------------------------------------------------------------------------------- */

/* null: the configuration's limit; 0: none. */
static void put_limit(struct ig_json_writer *w, const char *name, uint32_t v)
{
	if (v)
		ig_json_put_uint(w, name, v == IG_LIMIT_NONE ? 0 : v);
	else
		ig_json_put_raw(w, name, NULL);
}

static void put_key(struct ig_json_writer *w, const struct ig_key *k)
{
	ig_json_putf(w, "'object': 'key', 'id': %s, 'role': %s, 'created': %s, 'note': %s", k->id,
		     ig_role_name(k->role), k->created, k->note);
	put_limit(w, "max_concurrent", k->limits.max_concurrent);
	put_limit(w, "requests_per_minute", k->limits.requests_per_minute);
	put_limit(w, "tokens_per_minute", k->limits.tokens_per_minute);
	ig_json_putf(w, "'weight': %u, 'priority': %d", ig_key_weight(k->weight), k->priority);
}

/* The reader thread. */
static void list(struct ig_errand *e)
{
	struct ig_json_writer w = { .out = &e->out };
	const char *path = keys_path(e->api, &e->error);
	struct ig_keys *keys = NULL;
	struct ig_error err = { 0 };

	if (!path)
		return;
	if (ig_keys_load(path, &keys, &err) < 0) {
		fail_file(&e->error, &err);
		return;
	}
	ig_json_putf(&w, "{'object': 'list', 'required': %-s, 'data': [",
		     ig_json_bool(keys != NULL));
	for (size_t i = 0; i < ig_keys_count(keys); i++) {
		ig_json_open_object(&w, NULL);
		put_key(&w, ig_keys_at(keys, i));
		ig_json_close_object(&w);
	}
	ig_json_putf(&w, "]}");
	ig_keys_destroy(keys);
}

void ig_get_keys(struct ig_exchange *x, const struct ig_http_request *r)
{
	struct ig_errand *e = ig_errand_create(x, list);

	if (e)
		ig_errand_start(e);
}

/* ---- a change ----------------------------------------------------------------------------------- */

/* Change the file, locked, by fn, which writes it or fails with e or err; then have it read again. */
static void change(struct ig_api *api, struct ig_api_error *e, void *ctx,
		   int (*fn)(const char *path, const struct ig_keys *keys, void *ctx,
			     struct ig_api_error *e, struct ig_error *err))
{
	const char *path = keys_path(api, e);
	struct ig_keys *keys = NULL;
	struct ig_error err = { 0 };
	int lock;

	if (!path)
		return;
	if (ig_keys_lock(path, &lock, &err) < 0) {
		fail_file(e, &err);
		return;
	}
	int rc = ig_keys_load(path, &keys, &err);
	if (!rc)
		rc = fn(path, keys, ctx, e, &err);
	close(lock);
	ig_keys_destroy(keys);
	if (rc < 0)
		fail_file(e, &err);
	if (!e->status)
		api->deps.reload_keys(api->deps.wake_ctx);
}

/* ---- remove -------------------------------------------------------------------------------------- */

static int check_remove(const struct ig_keys *keys, const char *id, struct ig_api_error *e)
{
	if (!ig_keys_by_id(keys, id))
		return ig_api_fail(e, 404, "key_not_found", NULL, "No key has the id %s.", id);
	if (!ig_keys_have_administrator(keys, id))
		return ig_api_fail(e, 409, "no_administrator", NULL,
				   "No administrator's key would be left; `ingot keys remove %s` "
				   "removes it all the same.",
				   id);
	return 0;
}

static int write_without(const char *path, const struct ig_keys *keys, void *ctx,
			 struct ig_api_error *e, struct ig_error *err)
{
	const char *id = ctx;

	return check_remove(keys, id, e) ? 0 : ig_keys_write(path, keys, id, NULL, err);
}

static void remove_key(struct ig_errand *e)
{
	struct ig_json_writer w = { .out = &e->out };

	change(e->api, &e->error, e->name, write_without);
	if (!e->error.status)
		ig_json_putf(&w, "{'object': 'key', 'id': %s, 'deleted': true}", e->name);
}

bool ig_keys_below(struct ig_exchange *x, const struct ig_http_request *r, const char *id)
{
	struct ig_errand *e;

	if (!ig_key_id_ok(id))
		return false;
	if (strcmp(r->method, "DELETE")) {
		ig_exchange_wrong_method(x, r, "DELETE");
		return true;
	}
	e = ig_errand_create(x, remove_key);
	if (!e)
		return true;
	snprintf(e->name, sizeof e->name, "%s", id);
	ig_errand_start(e);
	return true;
}

/* ---- add ------------------------------------------------------------------------------------------ */

/* As the body has it; a limit of -1: the configuration's. */
struct body {
	bool begins; /* a member at 0 is none to ig_params_read */
	char *id, *role, *note;
	int32_t limits[3], weight, priority;
};
#define AT(member) offsetof(struct body, member)

static const struct ig_param params[] = {
	{ "id", IG_PARAM_STRING, AT(id) },
	{ "role", IG_PARAM_STRING, AT(role) },
	{ "note", IG_PARAM_STRING, AT(note) },
	{ "max_concurrent", IG_PARAM_INT, AT(limits[0]), 0, IG_LIMIT_MAX },
	{ "requests_per_minute", IG_PARAM_INT, AT(limits[1]), 0, IG_LIMIT_MAX },
	{ "tokens_per_minute", IG_PARAM_INT, AT(limits[2]), 0, IG_LIMIT_MAX },
	{ "weight", IG_PARAM_INT, AT(weight), 1, IG_WEIGHT_MAX },
	{ "priority", IG_PARAM_INT, AT(priority), -IG_PRIORITY_MAX, IG_PRIORITY_MAX },
	{ NULL },
};

static int read_role(const char *name, enum ig_role *out, struct ig_api_error *e)
{
	static const enum ig_role roles[] = { IG_ROLE_USER, IG_ROLE_ADMINISTRATOR,
					      IG_ROLE_MONITOR };

	*out = IG_ROLE_USER;
	for (size_t i = 0; i < 3; i++)
		if (!name || !strcmp(name, ig_role_name(roles[i]))) {
			*out = name ? roles[i] : IG_ROLE_USER;
			return 0;
		}
	return ig_fail_value(e, "role", "expected user, administrator or monitor");
}

static int make_key(const struct body *b, struct ig_key *key, struct ig_api_error *e)
{
	uint32_t *limits[3] = { &key->limits.max_concurrent, &key->limits.requests_per_minute,
				&key->limits.tokens_per_minute };

	if (b->id && b->id[0] && !ig_key_id_ok(b->id))
		return ig_fail_value(e, "id", "expected 1 to %d of a-z 0-9 _ -", IG_KEY_ID_CAP - 1);
	if (b->note && b->note[0] && !ig_key_note_ok(b->note))
		return ig_fail_value(
			e, "note",
			"expected one line of at most %d bytes, without spaces at its ends",
			IG_KEY_NOTE_CAP - 1);
	for (int i = 0; i < 3; i++)
		if (b->limits[i] >= 0)
			*limits[i] = b->limits[i] ? (uint32_t)b->limits[i] : IG_LIMIT_NONE;
	key->weight = (uint32_t)b->weight;
	key->priority = b->priority;
	snprintf(key->id, sizeof key->id, "%s", b->id ? b->id : "");
	snprintf(key->note, sizeof key->note, "%s", b->note ? b->note : "");
	return read_role(b->role, &key->role, e);
}

static int check(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	struct body b = { .limits = { -1, -1, -1 } };

	r->new_key = calloc(1, sizeof *r->new_key);
	int rc = r->new_key ? ig_params_read(r, &b, params, NULL, root, e) : ig_fail_memory(e);
	if (!rc)
		rc = make_key(&b, &r->new_key->key, e);
	free(b.id);
	free(b.role);
	free(b.note);
	return rc;
}

static const struct ig_request_format add_request = { .check = check };

static int check_add(const struct ig_keys *keys, const struct ig_key *key, const char *path,
		     struct ig_api_error *e)
{
	if (key->id[0] && ig_keys_by_id(keys, key->id))
		return ig_api_fail(e, 409, "key_exists", "id",
				   "A key %s exists; remove it first, or choose another id.",
				   key->id);
	if (ig_keys_count(keys) == IG_KEYS_MAX)
		return ig_api_fail(e, 409, "too_many_keys", NULL, "%.300s is full: it has %d keys.",
				   path, IG_KEYS_MAX);
	if (key->role != IG_ROLE_ADMINISTRATOR && !ig_keys_have_administrator(keys, NULL))
		return ig_api_fail(e, 409, "no_administrator", "role",
				   "The first key must be an administrator's: from then on every "
				   "request needs a key.");
	return 0;
}

static int write_with(const char *path, const struct ig_keys *keys, void *ctx,
		      struct ig_api_error *e, struct ig_error *err)
{
	struct ig_new_key *n = ctx;

	if (check_add(keys, &n->key, path, e) < 0)
		return 0;
	int rc = ig_key_generate(keys, &n->key, n->token, err);
	return rc ? rc : ig_keys_write(path, keys, NULL, &n->key, err);
}

/* Prep's thread. */
static void add(struct ig_reply *r) { change(r->api, &r->error, r->request.new_key, write_with); }

/* The key itself is shown this once. */
static void whole(struct ig_reply *r, struct ig_strbuf *out)
{
	const struct ig_new_key *n = r->request.new_key;
	struct ig_json_writer w = { .out = out };

	ig_json_open_object(&w, NULL);
	put_key(&w, &n->key);
	ig_json_put_text(&w, "key", n->token);
	ig_json_close_object(&w);
}

const struct ig_protocol ig_add_key_protocol = {
	.id_prefix = "key-",
	.request = &add_request,
	.act = add,
	.whole = whole,
	.error = ig_error_object,
	.immediate = true,
	.administrative = true,
};
