/*
 * doctor.c: `ingot doctor`: checks whether the daemon can serve on this machine.  Repeats the steps
 * of the daemon's start and continues after an error, so that all errors are shown at once.
 * Allocates neither weights nor cache, and writes nothing.  Here: configuration, driver and modules;
 * the other checks: doctor_machine.c, doctor_models.c, doctor_daemon.c.
 */
#include "cli/commands/doctor_private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/machine.h"
#include "cli/commands/command.h"
#include "cli/options.h"
#include "cli/term/text.h"

/* ---- configuration, driver, modules --------------------------------------------------- */

/* Load the modules and, if all were loaded, check their options in the configuration. */
static int load_modules(struct ig_doctor *d, struct ig_error *err)
{
	const struct ig_module *modules[IG_MAX_MODULES];

	if (ig_modules_create(&d->modules, &d->refusal) ||
	    ig_modules_load_folders(d->modules, d->config->modules.path, &d->refusal))
		return 0; /* check_modules reports it */
	return ig_config_check_modules(d->config, modules, ig_modules_list(d->modules, modules),
				       err);
}

static void check_config(struct ig_doctor *d, const char *path)
{
	struct ig_error err = { 0 };
	int rc = ig_config_load(path, &d->config, &err);

	if (rc == -ENOENT && !path) {
		NOTE(d, "configuration", "none is needed: all options have defaults", "%s",
		     err.text);
		rc = ig_config_load_or_defaults(path, &d->config, &err);
		rc = rc ? rc : load_modules(d, &err);
	} else if (!rc && !(rc = load_modules(d, &err))) {
		OK(d, "configuration", "%s: valid, %zu model%s", d->config->file,
		   d->config->n_entries, d->config->n_entries == 1 ? "" : "s");
	}
	if (!rc)
		return;
	WRONG(d, "configuration",
	      "correct it; modules, models and the ledger are checked after that", "%s", err.text);
	ig_config_destroy(d->config);
	d->config = NULL;
}

static void check_driver(struct ig_doctor *d)
{
	const struct ig_config *c = d->config;
	struct ig_driver_options o = { .isa = c->runtime.isa,
				       .n_threads = c->runtime.threads,
				       .activations = c->runtime.activations,
				       .experts = c->runtime.experts,
				       .strict = c->runtime.strict };
	struct ig_memory_facts memory = { .budget = c->memory.budget,
					  .machine = ig_machine_memory(),
					  .wired_limit_mb = ig_gpu_wired_limit_mb() };
	uint32_t devices[IG_CONFIG_DEVICES];
	struct ig_error err = { 0 };

	o.devices = devices;
	o.n_devices = ig_config_devices(c, devices, &o.all_devices);
	if (ig_driver_open(c->runtime.driver, &o, &d->driver, &err)) {
		WRONG(d, "driver",
		      "set runtime.driver and runtime.isa to auto, or to values that this machine has",
		      "%s", err.text);
		return;
	}
	OK(d, "driver", "%s", ig_driver_describe(d->driver));
	memory.device = ig_driver_memory(d->driver);
	memory.unified = ig_driver_is_unified(d->driver);
	ig_findings_memory(&d->found, &memory);
}

static void on_module(void *ctx, const char *name, const char *version, const char *path)
{
	char what[160];

	snprintf(what, sizeof what, "module %.140s", name);
	OK((struct ig_doctor *)ctx, what, "version %s, %s", version, path);
}

static void check_modules(struct ig_doctor *d)
{
	struct ig_error err = d->refusal;
	char archs[512] = "", folders[512] = "";
	size_t n = 0;

	if (!d->modules) {
		WRONG(d, "modules", NULL, "%s", err.text);
		return;
	}
	for (char **p = d->config->modules.path; p && *p && n < sizeof folders; p++)
		n += (size_t)snprintf(folders + n, sizeof folders - n, "%s%s", n ? ", " : "", *p);
	int rc = err.code ? err.code :
			    ig_modules_start(d->modules, d->config->modules.settings,
					     d->config->modules.n_settings, &err);
	ig_modules_each(d->modules, on_module, d);
	if (rc)
		WRONG(d, "modules",
		      "the daemon would not start; install modules of this version, or correct modules.path",
		      "%s", err.text);
	if (!ig_modules_kvcache(d->modules, d->config->kvcache.service))
		WRONG(d, "kv cache",
		      "set kvcache.service to one that a module provides, or modules.path to the folder of kvcache.so",
		      "no module in %s provides the service '%s' (kvcache.service)",
		      folders[0] ? folders : "(no folder)", d->config->kvcache.service);
	ig_modules_arch_names(d->modules, archs, sizeof archs);
	if (archs[0] && strncmp(archs, "none", 4))
		OK(d, "architectures", "%s", archs);
	else
		WRONG(d, "architectures", "set modules.path to the folder of attention.so",
		      "no module in %s provides one", folders[0] ? folders : "(no folder)");
}

int ig_doctor_main(int argc, char **argv)
{
	struct ig_where where = { 0 };
	bool json = false;
	const struct ig_option opts[] = {
		IG_WHERE_OPTIONS(&where),
		IG_FLAG("json", 0, &json, "print JSON"),
		{ 0 },
	};
	struct ig_doctor d = { 0 };
	struct ig_strbuf out = { 0 };
	int n_files,
		status = ig_command_start(
			"doctor [FILE …] [options]",
			"Check the machine, the configuration and everything that it names; print what is "
			"wrong\nand what to do.  With a FILE, a GGUF file or a folder with safetensors: whether "
			"that\nmodel will run here, with what memory at what context.  Exits with 1 when "
			"anything is\nwrong.",
			opts, argc, argv, &n_files);

	if (status >= 0)
		return status;
	/* errors come back as text; the log would print them again */
	ig_log_set_level(-1);
	ig_doctor_machine(&d);
	check_config(&d, where.config);
	if (d.config) {
		check_driver(&d);
		check_modules(&d);
		d.files = n_files > 0;
		for (int i = 0; i < n_files; i++)
			ig_doctor_file(&d, argv[i]);
		if (!d.files) {
			ig_doctor_models(&d);
			ig_doctor_ledger(&d);
		}
	}
	if (!n_files)
		ig_doctor_daemon(&d, &where);

	if (json ? ig_findings_json(&d.found, &out) : ig_findings_text(&d.found, &out)) {
		fwrite(out.data, 1, out.len, stdout);
		status = ig_findings_wrong(&d.found) ? IG_EXIT_FAILED : IG_EXIT_OK;
	} else {
		status = ig_complain("out of memory");
	}
	ig_strbuf_finish(&out);
	ig_findings_finish(&d.found);
	ig_driver_close(d.driver);
	ig_modules_destroy(d.modules);
	ig_config_destroy(d.config);
	return status;
}
