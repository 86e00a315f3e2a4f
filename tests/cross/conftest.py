"""What the tests of other platforms share: the folder that ./check has filled with compilers
and headers, INGOT_CROSS, and a way to run that compiler."""
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def folder(name):
    path = pathlib.Path(os.environ.get("INGOT_CROSS", "")) / name
    if "INGOT_CROSS" not in os.environ or not path.exists():
        pytest.fail("INGOT_CROSS has no %s; ./check makes it" % name)
    return path


class Compiler:
    """clang for aarch64 Macs, with the frameworks of one SDK."""

    FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-fno-objc-arc", "-Wall", "-Wextra", "-Werror",
             "-Wno-unused-parameter", "-Wno-missing-field-initializers"]

    def __init__(self, sdk):
        frameworks = "Frameworks" if sdk == 26 else "Frameworks-%d" % sdk
        self.stand_in = folder("macos")
        self.flags = self.FLAGS + ["-F%s" % folder("macos/" + frameworks)]

    def __call__(self, source, *arguments):
        """Compile; returns what the compiler said, None when it was content."""
        p = subprocess.run(
            [str(ROOT / "tools/cross/cc-macos"), str(folder("zig/ziglang/zig"))] + self.flags
            + [str(source)] + [str(a) for a in arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
        return p.stdout if p.returncode else None


@pytest.fixture(params=[14, 26], ids=["sdk14", "sdk26"])
def compiler(request):
    return Compiler(request.param)


@pytest.fixture
def newest():
    return Compiler(26)
