/*
 * main.c: ingot, the command line: which command, and help.
 */
#include <stdio.h>
#include <string.h>

#include "cli/commands/command.h"
#include "cli/options.h"
#include "cli/term/text.h"

struct command {
	const char *name;
	int (*main)(int argc, char **argv);
	const char *summary;
};

static const struct command commands[] = {
	{ "run", ig_run_main, "stream one answer from the daemon" },
	{ "chat", ig_chat_main, "talk with a model" },
	{ "pull", ig_pull_main, "download a model and check it" },
	{ "convert", ig_convert_main, "write a model as GGUF, in another type" },
	{ "ps", ig_ps_main, "list loaded models and the requests under way" },
	{ "models", ig_models_main, "list models: known, downloaded, served; load, unload" },
	{ "stats", ig_stats_main, "requests, tokens and latencies from the ledger" },
	{ "keys", ig_keys_main, "add, list and remove API keys" },
	{ "doctor", ig_doctor_main, "check this machine and the configuration" },
	{ 0 },
};

static void print_help(FILE *f)
{
	fputs("usage: ingot COMMAND [options]\n\ncommands:\n", f);
	for (const struct command *c = commands; c->name; c++)
		fprintf(f, "  %-8s %s\n", c->name, c->summary);
	fputs("  help     print this, or a command's options: ingot help COMMAND\n"
	      "\n  --version  print the version\n"
	      "\nThe daemon is ingotd; ingot finds it by --url, $INGOT_URL or ingot.yaml.\n",
	      f);
}

static const struct command *find(const char *name)
{
	const char *names[sizeof commands / sizeof commands[0]];
	size_t n = 0;

	for (const struct command *c = commands; c->name; c++) {
		if (!strcmp(c->name, name))
			return c;
		names[n++] = c->name;
	}
	names[n] = NULL;
	const char *near = ig_nearest_name(name, names);
	ig_complain("unknown command '%s'%s%s%s; `ingot help` lists them", name,
		    near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
	return NULL;
}

int main(int argc, char **argv)
{
	const struct command *c;
	int status;

	if (argc < 2) {
		print_help(stderr);
		return IG_EXIT_USAGE;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "version")) {
		puts("ingot " IG_VERSION);
		return IG_EXIT_OK;
	}
	if (!strcmp(argv[1], "help") || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
		char *help[] = { (char[]){ "--help" }, NULL };
		if (argc < 3) {
			print_help(stdout);
			return IG_EXIT_OK;
		}
		c = find(argv[2]);
		return c ? c->main(1, help) : IG_EXIT_USAGE;
	}
	c = find(argv[1]);
	if (!c)
		return IG_EXIT_USAGE;
	status = c->main(argc - 2, argv + 2);
	/* what was printed has arrived, or the command has not succeeded */
	if (fflush(stdout) && status == IG_EXIT_OK)
		status = IG_EXIT_FAILED;
	return status;
}
