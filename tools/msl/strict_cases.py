#!/usr/bin/env python3
"""The strict check's own test: mistakes that it must report, each in given words,
and correct code that it must accept.  Prints TAP.

A case is (name, words that one of the messages must contain, code).
"""
import os
import sys
import tempfile

sys.dont_write_bytecode = True
import common
import strict
from common import Failed

HEAD = '#include <metal_stdlib>\n#include "portable.h"\nusing namespace metal;\n'
ARGUMENTS = ("device float *d [[buffer(0)]], constant uint &n [[buffer(1)]], "
             "threadgroup float *sh [[threadgroup(0)]], uint i [[thread_position_in_grid]]")
F = "METAL_FUNC "

MISTAKES = [
    # address spaces
    ("a pointer parameter without a space", "without an address space", F + "float f(float *p) { return p[0]; }"),
    ("a reference parameter without a space", "without an address space", F + "float f(float &x) { return x; }"),
    ("a local pointer to device memory, no space", "without an address space",
     F + "float f(device float *p) { float *q = p; return *q; }"),
    ("a local pointer to a local, no space", "without an address space",
     F + "float f() { float x = 1.0f; float *q = &x; return *q; }"),
    ("a pointer member without a space", "without an address space", "struct s { float *p; };"),
    ("a pointer in a template without a space", "without an address space",
     "template <typename T> " + F + "T f(T *p) { return p[0]; }"),
    ("an array parameter", "without an address space", F + "float f(float a[4]) { return a[0]; }"),
    ("a pointer to a pointer, the inner one without a space", "without an address space",
     F + "float f(device float *thread *p, thread float **q) { return **p + **q; }"),
    ("a returned pointer without a space", "without an address space", "float *f(device float *p);"),
    ("a typedef of a pointer without a space", "without an address space", "typedef float *floats;"),
    ("a cast that drops the space", "without an address space",
     F + "uint f(device uint *p) { return *(uint *)p; }"),
    ("a reinterpret_cast that drops the space", "without an address space",
     F + "uint f(device float *p) { return *reinterpret_cast<uint *>(p); }"),
    ("device assigned to threadgroup", "cannot initialize", F + "void f(device float *p) { threadgroup float *q = p; q[0] = 1.0f; }"),
    ("threadgroup passed as device", "no matching function", "void g(device float *p); " + F + "void f(threadgroup float *p) { g(p); }"),
    ("device passed as thread", "no matching function", "void g(thread float *p); " + F + "void f(device float *p) { g(p); }"),
    ("thread passed as device", "no matching function", "void g(device float *p); " + F + "void f() { float x = 1.0f; g(&x); }"),
    ("a threadgroup object as device &", "address space",
     F + "void f(threadgroup float *p) { device float &r = p[0]; r = 1.0f; }"),
    ("constant passed as device const", "no matching function",
     "float g(device const float *p); " + F + "float f(constant float *p) { return g(p); }"),
    ("a C cast between spaces", "address space",
     F + "void f(threadgroup float *p) { device float *q = (device float *)p; q[0] = 1.0f; }"),
    ("a template that deduces another space", "no matching function",
     "template <typename T> void g(device T *p); " + F + "void f(threadgroup float *p) { g(p); }"),
    ("a choice between spaces", "incompatible operand types",
     F + "float f(device float *a, threadgroup float *b, bool c) { return *(c ? a : b); }"),
    ("a method of thread objects on device memory", "method of thread objects",
     "struct s { float v; " + F + "float get() const { return v; } }; " + F + "float f(device s *p) { return p->get(); }"),
    ("a method of thread objects on threadgroup memory", "method of thread objects",
     "struct s { float v; " + F + "void set() { v = 1.0f; } }; " + F + "void f(threadgroup s &p) { p.set(); }"),
    ("a method of thread objects on constant", "cannot initialize object parameter of type",
     "struct s { float v; " + F + "float get() const { return v; } }; " + F + "float f(constant s &p) { return p.get(); }"),
    ("an OpenCL qualifier", "word of OpenCL", F + "float f(__global float *p) { return p[0]; }"),
    ("OpenCL's global", "word of OpenCL", F + "float f(global float *p) { return p[0]; }"),
    # const
    ("a constant argument written", "read-only variable is not assignable", "struct a { uint n; }; " + F + "void f(constant a &x) { x.n = 1; }"),
    ("a constant table written", "read-only variable is not assignable", "constant float t[2] = {1.0f, 2.0f}; " + F + "void f() { t[0] = 3.0f; }"),
    ("device const written", "read-only variable is not assignable", F + "void f(device const float *p) { p[0] = 1.0f; }"),
    ("const dropped", "no matching function", "void g(device float *p); " + F + "void f(device const float *p) { g(p); }"),
    # variables
    ("a global that can change", "program scope variable must reside in constant address space", "float x = 1.0f;"),
    ("a constant without a value", "variable in constant address space must be initialized", "constant float x;"),
    ("a static local", "static local variable must reside in constant address space", F + "uint f() { static uint n = 0; return n++; }"),
    ("a threadgroup variable in a helper", "non-kernel function variable cannot be declared in local add", F + "void f() { threadgroup float s[4]; s[0] = 1.0f; }"),
    ("a threadgroup variable in a kernel", "threadgroup memory is a kernel's argument",
     "kernel void k(" + ARGUMENTS + ") { threadgroup float s[4]; s[i % 4] = 1.0f; d[i] = s[0]; }"),
    ("a threadgroup variable with a value", "non-kernel function variable cannot be declared in local add", "kernel void k(" + ARGUMENTS + ") { threadgroup float s = 1.0f; d[0] = s; }"),
    ("more than 32 KB of threadgroup memory declared", "kernel k: parameter without an attribute: threadgroup float",
     "kernel void k(device float *d [[buffer(0)]], threadgroup float (&s)[9000] [[threadgroup(0)]], "
     "uint i [[thread_position_in_grid]]) { d[i] = s[i]; }"),
    ("an array whose length is not constant", "array size is not a constant expression", F + "float f(uint n) { float a[n]; a[0] = 1.0f; return a[0]; }"),
    ("an array in a kernel's threadgroup memory of 40 KB", "non-kernel function variable cannot be declared in local add",
     "kernel void k(" + ARGUMENTS + ") { threadgroup float s[10240]; s[i] = 1.0f; d[i] = s[0]; }"),
    # what MSL 3.1 lacks
    ("recursion", "recursive", F + "uint f(uint n) { return n != 0 ? f(n - 1) : 0; }"),
    ("recursion of two", "recursive",
     "uint g(uint n); " + F + "uint f(uint n) { return n != 0 ? g(n - 1) : 0; } " + F + "uint g(uint n) { return f(n); }"),
    ("a function pointer", "pointers to functions are not allowed", F + "float g(float x) { return x; } " + F + "float f(float x) { float (*p)(float) = g; return p(x); }"),
    ("a virtual method", "virtual functions are not supported in C++ for OpenCL", "struct s { virtual float f() { return 1.0f; } };"),
    ("double", "requires cl_khr_fp64 and __opencl_c_fp64 support", F + "float f(float x) { double y = x; return float(y); }"),
    ("long double", "requires cl_khr_fp64 and __opencl_c_fp64 support", F + "float f(float x) { long double y = x; return float(y); }"),
    ("long long", "long long", F + "uint f(long long x) { return uint(x); }"),
    ("new", "is not supported in C++ for OpenCL", F + "void f() { thread int *p = new int; *p = 1; }"),
    ("delete", "is not supported in C++ for OpenCL", F + "void f(thread int *p) { delete p; }"),
    ("an exception", "with exceptions disabled", F + "void f() { throw 1; }"),
    ("try", "with exceptions disabled", F + "void f() { try { } catch (...) { } }"),
    ("goto", "goto", F + "int f(int x) { again: x--; if (x > 0) goto again; return x; }"),
    ("a lambda", "lambdas", F + "float f(float x) { auto g = [&](float y) { return x + y; }; return g(1.0f); }"),
    ("asm", "asm", F + 'void f() { __asm__(""); }'),
    ("a statement expression", "statement expressions", F + "int f(int x) { return ({ int y = x; y; }); }"),
    ("if constexpr (C++17)", "C++", "template <int N> " + F + "int f() { if constexpr (N > 1) return 1; else return 2; } "
     + F + "int g() { return f<2>(); }"),
    ("a structured binding (C++17)", "C++", "struct p { int a, b; }; " + F + "int f(p q) { auto [a, b] = q; return a + b; }"),
    ("a fold expression (C++17)", "C++", "template <typename... A> " + F + "float f(A... a) { return (a + ...); } "
     + F + "float g() { return f(1.0f, 2.0f); }"),
    ("a header of the standard library", "file not found", "#include <cmath>\n" + F + "float f(float x) { return x; }"),
    ("a header of clang's", "system's headers", "#include <stdint.h>\n" + F + "float f(float x) { return x; }"),
    ("printf", "use of undeclared identifier", F + 'void f() { printf("x"); }'),
    # names
    ("a name that nobody has", "undeclared", F + "float f(device float *p) { return simd_summ(p[1]); }"),
    ("a name of our header", "is not Metal's", F + "float f(float x) { return msl_exp(x); }"),
    ("a name of our header, qualified", "is not Metal's", F + "float f(float x) { return metal::msl_exp2(x); }"),
    ("a builtin of clang", "is not Metal's", F + "uint f(uint x) { return uint(__builtin_popcount(x)); }"),
    ("precise::pow, which we lack", "no member named", F + "float f(float x) { return precise::pow(x, x); }"),
    ("a function of OpenCL", "use of undeclared identifier", F + "uint f() { return uint(get_global_id(0)); }"),
    # types
    ("half4 to float4 without saying so", "cannot initialize a variable of type", F + "float4 f(half4 h) { float4 x = h; return x; }"),
    ("int4 to float4 without saying so", "cannot initialize a variable of type", F + "float4 f(int4 h) { float4 x = h; return x; }"),
    ("float3 to float4", "cannot initialize a variable of type", F + "float4 f(float3 h) { float4 x = h; return x; }"),
    ("an element that the vector lacks", "vector component access exceeds type", F + "float f(float2 v) { return v.z; }"),
    ("too few parts", ">::size + msl_shape<float>::size + 0 == msl_shape<float __at", F + "float4 f(float2 v) { return float4(v, 1.0f); }"),
    ("a vector literal of OpenCL", "vector literal", F + "float2 f(float a, float b) { return (float2)(a, b); }"),
    ("as_type of another size", "static assertion failed due to requirement", F + "half f(float x) { return as_type<half>(x); }"),
    ("min of float and int", "is ambiguous", F + "float f(float x) { return min(x, 1); }"),
    ("max of uint and int", "is ambiguous", F + "uint f(uint x) { return max(x, 1); }"),
    ("arithmetic on bfloat", "invalid operands to binary expression", F + "bfloat f(bfloat a, bfloat b) { return a * b; }"),
    ("float to bfloat without saying so", "no viable conversion from", F + "bfloat f(float a) { bfloat b = a; return b; }"),
    ("bfloat to float without saying so", "no viable conversion from", F + "float f(bfloat a) { float b = a; return b; }"),
    ("a matrix of another size", "static assertion failed due to requirement", F + "void f(threadgroup half *p) { simdgroup_matrix<half, 16, 16> m; simdgroup_load(m, p, 16); }"),
    ("a matrix loaded from another type", "no matching function for call to", F + "void f(threadgroup float *p) { simdgroup_half8x8 m; simdgroup_load(m, p, 16); }"),
    ("an atomic function on a plain integer", "no matching function for call to", F + "void f(device uint *p) { atomic_fetch_add_explicit(p, 1u, memory_order_relaxed); }"),
    ("a float atomic in threadgroup memory", "no matching function for call to",
     F + "void f(threadgroup atomic_float *p) { atomic_fetch_add_explicit(p, 1.0f, memory_order_relaxed); }"),
    ("an order stronger than relaxed", "use of undeclared identifier", F + "void f(device atomic_uint *p) { atomic_fetch_add_explicit(p, 1u, memory_order_seq_cst); }"),
    ("a barrier without flags", "no matching function for call to", F + "void f() { threadgroup_barrier(); }"),
    ("a float literal without f", "double precision constant requires cl_khr_fp64 and __opencl_", F + "float f(float x) { return x * 2.5; }"),
    ("a field of three components", "three components", "struct s { float3 v; };"),
    ("a struct with an array of three components", "three components", "struct s { uint3 v[4]; };"),
    # kernels
    ("a kernel that returns a value", "returns", "kernel float k(" + ARGUMENTS + ") { return d[0]; }"),
    ("a parameter without an attribute", "without an attribute", "kernel void k(device float *d [[buffer(0)]], uint i) { d[i] = 1.0f; }"),
    ("a buffer without a space", "points without an address space", "kernel void k(float *d [[buffer(0)]], uint i [[thread_position_in_grid]]) { d[i] = 1.0f; }"),
    ("a buffer in threadgroup memory", "neither device nor constant",
     "kernel void k(threadgroup float *d [[buffer(0)]], uint i [[thread_position_in_grid]]) { d[i] = 1.0f; }"),
    ("a buffer by value", "is neither device nor constant", "kernel void k(uint n [[buffer(0)]], uint i [[thread_position_in_grid]]) { }"),
    ("a buffer index twice", "twice", "kernel void k(device float *d [[buffer(0)]], device float *e [[buffer(0)]], "
     "uint i [[thread_position_in_grid]]) { d[i] = e[i]; }"),
    ("a buffer index over 30", "buffer(31)", "kernel void k(device float *d [[buffer(31)]], uint i [[thread_position_in_grid]]) { d[i] = 1.0f; }"),
    ("two pieces of threadgroup memory", "one piece",
     "kernel void k(device float *d [[buffer(0)]], threadgroup float *s [[threadgroup(0)]], threadgroup float *t [[threadgroup(1)]], "
     "uint i [[thread_position_in_grid]]) { d[i] = s[i] + t[i]; }"),
    ("threadgroup memory that is device", "not a threadgroup pointer",
     "kernel void k(device float *d [[buffer(0)]], device float *s [[threadgroup(0)]], uint i [[thread_position_in_grid]]) { d[i] = s[i]; }"),
    ("uint and uint3 positions", "several types", "kernel void k(device float *d [[buffer(0)]], uint i [[thread_position_in_grid]], "
     "uint3 g [[threadgroup_position_in_grid]]) { d[i] = float(g.x); }"),
    ("uint and ushort positions", "several types", "kernel void k(device float *d [[buffer(0)]], uint i [[thread_position_in_grid]], "
     "ushort t [[thread_position_in_threadgroup]]) { d[i] = float(t); }"),
    ("a position that is an int", "not uint or ushort", "kernel void k(device float *d [[buffer(0)]], int i [[thread_position_in_grid]]) { d[i] = 1.0f; }"),
    ("a lane that is a vector", "not a vector", "kernel void k(device float *d [[buffer(0)]], uint2 l [[thread_index_in_simdgroup]]) { d[l.x] = 1.0f; }"),
    ("an attribute that does not exist", "not supported", "kernel void k(device float *d [[buffer(0)]], uint i [[thread_place]]) { d[i] = 1.0f; }"),
    ("a texture", "no template named", "kernel void k(device float *d [[buffer(0)]], texture2d<float> t [[texture(0)]], uint i [[thread_position_in_grid]]) { d[i] = 1.0f; }"),
    ("a template kernel that nobody instantiates", "never instantiated",
     "template <typename T> kernel void k(device T *d [[buffer(0)]], uint i [[thread_position_in_grid]]) { d[i] = T(1.0f); }"),
    ("an instance of an unknown kernel", "use of undeclared identifier", 'instantiate_kernel("k_f32", k, float)'),
    ("two instances of one name", "two kernels have the name",
     "template <typename T> kernel void k(device T *d [[buffer(0)]], uint i [[thread_position_in_grid]]) { d[i] = T(1.0f); }\n"
     'instantiate_kernel("k", k, float)\ninstantiate_kernel("k", k, half)'),
    ("an instance with a wrong type inside", "is not a structure or union",
     "template <typename T> kernel void k(device T *d [[buffer(0)]], uint i [[thread_position_in_grid]]) { d[i] = d[i].nothing; }\n"
     'instantiate_kernel("k_f32", k, float)'),
    ("host_name", "instantiate_kernel",
     "template <typename T> kernel void k(device T *d [[buffer(0)]], uint i [[thread_position_in_grid]]) { d[i] = T(1.0f); }\n"
     'template [[host_name("k_f32")]] kernel void k<float>(device float *, uint);'),
    ("a function constant", "function constants", "constant bool fast [[function_constant(0)]];"),
    ("an argument struct over 4 KB", "at most 4096",
     "struct a { uint n[1025]; }; kernel void k(constant a &x [[buffer(0)]], device float *d [[buffer(1)]], uint i [[thread_position_in_grid]]) { d[i] = float(x.n[i]); }"),
    ("more threads than Metal has", "max_total_threads",
     "[[max_total_threads_per_threadgroup(2048)]] kernel void k(" + ARGUMENTS + ") { d[i] = sh[0]; }"),
    ("a helper that is not inlined", "lacks METAL_FUNC", "float f(float x) { return x; }"),
    ("a method that is not inlined", "lacks METAL_FUNC", "struct s { float v; float get() const thread { return v; } };"),
    ("a struct copied out of constant", "no matching constructor for initialization of", "struct a { uint n; }; " + F + "uint f(constant a &x) { a y = x; return y.n; }"),
]

