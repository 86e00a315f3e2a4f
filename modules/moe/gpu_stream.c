/*
 * gpu_stream.c: experts' products of many rows with weights in tiles: x is gathered by expert, a
 * piece of the experts' weights is converted to rows of float16 in scratch memory, and streams
 * multiply (shaders/moe/moe_tiles_stream.metal).  A weight is dequantised once for all rows.
 */
#include "gpu_private.h"
#include "ops/gpu/unpack.h"
#include "shaders/core/shapes.h"

extern const struct ig_shader ig_shader_moe_tiles_unpack, ig_shader_moe_tiles_stream;

/* Scratch for the experts of a piece, unless one needs more: experts have few rows each, so that a
 * small piece would leave multiprocessors idle. */
#define PIECE_BYTES ((uint64_t)256 << 20)
/* Unpacking costs as much as some rows of every expert (Qwen3-30B-A3B's shape: with 32 it is 8 % slower
 * than not to, with 64 a sixth faster). */
#define ROWS_OF_EXPERT 48

static const struct shape shape = { SHAPE_NV_STREAM_128 };

struct stream {
	const struct product *p;
	const struct ig_gpu_host *host;
	struct ig_gpu_tape *tape;
	uint32_t min_rows;
	uint64_t k, max_n; /* assignments of a step, at most */
	struct ig_gpu_bind list, rows, places, weight;
};

uint32_t ig_moe_unpacks_from(const struct product *p)
{
	const struct ig_gpu_facts *f = p->launch->facts;
	const uint32_t rows = ROWS_OF_EXPERT * p->n_experts / p->top_k;

	if (f->kind != IG_GPU_CUDA || f->arch != 90 ||
	    p->launch->weight[0].layout != IG_GPU_TILES || p->n_experts > MOE_LIST_THREADS)
		return 0;
	return rows > 256 ? rows + 1 : 257;
}

static struct ig_gpu_dispatch begin(const struct stream *s, const char *kernel, uint32_t threads)
{
	return (struct ig_gpu_dispatch){
		.struct_size = sizeof(struct ig_gpu_dispatch),
		.shader = &ig_shader_moe_tiles_stream,
		.kernel = kernel,
		.args = &s->p->args,
		.n_arg_bytes = sizeof s->p->args,
		.threads = threads,
		.when_live = ig_gpu_live_of(&s->p->launch->out[0]),
		.when_min = s->min_rows,
		.when_max = UINT32_MAX,
		.grid = { IG_GPU_ONE, IG_GPU_ONE, IG_GPU_ONE },
	};
}

static struct ig_gpu_bind as(struct ig_gpu_bind b, uint32_t access)
{
	b.access = access;
	return b;
}

static int emit_list(const struct stream *s)
{
	struct ig_gpu_dispatch d = begin(s, "moe_list", MOE_LIST_THREADS);

	d.threadgroup_bytes = 4 * MOE_LIST_THREADS * 4;
	d.bind[d.n_binds++] = ig_gpu_bind_value(&s->p->launch->in[1], IG_GPU_READ);
	d.bind[d.n_binds++] = as(s->list, IG_GPU_WRITE);
	return s->host->dispatch(s->tape, &d);
}

static int emit_gather(const struct stream *s)
{
	struct ig_gpu_dispatch d = begin(s, "moe_gather", MOE_GATHER_THREADS);

	d.grid[0] = (struct ig_gpu_extent){ d.when_live, s->p->top_k, MOE_GATHER_THREADS / 32, 1 };
	d.bind[d.n_binds++] = ig_gpu_bind_value(&s->p->launch->in[0], IG_GPU_READ);
	d.bind[d.n_binds++] = ig_gpu_bind_value(&s->p->launch->in[1], IG_GPU_READ);
	d.bind[d.n_binds++] = as(s->rows, IG_GPU_WRITE);
	d.bind[d.n_binds++] = as(s->places, IG_GPU_WRITE);
	return s->host->dispatch(s->tape, &d);
}

/* Rows first … of a weight, a multiple of sixteen, to scratch memory. */
static int emit_unpack(const struct stream *s, uint32_t weight, uint64_t first, uint64_t n,
		       struct ig_gpu_ref to)
{
	struct ig_gpu_tensor w = s->p->launch->weight[weight];

	w.ref.offset += first * w.row_stride;
	w.n_rows = (int64_t)n;
	return ig_gpu_unpack(s->p->launch, &w, s->min_rows, to, &ig_shader_moe_tiles_unpack,
			     "moe_tiles_unpack", s->host, s->tape);
}

