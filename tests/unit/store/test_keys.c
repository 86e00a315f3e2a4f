/*
 * test_keys.c: the file of keys: what is read, each refusal with its place, looking a
 * key up without a hint of how near a wrong one came, and what is written.
 */
#include "support.h"

#include "store/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* Replaces the library's function: the same result, and counts the comparisons. */
static size_t n_compared;

int CRYPTO_memcmp(const void *a, const void *b, size_t n)
{
	assert_int_equal(n, 32); /* a whole hash, never a part */
	n_compared++;
	/* For unequal bytes any number is valid, also negative ones and 256. */
	static const int odd[] = { 256, -1, 1, 0x7fffffff, -0x7fffffff - 1 };
	return memcmp(a, b, n) ? odd[n_compared % 5] : 0;
}

/* SHA-256 of "abc" and of "". */
#define ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define OTHER "01234567e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b"
#define TIME " 2026-01-31T12:00:00Z"

static struct ig_keys *parse(const char *text)
{
	struct ig_keys *keys = NULL;
	struct ig_error err = { 0 };

	if (ig_keys_parse(text, strlen(text), "f", &keys, &err))
		fail_msg("%s", err.text);
	return keys;
}

static void test_lines(void **state)
{
	struct ig_keys *keys =
		parse("# a comment\n\n   \n"
		      "abc user " ABC TIME "\n"
		      "  x_1-2   administrator " EMPTY TIME "  max_concurrent=4 "
		      "tokens_per_minute=0 priority=-100 requests_per_minute=1000000000 "
		      "weight=100 note=the big "
		      "one, max_concurrent=9\n"
		      "m monitor " OTHER TIME);

	assert_int_equal(ig_keys_count(keys), 3);
	const struct ig_key *k = ig_keys_at(keys, 0);
	assert_string_equal(k->id, "abc");
	assert_int_equal(k->role, IG_ROLE_USER);
	assert_string_equal(k->created, "2026-01-31T12:00:00Z");
	assert_int_equal(k->limits.max_concurrent, 0);
	assert_int_equal(k->weight, 0);
	assert_int_equal(k->priority, 0);
	assert_string_equal(k->note, "");
	struct ig_principal who;
	ig_key_principal(k, &who);
	assert_true(who.weight == 1 && who.priority == 0 && !who.is_free);
	k = ig_keys_by_id(keys, "x_1-2");
	assert_ptr_equal(k, ig_keys_at(keys, 1));
	assert_int_equal(k->role, IG_ROLE_ADMINISTRATOR);
	assert_int_equal(k->limits.max_concurrent, 4);
	assert_int_equal(k->limits.requests_per_minute, 1000000000);
	assert_int_equal(k->limits.tokens_per_minute, IG_LIMIT_NONE);
	assert_int_equal(k->weight, 100);
	assert_int_equal(k->priority, -100);
	assert_string_equal(k->note, "the big one, max_concurrent=9");
	assert_null(ig_keys_by_id(keys, "x_1-"));

	memset(&who, 0xff, sizeof who);
	ig_key_principal(k, &who);
	assert_string_equal(who.key, "x_1-2");
	assert_int_equal(who.role, IG_ROLE_ADMINISTRATOR);
	assert_int_equal(who.limits.max_concurrent, 4);
	assert_int_equal(who.weight, 100);
	assert_int_equal(who.priority, -100);
	assert_memory_equal(&who.identity, k->hash, sizeof who.identity);
	assert_int_equal(ig_keys_by_id(keys, "m")->role, IG_ROLE_MONITOR);
	ig_keys_destroy(keys);

	keys = parse("");
	assert_int_equal(ig_keys_count(keys), 0);
	assert_null(ig_keys_find(keys, "abc", 3));
	ig_keys_destroy(keys);
	assert_int_equal(ig_keys_count(NULL), 0);
	assert_null(ig_keys_find(NULL, "abc", 3));
	ig_keys_destroy(NULL);
}

