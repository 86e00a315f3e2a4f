/* json_text.h: JSON values for clients to read. */
#ifndef INGOT_PROTOCOL_CORE_JSON_TEXT_H
#define INGOT_PROTOCOL_CORE_JSON_TEXT_H

#include "base/strbuf.h"

#include <jansson.h>

const char *ig_json_type_name(const json_t *v);		 /* "a string", "null" … */
void ig_json_text(struct ig_strbuf *out, const char *s); /* NULL: null */
/* A value as text; out fails without memory. */
void ig_json_value(struct ig_strbuf *out, const json_t *v);

#endif
