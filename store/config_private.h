/*
 * config_private.h: what the files of the configuration share: one option's
 * description, the table of all of them, and where each value came from.
 * config_table.c has the table, config.c the life of a configuration, config_parse.c the
 * YAML, config_value.c the values' syntax, config_machine.c the defaults that depend
 * on the machine, config_modules.c the options that modules bring, config_reference.c the
 * documents.
 */
#pragma once

#include "base/strbuf.h"
#include "store/config.h"

#define CONFIG_MAX_BYTES (1u << 20)
#define CONFIG_MAX_DEPTH 32
#define CONFIG_MAX_MODELS 256
#define CONFIG_MAX_ITEMS 256 /* of one list */
#define CONFIG_MAX_OPTIONS 64
#define CONFIG_MAX_MODEL_OPTIONS 8

enum config_type {
	CONFIG_BOOL,
	CONFIG_INT,   /* uint32_t */
	CONFIG_BYTES, /* uint32_t or uint64_t */
	CONFIG_TIME,  /* uint32_t of ms or s, see ms_per_unit */
	CONFIG_MODE,  /* uint32_t: a file's permissions, in octal */
	CONFIG_TEXT,  /* min and max are lengths */
	CONFIG_NAME,  /* a model's name, or empty where min is 0 */
	CONFIG_PATH,  /* made absolute when it is stored; empty where min is 0 */
	CONFIG_CHOICE,
	CONFIG_HOSTS, /* lists from here on */
	CONFIG_ORIGINS,
	CONFIG_PATHS,
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
	const char *const *choices; /* NULL-terminated */
	const char *value;	    /* the default, as the file would say it */
	const char *help;	    /* one line */
};

extern const struct config_option config_options[];
extern const size_t config_n_options;
/* The keys of one entry of models: name, path, context … */
extern const struct config_option config_model_options[];
extern const size_t config_n_model_options;

struct config_place {
	enum { FROM_DEFAULT, FROM_FILE, FROM_ENVIRONMENT, FROM_SET } from;
	uint32_t line, column; /* of the value; from 1; FROM_FILE only */
};

/* What the file says of a module's option, not yet judged; with key NULL, that there is a
 * section of the module. */
struct config_said {
	char *module, *key, *text;
	uint32_t line, column;		   /* of the key */
	uint32_t value_line, value_column; /* of the value */
	/* Once judged: the value and the default, as a person reads them. */
	char *value, *fallback;
};

/* A configuration as config.c allocates it; the public part comes first. */
struct config {
	struct ig_config pub;
	char *label; /* the file's name in messages */
	char *dir;   /* what relative paths are relative to; absolute */
	struct config_place places[CONFIG_MAX_OPTIONS];
	struct config_said *said;
	size_t n_said;
};

static inline bool config_is_list(const struct config_option *o) { return o->type >= CONFIG_HOSTS; }

/* "port" of "server.port" */
const char *config_leaf(const struct config_option *o);
const struct config_option *config_find(const char *key, size_t len);
/* "INGOT_SERVER_PORT"; buf holds 64. */
char *config_env_name(const struct config_option *o, char *buf);
/* The option or section that a person may have meant; NULL: none is near.
 * section "" : the top level. */
const char *config_nearest(const char *section, const char *key);
/* The option whose variable is name or, where none is, has a name near it; NULL: none. */
const struct config_option *config_nearest_variable(const char *name);

/* ---- config_value.c --------------------------------------------------------- */

/* Read text as a value of o and put it into base (an ig_config or an
 * ig_config_model).  On an error base is as before; who begins the message. */
int config_store(const char *dir, void *base, const struct config_option *o, const char *who,
		 const char *text, size_t len, struct ig_error *err);
/* The same for a list; items are NUL-terminated. */
int config_store_list(const char *dir, void *base, const struct config_option *o, const char *who,
		      char *const *items, size_t n, struct ig_error *err);
/* What o takes, as "a whole number from 0 to 65535". */
void config_expected(const struct config_option *o, struct ig_strbuf *out);
/* The bounds alone, "0 to 65535"; nothing when the type says it all. */
void config_bounds(const struct config_option *o, struct ig_strbuf *out);
/* The value in base, as the file would say it. */
void config_format(const struct config_option *o, const void *base, struct ig_strbuf *out);
bool config_equal(const struct config_option *o, const void *a, const void *b);
/* Free what the field holds. */
void config_clear(const struct config_option *o, void *base);
/* Text of a stranger, cut and without control characters, in quotes; buf holds 80. */
char *config_quote(const char *text, size_t len, char *buf);
/* HOME, or what the user database says; NULL: unknown.  The caller's. */
char *config_home(void);

/* ---- config_parse.c --------------------------------------------------------- */

/* Read the YAML in text over c, which holds the defaults. */
int config_parse_yaml(struct config *c, const char *text, size_t len, struct ig_error *err);

/* ---- config_machine.c -------------------------------------------------------- */

/* Put what is left empty to the defaults of this machine. */
int config_fill_in(struct config *c, struct ig_error *err);

/* ---- config_modules.c ---------------------------------------------------------- */

/* Keep a copy. */
int config_say(struct config *c, const struct config_said *said, struct ig_error *err);
const struct config_said *config_find_said(const struct config *c, const char *module,
					   const char *key);
void config_clear_modules(struct config *c);

/* A module's option as one of ours, with a field for its value, which is the default. */
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
