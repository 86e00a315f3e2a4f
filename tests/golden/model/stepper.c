/*
 * stepper.c: see stepper.h.
 *
 * Every cache group has its own slabs.  A slab holds at most SLAB_BLOCKS blocks, few
 * enough that any real test uses several of them.  In a group with a window a sequence
 * has the blocks that the coming step reads and writes; freed blocks are overwritten
 * at once.
 *
 * A sequence has two states of recurrent layers.  A step reads the one that the step before has
 * written, and changes it in place or writes the other one, in turn; a step of many rows has several
 * segments.  A rewound sequence goes back to a checkpoint's state, to no other.
 */
#include "tests/golden/model/stepper.h"
#include "runtime/cpu/isa.h"

#include "model/formats/checkpoint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SLAB_BLOCKS 128u
#define MAX_FOLDERS 16
#define N_SEGMENTS 3 /* of a step's rows of one sequence, at most */

const struct ig_sample_params ig_stepper_greedy = {
	.temperature = 0.0f, .top_p = 1.0f, .repetition_penalty = 1.0f, .mask = -1
};

struct seq {
	int32_t n_tokens, max_tokens, adapter; /* adapter: its number plus one; 0: none */
	bool in_step;
	uint32_t *blocks[IG_MAX_CACHE_GROUPS]; /* [max_blocks] block words; of state: two states */
	uint32_t live;			       /* the state that the next step reads */
	int32_t n_sure,
		checkpoint; /* n_sure: rows before it, 0: there is none; the tokens at the last one */
	uint32_t n_steps;
};

/* A stage behind the first one. */
struct later {
	struct ig_program *program;
	void **slab_bases; /* [n_slabs] */
	struct ig_step step;
};

struct ig_stepper {
	struct ig_driver *driver;
	struct later later[IG_STEPPER_LATER];
	uint32_t n_later;
	float *between[2]; /* rows that a stage reads, and those that it writes */
	struct ig_program *program;
	struct ig_program_memory memory;
	enum ig_packed_result packed;
	struct ig_stepper_options o;
	const struct ig_plan *plan;
	struct ig_model_info info; /* of one device */
	uint32_t n_vocab, n_groups;
	uint32_t max_blocks; /* of one sequence */

	uint32_t n_slabs, n_group_blocks; /* slabs in all; blocks of one group */
	void **slab_bases;		  /* [n_slabs] */
	uint64_t *slab_bytes;		  /* [n_slabs] */
	struct ig_kv_layout layout[IG_MAX_CACHE_GROUPS];
	uint32_t *order[IG_MAX_CACHE_GROUPS];	  /* [n_group_blocks] block words, shuffled */
	uint32_t n_taken[IG_MAX_CACHE_GROUPS];	  /* prefix of the group's order */
	uint32_t most_taken[IG_MAX_CACHE_GROUPS]; /* since the last reset */
	uint64_t random;

	struct seq *seqs; /* [n_seqs] */
	int n_seqs, cap_seqs;

	struct ig_step step;
	struct ig_step_kv kv[IG_MAX_CACHE_GROUPS];
	bool ran; /* the step has run; the next put begins another */
	int32_t *token_ids, *positions, *row_seq, *row_adapter; /* [max_rows] */
	const float **outside;					/* [max_rows] */
	int32_t *turned, *sees_to;		  /* [max_rows, IG_ROPE_AXES], [max_rows] */
	int32_t first_put;			  /* the first row of the tokens put last */
	int32_t *seq_lens, *logit_rows, *sampled; /* [max_seqs] */
	struct ig_sample_params *sample;	  /* [max_seqs] */
	uint32_t *tables[IG_MAX_CACHE_GROUPS];	  /* [max_seqs, widths] */
	struct ig_step_segment *segments;	  /* [max_seqs, N_SEGMENTS] */
	int *step_seqs;				  /* [max_seqs] */
	float *logits;				  /* [max_seqs, n_vocab] */
	/* of a plan with a head that guesses */
	int32_t *next_ids;	       /* [max_rows] */
	int32_t *guess_rows, *guessed; /* [max_seqs] */
	float *guess_logits;	       /* [max_seqs, n_vocab] */
};

static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* ---- the model ---- */

