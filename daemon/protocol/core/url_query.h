/* url_query.h: the parameters in the query of a URL: name=value, joined by "&". */
#pragma once

#include "daemon/protocol/core/errors.h"

#include <stdbool.h>

struct ig_query_pair { /* truncated */
	char name[64], value[256];
};

/* The next parameter of *query; false: none. */
bool ig_query_next(const char **query, struct ig_query_pair *p);
/* The value of limit, an integer from 1 to max.  -1 with *e. */
int ig_query_limit(const struct ig_query_pair *p, int32_t max, int32_t *out,
		   struct ig_api_error *e);
