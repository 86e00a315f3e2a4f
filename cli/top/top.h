/*
 * top.h: `ingot top`: what the daemon tells (top_data.c) and how it is shown (top_draw.c).  Neither
 * uses a socket or a terminal.
 */
#pragma once

#include "base/json.h"
#include "base/strbuf.h"

#define IG_TOP_HISTORY 300 /* seconds */
#define IG_TOP_STEPS 60
#define IG_TOP_RANGE_S 3600

struct ig_top_data {
	/* The last event of each type, and the ledger's sums; NULL: none yet. */
	json_t *status, *requests, *models, *stats;
	double history[IG_TOP_HISTORY]; /* tokens a second, the latest last */
	unsigned n_history;
	char no_stats[200]; /* why stats is NULL */
};

void ig_top_data_finish(struct ig_top_data *d);
/* Make *to the same as from. */
void ig_top_data_copy(struct ig_top_data *to, const struct ig_top_data *from);
/* Take an event of /v1/ingot/events.  Each request gets a member tokens_per_second, measured since
 * the event before; null: not known.  -EBADMSG with text: it is none. */
int ig_top_event(struct ig_top_data *d, const char *text, size_t len, struct ig_error *err);
/* A second has passed. */
void ig_top_tick(struct ig_top_data *d);
/* Tokens a second of all requests. */
double ig_top_speed(const struct ig_top_data *d);

enum ig_top_sort {
	IG_TOP_BY_AGE,
	IG_TOP_BY_SPEED,
	IG_TOP_BY_TOKENS,
	IG_TOP_BY_PROMPT,
	IG_TOP_BY_MODEL,
	IG_TOP_BY_CLIENT,
	IG_TOP_N_SORTS,
};

struct ig_top_view {
	const struct ig_top_data *data;
	const char *url;
	const char *trouble; /* with the connection; "": none */
	const char *message; /* the last line; "": the keys */
	enum ig_top_sort sort;
	char selected[64]; /* a request's id; "": none */
	unsigned first;	   /* of the requests shown */
	bool paused, help;
	bool screen; /* with escape sequences, rows lines; else all lines, plain */
	bool colours, unicode;
	unsigned columns, rows;
};

/* Append the screen.  Sets selected and first to what is there. */
void ig_top_draw(struct ig_top_view *v, struct ig_strbuf *out);
/* The requests in the view's order: a list of borrowed values, the caller's; n of them. */
const json_t **ig_top_sorted(const struct ig_top_view *v, size_t *n);
/* Select the request so many below the selected one. */
void ig_top_move(struct ig_top_view *v, int by);
