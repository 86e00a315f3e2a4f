/*
 * prefix.c: see prefix.h.  Only leaves are evicted, because the children of a node depend on it.
 * The list of candidates has the idle nodes without children in the order of last use.  A parent
 * whose last child is evicted gets that child's time of last use and is put at the old end of the
 * list.
 */
#include "prefix.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__APPLE__)
#include <sys/random.h>
#endif

#define MAX_ROOTS 256
#define MAX_LOOKS 64 /* children that prefix_nearest compares */

struct node {
	uint64_t salt;
	uint32_t root, parent;
	uint32_t n_busy;       /* users, and children that are not idle */
	uint32_t chain;	       /* the next with this hash, or the next free node */
	uint32_t child;	       /* the one that was added last; PREFIX_NONE: none */
	uint32_t prev, next;   /* its parent's other children */
	uint32_t older, newer; /* in the list of candidates */
	uint64_t stamp;	       /* when it became one: ascending in the list */
	uint32_t n_groups;     /* 0: not in use */
	int32_t tokens[IG_BLOCK_TOKENS];
	uint32_t blocks[PREFIX_MAX_GROUPS];
	struct state *state; /* NULL: none */
};

struct prefix {
	struct node *nodes;
	uint32_t max_nodes, n_touched; /* nodes from n_touched on were never used */
	uint32_t free;
	uint32_t *heads;  /* [n_heads] by hash */
	uint32_t n_heads; /* a power of two */
	uint32_t oldest, newest;
	uint64_t time; /* of the last stamp */
	uint64_t key[2];
	uint64_t n_idle[MAX_ROOTS];
};

struct prefix *prefix_create(uint32_t max_nodes)
{
	struct prefix *p = calloc(1, sizeof *p);

	if (!p)
		return NULL;
	p->max_nodes = max_nodes;
	for (p->n_heads = 16; p->n_heads < max_nodes && p->n_heads < 1u << 30;)
		p->n_heads *= 2;
	/* a large calloc is backed by pages only when they are used */
	p->nodes = calloc(max_nodes, sizeof *p->nodes);
	p->heads = calloc(p->n_heads, sizeof *p->heads);
	if (!p->nodes || !p->heads || getentropy(p->key, sizeof p->key)) {
		prefix_destroy(p);
		return NULL;
	}
	p->free = p->oldest = p->newest = PREFIX_NONE;
	return p;
}

void prefix_destroy(struct prefix *p)
{
	if (!p)
		return;
	free(p->nodes);
	free(p->heads);
	free(p);
}

/* ---- finding --------------------------------------------------------------------- */

/* Multiply and fold, eight bytes at a time, from a random start. */
static uint64_t fold(uint64_t h, uint64_t v)
{
	unsigned __int128 m = (unsigned __int128)(h ^ v) * 0x9e3779b97f4a7c15u;
	return (uint64_t)m ^ (uint64_t)(m >> 64);
}

static uint32_t *head_of(const struct prefix *p, uint32_t root, uint64_t salt, uint32_t parent,
			 const int32_t *tokens)
{
	uint64_t h = fold(fold(p->key[0], salt), (uint64_t)root << 32 | parent);
	for (int i = 0; i < IG_BLOCK_TOKENS; i += 2)
		h = fold(h ^ p->key[1],
			 (uint64_t)(uint32_t)tokens[i] << 32 | (uint32_t)tokens[i + 1]);
	return &p->heads[(h ^ h >> 32) & (p->n_heads - 1)];
}

/* Heads and chains hold numbers plus one, so that zeroed memory is an empty table. */
uint32_t prefix_find(const struct prefix *p, uint32_t root, uint64_t salt, uint32_t parent,
		     const int32_t *tokens)
{
	for (uint32_t i = *head_of(p, root, salt, parent, tokens); i; i = p->nodes[i - 1].chain) {
		const struct node *n = &p->nodes[i - 1];
		if (n->parent == parent && n->root == root && n->salt == salt &&
		    !memcmp(n->tokens, tokens, sizeof n->tokens))
			return i - 1;
	}
	return PREFIX_NONE;
}

