/* fake_libcuda.c: see fake_libcuda.h.  One thread at a time calls it. */
#include "fake_libcuda.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT extern struct fake_cuda fake_cuda;
struct fake_cuda fake_cuda;

struct CUctx_st {
	int unused;
};
struct CUmod_st {
	char *ptx;
};
struct CUfunc_st {
	CUmodule module;
	char name[64];
	unsigned n_args, n_operands;
	int shared;
};
struct CUgraphNode_st {
	bool empty;
	struct fake_run run;
};
struct CUgraph_st {
	struct CUgraphNode_st **nodes;
	int n;
};
struct CUgraphExec_st {
	struct fake_run *runs;
	const struct CUgraphNode_st **nodes; /* that they were made of */
	int n;
};

struct work {
	enum { COPY, FILL, RUN, EVENT } kind;
	void *dst;
	const void *src;
	size_t n;
	int with; /* FILL */
	struct fake_run *runs;
	CUevent event;
	struct work *next;
};
struct CUstream_st {
	struct work *first, **last;
};
struct CUevent_st {
	CUstream stream;
	bool recorded, done;
};

/* One piece of memory, the device's or pinned. */
struct piece {
	char *at;
	size_t n;
	bool device;
	struct piece *next;
};
static struct piece *pieces;
static struct CUctx_st context;
static CUcontext current;
static struct CUfunc_st functions[64];
static int n_functions;

static void misuse(const char *what)
{
	if (!fake_cuda.misuse[0])
		snprintf(fake_cuda.misuse, sizeof fake_cuda.misuse, "%s", what);
}

/* Whether this call is to fail, and how. */
static CUresult enter(const char *name, bool needs_context)
{
	fake_cuda.n_launches++;
	if (needs_context && current != &context)
		misuse(name);
	if (fake_cuda.lost)
		return fake_cuda.lost;
	if (!fake_cuda.fail || (strcmp(fake_cuda.fail, "*") && strcmp(fake_cuda.fail, name)))
		return CUDA_SUCCESS;
	if (!strcmp(fake_cuda.fail, "*") && fake_cuda.n_failing > fake_cuda.fail_after)
		return CUDA_SUCCESS; /* one call alone, unless it was sticky */
	if (fake_cuda.n_failing++ < fake_cuda.fail_after)
		return CUDA_SUCCESS;
	if (fake_cuda.fail_with == CUDA_ERROR_ILLEGAL_ADDRESS ||
	    fake_cuda.fail_with == CUDA_ERROR_LAUNCH_FAILED)
		fake_cuda.lost = fake_cuda.fail_with;
	return fake_cuda.fail_with;
}

#define ENTER(context)                                                                             \
	do {                                                                                       \
		CUresult entered = enter(__func__, context);                                       \
		if (entered)                                                                       \
			return entered;                                                            \
	} while (0)

#define FUNCTION(name, ...)                                                                        \
	EXPORT CUresult name(__VA_ARGS__);                                                         \
	CUresult name(__VA_ARGS__)

FUNCTION(cuInit, unsigned flags)
{
	ENTER(false);
	return CUDA_SUCCESS;
}

FUNCTION(cuDriverGetVersion, int *version)
{
	ENTER(false);
	*version = fake_cuda.version;
	return CUDA_SUCCESS;
}

FUNCTION(cuDeviceGetCount, int *n)
{
	ENTER(false);
	*n = fake_cuda.n_gpus;
	return CUDA_SUCCESS;
}

FUNCTION(cuDeviceGet, CUdevice *dev, int i)
{
	ENTER(false);
	*dev = i;
	return CUDA_SUCCESS;
}

FUNCTION(cuDeviceGetName, char *name, int n, CUdevice dev)
{
	ENTER(false);
	snprintf(name, (size_t)n, "Fake %d", dev);
	return CUDA_SUCCESS;
}

FUNCTION(cuDeviceGetAttribute, int *value, int attribute, CUdevice dev)
{
	ENTER(false);
	*value = attribute == CU_ATTRIBUTE_CAPABILITY_MAJOR	? fake_cuda.capability[dev] / 10 :
		 attribute == CU_ATTRIBUTE_CAPABILITY_MINOR	? fake_cuda.capability[dev] % 10 :
		 attribute == CU_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 132 :
		 attribute == CU_ATTRIBUTE_MAX_SHARED_OPTIN	? 232448 :
								  1024;
	return CUDA_SUCCESS;
}