static void test_bad_lines(void **state)
{
	static const struct {
		const char *text, *error;
	} rows[] = {
		{ "abc user " ABC, "f:1: a line is ID ROLE" },
		{ "\n\nabc\n", "f:3: a line is ID ROLE" },
		{ "Abc user " ABC TIME, "f:1: the id" },
		{ "-a user " ABC TIME, "f:1: the id" },
		{ "0123456789012345678901234567890123456789 user " ABC TIME, "f:1: the id" },
		{ "a\xc3\xa9 user " ABC TIME, "f:1: the id" },
		{ "abc root " ABC TIME, "f:1: the role" },
		{ "abc User " ABC TIME, "f:1: the role" },
		{ "abc user " ABC "0" TIME, "f:1: the hash" },
		{ "abc user BA7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" TIME,
		  "f:1: the hash" },
		{ "abc user ingot-secret" TIME, "f:1: the hash" },
		{ "abc user " ABC " yesterday", "f:1: the time" },
		{ "abc user " ABC " 2026-01-31T12:00:00", "f:1: the time" },
		{ "abc user " ABC TIME "x", "f:1: the time" },
		{ "abc user " ABC TIME " max_concurrent=", "f:1: after the time" },
		{ "abc user " ABC TIME " max_concurrent=-1", "f:1: after the time" },
		{ "abc user " ABC TIME " max_concurrent=1000000001", "f:1: after the time" },
		{ "abc user " ABC TIME " max_concurrent=99999999999999999999",
		  "f:1: after the time" },
		{ "abc user " ABC TIME " max_concurrently=1", "f:1: after the time" },
		{ "abc user " ABC TIME " max_concurrent=1 max_concurrent=2",
		  "f:1: a duplicate limit" },
		{ "abc user " ABC TIME " max_concurrent=0 max_concurrent=2",
		  "f:1: a duplicate limit" },
		{ "abc user " ABC TIME " weight=0", "f:1: after the time" },
		{ "abc user " ABC TIME " weight=101", "f:1: after the time" },
		{ "abc user " ABC TIME " weight=-1", "f:1: after the time" },
		{ "#\nabc user " ABC TIME " weight=", "f:2: after the time" },
		{ "abc user " ABC TIME " weight=1.5", "f:1: after the time" },
		{ "abc user " ABC TIME " weight=4294967297", "f:1: after the time" },
		{ "abc user " ABC TIME " weight=2 weight=2", "f:1: a duplicate weight" },
		{ "abc user " ABC TIME " priority=101", "f:1: after the time" },
		{ "abc user " ABC TIME " priority=-101", "f:1: after the time" },
		{ "abc user " ABC TIME " priority=-", "f:1: after the time" },
		{ "abc user " ABC TIME " priority=--1", "f:1: after the time" },
		{ "abc user " ABC TIME " priority=+1", "f:1: after the time" },
		{ "abc user " ABC TIME " priority=0 priority=1", "f:1: a duplicate priority" },
		{ "abc user " ABC TIME " the laptop", "f:1: after the time" },
		{ "abc user " ABC TIME " note= x", "f:1: the note" },
		{ "abc user " ABC TIME "\nabc user " EMPTY TIME, "f:2: the id abc is a duplicate" },
		{ "abc user " ABC TIME "\nb user " ABC TIME, "f:2: abc and b are the same key" },
		{ "abc user " ABC TIME "\r\n", "f:1: the line has a control character" },
		{ "#\nabc\tuser " ABC TIME, "f:2: the line has a control character" },
	};
	struct ig_keys *keys = (struct ig_keys *)&keys;
	struct ig_error err;

	for (size_t i = 0; i < N_OF(rows); i++) {
		memset(&err, 0, sizeof err);
		int rc = ig_keys_parse(rows[i].text, strlen(rows[i].text), "f", &keys, &err);
		if (rc != -EINVAL || keys ||
		    strncmp(err.text, rows[i].error, strlen(rows[i].error)))
			fail_msg("%s\n-> %d %s", rows[i].text, rc, err.text);
		/* A key in the file by mistake must not get into a log. */
		assert_null(strstr(err.text, "secret"));
	}
	/* a NUL, at which strlen would stop */
	assert_int_equal(ig_keys_parse("#\0", 2, "f", &keys, &err), -EINVAL);
	/* a path that is too long for the message is cut, the line's number is not */
	char label[700];
	memset(label, 'p', sizeof label);
	label[sizeof label - 1] = 0;
	assert_int_equal(ig_keys_parse("abc\n", 4, label, &keys, &err), -EINVAL);
	assert_non_null(strstr(err.text, "p:1: a line is"));
}

static void test_too_many(void **state)
{
	struct ig_strbuf b = { 0 };
	struct ig_keys *keys;
	struct ig_error err = { 0 };

	for (int i = 0; i <= IG_KEYS_MAX; i++) {
		if (i == IG_KEYS_MAX) {
			assert_int_equal(ig_keys_parse(b.data, b.len, "f", &keys, &err), 0);
			assert_int_equal(ig_keys_count(keys), IG_KEYS_MAX);
			ig_keys_destroy(keys);
		}
		ig_strbuf_printf(&b, "k%d user %064x" TIME "\n", i, (unsigned)i);
	}
	assert_int_equal(ig_keys_parse(b.data, b.len, "f", &keys, &err), -E2BIG);
	assert_non_null(strstr(err.text, "f:4097: more than 4096 keys"));
	ig_strbuf_finish(&b);
}