uint32_t prefix_nearest(const struct prefix *p, uint32_t node, const int32_t *tokens, uint32_t n,
			uint32_t *n_same)
{
	uint32_t best = PREFIX_NONE, i = p->nodes[node].child;

	*n_same = 0;
	for (int looks = 0; looks < MAX_LOOKS && i != PREFIX_NONE; looks++, i = p->nodes[i].next) {
		const struct node *c = &p->nodes[i];
		uint32_t same = 0;

		while (same < n && same < IG_BLOCK_TOKENS && c->tokens[same] == tokens[same])
			same++;
		if (same > *n_same) {
			*n_same = same;
			best = i;
		}
	}
	return best;
}

const uint32_t *prefix_blocks(const struct prefix *p, uint32_t node, uint32_t *n_groups)
{
	*n_groups = p->nodes[node].n_groups;
	return p->nodes[node].blocks;
}

uint32_t prefix_parent(const struct prefix *p, uint32_t node) { return p->nodes[node].parent; }

struct state *prefix_state(const struct prefix *p, uint32_t node) { return p->nodes[node].state; }

void prefix_set_state(struct prefix *p, uint32_t node, struct state *state)
{
	p->nodes[node].state = state;
}

void prefix_set_block(struct prefix *p, uint32_t node, uint32_t i, uint32_t word)
{
	p->nodes[node].blocks[i] = word;
}

void prefix_move_blocks(struct prefix *p, uint32_t slab, const uint32_t *words)
{
	for (uint32_t i = 0; i < p->n_touched; i++) {
		struct node *n = &p->nodes[i];
		for (uint32_t g = 0; g < n->n_groups; g++)
			if (n->blocks[g] != IG_BLOCK_NONE && IG_BLOCK_SLAB(n->blocks[g]) == slab)
				n->blocks[g] = words[IG_BLOCK_INDEX(n->blocks[g])];
	}
}

/* ---- candidates ---------------------------------------------------------------------- */

uint64_t prefix_tick(struct prefix *p) { return ++p->time; }

uint64_t prefix_oldest(const struct prefix *p)
{
	return p->oldest == PREFIX_NONE ? UINT64_MAX : p->nodes[p->oldest].stamp;
}

static void list_remove(struct prefix *p, uint32_t i)
{
	struct node *n = &p->nodes[i];

	if (n->older != PREFIX_NONE)
		p->nodes[n->older].newer = n->newer;
	else
		p->oldest = n->newer;
	if (n->newer != PREFIX_NONE)
		p->nodes[n->newer].older = n->older;
	else
		p->newest = n->older;
}

static void list_add_newest(struct prefix *p, uint32_t i)
{
	struct node *n = &p->nodes[i];

	n->stamp = prefix_tick(p);
	n->older = p->newest;
	n->newer = PREFIX_NONE;
	if (n->older != PREFIX_NONE)
		p->nodes[n->older].newer = i;
	else
		p->oldest = i;
	p->newest = i;
}

static void list_add_oldest(struct prefix *p, uint32_t i, uint64_t stamp)
{
	struct node *n = &p->nodes[i];

	n->stamp = stamp < prefix_oldest(p) ? stamp : prefix_oldest(p);
	n->older = PREFIX_NONE;
	n->newer = p->oldest;
	if (n->newer != PREFIX_NONE)
		p->nodes[n->newer].older = i;
	else
		p->newest = i;
	p->oldest = i;
}

static bool is_candidate(const struct node *n) { return !n->n_busy && n->child == PREFIX_NONE; }

/* One more user of the node; the first one makes its parent busy too. */
void prefix_use(struct prefix *p, uint32_t i)
{
	for (; i != PREFIX_NONE; i = p->nodes[i].parent) {
		struct node *n = &p->nodes[i];
		if (is_candidate(n))
			list_remove(p, i);
		if (n->n_busy++)
			return;
		p->n_idle[n->root]--;
	}
}

