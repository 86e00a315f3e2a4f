/*
 * test_completion_memory.c: each allocation of opening a template, parsing a completion and making
 * a grammar's source fails once; the result is an error, never a crash, a tool call without an
 * end, or (under AddressSanitizer) a leak.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/chat/completion.h"
#include "tiny_gguf.h"
#include "tests/unit/no_memory.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- a fake of the grammar cache ----------------------------------------------------- */

static struct ig_grammar *const some_grammar = (struct ig_grammar *)(void *)&no_memory_also;

int ig_grammar_cache_get(struct ig_grammar_cache *c, const struct ig_tokenizer *t,
			 const struct ig_grammar_source *s, struct ig_grammar **out,
			 struct ig_error *err)
{
	*out = some_grammar;
	return 0;
}

int ig_grammar_compile(const struct ig_tokenizer *t, const struct ig_grammar_source *s,
		       struct ig_grammar **out, struct ig_error *err)
{
	*out = some_grammar;
	return 0;
}

void ig_grammar_unref(struct ig_grammar *g) {}

/* ---- tests --------------------------------------------------------------------------------- */

/* How often one of run's allocations could fail: once each, until it comes through. */
static int each_fails(int (*run)(void *arg), void *arg)
{
	for (int n = 0;; n++) {
		int rc;
		assert_true(n < 10000);
		no_memory_at(n);
		rc = run(arg);
		if (!no_memory_failed()) {
			assert_int_equal(rc, 0);
			return n;
		}
		assert_int_equal(rc, -ENOMEM);
	}
}

struct seen {
	size_t n_text, n_calls, n_ends;
	bool in_call;
};

static void on_event(void *ctx, const struct ig_completion_event *e)
{
	struct seen *s = ctx;

	s->n_text += e->kind == IG_COMPLETION_TEXT ? e->len : 0;
	s->n_calls += e->kind == IG_COMPLETION_TOOL_CALL;
	s->n_ends += e->kind == IG_COMPLETION_TOOL_CALL_END;
	if (e->kind == IG_COMPLETION_TOOL_CALL)
		assert_true(e->len == 1 && *e->data == 'f'); /* never half a name */
}

static int parse(void *arg)
{
	static const struct ig_completion_style s = { .calls = IG_TOOL_CALLS_HERMES,
						      .reasoning = true };
	struct ig_completion_parser *p = ig_completion_parser_create(&s, true, NULL);
	const char *text = arg;
	struct seen seen = { 0 };
	size_t len = strlen(text);
	int rc = 0;

	if (!p)
		return -ENOMEM;
	for (size_t at = 0; at < len && !rc; at += 50)
		rc = ig_completion_parser_feed(p, text + at, len - at < 50 ? len - at : 50,
					       len - at <= 50, on_event, &seen);
	if (rc) { /* and so it stays */
		struct seen before = seen;
		assert_int_equal(ig_completion_parser_feed(p, "x", 1, true, on_event, &seen),
				 -ENOMEM);
		assert_memory_equal(&before, &seen, sizeof seen);
	} else {
		assert_int_equal(seen.n_calls, 3);
		assert_int_equal(seen.n_ends, 3);
		assert_true(seen.n_text > 0);
	}
	ig_completion_parser_destroy(p);
	return rc;
}

static void parsing(void **state)
{
	char text[4000], fill[600];

	memset(fill, 'x', sizeof fill - 1);
	fill[sizeof fill - 1] = 0;
	snprintf(text, sizeof text,
		 "<think>%s</think>%s<tool_call>{\"arguments\": {\"%s\": 1}, \"name\": \"f\"}"
		 "</tool_call>"
		 "<tool_call>{\"name\": \"f\", \"arguments\": {\"%s\": 1}}</tool_call>"
		 "<tool_call>{\"%s\": 1, \"name\": \"f\", \"arguments\": \"{}\"}</tool_call>",
		 fill, fill, fill, fill, fill);
	assert_in_range(each_fails(parse, text), 5, 1000);
}

static json_t *tools;

struct counts {
	unsigned n_calls, n_ends;
};

static void count(void *ctx, const struct ig_completion_event *e)
{
	struct counts *c = ctx;

	c->n_calls += e->kind == IG_COMPLETION_TOOL_CALL;
	c->n_ends += e->kind == IG_COMPLETION_TOOL_CALL_END;
}

