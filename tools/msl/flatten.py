#!/usr/bin/env python3
"""Make one text of a shader and our headers: what Metal's runtime compiler gets.

    flatten.py FILE.metal

A line #include "..." becomes that file, the first time; #include <...> stays.  #line says
where each part came from, so that a compiler's messages name our files.
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
    """The text; `files` gets the path of every file read."""
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
    """What the text of `path` was made from, as make reads it."""
    if name:
        files = []
        flatten(path, files)
        common.write(name, "%s: %s\n" % (target, " ".join(f.replace(" ", "\\ ") for f in files)))


def fnv(text):
    """FNV-1a of 64 bits: by it the software device knows a shader's text again."""
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
