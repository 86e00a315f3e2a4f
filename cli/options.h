/* options.h: a command's options as a table, read from argv and printed as help.
 * Values point into argv; nothing is allocated. */
#pragma once

#include <ingot/error.h>
#include <stdbool.h>

enum ig_option_kind {
	IG_OPT_FLAG,	 /* bool */
	IG_OPT_STRING,	 /* const char * */
	IG_OPT_INT,	 /* int64_t within [min, max] */
	IG_OPT_U64,	 /* uint64_t */
	IG_OPT_NUMBER,	 /* double within [min, max] */
	IG_OPT_DURATION, /* int64_t seconds: 90s 15m 24h 7d 2w; "all" is 0 */
};

struct ig_option {
	const char *name; /* without the dashes; NULL ends the table */
	char letter;	  /* 0: none */
	enum ig_option_kind kind;
	void *value;	 /* of the kind's type */
	bool *given;	 /* set to true when the option is given; may be NULL */
	const char *arg; /* what help calls the value; NULL for flags */
	const char *help;
	double min, max;
};

/* Entries of a table: a flag, a text, and any with all members. */
#define IG_FLAG(name, letter, value, help) { name, letter, IG_OPT_FLAG, value, NULL, NULL, help }
#define IG_TEXT(name, letter, value, arg, help)                                                    \
	{ name, letter, IG_OPT_STRING, value, NULL, arg, help }
#define IG_OPTION(...) { __VA_ARGS__ }

/* Read argv[0 … argc-1], which starts after the command's name.  Arguments that are not options
 * are moved to the front of argv in their order and counted in *n_args; everything after "--" is
 * an argument, and so is a lone "-".  -EINVAL with text; for an unknown option the text has the
 * nearest known one. */
int ig_options_parse(const struct ig_option *opts, int argc, char **argv, int *n_args,
		     struct ig_error *err);
/* Print usage, about and the table. */
void ig_options_help(FILE *f, const char *usage, const char *about, const struct ig_option *opts);

/* How a command starts: read its options, and --help.  usage begins with the command's name;
 * n_args NULL: arguments are an error.  -1: run the command; otherwise the exit status, the text
 * is printed already. */
int ig_command_start(const char *usage, const char *about, const struct ig_option *opts, int argc,
		     char **argv, int *n_args);
/* Print "COMMAND: why (ingot help COMMAND)"; the exit status of wrong usage.  command may go on
 * after the name, as in usage. */
__attribute__((format(printf, 2, 3))) int ig_wrong_usage(const char *command, const char *fmt, ...);

/* "24h" as seconds; false when s is not a duration. */
bool ig_parse_duration(const char *s, int64_t *seconds);
