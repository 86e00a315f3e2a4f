#!/usr/bin/env python3
"""The demo model in other quantisations: `ingot convert` makes each file, and Ingot's logits
on it are held against a float64 forward pass on that very file's weights, which the
Python package `gguf` dequantises.

    quantised.py MODEL.gguf BUILD WORK [--types A,B,…] [--prompts N] [--steps N]
                 [--drivers A,B] [--keep]

MODEL is the demo file, BUILD a build folder, WORK a folder for files that go again.  Without
--types, four that between them have most element types; `--types all` takes every type
that the program lists.  `--prompts 30 --steps 64` are all steps of smollm2.truth: three to
four minutes a type and 4 GB; the default, 48 steps of two short prompts, takes seconds.
--drivers are cpu (by default) or cuda, where there is one.  Needs numpy and gguf.

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
# (least share of equal steps, greatest centred NMSE over all, greatest gap of the truth's two
# largest logits at a lost step, mean NLL difference of a prompt, over all)
F32 = (1.0, 1e-9, 0.0, 1e-4, 1e-5)
# By the form of the activations, over many steps: truth.py's limits and reasons.
MANY = {"f16": (0.997, 1e-5, 0.6, 0.06, 0.015), "bf16": (0.99, 5e-4, 0.6, 0.06, 0.015),
        "8bit": (0.97, 4e-3, 0.6, 0.06, 0.015)}
# Over some fifty steps a share and a mean of 8-bit arithmetic scatter more (see
# test_model_truth.c): three lost of 48 are 6 %.
FEW = {f: (min(l[0], 0.90), l[1], l[2], 0.15, 0.1) for f, l in MANY.items()}
N_MANY = 1000


def form(name, driver):
    """Of the activations that weights of this type are multiplied with."""
    return "bf16" if name == "BF16" else "f16" if driver != "cpu" or name in ("F32", "F16") else "8bit"


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
    """Yields [step, vocabulary] in float64 of each prompt, its forced ids at once."""
    model = truth.Llama(Weights(path))
    for i in prompts:
        ids = np.concatenate([golden["prompts"][i], golden["forced"][i][:n_steps - 1]])
        x = model.forward([ids], [model.sequence(len(ids))], False)
        yield x[-n_steps:]


def log_softmax(x):
    return x - truth.log_sum_exp(x)[..., None]


def centred(x):
    return x - x.mean(-1, keepdims=True)


class Judge:
    """How far the logits of one run are from the truth's, prompt by prompt."""

    def __init__(self):
        self.n_steps = self.n_equal = 0
        self.error = self.square = self.gap = 0.0
        self.nll = []

    def add(self, want, got, forced, log_want):
        """log_want: log_softmax(want)."""
        if not np.isfinite(got).all():
            got = np.zeros_like(want) # wrong at nearly every step
        same = want.argmax(-1) == got.argmax(-1)
        two = np.partition(want, -2)[..., -2:]
        self.gap = max(self.gap, np.where(same, 0.0, two[..., 1] - two[..., 0]).max())
        self.n_steps, self.n_equal = self.n_steps + same.size, self.n_equal + same.sum()
        d = np.take_along_axis(log_want - log_softmax(got), forced[:, None], -1)
        self.nll.append(d.mean())
        a = centred(want)
        self.error += ((a - centred(got)) ** 2).sum()
        self.square += (a * a).sum()

    def values(self):
        """In the order of the limits."""
        return (self.n_equal / self.n_steps, self.error / self.square, self.gap,
                np.abs(self.nll).max(), abs(np.mean(self.nll)))

    def broken(self, limits):
        v = self.values()
        return v[0] < limits[0] or any(x > limit for x, limit in zip(v[1:], limits[1:]))


def ours(build, driver, model, small, dump, shape, *options):
    """Ingot's logits, [prompt, step, vocabulary]; they lie in the file dump."""
    run = subprocess.run([os.path.join(build, "tests/golden/dump_logits"), model, small, dump,
                          *options], stderr=subprocess.PIPE, text=True,
                         env=dict(os.environ, INGOT_TEST_DRIVER=driver))
    if run.returncode:
        sys.exit(run.stderr)
    return np.memmap(dump, "<f4", "r", shape=shape)


