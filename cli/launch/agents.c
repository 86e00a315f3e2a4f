/*
 * agents.c: see agents.h.  One entry an agent; a new one needs nothing else.  Only what holds for
 * this process is set: arguments and its environment, never a file.  Variables that would have the
 * agent ask another server, or send that server's key to this one, are removed.
 */
#include "cli/launch/agents.h"

#include <string.h>

/* In a text for the shell: the key. */
#define KEY_MARK "\001"
/* What agents that insist on a key are given for a daemon without keys. */
#define NO_KEY "none"

static const char *const codex_args[] = {
	"--config=model_provider=\"ingot\"",
	"--config=model=\"{model}\"",
	"--config=model_context_window={window}",
	"--config=model_providers.ingot.name=\"Ingot\"",
	"--config=model_providers.ingot.base_url=\"{url}/v1\"",
	"--config=model_providers.ingot.wire_api=\"responses\"",
	"--config=model_providers.ingot.supports_websockets=true",
	"--config=model_providers.ingot.env_key=\"INGOT_API_KEY\"",
	"--config=model_providers.ingot.model_catalog_url=\"{url}/v1/models\"",
	NULL,
};
static const struct ig_agent_variable codex_env[] = { { "INGOT_API_KEY", "{key}" }, { 0 } };

static const char *const no_args[] = { NULL };
static const struct ig_agent_variable claude_env[] = {
	{ "ANTHROPIC_API_KEY" },
	{ "CLAUDE_CODE_USE_BEDROCK" },
	{ "CLAUDE_CODE_USE_VERTEX" },
	{ "CLAUDE_CODE_USE_FOUNDRY" },
	{ "ANTHROPIC_BASE_URL", "{url}" },
	{ "ANTHROPIC_AUTH_TOKEN", "{key}" },
	{ "ANTHROPIC_MODEL", "{model}" },
	{ "ANTHROPIC_DEFAULT_OPUS_MODEL", "{model}" },
	{ "ANTHROPIC_DEFAULT_SONNET_MODEL", "{model}" },
	{ "ANTHROPIC_DEFAULT_HAIKU_MODEL", "{model}" },
	{ "CLAUDE_CODE_SUBAGENT_MODEL", "{model}" },
	/* Both change the prompt with each request, near its beginning: nothing would be cached. */
	{ "CLAUDE_CODE_ATTRIBUTION_HEADER", "0" },
	{ "CLAUDE_CODE_TOTAL_TOKENS_REMINDER", "off" },
	{ "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1" },
	{ 0 },
};

static const struct ig_agent_variable opencode_env[] = {
	{ "OPENCODE_CONFIG_CONTENT",
	  "{\"model\":\"ingot/{model}\",\"small_model\":\"ingot/{model}\",\"provider\":{\"ingot\":{"
	  "\"npm\":\"@ai-sdk/openai-compatible\",\"name\":\"Ingot\",\"options\":{"
	  "\"baseURL\":\"{url}/v1\",\"apiKey\":\"{key}\"},"
	  "\"models\":{\"{model}\":{\"name\":\"{model}\"{limit}}}}}}" },
	{ 0 },
};

static const char *const aider_args[] = { "--model", "openai/{model}", NULL };
static const struct ig_agent_variable aider_env[] = {
	{ "OPENAI_BASE_URL" },
	{ "OPENAI_API_BASE", "{url}/v1" },
	{ "OPENAI_API_KEY", "{key}" },
	{ 0 },
};

static const char *const gptme_args[] = { "--model", "local/{model}", NULL };
static const struct ig_agent_variable gptme_env[] = {
	{ "OPENAI_API_BASE" },
	{ "OPENAI_BASE_URL", "{url}/v1" },
	{ "OPENAI_API_KEY", "{key}" },
	/* It takes every local model's window for 128,000 tokens; from here on it compacts. */
	{ "GPTME_CONTEXT_BUDGET", "{room}" },
	{ 0 },
};

static const struct ig_agent_variable goose_env[] = {
	{ "OPENAI_API_BASE" },
	{ "OPENAI_BASE_URL" },
	{ "OPENAI_BASE_PATH" },
	{ "GOOSE_PROVIDER", "openai" },
	{ "GOOSE_MODEL", "{model}" },
	{ "GOOSE_CONTEXT_LIMIT", "{window}" },
	{ "OPENAI_HOST", "{url}" },
	{ "OPENAI_API_KEY", "{key}" },
	{ 0 },
};

static const char *const llm_args[] = {
	"openai", "endpoint", "{url}/v1", "--model", "{model}", NULL,
};
static const struct ig_agent_variable no_env[] = { { 0 } };

const struct ig_agent ig_agents[] = {
	{
		.name = "codex",
		.program = "codex",
		.install = "npm install -g @openai/codex",
		.args = codex_args,
		.env = codex_env,
		.cacert = "CODEX_CA_CERTIFICATE",
		.n_prompt = 5200,
	},
	{
		.name = "claude",
		.program = "claude",
		.install = "npm install -g @anthropic-ai/claude-code",
		.args = no_args,
		.env = claude_env,
		.cacert = "NODE_EXTRA_CA_CERTS",
		.n_prompt = 19000,
	},
	{
		.name = "opencode",
		.program = "opencode",
		.install = "npm install -g opencode-ai",
		.args = no_args,
		.env = opencode_env,
		.cacert = "NODE_EXTRA_CA_CERTS",
	},
	{
		.name = "aider",
		.program = "aider",
		.install = "pipx install aider-chat",
		.args = aider_args,
		.env = aider_env,
		.cacert = "SSL_CERT_FILE",
	},
	{
		.name = "gptme",
		.program = "gptme",
		.install = "pipx install gptme",
		.args = gptme_args,
		.env = gptme_env,
		.cacert = "SSL_CERT_FILE",
		.n_prompt = 9700,
	},
	{
		.name = "goose",
		.program = "goose",
		.install = "https://github.com/block/goose/releases",
		.args = no_args,
		.env = goose_env,
		.alone = "session",
	},
	{
		.name = "llm",
		.program = "llm",
		.install = "pipx install llm (0.36 or later)",
		.args = llm_args,
		.env = no_env,
		.cacert = "SSL_CERT_FILE",
		.alone = "--chat",
		.no_key = true,
	},
	{ 0 },
};

