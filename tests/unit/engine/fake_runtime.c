/* fake_runtime.c: see fake_runtime.h. */
#include "fake_files.h"
#include "fake_runtime.h"
#include "fake_outside.h"
#include "fake_states.h"

#include "base/clock.h"
#include "model/chat/completion.h"
#include "model/formats/checkpoint.h"
#include "model/tokenizer/detokenizer.h"
#include "runtime/driver.h"
#include "tests/unit/no_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* What a step is said to take that takes no time. */
#define LEAST_STEP_NS 1000

struct fake fake;

void fake_allow(int n)
{
	pthread_mutex_lock(&fake.lock);
	fake.n_allowed += n;
	pthread_cond_broadcast(&fake.changed);
	pthread_mutex_unlock(&fake.lock);
}

void fake_wait_at_gate(void)
{
	pthread_mutex_lock(&fake.lock);
	while (!fake.n_waiting || fake.n_allowed)
		pthread_cond_wait(&fake.changed, &fake.lock);
	pthread_mutex_unlock(&fake.lock);
}

void fake_gate_loads(bool gated)
{
	pthread_mutex_lock(&fake.lock);
	fake.loads_gated = gated;
	pthread_cond_broadcast(&fake.changed);
	pthread_mutex_unlock(&fake.lock);
}

void fake_wait_for_load(void)
{
	pthread_mutex_lock(&fake.lock);
	while (!fake.n_loading)
		pthread_cond_wait(&fake.changed, &fake.lock);
	pthread_mutex_unlock(&fake.lock);
}

void fake_open_gate(void)
{
	pthread_mutex_lock(&fake.lock);
	fake.gated = false;
	pthread_cond_broadcast(&fake.changed);
	pthread_mutex_unlock(&fake.lock);
}

void fake_close_gate(void)
{
	pthread_mutex_lock(&fake.lock);
	fake.gated = true;
	pthread_mutex_unlock(&fake.lock);
}

void fake_report(const char *fmt, ...)
{
	va_list ap;

	if (atomic_fetch_add(&fake.n_errors, 1))
		return;
	va_start(ap, fmt);
	vsnprintf(fake.error, sizeof fake.error, fmt, ap);
	va_end(ap);
}

/* ---- allocations on the engine's thread --------------------------------------------- */

static _Thread_local bool guarded; /* set by the first submit */
static _Thread_local bool spared;
static _Thread_local long n_left = -1; /* allocations of this thread until one fails */

void fake_fail_here(long n) { n_left = n; }

void fake_spare_here(bool spare) { spared = spare; }

bool fake_failed_here(void)
{
	bool failed = n_left < 0;

	n_left = -1;
	return failed;
}

#ifdef WRAP_MALLOC
/* Counts down to 0 and past it once: true for one call. */
static bool fails(void)
{
	if (n_left >= 0)
		return n_left-- == 0;
	if (guarded) {
		atomic_fetch_add(&fake.n_allocations, 1);
		if (atomic_load(&fake.fail_engine_at))
			return atomic_fetch_sub(&fake.fail_engine_at, 1) == 1;
	}
	if (!spared && atomic_load(&fake.fail_any_at))
		return atomic_fetch_sub(&fake.fail_any_at, 1) == 1;
	return false;
}
#endif

void fake_reset(void)
{
	memset(&fake, 0, sizeof fake);
	pthread_mutex_init(&fake.lock, NULL);
	pthread_cond_init(&fake.changed, NULL);
#ifdef WRAP_MALLOC
	no_memory_also = fails;
#endif
}

int fake_no_memory(struct ig_error *err) { return ig_fail(err, -ENOMEM, "out of memory"); }

/* ---- driver ---------------------------------------------------------------------------------- */

struct ig_driver {
	int64_t step_ns;
};

struct ig_program {
	struct ig_driver *driver;
	const struct ig_plan *plan;
	struct ig_program_limits limits;
	const struct ig_step *steps[IG_STEPS_IN_FLIGHT]; /* under way, oldest first */
	uint64_t sums[IG_STEPS_IN_FLIGHT];		 /* of the steps as they were submitted */
	uint32_t n_steps;
	struct ig_error error;
	bool loaded;
};

