/* namespaces.h: tools in namespaces, as Codex sends those of MCP servers.  To the model such a tool
 * is a function named NAMESPACE__NAME; the client gets its calls with both names apart. */
#pragma once

#include "daemon/protocol/core/params.h"

/* Add the tools of {"type": "namespace", "name", "tools"} to r->tools. */
int ig_namespace_read(struct ig_request *r, const char *at, json_t *v, struct ig_api_error *e);
/* {"namespace", "name"} of a tool by the name that the model knows; borrowed; NULL: it is in no
 * namespace. */
const json_t *ig_namespace_of(const struct ig_request *r, const char *flat);
/* The name that the model knows, for a request's choice of a tool; borrowed; NULL: unknown. */
const char *ig_namespace_flat(const struct ig_request *r, const char *space, const char *name);
/* The same for a call in an earlier turn, whose tools may be gone. */
void ig_namespace_join(char *out, size_t cap, const char *space, const char *name);
