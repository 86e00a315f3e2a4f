/*
 * json.h: JSON whole, read and written.  The one way to jansson: its values are used as
 * they are, its reader, which does not survive a failed allocation, is not.
 *
 * What is read is checked by json_scan.h's walk, of which a tree is made; files of
 * megabytes are walked without one.
 */
#pragma once

#include "base/strbuf.h"

#include <ingot/error.h>
#include <jansson.h>
#include <math.h>

/* ---- reading --------------------------------------------------------------------------- */

struct ig_json_limits {
	size_t max_depth;  /* 0: 512 */
	size_t max_values; /* 0: as many as there are */
	bool allow_nul;	   /* U+0000 in strings; never in keys */
};

struct ig_json_error {
	char text[160];
	unsigned line, column; /* of the character that is wrong, from 1; at the end the last */
	size_t byte;
};

/* Any value with nothing behind it; *out is the caller's (json_decref), NULL on failure.
 * A key that comes twice, a number that int64 or double can't hold and half a surrogate pair
 * are errors, as is what is not UTF-8.  0, -EINVAL, -E2BIG beyond the limits (NULL: all 0),
 * or -ENOMEM, each with why's text. */
int ig_json_read(const char *text, size_t len, const struct ig_json_limits *limits, json_t **out,
		 struct ig_json_error *why);
/* The same of a file's text; err: "NAME: line 3, column 5: no JSON: no value". */
int ig_json_read_file(const char *name, const char *text, size_t len, json_t **out,
		      struct ig_error *err);

/* A member's text; NULL when there is none, or another value. */
static inline const char *ig_json_text(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

/* A shallow copy of an object or a list, as json_copy, which overlooks a failed allocation;
 * NULL without memory. */
json_t *ig_json_copy(const json_t *v);

/* ---- writing ------------------------------------------------------------------------------ */

/* Appends to out, whose failure sticks.  Every value in an object has a key, in an array and
 * alone it is NULL.  Commas come by themselves; who opens must close.  Texts must be UTF-8. */
struct ig_json_writer {
	struct ig_strbuf *out;
	bool spaced; /* ", " and ": ", as Python writes it */
	bool comma;  /* a value stands before the next one */
};

void ig_json_open_object(struct ig_json_writer *w, const char *key);
void ig_json_close_object(struct ig_json_writer *w);
void ig_json_open_array(struct ig_json_writer *w, const char *key);
void ig_json_close_array(struct ig_json_writer *w);
void ig_json_put_string(struct ig_json_writer *w, const char *key, const char *s, size_t len);
void ig_json_put_text(struct ig_json_writer *w, const char *key, const char *s); /* NULL: null */
void ig_json_put_int(struct ig_json_writer *w, const char *key, int64_t n);
void ig_json_put_uint(struct ig_json_writer *w, const char *key, uint64_t n);
/* By a format of printf for one double, as "%.3f"; null when it is not finite. */
__attribute__((format(printf, 3, 0))) void
ig_json_put_real(struct ig_json_writer *w, const char *key, const char *format, double x);
void ig_json_put_bool(struct ig_json_writer *w, const char *key, bool b);
/* As jansson writes it; NULL: null. */
void ig_json_put_value(struct ig_json_writer *w, const char *key, const json_t *v);
/* What is JSON already; NULL: null. */
void ig_json_put_raw(struct ig_json_writer *w, const char *key, const char *json);
/* A key of any bytes; its value comes next, with a NULL key. */
void ig_json_put_key(struct ig_json_writer *w, const char *key, size_t len);
/* The comma, if one is due, and a new line. */
void ig_json_put_line(struct ig_json_writer *w);

/* malloc'd; NULL without memory. */
char *ig_json_to_text(const json_t *v);
/* A line on standard output, in ASCII, its reals with so many digits (0: 17); -EIO or 0. */
int ig_json_print(const json_t *v, unsigned digits);
