/* figures.c: see figures.h.  A model file's header is written to a mapping of the file's size that
 * is inaccessible after the header, so that reading a weight would crash. */
#include "bench/figures.h"
#include "base/clock.h"
#include "model/formats/checkpoint.h"
#include "runtime/gpu/gpu_private.h"
#include "runtime/modules/modules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HEADER_BYTES (1u << 20)
#define MAX_ROWS 512 /* the daemon's defaults */
#define MAX_SEQS 64
#define CONTEXT_ROWS 1024 /* position of the one row whose reads are counted */
#define WALKS 2000

const struct figures_shape figures_shapes[] = {
	{ "TinyLlama 1.1B", 22, 2048, 5632, 32, 4, 64, 32000, 2048 },
	{ "Devstral-Small 24B", 40, 5120, 32768, 32, 8, 128, 131072, 131072 },
	{ "Qwen3-30B-A3B", 48, 2048, 768, 32, 4, 128, 151936, 40960, 128, 8 },
};
const uint32_t figures_n_shapes = sizeof figures_shapes / sizeof *figures_shapes;

/* ---- a file without its weights --------------------------------------------------- */

struct header {
	uint8_t *at, *end;
	uint64_t n_keys, n_tensors, offset; /* offset: of the next tensor's data */
	uint32_t dtype;
};

static void put(struct header *h, const void *data, size_t n)
{
	if ((size_t)(h->end - h->at) < n)
		abort(); /* the shapes are ours: the header is large enough */
	memcpy(h->at, data, n);
	h->at += n;
}

static void put_u32(struct header *h, uint32_t v) { put(h, &v, sizeof v); }

static void put_u64(struct header *h, uint64_t v) { put(h, &v, sizeof v); }

static void put_text(struct header *h, const char *s)
{
	put_u64(h, strlen(s));
	put(h, s, strlen(s));
}

enum { GGUF_U32 = 4, GGUF_F32 = 6, GGUF_STRING = 8 };

static void arch_key(struct header *h, const char *arch, const char *key)
{
	char name[64];
	snprintf(name, sizeof name, "%s.%s", arch, key);
	put_text(h, name);
}

static void arch_u32(struct header *h, const char *arch, const char *key, uint32_t v)
{
	arch_key(h, arch, key);
	put_u32(h, GGUF_U32);
	put_u32(h, v);
	h->n_keys++;
}

/* n_rows 0: a vector of float32. */
static void tensor(struct header *h, const char *name, uint64_t n_rows, uint64_t n_cols)
{
	uint32_t dtype = n_rows ? h->dtype : IG_F32;
	uint64_t bytes = ig_dtype_row_bytes(dtype, (int64_t)n_cols) * (n_rows ? n_rows : 1);

	put_text(h, name);
	put_u32(h, n_rows ? 2 : 1);
	put_u64(h, n_cols);
	if (n_rows)
		put_u64(h, n_rows);
	put_u32(h, dtype);
	put_u64(h, h->offset);
	h->offset += (bytes + 31) / 32 * 32;
	h->n_tensors++;
}

static void layer_tensor(struct header *h, uint32_t layer, const char *name, uint64_t n_rows,
			 uint64_t n_cols)
{
	char full[64];
	snprintf(full, sizeof full, "blk.%u.%s.weight", layer, name);
	tensor(h, full, n_rows, n_cols);
}

