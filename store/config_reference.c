/* config_reference.c: writes the two documents from the table of options: etc/ingot.yaml with
 * comments, and the table in docs/configuration.md.  Tests compare both with the tree's. */
#include "store/config_private.h"

#include <errno.h>
#include <string.h>

/* kvcache.normalize is not in the table: it stands after this option. */
#define RULES_AFTER "kvcache.share"

/* Write text as a comment, wrapped at 88 columns. */
static void put_comment(struct ig_strbuf *b, const char *indent, const char *text)
{
	size_t column = 0;

	while (*text) {
		size_t n = strcspn(text, " ");
		if (column && column + 1 + n > 88) {
			ig_strbuf_puts(b, "\n");
			column = 0;
		}
		if (!column) {
			ig_strbuf_printf(b, "%s#", indent);
			column = strlen(indent) + 1;
		}
		ig_strbuf_puts(b, " ");
		ig_strbuf_add(b, text, n);
		column += 1 + n;
		text += n;
		text += strspn(text, " ");
	}
	ig_strbuf_puts(b, "\n");
}

static const char *shown_default(const struct config_option *o)
{
	return *o->value ? o->value : config_is_list(o) ? "[]" : "\"\"";
}

static const char *shown_unit(const struct config_option *o)
{
	switch (o->type) {
	case CONFIG_TIME: return "time (ms, s, m, h, d)";
	case CONFIG_BYTES: return "bytes (or KiB, MiB, GiB, kB, MB, GB)";
	case CONFIG_BOOL: return "true or false";
	case CONFIG_MODE: return "permissions in octal";
	case CONFIG_PATH: return o->unit ? o->unit : "a path";
	case CONFIG_NAME: return o->unit ? o->unit : "a model's name";
	case CONFIG_TEXT: return "text";
	case CONFIG_HOSTS: return "a list of host names";
	case CONFIG_ORIGINS: return "a list of origins such as https://chat.example";
	case CONFIG_PATHS: return "a list of folders";
	case CONFIG_DEVICES: return "a list of numbers, or [all]";
	case CONFIG_PATTERNS: return "a list of names, with * for any characters";
	case CONFIG_CHOICE: return "one of";
	default: return o->unit ? o->unit : "a whole number";
	}
}

/* "tokens: 1 to 65536" */
static void put_kind(struct ig_strbuf *b, const struct config_option *o)
{
	ig_strbuf_puts(b, shown_unit(o));
	if (o->type == CONFIG_CHOICE)
		ig_strbuf_puts(b, " ");
	else if (o->type == CONFIG_INT || o->type == CONFIG_BYTES || o->type == CONFIG_TIME ||
		 o->type == CONFIG_MODE)
		ig_strbuf_puts(b, ": ");
	config_bounds(o, b);
}

/* variable: its environment variable; NULL: none. */
static void put_option(struct ig_strbuf *b, const char *indent, const struct config_option *o,
		       const char *variable)
{
	struct ig_strbuf facts = { 0 };

	ig_strbuf_printf(&facts, "Default %s; ", shown_default(o));
	put_kind(&facts, o);
	ig_strbuf_printf(&facts, "%s%s; %s.", variable ? "; " : "", variable ? variable : "",
			 o->reloadable ? "reloadable" : "needs a restart");
	put_comment(b, indent, o->help);
	if (facts.data)
		put_comment(b, indent, facts.data);
	b->failed |= facts.failed;
	ig_strbuf_finish(&facts);
	ig_strbuf_printf(b, "%s#%s: %s\n", indent,
			 strrchr(o->key, '.') ? strrchr(o->key, '.') + 1 : o->key,
			 shown_default(o));
}

static int put_out(FILE *f, struct ig_strbuf *b)
{
	int rc = 0;

	if (!ig_strbuf_ok(b))
		rc = -ENOMEM;
	else if (fwrite(b->data, 1, b->len, f) != b->len || fflush(f))
		rc = -EIO;
	ig_strbuf_finish(b);
	return rc;
}

