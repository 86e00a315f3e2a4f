/*
 * grammar.c: what structured output costs: compiling schemas and expressions, and the mask
 * of each token.
 *
 *   ingot-bench-grammar [MODEL.gguf]    without a model: a made-up vocabulary of 150,000
 *
 * Masks are timed along seeded random walks, in which about every third token is a common one.
 * The same walks run twice: first with a newly compiled grammar, then again.  The clock is the
 * processor time of the thread, without other programs.
 */
#include "made_vocabulary.h"
#include "base/json.h"
#include "model/grammar/grammar_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* As Codex sends it. */
#define PATCH_GRAMMAR                                                                              \
	"start: begin_patch hunk+ end_patch\\nbegin_patch: \\'*** Begin Patch\\' LF\\n"            \
	"end_patch: \\'*** End Patch\\' LF?\\nhunk: add_hunk | delete_hunk | update_hunk\\n"       \
	"add_hunk: \\'*** Add File: \\' filename LF add_line+\\n"                                  \
	"delete_hunk: \\'*** Delete File: \\' filename LF\\n"                                      \
	"update_hunk: \\'*** Update File: \\' filename LF change_move? change?\\n"                 \
	"filename: /(.+)/\\nadd_line: \\'+\\' /(.*)/ LF -> line\\n"                                \
	"change_move: \\'*** Move to: \\' filename LF\\n"                                          \
	"change: (change_context | change_line)+ eof_line?\\n"                                     \
	"change_context: (\\'@@\\' | \\'@@ \\' /(.+)/) LF\\n"                                      \
	"change_line: (\\'+\\' | \\'-\\' | \\' \\') /(.*)/ LF\\n"                                  \
	"eof_line: \\'*** End of File\\' LF\\n%import common.LF"
#define N_WALKS 40
#define N_TOKENS 250

/* In a schema ' stands for ".  An empty expression: text with tool calls in it. */
static const struct {
	const char *name, *schema, *regex;
} cases[] = {
	{ "any object", NULL, NULL },
	{ "weather",
	  "{'type':'object','properties':{'location':{'type':'string'},'unit':{'enum':"
	  "['celsius','fahrenheit']}},'required':['location'],'additionalProperties':false}",
	  NULL },
	{ "20 strings",
	  "{'type':'object','properties':{'a':{'type':'string'},'b':{'type':'string'},"
	  "'c':{'type':'string'},'d':{'type':'string'},'e':{'type':'string'},'f':{'type':'string'},"
	  "'g':{'type':'string'},'h':{'type':'string'},'i':{'type':'string'},'j':{'type':'string'},"
	  "'k':{'type':'string'},'l':{'type':'string'},'m':{'type':'string'},'n':{'type':'string'},"
	  "'o':{'type':'string'},'p':{'type':'string'},'q':{'type':'string'},'r':{'type':'string'},"
	  "'s':{'type':'string'},'t':{'type':'string'}},'additionalProperties':false,'required':"
	  "['a','b','c','d','e','f','g','h','i','j','k','l','m','n','o','p','q','r','s','t']}",
	  NULL },
	{ "lengths",
	  "{'type':'object','properties':{'title':{'type':'string','maxLength':80},'body':"
	  "{'type':'string','minLength':10,'maxLength':2000}},'required':['title','body'],"
	  "'additionalProperties':false}",
	  NULL },
	{ "length 20000", "{'type':'string','maxLength':20000}", NULL },
	{ "tree",
	  "{'$defs':{'n':{'type':'object','properties':{'name':{'type':'string'},'kind':{'enum':"
	  "['a','b']},'children':{'type':'array','items':{'$ref':'#/$defs/n'}}},'required':['name',"
	  "'children'],'additionalProperties':false}},'$ref':'#/$defs/n'}",
	  NULL },
	{ "expression",
	  "{'$defs':{'e':{'anyOf':[{'type':'object','properties':{'op':{'enum':['+','-']},"
	  "'left':{'$ref':'#/$defs/e'},'right':{'$ref':'#/$defs/e'}},'required':['op','left','right'],"
	  "'additionalProperties':false},{'type':'number'},{'type':'string'}]}},'$ref':'#/$defs/e'}",
	  NULL },
	{ "open map", "{'type':'object','properties':{'id':{'type':'integer'}},'required':['id']}",
	  NULL },
	{ "list of rows",
	  "{'type':'array','minItems':3,'maxItems':200,'items':{'type':'object',"
	  "'properties':{'x':{'type':'number'},'when':{'type':'string','format':'date-time'},'who':"
	  "{'type':'string','pattern':'^[a-z]+@[a-z.]+$'}},'required':['x','when','who']}}",
	  NULL },
	{ "regex: prose", NULL, "([A-Z][^.!?\\n]*[.!?] ?){1,20}" },
	{ "regex: any", NULL, ".*" },
	{ "regex: to 500", NULL, "[a-zA-Z ]{1,500}" },
	{ "apply_patch",
	  "{'type':'object','properties':{'input':{'type':'string','x-ingot-grammar':{'syntax':"
	  "'lark','definition':'" PATCH_GRAMMAR "'}}},'required':['input'],"
	  "'additionalProperties':false}",
	  NULL },
	{ "text and calls", NULL, "" },
};

#define TEXT(s) { .kind = IG_GRAMMAR_TEXT, .text = (s), .len = sizeof(s) - 1 }

static unsigned long long seed;

static unsigned random_below(unsigned n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (unsigned)((seed >> 11) % n);
}

static int64_t cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

struct bench {
	struct ig_tokenizer *tokenizer;
	uint32_t *mask;
	int32_t *allowed;
	double *times;
	size_t n_times;
};

