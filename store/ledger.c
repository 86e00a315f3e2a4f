/*
 * ledger.c: the writing side of the ledger; ledger_stats.c reads it.  Any thread puts rows into a
 * ring; one writer thread, which owns the SQLite connection, writes them.  The lock is held for
 * copies and counters only, never during a call of SQLite: rows stay in the ring until they are
 * committed.  The inter-token histogram is 24 integer columns instead of a blob: sum() adds them in
 * plain SQL, and a zero takes one byte of a row's header and none of its body.
 */
#include "store/ledger_private.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define MS ((int64_t)1000000)
#define COMMIT_ROWS 512
#define COMMIT_NS (500 * MS)
#define RETRY_NS (100 * MS) /* while another program has the write lock */
#define CLOSE_RETRIES 12    /* of those, before close drops the rows */
#define PRUNE_ROWS 500	    /* deleted in one transaction */
#define VACUUM_PAGES "128"  /* freed in one transaction */
#define PRUNE_NS (3600 * 1000 * MS)
#define LOG_NS (60 * 1000 * MS)
#define DAY_NS (86400 * 1000 * MS)
#define MAX_RETENTION_DAYS 36500

const float ig_itl_bounds_ms[IG_ITL_BUCKETS - 1] = {
	0.5f, 1,  2,  3,  4,  5,  6,   8,   10,	 12.5f, 16,   20,
	25,   32, 40, 50, 65, 80, 100, 150, 250, 500,	1000,
};

struct ig_ledger {
	char *path, *lock_path;
	int lock_fd;
	sqlite3 *db; /* the writer's, once it runs */
	sqlite3_stmt *insert, *amend;
	pthread_t thread;

	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	struct ig_ledger_row *ring; /* [cap]; rows from tail to head are full */
	uint64_t head, tail;	    /* never wrap */
	uint32_t cap, trigger;	    /* trigger: rows at which the writer starts at once */
	int64_t oldest_ns;	    /* arrival of the oldest row not tried in a batch */
	int64_t prune_ns;	    /* next search for old rows */
	bool stop;

	void (*dropped)(void *ctx, uint64_t n); /* may be NULL */
	void *dropped_ctx;
	_Atomic uint32_t retention_days;
	int64_t logged_ns; /* the writer's: time of the last logged failure */
	uint64_t unlogged; /* the writer's: dropped rows since then */
};

int ig_itl_bucket(double ms)
{
	int i = 0;

	while (i < IG_ITL_BUCKETS - 1 && ms > (double)ig_itl_bounds_ms[i])
		i++;
	return i;
}

/* ---- SQLite ---------------------------------------------------------------------------- */

int ledger_fail(sqlite3 *db, int code, const char *path, const char *what, struct ig_error *err)
{
	int rc;

	switch (code & 0xff) {
	case SQLITE_BUSY:
	case SQLITE_LOCKED: rc = -EBUSY; break;
	case SQLITE_FULL: rc = -ENOSPC; break;
	case SQLITE_NOMEM: rc = -ENOMEM; break;
	case SQLITE_CANTOPEN:
	case SQLITE_PERM:
	case SQLITE_READONLY: rc = -EACCES; break;
	case SQLITE_NOTADB:
	case SQLITE_CORRUPT: rc = -EINVAL; break;
	default: rc = -EIO;
	}
	return ig_fail(err, rc, "ledger %s: %s: %s", path, what,
		       db ? sqlite3_errmsg(db) : sqlite3_errstr(code));
}

int ledger_number(sqlite3 *db, const char *sql, int64_t *out)
{
	sqlite3_stmt *st = NULL;
	int code = sqlite3_prepare_v2(db, sql, -1, &st, NULL);

	if (code == SQLITE_OK)
		code = sqlite3_step(st);
	if (code == SQLITE_ROW)
		*out = sqlite3_column_int64(st, 0);
	sqlite3_finalize(st);
	return code == SQLITE_ROW ? SQLITE_OK : code == SQLITE_DONE ? SQLITE_ERROR : code;
}