def divergence(log_p, log_q):
    """The mean over the steps, in nats."""
    return (np.exp(log_p) * (log_p - log_q)).sum(-1).mean()


def convert(build, source, out, name, *options):
    run = subprocess.run([os.path.join(build, "cli/ingot"), "convert", source, out, "--type", name,
                          "--force", "--json", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
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
    ap.add_argument("--drivers", default="cpu")
    ap.add_argument("--keep", action="store_true", help="let the files be")
    args = ap.parse_args()
    os.makedirs(args.work, exist_ok=True)
    listed = subprocess.run([os.path.join(args.build, "cli/ingot"), "convert", "--types"],
                            check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    types = listed if args.types == "all" else args.types.split(",")
    golden = truth.read_golden(GOLDEN)
    order = PROMPTS + [i for i in range(len(golden["prompts"])) if i not in PROMPTS]
    if not 1 <= args.prompts <= len(order) or not 1 <= args.steps <= truth.N_STEPS:
        ap.error("at most %d prompts and %d steps" % (len(order), truth.N_STEPS))
    prompts, n_bad = order[:args.prompts], 0
    forced = [golden["forced"][i][:args.steps] for i in prompts]
    source = list(forced_logits(args.model, golden, prompts, args.steps))
    shape = (len(prompts), args.steps, golden["n_vocab"])
    small = os.path.join(args.work, "quantised.truth") # the ids are the same for every file
    truth.write_ids(small, args.model, [golden["prompts"][i] for i in prompts], forced,
                    golden["n_vocab"])
    limits = MANY if shape[0] * shape[1] >= N_MANY else FEW

    print("%d prompts of %d steps; limits: float32 %s, fast %s" % (*shape[:2], F32, limits))
    print("type    bits/w  error   | driver  float32: equal  NMSE     | fast: equal  NMSE     gap"
          "    NLL  of a prompt  | from source: NMSE   KL")
    for name in types:
        began = time.time()
        path = os.path.join(args.work, "quantised-%s.gguf" % name)
        report = convert(args.build, args.model, path, name)
        wrong, error = check_report(report, args.model, path)
        runs, judges = {}, {}
        for driver in args.drivers.split(","):
            for way, options in (("exact", ["--activations", "f32", "--kv", "f32"]), ("fast", [])):
                runs[driver, way] = ours(args.build, driver, path, small,
                                         "%s.%s.%s" % (path, driver, way), shape, *options)
                judges[driver, way] = Judge()
        from_source, kl = Judge(), 0.0
        for i, want in enumerate(forced_logits(path, golden, prompts, args.steps)):
            p, q = log_softmax(source[i]), log_softmax(want)
            for key, run in runs.items():
                judges[key].add(want, run[i].astype(np.float64), forced[i], q)
            from_source.add(source[i], want, forced[i], p)
            kl += divergence(p, q) / len(prompts)
        for driver in args.drivers.split(","):
            exact, fast = judges[driver, "exact"], judges[driver, "fast"]
            bad = exact.broken(F32) or fast.broken(limits[form(name, driver)]) or bool(wrong)
            n_bad += bad
            a, b = exact.values(), fast.values()
            print("%-7s %6.2f  %.5f | %-6s  %6.2f %%  %.2e         | %6.2f %%  %.2e  %.3f  %.4f  "
                  "%.4f       | %.2e  %.4f%s" % (
                      name, report["bits_per_weight"], error, driver, 100 * a[0], a[1], 100 * b[0],
                      b[1], b[2], b[4], b[3], from_source.values()[1], kl,
                      "  BROKEN" if bad else ""), flush=True)
        for w in wrong[:5]:
            print("    " + w)
        print("    %.0f s" % (time.time() - began), file=sys.stderr)
        del runs, run
        for driver, way in judges:
            os.unlink("%s.%s.%s" % (path, driver, way))
        if not args.keep:
            os.unlink(path)
    os.unlink(small)
    print("%d types, %d lines broken" % (len(types), n_bad))
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
