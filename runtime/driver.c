/* driver.c: opening drivers by name, and the contract of submit and wait that all share. */
#include "runtime/driver_private.h"
#include "runtime/split.h"
#include "base/clock.h"
#include "base/log.h"

#include <ingot/kvcache.h>

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int ig_driver_open(const char *name, const struct ig_driver_options *o, struct ig_driver **out,
		   struct ig_error *err)
{
	const bool named =
		o->n_devices || o->all_devices; /* who names devices is told what they lack */
	bool any = !strcmp(name, "auto");
	char known[128] = "auto";
	int rc = -ENOTSUP;

	*out = NULL;
	for (const struct ig_driver_class *const *c = ig_driver_classes; *c; c++) {
		size_t n = strlen(known);
		struct ig_error why = { 0 };
		snprintf(known + n, sizeof known - n, ", %s", (*c)->name);
		if (!any && strcmp(name, (*c)->name))
			continue;
		rc = named && *c == &ig_driver_cpu ?
			     ig_fail(&why, -ENOTSUP, "the driver cpu has no devices with numbers") :
			     (*c)->open(o, out, &why);
		if (rc != -ENOTSUP || !any || named || !c[1]) {
			if (rc)
				ig_fail(err, rc, "%s", why.text);
			return rc;
		}
		ig_log_info("driver %s cannot be used: %s", (*c)->name, why.text);
	}
	return ig_fail(err, -ENOTSUP, "driver \"%s\" is unknown; known: %s", name, known);
}

void ig_driver_close(struct ig_driver *d)
{
	if (d)
		d->class->close(d);
}

const char *ig_driver_describe(const struct ig_driver *d) { return d->class->describe(d); }

uint64_t ig_driver_pulse(const struct ig_driver *d) { return atomic_load(&d->pulse); }

uint32_t ig_plan_outside_width(const struct ig_plan *plan)
{
	for (uint32_t i = 0; i < plan->n_nodes; i++) {
		const struct ig_plan_node *n = &plan->nodes[i];
		const struct ig_embed_params *p = n->params;
		if (!strcmp(n->op->name, "embed") && p->outside)
			return (uint32_t)plan->values[n->out[0]].shape.n_cols;
	}
	return 0;
}

int ig_driver_lower(struct ig_driver *d, const struct ig_plan *plan,
		    const struct ig_program_limits *limits, struct ig_program **out,
		    struct ig_program_memory *memory, struct ig_error *err)
{
	*out = NULL;
	if (!limits->max_rows || !limits->max_seqs || !limits->max_logit_rows ||
	    !limits->max_context)
		return ig_fail(err, -EINVAL, "a program's limits must not be zero");
	if (plan->first_mtp_node && !d->class->takes_mtp)
		return ig_fail(err, -ENOTSUP,
			       "the driver %s has no heads that guess further tokens",
			       d->class->name);
	int rc = d->class->lower(d, plan, limits, out, memory, err);
	if (rc)
		return rc;
	(*out)->driver = d;
	(*out)->whole_texts = !plan->info.n_groups;
	(*out)->n_adapters = plan->n_adapters;
	(*out)->has_mtp = plan->first_mtp_node;
	(*out)->width_in = plan->width_in;
	(*out)->width_out = plan->width_out;
	(*out)->width_outside = d->class->takes_outside ? ig_plan_outside_width(plan) : 0;
	struct ig_model_info info = plan->info;
	if (d->class->model_info && (rc = d->class->model_info(d, plan, &info, err))) {
		ig_program_destroy(*out);
		*out = NULL;
		return rc;
	}
	for (uint32_t g = 0; g < info.n_groups && g < IG_MAX_CACHE_GROUPS; g++) {
		const struct ig_cache_group *group = &info.groups[g];
		(*out)->windows[g] = group->window;
		if (group->kind == IG_CACHE_STATE)
			(*out)->n_parts[g] = group->n_layers * group->n_kv_heads;
	}
	return 0;
}

int ig_program_load(struct ig_program *p, struct ig_error *err)
{
	int rc = p->loaded ? ig_fail(err, -EALREADY, "the program is loaded") :
			     p->class->load(p, err);
	if (!rc)
		p->loaded = 1;
	return rc;
}

int ig_program_load_packed(struct ig_program *p, struct ig_packed_file *f, struct ig_error *err)
{
	int rc;

	f->result = IG_PACKED_NONE;
	f->why = (struct ig_error){ 0 };
	p->packed = f;
	rc = ig_program_load(p, err);
	p->packed = NULL;
	return rc;
}

