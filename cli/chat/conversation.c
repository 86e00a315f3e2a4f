/*
 * conversation.c: see conversation.h.
 *
 * The file is JSON, so that other programs can read it: {"ingot_chat": 1, "model",
 * "system", "messages": [{"role", "content"}]}.  What it does not define is refused:
 * a file of another program must not be overwritten because it happens to be JSON.
 */
#include "cli/chat/conversation.h"

#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static char *copy(const char *s, size_t n)
{
	char *p = malloc(n + 1);

	if (p) {
		memcpy(p, s, n);
		p[n] = 0;
	}
	return p;
}

int ig_conversation_add(struct ig_conversation *c, const char *question, size_t n_question,
			const char *answer, size_t n_answer)
{
	if (c->n + 2 > c->cap) {
		size_t cap = c->cap ? c->cap * 2 : 16;
		struct ig_turn *p = realloc(c->turns, cap * sizeof *p);
		if (!p)
			return -ENOMEM;
		c->turns = p;
		c->cap = cap;
	}
	char *q = copy(question, n_question), *a = copy(answer, n_answer);
	if (!q || !a) {
		free(q);
		free(a);
		return -ENOMEM;
	}
	c->turns[c->n++] = (struct ig_turn){ .text = q, .len = n_question };
	c->turns[c->n++] = (struct ig_turn){ .assistant = true, .text = a, .len = n_answer };
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

	if (text && *text && !(p = copy(text, strlen(text))))
		return -ENOMEM;
	free(*field);
	*field = p;
	return 0;
}

bool ig_conversation_write(const struct ig_conversation *c, struct ig_strbuf *out)
{
	const struct {
		const char *key, *value;
	} texts[] = {
		{ "model", c->model },
		{ "system", c->system },
	};
	struct ig_json_writer w = { .out = out };

	ig_json_open_object(&w, NULL);
	ig_json_put_int(&w, "ingot_chat", FORMAT);
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		if (!texts[i].value)
			continue;
		ig_json_put_line(&w);
		ig_json_put_text(&w, texts[i].key, texts[i].value);
	}
	ig_json_put_line(&w);
	ig_json_open_array(&w, "messages");
	for (size_t i = 0; i < c->n; i++) {
		ig_json_put_line(&w);
		ig_json_open_object(&w, NULL);
		ig_json_put_text(&w, "role", c->turns[i].assistant ? "assistant" : "user");
		ig_json_put_string(&w, "content", c->turns[i].text, c->turns[i].len);
		ig_json_close_object(&w);
	}
	ig_strbuf_puts(out, "\n");
	ig_json_close_array(&w);
	ig_json_close_object(&w);
	ig_strbuf_puts(out, "\n");
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
			return ig_fail(err, -EINVAL, "%s: messages[%zu] has no answer", label, i);
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
		rc = ig_fail(err, -EINVAL, "%s is no conversation that /save wrote", label);
	else if (json_integer_value(format) != FORMAT)
		rc = ig_fail(err, -EINVAL, "%s: format %lld is not known to this version, %d is",
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

static int read_file(const char *path, struct ig_strbuf *b, struct ig_error *err)
{
	/* not to wait for a writer, should it be a named pipe */
	int rc = 0, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd < 0)
		return ig_fail(err, -errno, "%.300s: %s", path, strerror(errno));
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		rc = ig_fail(err, -EINVAL, "%.300s is no regular file", path);
		goto out;
	}
	for (;;) {
		if (!ig_strbuf_reserve(b, 65536)) {
			rc = ig_fail(err, -ENOMEM, "out of memory");
			break;
		}
		ssize_t n = read(fd, b->data + b->len, 65536);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			rc = ig_fail(err, -errno, "%.300s: %s", path, strerror(errno));
		if (n <= 0)
			break;
		b->len += (size_t)n;
		if (b->len > IG_CONVERSATION_MAX_BYTES) {
			rc = ig_fail(err, -EFBIG, "%.300s is larger than %u MiB", path,
				     IG_CONVERSATION_MAX_BYTES >> 20);
			break;
		}
	}
out:
	close(fd);
	return rc;
}

int ig_conversation_load(struct ig_conversation *c, const char *path, struct ig_error *err)
{
	struct ig_strbuf b;
	char label[300];
	int rc;

	ig_strbuf_init(&b);
	snprintf(label, sizeof label, "%s", path);
	rc = read_file(path, &b, err);
	if (!rc)
		rc = ig_conversation_parse(c, b.len ? b.data : "", b.len, label, err);
	ig_strbuf_finish(&b);
	return rc;
}

/* 0 when nothing of value lies at path. */
static int check_target(const char *path, struct ig_error *err)
{
	struct ig_conversation old;
	struct ig_error why = { 0 };
	struct stat st;
	int rc;

	if (stat(path, &st))
		return errno == ENOENT ? 0 :
					 ig_fail(err, -errno, "%.300s: %s", path, strerror(errno));
	if (S_ISREG(st.st_mode) && st.st_size == 0)
		return 0;
	ig_conversation_init(&old);
	rc = ig_conversation_load(&old, path, &why);
	ig_conversation_finish(&old);
	return rc ? ig_fail(err, -EEXIST,
			    "%.300s is there already and is no saved conversation; name "
			    "another file",
			    path) :
		    0;
}

int ig_conversation_save(const struct ig_conversation *c, const char *path, struct ig_error *err)
{
	struct ig_strbuf b;
	char tmp[4096];
	int fd = -1, rc = check_target(path, err);

	ig_strbuf_init(&b);
	if (rc)
		goto out;
	int n = snprintf(tmp, sizeof tmp, "%s.XXXXXX", path);
	if (n < 0 || (size_t)n >= sizeof tmp) {
		rc = ig_fail(err, -ENAMETOOLONG, "the path is too long");
		goto out;
	}
	if (!ig_conversation_write(c, &b)) {
		rc = ig_fail(err, -ENOMEM, "out of memory");
		goto out;
	}
	if (b.len > IG_CONVERSATION_MAX_BYTES) { /* load would refuse it */
		rc = ig_fail(err, -EFBIG, "the conversation is larger than %u MiB",
			     IG_CONVERSATION_MAX_BYTES >> 20);
		goto out;
	}
	fd = mkstemp(tmp); /* mode 600 */
	if (fd < 0) {
		rc = ig_fail(err, -errno, "%.300s: %s", path, strerror(errno));
		goto out;
	}
	for (size_t done = 0; !rc && done < b.len;) {
		ssize_t w = write(fd, b.data + done, b.len - done);
		if (w >= 0)
			done += (size_t)w;
		else if (errno != EINTR)
			rc = ig_fail(err, -errno, "%.300s: %s", path, strerror(errno));
	}
	if (!rc && (fsync(fd) || rename(tmp, path)))
		rc = ig_fail(err, -errno, "%.300s: %s", path, strerror(errno));
	close(fd);
	if (rc)
		unlink(tmp);
out:
	ig_strbuf_finish(&b);
	return rc;
}
