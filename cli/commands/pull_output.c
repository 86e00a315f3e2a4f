/* pull_output.c: what `ingot pull` prints: lines of JSON, results, choices; see pull_private.h. */
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/commands/command.h"
#include "cli/commands/pull_private.h"
#include "cli/download/files.h"
#include "cli/download/fits.h"
#include "cli/net/served_models.h"
#include "cli/term/text.h"

/* How long a daemon may take to see a new model; it looks each second. */
#define SERVED_S 6
/* Between two lines of JSON about progress. */
#define LINE_NS ((int64_t)500000000)

static void put_out(struct ig_strbuf *b)
{
	puts(ig_strbuf_text(b));
	fflush(stdout);
	ig_strbuf_finish(b);
}

static void put_line(const char *member, const char *text)
{
	struct ig_strbuf b = { 0 };
	struct ig_json_writer w = { .out = &b };

	ig_json_open_object(&w, NULL);
	ig_json_put_text(&w, member, text);
	ig_json_close_object(&w);
	put_out(&b);
}

void pull_put_status(const struct pull *p, const char *status)
{
	if (p->lines)
		put_line("status", status);
}

void pull_begin_file(struct pull *p, const char *kind, const char *hash, uint64_t total)
{
	snprintf(p->digest, sizeof p->digest, "%s:%s", kind, hash);
	p->total = total;
	pull_put_progress(p, 0);
}

void pull_put_progress(struct pull *p, uint64_t done)
{
	const char *hash = strchr(p->digest, ':');
	struct ig_strbuf b = { 0 };
	struct ig_json_writer w = { .out = &b };
	char status[32];

	if (!p->lines)
		return;
	p->told_ns = ig_now_ns();
	snprintf(status, sizeof status, "pulling %.12s", hash ? hash + 1 : "");
	ig_json_putf(&w, "{'status': %s, 'digest': %s", status, p->digest);
	ig_json_put_uint(&w, "total", p->total);
	ig_json_put_uint(&w, "completed", done < p->total ? done : p->total);
	ig_json_close_object(&w);
	put_out(&b);
}

void pull_on_progress(void *ctx, uint64_t done)
{
	struct pull *p = ctx;

	if (ig_now_ns() - p->told_ns >= LINE_NS)
		pull_put_progress(p, done);
}

int pull_fail(const struct pull *p, const char *fmt, ...)
{
	struct ig_strbuf b = { 0 };
	va_list ap;
	int status;

	va_start(ap, fmt);
	ig_text_vformat(&b, fmt, ap);
	va_end(ap);
	if (p->lines)
		put_line("error", ig_strbuf_text(&b));
	status = ig_complain("%s", ig_strbuf_text(&b));
	ig_strbuf_finish(&b);
	return status;
}

/* ---- results ------------------------------------------------------------------------------- */

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

static void print_json(const struct pulled *m)
{
	struct ig_strbuf b = { 0 };
	struct ig_json_writer w = { .out = &b };

	ig_json_putf(&w, "{'name': %s, 'path': %s", m->name, m->path);
	ig_json_put_uint(&w, "bytes", m->n_bytes);
	ig_json_putf(&w, "'sha256': %s, 'license': %s, 'was_there': %-s", m->sha256, m->license,
		     ig_json_bool(m->was_there));
	if (m->source)
		ig_json_putf(&w, "'source': %s, 'revision': %s", m->source, m->revision);
	ig_json_close_object(&w);
	put_out(&b);
}

