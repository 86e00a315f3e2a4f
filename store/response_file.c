/*
 * response_file.c: see response_file.h.  The loop appends operations to a list; the writer takes the
 * whole list, and writes it in one transaction, at once: what a client was told to be stored
 * survives a crash a few milliseconds later.  While writing fails operations are dropped.  The loop
 * frees them: jansson's json_decref looks at the count before it changes it atomically.
 */
#include "store/response_file.h"

#include "base/clock.h"
#include "base/inherit.h"
#include "base/lock.h"
#include "base/log.h"
#include "store/database.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define MS ((int64_t)1000000)
#define RETRY_NS (50 * MS)   /* while another program has the write lock */
#define PROBE_NS (2000 * MS) /* between attempts to write while it fails */
#define CLOSE_RETRIES 20

enum what { PUT, UNLIST, REMOVE, ERASE, CLEAR };

struct op {
	STAILQ_ENTRY(op) next;
	enum what what;
	char *id, *parent, *text; /* parent, text: may be NULL */
	uint64_t owner;
	bool listed;
	json_t *messages, *input, *output;
};

STAILQ_HEAD(ops, op);

struct ig_response_file {
	char *path;
	struct ig_database file; /* the writer's, once it runs; db NULL: could not be opened yet */
	sqlite3_stmt *statements[CLEAR + 1]; /* likewise; some are NULL */
	pthread_t thread;
	int64_t last_row; /* the reader's: what it has seen */
	bool predecessor; /* likewise: there may be more of its */

	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	struct ops ops, done; /* done: to be freed by the loop, which owns references to values */
	char failure[256];    /* why nothing can be written; "": it can */
	bool stop, lost;

	void (*failing)(void *ctx, bool failing); /* may be NULL */
	void *ctx;
	int64_t probe_ns; /* the writer's: next attempt while it fails */
};

/* ---- SQLite -------------------------------------------------------------------------------- */

static void put_migration(struct ig_strbuf *b, int64_t version)
{
	if (version < 1)
		ig_strbuf_puts(b, "CREATE TABLE responses ("
				  " row INTEGER PRIMARY KEY AUTOINCREMENT," /* parents first */
				  " id TEXT NOT NULL UNIQUE,"
				  " parent TEXT,"
				  " owner INTEGER NOT NULL,"
				  " listed INTEGER NOT NULL,"
				  " messages TEXT NOT NULL,"
				  " input TEXT NOT NULL,"
				  " output TEXT NOT NULL,"
				  " text TEXT NOT NULL"
				  ") STRICT;"
				  "CREATE INDEX responses_parent ON responses (parent);");
}

static const struct ig_database_kind kind = {
	.name = "stored responses",
	.option = "responses.path",
	.application_id = 0x494e4752, /* "INGR" */
	.version = 1,
	.put_migration = put_migration,
};

/* A daemon that hands over to its successor may still write: what is there stays, and what others
 * continue. */
static const char *const sql[CLEAR + 1] = {
	[PUT] = "INSERT OR IGNORE INTO responses"
		" (id, parent, owner, listed, messages, input, output, text)"
		" VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
	[UNLIST] = "UPDATE responses SET listed = 0, text = '' WHERE id = ?",
	[REMOVE] = "DELETE FROM responses WHERE id = ?1"
		   " AND NOT EXISTS (SELECT 1 FROM responses WHERE parent = ?1)",
	[CLEAR] = "DELETE FROM responses",
};

static int open_database(struct ig_response_file *f, struct ig_error *err)
{
	int code = SQLITE_OK, rc = ig_database_open(&f->file, &kind, f->path, err);

	if (rc)
		return rc;
	/* Zeros in place of what is deleted. */
	code = sqlite3_exec(f->file.db, "PRAGMA secure_delete = ON", NULL, NULL, NULL);
	for (int i = 0; i <= CLEAR && code == SQLITE_OK; i++)
		if (sql[i])
			code = sqlite3_prepare_v3(f->file.db, sql[i], -1, SQLITE_PREPARE_PERSISTENT,
						  &f->statements[i], NULL);
	return code == SQLITE_OK ?
		       0 :
		       ig_database_fail(&kind, f->file.db, code, f->path, "cannot be written", err);
}

