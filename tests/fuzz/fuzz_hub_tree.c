/* fuzz_hub_tree.c: the Hub's list of a repository's files, from any bytes, and what can be pulled. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cli/download/hub_repo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What pull relies on: local names stay in the models folder, and indices in the list. */
static void check(const struct ig_hub_repo *r, const struct ig_hub_choice *c)
{
	if (!c->n_files || !c->local[0] || c->local[0] == '.' || strchr(c->local, '/') ||
	    !c->name[0] || strlen(c->name) > 128)
		abort();
	for (size_t i = 0; i < c->n_files; i++) {
		if (c->files[i] >= r->n_files)
			abort();
		const struct ig_hub_file *f = &r->files[c->files[i]];
		if (f->path[0] == '/' || strstr(f->path, "../") ||
		    strlen(f->sha256) + strlen(f->sha1) < 40)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ig_hub_repo r = { .id = "them/model" };
	const struct ig_hub_choice *one;
	struct ig_hub_choices c = { 0 };
	struct ig_error err;

	if (!ig_hub_repo_parse_tree((const char *)data, size, &r, &err) &&
	    !ig_hub_choices_of(&r, &c, &err)) {
		for (size_t i = 0; i < c.n; i++)
			check(&r, &c.list[i]);
		if (!ig_hub_pick(&r, &c, "Q4_K_M", &one, &err))
			check(&r, one);
	}
	ig_hub_choices_finish(&c);
	ig_hub_repo_finish(&r);
	return 0;
}