static int32_t choose(struct bench *b)
{
	int32_t n_vocab = ig_tokenizer_n_vocab(b->tokenizer);
	size_t n = 0;

	if (random_below(3) == 0) { /* a common token, if there is one */
		for (int i = 0; i < 200; i++) {
			int32_t id =
				(int32_t)random_below(n_vocab < 3000 ? (unsigned)n_vocab : 3000);
			if (b->mask[id / 32] >> id % 32 & 1)
				return id;
		}
	}
	for (int32_t w = 0; w < (n_vocab + 31) / 32; w++)
		for (uint32_t bits = b->mask[w]; bits; bits &= bits - 1)
			b->allowed[n++] = w * 32 + __builtin_ctz(bits);
	return b->allowed[random_below((unsigned)n)];
}

static void walks(struct bench *b, struct ig_grammar *g)
{
	b->n_times = 0;
	seed = 88172645463325252ull;
	for (int i = 0; i < N_WALKS; i++) {
		struct ig_grammar_matcher *m = ig_grammar_matcher_create(g);
		for (int k = 0; m && k < N_TOKENS; k++) {
			int64_t start = cpu_ns();
			ig_grammar_matcher_mask(m, b->mask);
			b->times[b->n_times++] = (double)(cpu_ns() - start) / 1e3;
			int32_t id = choose(b);
			if (ig_grammar_matcher_accept(m, id)) {
				fprintf(stderr, "a token of the mask was refused\n");
				exit(1);
			}
			if (ig_tokenizer_is_end(b->tokenizer, id))
				break;
		}
		ig_grammar_matcher_destroy(m);
	}
	qsort(b->times, b->n_times, sizeof *b->times, compare);
	printf("  %6.1f %6.1f %7.1f", b->times[b->n_times / 2], b->times[b->n_times * 99 / 100],
	       b->times[b->n_times - 1]);
}

static json_t *schema_of(const char *text)
{
	char *copy = strdup(text);

	for (char *p = copy; p && *p; p++)
		if (*p == '\'')
			*p = '"';
	json_t *schema = NULL;
	if (copy)
		ig_json_read(copy, strlen(copy), NULL, &schema, NULL);
	free(copy);
	return schema;
}

static void run(struct bench *b, size_t i, struct ig_vocab *v)
{
	json_t *schema = cases[i].schema ? schema_of(cases[i].schema) : NULL;
	struct ig_grammar_part part = {
		.kind = schema	       ? IG_GRAMMAR_SCHEMA :
			cases[i].regex ? IG_GRAMMAR_REGEX :
					 IG_GRAMMAR_OBJECT,
		.schema = schema,
		.text = cases[i].regex,
		.len = cases[i].regex ? strlen(cases[i].regex) : 0,
	};
	const struct ig_grammar_choice choice = { &part, 1 };
	const struct ig_grammar_part call[] = {
		TEXT("<tool_call>\n{\"name\": \"f\", \"arguments\": "),
		{ .kind = IG_GRAMMAR_OBJECT },
		TEXT("}\n</tool_call>")
	};
	const struct ig_grammar_choice calls = { call, 3 };
	const char *marker = "<tool_call>";
	const struct ig_grammar_free free_text = { .markers = &marker, .n_markers = 1 };
	bool is_free = cases[i].regex && !*cases[i].regex;
	const struct ig_grammar_source source = { .free = is_free ? &free_text : NULL,
						  .choices = is_free ? &calls : &choice,
						  .n_choices = 1,
						  .max_repeats = is_free ? 16 : 1 };
	struct ig_error err;
	struct ig_grammar *g;
	int64_t start = cpu_ns();

	printf("%-14s", cases[i].name);
	if (ig_grammar_compile_for(v, &source, &g, &err)) {
		printf(" %s\n", err.text);
		json_decref(schema);
		return;
	}
	printf(" %8.1f %7u %7u %6u %6.1f", (double)(cpu_ns() - start) / 1e6, g->a.n_states,
	       g->n_classes, (unsigned)atomic_load(&g->n_slots), (double)g->bytes / 1048576);
	walks(b, g);
	walks(b, g);
	printf("\n");
	ig_grammar_unref(g);
	json_decref(schema);
}

int main(int argc, char **argv)
{
	struct bench b = { 0 };
	struct ig_checkpoint *file = NULL;
	struct ig_error err;
	struct ig_vocab *v;
	int64_t start;

	if (argc > 1 && (ig_checkpoint_open(argv[1], NULL, &file, &err) ||
			 ig_tokenizer_open(file, &b.tokenizer, &err))) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	if (argc < 2)
		b.tokenizer = made_vocabulary(150000, NULL, 0);
	size_t n_vocab = (size_t)ig_tokenizer_n_vocab(b.tokenizer);
	b.mask = calloc(n_vocab / 32 + 1, sizeof *b.mask);
	b.allowed = malloc(n_vocab * sizeof *b.allowed);
	b.times = malloc(N_WALKS * N_TOKENS * sizeof *b.times);
	start = cpu_ns();
	if (!b.mask || !b.allowed || !b.times || ig_vocab_create(b.tokenizer, &v, &err))
		return 1;
	printf("%zu tokens: a trie of %u nodes in %.1f ms\n\n", n_vocab, v->n_nodes,
	       (double)(cpu_ns() - start) / 1e6);
	printf("               compile  states classes  masks    MiB     us: p50    p99     max "
	       "again: p50   p99     max\n");
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		run(&b, i, v);
	ig_vocab_unref(v);
	ig_tokenizer_close(b.tokenizer);
	if (file)
		ig_checkpoint_close(file);
	free(b.mask);
	free(b.allowed);
	free(b.times);
	return 0;
}
