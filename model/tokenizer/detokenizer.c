/* detokenizer.c: see detokenizer.h.  A token may end inside a character; its first bytes are held
 * until the rest comes or can't come any more. */
#include "model/tokenizer/detokenizer.h"

#include "base/utf8.h"

#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */
#define REPLACEMENT_BYTES 3

void ig_detokenizer_init(struct ig_detokenizer *d, const struct ig_tokenizer *t)
{
	*d = (struct ig_detokenizer){ .tokenizer = t };
}

void ig_detokenizer_begin(struct ig_detokenizer *d)
{
	d->at_start = ig_tokenizer_adds_space(d->tokenizer) || ig_tokenizer_trims(d->tokenizer);
}

void ig_detokenizer_show(struct ig_detokenizer *d, const int32_t *ids, unsigned n)
{
	d->shown = ids;
	d->n_shown = n;
}

static bool is_shown(const struct ig_detokenizer *d, int32_t id)
{
	for (unsigned i = 0; i < d->n_shown; i++)
		if (d->shown[i] == id)
			return true;
	return false;
}

static size_t replace(char *buf)
{
	memcpy(buf, REPLACEMENT, REPLACEMENT_BYTES);
	return REPLACEMENT_BYTES;
}

static size_t put_byte(struct ig_detokenizer *d, unsigned char byte, char *buf)
{
	size_t n = 0;

	d->held[d->n_held++] = byte;
	while (d->n_held) {
		int c = ig_utf8_check(d->held, d->n_held);
		if (c == 0)
			break;
		unsigned used = c > 0 ? (unsigned)c : (unsigned)-c;
		if (c > 0) {
			memcpy(buf + n, d->held, used);
			n += used;
		} else {
			n += replace(buf + n);
		}
		d->n_held -= used;
		memmove(d->held, d->held + used, d->n_held);
	}
	return n;
}

size_t ig_detokenizer_put(struct ig_detokenizer *d, int32_t id, char *buf)
{
	size_t len, n = 0;
	bool special;
	const char *bytes = ig_tokenizer_token(d->tokenizer, id, &len, &special);

	if (!bytes || (special && !is_shown(d, id)))
		return 0;
	bool left_out = d->at_start && len && bytes[0] == ' ';
	for (size_t i = left_out; i < len; i++)
		n += put_byte(d, (unsigned char)bytes[i], buf + n);
	if (n || d->n_held || (left_out && !ig_tokenizer_trims(d->tokenizer)))
		d->at_start = false;
	return n;
}

size_t ig_detokenizer_flush(struct ig_detokenizer *d, char *buf)
{
	/* The held bytes are a prefix of one character: one invalid sequence. */
	size_t n = d->n_held ? replace(buf) : 0;

	d->n_held = 0;
	return n;
}

size_t ig_detokenizer_max(const struct ig_tokenizer *t)
{
	/* At worst each byte, and what is held, becomes a U+FFFD of its own. */
	return REPLACEMENT_BYTES *
	       (ig_tokenizer_longest(t) + sizeof((struct ig_detokenizer *)0)->held);
}
