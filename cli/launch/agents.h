/* agents.h: the agents that `ingot launch` knows, and what each is told for one run: arguments and
 * variables of its environment. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/strbuf.h"

/* Templates.  {model}, {url} (of the daemon, without /v1), {key}, {window} (tokens), {room} (the
 * window but for an answer), {limit} (the window for OpenCode) and {cacert} are replaced. */
struct ig_agent_variable {
	const char *name;
	const char *value; /* NULL: it is removed */
};

struct ig_agent {
	const char *name;    /* NULL ends the table */
	const char *program; /* in PATH */
	const char *install; /* how to install it */
	const char *const *args;
	const struct ig_agent_variable *env;
	const char *cacert; /* the variable that names certificates to trust; NULL: none does */
	const char *alone;  /* an argument when the user gives none; NULL: none is needed */
	uint32_t n_prompt;  /* tokens of its own prompt and tools, measured; 0: not known */
	bool no_key; /* it takes an API key only as an argument, which other users can read */
};

extern const struct ig_agent ig_agents[];

/* What templates are filled in with. */
struct ig_agent_facts {
	const char *model, *url, *key, *cacert; /* key, cacert: "" is none */
	int64_t window;				/* 0: not known */
};

const struct ig_agent *ig_agent_find(const char *name);
/* Append the template's text.  False, and nothing is appended: it needs a fact that is not known.
 * Memory: see b. */
bool ig_agent_fill(struct ig_strbuf *b, const char *text, const struct ig_agent_facts *f);
/* Append the command for a shell: `env` with the settings, the program, its arguments and the
 * user's.  The key stands there as $INGOT_API_KEY. */
void ig_agent_command(struct ig_strbuf *b, const struct ig_agent *a, const struct ig_agent_facts *f,
		      int n_args, char *const *args);
