/*
 * test_program.c: a whole lowered plan against its ops' references.
 *
 * A small llama with odd sizes is written in memory, recorded, and run twice: by
 * the cpu driver, and node by node through struct ig_op's plain references with
 * memory of their own.  What the driver adds (forms, chains, shared scratch,
 * packed weights, threads) must not show.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/driver.h"
#include "runtime/modules/modules.h"
#include "tests/unit/model/formats/tiny_gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LAYERS 3
#define WIDTH 96
#define FF 160
#define HEADS 3
#define KV_HEADS 1
#define HEAD 32
#define VOCAB 77
#define CONTEXT 64
#define ROWS 13 /* rows of a step, at most */
#define SEQS 3

struct world {
	struct gw file;
	struct ig_checkpoint *gguf;
	struct ig_modules *modules;
	struct ig_plan *plan;
};

static uint64_t seed = 88172645463325252u;

static float random_weight(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return ((float)(seed >> 40) * 0x1p-24f - 0.5f) * 0.4f;
}

/* ---- the file ---- */

struct entry {
	char name[64];
	uint64_t n, k; /* n 0: a vector */
};

static size_t entries(struct entry *e)
{
	static const struct entry layer[] = {
		{ "blk.%u.attn_norm.weight", 0, WIDTH },
		{ "blk.%u.attn_q.weight", HEADS * HEAD, WIDTH },
		{ "blk.%u.attn_k.weight", KV_HEADS * HEAD, WIDTH },
		{ "blk.%u.attn_v.weight", KV_HEADS * HEAD, WIDTH },
		{ "blk.%u.attn_output.weight", WIDTH, HEADS * HEAD },
		{ "blk.%u.ffn_norm.weight", 0, WIDTH },
		{ "blk.%u.ffn_gate.weight", FF, WIDTH },
		{ "blk.%u.ffn_up.weight", FF, WIDTH },
		{ "blk.%u.ffn_down.weight", WIDTH, FF },
	};
	size_t n = 0;
	e[n++] = (struct entry){ "token_embd.weight", VOCAB, WIDTH };
	e[n++] = (struct entry){ "output_norm.weight", 0, WIDTH };
	for (unsigned l = 0; l < LAYERS; l++)
		for (size_t i = 0; i < sizeof layer / sizeof *layer; i++, n++) {
			e[n] = layer[i];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
			snprintf(e[n].name, sizeof e[n].name, layer[i].name, l);
#pragma GCC diagnostic pop
		}
	return n;
}

static void write_file(struct gw *w, uint32_t window)
{
	struct entry e[64];
	size_t n = entries(e), offset = 0, at;

	gw_init(w);
	gw_str(w, "general.architecture", "llama");
	gw_u32(w, "llama.block_count", LAYERS);
	gw_u32(w, "llama.embedding_length", WIDTH);
	gw_u32(w, "llama.feed_forward_length", FF);
	gw_u32(w, "llama.attention.head_count", HEADS);
	gw_u32(w, "llama.attention.head_count_kv", KV_HEADS);
	gw_u32(w, "llama.context_length", CONTEXT);
	gw_u32(w, "llama.vocab_size", VOCAB);
	gw_u32(w, "llama.rope.dimension_count", HEAD);
	gw_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
	gw_u32(w, "llama.attention.sliding_window", window);
	for (size_t i = 0; i < n; i++) {
		uint64_t ne[2] = { e[i].k, e[i].n };
		gw_tensor(w, e[i].name, ne, e[i].n ? 2 : 1, IG_F32, offset);
		offset += e[i].k * (e[i].n ? e[i].n : 1) * 4;
	}
	while (w->len % 32)
		gw_number(w, 0, 1);
	at = w->len;
	gw_data(w, 32, offset);
	for (size_t i = 0; i < n; i++)
		for (uint64_t j = 0; j < e[i].k * (e[i].n ? e[i].n : 1); j++, at += 4) {
			float v = e[i].n ? random_weight() : 1.0f + random_weight();
			memcpy(w->data + at, &v, 4);
		}
}

static int setup(void **state)
{
	static struct world w;
	struct ig_error err = { 0 };

	write_file(&w.file, 0);
	if (ig_checkpoint_open_memory(w.file.data, w.file.len, "memory", &w.gguf, &err) ||
	    ig_modules_create(&w.modules, &err) ||
	    ig_modules_load(w.modules, INGOT_ATTENTION_MODULE, &err) ||
	    ig_plan_record(w.modules, w.gguf, &w.plan, &err)) {
		print_error("%s\n", err.text);
		return -1;
	}
	*state = &w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	if (!w)
		return 0; /* setup failed, and said why */
	ig_plan_destroy(w->plan);
	ig_modules_destroy(w->modules);
	ig_checkpoint_close(w->gguf);
	gw_finish(&w->file);
	return 0;
}

