/*
 * test_grammar.c: texts that schemas, expressions and sources allow and refuse, errors and their
 * texts, the matcher, and the cache.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "test_grammar.h"

static struct ig_tokenizer *tokenizer;
static uint32_t *mask;

static int setup(void **state)
{
	tokenizer = made_vocabulary(700, NULL, 0);
	mask = calloc((size_t)ig_tokenizer_n_vocab(tokenizer) / 32 + 1, sizeof *mask);
	return 0;
}

static int teardown(void **state)
{
	ig_tokenizer_close(tokenizer);
	free(mask);
	return 0;
}

/* ---- keywords ---------------------------------------------------------------------------- */

#define AB "'type':'object','properties':{'a':{'type':'integer'},'b':{'type':'string'}}"

static const struct {
	const char *schema;
	const char *yes[8], *no[10]; /* here too ' is " */
} keywords[] = {
	{ "{'type':'null'}", { "null" }, { "nul", "nulll", "0", "" } },
	{ "{'type':'boolean'}", { "true", "false" }, { "True", "null", "1" } },
	{ "{'type':'integer'}",
	  { "0", "-1", "123456789012345678", "-0" },
	  { "01", "1.0", "1e3", "-", "+1", "1234567890123456789" } },
	{ "{'type':'number'}",
	  { "0", "-0.5", "1e5", "1E-5", "12.25e+10", "1e289", "1e-299" },
	  { ".5", "5.", "1e", "1e290", "1e+", "00", "1.e5", "NaN", "-e1" } },
	{ "{'type':'string'}",
	  { "''", "'a b'", "'\xc3\xa9'", "'\\n\\''", "'\\u00e9'", "'\\ud83d\\ude00'", "'\\u0001'" },
	  { "'", "'a", "'\n'", "'\\x'", "'\\ud83d'", "'\\ude00'", "'\\u0000'", "'\xc3'",
	    "'\xed\xa0\x80'", "'\xff'" } },
	{ "{'type':['string','null']}", { "'x'", "null" }, { "1", "true" } },
	{ "{'type':'string','nullable':true}", { "'x'", "null" }, { "1" } },
	{ "{'type':['integer','number']}", { "1.5" }, { "'1'" } },
	{ "true", { "1", "{}", "[{'a':[]}]" }, { "", "}" } },
	{ "{}", { "1", "{'x':{'y':null}}", "[ ]" }, { "x" } },
	{ "{'title':'x','description':'y','default':3,'examples':[1],'$comment':'z'}",
	  { "null" },
	  { "" } },
	/* objects */
	{ "{" AB ",'required':['a','b'],'additionalProperties':false}",
	  { "{'a':1,'b':''}", "{'a': 1, 'b': ''}", "{\n  'a': 1,\n  'b': ''\n}",
	    "{ 'a':1,'b':'' }" },
	  { "{'b':'','a':1}", "{'a':1}", "{}", "{'a':1,'b':'','c':1}", "{'a':1,'a':1,'b':''}",
	    "{'a':1,'b':'',}", "{  'a':1,'b':''}", "{'a' :1,'b':''}", "{'a':\n1,'b':''}" } },
	{ "{" AB ",'additionalProperties':false}",
	  { "{}", "{'a':1}", "{'b':''}", "{'a':1,'b':''}", "{ }" },
	  { "{'b':'','a':1}", "{,}", "{'c':1}" } },
	{ "{" AB ",'required':['b'],'additionalProperties':false}",
	  { "{'b':''}", "{'a':1,'b':''}" },
	  { "{'a':1}", "{}" } },
	{ "{" AB "}",
	  { "{'c':null}", "{'a':1,'c':[1]}", "{'aa':1,'':2}" },
	  { "{'c':1,'a':1}", "{'a':''}", "{'\\u0061':1}" } },
	{ "{" AB ",'additionalProperties':{'type':'boolean'}}",
	  { "{'c':true}", "{'b':'','ab':false}" },
	  { "{'c':1}", "{'a':true}" } },
	{ "{'type':'object','required':['x']}",
	  { "{'x':1}", "{'x':1,'y':2}" },
	  { "{}", "{'y':1}" } },
	{ "{'type':'object','additionalProperties':{'type':'integer'},'maxProperties':2}",
	  { "{}", "{'a':1}", "{'a':1,'b':2}" },
	  { "{'a':1,'b':2,'c':3}", "{'a':''}" } },
	{ "{'type':'object','maxProperties':0}", { "{}", "{ }" }, { "{'a':1}" } },
	{ "{" AB ",'additionalProperties':false,'minProperties':1,'required':['a']}",
	  { "{'a':1}" },
	  { "{}" } },
	{ "{'type':'object','patternProperties':{'^x':{'type':'integer'},'^y':{'type':'null'}},"
	  "'additionalProperties':false}",
	  { "{'x1':1,'y':null}", "{}", "{'y':null,'x':2}" },
	  { "{'x':null}", "{'z':1}", "{'y':1}" } },
	{ "{'type':'object','properties':{'\xc3\xa9\\u0022\\n':{'type':'null'}},'additionalProperties':false}",
	  { "{'\xc3\xa9\\'\\n':null}" },
	  { "{'\\u00e9\\'\\n':null}" } },
	{ "{'properties':{'a':false},'required':[]}", { "{'b':1}", "{}" }, { "{'a':1}" } },
	/* arrays */
	{ "{'type':'array','items':{'type':'integer'}}",
	  { "[]", "[1]", "[1,2]", "[1, 2]", "[\n  1,\n  2\n]", "[ ]" },
	  { "[,]", "[1,]", "[1 ,2]", "['a']", "[1,  2]" } },
	{ "{'type':'array','items':{'type':'null'},'minItems':1,'maxItems':2}",
	  { "[null]", "[null,null]" },
	  { "[]", "[null,null,null]" } },
	{ "{'type':'array','items':{'type':'null'},'minItems':2}",
	  { "[null,null]", "[null,null,null]" },
	  { "[null]" } },
	{ "{'type':'array','maxItems':0}", { "[]" }, { "[1]" } },
	{ "{'type':'array','items':false}", { "[]" }, { "[1]" } },
	{ "{'prefixItems':[{'type':'null'},{'type':'integer'}],'items':false}",
	  { "[]", "[null]", "[null,1]" },
	  { "[1]", "[null,1,1]" } },
	{ "{'prefixItems':[{'type':'null'}],'items':{'type':'integer'},'minItems':2}",
	  { "[null,1]", "[null,1,2]" },
	  { "[null]", "[1,1]" } },
	{ "{'type':'array','items':{'type':'integer'},'maxItems':1,'uniqueItems':true}",
	  { "[1]" },
	  { "[1,1]" } },
	/* strings */
	{ "{'type':'string','minLength':2,'maxLength':3}",
	  { "'ab'", "'\xc3\xa9\xf0\x9f\x98\x80x'", "'\\n\\ud83d\\ude00'" },
	  { "'a'", "'abcd'", "''" } },
	{ "{'type':'string','minLength':2}", { "'ab'", "'abcdef'" }, { "'a'" } },
	{ "{'type':'string','maxLength':100}", { "''", "'\\u00e9'" }, { "'\\ud83d'" } },
	{ "{'type':'string','pattern':'b'}", { "'b'", "'abc'", "'\\'b'" }, { "'ac'", "''" } },
	{ "{'type':'string','pattern':'^b$'}", { "'b'" }, { "'ab'", "'bb'", "'\\u0062'" } },
	{ "{'type':'string','pattern':'^a|b$'}", { "'ax'", "'xb'" }, { "'xa'", "'bx'" } },
	{ "{'type':'string','pattern':'^[a-z]*$','minLength':2,'maxLength':3}",
	  { "'ab'", "'abc'" },
	  { "'a'", "'abcd'", "'A1'" } },
	{ "{'type':'string','format':'date'}",
	  { "'2024-02-29'", "'2000-02-29'", "'1999-12-31'" },
	  { "'2023-02-29'", "'1900-02-29'", "'2024-13-01'", "'2024-04-31'", "'24-01-01'",
	    "'2024-1-1'" } },
	{ "{'type':'string','format':'time'}",
	  { "'12:34:56Z'", "'00:00:00.123+01:30'" },
	  { "'24:00:00Z'", "'12:34:56'" } },
	{ "{'type':'string','format':'date-time'}",
	  { "'2024-01-01T00:00:00Z'" },
	  { "'2024-01-01 00:00:00Z'" } },
	{ "{'type':'string','format':'uuid'}",
	  { "'00000000-0000-0000-0000-00000000000a'" },
	  { "'0-0-0-0-0'" } },
	{ "{'type':'string','format':'email'}",
	  { "'a@b.c'", "'a.b+c@d-e.fg'" },
	  { "'a'", "'@b.c'", "'a@b'", "'a@-b.c'", "'a..b@c.d'" } },
	{ "{'type':'string','format':'ipv4'}",
	  { "'0.0.0.0'", "'255.249.199.9'" },
	  { "'256.0.0.0'", "'1.2.3'", "'01.2.3.4'" } },
	{ "{'type':'string','format':'ipv6'}",
	  { "'::'", "'1::8'", "'1:2:3:4:5:6:7:8'", "'::1.2.3.4'", "'1:2:3:4:5:6::8'" },
	  { "':'", "'1:2'", "'1::2::3'", "'1:2:3:4:5:6:7:8:9'", "'12345::'" } },
	{ "{'type':'string','format':'hostname'}",
	  { "'a'", "'a-b.c'" },
	  { "''", "'-a'", "'a-'", "'a..b'", "'a_b'" } },
	{ "{'type':'string','format':'uri'}",
	  { "'http://a/b?c#d'", "'urn:x:y'" },
	  { "'a'", "'http://a b'", "'://x'" } },
	{ "{'type':'string','format':'duration'}",
	  { "'P1D'", "'PT1H2M'", "'P1W'" },
	  { "'P'", "'PT'", "'1D'", "'P1S'" } },
	/* numbers */
	{ "{'type':'integer','minimum':-12,'maximum':105}",
	  { "-12", "-9", "0", "99", "100", "105" },
	  { "-13", "106", "-20", "1000", "-120" } },
	{ "{'type':'integer','exclusiveMinimum':0,'exclusiveMaximum':10}",
	  { "1", "9" },
	  { "0", "10", "-1" } },
	{ "{'type':'integer','minimum':1000}",
	  { "1000", "10000", "123456789012345678" },
	  { "999", "-1000", "0" } },
	{ "{'type':'integer','maximum':-5}",
	  { "-5", "-10", "-100000000000000000" },
	  { "-4", "5", "0" } },
	{ "{'type':'integer','minimum':1.2,'maximum':3.9}", { "2", "3" }, { "1", "4" } },
	{ "{'type':'integer','minimum':-9223372036854775808,'maximum':9223372036854775807}",
	  { "0", "-5" },
	  { "a" } },
	{ "{'type':'integer','format':'int32'}",
	  { "2147483647", "-2147483648" },
	  { "2147483648", "-2147483649" } },
	{ "{'type':'number','multipleOf':1}", { "3" }, { "3.5" } },
	{ "{'type':'number','minimum':0,'maximum':1}",
	  { "0", "1", "0.5", "1.0", "0.0" },
	  { "-0.1", "1.1", "2", "1.01", "1e0" } },
	{ "{'type':'number','exclusiveMinimum':0.5,'exclusiveMaximum':1.25}",
	  { "0.51", "1.2", "0.500001", "1.2499", "1" },
	  { "0.5", "0.50", "1.25", "1.250", "1.3", "0.49" } },
	{ "{'type':'number','minimum':-2.5,'maximum':-0.5}",
	  { "-2.5", "-1", "-0.5", "-2.50" },
	  { "-2.51", "-0.4", "0", "-3", "1" } },
	{ "{'type':'number','minimum':99.5}",
	  { "99.5", "100", "99.51", "1000.1" },
	  { "99.4", "99", "-100" } },
	/* enum and const */
	{ "{'enum':['a',1,null,true,1.5,[1,{'x':2}],'\\u0001\\'']}",
	  { "'a'", "1", "null", "true", "1.5", "[1,{'x':2}]", "[1, {'x': 2}]", "'\\u0001\\''" },
	  { "'b'", "2", "false", "1.50", "[1]" } },
	{ "{'const':'x'}", { "'x'" }, { "'y'", "x" } },
	{ "{'type':'string','enum':['a',1]}", { "'a'" }, { "1" } },
	{ "{'enum':[1,5,9],'minimum':4,'maximum':8}", { "5" }, { "1", "9" } },
	{ "{'enum':['a','abc'],'minLength':2}", { "'abc'" }, { "'a'" } },
	{ "{'enum':[1,2],'const':2}", { "2" }, { "1" } },
	/* unions */
	{ "{'anyOf':[{'type':'integer'},{'type':'null'}]}", { "1", "null" }, { "'x'" } },
	{ "{'anyOf':[{'type':'string','maxLength':1},{'type':'string','minLength':3,'maxLength':3}]}",
	  { "'a'", "'abc'", "''" },
	  { "'ab'" } },
	{ "{'oneOf':[{'type':'integer'},{'type':'string'}]}", { "1", "''" }, { "null" } },
	{ "{'oneOf':[{" AB
	  ",'required':['a'],'additionalProperties':false},{'type':'object','properties':{'c':{}},"
	  "'required':['c'],'additionalProperties':false}]}",
	  { "{'a':1}", "{'c':null}" },
	  { "{}" } },
	{ "{" AB ",'additionalProperties':false,'anyOf':[{'required':['a']},{'required':['b']}]}",
	  { "{'a':1}", "{'b':''}", "{'a':1,'b':''}" },
	  { "{}" } },
	{ "{'allOf':[{'type':'integer','minimum':1},{'maximum':3}]}", { "1", "3" }, { "0", "4" } },
	{ "{'allOf':[{" AB
	  ",'required':['a']},{'required':['b'],'properties':{'a':{'maximum':5}}}]}",
	  { "{'a':5,'b':''}" },
	  { "{'a':6,'b':''}", "{'a':1}" } },
	{ "{'allOf':[{'properties':{'a':{}},'additionalProperties':false,'type':'object'},{'properties':{'b':{}}}]}",
	  { "{}", "{'a':1}" },
	  { "{'b':1}", "{'c':1}" } },
	{ "{'allOf':[{'enum':[1,2,3]},{'enum':[2,3,4]}]}", { "2", "3" }, { "1", "4" } },
	/* references */
	{ "{'$defs':{'x':{'type':'integer'}},'type':'array','items':{'$ref':'#/$defs/x'}}",
	  { "[1]" },
	  { "['']" } },
	{ "{'definitions':{'a/b~':{'const':1}},'$ref':'#/definitions/a~1b~0'}", { "1" }, { "2" } },
	{ "{'$defs':{'x':{'type':'integer'}},'$ref':'#/$defs/x','minimum':3}", { "3" }, { "2" } },
	{ "{'type':'array','items':{'$ref':'#'}}", { "[]", "[[],[[]]]" }, { "[1]", "[[]" } },
	{ "{'$defs':{'n':{'anyOf':[{'type':'null'},{'type':'object','properties':{'n':{'$ref':'#/$defs/n'}},"
	  "'required':['n'],'additionalProperties':false}]}},'$ref':'#/$defs/n'}",
	  { "null", "{'n':{'n':null}}" },
	  { "{}", "{'n':{}}" } },
};

