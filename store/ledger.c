/*
 * ledger.c: the writing side of the ledger; ledger_stats.c reads it.  Any thread puts rows into a
 * ring; one writer thread, which owns the SQLite connection, writes them.  The lock is held for
 * copies and counters only, never during a call of SQLite: rows stay in the ring until they are
 * committed.  The inter-token histogram is 24 integer columns instead of a blob: sum() adds them in
 * plain SQL, and a zero takes one byte of a row's header and none of its body.
 */
#include "store/ledger_private.h"

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/strbuf.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MS ((int64_t)1000000)
#define COMMIT_ROWS 512
#define COMMIT_NS (500 * MS)
#define RETRY_NS (100 * MS) /* while another program has the write lock */
#define CLOSE_RETRIES 12    /* of those, before close drops the rows */
#define PRUNE_ROWS 500	    /* deleted in one transaction */
#define VACUUM_PAGES "128"  /* freed in one transaction */
#define PRUNE_NS (3600 * 1000 * MS)
#define LOG_NS (60 * 1000 * MS)
#define PROBE_NS (2000 * MS) /* between attempts to write while it fails */
#define DAY_NS (86400 * 1000 * MS)
#define MAX_RETENTION_DAYS 36500

const float ig_itl_bounds_ms[IG_ITL_BUCKETS - 1] = {
	0.5f, 1,  2,  3,  4,  5,  6,   8,   10,	 12.5f, 16,   20,
	25,   32, 40, 50, 65, 80, 100, 150, 250, 500,	1000,
};

struct ig_ledger {
	char *path;
	struct ig_database file; /* the writer's, once it runs; db NULL: could not be opened yet */
	sqlite3_stmt *insert, *amend;
	pthread_t thread;

	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	struct ig_ledger_row *ring; /* [cap]; rows from tail to head are full */
	uint64_t head, tail;	    /* never wrap */
	uint32_t cap, trigger;	    /* trigger: rows at which the writer starts at once */
	int64_t oldest_ns;	    /* arrival of the oldest row not tried in a batch */
	int64_t prune_ns;	    /* next search for old rows */
	char failure[512];	    /* why rows cannot be written; "": they can */
	bool stop;

	void (*dropped)(void *ctx, uint64_t n); /* may be NULL, as the next */
	void (*failing)(void *ctx, bool failing);
	void *ctx;
	_Atomic uint32_t retention_days;
	int64_t logged_ns; /* the writer's: time of the last logged failure */
	uint64_t unlogged; /* the writer's: dropped rows since then */
	int64_t probe_ns;  /* the writer's: next attempt while it fails */
	bool said;	   /* the writer's: the log's last word is that it fails */
};

int ig_itl_bucket(double ms)
{
	int i = 0;

	while (i < IG_ITL_BUCKETS - 1 && ms > (double)ig_itl_bounds_ms[i])
		i++;
	return i;
}

/* ---- SQLite ---------------------------------------------------------------------------- */

static int prepare_insert(struct ig_ledger *l, struct ig_error *err)
{
	struct ig_strbuf b = { 0 };
	int code = SQLITE_NOMEM;

	ig_strbuf_puts(
		&b,
		"INSERT INTO requests (id, received_ns, model, endpoint, client, status, "
		"finish, cancel_reason, error, prompt_tokens, cached_tokens, "
		"output_tokens, queue_ms, prefill_ms, decode_ms, ttft_ms, total_ms, key, request_id, "
		"ignored, cache_reason, cache_compared, cache_same_tokens, priority, "
		"draft_tokens, accepted_tokens, restored_tokens, normalized, "
		"model_draft_tokens, model_accepted_tokens, draft_gain_ms, "
		"mtp_draft_tokens, mtp_accepted_tokens");
	for (int i = 0; i < IG_ITL_BUCKETS; i++)
		ig_strbuf_printf(&b, ", itl_%d", i);
	ig_strbuf_puts(&b, ") VALUES (?");
	for (int i = 1; i < 33 + IG_ITL_BUCKETS; i++)
		ig_strbuf_puts(&b, ",?");
	ig_strbuf_puts(&b, ")");
	if (ig_strbuf_ok(&b))
		code = sqlite3_prepare_v3(l->file.db, b.data, -1, SQLITE_PREPARE_PERSISTENT,
					  &l->insert, NULL);
	ig_strbuf_finish(&b);
	/* a note follows its row closely */
	if (code == SQLITE_OK)
		code = sqlite3_prepare_v3(
			l->file.db,
			"UPDATE requests SET error = ? WHERE id = ? AND error = '' "
			"AND row > (SELECT max(row) FROM requests) - 1000",
			-1, SQLITE_PREPARE_PERSISTENT, &l->amend, NULL);
	return code == SQLITE_OK ? 0 :
				   ig_database_fail(&ledger_kind, l->file.db, code, l->file.path,
						    "cannot be written", err);
}

