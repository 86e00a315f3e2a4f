/*
 * keys.c: see keys.h.  One key a line:
 *
 *   ID ROLE SHA256 CREATED [max_concurrent=N] [requests_per_minute=N]
 *   [tokens_per_minute=N] [weight=N] [priority=N] [note=TEXT to the end of the line]
 *
 * A plain SHA-256 is enough: a key is 32 random bytes, which cannot be guessed.  A slow hash or a
 * salt protects passwords that people choose, and would add nothing here.  A client's key is
 * hashed first, and its hash is compared with all others in full, so that the time depends neither
 * on the matching entry nor on the number of equal bytes.
 */
#include "store/keys.h"

#include "base/array.h"
#include "base/file.h"
#include "base/random.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_BYTES (2u << 20) /* of the file */
#define MAX_TOKEN 1024	     /* bytes; a longer text is not a key */
#define HASH_BYTES 32

struct ig_keys {
	struct ig_key *keys; /* [n] */
	size_t n;
};

/* The words of a line that are name=N; 0 is what a key has without the word. */
static const struct setting {
	const char *name;
	size_t offset; /* in struct ig_key, of 32 bits */
	int64_t min, max;
	bool is_limit; /* a limit of 0 in the file is IG_LIMIT_NONE */
} settings[] = {
	{ "max_concurrent", offsetof(struct ig_key, limits.max_concurrent), 0, IG_LIMIT_MAX, true },
	{ "requests_per_minute", offsetof(struct ig_key, limits.requests_per_minute), 0,
	  IG_LIMIT_MAX, true },
	{ "tokens_per_minute", offsetof(struct ig_key, limits.tokens_per_minute), 0, IG_LIMIT_MAX,
	  true },
	{ "weight", offsetof(struct ig_key, weight), 1, IG_WEIGHT_MAX, false },
	{ "priority", offsetof(struct ig_key, priority), -IG_PRIORITY_MAX, IG_PRIORITY_MAX, false },
};
#define N_SETTINGS (sizeof settings / sizeof settings[0])

static const char *const role_names[] = { "user", "administrator", "monitor" };
#define N_ROLES (sizeof role_names / sizeof role_names[0])

const char *ig_role_name(enum ig_role role) { return role_names[role]; }

static bool read_role(const char *word, enum ig_role *out)
{
	for (size_t i = 0; i < N_ROLES; i++)
		if (!strcmp(word, role_names[i])) {
			*out = (enum ig_role)i;
			return true;
		}
	return false;
}

static bool hash(const char *text, size_t len, unsigned char out[HASH_BYTES])
{
	unsigned n = 0;

	return EVP_Digest(text, len, out, &n, EVP_sha256(), NULL) == 1 && n == HASH_BYTES;
}

/* ---- words of a line ---------------------------------------------------------------- */

bool ig_key_id_ok(const char *id)
{
	size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789_-");

	return n && n < IG_KEY_ID_CAP && !id[n] && id[0] != '-';
}

bool ig_key_note_ok(const char *note)
{
	size_t n = strlen(note);

	for (size_t i = 0; i < n; i++)
		if ((unsigned char)note[i] < 0x20 || note[i] == 0x7f)
			return false;
	/* reading drops spaces at its ends */
	return n < IG_KEY_NOTE_CAP && (!n || (note[0] != ' ' && note[n - 1] != ' '));
}

static bool read_hash(const char *s, unsigned char out[HASH_BYTES])
{
	if (strlen(s) != 2 * HASH_BYTES || strspn(s, "0123456789abcdef") != 2 * HASH_BYTES)
		return false;
	for (int i = 0; i < HASH_BYTES; i++)
		out[i] = (unsigned char)strtoul((const char[]){ s[2 * i], s[2 * i + 1], 0 }, NULL,
						16);
	return true;
}

