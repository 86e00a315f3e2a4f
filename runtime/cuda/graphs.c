/*
 * graphs.c: recordings of a tape as CUDA graphs, one for each bucket of live counts.  Launching a
 * graph takes the host microseconds; launching its kernels one by one takes longer than the GPU
 * needs for a small model's step.  Counts are rounded up to the bucket's maximum, which determines
 * the grids; surplus threadgroups exit immediately.  The set of dispatches that run depends on the
 * exact counts and is part of the bucket.  Dispatches between two barriers become nodes without
 * edges between them, which the GPU runs concurrently.  In steps of few rows a kernel of sm_90 that
 * follows one other begins while that one's last threadgroups run, and waits itself (tools/msl/entry.py): its start,
 * and what it reads of its weights before it waits, cost nothing.  At MAX_GRAPHS the least recently
 * used recording is replaced.
 */
#include "base/log.h"
#include "runtime/cuda/cuda_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A recording of 400 kernels takes about 1 MB of host and device memory together. */
#define MAX_GRAPHS 128
/* With more edges between two groups of nodes, an empty node is put between them. */
#define MAX_EDGES 64
#define MAX_CONDITIONS 64
/* Kernels overlap in steps of at most so many rows.  With many, other threadgroups take the room of
 * those that multiply: a prefill of experts took 4 % longer, one without gained nothing. */
#define OVERLAP_ROWS 128

/* The launch parameters of a dispatch; only the grid differs between graphs. */
struct launch {
	CUfunction function;
	bool waits; /* itself, for the kernels before it */
	uint8_t args[IG_GPU_MAX_ARGS];
	CUdeviceptr address[1 + IG_GPU_MAX_BINDS]; /* the step, then operands */
	CUtensorMap *maps;			   /* of operands with a box; NULL: none */
	void *params[2 + IG_GPU_MAX_BINDS];
	uint32_t condition; /* index in conditions */
};

struct condition {
	uint32_t live, min, max;
};

struct key {
	uint64_t runs; /* bit i: condition i holds */
	/* rounded up; 0 for counts that no grid uses; one more where their number is odd */
	uint32_t live[(IG_N_LIVE + 1) / 2 * 2];
};
_Static_assert(sizeof(struct key) == 8 + (IG_N_LIVE + 1) / 2 * 8, "keys are compared byte by byte");

struct graph {
	struct key key;
	CUgraphExec exec; /* NULL: nothing runs in such a step */
	uint64_t used;	  /* value of `clock` at the last use */
};

struct ig_cuda_graphs {
	struct ig_cuda *d;
	const struct ig_gpu_tape *tape;
	const struct ig_gpu_place *places;
	struct launch *launches; /* [tape->n_dispatches] */
	struct condition conditions[MAX_CONDITIONS];
	uint32_t n_conditions;
	bool follows[IG_N_LIVE]; /* a grid depends on the count */
	struct graph graphs[MAX_GRAPHS];
	uint32_t n_graphs;
	uint64_t clock;
	/* for recording: nodes of the group before, and of the current one */
	CUgraphNode *before, *now;
};

/* ---- buckets ----------------------------------------------------------------------- */

/* Rows: 1, 2, 4, … 64, then multiples of 64, and of an eighth of the power of two below where that is
 * more: kernels take them in tiles of up to 64.  Other counts by fours up to 16, as a step beside
 * prompts has a new combination each time, and a recording takes as long as a step of a small
 * model. */
static uint32_t round_count(uint32_t n, uint32_t kind)
{
	uint32_t to = 1;

	if (n <= 1)
		return n;
	if (n > UINT32_MAX / 2)
		return n;
	while (to < n)
		to *= 2;
	if (kind != IG_LIVE_ROWS && to < 16)
		to = to <= 4 ? 4 : 16;
	if (to > 64) {
		uint32_t step = to / 16 > 64 ? to / 16 : 64;
		to = (n + step - 1) / step * step;
	}
	return to;
}

static void make_key(const struct ig_cuda_graphs *g, const uint32_t live[IG_N_LIVE],
		     struct key *key)
{
	memset(key, 0, sizeof *key);
	for (uint32_t i = 0; i < IG_N_LIVE; i++)
		if (g->follows[i])
			key->live[i] = round_count(live[i], i);
	for (uint32_t i = 0; i < g->n_conditions; i++) {
		const struct condition *c = &g->conditions[i];
		if (live[c->live] >= c->min && live[c->live] <= c->max)
			key->runs |= (uint64_t)1 << i;
	}
}

