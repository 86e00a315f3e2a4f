#!/usr/bin/env python3
"""Print the module ABI's build id: a hash of every header in include/ingot/."""
import hashlib
import pathlib
import sys

h = hashlib.sha256()
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.h")):
    h.update(path.name.encode() + b"\0" + path.read_bytes())
print(h.hexdigest()[:16])
