/* filters_private.h: what filters.c takes from list_filters.c. */
#pragma once

#include "model/jinja/jinja_private.h"

/* What is found under "a.b.0" of v; NULL or None gives v itself. */
int filter_path(struct run *r, const struct value *v, const struct value *path, struct value *out);
struct value list_value(struct list *l);
/* A new list of what iterating over v gives. */
int list_copy(struct run *r, const struct value *v, struct list **out);
/* Argument i, or the one called name, is given and true. */
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
