/* test_completion.c: the style of a model's completions, from its template's source. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/chat/completion.h"
#include "tiny_gguf.h"

#include <string.h>

struct world {
	struct gw w;
	struct ig_checkpoint *g;
	struct ig_tokenizer *t;
	struct ig_chat_template *c;
};

/* tool_use: a template of that name beside the default one; NULL: none. */
static void open_world(struct world *x, const char *template, const char *tool_use)
{
	static const char *const names[] = { "tool_use" };
	struct ig_error err;

	*x = (struct world){ 0 };
	tiny_file(&x->w, &(struct tiny_options){
				 .model = "gpt2", .pre = "smollm", .chat_template = template });
	if (tool_use) {
		gw_strs(&x->w, "tokenizer.chat_templates", names, 1);
		gw_str(&x->w, "tokenizer.chat_template.tool_use", tool_use);
	}
	assert_int_equal(ig_checkpoint_open_memory(x->w.data, x->w.len, "tiny", &x->g, &err), 0);
	assert_int_equal(ig_tokenizer_open(x->g, &x->t, &err), 0);
	if (ig_chat_template_open(x->g, x->t, &x->c, &err))
		fail_msg("%s", err.text);
}

static void close_world(struct world *x)
{
	ig_chat_template_close(x->c);
	ig_tokenizer_close(x->t);
	ig_checkpoint_close(x->g);
	gw_finish(&x->w);
}

static void is_style(const char *template, const char *tool_use, struct ig_completion_style want)
{
	struct ig_completion_style s;
	struct world x;

	open_world(&x, template, tool_use);
	ig_completion_style_of(x.c, &s);
	if (s.calls != want.calls || s.compact != want.compact || s.think != want.think ||
	    s.reasoning != want.reasoning || s.opens_reasoning != want.opens_reasoning)
		fail_msg("%s: %u%s%s", template, (unsigned)s.calls, s.reasoning ? " reasoning" : "",
			 s.opens_reasoning ? " opens" : "");
	close_world(&x);
}

#define FORM(f) ((struct ig_completion_style){ .calls = IG_TOOL_CALLS_##f })
#define Q "{{ '"
#define U "' }}"

static void calls(void **state)
{
	is_style("{{ messages[0].content }}", NULL, FORM(NONE));
	/* One after the other, in one string, with quotes escaped, in several tags, joined. */
	is_style("{{- '<tool_call>\\n{\"name\": \"' + n + '\", \"arguments\": ' }}", NULL,
		 FORM(HERMES));
	is_style("{{- \"within <tool_call></tool_call>:\\n<tool_call>\\n{\\\"name\\\": <f>\" }}",
		 NULL, FORM(HERMES));
	is_style("{{- '\n<tool_call>\n' -}}\n{{- '{\"name\": ' }}", NULL, FORM(HERMES));
	is_style("{{ \"<tool_call>\\n\"\n ~ \"{\\\"name\\\": \" }}", NULL, FORM(HERMES));
	/* The same tag, and something else in it. */
	is_style("{{ '<tool_call>\\n<function=' ~ n ~ '>\\n' }}", NULL, FORM(NONE));
	is_style("{{ '<tool_call>' + name }}", NULL, FORM(NONE));
	is_style("<tool_call>{name}\n<arg_key>", NULL, FORM(NONE));
	is_style("{{ '<tool_call>[{\"name\": \"x\"}]' }}", NULL, FORM(NONE));
	is_style("{{ '<tool_call>{\"names\": 1}' }}", NULL, FORM(NONE));
	is_style(Q "<tool_call>" U, NULL, FORM(NONE));
	is_style("<tool_call>{", NULL, FORM(NONE));
	is_style("<tool_call>{\"name", NULL, FORM(NONE));
	is_style("<tool_call>{\"name\"", NULL, FORM(HERMES));
	/* Llama 3's format is recognised by its headers and both keys. */
	is_style("<|start_header_id|>{{ '{\"name\": \"' + n + '\", ' }}{{ '\"parameters\": ' }}",
		 NULL, FORM(LLAMA3));
	is_style("{{ '{\"name\": \"' + n + '\", ' }}{{ '\"parameters\": ' }}", NULL, FORM(NONE));
	is_style("<|start_header_id|>{{ '\"parameters\": ' }}", NULL, FORM(NONE));
	is_style("<|start_header_id|>{{ '{\"name\": \"' }}{{ '\"parameters\": ' }}<function=x>",
		 NULL, FORM(NONE));
	is_style("<|start_header_id|>{{ '{\"name\": \"' }}{{ '\"parameters\": ' }}"
		 "{{ '<tool_call>{\"name\": ' }}",
		 NULL, FORM(HERMES));
	is_style("{{ '[TOOL_CALLS][' }}", NULL, FORM(MISTRAL));
	is_style("{{ '[TOOL_CALLS]' + n + '[ARGS]' + a }}", NULL,
		 (struct ig_completion_style){ .calls = IG_TOOL_CALLS_MISTRAL_ARGS });
	is_style("{{ '[TOOL_CALL]' + n + '[ARGS]' + a }}", NULL, FORM(NONE));
	/* The other formats, by the texts of their templates. */
	is_style("{{ '<tool_call>\\n<function=' ~ n ~ '>\\n<parameter=' }}", NULL, FORM(QWEN));
	is_style("<|channel|>commentary to=functions.f<|message|>", NULL, FORM(HARMONY));
	is_style("<tool_call>{name}\n<arg_key>k</arg_key>\n<arg_value>", NULL, FORM(GLM));
	is_style("{{ '<arg_key>k</arg_key>\\n<arg_value><tool_call>' }}", NULL, FORM(GLM));
	is_style("<tool_call>{name}<arg_key>k</arg_key><arg_value>", NULL,
		 (struct ig_completion_style){ .calls = IG_TOOL_CALLS_GLM, .compact = true });
	is_style("<|tool_call_begin|>x<|tool_call_argument_begin|>", NULL, FORM(KIMI));
	is_style("<｜tool▁calls▁begin｜>```json", NULL, FORM(DEEPSEEK));
	is_style("<｜tool▁calls▁begin｜>", NULL, FORM(DEEPSEEK31));
	is_style("{% set d = '｜DSML｜' %}<{{ d }}function_calls>", NULL, FORM(DSML));
	is_style("{% set d = '｜DSML｜' %}<{{ d }}tool_calls>", NULL, FORM(DSML4));
	is_style("<minimax:tool_call>", NULL, FORM(MINIMAX));
	is_style("<|tool_call>call:f", NULL, FORM(GEMMA));
	is_style("respond only with <|tool_call|>", NULL, FORM(GRANITE));
	is_style("<|tool_call_start|>", NULL, FORM(LFM2));
	is_style("<|python_start|>", NULL, FORM(PYTHON));
	is_style("[func_name1(params_name1=params_value1)]", NULL, FORM(PYTHON));
	is_style("[THINK]x[/THINK]", NULL,
		 (struct ig_completion_style){ .reasoning = true, .think = IG_THINK_BRACKET });
	is_style("<|channel>thought\nx<channel|>", NULL,
		 (struct ig_completion_style){ .reasoning = true, .think = IG_THINK_CHANNEL });
	/* In the template for tools. */
	is_style("{{ 'x' }}", "{{ '<tool_call>{\"name\": ' }}", FORM(HERMES));
}

