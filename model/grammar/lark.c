/*
 * lark.c: grammars in lark's notation to rules.  The text that a grammar allows is a sequence of
 * terminals; a terminal may be any text that its expression matches, however long (lark's
 * "dynamic_complete").  A rule is expanded in place, so that a grammar without recursion becomes one
 * automaton; where it contains itself, or is large and needed again, it becomes a call.  A rule may
 * begin with itself (left recursion) only as the first item of its alternatives: that is a loop.
 * Inside a JSON string the same automata are spelled as JSON, byte by byte.
 */
#include "model/grammar/lark_private.h"

#include "base/array.h"
#include "base/strbuf.h"
#include "model/grammar/regex_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LARGE 400 /* nodes; a larger rule is not expanded a second time */
#define DEEP 40	  /* nested rules; a deeper one is a call */

static int no_memory(struct ig_error *err)
{
	return ig_fail(err, -ENOMEM, "out of memory for the grammar");
}

void ig_lark_destroy(struct ig_lark *l)
{
	while (l) {
		struct ig_lark *next = l->next;
		for (uint32_t i = 0; i < l->n_dfas; i++)
			ig_dfa_finish(&l->dfas[i]);
		ig_dfa_finish(&l->ignored);
		free(l->dfas);
		free(l->text);
		free(l->nodes);
		free(l->rules);
		free(l);
		l = next;
	}
}

/* ---- names ------------------------------------------------------------------------------- */

static int compare_names(const char *a, size_t a_len, const char *b, size_t b_len)
{
	int c = memcmp(a, b, a_len < b_len ? a_len : b_len);

	return c ? c : a_len < b_len ? -1 : a_len > b_len;
}

static int compare_rules(const void *a, const void *b)
{
	const struct ig_lark_rule *x = a, *y = b;
	int c = compare_names(x->name, x->len, y->name, y->len);

	return c ? c : x->at < y->at ? -1 : x->at > y->at;
}

/* The number of a rule; n_rules: there is none.  The rules are sorted. */
static uint32_t find_rule(const struct ig_lark *l, const char *name, size_t len)
{
	uint32_t first = 0, last = l->n_rules;

	while (first < last) {
		uint32_t mid = first + (last - first) / 2;
		int c = compare_names(l->rules[mid].name, l->rules[mid].len, name, len);
		if (!c)
			return mid;
		if (c < 0)
			first = mid + 1;
		else
			last = mid;
	}
	return l->n_rules;
}

static int resolve(struct ig_lark *l, struct ig_error *err)
{
	if (l->n_rules)
		qsort(l->rules, l->n_rules, sizeof *l->rules, compare_rules);
	for (uint32_t i = 1; i < l->n_rules; i++) {
		const struct ig_lark_rule *r = &l->rules[i];
		if (!compare_names(r[-1].name, r[-1].len, r->name, r->len))
			return ig_lark_fail(l, r->at, err, -EINVAL, "'%.*s' is defined twice",
					    (int)r->len, r->name);
	}
	for (uint32_t i = 1; i < l->n_nodes; i++) {
		struct ig_lark_node *n = &l->nodes[i];
		if (n->kind != IG_LARK_NAME)
			continue;
		n->rule = find_rule(l, n->text, n->len);
		if (n->rule == l->n_rules)
			return ig_lark_fail(l, n->at, err, -EINVAL, "'%.*s' is not defined",
					    (int)n->len, n->text);
	}
	l->start = find_rule(l, "start", 5);
	return l->start < l->n_rules ? 0 : ig_fail(err, -EINVAL, "the grammar has no rule 'start'");
}

/* ---- terminals --------------------------------------------------------------------------- */