static char *quoted(const char *s)
{
	char *copy = strdup(s);

	for (char *p = copy; *p; p++)
		if (*p == '\'')
			*p = '"';
	return copy;
}

static void keyword_table(void **state)
{
	for (size_t i = 0; i < sizeof keywords / sizeof keywords[0]; i++) {
		struct ig_error err = { 0 };
		struct ig_grammar *g;
		if (compile_schema(tokenizer, keywords[i].schema, &g, &err))
			fail_msg("%s: %s", keywords[i].schema, err.text);
		for (size_t k = 0; k < 8 && keywords[i].yes[k]; k++) {
			char *s = quoted(keywords[i].yes[k]);
			if (!takes(tokenizer, g, s))
				fail_msg("%s does not take %s", keywords[i].schema, s);
			free(s);
		}
		for (size_t k = 0; k < 10 && keywords[i].no[k]; k++) {
			char *s = quoted(keywords[i].no[k]);
			if (takes(tokenizer, g, s))
				fail_msg("%s takes %s", keywords[i].schema, s);
			free(s);
		}
		ig_grammar_unref(g);
	}
}

static const struct {
	const char *schema, *text;
	int rc;
} refused[] = {
	{ "{'type':'object','properties':{'x':{'contains':{}}}}",
	  "$.properties.x: \"contains\" is not", -EINVAL },
	{ "{'anyOf':[{'type':'null'},{'type':'array','items':{'not':{}}}]}",
	  "$.anyOf[1].items: \"not\"", -EINVAL },
	{ "{'$defs':{'a':{'if':{}}},'type':'array','items':{'$ref':'#/$defs/a'}}",
	  "$.$defs.a: \"if\"", -EINVAL },
	{ "{'type':'array','prefixItems':[{},{'type':'x'}]}", "$.prefixItems[1]: \"type\"",
	  -EINVAL },
	{ "{'type':'object','patternProperties':{'(':{}}}", "\"patternProperties\", \"(\"",
	  -EINVAL },
	{ "{'type':'object','properties':{'xa':{}},'patternProperties':{'^x':{}}}",
	  "matches the property", -EINVAL },
	{ "{'type':'object','patternProperties':{'^x':{},'y':{}}}", "match the same names",
	  -EINVAL },
	{ "{'type':'string','pattern':'(?!a)'}",
	  "\"pattern\": looking ahead is not supported, at byte 2", -EINVAL },
	{ "{'type':'string','pattern':'(?<=a)'}", "looking behind", -EINVAL },
	{ "{'type':'string','pattern':'\\\\1'}", "back reference", -EINVAL },
	{ "{'type':'string','pattern':'\\\\bx'}", "\\b is not supported", -EINVAL },
	{ "{'type':'string','pattern':'['}", "without its ]", -EINVAL },
	{ "{'type':'string','pattern':'a**'}", "nothing to repeat", -EINVAL },
	{ "{'type':'string','pattern':'a{3,2}'}", "bounds", -EINVAL },
	{ "{'type':'string','pattern':'[z-a]'}", "a range", -EINVAL },
	{ "{'type':'string','pattern':'(?i)a'}", "this kind of group", -EINVAL },
	{ "{'type':'string','pattern':'\\\\p{Greek}'}", "general categories", -EINVAL },
	{ "{'type':'string','format':'iri'}", "\"iri\" is not supported", -EINVAL },
	{ "{'type':'integer','format':'iri'}", "\"iri\" is not supported of a number", -EINVAL },
	{ "{'type':'integer','multipleOf':2}", "\"multipleOf\"", -EINVAL },
	{ "{'type':'integer','minimum':'1'}", "\"minimum\" must be a number", -EINVAL },
	{ "{'type':'number','minimum':1234567890.1234567}", "more than 15 digits", -EINVAL },
	{ "{'type':'array','uniqueItems':true}", "\"uniqueItems\" is not supported", -EINVAL },
	{ "{'type':'array','minItems':2,'maxItems':1}", "can't have 2 items", -EINVAL },
	{ "{'type':'object','minProperties':2}", "\"minProperties\"", -EINVAL },
	{ "{'oneOf':[{'type':'integer'},{'type':'number'}]}",
	  "\"oneOf\": a value could be of both schema 0", -EINVAL },
	{ "{'allOf':[{'pattern':'a'},{'pattern':'b'}]}", "two different \"pattern\"", -EINVAL },
	{ "{'$ref':'other.json'}", "\"$ref\" must be a pointer", -EINVAL },
	{ "{'$ref':'#/$defs/x'}", "there is no \"#/$defs/x\"", -EINVAL },
	{ "{'anyOf':[{'$ref':'#'},{'type':'null'}]}", "refers to itself", -EINVAL },
	{ "{'allOf':[{'$ref':'#'}]}", "refers to itself", -EINVAL },
	{ "false", "write any text", -EINVAL },
	{ "{'type':'object','properties':{'a':{'$ref':'#'}},'required':['a']}", "write any text",
	  -EINVAL },
	{ "{'enum':['a\\u0000']}", "U+0000", -EINVAL },
	{ "{'type':'array','items':{'type':'integer'},'maxItems':150000}", "too large", -E2BIG },
	{ "{'type':'string','pattern':'(a{100}){100}{100}'}", "nothing to repeat", -EINVAL },
	{ "{'type':'string','pattern':'((a{100}){100}){100}'}", "too large", -E2BIG },
	{ "{'type':'string','maxLength':300000}", "too large", -E2BIG },
};

