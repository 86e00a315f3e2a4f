/* filters_private.h: functions of list_filters.c that filters.c uses. */
#ifndef INGOT_MODEL_JINJA_FILTERS_PRIVATE_H
#define INGOT_MODEL_JINJA_FILTERS_PRIVATE_H

#include "model/jinja/jinja_private.h"

/* The value at the path "a.b.0" of v; v itself for NULL or None. */
int filter_path(struct run *r, const struct value *v, const struct value *path, struct value *out);
/* A new list of v's items. */
int list_copy(struct run *r, const struct value *v, struct list **out);
/* Argument i, or the one called name, is there and true. */
bool arg_flag(const struct args *a, size_t i, const char *name);
int filter_sort(struct run *r, const struct value *v, const struct value *path, bool fold,
		bool reverse, struct value *out);
int filter_dictsort(struct run *r, const struct value *v, const struct args *a, struct value *out);
int filter_extreme(struct run *r, const struct value *v, const struct args *a, bool max,
		   struct value *out);
int filter_unique(struct run *r, const struct value *v, const struct args *a, struct value *out);
int filter_reverse(struct run *r, const struct value *v, struct value *out);
int filter_select(struct run *r, const struct value *v, const struct args *a, bool keep,
		  bool by_attr, struct value *out);
int filter_map(struct run *r, const struct value *v, const struct args *a, struct value *out);
int filter_batch(struct run *r, const struct value *v, const struct args *a, struct value *out);
int filter_first_or_last(struct run *r, const struct value *v, bool first, struct value *out);

#endif
