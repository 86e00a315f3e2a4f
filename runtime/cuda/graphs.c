/*
 * graphs.c: recordings of a tape as CUDA graphs, one for each bucket of live counts.  Launching a
 * graph takes the host microseconds; launching its kernels one by one takes longer than the GPU
 * needs for a small model's step.  Counts are rounded up to the bucket's maximum, which determines
 * the grids; surplus threadgroups exit immediately.  The set of dispatches that run depends on the
 * exact counts and is part of the bucket.  Dispatches between two barriers become nodes without
 * edges between them, which the GPU runs concurrently.  In steps of few rows a kernel of sm_90 that
 * follows one other begins while that one's last threadgroups run, and waits itself (tools/msl/entry.py): its start,
 * and what it reads of its weights before it waits, cost nothing.  A bucket whose kernels are those of another one gets
 * that one's recording with other grids.  At MAX_GRAPHS the least recently used recording is replaced.
 */
#include "base/clock.h"
#include "base/log.h"
#include "runtime/cuda/cuda_private.h"
#include "shaders/args.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A recording of 400 kernels takes about 1 MB of host and device memory together. */
#define MAX_GRAPHS 128
/* Of recordings with the same kernels at most so many.  The grids of the one used longest ago are changed instead of
 * recording another one, which on an H200 takes 0.1 ms where recording takes 1 to 8: until that was done so often that a
 * recording would have cost less. */
#define MAX_ALIKE 2
#define CHANGES 16
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
	_Alignas(8) uint8_t args[IG_GPU_MAX_ARGS];
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
	CUgraphExec exec;   /* NULL: nothing runs in such a step */
	CUgraph graph;	    /* that exec was made of */
	CUgraphNode *nodes; /* [tape->n_dispatches] of it; NULL: not in it */
	uint64_t used;	    /* value of `clock` at the last use */
	uint32_t n_changes; /* of its grids */
};

