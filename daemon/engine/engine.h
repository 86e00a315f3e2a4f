/* engine.h: the engine as the protocol sees it: models by name, requests in,
 * streams out.  Nothing here knows sockets; nothing above knows tensors. */
#pragma once

#include "base/strbuf.h"
#include "daemon/engine/generation.h"
#include "store/config.h"
#include "store/ledger.h"
#include "store/metrics.h"

struct ig_engine;
struct ig_json_writer;
struct ig_modules;

/* ---- life (main's thread) ---- */

struct ig_engine_deps {
	const struct ig_config *config;	  /* these two outlive the engine */
	const struct ig_modules *modules; /* started */
	struct ig_ledger *ledger;	  /* may be NULL */
	struct ig_metrics *metrics;
	/* The device is lost: called once, by the engine's thread.  Every request from then on
	 * ends with an error; only a new process can open the device again.  May be NULL. */
	void (*device_lost)(void *ctx);
	/* During ig_engine_create, before a model's weights, of so many bytes, are loaded.  May be NULL. */
	void (*loading)(void *ctx, const char *model, uint64_t bytes);
	void *ctx;
};

/* Load models, set up the driver and the cache under the memory
 * contract, start the threads.  Errors are one line that names what was wrong. */
int ig_engine_create(const struct ig_engine_deps *deps, struct ig_engine **out,
		     struct ig_error *err);
/* Refuse new requests (-ESHUTDOWN); running ones continue. */
void ig_engine_drain(struct ig_engine *e);
/* Requests that run or wait. */
uint32_t ig_engine_n_active(struct ig_engine *e);
/* Whether the engine's thread has moved since the last call: it passed a step's boundary, or a step
 * made progress.  The call wakes it, so an idle one has moved at the next call. */
bool ig_engine_is_alive(struct ig_engine *e);
/* Cancel what still runs (reason shutdown), stop the threads, free.  NULL is fine. */
void ig_engine_destroy(struct ig_engine *e);
/* Apply a new configuration's reloadable options and models: new models can be requested,
 * those whose file or options changed are replaced (the old one is unloaded when its requests
 * have ended), removed ones are unloaded.  The old struct may be destroyed when this returns. */
void ig_engine_reload(struct ig_engine *e, const struct ig_config *config);

/* ---- models (any thread) ---- */

/* The configured name of the model that requests mean by this name (NULL or empty: the default): its
 * own, or server.model_id_prefix before it, or one that aliases have.  False, and "": none. */
bool ig_engine_model_name(struct ig_engine *e, const char *name, char out[IG_MAX_MODEL_NAME + 1]);
/* The model of this name (NULL or empty: the default), or that it means, held for the caller.  0, or
 *   -EINPROGRESS  it is being loaded, which this function may have started: when the load has
 *                 succeeded or failed, ready(ctx) is called once, by another thread, with no
 *                 lock held; then try again.  ready NULL: no callback
 *   -ENOENT       no such name; the text has the known ones
 *   -ENOMEM       the memory contract has no space for it now (503)
 *   -EIO          its last load failed; the text says why.  A later call tries again
 *   -ESHUTDOWN    draining
 */
int ig_engine_take_model(struct ig_engine *e, const char *name, void (*ready)(void *ctx), void *ctx,
			 const struct ig_engine_model **out, struct ig_error *err);
/* Unload it as soon as its requests have ended, pinned or not; the next request loads it
 * again.  0, -ENOENT. */
int ig_engine_unload_model(struct ig_engine *e, const char *name, struct ig_error *err);
/* Whether it may be unloaded to free memory, until the configuration is read again.  0, -ENOENT. */
int ig_engine_pin_model(struct ig_engine *e, const char *name, bool pin, struct ig_error *err);

/* Configured models in the configuration's order; fills up to cap, returns their number. */
size_t ig_engine_models(struct ig_engine *e, struct ig_model_status *out, size_t cap);

/* ---- requests (any thread) ---- */

/* 0 with *gen set, or: -EAGAIN the queue is full (503, Retry-After), -ESHUTDOWN
 * draining (503), -E2BIG the prompt fills the context (400, numbers in
 * the text), -EINVAL a parameter out of its range (400), -ENOMEM.  Refusals have a row in
 * the ledger, too. */
int ig_engine_submit(struct ig_engine *e, const struct ig_gen_spec *spec, uint64_t *gen,
		     struct ig_error *err);
/* Ends the request at the next step boundary; its stream finishes as cancelled.
 * A request that has ended is ignored.  reason: client_gone, client_cancel, shutdown. */
void ig_engine_cancel(struct ig_engine *e, uint64_t gen, const char *reason);
/* The reader has taken text or logprobs: a paused sequence may continue. */
void ig_engine_resume(struct ig_engine *e, uint64_t gen);

/* The ledger's row of a request that was never submitted (bad JSON, unknown model …). */
void ig_engine_record_refused(struct ig_engine *e, const struct ig_ledger_row *row);
/* Add a text to the row of a request that has finished, and to the log. */
void ig_engine_record_note(struct ig_engine *e, const char *id, const char *text);

/* ---- grammars (any thread) ---- */

/* Compiled grammars, cached for later requests; a model's are freed with it.  Who uses one
 * must hold its model. */
struct ig_grammar_cache *ig_engine_grammars(struct ig_engine *e);

/* ---- what runs now, for `ingot ps` and /v1/… (any thread) ---- */

/* Fills up to cap entries; returns their number. */
size_t ig_engine_list(struct ig_engine *e, struct ig_gen_info *out, size_t cap);

/* ---- threads for work that must block neither the loop nor the engine ---- */

struct ig_job {
	void (*fn)(void *ctx);
	void *ctx;
	uint64_t client; /* whose it is: ig_origin_client */
	size_t n_bytes;	 /* of its prompt */
};

/* Run fn(ctx) on the parse thread, in order: what must not wait for a long prompt at prep.  -EAGAIN
 * when its queue is full. */
int ig_engine_parse(struct ig_engine *e, void (*fn)(void *ctx), void *ctx);
/* The same on a prep thread.  Jobs of one client may overtake each other: a lane or a connection has
 * one at a time. */
int ig_engine_prep(struct ig_engine *e, const struct ig_job *job);
/* As ig_engine_parse, on the reader thread: what waits for the disk. */
int ig_engine_read(struct ig_engine *e, void (*fn)(void *ctx), void *ctx);

/* The JSON of /v1/ingot/status. */
void ig_engine_describe(struct ig_engine *e, struct ig_json_writer *w);
