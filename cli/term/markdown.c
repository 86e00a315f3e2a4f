/* markdown.c: the lines of markdown.h: what a line is, from its start or from all of it. */
#include "cli/term/markdown.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

enum what {
	UNKNOWN, /* more of the line must come */
	BLANK,
	TEXT,
	HEADING,
	RULE,
	FENCE,	   /* opens code */
	CODE,	   /* a line of it */
	CODE_END,  /* closes it */
	HEAD,	   /* begins with a bar: a table's first line, if the next one is its second */
	DELIMITER, /* the second */
	ROW,
};

/* What a line is, and where in it. */
struct plan {
	enum what what;
	size_t at; /* where the text begins, behind the marks of quotes and lists */
	unsigned col, quotes, level;
	unsigned n_lists, lists[IG_MARKDOWN_DEEPEST];
	bool item;
	unsigned mark; /* the column of the first item's mark */
	char fence;
	unsigned n_fence;
};

void ig_markdown_init(struct ig_markdown *m, struct ig_strbuf *out, unsigned columns, bool colours)
{
	*m = (struct ig_markdown){ 0 };
	ig_wrap_init(&m->wrap, out, columns, colours);
}

void ig_markdown_finish(struct ig_markdown *m)
{
	ig_wrap_finish(&m->wrap);
	ig_strbuf_finish(&m->line);
	ig_strbuf_finish(&m->head);
	free(m->text.held);
	*m = (struct ig_markdown){ 0 };
}

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

/* ---- tables ------------------------------------------------------------------------- */

static void count_cell(struct ig_markdown *m, uint32_t c)
{
	if (c == '|' && !m->count.escaped && !m->count.code) {
		m->count.n += m->count.began;
		m->count.pipe = true;
	} else if (c != ' ' && c != '\t') {
		m->count.pipe = false;
	}
	m->count.bar |= c == '|';
	m->count.began |= c != ' ' && c != '\t';
	m->count.code ^= c == '`';
	m->count.escaped = c == '\\';
}

/* The cells of the line so far; then a new line begins. */
static unsigned take_cells(struct ig_markdown *m)
{
	unsigned n = m->count.n + 1 - (m->count.pipe && m->count.n);

	memset(&m->count, 0, sizeof m->count);
	return n;
}

static unsigned cells_of(struct ig_markdown *m, const char *s, size_t n)
{
	memset(&m->count, 0, sizeof m->count);
	for (size_t i = 0; i < n; i++)
		count_cell(m, (unsigned char)s[i]);
	return take_cells(m);
}

/* |:--|--:| */
static bool is_delimiter(const char *s, const char *end)
{
	const char *p = s;

	while (end > p && is_blank(end[-1]))
		end--;
	if (p < end && *p == '|')
		p++;
	do {
		while (p < end && is_blank(*p))
			p++;
		p += p < end && *p == ':';
		const char *dash = p;
		while (p < end && *p == '-')
			p++;
		if (p == dash)
			return false;
		p += p < end && *p == ':';
		while (p < end && is_blank(*p))
			p++;
		if (p == end)
			return true;
		if (*p++ != '|')
			return false;
	} while (p < end);
	return true;
}

/* ---- what a line is ------------------------------------------------------------------ */

static size_t run_of(const char *p, const char *end)
{
	size_t n = 0;

	while (p + n < end && p[n] == *p)
		n++;
	return n;
}

static const char *skip_blanks(const char *p, const char *end, unsigned *col)
{
	for (; p < end && is_blank(*p); p++)
		*col += *p == '\t' ? 4 - *col % 4 : 1;
	return p;
}

/* A line within code: behind the marks of its quotes, if it has them. */
static enum what read_code(const struct ig_markdown *m, struct plan *p, bool whole)
{
	const char *s = ig_strbuf_text(&m->line), *end = s + m->line.len, *at = s;
	unsigned col = 0;

