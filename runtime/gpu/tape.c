/*
 * tape.c: see tape.h.  Dispatches are checked when they are recorded, so that a mistake in an op's
 * lowering is an error with the kernel's name instead of a fault on a device.  Closing sets the
 * barriers: a new phase starts at a dispatch that conflicts with another one of the same phase,
 * which for a fixed order is the smallest number of barriers.  Then scratch memory is placed: only
 * buffers without a common phase share it, so sharing costs no barrier.
 */
#include "runtime/gpu/tape.h"
#include "base/array.h"
#include "shaders/args.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 256 /* of buffers in the scratch and the constants */
#define MAX_NAME 127
/* Limits far beyond any model, and so small that no product below overflows. */
#define MAX_BYTES ((uint64_t)1 << 48)
#define MAX_DISPATCHES (1u << 20)
#define MAX_EXTENT (1u << 24) /* mul, div and times of a grid */

static uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

/* ---- errors ---------------------------------------------------------------------- */

/* Set the tape's error, unless there is one. */
__attribute__((format(printf, 3, 4))) static int fail(struct ig_gpu_tape *t, int code,
						      const char *fmt, ...)
{
	char what[400];
	va_list ap;

	if (t->status)
		return t->status;
	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	t->status = code;
	return t->node == UINT32_MAX ? ig_fail(&t->error, code, "%s", what) :
				       ig_fail(&t->error, code, "node %u: %s", t->node, what);
}

static int no_memory(struct ig_gpu_tape *t) { return fail(t, -ENOMEM, "no memory for the tape"); }

/* ---- creation --------------------------------------------------------------------- */

int ig_gpu_tape_create(const struct ig_gpu_facts *facts, uint32_t max_logit_rows,
		       struct ig_gpu_tape **out)
{
	struct ig_gpu_tape *t = calloc(1, sizeof *t);

	*out = t;
	if (!t)
		return -ENOMEM;
	t->max_logit_rows = max_logit_rows;
	t->ids = t->logits = -1;
	t->node = UINT32_MAX;
	t->max_threads = facts->max_threads;
	t->max_threadgroup_bytes = facts->max_threadgroup_bytes;
	return 0;
}

void ig_gpu_tape_destroy(struct ig_gpu_tape *t)
{
	if (!t)
		return;
	for (uint32_t i = 0; i < t->n_dispatches; i++) {
		free((void *)t->dispatches[i].d.kernel);
		free((void *)t->dispatches[i].d.args);
	}
	free(t->dispatches);
	free(t->buffers);
	free(t->constants);
	free(t);
}

/* A new buffer's number, or -1 with the tape's status set. */
static int32_t add_buffer(struct ig_gpu_tape *t, uint32_t kind, uint64_t n_bytes)
{
	if (t->status)
		return -1;
	if (t->closed) {
		fail(t, -EINVAL, "a buffer after the tape was closed");
		return -1;
	}
	if (n_bytes == 0 || n_bytes > MAX_BYTES) {
		fail(t, -EINVAL, "a buffer of %" PRIu64 " bytes", n_bytes);
		return -1;
	}
	if (!ig_array_grow(t->buffers, &t->cap_buffers, t->n_buffers)) {
		no_memory(t);
		return -1;
	}
	t->buffers[t->n_buffers] = (struct ig_gpu_tape_buffer){ .kind = kind,
								.n_bytes = n_bytes,
								.first = UINT32_MAX };
	return (int32_t)t->n_buffers++;
}

static int set_ref(struct ig_gpu_tape *t, int32_t buffer, struct ig_gpu_ref *ref)
{
	*ref = (struct ig_gpu_ref){ .buffer = buffer };
	return buffer < 0 ? t->status : 0;
}

int ig_gpu_tape_value(struct ig_gpu_tape *t, uint32_t dtype, int64_t n_cols, uint32_t row_class,
		      uint32_t max_rows, struct ig_gpu_tensor *out)
{
	uint64_t element = dtype == IG_F32 ? 4 : 2;

	*out = (struct ig_gpu_tensor){ .ref.buffer = -1 };
	if (dtype != IG_F32 && dtype != IG_F16 && dtype != IG_BF16)
		return fail(t, -EINVAL, "a value of element type %u", dtype);
	if (n_cols < 1 || (uint64_t)n_cols > UINT32_MAX || !max_rows)
		return fail(t, -EINVAL, "a value of %u rows of %lld", max_rows, (long long)n_cols);
	uint64_t stride = round_up((uint64_t)n_cols * element, 64);
	int32_t b = add_buffer(t, IG_GPU_BUFFER_SCRATCH, stride * max_rows);
	if (b < 0)
		return t->status;
	t->buffers[b].row_class = row_class;
	t->buffers[b].row_bytes = stride;
	*out = (struct ig_gpu_tensor){ .ref.buffer = b,
				       .n_cols = n_cols,
				       .row_stride = stride,
				       .dtype = dtype,
				       .row_class = row_class };
	return 0;
}

