/* main.c: the program ingot: finds the command to run; prints help. */
#include <stdio.h>
#include <string.h>

#include "base/nearest.h"
#include "cli/commands/command.h"
#include "cli/term/text.h"

struct command {
	const char *name;
	int (*main)(int argc, char **argv);
	const char *summary;
};

static const struct command commands[] = {
	{ "run", ig_run_main, "send a prompt and stream the response" },
	{ "chat", ig_chat_main, "chat with a model" },
	{ "launch", ig_launch_main, "start a coding agent with the daemon's models" },
	{ "pull", ig_pull_main, "download a model and verify it" },
	{ "convert", ig_convert_main, "convert a model to GGUF, with another element type" },
	{ "ps", ig_ps_main, "list loaded models and active requests" },
	{ "top", ig_top_main, "watch models, memory and requests" },
	{ "models", ig_models_main,
	  "list known, downloaded and served models; load and unload them" },
	{ "stats", ig_stats_main, "show requests, tokens and latencies from the ledger" },
	{ "bench", ig_bench_main, "send requests at given rates and measure latencies" },
	{ "cache", ig_cache_main, "say how much of the last prompts was cached, and why" },
	{ "backup", ig_backup_main, "copy ledger, configuration and API keys to a folder" },
	{ "keys", ig_keys_main, "add, list and remove API keys" },
	{ "doctor", ig_doctor_main, "check this machine and the configuration" },
	{ 0 },
};

static void print_help(FILE *f)
{
	fputs("usage: ingot COMMAND [options]\n\ncommands:\n", f);
	for (const struct command *c = commands; c->name; c++)
		fprintf(f, "  %-8s %s\n", c->name, c->summary);
	fputs("  help     print this, or the options of a command: ingot help COMMAND\n"
	      "\n  --version  print the version\n"
	      "\nThe daemon is ingotd; ingot finds it by --url, $INGOT_URL or ingot.yaml.\n",
	      f);
}

static const struct command *find(const char *name)
{
	char hint[96];

	for (const struct command *c = commands; c->name; c++)
		if (!strcmp(c->name, name))
			return c;
	ig_complain("unknown command '%s'%s; `ingot help` lists them", name,
		    ig_did_you_mean(hint, name, "", commands, sizeof *commands));
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
	/* a command whose output could not be written has failed */
	if (fflush(stdout) && status == IG_EXIT_OK)
		status = IG_EXIT_FAILED;
	return status;
}
