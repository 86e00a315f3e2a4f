/* top_draw.c: the screen of `ingot top`; see top.h.  Lines are cut at the window's width, and what the
 * daemon or a client named loses its control characters. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "cli/term/text.h"
#include "cli/term/wrap.h"
#include "cli/top/pen.h"

#define N_SEGMENTS 6
#define N_COLUMNS 11
#define CELL 136
#define LEAST_FIRST 12 /* columns of a request's id, or a model's name */
#define LEAST_RANK 9
#define MOST_RANKS 8 /* devices or machines with a line of their own */

/* ---- the lines at the top --------------------------------------------------------------------- */

static void put_title(struct pen *p)
{
	struct ig_top_view *v = p->v;
	const json_t *s = v->data->status;
	const char *device = ig_json_text(s, "device");

	pen_put(p, BOLD, "ingot top");
	pen_putf(p, NULL, "  %s  ", v->url);
	if (s)
		pen_putf(p, DIM, "%s  %s", top_text_of(s, "version"), device ? device : "");
	pen_next_line(p);
	if (v->trouble[0]) {
		pen_put(p, TROUBLE, v->trouble);
		pen_next_line(p);
	}
	if (s && json_is_true(json_object_get(s, "draining"))) {
		pen_put(p, TROUBLE, "The daemon is ending: it takes no new requests.");
		pen_next_line(p);
	}
}

/* n values as bars, the largest of which is the highest. */
static void put_bars(struct pen *p, const double *values, unsigned n)
{
	static const char *const bars[] = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
	static const char ascii[] = "_.-=+*#@";
	double most = 0;

	for (unsigned i = 0; i < n; i++)
		most = values[i] > most ? values[i] : most;
	for (unsigned i = 0; i < n; i++) {
		int height = most > 0 && values[i] > 0 ? (int)(values[i] / most * 6.999) + 1 : 0;
		char one[2] = { ascii[height], 0 };
		pen_put(p, values[i] > 0 ? "32" : DIM, p->v->unicode ? bars[height] : one);
	}
}

static void put_now(struct pen *p)
{
	const struct ig_top_data *d = p->v->data;
	const json_t *r = json_object_get(d->status, "requests");
	char buf[32];

	pen_put_item(p, DIM, "running", top_in_short(buf, top_number(r, "running")));
	pen_put_item(p, DIM, "queue", top_in_short(buf, top_number(r, "waiting")));
	pen_put_item(p, DIM, "paused", top_in_short(buf, top_number(r, "paused")));
	pen_put_item(p, DIM, "tokens/s", top_in_speed(buf, ig_top_speed(d)));
	unsigned space = p->v->columns > p->col + 3 ? p->v->columns - p->col - 3 : 0;
	unsigned n = d->n_history < IG_TOP_STEPS ? d->n_history : IG_TOP_STEPS;
	if (n > 1 && space >= 8) {
		n = n < space ? n : space;
		pen_put(p, NULL, "   ");
		put_bars(p, d->history + d->n_history - n, n);
	}
	pen_next_line(p);
}

/* Output tokens of each step of the ledger's range. */
static void put_steps(struct pen *p, const json_t *stats)
{
	const json_t *list = json_object_get(stats, "data");
	double steps[IG_TOP_STEPS] = { 0 }, from = top_number(stats, "from"),
	       step = top_number(stats, "step_s");

	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *s = json_array_get(list, i);
		double at = (top_number(s, "at") - from) / step;
		if (at >= 0 && at < IG_TOP_STEPS)
			steps[(unsigned)at] += top_count(s, "output_tokens");
	}
	if (p->col + 30 > p->v->columns)
		pen_next_line(p);
	pen_putf(p, DIM, "%sby minute ", p->col ? "   " : "");
	unsigned width = p->v->columns > p->col ? p->v->columns - p->col : 0;
	width = width < IG_TOP_STEPS ? width : IG_TOP_STEPS;
	put_bars(p, steps + IG_TOP_STEPS - width, width);
}