int ig_driver_open(const char *name, const struct ig_driver_options *o, struct ig_driver **out,
		   struct ig_error *err)
{
	if (strcmp(name, "auto") && strcmp(name, "cpu"))
		return ig_fail(err, -ENOTSUP, "there is no driver \"%s\"", name);
	*out = calloc(1, sizeof **out);
	return *out ? 0 : fake_no_memory(err);
}

void ig_driver_close(struct ig_driver *d) { free(d); }

uint64_t ig_driver_pulse(const struct ig_driver *d) { return atomic_load(&fake.pulse); }

const char *ig_driver_describe(const struct ig_driver *d) { return "cpu, generic, 3 threads"; }

int ig_driver_lower(struct ig_driver *d, const struct ig_plan *plan,
		    const struct ig_program_limits *limits, struct ig_program **out,
		    struct ig_program_memory *memory, struct ig_error *err)
{
	struct ig_program *p = calloc(1, sizeof *p);
	unsigned n;

	if (!p)
		return fake_no_memory(err);
	if (plan->first_mtp_node && fake.head_is_odd) {
		free(p);
		return ig_fail(err, -ENOTSUP, "tensor \"head\": no kernels for it");
	}
	p->driver = d;
	p->plan = plan;
	p->limits = *limits;
	fake.k_dtype = limits->k_dtype;
	fake.v_dtype = limits->v_dtype;
	memory->weight_bytes = strcmp(plan->file->path, "heavy") ? 1 << 20 : (uint64_t)1 << 40;
	if (sscanf(plan->file->path, "w%u", &n) == 1)
		memory->weight_bytes = (uint64_t)n << 20;
	memory->scratch_bytes = 1 << 19;
	if (fake_is_small(plan->file->path))
		memory->weight_bytes /= 8;
	*out = p;
	return 0;
}

uint64_t ig_program_packed_layout(const struct ig_program *p, uint64_t *file_bytes)
{
	*file_bytes = 0;
	return 0;
}

int ig_program_load_packed(struct ig_program *p, struct ig_packed_file *f, struct ig_error *err)
{
	return ig_program_load(p, err);
}

int ig_program_load(struct ig_program *p, struct ig_error *err)
{
	if (!strcmp(fake_own_kind(p->plan->file->path), "noload"))
		return ig_fail(err, -ENOMEM, "out of memory for 1048576 bytes of weights");
	pthread_mutex_lock(&fake.lock);
	fake.n_loading++;
	pthread_cond_broadcast(&fake.changed);
	while (fake.loads_gated)
		pthread_cond_wait(&fake.changed, &fake.lock);
	fake.n_loading--;
	pthread_mutex_unlock(&fake.lock);
	if (atomic_load(&fake.fail_load))
		return ig_fail(err, -EIO, "the fake device has no space");
	p->loaded = true;
	atomic_fetch_add(&fake.n_programs, 1);
	return 0;
}

void ig_program_destroy(struct ig_program *p)
{
	if (p && p->n_steps)
		fake_report("a program was destroyed while a step was under way");
	if (p && p->loaded)
		atomic_fetch_sub(&fake.n_programs, 1);
	free(p);
}

bool ig_driver_takes_mtp(const struct ig_driver *d) { return !fake.heads_refused; }

uint32_t ig_driver_n_ranks(const struct ig_driver *d) { return fake.n_ranks ? fake.n_ranks : 1; }

int ig_driver_model_info(const struct ig_driver *d, const struct ig_plan *plan,
			 struct ig_model_info *out, struct ig_error *err)
{
	*out = plan->info;
	return 0;
}

uint32_t ig_driver_steps_in_flight(const struct ig_driver *d) { return 1; }

int64_t ig_driver_step_ns(const struct ig_driver *d) { return d->step_ns; }
int64_t ig_program_prepare_ns(const struct ig_program *p) { return fake.prepare_ns; }

uint32_t ig_program_split_rows(const struct ig_program *p) { return fake.split_rows; }

/* Each rank has one MiB more of weights than the one before, and one byte less of scratch memory. */
uint32_t ig_program_ranks(const struct ig_program *p, const struct ig_program_memory **out)
{
	static const struct ig_program_memory memory[FAKE_RANKS] = { { 1 << 20, 100 },
								     { 2 << 20, 99 } };
	*out = memory;
	return fake.n_ranks < FAKE_RANKS ? fake.n_ranks : FAKE_RANKS;
}

uint32_t ig_program_outside_width(const struct ig_program *p)
{
	return fake.takes_outside ? FAKE_OUTSIDE_WIDTH : 0;
}

