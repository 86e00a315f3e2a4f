/*
 * engine.h: the engine as the protocol sees it: models by name, requests in,
 * streams out.  Nothing here knows sockets; nothing above knows tensors.
 */
#ifndef INGOT_ENGINE_ENGINE_H
#define INGOT_ENGINE_ENGINE_H

#include "daemon/engine/origin.h"
#include "daemon/engine/sampling.h"
#include "daemon/engine/stream.h"
#include "store/config.h"
#include "store/ledger.h"
#include "store/metrics.h"
#include "model/chat/chat_template.h"
#include "model/grammar/grammar.h"
#include "model/tokenizer/tokenizer.h"

struct ig_engine;

/* ---- life (main's thread) ---- */

struct ig_engine_deps {
	const struct ig_config *config; /* outlives the engine */
	struct ig_ledger *ledger;	/* may be NULL */
	struct ig_metrics *metrics;
	/* The device is gone for good: called once, by the engine's thread.  Every request
	 * from then on ends with an error; a new process may find a device again.  May be
	 * NULL. */
	void (*device_lost)(void *ctx);
	void *ctx;
};

/* Load modules and models, set up the driver and the cache under the memory
 * contract, start the threads.  Errors are one line that names what was wrong. */
int ig_engine_create(const struct ig_engine_deps *deps, struct ig_engine **out,
		     struct ig_error *err);
/* Refuse new requests (-ESHUTDOWN); those under way go on. */
void ig_engine_drain(struct ig_engine *e);
/* Requests that run or wait. */
uint32_t ig_engine_n_active(struct ig_engine *e);
/* Cancel what still runs (reason shutdown), stop the threads, free.  NULL is fine. */
void ig_engine_destroy(struct ig_engine *e);
/* Take over a new configuration's reloadable options and its models: those that are new
 * may be asked for, those whose file or options changed are swapped (the old one goes
 * when its requests have ended), those that are gone leave.  The old struct may be
 * destroyed when this returns. */
void ig_engine_reload(struct ig_engine *e, const struct ig_config *config);

/* ---- models (any thread) ---- */

/* A model that is loaded.  Immutable and counted: good as long as somebody holds it, even
 * when its name stands for another file by then.  Its memory is free when the last
 * holder lets go after it was unloaded, swapped or removed. */
struct ig_engine_model {
	const char *name;
	const struct ig_tokenizer *tokenizer;
	const struct ig_chat_template *chat; /* NULL: chat_note says why */
	const char *chat_note; /* "the file has no chat template", or which is not known */
	uint32_t n_context;    /* tokens that one sequence may have */
	const char *arch, *file;
	uint64_t weight_bytes; /* packed */
	int64_t created_s;     /* the file's mtime, Unix seconds */
};

/* The model of this name (NULL or empty: the default), held for the caller.  0, or
 *   -EINPROGRESS  it is being loaded, which this call may have begun: when that has ended,
 *                 one way or the other, ready(ctx) is called once, by another thread, with
 *                 no lock held; then ask again.  ready NULL: don't call
 *   -ENOENT       no such name; the text has the known ones
 *   -ENOMEM       the memory contract has no room for it now (503)
 *   -EIO          its last load failed; the text says why.  A later call tries again
 *   -ESHUTDOWN    draining
 */
int ig_engine_take_model(struct ig_engine *e, const char *name, void (*ready)(void *ctx), void *ctx,
			 const struct ig_engine_model **out, struct ig_error *err);
/* One more holder; returns m. */
const struct ig_engine_model *ig_engine_keep_model(const struct ig_engine_model *m);
/* NULL is fine.  After ig_engine_destroy too, when nothing else may be done with m. */
void ig_engine_release_model(const struct ig_engine_model *m);
/* Let go of it: unloaded as soon as the requests under way have ended; the next request
 * loads it again.  Pinned ones too.  0, -ENOENT. */
int ig_engine_unload_model(struct ig_engine *e, const char *name, struct ig_error *err);

