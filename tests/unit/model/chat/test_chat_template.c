/* test_chat_template.c: which templates are taken, and what they make of messages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/chat/chat_template.h"
#include "tiny_gguf.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define LOOP "{% for message in messages %}"
#define MESSAGE                                                                                    \
	"{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' "          \
	"+ '\\n'}}"
#define PROMPT "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
#define PLAIN LOOP MESSAGE "{% endfor %}" PROMPT
#define FIRST "{% if loop.first and messages[0]['role'] != 'system' %}"
#define THREE                                                                                      \
	"{%- if (message.role == \"user\") or (message.role == \"system\" and not "                \
	"loop.first) or (message.role == \"assistant\" and not message.tool_calls) %}"
#define HEADER                                                                                     \
	"{% if messages[0].role == 'system' %}{{ '<|im_start|>system\\n' + "                       \
	"messages[0].content + '<|im_end|>\\n' }}{% else %}{{ "                                    \
	"'<|im_start|>system\\nD<|im_end|>\\n' }}{% endif %}"

struct world {
	struct gw w;
	struct ig_checkpoint *g;
	struct ig_tokenizer *t;
	struct ig_chat_template *c;
	struct ig_error err;
	int rc;
};

static void open_world(struct world *x, const struct tiny_options *o)
{
	*x = (struct world){ 0 };
	tiny_file(&x->w, o);
	assert_int_equal(ig_checkpoint_open_memory(x->w.data, x->w.len, "tiny", &x->g, &x->err), 0);
	assert_int_equal(ig_tokenizer_open(x->g, &x->t, &x->err), 0);
	x->rc = ig_chat_template_open(x->g, x->t, &x->c, &x->err);
	assert_int_equal(x->rc == 0, x->c != NULL);
}

static void close_world(struct world *x)
{
	ig_chat_template_close(x->c);
	ig_tokenizer_close(x->t);
	ig_checkpoint_close(x->g);
	gw_finish(&x->w);
}

/* One message of this role, with a prompt: its text, or NULL when it is refused. */
static char *render_one(const char *template, const char *role, const char *content)
{
	struct tiny_message m = { role, content, strlen(content) };
	struct world x;
	char *text;

	open_world(&x, &(struct tiny_options){
			       .model = "gpt2", .pre = "smollm", .chat_template = template });
	if (x.rc)
		fail_msg("%s", x.err.text);
	assert_string_equal(ig_chat_template_name(x.c), "chatml");
	tiny_render(x.c, &m, 1, true, &text, &x.err);
	close_world(&x);
	return text;
}

static void reads_as(const char *template, const char *want)
{
	char *text = render_one(template, "user", "hi");

	assert_non_null(text);
	assert_string_equal(text, want);
	free(text);
}

#define HI "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
#define SYSTEM_D "<|im_start|>system\nD<|im_end|>\n"

static void taken(void **state)
{
	reads_as(PLAIN, HI);
	reads_as(PLAIN "\n", HI);
	/* Spacing, quotes, members and joined literals make no difference. */
	reads_as("{%for message in messages-%}\n {{- \"<|im_start|>\"+message.role+\"\\n\"\n+ "
		 "message [ 'content' ] + '<|im_end|>\\n' -}} {%endfor%}\n" PROMPT,
		 HI);
	/* Text between blocks is output too, with Jinja's rules for lines. */
	reads_as(LOOP "\n<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n  "
		      "{% endfor %}\n{% if add_generation_prompt %}\n<|im_start|>assistant\n{% "
		      "endif %}\n",
		 HI);
}