/* The grid for a bucket; false: an extent is zero. */
static bool grid_of(const struct ig_gpu_dispatch *d, const struct key *key, uint32_t grid[3])
{
	/* key->runs has the condition */
	struct ig_gpu_dispatch always = *d;
	always.when_live = IG_LIVE_ONE;
	always.when_min = 0;
	always.when_max = UINT32_MAX;
	return ig_gpu_dispatch_grid(&always, key->live, grid);
}

/* ---- recording ------------------------------------------------------------------------- */

static int check_grid(const struct ig_gpu_dispatch *d, const uint32_t grid[3], struct ig_error *err)
{
	if (grid[0] <= INT32_MAX && grid[1] <= 65535 && grid[2] <= 65535)
		return 0;
	return ig_fail(err, -EINVAL,
		       "cuda: kernel %s: a grid of %u x %u x %u groups, at most %d x "
		       "65535 x 65535 are possible",
		       d->kernel, grid[0], grid[1], grid[2], INT32_MAX);
}

/* Whether the i-th kernel may begin while the one before it runs, if it follows one alone. */
static bool may_overlap(const struct ig_cuda_graphs *g, const struct key *key, uint32_t i)
{
	return g->launches[i].waits && key->live[IG_LIVE_ROWS] <= OVERLAP_ROWS &&
	       g->d->cu.graph_add_edges && !atomic_load(&g->d->plain_edges);
}

/* overlaps: it begins while the one before it runs, and waits itself. */
static int add_node(struct ig_cuda_graphs *g, CUgraph graph, uint32_t i, const uint32_t grid[3],
		    uint32_t n_before, bool overlaps, CUgraphNode *node, struct ig_error *err)
{
	static const CUgraphEdge edge = { .from_port = CU_PORT_PROGRAMMATIC,
					  .type = CU_EDGE_PROGRAMMATIC };
	const struct ig_gpu_dispatch *d = &g->tape->dispatches[i].d;
	const CUkernelNodeParams p = {
		.func = g->launches[i].function,
		.grid_x = grid[0],
		.grid_y = grid[1],
		.grid_z = grid[2],
		.block_x = d->threads,
		.block_y = 1,
		.block_z = 1,
		.shared_bytes = d->threadgroup_bytes,
		.params = g->launches[i].params,
	};
	const CUnodeAttribute cluster = { .cluster = { d->cluster, 1, 1 } };
	int rc = check_grid(d, grid, err);

	if (!rc)
		rc = CUDA(g->d,
			  graph_add_kernel(node, graph, g->before, overlaps ? 0 : n_before, &p),
			  "recording a kernel", err);
	if (!rc && overlaps)
		rc = CUDA(g->d, graph_add_edges(graph, g->before, node, &edge, 1),
			  "recording what a kernel waits for", err);
	if (!rc && d->cluster > 1)
		rc = CUDA(g->d, graph_set_attribute(*node, CU_NODE_CLUSTER, &cluster),
			  "recording a kernel's clusters", err);
	return rc;
}

/* The rows that an exchange sends: no more than its values have memory for, which may be fewer than a bucket's. */
static uint32_t rows_sent(const struct ig_gpu_tape *t, const struct ig_gpu_tape_dispatch *d,
			  uint32_t rows)
{
	const struct ig_gpu_tape_buffer *b = &t->buffers[d->d.bind[0].ref.buffer];
	uint64_t most = b->n_bytes / b->row_bytes;

	return rows < most ? rows : (uint32_t)most;
}

/* Record all dispatches of the bucket; *n_nodes 0: there are none.  *any_overlap: a kernel begins
 * while another one runs. */
