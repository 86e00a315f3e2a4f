/*
 * schema_number.c: numbers, with their bounds compared digit by digit.  Integers have at most 18
 * digits (they fit 64 bits), exponents a double's range.  With bounds there is no exponent, and at
 * most 15 digits near a bound: a double distinguishes that many, so a number below a bound here is
 * below it for every validator.
 */
#include "model/grammar/schema_private.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DIGITS 18
#define EXACT_DIGITS 15 /* that a double distinguishes */

struct decimal {
	bool negative, open; /* open: the bound itself is not allowed */
	unsigned n_int, n_frac;
	char digits[2][40]; /* before and after the point, without redundant zeros */
};

/* ---- decimals -------------------------------------------------------------------- */

/* Parses "-12.5e+3"; false: too long to be compared. */
static bool parse_decimal(const char *s, struct decimal *d)
{
	char all[40];
	unsigned n = 0;
	long point = -1, exponent = 0, first = 0;

	*d = (struct decimal){ .negative = *s == '-' };
	for (s += d->negative; *s && *s != 'e' && *s != 'E'; s++) {
		if (*s == '.')
			point = (long)n;
		else if (n < sizeof all)
			all[n++] = *s;
	}
	if (*s)
		exponent = strtol(s + 1, NULL, 10);
	if (exponent > 40 || exponent < -40)
		return false;
	point = (point < 0 ? (long)n : point) + exponent;
	while (n && all[n - 1] == '0' && (long)n > point)
		n--;
	while (first < (long)n && first < point && all[first] == '0')
		first++;
	if (point - first > MAX_DIGITS || (long)n - point > 30)
		return false;
	for (long i = first; i < point; i++)
		d->digits[0][d->n_int++] = i < (long)n ? all[i] : '0';
	for (long i = point; i < (long)n; i++)
		d->digits[1][d->n_frac++] = i < 0 ? '0' : all[i];
	if (!d->n_int)
		d->digits[0][d->n_int++] = '0';
	if (d->n_int == 1 && d->digits[0][0] == '0' && !d->n_frac)
		d->negative = false;
	return true;
}

/* The shortest digits that read back as v. */
static void print_number(const json_t *v, char *out, size_t size)
{
	double d = json_real_value(v);

	if (json_is_integer(v)) {
		snprintf(out, size, "%lld", (long long)json_integer_value(v));
		return;
	}
	for (int digits = 1; digits <= 17; digits++) {
		snprintf(out, size, "%.*g", digits, d);
		if (strtod(out, NULL) == d)
			break;
	}
}

/* Magnitudes. */
static int compare_decimals(const struct decimal *a, const struct decimal *b)
{
	int c;

	if (a->n_int != b->n_int)
		return a->n_int < b->n_int ? -1 : 1;
	if ((c = memcmp(a->digits[0], b->digits[0], a->n_int)))
		return c;
	/* No fraction ends in '0', so the longer one is the larger one. */
	return strcmp(a->digits[1], b->digits[1]);
}

/* ---- ranges ---------------------------------------------------------------------- */

struct range {			       /* of magnitudes */
	const struct decimal *lo, *hi; /* hi NULL: none */
	bool lo_open, hi_open;
	unsigned max_int, max_frac;
};

static char digit_of(const struct decimal *d, unsigned part, unsigned i)
{
	return i < (part ? d->n_frac : d->n_int) ? d->digits[part][i] : '0';
}

/* Whether d has a digit other than 0 from this position on. */
static bool more_in(const struct decimal *d, unsigned part, unsigned i)
{
	if (!part) {
		for (; i < d->n_int; i++)
			if (d->digits[0][i] != '0')
				return true;
		i = 0;
	}
	return i < d->n_frac;
}

/* Whether a number may end here; like_lo, like_hi: its digits are so far those of lo, of hi. */
static bool may_end(const struct range *r, bool like_lo, bool like_hi, unsigned part, unsigned i)
{
	if (like_lo && (more_in(r->lo, part, i) || r->lo_open))
		return false;
	return !(like_hi && !more_in(r->hi, part, i) && r->hi_open);
}

struct states { /* by whether the digits so far are those of lo, of hi; 0: none */
	uint32_t node[2][2];
};

