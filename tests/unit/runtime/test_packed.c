/* test_packed.c: copies of packed weights: whole ones are mapped, any other is a miss. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/cpu/packed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define N_BYTES ((uint64_t)(9 << 20) + 64 * 5) /* two pieces and a bit */
#define DATA ((off_t)64 << 10)

struct world {
	char folder[32], path[48];
	struct ig_packed_file file;
	struct ig_pool *pool;
	uint8_t *want; /* [N_BYTES] */
};

/* Memory as the driver has it. */
static uint8_t *memory_of(const struct world *w)
{
	uint8_t *p =
		mmap(NULL, N_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	memcpy(p, w->want, N_BYTES);
	return p;
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof *w);

	strcpy(w->folder, "/tmp/ingot-packed-XXXXXX");
	assert_non_null(mkdtemp(w->folder));
	snprintf(w->path, sizeof w->path, "%s/copy", w->folder);
	w->file = (struct ig_packed_file){ .path = w->path, .name = "a name" };
	w->want = malloc(N_BYTES);
	for (uint64_t i = 0; i < N_BYTES; i++)
		w->want[i] = (uint8_t)(i * 2654435761u >> 13);
	assert_int_equal(ig_pool_create(3, &w->pool), 0);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	unlink(w->path);
	assert_int_equal(rmdir(w->folder), 0); /* nothing else was left there */
	ig_pool_destroy(w->pool);
	free(w->want);
	free(w);
	return 0;
}

static void write_copy(struct world *w)
{
	struct ig_error err;
	uint8_t *p = memory_of(w);

	if (ig_packed_write(&w->file, p, N_BYTES, w->pool, &err))
		fail_msg("%s", err.text);
	assert_memory_equal(p, w->want, N_BYTES);
	munmap(p, N_BYTES);
}

static int map_copy(struct world *w, uint64_t n_bytes)
{
	struct ig_error err = { 0 };
	uint8_t *p = ig_packed_map(&w->file, n_bytes, w->pool, &err);

	if (!p) {
		assert_non_null(strstr(err.text, w->path));
		return err.code;
	}
	assert_memory_equal(p, w->want, n_bytes);
	munmap(p, n_bytes);
	return 0;
}

