/*
 * spans.c: rows of prompts that are no token's: see spans.h and spans_private.h.
 *
 * A span's id counts up with each that differs from those that are remembered, by a hash (SHA-256) of all that its keys
 * and values depend on.  A hash of 31 bits in place of a number would be found equal for different images sooner or
 * later.  What is forgotten gets another number, so it is computed once more; numbers are this process's.
 */
#include "daemon/engine/spans_private.h"

#include "store/kv_name.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* By which the last token of a context may be turned: floats have all numbers up to 2^24. */
#define MAX_TURNED (1 << 23)

/* ---- ids ------------------------------------------------------------------------------------ */

/* Spans that are remembered: by the first bits of their names one of SETS, in which the one that was not asked for
 * for the longest time gives way. */
#define SETS 1024
#define WAYS 8

struct known {
	struct ig_kv_name name;
	uint64_t used; /* 0: free */
	int32_t id;
};

static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;
static struct known known_spans[SETS][WAYS];
static uint64_t n_asked;
static int32_t last_id;

/* The id of the span with this name; 0: there are no more numbers. */
static int32_t id_of(const struct ig_kv_name *name)
{
	struct known *set = known_spans[(name->bytes[0] | name->bytes[1] << 8) % SETS], *to = set;
	int32_t id = 0;

	pthread_mutex_lock(&known_lock);
	for (struct known *k = set; k < set + WAYS; k++) {
		if (k->used && !memcmp(&k->name, name, sizeof *name))
			id = k->id;
		if (id || k->used < to->used)
			to = k;
		if (id)
			break;
	}
	if (!id && last_id > INT32_MIN)
		id = --last_id;
	if (id)
		*to = (struct known){ *name, ++n_asked, id };
	pthread_mutex_unlock(&known_lock);
	return id;
}

/* ---- of a prompt ------------------------------------------------------------------------------ */

static int32_t n_positions(const struct ig_span *x)
{
	return x->n_positions ? x->n_positions : x->n;
}

/* after: the row behind the span before. */
static int check_span(const struct ig_engine_model *m, const struct ig_span *x, int32_t i,
		      int32_t after, int32_t n_prompt, struct ig_error *err)
{
	if (x->n < 1 || x->first < after || x->n > n_prompt - x->first || !x->rows)
		return ig_fail(err, -EINVAL,
			       "rows from outside %d have %d rows from %d on, of a prompt of %d", i,
			       x->n, x->first, n_prompt);
	if ((uint32_t)x->n > m->instance->chunk)
		return ig_fail(
			err, -E2BIG,
			"rows from outside %d are %d, which must be in one step; a step of %s "
			"has %u of a request (scheduler.prefill_chunk)",
			i, x->n, m->name, m->instance->chunk);
	if (n_positions(x) < 1 || n_positions(x) > MAX_TURNED)
		return ig_fail(err, -EINVAL, "rows from outside %d take %d positions", i,
			       x->n_positions);
	for (int32_t k = 0; x->positions && k < x->n * IG_ROPE_AXES; k++)
		if (x->positions[k] < 0 || x->positions[k] > MAX_TURNED)
			return ig_fail(err, -EINVAL, "row %d from outside is at position %d",
				       k / IG_ROPE_AXES, x->positions[k]);
	return 0;
}

static int check(const struct ig_engine_model *m, int32_t n_prompt, const struct ig_span *spans,
		 int32_t n, struct ig_error *err)
{
	int64_t sum = m->n_context;

	if (m->instance->whole_texts)
		return ig_fail(err, -ENOTSUP, "%s takes texts, and no rows from outside", m->name);
	if (!m->width_outside)
		return ig_fail(err, -ENOTSUP, "%s has no place for rows from outside here",
			       m->name);
	for (int32_t i = 0; i < n; i++) {
		int32_t after = i ? spans[i - 1].first + spans[i - 1].n : 0;
		int rc = check_span(m, &spans[i], i, after, n_prompt, err);
		if (rc)
			return rc;
		sum += n_positions(&spans[i]);
	}
	if (sum > MAX_TURNED)
		return ig_fail(err, -E2BIG, "rows from outside take %lld positions, the most is %d",
			       (long long)sum, MAX_TURNED);
	return 0;
}

