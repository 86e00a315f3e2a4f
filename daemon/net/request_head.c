/*
 * request_head.c: see request_head.h.  Strict, since lenient readers disagree about where a request
 * ends: a line ends in CR LF, no line is folded, nothing stands between a field's name and its
 * colon, and there are no control characters.
 */
#include "daemon/net/request_head.h"

#include "base/hex.h"

#include <string.h>
#include <strings.h>

enum ig_head_rc ig_head_find(const char *data, size_t n, size_t max, size_t *scanned)
{
	size_t i = *scanned, limit = max < IG_MAX_REQUEST_LINE ? max : IG_MAX_REQUEST_LINE;
	const char *first;

	for (; i < n && i < max; i++) {
		if (data[i] != '\n')
			continue;
		first = memchr(data, '\n', i);
		if (!i || data[i - 1] != '\r')
			return first ? IG_HEAD_BAD_FIELD : IG_HEAD_BAD_LINE;
		if (!first && i > limit)
			return IG_HEAD_LONG_LINE;
		if (i >= 3 && data[i - 2] == '\n') {
			*scanned = i + 1;
			return IG_HEAD_WHOLE;
		}
	}
	*scanned = i;
	first = memchr(data, '\n', i);
	if (!first && i >= limit)
		return IG_HEAD_LONG_LINE;
	return i >= max ? IG_HEAD_TOO_LONG : IG_HEAD_MORE;
}

/* ---- parsing ----------------------------------------------------------------------- */