	for (unsigned i = 0; i < m->fence_quotes; i++) {
		at = skip_blanks(at, end, &col);
		if (at == end)
			return whole ? TEXT : UNKNOWN;
		if (*at++ != '>')
			return TEXT; /* the quote has ended, and the code with it */
		if (at == end && !whole)
			return UNKNOWN;
		at += at < end && is_blank(*at);
	}
	p->at = (size_t)(at - s);
	at = skip_blanks(at, end, &col);
	if (at == end)
		return whole ? CODE : UNKNOWN;
	size_t n = *at == m->fence ? run_of(at, end) : 0;
	at = skip_blanks(at + n, end, &col);
	if (!n || at < end)
		return CODE;
	return !whole ? UNKNOWN : n >= m->n_fence ? CODE_END : CODE;
}

/* A mark that all the line consists of. */
static enum what read_rule(const char *at, const char *end, bool whole)
{
	size_t n = 0;

	for (const char *p = at; p < end; p++) {
		if (*p == *at)
			n++;
		else if (!is_blank(*p))
			return TEXT;
	}
	return !whole ? UNKNOWN : n >= 3 ? RULE : TEXT;
}

/* The length of an item's mark, of which at least *at is there; 0: it is none; -1: not known yet. */
static int read_item(const char *at, const char *end, bool whole)
{
	int n = 0;

	if (*at == '-' || *at == '*' || *at == '+') {
		n = 1;
	} else {
		while (at + n < end && n < 9 && at[n] >= '0' && at[n] <= '9')
			n++;
		if (!n)
			return 0;
		if (at + n == end)
			return whole ? 0 : -1;
		if (at[n] != '.' && at[n] != ')')
			return 0;
		n++;
	}
	if (at + n == end)
		return whole ? n : -1;
	return is_blank(at[n]) ? n : 0;
}

static enum what read_fence(struct plan *p, const char *at, const char *end, bool whole)
{
	size_t n = run_of(at, end);

	if (at + n == end && !whole)
		return UNKNOWN;
	if (n < 3 || memchr(at + n, '`', (size_t)(end - at) - n))
		return TEXT;
	p->fence = *at;
	p->n_fence = (unsigned)n;
	return whole ? FENCE : UNKNOWN;
}

static enum what read_heading(struct plan *p, const char *at, const char *end, bool whole)
{
	size_t n = run_of(at, end);

	if (n > 6 || (at + n < end && !is_blank(at[n])))
		return TEXT;
	if (at + n == end && !whole)
		return UNKNOWN;
	p->level = (unsigned)n;
	return HEADING;
}

static bool only_delimiters(const char *at, const char *end)
{
	while (at < end && (is_blank(*at) || *at == '|' || *at == ':' || *at == '-'))
		at++;
	return at == end;
}

/* A line that may belong to a table: TEXT: it does not. */
static enum what read_table(struct ig_markdown *m, const char *at, const char *end, bool whole)
{
	if (m->cells && only_delimiters(at, end)) {
		if (!whole)
			return UNKNOWN;
		if (is_delimiter(at, end) && cells_of(m, at, (size_t)(end - at)) == m->cells)
			return DELIMITER;
	}
	if (*at == '|')
		return whole ? HEAD : UNKNOWN;
	return TEXT;
}

/* What begins behind the marks of quotes and lists. */
static enum what read_block(struct ig_markdown *m, struct plan *p, const char *at, const char *end,
			    bool whole)
{
	enum what what = read_table(m, at, end, whole);

	if (what != TEXT)
		return what;
	switch (*at) {
	case '#': return read_heading(p, at, end, whole);
	case '`':
	case '~': return read_fence(p, at, end, whole);
	case '-':
	case '*':
	case '_': return read_rule(at, end, whole);
	default: return TEXT;
	}
}

/* The column against which an indentation counts. */
static unsigned base_of(const struct ig_markdown *m, const struct plan *p, unsigned container,
			unsigned col)
{
	unsigned base = container;

	for (unsigned i = 0; i < m->n_lists; i++)
		if (m->lists[i] <= col && m->lists[i] > base)
			base = m->lists[i];
	for (unsigned i = 0; i < p->n_lists; i++)
		if (p->lists[i] <= col && p->lists[i] > base)
			base = p->lists[i];
	return base;
}

static void push_list(struct plan *p, unsigned col, unsigned text)
{
	if (!p->item)
		p->mark = col;
	p->lists[p->n_lists++] = text;
	p->item = true;
}