/* Run SQL without a result; an error's text begins with what. */
static int execute(sqlite3 *db, const char *path, const char *sql, const char *what,
		   struct ig_error *err)
{
	int code = sqlite3_exec(db, sql, NULL, NULL, NULL);

	return code == SQLITE_OK ? 0 : ledger_fail(db, code, path, what, err);
}

int ledger_check_file(sqlite3 *db, const char *path, int64_t *version, struct ig_error *err)
{
	int64_t application = 0, n_tables = 0;
	int code = ledger_number(db, "PRAGMA user_version", version);

	if (code == SQLITE_OK)
		code = ledger_number(db, "PRAGMA application_id", &application);
	if (code == SQLITE_OK)
		code = ledger_number(db, "SELECT count(*) FROM sqlite_master", &n_tables);
	if (code != SQLITE_OK)
		return ledger_fail(db, code, path, "cannot be read", err);
	if (*version == 0 && n_tables == 0)
		return 0;
	if (application != LEDGER_APPLICATION_ID || *version <= 0)
		return ig_fail(err, -EINVAL,
			       "ledger %s: is a database of another program; name another file in "
			       "ledger.path",
			       path);
	if (*version > LEDGER_VERSION)
		return ig_fail(
			err, -EINVAL,
			"ledger %s: has schema version %lld, and this program knows versions "
			"up to %d; run a newer ingot, or name another file in ledger.path",
			path, (long long)*version, LEDGER_VERSION);
	return 0;
}

/* From user_version 0 to 1. */
static void put_schema_1(struct ig_strbuf *b)
{
	ig_strbuf_puts(b, "CREATE TABLE requests ("
			  " row INTEGER PRIMARY KEY,"
			  " id TEXT NOT NULL,"
			  " received_ns INTEGER NOT NULL," /* since 1970 */
			  " model TEXT NOT NULL,"
			  " endpoint TEXT NOT NULL,"
			  " client TEXT NOT NULL,"
			  " status INTEGER NOT NULL,"
			  " finish TEXT NOT NULL,"
			  " cancel_reason TEXT NOT NULL,"
			  " error TEXT NOT NULL,"
			  " prompt_tokens INTEGER NOT NULL,"
			  " cached_tokens INTEGER NOT NULL,"
			  " output_tokens INTEGER NOT NULL,"
			  " queue_ms REAL," /* NULL: the request never got so far */
			  " prefill_ms REAL,"
			  " decode_ms REAL,"
			  " ttft_ms REAL,"
			  " total_ms REAL");
	for (int i = 0; i < IG_ITL_BUCKETS; i++)
		ig_strbuf_printf(b, ", itl_%d INTEGER NOT NULL DEFAULT 0", i);
	ig_strbuf_puts(b, ") STRICT;"
			  "CREATE INDEX requests_received ON requests (received_ns);");
}

/* Migrate the file from version to LEDGER_VERSION, in one transaction. */
static int migrate(struct ig_ledger *l, int64_t version, struct ig_error *err)
{
	struct ig_strbuf b = { 0 };
	int rc;

	if (version == LEDGER_VERSION)
		return 0;
	ig_strbuf_puts(&b, "BEGIN EXCLUSIVE;");
	if (version < 1)
		put_schema_1(&b);
	if (version < 2) /* the id of the API key */
		ig_strbuf_puts(&b, "ALTER TABLE requests ADD COLUMN key TEXT NOT NULL DEFAULT '';");
	if (version < 3) /* x-request-id */
		ig_strbuf_puts(&b, "ALTER TABLE requests ADD COLUMN request_id TEXT NOT NULL "
				   "DEFAULT '';");
	if (version < 4)
		ig_strbuf_puts(&b, "ALTER TABLE requests ADD COLUMN ignored TEXT NOT NULL "
				   "DEFAULT '';");
	ig_strbuf_printf(&b, "PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT;",
			 LEDGER_APPLICATION_ID, LEDGER_VERSION);
	rc = ig_strbuf_ok(&b) ? execute(l->db, l->path, b.data, "cannot be set up", err) :
				ig_fail(err, -ENOMEM, "ledger %s: out of memory", l->path);
	if (rc)
		sqlite3_exec(l->db, "ROLLBACK", NULL, NULL, NULL);
	ig_strbuf_finish(&b);
	return rc;
}