static void test_whole(void **state)
{
	struct world *w = *state;
	struct stat st;

	assert_int_equal(map_copy(w, N_BYTES), -ENOENT);
	write_copy(w);
	assert_int_equal(stat(w->path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0400);
	assert_int_equal(st.st_size, ig_packed_file_bytes(N_BYTES));
	assert_int_equal(map_copy(w, N_BYTES), 0);
	write_copy(w); /* over one that is there */
	assert_int_equal(map_copy(w, N_BYTES), 0);
}

/* What is mapped stays as it is when the file is replaced or removed. */
static void test_removed(void **state)
{
	struct world *w = *state;
	uint8_t *p;

	write_copy(w);
	p = ig_packed_map(&w->file, N_BYTES, w->pool, NULL);
	assert_non_null(p);
	w->want[0] ^= 1;
	write_copy(w);
	w->want[0] ^= 1;
	assert_memory_equal(p, w->want, N_BYTES);
	assert_int_equal(unlink(w->path), 0);
	assert_memory_equal(p, w->want, N_BYTES);
	munmap(p, N_BYTES);
}

static void flip(const struct world *w, off_t at)
{
	uint8_t byte;
	int fd;

	chmod(w->path, 0600);
	fd = open(w->path, O_RDWR);
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 16;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

static void test_damaged(void **state)
{
	struct world *w = *state;
	/* magic, bytes, piece, name, the end of the header, sums, and weights */
	const off_t at[] = { 0,
			     8,
			     16,
			     24,
			     39,
			     63,
			     64,
			     87,
			     DATA,
			     DATA + 4095,
			     DATA + (4 << 20),
			     DATA + (off_t)N_BYTES - 1 };

	for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
		write_copy(w);
		flip(w, at[i]);
		assert_int_equal(map_copy(w, N_BYTES), -EBADMSG);
		flip(w, at[i]);
		assert_int_equal(map_copy(w, N_BYTES), 0);
	}
}

static void test_not_a_copy(void **state)
{
	struct world *w = *state;
	char other[64];

	write_copy(w);
	assert_int_equal(map_copy(w, N_BYTES - 64), -EBADMSG); /* of a model of another size */
	w->file.name[0] = 'b';
	assert_int_equal(map_copy(w, N_BYTES), -EBADMSG);
	w->file.name[0] = 'a';
	chmod(w->path, 0600);
	for (off_t size = DATA + (off_t)N_BYTES - 1; size > 0; size /= 5) {
		assert_int_equal(truncate(w->path, size), 0);
		assert_int_equal(map_copy(w, N_BYTES), -EBADMSG);
	}
	assert_int_equal(truncate(w->path, 0), 0);
	assert_int_equal(map_copy(w, N_BYTES), -EBADMSG);
	assert_int_equal(truncate(w->path, DATA + (off_t)N_BYTES), 0); /* all zeros */
	assert_int_equal(map_copy(w, N_BYTES), -EBADMSG);
	write_copy(w);
	snprintf(other, sizeof other, "%s/other", w->folder);
	assert_int_equal(rename(w->path, other), 0);
	assert_int_equal(symlink(other, w->path), 0);
	assert_int_equal(map_copy(w, N_BYTES), -EBADMSG);
	write_copy(w); /* in place of the link, not of what it names */
	assert_int_equal(map_copy(w, N_BYTES), 0);
	assert_int_equal(unlink(w->path), 0);
	assert_int_equal(mkfifo(w->path, 0600), 0);
	assert_int_equal(map_copy(w, N_BYTES), -EBADMSG);
	assert_int_equal(unlink(w->path), 0);
	assert_int_equal(mkdir(w->path, 0700), 0);
	assert_int_equal(map_copy(w, N_BYTES), -EBADMSG);
	assert_int_equal(rmdir(w->path), 0);
	assert_int_equal(unlink(other), 0);
}

static void test_no_place(void **state)
{
	struct world *w = *state;
	struct ig_error err = { 0 };
	uint8_t *p = memory_of(w);

	w->file.path = "/dev/null/copy";
	assert_int_equal(ig_packed_write(&w->file, p, N_BYTES, w->pool, &err), -ENOTDIR);
	assert_string_equal(err.text, "/dev/null/copy: Not a directory");
	assert_memory_equal(p, w->want, N_BYTES);
	p[0] ^= 1; /* it is still memory */
	munmap(p, N_BYTES);
	/* a folder in its place */
	assert_int_equal(mkdir(w->path, 0700), 0);
	w->file.path = w->path;
	p = memory_of(w);
	assert_true(ig_packed_write(&w->file, p, N_BYTES, w->pool, &err) < 0);
	assert_memory_equal(p, w->want, N_BYTES);
	p[0] ^= 1;
	munmap(p, N_BYTES);
	assert_int_equal(rmdir(w->path), 0);
}

/* Every bit counts. */
static void test_sum(void **state)
{
	uint8_t data[256] = { 1, 2, 3 };
	const uint64_t sum = ig_packed_sum(data, sizeof data);

	for (size_t i = 0; i < 8 * sizeof data; i++) {
		data[i / 8] ^= (uint8_t)(1u << i % 8);
		assert_true(ig_packed_sum(data, sizeof data) != sum);
		data[i / 8] ^= (uint8_t)(1u << i % 8);
	}
	assert_true(ig_packed_sum(data, 192) != sum);
	memset(data, 0, sizeof data);
	assert_true(ig_packed_sum(data, 64) != ig_packed_sum(data, 128));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_whole, setup, teardown),
		cmocka_unit_test_setup_teardown(test_removed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
		cmocka_unit_test_setup_teardown(test_not_a_copy, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_place, setup, teardown),
		cmocka_unit_test(test_sum),
	};
	return cmocka_run_group_tests_name("packed", tests, NULL, NULL);
}
