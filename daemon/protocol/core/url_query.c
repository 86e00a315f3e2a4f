/* url_query.c: see url_query.h. */
#include "daemon/protocol/core/url_query.h"

#include <stdlib.h>
#include <string.h>

/* Copy up to end, truncated to cap. */
static void copy(char *out, size_t cap, const char *s, const char *end)
{
	size_t n = (size_t)(end - s) < cap ? (size_t)(end - s) : cap - 1;

	memcpy(out, s, n);
	out[n] = 0;
}

bool ig_query_next(const char **query, struct ig_query_pair *p)
{
	while (**query == '&')
		++*query;
	if (!**query)
		return false;
	const char *end = *query + strcspn(*query, "&"),
		   *eq = memchr(*query, '=', (size_t)(end - *query));
	copy(p->name, sizeof p->name, *query, eq ? eq : end);
	copy(p->value, sizeof p->value, eq ? eq + 1 : end, end);
	*query = end;
	return true;
}

int ig_query_limit(const struct ig_query_pair *p, int32_t max, int32_t *out, struct ig_api_error *e)
{
	size_t n = strlen(p->value);

	*out = n && n <= 6 && strspn(p->value, "0123456789") == n ? atoi(p->value) : 0;
	if (*out < 1 || *out > max)
		return ig_fail_value(e, p->name, "expected an integer from 1 to %d", max);
	return 0;
}