/* What a span's keys and values depend on. */
static bool name_span(struct ig_kv_namer *n, const struct ig_seq_span *x, size_t width,
		      struct ig_kv_name *out)
{
	const size_t rows = (size_t)(x->end - x->first);
	const int32_t more[] = { x->next - x->base, x->both_ways, x->positions != NULL };

	ig_kv_name_begin(n, NULL);
	ig_kv_name_add(n, x->rows, rows * width * sizeof *x->rows);
	ig_kv_name_add(n, x->ids, rows * sizeof *x->ids);
	ig_kv_name_add(n, more, sizeof more);
	if (x->positions)
		ig_kv_name_add(n, x->positions, rows * IG_ROPE_AXES * sizeof *x->positions);
	return ig_kv_name_end(n, out);
}

static struct ig_spans *allocate(size_t n, size_t n_rows, size_t width)
{
	struct ig_spans *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	atomic_init(&s->n_refs, 1);
	s->width = width;
	s->list = calloc(n, sizeof *s->list);
	s->rows = malloc(n_rows * width * sizeof *s->rows);
	s->numbers = malloc(n_rows * (IG_ROPE_AXES + 1) * sizeof *s->numbers);
	if (s->list && s->rows && s->numbers)
		return s;
	ig_spans_unref(s);
	return NULL;
}

/* Copy a span, whose rows are those from `row` on of all; RoPE turns its first one by `turned`. */
static struct ig_seq_span *add_span(struct ig_spans *s, const struct ig_span *from,
				    const int32_t *prompt, size_t row, int32_t turned)
{
	const size_t n = (size_t)from->n;
	int32_t *ids = s->numbers + row * (IG_ROPE_AXES + 1), *positions = ids + n;
	float *rows = s->rows + row * s->width;
	struct ig_seq_span *x = &s->list[s->n++];

	memcpy(rows, from->rows, n * s->width * sizeof *rows);
	memcpy(ids, prompt + from->first, n * sizeof *ids);
	if (from->positions)
		memcpy(positions, from->positions, n * IG_ROPE_AXES * sizeof *positions);
	*x = (struct ig_seq_span){ .first = from->first,
				   .end = from->first + from->n,
				   .base = turned,
				   .next = turned + n_positions(from),
				   .rows = rows,
				   .positions = from->positions ? positions : NULL,
				   .ids = ids,
				   .both_ways = from->both_ways };
	return x;
}

int ig_spans_create(const struct ig_engine_model *m, const int32_t *prompt, int32_t n_prompt,
		    const struct ig_span *spans, int32_t n, struct ig_spans **out,
		    struct ig_error *err)
{
	int32_t turned = 0, end = 0; /* of the token at `end`, by what RoPE turns it */
	struct ig_kv_namer *namer;
	size_t n_rows = 0, row = 0;
	struct ig_spans *s;
	int rc = check(m, n_prompt, spans, n, err);

	*out = NULL;
	if (rc || n < 1)
		return rc;
	for (int32_t i = 0; i < n; i++)
		n_rows += (size_t)spans[i].n;
	s = allocate((size_t)n, n_rows, m->width_outside);
	namer = ig_kv_namer_create();
	for (int32_t i = 0; s && namer && i < n && !rc; i++) {
		struct ig_kv_name name;
		struct ig_seq_span *x =
			add_span(s, &spans[i], prompt, row, turned + spans[i].first - end);
		turned = x->next;
		end = x->end;
		row += (size_t)spans[i].n;
		rc = name_span(namer, x, s->width, &name) && (x->id = id_of(&name)) ? 0 : -ENOMEM;
	}
	if (!s || !namer || rc) {
		ig_kv_namer_destroy(namer);
		ig_spans_unref(s);
		return ig_fail(err, -ENOMEM, "out of memory for %zu rows from outside", n_rows);
	}
	ig_kv_namer_destroy(namer);
	s->model = m->instance;
	s->n_prompt = n_prompt;
	*out = s;
	return 0;
}

struct ig_spans *ig_spans_ref(struct ig_spans *s)
{
	atomic_fetch_add(&s->n_refs, 1);
	return s;
}

void ig_spans_unref(struct ig_spans *s)
{
	if (!s || atomic_fetch_sub(&s->n_refs, 1) > 1)
		return;
	free(s->list);
	free(s->rows);
	free(s->numbers);
	free(s);
}

