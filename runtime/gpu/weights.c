/*
 * weights.c: a model's weights on the device, in the layout of the file or in tiles.  A device that
 * can use host memory gets views of the mapped file: whole pages, split between tensors where a
 * view would exceed the largest buffer.  Any other device gets copies, in chunks, and the file's
 * pages are dropped from memory.  Adapters' matrices, which are not in the file, are always copied.
 */
#include "model/formats/checkpoint.h"
#include "runtime/gpu/gpu_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TENSOR_ALIGNMENT 32 /* as gpu.h promises */
#define COPY_ALIGNMENT 256
#define COPY_BYTES ((uint64_t)16 << 20)	  /* of one write */
#define REPACK_BYTES ((uint64_t)32 << 20) /* of rows that are repacked at once */
#define GAP_BYTES ((uint64_t)1 << 20)	  /* a view ends before so many bytes of unused tensors */

int ig_gpu_weights_init(struct ig_gpu_weights *w, const struct ig_plan *plan, struct ig_error *err)
{
	*w = (struct ig_gpu_weights){ .plan = plan };
	w->weights = malloc((plan->n_weights + 1) * sizeof *w->weights);
	if (!w->weights)
		return ig_fail(err, -ENOMEM, "no memory for a table of %u weights",
			       plan->n_weights);
	for (uint32_t i = 0; i < plan->n_weights; i++)
		w->weights[i] =
			(struct ig_gpu_weight){ .buffer = -1, .n_bytes = plan->weights[i].n_bytes };
	return 0;
}

/* ---- placement -------------------------------------------------------------------- */

static uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

struct place {
	const uint8_t *data;
	uint64_t n_bytes;
	uint32_t weight;
};

static int by_address(const void *a, const void *b)
{
	const struct place *x = a, *y = b;
	if (x->data != y->data)
		return x->data < y->data ? -1 : 1;
	return x->weight < y->weight ? -1 : 1;
}

static struct ig_gpu_view *add_view(struct ig_gpu_weights *w, const uint8_t *base)
{
	struct ig_gpu_view *p = realloc(w->views, (w->n_views + 1) * sizeof *p);
	if (!p)
		return NULL;
	w->views = p;
	p[w->n_views] = (struct ig_gpu_view){ .base = base };
	return &p[w->n_views++];
}

/* Whether views can have all used weights. */
static bool can_wrap(const struct ig_gpu_weights *w, const struct ig_gpu_device *d,
		     const struct place *p, uint32_t n)
{
	const void *map;
	uint64_t size;

	if (!d->class->wrap || !ig_checkpoint_map(w->plan->file, &map, &size))
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (!p[i].data || (uintptr_t)p[i].data % TENSOR_ALIGNMENT ||
		    w->weights[p[i].weight].layout != IG_GPU_ROWS)
			return false;
	return true;
}

static int place_views(struct ig_gpu_weights *w, const struct place *p, uint32_t n, uint64_t max)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct ig_gpu_view *v = NULL;

	max -= max % page;
	for (uint32_t i = 0; i < n; i++) {
		const uint8_t *begin = p[i].data - (uintptr_t)p[i].data % page;
		uint64_t end =
			v ? round_up((uint64_t)(p[i].data - v->base) + p[i].n_bytes, page) : 0;
		if (!v || end > max ||
		    (begin > v->base + v->n_bytes &&
		     (uint64_t)(begin - v->base) - v->n_bytes > GAP_BYTES)) {
			v = add_view(w, begin);
			if (!v)
				return -ENOMEM;
			end = round_up((uint64_t)(p[i].data - begin) + p[i].n_bytes, page);
		}
		if (end > max)
			return -ENOTSUP;
		if (v->n_bytes < end)
			v->n_bytes = end;
		w->weights[p[i].weight].view = w->n_views - 1;
		w->weights[p[i].weight].offset = (uint64_t)(p[i].data - v->base);
	}
	return 0;
}

static int place_copies(struct ig_gpu_weights *w, const struct place *p, uint32_t n, uint64_t max)
{
	struct ig_gpu_view *v = NULL;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t bytes = round_up(p[i].n_bytes, COPY_ALIGNMENT);
		if (bytes > max)
			return -ENOTSUP;
		if (!v || v->n_bytes + bytes > max) {
			v = add_view(w, NULL);
			if (!v)
				return -ENOMEM;
		}
		w->weights[p[i].weight].view = w->n_views - 1;
		w->weights[p[i].weight].offset = v->n_bytes;
		v->n_bytes += bytes;
	}
	return 0;
}

