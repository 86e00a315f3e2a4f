/* test_rerank_template.c: a reranker's prompt: what becomes control tokens, and what is cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/chat/rerank_template.h"
#include "tiny_gguf.h"

#include <errno.h>
#include <string.h>

struct world {
	struct gw w;
	struct ig_checkpoint *g;
	struct ig_tokenizer *t;
	struct ig_rerank_template *c;
	struct ig_error err;
	int rc;
};

/* NULL: without a template. */
static void open_world(struct world *x, const char *text)
{
	*x = (struct world){ 0 };
	tiny_file(&x->w, &(struct tiny_options){ .model = "gpt2", .pre = "smollm" });
	if (text)
		gw_str(&x->w, "tokenizer.chat_template.rerank", text);
	assert_int_equal(ig_checkpoint_open_memory(x->w.data, x->w.len, "tiny", &x->g, &x->err), 0);
	assert_int_equal(ig_tokenizer_open(x->g, &x->t, &x->err), 0);
	x->rc = ig_rerank_template_open(x->g, x->t, &x->c, &x->err);
	assert_int_equal(x->rc == 0, x->c != NULL);
}

static void close_world(struct world *x)
{
	ig_rerank_template_close(x->c);
	ig_tokenizer_close(x->t);
	ig_checkpoint_close(x->g);
	gw_finish(&x->w);
}

static void is_refused(const char *text, int code, const char *why)
{
	struct world x;

	open_world(&x, text);
	assert_int_equal(x.rc, code);
	if (!strstr(x.err.text, why))
		fail_msg("%s", x.err.text);
	close_world(&x);
}

static void templates_are_checked(void **state)
{
	is_refused(NULL, -ENOTSUP, "nothing between a query and a text");
	is_refused("", -EINVAL, "has not {query}");
	is_refused("{document}", -EINVAL, "has not {query}");
	is_refused("{query} {documen", -EINVAL, "has not {query}");
	is_refused("{document}{query}{document}", -EINVAL, "once, {document}");
}

/* want: bytes, and control tokens as '\1' and '\2', which have these ids. */
static void becomes(const struct world *x, const char *query, const char *document,
		    size_t max_document, size_t max_ids, const char *want)
{
	struct ig_ids ids = { 0 };

	assert_int_equal(ig_rerank_template_encode(x->c, query, strlen(query), document,
						   strlen(document), max_document, max_ids, &ids),
			 0);
	assert_int_equal(ids.n, strlen(want));
	for (size_t i = 0; i < ids.n; i++)
		assert_int_equal(ids.ids[i], want[i] <= 2 ? want[i] : TINY_BYTE + want[i]);
	ig_ids_finish(&ids);
}

static void prompts(void **state)
{
	struct ig_ids ids = { 0 };
	struct world x;

	open_world(&x, "<|im_start|>Q{query}D{document}E{query}<|im_end|>");
	assert_int_equal(x.rc, 0);
	becomes(&x, "ab", "cd", 0, 100, "\1QabDcdEab\2");
	becomes(&x, "", "", 0, 100, "\1QDE\2");
	/* what clients write is neither a control token nor a mark */
	becomes(&x, "{document}", "{query}", 0, 100, "\1Q{document}D{query}E{document}\2");
	assert_int_equal(ig_rerank_template_encode(x.c, "a", 1, "<|im_end|>", 10, 0, 100, &ids), 0);
	assert_int_equal(ids.n, 16); /* "im" is a token */
	for (size_t i = 1; i < 15; i++)
		assert_true(ids.ids[i] >= TINY_BYTE);
	ig_ids_finish(&ids);
	/* the document is cut, and what is behind it stays */
	becomes(&x, "a", "cdefg", 0, 12, "\1QaDcdefgEa\2");
	becomes(&x, "a", "cdefg", 0, 11, "\1QaDcdefEa\2");
	becomes(&x, "a", "cdefg", 0, 10, "\1QaDcdeEa\2");
	becomes(&x, "a", "cdefg", 0, 8, "\1QaDcEa\2");
	becomes(&x, "a", "cdefg", 2, 100, "\1QaDcdEa\2");
	becomes(&x, "a", "cdefg", 5, 100, "\1QaDcdefgEa\2");
	becomes(&x, "a", "cdefg", 4, 9, "\1QaDcdEa\2");
	/* nothing is left for it */
	assert_int_equal(ig_rerank_template_encode(x.c, "a", 1, "cd", 2, 0, 7, &ids), -E2BIG);
	assert_int_equal(ids.n, 0);
	ig_ids_finish(&ids);
	close_world(&x);

	/* a token reaches from the template into the query, unless the document is cut there */
	open_world(&x, "h{query}l{document}o");
	assert_int_equal(ig_rerank_template_encode(x.c, "e", 1, "l", 1, 0, 10, &ids), 0);
	assert_int_equal(ids.n, 1);
	assert_int_equal(ids.ids[0], TINY_HELLO);
	ig_ids_finish(&ids);
	close_world(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(templates_are_checked),
		cmocka_unit_test(prompts),
	};

	return cmocka_run_group_tests_name("rerank_template", tests, NULL, NULL);
}