uint64_t ig_program_packed_layout(const struct ig_program *p, uint64_t *file_bytes)
{
	*file_bytes = 0;
	return p->class->packed_layout ? p->class->packed_layout(p, file_bytes) : 0;
}

void ig_program_destroy(struct ig_program *p)
{
	if (!p)
		return;
	free(p->rank_memory);
	p->class->destroy(p);
}

/* Without a cache: a sequence has all of its rows in this step, and its result is of the last. */
static int check_whole(const struct ig_step *s, struct ig_error *err)
{
	int32_t row = 0;

	for (int32_t i = 0; i < s->n_seqs; i++) {
		if (row >= s->n_rows || s->row_seq[row] != i || s->positions[row] != 0 ||
		    s->seq_lens[i] > s->n_rows - row || s->row_seq[row + s->seq_lens[i] - 1] != i)
			return ig_fail(err, -EINVAL, "sequence %d is not whole in the step", i);
		row += s->seq_lens[i];
	}
	if (row != s->n_rows)
		return ig_fail(err, -EINVAL, "row %d is of no whole sequence", row);
	for (int32_t i = 0; i < s->n_logit_rows; i++) {
		int32_t r = s->logit_rows[i];
		if (r + 1 < s->n_rows && s->row_seq[r + 1] == s->row_seq[r])
			return ig_fail(err, -EINVAL, "row %d is not the last of its sequence", r);
	}
	return 0;
}

/* Check that all blocks exist that rows of sequence seq from position `first` on read or write.
 * Blocks outside a group's window may be missing. */
static int check_tables(const struct ig_program *p, const struct ig_step *s, int32_t seq,
			int32_t first, struct ig_error *err)
{
	const int32_t end = (s->seq_lens[seq] - 1) / IG_BLOCK_TOKENS;

	for (uint32_t g = 0; g < s->n_groups; g++) {
		const struct ig_step_kv *kv = &s->kv[g];
		const uint32_t *words = kv->block_tables + seq * kv->max_blocks;
		uint32_t window = g < IG_MAX_CACHE_GROUPS ? p->windows[g] : 0;
		int32_t i = (int32_t)ig_kv_first_read(window, (uint32_t)first);

		if (g < IG_MAX_CACHE_GROUPS && p->n_parts[g])
			continue;
		if (end >= kv->max_blocks)
			return ig_fail(err, -EINVAL,
				       "sequence %d has %d tokens, its table %lld blocks", seq,
				       s->seq_lens[seq], (long long)kv->max_blocks);
		for (; i <= end; i++)
			if (words[i] == IG_BLOCK_NONE)
				return ig_fail(err, -EINVAL,
					       "sequence %d reads from position %d on; its "
					       "table of cache group %u has no block %d",
					       seq, first, g, i);
	}
	return 0;
}

/* A state of the step, whose parts a segment reads or writes. */
static int check_state(const struct ig_program *p, const struct ig_step *s, int32_t i,
		       int32_t state, struct ig_error *err)
{
	if (state < 0 || state >= s->n_states)
		return ig_fail(err, -EINVAL, "segment %d has state %d of %d", i, state,
			       s->n_states);
	for (uint32_t g = 0; g < s->n_groups && g < IG_MAX_CACHE_GROUPS; g++) {
		const struct ig_step_kv *kv = &s->kv[g];
		if (kv->max_blocks < p->n_parts[g])
			return ig_fail(err, -EINVAL,
				       "states of cache group %u have %lld parts of %u", g,
				       (long long)kv->max_blocks, p->n_parts[g]);
		for (uint32_t k = 0; k < p->n_parts[g]; k++)
			if (kv->block_tables[state * kv->max_blocks + k] == IG_BLOCK_NONE)
				return ig_fail(err, -EINVAL,
					       "state %d of cache group %u has no part %u", state,
					       g, k);
	}
	return 0;
}

