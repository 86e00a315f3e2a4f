/*
 * schema_scalar.c: strings: any, of a length, of a pattern, a format or a grammar.  A string without a pattern
 * may use every escape (\u with surrogates in pairs, but not U+0000, which many readers of JSON
 * can't store); one with a pattern or a grammar has exactly one spelling for each character.
 */
#include "model/grammar/regex_private.h"
#include "model/grammar/schema_private.h"

#include <errno.h>
#include <string.h>

#define LONG 48 /* characters; longer counts use calls, one state for each character */

/* ---- formats --------------------------------------------------------------------- */

#define MONTHS_DAYS                                                                                \
	"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"   \
	"|02-(?:0[1-9]|1[0-9]|2[0-8]))"
#define LEAP_YEAR "(?:[1-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|[13579][26])00)"
#define DATE "(?:[1-9][0-9]{3}-" MONTHS_DAYS "|" LEAP_YEAR "-02-29)"
#define TIME                                                                                       \
	"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?"                             \
	"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define HOURS                                                                                      \
	"T(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}S)"
#define DAYS                                                                                       \
	"(?:[0-9]{1,9}D|[0-9]{1,9}M(?:[0-9]{1,9}D)?|[0-9]{1,9}Y(?:[0-9]{1,9}M(?:[0-9]{1,9}D)?)?)"
#define HEX4 "[0-9A-Fa-f]{4}"
#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define IPV4 OCTET "\\." OCTET "\\." OCTET "\\." OCTET
#define H16 "[0-9A-Fa-f]{1,4}"
#define LS32 "(?:" H16 ":" H16 "|" IPV4 ")"
/* Four of them and three dots are 251 characters; a name may have 253. */
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,60}[A-Za-z0-9])?"
#define ATEXT "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
#define PCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define QUERY "(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*"

/* Each matches a subset of what its standard allows. */
static const struct {
	const char *name, *regex;
} formats[] = {
	{ "date", DATE },
	{ "time", TIME },
	{ "date-time", DATE "T" TIME },
	{ "duration", "P(?:[0-9]{1,9}W|" DAYS "(?:" HOURS ")?|" HOURS ")" },
	{ "uuid", "[0-9A-Fa-f]{8}-" HEX4 "-" HEX4 "-" HEX4 "-[0-9A-Fa-f]{12}" },
	{ "email", ATEXT "{1,20}(?:\\." ATEXT "{1,20}){0,2}@" LABEL "(?:\\." LABEL "){1,3}" },
	{ "hostname", LABEL "(?:\\." LABEL "){0,3}" },
	{ "ipv4", IPV4 },
	{ "ipv6", "(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16
		  ":){4}" LS32 "|(?:(?:" H16 ":){0,1}" H16 ")?::(?:" H16 ":){3}" LS32 "|(?:(?:" H16
		  ":){0,2}" H16 ")?::(?:" H16 ":){2}" LS32 "|(?:(?:" H16 ":){0,3}" H16 ")?::" H16
		  ":" LS32 "|(?:(?:" H16 ":){0,4}" H16 ")?::" LS32 "|(?:(?:" H16 ":){0,5}" H16
		  ")?::" H16 "|(?:(?:" H16 ":){0,6}" H16 ")?::" },
	{ "uri", "[A-Za-z][A-Za-z0-9+.-]{0,30}:(?://[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?"
		 "(?::[0-9]{1,5})?(?:/" PCHAR "*)*|/?" PCHAR "+(?:/" PCHAR "*)*)(?:\\?" QUERY ")?"
		 "(?:#" QUERY ")?" },
};

static const char *format_of(const char *name)
{
	for (unsigned i = 0; i < sizeof formats / sizeof formats[0]; i++)
		if (!strcmp(formats[i].name, name))
			return formats[i].regex;
	return NULL;
}

/* ---- one character --------------------------------------------------------------- */