int ig_gpu_weights_place(struct ig_gpu_weights *w, struct ig_gpu_device *d, struct ig_error *err)
{
	uint64_t max = d->class->facts(d)->max_buffer_bytes;
	struct place *p = malloc((w->plan->n_weights + 1) * sizeof *p);
	const struct ig_plan_weight *largest = NULL;
	uint32_t n = 0, n_file;
	int rc = -ENOMEM;

	if (!p)
		return ig_fail(err, -ENOMEM, "no memory to place %u weights", w->plan->n_weights);
	for (int own = 0; own < 2; own++) {
		n_file = own ? n : 0; /* the file's come first */
		for (uint32_t i = 0; i < w->plan->n_weights; i++) {
			const struct ig_plan_weight *pw = &w->plan->weights[i];
			if (w->weights[i].buffer < 0 || pw->of_adapters != own)
				continue;
			p[n++] = (struct place){ pw->tensor->data, w->weights[i].n_bytes, i };
			if (!largest || largest->n_bytes < pw->n_bytes)
				largest = pw;
		}
	}
	qsort(p, n_file, sizeof *p, by_address);
	rc = can_wrap(w, d, p, n_file) ? place_views(w, p, n_file, max) :
					 place_copies(w, p, n_file, max);
	if (!rc)
		rc = place_copies(w, p + n_file, n - n_file, max);
	if (rc == -ENOTSUP)
		ig_fail(err, rc,
			"tensor \"%s\" has %" PRIu64
			" bytes, a buffer of the device at most %" PRIu64,
			largest->name, largest->n_bytes, max);
	else if (rc)
		ig_fail(err, rc, "no memory to place %u weights", n);
	for (uint32_t i = 0; i < w->n_views; i++)
		w->n_bytes += w->views[i].n_bytes;
	free(p);
	return rc;
}

/* ---- loading ---------------------------------------------------------------------- */

/* Copy a tensor that is converted while it is read, some rows at a time. */
static int copy_converted(struct ig_gpu_weights *w, struct ig_gpu_device *d, uint32_t i,
			  struct ig_error *err)
{
	const struct ig_plan_weight *pw = &w->plan->weights[i];
	const struct ig_gpu_weight *to = &w->weights[i];
	uint64_t row_bytes = pw->n_bytes / (uint64_t)pw->shape.n_rows;
	int64_t at_once = row_bytes < COPY_BYTES ? (int64_t)(COPY_BYTES / row_bytes) : 1;
	int rc = 0;

	if (at_once > pw->shape.n_rows)
		at_once = pw->shape.n_rows;
	uint8_t *buf = malloc((uint64_t)at_once * row_bytes);
	if (!buf)
		return ig_fail(err, -ENOMEM, "no memory to copy tensor \"%s\"", pw->name);
	for (int64_t row = 0; !rc && row < pw->shape.n_rows; row += at_once) {
		int64_t n = pw->shape.n_rows - row < at_once ? pw->shape.n_rows - row : at_once;
		const void *src = ig_checkpoint_rows(w->plan->file, pw->tensor, row, n, buf);
		rc = d->class->write(d, w->views[to->view].buffer,
				     to->offset + (uint64_t)row * row_bytes, src,
				     (uint64_t)n * row_bytes, err);
	}
	ig_checkpoint_drop_tensor(w->plan->file, pw->tensor);
	free(buf);
	return rc;
}

static int copy_weight(struct ig_gpu_weights *w, struct ig_gpu_device *d, uint32_t i,
		       struct ig_error *err)
{
	const struct ig_plan_weight *pw = &w->plan->weights[i];
	const struct ig_gpu_weight *to = &w->weights[i];
	const uint8_t *src = pw->tensor->data;
	int rc = 0;

	if (!src)
		return copy_converted(w, d, i, err);
	for (uint64_t at = 0; !rc && at < pw->n_bytes; at += COPY_BYTES) {
		uint64_t n = pw->n_bytes - at < COPY_BYTES ? pw->n_bytes - at : COPY_BYTES;
		rc = d->class->write(d, w->views[to->view].buffer, to->offset + at, src + at, n,
				     err);
		if (!pw->of_adapters)
			ig_checkpoint_drop_pages(w->plan->file, src + at, n);
	}
	return rc;
}

/* The rows of a tensor that are repacked at once: as many as the staging buffer has space for, a
 * multiple of 16 (at least 16). */
