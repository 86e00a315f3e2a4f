/*
 * fake_engine.h: engine.h's functions without a model, for tests of what is above
 * the engine.  A request's output is scripted; a thread writes it into the stream.
 */
#pragma once

#include "daemon/engine/engine.h"
#include "model/chat/completion.h"

struct fake_script {
	const char *const *pieces; /* NULL-terminated; each is one put */
	int repeat;		   /* the pieces so many times; 0: once */
	enum ig_finish finish;
	const char *error; /* of IG_FINISH_ERROR */
	int error_code;	   /* of that; 0: -EIO */
	bool hold;	   /* write nothing until fake_release or a cancel */
	bool waits;	   /* it is not admitted until then, or never if it ends with an error */
	int submit_rc;	   /* not 0: what submit returns */
	int stop_index;	   /* of the stop string that ends it, plus one; 0: none does */
	int parse_rc;	   /* not 0: what parse returns */
	int prep_rc;	   /* not 0: what prep returns */
	struct ig_prefix_report report;
};

struct ig_engine *fake_engine_create(void);
/* What requests that are submitted from now on do. */
void fake_engine_script(struct ig_engine *e, const struct fake_script *s);
/* Requests that reach prep stay there. */
void fake_engine_hold_prep(struct ig_engine *e, bool held);
/* Let held requests go on. */
void fake_engine_release(struct ig_engine *e);

/* The model "fake": what taking it returns from now on: 0 (as at first), -EINPROGRESS or
 * an error.  "spare" is always there. */
void fake_engine_model(struct ig_engine *e, int rc);
/* The same, and the load has ended: whoever wanted to be called is. */
void fake_engine_load_ends(struct ig_engine *e, int rc);
/* References of models that were not released. */
int fake_model_holds(void);
/* The last keep_alive that a request asked for. */
int64_t fake_keep_alive_ns(void);

/* How the fake model writes calls; plain text until this is called. */
void fake_engine_style(const struct ig_completion_style *s);
/* Which turns the fake template has a place for; all of them until this is called. */
void fake_engine_turns(const struct ig_chat_turns *t);
/* References to grammars that somebody holds. */
int fake_grammar_refs(void);

/* The parameters of the last submit. */
struct fake_seen {
	int n_submitted, n_cancelled, n_refused, n_finished, n_resumed, n_notes;
	char note[300];
	int n_callbacks; /* to be called when a load has ended */
	int n_unloaded;
	char model[32];
	int n_running_max;
	int32_t n_prompt, max_tokens, top_k, priority;
	int64_t deadline_ns;
	float min_p, frequency_penalty, presence_penalty, repetition_penalty;
	uint32_t n_biases;
	struct ig_bias bias; /* the first */
	float temperature, top_p;
	uint64_t seed;
	int32_t n_top;
	bool prefill_only, ignore_end, has_grammar, wants_report;
	char compare_with[64];
	char stops[4][32];
	char prompt[512]; /* the messages, as "role:content;" each */
	char cancel_reason[24];
	struct ig_ledger_row refused;
};
struct fake_seen fake_engine_seen(struct ig_engine *e);
