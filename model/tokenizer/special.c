/*
 * special.c: tokens that are cut out of a text by their bytes: control tokens where the caller
 * allows it, user-defined ones anywhere.  They are sorted, so that those with a common prefix are
 * one range.
 */
#include "model/tokenizer/tokenizer_private.h"

#include <errno.h>
#include <stdlib.h>

static int compare_specials(const void *a, const void *b)
{
	const struct ig_special *x = a, *y = b;
	int c = memcmp(x->bytes, y->bytes, x->len < y->len ? x->len : y->len);

	if (c)
		return c;
	if (x->len != y->len)
		return x->len < y->len ? -1 : 1;
	return x->id < y->id ? -1 : 1;
}

void ig_specials_sort(struct ig_special_set *set, const uint8_t *kinds)
{
	qsort(set->list, set->n, sizeof *set->list, compare_specials);
	for (uint32_t i = set->n; i-- > 0;) {
		unsigned char first = (unsigned char)set->list[i].bytes[0];
		set->by_byte[first].first = i;
		if (!set->by_byte[first].last)
			set->by_byte[first].last = i + 1;
		if (kinds[set->list[i].id] == IG_TOKEN_USER)
			set->has_user = true;
	}
}

int ig_tokenizer_collect_specials(struct ig_tokenizer *t)
{
	struct ig_special_set *set = &t->specials;
	uint32_t n = 0;

	for (uint32_t id = 0; id < t->n_vocab; id++)
		n += (t->kinds[id] == IG_TOKEN_USER || t->kinds[id] == IG_TOKEN_CONTROL) &&
		     ig_tokenizer_len(t, (int32_t)id);
	set->list = malloc((n ? n : 1) * sizeof *set->list);
	if (!set->list)
		return -ENOMEM;
	for (uint32_t id = 0; id < t->n_vocab; id++)
		if ((t->kinds[id] == IG_TOKEN_USER || t->kinds[id] == IG_TOKEN_CONTROL) &&
		    ig_tokenizer_len(t, (int32_t)id))
			set->list[set->n++] = (struct ig_special){
				.bytes = t->bytes + t->starts[id],
				.len = (uint32_t)ig_tokenizer_len(t, (int32_t)id),
				.id = (int32_t)id,
			};
	ig_specials_sort(set, t->kinds);
	return 0;
}

/* The first of specials [first, last), which have a common prefix of depth bytes, whose byte at
 * depth is at least c. */
static uint32_t lower_bound(const struct ig_special_set *set, uint32_t first, uint32_t last,
			    size_t depth, unsigned c)
{
	while (first < last) {
		uint32_t mid = first + (last - first) / 2;
		if ((unsigned char)set->list[mid].bytes[depth] < c)
			first = mid + 1;
		else
			last = mid;
	}
	return first;
}

/* The range of tokens that match so far shrinks with each byte. */
const struct ig_special *ig_tokenizer_match(const struct ig_tokenizer *t,
					    const struct ig_special_set *set, const char *text,
					    const uint8_t *client, size_t len, bool control)
{
	const struct ig_special *best = NULL;
	uint32_t first = set->by_byte[(unsigned char)text[0]].first;
	uint32_t last = set->by_byte[(unsigned char)text[0]].last;

	for (size_t depth = 1; first < last; depth++) {
		control = control && !(client && client[depth - 1]);
		/* Those that end here sort first, the lowest id before its twins. */
		for (bool found = false; first < last && set->list[first].len == depth; first++) {
			if (!found && (control || t->kinds[set->list[first].id] == IG_TOKEN_USER)) {
				best = &set->list[first];
				found = true;
			}
		}
		if (depth == len)
			break;
		unsigned c = (unsigned char)text[depth];
		first = lower_bound(set, first, last, depth, c);
		last = lower_bound(set, first, last, depth, c + 1);
	}
	return best;
}

bool ig_tokenizer_is_control(const struct ig_tokenizer *t, const char *s, size_t len)
{
	const struct ig_special *x =
		len ? ig_tokenizer_match(t, &t->specials, s, NULL, len, true) : NULL;

	return x && x->len == len && t->kinds[x->id] == IG_TOKEN_CONTROL;
}

int32_t ig_tokenizer_find_special(const struct ig_tokenizer *t, const char *text)
{
	size_t len = strlen(text);
	const struct ig_special_set *set = &t->specials;
	uint32_t first = set->by_byte[(unsigned char)text[0]].first;
	uint32_t last = set->by_byte[(unsigned char)text[0]].last;

	for (; first < last; first++) {
		const struct ig_special *x = &set->list[first];
		if (x->len == len && !memcmp(x->bytes, text, len) &&
		    t->kinds[x->id] == IG_TOKEN_CONTROL)
			return x->id;
	}
	return -1;
}