uint64_t ig_driver_memory(const struct ig_driver *d) { return (uint64_t)fake.driver_memory; }

void ig_driver_watch_memory(struct ig_driver *d, void (*fn)(void *ctx, uint64_t n_bytes), void *ctx)
{
	fake.on_memory = fn;
	fake.memory_ctx = ctx;
}

uint64_t ig_driver_release(struct ig_driver *d, uint64_t n_bytes)
{
	uint64_t n = fake.reserve < n_bytes ? fake.reserve : n_bytes;

	fake.reserve -= n;
	return n;
}

bool ig_driver_is_unified(const struct ig_driver *d) { return fake.is_unified; }

const struct ig_error *ig_program_error(const struct ig_program *p) { return &p->error; }

void ig_driver_copy(void *driver, void *dst, const void *src, uint64_t n_bytes)
{
	memcpy(dst, src, n_bytes);
}

int ig_driver_read_slab(struct ig_driver *d, void *dst, const void *src, uint64_t n_bytes,
			struct ig_error *err)
{
	memcpy(dst, src, n_bytes);
	return 0;
}

int ig_driver_write_slab(struct ig_driver *d, void *dst, const void *src, uint64_t n_bytes,
			 struct ig_error *err)
{
	if (atomic_load(&fake.fail_write_at) && atomic_fetch_sub(&fake.fail_write_at, 1) == 1)
		return ig_fail(err, -EIO, "the device does not write");
	atomic_fetch_add(&fake.n_restored, 1);
	memcpy(dst, src, n_bytes);
	return 0;
}

void *ig_driver_map_slab(void *driver, uint64_t slab_bytes)
{
	void *p = malloc(slab_bytes);

	if (!p)
		return NULL;
	memset(p, 0xee, slab_bytes);
	atomic_fetch_add(&fake.n_mapped, 1);
	if (fake.map_us) {
		static int step, n;
		n = step == fake.n_steps ? n + 1 : 1;
		step = fake.n_steps;
		fake.most_maps = n > fake.most_maps ? n : fake.most_maps;
		usleep((useconds_t)fake.map_us);
	}
	return p;
}

void ig_driver_unmap_slab(void *driver, void *base, uint64_t slab_bytes)
{
	atomic_fetch_sub(&fake.n_mapped, 1);
	if (fake.unmap_us)
		usleep((useconds_t)fake.unmap_us);
	free(base);
}

static uint64_t mix(uint64_t h, const void *data, size_t n)
{
	const unsigned char *p = data;

	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 0x100000001b3ull;
	return h;
}

/* Of one mask. */
static size_t mask_words(const struct ig_program *p) { return (p->plan->info.n_vocab + 31) / 32; }

static uint64_t checksum(const struct ig_program *p, const struct ig_step *s)
{
	uint64_t h = mix(14695981039346656037ull, s, sizeof *s);
	size_t rows = (size_t)s->n_rows;

	h = mix(h, s->token_ids, rows * 4);
	if (s->token_from)
		h = mix(h, s->token_from, rows * 4);
	h = mix(h, s->positions, rows * 4);
	h = mix(h, s->row_seq, rows * 4);
	if (s->row_adapter)
		h = mix(h, s->row_adapter, rows * 4);
	if (s->outside)
		h = mix(h, s->outside, rows * sizeof *s->outside);
	if (s->rope_positions)
		h = mix(h, s->rope_positions, rows * IG_ROPE_AXES * 4);
	if (s->sees_to)
		h = mix(h, s->sees_to, rows * 4);
	h = mix(h, s->seq_lens, (size_t)s->n_seqs * 4);
	h = mix(h, s->logit_rows, (size_t)s->n_logit_rows * 4);
	h = mix(h, s->sample, (size_t)s->n_logit_rows * sizeof *s->sample);
	h = mix(h, s->adjusts, s->n_adjusts * sizeof *s->adjusts);
	h = mix(h, s->masks, s->n_masks * mask_words(p) * 4);
	for (uint32_t g = 0; g < s->n_groups; g++)
		h = mix(h, s->kv[g].block_tables,
			(size_t)(fake_is_state(s, g) ? s->n_states : s->n_seqs) *
				(size_t)s->kv[g].max_blocks * 4);
	if (s->segments)
		h = mix(h, s->segments, (size_t)s->n_segments * sizeof *s->segments);
	return h;
}

