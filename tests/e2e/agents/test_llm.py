"""The command llm with its OpenAI plugin, unmodified: an answer, a stream, a conversation, a tool, a
schema."""
import json
import os
import subprocess

import pytest

from agents.codex import AGENTS, call

LLM = AGENTS / "bin/llm"
pytestmark = [pytest.mark.release,
              pytest.mark.skipif(not LLM.exists(), reason="INGOT_AGENTS names no virtual environment")]

BOOK_CONTEXT = 4096
BOOK = [
    ("last.role == 'tool'", "The tool has answered, thank you."),
    ("'twice' in ask", call("double", n=21)),
    ("'dog' in ask", '{"name": "Rex", "age": 4}'),
    ("'again' in ask and messages | length > 2", "You have said something before."),
    ("true", "Good day to you, dear terminal."),
]


@pytest.fixture
def llm(d, tmp_path):
    (tmp_path / "user").mkdir()
    (tmp_path / "user/extra-openai-models.yaml").write_text(
        "- model_id: book\n  model_name: book\n  api_base: http://127.0.0.1:%d/v1\n  supports_tools: true\n"
        "  supports_schema: true\n" % d.port)
    env = dict(os.environ, LLM_USER_PATH=str(tmp_path / "user"), OPENAI_API_KEY="unused", HOME=str(tmp_path))

    def run(*words):
        p = subprocess.run([LLM, *words], capture_output=True, text=True, timeout=120, env=env, stdin=subprocess.DEVNULL)
        assert p.returncode == 0, p.stderr
        return p.stdout.strip()
    return run


@pytest.mark.parametrize("more", [[], ["--no-stream"]])
def test_an_answer(llm, more):
    assert llm("-m", "book", *more, "Say hello") == "Good day to you, dear terminal."


def test_a_conversation(llm):
    llm("-m", "book", "Say hello")
    assert llm("-c", "again, please") == "You have said something before."


def test_a_tool(llm):
    double = "def double(n: int) -> int:\n    'Twice a number.'\n    return 2 * n"
    assert llm("-m", "book", "--functions", double, "What is twice 21?") == "The tool has answered, thank you."


def test_a_schema(llm):
    assert json.loads(llm("-m", "book", "--schema", "name, age int", "Name a dog")) == {"name": "Rex", "age": 4}