static void put_numbers(struct pen *p)
{
	const json_t *stats = p->v->data->stats, *t = json_object_get(stats, "total");
	char a[32], b[32], both[80];

	if (!stats) {
		if (p->v->data->no_stats[0]) {
			pen_put(p, DIM, p->v->data->no_stats);
			pen_next_line(p);
		}
		return;
	}
	pen_put_item(p, DIM, "last hour: requests", top_in_short(a, top_count(t, "requests")));
	pen_put_item(p, DIM, "output tokens", top_in_short(a, top_count(t, "output_tokens")));
	snprintf(both, sizeof both, "p50 %s p95 %s",
		 ig_text_ms(a, sizeof a, top_nth(t, "ttft_ms", 0)),
		 ig_text_ms(b, sizeof b, top_nth(t, "ttft_ms", 1)));
	pen_put_item(p, DIM, "first token", both);
	pen_put_item(p, DIM, "between tokens", ig_text_ms(a, sizeof a, top_nth(t, "itl_ms", 0)));
	pen_put_item(
		p, DIM, "prompt cached",
		top_in_percent(a, top_count(t, "cached_tokens"), top_count(t, "prompt_tokens")));
	pen_put_item(p, DIM, "refused or failed",
		     top_in_short(a, top_count(t, "refused") + top_count(t, "errors")));
	put_steps(p, stats);
	pen_next_line(p);
}

/* ---- memory ----------------------------------------------------------------------------------- */

struct segment {
	const char *name, *bar, *ascii, *colour;
	double bytes;
};

static void put_bar(struct pen *p, const struct segment *s, double all, unsigned width)
{
	double sum = 0;
	unsigned at = 0;

	pen_put(p, NULL, "[");
	for (unsigned i = 0; i < N_SEGMENTS; i++) {
		sum += s[i].bytes;
		unsigned end = all > 0 ? (unsigned)(fmin(sum / all, 1) * width + 0.5) : 0;
		for (; at < end; at++)
			pen_put(p, s[i].colour, p->v->unicode ? s[i].bar : s[i].ascii);
	}
	for (; at < width; at++)
		pen_put(p, NULL, " ");
	pen_put(p, NULL, "]");
}

/* What each device or machine has, where models are divided over several: the cache has slabs of the same size on
 * all of them. */
static void put_ranks(struct pen *p, const json_t *memory)
{
	const json_t *ranks = json_object_get(memory, "ranks");
	const size_t n = json_array_size(ranks);
	char name[32], value[80], a[32], b[32];

	for (size_t r = 0; r < n && r < MOST_RANKS; r++) {
		const json_t *of = json_array_get(ranks, r);
		snprintf(name, sizeof name, "rank %zu", r);
		snprintf(value, sizeof value, "%s weights, %s scratch",
			 top_in_bytes(a, top_count(of, "weight_bytes")),
			 top_in_bytes(b, top_count(of, "scratch_bytes")));
		pen_put_item(p, DIM, name, value);
	}
	if (n > MOST_RANKS) {
		snprintf(value, sizeof value, "%zu more", n - MOST_RANKS);
		pen_put_item(p, DIM, "and", value);
	}
	if (n)
		pen_next_line(p);
}

/* The budget, divided as the page divides it.  Of several devices or machines what the fullest has. */
static void put_memory(struct pen *p)
{
	const json_t *status = p->v->data->status, *m = json_object_get(status, "memory"),
		     *k = json_object_get(status, "kvcache");
	double arena = top_count(m, "arena_bytes"), used = top_count(k, "used_bytes"),
	       idle = top_count(k, "cached_bytes"), budget = top_count(m, "budget_bytes"),
	       taken = top_count(m, "weight_bytes") + top_count(m, "scratch_bytes") + arena;
	struct segment s[N_SEGMENTS] = {
		{ "weights", "█", "#", "34", top_count(m, "weight_bytes") },
		{ "scratch", "▓", "%", "35", top_count(m, "scratch_bytes") },
		{ "cache in use", "▒", "=", "32", used },
		{ "cache idle", "░", "-", "33", idle },
		{ "cache free", "·", ".", "36", fmax(arena - used - idle, 0) },
		{ "free", " ", " ", DIM, fmax(budget - taken, 0) },
	};
	char a[32], b[32], name[48];

	if (!status)
		return;
	pen_next_line(p);
	pen_putf(p, BOLD, "Memory ");
	pen_putf(p, NULL, "%s of %s ", top_in_bytes(a, taken), top_in_bytes(b, budget));
	if (p->v->columns >= p->col + 12) {
		unsigned width = p->v->columns - p->col - 2;
		put_bar(p, s, budget, width < 100 ? width : 100);
	}
	pen_next_line(p);
	for (unsigned i = 0; i < N_SEGMENTS; i++) {
		const char *mark = p->v->unicode ? s[i].bar : s[i].ascii;
		bool space = *mark == ' ';
		snprintf(name, sizeof name, "%s%s%s", space ? "" : mark, space ? "" : " ",
			 s[i].name);
		pen_put_item(p, s[i].colour, name, top_in_bytes(a, s[i].bytes));
	}
	pen_next_line(p);
	put_ranks(p, m);
}