static int64_t rows_at_once(const struct ig_plan_weight *pw)
{
	int64_t n = (int64_t)(REPACK_BYTES / (pw->n_bytes / (uint64_t)pw->shape.n_rows)) / 16 * 16;

	return n < 16 ? 16 : n;
}

static uint64_t staging_bytes(const struct ig_gpu_weights *w)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < w->plan->n_weights; i++) {
		const struct ig_plan_weight *pw = &w->plan->weights[i];
		if (w->weights[i].buffer < 0 || w->weights[i].layout != IG_GPU_TILES)
			continue;
		int64_t n = rows_at_once(pw);
		uint64_t row_bytes = pw->n_bytes / (uint64_t)pw->shape.n_rows;
		uint64_t need = (uint64_t)(n < pw->shape.n_rows ? n : pw->shape.n_rows) * row_bytes;
		most = most > need ? most : need;
	}
	return most;
}

/* Copy rows to the staging buffer and repack them from there. */
static int copy_tiles(struct ig_gpu_weights *w, struct ig_gpu_device *d, uint32_t i,
		      struct ig_gpu_buffer *staging, struct ig_error *err)
{
	const struct ig_plan_weight *pw = &w->plan->weights[i];
	const struct ig_gpu_weight *to = &w->weights[i];
	const uint64_t row_bytes = pw->n_bytes / (uint64_t)pw->shape.n_rows;
	const int64_t bands = (pw->shape.n_rows + 15) / 16, at_once = rows_at_once(pw);
	uint8_t *buf = NULL;
	int rc = 0;

	if (!pw->tensor->data) {
		buf = malloc((uint64_t)(at_once < pw->shape.n_rows ? at_once : pw->shape.n_rows) *
			     row_bytes);
		if (!buf)
			return ig_fail(err, -ENOMEM, "no memory to copy tensor \"%s\"", pw->name);
	}
	for (int64_t row = 0; !rc && row < pw->shape.n_rows; row += at_once) {
		int64_t n = pw->shape.n_rows - row < at_once ? pw->shape.n_rows - row : at_once;
		const uint8_t *src =
			buf ? ig_checkpoint_rows(w->plan->file, pw->tensor, row, n, buf) :
			      (const uint8_t *)pw->tensor->data + (uint64_t)row * row_bytes;
		uint64_t at = to->offset + to->n_bytes / (uint64_t)bands * (uint64_t)(row / 16);
		rc = d->class->write(d, staging, 0, src, (uint64_t)n * row_bytes, err);
		if (!buf)
			ig_checkpoint_drop_pages(w->plan->file, src, (uint64_t)n * row_bytes);
		if (!rc)
			rc = ig_gpu_repack(d, pw->shape.dtype, n, pw->shape.n_cols,
					   (struct ig_gpu_place){ staging, 0 },
					   (struct ig_gpu_place){ w->views[to->view].buffer, at },
					   err);
	}
	if (buf)
		ig_checkpoint_drop_tensor(w->plan->file, pw->tensor);
	free(buf);
	return rc;
}

int ig_gpu_weights_load(struct ig_gpu_weights *w, struct ig_gpu_device *d, struct ig_error *err)
{
	const uint64_t staged = staging_bytes(w);
	struct ig_gpu_buffer *staging = NULL;
	int rc = 0;

	for (uint32_t i = 0; i < w->n_views && !rc; i++) {
		struct ig_gpu_view *v = &w->views[i];
		rc = v->base ?
			     d->class->wrap(d, v->base, v->n_bytes, &v->buffer, err) :
			     d->class->alloc(d, v->n_bytes, IG_GPU_MEMORY_PRIVATE, &v->buffer, err);
	}
	if (!rc && staged)
		rc = d->class->alloc(d, staged, IG_GPU_MEMORY_PRIVATE, &staging, err);
	for (uint32_t i = 0; i < w->plan->n_weights && !rc; i++)
		if (w->weights[i].buffer >= 0 && !w->views[w->weights[i].view].base)
			rc = w->weights[i].layout == IG_GPU_TILES ?
				     copy_tiles(w, d, i, staging, err) :
				     copy_weight(w, d, i, err);
	d->class->free(d, staging);
	return rc;
}

void ig_gpu_weights_finish(struct ig_gpu_weights *w, struct ig_gpu_device *d)
{
	for (uint32_t i = 0; i < w->n_views; i++)
		d->class->free(d, w->views[i].buffer);
	free(w->views);
	free(w->weights);
	memset(w, 0, sizeof *w);
}
