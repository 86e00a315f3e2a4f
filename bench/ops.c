/*
 * ops.c: the cost of each kind of op in a step, measured by omitting it.
 *
 * For every kind of node that the plan has several of (usually one per layer), a second plan runs
 * only the first of them; the others' readers read its result.  The difference of the two times is
 * the cost of the others, including reading weights, barriers and conversions to the readers'
 * layouts.  Drivers need no instrumentation.  Nodes that the plan has once are measured together:
 * the logits by steps that compute none, the remainder as the difference.
 *
 * The limit of a kind (roofline) is the larger of its weights' bytes over the machine's read rate
 * and its multiply-adds over the machine's rate.  Times are the minimum of all rounds.  Of
 * experts' weights those count that rows with random experts use.
 */
#include "bench/ops.h"
#include "base/clock.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_KINDS 32
#define N_DECODE 16 /* steps timed in a round */

struct kind {
	const struct ig_plan_node *first;
	uint32_t n;
	double bytes;	 /* of all their weights */
	double macs;	 /* of all of them, per row */
	double share;	 /* of the weights that a row uses (ig_ops_share) */
	double saved[2]; /* seconds saved by omitting n - 1 of them */
};

enum { PREFILL, DECODE };

static bool same_kind(const struct ig_plan *p, const struct ig_plan_node *a,
		      const struct ig_plan_node *b)
{
	if (a->op != b->op || a->n_in != b->n_in || a->n_weights != b->n_weights ||
	    a->n_out != b->n_out)
		return false;
	for (uint32_t i = 0; i < a->n_weights; i++) {
		if ((a->weight[i] < 0) != (b->weight[i] < 0))
			return false;
		if (a->weight[i] >= 0 && (p->weights[a->weight[i]].shape.n_rows !=
						  p->weights[b->weight[i]].shape.n_rows ||
					  p->weights[a->weight[i]].shape.n_cols !=
						  p->weights[b->weight[i]].shape.n_cols))
			return false;
	}
	for (uint32_t i = 0; i < a->n_out; i++) {
		const struct ig_shape *x = &p->values[a->out[i]].shape;
		const struct ig_shape *y = &p->values[b->out[i]].shape;
		if (x->n_cols != y->n_cols || x->row_class != y->row_class)
			return false;
	}
	return true;
}

double ig_ops_share(const struct ig_plan_node *n)
{
	if (!strcmp(n->op->name, "moe_glu")) {
		const struct ig_moe_glu_params *p = n->params;
		return (double)p->top_k / p->n_experts;
	}
	if (!strcmp(n->op->name, "moe_combine")) {
		const struct ig_moe_combine_params *p = n->params;
		return (double)p->top_k / p->n_experts;
	}
	return 1;
}

/* Bytes of a kind's weights that this many rows read. */
static double bytes_of(const struct kind *k, double rows)
{
	return k->bytes * (1 - pow(1 - k->share, rows));
}

static uint32_t find_kinds(const struct ig_plan *p, struct kind *kinds)
{
	uint32_t n = 0, k;

	for (uint32_t i = 0; i < p->n_nodes; i++) {
		const struct ig_plan_node *node = &p->nodes[i];
		for (k = 0; k < n && !same_kind(p, kinds[k].first, node); k++)
			;
		if (k == n) {
			if (n == MAX_KINDS)
				continue; /* stays in the remainder */
			kinds[n++] = (struct kind){ .first = node, .share = ig_ops_share(node) };
		}
		kinds[k].n++;
		for (uint32_t j = 0; j < node->n_weights; j++) {
			const struct ig_plan_weight *w;
			if (node->weight[j] < 0 || !strcmp(node->op->name, "embed"))
				continue;
			w = &p->weights[node->weight[j]];
			kinds[k].bytes += (double)w->n_bytes;
			if (w->shape.n_rows > 1)
				kinds[k].macs += kinds[k].share * (double)w->shape.n_rows *
						 (double)w->shape.n_cols;
		}
	}
	return n;
}

/* The plan with only the first node of a kind.  nodes and values are new, the rest is
 * shared with p. */
static int prune(const struct ig_plan *p, const struct kind *kind, struct ig_plan *out)
{
	int32_t *map = calloc(p->n_values + 1, sizeof *map); /* old value to new */
	int rc = -ENOMEM;

	*out = *p;
	out->nodes = calloc(p->n_nodes, sizeof *out->nodes);
	out->values = calloc(p->n_values + 1, sizeof *out->values);
	out->n_nodes = out->n_values = 0;
	if (!map || !out->nodes || !out->values)
		goto out;
	for (uint32_t i = 0; i < p->n_nodes; i++) {
		struct ig_plan_node node = p->nodes[i];
		if (&p->nodes[i] != kind->first && same_kind(p, kind->first, &p->nodes[i])) {
			for (uint32_t j = 0; j < node.n_out; j++)
				map[node.out[j]] = map[kind->first->out[j]];
			continue;
		}
		for (uint32_t j = 0; j < node.n_in; j++)
			if (node.in[j] >= 0) {
				node.in[j] = map[node.in[j]];
				out->values[node.in[j]].last_node = (int32_t)out->n_nodes;
			}
		for (uint32_t j = 0; j < node.n_out; j++) {
			uint32_t v = out->n_values++;
			out->values[v].shape = p->values[node.out[j]].shape;
			out->values[v].first_node = out->values[v].last_node =
				(int32_t)out->n_nodes;
			map[node.out[j]] = (int32_t)v;
			node.out[j] = (int32_t)v;
		}
		out->nodes[out->n_nodes++] = node;
	}
	rc = 0;
out:
	free(map);
	if (rc) {
		free(out->nodes);
		free(out->values);
	}
	return rc;
}