int ig_spans_check(const struct ig_gen_spec *spec, struct ig_error *err)
{
	const struct ig_spans *s = spec->spans;

	if (s && (s->model != spec->model->instance || s->n_prompt != spec->n_prompt))
		return ig_fail(err, -EINVAL,
			       "rows from outside are of another model or another prompt");
	return 0;
}

void ig_spans_mark(const struct ig_spans *s, int32_t *tokens)
{
	for (int32_t i = 0; s && i < s->n; i++)
		for (int32_t k = s->list[i].first; k < s->list[i].end; k++)
			tokens[k] = s->list[i].id;
}

/* ---- the engine's thread -------------------------------------------------------------------- */

/* The last span that begins before token i, or with it; NULL: none does. */
static const struct ig_seq_span *span_before(const struct ig_seq *s, int32_t i)
{
	int32_t low = 0, high = s->spans->n;

	while (low < high) {
		int32_t middle = low + (high - low) / 2;
		if (s->spans->list[middle].first <= i)
			low = middle + 1;
		else
			high = middle;
	}
	return low ? &s->spans->list[low - 1] : NULL;
}

/* The span that token i is in; NULL: none. */
static const struct ig_seq_span *span_of(const struct ig_seq *s, int32_t i)
{
	const struct ig_seq_span *x = s->spans ? span_before(s, i) : NULL;

	return x && i < x->end ? x : NULL;
}

int32_t ig_spans_outside(const struct ig_seq *s, int32_t n)
{
	const struct ig_seq_span *x = span_of(s, n);

	return x ? x->first : n;
}

int32_t ig_spans_whole_rows(const struct ig_seq *s, int32_t n, int32_t most)
{
	const int32_t done = ig_seq_done_then(s), end = ig_spans_outside(s, done + n);

	if (end == done + n || end > done)
		return end - done;
	n = span_of(s, done)->end - done;
	return n <= most ? n : 0;
}

int32_t ig_spans_before(const struct ig_seq *s, int32_t n)
{
	return s->spans && s->spans->list[0].first < n ? s->spans->list[0].first : n;
}

int32_t ig_spans_id(const struct ig_seq *s, int32_t i)
{
	const struct ig_seq_span *x = s->tokens[i] < 0 ? span_of(s, i) : NULL;

	return x ? x->ids[i - x->first] : s->tokens[i];
}

/* Row r of the step as if it were a text's: turned by its position and `more`. */
static void add_plain(struct ig_step_buffer *b, int32_t r, int32_t more)
{
	b->outside[r] = NULL;
	b->sees_to[r] = b->positions[r];
	for (int i = 0; i < IG_ROPE_AXES; i++)
		b->rope_positions[r * IG_ROPE_AXES + i] = b->positions[r] + more;
}

static void add_row(struct ig_step_buffer *b, const struct ig_seq *s, int32_t r)
{
	const int32_t at = b->positions[r];
	const struct ig_seq_span *x = span_before(s, at);
	const size_t width = s->spans->width;

	if (!x || at >= x->end) {
		add_plain(b, r, x ? x->next - x->end : 0);
		return;
	}
	add_plain(b, r, x->base - x->first);
	b->outside[r] = x->rows + (size_t)(at - x->first) * width;
	if (x->both_ways)
		b->sees_to[r] = x->end - 1;
	for (int i = 0; x->positions && i < IG_ROPE_AXES; i++)
		b->rope_positions[r * IG_ROPE_AXES + i] =
			x->base + x->positions[(at - x->first) * IG_ROPE_AXES + i];
}

void ig_spans_add_rows(struct ig_step_buffer *b, const struct ig_seq *s, int32_t first, int32_t n)
{
	struct ig_step *step = &b->step;

	if (!step->outside && !s->spans)
		return;
	for (int32_t r = step->outside ? first : 0; r < first; r++)
		add_plain(b, r, 0);
	for (int32_t r = first; r < first + n; r++) {
		if (s->spans)
			add_row(b, s, r);
		else
			add_plain(b, r, 0);
	}
	step->outside = b->outside;
	step->rope_positions = b->rope_positions;
	step->sees_to = b->sees_to;
}
