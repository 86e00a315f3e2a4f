/* chat_commands.c: the commands of `ingot chat`: lines that begin with "/". */
#include "cli/chat/chat_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands/command.h"
#include "cli/net/served_models.h"
#include "cli/options.h"
#include "cli/term/text.h"

static void do_help(struct chat *c)
{
	for (const struct ig_chat_command_info *i = ig_chat_commands; i->name; i++) {
		char left[32];
		snprintf(left, sizeof left, i->needs_arg || !i->arg ? "/%s %s" : "/%s [%s]",
			 i->name, i->arg ? i->arg : "");
		chat_tell(c, "  %-16s %s", left, i->help);
	}
	chat_tell(
		c,
		"A line that ends in \\ goes on in the next; so do lines between \"\"\" and \"\"\".");
}

static void do_system(struct chat *c, const char *text)
{
	if (!*text) {
		chat_tell(c, c->said.system ? "%s" : "no system message is set", c->said.system);
		return;
	}
	if (ig_conversation_set(&c->said.system, strcmp(text, "-") ? text : NULL))
		ig_complain("out of memory");
	else
		chat_tell(c, c->said.system ? "(system message set)" : "(no system message)");
}

void chat_know_models(struct chat *c, const json_t *list)
{
	json_decref(c->words);
	c->words = json_array();
	for (size_t i = 0; c->words && i < json_array_size(list); i++) {
		char s[160];
		snprintf(s, sizeof s, "model %s", ig_served_name(list, i));
		json_array_append_new(c->words, json_string(s)); /* Tab may lack a word */
	}
}

static void do_model(struct chat *c, const char *name)
{
	struct ig_error err = { 0 };
	json_t *list = ig_served_list(&c->e, &err);
	const char *current = c->said.model ? c->said.model : c->model;

	if (!list) {
		ig_complain("%s", err.text);
		c->status = IG_EXIT_FAILED;
		return;
	}
	chat_know_models(c, list);
	if (!*name) {
		for (size_t i = 0; i < json_array_size(list); i++) {
			const char *s = ig_served_name(list, i);
			chat_tell(c, "%s %s", strcmp(s, current) ? " " : "*", s);
		}
	} else if (!ig_served_has(list, name)) {
		ig_complain("%s serves no model '%s'; /model lists them", c->e.url, name);
		c->status = IG_EXIT_FAILED;
	} else if (ig_conversation_set(&c->said.model, name)) {
		ig_complain("out of memory");
	} else {
		chat_tell(c, "(going on with %s)", name);
	}
	json_decref(list);
}

/* ~/x as the shell would have it. */
static int expand(const char *path, char *buf, size_t size)
{
	const char *home = getenv("HOME");
	int n = !strncmp(path, "~/", 2) && home ? snprintf(buf, size, "%s%s", home, path + 1) :
						  snprintf(buf, size, "%s", path);

	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

static void do_file(struct chat *c, bool save, const char *name)
{
	struct ig_error err = { 0 };
	char path[4096];
	int rc = expand(name, path, sizeof path);

	if (rc)
		ig_fail(&err, rc, "the path is too long");
	else
		rc = save ? ig_conversation_save(&c->said, path, &err) :
			    ig_conversation_load(&c->said, path, &err);
	if (rc) {
		ig_complain("%s", err.text);
		c->status = IG_EXIT_FAILED;
		return;
	}
	if (!save) {
		free(c->unanswered);
		c->unanswered = NULL;
	}
	chat_tell(c, "(%s %s: %zu turn%s)", save ? "saved" : "loaded", path, c->said.n / 2,
		  c->said.n == 2 ? "" : "s");
}

static void do_retry(struct chat *c)
{
	char *question = c->unanswered;
	size_t len = c->n_unanswered;

	c->unanswered = NULL;
	if (!question && !ig_conversation_undo(&c->said, &question, &len)) {
		chat_tell(c, "(nothing was asked yet)");
		return;
	}
	chat_say(c, question, len);
	free(question);
}

static void do_undo(struct chat *c)
{
	if (c->unanswered) {
		free(c->unanswered);
		c->unanswered = NULL;
		chat_tell(c, "(the question without an answer is forgotten)");
	} else if (ig_conversation_undo(&c->said, NULL, NULL)) {
		chat_tell(c, "(taken back; %zu turn%s left)", c->said.n / 2,
			  c->said.n == 2 ? "" : "s");
	} else {
		chat_tell(c, "(there is nothing to take back)");
	}
}

static void do_stats(struct chat *c)
{
	if (!c->n_answers) {
		chat_tell(c, "no answer yet");
		return;
	}
	chat_tell(c, "last answer: %s", c->last);
	chat_tell(c,
		  "in all: %llu answer%s, %llu tokens; prompts %llu tokens, %llu of them cached; "
		  "conversation of %zu turn%s%s%s",
		  (unsigned long long)c->n_answers, c->n_answers == 1 ? "" : "s",
		  (unsigned long long)c->n_output, (unsigned long long)c->n_input,
		  (unsigned long long)c->n_cached, c->said.n / 2, c->said.n == 2 ? "" : "s",
		  c->model[0] ? ", model " : "", c->model);
}

void chat_do_command(struct chat *c, const struct ig_chat_command *cmd)
{
	switch (cmd->verb) {
	case IG_CHAT_SAY: chat_say(c, cmd->rest, cmd->len); break;
	case IG_CHAT_HELP: do_help(c); break;
	case IG_CHAT_SYSTEM: do_system(c, cmd->rest); break;
	case IG_CHAT_MODEL: do_model(c, cmd->rest); break;
	case IG_CHAT_SAVE:
	case IG_CHAT_LOAD: do_file(c, cmd->verb == IG_CHAT_SAVE, cmd->rest); break;
	case IG_CHAT_CLEAR:
		ig_conversation_clear(&c->said);
		free(c->unanswered);
		c->unanswered = NULL;
		chat_tell(c, "(forgotten)");
		break;
	case IG_CHAT_RETRY: do_retry(c); break;
	case IG_CHAT_UNDO: do_undo(c); break;
	case IG_CHAT_STATS: do_stats(c); break;
	case IG_CHAT_EXIT: c->leaving = true; break;
	case IG_CHAT_NOTHING:
	case IG_CHAT_UNKNOWN: break;
	}
}
