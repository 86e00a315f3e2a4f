/*
 * backup.c: `ingot backup`: copies what a daemon cannot make again to a new folder: ledger, stored
 * responses, configuration and API keys.  Reads files alone, so the daemon may run or not.  The folder is whole
 * or, after an error, not there.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/commands/command.h"
#include "cli/options.h"
#include "cli/term/text.h"
#include "store/config.h"
#include "store/keys.h"
#include "store/ledger.h"
#include "store/response_file.h"

#define MAX_FILE_BYTES (64 << 20) /* of the configuration and of the keys */

enum part { LEDGER, RESPONSES, CONFIG, KEYS, N_PARTS };

static const struct {
	const char *what, *file; /* its name in the folder */
} parts[N_PARTS] = {
	[LEDGER] = { "ledger", "ledger.db" },
	[RESPONSES] = { "responses", "responses.db" },
	[CONFIG] = { "configuration", "ingot.yaml" },
	[KEYS] = { "keys", "keys" },
};

struct backup {
	const struct ig_config *config;
	const char *from[N_PARTS]; /* NULL: there is none */
	char *to[N_PARTS];
	int64_t counts[N_PARTS]; /* of requests, responses, models, keys */
};

static bool exists(const char *path) { return access(path, F_OK) == 0 || errno != ENOENT; }

static void find_parts(struct backup *b)
{
	const struct ig_config *c = b->config;

	if (c->ledger.enabled && exists(c->ledger.path))
		b->from[LEDGER] = c->ledger.path;
	if (c->responses.persist && exists(c->responses.path))
		b->from[RESPONSES] = c->responses.path;
	if (exists(c->file)) /* it is "defaults" where there is none */
		b->from[CONFIG] = c->file;
	if (c->server.keys_file[0] && exists(c->server.keys_file))
		b->from[KEYS] = c->server.keys_file;
}

static int copy_config(struct backup *b, struct ig_error *err)
{
	struct ig_strbuf text = { 0 };
	int rc = ig_read_file(b->from[CONFIG], MAX_FILE_BYTES, &text, err);

	if (!rc)
		rc = ig_replace_file(b->to[CONFIG], text.data, text.len, err);
	b->counts[CONFIG] = (int64_t)b->config->n_models;
	ig_strbuf_finish(&text);
	return rc;
}

/* Keys that the daemon would refuse are refused here: a backup must be of use. */
static int copy_keys(struct backup *b, struct ig_error *err)
{
	struct ig_keys *keys = NULL;
	struct ig_strbuf text = { 0 };
	int rc = ig_read_file(b->from[KEYS], MAX_FILE_BYTES, &text, err);

	if (!rc)
		rc = ig_keys_parse(text.data, text.len, b->from[KEYS], &keys, err);
	if (!rc)
		rc = ig_replace_file(b->to[KEYS], text.data, text.len, err);
	b->counts[KEYS] = (int64_t)ig_keys_count(keys);
	ig_keys_destroy(keys);
	ig_strbuf_finish(&text);
	return rc;
}

static int copy_part(struct backup *b, enum part part, struct ig_error *err)
{
	if (!b->from[part])
		return 0;
	if (part == LEDGER)
		return ig_ledger_copy(b->from[part], b->to[part], &b->counts[part], err);
	if (part == RESPONSES)
		return ig_response_file_copy(b->from[part], b->to[part], &b->counts[part], err);
	return part == CONFIG ? copy_config(b, err) : copy_keys(b, err);
}

static int name_parts(struct backup *b, const char *folder, struct ig_error *err)
{
	for (int i = 0; i < N_PARTS; i++) {
		struct ig_strbuf path = { 0 };
		ig_strbuf_printf(&path, "%s/%s", folder, parts[i].file);
		b->to[i] = ig_strbuf_steal(&path);
		ig_strbuf_finish(&path);
		if (!b->to[i])
			return ig_fail(err, -ENOMEM, "out of memory");
	}
	return 0;
}

static int write_folder(struct backup *b, const char *folder, struct ig_error *err)
{
	int rc = name_parts(b, folder, err);

	if (rc)
		return rc;
	if (!b->from[LEDGER] && !b->from[RESPONSES] && !b->from[CONFIG] && !b->from[KEYS])
		return ig_fail(
			err, -ENOENT,
			"there is neither a ledger nor stored responses, a configuration or a "
			"file of keys");
	if ((rc = ig_make_folders_above(folder, 0700, err)))
		return rc;
	if (mkdir(folder, 0700))
		return ig_fail(err, -errno, "%.300s: %s", folder,
			       errno == EEXIST ? "exists; name a new folder" : strerror(errno));
	for (enum part i = 0; i < N_PARTS && !rc; i++)
		rc = copy_part(b, i, err);
	if (rc) {
		for (int i = 0; i < N_PARTS; i++)
			unlink(b->to[i]);
		rmdir(folder);
	}
	return rc;
}

static void print_part(const struct backup *b, enum part part)
{
	static const char *const units[N_PARTS] = { "request", "response", "model", "key" };
	struct stat st = { 0 };
	char size[32];

	if (!b->from[part]) {
		printf("%-13s  none to copy\n", parts[part].what);
		return;
	}
	stat(b->to[part], &st);
	printf("%-13s  %s: %s, %" PRId64 " %s%s\n", parts[part].what, b->to[part],
	       ig_text_bytes(size, sizeof size, (uint64_t)st.st_size), b->counts[part], units[part],
	       b->counts[part] == 1 ? "" : "s");
}

int ig_backup_main(int argc, char **argv)
{
	const char *config = NULL;
	const struct ig_option opts[] = {
		IG_TEXT("config", 'c', &config, "FILE",
			"the ingot.yaml to copy, which names the other files"),
		{ 0 },
	};
	struct ig_error err = { 0 };
	struct ig_config *c = NULL;
	struct backup b = { 0 };
	int n_args = 0;
	int rc = ig_command_start(
		"backup FOLDER [options]",
		"Copy the ledger, the configuration and the file of API keys to a new folder.\n"
		"The daemon may run meanwhile.  Models and certificates are not copied.",
		opts, argc, argv, &n_args);

	if (rc >= 0)
		return rc;
	if (n_args != 1 || !argv[0][0])
		return ig_wrong_usage("backup", "name the folder to create");
	for (size_t len = strlen(argv[0]); len > 1 && argv[0][len - 1] == '/'; len--)
		argv[0][len - 1] = 0;
	rc = ig_config_load_or_defaults(config, &c, &err);
	if (!rc) {
		b.config = c;
		find_parts(&b);
		rc = write_folder(&b, argv[0], &err);
	}
	if (rc)
		ig_complain("%s", err.text);
	for (enum part i = 0; i < N_PARTS; i++) {
		if (!rc)
			print_part(&b, i);
		free(b.to[i]);
	}
	if (!rc && c->server.tls_key[0])
		printf("not copied: %s, %s\n", c->server.tls_cert, c->server.tls_key);
	ig_config_destroy(c);
	return rc ? IG_EXIT_FAILED : IG_EXIT_OK;
}