/* The products with experts first … end - 1. */
static int emit_piece(const struct stream *s, uint32_t first, uint32_t end)
{
	const struct product *p = s->p;
	const struct ig_gpu_launch *c = p->launch;
	const uint64_t rows = p->args.rows, n = (end - first) * rows;
	struct moe_args args = p->args;
	struct ig_gpu_dispatch d =
		begin(s, p->pair ? "moe_glu_stream" : "moe_down_stream", shape.sm * shape.sn * 32);
	struct ig_gpu_bind gate = ig_gpu_bind_ref(s->weight.ref, n * s->k * 2, IG_GPU_READ),
			   up = gate;
	int rc = emit_unpack(s, 0, first * rows, n, gate.ref);

	if (p->pair && p->up) {
		up.ref.offset += n * s->k * 2;
		rc = rc ? rc : emit_unpack(s, p->up, first * rows, n, up.ref);
	}
	if (rc)
		return rc;
	args.first_expert = first;
	args.end_expert = end;
	args.index_at = ig_gpu_stream_bytes(shape.bm, shape.bn, shape.bk, shape.stages, 2);
	d.args = &args;
	d.threadgroup_bytes = args.index_at + 2 * 64 * 4;
	d.cluster = PRODUCT_STREAM_CLUSTER;
	d.grid[0].times = ig_gpu_cores(c->facts) / d.cluster * d.cluster;
	d.bind[d.n_binds++] = as(s->rows, IG_GPU_READ);
	d.bind[d.n_binds++] = gate;
	d.bind[d.n_binds++] = up;
	d.bind[d.n_binds++] = as(s->list, IG_GPU_READ);
	d.bind[d.n_binds++] = as(s->places, IG_GPU_READ);
	d.bind[d.n_binds++] = p->y;
	d.bind[d.n_binds++] = ig_moe_bind_optional(c, p->bias, p->bias);
	d.bind[d.n_binds++] = ig_moe_bind_optional(c, p->bias && p->pair, p->bias + 1);
	d.box[d.n_boxes++] =
		(struct ig_gpu_box){ 0, shape.bm, (uint32_t)s->max_n, (uint32_t)s->k, s->k * 2 };
	for (uint32_t i = 1; i <= 2; i++)
		d.box[d.n_boxes++] = (struct ig_gpu_box){ i, shape.bn / 2, (uint32_t)n,
							  (uint32_t)s->k, s->k * 2 };
	return s->host->dispatch(s->tape, &d);
}

int ig_moe_lower_unpacked(const struct product *p, const struct ig_gpu_host *h,
			  struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_gpu_launch *c = p->launch;
	const uint64_t k = p->args.product.k, max_n = (uint64_t)ig_gpu_max_rows(c) * p->top_k,
		       words = (p->n_experts + 4) / 4 * 4 +
			       4 * (max_n / MOE_STREAM_ROWS + p->n_experts),
		       expert = p->args.rows * k * 2 * (p->pair && p->up ? 2 : 1);
	struct stream s = { .p = p,
			    .host = h,
			    .tape = t,
			    .min_rows = ig_moe_unpacks_from(p),
			    .k = k,
			    .max_n = max_n,
			    .list.n_bytes = words * 4,
			    .rows.n_bytes = max_n * k * 2,
			    .places.n_bytes = max_n * 4 };
	uint64_t each = PIECE_BYTES / expert;
	int rc;

	if (max_n < s.min_rows * (uint64_t)p->top_k)
		return 0;
	if (max_n > INT32_MAX)
		return ig_fail(err, -ENOTSUP, "%s: %llu assignments are too many for a GPU", p->op,
			       (unsigned long long)max_n);
	each = each < 1 ? 1 : each < p->n_experts ? each : p->n_experts;
	const uint64_t pieces = (p->n_experts + each - 1) / each;
	each = (p->n_experts + pieces - 1) / pieces;
	s.weight.n_bytes = each * expert;
	struct ig_gpu_bind *const scratch[] = { &s.list, &s.rows, &s.places, &s.weight };
	for (size_t i = 0; i < sizeof scratch / sizeof *scratch; i++)
		if ((rc = h->scratch(t, scratch[i]->n_bytes, &scratch[i]->ref)))
			return ig_fail(err, rc, "%s: no %llu bytes for experts' rows", p->op,
				       (unsigned long long)scratch[i]->n_bytes);
	if ((rc = emit_list(&s)) || (rc = emit_gather(&s)))
		return rc;
	for (uint32_t first = 0; first < p->n_experts && !rc; first += (uint32_t)each)
		rc = emit_piece(&s, first,
				p->n_experts - first < each ? p->n_experts :
							      first + (uint32_t)each);
	return rc;
}
