/*
 * regex.c: regular expressions: a recursive-descent parser into a tree, which regex_build.c turns
 * into an automaton over UTF-8.  The language is ECMAScript's with its u flag, without what an
 * automaton can't do (look-around, back references) and without \b.  Lazy quantifiers match the
 * same texts as greedy ones.  Where dialects disagree beyond ASCII, \d, \w and \s hold what all
 * agree on, and \D excludes all digits of Unicode.
 */
#include "model/grammar/regex_tree_private.h"

#include "base/array.h"
#include "base/utf8.h"
#include "base/hex.h"
#include "model/common.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LEN 65536
#define MAX_DEPTH 100	 /* of groups */
#define MAX_COUNT 100000 /* in {m,n}; the limits of automata are reached long before */
#define CATEGORY_WORK 1114112

static int bad(struct parser *x, const char *what)
{
	return ig_fail(x->err, -EINVAL, "%s, at byte %zu of the expression", what,
		       (size_t)(x->p - x->start));
}

static int add_node(struct parser *x, struct tree t, uint32_t *out)
{
	if (!ig_array_grow(x->nodes, &x->cap_nodes, x->n_nodes))
		return -ENOMEM;
	x->nodes[x->n_nodes] = t;
	*out = x->n_nodes++;
	return 0;
}

/* Takes ownership of chars. */
static int add_set(struct parser *x, struct ig_charset *chars, uint32_t *out)
{
	ig_charset_sort(chars);
	if (chars->rc || !ig_array_grow(x->sets, &x->cap_sets, x->n_sets)) {
		ig_charset_finish(chars);
		return -ENOMEM;
	}
	x->sets[x->n_sets] = (struct set){ .chars = *chars };
	*chars = (struct ig_charset){ 0 };
	return add_node(x, (struct tree){ .kind = SET, .left = x->n_sets++ }, out);
}

static bool at(const struct parser *x, const char *s)
{
	size_t n = strlen(s);

	return (size_t)(x->end - x->p) >= n && !memcmp(x->p, s, n);
}

static bool take(struct parser *x, const char *s)
{
	if (!at(x, s))
		return false;
	x->p += strlen(s);
	return true;
}

/* ---- characters ------------------------------------------------------------------ */

static int take_char(struct parser *x, uint32_t *c)
{
	const unsigned char *p = (const unsigned char *)x->p;
	int n = ig_utf8_check(p, (size_t)(x->end - x->p));

	if (n <= 0)
		return bad(x, "the expression is not UTF-8");
	*c = ig_utf8_char(p, n);
	if (!*c)
		return bad(x, "a zero byte can't be asked for");
	x->p += n;
	return 0;
}

static bool take_hex(struct parser *x, unsigned n, uint32_t *out)
{
	uint32_t v = 0;

	if ((size_t)(x->end - x->p) < n)
		return false;
	for (unsigned i = 0; i < n; i++) {
		int d = ig_hex_digit(x->p[i]);
		if (d < 0)
			return false;
		v = v << 4 | (uint32_t)d;
	}
	x->p += n;
	*out = v;
	return true;
}

/* After \u. */
static int take_unicode(struct parser *x, uint32_t *c)
{
	uint32_t low;

	if (take(x, "{")) {
		unsigned n = 0;
		for (*c = 0; n < 6 && x->p < x->end && ig_hex_digit(*x->p) >= 0; n++)
			*c = *c << 4 | (uint32_t)ig_hex_digit(*x->p++);
		if (!n || !take(x, "}") || *c > IG_CHAR_MAX)
			return bad(x, "\\u{…} names no character");
	} else if (!take_hex(x, 4, c)) {
		return bad(x, "\\u needs four hexadecimal digits");
	} else if (*c >= 0xd800 && *c <= 0xdbff && take(x, "\\u")) {
		if (!take_hex(x, 4, &low) || low < 0xdc00 || low > 0xdfff)
			return bad(x, "half a surrogate pair is no character");
		*c = 0x10000 + ((*c - 0xd800) << 10 | (low - 0xdc00));
	}
	if (*c >= 0xd800 && *c <= 0xdfff)
		return bad(x, "half a surrogate pair is no character");
	return 0;
}