static void refusals(void **state)
{
	for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
		struct ig_error err = { 0 };
		struct ig_grammar *g;
		int rc;
		if (strstr(refused[i].schema, "u0000")) {
			json_t *schema = json_pack("{s:[s%]}", "enum", "a\0", (size_t)2);
			rc = compile_part(tokenizer,
					  (struct ig_grammar_part){ .kind = IG_GRAMMAR_SCHEMA,
								    .schema = schema },
					  &g, &err);
			json_decref(schema);
		} else {
			rc = compile_schema(tokenizer, refused[i].schema, &g, &err);
		}
		if (rc != refused[i].rc || err.code != rc || g ||
		    !strstr(err.text, refused[i].text))
			fail_msg("%s: %d: %s", refused[i].schema, rc, err.text);
	}
}

/* Objects in objects, deeper than can be held on a C stack if each took a call. */
static void deep_schemas(void **state)
{
	json_t *schema = json_pack("{s:s}", "type", "null");
	struct ig_error err = { 0 };
	struct ig_grammar *g;

	for (int i = 0; i < 1500; i++)
		schema = json_pack("{s:s, s:o}", "type", "array", "items", schema);
	assert_int_equal(compile_part(tokenizer,
				      (struct ig_grammar_part){ .kind = IG_GRAMMAR_SCHEMA,
								.schema = schema },
				      &g, &err),
			 -E2BIG);
	assert_non_null(strstr(err.text, "nested"));
	json_decref(schema);
}

