/*
 * compile.c: compiles a source to a grammar.  Each rule becomes an automaton (source.c, schema.c,
 * lark.c); all are put into one table; edges that the vocabulary can't write and dead states are removed;
 * and the matcher's data about states and rules is computed.  Owns the order of a compilation and
 * its limits.
 */
#include "model/grammar/grammar_private.h"
#include "base/array.h"
#include "base/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_REPEATS 256
#define DEAD UINT16_MAX /* needs: the end can't be reached */
#define REFINE_WORK 40000000u

/* ---- rules ----------------------------------------------------------------------- */

/* Space for another rule, or NULL. */
static struct ig_rule *new_rule(struct ig_compiling *c, int *rc)
{
	*rc = -ENOMEM;
	if (c->n_rules == IG_MAX_RULES)
		*rc = ig_fail(c->err, -E2BIG, "more than %d schemas or rules that call each other",
			      IG_MAX_RULES);
	else if (ig_array_grow(c->rules, &c->cap_rules, c->n_rules))
		return &c->rules[c->n_rules];
	return NULL;
}

int ig_compiling_rule(struct ig_compiling *c, enum ig_rule_kind kind, const json_t *schema,
		      const json_t *root, const char *path, uint32_t *out)
{
	struct ig_rule *r;
	int rc;

	for (uint32_t i = 0; i < c->n_rules; i++) {
		if (c->rules[i].kind == kind && c->rules[i].schema == schema) {
			*out = i;
			return 0;
		}
	}
	if (!(r = new_rule(c, &rc)))
		return rc;
	*r = (struct ig_rule){ .kind = kind, .schema = schema, .root = root };
	if (path && !(r->path = strdup(path)))
		return -ENOMEM;
	*out = c->n_rules++;
	return 0;
}

int ig_compiling_lark(struct ig_compiling *c, struct ig_lark *l, uint32_t rule, bool in_json,
		      uint32_t *out)
{
	struct ig_rule *r;
	int rc;

	for (uint32_t i = 0; i < c->n_rules; i++) {
		r = &c->rules[i];
		if (r->kind == IG_RULE_LARK && r->lark == l && r->lark_rule == rule &&
		    r->in_json == in_json) {
			*out = i;
			return 0;
		}
	}
	if (!(r = new_rule(c, &rc)))
		return rc;
	*r = (struct ig_rule){
		.kind = IG_RULE_LARK, .lark = l, .lark_rule = rule, .in_json = in_json
	};
	*out = c->n_rules++;
	return 0;
}

static int too_big(struct ig_compiling *c)
{
	return ig_fail(c->err, -E2BIG, "the grammar is too large (%u states, %u edges at most)",
		       IG_DFA_MAX_STATES, IG_NFA_MAX_EDGES);
}

static int build_rule(struct ig_compiling *c, uint32_t i)
{
	const struct ig_rule rule = c->rules[i]; /* the list may move */
	struct ig_dfa d;
	uint32_t first, end = 0;
	int rc;

	ig_nfa_clear(&c->nfa);
	first = ig_nfa_node(&c->nfa);
	switch (rule.kind) {
	case IG_RULE_SOURCE: rc = ig_source_build(c, first, &end); break;
	case IG_RULE_CHOICE: rc = ig_source_build_choices(c, first, &end); break;
	case IG_RULE_LARK: rc = ig_lark_build_rule(c, &rule, first, &end); break;
	default: rc = ig_schema_build_rule(c, &rule, first, &end);
	}
	if (!rc && !(rc = c->nfa.rc))
		rc = ig_dfa_of(&c->nfa, first, end, &d);
	if (rc)
		return rc == -E2BIG && !c->err->code ? too_big(c) : rc;
	c->rules[i].dfa = d;
	if (i && d.accepts[0])
		return ig_fail(c->err, -EINVAL, "what may be repeated must not be empty");
	return 0;
}

/* ---- one table ------------------------------------------------------------------- */

/* The parts of a range that the vocabulary has tokens for, into out; returns their number. */
static uint32_t writable(const struct ig_vocab *v, struct ig_dfa_range r, struct ig_dfa_range *out)
{
	uint32_t n = 0;

	for (unsigned b = r.lo; b <= r.hi; b++) {
		if (!v->single[b])
			continue;
		if (n && out[n - 1].hi + 1u == b)
			out[n - 1].hi = (uint8_t)b;
		else
			out[n++] = (struct ig_dfa_range){ r.to, (uint8_t)b, (uint8_t)b };
	}
	return n;
}