/* ---- tables -------------------------------------------------------------------------------------- */

struct column {
	const char *title; /* '>': its values are aligned right */
	unsigned rank;	   /* the columns of the highest rank are left out first */
	unsigned most;	   /* columns of the screen */
};

/* A table's cells as text: rows × n_columns. */
struct cells {
	const struct column *columns;
	unsigned n_columns, n_rows;
	char (*at)[CELL];
	unsigned widths[N_COLUMNS];
	unsigned gap;
};

static char *cell(const struct cells *c, unsigned row, unsigned i)
{
	return c->at[row * c->n_columns + i];
}

static bool cells_init(struct cells *c, const struct column *columns, unsigned n_columns,
		       unsigned n_rows)
{
	*c = (struct cells){ .columns = columns, .n_columns = n_columns, .n_rows = n_rows };
	c->at = calloc((size_t)n_rows * n_columns + 1, sizeof *c->at);
	return c->at;
}

__attribute__((format(printf, 4, 5))) static void set(struct cells *c, unsigned row, unsigned i,
						      const char *fmt, ...)
{
	char buf[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf, sizeof buf, fmt, ap);
	va_end(ap);
	for (char *s = buf; *s; s++)
		if ((unsigned char)*s < 0x20)
			*s = ' ';
	ig_utf8_copy(cell(c, row, i), CELL, buf);
}

/* The columns of the screen that all take. */
static unsigned sum_of(const struct cells *c)
{
	unsigned sum = 0;

	for (unsigned i = 0; i < c->n_columns; i++)
		sum += c->widths[i] ? c->widths[i] + c->gap : 0;
	return sum ? sum - c->gap : 0;
}

/* The column that is left out next; 0: none. */
static unsigned worst_of(const struct cells *c)
{
	unsigned worst = 0;

	for (unsigned i = 1; i < c->n_columns; i++)
		if (c->widths[i] && (!worst || c->columns[i].rank >= c->columns[worst].rank))
			worst = i;
	return worst;
}

/* The widths of the columns, 0 of those for which there is no space.  Before one of a rank below
 * LEAST_RANK is left out, the first column is cut. */
static void fit(struct cells *c, unsigned space)
{
	unsigned worst;

	c->gap = space < 60 ? 1 : 2;
	for (unsigned i = 0; i < c->n_columns; i++) {
		c->widths[i] = top_width_of(c->columns[i].title) - (c->columns[i].title[0] == '>');
		for (unsigned r = 0; r < c->n_rows; r++) {
			unsigned w = top_width_of(cell(c, r, i));
			if (w > c->widths[i])
				c->widths[i] = w < c->columns[i].most ? w : c->columns[i].most;
		}
	}
	while (sum_of(c) > space && (worst = worst_of(c))) {
		unsigned over = sum_of(c) - space,
			 spare = c->widths[0] > LEAST_FIRST ? c->widths[0] - LEAST_FIRST : 0;
		if (spare && c->columns[worst].rank < LEAST_RANK)
			c->widths[0] -= over < spare ? over : spare;
		else
			c->widths[worst] = 0;
	}
}

