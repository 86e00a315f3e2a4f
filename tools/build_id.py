#!/usr/bin/env python3
"""The build id of tier 2 of the module ABI: a hash of what op.h, gpu.h, gpu_lower.h, kvcache.h and the
headers that they include declare.  Comments and white space are no declarations.

    build_id.py FOLDER          print it; FOLDER has the headers
    build_id.py FOLDER FILE     write FILE, which defines IG_BUILD_ID
"""
import hashlib
import pathlib
import re
import sys

TIER2 = ["op.h", "gpu.h", "gpu_lower.h", "kvcache.h"]
TOKEN = re.compile(r'''/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\w+|\n|[^\w\s]''', re.S)


def declarations(text):
    """The text's tokens; a directive ends with its line."""
    out, directive = [], False
    for token in TOKEN.findall(text.replace("\\\n", " ")):
        if token.startswith(("/*", "//")):
            continue
        if token == "\n":
            if directive:
                out.append(token)
            directive = False
            continue
        directive = directive or token == "#"
        out.append(token)
    return " ".join(out)


def closure(folder, names):
    found = {}
    todo = list(names)
    while todo:
        name = todo.pop()
        if name not in found:
            found[name] = declarations((folder / name).read_text())
            todo += [n + ".h" for n in re.findall(r"# include < ingot / (\w+) \. h >", found[name])]
    return found


def build_id(folder):
    h = hashlib.sha256()
    for name, text in sorted(closure(pathlib.Path(folder), TIER2).items()):
        h.update((name + "\0" + text + "\0").encode())
    return h.hexdigest()[:16]


def main(folder, out=None):
    if not out:
        print(build_id(folder))
        return
    pathlib.Path(out).write_text(
        "/* Written by the build: who brings ops or a cache service says it in struct ig_module. */\n"
        "#ifndef INGOT_BUILD_ID_H\n#define INGOT_BUILD_ID_H\n\n"
        '#define IG_BUILD_ID "%s"\n\n#endif\n' % build_id(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
