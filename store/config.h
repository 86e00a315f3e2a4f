/*
 * config.h: ingot.yaml as one typed struct.  One table in config_table.c gives every option's type,
 * bounds, default, unit, environment variable and whether SIGHUP may change it.  A loaded struct is
 * immutable; a reload creates a new one, and the old one stays in use on any error.
 */
#pragma once

#include "base/setting.h"
#include "store/prompt_rules.h"

#include <ingot/module.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* An adapter of a model (model/formats/adapter.h): requests name it MODEL:NAME. */
struct ig_config_adapter {
	char *name; /* as a model's, but without ":" and with the model's at most 127 bytes */
	char *path; /* a GGUF file, or a folder that PEFT has written */
	uint32_t scale_percent; /* of the scale in its files; 100: as it is */
};

struct ig_config_model {
	char *name;		/* what clients ask for; [A-Za-z0-9._:/-]{1,128}, unique */
	char *path;		/* a GGUF file, or a folder with safetensors; relative to the config
		       file's folder; ~/ is expanded */
	uint32_t context;	/* tokens a sequence may have; 0: as the model was trained */
	char *kv_dtype;		/* in place of kvcache.dtype; auto: that one */
	char *draft;		/* the file or folder of its draft model, as path; empty: none */
	char *load;		/* start, first_use */
	uint32_t keep_alive_ms; /* unloaded after this time without a request; 0: never */
	bool pin;		/* false; true: never unloaded to free memory for another */
	struct ig_config_adapter *adapters; /* none by default */
	size_t n_adapters;
};

/* Requests for a model whose name the pattern matches get this model.  "*" in it stands for any
 * characters. */
struct ig_config_alias {
	char *pattern, *model;
};

struct ig_config {
	char *file; /* the path it came from */

	struct {			  /* server: */
		char *host;		  /* 127.0.0.1; empty: no TCP, the unix socket alone */
		uint32_t port;		  /* 6468; 0: any free one */
		uint32_t also_listen;	  /* 0: none; a second port for the same requests */
		uint32_t max_connections; /* 512 */
		uint64_t max_body;	  /* 32 MiB: an HTTP body or a WebSocket message */
		uint32_t max_header;	  /* 16 KiB: all headers of one request */
		uint64_t client_buffer;	  /* 256 KiB: unsent output kept for one request */
		uint32_t
			slow_client_timeout_ms; /* 30 s: most time of a client that reads nothing */
		uint32_t keepalive_interval_ms; /* 5 s: an event during a long prefill */
		uint32_t model_wait_ms;		/* 2 min: most time a request waits for its model to
					      load before it gets 503; 0: none */
		char *model_id_prefix;		/* models are listed under a second id, which
					      begins so; empty: they are not */
		bool watch_config;		/* true: reload a changed file as SIGHUP does */
		uint32_t drain_timeout_ms; /* 20 s: most time SIGTERM waits for active requests */
		char **allowed_hosts; /* names besides the loopback ones in Host; NULL-terminated */
		char **allowed_origins;	   /* none by default; NULL-terminated */
		char *unix_socket;	   /* a path to listen on too; empty: none */
		uint32_t unix_socket_mode; /* 0600: its permissions */
		char *tls_cert, *tls_key;  /* PEM files; empty: plain HTTP */
		char *keys_command;	   /* a program that prints such a file instead; "": none */
		char *keys_file; /* of API keys; default: ~/.local/state/ingot/keys (as ledger.path) */
		char *unknown_parameters; /* note, refuse: what a request has that is not known */
		uint32_t prep_threads;	  /* 3: prompts that are rendered and tokenized at once */
		bool open_metrics;	  /* /metrics needs no key */
		bool allow_anonymous; /* false: without a key only where no keys are, on loopback */
	} server;
	struct {		/* tools: */
		char *fallback; /* hermes, refuse: where a chat template knows no tools */
	} tools;
	struct { /* limits: of a key that has none of its own, and of all without a key together */
		uint32_t max_concurrent; /* 0: no limit, as for the others */
		uint32_t requests_per_minute;
		uint32_t tokens_per_minute;
	} limits;
	struct {		     /* responses: stored ones, to be continued and retrieved */
		uint32_t max_stored; /* 4096; 0: none */
		uint64_t max_stored_bytes;    /* 256 MiB, together */
		uint32_t max_stored_per_lane; /* 8; of a WebSocket, with store: false */
		bool persist;		      /* true: they survive a restart */
		char *path; /* their file; default: ledger-responses.db beside the ledger */
	} responses;
	struct {		 /* runtime: */
		char *driver;	 /* auto, cpu, metal, cuda */
		char **devices;	 /* numbers of GPUs, or `all`; none: the first */
		char *transport; /* none, mpi: between the machines that share each model */
		uint32_t
			transport_timeout_ms; /* 10 s: a machine that is silent for longer is gone */
		char *isa; /* auto, generic, avx2, avx512, avx512_bf16, neon, neon_dotprod, neon_i8mm */
		uint32_t threads;   /* 0: as many as there are processors */
		char *activations;  /* auto: as fits the weights (8 bit or bf16); f32 */
		char *experts;	    /* packed, mapped: experts' weights are read from the file */
		char *repack;	    /* auto, always, never: to tiles, by the GPU drivers */
		char *tensor_units; /* auto, never: of Apple's GPUs */
		char *packed_cache; /* a folder for copies of packed weights; "": none */
		uint64_t packed_cache_size; /* 0: half of what is free there */
		char *run_ahead; /* auto, on, off: may a step start before the last one is read? */
		bool strict;	 /* true: a second wait within a step is an error */
		uint32_t keep_wired_ms; /* metal: after the last step; 180,000; 0: never */
	} runtime;
	struct {		 /* memory: */
		uint64_t budget; /* 0: ig_default_budget (base/machine.h) */
	} memory;
	struct {		   /* kvcache: */
		char *service;	   /* the name of the module's service: paged */
		uint64_t arena;	   /* 0: the rest of the budget, 4 GiB at most */
		uint64_t slab;	   /* 4 MiB; a power of two */
		char *dtype;	   /* f16, f32 */
		bool prefix_cache; /* prompts with a common prefix share its blocks */
		char *share;	   /* key, all: whose prompts share */
		char *disk; /* a folder for computed blocks, default: kv beside the ledger; empty: none */
		bool disk_by_default;		   /* nobody has named it */
		uint64_t disk_size;		   /* 0: a tenth of what is free, 20 GiB at most */
		struct ig_prompt_rules *normalize; /* the built-in rules, then the file's */
	} kvcache;
	struct {			   /* scheduler: */
		uint32_t max_batch_tokens; /* 512: rows of one step */
		uint32_t prefill_chunk;	   /* 512: rows of one sequence's prefill in a step */
		uint32_t prompt_share; /* 36: percent of the time for long prompts beside streams */
		uint32_t max_seqs;     /* 64: sequences that run at once; no more than rows */
		uint32_t max_queue;    /* 256: requests that wait; more get 503 */
		uint32_t retry_after_s;	    /* 2 */
		uint32_t max_output_tokens; /* default of requests; 0: up to the context */
		char *speculation; /* on, lookup, draft, mtp, off: which guesses steps verify */
	} scheduler;
	struct {	     /* modules: */
		char **path; /* folders to load *.so from, at least one; default: those of the
				build tree that has the program, or else the installed one */
		/* NAME.KEY: the modules' own options that the file sets, once checked */
		struct ig_setting *settings;
		size_t n_settings;
	} modules;
	struct {	      /* ledger: */
		bool enabled; /* true */
		char *path; /* ~/.local/state/ingot/ledger.db (XDG_STATE_HOME), on macOS var/ingot */
		uint32_t queue;		 /* 4096 rows */
		uint32_t retention_days; /* 90; 0: no limit */
	} ledger;
	struct {	     /* log: */
		char *level; /* error, warn, info, debug */
		char *file;  /* empty: standard error */
	} log;
	char *models_folder; /* models.folder: whose models are served too; default: where `ingot
				pull` puts them; empty: none, or the home folder is not known */
	struct ig_config_model *models;	 /* models.entries, then those of the folder */
	size_t n_models, n_entries;	 /* n_entries: without those of the folder */
	char *default_model;		 /* empty: the first */
	struct ig_config_alias *aliases; /* aliases: the first that matches counts */
	size_t n_aliases;
};

