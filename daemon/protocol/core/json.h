/* json.h: JSON of clients. */
#ifndef INGOT_PROTOCOL_CORE_JSON_H
#define INGOT_PROTOCOL_CORE_JSON_H

#include "daemon/protocol/core/errors.h"

/* Text to one JSON object, with caps on depth, on the number of values and on
 * what JSON leaves open (duplicate keys, lone surrogates, NUL). */
int ig_json_load_object(const char *text, size_t len, json_t **out, struct ig_api_error *e);
/* The end of a parser that has loaded root: frees it and returns rc, or -1 if jansson ran
 * out of memory somewhere since: what it made may lack something then. */
int ig_json_end(json_t *root, int rc, struct ig_api_error *e);

#endif
