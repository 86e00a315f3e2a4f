/*
 * config_case.h: a configuration from a text, each option's value other than the default, and what
 * ig_config_diff finds, for the tests of the configuration.
 */
#pragma once

#include "store/config_private.h"

/* How the error of a bad port goes on after its key. */
#define PORT "expected a whole number from 0 to 65535, got "

/* A value other than the default, as YAML and as config_format's result. */
struct config_value {
	const char *key, *yaml, *formatted;
	const char *also; /* a line of its section that it needs */
};

/* Each option once, in the table's order. */
extern const struct config_value config_case_others[];
extern const size_t config_case_n_others;

struct config_seen {
	const char *want; /* NULL: the last is noted */
	size_t n;
	char key[64], was[300], is[300];
	bool reloadable;
};

/* In the file /etc/x/ingot.yaml; fails the test when it is refused. */
struct ig_config *config_case_parse(const char *text);
/* The option's value in the configuration base, as config_format has it; to be freed. */
char *config_case_format(const struct config_option *o, const void *base);
/* For ig_config_diff; ctx is a struct config_seen. */
void config_case_note(void *ctx, const char *key, const char *was, const char *is, bool reloads);
