/*
 * launch.c: `ingot launch AGENT`: starts a coding agent with the settings for this daemon, for one
 * run.  Nothing of the agent's configuration is changed.  It is checked first that the agent is
 * installed and that the daemon has the model and can load it.  The agent replaces this process,
 * so signals and the exit status are the agent's.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/nearest.h"
#include "cli/commands/command.h"
#include "cli/launch/agents.h"
#include "cli/net/http_client.h"
#include "cli/net/served_models.h"
#include "cli/options.h"
#include "cli/term/text.h"

#define AGAIN_MS 500

struct launch {
	const struct ig_agent *agent;
	const char *model; /* NULL: the daemon's default */
	bool print;
	struct ig_where where;
	struct ig_endpoint endpoint;
	struct ig_agent_facts facts;
	json_t *served; /* the daemon's list, which has the model's name */
	int n_args;	/* for the agent */
	char **args;
};

/* ---- the agent's program ------------------------------------------------------------------ */

/* The program's path by PATH; an empty entry is the current folder. */
static bool find_program(const char *name, char *out, size_t size)
{
	const char *path = getenv("PATH");
	struct stat st;

	for (const char *p = path ? path : "/usr/bin:/bin", *end;; p = end + 1) {
		end = p + strcspn(p, ":");
		int n = snprintf(out, size, "%.*s%s%s", (int)(end - p), p, end > p ? "/" : "",
				 name);
		if (n > 0 && (size_t)n < size && !stat(out, &st) && S_ISREG(st.st_mode) &&
		    !access(out, X_OK))
			return true;
		if (!*end)
			return false;
	}
}

static int list_agents(void)
{
	static const char *const headers[] = { "AGENT", "INSTALLED" };
	struct ig_table t;
	char path[4096];
	int rc;

	ig_table_init(&t, headers, 2);
	for (const struct ig_agent *a = ig_agents; a->name; a++) {
		ig_table_add(&t, a->name);
		if (find_program(a->program, path, sizeof path))
			ig_table_add(&t, path);
		else
			ig_table_addf(&t, "no: %s", a->install);
	}
	rc = ig_table_print(&t);
	ig_table_finish(&t);
	return rc ? IG_EXIT_FAILED : IG_EXIT_OK;
}

/* ---- the model ------------------------------------------------------------------------ */

/* The named model's entry, or the default's; NULL after a complaint. */
static const json_t *find_model(struct launch *l)
{
	const json_t *entry = l->model ? ig_served_find(l->served, l->model) : NULL;
	size_t n = json_array_size(l->served);
	struct ig_strbuf names = { 0 };

	for (size_t i = 0; !l->model && !entry && i < n; i++)
		if (json_is_true(json_object_get(json_array_get(l->served, i), "default")))
			entry = json_array_get(l->served, i);
	/* it becomes a part of JSON and TOML */
	if (entry && ig_is_model_name(ig_json_text(entry, "id")))
		return entry;
	for (size_t i = 0; i < n; i++)
		ig_strbuf_printf(&names, "%s%s", i ? ", " : "", ig_served_name(l->served, i));
	if (l->model)
		ig_complain("launch: %s serves no model %s; it serves %s", l->endpoint.url,
			    l->model, n ? ig_strbuf_text(&names) : "none");
	else
		ig_complain("launch: %s has no default model; name one with --model: %s",
			    l->endpoint.url, n ? ig_strbuf_text(&names) : "it serves none");
	ig_strbuf_finish(&names);
	return NULL;
}

/* Have the daemon load the model, and wait; any key may: a request for tokens loads it as any
 * other request does.  The reply has the window. */
static int load_model(struct launch *l)
{
	json_t *body = json_pack("{s:s, s:s}", "model", l->facts.model, "prompt", ""), *reply;
	struct ig_error err = { 0 };
	char code[64];
	long http;
	int rc;

	if (!body)
		return ig_complain("out of memory");
	for (;;) {
		rc = ig_http_post_json(&l->endpoint, "/v1/tokenize", body, 0, &reply, &http, code,
				       &err);
		if (!rc || strcmp(code, "model_loading"))
			break;
		poll(NULL, 0, AGAIN_MS);
	}
	json_decref(body);
	if (rc)
		return ig_complain("launch: %s cannot be used: %s", l->facts.model, err.text);
	l->facts.window = json_integer_value(json_object_get(reply, "max_model_len"));
	json_decref(reply);
	return 0;
}

