/*
 * tokenizer_special.c: the tokens that are cut out of a text by their bytes: control tokens
 * where the caller says so, user-defined ones anywhere.  They lie sorted, so that those
 * which agree with a text so far are one range.
 */
#include "model/tokenizer-private.h"

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

int ig_tokenizer_sort_specials(struct ig_tokenizer *t)
{
	uint32_t n = 0;

	t->specials = malloc((t->n_specials ? t->n_specials : 1) * sizeof *t->specials);
	if (!t->specials)
		return -ENOMEM;
	for (uint32_t id = 0; id < t->n_vocab; id++)
		if ((t->kinds[id] == IG_TOKEN_USER || t->kinds[id] == IG_TOKEN_CONTROL) &&
		    ig_tokenizer_len(t, (int32_t)id))
			t->specials[n++] = (struct ig_special){
				t->bytes + t->starts[id], (uint32_t)ig_tokenizer_len(t, (int32_t)id),
				(int32_t)id,
			};
	qsort(t->specials, n, sizeof *t->specials, compare_specials);
	for (uint32_t i = n; i-- > 0;) {
		unsigned char first = (unsigned char)t->specials[i].bytes[0];
		t->by_byte[first].first = i;
		if (!t->by_byte[first].last)
			t->by_byte[first].last = i + 1;
	}
	return 0;
}

/* The first of specials [first, last), which agree before depth, whose byte at
 * depth is at least c. */
static uint32_t lower_bound(const struct ig_tokenizer *t, uint32_t first, uint32_t last,
			    size_t depth, unsigned c)
{
	while (first < last) {
		uint32_t mid = first + (last - first) / 2;
		if ((unsigned char)t->specials[mid].bytes[depth] < c)
			first = mid + 1;
		else
			last = mid;
	}
	return first;
}

/* The range of those that still agree shrinks byte by byte. */
const struct ig_special *ig_tokenizer_match(const struct ig_tokenizer *t, const char *text,
					   const uint8_t *client, size_t len, bool control)
{
	const struct ig_special *best = NULL;
	uint32_t first = t->by_byte[(unsigned char)text[0]].first;
	uint32_t last = t->by_byte[(unsigned char)text[0]].last;

	for (size_t depth = 1; first < last; depth++) {
		control = control && !(client && client[depth - 1]);
		/* Those that end here sort first, the lowest id before its twins. */
		for (bool found = false; first < last && t->specials[first].len == depth; first++) {
			if (!found && (control || t->kinds[t->specials[first].id] == IG_TOKEN_USER)) {
				best = &t->specials[first];
				found = true;
			}
		}
		if (depth == len)
			break;
		unsigned c = (unsigned char)text[depth];
		first = lower_bound(t, first, last, depth, c);
		last = lower_bound(t, first, last, depth, c + 1);
	}
	return best;
}

bool ig_tokenizer_is_control(const struct ig_tokenizer *t, const char *s, size_t len)
{
	const struct ig_special *x = len ? ig_tokenizer_match(t, s, NULL, len, true) : NULL;

	return x && x->len == len && t->kinds[x->id] == IG_TOKEN_CONTROL;
}

int32_t ig_tokenizer_find_special(const struct ig_tokenizer *t, const char *text)
{
	size_t len = strlen(text);
	uint32_t first = t->by_byte[(unsigned char)text[0]].first;
	uint32_t last = t->by_byte[(unsigned char)text[0]].last;

	for (; first < last; first++) {
		const struct ig_special *x = &t->specials[first];
		if (x->len == len && !memcmp(x->bytes, text, len) &&
		    t->kinds[x->id] == IG_TOKEN_CONTROL)
			return x->id;
	}
	return -1;
}
