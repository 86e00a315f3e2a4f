/*
 * test_response_store.c: finished responses: found, continued, forked, listed, dropped; the bounds
 * on their number and bytes hold, whatever holds on to what.
 */
#include "daemon/protocol/responses/response_store.c" /* its counts are nobody else's to read */

#include "store/database.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MANY 1000000
#define MAX_BYTES (64 << 20)
#define ME 7
#define YOU 8

static json_t *list_of(const char *text)
{
	json_t *v = text ? json_loads(text, 0, NULL) : NULL;

	assert_true(!text || v);
	return v;
}

/* Keep one whose texts are its id; size: bytes of its message. */
static int add(struct ig_response_store *s, const char *id, const char *previous,
	       const void *connection, const char *lane, size_t size)
{
	char *filler = calloc(1, size + 1);
	struct ig_stored_response_spec spec = { .id = id,
						.owner = ME,
						.stored = !lane,
						.connection = connection,
						.lane = lane,
						.previous_id = previous,
						.text = lane ? NULL : id };

	memset(filler, 'x', size);
	spec.messages = json_pack("[{s:s, s:s+}]", "role", "user", "content", id, filler);
	spec.output_messages = json_pack("[{s:s, s:s}]", "role", "assistant", "content", id);
	spec.input = json_pack("[{s:s}]", "in", id);
	spec.output = json_pack("[{s:s}]", "out", id);
	spec.history = previous ? list_of("[{\"role\":\"user\",\"content\":\"history\"}]") : NULL;
	int rc = ig_response_store_add(s, &spec);
	/* the store has references of its own */
	json_decref(spec.messages);
	json_decref(spec.output_messages);
	json_decref(spec.input);
	json_decref(spec.output);
	json_decref(spec.history);
	free(filler);
	return rc;
}

/* "a,b,c": the texts of a list, by one of these members. */
static void expect_texts(json_t *list, const char *want)
{
	static const char *const keys[] = { "content", "in", "out" };
	char text[400] = "";
	size_t i;
	json_t *v;

	assert_non_null(list);
	json_array_foreach(list, i, v) for (size_t k = 0; k < 3;
					    k++) if (json_object_get(v, keys[k]))
		snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", *text ? "," : "",
			 json_string_value(json_object_get(v, keys[k])));
	assert_string_equal(text, want);
	json_decref(list);
}

static void test_line(void **state)
{
	struct ig_response_store *s = ig_response_store_create(MANY, 1, MAX_BYTES);

	assert_int_equal(add(s, "a", NULL, NULL, NULL, 0), 0);
	assert_int_equal(add(s, "b", "a", NULL, NULL, 0), 0);
	/* two that continue one, and a third behind one of them */
	assert_int_equal(add(s, "c1", "b", NULL, NULL, 0), 0);
	assert_int_equal(add(s, "c2", "b", NULL, NULL, 0), 0);
	assert_int_equal(add(s, "d", "c1", NULL, NULL, 0), 0);
	struct ig_stored_response *d = ig_response_store_find(s, "d", ME, NULL),
				  *c2 = ig_response_store_find(s, "c2", ME, NULL);
	expect_texts(ig_stored_response_messages(d), "a,a,b,b,c1,c1,d,d");
	expect_texts(ig_stored_response_messages(c2), "a,a,b,b,c2,c2");
	expect_texts(ig_stored_response_input(d), "a,a,b,b,c1,c1,d");
	expect_texts(ig_stored_response_input(ig_response_store_find(s, "a", ME, NULL)), "a");
	assert_string_equal(ig_stored_response_text(d), "d");
	/* what forks share is the same values, and nobody can grow another's list */
	json_t *x = ig_stored_response_messages(d), *y = ig_stored_response_messages(c2);
	assert_ptr_equal(json_array_get(x, 2), json_array_get(y, 2));
	json_array_append_new(x, json_null());
	assert_int_equal(json_array_size(y), 6);
	json_decref(x);
	json_decref(y);
	expect_texts(ig_stored_response_messages(c2), "a,a,b,b,c2,c2");
	/* a parent is dropped, its children are not */
	uint64_t before = s->bytes;
	ig_response_store_remove(s, ig_response_store_find(s, "b", ME, NULL));
	assert_null(ig_response_store_find(s, "b", ME, NULL));
	assert_int_equal(s->count, 4);
	assert_true(s->bytes < before && before - s->bytes < 10); /* its text */
	expect_texts(ig_stored_response_messages(ig_response_store_find(s, "d", ME, NULL)),
		     "a,a,b,b,c1,c1,d,d");
	/* and one that was to be continued when it went: its history stands in */
	assert_int_equal(add(s, "e", "b", NULL, NULL, 0), 0);
	expect_texts(ig_stored_response_messages(ig_response_store_find(s, "e", ME, NULL)),
		     "history,e,e");
	/* its parents are freed with the last child */
	static const char *const rest[] = { "a", "c1", "c2", "d", "e" };
	for (size_t i = 0; i < 5; i++)
		ig_response_store_remove(s, ig_response_store_find(s, rest[i], ME, NULL));
	assert_int_equal(s->count, 0);
	assert_int_equal(s->bytes, 0);
	ig_response_store_destroy(s);
}