/* 2026-01-31T12:00:00Z */
static bool created_ok(const char *s)
{
	static const char shape[] = "dddd-dd-ddTdd:dd:ddZ";

	for (size_t i = 0; i < sizeof shape; i++)
		if (shape[i] == 'd' ? s[i] < '0' || s[i] > '9' : s[i] != shape[i])
			return false;
	return true;
}

static const struct setting *find_setting(const char *word)
{
	for (size_t i = 0; i < N_SETTINGS; i++) {
		size_t n = strlen(settings[i].name);
		if (!strncmp(word, settings[i].name, n) && word[n] == '=')
			return &settings[i];
	}
	return NULL;
}

static bool read_setting(const struct setting *s, const char *word, struct ig_key *k)
{
	const char *v = word + strlen(s->name) + 1;
	bool negative = *v == '-' && s->min < 0;
	size_t digits = strspn(v += negative, "0123456789");
	int64_t n = digits && digits <= 10 && !v[digits] ? strtoll(v, NULL, 10) : INT64_MAX;
	uint32_t stored;

	n = negative ? -n : n;
	if (n < s->min || n > s->max)
		return false;
	stored = s->is_limit && !n ? IG_LIMIT_NONE : (uint32_t)(int32_t)n;
	memcpy((char *)k + s->offset, &stored, sizeof stored);
	return true;
}

/* One name=N; *seen: a bit for each that the line has had. */
static int read_word(const char *word, struct ig_key *k, uint32_t *seen, const char *where,
		     struct ig_error *err)
{
	const struct setting *s = find_setting(word);
	uint32_t bit = s ? 1u << (s - settings) : 0;

	if (!s || !read_setting(s, word, k))
		return ig_fail(
			err, -EINVAL,
			"%s: after the time only max_concurrent=, requests_per_minute= and "
			"tokens_per_minute= with a number up to %u, weight= with 1 to %u and "
			"priority= with -%d to %d may follow, then note=",
			where, IG_LIMIT_MAX, IG_WEIGHT_MAX, IG_PRIORITY_MAX, IG_PRIORITY_MAX);
	if (*seen & bit)
		return ig_fail(err, -EINVAL, "%s: a duplicate %s", where,
			       s->is_limit ? "limit" : s->name);
	*seen |= bit;
	return 0;
}

/* The next word, cut out of *p; NULL at the end. */
static char *next_word(char **p)
{
	char *word = *p + strspn(*p, " ");

	if (!*word)
		return NULL;
	*p = word + strcspn(word, " ");
	if (**p)
		*(*p)++ = 0;
	return word;
}

/* ---- a line, a file ------------------------------------------------------------------- */

/* line: without its newline; it is modified.  Messages quote nothing of it but valid ids: a key
 * that was written there by mistake must not get into a log. */
static int read_line(const struct ig_keys *keys, char *line, struct ig_key *k, const char *where,
		     struct ig_error *err)
{
	char *id = next_word(&line), *role = next_word(&line), *digest = next_word(&line),
	     *created = next_word(&line), *word;
	uint32_t seen = 0;
	int rc;