static int32_t next_of_few(const char *model, const int32_t *tokens, int32_t n, uint64_t seed)
{
	int32_t first = n > fake.memory ? n - fake.memory : 0;
	uint64_t h = mix(14695981039346656037ull, tokens + first, (size_t)(n - first) * 4);

	h = mix(h, &seed, sizeof seed);
	h = mix(h, model, strlen(model));
	if (n % 29 == 0) /* an exception */
		h = mix(h, &n, sizeof n);
	if (n % 37 == 0 && (h >> 40) % 8 == 0)
		return FAKE_END;
	return (int32_t)((h >> 20) % 12);
}

int32_t fake_next(const char *model, const int32_t *tokens, int32_t n, uint64_t seed)
{
	if (fake.memory)
		return next_of_few(model, tokens, n, seed);
	uint64_t h = mix(14695981039346656037ull, tokens, (size_t)n * 4);

	if (fake.script)
		return fake.script(tokens, n);
	h = mix(h, &seed, sizeof seed);
	h = mix(h, &n, sizeof n); /* the position that is sampled */
	h = mix(h, model, strlen(model));
	return (int32_t)((h >> 20) % FAKE_N_TEXT);
}

void fake_logits(const int32_t *tokens, int32_t n, float *out)
{
	uint64_t h = mix(14695981039346656037ull, tokens, (size_t)n * 4);

	for (int i = 0; i < FAKE_LOGITS; i++) {
		h = (h ^ (uint64_t)i) * 0x100000001b3ull;
		/* few values, so that some are equal */
		out[i] = (float)((h >> 30) % 97) * 0.25f - 12.0f;
	}
}

/* The mask of row i allows none of what pads the vocabulary; the next token that it does
 * allow. */
static int32_t allowed(const struct ig_program *p, const struct ig_step *s, int32_t i, int32_t id)
{
	const uint32_t *mask = s->masks + (size_t)s->sample[i].mask * mask_words(p);

	for (int32_t k = FAKE_VOCAB; k < (int32_t)mask_words(p) * 32; k++)
		if (mask[k / 32] >> k % 32 & 1)
			fake_report("the mask of row %d allows token %d of %d", i, k, FAKE_VOCAB);
	for (int32_t k = 0; k < FAKE_VOCAB; k++) {
		int32_t at = (id + k) % FAKE_VOCAB;
		if (mask[at / 32] >> at % 32 & 1)
			return at;
	}
	return 0;
}

/* ---- the engine's own time, by its thread ------------------------------------------------- */

static _Thread_local int64_t left_cpu_ns, left_ns; /* when it left the driver; 0: not yet */

static int64_t cpu_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t enter_driver(void)
{
	int64_t now = ig_now_ns();

	if (fake.no_compute && left_ns) {
		atomic_fetch_add(&fake.engine_cpu_ns, cpu_now_ns() - left_cpu_ns);
		atomic_fetch_add(&fake.engine_wall_ns, now - left_ns);
	}
	return now;
}

static void leave_driver(int64_t entered_ns)
{
	int64_t now = ig_now_ns();

	atomic_fetch_add(&fake.driver_ns, now - entered_ns);
	if (!fake.no_compute)
		return;
	left_ns = now;
	left_cpu_ns = cpu_now_ns();
}

static void raise_to(atomic_int *max, int v)
{
	if (v > atomic_load(max))
		atomic_store(max, v);
}