/* wide: the characters that any dialect includes; else those that all include. */
static int add_class(struct parser *x, struct ig_charset *s, char letter, bool wide)
{
	static const char *const groups[] = { "L", "M", "N", "Pc" };

	if (letter == 's') {
		for (uint32_t c = 9; c <= 0x3000; c++)
			if (ig_is_white_space(c) && (c != 0x85 || wide))
				ig_charset_add(s, c, c);
		if (wide) {
			ig_charset_add(s, 0x1c, 0x1f);
			ig_charset_add(s, 0xfeff, 0xfeff);
		}
		return 0;
	}
	ig_charset_add(s, '0', '9');
	if (letter == 'w') {
		ig_charset_add(s, 'A', 'Z');
		ig_charset_add(s, '_', '_');
		ig_charset_add(s, 'a', 'z');
	}
	for (unsigned i = 0; wide && i < sizeof groups / sizeof groups[0]; i++) {
		if (letter == 'd' && strcmp(groups[i], "N"))
			continue;
		if (x->budget->work < CATEGORY_WORK)
			return -E2BIG;
		x->budget->work -= CATEGORY_WORK;
		ig_charset_add_category(s, groups[i], strlen(groups[i]));
	}
	return 0;
}

/* After \p or \P. */
static int take_category(struct parser *x, struct ig_charset *s, bool negated)
{
	struct ig_charset found = { 0 };
	const char *name, *end;
	int rc = 0;

	if (!take(x, "{") || !(end = memchr(x->p, '}', (size_t)(x->end - x->p))))
		return bad(x, "\\p needs a category in braces");
	name = x->p;
	if ((size_t)(end - name) > 3 && !memcmp(name, "gc=", 3))
		name += 3;
	if (x->budget->work < CATEGORY_WORK)
		return -E2BIG;
	x->budget->work -= CATEGORY_WORK;
	if (!ig_charset_add_category(&found, name, (size_t)(end - name)))
		rc = bad(x, "\\p knows general categories only (\\p{L}, \\p{Lu} …)");
	if (negated)
		ig_charset_negate(&found);
	ig_charset_add_set(s, &found);
	ig_charset_finish(&found);
	x->p = end + 1;
	return rc;
}

/* After a backslash: a character (*one is set) or a class of them (added to s).  wide: within a
 * negated class. */
static int take_escape(struct parser *x, struct ig_charset *s, bool in_class, bool wide, bool *one,
		       uint32_t *c)
{
	struct ig_charset other = { 0 };
	char letter;
	int rc;

	*one = true;
	if (x->p == x->end)
		return bad(x, "a backslash with nothing after it");
	letter = *x->p;
	switch (letter) {
	case 'd':
	case 'w':
	case 's':
		x->p++;
		*one = false;
		return add_class(x, s, letter, wide);
	case 'D':
	case 'W':
	case 'S':
		x->p++;
		*one = false;
		rc = add_class(x, &other, (char)(letter | 32), !wide);
		ig_charset_negate(&other);
		ig_charset_add_set(s, &other);
		ig_charset_finish(&other);
		return rc;
	case 'p':
	case 'P':
		x->p++;
		*one = false;
		return take_category(x, s, letter == 'P');
	case 'b':
		if (!in_class)
			return bad(x, "\\b is not supported");
		x->p++;
		*c = 8;
		return 0;
	case 'B': return bad(x, "\\B is not supported");
	case 'k': return bad(x, "a back reference (\\k) is not supported");
	case 't': *c = '\t'; break;
	case 'n': *c = '\n'; break;
	case 'r': *c = '\r'; break;
	case 'f': *c = '\f'; break;
	case 'v': *c = '\v'; break;
	case 'c':
		x->p++;
		if (x->p == x->end || (*x->p | 32) < 'a' || (*x->p | 32) > 'z')
			return bad(x, "\\c needs a letter");
		*c = *x->p & 31;
		break;
	case 'x':
		x->p++;
		if (!take_hex(x, 2, c))
			return bad(x, "\\x needs two hexadecimal digits");
		goto check;
	case 'u':
		x->p++;
		if ((rc = take_unicode(x, c)))
			return rc;
		goto check;
	case '0': return bad(x, "a zero byte can't be asked for");
	default:
		if (letter >= '1' && letter <= '9')
			return bad(x, "a back reference is not supported");
		if ((letter | 32) >= 'a' && (letter | 32) <= 'z')
			return bad(x, "an escape that ECMAScript does not know");
		return take_char(x, c);
	}
	x->p++;
	return 0;
check:
	return *c ? 0 : bad(x, "a zero byte can't be asked for");
}

/* One member of a class: *one says whether it can begin or end a range. */
static int take_member(struct parser *x, struct ig_charset *s, bool negated, bool *one, uint32_t *c)
{
	*one = true;
	if (take(x, "\\"))
		return take_escape(x, s, true, negated, one, c);
	if (at(x, "[:") || at(x, "[=") || at(x, "[."))
		return bad(x, "classes in the manner of POSIX are not supported");
	return take_char(x, c);
}

/* Add the other cases of the characters, where case does not matter. */
static int fold(struct parser *x, struct ig_charset *s)
{
	uint64_t n = 0;

	if (!(x->flags & IG_REGEX_FOLD))
		return 0;
	ig_charset_sort(s);
	for (uint32_t i = 0; i < s->n; i++)
		n += s->ranges[i].last - s->ranges[i].first + 1;
	if (x->budget->work < n)
		return -E2BIG;
	x->budget->work -= n;
	ig_charset_fold(s);
	return 0;
}

