/*
 * sequence_private.h: one request inside the engine: its tokens, its blocks, and the way from
 * sampled ids to text in its stream.  The K and V of the first n_done tokens are in the cache; the
 * first n_shown have become text.  A preempted sequence has n_done 0: its prompt and output are
 * prefilled again, but for the prefix that the prefix cache still has.  Its grammar state and its
 * logprobs stay as they are, since both change only when a token is sampled.
 */
#pragma once

#include "daemon/engine/generation.h"
#include "daemon/engine/instance_private.h"
#include "daemon/engine/lookup_private.h"
#include "model/tokenizer/detokenizer.h"

#define IG_MAX_DRAFT 31 /* tokens of a sequence that one step verifies */

/* What guesses a sequence's next tokens; IG_COUNTER_DRAFTS and its like are by this. */
enum ig_draft_source {
	IG_DRAFT_LOOKUP, /* lookup.c */
	IG_DRAFT_MODEL,	 /* draft_model.c */
	IG_DRAFT_MTP,	 /* mtp.c */
	IG_DRAFT_SOURCES
};

/* A sequence's text in the cache of its model's draft model. */
struct ig_draft_text {
	struct ig_kv_seq *kv; /* NULL: no blocks */
	int32_t n_done;	      /* of its tokens that are computed there */
	int32_t n_ahead;      /* computed behind them: its last token, and of the draft behind it */
	double credit_ns;     /* that reading its text may take */
	bool earns;	      /* it has had its first credit */
	struct ig_guess_count count;
	uint32_t n_idle; /* tokens without such a draft */
	bool off;	 /* it has none any more */
};

/* What its model's head guesses of a sequence. */
struct ig_mtp_guess {
	int32_t id, at; /* the guess at its next token, while it has `at` tokens */
	struct ig_guess_count count;
	uint32_t n_seen;	      /* guesses whose token came */
	uint32_t n_idle, probe_after; /* rounds without a guess; so many, then some are tried */
	uint32_t n_probe;	      /* that are still to be tried */
	bool begun, asks;	      /* asks: its next row has a guess */
	bool off;		      /* it has none any more */
};

/* A stop string and how far the text so far has matched it (Knuth, Morris, Pratt). */
struct ig_stop {
	uint32_t *fail; /* [len]: how many bytes still match when the byte after i + 1 differs */
	char *text;	/* [len], behind them */
	uint32_t len;
	uint32_t n_matched;
};

/* A token's logprob, from sampling until it is in the stream. */
struct ig_seq_logprob {
	float logprob;
	int32_t n_top;
	uint64_t text_end; /* once the token has become text */
};

TAILQ_HEAD(ig_seq_list, ig_seq);

enum ig_seq_state { IG_SEQ_WAITING, IG_SEQ_PREFILL, IG_SEQ_DECODE, IG_SEQ_PAUSED };

struct ig_prompt_known; /* prompts_private.h */
struct ig_kv_job;	/* kv_job_private.h */

struct ig_seq {
	/* ---- fixed at submit ---- */
	uint64_t number; /* the request's handle; smaller is older */
	struct ig_model *model;
	const struct ig_engine_model *shown; /* of the model: with its adapter */
	char id[64];
	struct ig_origin *origin; /* referenced once adopted */
	int32_t n_prompt, max_output;
	struct ig_sample_params sample; /* but for the position and first_adjust */
	bool penalties;			/* sampling depends on the tokens so far */
	bool prefill_only, ignore_end, wants_report;
	int32_t priority;	       /* see struct ig_gen_spec */
	int64_t deadline_ns;	       /* the same */
	char compare_with[64];	       /* see struct ig_gen_spec */
	int32_t n_top;		       /* -1: no logprobs */
	struct ig_grammar *grammar;    /* NULL: any token is allowed */
	int32_t control[IG_MAX_SHOWN]; /* control tokens that are text */
	uint32_t max_adjusts;
	struct ig_stop *stops; /* [n_stops] */
	uint32_t n_stops;
	struct ig_stream *stream; /* the writer's reference */
	bool adopted; /* it references its model, grammar and origin; its model counts it */

	/* ---- under the scheduler's lock ---- */
	TAILQ_ENTRY(ig_seq) all;
	struct ig_seq *next_numbered; /* in the table by numbers */
	TAILQ_ENTRY(ig_seq) to_end;   /* if on_end */
	bool on_end, cancel_wanted;
	char cancel_reason[24];
	bool queued; /* its client counts it as waiting */

