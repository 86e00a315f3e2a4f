#!/usr/bin/env python3
"""The products' kernels on an NVIDIA GPU: right, the same bits, and how fast beside cuBLAS.

    products.py build DIR     PTX of shaders/core/linear.metal and glu.metal (clang 19)
    products.py run DIR       needs a GPU of compute capability 9.0, torch and numpy

run checks every kernel of float16 against float64, compares the bits of few rows with
those of many, then measures in rounds that alternate with cuBLAS: a CUDA graph of calls
over weights in rotation, more than the caches hold; the median of the rounds.  Both write
float16; very many rows are measured with float written too, against the same.  Which kernel
a shape gets is ops/gpu/products.c's rule, repeated in `lowered` below.
"""
import ctypes as C
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
MULTIPROCESSORS = 132
# shaders/core/shapes.h: BM, BN, BK, SM, SN, stages, wide
SHAPES = {
    "few_16": (16, 16, 256, 1, 2, 4, 0), "few_24": (16, 24, 256, 1, 3, 4, 0),
    "few_32": (16, 32, 256, 1, 4, 4, 0), "few": (16, 48, 256, 1, 6, 3, 0),
    "few_48": (16, 48, 256, 1, 6, 4, 0), "few_64": (16, 64, 128, 1, 4, 4, 0),
    "few_96": (16, 96, 128, 1, 6, 4, 0), "tile": (64, 64, 64, 2, 2, 4, 0),
    "wide_64": (64, 64, 64, 4, 1, 6, 1), "wide_128": (128, 128, 64, 8, 1, 6, 1),
    "wide_192": (128, 192, 64, 8, 1, 5, 1), "wide_256": (128, 256, 64, 8, 1, 4, 1),
}
GLU = {     # where they differ
    "few": (16, 48, 256, 1, 3, 3, 0), "few_48": (16, 48, 256, 1, 3, 4, 0),
}
LINEAR_OUT_F16, LINEAR_PAIRS = 4, 16     # shaders/args.h
# outputs, k: TinyLlama 1.1B (o, qkv, down, gate and up as one, logits), Devstral-Small 24B
# (the same), and a square
WEIGHTS = [(2048, 2048), (2560, 2048), (5632, 2048), (11264, 2048), (2048, 5632), (32000, 2048),
           (5120, 5120), (6144, 5120), (5120, 4096), (32768, 5120), (65536, 5120), (5120, 32768),
           (131072, 5120)]
MANY_ROWS = (32, 64, 128, 512, 4096)


def build(folder):
    os.makedirs(folder, exist_ok=True)
    for name in ("linear", "glu"):
        subprocess.run([sys.executable, os.path.join(ROOT, "tools/msl/msl"), "ptx", "--sm", "90a",
                        os.path.join(ROOT, "shaders/core/%s.metal" % name),
                        os.path.join(folder, name + ".ptx")], check=True)


