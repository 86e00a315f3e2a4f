/*
 * fake_files.c: models' files, tokenizers, templates and grammars of the engine's tests: see
 * fake_runtime.h.
 */
#include "fake_files.h"
#include "fake_runtime.h"

#include "model/chat/completion.h"
#include "model/formats/adapter.h"
#include "model/formats/checkpoint.h"
#include "model/tokenizer/detokenizer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- files, tokenizer, template -------------------------------------------------------- */

struct ig_tokenizer {
	bool strange, short_of_one;
};
struct ig_chat_template {
	int unused;
};

#define SMALL "small:"
#define HEAD "mtp:"

bool fake_is_small(const char *path) { return !strncmp(path, SMALL, sizeof SMALL - 1); }

bool fake_has_head(const char *path) { return !strncmp(path, HEAD, sizeof HEAD - 1); }

const char *fake_own_kind(const char *path)
{
	return fake_is_small(path) ? path + sizeof SMALL - 1 :
	       fake_has_head(path) ? path + sizeof HEAD - 1 :
				     path;
}

/* A file's first word. */
static bool read_kind(const char *path, char *out, size_t cap)
{
	int fd = open(path, O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, out, cap - 1);

	if (fd >= 0)
		close(fd);
	if (n < 0)
		return false;
	out[n] = 0;
	out[strcspn(out, " \n")] = 0;
	return true;
}

int ig_checkpoint_open(const char *path, const struct ig_arch *const *archs,
		       struct ig_checkpoint **out, struct ig_error *err)
{
	static const char *const known[] = { "good",   "good2",	       "groups",      "window",
					     "nochat", "odd-template", "notokenizer", "noarch",
					     "heavy",  "noload",       "wide",	      "strange",
					     "short",  "brief",	       "state",	      "texts",
					     "head" };
	char kind[64];
	unsigned n;
	bool found;

	atomic_fetch_add(&fake.n_opens, 1);
	snprintf(kind, sizeof kind, "%s", path);
	if (path[0] == '/' && !read_kind(path, kind, sizeof kind))
		return ig_fail(err, -ENOENT, "%s: no such file", path);
	found = sscanf(kind, "w%u", &n) == 1;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		found |= !strcmp(fake_own_kind(kind), known[i]);
	if (!found)
		return path[0] == '/' ? ig_fail(err, -EINVAL, "%s: not a model", path) :
					ig_fail(err, -ENOENT, "%s: no such file", path);
	*out = calloc(1, sizeof **out);
	if (!*out)
		return fake_no_memory(err);
	snprintf((*out)->path, sizeof(*out)->path, "%s", kind);
	atomic_fetch_add(&fake.n_open, 1);
	return 0;
}

void ig_checkpoint_close(struct ig_checkpoint *g)
{
	if (g)
		atomic_fetch_sub(&fake.n_open, 1);
	free(g);
}

bool ig_checkpoint_is_folder(const char *path) { return false; }

bool ig_checkpoint_is_head(const struct ig_checkpoint *g) { return !strcmp(g->path, "head"); }

int ig_checkpoint_add_head(struct ig_checkpoint *g, struct ig_checkpoint *head,
			   struct ig_error *err)
{
	const size_t n = sizeof HEAD - 1;

	if (fake_has_head(g->path))
		return ig_fail(err, -EINVAL, "the model has a head of its own already");
	memmove(g->path + n, g->path, sizeof g->path - n);
	memcpy(g->path, HEAD, n);
	g->path[sizeof g->path - 1] = 0;
	ig_checkpoint_close(head);
	return 0;
}

int ig_tokenizer_open(const struct ig_checkpoint *g, struct ig_tokenizer **out,
		      struct ig_error *err)
{
	if (!strcmp(g->path, "notokenizer"))
		return ig_fail(err, -ENOTSUP, "tokenizer \"xyz\" is not known");
	*out = calloc(1, sizeof **out);
	if (*out)
		(*out)->strange = !strcmp(g->path, "small:strange");
	if (*out)
		(*out)->short_of_one = !strcmp(g->path, "small:short");
	return *out ? 0 : fake_no_memory(err);
}

void ig_tokenizer_close(struct ig_tokenizer *t) { free(t); }