int ig_program_submit(struct ig_program *p, const struct ig_step *s)
{
	int64_t start = enter_driver();
	int number = atomic_fetch_add(&fake.n_steps, 1) + 1;

	guarded = false;
	if (!p->loaded || p->n_steps == IG_STEPS_IN_FLIGHT)
		fake_report("submitted before load, or without a wait between");
	if (p->n_steps && p->steps[0] == s)
		fake_report("a step was submitted again while it is under way");
	for (int32_t r = 0; s->token_from && r < s->n_rows; r++)
		if (s->token_from[r] >= 0 &&
		    (!p->n_steps || s->prev_ids != p->steps[p->n_steps - 1]->sampled_ids ||
		     s->token_from[r] >= p->steps[p->n_steps - 1]->n_logit_rows))
			fake_report("row %d begins with token %d of no step under way", r,
				    s->token_from[r]);
	if (s->struct_size != sizeof *s || s->n_rows <= 0 || s->n_seqs <= 0 ||
	    (uint32_t)s->n_rows > p->limits.max_rows || (uint32_t)s->n_seqs > p->limits.max_seqs ||
	    (uint32_t)s->n_logit_rows > p->limits.max_logit_rows ||
	    s->n_masks > p->limits.max_logit_rows || s->n_groups != p->plan->info.n_groups)
		fake_report("a step of %d rows, %d sequences, %d logits, %u groups", s->n_rows,
			    s->n_seqs, s->n_logit_rows, s->n_groups);
	raise_to(&fake.max_rows_seen, s->n_rows);
	raise_to(&fake.max_seqs_seen, s->n_seqs);
	for (int32_t i = 0; i < s->n_logit_rows; i++)
		if (s->sample[i].mask >= (int32_t)s->n_masks)
			fake_report("row %d is under mask %d of %u", i, s->sample[i].mask,
				    s->n_masks);
	if (s->logits)
		atomic_fetch_add(&fake.n_logit_steps, 1);
	if (s->logits && p->n_steps && s->logits == p->steps[0]->logits)
		fake_report("two steps under way share a copy of logits");
	p->error = (struct ig_error){ 0 };
	if (s->logits && fake.no_logits) {
		guarded = true;
		return ig_fail(&p->error, -ENOMEM, "no memory for logits");
	}
	if (number == fake.fail_submit_at)
		return ig_fail(&p->error, fake.fail_code ? fake.fail_code : -EIO,
			       "the fake device refused");
	if (!strcmp(p->plan->file->path, "good"))
		atomic_fetch_add(&fake.n_models_stepped[0], 1);
	if (!strcmp(p->plan->file->path, "good2"))
		atomic_fetch_add(&fake.n_models_stepped[1], 1);
	if (fake_is_small(p->plan->file->path)) {
		atomic_fetch_add(&fake.n_small_steps, 1);
		atomic_fetch_add(&fake.n_small_rows, s->n_rows);
		if (atomic_load(&fake.fail_small_at) &&
		    atomic_fetch_sub(&fake.fail_small_at, 1) == 1)
			return ig_fail(&p->error, -EIO, "the fake device refused a small model");
	}
	if (!fake.no_compute)
		p->sums[p->n_steps] = checksum(p, s);
	p->steps[p->n_steps++] = s;
	raise_to(&fake.max_in_flight, (int)p->n_steps);
	leave_driver(start);
	guarded = true;
	return 0;
}

/* Where the marks of a token lie: in the first and in the last layer, in K and V. */
static unsigned char *place(const struct ig_step *s, uint32_t g, int32_t seq, int32_t pos,
			    bool last)
{
	const struct ig_step_kv *kv = &s->kv[g];
	uint32_t word = kv->block_tables[seq * kv->max_blocks + pos / IG_BLOCK_TOKENS];
	unsigned char *base;

	if (pos / IG_BLOCK_TOKENS >= kv->max_blocks) {
		fake_report("position %d is beyond the table's %ld blocks", pos,
			    (long)kv->max_blocks);
		return NULL;
	}
	base = word == IG_BLOCK_NONE ? NULL : s->slab_bases[IG_BLOCK_SLAB(word)];
	if (!base) {
		fake_report("position %d lies in a slab without memory", pos);
		return NULL;
	}
	base += IG_BLOCK_INDEX(word) * kv->layout->block_bytes +
		(size_t)(pos % IG_BLOCK_TOKENS) * kv->layout->k_token_stride;
	if (last)
		base += (kv->layout->n_layers - 1) * kv->layout->layer_stride +
			kv->layout->v_offset +
			(kv->layout->n_kv_heads - 1) * kv->layout->head_stride;
	return base;
}

/* The first position that the row at pos reads of group g. */
static int32_t first_read(const struct ig_program *p, uint32_t g, int32_t pos)
{
	int32_t window = (int32_t)p->plan->info.groups[g].window;

	return window && pos >= window ? pos + 1 - window : 0;
}

/* What stands beside the token in a row's place: its position and its adapter, plus one. */
static int32_t mark_of(const struct ig_step *s, int32_t r, int32_t pos)
{
	return pos | (s->row_adapter ? s->row_adapter[r] + 1 : 0) << 16;
}