struct ig_cuda_graphs {
	struct ig_cuda *d;
	const struct ig_gpu_tape *tape;
	const struct ig_gpu_place *places;
	struct launch *launches; /* [tape->n_dispatches] */
	struct condition conditions[MAX_CONDITIONS];
	uint32_t n_conditions;
	bool follows[IG_N_LIVE]; /* a grid depends on the count */
	bool records;		 /* a dispatch is an exchange that is recorded, not a kernel */
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

/* Whether the i-th dispatch is in a bucket's recording, and its grid. */
static bool is_recorded(const struct ig_cuda_graphs *g, const struct key *key, uint32_t i,
			uint32_t grid[3])
{
	const struct ig_gpu_tape_dispatch *d = &g->tape->dispatches[i];

	return (key->runs >> g->launches[i].condition & 1) &&
	       (!ig_gpu_tape_of_head(g->tape, d) || key->live[IG_LIVE_HEAD]) &&
	       grid_of(&d->d, key, grid);
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

static bool has_few_rows(const struct key *key) { return key->live[IG_LIVE_ROWS] <= OVERLAP_ROWS; }

/* Whether the i-th kernel may begin while the one before it runs, if it follows one alone. */
static bool may_overlap(const struct ig_cuda_graphs *g, const struct key *key, uint32_t i)
{
	return g->launches[i].waits && has_few_rows(key) && g->d->cu.graph_add_edges &&
	       !atomic_load(&g->d->plain_edges);
}

/* The rows that an exchange sends: no more than its values have memory for, which may be fewer than a bucket's. */
static uint32_t rows_sent(const struct ig_gpu_tape *t, const struct ig_gpu_tape_dispatch *d,
			  uint32_t rows)
{
	const struct ig_gpu_tape_buffer *b = &t->buffers[d->d.bind[0].ref.buffer];
	uint64_t most = b->n_bytes / b->row_bytes;

	return rows < most ? rows : (uint32_t)most;
}

/* The arguments of an exchange that a kernel does; NULL: it is none. */
static struct exchange_args *exchange_of(const struct ig_cuda_graphs *g, uint32_t i)
{
	return g->tape->dispatches[i].exchange && !g->records ?
		       (struct exchange_args *)g->launches[i].args :
		       NULL;
}

/* grid[0] of an exchange is rows: its kernel's grid, and whether it has a turn. */
static bool grid_of_exchange(const struct ig_cuda_graphs *g, uint32_t i, uint32_t grid[3])
{
	return !ig_cuda_exchange_grid(exchange_of(g, i),
				      rows_sent(g->tape, &g->tape->dispatches[i], grid[0]), grid);
}

/* The turns of a bucket's exchanges, into their kernels' arguments. */
static void set_turns(struct ig_cuda_graphs *g, const struct key *key)
{
	struct exchange_args *last = NULL;
	uint32_t n = 0, grid[3];

	for (uint32_t i = 0; i < g->tape->n_dispatches; i++) {
		struct exchange_args *args = exchange_of(g, i);
		if (!args || !is_recorded(g, key, i, grid))
			continue;
		args->turn = args->n_turns = 0;
		if (!grid_of_exchange(g, i, grid))
			continue;
		args->turn = ++n;
		last = args;
	}
	if (last)
		last->n_turns = n;
}

static CUkernelNodeParams node_params(struct ig_cuda_graphs *g, uint32_t i, const uint32_t grid[3])
{
	const struct ig_gpu_dispatch *d = &g->tape->dispatches[i].d;

	return (CUkernelNodeParams){
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
}

/* overlaps: it begins while the one before it runs, and waits itself. */
static int add_node(struct ig_cuda_graphs *g, CUgraph graph, uint32_t i, const uint32_t grid[3],
		    uint32_t n_before, bool overlaps, CUgraphNode *node, struct ig_error *err)
{
	static const CUgraphEdge edge = { .from_port = CU_PORT_PROGRAMMATIC,
					  .type = CU_EDGE_PROGRAMMATIC };
	const struct ig_gpu_dispatch *d = &g->tape->dispatches[i].d;
	const CUkernelNodeParams p = node_params(g, i, grid);
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

/* Record all dispatches of the bucket; *n_nodes 0: there are none.  *any_overlap: a kernel begins
 * while another one runs. */
static int record(struct ig_cuda_graphs *g, struct graph *to, uint32_t *n_nodes, bool *any_overlap,
		  struct ig_error *err)
{
	const struct key *key = &to->key;
	CUgraph graph = to->graph;
	uint32_t n_before = 0, n_now = 0;
	bool barrier = false, empty = false; /* before[0] is no kernel */
	bool recorded = false;		     /* one of now[] is none */
	int rc = 0;

	*n_nodes = 0;
	*any_overlap = false;
	set_turns(g, key);
	for (uint32_t i = 0; i < g->tape->n_dispatches; i++) {
		const struct ig_gpu_tape_dispatch *d = &g->tape->dispatches[i];
		uint32_t grid[3];

		/* a barrier also applies if its own dispatch does not run */
		barrier = barrier || d->barrier;
		if (!is_recorded(g, key, i, grid))
			continue;
		if (barrier && n_now) {
			CUgraphNode *t = g->before;
			g->before = g->now;
			g->now = t;
			n_before = n_now;
			n_now = 0;
			empty = recorded;
			recorded = false;
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
		bool is_kernel = !d->exchange || !g->records;
		bool overlaps = is_kernel && n_before == 1 && !empty && may_overlap(g, key, i);
		if (exchange_of(g, i))
			grid_of_exchange(g, i, grid);
		rc = !is_kernel ?
			     ig_cuda_record_exchange(g->d, d, g->places,
						     rows_sent(g->tape, d, grid[0]), graph,
						     g->before, n_before, &g->now[n_now], err) :
			     add_node(g, graph, i, grid, n_before, overlaps, &g->now[n_now], err);
		if (rc)
			return rc;
		to->nodes[i] = g->now[n_now];
		*any_overlap = *any_overlap || overlaps;
		recorded = recorded || !is_kernel;
		n_now++;
		(*n_nodes)++;
	}
	return 0;
}

static void free_graph(struct ig_cuda_graphs *g, struct graph *at)
{
	/* The library frees a running graph when it has finished. */
	if (at->exec)
		g->d->cu.graph_exec_destroy(at->exec);
	if (at->graph)
		g->d->cu.graph_destroy(at->graph);
	free(at->nodes);
	*at = (struct graph){ .key = at->key };
}

static int try_graph(struct ig_cuda_graphs *g, struct graph *to, bool *overlap,
		     struct ig_error *err)
{
	uint32_t n_nodes = 0;
	int rc;

	*overlap = false;
	to->nodes = calloc(g->tape->n_dispatches + 1, sizeof(CUgraphNode));
	rc = to->nodes ? CUDA(g->d, graph_create(&to->graph, 0), "creating a graph", err) :
			 ig_fail(err, -ENOMEM, "cuda: no memory for a graph");
	if (!rc)
		rc = record(g, to, &n_nodes, overlap, err);
	if (!rc && n_nodes)
		rc = CUDA(g->d, graph_instantiate(&to->exec, to->graph, 0), "making a graph ready",
			  err);
	if (rc)
		free_graph(g, to);
	return rc;
}

/* Record to->key.  A driver that refuses kernels which overlap runs them one after the other. */
static int make_graph(struct ig_cuda_graphs *g, struct graph *to, struct ig_error *err)
{
	struct ig_error first = { 0 };
	bool overlap;
	int rc = try_graph(g, to, &overlap, &first);

	if (rc == -EIO && overlap) {
		ig_log_warn("%s: kernels run one after the other", first.text);
		atomic_store(&g->d->plain_edges, true);
		return try_graph(g, to, &overlap, err);
	}
	if (rc && err)
		*err = first;
	return rc;
}

/* ---- changing ---------------------------------------------------------------------------- */

/* Whether a recording has the bucket's kernels and what they wait for; grids may differ. */
static bool is_alike(const struct ig_cuda_graphs *g, const struct graph *at, const struct key *key)
{
	uint32_t grid[3];

	if (!at->exec || at->key.runs != key->runs || g->records ||
	    at->key.live[IG_LIVE_HEAD] != key->live[IG_LIVE_HEAD] ||
	    has_few_rows(&at->key) != has_few_rows(key))
		return false;
	for (uint32_t i = 0; i < g->tape->n_dispatches; i++)
		if (is_recorded(g, key, i, grid) != (at->nodes[i] != NULL))
			return false;
	return true;
}

/* Change the grids of a recording that is alike; steps under way keep theirs. */
static int change(struct ig_cuda_graphs *g, struct graph *at, const struct key *key,
		  struct ig_error *err)
{
	int rc = 0;

	set_turns(g, key);
	for (uint32_t i = 0; i < g->tape->n_dispatches && !rc; i++) {
		const struct ig_gpu_dispatch *d = &g->tape->dispatches[i].d;
		uint32_t before[3], now[3];
		if (!at->nodes[i])
			continue;
		grid_of(d, &at->key, before);
		grid_of(d, key, now);
		if (exchange_of(g, i)) /* also its turn may be another one */
			grid_of_exchange(g, i, now);
		else if (!memcmp(before, now, sizeof now))
			continue;
		const CUkernelNodeParams p = node_params(g, i, now);
		rc = check_grid(d, now, err);
		if (!rc)
			rc = CUDA(g->d, graph_exec_set(at->exec, at->nodes[i], &p),
				  "changing a grid", err);
	}
	at->key = *key;
	return rc;
}

/* A recording of a bucket that has none yet, in place of another one if necessary. */
static int add_graph(struct ig_cuda_graphs *g, const struct key *key, struct graph **out,
		     struct ig_error *err)
{
	struct graph *oldest = &g->graphs[0], *alike = NULL, *to;
	uint32_t n_alike = 0;
	int rc;

	for (uint32_t i = 0; i < g->n_graphs; i++) {
		struct graph *at = &g->graphs[i];
		if (at->used < oldest->used)
			oldest = at;
		if (!is_alike(g, at, key))
			continue;
		n_alike++;
		if (!alike || at->used < alike->used)
			alike = at;
	}
	if (n_alike >= MAX_ALIKE || (n_alike && alike->n_changes < CHANGES)) {
		to = alike;
		to->n_changes++;
		rc = change(g, to, key, err);
	} else {
		to = g->n_graphs < MAX_GRAPHS ? &g->graphs[g->n_graphs] : oldest;
		free_graph(g, to);
		to->key = *key;
		rc = make_graph(g, to, err);
	}
	if (rc) { /* it must not be found */
		free_graph(g, to);
		memset(&to->key, 0xff, sizeof to->key);
		to->used = 0;
	} else if (to == &g->graphs[g->n_graphs]) {
		g->n_graphs++;
	}
	*out = to;
	return rc;
}

int ig_cuda_graphs_prepare(struct ig_cuda_graphs *g, const uint32_t live[IG_N_LIVE],
			   struct ig_error *err)
{
	struct graph *at;
	struct key key;

	if (g->records) /* all ranks record one at the same time */
		return 0;
	make_key(g, live, &key);
	for (uint32_t i = 0; i < g->n_graphs; i++)
		if (is_alike(g, &g->graphs[i], &key) ||
		    !memcmp(&g->graphs[i].key, &key, sizeof key))
			return 0;
	return g->n_graphs < MAX_GRAPHS ? add_graph(g, &key, &at, err) : 0;
}

int ig_cuda_graphs_get(struct ig_cuda_graphs *g, const uint32_t live[IG_N_LIVE], CUgraphExec *exec,
		       struct ig_error *err)
{
	struct graph *at = NULL;
	struct key key;
	int64_t begin;
	int rc = 0;

	if (ig_cuda_is_left(g->d))
		return ig_fail(err, -EIO, "cuda: the other devices are not connected");
	make_key(g, live, &key);
	g->clock++;
	for (uint32_t i = 0; i < g->n_graphs && !at; i++)
		if (!memcmp(&g->graphs[i].key, &key, sizeof key))
			at = &g->graphs[i];
	if (!at) {
		begin = ig_now_ns();
		rc = add_graph(g, &key, &at, err);
		g->d->base.prepared_ns += ig_now_ns() - begin;
	}
	if (rc)
		return rc;
	at->used = g->clock;
	*exec = at->exec;
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

static int make_exchange(struct ig_cuda_graphs *g, uint32_t i, const struct ig_gpu_place *places,
			 CUdeviceptr step, struct ig_error *err)
{
	struct launch *l = &g->launches[i];
	int rc;

	if (!ig_cuda_by_kernel(g->d)) {
		g->records = true;
		return 0;
	}
	rc = ig_cuda_exchange_args(g->d, &g->tape->dispatches[i], places,
				   (struct exchange_args *)l->args, err);
	l->params[0] = l->args;
	l->params[1] = &l->address[0];
	l->address[0] = step;
	return rc ? rc : ig_cuda_exchange_function(g->d, &l->function, &l->waits, err);
}

static int make_launch(struct ig_cuda_graphs *g, uint32_t i, const struct ig_gpu_place *places,
		       CUdeviceptr step, struct ig_error *err)
{
	const struct ig_gpu_dispatch *d = &g->tape->dispatches[i].d;
	struct launch *l = &g->launches[i];
	uint32_t n = 0, n_maps = 0;
	int rc = 0;

	if (g->tape->dispatches[i].exchange)
		rc = make_exchange(g, i, places, step, err);
	else
		rc = ig_cuda_function(g->d, d, &l->function, &l->waits, err);
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
	g->follows[IG_LIVE_HEAD] = tape->first_head_node > 0;
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
		free_graph(g, &g->graphs[i]);
	for (uint32_t i = 0; g->launches && i < g->tape->n_dispatches; i++)
		free(g->launches[i].maps);
	free(g->launches);
	free(g->before);
	free(g->now);
	free(g);
}
