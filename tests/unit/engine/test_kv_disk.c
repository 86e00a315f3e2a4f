/*
 * test_kv_disk.c: computed blocks that are saved to files and restored: after a restart, a change of models, a
 * preemption; beside others; of damaged files, without room, with a device that fails.  The fake device
 * knows the token and the position of each place in the cache, so a wrong block is a breach.
 */
#include "harness.h"

#include "fake_outside.h"

#include "base/json.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>

static struct ig_config config;
static char folder[64];
static const char *const models[] = { "good", "groups", "window" };
static const char *const only_good[] = { "good" };

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	return remove(path);
}

static void set_config(const char *const *names, size_t n)
{
	harness_config(&config, names, n);
	config.kvcache.disk = strdup(folder);
	config.kvcache.disk_size = 64 << 20;
}

static int setup(void **state)
{
	fake_reset();
	snprintf(folder, sizeof folder, "/tmp/ingot-kv-XXXXXX");
	assert_non_null(mkdtemp(folder));
	set_config(models, 3);
	config.kvcache.slab = 4 * SLAB_BYTES;
	fake.said_row_us = 10000; /* files are faster, however busy the machine is */
	return 0;
}

static int teardown(void **state)
{
	harness_abandon();
	harness_config_finish(&config);
	nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	return 0;
}

/* Whether the engine's description has this text. */
static bool says(struct ig_engine *e, const char *text)
{
	struct ig_strbuf b = { 0 };
	struct ig_json_writer w = { .out = &b };

	ig_engine_describe(e, &w);
	bool found = ig_strbuf_ok(&b) && strstr(b.data, text);
	ig_strbuf_finish(&b);
	return found;
}

/* An engine that knows what is in the folder. */
static struct ig_engine *engine(void)
{
	struct ig_engine *e = harness_engine(&config);

	atomic_store(&fake.n_restored, 0);
	wait_for(says(e, "\"ready\":true"));
	return e;
}

/* Ask, check the text, and return how many tokens came from the cache. */
static int32_t answer(struct ig_engine *e, const struct ask *a)
{
	static struct client c;
	static char want[65536];

	client_ask(&c, e, a);
	client_finish(&c);
	expected(a, want, sizeof want);
	assert_string_equal(c.text, want);
	return c.result.n_cached;
}

/* The files of blocks, by name; returns how many. */
static int files(char out[][160], int cap)
{
	int n = 0;

	for (int i = 0; i < 256; i++) {
		char above[80];
		snprintf(above, sizeof above, "%s/%02x", folder, i);
		DIR *d = opendir(above);
		const struct dirent *f;
		while (d && (f = readdir(d)))
			if (f->d_name[0] != '.' && n++ < cap)
				snprintf(out[n - 1], 160, "%.79s/%.70s", above, f->d_name);
		if (d)
			closedir(d);
	}
	return n;
}

static int n_files(void) { return files(NULL, 0); }

/* ---- what is restored ------------------------------------------------------------------------- */

static void test_after_a_restart(void **state)
{
	for (size_t i = 0; i < 3; i++) {
		struct ask a = { .model = models[i],
				 .prompt_seed = 3,
				 .n_prompt = 200,
				 .max_tokens = 30,
				 .ignore_end = true };
		struct ig_engine *e = engine();
		int before = n_files(), n_saved = counter(IG_COUNTER_KV_SAVED_TOKENS);
		assert_int_equal(answer(e, &a), 0);
		harness_close(e);
		/* 229 of the tokens were computed */
		assert_int_equal(n_files() - before, 229 / IG_BLOCK_TOKENS);
		/* of a window some may have been given twice, before they were written */
		assert_in_range(counter(IG_COUNTER_KV_SAVED_TOKENS) - n_saved, 224,
				i == 2 ? 2 * 224 : 224);

		/* the same prompt, and one that goes on with the answer */
		e = engine();
		assert_int_equal(answer(e, &a), 192);
		/* of the window only what is read */
		assert_in_range(fake.n_restored,
				12 + (i == 1 ? 12 :
				      i == 2 ? 2 :
					       0),
				12 + (i == 1 ? 12 :
				      i == 2 ? 4 :
					       0));
		harness_close(e);
		int32_t tokens[260];
		make_prompt(tokens, 200, 3);
		for (int n = 200; n < 230; n++)
			tokens[n] = fake_next(models[i], tokens, n, 0);
		make_prompt(tokens + 230, 30, 4);
		struct ask b = {
			.model = models[i], .prompt = tokens, .n_prompt = 260, .max_tokens = 10
		};
		e = engine();
		assert_in_range(answer(e, &b), 224, 229);
		assert_in_range(answer(e, &a), 192, 199); /* from memory */
		harness_close(e);
	}
	assert_in_range(counter(IG_COUNTER_KV_RESTORED_TOKENS), 3 * (192 + 224), 3 * (192 + 224));
}