static void test_whose(void **state)
{
	struct ig_response_store *s = ig_response_store_create(MANY, 1, MAX_BYTES);
	int one = 1, other = 2; /* connections are known by where they are */

	add(s, "a", NULL, NULL, NULL, 0);
	add(s, "b", NULL, &one, "", 0);
	assert_non_null(ig_response_store_find(s, "a", ME, &other));
	assert_null(ig_response_store_find(s, "a", YOU, NULL));
	assert_null(ig_response_store_find(s, "a", 0, NULL));
	assert_null(ig_response_store_find(s, "ab", ME, NULL));
	/* a connection's are its own, and are not to be fetched */
	assert_non_null(ig_response_store_find(s, "b", ME, &one));
	assert_null(ig_response_store_find(s, "b", ME, &other));
	assert_null(ig_response_store_find(s, "b", ME, NULL));
	assert_null(ig_response_store_find(s, "b", YOU, &one));
	assert_null(ig_response_store_find_stored(s, "b", ME));
	assert_non_null(ig_response_store_find_stored(s, "a", ME));
	assert_string_equal(ig_stored_response_text(ig_response_store_find(s, "b", ME, &one)), "");
	/* neither stored nor anybody's: nothing to do */
	struct ig_stored_response_spec spec = { .id = "c", .owner = ME };
	assert_int_equal(ig_response_store_add(s, &spec), 0);
	assert_int_equal(s->count, 2);
	ig_response_store_destroy(s);
}

static void test_lanes(void **state)
{
	struct ig_response_store *s = ig_response_store_create(MANY, 1, MAX_BYTES);
	int one = 1, other = 2; /* connections are known by where they are */

	add(s, "a1", NULL, &one, "", 0);
	add(s, "b1", NULL, &one, "b", 0);
	add(s, "x", NULL, &other, "", 0);
	/* each lane has its latest */
	add(s, "a2", "a1", &one, "", 0);
	assert_null(ig_response_store_find(s, "a1", ME, &one));
	expect_texts(ig_stored_response_messages(ig_response_store_find(s, "a2", ME, &one)),
		     "a1,a1,a2,a2");
	assert_non_null(ig_response_store_find(s, "b1", ME, &one));
	/* one that is stored counts for no lane */
	struct ig_stored_response_spec spec = { .id = "a3",
						.owner = ME,
						.stored = true,
						.connection = &one,
						.lane = "",
						.previous_id = "a2",
						.text = "t" };
	assert_int_equal(ig_response_store_add(s, &spec), 0);
	assert_non_null(ig_response_store_find(s, "a2", ME, &one));
	expect_texts(ig_stored_response_messages(ig_response_store_find(s, "a3", ME, NULL)),
		     "a1,a1,a2,a2");
	add(s, "a4", "a3", &one, "", 0);
	assert_null(ig_response_store_find(s, "a2", ME, &one));
	assert_non_null(ig_response_store_find(s, "a3", ME, &other));
	assert_int_equal(s->count, 4);
	/* only the lane's own latest is dropped */
	ig_response_store_remove_lane(s, &one, "b", "a4");
	ig_response_store_remove_lane(s, &other, "", "a4");
	ig_response_store_remove_lane(s, &one, "", "a3");
	ig_response_store_remove_lane(s, NULL, "", "a3");
	assert_int_equal(s->count, 4);
	ig_response_store_remove_lane(s, &one, "", "a4");
	assert_null(ig_response_store_find(s, "a4", ME, &one));
	ig_response_store_remove_lane(s, &one, NULL, NULL);
	assert_null(ig_response_store_find(s, "b1", ME, &one));
	assert_non_null(ig_response_store_find(s, "x", ME, &other));
	assert_int_equal(s->count, 2);
	ig_response_store_destroy(s);
}

