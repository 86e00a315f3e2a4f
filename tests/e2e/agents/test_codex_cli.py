"""The real Codex: its handshake, tools, turns, errors and compaction, over a WebSocket and over
HTTP.  The model is a book, whose template picks the page that fits what Codex has sent."""
import json
import os
import signal

import pytest

from agents import codex
from agents.codex import Codex, Said, call
from daemon import until
from test_ledger import rows, until_rows

pytestmark = [pytest.mark.release,
              pytest.mark.skipif(not codex.program(), reason="INGOT_AGENTS names no folder with Codex")]


PATCH = "*** Begin Patch\n*** Add File: made.txt\n+by a patch\n*** End Patch\n"
BOOK = [
    ("'CONTEXT CHECKPOINT' in ask", "SUMMARY: three files were read, and all is well."),
    ("last.role == 'tool' and 'marker-77' in last.content", "The file says marker-77."),
    ("last.role == 'tool' and 'Success' in last.content", "The patch is in."),
    ("last.role == 'tool' and 'product is 42' in last.content", "Six times seven is forty-two."),
    ("last.role == 'tool' and 'slept' in last.content", "That was a long nap."),
    ("last.role == 'tool'", "The tool has said something else."),
    ("'look into' in ask", call("exec_command", cmd="cat note.txt")),
    ("'sleep' in ask", call("exec_command", cmd="sleep 4; echo slept", yield_time_ms=20000)),
    ("'create made' in ask", call("apply_patch", input=PATCH)),
    ("'multiply' in ask", call("mcp__calc__multiply", a=6, b=7)),
    ("'nothing more' in ask and 'SUMMARY' not in messages[-2].content", "There is nothing more to say."),
    ("'SUMMARY' in messages[-2].content or 'SUMMARY' in ask", "After the summary we go on."),
    ("'Tell me all' in ask", "It is a long story, and it begins like this..."),
    ("true", "Good day, and welcome to the machine."),
]


@pytest.fixture(params=["websocket", "http"])
def agent(request, d, tmp_path):
    c = Codex(tmp_path / "codex", d, websockets=request.param == "websocket")
    (c.project / "note.txt").write_text("marker-77\n")
    c.endpoint = "ws /v1/responses" if c and request.param == "websocket" else "POST /v1/responses"
    return c


def test_an_answer(d, agent):
    said = agent.run("Say hello")
    assert said.text == "Good day, and welcome to the machine."
    assert not said.errors  # no warning about metadata: the catalog has them
    assert said.usage["input_tokens"] > 100 and said.usage["output_tokens"] > 1
    asked = [r for r in until_rows(d, 1) if "responses" in r["endpoint"]]
    assert {r["endpoint"] for r in asked} == {agent.endpoint} and {r["status"] for r in asked} == {200}


def test_without_a_catalog(d, tmp_path):
    c = Codex(tmp_path / "codex", d, catalog=False)
    said = c.run("Say hello")
    assert said.text == "Good day, and welcome to the machine."
    assert any("metadata" in e for e in said.errors)


@pytest.mark.parametrize("provider", ["ollama", "lmstudio"])
def test_oss(d, tmp_path, provider):
    """Its own local providers, at the daemon's port instead of the one that each has built in."""
    c = Codex(tmp_path / "codex", d)
    said = c.run("--oss", "--local-provider", provider, "-m", "book", "Say hello", CODEX_OSS_PORT=str(d.port))
    assert said.text == "Good day, and welcome to the machine."
    (c.project / "note.txt").write_text("marker-77\n")
    said = c.run("--oss", "--local-provider", provider, "-m", "book", "Please look into note.txt",
                 CODEX_OSS_PORT=str(d.port))
    assert said.text == "The file says marker-77."


