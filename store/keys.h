/*
 * keys.h: who may use the daemon: a file of API keys, and what a request that came
 * with one is entitled to.
 *
 * The file holds no key, only the SHA-256 of each.  A set that was loaded is
 * immutable; a reload makes a new one.  `ingot keys` and the daemon share this.
 */
#pragma once

#include "base/strbuf.h"

#include <ingot/error.h>
#include <stdbool.h>

#define IG_KEY_PREFIX "ingot-" /* how each key begins, so that one is known when seen */
#define IG_KEY_TOKEN_CAP 80    /* of a buffer for a key */
#define IG_KEY_ID_CAP 40
#define IG_KEY_NOTE_CAP 121
#define IG_KEYS_MAX 4096 /* in one file */

enum ig_role {
	IG_ROLE_USER = 0,      /* the models' work */
	IG_ROLE_ADMINISTRATOR, /* and what shows or changes the daemon */
	IG_ROLE_MONITOR,       /* /metrics alone */
};

/* Each: 0 as the configuration says (limits:), IG_LIMIT_NONE no limit. */
#define IG_LIMIT_NONE UINT32_MAX
#define IG_LIMIT_MAX 1000000000u /* the largest number that is one */
struct ig_key_limits {
	uint32_t max_concurrent; /* requests that run or wait */
	uint32_t requests_per_minute;
	uint32_t tokens_per_minute; /* of prompts and answers together */
};

/* Whose request it is: by value, so that nothing is shared between threads. */
struct ig_principal {
	char key[IG_KEY_ID_CAP]; /* the key's id, for the ledger; "": anonymous */
	/* Of the key itself: a later key with the same id has another.  0: anonymous. */
	uint64_t identity;
	enum ig_role role;
	struct ig_key_limits limits;
};

struct ig_key {
	char id[IG_KEY_ID_CAP]; /* [a-z0-9_-], unique */
	enum ig_role role;
	unsigned char hash[32]; /* SHA-256 of the key */
	char created[24];	/* 2026-01-31T12:00:00Z */
	struct ig_key_limits limits;
	char note[IG_KEY_NOTE_CAP]; /* one line of text */
};

struct ig_keys;

/* Read the file.  One that is not there is no error: *out is NULL then.  A file that
 * others may read, that is not ours, or that has a bad line is an error with the path,
 * the line and what to do. */
int ig_keys_load(const char *path, struct ig_keys **out, struct ig_error *err);
/* The same over text; label stands for the path in messages. */
int ig_keys_parse(const char *text, size_t len, const char *label, struct ig_keys **out,
		  struct ig_error *err);
void ig_keys_destroy(struct ig_keys *keys); /* NULL is fine */
size_t ig_keys_count(const struct ig_keys *keys);
const struct ig_key *ig_keys_at(const struct ig_keys *keys, size_t i);
/* The entry of the key that a client sent, or NULL.  The time does not depend on which
 * entry it is, nor on how much of one agrees.  Any thread. */
const struct ig_key *ig_keys_find(const struct ig_keys *keys, const char *token, size_t len);
/* By its id, or NULL. */
const struct ig_key *ig_keys_by_id(const struct ig_keys *keys, const char *id);
/* What a request with this key is. */
void ig_key_principal(const struct ig_key *key, struct ig_principal *out);

/* ---- for `ingot keys` ---------------------------------------------------------- */

/* Lock the file against others that change it (its folder is made); *lock_fd is to be
 * closed when done. */
int ig_keys_lock(const char *path, int *lock_fd, struct ig_error *err);
/* A new key of 32 random bytes: its text in token; its hash, time and, where key->id is
 * "", an id that keys (may be NULL) does not have, in *key. */
int ig_key_generate(const struct ig_keys *keys, struct ig_key *key, char token[IG_KEY_TOKEN_CAP],
		    struct ig_error *err);
/* Write the keys but the one with the id without (NULL: all), then add (NULL: none), to
 * path: a new file of mode 600 that takes the old one's place at once. */
int ig_keys_write(const char *path, const struct ig_keys *keys, const char *without,
		  const struct ig_key *add, struct ig_error *err);
/* Whether text is an id, or a note, that the file can hold. */
bool ig_key_id_ok(const char *id);
bool ig_key_note_ok(const char *note);
const char *ig_role_name(enum ig_role role); /* "user", "administrator", "monitor" */