/* ---- models with recurrent layers ----------------------------------------------------------------- */

/* The files of states, of both groups that the model has: by name. */
static int state_files(char out[][160], int cap)
{
	char names[80][160];
	int n = files(names, 80), n_states = 0;

	for (int i = 0; i < n && i < 80; i++)
		if (strstr(names[i], ".6.") && n_states++ < cap)
			memcpy(out[n_states - 1], names[i], sizeof names[i]);
	return n_states;
}

/* A prompt whose first message has 70 tokens, then n more of another seed, then what was said. */
static void write_talk(int32_t *tokens, int32_t n, unsigned seed)
{
	make_prompt(tokens, n, 3);
	tokens[69] = FAKE_END;
	make_prompt(tokens + 70, n - 70, seed);
}

static struct ig_engine *state_engine(void)
{
	static const char *const names[] = { "state" };

	harness_config_finish(&config);
	set_config(names, 1);
	return engine();
}

/* A conversation goes on behind its answer, before the end of its prompt where that is written in another
 * way, and others behind the first message; with the tokens that all of it computed would have. */
static void test_states(void **state)
{
	static int32_t tokens[300];
	struct ask a = { .model = "state",
			 .prompt = tokens,
			 .n_prompt = 200,
			 .max_tokens = 30,
			 .ignore_end = true };
	char names[4][160];
	struct ig_engine *e = state_engine();

	write_talk(tokens, 200, 1);
	assert_int_equal(answer(e, &a), 0);
	harness_close(e);
	/* 14 blocks; states after 64, 176 and 224 tokens */
	assert_int_equal(n_files(), 14 + 3);
	assert_int_equal(state_files(names, 4), 3);

	for (int32_t n = 200; n < 230; n++)
		tokens[n] = fake_next("state", tokens, n, 0);
	make_prompt(tokens + 230, 30, 4);
	a.n_prompt = 260;
	e = state_engine();
	assert_int_equal(answer(e, &a), 224);
	assert_int_equal(fake.n_restored, 14 + 6); /* a state has six parts */
	harness_close(e);

	write_talk(tokens, 200, 1);
	make_prompt(tokens + 195, 30, 5);
	a.n_prompt = 225;
	e = state_engine();
	assert_int_equal(answer(e, &a), 176);
	harness_close(e);

	write_talk(tokens, 200, 2);
	a.n_prompt = 200;
	e = state_engine();
	assert_int_equal(answer(e, &a), 64);
	assert_int_equal(answer(e, &a), 192); /* from memory */
	harness_close(e);
}

