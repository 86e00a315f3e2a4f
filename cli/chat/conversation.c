/*
 * conversation.c: see conversation.h.  The file is JSON, so that other programs can read it:
 * {"ingot_chat": 1, "model", "system", "messages": [{"role", "content"}]}.  Other keys are errors:
 * the JSON file of another program must not be overwritten.
 */
#include "cli/chat/conversation.h"

#include "base/array.h"
#include "base/file.h"
#include "base/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FORMAT 1

void ig_conversation_init(struct ig_conversation *c) { *c = (struct ig_conversation){ 0 }; }

void ig_conversation_clear(struct ig_conversation *c)
{
	for (size_t i = 0; i < c->n; i++)
		free(c->turns[i].text);
	c->n = 0;
}

void ig_conversation_finish(struct ig_conversation *c)
{
	ig_conversation_clear(c);
	free(c->turns);
	free(c->model);
	free(c->system);
	ig_conversation_init(c);
}

int ig_conversation_add(struct ig_conversation *c, const char *question, size_t n_question,
			const char *reply, size_t n_reply)
{
	/* n and cap are even: space for one turn is space for two */
	if (!ig_array_grow(c->turns, &c->cap, c->n))
		return -ENOMEM;
	char *q = ig_copy_text(question, n_question), *a = ig_copy_text(reply, n_reply);
	if (!q || !a) {
		free(q);
		free(a);
		return -ENOMEM;
	}
	c->turns[c->n++] = (struct ig_turn){ .text = q, .len = n_question };
	c->turns[c->n++] = (struct ig_turn){ .assistant = true, .text = a, .len = n_reply };
	return 0;
}

bool ig_conversation_undo(struct ig_conversation *c, char **question, size_t *n_question)
{
	if (c->n < 2)
		return false;
	c->n -= 2;
	free(c->turns[c->n + 1].text);
	if (question) {
		*question = c->turns[c->n].text;
		*n_question = c->turns[c->n].len;
	} else {
		free(c->turns[c->n].text);
	}
	return true;
}

int ig_conversation_set(char **field, const char *text)
{
	char *p = NULL;

	if (text && *text && !(p = strdup(text)))
		return -ENOMEM;
	free(*field);
	*field = p;
	return 0;
}

bool ig_conversation_write(const struct ig_conversation *c, struct ig_strbuf *out)
{
	const char *const texts[][2] = { { "model", c->model }, { "system", c->system } };
	struct ig_json_writer w = { .out = out };

	ig_json_open_object(&w, NULL);
	ig_json_put_int(&w, "ingot_chat", FORMAT);
	for (size_t i = 0; i < 2; i++) {
		if (!texts[i][1])
			continue;
		ig_json_put_line(&w);
		ig_json_put_text(&w, texts[i][0], texts[i][1]);
	}
	ig_json_put_line(&w);
	ig_json_open_array(&w, "messages");
	for (size_t i = 0; i < c->n; i++) {
		ig_json_put_line(&w);
		ig_json_putf(&w, "{'role': %s", c->turns[i].assistant ? "assistant" : "user");
		ig_json_put_string(&w, "content", c->turns[i].text, c->turns[i].len);
		ig_json_close_object(&w);
	}
	ig_strbuf_puts(out, "\n]}\n");
	return ig_strbuf_ok(out);
}

/* The pair of messages i and i + 1. */
static int read_pair(struct ig_conversation *c, const json_t *list, size_t i, const char *label,
		     struct ig_error *err)
{
	const json_t *content[2];

	for (size_t k = 0; k < 2; k++) {
		const json_t *m = json_array_get(list, i + k);
		const char *role = ig_json_text(m, "role");
		const char *expected = k ? "assistant" : "user";
		content[k] = json_object_get(m, "content");
		if (!m)
			return ig_fail(err, -EINVAL, "%s: messages[%zu] has no reply", label, i);
		if (!role || strcmp(role, expected))
			return ig_fail(err, -EINVAL, "%s: messages[%zu].role: expected \"%s\"",
				       label, i + k, expected);
		if (!json_is_string(content[k]))
			return ig_fail(err, -EINVAL, "%s: messages[%zu].content: expected a string",
				       label, i + k);
		if (json_object_size(m) != 2)
			return ig_fail(err, -EINVAL,
				       "%s: messages[%zu] has more than role and content", label,
				       i + k);
	}
	if (ig_conversation_add(c, json_string_value(content[0]), json_string_length(content[0]),
				json_string_value(content[1]), json_string_length(content[1])))
		return ig_fail(err, -ENOMEM, "out of memory");
	return 0;
}

