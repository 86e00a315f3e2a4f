/*
 * chat_template.c: compiles a model's chat templates; renders a conversation and encodes it to ids.
 * Rendering records for each byte whether a client wrote it (model/jinja); the tokenizer accepts
 * control tokens only in the other bytes.  A well-known role counts as the template's own text,
 * since some templates build their markers from it.
 */
#include "model/chat/chat_turns_private.h"

#include "base/clock.h"
#include "base/strbuf.h"
#include "model/jinja/jinja.h"
#include "model/tokenizer/config_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define START "<|im_start|>"
#define END "<|im_end|>"
#define MAX_ROLE_BYTES 64
#define MAX_VARIANTS 16
#define MAX_VARIANT_BYTES 64
#define MAX_EXTRA 64

static const char *const known_roles[] = {
	"system", "user", "assistant", "tool", "developer", "function", "ipython", "model", NULL,
};

struct variant {
	char name[MAX_VARIANT_BYTES + 1]; /* "default" is the first */
	struct ig_jinja *program;
	char *source;
	size_t source_len;
	struct ig_chat_turns turns;
};

struct ig_chat_template {
	const struct ig_tokenizer *tokenizer;
	struct variant variants[MAX_VARIANTS];
	size_t n_variants;
	json_t *tokens; /* bos_token … */
	bool chatml;
};

/* ---- open and close ------------------------------------------------------------- */

void ig_chat_template_close(struct ig_chat_template *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->n_variants; i++) {
		ig_jinja_destroy(c->variants[i].program);
		free(c->variants[i].source);
	}
	json_decref(c->tokens);
	free(c);
}

static int no_memory(struct ig_error *err)
{
	return ig_fail(err, -ENOMEM, "out of memory for the chat template");
}

static int add_variant(struct ig_chat_template *c, const char *name, const char *text, size_t len,
		       struct ig_error *err)
{
	struct variant *v = &c->variants[c->n_variants];
	bool is_default = !strcmp(name, "default");
	struct ig_error why = { 0 };
	int rc;

	if (strlen(name) > MAX_VARIANT_BYTES)
		return ig_fail(err, -ENOTSUP, "the name of a chat template is too long");
	if (c->n_variants == MAX_VARIANTS)
		return ig_fail(err, -ENOTSUP, "the model has more than %d chat templates",
			       MAX_VARIANTS);
	rc = ig_jinja_compile(text, len, NULL, &v->program, &why);
	if (rc == -ENOMEM)
		return no_memory(err);
	if (rc)
		return ig_fail(err, -ENOTSUP, "the model's chat template%s%s%s can't be used: %s",
			       is_default ? "" : " '", is_default ? "" : name,
			       is_default ? "" : "'", why.text);
	v->source = malloc(len + 1);
	if (!v->source) {
		ig_jinja_destroy(v->program);
		return no_memory(err);
	}
	memcpy(v->source, text, len);
	v->source[len] = 0;
	v->source_len = len;
	strcpy(v->name, name);
	c->n_variants++;
	return 0;
}

struct opening {
	const struct ig_checkpoint *g;
	struct ig_chat_template *c;
	struct ig_error *err;
};

static int open_variant(void *ctx, uint64_t i, const char *s, size_t len)
{
	struct opening *o = ctx;
	char name[MAX_VARIANT_BYTES + 1], key[MAX_VARIANT_BYTES + 32];
	const char *text;
	size_t text_len;
	int rc;

	if (len > MAX_VARIANT_BYTES || memchr(s, 0, len))
		return ig_fail(o->err, -ENOTSUP, "the name of a chat template is too long");
	memcpy(name, s, len);
	name[len] = 0;
	if (!strcmp(name, "default"))
		return 0;
	snprintf(key, sizeof key, "tokenizer.chat_template.%s", name);
	rc = ig_checkpoint_str(o->g, key, &text, &text_len, o->err);
	if (rc)
		return rc == -ENOENT ? ig_fail(o->err, -ENOTSUP,
					       "the file names the chat template '%s' "
					       "but has none under %s",
					       name, key) :
				       rc;
	return add_variant(o->c, name, text, text_len, o->err);
}

/* The model's tokens under the names that templates use; a token without an id is undefined. */
static int read_tokens(const struct ig_checkpoint *g, struct ig_chat_template *c,
		       struct ig_error *err)
{
	static const struct {
		const char *key, *name;
	} tokens[] = {
		{ "tokenizer.ggml.bos_token_id", "bos_token" },
		{ "tokenizer.ggml.eos_token_id", "eos_token" },
		{ "tokenizer.ggml.unknown_token_id", "unk_token" },
		{ "tokenizer.ggml.padding_token_id", "pad_token" },
	};

