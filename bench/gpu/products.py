#!/usr/bin/env python3
"""Matrix products on an NVIDIA GPU: accuracy, equal bits, and speed compared with cuBLAS.

    products.py build DIR     PTX of shaders/core/linear.metal and glu.metal (clang 19)
    products.py run DIR       needs a GPU of compute capability 9.0, torch and numpy

run checks the float16 kernels against float64, compares the bits of few rows with those of
many, then measures in rounds that alternate with cuBLAS, and prints the median: a CUDA graph
of launches over rotated weights, which exceed the caches.  Both write float16; for very many
rows Ingot is also measured with float output.  `lowered` below repeats the rule of
ops/gpu/product_kernels.c that selects the kernel for a shape.
"""
import ctypes as C

import launch as gpu

MULTIPROCESSORS = 132
# shaders/core/shapes.h: BM, BN, BK, SM, SN, stages, wide
SHAPES = {
    "rush_24": (16, 24, 256, 1, 4, 4, 1), "rush_64": (16, 64, 128, 1, 5, 5, 1),
    "rush_96": (16, 96, 128, 1, 7, 4, 1), "wide_64": (64, 64, 64, 4, 1, 6, 1),
    "stream_128": (128, 128, 64, 12, 1, 6, 1), "stream_160": (128, 160, 64, 12, 1, 5, 1),
}
GLU = {     # where they differ
    "rush_48": (16, 48, 256, 1, 4, 4, 1),
}
LINEAR_OUT_F16, LINEAR_PAIRS, F16 = 4, 16, 1     # shaders/args.h
# outputs, k: TinyLlama 1.1B (o, qkv, down, gate and up as one, logits), Devstral-Small 24B
# (the same), and a square
WEIGHTS = [(2048, 2048), (2560, 2048), (5632, 2048), (11264, 2048), (2048, 5632), (32000, 2048),
           (5120, 5120), (6144, 5120), (5120, 4096), (32768, 5120), (65536, 5120), (5120, 32768),
           (131072, 5120)]
MANY_ROWS = (32, 64, 128, 256, 512, 1024, 2048, 4096)


