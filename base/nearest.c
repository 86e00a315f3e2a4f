/* nearest.c: see nearest.h. */
#include "base/nearest.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define MAX_NAME 64

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

size_t ig_edit_distance(const char *a, const char *b)
{
	size_t row[3][MAX_NAME + 1], n = strlen(a), m = strlen(b);

	if (n > MAX_NAME || m > MAX_NAME)
		return SIZE_MAX;
	for (size_t j = 0; j <= m; j++)
		row[0][j] = j;
	for (size_t i = 1; i <= n; i++) {
		size_t *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
		now[0] = i;
		for (size_t j = 1; j <= m; j++) {
			now[j] = least(last[j - 1] + (a[i - 1] != b[j - 1]),
				       least(last[j], now[j - 1]) + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				now[j] = least(now[j], before[j - 2] + 1);
		}
	}
	return row[n % 3][m];
}

const char *ig_nearest_name(const char *s, const void *table, size_t stride)
{
	size_t best = strlen(s) / 3 + 2;
	const char *nearest = NULL;

	for (const char *entry = table;; entry += stride) {
		const char *name = *(const char *const *)(const void *)entry;
		if (!name)
			return nearest;
		size_t d = ig_edit_distance(s, name);
		if (d < best) {
			best = d;
			nearest = name;
		}
	}
}

const char *ig_did_you_mean(char buf[96], const char *s, const char *prefix, const void *table,
			    size_t stride)
{
	const char *near = ig_nearest_name(s, table, stride);

	buf[0] = 0;
	if (near)
		snprintf(buf, 96, "; did you mean %s%s?", prefix, near);
	return buf;
}