/* A state that is damaged, whose file is missing, or that the device does not write, is none. */
static void test_damaged_states(void **state)
{
	static int32_t tokens[200];
	struct ask a = { .model = "state", .prompt = tokens, .n_prompt = 200, .max_tokens = 2 };
	char names[4][160];
	struct ig_engine *e = state_engine();

	write_talk(tokens, 200, 1);
	answer(e, &a);
	harness_close(e);
	for (int i = 0; i < 6; i++) {
		/* states after 64, 176 and 192 tokens, the last of which the prompt needs */
		int n = state_files(names, 4), most = 0, depth;
		const char *last = NULL;
		assert_int_equal(n, 3);
		for (int k = 0; k < 3; k++) {
			assert_int_equal(sscanf(strrchr(names[k], '.'), ".%x", (unsigned *)&depth),
					 1);
			if (depth > most)
				last = names[k];
			most = depth > most ? depth : most;
		}
		assert_int_equal(most, 11);
		struct stat st;
		char byte;
		int fd = open(last, O_RDWR);
		assert_true(fd >= 0 && fstat(fd, &st) == 0);
		off_t at = i == 0 ? st.st_size - 1 : i == 1 ? 3 : 200;
		if (i < 3) {
			assert_int_equal(pread(fd, &byte, 1, at), 1);
			byte ^= 1;
			assert_int_equal(pwrite(fd, &byte, 1, at), 1);
		} else if (i == 3) {
			assert_int_equal(ftruncate(fd, st.st_size / 2), 0);
		} else if (i == 4) {
			assert_int_equal(unlink(last), 0);
		}
		close(fd);
		e = state_engine();
		if (i == 5)
			fake.fail_write_at = 15; /* the third part */
		/* without its file the one before is found */
		assert_int_equal(answer(e, &a), i == 4 ? 176 : 0);
		if (i < 4)
			assert_true(says(e, "\"damaged\":1"));
		harness_close(e); /* it has been written again */
	}
}

/* The files' limit: those of the oldest prompt go, its end first. */
static void test_limit(void **state)
{
	struct ask a = { .prompt_seed = 1, .n_prompt = 200, .max_tokens = 2 }, b = a, c = a;
	struct ig_engine *e;

	b.prompt_seed = 2;
	c.prompt_seed = 3;
	config.kvcache.disk_size = 30 * 4096; /* a page for each block; a prompt has 12 */
	e = engine();
	answer(e, &a);
	wait_for(n_files() == 12);
	answer(e, &b);
	wait_for(n_files() == 24);
	answer(e, &c);
	harness_close(e);
	assert_int_equal(n_files(), 30);
	e = engine();
	assert_int_equal(answer(e, &c), 192);
	assert_int_equal(answer(e, &b), 192);
	assert_int_equal(answer(e, &a), 96);
	harness_close(e);
}

/* Prompts of another key's holder are nobody's business. */
static void test_whose(void **state)
{
	struct ask a = { .prompt_seed = 1, .n_prompt = 100, .max_tokens = 2, .salt = 7 }, b = a;
	struct ig_engine *e = engine();

	answer(e, &a);
	harness_close(e);
	e = engine();
	b.salt = 8;
	assert_int_equal(answer(e, &b), 0);
	assert_int_equal(fake.n_restored, 0);
	assert_int_equal(answer(e, &a), 96);
	harness_close(e);
	/* with share: all prompts have no holder, so these are new ones */
	free(config.kvcache.share);
	config.kvcache.share = strdup("all");
	e = engine();
	assert_int_equal(answer(e, &a), 0);
	harness_close(e);
	e = engine();
	assert_int_equal(answer(e, &b), 96);
	harness_close(e);
}

/* Nothing of another model, another type of elements, or without the option. */
static void test_not_restored(void **state)
{
	struct ask a = { .model = "good", .prompt_seed = 1, .n_prompt = 100, .max_tokens = 2 },
		   b = a;
	struct ig_engine *e = engine();

	answer(e, &a);
	harness_close(e);
	e = engine();
	b.model = "groups";
	assert_int_equal(answer(e, &b), 0);
	harness_close(e);
	config.kvcache.prefix_cache = false;
	e = harness_engine(&config);
	assert_int_equal(answer(e, &a), 0);
	harness_close(e);
	config.kvcache.prefix_cache = true;
	free(config.kvcache.disk);
	config.kvcache.disk = strdup("");
	e = harness_engine(&config);
	assert_true(says(e, "\"disk\":null"));
	assert_int_equal(answer(e, &a), 0);
	harness_close(e);
	config.kvcache.disk[0] = 0;
	free(config.kvcache.disk);
	config.kvcache.disk = strdup(folder);
	free(config.kvcache.dtype);
	config.kvcache.dtype = strdup("f32");
	e = engine();
	assert_int_equal(answer(e, &a), 0);
	assert_int_equal(fake.n_restored, 0);
	harness_close(e);
}