static int load_modules(struct ig_modules *m, const char *path, struct ig_error *err)
{
	char *folders[MAX_FOLDERS + 1], *copy, *rest, *part;
	size_t n = 0;
	int rc;

	if (!path)
		path = getenv("INGOT_MODULE_PATH");
#ifdef INGOT_TEST_MODULES
	if (!path || !*path)
		path = INGOT_TEST_MODULES;
#endif
	if (!path || !*path)
		return ig_fail(err, -EINVAL, "no folder of modules: set INGOT_MODULE_PATH");
	copy = strdup(path);
	if (!copy)
		return ig_fail(err, -ENOMEM, "no memory");
	for (part = strtok_r(copy, ":", &rest); part; part = strtok_r(NULL, ":", &rest)) {
		if (n == MAX_FOLDERS) {
			rc = ig_fail(err, -E2BIG, "more than %d folders of modules", MAX_FOLDERS);
			goto out;
		}
		folders[n++] = part;
	}
	folders[n] = NULL;
	rc = ig_modules_load_folders(m, folders, err);
	if (!rc)
		rc = ig_modules_start(m, NULL, 0, err);
out:
	free(copy);
	return rc;
}

static int model_open(struct ig_stepper_model *m, const char *path, const char *module_path,
		      bool with_mtp, struct ig_error *err)
{
	int rc;

	memset(m, 0, sizeof *m);
	rc = ig_modules_create(&m->modules, err);
	if (rc)
		return rc;
	rc = load_modules(m->modules, module_path, err);
	if (rc)
		goto fail;
	rc = ig_checkpoint_open(path, ig_modules_archs(m->modules), &m->file, err);
	if (rc)
		goto fail;
	rc = with_mtp ? ig_plan_record_mtp(m->modules, m->file, &m->plan, err) :
			ig_plan_record(m->modules, m->file, &m->plan, err);
	if (rc)
		goto fail;
	return 0;
fail:
	ig_stepper_model_close(m);
	return rc;
}

int ig_stepper_model_open(struct ig_stepper_model *m, const char *path, const char *module_path,
			  struct ig_error *err)
{
	return model_open(m, path, module_path, false, err);
}

int ig_stepper_model_open_mtp(struct ig_stepper_model *m, const char *path, const char *module_path,
			      struct ig_error *err)
{
	return model_open(m, path, module_path, true, err);
}

void ig_stepper_model_close(struct ig_stepper_model *m)
{
	ig_plan_destroy(m->plan);
	ig_checkpoint_close(m->file);
	if (m->modules)
		ig_modules_destroy(m->modules);
	memset(m, 0, sizeof *m);
}

/* ---- the cache ---- */

/* Bytes of K or V of a head; Q8_0 has no stride. */
static uint64_t half_bytes(uint32_t head_dim, uint32_t dtype, uint64_t *token_stride)
{
	*token_stride = dtype == IG_Q8_0 ? 0 : (uint64_t)head_dim * (dtype == IG_F16 ? 2 : 4);
	return IG_BLOCK_TOKENS * (dtype == IG_Q8_0 ? head_dim / 32 * 34 : *token_stride);
}

static void fill_layout(struct ig_kv_layout *l, const struct ig_cache_group *g,
			const struct ig_stepper_options *o)
{
	l->k_dtype = o->k_dtype;
	l->v_dtype = o->v_dtype;
	l->n_layers = g->n_layers;
	l->n_kv_heads = g->n_kv_heads;
	l->head_dim = g->head_dim;
	l->kind = g->kind;
	if (g->kind == IG_CACHE_STATE) {
		l->k_dtype = l->v_dtype = IG_F32;
		l->block_bytes = ((uint64_t)g->head_dim * 4 + 63) / 64 * 64;
		return;
	}
	if (g->kind == IG_CACHE_K)
		l->v_dtype = o->k_dtype;
	l->v_offset = half_bytes(g->head_dim, l->k_dtype, &l->k_token_stride);
	if (g->kind == IG_CACHE_K)
		l->v_offset = 0;
	l->head_stride = l->v_offset + half_bytes(g->head_dim, l->v_dtype, &l->v_token_stride);
	l->layer_stride = l->head_stride * g->n_kv_heads;
	l->block_bytes = (l->layer_stride * g->n_layers + 63) / 64 * 64;
}

static void shuffle(struct ig_stepper *s)
{
	uint32_t first_slab = 0, per_group = s->n_slabs / s->n_groups;

	for (uint32_t g = 0; g < s->n_groups; g++, first_slab += per_group) {
		uint32_t *order = s->order[g];

		for (uint32_t i = 0; i < s->n_group_blocks; i++)
			order[i] = IG_BLOCK_WORD(first_slab + i / SLAB_BLOCKS, i % SLAB_BLOCKS);
		for (uint32_t i = s->n_group_blocks; i-- > 1;) {
			uint32_t j = next_random(&s->random) % (i + 1), t = order[i];

			order[i] = order[j];
			order[j] = t;
		}
		s->n_taken[g] = s->most_taken[g] = 0;
	}
}