static void close_database(struct ig_response_file *f)
{
	for (int i = 0; i <= CLEAR; i++) {
		sqlite3_finalize(f->statements[i]);
		f->statements[i] = NULL;
	}
	ig_database_close(&f->file);
}

/* A list as JSON; SQLite frees the text. */
static int bind_list(sqlite3_stmt *st, int i, const json_t *list)
{
	struct ig_strbuf b = { 0 };

	ig_json_put_value(&(struct ig_json_writer){ .out = &b }, NULL, list);
	char *text = ig_strbuf_steal(&b);
	ig_strbuf_finish(&b);
	return text ? sqlite3_bind_text(st, i, text, -1, free) : SQLITE_NOMEM;
}

static int bind_put(sqlite3_stmt *st, const struct op *op)
{
	int code = sqlite3_bind_text(st, 2, op->parent, -1, SQLITE_STATIC);

	if (code == SQLITE_OK)
		code = sqlite3_bind_int64(st, 3, (sqlite3_int64)op->owner);
	if (code == SQLITE_OK)
		code = sqlite3_bind_int(st, 4, op->listed);
	if (code == SQLITE_OK)
		code = bind_list(st, 5, op->messages);
	if (code == SQLITE_OK)
		code = bind_list(st, 6, op->input);
	if (code == SQLITE_OK)
		code = bind_list(st, 7, op->output);
	if (code == SQLITE_OK)
		code = sqlite3_bind_text(st, 8, op->text ? op->text : "", -1, SQLITE_STATIC);
	return code;
}

static int write_op(struct ig_response_file *f, const struct op *op)
{
	sqlite3_stmt *st = f->statements[op->what];
	int code = SQLITE_OK;

	if (op->id)
		code = sqlite3_bind_text(st, 1, op->id, -1, SQLITE_STATIC);
	if (code == SQLITE_OK && op->what == PUT)
		code = bind_put(st, op);
	if (code == SQLITE_OK)
		code = sqlite3_step(st);
	sqlite3_reset(st);
	sqlite3_clear_bindings(st);
	return code == SQLITE_DONE ? SQLITE_OK : code;
}

struct batch {
	struct ig_response_file *file;
	const struct ops *ops;
	bool erase;
};

static int write_ops(void *ctx)
{
	struct batch *b = ctx;
	const struct op *op;
	int code = SQLITE_OK;

	STAILQ_FOREACH(op, b->ops, next) {
		if (op->what == ERASE)
			b->erase = true;
		else if ((code = write_op(b->file, op)) != SQLITE_OK)
			break;
	}
	return code;
}

/* ---- the writer's thread -------------------------------------------------------------------- */

static void op_free(struct op *op)
{
	json_decref(op->messages);
	json_decref(op->input);
	json_decref(op->output);
	free(op->id);
	free(op->parent);
	free(op->text);
	free(op);
}

static void drop_ops(struct ops *ops)
{
	struct op *op;

	while ((op = STAILQ_FIRST(ops))) {
		STAILQ_REMOVE_HEAD(ops, next);
		op_free(op);
	}
}

/* Whether it can be written has been seen: why NULL, it can.  Without the lock. */
static void set_failure(struct ig_response_file *f, const char *why)
{
	pthread_mutex_lock(&f->lock);
	bool was = f->failure[0] != 0;
	snprintf(f->failure, sizeof f->failure, "%s", why ? why : "");
	if (why) {
		f->lost = true;
		STAILQ_CONCAT(&f->done, &f->ops);
	}
	pthread_mutex_unlock(&f->lock);
	f->probe_ns = ig_now_ns() + PROBE_NS;
	if (was == !!why)
		return;
	if (why)
		ig_log_error("%s %s: cannot be written: %s; until they can, a restart forgets them",
			     kind.name, f->path, why);
	else
		ig_log_info("%s %s: are written again", kind.name, f->path);
	if (f->failing)
		f->failing(f->ctx, !!why);
}

