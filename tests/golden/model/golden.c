/* golden.c: see golden.h. */
#include "tests/golden/model/golden.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PROMPTS 4096u
#define MAX_IDS 65536u

/* The file is little-endian and packed; these read it on any host. */
struct reader {
	const unsigned char *data;
	size_t size, at;
	bool failed;
};

static const unsigned char *take(struct reader *r, size_t n)
{
	static const unsigned char zeros[64];

	if (r->failed || n > r->size - r->at) {
		r->failed = true;
		return zeros;
	}
	r->at += n;
	return r->data + r->at - n;
}

static uint32_t take_u32(struct reader *r)
{
	const unsigned char *p = take(r, 4);

	return p[0] | p[1] << 8 | p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint16_t take_u16(struct reader *r)
{
	const unsigned char *p = take(r, 2);

	return (uint16_t)(p[0] | p[1] << 8);
}

static float take_f32(struct reader *r)
{
	uint32_t u = take_u32(r);
	float f;

	memcpy(&f, &u, sizeof f);
	return f;
}

static void take_record(struct reader *r, struct ig_golden_record *rec)
{
	rec->nll = take_f32(r);
	rec->mean = take_f32(r);
	rec->css = take_f32(r);
	for (int i = 0; i < IG_GOLDEN_TOP; i++)
		rec->top[i] = take_u16(r);
	for (int i = 0; i < IG_GOLDEN_TOP; i++)
		rec->top_logit[i] = take_f32(r);
	for (int i = 0; i < IG_GOLDEN_PROJ; i++)
		rec->proj[i] = take_f32(r);
}

static int take_prompt(struct reader *r, const struct ig_golden *g, struct ig_golden_prompt *p)
{
	p->n_ids = take_u32(r);
	if (!p->n_ids || p->n_ids > MAX_IDS)
		return -EINVAL;
	p->ids = calloc(p->n_ids, sizeof *p->ids);
	p->forced = calloc(g->n_steps, sizeof *p->forced);
	p->records = calloc(g->n_steps, sizeof *p->records);
	if (!p->ids || !p->forced || !p->records)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->n_ids; i++) {
		p->ids[i] = take_u16(r);
		if ((uint32_t)p->ids[i] >= g->n_vocab)
			return -EINVAL;
	}
	for (uint32_t i = 0; i < g->n_steps; i++) {
		p->forced[i] = take_u16(r);
		if ((uint32_t)p->forced[i] >= g->n_vocab)
			return -EINVAL;
	}
	for (uint32_t i = 0; i < g->n_steps; i++)
		take_record(r, &p->records[i]);
	return r->failed ? -EINVAL : 0;
}

static uint16_t signs_of(uint64_t v)
{
	uint64_t z = v + 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (uint16_t)(z ^ (z >> 31));
}

static int parse(struct reader *r, struct ig_golden *g)
{
	uint32_t n_top, n_proj;

	if (memcmp(take(r, 8), "IGTRUTH1", 8))
		return -EINVAL;
	g->n_prompts = take_u32(r);
	g->n_steps = take_u32(r);
	n_top = take_u32(r);
	n_proj = take_u32(r);
	g->n_vocab = take_u32(r);
	g->model_bytes = take_u32(r);
	take(r, 32); /* the file's sha256, for truth.py */
	if (r->failed || n_top != IG_GOLDEN_TOP || n_proj != IG_GOLDEN_PROJ || !g->n_prompts ||
	    g->n_prompts > MAX_PROMPTS || !g->n_steps || g->n_steps > MAX_IDS || !g->n_vocab ||
	    g->n_vocab > 65536)
		return -EINVAL;
	g->prompts = calloc(g->n_prompts, sizeof *g->prompts);
	g->signs = calloc(2 * (size_t)g->n_vocab, sizeof *g->signs);
	if (!g->prompts || !g->signs)
		return -ENOMEM;
	for (uint32_t i = 0; i < g->n_prompts; i++) {
		int rc = take_prompt(r, g, &g->prompts[i]);

		if (rc)
			return rc;
	}
	for (uint32_t v = 0; v < g->n_vocab; v++)
		g->signs[v] = g->signs[v + g->n_vocab] = signs_of(v);
	return r->at == r->size ? 0 : -EINVAL;
}

