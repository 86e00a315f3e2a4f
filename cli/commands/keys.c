/* keys.c: `ingot keys`: adds, lists and removes API keys.  Changes the file alone: the daemon need
 * not run, and a running one reads the file again on SIGHUP. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/nearest.h"
#include "cli/commands/command.h"
#include "cli/options.h"
#include "cli/term/text.h"
#include "store/config.h"
#include "store/keys.h"

#define RELOAD "a running daemon reads the file again on SIGHUP: kill -HUP $(pgrep -x ingotd)"

struct options {
	const char *file, *config, *note;
	bool admin, monitor;
	bool given[3];	   /* the limits */
	int64_t limits[3]; /* max_concurrent, requests and tokens per minute */
	bool weighs, ranks;
	int64_t weight, priority;
};

/* The file's path, from --file or the configuration. */
static int find_file(const struct options *a, char **out, struct ig_error *err)
{
	struct ig_config *c = NULL;
	int rc = a->file ? 0 : ig_config_load_or_defaults(a->config, &c, err);

	if (rc)
		return rc;
	if (c && !c->server.keys_file[0])
		rc = ig_fail(err, -ENOENT,
			     "HOME is not set, so server.keys_file has no default; name a "
			     "file with --file");
	else if (!(*out = strdup(c ? c->server.keys_file : a->file)))
		rc = ig_fail(err, -ENOMEM, "out of memory");
	ig_config_destroy(c);
	return rc;
}

static void warn_no_administrator(void)
{
	fputs("no administrator's key is left, and `ingot ps` needs one: ingot keys add --admin\n",
	      stderr);
}

/* ---- add --------------------------------------------------------------------------- */

static int add(const struct options *a, const char *path, const char *id, struct ig_error *err)
{
	struct ig_key key = { .role = a->admin	 ? IG_ROLE_ADMINISTRATOR :
				      a->monitor ? IG_ROLE_MONITOR :
						   IG_ROLE_USER,
			      .weight = (uint32_t)a->weight,
			      .priority = (int32_t)a->priority };
	uint32_t *limits[3] = { &key.limits.max_concurrent, &key.limits.requests_per_minute,
				&key.limits.tokens_per_minute };
	char token[IG_KEY_TOKEN_CAP];
	struct ig_keys *keys = NULL;
	int rc, lock;

	if (id && !ig_key_id_ok(id))
		return ig_fail(err, -EINVAL, "'%.80s' is not a key's id: 1 to %d of a-z 0-9 _ -",
			       id, IG_KEY_ID_CAP - 1);
	if (a->note && !ig_key_note_ok(a->note))
		return ig_fail(err, -EINVAL,
			       "--note: one line of at most %d bytes, without spaces at its ends",
			       IG_KEY_NOTE_CAP - 1);
	for (int i = 0; i < 3; i++)
		if (a->given[i])
			*limits[i] = a->limits[i] ? (uint32_t)a->limits[i] : IG_LIMIT_NONE;
	snprintf(key.id, sizeof key.id, "%s", id ? id : "");
	snprintf(key.note, sizeof key.note, "%s", a->note ? a->note : "");
	if ((rc = ig_keys_lock(path, &lock, err)))
		return rc;
	rc = ig_keys_load(path, &keys, err);
	if (!rc && id && ig_keys_by_id(keys, id))
		rc = ig_fail(err, -EEXIST, "a key %s exists; remove it first, or give another id",
			     id);
	if (!rc && ig_keys_count(keys) == IG_KEYS_MAX)
		rc = ig_fail(err, -E2BIG, "%.300s is full: it has %d keys", path, IG_KEYS_MAX);
	if (!rc)
		rc = ig_key_generate(keys, &key, token, err);
	if (!rc)
		rc = ig_keys_write(path, keys, NULL, &key, err);
	close(lock);
	if (!rc) {
		/* The key alone on standard output, for scripts. */
		puts(token);
		fflush(stdout);
		fprintf(stderr, "the key %s (%s) was added to %s; it is shown only this once\n%s\n",
			key.id, ig_role_name(key.role), path, RELOAD);
		if (!ig_keys_have_administrator(keys, NULL) && !a->admin)
			warn_no_administrator();
	}
	memset(token, 0, sizeof token);
	ig_keys_destroy(keys);
	return rc;
}

/* ---- list, remove ------------------------------------------------------------------- */

static void add_limit(struct ig_table *t, uint32_t v)
{
	if (v == IG_LIMIT_NONE)
		ig_table_add(t, "none");
	else if (v)
		ig_table_addf(t, "%u", v);
	else
		ig_table_add(t, "-");
}

static int list(const char *path, struct ig_error *err)
{
	static const char *const headers[] = { "ID",	   "ROLE",	    "CREATED",
					       ">AT ONCE", ">REQUESTS/MIN", ">TOKENS/MIN",
					       ">WEIGHT",  ">PRIORITY",	    "NOTE" };
	struct ig_keys *keys;
	struct ig_table t;
	int rc = ig_keys_load(path, &keys, err);

	if (rc)
		return rc;
	if (!ig_keys_count(keys)) {
		printf(keys ? "no keys in %s: every request is refused\n" :
			      "no keys: %s does not exist, and requests need no key\n",
		       path);
		ig_keys_destroy(keys);
		return 0;
	}
	ig_table_init(&t, headers, sizeof headers / sizeof headers[0]);
	for (size_t i = 0; i < ig_keys_count(keys); i++) {
		const struct ig_key *k = ig_keys_at(keys, i);
		ig_table_add(&t, k->id);
		ig_table_add(&t, ig_role_name(k->role));
		ig_table_add(&t, k->created);
		add_limit(&t, k->limits.max_concurrent);
		add_limit(&t, k->limits.requests_per_minute);
		add_limit(&t, k->limits.tokens_per_minute);
		ig_table_addf(&t, "%u", ig_key_weight(k->weight));
		ig_table_addf(&t, "%d", k->priority);
		ig_table_add(&t, k->note);
	}
	rc = ig_table_print(&t);
	if (rc)
		ig_fail(err, rc, "out of memory");
	ig_table_finish(&t);
	ig_keys_destroy(keys);
	return rc;
}