/* Every row must be in one segment, and a sequence's segments must follow each other. */
static int check_segments(const struct ig_program *p, const struct ig_step *s, struct ig_error *err)
{
	int32_t row = 0;

	for (int32_t i = 0; i < s->n_segments; i++) {
		const struct ig_step_segment *g = &s->segments[i];
		int rc;
		if (g->first_row != row || g->n_rows < 1 || g->n_rows > s->n_rows - row ||
		    s->row_seq[row] != s->row_seq[row + g->n_rows - 1])
			return ig_fail(err, -EINVAL,
				       "segment %d has %d rows from row %d on, of a step of %d", i,
				       g->n_rows, g->first_row, s->n_rows);
		if (row && s->row_seq[row] == s->row_seq[row - 1]) {
			if (g->from != g[-1].to)
				return ig_fail(
					err, -EINVAL,
					"segment %d does not begin where the one before ends", i);
		} else if ((g->from < 0) != (s->positions[row] == 0)) {
			return ig_fail(err, -EINVAL, "segment %d begins at position %d %s a state",
				       i, s->positions[row], g->from < 0 ? "without" : "with");
		}
		if ((rc = check_state(p, s, i, g->to, err)) ||
		    (g->from >= 0 && (rc = check_state(p, s, i, g->from, err))))
			return rc;
		row += g->n_rows;
	}
	return row == s->n_rows ?
		       0 :
		       ig_fail(err, -EINVAL, "segments of %d rows in a step of %d", row, s->n_rows);
}

static bool has_state(const struct ig_program *p)
{
	for (uint32_t g = 0; g < IG_MAX_CACHE_GROUPS; g++)
		if (p->n_parts[g])
			return true;
	return false;
}

bool ig_driver_takes_mtp(const struct ig_driver *d) { return d->class->takes_mtp; }

/* What the head of a plan reads of a step, if the step has it. */
static int check_guesses(const struct ig_program *p, const struct ig_step *s, struct ig_error *err)
{
	if (!s->next_ids ? s->n_guesses != 0 :
			   !p->has_mtp || s->n_guesses < 0 || s->n_guesses > s->n_logit_rows)
		return ig_fail(err, -EINVAL, "a step with %d guesses", s->n_guesses);
	for (int32_t r = 0; s->next_ids && r < s->n_rows; r++)
		if (s->next_ids[r] < -s->n_logit_rows)
			return ig_fail(err, -EINVAL, "row %d is before token %d", r,
				       s->next_ids[r]);
	for (int32_t i = 0; i < s->n_guesses; i++)
		if (s->guess_rows[i] < 0 || s->guess_rows[i] >= s->n_logit_rows ||
		    (i && s->guess_rows[i] <= s->guess_rows[i - 1]))
			return ig_fail(err, -EINVAL, "row %d is wrong as entry %d of guess_rows",
				       s->guess_rows[i], i);
	return 0;
}

#define MAX_ROPE_POSITION (1 << 24) /* up to which a float has every whole number */

/* Rows that are no token's.  A later stage of a plan that was cut has the step of the first one. */
static int check_outside(const struct ig_program *p, const struct ig_step *s, struct ig_error *err)
{
	const bool any = s->rope_positions || s->outside || s->sees_to;

	if (any && !p->driver->class->takes_outside)
		return ig_fail(
			err, -ENOTSUP,
			"the driver %s has no embeddings from outside, positions of their own and "
			"rows that see ahead",
			p->driver->class->name);
	for (int32_t r = 0; any && r < s->n_rows; r++) {
		const int32_t to = ig_step_sees_to(s, 1, r);
		if (ig_step_outside(s, r) && !p->width_outside && !p->width_in)
			return ig_fail(err, -EINVAL,
				       "row %d has an embedding from outside; the plan takes none",
				       r);
		if (to < s->positions[r] || to >= s->seq_lens[s->row_seq[r]])
			return ig_fail(err, -EINVAL, "row %d at position %d sees up to %d of %d", r,
				       s->positions[r], to, s->seq_lens[s->row_seq[r]]);
		for (uint32_t i = 0; i < IG_ROPE_AXES; i++) {
			const int32_t at = ig_step_rope_position(s, r, i);
			if (s->rope_positions && (at < 0 || at > MAX_ROPE_POSITION))
				return ig_fail(err, -EINVAL, "row %d is turned by %d", r, at);
		}
	}
	return 0;
}

