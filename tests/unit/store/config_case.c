/* config_case.c: see config_case.h. */
#include "support.h"

#include "config_case.h"

const struct config_value config_case_others[] = {
	{ "server.host", "0.0.0.0", "0.0.0.0" },
	{ "server.port", "0", "0" },
	{ "server.also_listen", "11434", "11434" },
	{ "server.max_connections", "7", "7" },
	{ "server.max_body", "1MiB", "1MiB" },
	{ "server.max_header", "8192", "8KiB" },
	{ "server.client_buffer", "1 MiB", "1MiB" },
	{ "server.slow_client_timeout", "1500ms", "1500ms" },
	{ "server.keepalive_interval", "250ms", "250ms" },
	{ "server.model_wait", "0", "0s" },
	{ "server.model_id_prefix", "claude-", "claude-" },
	{ "server.watch_config", "false", "false" },
	{ "server.drain_timeout", "2m", "2m" },
	{ "server.allowed_hosts", "[ingot.lan, other.lan]", "[\"ingot.lan\", \"other.lan\"]" },
	{ "server.allowed_origins", "[\"https://chat.example\"]", "[\"https://chat.example\"]" },
	{ "server.unix_socket", "ingot.sock", "/etc/x/ingot.sock" },
	{ "server.unix_socket_mode", "660", "0660" },
	{ "server.tls_cert", "c.pem", "/etc/x/c.pem", "tls_key: k.pem" },
	{ "server.tls_key", "k.pem", "/etc/x/k.pem", "tls_cert: c.pem" },
	{ "server.keys_file", "keys", "/etc/x/keys" },
	{ "server.keys_command", "bin/keys", "/etc/x/bin/keys" },
	{ "server.unknown_parameters", "refuse", "refuse" },
	{ "server.prep_threads", "16", "16" },
	{ "server.open_metrics", "true", "true" },
	{ "server.allow_anonymous", "true", "true" },
	{ "tools.fallback", "refuse", "refuse" },
	{ "limits.max_concurrent", "4", "4" },
	{ "limits.requests_per_minute", "60", "60" },
	{ "limits.tokens_per_minute", "100000", "100000" },
	{ "responses.max_stored", "10", "10" },
	{ "responses.max_stored_bytes", "1MiB", "1MiB" },
	{ "responses.max_stored_per_lane", "3", "3" },
	{ "responses.persist", "false", "false" },
	{ "responses.path", "r.db", "/etc/x/r.db" },
	{ "runtime.driver", "metal", "metal" },
	{ "runtime.devices", "[1, 0]", "[\"1\", \"0\"]" },
	{ "runtime.transport", "mpi", "mpi" },
	{ "runtime.transport_timeout", "5s", "5s" },
	{ "runtime.isa", "avx2", "avx2" },
	{ "runtime.threads", "3", "3" },
	{ "runtime.activations", "f32", "f32" },
	{ "runtime.experts", "mapped", "mapped" },
	{ "runtime.repack", "never", "never" },
	{ "runtime.tensor_units", "never", "never" },
	{ "runtime.packed_cache", "packed", "/etc/x/packed" },
	{ "runtime.packed_cache_size", "40GiB", "40GiB" },
	{ "runtime.run_ahead", "on", "on" },
	{ "runtime.strict", "true", "true" },
	{ "runtime.keep_wired", "0", "0s" },
	{ "memory.budget", "2GB", "2GB" },
	{ "kvcache.service", "other", "other" },
	{ "kvcache.arena", "64MiB", "64MiB" },
	{ "kvcache.slab", "65536", "64KiB" },
	{ "kvcache.dtype", "q8_0/f16", "q8_0/f16" },
	{ "kvcache.prefix_cache", "false", "false" },
	{ "kvcache.share", "all", "all" },
	{ "kvcache.disk", "kv", "/etc/x/kv" },
	{ "kvcache.disk_size", "5GiB", "5GiB" },
	{ "scheduler.max_batch_tokens", "64", "64" },
	{ "scheduler.prefill_chunk", "7", "7" },
	{ "scheduler.prompt_share", "90", "90" },
	{ "scheduler.max_seqs", "1", "1" },
	{ "scheduler.max_queue", "8", "8" },
	{ "scheduler.retry_after", "1m", "1m" },
	{ "scheduler.max_output_tokens", "100", "100" },
	{ "scheduler.speculation", "off", "off" },
	{ "modules.path", "[a, /b]", "[\"/etc/x/a\", \"/b\"]" },
	{ "ledger.enabled", "false", "false" },
	{ "ledger.path", "x.db", "/etc/x/x.db" },
	{ "ledger.queue", "16", "16" },
	{ "ledger.retention_days", "0", "0" },
	{ "log.level", "debug", "debug" },
	{ "log.file", "./log/a.log", "/etc/x/log/a.log" },
	{ "models.folder", "m", "/etc/x/m" },
	{ "default_model", "some/model:v1.2-x_y", "some/model:v1.2-x_y" },
};

const size_t config_case_n_others = N_OF(config_case_others);

struct ig_config *config_case_parse(const char *text)
{
	struct ig_config *c = NULL;
	struct ig_error err = { 0 };

	if (ig_config_parse(text, strlen(text), "/etc/x/ingot.yaml", &c, &err))
		fail_msg("%s", err.text);
	return c;
}

char *config_case_format(const struct config_option *o, const void *base)
{
	struct ig_strbuf b = { 0 };

	config_format(o, base, &b);
	char *s = ig_strbuf_steal(&b);
	assert_non_null(s);
	return s;
}

void config_case_note(void *ctx, const char *key, const char *was, const char *is, bool reloads)
{
	struct config_seen *s = ctx;

	s->n++;
	if (s->want && strcmp(s->want, key))
		return;
	snprintf(s->key, sizeof s->key, "%s", key);
	snprintf(s->was, sizeof s->was, "%s", was);
	snprintf(s->is, sizeof s->is, "%s", is);
	s->reloadable = reloads;
}