/* The automata of expressions, and of texts in any case. */
static int make_dfas(struct ig_lark *l, struct ig_budget *budget, struct ig_error *err)
{
	for (uint32_t i = 1; i < l->n_nodes; i++) {
		struct ig_lark_node *n = &l->nodes[i];
		struct ig_error inside = { 0 };
		struct ig_strbuf b = { 0 };
		int rc = -ENOMEM;
		if (n->kind != IG_LARK_REGEX && !(n->kind == IG_LARK_TEXT && n->flags))
			continue;
		if (!ig_array_grow(l->dfas, &l->cap_dfas, l->n_dfas))
			return no_memory(err);
		if (n->kind == IG_LARK_REGEX)
			ig_strbuf_add(&b, n->text, n->len);
		else
			ig_regex_quote(&b, n->text, n->len);
		if (ig_strbuf_ok(&b))
			rc = ig_regex_to_dfa(ig_strbuf_text(&b), b.len, n->flags, budget,
					     &l->dfas[l->n_dfas], &inside);
		ig_strbuf_finish(&b);
		if (rc == -ENOMEM)
			return no_memory(err);
		if (rc)
			return ig_lark_fail(l, n->at, err, rc, "%s", inside.text);
		n->dfa = l->n_dfas++;
	}
	return 0;
}

/* ---- what can be empty, what can end ------------------------------------------------------- */

static bool node_may_be_empty(const struct ig_lark *l, const struct ig_lark_node *n)
{
	bool any = n->kind != IG_LARK_EITHER;

	switch (n->kind) {
	case IG_LARK_NAME: return l->rules[n->rule].may_be_empty;
	case IG_LARK_TEXT: return !n->len;
	case IG_LARK_REGEX: return l->dfas[n->dfa].accepts[0];
	case IG_LARK_RANGE: return false;
	case IG_LARK_REPEAT: return !n->min || l->nodes[n->child].may_be_empty;
	default: break;
	}
	for (uint32_t i = n->child; i; i = l->nodes[i].next)
		if (l->nodes[i].may_be_empty != any)
			return !any;
	return any;
}

/* Whether a text of it can end, as far as is known; nodes below a node may be anywhere. */
static bool node_can_end(const struct ig_lark *l, const uint8_t *ends, const struct ig_lark_node *n)
{
	bool any = n->kind != IG_LARK_EITHER;

	switch (n->kind) {
	case IG_LARK_NAME: return l->rules[n->rule].can_end;
	case IG_LARK_REPEAT: return !n->min || ends[n->child];
	case IG_LARK_REGEX: return !ig_dfa_is_empty(&l->dfas[n->dfa]);
	case IG_LARK_TEXT:
	case IG_LARK_RANGE: return true;
	default: break;
	}
	for (uint32_t i = n->child; i; i = l->nodes[i].next)
		if (ends[i] != any)
			return !any;
	return any;
}

static int spend(struct ig_budget *budget, uint64_t work, struct ig_error *err)
{
	if (budget->work < work)
		return ig_fail(err, -E2BIG, "the grammar is too large");
	budget->work -= work;
	return 0;
}

/* Repeated until nothing changes.  A node comes before or after those below it, so both orders
 * alternate. */
static int find_properties(struct ig_lark *l, struct ig_budget *budget, struct ig_error *err)
{
	uint8_t *ends = calloc(l->n_nodes, 1);
	bool changed = true;
	int rc = ends ? 0 : no_memory(err);

	for (unsigned round = 0; changed && !rc; round++) {
		changed = false;
		for (uint32_t k = 1; k < l->n_nodes; k++) {
			uint32_t i = round % 2 ? k : l->n_nodes - k;
			struct ig_lark_node *n = &l->nodes[i];
			bool empty = node_may_be_empty(l, n), end = node_can_end(l, ends, n);
			changed = changed || empty != n->may_be_empty || end != ends[i];
			n->may_be_empty = empty;
			ends[i] = end;
		}
		for (uint32_t i = 0; i < l->n_rules; i++) {
			struct ig_lark_rule *r = &l->rules[i];
			bool empty = l->nodes[r->node].may_be_empty, end = ends[r->node];
			changed = changed || empty != r->may_be_empty || end != r->can_end;
			r->may_be_empty = empty;
			r->can_end = end;
		}
		rc = spend(budget, l->n_nodes, err);
	}
	free(ends);
	return rc;
}

/* ---- recursion --------------------------------------------------------------------------- */

/* Whether an alternative of a rule begins with the rule itself. */
static bool is_left_recursive(const struct ig_lark *l, uint32_t rule, uint32_t sequence)
{
	const struct ig_lark_node *first = &l->nodes[l->nodes[sequence].child];

	return l->nodes[sequence].child && first->kind == IG_LARK_NAME && first->rule == rule;
}

