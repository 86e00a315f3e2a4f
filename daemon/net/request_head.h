/* request_head.h: the head of an HTTP/1 request, from bytes to a request line and fields.  Pure
 * functions. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Bytes of a request line; a server takes at least 8000. */
#define IG_MAX_REQUEST_LINE 8192

enum ig_head_rc {
	IG_HEAD_MORE, /* it is not complete */
	IG_HEAD_WHOLE,
	IG_HEAD_LONG_LINE,
	IG_HEAD_TOO_LONG,
	IG_HEAD_BAD_LINE,
	IG_HEAD_BAD_FIELD,
};

struct ig_head {
	const char *method, *version;
	char *target;
	const char *fields; /* "name\0value\0name\0value\0\0"; names in lower case */
};

/* Find the end of the head at the start of data.  *scanned: zero at first, then what the call
 * before left there; with IG_HEAD_WHOLE the length of the head. */
enum ig_head_rc ig_head_find(const char *data, size_t n, size_t max, size_t *scanned);
/* Parse a whole head of n bytes, in place: h points into data.  IG_HEAD_WHOLE or an error. */
enum ig_head_rc ig_head_parse(char *data, size_t n, struct ig_head *h);
/* The first value of a field by its name in lower case; NULL: there is none.  *n: how many there
 * are; may be NULL. */
const char *ig_head_field(const struct ig_head *h, const char *name, size_t *n);
/* Whether the list of tokens of a field, such as Connection, has this one. */
bool ig_head_has_token(const struct ig_head *h, const char *name, const char *token);
/* The rest of the first element of such a list that begins with prefix, up to *n bytes; NULL: none
 * does. */
const char *ig_head_find_token(const struct ig_head *h, const char *name, const char *prefix,
			       size_t *n);
/* Whether Accept names text/html, as browsers' do for what they show. */
bool ig_head_wants_html(const struct ig_head *h);
/* The value of a field in a head that was not parsed, and may be broken or cut, copied to out;
 * false: none, or longer than out. */
bool ig_head_peek(const char *data, size_t n, const char *name, char *out, size_t cap);
/* Divide a target into its path and its query ("": none), both decoded, in place.  False: it is not
 * a path, or wrongly escaped. */
bool ig_head_target(char *target, char **path, char **query);