static uint32_t window_of(const struct ig_stepper *s, uint32_t group)
{
	return s->o.keep_all ? 0 : s->info.groups[group].window;
}

static bool is_state(const struct ig_stepper *s, uint32_t group)
{
	return s->info.groups[group].kind == IG_CACHE_STATE;
}

/* Parts of a state; of other groups blocks of a sequence. */
static uint32_t width_of(const struct ig_stepper *s, uint32_t group)
{
	const struct ig_cache_group *g = &s->info.groups[group];

	return is_state(s, group) ? g->n_layers * g->n_kv_heads : s->max_blocks;
}

static uint32_t take_block(struct ig_stepper *s, uint32_t group)
{
	uint32_t word = s->order[group][s->n_taken[group]++];

	if (s->most_taken[group] < s->n_taken[group])
		s->most_taken[group] = s->n_taken[group];
	return word;
}

static void give_block(struct ig_stepper *s, uint32_t group, uint32_t *word)
{
	if (*word == IG_BLOCK_NONE)
		return;
	s->order[group][--s->n_taken[group]] = *word;
	*word = IG_BLOCK_NONE;
}

/* Of a group with a window: free the blocks that rows from position n_tokens on do not read,
 * then allocate those that n of them write. */
static int move_window(struct ig_stepper *s, uint32_t g, struct seq *seq, int32_t n)
{
	uint32_t window = window_of(s, g), at = (uint32_t)seq->n_tokens;
	uint32_t first = at >= window ? (at + 1 - window) / IG_BLOCK_TOKENS : 0;
	uint32_t last = (at + (uint32_t)n - 1) / IG_BLOCK_TOKENS;

	for (uint32_t i = 0; i < first; i++)
		give_block(s, g, &seq->blocks[g][i]);
	for (uint32_t i = first; i <= last; i++) {
		if (seq->blocks[g][i] != IG_BLOCK_NONE)
			continue;
		if (s->n_taken[g] == s->n_group_blocks)
			return -ENOSPC;
		seq->blocks[g][i] = take_block(s, g);
	}
	return 0;
}

static int make_cache(struct ig_stepper *s, struct ig_error *err)
{
	uint64_t n_blocks, per_group;

	/* As many sequences as a step holds may leave their last block partly unused. */
	n_blocks = s->o.cache_tokens / IG_BLOCK_TOKENS + 1 + s->o.max_seqs;
	for (uint32_t g = 0; g < s->n_groups; g++)
		if (is_state(s, g) && n_blocks < 2ull * s->o.max_seqs * width_of(s, g))
			n_blocks = 2ull * s->o.max_seqs * width_of(s, g);
	per_group = (n_blocks + SLAB_BLOCKS - 1) / SLAB_BLOCKS;
	if (per_group * s->n_groups >= 1u << 20)
		return ig_fail(err, -E2BIG, "a cache of that many tokens");
	s->n_group_blocks = (uint32_t)per_group * SLAB_BLOCKS;
	s->n_slabs = (uint32_t)per_group * s->n_groups;
	s->slab_bases = calloc(s->n_slabs, sizeof *s->slab_bases);
	s->slab_bytes = calloc(s->n_slabs, sizeof *s->slab_bytes);
	if (!s->slab_bases || !s->slab_bytes)
		return ig_fail(err, -ENOMEM, "no memory for the cache");
	for (uint32_t g = 0; g < s->n_groups; g++) {
		fill_layout(&s->layout[g], &s->info.groups[g], &s->o);
		s->order[g] = calloc(s->n_group_blocks, sizeof *s->order[g]);
		if (!s->order[g])
			return ig_fail(err, -ENOMEM, "no memory for the cache");
		for (uint32_t i = 0; i < per_group; i++) {
			uint32_t slab = g * (uint32_t)per_group + i;
			uint64_t bytes = 4096;

			while (bytes < SLAB_BLOCKS * s->layout[g].block_bytes)
				bytes *= 2;
			s->slab_bases[slab] = ig_driver_map_slab(s->driver, bytes);
			if (!s->slab_bases[slab])
				return ig_fail(err, -ENOMEM, "no memory for the cache");
			s->slab_bytes[slab] = bytes;
		}
	}
	shuffle(s);
	return 0;
}

/* ---- stages ---- */