static bool is_token(const char *s, size_t n)
{
	static const char others[] = "!#$%&'*+-.^_`|~";

	for (size_t i = 0; i < n; i++)
		if (!((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') ||
		      (s[i] >= '0' && s[i] <= '9') || (s[i] && strchr(others, s[i]))))
			return false;
	return n > 0;
}

/* No control characters but a tab. */
static bool is_text(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (((unsigned char)s[i] < ' ' && s[i] != '\t') || s[i] == 0x7f)
			return false;
	return true;
}

static bool parse_line(char *line, size_t n, struct ig_head *h)
{
	char *target = memchr(line, ' ', n), *version;

	if (!is_text(line, n) || memchr(line, '\t', n) || !target ||
	    !is_token(line, (size_t)(target - line)))
		return false;
	*target++ = 0;
	version = strchr(target, ' ');
	if (!version)
		return false;
	*version++ = 0;
	*h = (struct ig_head){ .method = line, .target = target, .version = version };
	return target[0] && !strncmp(version, "HTTP/", 5);
}

static char *put(char *to, const char *s, size_t n)
{
	memmove(to, s, n);
	to[n] = 0;
	return to + n + 1;
}

/* One field, moved to `to`, which is not behind it; the end of what was written, or NULL. */
static char *parse_field(char *to, char *line, size_t n)
{
	char *colon = memchr(line, ':', n), *value, *end = line + n;

	if (!colon || !is_token(line, (size_t)(colon - line)) || !is_text(line, n))
		return NULL;
	for (char *p = line; p < colon; p++)
		if (*p >= 'A' && *p <= 'Z')
			*p = (char)(*p | 0x20);
	for (value = colon + 1; value < end && (*value == ' ' || *value == '\t');)
		value++;
	while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
		end--;
	to = put(to, line, (size_t)(colon - line));
	return put(to, value, (size_t)(end - value));
}

enum ig_head_rc ig_head_parse(char *data, size_t n, struct ig_head *h)
{
	char *line = data, *to, *end = memchr(data, '\n', n);

	*h = (struct ig_head){ 0 };
	if (!end || end == data || end[-1] != '\r')
		return IG_HEAD_BAD_LINE;
	end[-1] = 0;
	if (!parse_line(line, (size_t)(end - 1 - line), h)) {
		*h = (struct ig_head){ 0 };
		return IG_HEAD_BAD_LINE;
	}
	h->fields = to = line = end + 1;
	while ((end = memchr(line, '\n', n - (size_t)(line - data)))) {
		size_t len = (size_t)(end - line);
		if (!len || line[len - 1] != '\r')
			break;
		if (len == 1) {
			*to = 0;
			return IG_HEAD_WHOLE;
		}
		to = parse_field(to, line, len - 1);
		if (!to)
			break;
		line = end + 1;
	}
	h->fields = "";
	return IG_HEAD_BAD_FIELD;
}

/* ---- fields ------------------------------------------------------------------------ */

const char *ig_head_field(const struct ig_head *h, const char *name, size_t *n)
{
	const char *found = NULL, *value;
	size_t count = 0;

	for (const char *p = h->fields; p && *p; p = value + strlen(value) + 1) {
		value = p + strlen(p) + 1;
		if (strcmp(p, name))
			continue;
		if (!found)
			found = value;
		count++;
	}
	if (n)
		*n = count;
	return found;
}

static bool list_has(const char *list, const char *token)
{
	size_t n = strlen(token);

	while (*list) {
		size_t skip = strspn(list, " \t,"), len = strcspn(list + skip, ", \t");
		if (len == n && !strncasecmp(list + skip, token, n))
			return true;
		list += skip + len;
	}
	return false;
}

bool ig_head_has_token(const struct ig_head *h, const char *name, const char *token)
{
	const char *value;

	for (const char *p = h->fields; p && *p; p = value + strlen(value) + 1) {
		value = p + strlen(p) + 1;
		if (!strcmp(p, name) && list_has(value, token))
			return true;
	}
	return false;
}

const char *ig_head_find_token(const struct ig_head *h, const char *name, const char *prefix,
			       size_t *n)
{
	size_t skip = strlen(prefix);
	const char *value;

	for (const char *p = h->fields; p && *p; p = value + strlen(value) + 1) {
		value = p + strlen(p) + 1;
		if (strcmp(p, name))
			continue;
		for (const char *s = value; *s;) {
			s += strspn(s, " \t,");
			*n = strcspn(s, ", \t");
			if (*n > skip && !strncmp(s, prefix, skip)) {
				*n -= skip;
				return s + skip;
			}
			s += *n;
		}
	}
	return NULL;
}

bool ig_head_wants_html(const struct ig_head *h)
{
	static const char type[] = "text/html";
	const char *accept = ig_head_field(h, "accept", NULL);

	while (accept && *accept) {
		accept += strspn(accept, " \t,");
		if (!strncasecmp(accept, type, sizeof type - 1) &&
		    strchr(" \t;,", accept[sizeof type - 1]))
			return true;
		accept += strcspn(accept, ",");
	}
	return false;
}

bool ig_head_peek(const char *data, size_t n, const char *name, char *out, size_t cap)
{
	size_t len = strlen(name), k;

	for (const char *p = memchr(data, '\n', n); p; p = memchr(p, '\n', n)) {
		p++;
		n -= (size_t)(p - data);
		data = p;
		if (n <= len || strncasecmp(p, name, len) || p[len] != ':')
			continue;
		for (p += len + 1, n -= len + 1; n && (*p == ' ' || *p == '\t'); n--)
			p++;
		for (k = 0; k < n && k < cap && p[k] != '\r' && p[k] != '\n'; k++)
			out[k] = p[k];
		if (k == n || k == cap)
			return false;
		while (k && (out[k - 1] == ' ' || out[k - 1] == '\t'))
			k--;
		out[k] = 0;
		return true;
	}
	return false;
}

/* ---- the target -------------------------------------------------------------------- */

/* Decode %XX in place; false: that is malformed or NUL. */
static bool decode(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (*s == '%') {
			int high = ig_hex_digit(s[1]), low = high < 0 ? -1 : ig_hex_digit(s[2]);
			if (low < 0 || !(high | low))
				return false;
			*to++ = (char)(high << 4 | low);
			s += 2;
		} else {
			*to++ = *s;
		}
	}
	*to = 0;
	return true;
}

bool ig_head_target(char *target, char **path, char **query)
{
	char *mark = strchr(target, '?');

	*path = target;
	*query = mark ? mark + 1 : target + strlen(target);
	if (mark)
		*mark = 0;
	return target[0] == '/' && decode(target) && (!mark || decode(mark + 1));
}