/* ---- looking up --------------------------------------------------------------------- */

static void test_find(void **state)
{
	enum { N = 5 };
	char tokens[N][IG_KEY_TOKEN_CAP], path[256], big[2000];
	struct ig_keys *keys = NULL;
	struct ig_error err = { 0 };

	in_dir(path, "find");
	for (int i = 0; i < N; i++) {
		struct ig_key k = { .role = i == 2 ? IG_ROLE_ADMINISTRATOR : IG_ROLE_USER };
		struct ig_keys *next = NULL;
		snprintf(k.id, sizeof k.id, "k%d", i);
		assert_int_equal(ig_key_generate(keys, &k, tokens[i], &err), 0);
		assert_int_equal(strlen(tokens[i]), sizeof IG_KEY_PREFIX - 1 + 64);
		assert_int_equal(ig_keys_write(path, keys, NULL, &k, &err), 0);
		assert_int_equal(ig_keys_load(path, &next, &err), 0);
		ig_keys_destroy(keys);
		keys = next;
	}
	for (int i = 0; i < N; i++) {
		n_compared = (size_t)i; /* another of the odd numbers each time */
		const struct ig_key *k = ig_keys_find(keys, tokens[i], strlen(tokens[i]));
		assert_ptr_equal(k, ig_keys_at(keys, (size_t)i));
		/* All entries are compared, wherever the match is. */
		assert_int_equal(n_compared, i + N);
	}
	/* A key that is almost equal is not found, after as many comparisons. */
	for (size_t cut = 0; cut < strlen(tokens[3]); cut += 7) {
		char near[IG_KEY_TOKEN_CAP];
		memcpy(near, tokens[3], sizeof near);
		near[cut] ^= 1;
		n_compared = 0;
		assert_null(ig_keys_find(keys, near, strlen(near)));
		assert_int_equal(n_compared, N);
	}
	assert_null(ig_keys_find(keys, tokens[0], strlen(tokens[0]) - 1));
	assert_null(ig_keys_find(keys, tokens[0], strlen(tokens[0]) + 1));
	assert_null(ig_keys_find(keys, "", 0));
	memset(big, 'a', sizeof big);
	assert_null(ig_keys_find(keys, big, sizeof big));
	/* The hash in the file is not a key. */
	char text[4096];
	FILE *f = fopen(path, "r");
	size_t n = fread(text, 1, sizeof text - 1, f);
	fclose(f);
	text[n] = 0;
	for (int i = 0; i < N; i++)
		assert_null(strstr(text, tokens[i] + sizeof IG_KEY_PREFIX - 1));
	char *word = strstr(text, " user ") + 6;
	assert_null(ig_keys_find(keys, word, 64));
	ig_keys_destroy(keys);

	keys = parse("abc user " ABC TIME);
	assert_string_equal(ig_keys_find(keys, "abc", 3)->id, "abc");
	ig_keys_destroy(keys);
}

/* ---- the file ----------------------------------------------------------------------- */

static void load_fails(const char *path, int code, const char *text)
{
	struct ig_keys *keys = (struct ig_keys *)&keys;
	struct ig_error err = { 0 };

	assert_int_equal(ig_keys_load(path, &keys, &err), code);
	assert_null(keys);
	if (!strstr(err.text, text) || !strstr(err.text, path))
		fail_msg("%s", err.text);
}

static void test_permissions(void **state)
{
	static const mode_t bad[] = { 0640, 0604, 0620, 0602, 0610, 0601, 0644, 0666, 0777 };
	struct ig_keys *keys = NULL;
	char path[256];

	write_text(in_dir(path, "perm"), "abc user " ABC TIME "\n");
	for (size_t i = 0; i < N_OF(bad); i++) {
		assert_int_equal(chmod(path, bad[i]), 0);
		load_fails(path, -EPERM, "chmod 600");
	}
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(ig_keys_load(path, &keys, NULL), 0);
	assert_int_equal(ig_keys_count(keys), 1);
	ig_keys_destroy(keys);
	assert_int_equal(chmod(path, 0400), 0);
	assert_int_equal(ig_keys_load(path, &keys, NULL), 0);
	ig_keys_destroy(keys);
	if (geteuid() == 0) { /* a test that runs as root can give files away */
		assert_int_equal(chown(path, 12345, (gid_t)-1), 0);
		load_fails(path, -EPERM, "belongs to user 12345");
	}
	assert_int_equal(ig_keys_load(in_dir(path, "nowhere"), &keys, NULL), 0);
	assert_null(keys);
	load_fails(test_dir, -EINVAL, "is not a regular file");
	in_dir(path, "fifo");
	assert_int_equal(mkfifo(path, 0600), 0);
	load_fails(path, -EINVAL, "is not a regular file"); /* and it does not wait for a writer */
	write_text(in_dir(path, "big"), "#");
	assert_int_equal(truncate(path, (3 << 20)), 0);
	assert_int_equal(chmod(path, 0600), 0);
	load_fails(path, -EFBIG, "larger than 2 MiB");
	write_text(in_dir(path, "bad"), "#\nabc\n");
	assert_int_equal(chmod(path, 0600), 0);
	load_fails(path, -EINVAL, ":2: a line is");
}