/* Values that become JSON. */
static int parse_tags(void *arg)
{
	static const struct ig_completion_style s = { .calls = IG_TOOL_CALLS_QWEN };
	static const char text[] =
		"<tool_call>\n<function=f>\n<parameter=a>\n{\"some\": [\"json\"]}\n</parameter>\n"
		"<parameter=b>\ntext, that is long enough to make a string grow, and more of "
		"it\n</parameter>\n</function>\n</tool_call>";
	struct ig_completion_parser *p = ig_completion_parser_create(&s, true, arg);
	struct counts c = { 0 };
	int rc;

	if (!p)
		return -ENOMEM;
	rc = ig_completion_parser_feed(p, text, strlen(text), true, count, &c);
	assert_true(rc || (c.n_calls == 1 && c.n_ends == 1));
	ig_completion_parser_destroy(p);
	return rc;
}

static int fall_back(void *arg)
{
	json_t *out;
	int rc = ig_tool_fallback(arg, tools, &out);

	assert_int_equal(rc == 0, out != NULL);
	json_decref(out);
	return rc;
}

static void other_formats(void **state)
{
	json_t *messages;

	tools = json_loads("[{\"function\": {\"name\": \"f\"}}]", 0, NULL);
	messages = json_loads(
		"[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
		"\"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {}}}]}, "
		"{\"role\": \"tool\", \"content\": \"b\"}]",
		0, NULL);
	assert_in_range(each_fails(parse_tags, tools), 5, 1000);
	assert_in_range(each_fails(fall_back, messages), 5, 1000);
	json_decref(messages);
	json_decref(tools);
}

static int make_source(void *arg)
{
	struct ig_grammar *g;
	struct ig_error err = { 0 };
	int rc = ig_completion_tool_grammar(
		arg, NULL, NULL, tools, &(struct ig_tool_grammar){ .parallel = true }, &g, &err);

	assert_int_equal(err.code, rc);
	assert_int_equal(g != NULL, rc == 0);
	if (rc)
		assert_string_equal(err.text, "out of memory for the tools' grammar");
	return rc;
}

static void sources(void **state)
{
	struct ig_completion_style s = { .calls = IG_TOOL_CALLS_LLAMA3 };

	tools = json_loads("[{\"function\": {\"name\": "
			   "\"a_name_that_takes_more_room_than_a_first_piece_"
			   "of_a_string_has_got_in_it\"}}, {\"function\": {\"name\": \"g\", "
			   "\"parameters\": {}}}]",
			   0, NULL);
	assert_non_null(tools);
	assert_in_range(each_fails(make_source, &s), 4, 100);
	json_decref(tools);
}

struct files {
	struct ig_checkpoint *g;
	struct ig_tokenizer *t;
};

/* Of the template's own allocations and its copies of the sources. */
static int open_template(void *arg)
{
	struct files *f = arg;
	struct ig_chat_template *c;
	struct ig_error err = { 0 };
	int rc = ig_chat_template_open(f->g, f->t, &c, &err);

	assert_int_equal(rc == 0, c != NULL);
	ig_chat_template_close(c);
	return rc;
}

/* Without memory to render, the style has opens_reasoning false. */
static int tell_style(void *arg)
{
	struct ig_completion_style s;

	ig_completion_style_of(arg, &s);
	assert_int_equal(s.calls, IG_TOOL_CALLS_MISTRAL);
	assert_true(s.reasoning);
	return s.opens_reasoning ? 0 : -ENOMEM;
}

static void templates(void **state)
{
	static const char *const names[] = { "tool_use" };
	struct ig_chat_template *c;
	struct files f;
	struct ig_error err;
	struct gw w;

	tiny_file(&w, &(struct tiny_options){ .model = "gpt2",
					      .pre = "smollm",
					      .chat_template = "{{ '</think>' if 0 }}<think>" });
	gw_strs(&w, "tokenizer.chat_templates", names, 1);
	gw_str(&w, "tokenizer.chat_template.tool_use", "{{ '[TOOL_CALLS]' }}");
	assert_int_equal(ig_checkpoint_open_memory(w.data, w.len, "tiny", &f.g, &err), 0);
	assert_int_equal(ig_tokenizer_open(f.g, &f.t, &err), 0);
	assert_in_range(each_fails(open_template, &f), 5, 1000);
	assert_int_equal(ig_chat_template_open(f.g, f.t, &c, &err), 0);
	assert_in_range(each_fails(tell_style, c), 2, 1000);
	ig_chat_template_close(c);
	ig_tokenizer_close(f.t);
	ig_checkpoint_close(f.g);
	gw_finish(&w);
}

int main(void)
{
	json_set_alloc_funcs(malloc, free); /* as the linker has them */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parsing),
		cmocka_unit_test(other_formats),
		cmocka_unit_test(sources),
		cmocka_unit_test(templates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
