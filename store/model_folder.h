/* model_folder.h: the models in a folder: each GGUF file and each folder of safetensors or with the
 * parts of a split GGUF file, by the name in its lock (MODEL.lock, which `ingot pull` writes) or else
 * by its own. */
#pragma once

#include <stddef.h>

struct ig_folder_model {
	char *name; /* a model's name; unique */
	char *path; /* to open: of a split file the first part's */
};

/* Sorted by name, at most max; the caller frees them, also after an error.  0 (no such folder is no
 * model), -ENOMEM, or -errno.  Of two with one name the one whose path comes first counts. */
int ig_model_folder_read(const char *folder, size_t max, struct ig_folder_model **out, size_t *n);
void ig_model_folder_free(struct ig_folder_model *list, size_t n);