/* Several of each lane, so that they can be forked. */
static void test_lane_forks(void **state)
{
	struct ig_response_store *s = ig_response_store_create(MANY, 3, MAX_BYTES);
	int one = 1;

	add(s, "b1", NULL, &one, "b", 0);
	add(s, "a1", NULL, &one, "", 0);
	add(s, "a2", "a1", &one, "", 0);
	add(s, "a3", "a1", &one, "", 0);
	expect_texts(ig_stored_response_messages(ig_response_store_find(s, "a3", ME, &one)),
		     "a1,a1,a3,a3");
	add(s, "a4", "a2", &one, "", 0);
	assert_null(ig_response_store_find(s, "a1", ME, &one));
	assert_non_null(ig_response_store_find(s, "a2", ME, &one));
	assert_non_null(ig_response_store_find(s, "b1", ME, &one));
	/* a smaller limit counts from a lane's next response on */
	ig_response_store_limit(s, MANY, 1, MAX_BYTES);
	assert_non_null(ig_response_store_find(s, "a3", ME, &one));
	add(s, "a5", "a3", &one, "", 0);
	assert_null(ig_response_store_find(s, "a4", ME, &one));
	expect_texts(ig_stored_response_messages(ig_response_store_find(s, "a5", ME, &one)),
		     "a1,a1,a3,a3,a5,a5");
	assert_int_equal(s->count, 2);
	ig_response_store_destroy(s);
}

static void test_count(void **state)
{
	struct ig_response_store *s = ig_response_store_create(3, 1, MAX_BYTES);

	add(s, "a", NULL, NULL, NULL, 0);
	add(s, "b", NULL, NULL, NULL, 0);
	add(s, "c", NULL, NULL, NULL, 0);
	assert_non_null(ig_response_store_find(s, "a", ME, NULL)); /* used: b is the oldest now */
	add(s, "d", NULL, NULL, NULL, 0);
	assert_int_equal(s->count, 3);
	assert_null(ig_response_store_find(s, "b", ME, NULL));
	assert_non_null(ig_response_store_find(s, "c", ME, NULL));
	assert_non_null(ig_response_store_find(s, "d", ME, NULL));
	assert_null(ig_response_store_find(s, "a", YOU, NULL)); /* that was no use of it */
	ig_response_store_limit(s, 2, 1, MAX_BYTES);
	assert_null(ig_response_store_find(s, "a", ME, NULL));
	assert_int_equal(s->count, 2);
	ig_response_store_limit(s, 0, 1, MAX_BYTES);
	assert_int_equal(s->count, 0);
	assert_int_equal(add(s, "e", NULL, NULL, NULL, 0), -ENOSPC);
	assert_int_equal(s->bytes, 0);
	ig_response_store_destroy(s);
}