	c->tokens = json_object();
	for (size_t i = 0; c->tokens && i < sizeof tokens / sizeof tokens[0]; i++) {
		uint32_t id;
		size_t len;
		bool special;
		const char *s;

		if (ig_checkpoint_u32(g, tokens[i].key, &id, NULL) || id > INT32_MAX)
			continue;
		s = ig_tokenizer_token(c->tokenizer, (int32_t)id, &len, &special);
		if (s &&
		    json_object_set_new(c->tokens, tokens[i].name, json_stringn_nocheck(s, len)))
			return no_memory(err);
	}
	return c->tokens ? 0 : no_memory(err);
}

/* After the templates and tokens were added. */
static int check_templates(struct ig_chat_template *c, struct ig_error *err)
{
	const struct variant *v = &c->variants[0];

	c->chatml = memmem(v->source, v->source_len, START, strlen(START)) != NULL;
	/* Without control tokens, its markers could not be distinguished from a client's text. */
	if (c->chatml && (ig_tokenizer_find_special(c->tokenizer, START) < 0 ||
			  ig_tokenizer_find_special(c->tokenizer, END) < 0))
		return ig_fail(err, -ENOTSUP,
			       "the model's chat template is ChatML, but %s or %s is "
			       "not a control token of its vocabulary",
			       START, END);
	for (size_t i = 0; i < c->n_variants; i++)
		if (chat_turns_probe(c, c->variants[i].name, &c->variants[i].turns) < 0)
			return no_memory(err);
	return 0;
}

/* ---- from files beside the weights ----------------------------------------------- */

static int open_listed(void *ctx, const char *name, const char *text, size_t len)
{
	struct opening *o = ctx;

	return add_variant(o->c, name, text, len, o->err);
}

static int list_tokens(const struct ig_model_config *config, struct ig_chat_template *c,
		       struct ig_error *err)
{
	static const char *const names[] = {
		"bos_token", "eos_token", "unk_token",	"sep_token",
		"pad_token", "cls_token", "mask_token",
	};

	c->tokens = json_object();
	for (size_t i = 0; c->tokens && i < sizeof names / sizeof names[0]; i++) {
		size_t len;
		const char *s = ig_model_config_token(config, names[i], &len);
		if (s && json_object_set_new(c->tokens, names[i], json_stringn_nocheck(s, len)))
			return no_memory(err);
	}
	return c->tokens ? 0 : no_memory(err);
}

int ig_chat_template_open_files(const struct ig_model_files *files, const struct ig_tokenizer *t,
				struct ig_chat_template **out, struct ig_error *err)
{
	struct opening o = { .err = err };
	struct ig_model_config config;
	int rc = ig_model_config_read(files, &config, err);

	*out = NULL;
	if (rc)
		return rc;
	o.c = calloc(1, sizeof *o.c);
	if (!o.c) {
		rc = no_memory(err);
		goto out;
	}
	o.c->tokenizer = t;
	if ((rc = ig_model_config_templates(&config, open_listed, &o, err)) ||
	    (rc = list_tokens(&config, o.c, err)) || (rc = check_templates(o.c, err)))
		goto out;
	*out = o.c;
	o.c = NULL;
out:
	ig_chat_template_close(o.c);
	ig_model_config_finish(&config);
	return rc;
}

/* ---- from a file's keys ------------------------------------------------------------ */

int ig_chat_template_open(const struct ig_checkpoint *g, const struct ig_tokenizer *t,
			  struct ig_chat_template **out, struct ig_error *err)
{
	struct ig_chat_template *c;
	struct opening o = { .g = g, .err = err };
	const char *s;
	size_t len;
	int rc;

	*out = NULL;
	rc = ig_checkpoint_str(g, "tokenizer.chat_template", &s, &len, err);
	if (rc == -ENOENT &&
	    ig_checkpoint_str(g, "tokenizer.ggml.model", &s, &len, NULL) == -ENOENT) {
		struct ig_model_files files = ig_model_files_of(g);
		return ig_chat_template_open_files(&files, t, out, err);
	}
	if (rc)
		return rc;
	c = calloc(1, sizeof *c);
	if (!c)
		return no_memory(err);
	c->tokenizer = t;
	o.c = c;
	if ((rc = add_variant(c, "default", s, len, err)) || (rc = read_tokens(g, c, err)))
		goto out;
	rc = ig_checkpoint_array_strs(g, "tokenizer.chat_templates", open_variant, &o, NULL);
	if (rc == -ENOENT)
		rc = 0;
	else if (rc == -EINVAL)
		rc = ig_fail(err, -ENOTSUP, "tokenizer.chat_templates is not a list of names");
	if (!rc)
		rc = check_templates(c, err);
	if (!rc) {
		*out = c;
		return 0;
	}
out:
	ig_chat_template_close(c);
	return rc;
}