void prefix_unuse(struct prefix *p, uint32_t i)
{
	for (; i != PREFIX_NONE; i = p->nodes[i].parent) {
		struct node *n = &p->nodes[i];
		if (--n->n_busy)
			return;
		p->n_idle[n->root]++;
		if (is_candidate(n))
			list_add_newest(p, i);
	}
}

/* ---- adding and removing ---------------------------------------------------------------- */

static void add_child(struct prefix *p, uint32_t i)
{
	struct node *n = &p->nodes[i], *parent = &p->nodes[n->parent];

	if (is_candidate(parent))
		list_remove(p, n->parent);
	n->next = parent->child;
	if (n->next != PREFIX_NONE)
		p->nodes[n->next].prev = i;
	parent->child = i;
}

static void remove_child(struct prefix *p, const struct node *n)
{
	struct node *parent = &p->nodes[n->parent];

	if (n->prev != PREFIX_NONE)
		p->nodes[n->prev].next = n->next;
	else
		parent->child = n->next;
	if (n->next != PREFIX_NONE)
		p->nodes[n->next].prev = n->prev;
	if (is_candidate(parent))
		list_add_oldest(p, n->parent, n->stamp);
}

uint32_t prefix_add(struct prefix *p, uint32_t root, uint64_t salt, uint32_t parent,
		    const int32_t *tokens, const uint32_t *blocks, uint32_t n_groups)
{
	uint32_t i = p->free, *head;

	if (root >= MAX_ROOTS || n_groups < 1 || n_groups > PREFIX_MAX_GROUPS)
		return PREFIX_NONE;
	if (i != PREFIX_NONE)
		p->free = p->nodes[i].chain;
	else if (p->n_touched < p->max_nodes)
		i = p->n_touched++;
	else
		return PREFIX_NONE;
	struct node *n = &p->nodes[i];
	*n = (struct node){ .salt = salt,
			    .root = root,
			    .parent = parent,
			    .n_groups = n_groups,
			    .child = PREFIX_NONE,
			    .prev = PREFIX_NONE,
			    .next = PREFIX_NONE };
	memcpy(n->tokens, tokens, sizeof n->tokens);
	memcpy(n->blocks, blocks, n_groups * sizeof *blocks);
	head = head_of(p, root, salt, parent, tokens);
	n->chain = *head;
	*head = i + 1;
	if (parent != PREFIX_NONE)
		add_child(p, i);
	p->n_idle[root]++;
	list_add_newest(p, i);
	return i;
}

static void take_out(struct prefix *p, uint32_t i, struct prefix_gone *gone)
{
	struct node *n = &p->nodes[i];
	uint32_t *at = head_of(p, n->root, n->salt, n->parent, n->tokens);

	while (*at != i + 1)
		at = &p->nodes[*at - 1].chain;
	*at = n->chain;
	list_remove(p, i);
	p->n_idle[n->root]--;
	gone->n_groups = n->n_groups;
	memcpy(gone->blocks, n->blocks, n->n_groups * sizeof *n->blocks);
	gone->state = n->state;
	if (n->parent != PREFIX_NONE)
		remove_child(p, n);
	n->n_groups = 0;
	n->chain = p->free;
	p->free = i;
}

bool prefix_evict(struct prefix *p, struct prefix_gone *gone)
{
	if (p->oldest == PREFIX_NONE)
		return false;
	take_out(p, p->oldest, gone);
	return true;
}

bool prefix_evict_root(struct prefix *p, uint32_t root, struct prefix_gone *gone)
{
	for (uint32_t i = p->oldest; i != PREFIX_NONE; i = p->nodes[i].newer) {
		if (p->nodes[i].root != root)
			continue;
		take_out(p, i, gone);
		return true;
	}
	return false;
}

uint64_t prefix_n_idle(const struct prefix *p, uint32_t root)
{
	return root < MAX_ROOTS ? p->n_idle[root] : 0;
}