static void test_bytes(void **state)
{
	struct ig_response_store *s = ig_response_store_create(MANY, 1, 100000);
	char id[32], previous[32];

	/* a line of which only the last is of use holds all of it, and that counts */
	for (int i = 0; i < 50; i++) {
		snprintf(id, sizeof id, "r%d", i);
		snprintf(previous, sizeof previous, "r%d", i - 1);
		assert_int_equal(add(s, id, i ? previous : NULL, NULL, NULL, 1000), 0);
		assert_true(s->bytes <= 100000);
		struct ig_stored_response *k = ig_response_store_find(s, previous, ME, NULL);
		if (k)
			ig_response_store_remove(s, k);
	}
	assert_int_equal(s->count, 1);
	assert_true(s->bytes > 50000);
	/* something large: the whole line is evicted */
	assert_int_equal(add(s, "large", NULL, NULL, NULL, 90000), 0);
	assert_null(ig_response_store_find(s, "r49", ME, NULL));
	assert_true(s->bytes > 90000 && s->bytes <= 100000);
	assert_int_equal(add(s, "larger", NULL, NULL, NULL, 100000), -ENOSPC);
	assert_non_null(ig_response_store_find(s, "large", ME, NULL));
	/* many small ones: as many as fit */
	for (int i = 0; i < 1000; i++) {
		snprintf(id, sizeof id, "s%d", i);
		assert_int_equal(add(s, id, NULL, NULL, NULL, 10), 0);
		assert_true(s->bytes <= 100000);
	}
	assert_true(s->count > 20 && s->count < 200);
	assert_non_null(ig_response_store_find(s, "s999", ME, NULL));
	assert_null(ig_response_store_find(s, "s0", ME, NULL));
	ig_response_store_limit(s, MANY, 1, 1);
	assert_int_equal(s->bytes, 0);
	ig_response_store_destroy(s);
}

static void test_many(void **state)
{
	struct ig_response_store *s = ig_response_store_create(MANY, 1, MAX_BYTES);
	char id[32];

	for (int i = 0; i < 5000; i++) {
		snprintf(id, sizeof id, "r%d", i);
		assert_int_equal(add(s, id, NULL, NULL, NULL, 0), 0);
	}
	for (int i = 0; i < 5000; i += 2) {
		snprintf(id, sizeof id, "r%d", i);
		ig_response_store_remove(s, ig_response_store_find(s, id, ME, NULL));
	}
	for (int i = 0; i < 5000; i++) {
		snprintf(id, sizeof id, "r%d", i);
		assert_int_equal(!ig_response_store_find(s, id, ME, NULL), i % 2 == 0);
	}
	/* a long line is freed without a deep stack */
	for (int i = 0; i < 20000; i++) {
		char previous[32];
		snprintf(id, sizeof id, "l%d", i);
		snprintf(previous, sizeof previous, "l%d", i - 1);
		assert_int_equal(add(s, id, i ? previous : NULL, NULL, NULL, 0), 0);
	}
	ig_response_store_destroy(s);
	ig_response_store_destroy(NULL);
}

/* ---- in a file ------------------------------------------------------------------------------ */

static char path[64];

static struct ig_response_file *open_file(void)
{
	struct ig_response_file_options o = { .path = path };
	struct ig_response_file *f = NULL;
	struct ig_error err = { 0 };

	if (ig_response_file_open(&o, &f, &err))
		fail_msg("%s", err.text);
	return f;
}

static struct ig_response_store *begin(struct ig_response_file **f, uint32_t max_count)
{
	struct ig_response_store *s = ig_response_store_create(max_count, 3, MAX_BYTES);
	struct ig_error err = { 0 };

	*f = open_file();
	assert_int_equal(ig_response_store_keep(s, *f, &err), 0);
	return s;
}

static struct ig_response_store *restart(struct ig_response_store *s, struct ig_response_file **f,
					 uint32_t max_count)
{
	ig_response_store_destroy(s);
	ig_response_file_close(*f);
	return begin(f, max_count);
}

static void end(struct ig_response_store *s, struct ig_response_file *f)
{
	ig_response_store_destroy(s);
	ig_response_file_close(f);
	unlink(path);
}