/* Open the database if ig_response_file_open could not. */
static int open_late(struct ig_response_file *f)
{
	struct ig_error err = { 0 };
	int rc = f->file.db ? 0 : open_database(f, &err);

	if (rc)
		close_database(f);
	return ig_database_code(rc);
}

/* While it fails: write something, to see whether that works again. */
static void probe(struct ig_response_file *f)
{
	int code = open_late(f);

	if (code == SQLITE_OK)
		code = ig_database_probe(&f->file);
	if (code == SQLITE_OK)
		set_failure(f, NULL);
	f->probe_ns = ig_now_ns() + PROBE_NS;
}

/* False: another program has locked the file, try again. */
static bool flush(struct ig_response_file *f, const struct ops *ops, bool give_up)
{
	struct batch b = { f, ops, false };
	int code = open_late(f);

	if (code == SQLITE_OK)
		code = ig_database_transact(f->file.db, write_ops, &b);
	if (code == SQLITE_BUSY && !give_up)
		return false;
	if (code != SQLITE_OK)
		set_failure(f, sqlite3_errstr(code));
	else if (b.erase) /* out of the log of writes, too; a reader may be in the way */
		sqlite3_exec(f->file.db,
			     "PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE)", NULL,
			     NULL, NULL);
	return true;
}

/* Write the operations that wait.  The caller holds the lock, which is released meanwhile. */
static void write_waiting(struct ig_response_file *f)
{
	struct ops ops = STAILQ_HEAD_INITIALIZER(ops);
	int n_retries = 0;

	STAILQ_CONCAT(&ops, &f->ops);
	for (bool done = false; !done;) {
		bool give_up = n_retries >= CLOSE_RETRIES;
		pthread_mutex_unlock(&f->lock);
		done = flush(f, &ops, give_up);
		pthread_mutex_lock(&f->lock);
		n_retries += f->stop;
		for (int64_t again = ig_now_ns() + RETRY_NS; !done && ig_now_ns() < again;)
			ig_wait_until(&f->changed, &f->lock, again);
	}
	STAILQ_CONCAT(&f->done, &ops);
}

static void *writer(void *arg)
{
	struct ig_response_file *f = arg;

	ig_name_thread("responses");
	pthread_mutex_lock(&f->lock);
	for (;;) {
		if (!STAILQ_EMPTY(&f->ops)) {
			write_waiting(f);
		} else if (f->stop) {
			break;
		} else if (f->failure[0] && ig_now_ns() >= f->probe_ns) {
			pthread_mutex_unlock(&f->lock);
			probe(f);
			pthread_mutex_lock(&f->lock);
		} else {
			ig_wait_until(&f->changed, &f->lock,
				      f->failure[0] ? f->probe_ns : INT64_MAX);
		}
	}
	pthread_mutex_unlock(&f->lock);
	return NULL;
}

/* ---- reading -------------------------------------------------------------------------------- */

static const char *column(sqlite3_stmt *st, int i)
{
	const unsigned char *text = sqlite3_column_text(st, i);

	return text ? (const char *)text : "";
}

/* A list of objects; NULL: it is none, or *rc becomes -ENOMEM. */
static json_t *read_list(sqlite3_stmt *st, int i, int *rc)
{
	const struct ig_json_limits limits = { .allow_nul = true };
	const char *text = column(st, i);
	json_t *list = NULL, *v;
	size_t k;

	if (ig_json_read(text, (size_t)sqlite3_column_bytes(st, i), &limits, &list, NULL) ==
	    -ENOMEM)
		*rc = -ENOMEM;
	bool good = json_is_array(list);
	json_array_foreach(list, k, v) good &= json_is_object(v);
	if (good)
		return list;
	json_decref(list);
	return NULL;
}

