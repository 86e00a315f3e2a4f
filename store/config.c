/*
 * config.c: creates a configuration from defaults, file and environment, checks it as a whole, and
 * compares two.  The options are in config_table.c; config_parse.c reads the YAML, config_value.c
 * single values.
 */
#include "store/config_private.h"

#include "base/file.h"
#include "base/log.h"
#include "store/model_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULTS "defaults" /* the file of a configuration without one */

extern char **environ;

/* ---- create -------------------------------------------------------------------------- */

void ig_config_destroy(struct ig_config *pub)
{
	struct config *c = (struct config *)pub;

	if (!c)
		return;
	for (size_t i = 0; i < config_n_options; i++)
		config_clear(&config_options[i], &c->pub);
	for (size_t i = 0; i < c->pub.n_models; i++)
		for (size_t j = 0; j < config_n_model_options; j++)
			config_clear(&config_model_options[j], &c->pub.models[i]);
	for (size_t i = 0; i < c->pub.n_models; i++) {
		for (size_t j = 0; j < c->pub.models[i].n_adapters; j++) {
			free(c->pub.models[i].adapters[j].name);
			free(c->pub.models[i].adapters[j].path);
		}
		free(c->pub.models[i].adapters);
	}
	for (size_t i = 0; i < c->pub.n_aliases; i++) {
		free(c->pub.aliases[i].pattern);
		free(c->pub.aliases[i].model);
	}
	config_clear_modules(c);
	ig_prompt_rules_unref(c->pub.kvcache.normalize);
	free(c->pub.aliases);
	free(c->alias_places);
	free(c->pub.models);
	free(c->pub.file);
	free(c->label);
	free(c->dir);
	free(c);
}

/* The absolute folder of a file's path. */
static char *folder_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	struct ig_strbuf b = { 0 };
	char cwd[4096];

	if (path[0] != '/') {
		if (!getcwd(cwd, sizeof cwd))
			return NULL;
		ig_strbuf_puts(&b, cwd);
		if (slash)
			ig_strbuf_puts(&b, "/");
	}
	if (slash)
		ig_strbuf_add(&b, path, slash == path ? 1 : (size_t)(slash - path));
	char *out = ig_strbuf_steal(&b);
	ig_strbuf_finish(&b);
	return out;
}

/* All defaults; label names the file in messages, and paths are relative to its folder. */
static int create(const char *label, struct config **out, struct ig_error *err)
{
	struct config *c = calloc(1, sizeof *c);
	size_t len = strlen(label);
	int rc;

	if (!c)
		return ig_fail(err, -ENOMEM, "out of memory");
	/* A long path must leave space for the message itself. */
	if (asprintf(&c->label, "%s%s", len > 200 ? "..." : "",
		     len > 200 ? label + len - 200 : label) < 0)
		c->label = NULL;
	c->pub.file = strdup(label);
	c->dir = folder_of(label);
	c->pub.kvcache.normalize = ig_prompt_rules_create();
	if (!c->label || !c->pub.file || !c->dir || !c->pub.kvcache.normalize) {
		ig_config_destroy(&c->pub);
		return ig_fail(err, -ENOMEM, "out of memory");
	}
	for (size_t i = 0; i < config_n_options; i++) {
		const struct config_option *o = &config_options[i];
		rc = config_store(c->dir, &c->pub, o, o->key, o->value, strlen(o->value), err);
		if (rc) {
			ig_config_destroy(&c->pub);
			return rc;
		}
	}
	*out = c;
	return 0;
}

/* ---- checks over the whole ------------------------------------------------------------------ */

static const struct ig_config_model *find_model(const struct config *c, const char *name)
{
	for (size_t i = 0; i < c->pub.n_models; i++)
		if (!strcmp(c->pub.models[i].name, name))
			return &c->pub.models[i];
	return NULL;
}

static int check_model(const struct config *c, const char *name, const char *who,
		       struct ig_error *err)
{
	struct ig_strbuf known = { 0 };
	char got[80];