struct search { /* for a rule, among those that it contains */
	struct ig_lark *l;
	bool first_only; /* only those that it may begin with */
	uint8_t *seen;	 /* [n_rules] */
	uint32_t *stack; /* [n_rules] rules to look into */
	uint32_t n;
	uint64_t work;
};

static void look(struct search *s, uint32_t node)
{
	const struct ig_lark_node *n = &s->l->nodes[node];

	s->work++;
	if (n->kind == IG_LARK_NAME && !s->seen[n->rule]) {
		s->seen[n->rule] = 1;
		s->stack[s->n++] = n->rule;
	}
	for (uint32_t i = n->child; i; i = s->l->nodes[i].next) {
		look(s, i);
		if (s->first_only && n->kind == IG_LARK_SEQUENCE && !s->l->nodes[i].may_be_empty)
			return;
	}
}

/* What follows the rule itself in its left-recursive alternatives comes first only after an
 * empty alternative. */
static void look_first(struct search *s, uint32_t rule)
{
	const struct ig_lark_node *nodes = s->l->nodes;
	bool empty = false;

	for (uint32_t i = nodes[s->l->rules[rule].node].child; i; i = nodes[i].next) {
		if (is_left_recursive(s->l, rule, i))
			continue;
		look(s, i);
		empty = empty || nodes[i].may_be_empty;
	}
	for (uint32_t i = nodes[s->l->rules[rule].node].child; i && empty; i = nodes[i].next) {
		if (!is_left_recursive(s->l, rule, i))
			continue;
		for (uint32_t k = nodes[nodes[i].child].next; k; k = nodes[k].next) {
			look(s, k);
			if (!nodes[k].may_be_empty)
				break;
		}
	}
}

/* Whether a rule contains itself, or (first_only) may begin with itself. */
static bool contains_itself(struct search *s, uint32_t rule)
{
	memset(s->seen, 0, s->l->n_rules);
	s->n = 0;
	s->stack[s->n++] = rule; /* not seen yet */
	while (s->n && !s->seen[rule]) {
		uint32_t next = s->stack[--s->n];
		if (s->first_only && !s->l->rules[next].is_terminal)
			look_first(s, next);
		else
			look(s, s->l->rules[next].node);
	}
	return s->seen[rule];
}

static int find_recursion(struct ig_lark *l, struct ig_budget *budget, struct ig_error *err)
{
	struct search s = { .l = l };
	int rc = 0;

	s.seen = malloc(l->n_rules);
	s.stack = malloc((l->n_rules + 1) * sizeof *s.stack);
	if (!s.seen || !s.stack)
		rc = no_memory(err);
	for (uint32_t i = 0; i < l->n_rules && !rc; i++) {
		struct ig_lark_rule *r = &l->rules[i];
		bool left;
		s.first_only = false;
		r->is_recursive = contains_itself(&s, i);
		s.first_only = true;
		left = r->is_recursive && contains_itself(&s, i);
		if (r->is_recursive && r->is_terminal)
			rc = ig_lark_fail(l, r->at, err, -EINVAL,
					  "the terminal '%.*s' contains itself", (int)r->len,
					  r->name);
		else if (left)
			rc = ig_lark_fail(l, r->at, err, -EINVAL,
					  "the rule '%.*s' may begin with itself other than as the "
					  "first item of its own alternatives",
					  (int)r->len, r->name);
		else
			rc = spend(budget, s.work, err);
		s.work = 0;
	}
	free(s.seen);
	free(s.stack);
	return rc;
}

/* ---- automata ---------------------------------------------------------------------------- */

struct build {
	struct ig_compiling *c;
	struct ig_lark *l;
	struct ig_nfa *a;
	bool in_json, in_terminal;
	unsigned depth; /* nested rules */
	int rc;
};

static uint32_t build(struct build *b, uint32_t node, uint32_t from);

/* A node of its own after from: what follows adds edges to it alone. */
static uint32_t fresh(struct build *b, uint32_t from)
{
	uint32_t node = ig_nfa_node(b->a);

	ig_nfa_join(b->a, from, node);
	return node;
}

