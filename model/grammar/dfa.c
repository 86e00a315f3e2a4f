/*
 * dfa.c: operations on deterministic automata: product, minimisation, refinement of classes of
 * states, and insertion into an automaton that is being built, as it is or as the inside of a
 * JSON string.
 */
#include "model/grammar/automaton_private.h"

#include "base/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NOWHERE UINT32_MAX
/* Refining takes a round for each state in the worst case; above this number of states only dead
 * states are removed. */
#define MAX_MINIMISED 3000

int64_t ig_dfa_step(const struct ig_dfa *d, uint32_t state, unsigned byte)
{
	uint32_t first = d->range_at[state], last = d->range_at[state + 1];

	while (first < last) {
		uint32_t mid = first + (last - first) / 2;
		if (d->ranges[mid].hi < byte)
			first = mid + 1;
		else
			last = mid;
	}
	if (first < d->range_at[state + 1] && d->ranges[first].lo <= byte)
		return d->ranges[first].to;
	return -1;
}

/* ---- refining -------------------------------------------------------------------- */

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0xff51afd7ed558ccdu;
	return h ^ h >> 31;
}

/* Adjacent ranges to one class count as one. */
struct cursor {
	const struct ig_dfa_range *p, *end;
	const uint32_t *classes;
};

static bool next_range(struct cursor *c, unsigned *lo, unsigned *hi, uint32_t *class)
{
	if (c->p == c->end)
		return false;
	*lo = c->p->lo;
	*class = c->classes[c->p->to];
	do {
		*hi = c->p->hi;
		c->p++;
	} while (c->p < c->end && c->p->lo == *hi + 1 && c->classes[c->p->to] == *class);
	return true;
}

static struct cursor cursor_at(const struct ig_dfa *d, const uint32_t *classes, uint32_t s)
{
	if (!d->ranges) /* no state has a range */
		return (struct cursor){ .classes = classes };
	return (struct cursor){ d->ranges + d->range_at[s], d->ranges + d->range_at[s + 1],
				classes };
}

static uint64_t signature(const struct ig_dfa *d, const uint32_t *classes, uint32_t s)
{
	struct cursor c = cursor_at(d, classes, s);
	uint64_t h = mix(0x2545f4914f6cdd1du, classes[s]);
	unsigned lo, hi;
	uint32_t class;

	while (next_range(&c, &lo, &hi, &class))
		h = mix(h, (uint64_t)class << 16 | lo << 8 | hi);
	for (uint32_t i = d->symbol_at[s]; i < d->symbol_at[s + 1]; i++)
		h = mix(h, (uint64_t)d->symbols[i].symbol << 32 | classes[d->symbols[i].to]);
	return h;
}

static bool same(const struct ig_dfa *d, const uint32_t *classes, uint32_t s, uint32_t t)
{
	struct cursor a = cursor_at(d, classes, s), b = cursor_at(d, classes, t);
	unsigned lo[2], hi[2];
	uint32_t class[2], n = d->symbol_at[s + 1] - d->symbol_at[s];
	bool more;

	if (classes[s] != classes[t] || n != d->symbol_at[t + 1] - d->symbol_at[t])
		return false;
	for (uint32_t i = 0; i < n; i++) {
		const struct ig_dfa_symbol *x = &d->symbols[d->symbol_at[s] + i];
		const struct ig_dfa_symbol *y = &d->symbols[d->symbol_at[t] + i];
		if (x->symbol != y->symbol || classes[x->to] != classes[y->to])
			return false;
	}
	do {
		more = next_range(&a, &lo[0], &hi[0], &class[0]);
		if (more != next_range(&b, &lo[1], &hi[1], &class[1]))
			return false;
		if (more && (lo[0] != lo[1] || hi[0] != hi[1] || class[0] != class[1]))
			return false;
	} while (more);
	return true;
}

