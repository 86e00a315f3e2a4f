/*
 * test_kv_faults.c: computed blocks in files, while each allocation and each call of the file system
 * fails once: whatever it was, every request has its answer, and what lies in the folder afterwards is
 * right or left out.
 */
#include "harness.h"

#include "base/json.h"
#include "tests/unit/failing_disk.h"

#include <ftw.h>

#if defined(WRAP_MALLOC) && defined(WRAP_DISK)

static struct ig_config config;
static char folder[64];
static bool begun;
static const char *kind; /* of the model */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	return remove(path);
}

static void begin(void)
{
	bool is_good = !strcmp(kind, "good");

	fake_reset();
	begun = true;
	/* thousands of files: in memory where there is a file system for that, in two thirds of the time */
	snprintf(folder, sizeof folder, "%s/ingot-kv-XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	assert_non_null(mkdtemp(folder));
	harness_config(&config, &kind, 1);
	config.kvcache.disk = strdup(folder);
	/* one block less than both prompts have; of others all */
	config.kvcache.disk_size = is_good ? 9 * 4096 : 1 << 20;
	config.kvcache.slab = 4 * SLAB_BYTES;
	fake.said_row_us = 10000; /* files are faster, however busy the machine is */
}

static void end(void)
{
	if (!begun)
		return;
	begun = false;
	harness_abandon();
	harness_config_finish(&config);
	nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int teardown(void **state)
{
	failing_disk_failed();
	fake.fail_engine_at = fake.fail_any_at = 0;
	end();
	return 0;
}

static bool is_ready(struct ig_engine *e)
{
	struct ig_strbuf b = { 0 };
	struct ig_json_writer w = { .out = &b };

	ig_engine_describe(e, &w);
	bool found = ig_strbuf_ok(&b) && strstr(b.data, "\"ready\":true");
	ig_strbuf_finish(&b);
	return found;
}

/* Two prompts' answers, which must be right; without memory a request may fail instead.  Returns how many
 * tokens came from the cache. */
static int32_t answers(struct ig_engine *e, bool may_fail)
{
	static struct client c;
	static char want[65536];
	int32_t n = 0;

	for (unsigned i = 0; i < 2; i++) {
		struct ask a = {
			.model = kind, .prompt_seed = i + 1, .n_prompt = 76, .max_tokens = 8
		};
		struct ig_error err = { 0 };
		int rc = client_try(&c, e, &a, &err);
		if (rc < 0) {
			assert_true(may_fail && rc == -ENOMEM);
			continue;
		}
		client_finish(&c);
		if (c.result.finish == IG_FINISH_ERROR) {
			assert_true(may_fail);
			assert_non_null(strstr(c.result.error.text, "memory"));
			continue;
		}
		expected(&a, want, sizeof want);
		assert_string_equal(c.text, want);
		n += c.result.n_cached;
	}
	return n;
}

/* An engine made while files fail: with the folder, or not at all, and then it says what failed. */
static bool reopen(struct ig_engine **e, int code)
{
	struct ig_error err = { 0 };
	int rc = harness_try_engine(&config, e, &err);

	if (rc) {
		assert_int_equal(rc, -code);
		assert_non_null(strstr(err.text, strerror(code)));
		return false;
	}
	wait_for(is_ready(*e));
	return true;
}

/* An engine that saves, one that restores, and one without a fault, which finds what these have left. */
static void test_disk(void **state)
{
	static const int codes[] = { EIO, ENOSPC, EACCES, EMFILE };
	int n_found[2] = { 0 };

	for (int all = 0; all < 2; all++)
		for (long n = 0, failed = 1; failed; n += n < 60 ? 1 : 7) { /* later ones repeat */
			struct ig_engine *e;
			begin();
			e = harness_engine(&config);
			wait_for(is_ready(e));
			failing_disk_at(n, codes[n % 4], all);
			answers(e, false);
			harness_close(e);
			if (!reopen(&e, codes[n % 4])) {
				failed = failing_disk_failed();
			} else {
				answers(e, false);
				failed = failing_disk_failed();
				answers(e, false);
				harness_close(e);
			}
			e = harness_engine(&config);
			wait_for(is_ready(e));
			n_found[all] += answers(e, false) > 0;
			harness_close(e);
			end();
		}
	/* many calls could fail, and most left blocks that the next engine found */
	assert_true(n_found[0] > 40 && n_found[1] > 40);
}

/* Each allocation of the engine's thread, and each of any but the test's own. */
static void test_memory(void **state)
{
	fake_spare_here(true);
	for (int any = 0; any < 2; any++) {
		atomic_long *at = any ? &fake.fail_any_at : &fake.fail_engine_at;
		long n;
		for (n = 1;; n++) {
			struct ig_engine *e;
			bool failed;
			begin();
			e = harness_engine(&config);
			wait_for(is_ready(e));
			answers(e, false);
			harness_close(e);
			e = harness_engine(&config);
			wait_for(is_ready(e));
			*at = n;
			answers(e, true);
			failed = !*at;
			*at = 0;
			answers(e, false);
			harness_close(e);
			end();
			if (!failed)
				break;
		}
		assert_true(n > 10);
	}
	fake_spare_here(false);
}

/* With an argument: the same with a model of that kind: "state", of which copies of states are saved and restored
 * with the blocks before them, or "window", whose blocks are saved before they leave it. */
int main(int argc, char **argv)
{
	char name[64];

	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_disk, teardown),
		cmocka_unit_test_teardown(test_memory, teardown),
	};

	kind = argc > 1 ? argv[1] : "good";
	snprintf(name, sizeof name, "faults of computed blocks on disk, %s", kind);
	return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

#else

int main(void)
{
	printf("1..0 # SKIP this linker can't put functions in the place of others\n");
	return 0;
}

#endif
