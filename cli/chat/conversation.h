/* conversation.h: the turns of a user and a model in their order, and the file that /save writes
 * and /load reads.  Uses no socket. */
#pragma once

#include <ingot/error.h>
#include <stdbool.h>

#include "base/strbuf.h"

#define IG_CONVERSATION_MAX_BYTES (64u << 20) /* of a saved file */
#define IG_CONVERSATION_MAX_TURNS 100000

struct ig_turn {
	bool assistant; /* else the user */
	char *text;	/* UTF-8, len bytes and a NUL */
	size_t len;
};

/* User and assistant alternate, the user first; n is even. */
struct ig_conversation {
	struct ig_turn *turns;
	size_t n, cap;
	char *model, *system; /* NULL: not set */
};

void ig_conversation_init(struct ig_conversation *c);
void ig_conversation_finish(struct ig_conversation *c); /* c is as after init */
/* Append a message and its reply: both, or -ENOMEM and neither. */
int ig_conversation_add(struct ig_conversation *c, const char *question, size_t n_question,
			const char *reply, size_t n_reply);
/* Remove the last message and its reply; *question is the message then (the caller frees it),
 * unless question is NULL.  False when there is none. */
bool ig_conversation_undo(struct ig_conversation *c, char **question, size_t *n_question);
/* Remove the turns, keep model and system. */
void ig_conversation_clear(struct ig_conversation *c);
/* *field is c->model or c->system; NULL or "" removes it. */
int ig_conversation_set(char **field, const char *text);

/* One JSON object, as save writes it. */
bool ig_conversation_write(const struct ig_conversation *c, struct ig_strbuf *out);
/* Replace c by what ig_conversation_write wrote; on an error c does not change.  label names the
 * file in messages. */
int ig_conversation_parse(struct ig_conversation *c, const char *text, size_t len,
			  const char *label, struct ig_error *err);
/* Write the file, mode 600, whole or not at all.  An existing file is replaced only if it is a
 * saved conversation (-EEXIST). */
int ig_conversation_save(const struct ig_conversation *c, const char *path, struct ig_error *err);
int ig_conversation_load(struct ig_conversation *c, const char *path, struct ig_error *err);