static void put_models(struct ig_strbuf *b)
{
	const struct config_option *folder = config_find("models.folder");
	char env[64];

	ig_strbuf_puts(b,
		       "\n# The served models. `models:` may also be the list of entries itself.\n"
		       "models:\n");
	put_option(b, "  ", folder, config_env_name(folder, env));
	ig_strbuf_puts(
		b, "\n  # Models by hand, one entry each. Reloadable; no environment variable.\n");
	for (size_t i = 0; i < config_n_model_options; i++) {
		const struct config_option *o = &config_model_options[i];
		struct ig_strbuf line = { 0 };
		ig_strbuf_printf(&line, "%s: %s ", o->key, o->help);
		if (o->value) {
			ig_strbuf_printf(&line, "Default %s; ", *o->value ? o->value : "\"\"");
			put_kind(&line, o);
			ig_strbuf_puts(&line, ".");
		} else {
			ig_strbuf_puts(&line, "Required.");
		}
		if (line.data)
			put_comment(b, "  ", line.data);
		b->failed |= line.failed;
		ig_strbuf_finish(&line);
	}
	put_comment(
		b, "  ",
		"adapters: Low-rank adapters (LoRA) of the model, each with a name and the path of a "
		"GGUF file or of a folder that PEFT has written; requests name one MODEL:NAME. "
		"scale_percent, 1 to 1000, says how much of it is added; 100, the default, is as it "
		"was trained. Default []; a list of at most 32.");
	ig_strbuf_puts(b, "  entries:\n"
			  "#    - name: smollm2-135m\n"
			  "#      path: ~/models/SmolLM2-135M-Instruct.Q4_1.gguf\n"
			  "#      context: 0\n"
			  "#      kv_dtype: auto\n"
			  "#      draft: \"\"\n"
			  "#      load: start\n"
			  "#      keep_alive: 0\n"
			  "#      pin: false\n"
			  "#      adapters:\n"
			  "#        - name: polite\n"
			  "#          path: ~/models/polite-lora\n"
			  "#          scale_percent: 100\n");
}

static void put_aliases(struct ig_strbuf *b)
{
	ig_strbuf_puts(
		b,
		"\n# Further names of models: * stands for any characters, the first that matches "
		"counts, and\n# a model's own name comes before all. Reloadable; no environment "
		"variable.\n"
		"aliases:\n"
		"#  claude-*: smollm2-135m\n");
}

/* kvcache.normalize, whose entries have keys of their own. */
static void put_rules(struct ig_strbuf *b)
{
	struct ig_strbuf text = { 0 };

	ig_strbuf_puts(&text,
		       "Rules for text of system messages that changes with every request and "
		       "would spoil the prefix cache: what a rule matches is replaced before "
		       "the prompt is rendered. Built in are");
	for (size_t i = 0; ig_prompt_rule_help(i); i++)
		ig_strbuf_printf(&text, "%s %s (%s)", i ? " and" : "", ig_prompt_rule_name(i),
				 ig_prompt_rule_help(i));
	ig_strbuf_puts(&text, ". The keys of a rule:");
	put_comment(b, "  ", ig_strbuf_text(&text));
	for (size_t i = 0; i < config_n_rule_options; i++) {
		const struct config_option *o = &config_rule_options[i];
		ig_strbuf_clear(&text);
		ig_strbuf_printf(&text, "%s: %s", o->key, o->help);
		if (o->value)
			ig_strbuf_printf(&text, " By default %s.", shown_default(o));
		put_comment(b, "  ", ig_strbuf_text(&text));
	}
	put_comment(b, "  ", "Default []; a list of rules; no environment variable; reloadable.");
	ig_strbuf_puts(b, "  #normalize: []\n");
	b->failed |= text.failed;
	ig_strbuf_finish(&text);
}