/* ---- sources --------------------------------------------------------------------------------- */

static struct ig_grammar *call_grammar(uint32_t max_repeats)
{
	static json_t *schema;
	json_decref(schema);
	schema = schema_of(
		"{'type':'object','properties':{'x':{'type':'integer'}},'additionalProperties':false}");
	const struct ig_grammar_part f[] = {
		{ .kind = IG_GRAMMAR_TEXT, .text = "{\"name\": \"f\", \"arguments\": ", .len = 27 },
		{ .kind = IG_GRAMMAR_SCHEMA, .schema = schema },
		{ .kind = IG_GRAMMAR_TEXT, .text = "}", .len = 1 },
	};
	const struct ig_grammar_part h[] = {
		{ .kind = IG_GRAMMAR_TEXT, .text = "{\"name\": \"h\", \"arguments\": ", .len = 27 },
		{ .kind = IG_GRAMMAR_OBJECT },
		{ .kind = IG_GRAMMAR_TEXT, .text = "}", .len = 1 },
	};
	const struct ig_grammar_choice choices[] = { { f, 3 }, { h, 3 } };
	const struct ig_grammar_source source = {
		.before = "<tool_call>\n",
		.between = "\n</tool_call>\n<tool_call>\n",
		.after = "\n</tool_call>",
		.choices = choices,
		.n_choices = 2,
		.max_repeats = max_repeats,
	};
	struct ig_error err = { 0 };
	struct ig_grammar *g;