static void write_header(struct header *h, const struct figures_shape *s)
{
	uint8_t *begin = h->at, *end;
	float eps = 1e-5f;
	const char *arch = s->n_experts ? "qwen3moe" : "llama";
	uint64_t q = (uint64_t)s->n_heads * s->head_dim, kv = (uint64_t)s->n_kv_heads * s->head_dim;
	uint64_t n = s->n_experts;

	put(h, "GGUF", 4);
	put_u32(h, 3);
	put_u64(h, 0);
	put_u64(h, 0);
	put_text(h, "general.architecture");
	put_u32(h, GGUF_STRING);
	put_text(h, arch);
	arch_key(h, arch, "attention.layer_norm_rms_epsilon");
	put_u32(h, GGUF_F32);
	put(h, &eps, sizeof eps);
	h->n_keys = 2;
	arch_u32(h, arch, "block_count", s->n_layers);
	arch_u32(h, arch, "embedding_length", s->width);
	arch_u32(h, arch, "feed_forward_length", s->ff);
	arch_u32(h, arch, "attention.head_count", s->n_heads);
	arch_u32(h, arch, "attention.head_count_kv", s->n_kv_heads);
	arch_u32(h, arch, "attention.key_length", s->head_dim);
	arch_u32(h, arch, "attention.value_length", s->head_dim);
	arch_u32(h, arch, "rope.dimension_count", s->head_dim);
	arch_u32(h, arch, "context_length", s->n_context);
	arch_u32(h, arch, "vocab_size", s->n_vocab);
	if (s->n_experts) {
		arch_u32(h, arch, "expert_count", s->n_experts);
		arch_u32(h, arch, "expert_used_count", s->n_used);
	}
	tensor(h, "token_embd.weight", s->n_vocab, s->width);
	for (uint32_t l = 0; l < s->n_layers; l++) {
		layer_tensor(h, l, "attn_norm", 0, s->width);
		layer_tensor(h, l, "attn_q", q, s->width);
		layer_tensor(h, l, "attn_k", kv, s->width);
		layer_tensor(h, l, "attn_v", kv, s->width);
		layer_tensor(h, l, "attn_output", s->width, q);
		layer_tensor(h, l, "ffn_norm", 0, s->width);
		if (s->n_experts) {
			uint32_t dtype = h->dtype;
			layer_tensor(h, l, "attn_q_norm", 0, s->head_dim);
			layer_tensor(h, l, "attn_k_norm", 0, s->head_dim);
			h->dtype = IG_F32;
			layer_tensor(h, l, "ffn_gate_inp", n, s->width);
			h->dtype = dtype;
			layer_tensor(h, l, "ffn_gate_exps", n * s->ff, s->width);
			layer_tensor(h, l, "ffn_up_exps", n * s->ff, s->width);
			layer_tensor(h, l, "ffn_down_exps", n * s->width, s->ff);
			continue;
		}
		layer_tensor(h, l, "ffn_gate", s->ff, s->width);
		layer_tensor(h, l, "ffn_up", s->ff, s->width);
		layer_tensor(h, l, "ffn_down", s->width, s->ff);
	}
	tensor(h, "output_norm.weight", 0, s->width);
	tensor(h, "output.weight", s->n_vocab, s->width);
	end = h->at;
	h->at = begin + 8;
	put_u64(h, h->n_tensors);
	put_u64(h, h->n_keys);
	h->at = end;
}

/* ---- a device that only has facts ------------------------------------------------- */

static const struct ig_gpu_facts kinds[] = {
	[IG_GPU_METAL] = { sizeof(struct ig_gpu_facts), IG_GPU_METAL, 7, 8, 32768, 1024,
			   (uint64_t)1 << 40, (uint64_t)1 << 40, "Apple7" },
	[IG_GPU_CUDA] = { sizeof(struct ig_gpu_facts), IG_GPU_CUDA, 90, 132, 232448, 1024,
			  (uint64_t)1 << 40, (uint64_t)1 << 40, "compute capability 9.0", 1 },
};

struct paper_device {
	struct ig_gpu_device base;
	const struct ig_gpu_facts *facts;
};

static const struct ig_gpu_facts *facts(const struct ig_gpu_device *d)
{
	return ((const struct paper_device *)d)->facts;
}

static void free_nothing(struct ig_gpu_device *d, struct ig_gpu_buffer *b)
{
	if (b)
		abort(); /* nothing was ever allocated */
}

static const struct ig_gpu_device_class paper = { .name = "paper",
						  .facts = facts,
						  .free = free_nothing };