static int open_later(struct ig_stepper *s, const struct ig_stepper_model *m,
		      const struct ig_program_limits *limits, struct ig_error *err)
{
	uint32_t width = m->plan->width_out;
	int rc = 0;

	for (uint32_t i = 0; i < m->n_later && !rc; i++) {
		struct later *l = &s->later[i];
		struct ig_program_memory memory;
		s->n_later = i + 1;
		l->slab_bases = calloc(s->n_slabs, sizeof *l->slab_bases);
		rc = l->slab_bases ? ig_driver_lower(s->driver, m->later[i], limits, &l->program,
						     &memory, err) :
				     ig_fail(err, -ENOMEM, "no memory for a stage");
		rc = rc ? rc : ig_program_load(l->program, err);
		for (uint32_t k = 0; k < s->n_slabs && !rc; k++)
			if (!(l->slab_bases[k] = ig_driver_map_slab(s->driver, s->slab_bytes[k])))
				rc = ig_fail(err, -ENOMEM, "no memory for the cache of a stage");
		width = m->later[i]->width_out > width ? m->later[i]->width_out : width;
	}
	for (int i = 0; i < 2 && s->n_later && !rc; i++)
		if (!(s->between[i] =
			      malloc((size_t)s->o.max_rows * width * sizeof *s->between[i])))
			rc = ig_fail(err, -ENOMEM, "no memory for rows of a stage");
	return rc;
}

static void close_later(struct ig_stepper *s)
{
	for (uint32_t i = 0; i < s->n_later; i++) {
		struct later *l = &s->later[i];
		ig_program_destroy(l->program);
		for (uint32_t k = 0; l->slab_bases && k < s->n_slabs; k++)
			if (l->slab_bases[k])
				ig_driver_unmap_slab(s->driver, l->slab_bases[k], s->slab_bytes[k]);
		free(l->slab_bases);
	}
	free(s->between[0]);
	free(s->between[1]);
}

/* The rows that the first stage has left in between[0], through the others. */
static int run_later(struct ig_stepper *s)
{
	int rc = 0;

	for (uint32_t i = 0; i < s->n_later && !rc; i++) {
		struct later *l = &s->later[i];
		l->step = s->step;
		l->step.slab_bases = l->slab_bases;
		l->step.stage_in = s->between[i % 2];
		l->step.stage_out = s->between[(i + 1) % 2];
		rc = ig_program_submit(l->program, &l->step);
		rc = rc ? rc : ig_program_wait(l->program);
	}
	return rc;
}

/* ---- open and close ---- */

static int make_buffers(struct ig_stepper *s, struct ig_error *err)
{
	size_t rows = s->o.max_rows, seqs = s->o.max_seqs;
	bool ok;

	s->token_ids = calloc(rows, sizeof *s->token_ids);
	s->positions = calloc(rows, sizeof *s->positions);
	s->row_seq = calloc(rows, sizeof *s->row_seq);
	s->row_adapter = calloc(rows, sizeof *s->row_adapter);
	s->outside = calloc(rows, sizeof *s->outside);
	s->turned = calloc(rows, IG_ROPE_AXES * sizeof *s->turned);
	s->sees_to = calloc(rows, sizeof *s->sees_to);
	s->seq_lens = calloc(seqs, sizeof *s->seq_lens);
	s->logit_rows = calloc(seqs, sizeof *s->logit_rows);
	s->sampled = calloc(seqs, sizeof *s->sampled);
	s->sample = calloc(seqs, sizeof *s->sample);
	s->step_seqs = calloc(seqs, sizeof *s->step_seqs);
	s->logits = calloc(seqs * s->n_vocab, sizeof *s->logits);
	ok = s->outside && s->turned && s->sees_to;
	ok = ok && s->token_ids && s->positions && s->row_seq && s->row_adapter && s->seq_lens &&
	     s->logit_rows && s->sampled && s->sample && s->step_seqs && s->logits;
	for (uint32_t g = 0; g < s->n_groups; g++) {
		s->tables[g] = calloc(2 * seqs * width_of(s, g), sizeof *s->tables[g]);
		ok = ok && s->tables[g];
	}
	s->segments = calloc(seqs * N_SEGMENTS, sizeof *s->segments);
	ok = ok && s->segments;
	if (s->plan->first_mtp_node) {
		s->next_ids = calloc(rows, sizeof *s->next_ids);
		s->guess_rows = calloc(seqs, sizeof *s->guess_rows);
		s->guessed = calloc(seqs, sizeof *s->guessed);
		s->guess_logits = calloc(seqs * s->n_vocab, sizeof *s->guess_logits);
		ok = ok && s->next_ids && s->guess_rows && s->guessed && s->guess_logits;
	}
	return ok ? 0 : ig_fail(err, -ENOMEM, "no memory for a step's buffers");
}

