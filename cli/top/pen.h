/* pen.h: writes lines of the screen of `ingot top`, and numbers for people in few characters. */
#pragma once

#include "cli/top/top.h"

#define BOLD "1"
#define DIM "2"
#define SELECTED "7"
#define TROUBLE "1;31"

struct pen {
	struct ig_top_view *v;
	struct ig_strbuf *out;
	unsigned row, col;
	const char *style; /* that the terminal has now */
};

/* The lines for all but the keys are used: nothing more is written. */
bool pen_is_full(const struct pen *p);
/* Write text as far as the line has space, without its control characters; style: SGR's codes, or NULL. */
void pen_put(struct pen *p, const char *style, const char *text);
__attribute__((format(printf, 3, 4))) void pen_putf(struct pen *p, const char *style,
						    const char *fmt, ...);
/* Styles end here. */
void pen_plain(struct pen *p);
void pen_next_line(struct pen *p);
/* A named number; it begins another line where this one has no space for it. */
void pen_put_item(struct pen *p, const char *style, const char *name, const char *value);
/* The columns of a text. */
unsigned top_width_of(const char *s);

/* Members of the daemon's objects; NAN and "-" where they are missing, top_count: 0. */
double top_number(const json_t *o, const char *key);
double top_count(const json_t *o, const char *key);
double top_nth(const json_t *o, const char *key, size_t i);
const char *top_text_of(const json_t *o, const char *key);

/* Three digits; a whole number without a fraction. */
const char *top_in_short(char buf[32], double x);
/* Tokens a second. */
const char *top_in_speed(char buf[32], double x);
const char *top_in_percent(char buf[32], double part, double all);
const char *top_in_bytes(char buf[32], double n);
