/*
 * options.h: a command's options as a table, read from argv and printed as help.
 * Values point into argv; nothing is allocated.
 */
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
	bool *given;	 /* set when the option was there; may be NULL */
	const char *arg; /* what help calls the value; NULL for flags */
	const char *help;
	double min, max;
};

/* Read argv[0 … argc-1] (the command's name is not among them).  What is no option
 * is moved to the front of argv in its order and counted in *n_args; everything
 * after "--" is no option, nor is a lone "-".  -EINVAL names what is wrong and, for
 * an unknown option, the nearest one. */
int ig_options_parse(const struct ig_option *opts, int argc, char **argv, int *n_args,
		     struct ig_error *err);
/* Print usage, about and the table. */
void ig_options_help(FILE *f, const char *usage, const char *about, const struct ig_option *opts);

/* "24h" as seconds; false when it is none. */
bool ig_parse_duration(const char *s, int64_t *seconds);
/* The one of names (NULL-terminated) that is nearest to s, or NULL when none is near. */
const char *ig_nearest_name(const char *s, const char *const *names);
