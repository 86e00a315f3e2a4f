/* lookup.c: see lookup_private.h. */
#include "daemon/engine/lookup_private.h"

#include <errno.h>
#include <stdlib.h>

#define LEAST_MATCH 2  /* tokens; the index has pairs */
#define LONG_MATCH 16  /* a longer one is not searched for */
#define MOST_PLACES 64 /* that a search looks at, the newest first */
#define SOLID_MATCH 4  /* where one of so many tokens ends, the text may go on soon */
#define NEAR 16	       /* tokens behind that place and since then in which it may */
#define NEAR_BONUS 2   /* tokens that a match there counts more */
#define KEPT 0.97f     /* of what was counted, with the next trial in its class */

/* Matches of at least so many tokens, and the chance that is assumed of them until trials that
 * weigh as much as PRIOR_TRIALS show another: rather too small, since it costs nothing to find out. */
static const struct {
	uint32_t n_match;
	float chance;
} classes[IG_LOOKUP_CLASSES] = {
	{ 0, 0.25f }, { 2, 0.1f },   { 3, 0.2f },   { 4, 0.4f },
	{ 8, 0.7f },  { 16, 0.85f }, { 32, 0.95f },
};
#define PRIOR_TRIALS 3.0f

int ig_lookup_init(struct ig_lookup *l, uint32_t capacity)
{
	*l = (struct ig_lookup){ .n_buckets = 64, .capacity = capacity, .at = -1, .lost = -1 };
	while (l->n_buckets < capacity && l->n_buckets < 1u << 30)
		l->n_buckets *= 2;
	l->newest = calloc(l->n_buckets, sizeof *l->newest);
	l->older = malloc(((size_t)capacity + 1) * sizeof *l->older);
	if (l->newest && l->older)
		return 0;
	ig_lookup_finish(l);
	return -ENOMEM;
}

void ig_lookup_finish(struct ig_lookup *l)
{
	free(l->newest);
	free(l->older);
	*l = (struct ig_lookup){ 0 };
}

/* ---- the index ------------------------------------------------------------------------------ */

/* The places after pairs with the hash of the two tokens before this one. */
static uint32_t *bucket(const struct ig_lookup *l, const int32_t *text, uint32_t place)
{
	uint64_t pair = (uint64_t)(uint32_t)text[place - 2] << 32 | (uint32_t)text[place - 1];

	return &l->newest[(pair * 0x9e3779b97f4a7c15u >> 32) & (l->n_buckets - 1)];
}

/* The next token will stand at l->n: index it by the two before. */
static void add_place(struct ig_lookup *l, const int32_t *text)
{
	if (l->n < LEAST_MATCH || l->n >= l->capacity)
		return;
	uint32_t *newest = bucket(l, text, l->n);
	l->older[l->n] = *newest;
	*newest = l->n + 1;
}

/* How many tokens before both places are the same. */
static uint32_t match(const int32_t *text, uint32_t place, uint32_t end)
{
	uint32_t n = 0;

	while (n < LONG_MATCH && n < place && text[place - 1 - n] == text[end - 1 - n])
		n++;
	return n;
}

/* The longest match soon behind the place where a long one ended; *best: what it counts. */
static void search_near(struct ig_lookup *l, const int32_t *text, uint32_t *best)
{
	uint32_t last = (uint32_t)l->lost + NEAR + l->n_since;

	for (uint32_t place = (uint32_t)l->lost + 1; place <= last && place < l->n; place++) {
		uint32_t n = match(text, place, l->n);
		if (n && n + NEAR_BONUS > *best) {
			l->at = (int32_t)place;
			l->n_match = n;
			*best = n + NEAR_BONUS;
		}
	}
}

/* Before the end of the text is indexed itself. */
static void search(struct ig_lookup *l, const int32_t *text)
{
	uint32_t next, n_places = 0, best = LEAST_MATCH - 1;

	l->at = -1;
	if (l->n < LEAST_MATCH || l->n >= l->capacity)
		return;
	if (l->lost >= 0)
		search_near(l, text, &best);
	for (next = *bucket(l, text, l->n); next && n_places < MOST_PLACES; n_places++) {
		uint32_t place = next - 1, n = match(text, place, l->n);
		if (n > best) {
			l->at = (int32_t)place;
			l->n_match = best = n;
		}
		if (n == LONG_MATCH)
			break;
		next = l->older[place];
	}
}

void ig_lookup_read(struct ig_lookup *l, const int32_t *text, uint32_t n)
{
	for (l->n = 0; l->n < n; l->n++)
		add_place(l, text);
	search(l, text);
	add_place(l, text);
}

void ig_lookup_expect(struct ig_lookup *l, int32_t at, uint32_t n_match)
{
	l->at = at;
	l->n_match = n_match;
}

/* ---- guesses -------------------------------------------------------------------------------- */

static uint32_t class_of(uint32_t n_match)
{
	uint32_t i = IG_LOOKUP_CLASSES - 1;

	while (n_match < classes[i].n_match)
		i--;
	return i;
}

static void count(struct ig_lookup *l, bool hit)
{
	uint32_t i = class_of(l->n_match);

	l->trials[i] = KEPT * l->trials[i] + 1;
	l->hits[i] = KEPT * l->hits[i] + (hit ? 1 : 0);
}

/* What was expected did not come. */
static void lose(struct ig_lookup *l)
{
	if (l->at >= 0 && l->n_match >= SOLID_MATCH) {
		l->lost = l->at;
		l->n_since = 0;
	} else if (l->lost >= 0 && ++l->n_since > NEAR) {
		l->lost = -1;
	}
}

void ig_lookup_take(struct ig_lookup *l, const int32_t *text)
{
	bool hit = l->at >= 0 && text[l->at] == text[l->n];

	if (l->at >= 0)
		count(l, hit);
	if (!hit)
		lose(l);
	l->n++;
	if (hit) {
		l->at++;
		l->n_match++;
	} else {
		search(l, text);
	}
	add_place(l, text);
}

double ig_lookup_chance(const struct ig_lookup *l, uint32_t i)
{
	uint32_t c = class_of(l->n_match + i);

	if (!ig_lookup_expects(l))
		return 0;
	return (double)((PRIOR_TRIALS * classes[c].chance + l->hits[c]) /
			(PRIOR_TRIALS + l->trials[c]));
}

void ig_lookup_guess(const struct ig_lookup *l, int32_t *text, uint32_t n)
{
	/* the place may reach the end of the text, whose guesses then repeat */
	for (uint32_t i = 0; i < n; i++)
		text[l->n + i] = text[(uint32_t)l->at + i];
}
