/* test_gguf_write.c: files that are written, read back by the reader. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/formats/gguf_write.h"

#include "model/formats/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64], path[96];

static int make_folder(void **state)
{
	strcpy(dir, "/tmp/ig-gguf-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof path, "%s/out.gguf", dir);
	return 0;
}

/* How many files there are; they are deleted. */
static int files(void)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	char name[512];
	int n = 0;

	assert_non_null(d);
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(name, sizeof name, "%s/%s", dir, e->d_name);
		assert_int_equal(unlink(name), 0);
		n++;
	}
	closedir(d);
	return n;
}

static int remove_folder(void **state)
{
	files();
	return rmdir(dir);
}

static const int64_t matrix[] = { 64, 3 }, norm[] = { 5 }, experts[] = { 32, 2, 3 };

/* A writer with its header written: 3 rows of Q4_0, 5 floats, 6 rows of Q8_0. */
static struct ig_gguf_writer *begun(bool replace)
{
	struct ig_gguf_writer *w;
	struct ig_error err = { 0 };

	assert_int_equal(ig_gguf_create(path, replace, &w, &err), 0);
	ig_gguf_put(w, "general.architecture", 20, IG_GGUF_STRING, "\4\0\0\0\0\0\0\0tiny", 12);
	ig_gguf_put_u32(w, "tiny.block_count", 7);
	ig_gguf_put(w, "a.flag", 6, IG_GGUF_BOOL, "\1", 1);
	assert_int_equal(ig_gguf_add_tensor(w, "one.weight", matrix, 2, IG_Q4_0, &err), 0);
	assert_int_equal(ig_gguf_add_tensor(w, "norm", norm, 1, IG_F32, &err), 0);
	assert_int_equal(ig_gguf_add_tensor(w, "experts.weight", experts, 3, IG_Q8_0, &err), 0);
	assert_int_equal(ig_gguf_begin(w, &err), 0);
	return w;
}

#define ALL_BYTES (3 * 36 + 20 + 6 * 34)

static void what_is_written_is_read(void **state)
{
	unsigned char bytes[ALL_BYTES];
	const struct ig_checkpoint_tensor *t;
	struct ig_checkpoint_key k;
	struct ig_checkpoint *g;
	struct ig_error err = { 0 };
	uint32_t v = 0;
	bool flag = false;
	const char *s;
	size_t len;

	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (unsigned char)(i * 7 + 1);
	/* In one piece, and in small ones that cross the tensors' ends. */
	for (size_t piece = 11; piece <= sizeof bytes; piece += sizeof bytes - 11) {
		struct ig_gguf_writer *w = begun(false);
		struct stat st;

		for (size_t at = 0; at < sizeof bytes; at += piece)
			assert_int_equal(
				ig_gguf_write(w, bytes + at,
					      sizeof bytes - at < piece ? sizeof bytes - at : piece,
					      &err),
				0);
		assert_int_equal(stat(path, &st), -1); /* not before it is whole */
		assert_int_equal(ig_gguf_finish(w, &err), 0);
		assert_int_equal(stat(path, &st), 0);
		assert_int_equal(st.st_size, ig_gguf_file_bytes(w));
		ig_gguf_close(w);

		assert_int_equal(ig_checkpoint_open(path, NULL, &g, &err), 0);
		assert_int_equal(ig_checkpoint_u32(g, "tiny.block_count", &v, &err), 0);
		assert_int_equal(v, 7);
		assert_int_equal(ig_checkpoint_bool(g, "a.flag", &flag, &err), 0);
		assert_true(flag);
		assert_int_equal(ig_checkpoint_str(g, "general.architecture", &s, &len, &err), 0);
		assert_true(len == 4 && !memcmp(s, "tiny", 4));
		assert_int_equal(ig_checkpoint_n_keys(g), 3);
		ig_checkpoint_key(g, 0, &k);
		assert_true(k.name_len == 20 && !memcmp(k.name, "general.architecture", 20));
		assert_int_equal(k.type, IG_GGUF_STRING);
		assert_int_equal(k.n_bytes, 12);
		assert_memory_equal(k.value, "\4\0\0\0\0\0\0\0tiny", 12);
		assert_int_equal(ig_checkpoint_n_tensors(g), 3);
		t = ig_checkpoint_find_tensor(g, "one.weight");
		assert_non_null(t);
		assert_true(t->dtype == IG_Q4_0 && t->n_cols == 64 && t->n_rows == 3);
		assert_memory_equal(t->data, bytes, 3 * 36);
		t = ig_checkpoint_find_tensor(g, "norm");
		assert_non_null(t);
		assert_true(t->dtype == IG_F32 && t->n_cols == 5 && t->n_rows == 1);
		assert_memory_equal(t->data, bytes + 3 * 36, 20);
		t = ig_checkpoint_find_tensor(g, "experts.weight");
		assert_non_null(t);
		assert_true(t->dims[0] == 32 && t->dims[1] == 2 && t->dims[2] == 3 &&
			    t->dims[3] == 1);
		assert_memory_equal(t->data, bytes + 3 * 36 + 20, 6 * 34);
		ig_checkpoint_close(g);
		assert_int_equal(files(), 1);
	}
}

static void nothing_is_left_without_a_finish(void **state)
{
	struct ig_error err = { 0 };
	char bytes[ALL_BYTES + 1] = { 0 };
	struct ig_gguf_writer *w = begun(false);

	assert_int_equal(ig_gguf_write(w, bytes, 100, &err), 0);
	assert_int_equal(ig_gguf_finish(w, &err), -EINVAL);
	assert_non_null(strstr(err.text, "0 of 3 tensors"));
	ig_gguf_close(w);
	assert_int_equal(files(), 0);

	w = begun(false);
	assert_int_equal(ig_gguf_write(w, bytes, ALL_BYTES + 1, &err), -EINVAL);
	ig_gguf_close(w);
	assert_int_equal(files(), 0);
	ig_gguf_close(NULL);
}