const struct ig_agent *ig_agent_find(const char *name)
{
	for (const struct ig_agent *a = ig_agents; a->name; a++)
		if (!strcmp(a->name, name))
			return a;
	return NULL;
}

/* ---- templates ---------------------------------------------------------------------------- */

/* Whether text begins with the word; then text is behind it. */
static bool skip(const char **text, const char *word)
{
	size_t n = strlen(word);

	if (strncmp(*text, word, n))
		return false;
	*text += n;
	return true;
}

/* Append the fact whose name text begins with.  -1: text begins with none; 0: it is not known. */
static int add_fact(struct ig_strbuf *b, const char **text, const struct ig_agent_facts *f)
{
	if (skip(text, "{model}")) {
		ig_strbuf_puts(b, f->model);
	} else if (skip(text, "{url}")) {
		ig_strbuf_puts(b, f->url);
	} else if (skip(text, "{key}")) {
		ig_strbuf_puts(b, f->key[0] ? f->key : NO_KEY);
	} else if (skip(text, "{cacert}")) {
		ig_strbuf_puts(b, f->cacert);
		return f->cacert[0] != 0;
	} else if (skip(text, "{window}")) {
		ig_strbuf_printf(b, "%lld", (long long)f->window);
		return f->window > 0;
	} else if (skip(text, "{room}")) {
		ig_strbuf_printf(b, "%lld", (long long)f->window - (long long)f->window / 4);
		return f->window > 0;
	} else if (skip(text, "{limit}")) {
		/* OpenCode reserves the output's tokens, and wants both */
		if (f->window > 0)
			ig_strbuf_printf(b, ",\"limit\":{\"context\":%lld,\"output\":%lld}",
					 (long long)f->window, (long long)f->window / 4);
	} else {
		return -1;
	}
	return 1;
}

bool ig_agent_fill(struct ig_strbuf *b, const char *text, const struct ig_agent_facts *f)
{
	size_t len = b->len;

	while (*text) {
		int found = add_fact(b, &text, f);
		if (found < 0) {
			ig_strbuf_add(b, text++, 1);
		} else if (!found) {
			b->len = len;
			if (b->data)
				b->data[len] = 0;
			return false;
		}
	}
	return true;
}

/* ---- the command for a shell ------------------------------------------------------------ */

/* Append text as one word; with_key: KEY_MARK in it is the key. */
static void add_word(struct ig_strbuf *b, const char *text, bool with_key)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
				    "_-./:=@%+,";

	if (with_key && !strcmp(text, KEY_MARK)) {
		ig_strbuf_puts(b, "\"$INGOT_API_KEY\"");
		return;
	}
	if (*text && strspn(text, plain) == strlen(text)) {
		ig_strbuf_puts(b, text);
		return;
	}
	ig_strbuf_puts(b, "'");
	for (; *text; text++) {
		if (with_key && *text == KEY_MARK[0])
			ig_strbuf_puts(b, "'\"$INGOT_API_KEY\"'");
		else if (*text == '\'')
			ig_strbuf_puts(b, "'\\''");
		else
			ig_strbuf_add(b, text, 1);
	}
	ig_strbuf_puts(b, "'");
}

/* The same of a template, behind `before`. */
static void add_filled(struct ig_strbuf *b, const char *before, const char *text,
		       const struct ig_agent_facts *f)
{
	struct ig_strbuf word = { 0 };

	if (ig_agent_fill(&word, text, f)) {
		ig_strbuf_puts(b, before);
		add_word(b, ig_strbuf_text(&word), true);
	}
	b->failed |= word.failed;
	ig_strbuf_finish(&word);
}

static void add_variable(struct ig_strbuf *b, const char *name, const char *value,
			 const struct ig_agent_facts *f)
{
	struct ig_strbuf before = { 0 };

	ig_strbuf_printf(&before, " \\\n  %s=", name);
	add_filled(b, ig_strbuf_text(&before), value, f);
	b->failed |= before.failed;
	ig_strbuf_finish(&before);
}

void ig_agent_command(struct ig_strbuf *b, const struct ig_agent *a, const struct ig_agent_facts *f,
		      int n_args, char *const *args)
{
	struct ig_agent_facts shown = *f;

	shown.key = f->key[0] ? KEY_MARK : "";
	ig_strbuf_puts(b, "env");
	for (const struct ig_agent_variable *v = a->env; v->name; v++)
		if (!v->value)
			ig_strbuf_printf(b, " -u %s", v->name);
	for (const struct ig_agent_variable *v = a->env; v->name; v++)
		if (v->value)
			add_variable(b, v->name, v->value, &shown);
	if (a->cacert)
		add_variable(b, a->cacert, "{cacert}", &shown);
	ig_strbuf_printf(b, " \\\n  %s", a->program);
	for (const char *const *arg = a->args; *arg; arg++)
		add_filled(b, **arg == '-' ? " \\\n    " : " ", *arg, &shown);
	if (!n_args && a->alone)
		ig_strbuf_printf(b, " %s", a->alone);
	for (int i = 0; i < n_args; i++) {
		ig_strbuf_puts(b, " ");
		add_word(b, args[i], false);
	}
}