static void digits(struct ig_schema *x, const struct range *r, const struct states *from,
		   struct states *to, unsigned part, unsigned i, char least)
{
	for (unsigned k = 0; k < 4; k++) {
		bool like_lo = k & 1, like_hi = k & 2;
		uint32_t node = from->node[like_lo][like_hi];
		if (!node)
			continue;
		char lo = like_lo ? digit_of(r->lo, part, i) : '0';
		char hi = like_hi ? digit_of(r->hi, part, i) : '9';
		for (char c = lo > least ? lo : least; c <= hi; c++) {
			bool still_lo = like_lo && c == lo, still_hi = like_hi && c == hi;
			uint32_t *next = &to->node[still_lo][still_hi];
			if (!*next)
				*next = ig_nfa_node(x->a);
			ig_nfa_bytes(x->a, node, *next, (unsigned char)c, (unsigned char)c);
		}
	}
}

static void ends(struct ig_schema *x, const struct range *r, const struct states *s, unsigned part,
		 unsigned i, uint32_t end)
{
	for (unsigned k = 0; k < 4; k++)
		if (s->node[k & 1][k >> 1] && may_end(r, k & 1, k >> 1, part, i))
			ig_nfa_join(x->a, s->node[k & 1][k >> 1], end);
}

/* Magnitudes of a range, for each number of digits before the point.  Node 0 is none of these
 * nodes: something was written before. */
static uint32_t magnitudes(struct ig_schema *x, const struct range *r, uint32_t from)
{
	uint32_t end = ig_nfa_node(x->a);

	for (unsigned n = r->lo->n_int; n <= r->max_int && !x->a->rc; n++) {
		struct states s = { 0 }, next, point = { 0 };
		if (r->hi && n > r->hi->n_int)
			break;
		uint32_t start = ig_nfa_node(x->a);
		ig_nfa_join(x->a, from, start);
		s.node[n == r->lo->n_int][r->hi && n == r->hi->n_int] = start;
		for (unsigned i = 0; i < n; i++) {
			next = (struct states){ 0 };
			digits(x, r, &s, &next, 0, i, !i && n > 1 ? '1' : '0');
			s = next;
		}
		ends(x, r, &s, 0, n, end);
		for (unsigned k = 0; k < 4 && r->max_frac; k++) {
			uint32_t node = s.node[k & 1][k >> 1];
			if (node)
				point.node[k & 1][k >> 1] = ig_nfa_byte(x->a, node, '.');
		}
		s = point;
		for (unsigned i = 0; i < r->max_frac; i++) {
			next = (struct states){ 0 };
			digits(x, r, &s, &next, 1, i, '0');
			s = next;
			ends(x, r, &s, 1, i + 1, end);
		}
	}
	return end;
}

/* ---- bounds ---------------------------------------------------------------------- */

struct bounds {
	struct decimal lo, hi;
	bool has_lo, has_hi;
};

/* Replace a bound of integers by the next integer within it. */
static bool to_integer(struct decimal *d, bool lower)
{
	char text[48];
	bool up = lower != d->negative; /* away from zero */
	long long v;

	if (!d->n_frac)
		return true;
	d->digits[0][d->n_int] = 0;
	v = strtoll(d->digits[0], NULL, 10) + up;
	snprintf(text, sizeof text, "%s%lld", d->negative ? "-" : "", v);
	return parse_decimal(text, d);
}

/* Whether a is the tighter bound. */
static bool tighter(const struct decimal *a, const struct decimal *b, bool lower)
{
	int c = a->negative != b->negative ? (a->negative ? -1 : 1) :
		a->negative		   ? -compare_decimals(a, b) :
					     compare_decimals(a, b);

	if (!c)
		return a->open && !b->open;
	return lower ? c > 0 : c < 0;
}

static const struct bound_key {
	const char *name;
	bool lower, open;
} bound_keys[] = {
	{ "minimum", true, false },
	{ "exclusiveMinimum", true, true },
	{ "maximum", false, false },
	{ "exclusiveMaximum", false, true },
};

static void take_bound(struct ig_schema *x, const json_t *schema, const struct bound_key *k,
		       bool integer, struct bounds *b)
{
	const char *key = k->name;
	bool lower = k->lower;
	const json_t *v = json_object_get(schema, key);
	struct decimal d, *old = lower ? &b->lo : &b->hi;
	bool *has = lower ? &b->has_lo : &b->has_hi;
	char text[64];

	if (!v)
		return;
	if (!json_is_number(v)) {
		ig_schema_fail(x, -EINVAL, "\"%s\" must be a number", key);
		return;
	}
	print_number(v, text, sizeof text);
	if (integer && json_is_real(v) && fabs(json_real_value(v)) >= 1e18) {
		/* Beyond all integers that are allowed: no bound, or no integer is left. */
		if ((json_real_value(v) < 0) == lower)
			return;
		ig_schema_fail(x, -EINVAL, "\"%s\": %s is beyond the integers of %d digits", key,
			       text, MAX_DIGITS);
		return;
	}
	if (!parse_decimal(text, &d) || (!integer && d.n_int + d.n_frac > EXACT_DIGITS)) {
		/* Limits of 64 bits mean "no limit". */
		if (integer && (json_number_value(v) < 0) == lower)
			return;
		ig_schema_fail(x, -EINVAL,
			       "\"%s\": %s has more than %d digits; that is not supported", key,
			       text, integer ? MAX_DIGITS : EXACT_DIGITS);
		return;
	}
	d.open = k->open;
	if (integer && d.n_frac) {
		if (!to_integer(&d, lower)) {
			ig_schema_fail(x, -EINVAL, "\"%s\": %s is too large", key, text);
			return;
		}
		d.open = false;
	}
	if (!*has || tighter(&d, old, lower))
		*old = d;
	*has = true;
}

