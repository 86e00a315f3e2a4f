/* charset.c: sets of characters as ranges of code points, and the general categories of
 * the Unicode standard (utf8proc's tables). */
#include "model/grammar/charset_private.h"

#include "base/array.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

void ig_charset_finish(struct ig_charset *s)
{
	free(s->ranges);
	*s = (struct ig_charset){ 0 };
}

void ig_charset_add(struct ig_charset *s, uint32_t first, uint32_t last)
{
	if (s->rc || first > last)
		return;
	if (s->n && s->ranges[s->n - 1].last + 1 == first) {
		s->ranges[s->n - 1].last = last;
		return;
	}
	if (ig_array_grow(s->ranges, &s->cap, s->n))
		s->ranges[s->n++] = (struct ig_char_range){ first, last };
	else
		s->rc = -ENOMEM;
}

void ig_charset_add_set(struct ig_charset *s, const struct ig_charset *t)
{
	if (t->rc)
		s->rc = t->rc;
	for (uint32_t i = 0; i < t->n; i++)
		ig_charset_add(s, t->ranges[i].first, t->ranges[i].last);
}

static int compare(const void *a, const void *b)
{
	const struct ig_char_range *x = a, *y = b;

	return x->first < y->first ? -1 : x->first > y->first;
}

void ig_charset_sort(struct ig_charset *s)
{
	uint32_t n = 0;

	if (s->rc || s->n < 2)
		return;
	qsort(s->ranges, s->n, sizeof *s->ranges, compare);
	for (uint32_t i = 1; i < s->n; i++) {
		if (s->ranges[i].first > s->ranges[n].last + 1)
			s->ranges[++n] = s->ranges[i];
		else if (s->ranges[i].last > s->ranges[n].last)
			s->ranges[n].last = s->ranges[i].last;
	}
	s->n = n + 1;
}

void ig_charset_negate(struct ig_charset *s)
{
	struct ig_charset out = { .rc = s->rc };
	uint32_t next = 1;

	ig_charset_add(s, 0xd800, 0xdfff);
	ig_charset_sort(s);
	for (uint32_t i = 0; i < s->n; i++) {
		if (s->ranges[i].first > next)
			ig_charset_add(&out, next, s->ranges[i].first - 1);
		if (s->ranges[i].last >= next)
			next = s->ranges[i].last + 1;
	}
	if (next <= IG_CHAR_MAX)
		ig_charset_add(&out, next, IG_CHAR_MAX);
	if (s->rc)
		out.rc = s->rc;
	free(s->ranges);
	*s = out;
}

void ig_charset_fold(struct ig_charset *s)
{
	struct ig_charset more = { 0 };

	for (uint32_t i = 0; i < s->n; i++) {
		for (uint32_t c = s->ranges[i].first; c <= s->ranges[i].last; c++) {
			uint32_t low = (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
			uint32_t high = (uint32_t)utf8proc_toupper((utf8proc_int32_t)c);
			if (low != c)
				ig_charset_add(&more, low, low);
			if (high != c)
				ig_charset_add(&more, high, high);
		}
	}
	ig_charset_add_set(s, &more);
	ig_charset_finish(&more);
}

/* In the order of utf8proc_category_t. */
static const char categories[][3] = {
	"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
	"Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co",
};

/* Characters in a row that are of one category. */
struct run {
	uint32_t first; /* up to the next run's */
	utf8proc_category_t category;
};

/* Every character's, from U+0001 on, with an end behind the last one; NULL: no memory. */
static struct run *find_runs(uint32_t *n)
{
	struct run *runs = NULL;
	uint32_t n_runs = 0, cap = 0;

	for (uint32_t c = 1; c <= IG_CHAR_MAX + 1; c++) {
		utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);

		if (n_runs && c <= IG_CHAR_MAX && runs[n_runs - 1].category == k)
			continue;
		if (!ig_array_grow(runs, &cap, n_runs)) {
			free(runs);
			return NULL;
		}
		runs[n_runs++] = (struct run){ c, k };
	}
	*n = n_runs - 1;
	return runs;
}

/* The same, found once: that takes a look at a million characters. */
static const struct run *all_runs(uint32_t *n)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static const struct run *runs;
	static uint32_t n_runs;

	pthread_mutex_lock(&lock);
	if (!runs)
		runs = find_runs(&n_runs);
	pthread_mutex_unlock(&lock);
	*n = runs ? n_runs : 0;
	return runs;
}

bool ig_charset_add_category(struct ig_charset *s, const char *name, size_t len)
{
	bool wanted[sizeof categories / sizeof categories[0]] = { false }, any = false;
	const struct run *runs;
	uint32_t n = 0;

	for (unsigned i = 0; i < sizeof categories / sizeof categories[0]; i++) {
		if (len && len <= 2 && !memcmp(categories[i], name, len))
			any = wanted[i] = true;
	}
	runs = any ? all_runs(&n) : NULL;
	if (any && !runs)
		s->rc = -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		if (wanted[runs[i].category])
			ig_charset_add(s, runs[i].first, runs[i + 1].first - 1);
	}
	return any;
}