int ig_gpu_tape_weight(struct ig_gpu_tape *t, uint64_t n_bytes, struct ig_gpu_ref *out)
{
	return set_ref(t, add_buffer(t, IG_GPU_BUFFER_WEIGHTS, n_bytes), out);
}

/* ---- functions for ops ------------------------------------------------------------ */

static int host_scratch(struct ig_gpu_tape *t, uint64_t n_bytes, struct ig_gpu_ref *ref)
{
	return set_ref(t, add_buffer(t, IG_GPU_BUFFER_SCRATCH, n_bytes), ref);
}

static int host_constant(struct ig_gpu_tape *t, const void *data, uint64_t n_bytes,
			 struct ig_gpu_ref *ref)
{
	uint64_t at = round_up(t->n_constant_bytes, ALIGNMENT);
	int32_t b = add_buffer(t, IG_GPU_BUFFER_CONSTANT, n_bytes);

	if (b < 0)
		return set_ref(t, b, ref);
	if (!ig_array_grow(t->constants, &t->cap_constant_bytes, at + n_bytes - 1)) {
		no_memory(t);
		return set_ref(t, -1, ref);
	}
	memset(t->constants + t->n_constant_bytes, 0, at - t->n_constant_bytes);
	memcpy(t->constants + at, data, n_bytes);
	t->n_constant_bytes = at + n_bytes;
	t->buffers[b].offset = at;
	return set_ref(t, b, ref);
}

static int host_ids(struct ig_gpu_tape *t, struct ig_gpu_ref *ref)
{
	if (t->ids < 0)
		t->ids = add_buffer(t, IG_GPU_BUFFER_IDS,
				    ig_gpu_tape_slot_ids(t) * IG_STEPS_IN_FLIGHT * 4);
	return set_ref(t, t->ids, ref);
}

static int host_logits(struct ig_gpu_tape *t, int64_t n_vocab, struct ig_gpu_ref *ref)
{
	if (n_vocab < 1 || n_vocab > INT32_MAX || (t->n_vocab && t->n_vocab != n_vocab)) {
		*ref = (struct ig_gpu_ref){ .buffer = -1 };
		return fail(t, -EINVAL, "logits of %lld tokens%s", (long long)n_vocab,
			    t->n_vocab ? ", and of another number before" : "");
	}
	if (t->logits < 0) {
		t->n_vocab = n_vocab;
		t->logits = add_buffer(t, IG_GPU_BUFFER_LOGITS, ig_gpu_tape_logits_bytes(t));
		t->n_vocab = t->logits < 0 ? 0 : n_vocab;
	}
	return set_ref(t, t->logits, ref);
}

static int host_kv(struct ig_gpu_tape *t, uint32_t group, uint32_t layer, struct ig_gpu_ref *ref)
{
	for (uint32_t i = t->n_buffers; i-- > 0;)
		if (t->buffers[i].kind == IG_GPU_BUFFER_KV && t->buffers[i].group == group &&
		    t->buffers[i].layer == layer)
			return set_ref(t, (int32_t)i, ref);
	int32_t b = add_buffer(t, IG_GPU_BUFFER_KV, 1);
	if (b >= 0) {
		t->buffers[b].group = group;
		t->buffers[b].layer = layer;
	}
	return set_ref(t, b, ref);
}

/* ---- a dispatch ------------------------------------------------------------------- */