static enum what read_line(struct ig_markdown *m, struct plan *p, bool whole)
{
	const char *s = ig_strbuf_text(&m->line), *end = s + m->line.len, *at = s;
	unsigned container = 0;

	for (;;) {
		at = skip_blanks(at, end, &p->col);
		p->at = (size_t)(at - s);
		if (at == end)
			return !whole ? UNKNOWN : p->item || p->quotes ? TEXT : BLANK;
		if (p->col - base_of(m, p, container, p->col) > 3)
			return TEXT;
		if (*at == '>') {
			if (++at == end && !whole)
				return UNKNOWN;
			p->quotes++;
			p->col++;
			container = p->col + (at < end && is_blank(*at));
			continue;
		}
		enum what what = read_block(m, p, at, end, whole);
		int n = what == TEXT ? read_item(at, end, whole) : 0;
		if (n < 0)
			return UNKNOWN;
		if (!n || p->n_lists == IG_MARKDOWN_DEEPEST)
			return what;
		unsigned col = p->col;
		p->col += (unsigned)n;
		const char *text = skip_blanks(at + n, end, &p->col);
		if (text == end && !whole)
			return UNKNOWN;
		push_list(p, col, p->col);
		container = p->col;
		at = text;
	}
}

/* ---- output ------------------------------------------------------------------------------ */

static void each(const char *s, size_t len, void (*take)(struct ig_markdown *m, uint32_t c),
		 struct ig_markdown *m)
{
	for (size_t i = 0; i < len;) {
		int n = ig_utf8_check((const unsigned char *)s + i, len - i);
		take(m, ig_utf8_char((const unsigned char *)s + i, n));
		i += (size_t)n;
	}
}

static void put_dim(struct ig_markdown *m, uint32_t c) { ig_wrap_char(&m->wrap, c, IG_STYLE_DIM); }

static void put_code(struct ig_markdown *m, uint32_t c)
{
	ig_wrap_char(&m->wrap, c, IG_STYLE_CODE);
}

static void put_text(struct ig_markdown *m, uint32_t c)
{
	count_cell(m, c);
	ig_inline_add(&m->text, &m->wrap, c, 0, false);
}

/* The marks before the text. */
static void put_prefix(struct ig_markdown *m, const struct plan *p)
{
	const char *s = ig_strbuf_text(&m->line);

	for (size_t i = 0; i < p->at; i++)
		ig_inline_add(&m->text, &m->wrap, (unsigned char)s[i],
			      s[i] == '>'    ? IG_STYLE_DIM :
			      is_blank(s[i]) ? 0 :
					       IG_STYLE_BOLD,
			      true);
	if (p->at)
		ig_inline_hang(&m->text, &m->wrap);
}

/* A row: bars are dim, and nothing goes on from cell to cell. */
static void put_row(struct ig_markdown *m, const char *s, size_t len, unsigned style)
{
	bool escaped = false, code = false;

	m->text.base = (uint8_t)style;
	for (size_t i = 0; i < len;) {
		int n = ig_utf8_check((const unsigned char *)s + i, len - i);
		uint32_t c = ig_utf8_char((const unsigned char *)s + i, n);
		if (c == '|' && !escaped && !code) {
			ig_inline_end(&m->text, &m->wrap);
			put_dim(m, c);
			if (!i)
				m->wrap.hang = m->wrap.col + 2;
		} else {
			ig_inline_add(&m->text, &m->wrap, c, 0, false);
		}
		code ^= c == '`';
		escaped = c == '\\';
		i += (size_t)n;
	}
	ig_inline_end(&m->text, &m->wrap);
	m->text.base = 0;
}

static void take_containers(struct ig_markdown *m, const struct plan *p)
{
	unsigned lists[2 * IG_MARKDOWN_DEEPEST], n = 0;
	unsigned col = p->item ? p->mark : p->col;

	/* those around it, then its own */
	for (unsigned i = 0; p->quotes == m->quotes && i < m->n_lists; i++)
		if (m->lists[i] <= col)
			lists[n++] = m->lists[i];
	for (unsigned i = 0; i < p->n_lists; i++)
		lists[n++] = p->lists[i];
	m->n_lists = n < IG_MARKDOWN_DEEPEST ? n : IG_MARKDOWN_DEEPEST;
	memcpy(m->lists, lists + (n - m->n_lists), m->n_lists * sizeof *lists);
	m->quotes = p->quotes;
}