def lowered(outputs, rows):
    """The kernel for a step of so many rows."""
    few = [w for w in (16, 24, 32, 48, 96) if -(-outputs // w) <= MULTIPROCESSORS] or [64]
    if rows <= (48 if few[0] <= 32 else 16):
        return "few_%d" % few[0]
    most_64 = max(MULTIPROCESSORS * 13 // 10 // -(-outputs // 64), 1) * 64
    across = -(-outputs // 256)
    most_128 = max((-(-(MULTIPROCESSORS // 2) // across) - 1) * 128, most_64)
    most_192 = MULTIPROCESSORS // -(-outputs // 192) * 128
    if rows <= most_64:
        return "wide_64"
    return "wide_128" if rows <= most_128 else "wide_192" if rows <= most_192 else "wide_256"


def run(folder):
    import numpy as np
    import torch
    cu = C.CDLL("libcuda.so.1")
    torch.zeros(1, device="cuda")
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    print(torch.cuda.get_device_name(), "torch", torch.__version__)

    def ok(result, what):
        if result:
            sys.exit("CUDA error %d: %s" % (result, what))

    modules = {}
    for name in ("linear", "glu"):
        modules[name] = C.c_void_p()
        with open(os.path.join(folder, name + ".ptx"), "rb") as f:
            ok(cu.cuModuleLoadData(C.byref(modules[name]), f.read() + b"\0"), name)
    functions = {}

    def launch(op, kernel, shares, x, weights, y, step):
        rows, k = x.shape
        n = weights[0].shape[0]
        bm, bn, bk, sm, sn, stages, wide = op == "glu" and GLU.get(kernel) or SHAPES[kernel]
        few = kernel.startswith("few")
        shared = max(stages * (bm + bn) * (bk + (0 if wide else 8)) * 2, bm * (bn + 8) * 4)
        shared *= shares if few else 1
        name = "%s_f16_f16_%s" % (op, kernel)
        if name not in functions:
            functions[name] = C.c_void_p()
            ok(cu.cuModuleGetFunction(C.byref(functions[name]), modules[op], name.encode()), name)
            ok(cu.cuFuncSetAttribute(functions[name], 8, 227 * 1024), name)
        act = 1 if op == "glu" else 0
        flags = LINEAR_PAIRS * (n % 2 == 0) + LINEAR_OUT_F16 * (y.dtype == torch.half)
        args = np.array([k, n, 0, 0, 0, 1, k, n, 0, act, 0, shares, k * 2, flags, 0],
                        np.uint32).tobytes()
        pointers = [step, x] + (weights + [y] if op == "glu" else weights * 4 + [y] * 5 + [y])
        keep = [C.create_string_buffer(args, len(args))]
        keep += [C.c_uint64(t.data_ptr()) for t in pointers]
        params = (C.c_void_p * len(keep))(*[C.cast(C.pointer(p), C.c_void_p) for p in keep])
        columns = bn // 2 if op == "glu" else bn
        grid = -(-n // columns) * -(-rows // bm)
        threads = sm * sn * 32 * (shares if few else 1)
        stream = C.c_void_p(torch.cuda.current_stream().cuda_stream)
        ok(cu.cuLaunchKernel(functions[name], grid, 1, 1, threads, 1, 1, shared, stream, params, None), name)

    def step_of(rows):
        head = torch.zeros(64, device="cuda", dtype=torch.int32)
        head[0] = head[2] = rows
        return head

    def random(*shape):
        return (torch.randn(*shape, device="cuda") * 0.05).half()

    bad = 0
    for op in ("linear", "glu"):
        for n, k in ((330, 1024), (1000, 1160)):
            for shares in (1, 4):
                x, w = random(200, k), [random(n, k) for _ in range(2 if op == "glu" else 1)]
                ref = [x.double() @ m.double().T for m in w]
                ref = torch.nn.functional.silu(ref[0]) * ref[1] if op == "glu" else ref[0]
                first = None
                for kernel in sorted(SHAPES, reverse=True):
                    if kernel in ("wide_192", "wide_256") or kernel.startswith("few"):
                        if shares > 1 or (op == "glu" and kernel in ("few_16", "few_24", "few_32")):
                            continue
                    for rows in (1, 5, 16, 40) if kernel.startswith("few") else (200, 17):
                        y = torch.full((rows, n), float("nan"), device="cuda")
                        launch(op, kernel, shares, x[:rows].contiguous(), w, y, step_of(rows))
                        torch.cuda.synchronize()
                        error = float(((y.double() - ref[:rows]) ** 2).sum() / (ref[:rows] ** 2).sum())
                        first = y if first is None else first
                        same = torch.equal(y, first[:rows])
                        if not error < 1e-10 or not same:
                            bad += 1
                            print("WRONG: %s %s, %d rows of %dx%d, %d shares: NMSE %.2g, same bits: %s"
                                  % (op, kernel, rows, n, k, shares, error, same))
    print("kernels checked against float64 and each other:", "all well" if not bad else "%d wrong" % bad)

    def seconds(call, n):
        call(0)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(n):
                call(i)
        graph.replay()
        times = []
        for _ in range(6):
            a, b = torch.cuda.Event(True), torch.cuda.Event(True)
            a.record()
            graph.replay()
            b.record()
            b.synchronize()
            times.append(a.elapsed_time(b) * 1e-3 / n)
        return float(np.median(times))

    def measure(rows, n, k, full):
        count = max(2, min(24, int(400e6 / (n * k * 2)) + 1)) if rows <= 128 else 3
        weights, x, step = [random(n, k) for _ in range(count)], random(rows, k), step_of(rows)
        half = torch.empty(rows, n, device="cuda", dtype=torch.half)
        y = torch.empty(rows, n, device="cuda") if full else half
        kernel, shares = lowered(n, rows), 1
        calls = max(count, 24) if n * k < 60e6 and rows <= 128 else 4
        ours, blas = [], []
        for _ in range(5):
            blas.append(seconds(lambda i: torch.matmul(x, weights[i % count].T, out=half), calls))
            ours.append(seconds(lambda i: launch("linear", kernel, shares, x, [weights[i % count]], y, step), calls))
        a, b = np.median(ours), np.median(blas)
        size, flops = (n * k + rows * k + rows * n) * 2, 2 * rows * n * k
        print("%5d rows %6dx%-5d %-10s %9.2f us %6.2f TB/s %6.1f TFLOP/s   cuBLAS %9.2f us   %5.1f %%%s"
              % (rows, n, k, kernel, a * 1e6, size / a / 1e12, flops / a / 1e12, b * 1e6, 100 * b / a,
                 "  float out" if full else ""),
              flush=True)

    for rows in (1, 16) + MANY_ROWS:
        for n, k in WEIGHTS:
            if rows * n < 4096 * 70000:
                measure(rows, n, k, False)
                if rows > 512:
                    measure(rows, n, k, True)
    return bad != 0


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("build", "run"):
        sys.exit(__doc__)
    sys.exit(build(sys.argv[2]) if sys.argv[1] == "build" else run(sys.argv[2]))
