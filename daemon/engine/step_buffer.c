/* step_buffer.c: the memory of a step, which its model has for each step in flight. */
#include "daemon/engine/instance_private.h"

#include <errno.h>
#include <stdlib.h>

void ig_step_buffer_free(struct ig_step_buffer *b)
{
	for (uint32_t g = 0; g < IG_MAX_CACHE_GROUPS; g++)
		free(b->block_tables[g]);
	free(b->token_ids);
	free(b->token_from);
	free(b->positions);
	free(b->row_adapter);
	free(b->row_types);
	free(b->results);
	free(b->row_seq);
	free(b->seq_lens);
	free(b->logit_rows);
	free(b->sampled_ids);
	free(b->outside);
	free(b->rope_positions);
	free(b->sees_to);
	free(b->next_ids);
	free(b->guess_rows);
	free(b->guessed_ids);
	free(b->sample);
	free(b->adjusts);
	free(b->masks);
	free(b->segments);
	*b = (struct ig_step_buffer){ 0 };
}

int ig_step_buffer_make(const struct ig_model *m, struct ig_step_buffer *b, struct ig_error *err)
{
	size_t rows = m->limits.max_rows, seqs = m->limits.max_seqs;
	size_t logits = m->limits.max_logit_rows;

	b->token_ids = calloc(rows, sizeof *b->token_ids);
	b->token_from = calloc(rows, sizeof *b->token_from);
	b->positions = calloc(rows, sizeof *b->positions);
	b->row_seq = calloc(rows, sizeof *b->row_seq);
	b->row_adapter = calloc(rows, sizeof *b->row_adapter);
	b->seq_lens = calloc(seqs, sizeof *b->seq_lens);
	b->logit_rows = calloc(logits, sizeof *b->logit_rows);
	b->sampled_ids = calloc(logits, sizeof *b->sampled_ids);
	b->sample = calloc(logits, sizeof *b->sample);
	b->adjusts = malloc(IG_MAX_STEP_ADJUSTS *
			    sizeof *b->adjusts); /* its pages are allocated when used */
	b->masks = calloc(logits, (m->mask_words + !m->mask_words) * sizeof *b->masks);
	if (m->whole_texts) {
		b->row_types = calloc(rows, sizeof *b->row_types);
		b->results = calloc(logits, m->n_logits * sizeof *b->results);
		if (!b->row_types || !b->results)
			return ig_fail(err, -ENOMEM, "out of memory for the step buffer");
	}
	if (!b->token_ids || !b->token_from || !b->positions || !b->row_seq || !b->row_adapter ||
	    !b->seq_lens || !b->logit_rows || !b->sampled_ids || !b->sample || !b->adjusts ||
	    !b->masks)
		return ig_fail(err, -ENOMEM, "out of memory for the step buffer");
	for (uint32_t g = 0; g < m->n_groups; g++) {
		const struct ig_kv_layout *l = &m->layouts[g];
		bool is_state = l->kind == IG_CACHE_STATE;
		size_t n = is_state ? ig_max_states(&m->limits) : seqs;
		uint32_t width = is_state ? l->n_layers * l->n_kv_heads : m->max_blocks;
		b->block_tables[g] = calloc(n, width * sizeof *b->block_tables[g]);
		if (!b->block_tables[g])
			return ig_fail(err, -ENOMEM, "out of memory for the block tables");
		b->kv[g] = (struct ig_step_kv){ l, b->block_tables[g], width };
	}
	if (m->has_mtp) {
		b->next_ids = calloc(rows, sizeof *b->next_ids);
		b->guess_rows = calloc(logits, sizeof *b->guess_rows);
		b->guessed_ids = calloc(logits, sizeof *b->guessed_ids);
		if (!b->next_ids || !b->guess_rows || !b->guessed_ids)
			return ig_fail(err, -ENOMEM, "out of memory for the step buffer");
	}
	if (m->shown.width_outside) {
		b->outside = calloc(rows, sizeof *b->outside);
		b->rope_positions = calloc(rows, IG_ROPE_AXES * sizeof *b->rope_positions);
		b->sees_to = calloc(rows, sizeof *b->sees_to);
		if (!b->outside || !b->rope_positions || !b->sees_to)
			return ig_fail(err, -ENOMEM, "out of memory for the step buffer");
	}
	if (m->has_state) {
		b->segments = calloc(ig_max_segments(&m->limits), sizeof *b->segments);
		if (!b->segments)
			return ig_fail(err, -ENOMEM, "out of memory for the step buffer");
	}
	b->step = (struct ig_step){
		.struct_size = sizeof b->step,
		.token_ids = b->token_ids,
		.positions = b->positions,
		.row_seq = b->row_seq,
		.seq_lens = b->seq_lens,
		.logit_rows = b->logit_rows,
		.sample = b->sample,
		.adjusts = b->adjusts,
		.masks = b->masks,
		.sampled_ids = b->sampled_ids,
		.kv = b->kv,
		.n_groups = m->n_groups,
		.segments = b->segments,
		.row_types = b->row_types,
		.guess_rows = b->guess_rows,
		.guessed_ids = b->guessed_ids,
	};
	return 0;
}
