/*
 * convert.c: see convert.h.  A tensor is converted in chunks of some megabytes of output, a chunk
 * in units of rows that threads take one after another; the calling thread writes it when all are
 * done.  Sums of errors are stored for each unit and added in their order, so that they don't
 * depend on the number of threads.
 */
#include "model/quantize/convert.h"

#include "base/clock.h"
#include "base/machine.h"
#include "model/formats/gguf_write.h"
#include "model/quantize/quantize.h"
#include "model/tokenizer/keys.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK_BYTES (4u << 20) /* of what is written */
#define UNIT_VALUES 65536
#define MAX_THREADS 256

struct unit {
	double squares, errors;
	float worst;
	int rc; /* -ERANGE: of the value at row, col; -EINTR */
	int64_t row, col;
	float value;
};

struct worker {
	struct converter *c;
	pthread_t thread;
	uint8_t *raw;	   /* a unit's rows of the source, if they are converted */
	float *row, *back; /* one row; the same dequantised */
};

struct converter {
	const struct ig_checkpoint *in;
	const struct ig_convert_options *o;
	struct ig_gguf_writer *w;

	/* The current chunk: set by the calling thread while no unit is in progress. */
	const struct ig_checkpoint_tensor *t;
	uint32_t to;
	int64_t first, n_rows, unit_rows, n_units;
	uint8_t *out;	    /* [n_rows] of the output */
	struct unit *units; /* [n_units] */
	float *weights;	    /* of the tensor's errors, [dims[2]][n_cols]; NULL: all 1 */

	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t work, done;
	int64_t next, n_done; /* units taken, units finished */
	bool leave;

	struct worker *workers; /* the first is the calling thread */
	uint32_t n_workers, n_started;
	uint64_t done_bytes, total_bytes;
};

/* ---- a unit ------------------------------------------------------------------------------ */

static int convert_row(struct worker *w, const uint8_t *from, uint8_t *to, struct unit *u)
{
	const struct ig_checkpoint_tensor *t = w->c->t;
	int rc;

	const float *weights = w->c->weights;

	if (weights)
		weights += u->row / t->dims[1] % t->dims[2] * t->n_cols;
	ig_dtype_to_f32(t->dtype, from, w->row, t->n_cols);
	rc = ig_quantize_weighted(w->c->to, w->row, weights, t->n_cols, to, &u->col);
	if (rc) {
		u->value = rc == -ERANGE ? w->row[u->col] : 0;
		return rc;
	}
	ig_dtype_to_f32(w->c->to, to, w->back, t->n_cols);
	for (int64_t i = 0; i < t->n_cols; i++) {
		float e = fabsf(w->row[i] - w->back[i]);
		u->squares += (double)w->row[i] * w->row[i];
		u->errors += (double)e * e;
		u->worst = e > u->worst ? e : u->worst;
	}
	return 0;
}

static void convert_unit(struct worker *w, int64_t n)
{
	const struct converter *c = w->c;
	const struct ig_checkpoint_tensor *t = c->t;
	uint64_t from_bytes = ig_dtype_row_bytes(t->dtype, t->n_cols);
	uint64_t to_bytes = ig_dtype_row_bytes(c->to, t->n_cols);
	int64_t first = n * c->unit_rows, last = first + c->unit_rows;
	struct unit *u = &c->units[n];

	if (last > c->n_rows)
		last = c->n_rows;
	*u = (struct unit){ 0 };
	const uint8_t *from = ig_checkpoint_rows(c->in, t, c->first + first, last - first, w->raw);
	if (c->to == t->dtype) {
		memcpy(c->out + (uint64_t)first * to_bytes, from,
		       (uint64_t)(last - first) * to_bytes);
		return;
	}
	for (int64_t r = first; r < last && u->rc == 0; r++) {
		u->row = c->first + r;
		if (c->o->stop && *c->o->stop)
			u->rc = -EINTR;
		else
			u->rc = convert_row(w, from + (uint64_t)(r - first) * from_bytes,
					    c->out + (uint64_t)r * to_bytes, u);
	}
}