static int check_bind(struct ig_gpu_tape *t, const struct ig_gpu_dispatch *d, uint32_t i)
{
	const struct ig_gpu_bind *b = &d->bind[i];
	uint32_t known = IG_GPU_READ | IG_GPU_WRITE | IG_GPU_TOUCH;

	if (b->ref.buffer == -1)
		return 0;
	if (b->ref.buffer < 0 || (uint32_t)b->ref.buffer >= t->n_buffers)
		return fail(t, -EINVAL, "kernel %s: operand %u is buffer %d of %u", d->kernel, i,
			    b->ref.buffer, t->n_buffers);
	if (!(b->access & (IG_GPU_READ | IG_GPU_WRITE)) || (b->access & ~known))
		return fail(t, -EINVAL, "kernel %s: operand %u has access %#x", d->kernel, i,
			    b->access);
	const struct ig_gpu_tape_buffer *buffer = &t->buffers[b->ref.buffer];
	if (buffer->kind == IG_GPU_BUFFER_KV)
		return b->access & IG_GPU_TOUCH ?
			       0 :
			       fail(t, -EINVAL, "kernel %s: operand %u: the cache can't be bound",
				    d->kernel, i);
	if ((b->access & IG_GPU_WRITE) &&
	    (buffer->kind == IG_GPU_BUFFER_WEIGHTS || buffer->kind == IG_GPU_BUFFER_CONSTANT))
		return fail(t, -EINVAL,
			    "kernel %s: operand %u: weights and constants can't be written",
			    d->kernel, i);
	uint64_t size = buffer->row_bytes ? buffer->row_bytes : buffer->n_bytes;
	if (!b->n_bytes || b->ref.offset > size || b->n_bytes > size - b->ref.offset)
		return fail(t, -EINVAL,
			    "kernel %s: operand %u: %" PRIu64 " bytes at %" PRIu64 " of %" PRIu64
			    "%s",
			    d->kernel, i, b->n_bytes, b->ref.offset, size,
			    buffer->row_bytes ? " in a row" : "");
	return 0;
}

/* Check that a box's matrix is within its operand's buffer. */
static int check_box(struct ig_gpu_tape *t, const struct ig_gpu_dispatch *d, uint32_t i)
{
	const struct ig_gpu_box *x = &d->box[i];

	if (x->bind >= d->n_binds || (d->bind[x->bind].access & IG_GPU_TOUCH))
		return fail(t, -EINVAL, "kernel %s: box %u is of operand %u", d->kernel, i,
			    x->bind);
	if (!x->box_rows || x->box_rows > 256 || !x->n_rows || !x->n_cols || x->row_bytes % 16 ||
	    x->row_bytes > MAX_BYTES || x->row_bytes < (uint64_t)x->n_cols * 2)
		return fail(t, -EINVAL,
			    "kernel %s: boxes of %u rows of operand %u, which is %u x %u, "
			    "rows %" PRIu64 " bytes apart",
			    d->kernel, x->box_rows, x->bind, x->n_rows, x->n_cols, x->row_bytes);
	const struct ig_gpu_ref *ref = &d->bind[x->bind].ref;
	if (ref->buffer == -1)
		return 0;
	const struct ig_gpu_tape_buffer *b = &t->buffers[ref->buffer];
	uint64_t left = b->n_bytes > ref->offset ? b->n_bytes - ref->offset : 0;
	if (ref->offset % 16 || (uint64_t)x->n_cols * 2 > left ||
	    (left - (uint64_t)x->n_cols * 2) / x->row_bytes < x->n_rows - 1)
		return fail(t, -EINVAL,
			    "kernel %s: operand %u: %u rows, %" PRIu64 " bytes apart, at "
			    "%" PRIu64 " of %" PRIu64,
			    d->kernel, x->bind, x->n_rows, x->row_bytes, ref->offset, b->n_bytes);
	return 0;
}

