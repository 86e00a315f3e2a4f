/* prepare.h: from a request to what the engine takes: token ids, a grammar, which control
 * tokens are shown.  The prep thread; all that can be slow about a request. */
#pragma once

#include "daemon/engine/engine.h"
#include "model/chat/completion.h"

struct ig_reply;

/* What prep makes of a request. */
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
/* Only its model. */
int ig_prepare_model(struct ig_reply *r);