/* Check the indices that kernels use unchecked. */
static int check_step(const struct ig_program *p, const struct ig_step *s, struct ig_error *err)
{
	const struct ig_program_limits *l = &p->limits;
	const struct ig_step *before = p->n_in_flight ? p->in_flight[p->n_in_flight - 1] : NULL;

	if (s->struct_size != sizeof *s)
		return ig_fail(err, -EINVAL, "a step of %u bytes, expected %zu", s->struct_size,
			       sizeof *s);
	if (s->n_rows < 1 || (uint32_t)s->n_rows > l->max_rows || s->n_seqs < 1 ||
	    (uint32_t)s->n_seqs > l->max_seqs || s->n_logit_rows < 0 ||
	    (uint32_t)s->n_logit_rows > l->max_logit_rows || s->n_logit_rows > s->n_rows)
		return ig_fail(err, -EINVAL,
			       "a step of %d rows, %d sequences and %d rows of logits; "
			       "the program takes %u, %u and %u",
			       s->n_rows, s->n_seqs, s->n_logit_rows, l->max_rows, l->max_seqs,
			       l->max_logit_rows);
	for (int32_t r = 0; r < s->n_rows; r++) {
		bool first = r == 0 || s->row_seq[r] != s->row_seq[r - 1];
		int32_t seq = s->row_seq[r];
		if (seq < (r == 0 ? 0 : s->row_seq[r - 1]) || seq >= s->n_seqs)
			return ig_fail(err, -EINVAL,
				       "row %d is of sequence %d: rows of one sequence "
				       "are neighbours, in the sequences' order",
				       r, seq);
		if (s->positions[r] < 0 || s->positions[r] >= s->seq_lens[seq] ||
		    (!first && s->positions[r] != s->positions[r - 1] + 1))
			return ig_fail(err, -EINVAL, "row %d is at position %d of %d", r,
				       s->positions[r], s->seq_lens[seq]);
		if (s->token_from && s->token_from[r] >= 0 &&
		    (!before || s->prev_ids != before->sampled_ids ||
		     s->token_from[r] >= before->n_logit_rows))
			return ig_fail(err, -EINVAL,
				       "row %d takes token %d of a step that is not the one before",
				       r, s->token_from[r]);
	}
	for (int32_t i = 0; i < s->n_seqs; i++) {
		if (s->seq_lens[i] < 1 || (uint32_t)s->seq_lens[i] > l->max_context)
			return ig_fail(err, -EINVAL, "sequence %d has %d tokens, the most is %u", i,
				       s->seq_lens[i], l->max_context);
	}
	for (int32_t r = 0; r < s->n_rows; r++) {
		int rc = r > 0 && s->row_seq[r] == s->row_seq[r - 1] ?
				 0 :
				 check_tables(p, s, s->row_seq[r], s->positions[r], err);
		if (rc)
			return rc;
		if (s->row_adapter &&
		    (s->row_adapter[r] < -1 || s->row_adapter[r] >= (int32_t)p->n_adapters))
			return ig_fail(err, -EINVAL, "row %d has adapter %d of %u", r,
				       s->row_adapter[r], p->n_adapters);
	}
	if (has_state(p)) {
		int rc = check_segments(p, s, err);
		if (rc)
			return rc;
	}
	for (int32_t i = 0; i < s->n_logit_rows; i++) {
		const struct ig_sample_params *d = &s->sample[i];
		if (s->logit_rows[i] < 0 || s->logit_rows[i] >= s->n_rows ||
		    (i > 0 && s->logit_rows[i] <= s->logit_rows[i - 1]))
			return ig_fail(err, -EINVAL, "row %d is wrong as entry %d of logit_rows",
				       s->logit_rows[i], i);
		if ((uint64_t)d->first_adjust + d->n_adjusts > s->n_adjusts ||
		    (d->mask >= 0 && (uint32_t)d->mask >= s->n_masks))
			return ig_fail(err, -EINVAL,
				       "row %d: its penalties or its mask are not in the step",
				       s->logit_rows[i]);
	}
	if ((p->width_in && !s->stage_in) || (p->width_out && !s->stage_out))
		return ig_fail(err, -EINVAL, "a step without rows of the stage %s",
			       p->width_in && !s->stage_in ? "before" : "after");
	int rc = check_guesses(p, s, err);
	if (!rc)
		rc = check_outside(p, s, err);
	return !rc && p->whole_texts ? check_whole(s, err) : rc;
}

uint32_t ig_driver_n_ranks(const struct ig_driver *d)
{
	return d->class->n_ranks ? d->class->n_ranks : 1;
}

int ig_driver_model_info(const struct ig_driver *d, const struct ig_plan *plan,
			 struct ig_model_info *out, struct ig_error *err)
{
	if (d->class->model_info)
		return d->class->model_info(d, plan, out, err);
	return ig_split_info(&plan->info, ig_driver_n_ranks(d), 0, out, err);
}

uint64_t ig_driver_memory(const struct ig_driver *d)
{
	return d->class->memory ? d->class->memory(d) : 0;
}

bool ig_driver_is_unified(const struct ig_driver *d)
{
	return d->class->is_unified && d->class->is_unified(d);
}

void ig_driver_watch_memory(struct ig_driver *d, void (*fn)(void *ctx, uint64_t n_bytes), void *ctx)
{
	if (d->class->watch_memory)
		d->class->watch_memory(d, fn, ctx);
}