static int check_dispatch(struct ig_gpu_tape *t, const struct ig_gpu_dispatch *d)
{
	static const char axes[] = "xyz";

	if (d->struct_size != sizeof *d)
		return fail(t, -EINVAL, "a dispatch of %u bytes, expected %zu", d->struct_size,
			    sizeof *d);
	if (!d->kernel || !d->kernel[0] || strlen(d->kernel) > MAX_NAME)
		return fail(t, -EINVAL, "a kernel without a name, or with one beyond %d letters",
			    MAX_NAME);
	if (!d->shader)
		return fail(t, -ENOTSUP, "kernel %s: its shader was not built", d->kernel);
	if (!d->args || !d->n_arg_bytes || d->n_arg_bytes % 4 || d->n_arg_bytes > IG_GPU_MAX_ARGS)
		return fail(t, -EINVAL,
			    "kernel %s: %u bytes of arguments; a multiple of 4 up to %d "
			    "is possible",
			    d->kernel, d->n_arg_bytes, IG_GPU_MAX_ARGS);
	if (d->n_binds > IG_GPU_MAX_BINDS)
		return fail(t, -EINVAL, "kernel %s: %u operands, at most %d are possible",
			    d->kernel, d->n_binds, IG_GPU_MAX_BINDS);
	if (!d->threads || d->threads % 32)
		return fail(t, -EINVAL, "kernel %s: %u threads, not a multiple of 32", d->kernel,
			    d->threads);
	if (d->threads > t->max_threads)
		return fail(t, -ENOTSUP, "kernel %s: %u threads, the device has %u", d->kernel,
			    d->threads, t->max_threads);
	if (d->threadgroup_bytes % 16)
		return fail(t, -EINVAL,
			    "kernel %s: %u bytes of threadgroup memory, not a multiple of 16",
			    d->kernel, d->threadgroup_bytes);
	if (d->threadgroup_bytes > t->max_threadgroup_bytes)
		return fail(t, -ENOTSUP,
			    "kernel %s: %u bytes of threadgroup memory, the device has %u",
			    d->kernel, d->threadgroup_bytes, t->max_threadgroup_bytes);
	if (d->when_live >= IG_N_LIVE || d->when_min > d->when_max ||
	    (d->when_live == IG_LIVE_ONE && (d->when_min > 1 || d->when_max < 1)))
		return fail(t, -EINVAL, "kernel %s: never runs: %u <= count %u <= %u", d->kernel,
			    d->when_min, d->when_live, d->when_max);
	for (int i = 0; i < 3; i++) {
		const struct ig_gpu_extent *e = &d->grid[i];
		if (e->live >= IG_N_LIVE || !e->mul || !e->div || !e->times ||
		    e->mul > MAX_EXTENT || e->div > MAX_EXTENT || e->times > MAX_EXTENT)
			return fail(t, -EINVAL,
				    "kernel %s: grid %c is %u * ceil(count %u * %u / %u)",
				    d->kernel, axes[i], e->times, e->live, e->mul, e->div);
	}
	if (d->cluster > 8 || (d->cluster > 1 && d->grid[0].times % d->cluster))
		return fail(t, -EINVAL, "kernel %s: clusters of %u threadgroups of a grid of %u",
			    d->kernel, d->cluster, d->grid[0].times);
	if (d->n_boxes > IG_GPU_MAX_BOXES)
		return fail(t, -EINVAL, "kernel %s: %u boxes, at most %d are possible", d->kernel,
			    d->n_boxes, IG_GPU_MAX_BOXES);
	for (uint32_t i = 0; i < d->n_binds; i++)
		if (check_bind(t, d, i))
			return t->status;
	for (uint32_t i = 0; i < d->n_boxes; i++)
		if (check_box(t, d, i))
			return t->status;
	return 0;
}

static int append(struct ig_gpu_tape *t, const struct ig_gpu_dispatch *d)
{
	if (t->n_dispatches == MAX_DISPATCHES ||
	    !ig_array_grow(t->dispatches, &t->cap_dispatches, t->n_dispatches))
		return no_memory(t);
	char *kernel = strdup(d->kernel);
	void *args = malloc(d->n_arg_bytes);
	if (!kernel || !args) {
		free(kernel);
		free(args);
		return no_memory(t);
	}
	memcpy(args, d->args, d->n_arg_bytes);
	struct ig_gpu_tape_dispatch *to = &t->dispatches[t->n_dispatches];
	*to = (struct ig_gpu_tape_dispatch){ .d = *d, .node = t->node };
	to->d.kernel = kernel;
	to->d.args = args;
	for (uint32_t i = 0; i < d->n_binds; i++) {
		if (d->bind[i].ref.buffer < 0)
			continue;
		struct ig_gpu_tape_buffer *b = &t->buffers[d->bind[i].ref.buffer];
		if (b->first == UINT32_MAX)
			b->first = t->n_dispatches;
		b->last = t->n_dispatches;
	}
	t->n_dispatches++;
	return 0;
}

static int host_dispatch(struct ig_gpu_tape *t, const struct ig_gpu_dispatch *d)
{
	if (t->status)
		return t->status;
	if (t->closed)
		return fail(t, -EINVAL, "a dispatch after the tape was closed");
	return check_dispatch(t, d) ? t->status : append(t, d);
}

