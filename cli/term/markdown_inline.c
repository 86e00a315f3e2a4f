/* markdown_inline.c: emphasis, inline code and links of markdown.h, as page/markdown.js reads them.
 *
 * What is held is read again from its start with each character: it is short. */
#include <ctype.h>
#include <string.h>

#include "base/array.h"
#include "cli/term/markdown.h"

#define HANG 0x110000 /* held among the characters: indent from here */
#define MAX_MARKS 24
#define MAX_NESTED_LINKS 3
#define WAIT ((size_t)-1)

struct frame {
	uint32_t mark;
	unsigned len;
	size_t at;
};

struct reader {
	struct ig_inline *t;
	size_t start, end; /* what is read of the held characters */
	bool last;	   /* nothing comes after end */
	unsigned n_frames;
	unsigned depth; /* of links */
	struct frame frames[MAX_MARKS];
};

static void write_held(struct ig_inline *t, struct ig_wrap *w, size_t n)
{
	if (!n)
		return;
	for (size_t i = 0; i < n; i++) {
		if (t->held[i].c == HANG) {
			ig_wrap_hang(w);
			continue;
		}
		ig_wrap_char(w, t->held[i].c, t->held[i].style | t->base);
		t->before = t->held[i].c;
	}
	memmove(t->held, t->held + n, (t->n - n) * sizeof *t->held);
	t->n -= n;
}

/* The character at i as a mark can be; 0: beyond the end, or inert. */
static uint32_t at(const struct reader *r, size_t i)
{
	return i < r->end && !r->t->held[i].inert ? r->t->held[i].c : 0;
}

/* The characters around a mark; a blank at the ends and for what is inert. */
static uint32_t around(const struct reader *r, size_t i)
{
	if (i == (size_t)-1)
		return r->t->before ? r->t->before : ' ';
	if (i >= r->end || r->t->held[i].inert)
		return ' ';
	return r->t->held[i].c;
}

static bool is_blank(uint32_t c) { return c == ' ' || c == '\n' || c == '\t' || c == 0xa0; }

static bool is_word(uint32_t c) { return c == '_' || (c < 0x80 && isalnum((int)c)); }

static bool is_punctuation(uint32_t c) { return c < 0x80 && ispunct((int)c); }

/* Marks within keep theirs, unless all is cleared. */
static void style(struct reader *r, size_t from, size_t to, unsigned set, unsigned clear)
{
	for (size_t i = from; i < to; i++)
		if (!r->t->held[i].inert && (clear || !(r->t->held[i].style & IG_STYLE_DIM)))
			r->t->held[i].style = (uint8_t)((r->t->held[i].style & ~clear) | set);
}

/* Marks are dim, whatever is around them. */
static void dim(struct reader *r, size_t from, size_t n)
{
	style(r, from, from + n, IG_STYLE_DIM, 0xff);
}

static size_t run_of(const struct reader *r, size_t i)
{
	size_t n = 0;

	while (at(r, i + n) == at(r, i) && i + n < r->end)
		n++;
	return n;
}

/* ---- each returns the index behind what it read, or WAIT --------------------------------- */

static size_t read_code(struct reader *r, size_t i)
{
	size_t run = run_of(r, i), n;
	bool known = run < 64;

	if (i + run == r->end && !r->last)
		return WAIT;
	if (!known || r->t->hopeless >> run & 1)
		return i + run;
	for (size_t k = i + run; k < r->end; k += n) {
		n = 1;
		if (at(r, k) != '`')
			continue;
		n = run_of(r, k);
		if (k + n == r->end && !r->last)
			return WAIT;
		if (n != run)
			continue;
		style(r, i + run, k, IG_STYLE_CODE, 0xff);
		dim(r, i, run);
		dim(r, k, run);
		return k + run;
	}
	if (!r->last)
		return WAIT;
	if (r->end == r->t->n) /* a link's label ends earlier than the paragraph */
		r->t->hopeless |= UINT64_C(1) << run;
	return i + run;
}

/* Whether a model may link to it: the web and mail. */
static bool is_safe_url(const struct reader *r, size_t i, size_t end)
{
	static const char *const schemes[] = { "http://", "https://", "mailto:" };

	for (size_t k = i; k < end; k++)
		if (r->t->held[k].c == '"' || r->t->held[k].c == '\\')
			return false;
	for (size_t s = 0; s < sizeof schemes / sizeof schemes[0]; s++) {
		size_t n = strlen(schemes[s]), k = 0;
		while (k < n && i + k < end && r->t->held[i + k].c < 0x80 &&
		       tolower((int)r->t->held[i + k].c) == schemes[s][k])
			k++;
		if (k == n)
			return true;
	}
	return false;
}