static void defaults(void **state)
{
	reads_as(LOOP FIRST "{{ '<|im_start|>system\\nD<|im_end|>\\n' }}{% endif %}" MESSAGE
			    "{% endfor %}" PROMPT,
		 SYSTEM_D HI);
	reads_as(HEADER LOOP THREE MESSAGE "{% endif %}{% endfor %}" PROMPT, SYSTEM_D HI);
	reads_as("{% if tools %}{{ tools }}{% if x %}{% else %}{% endif %}{% endif %}" PLAIN, HI);
	reads_as("{% if tools %}{% for t in tools %}{{ t }}{% else %}none{% endfor %}{% else "
		 "%}" HEADER "{% endif %}" LOOP THREE MESSAGE
		 "{% elif message.role == 'assistant' %}{% if a %}{{ b }}{% else %}{% endif %}{% "
		 "elif message.role == 'tool' %}x{% endif %}{% endfor %}" PROMPT,
		 SYSTEM_D HI);
	reads_as("{% if not add_generation_prompt is defined %}"
		 "{% set add_generation_prompt = false %}{% endif %}" PLAIN,
		 HI);

	char *text = render_one(HEADER LOOP THREE MESSAGE "{% endif %}{% endfor %}" PROMPT,
				"system", "S");
	assert_string_equal(text, "<|im_start|>system\nS<|im_end|>\n<|im_start|>assistant\n");
	free(text);
}

static void refused(const char *template, const char *shown)
{
	struct world x;

	open_world(&x, &(struct tiny_options){
			       .model = "gpt2", .pre = "smollm", .chat_template = template });
	if (x.rc != -ENOTSUP)
		fail_msg("taken: %s", template);
	assert_int_equal(x.err.code, -ENOTSUP);
	if (!strstr(x.err.text, shown))
		fail_msg("wanted '%s' in: %s", shown, x.err.text);
	close_world(&x);
}

static void not_taken(void **state)
{
	static const char *const templates[] = {
		LOOP MESSAGE PROMPT,
		MESSAGE PROMPT "{% endif %}",
		"{% if tools %}",
		"{% if tools %}{% else %}",
		"{% if tools %}{% endfor %}" PLAIN,
		"{% if tools %}{% else %}{% else %}{% endif %}" PLAIN,
		HEADER LOOP THREE MESSAGE,
		"{{",
		"{%",
		"{{ '",
		"{{ 'a",
		"{{ 'a\\",
		"{{ a",
		"{% a -",
		"{{}}{{}}",
		"{{ }}",
		"\x01{{ '\x01' \x02 }}",
		"{{ ''] }}",
		"{% if %}",
		"{%%}{%%}",
		"{% include 'x' %}",
	};
	struct world x;

	for (size_t i = 0; i < sizeof templates / sizeof templates[0]; i++)
		refused(templates[i], "the model's chat template can't be used: line 1: ");
	refused("{% for m in messages %}\n[INST]{{ 1 + }}", "can't be used: line 2: an expression");

	/* Too long. */
	char *big = malloc((2 << 20) + 1);
	memset(big, ' ', 2 << 20);
	big[2 << 20] = 0;
	refused(big, "the template has 2097152 bytes");
	free(big);

	open_world(&x, &(struct tiny_options){ .model = "gpt2", .pre = "smollm" });
	assert_int_equal(x.rc, -ENOENT);
	assert_non_null(strstr(x.err.text, "tokenizer.chat_template"));
	close_world(&x);
	ig_chat_template_close(NULL);
}

/* ChatML without its markers in the vocabulary. */
static void no_markers(void **state)
{
	static const char *const tokens[] = { "a", "<|im_start|>", "<|im_end|>" };
	static const int32_t types[] = { 1, 3, 1 };
	struct gw w;
	struct ig_checkpoint *g;
	struct ig_tokenizer *t;
	struct ig_chat_template *c;
	struct ig_error err;

	gw_init(&w);
	gw_str(&w, "tokenizer.ggml.model", "gpt2");
	gw_strs(&w, "tokenizer.ggml.tokens", tokens, 3);
	gw_i32s(&w, "tokenizer.ggml.token_type", types, 3);
	gw_strs(&w, "tokenizer.ggml.merges", NULL, 0);
	gw_str(&w, "tokenizer.chat_template", PLAIN);
	assert_int_equal(ig_checkpoint_open_memory(w.data, w.len, "tiny", &g, &err), 0);
	assert_int_equal(ig_tokenizer_open(g, &t, &err), 0);
	assert_int_equal(ig_chat_template_open(g, t, &c, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "<|im_end|> is not a control token"));
	ig_tokenizer_close(t);
	ig_checkpoint_close(g);
	gw_finish(&w);
}

