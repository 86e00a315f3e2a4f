"""No name is exported by two of the libraries that daemon and CLI are linked from: a linker
takes the first that it finds and says nothing.  Jansson has one door, base/json.h.  And cmocka's own types
have none."""
import collections
import pathlib
import re
import shutil
import subprocess

import pytest

import daemon as ingot

pytestmark = pytest.mark.home("release")


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


def test_jansson_has_one_door():
    """Its reader and its copies overlook failed allocations; base/json.h has others."""
    root = pathlib.Path(__file__).resolve().parents[2]
    wrong = re.compile(r"jansson\.h|\bjson_(load|dump|copy|deep_copy|set_alloc)")
    files = [p for p in root.glob("*/**/*.[ch]")
             if not p.relative_to(root).parts[0].startswith(("base", "build", "tests"))]
    assert len(files) > 200
    assert [str(p) for p in files if wrong.search(p.read_text())] == []


def test_cmocka_defines_no_uintptr_t():
    """Where <stdint.h> does not come first it does, on macOS with half of a pointer's bits."""
    def missed(path):
        text = path.read_text()
        first = [text.find("#include <%s.h>" % name) for name in ("stdint", "cmocka")]
        return "uintptr_t" in text and first[1] >= 0 and not 0 <= first[0] < first[1]
    files = list((pathlib.Path(__file__).resolve().parents[1]).glob("**/*.c"))
    assert len(files) > 150
    assert [str(p) for p in files if missed(p)] == []
