/*
 * json_scan.h: JSON walked in one go from front to back, for files of megabytes: as a tree,
 * 150,000 tokens and as many merges (10.6 MB) took 0.57 s; walked, a whole tokenizer of
 * 128,000 opens in 0.07 s.  json.h makes trees of what is small.
 *
 * Every error names the file and the byte.  Nothing is kept of nested values, so that
 * depth costs nothing.
 */
#pragma once

#include <ingot/error.h>
#include <stdbool.h>
#include <stddef.h>

struct json_t;

struct ig_json_scan {
	const char *name; /* of the file; NULL: errors name neither it nor the byte */
	const char *begin, *p, *end;
	struct ig_error *err;
	struct ig_json_chunk *chunks; /* strings that had escapes in them */
};

void ig_json_scan_init(struct ig_json_scan *s, const char *name, const char *data, size_t len,
		       struct ig_error *err);
/* Strings live until then; those without escapes lie in the data. */
void ig_json_scan_finish(struct ig_json_scan *s);

/* -EINVAL: what is wrong at the byte where we are. */
__attribute__((format(printf, 2, 3))) int ig_json_scan_bad(struct ig_json_scan *s, const char *fmt,
							   ...);
int ig_json_scan_no_memory(struct ig_json_scan *s);

/* The first character of the value that comes; 0 at the end. */
char ig_json_scan_peek(struct ig_json_scan *s);

/* each takes the value; what it returns ends the walk unless it is 0. */
int ig_json_scan_object(struct ig_json_scan *s,
			int (*each)(void *ctx, struct ig_json_scan *s, const char *key, size_t len),
			void *ctx);
int ig_json_scan_array(struct ig_json_scan *s,
		       int (*each)(void *ctx, struct ig_json_scan *s, uint64_t i), void *ctx);
/* UTF-8; may have NULs in it. */
int ig_json_scan_string(struct ig_json_scan *s, const char **out, size_t *len);
int ig_json_scan_number(struct ig_json_scan *s, double *out);
int ig_json_scan_integer(struct ig_json_scan *s, int64_t *out);
/* *whole: the number is *i, otherwise *x. */
int ig_json_scan_numeral(struct ig_json_scan *s, bool *whole, int64_t *i, double *x);
/* Whether "true", "false" or "null" comes; takes it. */
bool ig_json_scan_word(struct ig_json_scan *s, const char *word);
/* Any value, left out; a scan of just it for later, which shares nothing with s. */
int ig_json_scan_skip(struct ig_json_scan *s, struct ig_json_scan *value);
/* Any value as a tree (json.c); the caller's. */
int ig_json_scan_json(struct ig_json_scan *s, struct json_t **out);
/* Nothing but white space is left. */
int ig_json_scan_end(struct ig_json_scan *s);
