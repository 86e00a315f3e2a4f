/*
 * api_private.h: what exchanges and sessions share.
 *
 * A protocol (ig_protocol) says how a request is read and how its answer is written.  A
 * job takes a request through prep; a reply is what becomes of it: calls of the engine,
 * whose text is taken apart into parts, which the protocol's writer turns into events
 * or one object.
 */
#ifndef INGOT_PROTOCOL_CORE_API_PRIVATE_H
#define INGOT_PROTOCOL_CORE_API_PRIVATE_H

#include "daemon/protocol/core/exchange.h"
#include "daemon/protocol/core/limits.h"
#include "daemon/protocol/core/request.h"
#include "model/chat/completion.h"

#include <pthread.h>
#include <stdatomic.h>

/* A doubly linked list with a head. */
struct link {
	struct link *prev, *next;
};
static inline void link_init(struct link *l)
{
	l->prev = l->next = l;
}
static inline bool link_empty(const struct link *l)
{
	return l->next == l;
}
static inline void link_append(struct link *head, struct link *l)
{
	l->prev = head->prev;
	l->next = head;
	head->prev->next = l;
	head->prev = l;
}
static inline void link_remove(struct link *l)
{
	l->prev->next = l->next;
	l->next->prev = l->prev;
	link_init(l);
}
#define link_entry(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))

struct wake_slot; /* where a stream's wake goes; lives as long as the api */

struct ig_kept_store;

struct ig_api {
	struct ig_api_deps deps;
	bool draining;	    /* loop */
	struct link jobs;   /* loop: every job that is not delivered */
	struct link parked; /* loop: those whose model is being loaded, oldest first */
	size_t n_parked;
	struct ig_model_wait *waits;	      /* prep's, but for their fields; until the end */
	struct link replies;		      /* loop: every reply */
	struct link sessions;		      /* loop: every session */
	struct ig_limits *limits;	      /* loop */
	struct ig_kept_store *kept;	      /* loop */
	struct wake_slot *slots, *free_slots; /* loop; the chunks are never freed before the end */
	void *chunks;
	pthread_mutex_t lock;
	struct ig_job *done, **done_tail; /* lock */
	bool stopped;			  /* lock: nothing is delivered any more */
	atomic_bool woken;
};

/* ---- protocols -------------------------------------------------------------------- */

struct ig_reply;

struct ig_protocol {
	const char *path; /* what is POSTed to */
	const char *id_prefix;
	/* What a prompt, and the form of an answer, are called in errors: messages, prompt,
	 * input; response_format, text.format … */
	const char *prompt_param, *form_param;
	ig_request_parse *parse;
	/* The next pieces of a stream (SSE frames, or one event); false: none now.  *last is set
	 * with the final one.  NULL: it never streams. */
	bool (*next)(struct ig_reply *r, struct ig_strbuf *out, bool *last);
	/* All of it, when the reply is finished. */
	void (*whole)(struct ig_reply *r, struct ig_strbuf *out);
	/* The body of an error. */
	void (*error)(struct ig_strbuf *out, const struct ig_api_error *e);
	/* A keep-alive for a stream whose model is being loaded; of r only what a reply knows
	 * before that is there.  True: another follows at once.  NULL: it never streams. */
	bool (*wait)(struct ig_reply *r, struct ig_strbuf *out);
	/* Of whole; NULL: 200. */
	int (*status)(const struct ig_reply *r);
	/* Nothing is generated: whole follows prep. */
	bool immediate;
	/* It is about the daemon, and no model's work: none of it is in the ledger. */
	bool administrative;
};

extern const struct ig_protocol ig_chat_protocol, ig_completions_protocol, ig_responses_protocol,
	ig_input_tokens_protocol, ig_messages_protocol, ig_count_protocol, ig_tokenize_protocol,
	ig_detokenize_protocol, ig_load_protocol, ig_unload_protocol;
/* The one that has this path; NULL: none. */
const struct ig_protocol *ig_protocol_at(const char *path);

/* ---- jobs: a request on its way through the prep thread (jobs.c) ------------------ */

/* What prep makes of a request. */
struct ig_prepared {
	const struct ig_engine_model *model; /* held */
	struct ig_ids *prompts;		     /* [n_prompts] */
	size_t n_prompts;
	struct ig_grammar *grammar; /* NULL: none */
	struct ig_answer_style style;
	int32_t shown[IG_MAX_SHOWN];
	uint32_t n_shown;
};
void ig_prepared_finish(struct ig_prepared *p);

