/*
 * lexer.c: splits the text of a template into tokens.  It also handles white space around Jinja's
 * marks: "-" strips all of it, trim_blocks drops the newline after a statement or comment,
 * lstrip_blocks the indentation before one, "+" prevents both.  All newlines are "\n" and a last
 * one is dropped already (see ig_jinja_compile).
 */
#include "model/jinja/jinja_private.h"
#include "base/utf8.h"
#include "base/hex.h"

#include <errno.h>
#include <stdlib.h>

static int fail(struct lexer *x, uint32_t line, const char *what)
{
	return ig_fail(x->err, -EINVAL, "line %u: %s", line, what);
}

static int out_of_memory(struct lexer *x)
{
	if (x->arena->over)
		return ig_fail(x->err, -EINVAL, "line %u: the template is too large", x->line);
	return ig_fail(x->err, -ENOMEM, "out of memory for a template");
}

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_name_start(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
	       (unsigned char)c >= 0x80;
}

static bool at(const struct lexer *x, size_t pos, const char *s)
{
	size_t n = strlen(s);

	return pos <= x->len && x->len - pos >= n && !memcmp(x->s + pos, s, n);
}

static void advance(struct lexer *x, size_t to)
{
	for (; x->pos < to; x->pos++)
		x->line += x->s[x->pos] == '\n';
}

static void skip_space(struct lexer *x)
{
	size_t n;

	while (x->pos < x->len && (n = space_at(x->s + x->pos, x->len - x->pos)))
		advance(x, x->pos + n);
}

/* After the end of a mark: "-" before it strips the white space that follows; a newline directly
 * after a statement or comment is dropped.  x->pos is after the mark. */
static void end_mark(struct lexer *x, bool strip, bool trim)
{
	if (strip)
		skip_space(x);
	else if (trim && x->pos < x->len && x->s[x->pos] == '\n')
		advance(x, x->pos + 1);
	x->line_start = x->pos > 0 && x->s[x->pos - 1] == '\n';
}

/* The end of the text before a mark at end; sign: "-", "+" or anything else. */
static size_t text_end(const struct lexer *x, size_t first, size_t end, char sign, bool is_var)
{
	size_t n, i = end;

	if (sign == '-') {
		while (i > first && (n = space_before(x->s + first, i - first)))
			i -= n;
		return i;
	}
	if (sign == '+' || is_var)
		return end;
	while (i > first && is_blank(x->s[i - 1]) && x->s[i - 1] != '\n')
		i--;
	if (i == first ? x->line_start : x->s[i - 1] == '\n')
		return i;
	return end;
}

static size_t find(const struct lexer *x, size_t from, const char *what)
{
	for (; from < x->len; from++)
		if (at(x, from, what))
			return from;
	return SIZE_MAX;
}

/* A keyword that is alone in its statement: "{%- raw -%}".  The position after the statement,
 * and whether it ends with "-%}"; SIZE_MAX for anything else. */
static size_t lone_statement(const struct lexer *x, size_t pos, const char *word, bool *strip)
{
	size_t n = strlen(word);

	pos += 2;
	if (pos < x->len && (x->s[pos] == '-' || x->s[pos] == '+'))
		pos++;
	while (pos < x->len && is_blank(x->s[pos]))
		pos++;
	if (!at(x, pos, word))
		return SIZE_MAX;
	for (pos += n; pos < x->len && is_blank(x->s[pos]); pos++)
		;
	*strip = at(x, pos, "-%}");
	if (*strip || at(x, pos, "+%}"))
		return pos + 3;
	return at(x, pos, "%}") ? pos + 2 : SIZE_MAX;
}

static char sign_at(const struct lexer *x, size_t mark)
{
	return mark + 2 < x->len ? x->s[mark + 2] : 0;
}

/* {% raw %}: its text is a token. */
static int read_raw(struct lexer *x, size_t begin, bool strip, struct token *t)
{
	uint32_t line = x->line;
	size_t first, end, after;

	advance(x, begin);
	if (strip)
		skip_space(x);
	x->line_start = x->s[x->pos - 1] == '\n';
	first = x->pos;
	for (end = first; (end = find(x, end, "{%")) != SIZE_MAX; end++)
		if ((after = lone_statement(x, end, "endraw", &strip)) != SIZE_MAX)
			break;
	if (end == SIZE_MAX)
		return fail(x, line, "{% raw %} has no {% endraw %}");
	*t = (struct token){ .kind = T_TEXT, .line = x->line, .p = x->s + first };
	t->len = (uint32_t)(text_end(x, first, end, sign_at(x, end), false) - first);
	bool plus = x->s[after - 3] == '+';
	advance(x, after);
	end_mark(x, strip, !plus);
	return 0;
}

