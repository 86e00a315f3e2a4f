/* filters_private.h: functions of list_filters.c that filters.c uses. */
#pragma once

#include "model/jinja/jinja_private.h"

/* The value at the path "a.b.0" of v; v itself for NULL or None. */
int filter_path(struct run *r, const struct value *v, const struct value *path, struct value *out);
/* A new list of v's items. */
int list_copy(struct run *r, const struct value *v, struct list **out);
/* Argument i, or the one called name, is there and true. */
bool arg_flag(const struct args *a, size_t i, const char *name);

enum { SELECT_TRUE = 1, SELECT_BY_ATTRIBUTE = 2 }; /* of filter_select */
callable filter_batch, filter_dictsort, filter_extreme, filter_first_or_last, filter_map,
	filter_reverse, filter_select, filter_sort, filter_unique;
