/*
 * fake_states.h: the recurrent layers of the fake model "state": each part of a state holds the number
 * and a hash of all tokens that it stands for, so a state that was mixed up, not written, written twice
 * or is of another position shows.
 */
#pragma once

#include <ingot/op.h>

/* Says what is wrong. */
typedef void fake_breach(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static inline int fake_is_state(const struct ig_step *s, uint32_t g)
{
	return s->kv[g].layout->kind != 0;
}

/* Read and write the states of a step's segments. */
void fake_step_states(const struct ig_step *s, fake_breach *breach);
/* The state behind the row must be one of these tokens, if the model has states. */
void fake_check_state(const struct ig_step *s, int32_t row, const int32_t *tokens, int32_t n,
		      fake_breach *breach);
