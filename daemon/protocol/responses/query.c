/* query.c: see query.h. */
#include "daemon/protocol/responses/query.h"

#include "daemon/protocol/core/params.h"
#include "daemon/protocol/core/url_query.h"

#include <stdio.h>
#include <string.h>

#define DEFAULT_LIMIT 20
#define MAX_LIMIT 100

static int fail_unknown(const struct ig_query_pair *p, struct ig_api_error *e)
{
	char shown[64];

	ig_printable(shown, sizeof shown, p->name);
	return ig_fail_unsupported(e, shown, NULL);
}

/* The name of a list may have brackets, with an index or without. */
static bool is_list(const char *name, const char *list)
{
	size_t n = strlen(list);

	return !strncmp(name, list, n) && (!name[n] || name[n] == '[');
}

/* A stored response has everything that it was created with. */
static int check_include(const struct ig_query_pair *p, struct ig_api_error *e)
{
	if (!strcmp(p->value, "message.output_text.logprobs") ||
	    !strcmp(p->value, "reasoning.encrypted_content"))
		return 0;
	return ig_fail_unsupported(e, "include",
				   "\"message.output_text.logprobs\" or "
				   "\"reasoning.encrypted_content\"");
}

int ig_query_retrieve(const char *query, struct ig_api_error *e)
{
	struct ig_query_pair p;

	while (ig_query_next(&query, &p)) {
		if (is_list(p.name, "include")) {
			if (check_include(&p, e) < 0)
				return -1;
		} else if (!strcmp(p.name, "stream") || !strcmp(p.name, "include_obfuscation")) {
			if (strcmp(p.value, "false"))
				return ig_fail_unsupported(e, p.name, "false");
		} else {
			return fail_unknown(&p, e);
		}
	}
	return 0;
}

int ig_query_items(const char *query, struct ig_item_query *q, struct ig_api_error *e)
{
	struct ig_query_pair p;

	*q = (struct ig_item_query){ .limit = DEFAULT_LIMIT };
	while (ig_query_next(&query, &p)) {
		if (is_list(p.name, "include")) {
			if (check_include(&p, e) < 0)
				return -1;
		} else if (!strcmp(p.name, "limit")) {
			if (ig_query_limit(&p, MAX_LIMIT, &q->limit, e) < 0)
				return -1;
		} else if (!strcmp(p.name, "order")) {
			q->ascending = !strcmp(p.value, "asc");
			if (!q->ascending && strcmp(p.value, "desc"))
				return ig_fail_value(e, "order", "expected asc or desc");
		} else if (!strcmp(p.name, "after")) {
			snprintf(q->after, sizeof q->after, "%.63s", p.value);
		} else {
			return fail_unknown(&p, e);
		}
	}
	return 0;
}

static const char *id_of(const json_t *list, size_t i)
{
	return ig_json_text(json_array_get(list, i), "id");
}

int ig_query_write(const struct ig_item_query *q, const json_t *list, struct ig_strbuf *out,
		   struct ig_api_error *e)
{
	size_t n = json_array_size(list), first = 0;
	struct ig_json_writer w = { .out = out };

	/* k counts in the requested order. */
#define ITEM(k) (q->ascending ? (k) : n - 1 - (k))
	if (q->after[0]) {
		while (first < n && strcmp(id_of(list, ITEM(first)), q->after))
			first++;
		if (first++ == n)
			return ig_fail_value(e, "after", "no item has this id");
	}
	size_t left = n - first, count = left < (size_t)q->limit ? left : (size_t)q->limit;
	ig_json_putf(&w, "{'object': 'list', 'data': [");
	for (size_t k = first; k < first + count; k++)
		ig_json_put_value(&w, NULL, json_array_get(list, ITEM(k)));
	ig_json_putf(&w, "], 'first_id': %s, 'last_id': %s, 'has_more': %-s}",
		     count ? id_of(list, ITEM(first)) : "",
		     count ? id_of(list, ITEM(first + count - 1)) : "", ig_json_bool(count < left));
#undef ITEM
	return 0;
}