static bool fits(const struct ig_plan *p, const struct ig_plan_node *n,
		 const struct ig_cpu_kernel *k)
{
	if (k->weight_dtype == IG_DTYPE_NONE)
		return true;
	for (uint32_t i = 0; i < IG_MAX_WEIGHTS; i++)
		if (n->weight[i] >= 0 && p->weights[n->weight[i]].shape.dtype == k->weight_dtype)
			return true;
	return false;
}

bool ig_stepper_isa_matters(const struct ig_stepper_model *m, const char *isa)
{
	for (uint32_t i = 0; i < m->plan->n_nodes; i++) {
		const struct ig_plan_node *n = &m->plan->nodes[i];

		for (uint32_t j = 0; j < n->op->n_cpu_kernels; j++) {
			const struct ig_cpu_kernel *k = &n->op->cpu_kernels[j];

			if (!strcmp(ig_isa_name(k->isa), isa) && fits(m->plan, n, k))
				return true;
		}
	}
	return false;
}

static bool is_cache(uint32_t dtype)
{
	return dtype == IG_F16 || dtype == IG_F32 || dtype == IG_Q8_0;
}

/* With a packed copy its name is that of the layout: the caller knows whose weights are in it. */
static int load(struct ig_stepper *s, const char *packed, struct ig_error *err)
{
	struct ig_packed_file f = { .path = packed };
	uint64_t n_bytes, layout = ig_program_packed_layout(s->program, &n_bytes);

	if (!packed)
		return ig_program_load(s->program, err);
	if (!layout)
		return ig_fail(err, -ENOTSUP, "the driver makes no copies of packed weights");
	memcpy(f.name, &layout, sizeof layout);
	int rc = ig_program_load_packed(s->program, &f, err);
	s->packed = f.result;
	return rc ? rc : f.result ? 0 : ig_fail(err, f.why.code, "%s", f.why.text);
}

const char *ig_stepper_driver(void)
{
	const char *name = getenv("INGOT_TEST_DRIVER");

	return name ? name : "cpu";
}

bool ig_stepper_on_gpu(void) { return strcmp(ig_stepper_driver(), "cpu") != 0; }

int ig_stepper_open(const struct ig_stepper_model *m, const struct ig_stepper_options *o,
		    struct ig_stepper **out, struct ig_error *err)
{
	const char *env = getenv("INGOT_TEST_DEVICES");
	const uint32_t devices[] = { 0, 1, 2, 3, 4, 5, 6, 7 };
	const uint32_t n_devices = o->n_devices ? o->n_devices : env ? (uint32_t)atoi(env) : 0;
	const struct ig_driver_options d = {
		.isa = o->isa ? o->isa : "auto",
		.n_threads = o->n_threads,
		.activations = o->activations ? o->activations : "auto",
		.experts = o->experts,
		.repack = o->repack,
		.tensor_units = o->tensor_units,
		.strict = 1,
		.devices = devices,
		.n_devices = n_devices,
	};
	const struct ig_program_limits limits = {
		.max_rows = o->max_rows,
		.max_seqs = o->max_seqs,
		.max_logit_rows = o->max_seqs,
		.max_context = o->max_context,
		.k_dtype = o->k_dtype,
		.v_dtype = o->v_dtype,
	};
	const char *driver = o->driver ? o->driver : ig_stepper_driver();
	struct ig_stepper *s;
	int rc;

	*out = NULL;
	if (!o->max_rows || !o->max_seqs || !o->max_context || !is_cache(o->k_dtype) ||
	    !is_cache(o->v_dtype))
		return ig_fail(err, -EINVAL, "a stepper without limits or type of the cache");
	s = calloc(1, sizeof *s);
	if (!s)
		return ig_fail(err, -ENOMEM, "no memory");
	s->o = *o;
	s->plan = m->plan;
	s->n_vocab = m->plan->info.n_vocab;
	s->n_groups = m->plan->info.n_groups;
	s->info = m->plan->info;
	s->max_blocks = (o->max_context + IG_BLOCK_TOKENS - 1) / IG_BLOCK_TOKENS;
	s->random = o->shuffle;
	s->driver = o->opened;
	rc = s->driver ? 0 : ig_driver_open(driver, &d, &s->driver, err);
	if (!rc)
		rc = ig_driver_model_info(s->driver, m->plan, &s->info, err);
	if (rc)
		goto fail;
	rc = ig_driver_lower(s->driver, m->plan, &limits, &s->program, &s->memory, err);
	if (rc)
		goto fail;
	rc = load(s, o->packed, err);
	if (rc)
		goto fail;
	rc = make_cache(s, err);
	if (rc)
		goto fail;
	rc = make_buffers(s, err);
	rc = rc ? rc : open_later(s, m, &limits, err);
	if (rc)
		goto fail;
	*out = s;
	return 0;
fail:
	ig_stepper_close(s);
	return rc;
}