	if (ig_grammar_compile(tokenizer, &source, &g, &err))
		fail_msg("%s", err.text);
	json_decref(schema);
	schema = NULL;
	return g;
}

#define CALL_F "{\"name\": \"f\", \"arguments\": {\"x\":1}}"
#define CALL_H "{\"name\": \"h\", \"arguments\": {\"y\": [true]}}"
#define OPEN "<tool_call>\n"
#define CLOSE "\n</tool_call>"

static void calls_of_tools(void **state)
{
	struct ig_grammar *one = call_grammar(1), *many = call_grammar(3);

	for (int i = 0; i < 2; i++) {
		struct ig_grammar *g = i ? many : one;
		assert_true(takes(tokenizer, g, OPEN CALL_F CLOSE));
		assert_true(takes(tokenizer, g, OPEN CALL_H CLOSE));
		assert_false(takes(tokenizer, g, OPEN CLOSE));
		assert_false(takes(tokenizer, g,
				   OPEN "{\"name\": \"f\", \"arguments\": {\"y\":1}}" CLOSE));
		assert_int_equal(takes(tokenizer, g, OPEN CALL_F CLOSE "\n" OPEN CALL_H CLOSE), i);
		assert_int_equal(takes(tokenizer, g,
				       OPEN CALL_F CLOSE "\n" OPEN CALL_F CLOSE
							 "\n" OPEN CALL_H CLOSE),
				 i);
		assert_false(takes(tokenizer, g,
				   OPEN CALL_F CLOSE "\n" OPEN CALL_F CLOSE "\n" OPEN CALL_F CLOSE
						     "\n" OPEN CALL_F CLOSE));
		ig_grammar_unref(g);
	}
}

