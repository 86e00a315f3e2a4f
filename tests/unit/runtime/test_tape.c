/*
 * test_tape.c: what a tape refuses, where its barriers stand, where its scratch lies.
 *
 * Barriers are compared with a brute-force oracle over random tapes: in every step, two
 * dispatches that run and touch the same bytes, one of them writing, have a barrier
 * between them; and without any one of the barriers that would not be so.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "runtime/gpu/tape.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct ig_shader shader = { .struct_size = sizeof shader, .name = "toy" };
static const struct ig_gpu_facts facts = { .struct_size = sizeof facts,
					   .kind = IG_GPU_METAL,
					   .max_threadgroup_bytes = 32768,
					   .max_threads = 1024 };
static const uint32_t args = 7;
#define H ig_gpu_tape_host
#define LOGIT_ROWS 4

static struct ig_gpu_tape *make(void)
{
	struct ig_gpu_tape *t;
	assert_int_equal(ig_gpu_tape_create(&facts, LOGIT_ROWS, &t), 0);
	return t;
}

static struct ig_gpu_dispatch dispatch(void)
{
	return (struct ig_gpu_dispatch){
		.struct_size = sizeof(struct ig_gpu_dispatch),
		.shader = &shader,
		.kernel = "toy",
		.args = &args,
		.n_arg_bytes = sizeof args,
		.threads = 32,
		.when_max = UINT32_MAX,
		.grid = { { IG_LIVE_ROWS, 1, 1, 1 }, { 0, 1, 1, 1 }, { 0, 1, 1, 1 } },
	};
}

static void bind(struct ig_gpu_dispatch *d, int32_t buffer, uint64_t offset, uint64_t n_bytes,
		 uint32_t access)
{
	d->bind[d->n_binds++] = (struct ig_gpu_bind){ { buffer, 0, offset }, n_bytes, access, 0 };
}

static void emit(struct ig_gpu_tape *t, int32_t read, int32_t write)
{
	struct ig_gpu_dispatch d = dispatch();
	if (read >= 0)
		bind(&d, read, 0, 64, IG_GPU_READ);
	if (write >= 0)
		bind(&d, write, 0, 64, IG_GPU_WRITE);
	assert_int_equal(H.dispatch(t, &d), 0);
}

static int32_t value(struct ig_gpu_tape *t, int64_t n_cols, uint32_t rows)
{
	struct ig_gpu_tensor v;
	assert_int_equal(ig_gpu_tape_value(t, IG_F32, n_cols, IG_ROWS_TOKENS, rows, &v), 0);
	assert_int_equal(v.row_stride % 64, 0);
	assert_true(v.row_stride >= (uint64_t)n_cols * 4);
	return v.ref.buffer;
}

/* ---- refusals ---- */