uint64_t ig_driver_release(struct ig_driver *d, uint64_t n_bytes)
{
	return d->class->release ? d->class->release(d, n_bytes) : 0;
}

uint32_t ig_driver_steps_in_flight(const struct ig_driver *d) { return d->class->steps_in_flight; }

int ig_program_submit(struct ig_program *p, const struct ig_step *step)
{
	p->error = (struct ig_error){ 0 };
	if (!p->loaded)
		return ig_fail(&p->error, -EINVAL, "the program is not loaded");
	if (p->n_in_flight == IG_STEPS_IN_FLIGHT) {
		int rc = p->strict ? ig_fail(&p->error, -EBUSY, "%d steps are in flight already",
					     IG_STEPS_IN_FLIGHT) :
				     ig_program_wait(p);
		if (rc)
			return rc;
	}
	int rc = check_step(p, step, &p->error);
	if (rc)
		return rc;
	const int64_t now = ig_now_ns();
	p->prepare_ns = 0;
	rc = p->class->submit(p, step);
	p->submit_ns[p->n_in_flight] = now + p->prepare_ns;
	if (!rc)
		p->in_flight[p->n_in_flight++] = step;
	return rc;
}

int64_t ig_program_prepare_ns(const struct ig_program *p) { return p->prepare_ns; }

static void time_step(struct ig_driver *d, int64_t submit_ns)
{
	int64_t now = ig_now_ns();

	d->step_ns = now - (submit_ns > d->landed_ns ? submit_ns : d->landed_ns);
	d->landed_ns = now;
}

int64_t ig_driver_step_ns(const struct ig_driver *d) { return d->step_ns; }

int ig_program_wait(struct ig_program *p)
{
	p->error = (struct ig_error){ 0 };
	if (!p->n_in_flight)
		return p->strict ? ig_fail(&p->error, -EINVAL, "no step is in flight") : 0;
	int rc = p->class->wait(p);
	if (!rc)
		time_step(p->driver, p->submit_ns[0]);
	p->n_in_flight = rc ? 0 : p->n_in_flight - 1;
	for (uint32_t i = 0; i < p->n_in_flight; i++) {
		p->in_flight[i] = p->in_flight[i + 1];
		p->submit_ns[i] = p->submit_ns[i + 1];
	}
	return rc;
}

const struct ig_error *ig_program_error(const struct ig_program *p) { return &p->error; }

uint32_t ig_program_split_rows(const struct ig_program *p) { return p->split_rows; }

uint32_t ig_program_ranks(const struct ig_program *p, const struct ig_program_memory **out)
{
	*out = p->rank_memory;
	return p->n_ranks;
}

int ig_program_set_ranks(struct ig_program *p, uint32_t n, struct ig_error *err)
{
	p->rank_memory = calloc(n, sizeof *p->rank_memory);
	if (!p->rank_memory)
		return ig_fail(err, -ENOMEM, "no memory for a table of %u ranks", n);
	p->n_ranks = n;
	return 0;
}

struct ig_program_memory ig_program_most(const struct ig_program *p)
{
	struct ig_program_memory most = { 0 };

	for (uint32_t r = 0; r < p->n_ranks; r++) {
		const struct ig_program_memory *m = &p->rank_memory[r];
		if (most.weight_bytes < m->weight_bytes)
			most.weight_bytes = m->weight_bytes;
		if (most.scratch_bytes < m->scratch_bytes)
			most.scratch_bytes = m->scratch_bytes;
	}
	return most;
}

uint32_t ig_program_outside_width(const struct ig_program *p) { return p->width_outside; }

void *ig_driver_map_slab(void *driver, uint64_t slab_bytes)
{
	struct ig_driver *d = driver;
	return d->class->map_slab(d, slab_bytes);
}

void ig_driver_unmap_slab(void *driver, void *base, uint64_t slab_bytes)
{
	struct ig_driver *d = driver;
	d->class->unmap_slab(d, base, slab_bytes);
}

void ig_driver_copy(void *driver, void *dst, const void *src, uint64_t n_bytes)
{
	struct ig_driver *d = driver;
	d->class->copy(d, dst, src, n_bytes);
}

int ig_driver_read_slab(struct ig_driver *d, void *dst, const void *src, uint64_t n_bytes,
			struct ig_error *err)
{
	return d->class->read_slab(d, dst, src, n_bytes, err);
}

int ig_driver_write_slab(struct ig_driver *d, void *dst, const void *src, uint64_t n_bytes,
			 struct ig_error *err)
{
	return d->class->write_slab(d, dst, src, n_bytes, err);
}