enum ig_model_state {
	IG_MODEL_UNLOADED,
	IG_MODEL_LOADING,
	IG_MODEL_READY,
	IG_MODEL_LEAVING, /* unloaded when its last request ends */
	IG_MODEL_FAILED,  /* error says why */
};

struct ig_model_status {
	char name[129], arch[64], file[1024], error[256]; /* cut where longer */
	enum ig_model_state state;
	bool is_default, pinned;
	uint32_t n_context;		      /* what it has or will have; 0: not known yet */
	uint64_t weight_bytes, scratch_bytes; /* loaded or not, once known */
	uint32_t n_active;		      /* requests that run or wait */
	uint64_t n_loads;		      /* since the start */
	double loaded_s;		      /* how long the last load took */
	double idle_s;	  /* since its last request ended; 0 while one is active */
	double expires_s; /* until keep_alive unloads it; -1: never */
	int64_t created_s;
};

/* Configured models in the configuration's order; fills up to cap, returns how many. */
size_t ig_engine_models(struct ig_engine *e, struct ig_model_status *out, size_t cap);

/* ---- requests (any thread) ---- */

#define IG_MAX_SHOWN 8

/* All of it is the caller's: what the engine needs of it, it copies or counts. */
struct ig_gen_spec {
	char id[64];
	struct ig_origin *origin;
	const struct ig_engine_model *model;
	const int32_t *prompt; /* [n_prompt] */
	int32_t n_prompt;
	struct ig_sampling sampling;
	struct ig_grammar *grammar; /* what the answer must be; NULL: anything */
	int32_t n_top; /* -1: no log probabilities; else notes in the stream, which must keep
			  some, with so many alternatives (at most IG_MAX_TOP) */
	int32_t shown[IG_MAX_SHOWN]; /* control tokens whose text is part of the answer */
	uint32_t n_shown;
	bool prefill_only;	  /* read the prompt into the cache, draw nothing */
	struct ig_stream *stream; /* the writer's reference passes over with a submit of 0 */
};

/* 0 with *gen set, or: -EAGAIN the queue is full (503, Retry-After), -ESHUTDOWN
 * draining (503), -E2BIG the prompt leaves no room in the context (400, numbers in
 * the text), -EINVAL a parameter out of its range (400), -ENOMEM.  Refusals are entered
 * in the ledger too. */
int ig_engine_submit(struct ig_engine *e, const struct ig_gen_spec *spec, uint64_t *gen,
		     struct ig_error *err);
/* Ends the request at the next step boundary; its stream finishes as cancelled.
 * A request that is gone is ignored.  reason: client_gone, client_cancel, shutdown. */
void ig_engine_cancel(struct ig_engine *e, uint64_t gen, const char *reason);
/* The reader has taken text or notes: a paused sequence may go on. */
void ig_engine_resume(struct ig_engine *e, uint64_t gen);

/* A row for a request that never got to submit (bad JSON, unknown model …). */
void ig_engine_note_refused(struct ig_engine *e, const struct ig_ledger_row *row);

/* ---- grammars (any thread) ---- */

/* Those that were compiled, kept for later requests; a model's go with it.  Who uses one
 * holds its model. */
struct ig_grammar_cache *ig_engine_grammars(struct ig_engine *e);

/* ---- what runs now, for `ingot ps` and /v1/… (any thread) ---- */

struct ig_gen_info {
	char id[64], model[129], endpoint[32], client[64],
		state[16]; /* waiting prefill decode paused */
	int32_t n_prompt, n_prefilled, n_output;
	double age_s;
};
/* Fill up to cap entries; the number there are. */
size_t ig_engine_list(struct ig_engine *e, struct ig_gen_info *out, size_t cap);

/* ---- prep: a thread for what must hold up neither the loop nor the engine ---- */

/* Run fn(ctx) on the prep thread, in order.  -EAGAIN when its queue is full. */
int ig_engine_prep(struct ig_engine *e, void (*fn)(void *ctx), void *ctx);

/* What `ingot doctor` and /healthz want to know, as JSON. */
void ig_engine_describe(struct ig_engine *e, struct ig_strbuf *out);

#endif