static void drop_seqs(struct ig_stepper *s)
{
	for (int i = 0; i < s->n_seqs; i++)
		for (uint32_t g = 0; g < s->n_groups; g++)
			free(s->seqs[i].blocks[g]);
	s->n_seqs = 0;
}

void ig_stepper_close(struct ig_stepper *s)
{
	if (!s)
		return;
	drop_seqs(s);
	free(s->seqs);
	ig_program_destroy(s->program);
	close_later(s);
	for (uint32_t i = 0; s->slab_bases && s->slab_bytes && i < s->n_slabs; i++)
		if (s->slab_bases[i])
			ig_driver_unmap_slab(s->driver, s->slab_bases[i], s->slab_bytes[i]);
	free(s->slab_bases);
	free(s->slab_bytes);
	for (uint32_t g = 0; g < s->n_groups; g++) {
		free(s->order[g]);
		free(s->tables[g]);
	}
	if (s->driver)
		ig_driver_close(s->driver);
	free(s->token_ids);
	free(s->positions);
	free(s->row_seq);
	free(s->row_adapter);
	free(s->outside);
	free(s->turned);
	free(s->sees_to);
	free(s->seq_lens);
	free(s->logit_rows);
	free(s->sampled);
	free(s->sample);
	free(s->step_seqs);
	free(s->segments);
	free(s->logits);
	free(s->next_ids);
	free(s->guess_rows);
	free(s->guessed);
	free(s->guess_logits);
	free(s);
}

const char *ig_stepper_describe(const struct ig_stepper *s)
{
	return ig_driver_describe(s->driver);
}

uint64_t ig_stepper_weight_bytes(const struct ig_stepper *s) { return s->memory.weight_bytes; }

uint64_t ig_stepper_pulse(const struct ig_stepper *s) { return ig_driver_pulse(s->driver); }

bool ig_stepper_is_mapped(const struct ig_stepper *s) { return s->packed == IG_PACKED_MAPPED; }

uint64_t ig_stepper_scratch_bytes(const struct ig_stepper *s) { return s->memory.scratch_bytes; }

uint32_t ig_stepper_n_vocab(const struct ig_stepper *s) { return s->n_vocab; }

/* ---- sequences ---- */

int ig_stepper_add(struct ig_stepper *s, uint32_t max_tokens)
{
	uint32_t n = (max_tokens + IG_BLOCK_TOKENS - 1) / IG_BLOCK_TOKENS;
	struct seq *seq;

	if (!max_tokens || max_tokens > s->o.max_context)
		return -EINVAL;
	for (uint32_t g = 0; g < s->n_groups; g++)
		if (!window_of(s, g) &&
		    (is_state(s, g) ? 2 * width_of(s, g) : n) > s->n_group_blocks - s->n_taken[g])
			return -ENOSPC;
	if (s->n_seqs == s->cap_seqs) {
		int cap = s->cap_seqs ? 2 * s->cap_seqs : 16;

		seq = realloc(s->seqs, (size_t)cap * sizeof *seq);
		if (!seq)
			return -ENOMEM;
		s->seqs = seq;
		s->cap_seqs = cap;
	}
	seq = &s->seqs[s->n_seqs];
	memset(seq, 0, sizeof *seq);
	seq->max_tokens = (int32_t)max_tokens;
	for (uint32_t g = 0; g < s->n_groups; g++) {
		seq->blocks[g] = malloc(2 * (size_t)width_of(s, g) * sizeof *seq->blocks[g]);
		if (!seq->blocks[g]) {
			while (g--)
				free(seq->blocks[g]);
			return -ENOMEM;
		}
	}
	for (uint32_t g = 0; g < s->n_groups; g++)
		for (uint32_t i = 0; i < (is_state(s, g) ? 2 : 1) * width_of(s, g); i++)
			seq->blocks[g][i] = is_state(s, g) || (i < n && !window_of(s, g)) ?
						    take_block(s, g) :
						    IG_BLOCK_NONE;
	return s->n_seqs++;
}

void ig_stepper_checkpoint(struct ig_stepper *s, int number, int32_t n)
{
	s->seqs[number].n_sure = n;
}

