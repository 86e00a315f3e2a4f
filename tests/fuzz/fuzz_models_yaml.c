/* fuzz_models_yaml.c: the list of known models, from any bytes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cli/download/catalog.h"
#include "cli/download/hub_repo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ig_catalog *c;
	struct ig_error err;

	if (ig_catalog_parse((const char *)data, size, "list", &c, &err))
		return 0;
	for (size_t i = 0; i < c->n_models; i++) {
		const struct ig_known_model *m = &c->models[i];
		/* what pull relies on */
		if (ig_catalog_find(c, m->name) != m)
			abort();
		if (m->hub) {
			if (!ig_hub_is_repo(m->hub) || !m->tags || m->file || m->n_sources)
				abort();
			continue;
		}
		if (strchr(m->file, '/') || m->file[0] == '.' || strlen(m->sha256) != 64 ||
		    !m->n_bytes || !m->n_sources || !m->license)
			abort();
	}
	ig_catalog_destroy(c);
	return 0;
}
