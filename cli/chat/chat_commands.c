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
		chat_print(c, "  %-16s %s", left, i->help);
	}
	chat_print(c,
		   "A line that ends in \\ continues in the next one; so do lines between \"\"\" "
		   "and \"\"\".");
}

static void do_system(struct chat *c, const char *text)
{
	if (!*text) {
		chat_print(c, c->conversation.system ? "%s" : "no system message is set",
			   c->conversation.system);
		return;
	}
	if (ig_conversation_set(&c->conversation.system, strcmp(text, "-") ? text : NULL))
		ig_complain("out of memory");
	else
		chat_print(c,
			   c->conversation.system ? "(system message set)" : "(no system message)");
}

void chat_know_models(struct chat *c, const json_t *list)
{
	json_decref(c->words);
	c->words = json_array();
	for (size_t i = 0; c->words && i < json_array_size(list); i++) {
		char s[160];
		if (!ig_served_chats(json_array_get(list, i)))
			continue;
		snprintf(s, sizeof s, "model %s", ig_served_name(list, i));
		json_array_append_new(c->words,
				      json_string(s)); /* on failure Tab does not complete it */
	}
}

static void do_model(struct chat *c, const char *name)
{
	struct ig_error err = { 0 };
	json_t *list = ig_served_list(&c->e, &err);
	const char *current = c->conversation.model ? c->conversation.model : c->model;

	if (!list) {
		c->status = ig_complain("%s", err.text);
		return;
	}
	chat_know_models(c, list);
	if (!*name) {
		for (size_t i = 0; i < json_array_size(list); i++) {
			const char *s = ig_served_name(list, i);
			if (!ig_served_chats(json_array_get(list, i)))
				continue;
			chat_print(c, "%s %s", strcmp(s, current) ? " " : "*", s);
		}
	} else if (!ig_served_has(list, name)) {
		c->status =
			ig_complain("%s serves no model '%s'; /model lists them", c->e.url, name);
	} else if (!ig_served_chats(ig_served_find(list, name))) {
		c->status = ig_complain("the model '%s' generates no text", name);
	} else if (ig_conversation_set(&c->conversation.model, name)) {
		ig_complain("out of memory");
	} else {
		chat_print(c, "(the model is now %s)", name);
	}
	json_decref(list);
}

/* Replace ~/ by the home folder. */
static int expand(const char *path, char *buf, size_t size, struct ig_error *err)
{
	const char *home = getenv("HOME");
	bool tilde = !strncmp(path, "~/", 2) && home;
	int n = snprintf(buf, size, "%s%s", tilde ? home : "", tilde ? path + 1 : path);

	return n < 0 || (size_t)n >= size ? ig_fail(err, -ENAMETOOLONG, "the path is too long") : 0;
}

static void forget_question(struct chat *c)
{
	free(c->unanswered);
	c->unanswered = NULL;
}

static void do_file(struct chat *c, bool save, const char *name)
{
	struct ig_error err = { 0 };
	char path[4096];
	int rc = expand(name, path, sizeof path, &err);

	if (!rc)
		rc = save ? ig_conversation_save(&c->conversation, path, &err) :
			    ig_conversation_load(&c->conversation, path, &err);
	if (rc) {
		c->status = ig_complain("%s", err.text);
		return;
	}
	if (!save)
		forget_question(c);
	chat_print(c, "(%s %s: %zu turn%s)", save ? "saved" : "loaded", path, c->conversation.n / 2,
		   c->conversation.n == 2 ? "" : "s");
}

static void do_retry(struct chat *c)
{
	char *question = c->unanswered;
	size_t len = c->n_unanswered;

	c->unanswered = NULL;
	if (!question && !ig_conversation_undo(&c->conversation, &question, &len)) {
		chat_print(c, "(there is no message yet)");
		return;
	}
	chat_send(c, question, len);
	free(question);
}

static void do_undo(struct chat *c)
{
	if (c->unanswered) {
		forget_question(c);
		chat_print(c, "(the message without a reply is removed)");
	} else if (ig_conversation_undo(&c->conversation, NULL, NULL)) {
		chat_print(c, "(removed; %zu turn%s left)", c->conversation.n / 2,
			   c->conversation.n == 2 ? "" : "s");
	} else {
		chat_print(c, "(there is nothing to remove)");
	}
}

static void do_stats(struct chat *c)
{
	if (!c->n_answers) {
		chat_print(c, "no reply yet");
		return;
	}
	chat_print(c, "last reply: %s", c->last);
	chat_print(c,
		   "in all: %llu repl%s, %llu tokens; prompts %llu tokens, %llu of them cached; "
		   "conversation of %zu turn%s%s%s",
		   (unsigned long long)c->n_answers, c->n_answers == 1 ? "y" : "ies",
		   (unsigned long long)c->n_output, (unsigned long long)c->n_input,
		   (unsigned long long)c->n_cached, c->conversation.n / 2,
		   c->conversation.n == 2 ? "" : "s", c->model[0] ? ", model " : "", c->model);
}

void chat_do_command(struct chat *c, const struct ig_chat_command *cmd)
{
	switch (cmd->verb) {
	case IG_CHAT_MESSAGE: chat_send(c, cmd->rest, cmd->len); break;
	case IG_CHAT_HELP: do_help(c); break;
	case IG_CHAT_SYSTEM: do_system(c, cmd->rest); break;
	case IG_CHAT_MODEL: do_model(c, cmd->rest); break;
	case IG_CHAT_SAVE:
	case IG_CHAT_LOAD: do_file(c, cmd->verb == IG_CHAT_SAVE, cmd->rest); break;
	case IG_CHAT_CLEAR:
		ig_conversation_clear(&c->conversation);
		forget_question(c);
		chat_print(c, "(conversation cleared)");
		break;
	case IG_CHAT_RETRY: do_retry(c); break;
	case IG_CHAT_UNDO: do_undo(c); break;
	case IG_CHAT_STATS: do_stats(c); break;
	case IG_CHAT_EXIT: c->exiting = true; break;
	case IG_CHAT_NOTHING:
	case IG_CHAT_UNKNOWN: break;
	}
}
