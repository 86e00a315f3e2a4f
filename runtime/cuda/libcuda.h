/*
 * libcuda.h: the functions of NVIDIA's driver API that Ingot calls.  They are declared here and
 * looked up in libcuda.so.1 when a device is opened, so that neither building nor starting needs
 * NVIDIA's software.  Types and numbers are those of the driver's stable binary interface.  If a
 * function has versions, its name has the version (_v2).
 */
#pragma once

#include <ingot/error.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;

enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_DEINITIALIZED = 4,
	CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_ECC_UNCORRECTABLE = 214,
	CUDA_ERROR_INVALID_PTX = 218,
	CUDA_ERROR_NVLINK_UNCORRECTABLE = 220,
	CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_ILLEGAL_ADDRESS = 700,
	CUDA_ERROR_LAUNCH_TIMEOUT = 702,
	CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
	CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
	CUDA_ERROR_ASSERT = 710,
	CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
	CUDA_ERROR_LAUNCH_FAILED = 719,
	CUDA_ERROR_UNKNOWN = 999,
};

enum { /* of devices */
       CU_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
       CU_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
       CU_ATTRIBUTE_CAPABILITY_MAJOR = 75,
       CU_ATTRIBUTE_CAPABILITY_MINOR = 76,
       CU_ATTRIBUTE_MAX_SHARED_OPTIN = 97,
};

enum { /* of functions */
       CU_FUNC_MAX_THREADS_PER_BLOCK = 0,
       CU_FUNC_SHARED_BYTES = 1,
       CU_FUNC_MAX_DYNAMIC_SHARED_BYTES = 8,
};

enum { /* of compiling PTX */
       CU_JIT_ERROR_LOG_BUFFER = 5,
       CU_JIT_ERROR_LOG_BUFFER_BYTES = 6,
};

enum { /* of a graph's kernel, and of a launch */
       CU_NODE_CLUSTER = 4,
};

enum { /* of tensor maps */
       CU_MAP_UINT16 = 1,
       CU_MAP_NOT_INTERLEAVED = 0,
       CU_MAP_SWIZZLE_128B = 3,
       CU_MAP_PROMOTE_128B = 2,
       CU_MAP_ZEROS_OUTSIDE = 0,
};

#define CU_STREAM_NON_BLOCKING 1u
#define CU_CAPTURE_RELAXED 2
#define CU_EVENT_DISABLE_TIMING 2u
#define CU_HOST_PORTABLE 1u

typedef struct {
	CUfunction func;
	unsigned grid_x, grid_y, grid_z;
	unsigned block_x, block_y, block_z;
	unsigned shared_bytes;
	void **params;
	void **extra;
	void *kern;
	CUcontext ctx;
} CUkernelNodeParams;

/* Describes a matrix to the copy engine of compute capability 9.0. */
typedef struct {
	_Alignas(64) uint64_t opaque[16];
} CUtensorMap;

/* Unions and structs of the library with the members that are needed. */
typedef union {
	struct {
		unsigned x, y, z;
	} cluster;
	uint64_t size[8];
} CUnodeAttribute;

typedef struct {
	int id; /* CU_NODE_CLUSTER */
	int reserved;
	CUnodeAttribute value;
} CUlaunchAttribute;

typedef struct {
	unsigned grid_x, grid_y, grid_z;
	unsigned block_x, block_y, block_z;
	unsigned shared_bytes;
	CUstream stream;
	CUlaunchAttribute *attributes;
	unsigned n_attributes;
} CUlaunchConfig;

/* How a node of a graph waits for another one.  PROGRAMMATIC: both are kernels, and the second may begin
 * when all threadgroups of the first have said so or ended; it waits itself for what it reads. */
typedef struct {
	uint8_t from_port, to_port, type, reserved[5];
} CUgraphEdge;
enum {
	CU_PORT_PROGRAMMATIC = 1,
	CU_EDGE_PROGRAMMATIC = 1,
};