/* Text in so many columns; the end of one that is too long says more than its start. */
static void put_cell(struct pen *p, const char *style, const char *s, unsigned width, bool right,
		     bool last)
{
	unsigned w = top_width_of(s);
	const char *dots = p->v->unicode ? "…" : "<";
	bool cut = w > width;

	while (w + cut > width && *s) {
		int n = ig_utf8_check((const unsigned char *)s, strlen(s));
		w -= n > 0 ? ig_char_width(ig_utf8_char((const unsigned char *)s, n)) : 1;
		s += n > 0 ? n : 1;
	}
	int pad = width > w + cut ? (int)(width - w - cut) : 0;
	pen_putf(p, style, "%*s%s%s%*s", right ? pad : 0, "", cut ? dots : "", s,
		 right || last ? 0 : pad, "");
}

/* row -1: the titles. */
static void put_row(struct pen *p, const struct cells *c, int row, const char *style)
{
	bool first = true;
	unsigned last = c->n_columns;

	while (last && !c->widths[last - 1])
		last--;
	for (unsigned i = 0; i < last; i++) {
		const char *title = c->columns[i].title;
		bool right = title[0] == '>';
		if (!c->widths[i])
			continue;
		if (!first)
			pen_putf(p, style, "%*s", (int)c->gap, "");
		first = false;
		put_cell(p, style, row < 0 ? title + right : cell(c, (unsigned)row, i),
			 c->widths[i], right, i + 1 == last);
	}
	pen_next_line(p);
}

static const json_t *named(const json_t *list, const char *key, const char *name)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *s = ig_json_text(json_array_get(list, i), key);
		if (s && !strcmp(s, name))
			return json_array_get(list, i);
	}
	return NULL;
}

/* Those in memory come first. */
static void put_models(struct pen *p)
{
	static const struct column columns[] = {
		{ "MODEL", 0, 48 },    { "STATE", 1, 12 }, { ">WEIGHTS", 2, 12 },
		{ ">REQUESTS", 3, 8 }, { "FITS", 4, 8 },   { "PINNED", 5, 8 },
	};
	const json_t *list = json_object_get(p->v->data->models, "data"),
		     *loaded = json_object_get(p->v->data->status, "models");
	unsigned n = (unsigned)json_array_size(list), at = 0,
		 space = p->v->screen ? p->v->rows / 4 : n, hidden = 0;
	struct cells c;
	char buf[32];

	if (!n || !cells_init(&c, columns, sizeof columns / sizeof columns[0], n))
		return;
	for (int round = 0; round < 2; round++)
		for (unsigned i = 0; i < n; i++) {
			const json_t *m = json_array_get(list, i);
			const char *id = top_text_of(m, "id");
			bool idle = !strcmp(top_text_of(m, "state"), "unloaded");
			if (idle != round)
				continue;
			set(&c, at, 0, "%s", id);
			set(&c, at, 1, "%s", top_text_of(m, "state"));
			double bytes = top_number(named(loaded, "name", id), "weight_bytes");
			set(&c, at, 2, "%s", bytes > 0 ? top_in_bytes(buf, bytes) : "-");
			set(&c, at, 3, "%.0f", top_count(m, "active_requests"));
			set(&c, at, 4, "%s", top_text_of(m, "fits"));
			set(&c, at, 5, "%s",
			    json_is_true(json_object_get(m, "pinned")) ? "yes" : "-");
			at++;
		}
	if (at > space + 1) {
		hidden = at - space;
		at = space;
	}
	fit(&c, p->v->columns);
	pen_next_line(p);
	put_row(p, &c, -1, BOLD);
	for (unsigned i = 0; i < at && !pen_is_full(p); i++)
		put_row(p, &c, (int)i, NULL);
	if (hidden && !pen_is_full(p)) {
		pen_putf(p, DIM, "%u more", hidden);
		pen_next_line(p);
	}
	free(c.at);
}

/* ---- requests --------------------------------------------------------------------------------- */

static const char *const sort_names[] = {
	"age", "tokens/s", "tokens", "prompt", "model", "client"
};

static int compare_numbers(const json_t *a, const json_t *b, const char *key)
{
	double x = top_number(a, key), y = top_number(b, key);

	x = isfinite(x) ? x : -1;
	y = isfinite(y) ? y : -1;
	return (x < y) - (x > y);
}

