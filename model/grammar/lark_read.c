/*
 * lark_read.c: reads a grammar in lark's notation: rules and terminals with alternatives, groups,
 * repetitions, strings, expressions and ranges of characters; aliases, priorities and the prefixes
 * ! ? _ of names, which change the tree that lark makes, but no text; %import from "common", and
 * %ignore.  Templates, %declare, %extend and %override are refused.  A recursive-descent parser; the
 * depth is bounded.
 */
#include "model/grammar/lark_private.h"

#include "base/array.h"
#include "base/utf8.h"
#include "base/hex.h"
#include "model/grammar/regex_private.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_LEN 65536
#define MAX_RULES 2000
#define MAX_DEPTH 32	 /* of groups */
#define MAX_COUNT 100000 /* in ~n..m; the limits of automata are reached long before */

struct reader {
	struct ig_lark *l;
	const char *start, *p, *end;
	struct ig_error *err;
	unsigned depth;
	bool in_terminal;
};

int ig_lark_fail(const struct ig_lark *l, size_t at, struct ig_error *err, int code,
		 const char *fmt, ...)
{
	unsigned line = 1, column = 1;
	char text[256];
	va_list ap;

	for (size_t i = 0; i < at && i < l->len; i++) {
		if (l->definition[i] == '\n') {
			line++;
			column = 1;
		} else if (!ig_utf8_continues(l->definition[i])) {
			column++;
		}
	}
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	return ig_fail(err, code, "line %u, column %u: %s", line, column, text);
}

#define BAD(x, ...)                                                                                \
	ig_lark_fail((x)->l, (size_t)((x)->p - (x)->start), (x)->err, -EINVAL, __VA_ARGS__)

/* ---- characters ------------------------------------------------------------------------ */

static bool at(const struct reader *x, const char *s)
{
	size_t n = strlen(s);

	return (size_t)(x->end - x->p) >= n && !memcmp(x->p, s, n);
}

static bool take(struct reader *x, const char *s)
{
	if (!at(x, s))
		return false;
	x->p += strlen(s);
	return true;
}

/* Skip spaces and comments; over_lines: ends of lines too. */
static void skip(struct reader *x, bool over_lines)
{
	while (x->p < x->end) {
		if (*x->p == ' ' || *x->p == '\t' || *x->p == '\r' || *x->p == '\f' ||
		    (*x->p == '\n' && over_lines))
			x->p++;
		else if (*x->p == '#' || at(x, "//"))
			while (x->p < x->end && *x->p != '\n')
				x->p++;
		else
			return;
	}
}

