/*
 * fuzz_config.c: any bytes as a configuration.  What is accepted must be within
 * the bounds that the table promises, and must be equal to itself; what is refused
 * must say why, and where.
 */
#include "store/config_private.h"

#include <stdlib.h>
#include <string.h>

static void no_difference(void *ctx, const char *key, const char *was, const char *is,
			  bool reloadable)
{
	abort();
}

static void check(const struct ig_config *c)
{
	if (c->server.port > 65535 || c->scheduler.max_batch_tokens == 0 || c->ledger.queue == 0 ||
	    (c->kvcache.slab & (c->kvcache.slab - 1)) ||
	    (!*c->server.host && !*c->server.unix_socket) ||
	    !*c->server.tls_cert != !*c->server.tls_key || c->server.unix_socket_mode > 0777 ||
	    !c->modules.path[0] || c->n_models > CONFIG_MAX_MODELS)
		abort();
	for (size_t i = 0; i < c->n_models; i++) {
		if (!*c->models[i].name || c->models[i].path[0] != '/')
			abort();
		for (size_t j = 0; j < i; j++)
			if (!strcmp(c->models[i].name, c->models[j].name))
				abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ig_config *a = NULL, *b = NULL;
	struct ig_error err = { 0 };
	const char *text = (const char *)data;

	if (ig_config_parse(text, size, "/f/ingot.yaml", &a, &err)) {
		if (a || !err.code ||
		    (size <= CONFIG_MAX_BYTES && strncmp(err.text, "/f/ingot.yaml:", 14)))
			abort();
		return 0;
	}
	check(a);
	if (ig_config_parse(text, size, "/f/ingot.yaml", &b, &err))
		abort();
	ig_config_diff(a, b, no_difference, NULL);
	ig_config_destroy(a);
	ig_config_destroy(b);
	return 0;
}
