/* options.c: see options.h.  Takes --name VALUE, --name=VALUE, -x VALUE and flags,
 * before, between and after the other arguments. */
#include "cli/options.h"

#include "base/nearest.h"
#include "cli/commands/command.h"
#include "cli/term/text.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OPTIONS 32 /* of one command */

bool ig_parse_duration(const char *s, int64_t *seconds)
{
	static const struct {
		char unit;
		int64_t seconds;
	} units[] = {
		{ 's', 1 }, { 'm', 60 }, { 'h', 3600 }, { 'd', 86400 }, { 'w', 604800 },
	};
	char *end;

	if (!strcmp(s, "all")) {
		*seconds = 0;
		return true;
	}
	if (!isdigit((unsigned char)s[0]))
		return false;
	errno = 0;
	long long n = strtoll(s, &end, 10);
	if (errno || n < 1 || n > 1000000 || !end[0] || end[1])
		return false;
	for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
		if (units[i].unit == end[0]) {
			*seconds = n * units[i].seconds;
			return true;
		}
	return false;
}

static int set_value(const struct ig_option *o, const char *v, struct ig_error *err)
{
	char *end;

	errno = 0;
	switch (o->kind) {
	case IG_OPT_FLAG: *(bool *)o->value = true; break;
	case IG_OPT_STRING: *(const char **)o->value = v; break;
	case IG_OPT_INT: {
		long long n = strtoll(v, &end, 10);
		if (end == v || *end || isspace((unsigned char)v[0]))
			return ig_fail(err, -EINVAL, "--%s: '%s' is not a whole number", o->name,
				       v);
		if (errno || (double)n < o->min || (double)n > o->max)
			return ig_fail(err, -EINVAL, "--%s: %s is not within %.0f … %.0f", o->name,
				       v, o->min, o->max);
		*(int64_t *)o->value = n;
		break;
	}
	case IG_OPT_U64: {
		unsigned long long n = strtoull(v, &end, 10);
		if (!isdigit((unsigned char)v[0]) || *end || errno)
			return ig_fail(err, -EINVAL, "--%s: '%s' is not a whole number of 64 bits",
				       o->name, v);
		*(uint64_t *)o->value = n;
		break;
	}
	case IG_OPT_NUMBER: {
		double x = strtod(v, &end);
		if (end == v || *end || isspace((unsigned char)v[0]) || !isfinite(x))
			return ig_fail(err, -EINVAL, "--%s: '%s' is not a number", o->name, v);
		if (x < o->min || x > o->max)
			return ig_fail(err, -EINVAL, "--%s: %s is not within %g … %g", o->name, v,
				       o->min, o->max);
		*(double *)o->value = x;
		break;
	}
	case IG_OPT_DURATION:
		if (!ig_parse_duration(v, o->value))
			return ig_fail(
				err, -EINVAL,
				"--%s: '%s' is not a duration such as 90s, 15m, 24h, 7d, 2w or all",
				o->name, v);
		break;
	}
	if (o->given)
		*o->given = true;
	return 0;
}

static int unknown_option(const struct ig_option *opts, const char *arg, struct ig_error *err)
{
	char name[64], hint[96];

	snprintf(name, sizeof name, "%.*s", (int)strcspn(arg, "="), arg);
	return ig_fail(err, -EINVAL, "unknown option %s%s", name,
		       ig_did_you_mean(hint, name + strspn(name, "-"), "--", opts, sizeof *opts));
}

int ig_options_parse(const struct ig_option *opts, int argc, char **argv, int *n_args,
		     struct ig_error *err)
{
	int n = 0;

	for (int i = 0; i < argc; i++) {
		char *arg = argv[i];
		const struct ig_option *o;
		const char *value = NULL;

		if (arg[0] != '-' || !arg[1]) {
			argv[n++] = arg;
			continue;
		}
		if (!strcmp(arg, "--")) {
			while (++i < argc)
				argv[n++] = argv[i];
			break;
		}
		if (arg[1] == '-') {
			const char *name = arg + 2;
			size_t len = strcspn(name, "=");
			for (o = opts; o->name; o++)
				if (strlen(o->name) == len && !memcmp(o->name, name, len))
					break;
			if (name[len])
				value = name + len + 1;
		} else {
			for (o = opts; o->name; o++)
				if (o->letter && o->letter == arg[1] && !arg[2])
					break;
		}
		if (!o->name)
			return unknown_option(opts, arg, err);
		if (o->kind == IG_OPT_FLAG) {
			if (value)
				return ig_fail(err, -EINVAL, "--%s takes no value", o->name);
		} else if (!value) {
			if (i + 1 >= argc)
				return ig_fail(err, -EINVAL, "--%s needs a value (%s)", o->name,
					       o->arg);
			value = argv[++i];
		}
		int rc = set_value(o, value, err);
		if (rc)
			return rc;
	}
	*n_args = n;
	return 0;
}

void ig_options_help(FILE *f, const char *usage, const char *about, const struct ig_option *opts)
{
	fprintf(f, "usage: ingot %s\n\n%s\n", usage, about);
	if (opts->name)
		fputs("\noptions:\n", f);
	for (const struct ig_option *o = opts; o->name; o++) {
		char left[64], letter[8] = "    ";
		if (o->letter)
			snprintf(letter, sizeof letter, "-%c, ", o->letter);
		snprintf(left, sizeof left, "%s--%s%s%s", letter, o->name, o->arg ? " " : "",
			 o->arg ? o->arg : "");
		fprintf(f, "  %-30s %s\n", left, o->help);
	}
}

/* ---- commands ------------------------------------------------------------------------ */

int ig_wrong_usage(const char *command, const char *fmt, ...)
{
	size_t n = strcspn(command, " ");
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	ig_complain("%.*s: %s (ingot help %.*s)", (int)n, command, text, (int)n, command);
	return IG_EXIT_USAGE;
}

int ig_command_start(const char *usage, const char *about, const struct ig_option *opts, int argc,
		     char **argv, int *n_args)
{
	struct ig_option all[MAX_OPTIONS + 2] = { 0 };
	struct ig_error err = { 0 };
	bool help = false;
	int n = 0;

	while (opts[n].name && n < MAX_OPTIONS) {
		all[n] = opts[n];
		n++;
	}
	all[n] = (struct ig_option)IG_FLAG("help", 'h', &help, "print this");
	if (ig_options_parse(all, argc, argv, &n, &err))
		return ig_wrong_usage(usage, "%s", err.text);
	if (help) {
		ig_options_help(stdout, usage, about, all);
		return IG_EXIT_OK;
	}
	if (n_args)
		*n_args = n;
	return n && !n_args ? ig_wrong_usage(usage, "no argument is expected") : -1;
}