	/* ---- written by the engine's thread, read by any ---- */
	atomic_int state;		  /* enum ig_seq_state */
	atomic_int n_prefilled, n_output; /* n_output: tokens so far */
	atomic_int n_drafted, n_accepted; /* copies of the result's */
	atomic_bool paused;		  /* its ring is full */

	/* ---- the engine's thread ---- */
	TAILQ_ENTRY(ig_seq) link; /* inbox (under the lock), waiting, running or ended */
	TAILQ_ENTRY(ig_seq) show_link;
	TAILQ_ENTRY(ig_seq) turn; /* in its client's list while it waits */
	TAILQ_ENTRY(ig_seq) paused_link;
	struct ig_client *client; /* before it is in a list: its own (clients_private.h) */
	/* While it waits: how many tokens it has in common with that one, which computes a prompt. */
	struct {
		uint64_t number; /* 0: with none */
		int32_t of_tokens, n, n_computed;
	} prefix;
	struct ig_seq *next_prompt; /* of the prompts that run, in one admission */
	uint64_t listed_in;	    /* the number of that admission */
	struct ig_seq *next_ending; /* of those that a boundary ends */
	bool is_cancelled;	    /* it does so because it was cancelled, not displaced */
	struct ig_seq_list *list;   /* the one that link is in; NULL: none */
	bool on_show, completed;
	uint32_t n_flights;	   /* steps in flight that include it */
	struct ig_kv_seq *kv;	   /* NULL: no blocks */
	struct ig_kv_job *restore; /* it waits for that (kv_restore.c); NULL: for none */
	bool restores_first;	   /* that job is its own */
	bool restore_over;	   /* nothing is to be restored for it, or no more */
	int32_t *history;	   /* [n_predicted]: what the output may be, then tokens */
	int32_t *tokens;	   /* [n_prompt + max_output], in history */
	int32_t n_predicted;
	struct ig_spans *spans; /* of its prompt, referenced once adopted; NULL: none */
	bool wants_room;	/* the last round had no room for its next span */
	struct ig_text *texts;	/* [n_texts] of a model without a cache; tokens has them all */
	int32_t n_texts, n_texts_done;
	struct ig_vectors *vectors;	 /* gets their results */
	struct ig_logit_adjust *adjusts; /* [max_adjusts]; sample.n_adjusts of them */
	uint32_t *
		adjust_table; /* [n_adjust_table], a power of two: index in adjusts plus one, by id */
	uint32_t n_adjust_table;
	int32_t n_tokens, n_done, n_shown;
	/* Of its tokens behind n_done, before the last one: they were computed with a wrong draft, and what a
	 * recurrent model knew of them was lost with it (kvcache.h, seq_rewind). */
	int32_t n_again;
	uint64_t round;	   /* its model's round that it was planned for */
	int32_t n_planned; /* rows of that round that no step has had */
	bool held;	   /* it takes no part in the round: others have less than its client */
	bool is_extra;	   /* it takes part although others have less, since it costs hardly more */
	bool is_long;	   /* its prompt is read at the pace that streams leave (pace_private.h) */
	int32_t n_rows, logit_index; /* in the newest step that includes it; -1: no logits */
	struct ig_lookup lookup;     /* what its next tokens may be; zeros: none are looked up */
	struct ig_draft_text draft;
	struct ig_mtp_guess mtp;
	int32_t n_draft; /* guesses behind its tokens, for the step that is planned */
	enum ig_draft_source draft_source; /* whose they are, or were last */
	bool draft_wanted;		   /* its draft model should read on in its text */
	/* While that is planned: the chance that all are right, and one more, too; the tokens that it will have;
	 * and the rows that will be computed again, of a model with recurrent layers. */
	double draft_kept, draft_chance, draft_tokens, draft_again;
	bool awaits_draft;	       /* it is in no step before its last token is known */
	struct ig_gen_result result;   /* finish is set as soon as it is known */
	struct ig_prompt_known *known; /* NULL: not remembered */