static int link_rules(struct ig_compiling *c, struct ig_grammar *g)
{
	uint64_t n_states = 0, n_ranges = 0, n_symbols = 0;
	struct ig_dfa_range cut[128];
	struct ig_dfa *a = &g->a;
	uint32_t base = 0;

	for (uint32_t i = 0; i < c->n_rules; i++) {
		const struct ig_dfa *d = &c->rules[i].dfa;
		n_states += d->n_states;
		n_symbols += d->symbol_at[d->n_states];
		for (uint32_t j = 0; j < d->range_at[d->n_states]; j++)
			n_ranges += writable(c->vocab, d->ranges[j], cut);
	}
	if (n_states > IG_DFA_MAX_STATES || n_ranges > IG_DFA_MAX_RANGES ||
	    n_symbols > IG_DFA_MAX_RANGES)
		return too_big(c);
	a->range_at = malloc((n_states + 1) * sizeof *a->range_at);
	a->symbol_at = malloc((n_states + 1) * sizeof *a->symbol_at);
	a->accepts = malloc(n_states);
	a->ranges = malloc((n_ranges + 1) * sizeof *a->ranges);
	a->symbols = malloc((n_symbols + 1) * sizeof *a->symbols);
	g->starts = malloc(c->n_rules * sizeof *g->starts);
	g->n_rules = c->n_rules;
	if (!a->range_at || !a->symbol_at || !a->accepts || !a->ranges || !a->symbols || !g->starts)
		return -ENOMEM;
	n_ranges = n_symbols = 0;
	for (uint32_t i = 0; i < c->n_rules; i++) {
		struct ig_dfa *d = &c->rules[i].dfa;
		g->starts[i] = base;
		for (uint32_t s = 0; s < d->n_states; s++) {
			a->range_at[base + s] = (uint32_t)n_ranges;
			a->symbol_at[base + s] = (uint32_t)n_symbols;
			a->accepts[base + s] = d->accepts[s];
			for (uint32_t j = d->range_at[s]; j < d->range_at[s + 1]; j++) {
				uint32_t n = writable(c->vocab, d->ranges[j], cut);
				for (uint32_t k = 0; k < n; k++) {
					cut[k].to += base;
					a->ranges[n_ranges++] = cut[k];
				}
			}
			for (uint32_t j = d->symbol_at[s]; j < d->symbol_at[s + 1]; j++) {
				a->symbols[n_symbols] = d->symbols[j];
				a->symbols[n_symbols++].to += base;
			}
		}
		base += d->n_states;
		ig_dfa_finish(d);
	}
	a->n_states = base;
	a->range_at[base] = (uint32_t)n_ranges;
	a->symbol_at[base] = (uint32_t)n_symbols;
	return 0;
}

/* ---- reaching the end ------------------------------------------------------- */

static uint32_t need_of(const struct ig_grammar *g, uint32_t s)
{
	const struct ig_dfa *a = &g->a;
	uint32_t best = a->accepts[s] ? 0 : g->needs[s];

	for (uint32_t i = a->range_at[s]; i < a->range_at[s + 1] && best; i++)
		if (g->needs[a->ranges[i].to] < best)
			best = g->needs[a->ranges[i].to];
	for (uint32_t i = a->symbol_at[s]; i < a->symbol_at[s + 1] && best; i++) {
		const struct ig_dfa_symbol *x = &a->symbols[i];
		uint32_t need = g->needs[x->to];
		if (!(x->symbol & IG_SYMBOL_TOKEN) && g->needs[g->starts[x->symbol]] + 1u > need)
			need = g->needs[g->starts[x->symbol]] + 1u;
		if (need < best)
			best = need;
	}
	return best;
}