/* ---- files that are not as they should be --------------------------------------------------------- */

static void test_damaged(void **state)
{
	struct ask a = { .prompt_seed = 1, .n_prompt = 200, .max_tokens = 2 };
	struct ig_engine *e = engine();
	char names[16][160];

	answer(e, &a);
	harness_close(e);
	assert_int_equal(files(names, 16), 12);
	for (int i = 0; i < 12; i++) {
		/* one of them, in one of four ways */
		struct stat st;
		int fd = open(names[i], O_RDWR), depth = 0;
		char byte;
		assert_true(fd >= 0 && fstat(fd, &st) == 0);
		assert_int_equal(sscanf(strrchr(names[i], '.'), ".%x", (unsigned *)&depth), 1);
		off_t at = i % 4 == 0 ? st.st_size - 1 : i % 4 == 1 ? 70 : 3;
		assert_int_equal(pread(fd, &byte, 1, at), 1);
		byte ^= 1;
		if (i % 4 == 3)
			assert_int_equal(ftruncate(fd, st.st_size / 2), 0);
		else
			assert_int_equal(pwrite(fd, &byte, 1, at), 1);
		close(fd);
		e = engine();
		assert_int_equal(answer(e, &a), depth * IG_BLOCK_TOKENS);
		assert_true(says(e, "\"damaged\":1"));
		harness_close(e); /* it has been written again */
		assert_int_equal(n_files(), 12);
	}
}

/* What is not from here is left alone. */
static void test_foreign_files(void **state)
{
	struct ask a = { .prompt_seed = 1, .n_prompt = 100, .max_tokens = 2 };
	static const char *const names[] = { "readme", "00/readme", "00/0123.1.1",
					     "00/00112233445566778899aabbccddeeff.1.1" };
	char path[160];
	struct ig_engine *e;

	snprintf(path, sizeof path, "%s/00", folder);
	assert_int_equal(mkdir(path, 0700), 0);
	for (size_t i = 0; i < 4; i++) {
		snprintf(path, sizeof path, "%s/%s", folder, names[i]);
		int fd = open(path, O_CREAT | O_WRONLY, 0600);
		assert_int_equal(write(fd, "hello", 5), 5);
		close(fd);
	}
	e = engine();
	answer(e, &a);
	harness_close(e);
	for (size_t i = 0; i < 4; i++) {
		snprintf(path, sizeof path, "%s/%s", folder, names[i]);
		assert_int_equal(access(path, F_OK), 0);
	}
}

/* A folder that can't be made or written is an error, if somebody has named it. */
static void test_folder(void **state)
{
	struct ig_engine_deps deps = { .config = &config,
				       .ledger = (struct ig_ledger *)&fake,
				       .metrics = (struct ig_metrics *)&fake };
	struct ig_engine *e = NULL;
	struct ig_error err = { 0 };

	free(config.kvcache.disk);
	config.kvcache.disk = strdup("/dev/null/kv");
	assert_int_not_equal(ig_engine_create(&deps, &e, &err), 0);
	assert_non_null(strstr(err.text, "/dev/null"));
	config.kvcache.disk_by_default = true;
	e = harness_engine(&config);
	assert_true(says(e, "\"disk\":null"));
	harness_close(e);
}

/* ---- beside others ----------------------------------------------------------------------------------- */

/* Several with one prompt: it is restored once. */
static void test_two_at_once(void **state)
{
	struct ask a = { .prompt_seed = 1, .n_prompt = 200, .max_tokens = 20 };
	static struct client c[4], stream;
	static char want[65536];
	struct ig_engine *e = engine();

	answer(e, &a);
	harness_close(e);
	e = engine();
	fake.delay_us = 300;
	client_ask(
		&stream, e,
		&(struct ask){
			.prompt_seed = 9, .n_prompt = 5, .max_tokens = 400, .ignore_end = true });
	for (int i = 0; i < 4; i++)
		client_ask(&c[i], e, &a);
	expected(&a, want, sizeof want);
	for (int i = 0; i < 4; i++) {
		client_finish(&c[i]);
		assert_string_equal(c[i].text, want);
		assert_in_range(c[i].result.n_cached, 192, 199);
	}
	assert_int_equal(fake.n_restored, 12);
	client_finish(&stream);
	assert_int_equal(stream.result.n_output, 400);
	harness_close(e);
}

