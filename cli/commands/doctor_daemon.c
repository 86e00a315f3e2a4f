/* doctor_daemon.c: what `ingot doctor` says of the ledger and its disk, and of the daemon that runs. */
#include "cli/commands/doctor_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/net/http_client.h"
#include "cli/net/served_models.h"
#include "cli/term/text.h"
#include "store/ledger.h"

#define TIMEOUT_MS 3000
#define LOW_DISK_BYTES (16u << 20)

/* ---- the ledger -------------------------------------------------------------------------- */

/* dir: where the ledger is or will be. */
static void check_disk(struct ig_doctor *d, const char *dir)
{
	struct statvfs fs;
	char space[32];

	if (statvfs(dir, &fs))
		return;
	uint64_t n = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (n < LOW_DISK_BYTES)
		WRONG(d, "ledger", "free some space, or change ledger.path",
		      "the disk of %s is full: %s are left; requests are served, but without space "
		      "they have no row",
		      dir, ig_text_bytes(space, sizeof space, n));
}

void ig_doctor_ledger(struct ig_doctor *d)
{
	const char *path = d->config->ledger.path;
	struct ig_ledger_stats *s = NULL;
	struct ig_error err = { 0 };
	struct stat st;
	int64_t n_requests = 0;
	size_t n = 0;
	char dir[4096];

	if (!d->config->ledger.enabled) {
		NOTE(d, "ledger", NULL, "disabled (ledger.enabled)");
		return;
	}
	if (stat(path, &st) == 0) {
		if (access(path, W_OK)) {
			WRONG(d, "ledger", "let the daemon's user write it, or change ledger.path",
			      "%s cannot be written: %s", path, strerror(errno));
		} else if (ig_ledger_stats(path, IG_LEDGER_BY_MODEL, 0, &s, &n, &err)) {
			WRONG(d, "ledger",
			      "move the file (the daemon creates a new one), or change ledger.path",
			      "%s", err.text);
		} else {
			for (size_t i = 0; i < n; i++)
				n_requests += s[i].n_requests;
			OK(d, "ledger", "%s: %lld requests", path, (long long)n_requests);
		}
		free(s);
		check_disk(d, path);
		return;
	}
	/* it does not exist: the nearest existing folder above it must be writable */
	snprintf(dir, sizeof dir, "%s", path);
	for (;;) {
		char *slash = strrchr(dir, '/');
		if (!slash)
			strcpy(dir, ".");
		else if (slash == dir)
			dir[1] = 0;
		else
			*slash = 0;
		if (stat(dir, &st) == 0 || !slash || slash == dir)
			break;
	}
	if (!S_ISDIR(st.st_mode) || access(dir, W_OK | X_OK))
		WRONG(d, "ledger", "let the daemon's user write there, or change ledger.path",
		      "%s cannot be created: %s is not a writable folder", path, dir);
	else
		OK(d, "ledger", "%s: the daemon will create it when it starts", path);
	check_disk(d, dir);
}

/* ---- the daemon -------------------------------------------------------------------------- */

/* What only the running daemon knows; only administrators are told. */
static void check_status(struct ig_doctor *d, const struct ig_endpoint *e)
{
	struct ig_error err = { 0 };
	json_t *root = NULL;
	long http = 0;

	if (ig_http_get_json(e, "/v1/ingot/status", TIMEOUT_MS, &root, &http, &err) == 0) {
		json_t *ledger = json_object_get(root, "ledger");
		const char *why = ig_json_text(ledger, "error");
		if (json_is_true(json_object_get(ledger, "failing")))
			WRONG(d, "ledger",
			      "free some space on its disk; the daemon goes on by itself",
			      "the daemon cannot write it: %s; requests have no row meanwhile",
			      why ? why : "it does not say why");
		json_t *responses = json_object_get(root, "responses");
		why = ig_json_text(responses, "error");
		if (json_is_true(json_object_get(responses, "failing")))
			WRONG(d, "responses",
			      "free some space on their disk; the daemon goes on by itself",
			      "the daemon cannot write them: %s; a restart forgets them meanwhile",
			      why ? why : "it does not say why");
	}
	json_decref(root);
}

/* Models that the daemon could not load; only administrators get the causes. */
static void check_served(struct ig_doctor *d, const struct ig_endpoint *e)
{
	struct ig_error err = { 0 };
	json_t *list = ig_served_list(e, &err);
	char what[160];

	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *m = json_array_get(list, i);
		const char *why = ig_json_text(m, "error");
		if (strcmp(ig_served_state(m), "failed"))
			continue;
		snprintf(what, sizeof what, "model %.140s", ig_served_name(list, i));
		WRONG(d, what, "correct it, then: ingot models load",
		      "the daemon could not load it: %s",
		      why ? why : "only administrators get the cause");
	}
	json_decref(list);
}

void ig_doctor_daemon(struct ig_doctor *d, const struct ig_where *where)
{
	struct ig_endpoint e;
	struct ig_error err = { 0 };
	json_t *root = NULL;
	long http = 0;

	if (ig_endpoint_open(where, &e, &err)) {
		/* an error of the configuration is reported already */
		NOTE(d, "daemon", NULL, "not checked: %s", err.text);
		return;
	}
	if (ig_http_get_json(&e, "/healthz", TIMEOUT_MS, &root, &http, &err) == 0) {
		OK(d, "daemon", "runs at %s", e.url);
		check_served(d, &e);
		check_status(d, &e);
	} else if (!http) {
		NOTE(d, "daemon",
		     "start it: ingotd, or as a service: brew services start ingot, systemctl start "
		     "ingot",
		     "none at %s (%s)", e.url, err.text);
	} else {
		WRONG(d, "daemon", "if it is another program, change server.port", "%s", err.text);
	}
	json_decref(root);
}
