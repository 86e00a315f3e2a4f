/* test_packed_files.c: the folder of copies of packed weights keeps to its limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "store/packed_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

struct world {
	char above[32], folder[48];
	struct ig_packed_files *files;
};

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof *w);
	struct ig_error err;

	strcpy(w->above, "/tmp/ingot-packed-XXXXXX");
	assert_non_null(mkdtemp(w->above));
	snprintf(w->folder, sizeof w->folder, "%s/a/b", w->above);
	if (ig_packed_files_open(w->folder, 10 * MIB, &w->files, &err))
		fail_msg("%s", err.text);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	char command[64];

	ig_packed_files_close(w->files);
	snprintf(command, sizeof command, "rm -r %s", w->above);
	assert_int_equal(system(command), 0);
	free(w);
	return 0;
}

static struct ig_kv_name name_of(uint8_t n)
{
	struct ig_kv_name name = { { n, 1, 2, 3 } };

	return name;
}

static void put(const char *path, uint64_t n_bytes, time_t used_s)
{
	const struct timespec times[2] = { { .tv_sec = used_s }, { .tv_sec = used_s } };
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)n_bytes), 0);
	assert_int_equal(futimens(fd, times), 0);
	close(fd);
}

static void put_copy(struct world *w, uint8_t n, uint64_t n_bytes, time_t used_s)
{
	const struct ig_kv_name name = name_of(n);
	char *path = ig_packed_files_path(w->files, &name);

	put(path, n_bytes, used_s);
	free(path);
}

static bool is_there(struct world *w, uint8_t n)
{
	const struct ig_kv_name name = name_of(n);
	char *path = ig_packed_files_path(w->files, &name);
	bool yes = !access(path, F_OK);

	free(path);
	return yes;
}

static bool make_space(struct world *w, uint8_t n, uint64_t n_bytes)
{
	const struct ig_kv_name name = name_of(n);

	return ig_packed_files_make_space(w->files, &name, n_bytes, NULL);
}

static void test_oldest_first(void **state)
{
	struct world *w = *state;
	struct ig_kv_name second = name_of(2);

	put_copy(w, 1, 3 * MIB, 1000);
	put_copy(w, 2, 3 * MIB, 900);
	put_copy(w, 3, 3 * MIB, 1100);
	assert_true(make_space(w, 4, MIB)); /* 10 of 10 */
	assert_true(is_there(w, 1) && is_there(w, 2) && is_there(w, 3));
	assert_true(make_space(w, 2, 3 * MIB)); /* one that is there counts once */
	assert_true(is_there(w, 1) && is_there(w, 2) && is_there(w, 3));
	ig_packed_files_use(w->files, &second);
	assert_true(make_space(w, 4, MIB + 1));
	assert_true(!is_there(w, 1) && is_there(w, 2) && is_there(w, 3));
	assert_true(make_space(w, 3, 10 * MIB)); /* never itself */
	assert_true(!is_there(w, 2) && is_there(w, 3));
}

static void test_too_large(void **state)
{
	struct world *w = *state;
	const struct ig_kv_name name = name_of(9);
	struct ig_error err;

	put_copy(w, 1, 3 * MIB, 1000);
	assert_false(ig_packed_files_make_space(w->files, &name, 10 * MIB + 1, &err));
	assert_int_equal(err.code, -ENOSPC);
	assert_non_null(strstr(err.text, w->folder));
	assert_non_null(strstr(err.text, "do not fit into 10.0 MiB"));
	assert_true(is_there(w, 1));
}

/* Without a limit half of the disk is one. */
static void test_default(void **state)
{
	struct world *w = *state;
	struct ig_packed_files *files;
	const struct ig_kv_name name = name_of(9);

	put_copy(w, 1, 3 * MIB, 1000);
	assert_int_equal(ig_packed_files_open(w->folder, 0, &files, NULL), 0);
	assert_false(ig_packed_files_make_space(files, &name, (uint64_t)1 << 60, NULL));
	assert_true(is_there(w, 1));
	ig_packed_files_close(files);
}

static void test_others_files(void **state)
{
	static const char *const others[] = { "notes.txt", "0123.packed",
					      "00010203000000000000000000000000.other" };
	struct world *w = *state;
	struct stat st;
	char path[128];
	time_t now = time(NULL);

	for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
		snprintf(path, sizeof path, "%s/%s", w->folder, others[i]);
		put(path, 20 * MIB, 1);
	}
	put_copy(w, 1, 3 * MIB, 1000);
	snprintf(path, sizeof path, "%s/05010203000000000000000000000000.packed.part.7", w->folder);
	put(path, 20 * MIB, now);
	assert_true(make_space(w, 2, 7 * MIB));
	assert_true(is_there(w, 1));
	assert_int_equal(access(path, F_OK), 0); /* somebody writes it */
	put(path, 20 * MIB, now - 7200);
	assert_true(make_space(w, 2, 7 * MIB));
	assert_true(access(path, F_OK) < 0);
	assert_true(make_space(w, 2, 10 * MIB));
	assert_false(is_there(w, 1));
	for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
		snprintf(path, sizeof path, "%s/%s", w->folder, others[i]);
		assert_int_equal(access(path, F_OK), 0);
	}
	assert_int_equal(stat(w->folder, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
}

static void test_no_folder(void **state)
{
	struct ig_packed_files *files;
	struct ig_error err = { 0 };

	assert_true(ig_packed_files_open("/dev/null/x", 0, &files, &err) < 0);
	assert_null(files);
	assert_non_null(strstr(err.text, "/dev/null"));
	ig_packed_files_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_oldest_first, setup, teardown),
		cmocka_unit_test_setup_teardown(test_too_large, setup, teardown),
		cmocka_unit_test_setup_teardown(test_default, setup, teardown),
		cmocka_unit_test_setup_teardown(test_others_files, setup, teardown),
		cmocka_unit_test(test_no_folder),
	};

	return cmocka_run_group_tests_name("packed_files", tests, NULL, NULL);
}