FUNCTION(cuDevicePrimaryCtxRetain, CUcontext *ctx, CUdevice dev)
{
	ENTER(false);
	fake_cuda.contexts++;
	*ctx = &context;
	return CUDA_SUCCESS;
}

FUNCTION(cuDevicePrimaryCtxRelease_v2, CUdevice dev)
{
	fake_cuda.contexts--;
	return CUDA_SUCCESS;
}

FUNCTION(cuCtxSetCurrent, CUcontext ctx)
{
	ENTER(false);
	current = ctx;
	return CUDA_SUCCESS;
}

FUNCTION(cuMemGetInfo_v2, size_t *free_bytes, size_t *total_bytes)
{
	ENTER(true);
	*free_bytes = *total_bytes = fake_cuda.memory_bytes;
	return CUDA_SUCCESS;
}

/* ---- memory ---- */

static char *add_piece(size_t n, bool device)
{
	struct piece *p = malloc(sizeof *p);

	if (!p)
		abort();
	*p = (struct piece){ malloc(n), n, device, pieces };
	if (!p->at)
		abort();
	memset(p->at, 0xee, n);
	pieces = p;
	return p->at;
}

static bool drop_piece(void *at, bool device)
{
	for (struct piece **p = &pieces; *p; p = &(*p)->next)
		if ((*p)->at == at && (*p)->device == device) {
			struct piece *dead = *p;

			*p = dead->next;
			free(dead->at);
			free(dead);
			return true;
		}
	return false;
}

static bool lies_in(const void *at, size_t n, bool device)
{
	for (const struct piece *p = pieces; p; p = p->next)
		if (p->device == device && (const char *)at >= p->at &&
		    (const char *)at + n <= p->at + p->n)
			return true;
	return false;
}

