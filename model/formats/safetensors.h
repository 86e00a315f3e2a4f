/*
 * safetensors.h: one file in the format safetensors, taken apart: which tensors lie where.
 *
 * The header is JSON.  Every tensor's bytes lie within the file, as many as type and shape
 * say, none belong to two, and none to no tensor.  What the tensors are for is known to
 * folder.c alone.
 */
#pragma once

#include "base/json.h"

#include <ingot/module.h>

/* The types that are read; of all others only the size is known. */
enum ig_st_type { IG_ST_F32, IG_ST_F16, IG_ST_BF16, IG_ST_U32, IG_ST_OTHER };

#define IG_ST_MAX_DIMS 8
#define IG_ST_MAX_NAME 255

struct ig_st_tensor {
	const char *name;      /* NUL-terminated */
	const char *type_name; /* "BF16" */
	enum ig_st_type type;
	uint32_t n_dims;	      /* 0 to IG_ST_MAX_DIMS */
	uint32_t file;		      /* for the caller */
	int64_t dims[IG_ST_MAX_DIMS]; /* rows first; each may be 0 */
	const uint8_t *data;	      /* into the file; aligned to nothing */
	uint64_t n_bytes;
};

struct ig_st_file {
	struct ig_st_tensor *tensors; /* as they lie in the file */
	uint32_t n_tensors;
	char *names;
};

/* Read the header of the file at base.  0 or a negative errno with text that begins with
 * label. */
int ig_st_read(const uint8_t *base, uint64_t size, const char *label, struct ig_st_file *out,
	       struct ig_error *err);
void ig_st_finish(struct ig_st_file *f); /* zeros are fine */
