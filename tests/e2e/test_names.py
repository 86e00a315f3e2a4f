"""No name is exported by two of the libraries that daemon and CLI are linked from: a linker
takes the first that it finds and says nothing."""
import collections
import shutil
import subprocess

import pytest

import daemon as ingot


@pytest.mark.release
@pytest.mark.skipif(not shutil.which("nm"), reason="no nm")
def test_no_name_twice():
    libraries = [p for p in ingot.BUILD.rglob("libig-*.a") if "tests" not in p.relative_to(ingot.BUILD).parts]
    assert len(libraries) > 10
    homes = collections.defaultdict(set)
    for path in libraries:
        out = subprocess.run(["nm", "--defined-only", "--extern-only", path], check=True,
                             capture_output=True, text=True).stdout
        for line in out.splitlines():
            words = line.split()
            if len(words) == 3 and words[1] in "TDBRC":
                homes[words[2]].add(path.name)
    assert len(homes) > 500
    assert {name: sorted(where) for name, where in homes.items() if len(where) > 1} == {}
