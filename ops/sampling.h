/*
 * sampling.h: one draw from a row of logits.
 *
 * The draw is a function of the logits, the parameters and (seed, position)
 * alone.  Candidates are ordered by logit, then id; top-k keeps the first k,
 * top-p the shortest prefix of what is left whose probability reaches p.
 */
#ifndef INGOT_OPS_SAMPLING_H
#define INGOT_OPS_SAMPLING_H

#include <ingot/op.h>

/* Bytes of scratch for n logits. */
uint64_t ig_sample_draw_scratch(int64_t n);
/* temperature > 0.  scratch is 8-byte aligned. */
int32_t ig_sample_draw(const float *logits, int64_t n, const struct ig_sample_params *p,
		       void *scratch);
/* Uniform in [0, 1), 53 bits, from a counter: Salmon et al., "Parallel random
 * numbers: as easy as 1, 2, 3" (2011), Philox 4x32-10. */
double ig_sample_uniform(uint64_t seed, uint64_t position);

#endif