static void put_modules(struct ig_strbuf *b, const struct ig_module *const *modules, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct ig_module_option *o = modules[i]->options;
		struct config_module_option as;

		if (o && o->key)
			ig_strbuf_printf(b, "\n  %s:\n", modules[i]->name);
		for (; o && o->key; o++) {
			config_of_module(modules[i]->name, o, &as);
			put_option(b, "    ", &as.option, NULL);
		}
	}
}

int ig_config_write_reference(FILE *f, const struct ig_module *const *modules, size_t n_modules)
{
	struct ig_strbuf b = { 0 };
	char section[32] = "", env[64];

	ig_strbuf_puts(
		&b,
		"# ingot.yaml: every option of ingotd. A commented line shows the default; remove its\n"
		"# first # to change it. `ingotd --check-config` checks the file.\n"
		"#\n"
		"# An environment variable, where one is named, overrides the file (there, lists are\n"
		"# written a,b). Paths are relative to this file's folder; ~/ is your home folder.\n"
		"# SIGHUP reloads the options that say so; the others need a restart.\n");
	for (size_t i = 0; i < config_n_options; i++) {
		const struct config_option *o = &config_options[i];
		size_t n = strcspn(o->key, ".");
		bool top = !o->key[n];

		if (!strncmp(o->key, "models.", 7))
			continue; /* put_models */
		if (!top && (strlen(section) != n || strncmp(section, o->key, n))) {
			snprintf(section, sizeof section, "%.*s", (int)n, o->key);
			ig_strbuf_printf(&b, "\n%s:\n", section);
		} else {
			ig_strbuf_puts(&b, "\n");
		}
		put_option(&b, top ? "" : "  ", o, config_env_name(o, env));
		if (!strcmp(o->key, "modules.path"))
			put_modules(&b, modules, n_modules);
		if (!strcmp(o->key, RULES_AFTER)) {
			ig_strbuf_puts(&b, "\n");
			put_rules(&b);
		}
	}
	put_models(&b);
	put_aliases(&b);
	return put_out(f, &b);
}

/* Write a cell of the table; | is escaped. */
static void put_cell(struct ig_strbuf *b, const char *text)
{
	for (; *text; text++) {
		if (*text == '|')
			ig_strbuf_puts(b, "\\");
		ig_strbuf_add(b, text, 1);
	}
}

static void put_row(struct ig_strbuf *b, const struct config_option *o, const char *variable)
{
	const char *quote = variable ? "`" : "";
	struct ig_strbuf kind = { 0 };

	put_kind(&kind, o);
	ig_strbuf_printf(b, "| `%s` | `%s` | ", o->key, shown_default(o));
	put_cell(b, ig_strbuf_text(&kind));
	ig_strbuf_printf(b, " | %s | %s%s%s |\n", o->reloadable ? "yes" : "no", quote,
			 variable ? variable : "", quote);
	b->failed |= kind.failed;
	ig_strbuf_finish(&kind);
}

static void put_module_rows(struct ig_strbuf *b, const struct ig_module *const *modules, size_t n)
{
	struct config_module_option as;

	for (size_t i = 0; i < n; i++)
		for (const struct ig_module_option *o = modules[i]->options; o && o->key; o++) {
			config_of_module(modules[i]->name, o, &as);
			put_row(b, &as.option, NULL);
		}
}

int config_write_table(FILE *f, const struct ig_module *const *modules, size_t n)
{
	struct ig_strbuf b = { 0 };
	char env[64];

	ig_strbuf_puts(&b, "| option | default | takes | reload | variable |\n"
			   "|---|---|---|---|---|\n");
	for (size_t i = 0; i < config_n_options; i++) {
		put_row(&b, &config_options[i], config_env_name(&config_options[i], env));
		if (!strcmp(config_options[i].key, "modules.path"))
			put_module_rows(&b, modules, n);
		if (!strcmp(config_options[i].key, RULES_AFTER))
			ig_strbuf_puts(&b,
				       "| `kvcache.normalize` | `[]` | a list of rules | yes |  "
				       "|\n");
	}
	return put_out(f, &b);
}