static int compare(const json_t *a, const json_t *b, enum ig_top_sort sort)
{
	switch (sort) {
	case IG_TOP_BY_SPEED: return compare_numbers(a, b, "tokens_per_second");
	case IG_TOP_BY_TOKENS: return compare_numbers(a, b, "output_tokens");
	case IG_TOP_BY_PROMPT: return compare_numbers(a, b, "prompt_tokens");
	case IG_TOP_BY_MODEL: return strcmp(top_text_of(a, "model"), top_text_of(b, "model"));
	case IG_TOP_BY_CLIENT: return strcmp(top_text_of(a, "client"), top_text_of(b, "client"));
	default: return compare_numbers(a, b, "age_s");
	}
}

const json_t **ig_top_sorted(const struct ig_top_view *v, size_t *n)
{
	const json_t *list = json_object_get(v->data->requests, "data");
	const json_t **all;

	*n = json_array_size(list);
	all = calloc(*n + 1, sizeof *all);
	if (!all) {
		*n = 0;
		return NULL;
	}
	for (size_t i = 0; i < *n; i++) { /* at most 1024: the daemon lists no more */
		size_t k = i;
		const json_t *r = json_array_get(list, i);
		for (; k && compare(all[k - 1], r, v->sort) > 0; k--)
			all[k] = all[k - 1];
		all[k] = r;
	}
	return all;
}

static size_t place_of(const struct ig_top_view *v, const json_t **all, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(top_text_of(all[i], "id"), v->selected))
			return i;
	return n;
}

void ig_top_move(struct ig_top_view *v, int by)
{
	size_t n;
	const json_t **all = ig_top_sorted(v, &n);
	size_t at = all ? place_of(v, all, n) : n;

	if (n) {
		long to = at == n ? (by > 0 ? 0 : (long)n - 1) : (long)at + by;
		to = to < 0 ? 0 : to >= (long)n ? (long)n - 1 : to;
		snprintf(v->selected, sizeof v->selected, "%s", top_text_of(all[to], "id"));
	}
	free(all);
}

static void set_request(struct cells *c, unsigned row, const json_t *r)
{
	double prompt = top_count(r, "prompt_tokens"), cached = top_number(r, "cached_tokens");
	const char *state = top_text_of(r, "state");
	char buf[32];

	set(c, row, 0, "%s", top_text_of(r, "id"));
	set(c, row, 1, "%s", top_text_of(r, "model"));
	if (!strcmp(state, "prefill"))
		set(c, row, 2, "prefill %s",
		    top_in_percent(buf, top_count(r, "prefilled_tokens"), fmax(prompt, 1)));
	else
		set(c, row, 2, "%s", state);
	set(c, row, 3, "%.0f", top_count(r, "output_tokens"));
	set(c, row, 4, "%s", top_in_speed(buf, top_number(r, "tokens_per_second")));
	set(c, row, 5, "%.0f", prompt);
	set(c, row, 6, "%s", top_in_percent(buf, cached, fmax(prompt, 1)));
	set(c, row, 7, "%s", ig_text_seconds(buf, sizeof buf, top_number(r, "age_s")));
	set(c, row, 8, "%s", top_text_of(r, "key"));
	set(c, row, 9, "%s", top_text_of(r, "client"));
	set(c, row, 10, "%s", top_text_of(r, "endpoint"));
}

/* Scroll so that the selected request is among the rows. */
static void scroll(struct ig_top_view *v, const json_t **all, unsigned n, unsigned rows)
{
	size_t at = place_of(v, all, n);

	if (at == n)
		v->selected[0] = 0;
	else if (at < v->first)
		v->first = (unsigned)at;
	else if (at >= v->first + rows)
		v->first = (unsigned)at - rows + 1;
	if (v->first + rows > n)
		v->first = n > rows ? n - rows : 0;
}