static int open_database(struct ig_ledger *l, struct ig_error *err)
{
	int rc = ig_database_open(&l->file, &ledger_kind, l->path, err);

	return rc ? rc : prepare_insert(l, err);
}

static void close_database(struct ig_ledger *l)
{
	sqlite3_finalize(l->insert);
	sqlite3_finalize(l->amend);
	l->insert = l->amend = NULL;
	ig_database_close(&l->file);
}

/* ---- the writer's thread -------------------------------------------------------------------- */

/* Whether rows can be written has been seen: why NULL, they can.  Without the lock. */
static void set_failure(struct ig_ledger *l, const char *why)
{
	pthread_mutex_lock(&l->lock);
	bool was = l->failure[0] != 0;
	snprintf(l->failure, sizeof l->failure, "%s", why ? why : "");
	pthread_mutex_unlock(&l->lock);
	l->probe_ns = ig_now_ns() + PROBE_NS;
	if (was != !!why && l->failing)
		l->failing(l->ctx, !!why);
	if (!why && l->said) {
		ig_log_info("ledger %s: is written again", l->path);
		l->said = false;
	}
}

/* Log a failure, at most once a minute. */
static void log_failure(struct ig_ledger *l, int code, const char *what, uint64_t n_rows)
{
	int64_t now = ig_now_ns();

	l->unlogged += n_rows;
	if (l->logged_ns && now - l->logged_ns < LOG_NS)
		return;
	/* Not sqlite3_errmsg, which after a rollback describes the rollback. */
	l->said = true;
	ig_log_error("ledger %s: %s: %s; %llu rows dropped", l->path, what, sqlite3_errstr(code),
		     (unsigned long long)l->unlogged);
	l->logged_ns = now;
	l->unlogged = 0;
}

static void bind_text(sqlite3_stmt *st, int *i, const char *s, size_t size)
{
	sqlite3_bind_text(st, (*i)++, s, (int)strnlen(s, size), SQLITE_STATIC);
}

static void bind_ms(sqlite3_stmt *st, int *i, float ms)
{
	if (ms >= 0)
		sqlite3_bind_double(st, *i, (double)ms);
	else
		sqlite3_bind_null(st, *i);
	(*i)++;
}

static int amend_row(struct ig_ledger *l, const struct ig_ledger_row *r)
{
	int i = 1, code;

	bind_text(l->amend, &i, r->error, sizeof r->error);
	bind_text(l->amend, &i, r->id, sizeof r->id);
	code = sqlite3_step(l->amend);
	sqlite3_reset(l->amend);
	return code == SQLITE_DONE ? SQLITE_OK : code;
}