@pytest.mark.real
def test_the_demo_model(start, tmp_path):
    """Its template knows no tools; they are described to it in a system message.  Codex sends no
    temperature, and so small a model sometimes finds no end, which is an error: another try then."""
    d = start(os.environ["INGOT_TEST_MODEL"], extra={
        "kvcache": {"arena": 512 << 20}, "memory": {"budget": 2 << 30}, "scheduler": {"max_output_tokens": 150}})
    c = Codex(tmp_path / "codex", d, model="tiny", provider="stream_max_retries = 0")
    for _ in range(30):  # which costs little: its prompt, thousands of tokens, is cached
        p = c.start("--skip-git-repo-check", "--json", "Say hello")
        out, err = p.communicate(timeout=300)
        if not p.returncode or "max_output_tokens" not in out:
            break
    assert p.returncode == 0, (out, err)
    said = Said([json.loads(line) for line in out.splitlines() if line.startswith("{")])
    assert said.items and not said.errors and said.usage["output_tokens"] > 0
    # Instructions and tools were read by the warm-up, of which Codex drops the rest if it takes too long;
    # what differs between the two would come after some hundred tokens, were the tools behind it.
    assert said.usage["cached_input_tokens"] >= 512, said.usage


def test_a_shell_command_and_a_second_turn(d, agent):
    said = agent.run("Please look into note.txt")
    command, = said.of("command_execution")
    assert "marker-77" in command["aggregated_output"] and command["exit_code"] == 0
    assert said.text == "The file says marker-77."
    again = agent.run("resume", said.thread, "There is nothing more?")
    assert again.text == "There is nothing more to say." and again.thread == said.thread
    assert again.usage["cached_input_tokens"] > 0


def test_apply_patch(d, agent):
    said = agent.run("Please create made.txt")
    assert (agent.project / "made.txt").read_text() == "by a patch\n"
    assert said.of("file_change") and said.text == "The patch is in."


def test_a_tool_in_a_namespace(d, agent):
    said = agent.run("Please multiply six by seven")
    tool, = said.of("mcp_tool_call")
    assert (tool["server"], tool["tool"], tool["arguments"]) == ("calc", "multiply", {"a": 6, "b": 7})
    assert said.text == "Six times seven is forty-two."


def test_a_restart_between_turns(start, d, agent):
    """The daemon goes away while a command of Codex runs, and another comes to its address."""
    p = agent.start("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json",
                    "Please sleep a little")
    until(lambda: any(r["output_tokens"] > 1 for r in rows(d)), "the call")
    d.stop()
    start(config=dict(d.config, server=dict(d.config["server"], port=d.port)))
    out, err = p.communicate(timeout=120)
    assert p.returncode == 0 and "That was a long nap." in out, (out, err)


def test_an_interrupt(d, tmp_path):
    """SIGINT drops the socket; its blocks are free at the next step."""
    c = Codex(tmp_path / "codex", d)
    p = c.start("--skip-git-repo-check", "Tell me all")
    until(lambda: d.running() >= 1 and rows(d), "the turn after the warm-up")
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=60)
    d.until_idle()
    assert until_rows(d, 2)[-1]["cancel_reason"] == "client_gone"


def test_a_prompt_beyond_the_context(start, models, tmp_path):
    """Codex understands that it was too long: it does not try again, and would compact."""
    d = start(models(kind="tools", n_context=512))
    c = Codex(tmp_path / "codex", d, model="tiny", catalog=False)
    p = c.start("--skip-git-repo-check", "--json", "Say hello")
    out, err = p.communicate(timeout=60)
    assert p.returncode == 1 and "context window" in out, (out, err)
    assert len(until_rows(d, 1)) <= 2


def test_compaction(d, tmp_path):
    """Before the window is full Codex asks for a summary, and goes on with that."""
    c = Codex(tmp_path / "codex", d, config="model_context_window = 1600")
    said = c.run("Say hello")
    for _ in range(6):
        said = c.run("resume", said.thread, "There is nothing more? " + "word " * 40)
        if said.text != "There is nothing more to say.":
            break
    assert said.text == "After the summary we go on."