static void test_writing(void **state)
{
	static const mode_t masks[] = { 0, 022, 077, 0777 };
	struct ig_keys *keys = NULL, *again = NULL;
	struct ig_error err = { 0 };
	struct ig_key k = { .role = IG_ROLE_ADMINISTRATOR,
			    .limits = { 3, IG_LIMIT_NONE, 0 },
			    .weight = 7,
			    .priority = -9,
			    .note = "of mine" };
	char path[256], other[256], token[IG_KEY_TOKEN_CAP];
	struct stat st;
	int lock;

	in_dir(path, "deep/below/keys");
	assert_int_equal(ig_keys_lock(path, &lock, &err), 0);
	assert_int_equal(stat(in_dir(other, "deep"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	for (size_t i = 0; i < N_OF(masks); i++) {
		mode_t was = umask(masks[i]);
		int rc = ig_keys_write(path, NULL, NULL, NULL, &err);
		umask(was);
		if (rc)
			fail_msg("%s", err.text);
		assert_int_equal(stat(path, &st), 0);
		assert_int_equal(st.st_mode & 07777, 0600);
	}
	assert_int_equal(ig_keys_load(path, &keys, &err), 0);
	assert_non_null(keys); /* a file without keys is not the same as no file */
	assert_int_equal(ig_keys_count(keys), 0);

	assert_int_equal(ig_key_generate(keys, &k, token, &err), 0);
	assert_int_equal(strncmp(k.id, "key_", 4), 0);
	assert_true(ig_key_id_ok(k.id));
	/* a link at the path is replaced, not followed */
	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink("/nonexistent/elsewhere", path), 0);
	assert_int_equal(ig_keys_write(path, keys, NULL, &k, &err), 0);
	assert_int_equal(lstat(path, &st), 0);
	assert_true(S_ISREG(st.st_mode) && (st.st_mode & 07777) == 0600);
	ig_keys_destroy(keys);
	assert_int_equal(ig_keys_load(path, &keys, &err), 0);
	const struct ig_key *got = ig_keys_find(keys, token, strlen(token));
	assert_non_null(got);
	assert_string_equal(got->id, k.id);
	assert_string_equal(got->note, "of mine");
	assert_string_equal(got->created, k.created);
	assert_int_equal(got->role, IG_ROLE_ADMINISTRATOR);
	assert_int_equal(got->limits.max_concurrent, 3);
	assert_int_equal(got->limits.requests_per_minute, IG_LIMIT_NONE);
	assert_int_equal(got->limits.tokens_per_minute, 0);
	assert_int_equal(got->weight, 7);
	assert_int_equal(got->priority, -9);

	/* Add another key with an id of its own; remove the first. */
	struct ig_key second = { .id = "b" };
	char token2[IG_KEY_TOKEN_CAP];
	assert_int_equal(ig_key_generate(keys, &second, token2, &err), 0);
	assert_string_not_equal(token, token2);
	assert_int_equal(ig_keys_write(path, keys, k.id, &second, &err), 0);
	assert_int_equal(ig_keys_load(path, &again, &err), 0);
	assert_int_equal(ig_keys_count(again), 1);
	assert_null(ig_keys_find(again, token, strlen(token)));
	assert_string_equal(ig_keys_find(again, token2, strlen(token2))->id, "b");
	ig_keys_destroy(again);
	ig_keys_destroy(keys);

	/* Another process waits for the lock. */
	pid_t child = fork();
	if (child == 0) {
		int mine;
		close(lock); /* a lock belongs to the open file, which a fork shares */
		alarm(20);
		_exit(ig_keys_lock(path, &mine, NULL) ? 1 : 0);
	}
	usleep(100000);
	int status;
	assert_int_equal(waitpid(child, &status, WNOHANG), 0);
	close(lock);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);

	/* The folder is a file: an error with the path. */
	in_dir(path, "perm/keys");
	write_text(in_dir(other, "perm"), "");
	assert_int_equal(ig_keys_lock(path, &lock, &err), -ENOTDIR);
	assert_int_equal(lock, -1);
	assert_int_equal(ig_keys_write(path, NULL, NULL, NULL, &err), -ENOTDIR);
	assert_non_null(strstr(err.text, path));
}

static void test_words(void **state)
{
	char note[IG_KEY_NOTE_CAP + 1];

	assert_true(ig_key_id_ok("a") && ig_key_id_ok("laptop-2_x") && ig_key_id_ok("_"));
	assert_false(ig_key_id_ok("") || ig_key_id_ok("-a") || ig_key_id_ok("a b") ||
		     ig_key_id_ok("A"));
	assert_true(ig_key_note_ok("") && ig_key_note_ok("two words = \xc3\xa9"));
	assert_false(ig_key_note_ok(" a") || ig_key_note_ok("a ") || ig_key_note_ok("a\nb") ||
		     ig_key_note_ok("a\x1b[0m") || ig_key_note_ok("\x7f"));
	memset(note, 'n', sizeof note);
	note[IG_KEY_NOTE_CAP - 1] = 0;
	assert_true(ig_key_note_ok(note));
	note[IG_KEY_NOTE_CAP - 1] = 'n';
	note[IG_KEY_NOTE_CAP] = 0;
	assert_false(ig_key_note_ok(note));
	assert_string_equal(ig_role_name(IG_ROLE_USER), "user");
	assert_string_equal(ig_role_name(IG_ROLE_ADMINISTRATOR), "administrator");
	assert_string_equal(ig_role_name(IG_ROLE_MONITOR), "monitor");
}

/* ---- a program that prints keys --------------------------------------------------------- */

static int run_script(const char *lines, int timeout_ms, struct ig_keys **keys,
		      struct ig_error *err)
{
	char path[256], text[600];

	snprintf(text, sizeof text, "#!/bin/sh\n%s\n", lines);
	write_text(in_dir(path, "keys-command"), text);
	assert_int_equal(chmod(path, 0700), 0);
	*err = (struct ig_error){ 0 };
	return ig_keys_run(path, timeout_ms, keys, err);
}

static void test_a_program(void **state)
{
#define LINE(id, digit)                                                                            \
	"echo " id " user " digit                                                                  \
	"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde "                         \
	"2026-01-31T12:00:00Z tokens_per_minute=7\n"
	struct ig_keys *keys;
	struct ig_error err;
	char path[256];

	assert_int_equal(run_script(LINE("a", "1") LINE("b", "2") "exec 1>&-; sleep 0.02", 9000,
				    &keys, &err),
			 0);
	assert_int_equal(ig_keys_count(keys), 2);
	assert_int_equal(ig_keys_by_id(keys, "b")->limits.tokens_per_minute, 7);
	ig_keys_destroy(keys);
	/* nothing printed: keys are needed, and there is none */
	assert_int_equal(run_script("true", 9000, &keys, &err), 0);
	assert_non_null(keys);
	assert_int_equal(ig_keys_count(keys), 0);
	ig_keys_destroy(keys);
	assert_int_equal(run_script(LINE("a", "1") "exit 3", 9000, &keys, &err), -EIO);
	assert_null(keys);
	assert_non_null(strstr(err.text, "keys-command: ended with 3"));
	assert_int_equal(run_script("echo what", 9000, &keys, &err), -EINVAL);
	assert_non_null(strstr(err.text, "keys-command:1: a line is ID"));
	/* what it started is killed too, or this read would wait for it */
	assert_int_equal(run_script("sleep 100 & sleep 100", 50, &keys, &err), -ETIMEDOUT);
	assert_int_equal(run_script("exec 1>&-; sleep 100", 50, &keys, &err), -ETIMEDOUT);
	assert_int_equal(run_script("yes", 9000, &keys, &err), -EFBIG);
	assert_int_equal(ig_keys_run(in_dir(path, "nothing-here"), 50, &keys, &err), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),	    cmocka_unit_test(test_bad_lines),
		cmocka_unit_test(test_too_many),    cmocka_unit_test(test_find),
		cmocka_unit_test(test_permissions), cmocka_unit_test(test_writing),
		cmocka_unit_test(test_words),	    cmocka_unit_test(test_a_program),
	};
	return cmocka_run_group_tests_name("keys", tests, make_test_dir, remove_test_dir);
}