/* What a group with a window has that a sequence's first row reads. */
static void check_window(const struct ig_program *p, const struct ig_step *s, int32_t r)
{
	for (uint32_t g = 0; g < s->n_groups && !fake_is_state(s, g); g++) {
		for (int32_t k = first_read(p, g, s->positions[r]); k < s->positions[r]; k++) {
			const unsigned char *at = place(s, g, s->row_seq[r], k, false);
			int32_t mark[2] = { -1, -1 };

			if (at)
				memcpy(mark, at, sizeof mark);
			if (mark[1] != mark_of(s, r, k))
				fake_report("row %d: group %u has position %d at %d", r, g, mark[1],
					    k);
		}
	}
}

static void write_rows(const struct ig_program *p, const struct ig_step *s)
{
	int32_t seq_end[256];

	memset(seq_end, 0xff, sizeof seq_end);
	for (int32_t r = 0; r < s->n_rows; r++) {
		int32_t seq = s->row_seq[r], pos = s->positions[r];
		int32_t id = ig_step_token(s, r);
		int32_t mark[2] = { fake_row_token(s, r), mark_of(s, r, pos) };
		int32_t adapter = s->row_adapter ? s->row_adapter[r] : -1;

		if (seq < 0 || seq >= s->n_seqs || pos < 0 || pos >= s->seq_lens[seq] ||
		    (uint32_t)s->seq_lens[seq] > p->limits.max_context ||
		    ((id < 0 || id >= FAKE_VOCAB) && !(s->token_from && s->token_from[r] >= 0))) {
			fake_report("row %d: sequence %d, position %d, token %d", r, seq, pos, id);
			continue;
		}
		if (adapter < -1 || adapter >= (int32_t)p->plan->n_adapters)
			fake_report("row %d: adapter %d", r, adapter);
		if (seq_end[seq] >= 0 && pos != seq_end[seq])
			fake_report("row %d: position %d does not follow", r, pos);
		if (seq_end[seq] < 0)
			check_window(p, s, r);
		seq_end[seq] = pos + 1;
		for (uint32_t g = 0; g < s->n_groups && !fake_is_state(s, g); g++) {
			for (int last = 0; last < 2; last++) {
				unsigned char *at = place(s, g, seq, pos, last);
				if (at)
					memcpy(at, mark, sizeof mark);
			}
		}
	}
	for (int32_t i = 0; i < s->n_seqs; i++)
		if (seq_end[i] != s->seq_lens[i])
			fake_report("sequence %d: its rows end at %d, its length is %d", i,
				    seq_end[i], s->seq_lens[i]);
	fake_check_outside(s, fake_report);
	fake_step_states(s, fake_report);
}

/* What a wide model has more of counts for nothing. */
static void draw_logits(const int32_t *tokens, int32_t n, float *out, uint32_t n_logits)
{
	fake_logits(tokens, n, out);
	for (uint32_t i = FAKE_LOGITS; i < n_logits; i++)
		out[i] = -1e9f;
}

/* Of the tokens from id on the first that was not sampled three times before and has no negative
 * bias. */
static int32_t penalized(const struct ig_step *s, int32_t i, int32_t id)
{
	const struct ig_sample_params *p = &s->sample[i];

	for (uint32_t k = 0; k < p->n_adjusts; k++) {
		const struct ig_logit_adjust *e = &s->adjusts[p->first_adjust + k];
		if (e->id != id || (e->n_sampled < 3 && e->bias >= 0))
			continue;
		id = (id + 1) % FAKE_N_TEXT;
		k = UINT32_MAX; /* from the first again */
	}
	return id;
}

/* Of the row's tokens: the file's, or FILE:NUMBER, the adapter's plus one. */
static const char *kind_of(const struct ig_program *p, const struct ig_step *s, int32_t r,
			   char out[256])
{
	int32_t mark = mark_of(s, r, 0);

	if (!mark)
		return fake_own_kind(p->plan->file->path);
	snprintf(out, 256, "%s:%d", p->plan->file->path, mark >> 16);
	return out;
}

/* What a small model guesses instead, now and then. */
static int32_t misguess(const int32_t *tokens, int32_t n, int32_t id)
{
	uint64_t h = mix(14695981039346656037ull, tokens, (size_t)n * 4);

	return (int32_t)((h >> 24) % 100) < atomic_load(&fake.misguesses) ? (id + 1) % FAKE_N_TEXT :
									    id;
}

