"""The Debian packages that ./check has built, in the folder INGOT_PACKAGES."""
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/e2e")]


def run(*command, **options):
    p = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                       stdin=subprocess.DEVNULL, **options)
    assert p.returncode == 0, "%s\n%s" % (" ".join(map(str, command)), p.stdout)
    return p.stdout


class Packages:
    """By name the .deb, and what one has unpacked."""

    def __init__(self, folder, unpacked):
        self.folder, self.unpacked = folder, unpacked
        self.changes, = folder.glob("*.changes")
        self.debs = {p.name.split("_")[0]: p for p in folder.glob("*.deb")}

    def unpack(self, *names):
        into = self.unpacked / "-".join(names)
        if not into.exists():
            for name in names:
                run("dpkg-deb", "-x", self.debs[name], into)
        return into

    def files(self, name):
        into = self.unpack(name)
        return {"/" + str(p.relative_to(into)) for p in into.rglob("*") if not p.is_dir()}


@pytest.fixture(scope="session")
def packages(tmp_path_factory):
    folder = os.environ.get("INGOT_PACKAGES")
    assert folder, "INGOT_PACKAGES names no folder; ./check makes the packages"
    return Packages(pathlib.Path(folder), tmp_path_factory.mktemp("unpacked"))