static void expect_line(struct ig_response_store *s, const char *id, const char *messages,
			const char *input)
{
	struct ig_stored_response *k = ig_response_store_find_stored(s, id, ME);

	assert_non_null(k);
	expect_texts(ig_stored_response_messages(k), messages);
	expect_texts(ig_stored_response_input(k), input);
	assert_string_equal(ig_stored_response_text(k), id);
}

/* A number that SQL finds in the file. */
static int64_t number(const char *sql)
{
	sqlite3 *db = NULL;
	int64_t n = -1;

	assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
	assert_int_equal(ig_database_number(db, sql, &n), SQLITE_OK);
	sqlite3_close(db);
	return n;
}

static void test_restart(void **state)
{
	struct ig_response_file *f;
	struct ig_response_store *s = begin(&f, MANY);

	add(s, "a", NULL, NULL, NULL, 0);
	add(s, "b", "a", NULL, NULL, 0);
	add(s, "c1", "b", NULL, NULL, 0);
	add(s, "c2", "b", NULL, NULL, 0);
	uint64_t bytes = s->bytes;
	for (int i = 0; i < 3; i++) {
		s = restart(s, &f, MANY);
		assert_int_equal(s->count, 4);
		assert_int_equal(s->bytes, bytes);
		expect_line(s, "a", "a,a", "a");
		expect_line(s, "c1", "a,a,b,b,c1,c1", "a,a,b,b,c1");
		expect_line(s, "c2", "a,a,b,b,c2,c2", "a,a,b,b,c2");
		assert_null(ig_response_store_find_stored(s, "c2", YOU));
	}
	/* it goes on as if there had been no restart, and parents remain shared */
	add(s, "d", "c1", NULL, NULL, 0);
	struct ig_response_store_figures figures = ig_response_store_figures(s);
	assert_int_equal(figures.count, 5);
	assert_true(figures.persist && !figures.failure[0]);
	s = restart(s, &f, MANY);
	expect_line(s, "d", "a,a,b,b,c1,c1,d,d", "a,a,b,b,c1,c1,d");
	end(s, f);
}

/* What a connection's own responses say is there with those that continue them. */
static void test_behind_a_lane(void **state)
{
	struct ig_response_file *f;
	struct ig_response_store *s = begin(&f, MANY);
	int one = 1;

	add(s, "a", NULL, NULL, NULL, 0);
	add(s, "l1", "a", &one, "", 0);
	add(s, "l2", "l1", &one, "", 0);
	struct ig_stored_response_spec spec = { .id = "b",
						.owner = ME,
						.stored = true,
						.connection = &one,
						.lane = "",
						.previous_id = "l2",
						.text = "b" };
	spec.input = json_pack("[{s:s}]", "in", "b");
	assert_int_equal(ig_response_store_add(s, &spec), 0);
	json_decref(spec.input);
	add(s, "l3", NULL, &one, "", 0);
	s = restart(s, &f, MANY);
	assert_int_equal(s->count, 2);
	expect_line(s, "b", "a,a,l1,l1,l2,l2", "a,a,l1,l1,l2,l2,b");
	end(s, f);
}

static void test_deleted(void **state)
{
	struct ig_response_file *f;
	struct ig_response_store *s = begin(&f, MANY);

	add(s, "a", NULL, NULL, NULL, 0);
	add(s, "b", "a", NULL, NULL, 0);
	add(s, "c", "b", NULL, NULL, 0);
	add(s, "x", NULL, NULL, NULL, 0);
	ig_response_store_remove(s, ig_response_store_find(s, "b", ME, NULL));
	ig_response_store_remove(s, ig_response_store_find(s, "x", ME, NULL));
	s = restart(s, &f, MANY);
	assert_null(ig_response_store_find(s, "b", ME, NULL));
	assert_null(ig_response_store_find(s, "x", ME, NULL));
	assert_int_equal(s->count, 2);
	expect_line(s, "c", "a,a,b,b,c,c", "a,a,b,b,c");
	assert_int_equal(number("SELECT count(*) FROM responses"), 3);
	/* with the last that needs them they are gone */
	ig_response_store_remove(s, ig_response_store_find(s, "c", ME, NULL));
	ig_response_store_remove(s, ig_response_store_find(s, "a", ME, NULL));
	assert_int_equal(s->bytes, 0);
	s = restart(s, &f, MANY);
	assert_int_equal(s->count, 0);
	assert_int_equal(number("SELECT count(*) FROM responses"), 0);
	end(s, f);
}