struct ig_job;

/* Who waits for a job.  The loop's. */
struct ig_job_owner {
	void *ctx;
	/* What of request and prepared it does not take is freed afterwards. */
	void (*deliver)(void *ctx, struct ig_job *job);
	/* The model is being loaded: the job is parked from now on, or a keep-alive is due.  NULL:
	 * it is delivered instead, with waits set, and nothing prepared. */
	void (*waits)(void *ctx, struct ig_job *job);
	struct link *jobs;		/* its list */
	const struct ig_principal *who; /* copied */
};

/* A stream that has begun while its model was being loaded. */
struct ig_begun {
	char id[64]; /* "": it has not */
	char model[129];
	int64_t created_s;
	int stage;
	int32_t sequence;
};

struct ig_job {
	struct link all;	  /* loop */
	struct ig_job *next_done; /* api->lock */
	struct ig_api *api;
	struct ig_job_owner owner; /* loop; ctx is NULL once it is gone */
	struct link of_owner;
	/* Loop, once the owner is gone: for the ledger; "": nothing is to be noted. */
	char endpoint[32], client[64];
	struct ig_principal who;
	const struct ig_protocol *protocol;
	int64_t received_ns, received_wall_ns;
	/* prep's until it is done */
	ig_request_parse *parse; /* NULL: the request was there already */
	bool parsed;
	char *text;
	size_t len;
	struct ig_request request;
	struct ig_api_error error; /* status 0: fine */
	/* Empty for a request that generates nothing, and for one that continues a response and
	 * has no history yet: the owner looks that up and sends the job round again. */
	struct ig_prepared prepared;
	/* Its model is being loaded; prepared is empty.  It goes to prep again when that has
	 * ended: when wait has counted on from ticket. */
	bool waits;
	struct ig_model_wait *wait;
	uint64_t ticket;
	/* loop */
	struct link of_parked;
	bool parked;
	bool over;			   /* parked: it is to be delivered as it is */
	bool counted;			   /* against who's limits */
	bool keepalive;			   /* one is due */
	int64_t parked_ns, last_output_ns; /* since when it waits; 0: it never has */
	struct ig_begun begun;
};

/* Takes text over.  parse: the protocol's, or ig_request_parse_ws.  -EAGAIN, -ENOMEM:
 * nothing was started (text is freed). */
int ig_job_start(struct ig_api *api, const struct ig_protocol *p, ig_request_parse *parse,
		 char *text, size_t len, const struct ig_job_owner *owner);
/* Prepare a request that is parsed (and now has its history); takes *r over, also on
 * failure. */
int ig_job_prepare(struct ig_api *api, const struct ig_protocol *p, struct ig_request *r,
		   int64_t received_ns, int64_t received_wall_ns, const struct ig_job_owner *owner);
/* The owner goes: its jobs are delivered to nobody, and the ledger is told what they were
 * of; but for those of ig_job_prepare, unless prepared says so. */
void ig_jobs_abandon(struct link *owner_jobs, const char *endpoint, const char *client,
		     bool prepared);
/* A parked job is delivered at the next poll, unprepared. */
void ig_job_end_wait(struct ig_job *j);
/* What a stream that waits is given now, by write (ig_protocol's wait, or as that); false:
 * nothing is due. */
bool ig_job_keep_alive(struct ig_job *j, bool (*write)(struct ig_reply *r, struct ig_strbuf *out),
		       struct ig_strbuf *out);
/* The prep thread: ig_engine_take_model for the job's request; -EINPROGRESS: once it is
 * delivered it is parked until the load has ended. */
int ig_job_take_model(struct ig_job *j, struct ig_error *err);
/* Render, tokenise, compile: fill in j->prepared or j->error, or set j->waits.  The prep
 * thread. */
void ig_prepare(struct ig_job *j);

void ig_jobs_init(struct ig_api *api);
void ig_jobs_stop(struct ig_api *api);	 /* no owner is left */
void ig_jobs_finish(struct ig_api *api); /* the prep thread is gone */
/* Deliver what prep has done with; send to it whose model's load has ended. */
void ig_jobs_poll(struct ig_api *api);
/* Keep-alives and ends of waits; as ig_api_tick. */
int64_t ig_jobs_tick(struct ig_api *api, int64_t now_ns);
/* Nothing is loaded any more: what is parked is refused. */
void ig_jobs_drain(struct ig_api *api);