static void put_requests(struct pen *p)
{
	static const struct column columns[N_COLUMNS] = {
		{ "REQUEST", 0, 46 }, { "MODEL", 6, 32 },     { "STATE", 1, 14 },
		{ ">TOKENS", 4, 9 },  { ">TOK/S", 2, 8 },     { ">PROMPT", 7, 9 },
		{ ">CACHED", 5, 7 },  { ">AGE", 3, 10 },      { "KEY", 9, 24 },
		{ "CLIENT", 8, 46 },  { "ENDPOINT", 10, 32 },
	};
	struct ig_top_view *v = p->v;
	double total = top_count(v->data->requests, "total");
	struct cells c;
	size_t n;
	const json_t **all = ig_top_sorted(v, &n);

	pen_next_line(p);
	unsigned rows = (unsigned)n;
	if (v->screen) { /* without the titles */
		rows = v->rows > p->row + 2 ? v->rows - p->row - 1 : 1;
		rows -= n > rows && rows > 1;
	}
	if (!n || !all || !cells_init(&c, columns, N_COLUMNS, (unsigned)n)) {
		pen_put(p, DIM, "No request is running or waiting.");
		pen_next_line(p);
		free(all);
		return;
	}
	scroll(v, all, (unsigned)n, rows);
	for (unsigned i = 0; i < n; i++)
		set_request(&c, i, all[i]);
	fit(&c, v->columns);
	put_row(p, &c, -1, BOLD);
	for (unsigned i = v->first; i < n && i < v->first + rows && !pen_is_full(p); i++)
		put_row(p, &c, (int)i,
			!strcmp(top_text_of(all[i], "id"), v->selected) ? SELECTED : NULL);
	if (total > (double)rows && !pen_is_full(p)) {
		pen_putf(p, DIM, "%.0f of %.0f", fmin((double)rows, (double)n), total);
		pen_next_line(p);
	}
	free(c.at);
	free(all);
}

/* ---- the whole ----------------------------------------------------------------------------------- */

static void put_help(struct pen *p)
{
	static const char *const lines[] = {
		"",
		"q, Ctrl-C      quit",
		"j, k, arrows   select a request; g, G, Home, End the first, the last",
		"x, Delete      cancel the selected request; asks first",
		"s              sort by age, tokens/s, tokens, prompt, model, client",
		"p              pause: the screen stays as it is",
		"h, ?           this help; any key closes it",
		"",
		"Tokens a second are measured from look to look, once a second.  Memory is the",
		"daemon's budget (memory.budget): weights, scratch, and the cache of all requests,",
		"of which idle is what prompts may be found in.  Times are of the last hour.",
	};

	for (size_t i = 0; i < sizeof lines / sizeof lines[0] && !pen_is_full(p); i++) {
		pen_put(p, NULL, lines[i]);
		pen_next_line(p);
	}
}

static void put_last_line(struct pen *p)
{
	struct ig_top_view *v = p->v;

	while (p->row + 1 < v->rows)
		pen_next_line(p);
	if (v->message[0]) {
		pen_put(p, BOLD, v->message);
	} else {
		if (v->paused)
			pen_put(p, SELECTED, " paused ");
		pen_put(p, NULL, v->paused ? " " : "");
		if (v->columns < 70)
			pen_putf(p, DIM, "h help  q quit  s %s", sort_names[v->sort]);
		else
			pen_putf(p, DIM, "q quit  %s select  x cancel  s sort (%s)  p %s  h help",
				 v->unicode ? "↑↓" : "j k", sort_names[v->sort],
				 v->paused ? "go on" : "pause");
	}
	pen_plain(p);
	ig_strbuf_puts(p->out, "\033[K");
}

void ig_top_draw(struct ig_top_view *v, struct ig_strbuf *out)
{
	struct pen p = { .v = v, .out = out };
	unsigned rows = v->rows;

	if (v->screen) {
		ig_strbuf_puts(out, "\033[H");
		v->rows = rows ? rows - 1 : 0; /* without the last line */
	}
	put_title(&p);
	if (v->help) {
		put_help(&p);
	} else {
		void (*const parts[])(struct pen *) = { put_now, put_numbers, put_memory,
							put_models, put_requests };
		for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
			if (!pen_is_full(&p))
				parts[i](&p);
	}
	v->rows = rows;
	if (v->screen)
		put_last_line(&p);
}
