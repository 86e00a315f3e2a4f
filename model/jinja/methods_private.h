/* methods_private.h: the numbers of methods, which methods.c finds by name. */
#pragma once

#include "model/jinja/jinja_private.h"

enum method_id {
	S_STRIP,
	S_LSTRIP,
	S_RSTRIP,
	S_SPLIT,
	S_RSPLIT,
	S_SPLITLINES,
	S_STARTSWITH,
	S_ENDSWITH,
	S_UPPER,
	S_LOWER,
	S_TITLE,
	S_CAPITALIZE,
	S_REPLACE,
	S_JOIN,
	S_FORMAT,
	S_FIND,
	S_RFIND,
	S_INDEX,
	S_COUNT,
	S_ISDIGIT,
	S_ISALPHA,
	S_ISALNUM,
	S_ISSPACE,
	S_ISUPPER,
	S_ISLOWER,
	S_REMOVEPREFIX,
	S_REMOVESUFFIX,
	S_PARTITION,
	S_RPARTITION,
	S_ZFILL,
	D_GET,
	D_ITEMS,
	D_KEYS,
	D_VALUES,
	D_COPY,
	L_INDEX,
	L_COUNT,
	L_COPY,
};

/* string_methods.c: method id of the string s; the number of arguments was checked. */
int string_call(struct run *r, int id, const struct value *s, const struct args *a,
		struct value *out);