static void roles(void **state)
{
	static const char *const bad[] = {
		"",
		"a b",
		"user\n",
		"<|im_end|>",
		"r\xc3\xa9le",
		"0123456789012345678901234567890123456789012345678901234567890123456789"
	};
	struct tiny_message m = { .role = "tool", .content = "x", .content_len = 1 };
	struct ig_ids ids = { 0 };
	struct world x;
	char *text = render_one(PLAIN, "critic_2-b", "x");

	assert_non_null(text);
	free(text);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		assert_null(render_one(PLAIN, bad[i], "x"));

	open_world(&x, &(struct tiny_options){ .model = "gpt2",
					       .pre = "smollm",
					       .chat_template = HEADER LOOP THREE MESSAGE
					       "{% endif %}{% endfor %}" PROMPT });
	assert_int_equal(x.rc, 0);
	/* A template may ignore a role; this one does. */
	assert_int_equal(tiny_render(x.c, &m, 1, true, &text, &x.err), 0);
	assert_string_equal(text, SYSTEM_D "<|im_start|>assistant\n");
	free(text);
	assert_int_equal(tiny_encode(x.c, &m, 0, true, 100, &ids, &x.err), -EINVAL);
	assert_non_null(
		strstr(x.err.text, "the model's chat template: line 1: there is no attribute"));
	assert_int_equal(ids.n, 0);
	close_world(&x);

	open_world(&x, &(struct tiny_options){
			       .model = "gpt2", .pre = "smollm", .chat_template = PLAIN });
	assert_int_equal(tiny_render(x.c, &m, 0, true, &text, &x.err), 0);
	assert_string_equal(text, "<|im_start|>assistant\n");
	free(text);
	assert_int_equal(tiny_render(x.c, &m, 0, false, &text, &x.err), 0);
	assert_string_equal(text, "");
	free(text);
	close_world(&x);
}

static void encodes(void **state)
{
	struct tiny_message m = { "he", "ll<|im_end|>", 12 };
	struct ig_ids ids = { 0 };
	struct world x;
#define B(c) (TINY_BYTE + (c))
	const int32_t want[] = {
		TINY_START, TINY_HE, B('\n'), TINY_LL, B('<'), B('|'),	 TINY_IM, B('_'),
		B('e'),	    B('n'),  B('d'),  B('|'),  B('>'), TINY_END, B('\n'),
	};

	open_world(&x, &(struct tiny_options){
			       .model = "gpt2", .pre = "smollm", .chat_template = PLAIN });
	assert_int_equal(tiny_encode(x.c, &m, 1, false, 100, &ids, &x.err), 0);
	assert_int_equal(ids.n, sizeof want / sizeof want[0]);
	assert_memory_equal(ids.ids, want, sizeof want);
	close_world(&x);
	/* A BOS is added if the file requires one (by default with llama-bpe). */
	open_world(&x, &(struct tiny_options){ .model = "gpt2",
					       .pre = "llama-bpe",
					       .chat_template = PLAIN,
					       .no_bos_key = true });
	ids.n = 0;
	assert_int_equal(tiny_encode(x.c, &m, 1, false, 100, &ids, &x.err), 0);
	assert_int_equal(ids.n, sizeof want / sizeof want[0] + 1);
	assert_int_equal(ids.ids[0], TINY_START);
	assert_memory_equal(ids.ids + 1, want, sizeof want);
	close_world(&x);
	ig_ids_finish(&ids);
}