/* ---- a paged cache of one slab, blocks in odd order ---- */

#define BLOCKS (CONTEXT / IG_BLOCK_TOKENS)

struct pages {
	struct ig_kv_layout layout;
	struct ig_step_kv kv;
	uint32_t tables[SEQS][BLOCKS];
	void *slabs[2];
};

static void make_pages(struct pages *p)
{
	p->layout = (struct ig_kv_layout){
		.k_dtype = IG_F32,
		.v_dtype = IG_F32,
		.n_layers = LAYERS,
		.n_kv_heads = KV_HEADS,
		.head_dim = HEAD,
		.k_token_stride = HEAD * 4,
		.v_token_stride = HEAD * 4,
		.head_stride = HEAD * 4 * IG_BLOCK_TOKENS,
		.v_offset = HEAD * 4 * IG_BLOCK_TOKENS * KV_HEADS,
		.layer_stride = 2 * HEAD * 4 * IG_BLOCK_TOKENS * KV_HEADS,
		.block_bytes = 2 * HEAD * 4 * IG_BLOCK_TOKENS * KV_HEADS * LAYERS,
	};
	p->kv = (struct ig_step_kv){ &p->layout, &p->tables[0][0], BLOCKS };
	for (int s = 0; s < 2; s++)
		p->slabs[s] = calloc(SEQS * BLOCKS, p->layout.block_bytes);
	for (uint32_t s = 0; s < SEQS; s++)
		for (uint32_t b = 0; b < BLOCKS; b++)
			p->tables[s][b] =
				IG_BLOCK_WORD((s + b) % 2, (b * SEQS + s) * 5 % (SEQS * BLOCKS));
}

static void free_pages(struct pages *p)
{
	free(p->slabs[0]);
	free(p->slabs[1]);
}

/* ---- steps ---- */

struct feed {
	int32_t seq, first, n; /* tokens first … first + n - 1 of the sequence */
	bool want;
};

struct batch {
	struct ig_step step;
	int32_t ids[ROWS], positions[ROWS], row_seq[ROWS], seq_lens[SEQS], logit_rows[ROWS];
	struct ig_sample_params sample[ROWS];
	int32_t sampled[ROWS];
	float logits[ROWS * VOCAB];
	int32_t turned[ROWS][IG_ROPE_AXES];
	float rows[ROWS][WIDTH]; /* of rows from outside: every third one */
	const float *outside[ROWS];
};

static void make_batch(struct batch *b, const struct pages *p, const struct feed *f, int n)
{
	int32_t rows = 0, wanted = 0;

	memset(b, 0, sizeof *b);
	for (int s = 0; s < SEQS; s++)
		b->seq_lens[s] = 1;
	for (int i = 0; i < n; i++) {
		for (int32_t t = 0; t < f[i].n; t++, rows++) {
			b->ids[rows] = (f[i].seq * 31 + (f[i].first + t) * 7) % VOCAB;
			b->positions[rows] = f[i].first + t;
			b->row_seq[rows] = f[i].seq;
		}
		b->seq_lens[f[i].seq] = f[i].first + f[i].n;
		if (f[i].want)
			b->logit_rows[wanted++] = rows - 1;
	}
	for (int32_t i = 0; i < wanted; i++)
		b->sample[i] = (struct ig_sample_params){ .temperature = i % 2 ? 1.0f : 0.0f,
							  .top_p = 0.9f,
							  .top_k = 20,
							  .repetition_penalty = 1.0f,
							  .mask = -1,
							  .position = i,
							  .seed = 7 };
	b->step = (struct ig_step){
		.struct_size = sizeof b->step,
		.n_rows = rows,
		.n_seqs = SEQS,
		.n_logit_rows = wanted,
		.token_ids = b->ids,
		.positions = b->positions,
		.row_seq = b->row_seq,
		.seq_lens = b->seq_lens,
		.logit_rows = b->logit_rows,
		.sample = b->sample,
		.sampled_ids = b->sampled,
		.logits = b->logits,
		.slab_bases = p->slabs,
		.kv = &p->kv,
		.n_groups = 1,
	};
}

/* Every third row is no token's, and rows are turned by other positions than theirs. */
static void add_outside(struct batch *b)
{
	for (int32_t r = 0; r < b->step.n_rows; r++) {
		for (int i = 0; i < WIDTH; i++)
			b->rows[r][i] = (float)((b->positions[r] * 5 + i * 3) % 17 - 8) / 9;
		b->outside[r] = b->positions[r] % 3 ? NULL : b->rows[r];
		for (int i = 0; i < IG_ROPE_AXES; i++)
			b->turned[r][i] = b->positions[r] / 2 + 3;
	}
	b->step.outside = b->outside;
	b->step.rope_positions = b->turned[0];
}