static void reasoning(void **state)
{
	static const struct ig_completion_style may = { .reasoning = true },
						opens = { .reasoning = true,
							  .opens_reasoning = true };

	is_style("{{ m.split('</think>')[-1] if m }}", NULL, may);
	is_style("<think>", NULL, FORM(NONE));
	is_style("{{ '</think>' if 0 }}{% if add_generation_prompt %}a<think>\n{% endif %}", NULL,
		 opens);
	is_style("{{ '</think>' if 0 }}a<think>\\n", NULL, may);
	is_style("{{ '</think>' if 0 }}<think>", NULL, opens);
	is_style("{{ '</think>' if 0 }}<think>x", NULL, may);
	/* What a variable decides, it decides. */
	is_style("<think>\n{% if not enable_thinking %}</think>{% endif %}", NULL, may);
	is_style("<think>\n{% if enable_thinking is defined %}</think>{% endif %}", NULL, opens);
	/* One that can't be rendered like this does not open anything. */
	is_style("{{ raise_exception('no') }}</think><think>", NULL, may);
}

static void prompted(void **state)
{
	static const struct {
		const char *text;
		bool opens;
	} prompts[] = {
		{ "<|im_start|>assistant\n<think>\n", true },
		{ "<think>", true },
		{ "<think> \n\n\t", true },
		{ "<think>\n\n</think>\n\n", false },
		{ "think>", false },
		{ "", false },
		{ "<think>a", false },
		{ "hello hello hello hello hello hello "
		  "hello hello "
		  "hello hello hello hello <think>\n",
		  true },
	};
	struct ig_completion_style s = { .reasoning = true };
	struct world x;

	open_world(&x, "{{ 'x' }}", NULL);
	for (size_t i = 0; i < sizeof prompts / sizeof prompts[0]; i++) {
		struct ig_ids ids = { 0 };
		assert_int_equal(ig_tokenizer_encode(x.t, prompts[i].text, strlen(prompts[i].text),
						     true, 1000, &ids),
				 0);
		s.opens_reasoning = !prompts[i].opens;
		ig_completion_style_prompted(&s, x.t, ids.ids, ids.n);
		if (s.opens_reasoning != prompts[i].opens)
			fail_msg("%s", prompts[i].text);
		/* A model that does not reason is not made to. */
		struct ig_completion_style none = { .calls = IG_TOOL_CALLS_HERMES };
		ig_completion_style_prompted(&none, x.t, ids.ids, ids.n);
		assert_false(none.opens_reasoning);
		ig_ids_finish(&ids);
	}
	/* Ids that there are not end the look. */
	ig_completion_style_prompted(&s, x.t, &(int32_t){ N_TINY }, 1);
	assert_false(s.opens_reasoning);
	close_world(&x);
}