static int unknown(const struct ig_keys *keys, const char *path, const char *id,
		   struct ig_error *err)
{
	const char **names = calloc(ig_keys_count(keys) + 1, sizeof *names);
	char hint[96] = "";

	for (size_t i = 0; names && i < ig_keys_count(keys); i++)
		names[i] = ig_keys_at(keys, i)->id;
	if (names)
		ig_did_you_mean(hint, id, "", names, sizeof *names);
	free(names);
	return ig_fail(err, -ENOENT, "there is no key '%.80s' in %.300s%s", id, path, hint);
}

static int remove_key(const char *path, const char *id, struct ig_error *err)
{
	struct ig_keys *keys = NULL;
	int lock, rc = ig_keys_lock(path, &lock, err);

	if (rc)
		return rc;
	rc = ig_keys_load(path, &keys, err);
	if (!rc && !ig_keys_by_id(keys, id))
		rc = unknown(keys, path, id, err);
	if (!rc)
		rc = ig_keys_write(path, keys, id, NULL, err);
	close(lock);
	if (!rc) {
		printf("the key %s was removed from %s\n", id, path);
		fflush(stdout);
		fprintf(stderr, "%s\n", RELOAD);
		if (ig_keys_count(keys) == 1)
			fprintf(stderr,
				"no key is left, and every request will be refused; to serve requests "
				"without keys, delete %s and restart the daemon\n",
				path);
		else if (!ig_keys_have_administrator(keys, id))
			warn_no_administrator();
	}
	ig_keys_destroy(keys);
	return rc;
}

/* ---- the command --------------------------------------------------------------------- */

int ig_keys_main(int argc, char **argv)
{
	struct options a = { 0 };
	const struct ig_option opts[] = {
		IG_FLAG("admin", 0, &a.admin, "add: an administrator's key, for every endpoint"),
		IG_FLAG("monitor", 0, &a.monitor, "add: a monitor's key, for /metrics alone"),
		IG_TEXT("note", 0, &a.note, "TEXT", "add: a note, one line"),
		{ "max-concurrent", 0, IG_OPT_INT, &a.limits[0], &a.given[0], "N",
		  "add: the most active requests; 0: no limit (default: limits.…)", 0,
		  IG_LIMIT_MAX },
		{ "requests-per-minute", 0, IG_OPT_INT, &a.limits[1], &a.given[1], "N",
		  "add: the most requests in a minute", 0, IG_LIMIT_MAX },
		{ "tokens-per-minute", 0, IG_OPT_INT, &a.limits[2], &a.given[2], "N",
		  "add: the most tokens in a minute, of prompts and responses", 0, IG_LIMIT_MAX },
		{ "weight", 0, IG_OPT_INT, &a.weight, &a.weighs, "N",
		  "add: its share of the engine beside other clients (default: 1)", 1,
		  IG_WEIGHT_MAX },
		{ "priority", 0, IG_OPT_INT, &a.priority, &a.ranks, "N",
		  "add: the least priority of its requests; smaller ones come first (default: 0)",
		  -IG_PRIORITY_MAX, IG_PRIORITY_MAX },
		IG_TEXT("file", 0, &a.file, "FILE", "the file of keys"),
		IG_TEXT("config", 'c', &a.config, "FILE",
			"the ingot.yaml that names it (server.keys_file)"),
		{ 0 },
	};
	struct ig_error err = { 0 };
	char *path = NULL;
	int n_args,
		rc = ig_command_start(
			"keys add [ID] [options] | keys list | keys remove ID",
			"API keys: once the file of keys exists, requests need one.  A key is printed when "
			"it is\nadded and never again; the file has its SHA-256.",
			opts, argc, argv, &n_args);

	if (rc >= 0)
		return rc;
	const char *verb = n_args ? argv[0] : "", *id = n_args > 1 ? argv[1] : NULL;
	bool adds = !strcmp(verb, "add"), lists = !strcmp(verb, "list"),
	     removes = !strcmp(verb, "remove");
	if (!adds && !lists && !removes)
		return ig_wrong_usage("keys", "expected add, list or remove");
	if (n_args > (lists ? 1 : 2) || (removes && !id))
		return ig_wrong_usage("keys", lists   ? "list takes no argument" :
					      removes ? "remove takes one id" :
							"add takes at most one id");
	bool limited = a.given[0] || a.given[1] || a.given[2];
	if (!adds && (a.admin || a.monitor || a.note || limited || a.weighs || a.ranks))
		return ig_wrong_usage("keys",
				      "--admin, --monitor, --note, --weight, --priority and "
				      "the limits belong to add");
	if (a.admin && a.monitor)
		return ig_wrong_usage("keys", "--admin and --monitor exclude each other");
	rc = find_file(&a, &path, &err);
	if (!rc)
		rc = adds  ? add(&a, path, id, &err) :
		     lists ? list(path, &err) :
			     remove_key(path, id, &err);
	free(path);
	return rc ? ig_complain("%s", err.text) : IG_EXIT_OK;
}