SOUND = [
    ("an argument struct", "struct a { uint n; }; " + F + "uint f(constant a &x) { return x.n; }"),
    ("templates for two spaces", "template <typename T> " + F + "T g(device const T *p) { return p[0]; } template <typename T> "
     + F + "T g(threadgroup const T *p) { return p[1]; } " + F + "float f(device float *a, threadgroup float *b) { return g(a) + g(b); }"),
    ("a device reference", F + "void f(device float *p) { device float &x = p[3]; x += 1.0f; }"),
    ("const in all places", F + "float f(const device float *p, device const float *q, device float *const r) { return p[0] + q[0] + r[0]; }"),
    ("half literals", F + "half f(half x) { return x * 2.0h + 1.0h; }"),
    ("as_type", F + "half4 f(uint2 x) { return as_type<half4>(x); } " + F + "uint g(float x) { return as_type<uint>(x); }"),
    ("swizzles", F + "float4 f(float4 v) { v.xy = v.zw; v.w += v.x; return v.wzyx; }"),
    ("constructors", F + "float4 f(float2 v, half4 h) { return float4(v, 1.0f, 2.0f) + float4(h) + float4(v.x) + float4(v, v); }"),
    ("structs by value", "struct a { uint n; float4 v; }; " + F + "a g(a x) { x.n++; return x; } " + F
     + "uint f() { a x; x.n = 1; x.v = float4(0.0f); a y = g(x); y = x; return y.n; }"),
    ("references to locals", "struct a { float v[4]; }; " + F + "void g(thread a &x) { x.v[0] = 1.0f; } " + F
     + "float f() { a x; g(x); thread float *p = x.v; return p[0]; }"),
    ("methods for two spaces", "struct s { float v; " + F + "float get() const device { return v; } " + F
     + "float get() const thread { return v; } }; " + F + "float f(device s *p) { s x; x.v = 1.0f; return p->get() + x.get(); }"),
    ("static methods", "struct s { static " + F + "uint at(uint i) { return i * 2; } }; " + F + "uint f(uint i) { return s::at(i); }"),
    ("constant tables", "constant float t[4] = {1.0f, 2.0f, 3.0f, 4.0f}; constant constexpr int n = 4; " + F + "float f(uint i) { return t[i % n]; }"),
    ("static constexpr constant members", "template <int N> struct s { static constexpr constant int size = N * 2; float v[size]; }; "
     + F + "float f() { s<2> x; x.v[0] = 1.0f; return x.v[s<2>::size - 4]; }"),
    ("atomics", F + "uint f(device atomic_uint *p, threadgroup atomic_uint *q, device atomic_float *r) { "
     "atomic_fetch_add_explicit(r, 1.0f, memory_order_relaxed); atomic_fetch_or_explicit(q, 4u, memory_order_relaxed); "
     "return atomic_fetch_add_explicit(p, 1u, memory_order_relaxed) + atomic_load_explicit(q, memory_order_relaxed); }"),
    ("simdgroup matrices", F + "void f(threadgroup half *p, device float *y) { simdgroup_half8x8 a, b; "
     "simdgroup_float8x8 c = make_filled_simdgroup_matrix<float, 8, 8>(0.0f); simdgroup_load(a, p, 8); "
     "simdgroup_load(b, p, 8, ulong2(0, 0), true); simdgroup_multiply_accumulate(c, a, b, c); c.thread_elements()[0] *= 2.0f; simdgroup_store(c, y, 8); }"),
    ("matrices of bfloat", F + "void f(threadgroup bfloat *p, device float *y) { simdgroup_matrix<bfloat, 8, 8> a; "
     "simdgroup_float8x8 c = make_filled_simdgroup_matrix<float, 8, 8>(0.0f); simdgroup_load(a, p, 8); "
     "simdgroup_multiply_accumulate(c, a, a, c); simdgroup_store(c, y, 8); }"),
    ("a limit of threads", "[[max_total_threads_per_threadgroup(256)]] kernel void k(" + ARGUMENTS + ") { d[i] = float(n) + sh[0]; }"),
    ("simd functions", F + "float f(float x, ushort l) { return simd_sum(x) + simd_max(x) + simd_shuffle_xor(x, 1) + "
     "simd_broadcast(x, 0) + simd_shuffle(x, l) + simd_prefix_exclusive_sum(x) + float(simd_shuffle(uint2(1, 2), l).x); }"),
    ("bfloat", F + "float f(device const bfloat *p) { return float(p[0]) + float(bfloat(1.0f)); }"),
    ("bfloat4", F + "float4 f(device const bfloat4 *p) { return float4(p[0]); } " + F + "bfloat4 g(float4 x) { return bfloat4(x); }"),
    ("to<vec<T, 4>>", "template <typename T> " + F + "vec<T, 4> f(float4 v) { return to<vec<T, 4>>(v); } " + F
     + "half4 g(float4 v) { return f<half>(v); } " + F + "bfloat4 h(float4 v) { return f<bfloat>(v); }"),
    ("select, any, all", F + "float4 f(float4 a, float4 b) { return any(a > b) ? select(a, b, a > b) : a; }"),
    ("integers", F + "uint f(uint x, ulong y) { return min(x, 8u) + popcount(x) + clz(x) + ctz(x) + mulhi(x, 3u) + uint(y * 5ul >> 32); }"),
    ("packed vectors", F + "float4 f(device const packed_float4 *p, device const packed_uchar4 *q) { return float4(p[0]) + float4(q[0]); }"),
    ("precise and fast", F + "float f(float x) { return precise::exp(x) + fast::log(x) + precise::divide(x, 3.0f) + metal::precise::tanh(x); }"),
    ("a table of addresses", "struct slab { device uchar *base; }; kernel void k(device const slab *slabs [[buffer(5)]], "
     "device float *d [[buffer(0)]], uint i [[thread_position_in_grid]]) { d[i] = float(slabs[1].base[i]); }"),
    ("instances out of a macro", "template <typename T, int N> kernel void k(device T *d [[buffer(0)]], uint i [[thread_position_in_grid]]) "
     "{ d[i] = T(float(N)); }\n#define EACH(name, T) instantiate_kernel(\"k_\" name \"_2\", k, T, 2) instantiate_kernel(\"k_\" name \"_\" \"3\", k, T, 3)\n"
     'EACH("f32", float)\nEACH("f16", half)'),
    ("a macro of arguments", "#define PLACES uint3 g [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]\n"
     "kernel void k(device float *d [[buffer(0)]], PLACES) { d[g.x] = float(lane); }"),
    ("a template of types and sizes", "struct shape { static constexpr constant int rows = 4; }; template <typename S> "
     "[[max_total_threads_per_threadgroup(S::rows * 32)]] kernel void k(device float *d [[buffer(0)]], uint i [[thread_position_in_grid]]) "
     '{ d[i] = float(S::rows); }\ninstantiate_kernel("k4", k, shape)'),
]