/* States are numbered from the start of their rules, so one pass backwards settles most. */
static int find_needs(struct ig_compiling *c, struct ig_grammar *g)
{
	uint64_t cost = g->a.n_states + (uint64_t)g->a.range_at[g->a.n_states] +
			g->a.symbol_at[g->a.n_states];
	bool changed = true;

	g->needs = malloc(g->a.n_states * sizeof *g->needs);
	if (!g->needs)
		return -ENOMEM;
	memset(g->needs, 0xff, g->a.n_states * sizeof *g->needs);
	while (changed) {
		changed = false;
		if (c->budget.work < cost / 4)
			return too_big(c);
		c->budget.work -= cost / 4;
		for (uint32_t s = g->a.n_states; s-- > 0;) {
			uint32_t need = need_of(g, s);
			if (need < g->needs[s]) {
				g->needs[s] = (uint16_t)need;
				changed = true;
			}
		}
	}
	if (g->needs[g->starts[0]] == DEAD)
		return ig_fail(c->err, -EINVAL,
			       "the vocabulary can't write any text that the grammar allows");
	if (g->needs[g->starts[0]] > IG_MAX_NEED)
		return ig_fail(c->err, -E2BIG,
			       "the smallest value or text is nested more than %u deep",
			       IG_MAX_NEED);
	return 0;
}

/* Remove edges to dead states, and calls that need too many further calls. */
static void prune(struct ig_grammar *g)
{
	struct ig_dfa *a = &g->a;
	uint32_t n_ranges = 0, n_symbols = 0, i = 0, j = 0;

	for (uint32_t s = 0; s < a->n_states; s++) {
		uint32_t end = a->range_at[s + 1], first = n_ranges;
		a->range_at[s] = n_ranges;
		for (; i < end; i++) {
			struct ig_dfa_range r = a->ranges[i];
			if (g->needs[r.to] > IG_MAX_NEED)
				continue;
			if (n_ranges > first && a->ranges[n_ranges - 1].to == r.to &&
			    a->ranges[n_ranges - 1].hi + 1 == r.lo)
				a->ranges[n_ranges - 1].hi = r.hi;
			else
				a->ranges[n_ranges++] = r;
		}
		end = a->symbol_at[s + 1];
		a->symbol_at[s] = n_symbols;
		for (; j < end; j++) {
			struct ig_dfa_symbol x = a->symbols[j];
			if (g->needs[x.to] <= IG_MAX_NEED &&
			    (x.symbol & IG_SYMBOL_TOKEN ||
			     g->needs[g->starts[x.symbol]] < IG_MAX_NEED))
				a->symbols[n_symbols++] = x;
		}
	}
	a->range_at[a->n_states] = n_ranges;
	a->symbol_at[a->n_states] = n_symbols;
}

/* ---- first bytes of rules ------------------------------------------------------- */

/* Whether rule r is left-recursive: calls itself before a byte is read.  seen: 0 not yet, 1 in
 * progress, 2 done. */
static bool is_left_recursive(const struct ig_grammar *g, uint32_t r, uint8_t *seen, unsigned depth)
{
	uint32_t s = g->starts[r];

	if (seen[r] || depth > IG_MAX_RULES)
		return seen[r] == 1;
	seen[r] = 1;
	for (uint32_t i = g->a.symbol_at[s]; i < g->a.symbol_at[s + 1]; i++)
		if (!(g->a.symbols[i].symbol & IG_SYMBOL_TOKEN) &&
		    is_left_recursive(g, g->a.symbols[i].symbol, seen, depth + 1))
			return true;
	seen[r] = 2;
	return false;
}

static int check_recursion(struct ig_compiling *c, const struct ig_grammar *g)
{
	uint8_t *seen = calloc(g->n_rules, 1);
	bool found = false;

	if (!seen)
		return -ENOMEM;
	for (uint32_t r = 0; r < g->n_rules && !found; r++)
		found = is_left_recursive(g, r, seen, 0);
	free(seen);
	return found ? ig_fail(c->err, -EINVAL, "$ref refers to itself without a value between") :
		       0;
}

static int find_firsts(struct ig_grammar *g)
{
	bool changed = true;

	g->firsts = calloc(g->n_rules, sizeof *g->firsts);
	if (!g->firsts)
		return -ENOMEM;
	for (uint32_t r = 0; r < g->n_rules; r++) {
		uint32_t s = g->starts[r];
		for (uint32_t i = g->a.range_at[s]; i < g->a.range_at[s + 1]; i++)
			for (unsigned b = g->a.ranges[i].lo; b <= g->a.ranges[i].hi; b++)
				g->firsts[r][b / 32] |= 1u << b % 32;
	}
	while (changed) {
		changed = false;
		for (uint32_t r = 0; r < g->n_rules; r++) {
			uint32_t s = g->starts[r];
			for (uint32_t i = g->a.symbol_at[s]; i < g->a.symbol_at[s + 1]; i++) {
				uint32_t symbol = g->a.symbols[i].symbol;
				for (unsigned w = 0; w < 8 && !(symbol & IG_SYMBOL_TOKEN); w++) {
					uint32_t more = g->firsts[symbol][w] & ~g->firsts[r][w];
					g->firsts[r][w] |= more;
					changed = changed || more;
				}
			}
		}
	}
	return 0;
}

