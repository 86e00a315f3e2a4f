/* transport.c: loads the transport that the configuration names. */
#include "runtime/modules/modules_private.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

static int check(const struct ig_transport *t, const char *path, struct ig_error *err)
{
	if (!t)
		return ig_fail(err, -ENOEXEC, "transport %s: exports no ingot_transport", path);
	if (t->magic != IG_TRANSPORT_MAGIC || t->version != IG_TRANSPORT_VERSION ||
	    t->struct_size != sizeof *t)
		return ig_fail(err, -ENOEXEC, "transport %s: is of another version of Ingot", path);
	if (!t->name || !t->open || !t->close || !t->abort || !t->send || !t->probe ||
	    !t->receive || !t->done)
		return ig_fail(err, -ENOEXEC, "transport %s: is incomplete", path);
	return 0;
}

int ig_transport_load(char *const *folders, const char *name, const struct ig_transport **out,
		      struct ig_error *err)
{
	char path[PATH_MAX];
	void *handle;
	int rc;

	*out = NULL;
	for (; *folders; folders++) {
		if (snprintf(path, sizeof path, "%s/" MODULE_TRANSPORT "%s" MODULE_SUFFIX, *folders,
			     name) >= (int)sizeof path ||
		    access(path, F_OK) < 0)
			continue;
		if ((rc = modules_map(path, &handle, err)))
			return rc;
		const struct ig_transport *t = dlsym(handle, "ingot_transport");
		rc = check(t, path, err);
		*out = rc ? NULL : t;
		return rc;
	}
	return ig_fail(err, -ENOENT,
		       "no folder of modules has " MODULE_TRANSPORT "%s" MODULE_SUFFIX
		       ": this build has no such transport",
		       name);
}