void ig_stepper_rewind(struct ig_stepper *s, int number, int32_t n_tokens)
{
	struct seq *seq = &s->seqs[number];

	if (n_tokens >= seq->n_tokens)
		return;
	if (n_tokens == seq->checkpoint)
		seq->live = 1 - seq->live;
	seq->n_tokens = n_tokens;
	for (uint32_t g = 0; g < s->n_groups; g++)
		for (uint32_t i = ((uint32_t)n_tokens + IG_BLOCK_TOKENS - 1) / IG_BLOCK_TOKENS;
		     window_of(s, g) && i < s->max_blocks; i++)
			give_block(s, g, &seq->blocks[g][i]);
}

void ig_stepper_reset(struct ig_stepper *s)
{
	drop_seqs(s);
	memset(&s->step, 0, sizeof s->step);
	shuffle(s);
}

void ig_stepper_adapt(struct ig_stepper *s, int seq, int32_t adapter)
{
	s->seqs[seq].adapter = adapter + 1;
}

int32_t ig_stepper_length(const struct ig_stepper *s, int seq) { return s->seqs[seq].n_tokens; }

uint32_t ig_stepper_most_blocks(const struct ig_stepper *s, uint32_t group)
{
	return s->most_taken[group];
}

/* ---- a step ---- */

static void begin_step(struct ig_stepper *s)
{
	for (int i = 0; i < s->step.n_seqs; i++)
		s->seqs[s->step_seqs[i]].in_step = false;
	s->step = (struct ig_step){
		.struct_size = sizeof s->step,
		.token_ids = s->token_ids,
		.positions = s->positions,
		.row_seq = s->row_seq,
		.seq_lens = s->seq_lens,
		.logit_rows = s->logit_rows,
		.sample = s->sample,
		.sampled_ids = s->sampled,
		.slab_bases = s->slab_bases,
		.kv = s->kv,
		.n_groups = s->n_groups,
		.segments = s->segments,
		.next_ids = s->next_ids,
		.guess_rows = s->guess_rows,
		.guessed_ids = s->guessed,
	};
	s->ran = false;
}

/* The segments of the n rows that the sequence is about to get. */
static void add_segments(struct ig_stepper *s, struct seq *seq, int32_t n)
{
	struct ig_step *step = &s->step;
	int32_t row = step->n_rows, left = n, from = seq->n_tokens ? (int32_t)seq->live : -1;
	int32_t parts = seq->n_sure ? 2 : n >= 2 * N_SEGMENTS ? N_SEGMENTS : 1;

	for (; parts; parts--) {
		int32_t rows = parts == 1 ? left : seq->n_sure ? seq->n_sure : left / parts;
		bool moves = (++seq->n_steps + (uint32_t)parts) % 3 == 0; /* now and then */
		if (seq->n_sure)
			moves = parts == 1;
		int32_t to = from < 0 ? 0 : moves ? 1 - from : from;
		int32_t base = 2 * step->n_seqs;
		s->segments[step->n_segments++] =
			(struct ig_step_segment){ row, rows, from < 0 ? -1 : base + from,
						  base + to };
		row += rows;
		left -= rows;
		from = to;
	}
	seq->live = (uint32_t)from;
	seq->checkpoint = seq->n_sure ? seq->n_tokens + seq->n_sure : 0;
	seq->n_sure = 0;
	step->n_states = 2 * (step->n_seqs + 1);
}

