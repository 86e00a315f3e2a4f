"""aider, unmodified: it edits a file by the blocks that the model writes, commits with a message of the model, and the
changed program runs; also with the settings of `ingot launch`."""
import os
import subprocess

import pytest

from daemon import BUILD, clean_env
from programs.venvs import left_out, needs, program, run, url

pytestmark = needs("aider")

BLOCK = """Here is the change:

greet.py
```python
<<<<<<< SEARCH
print("hello")
=======
print("hello, " + "world".upper())
>>>>>>> REPLACE
```
"""
WHOLE = """Here is the whole file:

greet.py
```
print("good" + "bye")
```
"""
BOOK_CONTEXT = 16384
BOOK = [
    ("'commit message' in messages[0].content", "feat: greet the world"),
    ("'SEARCH/REPLACE' in messages | map(attribute='content') | join", BLOCK),
    ("true", WHOLE),
]


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "greet.py").write_text('print("hello")\n')
    for words in (["init", "-q"], ["config", "user.name", "Ada"], ["config", "user.email", "ada@localhost"],
                  ["add", "."], ["commit", "-qm", "first"]):
        git(folder, *words)
    return folder


def git(folder, *words):
    return subprocess.run(["git", *words], cwd=folder, env=clean_env(folder), check=True, capture_output=True,
                          text=True).stdout


ALWAYS = ["--yes-always", "--no-check-update", "--no-analytics", "--no-show-model-warnings", "--no-gitignore",
          "--message", "Greet the world.", "greet.py"]


@pytest.mark.parametrize("stream", ["--stream", "--no-stream"])
@pytest.mark.parametrize("form, says", [("diff", "hello, WORLD\n"), ("whole", "goodbye\n")])
def test_an_edit(d, repository, form, says, stream):
    run([program("aider", "aider"), "--model", "openai/book", "--edit-format", form, stream, *ALWAYS], repository,
        OPENAI_API_BASE=url(d) + "/v1", OPENAI_API_KEY="unused")
    check(repository, says)
    assert left_out(d) == set()


def check(repository, says):
    assert run([program("aider"), "greet.py"], repository) == says
    assert git(repository, "log", "--format=%s").splitlines() == ["feat: greet the world", "first"]
    assert git(repository, "status", "--porcelain", "--untracked-files=no") == ""


def test_ingot_launch(d, repository):
    """Aider finds the daemon by the settings of `ingot launch`."""
    run([BUILD / "cli/ingot", "launch", "aider", "--", *ALWAYS], repository, INGOT_URL=url(d),
        PATH="%s:%s" % (program("aider").parent, os.environ["PATH"]))
    check(repository, "goodbye\n")
