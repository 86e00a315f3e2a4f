/*
 * test_gpu_exchange.c: the kernel by which devices exchange values, on one device: what the other ranks would send lies
 * there before, and what this one sends is looked at afterwards.
 *
 *   test_gpu_exchange [soft|cuda]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "runtime/gpu/gpu_private.h"
#include "shaders/args.h"
#include "shaders/step.h"
#include "tests/ops/gpu_case_private.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const struct ig_shader ig_shader_exchange;

#define MAX_RANKS 3
#define TURNS_BEFORE 41u /* odd and even turns follow */

static struct ig_gpu_lab *lab;

/* One exchange as one rank does it. */
struct exchange {
	uint32_t n_ranks, rank, rows;
	uint32_t row_pairs[MAX_RANKS];
	bool adds, last, in_chunks;
	uint32_t turn; /* in chunks: each threadgroup's chunks so far */
	uint32_t n_groups;
	bool ahead; /* the others have sent the next chunk, too */
};

/* Memory of the device and what it held before, each between guards. */
struct memory {
	struct ig_gpu_buffer *buffer;
	uint8_t *image;
	uint64_t n_bytes;
};

struct world {
	struct memory part[MAX_RANKS], inbox[MAX_RANKS], sum, turns, stop;
};

static void need(int rc, const struct ig_error *err)
{
	if (rc)
		fail_msg("%s", err->text);
}

static void reserve(struct memory *m, uint64_t n_bytes, int byte)
{
	m->n_bytes = n_bytes;
	m->image = malloc(n_bytes + 2 * GUARD);
	assert_non_null(m->image);
	memset(m->image, GUARD_BYTE, n_bytes + 2 * GUARD);
	memset(m->image + GUARD, byte, n_bytes);
}

static void upload(struct memory *m)
{
	struct ig_error err = { 0 };
	const uint64_t n = m->n_bytes + 2 * GUARD;

	need(lab->class->alloc(lab->device, n, IG_GPU_MEMORY_SLAB, &m->buffer, &err), &err);
	need(lab->class->write(lab->device, m->buffer, 0, m->image, n, &err), &err);
}

static uint64_t address(const struct memory *m) { return lab->class->address(m->buffer) + GUARD; }

/* The memory as it is now, to be freed. */
static uint8_t *now(const struct memory *m)
{
	const uint64_t n = m->n_bytes + 2 * GUARD;
	struct ig_error err = { 0 };
	uint8_t *got = malloc(n);

	assert_non_null(got);
	need(lab->class->read(lab->device, m->buffer, 0, got, n, &err), &err);
	return got;
}

static void drop(struct memory *m)
{
	lab->class->free(lab->device, m->buffer);
	free(m->image);
}

/* ---- what is sent ------------------------------------------------------------------------ */

/* Values whose sums depend on their order, and zeros with either sign. */
static float value(uint32_t rank, uint32_t i)
{
	uint32_t x = (i * 3 + rank) * 2654435761u;

	if (i % 7 == 3)
		return rank ? -0.0f : i % 2 ? 0.0f : -0.0f;
	return ldexpf((float)(int32_t)x, (int)(x >> 3 & 15) - 30);
}

static uint32_t quads(const struct exchange *x, uint32_t rank)
{
	return x->rows * x->row_pairs[rank] / 2;
}

static uint32_t widest(const struct exchange *x)
{
	uint32_t most = 0;

	for (uint32_t r = 0; r < x->n_ranks; r++)
		most = quads(x, r) > most ? quads(x, r) : most;
	return most;
}

/* Quads of a chunk, as the kernel divides the widest part. */
static uint32_t chunk_quads(const struct exchange *x)
{
	uint32_t size = (widest(x) + x->n_groups - 1) / x->n_groups;

	size = size < EXCHANGE_THREADS ? EXCHANGE_THREADS : size;
	return size > EXCHANGE_CHUNK ? EXCHANGE_CHUNK : size;
}

/* Into the image of an inbox: what a rank sends. */
static void put_sent(const struct exchange *x, uint8_t *inbox, uint32_t from)
{
	const uint32_t n = x->n_ranks, size = chunk_quads(x), turn = TURNS_BEFORE + x->turn;
	uint8_t *chunks = inbox + EXCHANGE_PAIRS_BYTES(n);
	uint32_t *numbers = (uint32_t *)(chunks + EXCHANGE_CHUNKS_BYTES(n));

	for (uint32_t i = 0; !x->in_chunks && i < 2 * quads(x, from); i++) {
		const float a = value(from, 2 * i), b = value(from, 2 * i + 1);
		uint32_t *to =
			(uint32_t *)(inbox +
				     16ul * (((turn & 1) * n + from) * EXCHANGE_SMALL_PAIRS + i));
		memcpy(&to[0], &a, 4);
		memcpy(&to[2], &b, 4);
		to[1] = to[3] = turn;
	}
	for (uint32_t g = 0; x->in_chunks && g < x->n_groups; g++) {
		uint32_t number = x->turn;
		for (uint32_t first = g * size; first < widest(x); first += x->n_groups * size) {
			number++;
			for (uint32_t i = 0; i < size && first + i < quads(x, from); i++)
				for (uint32_t j = 0; j < 4; j++) {
					const float v = value(from, 4 * (first + i) + j);
					memcpy(chunks +
						       16ul * (((g * 2 + (number & 1)) * n + from) *
								       EXCHANGE_CHUNK +
							       i) +
						       4 * j,
					       &v, 4);
				}
		}
		numbers[g * n + from] = number;
	}
}