/* One that comes at whatever point of another's restore: all of it is waited for. */
static void test_one_after_another(void **state)
{
	struct ask a = { .prompt_seed = 1, .n_prompt = 400, .max_tokens = 5 };
	static struct client c[2];
	struct ig_engine *e = engine();

	answer(e, &a);
	harness_close(e);
	for (int us = 0; us < 3000; us += 50) {
		e = engine();
		client_ask(&c[0], e, &a);
		usleep((useconds_t)us);
		client_ask(&c[1], e, &a);
		for (int i = 0; i < 2; i++) {
			client_finish(&c[i]);
			assert_in_range(c[i].result.n_cached, 384, 399);
		}
		assert_int_equal(fake.n_restored, 24);
		harness_close(e);
	}
}

static void test_cancelled(void **state)
{
	struct ask a = { .prompt_seed = 1, .n_prompt = 400, .max_tokens = 20 };
	static struct client c;
	struct ig_engine *e = engine();

	answer(e, &a);
	harness_close(e);
	for (int us = 0; us < 3000; us += 150) {
		e = engine();
		client_ask(&c, e, &a);
		usleep((useconds_t)us);
		ig_engine_cancel(e, c.gen, "client_gone");
		client_finish(&c);
		/* the last few may be computed while they are being read */
		assert_in_range(answer(e, &a), 336, 399);
		harness_close(e);
	}
}

/* ---- without room --------------------------------------------------------------------------------------- */

/* An arena for little more than one prompt: jobs hold nothing that others need. */
static void test_small_arena(void **state)
{
	struct ask a[3];
	struct ig_engine *e;

	harness_config_finish(&config);
	set_config(only_good, 1);
	config.kvcache.arena = 8 * SLAB_BYTES; /* 32 blocks */
	for (int i = 0; i < 3; i++)
		a[i] = (struct ask){ .prompt_seed = (unsigned)i + 1,
				     .n_prompt = 400,
				     .max_tokens = 60,
				     .ignore_end = true };
	e = engine();
	for (int i = 0; i < 6; i++)
		answer(e, &a[i % 3]);
	harness_close(e);
	e = engine();
	for (int i = 0; i < 3; i++) {
		static struct client c[3];
		static char want[65536];
		for (int k = 0; k < 3; k++)
			client_ask(&c[k], e, &a[k]);
		for (int k = 0; k < 3; k++) {
			client_finish(&c[k]);
			expected(&a[k], want, sizeof want);
			assert_string_equal(c[k].text, want);
		}
	}
	harness_close(e);
}

/* A sequence that must give its blocks to others finds them in files again. */
static void test_preempted(void **state)
{
	static struct client c[2];
	static char want[65536];
	struct ask a[2];
	struct ig_engine *e;

	harness_config_finish(&config);
	set_config(only_good, 1);
	config.kvcache.arena = 10 * SLAB_BYTES; /* 40 blocks: not for two of 27 */
	fake.delay_us = 100;
	for (int i = 0; i < 2; i++)
		a[i] = (struct ask){ .prompt_seed = (unsigned)i + 1,
				     .n_prompt = 230,
				     .max_tokens = 200,
				     .ignore_end = true };
	e = engine();
	for (int i = 0; i < 2; i++)
		client_ask(&c[i], e, &a[i]);
	for (int i = 0; i < 2; i++) {
		client_finish(&c[i]);
		expected(&a[i], want, sizeof want);
		assert_string_equal(c[i].text, want);
	}
	assert_true(counter(IG_COUNTER_PREEMPTIONS) > 0);
	harness_close(e);
}

static void test_device_fails(void **state)
{
	struct ask a = { .prompt_seed = 1, .n_prompt = 200, .max_tokens = 20 };
	struct ig_engine *e = engine();

	answer(e, &a);
	harness_close(e);
	e = engine();
	fake.fail_write_at = 6;
	assert_int_equal(answer(e, &a), 5 * IG_BLOCK_TOKENS);
	harness_close(e);
}

