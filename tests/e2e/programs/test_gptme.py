"""gptme, unmodified: the model runs a shell command, whose output comes back to it, and ends the session; in the three
formats in which gptme takes calls, and with the settings of `ingot launch`."""
import json
import os

import pytest

from agents.codex import call
from daemon import BUILD
from programs.venvs import left_out, needs, program, run, url

pytestmark = needs("gptme")

COMMAND = "echo marker-$((6 * 7)) > product.txt; cat product.txt"
# What a command printed comes back as a message of the system, or of the tool.  The format "tool" is
# the protocol's own; the others are described in gptme's first message.
BOOK_CONTEXT = 32768
BOOK = [
    ("'marker-42' in last.content and tools", call("complete")),
    ("tools", call("shell", command=COMMAND)),
    ("'marker-42' in last.content and '<tool-use>' in messages[0].content",
     "<tool-use>\n<complete>\n</complete>\n</tool-use>"),
    ("'marker-42' in last.content", "```complete\n```\n"),
    ("'<tool-use>' in messages[0].content",
     "I use a command.\n<tool-use>\n<shell>\n%s\n</shell>\n</tool-use>" % COMMAND),
    ("true", "I multiply.\n\n```shell\n%s\n```\n" % COMMAND),
]
ASK = ["--non-interactive", "--output-format", "json", "Multiply six by seven."]


@pytest.fixture
def project(tmp_path):
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def check(project, out):
    """What the session said: one command, whose output the model was shown, and an end."""
    events = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    said = [e for e in events if e["type"] == "message"]
    assert (project / "product.txt").read_text() == "marker-42\n"
    assert [m["role"] for m in said if m["role"] != "system"] == ["user", "assistant", "assistant"], said
    assert any("`marker-42`" in m["content"] for m in said if m["role"] == "system"), said
    assert "complete" in said[-1]["content"].lower(), said


@pytest.mark.parametrize("form", ["markdown", "xml", "tool"])
def test_a_command(d, project, form):
    out = run([program("gptme", "gptme"), "--model", "local/book", "--tool-format", form, *ASK], project,
              OPENAI_BASE_URL=url(d) + "/v1", OPENAI_API_KEY="unused")
    check(project, out)
    assert left_out(d) == set()


def test_ingot_launch(d, project):
    out = run([BUILD / "cli/ingot", "launch", "gptme", "--", *ASK], project, INGOT_URL=url(d),
              PATH="%s:%s" % (program("gptme").parent, os.environ["PATH"]))
    check(project, out)