/* What %ignore allows before each terminal, and at the end. */
static uint32_t ignored(struct build *b, uint32_t from)
{
	uint32_t loop;

	if (!b->l->ignored.n_states || b->in_terminal)
		return from;
	loop = fresh(b, from);
	ig_nfa_join(b->a, ig_nfa_insert(b->a, loop, &b->l->ignored), loop);
	return fresh(b, loop);
}

static uint32_t build_sequence(struct build *b, uint32_t first, uint32_t from)
{
	for (uint32_t i = first; i; i = b->l->nodes[i].next)
		from = build(b, i, from);
	return from;
}

/* The alternatives of a rule; those that begin with the rule itself are a loop after the others. */
static uint32_t build_rule(struct build *b, uint32_t rule, uint32_t from)
{
	const struct ig_lark_rule *r = &b->l->rules[rule];
	uint32_t loop = ig_nfa_node(b->a), first = b->l->nodes[r->node].child;
	bool was_terminal = b->in_terminal;

	b->in_terminal = r->is_terminal;
	b->depth++;
	for (uint32_t i = first; i; i = b->l->nodes[i].next)
		if (!is_left_recursive(b->l, rule, i))
			ig_nfa_join(b->a, build(b, i, fresh(b, from)), loop);
	for (uint32_t i = first; i; i = b->l->nodes[i].next)
		if (is_left_recursive(b->l, rule, i))
			ig_nfa_join(b->a,
				    build_sequence(b, b->l->nodes[b->l->nodes[i].child].next,
						   fresh(b, loop)),
				    loop);
	b->depth--;
	b->in_terminal = was_terminal;
	return fresh(b, loop);
}

static uint32_t build_name(struct build *b, uint32_t rule, uint32_t from)
{
	struct ig_lark_rule *r = &b->l->rules[rule];
	uint32_t number, n_nodes, to;

	if (r->is_terminal)
		from = ignored(b, from);
	if (!r->is_recursive && r->n_nodes <= LARGE && b->depth < DEEP) {
		n_nodes = b->a->n_nodes;
		to = build_rule(b, rule, from);
		if (b->a->n_nodes - n_nodes > r->n_nodes)
			r->n_nodes = b->a->n_nodes - n_nodes;
		return to;
	}
	if (!b->rc)
		b->rc = ig_compiling_lark(b->c, b->l, rule, b->in_json, &number);
	if (b->rc)
		return from;
	to = ig_nfa_call(b->a, from, number);
	if (r->may_be_empty)
		ig_nfa_join(b->a, from, to);
	return to;
}

static uint32_t build_repeat(struct build *b, const struct ig_lark_node *n, uint32_t from)
{
	uint32_t end, loop, n_edges;

	from = fresh(b, from);
	for (uint32_t i = 0; i < n->min && !b->a->rc && !b->rc; i++) {
		n_edges = b->a->n_edges;
		from = build(b, n->child, from);
		if (b->a->n_edges == n_edges) /* it reads nothing: once is enough */
			break;
	}
	if (n->max == IG_LARK_UNBOUNDED) {
		loop = fresh(b, from);
		ig_nfa_join(b->a, build(b, n->child, loop), loop);
		return fresh(b, loop);
	}
	end = ig_nfa_node(b->a);
	for (uint32_t i = n->min; i < n->max && !b->a->rc && !b->rc; i++) {
		ig_nfa_join(b->a, from, end);
		n_edges = b->a->n_edges;
		from = build(b, n->child, from);
		if (b->a->n_edges == n_edges)
			break;
	}
	ig_nfa_join(b->a, from, end);
	return end;
}

