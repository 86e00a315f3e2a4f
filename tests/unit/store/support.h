/* support.h: what the store's tests share: a folder of their own, and the environment. */
#ifndef TESTS_STORE_SUPPORT_H
#define TESTS_STORE_SUPPORT_H

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define N_OF(a) (sizeof(a) / sizeof((a)[0]))

static char test_dir[64]; /* exists while the tests run */

static inline int remove_one(const char *path, const struct stat *st, int flag, struct FTW *f)
{
	(void)st;
	(void)flag;
	(void)f;
	return remove(path);
}

static inline int make_test_dir(void **state)
{
	(void)state;
	snprintf(test_dir, sizeof test_dir, "/tmp/ingot-store-XXXXXX");
	return mkdtemp(test_dir) ? 0 : -1;
}

static inline int remove_test_dir(void **state)
{
	(void)state;
	return nftw(test_dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* "test_dir/name" in a buffer of the caller's. */
static inline char *in_dir(char buf[256], const char *name)
{
	snprintf(buf, 256, "%s/%s", test_dir, name);
	return buf;
}

static inline void write_text(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

#endif