int ig_dfa_refine(const struct ig_dfa *d, uint32_t *classes, uint32_t *n_classes,
		  uint32_t max_rounds, struct ig_budget *budget)
{
	uint64_t cost =
		d->n_states + (uint64_t)d->range_at[d->n_states] + d->symbol_at[d->n_states];
	uint32_t size = 16, mask, *slots, *next;
	uint64_t *hashes;
	int rc = 0;

	while (size / 2 < d->n_states)
		size *= 2;
	mask = size - 1;
	slots = malloc(size * sizeof *slots);
	next = malloc(d->n_states * sizeof *next);
	hashes = malloc(d->n_states * sizeof *hashes);
	if (!slots || !next || !hashes)
		rc = -ENOMEM;
	for (uint32_t round = 0; round < max_rounds && !rc; round++) {
		uint32_t n = 0;
		if (budget->work < cost) {
			rc = -E2BIG;
			break;
		}
		budget->work -= cost;
		memset(slots, 0xff, size * sizeof *slots);
		for (uint32_t s = 0; s < d->n_states; s++) {
			uint32_t i;
			hashes[s] = signature(d, classes, s);
			for (i = (uint32_t)hashes[s] & mask; slots[i] != NOWHERE;
			     i = (i + 1) & mask)
				if (hashes[slots[i]] == hashes[s] && same(d, classes, slots[i], s))
					break;
			if (slots[i] == NOWHERE) {
				slots[i] = s;
				next[s] = n++;
			} else {
				next[s] = next[slots[i]];
			}
		}
		memcpy(classes, next, d->n_states * sizeof *next);
		if (n == *n_classes)
			break;
		*n_classes = n;
	}
	free(slots);
	free(next);
	free(hashes);
	return rc;
}

/* ---- rebuilding ------------------------------------------------------------------ */

/* Mark the states that can reach an accepting one. */
static int mark_live(const struct ig_dfa *d, uint8_t *live)
{
	uint32_t n_edges = d->range_at[d->n_states], *at, *from, *stack, depth = 0;
	int rc = -ENOMEM;

	at = calloc((size_t)d->n_states + 2, sizeof *at);
	from = malloc((n_edges ? n_edges : 1) * sizeof *from);
	stack = malloc(d->n_states * sizeof *stack);
	if (!at || !from || !stack)
		goto out;
	for (uint32_t i = 0; i < n_edges; i++)
		at[d->ranges[i].to + 2]++;
	for (uint32_t s = 0; s < d->n_states; s++)
		at[s + 2] += at[s + 1];
	for (uint32_t s = 0; s < d->n_states; s++)
		for (uint32_t i = d->range_at[s]; i < d->range_at[s + 1]; i++)
			from[at[d->ranges[i].to + 1]++] = s;
	for (uint32_t s = 0; s < d->n_states; s++)
		if ((live[s] = d->accepts[s]))
			stack[depth++] = s;
	while (depth) {
		uint32_t s = stack[--depth];
		for (uint32_t i = at[s]; i < at[s + 1]; i++) {
			if (!live[from[i]]) {
				live[from[i]] = 1;
				stack[depth++] = from[i];
			}
		}
	}
	rc = 0;
out:
	free(at);
	free(from);
	free(stack);
	return rc;
}

/* Replace d by an automaton with one state for each class that is live and reachable. */
static int rebuild(struct ig_dfa *d, const uint32_t *classes, uint32_t n_classes,
		   const uint8_t *live)
{
	uint32_t *number, *order, n = 0, n_ranges = 0;
	struct ig_dfa out = { 0 };
	int rc = -ENOMEM;

	number = malloc((size_t)n_classes * sizeof *number);
	order = malloc((size_t)n_classes * sizeof *order); /* a state of each new one */
	out.range_at = malloc(((size_t)n_classes + 1) * sizeof *out.range_at);
	out.symbol_at = calloc((size_t)n_classes + 1, sizeof *out.symbol_at);
	out.accepts = malloc(n_classes);
	out.ranges = malloc((d->range_at[d->n_states] + 1u) * sizeof *out.ranges);
	if (!number || !order || !out.range_at || !out.symbol_at || !out.accepts || !out.ranges)
		goto out;
	memset(number, 0xff, n_classes * sizeof *number);
	number[classes[0]] = 0;
	order[n++] = 0;
	for (uint32_t s = 0; s < n; s++) {
		struct cursor c = cursor_at(d, classes, order[s]);
		out.range_at[s] = n_ranges;
		out.accepts[s] = d->accepts[order[s]];
		for (; c.p < c.end; c.p++) {
			uint32_t to = c.p->to;
			if (!live[to])
				continue;
			if (number[classes[to]] == NOWHERE) {
				number[classes[to]] = n;
				order[n++] = to;
			}
			to = number[classes[to]];
			if (n_ranges > out.range_at[s] && out.ranges[n_ranges - 1].to == to &&
			    out.ranges[n_ranges - 1].hi + 1 == c.p->lo)
				out.ranges[n_ranges - 1].hi = c.p->hi;
			else
				out.ranges[n_ranges++] =
					(struct ig_dfa_range){ to, c.p->lo, c.p->hi };
		}
	}
	out.range_at[n] = n_ranges;
	out.n_states = n;
	ig_dfa_finish(d);
	*d = out;
	out = (struct ig_dfa){ 0 };
	rc = 0;
out:
	ig_dfa_finish(&out);
	free(number);
	free(order);
	return rc;
}

