#!/usr/bin/env python3
"""The demo model in other quantisations: `ingot convert` makes each file, and Ingot's logits
on it are held against a float64 forward pass on that very file's weights, which the
Python package `gguf` dequantises.

    quantised.py MODEL.gguf BUILD WORK [--types A,B,…] [--prompts N] [--steps N] [--keep]

MODEL is the demo file, BUILD a build folder, WORK a folder for files that go again.  Without
--types, four that between them have most element types; `--types all` takes every type
that the program lists.  Needs numpy and gguf.

Each file's prompts are those of smollm2.truth, with that golden's ids forced after them.
Judged, the reasons beside the limits: the types of all tensors (gguf reads the file), what
`ingot convert` says about its errors, the float32 path, the fast path.  Printed besides: how
far the file is from the one that it was made from (centred NMSE, and the mean
Kullback-Leibler divergence of the distributions).
"""
import argparse
import json
import os
import subprocess
import sys
import time

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

import truth
from gguf_read import Gguf

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "smollm2.truth")
# Short ones first: a step of a long prompt costs more and says no more about weights.
PROMPTS = [16, 0, 22, 13, 2, 5, 9, 3]
# Between them: Q5_0, Q8_0, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4.
SHORT = ["Q4_K_M", "Q2_K", "IQ4_XS", "MXFP4"]
# As in truth.py; over some fifty steps a share and a mean of 8-bit arithmetic scatter more
# (see test_model_truth.c).
LIMITS = {"f32": (1.0, 1e-9, 0.0, 1e-4), "8bit": (0.90, 4e-3, 0.6, 0.1)}


class Weights:
    """A file's metadata, and its tensors dequantised by the package gguf."""

    def __init__(self, path):
        self.file = Gguf(path)
        self.meta, self.tensors = self.file.meta, self.file.tensors

    def types(self):
        return {n: GGMLQuantizationType(t).name for n, (_, t, _) in self.tensors.items()}

    def tensor(self, name):
        dims, kind, at = self.tensors[name]
        kind = GGMLQuantizationType(kind)
        n_rows = int(np.prod(dims[1:])) if len(dims) > 1 else 1
        if kind.name == "F32":
            rows = self.file.data[at:at + 4 * int(np.prod(dims))].view("<f4")
        elif kind.name == "F16":
            rows = self.file.data[at:at + 2 * int(np.prod(dims))].view("<f2")
        else:
            per, size = GGML_QUANT_SIZES[kind]
            n = int(np.prod(dims)) // per * size
            rows = dequantize(self.file.data[at:at + n].reshape(n_rows, -1), kind)
        return rows.astype(np.float64).reshape([int(d) for d in reversed(dims)])


def forced_logits(path, golden, prompts, n_steps):
    """[prompt, step, vocabulary] in float64, each prompt with its forced ids at once."""
    model, out = truth.Llama(Weights(path)), []
    for i in prompts:
        ids = np.concatenate([golden["prompts"][i], golden["forced"][i][:n_steps - 1]])
        out.append(model.forward([ids], [model.sequence(len(ids))], False)[-n_steps:])
    return np.array(out)


def write_small_golden(path, model_path, golden, prompts, logits):
    """What dump_logits reads the ids from."""
    truth.N_STEPS = logits.shape[1]
    truth.write_golden(path, model_path, [golden["prompts"][i] for i in prompts],
                       np.array([golden["forced"][i][:logits.shape[1]] for i in prompts]), logits)


def log_softmax(x):
    return x - truth.log_sum_exp(x)[..., None]


def centred_nmse(a, b):
    a, b = a - a.mean(-1, keepdims=True), b - b.mean(-1, keepdims=True)
    return ((a - b) ** 2).sum() / (a * a).sum()


def judge(want, got, forced):
    """(share of equal steps, centred NMSE, greatest gap of a lost step, mean NLL difference)"""
    if not np.isfinite(got).all():
        return (0.0, np.inf, np.inf, np.inf)
    same = want.argmax(-1) == got.argmax(-1)
    two = np.sort(want, -1)[..., -2:]
    gap = np.where(same, 0.0, two[..., 1] - two[..., 0]).max()
    at = forced[..., None]
    d = np.take_along_axis(log_softmax(want) - log_softmax(got), at, -1)
    return same.mean(), centred_nmse(want, got), gap, abs(d.mean())


def broken(values, limits):
    return values[0] < limits[0] or any(v > x for v, x in zip(values[1:], limits[1:]))


