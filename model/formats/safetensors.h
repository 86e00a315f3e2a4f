/*
 * safetensors.h: reads the header of a safetensors file: its tensors and their offsets.  The header
 * is JSON.  Every tensor's bytes are within the file, match its type and shape, and do not overlap;
 * no bytes are unused.
 */
#pragma once

#include "base/json.h"

#include <ingot/module.h>

/* The types that are read; for all others only the size is known. */
enum ig_st_type { IG_ST_F32, IG_ST_F16, IG_ST_BF16, IG_ST_U32, IG_ST_U8, IG_ST_OTHER };

#define IG_ST_MAX_DIMS 8
#define IG_ST_MAX_NAME 255

struct ig_st_tensor {
	const char *name;      /* NUL-terminated */
	const char *type_name; /* "BF16" */
	enum ig_st_type type;
	uint32_t n_dims;	      /* 0 to IG_ST_MAX_DIMS */
	uint32_t file;		      /* for the caller */
	int64_t dims[IG_ST_MAX_DIMS]; /* rows first; each may be 0 */
	const uint8_t *data;	      /* into the file; not aligned */
	uint64_t n_bytes;
};

struct ig_st_file {
	struct ig_st_tensor *tensors; /* in the order of their data */
	uint32_t n_tensors;
	char *names;
};

/* Read the header of the file at base.  0 or a negative errno with text that begins with label. */
int ig_st_read(const uint8_t *base, uint64_t size, const char *label, struct ig_st_file *out,
	       struct ig_error *err);
void ig_st_finish(struct ig_st_file *f); /* zeros are fine */
