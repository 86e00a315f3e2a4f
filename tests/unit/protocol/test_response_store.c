/*
 * test_response_store.c: finished responses: found, continued, forked, listed, dropped; the bounds
 * on their number and bytes hold, whatever holds on to what.
 */
#include "daemon/protocol/responses/response_store.c" /* its counts are nobody else's to read */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_line),  cmocka_unit_test(test_whose),
		cmocka_unit_test(test_lanes), cmocka_unit_test(test_lane_forks),
		cmocka_unit_test(test_count), cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_many),
	};
	return cmocka_run_group_tests_name("kept responses", tests, NULL, NULL);
}
