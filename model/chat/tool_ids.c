/*
 * tool_ids.c: ids of tool calls as a format wants them.  Templates write the ids of earlier calls into
 * the prompt, but clients send whatever a server gave them: Kimi's model was trained on
 * functions.NAME:NUMBER, counted over the conversation, and Mistral's templates refuse what is not nine
 * letters and digits.
 */
#include "model/chat/completion.h"

#include "base/hash.h"
#include "base/json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAX_ID 192

static bool is_mistral(const char *id)
{
	return strlen(id) == 9 &&
	       strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789") == 9;
}

/* The same id always becomes the same one, so that the prefix of a prompt stays. */
static void to_mistral(const char *id, char out[MAX_ID])
{
	static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
	static const struct ig_hash_key key = { { 0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9 } };
	uint64_t h = ig_hash_bytes(&key, id, strlen(id));

	for (int i = 0; i < 9; i++, h /= 36)
		out[i] = digits[h % 36];
	out[9] = 0;
}

/* A copy of a message with another id in a member; NULL without memory. */
static json_t *with_id(const json_t *object, const char *member, const char *id)
{
	json_t *copy = ig_json_copy(object);

	if (copy && json_object_set_new(copy, member, json_string(id))) {
		json_decref(copy);
		return NULL;
	}
	return copy;
}

/* The calls of a message with new ids, which are added to names: old to new. */
static json_t *new_calls(enum ig_tool_call_format f, const json_t *calls, json_t *names, size_t *n)
{
	json_t *out = json_array(), *call;
	size_t i;

	json_array_foreach((json_t *)calls, i, call)
	{
		const char *id = ig_json_text(call, "id");
		const char *name = ig_json_text(json_object_get(call, "function"), "name");
		char now[MAX_ID];

		if (f == IG_TOOL_CALLS_KIMI)
			snprintf(now, sizeof now, "functions.%.160s:%zu", name ? name : "", (*n)++);
		else if (!id || is_mistral(id))
			snprintf(now, sizeof now, "%s", id ? id : "000000000");
		else
			to_mistral(id, now);
		if ((id && json_object_set_new(names, id, json_string(now))) ||
		    json_array_append_new(out, with_id(call, "id", now))) {
			json_decref(out);
			return NULL;
		}
	}
	return out;
}

static int replace(json_t *messages, size_t i, enum ig_tool_call_format f, json_t *names, size_t *n)
{
	const json_t *m = json_array_get(messages, i), *calls = json_object_get(m, "tool_calls");
	const char *id = ig_json_text(m, "tool_call_id");
	const char *now = id ? json_string_value(json_object_get(names, id)) : NULL;
	json_t *copy, *list;

	if (now)
		return json_array_set_new(messages, i, with_id(m, "tool_call_id", now));
	if (!json_array_size(calls))
		return 0;
	copy = ig_json_copy(m);
	list = new_calls(f, calls, names, n);
	if (!copy || !list || json_object_set(copy, "tool_calls", list) ||
	    json_array_set(messages, i, copy)) {
		json_decref(list);
		json_decref(copy);
		return -1;
	}
	json_decref(list);
	json_decref(copy);
	return 0;
}

int ig_tool_ids(enum ig_tool_call_format f, json_t *messages)
{
	bool mistral = f == IG_TOOL_CALLS_MISTRAL || f == IG_TOOL_CALLS_MISTRAL_ARGS;
	json_t *names;
	size_t n = 0;
	int rc = 0;

	if (!mistral && f != IG_TOOL_CALLS_KIMI)
		return 0;
	names = json_object();
	if (!names)
		return -ENOMEM;
	for (size_t i = 0; i < json_array_size(messages) && !rc; i++)
		rc = replace(messages, i, f, names, &n) ? -ENOMEM : 0;
	json_decref(names);
	return rc;
}