static void begin_text(struct ig_markdown *m, const struct plan *p)
{
	bool goes_on = m->paragraph && p->what == TEXT && !p->item && p->quotes == m->quotes;
	size_t mark = p->what == HEADING ? p->level : 0;
	const char *s = ig_strbuf_text(&m->line);

	if (!goes_on)
		ig_inline_end(&m->text, &m->wrap);
	put_prefix(m, p);
	each(s + p->at, mark, put_dim, m);
	if (mark) {
		m->text.base = IG_STYLE_BOLD | IG_STYLE_HEADING;
		m->wrap.hang = m->wrap.col + (unsigned)mark + 1;
	}
	take_containers(m, p);
	m->paragraph = p->what == TEXT;
	m->kind = IG_LINE_TEXT;
	memset(&m->count, 0, sizeof m->count);
	each(s + p->at + mark, m->line.len - p->at - mark, put_text, m);
}

/* The line that could have been a table's first one is none. */
static void write_head(struct ig_markdown *m);

static void begin_code(struct ig_markdown *m, const struct plan *p)
{
	const char *s = ig_strbuf_text(&m->line);

	each(s, p->at, put_dim, m);
	ig_wrap_flush(&m->wrap);
	m->wrap.raw = p->what == CODE;
	m->kind = IG_LINE_CODE;
	each(s + p->at, m->line.len - p->at, p->what == CODE ? put_code : put_dim, m);
	if (p->what == CODE_END)
		m->fence = 0;
}

/* A line that is known as a whole. */
static void put_line(struct ig_markdown *m, const struct plan *p)
{
	const char *s = ig_strbuf_text(&m->line);

	ig_inline_end(&m->text, &m->wrap);
	m->kind = IG_LINE_CODE; /* nothing but its end follows */
	m->paragraph = false;
	put_prefix(m, p);
	if (p->what != BLANK)
		take_containers(m, p);
	if (p->what == ROW)
		put_row(m, s + p->at, m->line.len - p->at, 0);
	else
		each(s + p->at, m->line.len - p->at, put_dim, m);
	if (p->what == FENCE) {
		m->fence = p->fence;
		m->n_fence = p->n_fence;
		m->fence_quotes = p->quotes;
	}
}

/* As put_line; the line is still held then. */
static void take_head(struct ig_markdown *m, const struct plan *p)
{
	write_head(m);
	ig_strbuf_add(&m->head, m->line.data, m->line.len);
	m->cells = cells_of(m, m->line.data + p->at, m->line.len - p->at);
	m->kind = IG_LINE_CODE;
}

/* The table's first line, which was held. */
static void put_head(struct ig_markdown *m, const struct plan *p)
{
	struct ig_strbuf second = m->line;
	struct plan first = { 0 };

	m->line = m->head;
	m->head = (struct ig_strbuf){ 0 };
	if (m->line.len) {
		m->line.len--; /* its newline */
		read_line(m, &first, true);
		ig_inline_end(&m->text, &m->wrap);
		put_prefix(m, &first);
		take_containers(m, &first);
		put_row(m, ig_strbuf_text(&m->line) + first.at, m->line.len - first.at,
			IG_STYLE_BOLD);
		ig_wrap_char(&m->wrap, '\n', 0);
	}
	ig_strbuf_finish(&m->line);
	m->line = second;
	put_line(m, p);
	m->table = true;
}

static void write_head(struct ig_markdown *m)
{
	struct ig_strbuf line = m->line;
	struct plan p = { 0 };

	if (!m->head.len)
		return;
	m->line = m->head;
	m->head = (struct ig_strbuf){ 0 };
	bool ended = m->line.data[m->line.len - 1] == '\n';
	m->line.len -= ended;
	read_line(m, &p, true);
	p.what = TEXT;
	begin_text(m, &p);
	if (ended)
		put_text(m, '\n');
	ig_strbuf_finish(&m->line);
	m->line = line;
}

/* ---- input ---------------------------------------------------------------------------------- */

static enum what find_out(struct ig_markdown *m, struct plan *p, bool whole)
{
	enum what what;

