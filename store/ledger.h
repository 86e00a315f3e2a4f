/* ledger.h: one row for each request, in SQLite, written by a thread of its own.  No other thread
 * waits for it: a full ring drops rows and counts them.  Has no text of prompts or responses. */
#pragma once

#include <ingot/error.h>
#include <stdbool.h>

/* Upper bounds, in ms, of the inter-token histogram's buckets; the last bucket has none.  They
 * never change, so that all rows can be added. */
#define IG_ITL_BUCKETS 24
extern const float ig_itl_bounds_ms[IG_ITL_BUCKETS - 1];
/* The bucket of a duration. */
int ig_itl_bucket(double ms);

#define IG_REQUEST_ID_CAP 65  /* of an x-request-id */
#define IG_IGNORED_CAP 384    /* of an x-ingot-ignored */
#define IG_NORMALIZED_CAP 256 /* of an x-ingot-normalized */

struct ig_ledger_row {
	char id[64]; /* resp_…, chatcmpl-… */
	char request_id[IG_REQUEST_ID_CAP];
	char model[129];
	char endpoint[32];	      /* "ws /v1/responses", "POST /v1/chat/completions" … */
	char client[64];	      /* address, or unix:uid=… */
	char key[40];		      /* the id of the API key; "": none */
	char finish[24];	      /* stop, length, cancelled, error, refused */
	char cancel_reason[24];	      /* "", client_gone, client_cancel, slow_client, shutdown */
	char error[200];	      /* the error's text, or "" */
	char ignored[IG_IGNORED_CAP]; /* names of what was left out of the request, or "" */
	char normalized[IG_NORMALIZED_CAP];	   /* the rules that changed its prompt, or "" */
	int32_t status;				   /* the HTTP status, or its equivalent */
	int64_t received_ns;			   /* wall clock */
	int32_t priority;			   /* see struct ig_gen_spec */
	int32_t n_prompt, n_cached, n_output;	   /* tokens */
	int32_t n_drafted, n_accepted;		   /* tokens of drafts, and those that were right */
	int32_t n_model_drafted, n_model_accepted; /* of them: a draft model's */
	int32_t n_mtp_drafted, n_mtp_accepted;	   /* of them: of the model's own head */
	float draft_gain_ms;			   /* time that drafts saved; negative: cost */
	int32_t n_restored;	 /* tokens that were read for it from kvcache.disk */
	char cache_reason[16];	 /* why no more was cached: prefix_report.h has the names; or "" */
	char cache_compared[64]; /* the id of the earlier request that says so, or "" */
	int32_t n_same;		 /* tokens with which both prompts begin; negative: there is none */
	float queue_ms, prefill_ms, decode_ms, ttft_ms, total_ms; /* negative: never reached */
	uint32_t itl[IG_ITL_BUCKETS];				  /* counts of inter-token times */
	bool note; /* not a row: error belongs to the row with this id, if that has none */
};

struct ig_ledger;

struct ig_ledger_options {
	const char *path;
	uint32_t queue;		 /* rows */
	uint32_t retention_days; /* 0: no limit */
	/* n rows were dropped: the ring was full, or they could not be written.  Any thread,
	 * without a lock; may be NULL. */
	void (*dropped)(void *ctx, uint64_t n);
	void *ctx;
	/* Rows cannot be written (true), or can be again; any thread, may be NULL. */
	void (*failing)(void *ctx, bool failing);
};

/* Open or create the database and its folder, migrate it by user_version, lock it (a second daemon
 * gets -EBUSY), start the thread.  Errors name the path.  A full disk is not an error: the thread
 * opens the database when there is space. */
int ig_ledger_open(const struct ig_ledger_options *o, struct ig_ledger **out, struct ig_error *err);
/* Any thread; copies the row; never waits for the disk. */
void ig_ledger_put(struct ig_ledger *l, const struct ig_ledger_row *row);
void ig_ledger_set_retention(struct ig_ledger *l, uint32_t days); /* any thread */
/* Why rows cannot be written at the moment, in buf; false: they can.  Any thread. */
bool ig_ledger_failure(struct ig_ledger *l, char *buf, size_t size);
/* Write the queued rows, close.  NULL is fine. */
void ig_ledger_close(struct ig_ledger *l);

/* ---- reading (the CLI, another process while the daemon runs) ---------------- */

enum ig_ledger_by { IG_LEDGER_BY_MODEL, IG_LEDGER_BY_KEY, IG_LEDGER_BY_CLIENT, IG_N_LEDGER_BY };
/* "model", "key", "client": also the column's name */
const char *ig_ledger_by_name(enum ig_ledger_by by);

struct ig_ledger_stats {
	char name[129]; /* of the model, the key or the client */
	int64_t n_requests, n_errors, n_cancelled;
	int64_t n_prompt, n_cached, n_output;
	double ttft_ms[3]; /* p50 p95 p99; NaN without data */
	double itl_ms[3];  /* from the histograms, interpolated in the bucket */
};

/* Statistics since a wall-clock time (0: all), sorted by name.  *out is the caller's (free).  Opens
 * the file read-only. */
int ig_ledger_stats(const char *path, enum ig_ledger_by by, int64_t since_ns,
		    struct ig_ledger_stats **out, size_t *n, struct ig_error *err);

/* Write a copy of the ledger, as it is at one moment, to a new file of mode 600; *n_rows: the
 * requests in it.  After an error there is no file. */
int ig_ledger_copy(const char *path, const char *to, int64_t *n_rows, struct ig_error *err);