/* Node by node, by the references. */
static void run_references(const struct ig_plan *plan, const struct ig_step *step)
{
	float **value = calloc(plan->n_values, sizeof *value);

	assert_non_null(value);
	for (uint32_t v = 0; v < plan->n_values; v++)
		value[v] = calloc((size_t)plan->values[v].shape.n_cols * ROWS, sizeof **value);
	for (uint32_t i = 0; i < plan->n_nodes; i++) {
		const struct ig_plan_node *n = &plan->nodes[i];
		struct ig_op_launch c = { .struct_size = sizeof c,
					  .params = n->params,
					  .step = step,
					  .n_in = n->n_in,
					  .n_out = n->n_out,
					  .n_weights = n->n_weights };
		for (uint32_t j = 0; j < n->n_in + n->n_out; j++) {
			ig_value v = j < n->n_in ? n->in[j] : n->out[j - n->n_in];
			const struct ig_shape *s = &plan->values[v].shape;
			struct ig_tensor t = {
				value[v],
				s->row_class == IG_ROWS_TOKENS ? step->n_rows : step->n_logit_rows,
				s->n_cols,
				s->n_cols * 4,
				IG_F32,
				IG_LAYOUT_ROWS
			};
			if (j < n->n_in)
				c.in[j] = t;
			else
				c.out[j - n->n_in] = t;
		}
		for (uint32_t j = 0; j < n->n_weights; j++) {
			const struct ig_plan_weight *w = &plan->weights[n->weight[j]];
			c.weight[j] = (struct ig_tensor){
				(void *)w->tensor->data,
				w->shape.n_rows,
				w->shape.n_cols,
				(int64_t)ig_dtype_row_bytes(w->shape.dtype, w->shape.n_cols),
				w->shape.dtype,
				IG_LAYOUT_ROWS
			};
		}
		n->op->reference(&c);
	}
	for (uint32_t v = 0; v < plan->n_values; v++)
		free(value[v]);
	free(value);
}

static const struct feed steps[][SEQS] = {
	{ { 0, 0, 5, false }, { 1, 0, 7, true } }, /* prefill, one of them whole */
	{ { 0, 5, 9, true }, { 1, 7, 1, true }, { 2, 0, 3, false } },  /* mixed */
	{ { 2, 3, 13, false } },				       /* nobody wants logits */
	{ { 0, 14, 1, true }, { 1, 8, 1, true }, { 2, 16, 1, true } }, /* decode */
	{ { 1, 9, 12, true } },					       /* over a block's border */
};

static void run_all(struct world *w, const char *isa, uint32_t threads, bool outside)
{
	struct ig_driver_options o = {
		.isa = isa, .n_threads = threads, .activations = "f32", .strict = 1
	};
	struct ig_program_limits limits = { ROWS, SEQS, ROWS, CONTEXT };
	struct ig_program_memory memory;
	struct ig_driver *d;
	struct ig_program *p;
	struct ig_error err = { 0 };
	struct pages ours, theirs;
	static struct batch a, b;

	if (ig_driver_open("cpu", &o, &d, &err) ||
	    ig_driver_lower(d, w->plan, &limits, &p, &memory, &err) || ig_program_load(p, &err))
		fail_msg("%s", err.text);
	assert_true(memory.weight_bytes > 0 && memory.scratch_bytes > 0);
	make_pages(&ours);
	make_pages(&theirs);
	for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
		int n = 0;
		while (n < SEQS && steps[i][n].n)
			n++;
		make_batch(&a, &ours, steps[i], n);
		make_batch(&b, &theirs, steps[i], n);
		if (outside) {
			add_outside(&a);
			add_outside(&b);
		}
		assert_int_equal(ig_program_submit(p, &a.step), 0);
		assert_int_equal(ig_program_wait(p), 0);
		run_references(w->plan, &b.step);
		for (int32_t j = 0; j < a.step.n_logit_rows * VOCAB; j++)
			if (!(fabsf(a.logits[j] - b.logits[j]) <= 2e-5f))
				fail_msg("%s, %u threads, step %zu, logit %d: %g, not %g", isa,
					 threads, i, j, (double)a.logits[j], (double)b.logits[j]);
		assert_memory_equal(a.sampled, b.sampled, sizeof a.sampled);
	}
	free_pages(&ours);
	free_pages(&theirs);
	ig_program_destroy(p);
	ig_driver_close(d);
}