int32_t ig_tokenizer_n_vocab(const struct ig_tokenizer *t)
{
	return FAKE_VOCAB - (t && t->short_of_one);
}

int32_t ig_tokenizer_suffix(const struct ig_tokenizer *t) { return -1; }

int32_t ig_tokenizer_find_special(const struct ig_tokenizer *t, const char *text) { return -1; }

bool ig_tokenizer_is_end(const struct ig_tokenizer *t, int32_t id) { return id == FAKE_END; }

uint64_t ig_checkpoint_file_bytes(const struct ig_checkpoint *g) { return 77; }

const char *ig_checkpoint_format(const struct ig_checkpoint *g) { return "GGUF"; }

uint64_t ig_checkpoint_n_tensors(const struct ig_checkpoint *g) { return 1; }

const struct ig_checkpoint_tensor *ig_checkpoint_tensor(const struct ig_checkpoint *g, uint64_t i)
{
	static const struct ig_checkpoint_tensor t = {
		.dtype = IG_Q8_0, .n_rows = 3, .n_cols = 32, .n_bytes = 102
	};

	return &t;
}

int ig_checkpoint_u32(const struct ig_checkpoint *g, const char *key, uint32_t *out,
		      struct ig_error *err)
{
	return -ENOENT;
}

void ig_completion_style_of(const struct ig_chat_template *c, struct ig_completion_style *out)
{
	*out = (struct ig_completion_style){ .reasoning = true };
}

int ig_chat_template_open(const struct ig_checkpoint *g, const struct ig_tokenizer *t,
			  struct ig_chat_template **out, struct ig_error *err)
{
	if (!strcmp(g->path, "nochat"))
		return -ENOENT;
	if (!strcmp(g->path, "odd-template"))
		return ig_fail(err, -ENOTSUP, "the chat template is not one that Ingot knows");
	*out = calloc(1, sizeof **out);
	return *out ? 0 : fake_no_memory(err);
}

void ig_chat_template_close(struct ig_chat_template *c) { free(c); }

/* its rerankers join pairs */
int ig_rerank_template_open(const struct ig_checkpoint *g, const struct ig_tokenizer *t,
			    struct ig_rerank_template **out, struct ig_error *err)
{
	*out = NULL;
	return 0;
}

void ig_rerank_template_close(struct ig_rerank_template *c) {}

const char *ig_chat_template_name(const struct ig_chat_template *c) { return "chatml"; }

/* Letters, pairs and triples of a few letters (so that stop strings cross their
 * borders in many ways), a character of several bytes, long ones. */
const char *fake_token_text(int32_t id)
{
	static const char *const texts[FAKE_N_TEXT] = {
		"a",
		"b",
		"c",
		"ab",
		"ba",
		"aa",
		"bb",
		"abc",
		"cab",
		"aab",
		"bba",
		"abab",
		" ",
		"\n",
		"the ",
		"quick ",
		"brown ",
		"fox",
		"\xc3\xa9",
		"\xe2\x82\xac",
		"\xf0\x9f\x98\x80",
		"d",
		"e",
		"f",
		"g",
		"h",
		"i",
		"j",
		"k",
		"l",
		"m",
		"n",
		"o",
		"p",
		"q",
		"r",
		"s",
		"t",
		"u",
		"v",
		"w",
		"x",
		"y",
		"z",
		"0",
		"1",
		"2",
		"3",
		"4",
		"5",
		"6",
		"7",
		"8",
		"9",
		"one two three four five six seven eight nine ten",
		".",
		",",
		"!",
		"?",
		"-",
	};

	return id >= 0 && id < FAKE_N_TEXT ? texts[id] : "";
}

/* The detokenizer is the real one. */
const char *ig_tokenizer_token(const struct ig_tokenizer *t, int32_t id, size_t *len, bool *special)
{
	const char *text = id == FAKE_CONTROL ? FAKE_CONTROL_TEXT :
			   id == FAKE_HALF_1  ? "\xe2\x82" :
			   id == FAKE_HALF_2  ? "\xac" :
			   id == FAKE_END     ? "<end>" :
						fake_token_text(id);

	if (id < 0 || id >= FAKE_VOCAB)
		return NULL;
	if (t && t->strange && id == 7)
		text = "cba";
	*len = strlen(text);
	*special = id == FAKE_CONTROL || id == FAKE_END;
	return text;
}

