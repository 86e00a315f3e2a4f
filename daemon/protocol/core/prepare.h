/* prepare.h: from a request to the engine's input: token ids, a grammar, the control tokens whose
 * text is output.  On the prep thread, since it can be slow. */
#pragma once

#include "daemon/engine/engine.h"
#include "model/chat/completion.h"

struct ig_reply;

/* A prepared request. */
struct ig_prepared {
	const struct ig_engine_model *model; /* held */
	struct ig_ids *prompts;		     /* [n_prompts] */
	size_t n_prompts;
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
/* Only take its model. */
int ig_prepare_model(struct ig_reply *r);