static void test_fields(void **state)
{
	struct ig_gpu_ref weight, constant, cache;

	/* Errors stick, so each case has a tape of its own. */
#define BAD(code, says, change)                                                                    \
	do {                                                                                       \
		struct ig_gpu_tape *t = make();                                                    \
		struct ig_gpu_dispatch d = dispatch();                                             \
		struct ig_error err = { 0 };                                                       \
		int32_t v = value(t, 8, 3);                                                        \
		assert_int_equal(ig_gpu_tape_weight(t, 96, &weight), 0);                           \
		assert_int_equal(H.constant(t, &args, 4, &constant), 0);                           \
		assert_int_equal(H.kv(t, 0, 1, &cache), 0);                                        \
		bind(&d, v, 0, 64, IG_GPU_READ);                                                   \
		assert_int_equal(H.dispatch(t, &d), 0);                                            \
		t->node = 5;                                                                       \
		change;                                                                            \
		assert_int_equal(H.dispatch(t, &d), code);                                         \
		struct ig_gpu_dispatch good = dispatch();                                          \
		assert_int_equal(H.dispatch(t, &good), code);                                      \
		assert_int_equal(t->n_dispatches, 1);                                              \
		assert_int_equal(ig_gpu_tape_close(t, &err), code);                                \
		assert_non_null(strstr(err.text, "node 5: "));                                     \
		if (!strstr(err.text, says))                                                       \
			fail_msg("\"%s\" does not say \"%s\"", err.text, says);                    \
		ig_gpu_tape_destroy(t);                                                            \
	} while (0)
	char name[200];
	memset(name, 'x', sizeof name - 1);
	name[sizeof name - 1] = 0;
	BAD(-EINVAL, "bytes, expected", d.struct_size--);
	BAD(-EINVAL, "without a name", d.kernel = "");
	BAD(-EINVAL, "without a name", d.kernel = NULL);
	BAD(-EINVAL, "without a name", d.kernel = name);
	BAD(-ENOTSUP, "toy: its shader was not built", d.shader = NULL);
	BAD(-EINVAL, "0 bytes of arguments", d.n_arg_bytes = 0);
	BAD(-EINVAL, "6 bytes of arguments", d.n_arg_bytes = 6);
	BAD(-EINVAL, "260 bytes of arguments", d.n_arg_bytes = IG_GPU_MAX_ARGS + 4);
	BAD(-EINVAL, "bytes of arguments", d.args = NULL);
	BAD(-EINVAL, "17 operands", d.n_binds = IG_GPU_MAX_BINDS + 1);
	BAD(-EINVAL, "0 threads", d.threads = 0);
	BAD(-EINVAL, "33 threads", d.threads = 33);
	BAD(-ENOTSUP, "1056 threads", d.threads = 1056);
	BAD(-EINVAL, "40 bytes of threadgroup", d.threadgroup_bytes = 40);
	BAD(-ENOTSUP, "32784 bytes of threadgroup", d.threadgroup_bytes = 32784);
	BAD(-EINVAL, "never runs", d.when_max = 0);
	BAD(-EINVAL, "never runs", d.when_min = 2);
	BAD(-EINVAL, "never runs", (d.when_live = IG_LIVE_ROWS, d.when_min = 3, d.when_max = 2));
	BAD(-EINVAL, "never runs", d.when_live = IG_N_LIVE);
	BAD(-EINVAL, "grid x", d.grid[0].live = IG_N_LIVE);
	BAD(-EINVAL, "grid y", d.grid[1].mul = 0);
	BAD(-EINVAL, "grid z", d.grid[2].div = 0);
	BAD(-EINVAL, "grid x", d.grid[0].times = 0);
	BAD(-EINVAL, "grid x", d.grid[0].mul = UINT32_MAX);
	BAD(-EINVAL, "operand 0 is buffer 4 of 4", d.bind[0].ref.buffer = 4);
	BAD(-EINVAL, "operand 0 is buffer -2", d.bind[0].ref.buffer = -2);
	BAD(-EINVAL, "access 0", d.bind[0].access = 0);
	BAD(-EINVAL, "access 0x4", d.bind[0].access = IG_GPU_TOUCH);
	BAD(-EINVAL, "access 0x9", d.bind[0].access = 9);
	BAD(-EINVAL, "65 bytes at 0 of 64 in a row", d.bind[0].n_bytes = 65);
	BAD(-EINVAL, "64 bytes at 4 of 64 in a row", d.bind[0].ref.offset = 4);
	BAD(-EINVAL, "at 18446744073709551615", d.bind[0].ref.offset = UINT64_MAX);
	BAD(-EINVAL, "operand 0: 0 bytes", d.bind[0].n_bytes = 0);
	BAD(-EINVAL, "operand 1: 97 bytes at 0 of 96", bind(&d, weight.buffer, 0, 97, IG_GPU_READ));
	BAD(-EINVAL, "can't be written", bind(&d, weight.buffer, 0, 4, IG_GPU_WRITE));
	BAD(-EINVAL, "can't be written", bind(&d, constant.buffer, 0, 4, IG_GPU_WRITE));
	BAD(-EINVAL, "the cache can't be bound", bind(&d, cache.buffer, 0, 1, IG_GPU_READ));
	BAD(-EINVAL, "clusters of 9 threadgroups", (d.cluster = 9, d.grid[0].times = 9));
	BAD(-EINVAL, "clusters of 2 threadgroups of a grid of 3",
	    (d.cluster = 2, d.grid[0].times = 3));
	BAD(-EINVAL, "6 boxes", d.n_boxes = IG_GPU_MAX_BOXES + 1);
#define BOX(...) (d.n_boxes = 1, d.box[0] = (struct ig_gpu_box){ __VA_ARGS__ })
	BAD(-EINVAL, "box 0 is of operand 1", BOX(1, 8, 3, 8, 64));
	BAD(-EINVAL, "boxes of 0 rows of operand 0, which is 3 x 8", BOX(0, 0, 3, 8, 64));
	BAD(-EINVAL, "boxes of 257 rows", BOX(0, 257, 3, 8, 64));
	BAD(-EINVAL, "which is 0 x 8", BOX(0, 8, 0, 8, 64));
	BAD(-EINVAL, "which is 3 x 0", BOX(0, 8, 3, 0, 64));
	BAD(-EINVAL, "rows 40 bytes apart", BOX(0, 8, 3, 8, 40));
	BAD(-EINVAL, "rows 16 bytes apart", BOX(0, 8, 3, 16, 16));
	BAD(-EINVAL, "apart", BOX(0, 8, 3, 8, (uint64_t)1 << 60));
	BAD(-EINVAL, "4 rows, 64 bytes apart, at 0 of 192", BOX(0, 8, 4, 8, 64));
	BAD(-EINVAL, "64 bytes apart, at 0 of 192", BOX(0, 8, UINT32_MAX, 8, 64));
	BAD(-EINVAL, "at 8 of 192",
	    (d.bind[0].ref.offset = 8, d.bind[0].n_bytes = 16, BOX(0, 8, 2, 8, 64)));
	BAD(-EINVAL, "3 rows, 32 bytes apart, at 16 of 96",
	    (bind(&d, weight.buffer, 16, 80, IG_GPU_READ), BOX(1, 8, 3, 16, 32)));
#undef BOX
#undef BAD
}