/* ---- timing ---- */

struct timing {
	const struct ig_ops_options *o;
	int32_t *ids; /* [n_prompt] */
};

static int open_streams(const struct timing *t, struct ig_stepper *s)
{
	for (uint32_t i = 0; i < t->o->n_streams; i++) {
		int rc = ig_stepper_add(s, t->o->n_prompt + N_DECODE);
		if (rc < 0)
			return rc;
		rc = ig_stepper_put(s, rc, t->ids, (int32_t)t->o->n_prompt, NULL);
		if (rc < 0)
			return rc;
		if ((rc = ig_stepper_run(s, false)))
			return rc;
	}
	return 0;
}

/* Lower *best to the seconds of one prefill step of the first stream. */
static int time_prefill(const struct timing *t, struct ig_stepper *s, double *best)
{
	int64_t t0;
	int rc;

	ig_stepper_rewind(s, 0, 0);
	rc = ig_stepper_put(s, 0, t->ids, (int32_t)t->o->n_prompt, &ig_stepper_greedy);
	if (rc < 0)
		return rc;
	t0 = ig_now_ns();
	if ((rc = ig_stepper_run(s, false)))
		return rc;
	if ((double)(ig_now_ns() - t0) * 1e-9 < *best)
		*best = (double)(ig_now_ns() - t0) * 1e-9;
	return 0;
}

/* The same of the fastest of N_DECODE decode steps of all streams. */
static int time_decode(const struct timing *t, struct ig_stepper *s, bool logits, double *best)
{
	for (uint32_t i = 0; i < t->o->n_streams; i++)
		ig_stepper_rewind(s, (int)i, (int32_t)t->o->n_prompt);
	for (uint32_t n = 0; n < N_DECODE; n++) {
		int64_t t0;
		int rc;
		for (uint32_t i = 0; i < t->o->n_streams; i++) {
			rc = ig_stepper_put(s, (int)i, &t->ids[(n + i) % t->o->n_prompt], 1,
					    logits ? &ig_stepper_greedy : NULL);
			if (rc < 0)
				return rc;
		}
		t0 = ig_now_ns();
		if ((rc = ig_stepper_run(s, false)))
			return rc;
		if ((double)(ig_now_ns() - t0) * 1e-9 < *best)
			*best = (double)(ig_now_ns() - t0) * 1e-9;
	}
	return 0;
}

/* Time the plan with and without a kind, alternately. */
static int time_kind(const struct timing *t, const struct ig_stepper_model *m,
		     const struct ig_stepper_options *so, struct ig_stepper *whole,
		     struct kind *kind, double *total, struct ig_error *err)
{
	double with[2] = { DBL_MAX, DBL_MAX }, without[2] = { DBL_MAX, DBL_MAX };
	struct ig_stepper_model pruned = *m;
	struct ig_stepper *s = NULL;
	struct ig_plan plan;
	int rc = prune(m->plan, kind, &plan);

	if (rc)
		return ig_fail(err, rc, "no memory");
	pruned.plan = &plan;
	if ((rc = ig_stepper_open(&pruned, so, &s, err)))
		goto out;
	rc = open_streams(t, s);
	for (uint32_t r = 0; !rc && r <= t->o->n_rounds; r++) {
		rc = time_prefill(t, whole, &with[PREFILL]);
		rc = rc ? rc : time_prefill(t, s, &without[PREFILL]);
		rc = rc ? rc : time_decode(t, whole, true, &with[DECODE]);
		rc = rc ? rc : time_decode(t, s, true, &without[DECODE]);
	}
	if (rc)
		ig_fail(err, rc, "a step was refused: %s", strerror(-rc));
	for (int i = 0; i < 2; i++) {
		kind->saved[i] = with[i] - without[i];
		total[i] = with[i] < total[i] ? with[i] : total[i];
	}
out:
	ig_stepper_close(s);
	free(plan.nodes);
	free(plan.values);
	return rc;
}

/* ---- the table ---- */

static void print_row(const char *name, uint32_t n, double seconds, double total, double limit)
{
	printf("  %-24s %4u %9.3f ms %5.1f %%", name, n, seconds * 1e3, 100 * seconds / total);
	if (limit > 0 && seconds > 0)
		printf("   limit %9.3f ms, %5.1f %% of it reached", limit * 1e3,
		       100 * limit / seconds);
	printf("\n");
}