int ig_dfa_minimise(struct ig_dfa *d, struct ig_budget *budget)
{
	uint32_t *classes = malloc(d->n_states * sizeof *classes), n_classes = d->n_states;
	uint8_t *live = malloc(d->n_states);
	int rc = -ENOMEM;

	if (!classes || !live || (rc = mark_live(d, live)))
		goto out;
	for (uint32_t s = 0; s < d->n_states; s++)
		classes[s] = s;
	/* Dead states go first: they would make states differ that agree otherwise. */
	if ((rc = rebuild(d, classes, n_classes, live)))
		goto out;
	memset(live, 1, d->n_states);
	if (d->n_states <= MAX_MINIMISED) {
		n_classes = 0; /* there may be one or two */
		for (uint32_t s = 0; s < d->n_states; s++)
			classes[s] = d->accepts[s];
		rc = ig_dfa_refine(d, classes, &n_classes, UINT32_MAX, budget);
		if (!rc)
			rc = rebuild(d, classes, n_classes, live);
	}
out:
	free(classes);
	free(live);
	return rc;
}

/* The copy of an array with more space, which replaces it. */
static bool grow(void *array, size_t n_bytes, size_t more)
{
	void *p;

	memcpy(&p, array, sizeof p);
	if (!(p = realloc(p, n_bytes + more)))
		return false;
	memcpy(array, &p, sizeof p);
	return true;
}

/* Edges back to the start lead to a copy of it, which accepts. */
int ig_dfa_drop_empty(struct ig_dfa *d)
{
	uint32_t n = d->n_states, n_ranges = d->range_at[n], n_symbols = d->symbol_at[n];
	uint32_t more_ranges = d->range_at[1], more_symbols = d->symbol_at[1];

	if (!grow(&d->range_at, (n + 1) * sizeof *d->range_at, sizeof *d->range_at) ||
	    !grow(&d->symbol_at, (n + 1) * sizeof *d->symbol_at, sizeof *d->symbol_at) ||
	    !grow(&d->ranges, n_ranges * sizeof *d->ranges,
		  (more_ranges + 1) * sizeof *d->ranges) ||
	    !grow(&d->symbols, n_symbols * sizeof *d->symbols,
		  (more_symbols + 1) * sizeof *d->symbols) ||
	    !grow(&d->accepts, n, 1))
		return -ENOMEM;
	memcpy(d->ranges + n_ranges, d->ranges, more_ranges * sizeof *d->ranges);
	memcpy(d->symbols + n_symbols, d->symbols, more_symbols * sizeof *d->symbols);
	for (uint32_t i = 0; i < n_ranges + more_ranges; i++)
		d->ranges[i].to = d->ranges[i].to ? d->ranges[i].to : n;
	for (uint32_t i = 0; i < n_symbols + more_symbols; i++)
		d->symbols[i].to = d->symbols[i].to ? d->symbols[i].to : n;
	d->range_at[n + 1] = n_ranges + more_ranges;
	d->symbol_at[n + 1] = n_symbols + more_symbols;
	d->accepts[n] = d->accepts[0];
	d->accepts[0] = 0;
	d->n_states++;
	return 0;
}

/* ---- products -------------------------------------------------------------------- */

struct pairs { /* of a state of a and one of b (or NOWHERE), by number */
	uint32_t (*list)[2];
	uint32_t n, cap, *slots, mask;
};

static uint32_t hash_pair(uint32_t a, uint32_t b)
{
	return (uint32_t)(mix(mix(0x9e3779b97f4a7c15u, a), b) >> 7);
}

static int pair_number(struct pairs *p, uint32_t a, uint32_t b, struct ig_budget *budget,
		       uint32_t *number)
{
	uint32_t i;

	if (p->n * 2u >= p->cap) { /* list has cap elements, slots twice as many */
		uint32_t cap = p->cap ? p->cap * 2 : 128, *slots;
		uint32_t(*list)[2] = realloc(p->list, (size_t)cap * sizeof *list);
		if (!list)
			return -ENOMEM;
		p->list = list;
		slots = calloc((size_t)cap * 2, sizeof *slots);
		if (!slots)
			return -ENOMEM;
		free(p->slots);
		p->slots = slots;
		p->cap = cap;
		p->mask = cap * 2 - 1;
		for (uint32_t s = 0; s < p->n; s++) {
			for (i = hash_pair(p->list[s][0], p->list[s][1]) & p->mask; slots[i];)
				i = (i + 1) & p->mask;
			slots[i] = s + 1;
		}
	}
	for (i = hash_pair(a, b) & p->mask; p->slots[i]; i = (i + 1) & p->mask) {
		*number = p->slots[i] - 1;
		if (p->list[*number][0] == a && p->list[*number][1] == b)
			return 0;
	}
	if (budget->states == 0)
		return -E2BIG;
	budget->states--;
	p->list[p->n][0] = a;
	p->list[p->n][1] = b;
	p->slots[i] = p->n + 1;
	*number = p->n++;
	return 0;
}

