#!/usr/bin/env python3
"""Make a C file of a shader: struct ig_shader ig_shader_<name> (include/ingot/gpu.h).

    embed.py FILE.metal OUT.c [--sm80 FILE.ptx] [--sm90a FILE.ptx] [--metallib FILE]
                                [--depfile FILE]

The source is the flattened text.  A file that is not given or is empty is NULL.  PTX is
cut into its kernels, each compressed.
"""
import argparse
import os
import re
import sys
import zlib

import common
import entry
import flatten
from common import Failed

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
from c_literal import literal  # noqa: E402


def symbol(path):
    """core/linear is ig_shader_linear: names are unique over all folders."""
    return "ig_shader_" + re.sub(r"\W", "_", os.path.basename(common.shader_name(path)))


ENTRY = re.compile(r"^(?:\.visible )?\.entry (\w+)\(.*?^}\n", re.M | re.S)


def split(text, path):
    """(kernel, PTX with what it and all others need) of each kernel."""
    common = ENTRY.sub("", text)
    if ".entry" in common or ".func" in common:
        raise Failed("%s: a kernel or function that is not understood" % path)
    return [(m[1], re.sub(r"\n{2,}", "\n", common) + m[0]) for m in ENTRY.finditer(text)]


def embed(path, ptx80=None, ptx90a=None, metallib=None):
    out = ["/* Made by tools/msl/embed.py from %s.metal. */" % common.shader_name(path),
           "#include <ingot/gpu.h>", "",
           '#pragma GCC diagnostic ignored "-Woverlength-strings"', ""]
    size = 0

    def text(name, data):
        out.append("static const char %s[] =\n%s;\n" % (name, literal(data)))
        return name

    def file(name, path):
        if path is None or os.path.getsize(path) == 0:
            return "NULL"
        with open(path, "rb") as f:
            return text(name, f.read())

    def ptx(name, path):
        kernels = []
        if path is not None and os.path.getsize(path):
            with open(path, encoding="ascii") as f:
                kernels = split(f.read(), path)
        if not kernels:
            return "NULL", 0
        out.append("static const struct ig_ptx %s[] = {" % name)
        for kernel, data in kernels:
            packed = zlib.compress(data.encode(), 9)
            out.append("{ \"%s\", (const uint8_t *)\n%s,\n%d, %d }," % (kernel, literal(packed), len(packed), len(data)))
        out.append("};\n")
        return name, len(kernels)

    source = text("source", flatten.flatten(path).encode())
    (sm80, n_sm80), (sm90a, n_sm90a) = ptx("sm80", ptx80), ptx("sm90a", ptx90a)
    if not n_sm80 and not n_sm90a and (ptx80 or ptx90a):
        raise common.Failed("%s: no given PTX file has code" % path)
    library = "NULL"
    if metallib is not None:
        size = os.path.getsize(metallib)
        library = "(const uint8_t *)" + file("metallib", metallib)
    tensor = any("_tensor_" in kernel for kernel, _, _ in entry.find(path, "strict", ["TILE_TENSOR"]))
    name = symbol(path)
    out.append("extern const struct ig_shader %s;" % name)
    out.append("const struct ig_shader %s = {\n\tsizeof(struct ig_shader), %d, \"%s\", %s, %s, %d, %s, %s, %d, %d,\n};"
               % (name, tensor, common.shader_name(path), source, library, size, sm80, sm90a, n_sm80, n_sm90a))
    return "\n".join(out) + "\n"


def make(a):
    common.write(a.out, embed(a.file, a.sm80, a.sm90a, a.metallib))
    flatten.depfile(a.file, a.out, a.depfile)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("file")
    p.add_argument("out")
    p.add_argument("--sm80")
    p.add_argument("--sm90a")
    p.add_argument("--metallib")
    p.add_argument("--depfile")
    a = p.parse_args()
    try:
        make(a)
    except Failed as e:
        sys.exit(str(e))


if __name__ == "__main__":
    main()