static double limit_of(const struct ig_ops_options *o, double bytes, double macs)
{
	double a, b;
	if (!(o->read_bytes > 0) || !(o->macs > 0))
		return 0.0;
	a = bytes / o->read_bytes;
	b = macs / o->macs;
	return a > b ? a : b;
}

static void print_table(const struct timing *t, const struct ig_plan *p, const struct kind *kinds,
			uint32_t n_kinds, int which, const double *total, double logits)
{
	const struct ig_ops_options *o = t->o;
	double rest = total[which], rows = which == PREFILL ? o->n_prompt : o->n_streams;
	double logit_rows = which == PREFILL ? 1 : o->n_streams;

	if (which == PREFILL)
		printf("one step, prefill of %u tokens:\n", o->n_prompt);
	else
		printf("one step, decode of %u stream%s at %u tokens:\n", o->n_streams,
		       o->n_streams == 1 ? "" : "s", o->n_prompt);
	for (uint32_t k = 0; k < n_kinds; k++) {
		const struct ig_plan_node *node = kinds[k].first;
		double share = (double)(kinds[k].n - 1) / kinds[k].n, limit = 0.0;
		int64_t n_rows = 0, n_cols = 0;
		char name[64];
		for (uint32_t j = 0; j < node->n_weights; j++)
			if (node->weight[j] >= 0) {
				n_rows += p->weights[node->weight[j]].shape.n_rows;
				n_cols = p->weights[node->weight[j]].shape.n_cols;
			}
		if (n_rows > 1)
			snprintf(name, sizeof name, "%.24s %lldx%lld", node->op->name,
				 (long long)n_rows, (long long)n_cols);
		else
			snprintf(name, sizeof name, "%.24s", node->op->name);
		if (!strcmp(node->op->name, "logits")) {
			if (which == PREFILL)
				continue; /* one row: in the remainder */
			print_row("logits and sample", 1, logits, total[which],
				  limit_of(o, kinds[k].bytes, kinds[k].macs * logit_rows));
			rest -= logits;
			continue;
		}
		if (kinds[k].n < 2)
			continue;
		if (kinds[k].macs > 0)
			limit = limit_of(o, bytes_of(&kinds[k], rows) * share,
					 kinds[k].macs * share * rows);
		print_row(name, kinds[k].n - 1, kinds[k].saved[which], total[which], limit);
		rest -= kinds[k].saved[which];
	}
	print_row("the remainder", 0, rest, total[which], 0.0);
	print_row("the whole step", 1, total[which], total[which], 0.0);
}

int ig_ops_bench(const struct ig_stepper_model *m, const struct ig_stepper_options *how,
		 const struct ig_ops_options *o, struct ig_error *err)
{
	struct timing t = { .o = o };
	struct ig_stepper_options so = *how;
	struct ig_stepper *whole = NULL;
	struct kind kinds[MAX_KINDS];
	double total[2] = { DBL_MAX, DBL_MAX }, bare = DBL_MAX;
	uint32_t n_kinds = find_kinds(m->plan, kinds);
	int rc;

	so.max_rows = o->n_prompt > o->n_streams ? o->n_prompt : o->n_streams;
	so.max_seqs = o->n_streams;
	so.max_context = o->n_prompt + N_DECODE;
	so.cache_tokens = (uint64_t)(so.max_context + IG_BLOCK_TOKENS) * o->n_streams;
	t.ids = calloc(o->n_prompt, sizeof *t.ids);
	if (!t.ids)
		return ig_fail(err, -ENOMEM, "no memory");
	for (uint32_t i = 0; i < o->n_prompt; i++)
		t.ids[i] = (int32_t)((i * 2654435761u >> 7) % m->plan->info.n_vocab);
	if ((rc = ig_stepper_open(m, &so, &whole, err)))
		goto out;
	rc = open_streams(&t, whole);
	if (rc) {
		ig_fail(err, rc, "a step was refused: %s", strerror(-rc));
		goto out;
	}
	for (uint32_t k = 0; k < n_kinds; k++) {
		if (kinds[k].n < 2)
			continue;
		if ((rc = time_kind(&t, m, &so, whole, &kinds[k], total, err)))
			goto out;
	}
	for (uint32_t r = 0; r <= o->n_rounds; r++) {
		rc = time_decode(&t, whole, false, &bare);
		rc = rc ? rc : time_prefill(&t, whole, &total[PREFILL]);
		rc = rc ? rc : time_decode(&t, whole, true, &total[DECODE]);
		if (rc) {
			ig_fail(err, rc, "a step was refused: %s", strerror(-rc));
			goto out;
		}
	}
	printf("%s\n", ig_stepper_describe(whole));
	for (int which = PREFILL; which <= DECODE; which++)
		print_table(&t, m->plan, kinds, n_kinds, which, total, total[DECODE] - bare);
out:
	ig_stepper_close(whole);
	free(t.ids);
	return rc;
}
