/*
 * fuzz_keys.c: any bytes as a file of keys.  What is accepted must keep its promises,
 * come back the same when it is written out by hand, and open to nobody; what is refused
 * must say where.
 */
#include "store/keys.h"

#include <stdlib.h>
#include <string.h>

static void check(const struct ig_keys *keys)
{
	if (ig_keys_count(keys) > IG_KEYS_MAX)
		abort();
	for (size_t i = 0; i < ig_keys_count(keys); i++) {
		const struct ig_key *k = ig_keys_at(keys, i);
		const uint32_t limits[] = { k->limits.max_concurrent, k->limits.requests_per_minute,
					    k->limits.tokens_per_minute };
		if (!ig_key_id_ok(k->id) || !ig_key_note_ok(k->note) || strlen(k->created) != 20 ||
		    ig_keys_by_id(keys, k->id) != k)
			abort();
		if (k->weight > IG_WEIGHT_MAX || abs(k->priority) > IG_PRIORITY_MAX)
			abort();
		for (size_t j = 0; j < 3; j++)
			if (limits[j] > IG_LIMIT_MAX && limits[j] != IG_LIMIT_NONE)
				abort();
	}
}

/* The same entries in the plainest form. */
static void write_out(const struct ig_keys *keys, struct ig_strbuf *b)
{
	for (size_t i = 0; i < ig_keys_count(keys); i++) {
		const struct ig_key *k = ig_keys_at(keys, i);
		ig_strbuf_printf(b, "%s %s ", k->id, ig_role_name(k->role));
		for (size_t j = 0; j < sizeof k->hash; j++)
			ig_strbuf_printf(b, "%02x", k->hash[j]);
		ig_strbuf_printf(b, " %s note=%s\n", k->created, k->note);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ig_keys *a = NULL, *b = NULL;
	struct ig_error err = { 0 };
	struct ig_strbuf text;

	if (ig_keys_parse((const char *)data, size, "f", &a, &err)) {
		if (a || !err.code || strncmp(err.text, "f:", 2))
			abort();
		return 0;
	}
	check(a);
	if (ig_keys_find(a, (const char *)data, size) && size > 1024)
		abort();
	text = (struct ig_strbuf){ 0 };
	write_out(a, &text);
	if (ig_keys_parse(text.data ? text.data : "", text.len, "f", &b, &err) ||
	    ig_keys_count(a) != ig_keys_count(b))
		abort();
	for (size_t i = 0; i < ig_keys_count(a); i++)
		if (strcmp(ig_keys_at(a, i)->id, ig_keys_at(b, i)->id) ||
		    strcmp(ig_keys_at(a, i)->note, ig_keys_at(b, i)->note) ||
		    memcmp(ig_keys_at(a, i)->hash, ig_keys_at(b, i)->hash, 32))
			abort();
	ig_strbuf_finish(&text);
	ig_keys_destroy(a);
	ig_keys_destroy(b);
	return 0;
}