static void files_that_are_there(void **state)
{
	struct ig_error err = { 0 };
	struct ig_gguf_writer *w, *other;
	char bytes[ALL_BYTES] = { 0 };

	/* Two write at once: the second that finishes finds the name taken. */
	w = begun(false);
	other = begun(false);
	assert_int_equal(ig_gguf_write(w, bytes, sizeof bytes, &err), 0);
	assert_int_equal(ig_gguf_write(other, bytes, sizeof bytes, &err), 0);
	assert_int_equal(ig_gguf_finish(w, &err), 0);
	assert_int_equal(ig_gguf_finish(other, &err), -EEXIST);
	ig_gguf_close(w);
	ig_gguf_close(other);

	assert_int_equal(ig_gguf_create(path, false, &w, &err), -EEXIST);
	assert_non_null(strstr(err.text, "there already"));
	w = begun(true);
	assert_int_equal(ig_gguf_write(w, bytes, sizeof bytes, &err), 0);
	assert_int_equal(ig_gguf_finish(w, &err), 0);
	ig_gguf_close(w);
	assert_int_equal(files(), 1);

	assert_int_equal(ig_gguf_create(dir, true, &w, &err), -EISDIR);
	assert_int_equal(ig_gguf_create("", true, &w, &err), -EINVAL);
	assert_int_equal(ig_gguf_create("/dev/null", true, &w, &err), -EINVAL);
	assert_int_equal(ig_gguf_create("/nowhere/at/all.gguf", false, &w, &err), -ENOENT);
	assert_non_null(strstr(err.text, "/nowhere/at/all.gguf"));
	snprintf(bytes, sizeof bytes, "%s/none/", dir);
	assert_int_equal(ig_gguf_create(bytes, false, &w, &err), -EINVAL);
}

static void tensors_that_no_file_can_have(void **state)
{
	static const int64_t many[] = { 32, 1, 1, 1, 1 }, none[] = { 32, 0 }, odd[] = { 33 };
	static const int64_t huge[] = { 1 << 20, INT64_MAX, 2 };
	struct ig_error err = { 0 };
	struct ig_gguf_writer *w;
	char name[66];

	assert_int_equal(ig_gguf_create(path, false, &w, &err), 0);
	memset(name, 'n', 65);
	name[65] = 0;
	assert_int_equal(ig_gguf_add_tensor(w, name, matrix, 2, IG_F32, &err), -EINVAL);
	assert_int_equal(ig_gguf_add_tensor(w, "", matrix, 2, IG_F32, &err), -EINVAL);
	assert_int_equal(ig_gguf_add_tensor(w, "a", many, 5, IG_F32, &err), -EINVAL);
	assert_int_equal(ig_gguf_add_tensor(w, "a", many, 0, IG_F32, &err), -EINVAL);
	assert_int_equal(ig_gguf_add_tensor(w, "a", none, 2, IG_F32, &err), -EINVAL);
	assert_int_equal(ig_gguf_add_tensor(w, "a", huge, 2, IG_F32, &err), -EINVAL);
	assert_int_equal(ig_gguf_add_tensor(w, "a", huge, 3, IG_F32, &err), -EINVAL);
	assert_int_equal(ig_gguf_add_tensor(w, "odd.weight", odd, 1, IG_Q4_0, &err), -EINVAL);
	assert_non_null(strstr(err.text, "odd.weight"));
	ig_gguf_close(w);
}

/* More than any disk has; then a limit on a file's size, which is hit in the middle. */
static void a_disk_that_is_full(void **state)
{
	static const int64_t large[] = { 1 << 30, 1 << 27 };
	struct rlimit before, small = { 4096, RLIM_INFINITY };
	static char bytes[32 * 1024];
	struct ig_error err = { 0 };
	struct ig_gguf_writer *w;
	int rc;

	assert_int_equal(ig_gguf_create(path, false, &w, &err), 0);
	assert_int_equal(ig_gguf_add_tensor(w, "large", large, 2, IG_F32, &err), 0);
	assert_int_equal(ig_gguf_begin(w, &err), -ENOSPC);
	assert_non_null(strstr(err.text, "MB left"));
	ig_gguf_close(w);
	assert_int_equal(files(), 0);

	assert_int_equal(ig_gguf_create(path, false, &w, &err), 0);
	assert_int_equal(ig_gguf_add_tensor(w, "x", (const int64_t[]){ 8192 }, 1, IG_F32, &err), 0);
	assert_int_equal(ig_gguf_begin(w, &err), 0);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	small.rlim_max = before.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	rc = ig_gguf_write(w, bytes, sizeof bytes, &err);
	setrlimit(RLIMIT_FSIZE, &before);
	assert_int_equal(rc, -EFBIG);
	assert_non_null(strstr(err.text, "can't write"));
	ig_gguf_close(w);
	assert_int_equal(files(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_written_is_read),
		cmocka_unit_test(nothing_is_left_without_a_finish),
		cmocka_unit_test(files_that_are_there),
		cmocka_unit_test(tensors_that_no_file_can_have),
		cmocka_unit_test(a_disk_that_is_full),
	};

	return cmocka_run_group_tests_name("model/gguf_write", tests, make_folder, remove_folder);
}