/* Boxes that just fit, or are of an operand left out, are kept. */
static void test_boxes(void **state)
{
	const struct ig_gpu_box box[] = { { 0, 256, 3, 8, 64 },
					  { 1, 8, 3, 16, 32 },
					  { 2, 1, 9, 9, 32 } };
	struct ig_gpu_tape *t = make();
	struct ig_gpu_dispatch d = dispatch();
	struct ig_gpu_ref weight;

	assert_int_equal(ig_gpu_tape_weight(t, 96, &weight), 0);
	bind(&d, value(t, 8, 3), 0, 64, IG_GPU_READ);
	bind(&d, weight.buffer, 0, 96, IG_GPU_READ);
	bind(&d, -1, 0, 0, 0);
	d.cluster = 2;
	d.grid[0].times = 4;
	d.n_boxes = 3;
	memcpy(d.box, box, sizeof box);
	assert_int_equal(H.dispatch(t, &d), 0);
	assert_int_equal(t->dispatches[0].d.cluster, 2);
	assert_int_equal(t->dispatches[0].d.n_boxes, 3);
	assert_memory_equal(t->dispatches[0].d.box, box, sizeof box);
	ig_gpu_tape_destroy(t);
}

static void test_buffers(void **state)
{
	struct ig_gpu_ref r, again;
	struct ig_gpu_tensor v;

#define BAD(says, launch)                                                                          \
	do {                                                                                       \
		struct ig_gpu_tape *t = make();                                                    \
		struct ig_error err = { 0 };                                                       \
		assert_int_equal(launch, -EINVAL);                                                 \
		assert_int_equal(ig_gpu_tape_close(t, &err), -EINVAL);                             \
		assert_non_null(strstr(err.text, says));                                           \
		ig_gpu_tape_destroy(t);                                                            \
	} while (0)
	BAD("a buffer of 0 bytes", H.scratch(t, 0, &r));
	BAD("a buffer of", H.scratch(t, UINT64_MAX, &r));
	BAD("a buffer of 0 bytes", ig_gpu_tape_weight(t, 0, &r));
	BAD("element type 2", ig_gpu_tape_value(t, IG_Q4_0, 32, 0, 1, &v));
	BAD("a value of", ig_gpu_tape_value(t, IG_F32, 0, 0, 1, &v));
	BAD("a value of", ig_gpu_tape_value(t, IG_F32, 1, 0, 0, &v));
	BAD("logits of 0", H.logits(t, 0, &r));
	BAD("another number", H.logits(t, 10, &r) ? 0 : H.logits(t, 11, &r));
	BAD("after the tape was closed", ig_gpu_tape_close(t, NULL) ? 0 : H.scratch(t, 4, &r));
	BAD("is closed", ig_gpu_tape_close(t, NULL) ? 0 : ig_gpu_tape_close(t, NULL));
#undef BAD
	struct ig_gpu_tape *t = make();
	assert_int_equal(H.ids(t, &r), 0);
	assert_int_equal(H.ids(t, &again), 0);
	assert_int_equal(r.buffer, again.buffer);
	assert_int_equal(t->buffers[r.buffer].n_bytes, IG_STEPS_IN_FLIGHT * 2 * LOGIT_ROWS * 4);
	assert_int_equal(H.logits(t, 10, &r), 0);
	assert_int_equal(H.logits(t, 10, &again), 0);
	assert_int_equal(r.buffer, again.buffer);
	assert_int_equal(t->buffers[r.buffer].n_bytes, LOGIT_ROWS * 10 * 4);
	assert_int_equal(H.kv(t, 1, 2, &r), 0);
	assert_int_equal(H.kv(t, 1, 3, &again), 0);
	assert_int_not_equal(r.buffer, again.buffer);
	assert_int_equal(H.kv(t, 1, 2, &again), 0);
	assert_int_equal(r.buffer, again.buffer);
	/* Constants keep their bytes, each from a multiple of 256 on. */
	uint8_t bytes[5000];
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (uint8_t)(i * 7);
	for (size_t n = 1; n < sizeof bytes; n = n * 3 + 1) {
		assert_int_equal(H.constant(t, bytes, n, &r), 0);
		const struct ig_gpu_tape_buffer *b = &t->buffers[r.buffer];
		assert_int_equal(b->offset % 256, 0);
		assert_int_equal(b->offset + n, t->n_constant_bytes);
		assert_memory_equal(t->constants + b->offset, bytes, n);
	}
	assert_memory_equal(t->constants, bytes, 1);
	ig_gpu_tape_destroy(t);
	ig_gpu_tape_destroy(NULL);
}

