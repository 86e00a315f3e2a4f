/* claims_module.c: a module whose one architecture, NAME, claims every file that says
 * general.architecture "anything". */
#include <ingot/arch.h>

#include <errno.h>
#include <string.h>

static int read_params(const struct ig_host *host, const struct ig_meta *meta, void *params,
		       struct ig_model_info *info, struct ig_error *err)
{
	return ig_fail(err, -ERANGE, "read by " NAME);
}

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	return 0;
}

static int claims(const struct ig_host *host, const struct ig_meta *meta)
{
	const char *s;
	size_t len;

	return !host->meta_str(meta, "general.architecture", &s, &len, NULL) && len == 8 &&
	       !memcmp(s, "anything", len);
}

static const struct ig_arch arch = {
	.struct_size = sizeof arch,
	.name = "arch-" NAME,
	.read_params = read_params,
	.record = record,
	.claims = claims,
};
static const struct ig_arch *const archs[] = { &arch, NULL };

const struct ig_module ingot_module = {
	.head = IG_MODULE_HEAD,
	.name = "module-" NAME,
	.version = "1",
	.archs = archs,
};
