/* model.h: a model as requests and those who ask for a list of them see it. */
#pragma once

#include "model/chat/chat_template.h"
#include "model/tokenizer/tokenizer.h"

/* A model that is loaded.  Immutable and counted: good as long as somebody holds it, even
 * when its name stands for another file by then.  Its memory is free when the last
 * holder lets go after it was unloaded, swapped or removed. */
struct ig_engine_model {
	const char *name;
	const struct ig_tokenizer *tokenizer;
	const struct ig_chat_template *chat; /* NULL: chat_error says why */
	const char *chat_error; /* "the file has no chat template", or which is not known */
	uint32_t n_context;	/* tokens that one sequence may have */
	const char *arch, *file;
	uint64_t weight_bytes; /* packed */
	int64_t created_s;     /* the file's mtime, Unix seconds */
};

/* Any thread. */

/* One more holder; returns m. */
const struct ig_engine_model *ig_engine_keep_model(const struct ig_engine_model *m);
/* NULL is fine.  After ig_engine_destroy too, when nothing else may be done with m. */
void ig_engine_release_model(const struct ig_engine_model *m);

enum ig_model_state {
	IG_MODEL_UNLOADED,
	IG_MODEL_LOADING,
	IG_MODEL_READY,
	IG_MODEL_LEAVING, /* unloaded when its last request ends */
	IG_MODEL_FAILED,  /* error says why */
};

struct ig_model_status {
	char name[129], arch[64], file[1024], error[256]; /* cut where longer */
	enum ig_model_state state;
	bool is_default, pinned;
	uint32_t n_context;		      /* what it has or will have; 0: not known yet */
	uint64_t weight_bytes, scratch_bytes; /* loaded or not, once known */
	uint32_t n_active;		      /* requests that run or wait */
	uint64_t n_loads;		      /* since the start */
	double loaded_s;		      /* how long the last load took */
	double idle_s;	  /* since its last request ended; 0 while one is active */
	double expires_s; /* until keep_alive unloads it; -1: never */
	int64_t created_s;
};
