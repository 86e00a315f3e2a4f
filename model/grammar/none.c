/*
 * none.c: stands in for grammars until they are compiled in: every source is refused.
 */
#include "model/answer.h"

#include <errno.h>
#include <stdlib.h>

__attribute__((weak)) int ig_grammar_cache_create(uint64_t max_bytes, struct ig_grammar_cache **out)
{
	*out = NULL;
	return 0;
}

__attribute__((weak)) void ig_grammar_cache_destroy(struct ig_grammar_cache *c)
{
}

__attribute__((weak)) int ig_grammar_cache_get(struct ig_grammar_cache *c,
					       const struct ig_tokenizer *t,
					       const struct ig_grammar_source *source,
					       struct ig_grammar **out, struct ig_error *err)
{
	return ig_fail(err, -ENOTSUP, "this build has no grammars");
}

__attribute__((weak)) struct ig_grammar *ig_grammar_ref(struct ig_grammar *g)
{
	return g;
}

__attribute__((weak)) void ig_grammar_unref(struct ig_grammar *g)
{
}

__attribute__((weak)) struct ig_grammar_matcher *ig_grammar_matcher_create(struct ig_grammar *g)
{
	return NULL;
}

__attribute__((weak)) void ig_grammar_matcher_destroy(struct ig_grammar_matcher *m)
{
}

__attribute__((weak)) void ig_grammar_matcher_mask(struct ig_grammar_matcher *m, uint32_t *mask)
{
	abort(); /* there is no matcher */
}

__attribute__((weak)) int ig_grammar_matcher_accept(struct ig_grammar_matcher *m, int32_t id)
{
	return -EINVAL;
}

__attribute__((weak)) bool ig_grammar_matcher_is_done(const struct ig_grammar_matcher *m)
{
	return true;
}

__attribute__((weak)) int ig_answer_calls_grammar(const struct ig_answer_style *s,
						  const struct ig_tokenizer *t,
						  struct ig_grammar_cache *cache,
						  const struct json_t *tools, const char *name,
						  bool parallel, struct ig_grammar **out,
						  struct ig_error *err)
{
	return ig_fail(err, -ENOTSUP, "this build has no grammars");
}
