/*
 * json_scan.h: scans JSON from front to back without a tree, for files of megabytes.  As a tree,
 * 150,000 tokens and as many merges (10.6 MB) took 0.57 s; scanned, a whole tokenizer of 128,000
 * tokens opens in 0.07 s.  json.h makes trees of small texts.  Every error names the file and the
 * byte.  Skipped values take no memory, whatever their depth.
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
	struct ig_json_chunk *chunks; /* unescaped strings */
};

void ig_json_scan_init(struct ig_json_scan *s, const char *name, const char *data, size_t len,
		       struct ig_error *err);
/* Frees the strings that were returned; those without escapes are part of the data. */
void ig_json_scan_finish(struct ig_json_scan *s);

/* -EINVAL with a text about the current byte. */
__attribute__((format(printf, 2, 3))) int ig_json_scan_bad(struct ig_json_scan *s, const char *fmt,
							   ...);
int ig_json_scan_no_memory(struct ig_json_scan *s);

/* The first character of the next value; 0 at the end. */
char ig_json_scan_peek(struct ig_json_scan *s);

/* each must read the value; a non-zero result ends the scan with that code. */
int ig_json_scan_object(struct ig_json_scan *s,
			int (*each)(void *ctx, struct ig_json_scan *s, const char *key, size_t len),
			void *ctx);
int ig_json_scan_array(struct ig_json_scan *s,
		       int (*each)(void *ctx, struct ig_json_scan *s, uint64_t i), void *ctx);
/* UTF-8; may have NULs. */
int ig_json_scan_string(struct ig_json_scan *s, const char **out, size_t *len);
int ig_json_scan_number(struct ig_json_scan *s, double *out);
int ig_json_scan_integer(struct ig_json_scan *s, int64_t *out);
/* *whole: the number is in *i, otherwise in *x.  round: a whole number that does not fit *i is rounded,
 * else it is an error. */
int ig_json_scan_numeral(struct ig_json_scan *s, bool round, bool *whole, int64_t *i, double *x);
/* Read word ("true", "false" or "null") if it is next; whether it is. */
bool ig_json_scan_word(struct ig_json_scan *s, const char *word);
/* Skip a value; *value, unless NULL, is a scan of it for later, independent of s. */
int ig_json_scan_skip(struct ig_json_scan *s, struct ig_json_scan *value);
/* Read a value as a tree (json.c); the caller's. */
int ig_json_scan_json(struct ig_json_scan *s, struct json_t **out);
/* 0 if only white space is left. */
int ig_json_scan_end(struct ig_json_scan *s);