static int find_flags(struct ig_grammar *g)
{
	const struct ig_dfa *a = &g->a;

	g->flags = calloc(a->n_states, 1);
	if (!g->flags)
		return -ENOMEM;
	for (uint32_t s = 0; s < a->n_states; s++) {
		if (a->accepts[s])
			g->flags[s] |= IG_STATE_ACCEPTS;
		if (a->range_at[s] < a->range_at[s + 1])
			g->flags[s] |= IG_STATE_BYTES;
		for (uint32_t i = a->symbol_at[s]; i < a->symbol_at[s + 1]; i++)
			g->flags[s] |= a->symbols[i].symbol & IG_SYMBOL_TOKEN ? IG_STATE_TOKENS :
										IG_STATE_CALLS;
	}
	return 0;
}

/* Whether a state reads all plain bytes, within its rule only. */
static bool reads_plain(const struct ig_grammar *g, uint32_t s)
{
	const struct ig_dfa *a = &g->a;
	bool is_first = g->n_rules == 1 || s < g->starts[1];
	unsigned n = 0;

	if (a->accepts[s] && !is_first) /* states below on the stack may read them too */
		return false;
	for (uint32_t i = a->symbol_at[s]; i < a->symbol_at[s + 1]; i++)
		for (unsigned b = 0; b < 256 && !(a->symbols[i].symbol & IG_SYMBOL_TOKEN); b++)
			if (ig_is_plain_byte(b) &&
			    g->firsts[a->symbols[i].symbol][b / 32] >> b % 32 & 1)
				return false;
	for (uint32_t i = a->range_at[s]; i < a->range_at[s + 1]; i++)
		for (unsigned b = a->ranges[i].lo; b <= a->ranges[i].hi; b++)
			n += ig_is_plain_byte(b);
	return n == 0x7f - ' ' - 2;
}

static int find_plains(struct ig_grammar *g)
{
	const struct ig_dfa *a = &g->a;
	bool changed = true;

	g->plains = malloc(a->n_states);
	if (!g->plains)
		return -ENOMEM;
	for (uint32_t s = 0; s < a->n_states; s++)
		g->plains[s] = reads_plain(g, s) ? IG_VOCAB_MAX_TOKEN : 0;
	while (changed) { /* no more than IG_VOCAB_MAX_TOKEN times */
		changed = false;
		for (uint32_t s = a->n_states; s-- > 0;) {
			unsigned least = g->plains[s];
			for (uint32_t i = a->range_at[s]; i < a->range_at[s + 1] && least; i++) {
				const struct ig_dfa_range *r = &a->ranges[i];
				bool plain = false;
				for (unsigned b = r->lo; b <= r->hi && !plain; b++)
					plain = ig_is_plain_byte(b);
				if (plain && g->plains[r->to] + 1u < least)
					least = g->plains[r->to] + 1u;
			}
			changed = changed || least < g->plains[s];
			g->plains[s] = (uint8_t)least;
		}
	}
	return 0;
}

/* States that agree for the length of the longest token share their masks, such as those in the
 * middle of a long {m,n}. */
static int find_classes(struct ig_grammar *g)
{
	struct ig_budget budget = { .work = REFINE_WORK };
	int rc;

	g->classes = malloc(g->a.n_states * sizeof *g->classes);
	if (!g->classes)
		return -ENOMEM;
	/* Masks of the first rule differ: the stack below it is empty. */
	for (uint32_t s = 0; s < g->a.n_states; s++)
		g->classes[s] = g->needs[s] * 4u + g->a.accepts[s] * 2u +
				(g->n_rules > 1 && s >= g->starts[1]);
	g->n_classes = 0; /* other than any number of classes */
	rc = ig_dfa_refine(&g->a, g->classes, &g->n_classes, g->vocab->longest, &budget);
	if (rc != -E2BIG)
		return rc;
	for (uint32_t s = 0; s < g->a.n_states; s++)
		g->classes[s] = s;
	g->n_classes = g->a.n_states;
	return 0;
}

