/* gpu_driver_case.c: see gpu_driver_case.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gpu_driver_case.h"

#include <errno.h>
#include <string.h>

const struct ig_program_limits driver_limits = { ROWS, SEQS, SEQS, TOY_CONTEXT, IG_F16, IG_F16, 8 };

int driver_setup(void **state)
{
	static struct toy_model m;
	*state = &m;
	return toy_model_init(&m);
}

int driver_teardown(void **state)
{
	toy_model_finish(*state);
	return 0;
}

struct ig_gpu_lowered *session_lowered(const struct session *s)
{
	return (struct ig_gpu_lowered *)s->program;
}

int session_start(struct session *s, const struct toy_model *m, const char *driver,
		  const struct ig_driver_options *o, struct ig_error *err)
{
	memset(s, 0, sizeof *s);
	int rc = ig_driver_open(driver, o, &s->driver, err);
	if (!rc)
		rc = ig_driver_lower(s->driver, m->plan, &driver_limits, &s->program, &s->memory,
				     err);
	if (!rc)
		rc = ig_program_load(s->program, err);
	if (rc)
		return rc;
	s->slabs[0] = ig_driver_map_slab(s->driver, SLAB_BYTES);
	if (!s->slabs[0])
		return ig_fail(err, -ENOMEM, "no slab");
	const uint64_t token = TOY_HEAD * 2, head = token * IG_BLOCK_TOKENS,
		       v = head * TOY_KV_HEADS;
	s->layout = (struct ig_kv_layout){
		.k_dtype = IG_F16,
		.v_dtype = IG_F16,
		.n_layers = TOY_LAYERS,
		.n_kv_heads = TOY_KV_HEADS,
		.head_dim = TOY_HEAD,
		.block_bytes = 2 * v * TOY_LAYERS,
		.layer_stride = 2 * v,
		.v_offset = v,
		.head_stride = head,
		.k_token_stride = token,
		.v_token_stride = token,
	};
	s->kv = (struct ig_step_kv){ &s->layout, &s->tables[0][0], BLOCKS };
	for (uint32_t q = 0; q < SEQS; q++)
		for (uint32_t b = 0; b < BLOCKS; b++)
			s->tables[q][b] = IG_BLOCK_WORD(0, (q * BLOCKS + b) % 128);
	return 0;
}

void session_stop(struct session *s)
{
	ig_program_destroy(s->program);
	if (s->driver && s->slabs[0])
		ig_driver_unmap_slab(s->driver, s->slabs[0], SLAB_BYTES);
	ig_driver_close(s->driver);
	fake_gpu_reset();
}

void session_must_start(struct session *s, const struct toy_model *m, const char *driver)
{
	static const struct ig_driver_options o = { .strict = 1 };
	struct ig_error err = { 0 };
	if (session_start(s, m, driver, &o, &err))
		fail_msg("%s", err.text);
}

struct ig_step *session_step(struct session *s, int i, int32_t at, const struct batch *ahead)
{
	struct batch *b = &s->batch[i];

	memset(b, 0, sizeof *b);
	memset(b->sampled, 0xff, sizeof b->sampled);
	for (int32_t q = 0; q < SEQS; q++) {
		b->positions[q] = at;
		b->row_seq[q] = b->logit_rows[q] = b->from[q] = q;
		b->lens[q] = at + 1;
		b->sample[q].mask = -1;
	}
	b->step = (struct ig_step){
		.struct_size = sizeof b->step,
		.n_rows = SEQS,
		.n_seqs = SEQS,
		.n_logit_rows = SEQS,
		.token_ids = b->ids,
		.positions = b->positions,
		.row_seq = b->row_seq,
		.seq_lens = b->lens,
		.logit_rows = b->logit_rows,
		.sample = b->sample,
		.sampled_ids = b->sampled,
		.slab_bases = s->slabs,
		.kv = &s->kv,
		.n_groups = 1,
		.token_from = ahead ? b->from : NULL,
		.prev_ids = ahead ? ahead->sampled : NULL,
	};
	return &b->step;
}

void session_assert_runs(struct session *s)
{
	struct ig_step *step = session_step(s, 2, 3, NULL);
	int rc = ig_program_submit(s->program, step);
	if (rc || ig_program_wait(s->program))
		fail_msg("%d: %s", rc, ig_program_error(s->program)->text);
	assert_int_equal(s->batch[2].sampled[1], fake_gpu.base + 1);
}