/* Text up to the next mark; when there is none, the mark itself. */
static int next_text(struct lexer *x, struct token *t)
{
	for (;;) {
		size_t first = x->pos, mark = first;
		while (mark < x->len && !(x->s[mark] == '{' && mark + 1 < x->len &&
					  strchr("{%#", x->s[mark + 1]) && x->s[mark + 1]))
			mark++;
		*t = (struct token){ .line = x->line, .p = x->s + first };
		if (mark == x->len) {
			t->kind = mark > first ? T_TEXT : T_END;
			t->len = (uint32_t)(mark - first);
			advance(x, mark);
			return 0;
		}
		char type = x->s[mark + 1], sign = sign_at(x, mark);
		size_t end = text_end(x, first, mark, sign, type == '{');
		if (mark > first) {
			/* Stop at the mark; the next call reads it, with no text before it. */
			advance(x, mark);
			x->line_start = false;
			if (end == first)
				continue;
			t->kind = T_TEXT;
			t->len = (uint32_t)(end - first);
			return 0;
		}
		if (type == '#') {
			size_t close = find(x, mark + 2, "#}");
			uint32_t line = x->line;
			if (close == SIZE_MAX)
				return fail(x, line, "a comment has no end");
			char before = close > mark + 2 ? x->s[close - 1] : 0;
			advance(x, close + 2);
			end_mark(x, before == '-', before != '+');
			continue;
		}
		if (type == '%') {
			bool strip;
			size_t after = lone_statement(x, mark, "raw", &strip);
			if (after != SIZE_MAX) {
				int rc = read_raw(x, after, strip, t);
				if (rc || t->len)
					return rc;
				continue;
			}
		}
		t->kind = type == '%' ? T_BLOCK_BEGIN : T_VAR_BEGIN;
		x->state = type == '%' ? IN_BLOCK : IN_VAR;
		x->n_open = 0;
		x->after_dot = false;
		advance(x, mark + 2 + (sign == '-' || sign == '+'));
		return 0;
	}
}

/* ---- inside a mark ---------------------------------------------------------------- */

/* \xHH, \uHHHH, \UHHHHHHHH; *i is after the letter. */
static int read_code(struct lexer *x, const char *s, size_t end, size_t *i, int n, uint32_t *c)
{
	*c = 0;
	for (int k = 0; k < n; k++, (*i)++) {
		int d = *i < end ? ig_hex_digit(s[*i]) : -1;
		if (d < 0)
			return fail(x, x->line, "an escape with too few hexadecimal digits");
		*c = *c << 4 | (uint32_t)d;
	}
	if (*c > 0x10ffff || (*c >= 0xd800 && *c < 0xe000))
		return fail(x, x->line, "an escape is not a character");
	return 0;
}

/* Python's escapes; an unknown one keeps its backslash.  No escape is shorter than its
 * character's UTF-8. */
static int unescape(struct lexer *x, const char *s, size_t end, char *out, size_t *len)
{
	static const char from[] = "ntr\\'\"abfv", to[] = "\n\t\r\\'\"\a\b\f\v";
	uint32_t c;
	int rc;

	for (size_t i = 0; i < end;) {
		if (s[i] != '\\') {
			out[(*len)++] = s[i++];
			continue;
		}
		char e = s[i + 1]; /* at least the closing quote follows */
		const char *known = e ? strchr(from, e) : NULL;
		i += 2;
		if (known) {
			out[(*len)++] = to[known - from];
		} else if (e == '\n') {
			continue;
		} else if (e >= '0' && e <= '7') {
			c = (uint32_t)(e - '0');
			for (int k = 0; k < 2 && i < end && s[i] >= '0' && s[i] <= '7'; k++)
				c = c << 3 | (uint32_t)(s[i++] - '0');
			*len += ig_utf8_put(out + *len, c);
		} else if (e == 'x' || e == 'u' || e == 'U') {
			rc = read_code(x, s, end, &i, e == 'x' ? 2 : e == 'u' ? 4 : 8, &c);
			if (rc)
				return rc;
			*len += ig_utf8_put(out + *len, c);
		} else if (e == 'N') {
			return fail(x, x->line, "characters by name (\\N) are not supported");
		} else {
			out[(*len)++] = '\\';
			out[(*len)++] = e;
		}
	}
	return 0;
}

static int read_string(struct lexer *x, struct token *t)
{
	char quote = x->s[x->pos];
	size_t first = x->pos + 1, end = first, len = 0;
	bool plain = true;
	int rc;

	for (; end < x->len && x->s[end] != quote; end++)
		if (x->s[end] == '\\') {
			plain = false;
			end++;
		}
	if (end >= x->len)
		return fail(x, x->line, "a string has no end");
	t->kind = T_STRING;
	t->p = x->s + first;
	len = end - first;
	if (!plain) {
		char *out = arena_alloc(x->arena, len);
		if (!out)
			return out_of_memory(x);
		len = 0;
		if ((rc = unescape(x, x->s + first, end - first, out, &len)))
			return rc;
		t->p = out;
	}
	t->len = (uint32_t)len;
	advance(x, end + 1);
	return 0;
}