static int record(struct ig_cuda_graphs *g, const struct key *key, CUgraph graph, uint32_t *n_nodes,
		  bool *any_overlap, struct ig_error *err)
{
	uint32_t n_before = 0, n_now = 0;
	bool barrier = false, empty = false; /* before[0] is no kernel */
	bool exchanged = false;		     /* one of now[] is none */
	int rc = 0;

	*n_nodes = 0;
	*any_overlap = false;
	for (uint32_t i = 0; i < g->tape->n_dispatches; i++) {
		const struct ig_gpu_tape_dispatch *d = &g->tape->dispatches[i];
		uint32_t grid[3];

		/* a barrier also applies if its own dispatch does not run */
		barrier = barrier || d->barrier;
		if (!(key->runs >> g->launches[i].condition & 1) ||
		    (d->of_head && !key->live[IG_LIVE_HEAD]) || !grid_of(&d->d, key, grid))
			continue;
		if (barrier && n_now) {
			CUgraphNode *t = g->before;
			g->before = g->now;
			g->now = t;
			n_before = n_now;
			n_now = 0;
			empty = exchanged;
			exchanged = false;
		}
		barrier = false;
		if (n_before > 1 && n_now * n_before > MAX_EDGES) {
			CUgraphNode all;
			if ((rc = CUDA(g->d, graph_add_empty(&all, graph, g->before, n_before),
				       "recording a barrier", err)))
				return rc;
			g->before[0] = all;
			n_before = 1;
			empty = true;
		}
		bool overlaps = !d->exchange && n_before == 1 && !empty && may_overlap(g, key, i);
		rc = d->exchange ?
			     ig_cuda_record_exchange(g->d, d, g->places,
						     rows_sent(g->tape, d, grid[0]), graph,
						     g->before, n_before, &g->now[n_now], err) :
			     add_node(g, graph, i, grid, n_before, overlaps, &g->now[n_now], err);
		if (rc)
			return rc;
		*any_overlap = *any_overlap || overlaps;
		exchanged = exchanged || d->exchange;
		n_now++;
		(*n_nodes)++;
	}
	return 0;
}

static int try_graph(struct ig_cuda_graphs *g, const struct key *key, CUgraphExec *exec,
		     bool *overlap, struct ig_error *err)
{
	CUgraph graph = NULL;
	uint32_t n_nodes = 0;
	int rc = CUDA(g->d, graph_create(&graph, 0), "creating a graph", err);

	*exec = NULL;
	*overlap = false;
	if (rc)
		return rc;
	rc = record(g, key, graph, &n_nodes, overlap, err);
	if (!rc && n_nodes)
		rc = CUDA(g->d, graph_instantiate(exec, graph, 0), "making a graph ready", err);
	g->d->cu.graph_destroy(graph);
	return rc;
}

/* A driver that refuses kernels which overlap runs them one after the other. */
static int make_graph(struct ig_cuda_graphs *g, const struct key *key, CUgraphExec *exec,
		      struct ig_error *err)
{
	struct ig_error first = { 0 };
	bool overlap;
	int rc = try_graph(g, key, exec, &overlap, &first);

	if (rc == -EIO && overlap) {
		ig_log_warn("%s: kernels run one after the other", first.text);
		atomic_store(&g->d->plain_edges, true);
		return try_graph(g, key, exec, &overlap, err);
	}
	if (rc && err)
		*err = first;
	return rc;
}

int ig_cuda_graphs_get(struct ig_cuda_graphs *g, const uint32_t live[IG_N_LIVE], CUgraphExec *exec,
		       struct ig_error *err)
{
	struct graph *oldest = &g->graphs[0], *to;
	struct key key;
	CUgraphExec made;
	int rc;

	make_key(g, live, &key);
	g->clock++;
	for (uint32_t i = 0; i < g->n_graphs; i++) {
		struct graph *at = &g->graphs[i];
		if (!memcmp(&at->key, &key, sizeof key)) {
			at->used = g->clock;
			*exec = at->exec;
			return 0;
		}
		if (at->used < oldest->used)
			oldest = at;
	}
	if ((rc = make_graph(g, &key, &made, err)))
		return rc;
	to = g->n_graphs < MAX_GRAPHS ? &g->graphs[g->n_graphs++] : oldest;
	/* The library frees a running graph when it has finished. */
	if (to->exec)
		g->d->cu.graph_exec_destroy(to->exec);
	*to = (struct graph){ key, made, g->clock };
	*exec = made;
	return 0;
}

/* ---- creation ------------------------------------------------------------------------------ */

static int find_condition(struct ig_cuda_graphs *g, const struct ig_gpu_dispatch *d,
			  uint32_t *index, struct ig_error *err)
{
	const struct condition c = { d->when_live, d->when_min, d->when_max };

	for (*index = 0; *index < g->n_conditions; (*index)++)
		if (!memcmp(&g->conditions[*index], &c, sizeof c))
			return 0;
	if (g->n_conditions == MAX_CONDITIONS)
		return ig_fail(err, -E2BIG, "cuda: a plan with more than %d different conditions",
			       MAX_CONDITIONS);
	g->conditions[g->n_conditions++] = c;
	return 0;
}

/* The tensor map of a matrix that a kernel copies in boxes. */
static int make_map(struct ig_cuda_graphs *g, const struct ig_gpu_dispatch *d,
		    const struct ig_gpu_box *box, CUdeviceptr at, CUtensorMap *map,
		    struct ig_error *err)
{
	const uint64_t sizes[] = { box->n_cols, box->n_rows }, strides[] = { box->row_bytes };
	const uint32_t boxes[] = { 64, box->box_rows }, next[] = { 1, 1 };
	char what[160];