static bool is_letter(char c) { return (c | 32) >= 'a' && (c | 32) <= 'z'; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* What is at the current place, for an error. */
static int unexpected(struct reader *x, const char *wanted)
{
	int n = x->p < x->end ?
			ig_utf8_check((const unsigned char *)x->p, (size_t)(x->end - x->p)) :
			0;

	if (!n)
		return BAD(x, "the grammar ends where %s is expected", wanted);
	if (*x->p == '\n')
		return BAD(x, "the line ends where %s is expected", wanted);
	return BAD(x, "'%.*s' where %s is expected", n, x->p, wanted);
}

static int take_name(struct reader *x, const char **name, size_t *len, bool *is_terminal)
{
	bool lower = false, upper = false;

	*name = x->p;
	while (x->p < x->end &&
	       (is_letter(*x->p) || *x->p == '_' || (is_digit(*x->p) && x->p > *name))) {
		lower = lower || (*x->p >= 'a' && *x->p <= 'z');
		upper = upper || (*x->p >= 'A' && *x->p <= 'Z');
		x->p++;
	}
	*len = (size_t)(x->p - *name);
	*is_terminal = upper;
	if (lower != upper)
		return 0;
	x->p = *name;
	if (lower)
		return BAD(x, "the name '%.*s' mixes lower and upper case", (int)*len, *name);
	return unexpected(x, "a name");
}

static int take_number(struct reader *x, uint32_t *out)
{
	const char *start = x->p;

	for (*out = 0; x->p < x->end && is_digit(*x->p); x->p++)
		if (*out <= MAX_COUNT)
			*out = *out * 10 + (uint32_t)(*x->p - '0');
	if (x->p == start)
		return unexpected(x, "a number");
	return *out <= MAX_COUNT ? 0 : BAD(x, "a repetition of more than %d", MAX_COUNT);
}

/* ---- the tree -------------------------------------------------------------------------- */

static int no_memory(struct reader *x)
{
	return ig_fail(x->err, -ENOMEM, "out of memory for the grammar");
}

static int add_node(struct reader *x, struct ig_lark_node n, const char *where, uint32_t *out)
{
	struct ig_lark *l = x->l;

	if (!ig_array_grow(l->nodes, &l->cap_nodes, l->n_nodes))
		return no_memory(x);
	n.at = (size_t)(where - x->start);
	l->nodes[l->n_nodes] = n;
	*out = l->n_nodes++;
	return 0;
}

/* Put a node below another, after *last (0: it is the first). */
static void append(struct ig_lark *l, uint32_t parent, uint32_t *last, uint32_t node)
{
	if (*last)
		l->nodes[*last].next = node;
	else
		l->nodes[parent].child = node;
	*last = node;
}

static int add_rule(struct reader *x, struct ig_lark_rule r)
{
	struct ig_lark *l = x->l;

	if (l->n_rules == MAX_RULES)
		return ig_lark_fail(l, r.at, x->err, -E2BIG, "more than %d rules", MAX_RULES);
	if (!ig_array_grow(l->rules, &l->cap_rules, l->n_rules))
		return no_memory(x);
	l->rules[l->n_rules++] = r;
	return 0;
}

/* ---- strings and expressions --------------------------------------------------------------- */

/* After a backslash: the character that it stands for is written to *to.  An escape that lark does
 * not know is a backslash and the character. */
static int unescape(struct reader *x, char **to)
{
	static const char from[] = "nrtf\"\\", plain[] = "\n\r\t\f\"\\";
	char letter = *x->p;
	const char *known = strchr(from, letter);
	unsigned n = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
	uint32_t c = 0;

	if (known) {
		*(*to)++ = plain[known - from];
		x->p++;
		return 0;
	}
	if (!n) {
		*(*to)++ = '\\';
		return 0;
	}
	for (unsigned i = 1; i <= n; i++) {
		int d = x->p + i < x->end ? ig_hex_digit(x->p[i]) : -1;
		if (d < 0)
			return BAD(x, "\\%c needs %u hexadecimal digits", letter, n);
		c = c > 0x10ffff ? c : c << 4 | (uint32_t)d;
	}
	if (!c || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return BAD(x, "\\%c names no character", letter);
	x->p += n + 1;
	*to += ig_utf8_put(*to, c);
	return 0;
}

/* At a quote: the string's text, unescaped where it lies, which makes it no longer. */
static int take_string(struct reader *x, const char **text, size_t *len)
{
	const char *open = x->p++;
	char *to = x->l->text + (x->p - x->start);
	int rc;

	*text = to;
	while (x->p < x->end && *x->p != '"' && *x->p != '\n') {
		if (*x->p == '\\' && x->p + 1 < x->end && x->p[1] != '\n') {
			x->p++;
			if ((rc = unescape(x, &to)))
				return rc;
		} else {
			*to++ = *x->p++;
		}
	}
	*len = (size_t)(to - *text);
	if (take(x, "\""))
		return 0;
	x->p = open;
	return BAD(x, "a string without its closing quote");
}

/* One character, of a range. */
static int only_character(struct reader *x, const char *where, const char *s, size_t len,
			  uint32_t *out)
{
	int n = ig_utf8_check((const unsigned char *)s, len);

	if (n > 0 && (size_t)n == len) {
		*out = ig_utf8_char((const unsigned char *)s, n);
		return 0;
	}
	x->p = where;
	return BAD(x, "the ends of a range are single characters");
}

/* A string, or a range of characters. */
static int take_text(struct reader *x, uint32_t *out)
{
	struct ig_lark_node n = { .kind = IG_LARK_TEXT };
	const char *where = x->p, *before, *text;
	size_t len;
	int rc = take_string(x, &n.text, &n.len);

	if (rc)
		return rc;
	if (x->p < x->end && is_letter(*x->p) && *x->p != 'i')
		return BAD(x, "a string has no flag '%c'", *x->p);
	if (take(x, "i") && n.len)
		n.flags = IG_REGEX_FOLD;
	before = x->p;
	skip(x, false);
	if (!take(x, "..")) {
		x->p = before;
		return add_node(x, n, where, out);
	}
	skip(x, false);
	before = x->p;
	if (!at(x, "\""))
		return unexpected(x, "the end of the range");
	if ((rc = take_string(x, &text, &len)) ||
	    (rc = only_character(x, before, text, len, &n.max)) ||
	    (rc = only_character(x, where, n.text, n.len, &n.min)))
		return rc;
	if (n.flags || n.max < n.min) {
		x->p = where;
		return BAD(x, n.flags ? "a range has no flags" :
					"a range whose end is before its beginning");
	}
	n.kind = IG_LARK_RANGE;
	return add_node(x, n, where, out);
}

static int take_regex(struct reader *x, uint32_t *out)
{
	struct ig_lark_node n = { .kind = IG_LARK_REGEX, .flags = IG_REGEX_PART | IG_REGEX_LINE };
	const char *open = x->p++;

	n.text = x->p;
	while (x->p < x->end && *x->p != '/' && *x->p != '\n')
		x->p += *x->p == '\\' && x->p + 1 < x->end && x->p[1] != '\n' ? 2 : 1;
	n.len = (size_t)(x->p - n.text);
	if (!take(x, "/")) {
		x->p = open;
		return BAD(x, "an expression without its closing slash");
	}
	for (; x->p < x->end && is_letter(*x->p); x->p++) {
		if (*x->p == 'i')
			n.flags |= IG_REGEX_FOLD;
		else if (*x->p == 's')
			n.flags |= IG_REGEX_DOTALL;
		else if (*x->p != 'u')
			return BAD(x, "the flag '%c' of an expression is not supported", *x->p);
	}
	return add_node(x, n, open, out);
}

/* ---- expressions of rules ------------------------------------------------------------------ */

static int take_either(struct reader *x, uint32_t *out);

static int take_group(struct reader *x, uint32_t *out)
{
	const char *where = x->p;
	bool is_optional = *x->p++ == '[';
	uint32_t inside;
	int rc;

	if (++x->depth > MAX_DEPTH)
		return BAD(x, "groups are nested more than %d deep", MAX_DEPTH);
	if ((rc = take_either(x, &inside)))
		return rc;
	x->depth--;
	if (!take(x, is_optional ? "]" : ")"))
		return unexpected(x, is_optional ? "']'" : "')'");
	*out = inside;
	if (!is_optional)
		return 0;
	return add_node(x,
			(struct ig_lark_node){ .kind = IG_LARK_REPEAT, .child = inside, .max = 1 },
			where, out);
}

static int take_atom(struct reader *x, uint32_t *out)
{
	struct ig_lark_node n = { .kind = IG_LARK_NAME };
	const char *where = x->p;
	bool is_terminal;
	int rc;

	if (at(x, "(") || at(x, "["))
		return take_group(x, out);
	if (at(x, "\""))
		return take_text(x, out);
	if (at(x, "/"))
		return take_regex(x, out);
	if (x->p == x->end || !(is_letter(*x->p) || *x->p == '_'))
		return unexpected(x, "a name, a string, an expression or a group");
	if ((rc = take_name(x, &n.text, &n.len, &is_terminal)))
		return rc;
	if (at(x, "{"))
		return BAD(x, "templates are not supported");
	if (x->in_terminal && !is_terminal) {
		x->p = where;
		return BAD(x, "a terminal can't contain the rule '%.*s'", (int)n.len, n.text);
	}
	return add_node(x, n, where, out);
}

/* An atom and how often it comes. */
static int take_repeat(struct reader *x, uint32_t *out)
{
	struct ig_lark_node n = { .kind = IG_LARK_REPEAT, .max = IG_LARK_UNBOUNDED };
	const char *where = x->p;
	int rc = take_atom(x, &n.child);

	if (rc)
		return rc;
	*out = n.child;
	skip(x, x->depth > 0);
	if (take(x, "?")) {
		n.max = 1;
	} else if (take(x, "+")) {
		n.min = 1;
	} else if (take(x, "~")) {
		skip(x, false);
		if ((rc = take_number(x, &n.min)))
			return rc;
		n.max = n.min;
		skip(x, x->depth > 0);
		if (take(x, "..")) {
			skip(x, false);
			if ((rc = take_number(x, &n.max)))
				return rc;
		}
		if (n.max < n.min)
			return BAD(x, "a repetition whose end is below its beginning");
	} else if (!take(x, "*")) {
		return 0;
	}
	if (at(x, "?") || at(x, "*") || at(x, "+") || at(x, "~"))
		return BAD(x, "only one repetition can follow");
	return add_node(x, n, where, out);
}

/* One alternative, with its alias. */
static int take_sequence(struct reader *x, uint32_t *out)
{
	uint32_t last = 0, one;
	const char *name;
	size_t len;
	bool is_terminal;
	int rc = add_node(x, (struct ig_lark_node){ .kind = IG_LARK_SEQUENCE }, x->p, out);

	for (;;) {
		skip(x, x->depth > 0);
		if (rc || x->p == x->end || *x->p == '\n' || strchr("|)]", *x->p))
			return rc;
		if (at(x, "->"))
			break;
		if (!(rc = take_repeat(x, &one)))
			append(x->l, *out, &last, one);
	}
	if (x->in_terminal)
		return BAD(x, "a terminal has no alias");
	x->p += 2;
	skip(x, false);
	rc = take_name(x, &name, &len, &is_terminal);
	skip(x, x->depth > 0);
	if (!rc && x->p < x->end && *x->p != '\n' && !strchr("|)]", *x->p))
		return unexpected(x, "the end of the alternative");
	return rc;
}

/* Whether another alternative follows, maybe on the next line. */
static bool take_bar(struct reader *x)
{
	const char *before = x->p;

	skip(x, true);
	if (take(x, "|"))
		return true;
	x->p = before;
	return false;
}

static int take_either(struct reader *x, uint32_t *out)
{
	uint32_t last = 0, one;
	int rc = add_node(x, (struct ig_lark_node){ .kind = IG_LARK_EITHER }, x->p, out);

	do {
		if (rc || (rc = take_sequence(x, &one)))
			return rc;
		append(x->l, *out, &last, one);
	} while (take_bar(x));
	return 0;
}

/* ---- statements ---------------------------------------------------------------------------- */

static int end_line(struct reader *x)
{
	skip(x, false);
	return x->p == x->end || *x->p == '\n' ? 0 : unexpected(x, "the end of the line");
}

/* [!?]name.priority: alternatives */
static int take_definition(struct reader *x)
{
	struct ig_lark_rule r = { 0 };
	int rc;

	while (at(x, "!") || at(x, "?"))
		x->p++;
	r.at = (size_t)(x->p - x->start);
	if ((rc = take_name(x, &r.name, &r.len, &r.is_terminal)))
		return rc;
	if (at(x, "{"))
		return BAD(x, "templates are not supported");
	if (take(x, ".")) {
		uint32_t ignored;
		if (!take(x, "-"))
			take(x, "+");
		if ((rc = take_number(x, &ignored)))
			return rc;
	}
	skip(x, false);
	if (!take(x, ":"))
		return unexpected(x, "':'");
	x->in_terminal = r.is_terminal;
	if ((rc = take_either(x, &r.node)) || (rc = end_line(x)))
		return rc;
	return add_rule(x, r);
}

/* A terminal of "common", under its own or another name. */
static int import(struct reader *x, const char *name, size_t len, const char *as, size_t as_len)
{
	struct ig_lark_node n = { .kind = IG_LARK_REGEX, .flags = IG_REGEX_PART };
	struct ig_lark_rule r = { .name = as, .len = as_len, .is_terminal = true };
	uint32_t sequence, regex, last = 0;
	int rc;

	if (!(n.text = ig_lark_common(name, len))) {
		x->p = name;
		return BAD(x, "\"common\" has no terminal '%.*s'", (int)len, name);
	}
	n.len = strlen(n.text);
	r.at = (size_t)(name - x->start);
	if ((rc = add_node(x, n, name, &regex)) ||
	    (rc = add_node(x, (struct ig_lark_node){ .kind = IG_LARK_SEQUENCE, .child = regex },
			   name, &sequence)) ||
	    (rc = add_node(x, (struct ig_lark_node){ .kind = IG_LARK_EITHER }, name, &r.node)))
		return rc;
	append(x->l, r.node, &last, sequence);
	return add_rule(x, r);
}

/* (NAME, NAME …) */
static int import_list(struct reader *x)
{
	const char *name;
	size_t len;
	bool is_terminal;
	int rc;

	do {
		skip(x, true);
		if ((rc = take_name(x, &name, &len, &is_terminal)) ||
		    (rc = import(x, name, len, name, len)))
			return rc;
		skip(x, true);
	} while (take(x, ","));
	return take(x, ")") ? end_line(x) : unexpected(x, "',' or ')'");
}

static int take_import(struct reader *x)
{
	const char *name, *as;
	size_t len, as_len;
	bool is_terminal, as_terminal = true;
	int rc;

	skip(x, false);
	if (!take(x, "common") || (!at(x, ".") && !at(x, " ") && !at(x, "(")))
		return BAD(x, "only terminals of \"common\" can be imported");
	skip(x, false);
	if (take(x, "("))
		return import_list(x);
	if (!take(x, "."))
		return unexpected(x, "'.' or '('");
	if ((rc = take_name(x, &name, &len, &is_terminal)))
		return rc;
	as = name;
	as_len = len;
	skip(x, false);
	if (take(x, "->")) {
		skip(x, false);
		if ((rc = take_name(x, &as, &as_len, &as_terminal)))
			return rc;
	}
	if (!as_terminal) {
		x->p = as;
		return BAD(x, "a terminal can't be imported as the rule '%.*s'", (int)as_len, as);
	}
	return (rc = end_line(x)) ? rc : import(x, name, len, as, as_len);
}

static int take_ignore(struct reader *x, uint32_t *last)
{
	struct ig_lark *l = x->l;
	uint32_t one;
	int rc;

	x->in_terminal = true;
	if (!l->ignore &&
	    (rc = add_node(x, (struct ig_lark_node){ .kind = IG_LARK_EITHER }, x->p, &l->ignore)))
		return rc;
	if ((rc = take_either(x, &one)) || (rc = end_line(x)))
		return rc;
	append(l, l->ignore, last, one);
	return 0;
}

static int take_statements(struct reader *x)
{
	uint32_t last_ignored = 0;
	int rc = 0;

	for (skip(x, true); x->p < x->end && !rc; skip(x, true)) {
		if (take(x, "%import "))
			rc = take_import(x);
		else if (take(x, "%ignore "))
			rc = take_ignore(x, &last_ignored);
		else if (at(x, "%"))
			rc = BAD(x, "only %%import and %%ignore are supported");
		else
			rc = take_definition(x);
	}
	return rc;
}

static int check_text(struct reader *x)
{
	if (x->l->len > MAX_LEN)
		return ig_fail(x->err, -E2BIG, "a grammar of more than %d bytes", MAX_LEN);
	for (; x->p < x->end;) {
		int n = ig_utf8_check((const unsigned char *)x->p, (size_t)(x->end - x->p));
		if (n <= 0 || !*x->p)
			return BAD(x, n <= 0 ? "the grammar is not UTF-8" :
					       "a zero byte can't be asked for");
		x->p += n;
	}
	x->p = x->start;
	return 0;
}

int ig_lark_read(struct ig_lark *l, struct ig_error *err)
{
	struct reader x = { .l = l,
			    .start = l->definition,
			    .p = l->definition,
			    .end = l->definition + l->len,
			    .err = err };
	uint32_t unused;
	int rc = check_text(&x);

	if (rc)
		return rc;
	l->text = malloc(l->len + 1);
	if (!l->text)
		return no_memory(&x);
	if ((rc = add_node(&x, (struct ig_lark_node){ 0 }, x.p, &unused)))
		return rc;
	return take_statements(&x);
}