static int insert_row(struct ig_ledger *l, const struct ig_ledger_row *r)
{
	sqlite3_stmt *st = l->insert;
	int i = 1, code;

	if (r->note)
		return amend_row(l, r);
	bind_text(st, &i, r->id, sizeof r->id);
	sqlite3_bind_int64(st, i++, r->received_ns);
	bind_text(st, &i, r->model, sizeof r->model);
	bind_text(st, &i, r->endpoint, sizeof r->endpoint);
	bind_text(st, &i, r->client, sizeof r->client);
	sqlite3_bind_int(st, i++, r->status);
	bind_text(st, &i, r->finish, sizeof r->finish);
	bind_text(st, &i, r->cancel_reason, sizeof r->cancel_reason);
	bind_text(st, &i, r->error, sizeof r->error);
	sqlite3_bind_int(st, i++, r->n_prompt);
	sqlite3_bind_int(st, i++, r->n_cached);
	sqlite3_bind_int(st, i++, r->n_output);
	bind_ms(st, &i, r->queue_ms);
	bind_ms(st, &i, r->prefill_ms);
	bind_ms(st, &i, r->decode_ms);
	bind_ms(st, &i, r->ttft_ms);
	bind_ms(st, &i, r->total_ms);
	bind_text(st, &i, r->key, sizeof r->key);
	bind_text(st, &i, r->request_id, sizeof r->request_id);
	bind_text(st, &i, r->ignored, sizeof r->ignored);
	bind_text(st, &i, r->cache_reason, sizeof r->cache_reason);
	bind_text(st, &i, r->cache_compared, sizeof r->cache_compared);
	if (r->n_same >= 0)
		sqlite3_bind_int(st, i++, r->n_same);
	else
		sqlite3_bind_null(st, i++);
	sqlite3_bind_int(st, i++, r->priority);
	sqlite3_bind_int(st, i++, r->n_drafted);
	sqlite3_bind_int(st, i++, r->n_accepted);
	sqlite3_bind_int(st, i++, r->n_restored);
	bind_text(st, &i, r->normalized, sizeof r->normalized);
	sqlite3_bind_int(st, i++, r->n_model_drafted);
	sqlite3_bind_int(st, i++, r->n_model_accepted);
	sqlite3_bind_double(st, i++, (double)r->draft_gain_ms);
	sqlite3_bind_int(st, i++, r->n_mtp_drafted);
	sqlite3_bind_int(st, i++, r->n_mtp_accepted);
	for (int b = 0; b < IG_ITL_BUCKETS; b++)
		sqlite3_bind_int64(st, i++, r->itl[b]);
	code = sqlite3_step(st);
	sqlite3_reset(st);
	/* A value whose bind failed is NULL, which NOT NULL refuses: the step's result covers the
	 * binds too. */
	return code == SQLITE_DONE ? SQLITE_OK : code;
}

struct batch {
	struct ig_ledger *ledger;
	uint64_t tail, n; /* rows from tail on */
};

static int insert_rows(void *ctx)
{
	const struct batch *b = ctx;
	struct ig_ledger *l = b->ledger;
	int code = SQLITE_OK;

	for (uint64_t i = 0; i < b->n && code == SQLITE_OK; i++)
		code = insert_row(l, &l->ring[(b->tail + i) % l->cap]);
	return code;
}

/* Delete some old rows, then free some pages.  Nanoseconds until the next call: 0 while more is
 * left. */
static int64_t prune(struct ig_ledger *l)
{
	int64_t days = atomic_load_explicit(&l->retention_days, memory_order_relaxed), n_free = 0;
	int code = SQLITE_OK, n_deleted = 0;
	char sql[256];

	if (!l->file.db)
		return LOG_NS;
	if (days > 0) {
		int64_t before = ig_wall_ns() - days * DAY_NS;
		snprintf(sql, sizeof sql,
			 "DELETE FROM requests WHERE row IN (SELECT row FROM requests "
			 "WHERE received_ns < %lld ORDER BY received_ns LIMIT %d)",
			 (long long)before, PRUNE_ROWS);
		code = sqlite3_exec(l->file.db, sql, NULL, NULL, NULL);
		n_deleted = sqlite3_changes(l->file.db);
	}
	if (code == SQLITE_OK && n_deleted == PRUNE_ROWS)
		return 0;
	if (code == SQLITE_OK)
		code = sqlite3_exec(l->file.db, "PRAGMA incremental_vacuum(" VACUUM_PAGES ")", NULL,
				    NULL, NULL);
	if (code == SQLITE_OK)
		code = ig_database_number(l->file.db, "PRAGMA freelist_count", &n_free);
	if (code == SQLITE_BUSY)
		return RETRY_NS;
	if (code != SQLITE_OK) {
		log_failure(l, code, "old rows cannot be deleted", 0);
		return LOG_NS;
	}
	return n_free > 0 ? 0 : PRUNE_NS;
}