/* ---- the whole ------------------------------------------------------------------- */

static int finish_grammar(struct ig_compiling *c, struct ig_grammar *g)
{
	int rc;

	if ((rc = link_rules(c, g)) || (rc = check_recursion(c, g)) || (rc = find_needs(c, g)))
		return rc;
	prune(g);
	if ((rc = find_firsts(g)) || (rc = find_flags(g)) || (rc = find_plains(g)) ||
	    (rc = find_classes(g)))
		return rc;
	g->bytes = sizeof *g + g->a.n_states * (size_t)21 +
		   g->a.range_at[g->a.n_states] * sizeof *g->a.ranges +
		   g->a.symbol_at[g->a.n_states] * sizeof *g->a.symbols + g->n_rules * (size_t)40;
	return ig_masks_create(g);
}

static int check_source(const struct ig_grammar_source *s, struct ig_error *err)
{
	if (!s->n_choices)
		return ig_fail(err, -EINVAL, "a grammar without a choice");
	if (!s->max_repeats)
		return ig_fail(err, -EINVAL, "a grammar that repeats nothing");
	if (s->max_repeats > MAX_REPEATS)
		return ig_fail(err, -E2BIG, "%u repetitions are more than %d", s->max_repeats,
			       MAX_REPEATS);
	return 0;
}

int ig_grammar_compile_for(struct ig_vocab *v, const struct ig_grammar_source *source,
			   struct ig_grammar **out, struct ig_error *err)
{
	struct ig_error inside = { 0 };
	struct ig_compiling c = {
		.vocab = v,
		.source = source,
		.err = &inside,
		.budget = { IG_MAX_WORK, 2 * (uint64_t)IG_DFA_MAX_STATES },
	};
	struct ig_grammar *g = calloc(1, sizeof *g);
	uint32_t rule;
	int rc = -ENOMEM;

	*out = NULL;
	ig_nfa_init(&c.nfa, &c.budget);
	if (!g)
		goto out;
	atomic_init(&g->refs, 1);
	g->vocab = ig_vocab_ref(v);
	if ((rc = check_source(source, &inside)) ||
	    (rc = ig_compiling_rule(&c, IG_RULE_SOURCE, NULL, NULL, NULL, &rule)))
		goto out;
	for (uint32_t i = 0; i < c.n_rules && !rc; i++)
		rc = build_rule(&c, i);
	ig_nfa_finish(&c.nfa);
	if (!rc && !(rc = finish_grammar(&c, g))) {
		*out = g;
		g = NULL;
	}
out:
	ig_nfa_finish(&c.nfa);
	for (uint32_t i = 0; i < c.n_rules; i++) {
		ig_dfa_finish(&c.rules[i].dfa);
		free(c.rules[i].path);
	}
	ig_lark_destroy(c.larks);
	free(c.rules);
	free(c.costs);
	json_decref(c.kept);
	ig_grammar_unref(g);
	if (rc == -ENOMEM)
		ig_fail(err, rc, "out of memory for the grammar");
	else if (rc)
		ig_fail(err, rc, "%s", inside.text);
	return rc;
}

int ig_grammar_compile(const struct ig_tokenizer *t, const struct ig_grammar_source *source,
		       struct ig_grammar **out, struct ig_error *err)
{
	struct ig_vocab *v;
	int rc;

	*out = NULL;
	if ((rc = ig_vocab_create(t, &v, err)))
		return rc;
	rc = ig_grammar_compile_for(v, source, out, err);
	ig_vocab_unref(v);
	return rc;
}

struct ig_grammar *ig_grammar_ref(struct ig_grammar *g)
{
	atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
	return g;
}

void ig_grammar_unref(struct ig_grammar *g)
{
	if (!g || atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) > 1)
		return;
	ig_masks_destroy(g);
	ig_dfa_finish(&g->a);
	free(g->flags);
	free(g->plains);
	free(g->needs);
	free(g->starts);
	free(g->firsts);
	free(g->classes);
	ig_vocab_unref(g->vocab);
	free(g);
}