/* ---- replies and their calls ------------------------------------------------------ */

enum ig_part_kind { IG_PART_TEXT, IG_PART_REASONING, IG_PART_CALL };

/* A piece of an answer: text up to a call, a call, text after it … */
struct ig_part {
	enum ig_part_kind kind;
	bool done;		     /* nothing will be added */
	bool whole;		     /* of a call: the model has ended it */
	size_t first_note, end_note; /* of text: its tokens' notes, with logprobs */
	struct ig_strbuf text;	     /* of a call: its arguments */
	char *name;		     /* of a call */
	char id[48];		     /* random, with the prefix msg_, rs_ or fc_ */
	char call_id[48];	     /* of a call: call_ and random */
};

/* One generation: a choice. */
struct ig_call {
	struct ig_reply *reply;
	uint32_t index;
	struct wake_slot *slot;
	struct ig_stream *stream; /* NULL until submitted */
	uint64_t gen;
	bool finished; /* result is valid and all text was taken */
	struct ig_gen_result result;
	struct ig_answer_parser *parser; /* NULL: all is one part of text */
	struct ig_part *parts;		 /* [n_parts]; there is none before the first text */
	size_t n_parts, cap_parts;
	size_t n_bytes;		     /* of the model's text so far */
	struct ig_token_note *notes; /* [n_notes]: of the text so far, with logprobs */
	size_t n_notes, cap_notes;
	/* Bytes that the parser was fed; notes of the tokens among them; of those, the first that
	 * no part has yet. */
	size_t n_fed, n_placed, first_unplaced;
	/* Where its writer is: up to which part, how much of that, of the notes. */
	int stage;
	size_t part, n_sent, n_notes_sent;
};

struct ig_reply {
	struct link all; /* of the api */
	struct link of_owner;
	struct ig_api *api;
	const struct ig_protocol *protocol;
	void *owner;
	void (*notify)(void *owner, struct ig_reply *r); /* something new */
	struct ig_request request;
	struct ig_prepared prepared;
	const struct ig_engine_model *model; /* prepared.model; never NULL: */
	struct ig_engine_model stand_in;     /* its name alone, for what was not prepared */
	char stand_in_name[129];
	char id[64], endpoint[32], client[64];
	struct ig_principal who;
	bool admitted;	   /* counts against who's limits */
	int64_t n_charged; /* tokens */
	int64_t created_s, received_ns, received_wall_ns;
	struct ig_call *calls; /* [n_calls]: prompt by prompt, n choices of each */
	uint32_t n_calls, n_finished;
	bool submitted;
	bool finished;		   /* all calls are, or error says why there will be none */
	const void *connection;	   /* the WebSocket that may continue it; NULL: none */
	struct ig_api_error error; /* why it has no answer; status 0: it has */
	/* its writer's */
	int stage;
	int32_t sequence; /* next sequence_number */
	int64_t last_output_ns;
	bool keepalive; /* one is due */
	bool framed;	/* Responses: events go out as SSE frames */
};

/* A reply to the job's request; what it needs moves over.  Of a job with an error it is one
 * that has failed, of one that is unprepared one that can only be cancelled.  NULL without
 * memory. */
struct ig_reply *ig_reply_create(struct ig_job *job, const char *endpoint, const char *client,
				 const struct ig_principal *who, void *owner,
				 void (*notify)(void *owner, struct ig_reply *r));
/* 0, or -1 with *e: refused, by who's limits or the engine (the ledger has its row).  Of several choices of a prompt the
 * first is submitted; the others follow once its prompt is read, and share it. */
int ig_reply_submit(struct ig_reply *r, struct ig_api_error *e);
/* Take what the engine has written, at most cap bytes of a call: more parts, or more of
 * the last.  Sets finished, and error when a call failed. */