static void control_tokens(void **state)
{
	struct ig_grammar *g = call_grammar(3);
	struct ig_grammar_matcher *m = ig_grammar_matcher_create(g);

	for (int i = 0; i < 2; i++) {
		ig_grammar_matcher_mask(m, mask);
		assert_true(has_bit(mask, MADE_CALL));
		assert_true(has_bit(mask, MADE_BYTE + '<'));
		assert_false(has_bit(mask, MADE_CALL_END));
		assert_false(has_bit(mask, MADE_CALLS));
		assert_false(has_bit(mask, MADE_END));
		assert_int_equal(ig_grammar_matcher_accept(m, MADE_CALL_END), -EINVAL);
		assert_int_equal(ig_grammar_matcher_accept(m, MADE_CALL), 0);
		assert_true(takes_bytes(m, "\n" CALL_F "\n", strlen("\n" CALL_F "\n")));
		ig_grammar_matcher_mask(m, mask);
		assert_true(has_bit(mask, MADE_CALL_END));
		assert_false(has_bit(mask, MADE_CALL));
		assert_int_equal(ig_grammar_matcher_accept(m, MADE_CALL_END), 0);
		ig_grammar_matcher_mask(m, mask);
		assert_true(has_bit(mask, MADE_END) && has_bit(mask, MADE_END_OF_TEXT));
		assert_true(has_bit(mask, MADE_BYTE + '\n'));
		assert_false(ig_grammar_matcher_is_done(m));
		if (!i)
			assert_true(takes_bytes(m, "\n", 1));
	}
	assert_int_equal(ig_grammar_matcher_accept(m, MADE_END_OF_TEXT), 0);
	assert_true(ig_grammar_matcher_is_done(m));
	assert_int_equal(ig_grammar_matcher_accept(m, MADE_BYTE + 'a'), -EINVAL);
	ig_grammar_matcher_mask(m, mask);
	assert_true(has_bit(mask, MADE_END));
	ig_grammar_matcher_destroy(m);
	ig_grammar_unref(g);
	/* A schema or an expression never allows a control token. */
	struct ig_error err = { 0 };
	assert_int_equal(compile_regex(tokenizer, "<tool_call>", &g, &err), 0);
	m = ig_grammar_matcher_create(g);
	ig_grammar_matcher_mask(m, mask);
	assert_false(has_bit(mask, MADE_CALL));
	ig_grammar_matcher_destroy(m);
	ig_grammar_unref(g);
}

static void bad_sources(void **state)
{
	struct ig_grammar_part part = { .kind = IG_GRAMMAR_REGEX, .text = "a*", .len = 2 };
	struct ig_grammar_choice choice = { &part, 1 };
	struct ig_grammar_source source = { .choices = &choice, .n_choices = 1, .max_repeats = 2 };
	struct ig_error err = { 0 };
	struct ig_grammar *g;

	assert_int_equal(ig_grammar_compile(tokenizer, &source, &g, &err), -EINVAL);
	assert_non_null(strstr(err.text, "must not be empty"));
	source.max_repeats = 0;
	assert_int_equal(ig_grammar_compile(tokenizer, &source, &g, &err), -EINVAL);
	source.max_repeats = 100000;
	assert_int_equal(ig_grammar_compile(tokenizer, &source, &g, &err), -E2BIG);
	source.max_repeats = 1;
	source.n_choices = 0;
	assert_int_equal(ig_grammar_compile(tokenizer, &source, &g, &err), -EINVAL);
	source.n_choices = 1;
	part.kind = (enum ig_grammar_part_kind)99;
	assert_int_equal(ig_grammar_compile(tokenizer, &source, &g, &err), -EINVAL);
}