def lowered(outputs, rows):
    """The kernel of one weight for a step of `rows` rows."""
    if rows <= 16 and outputs > 48 * MULTIPROCESSORS:
        return "rush_96" if outputs <= 96 * MULTIPROCESSORS else "rush_64"
    if outputs <= 48 * MULTIPROCESSORS:
        if rows <= 16 * min(max(2 * MULTIPROCESSORS // -(-outputs // 24), 1), 3):
            return "rush_24"
        if rows <= 16 * min(2 * MULTIPROCESSORS // -(-outputs // 64), 8):
            return "rush_64"
    if rows <= 64 * max(MULTIPROCESSORS * 6 // 5 // -(-outputs // 64), 1):
        return "wide_64"

    def columns(width, down):
        across, clusters = -(-outputs // width), MULTIPROCESSORS // 2
        return -(-(down // 2 * across + (down % 2 * (across + 1)) // 2) // clusters) * width
    down = -(-rows // 128)
    over = range(down, down + 1) if down <= 16 else range(17, 33)
    wide, narrow = (sum(columns(width, d) for d in over) for width in (160, 128))
    return "stream_160" if wide * 8 <= narrow * 7 else "stream_128"


def run(folder):
    import numpy as np
    import torch
    kernels = gpu.Kernels(folder)
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    maps = {}

    def tensor_map(t, box_rows):
        """A matrix's tensor map, as runtime/cuda/graphs.c makes it."""
        key = (t.data_ptr(), t.shape, box_rows)
        if key not in maps:
            raw = C.create_string_buffer(192)
            at = (C.addressof(raw) + 63) // 64 * 64
            kernels.ok(kernels.cu.cuTensorMapEncodeTiled(
                C.c_void_p(at), 1, 2, C.c_void_p(t.data_ptr()),
                (C.c_uint64 * 2)(t.shape[1], t.shape[0]), (C.c_uint64 * 1)(t.shape[1] * 2),
                (C.c_uint32 * 2)(64, box_rows),
                (C.c_uint32 * 2)(1, 1), 0, 3, 2, 0), "a tensor map")
            maps[key] = C.create_string_buffer(C.string_at(at, 128), 128)
        return maps[key]

    def launch(op, kernel, shares, x, weights, y, step):
        rows, k = x.shape
        n = weights[0].shape[0]
        bm, bn, bk, sm, sn, stages, wide = op == "glu" and GLU.get(kernel) or SHAPES[kernel]
        form, columns = kernel.split("_")[0], bn // 2 if op == "glu" else bn
        shared = stages * (bm + bn) * bk * 2
        grid, cluster = -(-n // columns) * -(-rows // bm), 1
        if form == "rush":
            shared += 16 * stages
        elif form == "stream":
            shared += 2 * 64 * (64 if bn % 64 == 0 else 32) * 4 + 16 * stages + 16
            grid, cluster = MULTIPROCESSORS // 2 * 2, 2
        act = 1 if op == "glu" else 0
        flags = LINEAR_PAIRS * (n % 2 == 0) + LINEAR_OUT_F16 * (y.dtype == torch.half)
        args = np.array([k, n, 0, 0, 0, 1, k, n, 0, act, 0, shares, k * 2, flags, 0, F16, 64] + [0] * 6,
                        np.uint32).tobytes()
        assert len(args) == 92      # struct linear_args
        operands = weights if op == "glu" else weights * 4
        pointers = [y] if op == "glu" else [y] * 6
        params = [step]
        if form == "wide":
            pointers = [x] + operands + pointers
        else:
            params.append(tensor_map(x, 8 if form == "rush" else bm))
            params += [tensor_map(w, columns if form == "rush" else bn // 2) for w in operands]
        kernels.prepare(op, "%s_f16_f16_%s" % (op, kernel), args, params + pointers, grid, sm * sn * 32, shared,
                        cluster)()

    def step_of(rows):
        head = torch.zeros(64, device="cuda", dtype=torch.int32)
        head[0] = head[2] = rows
        return head

    def random(*shape):
        return (torch.randn(*shape, device="cuda") * 0.05).half()

    bad = 0
    for op in ("linear", "glu"):
        for n, k in ((330, 1024), (1000, 1160), (2560, 2048)):
            x, w = random(3000, k), [random(n, k) for _ in range(2 if op == "glu" else 1)]
            ref = [x.double() @ m.double().T for m in w]
            ref = torch.nn.functional.silu(ref[0]) * ref[1] if op == "glu" else ref[0]
            first = None
            for kernel in sorted({**SHAPES, **(GLU if op == "glu" else {})}, reverse=True):
                if op == "glu" and kernel in ("rush_24", "stream_160"):
                    continue
                for rows in (1, 5, 16, 40) if kernel.startswith("rush") else (3000, 200, 300, 17):
                    y = torch.full((rows + 3, n), float("nan"), device="cuda")
                    launch(op, kernel, 1, x[:rows].contiguous(), w, y[:rows], step_of(rows))
                    torch.cuda.synchronize()
                    clean, y = bool(torch.isnan(y[rows:]).all()), y[:rows]
                    error = float(((y.double() - ref[:rows]) ** 2).sum() / (ref[:rows] ** 2).sum())
                    first = y if first is None else first
                    same = torch.equal(y, first[:rows])
                    if not error < 1e-10 or not same or not clean:
                        bad += 1
                        print("WRONG: %s %s, %d rows of %dx%d: NMSE %.2g, same bits: %s, nothing "
                              "beyond: %s" % (op, kernel, rows, n, k, error, same, clean))
    print("kernels checked against float64 and each other:", "all well" if not bad else "%d wrong" % bad)

    def graph_of(call, n):
        call(0)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(n):
                call(i)
        graph.replay()
        return graph

    def seconds(graph):
        times = []
        for _ in range(6):
            a, b = torch.cuda.Event(True), torch.cuda.Event(True)
            a.record()
            graph.replay()
            b.record()
            b.synchronize()
            times.append(a.elapsed_time(b) * 1e-3)
        return float(np.median(times))

    def measure(rows, n, k, full):
        count = max(2, min(24, int(400e6 / (n * k * 2)) + 1)) if rows <= 128 else 3
        weights, x, step = [random(n, k) for _ in range(count)], random(rows, k), step_of(rows)
        half = torch.empty(rows, n, device="cuda", dtype=torch.half)
        y = torch.empty(rows, n, device="cuda") if full else half
        kernel, shares = lowered(n, rows), 1
        calls = max(count, 24) if n * k < 60e6 and rows <= 128 else 4
        pair = [graph_of(lambda i: launch("linear", kernel, shares, x, [weights[i % count]], y, step), calls),
                graph_of(lambda i: torch.matmul(x, weights[i % count].T, out=half), calls)]
        a, b = np.median([[seconds(g) / calls for g in pair] for _ in range(5)], axis=0)
        maps.clear()
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
    gpu.main(__doc__, lambda folder: gpu.build(folder, ("core/linear", "core/glu")), run)
