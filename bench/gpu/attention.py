#!/usr/bin/env python3
"""Attention of a prompt on an NVIDIA GPU: speed, and equal bits of its two kernels.

    attention.py build DIR    PTX of shaders/attention (clang 19)
    attention.py run DIR      needs a GPU of compute capability 9.0, torch and numpy

run launches one layer for 2,048 rows at the beginning of a prompt and far into it, and for prompts of 8,192 and
32,768 rows, over a paged cache in float16 and in Q8_0, by attention_loop and by attention_stream, and compares their
bits.  At the beginning it measures PyTorch's attention of the same queries, without a cache, too.  Medians of twelve
launches.
"""
import sys

import launch

LAYERS, SLAB_BLOCKS = 8, 8
SHAPES = [(32, 8, 128), (32, 4, 64)]    # heads, those of K and V, columns
PARTS = ((2048, 0), (2048, 14336), (8192, 0), (32768, 0))     # rows, and the first one's position
# shaders/step.h and shaders/args.h
BLOCK, RANGES_NONE, BLOCK_BITS, HEAD_BYTES, KV_AT = 16, 0xffffffff, 12, 256, 128
PLACE = {"positions": 10, "seq_rows": 13, "partials": 15, "slabs": 20, "sees_to": 25}   # words of step_head
F16, Q8_0 = 1, 8
# shaders/attention/sizes.h: queries, threads and bytes of a threadgroup
def loop_sizes(d):
    return 64, 128, (64 + 4 * 32) * (d + 8) * 2 + 64 * (36 + 3) * 4


def stream_sizes(d):
    groups = 3 if d <= 64 else 2
    return 64 * groups, 128 * (groups + 1), 64 * groups * d * 2 + 3 * (2 * 64 * d * 2 + 16)


KERNELS = {"loop": loop_sizes, "stream": stream_sizes}


def step_of(torch, np, n_kv, dim, n_rows, start, coded):
    """A step of so many rows of one sequence from a position on, and its cache of random values."""
    blocks, half_of = (start + n_rows + BLOCK - 1) // BLOCK, (17 if coded else 32) * dim  # bytes of K, or V
    block_bytes = LAYERS * n_kv * 2 * half_of
    cache = (torch.randn(blocks * block_bytes // 2, device="cuda") * 0.5).half()
    if coded:
        rows = cache.view(torch.int8).view(-1, half_of)
        rows[:, :BLOCK * dim] = torch.randint(-127, 128, (len(rows), BLOCK * dim), device="cuda", dtype=torch.int8)
        rows[:, BLOCK * dim:] = (torch.rand(len(rows), dim // 2, device="cuda") * 0.01).half().view(torch.int8)
    head, arrays = np.zeros(HEAD_BYTES // 4, np.uint32), b""

    def put(array):
        nonlocal arrays
        at, arrays = HEAD_BYTES + len(arrays), arrays + array.tobytes() + b"\0" * (-array.nbytes % 16)
        return at
    number = np.arange(blocks, dtype=np.uint32)
    slabs = np.arange(-(-blocks // SLAB_BLOCKS), dtype=np.uint64) * np.uint64(SLAB_BLOCKS * block_bytes)
    head[0], head[1] = n_rows, 1
    head[PLACE["positions"]] = head[PLACE["sees_to"]] = put(np.arange(start, start + n_rows, dtype=np.int32))
    head[PLACE["seq_rows"]] = put(np.array([0, n_rows], np.int32))
    head[PLACE["partials"]] = put(np.full(n_rows, RANGES_NONE, np.uint32))
    head[PLACE["slabs"]] = put(slabs + np.uint64(cache.data_ptr()))
    head[KV_AT // 4:KV_AT // 4 + 8] = [
        block_bytes, 0, put(number // SLAB_BLOCKS << BLOCK_BITS | number % SLAB_BLOCKS), blocks,
        n_kv * 2 * half_of, half_of, 2 * half_of, dim * 2]
    return torch.frombuffer(bytearray(head.tobytes() + arrays), dtype=torch.uint8).cuda(), cache


def run(folder):
    import numpy as np
    kernels = launch.Kernels(folder)
    torch = kernels.torch
    bad = 0

    def median_us(call):
        times = []
        for _ in range(12):
            a, b = torch.cuda.Event(True), torch.cuda.Event(True)
            a.record()
            call()
            b.record()
            b.synchronize()
            times.append(a.elapsed_time(b) * 1e3)
        return float(np.median(times))

    def say(what, name, us, flops):
        print("%s %-16s %8.1f us %6.1f TFLOP/s" % (what, name, us, flops / us / 1e6), flush=True)

    for n_heads, n_kv, dim in SHAPES:
        for n_rows, start in PARTS:
            what = "%d heads of %3d, %5d rows from %5d" % (n_heads, dim, n_rows, start)
            flops = 4 * dim * n_heads * sum(range(start + 1, start + n_rows + 1))
            q = torch.randn(n_rows, n_heads * dim, device="cuda").half()
            for coded in False, True:
                step, cache = step_of(torch, np, n_kv, dim, n_rows, start, coded)
                args = np.zeros(20, np.uint32)
                args[:7] = [n_heads, n_kv, dim, 0, 0, n_heads * dim, n_heads * dim]
                args[7:8].view(np.float32)[0] = 1.44269504 / dim ** 0.5
                args[9:12], args[17] = [F16] + [Q8_0 if coded else F16] * 2, dim
                form, first = "q8" if coded else "f16", None
                for kind, sizes in KERNELS.items():
                    queries, threads, shared = sizes(dim)
                    y = torch.full((n_rows, n_heads * dim), float("nan"), device="cuda").half()
                    grid = -(-n_rows * (n_heads // n_kv) // queries) * n_kv
                    us = median_us(kernels.prepare(
                        "attention_q8" if coded else "attention", "attention_%s_%s_d%d" % (kind, form, dim),
                        args.tobytes(), [step, q, y, y, y], grid, threads, shared))
                    first = y if first is None else first
                    same = bool(torch.isfinite(y).all()) and torch.equal(y, first)
                    bad += not same
                    say(what, kind + " " + form + ("" if same else " WRONG"), us, flops)
            if start == 0:
                k, v = (torch.randn(1, n_kv, n_rows, dim, device="cuda").half() for _ in range(2))
                rows = q.view(1, n_rows, n_heads, dim).transpose(1, 2).contiguous()
                backends = torch.nn.attention.SDPBackend
                for name, backend in (("cuDNN", backends.CUDNN_ATTENTION), ("FlashAttention-2", backends.FLASH_ATTENTION)):
                    with torch.nn.attention.sdpa_kernel(backend):
                        say(what, name, median_us(lambda: torch.nn.functional.scaled_dot_product_attention(
                            rows, k, v, is_causal=True, enable_gqa=True)), flops)
    print("bits of attention_stream and attention_loop:", "equal" if not bad else "%d differ" % bad)
    return bad != 0


if __name__ == "__main__":
    launch.main(__doc__, lambda folder: launch.build(folder, ("attention/attention", "attention/attention_q8")), run)