static int read_key(struct ig_conversation *c, const char *key, const json_t *v, const char *label,
		    struct ig_error *err)
{
	if (!strcmp(key, "ingot_chat"))
		return 0;
	if (!strcmp(key, "model") || !strcmp(key, "system")) {
		const char *s = json_string_value(v);
		if (!s || strlen(s) != json_string_length(v))
			return ig_fail(err, -EINVAL, "%s: %s: expected a string without NUL", label,
				       key);
		return ig_conversation_set(key[0] == 'm' ? &c->model : &c->system, s) ?
			       ig_fail(err, -ENOMEM, "out of memory") :
			       0;
	}
	if (strcmp(key, "messages"))
		return ig_fail(err, -EINVAL, "%s: unknown key \"%.60s\"", label, key);
	if (!json_is_array(v) || json_array_size(v) > IG_CONVERSATION_MAX_TURNS)
		return ig_fail(err, -EINVAL, "%s: messages: expected a list of at most %d", label,
			       IG_CONVERSATION_MAX_TURNS);
	for (size_t i = 0; i < json_array_size(v); i += 2) {
		int rc = read_pair(c, v, i, label, err);
		if (rc)
			return rc;
	}
	return 0;
}

int ig_conversation_parse(struct ig_conversation *c, const char *text, size_t len,
			  const char *label, struct ig_error *err)
{
	const struct ig_json_limits limits = { .allow_nul = true };
	struct ig_conversation fresh;
	struct ig_json_error je;
	json_t *root, *format, *v;
	const char *key;
	int rc = ig_json_read(text, len, &limits, &root, &je);

	ig_conversation_init(&fresh);
	if (rc)
		return ig_fail(err, -EINVAL, "%s:%u:%u: %.120s", label, je.line, je.column,
			       je.text);
	format = json_object_get(root, "ingot_chat");
	if (!json_is_integer(format))
		rc = ig_fail(err, -EINVAL, "%s is not a conversation that /save wrote", label);
	else if (json_integer_value(format) != FORMAT)
		rc = ig_fail(err, -EINVAL, "%s: unknown format %lld; this version reads format %d",
			     label, (long long)json_integer_value(format), FORMAT);
	else
		json_object_foreach(root, key, v)
		{
			rc = read_key(&fresh, key, v, label, err);
			if (rc)
				break;
		}
	json_decref(root);
	if (rc) {
		ig_conversation_finish(&fresh);
		return rc;
	}
	ig_conversation_finish(c);
	*c = fresh;
	return 0;
}

int ig_conversation_load(struct ig_conversation *c, const char *path, struct ig_error *err)
{
	struct ig_strbuf b = { 0 };
	char label[300];
	int rc = ig_read_file(path, IG_CONVERSATION_MAX_BYTES, &b, err);

	snprintf(label, sizeof label, "%s", path);
	if (!rc)
		rc = ig_conversation_parse(c, ig_strbuf_text(&b), b.len, label, err);
	ig_strbuf_finish(&b);
	return rc;
}

/* 0 when path has no file, an empty one, or a saved conversation. */
static int check_target(const char *path, struct ig_error *err)
{
	struct ig_conversation old = { 0 };
	struct ig_error why = { 0 };
	struct stat st;
	int rc;

	if (stat(path, &st))
		return errno == ENOENT ? 0 :
					 ig_fail(err, -errno, "%.300s: %s", path, strerror(errno));
	if (S_ISREG(st.st_mode) && st.st_size == 0)
		return 0;
	rc = ig_conversation_load(&old, path, &why);
	ig_conversation_finish(&old);
	return rc ? ig_fail(err, -EEXIST,
			    "%.300s exists and is not a saved conversation; name another file",
			    path) :
		    0;
}

int ig_conversation_save(const struct ig_conversation *c, const char *path, struct ig_error *err)
{
	struct ig_strbuf b = { 0 };
	int rc = check_target(path, err);

	if (!rc && !ig_conversation_write(c, &b))
		rc = ig_fail(err, -ENOMEM, "out of memory");
	else if (!rc && b.len > IG_CONVERSATION_MAX_BYTES) /* load would refuse it */
		rc = ig_fail(err, -EFBIG, "the conversation is larger than %u MiB",
			     IG_CONVERSATION_MAX_BYTES >> 20);
	else if (!rc)
		rc = ig_replace_file(path, b.data, b.len, err);
	ig_strbuf_finish(&b);
	return rc;
}