static size_t skip_blanks(const struct reader *r, size_t i)
{
	while (i < r->end && is_blank(r->t->held[i].c))
		i++;
	return i;
}

/* The address and the title behind a label: i is at "(".  Sets the address's bounds; 0: it is none. */
static size_t read_target(const struct reader *r, size_t i, size_t *from, size_t *to)
{
	bool depth = false; /* within parentheses of the address */

	i = skip_blanks(r, i + 1);
	if (at(r, i) == '<')
		i++;
	*from = i;
	for (;; i++) {
		uint32_t c = i < r->end ? r->t->held[i].c : 0;
		if (i == r->end)
			return r->last ? 0 : WAIT;
		if (c == '(' && depth)
			return 0;
		if ((c == ')' && !depth) || is_blank(c) || c == '<' || c == '>')
			break;
		if (c == '(' || c == ')')
			depth = !depth;
	}
	*to = i;
	if (depth)
		return 0;
	if (at(r, i) == '>')
		i++;
	size_t blank = i;
	i = skip_blanks(r, i);
	if (i > blank && (at(r, i) == '"' || at(r, i) == '\'')) {
		for (i++; i < r->end && at(r, i) != '"' && at(r, i) != '\''; i++)
			;
		i = skip_blanks(r, i + (i < r->end));
	}
	if (i >= r->end)
		return r->last ? 0 : WAIT;
	return at(r, i) == ')' ? i + 1 : 0;
}

static size_t read_range(struct ig_inline *t, size_t start, size_t end, bool last, unsigned depth);

/* i is at "[".  i + 1: it is none. */
static size_t read_link(struct reader *r, size_t i, bool picture)
{
	size_t close = i, from = 0, to = 0, end;
	unsigned depth = 0;

	for (; close < r->end; close++) {
		uint32_t c = at(r, close);
		if (c == '\\')
			close++;
		else if (c == '[')
			depth++;
		else if (c == ']' && --depth == 0)
			break;
	}
	if (close + 1 >= r->end)
		return r->last ? i + 1 : WAIT;
	if (at(r, close + 1) != '(')
		return i + 1;
	end = read_target(r, close + 1, &from, &to);
	if (end == WAIT)
		return WAIT;
	if (!end || !is_safe_url(r, from, to))
		return i + 1;
	if (!picture && r->depth < MAX_NESTED_LINKS)
		read_range(r->t, i + 1, close, true, r->depth + 1);
	style(r, i + 1, close, IG_STYLE_UNDERLINE | IG_STYLE_LINK, 0);
	dim(r, i, 1);
	dim(r, close, end - close);
	return end;
}

/* An address in the text.  i + 1: it is none. */
static size_t read_address(struct reader *r, size_t i)
{
	static const char *const schemes[] = { "http://", "https://" };
	size_t end = 0;

	if (is_word(i > r->start ? around(r, i - 1) : around(r, r->start - 1)))
		return i + 1;
	for (size_t s = 0; s < 2 && !end; s++) {
		size_t n = strlen(schemes[s]), k = 0;
		while (k < n && at(r, i + k) && at(r, i + k) < 0x80 &&
		       tolower((int)at(r, i + k)) == schemes[s][k])
			k++;
		if (k == n)
			end = i + n;
		else if (i + k == r->end && !r->last)
			return WAIT;
	}
	if (!end)
		return i + 1;
	size_t first = end;
	while (at(r, end) && !is_blank(at(r, end)) &&
	       !(at(r, end) < 0x80 && strchr("<>\"'`", (int)at(r, end))))
		end++;
	if (end == r->end && !r->last)
		return WAIT;
	while (end > first && at(r, end - 1) < 0x80 && strchr(".,;:!?)]}*_~", (int)at(r, end - 1)))
		end--;
	if (end == first)
		return i + 1;
	style(r, i, end, IG_STYLE_UNDERLINE | IG_STYLE_LINK, 0);
	return end;
}

static size_t read_escape(struct reader *r, size_t i)
{
	if (i + 1 == r->end)
		return r->last ? i + 1 : WAIT;
	if (!is_punctuation(at(r, i + 1)))
		return i + 1;
	dim(r, i, 1);
	return i + 2;
}