/* What comes next.  A running daemon sees the folder change, within some seconds. */
static void say_served(const char *name)
{
	const struct ig_where where = { 0 };
	struct ig_error err = { 0 };
	struct ig_endpoint e;
	json_t *list = NULL;
	bool served = false, runs = false;

	for (int i = 0; !served && !ig_interrupted && i < SERVED_S * 10; i++) {
		if (i)
			ig_wait_s(0.1);
		if (ig_endpoint_open(&where, &e, &err) || !(list = ig_served_list(&e, &err)))
			break;
		runs = true;
		served = ig_served_has(list, name);
		json_decref(list);
	}
	if (served)
		fprintf(stderr, "ingotd serves it: ingot chat %s\n", name);
	else if (runs)
		fprintf(stderr,
			"the ingotd at %s does not serve it yet: it has another models.folder, or waits "
			"for SIGHUP (server.watch_config)\n",
			e.url);
	else
		fprintf(stderr, "when ingotd runs, it serves it: ingot chat %s\n", name);
}

void pull_print_result(const struct pull *p, const struct pulled *m)
{
	if (p->json || p->lines) {
		print_json(m);
		return;
	}
	printf("%s\n", m->path);
	fflush(stdout);
	if (p->is_served) {
		say_served(m->name);
		return;
	}
	if (isatty(STDOUT_FILENO))
		fputs("To serve it, add to ingot.yaml:\n", stderr);
	printf("models:\n  - name: %s\n    path: ", m->name);
	print_yaml_string(m->path);
	putchar('\n');
}

/* ---- choices ---------------------------------------------------------------------------------- */

static void print_choices_json(const struct ig_hub_repo *repo, const struct ig_hub_choices *c,
			       const struct ig_fit *fit, const char *why)
{
	struct ig_strbuf b = { 0 };
	struct ig_json_writer w = { .out = &b };

	ig_json_putf(&w, "{'error': %s, 'known': false, 'memory': %llu, 'cache': %llu", why,
		     (unsigned long long)fit->budget, (unsigned long long)fit->cache);
	ig_json_open_array(&w, "choices");
	for (size_t i = 0; i < c->n; i++)
		ig_json_putf(&w,
			     "{'choice': %s, 'bytes': %llu, 'fits': %-s, 'complete': %-s, "
			     "'file': %s}",
			     c->list[i].label, (unsigned long long)c->list[i].n_bytes,
			     ig_json_bool(ig_fits(fit, c->list[i].n_bytes)),
			     ig_json_bool(c->list[i].is_complete),
			     c->list[i].n_files ? repo->files[c->list[i].files[0]].path : NULL);
	ig_json_close_array(&w);
	ig_json_close_object(&w);
	put_out(&b);
}

static void print_choices_table(const struct ig_hub_repo *repo, const struct ig_hub_choices *c,
				const struct ig_fit *fit)
{
	static const char *const headers[] = { "CHOICE", ">SIZE", "MEMORY", "FILE" };
	char size[32], cache[32];
	struct ig_table t;

	ig_table_init(&t, headers, sizeof headers / sizeof headers[0]);
	for (size_t i = 0; i < c->n; i++) {
		const struct ig_hub_choice *x = &c->list[i];
		const char *path = repo->files[x->files[0]].path;
		ig_table_add(&t, x->label);
		ig_table_add(&t, ig_text_bytes(size, sizeof size, x->n_bytes));
		ig_table_add(&t, ig_fits(fit, x->n_bytes) ? "fits" : "does not fit");
		if (!x->is_complete)
			ig_table_addf(&t, "%s (parts are missing)", path);
		else if (x->n_files > 1)
			ig_table_addf(&t, "%s and %zu more", path, x->n_files - 1);
		else
			ig_table_add(&t, path);
	}
	ig_table_print(&t);
	ig_table_finish(&t);
	printf("\nmemory for models: %s, of which the cache gets %s\n",
	       ig_text_bytes(size, sizeof size, fit->budget),
	       ig_text_bytes(cache, sizeof cache, fit->cache));
	fflush(stdout);
}

int pull_print_choices(const struct pull *p, const struct ig_hub_repo *repo,
		       const struct ig_hub_choices *choices, const char *why)
{
	struct ig_fit fit;

	ig_fit_read(&fit);
	if (p->json || p->lines)
		print_choices_json(repo, choices, &fit, why);
	else
		print_choices_table(repo, choices, &fit);
	return ig_complain("%s", why);
}
