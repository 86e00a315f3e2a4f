/*
 * stream.h: one request's output, from the engine's thread to the loop's.  A bounded ring of text
 * bytes with one writer (engine) and one reader (loop), and the request's result.  Nothing is
 * allocated after creation.  When the ring is full the engine pauses the sequence.
 */
#pragma once

#include "daemon/engine/prefix_report.h"

#include <ingot/op.h>

enum ig_finish {
	IG_FINISH_NONE = 0, /* still running */
	IG_FINISH_STOP,	    /* an end token or a stop string */
	IG_FINISH_LENGTH,   /* max_tokens or the context */
	IG_FINISH_CANCELLED,
	IG_FINISH_ERROR,
};
const char *ig_finish_name(enum ig_finish f); /* "stop", "length", … */

struct ig_gen_result {
	enum ig_finish finish;
	int32_t n_prompt, n_cached, n_output;
	int32_t n_drafted,
		n_accepted; /* tokens that were proposed to steps, and those that were right */
	int32_t n_model_drafted, n_model_accepted; /* of them: by the draft model */
	int32_t n_mtp_drafted, n_mtp_accepted;	   /* of them: by the model's own head */
	int64_t draft_gain_ns; /* what steps for right ones would have taken, less what drafts took */
	int32_t n_restored; /* tokens read for it from kvcache.disk; most of them are in n_cached */
	int64_t prefill_ns, decode_ns; /* 0: never reached */
	struct ig_error error;	       /* of IG_FINISH_ERROR */
	char cancel_reason[24];
	int32_t stop_index; /* of the stop string that ended it; -1: none */
	struct ig_prefix_report report;
};

/* One output token with its logprob: of the softmax of the model's logits, before penalties,
 * masks and temperature. */
#define IG_MAX_TOP 20
struct ig_token_logprob {
	int32_t id;
	float logprob;	   /* from -9999 to 0, as are those below */
	uint64_t text_end; /* bytes of text up to and including this token's; a character of
			      several tokens belongs to the last one */
	int32_t n_top;
	struct ig_token_prob {
		int32_t id;
		float logprob;
	} top[IG_MAX_TOP]; /* the likeliest, descending; the sampled one may be among them */
};

struct ig_stream;

/* The engine calls wake(ctx) when there is something new; it must be callable from any
 * thread and cheap.  ctx must outlive the writer's reference: the last wake may come after
 * the reader saw the end.  capacity is raised to at least 16 bytes; NULL without memory or
 * past 1 GiB.  Starts with two references (writer, reader). */
struct ig_stream *ig_stream_create(size_t capacity, void (*wake)(void *ctx), void *ctx);
/* Before the engine has it: add a ring of so many logprobs (at least 1); a full one pauses the
 * sequence like a full ring of text.  A token's text is then written only after its logprob, so
 * that the logprobs of all text that was taken can be taken after it.  0 or -ENOMEM. */
int ig_stream_enable_logprobs(struct ig_stream *s, uint32_t n_logprobs);
bool ig_stream_has_logprobs(const struct ig_stream *s);
void ig_stream_unref(struct ig_stream *s); /* NULL is fine */

/* ---- the engine's side ---- */

/* The sequence was admitted for the first time: so many tokens of its prompt were in the cache, for
 * the reason in *report.  Before any text; at most once. */
void ig_stream_begin(struct ig_stream *s, int32_t n_cached, const struct ig_prefix_report *report);
/* All of text or nothing; -EAGAIN when there is no space now. */
int ig_stream_put(struct ig_stream *s, const char *text, size_t len);
bool ig_stream_has_space(const struct ig_stream *s, size_t len);
/* Before the text that it ends.  -EAGAIN when the ring of logprobs is full now. */
int ig_stream_put_logprob(struct ig_stream *s, const struct ig_token_logprob *logprob);
bool ig_stream_has_logprob_space(const struct ig_stream *s);
/* The writer must not use the stream afterwards. */
void ig_stream_finish(struct ig_stream *s, const struct ig_gen_result *r);
/* Nanoseconds (ig_now_ns) when the reader last took something. */
int64_t ig_stream_last_take_ns(const struct ig_stream *s);

/* ---- the loop's side ---- */

/* What ig_stream_begin was told; -1: it was not called yet. */
int32_t ig_stream_n_cached(const struct ig_stream *s);
/* Why; zeros before that. */
struct ig_prefix_report ig_stream_report(const struct ig_stream *s);
/* Move up to cap bytes of text to buf: whole UTF-8 characters only. */
size_t ig_stream_take(struct ig_stream *s, char *buf, size_t cap);
/* Move up to cap logprobs to out, in order: of tokens whose text was taken. */
size_t ig_stream_take_logprobs(struct ig_stream *s, struct ig_token_logprob *out, size_t cap);
/* True once everything was taken and the writer has finished: *r is filled in.  Logprobs of
 * text that was never written (the request was cancelled) are not waited for. */
bool ig_stream_finished(struct ig_stream *s, struct ig_gen_result *r);