/* As each, and -EBADMSG for what can't be read. */
static int read_row(sqlite3_stmt *st, int (*each)(void *ctx, const struct ig_response_record *r),
		    void *ctx)
{
	int rc = 0;
	struct ig_response_record r = {
		.id = column(st, 1),
		.parent = sqlite3_column_type(st, 2) == SQLITE_NULL ? NULL : column(st, 2),
		.owner = (uint64_t)sqlite3_column_int64(st, 3),
		.listed = sqlite3_column_int(st, 4) != 0,
		.messages = read_list(st, 5, &rc),
		.input = read_list(st, 6, &rc),
		.output = read_list(st, 7, &rc),
		.text = column(st, 8),
	};

	/* a text that SQLite had no memory for reads as an empty one */
	if (sqlite3_errcode(sqlite3_db_handle(st)) == SQLITE_NOMEM)
		rc = -ENOMEM;
	if (!rc && !(r.messages && r.input && r.output && r.id[0])) {
		ig_log_warn("%s: '%.64s' cannot be read and is removed", kind.name, r.id);
		rc = -EBADMSG;
	}
	if (!rc)
		rc = each(ctx, &r);
	json_decref(r.messages);
	json_decref(r.input);
	json_decref(r.output);
	return rc;
}

int ig_response_file_read(struct ig_response_file *f,
			  int (*each)(void *ctx, const struct ig_response_record *r), void *ctx,
			  struct ig_error *err)
{
	char failure[sizeof f->failure];
	sqlite3_stmt *st = NULL;
	sqlite3 *db = NULL;
	int64_t version;

	if (ig_response_file_failure(f, failure, sizeof failure))
		return 0; /* there is nothing, and the log says why */
	int rc = ig_database_open_to_read(&kind, f->path, &db, &version, err);
	if (rc) {
		sqlite3_close(db);
		return rc;
	}
	int code = sqlite3_prepare_v2(
		db,
		"SELECT row, id, parent, owner, listed, messages, input, output, text"
		" FROM responses WHERE row > ? ORDER BY row",
		-1, &st, NULL);
	if (code == SQLITE_OK)
		code = sqlite3_bind_int64(st, 1, f->last_row);
	while (code == SQLITE_OK && (code = sqlite3_step(st)) == SQLITE_ROW) {
		rc = read_row(st, each, ctx);
		if (rc == -ENOMEM) {
			code = SQLITE_NOMEM;
			break;
		}
		f->last_row = sqlite3_column_int64(st, 0);
		if (rc)
			ig_response_file_remove(f, column(st, 1));
		code = SQLITE_OK;
		rc = 0;
	}
	sqlite3_finalize(st);
	if (code != SQLITE_DONE)
		rc = ig_database_fail(&kind, db, code, f->path, "cannot be read", err);
	sqlite3_close(db);
	return rc;
}

bool ig_response_file_has_news(struct ig_response_file *f)
{
	bool was = f->predecessor;

	f->predecessor = was && ig_inherit_predecessor();
	return was;
}

int ig_response_file_copy(const char *path, const char *to, int64_t *n, struct ig_error *err)
{
	return ig_database_copy(&kind, path, to, "SELECT count(*) FROM responses WHERE listed", n,
				err);
}

/* ---- the loop's side --------------------------------------------------------------------------- */

/* Without memory for it the file is behind, and all must be put again. */
static void append(struct ig_response_file *f, struct op *op)
{
	struct ops done = STAILQ_HEAD_INITIALIZER(done);

	pthread_mutex_lock(&f->lock);
	STAILQ_CONCAT(&done, &f->done);
	bool wanted = op && !f->failure[0];
	if (wanted)
		STAILQ_INSERT_TAIL(&f->ops, op, next);
	else
		f->lost = true;
	pthread_cond_signal(&f->changed);
	pthread_mutex_unlock(&f->lock);
	if (op && !wanted)
		op_free(op);
	drop_ops(&done);
}

static struct op *op_new(enum what what, const char *id)
{
	struct op *op = calloc(1, sizeof *op);

	if (!op)
		return NULL;
	op->what = what;
	op->id = id ? strdup(id) : NULL;
	if (!id || op->id)
		return op;
	op_free(op);
	return NULL;
}