static void test_bounds_in_file(void **state)
{
	struct ig_response_file *f;
	struct ig_response_store *s = begin(&f, 3);
	char id[16];

	for (int i = 0; i < 20; i++) {
		snprintf(id, sizeof id, "r%d", i);
		add(s, id, NULL, NULL, NULL, 0);
	}
	s = restart(s, &f, 3);
	assert_int_equal(s->count, 3);
	assert_int_equal(number("SELECT count(*) FROM responses"), 3);
	/* a smaller limit: the latest stay */
	s = restart(s, &f, 1);
	assert_int_equal(s->count, 1);
	expect_line(s, "r19", "r19,r19", "r19");
	s = restart(s, &f, 0);
	assert_int_equal(s->count, 0);
	s = restart(s, &f, MANY);
	assert_int_equal(s->count, 0);
	end(s, f);
}

/* Two daemons, while one hands over to the other, write one file. */
static void test_read_again(void **state)
{
	struct ig_response_file *f;
	struct ig_response_store *s = begin(&f, MANY);
	struct ig_error err = { 0 };

	add(s, "a", NULL, NULL, NULL, 0);
	s = restart(s, &f, MANY);
	sqlite3 *db = NULL;
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	static const char sql[] =
		"INSERT INTO responses (id, parent, owner, listed, messages, input, output, text)"
		" SELECT 'b', 'a', owner, 1, messages, input, output, 'b' FROM responses;"
		"INSERT INTO responses (id, parent, owner, listed, messages, input, output, text)"
		" SELECT 'lost', 'nobody', owner, 1, messages, input, output, '' FROM responses"
		" WHERE id = 'a';"
		"INSERT INTO responses (id, parent, owner, listed, messages, input, output, text)"
		" SELECT 'bad', NULL, owner, 1, '{', input, output, '' FROM responses"
		" WHERE id = 'a';"
		"INSERT INTO responses (id, parent, owner, listed, messages, input, output, text)"
		" SELECT 'odd', NULL, owner, 1, '[1]', input, output, '' FROM responses"
		" WHERE id = 'a';";
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
	add(s, "own", "a", NULL, NULL, 0);
	assert_int_equal(ig_response_store_read(s, &err), 0);
	assert_int_equal(s->count, 3);
	expect_line(s, "b", "a,a,a,a", "a,a,a");
	expect_line(s, "own", "a,a,own,own", "a,a,own");
	s = restart(s, &f, MANY);
	assert_int_equal(s->count, 3);
	assert_int_equal(number("SELECT count(*) FROM responses"), 3); /* not what can't be used */
	end(s, f);
}

static int make_path(void **state)
{
	char dir[] = "/tmp/ingot-responses-XXXXXX";

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/r.db", dir);
	return 0;
}

static int remove_path(void **state)
{
	static const char *const names[] = { "r.db", "r.db.lock", "r.db-wal", "r.db-shm", "" };
	char *slash = strrchr(path, '/');

	for (size_t i = 0; i < 5; i++) {
		snprintf(slash, (size_t)(path + sizeof path - slash), "%s%s", *names[i] ? "/" : "",
			 names[i]);
		remove(path);
	}
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_line),	       cmocka_unit_test(test_whose),
		cmocka_unit_test(test_lanes),	       cmocka_unit_test(test_lane_forks),
		cmocka_unit_test(test_count),	       cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_many),	       cmocka_unit_test(test_restart),
		cmocka_unit_test(test_behind_a_lane),  cmocka_unit_test(test_deleted),
		cmocka_unit_test(test_bounds_in_file), cmocka_unit_test(test_read_again),
	};
	return cmocka_run_group_tests_name("kept responses", tests, make_path, remove_path);
}
