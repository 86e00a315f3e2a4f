/* test_log.c: a message is one line of a level that is wanted; the file can be
 * replaced while threads write. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/ingot-log-XXXXXX", path[64], moved[64];

static size_t read_all(const char *name, char *buf, size_t size)
{
	FILE *f = fopen(name, "r");
	assert_non_null(f);
	size_t n = fread(buf, 1, size - 1, f);
	buf[n] = 0;
	fclose(f);
	return n;
}

static void test_lines(void **state)
{
	static char buf[8192], long_text[3000];

	assert_int_equal(ig_log_set_file("/nonexistent/folder/file"), -ENOENT);
	assert_int_equal(ig_log_set_file(path), 0);
	ig_log_debug("not wanted");
	ig_log_info("one %d", 1);
	ig_log_error("two\nlines\x1b[31m");
	memset(long_text, 'x', sizeof long_text - 1);
	ig_log_warn("%s", long_text);
	ig_log_set_level(IG_LOG_DEBUG);
	ig_log_debug("wanted");
	ig_log_set_level(IG_LOG_ERROR);
	ig_log_warn("not wanted");
	ig_log_set_level(IG_LOG_INFO);
	ig_log_set_file(NULL);
	read_all(path, buf, sizeof buf);
	assert_null(strstr(buf, "not wanted"));
	assert_non_null(strstr(buf, "Z info  one 1\n"));
	assert_non_null(strstr(buf, "Z error two lines [31m\n")); /* nobody forges a line */
	assert_non_null(strstr(buf, "xxx\n"));			  /* cut off, but a line */
	assert_non_null(strstr(buf, "Z debug wanted\n"));
	int lines = 0;
	for (char *p = buf; *p; p++)
		lines += *p == '\n';
	assert_int_equal(lines, 4);
}

static void *write_many(void *arg)
{
	for (int i = 0; i < 500; i++)
		ig_log_info("thread says %d.", i);
	return NULL;
}

static void test_rotation(void **state)
{
	static char a[400000], b[200000];
	pthread_t t[3];
	int whole = 0;

	unlink(path);
	assert_int_equal(ig_log_set_file(path), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&t[i], NULL, write_many, NULL), 0);
	usleep(500);
	assert_int_equal(rename(path, moved), 0);
	assert_int_equal(ig_log_set_file(path), 0); /* as on SIGHUP */
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	ig_log_set_file(NULL);
	size_t n = read_all(moved, a, sizeof a - sizeof b);
	read_all(path, b, sizeof b);
	strcpy(a + n, b);
	for (char *p = a; (p = strstr(p, " thread says ")); p++) {
		char *dot = strchr(p, '.');
		assert_non_null(dot);
		assert_int_equal(dot[1], '\n');
		whole++;
	}
	assert_int_equal(whole, 1500); /* no line lost or torn */
}

static int setup(void **state)
{
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof path, "%s/log", folder);
	snprintf(moved, sizeof moved, "%s/log.1", folder);
	return 0;
}

static int teardown(void **state)
{
	unlink(path);
	unlink(moved);
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_rotation),
	};
	return cmocka_run_group_tests_name("log", tests, setup, teardown);
}