/* A recorded dispatch is the tape's own. */
static void test_copies(void **state)
{
	struct ig_gpu_tape *t = make();
	struct ig_gpu_dispatch d = dispatch();
	char name[] = "mine";
	uint32_t mine = 3;

	d.kernel = name;
	d.args = &mine;
	bind(&d, -1, 0, 0, 0); /* an operand left out */
	assert_int_equal(H.dispatch(t, &d), 0);
	name[0] = 0;
	mine = 4;
	assert_string_equal(t->dispatches[0].d.kernel, "mine");
	assert_int_equal(*(const uint32_t *)t->dispatches[0].d.args, 3);
	assert_int_equal(t->dispatches[0].node, UINT32_MAX);
	ig_gpu_tape_destroy(t);
}

/* ---- barriers by hand ---- */

static void assert_barriers(struct ig_gpu_tape *t, const char *expected)
{
	char got[64] = "";
	assert_int_equal(ig_gpu_tape_close(t, NULL), 0);
	for (uint32_t i = 0; i < t->n_dispatches; i++)
		strcat(got, t->dispatches[i].barrier ? "|" : ".");
	assert_string_equal(got, expected);
	ig_gpu_tape_destroy(t);
}

static void test_hazards(void **state)
{
	struct ig_gpu_tape *t = make();
	int32_t a = value(t, 16, 3), b = value(t, 16, 3), c = value(t, 16, 3);
	emit(t, -1, a);
	emit(t, -1, b); /* nothing in common */
	emit(t, a, c);	/* read after write */
	emit(t, a, -1); /* two reads */
	emit(t, b, a);	/* write after read */
	emit(t, -1, a); /* write after write */
	emit(t, b, -1); /* the barrier before it is enough */
	assert_barriers(t, "..|.||.");

	/* Columns of one value, bytes of one scratch. */
	t = make();
	a = value(t, 64, 3);
	struct ig_gpu_ref s;
	assert_int_equal(H.scratch(t, 1024, &s), 0);
	static const struct {
		bool scratch;
		uint64_t offset, n;
		bool write;
	} uses[] = {
		{ false, 0, 64, true }, { false, 64, 192, true }, { false, 63, 1, false },
		{ true, 0, 512, true }, { true, 512, 512, true }, { true, 511, 1, false },
		{ true, 600, 1, true },
	};
	for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
		struct ig_gpu_dispatch d = dispatch();
		bind(&d, uses[i].scratch ? s.buffer : a, uses[i].offset, uses[i].n,
		     uses[i].write ? IG_GPU_WRITE : IG_GPU_READ);
		assert_int_equal(H.dispatch(t, &d), 0);
	}
	assert_barriers(t, "..|..|.");

	/* The cache: by group and layer. */
	t = make();
	for (uint32_t i = 0; i < 6; i++) {
		static const uint32_t layer[] = { 0, 1, 0, 0, 1, 1 };
		static const bool write[] = { true, true, false, false, false, true };
		struct ig_gpu_dispatch d = dispatch();
		assert_int_equal(H.kv(t, 0, layer[i], &s), 0);
		bind(&d, s.buffer, 0, 0, IG_GPU_TOUCH | (write[i] ? IG_GPU_WRITE : IG_GPU_READ));
		assert_int_equal(H.dispatch(t, &d), 0);
	}
	assert_barriers(t, "..|..|");

	/* Kernels for few and for many rows never run in the same step. */
	t = make();
	a = value(t, 16, 3);
	b = value(t, 16, 3);
	emit(t, -1, a);
	for (int i = 0; i < 2; i++) {
		struct ig_gpu_dispatch d = dispatch();
		d.when_live = IG_LIVE_ROWS;
		d.when_min = i ? 17 : 1;
		d.when_max = i ? UINT32_MAX : 16;
		bind(&d, a, 0, 64, IG_GPU_READ);
		bind(&d, b, 0, 64, IG_GPU_WRITE);
		assert_int_equal(H.dispatch(t, &d), 0);
	}
	emit(t, b, -1);
	assert_barriers(t, ".|.|");
}