/* ---- the matcher --------------------------------------------------------------------------------- */

static void the_end(void **state)
{
	struct ig_error err = { 0 };
	struct ig_grammar *g;

	assert_int_equal(compile_regex(tokenizer, "abc(d|e)fg", &g, &err), 0);
	struct ig_grammar_matcher *m = ig_grammar_matcher_create(g);
	assert_true(takes_bytes(m, "abc", 3));
	assert_true(takes_bytes(m, "e", 1));
	assert_false(ig_grammar_matcher_is_done(m));
	assert_true(takes_bytes(m, "fg", 2));
	assert_true(ig_grammar_matcher_is_done(m));
	ig_grammar_matcher_mask(m, mask);
	for (int32_t id = 0; id < ig_tokenizer_n_vocab(tokenizer); id++)
		assert_int_equal(has_bit(mask, id), id == MADE_END || id == MADE_END_OF_TEXT);
	assert_int_equal(ig_grammar_matcher_accept(m, MADE_END), 0);
	assert_int_equal(ig_grammar_matcher_accept(m, -1), -EINVAL);
	assert_int_equal(ig_grammar_matcher_accept(m, 1 << 30), -EINVAL);
	ig_grammar_matcher_destroy(m);
	ig_grammar_unref(g);
}

/* A refused token does not change the matcher. */
static void refused_tokens(void **state)
{
	struct ig_error err = { 0 };
	struct ig_grammar *g;

	assert_int_equal(
		compile_schema(tokenizer, "{'type':'array','items':{'$ref':'#'}}", &g, &err), 0);
	struct ig_grammar_matcher *m = ig_grammar_matcher_create(g);
	assert_true(takes_bytes(m, "[[],[", 5));
	for (int32_t id = 0; id < ig_tokenizer_n_vocab(tokenizer); id++) {
		ig_grammar_matcher_mask(m, mask);
		if (!has_bit(mask, id))
			assert_int_equal(ig_grammar_matcher_accept(m, id), -EINVAL);
	}
	assert_true(takes_bytes(m, "]]", 2));
	assert_true(can_end(tokenizer, m, mask));
	ig_grammar_matcher_destroy(m);
	ig_grammar_unref(g);
}

/* However long a model opens, it is made to close, and everything can be closed. */
static void depth_is_bounded(void **state)
{
	static const char *const schemas[] = {
		"{'type':'array','items':{'$ref':'#'}}",
		"{}",
		"{'$defs':{'n':{'type':'object','properties':{'a':{'$ref':'#/$defs/m'}},'additionalProperties':"
		"false},'m':{'type':'array','items':{'$ref':'#/$defs/n'},'minItems':1,'maxItems':2}},"
		"'$ref':'#/$defs/n'}",
	};

	for (size_t i = 0; i < sizeof schemas / sizeof schemas[0]; i++) {
		struct ig_error err = { 0 };
		struct ig_grammar *g;
		unsigned n_opened = 0, n = 0;
		assert_int_equal(compile_schema(tokenizer, schemas[i], &g, &err), 0);
		struct ig_grammar_matcher *m = ig_grammar_matcher_create(g);
		for (;; n++) {
			static const char opens[] = "[{\"a:", closes[] = "}]\":0ant,";
			const char *p;
			assert_true(n < 5000);
			ig_grammar_matcher_mask(m, mask);
			if (has_bit(mask, MADE_END))
				break;
			for (p = n < 2000 ? opens : closes; *p; p++)
				if (has_bit(mask, MADE_BYTE + (unsigned char)*p))
					break;
			if (!*p)
				for (p = closes; *p; p++)
					if (has_bit(mask, MADE_BYTE + (unsigned char)*p))
						break;
			assert_true(*p);
			n_opened += *p == '[' || *p == '{';
			assert_int_equal(ig_grammar_matcher_accept(m, MADE_BYTE + *p), 0);
		}
		assert_true(n_opened > 30);
		ig_grammar_matcher_destroy(m);
		ig_grammar_unref(g);
	}
}