	if (find_model(c, name))
		return 0;
	for (size_t i = 0; i < c->pub.n_models && known.len < 200; i++)
		ig_strbuf_printf(&known, "%s%s", i ? ", " : "", c->pub.models[i].name);
	ig_fail(err, -EINVAL, "%s: there is no model %s; models has %s", who,
		config_quote(name, strlen(name), got),
		known.data	? known.data :
		c->pub.n_models ? "others" :
				  "no entry");
	ig_strbuf_finish(&known);
	return -EINVAL;
}

/* An alias must name a model, and must not hide behind one: a model's own name comes first. */
static int check_aliases(const struct config *c, struct ig_error *err)
{
	for (size_t i = 0; i < c->pub.n_aliases; i++) {
		const struct ig_config_alias *a = &c->pub.aliases[i];
		const struct config_place *p = &c->alias_places[i];
		char who[400];
		int rc;

		snprintf(who, sizeof who, "%s:%u:%u: aliases.%s", c->label, p->line, p->column,
			 a->pattern);
		if ((rc = check_model(c, a->model, who, err)))
			return rc;
		if (find_model(c, a->pattern))
			return ig_fail(err, -EINVAL, "%s: this is the name of a model already",
				       who);
	}
	return 0;
}

/* The start of a message about option o. */
static void describe_place(const struct config *c, const struct config_option *o, char *buf,
			   size_t size)
{
	const struct config_place *p = &c->places[o - config_options];

	if (p->from == FROM_FILE)
		snprintf(buf, size, "%s:%u:%u: %s", c->label, p->line, p->column, o->key);
	else if (p->from == FROM_ENVIRONMENT)
		config_env_name(o, buf);
	else
		snprintf(buf, size, "%s", o->key);
}

/* A certificate needs its key, and the daemon needs an address to listen on. */
static int check_server(const struct config *c, struct ig_error *err)
{
	bool cert = c->pub.server.tls_cert[0], key = c->pub.server.tls_key[0];
	const char *name = cert ? "server.tls_cert" : "server.tls_key";
	char who[320];

	if (cert != key) {
		describe_place(c, config_find(name), who, sizeof who);
		return ig_fail(err, -EINVAL, "%s: server.%s must be set too", who,
			       cert ? "tls_key" : "tls_cert");
	}
	if (!c->pub.server.host[0] && !c->pub.server.unix_socket[0]) {
		describe_place(c, config_find("server.host"), who, sizeof who);
		return ig_fail(err, -EINVAL,
			       "%s: \"\" means no TCP, and server.unix_socket is not set: "
			       "there is nothing to listen on",
			       who);
	}
	return 0;
}

/* ---- models of a folder -------------------------------------------------------------------- */

/* Whether an entry has its name or its file. */
static bool is_overridden(const struct config *c, const struct ig_folder_model *m)
{
	struct stat a, b;

	if (find_model(c, m->name))
		return true;
	if (stat(m->path, &a))
		return false;
	for (size_t i = 0; i < c->pub.n_models; i++)
		if (!stat(c->pub.models[i].path, &b) && a.st_dev == b.st_dev &&
		    a.st_ino == b.st_ino)
			return true;
	return false;
}

static int add_model(struct config *c, const struct ig_folder_model *m, struct ig_error *err)
{
	struct ig_config_model *grown =
		realloc(c->pub.models, (c->pub.n_models + 1) * sizeof *grown);
	int rc = 0;

	if (!grown)
		return ig_fail(err, -ENOMEM, "out of memory");
	c->pub.models = grown;
	grown = &grown[c->pub.n_models++]; /* destroy frees half an entry too */
	*grown = (struct ig_config_model){ 0 };
	for (size_t i = 0; i < config_n_model_options && !rc; i++) {
		const struct config_option *o = &config_model_options[i];
		const char *value = !strcmp(o->key, "name") ? m->name :
				    !strcmp(o->key, "path") ? m->path :
				    !strcmp(o->key, "load") ? "first_use" :
							      o->value;
		rc = config_store(c->dir, grown, o, "models.folder", value, strlen(value), err);
	}
	return rc;
}