static int prepare_insert(struct ig_ledger *l, struct ig_error *err)
{
	struct ig_strbuf b = { 0 };
	int code = SQLITE_NOMEM;

	ig_strbuf_puts(
		&b,
		"INSERT INTO requests (id, received_ns, model, endpoint, client, status, "
		"finish, cancel_reason, error, prompt_tokens, cached_tokens, "
		"output_tokens, queue_ms, prefill_ms, decode_ms, ttft_ms, total_ms, key, request_id, "
		"ignored");
	for (int i = 0; i < IG_ITL_BUCKETS; i++)
		ig_strbuf_printf(&b, ", itl_%d", i);
	ig_strbuf_puts(&b, ") VALUES (?");
	for (int i = 1; i < 20 + IG_ITL_BUCKETS; i++)
		ig_strbuf_puts(&b, ",?");
	ig_strbuf_puts(&b, ")");
	if (ig_strbuf_ok(&b))
		code = sqlite3_prepare_v3(l->db, b.data, -1, SQLITE_PREPARE_PERSISTENT, &l->insert,
					  NULL);
	ig_strbuf_finish(&b);
	/* a note follows its row closely */
	if (code == SQLITE_OK)
		code = sqlite3_prepare_v3(
			l->db,
			"UPDATE requests SET error = ? WHERE id = ? AND error = '' "
			"AND row > (SELECT max(row) FROM requests) - 1000",
			-1, SQLITE_PREPARE_PERSISTENT, &l->amend, NULL);
	return code == SQLITE_OK ? 0 : ledger_fail(l->db, code, l->path, "cannot be written", err);
}

static int set_wal(struct ig_ledger *l, struct ig_error *err)
{
	sqlite3_stmt *st = NULL;
	const char *mode;
	int rc = 0, code = sqlite3_prepare_v2(l->db, "PRAGMA journal_mode = WAL", -1, &st, NULL);

	if (code == SQLITE_OK)
		code = sqlite3_step(st);
	if (code != SQLITE_ROW) {
		rc = ledger_fail(l->db, code, l->path, "cannot be written", err);
	} else {
		mode = (const char *)sqlite3_column_text(st, 0);
		if (!mode || strcmp(mode, "wal"))
			rc = ig_fail(err, -EIO,
				     "ledger %s: the file system does not allow write-ahead "
				     "logging (journal mode is %s)",
				     l->path, mode ? mode : "unknown");
	}
	sqlite3_finalize(st);
	return rc;
}