/* What a step says of the tokens behind its rows, as far as it has them. */
static void check_next(const struct ig_program *p, const struct ig_step *s)
{
	int32_t last = -1;

	if (!p->plan->first_mtp_node && (s->next_ids || s->n_guesses))
		fake_report("a step with a head of a model without one");
	if (p->plan->first_mtp_node && !s->next_ids)
		atomic_fetch_add(&fake.n_headless, 1);
	if (!s->next_ids && s->n_guesses)
		fake_report("%d guesses without a head", s->n_guesses);
	for (int32_t r = 0; s->next_ids && r < s->n_rows; r++) {
		int32_t id = s->next_ids[r];
		bool is_last = r + 1 == s->n_rows || s->row_seq[r + 1] != s->row_seq[r];
		if (id < 0 ? -1 - id >= s->n_logit_rows || s->logit_rows[-1 - id] != r :
			     !is_last && id != s->token_ids[r + 1])
			fake_report("row %d is before token %d", r, id);
	}
	for (int32_t i = 0; i < s->n_guesses; last = s->guess_rows[i++])
		if (s->guess_rows[i] <= last || s->guess_rows[i] >= s->n_logit_rows)
			fake_report("guess %d is of row %d", i, s->guess_rows[i]);
}

/* The head's guess behind the token sampled from row i, which follows these n; tokens has space for it. */
static void guess(const struct ig_program *p, const struct ig_step *s, int32_t i, int32_t *tokens,
		  int32_t n)
{
	tokens[n] = s->sampled_ids[i];
	for (int32_t g = 0; g < s->n_guesses; g++) {
		if (s->guess_rows[g] != i)
			continue;
		s->guessed_ids[g] = misguess(tokens, n + 1,
					     fake_next(fake_own_kind(p->plan->file->path), tokens,
						       n + 1, s->sample[i].seed));
		atomic_fetch_add(&fake.n_guesses, 1);
	}
}

/* With no_compute. */
static int32_t id_of_position(int32_t position, bool small)
{
	int32_t id = fake.script ? fake.script(NULL, position) : 0;

	return small ? misguess(&position, 1, id) : id;
}

static void draw(const struct ig_program *p, const struct ig_step *s)
{
	for (int32_t i = 0; i < s->n_logit_rows; i++) {
		int32_t r = s->logit_rows[i], seq = s->row_seq[r], n = s->positions[r] + 1;
		int32_t tokens[FAKE_CONTEXT + 1];
		char kind[256];

		if (i && r <= s->logit_rows[i - 1])
			fake_report("logit rows do not ascend");
		if (s->sample[i].position != n)
			fake_report("the token at %d is sampled as if at %d", n,
				    s->sample[i].position);
		for (int32_t k = 0; k < n; k++) {
			for (uint32_t g = 0; g < s->n_groups && !fake_is_state(s, g); g++) {
				for (int last = 0; last < 2 && k >= first_read(p, g, n - 1);
				     last++) {
					const unsigned char *at = place(s, g, seq, k, last);
					int32_t mark[2] = { -1, -1 };

					if (at)
						memcpy(mark, at, sizeof mark);
					if (mark[1] != mark_of(s, r, k) ||
					    ((g || last) && mark[0] != tokens[k]))
						fake_report(
							"sequence %d: the cache at %d holds token %d of "
							"position %d",
							seq, k, mark[0], mark[1]);
					tokens[k] = mark[0];
				}
			}
		}
		fake_check_state(s, r, tokens, n, fake_report);
		int n_sampled = 0, n_seen = 0;
		float bias = 0;
		for (uint32_t k = 0; k < s->sample[i].n_adjusts; k++) {
			const struct ig_logit_adjust *e =
				&s->adjusts[s->sample[i].first_adjust + k];
			n_sampled += (int)e->n_sampled;
			n_seen += e->seen != 0;
			bias += e->bias;
		}
		atomic_store(&fake.n_sampled, n_sampled);
		atomic_store(&fake.n_seen, n_seen);
		fake.bias = bias;
		s->sampled_ids[i] = fake_next(kind_of(p, s, r, kind), tokens, n, s->sample[i].seed);
		if (fake_is_small(p->plan->file->path))
			s->sampled_ids[i] = misguess(tokens, n, s->sampled_ids[i]);
		if (fake.penalizes)
			s->sampled_ids[i] = penalized(s, i, s->sampled_ids[i]);
		if (s->sample[i].mask >= 0) {
			s->sampled_ids[i] = allowed(p, s, i, s->sampled_ids[i]);
			atomic_fetch_add(&fake.n_masked, 1);
		}
		guess(p, s, i, tokens, n);
		if (s->logits)
			draw_logits(tokens, n, s->logits + (size_t)i * p->plan->info.n_vocab,
				    p->plan->info.n_vocab);
	}
}