/* What a head that guesses recorded runs in steps that have it; of such a plan there are twice as many logits. */
static void test_head(void **state)
{
	struct ig_gpu_tape *t = make();
	int32_t a = value(t, 16, 3), b = value(t, 16, 3);
	uint32_t live[IG_N_LIVE] = { 1, 5 }, at = 0, grid[3];
	struct ig_gpu_ref r;
	bool barrier;

	t->first_head_node = 1;
	t->node = 0;
	emit(t, -1, a);
	t->node = 1;
	emit(t, a, b);
	assert_int_equal(H.logits(t, 10, &r), 0);
	assert_int_equal(t->buffers[r.buffer].n_bytes, 2 * LOGIT_ROWS * 10 * 4);
	assert_int_equal(ig_gpu_tape_close(t, NULL), 0);
	assert_int_equal(ig_gpu_tape_next(t, live, &at, grid, &barrier), 0);
	assert_int_equal(ig_gpu_tape_next(t, live, &at, grid, &barrier), UINT32_MAX);
	live[IG_LIVE_HEAD] = 1;
	at = 1;
	assert_int_equal(ig_gpu_tape_next(t, live, &at, grid, &barrier), 1);
	assert_true(barrier);
	assert_int_equal(grid[0], 5);
	ig_gpu_tape_destroy(t);
}

