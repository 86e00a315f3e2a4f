/*
 * harness.h: a configuration, an engine over the fake runtime, and clients that
 * ask it and gather what their streams bring.
 */
#pragma once

#include "fake_runtime.h"

#include "base/clock.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* A group of the model "good" has blocks of 2 layers x 2 x 16 tokens x 8 x f16. */
#define GOOD_BLOCK_BYTES 1024
#define SLAB_BYTES 4096

struct client {
	struct ig_stream *stream;
	uint64_t gen;
	char text[65536];
	size_t n_text;
	struct ig_token_logprob logprobs[FAKE_CONTEXT];
	size_t n_logprobs;
	bool over;
	struct ig_gen_result result;
};

struct ask {
	const char *model;		    /* NULL: the default */
	const char *kind;		    /* what its file says; NULL: as its name */
	const struct ig_engine_model *held; /* instead of asking for it by name */
	int32_t n_prompt;
	unsigned prompt_seed;  /* of the prompt's tokens */
	const int32_t *prompt; /* instead of the seed */
	const int32_t *predicted;
	int32_t n_predicted;
	int32_t max_tokens;
	uint64_t seed, salt;
	float repetition_penalty, frequency_penalty;
	const struct ig_bias *bias; /* one, or NULL */
	const char *stops[5];	    /* NULL-terminated */
	size_t ring;		    /* 0: 64 KiB */
	uint32_t logprob_ring;	    /* 0: 1024 */
	const char *id;
	const char *client;	  /* NULL: 127.0.0.1 */
	const char *compare_with; /* NULL: any */
	bool wants_report;
	const struct fake_grammar *grammar; /* NULL: none */
	int32_t n_probs; /* 0: no log probabilities; else so many alternatives plus one */
	bool prefill_only, ignore_end, shows_control;
	uint32_t weight;
	int32_t priority;
	int64_t deadline_ns;
	const struct ig_span
		*spans; /* [n_spans]; prompt then has what the model reads of their rows */
	int32_t n_spans;
	const struct ig_text *texts; /* [n_texts] of the prompt, for a model without a cache */
	int32_t n_texts;
	struct ig_vectors *vectors;
};

/* runtime.run_ahead of the configurations that are filled in from now on. */
extern const char *harness_run_ahead;
/* The same of scheduler.speculation. */
extern const char *harness_speculation;
/* Fill in a configuration with small figures and these models (paths are names). */
void harness_config(struct ig_config *c, const char *const *models, size_t n);
void harness_config_finish(struct ig_config *c);
struct ig_engine *harness_engine(const struct ig_config *c);
/* One that may not be made: then *out is NULL, and it returns what ig_engine_create does. */
int harness_try_engine(const struct ig_config *c, struct ig_engine **out, struct ig_error *err);
/* Destroy it and fail the test on any breach of the driver's contract. */
void harness_close(struct ig_engine *e);
/* In a teardown: destroy what a test that failed has left. */
void harness_abandon(void);

int client_try(struct client *c, struct ig_engine *e, const struct ask *a, struct ig_error *err);
void client_ask(struct client *c, struct ig_engine *e, const struct ask *a);
/* Take what is there. */
void client_take(struct client *c);
/* Take until the end. */
void client_finish(struct client *c);
void client_drop(struct client *c);
/* The tokens of a prompt, as client_ask makes them. */
void make_prompt(int32_t *out, int32_t n, unsigned seed);
/* The expected output of this request, computed here; returns the number of tokens. */
int32_t expected(const struct ask *a, char *text, size_t cap);

/* Wait up to 10 s until cond holds. */
#define wait_for(cond)                                                                             \
	do {                                                                                       \
		int64_t until_ = ig_now_ns() + (int64_t)10 * 1000000000;                           \
		while (!(cond)) {                                                                  \
			if (ig_now_ns() > until_)                                                  \
				fail_msg("waited in vain for %s", #cond);                          \
			usleep(200);                                                               \
		}                                                                                  \
	} while (0)

double gauge(enum ig_gauge g);
int counter(enum ig_counter c);
/* A copy of the n-th row of the ledger. */
struct ig_ledger_row ledger_row(int n);
/* The row of this id; fails when there is none. */
struct ig_ledger_row ledger_find(const char *id);