/* After [. */
static int take_class(struct parser *x, uint32_t *out)
{
	struct ig_charset s = { 0 };
	bool negated = take(x, "^"), one;
	uint32_t first, last;
	int rc = 0;

	while (!rc) {
		if (x->p == x->end) {
			rc = bad(x, "a class without its ]");
			break;
		}
		if (take(x, "]"))
			break;
		if ((rc = take_member(x, &s, negated, &one, &first)) || !one)
			continue;
		last = first;
		if (at(x, "-") && x->end - x->p > 1 && x->p[1] != ']') {
			x->p++;
			if ((rc = take_member(x, &s, negated, &one, &last)))
				break;
			if (!one || last < first) {
				rc = bad(x, "a range whose end is not after its beginning");
				break;
			}
		}
		ig_charset_add(&s, first, last);
	}
	if (!rc)
		rc = fold(x, &s);
	if (!rc && negated)
		ig_charset_negate(&s);
	if (!rc)
		return add_set(x, &s, out);
	ig_charset_finish(&s);
	return rc;
}

/* ---- the parser ------------------------------------------------------------------ */

static int take_either(struct parser *x, uint32_t *out);

static int take_group(struct parser *x, uint32_t *out)
{
	int rc;

	if (take(x, "?")) {
		if (at(x, "=") || at(x, "!"))
			return bad(x, "looking ahead is not supported");
		if (at(x, "<=") || at(x, "<!"))
			return bad(x, "looking behind is not supported");
		if (take(x, "<") || take(x, "P<")) {
			const char *end = memchr(x->p, '>', (size_t)(x->end - x->p));
			if (!end || end == x->p)
				return bad(x, "a group's name without its >");
			x->p = end + 1;
		} else if (!take(x, ":")) {
			return bad(x, "this kind of group is not supported");
		}
	}
	if (++x->depth > MAX_DEPTH)
		return bad(x, "groups are nested too deep");
	if ((rc = take_either(x, out)))
		return rc;
	x->depth--;
	return take(x, ")") ? 0 : bad(x, "a group without its )");
}

static int take_dot(struct parser *x, uint32_t *out)
{
	struct ig_charset s = { 0 };

	if (!(x->flags & IG_REGEX_DOTALL))
		ig_charset_add(&s, '\n', '\n');
	if (!(x->flags & (IG_REGEX_DOTALL | IG_REGEX_LINE))) {
		ig_charset_add(&s, '\r', '\r');
		ig_charset_add(&s, 0x2028, 0x2029);
	}
	ig_charset_negate(&s);
	return add_set(x, &s, out);
}

static int take_atom(struct parser *x, uint32_t *out)
{
	struct ig_charset s = { 0 };
	bool one = true;
	uint32_t c;
	int rc;

	if (take(x, "("))
		return take_group(x, out);
	if (take(x, "["))
		return take_class(x, out);
	if (take(x, "."))
		return take_dot(x, out);
	if (x->flags & IG_REGEX_PART && (at(x, "^") || at(x, "$")))
		return bad(x, "^ and $ are not supported here");
	if (take(x, "^"))
		return add_node(x, (struct tree){ .kind = BEGIN }, out);
	if (take(x, "$"))
		return add_node(x, (struct tree){ .kind = END }, out);
	if (at(x, "*") || at(x, "+") || at(x, "?"))
		return bad(x, "nothing to repeat");
	rc = take(x, "\\") ? take_escape(x, &s, false, false, &one, &c) : take_char(x, &c);
	if (!rc && one) {
		ig_charset_add(&s, c, c);
		rc = fold(x, &s);
	}
	if (rc) {
		ig_charset_finish(&s);
		return rc;
	}
	return add_set(x, &s, out);
}

static bool take_number(struct parser *x, uint32_t *out)
{
	const char *start = x->p;

	for (*out = 0; x->p < x->end && *x->p >= '0' && *x->p <= '9'; x->p++)
		if (*out <= MAX_COUNT)
			*out = *out * 10 + (uint32_t)(*x->p - '0');
	return x->p > start;
}

/* {m}, {m,} or {m,n}; anything else is text. */
static bool take_bounds(struct parser *x, uint32_t *min, uint32_t *max)
{
	const char *start = x->p;

	if (take(x, "{") && take_number(x, min)) {
		*max = *min;
		if (take(x, ",") && !take_number(x, max))
			*max = UNBOUNDED;
		if (take(x, "}"))
			return true;
	}
	x->p = start;
	return false;
}