static uint32_t hex_digits(struct ig_nfa *a, uint32_t from, unsigned n)
{
	while (n-- && !a->rc) {
		uint32_t to = ig_nfa_node(a);
		ig_nfa_bytes(a, from, to, '0', '9');
		ig_nfa_bytes(a, from, to, 'A', 'F');
		ig_nfa_bytes(a, from, to, 'a', 'f');
		from = to;
	}
	return from;
}

/* One of these letters, either case. */
static uint32_t letters(struct ig_nfa *a, uint32_t from, unsigned lo, unsigned hi)
{
	uint32_t to = ig_nfa_node(a);

	ig_nfa_bytes(a, from, to, lo, hi);
	ig_nfa_bytes(a, from, to, lo - 32, hi - 32);
	return to;
}

/* After \u: four digits that are neither zero nor a surrogate, or two surrogates. */
static void unicode_escape(struct ig_nfa *a, uint32_t from, uint32_t to)
{
	uint32_t d = letters(a, from, 'd', 'd'), high = ig_nfa_node(a), some = ig_nfa_node(a);
	uint32_t zero = from, low;

	ig_nfa_bytes(a, from, some, '1', '9');
	ig_nfa_bytes(a, from, some, 'A', 'C');
	ig_nfa_bytes(a, from, some, 'E', 'F');
	ig_nfa_bytes(a, from, some, 'a', 'c');
	ig_nfa_bytes(a, from, some, 'e', 'f');
	ig_nfa_join(a, hex_digits(a, some, 3), to);

	some = ig_nfa_node(a);
	ig_nfa_bytes(a, d, some, '0', '7');
	ig_nfa_join(a, hex_digits(a, some, 2), to);
	ig_nfa_bytes(a, d, high, '8', '9');
	ig_nfa_bytes(a, d, high, 'A', 'B');
	ig_nfa_bytes(a, d, high, 'a', 'b');
	low = ig_nfa_text(a, hex_digits(a, high, 2), "\\u", 2);
	low = letters(a, letters(a, low, 'd', 'd'), 'c', 'f');
	ig_nfa_join(a, hex_digits(a, low, 2), to);

	for (unsigned left = 2;; left--) { /* 0XXX, 00XX, 000X */
		zero = ig_nfa_byte(a, zero, '0');
		some = ig_nfa_node(a);
		ig_nfa_bytes(a, zero, some, '1', '9');
		ig_nfa_bytes(a, zero, some, 'A', 'F');
		ig_nfa_bytes(a, zero, some, 'a', 'f');
		ig_nfa_join(a, hex_digits(a, some, left), to);
		if (!left)
			break;
	}
}

void ig_schema_char(struct ig_schema *x, uint32_t from, uint32_t to, bool plain)
{
	struct ig_nfa *a = x->a;
	uint32_t escape = ig_nfa_byte(a, from, '\\');

	if (plain) {
		ig_nfa_bytes(a, from, to, ' ', '!');
		ig_nfa_bytes(a, from, to, '#', '[');
		ig_nfa_bytes(a, from, to, ']', 0x7f);
	}
	ig_nfa_chars(a, from, to, 0x80, 0x10ffff);
	for (const char *p = "\"\\/bfnrt"; *p; p++)
		ig_nfa_bytes(a, escape, to, (unsigned char)*p, (unsigned char)*p);
	unicode_escape(a, ig_nfa_byte(a, escape, 'u'), to);
}

uint32_t ig_schema_any_string(struct ig_schema *x, uint32_t from)
{
	uint32_t loop = ig_nfa_node(x->a);

	ig_nfa_join(x->a, from, loop);
	ig_schema_char(x, loop, loop, true);
	return ig_nfa_byte(x->a, loop, '"');
}

/* ---- of a length ----------------------------------------------------------------- */