/* Take units until none is left. */
static void work_on(struct worker *w)
{
	struct converter *c = w->c;

	pthread_mutex_lock(&c->lock);
	while (c->next < c->n_units) {
		int64_t n = c->next++;
		pthread_mutex_unlock(&c->lock);
		convert_unit(w, n);
		pthread_mutex_lock(&c->lock);
		if (++c->n_done == c->n_units)
			pthread_cond_signal(&c->done);
	}
	pthread_mutex_unlock(&c->lock);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct converter *c = w->c;

	pthread_mutex_lock(&c->lock);
	while (!c->leave) {
		if (c->next >= c->n_units) {
			pthread_cond_wait(&c->work, &c->lock);
			continue;
		}
		pthread_mutex_unlock(&c->lock);
		work_on(w);
		pthread_mutex_lock(&c->lock);
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

/* ---- a tensor ---------------------------------------------------------------------------- */

static int unit_error(const struct converter *c, const struct unit *u, struct ig_error *err)
{
	if (u->rc == -EINTR)
		return ig_fail(err, -EINTR, "interrupted");
	if (u->rc == -ERANGE)
		return ig_fail(err, -ERANGE,
			       "%s: tensor '%s', row %" PRId64 ", column %" PRId64
			       " is %g, which %s can't hold",
			       ig_checkpoint_label(c->in), c->t->name, u->row, u->col,
			       (double)u->value, ig_dtype_name(c->to));
	return ig_fail(err, u->rc, "%s: tensor '%s' can't be written as %s",
		       ig_checkpoint_label(c->in), c->t->name, ig_dtype_name(c->to));
}

/* Convert c->n_rows rows from c->first on into c->out. */
static int run_chunk(struct converter *c, struct ig_converted *r, struct ig_error *err)
{
	pthread_mutex_lock(&c->lock);
	c->n_units = (c->n_rows + c->unit_rows - 1) / c->unit_rows;
	c->next = c->n_done = 0;
	pthread_cond_broadcast(&c->work);
	pthread_mutex_unlock(&c->lock);
	work_on(&c->workers[0]);
	pthread_mutex_lock(&c->lock);
	while (c->n_done < c->n_units)
		pthread_cond_wait(&c->done, &c->lock);
	pthread_mutex_unlock(&c->lock);
	for (int64_t i = 0; i < c->n_units; i++) {
		const struct unit *u = &c->units[i];
		if (u->rc)
			return unit_error(c, u, err);
		r->squares += u->squares;
		r->errors += u->errors;
		r->worst = u->worst > r->worst ? u->worst : r->worst;
	}
	return 0;
}

static int no_memory(const struct converter *c, struct ig_error *err)
{
	return ig_fail(err, -ENOMEM, "%s: tensor '%s': out of memory", ig_checkpoint_label(c->in),
		       c->t->name);
}

static void free_rows(struct converter *c)
{
	for (uint32_t i = 0; i < c->n_workers; i++) {
		free(c->workers[i].raw);
		free(c->workers[i].row);
		free(c->workers[i].back);
		c->workers[i].raw = NULL;
		c->workers[i].row = c->workers[i].back = NULL;
	}
	free(c->out);
	free(c->units);
	free(c->weights);
	c->out = NULL;
	c->units = NULL;
	c->weights = NULL;
}

/* The weights of c->t, if it is quantised and the importance matrix has it. */
static int take_weights(struct converter *c, struct ig_converted *r, struct ig_error *err)
{
	const struct ig_checkpoint_tensor *t = c->t;

	if (!c->o->imatrix || c->to == t->dtype || !ig_quant_type(c->to))
		return 0;
	c->weights = malloc((size_t)(t->dims[2] * t->n_cols) * sizeof *c->weights);
	if (!c->weights)
		return no_memory(c, err);
	r->weighted = ig_imatrix_weights(c->o->imatrix, t, c->weights);
	if (!r->weighted) {
		free(c->weights);
		c->weights = NULL;
	}
	return 0;
}

static int convert_tensor(struct converter *c, struct ig_converted *r, struct ig_error *err)
{
	const struct ig_checkpoint_tensor *t = c->t;
	uint64_t to_bytes = ig_dtype_row_bytes(c->to, t->n_cols);
	int64_t chunk_rows = (int64_t)(CHUNK_BYTES / to_bytes);
	int rc = 0;

	c->unit_rows = UNIT_VALUES / t->n_cols;
	if (c->unit_rows < 1)
		c->unit_rows = 1;
	/* At least two units for each thread. */
	if (chunk_rows < 2 * c->unit_rows * c->n_workers)
		chunk_rows = 2 * c->unit_rows * c->n_workers;
	if (chunk_rows > t->n_rows)
		chunk_rows = t->n_rows;

	c->out = malloc((uint64_t)chunk_rows * to_bytes);
	c->units = calloc((size_t)(chunk_rows / c->unit_rows + 1), sizeof *c->units);
	if (!c->out || !c->units)
		rc = no_memory(c, err);
	else
		rc = take_weights(c, r, err);
	for (uint32_t i = 0; i < c->n_workers && rc == 0; i++) {
		struct worker *w = &c->workers[i];
		w->row = malloc((size_t)t->n_cols * sizeof *w->row);
		w->back = malloc((size_t)t->n_cols * sizeof *w->back);
		if (!t->data)
			w->raw = malloc((uint64_t)c->unit_rows *
					ig_dtype_row_bytes(t->dtype, t->n_cols));
		if (!w->row || !w->back || (!t->data && !w->raw))
			rc = no_memory(c, err);
	}
	for (int64_t at = 0; at < t->n_rows && rc == 0; at += chunk_rows) {
		c->first = at;
		c->n_rows = t->n_rows - at < chunk_rows ? t->n_rows - at : chunk_rows;
		if (c->o->stop && *c->o->stop)
			rc = ig_fail(err, -EINTR, "interrupted");
		else if ((rc = run_chunk(c, r, err)) == 0)
			rc = ig_gguf_write(c->w, c->out, (uint64_t)c->n_rows * to_bytes, err);
		ig_checkpoint_drop_tensor(c->in, t); /* one may be larger than the memory */
		c->done_bytes += (uint64_t)c->n_rows * ig_dtype_row_bytes(t->dtype, t->n_cols);
		if (rc == 0 && c->o->progress)
			c->o->progress(c->o->ctx, c->done_bytes, c->total_bytes);
	}
	free_rows(c);
	return rc;
}

/* ---- the file ---------------------------------------------------------------------------- */

/* Keys about how the source was quantised or laid out, which do not apply to the copy. */
static bool is_of_source(const struct ig_checkpoint_key *k)
{
	static const char *const names[] = { "general.file_type", "general.quantization_version",
					     "general.alignment", NULL };
	static const char *const families[] = { "quantize.imatrix.", "split.", NULL };

	for (const char *const *n = names; *n; n++)
		if (strlen(*n) == k->name_len && !memcmp(*n, k->name, k->name_len))
			return true;
	for (const char *const *n = families; *n; n++)
		if (strlen(*n) <= k->name_len && !memcmp(*n, k->name, strlen(*n)))
			return true;
	return false;
}

static void copy_keys(struct converter *c, const struct ig_checkpoint *from)
{
	struct ig_checkpoint_key k;

	for (uint64_t i = 0; i < ig_checkpoint_n_keys(from); i++) {
		ig_checkpoint_key(from, i, &k);
		if (!is_of_source(&k))
			ig_gguf_put(c->w, k.name, k.name_len, k.type, k.value, k.n_bytes);
	}
}

/* BERT and its kin see a text in both directions, which config.json need not say, and readers of the file take as
 * a key. */
static void put_causal(struct converter *c)
{
	const char *arch;
	size_t n_arch;
	const char causal = 0;
	char key[96];

	if (ig_checkpoint_str(c->in, "general.architecture", &arch, &n_arch, NULL) || n_arch > 32)
		return;
	snprintf(key, sizeof key, "%.*s.attention.causal", (int)n_arch, arch);
	if (strstr(key, "bert"))
		ig_gguf_put(c->w, key, strlen(key), IG_GGUF_BOOL, &causal, 1);
}

/* Tokenizer keys of a folder, which has them in separate files. */
static int put_tokenizer(struct converter *c, struct ig_convert_report *report,
			 struct ig_error *err)
{
	struct ig_tokenizer_keys keys;
	struct ig_error inside = { 0 };
	const char *s;
	size_t len;
	int rc;

	if (ig_checkpoint_str(c->in, "tokenizer.ggml.model", &s, &len, NULL) != -ENOENT)
		return 0;
	rc = ig_tokenizer_keys_make(c->in, &keys, &inside);
	if (rc == -ENOENT) {
		report->no_tokenizer = true;
		return 0;
	}
	if (rc) {
		*err = inside;
		return rc;
	}
	copy_keys(c, keys.file);
	put_causal(c);
	ig_tokenizer_keys_finish(&keys);
	return 0;
}

/* Where the weights of errors came from, by the usual keys. */
static void put_imatrix(struct converter *c)
{
	const struct ig_imatrix *m = c->o->imatrix;
	const char *s = ig_imatrix_label(m);
	size_t len;

	ig_gguf_put_str(c->w, "quantize.imatrix.file", s, strlen(s));
	if (ig_imatrix_dataset(m, &s, &len))
		ig_gguf_put_str(c->w, "quantize.imatrix.dataset", s, len);
	ig_gguf_put_u32(c->w, "quantize.imatrix.entries_count", ig_imatrix_n_entries(m));
	if (ig_imatrix_n_chunks(m))
		ig_gguf_put_u32(c->w, "quantize.imatrix.chunks_count", ig_imatrix_n_chunks(m));
}

static int put_keys(struct converter *c, struct ig_convert_report *report, struct ig_error *err)
{
	copy_keys(c, c->in);
	ig_gguf_put_u32(c->w, "general.file_type", c->o->mix->file_type);
	ig_gguf_put_u32(c->w, "general.quantization_version", 2);
	if (c->o->imatrix)
		put_imatrix(c);
	return put_tokenizer(c, report, err);
}

static int put_entries(struct converter *c, struct ig_convert_report *report, struct ig_error *err)
{
	struct ig_mix_model model;
	int rc;

	ig_mix_model_init(&model, c->in);
	for (size_t i = 0; i < report->n_tensors; i++) {
		const struct ig_checkpoint_tensor *t = ig_checkpoint_tensor(c->in, i);
		struct ig_converted *r = &report->tensors[i];

		*r = (struct ig_converted){
			.name = t->name,
			.from = t->dtype,
			.to = ig_mix_choose(c->o->mix, &model, t),
			.bytes_before = t->n_bytes,
			.n_values = (uint64_t)t->n_rows * (uint64_t)t->n_cols,
		};
		r->bytes_after = ig_dtype_row_bytes(r->to, t->n_cols) * (uint64_t)t->n_rows;
		c->total_bytes += t->n_bytes;
		if ((rc = ig_gguf_add_tensor(c->w, t->name, t->dims, t->n_dims, r->to, err)))
			return rc;
	}
	return 0;
}

static int start_workers(struct converter *c, struct ig_error *err)
{
	uint32_t n = c->o->n_threads ? c->o->n_threads : ig_machine_cpus();

	c->n_workers = n > MAX_THREADS ? MAX_THREADS : n;
	c->workers = calloc(c->n_workers, sizeof *c->workers);
	if (!c->workers)
		return ig_fail(err, -ENOMEM, "out of memory");
	for (uint32_t i = 0; i < c->n_workers; i++)
		c->workers[i].c = c;
	for (c->n_started = 1; c->n_started < c->n_workers; c->n_started++) {
		struct worker *w = &c->workers[c->n_started];
		int rc = pthread_create(&w->thread, NULL, worker_main, w);
		if (rc)
			return ig_fail(err, -rc, "no thread can be started: %s", strerror(rc));
	}
	return 0;
}

static void stop_workers(struct converter *c)
{
	pthread_mutex_lock(&c->lock);
	c->leave = true;
	pthread_cond_broadcast(&c->work);
	pthread_mutex_unlock(&c->lock);
	for (uint32_t i = 1; i < c->n_started; i++)
		pthread_join(c->workers[i].thread, NULL);
	free(c->workers);
}

int ig_convert(const struct ig_checkpoint *in, const char *path, const struct ig_convert_options *o,
	       struct ig_convert_report *report, struct ig_error *err)
{
	struct converter c = { .in = in,
			       .o = o,
			       .lock = PTHREAD_MUTEX_INITIALIZER,
			       .work = PTHREAD_COND_INITIALIZER,
			       .done = PTHREAD_COND_INITIALIZER };
	int64_t began = ig_now_ns();
	int rc;

	*report = (struct ig_convert_report){ .n_tensors = ig_checkpoint_n_tensors(in) };
	if (!report->n_tensors)
		return ig_fail(err, -EINVAL, "%s: has no tensors", ig_checkpoint_label(in));
	report->tensors = calloc(report->n_tensors, sizeof *report->tensors);
	if (!report->tensors)
		return ig_fail(err, -ENOMEM, "%s: out of memory", ig_checkpoint_label(in));
	if ((o->imatrix && (rc = ig_imatrix_check(o->imatrix, in, err))) ||
	    (rc = ig_gguf_create(path, o->replace, &c.w, err)) ||
	    (rc = put_keys(&c, report, err)) || (rc = put_entries(&c, report, err)) ||
	    (rc = ig_gguf_begin(c.w, err)) || (rc = start_workers(&c, err)))
		goto out;
	for (size_t i = 0; i < report->n_tensors; i++) {
		c.t = ig_checkpoint_tensor(in, i);
		c.to = report->tensors[i].to;
		if ((rc = convert_tensor(&c, &report->tensors[i], err)))
			goto out;
	}
	rc = ig_gguf_finish(c.w, err);
	report->file_bytes = ig_gguf_file_bytes(c.w);
out:
	stop_workers(&c);
	ig_gguf_close(c.w);
	report->seconds = (double)(ig_now_ns() - began) / 1e9;
	if (rc)
		ig_convert_report_finish(report);
	return rc;
}

void ig_convert_report_finish(struct ig_convert_report *r)
{
	free(r->tensors);
	*r = (struct ig_convert_report){ 0 };
}