	*p = (struct plan){ 0 };
	if (m->fence) {
		what = read_code(m, p, whole);
		if (what != TEXT)
			return what;
		m->fence = 0;
		*p = (struct plan){ 0 };
	}
	what = read_line(m, p, whole);
	if (!m->table)
		return what;
	/* a row has a bar, which may be at its end */
	if (!whole)
		return UNKNOWN;
	if (what != BLANK && memchr(m->line.data, '|', m->line.len))
		return ROW;
	m->table = false;
	m->cells = 0;
	*p = (struct plan){ 0 };
	return read_line(m, p, whole);
}

/* Write the line as soon as it is known what it is; whole: no more of it comes. */
static void look(struct ig_markdown *m, bool whole)
{
	struct plan p;
	enum what what = find_out(m, &p, whole);

	if (what == UNKNOWN && m->line.len < IG_MARKDOWN_HOLD)
		return;
	if (what == UNKNOWN) {
		m->table = false;
		p.at = p.quotes = p.n_lists = p.item = 0;
		what = m->fence ? CODE : TEXT;
	}
	p.what = what;
	if (what != DELIMITER && what != HEAD) {
		write_head(m);
		m->cells = 0;
	}
	switch (what) {
	case TEXT:
	case HEADING: begin_text(m, &p); break;
	case CODE:
	case CODE_END: begin_code(m, &p); break;
	case HEAD: take_head(m, &p); break;
	case DELIMITER: put_head(m, &p); break;
	default: put_line(m, &p); break;
	}
	if (!ig_strbuf_ok(&m->line) || !ig_strbuf_ok(&m->head))
		m->wrap.out->failed = true;
	ig_strbuf_clear(&m->line);
}

static void end_line(struct ig_markdown *m)
{
	if (m->kind == IG_LINE_OPEN)
		look(m, true);
	if (m->head.len && m->head.data[m->head.len - 1] != '\n') {
		ig_strbuf_puts(&m->head, "\n");
	} else if (m->kind == IG_LINE_TEXT) {
		m->cells = m->paragraph && m->count.bar ? take_cells(m) : 0;
		if (!m->paragraph) {
			ig_inline_end(&m->text, &m->wrap);
			m->text.base = 0;
		}
		ig_inline_add(&m->text, &m->wrap, '\n', 0, false);
	} else {
		ig_wrap_char(&m->wrap, '\n', 0);
	}
	m->wrap.raw = false;
	m->kind = IG_LINE_OPEN;
}

static void add(struct ig_markdown *m, uint32_t c)
{
	char s[4];

	if ((c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7f && c < 0xa0))
		c = ' ';
	if (c == '\n') {
		end_line(m);
	} else if (m->kind == IG_LINE_TEXT) {
		put_text(m, c);
	} else if (m->kind == IG_LINE_CODE) {
		put_code(m, c);
	} else {
		ig_strbuf_add(&m->line, s, ig_utf8_put(s, c));
		look(m, false);
	}
}

void ig_markdown_add(struct ig_markdown *m, const char *s, size_t len)
{
	for (size_t i = 0; i < len;) {
		m->carry[m->n_carry++] = (unsigned char)s[i++];
		int n = ig_utf8_check(m->carry, m->n_carry);
		if (n == 0)
			continue;
		add(m, n > 0 ? ig_utf8_char(m->carry, n) : 0xfffd);
		if (n < 0 && m->n_carry > (unsigned)-n)
			i--; /* it may begin another character */
		m->n_carry = 0;
	}
	ig_wrap_show(&m->wrap);
}

void ig_markdown_end(struct ig_markdown *m)
{
	if (m->n_carry)
		add(m, 0xfffd);
	if (m->kind == IG_LINE_OPEN && m->line.len)
		look(m, true);
	write_head(m);
	ig_inline_end(&m->text, &m->wrap);
	ig_wrap_reset(&m->wrap);
	struct ig_markdown old = *m;
	ig_strbuf_finish(&m->line);
	ig_strbuf_finish(&m->head);
	*m = (struct ig_markdown){ .wrap = old.wrap,
				   .text = { .held = old.text.held, .cap = old.text.cap } };
	m->wrap.raw = false;
}