static struct bounds take_bounds(struct ig_schema *x, const json_t *schema, bool integer)
{
	struct bounds b = { 0 };
	const json_t *format = json_object_get(schema, "format");
	const char *name = json_string_value(format);

	for (unsigned i = 0; i < sizeof bound_keys / sizeof bound_keys[0]; i++)
		take_bound(x, schema, &bound_keys[i], integer, &b);
	if (name && integer && !strcmp(name, "int32")) {
		struct decimal lo, hi;
		parse_decimal("-2147483648", &lo);
		parse_decimal("2147483647", &hi);
		if (!b.has_lo || tighter(&lo, &b.lo, true))
			b.lo = lo;
		if (!b.has_hi || tighter(&hi, &b.hi, false))
			b.hi = hi;
		b.has_lo = b.has_hi = true;
	}
	return b;
}

/* Numbers between b's bounds, of which there is at least one. */
static uint32_t bounded(struct ig_schema *x, const struct bounds *b, bool integer, uint32_t from)
{
	static const struct decimal zero = { .n_int = 1, .digits = { "0" } };
	unsigned n_int = 1, n_frac = 0;
	uint32_t end = ig_nfa_node(x->a), minus;
	struct range r;

	for (unsigned i = 0; i < 2; i++) { /* a bound that is not there is all zeros */
		const struct decimal *d = i ? &b->hi : &b->lo;
		n_int = d->n_int > n_int ? d->n_int : n_int;
		n_frac = d->n_frac > n_frac ? d->n_frac : n_frac;
	}
	if (!integer && n_int + n_frac > EXACT_DIGITS) {
		ig_schema_fail(x, -EINVAL,
			       "bounds that together need more than %d digits are not supported",
			       EXACT_DIGITS);
		return end;
	}
	r.max_frac = integer ? 0 : EXACT_DIGITS - n_int;
	if (!(b->has_hi && b->hi.negative)) { /* 0 and up */
		bool from_zero = !b->has_lo || b->lo.negative;
		r.lo = from_zero ? &zero : &b->lo;
		r.lo_open = from_zero ? false : b->lo.open;
		r.hi = b->has_hi ? &b->hi : NULL;
		r.hi_open = b->has_hi && b->hi.open;
		r.max_int = b->has_hi ? b->hi.n_int : integer ? MAX_DIGITS : EXACT_DIGITS;
		ig_nfa_join(x->a, magnitudes(x, &r, from), end);
	}
	if (!b->has_lo || b->lo.negative) { /* below 0 */
		bool to_zero = !b->has_hi || !b->hi.negative;
		r.lo = to_zero ? &zero : &b->hi;
		r.lo_open = to_zero || b->hi.open;
		r.hi = b->has_lo ? &b->lo : NULL;
		r.hi_open = b->has_lo && b->lo.open;
		r.max_int = b->has_lo ? b->lo.n_int : integer ? MAX_DIGITS : EXACT_DIGITS;
		minus = ig_nfa_byte(x->a, from, '-');
		ig_nfa_join(x->a, magnitudes(x, &r, minus), end);
	}
	return end;
}

/* ---- numbers --------------------------------------------------------------------- */

/* min to max digits. */
static uint32_t some_digits(struct ig_schema *x, uint32_t from, unsigned min, unsigned max)
{
	uint32_t end = ig_nfa_node(x->a);

	for (unsigned i = 0; i < max; i++) {
		uint32_t next = ig_nfa_node(x->a);
		if (i >= min)
			ig_nfa_join(x->a, from, end);
		ig_nfa_bytes(x->a, from, next, '0', '9');
		from = next;
	}
	ig_nfa_join(x->a, from, end);
	return end;
}