	struct ig_grammar_matcher *matcher; /* its state in the grammar; NULL: none */
	struct ig_detokenizer detokenizer;
	char *text; /* [text_cap]: bytes ready for the stream, then bytes held back */
	size_t text_cap, n_ready, n_text;
	bool text_done; /* text is complete */
	bool stuck;	/* the stream has no space for what is ready */
	/* Logprobs of the tokens n_given … n_tokens - 1, in a ring. */
	struct ig_seq_logprob *logprobs;    /* [logprob_cap] */
	struct ig_token_prob *logprob_tops; /* [logprob_cap, n_top] */
	int32_t logprob_cap, logprob_base;  /* logprob_base: the token of notes[0] */
	int32_t n_given, logprob_end;	    /* tokens from logprob_end on have none */
	uint64_t text_at;		    /* of text[0] in the output */
	uint64_t given_end;		    /* text_end of the last logprob in the stream */

	int64_t admitted_ns, read_ns, first_ns,
		last_ns; /* 0: not yet; read: the prompt is prefilled */
	int64_t paused_ns;
	uint32_t itl[IG_ITL_BUCKETS];
};

/* Any thread.  Checks the spec (-EINVAL, -E2BIG with text) and takes no reference yet.
 * max_output: where the spec has none; 0: up to the context.  looks_up: its next tokens are looked up
 * in its text. */
int ig_seq_create(const struct ig_gen_spec *spec, uint32_t max_output, bool looks_up,
		  struct ig_seq **out, struct ig_error *err);
/* Take references of the spec's model, grammar and origin, and its stream. */
void ig_seq_adopt(struct ig_seq *s, const struct ig_gen_spec *spec);
/* Frees what it owns; it must be in no list and hold no blocks. */
void ig_seq_destroy(struct ig_seq *s);

static inline bool ig_seq_is_paused(const struct ig_seq *s)
{
	return atomic_load_explicit(&s->paused, memory_order_relaxed);
}

/* ---- the engine's thread ---- */

/* Its tokens, those computed, and those left to compute, once the steps in flight are complete. */
static inline int32_t ig_seq_tokens_then(const struct ig_seq *s)
{
	return s->n_tokens + (s->n_flights && s->logit_index >= 0);
}
static inline int32_t ig_seq_done_then(const struct ig_seq *s)
{
	return s->n_done + (s->n_flights ? s->n_rows : 0);
}
static inline int32_t ig_seq_n_left(const struct ig_seq *s)
{
	return ig_seq_tokens_then(s) - ig_seq_done_then(s);
}
/* The rows that it has in a step in which it decodes, but for a draft's; whether it has no more left. */
static inline int32_t ig_seq_own_rows(const struct ig_seq *s) { return 1 + s->n_again; }
static inline bool ig_seq_is_read(const struct ig_seq *s)
{
	return ig_seq_n_left(s) <= ig_seq_own_rows(s);
}

/* The tokens of the prompt's first message: up to the first that ends one.  All, if none does. */
int32_t ig_seq_first_message(const struct ig_seq *s);

/* Count an output token for penalties. */
void ig_seq_count(struct ig_seq *s, int32_t id);
/* Write the penalties and biases as they are once the n tokens behind its own are sampled; out has
 * space for max_adjusts.  Returns their number. */
uint32_t ig_seq_adjusts_then(const struct ig_seq *s, int32_t n, struct ig_logit_adjust *out);
/* Before token n_tokens is appended: store its logprob, from its row of logits.
 * -ENOSPC when the ring is full, which can't be. */
int ig_seq_add_logprob(struct ig_seq *s, int32_t id, const float *logits);
/* Detokenize and move text into the stream as far as that has space.  Sets
 * result.finish when it finds a stop string. */
void ig_seq_show(struct ig_seq *s);
/* Discard the text that is not in the stream yet; nothing more is written. */
void ig_seq_drop_text(struct ig_seq *s);
/* All text is in the stream. */
static inline bool ig_seq_is_shown(const struct ig_seq *s)
{
	return s->text_done && !s->n_ready && !s->stuck;
}
/* Whether the stream has space again for some of what is ready. */
bool ig_seq_has_capacity(const struct ig_seq *s);
/* The output tokens that are reported. */
int32_t ig_seq_n_output(const struct ig_seq *s);
/* Fill in the ledger's row. */
void ig_seq_row(const struct ig_seq *s, int64_t now_ns, struct ig_ledger_row *row);
