/*
 * config_private.h: shared by the files of the configuration: the description of an option, the
 * table of options (config_table.c), and the origin of each value.  config.c creates and compares
 * configurations, config_parse.c reads the YAML, config_value.c the values, config_machine.c has
 * the defaults that depend on the machine, config_modules.c the options of modules, and
 * config_reference.c writes the documents.
 */
#pragma once

#include "base/strbuf.h"
#include "store/config.h"

#define CONFIG_MAX_BYTES (1u << 20)
#define CONFIG_MAX_MODELS 256
#define CONFIG_MAX_ALIASES 256
#define CONFIG_MAX_ITEMS 256 /* of one list */
#define CONFIG_MAX_OPTIONS 80
#define CONFIG_MAX_MODEL_OPTIONS 8
#define CONFIG_MAX_RULE_OPTIONS 8
#define CONFIG_MAX_ADAPTERS 32 /* of one model; IG_MAX_ADAPTERS of ops/adapt.h */

enum config_type {
	CONFIG_BOOL,
	CONFIG_INT,   /* uint32_t */
	CONFIG_BYTES, /* uint32_t or uint64_t */
	CONFIG_TIME,  /* uint32_t of ms or s, see ms_per_unit */
	CONFIG_MODE,  /* uint32_t: a file's permissions, in octal */
	CONFIG_TEXT,  /* min and max are lengths */
	CONFIG_NAME,  /* a model's name, or empty where min is 0 */
	CONFIG_PATH,  /* stored as an absolute path; empty where min is 0 */
	CONFIG_CHOICE,
	CONFIG_HOSTS, /* lists from here on */
	CONFIG_ORIGINS,
	CONFIG_PATHS,
	CONFIG_PATTERNS, /* names in which * stands for any characters */
	CONFIG_DEVICES,	 /* numbers, or `all` */
};

struct config_option {
	const char *key; /* "server.port"; the environment name follows from it */
	enum config_type type;
	uint32_t offset, size; /* the field in struct ig_config (or _config_model) */
	uint64_t min, max;     /* CONFIG_TIME: in ms */
	uint32_t ms_per_unit;  /* CONFIG_TIME: 1 or 1000 */
	bool power_of_two;
	bool reloadable;
	const char *unit;	    /* of a plain number; NULL: none */
	const char *const *choices; /* NULL-terminated; of CONFIG_PATH: words that are no paths */
	const char *value;	    /* the default, in the file's syntax */
	const char *help;	    /* one line */
};

extern const struct config_option config_options[];
extern const size_t config_n_options;
/* The keys of one entry of models: name, path, context … */
extern const struct config_option config_model_options[];
extern const size_t config_n_model_options;
/* The keys of one entry of a model's adapters: name, path, scale_percent. */
extern const struct config_option config_adapter_options[];
extern const size_t config_n_adapter_options;
/* The keys of one entry of kvcache.normalize, whose fields are in struct ig_prompt_rule. */
extern const struct config_option config_rule_options[];
extern const size_t config_n_rule_options;

struct config_place {
	enum { FROM_DEFAULT, FROM_FILE, FROM_ENVIRONMENT } from;
	uint32_t line, column; /* of the value; from 1; FROM_FILE only */
};

/* An option of a module as it was read, not yet checked; key NULL: the module's section. */
struct config_raw {
	char *module, *key, *text;
	uint32_t line, column;		   /* of the key */
	uint32_t value_line, value_column; /* of the value */
	/* Once checked: the value and the default, for people. */
	char *value, *fallback;
};

/* A configuration as config.c allocates it; the public part comes first. */
struct config {
	struct ig_config pub;
	char *label; /* the file's name in messages */
	char *dir;   /* what relative paths are relative to; absolute */
	struct config_place places[CONFIG_MAX_OPTIONS];
	struct config_place *alias_places; /* [n_aliases]: of the models' names */
	struct config_raw *raw;
	size_t n_raw;
};

static inline bool config_is_list(const struct config_option *o) { return o->type >= CONFIG_HOSTS; }

/* "port" of "server.port" */
const char *config_leaf(const struct config_option *o);
const struct config_option *config_find(const char *key);
/* "INGOT_SERVER_PORT"; buf holds 64. */
char *config_env_name(const struct config_option *o, char *buf);
/* The option or section with the nearest name; NULL: none is near.  section "": the top level. */
const char *config_nearest(const char *section, const char *key);
/* The option whose variable has the nearest name; NULL: none is near. */
const struct config_option *config_nearest_variable(const char *name);

/* ---- config_value.c --------------------------------------------------------- */

/* Store text as the value of o in base (an ig_config or an ig_config_model).  On an error base
 * does not change, and the message begins with who. */
int config_store(const char *dir, void *base, const struct config_option *o, const char *who,
		 const char *text, size_t len, struct ig_error *err);
/* The same for a list; items are NUL-terminated. */
int config_store_list(const char *dir, void *base, const struct config_option *o, const char *who,
		      char *const *items, size_t n, struct ig_error *err);
/* The values that o takes, as "a whole number from 0 to 65535". */
void config_expected(const struct config_option *o, struct ig_strbuf *out);
/* The bounds alone, "0 to 65535"; nothing for types without bounds. */
void config_bounds(const struct config_option *o, struct ig_strbuf *out);
/* The value in base, in the file's syntax. */
void config_format(const struct config_option *o, const void *base, struct ig_strbuf *out);
bool config_equal(const struct config_option *o, const void *a, const void *b);
/* Free what the field holds. */
void config_clear(const struct config_option *o, void *base);
/* Whether text has only the characters of a model's name and those of more. */
bool config_is_name(const char *text, size_t len, const char *more);
/* Untrusted text, cut and without control characters, in quotes; buf holds 80. */
char *config_quote(const char *text, size_t len, char *buf);
/* HOME, or the folder in the user database; NULL: unknown.  The caller's. */
char *config_home(void);

/* ---- config_parse.c --------------------------------------------------------- */

/* Replace values of c, which has the defaults, by those of the YAML in text. */
int config_parse_yaml(struct config *c, const char *text, size_t len, struct ig_error *err);

/* ---- config_machine.c -------------------------------------------------------- */

/* Set empty paths to the defaults of this machine. */
int config_fill_in(struct config *c, struct ig_error *err);

/* ---- config_modules.c ---------------------------------------------------------- */

/* Add a copy. */
int config_add_raw(struct config *c, const struct config_raw *raw, struct ig_error *err);
const struct config_raw *config_find_raw(const struct config *c, const char *module,
					 const char *key);
void config_clear_modules(struct config *c);

/* A module's option as a config_option, with a field for its value, which is the default. */
struct config_module_option {
	struct config_option option; /* points into this struct */
	union {
		bool truth;
		uint64_t number;
		char *text;
	} field;
	char key[160], value[128];
};

void config_of_module(const char *module, const struct ig_module_option *m,
		      struct config_module_option *out);
void config_diff_modules(const struct config *old, const struct config *new_,
			 void (*each)(void *ctx, const char *key, const char *was, const char *is,
				      bool reloadable),
			 void *ctx);

/* ---- config_reference.c ------------------------------------------------------ */

/* The table of options in docs/configuration.md. */
int config_write_table(FILE *f, const struct ig_module *const *modules, size_t n);