	memset(map, 0, sizeof *map);
	if (!at)
		return 0;
	snprintf(what, sizeof what, "describing a matrix to kernel %s", d->kernel);
	return CUDA(g->d,
		    tensor_map(map, CU_MAP_UINT16, 2, (void *)(uintptr_t)at, sizes, strides, boxes,
			       next, CU_MAP_NOT_INTERLEAVED, CU_MAP_SWIZZLE_128B,
			       CU_MAP_PROMOTE_128B, CU_MAP_ZEROS_OUTSIDE),
		    what, err);
}

static int make_launch(struct ig_cuda_graphs *g, uint32_t i, const struct ig_gpu_place *places,
		       CUdeviceptr step, struct ig_error *err)
{
	const struct ig_gpu_dispatch *d = &g->tape->dispatches[i].d;
	struct launch *l = &g->launches[i];
	uint32_t n = 0, n_maps = 0;
	int rc = g->tape->dispatches[i].exchange ?
			 0 :
			 ig_cuda_function(g->d, d, &l->function, &l->waits, err);

	if (rc || (rc = find_condition(g, d, &l->condition, err)))
		return rc;
	for (int axis = 0; axis < 3; axis++)
		g->follows[d->grid[axis].live] = true;
	if (g->tape->dispatches[i].exchange)
		return 0;
	if (d->n_boxes) {
		l->maps = aligned_alloc(_Alignof(CUtensorMap), d->n_boxes * sizeof *l->maps);
		if (!l->maps)
			return ig_fail(err, -ENOMEM, "cuda: no memory for a program");
	}
	memcpy(l->args, d->args, d->n_arg_bytes);
	l->params[0] = l->args;
	l->params[1] = &l->address[n];
	l->address[n++] = step;
	for (uint32_t b = 0; b < d->n_binds; b++) {
		const struct ig_gpu_ref *ref = &d->bind[b].ref;
		if (d->bind[b].access & IG_GPU_TOUCH)
			continue;
		if (ref->buffer >= 0 && !places[ref->buffer].buffer)
			return ig_fail(err, -EINVAL, "cuda: kernel %s: operand %u has no memory",
				       d->kernel, b);
		l->address[n] = ref->buffer < 0 ? 0 :
						  places[ref->buffer].buffer->at +
							  places[ref->buffer].offset + ref->offset;
		l->params[1 + n] = &l->address[n];
		if (ig_cuda_box(d, b)) {
			if ((rc = make_map(g, d, ig_cuda_box(d, b), l->address[n], &l->maps[n_maps],
					   err)))
				return rc;
			l->params[1 + n] = &l->maps[n_maps++];
		}
		n++;
	}
	return 0;
}

int ig_cuda_graphs_create(struct ig_cuda *d, const struct ig_gpu_tape *tape,
			  const struct ig_gpu_place *places, CUdeviceptr step,
			  struct ig_cuda_graphs **out, struct ig_error *err)
{
	struct ig_cuda_graphs *g = calloc(1, sizeof *g);
	size_t n = tape->n_dispatches ? tape->n_dispatches : 1;
	int rc = 0;

	*out = NULL;
	if (!g)
		return ig_fail(err, -ENOMEM, "cuda: no memory");
	g->d = d;
	g->tape = tape;
	g->places = places;
	g->launches = calloc(n, sizeof *g->launches);
	g->before = calloc(n, sizeof *g->before);
	g->now = calloc(n, sizeof *g->now);
	if (!g->launches || !g->before || !g->now)
		rc = ig_fail(err, -ENOMEM, "cuda: no memory for a program");
	/* grids without a live count use IG_LIVE_ONE */
	g->follows[IG_LIVE_ONE] = true;
	g->follows[IG_LIVE_HEAD] = tape->has_head;
	for (uint32_t i = 0; !rc && i < tape->n_dispatches; i++)
		rc = make_launch(g, i, places, step, err);
	if (rc) {
		ig_cuda_graphs_destroy(g);
		return rc;
	}
	*out = g;
	return 0;
}

void ig_cuda_graphs_destroy(struct ig_cuda_graphs *g)
{
	if (!g)
		return;
	for (uint32_t i = 0; i < g->n_graphs; i++)
		if (g->graphs[i].exec)
			g->d->cu.graph_exec_destroy(g->graphs[i].exec);
	for (uint32_t i = 0; g->launches && i < g->tape->n_dispatches; i++)
		free(g->launches[i].maps);
	free(g->launches);
	free(g->before);
	free(g->now);
	free(g);
}
