/* model.h: a model as requests and lists of models show it. */
#pragma once

#include "model/chat/completion.h"
#include "model/chat/rerank_template.h"
#include "model/tokenizer/tokenizer.h"

#include <stdbool.h>
#include <string.h>

#define IG_MAX_MODEL_NAME 128

/* What a file shows about a model once it was opened; zeros: not known. */
struct ig_model_traits {
	uint64_t n_params;
	uint64_t file_bytes;
	uint64_t version; /* of the file: differs for another file, or for the same one later */
	char quantization[16]; /* "Q4_K_M", "BF16" */
	char format[12];       /* gguf, safetensors */
	bool tools, thinking;  /* what its chat template supports */
	bool embeds, ranks;    /* its results are vectors, or scores; none: it generates text */
	uint32_t n_dimensions; /* of a vector */
};

/* A loaded model.  Immutable and reference-counted: valid as long as somebody holds it, even
 * when its name stands for another file by then.  Its memory is freed when it was unloaded,
 * replaced or removed and the last holder has released it. */
struct ig_engine_model {
	const char *name;
	const struct ig_tokenizer *tokenizer;
	const struct ig_chat_template *chat; /* NULL: none, for the reason in chat_error */
	const char *chat_error; /* "the file has no chat template", or that it is unknown */
	const struct ig_rerank_template
		*rerank; /* of a reranker: its prompt; NULL: the tokens of a pair */
	struct ig_completion_style style; /* by the source of chat; without: zeros */
	uint32_t n_context;		  /* maximum tokens of a sequence */
	int32_t suffix;	    /* what it expects behind a text that it embeds; -1: nothing */
	uint32_t n_results; /* columns of a result; the vocabulary of a model that generates text */
	uint32_t width_outside; /* of a row from outside (struct ig_span); 0: it takes none */
	uint32_t n_cache;	/* maximum tokens that the cache holds of it, alone; 0: not known */
	const char *arch, *file;
	uint64_t weight_bytes; /* packed */
	int64_t created_s;     /* the file's mtime, Unix seconds */
	struct ig_model_traits traits;
	struct ig_model *instance; /* the engine's; several of these may have the same */
	uint32_t adapter;	   /* 0: the model as it is; else the adapter's number plus one */
};

/* What the model does, for lists and errors. */
static inline const char *ig_model_task(const struct ig_model_traits *t)
{
	return t->embeds ? "embedding" : t->ranks ? "rerank" : "generate";
}

/* Ollama's clients may add ":latest" to a name that has no tag. */
#define IG_LATEST ":latest"
static inline size_t ig_model_name_length(const char *name)
{
	size_t n = strlen(name), tag = sizeof IG_LATEST - 1;

	return n > tag && !strcmp(name + n - tag, IG_LATEST) ? n - tag : n;
}
/* Whether two names differ at most by that. */
static inline bool ig_model_is_same_name(const char *a, const char *b)
{
	size_t n = ig_model_name_length(a);

	return n == ig_model_name_length(b) && !memcmp(a, b, n);
}

/* Any thread. */

/* Adds a reference; returns m. */
const struct ig_engine_model *ig_engine_keep_model(const struct ig_engine_model *m);
/* NULL is fine.  May come after ig_engine_destroy, when m may not be used otherwise. */
void ig_engine_release_model(const struct ig_engine_model *m);
/* How long it stays loaded without a request, in place of the configuration's keep_alive, until it
 * is unloaded or that option changes.  0: it is unloaded as soon as nobody uses it; negative: it
 * stays. */
void ig_engine_set_keep_alive(const struct ig_engine_model *m, int64_t ns);

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

/* Whether the memory contract has space for a model. */
enum ig_model_fit {
	IG_FIT_UNKNOWN,
	IG_FITS_NOT,
	IG_FITS_INSTEAD, /* when idle models are unloaded for it */
	IG_FITS,
};
static inline const char *ig_model_fit_name(enum ig_model_fit f)
{
	static const char *const names[] = { NULL, "no", "instead", "yes" };

	return names[f];
}

struct ig_model_status {
	char name[IG_MAX_MODEL_NAME + 1], arch[64], file[1024], error[256]; /* truncated */
	enum ig_model_state state;
	enum ig_model_fit fit;
	bool is_default, pinned;
	uint32_t n_context;		      /* 0: not known yet */
	uint64_t weight_bytes, scratch_bytes; /* known once the file was opened */
	uint64_t
		block_bytes; /* of the cache for a block of tokens in all layers; 0: not loaded, or none */
	uint32_t n_active;   /* requests that run or wait */
	uint64_t n_loads;    /* since the start */
	double loaded_s;     /* how long the last load took */
	double idle_s;	     /* since its last request ended; 0 while one is active */
	double expires_s;    /* until keep_alive unloads it; -1: never */
	double keep_alive_s; /* of the model that is loaded; -1: for ever */
	bool is_adapter; /* of the model before it, whose row has the bytes and the counts of both */
	bool on_device;	 /* its weights are in a device's own memory */
	int64_t created_s;
	struct ig_model_traits traits;
};
