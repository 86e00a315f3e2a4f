#!/usr/bin/env python3
"""Make a C file of the page's files: struct ig_page_file ig_page_files (embedded.h).

    embed.py OUT.c FILE...
"""
import hashlib
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "tools"))
from c_literal import literal  # noqa: E402

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def embed(paths):
    texts, entries = [], []
    for i, path in enumerate(paths):
        with open(path, "rb") as f:
            data = f.read()
        name = os.path.basename(path)
        tag = hashlib.sha256(data).hexdigest()[:16]
        texts.append("static const char file_%d[] =\n%s;\n" % (i, literal(data)))
        entries.append('\t{ "%s", "%s", "\\"%s\\"", file_%d, %d },'
                       % (name, TYPES[os.path.splitext(name)[1]], tag, i, len(data)))
    return "\n".join([
        "/* Made by page/embed.py. */", '#include "page/embedded.h"', "",
        '#pragma GCC diagnostic ignored "-Woverlength-strings"', "", *texts,
        "const struct ig_page_file ig_page_files[] = {", *entries, "};",
        "const size_t ig_n_page_files = sizeof ig_page_files / sizeof ig_page_files[0];", ""])


def main():
    out, *paths = sys.argv[1:]
    with open(out, "w", encoding="ascii") as f:
        f.write(embed(paths))


if __name__ == "__main__":
    main()