/* Named templates, tools, further variables, and what a client can't do with them. */
static void variants(void **state)
{
	static const char *const names[] = { "default", "tool_use", "rag" };
	static const char tool_use[] =
		"{{ bos_token }}{% for t in tools %}{{ t | tojson }}{% endfor %}{% for m in messages %}"
		"{{ '<|im_' ~ m.role ~ '|>' ~ (m.content or '') }}{% for c in m.tool_calls %}"
		"{{ c.function.name }}{% endfor %}{% endfor %}{{ x }}";
	struct ig_chat_input in = { .add_generation_prompt = true };
	struct ig_checkpoint *g;
	struct ig_tokenizer *t;
	struct ig_chat_template *c;
	struct ig_error err;
	struct ig_ids ids = { 0 };
	struct gw w;
	char *text;

	tiny_file(&w, &(struct tiny_options){
			      .model = "gpt2", .pre = "smollm", .chat_template = PLAIN });
	gw_strs(&w, "tokenizer.chat_templates", names, 3);
	gw_str(&w, "tokenizer.chat_template.tool_use", tool_use);
	gw_str(&w, "tokenizer.chat_template.rag", "rag");
	assert_int_equal(ig_checkpoint_open_memory(w.data, w.len, "tiny", &g, &err), 0);
	assert_int_equal(ig_tokenizer_open(g, &t, &err), 0);
	if (ig_chat_template_open(g, t, &c, &err))
		fail_msg("%s", err.text);

	json_t *messages = json_loads("[{\"role\": \"start\", \"content\": null, \"tool_calls\": "
				      "[{\"function\": {\"name\": \"<|im_end|>\"}}]}]",
				      0, NULL);
	json_t *tools = json_loads("[{\"f\": \"<|im_end|>\"}]", 0, NULL);
	json_t *extra = json_loads("{\"x\": \"<|endoftext|>\", \"bos_token\": \"evil\"}", 0, NULL);
	in = (struct ig_chat_input){ .messages = messages, .tools = tools, .extra = extra };
	if (ig_chat_template_render_json(c, &in, &text, &err))
		fail_msg("%s", err.text);
	assert_non_null(strstr(text, "{\"f\": \"<|im_end|>\"}<|im_start|><|im_end|><|endoftext|>"));
	assert_null(strstr(text, "evil"));
	free(text);
	assert_int_equal(ig_chat_template_encode_json(c, &in, 1000, &ids, &err), 0);
	assert_int_equal(ids.ids[0], TINY_START); /* bos_token */
	for (size_t i = 1; i < ids.n; i++)
		assert_true(ids.ids[i] > TINY_END);
	in.variant = "rag";
	assert_int_equal(ig_chat_template_render_json(c, &in, &text, &err), 0);
	assert_string_equal(text, "rag");
	free(text);
	in.variant = "none";
	assert_int_equal(ig_chat_template_render_json(c, &in, &text, &err), -EINVAL);
	assert_non_null(strstr(err.text, "no chat template named 'none'"));
	in.variant = NULL;
	in.tools = messages;
	in.messages = tools;
	assert_int_equal(ig_chat_template_render_json(c, &in, &text, &err), -EINVAL);
	assert_non_null(strstr(err.text, "message 0: the role"));
	in.messages = extra;
	assert_int_equal(ig_chat_template_render_json(c, &in, &text, &err), -EINVAL);
	in.messages = messages;
	in.tools = extra;
	assert_int_equal(ig_chat_template_render_json(c, &in, &text, &err), -EINVAL);
	in.tools = NULL;
	in.extra = tools;
	assert_int_equal(ig_chat_template_render_json(c, &in, &text, &err), -EINVAL);
	ig_ids_finish(&ids);
	json_decref(extra);
	json_decref(tools);
	json_decref(messages);
	ig_chat_template_close(c);
	ig_tokenizer_close(t);
	ig_checkpoint_close(g);
	gw_finish(&w);
}

static struct ig_chat_turns turns_of(const char *template, bool tools)
{
	struct world x;

	open_world(&x, &(struct tiny_options){
			       .model = "gpt2", .pre = "smollm", .chat_template = template });
	if (x.rc)
		fail_msg("%s", x.err.text);
	json_t *list = json_pack("[{}]");
	struct ig_chat_turns t = *ig_chat_template_turns(
		x.c, &(struct ig_chat_input){ .tools = tools ? list : NULL });
	json_decref(list);
	close_world(&x);
	return t;
}

#define RAISES(when) "{% if " when " %}{{ raise_exception('no') }}{% endif %}"