void ig_response_file_put(struct ig_response_file *f, const struct ig_response_record *r)
{
	struct op *op = op_new(PUT, r->id);

	if (op) {
		op->owner = r->owner;
		op->listed = r->listed;
		op->parent = r->parent ? strdup(r->parent) : NULL;
		op->text = r->text ? strdup(r->text) : NULL;
		op->messages = json_incref(r->messages);
		op->input = json_incref(r->input);
		op->output = json_incref(r->output);
		if ((r->parent && !op->parent) || (r->text && !op->text)) {
			op_free(op);
			op = NULL;
		}
	}
	append(f, op);
}

void ig_response_file_unlist(struct ig_response_file *f, const char *id)
{
	append(f, op_new(UNLIST, id));
}

void ig_response_file_remove(struct ig_response_file *f, const char *id)
{
	append(f, op_new(REMOVE, id));
}

void ig_response_file_erase(struct ig_response_file *f) { append(f, op_new(ERASE, NULL)); }

bool ig_response_file_lost(struct ig_response_file *f)
{
	pthread_mutex_lock(&f->lock);
	bool lost = f->lost && !f->failure[0];
	if (lost) {
		f->lost = false;
		drop_ops(&f->ops);
	}
	pthread_mutex_unlock(&f->lock);
	if (lost)
		append(f, op_new(CLEAR, NULL));
	return lost;
}

bool ig_response_file_failure(struct ig_response_file *f, char *buf, size_t size)
{
	pthread_mutex_lock(&f->lock);
	snprintf(buf, size, "%s", f->failure);
	pthread_mutex_unlock(&f->lock);
	return buf[0] != 0;
}

/* ---- life ----------------------------------------------------------------------------------- */

static void release(struct ig_response_file *f)
{
	close_database(f);
	free(f->path);
	free(f);
}

int ig_response_file_open(const struct ig_response_file_options *o, struct ig_response_file **out,
			  struct ig_error *err)
{
	struct ig_response_file *f = calloc(1, sizeof *f);
	int rc;

	*out = NULL;
	if (!f)
		return ig_fail(err, -ENOMEM, "%s %s: out of memory", kind.name, o->path);
	f->file.lock_fd = -1;
	f->predecessor = ig_inherit_predecessor();
	f->failing = o->failing;
	f->ctx = o->ctx;
	STAILQ_INIT(&f->ops);
	STAILQ_INIT(&f->done);
	f->path = strdup(o->path);
	if (!f->path) {
		rc = ig_fail(err, -ENOMEM, "%s %s: out of memory", kind.name, o->path);
		goto fail;
	}
	rc = open_database(f, err);
	if (rc && rc != -ENOSPC)
		goto fail;
	bool full = rc == -ENOSPC;
	if (full)
		close_database(f);
	rc = ig_lock_init(&f->lock, &f->changed);
	if (rc) {
		ig_fail(err, rc, "%s %s: no lock: %s", kind.name, f->path, strerror(-rc));
		goto fail;
	}
	if (full)
		set_failure(f, sqlite3_errstr(SQLITE_FULL));
	rc = ig_start_thread(&f->thread, writer, f);
	if (rc) {
		ig_fail(err, rc, "%s %s: no thread: %s", kind.name, f->path, strerror(-rc));
		pthread_cond_destroy(&f->changed);
		pthread_mutex_destroy(&f->lock);
		goto fail;
	}
	*out = f;
	return 0;
fail:
	release(f);
	return rc;
}

void ig_response_file_close(struct ig_response_file *f)
{
	if (!f)
		return;
	pthread_mutex_lock(&f->lock);
	f->stop = true;
	pthread_cond_signal(&f->changed);
	pthread_mutex_unlock(&f->lock);
	pthread_join(f->thread, NULL);
	drop_ops(&f->ops);
	drop_ops(&f->done);
	pthread_mutex_destroy(&f->lock);
	pthread_cond_destroy(&f->changed);
	release(f);
}