static void test_programs_do_what_the_references_say(void **state)
{
	static const char *const isas[] = { "generic", "avx2",	       "avx512",    "avx512_bf16",
					    "neon",    "neon_dotprod", "neon_i8mm", "auto" };

	for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
		struct ig_driver_options o = { .isa = isas[i], .n_threads = 1 };
		struct ig_driver *d;
		if (ig_driver_open("cpu", &o, &d, NULL))
			continue; /* not on this machine */
		ig_driver_close(d);
		run_all(*state, isas[i], 1, false);
		run_all(*state, isas[i], 3, true);
	}
}

/* ---- the contract ---- */

static void test_refusals(void **state)
{
	struct world *w = *state;
	struct ig_error err = { 0 };
	struct ig_driver_options o = { 0 };
	struct ig_driver *d;

	assert_int_equal(ig_driver_open("quantum", &o, &d, &err), -ENOTSUP);
	/* And any GPU's that this build has. */
	assert_non_null(strstr(err.text, "driver \"quantum\" is unknown; known: auto, "));
	assert_non_null(strstr(err.text, "cpu"));
	o.isa = "avx9000";
	assert_int_equal(ig_driver_open("cpu", &o, &d, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "\"avx9000\""));
	o = (struct ig_driver_options){ .activations = "f64" };
	assert_int_equal(ig_driver_open("cpu", &o, &d, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "\"f64\""));
	o = (struct ig_driver_options){ .experts = "asleep" };
	assert_int_equal(ig_driver_open("cpu", &o, &d, &err), -ENOTSUP);
	assert_string_equal(err.text, "experts \"asleep\" are unknown; known: packed, mapped");
	o = (struct ig_driver_options){ .n_threads = 100000 };
	assert_int_equal(ig_driver_open("cpu", &o, &d, &err), -EINVAL);

	o = (struct ig_driver_options){ .n_threads = 2, .strict = 1 };
	assert_int_equal(ig_driver_open("cpu", &o, &d, &err), 0);
	assert_non_null(strstr(ig_driver_describe(d), "cpu, "));
	assert_non_null(strstr(ig_driver_describe(d), "2 threads"));
	assert_non_null(strstr(ig_driver_describe(d), ", strict"));
	struct ig_program_limits limits = { ROWS, SEQS, ROWS, 0 };
	struct ig_program_memory memory;
	struct ig_program *p;
	assert_int_equal(ig_driver_lower(d, w->plan, &limits, &p, &memory, &err), -EINVAL);
	limits.max_context = CONTEXT;
	assert_int_equal(ig_driver_lower(d, w->plan, &limits, &p, &memory, &err), 0);

	struct pages pages;
	static struct batch b;
	const struct feed one = { 1, 0, 4, true };
	make_pages(&pages);
	make_batch(&b, &pages, &one, 1);
	assert_int_equal(ig_program_submit(p, &b.step), -EINVAL); /* not loaded */
	assert_int_equal(ig_program_load(p, &err), 0);
	assert_int_equal(ig_program_load(p, &err), -EALREADY);
	assert_int_equal(ig_program_wait(p), -EINVAL); /* strict: nothing was submitted */
	assert_int_equal(ig_program_submit(p, &b.step), 0);
	assert_int_equal(ig_program_submit(p, &b.step), 0);
	assert_int_equal(ig_program_submit(p, &b.step), -EBUSY); /* strict: no wait between */
	assert_non_null(strstr(ig_program_error(p)->text, "2 steps"));
	uint64_t pulse = ig_driver_pulse(d);
	assert_int_equal(ig_program_wait(p), 0);
	assert_true(ig_driver_pulse(d) > pulse);
	assert_int_equal(ig_program_error(p)->text[0], 0);
	assert_int_equal(ig_program_wait(p), 0);
	assert_int_equal(ig_program_wait(p), -EINVAL);

	/* Every index that kernels follow. */
	struct ig_step good = b.step;
#define BAD(change, undo)                                                                          \
	do {                                                                                       \
		change;                                                                            \
		assert_int_equal(ig_program_submit(p, &b.step), -EINVAL);                          \
		undo;                                                                              \
		b.step = good;                                                                     \
	} while (0)
	BAD(b.step.struct_size = 3, );
	BAD(b.step.n_rows = 0, );
	BAD(b.step.n_rows = ROWS + 1, );
	BAD(b.step.n_seqs = SEQS + 1, );
	BAD(b.step.n_logit_rows = -1, );
	BAD(b.step.n_logit_rows = 5, ); /* more than rows */
	BAD(b.row_seq[2] = SEQS, b.row_seq[2] = 1);
	BAD(b.row_seq[2] = -1, b.row_seq[2] = 1);
	BAD(b.positions[3] = 4, b.positions[3] = 3); /* beyond the sequence's length */
	BAD(b.positions[0] = -1, b.positions[0] = 0);
	BAD(b.seq_lens[0] = CONTEXT + 1, b.seq_lens[0] = 1);
	BAD(b.logit_rows[0] = 4, b.logit_rows[0] = 3);
	BAD(b.row_seq[3] = 0, b.row_seq[3] = 1);		   /* sequences in order */
	BAD(b.positions[2] = 1, b.positions[2] = 2);		   /* positions in order */
	BAD(b.sample[0].n_adjusts = 1, b.sample[0].n_adjusts = 0); /* none in the step */
	BAD(b.sample[0].first_adjust = 1, b.sample[0].first_adjust = 0);
	BAD(b.sample[0].mask = 0, b.sample[0].mask = -1);
	BAD((b.step.token_from = b.logit_rows, b.step.prev_ids = b.sampled), ); /* no step before */
	BAD(b.step.next_ids = b.positions, ); /* the plan has no head that guesses */
	BAD(b.step.n_guesses = 1, );
	add_outside(&b);
	struct ig_step outside = b.step;
	b.step = good;
	BAD((b.step = outside, b.turned[1][2] = -1), b.turned[1][2] = 0);
	BAD((b.step = outside, b.turned[0][0] = (1 << 24) + 1), b.turned[0][0] = 0);
	int32_t sees_to[4] = { 3, 1, 3, 3 };
	BAD((b.step.sees_to = sees_to, sees_to[1] = 0), sees_to[1] = 1); /* not itself */
	BAD((b.step.sees_to = sees_to, sees_to[0] = 4), sees_to[0] = 3); /* beyond its sequence */
	b.step.sees_to = sees_to;
	assert_int_equal(ig_program_submit(p, &b.step), 0);
	assert_int_equal(ig_program_wait(p), 0);
	b.step = good;
	BAD(pages.kv.max_blocks = 0, pages.kv.max_blocks = BLOCKS);
	assert_int_equal(ig_program_submit(p, &b.step), 0);
	assert_int_equal(ig_program_wait(p), 0);
	ig_program_destroy(p);
	ig_program_destroy(NULL);
	ig_driver_close(d);
	ig_driver_close(NULL);

	/* Not strict: who submits again has waited, and nobody need have submitted. */
	o.strict = 0;
	assert_int_equal(ig_driver_open("cpu", &o, &d, &err), 0);
	assert_null(strstr(ig_driver_describe(d), "strict"));
	assert_int_equal(ig_driver_lower(d, w->plan, &limits, &p, &memory, &err), 0);
	assert_int_equal(ig_program_load(p, &err), 0);
	assert_int_equal(ig_program_wait(p), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(ig_program_submit(p, &b.step), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(ig_program_wait(p), 0);
	ig_program_destroy(p);
	ig_driver_close(d);
	free_pages(&pages);
}

/* Of a group with a window a step needs the blocks that its rows read, and no others. */
static void test_window(void **state)
{
	enum { WINDOW = 20 };
	struct world *w = *state;
	struct ig_driver_options o = { .n_threads = 1, .strict = 1, .activations = "f32" };
	const struct ig_program_limits limits = { ROWS, SEQS, ROWS, CONTEXT };
	static struct batch b;
	struct ig_program_memory memory;
	struct ig_checkpoint *file;
	struct ig_program *p;
	struct ig_driver *d;
	struct ig_plan *plan;
	struct ig_error err;
	struct pages pages;
	struct gw gw;

	write_file(&gw, WINDOW);
	assert_int_equal(ig_checkpoint_open_memory(gw.data, gw.len, "window", &file, &err), 0);
	assert_int_equal(ig_plan_record(w->modules, file, &plan, &err), 0);
	assert_int_equal(plan->info.groups[0].window, WINDOW);
	assert_int_equal(ig_driver_open("cpu", &o, &d, &err), 0);
	assert_int_equal(ig_driver_lower(d, plan, &limits, &p, &memory, &err), 0);
	assert_int_equal(ig_program_load(p, &err), 0);
	make_pages(&pages);
	for (int32_t at = 0; at < 60; at += 5) {
		const struct feed five = { 1, at, 5, true };
		float logits[VOCAB];
		/* position `at` reads from this block on */
		int32_t first = at >= WINDOW ? (at + 1 - WINDOW) / IG_BLOCK_TOKENS : 0;

		make_batch(&b, &pages, &five, 1);
		assert_int_equal(ig_program_submit(p, &b.step), 0);
		assert_int_equal(ig_program_wait(p), 0);
		memcpy(logits, b.logits, sizeof logits);
		/* again without what it has left behind */
		for (int32_t i = 0; i < first; i++)
			pages.tables[1][i] = IG_BLOCK_NONE;
		assert_int_equal(ig_program_submit(p, &b.step), 0);
		assert_int_equal(ig_program_wait(p), 0);
		assert_memory_equal(logits, b.logits, sizeof logits);
		for (int32_t i = first; i <= (at + 4) / IG_BLOCK_TOKENS; i++) {
			uint32_t word = pages.tables[1][i];

			pages.tables[1][i] = IG_BLOCK_NONE;
			assert_int_equal(ig_program_submit(p, &b.step), -EINVAL);
			assert_non_null(strstr(ig_program_error(p)->text, "has no block"));
			pages.tables[1][i] = word;
		}
	}
	ig_program_destroy(p);
	/* without a window every block is read */
	assert_int_equal(ig_driver_lower(d, w->plan, &limits, &p, &memory, &err), 0);
	assert_int_equal(ig_program_load(p, &err), 0);
	assert_int_equal(pages.tables[1][0], IG_BLOCK_NONE);
	assert_int_equal(ig_program_submit(p, &b.step), -EINVAL);
	assert_string_equal(ig_program_error(p)->text,
			    "sequence 1 reads from position 55 on; its table "
			    "of cache group 0 has no block 0");
	ig_program_destroy(p);
	ig_driver_close(d);
	ig_plan_destroy(plan);
	ig_checkpoint_close(file);
	gw_finish(&gw);
	free_pages(&pages);
}

/* Of a model with states each row must be in a segment, from a state of the step to another one. */
static void test_segments(void **state)
{
	struct world *w = *state;
	struct ig_driver_options o = { .n_threads = 1, .strict = 1, .activations = "f32" };
	const struct ig_program_limits limits = { ROWS, SEQS, ROWS, CONTEXT };
	const struct feed feeds[] = { { 0, 0, 3, true }, { 1, 5, 4, true } };
	const struct ig_kv_layout layout = { .n_layers = 2,
					     .n_kv_heads = 1,
					     .head_dim = 8,
					     .kind = IG_CACHE_STATE,
					     .block_bytes = 64 };
	uint32_t words[3][2] = { { 0, 1 }, { 2, 3 }, { 4, 5 } };
	struct ig_step_segment segments[] = { { 0, 3, -1, 0 }, { 3, 1, 1, 2 }, { 4, 3, 2, 2 } };
	struct ig_step_kv kv[2];
	static struct batch b;
	struct ig_program_memory memory;
	struct ig_plan plan = *w->plan;
	struct ig_program *p;
	struct ig_driver *d;
	struct ig_error err;
	struct pages pages;

	plan.info.groups[1] = (struct ig_cache_group){ .struct_size = sizeof plan.info.groups[1],
						       .n_layers = 2,
						       .n_kv_heads = 1,
						       .head_dim = 8,
						       .kind = IG_CACHE_STATE };
	plan.info.n_groups = 2;
	assert_int_equal(ig_driver_open("cpu", &o, &d, &err), 0);
	assert_int_equal(ig_driver_lower(d, &plan, &limits, &p, &memory, &err), 0);
	assert_int_equal(ig_program_load(p, &err), 0);
	make_pages(&pages);
	make_batch(&b, &pages, feeds, 2);
	kv[0] = pages.kv;
	kv[1] = (struct ig_step_kv){ &layout, &words[0][0], 2 };
	b.step.kv = kv;
	b.step.n_groups = 2;
	b.step.segments = segments;
	b.step.n_segments = b.step.n_states = 3;
	const struct ig_step good = b.step;
#define WRONG(words_, change, undo)                                                                \
	do {                                                                                       \
		change;                                                                            \
		assert_int_equal(ig_program_submit(p, &b.step), -EINVAL);                          \
		if (!strstr(ig_program_error(p)->text, words_))                                    \
			fail_msg("%s", ig_program_error(p)->text);                                 \
		undo;                                                                              \
		b.step = good;                                                                     \
	} while (0)
	WRONG("segments of 0 rows in a step of 7", b.step.n_segments = 0, );
	WRONG("segments of 4 rows in a step of 7", b.step.n_segments = 2, );
	WRONG("segment 0 has 4 rows", segments[0].n_rows = 4, segments[0].n_rows = 3);
	WRONG("segment 1 has 0 rows", segments[1].n_rows = 0, segments[1].n_rows = 1);
	WRONG("segment 2 has 4 rows", segments[2].n_rows = 4, segments[2].n_rows = 3);
	WRONG("segment 1 has 1 rows from row 2", segments[1].first_row = 2,
	      segments[1].first_row = 3);
	WRONG("segment 0 begins at position 0 with", segments[0].from = 1, segments[0].from = -1);
	WRONG("segment 1 begins at position 5 without", segments[1].from = -1,
	      segments[1].from = 1);
	WRONG("segment 2 does not begin", segments[2].from = 1, segments[2].from = 2);
	WRONG("segment 0 has state 3 of 3", segments[0].to = 3, segments[0].to = 0);
	WRONG("segment 0 has state -1 of 3", segments[0].to = -1, segments[0].to = 0);
	WRONG("segment 1 has state 3 of 3", segments[1].from = 3, segments[1].from = 1);
	WRONG("state 0 of cache group 1 has no part 1", words[0][1] = IG_BLOCK_NONE,
	      words[0][1] = 1);
	WRONG("have 1 parts of 2", kv[1].max_blocks = 1, kv[1].max_blocks = 2);
#undef WRONG
	assert_int_equal(ig_program_submit(p, &b.step), 0);
	assert_int_equal(ig_program_wait(p), 0);
	ig_program_destroy(p);
	ig_driver_close(d);
	free_pages(&pages);
}

/* ---- more threads than processors, and copies of packed weights ---- */

struct outcome {
	float logits[sizeof steps / sizeof *steps][ROWS * VOCAB];
	int32_t sampled[sizeof steps / sizeof *steps][ROWS];
};

/* All steps, some times over: they begin anew each time. */
static void run_steps(struct ig_program *p, int times, struct outcome *out)
{
	static struct batch b;
	struct pages pages;

	for (int t = 0; t < times; t++) {
		memset(out, 0, sizeof *out);
		make_pages(&pages);
		for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
			int n = 0;
			while (n < SEQS && steps[i][n].n)
				n++;
			make_batch(&b, &pages, steps[i], n);
			assert_int_equal(ig_program_submit(p, &b.step), 0);
			assert_int_equal(ig_program_wait(p), 0);
			memcpy(out->logits[i], b.logits, sizeof b.logits);
			memcpy(out->sampled[i], b.sampled, sizeof b.sampled);
		}
		free_pages(&pages);
	}
}

static void lower(const struct world *w, uint32_t threads, struct ig_driver **d,
		  struct ig_program **p)
{
	const struct ig_driver_options o = { .isa = "auto", .n_threads = threads, .strict = 1 };
	const struct ig_program_limits limits = { ROWS, SEQS, ROWS, CONTEXT };
	struct ig_program_memory memory;
	struct ig_error err;

	if (ig_driver_open("cpu", &o, d, &err) ||
	    ig_driver_lower(*d, w->plan, &limits, p, &memory, &err))
		fail_msg("%s", err.text);
}

/* Most of 64 threads have no processor when they are waited for. */
static void test_sixty_four_threads(void **state)
{
	static struct outcome one, many;
	struct ig_driver *d;
	struct ig_program *p;

	lower(*state, 1, &d, &p);
	assert_int_equal(ig_program_load(p, NULL), 0);
	run_steps(p, 1, &one);
	ig_program_destroy(p);
	ig_driver_close(d);
	lower(*state, 64, &d, &p);
	assert_int_equal(ig_program_load(p, NULL), 0);
	run_steps(p, 20, &many);
	ig_program_destroy(p);
	ig_driver_close(d);
	assert_memory_equal(&one, &many, sizeof one);
}

/* The phases that a step of these rows opens for all threads, each of which ends with a barrier. */
static uint64_t n_opened(struct ig_driver *d, struct ig_program *p, struct pages *pages,
			 const struct feed *f, int n, float *logits)
{
	static struct batch b;
	uint64_t before = ig_driver_pulse(d);

	make_batch(&b, pages, f, n);
	assert_int_equal(ig_program_submit(p, &b.step), 0);
	assert_int_equal(ig_program_wait(p), 0);
	memcpy(logits, b.logits, VOCAB * sizeof *logits);
	return ig_driver_pulse(d) - before;
}

/* In a step of one row every phase of rows is done by the thread that finishes the products before it: norms,
 * conversions and RoPE cost no barrier.  With a row of another sequence beside it they are phases of
 * their own, and the first row has the same bits. */
static void test_barriers_of_one_row(void **state)
{
	static const struct feed prompts[] = { { 0, 0, 6, true }, { 1, 0, 6, true } };
	const struct world *w = *state;

	for (uint32_t threads = 1; threads <= 3; threads++) {
		float alone[VOCAB], beside[VOCAB];
		struct ig_driver *d;
		struct ig_program *p;
		struct pages pages;

		lower(w, threads, &d, &p);
		assert_int_equal(ig_program_load(p, NULL), 0);
		make_pages(&pages);
		n_opened(d, p, &pages, prompts, 2, alone);
		for (int32_t at = 6; at < 9; at++) {
			const struct feed rows[] = { { 0, at, 1, true }, { 1, at, 1, true } };
			uint64_t few = n_opened(d, p, &pages, rows, 1, alone);
			uint64_t many = n_opened(d, p, &pages, rows, 2, beside);

			/* of a layer: q, k and v; output; gate and up; down (attention has one unit
			 * here).  Then the logits, and the end. */
			assert_int_equal(few, LAYERS * 4 + 2);
			/* and norms (the first one with embed), RoPE, attention; the last norm, sampling */
			assert_int_equal(many, LAYERS * 8 + 4);
			assert_memory_equal(alone, beside, sizeof alone);
		}
		free_pages(&pages);
		ig_program_destroy(p);
		ig_driver_close(d);
	}
}

static enum ig_packed_result run_packed(const struct world *w, const char *path,
					struct ig_packed_file *f, struct outcome *out)
{
	struct ig_driver *d;
	struct ig_program *p;
	struct ig_error err;
	uint64_t n_bytes, layout;

	lower(w, 2, &d, &p);
	layout = ig_program_packed_layout(p, &n_bytes);
	assert_true(layout && n_bytes > 64 << 10);
	f->path = path;
	memcpy(f->name, &layout, sizeof layout);
	if (ig_program_load_packed(p, f, &err))
		fail_msg("%s", err.text);
	run_steps(p, 2, out);
	ig_program_destroy(p);
	ig_driver_close(d);
	return f->result;
}

static void test_copies_have_the_same_bits(void **state)
{
	static struct outcome plain, copied;
	struct ig_driver *d;
	struct ig_program *p;
	struct ig_packed_file f = { 0 };
	char folder[] = "/tmp/ingot-packed-XXXXXX", path[64];
	int fd;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/copy", folder);
	lower(*state, 2, &d, &p);
	assert_int_equal(ig_program_load(p, NULL), 0);
	run_steps(p, 1, &plain);
	ig_program_destroy(p);
	ig_driver_close(d);

	assert_int_equal(run_packed(*state, path, &f, &copied), IG_PACKED_WRITTEN);
	assert_memory_equal(&plain, &copied, sizeof plain);
	assert_int_equal(run_packed(*state, path, &f, &copied), IG_PACKED_MAPPED);
	assert_memory_equal(&plain, &copied, sizeof plain);
	assert_int_equal(f.why.code, 0);

	/* what another made is a miss, and is replaced */
	f.name[15] = 1;
	assert_int_equal(run_packed(*state, path, &f, &copied), IG_PACKED_WRITTEN);
	assert_int_equal(f.why.code, -EBADMSG);
	assert_memory_equal(&plain, &copied, sizeof plain);
	/* and so is a damaged one */
	chmod(path, 0600);
	fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, "\x55\xaa\x55\xaa", 4, (64 << 10) + 1000), 4);
	close(fd);
	assert_int_equal(run_packed(*state, path, &f, &copied), IG_PACKED_WRITTEN);
	assert_int_equal(f.why.code, -EBADMSG);
	assert_memory_equal(&plain, &copied, sizeof plain);
	assert_int_equal(run_packed(*state, path, &f, &copied), IG_PACKED_MAPPED);
	unlink(path);

	/* without a place for it the model is loaded all the same */
	assert_int_equal(run_packed(*state, "/dev/null/copy", &f, &copied), IG_PACKED_NONE);
	assert_non_null(strstr(f.why.text, "/dev/null/copy: "));
	assert_memory_equal(&plain, &copied, sizeof plain);
	rmdir(folder);
}

static void test_slabs(void **state)
{
	struct ig_driver_options o = { .n_threads = 1 };
	struct ig_driver *d;
	assert_int_equal(ig_driver_open("cpu", &o, &d, NULL), 0);
	uint8_t *slab = ig_driver_map_slab(d, 1 << 20);
	assert_non_null(slab);
	for (int i = 0; i < 1 << 20; i += 4096)
		assert_int_equal(slab[i], 0);
	slab[(1 << 20) - 1] = 1;
	ig_driver_unmap_slab(d, slab, 1 << 20);
	assert_null(ig_driver_map_slab(d, UINT64_MAX / 2));
	ig_driver_close(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_programs_do_what_the_references_say),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_window),
		cmocka_unit_test(test_segments),
		cmocka_unit_test(test_slabs),
		cmocka_unit_test(test_sixty_four_threads),
		cmocka_unit_test(test_barriers_of_one_row),
		cmocka_unit_test(test_copies_have_the_same_bits),
	};
	return cmocka_run_group_tests_name("programs", tests, setup, teardown);
}
