/* link.h: a doubly linked list with a head. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct link {
	struct link *prev, *next;
};

static inline void link_init(struct link *l) { l->prev = l->next = l; }

static inline bool link_empty(const struct link *l) { return l->next == l; }

static inline void link_append(struct link *head, struct link *l)
{
	l->prev = head->prev;
	l->next = head;
	head->prev->next = l;
	head->prev = l;
}

/* From whatever list it is in; it may be in none. */
static inline void link_remove(struct link *l)
{
	l->prev->next = l->next;
	l->next->prev = l->prev;
	link_init(l);
}

#define link_entry(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))