int ig_gpu_tape_exchange(struct ig_gpu_tape *t, uint32_t kind, uint32_t first_rank,
			 const struct ig_gpu_bind *binds, uint32_t n_binds, uint32_t row_class)
{
	static const uint32_t no_args;
	const uint32_t live = row_class == IG_ROWS_LOGITS ? IG_LIVE_LOGIT_ROWS : IG_LIVE_ROWS;
	struct ig_gpu_dispatch d = {
		.struct_size = sizeof d,
		.kernel = kind == IG_GPU_ADD ? "exchange: a sum" : "exchange: parts",
		.args = &no_args,
		.n_arg_bytes = sizeof no_args,
		.threads = EXCHANGE_THREADS,
		.when_live = IG_LIVE_ONE,
		.when_max = UINT32_MAX,
		.grid = { { live, 1, 1, 1 }, { IG_LIVE_ONE, 1, 1, 1 }, { IG_LIVE_ONE, 1, 1, 1 } },
		.n_binds = n_binds,
	};

	if (t->status)
		return t->status;
	if (t->closed || n_binds < 2 || n_binds > IG_MAX_IN || (kind == IG_GPU_ADD && n_binds != 2))
		return fail(t, -EINVAL, "an exchange of %u values", n_binds);
	memcpy(d.bind, binds, n_binds * sizeof *binds);
	for (uint32_t i = 0; i < n_binds; i++) {
		if (check_bind(t, &d, i))
			return t->status;
		if (binds[i].ref.buffer < 0 || !t->buffers[binds[i].ref.buffer].row_bytes)
			return fail(t, -EINVAL, "%s: operand %u is no value", d.kernel, i);
	}
	if (append(t, &d))
		return t->status;
	t->dispatches[t->n_dispatches - 1].exchange = kind;
	t->dispatches[t->n_dispatches - 1].first_rank = first_rank;
	return 0;
}

const struct ig_gpu_host ig_gpu_tape_host = {
	.struct_size = sizeof(struct ig_gpu_host),
	.dispatch = host_dispatch,
	.scratch = host_scratch,
	.constant = host_constant,
	.ids = host_ids,
	.logits = host_logits,
	.kv = host_kv,
};

/* ---- hazards ---------------------------------------------------------------------- */

/* Whether no step runs both: kernels for few and for many rows. */
static bool exclusive(const struct ig_gpu_dispatch *a, const struct ig_gpu_dispatch *b)
{
	return a->when_live == b->when_live &&
	       (a->when_max < b->when_min || b->when_max < a->when_min);
}

/* Whether two operands overlap; of a value, by columns of its rows. */
static bool overlap(const struct ig_gpu_tape *t, const struct ig_gpu_bind *x,
		    const struct ig_gpu_bind *y)
{
	if (x->ref.buffer < 0 || x->ref.buffer != y->ref.buffer)
		return false;
	if (t->buffers[x->ref.buffer].kind == IG_GPU_BUFFER_KV)
		return true;
	return x->ref.offset < y->ref.offset + y->n_bytes &&
	       y->ref.offset < x->ref.offset + x->n_bytes;
}

static bool conflict(const struct ig_gpu_tape *t, const struct ig_gpu_dispatch *a,
		     const struct ig_gpu_dispatch *b)
{
	if (exclusive(a, b))
		return false;
	for (uint32_t i = 0; i < a->n_binds; i++)
		for (uint32_t j = 0; j < b->n_binds; j++)
			if (((a->bind[i].access | b->bind[j].access) & IG_GPU_WRITE) &&
			    overlap(t, &a->bind[i], &b->bind[j]))
				return true;
	return false;
}

/* Set the barriers, and the phase of every dispatch. */
static void find_barriers(struct ig_gpu_tape *t, uint32_t *phase)
{
	uint32_t first = 0; /* of the phase */

	for (uint32_t i = 0; i < t->n_dispatches; i++) {
		struct ig_gpu_tape_dispatch *d = &t->dispatches[i];
		for (uint32_t j = i; j-- > first && !d->barrier;)
			d->barrier = (d->exchange && t->dispatches[j].exchange) ||
				     conflict(t, &t->dispatches[j].d, &d->d);
		if (d->barrier)
			first = i;
		phase[i] = i ? phase[i - 1] + d->barrier : 0;
	}
}

/* ---- scratch ---------------------------------------------------------------------- */

struct lifetime {
	uint32_t buffer, first, last; /* phases */
};