/* Load path, or, if NULL, the first of $INGOT_CONFIG, ~/.config/ingot/ingot.yaml
 * and the installed one.  Environment variables (INGOT_SERVER_PORT …) override
 * scalars, and the models of models.folder are added.  0, or negative errno with "file:line:column: what, nearest key". */
int ig_config_load(const char *path, struct ig_config **out, struct ig_error *err);
/* The same, but all defaults, whose file is "defaults", when path is NULL and there is no file. */
int ig_config_load_or_defaults(const char *path, struct ig_config **out, struct ig_error *err);
/* Load anew where old came from; where that was no file, look for one again. */
int ig_config_load_again(const struct ig_config *old, struct ig_config **out, struct ig_error *err);
/* The same of a text, without the environment and the folder of models; label names the file in messages, and paths are
 * relative to its folder. */
int ig_config_parse(const char *text, size_t len, const char *label, struct ig_config **out,
		    struct ig_error *err);
void ig_config_destroy(struct ig_config *c);

/* Call each(ctx, "server.port", old, new, reloadable) for every option that differs. */
void ig_config_diff(const struct ig_config *old, const struct ig_config *new_,
		    void (*each)(void *ctx, const char *key, const char *was, const char *is,
				 bool reloadable),
		    void *ctx);

/* Check the options below modules.NAME against the tables of these modules, and fill in
 * modules.settings.  Until then they are stored unchecked; without modules this call is not
 * needed.  Errors as those of ig_config_load. */
int ig_config_check_modules(struct ig_config *c, const struct ig_module *const *modules, size_t n,
			    struct ig_error *err);

/* Write etc/ingot.yaml: every option, those of these modules too, with comment and default. */
int ig_config_write_reference(FILE *f, const struct ig_module *const *modules, size_t n);

/* Whether scheduler.speculation names this source of guesses, or all. */
static inline bool ig_config_guesses_by(const struct ig_config *c, const char *source)
{
	return !strcmp(c->scheduler.speculation, "on") || !strcmp(c->scheduler.speculation, source);
}

#define IG_CONFIG_DEVICES 16
/* The numbers of runtime.devices: how many, at most IG_CONFIG_DEVICES + 1; *all 1: all that there are. */
static inline uint32_t ig_config_devices(const struct ig_config *c, uint32_t out[IG_CONFIG_DEVICES],
					 uint32_t *all)
{
	uint32_t n = 0;

	*all = 0;
	for (char *const *item = c->runtime.devices; item && *item; item++) {
		if ((*item)[0] == 'a') { /* "all" */
			*all = 1;
			return 0;
		}
		if (n < IG_CONFIG_DEVICES)
			out[n] = (uint32_t)strtoul(*item, NULL, 10);
		n += n <= IG_CONFIG_DEVICES;
	}
	return n;
}
