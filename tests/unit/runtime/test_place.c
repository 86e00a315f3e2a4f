/*
 * test_place.c: who may have changed a module's file: owners and modes as data, folders as
 * they lie, and that what was looked at is what is loaded.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "runtime/modules/modules_private.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char root[] = "/tmp/ingot-place-XXXXXX";

static void test_judge(void **state)
{
	static const struct {
		uid_t owner;
		mode_t mode;
		enum place what;
		int rc;
		const char *text;
	} cases[] = {
		{ 0, S_IFREG | 0644, PLACE_FILE, 0, "" },
		{ 7, S_IFREG | 0775, PLACE_FILE, 0, "" },
		{ 8, S_IFREG | 0644, PLACE_FILE, -EPERM, "at belongs to user 8, neither to root" },
		{ 7, S_IFREG | 0646, PLACE_FILE, -EPERM, "at can be written by everyone" },
		{ 0, S_IFREG | 01646, PLACE_FILE, -EPERM, "mode 1646" },
		{ 7, S_IFIFO | 0644, PLACE_FILE, -ENOEXEC, "is not a file" },
		{ 7, S_IFDIR | 0755, PLACE_FILE, -ENOEXEC, "is not a file" },
		{ 0, S_IFDIR | 0755, PLACE_FOLDER, 0, "" },
		{ 7, S_IFDIR | 0775, PLACE_FOLDER, 0, "" }, /* Homebrew's is so */
		{ 8, S_IFDIR | 0755, PLACE_FOLDER, -EPERM, "belongs to user 8" },
		{ 7, S_IFDIR | 0777, PLACE_FOLDER, -EPERM, "mode 0777" },
		{ 0, S_IFDIR | 01777, PLACE_FOLDER, -EPERM, "mode 1777" },
		{ 0, S_IFDIR | 01777, PLACE_ANCESTOR, 0, "" }, /* /tmp */
		{ 0, S_IFDIR | 0777, PLACE_ANCESTOR, -EPERM, "mode 0777" },
		{ 7, S_IFDIR | 01777, PLACE_ANCESTOR, -EPERM, "mode 1777" },
		{ 8, S_IFDIR | 01755, PLACE_ANCESTOR, -EPERM, "belongs to user 8" },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const struct stat st = { .st_uid = cases[i].owner, .st_mode = cases[i].mode };
		struct ig_error err = { 0 };
		int rc = place_check(&st, 7, cases[i].what, "path", "at", &err);

		if (rc != cases[i].rc || !strstr(err.text, cases[i].text))
			fail_msg("case %zu: %d \"%s\"", i, rc, err.text);
	}
}

static const char *under(const char *name)
{
	static char path[4][PATH_MAX];
	static int n;

	snprintf(path[++n % 4], sizeof path[0], "%s/%s", root, name);
	return path[n % 4];
}

static void copy(const char *from, const char *to)
{
	char buf[65536];
	ssize_t n;
	int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0755);

	assert_true(in >= 0 && out >= 0);
	while ((n = read(in, buf, sizeof buf)) > 0)
		assert_int_equal(write(out, buf, (size_t)n), n);
	close(in);
	close(out);
}

static void expect(const char *path, int code, const char *text)
{
	char real[PATH_MAX];
	struct ig_error err = { 0 };
	int fd = -1, rc = place_open(path, real, &fd, &err);

	if (rc != code || !strstr(err.text, text))
		fail_msg("%s: %d \"%s\"", path, rc, err.text);
	if (!rc)
		close(fd);
}

/* Each folder on the way counts, and so does where a link leads. */
static void test_way(void **state)
{
	expect(under("a/b/m.so"), 0, "");
	expect(under("link.so"), 0, "");
	expect(under("away/m.so"), 0, "");
	expect(under("none.so"), -ENOENT, "none.so");
	expect(under("a/b"), -ENOEXEC, "is not a file");
	expect("/", -ENOENT, "");
	assert_int_equal(chmod(under("a"), 0777), 0);
	expect(under("a/b/m.so"), -EPERM, "/a can be written by everyone (mode 0777)");
	expect(under("link.so"), -EPERM, "/a can be written");
	expect(under("away/m.so"), -EPERM, "/a can be written");
	assert_int_equal(chmod(under("a"), 0755), 0);
	assert_int_equal(chmod(under("a/b"), 01777), 0);
	expect(under("a/b/m.so"), -EPERM, "/a/b can be written by everyone (mode 1777)");
	assert_int_equal(chmod(under("a/b"), 0755), 0);
	assert_int_equal(chmod(under("a/b/m.so"), 0757), 0);
	expect(under("link.so"), -EPERM, "/a/b/m.so can be written by everyone (mode 0757)");
	assert_int_equal(chmod(under("a/b/m.so"), 0755), 0);
	if (geteuid())
		return; /* nobody else can give a file away */
	assert_int_equal(chown(under("a"), 7, (gid_t)-1), 0);
	expect(under("a/b/m.so"), -EPERM, "/a belongs to user 7");
	assert_int_equal(chown(under("a"), 0, (gid_t)-1), 0);
}

/* Another file under the same name, after it was looked at, is not what is loaded. */
static void test_swapped(void **state)
{
#ifdef __linux__
	char real[PATH_MAX], name[32];
	struct ig_error err = { 0 };
	int fd;

	assert_int_equal(place_open(under("a/b/m.so"), real, &fd, &err), 0);
	copy(INGOT_CLAIMS_B, under("a/b/other.so"));
	assert_int_equal(rename(under("a/b/other.so"), under("a/b/m.so")), 0);
	snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
	void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	const struct ig_module *m = handle ? dlsym(handle, "ingot_module") : NULL;
	assert_non_null(m);
	assert_string_equal(m->name, "module-a");
#endif
}

static int setup(void **state)
{
	if (!mkdtemp(root) || mkdir(under("a"), 0755) || mkdir(under("a/b"), 0755) ||
	    chmod(under("a"), 0755) || chmod(under("a/b"), 0755) ||
	    symlink("a/b/m.so", under("link.so")) || symlink("a/b", under("away")))
		return -1;
	copy(INGOT_CLAIMS_A, under("a/b/m.so"));
	return chmod(under("a/b/m.so"), 0755);
}

static int teardown(void **state)
{
	unlink(under("a/b/m.so"));
	unlink(under("link.so"));
	unlink(under("away"));
	rmdir(under("a/b"));
	rmdir(under("a"));
	return rmdir(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_judge),
		cmocka_unit_test(test_way),
		cmocka_unit_test(test_swapped),
	};
	return cmocka_run_group_tests_name("where modules lie", tests, setup, teardown);
}
