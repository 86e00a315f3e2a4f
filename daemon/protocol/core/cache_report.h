/* cache_report.h: why a prompt was not cached: what a request asks for, and what its response says.
 * OpenAI's shape: a comparison with a response that the client names.  Ours: with the most similar
 * one, with the texts. */
#pragma once

#include "daemon/protocol/core/request.h"

struct ig_reply;

/* Whether the request asks for it. */
static inline bool ig_wants_cache_report(const struct ig_request *q)
{
	return q->cache_report || q->compare_id;
}
/* A member prompt_cache_diagnostics of an open object, of the first choice that has finished; nothing
 * if the request does not ask for it. */
void ig_put_cache_report(const struct ig_reply *r, struct ig_json_writer *w);