/* ---- counting --------------------------------------------------------------------- */

/* As runtime/metal/program.m cuts a step, by what an M1 would need. */
#define CUT_PS 250e9
#define BYTE_PS 15.0
#define BYTE_ROW_PS 3.0
#define LOOP_PS (CUT_PS / 4)
#define MAX_CUTS 64

static double estimate_ps(const struct ig_gpu_tape *t, const struct ig_gpu_dispatch *d,
			  const uint32_t live[IG_N_LIVE])
{
	double rows = live[d->when_live], bytes = 0;

	for (uint32_t axis = 0; axis < 3; axis++)
		if (rows < live[d->grid[axis].live])
			rows = live[d->grid[axis].live];
	for (uint32_t i = 0; i < d->n_binds; i++)
		if (d->bind[i].ref.buffer >= 0 &&
		    t->buffers[d->bind[i].ref.buffer].kind == IG_GPU_BUFFER_WEIGHTS)
			bytes += (double)d->bind[i].n_bytes;
	return bytes * (rows * BYTE_ROW_PS > BYTE_PS ? rows * BYTE_ROW_PS : BYTE_PS) +
	       (d->when_live == IG_LIVE_LOOP_ROWS ? LOOP_PS : 0);
}

/* The layer of a node, by its first weight; without weights that of the node before. */
static int layer_of(const struct ig_plan *p, uint32_t node, int before)
{
	const struct ig_plan_node *n = &p->nodes[node];
	unsigned layer;
	if (!n->n_weights || n->weight[0] < 0)
		return before;
	return sscanf(p->weights[n->weight[0]].name, "blk.%u.", &layer) == 1 ? (int)layer : -1;
}

/* Of the weights of an op with experts, the most bytes that so many rows use. */
static uint64_t used_of(const struct ig_plan_node *n, uint64_t n_bytes, uint64_t rows)
{
	const struct ig_moe_glu_params *glu = n->params;
	const struct ig_moe_combine_params *combine = n->params;
	const bool is_glu = !strcmp(n->op->name, "moe_glu");
	const uint32_t n_experts = is_glu ? glu->n_experts : combine->n_experts;
	const uint64_t used = rows * (is_glu ? glu->top_k : combine->top_k);

	return used < n_experts ? n_bytes / n_experts * used : n_bytes;
}

/* How often a dispatch reads its weights: the number of tiles of rows. */
static uint64_t row_tiles(const struct ig_gpu_dispatch *d, const uint32_t live[IG_N_LIVE])
{
	uint64_t n = 1;

	for (uint32_t axis = 0; axis < 3; axis++) {
		const struct ig_gpu_extent *e = &d->grid[axis];
		if (e->live == IG_LIVE_ROWS || e->live == IG_LIVE_LOGIT_ROWS)
			n *= ((uint64_t)live[e->live] * e->mul + e->div - 1) / e->div;
	}
	return n;
}

static bool bound_before(const struct ig_gpu_dispatch *d, uint32_t i)
{
	for (uint32_t j = 0; j < i; j++)
		if (d->bind[j].ref.buffer == d->bind[i].ref.buffer &&
		    d->bind[j].ref.offset == d->bind[i].ref.offset)
			return true; /* bound, but not read */
	return false;
}

static void count_reads(const struct ig_gpu_lowered *p, const struct ig_plan *plan,
			const struct ig_gpu_tape_dispatch *td, const uint32_t live[IG_N_LIVE],
			struct figures_step *s)
{
	const struct ig_gpu_dispatch *d = &td->d;
	const struct ig_plan_node *node = &plan->nodes[td->node];

