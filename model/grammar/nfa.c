/*
 * nfa.c: nondeterministic automata, built edge by edge, and their conversion to deterministic ones
 * by the subset construction.  The first failure stays in the automaton (rc), so that a caller
 * checks once, at the end.  All work counts against a compilation's limits: too many subsets end in
 * -E2BIG.
 */
#include "model/grammar/automaton_private.h"

#include "base/array.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- building -------------------------------------------------------------------- */

void ig_nfa_init(struct ig_nfa *a, struct ig_budget *budget)
{
	*a = (struct ig_nfa){ .budget = budget };
	ig_nfa_clear(a);
}

void ig_nfa_finish(struct ig_nfa *a)
{
	free(a->edges);
	free(a->first);
	a->edges = NULL;
	a->first = NULL;
}

void ig_nfa_clear(struct ig_nfa *a)
{
	a->n_nodes = 0;
	a->n_edges = 1;
	a->rc = 0;
}

uint32_t ig_nfa_node(struct ig_nfa *a)
{
	if (!a->rc && a->n_nodes >= IG_NFA_MAX_NODES)
		a->rc = -E2BIG;
	else if (!a->rc && !ig_array_grow(a->first, &a->cap_nodes, a->n_nodes))
		a->rc = -ENOMEM;
	if (a->rc)
		return 0;
	a->first[a->n_nodes] = 0;
	return a->n_nodes++;
}

void ig_nfa_add(struct ig_nfa *a, uint32_t from, uint32_t to, enum ig_nfa_kind kind, unsigned lo,
		unsigned hi, uint32_t symbol)
{
	if (!a->rc && a->n_edges >= IG_NFA_MAX_EDGES)
		a->rc = -E2BIG;
	else if (!a->rc && !ig_array_grow(a->edges, &a->cap_edges, a->n_edges))
		a->rc = -ENOMEM;
	if (a->rc)
		return;
	a->edges[a->n_edges] = (struct ig_nfa_edge){
		.next = a->first[from],
		.to = to,
		.symbol = symbol,
		.kind = (uint8_t)kind,
		.lo = (uint8_t)lo,
		.hi = (uint8_t)hi,
	};
	a->first[from] = a->n_edges++;
}

uint32_t ig_nfa_byte(struct ig_nfa *a, uint32_t from, unsigned byte)
{
	uint32_t to = ig_nfa_node(a);

	ig_nfa_bytes(a, from, to, byte, byte);
	return to;
}

uint32_t ig_nfa_text(struct ig_nfa *a, uint32_t from, const char *s, size_t len)
{
	for (size_t i = 0; i < len && !a->rc; i++)
		from = ig_nfa_byte(a, from, (unsigned char)s[i]);
	return from;
}

uint32_t ig_nfa_call(struct ig_nfa *a, uint32_t from, uint32_t rule)
{
	uint32_t to = ig_nfa_node(a);

	ig_nfa_add(a, from, to, IG_NFA_SYMBOL, 0, 0, rule);
	return to;
}

/* Characters of the same length in bytes that differ, before their last k bytes, in at most one
 * byte are a product of ranges of bytes; other ranges are split until all parts are. */
void ig_nfa_chars(struct ig_nfa *a, uint32_t from, uint32_t to, uint32_t first, uint32_t last)
{
	static const uint32_t ends[] = { 0x7f, 0x7ff, 0xd7ff, 0xffff, 0x10ffff };
	unsigned char lo[4], hi[4];
	unsigned n;

	for (unsigned i = 0; i < sizeof ends / sizeof ends[0]; i++) {
		if (first <= ends[i] && last > ends[i]) {
			ig_nfa_chars(a, from, to, first, ends[i]);
			first = ends[i] + 1;
		}
	}
	if (first >= 0xd800 && first <= 0xdfff) {
		if (last <= 0xdfff)
			return;
		first = 0xe000;
	}
	for (unsigned shift = 6; shift < 21; shift += 6) {
		uint32_t low = (1u << shift) - 1;
		if (first < 0x80 || first >> shift == last >> shift)
			break;
		if (first & low) { /* up to the end of its block */
			ig_nfa_chars(a, from, to, first, first | low);
			ig_nfa_chars(a, from, to, (first | low) + 1, last);
			return;
		}
		if ((last & low) != low) {
			ig_nfa_chars(a, from, to, first, (last & ~low) - 1);
			ig_nfa_chars(a, from, to, last & ~low, last);
			return;
		}
	}
	n = (unsigned)ig_utf8_put((char *)lo, first);
	ig_utf8_put((char *)hi, last);
	for (unsigned i = 0; i < n; i++) {
		uint32_t next = i + 1 == n ? to : ig_nfa_node(a);
		ig_nfa_bytes(a, from, next, lo[i], hi[i]);
		from = next;
	}
}