def ours(build, model, small, dump, shape, *options):
    run = subprocess.run([os.path.join(build, "tests/golden/dump_logits"), model, small, dump,
                          *options], stderr=subprocess.PIPE, text=True)
    if run.returncode:
        sys.exit(run.stderr)
    x = np.fromfile(dump, "<f4").astype(np.float64).reshape(shape)
    os.unlink(dump)
    return x


def convert(build, source, out, name):
    run = subprocess.run([os.path.join(build, "cli/ingot"), "convert", source, out, "--type", name,
                          "--force", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True)
    if run.returncode:
        sys.exit(run.stderr)
    return json.loads(run.stdout)


def check_report(report, source, out):
    """What the program said of each tensor against what the files hold."""
    a, b, wrong = Weights(source), Weights(out), []
    types_a, types_b = a.types(), b.types()
    if [t["name"] for t in report["tensors"]] != list(a.tensors) or list(b.tensors) != list(a.tensors):
        return ["the files' tensors are not the same"], 0
    squares = errors = 0.0
    for i, t in enumerate(report["tensors"]):
        n = t["name"]
        if (t["from"], t["to"]) != (types_a[n], types_b[n]):
            wrong.append("%s: %s to %s is reported" % (n, t["from"], t["to"]))
        if types_a[n] == types_b[n]: # copied
            if t["rmse"]:
                wrong.append("%s was copied with an error" % n)
            continue
        if i % 16 < 3: # a part of them is enough
            x, y = a.tensor(n), b.tensor(n)
            e, s = ((x - y) ** 2).sum(), (x * x).sum()
            squares, errors = squares + s, errors + e
            if abs(np.sqrt(e / x.size) - t["rmse"]) > 1e-6 * t["rmse"] + 1e-12:
                wrong.append("%s: RMSE %g, %g reported" % (n, np.sqrt(e / x.size), t["rmse"]))
    return wrong, np.sqrt(errors / squares) if squares else 0.0


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    ap.add_argument("model")
    ap.add_argument("build")
    ap.add_argument("work")
    ap.add_argument("--types", default=",".join(SHORT))
    ap.add_argument("--prompts", type=int, default=2)
    ap.add_argument("--steps", type=int, default=24)
    ap.add_argument("--keep", action="store_true", help="let the files be")
    args = ap.parse_args()
    os.makedirs(args.work, exist_ok=True)
    listed = subprocess.run([os.path.join(args.build, "cli/ingot"), "convert", "--types"],
                            check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    types = listed if args.types == "all" else args.types.split(",")
    golden, prompts = truth.read_golden(GOLDEN), PROMPTS[:args.prompts]
    forced = np.array([golden["forced"][i][:args.steps] for i in prompts])
    source = forced_logits(args.model, golden, prompts, args.steps)
    shape, n_bad = source.shape, 0

    print("%d prompts of %d steps; limits: %s" % (len(prompts), args.steps, LIMITS))
    print("type    bits/w  error    | float32: equal  NMSE     | fast: equal  NMSE     gap    NLL  "
          "  | from source: NMSE   KL     s")
    for name in types:
        began = time.time()
        path = os.path.join(args.work, "quantised-%s.gguf" % name)
        small, dump = path + ".truth", path + ".f32"
        report = convert(args.build, args.model, path, name)
        wrong, error = check_report(report, args.model, path)
        want = forced_logits(path, golden, prompts, args.steps)
        write_small_golden(small, path, golden, prompts, want)
        f32 = judge(want, ours(args.build, path, small, dump, shape, "--activations", "f32",
                               "--kv", "f32"), forced)
        fast = judge(want, ours(args.build, path, small, dump, shape), forced)
        p, q = log_softmax(source), log_softmax(want)
        kl = (np.exp(p) * (p - q)).sum(-1).mean()
        bad = broken(f32, LIMITS["f32"]) or broken(fast, LIMITS["8bit"]) or wrong
        print("%-7s %6.2f  %.5f  | %6.2f %%  %.2e   | %6.2f %%  %.2e  %.3f  %.4f | %.2e  %.4f  %4.0f%s" % (
            name, report["bits_per_weight"], error, 100 * f32[0], f32[1], 100 * fast[0], fast[1],
            fast[2], fast[3], centred_nmse(source, want), kl, time.time() - began,
            "  BROKEN" if bad else ""), flush=True)
        for w in wrong[:5]:
            print("    " + w)
        n_bad += bool(bad)
        os.unlink(small)
        if not args.keep:
            os.unlink(path)
    print("%d types, %d broken" % (len(types), n_bad))
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
