/* chat_input.c: see chat_input.h. */
#include "cli/chat/chat_input.h"

#include <errno.h>
#include <string.h>

#include "base/nearest.h"
#include "cli/term/text.h"

const struct ig_chat_command_info ig_chat_commands[] = {
	{ "help", IG_CHAT_HELP, NULL, false, "print this list" },
	{ "system", IG_CHAT_SYSTEM, "TEXT", false,
	  "set the system message; - removes it; without TEXT: show it" },
	{ "model", IG_CHAT_MODEL, "NAME", false,
	  "switch to another model; without NAME: list them" },
	{ "save", IG_CHAT_SAVE, "FILE", true, "write the conversation to a file" },
	{ "load", IG_CHAT_LOAD, "FILE", true, "continue a conversation that /save wrote" },
	{ "clear", IG_CHAT_CLEAR, NULL, false,
	  "clear the conversation; keep model and system message" },
	{ "retry", IG_CHAT_RETRY, NULL, false, "send the last message again" },
	{ "undo", IG_CHAT_UNDO, NULL, false, "remove the last message and its reply" },
	{ "stats", IG_CHAT_STATS, NULL, false, "tokens and speed of the last reply and of all" },
	{ "exit", IG_CHAT_EXIT, NULL, false, "exit, as Ctrl-D and two Ctrl-C do" },
	{ 0 },
};

void ig_chat_input_finish(struct ig_chat_input *in) { ig_strbuf_finish(&in->text); }

void ig_chat_input_clear(struct ig_chat_input *in)
{
	struct ig_strbuf text = in->text;

	*in = (struct ig_chat_input){ .text = text };
	ig_strbuf_clear(&in->text);
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static const char quotes[] = "\"\"\"";

static bool ends_block(const char *line, size_t *len)
{
	size_t n = *len;

	while (n && is_blank(line[n - 1]))
		n--;
	if (n < 3 || memcmp(line + n - 3, quotes, 3))
		return false;
	*len = n - 3;
	return true;
}

bool ig_chat_input_line(struct ig_chat_input *in, const char *line, size_t len, bool pasted)
{
	bool more = pasted, opened = false;

	if (in->started) {
		ig_strbuf_add(&in->text, "\n", 1);
		in->several = true;
	} else if (!in->block) {
		size_t i = 0;
		while (i < len && is_blank(line[i]))
			i++;
		if (len - i >= 3 && !memcmp(line + i, quotes, 3)) {
			line += i + 3;
			len -= i + 3;
			in->block = in->several = opened = true;
		}
	}
	in->started = true;
	if (len && memchr(line, '\n', len)) /* a message of several lines, from the history */
		in->several = true;
	if (in->block) {
		if (ends_block(line, &len))
			in->block = false;
		/* """ alone on a line adds no empty line */
		if (!in->block && !opened && !len && in->text.len)
			in->text.data[--in->text.len] = 0;
		ig_strbuf_add(&in->text, line, len);
		if (opened && in->block && !len)
			in->started = false;
		/* text after """ in the same paste belongs to the message */
		return !in->block && !more;
	}
	size_t n_backslashes = 0;
	while (n_backslashes < len && line[len - 1 - n_backslashes] == '\\')
		n_backslashes++;
	if (!pasted && n_backslashes % 2) {
		len--;
		more = true;
	}
	ig_strbuf_add(&in->text, line, len);
	if (more)
		in->several = true;
	return !more;
}

int ig_chat_parse(const struct ig_chat_input *in, struct ig_chat_command *out, struct ig_error *err)
{
	const char *s = ig_strbuf_text(&in->text), *end = s + in->text.len;
	const char *first = s;
	char hint[96];

	*out = (struct ig_chat_command){ .verb = IG_CHAT_MESSAGE, .rest = s, .len = in->text.len };
	while (first < end && is_blank(*first))
		first++;
	if (first == end) {
		out->verb = IG_CHAT_NOTHING;
		return 0;
	}
	if (in->several || *s != '/')
		return 0;
	if (end - s > 1 && s[1] == '/') {
		out->rest++;
		out->len--;
		return 0;
	}
	const char *name = ++s;
	while (s < end && !is_blank(*s))
		s++;
	size_t n = (size_t)(s - name);
	struct ig_strbuf plain = { 0 };
	/* cut, and without control characters */
	ig_text_plain(&plain, name, n < sizeof out->name ? n : sizeof out->name - 1, false);
	snprintf(out->name, sizeof out->name, "%s", ig_strbuf_text(&plain));
	ig_strbuf_finish(&plain);
	while (s < end && is_blank(*s))
		s++;
	while (end > s && is_blank(end[-1]))
		end--;
	out->rest = s;
	out->len = (size_t)(end - s);
	out->verb = IG_CHAT_UNKNOWN;
	if (n == 4 && !memcmp(name, "quit", 4))
		name = "exit";
	for (const struct ig_chat_command_info *c = ig_chat_commands; c->name; c++) {
		if (strlen(c->name) != n || memcmp(c->name, name, n))
			continue;
		out->verb = c->verb;
		if (out->len && !c->arg)
			return ig_fail(err, -EINVAL, "/%s takes no argument", c->name);
		if (!out->len && c->needs_arg)
			return ig_fail(err, -EINVAL, "/%s needs a name: /%s %s", c->name, c->name,
				       c->arg);
		return 0;
	}
	return ig_fail(
		err, -EINVAL,
		"unknown command /%s%s; /help lists them, // starts a text with a slash", out->name,
		ig_did_you_mean(hint, out->name, "/", ig_chat_commands, sizeof *ig_chat_commands));
}
