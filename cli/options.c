/*
 * options.c: see options.h.  Takes --name VALUE, --name=VALUE, -x VALUE and flags,
 * before, between and after the other arguments.
 */
#include "cli/options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAME 64

static size_t edit_distance(const char *a, const char *b)
{
	size_t row[MAX_NAME + 1], n = strlen(b);

	if (n > MAX_NAME || strlen(a) > MAX_NAME)
		return SIZE_MAX;
	for (size_t j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 0; a[i]; i++) {
		size_t diagonal = row[0];
		row[0] = i + 1;
		for (size_t j = 0; j < n; j++) {
			size_t best = diagonal + (a[i] != b[j]);
			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j + 1] + 1 < best)
				best = row[j + 1] + 1;
			diagonal = row[j + 1];
			row[j + 1] = best;
		}
	}
	return row[n];
}

const char *ig_nearest_name(const char *s, const char *const *names)
{
	const char *best = NULL;
	size_t least = strlen(s) / 3 + 2; /* farther than this is no typing error */

	for (; *names; names++) {
		size_t d = edit_distance(s, *names);
		if (d < least) {
			least = d;
			best = *names;
		}
	}
	return best;
}

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
				"--%s: '%s' is no duration; say 90s, 15m, 24h, 7d, 2w or all",
				o->name, v);
		break;
	}
	if (o->given)
		*o->given = true;
	return 0;
}

static int unknown_option(const struct ig_option *opts, const char *arg, struct ig_error *err)
{
	const char *names[65];
	char name[MAX_NAME];
	size_t n = 0;

	snprintf(name, sizeof name, "%.*s", (int)strcspn(arg, "="), arg);
	for (const struct ig_option *o = opts; o->name && n < 64; o++)
		names[n++] = o->name;
	names[n] = NULL;
	const char *near = ig_nearest_name(name + strspn(name, "-"), names);
	if (near)
		return ig_fail(err, -EINVAL, "unknown option %s; did you mean --%s?", name, near);
	return ig_fail(err, -EINVAL, "unknown option %s", name);
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
