/* model.h: a model as requests and lists of models show it. */
#pragma once

#include "model/chat/chat_template.h"
#include "model/tokenizer/tokenizer.h"

#define IG_MAX_MODEL_NAME 128

/* A loaded model.  Immutable and reference-counted: valid as long as somebody holds it, even
 * when its name stands for another file by then.  Its memory is freed when it was unloaded,
 * replaced or removed and the last holder has released it. */
struct ig_engine_model {
	const char *name;
	const struct ig_tokenizer *tokenizer;
	const struct ig_chat_template *chat; /* NULL: none, for the reason in chat_error */
	const char *chat_error; /* "the file has no chat template", or that it is unknown */
	uint32_t n_context;	/* maximum tokens of a sequence */
	uint32_t n_cache;	/* maximum tokens that the cache holds of it, alone; 0: not known */
	const char *arch, *file;
	uint64_t weight_bytes; /* packed */
	int64_t created_s;     /* the file's mtime, Unix seconds */
};

/* Any thread. */

/* Adds a reference; returns m. */
const struct ig_engine_model *ig_engine_keep_model(const struct ig_engine_model *m);
/* NULL is fine.  May come after ig_engine_destroy, when m may not be used otherwise. */
void ig_engine_release_model(const struct ig_engine_model *m);

enum ig_model_state {
	IG_MODEL_UNLOADED,
	IG_MODEL_LOADING,
	IG_MODEL_READY,
	IG_MODEL_UNLOADING, /* unloaded when its last request ends */
	IG_MODEL_FAILED,    /* error says why */
};
static inline const char *ig_model_state_name(enum ig_model_state s)
{
	static const char *const names[] = {
		[IG_MODEL_UNLOADED] = "unloaded", [IG_MODEL_LOADING] = "loading",
		[IG_MODEL_READY] = "ready",	  [IG_MODEL_UNLOADING] = "unloading",
		[IG_MODEL_FAILED] = "failed",
	};

	return names[s];
}

struct ig_model_status {
	char name[IG_MAX_MODEL_NAME + 1], arch[64], file[1024], error[256]; /* truncated */
	enum ig_model_state state;
	bool is_default, pinned;
	uint32_t n_context;		      /* 0: not known yet */
	uint64_t weight_bytes, scratch_bytes; /* known once the file was opened */
	uint32_t n_active;		      /* requests that run or wait */
	uint64_t n_loads;		      /* since the start */
	double loaded_s;		      /* how long the last load took */
	double idle_s;	  /* since its last request ended; 0 while one is active */
	double expires_s; /* until keep_alive unloads it; -1: never */
	int64_t created_s;
};