static int open_database(struct ig_ledger *l, struct ig_error *err)
{
	int64_t version = 0;
	int code, rc, fd;

	/* Created here and not by SQLite, so that only the owner may read it. */
	fd = open(l->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return ig_fail(err, -errno, "ledger %s: cannot be opened for writing: %s", l->path,
			       strerror(errno));
	close(fd);
	code = sqlite3_open_v2(l->path, &l->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
	if (code != SQLITE_OK)
		return ledger_fail(l->db, code, l->path, "cannot be opened for writing", err);
	sqlite3_busy_timeout(l->db, 2000);
	/* auto_vacuum only works while there is no table, and before WAL writes the first page. */
	if ((rc = ledger_check_file(l->db, l->path, &version, err)) ||
	    (rc = execute(l->db, l->path, "PRAGMA auto_vacuum = INCREMENTAL", "cannot be set up",
			  err)) ||
	    (rc = set_wal(l, err)) ||
	    (rc = execute(l->db, l->path,
			  "PRAGMA synchronous = NORMAL; PRAGMA journal_size_limit = 16777216;",
			  "cannot be set up", err)) ||
	    (rc = migrate(l, version, err)))
		return rc;
	/* From here on the writer's own loop waits for locks of other programs. */
	sqlite3_busy_timeout(l->db, 50);
	return prepare_insert(l, err);
}

/* ---- the lock ------------------------------------------------------------------------ */

/* Only one daemon may write a ledger.  The lock file is never removed: otherwise two others could
 * lock two files of the same name. */
static int take_lock(struct ig_ledger *l, struct ig_error *err)
{
	char text[32] = "";
	long pid;

	l->lock_fd = open(l->lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (l->lock_fd < 0)
		return ig_fail(err, -errno, "ledger %s: cannot open %s: %s", l->path, l->lock_path,
			       strerror(errno));
	if (flock(l->lock_fd, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK)
			return ig_fail(err, -errno, "ledger %s: cannot lock %s: %s", l->path,
				       l->lock_path, strerror(errno));
		ssize_t n = pread(l->lock_fd, text, sizeof text - 1, 0);
		pid = n > 0 ? strtol(text, NULL, 10) : 0;
		text[0] = 0;
		if (pid > 0)
			snprintf(text, sizeof text, " (process %ld)", pid);
		return ig_fail(
			err, -EBUSY,
			"ledger %s: another daemon%s writes to it; stop it, or give this one "
			"another ledger.path",
			l->path, text);
	}
	int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
	/* The number is for the message above only; the lock works without it. */
	if (ftruncate(l->lock_fd, 0) || pwrite(l->lock_fd, text, (size_t)n, 0) != n)
		ig_log_debug("ledger %s: cannot write the process number to %s", l->path,
			     l->lock_path);
	return 0;
}

/* ---- the writer's thread -------------------------------------------------------------------- */

/* Log a failure, at most once a minute. */
static void log_failure(struct ig_ledger *l, int code, const char *what, uint64_t n_rows)
{
	int64_t now = ig_now_ns();

	l->unlogged += n_rows;
	if (l->logged_ns && now - l->logged_ns < LOG_NS)
		return;
	/* Not sqlite3_errmsg, which after a rollback describes the rollback. */
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
	for (int b = 0; b < IG_ITL_BUCKETS; b++)
		sqlite3_bind_int64(st, i++, r->itl[b]);
	code = sqlite3_step(st);
	sqlite3_reset(st);
	/* A value whose bind failed is NULL, which NOT NULL refuses: the step's result covers the
	 * binds too. */
	return code == SQLITE_DONE ? SQLITE_OK : code;
}

/* Write n rows from tail on, in one transaction. */
static int write_batch(struct ig_ledger *l, uint64_t tail, uint64_t n)
{
	int code = sqlite3_exec(l->db, "BEGIN IMMEDIATE", NULL, NULL, NULL);

	if (code != SQLITE_OK)
		return code;
	for (uint64_t i = 0; i < n && code == SQLITE_OK; i++)
		code = insert_row(l, &l->ring[(tail + i) % l->cap]);
	if (code == SQLITE_OK)
		code = sqlite3_exec(l->db, "COMMIT", NULL, NULL, NULL);
	/* SQLite rolls some failures back itself. */
	if (code != SQLITE_OK && !sqlite3_get_autocommit(l->db))
		sqlite3_exec(l->db, "ROLLBACK", NULL, NULL, NULL);
	return code;
}

/* Delete some old rows, then free some pages.  Nanoseconds until the next call: 0 while more is
 * left. */
static int64_t prune(struct ig_ledger *l)
{
	int64_t days = atomic_load_explicit(&l->retention_days, memory_order_relaxed), n_free = 0;
	int code = SQLITE_OK, n_deleted = 0;
	char sql[256];

	if (days > 0) {
		int64_t before = ig_wall_ns() - days * DAY_NS;
		snprintf(sql, sizeof sql,
			 "DELETE FROM requests WHERE row IN (SELECT row FROM requests "
			 "WHERE received_ns < %lld ORDER BY received_ns LIMIT %d)",
			 (long long)before, PRUNE_ROWS);
		code = sqlite3_exec(l->db, sql, NULL, NULL, NULL);
		n_deleted = sqlite3_changes(l->db);
	}
	if (code == SQLITE_OK && n_deleted == PRUNE_ROWS)
		return 0;
	if (code == SQLITE_OK)
		code = sqlite3_exec(l->db, "PRAGMA incremental_vacuum(" VACUUM_PAGES ")", NULL,
				    NULL, NULL);
	if (code == SQLITE_OK)
		code = ledger_number(l->db, "PRAGMA freelist_count", &n_free);
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
		l->dropped(l->dropped_ctx, n);
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
	code = write_batch(l, tail, n);
	if (code != SQLITE_OK && (code != SQLITE_BUSY || give_up)) {
		drop(l, n);
		log_failure(l, code, "cannot be written", n);
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

#ifdef __APPLE__
	pthread_setname_np("ledger");
#else
	pthread_setname_np(pthread_self(), "ledger");
#endif
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
	sqlite3_finalize(l->insert);
	sqlite3_finalize(l->amend);
	sqlite3_close(l->db);
	if (l->lock_fd >= 0)
		close(l->lock_fd); /* unlocks */
	free(l->ring);
	free(l->lock_path);
	free(l->path);
	free(l);
}

/* The thread starts with all signals blocked: they are for the main thread. */
static int start_thread(struct ig_ledger *l)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&l->thread, NULL, writer, l);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -rc;
}

/* The days in nanoseconds must fit an int64_t. */
static uint32_t clamp_days(uint32_t days)
{
	return days < MAX_RETENTION_DAYS ? days : MAX_RETENTION_DAYS;
}

int ig_ledger_open(const struct ig_ledger_options *o, struct ig_ledger **out, struct ig_error *err)
{
	struct ig_ledger *l;
	struct ig_strbuf b = { 0 };
	int rc;

	if (!o->path || !*o->path)
		return ig_fail(err, -EINVAL, "ledger: no path");
	if (o->queue == 0 || o->queue > (1u << 20))
		return ig_fail(err, -EINVAL, "ledger %s: a queue cannot have %u rows", o->path,
			       o->queue);
	l = calloc(1, sizeof *l);
	if (!l)
		return ig_fail(err, -ENOMEM, "ledger %s: out of memory", o->path);
	l->lock_fd = -1;
	l->cap = o->queue;
	l->dropped = o->dropped;
	l->dropped_ctx = o->ctx;
	l->trigger = l->cap / 2 < COMMIT_ROWS ? (l->cap + 1) / 2 : COMMIT_ROWS;
	atomic_init(&l->retention_days, clamp_days(o->retention_days));
	ig_strbuf_printf(&b, "%s.lock", o->path);
	l->lock_path = ig_strbuf_steal(&b);
	ig_strbuf_finish(&b);
	l->path = strdup(o->path);
	/* calloc: the ring's pages take memory only when rows arrive */
	l->ring = calloc(l->cap, sizeof *l->ring);
	if (!l->path || !l->lock_path || !l->ring) {
		rc = ig_fail(err, -ENOMEM, "ledger %s: out of memory", o->path);
		goto fail;
	}
	if ((rc = ig_make_folders_above(l->path, 0700, err)) || (rc = take_lock(l, err)) ||
	    (rc = open_database(l, err)))
		goto fail;
	rc = ig_lock_init(&l->lock, &l->changed);
	if (rc) {
		ig_fail(err, rc, "ledger %s: no lock: %s", l->path, strerror(-rc));
		goto fail;
	}
	rc = start_thread(l);
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
