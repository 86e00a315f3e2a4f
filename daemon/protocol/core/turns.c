/* turns.c: see turns.h. */
#include "daemon/protocol/core/turns.h"

#include <string.h>

struct fitting {
	const struct ig_chat_turns *turns;
	json_t *out;
	struct ig_strbuf text; /* of the last message, once something was added to it */
	bool extended;
	bool opened; /* the last message is text of the system that waits for a turn of the user */
};

static json_t *text_of(const json_t *m)
{
	json_t *content = json_object_get(m, "content");

	return json_is_string(content) ? content : NULL;
}

static bool has_role(const json_t *m, const char *role)
{
	const char *have = ig_json_text(m, "role");

	return have && !strcmp(have, role);
}

static json_t *last_of(const struct fitting *f)
{
	size_t n = json_array_size(f->out);

	return n ? json_array_get(f->out, n - 1) : NULL;
}

/* Nothing more is added to the last message: put a copy with its text in its place. */
static int close_last(struct fitting *f)
{
	if (!f->extended)
		return 0;
	json_t *copy = ig_json_copy(last_of(f));
	json_t *text =
		ig_strbuf_ok(&f->text) ? json_stringn_nocheck(f->text.data, f->text.len) : NULL;
	bool ok = copy && text && !json_object_set(copy, "content", text) &&
		  !json_array_set(f->out, json_array_size(f->out) - 1, copy);

	json_decref(text);
	json_decref(copy);
	ig_strbuf_clear(&f->text);
	f->extended = false;
	return ok ? 0 : -1;
}

static int append(struct fitting *f, json_t *m)
{
	return close_last(f) < 0 || json_array_append(f->out, m) < 0 ? -1 : 0;
}

static void add_text(struct fitting *f, const json_t *text)
{
	if (json_string_length(text) && f->text.len)
		ig_strbuf_puts(&f->text, "\n\n");
	ig_strbuf_add(&f->text, json_string_value(text), json_string_length(text));
}

/* More text of the last message. */
static void extend(struct fitting *f, const json_t *m)
{
	if (!f->extended)
		add_text(f, text_of(last_of(f)));
	f->extended = true;
	add_text(f, text_of(m));
}

static int append_as_user(struct fitting *f, json_t *m)
{
	json_t *copy = json_pack("{s:s, s:O}", "role", "user", "content", text_of(m));
	int rc = copy ? append(f, copy) : -1;

	json_decref(copy);
	return rc;
}

static int add_system(struct fitting *f, json_t *m)
{
	const struct ig_chat_turns *t = f->turns;
	const json_t *last = last_of(f);
	bool opened = f->opened;

	f->opened = false;
	if (!text_of(m) || t->later_system || (t->system && !last))
		return append(f, m);
	/* several at the start are one */
	if (json_array_size(f->out) == 1 && has_role(last, "system")) {
		extend(f, m);
		return 0;
	}
	f->opened = opened || !has_role(last, "user");
	if (has_role(last, "user") || (has_role(last, "tool") && !t->user_after_tool)) {
		extend(f, m);
		return 0;
	}
	return append_as_user(f, m);
}

static int add_user(struct fitting *f, json_t *m)
{
	const struct ig_chat_turns *t = f->turns;
	const json_t *last = last_of(f);
	bool joins = f->opened || (has_role(last, "user") && !t->user_runs) ||
		     (has_role(last, "tool") && !t->user_after_tool);

	f->opened = false;
	if (!joins || !text_of(m))
		return append(f, m);
	extend(f, m);
	return 0;
}

static int add(struct fitting *f, json_t *m)
{
	if (has_role(m, "system"))
		return add_system(f, m);
	if (has_role(m, "user"))
		return add_user(f, m);
	f->opened = false;
	return append(f, m);
}

int ig_turns_fit(json_t **list, const struct ig_chat_turns *t)
{
	struct fitting f = { .turns = t };
	int rc = 0;

	if (t->system && t->later_system && t->user_runs && t->user_after_tool)
		return 0;
	f.out = json_array();
	for (size_t i = 0; f.out && !rc && i < json_array_size(*list); i++)
		rc = add(&f, json_array_get(*list, i));
	if (!rc)
		rc = f.out ? close_last(&f) : -1;
	ig_strbuf_finish(&f.text);
	if (rc < 0) {
		json_decref(f.out);
		return -1;
	}
	json_decref(*list);
	*list = f.out;
	return 0;
}
