/*
 * test_watch.c: a file that is written in place, renamed over, linked to, taken away.
 */
#include "daemon/watch.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/ingot-watch-XXXXXX", path[64], other[64], link_path[64];

static void put(const char *name, const char *text)
{
	FILE *f = fopen(name, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

/* It changed, and is told so at the second look, and again until it is taken. */
static void expect_change(struct ig_watch *w, const char *name)
{
	assert_false(ig_watch_look(w, name));
	assert_true(ig_watch_look(w, name));
	assert_true(ig_watch_look(w, name));
	ig_watch_take(w, name);
	assert_false(ig_watch_look(w, name));
}

static void test_watch(void **state)
{
	struct ig_watch w;

	put(path, "one");
	ig_watch_take(&w, path);
	assert_false(ig_watch_look(&w, path));
	put(path, "longer");
	expect_change(&w, path);
	put(other, "longer");
	assert_int_equal(rename(other, path), 0);
	expect_change(&w, path);
	/* while it is still being written it is left alone */
	put(path, "a");
	assert_false(ig_watch_look(&w, path));
	put(path, "ab");
	assert_false(ig_watch_look(&w, path));
	assert_true(ig_watch_look(&w, path));
	ig_watch_take(&w, path);
	/* gone is no change; what comes back is */
	assert_int_equal(rename(path, other), 0);
	for (int i = 0; i < 3; i++)
		assert_false(ig_watch_look(&w, path));
	put(path, "back");
	expect_change(&w, path);
}

static void test_link(void **state)
{
	struct ig_watch w;

	put(other, "one");
	assert_int_equal(symlink(other, link_path), 0);
	ig_watch_take(&w, link_path);
	put(other, "longer");
	expect_change(&w, link_path);
	put(path, "longer");
	unlink(link_path);
	assert_int_equal(symlink(path, link_path), 0);
	expect_change(&w, link_path);
}

static int setup(void **state)
{
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof path, "%s/file", folder);
	snprintf(other, sizeof other, "%s/other", folder);
	snprintf(link_path, sizeof link_path, "%s/link", folder);
	return 0;
}

static int teardown(void **state)
{
	unlink(path);
	unlink(other);
	unlink(link_path);
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_watch),
		cmocka_unit_test(test_link),
	};

	return cmocka_run_group_tests_name("watch", tests, setup, teardown);
}