/* The last n_draws of n tokens have a sample. */
static int put(struct ig_stepper *s, int number, const int32_t *ids, int32_t n, int32_t n_draws,
	       const struct ig_sample_params *draw)
{
	struct ig_step *step = &s->step;
	struct seq *seq;

	if (s->ran || !step->struct_size)
		begin_step(s);
	if (number < 0 || number >= s->n_seqs || n < 1)
		return -EINVAL;
	seq = &s->seqs[number];
	if (seq->in_step || n > seq->max_tokens - seq->n_tokens)
		return -EINVAL;
	if (n_draws > n || (uint32_t)(step->n_logit_rows + n_draws) > s->o.max_seqs ||
	    (uint32_t)n > s->o.max_rows - (uint32_t)step->n_rows ||
	    (uint32_t)step->n_seqs == s->o.max_seqs)
		return -ENOSPC;
	for (uint32_t g = 0; g < s->n_groups; g++)
		if (window_of(s, g) && move_window(s, g, seq, n))
			return -ENOSPC;
	s->first_put = step->n_rows;
	for (int32_t i = 0; i < n; i++) {
		s->outside[step->n_rows + i] = NULL;
		s->sees_to[step->n_rows + i] = seq->n_tokens + i;
		for (int k = 0; k < IG_ROPE_AXES; k++)
			s->turned[(step->n_rows + i) * IG_ROPE_AXES + k] = seq->n_tokens + i;
		s->token_ids[step->n_rows + i] = ids[i];
		s->positions[step->n_rows + i] = seq->n_tokens + i;
		s->row_seq[step->n_rows + i] = step->n_seqs;
		s->row_adapter[step->n_rows + i] = seq->adapter - 1;
		if (s->next_ids)
			s->next_ids[step->n_rows + i] = i + 1 < n ? ids[i + 1] : 0;
	}
	add_segments(s, seq, n);
	step->n_rows += n;
	if (seq->adapter)
		step->row_adapter = s->row_adapter;
	seq->n_tokens += n;
	seq->in_step = true;
	s->step_seqs[step->n_seqs] = number;
	s->seq_lens[step->n_seqs] = seq->n_tokens;
	for (uint32_t g = 0; g < s->n_groups; g++) {
		size_t width = (is_state(s, g) ? 2 : 1) * (size_t)width_of(s, g);
		memcpy(s->tables[g] + (size_t)step->n_seqs * width, seq->blocks[g],
		       width * sizeof *s->tables[g]);
	}
	step->n_seqs++;
	for (int32_t i = n_draws - 1; i >= 0; i--) {
		s->logit_rows[step->n_logit_rows] = step->n_rows - 1 - i;
		s->sample[step->n_logit_rows] = *draw;
		s->sample[step->n_logit_rows].position = seq->n_tokens - i;
		if (s->next_ids) {
			s->next_ids[step->n_rows - 1 - i] = -1 - step->n_logit_rows;
			s->guess_rows[step->n_guesses++] = step->n_logit_rows;
		}
		step->n_logit_rows++;
	}
	return n_draws ? step->n_logit_rows - n_draws : 0;
}

int ig_stepper_put(struct ig_stepper *s, int number, const int32_t *ids, int32_t n,
		   const struct ig_sample_params *draw)
{
	return put(s, number, ids, n, draw ? 1 : 0, draw);
}

int ig_stepper_put_draft(struct ig_stepper *s, int number, const int32_t *ids, int32_t n,
			 const struct ig_sample_params *draw)
{
	return put(s, number, ids, n, n, draw);
}

void ig_stepper_say_next(struct ig_stepper *s, int32_t id)
{
	if (s->next_ids)
		s->next_ids[s->step.n_rows - 1] = id;
}

void ig_stepper_leave_out_head(struct ig_stepper *s)
{
	s->step.next_ids = NULL;
	s->step.n_guesses = 0;
}

void ig_stepper_say_outside(struct ig_stepper *s, int32_t i, const float *row,
			    const int32_t turned[IG_ROPE_AXES], int32_t ahead)
{
	const int32_t r = s->first_put + i;

	s->outside[r] = row;
	s->sees_to[r] = s->positions[r] + ahead;
	memcpy(s->turned + r * IG_ROPE_AXES, turned, IG_ROPE_AXES * sizeof *turned);
	s->step.outside = s->outside;
	s->step.rope_positions = s->turned;
	s->step.sees_to = s->sees_to;
}

int ig_stepper_run(struct ig_stepper *s, bool want_logits)
{
	int rc;

	if (s->ran || !s->step.n_rows)
		return -EINVAL;
	for (uint32_t g = 0; g < s->n_groups; g++)
		s->kv[g] = (struct ig_step_kv){
			.layout = &s->layout[g],
			.block_tables = s->tables[g],
			.max_blocks = width_of(s, g),
		};
	s->step.logits = want_logits ? s->logits : NULL;
	s->step.guess_logits = want_logits ? s->guess_logits : NULL;
	s->ran = true;
	s->step.stage_out = s->between[0];
	rc = ig_program_submit(s->program, &s->step);
	rc = rc ? rc : ig_program_wait(s->program);
	return rc ? rc : run_later(s);
}

int32_t ig_stepper_sampled(const struct ig_stepper *s, int draw) { return s->sampled[draw]; }

const float *ig_stepper_logits(const struct ig_stepper *s, int draw)
{
	return s->logits + (size_t)draw * s->n_vocab;
}

int32_t ig_stepper_guessed(const struct ig_stepper *s, int draw) { return s->guessed[draw]; }

const float *ig_stepper_guess_logits(const struct ig_stepper *s, int draw)
{
	return s->guess_logits + (size_t)draw * s->n_vocab;
}
