/*
 * cache.c: caches grammars by tokenizer and source, and the tries of vocabularies that they share.
 * A source's key is its whole text, compared in full.  Above the limit the least recently used
 * grammars are evicted; they live on while a request references them.  Compiling happens outside
 * the lock: two requests with the same new source may both compile it, and one result is cached.
 */
#include "base/json.h"
#include "base/strbuf.h"
#include "model/grammar/grammar_private.h"
#include "base/hash.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct entry { /* in a list, the most recently used first */
	struct entry *prev, *next;
	const struct ig_tokenizer *tokenizer;
	char *key;
	size_t key_len;
	uint64_t hash;
	struct ig_grammar *grammar;
};

struct trie {
	struct trie *next;
	struct ig_vocab *vocab;
};

struct ig_grammar_cache {
	pthread_mutex_t lock; /* of all below */
	uint64_t max_bytes, n_bytes;
	struct entry *first, *last;
	struct trie *tries;
	struct ig_hash_key hash_key; /* constant */
};

int ig_grammar_cache_create(uint64_t max_bytes, struct ig_grammar_cache **out)
{
	struct ig_grammar_cache *c = calloc(1, sizeof *c);
	int rc;

	*out = NULL;
	if (!c)
		return -ENOMEM;
	if ((rc = pthread_mutex_init(&c->lock, NULL))) {
		free(c);
		return -rc;
	}
	ig_hash_key_init(&c->hash_key);
	c->max_bytes = max_bytes;
	*out = c;
	return 0;
}

static void unlink_entry(struct ig_grammar_cache *c, struct entry *e)
{
	*(e->prev ? &e->prev->next : &c->first) = e->next;
	*(e->next ? &e->next->prev : &c->last) = e->prev;
}

static void link_first(struct ig_grammar_cache *c, struct entry *e)
{
	e->prev = NULL;
	e->next = c->first;
	*(c->first ? &c->first->prev : &c->last) = e;
	c->first = e;
}

static uint64_t size_of(const struct entry *e)
{
	return sizeof *e + e->key_len + e->grammar->bytes;
}

static void remove_entry(struct ig_grammar_cache *c, struct entry *e)
{
	c->n_bytes -= size_of(e);
	unlink_entry(c, e);
	ig_grammar_unref(e->grammar);
	free(e->key);
	free(e);
}

void ig_grammar_cache_destroy(struct ig_grammar_cache *c)
{
	if (!c)
		return;
	while (c->first)
		remove_entry(c, c->first);
	while (c->tries) {
		struct trie *t = c->tries;
		c->tries = t->next;
		ig_vocab_unref(t->vocab);
		free(t);
	}
	pthread_mutex_destroy(&c->lock);
	free(c);
}

void ig_grammar_cache_drop(struct ig_grammar_cache *c, const struct ig_tokenizer *t)
{
	pthread_mutex_lock(&c->lock);
	for (struct entry *e = c->first, *next; e; e = next) {
		next = e->next;
		if (e->tokenizer == t)
			remove_entry(c, e);
	}
	for (struct trie **p = &c->tries; *p;) {
		struct trie *trie = *p;
		if (trie->vocab->tokenizer != t) {
			p = &trie->next;
			continue;
		}
		*p = trie->next;
		ig_vocab_unref(trie->vocab);
		free(trie);
	}
	pthread_mutex_unlock(&c->lock);
}

/* ---- keys ------------------------------------------------------------------------ */

static void add_text(struct ig_strbuf *b, const char *s, size_t len)
{
	ig_strbuf_printf(b, "%zu:", len);
	ig_strbuf_add(b, s, len);
}

static void add_optional(struct ig_strbuf *b, const char *s)
{
	if (s)
		add_text(b, s, strlen(s));
	else
		ig_strbuf_puts(b, "-");
}

static void add_part(struct ig_strbuf *b, const struct ig_grammar_part *p)
{
	struct ig_json_writer w = { .out = b };

	ig_strbuf_printf(b, "+%d ", (int)p->kind);
	if (p->kind == IG_GRAMMAR_TEXT || p->kind == IG_GRAMMAR_REGEX ||
	    p->kind == IG_GRAMMAR_UNTIL)
		add_text(b, p->text, p->len);
	else if (p->schema)
		ig_json_put_value(&w, NULL, p->schema);
	if (p->kind == IG_GRAMMAR_MEMBERS) {
		const struct ig_grammar_members *m = p->members;
		const char *const texts[] = { m->before, m->json, m->after,
					      m->raw,	 m->stop, m->between };
		for (unsigned i = 0; i < 6; i++)
			add_optional(b, texts[i]);
	}
}