FUNCTION(cuMemAlloc_v2, CUdeviceptr *p, size_t n)
{
	ENTER(true);
	if (n > fake_cuda.memory_bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*p = (CUdeviceptr)(uintptr_t)add_piece(n, true);
	fake_cuda.memory++;
	return CUDA_SUCCESS;
}

FUNCTION(cuMemFree_v2, CUdeviceptr p)
{
	if (!drop_piece((void *)(uintptr_t)p, true))
		misuse("cuMemFree: no such memory");
	else
		fake_cuda.memory--;
	return fake_cuda.lost;
}

FUNCTION(cuMemHostAlloc, void **p, size_t n, unsigned flags)
{
	ENTER(true);
	*p = add_piece(n, false);
	fake_cuda.pinned++;
	return CUDA_SUCCESS;
}

FUNCTION(cuMemFreeHost, void *p)
{
	if (!drop_piece(p, false))
		misuse("cuMemFreeHost: no such memory");
	else
		fake_cuda.pinned--;
	return fake_cuda.lost;
}

/* ---- streams and events ---- */

static void push(CUstream s, struct work w)
{
	struct work *p = malloc(sizeof *p);

	if (!p)
		abort();
	*p = w;
	p->next = NULL;
	*s->last = p;
	s->last = &p->next;
}

static void run_one(CUstream s, bool really)
{
	struct work *w = s->first;

	s->first = w->next;
	if (!s->first)
		s->last = &s->first;
	if (w->kind == COPY && really)
		memcpy(w->dst, w->src, w->n);
	if (w->kind == FILL && really)
		memset(w->dst, w->with, w->n);
	for (size_t i = 0; w->kind == RUN && really && i < w->n; i++) {
		if (fake_cuda.n_runs < FAKE_MAX_RUNS)
			fake_cuda.runs[fake_cuda.n_runs++] = w->runs[i];
		if (fake_cuda.kernel)
			fake_cuda.kernel(&w->runs[i]);
	}
	if (w->kind == RUN)
		free(w->runs);
	if (w->kind == EVENT)
		w->event->done = true;
	free(w);
}

static void run_all(CUstream s)
{
	while (s->first)
		run_one(s, !fake_cuda.lost);
}

FUNCTION(cuMemcpyHtoDAsync_v2, CUdeviceptr dst, const void *src, size_t n, CUstream s)
{
	ENTER(true);
	if (!lies_in((void *)(uintptr_t)dst, n, true) || !lies_in(src, n, false))
		misuse("cuMemcpyHtoDAsync: outside of memory, or the host's is not pinned");
	push(s, (struct work){ COPY, (void *)(uintptr_t)dst, src, n });
	return CUDA_SUCCESS;
}

FUNCTION(cuMemsetD8Async, CUdeviceptr p, unsigned char x, size_t n, CUstream s)
{
	ENTER(true);
	if (!lies_in((void *)(uintptr_t)p, n, true))
		misuse("cuMemsetD8Async: outside of memory");
	if (!x || !fake_cuda.loses_writes)
		push(s, (struct work){ FILL, (void *)(uintptr_t)p, NULL, n, .with = x });
	return CUDA_SUCCESS;
}

FUNCTION(cuDeviceCanAccessPeer, int *can, CUdevice dev, CUdevice of)
{
	ENTER(false);
	if (dev == of)
		misuse("cuDeviceCanAccessPeer: of itself");
	*can = fake_cuda.reaches;
	return CUDA_SUCCESS;
}

/* All GPUs have one context: but for the first call it has this access already. */
FUNCTION(cuCtxEnablePeerAccess, CUcontext of, unsigned flags)
{
	ENTER(true);
	if (of != &context || flags)
		misuse("cuCtxEnablePeerAccess");
	return fake_cuda.n_enabled++ ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
}

FUNCTION(cuMemcpyDtoHAsync_v2, void *dst, CUdeviceptr src, size_t n, CUstream s)
{
	ENTER(true);
	if (!lies_in((void *)(uintptr_t)src, n, true) || !lies_in(dst, n, false))
		misuse("cuMemcpyDtoHAsync: outside of memory, or the host's is not pinned");
	push(s, (struct work){ COPY, dst, (const void *)(uintptr_t)src, n });
	return CUDA_SUCCESS;
}

FUNCTION(cuStreamCreate, CUstream *s, unsigned flags)
{
	ENTER(true);
	*s = calloc(1, sizeof **s);
	(*s)->last = &(*s)->first;
	fake_cuda.streams++;
	return CUDA_SUCCESS;
}

FUNCTION(cuStreamDestroy_v2, CUstream s)
{
	run_all(s);
	free(s);
	fake_cuda.streams--;
	return fake_cuda.lost;
}

FUNCTION(cuStreamSynchronize, CUstream s)
{
	/* also when it tells an error, there is nothing under way any more */
	run_all(s);
	ENTER(true);
	return CUDA_SUCCESS;
}

FUNCTION(cuEventCreate, CUevent *e, unsigned flags)
{
	ENTER(true);
	*e = calloc(1, sizeof **e);
	fake_cuda.events++;
	return CUDA_SUCCESS;
}

FUNCTION(cuEventDestroy_v2, CUevent e)
{
	if (e->recorded && !e->done && fake_cuda.lost)
		run_all(e->stream);
	if (e->recorded && !e->done)
		misuse("cuEventDestroy: the event is in a stream");
	free(e);
	fake_cuda.events--;
	return fake_cuda.lost;
}

FUNCTION(cuEventRecord, CUevent e, CUstream s)
{
	ENTER(true);
	e->stream = s;
	e->recorded = true;
	e->done = false;
	push(s, (struct work){ .kind = EVENT, .event = e });
	return CUDA_SUCCESS;
}

FUNCTION(cuEventQuery, CUevent e)
{
	ENTER(true);
	if (fake_cuda.n_not_ready > 0) {
		fake_cuda.n_not_ready--;
		return CUDA_ERROR_NOT_READY;
	}
	while (e->recorded && !e->done)
		run_one(e->stream, true);
	return CUDA_SUCCESS;
}

FUNCTION(cuEventSynchronize, CUevent e)
{
	ENTER(true);
	while (e->recorded && !e->done)
		run_one(e->stream, true);
	return CUDA_SUCCESS;
}

/* ---- modules: PTX is a text with `.entry NAME` for each kernel ---- */

FUNCTION(cuModuleLoadDataEx, CUmodule *m, const void *image, unsigned n, int *options,
	 void **values)
{
	ENTER(true);
	if (strstr(image, "broken")) {
		for (unsigned i = 0; i < n; i++)
			if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
				strcpy(values[i], "line 3;\nunknown symbol broken");
		return CUDA_ERROR_INVALID_PTX;
	}
	if (strstr(image, "newer"))
		return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
	*m = malloc(sizeof **m);
	(*m)->ptx = strdup(image);
	fake_cuda.modules++;
	return CUDA_SUCCESS;
}

FUNCTION(cuModuleUnload, CUmodule m)
{
	for (int i = 0; i < n_functions; i++)
		if (functions[i].module == m)
			functions[i].module = NULL;
	free(m->ptx);
	free(m);
	fake_cuda.modules--;
	return fake_cuda.lost;
}

FUNCTION(cuModuleGetFunction, CUfunction *f, CUmodule m, const char *name)
{
	char entry[80];
	const char *number;

	ENTER(true);
	snprintf(entry, sizeof entry, ".entry %s ", name);
	if (!strstr(m->ptx, entry))
		return CUDA_ERROR_NOT_FOUND;
	for (int i = 0; i < n_functions; i++)
		if (functions[i].module == m && !strcmp(functions[i].name, name)) {
			*f = &functions[i];
			return CUDA_SUCCESS;
		}
	if (n_functions == 64)
		n_functions = 0;
	*f = &functions[n_functions++];
	memset(*f, 0, sizeof **f);
	(*f)->module = m;
	snprintf((*f)->name, sizeof(*f)->name, "%s", name);
	(*f)->shared = 48 * 1024;
	number = strrchr(name, '_');
	if (!number)
		return CUDA_SUCCESS;
	(*f)->n_operands = (unsigned)atoi(number + 1);
	while (*--number != '_')
		;
	(*f)->n_args = (unsigned)atoi(number + 1);
	return CUDA_SUCCESS;
}

FUNCTION(cuFuncGetAttribute, int *value, int attribute, CUfunction f)
{
	ENTER(true);
	*value = attribute == CU_FUNC_MAX_THREADS_PER_BLOCK ? fake_cuda.kernel_threads :
		 attribute == CU_FUNC_SHARED_BYTES	    ? 0 :
							      f->shared;
	return CUDA_SUCCESS;
}

FUNCTION(cuFuncSetAttribute, CUfunction f, int attribute, int value)
{
	ENTER(true);
	if (attribute != CU_FUNC_MAX_DYNAMIC_SHARED_BYTES)
		return CUDA_ERROR_INVALID_VALUE;
	f->shared = value;
	return CUDA_SUCCESS;
}

FUNCTION(cuOccupancyMaxActiveClusters, int *n, CUfunction f, const CUlaunchConfig *config)
{
	const unsigned *size = &config->attributes[0].value.cluster.x;

	ENTER(true);
	if (config->n_attributes != 1 || config->attributes[0].id != CU_NODE_CLUSTER ||
	    size[1] != 1 || size[2] != 1 || !config->grid_x || config->grid_x % size[0] ||
	    config->shared_bytes > (unsigned)f->shared)
		return CUDA_ERROR_INVALID_VALUE;
	*n = fake_cuda.clusters[size[0] == 2 ? 0 : size[0] == 4 ? 1 : 2];
	return CUDA_SUCCESS;
}

static bool is_map(const struct CUfunc_st *f, size_t operand)
{
	return operand < 2 && !strncmp(f->name, "boxes", 5);
}

FUNCTION(cuFuncGetParamInfo, CUfunction f, size_t i, size_t *offset, size_t *size)
{
	ENTER(true);
	if (i > 1 + f->n_operands)
		return CUDA_ERROR_INVALID_VALUE;
	*offset = 0;
	*size = !i ? f->n_args : is_map(f, i - 2) ? sizeof(CUtensorMap) : 8;
	return CUDA_SUCCESS;
}

/* ---- graphs ---- */

FUNCTION(cuGraphCreate, CUgraph *g, unsigned flags)
{
	ENTER(true);
	*g = calloc(1, sizeof **g);
	fake_cuda.graphs++;
	return CUDA_SUCCESS;
}

FUNCTION(cuGraphDestroy, CUgraph g)
{
	for (int i = 0; i < g->n; i++)
		free(g->nodes[i]);
	free(g->nodes);
	free(g);
	fake_cuda.graphs--;
	return fake_cuda.lost;
}

static struct CUgraphNode_st *add(CUgraph g, const CUgraphNode *after, size_t n_after)
{
	struct CUgraphNode_st *node = calloc(1, sizeof *node);

	for (size_t i = 0; i < n_after; i++) {
		bool known = false;

		for (int j = 0; j < g->n; j++)
			known = known || g->nodes[j] == after[i];
		if (!known)
			misuse("a node after one that is not in the graph");
	}
	g->nodes = realloc(g->nodes, (size_t)(g->n + 1) * sizeof(struct CUgraphNode_st *));
	if (!node || !g->nodes)
		abort();
	g->nodes[g->n++] = node;
	node->run.n_after = (unsigned)n_after;
	return node;
}

static bool is_wrong(const CUkernelNodeParams *p)
{
	return !p->grid_x || !p->grid_y || !p->grid_z ||
	       p->block_x > (unsigned)fake_cuda.kernel_threads ||
	       p->shared_bytes > (unsigned)p->func->shared;
}

static void set_run(struct fake_run *r, const CUkernelNodeParams *p)
{
	memcpy(r->name, p->func->name, sizeof r->name);
	memcpy(r->grid, (unsigned[]){ p->grid_x, p->grid_y, p->grid_z }, sizeof r->grid);
	r->threads = p->block_x;
	r->shared = p->shared_bytes;
	memcpy(r->args, p->params[0], p->func->n_args);
	r->address[0] = *(CUdeviceptr *)p->params[1];
	for (unsigned i = 0; i < p->func->n_operands; i++)
		if (is_map(p->func, i))
			r->map[i] = *(CUtensorMap *)p->params[2 + i];
		else
			r->address[1 + i] = *(CUdeviceptr *)p->params[2 + i];
}

FUNCTION(cuGraphAddKernelNode_v2, CUgraphNode *node, CUgraph g, const CUgraphNode *after,
	 size_t n_after, const CUkernelNodeParams *p)
{
	ENTER(true);
	if (is_wrong(p))
		return CUDA_ERROR_INVALID_VALUE;
	*node = add(g, after, n_after);
	set_run(&(*node)->run, p);
	return CUDA_SUCCESS;
}

/* Launches that are under way have their own. */
FUNCTION(cuGraphExecKernelNodeSetParams_v2, CUgraphExec exec, CUgraphNode node,
	 const CUkernelNodeParams *p)
{
	ENTER(true);
	for (int i = 0; i < exec->n; i++) {
		if (exec->nodes[i] != node)
			continue;
		if (is_wrong(p) || (exec->runs[i].cluster[0] > 1 &&
				    p->grid_x % (unsigned)exec->runs[i].cluster[0]))
			return CUDA_ERROR_INVALID_VALUE;
		set_run(&exec->runs[i], p);
		fake_cuda.n_changed++;
		return CUDA_SUCCESS;
	}
	misuse("cuGraphExecKernelNodeSetParams: a node that is not its");
	return CUDA_ERROR_INVALID_VALUE;
}

FUNCTION(cuGraphAddDependencies_v2, CUgraph g, const CUgraphNode *from, const CUgraphNode *to,
	 const CUgraphEdge *edges, size_t n)
{
	ENTER(true);
	for (size_t i = 0; i < n; i++) {
		if (edges[i].from_port != CU_PORT_PROGRAMMATIC ||
		    edges[i].type != CU_EDGE_PROGRAMMATIC || edges[i].to_port || from[i]->empty ||
		    to[i]->empty || from[i] == to[i])
			return CUDA_ERROR_INVALID_VALUE;
		to[i]->run.n_after++;
		to[i]->run.overlaps = true;
	}
	return CUDA_SUCCESS;
}

FUNCTION(cuGraphKernelNodeSetAttribute, CUgraphNode node, int attribute,
	 const CUnodeAttribute *value)
{
	ENTER(true);
	if (attribute != CU_NODE_CLUSTER || node->empty || !value->cluster.x || !value->cluster.y ||
	    !value->cluster.z || node->run.grid[0] % value->cluster.x)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(node->run.cluster, &value->cluster, sizeof node->run.cluster);
	return CUDA_SUCCESS;
}

/* A map is its arguments: address, sizes, stride, box. */
FUNCTION(cuTensorMapEncodeTiled, CUtensorMap *map, int type, unsigned rank, void *address,
	 const uint64_t *sizes, const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
	 int interleave, int swizzle, int promotion, int outside)
{
	ENTER(true);
	if ((uintptr_t)map % 64 || type != CU_MAP_UINT16 || rank != 2 || (uintptr_t)address % 16 ||
	    !sizes[0] || !sizes[1] || strides[0] % 16 || !box[0] || box[0] > 64 || !box[1] ||
	    box[1] > 256 || steps[0] != 1 || steps[1] != 1 ||
	    interleave != CU_MAP_NOT_INTERLEAVED || swizzle != CU_MAP_SWIZZLE_128B ||
	    outside != CU_MAP_ZEROS_OUTSIDE)
		return CUDA_ERROR_INVALID_VALUE;
	if (!lies_in(address, (sizes[1] - 1) * strides[0] + sizes[0] * 2, true))
		misuse("cuTensorMapEncodeTiled: outside of memory");
	*map = (CUtensorMap){ { (uintptr_t)address, sizes[0], sizes[1], strides[0], box[0],
				box[1] } };
	return CUDA_SUCCESS;
}

FUNCTION(cuGraphAddEmptyNode, CUgraphNode *node, CUgraph g, const CUgraphNode *after,
	 size_t n_after)
{
	ENTER(true);
	*node = add(g, after, n_after);
	(*node)->empty = true;
	return CUDA_SUCCESS;
}

/* What is captured is not run: who calls the library in between remembers it (fake_libnccl.c). */
static CUstream capturing;

FUNCTION(cuStreamBeginCapture_v2, CUstream s, int mode)
{
	ENTER(true);
	if (capturing || mode != CU_CAPTURE_RELAXED)
		misuse("cuStreamBeginCapture");
	capturing = s;
	return CUDA_SUCCESS;
}

FUNCTION(cuStreamEndCapture, CUstream s, CUgraph *g)
{
	if (capturing != s)
		misuse("cuStreamEndCapture");
	capturing = NULL;
	*g = NULL;
	ENTER(true);
	*g = calloc(1, sizeof **g);
	fake_cuda.graphs++;
	return CUDA_SUCCESS;
}

FUNCTION(cuGraphAddChildGraphNode, CUgraphNode *node, CUgraph g, const CUgraphNode *after,
	 size_t n_after, CUgraph child)
{
	ENTER(true);
	*node = add(g, after, n_after);
	(*node)->empty = true;
	fake_cuda.n_children++;
	return CUDA_SUCCESS;
}

FUNCTION(cuGraphInstantiateWithFlags, CUgraphExec *exec, CUgraph g, unsigned long long flags)
{
	ENTER(true);
	for (int i = 0; i < g->n; i++)
		if (g->nodes[i]->run.overlaps && fake_cuda.refuse_overlaps) {
			fake_cuda.n_refused++;
			return CUDA_ERROR_INVALID_VALUE;
		}
	*exec = calloc(1, sizeof **exec);
	(*exec)->runs = calloc((size_t)g->n + 1, sizeof *(*exec)->runs);
	(*exec)->nodes = calloc((size_t)g->n + 1, sizeof *(*exec)->nodes);
	for (int i = 0; i < g->n; i++)
		if (!g->nodes[i]->empty) {
			(*exec)->nodes[(*exec)->n] = g->nodes[i];
			(*exec)->runs[(*exec)->n++] = g->nodes[i]->run;
		}
	fake_cuda.execs++;
	fake_cuda.n_instantiated++;
	return CUDA_SUCCESS;
}

FUNCTION(cuGraphExecDestroy, CUgraphExec exec)
{
	free(exec->runs);
	free(exec->nodes);
	free(exec);
	fake_cuda.execs--;
	return fake_cuda.lost;
}

FUNCTION(cuGraphLaunch, CUgraphExec exec, CUstream s)
{
	struct fake_run *runs;

	ENTER(true);
	runs = malloc((size_t)exec->n * sizeof *runs);
	if (!runs)
		abort();
	memcpy(runs, exec->runs, (size_t)exec->n * sizeof *runs);
	push(s, (struct work){ .kind = RUN, .runs = runs, .n = (size_t)exec->n });
	return CUDA_SUCCESS;
}

FUNCTION(cuGetErrorName, CUresult r, const char **name)
{
	*name = r == CUDA_ERROR_OUT_OF_MEMORY	? "CUDA_ERROR_OUT_OF_MEMORY" :
		r == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" :
		r == CUDA_ERROR_INVALID_PTX	? "CUDA_ERROR_INVALID_PTX" :
						  NULL;
	return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FUNCTION(cuGetErrorString, CUresult r, const char **text)
{
	*text = r == CUDA_ERROR_ILLEGAL_ADDRESS ? "an illegal memory access was encountered" : NULL;
	return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