/* The models of models.folder that no entry overrides, loaded by their first request. */
static int add_folder(struct config *c, struct ig_error *err)
{
	struct ig_folder_model *list = NULL;
	size_t n = 0;
	int rc = c->pub.models_folder[0] ?
			 ig_model_folder_read(c->pub.models_folder, CONFIG_MAX_MODELS, &list, &n) :
			 0;

	if (rc)
		ig_fail(err, rc, "models.folder: %.300s cannot be read: %s", c->pub.models_folder,
			strerror(-rc));
	size_t n_entries = c->pub.n_models;
	bool *over = calloc(n + 1, sizeof *over);
	if (!rc && !over)
		rc = ig_fail(err, -ENOMEM, "out of memory");
	for (size_t i = 0; !rc && i < n; i++)
		over[i] = is_overridden(c, &list[i]);
	for (size_t i = 0; !rc && i < n && c->pub.n_models < CONFIG_MAX_MODELS; i++)
		if (!over[i])
			rc = add_model(c, &list[i], err);
	free(over);
	c->pub.n_entries = n_entries;
	ig_model_folder_free(list, n);
	return rc;
}

static int check_whole(const struct config *c, struct ig_error *err)
{
	const struct config_option *o = config_find("default_model");
	char who[320];

	describe_place(c, o, who, sizeof who);
	int rc = c->pub.default_model[0] && c->pub.n_models ?
			 check_model(c, c->pub.default_model, who, err) :
			 0;
	if (!rc)
		rc = check_aliases(c, err);
	return rc ? rc : check_server(c, err);
}

/* ---- environment ------------------------------------------------------------------------------ */

/* INGOT_ variables that are not options. */
static const char *const other_variables[] = { "INGOT_CONFIG", "INGOT_URL",
					       "INGOT_MODELS", "INGOT_MODELS_DIR",
					       "INGOT_PYTHON", "INGOT_API_KEY",
					       "INGOT_CACERT", NULL };

static void warn_unknown_variables(void)
{
	for (char **e = environ; e && *e; e++) {
		const char *eq = strchr(*e, '=');
		char name[64], known[64], shown[80];
		bool found = false;

		if (strncmp(*e, "INGOT_", 6) || !eq)
			continue;
		snprintf(name, sizeof name, "%.*s", (int)(eq - *e), *e);
		for (size_t i = 0; other_variables[i]; i++)
			found |= !strcmp(name, other_variables[i]);
		const struct config_option *o = config_nearest_variable(name);
		if (found || (o && !strcmp(name, config_env_name(o, known))))
			continue;
		ig_log_warn("the environment has %s, which is not an option and is ignored%s%s",
			    config_quote(*e, (size_t)(eq - *e), shown), o ? "; did you mean " : "",
			    o ? config_env_name(o, known) : "");
	}
}

static int apply_environment(struct config *c, struct ig_error *err)
{
	char name[64];

	for (size_t i = 0; i < config_n_options; i++) {
		const struct config_option *o = &config_options[i];
		const char *value = getenv(config_env_name(o, name));
		if (!value)
			continue;
		int rc = config_store(c->dir, &c->pub, o, name, value, strlen(value), err);
		if (rc)
			return rc;
		c->places[i] = (struct config_place){ .from = FROM_ENVIRONMENT };
	}
	warn_unknown_variables();
	return 0;
}

/* ---- public -------------------------------------------------------------------------------------- */

static int parse(const char *text, size_t len, const char *label, bool environment,
		 struct ig_config **out, struct ig_error *err)
{
	struct config *c = NULL;
	int rc;

	if (len > CONFIG_MAX_BYTES)
		return ig_fail(err, -EFBIG, "%s: larger than 1 MiB", label);
	if ((rc = create(label, &c, err)))
		return rc;
	if ((rc = config_parse_yaml(c, text, len, err)) ||
	    (environment && (rc = apply_environment(c, err))) || (rc = config_fill_in(c, err)) ||
	    (environment && (rc = add_folder(c, err))) || (rc = check_whole(c, err))) {
		ig_config_destroy(&c->pub);
		return rc;
	}
	*out = &c->pub;
	return 0;
}

int ig_config_parse(const char *text, size_t len, const char *label, struct ig_config **out,
		    struct ig_error *err)
{
	return parse(text, len, label, false, out, err);
}

