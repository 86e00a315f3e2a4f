/*
 * json.h: reads and writes whole JSON texts.  The only interface to jansson: its values are used
 * directly, but not its reader, which does not survive a failed allocation.  json_scan.h's scanner
 * checks the text, and a tree is made of it; files of megabytes are scanned without a tree.
 */
#pragma once

#include "base/strbuf.h"

#include <ingot/error.h>
#include <jansson.h>
#include <math.h>

struct ig_json_limits {
	size_t max_depth;  /* 0: 512 */
	size_t max_values; /* 0: no limit */
	bool allow_nul;	   /* U+0000 in strings; never in keys */
	bool rounds;	   /* whole numbers beyond 64 bits, which Python writes, become reals */
	/* Without allow_nul, lists of keys, NULL at the end: U+0000 in a string that is the value of
	 * such a key, or in a list that is; in all strings of an object that is. */
	const char *const *nul_texts, *const *nul_objects;
};

struct ig_json_error {
	char text[160];
	unsigned line,
		column; /* of the wrong character, from 1; at the text's end of the last one */
	size_t byte;
};

/* Read one value of any type, after which only white space may follow; *out is the caller's
 * (json_decref), NULL on failure.  Duplicate keys, numbers outside int64 and double, half a
 * surrogate pair and invalid UTF-8 are errors.  0, -EINVAL, -E2BIG beyond the limits (NULL: all 0),
 * or -ENOMEM, each with why's text. */
int ig_json_read(const char *text, size_t len, const struct ig_json_limits *limits, json_t **out,
		 struct ig_json_error *why);
/* The same of a file's text; err: "NAME: line 3, column 5: no JSON: no value". */
int ig_json_read_file(const char *name, const char *text, size_t len, json_t **out,
		      struct ig_error *err);

/* A member's text; NULL when it is missing or not a string. */
static inline const char *ig_json_text(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

/* A shallow copy of an object or a list; NULL without memory (json_copy does not check its
 * allocations). */
json_t *ig_json_copy(const json_t *v);

/* Appends to out; check ig_strbuf_ok at the end.  The key is NULL in an array and at the top.
 * Commas are written automatically; each open needs its close.  Texts must be UTF-8. */
struct ig_json_writer {
	struct ig_strbuf *out;
	bool spaced; /* ", " and ": ", as Python writes it */
	bool comma;  /* the next value needs a comma */
};

void ig_json_open_object(struct ig_json_writer *w, const char *key);
void ig_json_close_object(struct ig_json_writer *w);
void ig_json_open_array(struct ig_json_writer *w, const char *key);
void ig_json_close_array(struct ig_json_writer *w);
void ig_json_put_string(struct ig_json_writer *w, const char *key, const char *s, size_t len);
void ig_json_put_text(struct ig_json_writer *w, const char *key, const char *s); /* NULL: null */
void ig_json_put_int(struct ig_json_writer *w, const char *key, int64_t n);
void ig_json_put_uint(struct ig_json_writer *w, const char *key, uint64_t n);
/* format: printf's for one double, as "%.3f"; null when x is not finite. */
__attribute__((format(printf, 3, 0))) void
ig_json_put_real(struct ig_json_writer *w, const char *key, const char *format, double x);
/* As jansson writes it; NULL: null. */
void ig_json_put_value(struct ig_json_writer *w, const char *key, const json_t *v);
/* A JSON text, copied as it is; NULL: null. */
void ig_json_put_raw(struct ig_json_writer *w, const char *key, const char *json);
/* A key of any bytes; its value is the next call, with a NULL key. */
void ig_json_put_key(struct ig_json_writer *w, const char *key, size_t len);
/* Values by a format, which is JSON with single quotes; spaces outside quotes are dropped:
 *
 *     ig_json_putf(w, "'usage': {'tokens': %d, 'details': {'cached': %lld}}", n, cached);
 *
 * %s is a string (NULL: null), %.*s one of that length, %-s text that is JSON already (NULL:
 * null); %d %u %zu %lld %llu are integers, %.3f and %.7g reals (null when not finite).  Text in
 * quotes is copied without escapes.  A call may leave open what another closes. */
#ifdef __clang__ /* gcc's check refuses a NULL that it can prove, which is null here */
__attribute__((format(printf, 2, 3)))
#endif
void ig_json_putf(struct ig_json_writer *w, const char *fmt, ...);
static inline const char *ig_json_bool(bool b) { return b ? "true" : "false"; } /* for %-s */
/* The comma, if one is due, and a new line. */
void ig_json_put_line(struct ig_json_writer *w);

/* malloc'd; NULL without memory. */
char *ig_json_to_text(const json_t *v);
/* Print v as a line in ASCII, reals with so many digits (0: 17); 0 or -EIO. */
int ig_json_print(const json_t *v, unsigned digits);