static void one_char(struct ig_schema *x, uint32_t from, uint32_t to, bool as_call)
{
	uint32_t rule = 0;
	int rc;

	if (!as_call) {
		ig_schema_char(x, from, to, true);
		return;
	}
	ig_nfa_bytes(x->a, from, to, ' ', '!');
	ig_nfa_bytes(x->a, from, to, '#', '[');
	ig_nfa_bytes(x->a, from, to, ']', 0x7f);
	rc = ig_compiling_rule(x->c, IG_RULE_LONG_CHAR, NULL, NULL, NULL, &rule);
	if (rc && !x->rc)
		x->rc = rc;
	if (!rc)
		ig_nfa_add(x->a, from, to, IG_NFA_SYMBOL, 0, 0, rule);
}

static uint32_t counted(struct ig_schema *x, uint64_t min, uint64_t max, uint32_t from)
{
	struct ig_nfa *a = x->a;
	uint32_t close = ig_nfa_node(a), end = ig_nfa_byte(a, close, '"');
	bool as_call = (max == UINT64_MAX ? min : max) > LONG;

	from = ig_nfa_byte(a, from, '"');
	for (uint64_t i = 0; i < (max == UINT64_MAX ? min : max) && !x->rc && !a->rc; i++) {
		uint32_t next = ig_nfa_node(a);
		if (i >= min)
			ig_nfa_join(a, from, close);
		one_char(x, from, next, as_call);
		from = next;
	}
	if (max == UINT64_MAX) {
		ig_nfa_join(a, ig_schema_any_string(x, from), end);
		return end;
	}
	ig_nfa_join(a, from, close);
	return end;
}

/* Texts of min to max characters. */
static int lengths(struct ig_schema *x, uint64_t min, uint64_t max, struct ig_dfa *out)
{
	struct ig_nfa a;
	uint32_t at, close;
	int rc;

	ig_nfa_init(&a, &x->c->budget);
	at = ig_nfa_node(&a);
	close = ig_nfa_node(&a);
	for (uint64_t i = 0; i < (max == UINT64_MAX ? min : max) && !a.rc; i++) {
		uint32_t next = ig_nfa_node(&a);
		if (i >= min)
			ig_nfa_join(&a, at, close);
		ig_nfa_chars(&a, at, next, 1, 0x10ffff);
		at = next;
	}
	if (max == UINT64_MAX)
		ig_nfa_chars(&a, at, at, 1, 0x10ffff);
	ig_nfa_join(&a, at, close);
	rc = ig_dfa_of(&a, 0, close, out);
	ig_nfa_finish(&a);
	return rc;
}

/* ---- strings --------------------------------------------------------------------- */

/* Make d the intersection with other; without states d is any text.  Finishes other. */
static int intersect(struct ig_schema *x, struct ig_dfa *d, struct ig_dfa *other)
{
	int rc;

	if (!d->n_states) {
		*d = *other;
		return 0;
	}
	rc = ig_dfa_combine(d, other, false, &x->c->budget);
	ig_dfa_finish(other);
	return rc;
}

int ig_schema_format_dfa(struct ig_compiling *c, const json_t *format, bool in_json,
			 struct ig_dfa *out, struct ig_error *err)
{
	const char *syntax = json_string_value(json_object_get(format, "syntax"));
	const json_t *definition = json_object_get(format, "definition");
	const char *text = json_string_value(definition);
	size_t len = json_string_length(definition);

	if (text && syntax && !strcmp(syntax, "lark"))
		return ig_lark_dfa(c, text, len, in_json, out, err);
	if (text && syntax && !strcmp(syntax, "regex"))
		return ig_regex_to_dfa(text, len, IG_REGEX_LINE, &c->budget, out, err);
	return ig_fail(err, -EINVAL,
		       "a grammar has a syntax (\"lark\" or \"regex\") and a definition");
}