static void check_window(const struct launch *l)
{
	long long window = l->facts.window, prompt = l->agent->n_prompt;

	if (!window)
		ig_complain("launch: the window of %s is not known before it is loaded; settings "
			    "with it are left out",
			    l->facts.model);
	else if (window <= prompt)
		ig_complain("launch: the window of %s has %lld tokens; the prompt and tools of %s "
			    "alone take about %lld: its requests will be refused",
			    l->facts.model, window, l->agent->name, prompt);
	else if (window < 2 * prompt)
		ig_complain("launch: the window of %s has %lld tokens; the prompt and tools of %s "
			    "take about %lld of them",
			    l->facts.model, window, l->agent->name, prompt);
}

/* Find out the facts.  0, or the exit status. */
static int ask_daemon(struct launch *l)
{
	struct ig_error err = { 0 };
	const json_t *entry;

	l->served = ig_served_list(&l->endpoint, &err);
	if (!l->served && err.code == -EPROTO)
		return ig_complain("launch: %s", err.text);
	if (!l->served)
		return ig_endpoint_complain(&l->endpoint, err.code, err.text);
	entry = find_model(l);
	if (!entry)
		return IG_EXIT_FAILED;
	l->facts.model = ig_json_text(entry, "id");
	l->facts.window = json_integer_value(json_object_get(entry, "max_input_tokens"));
	if (!l->print && (strcmp(ig_served_state(entry), "ready") || !l->facts.window)) {
		fprintf(stderr, "ingot: loading %s\n", l->facts.model);
		if (load_model(l))
			return IG_EXIT_FAILED;
	}
	check_window(l);
	return 0;
}

/* ---- the start ------------------------------------------------------------------------ */

static int show_command(const struct launch *l)
{
	struct ig_strbuf b = { 0 };
	int rc = 0;

	ig_agent_command(&b, l->agent, &l->facts, l->n_args, l->args);
	ig_strbuf_puts(&b, "\n");
	if (!ig_strbuf_ok(&b))
		rc = ig_complain("out of memory");
	else if (!l->print)
		fputs(b.data, stderr);
	else if (fputs(b.data, stdout) == EOF)
		rc = ig_complain("standard output: %s", strerror(errno));
	ig_strbuf_finish(&b);
	return rc;
}

/* Set one variable of this process, which will be the agent's. */
static int set_variable(const struct launch *l, const char *name, const char *value)
{
	struct ig_strbuf b = { 0 };
	int rc = 0;

	if (!value)
		return unsetenv(name);
	if (ig_agent_fill(&b, value, &l->facts))
		rc = ig_strbuf_ok(&b) ? setenv(name, ig_strbuf_text(&b), 1) : -1;
	ig_strbuf_finish(&b);
	return rc;
}

static int set_environment(const struct launch *l)
{
	for (const struct ig_agent_variable *v = l->agent->env; v->name; v++)
		if (set_variable(l, v->name, v->value))
			return -1;
	return l->agent->cacert ? set_variable(l, l->agent->cacert, "{cacert}") : 0;
}

/* The agent's arguments: [program, its templates, the user's, NULL].  NULL without memory; they are
 * not freed, since the agent replaces this process. */
static char **make_arguments(const struct launch *l)
{
	const struct ig_agent *a = l->agent;
	size_t n = 0, n_templates = 0;
	char **argv;

	while (a->args[n_templates])
		n_templates++;
	argv = calloc(n_templates + (size_t)l->n_args + 3, sizeof *argv);
	if (!argv)
		return NULL;
	argv[n++] = (char *)(uintptr_t)a->program;
	for (size_t i = 0; i < n_templates; i++) {
		struct ig_strbuf b = { 0 };
		if (ig_agent_fill(&b, a->args[i], &l->facts) && !(argv[n++] = ig_strbuf_steal(&b)))
			return NULL;
		ig_strbuf_finish(&b);
	}
	if (!l->n_args && a->alone)
		argv[n++] = (char *)(uintptr_t)a->alone;
	for (int i = 0; i < l->n_args; i++)
		argv[n++] = l->args[i];
	return argv;
}