/* ---- one run ----------------------------------------------------------------------------- */

static void make_world(const struct exchange *x, struct world *w)
{
	memset(w, 0, sizeof *w);
	for (uint32_t r = 0; r < x->n_ranks; r++) {
		reserve(&w->inbox[r], EXCHANGE_INBOX_BYTES(x->n_ranks), 0);
		reserve(&w->part[r], 16ul * quads(x, r), UNSET_BYTE);
		for (uint32_t i = 0; r == x->rank && i < 4 * quads(x, r); i++) {
			const float v = value(r, i);
			memcpy(w->part[r].image + GUARD + 4ul * i, &v, 4);
		}
	}
	for (uint32_t r = 0; r < x->n_ranks; r++)
		if (r != x->rank)
			put_sent(x, w->inbox[x->rank].image + GUARD, r);
	reserve(&w->sum, 16ul * quads(x, x->rank), UNSET_BYTE);
	reserve(&w->turns, EXCHANGE_TURNS_BYTES, 0);
	reserve(&w->stop, 4, 0);
	uint32_t *turns = (uint32_t *)(w->turns.image + GUARD);
	turns[0] = TURNS_BEFORE;
	for (uint32_t g = 0; g < EXCHANGE_GROUPS; g++)
		turns[2 + g] = x->turn;
	struct memory *all = (struct memory *)w;
	for (size_t i = 0; i < sizeof *w / sizeof *all; i++)
		if (all[i].image)
			upload(&all[i]);
}

static void run(const struct exchange *x, const struct world *w)
{
	struct exchange_args args = {
		.sum = x->adds ? address(&w->sum) : 0,
		.turns = address(&w->turns),
		.stop = address(&w->stop),
		.rank = x->rank,
		.n_ranks = x->n_ranks,
		.rows_live = IG_ROWS_TOKENS,
		.turn = x->in_chunks ? 0 : x->turn,
		.n_turns = x->last && !x->in_chunks ? x->turn : 0,
	};
	const struct ig_gpu_extent one = { IG_LIVE_ONE, 1, 1, 1 };
	const struct ig_gpu_submission s = {
		.step_bytes = sizeof(struct step_head),
		.live = { [IG_LIVE_ONE] = 1, [IG_LIVE_ROWS] = x->rows },
	};
	struct step_head head = { .n_rows = x->rows };
	const struct ig_gpu_device_class *class = lab->class;
	struct ig_error err = { 0 };
	struct ig_gpu_program *program;
	struct ig_gpu_tape *tape;
	const float *logits;
	const int32_t *ids;

	for (uint32_t r = 0; r < x->n_ranks; r++) {
		args.inbox[r] = address(&w->inbox[r]);
		args.row_pairs[r] = x->row_pairs[r];
		if (!x->adds || r == x->rank)
			args.part[r] = address(&w->part[r]);
	}
	const struct ig_gpu_dispatch d = {
		.struct_size = sizeof d,
		.shader = &ig_shader_exchange,
		.kernel = "exchange",
		.args = &args,
		.n_arg_bytes = sizeof args,
		.threads = EXCHANGE_THREADS,
		.when_live = IG_LIVE_ONE,
		.when_max = UINT32_MAX,
		.grid = { { IG_LIVE_ONE, x->n_groups, 1, 1 }, one, one },
	};
	assert_int_equal(ig_gpu_tape_create(class->facts(lab->device), 1, &tape), 0);
	ig_gpu_tape_host.dispatch(tape, &d);
	need(ig_gpu_tape_close(tape, &err), &err);
	need(class->program_create(lab->device, tape, NULL, sizeof head, &program, &err), &err);
	memcpy(class->staging(program, 0), &head, sizeof head);
	need(class->submit(program, &s, &err), &err);
	need(class->wait(program, 0, 120000, &ids, &logits, &err), &err);
	class->program_destroy(program);
	ig_gpu_tape_destroy(tape);
}

static void compare(const struct memory *m, const char *what)
{
	uint8_t *got = now(m);

	if (!memcmp(got, m->image, m->n_bytes + 2 * GUARD)) {
		free(got);
		return;
	}
	for (uint64_t i = 0; i < m->n_bytes + 2 * GUARD; i++)
		if (got[i] != m->image[i])
			fail_msg("%s: byte %lld is %02x, expected %02x", what, (long long)i - GUARD,
				 got[i], m->image[i]);
}

