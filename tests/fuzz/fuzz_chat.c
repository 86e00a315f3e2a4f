/*
 * fuzz_chat.c: what `ingot chat` reads besides the daemon's events: a saved
 * conversation, typed lines, a line of the history.  What is taken must come out of the
 * writers as it went in.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/chat/chat_input.h"
#include "cli/chat/conversation.h"
#include "cli/chat/history.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_conversation(const char *text, size_t len)
{
	struct ig_conversation a, b;
	struct ig_error err = { 0 };
	struct ig_strbuf out = { 0 };

	ig_conversation_init(&a);
	ig_conversation_init(&b);
	if (ig_conversation_parse(&a, text, len, "fuzz", &err)) {
		if (a.n || a.model || a.system || !err.text[0])
			abort();
		return;
	}
	if (a.n % 2 || !ig_conversation_write(&a, &out) ||
	    ig_conversation_parse(&b, out.data, out.len, "again", &err) || a.n != b.n)
		abort();
	for (size_t i = 0; i < a.n; i++)
		if (a.turns[i].len != b.turns[i].len || a.turns[i].assistant != (i % 2 == 1) ||
		    memcmp(a.turns[i].text, b.turns[i].text, a.turns[i].len))
			abort();
	ig_strbuf_finish(&out);
	ig_conversation_finish(&a);
	ig_conversation_finish(&b);
}

/* Lines as they are typed; one that begins with a NUL is of a paste. */
static void read_lines(const char *text, size_t len)
{
	struct ig_chat_input in = { 0 };
	struct ig_chat_command cmd;
	struct ig_error err = { 0 };

	for (size_t at = 0; at < len;) {
		const char *line = text + at, *end = memchr(line, '\n', len - at);
		size_t n = end ? (size_t)(end - line) : len - at;
		bool pasted = n && !*line;
		at += n + 1;
		if (!ig_chat_input_line(&in, line + pasted, n - pasted, pasted))
			continue;
		if (in.text.len > len)
			abort();
		int rc = ig_chat_parse(&in, &cmd, &err);
		const char *start = in.text.len ? in.text.data : cmd.rest;
		if ((rc && !err.text[0]) || cmd.rest < start || cmd.len > in.text.len ||
		    cmd.rest + cmd.len > start + in.text.len)
			abort();
		if (in.several && cmd.verb != IG_CHAT_MESSAGE && cmd.verb != IG_CHAT_NOTHING)
			abort();
		ig_chat_input_clear(&in);
	}
	ig_chat_input_finish(&in);
}

static void read_history(const char *text, size_t len)
{
	struct ig_strbuf entry = { 0 }, line = { 0 };

	if (ig_history_read_line(text, len, &entry)) {
		/* without newlines in it, a line is what its entry is written as */
		if (!ig_history_write_line(entry.len ? entry.data : "", entry.len, &line))
			abort();
		if (!memchr(text, '\n', len) &&
		    (line.len != len + 1 || memcmp(line.data, text, len)))
			abort();
	}
	ig_strbuf_finish(&entry);
	ig_strbuf_finish(&line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = size ? (const char *)data : "";

	read_conversation(text, size);
	read_lines(text, size);
	read_history(text, size);
	return 0;
}
