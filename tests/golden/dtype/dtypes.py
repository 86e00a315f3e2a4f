#!/usr/bin/env python3
"""Dequantises random blocks of every element type that Ingot reads, in Ingot and in the
Python package `gguf`, and compares every bit of every value; then quantises rows of normal
deviates in Ingot, reads them with `gguf` and holds the error to a limit.

    dtypes.py DEQUANTISE [--rows N] [--seed N]

DEQUANTISE is the program built from dequantise.c.  Half of the rows have scales of any
bits, so infinities and NaNs too: a NaN must be a NaN, whatever its bits.  Needs numpy and
gguf.  Ends with `N types, N values, N differ, N too coarse`.
"""
import argparse
import subprocess
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize

# Where the halves (scales, minima) of a block are; MXFP4 has a byte instead.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [],
}
PLAIN = {"F16": 2, "BF16": 2}  # bytes of a value
COLUMNS = 1024

# The relative error of what llama.cpp's quantisers make of such rows (ggml 0.25, no importance
# matrix); Ingot's is to be no worse.
COARSEST = {
    "Q4_0": 0.08617, "Q4_1": 0.07805, "Q5_0": 0.04280, "Q5_1": 0.03776, "Q8_0": 0.00534,
    "Q2_K": 0.29785, "Q3_K": 0.15096, "Q4_K": 0.07128, "Q5_K": 0.03614, "Q6_K": 0.01785,
    "IQ4_NL": 0.07613, "IQ4_XS": 0.07665, "MXFP4": 0.11386,
}


def random_rows(rng, name, n_rows, block_bytes, block_values):
    n_blocks = n_rows * COLUMNS // block_values
    blocks = rng.integers(0, 256, size=(n_blocks, block_bytes), dtype=np.uint8)
    for at in HALVES.get(name, []):
        half = rng.normal(0, 1, n_blocks).astype(np.float16).view(np.uint8).reshape(-1, 2)
        finite = np.arange(n_blocks) < n_blocks // 2
        blocks[finite, at:at + 2] = half[finite]
    return blocks.reshape(n_rows, -1)


def ours(program, number, rows):
    run = subprocess.run([program, str(number), str(COLUMNS)], input=rows.tobytes(),
                         stdout=subprocess.PIPE, check=True)
    values = np.frombuffer(run.stdout, dtype=np.float32)
    if values.size != rows.shape[0] * COLUMNS:
        sys.exit(f"dtypes: {values.size} values for {rows.shape[0]} rows of type {number}")
    return values.reshape(rows.shape[0], COLUMNS)


def quantised(program, number, x, row_bytes):
    """Rows of float32 as Ingot writes them."""
    run = subprocess.run([program, "--quantise", str(number), str(COLUMNS)], input=x.tobytes(),
                         stdout=subprocess.PIPE, check=True)
    return np.frombuffer(run.stdout, dtype=np.uint8).reshape(len(x), row_bytes)


def coarse(program, name, number, row_bytes, x):
    """Whether a type is quantised worse than it has to be."""
    rows = quantised(program, number, x, row_bytes)
    qtype = GGMLQuantizationType(number)
    if name in PLAIN: # to nearest, ties to even: there is only one right answer
        want = x.astype(np.float16).view(np.uint8) if name == "F16" else quantize(x, qtype)
        n = np.count_nonzero(rows != want.view(np.uint8).reshape(rows.shape))
        print(f"{name}: {n} bytes rounded otherwise")
        return n != 0
    back = dequantize(rows, qtype).reshape(x.shape).astype(np.float64)
    error = np.sqrt(((back - x) ** 2).sum() / (x.astype(np.float64) ** 2).sum())
    print(f"{name}: error {error:.5f}, at most {COARSEST[name]:.5f}")
    return not error <= COARSEST[name]


def differ(a, b):
    both_nan = np.isnan(a) & np.isnan(b)
    return int(np.count_nonzero((a.view(np.uint32) != b.view(np.uint32)) & ~both_nan))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)

    lines = subprocess.run([args.program, "--types"], stdout=subprocess.PIPE, check=True,
                           text=True).stdout.splitlines()
    types = {}
    for line in lines:
        number, name, block_bytes, block_values = line.split()
        types[name] = (int(number), int(block_bytes), int(block_values))
    if set(types) != set(HALVES):
        sys.exit(f"dtypes: Ingot has {sorted(types)}, this script knows {sorted(HALVES)}")
    for name, size in PLAIN.items():
        types[name] = (int(GGMLQuantizationType[name]), size, 1)

    n_values = n_differ = n_coarse = 0
    x = rng.normal(0, 0.02, (args.rows, COLUMNS)).astype(np.float32)
    for name, (number, block_bytes, block_values) in types.items():
        qtype = GGMLQuantizationType(number)
        if qtype.name != name or GGML_QUANT_SIZES[qtype] != (block_values, block_bytes):
            sys.exit(f"dtypes: gguf's type {number} is {qtype.name}, "
                     f"{GGML_QUANT_SIZES[qtype]}; Ingot's {name}, {block_values, block_bytes}")
        rows = random_rows(rng, name, args.rows, block_bytes, block_values)
        with np.errstate(all="ignore"):
            want = dequantize(rows.view(np.float16) if name == "F16" else rows, qtype)
        got = ours(args.program, number, rows)
        want = np.ascontiguousarray(want, dtype=np.float32).reshape(got.shape)
        bad = differ(got, want)
        if bad:
            r, c = np.argwhere((got != want) & ~(np.isnan(got) & np.isnan(want)))[0]
            print(f"{name}: row {r}, value {c} is {got[r, c]!r}, gguf has {want[r, c]!r}")
        print(f"{name}: {got.size} values, {bad} differ, {np.count_nonzero(np.isnan(want))} NaN")
        n_values += got.size
        n_differ += bad
        n_coarse += coarse(args.program, name, number, rows.shape[1], x)
    print(f"{len(types)} types, {n_values} values, {n_differ} differ, {n_coarse} too coarse")
    return 1 if n_differ or n_coarse else 0


if __name__ == "__main__":
    sys.exit(main())
