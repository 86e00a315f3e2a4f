/*
 * write_reference.c: a tool of the build (`meson compile update-reference`), not installed: writes
 * etc/ingot.yaml, and the table between its marks in docs/configuration.md, from the table of
 * options.
 */
#include "base/file.h"
#include "runtime/modules/modules.h"
#include "store/config_private.h"

#include <stdlib.h>
#include <string.h>

static const struct ig_module *modules[IG_MAX_MODULES];
static size_t n_modules;

static int write_yaml(const char *path)
{
	FILE *f = fopen(path, "w");
	int rc = f ? ig_config_write_reference(f, modules, n_modules) : -1;

	if (f && fclose(f))
		rc = -1;
	return rc;
}

static int write_docs(const char *path)
{
	static const char begin[] = "<!-- options: begin -->\n", end[] = "<!-- options: end -->\n";
	struct ig_strbuf b = { 0 };
	const char *text = ig_read_file(path, SIZE_MAX / 2, &b, NULL) ? "" : ig_strbuf_text(&b);
	const char *from = strstr(text, begin), *to = from ? strstr(from, end) : NULL;
	FILE *f = to ? fopen(path, "w") : NULL;
	int rc = -1;

	if (f) {
		fwrite(text, 1, (size_t)(from - text) + strlen(begin), f);
		rc = config_write_table(f, modules, n_modules);
		fputs(to, f);
		if (fclose(f))
			rc = -1;
	}
	ig_strbuf_finish(&b);
	return rc;
}

int main(int argc, char **argv)
{
	struct ig_modules *registry;
	struct ig_error err = { 0 };

	if (argc < 3) {
		fprintf(stderr, "usage: write_reference ingot.yaml configuration.md [MODULE]...\n");
		return 2;
	}
	int rc = ig_modules_create(&registry, &err);
	for (int i = 3; i < argc && !rc; i++)
		rc = ig_modules_load(registry, argv[i], &err);
	if (rc) {
		fprintf(stderr, "write_reference: %s\n", err.text);
		return 1;
	}
	n_modules = ig_modules_list(registry, modules);
	if (write_yaml(argv[1]) || write_docs(argv[2])) {
		fprintf(stderr, "write_reference: cannot write %s or %s\n", argv[1], argv[2]);
		return 1;
	}
	ig_modules_destroy(registry);
	return 0;
}