/* The images become what must be there afterwards. */
static void expect(const struct exchange *x, struct world *w)
{
	uint32_t *turns = (uint32_t *)(w->turns.image + GUARD);
	const uint32_t size = chunk_quads(x);

	for (uint32_t r = 0; r < x->n_ranks; r++) {
		if (r != x->rank)
			put_sent(x, w->inbox[r].image + GUARD, x->rank);
		for (uint32_t i = 0; !x->adds && i < 4 * quads(x, r); i++) {
			const float v = value(r, i);
			memcpy(w->part[r].image + GUARD + 4ul * i, &v, 4);
		}
	}
	for (uint32_t i = 0; x->adds && i < 4 * quads(x, x->rank); i++) {
		float sum = value(0, i);
		for (uint32_t r = 1; r < x->n_ranks; r++)
			sum += value(r, i);
		memcpy(w->sum.image + GUARD + 4ul * i, &sum, 4);
	}
	if (x->last && !x->in_chunks)
		turns[0] += x->turn;
	for (uint32_t g = 0; x->in_chunks && g < x->n_groups; g++)
		for (uint32_t first = g * size; first < widest(x); first += x->n_groups * size)
			turns[2 + g]++;
}

static void check(const struct exchange *x)
{
	struct world w;

	make_world(x, &w);
	if (x->ahead) { /* one chunk more has come from rank 0 meanwhile */
		uint32_t *numbers = (uint32_t *)(w.inbox[x->rank].image + GUARD +
						 EXCHANGE_PAIRS_BYTES(x->n_ranks) +
						 EXCHANGE_CHUNKS_BYTES(x->n_ranks));
		struct ig_error err = { 0 };
		numbers[0]++;
		need(lab->class->write(lab->device, w.inbox[x->rank].buffer, 0,
				       w.inbox[x->rank].image, w.inbox[x->rank].n_bytes, &err),
		     &err);
	}
	run(x, &w);
	expect(x, &w);
	for (uint32_t r = 0; r < x->n_ranks; r++) {
		compare(&w.inbox[r], r == x->rank ? "what came" : "what was sent");
		compare(&w.part[r], r == x->rank ? "the own part" : "another one's part");
	}
	compare(&w.sum, "the sum");
	compare(&w.turns, "the turns");
	struct memory *all = (struct memory *)&w;
	for (size_t i = 0; i < sizeof w / sizeof *all; i++)
		if (all[i].image)
			drop(&all[i]);
}

/* ---- cases ------------------------------------------------------------------------------- */

static void test_pairs(void **state)
{
	for (uint32_t n = 2; n <= MAX_RANKS; n++)
		for (uint32_t rank = 0; rank < n; rank++)
			for (uint32_t adds = 0; adds < 2; adds++) {
				const uint32_t last = adds || rank ? 24 : 40;
				check(&(struct exchange){ n,
							  rank,
							  5,
							  { 24, adds ? 24 : 8, last },
							  .adds = adds,
							  .turn = 1 + rank,
							  .n_groups = 2,
							  .last = rank > 0 });
			}
}

/* More threads than pairs in the last threadgroup, and one whole threadgroup too many (a bucket's grid). */
static void test_more_threads(void **state)
{
	check(&(struct exchange){
		2, 0, 3, { 88, 88 }, .adds = true, .turn = 1, .n_groups = 3, .last = true });
}

static void test_chunks(void **state)
{
	for (uint32_t n = 2; n <= MAX_RANKS; n++)
		for (uint32_t rank = 0; rank < n; rank++)
			for (uint32_t adds = 0; adds < 2; adds++)
				for (uint32_t before = 0; before < 2; before++)
					check(&(struct exchange){ n,
								  rank,
								  19,
								  { 176, adds ? 176 : 144, 176 },
								  .adds = adds,
								  .in_chunks = true,
								  .turn = before,
								  .n_groups = 2 });
}

/* The others may be one chunk further, not more: then they would have seen this one's. */
static void test_ahead(void **state)
{
	check(&(struct exchange){ 2,
				  1,
				  4,
				  { 96, 96 },
				  .adds = true,
				  .in_chunks = true,
				  .n_groups = 1,
				  .ahead = true });
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pairs),
		cmocka_unit_test(test_more_threads),
		cmocka_unit_test(test_chunks),
		cmocka_unit_test(test_ahead),
	};
	struct ig_error err = { 0 };

	if (ig_gpu_lab_open(argc > 1 ? argv[1] : NULL, &lab, &err)) {
		print_error("%s\n", err.text);
		return 2;
	}
	int failed = cmocka_run_group_tests_name("gpu_exchange", tests, NULL, NULL);
	ig_gpu_lab_close(lab);
	return failed;
}