	*k = (struct ig_key){ 0 };
	if (!created)
		return ig_fail(err, -EINVAL,
			       "%s: a line is ID ROLE SHA256 CREATED [LIMITS] [note=…]; "
			       "make keys with `ingot keys add`",
			       where);
	if (!ig_key_id_ok(id))
		return ig_fail(err, -EINVAL,
			       "%s: the id, the first word, is 1 to %d of a-z 0-9 _ -", where,
			       IG_KEY_ID_CAP - 1);
	snprintf(k->id, sizeof k->id, "%s", id);
	if (ig_keys_by_id(keys, k->id))
		return ig_fail(err, -EINVAL, "%s: the id %s is a duplicate", where, k->id);
	if (!read_role(role, &k->role))
		return ig_fail(err, -EINVAL,
			       "%s: the role, the second word, is user, administrator or monitor",
			       where);
	if (!read_hash(digest, k->hash))
		return ig_fail(err, -EINVAL,
			       "%s: the hash, the third word, is 64 digits of 0-9 a-f", where);
	for (size_t i = 0; i < keys->n; i++)
		if (!memcmp(keys->keys[i].hash, k->hash, HASH_BYTES))
			return ig_fail(err, -EINVAL, "%s: %s and %s are the same key", where,
				       keys->keys[i].id, k->id);
	if (!created_ok(created))
		return ig_fail(err, -EINVAL,
			       "%s: the time, the fourth word, is as 2026-01-31T12:00:00Z", where);
	snprintf(k->created, sizeof k->created, "%s", created);
	for (;;) {
		line += strspn(line, " ");
		if (!strncmp(line, "note=", 5)) {
			if (!ig_key_note_ok(line + 5))
				return ig_fail(err, -EINVAL,
					       "%s: the note has more than %d bytes or "
					       "spaces at an end",
					       where, IG_KEY_NOTE_CAP - 1);
			snprintf(k->note, sizeof k->note, "%s", line + 5);
			return 0;
		}
		word = next_word(&line);
		if (!word)
			return 0;
		if ((rc = read_word(word, k, &seen, where, err)) < 0)
			return rc;
	}
}

static int add_line(struct ig_keys *keys, size_t *cap, char *line, const char *where,
		    struct ig_error *err)
{
	if (keys->n == IG_KEYS_MAX)
		return ig_fail(err, -E2BIG, "%s: more than %d keys", where, IG_KEYS_MAX);
	if (!ig_array_grow(keys->keys, cap, keys->n))
		return ig_fail(err, -ENOMEM, "%s: out of memory", where);
	int rc = read_line(keys, line, &keys->keys[keys->n], where, err);
	if (!rc)
		keys->n++;
	return rc;
}

int ig_keys_parse(const char *text, size_t len, const char *label, struct ig_keys **out,
		  struct ig_error *err)
{
	struct ig_keys *keys = calloc(1, sizeof *keys);
	size_t cap = 0, at = 0, number = 0;
	char where[256], *line = NULL;
	int rc = 0;

	*out = NULL;
	if (!keys)
		return ig_fail(err, -ENOMEM, "%s: out of memory", label);
	while (!rc && at < len) {
		const char *end = memchr(text + at, '\n', len - at);
		size_t n = end ? (size_t)(end - (text + at)) : len - at;
		/* a long path must leave space for the message */
		size_t skip = strlen(label) > 200 ? strlen(label) - 200 : 0;
		snprintf(where, sizeof where, "%s%s:%zu", skip ? "..." : "", label + skip,
			 ++number);
		for (size_t i = 0; i < n && !rc; i++)
			if ((unsigned char)text[at + i] < 0x20 || text[at + i] == 0x7f)
				rc = ig_fail(err, -EINVAL, "%s: the line has a control character",
					     where);
		if (rc)
			break;
		line = strndup(text + at, n);
		if (!line)
			rc = ig_fail(err, -ENOMEM, "%s: out of memory", where);
		else if (line[strspn(line, " ")] && line[strspn(line, " ")] != '#')
			rc = add_line(keys, &cap, line, where, err);
		free(line);
		at += n + 1;
	}
	if (rc) {
		ig_keys_destroy(keys);
		return rc;
	}
	*out = keys;
	return 0;
}