/* ---- what it costs --------------------------------------------------------------------------------------- */

/* Where files were slower than computing, they are not used, but for one of sixteen prompts. */
static void test_slower_than_computing(void **state)
{
	struct ask a = { .prompt_seed = 1, .n_prompt = 300, .max_tokens = 2 };
	char path[160], text[160];
	struct ig_engine *e = engine();
	int n_tried = 0;

	answer(e, &a);
	harness_close(e);
	snprintf(path, sizeof path, "%s/rates", folder);
	for (int i = 0; i < 20; i++) {
		/* its name, and then what the test says */
		int fd = open(path, O_RDWR);
		assert_true(fd >= 0);
		assert_int_equal(pread(fd, text, 32, 0), 32);
		snprintf(text + 32, sizeof text - 32, " %s\n",
			 i % 2 ? "100 1000000000" : "1000000000 100");
		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(pwrite(fd, text, strlen(text), 0), (int)strlen(text));
		close(fd);
		e = engine();
		int n = answer(e, &a);
		if (i % 2)
			assert_int_equal(n, 288);
		else
			assert_int_equal(n, 0);
		harness_close(e);
	}
	int fd = open(path, O_RDWR);
	assert_int_equal(pread(fd, text, 32, 0), 32);
	snprintf(text + 32, sizeof text - 32, " 1000000000 100\n");
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(pwrite(fd, text, strlen(text), 0), (int)strlen(text));
	close(fd);
	/* prompts that are in files, but not in memory */
	for (unsigned i = 0; i < 40; i++) {
		a.prompt_seed = 100 + i;
		e = i ? e : engine();
		answer(e, &a);
		wait_for(n_files() == 18 * ((int)i + 2)); /* none is given up for the next one */
	}
	harness_close(e);
	e = engine();
	for (unsigned i = 0; i < 15; i++) {
		a.prompt_seed = 100 + i;
		n_tried += answer(e, &a) > 0;
	}
	assert_int_equal(n_tried, 0);
	a.prompt_seed = 100 + 15;
	assert_int_equal(answer(e, &a), 288);
	harness_close(e);
}

/* Rows from outside have no name that a file could be found by: what is before them is saved and restored. */
static void test_rows_from_outside(void **state)
{
	static float rows[30][FAKE_OUTSIDE_WIDTH];
	const struct ig_span span = { .first = 100, .n = 30, .rows = rows[0] };
	static int32_t prompt[200];
	struct ask a = {
		.prompt = prompt, .n_prompt = 200, .max_tokens = 30, .spans = &span, .n_spans = 1
	};
	struct ig_engine *e;

	fake.takes_outside = true;
	make_prompt(prompt, 200, 3);
	for (int i = 0; i < 30; i++) {
		prompt[100 + i] = 1000 + i;
		for (int k = 0; k < FAKE_OUTSIDE_WIDTH; k++)
			rows[i][k] = (float)(int[]){ 1000 + i, i, 30, 100 + i }[k];
	}
	e = engine();
	assert_int_equal(answer(e, &a), 0);
	assert_int_equal(answer(e, &a), 199);
	harness_close(e);
	assert_int_equal(n_files(), 100 / IG_BLOCK_TOKENS);
	e = engine();
	assert_int_equal(answer(e, &a), 96);
	harness_close(e);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
		TEST(test_after_a_restart),
		TEST(test_states),
		TEST(test_rows_from_outside),
		TEST(test_damaged_states),
		TEST(test_limit),
		TEST(test_whose),
		TEST(test_not_restored),
		TEST(test_damaged),
		TEST(test_foreign_files),
		TEST(test_folder),
		TEST(test_two_at_once),
		TEST(test_one_after_another),
		TEST(test_cancelled),
		TEST(test_small_arena),
		TEST(test_preempted),
		TEST(test_device_fails),
		TEST(test_slower_than_computing),
	};

	if (argc > 1 && !strcmp(argv[1], "ahead"))
		harness_run_ahead = "on";
	return cmocka_run_group_tests_name("computed blocks on disk", tests, NULL, NULL);
}