/* ---- subsets --------------------------------------------------------------------- */

struct subset {
	uint32_t at, n; /* into members */
	uint32_t hash;
};

struct making {
	struct ig_nfa *a;
	uint32_t end;
	uint32_t *stamp; /* [n_nodes] the closure that a node was seen in */
	uint32_t n_stamp;
	uint32_t *stack, *set; /* [n_nodes] */
	uint32_t n_set;
	uint32_t *alone; /* [n_nodes] state + 1 of the closure of this node alone */
	uint32_t *members;
	uint32_t n_members, cap_members;
	struct subset *subsets; /* by state */
	uint32_t n_subsets, cap_subsets;
	uint32_t *slots, mask; /* state + 1 by the hash of its subset */
	uint32_t *targets;
	uint32_t n_targets, cap_targets;
	struct ig_nfa_edge *picked; /* the edges of a subset */
	uint32_t n_picked, cap_picked;
	struct ig_dfa *d;
	uint32_t cap_ranges, n_ranges, cap_symbols, n_symbols, cap_accepts, cap_range_at,
		cap_symbol_at;
};

static int compare_u32(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static void sort_u32(uint32_t *p, uint32_t n)
{
	if (n > 24) {
		qsort(p, n, sizeof *p, compare_u32);
		return;
	}
	for (uint32_t i = 1; i < n; i++) {
		uint32_t v = p[i], j = i;
		for (; j > 0 && p[j - 1] > v; j--)
			p[j] = p[j - 1];
		p[j] = v;
	}
}

/* The nodes that are reached without reading: those that read something, the end, and those with
 * a condition on the end. */
static int closure(struct making *m, const uint32_t *nodes, uint32_t n, bool begin)
{
	const struct ig_nfa *a = m->a;
	uint32_t depth = 0;

	m->n_stamp++;
	m->n_set = 0;
	for (uint32_t i = 0; i < n; i++) {
		if (m->stamp[nodes[i]] == m->n_stamp)
			continue;
		m->stamp[nodes[i]] = m->n_stamp;
		m->stack[depth++] = nodes[i];
	}
	while (depth) {
		uint32_t node = m->stack[--depth];
		bool keep = node == m->end;
		if (a->budget->work == 0)
			return -E2BIG;
		a->budget->work--;
		for (uint32_t e = a->first[node]; e; e = a->edges[e].next) {
			const struct ig_nfa_edge *edge = &a->edges[e];
			if (edge->kind != IG_NFA_EMPTY && !(edge->kind == IG_NFA_BEGIN && begin)) {
				keep = keep || edge->kind != IG_NFA_BEGIN;
				continue;
			}
			if (m->stamp[edge->to] != m->n_stamp) {
				m->stamp[edge->to] = m->n_stamp;
				m->stack[depth++] = edge->to;
			}
		}
		if (keep)
			m->set[m->n_set++] = node;
	}
	if (a->budget->work < 10ull * m->n_set) /* sorting counts as work */
		return -E2BIG;
	a->budget->work -= (m->n_set > 24 ? 10ull : 2ull) * m->n_set;
	sort_u32(m->set, m->n_set);
	return 0;
}

/* Whether the end is reached from the set when nothing more is read. */
static bool set_accepts(struct making *m)
{
	const struct ig_nfa *a = m->a;
	uint32_t depth = 0;

	m->n_stamp++;
	for (uint32_t i = 0; i < m->n_set; i++) {
		m->stamp[m->set[i]] = m->n_stamp;
		m->stack[depth++] = m->set[i];
	}
	while (depth) {
		uint32_t node = m->stack[--depth];
		if (node == m->end)
			return true;
		for (uint32_t e = a->first[node]; e; e = a->edges[e].next) {
			const struct ig_nfa_edge *edge = &a->edges[e];
			if ((edge->kind == IG_NFA_EMPTY || edge->kind == IG_NFA_END) &&
			    m->stamp[edge->to] != m->n_stamp) {
				m->stamp[edge->to] = m->n_stamp;
				m->stack[depth++] = edge->to;
			}
		}
	}
	return false;
}

static uint32_t hash_u32(const uint32_t *p, uint32_t n)
{
	uint64_t h = n + 0x9e3779b97f4a7c15u;

	for (uint32_t i = 0; i < n; i++) {
		h = (h ^ p[i]) * 0xff51afd7ed558ccdu;
		h ^= h >> 32;
	}
	return (uint32_t)h;
}

static int rehash(struct making *m)
{
	uint32_t size = m->mask ? (m->mask + 1) * 2 : 256;
	uint32_t *slots = calloc(size, sizeof *slots);

	if (!slots)
		return -ENOMEM;
	free(m->slots);
	m->slots = slots;
	m->mask = size - 1;
	for (uint32_t s = 0; s < m->n_subsets; s++) {
		uint32_t i = m->subsets[s].hash & m->mask;
		while (slots[i])
			i = (i + 1) & m->mask;
		slots[i] = s + 1;
	}
	return 0;
}

/* The state of m->set, made if it is new. */
static int state_of_set(struct making *m, uint32_t *state)
{
	uint32_t hash = hash_u32(m->set, m->n_set), i;
	int rc;

	if (!m->slots || m->n_subsets > m->mask / 2)
		if ((rc = rehash(m)))
			return rc;
	for (i = hash & m->mask; m->slots[i]; i = (i + 1) & m->mask) {
		const struct subset *s = &m->subsets[m->slots[i] - 1];
		if (s->hash == hash && s->n == m->n_set &&
		    (!s->n || !memcmp(m->members + s->at, m->set, s->n * sizeof *m->set))) {
			*state = m->slots[i] - 1;
			return 0;
		}
	}
	if (m->a->budget->states == 0 || m->n_members + m->n_set > IG_DFA_MAX_MEMBERS)
		return -E2BIG;
	m->a->budget->states--;
	if (!ig_array_grow(m->subsets, &m->cap_subsets, m->n_subsets) ||
	    !ig_array_grow(m->members, &m->cap_members, m->n_members + m->n_set))
		return -ENOMEM;
	if (m->n_set)
		memcpy(m->members + m->n_members, m->set, m->n_set * sizeof *m->set);
	m->subsets[m->n_subsets] = (struct subset){ m->n_members, m->n_set, hash };
	m->n_members += m->n_set;
	m->slots[i] = m->n_subsets + 1;
	*state = m->n_subsets++;
	return 0;
}

/* The state that the targets lead to. */
static int state_of_targets(struct making *m, uint32_t *state)
{
	bool one = m->n_targets == 1;
	int rc;

	if (one && m->alone[m->targets[0]]) {
		*state = m->alone[m->targets[0]] - 1;
		return 0;
	}
	if ((rc = closure(m, m->targets, m->n_targets, false)) || (rc = state_of_set(m, state)))
		return rc;
	if (one)
		m->alone[m->targets[0]] = *state + 1;
	return 0;
}

static int add_target(struct making *m, uint32_t to)
{
	for (uint32_t i = 0; i < m->n_targets && i < 16; i++)
		if (m->targets[i] == to)
			return 0;
	if (!ig_array_grow(m->targets, &m->cap_targets, m->n_targets))
		return -ENOMEM;
	m->targets[m->n_targets++] = to;
	return 0;
}

static int add_range(struct making *m, unsigned lo, unsigned hi, uint32_t to)
{
	struct ig_dfa *d = m->d;
	uint32_t n = m->n_ranges;

	if (n > d->range_at[d->n_states] && d->ranges[n - 1].to == to &&
	    d->ranges[n - 1].hi + 1u == lo) {
		d->ranges[n - 1].hi = (uint8_t)hi;
		return 0;
	}
	if (n >= IG_DFA_MAX_RANGES || m->a->budget->n_ranges >= IG_MAX_RANGES)
		return -E2BIG;
	m->a->budget->n_ranges++;
	if (!ig_array_grow(d->ranges, &m->cap_ranges, n))
		return -ENOMEM;
	d->ranges[m->n_ranges++] = (struct ig_dfa_range){ to, (uint8_t)lo, (uint8_t)hi };
	return 0;
}

static int add_symbols(struct making *m)
{
	struct ig_dfa *d = m->d;
	int rc;

	for (uint32_t i = 0; i < m->n_picked; i++) {
		uint32_t symbol = m->picked[i].symbol, to;
		bool seen = m->picked[i].kind != IG_NFA_SYMBOL;
		for (uint32_t j = 0; j < i && !seen; j++)
			seen = m->picked[j].kind == IG_NFA_SYMBOL && m->picked[j].symbol == symbol;
		if (seen)
			continue;
		m->n_targets = 0;
		for (uint32_t j = i; j < m->n_picked; j++)
			if (m->picked[j].kind == IG_NFA_SYMBOL && m->picked[j].symbol == symbol)
				if ((rc = add_target(m, m->picked[j].to)))
					return rc;
		if ((rc = state_of_targets(m, &to)))
			return rc;
		if (!ig_array_grow(d->symbols, &m->cap_symbols, m->n_symbols))
			return -ENOMEM;
		d->symbols[m->n_symbols++] = (struct ig_dfa_symbol){ symbol, to };
	}
	return 0;
}

/* The edges of a state; d->n_states is its number until they are complete. */
static int add_state(struct making *m)
{
	struct ig_dfa *d = m->d;
	const struct ig_nfa *a = m->a;
	const struct subset *s = &m->subsets[d->n_states];
	uint8_t cut[257] = { 0 };
	bool symbols = false;
	unsigned lo;
	int rc;

	m->n_picked = 0;
	for (uint32_t i = 0; i < s->n; i++) {
		for (uint32_t e = a->first[m->members[s->at + i]]; e; e = a->edges[e].next) {
			const struct ig_nfa_edge *edge = &a->edges[e];
			if (edge->kind != IG_NFA_RANGE && edge->kind != IG_NFA_SYMBOL)
				continue;
			if (!ig_array_grow(m->picked, &m->cap_picked, m->n_picked))
				return -ENOMEM;
			m->picked[m->n_picked++] = *edge;
			if (edge->kind == IG_NFA_RANGE)
				cut[edge->lo] = cut[edge->hi + 1] = 1;
			else
				symbols = true;
		}
	}
	if (!ig_array_grow(d->range_at, &m->cap_range_at, d->n_states + 1) ||
	    !ig_array_grow(d->symbol_at, &m->cap_symbol_at, d->n_states + 1) ||
	    !ig_array_grow(d->accepts, &m->cap_accepts, d->n_states))
		return -ENOMEM;
	d->range_at[d->n_states] = m->n_ranges;
	d->symbol_at[d->n_states] = m->n_symbols;
	m->n_set = s->n;
	if (s->n)
		memcpy(m->set, m->members + s->at, s->n * sizeof *m->set);
	d->accepts[d->n_states] = set_accepts(m);

	for (lo = 0; lo < 256;) {
		unsigned hi = lo;
		uint32_t to;
		while (!cut[hi + 1] && hi < 255)
			hi++;
		m->n_targets = 0;
		for (uint32_t i = 0; i < m->n_picked; i++)
			if (m->picked[i].kind == IG_NFA_RANGE && m->picked[i].lo <= lo &&
			    m->picked[i].hi >= lo && (rc = add_target(m, m->picked[i].to)))
				return rc;
		if (m->a->budget->work < m->n_picked)
			return -E2BIG;
		m->a->budget->work -= m->n_picked / 2;
		if (m->n_targets &&
		    ((rc = state_of_targets(m, &to)) || (rc = add_range(m, lo, hi, to))))
			return rc;
		lo = hi + 1;
	}
	if (symbols && (rc = add_symbols(m)))
		return rc;
	d->n_states++;
	d->range_at[d->n_states] = m->n_ranges;
	d->symbol_at[d->n_states] = m->n_symbols;
	return 0;
}

int ig_dfa_of(struct ig_nfa *a, uint32_t start, uint32_t end, struct ig_dfa *out)
{
	struct making m = { .a = a, .end = end, .d = out };
	size_t n = a->n_nodes;
	uint32_t first;
	int rc = a->rc;

	*out = (struct ig_dfa){ 0 };
	if (rc)
		return rc;
	m.stamp = calloc(n, sizeof *m.stamp);
	m.stack = malloc(n * sizeof *m.stack);
	m.set = malloc(n * sizeof *m.set);
	m.alone = calloc(n, sizeof *m.alone);
	rc = -ENOMEM;
	if (!m.stamp || !m.stack || !m.set || !m.alone)
		goto out;
	if ((rc = closure(&m, &start, 1, true)) || (rc = state_of_set(&m, &first)))
		goto out;
	while (out->n_states < m.n_subsets)
		if ((rc = add_state(&m)))
			break;
out:
	free(m.stamp);
	free(m.stack);
	free(m.set);
	free(m.alone);
	free(m.members);
	free(m.subsets);
	free(m.slots);
	free(m.targets);
	free(m.picked);
	if (rc)
		ig_dfa_finish(out);
	return rc;
}

void ig_dfa_finish(struct ig_dfa *d)
{
	free(d->range_at);
	free(d->symbol_at);
	free(d->ranges);
	free(d->symbols);
	free(d->accepts);
	*d = (struct ig_dfa){ 0 };
}