/* The last byte, from byte on, that is in the same range of a state or in the same gap between
 * two; *to: where it leads, or NOWHERE. */
static unsigned stretch(const struct ig_dfa *d, uint32_t state, unsigned byte, uint32_t *to)
{
	*to = NOWHERE;
	if (state == NOWHERE)
		return 255;
	for (uint32_t i = d->range_at[state]; i < d->range_at[state + 1]; i++) {
		const struct ig_dfa_range *r = &d->ranges[i];
		if (r->lo > byte)
			return r->lo - 1;
		if (r->hi >= byte) {
			*to = r->to;
			return r->hi;
		}
	}
	return 255;
}

int ig_dfa_product(const struct ig_dfa *a, const struct ig_dfa *b, bool minus,
		   struct ig_budget *budget, struct ig_dfa *out)
{
	struct pairs p = { 0 };
	uint32_t cap_ranges = 0, cap_range_at = 0, cap_accepts = 0, n_ranges = 0, number;
	int rc;

	*out = (struct ig_dfa){ 0 };
	if ((rc = pair_number(&p, 0, 0, budget, &number)))
		goto out;
	for (uint32_t s = 0; s < p.n; s++) {
		uint32_t x = p.list[s][0], y = p.list[s][1];
		bool in_b = y != NOWHERE && b->accepts[y];
		rc = -ENOMEM;
		if (!ig_array_grow(out->range_at, &cap_range_at, s + 1) ||
		    !ig_array_grow(out->accepts, &cap_accepts, s))
			goto out;
		out->range_at[s] = n_ranges;
		out->accepts[s] = a->accepts[x] && in_b != minus;
		for (unsigned lo = 0, hi; lo < 256; lo = hi + 1) {
			uint32_t to[2];
			unsigned hi_b = stretch(b, y, lo, &to[1]);
			hi = stretch(a, x, lo, &to[0]);
			if (hi_b < hi)
				hi = hi_b;
			if (to[0] == NOWHERE || (to[1] == NOWHERE && !minus))
				continue;
			if ((rc = pair_number(&p, to[0], to[1], budget, &number)))
				goto out;
			rc = -E2BIG;
			if (n_ranges >= IG_DFA_MAX_RANGES || budget->n_ranges++ >= IG_MAX_RANGES)
				goto out;
			rc = -ENOMEM;
			if (!ig_array_grow(out->ranges, &cap_ranges, n_ranges))
				goto out;
			out->ranges[n_ranges++] =
				(struct ig_dfa_range){ number, (uint8_t)lo, (uint8_t)hi };
		}
		out->n_states = s + 1;
		out->range_at[s + 1] = n_ranges;
	}
	out->symbol_at = calloc((size_t)out->n_states + 1, sizeof *out->symbol_at);
	rc = out->symbol_at ? ig_dfa_minimise(out, budget) : -ENOMEM;
out:
	free(p.list);
	free(p.slots);
	if (rc)
		ig_dfa_finish(out);
	return rc;
}

int ig_dfa_combine(struct ig_dfa *d, const struct ig_dfa *other, bool minus,
		   struct ig_budget *budget)
{
	struct ig_dfa out;
	int rc = ig_dfa_product(d, other, minus, budget, &out);

	if (rc)
		return rc;
	ig_dfa_finish(d);
	*d = out;
	return 0;
}

/* ---- into an automaton that is being built --------------------------------------- */

/* Nodes for d's states; returns the first.  *end: the node where it accepts. */
static uint32_t nodes_of(struct ig_nfa *a, uint32_t from, const struct ig_dfa *d, uint32_t *end)
{
	uint32_t base = ig_nfa_node(a);

	for (uint32_t s = 1; s < d->n_states && !a->rc; s++)
		ig_nfa_node(a);
	*end = ig_nfa_node(a);
	ig_nfa_join(a, from, base);
	for (uint32_t s = 0; s < d->n_states && !a->rc; s++)
		if (d->accepts[s])
			ig_nfa_join(a, base + s, *end);
	return base;
}