/* X(return type, our name, the library's name, arguments) */
#define CUDA_FUNCTIONS(X)                                                                          \
	X(init, cuInit, (unsigned flags))                                                          \
	X(driver_version, cuDriverGetVersion, (int *version))                                      \
	X(device_count, cuDeviceGetCount, (int *n))                                                \
	X(device_get, cuDeviceGet, (CUdevice * dev, int i))                                        \
	X(device_name, cuDeviceGetName, (char *name, int n, CUdevice dev))                         \
	X(device_attribute, cuDeviceGetAttribute, (int *value, int attribute, CUdevice dev))       \
	X(ctx_retain, cuDevicePrimaryCtxRetain, (CUcontext * ctx, CUdevice dev))                   \
	X(ctx_release, cuDevicePrimaryCtxRelease_v2, (CUdevice dev))                               \
	X(ctx_set, cuCtxSetCurrent, (CUcontext ctx))                                               \
	X(mem_info, cuMemGetInfo_v2, (size_t *free_bytes, size_t *total_bytes))                    \
	X(mem_alloc, cuMemAlloc_v2, (CUdeviceptr * p, size_t n))                                   \
	X(mem_free, cuMemFree_v2, (CUdeviceptr p))                                                 \
	X(host_alloc, cuMemHostAlloc, (void **p, size_t n, unsigned flags))                        \
	X(host_free, cuMemFreeHost, (void *p))                                                     \
	X(to_device, cuMemcpyHtoDAsync_v2,                                                         \
	  (CUdeviceptr dst, const void *src, size_t n, CUstream s))                                \
	X(to_host, cuMemcpyDtoHAsync_v2, (void *dst, CUdeviceptr src, size_t n, CUstream s))       \
	X(stream_create, cuStreamCreate, (CUstream * s, unsigned flags))                           \
	X(stream_destroy, cuStreamDestroy_v2, (CUstream s))                                        \
	X(stream_sync, cuStreamSynchronize, (CUstream s))                                          \
	X(event_create, cuEventCreate, (CUevent * e, unsigned flags))                              \
	X(event_destroy, cuEventDestroy_v2, (CUevent e))                                           \
	X(event_record, cuEventRecord, (CUevent e, CUstream s))                                    \
	X(event_query, cuEventQuery, (CUevent e))                                                  \
	X(event_sync, cuEventSynchronize, (CUevent e))                                             \
	X(module_load, cuModuleLoadDataEx,                                                         \
	  (CUmodule * m, const void *image, unsigned n, int *options, void **values))              \
	X(module_unload, cuModuleUnload, (CUmodule m))                                             \
	X(module_function, cuModuleGetFunction, (CUfunction * f, CUmodule m, const char *name))    \
	X(func_get, cuFuncGetAttribute, (int *value, int attribute, CUfunction f))                 \
	X(func_set, cuFuncSetAttribute, (CUfunction f, int attribute, int value))                  \
	X(graph_create, cuGraphCreate, (CUgraph * g, unsigned flags))                              \
	X(graph_destroy, cuGraphDestroy, (CUgraph g))                                              \
	X(graph_add_kernel, cuGraphAddKernelNode_v2,                                               \
	  (CUgraphNode * node, CUgraph g, const CUgraphNode *after, size_t n_after,                \
	   const CUkernelNodeParams *params))                                                      \
	X(graph_set_attribute, cuGraphKernelNodeSetAttribute,                                      \
	  (CUgraphNode node, int attribute, const CUnodeAttribute *value))                         \
	X(tensor_map, cuTensorMapEncodeTiled,                                                      \
	  (CUtensorMap * map, int type, unsigned rank, void *address, const uint64_t *sizes,       \
	   const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides,          \
	   int interleave, int swizzle, int promotion, int outside))                               \
	X(graph_add_empty, cuGraphAddEmptyNode,                                                    \
	  (CUgraphNode * node, CUgraph g, const CUgraphNode *after, size_t n_after))               \
	X(graph_instantiate, cuGraphInstantiateWithFlags,                                          \
	  (CUgraphExec * exec, CUgraph g, unsigned long long flags))                               \
	X(graph_exec_set, cuGraphExecKernelNodeSetParams_v2,                                       \
	  (CUgraphExec exec, CUgraphNode node, const CUkernelNodeParams *params))                  \
	X(graph_exec_destroy, cuGraphExecDestroy, (CUgraphExec exec))                              \
	X(graph_launch, cuGraphLaunch, (CUgraphExec exec, CUstream s))                             \
	X(error_name, cuGetErrorName, (CUresult r, const char **name))                             \
	X(error_string, cuGetErrorString, (CUresult r, const char **text))

/* As above; NULL with drivers that lack them: func_param before CUDA 12.4, graph_add_edges before 12.3. */
#define CUDA_OPTIONAL_FUNCTIONS(X)                                                                 \
	X(max_clusters, cuOccupancyMaxActiveClusters,                                              \
	  (int *n, CUfunction f, const CUlaunchConfig *config))                                    \
	X(func_param, cuFuncGetParamInfo, (CUfunction f, size_t i, size_t *offset, size_t *size))  \
	X(graph_add_edges, cuGraphAddDependencies_v2,                                              \
	  (CUgraph g, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdge *edges,    \
	   size_t n))                                                                              \
	X(can_access, cuDeviceCanAccessPeer, (int *can, CUdevice dev, CUdevice of))                \
	X(enable_access, cuCtxEnablePeerAccess, (CUcontext of, unsigned flags))                    \
	X(fill, cuMemsetD8Async, (CUdeviceptr p, unsigned char x, size_t n, CUstream s))           \
	X(begin_capture, cuStreamBeginCapture_v2, (CUstream s, int mode))                          \
	X(end_capture, cuStreamEndCapture, (CUstream s, CUgraph * g))                              \
	X(graph_add_child, cuGraphAddChildGraphNode,                                               \
	  (CUgraphNode * node, CUgraph g, const CUgraphNode *after, size_t n_after,                \
	   CUgraph child))

struct ig_libcuda {
	void *handle;
#define CUDA_FIELD(field, name, args) CUresult(*field) args;
	CUDA_FUNCTIONS(CUDA_FIELD)
	CUDA_OPTIONAL_FUNCTIONS(CUDA_FIELD)
#undef CUDA_FIELD
};

/* The library to open, "libcuda.so.1"; tests set their own double. */
extern const char *ig_libcuda_name;

/* -ENOTSUP with text if there is no library, or if it lacks a function. */
int ig_libcuda_open(struct ig_libcuda *cu, struct ig_error *err);
void ig_libcuda_close(struct ig_libcuda *cu); /* zeros are fine */

/* 0; -ENOMEM; -ENODEV (the context or the device is lost); -ENOTSUP (the driver is too old); else
 * -EIO.  The text has `what`, and the library's name and description of the error. */
int ig_libcuda_check(const struct ig_libcuda *cu, CUresult r, const char *what,
		     struct ig_error *err);