static int read_number(struct lexer *x, struct token *t)
{
	char digits[64];
	size_t n = 0, i = x->pos;
	int base = 10;
	bool is_float = false;

	if (x->s[i] == '0' && i + 1 < x->len && strchr("xXoObB", x->s[i + 1]) && x->s[i + 1]) {
		char c = x->s[i + 1] | 0x20;
		base = c == 'x' ? 16 : c == 'o' ? 8 : 2;
		i += 2;
	}
	for (; i < x->len; i++) {
		char c = x->s[i];
		if (c == '_' && n && i + 1 < x->len && ig_hex_digit(x->s[i + 1]) >= 0)
			continue;
		if (base == 10 && !x->after_dot && c == '.' && !is_float && i + 1 < x->len &&
		    is_digit(x->s[i + 1])) {
			is_float = true;
		} else if (base == 10 && !x->after_dot && (c == 'e' || c == 'E') &&
			   i + 1 < x->len &&
			   (is_digit(x->s[i + 1]) || ((x->s[i + 1] == '-' || x->s[i + 1] == '+') &&
						      i + 2 < x->len && is_digit(x->s[i + 2])))) {
			if (n + 2 >= sizeof digits)
				break;
			is_float = true;
			digits[n++] = c;
			c = x->s[++i];
		} else if (base == 16 ? ig_hex_digit(c) < 0 : !is_digit(c)) {
			break;
		}
		if (n + 1 >= sizeof digits)
			return fail(x, x->line, "a number has too many digits");
		digits[n++] = c;
	}
	digits[n] = 0;
	char *end;
	errno = 0;
	if (is_float) {
		t->kind = T_FLOAT;
		t->f = strtod(digits, &end);
	} else {
		t->kind = T_INT;
		t->i = strtoll(digits, &end, base);
		if (errno == ERANGE)
			return fail(x, x->line, "a number does not fit into 64 bits");
	}
	if (!n || *end)
		return fail(x, x->line, "a number can't be read");
	x->pos = i;
	return 0;
}

static int read_operator(struct lexer *x, struct token *t)
{
	static const char *const two[] = { "//", "**", "==", "!=", ">=", "<=" };
	char c = x->s[x->pos];

	t->kind = T_OP;
	for (size_t i = 0; i < sizeof two / sizeof two[0]; i++)
		if (at(x, x->pos, two[i])) {
			t->op = OP2(two[i][0], two[i][1]);
			x->pos += 2;
			return 0;
		}
	if (!c || !strchr("+-*/%~[](){}<>=.:|,;", c)) {
		char what[48];
		if (c > ' ' && c < 0x7f)
			snprintf(what, sizeof what, "unexpected character '%c'", c);
		else
			snprintf(what, sizeof what, "unexpected byte 0x%02x", (unsigned char)c);
		return fail(x, x->line, what);
	}
	if (strchr("([{", c)) {
		if (x->n_open == sizeof x->open)
			return fail(x, x->line, "too many nested brackets");
		x->open[x->n_open++] = c;
	} else if (strchr(")]}", c)) {
		char want = c == ')' ? '(' : c == ']' ? '[' : '{';
		if (!x->n_open || x->open[x->n_open - 1] != want)
			return fail(x, x->line, "a closing bracket has no opening one");
		x->n_open--;
	}
	t->op = c;
	x->pos++;
	return 0;
}

int lexer_next(struct lexer *x, struct token *t)
{
	const char *mark = x->state == IN_BLOCK ? "%}" : "}}";
	int rc = 0;

	if (x->state == IN_TEXT)
		return next_text(x, t);
	skip_space(x);
	*t = (struct token){ .line = x->line };
	if (x->pos == x->len)
		return fail(x, x->line,
			    x->state == IN_BLOCK ? "a statement has no end (%})" :
						   "an expression has no end (}})");
	char c = x->s[x->pos];
	if (!x->n_open) {
		bool sign =
			(c == '-' || (c == '+' && x->state == IN_BLOCK)) && at(x, x->pos + 1, mark);
		if (sign || at(x, x->pos, mark)) {
			bool is_block = x->state == IN_BLOCK;
			t->kind = is_block ? T_BLOCK_END : T_VAR_END;
			x->state = IN_TEXT;
			x->pos += sign ? 3 : 2;
			end_mark(x, c == '-', is_block && c != '+');
			return 0;
		}
	}
	if (is_name_start(c)) {
		size_t first = x->pos;
		while (x->pos < x->len && (is_name_start(x->s[x->pos]) || is_digit(x->s[x->pos])))
			x->pos++;
		t->kind = T_NAME;
		t->p = x->s + first;
		t->len = (uint32_t)(x->pos - first);
	} else if (is_digit(c)) {
		rc = read_number(x, t);
	} else if (c == '\'' || c == '"') {
		rc = read_string(x, t);
	} else {
		rc = read_operator(x, t);
	}
	x->after_dot = t->kind == T_OP && t->op == '.';
	return rc;
}