static int start_agent(const struct launch *l, const char *path)
{
	char **argv = make_arguments(l);

	if (!argv || set_environment(l))
		return ig_complain("out of memory");
	fflush(NULL);
	execv(path, argv);
	return ig_complain("launch: %s: %s", path, strerror(errno));
}

/* What can be checked without the daemon.  0, or the exit status. */
static int check_agent(const struct launch *l, char *path, size_t size)
{
	const struct ig_agent *a = l->agent;
	const struct ig_endpoint *e = &l->endpoint;

	if (e->socket[0])
		return ig_complain("launch: agents cannot use a unix socket (%s); give the daemon "
				   "an address with server.host",
				   e->url);
	if (a->no_key && e->api_key[0])
		return ig_complain("launch: %s takes an API key only as an argument, which other "
				   "users of the machine can read; it can only use a daemon "
				   "without keys",
				   a->name);
	if (!a->cacert && e->cacert[0])
		return ig_complain("launch: %s cannot be told which certificates to trust; add "
				   "%s to the system's",
				   a->name, e->cacert);
	if (!l->print && !find_program(a->program, path, size))
		return ig_complain("launch: %s is not in PATH; to install it: %s", a->program,
				   a->install);
	return 0;
}

static int launch(struct launch *l)
{
	struct ig_error err = { 0 };
	char path[4096];
	int status;

	if (ig_endpoint_open(&l->where, &l->endpoint, &err))
		return ig_complain("%s", err.text);
	l->facts.url = l->endpoint.url;
	l->facts.key = l->endpoint.api_key;
	l->facts.cacert = l->endpoint.cacert;
	status = check_agent(l, path, sizeof path);
	if (!status)
		status = ask_daemon(l);
	if (!status)
		status = show_command(l);
	if (!status && !l->print)
		status = start_agent(l, path);
	json_decref(l->served);
	return status;
}

int ig_launch_main(int argc, char **argv)
{
	struct launch l = { 0 };
	const struct ig_option opts[] = {
		IG_TEXT("model", 'm', &l.model, "NAME", "the model (default: the daemon's)"),
		IG_FLAG("print", 0, &l.print,
			"print the command with its settings, and start nothing"),
		IG_WHERE_OPTIONS(&l.where),
		{ 0 },
	};
	char hint[96];
	int n = 0, n_args, status;

	/* what stands behind "--" is the agent's, whatever it looks like */
	while (n < argc && strcmp(argv[n], "--"))
		n++;
	l.n_args = n < argc ? argc - n - 1 : 0;
	l.args = argv + n + 1;
	status = ig_command_start(
		"launch [options] [AGENT [-- ARGUMENT…]]",
		"Start a coding agent with the settings for this daemon, for one run: nothing of its\n"
		"configuration is changed.  Without AGENT, list those that are known.",
		opts, n, argv, &n_args);
	if (status >= 0)
		return status;
	if (!n_args)
		return l.n_args ? ig_wrong_usage("launch", "which agent?") : list_agents();
	if (n_args > 1)
		return ig_wrong_usage(
			"launch", "unexpected '%s'; the agent's own arguments follow --", argv[1]);
	l.agent = ig_agent_find(argv[0]);
	if (!l.agent)
		return ig_wrong_usage(
			"launch", "unknown agent '%s'%s; `ingot launch` lists them", argv[0],
			ig_did_you_mean(hint, argv[0], "", ig_agents, sizeof *ig_agents));
	if (l.model && !ig_is_model_name(l.model))
		return ig_wrong_usage("launch", "'%s' is not a model's name", l.model);
	return launch(&l);
}
