/* prepare.h: from a request to the engine's input: token ids, a grammar, the control tokens whose
 * text is output.  On a prep thread, since it can be slow. */
#pragma once

#include "daemon/engine/engine.h"
#include "model/chat/completion.h"

struct ig_reply;
struct ig_request;

/* A prepared request. */
struct ig_prepared {
	const struct ig_engine_model *model; /* held */
	struct ig_ids *prompts;		     /* [n_prompts] */
	size_t n_prompts;
	struct ig_text *texts; /* [n_texts] of the one prompt; NULL: it is no request of texts */
	size_t n_texts;
	struct ig_ids *prediction;  /* NULL: none */
	struct ig_grammar *grammar; /* NULL: none */
	struct ig_completion_style style;
	int32_t shown[IG_MAX_SHOWN];
	uint32_t n_shown;
};
void ig_prepared_finish(struct ig_prepared *p);

/* Fill in r->prepared or r->error, or set r->waits. */
void ig_prepare(struct ig_reply *r);
/* The same, without its protocol's act, which may have taken the model. */
void ig_prepare_prompt(struct ig_reply *r);
/* Of its texts, before they are rendered. */
size_t ig_prompt_bytes(const struct ig_request *q);
/* Only take its model. */
int ig_prepare_model(struct ig_reply *r);