const char *ig_chat_template_name(const struct ig_chat_template *c)
{
	return c->chatml ? "chatml" : "jinja";
}

const char *ig_chat_template_source(const struct ig_chat_template *c, size_t i, size_t *len)
{
	if (i >= c->n_variants)
		return NULL;
	*len = c->variants[i].source_len;
	return c->variants[i].source;
}

/* ---- messages to text ------------------------------------------------------------- */

static bool is_role(const char *s, size_t len)
{
	if (len == 0 || len > MAX_ROLE_BYTES)
		return false;
	for (size_t i = 0; i < len; i++)
		if (!((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') ||
		      (s[i] >= '0' && s[i] <= '9') || s[i] == '_' || s[i] == '-'))
			return false;
	return true;
}

static int check(const struct ig_chat_input *in, struct ig_error *err)
{
	const json_t *m;
	size_t i;

	if (!json_is_array(in->messages))
		return ig_fail(err, -EINVAL, "the messages are not a list");
	if (in->tools && !json_is_array(in->tools))
		return ig_fail(err, -EINVAL, "the tools are not a list");
	if (in->extra && (!json_is_object(in->extra) || json_object_size(in->extra) > MAX_EXTRA))
		return ig_fail(err, -EINVAL,
			       "the template's variables are not an object of at most %d",
			       MAX_EXTRA);
	json_array_foreach(in->messages, i, m)
	{
		const json_t *role = json_object_get(m, "role");
		if (!json_is_object(m))
			return ig_fail(err, -EINVAL, "message %zu is not an object", i);
		if (!json_is_string(role) ||
		    !is_role(json_string_value(role), json_string_length(role)))
			return ig_fail(err, -EINVAL,
				       "message %zu: the role is not a word of letters, digits, "
				       "_ and -, at most %d",
				       i, MAX_ROLE_BYTES);
	}
	return 0;
}

/* NULL: there is none with that name. */
static const struct variant *choose(const struct ig_chat_template *c,
				    const struct ig_chat_input *in)
{
	const char *name = in->variant;

	if (!name)
		name = in->tools && json_array_size(in->tools) ? "tool_use" : "default";
	for (size_t i = 0; i < c->n_variants; i++)
		if (!strcmp(c->variants[i].name, name))
			return &c->variants[i];
	return in->variant ? NULL : &c->variants[0];
}

const struct ig_chat_turns *ig_chat_template_turns(const struct ig_chat_template *c,
						   const struct ig_chat_input *in)
{
	const struct variant *v = choose(c, in);

	return &(v ? v : &c->variants[0])->turns;
}

/* Of two variables with the same name the later one is used: a client's come first. */
static size_t fill_vars(const struct ig_chat_template *c, const struct ig_chat_input *in,
			struct ig_jinja_var *vars)
{
	static const char *const constants[] = { "tools", "documents" };
	const char *name;
	json_t *value;
	size_t n = 0;

	for (size_t i = 0; i < 2; i++)
		vars[n++] = (struct ig_jinja_var){ constants[i], json_null(), true };
	if (in->extra)
		json_object_foreach((json_t *)(uintptr_t)in->extra, name, value) vars[n++] =
			(struct ig_jinja_var){ name, value, false };
	json_object_foreach(c->tokens, name, value) vars[n++] =
		(struct ig_jinja_var){ name, value, true };
	vars[n++] = (struct ig_jinja_var){ "messages", in->messages, false };
	if (in->tools && json_array_size(in->tools))
		vars[n++] = (struct ig_jinja_var){ "tools", in->tools, false };
	vars[n++] = (struct ig_jinja_var){ "add_generation_prompt",
					   in->add_generation_prompt ? json_true() : json_false(),
					   true };
	return n;
}

static bool is_blank(char ch) { return ch == ' ' || (ch >= '\t' && ch <= '\r'); }

/* End the output with the last message's text: of all places where it stands, in bytes of a client,
 * the last one. */
static int cut_after_last(const struct ig_chat_input *in, struct ig_jinja_output *out,
			  struct ig_error *err)
{
	const json_t *last = json_array_get(in->messages, json_array_size(in->messages) - 1);
	const json_t *content = json_object_get(last, "content");
	const char *s = json_string_value(content);
	size_t n = json_string_length(content);

	while (n && is_blank(s[n - 1]))
		n--;
	while (n && is_blank(*s))
		s++, n--;
	for (size_t at = out->len; n && out->client && at >= n; at--) {
		if (memcmp(out->text + at - n, s, n) || memchr(out->client + at - n, 0, n))
			continue;
		out->text[at] = 0;
		out->len = at;
		return 0;
	}
	return ig_fail(err, -EINVAL,
		       "the model's chat template changes the last message, so its text can't be "
		       "continued");
}

static int render(const struct ig_chat_template *c, const struct ig_chat_input *in,
		  struct ig_jinja_output *out, struct ig_error *err)
{
	struct ig_jinja_var vars[MAX_EXTRA + 16];
	struct ig_jinja_input j = {
		.vars = vars,
		.trusted_key = "role",
		.trusted_words = known_roles,
		.now_s = in->now_s ? in->now_s : ig_wall_ns() / 1000000000,
	};
	const struct variant *v = choose(c, in);
	struct ig_error why = { 0 };
	int rc = check(in, err);

	if (rc)
		return rc;
	if (!v)
		return ig_fail(err, -EINVAL, "the model has no chat template named '%.60s'",
			       in->variant);
	j.n_vars = fill_vars(c, in, vars);
	rc = ig_jinja_render(v->program, &j, NULL, out, &why);
	if (rc == -ENOMEM)
		return ig_fail(err, rc, "out of memory for the conversation");
	if (rc) /* -E2BIG means too many tokens here */
		return ig_fail(err, -EINVAL, "the model's chat template: %s", why.text);
	rc = in->continues ? cut_after_last(in, out, err) : 0;
	if (rc)
		ig_jinja_output_finish(out);
	return rc;
}

/* Id of the BOS if the file requires one and the rendered text does not begin with it; else -1. */
static int32_t missing_bos(const struct ig_chat_template *c, const struct ig_jinja_output *text)
{
	int32_t bos = ig_tokenizer_bos(c->tokenizer);
	bool special;
	size_t len;
	const char *s;

	if (!ig_tokenizer_add_bos(c->tokenizer))
		return -1;
	s = ig_tokenizer_token(c->tokenizer, bos, &len, &special);
	if (!s) /* the file has none */
		return -1;
	/* ChatML begins a turn with this token: there it is not the BOS, even if the ids are equal. */
	if (len == strlen(START) && !memcmp(s, START, len))
		return bos;
	if (len && text->len >= len && !memcmp(text->text, s, len) &&
	    !(text->client && memchr(text->client, 1, len)))
		return -1;
	return bos;
}

int ig_chat_template_encode_json(const struct ig_chat_template *c, const struct ig_chat_input *in,
				 size_t max_ids, struct ig_ids *out, struct ig_error *err)
{
	struct ig_jinja_output text;
	size_t n_before = out->n;
	int32_t bos;
	int rc = render(c, in, &text, err);

	if (rc)
		return rc;
	bos = missing_bos(c, &text);
	if (bos >= 0)
		rc = ig_ids_add(out, &bos, 1, max_ids);
	if (!rc)
		rc = ig_tokenizer_encode_marked(c->tokenizer, text.text, text.client, text.len,
						max_ids, out);
	if (rc) {
		out->n = n_before;
		ig_fail(err, rc,
			rc == -E2BIG ? "the conversation has more than %zu tokens" :
				       "out of memory for a conversation of up to %zu tokens",
			max_ids);
	}
	ig_jinja_output_finish(&text);
	return rc;
}

int ig_chat_template_render_json(const struct ig_chat_template *c, const struct ig_chat_input *in,
				 char **out, struct ig_error *err)
{
	struct ig_jinja_output rendered;
	struct ig_strbuf text = { 0 };
	bool special;
	size_t len;
	int32_t bos;
	int rc;

	*out = NULL;
	if ((rc = render(c, in, &rendered, err)))
		return rc;
	bos = missing_bos(c, &rendered);
	if (bos >= 0) {
		const char *s = ig_tokenizer_token(c->tokenizer, bos, &len, &special);
		ig_strbuf_add(&text, s, len);
	}
	ig_strbuf_add(&text, rendered.text, rendered.len);
	*out = ig_strbuf_steal(&text);
	if (!*out)
		rc = ig_fail(err, -ENOMEM, "out of memory for the conversation");
	ig_strbuf_finish(&text);
	ig_jinja_output_finish(&rendered);
	return rc;
}