/* Bytes without a token of their own are never needed; what can't do without is refused. */
static void lacking_bytes(void **state)
{
	struct ig_tokenizer *t = made_vocabulary(700, "\\q\n", 3);
	struct ig_error err = { 0 };
	struct ig_grammar *g;

	assert_int_equal(compile_regex(t, "aqb", &g, &err), -EINVAL);
	assert_non_null(strstr(err.text, "write any text"));
	assert_int_equal(compile_schema(t, "{'enum':['aqb','xy']}", &g, &err), 0);
	struct ig_grammar_matcher *m = ig_grammar_matcher_create(g);
	ig_grammar_matcher_mask(m, mask);
	assert_true(has_bit(mask, MADE_BYTE + '"'));
	assert_int_equal(ig_grammar_matcher_accept(m, MADE_BYTE + '"'), 0);
	ig_grammar_matcher_mask(m, mask);
	assert_false(has_bit(mask, MADE_BYTE + 'a'));
	assert_true(has_bit(mask, MADE_BYTE + 'x'));
	ig_grammar_matcher_destroy(m);
	ig_grammar_unref(g);
	ig_tokenizer_close(t);
}

/* ---- the cache --------------------------------------------------------------------------------------- */

static struct ig_grammar *cached(struct ig_grammar_cache *c, const struct ig_tokenizer *t,
				 const char *regex, int want)
{
	struct ig_grammar_part part = { .kind = IG_GRAMMAR_REGEX,
					.text = regex,
					.len = strlen(regex) };
	const struct ig_grammar_choice choice = { &part, 1 };
	const struct ig_grammar_source source = { .choices = &choice,
						  .n_choices = 1,
						  .max_repeats = 1 };
	struct ig_error err = { 0 };
	struct ig_grammar *g;

	assert_int_equal(ig_grammar_cache_get(c, t, &source, &g, &err), want);
	if (want)
		assert_int_equal(err.code, want);
	return g;
}

static void cache_keeps(void **state)
{
	struct ig_grammar_cache *c;
	struct ig_tokenizer *other = made_vocabulary(700, NULL, 0);

	assert_int_equal(ig_grammar_cache_create(64 << 20, &c), 0);
	struct ig_grammar *a = cached(c, tokenizer, "a+", 0), *b = cached(c, tokenizer, "a+", 0);
	struct ig_grammar *d = cached(c, tokenizer, "a+b", 0), *e = cached(c, other, "a+", 0);
	assert_ptr_equal(a, b);
	assert_ptr_not_equal(a, d);
	assert_ptr_not_equal(a, e);
	assert_null(cached(c, tokenizer, "(", -EINVAL));
	ig_grammar_cache_drop(c, other); /* e lives on */
	assert_ptr_equal(cached(c, tokenizer, "a+", 0), a);
	ig_grammar_unref(a);
	assert_true(takes(other, e, "aa"));
	ig_grammar_cache_drop(c, tokenizer);
	b = cached(c, tokenizer, "a+", 0);
	assert_ptr_not_equal(a, b);
	ig_grammar_unref(b);
	ig_grammar_cache_destroy(c);
	ig_grammar_cache_destroy(NULL);
	assert_true(takes(tokenizer, a, "aa")); /* beyond the cache's end */
	ig_grammar_unref(a);
	ig_grammar_unref(a);
	ig_grammar_unref(d);
	ig_grammar_unref(e);
	ig_grammar_unref(NULL);
	ig_tokenizer_close(other);
}

static void cache_forgets(void **state)
{
	struct ig_grammar_cache *c;
	struct ig_grammar *first, *again, *g;
	char regex[16];

	assert_int_equal(ig_grammar_cache_create(1 << 20, &c), 0);
	first = cached(c, tokenizer, "x0", 0);
	for (int i = 1; i < 60; i++) { /* x0 is used all the time, x1 once */
		snprintf(regex, sizeof regex, "x%d", i);
		g = cached(c, tokenizer, regex, 0);
		ig_grammar_unref(g);
		g = cached(c, tokenizer, "x0", 0);
		assert_ptr_equal(g, first);
		ig_grammar_unref(g);
	}
	g = cached(c, tokenizer, "x59", 0);
	again = cached(c, tokenizer, "x59", 0);
	assert_ptr_equal(g, again);
	ig_grammar_unref(again);
	ig_grammar_unref(g);
	ig_grammar_cache_destroy(c);
	/* Without any capacity each is compiled again. */
	assert_int_equal(ig_grammar_cache_create(0, &c), 0);
	g = cached(c, tokenizer, "x0", 0);
	again = cached(c, tokenizer, "x0", 0);
	assert_ptr_not_equal(g, again);
	ig_grammar_unref(g);
	ig_grammar_unref(again);
	ig_grammar_unref(first);
	ig_grammar_cache_destroy(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keyword_table),    cmocka_unit_test(refusals),
		cmocka_unit_test(deep_schemas),	    cmocka_unit_test(calls_of_tools),
		cmocka_unit_test(control_tokens),   cmocka_unit_test(bad_sources),
		cmocka_unit_test(the_end),	    cmocka_unit_test(refused_tokens),
		cmocka_unit_test(depth_is_bounded), cmocka_unit_test(lacking_bytes),
		cmocka_unit_test(cache_keeps),	    cmocka_unit_test(cache_forgets),
	};

	return cmocka_run_group_tests_name("model/grammar", tests, setup, teardown);
}