/* The barrier of a dispatch that does not run stands before the next one that does. */
static void test_carried(void **state)
{
	struct ig_gpu_tape *t = make();
	int32_t a = value(t, 16, 3), b = value(t, 16, 3), c = value(t, 16, 3);
	emit(t, -1, a);
	struct ig_gpu_dispatch d = dispatch();
	d.when_live = IG_LIVE_WANT_LOGITS;
	d.when_min = 1;
	bind(&d, a, 0, 64, IG_GPU_READ);
	bind(&d, b, 0, 64, IG_GPU_WRITE);
	assert_int_equal(H.dispatch(t, &d), 0);
	emit(t, a, c); /* depends on the first alone */
	assert_int_equal(ig_gpu_tape_close(t, NULL), 0);
	assert_false(t->dispatches[0].barrier);
	assert_true(t->dispatches[1].barrier);
	assert_false(t->dispatches[2].barrier);

	uint32_t live[IG_N_LIVE] = { 1, 5 }, at = 0, grid[3];
	bool barrier;
	assert_int_equal(ig_gpu_tape_next(t, live, &at, grid, &barrier), 0);
	assert_false(barrier);
	assert_int_equal(grid[0], 5);
	assert_int_equal(ig_gpu_tape_next(t, live, &at, grid, &barrier), 2);
	assert_true(barrier);
	assert_int_equal(ig_gpu_tape_next(t, live, &at, grid, &barrier), UINT32_MAX);
	live[IG_LIVE_WANT_LOGITS] = 1;
	at = 1;
	assert_int_equal(ig_gpu_tape_next(t, live, &at, grid, &barrier), 1);
	assert_true(barrier);
	assert_int_equal(ig_gpu_tape_next(t, live, &at, grid, &barrier), 2);
	assert_false(barrier);
	ig_gpu_tape_destroy(t);
}

static void test_grids(void **state)
{
	struct ig_gpu_dispatch d = dispatch();
	uint32_t live[IG_N_LIVE] = { 1, 33, 0, 4 }, grid[3];

	d.grid[0] = (struct ig_gpu_extent){ IG_LIVE_ROWS, 1, 16, 2 };
	d.grid[1] = (struct ig_gpu_extent){ IG_LIVE_SEQS, 3, 1, 1 };
	d.grid[2] = (struct ig_gpu_extent){ IG_LIVE_ONE, 7, 2, 1 };
	assert_true(ig_gpu_dispatch_grid(&d, live, grid));
	assert_int_equal(grid[0], 6);
	assert_int_equal(grid[1], 12);
	assert_int_equal(grid[2], 4);
	d.grid[1].live = IG_LIVE_LOGIT_ROWS;
	assert_false(ig_gpu_dispatch_grid(&d, live, grid)); /* nothing to do */
	d.grid[1].live = IG_LIVE_ONE;
	d.when_live = IG_LIVE_ROWS;
	d.when_min = 33;
	d.when_max = 33;
	assert_true(ig_gpu_dispatch_grid(&d, live, grid));
	live[IG_LIVE_ROWS] = 34;
	assert_false(ig_gpu_dispatch_grid(&d, live, grid));
	live[IG_LIVE_ROWS] = 32;
	assert_false(ig_gpu_dispatch_grid(&d, live, grid));
	live[IG_LIVE_ROWS] = 1u << 24;
	d.when_max = UINT32_MAX;
	d.grid[0] = (struct ig_gpu_extent){ IG_LIVE_ROWS, 1u << 24, 1, 1u << 24 };
	assert_true(ig_gpu_dispatch_grid(&d, live, grid));
	assert_int_equal(grid[0], UINT32_MAX); /* not what is left of an overflow */
}

/* ---- random tapes ---- */

static uint32_t dice_state = 1;

static uint32_t dice(uint32_t n)
{
	dice_state = dice_state * 1664525u + 1013904223u;
	return (dice_state >> 8) % n;
}

/* The bytes in memory that a bind may touch: of a value, every row's columns. */
static bool touches(const struct ig_gpu_tape *t, const struct ig_gpu_bind *b, uint64_t *kind,
		    uint8_t *bytes, size_t size)
{
	const struct ig_gpu_tape_buffer *f = &t->buffers[b->ref.buffer];

	memset(bytes, 0, size);
	*kind = f->kind;
	if (f->kind == IG_GPU_BUFFER_KV) {
		*kind = 100 + f->group * 10 + f->layer;
		bytes[0] = 1;
		return true;
	}
	uint64_t rows = f->row_bytes ? f->n_bytes / f->row_bytes : 1;
	for (uint64_t r = 0; r < rows; r++)
		memset(bytes + f->offset + r * f->row_bytes + b->ref.offset, 1, b->n_bytes);
	return true;
}