static void add_symbols(struct ig_nfa *a, uint32_t base, const struct ig_dfa *d)
{
	for (uint32_t s = 0; s < d->n_states && !a->rc; s++)
		for (uint32_t i = d->symbol_at[s]; i < d->symbol_at[s + 1]; i++)
			ig_nfa_add(a, base + s, base + d->symbols[i].to, IG_NFA_SYMBOL, 0, 0,
				   d->symbols[i].symbol);
}

uint32_t ig_nfa_insert_free(struct ig_nfa *a, uint32_t from, const struct ig_dfa *d,
			    const int32_t *tokens, uint32_t n_tokens, bool others)
{
	uint32_t base = a->n_nodes, end = ig_nfa_insert(a, from, d);

	for (uint32_t s = 0; s < d->n_states && !a->rc; s++) {
		if (!d->accepts[s])
			continue;
		if (others)
			ig_nfa_add(a, base + s, base, IG_NFA_SYMBOL, 0, 0, IG_SYMBOL_OTHERS);
		for (uint32_t i = 0; i < n_tokens; i++)
			ig_nfa_add(a, base + s, base, IG_NFA_SYMBOL, 0, 0,
				   IG_SYMBOL_TOKEN | (uint32_t)tokens[i]);
	}
	return end;
}

uint32_t ig_nfa_insert(struct ig_nfa *a, uint32_t from, const struct ig_dfa *d)
{
	uint32_t end, base = nodes_of(a, from, d, &end);

	add_symbols(a, base, d);

	for (uint32_t s = 0; s < d->n_states && !a->rc; s++)
		for (uint32_t i = d->range_at[s]; i < d->range_at[s + 1]; i++)
			ig_nfa_bytes(a, base + s, base + d->ranges[i].to, d->ranges[i].lo,
				     d->ranges[i].hi);
	return end;
}

/* \u00XX for lo to hi, which are below 0x20, after "\u00". */
static void add_control(struct ig_nfa *a, uint32_t from, uint32_t to, unsigned byte)
{
	unsigned low = byte & 15;
	uint32_t n = ig_nfa_byte(a, from, '0' + (byte >> 4));

	if (low < 10) {
		ig_nfa_bytes(a, n, to, '0' + low, '0' + low);
	} else {
		ig_nfa_bytes(a, n, to, 'a' + low - 10, 'a' + low - 10);
		ig_nfa_bytes(a, n, to, 'A' + low - 10, 'A' + low - 10);
	}
}

uint32_t ig_nfa_insert_json(struct ig_nfa *a, uint32_t from, const struct ig_dfa *d)
{
	static const struct {
		char byte, letter;
	} shorts[] = {
		{ '"', '"' },  { '\\', '\\' }, { '\b', 'b' }, { '\f', 'f' },
		{ '\n', 'n' }, { '\r', 'r' },  { '\t', 't' },
	};
	uint32_t end, base = nodes_of(a, from, d, &end);

	add_symbols(a, base, d);
	for (uint32_t s = 0; s < d->n_states && !a->rc; s++) {
		uint32_t escape = 0, hex = 0;
		for (uint32_t i = d->range_at[s]; i < d->range_at[s + 1]; i++) {
			unsigned lo = d->ranges[i].lo, hi = d->ranges[i].hi;
			uint32_t to = base + d->ranges[i].to;
			for (unsigned j = 0; j < sizeof shorts / sizeof shorts[0]; j++) {
				if ((unsigned)shorts[j].byte < lo || (unsigned)shorts[j].byte > hi)
					continue;
				escape = escape ? escape : ig_nfa_byte(a, base + s, '\\');
				ig_nfa_bytes(a, escape, to, (unsigned char)shorts[j].letter,
					     (unsigned char)shorts[j].letter);
			}
			/* U+0000 is excluded: many readers of JSON can't store it. */
			for (unsigned c = lo ? lo : 1; c < 0x20 && c <= hi; c++) {
				escape = escape ? escape : ig_nfa_byte(a, base + s, '\\');
				hex = hex ? hex : ig_nfa_text(a, escape, "u00", 3);
				add_control(a, hex, to, c);
			}
			if (lo < 0x20)
				lo = 0x20;
			/* Without the two characters that are escaped. */
			for (unsigned cut = 0; cut < 2; cut++) {
				unsigned c = cut ? '\\' : '"';
				if (lo < c && lo <= hi)
					ig_nfa_bytes(a, base + s, to, lo, hi < c ? hi : c - 1);
				if (lo <= c)
					lo = c + 1;
			}
			if (lo <= hi)
				ig_nfa_bytes(a, base + s, to, lo, hi);
		}
	}
	return end;
}