/* e and a power of ten, up to 289: with 18 digits before the point below the largest double. */
static void exponent(struct ig_schema *x, uint32_t from, uint32_t end)
{
	struct ig_nfa *a = x->a;
	uint32_t e = ig_nfa_node(a), plus = ig_nfa_node(a), minus, at;

	ig_nfa_bytes(a, from, e, 'e', 'e');
	ig_nfa_bytes(a, from, e, 'E', 'E');
	ig_nfa_join(a, e, plus);
	ig_nfa_bytes(a, e, plus, '+', '+');
	minus = ig_nfa_byte(a, e, '-');
	ig_nfa_join(a, some_digits(x, plus, 1, 2), end);
	ig_nfa_join(a, some_digits(x, minus, 1, 2), end);
	at = ig_nfa_byte(a, plus, '1');
	ig_nfa_join(a, some_digits(x, at, 2, 2), end);
	at = ig_nfa_byte(a, plus, '2');
	ig_nfa_bytes(a, at, plus = ig_nfa_node(a), '0', '8');
	ig_nfa_bytes(a, plus, end, '0', '9');
	at = ig_nfa_node(a);
	ig_nfa_bytes(a, minus, at, '1', '2');
	ig_nfa_join(a, some_digits(x, at, 2, 2), end);
}

static uint32_t any_number(struct ig_schema *x, bool integer, uint32_t from)
{
	struct ig_nfa *a = x->a;
	uint32_t start = ig_nfa_node(a), whole = ig_nfa_byte(a, from, '0'), lead = ig_nfa_node(a);
	uint32_t point, fraction;

	ig_nfa_join(a, from, start);
	ig_nfa_bytes(a, from, start, '-', '-');
	ig_nfa_bytes(a, start, whole, '0', '0');
	ig_nfa_bytes(a, start, lead, '1', '9');
	ig_nfa_join(a, some_digits(x, lead, 0, MAX_DIGITS - 1), whole);
	if (integer)
		return whole;
	point = ig_nfa_byte(a, whole, '.');
	fraction = some_digits(x, point, 1, MAX_DIGITS);
	ig_nfa_join(a, whole, fraction);
	whole = ig_nfa_node(a);
	ig_nfa_join(a, fraction, whole);
	exponent(x, fraction, whole);
	return whole;
}

/* multipleOf 1 makes a number an integer; others are not supported. */
static bool is_integer(struct ig_schema *x, const json_t *schema, bool integer)
{
	const json_t *v = json_object_get(schema, "multipleOf");

	if (!v)
		return integer;
	if (!json_is_number(v) || json_number_value(v) != 1)
		ig_schema_fail(x, -EINVAL, "\"multipleOf\" other than 1 is not supported");
	return true;
}

static void check_format(struct ig_schema *x, const json_t *schema, bool integer)
{
	static const char *const known[] = { "int32", "int64", "float", "double" };
	const char *name = json_string_value(json_object_get(schema, "format"));
	unsigned types = ig_schema_types(x, schema);

	if (!name || types & IG_TYPE_STRING)
		return;
	for (unsigned i = integer ? 0 : 2; i < (integer ? 2 : 4); i++)
		if (!strcmp(name, known[i]))
			return;
	ig_schema_fail(x, -EINVAL, "\"format\": \"%.60s\" is not supported of a number", name);
}

uint32_t ig_schema_number(struct ig_schema *x, const json_t *schema, bool integer, uint32_t from)
{
	struct bounds b;

	if (!schema)
		return any_number(x, integer, from);
	check_format(x, schema, integer);
	integer = is_integer(x, schema, integer);
	b = take_bounds(x, schema, integer);
	if (x->rc)
		return from;
	return b.has_lo || b.has_hi ? bounded(x, &b, integer, from) : any_number(x, integer, from);
}

uint32_t ig_schema_number_literal(struct ig_schema *x, const json_t *value, uint32_t from)
{
	char text[64];

	print_number(value, text, sizeof text);
	return ig_nfa_text(x->a, from, text, strlen(text));
}

bool ig_schema_number_fits(struct ig_schema *x, const json_t *schema, const json_t *value)
{
	double v = json_number_value(value);

	for (unsigned i = 0; i < sizeof bound_keys / sizeof bound_keys[0]; i++) {
		const struct bound_key *k = &bound_keys[i];
		const json_t *bound = json_object_get(schema, k->name);
		double b = json_number_value(bound);
		if (bound && !json_is_number(bound))
			ig_schema_fail(x, -EINVAL, "\"%s\" must be a number", k->name);
		else if (bound && (k->lower ? v < b : v > b))
			return false;
		else if (bound && k->open && v == b)
			return false;
	}
	is_integer(x, schema, false);
	return !json_object_get(schema, "multipleOf") || v == floor(v);
}