int ig_golden_open(const char *path, struct ig_golden *g, struct ig_error *err)
{
	struct reader r = { 0 };
	unsigned char *data = NULL;
	FILE *f;
	long size;
	int rc;

	memset(g, 0, sizeof *g);
	f = fopen(path, "rb");
	if (!f)
		return ig_fail(err, -errno, "%s: %s", path, strerror(errno));
	if (fseek(f, 0, SEEK_END) || (size = ftell(f)) < 0 || fseek(f, 0, SEEK_SET)) {
		rc = ig_fail(err, -EIO, "%s: can't be read", path);
		goto out;
	}
	data = malloc((size_t)size + 1);
	if (!data) {
		rc = ig_fail(err, -ENOMEM, "%s: no memory", path);
		goto out;
	}
	if (fread(data, 1, (size_t)size, f) != (size_t)size) {
		rc = ig_fail(err, -EIO, "%s: can't be read", path);
		goto out;
	}
	r.data = data;
	r.size = (size_t)size;
	rc = parse(&r, g);
	if (rc) {
		ig_fail(err, rc, "%s: not a whole golden (at byte %zu of %zu)", path, r.at, r.size);
		ig_golden_close(g);
	}
out:
	free(data);
	fclose(f);
	return rc;
}

void ig_golden_close(struct ig_golden *g)
{
	for (uint32_t i = 0; g->prompts && i < g->n_prompts; i++) {
		free(g->prompts[i].ids);
		free(g->prompts[i].forced);
		free(g->prompts[i].records);
	}
	free(g->prompts);
	free(g->signs);
	memset(g, 0, sizeof *g);
}

int32_t ig_golden_judge(const struct ig_golden *g, uint32_t prompt, uint32_t step,
			const float *logits, struct ig_golden_sum *sum)
{
	const struct ig_golden_record *r = &g->prompts[prompt].records[step];
	const uint64_t shift = 7919 * ((uint64_t)g->n_steps * prompt + step);
	const uint16_t *signs = g->signs + shift % g->n_vocab;
	double proj[IG_GOLDEN_PROJ] = { 0 }, mean = 0.0, exps = 0.0, nll, squares = 0.0;
	int32_t best = 0;

	for (uint32_t v = 0; v < g->n_vocab; v++) {
		if (!isfinite(logits[v]))
			return -1;
		mean += logits[v];
		if (logits[v] > logits[best])
			best = (int32_t)v;
	}
	mean /= g->n_vocab;
	for (uint32_t v = 0; v < g->n_vocab; v++) {
		const double c = logits[v] - mean, both[2] = { c, -c };

		exps += exp((double)logits[v] - logits[best]);
		for (int j = 0; j < IG_GOLDEN_PROJ; j++)
			proj[j] += both[signs[v] >> j & 1];
	}
	for (int j = 0; j < IG_GOLDEN_PROJ; j++)
		squares += (proj[j] - r->proj[j]) * (proj[j] - r->proj[j]) / IG_GOLDEN_PROJ;
	nll = (double)logits[best] + log(exps) - logits[g->prompts[prompt].forced[step]];
	sum->n_steps++;
	sum->squares += squares;
	sum->css += r->css;
	sum->nll += nll - r->nll;
	sum->mean = fmax(sum->mean, fabs(mean - r->mean));
	if (best == r->top[0])
		sum->n_equal++;
	else
		sum->lost_gap = fmax(sum->lost_gap, (double)r->top_logit[0] - r->top_logit[1]);
	return best;
}

void ig_golden_add(struct ig_golden_sum *all, const struct ig_golden_sum *one)
{
	all->n_steps += one->n_steps;
	all->n_equal += one->n_equal;
	all->squares += one->squares;
	all->css += one->css;
	all->nll += one->nll;
	all->mean = fmax(all->mean, one->mean);
	all->lost_gap = fmax(all->lost_gap, one->lost_gap);
}