/* Where a call ends the model's turn, its token does; but not the end of a message of gpt-oss. */
static void ends(void **state)
{
	static const char *const texts[] = { "<|end|>",		 "<|call|>", "<|observation|>",
					     "<|tool_response>", "<turn|>",  "<|eom_id|>",
					     "<|message|>",	 "x" };
	int32_t types[8] = { 3, 3, 3, 3, 3, 3, 3, 1 };
	struct ig_tokenizer *t;
	struct ig_error err;
	struct ig_checkpoint *g;
	struct gw w;

	for (int with_call = 0; with_call < 2; with_call++) {
		types[1] = with_call ? 3 : 1;
		gw_init(&w);
		gw_str(&w, "tokenizer.ggml.model", "gpt2");
		gw_strs(&w, "tokenizer.ggml.tokens", texts, 8);
		gw_i32s(&w, "tokenizer.ggml.token_type", types, 8);
		gw_strs(&w, "tokenizer.ggml.merges", NULL, 0);
		gw_u32(&w, "tokenizer.ggml.eot_token_id", 0);
		assert_int_equal(ig_checkpoint_open_memory(w.data, w.len, "tiny", &g, &err), 0);
		assert_int_equal(ig_tokenizer_open(g, &t, &err), 0);
		for (int32_t id = 0; id < 8; id++)
			assert_int_equal(ig_tokenizer_is_end(t, id), id == 0 ? !with_call :
								     id == 1 ? with_call :
									       id < 6);
		ig_tokenizer_close(t);
		ig_checkpoint_close(g);
		gw_finish(&w);
	}
}

/* Only control tokens, and only those of the style. */
static void shown(void **state)
{
	static const char *const texts[] = { "<think>",	     "</think>",       "<tool_call>",
					     "</tool_call>", "<|python_tag|>", "[TOOL_CALLS]",
					     "[ARGS]",	     "[CALL_ID]",      "<|eot_id|>" };
	const char *names[16];
	int32_t types[16], ids[16];
	struct ig_completion_style s = { .calls = IG_TOOL_CALLS_MISTRAL };
	struct ig_tokenizer *t;
	struct ig_error err;
	struct ig_checkpoint *g;
	struct gw w;

	for (size_t i = 0; i < 9; i++) {
		names[i] = texts[i];
		types[i] = 3;
	}
	types[1] = 4; /* user-defined: its text is shown anyway */
	gw_init(&w);
	gw_str(&w, "tokenizer.ggml.model", "gpt2");
	gw_strs(&w, "tokenizer.ggml.tokens", names, 9);
	gw_i32s(&w, "tokenizer.ggml.token_type", types, 9);
	gw_strs(&w, "tokenizer.ggml.merges", NULL, 0);
	assert_int_equal(ig_checkpoint_open_memory(w.data, w.len, "tiny", &g, &err), 0);
	assert_int_equal(ig_tokenizer_open(g, &t, &err), 0);

	assert_int_equal(ig_completion_shown_tokens(&s, t, ids, 16), 3);
	assert_memory_equal(ids, ((int32_t[]){ 5, 6, 7 }), 12);
	assert_int_equal(ig_completion_shown_tokens(&s, t, ids, 2), 2);
	assert_int_equal(ig_completion_shown_tokens(&s, t, NULL, 0), 0);
	s.reasoning = true;
	s.calls = IG_TOOL_CALLS_LLAMA3;
	assert_int_equal(ig_completion_shown_tokens(&s, t, ids, 16), 2);
	assert_memory_equal(ids, ((int32_t[]){ 0, 4 }), 8);
	s.calls = IG_TOOL_CALLS_HERMES;
	assert_int_equal(ig_completion_shown_tokens(&s, t, ids, 16), 3);
	assert_memory_equal(ids, ((int32_t[]){ 0, 2, 3 }), 12);
	s = FORM(NONE);
	assert_int_equal(ig_completion_shown_tokens(&s, t, ids, 16), 0);
	ig_tokenizer_close(t);
	ig_checkpoint_close(g);
	gw_finish(&w);
}

/* The source as the file has it. */
static void source(void **state)
{
	struct world x;
	size_t len;

	open_world(&x, "{{ 'a' }}", "{{ 'bcd' }}");
	assert_string_equal(ig_chat_template_source(x.c, 0, &len), "{{ 'a' }}");
	assert_int_equal(len, 9);
	assert_string_equal(ig_chat_template_source(x.c, 1, &len), "{{ 'bcd' }}");
	assert_int_equal(len, 11);
	assert_null(ig_chat_template_source(x.c, 2, &len));
	close_world(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls), cmocka_unit_test(reasoning), cmocka_unit_test(prompted),
		cmocka_unit_test(shown), cmocka_unit_test(source),    cmocka_unit_test(ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