static int read_file(const char *path, struct ig_strbuf *text, struct ig_error *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int rc = fd < 0 ? -errno : ig_read_all(fd, CONFIG_MAX_BYTES, NULL, text);

	if (fd >= 0)
		close(fd);
	if (rc == -EISDIR)
		return ig_fail(err, rc, "%s: is a folder, not a file", path);
	/* a text that is too large is an error of parse */
	return rc && rc != -EFBIG ?
		       ig_fail(err, rc, "%s: cannot be read: %s", path, strerror(-rc)) :
		       0;
}

/* The first file of the search order that exists, or -ENOENT. */
static int find_file(char **out, struct ig_error *err)
{
	const char *named = getenv("INGOT_CONFIG"), *xdg = getenv("XDG_CONFIG_HOME");
	const char *installed = IG_SYSCONFDIR "/ingot/ingot.yaml";
	struct ig_strbuf b = { 0 };
	int rc = 0;

	if (named && *named) {
		ig_strbuf_puts(&b, named);
	} else if (xdg && xdg[0] == '/') {
		ig_strbuf_printf(&b, "%s/ingot/ingot.yaml", xdg);
	} else {
		char *home = config_home();
		if (home)
			ig_strbuf_printf(&b, "%s/.config/ingot/ingot.yaml", home);
		free(home);
	}
	/* A file that exists but cannot be read is an error of read_file. */
	if (!(named && *named) && b.len && access(b.data, F_OK)) {
		if (access(installed, F_OK))
			rc = ig_fail(err, -ENOENT,
				     "no configuration: neither %s nor %s exists, and INGOT_CONFIG "
				     "is not set",
				     b.data, installed);
		ig_strbuf_clear(&b);
	}
	if (!rc && !b.len)
		ig_strbuf_puts(&b, installed);
	if (!rc && !(*out = ig_strbuf_steal(&b)))
		rc = ig_fail(err, -ENOMEM, "out of memory");
	ig_strbuf_finish(&b);
	return rc;
}

int ig_config_load(const char *path, struct ig_config **out, struct ig_error *err)
{
	struct ig_strbuf text = { 0 };
	char *found = NULL;
	int rc = path ? 0 : find_file(&found, err);

	path = path ? path : found;
	if (!rc)
		rc = read_file(path, &text, err);
	if (!rc)
		rc = parse(ig_strbuf_text(&text), text.len, path, true, out, err);
	ig_strbuf_finish(&text);
	free(found);
	return rc;
}

int ig_config_load_or_defaults(const char *path, struct ig_config **out, struct ig_error *err)
{
	int rc = ig_config_load(path, out, err);

	return rc == -ENOENT && !path ? parse("{}", 2, DEFAULTS, true, out, err) : rc;
}

int ig_config_load_again(const struct ig_config *old, struct ig_config **out, struct ig_error *err)
{
	return strcmp(old->file, DEFAULTS) ? ig_config_load(old->file, out, err) :
					     ig_config_load_or_defaults(NULL, out, err);
}

/* ---- differences ------------------------------------------------------------------------------------ */

static bool adapters_equal(const struct ig_config_model *a, const struct ig_config_model *b)
{
	if (a->n_adapters != b->n_adapters)
		return false;
	for (size_t i = 0; i < a->n_adapters; i++)
		if (strcmp(a->adapters[i].name, b->adapters[i].name) ||
		    strcmp(a->adapters[i].path, b->adapters[i].path) ||
		    a->adapters[i].scale_percent != b->adapters[i].scale_percent)
			return false;
	return true;
}

static bool models_equal(const struct ig_config *a, const struct ig_config *b)
{
	if (a->n_models != b->n_models)
		return false;
	for (size_t i = 0; i < a->n_models; i++)
		if (!adapters_equal(&a->models[i], &b->models[i]))
			return false;
	for (size_t i = 0; i < a->n_models; i++)
		for (size_t j = 0; j < config_n_model_options; j++)
			if (!config_equal(&config_model_options[j], &a->models[i], &b->models[i]))
				return false;
	return true;
}

static const char *text_of(const struct ig_strbuf *b)
{
	return ig_strbuf_ok(b) && b->data ? b->data : "(out of memory)";
}

