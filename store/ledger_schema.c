/*
 * ledger_schema.c: the ledger's schema and its migrations.  A version is never changed, only
 * followed by another.  Readers may count on the table and the views (docs/metrics.md).
 */
#include "store/ledger_private.h"

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

/* Views for people with any SQLite shell: sums by something, and the requests that failed. */
static void put_views_5(struct ig_strbuf *b)
{
	static const struct {
		const char *name, *value;
	} groups[] = {
		{ "hour", "strftime('%Y-%m-%d %H:00', received_ns / 1000000000, 'unixepoch')" },
		{ "day", "date(received_ns / 1000000000, 'unixepoch')" },
		{ "model", "model" },
		{ "key", "key" },
		{ "client", "client" },
	};

	for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
		ig_strbuf_printf(
			b,
			"CREATE VIEW requests_by_%s AS SELECT %s AS %s, count(*) AS requests,"
			" sum(finish IN ('error', 'refused')) AS errors,"
			" sum(finish = 'cancelled') AS cancelled,"
			" sum(prompt_tokens) AS prompt_tokens,"
			" sum(cached_tokens) AS cached_tokens,"
			" sum(output_tokens) AS output_tokens,"
			" round(avg(ttft_ms), 3) AS avg_ttft_ms, max(ttft_ms) AS max_ttft_ms,"
			" round(avg(total_ms), 3) AS avg_total_ms,"
			" datetime(max(received_ns) / 1000000000, 'unixepoch') AS last_request"
			" FROM requests GROUP BY 1;",
			groups[i].name, groups[i].value, groups[i].name);
	ig_strbuf_puts(b,
		       "CREATE VIEW requests_failed AS SELECT"
		       " datetime(received_ns / 1000000000, 'unixepoch') AS time, id, request_id,"
		       " model, endpoint, client, key, status, finish, error"
		       " FROM requests WHERE finish IN ('error', 'refused');");
}

/* Where the match in the prefix cache ended, and why. */
static void put_cache_6(struct ig_strbuf *b)
{
	ig_strbuf_puts(b, "ALTER TABLE requests ADD COLUMN cache_reason TEXT NOT NULL DEFAULT '';"
			  "ALTER TABLE requests ADD COLUMN cache_compared TEXT NOT NULL DEFAULT '';"
			  /* NULL: no prompt to compare with */
			  "ALTER TABLE requests ADD COLUMN cache_same_tokens INTEGER;"
			  "CREATE VIEW requests_cache AS SELECT"
			  " datetime(received_ns / 1000000000, 'unixepoch') AS time, id, model,"
			  " client, key, prompt_tokens, cached_tokens, cache_reason,"
			  " cache_same_tokens, cache_compared"
			  " FROM requests WHERE cache_reason != '';");
}

static void put_migration(struct ig_strbuf *b, int64_t version)
{
	if (version < 1)
		put_schema_1(b);
	if (version < 2) /* the id of the API key */
		ig_strbuf_puts(b, "ALTER TABLE requests ADD COLUMN key TEXT NOT NULL DEFAULT '';");
	if (version < 3) /* x-request-id */
		ig_strbuf_puts(b, "ALTER TABLE requests ADD COLUMN request_id TEXT NOT NULL "
				  "DEFAULT '';");
	if (version < 4)
		ig_strbuf_puts(b, "ALTER TABLE requests ADD COLUMN ignored TEXT NOT NULL "
				  "DEFAULT '';");
	if (version < 5)
		put_views_5(b);
	if (version < 6)
		put_cache_6(b);
	if (version < 7) /* smaller ones come first */
		ig_strbuf_puts(b, "ALTER TABLE requests ADD COLUMN priority INTEGER NOT NULL "
				  "DEFAULT 0;");
	if (version < 8) /* tokens that steps verified ahead, and those that were right */
		ig_strbuf_puts(b,
			       "ALTER TABLE requests ADD COLUMN draft_tokens INTEGER NOT NULL "
			       "DEFAULT 0;"
			       "ALTER TABLE requests ADD COLUMN accepted_tokens INTEGER NOT NULL "
			       "DEFAULT 0;");
	if (version < 9) /* read from kvcache.disk; rules of kvcache.normalize */
		ig_strbuf_puts(
			b, "ALTER TABLE requests ADD COLUMN restored_tokens INTEGER NOT NULL "
			   "DEFAULT 0;"
			   "ALTER TABLE requests ADD COLUMN normalized TEXT NOT NULL DEFAULT '';");
	if (version <
	    10) /* of draft_tokens and accepted_tokens the draft model's; what all saved */
		ig_strbuf_puts(
			b,
			"ALTER TABLE requests ADD COLUMN model_draft_tokens INTEGER NOT NULL "
			"DEFAULT 0;"
			"ALTER TABLE requests ADD COLUMN model_accepted_tokens INTEGER NOT NULL "
			"DEFAULT 0;"
			"ALTER TABLE requests ADD COLUMN draft_gain_ms REAL NOT NULL DEFAULT 0;");
	if (version < 11) /* of draft_tokens and accepted_tokens the model's own head's */
		ig_strbuf_puts(
			b, "ALTER TABLE requests ADD COLUMN mtp_draft_tokens INTEGER NOT NULL "
			   "DEFAULT 0;"
			   "ALTER TABLE requests ADD COLUMN mtp_accepted_tokens INTEGER NOT NULL "
			   "DEFAULT 0;");
}

const struct ig_database_kind ledger_kind = {
	.name = "ledger",
	.option = "ledger.path",
	.application_id = 0x494e474c, /* "INGL" */
	.version = 11,
	.put_migration = put_migration,
};