static unsigned style_of(uint32_t mark, unsigned len)
{
	return mark == '~' ? IG_STYLE_STRIKE : len == 2 ? IG_STYLE_BOLD : IG_STYLE_ITALIC;
}

static size_t read_mark(struct reader *r, size_t i)
{
	const struct frame *top = r->n_frames ? &r->frames[r->n_frames - 1] : NULL;
	uint32_t c = at(r, i);

	if (!r->last && i + (at(r, i + 1) == c) + 1 >= r->end)
		return WAIT;
	/* of three the first closes what was opened last */
	bool inner = top && top->len == 1 && top->mark == c && at(r, i + 2) == c;
	unsigned len = at(r, i + 1) == c && !inner ? 2 : 1;
	if (c == '~' && len == 1)
		return i + 1;
	uint32_t before = i > r->start ? around(r, i - 1) : around(r, r->start - 1);
	uint32_t after = around(r, i + len);
	if (r->depth && i == r->start)
		before = ' ';
	bool in_word = c == '_' && is_word(before) && is_word(after);
	unsigned open = r->n_frames;
	while (open && (r->frames[open - 1].mark != c || r->frames[open - 1].len != len))
		open--;
	if (open && !is_blank(before) && !in_word) {
		const struct frame *f = &r->frames[open - 1];
		style(r, f->at + len, i, style_of(c, len), 0);
		dim(r, f->at, len);
		dim(r, i, len);
		r->n_frames = open - 1;
		return i + len;
	}
	if (is_blank(after) || in_word || r->n_frames == MAX_MARKS)
		return i + 1;
	r->frames[r->n_frames++] = (struct frame){ c, len, i };
	return i + len;
}

static size_t read_one(struct reader *r, size_t i)
{
	switch (at(r, i)) {
	case '\\': return read_escape(r, i);
	case '`': return read_code(r, i);
	case '[': return read_link(r, i, false);
	case '!':
		if (i + 1 == r->end && !r->last)
			return WAIT;
		if (at(r, i + 1) != '[')
			return i + 1;
		size_t end = read_link(r, i + 1, true);
		if (end == i + 2)
			return i + 1;
		if (end != WAIT)
			dim(r, i, 1);
		return end;
	case 'h':
	case 'H': return read_address(r, i);
	case '*':
	case '_':
	case '~': return read_mark(r, i);
	default: return i + 1;
	}
}

/* Style what is complete; how much of it may be written. */
static size_t read_range(struct ig_inline *t, size_t start, size_t end, bool last, unsigned depth)
{
	struct reader r = { .t = t, .start = start, .end = end, .last = last, .depth = depth };
	size_t i = start;

	while (i < end) {
		size_t next = read_one(&r, i);
		if (next == WAIT)
			break;
		i = next;
	}
	if (!last && r.n_frames && r.frames[0].at < i)
		i = r.frames[0].at;
	return last ? end : i;
}

void ig_inline_add(struct ig_inline *t, struct ig_wrap *w, uint32_t c, unsigned extra, bool inert)
{
	bool special = !inert && c < 0x80 && strchr("\\`*_~[!hH", (int)c);

	if (!t->n && !special) {
		ig_wrap_char(w, c, extra | t->base);
		t->before = c;
		return;
	}
	if (!ig_array_grow(t->held, &t->cap, t->n)) {
		w->out->failed = true;
		return;
	}
	t->held[t->n++] = (struct ig_held){ c, (uint8_t)extra, inert };
	if (inert) /* nothing ends here */
		return;
	for (size_t i = 0; i < t->n; i++)
		if (!t->held[i].inert)
			t->held[i].style = 0;
	bool full = t->n >= IG_MARKDOWN_HOLD;
	write_held(t, w, read_range(t, 0, t->n, full, 0));
}

void ig_inline_hang(struct ig_inline *t, struct ig_wrap *w)
{
	if (t->n)
		ig_inline_add(t, w, HANG, 0, true);
	else
		ig_wrap_hang(w);
}

void ig_inline_end(struct ig_inline *t, struct ig_wrap *w)
{
	for (size_t i = 0; i < t->n; i++)
		if (!t->held[i].inert)
			t->held[i].style = 0;
	write_held(t, w, read_range(t, 0, t->n, true, 0));
	t->before = 0;
	t->hopeless = 0;
}
