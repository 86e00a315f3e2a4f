/* fake_plan.c: modules, adapters and the plans of models, of fake_runtime.h: a model's path says what it has. */
#include "fake_files.h"
#include "fake_runtime.h"

#include "model/formats/adapter.h"
#include "runtime/driver.h"
#include "runtime/machines/link.h"
#include "runtime/machines/machines.h"
#include "runtime/modules/modules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

extern const struct ig_module ingot_module; /* kvcache, linked in */

const struct ig_arch *const *ig_modules_archs(const struct ig_modules *m) { return NULL; }

const struct ig_kvcache_service *ig_modules_kvcache(const struct ig_modules *m, const char *name)
{
	return strcmp(name, ingot_module.kvcache->name) ? NULL : ingot_module.kvcache;
}

void ig_modules_each(const struct ig_modules *m,
		     void (*each)(void *ctx, const char *name, const char *version,
				  const char *path),
		     void *ctx)
{
	each(ctx, "kvcache", "1.2.3", "/dev/null");
	each(ctx, "\"attention\"", "1.2.3", "/dev/null");
}

static const struct ig_arch fake_arch = { .struct_size = sizeof fake_arch, .name = "fake" };

int ig_adapter_open(const char *path, const struct ig_checkpoint *base,
		    const struct ig_arch *const *archs, struct ig_adapter **out,
		    struct ig_error *err)
{
	if (strstr(path, "bad"))
		return ig_fail(err, -EINVAL, "%s: tensor \"x\" is wrong", path);
	struct ig_adapter *a = calloc(1, sizeof *a);
	if (a)
		a->parts = calloc(1, sizeof *a->parts);
	if (!a || !a->parts) {
		free(a);
		return fake_no_memory(err);
	}
	a->n_parts = 1; /* whose name tells adapters apart */
	a->parts->scale = 1;
	snprintf(a->parts->weight, sizeof a->parts->weight, "%s", path);
	*out = a;
	return 0;
}

void ig_adapter_close(struct ig_adapter *a)
{
	if (a)
		free(a->parts);
	free(a);
}

int ig_plan_record_adapted(const struct ig_modules *m, const struct ig_checkpoint *file,
			   const struct ig_plan_adapter *adapters, uint32_t n_adapters,
			   struct ig_plan **out, struct ig_error *err)
{
	int rc = ig_plan_record(m, file, out, err);

	if (!rc)
		(*out)->n_adapters = n_adapters;
	return rc;
}

int ig_plan_record(const struct ig_modules *m, const struct ig_checkpoint *file,
		   struct ig_plan **out, struct ig_error *err)
{
	struct ig_plan *p;

	if (!strcmp(file->path, "noarch"))
		return ig_fail(err, -ENOTSUP, "architecture \"strange\" is not known; known: fake");
	p = calloc(1, sizeof *p);
	if (!p)
		return fake_no_memory(err);
	p->arch = &fake_arch;
	p->file = file;
	p->info.struct_size = sizeof p->info;
	p->info.n_vocab = strcmp(file->path, "wide") ? FAKE_LOGITS : FAKE_WIDE_LOGITS;
	p->info.n_context = fake.n_context ? fake.n_context : FAKE_CONTEXT;
	const char *kind = fake_own_kind(file->path);
	if (!strcmp(kind, "brief"))
		p->info.n_context = FAKE_BRIEF;
	p->info.n_groups = strcmp(kind, "groups") && strcmp(kind, "window") ? 1 : 2;
	p->info.groups[0] = (struct ig_cache_group){ sizeof p->info.groups[0], 2, 1, 8, 0 };
	p->info.groups[1] = (struct ig_cache_group){ sizeof p->info.groups[1], 1, 2, 24, 0 };
	if (!strcmp(kind, "window"))
		p->info.groups[1].window = FAKE_WINDOW;
	p->n_results = p->info.n_vocab;
	if (!strcmp(file->path, "texts")) {
		p->info.n_groups = 0;
		p->info.result = IG_RESULT_EMBEDDING;
		p->n_results = FAKE_COLUMNS;
	} else if (!strcmp(kind, "state")) {
		p->info.n_groups = 3;
		p->info.groups[1] = p->info.groups[2] = (struct ig_cache_group){
			.struct_size = sizeof p->info.groups[1],
			.n_layers = 2,
			.n_kv_heads = 2,
			.head_dim = 60,
			.kind = IG_CACHE_STATE,
		};
		p->info.groups[2].n_kv_heads = 1;
		p->info.groups[2].head_dim = 128;
	}
	*out = p;
	return 0;
}

int ig_plan_record_mtp(const struct ig_modules *m, const struct ig_checkpoint *file,
		       struct ig_plan **out, struct ig_error *err)
{
	*out = NULL;
	if (fake_has_head(file->path) && fake.head_is_broken)
		return ig_fail(err, -ENOENT, "tensor \"head\" is missing");
	int rc = ig_plan_record(m, file, out, err);
	if (!rc && fake_has_head(file->path)) {
		(*out)->info.n_mtp_layers = (*out)->first_mtp_node = 1;
		(*out)->info.groups[0].n_layers++;
	}
	return rc;
}

void ig_plan_destroy(struct ig_plan *p) { free(p); }

/* There is one machine here. */
int ig_transport_load(char *const *folders, const char *name, const struct ig_transport **out,
		      struct ig_error *err)
{
	return ig_fail(err, -ENOENT, "%s: there are no transports", name);
}

int ig_link_open(const struct ig_link_options *o, struct ig_link **out, struct ig_error *err)
{
	return -ENOTSUP;
}

int ig_machines_open(struct ig_driver *own, struct ig_link *link, uint32_t strict,
		     struct ig_driver **out, struct ig_error *err)
{
	return -ENOTSUP;
}

void ig_plan_left_out(const struct ig_plan *p, char *out, size_t size) { *out = 0; }
