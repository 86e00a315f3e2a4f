/*
 * keys.h: the file of API keys, and the role and limits of a request with a key.  The file has no
 * key, only the SHA-256 of each.  A loaded set is immutable; a reload creates a new one.  Used by
 * `ingot keys` and by the daemon.
 */
#pragma once

#include "base/strbuf.h"

#include <ingot/error.h>
#include <stdbool.h>

#define IG_KEY_PREFIX "ingot-" /* of each key, so that people and scanners recognise one */
#define IG_KEY_TOKEN_CAP 80    /* bytes of a buffer for a key */
#define IG_KEY_ID_CAP 40
#define IG_KEY_NOTE_CAP 121
#define IG_KEYS_MAX 4096 /* in one file */

enum ig_role {
	IG_ROLE_USER = 0,      /* the inference endpoints */
	IG_ROLE_ADMINISTRATOR, /* all endpoints */
	IG_ROLE_MONITOR,       /* /metrics alone */
};

/* Each limit: 0 means the configuration's (limits:), IG_LIMIT_NONE no limit. */
#define IG_LIMIT_NONE UINT32_MAX
#define IG_LIMIT_MAX 1000000000u /* the largest limit */
struct ig_key_limits {
	uint32_t max_concurrent; /* requests that run or wait */
	uint32_t requests_per_minute;
	uint32_t tokens_per_minute; /* of prompts and responses together */
};

/* A key's part of the engine beside other clients, and the priorities of its requests. */
#define IG_WEIGHT_MAX 100u
#define IG_PRIORITY_MAX 100 /* and at least its negative */

/* The owner of a request; copied, so that threads share nothing. */
struct ig_principal {
	char key[IG_KEY_ID_CAP]; /* the key's id, for the ledger; "": anonymous */
	/* From the key's hash: differs for a later key with the same id.  0: anonymous. */
	uint64_t identity;
	enum ig_role role;
	struct ig_key_limits limits;
	uint32_t weight;  /* of its share beside other clients'; 0: 1 */
	int32_t priority; /* the least that its requests have (struct ig_gen_spec) */
	bool is_free;	  /* there are no keys: its requests have the priority that they ask for */
};

struct ig_key {
	char id[IG_KEY_ID_CAP]; /* [a-z0-9_-], unique */
	enum ig_role role;
	unsigned char hash[32]; /* SHA-256 of the key */
	char created[24];	/* 2026-01-31T12:00:00Z */
	struct ig_key_limits limits;
	uint32_t weight; /* 0: 1 */
	int32_t priority;
	char note[IG_KEY_NOTE_CAP]; /* one line of text */
};

struct ig_keys;

/* Read the file.  If it does not exist, the result is 0 and *out is NULL.  A file that other users
 * may read, that another user owns, or that has a malformed line is an error, whose text has the
 * path, the line and what to do. */
int ig_keys_load(const char *path, struct ig_keys **out, struct ig_error *err);
/* The keys that a program prints, in the file's format; *out is never NULL then.  -ETIMEDOUT: it was
 * killed; an exit status other than 0 is an error, too. */
int ig_keys_run(const char *program, int timeout_ms, struct ig_keys **out, struct ig_error *err);
/* The same of a text; label is the path in messages. */
int ig_keys_parse(const char *text, size_t len, const char *label, struct ig_keys **out,
		  struct ig_error *err);
void ig_keys_destroy(struct ig_keys *keys); /* NULL is fine */
size_t ig_keys_count(const struct ig_keys *keys);
const struct ig_key *ig_keys_at(const struct ig_keys *keys, size_t i);
/* The entry of a client's key, or NULL.  The time depends neither on the matching entry nor on the
 * number of equal bytes.  Any thread. */
const struct ig_key *ig_keys_find(const struct ig_keys *keys, const char *token, size_t len);
/* The entry with this id, or NULL. */
const struct ig_key *ig_keys_by_id(const struct ig_keys *keys, const char *id);
/* Whether one is an administrator's, other than the key with this id (NULL: any). */
bool ig_keys_have_administrator(const struct ig_keys *keys, const char *without);
/* A weight of 0 is that of a key for which nothing was said, or of no key. */
static inline uint32_t ig_key_weight(uint32_t weight) { return weight ? weight : 1; }

/* The owner of a request with this key. */
void ig_key_principal(const struct ig_key *key, struct ig_principal *out);

/* Lock the file for a change, and create its folder; closing *lock_fd unlocks. */
int ig_keys_lock(const char *path, int *lock_fd, struct ig_error *err);
/* Generate a key of 32 random bytes: its text in token; its hash, its time and, where key->id is
 * "", an id that is not in keys (may be NULL), in *key. */
int ig_key_generate(const struct ig_keys *keys, struct ig_key *key, char token[IG_KEY_TOKEN_CAP],
		    struct ig_error *err);
/* Write all keys except the one with the id `without` (NULL: all), then `add` (NULL: none), to a
 * new file of mode 600, which replaces path atomically. */
int ig_keys_write(const char *path, const struct ig_keys *keys, const char *without,
		  const struct ig_key *add, struct ig_error *err);
/* Whether the file can have this id or note. */
bool ig_key_id_ok(const char *id);
bool ig_key_note_ok(const char *note);
const char *ig_role_name(enum ig_role role); /* "user", "administrator", "monitor" */