	for (uint32_t i = 0; i < d->n_binds; i++) {
		const struct ig_gpu_bind *b = &d->bind[i];
		if (b->ref.buffer < 0 || !(b->access & IG_GPU_READ) || (b->access & IG_GPU_TOUCH) ||
		    bound_before(d, i))
			continue;
		const struct ig_gpu_tape_buffer *buffer = &p->tape->buffers[b->ref.buffer];
		uint64_t rows = live[buffer->row_class == IG_ROWS_TOKENS ? IG_LIVE_ROWS :
									   IG_LIVE_LOGIT_ROWS];
		if (buffer->kind == IG_GPU_BUFFER_WEIGHTS && !strcmp(node->op->name, "embed"))
			s->weight_reads +=
				rows * (b->n_bytes / p->shape.info.n_vocab); /* rows of it */
		else if (buffer->kind == IG_GPU_BUFFER_WEIGHTS && (node->op->flags & IG_OP_EXPERTS))
			s->weight_reads += used_of(node, b->n_bytes, rows);
		else if (buffer->kind == IG_GPU_BUFFER_WEIGHTS)
			s->weight_reads += b->n_bytes * row_tiles(d, live);
		else if (buffer->row_bytes)
			s->other_reads += b->n_bytes * rows;
		else if (!strcmp(node->op->name, "attention")) /* partials */
			s->other_reads += b->n_bytes / p->shape.max_partials *
					  live[IG_LIVE_SPLIT_ROWS] * live[IG_LIVE_SPLIT_RANGES];
		else if (buffer->kind == IG_GPU_BUFFER_SCRATCH) /* one part per row of logits */
			s->other_reads += b->n_bytes / p->base.limits.max_logit_rows *
					  live[IG_LIVE_LOGIT_ROWS];
		else
			s->other_reads += b->n_bytes;
	}
}

static double walk_us(const struct ig_gpu_tape *t, const uint32_t live[IG_N_LIVE])
{
	uint32_t grid[3], sum = 0;
	bool barrier;
	double begin = (double)ig_now_ns();

	for (int i = 0; i < WALKS; i++)
		for (uint32_t at = 0; ig_gpu_tape_next(t, live, &at, grid, &barrier) != UINT32_MAX;)
			sum += grid[0] + barrier;
	double us = ((double)ig_now_ns() - begin) / 1e3 / WALKS;
	return sum ? us : 0;
}

static void count_step(const struct ig_gpu_lowered *p, const struct ig_plan *plan,
		       const uint32_t live[IG_N_LIVE], struct figures_step *s)
{
	const struct ig_gpu_tape *t = p->tape;
	uint32_t at = 0, grid[3], i, node = UINT32_MAX;
	int layer = -1;
	double ps = 0;
	bool barrier;

	*s = (struct figures_step){ .rows = live[IG_LIVE_ROWS], .n_command_buffers = 1 };
	while ((i = ig_gpu_tape_next(t, live, &at, grid, &barrier)) != UINT32_MAX) {
		const struct ig_gpu_tape_dispatch *td = &t->dispatches[i];
		for (; node != td->node; node++)
			layer = layer_of(plan, node + 1, layer);
		s->n_dispatches++;
		s->n_barriers += barrier;
		s->layer_dispatches += layer == 1;
		s->layer_barriers += layer == 1 && barrier;
		double more = estimate_ps(t, &td->d, live);
		if (ps > 0 && ps + more > CUT_PS && s->n_command_buffers < MAX_CUTS) {
			s->n_command_buffers++;
			ps = 0;
		}
		ps += more;
		count_reads(p, plan, td, live, s);
	}
	s->encode_us = walk_us(t, live);
}

