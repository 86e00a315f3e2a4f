#!/usr/bin/env python3
"""Ingot's quantisers beside llama.cpp's, on a real model, with and without an importance matrix.

    quantisers.py MODEL.gguf BUILD LLAMA_BIN WORK [--types A,B,…] [--prompts N] [--steps N]

MODEL is the demo model, BUILD a build folder of Ingot, LLAMA_BIN the folder of llama.cpp's programs (bench/get_llama makes
it), WORK a folder for files that go again.  MODEL is widened to float32; llama-imatrix makes the importance matrix of
that from pages of Ingot's own (TEXT); `ingot convert` and llama-quantize make files of each type.

Printed of each type, with the matrix and without: how many tensors have the same type in both files, and over these the
relative error, of squares weighted by the mean square of what a column is multiplied with (without the matrix all
alike); of the whole files the sizes, and the mean Kullback-Leibler divergence from the widened model's distributions, in
float64, along the ids of smollm2.truth.  Exit status 1: of some line Ingot's error is larger.  Needs numpy and gguf.
"""
import argparse
import os
import pathlib
import subprocess
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "model"))
import quantised  # noqa: E402
import truth  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
TEXT = "README.md", "docs/architecture.md", "docs/operations.md"
TYPES = "Q8_0,Q6_K,Q5_K_M,Q5_1,Q5_0,Q4_K_M,Q4_1,Q4_0,IQ4_NL,IQ4_XS,Q3_K_M,Q2_K"


class Importance:
    """The mean square of what each column of a tensor is multiplied with."""

    def __init__(self, path):
        self.of = quantised.Weights(path) if path else None

    def weights(self, name, n_columns):
        if not self.of or name + ".in_sum2" not in self.of.tensors:
            return np.ones(n_columns)
        sums, counts = (self.of.tensor(name + end).reshape(-1) for end in (".in_sum2", ".counts"))
        return sums / counts


def run(command):
    p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if p.returncode:
        sys.exit("%s:\n%s" % (" ".join(map(str, command)), p.stdout[-2000:]))


def make_matrix(llama_bin, model, work):
    text, out = work / "text.txt", work / "imatrix.gguf"
    text.write_text("".join((ROOT / name).read_text() for name in TEXT))
    run([llama_bin / "llama-imatrix", "-m", model, "-f", text, "-o", out, "-c", "512", "--chunks", "20"])
    return out


def errors(source, files, importance):
    """Tensors with one type in all files; their relative errors in each."""
    weights, n = [quantised.Weights(f) for f in files], 0
    types = [w.types() for w in weights]
    bad, all_of = np.zeros(len(files)), 0.0
    for name, kind in types[0].items():
        x = source.tensor(name)
        if x.ndim < 2 or kind in ("F32", "F16") or any(t[name] != kind for t in types):
            continue
        by = importance.weights(name, x.shape[-1])
        bad += [(by * (x - w.tensor(name)) ** 2).sum() for w in weights]
        all_of, n = all_of + (by * x * x).sum(), n + 1
    return n, np.sqrt(bad / all_of)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    for name in ("model", "build", "llama_bin", "work"):
        ap.add_argument(name, type=pathlib.Path)
    ap.add_argument("--types", default=TYPES)
    ap.add_argument("--prompts", type=int, default=4)
    ap.add_argument("--steps", type=int, default=32)
    args = ap.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    wide, ours, theirs = (args.work / name for name in ("wide.gguf", "ours.gguf", "theirs.gguf"))
    quantised.convert(args.build, args.model, wide, "F32")
    source, golden = quantised.Weights(wide), truth.read_golden(quantised.GOLDEN)
    prompts = quantised.PROMPTS[:args.prompts]
    log_p = [quantised.log_softmax(x) for x in quantised.forced_logits(wide, golden, prompts, args.steps)]
    matrix_file = make_matrix(args.llama_bin, wide, args.work)
    print("type    imatrix  tensors  | error: Ingot  llama.cpp | MB: Ingot  llama.cpp | KL: Ingot  llama.cpp")
    n_worse = 0
    for kind in args.types.split(","):
        for matrix in (None, matrix_file):
            option = ["--imatrix", matrix] if matrix else []
            quantised.convert(args.build, wide, ours, kind, *option)
            run([args.llama_bin / "llama-quantize", *option, wide, theirs, kind])
            n, error = errors(source, [ours, theirs], Importance(matrix))
            kl = [np.mean([quantised.divergence(p, quantised.log_softmax(q)) for p, q in
                           zip(log_p, quantised.forced_logits(f, golden, prompts, args.steps))]) for f in (ours, theirs)]
            worse = error[0] > error[1]
            n_worse += worse
            print("%-7s %-8s %3d      | %.5f      %.5f   | %7.1f    %7.1f   | %.4f     %.4f%s" % (
                kind, "with" if matrix else "without", n, *error, *(os.path.getsize(f) / 1e6 for f in (ours, theirs)), *kl,
                "  LARGER" if worse else ""), flush=True)
    for f in (wide, ours, theirs, matrix_file, args.work / "text.txt"):
        f.unlink()
    print("%d errors of Ingot are larger" % n_worse)
    return 1 if n_worse else 0


if __name__ == "__main__":
    sys.exit(main())