static uint32_t build(struct build *b, uint32_t node, uint32_t from)
{
	const struct ig_lark_node *n = &b->l->nodes[node];
	uint32_t to;

	if (b->rc || b->a->rc)
		return from;
	switch (n->kind) {
	case IG_LARK_SEQUENCE: return build_sequence(b, n->child, from);
	case IG_LARK_EITHER:
		to = ig_nfa_node(b->a);
		for (uint32_t i = n->child; i; i = b->l->nodes[i].next)
			ig_nfa_join(b->a, build(b, i, fresh(b, from)), to);
		return to;
	case IG_LARK_REPEAT: return build_repeat(b, n, from);
	case IG_LARK_NAME: return build_name(b, n->rule, from);
	case IG_LARK_TEXT:
		from = ignored(b, from);
		if (n->flags)
			return ig_nfa_insert(b->a, from, &b->l->dfas[n->dfa]);
		return ig_nfa_text(b->a, from, n->text, n->len);
	case IG_LARK_REGEX: return ig_nfa_insert(b->a, ignored(b, from), &b->l->dfas[n->dfa]);
	case IG_LARK_RANGE:
		from = ignored(b, from);
		to = ig_nfa_node(b->a);
		ig_nfa_chars(b->a, from, to, n->min, n->max);
		return to;
	}
	return from;
}

static int too_large(struct build *b, int rc, struct ig_error *err)
{
	if (rc == -ENOMEM)
		return no_memory(err);
	return rc == -E2BIG && !err->code ?
		       ig_lark_fail(b->l, b->l->rules[b->l->start].at, err, rc,
				    "the grammar is too large for an automaton") :
		       rc;
}

/* The automaton of a rule, or of the whole grammar (rule is start, top), or of what is ignored. */
static int make_dfa(struct build *b, uint32_t rule, bool top, struct ig_dfa *out,
		    struct ig_error *err)
{
	struct ig_nfa own;
	uint32_t first, last;
	int rc;

	ig_nfa_init(&own, &b->c->budget);
	b->a = &own;
	first = ig_nfa_node(&own);
	if (rule == b->l->n_rules)
		last = build(b, b->l->ignore, first);
	else
		last = build_rule(b, rule, first);
	if (top)
		last = ignored(b, last);
	rc = b->rc ? b->rc : ig_dfa_of(&own, first, last, out);
	ig_nfa_finish(&own);
	if (!rc && !out->symbol_at[out->n_states] && (rc = ig_dfa_minimise(out, &b->c->budget)))
		ig_dfa_finish(out);
	return rc ? too_large(b, rc, err) : 0;
}

static int prepare(struct ig_compiling *c, struct ig_lark *l, struct ig_error *err)
{
	struct build b = { .c = c, .l = l, .in_terminal = true };
	int rc;

	if ((rc = ig_lark_read(l, err)) || (rc = resolve(l, err)) ||
	    (rc = make_dfas(l, &c->budget, err)) || (rc = find_properties(l, &c->budget, err)) ||
	    (rc = find_recursion(l, &c->budget, err)))
		return rc;
	if (!l->rules[l->start].can_end)
		return ig_lark_fail(l, l->rules[l->start].at, err, -EINVAL,
				    "no text of the rule 'start' ever ends");
	return l->ignore ? make_dfa(&b, l->n_rules, false, &l->ignored, err) : 0;
}

int ig_lark_dfa(struct ig_compiling *c, const char *definition, size_t len, bool in_json,
		struct ig_dfa *out, struct ig_error *err)
{
	struct ig_lark *l = calloc(1, sizeof *l);
	struct build b = { .c = c, .l = l, .in_json = in_json };
	int rc;

	*out = (struct ig_dfa){ 0 };
	if (!l)
		return no_memory(err);
	l->next = c->larks;
	c->larks = l;
	l->definition = definition;
	l->len = len;
	return (rc = prepare(c, l, err)) ? rc : make_dfa(&b, l->start, true, out, err);
}

int ig_lark_build_rule(struct ig_compiling *c, const struct ig_rule *rule, uint32_t from,
		       uint32_t *end)
{
	struct build b = { .c = c, .l = rule->lark, .in_json = rule->in_json };
	struct ig_dfa d;
	int rc = make_dfa(&b, rule->lark_rule, false, &d, c->err);

	if (rc)
		return rc;
	/* Its callers know that it may be empty. */
	if (d.accepts[0] && ig_dfa_drop_empty(&d)) {
		ig_dfa_finish(&d);
		return -ENOMEM;
	}
	*end = rule->in_json ? ig_nfa_insert_json(&c->nfa, from, &d) :
			       ig_nfa_insert(&c->nfa, from, &d);
	ig_dfa_finish(&d);
	return 0;
}