static void drop(struct ig_ledger *l, uint64_t n)
{
	if (l->dropped)
		l->dropped(l->ctx, n);
}

/* Open the database if a full disk did not let ig_ledger_open do it. */
static int open_late(struct ig_ledger *l)
{
	struct ig_error err = { 0 };
	int rc = l->file.db ? 0 : open_database(l, &err);

	if (rc)
		close_database(l);
	return ig_database_code(rc);
}

/* While it fails and no rows come: write something, to see whether that works again. */
static void probe(struct ig_ledger *l)
{
	int code = open_late(l);

	if (code == SQLITE_OK)
		code = ig_database_probe(&l->file);
	if (code == SQLITE_OK)
		set_failure(l, NULL);
	l->probe_ns = ig_now_ns() + PROBE_NS;
}

/* Write at most COMMIT_ROWS of the n rows in the ring.  The caller holds the lock, which is
 * released meanwhile.  False: another program has locked the file, try again. */
static bool flush(struct ig_ledger *l, uint64_t n, bool give_up)
{
	uint64_t tail = l->tail;
	int code;

	if (n > COMMIT_ROWS)
		n = COMMIT_ROWS;
	pthread_mutex_unlock(&l->lock);
	code = open_late(l);
	if (code == SQLITE_OK)
		code = ig_database_transact(l->file.db, insert_rows, &(struct batch){ l, tail, n });
	if (code != SQLITE_OK && (code != SQLITE_BUSY || give_up)) {
		drop(l, n);
		log_failure(l, code, "cannot be written", n);
		set_failure(l, sqlite3_errstr(code));
	} else if (code == SQLITE_OK) {
		set_failure(l, NULL);
	}
	pthread_mutex_lock(&l->lock);
	if (code == SQLITE_BUSY && !give_up)
		return false;
	l->tail = tail + n;
	l->oldest_ns = ig_now_ns();
	return true;
}

