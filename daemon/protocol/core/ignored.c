/*
 * ignored.c: the list of what a request has that is not known here: fields, parts and tools that were
 * invented later, or that only other servers have.
 */
#include "daemon/protocol/core/params.h"

#include <stdio.h>
#include <string.h>

/* Whether two names are the same but for the indices of lists. */
static bool is_same(const char *a, size_t n, const char *b)
{
	size_t i = 0;

	for (; i < n && *b; i++, b++) {
		if (a[i] != *b)
			return false;
		if (*b != '[')
			continue;
		while (i + 1 < n && a[i + 1] >= '0' && a[i + 1] <= '9')
			i++;
		while (b[1] >= '0' && b[1] <= '9')
			b++;
	}
	return i == n && !*b;
}

static bool is_listed(const char *list, const char *name)
{
	for (const char *p = list, *end; *p; p = *end ? end + 2 : end) {
		end = strstr(p, ", ");
		if (!end)
			end = p + strlen(p);
		if (is_same(p, (size_t)(end - p), name))
			return true;
	}
	return false;
}

/* Fit for a header, and for a list that commas separate. */
static void make_plain(char *s)
{
	for (; *s; s++)
		if (*s <= 0x20 || *s > 0x7e || *s == ',')
			*s = '?';
}

int ig_request_ignore(struct ig_request *r, const char *name, const char *value,
		      const char *accepted, struct ig_api_error *e)
{
	static const char more[] = ", ...";
	char full[224], shown[64] = "";
	size_t n = strlen(r->ignored);

	if (value)
		ig_printable(shown, sizeof shown, value);
	if (r->refuse_unknown && !value)
		return ig_fail_unsupported(e, name, accepted);
	if (r->refuse_unknown)
		return ig_api_fail(e, 400, "unsupported_parameter", name,
				   "Unsupported value: '%s' is '%s'%s%s.", name, shown,
				   accepted ? "; this server has " : "", accepted ? accepted : "");
	snprintf(full, sizeof full, "%s%s%s", name, value ? "=" : "", shown);
	make_plain(full);
	if (is_listed(r->ignored, full) || is_listed(r->ignored, more + 2))
		return 0;
	if (n + 2 + strlen(full) + sizeof more > sizeof r->ignored)
		snprintf(r->ignored + n, sizeof r->ignored - n, "%s", more);
	else
		snprintf(r->ignored + n, sizeof r->ignored - n, "%s%s", n ? ", " : "", full);
	return 0;
}