# With tensor units (TILE_TENSOR).  OPERANDS: a left one of 16 x 32, a right one of 32 x 32, and their sums.
ROWS = "tensor<threadgroup %s, extents<int, %s>, tensor_inline> %s((threadgroup %s *)p, extents<int, %s>()); "


def rows(name, kind="half", shape="32, 32"):
    return ROWS % (kind, shape, name, kind, shape)


def product(body, unit="16, 32, 32", left=rows("a", shape="32, 16"), right=rows("b")):
    return F + ("void f(threadgroup half *p, device half *g, threadgroup float *y) { tensor_product<%s> u; %s %s "
                "auto s = u.get_destination_cooperative_tensor<decltype(a), decltype(b), float>(); %s }"
                % (unit, left, right, body))


TENSOR_MISTAKES = [
    ("a product of 8 x 8", "at least one of M and N must be a multiple of 16", product("u.run(a, b, s);", "8, 8, 32")),
    ("a product of 20 columns", "N must be a multiple of 8", product("u.run(a, b, s);", "16, 20, 32")),
    ("a product over 24 of k", "K must be a multiple of 16", product("u.run(a, b, s);", "16, 32, 24")),
    ("operands of two types", "operands of two types", product("u.run(a, b, s);", right=rows("b", "bfloat"))),
    ("operands in float", "multiplies half and bfloat",
     product("u.run(a, b, s);", left=rows("a", "float", "32, 16"), right=rows("b", "float"))),
    ("a left operand of another length", "extents of the left operand",
     product("u.run(a, b, s);", left=rows("a", shape="64, 16"))),
    ("too few rows on the right", "extents of the right operand", product("u.run(a, b, s);", right=rows("b", shape="32, 16"))),
    ("a tensor over memory of another space", "no matching con",
     product("tensor<threadgroup half, extents<int, 32, 32>, tensor_inline> c(g, extents<int, 32, 32>());")),
    ("sums stored as another type", "store: another type", product(rows("c", shape="32, 16") + "s.store(c);")),
    ("sums stored where there is no room", "smaller than the product",
     product("tensor<threadgroup float, extents<int, 16, 16>, tensor_inline> c(y, extents<int, 16, 16>()); s.store(c);")),
    ("an operand that is no variable", "no matching member function", product("u.run(a, b, 1.0f);")),
]
TENSOR_SOUND = [
    ("a product on tensor units",
     product("UNROLL\nfor (ushort i = 0; i < s.get_capacity(); i++) if (s.is_valid_element(i)) s[i] = 0.0f; u.run(a, b, s); "
             "tensor<threadgroup float, extents<int, 32, 16>, tensor_inline> c(y, extents<int, 32, 16>()); s.store(c);")),
]


def run(path, code, defines=()):
    return strict.check(path, HEAD + code + "\n", defines)


def main():
    try:
        strict.setup()
        common.find_clang()
    except Failed as e:
        print("1..0 # SKIP " + str(e).split("\n")[0])
        return 0
    bad = 0
    print("1..%d" % (len(MISTAKES) + len(SOUND) + len(TENSOR_MISTAKES) + len(TENSOR_SOUND)))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "case.metal")
        number = 0
        for name, words, code, *defines in MISTAKES + [(*m, "TILE_TENSOR") for m in TENSOR_MISTAKES]:
            number += 1
            found = run(path, code, defines)
            good = any(words in f.replace(path, "") for f in found)
            bad += not good
            print("%s %d - finds: %s" % ("ok" if good else "not ok", number, name))
            if not good:
                print("# said: %s" % (found or "nothing"))
        for name, code, *defines in SOUND + [(*s, "TILE_TENSOR") for s in TENSOR_SOUND]:
            number += 1
            found = run(path, code, defines)
            bad += bool(found)
            print("%s %d - accepts: %s" % ("not ok" if found else "ok", number, name))
            for f in found:
                print("# " + f)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