void ig_reply_take(struct ig_reply *r, size_t cap);
/* Ends it at the next step; before it was submitted: at once. */
void ig_reply_cancel(struct ig_reply *r, const char *reason);
/* Cancels (client_gone) what still runs. */
void ig_reply_destroy(struct ig_reply *r); /* NULL is fine */
/* Sums over the calls. */
struct ig_usage {
	int64_t prompt, cached, output;
};
void ig_reply_usage(const struct ig_reply *r, struct ig_usage *u);
/* Something went out: no keep-alive is due for a while. */
void ig_reply_wrote(struct ig_reply *r);

/* Any thread: the loop is to call ig_api_poll. */
void ig_api_wake(struct ig_api *api);

/* An entry in the ledger for what never got to submit. */
void ig_api_note_refused(struct ig_api *api, const char *id, const char *endpoint,
			 const char *client, const struct ig_principal *who, const char *model,
			 int64_t received_ns, int64_t received_wall_ns,
			 const struct ig_api_error *e);

/* A wake slot for a call, and back. */
struct wake_slot *ig_slot_get(struct ig_api *api, struct ig_call *call);
void ig_slot_put(struct wake_slot *s);
void ig_slot_wake(void *slot); /* any thread */

/* ---- pieces of text -------------------------------------------------------------- */

/* prefix and 32 random characters of [a-z0-9]. */
void ig_random_id(char *out, size_t cap, const char *prefix);
uint64_t ig_random_seed(void);

/* {"error":{message,type,param,code}} */
void ig_error_object(struct ig_strbuf *out, const struct ig_api_error *e);
/* The members of the inner object, braces included. */
void ig_error_members(struct ig_strbuf *out, const struct ig_api_error *e);
void ig_json_text(struct ig_strbuf *out, const char *s); /* NULL: null */
/* A value as text; out fails without memory. */
void ig_json_value(struct ig_strbuf *out, const json_t *v);
/* A token's text; what is no whole character is U+FFFD. */
void ig_token_text(struct ig_strbuf *out, const struct ig_engine_model *m, int32_t id);
void ig_json_token_text(struct ig_strbuf *out, const struct ig_engine_model *m, int32_t id);
/* The members "token":…,"logprob":…, and with bytes "bytes":[…]; no braces. */
void ig_json_token(struct ig_strbuf *out, const struct ig_engine_model *m, int32_t id,
		   float logprob, bool with_bytes);
/* The error of a result that is no answer; status 0: it is one. */
void ig_result_error(const struct ig_gen_result *r, struct ig_api_error *e);

/* The wait of chat completions and completions. */
bool ig_sse_wait(struct ig_reply *r, struct ig_strbuf *out);

/* The usage object of chat completions and completions. */
void ig_json_usage(struct ig_strbuf *out, const struct ig_reply *r);

/* ---- models (models.c) ------------------------------------------------------------ */

/* All that are configured, malloc'd; NULL without memory. */
struct ig_model_status *ig_models_read(struct ig_api *api, size_t *n);
/* The one that is meant by name (NULL or empty: the default) in the list; NULL: none. */
const struct ig_model_status *ig_models_find(const struct ig_model_status *list, size_t n,
					     const char *name);
/* What GET /v1/models answers, and /v1/models/{name}: -1 with *e.  all: with what only
 * administrators are told. */
int ig_models_list(struct ig_api *api, bool all, struct ig_strbuf *out, struct ig_api_error *e);
int ig_models_show(struct ig_api *api, const char *name, bool all, struct ig_strbuf *out,
		   struct ig_api_error *e);

/* Every session looks again whether it has anything left to do. */
void ig_sessions_drain(struct ig_api *api);

/* ---- Responses ------------------------------------------------------------------------ */

/* The next event, for a WebSocket; as ig_protocol's next. */
bool ig_responses_next_event(struct ig_reply *r, struct ig_strbuf *out, bool *last);
/* The same of ig_protocol's wait. */
bool ig_responses_wait_event(struct ig_reply *r, struct ig_strbuf *out);
/* q->history is what its previous_response_id stands for; -1 with *e: it stands for nothing
 * that this key, and connection (NULL: none), may see. */
int ig_responses_recall(struct ig_api *api, struct ig_request *q, const struct ig_principal *who,
			const void *connection, struct ig_api_error *e);

/* The WebSocket's own events. */

void ig_ws_error_event(struct ig_strbuf *out, const struct ig_api_error *e, const char *stream_id);
void ig_ws_steer_failed(struct ig_strbuf *out, const char *steer, const char *stream_id);

#endif