/* A string that "x-ingot-grammar" holds. */
static uint32_t held(struct ig_schema *x, const json_t *schema, uint32_t from)
{
	static const char *const others[] = { "pattern", "format", "minLength", "maxLength" };
	size_t len = ig_schema_enter(x, "x-ingot-grammar", NULL, -1);
	struct ig_error err = { 0 };
	struct ig_dfa d = { 0 };
	int rc;

	for (unsigned i = 0; i < sizeof others / sizeof others[0]; i++)
		if (json_object_get(schema, others[i]))
			ig_schema_fail(x, -EINVAL, "\"%s\" beside a grammar is not supported",
				       others[i]);
	if (!x->rc && (rc = ig_schema_format_dfa(x->c, json_object_get(schema, "x-ingot-grammar"),
						 !x->stop, &d, &err)))
		ig_schema_fail(x, rc, "%s", err.text);
	if (!x->rc && !x->stop) {
		from = ig_nfa_byte(x->a, from, '"');
		from = ig_nfa_byte(x->a, ig_nfa_insert_json(x->a, from, &d), '"');
	} else if (!x->rc) {
		/* What ends the string can be left out only of what is one automaton. */
		from = d.symbol_at[d.n_states] ? ig_nfa_insert(x->a, from, &d) :
						 ig_schema_raw_string(x, &d, from);
	}
	ig_dfa_finish(&d);
	ig_schema_exit(x, len);
	return from;
}

uint32_t ig_schema_string(struct ig_schema *x, const json_t *schema, uint32_t from)
{
	const json_t *pattern = json_object_get(schema, "pattern");
	const json_t *format = json_object_get(schema, "format");
	uint64_t min = ig_schema_count(x, schema, "minLength", 0);
	uint64_t max = ig_schema_count(x, schema, "maxLength", UINT64_MAX);
	struct ig_error err = { 0 };
	struct ig_dfa d = { 0 }, other;
	const char *regex;
	int rc = 0;

	if (pattern && !json_is_string(pattern))
		ig_schema_fail(x, -EINVAL, "\"pattern\" must be a string");
	if (format && !json_is_string(format))
		ig_schema_fail(x, -EINVAL, "\"format\" must be a string");
	else if (format && !format_of(json_string_value(format)))
		ig_schema_fail(x, -EINVAL, "\"format\": \"%.60s\" is not supported",
			       json_string_value(format));
	if (min > max)
		ig_schema_fail(x, -EINVAL, "\"minLength\" is above \"maxLength\"");
	if (x->rc)
		return from;
	if (json_object_get(schema, "x-ingot-grammar"))
		return held(x, schema, from);
	if (!pattern && !format && x->stop && !min && max == UINT64_MAX)
		return ig_schema_raw_string(x, NULL, from);
	if (!pattern && !format && !x->stop)
		return min || max != UINT64_MAX ?
			       counted(x, min, max, from) :
			       ig_schema_any_string(x, ig_nfa_byte(x->a, from, '"'));
	if (pattern) {
		rc = ig_regex_to_dfa(json_string_value(pattern), json_string_length(pattern),
				     IG_REGEX_SEARCH, &x->c->budget, &d, &err);
		if (rc)
			ig_schema_fail(x, rc, "\"pattern\": %s", err.text);
	}
	if (!rc && format) {
		regex = format_of(json_string_value(format));
		rc = ig_regex_to_dfa(regex, strlen(regex), 0, &x->c->budget, &other, &err);
		if (!rc)
			rc = intersect(x, &d, &other);
	}
	if (!rc && (min || max != UINT64_MAX) && !(rc = lengths(x, min, max, &other)))
		rc = intersect(x, &d, &other);
	if (rc == -E2BIG)
		ig_schema_fail(x, rc,
			       "the string's \"pattern\", \"format\" and length are too large "
			       "for an automaton");
	else if (rc)
		ig_schema_fail(x, rc, "out of memory");
	if (!rc && x->stop) {
		from = ig_schema_raw_string(x, &d, from);
	} else if (!rc) {
		from = ig_nfa_byte(x->a, from, '"');
		from = ig_nfa_byte(x->a, ig_nfa_insert_json(x->a, from, &d), '"');
	}
	ig_dfa_finish(&d);
	return from;
}