bool ig_tokenizer_adds_space(const struct ig_tokenizer *t) { return false; }

bool ig_tokenizer_trims(const struct ig_tokenizer *t) { return false; }

size_t ig_tokenizer_longest(const struct ig_tokenizer *t) { return 49; }

/* ---- grammars ----------------------------------------------------------------------------- */

/* Of the engine's cache only dropping tokenizers. */
struct ig_grammar_cache {
	int unused;
};

int ig_grammar_cache_create(uint64_t max_bytes, struct ig_grammar_cache **out)
{
	*out = calloc(1, sizeof **out);
	return *out ? 0 : -ENOMEM;
}

void ig_grammar_cache_destroy(struct ig_grammar_cache *c) { free(c); }

void ig_grammar_cache_drop(struct ig_grammar_cache *c, const struct ig_tokenizer *t)
{
	if (!c)
		fake_report("a tokenizer goes after the cache of grammars");
	atomic_fetch_add(&fake.n_dropped, 1);
}

struct ig_grammar {
	atomic_int n_refs;
	struct fake_grammar rules;
};

struct ig_grammar_matcher {
	struct ig_grammar *grammar;
	int n_accepted;
	bool ended, borrows;
};

struct ig_grammar *fake_grammar(const struct fake_grammar *rules)
{
	struct ig_grammar *g = calloc(1, sizeof *g);

	atomic_init(&g->n_refs, 1);
	g->rules = *rules;
	atomic_fetch_add(&fake.n_grammars, 1);
	return g;
}

struct ig_grammar *ig_grammar_ref(struct ig_grammar *g)
{
	atomic_fetch_add(&g->n_refs, 1);
	return g;
}

void ig_grammar_unref(struct ig_grammar *g)
{
	if (!g || atomic_fetch_sub(&g->n_refs, 1) != 1)
		return;
	atomic_fetch_sub(&fake.n_grammars, 1);
	free(g);
}

struct ig_grammar_matcher *ig_grammar_matcher_create(struct ig_grammar *g)
{
	struct ig_grammar_matcher *m = calloc(1, sizeof *m);

	if (!m)
		return NULL;
	m->borrows = !g;
	if (g)
		m->grammar = ig_grammar_ref(g);
	return m;
}

void ig_grammar_matcher_copy(struct ig_grammar_matcher *to, const struct ig_grammar_matcher *from)
{
	if (!to->borrows || from->borrows)
		fake_report("a matcher is copied that is not one to be copied");
	to->grammar = from->grammar;
	to->n_accepted = from->n_accepted;
	to->ended = from->ended;
}

void ig_grammar_matcher_destroy(struct ig_grammar_matcher *m)
{
	if (!m)
		return;
	if (!m->borrows)
		ig_grammar_unref(m->grammar);
	free(m);
}

bool fake_grammar_allows(const struct fake_grammar *r, int i, int32_t id)
{
	if (i >= r->n_tokens)
		return id == FAKE_END;
	return id < FAKE_N_TEXT && id % r->modulus == i % r->modulus;
}

void ig_grammar_matcher_mask(struct ig_grammar_matcher *m, uint32_t *mask)
{
	memset(mask, fake.no_compute ? 0xff : 0, (FAKE_VOCAB + 31) / 32 * sizeof *mask);
	if (fake.no_compute)
		return;
	for (int32_t id = 0; id < FAKE_VOCAB && !m->grammar->rules.allows_none; id++)
		if (fake_grammar_allows(&m->grammar->rules, m->n_accepted, id))
			mask[id / 32] |= 1u << id % 32;
}

int ig_grammar_matcher_accept(struct ig_grammar_matcher *m, int32_t id)
{
	if (m->ended || !fake_grammar_allows(&m->grammar->rules, m->n_accepted, id))
		return -EINVAL;
	m->n_accepted++;
	m->ended = id == FAKE_END;
	return 0;
}

bool ig_grammar_matcher_is_done(const struct ig_grammar_matcher *m)
{
	return m->ended ||
	       (m->grammar->rules.closes && m->n_accepted >= m->grammar->rules.n_tokens);
}