/* The owner must be this process's user, and nobody else may read the file. */
static int check_file(const char *path, int fd, struct ig_error *err)
{
	struct stat st;

	if (fstat(fd, &st))
		return ig_fail(err, -errno, "%.300s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return ig_fail(err, -EINVAL, "%.300s: is not a regular file", path);
	if (st.st_uid != geteuid())
		return ig_fail(err, -EPERM,
			       "%.300s: belongs to user %u, but this process runs as user %u, who "
			       "must own the file of keys",
			       path, (unsigned)st.st_uid, (unsigned)geteuid());
	if (st.st_mode & 077)
		return ig_fail(err, -EPERM,
			       "%.300s: other users may read it (mode %04o); run: chmod 600 %.300s",
			       path, (unsigned)(st.st_mode & 07777), path);
	return 0;
}

int ig_keys_load(const char *path, struct ig_keys **out, struct ig_error *err)
{
	struct ig_strbuf text = { 0 };
	int rc, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	*out = NULL;
	if (fd < 0)
		return errno == ENOENT ? 0 :
					 ig_fail(err, -errno, "%.300s: cannot be read: %s", path,
						 strerror(errno));
	if ((rc = check_file(path, fd, err)))
		goto out;
	rc = ig_read_all(fd, MAX_BYTES, NULL, &text);
	if (!rc)
		rc = ig_keys_parse(ig_strbuf_text(&text), text.len, path, out, err);
	else if (rc == -EFBIG)
		ig_fail(err, rc, "%.300s: larger than 2 MiB", path);
	else
		ig_fail(err, rc, "%.300s: cannot be read: %s", path, strerror(-rc));
out:
	ig_strbuf_finish(&text);
	close(fd);
	return rc;
}

void ig_keys_destroy(struct ig_keys *keys)
{
	if (!keys)
		return;
	free(keys->keys);
	free(keys);
}

/* ---- looking up -------------------------------------------------------------------------- */

size_t ig_keys_count(const struct ig_keys *keys) { return keys ? keys->n : 0; }

const struct ig_key *ig_keys_at(const struct ig_keys *keys, size_t i) { return &keys->keys[i]; }

const struct ig_key *ig_keys_by_id(const struct ig_keys *keys, const char *id)
{
	for (size_t i = 0; keys && i < keys->n; i++)
		if (!strcmp(keys->keys[i].id, id))
			return &keys->keys[i];
	return NULL;
}

bool ig_keys_have_administrator(const struct ig_keys *keys, const char *without)
{
	for (size_t i = 0; i < ig_keys_count(keys); i++) {
		const struct ig_key *k = ig_keys_at(keys, i);
		if (k->role == IG_ROLE_ADMINISTRATOR && !(without && !strcmp(k->id, without)))
			return true;
	}
	return false;
}

const struct ig_key *ig_keys_find(const struct ig_keys *keys, const char *token, size_t len)
{
	unsigned char digest[HASH_BYTES];
	uint32_t found = 0;

	if (!keys || !len || len > MAX_TOKEN || !hash(token, len, digest))
		return NULL;
	for (uint32_t i = 0; i < keys->n; i++) {
		uint32_t d = (uint32_t)CRYPTO_memcmp(digest, keys->keys[i].hash, HASH_BYTES);
		uint32_t differs = (d | (0u - d)) >> 31; /* 1 or 0, without a branch */
		found |= (i + 1) & (differs - 1);
	}
	return found ? &keys->keys[found - 1] : NULL;
}

void ig_key_principal(const struct ig_key *key, struct ig_principal *out)
{
	*out = (struct ig_principal){ .role = key->role,
				      .limits = key->limits,
				      .weight = ig_key_weight(key->weight),
				      .priority = key->priority };
	memcpy(out->key, key->id, sizeof out->key);
	/* the key is random, and so is each part of its hash */
	memcpy(&out->identity, key->hash, sizeof out->identity);
}

/* ---- generate and write ---------------------------------------------------------------------- */

static int random_bytes(void *out, size_t n, struct ig_error *err)
{
	int rc = ig_random_bytes(out, n);

	return rc < 0 ? ig_fail(err, -EIO, "the system has no random bytes: %s", strerror(-rc)) : 0;
}

static void put_hex(char *out, const unsigned char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

int ig_key_generate(const struct ig_keys *keys, struct ig_key *key, char token[IG_KEY_TOKEN_CAP],
		    struct ig_error *err)
{
	unsigned char raw[32], id[4];
	time_t now = time(NULL);
	struct tm tm;
	int rc;

	if (!key->id[0])
		do {
			if ((rc = random_bytes(id, sizeof id, err)))
				return rc;
			memcpy(key->id, "key_", 5);
			put_hex(key->id + 4, id, sizeof id);
		} while (ig_keys_by_id(keys, key->id));
	if ((rc = random_bytes(raw, sizeof raw, err)))
		return rc;
	memcpy(token, IG_KEY_PREFIX, sizeof IG_KEY_PREFIX);
	put_hex(token + sizeof IG_KEY_PREFIX - 1, raw, sizeof raw);
	OPENSSL_cleanse(raw, sizeof raw);
	if (!hash(token, strlen(token), key->hash))
		return ig_fail(err, -EIO, "SHA-256 failed");
	if (!gmtime_r(&now, &tm) ||
	    !strftime(key->created, sizeof key->created, "%Y-%m-%dT%H:%M:%SZ", &tm))
		return ig_fail(err, -EOVERFLOW, "the clock is wrong");
	return 0;
}

static void put_key(struct ig_strbuf *b, const struct ig_key *k)
{
	char hex[2 * HASH_BYTES + 1];

	put_hex(hex, k->hash, HASH_BYTES);
	ig_strbuf_printf(b, "%s %s %s %s", k->id, ig_role_name(k->role), hex, k->created);
	for (size_t i = 0; i < N_SETTINGS; i++) {
		uint32_t v;
		memcpy(&v, (const char *)k + settings[i].offset, sizeof v);
		if (v)
			ig_strbuf_printf(b, " %s=%d", settings[i].name,
					 v == IG_LIMIT_NONE && settings[i].is_limit ? 0 :
										      (int32_t)v);
	}
	if (k->note[0])
		ig_strbuf_printf(b, " note=%s", k->note);
	ig_strbuf_puts(b, "\n");
}

int ig_keys_lock(const char *path, int *lock_fd, struct ig_error *err)
{
	struct ig_strbuf name = { 0 };
	int rc;

	*lock_fd = -1;
	ig_strbuf_printf(&name, "%s.lock", path);
	rc = ig_strbuf_ok(&name) ? ig_make_folders_above(path, 0700, err) :
				   ig_fail(err, -ENOMEM, "out of memory");
	if (!rc) {
		/* Never removed: otherwise two processes could lock two files of the same name. */
		*lock_fd = open(name.data, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (*lock_fd < 0)
			rc = ig_fail(err, -errno, "%.300s: cannot be opened: %s", name.data,
				     strerror(errno));
	}
	while (!rc && flock(*lock_fd, LOCK_EX))
		if (errno != EINTR)
			rc = ig_fail(err, -errno, "%.300s: cannot be locked: %s", name.data,
				     strerror(errno));
	if (rc && *lock_fd >= 0) {
		close(*lock_fd);
		*lock_fd = -1;
	}
	ig_strbuf_finish(&name);
	return rc;
}

int ig_keys_write(const char *path, const struct ig_keys *keys, const char *without,
		  const struct ig_key *add, struct ig_error *err)
{
	struct ig_strbuf b = { 0 };
	int rc;

	ig_strbuf_puts(
		&b, "# API keys of ingotd: the SHA-256 of each; written by `ingot keys`. A line:\n"
		    "# ID ROLE SHA256 CREATED [max_concurrent=N] [requests_per_minute=N]\n"
		    "# [tokens_per_minute=N] [weight=N] [priority=N] [note=TEXT]\n");
	for (size_t i = 0; i < ig_keys_count(keys); i++)
		if (!without || strcmp(keys->keys[i].id, without))
			put_key(&b, &keys->keys[i]);
	if (add)
		put_key(&b, add);
	rc = ig_strbuf_ok(&b) ? ig_replace_file(path, b.data, b.len, err) :
				ig_fail(err, -ENOMEM, "%.300s: out of memory", path);
	ig_strbuf_finish(&b);
	return rc;
}