static int by_first_phase(const void *a, const void *b)
{
	const struct lifetime *x = a, *y = b;
	if (x->first != y->first)
		return x->first < y->first ? -1 : 1;
	return x->buffer < y->buffer ? -1 : 1;
}

/* First fit, in order of the first phase, among the buffers with overlapping lifetimes. */
static int place_scratch(struct ig_gpu_tape *t, const uint32_t *phase)
{
	struct lifetime *p = malloc((t->n_buffers + 1) * sizeof *p);
	uint32_t *alive = malloc((t->n_buffers + 1) * sizeof *alive);
	uint32_t n = 0, n_alive = 0;
	int rc = 0;

	if (!p || !alive) {
		rc = no_memory(t);
		goto done;
	}
	for (uint32_t i = 0; i < t->n_buffers; i++) {
		const struct ig_gpu_tape_buffer *b = &t->buffers[i];
		if (b->kind == IG_GPU_BUFFER_SCRATCH && b->first != UINT32_MAX)
			p[n++] = (struct lifetime){ i, phase[b->first], phase[b->last] };
	}
	qsort(p, n, sizeof *p, by_first_phase);
	for (uint32_t i = 0; i < n; i++) {
		struct ig_gpu_tape_buffer *b = &t->buffers[p[i].buffer];
		uint64_t size = round_up(b->n_bytes, ALIGNMENT), at = 0;
		uint32_t kept = 0;
		for (uint32_t j = 0; j < n_alive; j++)
			if (p[alive[j]].last >= p[i].first)
				alive[kept++] = alive[j];
		n_alive = kept;
		for (bool moved = true; moved;) {
			moved = false;
			for (uint32_t j = 0; j < n_alive; j++) {
				const struct ig_gpu_tape_buffer *o =
					&t->buffers[p[alive[j]].buffer];
				uint64_t end = o->offset + round_up(o->n_bytes, ALIGNMENT);
				if (end <= at || at + size <= o->offset)
					continue;
				at = end;
				moved = true;
			}
		}
		if (at + size > MAX_BYTES) {
			rc = fail(t, -ENOTSUP, "scratch of more than %" PRIu64 " bytes", MAX_BYTES);
			goto done;
		}
		b->offset = at;
		alive[n_alive++] = i;
		if (t->scratch_bytes < at + size)
			t->scratch_bytes = at + size;
	}
done:
	free(p);
	free(alive);
	return rc;
}

int ig_gpu_tape_close(struct ig_gpu_tape *t, struct ig_error *err)
{
	t->node = UINT32_MAX;
	if (t->closed)
		fail(t, -EINVAL, "the tape is closed");
	if (!t->status) {
		uint32_t *phase = malloc((t->n_dispatches + 1) * sizeof *phase);
		if (phase) {
			find_barriers(t, phase);
			place_scratch(t, phase);
			free(phase);
		} else {
			no_memory(t);
		}
	}
	t->closed = true;
	return t->status ? ig_fail(err, t->status, "%s", t->error.text) : 0;
}

/* ---- a step ----------------------------------------------------------------------- */

bool ig_gpu_dispatch_grid(const struct ig_gpu_dispatch *d, const uint32_t live[IG_N_LIVE],
			  uint32_t grid[3])
{
	if (live[d->when_live] < d->when_min || live[d->when_live] > d->when_max)
		return false;
	for (int i = 0; i < 3; i++) {
		const struct ig_gpu_extent *e = &d->grid[i];
		uint64_t n = ((uint64_t)live[e->live] * e->mul + e->div - 1) / e->div;
		n = n > UINT32_MAX ? UINT32_MAX : n * e->times;
		grid[i] = n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
		if (!grid[i])
			return false;
	}
	return true;
}

uint32_t ig_gpu_tape_next(const struct ig_gpu_tape *t, const uint32_t live[IG_N_LIVE], uint32_t *at,
			  uint32_t grid[3], bool *barrier)
{
	*barrier = false;
	while (*at < t->n_dispatches) {
		uint32_t i = (*at)++;
		*barrier = *barrier || t->dispatches[i].barrier;
		if (ig_gpu_tape_of_head(t, &t->dispatches[i]) && !live[IG_LIVE_HEAD])
			continue;
		if (ig_gpu_dispatch_grid(&t->dispatches[i].d, live, grid))
			return i;
	}
	return UINT32_MAX;
}
