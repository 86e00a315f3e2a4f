/* api-private.h: what exchanges and sessions share: jobs for prep, calls to the engine. */
#ifndef INGOT_PROTOCOL_API_PRIVATE_H
#define INGOT_PROTOCOL_API_PRIVATE_H

#include "daemon/protocol/exchange.h"
#include "daemon/protocol/request.h"

#include <pthread.h>
#include <stdatomic.h>

/* A doubly linked list with a head. */
struct link {
	struct link *prev, *next;
};
static inline void link_init(struct link *l) { l->prev = l->next = l; }
static inline bool link_empty(const struct link *l) { return l->next == l; }
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

struct ig_api {
	struct ig_api_deps deps;
	bool draining; /* loop */
	struct link jobs; /* loop: every job that is not delivered */
	struct link calls; /* loop: every call */
	struct link sessions; /* loop: every session */
	struct wake_slot *slots, *free_slots; /* loop; the chunks are never freed before the end */
	void *chunks;
	pthread_mutex_t lock;
	struct ig_job *done, **done_tail; /* lock */
	atomic_bool woken;
};

/* ---- jobs: a request on its way through the prep thread ------------------------ */

enum ig_job_kind { IG_JOB_CHAT, IG_JOB_WS };

/* After delivery the fields below are the owner's to take; what it leaves is freed. */
struct ig_job {
	struct link all; /* loop */
	struct ig_job *next_done; /* api->lock */
	struct ig_api *api;
	/* Loop: whom to give it to; NULL once that one is gone. */
	void *owner;
	void (*deliver)(void *owner, struct ig_job *job);
	struct link of_owner;
	enum ig_job_kind kind;
	int64_t received_ns, received_wall_ns;
	/* prep's until it is done */
	char *text;
	size_t len;
	struct ig_request request;
	struct ig_api_error error; /* status 0: fine */
	const struct ig_engine_model *model;
	struct ig_ids ids;
};

/* Takes text over.  -EAGAIN, -ENOMEM: nothing was started (text is freed). */
int ig_job_start(struct ig_api *api, enum ig_job_kind kind, char *text, size_t len, void *owner,
		 void (*deliver)(void *owner, struct ig_job *job), struct link *owner_jobs);
/* The owner goes: its jobs are delivered to nobody. */
void ig_jobs_abandon(struct link *owner_jobs);

/* ---- calls: one generation ------------------------------------------------------ */

struct ig_call {
	struct link all; /* of the api */
	struct link of_owner;
	struct ig_api *api;
	struct wake_slot *slot;
	void *owner;
	void (*notify)(void *owner, struct ig_call *call); /* something new in the stream */
	struct ig_request request;
	const struct ig_engine_model *model;
	struct ig_ids ids; /* until submitted */
	char id[64], item_id[64], endpoint[32], client[64];
	int64_t created_s, received_ns, received_wall_ns;
	struct ig_stream *stream; /* NULL until submitted */
	uint64_t gen;
	bool finished; /* result is valid and all text was taken */
	struct ig_gen_result result;
	struct ig_strbuf text; /* of the answer so far */
	size_t n_sent; /* bytes of it that went out */
	int stage; /* its writer's */
	int32_t sequence; /* next sequence_number */
	int64_t last_output_ns;
	bool keepalive; /* one is due */
};

/* A call of the job's request; what it needs moves over. */
struct ig_call *ig_call_create(struct ig_job *job, const char *id_prefix, const char *endpoint,
			       const char *client, void *owner,
			       void (*notify)(void *owner, struct ig_call *call));
/* 0, or -1 with *e: refused (the ledger has its row). */
int ig_call_submit(struct ig_call *c, struct ig_api_error *e);
/* Move what the engine has written to c->text: at most cap bytes.  Sets finished. */
void ig_call_take(struct ig_call *c, size_t cap);
/* Ends it at the next step; before it was submitted: at once. */
void ig_call_cancel(struct ig_call *c, const char *reason);
/* Cancels (client_gone) what still runs. */
void ig_call_destroy(struct ig_call *c);

/* An entry in the ledger for what never got to submit. */
void ig_api_note_refused(struct ig_api *api, const char *id, const char *endpoint,
			 const char *client, const char *model, int64_t received_ns,
			 int64_t received_wall_ns, const struct ig_api_error *e);

/* ---- pieces of text -------------------------------------------------------------- */

/* prefix and 32 random characters of [a-z0-9]. */
void ig_random_id(char *out, size_t cap, const char *prefix);

/* {"error":{message,type,param,code}} */
void ig_error_object(struct ig_strbuf *out, const struct ig_api_error *e);
/* The members of the inner object, braces included. */
void ig_error_members(struct ig_strbuf *out, const struct ig_api_error *e);
void ig_json_text(struct ig_strbuf *out, const char *s); /* NULL: null */

/* Every session looks again whether it has anything left to do. */
void ig_sessions_drain(struct ig_api *api);

/* ---- writers ---------------------------------------------------------------------- */

/* The next event of a response's sequence, by c->stage; false: none now.  *last is
 * set with the final one. */
bool ig_response_event(struct ig_call *c, struct ig_strbuf *out, bool *last);
void ig_ws_error_event(struct ig_strbuf *out, const struct ig_api_error *e, const char *stream_id);
void ig_ws_steer_failed(struct ig_strbuf *out, const char *steer, const char *stream_id);

/* The next SSE frames of a chat; *last is set with the final one. */
bool ig_chat_frames(struct ig_call *c, struct ig_strbuf *out, bool *last);
/* The whole chat.completion of a finished call. */
void ig_chat_whole(struct ig_call *c, struct ig_strbuf *out);
/* The error of a result that is no answer; status 0: it is one. */
void ig_result_error(const struct ig_gen_result *r, struct ig_api_error *e);

#endif
