/*
 * hub_repo.h: what the Hub says about a repository: revision, licence, files with sizes and hashes;
 * and which of the files are models that can be pulled.  Nothing here is trusted: a path that could
 * leave the models folder is an error of the whole list.
 */
#pragma once

#include "cli/download/hub.h"

#include <stddef.h>

/* hf:OWNER/REPO[:PICK]; hf.co/… and https://huggingface.co/… mean the same, and so does a bare
 * OWNER/REPO. */
struct ig_hub_ref {
	char repo[200]; /* OWNER/REPO */
	char pick[512]; /* a quantisation or a file; "": none named */
};

struct ig_hub_file {
	char *path; /* in the repository; checked */
	uint64_t n_bytes;
	char sha256[65]; /* lower case; "": small, so sha1 is given */
	char sha1[41];	 /* git's, of a blob */
};

struct ig_hub_repo {
	char id[200], commit[65];
	char license[160]; /* "": the repository names none */
	char arch[64];	   /* GGUF's general.architecture; "": not said */
	bool gated;
	struct ig_hub_file *files; /* sorted by path */
	size_t n_files;
};

/* What can be pulled: one GGUF file, the parts of a split one, or a folder of safetensors. */
struct ig_hub_choice {
	char label[200];  /* "Q4_K_M", "UD-Q4_K_XL", "safetensors", or the file's path */
	char name[129];	  /* that it is served under */
	char local[200];  /* its file or folder in the models folder */
	bool is_folder;	  /* local is a folder */
	bool is_complete; /* no part is missing */
	uint64_t n_bytes;
	size_t *files; /* indices, in the order of parts */
	size_t n_files;
};

struct ig_hub_choices {
	struct ig_hub_choice *list; /* by size */
	size_t n;
};

/* Whether a name for `pull` is one of the Hub's. */
bool ig_hub_is_ref(const char *name);
int ig_hub_ref_parse(const char *name, struct ig_hub_ref *out, struct ig_error *err);
/* Whether text is OWNER/REPO. */
bool ig_hub_is_repo(const char *text);

/* Ask the Hub. *out is the caller's (ig_hub_repo_finish), also after an error. */
int ig_hub_repo_read(const struct ig_hub *h, const char *repo, struct ig_hub_repo *out,
		     struct ig_error *err);
/* The same from the texts of its replies; a further page adds its files. */
int ig_hub_repo_parse_info(const char *text, size_t len, struct ig_hub_repo *out,
			   struct ig_error *err);
int ig_hub_repo_parse_tree(const char *text, size_t len, struct ig_hub_repo *out,
			   struct ig_error *err);
void ig_hub_repo_finish(struct ig_hub_repo *r);

int ig_hub_choices_of(const struct ig_hub_repo *r, struct ig_hub_choices *out,
		      struct ig_error *err);
void ig_hub_choices_finish(struct ig_hub_choices *c);
/* The choice with this label, file or path; -ENOENT: none, -E2BIG: several, with text. */
int ig_hub_pick(const struct ig_hub_repo *r, const struct ig_hub_choices *c, const char *pick,
		const struct ig_hub_choice **out, struct ig_error *err);
