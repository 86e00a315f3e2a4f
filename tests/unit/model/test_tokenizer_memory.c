/*
 * test_tokenizer_memory.c: each allocation of opening a tokenizer and encoding a text
 * fails once; what comes of it is an error, never a crash or (under AddressSanitizer) a
 * leak.  The linker puts the three functions below in the place of the C library's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/tokenizer.h"
#include "tiny_spm.h"

#include <errno.h>
#include <stdlib.h>

static long n_left = -1; /* allocations until one fails; -1: none does */

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);

static bool fails(void)
{
	return n_left >= 0 && n_left-- == 0;
}

void *__wrap_malloc(size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	return fails() ? NULL : __real_realloc(p, size);
}

/* The ids of texts that take every way through the code. */
static int encode_all(const struct ig_tokenizer *t, struct ig_ids *l)
{
	static const char text[] = "<s>hello lo a\xff<tool>  hellohellohellohello\n";
	char big[300];
	int rc = ig_tokenizer_encode(t, text, sizeof text - 1, true, SIZE_MAX, l);

	memset(big, 'l', sizeof big);
	return rc ? rc : ig_tokenizer_encode(t, big, sizeof big, false, SIZE_MAX, l);
}

static void each_fails(const struct gw *w)
{
	struct ig_ids want = { 0 };
	bool done = false;
	struct ig_checkpoint *g;
	long i;

	assert_int_equal(ig_checkpoint_open_memory(w->data, w->len, "tiny", &g, NULL), 0);
	for (i = 0; !done; i++) {
		struct ig_error err = { 0 };
		struct ig_ids l = { 0 };
		struct ig_tokenizer *t;
		n_left = i;
		int rc = ig_tokenizer_open(g, &t, &err);
		if (rc) {
			n_left = -1;
			assert_int_equal(rc, -ENOMEM);
			assert_int_equal(err.code, -ENOMEM);
			assert_null(t);
			continue;
		}
		rc = encode_all(t, &l);
		done = n_left >= 0;
		n_left = -1;
		if (!rc && !want.n)
			want = l;
		else
			ig_ids_finish(&l);
		if (done)
			assert_int_equal(rc, 0);
		else if (rc)
			assert_int_equal(rc, -ENOMEM);
		/* It works afterwards. */
		l = (struct ig_ids){ 0 };
		assert_int_equal(encode_all(t, &l), 0);
		if (want.n) {
			assert_int_equal(l.n, want.n);
			assert_memory_equal(l.ids, want.ids, l.n * sizeof *l.ids);
		}
		ig_ids_finish(&l);
		ig_tokenizer_close(t);
	}
	assert_true(i > 8);
	ig_ids_finish(&want);
	ig_checkpoint_close(g);
}

static void bytes(void **state)
{
	static const char *const pres[] = { "llama-bpe", "default" };

	for (size_t i = 0; i < 2; i++) {
		struct gw w;
		tiny_file(&w, &(struct tiny_options){ .model = "gpt2", .pre = pres[i] });
		each_fails(&w);
		gw_finish(&w);
	}
}

static void pieces(void **state)
{
	static const char *const models[] = { "llama", "t5" };

	for (size_t i = 0; i < 2; i++) {
		struct gw w;
		tiny_spm_file(&w, &(struct tiny_spm){ .model = models[i] });
		each_fails(&w);
		gw_finish(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(bytes), cmocka_unit_test(pieces) };

	return cmocka_run_group_tests_name("model/tokenizer_memory", tests, NULL, NULL);
}