static bool collide(const struct ig_gpu_tape *t, uint32_t i, uint32_t j)
{
	static uint8_t x[1 << 16], y[1 << 16];
	const struct ig_gpu_dispatch *a = &t->dispatches[i].d, *b = &t->dispatches[j].d;
	size_t size = t->scratch_bytes + 64;

	for (uint32_t m = 0; m < a->n_binds; m++)
		for (uint32_t n = 0; n < b->n_binds; n++) {
			uint64_t p, q;
			if (!((a->bind[m].access | b->bind[n].access) & IG_GPU_WRITE))
				continue;
			touches(t, &a->bind[m], &p, x, size);
			touches(t, &b->bind[n], &q, y, size);
			for (size_t k = 0; p == q && k < size; k++)
				if (x[k] && y[k])
					return true;
		}
	return false;
}

/* Can both run in one step? */
static bool together(const struct ig_gpu_dispatch *a, const struct ig_gpu_dispatch *b)
{
	for (uint32_t rows = 0; rows < 40; rows++)
		for (uint32_t want = 0; want < 2; want++) {
			uint32_t live[IG_N_LIVE] = { 1, rows, 1, 1, 1, 1, 1, 0, want, 0 }, grid[3];
			if (ig_gpu_dispatch_grid(a, live, grid) &&
			    ig_gpu_dispatch_grid(b, live, grid))
				return true;
		}
	return false;
}

static void random_tape(struct ig_gpu_tape *t)
{
	enum { VALUES = 6 };
	int32_t v[VALUES];
	struct ig_gpu_ref r;

	for (int i = 0; i < VALUES; i++)
		v[i] = value(t, 16 + dice(3) * 16, 1 + dice(4));
	for (uint32_t node = 0; node < 12; node++) {
		t->node = node;
		int32_t scratch = -1;
		if (dice(3) == 0) {
			assert_int_equal(H.scratch(t, 64 + dice(600), &r), 0);
			scratch = r.buffer;
		}
		for (uint32_t n = 1 + dice(3); n > 0; n--) {
			struct ig_gpu_dispatch d = dispatch();
			switch (dice(5)) {
			case 0:
				d.when_live = IG_LIVE_ROWS;
				d.when_max = 16;
				break;
			case 1:
				d.when_live = IG_LIVE_ROWS;
				d.when_min = 17;
				break;
			case 2:
				d.when_live = IG_LIVE_WANT_LOGITS;
				d.when_min = 1;
				break;
			default: break;
			}
			for (uint32_t b = 1 + dice(3); b > 0; b--) {
				uint32_t access = 1 + dice(3), what = dice(8);
				if (what == 0) {
					H.kv(t, 0, dice(2), &r);
					bind(&d, r.buffer, 0, 0, access | IG_GPU_TOUCH);
				} else if (what < 3 && scratch >= 0) {
					bind(&d, scratch, dice(32), 1 + dice(32), access);
				} else {
					bind(&d, v[dice(VALUES)], dice(33), 1 + dice(32), access);
				}
			}
			assert_int_equal(H.dispatch(t, &d), 0);
		}
	}
	assert_int_equal(ig_gpu_tape_close(t, NULL), 0);
}

/* Every pair that must be kept apart has one of these barriers between. */
static bool covered(const struct ig_gpu_tape *t, const bool *pairs, uint32_t without)
{
	uint32_t n = t->n_dispatches;

	for (uint32_t i = 0; i < n; i++)
		for (uint32_t j = i + 1; j < n; j++) {
			bool between = false;
			for (uint32_t k = i + 1; k <= j; k++)
				between = between || (k != without && t->dispatches[k].barrier);
			if (pairs[i * n + j] && !between)
				return false;
		}
	return true;
}