/* Which turns a template has a place for is what it does with them. */
static void turns(void **state)
{
	static const struct {
		const char *template;
		struct ig_chat_turns want;
	} rows[] = {
		{ PLAIN, { true, true, true, true } },
		/* Qwen 3.5, MiniMax M2, DeepSeek R1: first, left out, moved to the front */
		{ LOOP RAISES("message.role == 'system' and not loop.first") MESSAGE "{% endfor %}",
		  { true, false, true, true } },
		{ LOOP "{% if loop.first or message.role != 'system' %}" MESSAGE
		       "{% endif %}{% endfor %}",
		  { true, false, true, true } },
		{ "{% for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %}" LOOP
		  "{% if message.role != 'system' %}" MESSAGE "{% endif %}{% endfor %}",
		  { true, false, true, true } },
		/* a second one only after others */
		{ LOOP RAISES("message.role == 'system' and loop.index0 == 1") MESSAGE
		  "{% endfor %}",
		  { true, false, true, true } },
		/* Gemma 2: no system, alternation, no tools */
		{ RAISES("messages[0].role == 'system'")
			  LOOP RAISES("(message.role == 'user') != (loop.index0 % 2 == 0)") MESSAGE
		  "{% endfor %}",
		  { false, false, false, true } },
		/* Mistral: alternation that does not count tools */
		{ "{% set ns = namespace(i=0) %}" LOOP
		  "{% if not (message.role == 'tool' or message.tool_calls or loop.first and "
		  "message.role == 'system') %}" RAISES(
			  "(message.role == 'user') != (ns.i % 2 == 0)") "{% set ns.i = ns.i + 1 %}"
									 "{% endif %}{{ message.tool_calls }}" MESSAGE
									 "{% endfor %}",
		  { true, false, false, false } },
		/* nothing can be said */
		{ RAISES("true") PLAIN, { true, true, true, true } },
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct ig_chat_turns t = turns_of(rows[i].template, false);
		if (memcmp(&t, &rows[i].want, sizeof t))
			fail_msg("%s: %d %d %d %d", rows[i].template, t.system, t.later_system,
				 t.user_runs, t.user_after_tool);
	}
	assert_true(turns_of(PLAIN, true).later_system);
}

/* A text of the assistant that the model continues. */
static void continues(void **state)
{
	static const struct {
		const char *template, *content, *want; /* want NULL: it can't be */
	} rows[] = {
		{ PLAIN, "{\"a\":", "<|im_start|>assistant\n{\"a\":" },
		{ PLAIN, " x \n", "<|im_start|>assistant\n x" },
		{ LOOP "<|im_start|>{{ message.role }}:{{ message.content | trim }}!<|im_end|>"
		       "{% endfor %}",
		  " x ", "<|im_start|>assistant:x" },
		/* of the places where the text stands, the last one */
		{ LOOP "<|im_start|>{{ message.content }}/{{ message.content }}<|im_end|>"
		       "{% endfor %}x",
		  "x", "<|im_start|>x/x" },
		{ LOOP "<|im_start|>{{ message.content | upper }}<|im_end|>{% endfor %}x", "x",
		  NULL },
		{ "<|im_start|><|im_end|>x", "x", NULL },
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct world x;
		char *text = NULL;
		open_world(&x, &(struct tiny_options){ .model = "gpt2",
						       .pre = "smollm",
						       .chat_template = rows[i].template });
		json_t *list =
			json_pack("[{s:s, s:s}]", "role", "assistant", "content", rows[i].content);
		struct ig_chat_input in = { .messages = list, .continues = true };
		int rc = ig_chat_template_render_json(x.c, &in, &text, &x.err);
		assert_int_equal(rc, rows[i].want ? 0 : -EINVAL);
		if (rows[i].want)
			assert_string_equal(text, rows[i].want);
		else
			assert_non_null(strstr(x.err.text, "can't be continued"));
		free(text);
		json_decref(list);
		close_world(&x);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(taken),     cmocka_unit_test(defaults),
		cmocka_unit_test(not_taken), cmocka_unit_test(no_markers),
		cmocka_unit_test(roles),     cmocka_unit_test(encodes),
		cmocka_unit_test(variants),  cmocka_unit_test(turns),
		cmocka_unit_test(continues),
	};

	return cmocka_run_group_tests_name("model/chat_template", tests, NULL, NULL);
}
