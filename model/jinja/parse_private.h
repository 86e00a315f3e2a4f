/* parse_private.h: what parse_expr.c and parse_primary.c share. */
#pragma once

#include "model/jinja/jinja_private.h"

/* parse_expr.c: a node over a and b, whose depth is checked. */
int parse_node(struct parser *p, enum node_kind kind, int op, uint32_t line, struct node *a,
	       struct node *b, struct node **out);

/* parse_primary.c */
int parse_primary(struct parser *p, struct node **out);
int parse_name(struct parser *p, struct node **out);
int parse_attribute(struct parser *p, struct node *of, struct node **out);
/* Any attributes, items and calls behind *n. */
int parse_postfix(struct parser *p, struct node **n);
/* Any filters and tests, and calls of what they give. */
int parse_filtered(struct parser *p, struct node **n);