static int take_repeat(struct parser *x, uint32_t *out)
{
	uint32_t min = 0, max = UNBOUNDED, ignored[2];
	int rc = take_atom(x, out);

	if (rc)
		return rc;
	if (take(x, "*"))
		;
	else if (take(x, "+"))
		min = 1;
	else if (take(x, "?"))
		max = 1;
	else if (!take_bounds(x, &min, &max))
		return 0;
	if (x->nodes[*out].kind == BEGIN || x->nodes[*out].kind == END)
		return bad(x, "^ and $ can't be repeated");
	if (max < min)
		return bad(x, "bounds whose second is below the first");
	if (min > MAX_COUNT || (max > MAX_COUNT && max != UNBOUNDED))
		return ig_fail(x->err, -E2BIG, "a repetition of more than %d", MAX_COUNT);
	if (x->flags & IG_REGEX_PART && at(x, "?"))
		return bad(x, "lazy quantifiers are not supported here");
	take(x, "?");
	if (at(x, "*") || at(x, "+") || at(x, "?") || take_bounds(x, &ignored[0], &ignored[1]))
		return bad(x, "nothing to repeat");
	return add_node(x, (struct tree){ .kind = REPEAT, .left = *out, .min = min, .max = max },
			out);
}

static int take_join(struct parser *x, uint32_t *out)
{
	int rc = add_node(x, (struct tree){ .kind = EMPTY }, out);

	while (!rc && x->p < x->end && !at(x, "|") && !at(x, ")")) {
		uint32_t right;
		if (!(rc = take_repeat(x, &right)))
			rc = add_node(x,
				      (struct tree){ .kind = JOIN, .left = *out, .right = right },
				      out);
	}
	return rc;
}

static int take_either(struct parser *x, uint32_t *out)
{
	int rc = take_join(x, out);

	while (!rc && take(x, "|")) {
		uint32_t right;
		if (!(rc = take_join(x, &right)))
			rc = add_node(x,
				      (struct tree){ .kind = EITHER, .left = *out, .right = right },
				      out);
	}
	return rc;
}

/* ---- the automaton --------------------------------------------------------------- */

/* From a node to itself: any characters. */
static void loop_any(struct ig_nfa *a, uint32_t node)
{
	ig_nfa_chars(a, node, node, 1, 0xd7ff);
	ig_nfa_chars(a, node, node, 0xe000, IG_CHAR_MAX);
}

int ig_regex_to_dfa(const char *text, size_t len, unsigned flags, struct ig_budget *budget,
		    struct ig_dfa *out, struct ig_error *err)
{
	struct parser x = {
		.start = text, .p = text, .end = text + len, .flags = flags, .budget = budget
	};
	bool search = flags & IG_REGEX_SEARCH;
	struct ig_error inside = { 0 };
	struct ig_nfa a;
	uint32_t root, first, last;
	int rc;

	*out = (struct ig_dfa){ 0 };
	x.err = &inside;
	ig_nfa_init(&a, budget);
	if (len > MAX_LEN) {
		rc = ig_fail(x.err, -E2BIG, "an expression of more than %d bytes", MAX_LEN);
		goto out;
	}
	if ((rc = take_either(&x, &root)))
		goto out;
	if (x.p < x.end) {
		rc = bad(&x, "a ) without its group");
		goto out;
	}
	first = ig_nfa_node(&a);
	if (search)
		loop_any(&a, first);
	last = ig_regex_build(&x, &a, first, root);
	if (search) {
		uint32_t rest = ig_nfa_node(&a);
		ig_nfa_join(&a, last, rest);
		loop_any(&a, rest);
		last = rest;
	}
	if (!(rc = ig_dfa_of(&a, first, last, out)))
		rc = ig_dfa_minimise(out, budget);
out:
	if (rc)
		ig_dfa_finish(out);
	if (rc == -ENOMEM)
		ig_fail(err, rc, "out of memory for the expression");
	else if (rc == -E2BIG && !inside.code)
		ig_fail(err, rc, "the expression is too large for an automaton");
	else if (rc)
		ig_fail(err, rc, "%s", inside.text);
	for (uint32_t i = 0; i < x.n_sets; i++) {
		ig_charset_finish(&x.sets[i].chars);
		ig_dfa_finish(&x.sets[i].dfa);
	}
	free(x.sets);
	free(x.nodes);
	ig_nfa_finish(&a);
	return rc;
}

void ig_regex_quote(struct ig_strbuf *out, const char *text, size_t len)
{
	static const char special[] = "\\^$.|?*+()[]{}/";

	for (size_t i = 0; i < len; i++) {
		if (memchr(special, text[i], sizeof special - 1))
			ig_strbuf_puts(out, "\\");
		ig_strbuf_add(out, text + i, 1);
	}
}
