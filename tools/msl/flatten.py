#!/usr/bin/env python3
"""Merge a shader and our headers into one text, for Metal's runtime compiler.

    flatten.py FILE.metal

The first #include "..." of a file is replaced by the file; #include <...> stays.  #line gives
the origin of each part, so that a compiler's messages name our files.
"""
import os
import re
import sys

import common
from common import Failed

INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]+)"')


def find(name, beside):
    for folder in (beside, common.SHADERS):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            return path
    raise Failed('%s: no file "%s"' % (beside, name))


def flatten(path, files=None):
    """The text; the path of every file read is added to `files`."""
    seen = set()

    def add(path, out):
        real = os.path.realpath(path)
        if real in seen:
            return
        seen.add(real)
        if files is not None:
            files.append(path)
        with open(path, encoding="utf-8") as f:
            lines = f.read().split("\n")
        if lines and not lines[-1]:
            lines.pop()
        shown = os.path.relpath(real, common.ROOT)
        shown = os.path.basename(real) if shown.startswith("..") else shown
        out.append('#line 1 "%s"' % shown)
        for number, line in enumerate(lines, 1):
            m = INCLUDE.match(line)
            if m:
                add(find(m.group(1), os.path.dirname(path) or "."), out)
                out.append('#line %d "%s"' % (number + 1, shown))
            else:
                out.append("" if line == "#pragma once" else line)

    out = []
    add(path, out)
    return "\n".join(out) + "\n"


def depfile(path, target, name):
    """The sources of the text of `path`, as a makefile rule."""
    if name:
        files = []
        flatten(path, files)
        common.write(name, "%s: %s\n" % (target, " ".join(f.replace(" ", "\\ ") for f in files)))


def fnv(text):
    """FNV-1a of 64 bits, by which the software device identifies a shader's text."""
    h = 0xcbf29ce484222325
    for b in text.encode():
        h = (h ^ b) * 0x100000001b3 & 0xffffffffffffffff
    return h


if __name__ == "__main__":
    try:
        if len(sys.argv) != 2:
            raise Failed(__doc__)
        sys.stdout.write(flatten(sys.argv[1]))
    except Failed as e:
        sys.exit(str(e))