static void add_free(struct ig_strbuf *b, const struct ig_grammar_free *f)
{
	ig_strbuf_printf(b, "~%d%zu", f->in_thought, f->n_markers);
	for (size_t i = 0; i < f->n_markers; i++)
		add_optional(b, f->markers[i]);
	add_optional(b, f->think);
	add_optional(b, f->think_end);
	for (size_t i = 0; f->alone && i < f->alone->n_parts; i++)
		add_part(b, &f->alone->parts[i]);
}

static int make_key(const struct ig_grammar_source *s, struct ig_strbuf *b)
{
	const char *const around[] = { s->before, s->between, s->after, s->open };

	for (unsigned i = 0; i < 4; i++)
		add_optional(b, around[i]);
	ig_strbuf_printf(b, "%u", s->max_repeats);
	if (s->free)
		add_free(b, s->free);
	for (size_t i = 0; i < s->n_choices; i++) {
		ig_strbuf_puts(b, "|");
		for (size_t j = 0; j < s->choices[i].n_parts; j++)
			add_part(b, &s->choices[i].parts[j]);
	}
	return ig_strbuf_ok(b) ? 0 : -ENOMEM;
}

static struct entry *find(struct ig_grammar_cache *c, const struct ig_tokenizer *t, uint64_t hash,
			  const struct ig_strbuf *key)
{
	for (struct entry *e = c->first; e; e = e->next)
		if (e->tokenizer == t && e->hash == hash && e->key_len == key->len &&
		    !memcmp(e->key, key->data, key->len))
			return e;
	return NULL;
}

/* ---- looking up ------------------------------------------------------------------ */

/* The trie of a vocabulary, made on first use; the caller's reference. */
static int get_vocab(struct ig_grammar_cache *c, const struct ig_tokenizer *t,
		     struct ig_vocab **out, struct ig_error *err)
{
	struct trie *trie;
	int rc = 0;

	pthread_mutex_lock(&c->lock); /* held while it is made: other requests need it too */
	for (trie = c->tries; trie && trie->vocab->tokenizer != t; trie = trie->next)
		;
	if (!trie) {
		trie = calloc(1, sizeof *trie);
		rc = trie ? ig_vocab_create(t, &trie->vocab, err) :
			    ig_fail(err, -ENOMEM, "out of memory for the vocabulary's trie");
		if (rc) {
			free(trie);
			goto out;
		}
		trie->next = c->tries;
		c->tries = trie;
	}
	*out = ig_vocab_ref(trie->vocab);
out:
	pthread_mutex_unlock(&c->lock);
	return rc;
}

/* Put a grammar first in the list, unless there is one with its key: then *g becomes that. */
static int insert(struct ig_grammar_cache *c, const struct ig_tokenizer *t, uint64_t hash,
		  struct ig_strbuf *key, struct ig_grammar **g)
{
	struct entry *e = find(c, t, hash, key);

	if (e) {
		ig_grammar_unref(*g);
		*g = ig_grammar_ref(e->grammar);
		return 0;
	}
	e = calloc(1, sizeof *e);
	if (!e)
		return -ENOMEM;
	e->tokenizer = t;
	e->hash = hash;
	e->key_len = key->len;
	e->key = ig_strbuf_steal(key);
	e->grammar = ig_grammar_ref(*g);
	link_first(c, e);
	c->n_bytes += size_of(e);
	while (c->n_bytes > c->max_bytes)
		remove_entry(c, c->last); /* perhaps e itself */
	return 0;
}

int ig_grammar_cache_get(struct ig_grammar_cache *c, const struct ig_tokenizer *t,
			 const struct ig_grammar_source *source, struct ig_grammar **out,
			 struct ig_error *err)
{
	struct ig_vocab *v = NULL;
	struct ig_grammar *g = NULL;
	struct ig_strbuf key = { 0 };
	struct entry *e;
	uint64_t hash;
	int rc;

	*out = NULL;
	if ((rc = make_key(source, &key))) {
		ig_fail(err, rc, "out of memory for the grammar's key");
		goto out;
	}
	hash = ig_hash_bytes(&c->hash_key, key.data, key.len);
	pthread_mutex_lock(&c->lock);
	if ((e = find(c, t, hash, &key))) {
		unlink_entry(c, e);
		link_first(c, e);
		*out = ig_grammar_ref(e->grammar);
	}
	pthread_mutex_unlock(&c->lock);
	if (e)
		goto out;
	if ((rc = get_vocab(c, t, &v, err)) || (rc = ig_grammar_compile_for(v, source, &g, err)))
		goto out;
	pthread_mutex_lock(&c->lock);
	rc = insert(c, t, hash, &key, &g);
	pthread_mutex_unlock(&c->lock);
	if (rc) {
		ig_grammar_unref(g);
		ig_fail(err, rc, "out of memory for the grammar's key");
		goto out;
	}
	*out = g;
out:
	ig_vocab_unref(v);
	ig_strbuf_finish(&key);
	return rc;
}