static void format_models(const struct ig_config *c, struct ig_strbuf *out)
{
	ig_strbuf_puts(out, "[");
	for (size_t i = 0; i < c->n_models; i++) {
		const struct ig_config_model *m = &c->models[i];
		for (size_t j = 0; j < config_n_model_options; j++) {
			ig_strbuf_printf(out, "%s%s: ",
					 j ? ", " :
					 i ? ", {" :
					     "{",
					 config_model_options[j].key);
			config_format(&config_model_options[j], m, out);
		}
		for (size_t j = 0; j < m->n_adapters; j++)
			ig_strbuf_printf(out, "%s{name: %s, path: %s, scale_percent: %u}%s",
					 j ? ", " : ", adapters: [", m->adapters[j].name,
					 m->adapters[j].path, m->adapters[j].scale_percent,
					 j + 1 < m->n_adapters ? "" : "]");
		ig_strbuf_puts(out, "}");
	}
	ig_strbuf_puts(out, "]");
}

static void format_aliases(const struct ig_config *c, struct ig_strbuf *out)
{
	ig_strbuf_puts(out, "{");
	for (size_t i = 0; i < c->n_aliases; i++)
		ig_strbuf_printf(out, "%s%s: %s", i ? ", " : "", c->aliases[i].pattern,
				 c->aliases[i].model);
	ig_strbuf_puts(out, "}");
}

/* Of an option that has its default nothing is said. */
static void format_rule(const struct ig_prompt_rule *r, struct ig_strbuf *out)
{
	bool builtin = ig_prompt_rule_is_builtin(r->name);
	struct ig_strbuf value = { 0 };

	for (size_t j = 0; j < config_n_rule_options; j++) {
		const struct config_option *o = &config_rule_options[j];
		if (builtin && (!strcmp(o->key, "pattern") || !strcmp(o->key, "replacement")))
			continue;
		ig_strbuf_clear(&value);
		config_format(o, r, &value);
		if (!o->value || strcmp(text_of(&value), config_is_list(o) ? "[]" : o->value))
			ig_strbuf_printf(out, "%s%s: %s", j ? ", " : "", o->key, text_of(&value));
	}
	ig_strbuf_finish(&value);
}

static void format_rules(const struct ig_config *c, struct ig_strbuf *out)
{
	const struct ig_prompt_rules *rules = c->kvcache.normalize;

	ig_strbuf_puts(out, "[");
	for (size_t i = 0; i < ig_prompt_rules_n(rules); i++) {
		ig_strbuf_puts(out, i ? ", {" : "{");
		format_rule(ig_prompt_rules_get(rules, i), out);
		ig_strbuf_puts(out, "}");
	}
	ig_strbuf_puts(out, "]");
}

/* What is not in the table of options, by key. */
static const struct {
	const char *key;
	void (*format)(const struct ig_config *c, struct ig_strbuf *out);
} formatted[] = {
	{ "aliases", format_aliases },
	{ "kvcache.normalize", format_rules },
};

void ig_config_diff(const struct ig_config *old, const struct ig_config *new_,
		    void (*each)(void *ctx, const char *key, const char *was, const char *is,
				 bool reloadable),
		    void *ctx)
{
	struct ig_strbuf was = { 0 }, is = { 0 };

	for (size_t i = 0; i < config_n_options; i++) {
		const struct config_option *o = &config_options[i];
		if (config_equal(o, old, new_))
			continue;
		ig_strbuf_clear(&was);
		ig_strbuf_clear(&is);
		config_format(o, old, &was);
		config_format(o, new_, &is);
		each(ctx, o->key, text_of(&was), text_of(&is), o->reloadable);
	}
	config_diff_modules((const struct config *)old, (const struct config *)new_, each, ctx);
	if (!models_equal(old, new_)) {
		ig_strbuf_clear(&was);
		ig_strbuf_clear(&is);
		format_models(old, &was);
		format_models(new_, &is);
		each(ctx, "models", text_of(&was), text_of(&is), true);
	}
	for (size_t i = 0; i < sizeof formatted / sizeof formatted[0]; i++) {
		ig_strbuf_clear(&was);
		ig_strbuf_clear(&is);
		formatted[i].format(old, &was);
		formatted[i].format(new_, &is);
		if (strcmp(text_of(&was), text_of(&is)))
			each(ctx, formatted[i].key, text_of(&was), text_of(&is), true);
	}
	ig_strbuf_finish(&was);
	ig_strbuf_finish(&is);
}
