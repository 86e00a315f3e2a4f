"""The page's JavaScript has types, in comments, which TypeScript checks."""
import pathlib
import shutil
import subprocess

import pytest

TSC = shutil.which("tsc")
FOLDER = pathlib.Path(__file__).resolve().parents[3] / "page"
OPTIONS = ["--allowJs", "--checkJs", "--noEmit", "--strict", "--noUnusedLocals", "--target", "es2022", "--module", "es2022",
           "--moduleResolution", "node", "--lib", "es2022,dom,dom.iterable"]
pytestmark = [pytest.mark.release, pytest.mark.skipif(not TSC, reason="no tsc (Debian: node-typescript)")]


def test_types(tmp_path):
    files = sorted(FOLDER.glob("*.js"))
    assert len(files) > 10
    wrong = tmp_path / "wrong.js"  # what it must find
    wrong.write_text("/** @param {number} n */\nexport function f(n) { return n.length; }\n")
    out = subprocess.run([TSC, *OPTIONS, *files, wrong], capture_output=True, text=True, check=False).stdout
    lines = [line for line in out.splitlines() if line]
    assert len(lines) == 1 and "wrong.js" in lines[0] and "TS2339" in lines[0], out
