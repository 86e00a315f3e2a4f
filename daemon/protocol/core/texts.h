/* texts.h: requests of texts for vectors or scores; on a prep thread. */
#pragma once

struct ig_reply;

/* Whether its model does what the request asks for: 0, or -1 with r->error. */
int ig_check_task(struct ig_reply *r);
/* Fill in r->prepared, which has its model, or r->error. */
void ig_prepare_texts(struct ig_reply *r);