static void *writer(void *arg)
{
	struct ig_ledger *l = arg;
	int n_retries = 0;

	ig_name_thread("ledger");
	pthread_mutex_lock(&l->lock);
	for (;;) {
		uint64_t n = l->head - l->tail;
		int64_t now = ig_now_ns();

		if (n > 0 && (n >= l->trigger || l->stop || now >= l->oldest_ns + COMMIT_NS)) {
			if (!flush(l, n, n_retries >= CLOSE_RETRIES)) {
				int64_t again = ig_now_ns() + RETRY_NS;
				n_retries += l->stop;
				while (ig_now_ns() < again)
					ig_wait_until(&l->changed, &l->lock, again);
			}
			continue;
		}
		if (l->stop)
			break;
		if (l->failure[0] && now >= l->probe_ns) {
			pthread_mutex_unlock(&l->lock);
			probe(l);
			pthread_mutex_lock(&l->lock);
			continue;
		}
		if (now >= l->prune_ns) {
			l->prune_ns = INT64_MAX;
			pthread_mutex_unlock(&l->lock);
			int64_t delay = prune(l);
			pthread_mutex_lock(&l->lock);
			/* unless ig_ledger_set_retention asked for a search meanwhile */
			if (l->prune_ns == INT64_MAX)
				l->prune_ns = ig_now_ns() + delay;
			continue;
		}
		int64_t until = l->prune_ns;
		if (l->failure[0] && l->probe_ns < until)
			until = l->probe_ns;
		if (n > 0 && l->oldest_ns + COMMIT_NS < until)
			until = l->oldest_ns + COMMIT_NS;
		ig_wait_until(&l->changed, &l->lock, until);
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

/* ---- public ------------------------------------------------------------------------------------ */

/* Free everything except the thread and its lock. */
static void release(struct ig_ledger *l)
{
	close_database(l);
	free(l->path);
	free(l->ring);
	free(l);
}

/* The days in nanoseconds must fit an int64_t. */
static uint32_t clamp_days(uint32_t days)
{
	return days < MAX_RETENTION_DAYS ? days : MAX_RETENTION_DAYS;
}

/* The disk is full: start without a database. */
static void begin_failing(struct ig_ledger *l, const struct ig_error *err)
{
	close_database(l);
	snprintf(l->failure, sizeof l->failure, "%s", sqlite3_errstr(SQLITE_FULL));
	ig_log_error("%s; no row is written until there is space", err->text);
	l->said = true;
	if (l->failing)
		l->failing(l->ctx, true);
}

int ig_ledger_open(const struct ig_ledger_options *o, struct ig_ledger **out, struct ig_error *err)
{
	struct ig_ledger *l;
	int rc;

	if (!o->path || !*o->path)
		return ig_fail(err, -EINVAL, "ledger: no path");
	if (o->queue == 0 || o->queue > (1u << 20))
		return ig_fail(err, -EINVAL, "ledger %s: a queue cannot have %u rows", o->path,
			       o->queue);
	l = calloc(1, sizeof *l);
	if (!l)
		return ig_fail(err, -ENOMEM, "ledger %s: out of memory", o->path);
	l->file.lock_fd = -1;
	l->cap = o->queue;
	l->dropped = o->dropped;
	l->failing = o->failing;
	l->ctx = o->ctx;
	l->path = strdup(o->path);
	l->trigger = l->cap / 2 < COMMIT_ROWS ? (l->cap + 1) / 2 : COMMIT_ROWS;
	atomic_init(&l->retention_days, clamp_days(o->retention_days));
	/* calloc: the ring's pages take memory only when rows arrive */
	l->ring = calloc(l->cap, sizeof *l->ring);
	if (!l->ring || !l->path) {
		rc = ig_fail(err, -ENOMEM, "ledger %s: out of memory", o->path);
		goto fail;
	}
	rc = open_database(l, err);
	if (rc == -ENOSPC)
		begin_failing(l, err);
	else if (rc)
		goto fail;
	rc = ig_lock_init(&l->lock, &l->changed);
	if (rc) {
		ig_fail(err, rc, "ledger %s: no lock: %s", l->path, strerror(-rc));
		goto fail;
	}
	rc = ig_start_thread(&l->thread, writer, l);
	if (rc) {
		ig_fail(err, rc, "ledger %s: no thread: %s", l->path, strerror(-rc));
		pthread_cond_destroy(&l->changed);
		pthread_mutex_destroy(&l->lock);
		goto fail;
	}
	*out = l;
	return 0;
fail:
	release(l);
	return rc;
}

void ig_ledger_put(struct ig_ledger *l, const struct ig_ledger_row *row)
{
	bool ok = false;

	pthread_mutex_lock(&l->lock);
	uint64_t n = l->head - l->tail;
	if (n < l->cap) {
		l->ring[l->head % l->cap] = *row;
		l->head++;
		n++;
		if (n == 1)
			l->oldest_ns = ig_now_ns();
		/* the first row sets the writer's deadline, the trigger's row starts it */
		if (n == 1 || n == l->trigger)
			pthread_cond_signal(&l->changed);
		ok = true;
	}
	pthread_mutex_unlock(&l->lock);
	if (!ok)
		drop(l, 1);
}

void ig_ledger_set_retention(struct ig_ledger *l, uint32_t days)
{
	atomic_store_explicit(&l->retention_days, clamp_days(days), memory_order_relaxed);
	pthread_mutex_lock(&l->lock);
	l->prune_ns = 0;
	pthread_cond_signal(&l->changed);
	pthread_mutex_unlock(&l->lock);
}

bool ig_ledger_failure(struct ig_ledger *l, char *buf, size_t size)
{
	pthread_mutex_lock(&l->lock);
	snprintf(buf, size, "%s", l->failure);
	pthread_mutex_unlock(&l->lock);
	return buf[0] != 0;
}

void ig_ledger_close(struct ig_ledger *l)
{
	if (!l)
		return;
	pthread_mutex_lock(&l->lock);
	l->stop = true;
	pthread_cond_signal(&l->changed);
	pthread_mutex_unlock(&l->lock);
	pthread_join(l->thread, NULL);
	pthread_mutex_destroy(&l->lock);
	pthread_cond_destroy(&l->changed);
	release(l);
}