/* Of a model without a cache: each sequence is whole, and its result of the last row. */
static void draw_texts(const struct ig_step *s)
{
	int32_t row = 0;

	if (s->n_logit_rows != s->n_seqs || !s->logits)
		fake_report("%d results of %d texts", s->n_logit_rows, s->n_seqs);
	for (int32_t i = 0; i < s->n_seqs; i++) {
		fake_vector(s->token_ids + row, s->row_types + row, s->seq_lens[i],
			    s->logits + i * FAKE_COLUMNS);
		for (int32_t k = 0; k < s->seq_lens[i]; k++, row++)
			if (s->row_seq[row] != i || s->positions[row] != k)
				fake_report("row %d is no row of a whole text", row);
		if (s->logit_rows[i] != row - 1)
			fake_report("the result of text %d is of row %d", i, s->logit_rows[i]);
	}
}

void fake_vector(const int32_t *tokens, const int32_t *types, int32_t n, float out[FAKE_COLUMNS])
{
	out[0] = (float)n;
	out[1] = out[2] = 0;
	for (int32_t i = 0; i < n; i++) {
		out[1] += (float)(tokens[i] * (i + 1));
		out[2] += (float)types[i];
	}
}

int ig_program_wait(struct ig_program *p)
{
	const struct ig_step *s = p->n_steps ? p->steps[0] : NULL;
	int64_t start = enter_driver();
	int rc = 0;

	guarded = false;
	if (!s) {
		fake_report("a wait without a submit");
		return -EINVAL;
	}
	pthread_mutex_lock(&fake.lock);
	fake.n_waiting++;
	pthread_cond_broadcast(&fake.changed);
	while (fake.gated && !fake.n_allowed)
		pthread_cond_wait(&fake.changed, &fake.lock);
	if (fake.gated)
		fake.n_allowed--;
	fake.n_waiting--;
	pthread_mutex_unlock(&fake.lock);
	bool small = fake_is_small(p->plan->file->path);
	int step_us = small ? fake.small_us + (fake.n_small_steps == 1 ? fake.small_first_us : 0) :
			      fake.delay_us + fake.row_us * (int)s->n_rows +
				      fake.guess_us * (int)s->n_guesses;
	if (step_us)
		usleep((useconds_t)step_us);
	step_us += small ? 0 : fake.said_row_us * (int)s->n_rows;
	p->driver->step_ns = step_us ? (int64_t)step_us * 1000 : LEAST_STEP_NS;
	if (fake.took)
		p->driver->step_ns = fake.took(s, small);
	if (fake.no_compute) {
		for (int32_t i = 0; i < s->n_logit_rows; i++)
			s->sampled_ids[i] = id_of_position(s->sample[i].position, small);
		for (int32_t g = 0; g < s->n_guesses; g++)
			s->guessed_ids[g] =
				id_of_position(s->sample[s->guess_rows[g]].position + 1, true);
		for (size_t i = 0; s->logits && i < (size_t)s->n_logit_rows * p->plan->info.n_vocab;
		     i++)
			s->logits[i] = (float)(i * 7919 % 1000) * -0.02f;
	} else {
		if (checksum(p, s) != p->sums[0])
			fake_report("the step was changed between submit and wait");
		write_rows(p, s);
		check_next(p, s);
		if (p->plan->info.n_groups)
			draw(p, s);
		else
			draw_texts(s);
	}
	p->n_steps--;
	p->steps[0] = p->steps[1];
	p->sums[0] = p->sums[1];
	p->error = (struct ig_error){ 0 };
	if (atomic_load(&fake.n_steps) - (int)p->n_steps == fake.fail_wait_at) {
		rc = fake.fail_code ? fake.fail_code : -EIO;
		p->n_steps = 0;
	}
	leave_driver(start);
	guarded = true;
	return rc;
}