static void count(const struct ig_gpu_lowered *p, const struct ig_plan *plan, struct figures *out)
{
	const uint32_t few[IG_N_LIVE] = {
		[IG_LIVE_ONE] = 1,	  [IG_LIVE_ROWS] = 1,
		[IG_LIVE_LOGIT_ROWS] = 1, [IG_LIVE_SEQS] = 1,
		[IG_LIVE_SPLIT_ROWS] = 1, [IG_LIVE_SPLIT_RANGES] = CONTEXT_ROWS / IG_ATTENTION_RANGE
	};
	const uint32_t many[IG_N_LIVE] = { [IG_LIVE_ONE] = 1,
					   [IG_LIVE_ROWS] = MAX_ROWS,
					   [IG_LIVE_LOGIT_ROWS] = 1,
					   [IG_LIVE_SEQS] = 1,
					   [IG_LIVE_LOOP_ROWS] = MAX_ROWS };
	ig_weight table = IG_NONE;
	bool tied = false;

	for (uint32_t i = 0; i < plan->n_nodes; i++) {
		const struct ig_plan_node *n = &plan->nodes[i];
		if (!strcmp(n->op->name, "embed"))
			table = n->weight[0];
		else
			for (uint32_t j = 0; j < n->n_weights; j++)
				tied = tied || n->weight[j] == table;
	}
	for (ig_weight i = 0; i < (ig_weight)plan->n_weights; i++) {
		const struct ig_plan_weight *w = &plan->weights[i];
		out->weight_bytes +=
			i == table && !tied ? w->n_bytes / (uint64_t)w->shape.n_rows : w->n_bytes;
	}
	for (uint32_t i = 0; i < plan->n_nodes; i++) {
		const struct ig_plan_node *n = &plan->nodes[i];
		for (uint32_t j = 0; (n->op->flags & IG_OP_EXPERTS) && j < n->n_weights; j++) {
			uint64_t n_bytes = plan->weights[n->weight[j]].n_bytes;
			out->weight_bytes -= n_bytes - used_of(n, n_bytes, 1);
		}
	}
	out->scratch_bytes = p->tape->scratch_bytes + p->tape->n_constant_bytes;
	out->step_bytes = p->shape.area_bytes;
	out->max_partials = p->shape.max_partials;
	out->n_dispatches = p->tape->n_dispatches;
	count_step(p, plan, few, &out->few);
	count_step(p, plan, many, &out->many);
}

/* ---- all of it -------------------------------------------------------------------- */

static int lower(const struct ig_plan *plan, uint32_t kind, struct figures *out,
		 struct ig_error *err)
{
	struct paper_device device = { { &paper }, &kinds[kind] };
	struct ig_gpu_driver driver = { .device = &device.base };
	struct ig_gpu_lowered p = {
		.driver = &driver,
		.base.limits = { MAX_ROWS, MAX_SEQS, MAX_SEQS, plan->info.n_context, IG_F16, IG_F16,
				 4096 },
	};
	int rc = ig_gpu_lower_plan(&p, plan, err);

	if (!rc)
		count(&p, plan, out);
	ig_gpu_weights_finish(&p.weights, &device.base);
	ig_gpu_step_finish(&p.shape);
	ig_gpu_tape_destroy(p.tape);
	return rc;
}

int figures_of(const struct ig_modules *m, const struct figures_shape *shape, uint32_t dtype,
	       uint32_t kind, struct figures *out, struct ig_error *err)
{
	uint8_t *written = calloc(1, HEADER_BYTES);
	struct header h = { .at = written, .end = written + HEADER_BYTES, .dtype = dtype };
	struct ig_checkpoint *file = NULL;
	struct ig_plan *plan = NULL;
	int rc;

	memset(out, 0, sizeof *out);
	if (!written)
		return ig_fail(err, -ENOMEM, "no memory for a header");
	write_header(&h, shape);
	/* Address space for all of the file, memory for its header alone. */
	size_t size = HEADER_BYTES + h.offset;
	void *map = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED || mprotect(map, HEADER_BYTES, PROT_READ | PROT_WRITE)) {
		rc = ig_fail(err, -errno, "no address space of %zu bytes", size);
		goto done;
	}
	memcpy(map, written, HEADER_BYTES);
	rc = ig_checkpoint_open_memory(map, size, shape->name, &file, err);
	if (!rc)
		rc = ig_plan_record(m, file, &plan, err);
	if (!rc)
		rc = lower(plan, kind, out, err);
done:
	ig_plan_destroy(plan);
	ig_checkpoint_close(file);
	if (map != MAP_FAILED)
		munmap(map, size);
	free(written);
	return rc;
}