static void test_random_tapes(void **state)
{
	uint32_t shared = 0, barriers = 0;

	for (uint32_t round = 0; round < 60; round++) {
		struct ig_gpu_tape *t = make();
		dice_state = round * 7919 + 1;
		random_tape(t);
		uint32_t n = t->n_dispatches;
		bool *pairs = calloc((size_t)n * n, sizeof *pairs);
		assert_non_null(pairs);
		assert_true(t->scratch_bytes < (1 << 16) - 64);
		for (uint32_t i = 0; i < n; i++)
			for (uint32_t j = i + 1; j < n; j++)
				pairs[i * n + j] =
					together(&t->dispatches[i].d, &t->dispatches[j].d) &&
					collide(t, i, j);
		assert_true(covered(t, pairs, UINT32_MAX));
		for (uint32_t i = 0; i < n; i++) {
			barriers += t->dispatches[i].barrier;
			/* Each barrier is there for a pair; without sharing the tape would need
			 * the same ones, so a shared byte never is the reason. */
			if (t->dispatches[i].barrier && covered(t, pairs, i))
				fail_msg("round %u: the barrier before %u is not needed", round, i);
		}
		/* In each step, with what does not run left out. */
		for (uint32_t step = 0; step < 6; step++) {
			static const uint32_t rows[] = { 0, 3, 20 };
			uint32_t live[IG_N_LIVE] = { 1, rows[step / 2], 1, 1, 0, 0, 0,
						     0, step % 2,	0 };
			uint32_t at = 0, grid[3], ran[64], since[64], k = 0, phase = 0, i;
			bool barrier;
			while ((i = ig_gpu_tape_next(t, live, &at, grid, &barrier)) != UINT32_MAX) {
				assert_true(k < 64);
				phase += barrier;
				ran[k] = i;
				since[k++] = phase;
			}
			for (uint32_t x = 0; x < k; x++)
				for (uint32_t y = x + 1; y < k; y++)
					assert_false(since[x] == since[y] &&
						     collide(t, ran[x], ran[y]));
		}
		/* Buffers that live at the same time share nothing. */
		for (uint32_t i = 0; i < t->n_buffers; i++)
			for (uint32_t j = i + 1; j < t->n_buffers; j++) {
				const struct ig_gpu_tape_buffer *x = &t->buffers[i],
								*y = &t->buffers[j];
				if (x->kind != IG_GPU_BUFFER_SCRATCH || y->kind != x->kind ||
				    x->first > x->last || y->first > y->last)
					continue;
				bool apart = x->offset + x->n_bytes <= y->offset ||
					     y->offset + y->n_bytes <= x->offset;
				assert_true(apart || x->last < y->first || y->last < x->first);
				assert_int_equal(x->offset % 256, 0);
				assert_true(x->offset + x->n_bytes <= t->scratch_bytes);
				shared += !apart;
			}
		free(pairs);
		ig_gpu_tape_destroy(t);
	}
	assert_true(shared > 50 && barriers > 200); /* the rounds are worth something */
}

/* A chain of values needs space for two of them, and not a barrier more for sharing it. */
static void test_a_chain_is_small(void **state)
{
	struct ig_gpu_tape *t = make();
	int32_t before = value(t, 1024, 4), next;

	emit(t, -1, before);
	for (int i = 0; i < 100; i++, before = next) {
		next = value(t, 1024, 4);
		emit(t, before, next);
	}
	assert_int_equal(ig_gpu_tape_close(t, NULL), 0);
	assert_int_equal(t->scratch_bytes, 2 * 1024 * 4 * 4);
	for (uint32_t i = 1; i < t->n_dispatches; i++)
		assert_true(t->dispatches[i].barrier);
	ig_gpu_tape_destroy(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields),	     cmocka_unit_test(test_boxes),
		cmocka_unit_test(test_buffers),	     cmocka_unit_test(test_copies),
		cmocka_unit_test(test_hazards),	     cmocka_unit_test(test_head),
		cmocka_unit_test(test_carried),	     cmocka_unit_test(test_grids),
		cmocka_unit_test(test_random_tapes), cmocka_unit_test(test_a_chain_is_small),
	};
	return cmocka_run_group_tests_name("tapes", tests, NULL, NULL);
}
