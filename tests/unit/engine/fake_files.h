/*
 * fake_files.h: what the parts of the fake runtime share: its files, and what goes wrong.
 */
#pragma once

#include <ingot/error.h>

#include <stdbool.h>

struct ig_checkpoint {
	char path[64];
};

/* Whether it is a small model, for drafts; the kind of tokens it makes: a small model's is the one that
 * it guesses. */
bool fake_is_small(const char *path);
const char *fake_own_kind(const char *path);
/* Whether it has a head that guesses. */
bool fake_has_head(const char *path);
/* Count what the engine did wrong; the first text is kept. */
void fake_report(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int fake_no_memory(struct ig_error *err);
